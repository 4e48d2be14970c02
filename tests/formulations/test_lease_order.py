"""The order of objectives of leases: value, then the earliest start, then the fewest pieces, by trying all plans."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from plan_instances import LEASE, leases, made, verified

import optsched
from formulations.lease_pieces import count_pieces
from optsched.errors import SolverCrashed
from optsched.registry import load_solver
from optsched.solution import Termination, Values, plan
from optsched.solvers import Limits

# Private names: the inner steps of an answer are compared with a reference
from optsched.solving import Engine, schedules

pytestmark = pytest.mark.property

Job = tuple[int, dict[str, int], int]
"""Gang, leases needed by pool, leases before the deadline."""


def solve(instance: optsched.Instance, **options: Any) -> optsched.Solution:
    return verified(optsched.solve(instance, "lease", **options))


def reached(solution: optsched.Solution) -> tuple[float, float, float]:
    """Value, mean start of the leases of a job in leases, pieces; the last two as the stages say."""
    starts, pieces = solution.stages
    assert (starts.name, pieces.name) == ("starts", "pieces")
    return solution.objective, starts.value / LEASE, pieces.value


def instance_of(jobs: list[Job], gpus: dict[str, int]) -> optsched.Instance:
    """A job of b leases on a pool has 60 steps, at 60 / b of them in each lease."""
    return made(
        round=LEASE,
        cluster={"pools": [{"name": pool, "nodes": 1, "gpus_per_node": count} for pool, count in gpus.items()]},
        jobs=[
            {
                "id": f"j{i}", "gpus": gang, "steps": 60, "deadline": due * LEASE,
                "throughput": {pool: {str(gang): 60 / (b * LEASE)} for pool, b in needed.items()},
            }
            for i, (gang, needed, due) in enumerate(jobs)
        ],
    )  # fmt: skip


def best_of_all(jobs: list[Job], gpus: dict[str, int]) -> tuple[float, float, float]:
    """The best plan among all: every set of leases of every job in every pool, or none."""
    ways: list[list[tuple[str | None, tuple[int, ...]]]] = [
        [
            (None, ()),
            *(
                (pool, t)
                for pool, b in needed.items()
                for t in itertools.combinations(range(due), b)
            ),
        ]
        for _, needed, due in jobs
    ]
    best = (0.0, 0.0, 0.0)
    for choice in itertools.product(*ways):
        held: dict[tuple[str, int], int] = {}
        for (gang, _, _), (pool, taken) in zip(jobs, choice, strict=True):
            for t in taken:
                held[pool, t] = held.get((pool, t), 0) + gang  # type: ignore[index]
        if any(amount > gpus[pool] for (pool, _), amount in held.items()):
            continue
        planned = [taken for _, taken in choice if taken]
        pieces = sum(1 + sum(b > a + 1 for a, b in itertools.pairwise(taken)) for taken in planned)
        mean = sum(float(np.mean(taken)) for taken in planned)
        best = min(best, (-float(len(planned)), round(mean, 9), float(pieces)))
    return -best[0], best[1], best[2]


def drawn(seed: int) -> tuple[list[Job], dict[str, int]]:
    """Three or four jobs, some of them equal, on one or two pools."""
    random = np.random.default_rng(seed)
    gpus = {"a": int(random.integers(1, 4))} | ({"b": 2} if seed % 3 == 0 else {})
    jobs: list[Job] = []
    for _ in range(int(random.integers(2, 4))):
        needed = {pool: int(random.choice([1, 2, 3])) for pool in gpus}
        gang = int(random.integers(1, 1 + min(gpus.values())))
        jobs.append((gang, needed, max(needed.values()) + int(random.integers(0, 3))))
    return (jobs + jobs[:1] if seed % 2 else jobs), gpus


@pytest.mark.parametrize("seed", range(40))
def test_no_plan_is_better_in_this_order(seed: int) -> None:
    jobs, gpus = drawn(seed)
    expected = best_of_all(jobs, gpus)
    for classes in (True, False):
        solution = solve(instance_of(jobs, gpus), admission=True, classes=classes)
        assert solution.status == "optimal"
        assert reached(solution) == pytest.approx(expected, abs=1e-6)
        assert solution.stages[1].value == count_pieces(solution.schedule)
        assert all(stage.bound == pytest.approx(stage.value, rel=1e-6) for stage in solution.stages)


@pytest.mark.unit
def test_a_job_alone_starts_now_and_runs_in_one_piece() -> None:
    (row,) = solve(leases([1], [2], [10], 1)).schedule.to_records()
    assert (row["start"], row["end"]) == (0.0, 2 * LEASE)


@pytest.mark.unit
def test_equal_jobs_do_not_interrupt_each_other() -> None:
    records = solve(leases([1, 1], [3, 3], [9, 9], 1)).schedule.to_records()
    assert [(row["start"], row["end"]) for row in records] == [
        (0.0, 3 * LEASE),
        (3 * LEASE, 6 * LEASE),
    ]


def test_the_same_instance_gives_the_same_bytes() -> None:
    jobs, gpus = drawn(3)
    documents = [
        solve(instance_of(jobs, gpus), admission=True).to_document() | {"timings": {}}
        for _ in range(2)
    ]
    assert documents[0] == documents[1]


def test_the_first_lease_keeps_its_worth() -> None:
    """Minimised, nobody starts in it: the start comes after the value, which counts it."""
    for sense, start in (("minimise", LEASE), ("maximise", 0.0)):
        solution = solve(leases([1], [1], [4], 1), first_lease=sense)
        assert solution.schedule.to_records()[0]["start"] == start


def test_the_bound_is_about_the_value_alone() -> None:
    solution = solve(leases([1, 2], [2, 2], [6, 6], 2))
    assert solution.bound == solution.objective == 2.0
    document = solution.to_document()
    assert [stage["name"] for stage in document["stages"]] == ["starts", "pieces"]
    before = {key: value for key, value in document.items() if key != "stages"}
    assert optsched.verify(solution.instance, before).ok, "files of before have no stages"


@pytest.mark.parametrize(
    ("stage", "field", "value"),
    [(0, "value", 1.0), (1, "value", 1.0), (1, "bound", 9.0), (0, "name", "ends")],
)
def test_wrong_stages_of_a_file_are_refused(stage: int, field: str, value: object) -> None:
    solution = optsched.solve(leases([1, 2], [2, 2], [6, 6], 2), "lease")
    document = solution.to_document()
    document["stages"][stage][field] = value
    report = optsched.verify(solution.instance, document)
    assert [finding.field for finding in report.findings] == [f"stages[{stage}].{field}"]


@pytest.mark.parametrize("ends", ["time_limit", "error", "nothing", "worse"])
def test_what_becomes_of_later_runs_never_costs_the_answer(
    ends: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even then no job can start earlier by itself."""
    run = schedules._run_later

    def ended(*arguments: Any) -> Values:
        if ends == "error":
            return Values(Termination.ERROR)
        values = run(*arguments)
        if ends == "worse":
            return Values(Termination.WORK_LIMIT, x=0.0 * values.x)
        return Values(Termination.TIME_LIMIT if ends == "time_limit" else Termination.WORK_LIMIT)

    monkeypatch.setattr(schedules, "_run_later", ended)
    solution = solve(leases([1, 1, 2], [2, 3, 1], [9, 9, 9], 2))
    assert (solution.status, solution.objective, solution.bound) == ("optimal", 3.0, 3.0)
    assert solution.reproducible == (ends != "time_limit")
    assert min(row["start"] for row in solution.schedule.to_records()) == 0.0


