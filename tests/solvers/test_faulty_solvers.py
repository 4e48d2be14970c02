"""Back-ends that lie, each in its own way: the conformance suite finds every one of them."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest

from optsched.arrays import FloatArray
from optsched.conformance import BANKS, CaseVerdict, check_case, check_solver

# Private names: sessions and steps of one back-end, without the engine
from optsched.conformance.limits import slack
from optsched.program import ConicProgram, LinearArrays, TimelineProgram
from optsched.solution import Termination, Values
from optsched.solvers import (
    Capability,
    Clarabel,
    CpSat,
    Highs,
    HighsSession,
    Limits,
    Session,
    Solver,
)

pytestmark = pytest.mark.oracle

SLOW = pytest.mark.study


class Faulty(HighsSession):
    """HiGHS, with something done to the program, the limits or the values."""

    def __init__(self, arrays: LinearArrays, algorithm: str, owner: type[FaultyHighs]) -> None:
        super().__init__(owner.program(arrays), algorithm)
        self._owner = owner

    def run(self, limits: Limits) -> Values:
        return self._owner.values(super().run(self._owner.limits(limits)), self)

    def set_start(self, start: Any) -> None:
        if self._owner.takes_start:
            super().set_start(start)


class FaultyHighs(Highs):
    """HiGHS as it is; the subclasses are wrong."""

    name: ClassVar[str] = "faulty"
    takes_start: ClassVar[bool] = True

    @classmethod
    def program(cls, arrays: LinearArrays) -> LinearArrays:
        return arrays

    @classmethod
    def limits(cls, limits: Limits) -> Limits:
        return limits

    @classmethod
    def values(cls, values: Values, session: Session) -> Values:
        return values

    def open(self, program: LinearArrays) -> Session:
        return Faulty(program, "simplex", type(self))


class Boasts(FaultyHighs):
    """States an objective that is 1 % better than that of its point."""

    @classmethod
    def values(cls, values: Values, session: Session) -> Values:
        return (
            values
            if values.objective is None
            else replace(values, objective=values.objective * 1.01)
        )


class WrongSign(FaultyHighs):
    """Duals as some libraries have them."""

    @classmethod
    def values(cls, values: Values, session: Session) -> Values:
        return replace(values, y=None if values.y is None else -values.y)


class WrongSignOfMinima(FaultyHighs):
    """Duals that are right for a maximum alone."""

    @classmethod
    def values(cls, values: Values, session: Session) -> Values:
        flip = values.y is not None and not session.arrays.maximise
        return replace(values, y=-values.y) if flip and values.y is not None else values


class Rounds(FaultyHighs):
    """Solves the relaxation."""

    @classmethod
    def program(cls, arrays: LinearArrays) -> LinearArrays:
        return arrays.relaxed()


class GivesUp(FaultyHighs):
    """Calls integer programs infeasible."""

    @classmethod
    def values(cls, values: Values, session: Session) -> Values:
        if not session.arrays.is_integer:
            return values
        return Values(Termination.INFEASIBLE, words="infeasible")


class NeverInfeasible(FaultyHighs):
    """Says unbounded for infeasible."""

    @classmethod
    def values(cls, values: Values, session: Session) -> Values:
        wrong = values.termination is Termination.INFEASIBLE
        return replace(values, termination=Termination.UNBOUNDED) if wrong else values


class ForgetsOffset(FaultyHighs):
    """Leaves the constant of the objective out."""

    @classmethod
    def program(cls, arrays: LinearArrays) -> LinearArrays:
        return replace(arrays, offset=0.0)


class Minimises(FaultyHighs):
    """Takes every program for a minimum."""

    @classmethod
    def program(cls, arrays: LinearArrays) -> LinearArrays:
        return replace(arrays, maximise=False)


class HalfRanges(FaultyHighs):
    """Forgets the lower side of a row with two."""

    @classmethod
    def program(cls, arrays: LinearArrays) -> LinearArrays:
        both = np.isfinite(arrays.row_upper) & (arrays.row_lower < arrays.row_upper)
        return replace(arrays, row_lower=np.where(both, -np.inf, arrays.row_lower))


class Hurries(FaultyHighs):
    """Calls what it has at a limit optimal."""

    @classmethod
    def values(cls, values: Values, session: Session) -> Values:
        stopped = values.x is not None and values.termination in (
            Termination.TIME_LIMIT,
            Termination.WORK_LIMIT,
        )
        return replace(values, termination=Termination.OPTIMAL) if stopped else values


class NoClock(FaultyHighs):
    """Knows no time limit (but this one, so that the test ends: later than the suite puts up with)."""

    @classmethod
    def limits(cls, limits: Limits) -> Limits:
        return replace(limits, time=1.5 * slack())  # the load changes while it runs


class NoStart(FaultyHighs):
    """Claims to take a start and does not."""

    takes_start = False


class Random(FaultyHighs):
    """Another seed, and another point, every time."""

    seeds = itertools.count()

    @classmethod
    def values(cls, values: Values, session: Session) -> Values:
        if values.x is None:
            return values
        return replace(values, x=values.x + 1e-12 * next(cls.seeds))


class BoundTooGood(FaultyHighs):
    """A bound of integer programs that is better than their optimum."""

    @classmethod
    def values(cls, values: Values, session: Session) -> Values:
        return values if values.bound is None else replace(values, bound=values.bound * 0.9)


class StopsEarly(FaultyHighs):
    """Stops 1e-4 from its bound at the latest, and passes its objective for the bound."""

    @classmethod
    def limits(cls, limits: Limits) -> Limits:
        return replace(limits, gap=max(limits.gap or 0.0, 1e-4))

    @classmethod
    def values(cls, values: Values, session: Session) -> Values:
        return replace(values, bound=values.objective)


class Explodes(FaultyHighs):
    """Raises something of its own."""

    @classmethod
    def values(cls, values: Values, session: Session) -> Values:
        raise ZeroDivisionError("oops")


class Swallows(FaultyHighs):
    """Ignores options that it does not know."""

    @classmethod
    def limits(cls, limits: Limits) -> Limits:
        return replace(limits, options={})


class Silent(FaultyHighs):
    """Claims progress and reports none."""

    @classmethod
    def limits(cls, limits: Limits) -> Limits:
        return replace(limits, on_progress=None)


class Stale(FaultyHighs):
    """Keeps the first program whatever is changed."""

    def open(self, program: LinearArrays) -> Session:
        class Session(HighsSession):
            def run(self, limits: Limits) -> Values:
                kept, self.arrays = self.arrays, program
                self._highs = None
                try:
                    return super().run(limits)
                finally:
                    self.arrays = kept

        return Session(program, "simplex")


class Reloads(FaultyHighs):
    """Claims to change programs in place and loads them again."""

    @classmethod
    def values(cls, values: Values, session: Session) -> Values:
        return replace(values, rebuilt=("cost",))


class Halves(FaultyHighs):
    """Half of the optimum, with its own value as objective and bound, and no duals."""

    capabilities: ClassVar[frozenset[Capability]] = Highs.capabilities - {Capability.DUALS}
    factor: ClassVar[float] = 0.5

    @classmethod
    def values(cls, values: Values, session: Session) -> Values:
        if values.x is None:
            return values
        x = cls.factor * values.x
        value = session.arrays.objective(x)
        return replace(values, x=x, y=None, objective=value, bound=value)


class DoesNothing(Halves):
    """0 everywhere is the optimum of everything."""

    factor: ClassVar[float] = 0.0


class KeepsDuals(FaultyHighs):
    """Claims duals and gives none."""

    @classmethod
    def values(cls, values: Values, session: Session) -> Values:
        return replace(values, y=None)


class FlippedCones(Clarabel):
    """Multipliers of cones with the wrong sign."""

    name: ClassVar[str] = "faulty"

    def solve_conic(self, program: ConicProgram, limits: Limits) -> Values:
        values = super().solve_conic(program, limits)
        return replace(values, y=None if values.y is None else -values.y)


class OneSidedCones(Clarabel):
    """Does not know that maxima are minima of the negative."""

    name: ClassVar[str] = "faulty"

    def solve_conic(self, program: ConicProgram, limits: Limits) -> Values:
        return super().solve_conic(replace(program, maximise=False), limits)


class HalfTheTime(CpSat):
    """States half of the cost of its schedule."""

    name: ClassVar[str] = "faulty"

    def solve_timeline(
        self, program: TimelineProgram, limits: Limits, start: FloatArray | None = None
    ) -> Values:
        values = super().solve_timeline(program, limits, start)
        return replace(values, objective=None if values.objective is None else values.objective / 2)


class AnswersEverything(Highs):
    """Does not claim integers and takes them."""

    name: ClassVar[str] = "faulty"
    capabilities: ClassVar[frozenset[Capability]] = Highs.capabilities - {Capability.INTEGER}

    def open(self, program: LinearArrays) -> Session:
        return HighsSession(program.relaxed(), "simplex")


FOUND: list[tuple[type[Solver], str, str, str]] = [
    (Boasts, "linear", "maximum", "the solver states the objective 11.11, its point has 11"),
    (WrongSign, "linear", "maximum", "the certificate leaves"),
    (WrongSignOfMinima, "linear", "minimum", "the certificate leaves"),
    (Rounds, "integer", "knapsack", "integ"),
    (GivesUp, "integer", "knapsack", "claims that a feasible program is infeasible"),
    (NeverInfeasible, "linear", "infeasible rows", "termination unbounded, expected infeasible"),
    (ForgetsOffset, "linear", "no objective", "objective"),
    (Minimises, "linear", "maximum", "the certificate leaves"),
    (HalfRanges, "linear", "equality, free columns, offset", ""),
    (Hurries, "limits", "the time limit is kept", "claims optimality"),
    (NoClock, "limits", "the time limit is kept", "s at a limit of 0.4 s"),
    (NoStart, "integer", "a point to start from is taken", "no point within one node"),
    (NoStart, "sessions", "a basis comes back and is taken", "iterations from its own basis"),
    (Random, "sessions", "the same seed gives the same bytes", "the points differ"),
    (BoundTooGood, "integer", "knapsack", "status feasible, expected optimal"),
    (StopsEarly, "integer", "no gap is left by default", "objective: found 432538"),
    (StopsEarly, "limits", "the gap is kept", "is below a point of 20937.4"),
    (Explodes, "linear", "maximum", "raised ZeroDivisionError: oops"),
    (Swallows, "limits", "an unknown option is refused", "was ignored"),
    (Silent, "limits", "progress is reported", "no event"),
    (Stale, "sessions", "session: cost", "objective after the change: found 11., expected 15."),
    (Reloads, "sessions", "changes are made in place", "rebuilt because of"),
    (Halves, "linear", "maximum", "status feasible, expected optimal"),
    (Halves, "linear", "minimum with roofs", "status feasible, expected optimal"),
    (DoesNothing, "linear", "maximum", "status feasible, expected optimal"),
    (KeepsDuals, "linear", "maximum", "claims duals, and gives none"),
    (FlippedCones, "conic", "log utility", "the multipliers miss the dual program"),
    (OneSidedCones, "conic", "log utility", ""),
    (HalfTheTime, "timeline", "precedence and release", ""),
    (
        AnswersEverything,
        "integer",
        "integer programs are refused by a solver without them",
        "is answered, not refused",
    ),
]


TIMED = ("the time limit is kept", "progress is reported")
"""Cases that take as long as a limit says, or wait for a solver to report something."""


@pytest.mark.parametrize(
    ("solver", "bank", "case", "words"),
    [
        pytest.param(*fault, marks=pytest.mark.oracle if fault[2] in TIMED else pytest.mark.unit)
        for fault in FOUND
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else None,
)
def test_a_fault_is_found(solver: type[Solver], bank: str, case: str, words: str) -> None:
    (wanted,) = (item for item in BANKS[bank] if item.name == case)
    result = check_case(wanted, bank, solver)
    assert result.verdict is CaseVerdict.FAILED and words in result.reason, result


@pytest.mark.parametrize(
    "bank", [pytest.param(bank, marks=SLOW if bank == "limits" else ()) for bank in BANKS]
)
def test_the_faultless_one_passes(bank: str) -> None:
    assert [
        result
        for result in check_solver(FaultyHighs, [bank])
        if result.verdict is CaseVerdict.FAILED
    ] == []
