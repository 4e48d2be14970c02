"""Certificates: bounds against brute force, residuals by hand, and solvers that lie."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import combinations
from typing import Any, ClassVar

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import optsched
from optsched import api, registry
from optsched.assembly import make_formulation
from optsched.errors import Interrupted, SolverCrashed
from optsched.program import (
    AllocationProgram,
    Block,
    ConicProgram,
    LinearArrays,
    LinearProgram,
    Total,
)
from optsched.solution import (
    Certificate,
    PointStatus,
    Solution,
    Status,
    Termination,
    Values,
    certify_point,
    dual_bound,
    gap_of,
)

# Private names: checks of points that no engine has made
from optsched.solution.certificate import (
    dual_residual,
    is_bounded,
    residuals_of,
    shown_gap,
    worst_row,
)
from optsched.solvers import Capability, Clarabel, Highs, Limits, Session, Solver
from optsched.solving import Engine, Outcome
from optsched.solving.infeasibility import elastic_relaxation

pytestmark = pytest.mark.property

QUICK = settings(max_examples=80, deadline=None, derandomize=True)
INFINITY = float("inf")


def program(
    matrix: Any, row_lower: Any, row_upper: Any, lower: Any, upper: Any, cost: Any, *, maximise: bool = True,
    offset: float = 0.0, implied: tuple[Any, Any] | None = None, integer: Any = False,
) -> LinearArrays:  # fmt: skip
    """Arrays of a linear program; implied bounds are the column bounds unless given."""
    A = sp.csc_matrix(np.atleast_2d(np.asarray(matrix, float)))
    rows, columns = A.shape
    implied = (lower, upper) if implied is None else implied

    def vector(value: Any, count: int) -> Any:
        return np.array(np.broadcast_to(np.asarray(value, float), (count,)))

    return LinearArrays(
        A, vector(row_lower, rows), vector(row_upper, rows), vector(lower, columns), vector(upper, columns),
        vector(cost, columns), np.array(np.broadcast_to(integer, (columns,))), maximise, offset,
        vector(implied[0], columns), vector(implied[1], columns), (Block("rows", 0, rows),), (Block("x", 0, columns),),
    )  # fmt: skip


# --- the bound -----------------------------------------------------------------------------------------------------

small = st.integers(-4, 4)


@st.composite
def feasible_programs(draw: st.DrawFn) -> LinearArrays:
    """Small programs in a box around an integer point that is feasible; rows with one side, both, or equal sides.

    Some columns have their upper bound as a row only: an infinite bound with a finite implied one.
    """
    columns, rows = draw(st.integers(1, 3)), draw(st.integers(0, 3))
    numbers = st.lists(small, min_size=columns, max_size=columns)
    point = np.array(draw(numbers))
    matrix = np.array([draw(numbers) for _ in range(rows)]).reshape(rows, columns)
    lower = point - np.array(draw(st.lists(st.integers(0, 3), min_size=columns, max_size=columns)))
    upper = point + np.array(draw(st.lists(st.integers(0, 3), min_size=columns, max_size=columns)))
    slack = st.one_of(st.integers(0, 4), st.just(INFINITY))
    activity = matrix @ point
    row_lower = activity - np.array([draw(slack) for _ in range(rows)])
    row_upper = activity + np.array([draw(slack) for _ in range(rows)])
    free = np.array(draw(st.lists(st.booleans(), min_size=columns, max_size=columns)))
    limits = np.eye(columns)[free]
    return program(
        np.vstack([matrix, limits]),
        np.concatenate([row_lower, np.full(len(limits), -INFINITY)]),
        np.concatenate([row_upper, upper[free]]),
        lower,
        np.where(free, INFINITY, upper),
        draw(numbers),
        maximise=draw(st.booleans()),
        offset=draw(st.integers(-5, 5)),
        implied=(lower, upper),
    )


def brute_force(arrays: LinearArrays) -> float:
    """The optimum as the best of all vertices."""
    matrix = np.vstack([arrays.A.toarray(), np.eye(arrays.shape[1])])
    low = np.concatenate([arrays.row_lower, arrays.implied_lower])
    high = np.concatenate([arrays.row_upper, arrays.implied_upper])
    planes = [
        (row, side)
        for row, sides in enumerate(zip(low, high, strict=True))
        for side in sides
        if np.isfinite(side)
    ]
    best = -INFINITY
    sign = 1.0 if arrays.maximise else -1.0
    for chosen in combinations(planes, arrays.shape[1]):
        rows = matrix[[row for row, _ in chosen]]
        if abs(np.linalg.det(rows)) < 1e-9:
            continue
        x = np.linalg.solve(rows, [side for _, side in chosen])
        if (matrix @ x >= low - 1e-9).all() and (matrix @ x <= high + 1e-9).all():
            best = max(best, sign * (arrays.cost @ x))
    return sign * best + arrays.offset


@QUICK
@given(feasible_programs(), st.data())
def test_any_multipliers_give_a_valid_bound(arrays: LinearArrays, data: st.DataObject) -> None:
    y = np.array([data.draw(st.floats(-5, 5)) for _ in range(arrays.shape[0])])
    bound, optimum = dual_bound(arrays, y), brute_force(arrays)
    assert bound is not None
    slack = 1e-9 * (1 + abs(bound))
    assert bound >= optimum - slack if arrays.maximise else bound <= optimum + slack


@QUICK
@given(feasible_programs(), st.sampled_from([Highs, Clarabel]))
def test_optimal_duals_give_the_optimum(arrays: LinearArrays, solver: type[Solver]) -> None:
    values = solver().open(arrays).run(Limits())
    assert values.y is not None
    bound, optimum = dual_bound(arrays, values.y), brute_force(arrays)
    assert bound == pytest.approx(optimum, rel=1e-6, abs=1e-6)
    assert dual_residual(arrays, values.y) < 1e-6


def test_signs_for_maximum_and_minimum() -> None:
    """max x + y, x + 2 y <= 4, x <= 3: optimum 3.5 with y = 1/2; its mirror image is a minimum."""
    arrays = program([[1, 2]], -INFINITY, 4, 0, [3, INFINITY], [1, 1], implied=(0, [3, 2]))
    assert dual_bound(arrays, np.array([0.5])) == 3.5
    assert dual_bound(arrays, np.array([0.0])) == 5.0
    assert dual_bound(arrays, np.array([-7.0])) == 5.0  # the wrong sign is cut off
    mirror = replace(arrays, cost=-arrays.cost, maximise=False, offset=10.0)
    assert dual_bound(mirror, np.array([-0.5])) == 6.5
    assert dual_bound(mirror, np.array([0.5])) == 5.0


def test_a_column_without_any_bound_spoils_the_bound_unless_its_reduced_cost_is_zero() -> None:
    arrays = program([[1, 1]], -INFINITY, 4, [0, -INFINITY], [3, INFINITY], [1, 1])
    assert dual_bound(arrays, np.array([0.5])) is None
    assert dual_bound(arrays, np.array([1.0])) == 4.0
    assert not is_bounded(arrays)
    assert is_bounded(program([[1.0]], 0, 1, 0, 1, [1]))


@pytest.mark.parametrize("y", [np.nan, np.inf, -np.inf])
def test_duals_that_are_no_numbers_prove_nothing(y: float) -> None:
    assert dual_bound(program([[1.0]], 0, 1, 0, 1, [1]), np.array([y])) is None


def test_an_overflow_proves_nothing() -> None:
    arrays = program([[1e300]], -INFINITY, 1e300, 0, 1, [1])
    with np.errstate(over="ignore", invalid="ignore"):
        assert dual_bound(arrays, np.array([1e300])) is None


def test_no_row_and_no_column() -> None:
    assert dual_bound(program(np.zeros((0, 2)), 0, 0, 0, [2, 3], [1, -1]), np.zeros(0)) == 2.0
    assert dual_bound(program(np.zeros((1, 0)), 0, 1, 0, 0, []), np.zeros(1)) == 0.0


def test_dual_residual_counts_signs_that_implied_bounds_forgive() -> None:
    """With y = 0.4 the bound holds through x2 <= 2, but the reduced cost 0.2 of x2 has the wrong sign."""
    arrays = program([[1, 2]], -INFINITY, 4, 0, [3, INFINITY], [1, 1], implied=(0, [3, 2]))
    assert dual_residual(arrays, np.array([0.5])) == 0.0
    assert dual_residual(arrays, np.array([0.4])) == pytest.approx(0.2 / 1.8)
    assert dual_residual(arrays, np.array([-0.1])) == 1.0  # a row without lower side


# --- residuals, gap, points ----------------------------------------------------------------------------------------


@pytest.fixture
def two_rows() -> LinearArrays:
    """Total x1 + x2 with 100 x1 <= 50 and x1 + x2 >= 2 for x1 in [0, 1] and integer x2 in [0, 10]."""
    return program(
        [[100, 0], [1, 1]],
        [-INFINITY, 2],
        [50, INFINITY],
        0,
        [1, 10],
        [1, 1],
        integer=[False, True],
    )


def test_residuals_are_relative_to_the_terms(two_rows: LinearArrays) -> None:
    residuals = residuals_of(two_rows, np.array([0.6, 1.25]))
    assert residuals["rows"] == pytest.approx(
        10 / 100
    )  # the first row, of size 100; the second lacks 0.15 of 2
    assert worst_row(two_rows, np.array([0.6, 1.25])) == ("rows", 0)
    assert residuals["columns"] == 0.0
    assert residuals["integrality"] == pytest.approx(0.25)
    assert residuals_of(two_rows, np.array([-0.5, 12.0]))["columns"] == pytest.approx(0.5)
    assert residuals_of(two_rows, np.array([0.5, 30.0]))["columns"] == pytest.approx(20 / 30)
    assert residuals_of(two_rows, np.array([0.5, 2.0])) == {
        "rows": 0.0,
        "columns": 0.0,
        "integrality": 0.0,
    }


@pytest.mark.parametrize(
    ("x", "stated", "problem"),
    [
        ([0.5, 2.0], 2.5, None),
        ([0.6, 2.0], 2.6, "row rows[0] is violated"),
        ([0.5, -1.0], -0.5, "row rows[1] is violated"),
        ([0.5, 11.0], 11.5, "a column bound is violated"),
        ([0.5, 2.5], 3.0, "an integer column is off by 0.5"),
        ([0.5, 2.0], 2.51, "the stated objective 2.51 is not that of the point, 2.5"),
        ([0.5, 2.0], np.nan, "the stated objective nan"),
        ([0.5, np.nan], 2.5, "the point has infinite or missing entries"),
        ([0.5], 2.5, "the point has infinite or missing entries"),
    ],
)
def test_certify_point(
    two_rows: LinearArrays, x: list[float], stated: float, problem: str | None
) -> None:
    certificate = certify_point(two_rows, np.array(x), stated, "dual")
    assert certificate.ok == (problem is None)
    if problem is None:
        assert certificate.proof == "dual"
    else:
        assert any(told.startswith(problem) for told in certificate.problems), certificate.problems


@pytest.mark.parametrize(
    ("objective", "bound", "gap"),
    [
        (10.0, 11.0, 0.1), (-10.0, -11.0, 0.1), (10.0, 9.0, 0.1), (0.0, 0.0, 0.0), (0.0, 1e-9, 1.0), (2.0, 2.0, 0.0),
        (None, 1.0, None), (1.0, None, None), (INFINITY, INFINITY, None), (1.0, INFINITY, None),
    ],
)  # fmt: skip
def test_gap_of(objective: float | None, bound: float | None, gap: float | None) -> None:
    assert gap_of(objective, bound) == (gap if gap is None else pytest.approx(gap))


@pytest.mark.parametrize(
    ("gap", "optimal", "asked", "shown"),
    [
        (None, True, None, None),
        (0.8, True, None, 0.0),  # an objective near 0, where rounding is a large part of it
        (0.8, False, None, 0.8),
        (1e-7, True, None, 1e-7),
        (1.6e-16, False, None, 0.0),  # the rounding of a subtraction
        (0.01, True, 0.02, 0.01),  # an integer program that was to stop there
    ],
)
def test_the_gap_that_is_shown_agrees_with_the_status(
    gap: float | None, optimal: bool, asked: float | None, shown: float | None
) -> None:
    assert shown_gap(gap, optimal, asked) == shown


def test_elastic_relaxation_measures_the_least_violation() -> None:
    arrays = program(
        [[1.0], [1.0]], [3, -INFINITY], [INFINITY, 1], 0, INFINITY, [1], implied=(0, 5)
    )
    values = Highs().open(elastic_relaxation(arrays)).run(Limits())
    assert values.objective == pytest.approx(2 / 3)  # x = 1 and 2 of the 3 are missing


# --- solvers that lie ----------------------------------------------------------------------------------------------


class Liar(Solver):
    """HiGHS, with its values changed by `Liar.lie` before they are handed over."""

    name: ClassVar[str] = "liar"
    capabilities = Highs.capabilities | {Capability.CONIC}
    lie: ClassVar[Any] = staticmethod(lambda values: values)

    @classmethod
    def version(cls) -> str:
        return "0"

    def open(self, arrays: LinearArrays) -> Session:
        return LyingSession(arrays)

    def solve_conic(self, program: ConicProgram, limits: Limits) -> Values:
        values: Values = Liar.lie(Clarabel().solve_conic(program, limits))
        return replace(values, objective=None, bound=None)


class LyingSession(Session):
    def run(self, limits: Limits) -> Values:
        values: Values = Liar.lie(Highs().open(self.arrays).run(limits))
        return values


@pytest.fixture(autouse=True)
def _liar_in_the_catalogue(monkeypatch: pytest.MonkeyPatch) -> None:
    known = registry.catalogue
    liar = {"liar": f"{__name__}:Liar"}
    monkeypatch.setattr(
        registry, "catalogue", lambda what: {**known(what), **(liar if what == "solver" else {})}
    )


def solve(
    monkeypatch: pytest.MonkeyPatch, lie: Any, name: str = "max-min-fairness", **options: Any
) -> Solution:
    monkeypatch.setattr(Liar, "lie", staticmethod(lie))
    return api.solve(options.pop("instance", "@quickstart"), name, solver="liar", **options)


def assert_caught(solution: Solution, problem: str) -> None:
    assert not solution.certificate.ok
    assert any(problem in told for told in solution.certificate.problems), (
        solution.certificate.problems
    )
    verification = optsched.verify(solution.instance, solution.to_document())
    assert any(finding.field.startswith("certificate") for finding in verification.findings)


def test_the_truth_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    solution = solve(monkeypatch, lambda values: values)
    assert solution.status is Status.OPTIMAL
    assert solution.certificate.ok


@pytest.mark.parametrize("factor", [1.01, 0.99, np.nan, np.inf, -1.0])
def test_a_wrong_objective_is_caught(monkeypatch: pytest.MonkeyPatch, factor: float) -> None:
    solution = solve(
        monkeypatch, lambda values: replace(values, objective=values.objective * factor)
    )
    assert_caught(solution, "the solver states the objective")
    assert solution.objective == pytest.approx(
        0.971353593, rel=1e-8
    )  # ours is told, not the solver's


def test_an_infeasible_point_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def lie(values: Values) -> Values:
        return replace(values, x=values.x * 1.1, objective=values.objective * 1.1)

    solution = solve(monkeypatch, lie)
    assert_caught(solution, "is violated")
    assert solution.status is not Status.OPTIMAL


def test_a_fractional_point_of_an_integer_program_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rounded to whole jobs it no longer has the objective that is claimed, or runs jobs twice."""

    def lie(factor: float) -> Any:
        return lambda values: replace(values, x=values.x * factor)

    packing: dict[str, Any] = {"name": "max-throughput", "integral": True, "instance": "@packing"}
    assert_caught(solve(monkeypatch, lie(0.4), **packing), "the solver states the objective")
    with pytest.raises(SolverCrashed, match="a whole job runs twice"):
        solve(monkeypatch, lambda values: replace(values, x=np.full_like(values.x, 0.6)), **packing)


