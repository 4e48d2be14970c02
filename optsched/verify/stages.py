"""Stages of a solution file: each is built again, and its duals must prove what later programs
use."""

from __future__ import annotations

import numpy as np

from optsched.program import AllocationProgram, Method
from optsched.program.filling import Filling
from optsched.program.relaxing import RelaxedRows
from optsched.registry import load_solver
from optsched.solution.certificate import LARGEST_SHARE, OPTIMALITY, dual_bound, row_sign_error
from optsched.solution.document import SolutionDocument, StageDocument
from optsched.solution.stage import Stage
from optsched.solving.engine import Engine
from optsched.solving.stages import RELAXING, solve_staged
from optsched.solving.water_filling import (
    CLOSES,
    FILLING,
    MARKS,
    MET,
    WRONG_SIGN,
    filling_of,
    replayed,
)
from optsched.verify.findings import Findings

ROUNDING = 1e-12
"""Absolute rounding of a bound that may be 0."""


def settle(
    document: SolutionDocument, program: AllocationProgram, findings: Findings
) -> AllocationProgram | None:
    """The last program, to which the allocation belongs; None with findings if a stage is wrong.

    Duals of stages may be left out where there are many rows: the stages are solved again then.
    """
    if document.status not in ("optimal", "feasible") and not claims_no_time(document):
        return program
    stages = document.stages or []
    relaxation = RelaxedRows(program)
    first = 0
    # Requirements give way first: all other stages use the relaxed requirements.
    if relaxation.needed:
        relaxed = _check_relaxing(relaxation, stages[:1], findings)
        if relaxed is None:
            return None
        program = relaxed
        first = 1
    if program.utility.method is not Method.WATER_FILLING:
        expected = stages[:first] or None
        findings.same(
            "stages",
            document.stages,
            expected,
            f"{document.formulation} solves one program",
        )
        return program
    # Without duals nothing can be replayed: the stages are solved again.
    if len(stages) > first and all(stage.duals is None for stage in stages[first:]):
        filled = solve_staged(Engine(load_solver), program).program
        assert isinstance(filled, AllocationProgram)
        return filled
    filling = filling_of(program, [_stage(stage) for stage in stages[first:]])
    for index, stage in enumerate(stages[first:], first):
        if not _check_stage(filling, stage, f"stages[{index}]", findings):
            return None
    if not filling.done and document.status == "optimal":
        findings.add(
            "stages",
            f"found {len(stages)}, after which jobs can still rise: the solution is not optimal",
        )
    return filling.final()


def claims_no_time(document: SolutionDocument) -> bool:
    """Whether the file claims that every allocation leaves a job without any time."""
    return document.status == "infeasible" and LARGEST_SHARE in document.certificate.residuals


def _check_relaxing(
    relaxation: RelaxedRows, stages: list[StageDocument], findings: Findings
) -> AllocationProgram | None:
    """Rows that gave way: by as little as the file says, and by as little as they must."""
    path = "stages[0]"
    before = len(findings)
    if not stages or stages[0].name != RELAXING or sorted(stages[0].kept) != ["short"]:
        findings.add(
            "stages",
            "expected a first stage that says which requirements give way, and by how much",
        )
        return None
    stage = stages[0]
    short = np.array(stages[0].kept["short"])
    if short.shape != relaxation.weight.shape or not ((short >= 0) & (short <= 1)).all():
        findings.add(
            f"{path}.kept.short",
            f"expected {len(relaxation.weight)} parts between 0 and 1, one per row",
        )
        return None
    findings.close(
        f"{path}.value",
        stage.value,
        relaxation.value(short),
        "what its parts add up to",
    )
    findings.same(f"{path}.words", stage.words, list(relaxation.words(short)))
    arrays = relaxation.to_linear().arrays
    # Duals prove nothing of whole jobs.
    if not arrays.is_integer:
        duals = stage.duals or {}
        if {block.name: len(block) for block in arrays.rows} != {
            name: len(block) for name, block in duals.items()
        }:
            findings.add(f"{path}.duals", "they are not those of the rows of its program")
            return None
        y = np.concatenate([duals[block.name] for block in arrays.rows])
        if row_sign_error(arrays, y) > WRONG_SIGN:
            findings.add(f"{path}.duals", "some have a sign that their rows cannot have")
        bound = dual_bound(arrays, y)
        findings.close(
            f"{path}.bound",
            stage.bound,
            bound,
            "what its duals give",
            absolute=ROUNDING,
        )
    size = OPTIMALITY * max(1.0, float(relaxation.weight.sum()))
    if stage.bound is None or not abs(stage.value - stage.bound) <= size:
        findings.add(
            f"{path}.value",
            f"found {stage.value!r}, but the least that is proved is {stage.bound!r}",
        )
    return relaxation.relaxed(short) if len(findings) == before else None


def _check_stage(filling: Filling, stage: StageDocument, path: str, findings: Findings) -> bool:
    before = len(findings)
    findings.same(f"{path}.name", stage.name, FILLING)
    findings.same(f"{path}.words", stage.words, [])
    kept = [CLOSES] * filling.closes + [MET] * (MET in stage.kept) + ["segment", "slack"]
    findings.same(f"{path}.kept", sorted(stage.kept), kept, "what a stage of filling keeps")
    if len(findings) > before or any(len(numbers) != 1 for numbers in stage.kept.values()):
        findings.add(f"{path}.kept", f"expected one number for each of {', '.join(kept)}")
        return False
    if filling.closes and stage.kept[CLOSES][0] not in MARKS:
        findings.add(
            f"{path}.kept.{CLOSES}", f"found {stage.kept[CLOSES][0]!r}, expected 1, 2, 3 or 4"
        )
    # A stage begins where the last one stopped, and may not end before that.
    start = filling.clock
    try:
        bound, unit = replayed(filling, _stage(stage))
    except ValueError as error:
        findings.add(path, str(error))
        return False
    findings.close(f"{path}.bound", stage.bound, bound, "what its duals give")
    if stage.value < start * (1 - OPTIMALITY):
        findings.add(
            f"{path}.value", f"found {stage.value!r}, below {start!r}, which was reached before"
        )
    excess = stage.value - (np.inf if bound is None else bound)
    # No level rises by more than its highest in a unit of the clock.
    if not abs(excess) <= OPTIMALITY * unit:
        findings.add(f"{path}.value", f"found {stage.value!r}, but its duals prove {bound!r}")
    return len(findings) == before


def _stage(document: StageDocument) -> Stage:
    return Stage(
        document.name,
        document.value,
        document.bound,
        None
        if document.duals is None
        else {name: np.array(block) for name, block in document.duals.items()},
        {name: np.array(numbers) for name, numbers in document.kept.items()},
    )
