"""Running jobs that cannot be preempted keep their GPUs in a placement, as they do in rounds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from optsched.arrays import BoolArray, IntArray
from optsched.candidates import Classes, JobRows
from optsched.instance import Instance
from optsched.placement.held import standing_of
from optsched.placement.keeping import Keeping
from optsched.placement.running import Running
from optsched.placement.standing import Standing


@dataclass(frozen=True)
class Unmoved:
    """What of the rows wanted goes on where it is, and what stays beside them.

    Attributes
    ----------
    row : IntArray, shape (K,)
        Rows of jobs that cannot be preempted, in the configuration in which these run.
    gpus : tuple of tuples of str, length K
        What they hold.
    refused : mapping of int to str
        Rows that would move such a job, each with the reason.
    contradicted : mapping of int to str
        Such jobs that no row wanted lets run on, each with the reason.
    standing : Standing
        The rows that go on, and the jobs that do so though no row lets them.
    """

    row: IntArray
    gpus: tuple[tuple[str, ...], ...]
    refused: Mapping[int, str]
    contradicted: Mapping[int, str]
    standing: Standing


def unmoved(
    classes: Classes,
    rows: JobRows,
    wanted: IntArray,
    constraints: Iterable[Mapping[str, Any]] = (),
    standing: Standing | None = None,
) -> Unmoved:
    """Rows wanted whose jobs cannot be preempted; jobs that are in ``standing`` are left to whoever made it."""
    instance = classes.instance
    fixed = Standing.none(instance) if standing is None else standing
    running = Running.of(instance)
    stays = must_stay(instance, running)
    stays[fixed.jobs] = False
    if not stays.any():
        return Unmoved(np.zeros(0, np.int64), (), {}, {}, fixed)
    column, going, refused = rows.column[wanted], dict[int, tuple[str, ...]](), dict[int, int]()
    for place, row in enumerate(wanted.tolist()):
        firm = [
            job for job in (int(rows.job[row]), int(rows.partner[row])) if job >= 0 and stays[job]
        ]
        held = {frozenset(instance.jobs_table.running[job][1]) for job in firm}
        c = int(column[place])
        if len(held) == 1 and all(_goes_on(classes, running, job, c) for job in firm):
            going[row] = instance.jobs_table.running[firm[0]][1]
        elif firm:
            refused[row] = firm[0]
    outside = stays.copy()
    chosen = np.array(list(going), np.int64)
    for jobs in (rows.job[chosen], rows.partner[chosen][rows.partner[chosen] >= 0]):
        outside[jobs] = False
    left = np.flatnonzero(outside)
    if len(left):
        fixed = fixed.and_also(standing_of(instance, left, np.full(len(left), -1, np.int64)))
    documents = list(constraints)
    kept = Keeping(classes, fixed, documents).keep(
        rows, chosen, list(going.values()), np.zeros(len(chosen), bool)
    )
    crowded = {row: int(rows.job[row]) for row in going if row not in kept}
    why = {job: _why(classes, rows, refused, job) for job in left.tolist()}
    words = "other jobs that cannot be preempted are in its way there"
    why |= {job: f"{_told(instance, job)}; {words}" for job in crowded.values() if stays[job]}
    on = Standing.of_rows(classes, rows, np.array(list(kept), np.int64), list(kept.values()))
    return Unmoved(
        np.array(list(kept), np.int64),
        tuple(kept.values()),
        {
            row: why.get(job, f"{_told(instance, job)}; {words}")
            for row, job in (refused | crowded).items()
        },
        dict(sorted(why.items())),
        fixed.and_also(on),
    )


def must_stay(instance: Instance, running: Running | None = None) -> BoolArray:
    """Mask of the jobs that keep their GPUs: they run, are not done, and cannot be preempted."""
    table = instance.jobs_table
    found = Running.of(instance) if running is None else running
    return np.asarray(found.stays(table.preemptible) & (table.steps_left > 0))


def _goes_on(classes: Classes, running: Running, job: int, column: int) -> bool:
    """Whether a column is the configuration in which a job runs, on nodes that take work."""
    return bool(
        classes.pool[column] == running.pool[job]
        and classes.gpus[column] == running.gpus[job]
        and running.nodes[job]
        <= max(int(classes.configurations.nodes[classes.configuration[column]]), 1)
        and not running.leaves[job]
    )


def _why(classes: Classes, rows: JobRows, refused: Mapping[int, int], job: int) -> str:
    instance = classes.instance
    row = next((row for row, of in refused.items() if of == job), None)
    if row is None:
        return f"{_told(instance, job)}, but the rows to place do not include that job"
    column = int(rows.column[row])
    pool, gpus = int(classes.pool[column]), int(classes.gpus[column])
    where = (
        "no GPU"
        if pool < 0
        else f"{gpus} GPU{'s' * (gpus != 1)} of {instance.cluster.pools[pool].name}"
    )
    return f"{_told(instance, job)}, but the row to place gives it {where} in another configuration"


def _told(instance: Instance, job: int) -> str:
    pool, gpus, _ = instance.jobs_table.running[job]
    on = f"{len(gpus)} GPU{'s' * (len(gpus) != 1)} of {instance.cluster.pools[pool].name}"
    return f"job {instance.jobs_table.names[job]} runs on {on} and cannot be preempted"
