"""List schedules of timeline programs: feasible at once, good enough to start a search from.

Activities are taken in an order and placed as early as their resources allow, never to be moved
again (the serial schedule generation scheme: R. Kolisch, "Serial and parallel resource-constrained
project scheduling methods revisited", European Journal of Operational Research 90, 1996). With one
mode each on one pool, the list is at most twice as long as the optimum (M. R. Garey, R. L. Graham,
SIAM Journal on Computing 4, 1975).
"""

from __future__ import annotations

import heapq
from itertools import pairwise

import numpy as np

from optsched.arrays import IntArray
from optsched.instance.durations import UNLIMITED, Timer
from optsched.program.timeline import TimelineProgram

FAR = np.iinfo(np.int64).max // 4


class ResourceProfile:
    """Use of one resource over time, as steps, from the first moment at which anything is free."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.time = np.zeros(1, np.int64)
        self.level = np.zeros(1, np.int64)
        """Use from each time to the next."""

    def add(self, begin: int, end: int, amount: int) -> None:
        """Take an amount from begin to end."""
        first, last = self._step_at(begin), self._step_at(end)
        self.level[first:last] += amount
        # Nothing is ever given back: what is full from the start on need not be looked at again.
        full = int(np.argmax(self.level < self.capacity))
        self.time, self.level = self.time[full:], self.level[full:]

    def _step_at(self, moment: int) -> int:
        """The step that begins at a moment, or at the first one."""
        moment = max(moment, int(self.time[0]))
        place = int(self.time.searchsorted(moment))
        if place == len(self.time) or self.time[place] != moment:
            self.time = np.concatenate([self.time[:place], [moment], self.time[place:]])
            self.level = np.concatenate([self.level[:place], self.level[place - 1 :]])
        return place

    def earliest(self, start: int, length: int, amount: int) -> int:
        """The first time from ``start`` on at which an amount is free for so long."""
        if amount > self.capacity:
            return FAR
        start = max(start, int(self.time[0]))
        if len(self.time) == 1:  # nothing runs any more
            return start
        first = int(self.time.searchsorted(start, "right")) - 1
        full = first + np.flatnonzero(self.level[first:] > self.capacity - amount)
        # A gap begins at `start` or where something full ends, and lasts until the next thing that
        # is full begins. The last step has no end, and is never full.
        begins = np.concatenate([[start], self.time[full + 1]])
        stops = np.concatenate([np.maximum(self.time[full], start), [FAR]])
        return int(begins[np.argmax(stops - begins >= length)])


def profiles(program: TimelineProgram) -> list[ResourceProfile]:
    """Resources with nothing on them but their calendars."""
    made = [ResourceProfile(capacity) for capacity in program.capacity.tolist()]
    for resource, begin, end, amount in program.closed.tolist():
        if end > max(begin, 0):
            made[resource].add(max(begin, 0), end, amount)
    return made


class _Placer:
    """Places modes on profiles."""

    def __init__(self, program: TimelineProgram) -> None:
        uses = program.usage.tocsc()
        uses.sort_indices()
        needs = list(
            zip(uses.indices.tolist(), np.round(uses.data).astype(int).tolist(), strict=True)
        )
        self._needs = [needs[i:j] for i, j in pairwise(uses.indptr.tolist())]
        """(resource, amount) of all that each mode takes."""
        self._duration = program.duration.tolist()
        self._profiles = profiles(program)

    def earliest(self, mode: int, start: int) -> int:
        """The first start of a mode at which all that it needs is free."""
        needs, length = self._needs[mode], self._duration[mode]
        while start < FAR:
            # Each resource puts the start off; it is found once none of them does. With one that is
            # at once.
            later = max(
                (self._profiles[r].earliest(start, length, amount) for r, amount in needs),
                default=start,
            )
            if later == start or len(needs) == 1:
                return later
            start = later
        return start

    def place(self, mode: int, start: int) -> None:
        """Put a mode there."""
        for resource, amount in self._needs[mode]:
            self._profiles[resource].add(start, start + self._duration[mode], amount)


def list_schedule(
    program: TimelineProgram, timer: Timer = UNLIMITED
) -> tuple[IntArray, IntArray] | None:
    """(start, mode) of every activity: longest first, each in the mode that ends first;
    None if a limit is broken.

    Activities that others wait for come before these. Once the time is over, the others run one
    after the other, behind all that have a place.
    """
    shortest = np.full(len(program), FAR)
    np.minimum.at(shortest, program.activity, program.duration)
    waits = np.bincount(program.precedence[:, 1], minlength=len(program))
    after: list[list[int]] = [[] for _ in range(len(program))]
    for a, b in program.precedence.tolist():
        after[a].append(b)
    # The longest activity first, of those that wait for nobody any more.
    ready = [(-int(shortest[a]), a) for a in np.flatnonzero(waits == 0).tolist()]
    heapq.heapify(ready)
    placer, low = _Placer(program), program.release.tolist()
    duration, first_mode = program.duration.tolist(), program.first_mode.tolist()
    left = program.budget.copy()
    budgets = (
        None if program.budget_usage is None else program.budget_usage.toarray().astype(np.int64)
    )
    start, mode = np.zeros(len(program), np.int64), np.full(len(program), -1, np.int64)
    last, over = int(program.closed[:, 2].max(initial=0)), False
    while ready:
        _, a = heapq.heappop(ready)
        over = over or timer.is_over
        choices = list(range(first_mode[a], first_mode[a + 1]))
        if budgets is not None:
            choices = [m for m in choices if (budgets[:, m] <= left).all()]
        # After everything that has a place, the calendars too, there is room for any mode.
        behind = max(low[a], last)
        options = [(behind if over else placer.earliest(m, low[a]), m) for m in choices]
        ends = [(begin + duration[m], m, begin) for begin, m in options if begin < FAR]
        if not ends or min(ends)[0] > program.deadline[a]:
            return None
        end, mode[a], start[a] = min(ends)
        last = max(last, end)
        if not over:
            placer.place(int(mode[a]), int(start[a]))
        if budgets is not None:
            left -= budgets[:, mode[a]]
        for b in after[a]:
            low[b] = max(low[b], end)
            waits[b] -= 1
            if waits[b] == 0:
                heapq.heappush(ready, (-int(shortest[b]), b))
    found = (mode >= 0).all() and next(program.violations(start, mode), None) is None
    return (start, mode) if found else None


def shifted_left(
    program: TimelineProgram, start: IntArray, mode: IntArray, timer: Timer = UNLIMITED
) -> IntArray:
    """Starts as early as the order of a feasible schedule allows:
    one activity after the other, in that order, until the time is over.

    No end becomes later, so a schedule of regular cost stays as good.
    """
    before: list[list[int]] = [[] for _ in range(len(program))]
    for a, b in program.precedence.tolist():
        before[b].append(a)
    placer, result = _Placer(program), start.copy()
    for a in np.lexsort((np.arange(len(program)), start)).tolist():
        if timer.is_over:
            break  # what has moved uses nothing at any moment from here on that it did not use
        low = max(
            [
                int(program.release[a]),
                *(int(result[b] + program.duration[mode[b]]) for b in before[a]),
            ]
        )
        result[a] = min(placer.earliest(int(mode[a]), low), int(start[a]))
        placer.place(int(mode[a]), int(result[a]))
    return result
