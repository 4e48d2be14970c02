"""Programs that no formulation made:
from MPS and LP files or written block by block, solved and certified.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from numbers import Real
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from optsched.api import write_atomically
from optsched.arrays import FloatArray
from optsched.display import DisplayedTable, TableColumns, count, first_of
from optsched.errors import InvalidArgument, InvalidInput, UsageError
from optsched.formats.mps import ProgramNames, ReadProgram, program_names, read_program
from optsched.formats.sol import SUFFIX, read_sol, read_start, sol_text
from optsched.instance.arguments import checks_arguments
from optsched.instance.files import pretty_json, read_document
from optsched.instance.reading import show
from optsched.program import LinearArrays, LinearProgram
from optsched.registry import load_solver
from optsched.solution import Certificate, SolverRecord, Status, Termination
from optsched.solution.certificate import OPTIMALITY, gap_of, shown_gap
from optsched.solution.document import PROGRAM_FORMAT
from optsched.solution.explanation import Explanation
from optsched.solving.engine import Engine
from optsched.solving.limits import LimitOptions, make_limits, takes_limits, timer_of
from optsched.solving.outcome import Outcome, is_reproducible
from optsched.solving.proof import proved_linear
from optsched.verify.findings import Finding, Verification
from optsched.verify.program import NamedProgram, check_program
from optsched.verify.reading import parse_solution

# Values by name (0 where absent), values in the order of the columns, or a file: .sol, or what
# `write` writes.
PointSource = Mapping[str, Any] | FloatArray | str | Path


@dataclass(frozen=True, repr=False)
class ProgramSolution(DisplayedTable):
    """A linear or mixed-integer program, solved and certified.

    Attributes
    ----------
    name : str
    arrays : LinearArrays
        The program.
    names : ProgramNames
        Of its columns and rows.
    outcome : Outcome
        What the engine found; the attributes below are read from it.
    solver : SolverRecord
    timings : mapping
        Seconds by stage.
    """

    name: str
    arrays: LinearArrays
    names: ProgramNames
    outcome: Outcome
    solver: SolverRecord
    timings: Mapping[str, float] = field(default_factory=dict)

    @property
    def status(self) -> Status:
        """What the answer is worth."""
        return self.outcome.status

    @property
    def termination(self) -> Termination:
        """Why the solver stopped."""
        return self.outcome.values.termination

    @property
    def objective(self) -> float | None:
        """The objective of the point, recomputed."""
        return self.outcome.value

    @property
    def bound(self) -> float | None:
        """No point can be better."""
        return self.outcome.bound

    @property
    def gap(self) -> float | None:
        return gap_of(self.objective, self.bound)

    @property
    def certificate(self) -> Certificate:
        return self.outcome.certificate

    @property
    def ok(self) -> bool:
        """Whether the certificate holds."""
        return self.certificate.ok

    @property
    def x(self) -> FloatArray | None:
        """The point, in the order of the columns."""
        return self.outcome.x

    @cached_property
    def values(self) -> dict[str, float]:
        """The point by name; empty if there is none."""
        return {} if self.x is None else dict(zip(self.names.columns, self.x.tolist(), strict=True))

    @cached_property
    def duals(self) -> dict[str, float] | None:
        """Duals of the rows by name, as derivatives of the optimum;
        None for an integer program or without any.
        """
        if self.outcome.duals is None:
            return None
        y = np.concatenate(
            [np.zeros(0), *(self.outcome.duals[block.name] for block in self.arrays.rows)]
        )
        return dict(zip(self.names.rows, y.tolist(), strict=True))

    @cached_property
    def conflicts(self) -> tuple[str, ...]:
        """Names of rows that cannot all hold, of an infeasible program."""
        # Conflicts name a block and a position in it; files number rows through
        start = {block.name: block.start for block in self.arrays.rows}
        return tuple(
            self.names.rows[start[item.block] + item.position] for item in self.outcome.conflicts
        )

    def _headline(self) -> str:
        objective = "none" if self.objective is None else f"{self.objective:.9g}"
        seen = shown_gap(self.gap, self.status is Status.OPTIMAL, self.solver.gap)
        gap = "" if seen is None else f", gap {seen:.2g}"
        return f"{self.name}: {self.status}, objective {objective}{gap}, solver {self.solver.name}"

    def _facts(self) -> Mapping[str, str]:
        rows, columns = self.arrays.shape
        certificate = self.certificate
        holds = "holds" if certificate.ok else f"does not hold: {'; '.join(certificate.problems)}"
        return {
            "program": f"{count(rows, 'row')}, {count(columns, 'column')}",
            "certificate": f"{holds} ({certificate.proof})",
            "not 0": count(sum(value != 0 for value in self.values.values()), "column"),
            "conflicting rows": first_of(self.conflicts),
        }

    def to_columns(self, first: int | None = None) -> TableColumns:
        """The columns of the program with their values."""
        return {
            "column": list(self.values)[:first],
            "value": list(self.values.values())[:first],
        }

    @property
    def reproducible(self) -> bool:
        """False if the clock or the user stopped the run, one of several attempts,
        or the search for conflicts.
        """
        return is_reproducible(self.termination, self.outcome.explanation, self.solver.by_clock)

    def to_document(self) -> dict[str, Any]:
        """The solution as plain JSON; columns and duals that are 0 are left out."""
        rows, columns = self.arrays.shape
        duals = self.duals
        document = {
            "format": PROGRAM_FORMAT,
            "program": {
                "name": self.name,
                "rows": rows,
                "columns": columns,
                "integer": int(self.arrays.integer.sum()),
                "nonzeros": int(self.arrays.A.nnz),
                "sense": "max" if self.arrays.maximise else "min",
            },
            "solver": self.solver.to_document(),
            "objective": self.objective,
            "bound": self.bound,
            "bound_source": self.outcome.bound_source,
            "gap": self.gap,
            "termination": str(self.termination),
            "status": str(self.status),
            "reproducible": self.reproducible,
            "certificate": self.certificate.to_document(),
            "values": None
            if self.x is None
            else {name: value for name, value in self.values.items() if value != 0},
            "duals": None
            if duals is None
            else {name: value for name, value in duals.items() if value != 0},
            "conflicts": list(self.conflicts),
            "timings": dict(self.timings),
        }
        if self.outcome.explanation is not Explanation.IRREDUCIBLE:
            document["explanation"] = str(self.outcome.explanation)
        return json.loads(json.dumps(document))  # type: ignore[no-any-return]

    def write(self, path: str | Path) -> None:
        """Write the point as a ``.sol`` file, or everything as JSON;
        raises `UsageError` if there is no point.
        """
        # A .sol file holds a point and nothing else
        if Path(path).suffix.lower() != SUFFIX:
            write_atomically(path, pretty_json(self.to_document()).encode())
            return
        if self.x is None or self.objective is None:
            raise UsageError(f"there is no point to be written to {path}: {self.status}")
        write_atomically(path, sol_text(self.objective, self.names.columns, self.x))


@checks_arguments
@takes_limits
def solve_program(
    program: str | Path | LinearProgram | LinearArrays | ReadProgram,
    *,
    solver: str = "auto",
    start: PointSource | None = None,
    prove: bool = False,
    **limits: Unpack[LimitOptions],
) -> ProgramSolution:
    """Solve a linear or mixed-integer program and certify the answer.

    Parameters
    ----------
    program : path, LinearProgram, LinearArrays or ReadProgram
        A path is that of an MPS or LP file, see `optsched.formats.mps.read_program`.
    solver : str
        Registry name or ``auto``.
    start : mapping, array or path, optional
        A point to start from: values by name, values in order, a ``.sol`` file, or a JSON file that
        `write` wrote.
    prove, **limits : LimitOptions
        As in `optsched.solve`.

    Returns
    -------
    ProgramSolution
        Also of an infeasible or unbounded program (``status``).

    Raises
    ------
    UsageError, InvalidInput, SolverUnavailable, SolverCrashed, Interrupted
    """
    timer = timer_of(limits.get("time_limit"))
    budget = make_limits(**limits)
    started = time.perf_counter()
    given = _as_read(program)
    loaded = time.perf_counter()
    # The clock began before the file was read: reading counts
    engine = Engine(load_solver, solver, budget, prove, timer=timer)
    if start is not None:
        engine.start = point_of(start, given.names.columns, given.arrays.objective)
    outcome = proved_linear(engine, given.arrays, engine.solve_linear(given.arrays))
    record = engine.solver_record(outcome.solver, budget.gap if given.arrays.is_integer else None)
    timings = {"load": loaded - started, **engine.timings, "total": time.perf_counter() - started}
    return ProgramSolution(given.name, given.arrays, given.names, outcome, record, timings)


@checks_arguments
def verify_program(
    program: str | Path | LinearProgram | LinearArrays | ReadProgram,
    document: Mapping[str, Any] | str | Path,
    *,
    resolve: bool = False,
) -> Verification:
    """Check the solution of a program (a file that `ProgramSolution.write` wrote),
    with every number recomputed.

    Parameters
    ----------
    program : what `solve_program` takes
    document : mapping or path
        The solution in JSON; ``-`` is standard input.
    resolve : bool
        Also solve again and compare the objectives.

    Raises
    ------
    InvalidInput
        If a file cannot be read, is not JSON, or is no solution of a program. Everything else that
        is wrong with it is a finding.
    """
    given = _as_read(program)
    plain = parse_solution(document, PROGRAM_FORMAT)
    found = check_program(
        NamedProgram(given.name, given.arrays, given.names.columns, given.names.rows), plain
    )
    return _found_again(given, plain, found) if resolve and found.ok else found


def _found_again(
    program: ReadProgram, document: Mapping[str, Any], found: Verification
) -> Verification:
    """What was found, and whether another run agrees:
    an optimum is the same, no objective is beyond a bound.
    """
    again = solve_program(program)
    # A proof must be found again; a point or a limit may be anything this time.
    status = document["status"]
    stated = document["objective"]
    bound = document["bound"]
    reason = f"solving again gives {again.objective!r} ({again.status})"
    beyond = 0.0
    if again.objective is not None and bound is not None:
        beyond = again.objective - bound if program.arrays.maximise else bound - again.objective
    if status not in (again.status, Status.FEASIBLE, Status.LIMIT):
        wrong = Finding("status", f'found "{status}": {reason}')
    elif status == Status.OPTIMAL and (gap_of(again.objective, stated) or 0.0) > max(
        OPTIMALITY, document["solver"]["gap"] or 0.0
    ):
        wrong = Finding("objective", f"found {stated!r}: {reason}")
    elif beyond > OPTIMALITY * max(1.0, abs(again.objective or 0.0)):
        wrong = Finding("bound", f"found {bound!r}: {reason}")
    else:
        return found
    return Verification((wrong,), "not verifiable")


def _as_read(program: str | Path | LinearProgram | LinearArrays | ReadProgram) -> ReadProgram:
    if isinstance(program, ReadProgram):
        return program
    if isinstance(program, str | Path):
        return read_program(program)
    arrays = program if isinstance(program, LinearArrays) else program.arrays
    return ReadProgram(arrays, program_names(arrays), "program")


def point_of(
    source: PointSource,
    names: tuple[str, ...],
    objective: Callable[[FloatArray], float] | None = None,
) -> FloatArray:
    """A point in the order of the columns from what a user gives as one;
    raises `InvalidInput` or `UsageError`.

    With the program's objective given, a ``.sol`` file that may be of another program is logged.
    """
    if isinstance(source, np.ndarray):
        if source.shape != (len(names),):
            raise InvalidArgument(
                "start", f"the shape {source.shape}", f"({len(names)},), the columns"
            )
        return np.asarray(source, np.float64)
    where = "start"
    if isinstance(source, str | Path):
        if Path(source).suffix.lower() == SUFFIX:
            return (
                read_sol(source, names)
                if objective is None
                else read_start(source, names, objective)
            )
        where = str(source)
        source = read_document(source, "start", _values_of)
    place = {name: number for number, name in enumerate(names)}
    x = np.zeros(len(names))
    for name, value in source.items():
        if name not in place:
            raise InvalidInput(where, f"column {show(name)}", "a column of the program")
        if isinstance(value, bool) or not isinstance(value, Real) or not np.isfinite(float(value)):
            raise InvalidInput(where, f"{show(value)} for column {show(name)}", "a finite number")
        x[place[name]] = float(value)
    return x


def _values_of(document: Any) -> Mapping[str, Any]:
    values = (
        document.get("values")
        if isinstance(document, dict) and document.get("format") == PROGRAM_FORMAT
        else None
    )
    if not isinstance(values, dict):
        expected = f'a document with "format": "{PROGRAM_FORMAT}" and values, or a {SUFFIX} file'
        raise InvalidInput("", "no point", expected)
    return values
