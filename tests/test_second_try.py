"""When `auto` chose and the certificate does not hold, a solver of another kind is tried, openly."""

from __future__ import annotations

from dataclasses import replace

import pytest

import optsched
from optsched.errors import SolverCrashed
from optsched.program import LinearArrays
from optsched.solution import Values
from optsched.solvers import Limits, Session
from optsched.solvers.highs import Highs, HighsSession


class Spoiled(HighsSession):
    """HiGHS without duals worth anything."""

    def run(self, limits: Limits) -> Values:
        values = super().run(limits)
        return replace(values, y=None if values.y is None else values.y * 0.0)


@pytest.fixture
def spoiled(monkeypatch: pytest.MonkeyPatch) -> None:
    def open_spoiled(self: Highs, program: LinearArrays) -> Session:
        return Spoiled(program, self.algorithm)

    monkeypatch.setattr(Highs, "open", open_spoiled)


@pytest.mark.usefixtures("spoiled")
def test_auto_tries_another_solver_and_says_so() -> None:
    solution = optsched.solve("@quickstart")
    assert solution.ok and solution.status == "optimal" and solution.solver.name == "clarabel"
    assert "highs left a certificate that does not hold" in solution.solver.reason
    assert any("solved again by clarabel" in reason for reason in solution.solver.rebuilt)


@pytest.mark.usefixtures("spoiled")
def test_a_solver_that_was_asked_for_is_never_replaced() -> None:
    solution = optsched.solve("@quickstart", solver="highs")
    assert not solution.ok and solution.solver.name == "highs"


def test_a_crash_is_no_reason_to_try_another(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(self: HighsSession, limits: Limits) -> Values:
        raise SolverCrashed("HiGHS raised RuntimeError: boom")

    monkeypatch.setattr(HighsSession, "run", crash)
    with pytest.raises(SolverCrashed, match="boom"):
        optsched.solve("@quickstart")
