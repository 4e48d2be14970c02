"""Clarabel: an interior-point method for linear and conic programs, fed with arrays."""

from __future__ import annotations

import time
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from optsched.arrays import FloatArray
from optsched.arrays.values import replace
from optsched.errors import SolverCrashed, SolverUnavailable, UsageError
from optsched.program import ConicProgram, LinearArrays
from optsched.solution.values import PointStatus, Termination, Values
from optsched.solvers.base import (
    PROGRESS_EVERY,
    Capability,
    Limits,
    Progress,
    ReloadingSolver,
    load_library,
)
from optsched.solvers.conic import solve_as_cones
from optsched.solvers.interrupt import interrupt_flag

TERMINATION = {
    "Solved": Termination.OPTIMAL,
    "AlmostSolved": Termination.IMPRECISE,
    "PrimalInfeasible": Termination.INFEASIBLE,
    "AlmostPrimalInfeasible": Termination.INFEASIBLE_OR_UNBOUNDED,
    "DualInfeasible": Termination.UNBOUNDED,
    "AlmostDualInfeasible": Termination.INFEASIBLE_OR_UNBOUNDED,
    "MaxIterations": Termination.WORK_LIMIT,
    "MaxTime": Termination.TIME_LIMIT,
    "InsufficientProgress": Termination.IMPRECISE,
    "NumericalError": Termination.IMPRECISE,
    "CallbackTerminated": Termination.INTERRUPTED,
}
"""Terminations by the status of Clarabel."""
AGAIN = "solved again with iterative refinement, as Clarabel stopped short without it"

SET_UP = "the time limit was over before the first iteration"
"""Clarabel orders and analyses the matrix without checking the clock. It holds Python's lock
meanwhile, so no thread can stop it: 15 s for 240,000 columns of pairs, 200 s for 1.5 million.
During iterations other threads run, and the callback is called between iterations."""


def _clarabel() -> Any:
    return load_library("clarabel", "solver clarabel", "; install clarabel")


def _without_refinement_first(program: ConicProgram, limits: Limits) -> Values:
    # Iterative refinement of the linear systems takes half of the time, and linear programs rarely
    # need it.
    started = time.perf_counter()
    values = solve_conic(program, _with_option(limits, "iterative_refinement_enable", False))
    if values.termination is not Termination.IMPRECISE:
        return values
    values = solve_conic(program, limits.after(time.perf_counter() - started))
    return replace(values, rebuilt=(AGAIN,))


def _with_option(limits: Limits, name: str, value: object) -> Limits:
    """The limits with one more solver option; the user's own wins."""
    return replace(limits, options={name: value, **limits.options})


def solve_conic(program: ConicProgram, limits: Limits) -> Values:
    """Solve a conic program; ``y`` are Clarabel's multipliers z of the rows."""
    module = _clarabel()
    settings = _settings(module, limits)
    columns = program.shape[1]
    sign = -1.0 if program.maximise else 1.0
    # The quadratic part of Clarabel's objective is 0 here.
    zero = sp.csc_matrix((columns, columns))
    cones = [_cone(module, cone.kind, cone.rows, cone.parameter) for cone in program.cones]
    started = time.perf_counter()
    last_event = started

    def watch(info: Any) -> bool:
        """Called at every iteration; True stops."""
        nonlocal last_event
        now = time.perf_counter()
        if limits.on_progress is not None and now - last_event > PROGRESS_EVERY:
            last_event = now
            primal = sign * info.cost_primal + program.offset
            dual = sign * info.cost_dual + program.offset
            words = f"iteration {info.iterations}"
            limits.on_progress(Progress(now - started, primal, dual, words))
        return interrupted.is_set()

    with interrupt_flag() as interrupted:
        try:
            solver = module.DefaultSolver(
                zero, sign * program.cost, program.A, program.b, cones, settings
            )
            solver.set_termination_callback(watch)
            if limits.on_log is not None:
                solver.print_to_buffer()
            ready = time.perf_counter() - started
            if limits.time is not None and ready >= limits.time:
                return Values(Termination.TIME_LIMIT, seconds=ready, words=SET_UP)
            solution = solver.solve()
            if limits.on_log is not None:
                limits.on_log(solver.get_print_buffer())
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            # A panic of the library, which is written in Rust, is no Exception.
            raise SolverCrashed(f"Clarabel raised {type(error).__name__}: {error}") from None
    seconds = time.perf_counter() - started
    return _values(program, solution, interrupted.is_set(), seconds)


