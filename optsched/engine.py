"""The engine: chooses a solver, splits one budget of time over several runs, and certifies what comes back."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from optsched.arrays import FloatArray
from optsched.candidates import Classes
from optsched.choice import other_than, pick, pick_for_allocation, pick_for_timeline, require_all
from optsched.cleaning import checked_point, cleaned
from optsched.errors import Interrupted, SolverCrashed
from optsched.infeasibility import analyst_of, conflicting_rows, least_violation, refuse_refuted
from optsched.judging import CLAIMS, judged
from optsched.outcome import NO_OPTIMUM, STOPPED, Outcome
from optsched.program import AllocationProgram, LinearArrays, LinearProgram, TimelineProgram, Total
from optsched.program.arrays import refuse_nan
from optsched.program.linear_form import LinearForm, SmallestLevelForm
from optsched.program.total_form import LinearTotalForm, TangentForm
from optsched.solution.certificate import (
    FEASIBILITY,
    Certificate,
    without_noise,
)
from optsched.solution.solution import SolverRecord, Status
from optsched.solution.values import PointStatus, Termination, Values
from optsched.solvers import Capability, Limits, Session, Solver
from optsched.solvers.closed_form import ClosedForm
from optsched.solvers.scaling import ScaledSession, Scaling
from optsched.warm_start import Bases

T = TypeVar("T")

log = logging.getLogger("optsched")


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
    """Cross-check what only a solver vouches for (`optsched.proof`)."""
    timings: dict[str, float] = field(default_factory=dict)
    chosen: type[Solver] | None = None
    reason: str = ""
    rebuilt: list[str] = field(default_factory=list)
    iterations: int = 0
    nodes: int = 0
    start: FloatArray | None = None
    """Point to start from: totals of the class columns, or all columns of a linear program."""
    start_used: bool = False
    bases: Bases = field(default_factory=Bases)
    """The basis that the first run starts from, and the one that it ends in."""
    _end: float | None = None

    def __post_init__(self) -> None:
        if self.limits.time is not None:
            self._end = time.monotonic() + self.limits.time

    def choose(self, *, rows: int, integer: bool, conic: bool) -> type[Solver]:
        """The solver asked for, checked, or the one that `auto` picks (`optsched.choice`)."""
        start = self.start is not None
        warm, basis = self.bases.warm is not None, self.bases.keep
        name, reason = self._asked or pick(
            rows=rows, integer=integer, conic=conic, start=start, warm=warm, keep_basis=basis
        )
        solver = self.load(name)
        require_all(solver, integer=integer, conic=conic, start=start)
        return self._choose(solver, reason)

    def choose_for_timeline(self, program: TimelineProgram) -> type[Solver]:
        """The solver asked for, or the one that `auto` picks for activities in time."""
        name, reason = self._asked or pick_for_timeline(program)
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
            "%s after %d iterations, %.3f s", values.words or values.termination, values.iterations, values.seconds
        )
        return values

    # --- solving and certifying ------------------------------------------------------------------------------------

    def solve_linear(
        self, program: LinearProgram | LinearArrays, clean: Callable[[FloatArray], FloatArray] | None = None
    ) -> Outcome:
        """Solve a linear or mixed-integer program; the certificate is recomputed from the arrays.

        As for allocation programs, `auto` tries a solver of another kind where the certificate does not hold.
        ``clean`` makes of the solver's point what it means (whole numbers, auxiliary columns recomputed).
        """
        arrays = program if isinstance(program, LinearArrays) else self.build(lambda: program.arrays)

        def once(solver: str | None = None) -> Outcome:
            session = self.open(arrays, solver)
            values = self.run(session)
            if values.x is None or values.termination in NO_OPTIMUM:
                return self.without_point(arrays, values, None, session)
            x = checked_point(values.x, arrays.shape[1], self.name)
            x = x if clean is None else clean(x)
            return self.certified(arrays, values, x, x, arrays.objective(x), values.y, zero=True)

        return self.second_try(once, arrays)

    def solve_allocation(self, program: AllocationProgram, prices: FloatArray | None = None) -> Outcome:
        """Solve an allocation program; negligible fractions are dropped before the certificate is made.

        Where ``auto`` chose and the certificate does not hold, a solver of another kind is tried, and the reason told.
        A solver that searches for ``prices`` of the resources starts from these, if they are given.
        """
        closed = None if self._asked is not None or self.start is not None else self.build(program.closed_form)
        if closed is not None:
            return self._written_down(program, *closed)
        as_it_is = self._as_it_is(program)
        if as_it_is is not None:
            return self._solve_as_it_is(program, *as_it_is, prices)
        if program.conic:
            return self._solve_conic(program)
        arrays = self.build(lambda: program.to_linear().arrays)
        return self.second_try(lambda solver=None: self._solve_once(program, arrays, solver), arrays)

    def _written_down(self, program: AllocationProgram, point: FloatArray, y: FloatArray) -> Outcome:
        """The outcome of an optimum that no solver was needed for, certified like any other."""
        self._choose(ClosedForm, "the best ratio is that of one column, as all rows only limit")
        arrays = self.build(lambda: program.to_linear().arrays)
        values = Values(Termination.OPTIMAL, PointStatus.FEASIBLE, x=point, y=y)
        return self.certified_allocation(program, arrays, values, y)

    def second_try(self, once: Callable[..., Outcome], arrays: LinearArrays) -> Outcome:
        """Run once, and a linear program by a solver of another kind where that is called for."""
        return once() if arrays.is_integer else self.tried_twice(once, lambda outcome: outcome)

    def tried_twice(self, once: Callable[..., T], outcome_of: Callable[[T], Outcome]) -> T:
        """Run once, and by a solver of another kind if `auto` chose and the certificate does not hold.

        Also where the first stopped short of its precision; an answer that holds is not given up for one that does not.
        ``once`` takes the name of a solver, or nothing.
        """
        result = once()
        outcome = outcome_of(result)
        short = outcome.status is Status.FEASIBLE and outcome.values.termination is Termination.IMPRECISE
        if self.solver != "auto" or (outcome.certificate.ok and not short):
            return result
        other = other_than(outcome.solver.name)
        why = "; ".join(outcome.certificate.problems) or "it got no more precise"
        self.rebuilt.append(f"solved again by {other}, as of {outcome.solver.name}'s answer: {why}")
        log.info(self.rebuilt[-1])
        left = "stopped short of its precision" if outcome.certificate.ok else "left a certificate that does not hold"
        self.reason = f"{self.reason}; {outcome.solver.name} {left}"
        again = once(other)
        return again if outcome_of(again).certificate.ok or not outcome.certificate.ok else result

    def solver_record(self, solver: type[Solver], gap: float | None = None) -> SolverRecord:
        """What this engine did with a solver, as a solution keeps it; ``gap`` is the one that was asked for."""
        return SolverRecord(
            solver.name, solver.version(), dict(self.limits.options), self.limits.seed, self.reason,
            self.iterations, self.nodes, tuple(self.rebuilt), gap,
        )  # fmt: skip

    def _solve_once(self, program: AllocationProgram, arrays: LinearArrays, solver: str | None = None) -> Outcome:
        start = None if self.start is None else program.complete(program.repaired(self.start))
        session = self.open(arrays, solver, start, program.classes)
        values = self.run(session)
        if values.x is None or values.termination in NO_OPTIMUM:
            return self.without_point(arrays, values, program, session)
        return self.certified_allocation(program, arrays, values, values.y)

    def _as_it_is(self, program: AllocationProgram) -> tuple[str, str] | None:
        """The solver that takes the program without lowering, and why; None where another is asked for or picked."""
        if self._asked is not None:
            return self._asked if Capability.ALLOCATION in self.load(self.solver).capabilities else None
        picked = pick_for_allocation(
            program, start=self.start is not None, basis=self.bases.keep or self.bases.warm is not None
        )
        return None if picked is None or self.load(picked[0]).refuses(program) is not None else picked

    def _solve_as_it_is(self, program: AllocationProgram, name: str, reason: str, prices: FloatArray | None) -> Outcome:
        def once(other: str | None = None) -> Outcome:
            if other is not None:
                return self._lowered(program, other)
            solver = self._choose(self.load(name), reason)
            require_all(solver, integer=False, conic=False, start=self.start is not None)
            start = self.bases.first_prices(program.classes) if prices is None else prices
            try:
                values = self.record(solver().solve_allocation(program, self.limits_left(), start))
            except SolverCrashed as error:
                if self._asked is not None:
                    raise
                return self._handed_on(program, solver.name, error)
            self.bases.last_prices(program.classes, values)
            return self.certified_as_it_is(program, values, values.y)

        return self.tried_twice(once, lambda outcome: outcome)

    def certified_as_it_is(self, program: AllocationProgram, values: Values, y: FloatArray | None) -> Outcome:
        """The outcome of a point of a program of jobs alone without side rows, whose matrix is not written down."""
        if program.conic and y is not None:
            return self._certified_total(
                program, values, y, lambda *point: TangentForm(program, program.touched(*point))
            )
        form = LinearTotalForm if isinstance(program.utility, Total) else SmallestLevelForm
        return self.certified_allocation(program, form(program), values, y)

    def _handed_on(self, program: AllocationProgram, broken: str, error: SolverCrashed) -> Outcome:
        """Solved as rows and columns, where a method for programs as they are broke down and `auto` had picked it.

        That is a method too narrow for its program. A solver of rows and columns that breaks down has nobody behind it.
        """
        other = other_than(broken)
        self.rebuilt.append(f"solved by {other}, as {broken} broke down: {error}")
        log.info(self.rebuilt[-1])
        self.reason = f"{self.reason}; {broken} broke down"
        return self._lowered(program, other)

    def _lowered(self, program: AllocationProgram, solver: str) -> Outcome:
        if program.conic:
            return self._solve_conic(program, solver)
        return self._solve_once(program, self.build(lambda: program.to_linear().arrays), solver)

    def _solve_conic(self, program: AllocationProgram, name: str | None = None) -> Outcome:
        if name is None:
            solver = self.choose(rows=len(program.classes), integer=program.integral, conic=True)
        else:
            solver = self.chosen = self.load(name)
        cones = self.build(program.to_conic)
        values = self.record(solver().solve_conic(cones, self.limits_left()))
        if values.x is None:
            return self.without_point(program.requirements, values, program, None)
        assert values.y is not None and cones.linear is not None
        linear = cones.linear.duals(values.y, cones.maximise)
        y = program.tangent_duals(linear, values.y[len(cones.linear.source) :])
        return self._certified_total(program, values, y, lambda *at: program.tangent(*at).arrays)

    def _certified_total(
        self, program: AllocationProgram, values: Values, y: FloatArray, tangent: Callable[..., LinearForm]
    ) -> Outcome:
        """The outcome of a point of a total of concave utilities; ``tangent`` takes x and duals."""
        x = cleaned(program, values, self.name)
        if values.termination in STOPPED and not np.isfinite(program.value(x)):
            return self.nothing_found(values)  # some job has nothing yet: such a point is worth nothing
        arrays = tangent(x)
        y = without_noise(y, arrays)
        dual = tangent(x, y)
        return self.certified(arrays, values, x, *program.complete_and_value(x), y, dual, program=program)

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
        outcome = judged(self.chosen, self.limits, arrays, values, x, point, value, y, dual, program)
        if outcome.values.termination not in CLAIMS and not (outcome.certificate.ok and (zero or x.any())):
            return self.nothing_found(outcome.values)
        self.timings["certify"] = self.timings.get("certify", 0.0) + time.perf_counter() - started
        return outcome

    def nothing_found(self, values: Values) -> Outcome:
        """Stopped before any feasible point."""
        if values.termination is Termination.INTERRUPTED:
            raise Interrupted("interrupted before any feasible point was found")
        assert self.chosen is not None
        bound = values.bound if values.bound is not None and np.isfinite(values.bound) else None
        return Outcome(
            values, None, None, bound, "none" if bound is None else "solver",
            Certificate(True, "none", {}), Status.LIMIT, self.chosen,
        )  # fmt: skip

    @property
    def name(self) -> str:
        """Name of the solver in use."""
        return "?" if self.chosen is None else self.chosen.name

    def without_point(
        self, arrays: LinearArrays, values: Values, program: AllocationProgram | None, session: Session | None
    ) -> Outcome:
        """The outcome of a run that left no point: a proof that none exists, or that it was stopped."""
        assert self.chosen is not None
        if values.termination in STOPPED or values.termination is Termination.IMPRECISE:
            return self.nothing_found(values)
        if values.termination not in NO_OPTIMUM:
            raise SolverCrashed(f"solver {self.name} stopped with {values.words!r} and no point")
        if program is not None and program.explained_apart:
            arrays, session = program.requirements, None
        analyst = analyst_of(self.load)
        needed, proof, loosened = least_violation(arrays, self.limits_left(), analyst)
        if needed <= FEASIBILITY:
            refuse_refuted(values.termination, arrays, program, self.name)
            return Outcome(
                replace(values, termination=Termination.UNBOUNDED), None, None, None, "none",
                Certificate(True, "claimed", {}), Status.UNBOUNDED, self.chosen,
            )  # fmt: skip
        certificate = Certificate(True, proof, {"least_violation": needed})
        conflicts = conflicting_rows(arrays, program, session, loosened, self.limits_left(), analyst)
        return Outcome(
            replace(values, termination=Termination.INFEASIBLE), None, None, None, "none", certificate,
            Status.INFEASIBLE, self.chosen, conflicts=conflicts,
        )  # fmt: skip
