"""From a journal back to the state, and to the plan, of any round."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from optsched.errors import InvalidInput, JournalError, ReplayDiffers, UsageError
from optsched.rounds.events import read_event
from optsched.rounds.journal import Entry, Snapshot, read_from, read_latest, snapshots
from optsched.rounds.living import Living
from optsched.rounds.metrics import Metrics
from optsched.rounds.plan import Plan
from optsched.rounds.recording import read_metrics, read_state, recorded_of
from optsched.rounds.state import RoundState
from optsched.rounds.watching import last_round


@dataclass(frozen=True)
class Replayed:
    """A round of a journal: the state that it was planned from, and its plan."""

    state: RoundState
    plan: Plan


def recover(journal: str | Path) -> tuple[Living, Metrics]:
    """What a scheduler was when its journal ended.

    Raises
    ------
    JournalError
        There is no journal, it is damaged, or its plans cannot be made again (`ReplayDiffers`).
    """
    snapshot, entries = read_latest(journal)
    living, metrics = _begun(journal, snapshot)
    for _ in _replayed(journal, living, metrics, entries):
        pass
    return living, metrics


def replay(journal: str | Path, number: int | None = None) -> Replayed:
    """Plan a round of a journal again, by default its last one.

    What the performance model had learnt by then is in the state's instance: whoever plans it again
    has the same plan.

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
    living, metrics = _begun(journal, snapshot)
    for found in _replayed(journal, living, metrics, entries):
        if found.plan.number == number:
            instance = replace(found.state.instance, performance=living.performance())
            return Replayed(replace(found.state, instance=instance), found.plan)
    last = living.state.number - 1
    text = f"its last one is {last}" if last >= 0 else "no round was planned yet"
    raise UsageError(f"journal {journal} has no round {number}: {text}")


def _begun(journal: str | Path, snapshot: Snapshot | None) -> tuple[Living, Metrics]:
    if snapshot is None:
        raise JournalError(
            f"journal {journal} has no snapshot to begin from: the scheduler never started"
        )
    try:
        return Living(read_state(snapshot.document, snapshot.arrays)), read_metrics(
            snapshot.document
        )
    except (KeyError, InvalidInput, UsageError) as error:
        text = f"the snapshot before record {snapshot.n} cannot be used: {error}"
        raise JournalError(f"journal {journal}: {text}") from None


def _replayed(
    journal: str | Path, living: Living, metrics: Metrics, entries: Iterable[Entry]
) -> Iterable[Replayed]:
    """Let the records happen again; gives every round that they plan."""
    for n, record in entries:
        try:
            if record.get("event") != "plan":
                event = read_event(
                    {key: value for key, value in record.items() if key not in ("n", "crc")}
                )
                outcome = living.after(event)
                living.accept(outcome)
                metrics.take(event, outcome)
                continue
            state, plan = living.planned(float(record["now"]), recorded=recorded_of(record))
        except (KeyError, InvalidInput, UsageError) as error:
            raise JournalError(
                f"journal {journal}: record {n} cannot happen again: {error}"
            ) from None
        # A plan that comes out differently would go unnoticed, and all later rounds with it.
        found = plan.digest()
        if found != record["digest"]:
            raise ReplayDiffers(
                f"journal {journal}: round {record['round']} planned again is another plan: "
                f"{_difference(plan, record)} (digest {found}, expected {record['digest']}); another version of "
                "optsched or of a solver wrote it. To go on: with that version, "
                f"`optsched replay {journal} --state state.json`; "
                'with this one, Scheduler("state.json", journal=...), and submit what came after that round again'
            )
        living.follow(state, plan)
        metrics.plan(plan, record.get("seconds"))
        yield Replayed(state, plan)


def _difference(plan: Plan, record: Mapping[str, Any]) -> str:
    """How a plan differs from the record of one: numbers of jobs by verdict, else that jobs or GPUs are others."""
    here = plan.figures()["jobs"]
    there = record.get("jobs", {})
    differ = [name for name in here if name in there and here[name] != there[name]]
    counts = (f"{name} {here[name]} jobs, not {there[name]}" for name in differ)
    return ", ".join(counts) or "other jobs, GPUs or reasons in the same numbers"
