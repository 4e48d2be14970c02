"""cuPDLPx and cuOpt: linear programs by first-order methods on an NVIDIA GPU, fed with arrays.

Neither has been run on a GPU by us. The calls follow the interfaces of cupdlpx 0.3 and cuopt 26.10;
tests replace both libraries.

Facts that shape this file: multipliers of a minimum are its derivatives, of a maximum they have
another sign, so that both minimise; cuPDLPx stops after an hour if it gets no time limit, which
must be finite; of its methods cuOpt lets several race by default, whose answers differ from run to
run. Their tolerance is relative to norms of the program, no gap of the objective: the certificate
repairs the point and judges it. A process that has asked CUDA for its devices cannot fork for tasks
that use them, so the driver's management library is asked.
"""

from __future__ import annotations

import os
import time
from abc import abstractmethod
from contextlib import suppress
from ctypes import CDLL, byref, c_uint
from importlib import metadata
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp

from optsched.arrays import FloatArray
from optsched.errors import SolverCrashed, SolverUnavailable, UsageError
from optsched.program import LinearArrays
from optsched.solution.values import PointStatus, Termination, Values
from optsched.solvers.base import Capability, Limits, ReloadingSolver, load_library
from optsched.solvers.raw_log import caught_output

TERMINATION = {
    "OPTIMAL": Termination.OPTIMAL,
    "PRIMAL_INFEASIBLE": Termination.INFEASIBLE_OR_UNBOUNDED,
    "DUAL_INFEASIBLE": Termination.INFEASIBLE_OR_UNBOUNDED,
    "INFEASIBLE_OR_UNBOUNDED": Termination.INFEASIBLE_OR_UNBOUNDED,
    "TIME_LIMIT": Termination.TIME_LIMIT,
    "ITERATION_LIMIT": Termination.WORK_LIMIT,
    "FEAS_POLISH_SUCCESS": Termination.IMPRECISE,
    "Optimal": Termination.OPTIMAL,
    "PrimalInfeasible": Termination.INFEASIBLE_OR_UNBOUNDED,
    "DualInfeasible": Termination.INFEASIBLE_OR_UNBOUNDED,
    "UnboundedOrInfeasible": Termination.INFEASIBLE_OR_UNBOUNDED,
    "TimeLimit": Termination.TIME_LIMIT,
    "IterationLimit": Termination.WORK_LIMIT,
    "PrimalFeasible": Termination.IMPRECISE,
    "NumericalError": Termination.IMPRECISE,
}
"""Terminations by the statuses of cuPDLPx, then of cuOpt."""
NEVER = 1e9
"""Seconds of a run without a time limit."""
HIDDEN = ("", "-1")
"""Values of ``CUDA_VISIBLE_DEVICES`` by which a user hides all devices."""


def has_cuda_device() -> bool:
    """Whether the driver of this machine knows an NVIDIA GPU, and the environment does not hide
    it.
    """
    if os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in HIDDEN:
        return False
    try:
        driver = CDLL("libnvidia-ml.so.1")
    except OSError:
        return False
    count = c_uint(0)
    if driver.nvmlInit_v2() != 0:
        return False
    found = driver.nvmlDeviceGetCount_v2(byref(count)) == 0
    driver.nvmlShutdown()
    return found and count.value > 0


class GpuRun(NamedTuple):
    """What a library says of a minimum: its status, a point, multipliers, and its iterations."""

    status: str
    x: FloatArray | None
    y: FloatArray | None
    iterations: int


def _finite(part: FloatArray | None, length: int) -> FloatArray | None:
    """A point or multipliers; None if a stopped run left nothing, or no numbers."""
    whole = part is not None and part.shape == (length,) and bool(np.isfinite(part).all())
    return part if whole else None


