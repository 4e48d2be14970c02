"""What only a solver vouches for is measured by the points that are at hand: a lie is never certified."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import optsched
from optsched.generate import generate
from optsched.solution import PointStatus, Termination, Values
from optsched.solvers import CpSat, HighsSession, Limits

CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "lease": (generate("leases", jobs=6, nodes=1, tightness=3.0, seed=1).instance, {"admission": True}),
    "max-throughput": ("@packing", {"integral": True}),
    "multiple-choice": (
        generate("knapsack", jobs=12, choices=3, resources=2, tightness=0.3, seed=6).instance,
        {},
    ),
}  # fmt: skip


def nothing(self: HighsSession, limits: Limits) -> Values:
    """A coherent lie about integer programs: x = 0 is optimal, objective and bound are 0."""
    values = RUN(self, limits)
    if not self.arrays.is_integer or values.x is None:
        return values
    return replace(values, x=np.zeros_like(values.x), objective=0.0, bound=0.0)


RUN = HighsSession.run


@pytest.fixture
def lying(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setattr(HighsSession, "run", nothing)
        yield


def right(name: str) -> float:
    instance, options = CASES[name]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HighsSession, "run", RUN)
        objective = optsched.solve(instance, name, **options).objective
    assert objective is not None and objective > 0
    return objective


@pytest.mark.usefixtures("lying")
@pytest.mark.parametrize("name", CASES)
def test_another_solver_is_tried_where_a_known_point_refutes_a_claim(name: str) -> None:
    instance, options = CASES[name]
    solution = optsched.solve(instance, name, **options)
    assert solution.ok and solution.status == "optimal"
    assert solution.objective == pytest.approx(right(name), rel=1e-6)
    first = solution.solver.attempts[0]
    assert first.name == "highs" and "claims that nothing is better than 0" in first.outcome


@pytest.mark.usefixtures("lying")
@pytest.mark.parametrize("name", CASES)
def test_the_known_point_is_the_answer_where_the_solver_was_asked_for(name: str) -> None:
    instance, options = CASES[name]
    solution = optsched.solve(instance, name, solver="highs", **options)
    assert solution.ok and solution.status == "feasible" and solution.bound_source != "solver"
    assert solution.objective is not None and 0 < solution.objective <= right(name) * (1 + 1e-6)
    assert solution.solver.attempts[-1] == ("known point", "feasible")
    assert optsched.verify(instance, solution.to_document()).ok


@pytest.mark.usefixtures("lying")
@pytest.mark.parametrize("solver", ["auto", "highs"])
@pytest.mark.parametrize("name", CASES)
def test_a_proof_ends_with_a_certificate_that_holds(name: str, solver: str) -> None:
    instance, options = CASES[name]
    solution = optsched.solve(instance, name, solver=solver, prove=True, **options)
    assert (solution.ok, solution.status) == (True, "optimal")
    assert solution.certificate.proof == "cross-checked"
    assert solution.objective == pytest.approx(right(name), rel=1e-6)
    assert optsched.verify(instance, solution.to_document()).ok


def test_a_claim_that_a_start_or_a_proof_refutes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The point at hand itself is claimed to be the best."""
    instance, options = CASES["max-throughput"]
    best = right("max-throughput")
    start = optsched.solve(instance, "max-throughput", **options)
    monkeypatch.setattr(HighsSession, "run", nothing)
    known = optsched.solve(instance, "max-throughput", solver="highs", **options).allocation
    assert known is not None

    def hasty(self: HighsSession, limits: Limits) -> Values:
        if not self.arrays.is_integer:
            return RUN(self, limits)
        value = self.arrays.objective(known.x)
        return replace(RUN(self, limits), x=known.x, objective=value, bound=value)

    monkeypatch.setattr(HighsSession, "run", hasty)
    claimed = optsched.solve(instance, "max-throughput", **options)
    assert claimed.status == "optimal" and claimed.objective is not None
    assert claimed.objective < best * (1 - 1e-3) and not claimed.solver.attempts
    started = optsched.solve(instance, "max-throughput", solver="highs", start=start, **options)
    assert (started.ok, started.status, started.bound_source) == (True, "feasible", "dual")
    assert started.bound > 1.01 * best
    assert started.objective == pytest.approx(best, rel=1e-6)
    proven = optsched.solve(instance, "max-throughput", prove=True, **options)
    assert (proven.ok, proven.status, proven.certificate.proof) == (
        True,
        "optimal",
        "cross-checked",
    )
    assert proven.objective == pytest.approx(best, rel=1e-6)
    assert optsched.verify(instance, proven.to_document()).ok


