"""Open shop: times of jobs on pools of identical GPUs cut into slices in
which every job is on at most one GPU.

Gonzalez and Sahni, "Open shop scheduling to minimize finish time", 1976; Birkhoff, "Tres
observaciones sobre el algebra lineal", 1946. Given X[j, i], the time of job j on pool i of N_i
GPUs,

    C = max( max_j sum_i X[j, i],  max_i sum_j X[j, i] / N_i )

is the shortest time in which X can be run, and this module runs it in exactly C. A slice is a
matching of jobs and pools, each job at most once and pool i at most N_i times. With T the time that
is left and X what is left of the times, the rest stays possible after a slice of length delta if

    jobs that have to run all the time, sum_i X[j, i] = T, are in the slice,
    pools that have to be full all the time, sum_j X[j, i] = N_i T, are full in it, and
    delta <= X[j, i] of what runs,  T - sum_i X[j, i] of the jobs that wait,  and
    delta <= (N_i T - sum_j X[j, i]) / (N_i - jobs on i) of the pools with idle GPUs.

X / T is a fractional matching that keeps the first two, so a matching that keeps them exists
(bipartite matching polytopes are integral). The largest such delta ends what runs, or makes a job
or a pool one that has to run from then on: there are at most as many slices as positive entries,
jobs and pools together. That is the decomposition of Birkhoff with the identical GPUs of a pool as
one node: neither GPUs nor the padding to a square matrix are spelled out.

The arithmetic uses integers, so that subtractions are exact.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray, mask_of, owners
from optsched.placement.instant import Instant
from optsched.placement.shares import FULL


class CoveringMatching:
    """Edges of a bipartite graph of jobs and places:
    each job on at most one edge, each place on at most its capacity.

    `cover` adds a job that must be matched, `fill` a place that must be full, along a shortest
    alternating path; both keep every job that must be matched matched, and every place that must be
    full full. By the theorem of Mendelsohn and Dulmage ("Some generalizations of the problem of
    distinct representatives", 1958) such a path exists whenever any matching meets all demands.
    Paths are found over places, of which there are few.

    Parameters
    ----------
    job, place : IntArray, shape (E,)
        Ends of each edge.
    capacity : list of int, length P
    jobs : int
        J.

    Attributes
    ----------
    open : BoolArray, shape (E,)
        Edges that may be used.
    on : BoolArray, shape (E,)
        Edges in use.
    edge : IntArray, shape (J,)
        Edge of each job, -1 for none.
    degree : list of int, length P
    must_match : BoolArray, shape (J,)
    must_fill : list of bool, length P
    """

    def __init__(self, job: IntArray, place: IntArray, capacity: list[int], jobs: int) -> None:
        self.job = job
        self.place = place
        self.capacity = capacity
        self.open = np.ones(len(job), bool)
        self.on = np.zeros(len(job), bool)
        self.edge = np.full(jobs, -1, np.int64)
        self.degree = [0] * len(capacity)
        self.must_match = np.zeros(jobs, bool)
        self.must_fill = [False] * len(capacity)

    def add(self, edges: IntArray) -> None:
        """Use edges of jobs that have none, as far as their places have room."""
        self.on[edges] = True
        self.edge[self.job[edges]] = edges
        for place, count in enumerate(
            np.bincount(self.place[edges], minlength=len(self.degree)).tolist()
        ):
            self.degree[place] += count

    def remove(self, edges: IntArray) -> None:
        """Take edges out of use."""
        self.on[edges] = False
        self.edge[self.job[edges]] = -1
        for place, count in enumerate(
            np.bincount(self.place[edges], minlength=len(self.degree)).tolist()
        ):
            self.degree[place] -= count

    def cover(self, job: int, slack: FloatArray | IntArray, left: IntArray) -> None:
        """Match a job; if another job must give up its place, it is the one with the largest slack.

        Parameters
        ----------
        job : int
        slack : array, shape (J,)
        left : IntArray, shape (E,)
            Of several edges to a place, the one with the largest value is used.
        """
        came_by = [-1] * len(self.degree)  # the edge by which a job would come to each place
        queue: deque[int] = deque()
        self._reach(np.flatnonzero((self.job == job) & self.open), came_by, queue, left)
        while queue:
            place = queue.popleft()
            if self.degree[place] < self.capacity[place]:
                return self._shift(came_by, place, -1)
            # A full place: one of its jobs that need not run gives way, or one moves to another
            # place.
            present = np.flatnonzero(self.on & (self.place == place))
            yielding = present[~self.must_match[self.job[present]]]
            if len(yielding):
                largest = int(yielding[np.argmax(slack[self.job[yielding]])])
                return self._shift(came_by, place, largest)
            moving = mask_of(self.job[present], len(self.edge))
            self._reach(
                np.flatnonzero(moving[self.job] & self.open & ~self.on),
                came_by,
                queue,
                left,
            )
        raise AssertionError("no matching meets the demands")

    def _reach(
        self,
        edges: IntArray,
        came_by: list[int],
        queue: deque[int],
        left: IntArray,
    ) -> None:
        """Record the places at the other ends of edges that were not reached before."""
        for place in np.unique(self.place[edges]).tolist():
            if came_by[place] < 0:
                ways = edges[self.place[edges] == place]
                came_by[place] = int(ways[np.argmax(left[ways])])
                queue.append(place)

    def _shift(self, came_by: list[int], place: int, yielding: int) -> None:
        """Move every job on the path to a place to the edge by which it reaches its new place."""
        gone = [yielding] if yielding >= 0 else []
        new = [came_by[place]]
        old = int(self.edge[self.job[new[-1]]])
        while old >= 0:
            gone.append(old)
            new.append(came_by[int(self.place[old])])
            old = int(self.edge[self.job[new[-1]]])
        self.remove(np.array(gone, np.int64))
        self.add(np.array(new, np.int64))

    def fill(self, place: int, wanted: IntArray, left: IntArray) -> None:
        """Bring one more job to a place that has room.

        Parameters
        ----------
        place : int
        wanted : IntArray, shape (J,)
            Of the jobs without an edge, the one with the largest value is used.
        left : IntArray, shape (E,)
            Of several jobs that could move, the one with the largest value moves.
        """
        leaves_by = {place: -1}  # the edge by which a place would lose a job
        queue = deque([place])
        while queue:
            target = queue.popleft()
            coming = np.flatnonzero(self.open & ~self.on & (self.place == target))
            now = self.edge[self.job[coming]]
            idle = coming[now < 0]
            if len(idle):
                first = int(idle[np.argmax(wanted[self.job[idle]])])
                return self._pull(target, first, leaves_by)
            coming = coming[now >= 0]
            now = now[now >= 0]
            for other in np.unique(self.place[now]).tolist():
                if other in leaves_by:
                    continue
                ways = coming[self.place[now] == other]
                way = int(ways[np.argmax(left[ways])])
                # The other place need not stay full, so the path ends there.
                if not self.must_fill[other]:
                    return self._pull(target, way, leaves_by)
                leaves_by[other] = way
                queue.append(other)
        raise AssertionError("no matching meets the demands")

    def _pull(self, place: int, edge: int, leaves_by: dict[int, int]) -> None:
        """Use an edge into a place, and move one job from each place on the path to the next."""
        new = [edge]
        while leaves_by[place] >= 0:
            new.append(leaves_by[place])
            place = int(self.place[new[-1]])
        added = np.array(new, np.int64)
        old = self.edge[self.job[added]]
        self.remove(old[old >= 0])
        self.add(added)

    def idle(self) -> BoolArray:
        """Mask of the jobs without an edge."""
        return self.edge < 0


UNIT = 2**60
"""Times are counted in units of 1 / UNIT."""
GRID = 2**16
"""Times are rounded to multiples of this many units (6e-14), so that times which differ only by a
solver's rounding end together.
"""


def as_open_shop(instant: Instant) -> tuple[IntArray, IntArray] | None:
    """(place of each row, jobs that each place takes) if the instant is a matching of jobs and
    places, else None.

    It is a matching if there are no pairs, and each row uses one resource, of which all its rows
    use the same amount: one GPU each of a pool, or gangs of one size. Rows without a resource that
    can bind have a separate place. If rows of a pool use shares of GPUs, equally many of each must
    fit on one GPU, so that only the number of running rows matters.
    """
    uses = np.diff(instant.by_row.indptr)
    if (
        instant.has_pairs
        or uses.max(initial=0) > 1
        or not (instant.shares is None or instant.shares.interchangeable())
    ):
        return None
    usage = instant.usage
    resources = usage.shape[0]
    place = np.full(len(instant), resources, np.int64)
    place[usage.indices] = owners(np.diff(usage.indptr))
    takes = np.full(resources + 1, max(instant.jobs, 1), np.int64)
    for resource in range(resources):
        amount = usage.data[usage.indptr[resource] : usage.indptr[resource + 1]]
        if amount.max() > amount.min() * FULL:
            return None
        takes[resource] = int(FULL / amount.max())
    return place, takes


def decompose(
    job: IntArray, place: IntArray, time: FloatArray, takes: IntArray
) -> tuple[FloatArray, list[IntArray], float]:
    """Cut times of jobs on places into slices.

    Parameters
    ----------
    job, place : IntArray, shape (A,)
        Of each entry; a job may have several entries on a place.
    time : FloatArray, shape (A,)
        At most about 1 each.
    takes : IntArray, shape (P,)
        Number of jobs that a place takes at a time, at least 1.

    Returns
    -------
    lengths : FloatArray, shape (S,)
        In order; they add up to at most C.
    runs : list of IntArray, length S
        Entries that run in each slice, ascending.
    total : float
        C.
    """
    # Integers: with floating-point rounding, slices would not end at the same time.
    left = np.rint(time * (UNIT // GRID)).astype(np.int64) * GRID
    entries = np.flatnonzero(left > 0)
    if len(entries) == 0:
        return np.zeros(0), [], 0.0
    jobs, of_job = np.unique(job[entries], return_inverse=True)
    slices = _Slices(of_job, place[entries], left[entries], takes.tolist(), len(jobs))
    total = slices.time
    lengths, runs = slices.cut()
    return (
        np.array(lengths, np.float64) / UNIT,
        [entries[part] for part in runs],
        total / UNIT,
    )


class _Slices:
    """The state of a decomposition: the remaining times, and the matching of the current slice."""

    def __init__(
        self,
        job: IntArray,
        place: IntArray,
        left: IntArray,
        takes: list[int],
        jobs: int,
    ) -> None:
        self.job = job
        self.place = place
        self.left = left
        self.takes = takes
        self.of_job = np.zeros(jobs, np.int64)
        np.add.at(self.of_job, job, left)
        of_place = [
            sum(left[place == number].tolist()) for number in range(len(takes))
        ]  # beyond 64 bits
        shortest = max(
            int(self.of_job.max()),
            *(-(-t // n) for t, n in zip(of_place, takes, strict=True)),
        )
        # Rounded up, so that every time is a multiple of the grid.
        self.time = -(-shortest // GRID) * GRID
        self.job_slack = self.time - self.of_job
        self.place_slack: list[int] = [
            n * self.time - t for t, n in zip(of_place, takes, strict=True)
        ]
        self.matching = CoveringMatching(job, place, takes, jobs)

    def cut(self) -> tuple[list[int], list[IntArray]]:
        """Lengths and entries of the slices, until nothing (or less than 1e-13) is left."""
        lengths = []
        runs = []
        end = sum(self.takes)
        while self.time > end and self.left.any():
            self._demand()
            self._use_idle()
            delta = self._longest()
            if delta <= 0:
                raise AssertionError("a matching that meets the demands can run for a while")
            running = np.flatnonzero(self.matching.on)
            lengths.append(delta)
            runs.append(running)
            self._advance(running, delta)
        return lengths, runs

    def _demand(self) -> None:
        """Match the jobs that must run from now on, and fill the pools that must be full."""
        matching = self.matching
        matching.must_match = self.job_slack <= 0
        for place, slack in enumerate(self.place_slack):
            # A slack below one unit per GPU: the pool must be full.
            matching.must_fill[place] = slack < self.takes[place]
        for job in np.flatnonzero(matching.must_match & matching.idle()).tolist():
            if matching.edge[job] < 0:
                matching.cover(job, self.job_slack, self.left)
        for place, full in enumerate(matching.must_fill):
            while full and matching.degree[place] < self.takes[place]:
                matching.fill(place, self.of_job, self.left)

    def _use_idle(self) -> None:
        """Let waiting jobs run on idle GPUs, those with the most remaining time first."""
        matching = self.matching
        waiting = np.flatnonzero(matching.open & matching.idle()[self.job])
        while len(waiting):
            # In passes over arrays: one entry per job, and as many per place as it has room.
            room = np.array(self.takes) - np.array(matching.degree)
            waiting = waiting[room[self.place[waiting]] > 0]
            order = waiting[np.lexsort((-self.left[waiting], -self.of_job[self.job[waiting]]))]
            first = order[
                np.sort(np.unique(self.job[order], return_index=True)[1])
            ]  # one entry of each job
            by_place = first[np.argsort(self.place[first], kind="stable")]
            at = self.place[by_place]
            rank = np.arange(len(at)) - np.searchsorted(at, at)
            matching.add(by_place[rank < room[at]])
            waiting = waiting[matching.idle()[self.job[waiting]]]

    def _longest(self) -> int:
        """The longest slice after which the rest is still possible."""
        matching = self.matching
        longest: int = min(self.time, int(self.left[matching.on].min(initial=self.time)))
        longest = min(longest, int(self.job_slack[matching.idle()].min(initial=longest)))
        for place, (slack, takes) in enumerate(zip(self.place_slack, self.takes, strict=True)):
            if matching.degree[place] < takes:
                longest = min(longest, int(slack // (takes - matching.degree[place])))
        return longest

    def _advance(self, running: IntArray, delta: int) -> None:
        matching = self.matching
        # Jobs that do not run, and pools that are not full, lose slack.
        self.time -= delta
        self.job_slack[matching.idle()] -= delta
        for place, takes in enumerate(self.takes):
            self.place_slack[place] -= (takes - matching.degree[place]) * delta
        self.left[running] -= delta
        self.of_job[self.job[running]] -= delta
        ended = running[self.left[running] == 0]
        matching.open[ended] = False
        matching.remove(ended)