class GpuSolver(ReloadingSolver):
    """Base of the back-ends on GPUs."""

    optional = True
    capabilities: ClassVar[frozenset[Capability]] = frozenset(
        {Capability.CONTINUOUS, Capability.DUALS}
    )
    distributions: ClassVar[tuple[str, ...]]
    """Names under which the library is installed."""

    @classmethod
    def version(cls) -> str:
        """Version of the library; it is not imported, as that may take hold of the GPU."""
        if not has_cuda_device():
            raise SolverUnavailable(
                f"solver {cls.name} needs an NVIDIA GPU: no CUDA device is here"
            )
        for name in cls.distributions:
            with suppress(metadata.PackageNotFoundError):
                return metadata.version(name)
        raise SolverUnavailable(
            f"solver {cls.name}: the package {cls.distributions[0]} is not installed; "
            "pip install 'optsched[gpu]'"
        )

    def solve_linear(
        self, arrays: LinearArrays, limits: Limits, start: FloatArray | None = None
    ) -> Values:
        """Solve, as a minimum; Ctrl-C is noticed once the library returns."""
        self.version()
        started = time.perf_counter()
        sign = -1.0 if arrays.maximise else 1.0
        matrix = sp.csr_matrix(arrays.by_rows, dtype=np.float64)
        matrix.sort_indices()
        with caught_output(limits.on_log):
            try:
                run = self.minimised(matrix, sign * arrays.cost, arrays, limits)
            except (UsageError, SolverUnavailable):
                raise
            except Exception as error:
                problem = f"{self.name} raised {type(error).__name__}: {error}"
                raise SolverCrashed(problem) from None
        termination = TERMINATION.get(run.status)
        if termination is None:
            raise SolverCrashed(f"{self.name} stopped with {run.status!r}")
        rows, columns = arrays.shape
        nothing = termination is Termination.INFEASIBLE_OR_UNBOUNDED
        x = None if nothing else _finite(run.x, columns)
        y = None if x is None else _finite(run.y, rows)
        y = None if y is None else sign * y
        point = PointStatus.FEASIBLE if termination is Termination.OPTIMAL else PointStatus.UNKNOWN
        return Values(
            termination=termination,
            primal=PointStatus.NONE if x is None else point,
            dual=PointStatus.NONE if y is None else point,
            x=x,
            y=y,
            objective=None if x is None else float(arrays.objective(x)),
            iterations=run.iterations,
            seconds=time.perf_counter() - started,
            words=run.status,
        )

    @abstractmethod
    def minimised(
        self, matrix: sp.csr_matrix, cost: FloatArray, arrays: LinearArrays, limits: Limits
    ) -> GpuRun:
        """Minimise ``cost @ x`` over the rows and bounds of the arrays."""


class CuPdlpX(GpuSolver):
    """cuPDLPx, a restarted Halpern primal-dual method.

    References
    ----------
    H. Lu, Z. Peng, J. Yang. "cuPDLPx: A Further Enhanced GPU-Based First-Order Solver for Linear
    Programming", arXiv:2507.14051, 2025.
    """

    name = "cupdlpx"
    distributions = ("cupdlpx",)

    def minimised(
        self, matrix: sp.csr_matrix, cost: FloatArray, arrays: LinearArrays, limits: Limits
    ) -> GpuRun:
        module = load_library("cupdlpx", "solver cupdlpx", "")
        model = module.Model(
            cost, matrix, arrays.row_lower, arrays.row_upper, arrays.lower, arrays.upper
        )
        parameters: dict[str, Any] = {
            "verbose": limits.on_log is not None,
            "eps_optimal_relative": limits.tolerance,
            "eps_feasible_relative": limits.tolerance,
            "time_sec_limit": NEVER if limits.time is None else max(limits.time, 1e-3),
        }
        if limits.work is not None:
            parameters["iteration_limit"] = limits.work
        model.setParams(**parameters)
        for name, value in limits.options.items():
            try:
                model.setParam(name, value)
            except (KeyError, ValueError, TypeError):
                raise UsageError(f"cuPDLPx has no option {name!r} that takes {value!r}") from None
        model.optimize()
        # What the model keeps is read-only
        x, y = (None if part is None else np.array(part) for part in (model.X, model.Pi))
        return GpuRun(str(model.StatusName), x, y, int(model.IterCount or 0))


class CuOpt(GpuSolver):
    """cuOpt's first-order method for linear programs."""

    name = "cuopt"
    distributions = ("cuopt-cu13", "cuopt-cu12")

    def minimised(
        self, matrix: sp.csr_matrix, cost: FloatArray, arrays: LinearArrays, limits: Limits
    ) -> GpuRun:
        module = load_library("cuopt.linear_programming", "solver cuopt", "")
        model = module.DataModel()
        indices, offsets = (part.astype(np.int32) for part in (matrix.indices, matrix.indptr))
        model.set_csr_constraint_matrix(matrix.data, indices, offsets)
        model.set_constraint_lower_bounds(arrays.row_lower)
        model.set_constraint_upper_bounds(arrays.row_upper)
        model.set_variable_lower_bounds(arrays.lower)
        model.set_variable_upper_bounds(arrays.upper)
        model.set_objective_coefficients(cost)
        settings = module.SolverSettings()
        settings.set_optimality_tolerance(limits.tolerance)
        parameters: dict[str, Any] = {
            "method": module.SolverMethod.PDLP,
            "log_to_console": limits.on_log is not None,
        }
        if limits.time is not None:
            parameters["time_limit"] = max(limits.time, 1e-3)
        if limits.work is not None:
            parameters["iteration_limit"] = limits.work
        for name, value in {**parameters, **limits.options}.items():
            try:
                settings.set_parameter(name, value)
            except ValueError:
                raise UsageError(f"cuOpt has no option {name!r} that takes {value!r}") from None
        solution = module.Solve(model, settings)
        if message := solution.get_error_message():
            raise SolverCrashed(f"cuOpt stopped with {message!r}")
        return GpuRun(
            str(solution.get_termination_reason()),
            np.asarray(solution.get_primal_solution(), np.float64),
            np.asarray(solution.get_dual_solution(), np.float64),
            int(solution.get_lp_stats()["nb_iterations"]),
        )
