"""PuLP: CBC, which it ships,
and the commercial and free solvers that the user has installed beside it.

PuLP calls most of them through files, so these back-ends are slow (0.4 s for 1,000 jobs x 3 pools,
where arrays take 10 ms). CBC prints its results to about 8 digits, which shows in the certificate.
Other solvers that PuLP knows are called by PuLP's name, as ``pulp:SCIP_CMD``. The signs of their
duals differ from solver to solver: no duals are read, and the bound is the solver's claim.
"""

from __future__ import annotations

import re
import tempfile
import time
import warnings
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from optsched.arrays import FloatArray
from optsched.errors import SolverCrashed, SolverUnavailable, UsageError
from optsched.program import LinearArrays
from optsched.solution.values import PointStatus, Termination, Values
from optsched.solvers.base import Capability, EngineSolver, Limits, load_library
from optsched.solvers.new_thread import in_new_thread
from optsched.solvers.raw_log import caught_output

TERMINATION = {
    "Optimal": Termination.OPTIMAL,
    "Infeasible": Termination.INFEASIBLE_OR_UNBOUNDED,
    "Unbounded": Termination.INFEASIBLE_OR_UNBOUNDED,
    "Undefined": Termination.INFEASIBLE_OR_UNBOUNDED,
    "Not Solved": Termination.TIME_LIMIT,
}
"""Terminations by PuLP's status."""
LEAST_GAP = 1e-9
"""Gap that is asked for in the place of 0. PuLP passes a gap of 0 on to few solvers; the others
would stop at their default, often 1e-4."""
REFUSED = re.compile(r"No match for|.* is illegal for")
"""How CBC begins a line about an option that it does not take."""


def _pulp() -> Any:
    return load_library("pulp", "PuLP", "; install pulp")


@cache
def engine_solver(engine: str) -> type[PulpSolver]:
    """The back-end that is called by PuLP's name of it."""
    capabilities = {Capability.CONTINUOUS, Capability.INTEGER}
    return PulpSolver.of_engine("pulp", "PuLP", engine, capabilities)


def engines() -> list[str]:
    """PuLP's names of the solvers that it finds here and that have no name of their own."""
    pulp = _pulp()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return PulpSolver.unnamed(pulp.listSolvers(onlyAvailable=True))


