"""HiGHS: simplex, interior point and branch and bound, fed with arrays.

Facts that shape this file (highspy 1.13): ``run_crossover=off`` ends with status Unknown although
the point is good; ``iis_strategy`` other than 4 may return an empty set; the clock of the time
limit starts anew with every run, while ``getRunTime`` adds up; the dual simplex re-initialises its
weights when warm, the primal one does not. A thread in which HiGHS has run before takes no run with
another number of threads (`optsched.solvers.new_thread`).
"""

from __future__ import annotations

import threading
import time
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cache
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from optsched.arrays import FloatArray, IntArray
from optsched.errors import SolverCrashed, UsageError
from optsched.program import LinearArrays
from optsched.solution.values import BASIC, Basis, PointStatus, Termination, Values
from optsched.solvers.base import (
    PROGRESS_EVERY,
    START_DROPPED,
    Capability,
    Limits,
    Progress,
    Session,
    Solver,
    load_library,
)
from optsched.solvers.interrupt import interrupt_flag
from optsched.solvers.new_thread import in_new_thread
from optsched.solvers.raw_log import caught_output

TERMINATION = {
    "kOptimal": Termination.OPTIMAL,
    "kModelEmpty": Termination.OPTIMAL,
    "kInfeasible": Termination.INFEASIBLE,
    "kUnbounded": Termination.UNBOUNDED,
    "kUnboundedOrInfeasible": Termination.INFEASIBLE_OR_UNBOUNDED,
    "kTimeLimit": Termination.TIME_LIMIT,
    "kIterationLimit": Termination.WORK_LIMIT,
    "kSolutionLimit": Termination.WORK_LIMIT,
    "kInterrupt": Termination.INTERRUPTED,
    "kUnknown": Termination.IMPRECISE,
}
"""Terminations by the model status of HiGHS."""
POINT_STATUS = {0: PointStatus.NONE, 1: PointStatus.INFEASIBLE, 2: PointStatus.FEASIBLE}
STOPPED = ("kInterrupt", "kUnknown", "kNotset")
"""Model statuses with which HiGHS may end after Ctrl-C."""
PRIMAL = 4
"""The primal simplex. When warm, the dual simplex re-initialises its weights. When cold, the origin
is feasible for most programs of formulations: primal starts there and takes 0.2 ms, while presolve
(which removes nothing) and dual simplex take 0.4 ms.
"""
IIS_STRATEGY = 4
GRACE = 0.5
"""Seconds past its time limit that a run is waited for: HiGHS does not check the clock in all its
steps.
"""
AT_ONCE = 20_000
"""Coefficients up to which a linear program is small: solved in the calling thread,
as it ends before Ctrl-C could matter, and without presolve.
"""
UNWATCHED = 2_000
"""Coefficients up to which a linear program is solved without callbacks: it ends before HiGHS would
call them.
"""
AGAIN = "solved again by simplex from the start, as HiGHS ended without an answer"


def _highspy() -> Any:
    return load_library(
        "highspy",
        "solver highs",
        "; highspy >= 1.15 does not share a process with ortools: install highspy>=1.12,<1.14",
    )


@cache
def _version_of(highspy: ModuleType) -> str:
    """The version of HiGHS, cached: only a solver object has it, and every run needs it."""
    return str(highspy.Highs().version())


