"""cvxpy: SCS, and any other conic solver that it finds, given the program as constants.

Facts that shape this file (cvxpy 1.9): parameters the size of a matrix do not scale (50 s and 7 GB
for 10,000 x 3), so every run compiles anew with constants; SCS stops at tolerances that hide
percents, so look at the certificate. Solvers without their own name are called by cvxpy's,
``cvxpy:HIGHS``; those to which cvxpy gives no exponential and power cones take linear programs
alone.
"""

from __future__ import annotations

import time
import warnings
from functools import cache
from typing import Any, ClassVar

import numpy as np

from optsched.arrays import FloatArray, IntArray
from optsched.errors import SolverCrashed, SolverUnavailable, UsageError
from optsched.program import ConicProgram, LinearArrays
from optsched.solution.values import PointStatus, Termination, Values
from optsched.solvers.base import (
    Capability,
    EngineSolver,
    Limits,
    load_library,
)
from optsched.solvers.conic import solve_as_cones
from optsched.solvers.new_thread import in_new_thread
from optsched.solvers.raw_log import caught_output


def _cvxpy() -> Any:
    return load_library("cvxpy", "cvxpy", "; install cvxpy")


TERMINATION = {
    "optimal": Termination.OPTIMAL,
    "optimal_inaccurate": Termination.IMPRECISE,
    "infeasible": Termination.INFEASIBLE_OR_UNBOUNDED,
    "infeasible_inaccurate": Termination.INFEASIBLE_OR_UNBOUNDED,
    "unbounded": Termination.INFEASIBLE_OR_UNBOUNDED,
    "unbounded_inaccurate": Termination.INFEASIBLE_OR_UNBOUNDED,
    "infeasible_or_unbounded": Termination.INFEASIBLE_OR_UNBOUNDED,
    "user_limit": Termination.WORK_LIMIT,
}
"""Terminations by cvxpy's status."""
CONES = {"ExpCone", "PowCone3D"}
CLASHES = {
    "OSQP": (
        "osqp and highspy export functions of one name; "
        "where PuLP was imported first the process crashes"
    )
}
"""Solvers of cvxpy that do not share a process with others in every order
of imports (osqp 1.1, highspy 1.13).
"""
OPTIONS: dict[str, tuple[tuple[str, ...], str, str]] = {
    "CLARABEL": (("tol_gap_abs", "tol_gap_rel", "tol_feas"), "time_limit", "max_iter"),
    "GLOP": ((), "time_limit_sec", ""),
    "HIGHS": (
        ("primal_feasibility_tolerance", "dual_feasibility_tolerance"),
        "time_limit",
        "simplex_iteration_limit",
    ),
    "PDLP": ((), "time_limit_sec", ""),
    "SCIPY": ((), "time_limit", "maxiter"),
}
"""Names of the tolerances, time limit and iteration limit of some solvers in cvxpy."""


@cache
def engine_solver(engine: str) -> type[CvxpySolver]:
    """The back-end that is called by cvxpy's name of it; cvxpy says which cones it takes."""
    _cvxpy()
    from cvxpy.reductions.solvers.defines import SOLVER_MAP_CONIC

    known = SOLVER_MAP_CONIC.get(engine)
    cones = {cone.__name__ for cone in known.SUPPORTED_CONSTRAINTS} if known is not None else set()
    conic = {Capability.CONIC} if cones >= CONES else set()
    capabilities = {Capability.CONTINUOUS, Capability.DUALS} | conic
    return CvxpySolver.of_engine("cvxpy", "cvxpy", engine, capabilities)


def engines() -> list[str]:
    """cvxpy's names of the solvers that it finds here and that have no name of their own."""
    return CvxpySolver.unnamed(_cvxpy().installed_solvers())