class PulpSolver(EngineSolver):
    """Base of the back-ends that PuLP calls."""

    capabilities: ClassVar[frozenset[Capability]] = frozenset(
        {Capability.CONTINUOUS, Capability.INTEGER, Capability.DUALS, Capability.START}
    )

    @classmethod
    def version(cls) -> str:
        """Version of PuLP; raises if the solver is not there."""
        pulp = _pulp()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            return cls._version(pulp)

    @classmethod
    def _version(cls, pulp: Any) -> str:
        try:
            available = (
                cls.engine in pulp.listSolvers()
                and pulp.getSolver(cls.engine, msg=False).available()
            )
        except Exception as error:  # such as a missing licence or library of the solver
            raise SolverUnavailable(
                f"solver {cls.name} cannot be used through PuLP ({error})"
            ) from None
        if not available:
            raise SolverUnavailable(
                f"solver {cls.name} is not installed: PuLP finds no {cls.engine}"
            )
        return f"PuLP {pulp.__version__}"

    @classmethod
    def command(cls, pulp: Any, limits: Limits, warm: bool, log: Path) -> Any:
        """PuLP's solver object; ``log`` is a file that it may write its log to."""
        options = {
            "msg": limits.on_log is not None,
            "timeLimit": limits.time,
            "gapRel": max(limits.gap or 0.0, LEAST_GAP),
        }
        return pulp.getSolver(cls.engine, **{**options, **limits.options})

    @classmethod
    def check_log(cls, log: str) -> None:
        """Look for errors that the solver only logs; may raise `UsageError`."""

    def solve_linear(
        self, arrays: LinearArrays, limits: Limits, start: FloatArray | None = None
    ) -> Values:
        """Build the model, call the solver, read its point and duals."""
        with warnings.catch_warnings():
            # Of PuLP 4, which this project does not use yet.
            warnings.simplefilter("ignore", DeprecationWarning)
            return self._solve(arrays, limits, start)

    def _solve(self, arrays: LinearArrays, limits: Limits, start: FloatArray | None) -> Values:
        pulp = _pulp()
        started = time.perf_counter()
        until = np.inf if limits.time is None else started + limits.time
        model, columns, rows = _model(pulp, arrays, until)
        if len(columns) < arrays.shape[1]:
            words = "the time was over before the model was made"
            spent = time.perf_counter() - started
            return Values(Termination.TIME_LIMIT, seconds=spent, words=words)
        limits = limits.after(time.perf_counter() - started)
        if start is not None:
            for column, value in zip(columns, np.asarray(start, np.float64).tolist(), strict=True):
                column.setInitialValue(value, check=False)
        with tempfile.TemporaryDirectory(prefix="optsched-") as folder:
            log = Path(folder) / "log"
            try:
                command = self.command(pulp, limits, warm=start is not None, log=log)
            except TypeError as error:
                raise UsageError(f"{self.name} refused its options: {error}") from None
            self._call(model, command, limits, log)
        seconds = time.perf_counter() - started
        return self._values(pulp, arrays, model, columns, rows, seconds, limits.gap or 0.0)

    def _call(self, model: Any, command: Any, limits: Limits, log: Path) -> None:
        """Run the solver, and pass its log on."""
        try:
            with caught_output(limits.on_log):
                if self.engine == "HiGHS":
                    in_new_thread(lambda: model.solve(command))
                else:
                    model.solve(command)
        except (_pulp().PulpSolverError, OSError) as error:
            raise SolverCrashed(f"{self.name} failed: {error}") from None
        text = log.read_text(errors="replace") if log.exists() else ""
        if limits.on_log is not None and text:
            limits.on_log(text)
        self.check_log(text)

    def _values(
        self,
        pulp: Any,
        arrays: LinearArrays,
        model: Any,
        columns: list[Any],
        rows: list[tuple[int, Any]],
        seconds: float,
        gap: float,
    ) -> Values:
        words = f"{pulp.LpStatus[model.status]}, {pulp.LpSolution[model.sol_status]}"
        termination = _termination(pulp, model)
        if termination is Termination.ERROR:
            raise SolverCrashed(f"{self.name} stopped with {words!r}")
        values = np.array(
            [np.nan if column.varValue is None else column.varValue for column in columns],
            np.float64,
        )
        has_point = model.sol_status != pulp.LpSolutionNoSolutionFound
        stopped = termination is Termination.TIME_LIMIT and has_point
        solved = termination is Termination.OPTIMAL
        found = (stopped or solved) and bool(np.isfinite(values).all())
        y = None
        if found and not arrays.is_integer and Capability.DUALS in self.capabilities:
            y = np.zeros(arrays.shape[0])
            # A row with two sides is two constraints, whose duals add up.
            for row, constraint in rows:
                y[row] += constraint.pi or 0.0
        objective = model.objective.value() if found else None
        bound = None
        if found and solved and y is None:
            # PuLP passes no bound on. The solver claims that the optimum is within the gap.
            value = arrays.objective(values)
            bound = value + (gap if arrays.maximise else -gap) * abs(value)
        return Values(
            termination=termination,
            primal=PointStatus.FEASIBLE if found else PointStatus.NONE,
            dual=PointStatus.UNKNOWN if y is not None else PointStatus.NONE,
            x=values if found else None,
            y=y,
            objective=None if objective is None else float(objective),
            bound=bound,
            seconds=seconds,
            words=words,
        )