@dataclass(eq=False)
class HighsRun:
    """One run of a session: its clock, its limits, and the data of its callbacks.

    An abandoned run continues in its thread with this object; the next run has another one.

    Attributes
    ----------
    limits : Limits
    infinity : float
        Numbers of at least this size mean to HiGHS that there is no bound.
    started, last_event : float
        By `time.perf_counter`.
    interrupt : threading.Event
        Set where HiGHS is to stop.
    mip : dict of str to float
        The last ``incumbent`` and ``bound`` of an integer program.
    point : FloatArray or None
        Its best point so far; at first the start of the run.
    """

    limits: Limits
    infinity: float
    started: float
    last_event: float
    interrupt: threading.Event = field(default_factory=threading.Event)
    mip: dict[str, float] = field(default_factory=dict)
    point: FloatArray | None = None

    def limits_left(self) -> Limits:
        """Limits less the time since the run began."""
        return self.limits.after(time.perf_counter() - self.started)

    def on_interrupt(self, event: Any) -> None:
        """Callback: stop after an interrupt, and report progress from time to time."""
        if self.interrupt.is_set():
            event.interrupt()
        now = time.perf_counter()
        on_progress = self.limits.on_progress
        if now - self.last_event > PROGRESS_EVERY and on_progress is not None:
            self.last_event = now
            words = "" if self.mip else "linear program"
            incumbent, bound = self.mip.get("incumbent"), self.mip.get("bound")
            on_progress(Progress(now - self.started, incumbent, bound, words))

    def on_mip(self, event: Any) -> None:
        """Callback of branch and bound: store incumbent and bound, then as `on_interrupt`."""
        data = event.data_out
        for name, value in (("incumbent", data.mip_primal_bound), ("bound", data.mip_dual_bound)):
            if abs(value) < self.infinity:
                self.mip[name] = float(value)
        self.on_interrupt(event)

    def on_point(self, event: Any) -> None:
        """Callback: HiGHS found a better point of an integer program."""
        self.point = np.array(event.data_out.mip_solution)
        if self.limits.on_point is not None:
            self.limits.on_point(self.point)


