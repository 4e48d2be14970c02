"""OR-tools: GLOP, PDLP, SCIP and CP-SAT, fed with arrays through its model-builder helper.

Facts that shape this file (ortools 9.15): the helper builds a program from arrays in the time of
one copy; CP-SAT silently rounds continuous columns, so it takes programs of integer columns only;
it has returned OPTIMAL for a value that was not (multi-mode project scheduling), and
``linearization_level=2`` did not show that; PDLP's relative tolerance is not an objective gap;
parameters are text protocol buffers, and a wrong one is reported as a status; SCIP and PDLP do not
look at the request to stop. CP-SAT rounds fractional coefficients to integers, by default to 1e-6,
and may stop 1e-4 from its bound. It is asked for the tolerance and for no distance at all; its
bound is then right to about 1e-10. Where coefficients of very different sizes leave it coarser than
1e-6 nevertheless, its proof is one within its own precision alone: the termination is
``imprecise``, and the answer feasible with that gap.
"""

from __future__ import annotations

import re
import time
from importlib import import_module
from typing import Any, ClassVar

import numpy as np

from optsched.arrays import FloatArray
from optsched.arrays.values import replace
from optsched.errors import SolverCrashed, SolverUnavailable, UsageError
from optsched.lazy import imported
from optsched.program import LinearArrays, TimelineProgram
from optsched.solution.certificate import OPTIMALITY, gap_of
from optsched.solution.values import PointStatus, Termination, Values
from optsched.solvers.base import Capability, EngineSolver, Limits, load_library
from optsched.solvers.new_thread import run_stoppable
from optsched.solvers.raw_log import caught_output

REFUSED = ("INVALID_SOLVER_PARAMETERS", "INCOMPATIBLE_OPTIONS")
"""Statuses of a run whose options were refused."""
TERMINATION = {
    "OPTIMAL": Termination.OPTIMAL,
    "FEASIBLE": Termination.TIME_LIMIT,
    "INFEASIBLE": Termination.INFEASIBLE_OR_UNBOUNDED,
    "UNBOUNDED": Termination.INFEASIBLE_OR_UNBOUNDED,
    "NOT_SOLVED": Termination.TIME_LIMIT,
    "CANCELLED_BY_USER": Termination.INTERRUPTED,
    "UNKNOWN_STATUS": Termination.TIME_LIMIT,
}
"""Terminations by the status of OR-tools."""
POSITION = re.compile(r"^\d+:\d+ ?: ")
"""Where in its text a protocol buffer is wrong."""


def _helper() -> Any:
    return load_library(
        "ortools.linear_solver.python.model_builder_helper",
        "OR-tools",
        "; highspy >= 1.15 does not share a process with it: install highspy>=1.12,<1.14",
    )


