"""The core of a program of whole jobs: what it may cut off, and what comes of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from blocks import first_of
from core_cases import core_of

import optsched
from optsched.arrays import FloatArray
from optsched.generate import generate
from optsched.instance import Instance
from optsched.program import LinearArrays
from optsched.solution import Termination
from optsched.solvers import Highs, HighsSession, Limits

# Private: points in the units of the program, and a core without the engine that runs it
from optsched.solvers.scaling import ScaledSession


def knapsack(seed: int, jobs: int = 12) -> Instance:
    """Jobs with options that need two or three resources, few of which fit."""
    return generate(
        "knapsack", jobs=jobs, choices=3, resources=2 + seed % 2, tightness=0.35, seed=seed
    ).instance


def best_of(arrays: LinearArrays) -> tuple[float, FloatArray]:
    values = Highs().open(arrays).run(Limits(gap=0.0))
    assert values.termination is Termination.OPTIMAL and values.x is not None
    x = np.round(values.x)
    return float(arrays.cost @ x) + arrays.offset, x


@pytest.mark.parametrize("seed", range(6))
def test_losses_bound_every_whole_point(seed: int) -> None:
    core = core_of(knapsack(seed))
    C, draw = core.classes, np.random.default_rng(seed)
    for _ in range(200):
        x = np.zeros(C.columns)
        used = draw.random(len(C)) < draw.random()
        for column in draw.permutation(C.columns):
            k = C.class_a[column]
            after = x + (np.arange(C.columns) == column)
            rows = core.arrays.A @ after
            if used[k] and not x[C.class_a == k].any() and (rows <= core.arrays.row_upper).all():
                x = after
        lost = core.loss @ x + core.idle_loss @ (C.count - C.time(x))
        assert core.value(x) <= core.bound - lost + 1e-6 * core.bound


@pytest.mark.property
@pytest.mark.parametrize("seed", first_of(12, blocks=4))
def test_columns_that_lose_too_much_are_in_no_better_point(seed: int) -> None:
    core = core_of(knapsack(seed))
    best, _ = best_of(core.arrays)
    left_out = 0
    for value in (0.9 * best, 0.99 * best, best * (1 - 1e-6)):
        lower, upper = core.without_losers(value)
        assert best_of(replace(core.arrays, lower=lower, upper=upper))[0] == pytest.approx(best)
        left_out += int((upper < core.arrays.upper).sum())
        assert core.open_columns(value) == int((lower < upper).sum())
    assert left_out > 0
    beyond = core.without_losers(core.bound + 1.0 + 1e-6 * core.bound)[1]
    assert best_of(replace(core.arrays, lower=lower, upper=beyond))[0] < best


@pytest.mark.property
def test_a_core_keeps_its_point_and_opens_what_loses_least() -> None:
    core = core_of(knapsack(3, jobs=25))
    point = best_of(core.arrays)[1]
    before = np.zeros(core.arrays.shape[1], bool)
    for extra in (0, 5, 20, 1000):
        lower, upper = core.around(point, extra)
        assert (lower <= point).all() and (point <= upper).all()
        now = lower < upper
        assert not (before & ~now).any()  # a larger one opens more
        before = now
    assert before.all()
    few = core.around(point, 5)
    now = (few[0] < few[1])[: len(core.loss)]
    assert 0 < now.sum() < 20
    shut = ~now & (point[: len(now)] == 0)
    assert core.loss[now & (point[: len(now)] == 0)].max() <= core.loss[shut].max()


def test_what_a_point_does_against_the_prices_is_open() -> None:
    core = core_of(knapsack(2, jobs=40))
    C = core.classes
    idle = np.zeros(core.arrays.shape[1])
    lower, upper = core.around(idle, 0)
    wanted = core.idle_loss > np.partition(np.append(core.loss, core.idle_loss), len(C))[len(C)]
    opened = np.zeros(len(C), bool)
    opened[C.class_a[(lower < upper)[: C.columns]]] = True
    assert wanted.any() and opened[wanted].all()  # jobs that wait and should not
    worst = np.lexsort((-core.loss, C.class_a))[np.searchsorted(C.class_a, range(len(C)))]
    dear = idle.copy()
    dear[worst] = 1.0
    lower, upper = core.around(dear, 0)
    assert (lower < upper)[worst[wanted]].all()  # jobs that run where they lose most


@pytest.mark.property
@pytest.mark.parametrize("seed", first_of(8, blocks=3))
def test_cores_end_in_the_optimum(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr("optsched.solving.engine.RELAXED_FIRST", 10)
    monkeypatch.setattr("optsched.solving.program_search.OPEN", 4)
    runs: list[int] = []
    run = HighsSession.run

    def counted(self: HighsSession, limits: Limits) -> Any:
        if self.arrays.is_integer:
            runs.append(int((self.arrays.lower < self.arrays.upper).sum()))
        return run(self, limits)

    instance = knapsack(seed, jobs=30)
    best = optsched.solve(instance, "multiple-choice", solver="highs", gap=0.0)
    monkeypatch.setattr(HighsSession, "run", counted)
    solution = optsched.solve(instance, "multiple-choice", gap=0.0)
    assert solution.status == "optimal" and solution.objective == best.objective
    assert len(runs) > 2 and runs[0] < runs[-1] < 90  # cores first, then all but the losers
    assert optsched.verify(instance, solution.to_document()).ok


@pytest.mark.property
def test_cores_end_where_the_gap_is_small_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("optsched.solving.engine.RELAXED_FIRST", 10)
    monkeypatch.setattr("optsched.solving.exchanges.MOVES", 1)  # else no core is needed
    runs: list[int | None] = []
    run = HighsSession.run

    def counted(self: HighsSession, limits: Limits) -> Any:
        runs.extend([limits.work] if self.arrays.is_integer else [])
        return run(self, limits)

    monkeypatch.setattr(HighsSession, "run", counted)
    instance = knapsack(0, jobs=400)
    solution = optsched.solve(instance, "multiple-choice", gap=5e-4)
    assert runs and None not in runs  # never the whole program
    assert solution.status == "optimal" and solution.gap is not None and solution.gap <= 5e-4
    report = optsched.verify(instance, solution.to_document())
    assert report.ok and report.bound == "verified"


@pytest.mark.property
def test_a_last_run_without_a_point_keeps_what_cores_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("optsched.solving.engine.RELAXED_FIRST", 10)
    monkeypatch.setattr("optsched.solving.program_search.OPEN", 4)
    instance = knapsack(5, jobs=30)
    best = optsched.solve(instance, "multiple-choice", solver="highs", gap=0.0)
    run, found = ScaledSession.run, []

    def stopped(self: ScaledSession, limits: Limits) -> Any:
        values = run(self, limits)
        if not self.arrays.is_integer:
            return values
        if limits.work is None:  # the whole program
            return replace(values, x=None, objective=None, termination=Termination.TIME_LIMIT)
        found.append(values.objective)
        return values

    monkeypatch.setattr(ScaledSession, "run", stopped)
    solution = optsched.solve(instance, "multiple-choice", gap=0.0)
    assert found and solution.objective == pytest.approx(max(found))
    assert solution.objective is not None and best.objective is not None
    assert solution.status == "feasible" and solution.objective <= best.objective
    assert not solution.reproducible


def test_an_interrupt_in_a_core_keeps_the_point(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("optsched.solving.engine.RELAXED_FIRST", 10)
    monkeypatch.setattr("optsched.solving.program_search.OPEN", 4)
    run, runs = HighsSession.run, []

    def interrupted(self: HighsSession, limits: Limits) -> Any:
        values = run(self, limits)
        if not self.arrays.is_integer:
            return values
        runs.append(limits)
        return replace(values, x=None, termination=Termination.INTERRUPTED)

    monkeypatch.setattr(HighsSession, "run", interrupted)
    instance = knapsack(5, jobs=30)
    solution = optsched.solve(instance, "multiple-choice")
    assert len(runs) == 1 and runs[0].on_progress is None
    assert solution.status == "feasible" and solution.objective is not None
    assert not solution.reproducible and solution.certificate.ok
    assert [item.name for item in solution.solver.attempts] == ["prices", "highs"]


def test_whole_jobs_by_the_dozen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Classes of several equal jobs, some of which run and some of which do not."""
    monkeypatch.setattr("optsched.solving.engine.RELAXED_FIRST", 10)
    monkeypatch.setattr("optsched.solving.program_search.OPEN", 4)
    b = optsched.InstanceBuilder(round="6m")
    pools = [b.add_pool(name, nodes=5, gpus_per_node=4) for name in ("v100", "k80")]
    draw = np.random.default_rng(4)
    for kind in range(9):
        rates = draw.uniform(1, 5, 2)
        for copy in range(6):
            b.add_job(
                f"j{kind}.{copy}",
                steps=1000,
                gpus=1 + kind % 3,
                throughput=dict(zip(pools, rates.tolist(), strict=True)),
            )
    instance = b.instance()
    best = optsched.solve(instance, "max-throughput", options={"integral": True}, solver="highs")
    solution = optsched.solve(instance, "max-throughput", options={"integral": True})
    assert [item.name for item in solution.solver.attempts][:1] == ["prices"]
    assert solution.status == "optimal"
    assert solution.objective == pytest.approx(best.objective, rel=1e-6)