def test_a_point_that_is_not_optimal_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    solution = solve(
        monkeypatch,
        lambda values: replace(values, x=values.x * 0.9, objective=values.objective * 0.9),
    )
    assert_caught(solution, "the certificate leaves a gap of 0.11")
    assert solution.status is Status.FEASIBLE


@pytest.mark.parametrize(
    "wrong",
    [
        lambda y: y * 0.5, lambda y: y * 2.0, lambda y: -y, lambda y: y * 0.0, lambda y: y[::-1].copy(),
        lambda y: y + 1.0,
    ],
)  # fmt: skip
def test_wrong_duals_are_caught(monkeypatch: pytest.MonkeyPatch, wrong: Any) -> None:
    solution = solve(monkeypatch, lambda values: replace(values, y=wrong(values.y)))
    assert_caught(solution, "the solver claims optimality, but the certificate leaves")
    assert solution.status is Status.FEASIBLE
    assert (
        solution.bound is None or solution.bound > 0.98
    )  # wrong duals never make a bound too good


def without_duals(factor: float) -> Any:
    """A lie that agrees with itself: a point with its own value as objective and bound, and no duals."""

    def lie(values: Values) -> Values:
        value = None if values.objective is None else factor * values.objective
        return replace(values, x=factor * values.x, y=None, objective=value, bound=value)

    return lie