class OrToolsSolver(EngineSolver):
    """Base of the back-ends of OR-tools."""

    rounds: ClassVar[bool] = False
    """Whether it rounds coefficients, so that its bound is right only to its own precision."""

    protocol: ClassVar[str] = ""
    """Module and name of the protocol buffer of its parameters, if they are one."""

    @classmethod
    def checked_parameters(cls, limits: Limits) -> str:
        """The parameters as text. Options of the user are parsed first, because OR-tools would
        write an error to standard error only.
        """
        text = cls.parameters(limits)
        # The text that is made here needs no check, and the parser takes time to load.
        if cls.protocol and limits.options:
            text_format = import_module("google.protobuf.text_format")
            try:
                text_format.Parse(text, imported(cls.protocol)())
            except text_format.ParseError as error:
                words = POSITION.sub("", str(error)).strip()
                raise UsageError(f"{cls.name} refused its options: {words}") from None
        return text

    @classmethod
    def version(cls) -> str:
        helper = _helper()
        if not helper.ModelSolverHelper(cls.engine).solver_is_supported():
            raise SolverUnavailable(f"this build of OR-tools has no {cls.engine}")
        import ortools

        return str(ortools.__version__)

    @classmethod
    def parameters(cls, limits: Limits) -> str:
        """Parameters of the back-end as text; user options come last."""
        raise NotImplementedError

    def solve_linear(
        self, arrays: LinearArrays, limits: Limits, start: FloatArray | None = None
    ) -> Values:
        """Solve in a new thread, so that Ctrl-C can stop it."""
        module = _helper()
        started = time.perf_counter()
        model = module.ModelBuilderHelper()
        model.fill_model_from_sparse_data(
            arrays.lower,
            arrays.upper,
            arrays.cost,
            arrays.row_lower,
            arrays.row_upper,
            arrays.by_rows,
        )
        model.set_maximize(arrays.maximise)
        model.set_objective_offset(arrays.offset)
        for column in np.flatnonzero(arrays.integer).tolist():
            model.set_var_integrality(column, True)
        if start is not None:
            for column, value in enumerate(np.asarray(start, np.float64).tolist()):
                model.add_hint(column, value)
        solver = module.ModelSolverHelper(self.engine)
        left = limits.after(time.perf_counter() - started).time
        if left is not None:
            solver.set_time_limit_in_seconds(left)
        # Its log callback takes no Python function, so the log is caught where it is printed.
        solver.enable_output(limits.on_log is not None)
        solver.set_solver_specific_parameters(self.checked_parameters(limits))
        with caught_output(limits.on_log):
            _, interrupted = run_stoppable(
                self.name, lambda: solver.solve(model), solver.interrupt_solve
            )
        values = self._values(solver, arrays, interrupted, time.perf_counter() - started)
        if values.termination is Termination.TIME_LIMIT and limits.work is not None:
            # Both limits have one status. A stop by the clock may come early, by a third or more on
            # a busy machine. In doubt it counts as one by the clock, which is not reproducible.
            by_clock = limits.time is not None and values.seconds >= 0.5 * limits.time
            return values if by_clock else replace(values, termination=Termination.WORK_LIMIT)
        gap = gap_of(values.objective, values.bound) or 0.0
        loose = gap > max(OPTIMALITY, limits.gap or 0.0)
        if values.termination is Termination.OPTIMAL and self.rounds and loose:
            return replace(values, termination=Termination.IMPRECISE)
        return values

    def _values(
        self, solver: Any, arrays: LinearArrays, interrupted: bool, seconds: float
    ) -> Values:
        status = solver.status()
        words = str(solver.status_string() or status)
        if status.name in REFUSED:
            raise UsageError(f"{self.name} refused its options: {words}")
        termination = TERMINATION.get(status.name, Termination.ERROR)
        if interrupted and termination is not Termination.OPTIMAL:
            termination = Termination.INTERRUPTED
        if termination is Termination.ERROR:
            raise SolverCrashed(f"{self.name} stopped with {words!r}")
        solved = bool(solver.has_solution())
        x = np.asarray(solver.variable_values(), np.float64).copy() if solved else None
        duals = solved and Capability.DUALS in self.capabilities and not arrays.is_integer
        y = np.asarray(solver.dual_values(), np.float64).copy() if duals else None
        bound = float(solver.best_objective_bound()) if solved and y is None else None
        return Values(
            termination=termination,
            primal=PointStatus.FEASIBLE if solved else PointStatus.NONE,
            dual=PointStatus.FEASIBLE if y is not None else PointStatus.NONE,
            x=x,
            y=y,
            objective=float(solver.objective_value()) if solved else None,
            bound=bound if bound is not None and np.isfinite(bound) else None,
            seconds=seconds,
            words=words,
        )


_COMMON = frozenset({Capability.INTERRUPT})


