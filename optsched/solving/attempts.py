"""Attempts at one program: other solvers after a failure, the best point and the best bound.

`auto` tries the next solver after every failure: a solver that is not installed, a crash, a
certificate that does not hold, a run that did not reach its tolerance, or one that ended without a
point while time is left. A solver that was asked for is never replaced: its point is kept, and if
it gave no duals, the bound comes from those of another solver.

A solver that stops inside the feasible set (`Solver.sharpens`) runs again, with a smaller tolerance,
if the certified gap of its optimum is above the tolerance, and above the gap that the user allows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from threading import Event

import numpy as np

from optsched.arrays.values import cached_property, replace
from optsched.errors import SolverCrashed, SolverUnavailable, UsageError
from optsched.solution import Attempt, Status, Termination
from optsched.solution.certificate import gap_of, shown_gap
from optsched.solvers.interrupt import delayed_interrupt
from optsched.solving.certify import Certify, unless_interrupted, unless_refuted
from optsched.solving.outcome import BY_CLOCK, Outcome
from optsched.solving.runs import SolverRuns

log = logging.getLogger("optsched")

SETTLED = (Status.OPTIMAL, Status.INFEASIBLE, Status.UNBOUNDED)
"""Statuses that no further attempt can improve, if the certificate holds."""
WORTHWHILE = 0.05
"""Part of the time limit that must be left for another attempt to be begun."""
SHARPER = 0.01
"""Factor on the tolerance of such a second run.

Of 836 small conic programs, 150 missed the tolerance after one run. After a second one with a
factor of 0.1 four did, with 0.01 none. That run takes a third to a half more iterations.
"""
KNOWN = "known point"
"""Name of an attempt that is a feasible point without a solver."""


Once = Callable[[str | None], Outcome]
"""Runs a program by a solver of this name; None: by the one that is chosen."""
Way = Callable[[], Outcome]
"""One way to solve a program."""
Known = Callable[[Outcome | None], Outcome | None]
"""The best outcome of a solver, if any -> a feasible point that needs no solver; None without
one."""


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
    The best outcome that was found.
    """
    # Ctrl-C between two runs, while a program is lowered or a point is certified, must not cost the
    # point: the next run ends at once, and the best outcome so far is the answer.
    with delayed_interrupt() as interrupt:
        attempts = _Attempts(runs, certify, known, maximise)
        attempts.run(ways, interrupt)
        outcome = unless_interrupted(attempts.answer(answers))
        if outcome.values.termination is Termination.INTERRUPTED:
            interrupt.clear()  # the answer states it
        return outcome


