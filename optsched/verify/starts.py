"""Start points: a previous solution or a ``.sol`` file as totals of the class columns of a
program."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from optsched.arrays import FloatArray
from optsched.assembly import formulation_of
from optsched.candidates import Candidates, Classes
from optsched.errors import InvalidArgument, InvalidInput, UsageError
from optsched.formats.mps import allocation_names, linear_program
from optsched.formats.sol import SUFFIX, read_start, sol_text
from optsched.formulation import Formulation, Infeasible
from optsched.instance.reading import show, validate
from optsched.program import AllocationProgram, LinearArrays
from optsched.program.time_indexed import time_indexed
from optsched.solution import Schedule, Solution
from optsched.solution.document import AllocationRow, RowColumns, SolutionDocument
from optsched.solution.plan import LinearPlan, Plan, TimelinePlan
from optsched.verify.findings import Findings
from optsched.verify.plans import schedule_of
from optsched.verify.reading import read_solution
from optsched.verify.rows import Resolver

log = logging.getLogger("optsched")

StartSource = Solution | Mapping[str, Any] | str | Path | FloatArray
"""A solution, its document or file, a ``.sol`` file, or totals of the class columns."""


def start_point(
    source: StartSource, formulation: Formulation, candidates: Candidates
) -> FloatArray:
    """The point of a formulation's class columns of a start.

    Rows of a solution are found among the columns by job, pool, GPUs, nodes and option; jobs that
    have left, pools that are gone and ways to run that no longer exist are left out, and counted in
    the log.

    Raises
    ------
    InvalidInput
        If a file cannot be read, or names what the program does not have (``.sol`` only).
    UsageError
        If the formulation has no program, or an array has the wrong length.
    """
    if formulation.sense == "rule":
        raise UsageError(
            f"{formulation.name} is a rule: it solves no program that could start somewhere"
        )
    C = formulation.classes(candidates)
    try:
        program = formulation.program(C)
    except Infeasible:
        return np.zeros(C.columns)  # nothing will be solved
    if not isinstance(program, AllocationProgram):
        return _plan_start(source, program)
    if isinstance(source, np.ndarray):
        if source.shape != (C.columns,):
            raise InvalidArgument(
                "start", f"the shape {source.shape}", f"({C.columns},), the class columns"
            )
        return np.asarray(source, np.float64)
    if isinstance(source, str | Path) and Path(source).suffix.lower() == SUFFIX:
        return _from_names(Path(source), program)
    return _from_rows(_document(source).allocation, C)


def _from_names(path: Path, program: AllocationProgram) -> FloatArray:
    """From names as `optsched export` writes them; auxiliary columns are recomputed later."""
    arrays = program.to_linear().arrays
    names = allocation_names(program, arrays)
    return program.allocation_of(read_start(path, names.columns, arrays.objective))


# --- plans ----------------------------------------------------------------------------------------


def _plan_start(source: StartSource, plan: Plan) -> FloatArray:
    """All columns of a linear plan; starts and modes of a timeline.

    A plan starts from a whole schedule only.
    """
    if isinstance(source, np.ndarray):
        raise InvalidArgument(
            "start", "an array", "a solution with a schedule, its file, or a .sol file"
        )
    if isinstance(source, str | Path) and Path(source).suffix.lower() == SUFFIX:
        # A timeline is exported in its time-indexed form: names of a file are those of that
        # program.
        lowered = time_indexed(plan.timeline) if isinstance(plan, TimelinePlan) else None
        arrays = linear_program(plan).arrays
        point = read_start(Path(source), allocation_names(plan, arrays).columns, arrays.objective)
        return point if lowered is None else np.concatenate(lowered.read(point)).astype(np.float64)
    schedule = _schedule(source, plan.classes)
    try:
        if isinstance(plan, LinearPlan):
            return plan.complete(schedule)
        return np.concatenate(plan.complete(schedule)).astype(np.float64)
    except ValueError as error:
        raise UsageError(f"the start is no schedule of this program: {error}") from None


def _schedule(source: Solution | Mapping[str, Any] | str | Path, C: Classes) -> Schedule:
    document = _document(source)
    rows = document.schedule
    findings = Findings()
    if rows is None:
        raise UsageError(
            "the start has no schedule: it is of a formulation that decides fractions of time"
        )
    schedule = schedule_of(C, rows, findings)
    if schedule is None:
        raise UsageError(f"the start is no schedule of this program: {findings.items[0]}")
    return replace(schedule, layouts=document.layouts)


def planned_point(plan: Plan, schedule: Schedule) -> tuple[LinearArrays, FloatArray]:
    """The linear program of a plan, and the point in it of a schedule."""
    if isinstance(plan, LinearPlan):
        return plan.program.arrays, plan.complete(schedule)
    lowered = time_indexed(plan.timeline)
    return lowered.program.arrays, lowered.complete(*plan.complete(schedule))


# --- allocations ----------------------------------------------------------------------------------


def _document(source: Solution | Mapping[str, Any] | str | Path) -> SolutionDocument:
    if not isinstance(source, Solution | Mapping | str | Path):
        raise InvalidArgument("start", show(source), "a solution, its file, or an array")
    if isinstance(source, Solution):
        return validate(SolutionDocument, source.to_document())
    findings = Findings()
    document = read_solution(source, findings)
    if document is None:
        file = str(source) if isinstance(source, str | Path) else ""
        problem = f"no solution ({findings.items[0]})"
        raise InvalidInput("start", problem, "a solution file of optsched, or a .sol file", file)
    return document


def _from_rows(rows: RowColumns[AllocationRow], C: Classes) -> FloatArray:
    # A start is a hint: rows of jobs that have left are dropped, not refused.
    dropped = Findings()
    _, _, column = Resolver(C).resolve(rows, "allocation", dropped)
    x = np.zeros(C.columns + 1)  # the last is for rows without a column, which is -1
    np.add.at(x, column, rows.column("fraction"))
    x = x[:-1]
    level = logging.WARNING if len(dropped) else logging.INFO
    none = ": nothing is left of it" if dropped.items and not x.any() else ""
    log.log(
        level,
        "start: %d rows of the allocation, %d of them no longer possible%s",
        len(rows),
        len(dropped),
        none,
    )
    for finding in dropped.items:
        log.debug("start: left out %s", finding)
    return x


def sol_of(solution: Solution) -> bytes:
    """An allocation as a ``.sol`` file for the program that `optsched export` writes;
    auxiliary columns included.

    Raises
    ------
    UsageError
        If there is no allocation, or the program is not one that can be exported.
    """
    # A file of names holds one point of one linear program: what has none is refused.
    if solution.allocation is None:
        raise UsageError(f"there is no allocation to be written as {SUFFIX}: {solution.status}")
    if solution.extended:
        raise UsageError(f"rows made by extend have no names in a {SUFFIX} file")
    formulation = formulation_of(solution)
    if formulation.sense == "rule":
        raise UsageError(f"{formulation.name} is a rule: it has no program, and no {SUFFIX} file")
    program = formulation.program(solution.allocation.classes)
    if isinstance(program, AllocationProgram):
        if program.concave:
            problem = (
                f"{formulation.name} is not linear, "
                f"and {SUFFIX} files are points of linear programs"
            )
            raise UsageError(f"{problem}: write the solution as .json")
        arrays = program.to_linear().arrays
        x = program.complete(solution.allocation.x)
    else:
        assert solution.schedule is not None
        arrays, x = planned_point(program, solution.schedule)
    return sol_text(arrays.objective(x), allocation_names(program, arrays).columns, x)
