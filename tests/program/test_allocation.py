"""Allocation programs: levels, lowerings, tangents, repair."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from refusals import refuses

import optsched
from optsched.candidates import Classes
from optsched.errors import SolverUnavailable, UsageError
from optsched.program import AllocationProgram, LexicographicMinimum, Minimum, SideRows, Total
from optsched.registry import load_solver
from optsched.solution import PointStatus, Termination, Values, dual_bound
from optsched.solvers import Limits
from optsched.solving import Engine

# Private names: lowered forms, which otherwise solvers alone see
from optsched.solving.certify import (
    EvaluatedPoint,
    certified_allocation,
    certified_or_nothing,
)

pytestmark = pytest.mark.property


def classes(name: str = "@packing") -> Classes:
    return optsched.compile(optsched.load(name)).classes(frozenset({"weight"}))


def total(C: Classes, function: str, exponent: float = 1.0) -> AllocationProgram:
    return AllocationProgram(C, Total(np.ones(len(C)), function, exponent), C.throughput)


@pytest.mark.parametrize("name", ("@packing", "@quickstart"))
def test_linear_lowering_says_what_the_program_says(name: str) -> None:
    C = classes(name)
    program = AllocationProgram(C, Minimum(), C.throughput)
    arrays = program.to_linear().arrays
    assert [block.name for block in arrays.rows] == ["time", "capacity", "levels"]
    outcome = Engine(load_solver, "highs").solve_directly(program)
    point = program.complete(outcome.x)
    assert arrays.objective(point) == pytest.approx(program.level(outcome.x).min(), rel=1e-12)
    assert outcome.value <= program.highest_level.min() + 1e-12
    ones, none = np.ones(len(C)), np.zeros(0)
    alone = LexicographicMinimum(
        ones, ones, np.full(len(C), -1), none, none.astype(bool), np.zeros(len(C), np.int64)
    )
    assert AllocationProgram(C, alone, C.throughput).to_linear().arrays.shape == arrays.shape


def test_without_jobs_the_smallest_level_is_at_most_zero() -> None:
    """The matrix and the form without it bound the level alike, though there is no smallest of no levels."""
    pool = {"name": "v100", "nodes": 1, "gpus_per_node": 1}
    document = {"format": "optsched-instance/1", "cluster": {"pools": [pool]}, "jobs": []}
    C = optsched.compile(optsched.load(document)).classes(frozenset({"weight"}))
    program = AllocationProgram(C, Minimum(), C.throughput)
    form = program.without_matrix(np.zeros(0))
    assert form.implied_upper.tolist() == [0.0]
    assert program.to_linear().arrays.implied_upper.tolist() == [0.0]


@pytest.mark.parametrize(
    ("function", "exponent"), (("log", 1.0), ("power", 0.5), ("power", -1.0), ("power", -3.0))
)
def test_concave_totals_are_certified_by_prices(function: str, exponent: float) -> None:
    C = classes()
    program = total(C, function, exponent)
    outcome = Engine(load_solver, "auto", Limits(tolerance=1e-10)).solve_directly(program)
    assert outcome.solver.name == "clarabel" and outcome.certificate.ok
    assert outcome.bound_source == "dual"
    assert 0.0 <= outcome.bound - outcome.value <= 1e-4 * max(1.0, abs(outcome.value))
    assert outcome.value == pytest.approx(outcome.values.objective, rel=1e-6, abs=1e-5)


def test_power_half_agrees_with_an_independent_solver() -> None:
    cvxpy = pytest.importorskip("cvxpy")
    C = classes()
    x = cvxpy.Variable(C.columns, nonneg=True)
    level = cvxpy.multiply(1.0 / C.count, C.throughput @ x)
    utility = C.count @ (2.0 * cvxpy.sqrt(level))
    problem = cvxpy.Problem(
        cvxpy.Maximize(utility), [C.member @ x <= C.count, C.usage @ x <= C.capacity]
    )
    problem.solve(solver="CLARABEL")
    outcome = Engine(load_solver, "clarabel").solve_directly(total(C, "power", 0.5))
    assert outcome.value == pytest.approx(problem.value, rel=1e-6)


def test_a_tangent_bounds_the_utility_everywhere() -> None:
    C = classes()
    random = np.random.default_rng(0)
    for program in (
        total(C, "log"),
        total(C, "power", 0.3),
        total(C, "power", -2.0),
        total(C, "linear"),
    ):
        at = random.random(C.columns) * 0.1
        arrays = program.tangent(at).arrays
        assert arrays.objective(program.complete(at)) == pytest.approx(program.value(at), rel=1e-9)
        for _ in range(20):
            other = random.random(C.columns) * 0.1
            bound = arrays.objective(program.complete(other))
            assert program.value(other) <= bound + 1e-9 * abs(program.value(other))
        any_multipliers = -random.random(arrays.shape[0])  # wrong signs are set to 0: still a bound
        bound = dual_bound(arrays, any_multipliers)
        assert bound is not None and bound >= program.value(at) - 1e-9


def test_conic_lowering_of_linear_utilities() -> None:
    C = classes()
    for program in (AllocationProgram(C, Minimum(), C.throughput), total(C, "linear")):
        linear = Engine(load_solver, "highs").solve_directly(program)
        values = load_solver("clarabel")().solve_conic(program.to_conic(), Limits())
        assert values.objective == pytest.approx(linear.value, rel=1e-7)


def test_what_cannot_be_lowered_is_refused() -> None:
    C = classes()
    with pytest.raises(UsageError, match="a total of log utilities is not linear"):
        total(C, "log").to_linear()
    whole = AllocationProgram(C, Minimum(), C.throughput, integral=True)
    with pytest.raises(UsageError, match="conic program takes neither integral"):
        whole.to_conic()
    with refuses("solver: found highs, expected one with conic", SolverUnavailable):
        Engine(load_solver, "highs").solve_directly(total(C, "log"))


def test_repair_keeps_time_and_capacity() -> None:
    C = classes()
    random = np.random.default_rng(1)
    for integral in (False, True):
        program = AllocationProgram(C, Minimum(), C.throughput, integral=integral)
        x = program.repaired(random.random(C.columns) * 5)
        assert (C.member @ x <= C.count + 1e-9).all() and (C.usage @ x <= C.capacity + 1e-9).all()
        feasible = x * 0.5 if not integral else x
        assert program.repaired(feasible) == pytest.approx(feasible)


def test_what_slack_is_worth_counts_beside_rounding() -> None:
    """a is to have all but the slack of the one GPU; the point leaves that slack to nobody, and duals are rounded."""
    document = {
        "format": "optsched-instance/1", "cluster": {"pools": [{"name": "p", "nodes": 1, "gpus_per_node": 1}]},
        "jobs": [{"id": name, "steps": 1.0, "throughput": {"p": rate}} for name, rate in (("a", 1.0), ("b", 1.5))],
    }  # fmt: skip
    C = optsched.compile(optsched.Instance.from_document(document)).classes(frozenset())
    slack = np.array([2.0**-27])
    side = SideRows(
        "s", sp.csr_matrix([[1.0, 0.0]]), 1.0 - slack, np.array([np.inf]), str, slack=slack
    )
    program = AllocationProgram(C, Minimum(), C.throughput, (side,))
    arrays, x = program.to_linear().arrays, np.array([1.0, 0.0])
    duals = {"time": [0.0, 0.0], "capacity": [1.5 + 1e-15], "s": [-1.5], "levels": [0.0, -1.0]}
    y = np.concatenate([duals[block.name] for block in arrays.rows])
    values = Values(
        Termination.OPTIMAL, PointStatus.FEASIBLE, PointStatus.FEASIBLE, x, y, objective=0.0
    )
    engine = Engine(load_solver, "highs")
    engine.open(arrays)
    outcome = certified_or_nothing(
        engine, EvaluatedPoint(arrays, x, program.complete(x), 0.0, program=program), values, y
    )
    assert outcome.bound is not None and outcome.bound > 1.5 * slack[0]
    assert outcome.certificate.ok, outcome.certificate.problems


def test_arrays_over_all_columns_are_kept_once() -> None:
    """Of ten million jobs each copy is a third of a gigabyte."""
    C = classes("@quickstart")
    program = AllocationProgram(C, Minimum(), C.throughput)
    assert np.shares_memory(program.gain, program.levels.data)
    engine, solver = Engine(load_solver), load_solver("prices")
    values = engine.record(engine.use(solver, "")().solve_allocation(program, Limits()))
    assert values.x is not None
    form, arrays = program.without_matrix(values.x), program.to_linear().arrays
    parts = list(form.row_chunks())
    lower, upper = (np.concatenate([part[side] for part in parts]) for side in (1, 2))
    assert (lower == form.row_lower).all() and (lower == arrays.row_lower).all()
    assert (upper == form.row_upper).all() and (upper == arrays.row_upper).all()
    outcome = certified_allocation(engine, program, values, values.y, matrix=False)
    # A view: the front of the point that has the smallest level behind.
    assert outcome.x is not None and outcome.x.base is not None
