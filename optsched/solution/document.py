"""The solution format ``optsched-solution/1``: what is written, and the models that read it back."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, Strict

from optsched.solution.certificate import gap_of
from optsched.solution.explanation import Explanation, assumptions_of
from optsched.solution.solution import DUAL_ROWS, Solution, SolverRecord, Status
from optsched.solution.values import Termination

FORMAT = "optsched-solution/1"


def solution_document(solution: Solution, all_duals: bool = False) -> dict[str, Any]:
    """The solution as plain data; numbers that do not exist are null."""
    duals = solution.duals
    write_duals = duals is not None and (
        all_duals or sum(len(block) for block in duals.values()) <= DUAL_ROWS
    )
    document: dict[str, Any] = {
        "format": FORMAT,
        "instance": {"name": solution.instance.name, "sha256": solution.instance.sha256},
        "formulation": solution.formulation,
        "options": dict(solution.options),
        "constraints": [dict(constraint) for constraint in solution.constraints],
        "solver": solver_document(solution.solver),
        "classes": solution.candidates.aggregate,
        "sense": solution.sense,
        "objective": _finite(solution.objective),
        "bound": _finite(solution.bound),
        "bound_source": solution.bound_source,
        "gap": gap_of(solution.objective, solution.bound),
        "termination": str(solution.termination),
        "status": str(solution.status),
        "reproducible": solution.reproducible,
        "certificate": {
            "ok": solution.certificate.ok,
            "proof": solution.certificate.proof,
            "residuals": dict(solution.certificate.residuals),
            "problems": list(solution.certificate.problems),
        },
        "allocation": [] if solution.allocation is None else solution.allocation.to_records(),
        "throughput": dict(solution.throughput),
        "prices": dict(solution.prices),
        "duals": {name: block.tolist() for name, block in duals.items()}
        if write_duals and duals is not None
        else None,
        "conflicts": [conflict.words for conflict in solution.conflicts],
        "unplaced": [{"job": job, "reason": reason} for job, reason in solution.unplaced],
        "metrics": dict(solution.metrics),
        "timings": dict(solution.timings),
    }
    if solution.explanation is not Explanation.IRREDUCIBLE:
        document["explanation"] = str(solution.explanation)
    if solution.notes:
        document["notes"] = list(solution.notes)
    if solution.figures:
        document["figures"] = {name: dict(figure) for name, figure in solution.figures.items()}
    assumed = assumptions_of(solution.conflicts)
    if assumed:
        document["assumptions"] = [item.words for item in assumed]
    if solution.declined:
        document["declined"] = [{"job": job, "reason": reason} for job, reason in solution.declined]
    if solution.columns_made is not None:
        document["columns_made"] = solution.columns_made._asdict()
    if solution.packed is not None:
        document["packed"] = {
            name: value for name, value in solution.packed._asdict().items() if value is not None
        }
    if solution.stages:
        rows = sum(
            sum(map(len, stage.duals.values()))
            for stage in solution.stages
            if stage.duals is not None
        )
        document["stages"] = [
            stage.to_record(all_duals or rows <= DUAL_ROWS) for stage in solution.stages
        ]
    if solution.schedule is not None:
        document["schedule"] = solution.schedule.to_records()
    if solution.rounds is not None:
        document["rounds"] = solution.rounds.to_record(solution.instance.round)
    if solution.placement is not None:
        document["placement"] = solution.placement.to_records(solution.instance.jobs_table.names)
        document["placement_figures"] = dict(solution.placement.figures)
        names = solution.instance.jobs_table.names
        if solution.placement.contradicted:
            document["placement_contradicts"] = [
                {"job": names[job], "reason": reason}
                for job, reason in solution.placement.contradicted
            ]
    return json.loads(json.dumps(document, default=_plain))  # type: ignore[no-any-return]


def solver_document(record: SolverRecord) -> dict[str, Any]:
    """Which solver was used, and the attempts that were made where it was not the only one."""
    document: dict[str, Any] = {
        "name": record.name,
        "version": record.version,
        "options": dict(record.options),
        "seed": record.seed,
        "gap": record.gap,
    }
    if record.attempts:
        document["attempts"] = [attempt._asdict() for attempt in record.attempts]
    return document


def _finite(value: float | None) -> float | None:
    """A number that does not exist, as the makespan of a job that makes no progress, is null."""
    return value if value is not None and np.isfinite(value) else None


def _plain(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"a {type(value).__name__} has no place in a solution file")


# --- reading -------------------------------------------------------------------------------------------------------


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


Number = Annotated[float, Field(allow_inf_nan=False)]


class InstanceReference(_Model):
    """Which instance was solved."""

    name: str
    sha256: str


class AttemptDocument(_Model):
    """An attempt at the program."""

    name: str
    outcome: str


class SolverDocument(_Model):
    """Which solver was used."""

    name: str
    version: str
    options: dict[str, Any]
    seed: int
    gap: Number | None
    attempts: list[AttemptDocument] | None = None


class CertificateDocument(_Model):
    """The certificate as written."""

    ok: bool
    proof: Literal["dual", "claimed", "cross-checked", "rule", "none"]
    residuals: dict[str, Number]
    problems: list[str]


class AllocationRow(_Model):
    """One row of the allocation."""

    job: str | None = None
    jobs: Annotated[tuple[str, str], Strict(False)] | None = None
    pool: str | None
    gpus: int
    nodes: int
    fraction: Number
    share: Number = 1.0
    attributes: dict[str, Any] = Field(default_factory=dict)
    option: int | None = None


class ScheduleRow(_Model):
    """A stretch of time in which a job runs."""

    job: str
    pool: str | None
    gpus: int
    nodes: int
    start: Number
    end: Number
    share: Number = 1.0
    attributes: dict[str, Any] = Field(default_factory=dict)
    option: int | None = None


class UnplacedRow(_Model):
    """A job that is not in the program, or that the placement does not let run on."""

    job: str
    reason: str


class SliceDocument(_Model):
    """A part of the window in which some rows of the allocation run."""

    duration: Number
    run: list[int]


class RoundsDocument(_Model):
    """The allocation cut into slices."""

    method: Literal["at-once", "open-shop", "patterns", "priority"]
    window: Number
    scale: Number
    bound: Number
    finished: bool
    slices: list[SliceDocument]


class PlacementRow(_Model):
    """GPUs of one row of the allocation, or why it has none."""

    row: Annotated[int, Field(ge=0)]
    job: str | None = None
    jobs: Annotated[tuple[str, str], Strict(False)] | None = None
    gpus: list[str]
    reason: str | None = None


class ColumnsMadeDocument(_Model):
    """How many columns were made, of how many that could be."""

    of: Literal["pairs", "configurations"]
    made: Annotated[int, Field(ge=0)]
    possible: Annotated[int, Field(ge=0)]


class PackedDocument(_Model):
    """How many rows that run side by side find whole GPUs."""

    rows: int
    held: int
    most: int
    time: Number | None = None


class StageDocument(_Model):
    """A program that was solved before the last one."""

    name: str
    value: Number
    bound: Number | None
    duals: dict[str, list[Number]] | None
    kept: dict[str, list[Number]]
    words: list[str]


class SolutionDocument(_Model):
    """A whole solution file."""

    format: Literal["optsched-solution/1"]
    instance: InstanceReference
    formulation: str
    options: dict[str, Any]
    constraints: list[dict[str, Any]]
    solver: SolverDocument
    classes: bool
    sense: Literal["max", "min", "rule"]
    objective: Number | None
    bound: Number | None
    bound_source: Literal["dual", "solver", "relaxation", "none"]
    gap: Number | None
    termination: Annotated[Termination, Strict(False)]
    status: Annotated[Status, Strict(False)]
    reproducible: bool
    certificate: CertificateDocument
    allocation: list[AllocationRow]
    throughput: dict[str, Number]
    prices: dict[str, Number]
    duals: dict[str, list[Number]] | None
    conflicts: list[str]
    assumptions: list[str] | None = None
    unplaced: list[UnplacedRow]
    declined: list[UnplacedRow] | None = None
    metrics: dict[str, Any]
    timings: dict[str, Number]
    explanation: Annotated[Explanation, Strict(False)] = Explanation.IRREDUCIBLE
    notes: list[str] = Field(default_factory=list)
    figures: dict[str, dict[str, Number]] | None = None
    columns_made: ColumnsMadeDocument | None = None
    packed: PackedDocument | None = None
    stages: list[StageDocument] | None = None
    schedule: list[ScheduleRow] | None = None
    rounds: RoundsDocument | None = None
    placement: list[PlacementRow] | None = None
    placement_figures: dict[str, Number] | None = None
    placement_contradicts: list[UnplacedRow] | None = None
