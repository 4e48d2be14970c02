"""Finish-time fairness: the optimum of the convex program, history, extremes, bounds that every rho keeps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from documents import instance_document
from filling_reference import Case, random_case
from refusals import refuses

import optsched
from optsched import Instance, Solution
from optsched.errors import SolverCrashed, UsageError
from optsched.solution import Termination, Values
from optsched.solvers import HighsSession, Limits

pytestmark = pytest.mark.property

NAME = "finish-time-fairness"
NOW = 1e7


def solve(instance: Instance, **options: Any) -> Solution:
    """Solved, certified, and verified from its file."""
    solution = optsched.solve(instance, NAME, **options)
    assert solution.ok and solution.status == "optimal", solution.certificate
    assert solution.certificate.proof == "dual" and solution.gap <= (
        1e-6 if solution.solver.name == "clarabel" else 2e-9
    )
    report = optsched.verify(instance, solution.to_document())
    assert report.ok and report.bound == "verified", report
    return solution


def timed(case: Case, steps: np.ndarray, age: np.ndarray, past: np.ndarray) -> Instance:
    """The jobs of a case with steps left, age and isolated time so far."""
    case.steps, case.more = steps, {"now": NOW, "arrival": NOW - age, "isolated_time": past}
    return case.instance()


def isolated(case: Case) -> np.ndarray:
    """Isolated throughput of every job."""
    capacity = np.asarray(case.capacity, float)
    runs = (case.rate > 0) & (case.gang[:, None] <= capacity)
    y = capacity[None, :] / (len(case.placed()) * case.gang[:, None])
    return (case.rate * runs * y / np.maximum(1.0, y.sum(axis=1, keepdims=True))).sum(axis=1)


def convex(case: Case, steps: np.ndarray, age: np.ndarray, past: np.ndarray) -> float:
    """The convex program as one writes it, with the inverse of a positive affine function."""
    cp = pytest.importorskip("cvxpy")
    placed, (A, b), T = case.placed(), case.polyhedron(), case.throughput()
    D = past[placed] + steps[placed] / isolated(case)[placed]
    x, rho = cp.Variable(A.shape[1], nonneg=True), cp.Variable()
    rows = [
        (age[i] + steps[i] * cp.inv_pos(T[i] @ x)) / D[row] <= rho for row, i in enumerate(placed)
    ]
    problem = cp.Problem(cp.Minimize(rho), [A @ x <= b, *rows])
    problem.solve(solver="CLARABEL", tol_gap_rel=1e-9, tol_gap_abs=1e-9, tol_feas=1e-9)
    assert problem.status == "optimal"
    return float(problem.value)


FAMILIES = {
    "flat": {},
    "gangs": {"gangs": True, "zeros": True},
    "pairs": {"pairs": True},
    "equal jobs": {"twins": True, "gangs": True},
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    ("seed", "solver"), [(0, "highs"), (1, "clarabel"), (2, "glop"), (3, "auto"), (4, "highs")]
)
def test_rho_is_that_of_the_convex_program(family: str, seed: int, solver: str) -> None:
    """The first call has no history, the second one has: jobs that waited, jobs that ran, jobs that just came."""
    case, random = (
        random_case(seed, 3 + seed, **FAMILIES[family]),
        np.random.default_rng(seed + 100),
    )
    jobs = case.jobs
    first, never = random.lognormal(6, 1.5, jobs), np.zeros(jobs)
    kind = random.integers(0, 3, jobs)
    second = np.where(kind == 1, first * random.uniform(0.05, 0.9, jobs), first)
    past = np.where(
        kind == 1, (first - second) / np.where(isolated(case) > 0, isolated(case), 1.0), 0.0
    )
    age = np.where(kind == 2, 0.0, 360.0 * random.integers(1, 20, jobs))
    for steps, waited, had in ((first, never, never), (second, age, past)):
        rho = convex(case, steps, waited, had)
        for classes in (True, False):
            solution = solve(timed(case, steps, waited, had), solver=solver, classes=classes)
            assert solution.objective == pytest.approx(rho, rel=1e-6)
            assert max(solution.figures["rho"].values()) == pytest.approx(
                solution.objective, rel=1e-9
            )


def test_without_ages_one_linear_program_is_enough() -> None:
    case = random_case(1, 8, gangs=True)
    solution = solve(timed(case, np.full(8, 500.0), np.zeros(8), np.full(8, 60.0)), solver="highs")
    assert solution.stages == () and solution.solver.rebuilt == ()


def test_tangents_are_taken_in_one_session() -> None:
    case = random_case(1, 8)
    times = timed(case, np.geomspace(1, 1e4, 8), np.geomspace(1e4, 10, 8), np.zeros(8))
    assert solve(times, solver="highs").solver.rebuilt == ()
    assert set(solve(times, solver="clarabel").solver.rebuilt) <= {"coefficients", "row bounds"}


EXTREMES = {
    "waited four months, a second left": ([1.0, 1e6, 1e6], [1e7, 0.0, 0.0]),
    "all waited long, little left": ([0.5, 2.0, 3.0], [1e7, 9e6, 1e7]),
    "came just now": ([1e5, 1e5, 1e5], [0.0, 0.0, 0.0]),
    "one just came, one is nearly done": ([1e-3, 1e8, 10.0], [1e7, 0.0, 1.0]),
    "ages of microseconds": ([1e5, 1e4, 1e3], [1e-6, 1e-6, 0.0]),
}


@pytest.mark.parametrize("solver", ["highs", "clarabel", "glop"])
@pytest.mark.parametrize("how", EXTREMES)
def test_extreme_ages_and_steps(how: str, solver: str) -> None:
    """Against bisection: a rho is reached if the levels that it asks for fit on the GPUs of one pool."""
    steps, age = map(np.array, EXTREMES[how])
    instance = Instance.from_arrays(
        pools={"a": 2}, throughput=np.ones((3, 1)), steps=steps, now=NOW, arrival=NOW - age
    )
    D = steps * 3 / 2  # two GPUs among three jobs

    def fits(rho: float) -> bool:
        left = rho * D - age
        return bool((left > 0).all() and (steps / left <= 1).all() and (steps / left).sum() <= 2)

    low, high = 0.0, 1e12
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    solution = solve(instance, solver=solver)
    assert solution.objective == pytest.approx(high, rel=1e-6)


def test_one_job() -> None:
    for steps, age in ((1e4, 0.0), (1.0, 1e7), (1e8, 3.0)):
        instance = Instance.from_arrays(
            pools={"a": 1, "b": 1},
            throughput=[[1.0, 4.0]],
            steps=steps,
            now=NOW,
            arrival=NOW - age,
            isolated_time=5.0,
        )
        best, D = steps / 4.0, 5.0 + steps / 2.5  # in isolation it splits its time over both pools
        assert solve(instance).objective == pytest.approx((age + best) / D, rel=1e-9)


def test_equal_jobs_that_came_together_have_equal_ratios() -> None:
    instance = Instance.from_arrays(
        pools={"a": 3},
        throughput=np.ones((7, 1)),
        steps=700.0,
        now=NOW,
        arrival=NOW - 50.0,
        isolated_time=20.0,
    )
    for classes in (True, False):
        rho = list(solve(instance, classes=classes).figures["rho"].values())
        assert rho == pytest.approx([(50 + 700 * 7 / 3) / (20 + 700 * 7 / 3)] * 7, rel=1e-6)


def test_no_rho_is_below_what_a_job_alone_reaches() -> None:
    for seed in range(6):
        case, random = random_case(seed, 6, gangs=True, zeros=True), np.random.default_rng(seed)
        steps, age = random.lognormal(5, 1, 6), random.uniform(0, 5000, 6)
        past = random.uniform(0, 500, 6)
        solution = solve(timed(case, steps, age, past))
        placed, iso = case.placed(), isolated(case)
        runs = case.gang[:, None] <= np.asarray(case.capacity)
        fastest = (case.rate * runs).max(axis=1)
        D = past[placed] + steps[placed] / iso[placed]
        alone = (age[placed] + steps[placed] / fastest[placed]) / D
        sliced = (age[placed] + steps[placed] / iso[placed]) / D
        assert alone.max() * (1 - 1e-9) <= solution.objective <= sliced.max() * (1 + 1e-9)


def test_seconds_and_steps_have_no_unit() -> None:
    """Ages, isolated times and steps times a constant leave rho as it is, and so do a job's rates with its steps."""
    case, random = random_case(9, 6, gangs=True), np.random.default_rng(9)
    steps, age, past = (
        random.lognormal(5, 1, 6),
        random.uniform(0, 900, 6),
        random.uniform(0, 90, 6),
    )
    rho = solve(timed(case, steps, age, past)).objective
    assert solve(timed(case, steps * 60, age * 60, past * 60)).objective == pytest.approx(
        rho, rel=1e-8
    )
    factor = random.lognormal(0, 3, 6)
    case.rate = case.rate * factor[:, None]
    assert solve(timed(case, steps * factor, age, past)).objective == pytest.approx(rho, rel=1e-8)


