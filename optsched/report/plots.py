"""The ``plot`` methods of results: which picture each of them draws."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from optsched import api
from optsched.benchmarking import Results, Sweep
from optsched.display.picture import Picture
from optsched.errors import InvalidArgument, UsageError
from optsched.instance import Instance
from optsched.instance.reading import show
from optsched.report.answers import Answer, has_schedule
from optsched.report.comparison import comparison_picture
from optsched.report.front import front_picture
from optsched.report.gantt import rounds_gantt, schedule_gantt
from optsched.report.heatmap import allocation_heatmap
from optsched.report.prices import price_bars
from optsched.report.results_page import gap_picture, time_picture
from optsched.report.simulation_page import simulation_picture
from optsched.report.topology import topology_picture
from optsched.report.traces import trace_page
from optsched.rounds import Plan
from optsched.sensitivity import Front
from optsched.simulation.result import Simulation
from optsched.solution import Allocation, Prices, Rounds, Schedule, Solution
from optsched.study.comparison import Comparison
from optsched.traces import Trace, describe

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# What can be drawn of a solution, and of a solution file.
PICTURES: dict[str, Callable[[Answer], Axes]] = {
    "allocation": allocation_heatmap,
    "topology": topology_picture,
    "gantt": schedule_gantt,
    "rounds": rounds_gantt,
    "prices": price_bars,
}


def solution_picture(answer: Answer, kind: str | None = None) -> Axes:
    """A picture of a kind in `PICTURES`;
    by default the schedule where there is one, else the allocation.
    """
    return PICTURES[kind or ("gantt" if has_schedule(answer) else "allocation")](answer)


def completed(solution: Solution, kind: str | None) -> Solution:
    """The solution with the rounds and the placement that a picture of this kind needs."""
    if kind in ("rounds", "topology") and solution.schedule is None:
        solution = api.realise(solution)
    return api.place(solution) if kind == "topology" else solution


def plot_solution(solution: Solution, kind: str | None) -> Picture:
    if kind is not None and kind not in PICTURES:
        raise InvalidArgument("kind", show(kind), f"one of {', '.join(PICTURES)}")
    return Picture(solution_picture(completed(solution, kind), kind))


def plot_allocation(allocation: Allocation) -> Picture:
    return Picture(allocation_heatmap(allocation))


def plot_schedule(schedule: Schedule) -> Picture:
    return Picture(schedule_gantt(schedule))


def plot_prices(prices: Prices) -> Picture:
    return Picture(price_bars(prices))


def plot_rounds(rounds: Rounds) -> Picture:
    return Picture(rounds_gantt(rounds))


def plot_instance(instance: Instance) -> Picture:
    return Picture(topology_picture(instance))


def plot_plan(plan: Plan) -> Picture:
    running = replace(plan.instance.jobs_table, running=plan.running)
    named = f"round {plan.round} of {plan.instance.name}"
    return Picture(topology_picture(replace(plan.instance, name=named, jobs_table=running)))


def plot_trace(trace: Trace) -> Picture:
    return Picture(trace_page(describe(trace)))


def plot_comparison(comparison: Comparison) -> Picture:
    return Picture(comparison_picture(comparison))


def plot_results(results: Results) -> Picture:
    for picture in (time_picture, gap_picture):
        axes = picture(results)
        if axes is not None:
            return Picture(axes)
    raise UsageError(
        "there are no two methods with times or objectives to compare: there is nothing to draw"
    )


def plot_sweep(sweep: Sweep) -> Picture:
    return plot_results(Results.of(sweep.rows))


def plot_front(front: Front) -> Picture:
    return Picture(front_picture(front))


def plot_simulation(simulation: Simulation) -> Picture:
    return Picture(simulation_picture([simulation]))