@pytest.mark.property
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", ["none", "budget", "minimum-throughput"])
def test_whole_jobs_that_share_gpus_are_relaxed_as_rows(
    monkeypatch: pytest.MonkeyPatch, seed: int, kind: str
) -> None:
    """Prices do not take pairs; the bound and the first point come from the linear program."""
    monkeypatch.setattr("optsched.solving.engine.RELAXED_FIRST", 10)
    monkeypatch.setattr("optsched.solving.program_search.OPEN", 4)
    instance = generate(
        "cluster", jobs=24, seed=seed, colocation=0.5, elastic=0.3, deadlines=0.5
    ).instance
    assert not optsched.compile(instance).classes(frozenset()).all_alone
    options = {
        "budget": {"limit": 30.0},
        "minimum-throughput": {"jobs": [instance.jobs[0].id], "rate": 1e-3},
    }
    constraints = [] if kind == "none" else [{"kind": kind, **options[kind]}]
    how: dict[str, Any] = {"constraints": constraints, "gap": 0.0}
    best = optsched.solve(instance, "max-throughput", solver="highs", integral=True, **how)
    run, relaxed = HighsSession.run, []

    def counted(self: HighsSession, limits: Limits) -> Any:
        relaxed.append(not self.arrays.is_integer)
        return run(self, limits)

    monkeypatch.setattr(HighsSession, "run", counted)
    found = optsched.solve(instance, "max-throughput", integral=True, **how)
    assert found.status == best.status == "optimal" and relaxed[0]
    assert found.objective == pytest.approx(best.objective, rel=1e-9)
    assert optsched.verify(instance, found.to_document()).ok
