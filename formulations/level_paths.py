"""The cheapest schedule of each job at given costs: a shortest path over intervals and levels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from heapq import heapify, heappop, heappush
from typing import NamedTuple

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray, ranges

GRID = 512
"""Parts of the work in which the bound of a path counts it."""
LABELS = 400
"""Labels of a job that are followed for each unit of effort; then the least bound of those left is
the answer."""
MOST_CELLS = 12_000_000
"""Numbers in the bounds of the jobs that are searched together."""
NEARLY = 1e-10
"""Part of the work that may be left: rounding."""

Trail = tuple[int, "Trail"] | tuple[()]
"""The x of a path, the last first."""
_Label = tuple[float, int, float, int, int, float, Trail]
"""Part of a path: its bound, minus the next interval, part of the work that is left, the row of the
search, how the job ran in the last interval, the cost, and the x."""
_Way = tuple[int, int, float, float, float, float]
"""To run in an interval: the level and the x, part of the work that is done if the job goes on or
starts, and the same of costs."""
DONE = -1
"""In place of how the job ran in the last interval."""


class Costs(NamedTuple):
    """What the parts of a schedule cost; restarts at least 0.

    Attributes
    ----------
    run, restart : FloatArray, shape (X,)
        To run in each x, and to restart there.
    meet : FloatArray, shape (D,)
        To meet each deadline.
    most : FloatArray, shape (jobs,)
        Schedules that cost as much or more are not asked for.
    """

    run: FloatArray
    restart: FloatArray
    meet: FloatArray
    most: FloatArray


class Cheapest(NamedTuple):
    """The cheapest schedule of each job that has one of less than its ``most``.

    Attributes
    ----------
    least : FloatArray, shape (jobs,)
        No schedule of the job costs less; at most ``most``.
    x : IntArray
        The x in which the jobs run.
    deadline : IntArray, shape (jobs,)
        The deadline that each meets, -1 where no schedule was found.
    """

    least: FloatArray
    x: IntArray
    deadline: IntArray


@dataclass(frozen=True)
class LevelPaths:
    """Schedules of jobs in whole intervals: a job waits, or runs at one of its levels (an *x*: a
    level in an interval), until its work is done.

    The cheapest one is a shortest path with a resource, the work k that is left. Labels are
    followed best first. The bound of a label is what it has cost and a shortest path from there in
    which work counts in 1 / `GRID` parts, rounded in favour of the job: from the last interval
    back,

        B_t(s, k) = min over n of  cost of n in t  +  B_t+1(n, k - work of n in t),    B_t(s, 0) = 0,

    where s is how the job ran in the last interval, and n how it runs next. So the first whole path
    that comes up is the cheapest, and the least bound of all labels is always a bound on it.

    Attributes
    ----------
    jobs : int
    job : IntArray, shape (c,)
        Of each level.
    level, interval : IntArray, shape (X,)
    taken : FloatArray, shape (X,)
        Part of the work that a restart in each x takes; 0 where it is free.
    ran, single : BoolArray, shape (jobs,)
        Whether the first start of a job counts as a restart, and whether it runs in one piece.
    job_of_deadline : IntArray, shape (D,)
        Ascending.
    deadline, x : IntArray, shape (E,)
        Pairs of a deadline and an x of the same job that begins before it.
    done : FloatArray, shape (E,)
        Part of the work that is done in the x by the deadline.
    """

    jobs: int
    job: IntArray
    level: IntArray
    interval: IntArray
    taken: FloatArray
    ran: BoolArray
    single: BoolArray
    job_of_deadline: IntArray
    deadline: IntArray
    x: IntArray
    done: FloatArray

    def cheapest(self, costs: Costs, effort: int = 1) -> Cheapest:
        """The cheapest schedule of each job, or a cheap one.

        Parameters
        ----------
        costs : Costs
        effort : int
            How hard to look.

        Returns
        -------
        Cheapest
        """
        least = costs.most.copy()
        deadline = np.full(self.jobs, -1, np.int64)
        chosen: list[int] = []
        for search in self._searches(costs):
            for job, rows in search.by_job():
                least[job], row, trail = search.best(
                    rows,
                    bool(self.ran[job]),
                    bool(self.single[job]),
                    float(costs.most[job]),
                    LABELS * effort,
                )
                if row >= 0:
                    deadline[job] = search.deadline[row]
                while trail:
                    x, trail = trail
                    chosen.append(x)
        return Cheapest(least, np.array(chosen, np.int64), deadline)

    def _searches(self, costs: Costs) -> Iterator[_PathSearch]:
        """Searches of some jobs each, a row for every deadline."""
        deadlines = np.unique(self.deadline)
        jobs = self.job_of_deadline[deadlines]
        first = np.append(np.flatnonzero(np.diff(jobs, prepend=-1)), len(jobs)).tolist()
        width, T = self._x.shape[1:]
        most = MOST_CELLS // ((T + 1) * (width + 2) * (GRID + 1))
        begin = 0
        for end, beyond in zip(first[1:], [*first[2:], None], strict=False):
            if beyond is None or beyond - begin > most:
                yield self._search(costs, deadlines[begin:end])
                begin = end

    def _search(self, costs: Costs, deadline: IntArray) -> _PathSearch:
        last = 1 + int(np.flatnonzero((self._x[deadline] >= 0).any(axis=(0, 1)))[-1])
        x, done = self._x[deadline, :, :last], self._done[deadline, :, :last]
        there, job = x >= 0, self.job_of_deadline[deadline]
        return _PathSearch(
            job,
            deadline,
            costs.meet[deadline],
            x,
            done,
            np.where(there, done - self.taken[x], 0.0),
            np.where(there, costs.run[x], np.inf),
            np.where(there, costs.run[x] + costs.restart[x], np.inf),
            self.single[job],
        )

    @cached_property
    def _place(self) -> IntArray:
        """Place of each level among those of its job, (c,)."""
        order = np.argsort(self.job, kind="stable")
        place = np.empty(len(self.job), np.int64)
        place[order] = ranges(
            np.zeros(self.jobs, np.int64), np.bincount(self.job, minlength=self.jobs)
        )
        return place

    @cached_property
    def _x(self) -> IntArray:
        """The x of each deadline, place and interval, (D, S, T); -1 where there is none."""
        shape = len(self.job_of_deadline), *(1 + int(one.max(initial=-1)) for one in self._at)
        table = np.full(shape, -1, np.int64)
        table[self.deadline, self._at[0], self._at[1]] = self.x
        return table

    @cached_property
    def _done(self) -> FloatArray:
        """Part of the work that is done there, (D, S, T)."""
        table = np.zeros(self._x.shape)
        table[self.deadline, self._at[0], self._at[1]] = self.done
        return table

    @cached_property
    def _at(self) -> tuple[IntArray, IntArray]:
        """Place and interval of each pair, (E,)."""
        return self._place[self.level[self.x]], self.interval[self.x]


@dataclass(frozen=True)
class _PathSearch:
    """Searches side by side, each a row. A job that goes on pays ``run``, one that starts
    ``restart``.

    Attributes
    ----------
    job, deadline : IntArray, shape (rows,)
    meet : FloatArray, shape (rows,)
    x : IntArray, shape (rows, S, T)
        -1 where the job cannot run.
    done, done_anew : FloatArray, shape (rows, S, T)
        Part of the work that is done there if the job goes on, and after a restart.
    run, restart : FloatArray, shape (rows, S, T)
        What that costs.
    single : BoolArray, shape (rows,)
    """

    job: IntArray
    deadline: IntArray
    meet: FloatArray
    x: IntArray
    done: FloatArray
    done_anew: FloatArray
    run: FloatArray
    restart: FloatArray
    single: BoolArray

    @property
    def idle(self) -> int:
        """How a job ran that waits and has run; numbers below are levels, the next one is that of a
        job that has not run.
        """
        return int(self.x.shape[1])

    def by_job(self) -> Iterator[tuple[int, range]]:
        """Jobs and their rows."""
        first = np.flatnonzero(np.diff(self.job, prepend=-1)).tolist()
        for begin, end in zip(first, [*first[1:], len(self.job)], strict=True):
            yield int(self.job[begin]), range(begin, end)

    @cached_property
    def _to_go(self) -> list[FloatArray]:
        """B_t(s, k) of each row, of all t; shape (rows, S + 2, GRID + 1)."""
        rows, S, T = self.x.shape
        end = np.full((rows, S + 2, GRID + 1), np.inf)
        end[:, :, 0] = 0.0
        goes, starts = _parts(self.done), _parts(self.done_anew)
        found = [end]
        for t in range(T - 1, -1, -1):
            after, now = found[-1], np.empty_like(end)
            on = _then(self.run[..., t], goes[..., t], after[:, :S])
            new = _then(self.restart[..., t], starts[..., t], after[:, :S])
            np.minimum(after[:, S], new.min(axis=1, initial=np.inf), out=now[:, S])
            np.minimum(after[:, S + 1], on.min(axis=1, initial=np.inf), out=now[:, S + 1])
            stops = np.where(self.single[:, np.newaxis], np.inf, now[:, S])
            np.minimum(on, stops[:, np.newaxis], out=now[:, :S])
            now[:, :, 0] = 0.0
            found.append(now)
        return found[::-1]

    @cached_property
    def _ways(self) -> list[list[list[_Way]]]:
        """How the job of each row can run in each interval."""
        rows, _, T = self.x.shape
        ways: list[list[list[_Way]]] = [[[] for _ in range(T)] for _ in range(rows)]
        there = np.nonzero(self.x >= 0)
        columns = (
            *there,
            *(one[there] for one in (self.x, self.done, self.done_anew, self.run, self.restart)),
        )
        for row, level, t, *way in zip(*(column.tolist() for column in columns), strict=True):
            ways[row][t].append((level, *way))
        return ways

    def best(
        self, rows: range, ran: bool, single: bool, most: float, count: int
    ) -> tuple[float, int, Trail]:
        """A bound on the cost of all paths of some rows, at most ``most``, and the row and the x of
        the cheapest that was found with ``count`` labels; row -1 if none costs less than ``most``.
        """
        state = self.idle if ran or single else self.idle + 1
        labels: list[_Label] = []
        for row in rows:
            cost = float(self.meet[row])
            bound = cost + float(self._to_go[0][row, state, GRID])
            labels.append((bound, 0, 1.0, row, state, cost, ()))
        heapify(labels)
        found: tuple[float, int, Trail] = most, -1, ()
        seen: dict[tuple[int, int, int], list[tuple[float, float]]] = {}
        for _ in range(count):
            if not labels or labels[0][0] >= found[0]:
                return found
            label = heappop(labels)
            _, before, left, row, state, cost, _ = label
            others = seen.setdefault((row, before, state), [])
            # Nothing that comes after this label is better than what comes after one of these.
            if any(less <= left and cheaper <= cost for less, cheaper in others):
                continue
            others.append((left, cost))
            for new in self._next(label, single):
                if new[0] < found[0] and new[4] != DONE:
                    heappush(labels, new)
                elif new[0] < found[0]:
                    found = new[0], row, new[-1]
        return min([found[0], *(label[0] for label in labels[:1])]), *found[1:]

    def _next(self, label: _Label, single: bool) -> Iterator[_Label]:
        """What a job may do in the next interval."""
        _, before, left, row, state, cost, trail = label
        if -before == self.x.shape[2]:
            return
        to_go, running = self._to_go[1 - before][row], state < self.idle
        if not (single and running):
            rests = self.idle if running else state
            bound = cost + float(to_go[rests, _whole(left)])
            yield bound, before - 1, left, row, rests, cost, trail
        for level, x, done, done_anew, run, restart in self._ways[row][-before]:
            if level != state and state <= self.idle:
                if single and running:
                    continue
                done, run = done_anew, restart
            rest, price, more = left - done, cost + run, (x, trail)
            if rest > NEARLY:
                bound = price + float(to_go[level, _whole(rest)])
                yield bound, before - 1, rest, row, level, price, more
            else:
                yield price, before - 1, 0.0, row, DONE, price, more


def _whole(left: float) -> int:
    """Whole parts of the work that are left; a restart may take more than a short interval
    brings.
    """
    return min(int(left * GRID), GRID)


def _parts(work: FloatArray) -> IntArray:
    """Work in parts of 1 / GRID, rounded up."""
    return np.ceil(work * GRID - NEARLY).astype(np.int64)


def _then(cost: FloatArray, parts: IntArray, after: FloatArray) -> FloatArray:
    """What it costs to run in an interval, (rows, S), and after it; shape (rows, S, GRID + 1)."""
    left = np.clip(np.arange(GRID + 1) - parts[..., np.newaxis], 0, GRID)
    return np.asarray(cost[..., np.newaxis] + np.take_along_axis(after, left, 2))
