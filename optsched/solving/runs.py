"""Runs of solvers within one time limit: choice of the solver, sessions, totals of all runs."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

from optsched.arrays import FloatArray
from optsched.arrays.values import replace
from optsched.candidates import Classes
from optsched.errors import SolverUnavailable, UsageError
from optsched.executors import LOCAL
from optsched.instance.durations import UNLIMITED, Timer
from optsched.program import LinearArrays
from optsched.program.arrays import refuse_nan
from optsched.solution import Attempt, SolverRecord, Values
from optsched.solvers import Capability, Limits, Progress, Session, Solver
from optsched.solvers.interrupt import interrupted
from optsched.solvers.scaling import ScaledSession, Scaling
from optsched.solving.choice import (
    others,
    others_for_timeline,
    pick,
    pick_for_timeline,
    require_all,
)
from optsched.solving.warm_start import Bases

if TYPE_CHECKING:
    from optsched.program import TimelineProgram
    from optsched.solvers.isolated import SolverProcess
    from optsched.solving.alternatives import FoundPoints

T = TypeVar("T")

log = logging.getLogger("optsched")

LIKE_CERTIFYING = ("compile", "build")
"""Timings from which the time of the certificate is estimated."""
RESERVED = 0.25
"""Largest fraction of the time limit that is reserved for the steps after the solver."""
KILLABLE = 50_000
"""Entries from which a program is solved in a process that can be killed,
if its back-end may overrun.

