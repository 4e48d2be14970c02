"""Rounds as people read them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from optsched.cli.tables import count, facts, heading, listed, name, percent, seconds
from optsched.instance import Instance
from optsched.placement.running import must_stay
from optsched.solution import Rounds

if TYPE_CHECKING:
    from rich.console import RenderableType

METHOD = {
    "at-once": "all rows fit side by side on the GPUs of their pools",
    "open-shop": "exact decomposition into matchings of jobs and GPUs",
    "patterns": "column generation over sets of rows that fit side by side",
    "priority": "priority rule, round by round",
}


def rounds_view(rounds: Rounds, instance: Instance) -> Iterator[RenderableType]:
    """How the slices were made, how many there are, and how much of the allocation they realise."""
    yield ""
    yield heading("Rounds")
    yield facts(_facts(rounds, instance))


def _facts(rounds: Rounds, instance: Instance) -> Iterator[tuple[str, str]]:
    yield "method", f"{rounds.method}: {METHOD[rounds.method]}"
    yield "window", f"{seconds(rounds.rounds * instance.round)}: {count(rounds.rounds, 'round')}"
    most = int(rounds.runs.sum(axis=1).max()) if len(rounds) else 0
    yield (
        "slices",
        f"{len(rounds):,}, at most {count(most, 'row')} at a time, {count(rounds.switches, 'start')}",
    )
    yield "realised", _realised(rounds)
    stopped = [
        name(instance.jobs_table.names[job]) for job in rounds.stopped(must_stay(instance)).tolist()
    ]
    if stopped:
        yield (
            "stopped",
            f"{listed(stopped)}: running, and cannot be preempted (-C uninterrupted lets such jobs run on)",
        )


def _realised(rounds: Rounds) -> str:
    if rounds.scale == 1:
        return "the whole allocation"
    told = f"{percent(rounds.scale)} of every fraction"
    if rounds.method == "priority":
        return f"at least {told}"
    if rounds.finished:
        return f"{told}, the most that is possible"
    return f"{told}; the search ended without a proof, at most {percent(rounds.bound)} is possible"
