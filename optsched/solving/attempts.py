"""Attempts at one program: other solvers after a failure, the best point, and the best bound.

`auto` goes on after every failure: a crash, a certificate that does not hold, a run that stopped
short of its precision, or one that ended without a point while time is left. A solver that was
asked for is never replaced: its point is kept, and if it gave no duals, the bound comes from those
of another solver.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from optsched.arrays import FloatArray
from optsched.errors import SolverCrashed, SolverUnavailable, UsageError
from optsched.solution.solution import Attempt, Status
from optsched.solution.values import Termination
from optsched.solving.certify import Certify
from optsched.solving.choice import others
from optsched.solving.outcome import BY_CLOCK, Outcome
from optsched.solving.runs import SolverRuns

log = logging.getLogger("optsched")

SETTLED = (Status.OPTIMAL, Status.INFEASIBLE, Status.UNBOUNDED)
"""What no further attempt can improve, if the certificate holds."""
WORTHWHILE = 0.05
"""Part of the time limit that must be left for another attempt to be begun."""
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


Once = Callable[[str | None], Outcome]
"""Runs a program by a solver of this name; None: by the one that is chosen."""
Way = Callable[[], Outcome]
"""One way to solve a program."""
Known = Callable[[Outcome | None], Outcome | None]
"""A feasible point that needs no solver, given the best outcome without one; None if it is no help."""


def attempt(
    runs: SolverRuns,
    ways: Iterable[Way],
    certify: Certify | None = None,
    known: Known | None = None,
    maximise: bool = True,
) -> Outcome:
    """Solve a program in one way after the other until one settles it.

    Parameters
    ----------
    runs : SolverRuns
    ways : iterable of callable
        The first one is the choice of the user or of `auto`.
    certify : callable, optional
        Makes an outcome of the values of one way and the duals of another.
    known : callable, optional
    maximise : bool
        Sense of the program.

    Returns
    -------
    The best outcome that is known then.
    """
    attempts, limits, asked = Attempts(maximise), runs.limits, runs.asked_for is not None
    try:
        for number, way in enumerate(ways):
            first = number == 0
            if not first and not runs.has_time_left(WORTHWHILE):
                attempts.out_of_time = True
                break
            if not first:  # options of the first solver mean nothing to another one
                runs.limits = replace(limits, options={})
            outcome = _tried(runs, way, attempts, must_work=first, may_crash=not (first and asked))
            if outcome is None:
                continue
            attempts.add(outcome, keep=asked)
            if _settles(runs, outcome) or (asked and not attempts.lacks_bound):
                break
            log.info("attempt: %s: %s", *attempts.made[-1])
    finally:
        runs.limits = limits
    return _best(runs, attempts, certify, known)


def _tried(
    runs: SolverRuns, way: Way, attempts: Attempts, must_work: bool, may_crash: bool
) -> Outcome | None:
    """What comes of one way; None if it crashed, or does not take this kind of program."""
    began = time.perf_counter()
    try:
        return way()
    except (SolverUnavailable, UsageError):
        if must_work:
            raise
    except SolverCrashed as error:
        if not may_crash:
            raise
        log.info("attempt: %s", error)
        attempts.add_crash(runs.name, error)
    finally:
        spent = time.perf_counter() - began
        attempts.seconds[runs.name] = attempts.seconds.get(runs.name, 0.0) + spent
    return None


def _settles(runs: SolverRuns, outcome: Outcome) -> bool:
    """Whether no other attempt is called for."""
    if outcome.status in SETTLED:
        return outcome.certificate.ok
    match outcome.values.termination:
        case Termination.INTERRUPTED:
            return True
        case Termination.WORK_LIMIT:  # some solvers have one of their own, which is a failure
            return runs.limits.work is not None
        case Termination.TIME_LIMIT | Termination.GAP_LIMIT:
            return outcome.x is not None and outcome.certificate.ok
    return False


def _best(
    runs: SolverRuns, attempts: Attempts, certify: Certify | None, known: Known | None
) -> Outcome:
    """The best outcome, with the best bound; a known point where no attempt found a better one."""
    best = _with_bound(runs, attempts, certify)
    if known is not None and (best is None or best.status not in SETTLED):
        point = known(best)
        if point is not None and (best is None or attempts.better(point, best)):
            attempts.add_known(point)
            best = _with_bound(runs, attempts, certify)
    if best is None:
        assert attempts.failure is not None
        raise attempts.failure
    if len(attempts.made) > 1 or attempts.out_of_time:
        _report(runs, attempts, best)
    runs.chosen = best.solver
    return best


def _with_bound(runs: SolverRuns, attempts: Attempts, certify: Certify | None) -> Outcome | None:
    """The best outcome, with the duals of another attempt where they prove a better bound."""
    best, y = attempts.best, attempts.better_duals
    if best is None or certify is None or y is None:
        return best
    runs.chosen = best.solver
    again = certify(best.values, y)
    if lacks_duals(best):  # it claimed an optimum, which the duals of another solver can prove
        claim = certify(replace(best.values, termination=Termination.OPTIMAL), y)
        again = claim if claim.status is Status.OPTIMAL else again
    return again if again.certificate.ok else best


def _report(runs: SolverRuns, attempts: Attempts, best: Outcome) -> None:
    """Add several attempts to what is said of the runs."""
    runs.by_clock |= attempts.stopped or attempts.out_of_time
    runs.attempts += [item for item in attempts.made if item not in runs.attempts]
    for name, seconds in attempts.seconds.items():
        runs.spend(f"attempt.{name}", seconds)
    if best.solver.name != attempts.made[0].name:
        runs.reason = f"{runs.reason}; {attempts.made[0].name} was tried first"


def ways_of(runs: SolverRuns, once: Once, *, integer: bool = False) -> Iterator[Way]:
    """`once(None)` by the chosen solver, then `once(name)` by each that `auto` falls back on."""
    yield partial(once, None)
    yield from other_ways(runs, once, runs.name, integer=integer)


def other_ways(
    runs: SolverRuns, once: Once, first: str, *, integer: bool, conic: bool = False
) -> Iterator[Way]:
    """`once(name)` by each solver that `auto` falls back on after the first, if it is installed."""
    if integer and runs.asked_for is not None:
        return  # no other solver has duals of an integer program
    for name in others(first, integer=integer, conic=conic):
        try:
            available = runs.load(name)
            available.version()
        except SolverUnavailable:
            continue
        if available.name == name:  # the caller's loader may give one solver for every name
            yield partial(once, name)