def test_weights_do_not_count() -> None:
    case = random_case(4, 6)
    steps, age = np.geomspace(10, 1e4, 6), np.geomspace(1e3, 1, 6)
    rho = solve(timed(case, steps, age, np.zeros(6))).objective
    case.weight = np.array([1e-3, 1, 5, 100, 2, 1e4])
    assert solve(timed(case, steps, age, np.zeros(6))).objective == pytest.approx(rho, rel=1e-12)


def test_a_job_without_steps_is_left_out() -> None:
    case = random_case(6, 5)
    steps, age = np.array([100.0, 0.0, 50.0, 20.0, 1000.0]), np.full(5, 30.0)
    solution = solve(timed(case, steps, age, np.zeros(5)))
    assert [job for job, _ in solution.unplaced] == ["j1"] and "j1" not in solution.figures["rho"]
    keep = [0, 2, 3, 4]
    others = replace(
        case,
        rate=case.rate[keep],
        gang=case.gang[keep],
        weight=case.weight[keep],
        tenant=case.tenant[keep],
    )
    rest = solve(timed(others, steps[keep], age[keep], np.zeros(4)))
    assert rest.objective == pytest.approx(solution.objective, rel=1e-9)


def test_agnostic_counts_every_pool_as_the_reference_pool() -> None:
    rate = np.array([[2.0, 8.0], [2.0, 2.0], [3.0, 1.0]])
    arrays = {
        "steps": np.array([100.0, 300.0, 50.0]),
        "now": NOW,
        "arrival": NOW - np.array([0.0, 40.0, 10.0]),
    }
    instance = Instance.from_arrays(pools={"a": 1, "b": 1}, throughput=rate, **arrays)
    same = Instance.from_arrays(pools={"a": 1, "b": 1}, throughput=rate[:, [0, 0]], **arrays)
    agnostic = solve(instance, agnostic=True, reference_pool="a")
    assert agnostic.objective == pytest.approx(solve(same).objective, rel=1e-9)
    path = "option of finish-time-fairness: reference_pool"
    with refuses(f"{path}: found 'v100', expected one of a, b", UsageError):
        solve(instance, agnostic=True, reference_pool="v100")


