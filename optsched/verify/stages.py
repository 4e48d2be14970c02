"""Stages of a solution file: each one is built again, and its duals must prove what later programs take from it."""

from __future__ import annotations

import numpy as np

from optsched.engine import Engine
from optsched.program import AllocationProgram, LexicographicMinimum
from optsched.program.filling import Filling
from optsched.registry import load_solver
from optsched.solution.certificate import OPTIMALITY
from optsched.solution.document import SolutionDocument, StageDocument
from optsched.solution.stage import Stage
from optsched.staging import FILLING, replayed, solve_allocation
from optsched.verify.findings import Findings


def settle(document: SolutionDocument, program: AllocationProgram, findings: Findings) -> AllocationProgram | None:
    """The last program, whose allocation the file holds; None with findings where a stage is wrong.

    Duals of stages may be left out where there are many rows: the stages are solved again then.
    """
    if document.status not in ("optimal", "feasible"):
        return program
    stages = document.stages or []
    if not isinstance(program.utility, LexicographicMinimum):
        findings.same("stages", document.stages, None, f"{document.formulation} solves one program")
        return program
    if stages and all(stage.duals is None for stage in stages):
        return solve_allocation(Engine(load_solver), program).program
    filling = Filling(program)
    for index, stage in enumerate(stages):
        if not _check_stage(filling, stage, f"stages[{index}]", findings):
            return None
    if not filling.done and document.status == "optimal":
        findings.add("stages", f"found {len(stages)}, after which jobs can still rise: the solution is not optimal")
    return filling.final()


def _check_stage(filling: Filling, stage: StageDocument, path: str, findings: Findings) -> bool:
    before = len(findings)
    findings.same(f"{path}.name", stage.name, FILLING)
    findings.same(f"{path}.kept", sorted(stage.kept), ["segment", "slack"], "what a stage of filling keeps")
    if len(findings) > before or any(len(numbers) != 1 for numbers in stage.kept.values()):
        findings.add(f"{path}.kept", "expected one number for each of segment and slack")
        return False
    start = filling.clock
    try:
        bound, unit = replayed(filling, _stage(stage))
    except ValueError as error:
        findings.add(path, str(error))
        return False
    findings.close(f"{path}.bound", stage.bound, bound, "what its duals give")
    if stage.value < start * (1 - OPTIMALITY):
        findings.add(f"{path}.value", f"found {stage.value!r}, below {start!r}, which was reached before")
    excess = stage.value - (np.inf if bound is None else bound)
    if not abs(excess) <= OPTIMALITY * unit:  # no level rises by more than its highest in a unit of the clock
        findings.add(f"{path}.value", f"found {stage.value!r}, but its duals prove {bound!r}")
    return len(findings) == before


def _stage(document: StageDocument) -> Stage:
    return Stage(
        document.name,
        document.value,
        document.bound,
        None if document.duals is None else {name: np.array(block) for name, block in document.duals.items()},
        {name: np.array(numbers) for name, numbers in document.kept.items()},
    )