@pytest.mark.parametrize("solver", ["auto", "cp-sat"])
def test_a_bound_above_the_list_schedule_is_refuted(
    monkeypatch: pytest.MonkeyPatch, solver: str
) -> None:
    """A makespan: the schedule that is claimed is twice as long as the one the search began with."""
    instance = generate("unrelated", jobs=6, machines=2, seed=3).instance
    best = optsched.solve(instance, "makespan-unrelated", program="timeline")
    honest = CpSat.solve_timeline

    def late(self: CpSat, program: Any, limits: Limits, start: Any = None) -> Values:
        values = honest(self, program, limits, start)
        assert values.x is not None and values.objective is not None
        first, mode = np.split(values.x, 2)
        delayed = np.concatenate([first + values.objective, mode])
        worse = 2.0 * values.objective
        return replace(values, x=delayed, objective=worse, bound=worse)

    monkeypatch.setattr(CpSat, "solve_timeline", late)
    solution = optsched.solve(instance, "makespan-unrelated", program="timeline", solver=solver)
    assert solution.ok and "nothing is better" in solution.solver.attempts[0].outcome
    assert best.objective is not None and solution.objective is not None
    if solver == "auto":
        assert solution.status == "optimal" and solution.objective == best.objective
    else:
        assert solution.status == "feasible" and solution.objective < 2.0 * best.objective


def test_a_schedule_below_its_bound_is_no_optimum(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything starts at once, on machines that are then overloaded; the bound is the true one."""
    instance = generate("unrelated", jobs=6, machines=2, seed=3).instance
    honest = CpSat.solve_timeline
    below: list[bool] = []

    def crowded(self: CpSat, program: Any, limits: Limits, start: Any = None) -> Values:
        values = honest(self, program, limits, start)
        assert values.x is not None
        first, mode = np.split(values.x, 2)
        cost = program.objective(np.zeros(len(first), np.int64), mode.astype(np.int64))
        below.append(values.objective is not None and cost < values.objective)
        x = np.concatenate([np.zeros_like(first), mode])
        return replace(values, x=x, objective=float(cost), bound=values.objective)

    monkeypatch.setattr(CpSat, "solve_timeline", crowded)
    solution = optsched.solve(instance, "makespan-unrelated", program="timeline", solver="cp-sat")
    assert below == [True]
    # The list schedule takes its place, which is as long as the bound says.
    assert solution.ok and solution.solver.attempts[-1].name == "known point"
    assert solution.objective == solution.bound
    assert optsched.verify(instance, solution.to_document()).ok


def test_a_claim_that_there_is_no_plan_is_refuted_by_the_plan_at_hand(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    instance = generate("leases", jobs=6, nodes=1, tightness=0.5, seed=1).instance
    expected = optsched.solve(instance, "lease")
    assert expected.status == "optimal"

    def stubborn(self: HighsSession, limits: Limits) -> Values:
        if not self.arrays.is_integer:
            return RUN(self, limits)
        return Values(Termination.INFEASIBLE, primal=PointStatus.NONE, words="infeasible")

    monkeypatch.setattr(HighsSession, "run", stubborn)
    solution = optsched.solve(instance, "lease")
    assert solution.ok and solution.status == "optimal"
    assert solution.objective == pytest.approx(expected.objective)
    assert "there is no feasible point" in solution.solver.attempts[0].outcome


@pytest.mark.parametrize("name", CASES)
def test_verify_refuses_a_claim_that_a_known_point_refutes(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A file as a version would write it that believes the solver."""
    instance, options = CASES[name]
    with monkeypatch.context() as patch:
        patch.setattr(HighsSession, "run", nothing)
        patch.setattr("optsched.solving.attempts.unless_refuted", lambda outcome, *_: outcome)
        lie = optsched.solve(instance, name, **options).to_document()
    assert (lie["status"], lie["objective"], lie["bound"]) == ("optimal", 0.0, 0.0)
    found = optsched.verify(instance, lie)
    assert [finding.field for finding in found.findings] == ["bound"]
