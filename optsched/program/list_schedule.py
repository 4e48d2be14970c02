"""List schedules of timeline programs: feasible at once, good enough to start a search from.

Activities are taken in an order and placed as early as their resources allow, never to be moved
again (the serial schedule generation scheme: R. Kolisch, "Serial and parallel resource-constrained
project scheduling methods revisited", European Journal of Operational Research 90, 1996). With one
mode each on one pool, the list is at most twice as long as the optimum (M. R. Garey, R. L. Graham,
SIAM Journal on Computing 4, 1975).
"""

from __future__ import annotations

import heapq

import numpy as np

from optsched.arrays import IntArray
from optsched.program.timeline import TimelineProgram

FAR = np.iinfo(np.int64).max // 4


class ResourceProfile:
    """Use of one resource over time, as steps."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.time = np.zeros(1, np.int64)
        self.level = np.zeros(1, np.int64)
        """Use from each time to the next."""

    def add(self, begin: int, end: int, amount: int) -> None:
        """Take an amount from begin to end."""
        for moment in (begin, end):
            place = int(np.searchsorted(self.time, moment, "right"))
            if self.time[place - 1] != moment:
                self.time = np.insert(self.time, place, moment)
                self.level = np.insert(self.level, place, self.level[place - 1])
        first, last = np.searchsorted(self.time, (begin, end))
        self.level[first:last] += amount

    def earliest(self, start: int, length: int, amount: int) -> int:
        """The first time from ``start`` on at which an amount is free for so long."""
        if amount > self.capacity:
            return FAR
        first = int(np.searchsorted(self.time, start, "right")) - 1
        full = self.level[first:] > self.capacity - amount
        ends = np.append(self.time[first + 1 :], FAR)
        # A gap begins at `start` or where something full ends, and lasts until the next thing that
        # is full begins.
        begins = np.concatenate(([start], ends[full]))
        stops = np.append(np.maximum(self.time[first:][full], start), FAR)
        fits = np.flatnonzero(stops - begins >= length)
        return int(begins[fits[0]])


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
        self.duration = program.duration
        self._indptr, self._resource = uses.indptr, uses.indices.tolist()
        self._amount = np.round(uses.data).astype(np.int64).tolist()
        self._profiles = profiles(program)

    def _needs(self, mode: int) -> list[tuple[int, int]]:
        rows = slice(self._indptr[mode], self._indptr[mode + 1])
        return list(zip(self._resource[rows], self._amount[rows], strict=True))

    def earliest(self, mode: int, start: int) -> int:
        """The first start of a mode at which all that it needs is free."""
        needs, length = self._needs(mode), int(self.duration[mode])
        while start < FAR:
            later = max(
                (self._profiles[r].earliest(start, length, amount) for r, amount in needs),
                default=start,
            )
            if later == start:
                break
            start = later
        return start

    def place(self, mode: int, start: int) -> None:
        """Put a mode there."""
        for resource, amount in self._needs(mode):
            self._profiles[resource].add(start, start + int(self.duration[mode]), amount)


def list_schedule(program: TimelineProgram) -> tuple[IntArray, IntArray] | None:
    """(start, mode) of every activity: longest first, each in the mode that ends first;
    None if a limit is broken.

    Activities that others wait for come before these.
    """
    shortest = np.full(len(program), FAR)
    np.minimum.at(shortest, program.activity, program.duration)
    waits = np.bincount(program.precedence[:, 1], minlength=len(program))
    after: list[list[int]] = [[] for _ in range(len(program))]
    for a, b in program.precedence.tolist():
        after[a].append(b)
    ready = [(-int(shortest[a]), a) for a in np.flatnonzero(waits == 0).tolist()]
    heapq.heapify(ready)
    placer, low = _Placer(program), program.release.copy()
    left = program.budget.copy()
    budgets = (
        None if program.budget_usage is None else program.budget_usage.toarray().astype(np.int64)
    )
    start, mode = np.zeros(len(program), np.int64), np.full(len(program), -1, np.int64)
    while ready:
        _, a = heapq.heappop(ready)
        choices = list(range(int(program.first_mode[a]), int(program.first_mode[a + 1])))
        if budgets is not None:
            choices = [m for m in choices if (budgets[:, m] <= left).all()]
        options = [(placer.earliest(m, int(low[a])), m) for m in choices]
        ends = [(begin + int(program.duration[m]), m, begin) for begin, m in options if begin < FAR]
        if not ends or min(ends)[0] > program.deadline[a]:
            return None
        end, mode[a], start[a] = min(ends)
        placer.place(int(mode[a]), int(start[a]))
        if budgets is not None:
            left -= budgets[:, mode[a]]
        for b in after[a]:
            low[b] = max(int(low[b]), end)
            waits[b] -= 1
            if waits[b] == 0:
                heapq.heappush(ready, (-int(shortest[b]), b))
    found = (mode >= 0).all() and next(program.violations(start, mode), None) is None
    return (start, mode) if found else None


def shifted_left(program: TimelineProgram, start: IntArray, mode: IntArray) -> IntArray:
    """Starts as early as the order of a feasible schedule allows:
    one activity after the other, in that order.

    No end becomes later, so a schedule of regular cost stays as good.
    """
    before: list[list[int]] = [[] for _ in range(len(program))]
    for a, b in program.precedence.tolist():
        before[b].append(a)
    placer, result = _Placer(program), start.copy()
    for a in np.lexsort((np.arange(len(program)), start)).tolist():
        low = max(
            [
                int(program.release[a]),
                *(int(result[b] + program.duration[mode[b]]) for b in before[a]),
            ]
        )
        result[a] = min(placer.earliest(int(mode[a]), low), int(start[a]))
        placer.place(int(mode[a]), int(result[a]))
    return result
