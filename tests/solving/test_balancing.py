"""Schedules of unrelated machines whose jobs are divided anew: they end early, and are points of the program."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import optsched
from optsched.api import make_formulation
from optsched.arrays import FloatArray
from optsched.generate import generate
from optsched.instance import Instance
from optsched.solution import certify_point
from optsched.solution.plan import LinearPlan
from optsched.solvers import Highs, Limits, Progress

# Private: the search without the engine that runs it, and the size from which it is run
from optsched.solving import schedules
from optsched.solving.balancing import Balancing

pytestmark = pytest.mark.property


def times(seed: int, machines: int = 4, jobs: int = 40) -> FloatArray:
    """Seconds of jobs, some of which cannot run everywhere."""
    random = np.random.default_rng(seed)
    seconds = random.integers(5, 40, jobs) + random.integers(1, 10, (machines, jobs))
    seconds = np.where(random.random(seconds.shape) < 0.1, np.inf, seconds.astype(np.float64))
    seconds[0] = np.where(np.isfinite(seconds).any(axis=0), seconds[0], 50.0)
    return np.asarray(seconds, np.float64)


def plan_of(instance: Instance, **options: Any) -> LinearPlan:
    formulation = make_formulation("makespan-unrelated", options)
    plan = formulation.build(formulation.classes(optsched.compile(instance)))
    assert isinstance(plan, LinearPlan)
    return plan


@pytest.mark.parametrize("seed", range(5))
def test_the_makespan_falls(seed: int) -> None:
    seconds = times(seed)
    price = np.random.default_rng(seed).random(4) + 1.0
    search = Balancing.begun(seconds, price, seed)
    before = search.makespan
    search.run(before - 3.0, 1.0, lambda: False)
    load = np.bincount(search.agent, seconds[search.agent, np.arange(40)], minlength=4)
    assert search.makespan == load.max()
    assert search.makespan < before
    assert np.isfinite(seconds[search.agent, np.arange(40)]).all()


@pytest.mark.unit
def test_one_machine_has_nobody_to_share_with() -> None:
    search = Balancing.begun(np.array([[3.0, 4.0]]), np.ones(1), 0)
    search.run(1.0, 1.0, lambda: False)
    assert search.makespan == 7.0


def test_the_search_ends_at_the_optimum() -> None:
    instance = generate("unrelated", jobs=30, machines=3, seed=1).instance
    plan = plan_of(instance)
    best = Highs().open(plan.program.arrays).run(Limits(gap=0.0))
    assert plan.machines is not None and best.objective is not None
    machines = plan.machines()
    search = Balancing.begun(machines.seconds, np.ones(3), 0)
    search.run(best.objective, 1.0, lambda: False)
    assert search.makespan == pytest.approx(best.objective)


def test_equal_machines_and_equal_jobs_make_a_point_of_the_program() -> None:
    """Machines of a pool are numbered by their load in the program, whatever the search calls them."""
    document = generate("unrelated", jobs=12, machines=2, seed=2).instance.to_document()
    document["cluster"]["pools"][0]["gpus_per_node"] = 3
    document["jobs"] += [{**job, "id": f"again-{job['id']}"} for job in document["jobs"]]
    plan = plan_of(Instance.from_document(document))
    assert plan.machines is not None
    machines = plan.machines()
    assert machines.seconds.shape == (4, 24)
    assert machines.resource.tolist() == [0, 0, 0, 1]
    random, arrays = np.random.default_rng(0), plan.program.arrays
    for _ in range(20):
        machine = random.integers(0, 4, 24)
        point = machines.point(machine)
        load = np.bincount(machine, machines.seconds[machine, np.arange(24)], minlength=4)
        assert arrays.objective(point) == pytest.approx(load.max())
        assert certify_point(arrays, point, float(load.max()), "none").ok


def test_nothing_is_asked_of_a_search_that_is_over() -> None:
    search = Balancing.begun(times(1), np.ones(4), 0)
    before = search.agent.copy()
    search.run(0.0, 1.0, lambda: True)
    assert (search.agent == before).all()


def test_a_search_begins_at_once_where_time_is_short() -> None:
    """The repair of its first assignment may take longer than there is time."""
    asked: list[int] = []

    def late() -> bool:
        asked.append(1)
        return True

    search = Balancing.begun(times(1), np.ones(4), 0, late)
    seconds = search.of.use[search.agent, np.arange(40)]
    assert len(asked) <= 1 and search.makespan == np.bincount(search.agent, seconds).max()


def test_the_search_reports_incumbent_and_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = generate("unrelated", jobs=60, machines=5, correlation="jobs", seed=3).instance
    monkeypatch.setattr(schedules, "SEARCHED", 0)
    events: list[Progress] = []
    found = optsched.solve(instance, "makespan-unrelated", gap=0.01, on_progress=events.append)
    mine = [event for event in events if event.words == "search of machines"]
    makespans = [event.incumbent for event in mine if event.incumbent is not None]
    assert len(makespans) == len(mine) >= 2
    assert all(later < before for before, later in pairwise(makespans))
    assert all(later.elapsed >= before.elapsed for before, later in pairwise(mine))
    assert len({event.bound for event in mine}) == 1
    assert mine[0].bound is not None and found.objective is not None
    assert mine[0].bound <= found.objective <= makespans[-1]


def test_the_answer_is_no_worse_than_that_of_the_solver_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    instance = generate("unrelated", jobs=60, machines=5, correlation="jobs", seed=3).instance
    monkeypatch.setattr(schedules, "SEARCHED", 0)
    found = optsched.solve(instance, "makespan-unrelated", gap=0.01)
    assert found.timings["search"] > 0
    assert found.certificate.ok and found.status == "optimal"
    other = optsched.solve(instance, "makespan-unrelated", solver="highs", gap=0.01)
    assert "search" not in other.timings
    assert found.objective is not None and other.bound is not None
    assert other.bound <= found.objective + 1e-6
    assert optsched.verify(found).ok


def test_the_rounding_is_not_searched() -> None:
    instance = generate("unrelated", jobs=10, machines=3, seed=1).instance
    assert plan_of(instance, program="rounding").machines is None
