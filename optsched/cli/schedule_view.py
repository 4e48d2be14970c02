"""A schedule as a table: what runs when."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

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
    rows = []
    for row in range(min(len(schedule), SHOWN)):
        job, pool = int(schedule.job[row]), int(schedule.pool[row])
        due = [_moment(deadline[job] - now) if np.isfinite(deadline[job]) else ""] if some else []
        rows.append(
            [
                name(names[job]),
                "" if pool < 0 else name(pools[pool].name),
                f"{int(schedule.gpus[row]):,}",
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
    yield table("job", "pool", "GPUs", "start", "end", *(["deadline"] if some else []), rows=rows)
    if len(schedule) > SHOWN:
        yield f"... and {count(len(schedule) - SHOWN, 'more stretch', 'more stretches')} (use -o or --json)"


def _moment(time: float) -> str:
    return "0" if time == 0 else seconds(time) if time > 0 else f"-{seconds(-time)}"
