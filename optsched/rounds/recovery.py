"""States and plans as a journal stores them, and the state and plan of any of its rounds.

`recover` and `replay` apply the events and plans of a journal to a `LiveState`, in the same order
as the scheduler that wrote them. Nothing is solved: the record of a plan has its decisions
(`optsched.rounds.decisions`), from which `decided` makes the plan. `_check_digest` compares its
digest (`Plan.id`), a hash of all that the next plan depends on, with the one in the record. Only
the last plan of `replay` is solved again, and plans whose records lack decisions, as in older
journals.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from optsched.arrays import AnyArray
from optsched.arrays.packed import pack, unpack
from optsched.arrays.values import replace
from optsched.display import Displayed
from optsched.errors import (
    InvalidInput,
    JournalError,
    ReplayDiffers,
    UsageError,
)
from optsched.instance.archive import from_npz, to_npz
from optsched.instance.arguments import checks_arguments
from optsched.instance.reading import show
from optsched.rounds.allocation import Recorded, Refused
from optsched.rounds.decisions import decisions_of, plan_of
from optsched.rounds.journal import (
    Entry,
    Snapshot,
    read_from,
    read_latest,
    snapshots,
    without_snapshot,
)
from optsched.rounds.ledger import Ledger, Service, Standing
from optsched.rounds.live import LiveState
from optsched.rounds.plan import WAITS, Plan, among
from optsched.rounds.policy import RoundPolicy, as_stored, policy_document
from optsched.rounds.state import Reservation, RoundState, basis_of, basis_parts
from optsched.rounds.stops import Grace, PastMoves, stops_document
from optsched.rounds.transitions import read_event
from optsched.rounds.watching import Metrics, last_round

# --- states and plans in a journal -----------------------------------------------------------

STATE = "optsched-round-state/1"
PASSES = "from plan to plan"
"""How time advances in a journal (`LiveState`). Older journals lack this key: in them time advances
with each event.
"""
WARM = "warm."
"""Prefix of the names of the arrays of the basis."""

DECISIONS = "decisions"
"""Key of a plan's record with its changes, as text."""

LONGEST = 5
"""Number of jobs with the longest waiting times that the record of a plan names."""


def plan_record(plan: Plan, state: RoundState) -> dict[str, Any]:
    """The readable part of a plan's record, which a replay also uses.

    With `packed_decisions` it is the whole record.
    """
    record = {
        "event": "plan",
        "round": plan.round,
        "now": plan.now,
        "digest": plan.id,
        "fallback": plan.fallback,
        "stands": plan.stands,
        "reproducible": plan.reproducible,
        "status": plan.status,
        "objective": plan.objective,
        "gap": plan.gap,
        "seconds": plan.timings.get("total"),
        **plan.metrics,
        "waiting": _longest(plan, state),
    }
    if plan.refused:
        record["refused"] = [[list(jobs), words] for jobs, words in plan.refused]
    return record


def packed_decisions(plan: Plan, state: RoundState) -> dict[str, str]:
    """The part of a plan's record that recovery applies; it is large and not meant for people."""
    return {DECISIONS: pack(decisions_of(plan, state))}


def _longest(plan: Plan, state: RoundState) -> list[list[Any]]:
    """Names and seconds of the jobs that have waited longest and still wait."""
    table = state.instance.jobs_table
    waits = among(plan.verdict, WAITS) & (table.arrival <= state.now)
    waited = np.where(waits, state.service.waited(state.now), 0.0)
    # Few jobs are sorted: the fifth longest time is found without sorting.
    least = np.partition(waited, -LONGEST)[-LONGEST] if len(waited) > LONGEST else 0.0
    among_longest = ((waited >= least) & (waited > 0)).nonzero()[0]
    order = np.argsort(-waited[among_longest], kind="stable")[:LONGEST]
    return [[table.names[job], float(waited[job])] for job in among_longest[order].tolist()]


def decided(record: Mapping[str, Any], state: RoundState) -> Plan | None:
    """The plan of a record; None if it has no decisions, like records of older versions.

    Raises
    ------
    InvalidInput
        The decisions cannot be read, or belong to another state.
    """
    if DECISIONS not in record:
        return None
    try:
        return plan_of(
            state,
            unpack(record[DECISIONS]),
            fallback=record["fallback"],
            stands=record["stands"],
            refused=refused_of(record),
        )
    except (ValueError, LookupError, TypeError) as error:
        raise InvalidInput(DECISIONS, show(str(error)), "what the plan changed") from None