class HighsSession(Session):
    """A linear or mixed-integer program in HiGHS;
    cost, bounds, rows and coefficients change in place.
    """

    def __init__(self, arrays: LinearArrays, algorithm: str) -> None:
        super().__init__(arrays)
        self._module = _highspy()
        self._algorithm = algorithm
        self._highs: Any = None
        self._warm = self._watching = False
        self._options: dict[str, Any] | None = None
        """Options that are set in HiGHS; None if others may be."""
        self._threads = 1

    @property
    def _small(self) -> bool:
        return self.arrays.A.nnz <= AT_ONCE and not self.arrays.is_integer

    # --- the loaded model -------------------------------------------------------------------------

    def _load(self) -> None:
        arrays, module = self.arrays, self._module
        highs = module.Highs()
        highs.setOptionValue("output_flag", False)
        rows, columns = arrays.shape
        matrix, lower, upper = arrays.A, arrays.lower, arrays.upper
        if arrays.is_integer:
            # Presolve may call a program infeasible that has an integer column with a fractional
            # bound.
            lower = np.where(arrays.integer, np.ceil(lower - 1e-9), lower)
            upper = np.where(arrays.integer, np.floor(upper + 1e-9), upper)
        status = highs.passModel(
            columns,
            rows,
            matrix.nnz,
            int(module.MatrixFormat.kColwise),
            int(module.ObjSense.kMaximize if arrays.maximise else module.ObjSense.kMinimize),
            arrays.offset,
            arrays.cost,
            lower,
            upper,
            arrays.row_lower,
            arrays.row_upper,
            matrix.indptr.astype(np.int32, copy=False),
            matrix.indices.astype(np.int32, copy=False),
            matrix.data,
            arrays.integer.astype(np.int32),
        )
        if status == module.HighsStatus.kError:
            raise SolverCrashed(
                "HiGHS refused the program (a NaN, a coefficient from 1e15 on, "
                "or a lower bound above an upper one)"
            )
        self._highs = highs
        self._warm = self._watching = False
        self._options = None

    def _changed(self, reason: str, setter: str, *arguments: Any) -> None:
        """Change the loaded model in place, so that its basis stays; if rows are added, the program
        is loaded again.
        """
        if setter == "add_rows":
            super()._changed(reason, setter, *arguments)
        elif self._highs is not None:
            self._change(setter, arguments)

    def _change(self, setter: str, arguments: tuple[Any, ...]) -> None:
        highs, arrays = self._highs, self.arrays
        rows, columns = (np.arange(count, dtype=np.int32) for count in arrays.shape)
        match setter:
            case "set_cost":
                highs.changeColsCost(len(columns), columns, arrays.cost)
            case "set_bounds":
                highs.changeColsBounds(len(columns), columns, arrays.lower, arrays.upper)
            case "set_rows":
                highs.changeRowsBounds(len(rows), rows, arrays.row_lower, arrays.row_upper)
            case "set_coefficients":
                for entry in zip(*(part.tolist() for part in arguments), strict=True):
                    highs.changeCoeff(*entry)
            case "add_columns":
                matrix, cost, upper, _ = arguments
                added = highs.addCols(
                    matrix.shape[1],
                    cost,
                    np.zeros(matrix.shape[1]),
                    upper,
                    matrix.nnz,
                    matrix.indptr[:-1].astype(np.int32),
                    matrix.indices.astype(np.int32),
                    matrix.data,
                )
                if added == self._module.HighsStatus.kError:
                    # Coefficients may be too large: loading the program again raises the error.
                    self._highs = None

    # --- running ----------------------------------------------------------------------------------

    def run(self, limits: Limits) -> Values:
        """Solve in a new thread, so that Ctrl-C reaches the caller and stops the solver; a small
        program is solved in the calling thread.
        """
        now = time.perf_counter()
        run = HighsRun(limits, self._module.kHighsInf, started=now, last_event=now)
        reasons = self._loaded()
        self._threads = limits.threads
        self._apply(run.limits_left())
        run.point = self._start if isinstance(self._start, np.ndarray) else None
        self._give_start()
        small = self._small
        watched = self._watching or not small or self.arrays.A.nnz > UNWATCHED
        if watched:
            self._watch(run)
        again: list[str] = []
        # A small program does not wait for a thread; with a log it does, as a run that HiGHS
        # refuses (see `_solved`) would leave a message there.
        at_once = small and limits.on_log is None
        # An abandoned run goes on with the object that it was started with.
        highs = self._highs
        # Without callbacks the flag would not be checked: Ctrl-C then raises after the run.
        flag = interrupt_flag() if watched else nullcontext(run.interrupt)
        with caught_output(limits.on_log), flag as run.interrupt:
            try:
                if not (at_once and self._solved(highs, run, again)):
                    left = run.limits_left().time
                    patience = None if left is None else left + GRACE
                    in_new_thread(
                        lambda: self._solved(highs, run, again), patience, run.interrupt, GRACE
                    )
            except TimeoutError:
                return self._abandoned(run)
            except Exception as error:
                raise SolverCrashed(f"HiGHS raised {type(error).__name__}: {error}") from None
        self._warm = True
        return self._values(run, (*reasons, *again), time.perf_counter() - run.started)

    def _loaded(self) -> tuple[str, ...]:
        """Load the program again if it was not changed in place; returns the reasons for
        `Values.rebuilt`.
        """
        reasons = self._take_reasons()
        of_start = tuple(reason for reason in reasons if reason.startswith(START_DROPPED))
        fresh = self._highs is None
        if fresh or len(of_start) < len(reasons):
            self._load()
        # Nothing was loaded before that could have been changed in place.
        return of_start if fresh else reasons

    def _solved(self, highs: Any, run: HighsRun, again: list[str]) -> bool:
        """Run HiGHS, and a second time if it failed, which is added to ``again``.

        Returns False if HiGHS refused the run, because its thread has another number of threads.
        """
        states = self._module.HighsModelStatus
        warm = self._warm
        refused = (
            highs.run() == self._module.HighsStatus.kError
            and highs.getModelStatus() == states.kNotset
        )
        # After a cold start Unknown may be a good point, as without crossover: the certificate
        # decides.
        failed = (states.kSolveError, states.kUnknown) if warm else (states.kSolveError,)
        if highs.getModelStatus() in failed and (warm or self._algorithm == "ipm"):
            self._options = None
            # The failure may be due to the basis of the last run.
            highs.clearSolver()
            highs.setOptionValue("solver", "simplex")
            left = run.limits_left().time
            if left is not None:
                highs.setOptionValue("time_limit", left)
            highs.run()
            again.append(AGAIN)
        return not refused

    def _abandoned(self, run: HighsRun) -> Values:
        """Values of a run that continues past its limit or past Ctrl-C: its best point and last
        bound.

        HiGHS checks neither the clock nor Ctrl-C while it sets up cliques, for example. Its thread
        cannot be stopped from outside; it ends once HiGHS checks again. The session loads the
        program again.
        """
        stopped = run.interrupt.is_set()
        # Not on the flag of the user, which says that Ctrl-C was pressed
        run.interrupt = threading.Event()
        run.interrupt.set()
        self._highs.setOptionValue("output_flag", False)
        self._highs = None
        return Values(
            Termination.INTERRUPTED if stopped else Termination.TIME_LIMIT,
            x=run.point,
            bound=run.mip.get("bound"),
            seconds=time.perf_counter() - run.started,
            words=f"still running {GRACE:g} s past {'Ctrl-C' if stopped else 'the time limit'}",
        )

    def _apply(self, limits: Limits) -> None:
        highs = self._highs
        integer = self.arrays.is_integer
        options = _options(limits, self._algorithm, integer, warm=self._warm, small=self._small)
        # Between runs of a session mostly only the time limit differs.
        if options == self._options:
            return
        # None until all are set: after a refused option they are set again.
        self._options = None
        highs.resetOptions()
        for name, value in options.items():
            plain = isinstance(value, bool | int | float | str)
            if not plain or highs.setOptionValue(name, value) != self._module.HighsStatus.kOk:
                raise UsageError(f"HiGHS has no option {name!r} that takes {value!r}")
        self._options = options

    def _give_start(self) -> None:
        start, self._start = self._start, None
        if isinstance(start, Basis):
            basis = self._module.HighsBasis()
            codes = (
                self._module.HighsBasisStatus.kLower,
                self._module.HighsBasisStatus.kBasic,
                self._module.HighsBasisStatus.kUpper,
                self._module.HighsBasisStatus.kZero,
                self._module.HighsBasisStatus.kNonbasic,
            )
            basis.col_status = [codes[code] for code in start.columns.tolist()]
            basis.row_status = [codes[code] for code in start.rows.tolist()]
            basis.valid = True
            # A basis with the right number of basic variables is taken as it is, which saves a
            # factorisation.
            basic = int((start.columns == BASIC).sum() + (start.rows == BASIC).sum())
            basis.alien = basic != len(start.rows)
            self._highs.setBasis(basis)
            self._warm = True
            if self._algorithm == "simplex":
                self._options = None
                self._highs.setOptionValue("simplex_strategy", PRIMAL)
        elif start is not None:
            solution = self._module.HighsSolution()
            solution.col_value = np.asarray(start, np.float64).tolist()
            self._highs.setSolution(solution)

    def _watch(self, run: HighsRun) -> None:
        """Subscribe a run to the callbacks that report progress and can stop it."""
        highs = self._highs
        watched = highs.getOptionValue("solver")[1] != "pdlp"
        for callback, handler in (
            (highs.cbSimplexInterrupt, run.on_interrupt),
            (highs.cbIpmInterrupt, run.on_interrupt),
            (highs.cbMipInterrupt, run.on_mip),
            (highs.cbMipImprovingSolution, run.on_point),
        ):
            callback.clear()
            if watched:
                callback += handler
        self._watching = watched

    # --- what came out ----------------------------------------------------------------------------

    def _values(self, run: HighsRun, reasons: tuple[str, ...], seconds: float) -> Values:
        highs, module, arrays = self._highs, self._module, self.arrays
        status = highs.getModelStatus()
        info = highs.getInfo()
        solution = highs.getSolution()
        words = highs.modelStatusToString(status)
        if status in (module.HighsModelStatus.kSolveError, module.HighsModelStatus.kMemoryLimit):
            raise SolverCrashed(f"HiGHS stopped with {words!r}")
        termination = _termination(module, run, status)
        primal = _point_status(info.primal_solution_status)
        x = (
            np.array(solution.col_value)
            if solution.value_valid and len(solution.col_value)
            else None
        )
        if arrays.shape[1] == 0 and termination is Termination.OPTIMAL:
            x = np.zeros(0)
        y = None
        if solution.dual_valid and not arrays.is_integer:
            y = np.array(solution.row_dual)
        objective = None if x is None else float(arrays.objective(x))
        bound = float(info.mip_dual_bound) if arrays.is_integer else None
        if bound is not None and not np.isfinite(bound):
            bound = None
        return Values(
            termination=termination,
            primal=primal,
            dual=_point_status(info.dual_solution_status),
            x=x,
            y=y,
            objective=objective,
            bound=bound,
            iterations=int(max(info.simplex_iteration_count, 0) + max(info.ipm_iteration_count, 0)),
            nodes=int(max(info.mip_node_count, 0)),
            seconds=seconds,
            words=words,
            rebuilt=reasons,
        )

    def basis(self) -> Basis | None:
        """The basis of the last run, None before one and for an integer program."""
        if self.arrays.is_integer or self._highs is None:
            return None
        basis = self._highs.getBasis()
        if not basis.valid:
            return None
        # getBasicVariables would be faster, but crashes the process after some presolves (highspy
        # 1.13.1).
        rows, columns = self.arrays.shape
        return Basis(
            np.fromiter(map(int, basis.col_status), np.int64, columns),
            np.fromiter(map(int, basis.row_status), np.int64, rows),
        )

    def conflict(self) -> IntArray:
        """Rows of an irreducible infeasible subsystem of the linear relaxation."""
        relaxed = HighsSession(self.arrays.relaxed(), "simplex")
        relaxed._load()
        relaxed._highs.setOptionValue("iis_strategy", IIS_STRATEGY)
        relaxed._highs.setOptionValue("threads", self._threads)
        _, iis = in_new_thread(relaxed._highs.getIis)
        return np.array(sorted(iis.row_index_), np.int64)


