"""The engine: chooses a solver, splits one budget of time over several runs, and certifies what comes back."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

import numpy as np

from optsched.arrays import FloatArray
from optsched.candidates import Classes
from optsched.errors import Interrupted, SolverCrashed, SolverUnavailable, UsageError
from optsched.program import AllocationProgram, LinearArrays, LinearProgram, TimelineProgram
from optsched.program.arrays import refuse_nan
from optsched.program.linear_form import LinearForm
from optsched.solution.certificate import Certificate, is_bounded, without_noise
from optsched.solution.solution import Attempt, SolverRecord, Status
from optsched.solution.values import PointStatus, Termination, Values
from optsched.solvers import Capability, Limits, Session, Solver
from optsched.solvers.closed_form import ClosedForm
from optsched.solvers.scaling import ScaledSession, Scaling
from optsched.solving.attempts import SETTLED, Attempts, lacks_duals
from optsched.solving.choice import (
    others,
    pick,
    pick_for_allocation,
    pick_for_timeline,
    require_all,
)
from optsched.solving.cleaning import checked_point, cleaned
from optsched.solving.infeasibility import (
    Analyst,
    Finding,
    check_claim,
    conflicting_rows,
    described,
    refuse_refuted,
)
from optsched.solving.judging import CLAIMS, judged
from optsched.solving.outcome import BY_CLOCK, NO_OPTIMUM, STOPPED, Outcome
from optsched.solving.warm_start import Bases

T = TypeVar("T")

log = logging.getLogger("optsched")

LARGE = 10_000
"""Columns from which a program of whole jobs is solved without them first."""
SHARE = 0.25
"""Part of the time left that such a program may take."""
WORTHWHILE = 0.05
"""Part of the time limit that must be left for another attempt to be begun."""


@dataclass
class Engine:
    """Runs programs on solvers within one budget.

    Parameters
    ----------
    load : callable
        Solver class by name (`optsched.registry.load_solver`).
    solver : str
        A name, or ``auto``.
    limits : Limits
        ``limits.time`` is the budget of everything that this engine runs.
    """

    load: Callable[[str], type[Solver]]
    solver: str = "auto"
    limits: Limits = field(default_factory=Limits)
    prove: bool = False
    """Cross-check what only a solver vouches for (`optsched.solving.proof`)."""
    known_points: bool = True
    """Whether an allocation that needs no solver is the answer where no attempt finds one."""
    timings: dict[str, float] = field(default_factory=dict)
    chosen: type[Solver] | None = None
    reason: str = ""
    rebuilt: list[str] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    """What was tried where the first solver alone did not settle a program."""
    by_clock: bool = False
    """Whether the clock or the user stopped one of these attempts, or the clock left no time for another one."""
    iterations: int = 0
    nodes: int = 0
    start: FloatArray | None = None
    """Point to start from: totals of the class columns, or all columns of a linear program."""
    start_used: bool = False
    bases: Bases = field(default_factory=Bases)
    """The basis that the first run starts from, and the one that it ends in."""
    _end: float | None = None
    _incumbent: FloatArray | None = None
    """Where the next integer program starts."""

    def __post_init__(self) -> None:
        if self.limits.time is not None:
            self._end = time.monotonic() + self.limits.time

    def choose(self, *, rows: int, integer: bool, conic: bool) -> type[Solver]:
        """The solver asked for, checked, or the one that `auto` picks (`optsched.solving.choice`)."""
        start = self.start is not None
        warm, basis = self.bases.warm is not None, self.bases.keep
        name, reason = self._asked or pick(
            rows=rows, integer=integer, conic=conic, start=start, warm=warm, keep_basis=basis
        )
        solver = self.load(name)
        require_all(solver, integer=integer, conic=conic, start=start)
        return self._choose(solver, reason)

    def choose_for_timeline(
        self, program: TimelineProgram, name: str | None = None
    ) -> type[Solver]:
        """The solver asked for, or the one that `auto` picks for activities in time; or one by name."""
        name, reason = (
            (name, self.reason) if name is not None else self._asked or pick_for_timeline(program)
        )
        solver = self.load(name)
        if Capability.TIMELINE not in solver.capabilities:
            solver.require(Capability.INTEGER, "a timeline program, indexed by time,")
        return self._choose(solver, reason)

    @property
    def _asked(self) -> tuple[str, str] | None:
        return None if self.solver == "auto" else (self.solver, "asked for")

    def require_rows(self, task: str = "programs of rows and columns") -> None:
        """Refuse, in words, what is solved as rows and columns if a solver was asked for that takes none."""
        if self._asked is not None:
            self.load(self.solver).require_rows(task)

    def _choose(self, solver: type[Solver], reason: str) -> type[Solver]:
        solver.version()
        self.chosen, self.reason = solver, reason
        log.info("solver %s: %s", solver.name, reason)
        return solver

    def open(
        self,
        arrays: LinearArrays,
        solver: str | None = None,
        start: FloatArray | None = None,
        classes: Classes | None = None,
    ) -> Session:
        """A session with the program loaded, on a solver by name or the one that `choose` picks.

        ``start`` is a point of this program; without it, one that the engine was given counts if its size fits.
        ``classes`` are those that the program is over: a basis that the engine was given is mapped to them.
        """
        refuse_nan(arrays)
        if solver is None:
            self.require_rows()
            chosen = self.choose(rows=arrays.shape[0], integer=arrays.is_integer, conic=False)
        else:
            chosen = self.chosen = self.load(solver)
            chosen.version()
        scaling = Scaling.of(arrays)
        session = ScaledSession(arrays, scaling, chosen().open(scaling.apply(arrays)))
        if start is None and self.start is not None and len(self.start) == arrays.shape[1]:
            start = self.start
        if start is not None and Capability.START in chosen.capabilities:
            session.set_start(start)
            self.start_used = True
        elif classes is not None and not arrays.is_integer:
            self.bases.begin(session, chosen, classes)
        return session

    def run(self, session: Session) -> Values:
        """Run a session within what is left of the budget."""
        values = self.record(session.run(self.limits_left()))
        self.bases.end(session, values)
        return values

    def limits_left(self) -> Limits:
        """The limits with what is left of the time."""
        if self._end is None:
            return self.limits
        return replace(self.limits, time=max(self._end - time.monotonic(), 1e-3))

    def record(self, values: Values) -> Values:
        """Count a run of a solver in the timings and totals."""
        self.iterations += values.iterations
        self.nodes += values.nodes
        self.rebuilt += values.rebuilt
        self.timings["solve"] = self.timings.get("solve", 0.0) + values.seconds
        for reason in values.rebuilt:
            log.info("session rebuilt: %s", reason)
        log.info(
            "%s after %d iterations, %.3f s",
            values.words or values.termination,
            values.iterations,
            values.seconds,
        )
        return values

    # --- attempts --------------------------------------------------------------------------------------------------

    def attempt(
        self,
        ways: Iterable[Callable[[], Outcome]],
        certify: Callable[[Values, FloatArray | None], Outcome] | None = None,
        known: Callable[[Outcome | None], Outcome | None] | None = None,
        maximise: bool = True,
    ) -> Outcome:
        """Solve a program in one way after the other until one settles it; returns the best that is known then.

        `auto` goes on after every failure: a crash, a certificate that does not hold, a run that stopped short of its
        precision, or one that ended without a point while time is left. A solver that was asked for is never replaced:
        its point is kept, and if it gave no duals, the bound comes from those of another solver.

        Parameters
        ----------
        ways : iterable of callable
            The first one is the choice of the user or of `auto`.
        certify : callable, optional
            Makes an outcome of the values of one way and the duals of another.
        known : callable, optional
            A feasible point that needs no solver, given the best outcome without one; None where there is none, or it
            is no better.
        maximise : bool
            Sense of the program.
        """
        attempts, limits, asked = Attempts(maximise), self.limits, self._asked is not None
        try:
            for number, way in enumerate(ways):
                if number and not self._worthwhile:
                    attempts.out_of_time = True
                    break
                if number:  # options of the first solver mean nothing to another one
                    self.limits = replace(limits, options={})
                began = time.perf_counter()
                try:
                    outcome = way()
                except (SolverUnavailable, UsageError):
                    if number == 0:
                        raise
                    continue  # a fallback that does not take this kind of program
                except SolverCrashed as error:
                    if number == 0 and asked:
                        raise
                    log.info("attempt: %s", error)
                    attempts.add_crash(self.name, error)
                    continue
                finally:
                    spent = time.perf_counter() - began
                    attempts.seconds[self.name] = attempts.seconds.get(self.name, 0.0) + spent
                attempts.add(outcome, keep=asked)
                if self._settles(outcome) or (asked and not attempts.lacks_bound):
                    break
                log.info("attempt: %s: %s", *attempts.made[-1])
        finally:
            self.limits = limits
        return self._best_of(attempts, certify, known)

    def _best_of(
        self,
        attempts: Attempts,
        certify: Callable[[Values, FloatArray | None], Outcome] | None,
        known: Callable[[Outcome | None], Outcome | None] | None,
    ) -> Outcome:
        """The best outcome, with the best bound; a known point where no attempt found a better one."""
        best = self._with_bound(attempts, certify)
        if known is not None and (best is None or best.status not in SETTLED):
            point = known(best)
            if point is not None and (best is None or attempts.better(point, best)):
                attempts.add_known(point)
                best = self._with_bound(attempts, certify)
        if best is None:
            assert attempts.failure is not None
            raise attempts.failure
        if len(attempts.made) > 1 or attempts.out_of_time:
            self.by_clock |= attempts.stopped or attempts.out_of_time
            self.attempts += [item for item in attempts.made if item not in self.attempts]
            for name, seconds in attempts.seconds.items():
                self.timings[f"attempt.{name}"] = self.timings.get(f"attempt.{name}", 0.0) + seconds
            if best.solver.name != attempts.made[0].name:
                self.reason = f"{self.reason}; {attempts.made[0].name} was tried first"
        self.chosen = best.solver
        return best

    def _with_bound(
        self, attempts: Attempts, certify: Callable[[Values, FloatArray | None], Outcome] | None
    ) -> Outcome | None:
        """The best outcome, with the duals of another attempt where they prove a better bound."""
        best, y = attempts.best, attempts.better_duals
        if best is None or certify is None or y is None:
            return best
        self.chosen = best.solver
        again = certify(best.values, y)
        if lacks_duals(best):  # it claimed an optimum, which the duals of another solver can prove
            claim = certify(replace(best.values, termination=Termination.OPTIMAL), y)
            again = claim if claim.status is Status.OPTIMAL else again
        return again if again.certificate.ok else best

    @property
    def _worthwhile(self) -> bool:
        """Whether enough time is left for another attempt."""
        if self._end is None or self.limits.time is None:
            return True
        return self._end - time.monotonic() > WORTHWHILE * self.limits.time

    def _settles(self, outcome: Outcome) -> bool:
        """Whether no other attempt is called for."""
        if outcome.status in SETTLED:
            return outcome.certificate.ok
        match outcome.values.termination:
            case Termination.INTERRUPTED:
                return True
            case Termination.WORK_LIMIT:  # some solvers have one of their own, which is a failure
                return self.limits.work is not None
            case Termination.TIME_LIMIT | Termination.GAP_LIMIT:
                return outcome.x is not None and outcome.certificate.ok
        return False

    def ways(
        self, once: Callable[[str | None], Outcome], *, integer: bool = False
    ) -> Iterator[Callable[[], Outcome]]:
        """Runs of a program: `once(None)` by the chosen solver, then `once(name)` by each that `auto` falls back on."""
        yield partial(once, None)
        yield from self._other_ways(once, self.name, integer=integer)

    def _other_ways(
        self,
        once: Callable[[str | None], Outcome],
        first: str,
        *,
        integer: bool,
        conic: bool = False,
    ) -> Iterator[Callable[[], Outcome]]:
        if integer and self._asked is not None:
            return  # no other solver has duals of an integer program
        for name in others(first, integer=integer, conic=conic):
            try:
                available = self.load(name)
                available.version()
            except SolverUnavailable:
                continue
            if available.name == name:  # the caller's loader may give one solver for every name
                yield partial(once, name)

    def solver_record(self, solver: type[Solver], gap: float | None = None) -> SolverRecord:
        """What this engine did with a solver, as a solution keeps it; ``gap`` is the one that was asked for."""
        return SolverRecord(
            solver.name, solver.version(), dict(self.limits.options), self.limits.seed, self.reason,
            self.iterations, self.nodes, tuple(self.rebuilt), gap, tuple(self.attempts), self.by_clock,
        )  # fmt: skip

    # --- solving and certifying ------------------------------------------------------------------------------------

    def solve_linear(
        self,
        program: LinearProgram | LinearArrays,
        clean: Callable[[FloatArray], FloatArray] | None = None,
        point: FloatArray | None = None,
    ) -> Outcome:
        """Solve a linear or mixed-integer program; the certificate is recomputed from the arrays.

        Parameters
        ----------
        program : LinearProgram or LinearArrays
        clean : callable, optional
            Makes of the solver's point what it means (whole numbers, auxiliary columns recomputed).
        point : FloatArray, optional
            A feasible point: where solvers start, unless the engine was given a start, and the answer where a run that
            is stopped or fails leaves nothing better.
        """
        arrays = (
            program if isinstance(program, LinearArrays) else self.build(lambda: program.arrays)
        )

        def once(solver: str | None) -> Outcome:
            session = self.open(arrays, solver, point if self.start is None else None)
            values = self.run(session)
            if values.x is None or values.termination in NO_OPTIMUM:
                return self.without_point(arrays, values, None)
            return certify(values, values.y)

        def certify(values: Values, y: FloatArray | None) -> Outcome:
            assert values.x is not None
            x = checked_point(values.x, arrays.shape[1], self.name)
            x = x if clean is None else clean(x)
            return self.certified(arrays, values, x, x, arrays.objective(x), y, zero=True)

        ways = self.ways(once, integer=arrays.is_integer)
        known = None if point is None else partial(self._certified_point, point, certify)
        return self.attempt(ways, certify, known, maximise=arrays.maximise)

    def solve_allocation(
        self, program: AllocationProgram, prices: FloatArray | None = None
    ) -> Outcome:
        """Solve an allocation program; negligible fractions are dropped before the certificate is made.

        A solver that searches for ``prices`` of the resources starts from these, if they are given.
        """
        certify = partial(self.certified_rows, program)
        ways = self._ways_of_allocation(program, prices)
        return self.attempt(ways, certify, lambda found: self.known(program, found, certify))

    def _ways_of_allocation(
        self, program: AllocationProgram, prices: FloatArray | None
    ) -> Iterator[Callable[[], Outcome]]:
        closed = None
        if self._asked is None and self.start is None:
            closed = self.build(lambda: program.utility.closed_form(program))
        if closed is not None:
            yield partial(self._written_down, program, *closed)
        as_it_is = self._as_it_is(program)
        lowered = partial(self._solve_lowered, program)
        large = program.integral and program.classes.columns > LARGE
        if large:  # a bound, and a point to start from
            yield from self._easier_ways(program)
        if as_it_is is not None:
            yield partial(self._solve_as_it_is, program, *as_it_is, prices)
        else:
            yield partial(lowered, None)
        first = self.name
        if not large:
            yield from self._easier_ways(program)
        yield from self._other_ways(lowered, first, integer=program.integral, conic=program.conic)

    def _written_down(
        self, program: AllocationProgram, point: FloatArray, y: FloatArray
    ) -> Outcome:
        """The outcome of an optimum that no solver was needed for, certified like any other."""
        self._choose(ClosedForm, "the best ratio is that of one column, as all rows only limit")
        arrays = self.build(lambda: program.to_linear().arrays)
        values = Values(Termination.OPTIMAL, PointStatus.FEASIBLE, x=point, y=y)
        return self.certified_allocation(program, arrays, values, y)

    def _as_it_is(self, program: AllocationProgram) -> tuple[str, str] | None:
        """The solver that takes the program without lowering, and why; None where another is asked for or picked."""
        if self._asked is not None:
            return (
                self._asked
                if Capability.ALLOCATION in self.load(self.solver).capabilities
                else None
            )
        picked = pick_for_allocation(
            program,
            start=self.start is not None,
            basis=self.bases.keep or self.bases.warm is not None,
        )
        return (
            None if picked is None or self.load(picked[0]).refuses(program) is not None else picked
        )

    def _solve_as_it_is(
        self, program: AllocationProgram, name: str, reason: str, prices: FloatArray | None
    ) -> Outcome:
        solver = self._choose(self.load(name), reason)
        require_all(solver, integer=False, conic=False, start=self.start is not None)
        start = self.bases.first_prices(program.classes) if prices is None else prices
        values = self.record(solver().solve_allocation(program, self.limits_left(), start))
        self.bases.last_prices(program.classes, values)
        return self.certified_as_it_is(program, values, values.y)

    def certified_as_it_is(
        self, program: AllocationProgram, values: Values, y: FloatArray | None
    ) -> Outcome:
        """The outcome of a point of a program of jobs alone without side rows, whose matrix is not written down."""
        if program.conic:
            return self._certified_total(program, values, y, program.without_matrix)
        return self.certified_allocation(program, program.without_matrix(np.zeros(0)), values, y)

    def _solve_lowered(self, program: AllocationProgram, solver: str | None) -> Outcome:
        """Solved as rows and columns, or as cones."""
        if program.conic:
            return self._solve_conic(program, solver)
        arrays = self.build(lambda: program.to_linear().arrays)
        start, self._incumbent = self.start if self._incumbent is None else self._incumbent, None
        start = None if start is None else program.complete(program.repaired(start))
        session = self.open(arrays, solver, start, program.classes)
        values = self.run(session)
        if values.x is None or values.termination in NO_OPTIMUM:
            return self.without_point(arrays, values, program)
        return self.certified_allocation(program, arrays, values, values.y)

    def _easier_ways(self, program: AllocationProgram) -> Iterator[Callable[[], Outcome]]:
        """The program without side rows and whole jobs, if it has any, `auto` chooses, and prices can solve it then."""
        if self._asked is not None or not (program.side or program.integral):
            return
        easier = replace(program, side=(), integral=False)
        solver = self.load("prices")
        if solver.name == "prices" and solver.refuses(easier) is None:
            yield partial(self._solve_easier, program, easier)

    def _solve_easier(self, program: AllocationProgram, easier: AllocationProgram) -> Outcome:
        """A program by `_easier_ways`: the bound is that of the easier one, and its point is kept as far as it can be.

        It takes a part of the time at most, and whole jobs are where the next solver starts.
        """
        solver = self.load("prices")
        limits = replace(self.limits_left(), options={}, work=None)
        if limits.time is not None:
            limits = replace(limits, time=limits.time * SHARE)
        self.chosen = solver
        values = self.record(solver().solve_allocation(easier, limits))
        outcome, by_clock = (
            self.certified_as_it_is(easier, values, values.y),
            values.termination in BY_CLOCK,
        )
        values = replace(
            values, termination=Termination.IMPRECISE, objective=None, bound=None, y=None
        )
        duals = outcome.duals
        if outcome.x is None or duals is None:
            return replace(self.nothing_found(values), by_clock=by_clock)
        rows = (program.tangent(outcome.x) if program.conic else program.to_linear()).arrays.rows
        y = np.concatenate(
            [np.zeros(0), *(duals.get(block.name, np.zeros(len(block))) for block in rows)]
        )
        x = program.kept(outcome.x)
        self._incumbent = x if program.integral else None
        return replace(self.certified_rows(program, replace(values, x=x), y), by_clock=by_clock)

    def _solve_conic(self, program: AllocationProgram, name: str | None = None) -> Outcome:
        if name is None:
            solver = self.choose(rows=len(program.classes), integer=program.integral, conic=True)
        else:
            solver = self.chosen = self.load(name)
        cones = self.build(program.to_conic)
        values = self.record(solver().solve_conic(cones, self.limits_left()))
        if values.x is None:
            return self.without_point(program.requirements, values, program)
        y = values.y
        if y is not None and cones.linear is not None:
            rows = len(cones.linear.source)
            y = program.total.tangent_duals(
                program, cones.linear.duals(y, cones.maximise), y[rows:]
            )
        return self.certified_rows(program, values, y)

    def certified_rows(
        self, program: AllocationProgram, values: Values, y: FloatArray | None
    ) -> Outcome:
        """The outcome of a point of a program whose rows and columns are written down."""
        if program.conic:
            return self._certified_total(
                program, values, y, lambda *at: program.tangent(*at).arrays
            )
        return self.certified_allocation(
            program, self.build(lambda: program.to_linear().arrays), values, y
        )

    def _certified_total(
        self,
        program: AllocationProgram,
        values: Values,
        y: FloatArray | None,
        tangent: Callable[..., LinearForm],
    ) -> Outcome:
        """The outcome of a point of a total of concave utilities; ``tangent`` takes x and duals."""
        x = cleaned(program, values, self.name)
        if (y is None or values.termination not in CLAIMS) and not np.isfinite(program.value(x)):
            return self.nothing_found(
                values
            )  # some job has nothing yet: such a point is worth nothing
        arrays = tangent(x)
        y = None if y is None or y.shape != arrays.shape[:1] else without_noise(y, arrays)
        dual = arrays if y is None else tangent(x, y)
        return self.certified(
            arrays, values, x, *program.complete_and_value(x), y, dual, program=program
        )

    def known(
        self,
        program: AllocationProgram,
        found: Outcome | None,
        certify: Callable[[Values, FloatArray | None], Outcome],
    ) -> Outcome | None:
        """An allocation that needs no solver, with the bound of one that found none; None if it is not feasible.

        The allocation of a stopped solver is no worse: the two are compared where it is cleaned.
        """
        if not self.known_points or (found is not None and found.x is not None):
            return None
        return self._certified_point(self.build(program.known_point), certify, found)

    def _certified_point(
        self,
        x: FloatArray,
        certify: Callable[[Values, FloatArray | None], Outcome],
        found: Outcome | None,
    ) -> Outcome | None:
        """A point that needs no solver, with the bound of a solver that found none; None if it is not feasible."""
        values = Values(Termination.IMPRECISE) if found is None else found.values
        outcome = certify(replace(values, x=x, y=None, objective=None), None)
        return outcome if outcome.x is not None and outcome.certificate.ok else None

    def build(self, build: Callable[[], T]) -> T:
        """Call something that builds a program, on the clock."""
        started = time.perf_counter()
        result = build()
        self.timings["build"] = self.timings.get("build", 0.0) + time.perf_counter() - started
        return result

    def certified_allocation(
        self, program: AllocationProgram, arrays: LinearForm, values: Values, y: FloatArray | None
    ) -> Outcome:
        """The outcome of a point of the lowered program."""
        x = cleaned(program, values, self.name)
        if isinstance(arrays, LinearArrays):
            y = program.polished(arrays, y)
        return self.certified(arrays, values, x, *program.complete_and_value(x), y, program=program)

    def certified(
        self,
        arrays: LinearForm,
        values: Values,
        x: FloatArray,
        point: FloatArray,
        value: float,
        y: FloatArray | None,
        dual: LinearForm | None = None,
        zero: bool = False,
        program: AllocationProgram | None = None,
    ) -> Outcome:
        """The outcome of a point; ``dual`` is the program that the duals bound, if it is not that of the point.

        A stopped run that leaves 0 everywhere found nothing, unless ``zero`` says that this is a point like any other.
        """
        started = time.perf_counter()
        assert self.chosen is not None
        outcome = judged(
            self.chosen, self.limits, arrays, values, x, point, value, y, dual, program
        )
        if values.termination not in CLAIMS and not (outcome.certificate.ok and (zero or x.any())):
            return self.nothing_found(outcome.values, arrays.is_integer)
        self.timings["certify"] = self.timings.get("certify", 0.0) + time.perf_counter() - started
        return outcome

    def nothing_found(self, values: Values, integer: bool = False) -> Outcome:
        """Stopped before any feasible point; the bound of a solver counts for integer programs alone."""
        if values.termination is Termination.INTERRUPTED:
            raise Interrupted("interrupted before any feasible point was found")
        assert self.chosen is not None
        if values.termination in CLAIMS:
            values = replace(values, termination=Termination.IMPRECISE)
        bound = (
            values.bound
            if integer and values.bound is not None and np.isfinite(values.bound)
            else None
        )
        return Outcome(
            values, None, None, bound, "none" if bound is None else "solver",
            Certificate(True, "none", {}), Status.LIMIT, self.chosen,
        )  # fmt: skip

    @property
    def name(self) -> str:
        """Name of the solver in use."""
        return "?" if self.chosen is None else self.chosen.name

    def without_point(
        self, arrays: LinearArrays, values: Values, program: AllocationProgram | None
    ) -> Outcome:
        """The outcome of a run that left no point: a proof that none exists, or that it was stopped."""
        assert self.chosen is not None
        if values.termination in STOPPED or values.termination is Termination.IMPRECISE:
            return self.nothing_found(values, arrays.is_integer)
        if values.termination not in NO_OPTIMUM:
            raise SolverCrashed(f"solver {self.name} stopped with {values.words!r} and no point")
        if program is not None and program.explained_apart:
            arrays = program.requirements
        with Analyst(self.limits_left(), self.load) as analyst:
            checked = check_claim(arrays, analyst)
            found = (
                None
                if checked.finding is Finding.FEASIBLE
                else conflicting_rows(arrays, checked, analyst)
            )
        if found is None:
            refuse_refuted(values.termination, arrays, program, self.name)
            return Outcome(
                replace(values, termination=Termination.UNBOUNDED), None, None, None, "none",
                Certificate(True, "claimed", {}), Status.UNBOUNDED, self.chosen,
            )  # fmt: skip
        if (
            checked.end is not None
            and values.termination is not Termination.INFEASIBLE
            and not is_bounded(arrays)
        ):
            return self.nothing_found(
                replace(values, termination=checked.end)
            )  # it may be unbounded as well
        certificate = Certificate(True, "claimed", {})
        if checked.needed is not None:
            certificate = Certificate(True, "dual", {"least_violation": checked.needed})
        return Outcome(
            replace(values, termination=Termination.INFEASIBLE), None, None, None, "none", certificate,
            Status.INFEASIBLE, self.chosen, conflicts=described(arrays, program, found.rows),
            explanation=found.explanation,
        )  # fmt: skip