def test_large_programs_are_only_moved_to_the_left(monkeypatch: pytest.MonkeyPatch) -> None:
    shifted = solve(leases([1, 1], [2, 3], [9, 9], 1), refine="shift")
    monkeypatch.setattr(plan, "LATER_COLUMNS", 0)
    solution = solve(leases([1, 1], [2, 3], [9, 9], 1))
    assert shifted.schedule.to_records() == solution.schedule.to_records()
    assert [stage.bound for stage in solution.stages] == [None, None]
    assert max(row["end"] for row in solution.schedule.to_records()) == 5 * LEASE


def test_a_solver_that_breaks_down_later_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(load_solver, "highs", Limits())
    opened = engine.open

    def broken(arrays: Any, *arguments: Any, **options: Any) -> Any:
        session = opened(arrays, *arguments, **options)
        if arrays.rows[-1].name.startswith("held"):

            def crash(limits: Limits) -> Values:
                raise SolverCrashed("out of luck")

            session.run = crash  # type: ignore[method-assign]
        return session

    monkeypatch.setattr(engine, "open", broken)
    instance = leases([1, 1], [2, 2], [6, 6], 1)
    formulation = optsched.api.make_formulation("lease")
    solution = formulation.solve(optsched.compile(instance), engine)
    assert solution.status == "optimal" and solution.ok
    assert sum("out of luck" in words for words in solution.solver.rebuilt) == 2


def test_a_stopped_plan_is_moved_to_the_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A first run that a limit stops leaves no time for later ones: its plan has no idle GPU that a job could use."""
    monkeypatch.setattr(schedules, "_run_later", lambda *arguments: pytest.fail("no run is left"))
    original = Engine.run

    def stopped(engine: Engine, session: Any) -> Values:
        values = original(engine, session)
        return Values(
            Termination.WORK_LIMIT,
            values.primal,
            x=values.x,
            objective=values.objective,
            bound=values.bound,
        )

    monkeypatch.setattr(Engine, "run", stopped)
    solution = solve(leases([1], [2], [10], 1))
    assert (
        solution.termination == "work_limit" and solution.schedule.to_records()[0]["start"] == 0.0
    )
    assert [stage.bound for stage in solution.stages] == [None, None]
