"""Attempts at one program: other solvers after a failure, the best point and the best bound.

`auto` goes on after every failure: a solver that is not installed, a crash, a certificate that does
not hold, a run that stopped short of its precision, or one that ended without a point while time is
left. A solver that was asked for is never replaced: its point is kept, and if it gave no duals, the
bound comes from those of another solver.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from threading import Event

import numpy as np

from optsched.arrays import FloatArray
from optsched.errors import SolverCrashed, SolverUnavailable, UsageError
from optsched.solution import Attempt, Status, Termination
from optsched.solvers.interrupt import delayed_interrupt
from optsched.solving.certify import Certify, unless_interrupted, unless_refuted
from optsched.solving.outcome import BY_CLOCK, Outcome
from optsched.solving.runs import SolverRuns

log = logging.getLogger("optsched")

SETTLED = (Status.OPTIMAL, Status.INFEASIBLE, Status.UNBOUNDED)
"""What no further attempt can improve, if the certificate holds."""
WORTHWHILE = 0.05
"""Part of the time limit that must be left for another attempt to be begun."""
KNOWN = "known point"
"""Name of an attempt that is a feasible point without a solver."""


@dataclass(eq=False)
class Attempts:
    """What was tried on one program.

    Attributes
    ----------
    maximise : bool
        Sense of the program.
    known : callable or None
        See `attempt`.
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
    ended : Termination or None
        Why no other attempt was made, or the last one was stopped: the clock or the user.
    """

    maximise: bool = True
    known: Known | None = None
    made: list[Attempt] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    best: Outcome | None = None
    proved: Outcome | None = None
    failure: SolverCrashed | None = None
    out_of_time: bool = False
    stopped: bool = False
    ended: Termination | None = None

    @cached_property
    def known_point(self) -> Outcome | None:
        """A feasible point without a solver, to which claims are held."""
        return None if self.known is None else self.known(None)

    def add_crash(self, name: str, error: SolverCrashed) -> None:
        """Record that a solver crashed."""
        self.failure = self.failure or error
        self.made.append(Attempt(name, str(error)))

    def add_missing(self, missing: Iterable[Attempt]) -> None:
        """Record that solvers are not installed."""
        self.made += [item for item in missing if item not in self.made]

    def add(self, outcome: Outcome, keep: bool = False) -> None:
        """Record an outcome; with ``keep`` its bound may be used,
        but the point of the first outcome stays the best.
        """
        self.made.append(Attempt(outcome.solver.name, summary(outcome)))
        by_clock = outcome.values.termination in BY_CLOCK
        self.stopped |= outcome.by_clock or by_clock
        self.ended = outcome.values.termination if by_clock else None
        if (
            outcome.bound_source == "dual"
            and not outcome.duals_alone
            and self.tighter(outcome, self.proved)
        ):
            self.proved = outcome
        if self.best is None or (not keep and self.better(outcome, self.best)):
            self.best = outcome

    def add_point(self, outcome: Outcome | None) -> None:
        """Keep the feasible point of an attempt whose claim did not hold where it is the best."""
        if outcome is not None and self.best is not None and self.better(outcome, self.best):
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
        """Duals that prove a better bound than the best outcome has;
        None without any, and for what is optimal.
        """
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
        """Whether an outcome is to be preferred:
        certified, settled, with a point, of a better value, of a tighter bound; in this order.
        """

        def rank(some: Outcome) -> tuple[bool, bool, bool]:
            return some.certificate.ok, some.status in SETTLED, some.x is not None

        if rank(outcome) != rank(than) or outcome.value is None or than.value is None:
            return rank(outcome) > rank(than)
        if outcome.value == than.value and outcome.bound_source == than.bound_source:
            return self.tighter(outcome, than)
        return outcome.value > than.value if self.maximise else outcome.value < than.value


def lacks_duals(outcome: Outcome) -> bool:
    """Whether a solver was done with a point, and gave no duals that could prove anything of it."""
    unproved = outcome.status is Status.FEASIBLE and (outcome.duals is None or outcome.duals_alone)
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
"""A feasible point that needs no solver,
given the best outcome without one; None if it is no help.
"""


def attempt(
    runs: SolverRuns,
    ways: Iterable[Way],
    certify: Certify | None = None,
    known: Known | None = None,
    maximise: bool = True,
    answers: bool = True,
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
    answers : bool
        Whether the known point is the answer where it is the best; it refutes claims in any case.

    Returns
    -------
    The best outcome that is known then.
    """
    # Ctrl-C between two runs, while a program is written down or a point is certified, must not
    # cost the point: the next run ends at once, and what is known by then is the answer.
    with delayed_interrupt() as interrupt:
        attempts = _attempted(runs, ways, certify, known, maximise, interrupt)
        outcome = unless_interrupted(_best(runs, attempts, certify, known if answers else None))
        if outcome.values.termination is Termination.INTERRUPTED:
            interrupt.clear()  # the answer tells of it
        return outcome


