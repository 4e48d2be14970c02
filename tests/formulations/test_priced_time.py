"""Prices of time: they show that jobs cannot meet their deadlines where a solver shows it too, and
bound the cost of those that can.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from plan_instances import made, verified

import optsched
from formulations import deadline_fluid, priced_time
from formulations.deadline_fluid import FluidProgram
from formulations.priced_time import PricedTime
from optsched.instance import Instance
from optsched.instance.durations import UNLIMITED, Timer
from optsched.solution import Status
from optsched.solution.plan import LinearPlan, Shortage

pytestmark = pytest.mark.unit


def random_set(random: np.random.Generator, jobs: int = 14) -> Instance:
    """Levels, two pools and nodes that open later; about as much work as there is time."""
    rows = []
    load = random.uniform(0.7, 1.6)
    for number in range(jobs):
        arrival, window = float(random.uniform(0, 60)), float(random.uniform(15, 40))
        pools = random.choice(["a", "b", "ab"])
        rates = {pool: float(random.uniform(0.6, 1.6)) for pool in pools}
        levels = {
            pool: {"1": rate, "2": rate * float(random.uniform(1.2, 2.0))}
            for pool, rate in rates.items()
        }
        rows.append(
            {
                "id": f"j{number}",
                "steps": load * window * float(random.uniform(0.2, 0.7)),
                "arrival": arrival,
                "deadline": arrival + window,
                "gpus": {"min": 1, "max": 2, "levels": [1, 2]},
                "throughput": levels,
            }
        )
    late = [{"name": "b0"}, {"name": "b1", "available_from": 20.0}]
    pools = [
        {"name": "a", "nodes": 1, "gpus_per_node": 2},
        {"name": "b", "gpus_per_node": 1, "nodes": late},
    ]
    return made(cluster={"pools": pools}, jobs=rows)


def equal_jobs(count: int) -> Instance:
    """Each job needs half of the 40 s on one of two GPUs."""
    return made(
        cluster={"pools": [{"name": "a", "nodes": 1, "gpus_per_node": 2}]},
        jobs=[
            {"id": f"j{n}", "gpus": 1, "steps": 20, "deadline": 40, "throughput": {"a": 1.0}}
            for n in range(count)
        ],
    )


@pytest.fixture
def program_of(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Instance -> its program, whose plan nobody has asked for."""

    def program(instance: Instance) -> FluidProgram:
        made_programs: list[FluidProgram] = []
        real = FluidProgram.plan

        def plan(fluid: FluidProgram) -> LinearPlan:
            made_programs.append(fluid)
            return real(fluid)

        with monkeypatch.context() as patch:
            patch.setattr(FluidProgram, "plan", plan)
            solved.append(optsched.solve(instance, "deadline-fluid"))
        return made_programs[0]

    solved: list[optsched.Solution] = []
    program.solved = solved  # type: ignore[attr-defined]
    yield program


@pytest.mark.parametrize("by_jobs", [True, False])
def test_prices_show_what_a_solver_shows(
    program_of: Any, monkeypatch: pytest.MonkeyPatch, by_jobs: bool
) -> None:
    """200 small sets, half of them by each of the two eliminations."""
    monkeypatch.setattr(PricedTime, "by_jobs", by_jobs)
    random = np.random.default_rng(5 + by_jobs)
    refused = 0
    for _ in range(100):
        shortage = program_of(random_set(random)).shown_by_prices(UNLIMITED)
        infeasible = program_of.solved[-1].status is Status.INFEASIBLE
        assert (shortage is not None) == infeasible
        refused += infeasible
    assert 15 < refused < 85


@pytest.mark.parametrize("by_jobs", [True, False])
def test_merged_intervals_show_nothing_false(
    program_of: Any, monkeypatch: pytest.MonkeyPatch, by_jobs: bool
) -> None:
    monkeypatch.setattr(PricedTime, "by_jobs", by_jobs)
    random, shown = np.random.default_rng(9), 0
    for _ in range(40):
        merged = program_of(random_set(random))._merged(80)
        if merged.shown_by_prices(UNLIMITED) is not None:
            shown += 1
            assert program_of.solved[-1].status is Status.INFEASIBLE
    assert shown > 3


@pytest.mark.parametrize("by_jobs", [True, False])
def test_prices_bound_the_cost(
    program_of: Any, monkeypatch: pytest.MonkeyPatch, by_jobs: bool
) -> None:
    """Within a thousandth in all intervals, and never above the optimum in merged ones."""
    monkeypatch.setattr(PricedTime, "by_jobs", by_jobs)
    random, kept = np.random.default_rng(21), 0
    for _ in range(40):
        program = program_of(random_set(random))
        optimum = program_of.solved[-1].bound
        if program_of.solved[-1].status is Status.INFEASIBLE or optimum is None:
            continue
        kept += 1
        bounds = []
        for each in (program, program._merged(60)):
            _, priced = each.priced
            found = priced.prices(UNLIMITED)
            assert found is not None
            bounds.append(priced.bound(found.time, found.work))
        assert 0.998 * optimum < bounds[0] <= optimum * (1 + 1e-9)
        assert 0 < bounds[1] <= optimum * (1 + 1e-9)
    assert kept > 10


@pytest.mark.parametrize(("jobs", "short"), [(4, False), (5, True)])
def test_classes_of_several_jobs_pay_for_all_of_them(
    program_of: Any, jobs: int, short: bool
) -> None:
    program = program_of(equal_jobs(jobs))
    assert len(program.C) == 1
    shortage: Shortage | None = program.shown_by_prices(UNLIMITED)
    assert (shortage is not None) == short


def test_the_jobs_are_named_and_the_certificate_is_a_sum(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(deadline_fluid, "SIFTED_FROM", 1)
    monkeypatch.setattr(FluidProgram, "shortage", None)
    solution = verified(optsched.solve(equal_jobs(5), "deadline-fluid", time_limit=600.0))
    assert (solution.status, solution.certificate.proof) == (Status.INFEASIBLE, "counted")
    prices, jobs = [conflict.words for conflict in solution.conflicts]
    assert prices.startswith("there are prices of time from 0 s to 40 s at which all time costs")
    assert jobs.startswith("job j0 (and 4 like it) needs at least 20 s each, on 1 GPU of a")
    asked, there = (solution.certificate.residuals[name] for name in ("asked", "available"))
    assert asked > there > 0


def test_no_prices_are_sought_where_the_time_is_over(
    program_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = program_of(equal_jobs(5))
    monkeypatch.setattr(priced_time, "_Newton", None)
    assert program.shown_by_prices(Timer.after(0.0)._replace(least=0.0)) is None