def refused_of(record: Mapping[str, Any]) -> Refused:
    """Jobs that the formulation could not include, from the record of a plan."""
    return tuple((tuple(jobs), words) for jobs, words in record.get("refused", ()))


def recorded_of(record: Mapping[str, Any], plan: Plan | None) -> Recorded | None:
    """Parts of a recorded plan that a new solve need not reproduce, because a time limit or a
    failure decided them; None if there are none.
    """
    refused = refused_of(record)
    if record["fallback"] is not None:
        stands, admissions = record["stands"], None if plan is None else plan.admissions
        return Recorded(record["fallback"], stands=stands, refused=refused, admissions=admissions)
    if "allocation" in record:  # an older record, of a run that a time limit stopped
        rows = record["allocation"]
        key = np.array(rows["key"], np.int64).reshape(len(rows["fraction"]), -1)
        fraction = np.array(rows["fraction"], np.float64)
        return Recorded(key=key, fraction=fraction, refused=refused)
    if plan is not None and not record["reproducible"]:
        claims = plan.ledger.fraction > 0
        return Recorded(
            key=plan.ledger.key[claims],
            fraction=plan.ledger.fraction[claims],
            refused=refused,
            admissions=plan.admissions,
        )
    return None


def state_parts(
    state: RoundState, performance: Mapping[str, Any], counted: Metrics
) -> tuple[dict[str, Any], dict[str, AnyArray]]:
    """A state as a JSON document and arrays, with the learnt parameters of its performance model,
    and the metrics.
    """
    instance = replace(state.instance, performance=performance)
    document = {
        "format": STATE,
        "round": state.round,
        "now": state.now,
        "policy": policy_document(state.policy),
        "reservations": [asdict(item) | {"nodes": list(item.nodes)} for item in state.reservations],
        **stops_document(state.graces, state.moves),
        "metrics": asdict(counted),
        "time": PASSES,
    }
    arrays = {"instance": np.frombuffer(to_npz(instance), np.uint8)}
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
    # Snapshots of versions without admission lack this array.
    none = np.full(len(arrays["service.starts"]), Standing.NONE, np.int64)
    arrays = {"service.standing": none, **arrays}
    return RoundState(
        instance=from_npz(arrays["instance"].tobytes()),
        policy=RoundPolicy.model_validate(as_stored(document["policy"])),
        round=int(document["round"]),
        ledger=Ledger(**{field.name: arrays[f"ledger.{field.name}"] for field in fields(Ledger)}),
        service=Service(
            **{field.name: arrays[f"service.{field.name}"] for field in fields(Service)}
        ),
        warm=warm,
        reservations=tuple(
            Reservation(tuple(item["nodes"]), item["start"], item["end"], item["name"])
            for item in document["reservations"]
        ),
        graces=tuple(
            Grace(tuple(item["gpus"]), item["until"]) for item in document.get("graces", ())
        ),
        moves=tuple(PastMoves(**item) for item in document.get("moves", ())),
    )


# --- recovery and replay ---------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class Replayed(Displayed):
    """A round of a journal: the state from which it was planned, and its plan."""

    state: RoundState
    plan: Plan

    def _headline(self) -> str:
        return f"round {self.plan.round} of {self.plan.instance.name}"


def recover(journal: str | Path) -> tuple[LiveState, Metrics]:
    """The state of a scheduler at the end of its journal, and its metrics.

    Raises
    ------
    JournalError
        There is no journal, it is damaged, or its records do not lead to its plans
        (`ReplayDiffers`).
    """
    snapshot, entries = read_latest(journal)
    live, metrics = _begun(journal, snapshot)
    for entry in entries:
        _apply(journal, live, metrics, entry)
    return live, metrics