# --- solvers that stop or raise ---------------------------------------------------------------------------------------


def waiting() -> Instance:
    case = random_case(1, 8)
    return timed(case, np.geomspace(1, 1e4, 8), np.geomspace(1e4, 10, 8), np.zeros(8))


def test_a_solver_that_raises_raises_or_is_followed_by_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real, best = HighsSession.run, solve(waiting(), solver="highs").objective
    for after in range(2):
        left = [after]

        def run(session: HighsSession, limits: Limits, left: list[int] = left) -> Values:
            left[0] -= 1
            if left[0] < 0:
                raise SolverCrashed("HiGHS raised RuntimeError: boom")
            return real(session, limits)

        monkeypatch.setattr(HighsSession, "run", run)
        with pytest.raises(SolverCrashed, match="boom"):
            optsched.solve(waiting(), NAME, solver="highs")
        left[0] = after
        solution = optsched.solve(waiting(), NAME)
        assert solution.status == "optimal" and solution.objective == pytest.approx(best, rel=1e-6)
        assert [attempt.name for attempt in solution.solver.attempts] == ["highs", "clarabel"]


def test_a_limit_midway_leaves_a_feasible_allocation_and_its_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real, best = HighsSession.run, solve(waiting(), solver="highs").objective
    for after in range(3):
        for empty in (False, True):
            left = [after]

            def run(
                session: HighsSession, limits: Limits, left: list[int] = left, empty: bool = empty
            ) -> Values:
                values = real(session, limits)
                left[0] -= 1
                if left[0] >= 0:
                    return values
                values = replace(values, termination=Termination.TIME_LIMIT)
                return (
                    replace(values, x=None, y=None, objective=None, bound=None) if empty else values
                )

            monkeypatch.setattr(HighsSession, "run", run)
            solution = optsched.solve(waiting(), NAME, solver="highs")
            assert solution.ok and solution.status in ("feasible", "optimal")
            assert optsched.verify(waiting(), solution.to_document()).ok
            assert left[0] >= 0 or solution.termination == Termination.TIME_LIMIT
            if solution.status == "feasible":
                assert solution.objective >= best * (1 - 1e-9)
                assert solution.bound is None or solution.bound <= best * (1 + 1e-9)
            known = ("known point", "feasible") in solution.solver.attempts
            assert known == (after == 0 and empty)


