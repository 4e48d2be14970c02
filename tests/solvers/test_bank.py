"""Every back-end present, run through the bank; every capability claimed is used."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from bank import BANK, Case, degenerate, dense, infeasible, knapsack

from optsched.engine import Engine
from optsched.errors import OptschedError, SolverCrashed, SolverUnavailable, UsageError
from optsched.program import LinearProgram
from optsched.registry import load_solver
from optsched.solution import Basis, Termination, dual_bound
from optsched.solvers import Capability, Limits, Progress


def engine(name: str, **limits: object) -> Engine:
    return Engine(load_solver, name, Limits(**limits))


def needs(name: str, *capabilities: Capability) -> None:
    """Skip a back-end that does not claim these capabilities."""
    missing = [str(item) for item in capabilities if item not in load_solver(name).capabilities]
    if missing:
        pytest.skip(f"{name} claims no {', '.join(missing)}")


@pytest.mark.parametrize("case", BANK, ids=lambda case: case.name)
def test_bank(solver_name: str, case: Case) -> None:
    solver = load_solver(solver_name)
    needed = Capability.INTEGER if case.integer else Capability.CONTINUOUS
    if needed not in solver.capabilities:
        with pytest.raises(SolverUnavailable, match=f"solver {solver_name} lacks '{needed}'"):
            engine(solver_name).solve_linear(case.build())
        return
    if (solver_name, case.name) == ("pdlp", "unbounded"):
        pytest.skip("PDLP stops at its default limit on an unbounded program and says so")
    outcome = engine(solver_name).solve_linear(case.build())
    assert outcome.status == case.status and outcome.certificate.ok, outcome
    if case.objective is not None:
        assert outcome.value == pytest.approx(case.objective, rel=1e-7, abs=1e-7)
        assert outcome.bound == pytest.approx(case.objective, rel=1e-6, abs=1e-6)
        exact = not case.integer and Capability.DUALS in solver.capabilities
        assert outcome.certificate.proof == ("dual" if exact else "claimed")


def test_conflict_is_irreducible(solver_name: str) -> None:
    needs(solver_name, Capability.CONTINUOUS)
    outcome = engine(solver_name).solve_linear(infeasible())
    assert sorted(conflict.block for conflict in outcome.conflicts) == ["high", "low"]
    if Capability.IIS in load_solver(solver_name).capabilities:
        assert len(load_solver(solver_name)().open(infeasible().arrays).conflict()) == 2


def test_duals_are_derivatives(solver_name: str) -> None:
    needs(solver_name, Capability.DUALS)
    values = load_solver(solver_name)().open(dense().arrays).run(Limits())
    assert dual_bound(dense().arrays, values.y) == pytest.approx(11.0, rel=1e-6)


def test_same_seed_same_bytes(solver_name: str) -> None:
    continuous = Capability.CONTINUOUS in load_solver(solver_name).capabilities
    program = degenerate() if continuous else knapsack()
    runs = [load_solver(solver_name)().open(program.arrays).run(Limits(seed=3)) for _ in range(2)]
    assert runs[0].x.tobytes() == runs[1].x.tobytes()
    if runs[0].y is not None:
        assert runs[0].y.tobytes() == runs[1].y.tobytes()


def test_session_changes(solver_name: str) -> None:
    """Every change of a loaded program gives what a fresh program gives."""
    needs(solver_name, Capability.CONTINUOUS)
    session = load_solver(solver_name)().open(dense().arrays)
    assert session.run(Limits()).objective == pytest.approx(11.0, rel=1e-6)
    session.set_cost(np.array([1.0, 5.0]))
    assert session.run(Limits()).objective == pytest.approx(10.0, rel=1e-6)  # (0, 2)
    session.set_rows(np.array([-np.inf, -np.inf]), np.array([4.0, 3.0]))
    assert session.run(Limits()).objective == pytest.approx(5.0, rel=1e-6)  # (0, 1)
    session.set_bounds(np.array([1.0, 0.0]), np.array([3.0, np.inf]))
    assert session.run(Limits()).objective == pytest.approx(1.0 + 5.0 * 2 / 3, rel=1e-6)
    session.set_coefficients(np.array([1]), np.array([1]), np.array([1.0]))
    assert session.run(Limits()).objective == pytest.approx(11.0, rel=1e-6)  # x + y <= 3, x >= 1: (1, 2)
    session.add_columns(sp.csc_matrix(np.array([[1.0], [1.0]])), np.array([7.0]), np.array([1.0]))
    added = session.run(Limits())
    assert added.objective == pytest.approx(13.0, rel=1e-6)  # (1, 1, 1)
    assert any("columns were added" in reason for reason in added.rebuilt)
    session.add_rows(sp.csr_matrix(np.array([[0.0, 0.0, 1.0]])), np.array([-np.inf]), np.array([0.0]))
    last = session.run(Limits())
    assert last.objective == pytest.approx(11.0, rel=1e-6) and "rows were added" in last.rebuilt
    fresh = load_solver(solver_name)().open(session.arrays).run(Limits())
    assert fresh.objective == pytest.approx(last.objective, rel=1e-6)


def test_rebuild_reasons_are_named_only_when_it_rebuilds(solver_name: str) -> None:
    needs(solver_name, Capability.CONTINUOUS)
    solver = load_solver(solver_name)
    session = solver().open(dense().arrays)
    session.run(Limits())
    session.set_cost(np.array([1.0, 5.0]))
    rebuilt = session.run(Limits()).rebuilt
    assert rebuilt == (() if Capability.INCREMENTAL in solver.capabilities else ("cost",))


def test_warm_rerun_takes_no_iterations() -> None:
    session = load_solver("highs")().open(dense().arrays)
    first = session.run(Limits())
    assert first.basis is not None and session.run(Limits()).iterations == 0
    other = load_solver("highs")().open(dense().arrays)
    other.set_start(first.basis)
    assert other.run(Limits()).iterations == 0


def test_a_start_of_the_wrong_size_is_dropped_with_a_reason() -> None:
    session = load_solver("highs")().open(dense().arrays)
    session.set_start(Basis(np.zeros(7, np.int64), np.zeros(1, np.int64)))
    values = session.run(Limits())
    assert values.objective == pytest.approx(11.0)
    assert values.rebuilt == ("start dropped: 7 columns and 1 rows are not 2 and 2",)


def test_point_start_of_an_integer_program() -> None:
    session = load_solver("highs")().open(knapsack().arrays)
    session.set_start(np.array([1.0, 0, 0, 0, 0, 0, 0, 1.0]))
    assert session.run(Limits()).objective == pytest.approx(52.0)


def hard_knapsack(items: int = 60) -> LinearProgram:
    """Five strongly correlated knapsacks at once: takes a while, finds incumbents early."""
    random = np.random.default_rng(0)
    lp = LinearProgram()
    weight = random.integers(100, 1000, (5, items)).astype(float)
    x = lp.variables(items, name="x", upper=1.0, integer=True)
    lp.constrain(weight @ x <= weight.sum(axis=1) / 2, name="weight")
    lp.maximise((weight.mean(axis=0) + 100.0)[np.newaxis, :] @ x)
    return lp


def test_limits_of_an_integer_program() -> None:
    limited = engine("highs", work=1).solve_linear(hard_knapsack())
    assert limited.values.termination in (Termination.WORK_LIMIT, Termination.OPTIMAL)
    timed = engine("highs", time=0.5).solve_linear(hard_knapsack(200))
    assert timed.values.termination is Termination.TIME_LIMIT and timed.values.seconds < 2.0
    assert timed.status == "feasible" and timed.certificate.ok and timed.bound >= timed.value
    loose = engine("highs", gap=0.2).solve_linear(hard_knapsack())
    assert loose.status == "optimal" and loose.certificate.ok
    assert abs(loose.bound - loose.value) <= 0.2 * loose.value


def test_the_budget_is_shared_by_all_runs() -> None:
    owner = engine("highs", time=0.4)
    session = owner.open(hard_knapsack(200).arrays)
    first, second = owner.run(session), owner.run(session)
    assert first.termination is second.termination is Termination.TIME_LIMIT
    assert second.seconds < 0.5 * first.seconds + 0.2


def test_progress_reports_bound_and_incumbent() -> None:
    events: list[Progress] = []
    engine("highs", time=1.5, on_progress=events.append).solve_linear(hard_knapsack(200))
    assert any(event.bound is not None and event.incumbent is not None for event in events)
    assert [event.elapsed for event in events] == sorted(event.elapsed for event in events)


def test_unknown_solver_option(solver_name: str) -> None:
    if solver_name in ("pdlp", "scip", "cbc"):
        pytest.skip(f"{solver_name} does not tell options that it does not know")
    program = dense() if Capability.CONTINUOUS in load_solver(solver_name).capabilities else knapsack()
    with pytest.raises(UsageError, match=r"no_such_option|refused its options"):
        engine(solver_name, options={"no_such_option": 1}).solve_linear(program)


def test_unknown_solver_is_never_replaced() -> None:
    with pytest.raises(SolverUnavailable, match=r"unknown solver 'highz', expected one of .*did you mean highs"):
        engine("highz").solve_linear(dense())


def test_nan_is_refused(solver_name: str) -> None:
    lp = dense() if Capability.CONTINUOUS in load_solver(solver_name).capabilities else knapsack()
    lp.arrays.cost[0] = np.nan
    with pytest.raises(OptschedError):
        engine(solver_name).solve_linear(lp)


def test_a_back_end_that_raises_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import clarabel

    def explode(*_: object) -> None:
        raise RuntimeError("out of cheese")

    monkeypatch.setattr(clarabel, "DefaultSolver", explode)
    with pytest.raises(SolverCrashed, match="Clarabel raised RuntimeError: out of cheese"):
        engine("clarabel").solve_linear(dense())


def test_a_missing_back_end_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "clarabel", None)
    with pytest.raises(SolverUnavailable, match="solver clarabel cannot be loaded"):
        engine("clarabel").solve_linear(dense())


def test_auto_depends_on_the_program_only() -> None:
    picks = {
        (rows, integer, conic): engine("auto").choose(rows=rows, integer=integer, conic=conic).name
        for rows, integer, conic in ((10, False, False), (10**5, False, False), (10**5, True, False), (10, False, True))
    }
    assert list(picks.values()) == ["highs", "clarabel", "highs", "clarabel"]
