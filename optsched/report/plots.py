"""The ``plot`` methods of results: which picture each of them draws."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from optsched import api
from optsched.benchmarking import Results, Sweep
from optsched.errors import InvalidArgument, UsageError
from optsched.instance.reading import show
from optsched.report.answers import Answer, has_layouts, has_schedule
from optsched.report.gantt import rounds_gantt, schedule_gantt
from optsched.report.heatmap import allocation_heatmap
from optsched.report.prices import price_bars
from optsched.report.results_page import gap_picture, time_picture
from optsched.report.simulation_page import simulation_picture
from optsched.report.slices import slices_picture
from optsched.report.topology import topology_picture
from optsched.report.traces import trace_page
from optsched.rounds import Plan
from optsched.simulation.result import Simulation
from optsched.solution import Solution
from optsched.traces import Trace, describe

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Pictures of a solution and of a solution file, by kind.
PICTURES: dict[str, Callable[[Answer], Axes]] = {
    "allocation": allocation_heatmap,
    "topology": topology_picture,
    "gantt": schedule_gantt,
    "rounds": rounds_gantt,
    "prices": price_bars,
    "slices": slices_picture,
}


def solution_picture(answer: Answer, kind: str | None = None) -> Axes:
    """A picture of a kind in `PICTURES`;
    by default the slices of GPUs if there are layouts, the schedule if there is one, else the
    allocation.
    """
    if kind is None:
        plain = "gantt" if has_schedule(answer) else "allocation"
        kind = "slices" if has_layouts(answer) else plain
    return PICTURES[kind](answer)


def completed(solution: Solution, kind: str | None) -> Solution:
    """The solution with the rounds and the placement that a picture of this kind needs."""
    if kind in ("rounds", "topology") and solution.schedule is None:
        solution = api.realise(solution)
    return api.place(solution) if kind == "topology" else solution


def plot_solution(solution: Solution, kind: str | None) -> Axes:
    if kind is not None and kind not in PICTURES:
        raise InvalidArgument("kind", show(kind), f"one of {', '.join(PICTURES)}")
    return solution_picture(completed(solution, kind), kind)


def plot_plan(plan: Plan) -> Axes:
    running = replace(plan.instance.jobs_table, running=plan.running)
    named = f"round {plan.round} of {plan.instance.name}"
    return topology_picture(replace(plan.instance, name=named, jobs_table=running))


def plot_trace(trace: Trace) -> Axes:
    return trace_page(describe(trace))


def plot_results(results: Results) -> Axes:
    for picture in (time_picture, gap_picture):
        axes = picture(results)
        if axes is not None:
            return axes
    raise UsageError(
        "there are no two methods with times or objectives to compare: there is nothing to draw"
    )


def plot_sweep(sweep: Sweep) -> Axes:
    return plot_results(Results.of(sweep.rows))


def plot_simulation(simulation: Simulation) -> Axes:
    return simulation_picture([simulation])