@pytest.mark.parametrize("limit", [{"time_limit": 1e-3}, {"work_limit": 5}, {"work_limit": 200}])
def test_limits_on_a_large_instance(limit: dict[str, Any]) -> None:
    random = np.random.default_rng(0)
    instance = Instance.from_arrays(
        pools={"a": 40, "b": 60, "c": 50}, throughput=random.lognormal(0, 1, (300, 3)), now=NOW,
        steps=random.lognormal(8, 2, 300), arrival=NOW - random.uniform(0, 1e5, 300),
    )  # fmt: skip
    solution = optsched.solve(instance, NAME, solver="highs", **limit)
    assert solution.ok and optsched.verify(instance, solution.to_document()).ok


TAMPERED = {
    "objective": lambda document: document.update(objective=document["objective"] * 0.99),
    "bound": lambda document: document.update(bound=document["bound"] * 1.01),
    "duals.levels": lambda document: document["duals"].update(
        levels=[0.0] * len(document["duals"]["levels"])
    ),
    "rho": lambda document: document["figures"]["rho"].update(j0=1e-3),
    "allocation": lambda document: document["allocation"][0].update(
        fraction=document["allocation"][0]["fraction"] / 2
    ),
    "stages": lambda document: document.update(
        stages=[{"name": "filling", "value": 1.0, "bound": 1.0, "duals": {}, "kept": {}}]
    ),
}


@pytest.mark.parametrize("what", TAMPERED)
def test_a_tampered_file_is_refused(what: str) -> None:
    import copy

    document = copy.deepcopy(optsched.solve(waiting(), NAME).to_document())
    assert optsched.verify(waiting(), document).ok
    TAMPERED[what](document)
    assert not optsched.verify(waiting(), document).ok


def aged(age: float, **options: Any) -> Solution:
    document = instance_document(
        {"a": 2},
        [
            {"id": "new", "throughput": {"a": 2.0}, "steps": 100, "arrival": age},
            {"id": "old", "throughput": {"a": 1.0}, "steps": 100, "arrival": 0},
        ],
        now=age,
    )
    return optsched.solve(Instance.from_document(document), NAME, **options)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("age", [1e18, 1e60, 1e99])
@pytest.mark.parametrize("options", [{}, {"agnostic": True, "reference_pool": "a"}])
def test_an_age_beside_which_the_rest_is_lost_is_refused(
    age: float, options: dict[str, Any]
) -> None:
    with refuses("jobs[1].arrival: found 0 s, ..., expected at most..."):
        aged(age, **options)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("age", [1e9, 1e12, 1e16])
def test_long_ages_are_right(age: float) -> None:
    """The old job alone decides, by its 100 s in isolation: rho = (age + 100) / 100 at best."""
    solution = aged(age)
    assert solution.status == "optimal" and solution.objective == pytest.approx(
        (age + 100) / 100, rel=1e-6
    )


def test_a_job_without_gpus_needs_no_slice_of_them() -> None:
    """Alone it runs all the time, as beside others: nobody else keeps it from doing so."""
    jobs = [
        {"id": "cpu", "steps": 3600.0, "options": [{"pool": "p100", "gpus": 0, "throughput": 1.0}]},
        {"id": "gpu", "steps": 3600.0, "throughput": {"p100": 1.0}},
    ]
    document = instance_document({"p100": 2}, jobs, resources=[])
    assert solve(Instance.from_document(document)).objective == pytest.approx(1.0, abs=1e-9)