def _termination(highspy: ModuleType, run: HighsRun, status: Any) -> Termination:
    if run.interrupt.is_set() and status.name in STOPPED:
        return Termination.INTERRUPTED
    return _terminations(highspy).get(int(status), Termination.ERROR)


@cache
def _terminations(highspy: ModuleType) -> dict[int, Termination]:
    """`TERMINATION` by the number of a state: to look up its name takes ten times as long."""
    states = highspy.HighsModelStatus
    return {int(getattr(states, name)): end for name, end in TERMINATION.items()}


def _options(
    limits: Limits, algorithm: str, integer: bool, *, warm: bool, small: bool
) -> dict[str, Any]:
    """All options that differ from the defaults of HiGHS."""
    tight = max(limits.tolerance, 1e-10)
    options = {
        "output_flag": limits.on_log is not None,
        "threads": limits.threads,
        "random_seed": limits.seed,
        "primal_feasibility_tolerance": tight,
        "dual_feasibility_tolerance": tight,
        "solver": "choose" if integer else algorithm,
    }
    if integer or algorithm != "simplex":
        options["ipm_optimality_tolerance"] = max(limits.tolerance, 1e-12)
    if integer:
        options["mip_feasibility_tolerance"] = max(limits.tolerance, 1e-9)
        options["mip_rel_gap"] = 0.0 if limits.gap is None else limits.gap
    elif algorithm == "simplex" and (warm or small):
        options["simplex_strategy"] = PRIMAL
        if small:
            options["presolve"] = "off"
    if limits.time is not None:
        options["time_limit"] = max(limits.time, 1e-3)
    if limits.work is not None:
        options |= {
            "simplex_iteration_limit": limits.work,
            "ipm_iteration_limit": limits.work,
            "mip_max_nodes": limits.work,
        }
    return {**options, **limits.options}


def _point_status(code: int) -> PointStatus:
    return POINT_STATUS.get(int(code), PointStatus.UNKNOWN)


class Highs(Solver):
    """HiGHS simplex for linear programs, branch and bound for integer ones."""

    name = "highs"
    algorithm = "simplex"
    keeps_time = True
    capabilities: ClassVar[frozenset[Capability]] = frozenset(
        {
            Capability.CONTINUOUS,
            Capability.INTEGER,
            Capability.DUALS,
            Capability.BASIS,
            Capability.START,
            Capability.PROGRESS,
            Capability.INTERRUPT,
            Capability.IIS,
            Capability.INCREMENTAL,
        }
    )

    @classmethod
    def version(cls) -> str:
        """Version of highspy's HiGHS."""
        return _version_of(_highspy())

    def open(self, program: LinearArrays) -> Session:
        self.require_columns(program)
        return HighsSession(program, self.algorithm)


class HighsIpm(Highs):
    """HiGHS interior point with crossover; linear programs only."""

    name = "highs-ipm"
    algorithm = "ipm"
    capabilities: ClassVar[frozenset[Capability]] = Highs.capabilities - {
        Capability.INTEGER,
        Capability.START,
    }
