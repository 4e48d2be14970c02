"""Where a solver starts: a previous solution, or a ``.sol`` file, as totals of the class columns of a new program."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from optsched.arrays import FloatArray
from optsched.assembly import make_formulation
from optsched.candidates import Candidates, Classes
from optsched.errors import InvalidInput, UsageError
from optsched.formats.mps import allocation_names
from optsched.formats.sol import SUFFIX, read_sol, sol_text
from optsched.formulation import Formulation, Infeasible
from optsched.instance.reading import validate
from optsched.solution import Solution
from optsched.solution.document import AllocationRow, SolutionDocument
from optsched.verify.findings import Findings
from optsched.verify.reading import read_solution
from optsched.verify.rows import Resolver

log = logging.getLogger("optsched")

StartSource = Solution | Mapping[str, Any] | str | Path | FloatArray
"""A solution, its document or file, a ``.sol`` file, or totals of the class columns."""


def start_point(source: StartSource, formulation: Formulation, candidates: Candidates) -> FloatArray:
    """The point of a formulation's class columns that a start stands for.

    Rows of a solution are found among the columns by job, pool, GPUs, nodes and option; jobs that have left, pools that
    are gone and ways to run that no longer exist are left out, and counted in the log.

    Raises
    ------
    InvalidInput
        If a file cannot be read, or names what the program does not have (``.sol`` only).
    UsageError
        If the formulation has no program, or an array has the wrong length.
    """
    if formulation.sense == "rule":
        raise UsageError(f"{formulation.name} is a rule: it solves no program that could start somewhere")
    C = formulation.classes(candidates)
    if isinstance(source, np.ndarray):
        if source.shape != (C.columns,):
            raise UsageError(f"start: found the shape {source.shape}, expected ({C.columns},), the class columns")
        return np.asarray(source, np.float64)
    if isinstance(source, str | Path) and Path(source).suffix.lower() == SUFFIX:
        return _from_names(Path(source), formulation, C)
    return _from_rows(_rows(source), C)


def _from_names(path: Path, formulation: Formulation, C: Classes) -> FloatArray:
    """From names as `optsched export` writes them; auxiliary columns are recomputed later."""
    try:
        program = formulation.program(C)
    except Infeasible:
        return np.zeros(C.columns)  # nothing will be solved
    arrays = program.to_linear().arrays
    return read_sol(path, allocation_names(program, arrays).columns)[: C.columns]


def _rows(source: Solution | Mapping[str, Any] | str | Path) -> list[AllocationRow]:
    if isinstance(source, Solution):
        return validate(SolutionDocument, source.to_document()).allocation
    findings = Findings()
    document = read_solution(source, findings)
    if document is None:
        raise InvalidInput("start", f"no solution ({findings.items[0]})", "a solution file of optsched, or a .sol file")
    return document.allocation


def _from_rows(rows: list[AllocationRow], C: Classes) -> FloatArray:
    resolver, x, dropped = Resolver(C), np.zeros(C.columns), Findings()
    for index, row in enumerate(rows):
        found = resolver.resolve(row, f"allocation[{index}]", dropped)
        if found is not None:
            x[found[2]] += row.fraction
    log.info("start: %d rows of the allocation, %d of them no longer possible", len(rows), len(dropped))
    for finding in dropped.items:
        log.debug("start: left out %s", finding)
    return x


def sol_of(solution: Solution) -> bytes:
    """An allocation as a ``.sol`` file for the program that `optsched export` writes; auxiliary columns included.

    Raises
    ------
    UsageError
        If there is no allocation, or the program is not one that can be exported.
    """
    if solution.allocation is None:
        raise UsageError(f"there is no allocation to be written as {SUFFIX}: {solution.status}")
    if any(item["kind"] == "extend" for item in solution.constraints):
        raise UsageError(f"rows made by extend have no names in a {SUFFIX} file")
    formulation = make_formulation(solution.formulation, solution.options, solution.constraints)
    if formulation.sense == "rule":
        raise UsageError(f"{formulation.name} is a rule: it has no program, and no {SUFFIX} file")
    program = formulation.program(solution.allocation.classes)
    arrays = program.to_linear().arrays
    x = program.complete(solution.allocation.x)
    return sol_text(arrays.objective(x), allocation_names(program, arrays).columns, x)
