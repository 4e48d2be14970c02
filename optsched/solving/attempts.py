"""Attempts at one program: what came of each, the best point, and the best bound that duals prove."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from optsched.arrays import FloatArray
from optsched.errors import SolverCrashed
from optsched.solution.solution import Attempt, Status
from optsched.solution.values import Termination
from optsched.solving.outcome import BY_CLOCK, Outcome

SETTLED = (Status.OPTIMAL, Status.INFEASIBLE, Status.UNBOUNDED)
"""What no further attempt can improve, if the certificate holds."""
KNOWN = "known point"
"""Name of an attempt that is a feasible point without a solver."""


@dataclass
class Attempts:
    """What was tried on one program.

    Attributes
    ----------
    maximise : bool
        Sense of the program.
    made : list of Attempt
        In their order.
    seconds : dict
        By the name of the solver.
    best : Outcome or None
        The one that is to be returned.
    proved : Outcome or None
        The one with the tightest bound that duals prove.
    failure : SolverCrashed or None
        The first one.
    out_of_time : bool
        Whether another attempt was called for, and too little time was left for it.
    stopped : bool
        Whether the clock or the user stopped one of them.
    """

    maximise: bool = True
    made: list[Attempt] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    best: Outcome | None = None
    proved: Outcome | None = None
    failure: SolverCrashed | None = None
    out_of_time: bool = False
    stopped: bool = False

    def add_crash(self, name: str, error: SolverCrashed) -> None:
        """Record that a solver crashed."""
        self.failure = self.failure or error
        self.made.append(Attempt(name, str(error)))

    def add(self, outcome: Outcome, keep: bool = False) -> None:
        """Record an outcome; with ``keep`` its bound may be used, but the point of the first outcome stays the best."""
        self.made.append(Attempt(outcome.solver.name, summary(outcome)))
        self.stopped |= outcome.by_clock or outcome.values.termination in BY_CLOCK
        if (
            outcome.bound_source == "dual"
            and outcome.duals is not None
            and self.tighter(outcome, self.proved)
        ):
            self.proved = outcome
        if self.best is None or (not keep and self.better(outcome, self.best)):
            self.best = outcome

    def add_known(self, outcome: Outcome) -> None:
        """Record a feasible point that needed no solver."""
        self.made.append(Attempt(KNOWN, str(outcome.status)))
        self.best = outcome

    @property
    def lacks_bound(self) -> bool:
        """Whether the solver of the best outcome gave no duals, and no other one has so far."""
        return self.proved is None and self.best is not None and lacks_duals(self.best)

    @property
    def better_duals(self) -> FloatArray | None:
        """Duals that prove a better bound than the best outcome has; None without any, and for what is optimal."""
        best, proved = self.best, self.proved
        if (
            best is None
            or best.x is None
            or best.status is Status.OPTIMAL
            or proved is None
            or proved.duals is None
        ):
            return None
        return (
            np.concatenate([np.zeros(0), *proved.duals.values()])
            if self.tighter(proved, best)
            else None
        )

    def tighter(self, outcome: Outcome, than: Outcome | None) -> bool:
        """Whether the bound of an outcome is better than that of another."""
        if than is None or than.bound is None or outcome.bound is None:
            return outcome.bound is not None
        return outcome.bound < than.bound if self.maximise else outcome.bound > than.bound

    def better(self, outcome: Outcome, than: Outcome) -> bool:
        """Whether an outcome is to be preferred: certified, settled, with a point, of a better value; in this order."""

        def rank(some: Outcome) -> tuple[bool, bool, bool]:
            return some.certificate.ok, some.status in SETTLED, some.x is not None

        if rank(outcome) != rank(than) or outcome.value is None or than.value is None:
            return rank(outcome) > rank(than)
        return outcome.value > than.value if self.maximise else outcome.value < than.value


def lacks_duals(outcome: Outcome) -> bool:
    """Whether a solver was done with a point, and gave no duals that could prove anything of it."""
    unproved = outcome.status is Status.FEASIBLE and outcome.duals is None
    return unproved and outcome.values.termination is Termination.IMPRECISE


def summary(outcome: Outcome) -> str:
    """What came of an attempt."""
    if not outcome.certificate.ok:
        return f"the certificate does not hold: {'; '.join(outcome.certificate.problems)}"
    if outcome.status in SETTLED:
        return str(outcome.status)
    why = outcome.values.words or str(outcome.values.termination)
    found = "no feasible point" if outcome.x is None else "a feasible point"
    return f"{found}{' without duals' if lacks_duals(outcome) else ''} ({why})"
