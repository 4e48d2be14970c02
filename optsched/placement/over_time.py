"""Whether the jobs of a schedule find room on nodes.

Programs count the GPUs of whole pools. `jobs_without_nodes` places a schedule on nodes in the order
of the starts: a job that runs stays where it is, and a job that starts gets GPUs by best fit beside
it. A job that finds no room might find some if other jobs moved, or had been placed differently.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np

from optsched.arrays import EMPTY, BoolArray, FloatArray, IntArray, mask_of
from optsched.candidates import Classes, JobRows
from optsched.candidates.going_on import going_on
from optsched.instance import with_columns
from optsched.instance.staying import Running, held_for
from optsched.placement.beside import place_beside
from optsched.placement.occupied import Occupied, occupied_by
from optsched.placement.requests import Requests
from optsched.placement.shares import ROUNDING
from optsched.placement.staying import holds
from optsched.solution import Schedule


def jobs_without_nodes(
    schedule: Schedule, constraints: Iterable[Mapping[str, Any]] = ()
) -> dict[int, str]:
    """Jobs of a schedule for which best fit finds no nodes, by row, and the reasons.

    Parameters
    ----------
    schedule : Schedule
    constraints : iterable of mappings
        Side constraints; those of kind ``anti-affinity`` are read.

    Returns
    -------
    dict of int to str
        Empty if all jobs have nodes: then the schedule can be carried out.
    """
    constraints = list(constraints)
    C = schedule.classes
    if _always_fits(C, schedule, constraints):
        return {}
    ones, zeros = np.ones(len(schedule)), np.zeros(len(schedule))
    alone = np.full(len(schedule), -1, np.int64)
    rows = JobRows(schedule.job, alone, schedule.column, ones, C.rate_a[schedule.column], zeros)
    held, until = _held_beside(schedule)
    gpus = dict(_kept_now(schedule))
    why: dict[int, str] = {}
    for time in np.unique(schedule.start).tolist():
        later = time + ROUNDING * max(abs(time), 1.0)
        # The GPUs of a job that ends at this time, up to rounding, are free for jobs that start.
        gpus = {row: numbers for row, numbers in gpus.items() if schedule.end[row] > later}
        begins = np.flatnonzero(schedule.start == time)
        begins = begins[~np.isin(begins, list(gpus))]
        running = np.array(list(gpus), np.int64)
        count = np.array([len(numbers) for numbers in gpus.values()], np.int64)
        numbers = np.concatenate([EMPTY, *gpus.values()])
        # More nodes may be available at the time of the start than now.
        now = _at(C, time)
        occupied = Occupied.of_numbers(now, rows, running, numbers, count).and_also(
            held.part(until > later)
        )
        placed = place_beside(now, rows, begins, occupied, constraints)
        gpus |= placed.by_row()
        for row, words, _ in placed.refused:
            why.setdefault(int(schedule.job[row]), words)
    return why


def _always_fits(C: Classes, schedule: Schedule, constraints: Iterable[Mapping[str, Any]]) -> bool:
    """Whether all jobs run on one whole GPU each and need no CPUs, memory or other resource."""
    requests = Requests.of_columns(C, np.unique(schedule.column))
    plain = (requests.gpus == 1).all() and (requests.share == 1.0).all()
    needs = requests.need.any() or requests.group_need.any()
    return bool(plain and not needs and not list(constraints))


def _at(C: Classes, time: float) -> Classes:
    """The same classes at a later time, when more nodes may be available."""
    instance = C.instance
    if instance.cluster.usable_alike(instance.now, time):
        return C
    later = copy(C)
    candidates = replace(C.candidates, instance=with_columns(instance, now=time))
    object.__setattr__(later, "candidates", candidates)
    return later


def _held_beside(schedule: Schedule) -> tuple[Occupied, FloatArray]:
    """GPUs of running jobs that are not in the schedule, and the times until which they hold them,
    seconds.
    """
    C = schedule.classes
    instance, places = C.instance, C.instance.jobs_table.places
    seconds = np.where(mask_of(schedule.job, len(C.of_job)), 0.0, held_for(instance))
    held_places = np.flatnonzero(seconds[places.job] > 0)
    jobs = places.job[held_places]
    ends = np.array(
        [going_on(C.candidates, place)[1] for place in held_places.tolist()], np.float64
    )
    held = occupied_by(instance, jobs)
    return held, instance.now + np.minimum(ends, seconds[jobs])


def _kept_now(schedule: Schedule) -> Iterable[tuple[int, IntArray]]:
    """Rows of the schedule in which running jobs keep their GPUs, with these GPUs."""
    instance = schedule.classes.instance
    table, numbering = instance.jobs_table, instance.cluster.numbering
    running = Running.of(instance)
    stays: BoolArray = (held_for(instance) > 0) | (running.runs & ~running.barred)
    same = holds(schedule.classes, running, schedule.job, schedule.column)
    same &= stays[schedule.job] & (schedule.start == instance.now)
    place = table.places.among(len(table))
    for row in np.flatnonzero(same).tolist():
        yield row, table.places.numbers_of(place[schedule.job[[row]]], numbering)
