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
    whole = None if len(held) else _WholeGpus.of(schedule, constraints)
    why: dict[int, str] = {}
    for time in np.unique(schedule.start).tolist():
        later = time + ROUNDING * max(abs(time), 1.0)
        # The GPUs of a job that ends at this time, up to rounding, are free for jobs that start.
        gpus = {row: numbers for row, numbers in gpus.items() if schedule.end[row] > later}
        begins = np.flatnonzero(schedule.start == time)
        begins = begins[~np.isin(begins, list(gpus))]
        placed_on = None if whole is None else whole.best_fit(begins, gpus)
        if placed_on is not None:
            gpus |= placed_on
            continue
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


class _WholeGpus:
    """The GPUs of nodes of a schedule in which only the number of free GPUs of a node matters: no
    topology tells nodes apart, jobs need nothing else of them, and all open at once.

    Parameters
    ----------
    schedule : Schedule
    usable : BoolArray, shape (nodes,)
        Nodes that take work.
    """

    def __init__(self, schedule: Schedule, usable: BoolArray) -> None:
        C = schedule.classes
        numbering = C.instance.cluster.numbering
        self._first = np.append(numbering.first, numbering.nodes).tolist()
        self._start = numbering.start
        self._usable = usable[numbering.node_of(np.arange(numbering.gpus))]
        self._pool, self._gpus = (each[schedule.column].tolist() for each in (C.pool, C.gpus))
        # A job that runs in the pool may go on where it is, as far as it can.
        places = C.instance.jobs_table.places
        runs_in = np.full(len(C.of_job), -1, np.int64)
        runs_in[places.job] = places.pool
        pool = C.pool[schedule.column]
        self._plain = ((pool >= 0) & (runs_in[schedule.job] != pool)).tolist()

    @classmethod
    def of(cls, schedule: Schedule, constraints: Iterable[Mapping[str, Any]]) -> _WholeGpus | None:
        """None for other schedules."""
        C, cluster = schedule.classes, schedule.classes.instance.cluster
        requests = Requests.of_columns(C, np.unique(schedule.column))
        needs = requests.need.any() or requests.group_need.any() or list(constraints)
        last = float(schedule.start.max(initial=C.instance.now))
        if needs or cluster.topology is not None or not (requests.share == 1.0).all():
            return None
        if not cluster.usable_alike(C.instance.now, last):
            return None
        return cls(schedule, cluster.usable(last))

    def best_fit(
        self, begins: IntArray, held: Mapping[int, IntArray]
    ) -> dict[int, IntArray] | None:
        """GPUs of rows that begin, beside those that are held: each on the node with the fewest free
        GPUs that are enough, large ones first, as of `place_beside`. None if that has to decide, as
        a row finds no such node, or its job runs in the pool.
        """
        free = self._usable.copy()
        for numbers in held.values():
            free[numbers] = False
        found = {}
        for row in sorted(begins.tolist(), key=lambda row: -self._gpus[row]):
            if not self._plain[row]:
                return None
            first, beyond = self._first[self._pool[row] : self._pool[row] + 2]
            start = self._start[first : beyond + 1]
            total = np.append(0, np.cumsum(free[start[0] : start[-1]]))
            of_node = np.diff(total[start - start[0]])
            enough = np.flatnonzero(of_node >= self._gpus[row])
            if not len(enough):
                return None
            node = int(enough[of_node[enough].argmin()])
            numbers = start[node] + np.flatnonzero(free[start[node] : start[node + 1]])
            found[row] = numbers[: self._gpus[row]]
            free[found[row]] = False
        return found


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
    _, ends = going_on(C.candidates, held_places)
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
