"""The state of a round as a document, ``optsched-round/1``: an instance, and what only a round has.

Everything but the instance may be left out: then it is as before a first round. Jobs are named, so that whoever keeps
states as documents takes jobs out of the instance and puts others in as they come and go.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from optsched.instance import json_schema
from optsched.instance.documents import (
    Count,
    Document,
    Finite,
    Name,
    NonNegative,
    Pair,
    Share,
    Tuple,
)
from optsched.rounds.policy import RoundPolicy

FORMAT = "optsched-round/1"


class ReservationDocument(Document):
    """Nodes that take no work from ``start`` to ``end`` (seconds)."""

    nodes: Tuple[Name]
    start: Finite
    end: Finite
    name: str = ""


class LedgerRow(Document):
    """A job, or two that share GPUs, in a configuration: its part of the time, and what it is owed and has received."""

    job: Name | None = None
    jobs: Pair[Name] | None = None
    pool: Name | None
    gpus: Count
    nodes: Count
    option: Count | None = None
    workers: Count = 0
    servers: Count = 0
    share: Share = 1.0
    fraction: NonNegative = 0.0
    owed: Finite = 0.0
    received: Finite = 0.0
    runs: bool = False

    @model_validator(mode="after")
    def _one_or_two(self) -> LedgerRow:
        if (self.job is None) == (self.jobs is None):
            raise ValueError("a job or two jobs")
        return self


class JobService(Document):
    """What a job has had; null where there is no such time: it runs, or never ran."""

    executed: NonNegative = 0.0
    attained: NonNegative = 0.0
    waiting_since: Finite | None = None
    first_run: Finite | None = None
    starts: Count = 0
    speed: NonNegative = 0.0
    resumes: Finite = 0.0
    executed_before: NonNegative = 0.0
    attained_before: NonNegative = 0.0
    isolated: NonNegative = 0.0
    counted: NonNegative = 0.0
    owed: Finite = 0.0


class RoundDocument(Document):
    """What a round is decided from."""

    format: Literal["optsched-round/1"] = "optsched-round/1"
    round: Count = 0
    policy: RoundPolicy = RoundPolicy()
    reservations: Tuple[ReservationDocument] = ()
    service: dict[Name, JobService] = Field(default_factory=dict)
    ledger: Tuple[LedgerRow] = ()
    basis: str | None = None
    instance: dict[str, Any]


def state_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of ``optsched-round/1``."""
    schema = RoundDocument.model_json_schema()
    instance = dict(json_schema())
    version = instance.pop("$schema")
    parts = instance.pop("$defs", {})
    schema["$defs"] = {**schema.get("$defs", {}), **parts, "InstanceDocument": instance}  # type: ignore[dict-item]
    schema["properties"]["instance"] = {"$ref": "#/$defs/InstanceDocument"}
    return {"$schema": version} | schema
