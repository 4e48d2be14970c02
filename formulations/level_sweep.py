"""Plans by rule for tens of thousands of jobs with deadlines: one sweep over time, on arrays.

Time is cut into slots. At the begin of each the jobs that wait come by deadline: each starts at the
level with the least GPU time that is still in time and has room until its end, and runs there
without interruption. A job that finds no room waits, and needs a faster level the longer it does.
A plan is a witness as those of `formulations.level_planner`: that it leaves a job out proves
nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from formulations.horizon import ROUNDING
from formulations.level_planner import COST_BESIDE_DEADLINE
from formulations.level_table import LevelTable
from optsched.arrays import BoolArray, FloatArray, IntArray, mask_of, ranges, sum_before
from optsched.instance.durations import UNLIMITED, Timer

SLOTS = 600
"""The most slots in which jobs start. What ends within a slot holds its GPUs until its end."""
FEWEST_SLOTS = 200
"""Slots are no longer than so many parts of the time."""
MOST_WAITING = 256
"""Jobs that are looked at in a slot: the most urgent of those that wait."""


class SweptPlan(NamedTuple):
    """When jobs run: a stretch of time each, by row of the job table.

    Attributes
    ----------
    job : IntArray, shape (n,)
    level : IntArray, shape (n,)
        Row of the table of levels.
    start, end : FloatArray, shape (n,)
        Seconds from now.
    stopped : bool
        Whether the time was over before the sweep ended.
    """

    job: IntArray
    level: IntArray
    start: FloatArray
    end: FloatArray
    stopped: bool

    def merit(self, table: LevelTable) -> tuple[int, float, bool, float]:
        """As of a `LevelPlan`."""
        promised = int(np.count_nonzero(table.promised[table.k[self.level]]))
        cost = table.gpus[self.level] @ (self.end - self.start)
        return promised, float(table.value[self.level].sum()), True, -float(cost)


def plan_by_sweeps(
    table: LevelTable,
    times: FloatArray,
    free: FloatArray,
    left: FloatArray,
    timer: Timer = UNLIMITED,
) -> SweptPlan | None:
    """The best plan of all orders of the jobs; the first in which all run.

    None if a job that cannot be preempted could not go on.

    Parameters
    ----------
    table : LevelTable
    times : FloatArray, shape (steps,)
        When steps of the capacity begin, seconds from now, ascending; the first is 0.
    free : FloatArray, shape (R, steps)
        Of renewable resources.
    left : FloatArray, shape (B,)
        Of consumable resources.
    timer : Timer
        Once the time is over, the jobs planned so far are the plan.
    """
    sweep = TimeSweep(table, times, free, left)
    plans: list[SweptPlan] = []
    for order in sweep.orders:
        found = sweep.plan(order, timer)
        if found is None:
            return None
        plans.append(found)
        if found.stopped or len(found.job) == len(sweep.jobs):
            break
    best = max(plans, key=lambda plan: plan.merit(table))
    return best._replace(stopped=plans[-1].stopped)


@dataclass(frozen=True, eq=False)
class TimeSweep:
    """What all plans of a table have in common; the fields are those of `plan_by_sweeps`."""

    table: LevelTable
    times: FloatArray
    free: FloatArray
    left: FloatArray

    @cached_property
    def options(self) -> IntArray:
        """Levels in which a job of each class alone would be in time, the most valuable and
        cheapest first, -1 beyond the last of them; (K, most).
        """
        table, k = self.table, self.table.k
        chosen = table.in_time & (~table.stays[k] | (table.current[k] == np.arange(len(k))))
        rows = np.flatnonzero(chosen)
        cost = table.gpus * table.shortest
        rows = rows[np.lexsort((cost[rows], -table.value[rows], k[rows]))]
        count = np.bincount(k[rows], minlength=len(table.C))
        options = np.full((len(count), int(count.max(initial=1))), -1, np.int64)
        options[k[rows], ranges(0 * count, count)] = rows
        return options

    @cached_property
    def jobs(self) -> IntArray:
        """Rows of jobs that could be in time alone."""
        able = np.append((self.options >= 0).any(axis=1), False)
        return np.flatnonzero(able[self.table.C.of_job])

    @cached_property
    def edges(self) -> FloatArray:
        """Begins of slots, and the end of the last one: where jobs arrive or are due, or capacity
        changes; of more moments than `SLOTS` as many, evenly among them.
        """
        table, end = self.table, float(self.table.due.max(initial=0.0))
        moments = np.unique(np.concatenate([table.release, table.due, self.times]))
        moments = moments[(moments > 0) & (moments < end)]
        # Where few jobs arrive, slots are no longer than these.
        moments = np.union1d(moments, np.linspace(0.0, end, FEWEST_SLOTS + 1)[1:-1])
        if len(moments) > SLOTS:
            moments = moments[np.linspace(0, len(moments) - 1, SLOTS).astype(np.int64)]
        return np.concatenate([[0.0], moments, [end]])

    @cached_property
    def room(self) -> FloatArray:
        """What is free of each resource in all of each slot, shape (resources, slots); what there
        is to consume is free until somebody takes it.
        """
        resources, edges = self.table.C.resources, self.edges
        first = np.searchsorted(self.times, edges[:-1], "right") - 1
        beyond = np.searchsorted(self.times, edges[1:])
        room = np.empty((len(resources.renewable), len(first)))
        # reduceat takes pairs of a begin and an end, and every second result counts.
        padded = np.pad(self.free, ((0, 0), (0, 1)), constant_values=np.inf)
        pairs = np.column_stack([first, np.maximum(beyond, first + 1)]).ravel()
        room[resources.renewable] = np.minimum.reduceat(padded, pairs, axis=1)[:, ::2]
        room[~resources.renewable] = self.left[:, np.newaxis]
        return room

    @cached_property
    def uses(self) -> tuple[IntArray, FloatArray, BoolArray]:
        """(resource, amount, whether it is used up) of what each level holds; shape (levels, most):
        amounts 0 fill up the rows.
        """
        table = self.table
        usage = table.C.usage.tocsc()[:, table.column].tocoo()
        order = np.argsort(usage.col, kind="stable")
        resource, level = usage.row[order].astype(np.int64), usage.col[order]
        count = np.bincount(level, minlength=len(table.column))
        at = level, ranges(0 * count, count)
        used_up = ~table.C.resources.renewable[resource]
        held, amount = (
            np.zeros((len(count), int(count.max(initial=1))), kind) for kind in (np.int64, float)
        )
        consumed = np.zeros(held.shape, bool)
        held[at], consumed[at] = resource, used_up
        amount[at] = usage.data[order] * np.where(used_up, table.left[table.k[level]], 1.0)
        return held, amount, consumed

    @cached_property
    def latest(self) -> FloatArray:
        """The last moment at which a job of each class can start, (K,)."""
        latest = (self.table.due - self.table.shortest)[self.options]
        return np.asarray(np.where(self.options >= 0, latest, -np.inf).max(axis=1))

    @property
    def orders(self) -> Iterator[FloatArray]:
        """Numbers by which classes come: by deadline, by their latest start, and by deadline and
        cost, as in `formulations.level_planner`.
        """
        best = self.options[:, 0]
        due = self.table.due[best]
        yield due
        yield self.latest
        yield due + COST_BESIDE_DEADLINE * (self.table.gpus * self.table.shortest)[best]

    def plan(self, order: FloatArray, timer: Timer) -> SweptPlan | None:
        """The plan in an order, or what there is time for; None as of `plan_by_sweeps`."""
        k = self.table.C.of_job[self.jobs]
        place = np.lexsort((self.jobs, order[k], ~self.table.stays[k]))
        return _InOrder(self, self.jobs[place]).plan(timer)


class _Choices(NamedTuple):
    """Jobs that may start in a slot, and levels at which they may; jobs ascend, and the best level
    of each comes first.

    Attributes
    ----------
    row : IntArray, shape (n,)
        Job, as an index of those that are looked at.
    level : IntArray, shape (n,)
    begin, end : FloatArray, shape (n,)
    until : IntArray, shape (n, most)
        Slots from then on for which it holds each resource of its level.
    """

    row: IntArray
    level: IntArray
    begin: FloatArray
    end: FloatArray
    until: IntArray

    def take(self, some: IntArray) -> _Choices:
        return _Choices(
            self.row[some], self.level[some], self.begin[some], self.end[some], self.until[some]
        )


class _InOrder:
    """One sweep over the slots.

    Parameters
    ----------
    sweep : TimeSweep
    jobs : IntArray, shape (jobs,)
        Rows of jobs, in their order.
    """

    def __init__(self, sweep: TimeSweep, jobs: IntArray) -> None:
        self._sweep, self._table, self._edges = sweep, sweep.table, sweep.edges
        self._jobs, self._k = jobs, sweep.table.C.of_job[jobs]
        self._room = sweep.room.copy()
        self._planned: list[tuple[IntArray, IntArray, FloatArray, FloatArray]] = []

    def plan(self, timer: Timer) -> SweptPlan | None:
        """The plan of all jobs that find room in time."""
        k, edges = self._k, self._edges
        arrives = np.searchsorted(edges, self._table.release[k], "right") - 1
        latest, stays = self._sweep.latest[k], self._table.stays[k]
        waits, stopped = np.ones(len(k), bool), False
        for slot, begin in enumerate(edges[:-1].tolist()):
            # Jobs that cannot be preempted go on from the first slot on, even if there is no time.
            if stopped := slot > 0 and timer.is_over:
                break
            some = waits & (arrives <= slot) & (latest >= begin * (1.0 - ROUNDING))
            # Those that go on come first, and none of them can wait for the next slot.
            most = max(MOST_WAITING, np.count_nonzero(stays)) if slot == 0 else MOST_WAITING
            waits[self._start(slot, np.flatnonzero(some)[:most])] = False
            if slot == 0 and (waits & stays).any():
                return None
        fields = zip(*self._planned, strict=True) if self._planned else [[np.zeros(0)]] * 4
        place, level, start, end = (np.concatenate(field) for field in fields)
        job = self._jobs[place.astype(np.int64)]
        return SweptPlan(job, level.astype(np.int64), start, end, stopped)

    def _start(self, slot: int, places: IntArray) -> IntArray:
        """Start jobs in a slot, by their places in the order; return those that are started."""
        choices, started = self._choices(slot, places), [places[:0]]
        while len(choices.row):
            fits, accepted = self._fitting(slot, choices)
            chosen = choices.take(accepted)
            self._take(slot, chosen)
            place = places[chosen.row]
            self._planned.append((place, chosen.level, chosen.begin, chosen.end))
            started.append(place)
            waits = ~mask_of(chosen.row, len(places))[choices.row[fits]]
            choices = choices.take(fits[waits])
        return np.concatenate(started)

    def _choices(self, slot: int, places: IntArray) -> _Choices:
        """The levels at which jobs would be in time from a slot on, and have room in it."""
        table, (resource, amount, used_up), edges = self._table, self._sweep.uses, self._edges
        options = self._sweep.options[self._k[places]]
        free = self._room[:, slot][resource[options]] >= amount[options] * (1.0 - ROUNDING)
        row, at = (free.all(axis=2) & (options >= 0)).nonzero()
        level = options[row, at]
        release = table.release[self._k[places]][row]
        begin = np.maximum(edges[slot], release)
        goes_on = (begin == release) & ~np.isnan(table.onward[level])
        end = begin + table.duration[level]
        end += np.where(goes_on, table.onward[level], table.first[level])
        until = np.searchsorted(edges, np.minimum(end, edges[-1]))
        # What is used up is lost for all slots that follow.
        until = np.where(used_up[level], len(edges) - 1, until[:, np.newaxis]) - slot
        due = table.due[level]
        in_time = np.flatnonzero(end <= due + ROUNDING * np.maximum(due, 1.0))
        return _Choices(row, level, begin, end, until).take(in_time)

    def _fitting(self, slot: int, choices: _Choices) -> tuple[IntArray, IntArray]:
        """Of choices of jobs those with room, and those that are made: the first of each job, if
        there is room for it beside those of all jobs before.

        Room is the least that is free until the job ends. What jobs hold together is compared with
        the room of each: so the last of those that hold something at a moment has checked it.
        """
        resource, amount, _ = self._sweep.uses
        row, level, until = choices.row, choices.level, choices.until
        span = slice(slot, slot + int(until.max()))
        least = np.minimum.accumulate(self._room[:, span], axis=1)
        room = least[resource[level], until - 1]
        fits = np.flatnonzero((room >= amount[level] * (1.0 - ROUNDING)).all(axis=1))
        first = fits[np.append(True, row[fits][1:] != row[fits][:-1])[: len(fits)]]
        held, asked, room = resource[level[first]], amount[level[first]], room[first]
        order = np.argsort(held, axis=None, kind="stable")
        each, together = asked.ravel()[order], np.empty(asked.size)
        together[order] = sum_before(each, held.ravel()[order]) + each
        enough = together.reshape(asked.shape) * (1.0 - ROUNDING) <= room
        return fits, first[(enough | (asked == 0)).all(axis=1)]

    def _take(self, slot: int, chosen: _Choices) -> None:
        """Take what jobs hold from a slot on."""
        resource, amount, _ = self._sweep.uses
        level, until = chosen.level, chosen.until
        change = np.zeros((len(self._room), int(until.max(initial=0)) + 1))
        np.add.at(change[:, 0], resource[level], amount[level])
        np.subtract.at(change, (resource[level], until), amount[level])
        span = slice(slot, slot + change.shape[1] - 1)
        self._room[:, span] -= np.cumsum(change, axis=1)[:, :-1]