@dataclass(eq=False)
class _Attempts:
    """The attempts at one program.

    Attributes
    ----------
    runs, certify, known, maximise
        As of `attempt`.
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

    runs: SolverRuns
    certify: Certify | None
    known: Known | None
    maximise: bool
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
        """A feasible point without a solver, which may refute claims."""
        return None if self.known is None else self.known(None)

    # --- running ----------------------------------------------------------------------------------

    def run(self, ways: Iterable[Way], interrupt: Event) -> None:
        """Try one way after the other, until one settles the program."""
        runs, limits, asked = self.runs, self.runs.limits, self.runs.asked_for is not None
        try:
            for number, way in enumerate(ways):
                first = number == 0
                if not first and interrupt.is_set():
                    self.stopped, self.ended = True, Termination.INTERRUPTED
                    break
                if not first and not runs.has_time_left(WORTHWHILE):
                    self.out_of_time, self.ended = True, Termination.TIME_LIMIT
                    break
                if not first:  # options of the first solver mean nothing to another one
                    runs.limits = replace(limits, options={})
                outcome = self._tried(way, first, asked)
                if outcome is None:
                    continue
                if outcome.rests_on_claim:
                    alone = None if outcome.certificate.ok else self._unclaimed(outcome)
                    # The solver's own point may refute its claim, as any other known point may.
                    for feasible in (alone, self.best, self.known_point):
                        outcome = unless_refuted(outcome, feasible, self.maximise)
                self._add(outcome, keep=asked)
                if not asked and not outcome.certificate.ok:
                    point = self._unclaimed(outcome, outcome.values.bound)
                    if point is not None and self.best and self._better(point, self.best):
                        self.best = point
                if _settles(runs, outcome) or (asked and not self._lacks_bound):
                    break
                log.info("attempt: %s: %s", *self.made[-1])
        finally:
            runs.limits = limits

    def _tried(self, way: Way, first: bool, asked: bool) -> Outcome | None:
        """The outcome of one way; None if it failed, or does not take this kind of program.

        Failures of the solver that the user asked for are errors.
        """
        runs, clock = self.runs, self.runs.timer.clock
        began = clock()
        try:
            outcome = way()
            return self._sharpened(outcome, way, clock() - began)
        except (UsageError, SolverUnavailable):
            if first:
                raise
        except SolverCrashed as error:
            if first and asked:
                raise
            log.info("attempt: %s", error)
            self.failure = self.failure or error
            self.made.append(Attempt(runs.name, str(error)))
        finally:
            spent = clock() - began
            self.seconds[runs.name] = self.seconds.get(runs.name, 0.0) + spent
            self.made += [item for item in runs.take_missing() if item not in self.made]
        return None

    def _sharpened(self, outcome: Outcome, way: Way, seconds: float) -> Outcome:
        """An outcome within the tolerance, if its solver reaches that with a smaller tolerance.

        A solver that stops inside the feasible set stops at a gap of the tolerance. To bring its
        point within the rows, and its duals to the right signs, costs some more.

        Parameters
        ----------
        outcome : Outcome
        way : callable
            What made it.
        seconds : float
            What that took.

        Returns
        -------
        Outcome
            The one of both that has the smaller certified gap.
        """
        runs, limits = self.runs, self.runs.limits
        allowed = max(limits.tolerance, limits.gap or 0.0)
        if not outcome.solver.sharpens or not _misses(outcome, allowed):
            return outcome
        if not runs.has_time_left(WORTHWHILE) or runs.time_left < seconds:
            runs.by_clock = True
            return outcome
        log.info("the certified gap is above the tolerance: solved again with a smaller one")
        runs.limits = replace(limits, tolerance=SHARPER * limits.tolerance)
        try:
            again = way()
        except SolverCrashed as error:  # the first outcome is an answer as it is
            log.info("second run: %s", error)
            return outcome
        finally:
            runs.limits = limits
        runs.by_clock |= again.values.termination in BY_CLOCK
        if again.status is not Status.OPTIMAL or not _gap(again) < _gap(outcome):
            return outcome
        # The point is within the tolerance that was asked for, whatever the second run reached.
        return replace(again, values=replace(again.values, termination=outcome.values.termination))

    def _add(self, outcome: Outcome, keep: bool) -> None:
        """Record an outcome; with ``keep`` its bound may be used, but the point of the first
        outcome stays the best.
        """
        self.made.append(Attempt(outcome.solver.name, summary(outcome)))
        by_clock = outcome.values.termination in BY_CLOCK
        self.stopped |= outcome.by_clock or by_clock
        self.ended = outcome.values.termination if by_clock else None
        by_duals = outcome.bound_source == "dual" and not outcome.duals_without_solver
        if by_duals and _tighter(outcome, self.proved, self.maximise):
            self.proved = outcome
        if self.best is None or (not keep and self._better(outcome, self.best)):
            self.best = outcome

    def _better(self, outcome: Outcome, than: Outcome) -> bool:
        return is_better(outcome, than, self.maximise)

    @property
    def _lacks_bound(self) -> bool:
        """Whether the solver of the best outcome gave no duals, and no other one has so far."""
        return self.proved is None and self.best is not None and lacks_duals(self.best)

    # --- the answer -------------------------------------------------------------------------------

    def answer(self, with_known: bool) -> Outcome:
        """The best outcome, with the best bound; a known point where no attempt found a better
        one.
        """
        best = self._without_claim(self._with_bound())
        if with_known and self.known is not None and (best is None or best.status not in SETTLED):
            point = self.known(best)
            if point is not None and (best is None or self._better(point, best)):
                self.made.append(Attempt(KNOWN, str(point.status)))
                self.best = point
                best = self._with_bound()
        if best is None:
            assert self.failure is not None
            raise self.failure
        refuted = self.best is not None and self.best.refuted
        # Of a single attempt the record of its solver says everything.
        if len(self.made) > 1 or self.out_of_time or refuted:
            self._report(best)
        self.runs.chosen = best.solver
        if self.ended is not None and best.values.termination is Termination.IMPRECISE:
            # The point is one of an easier program; what could have improved it was stopped
            best = replace(best, values=replace(best.values, termination=self.ended))
        if best.x is None and best.duals is not None:  # duals bound a point, and there is none
            best = best.without_bound()
        return best

    def _with_bound(self) -> Outcome | None:
        """The best outcome, with the duals of another attempt where they prove a better bound."""
        best, proved = self.best, self.proved
        if (
            best is None
            or best.x is None
            or best.status is Status.OPTIMAL
            or self.certify is None
            or proved is None
            or proved.duals is None
            or not _tighter(proved, best, self.maximise)
        ):
            return best
        y = np.concatenate([np.zeros(0), *proved.duals.values()])
        self.runs.chosen = best.solver
        again = self.certify(best.values, y)
        if lacks_duals(best):  # it claimed an optimum, which the duals of another solver can prove
            claim = self.certify(replace(best.values, termination=Termination.OPTIMAL), y)
            again = claim if claim.status is Status.OPTIMAL else again
        return again if again.certificate.ok else best

    def _without_claim(self, best: Outcome | None) -> Outcome | None:
        """A feasible point with its gap, where `auto` found no solver whose claim of an optimum
        holds; without a bound where the claim was refuted.

        Whole numbers within the tolerance of a solver may miss its stated objective once they are
        rounded.
        """
        if best is None or best.certificate.ok:
            return best
        asked = self.runs.asked_for is not None
        if not best.refuted and (asked or best.bound_source != "solver"):
            return best
        return self._unclaimed(best, best.values.bound) or best

    def _unclaimed(self, outcome: Outcome, bound: float | None = None) -> Outcome | None:
        """The point of an outcome without its solver's claim; None if it is not feasible."""
        if outcome.x is None or self.certify is None:
            return None
        self.runs.chosen = outcome.solver
        values = replace(outcome.values, termination=Termination.IMPRECISE, bound=bound)
        point = self.certify(values, None)
        return point if point.certificate.ok and point.x is not None else None

    def _report(self, best: Outcome) -> None:
        """Add several attempts to the record of the runs."""
        runs = self.runs
        runs.by_clock |= self.stopped or self.out_of_time
        runs.attempts += [item for item in self.made if item not in runs.attempts]
        for name, seconds in self.seconds.items():
            runs.spend(f"attempt.{name}", seconds)
        if best.solver.name != self.made[0].name:
            runs.reason = f"{runs.reason}; {self.made[0].name} was tried first"