The process costs about half a second. Orderings and factorisations do not look at the clock, and
their time depends on the structure: 50,000 entries took Clarabel from 0.05 s to 1.5 s, and five
times as many up to 15 s.
"""


@dataclass(eq=False)
class SolverRuns:
    """Chooses solvers, runs them, and counts what they took.

    Parameters
    ----------
    load : callable
        Solver class by name (`optsched.registry.load_solver`).
    solver : str
        A name, or ``auto``.
    limits : Limits
        ``limits.time`` is the budget of everything that is run here.
    timer : Timer, optional
        When the caller's answer is due. Default: ``limits.time`` from now.
    """

    load: Callable[[str], type[Solver]]
    solver: str = "auto"
    limits: Limits = field(default_factory=Limits)
    prove: bool = False
    """Cross-check claims that no duals prove (`optsched.solving.proof`)."""
    known_points: bool = True
    """Whether an allocation that needs no solver is the answer if no attempt finds one."""
    timings: dict[str, float] = field(default_factory=dict)
    chosen: type[Solver] | None = None
    reason: str = ""
    rebuilt: list[str] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    """Attempts at programs that the first solver alone did not settle."""
    missing: list[Attempt] = field(default_factory=list)
    """Solvers that were chosen and are not installed, until an attempt lists them."""
    by_clock: bool = False
    """Whether the clock or the user stopped an attempt, or the clock left no time for another."""
    iterations: int = 0
    nodes: int = 0
    start: FloatArray | None = None
    """Point to start from: totals of the class columns, or all columns of a linear program."""
    start_used: bool = False
    explains: bool = True
    """Whether a claim of infeasibility is checked and explained by conflicting rows. With 10,000
    jobs that takes minutes, in vain if the caller solves another program anyway.
    """
    inside: bool = False
    """Whether an optimum inside the optimal face is wanted, and not a vertex."""
    processes: int = 1
    """Parts of a program that are solved at a time, if it falls into parts."""
    executor: str = LOCAL
    """Where these are solved."""
    in_parts: bool = False
    """Whether a program was solved in parts."""
    vertex: bool = False
    """Whether a vertex is wanted: schedules are cut into few slices there."""
    found: FoundPoints | None = None
    """Points that were found on the way, where several solutions are asked for (`keep`)."""
    bases: Bases = field(default_factory=Bases)
    """The basis that the first run starts from, and the one that it ends in."""
    timer: Timer = UNLIMITED
    _process: SolverProcess | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if self.timer.seconds is None and self.limits.time is not None:
            self.timer = Timer.after(self.limits.time)

    def keep_points(self, solutions: int) -> None:
        """Keep the points that are found on the way.

        Parameters
        ----------
        solutions : int
            How many solutions the caller wants, the best one included; 1 keeps nothing.
        """
        if solutions > 1:
            from optsched.solving.alternatives import FoundPoints  # few users want several

            self.found = FoundPoints(solutions)
            self.limits = replace(self.limits, on_point=self.found.add)

    # --- the budget ---------------------------------------------------------------------------

    @property
    def reserve(self) -> float:
        """Seconds that are reserved for the steps after a run: the certificate, the allocation.

        They go through the same columns as compiling and building, whose time was measured.
        """
        if self.timer.seconds is None:
            return 0.0
        like = sum(self.timings.get(stage, 0.0) for stage in LIKE_CERTIFYING)
        return min(like, RESERVED * self.timer.seconds)

    @property
    def time_left(self) -> float:
        """Seconds that runs of solvers can take, all together."""
        return self.timer.left - self.reserve

    def limits_left(self, kept: float = 0.0) -> Limits:
        """The limits with what is left of the time, without a share of the whole that is kept."""
        seconds = self.timer.seconds
        if seconds is None:
            return self.limits
        return replace(self.limits, time=max(self.time_left - kept * seconds, 1e-3))

    def has_time_left(self, fraction: float) -> bool:
        """Whether more than this fraction of the time limit is left; never after Ctrl-C."""
        if interrupted():
            return False
        seconds = self.timer.seconds
        return seconds is None or self.time_left > fraction * seconds

    def spend(self, on: str, seconds: float) -> None:
        """Add time to one of the timings."""
        self.timings[on] = self.timings.get(on, 0.0) + seconds

    def build(self, build: Callable[[], T]) -> T:
        """Call a function that builds a program, and add its time to the timings."""
        clock = self.timer.clock
        started = clock()
        result = build()
        self.spend("build", clock() - started)
        return result

    # --- the solver ---------------------------------------------------------------------------

    @property
    def elsewhere(self) -> bool:
        """Whether parts of a program are solved in other processes."""
        return self.processes > 1 or self.executor != LOCAL

    @property
    def name(self) -> str:
        """Name of the solver in use."""
        return "?" if self.chosen is None else self.chosen.name

    @property
    def asked_for(self) -> tuple[str, str] | None:
        """(name, reason) of the solver that the user asked for; None if `auto` chooses."""
        return None if self.solver == "auto" else (self.solver, "asked for")

    def use(self, solver: type[Solver], reason: str) -> type[Solver]:
        """Make a solver the one in use; raises `SolverUnavailable` where it is not installed."""
        # Before the version is asked for: a missing solver is an attempt under its name
        self.chosen, self.reason = solver, reason
        try:
            solver.version()
        except SolverUnavailable as error:
            log.info("solver %s: %s", solver.name, error)
            self.missing.append(Attempt(solver.name, str(error)))
            raise
        log.info("solver %s: %s", solver.name, reason)
        return solver

    def choose(
        self, *, rows: int, integer: bool, conic: bool, prefer: tuple[str, str] | None = None
    ) -> type[Solver]:
        """The solver asked for, checked,
        or the first one that is installed of those that `auto` takes.

        ``prefer`` is the (name, reason) that `auto` begins with in the place of its usual choice
        (`optsched.solving.choice`).
        """
        start = self.start is not None
        warm, basis = self.bases.warm is not None, self.bases.keep
        usual = pick(
            rows=rows,
            integer=integer,
            conic=conic,
            start=start,
            warm=warm,
            keep_basis=basis,
            inside=self.inside,
            vertex=self.vertex,
        )
        name, reason = self.asked_for or prefer or usual
        solver = self.load(name)
        require_all(solver, integer=integer, conic=conic, start=start)
        return self._use_or_fall_back(
            solver, reason, self.fallbacks(name, integer=integer, conic=conic)
        )

    def _use_or_fall_back(
        self, solver: type[Solver], reason: str, fallbacks: Iterable[type[Solver]]
    ) -> type[Solver]:
        """Use a solver, or under `auto` the first fallback that is installed where it is not."""
        missing = []
        # One by one: to load a solver takes longer than to solve a small program
        for candidate in chain([solver], fallbacks if self.asked_for is None else ()):
            try:
                return self.use(candidate, reason)
            except SolverUnavailable as error:
                missing.append(str(error))
                # Options of the first solver mean nothing to another one
                self.limits = replace(self.limits, options={})
        raise SolverUnavailable("; ".join(missing))

    def fallbacks(self, first: str, *, integer: bool, conic: bool) -> Iterator[type[Solver]]:
        """The solvers that `auto` tries after the first one,
        as far as the caller's loader knows them.
        """
        for name in others(first, integer=integer, conic=conic):
            try:
                solver = self.load(name)
            except SolverUnavailable:
                continue
            if solver.name == name:  # a loader may give one solver for every name
                yield solver

    def take_missing(self) -> list[Attempt]:
        """The solvers that were found missing since the last call, as attempts."""
        missing, self.missing = self.missing, []
        return missing

    def choose_for_timeline(
        self, program: TimelineProgram, name: str | None = None
    ) -> type[Solver]:
        """The solver asked for, or the one that `auto` picks for activities in time; or by name."""
        fallbacks: tuple[str, ...] = ()
        if name is not None:
            reason = self.reason
        else:
            name, reason = self.asked_for or pick_for_timeline(program)
            fallbacks = others_for_timeline(name, program)
        solver = self.load(name)
        if Capability.TIMELINE not in solver.capabilities:
            solver.require(Capability.INTEGER, "a timeline program, indexed by time,")
        return self._use_or_fall_back(solver, reason, map(self.load, fallbacks))

    def require_rows(self, task: str = "programs of rows and columns") -> None:
        """Refuse what is solved as rows and columns if a solver was asked for that takes none."""
        if self.asked_for is not None:
            self.load(self.solver).require_rows(task)

    # --- sessions -----------------------------------------------------------------------------

    def open(
        self,
        arrays: LinearArrays,
        solver: str | None = None,
        start: FloatArray | None = None,
        classes: Classes | None = None,
        prefer: tuple[str, str] | None = None,
    ) -> Session:
        """A session with the program loaded, on a solver by name or the one that `choose` picks.

        ``start`` is a point of this program; without it, the start of these runs counts if its size
        fits. ``classes`` are those that the program is over: a known basis is mapped to them.
        ``prefer`` is for `choose`.
        """
        refuse_nan(arrays)
        if solver is None:
            self.require_rows()
            rows, integer = arrays.shape[0], arrays.is_integer
            chosen = self.choose(rows=rows, integer=integer, conic=False, prefer=prefer)
        else:
            chosen = self.use(self.load(solver), self.reason)
        scaling = Scaling.of(arrays)
        runner = self.killable(chosen, arrays.A.nnz)
        session = ScaledSession(arrays, scaling, runner().open(scaling.apply(arrays)))
        if start is None and self.start is not None and len(self.start) == arrays.shape[1]:
            start = self.start
        if start is not None and Capability.START in chosen.capabilities:
            session.set_start(start)
            self.start_used = True
        elif classes is not None and not arrays.is_integer:
            self.bases.begin(session, chosen, classes)
        return session

    def killable(self, solver: type[Solver], entries: int) -> type[Solver]:
        """The class that runs a solver on a program with this many entries:
        the solver itself, or its counterpart in a process that can be killed.

        The values are the same. Records, capabilities and versions are those of the solver itself.
        """
        if self.timer.seconds is None or solver.keeps_time or entries < KILLABLE:
            return solver
        try:
            isolated = self._own_process().isolated(solver)
            self._own_process().start()
        except (UsageError, SolverUnavailable) as error:
            # The class is part of a script, or no process can be started: an overrun is accepted
            # then
            log.info("solver %s runs in this process: %s", solver.name, error)
            return solver
        log.info("solver %s runs in a process that can be killed", solver.name)
        return isolated

    def _own_process(self) -> SolverProcess:
        """The process of these runs; it ends with them."""
        if self._process is None:
            from optsched.solvers.isolated import SolverProcess  # most programs are small

            self._process = SolverProcess(self.load, lasting=False)
            weakref.finalize(self, self._process.close)
        return self._process

    def run(self, session: Session) -> Values:
        """Run a session within what is left of the budget."""
        values = self.run_within(session, self.limits_left())
        self.bases.end(session, values)
        return values

    def run_within(self, session: Session, limits: Limits) -> Values:
        """Run a session within limits of its own; the basis of the first run stays as it is."""
        return self.record(session.run(limits), session.arrays.shape)

    def report(
        self,
        began: float,
        value: float,
        bound: float | None,
        words: str,
        point: Callable[[], FloatArray],
    ) -> None:
        """Report the best point and the bound of a search that began at a time of the timer's
        clock.
        """
        limits = self.limits
        if limits.on_progress is not None:
            limits.on_progress(Progress(self.timer.clock() - began, value, bound, words))
        if limits.on_point is not None:
            limits.on_point(point())

    def record(self, values: Values, shape: tuple[int, int] | None = None) -> Values:
        """Count a run of a solver in the timings and totals.

        With ``shape`` the sizes of the point and duals are checked; the certificate checks those of
        an allocation.
        """
        if shape is not None:
            values = values.checked(*shape, self.name)
        self.iterations += values.iterations
        self.nodes += values.nodes
        self.rebuilt += values.rebuilt
        self.spend("solve", values.seconds)
        for reason in values.rebuilt:
            log.info("session rebuilt: %s", reason)
        if self.limits.on_point is not None and values.x is not None:
            self.limits.on_point(values.x)
        end = values.words or values.termination
        log.info("%s after %d iterations, %.3f s", end, values.iterations, values.seconds)
        return values

    def solver_record(self, solver: type[Solver], gap: float | None = None) -> SolverRecord:
        """The record of the runs, as a solution keeps it; ``gap`` is the gap that was asked for."""
        return SolverRecord(
            name=solver.name,
            version=solver.version(),
            options=dict(self.limits.options),
            seed=self.limits.seed,
            reason=self.reason,
            iterations=self.iterations,
            nodes=self.nodes,
            rebuilt=tuple(self.rebuilt),
            gap=gap,
            attempts=tuple(dict.fromkeys([*self.attempts, *self.missing])),
            by_clock=self.by_clock,
        )