def _values(program: ConicProgram, solution: Any, interrupted: bool, seconds: float) -> Values:
    words = str(solution.status)
    termination = TERMINATION.get(words, Termination.ERROR)
    if interrupted:
        termination = Termination.INTERRUPTED
    if termination is Termination.ERROR:
        raise SolverCrashed(f"Clarabel stopped with {words!r}")
    claims = words in ("Solved", "AlmostSolved")
    # For an infeasible program, x and z prove infeasibility and are no point.
    known = termination not in (Termination.INFEASIBLE, Termination.UNBOUNDED)
    status = PointStatus.FEASIBLE if claims else PointStatus.UNKNOWN
    x = np.array(solution.x) if known else None
    return Values(
        termination=termination,
        primal=status if known else PointStatus.INFEASIBLE,
        dual=status,
        x=x,
        y=np.array(solution.z) if known else None,
        objective=None if x is None else program.objective(x),
        iterations=int(solution.iterations),
        seconds=seconds,
        words=words,
    )


def _settings(module: Any, limits: Limits) -> Any:
    settings = module.DefaultSettings()
    settings.verbose = limits.on_log is not None
    settings.max_threads = limits.threads
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = limits.tolerance
    if limits.time is not None:
        settings.time_limit = max(limits.time, 1e-3)
    if limits.work is not None:
        settings.max_iter = limits.work
    for name, value in limits.options.items():
        if not hasattr(settings, name):
            raise UsageError(f"Clarabel has no option {name!r}")
        try:
            setattr(settings, name, value)
        except TypeError:
            raise UsageError(f"Clarabel has no option {name!r} that takes {value!r}") from None
    return settings


def _cone(module: Any, kind: str, rows: int, parameter: float) -> Any:
    if kind == "zero":
        return module.ZeroConeT(rows)
    if kind == "nonnegative":
        return module.NonnegativeConeT(rows)
    if kind == "exponential":
        return module.ExponentialConeT()
    if kind == "power":
        return module.PowerConeT(parameter)
    raise SolverUnavailable(f"solver clarabel takes no {kind} cone")


class Clarabel(ReloadingSolver):
    """Clarabel, an interior-point method for cones."""

    name = "clarabel"
    capabilities: ClassVar[frozenset[Capability]] = frozenset(
        {
            Capability.CONTINUOUS,
            Capability.CONIC,
            Capability.DUALS,
            Capability.PROGRESS,
            Capability.INTERRUPT,
        }
    )
    sharpens = True

    @classmethod
    def version(cls) -> str:
        """Version of the clarabel package."""
        return str(_clarabel().__version__)

    def solve_linear(
        self, arrays: LinearArrays, limits: Limits, start: FloatArray | None = None
    ) -> Values:
        """Solve a linear program, lowered to cones."""
        return solve_as_cones(arrays, limits, _without_refinement_first)

    def solve_conic(self, program: ConicProgram, limits: Limits) -> Values:
        """Solve a conic program.

        With exponential and power cones the default step (0.99 of the way to the boundary) stalls
        if levels differ by orders of magnitude. A step of 0.9 does not, and needs fewer iterations.
        """
        if any(cone.kind in ("exponential", "power") for cone in program.cones):
            limits = _with_option(limits, "max_step_fraction", 0.9)
        return solve_conic(program, limits)
