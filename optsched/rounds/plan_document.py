"""A plan as a document, ``optsched-plan/1``."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from pydantic import Field

from optsched.arrays import IntArray
from optsched.instance.cluster import NONE
from optsched.instance.documents import Document
from optsched.instance.running import RunningJobs
from optsched.rounds.plan import RUNS, Action, Decision, Plan, Verdict

FORMAT = "optsched-plan/1"


class Instance(Document):
    """Which instance was planned for."""

    name: str
    sha256: str


class Seated(Document):
    """A job that runs: its GPUs, as ``node/index`` and by node, since when, and steps/s that it is reckoned to make.

    Where its configuration is more than GPUs: its share of each, the place in its own list of options, its workers and
    servers.
    """

    job: str
    pool: str | None
    gpus: list[str]
    nodes: dict[str, list[int]]
    since: float | None
    throughput: float | None
    share: float = 1.0
    option: int | None = None
    workers: int = 0
    servers: int = 0
    reason: str | None = None


class Waiting(Document):
    """A job that does not run, and why."""

    job: str
    reason: str


class Step(Document):
    """One step of the way from what runs now to the plan, and of a start how the job is to run."""

    kind: Literal["stop", "start"]
    job: str
    pool: str | None
    gpus: list[str]
    share: float = 1.0
    option: int | None = None
    workers: int = 0
    servers: int = 0


class AllocationEntry(Document):
    """A row of the allocation, as in a solution file."""

    job: str | None = None
    jobs: list[str] | None = None
    pool: str | None
    gpus: int
    nodes: int
    fraction: float
    share: float = 1.0
    attributes: dict[str, Any] = Field(default_factory=dict)
    option: int | None = None


class PlanCertificate(Document):
    """Whether the check of the allocation holds, and what its bound rests on."""

    ok: bool
    proof: str


class PlanMetrics(Document):
    """Jobs by what happens to them, GPUs that are usable and in use, and the share of each pool that is in use.

    What a job that cannot be preempted holds on a node that takes no more work counts as usable.
    """

    jobs: dict[str, int]
    gpus: int
    gpus_in_use: int
    utilisation: dict[str, float | None]


class PlanDocument(Document):
    """What happens in a round; numbers that do not exist are null."""

    format: Literal["optsched-plan/1"]
    id: str
    round: int
    now: float
    until: float
    instance: Instance
    start: list[Seated]
    keep: list[Seated]
    move: list[Seated]
    preempt: list[Waiting]
    hold: list[Waiting]
    actions: list[Step]
    formulation: str | None
    status: str | None
    objective: float | None
    bound: float | None
    gap: float | None
    certificate: PlanCertificate | None
    allocation: list[AllocationEntry]
    prices: dict[str, float]
    fallback: str | None
    notices: list[str]
    metrics: PlanMetrics
    reproducible: bool
    started_from: str
    timings: dict[str, float]


def plan_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of ``optsched-plan/1``."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema"
    } | PlanDocument.model_json_schema()


def plan_document(plan: Plan) -> dict[str, Any]:
    """See `Plan.to_document`."""
    from optsched.rounds.digest import plan_digest

    solution = plan.solution
    return {
        "format": FORMAT,
        "id": plan_digest(plan),
        "round": plan.number,
        "now": plan.now,
        "until": plan.until,
        "instance": {"name": plan.instance.name, "sha256": plan.instance.sha256},
        "start": _seated(plan, plan.start),
        "keep": _seated(plan, plan.keep),
        "move": _seated(plan, plan.move),
        "preempt": [{"job": item.job, "reason": item.reason} for item in plan.preempt],
        "hold": [{"job": item.job, "reason": item.reason} for item in plan.hold],
        "actions": [_step(step) for step in plan.diff()],
        "formulation": None if solution is None else solution.formulation,
        "status": None if solution is None else solution.status.value,
        "objective": None if solution is None else finite(solution.objective),
        "bound": None if solution is None else finite(solution.bound),
        "gap": None if solution is None else finite(solution.gap),
        "certificate": None
        if solution is None
        else {"ok": solution.certificate.ok, "proof": solution.certificate.proof},
        "allocation": []
        if solution is None or solution.allocation is None
        else solution.allocation.to_records(),
        "prices": {}
        if solution is None
        else {name: float(price) for name, price in solution.prices.items()},
        "fallback": plan.fallback,
        "notices": list(plan.notices),
        "metrics": metrics(plan),
        "reproducible": True if solution is None else solution.reproducible,
        "started_from": plan.started_from,
        "timings": dict(plan.timings),
    }


def metrics(plan: Plan) -> dict[str, Any]:
    """Counts and shares of a plan."""
    cluster, now = plan.instance.cluster, plan.now
    gpus, numbering = cluster.gpus(now) + _held_besides(plan), cluster.numbering
    held = np.zeros(numbering.gpus, bool)
    gpu = RunningJobs.of(plan.running).numbers(numbering)
    held[gpu[gpu != NONE]] = True
    used = np.bincount(
        np.repeat(numbering.pool, np.diff(numbering.start))[held], minlength=len(gpus)
    )
    count = np.bincount(plan.verdict, minlength=len(Verdict))
    return {
        "jobs": {verdict.name.lower(): int(count[verdict]) for verdict in Verdict},
        "gpus": int(gpus.sum()),
        "gpus_in_use": int(used.sum()),
        "utilisation": {
            pool.name: float(mine / there) if there else None
            for pool, mine, there in zip(cluster.pools, used.tolist(), gpus.tolist(), strict=True)
        },
    }


def _held_besides(plan: Plan) -> IntArray:
    """GPUs that are held on nodes which take no more work, by pool: jobs that cannot be preempted stay there."""
    cluster, preemptible = plan.instance.cluster, plan.instance.jobs_table.preemptible
    numbering = cluster.numbering
    places = RunningJobs.of(plan.running)
    gpu = np.unique(places.numbers(numbering)[~preemptible[places.job][places.owner]])
    usable = np.concatenate([*(pool.usable(plan.now) for pool in cluster.pools), np.zeros(0, bool)])
    node = numbering.node_of(gpu)
    return np.bincount(numbering.pool[node[~usable[node]]], minlength=len(cluster.pools))


def _seated(plan: Plan, items: tuple[Decision, ...]) -> list[dict[str, Any]]:
    names = plan.instance.jobs_table.names
    row = {names[job]: job for job in np.flatnonzero(np.isin(plan.verdict, RUNS)).tolist()}
    rows = []
    for item in items:
        job = row[item.job]
        speed = float(plan.speed[job])
        since = plan.running[job][2] if job in plan.running else None
        told: dict[str, Any] = {"job": item.job, "pool": item.pool, "gpus": list(item.gpus)}
        told |= {"nodes": item.nodes, "since": since, "throughput": speed if speed > 0 else None}
        told |= item.setup.told()
        rows.append(told | ({"reason": item.reason} if item.reason else {}))
    return rows


def _step(step: Action) -> dict[str, Any]:
    return {
        "kind": step.kind,
        "job": step.job,
        "pool": step.pool,
        "gpus": list(step.gpus),
    } | step.setup.told()


def finite(value: float | None) -> float | None:
    """A number, or None where there is none: JSON has no infinity."""
    return float(value) if value is not None and np.isfinite(value) else None
