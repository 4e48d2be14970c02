"""A case of the conformance suite, the solver under test, and what comes out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from optsched.arrays import FloatArray
from optsched.errors import SolverUnavailable
from optsched.program import ConicProgram, LinearArrays, TimelineProgram
from optsched.registry import load_solver
from optsched.solution import Status, Termination, Values
from optsched.solvers import Capability, Limits, Session, Solver
from optsched.solving import Engine, Outcome

PATIENCE = 20.0
"""Seconds that a back-end has for a program of a few rows."""


class Failed(Exception):
    """The solver under test did something else than it should have; the message says what."""


class Skipped(Exception):
    """The case says nothing about this solver; the message says why."""


class CaseVerdict(StrEnum):
    """How a case ended."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Result:
    """How one case ended.

    Attributes
    ----------
    case : str
    bank : str
        The part of the suite that it belongs to.
    verdict : CaseVerdict
    reason : str
        Why it failed or was skipped; empty if it passed.
    seconds : float
    """

    case: str
    bank: str
    verdict: CaseVerdict
    reason: str
    seconds: float


@dataclass(frozen=True)
class Subject:
    """The solver under test."""

    solver: type[Solver]

    def has(self, capability: Capability) -> bool:
        """Whether the solver claims a capability."""
        return capability in self.solver.capabilities

    def open(self, arrays: LinearArrays) -> Session:
        """A session of the solver itself, without the scaling of the engine."""
        return self.solver().open(arrays)

    def run(self, arrays: LinearArrays, **limits: Any) -> Values:
        """One run of a fresh session: the solver's claims as they come."""
        # Limits of the case come last, so that they replace the patience.
        return self.open(arrays).run(Limits(**{"time": PATIENCE, **limits}))

    def solve(self, arrays: LinearArrays, **limits: Any) -> Outcome:
        """Solve through the engine: scaled, and certified without trust in the solver."""
        return self.engine(**limits).solve_linear(arrays)

    def engine(self, **limits: Any) -> Engine:
        """An engine that was asked for this solver;
        others are there for the duals that it may lack.
        """
        return Engine(self._load, self.solver.name, Limits(**{"time": PATIENCE, **limits}))

    def _load(self, name: str) -> type[Solver]:
        return self.solver if name == self.solver.name else load_solver(name)

    def solve_timeline(
        self, program: TimelineProgram, start: FloatArray | None = None, **limits: Any
    ) -> Values:
        """Solve a timeline program."""
        allowed = Limits(**{"time": PATIENCE, **limits})
        return self.solver().solve_timeline(program, allowed, start)

    def solve_conic(self, program: ConicProgram, **limits: Any) -> Values:
        """Solve a conic program."""
        return self.solver().solve_conic(program, Limits(**{"time": PATIENCE, **limits}))


@dataclass(frozen=True)
class Case:
    """Something that every back-end must do, or every one that claims certain capabilities.

    Attributes
    ----------
    name : str
        Unique in the suite.
    check : callable
        Takes a `Subject`; raises `Failed` or `Skipped`. An error that the solver raises is a
        failure too.
    needs : frozenset of Capability
        A solver that claims less is not asked.
    """

    name: str
    check: Callable[[Subject], None]
    needs: frozenset[Capability] = frozenset()


def case(name: str, *needs: Capability) -> Callable[[Callable[[Subject], None]], Case]:
    """Make a function a case."""

    def make(check: Callable[[Subject], None]) -> Case:
        return Case(name, check, frozenset(needs))

    return make


def expect(holds: object, words: str) -> None:
    """Fail with these words unless it holds."""
    if not holds:
        raise Failed(words)


def expect_close(
    found: ArrayLike | None,
    wanted: ArrayLike,
    what: str,
    *,
    relative: float = 1e-6,
    absolute: float | None = None,
) -> None:
    """Fail unless numbers agree,
    relative to the largest of those wanted (or to 1e-3, if that is more).
    """
    if found is None:
        raise Failed(f"{what}: found nothing, expected {_text(wanted)}")
    given = np.asarray(found, np.float64)
    target = np.asarray(wanted, np.float64)
    if given.shape != target.shape:
        raise Failed(f"{what}: found the shape {given.shape}, expected {target.shape}")
    allowed = (
        relative * max(float(np.abs(target).max(initial=0.0)), 1e-3)
        if absolute is None
        else absolute
    )
    # Not `>`: a NaN is never close.
    if not np.abs(given - target).max(initial=0.0) <= allowed:
        raise Failed(f"{what}: found {_text(given)}, expected {_text(target)}")


def expect_certified(outcome: Outcome, what: str = "", *statuses: Status) -> None:
    """Fail unless the certificate holds, and the status is one of those given, if any are."""
    where = f"{what}: " if what else ""
    expect(outcome.certificate.ok, f"{where}{'; '.join(outcome.certificate.problems)}")
    expected = f", expected {statuses[0]}" if len(statuses) == 1 else ""
    expect(not statuses or outcome.status in statuses, f"{where}status {outcome.status}{expected}")


def expect_termination(values: Values, *allowed: Termination) -> None:
    """Fail unless the solver says that it ended in one of these ways."""
    end = values.termination
    expect(end in allowed, f"termination {end}, expected {' or '.join(allowed)}")


def expect_refused(solve: Callable[[], object], program: str, word: str, about: str) -> None:
    """Fail unless a program is refused, with a word that says why."""
    try:
        solve()
    except SolverUnavailable as error:
        expect(word in str(error), f"the refusal does not {about}: {error}")
        return
    expect(False, f"{program}, not refused")


def expect_same_bytes(first: Values, second: Values) -> None:
    """Fail unless two runs found points and duals that agree in every bit."""
    for name, one, other in (("points", first.x, second.x), ("duals", first.y, second.y)):
        expect((one is None) == (other is None), f"{name} in one run of two")
        # 0.0 and -0.0 are equal numbers, but not the same bytes.
        same = one is None or other is None or one.tobytes() == other.tobytes()
        expect(same, f"the {name} differ")
    expect(first.x is not None, "no point")


def _text(numbers: ArrayLike) -> str:
    return np.array2string(
        np.asarray(numbers, np.float64),
        precision=9,
        threshold=8,
        separator=", ",
    )