@checks_arguments
def replay(journal: str | Path, number: int | None = None) -> Replayed:
    """Plan a round of a journal again, by default its last one.

    The state's instance includes the parameters that the performance model had learnt by then, so
    that planning it again gives the same plan.

    Parameters
    ----------
    journal : str or path
        Folder of the journal.
    number : int, optional
        Round; by default the last one.

    Returns
    -------
    Replayed
        The state before the round and its plan.

    Raises
    ------
    UsageError
        The journal has no such round, or not any more.
    JournalError
        There is no journal, it is damaged, or the plan cannot be made again (`ReplayDiffers`).
    """
    if number is None:
        number = last_round(journal)
    oldest = int(next((file.document()["round"] for file in snapshots(journal)), 0))
    if number < oldest:
        text = f"it begins with round {oldest}, as older snapshots were not kept"
        raise UsageError(f"journal {journal} has no round {number} any more: {text}")
    snapshot, entries = read_from(journal, lambda document: int(document["round"]) <= number)
    live, metrics = _begun(journal, snapshot)
    for entry in entries:
        if entry.record.get("event") != "plan" or live.round < number:
            _apply(journal, live, metrics, entry)
            continue
        state, plan = _planned_again(journal, live, entry)
        instance = replace(state.instance, performance=live.performance())
        return Replayed(replace(state, instance=instance), plan)
    last = live.round - 1
    text = f"its last one is {last}" if last >= 0 else "no round was planned yet"
    raise UsageError(f"journal {journal} has no round {number}: {text}")


def _begun(journal: str | Path, snapshot: Snapshot | None) -> tuple[LiveState, Metrics]:
    if snapshot is None:
        raise without_snapshot(journal)
    try:
        state = read_state(snapshot.document, snapshot.arrays)
        live = LiveState(state, event_by_event=snapshot.document.get("time") != PASSES)
        return live, Metrics(**snapshot.document["metrics"])
    except (KeyError, InvalidInput, UsageError) as error:
        text = f"the snapshot before record {snapshot.n} cannot be used: {error}"
        raise JournalError(f"journal {journal}: {text}") from None


def _apply(journal: str | Path, live: LiveState, metrics: Metrics, entry: Entry) -> None:
    """Apply an event or a plan of a journal."""
    record = entry.record
    with _named(journal, entry.n):
        if record.get("event") != "plan":
            event = read_event(record)
            live.accept(live.after(event))
            metrics.event(event)
            return
        state = live.at(float(record["now"]))
        plan = decided(record, state)
    if plan is None:
        state, plan = _planned_again(journal, live, entry)
    else:
        _check_digest(journal, plan, record)
    live.follow(state, plan)
    metrics.record(record)


def _planned_again(journal: str | Path, live: LiveState, entry: Entry) -> tuple[RoundState, Plan]:
    """A state of a journal, and its plan, solved again."""
    record = entry.record
    with _named(journal, entry.n):
        now = float(record["now"])
        before = decided(record, live.at(now))
        state, plan = live.planned(now, recorded=recorded_of(record, before))
        if before is not None and before.admissions is None:
            # The digest is that of a version whose plans had no admissions.
            plan = replace(plan, admissions=None)
    _check_digest(journal, plan, record)
    return state, plan


@contextmanager
def _named(journal: str | Path, n: int) -> Iterator[None]:
    """Turn errors of a record that cannot be applied into a `JournalError`."""
    try:
        yield
    except (KeyError, InvalidInput, UsageError) as error:
        raise JournalError(f"journal {journal}: record {n} cannot happen again: {error}") from None


def _check_digest(journal: str | Path, plan: Plan, record: Mapping[str, Any]) -> None:
    """Raise if a plan differs from its record: otherwise all later rounds would differ
    unnoticed.
    """
    found = plan.id if DECISIONS in record else plan.id_by_names()
    another = "optsched" if DECISIONS in record else "optsched or of a solver"
    if found != record["digest"]:
        raise ReplayDiffers(
            f"journal {journal}: round {record['round']} comes out as another plan: "
            f"{_difference(plan, record)} (digest {found}, expected {record['digest']}); "
            f"another version of {another} wrote it. To go on: with that version, "
            f"`optsched replay {journal} --state state.json`; "
            'with this one, Scheduler("state.json", journal=...), and submit what came after that round again'
        )


def _difference(plan: Plan, record: Mapping[str, Any]) -> str:
    """The numbers of jobs by verdict in which a plan differs from a record; if none does, a text
    that something else differs.
    """
    made = plan.metrics["jobs"]
    recorded = record.get("jobs", {})
    differ = [name for name in made if name in recorded and made[name] != recorded[name]]
    counts = (f"{name} {made[name]} jobs, not {recorded[name]}" for name in differ)
    return ", ".join(counts) or "other jobs, GPUs, rates or counts of time in the same numbers"