class Glop(OrToolsSolver):
    """GLOP, the simplex method of OR-tools."""

    name = "glop"
    keeps_time = True
    engine = "glop"
    protocol = "ortools.glop.parameters_pb2:GlopParameters"
    capabilities: ClassVar[frozenset[Capability]] = _COMMON | {
        Capability.CONTINUOUS,
        Capability.DUALS,
    }

    @classmethod
    def parameters(cls, limits: Limits) -> str:
        tolerance = max(limits.tolerance, 1e-10)
        values = {
            "primal_feasibility_tolerance": tolerance,
            "dual_feasibility_tolerance": tolerance,
            "solution_feasibility_tolerance": max(tolerance, 1e-6),
            "random_seed": limits.seed,
        }
        if limits.work is not None:
            values["max_number_of_iterations"] = limits.work
        return _text({**values, **limits.options})


class Pdlp(OrToolsSolver):
    """PDLP, the first-order method of OR-tools;
    its points need the certificate more than any other's.
    """

    name = "pdlp"
    keeps_time = True
    engine = "pdlp"
    protocol = "ortools.pdlp.solvers_pb2:PrimalDualHybridGradientParams"
    capabilities: ClassVar[frozenset[Capability]] = frozenset(
        {Capability.CONTINUOUS, Capability.DUALS}
    )

    @classmethod
    def parameters(cls, limits: Limits) -> str:
        criteria = (
            f"eps_optimal_absolute: {limits.tolerance} eps_optimal_relative: {limits.tolerance}"
        )
        text = f"termination_criteria {{ simple_optimality_criteria {{ {criteria} }}"
        if limits.work is not None:
            text += f" iteration_limit: {limits.work}"
        return f"{text} }} num_threads: {max(limits.threads, 1)} {_text(limits.options)}"


class Scip(OrToolsSolver):
    """SCIP's branch and bound as OR-tools ships it."""

    name = "scip"
    engine = "scip"
    capabilities: ClassVar[frozenset[Capability]] = frozenset(
        {Capability.CONTINUOUS, Capability.INTEGER, Capability.START}
    )

    @classmethod
    def parameters(cls, limits: Limits) -> str:
        """SCIP's own ``name = value`` lines."""
        values = {
            "limits/gap": 0.0 if limits.gap is None else limits.gap,
            "numerics/feastol": max(limits.tolerance, 1e-9),
            "randomization/randomseedshift": limits.seed,
            "misc/catchctrlc": "FALSE",  # its handler would write to standard output
        }
        if limits.work is not None:
            values["limits/nodes"] = limits.work
        return "\n".join(
            f"{name} = {value}" for name, value in {**values, **limits.options}.items()
        )


class CpSat(OrToolsSolver):
    """CP-SAT for timeline programs, and for linear programs whose columns are all integer."""

    name = "cp-sat"
    keeps_time = True
    engine = "sat"
    protocol = "ortools.sat.sat_parameters_pb2:SatParameters"
    rounds: ClassVar[bool] = True
    capabilities: ClassVar[frozenset[Capability]] = _COMMON | {
        Capability.INTEGER,
        Capability.START,
        Capability.TIMELINE,
    }

    @classmethod
    def parameters(cls, limits: Limits) -> str:
        values = {
            "num_workers": max(limits.threads, 1),
            "random_seed": limits.seed,
            "linearization_level": 2,
            "catch_sigint_signal": False,  # its own handler ends the process
            "relative_gap_limit": 0.0 if limits.gap is None else limits.gap,
            "absolute_gap_limit": 0.0,
            "mip_wanted_precision": max(limits.tolerance, 1e-12),
        }
        if limits.work is not None:
            values["max_number_of_conflicts"] = limits.work
        return _text({**values, **limits.options})

    def solve_timeline(
        self, program: TimelineProgram, limits: Limits, start: FloatArray | None = None
    ) -> Values:
        """Solve a timeline program with intervals."""
        from optsched.solvers.cp_sat import solve_timeline

        self.version()
        return solve_timeline(program, limits, self.checked_parameters(limits), start)


def _text(values: Any) -> str:
    """Parameters as a text protocol buffer."""
    return " ".join(
        f"{name}: {str(value).lower() if isinstance(value, bool) else value}"
        for name, value in values.items()
    )
