"""The state of a round as a document, ``optsched-round/1``: an instance, and what only a round has.

Everything but the instance may be left out: then it is as before a first round. Jobs are named, so that whoever keeps
states as documents takes jobs out of the instance and puts others in as they come and go.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Literal

import numpy as np
from pydantic import Field, model_validator

from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.errors import InvalidInput
from optsched.instance import Instance, json_schema
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
from optsched.instance.reading import show, validate
from optsched.rounds.basis_text import basis_text, read_basis
from optsched.rounds.ledger import Ledger
from optsched.rounds.policy import RoundPolicy, as_stored, policy_document
from optsched.rounds.service import Service
from optsched.rounds.state import Reservation, RoundState
from optsched.rounds.transitions import stopped

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
    version, parts = instance.pop("$schema"), instance.pop("$defs", {})
    schema["$defs"] = {**schema.get("$defs", {}), **parts, "InstanceDocument": instance}  # type: ignore[dict-item]
    schema["properties"]["instance"] = {"$ref": "#/$defs/InstanceDocument"}
    return {"$schema": version} | schema


# --- writing -------------------------------------------------------------------------------------------------------


def state_document(state: RoundState) -> dict[str, Any]:
    """See `RoundState.to_document`."""
    names = state.instance.jobs_table.names.written()
    return {
        "format": FORMAT,
        "round": state.number,
        "policy": policy_document(state.policy),
        "reservations": [
            {"name": item.name, "nodes": list(item.nodes), "start": item.start, "end": item.end}
            for item in state.reservations
        ],
        "service": dict(zip(names, _service_rows(state), strict=True)),
        "ledger": _ledger_rows(state),
        "basis": None if state.warm is None else basis_text(state.warm, names),
        "instance": state.instance.to_document(),
    }


def _service_rows(state: RoundState) -> list[dict[str, Any]]:
    columns = {field.name: getattr(state.service, field.name) for field in fields(Service)}
    columns["owed"] = state.ledger.carried
    told = [_nulls(column) for column in columns.values()]
    return [dict(zip(columns, row, strict=True)) for row in zip(*told, strict=True)]


def _nulls(column: FloatArray | IntArray) -> list[float | None]:
    return [value if np.isfinite(value) else None for value in column.tolist()]


def _ledger_rows(state: RoundState) -> list[dict[str, Any]]:
    names, pools, ledger = (
        state.instance.jobs_table.names,
        state.instance.cluster.pools,
        state.ledger,
    )
    share = np.ascontiguousarray(ledger.key[:, 8]).view(np.float64).tolist()
    rows = []
    for place, (job, partner, pool, gpus, nodes, option, workers, servers, _) in enumerate(
        ledger.key.tolist()
    ):
        row: dict[str, Any] = (
            {"job": names[job]} if partner < 0 else {"jobs": [names[job], names[partner]]}
        )
        row |= {"pool": None if pool < 0 else pools[pool].name, "gpus": gpus, "nodes": nodes}
        row |= {"option": option} if option >= 0 else {}
        row |= {"workers": workers, "servers": servers} if workers or servers else {}
        row |= {"share": share[place]} if share[place] != 1.0 else {}
        row |= {
            "fraction": float(ledger.fraction[place]),
            "owed": float(ledger.owed[place]),
            "received": float(ledger.received[place]),
            "runs": bool(ledger.runs[place]),
        }
        rows.append(row)
    return rows


# --- reading -------------------------------------------------------------------------------------------------------


def read_state_document(document: Mapping[str, Any]) -> RoundState:
    """See `RoundState.from_document`."""
    if isinstance(document, Mapping) and document.get("format", FORMAT) != FORMAT:
        raise InvalidInput("format", show(document["format"]), f'"{FORMAT}"')
    given = dict(document)
    if "policy" in given:
        given["policy"] = as_stored(given["policy"])
    told = validate(RoundDocument, given)
    try:
        instance = Instance.from_document(told.instance)
    except InvalidInput as error:
        path = f"instance.{error.path}" if error.path else "instance"
        raise InvalidInput(path, error.found, error.expected) from None
    row = {name: place for place, name in enumerate(instance.jobs_table.names.written())}
    carried, service = _read_service(told, instance, row)
    state = RoundState(
        instance=instance,
        policy=told.policy,
        number=told.round,
        ledger=_read_ledger(told, instance, row, carried),
        service=service,
        warm=None if told.basis is None else read_basis(told.basis, row),
        reservations=_read_reservations(told, instance),
    )
    return stopped(state, _no_longer_running(state))


def _read_reservations(told: RoundDocument, instance: Instance) -> tuple[Reservation, ...]:
    for place, item in enumerate(told.reservations):
        path = f"reservations[{place}]"
        if not item.end > item.start:
            raise InvalidInput(
                f"{path}.end", show(item.end), f"a time after the start ({item.start:g})"
            )
        for at, node in enumerate(item.nodes):
            if instance.cluster.find_node(node)[0] < 0:
                raise InvalidInput(f"{path}.nodes[{at}]", show(node), "the name of a node")
    return tuple(
        Reservation(item.nodes, item.start, item.end, item.name) for item in told.reservations
    )


def _read_service(
    told: RoundDocument, instance: Instance, row: Mapping[str, int]
) -> tuple[FloatArray, Service]:
    """What each job is owed beside its rows, and what it has had; jobs that are not there any more are left out."""
    table = instance.jobs_table
    runs = np.zeros(len(table), bool)
    runs[list(table.running)] = True
    new = Service.new(table.arrival, runs, instance.now)
    columns = {field.name: getattr(new, field.name).copy() for field in fields(Service)}
    columns["owed"] = np.zeros(len(table))
    for name, had in told.service.items():
        for key in sorted(had.model_fields_set) if name in row else ():
            value = getattr(had, key)
            columns[key][row[name]] = np.inf if value is None else value
    columns["waiting_since"][runs] = np.inf
    return columns.pop("owed"), Service(**columns)


def _read_ledger(
    told: RoundDocument, instance: Instance, row: Mapping[str, int], carried: FloatArray
) -> Ledger:
    """The ledger; of rows whose jobs are not all there any more only what is owed to those that are is left."""
    pools = {pool.name: place for place, pool in enumerate(instance.cluster.pools)}
    places = {**row, **{name: len(row) + at for at, name in enumerate(_gone(told, row))}}
    key = np.empty((len(told.ledger), 9), np.int64)
    share = np.array([item.share for item in told.ledger], np.float64).view(np.int64)
    for place, item in enumerate(told.ledger):
        if item.pool is not None and item.pool not in pools:
            raise InvalidInput(
                f"ledger[{place}].pool", show(item.pool), f"one of {', '.join(pools)}"
            )
        first, second = (item.job, None) if item.jobs is None else item.jobs
        pool, option = (
            -1 if item.pool is None else pools[item.pool],
            -1 if item.option is None else item.option,
        )
        key[place] = (
            places[first or ""], -1 if second is None else places[second], pool, item.gpus, item.nodes, option,
            item.workers, item.servers, share[place],
        )  # fmt: skip
    whole = Ledger(
        key,
        np.array([item.fraction for item in told.ledger], np.float64),
        np.array([item.owed for item in told.ledger], np.float64),
        np.array([item.received for item in told.ledger], np.float64),
        np.array([item.runs for item in told.ledger], bool),
        np.concatenate([carried, np.zeros(len(places) - len(row))]),
    )
    return (
        whole if len(places) == len(row) else whole.revised(np.arange(len(row), dtype=np.int64), 0)
    )


def _gone(told: RoundDocument, row: Mapping[str, int]) -> list[str]:
    """Jobs of the ledger that the instance does not have."""
    named = [name for item in told.ledger for name in (item.jobs or (item.job or "",))]
    return [name for name in dict.fromkeys(named) if name not in row]


def _no_longer_running(state: RoundState) -> BoolArray:
    """Jobs that ran on GPUs, as the ledger says, but run on none, as the instance says."""
    ledger, count = state.ledger, len(state.instance.jobs_table)
    ran = np.zeros(count + 1, bool)
    rows = ledger.runs & (ledger.key[:, 3] > 0)
    ran[ledger.job[rows]] = ran[ledger.partner[rows]] = True
    ran[list(state.instance.jobs_table.running)] = False
    return ran[:count]


__all__ = ["FORMAT", "RoundDocument", "read_state_document", "state_document", "state_schema"]
