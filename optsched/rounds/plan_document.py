"""A plan as a document, ``optsched-plan/1``."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from optsched.instance.documents import Document

FORMAT = "optsched-plan/1"


class PlannedInstance(Document):
    """Which instance was planned for."""

    name: str
    sha256: str


class Seated(Document):
    """A job that runs: its GPUs, as ``node/index`` and by node, since when,
    and steps/s that it is expected to make. ``begins``: when it has its GPUs to itself, where jobs
    that were stopped hold them until then.

    Where its configuration is more than GPUs: its share of each, the place in its own list of
    options, its workers and servers.
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
    begins: float | None = None
    reason: str | None = None


class Waiting(Document):
    """A job that does not run, and why."""

    job: str
    reason: str


class Declined(Document):
    """A job that is not held to what it asks for, such as a deadline, and why."""

    job: str
    reason: str


class CellOfTenant(Document):
    """A cell that is reserved for a tenant, and its GPUs in this round."""

    tenant: str
    gpus: list[str]


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
    begins: float | None = None


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
    """Jobs by what happens to them, GPUs that are usable and in use,
    and the share of each pool that is in use.

    What a job that cannot be preempted holds on a node that takes no more work counts as usable.
    """

    jobs: dict[str, int]
    gpus: int
    gpus_in_use: int
    utilisation: dict[str, float | None]


class PlanThroughput(Document):
    """Sum over jobs of their rates, each as a part of its best one: what the round reaches,
    and a bound on what any round could.
    """

    reached: float
    bound: float | None


class PlanFragmentation(Document):
    """GPUs that are free in the round, shares included, and those of them that a job of the mix has
    no room on, on average over the jobs.
    """

    free: float
    gpus: float


class PlanDocument(Document):
    """What happens in a round; numbers that do not exist are null."""

    format: Literal["optsched-plan/1"]
    id: str
    round: int
    now: float
    until: float
    instance: PlannedInstance
    start: list[Seated]
    keep: list[Seated]
    move: list[Seated]
    preempt: list[Waiting]
    hold: list[Waiting]
    declined: list[Declined] = Field(default_factory=list)
    cells: list[CellOfTenant] = Field(default_factory=list)
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
    throughput: PlanThroughput | None = None
    fragmentation: PlanFragmentation | None = None
    reproducible: bool
    started_from: str
    timings: dict[str, float]


def plan_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of ``optsched-plan/1``."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema"
    } | PlanDocument.model_json_schema()
