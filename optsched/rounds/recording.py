"""States and plans as they stand in a journal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from typing import Any

import numpy as np

from optsched.arrays import AnyArray
from optsched.errors import InvalidInput
from optsched.instance.archive import from_npz, to_npz
from optsched.rounds.allocating import Recorded
from optsched.rounds.basis_text import basis_of, basis_parts
from optsched.rounds.ledger import Ledger
from optsched.rounds.metrics import Metrics
from optsched.rounds.plan import Plan, Verdict, finite
from optsched.rounds.policy import RoundPolicy, as_stored, policy_document
from optsched.rounds.service import Service
from optsched.rounds.state import Reservation, RoundState

STATE = "optsched-round-state/1"
WARM = "warm."
"""Begins the names of the arrays of the basis."""

LONGEST = 5
"""Jobs that have waited longest, named in the record of a plan."""


def plan_record(plan: Plan, state: RoundState) -> dict[str, Any]:
    """What the journal keeps of a plan: enough to make it again, to see that it is the same, and to show it."""
    solution = plan.solution
    record: dict[str, Any] = {
        "event": "plan",
        "round": plan.number,
        "now": plan.now,
        "digest": plan.digest(),
        "fallback": plan.fallback,
        "stands": plan.stands,
        "status": None if solution is None else solution.status.value,
        "objective": None if solution is None else finite(solution.objective),
        "gap": None if solution is None else finite(solution.gap),
        "seconds": plan.timings.get("total"),
        **plan.figures(),
        "waiting": _longest(plan, state),
    }
    if plan.refused:
        record["refused"] = [[list(jobs), words] for jobs, words in plan.refused]
    if plan.recorded is not None:
        key, fraction = plan.recorded
        record["allocation"] = {"key": key.tolist(), "fraction": fraction.tolist()}
    return record


def _longest(plan: Plan, state: RoundState) -> list[list[Any]]:
    """Names and seconds of the jobs that have waited longest and still wait."""
    table = state.instance.jobs_table
    waits = np.isin(plan.verdict, (Verdict.HOLD, Verdict.PREEMPT)) & (table.arrival <= state.now)
    waited = np.where(waits, state.service.waited(state.now), 0.0)
    longest = np.argsort(-waited, kind="stable")[:LONGEST].tolist()
    return [[table.names[job], float(waited[job])] for job in longest if waited[job] > 0]


def recorded_of(record: Mapping[str, Any]) -> Recorded | None:
    """What a plan's record says that solving again need not."""
    refused = tuple((tuple(jobs), words) for jobs, words in record.get("refused", ()))
    if record["fallback"] is not None:
        return Recorded(record["fallback"], stands=record["stands"], refused=refused)
    if "allocation" in record:
        rows = record["allocation"]
        key = np.array(rows["key"], np.int64).reshape(len(rows["fraction"]), -1)
        return Recorded(key=key, fraction=np.array(rows["fraction"], np.float64), refused=refused)
    return None


def state_parts(
    state: RoundState, performance: Mapping[str, Any], counted: Metrics
) -> tuple[dict[str, Any], dict[str, AnyArray]]:
    """A state as a JSON document and arrays, with what its performance model has learnt, and the metrics."""
    instance = replace(state.instance, performance=performance)
    document = {
        "format": STATE,
        "round": state.number,
        "now": state.now,
        "policy": policy_document(state.policy),
        "reservations": [asdict(item) | {"nodes": list(item.nodes)} for item in state.reservations],
        "metrics": counted.document(),
    }
    arrays: dict[str, AnyArray] = {"instance": np.frombuffer(to_npz(instance), np.uint8)}
    arrays |= {
        f"ledger.{field.name}": getattr(state.ledger, field.name) for field in fields(Ledger)
    }
    arrays |= {
        f"service.{field.name}": getattr(state.service, field.name) for field in fields(Service)
    }
    if state.warm is not None:
        document["warm"], basis = basis_parts(state.warm)
        arrays |= {f"{WARM}{name}": part for name, part in basis.items()}
    return document, arrays


def read_state(document: Mapping[str, Any], arrays: Mapping[str, AnyArray]) -> RoundState:
    """The state that `state_parts` wrote.

    Raises
    ------
    InvalidInput
        It is of another format.
    """
    if document.get("format") != STATE:
        raise InvalidInput("format", str(document.get("format")), f'"{STATE}"')
    warm = None
    if "warm" in document:
        basis = {
            name.removeprefix(WARM): part for name, part in arrays.items() if name.startswith(WARM)
        }
        warm = basis_of(document["warm"], basis)
    return RoundState(
        instance=from_npz(arrays["instance"].tobytes()),
        policy=RoundPolicy.model_validate(as_stored(document["policy"])),
        number=int(document["round"]),
        ledger=Ledger(**{field.name: arrays[f"ledger.{field.name}"] for field in fields(Ledger)}),
        service=Service(
            **{field.name: arrays[f"service.{field.name}"] for field in fields(Service)}
        ),
        warm=warm,
        reservations=tuple(
            Reservation(tuple(item["nodes"]), item["start"], item["end"], item["name"])
            for item in document["reservations"]
        ),
    )


def read_metrics(document: Mapping[str, Any]) -> Metrics:
    """The metrics that `state_parts` wrote."""
    return Metrics.read(document["metrics"])