def _model(
    pulp: Any, arrays: LinearArrays, until: float
) -> tuple[Any, list[Any], list[tuple[int, Any]]]:
    """The LpProblem, its variables, and (row, constraint) of every side of a row.

    No variables if the time ``until`` is over: a million coefficients take PuLP about ten seconds.
    """
    model = pulp.LpProblem("optsched", pulp.LpMaximize if arrays.maximise else pulp.LpMinimize)
    columns = [
        pulp.LpVariable(
            f"x{number}",
            None if np.isneginf(low) else low,
            None if np.isposinf(high) else high,
            pulp.LpInteger if integer else pulp.LpContinuous,
        )
        for number, (low, high, integer) in enumerate(
            zip(
                arrays.lower.tolist(),
                arrays.upper.tolist(),
                arrays.integer.tolist(),
                strict=True,
            )
        )
    ]
    model += pulp.LpAffineExpression(
        zip(columns, arrays.cost.tolist(), strict=True), constant=arrays.offset
    )
    model.addVariables(columns)
    rows = []
    matrix = arrays.by_rows
    for row, (low, high) in enumerate(
        zip(arrays.row_lower.tolist(), arrays.row_upper.tolist(), strict=True)
    ):
        entries = slice(matrix.indptr[row], matrix.indptr[row + 1])
        terms = [
            (columns[column], value)
            for column, value in zip(
                matrix.indices[entries].tolist(), matrix.data[entries].tolist(), strict=True
            )
        ]
        if row % 1000 == 0 and time.perf_counter() > until:
            return model, [], []
        sides = (
            [(pulp.LpConstraintEQ, low)]
            if low == high
            else [
                (sense, side)
                for sense, side in ((pulp.LpConstraintGE, low), (pulp.LpConstraintLE, high))
                if np.isfinite(side)
            ]
        )
        for sense, side in sides:
            constraint = pulp.LpConstraint(
                pulp.LpAffineExpression(terms), sense, f"r{row}_{sense + 1}", side
            )
            model.addConstraint(constraint)
            rows.append((row, constraint))
    return model, columns, rows


def _termination(pulp: Any, model: Any) -> Termination:
    if model.sol_status == pulp.LpSolutionIntegerFeasible:
        return Termination.TIME_LIMIT
    return TERMINATION.get(pulp.LpStatus[model.status], Termination.ERROR)


class Cbc(PulpSolver):
    """CBC, as PuLP ships it."""

    name = "cbc"
    engine = "PULP_CBC_CMD"

    @classmethod
    def check_log(cls, log: str) -> None:
        """CBC goes on after an option that it does not know, or whose value it does not take."""
        refused = next((line for line in log.splitlines() if REFUSED.match(line)), None)
        if refused is not None:
            raise UsageError(f"CBC refused its options: {refused}")

    @classmethod
    def command(cls, pulp: Any, limits: Limits, warm: bool, log: Path) -> Any:
        """CBC with its own option names."""
        # CBC's gap is relative to the larger of bound and objective, ours to the objective.
        gap = (limits.gap or 0.0) / (1.0 + (limits.gap or 0.0))
        # With `threads 1` CBC passes its nodes to another thread, which it may fail to wake for 10
        # s. Without the option it searches in the calling thread.
        threads = limits.threads if limits.threads > 1 else None
        extra = [
            f"primalTolerance {max(limits.tolerance, 1e-9)}",
            f"dualTolerance {max(limits.tolerance, 1e-9)}",
            f"randomSeed {limits.seed + 1}",
            f"randomCbcSeed {limits.seed + 1}",
        ]
        if limits.work is not None:
            extra.append(f"maxNodes {limits.work}")
        extra += [f"{name} {value}" for name, value in limits.options.items()]
        return pulp.PULP_CBC_CMD(
            msg=False,
            timeLimit=limits.time,
            gapRel=gap,
            threads=threads,
            options=extra,
            warmStart=warm,
            logPath=str(log),
        )


class Gurobi(PulpSolver):
    """Gurobi, where the user has it."""

    name = "gurobi"
    optional = True
    engine = "GUROBI"


class Cplex(PulpSolver):
    """CPLEX, where the user has it."""

    name = "cplex"
    optional = True
    engine = "CPLEX_PY"


class Mosek(PulpSolver):
    """MOSEK, where the user has it."""

    name = "mosek"
    optional = True
    engine = "MOSEK"


class Xpress(PulpSolver):
    """FICO Xpress, where the user has it."""

    name = "xpress"
    optional = True
    engine = "XPRESS_PY"


class Copt(PulpSolver):
    """COPT, where the user has it."""

    name = "copt"
    optional = True
    engine = "COPT"