def _attempted(
    runs: SolverRuns,
    ways: Iterable[Way],
    certify: Certify | None,
    known: Known | None,
    maximise: bool,
    interrupt: Event,
) -> Attempts:
    attempts, limits, asked = Attempts(maximise, known), runs.limits, runs.asked_for is not None
    try:
        for number, way in enumerate(ways):
            first = number == 0
            if not first and interrupt.is_set():
                attempts.stopped, attempts.ended = True, Termination.INTERRUPTED
                break
            if not first and not runs.has_time_left(WORTHWHILE):
                attempts.out_of_time, attempts.ended = True, Termination.TIME_LIMIT
                break
            if not first:  # options of the first solver mean nothing to another one
                runs.limits = replace(limits, options={})
            outcome = _tried(runs, way, attempts, first=first, asked=first and asked)
            if outcome is None:
                continue
            if outcome.rests_on_claim:
                own = None if outcome.certificate.ok else unclaimed(runs, outcome, certify)
                # Its own point may refute a claim as well as any other point that is known.
                for held in (own, attempts.best, attempts.known_point):
                    outcome = unless_refuted(outcome, held, maximise)
            attempts.add(outcome, keep=asked)
            if not asked and not outcome.certificate.ok:
                bound = outcome.values.bound
                attempts.add_point(unclaimed(runs, outcome, certify, bound=bound))
            if _settles(runs, outcome) or (asked and not attempts.lacks_bound):
                break
            log.info("attempt: %s: %s", *attempts.made[-1])
    finally:
        runs.limits = limits
    return attempts


def _tried(
    runs: SolverRuns, way: Way, attempts: Attempts, first: bool, asked: bool
) -> Outcome | None:
    """What comes of one way; None if it failed, or does not take this kind of program.

    ``asked`` is whether the way is by the solver that the user named, whose failures are errors.
    """
    began = time.perf_counter()
    try:
        return way()
    except (UsageError, SolverUnavailable):
        if first:
            raise
    except SolverCrashed as error:
        if asked:
            raise
        log.info("attempt: %s", error)
        attempts.add_crash(runs.name, error)
    finally:
        spent = time.perf_counter() - began
        attempts.seconds[runs.name] = attempts.seconds.get(runs.name, 0.0) + spent
        attempts.add_missing(runs.take_missing())
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
    best = _without_claim(runs, _with_bound(runs, attempts, certify), certify)
    if known is not None and (best is None or best.status not in SETTLED):
        point = known(best)
        if point is not None and (best is None or attempts.better(point, best)):
            attempts.add_known(point)
            best = _with_bound(runs, attempts, certify)
    if best is None:
        assert attempts.failure is not None
        raise attempts.failure
    refuted = attempts.best is not None and attempts.best.refuted
    # Of a single attempt the record of its solver says everything.
    if len(attempts.made) > 1 or attempts.out_of_time or refuted:
        _report(runs, attempts, best)
    runs.chosen = best.solver
    if attempts.ended is not None and best.values.termination is Termination.IMPRECISE:
        # The point is one of an easier program; what could have improved it was stopped
        best = replace(best, values=replace(best.values, termination=attempts.ended))
    if best.x is None and best.duals is not None:  # duals bound a point, and there is none
        best = replace(best, bound=None, bound_source="none", duals=None)
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


def _without_claim(
    runs: SolverRuns, best: Outcome | None, certify: Certify | None
) -> Outcome | None:
    """A feasible point with its gap, where `auto` found no solver whose claim of an optimum holds;
    without a bound where the claim was refuted.

    Whole numbers within the tolerance of a solver may miss what it states once they are rounded.
    """
    if best is None or best.certificate.ok:
        return best
    if not best.refuted and (runs.asked_for is not None or best.bound_source != "solver"):
        return best
    return unclaimed(runs, best, certify, bound=best.values.bound) or best


def unclaimed(
    runs: SolverRuns, outcome: Outcome, certify: Certify | None, bound: float | None = None
) -> Outcome | None:
    """The point of an outcome without what its solver claims of it; None if it is not feasible."""
    if outcome.x is None or certify is None:
        return None
    runs.chosen = outcome.solver
    values = replace(outcome.values, termination=Termination.IMPRECISE, bound=bound)
    honest = certify(values, None)
    return honest if honest.certificate.ok and honest.x is not None else None


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
    """`once(name)` by each solver that `auto` falls back on after the first."""
    if integer and runs.asked_for is not None:
        return  # no other solver has duals of an integer program
    for solver in runs.fallbacks(first, integer=integer, conic=conic):
        yield partial(once, solver.name)