def is_better(outcome: Outcome, than: Outcome, maximise: bool) -> bool:
    """Whether an outcome is to be preferred: certified, settled, with a point, of a better value,
    of a tighter bound; in this order.
    """

    def rank(some: Outcome) -> tuple[bool, bool, bool]:
        return some.certificate.ok, some.status in SETTLED, some.x is not None

    if rank(outcome) != rank(than) or outcome.value is None or than.value is None:
        return rank(outcome) > rank(than)
    if outcome.value == than.value and outcome.bound_source == than.bound_source:
        return _tighter(outcome, than, maximise)
    return outcome.value > than.value if maximise else outcome.value < than.value


def _tighter(outcome: Outcome, than: Outcome | None, maximise: bool) -> bool:
    """Whether the bound of an outcome is better than that of another."""
    if than is None or than.bound is None or outcome.bound is None:
        return outcome.bound is not None
    return outcome.bound < than.bound if maximise else outcome.bound > than.bound


def lacks_duals(outcome: Outcome) -> bool:
    """Whether a solver ended with a point, and gave no duals that could prove anything of it."""
    unproved = outcome.status is Status.FEASIBLE and (
        outcome.duals is None or outcome.duals_without_solver
    )
    return unproved and outcome.values.termination is Termination.IMPRECISE


def summary(outcome: Outcome) -> str:
    """How an attempt ended, as its record says it."""
    if not outcome.certificate.ok:
        return f"the certificate does not hold: {'; '.join(outcome.certificate.problems)}"
    if outcome.status in SETTLED:
        return str(outcome.status)
    why = outcome.values.words or str(outcome.values.termination)
    found = "no feasible point" if outcome.x is None else "a feasible point"
    return f"{found}{' without duals' if lacks_duals(outcome) else ''} ({why})"


def _gap(outcome: Outcome) -> float:
    """The certified gap of an optimum, 0 where it is rounding."""
    gap = shown_gap(gap_of(outcome.value, outcome.bound), True, None)
    return np.inf if gap is None else gap


def _misses(outcome: Outcome, allowed: float) -> bool:
    """Whether the certified gap of an optimum is above the one allowed."""
    reached = outcome.values.termination is Termination.OPTIMAL
    return reached and outcome.status is Status.OPTIMAL and _gap(outcome) > allowed


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
