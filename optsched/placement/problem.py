"""The placement problem: requests on nodes; what an assignment of GPUs is worth, and which of two is better.

Sets and parameters: requests j with g_j GPUs, a share s_j of each, at most k_j nodes, needs per GPU d_j; usable nodes
n with their GPUs, CPUs and memory; running jobs with the GPUs that they hold. An assignment gives a request g_j GPUs of
nodes of its pool, or nothing, such that

- the shares of no GPU add up to more than 1, and no node or group of nodes is asked for more than it has;
- a request spans at most k_j nodes;
- no two requests of an anti-affinity set are on one node.

Objective, in this order: most requests placed; fewest nodes spanned in total; greatest sum, over the requests of two or
more GPUs, of the bottleneck bandwidth (`optsched.placement.bandwidth`); fewest GPUs moved: GPUs given to jobs that run
now and do not hold them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from optsched.arrays import FloatArray, IntArray
from optsched.candidates import gpus_allowed
from optsched.placement.bandwidth import Links
from optsched.placement.nodes import Nodes
from optsched.placement.requests import Requests

ROUNDING = 1e-9
"""Slack of shares, and relative slack of CPUs, memory and other capacities."""

Assignment = Mapping[int, IntArray]
"""GPUs by request: rows (node, index on the node), sorted, shape (g, 2)."""


@dataclass(frozen=True)
class Held:
    """GPUs of usable nodes that the jobs of a request hold now.

    Attributes
    ----------
    gpus : IntArray, shape (H, 2)
        (node, index), sorted.
    weight : IntArray, shape (H,)
        By how many of its jobs.
    running : int
        How many of its jobs run now, wherever that is.
    """

    gpus: IntArray
    weight: IntArray
    running: int


NOTHING_HELD = Held(np.zeros((0, 2), np.int64), np.zeros(0, np.int64), 0)


@dataclass(frozen=True)
class Worth:
    """What an assignment is worth; sorts from best to worst by `key`."""

    rows: int
    nodes: int
    bandwidth: float
    moved: int

    @property
    def key(self) -> tuple[float, ...]:
        """The objective, to be minimised lexicographically."""
        return (-self.rows, self.nodes, -float(f"{self.bandwidth:.12g}"), self.moved)


@dataclass(frozen=True)
class Problem:
    """Requests, the nodes that may take them, their links, and what is held now."""

    requests: Requests
    nodes: Nodes
    links: Links
    held: tuple[Held, ...]

    @classmethod
    def of(cls, requests: Requests, pools: list[int]) -> Problem:
        """The problem on the usable nodes of these pools."""
        nodes = Nodes.of(requests.classes.instance, pools)
        return cls(requests, nodes, Links.of(nodes), _held(requests, nodes))

    def __len__(self) -> int:
        return len(self.requests)

    def of_pool(self, request: int) -> slice:
        """The nodes of a request's pool."""
        return self._slices[int(self.requests.pool[request])]

    @cached_property
    def _slices(self) -> dict[int, slice]:
        return {int(pool): self.nodes.of_pool(int(pool)) for pool in np.unique(self.requests.pool)}

    def at_most(self, request: int) -> IntArray:
        """GPUs that every node of its pool could give a request if it were empty; 0 for a request that is torn."""
        here = self.of_pool(request)
        own = limit(self.nodes.own[here], self.requests.need[request])
        most = np.minimum(self.nodes.gpus[here], own)
        for group in np.flatnonzero(self.requests.group_need[request]).tolist():
            each = limit(self.nodes.group_capacity[group : group + 1, None], self.requests.group_need[request, [group]])
            most = np.where(self.nodes.member[group, here], np.minimum(most, each), most)
        return np.zeros_like(most) if self.requests.torn[request] else most

    @cached_property
    def fewest(self) -> IntArray:
        """Fewest nodes that each request needs on an empty cluster, 0 where it fits nowhere; shape (P,)."""
        R, known = self.requests, dict[tuple[object, ...], int]()
        result = np.zeros(len(self), np.int64)
        for j in range(len(self)):
            key = (int(R.pool[j]), int(R.gpus[j]), R.need[j].tobytes(), R.group_need[j].tobytes(), bool(R.torn[j]))
            if key not in known:
                reach = np.cumsum(np.sort(self.at_most(j))[::-1])
                known[key] = int(np.searchsorted(reach, R.gpus[j])) + 1 if len(reach) and reach[-1] >= R.gpus[j] else 0
            result[j] = known[key] if known[key] <= R.span[j] else 0
        return result

    def worth(self, assignment: Assignment) -> Worth:
        """Recompute the objective of an assignment."""
        spanned = {j: np.unique(gpus[:, 0]) for j, gpus in assignment.items()}
        return Worth(
            rows=len(assignment),
            nodes=sum(len(nodes) for nodes in spanned.values()),
            bandwidth=math.fsum(
                self.links.bottleneck(nodes) for j, nodes in spanned.items() if self.requests.gpus[j] > 1
            ),
            moved=sum(self.moved(j, gpus) for j, gpus in assignment.items()),
        )

    def moved(self, request: int, gpus: IntArray) -> int:
        """GPUs that a request's running jobs get and don't hold."""
        held = self.held[request]
        if not held.running:
            return 0
        spots = map(tuple, held.gpus.tolist())
        mine: dict[tuple[int, ...], int] = dict(zip(spots, held.weight.tolist(), strict=True))
        return held.running * len(gpus) - sum(mine.get((node, gpu), 0) for node, gpu in gpus.tolist())


def limit(capacity: FloatArray, need: FloatArray) -> IntArray:
    """GPUs that the scarcest of several capacities allows, shape (N,), for capacities (N, R) and needs per GPU (R,)."""
    if not need.any():
        return np.full(len(capacity), np.iinfo(np.int64).max)
    return gpus_allowed(capacity, need)


def _held(requests: Requests, nodes: Nodes) -> tuple[Held, ...]:
    running = requests.classes.instance.jobs_table.running
    if not running:
        return (NOTHING_HELD,) * len(requests)
    jobs = {job for j in range(len(requests)) for job in requests.jobs(j) if job in running}
    wanted = {gpu.rpartition("/")[0] for job in jobs for gpu in running[job][1]}
    number = {name: n for n in range(len(nodes)) if (name := nodes.name(n)) in wanted}
    result = []
    for j in range(len(requests)):
        count: dict[tuple[int, int], int] = {}
        mine = [job for job in requests.jobs(j) if job in running]
        for job in mine:
            pool, gpus, _ = running[job]
            for gpu in gpus if pool == requests.pool[j] else ():
                name, _, index = gpu.rpartition("/")
                if name in number:
                    spot = (number[name], int(index))
                    count[spot] = count.get(spot, 0) + 1
        order = sorted(count)
        spots = np.array(order, np.int64).reshape(-1, 2)
        result.append(Held(spots, np.array([count[spot] for spot in order], np.int64), len(mine)))
    return tuple(result)
