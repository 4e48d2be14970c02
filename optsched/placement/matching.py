"""A matching of jobs to places with capacities that is repaired, rather than made anew, when demands on it grow."""

from __future__ import annotations

from collections import deque

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray


class Matching:
    """Edges of a bipartite graph of jobs and places: each job on at most one edge, each place on at most its capacity.

    `cover` adds a job that must be matched, `fill` a place that must be full, along a shortest alternating path; both
    keep every job that must be matched matched, and every place that must be full full. By the theorem of Mendelsohn
    and Dulmage ("Some generalizations of the problem of distinct representatives", 1958) such a path exists whenever
    any matching meets all demands. Paths are found over places, of which there are few.

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
        self.job, self.place, self.capacity = job, place, capacity
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
        """Match a job; if another has to yield, the one of the largest slack.

        Parameters
        ----------
        job : int
        slack : array, shape (J,)
            Who yields first.
        left : IntArray, shape (E,)
            Which of several edges is taken first.
        """
        came_by = [-1] * len(self.degree)  # the edge by which a job would come to each place
        queue: deque[int] = deque()
        self._reach(np.flatnonzero((self.job == job) & self.open), came_by, queue, left)
        while queue:
            place = queue.popleft()
            if self.degree[place] < self.capacity[place]:
                return self._shift(came_by, place, -1)
            here = np.flatnonzero(self.on & (self.place == place))
            yielding = here[~self.must_match[self.job[here]]]
            if len(yielding):
                return self._shift(
                    came_by, place, int(yielding[np.argmax(slack[self.job[yielding]])])
                )
            moving = np.zeros(len(self.edge), bool)
            moving[self.job[here]] = True
            self._reach(
                np.flatnonzero(moving[self.job] & self.open & ~self.on), came_by, queue, left
            )
        raise AssertionError("no matching meets the demands")

    def _reach(
        self, edges: IntArray, came_by: list[int], queue: deque[int], left: IntArray
    ) -> None:
        """Note the places at the far ends of edges that were not reached before."""
        for place in np.unique(self.place[edges]).tolist():
            if came_by[place] < 0:
                ways = edges[self.place[edges] == place]
                came_by[place] = int(ways[np.argmax(left[ways])])
                queue.append(place)

    def _shift(self, came_by: list[int], place: int, yielding: int) -> None:
        """Move every job on the path that ends at a place to the edge by which it comes."""
        gone, new = ([yielding] if yielding >= 0 else []), [came_by[place]]
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
            Which job without an edge is taken first: the one that has the most to run.
        left : IntArray, shape (E,)
            Which job is moved first.
        """
        leaves_by: dict[int, int] = {place: -1}  # the edge by which a place would lose a job
        queue = deque([place])
        while queue:
            here = queue.popleft()
            coming = np.flatnonzero(self.open & ~self.on & (self.place == here))
            now = self.edge[self.job[coming]]
            idle = coming[now < 0]
            if len(idle):
                return self._pull(here, int(idle[np.argmax(wanted[self.job[idle]])]), leaves_by)
            coming, now = coming[now >= 0], now[now >= 0]
            for other in np.unique(self.place[now]).tolist():
                if other in leaves_by:
                    continue
                ways = coming[self.place[now] == other]
                way = int(ways[np.argmax(left[ways])])
                if not self.must_fill[other]:
                    return self._pull(here, way, leaves_by)
                leaves_by[other] = way
                queue.append(other)
        raise AssertionError("no matching meets the demands")

    def _pull(self, place: int, edge: int, leaves_by: dict[int, int]) -> None:
        """Take an edge into a place, and let each place on the path pass a job on."""
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
        return np.asarray(self.edge < 0)