class CvxpySolver(EngineSolver):
    """Base of the conic solvers that cvxpy calls."""

    capabilities: ClassVar[frozenset[Capability]] = frozenset(
        {Capability.CONTINUOUS, Capability.CONIC, Capability.DUALS}
    )

    @classmethod
    def version(cls) -> str:
        """Version of cvxpy; raises if the solver is not there."""
        cvxpy = _cvxpy()
        if cls.engine not in cvxpy.installed_solvers():
            raise SolverUnavailable(
                f"solver {cls.name} is not installed: cvxpy finds no {cls.engine}"
            )
        if cls.engine in CLASHES:
            raise SolverUnavailable(f"solver {cls.name} is not safe here: {CLASHES[cls.engine]}")
        return f"cvxpy {cvxpy.__version__}"

    @classmethod
    def options(cls, limits: Limits) -> dict[str, Any]:
        """Options in the solver's own names;
        a limit whose name is not known must be given in the solver's own.
        """
        if cls.engine not in OPTIONS:
            if limits.time is not None or limits.work is not None:
                raise UsageError(
                    f"{cls.name}: what its limits are called is not known; "
                    "give them as solver options"
                )
            return {}
        tolerances, seconds, work = OPTIONS[cls.engine]
        # HiGHS takes no tolerance below 1e-10.
        options = dict.fromkeys(tolerances, max(limits.tolerance, 1e-10))
        if limits.time is not None:
            options[seconds] = max(limits.time, 1e-3)
        if limits.work is not None:
            if not work:
                raise UsageError(f"{cls.name} has no limit of iterations")
            options[work] = limits.work
        return options

    @classmethod
    def _given(cls, limits: Limits) -> dict[str, Any]:
        """All options; the user's own come last."""
        given = {**cls.options(limits), **limits.options}
        return {"scipy_options": given} if cls.engine == "SCIPY" else given

    def solve_linear(
        self, arrays: LinearArrays, limits: Limits, start: FloatArray | None = None
    ) -> Values:
        """Solve a linear program, lowered to cones."""
        return solve_as_cones(arrays, limits, self.solve_conic)

    def solve_conic(self, program: ConicProgram, limits: Limits) -> Values:
        """Solve a conic program;
        ``y`` are the multipliers of the rows, as Clarabel would give them.
        """
        if any(cone.kind in ("exponential", "power") for cone in program.cones):
            self.require(Capability.CONIC, "a conic program")
        cvxpy = _cvxpy()
        x = cvxpy.Variable(program.shape[1])
        slack = program.b - program.A @ x
        constraints, places = _cones(cvxpy, program, slack)
        sign = -1.0 if program.maximise else 1.0
        problem = cvxpy.Problem(cvxpy.Minimize((sign * program.cost) @ x), constraints)

        def solve() -> None:
            problem.solve(
                solver=self.engine, verbose=limits.on_log is not None, **self._given(limits)
            )

        started = time.perf_counter()
        try:
            with warnings.catch_warnings(), caught_output(limits.on_log):
                # The status says so.
                warnings.filterwarnings("ignore", "Solution may be inaccurate")
                # HiGHS keeps a scheduler for each thread (`optsched.solvers.new_thread`).
                if self.engine == "HIGHS":
                    in_new_thread(solve)
                else:
                    solve()
        except (cvxpy.error.SolverError, TypeError, ValueError, AttributeError) as error:
            if limits.options:
                raise UsageError(
                    f"{self.name} failed with the options that were given: {error}"
                ) from None
            raise SolverCrashed(f"{self.name} failed: {error}") from None
        seconds = time.perf_counter() - started
        termination = TERMINATION.get(problem.status)
        if termination is None:
            raise SolverCrashed(f"{self.name} stopped with {problem.status!r}")
        # cvxpy has one status for all limits.
        in_time = limits.time is None or seconds < limits.time
        if termination is Termination.WORK_LIMIT and not in_time:
            termination = Termination.TIME_LIMIT
        found = x.value is not None
        stats = problem.solver_stats
        return Values(
            termination=termination,
            primal=PointStatus.UNKNOWN if found else PointStatus.NONE,
            dual=PointStatus.UNKNOWN if found else PointStatus.NONE,
            x=np.asarray(x.value, np.float64) if found else None,
            y=_multipliers(constraints, places, program.shape[0]) if found else None,
            objective=program.objective(np.asarray(x.value)) if found else None,
            iterations=int(stats.num_iters or 0) if stats is not None else 0,
            seconds=seconds,
            words=str(problem.status),
        )


def _cones(cvxpy: Any, program: ConicProgram, slack: Any) -> tuple[list[Any], list[IntArray]]:
    """One constraint per run of equal cones,
    and the rows that it holds (columns: the parts of a cone).
    """
    constraints = []
    places = []
    start = 0
    # Many cones of one kind are one constraint on vectors, as cvxpy compiles constraint by
    # constraint.
    runs: list[tuple[str, float, int]] = []
    for cone in program.cones:
        if runs and runs[-1][:2] == (cone.kind, cone.parameter):
            runs[-1] = (cone.kind, cone.parameter, runs[-1][2] + cone.rows)
        else:
            runs.append((cone.kind, cone.parameter, cone.rows))
    for kind, parameter, rows in runs:
        indices = np.arange(start, start + rows)
        if kind == "zero":
            constraints.append(slack[indices] == 0)
        elif kind == "nonnegative":
            constraints.append(slack[indices] >= 0)
        else:
            triples = indices.reshape(-1, 3)
            parts = [slack[triples[:, part]] for part in range(3)]
            if kind == "exponential":
                constraints.append(cvxpy.ExpCone(*parts))
            else:
                constraints.append(cvxpy.PowCone3D(*parts, np.full(len(triples), parameter)))
        places.append(indices if kind in ("zero", "nonnegative") else indices.reshape(-1, 3))
        start += rows
    return constraints, places


def _multipliers(constraints: list[Any], places: list[IntArray], rows: int) -> FloatArray | None:
    """Multipliers z of the rows:
    in the dual cone, with c + A'z = 0 for minimise c'x subject to b - Ax in the cone.
    """
    z = np.zeros(rows)
    for constraint, indices in zip(constraints, places, strict=True):
        value = constraint.dual_value
        if value is None:
            return None
        if indices.ndim == 2:
            for part in range(3):
                z[indices[:, part]] = np.asarray(value[part]).ravel()
        else:
            # cvxpy's multiplier of ``expression == 0`` counts the expression, that of ``>= 0`` its
            # negative.
            sign = -1.0 if type(constraint).__name__ in ("Equality", "Zero") else 1.0
            z[indices] = sign * np.asarray(value).ravel()
    return z


class Scs(CvxpySolver):
    """SCS, a first-order method."""

    name = "scs"
    engine = "SCS"

    @classmethod
    def options(cls, limits: Limits) -> dict[str, Any]:
        options = {
            "eps_abs": limits.tolerance,
            "eps_rel": limits.tolerance,
            "max_iters": 100_000,
        }
        if limits.time is not None:
            options["time_limit_secs"] = limits.time
        if limits.work is not None:
            options["max_iters"] = limits.work
        return options


class Ecos(CvxpySolver):
    """ECOS, where the user has it."""

    name = "ecos"
    optional = True
    engine = "ECOS"

    @classmethod
    def options(cls, limits: Limits) -> dict[str, Any]:
        options = {
            "abstol": limits.tolerance,
            "reltol": limits.tolerance,
            "feastol": limits.tolerance,
        }
        if limits.work is not None:
            options["max_iters"] = limits.work
        return options
