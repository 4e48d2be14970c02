"""A schedule as a table: what runs when."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from optsched.cli.allocation_view import mode_words
from optsched.cli.tables import count, heading, name, seconds, table
from optsched.solution import Schedule

if TYPE_CHECKING:
    from rich.console import RenderableType

SHOWN = 40


def schedule_table(schedule: Schedule) -> Iterator[RenderableType]:
    """The first stretches in order of their start; times are told from now."""
    instance = schedule.classes.instance
    names, pools, now = instance.jobs_table.names, instance.cluster.pools, instance.now
    deadline = instance.jobs_table.deadline
    some = bool(np.isfinite(deadline[schedule.job]).any())
    C, rows = schedule.classes, []
    shown = range(min(len(schedule), SHOWN))
    modes = [
        mode_words(C, int(schedule.column[row]), int(schedule.job[row]), "option ") for row in shown
    ]
    nodes = C.configurations.nodes[C.configuration]
    spans = bool((nodes > 1).any())
    for row in shown:
        job, pool = int(schedule.job[row]), int(schedule.pool[row])
        due = [_moment(deadline[job] - now) if np.isfinite(deadline[job]) else ""] if some else []
        rows.append(
            [
                name(names[job]),
                "" if pool < 0 else name(pools[pool].name),
                *([modes[row]] if any(modes) else []),
                f"{int(schedule.gpus[row]):,}",
                *([f"{int(nodes[schedule.column[row]]):,}"] if spans else []),
                _moment(float(schedule.start[row]) - now),
                _moment(float(schedule.end[row]) - now),
                *due,
            ]
        )
    yield ""
    if not len(schedule):
        yield "No job is planned."
        return
    yield heading("Schedule, from now")
    text = ["job", "pool", *(["mode"] if any(modes) else [])]
    numbers = [
        "GPUs",
        *(["nodes"] if spans else []),
        "start",
        "end",
        *(["deadline"] if some else []),
    ]
    yield table(*text, *numbers, rows=rows, left=len(text))
    if len(schedule) > SHOWN:
        yield f"... and {count(len(schedule) - SHOWN, 'more stretch', 'more stretches')} (use -o or --json)"


def _moment(time: float) -> str:
    return "0" if time == 0 else seconds(time) if time > 0 else f"-{seconds(-time)}"