CONTINUOUS = (
    "max-min-fairness", "max-throughput", "makespan", "finish-time-fairness", "cost", "throughput-per-cost",
    "alpha-fairness",
)  # fmt: skip


@pytest.mark.parametrize("name", CONTINUOUS)
def test_without_duals_the_bound_is_that_of_another_solver(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The point of the solver that was asked for is kept, and who gave the bound is told."""
    solution = solve(monkeypatch, without_duals(1.0), name)
    assert (
        solution.ok
        and solution.status is Status.OPTIMAL
        and solution.termination is Termination.OPTIMAL
    )
    assert (solution.solver.name, solution.certificate.proof) == ("liar", "dual")
    # What each job could have alone proves the other optima.
    tried = [] if name in ("finish-time-fairness", "cost") else ["liar", "clarabel"]
    assert [attempt.name for attempt in solution.solver.attempts] == tried
    assert optsched.verify(solution.instance, solution.to_document()).bound == "verified"


@pytest.mark.parametrize("factor", [0.5, 0.0])
@pytest.mark.parametrize("name", CONTINUOUS)
def test_a_lie_that_agrees_with_itself_is_no_optimum(
    monkeypatch: pytest.MonkeyPatch, name: str, factor: float
) -> None:
    truth = optsched.solve("@quickstart", name)
    solution = solve(monkeypatch, without_duals(factor), name)
    verification = optsched.verify(solution.instance, solution.to_document())
    assert verification.ok, str(verification)
    if solution.objective == pytest.approx(truth.objective, rel=1e-6):
        assert name == "cost"  # it costs nothing to do nothing
        return
    assert solution.status is Status.FEASIBLE
    assert solution.objective is not None and np.isfinite(solution.objective)
    assert truth.objective is not None
    excess = 0.0 if solution.bound is None else truth.objective - solution.bound
    assert (excess if solution.sense == "max" else -excess) <= 1e-6 * abs(truth.objective)


@pytest.mark.parametrize("work", [1, 2, 3, 5])
@pytest.mark.parametrize("name", ["makespan", "finish-time-fairness"])
def test_a_point_that_leaves_a_job_without_time_is_no_plan(name: str, work: int) -> None:
    """The simplex method stops where some jobs have nothing yet: an even split is the better answer."""
    budget = [{"kind": "budget", "limit": 3}]
    solution = optsched.solve("@quickstart", name, constraints=budget, work_limit=work)
    assert solution.ok and solution.status == "feasible"
    assert solution.objective is not None and np.isfinite(solution.objective)
    assert optsched.verify("@quickstart", solution.to_document()).ok


def test_where_every_allocation_leaves_a_job_without_time_nothing_is_feasible() -> None:
    def nothing_for_the_first(program: Any, variables: Any, C: Any) -> None:
        program.constrain(C.member[[0]] @ variables["x"] <= 0.0, name="nothing")

    solution = optsched.solve("@quickstart", "makespan", extend=nothing_for_the_first)
    assert solution.status == "infeasible" and solution.ok
    assert (solution.objective, solution.bound, solution.allocation) == (None, None, None)
    first = solution.candidates.instance.jobs_table.names[0]
    reasons = {conflict.block: conflict.words for conflict in solution.conflicts}
    assert set(reasons) == {"nothing", "some time"}
    assert reasons["some time"].startswith(f"job {first} must have some time")


@pytest.mark.parametrize(
    ("name", "solver"),
    [
        ("makespan", "highs"),
        ("finish-time-fairness", "highs"),
        ("proportional-fairness", "clarabel"),
        ("alpha-fairness", "clarabel"),
    ],
)
def test_a_resource_of_which_there_is_none_makes_an_infinite_objective_infeasible(
    name: str, solver: str
) -> None:
    """Without side rows too; the resource is named."""
    document = {
        "format": "optsched-instance/1",
        "cluster": {
            "pools": [{"name": "p", "nodes": 1, "gpus_per_node": 2}],
            "resources": [{"name": "lic", "capacity": 0}],
        },
        "jobs": [
            {"id": "free", "throughput": {"p": 1.0}},
            {
                "id": "a",
                "options": [{"pool": "p", "gpus": 1, "throughput": 1.0, "uses": {"lic": 1}}],
            },
        ],
    }
    solution = optsched.solve(document, name, solver=solver)
    assert solution.status == "infeasible" and solution.ok
    assert {conflict.words for conflict in solution.conflicts} == {
        "resource lic has a capacity of 0",
        "job a must have some time, or the objective is infinite",
    }
    verification = optsched.verify(document, solution.to_document())
    assert verification.ok and verification.bound == "verified"


@pytest.mark.parametrize("name", ["makespan", "finish-time-fairness", "proportional-fairness"])
def test_a_job_pinned_where_it_is_1e12_times_slower_has_some_time(name: str) -> None:
    """Its share counts where it may run: of what it had elsewhere it is 1e-12."""
    pools = [{"name": pool, "nodes": 1, "gpus_per_node": 1} for pool in ("slow", "fast")]
    rates = {"x": {"slow": 1e-6, "fast": 1e6}, "y": {"slow": 1.0, "fast": 1.0}}
    document = {
        "format": "optsched-instance/1",
        "cluster": {"pools": pools},
        "jobs": [{"id": job, "throughput": rate} for job, rate in rates.items()],
        "constraints": [{"kind": "pinned", "jobs": ["x"], "pools": ["slow"]}],
    }
    solution = optsched.solve(optsched.Instance.from_document(document), name)
    assert solution.status == "optimal" and solution.ok
    assert solution["x"].throughput == pytest.approx(1e-6)


def test_an_endless_makespan_is_no_optimum() -> None:
    formulation = make_formulation("makespan", {}, [])
    engine = Engine(registry.load_solver)
    candidates = optsched.solve("@quickstart").candidates
    program = formulation.program(formulation.classes(candidates))
    assert isinstance(program, AllocationProgram)
    outcome = replace(engine.solve_directly(program), value=0.0, bound=0.0)
    solution = formulation.solution(candidates, program, outcome, engine)
    assert (solution.objective, solution.status) == (np.inf, Status.FEASIBLE)


def test_a_bound_that_the_point_itself_refutes_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    solution = solve(
        monkeypatch,
        lambda values: replace(values, bound=0.85 * values.objective),
        "max-throughput",
        instance="@packing",
        integral=True,
    )
    # What is left is what all jobs could have alone.
    assert (solution.ok, solution.status, solution.bound_source) == (True, "feasible", "dual")
    assert solution.objective == pytest.approx(587.94) and solution.bound > 1.2 * 587.94
    assert optsched.verify(solution.instance, solution.to_document()).ok


@pytest.mark.parametrize("bound", [1.02, np.nan, np.inf, None])
def test_a_bound_that_does_not_fit_the_point_is_caught(
    monkeypatch: pytest.MonkeyPatch, bound: float | None
) -> None:
    """Times the optimum: one above it leaves a gap."""
    solution = solve(
        monkeypatch,
        lambda values: replace(values, bound=bound and values.objective * bound),
        "max-throughput",
        instance="@packing",
        integral=True,
    )
    assert_caught(solution, "the certificate leaves")
    assert solution.status is Status.FEASIBLE
    assert solution.bound is None or np.isfinite(solution.bound)


@pytest.mark.parametrize(
    "claim", [Termination.INFEASIBLE, Termination.UNBOUNDED, Termination.INFEASIBLE_OR_UNBOUNDED]
)
def test_a_feasible_program_is_not_infeasible_or_unbounded(
    monkeypatch: pytest.MonkeyPatch, claim: Termination
) -> None:
    lie = Values(claim, PointStatus.INFEASIBLE)
    with pytest.raises(SolverCrashed, match="solver liar claims that a feasible"):
        solve(monkeypatch, lambda values: lie)


@pytest.mark.parametrize(
    "point",
    [
        lambda x: x * np.nan, lambda x: np.where(np.arange(len(x)) == 3, np.inf, x), lambda x: x[:5],
        lambda x: x[:, np.newaxis],
    ],
)  # fmt: skip
@pytest.mark.parametrize("termination", [Termination.OPTIMAL, Termination.TIME_LIMIT])
def test_a_point_that_is_no_point_is_a_crash(
    monkeypatch: pytest.MonkeyPatch, point: Any, termination: Termination
) -> None:
    with pytest.raises(SolverCrashed, match=r"no point of [0-9]+ finite numbers"):
        solve(
            monkeypatch, lambda values: replace(values, x=point(values.x), termination=termination)
        )


def test_optimal_without_a_point_is_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SolverCrashed, match="no point"):
        solve(monkeypatch, lambda values: replace(values, x=None))


def test_stopped_without_a_point_is_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = Values(Termination.TIME_LIMIT, bound=np.nan)
    solution = solve(monkeypatch, lambda values: stopped, constraints=["deadlines"])
    assert solution.status is Status.LIMIT
    assert solution.allocation is None
    assert solution.bound is None
    assert optsched.verify(solution.instance, solution.to_document()).ok
    with pytest.raises(Interrupted):
        interrupted = Values(Termination.INTERRUPTED)
        solve(monkeypatch, lambda values: interrupted, constraints=["deadlines"])


def test_lies_about_a_plain_linear_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same certificate guards programs that are no allocation."""
    lp = LinearProgram()
    x = lp.variables(2, name="x", upper=[3.0, 2.0])
    lp.constrain(np.array([[1.0, 1.0]]) @ x <= 4.0, name="cap")
    lp.maximise(np.array([[1.0, 2.0]]) @ x)
    monkeypatch.setattr(Liar, "lie", staticmethod(lambda values: values))
    honest = Engine(registry.load_solver, "liar").solve_linear(lp)
    assert (honest.value, honest.bound, honest.status) == (6.0, 6.0, Status.OPTIMAL)
    monkeypatch.setattr(Liar, "lie", staticmethod(lambda values: replace(values, x=values.x + 1.0)))
    outcome = Engine(registry.load_solver, "liar").solve_linear(lp)
    assert not outcome.certificate.ok
    assert "row cap[0] is violated" in outcome.certificate.problems[0]
    monkeypatch.setattr(Liar, "lie", staticmethod(lambda values: replace(values, x=values.x[:1])))
    with pytest.raises(SolverCrashed):
        Engine(registry.load_solver, "liar").solve_linear(lp)


# --- concave utilities -----------------------------------------------------------------------------------------------


@cache
def concave(function: str, exponent: float) -> AllocationProgram:
    """Jobs of one class that share GPUs, and one of another, under a concave total."""
    given = optsched.Instance.from_arrays(
        pools={"g": 2, "h": 1},
        workloads={
            "a": {"throughput": {"g": {"1": 3.0}, "h": {"1": 2.0}}},
            "b": {"throughput": {"g": {"1": 1.5}}},
        },
        workload=[0, 0, 0, 1],
        weight=[1.0, 1.0, 1.0, 2.0],
        colocation=[{"workloads": ["a", "b"], "pool": "g", "gpus": 1, "throughput": [2.5, 1.2]}],
    )
    C = api.compile(given).classes(frozenset({"weight"}))
    return AllocationProgram(C, Total(C.weight, function, exponent), C.throughput)


@cache
def solved_concave(function: str, exponent: float) -> Outcome:
    return Engine(registry.load_solver).solve_directly(concave(function, exponent))


CONCAVE = [("log", 0.0), ("power", 0.5), ("power", -1.0)]


@pytest.mark.parametrize(("function", "exponent"), CONCAVE)
@settings(max_examples=40, deadline=None, derandomize=True)
@given(data=st.data())
def test_any_duals_bound_a_concave_utility(
    function: str, exponent: float, data: st.DataObject
) -> None:
    """Whatever the duals are and wherever the tangent is taken: no point is above the bound."""
    program, optimum = concave(function, exponent), solved_concave(function, exponent)
    assert optimum.value is not None
    share = st.floats(1e-3, 1.0)
    x = program.repaired(np.array([data.draw(share) for _ in range(program.classes.columns)]))
    rows = program.tangent(x).arrays.shape[0]
    y = np.array([data.draw(st.floats(-3, 3)) for _ in range(rows)])
    bound = dual_bound(program.tangent(x, y).arrays, y)
    assert bound is not None
    assert bound >= max(optimum.value, program.value(x)) - 1e-9 * (1 + abs(bound))


@pytest.mark.parametrize(("function", "exponent"), CONCAVE)
def test_the_duals_of_a_concave_utility_close_the_gap(function: str, exponent: float) -> None:
    program, outcome = concave(function, exponent), solved_concave(function, exponent)
    assert outcome.status is Status.OPTIMAL
    assert outcome.certificate.ok
    assert outcome.duals is not None and outcome.x is not None and outcome.value is not None
    assert list(outcome.duals) == ["time", "capacity", "levels"]
    gap = gap_of(outcome.value, outcome.bound)
    assert gap is not None and gap < 1e-7
    y = np.concatenate(list(outcome.duals.values()))
    arrays = program.tangent(outcome.x, y).arrays
    assert dual_bound(arrays, y) == outcome.bound
    # the tangent touches the utility where the duals put it, and lies above it at the point
    assert arrays.objective(program.complete(outcome.x)) >= outcome.value - 1e-12


def test_duals_of_a_concave_utility_that_say_nothing_of_a_level() -> None:
    """A slope must be positive; where the duals give none the tangent is taken at the point."""
    program = concave("log", 0.0)
    x = program.repaired(np.ones(program.classes.columns))
    at_point = program.tangent(x).arrays
    without = program.tangent(x, np.zeros(at_point.shape[0])).arrays
    assert (without.cost == at_point.cost).all()
    assert without.offset == at_point.offset


def test_words_leave_out_the_signs_of_duals() -> None:
    """The bound holds whatever they are, so 1 would only alarm."""
    certificate = Certificate(True, "dual", {"rows": 1e-12, "duals": 1.0})
    assert certificate.largest_residual == 1e-12
    assert "largest residual 1e-12" in repr(certificate)
