"""The placement problem: requests on nodes; what an assignment of GPUs is worth, and which of two is better.

Sets and parameters: requests j with g_j GPUs, a share s_j of each, at most k_j nodes, needs per GPU
d_j; usable nodes n with what is left of their GPUs, CPUs and memory beside what stands and does not
move; running jobs with the GPUs that they hold. An assignment gives a request g_j GPUs of nodes of
its pool, or nothing, such that

- the shares of no GPU add up to more than 1, and no node or group of nodes is asked for more than it has;
- a request spans at most k_j nodes;
- no two requests of an anti-affinity set are on one node, nor one of them beside such a job that stands;
- a request has no GPU of a node that is barred to it.

Objective, in this order: most requests placed; fewest nodes spanned in total; greatest sum, over
the requests of two or more GPUs, of the bottleneck bandwidth (`optsched.placement.nodes`); fewest
GPUs moved: GPUs given to jobs that run now and do not hold them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.candidates import gpus_allowed
from optsched.placement.nodes import Links, Nodes
from optsched.placement.requests import NO_NODE, Requests
from optsched.placement.standing import Standing

ROUNDING = 1e-9
"""Slack of shares, and relative slack of CPUs, memory and other capacities."""

Assignment = Mapping[int, IntArray]
"""GPUs by request: rows (node, index on the node), sorted, shape (g, 2)."""

Pieces = list[tuple[int, int]]
"""(node, GPUs on it) of one request."""


@dataclass(frozen=True)
class HeldGpus:
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


NOTHING_HELD = HeldGpus(np.zeros((0, 2), np.int64), np.zeros(0, np.int64), 0)


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


class Scored(NamedTuple):
    """An assignment and its worth."""

    assignment: Assignment
    worth: Worth


def better(first: Scored, second: Scored) -> Scored:
    """The better of two assignments, of equal ones the first."""
    return min(first, second, key=lambda scored: scored.worth.key)


@dataclass(frozen=True)
class Bounds:
    """Most requests that can be placed, and fewest nodes that so many placed requests span."""

    rows: int
    nodes: int


@dataclass(frozen=True)
class Problem:
    """Requests, the nodes that may take them, their links, and what is held now.

    Attributes
    ----------
    requests : Requests
    nodes : Nodes
        With what is left beside what stands.
    links : Links
    held : tuple of HeldGpus, length P
    closed : tuple of IntArray, length P
        Nodes that a request may not have whatever is placed: barred ones, and those on which a job
        of one of its anti-affinity sets stands.
    """

    requests: Requests
    nodes: Nodes
    links: Links
    held: tuple[HeldGpus, ...]
    closed: tuple[IntArray, ...]

    @classmethod
    def of(cls, requests: Requests, pools: list[int], standing: Standing | None = None) -> Problem:
        """The problem on the usable nodes of these pools, beside what stands."""
        nodes = Nodes.of(requests.classes.instance, pools)
        if standing is not None and len(standing):
            nodes = nodes.beside(standing)
        return cls(
            requests,
            nodes,
            Links.of(nodes),
            _held(requests, nodes),
            _closed(requests, nodes, standing),
        )

    def __len__(self) -> int:
        return len(self.requests)

    def of_pool(self, request: int) -> slice:
        """The nodes of a request's pool."""
        return self._slices[int(self.requests.pool[request])]

    @cached_property
    def _slices(self) -> dict[int, slice]:
        return {int(pool): self.nodes.of_pool(int(pool)) for pool in np.unique(self.requests.pool)}

    def gpus_for(self, request: int) -> IntArray:
        """GPUs of every node of its pool with room for the share of a request, beside what stands."""
        here = self.of_pool(request)
        share = self.requests.share[request]
        return (
            self.nodes.free[here]
            if share == 1.0
            else (self.nodes.room[here] >= share - ROUNDING).sum(axis=1)
        )

    @cached_property
    def needy(self) -> BoolArray:
        """Mask of the requests that need CPUs, memory or resources of some nodes; shape (P,)."""
        need = np.hstack([self.requests.need, self.requests.group_need])
        return np.asarray(need.any(axis=1))

    def within_needs(
        self, request: int, gpus: IntArray, own: FloatArray, group: FloatArray
    ) -> IntArray:
        """How many of these GPUs of each node of its pool a request can have, by everything but the GPUs.

        Parameters
        ----------
        request : int
        gpus : IntArray, shape (nodes of the pool,)
        own : FloatArray, shape (N, 2)
            CPUs and memory of every node that are left.
        group : FloatArray, shape (G,)
            What is left of the resources of some nodes.
        """
        R = self.requests
        here = self.of_pool(request)
        if R.torn[request]:
            return np.zeros_like(gpus)
        if self.needy[request]:
            gpus = np.minimum(gpus, limit(own[here], R.need[request]))
            for number in np.flatnonzero(R.group_need[request]).tolist():
                allowed = limit(group[[number], None], R.group_need[request, [number]])
                member = self.nodes.member[number, here]
                gpus = np.where(member, np.minimum(gpus, allowed), gpus)
        return self.shut(request, gpus)

    def at_most(self, request: int) -> IntArray:
        """GPUs that every node of its pool could give a request if it had no others."""
        nodes = self.nodes
        return self.within_needs(request, self.gpus_for(request), nodes.own, nodes.group_capacity)

    def shut(self, request: int, gpus: IntArray) -> IntArray:
        """GPUs by node of its pool, without those of nodes that are closed to a request."""
        if len(self.closed[request]):
            here = self.of_pool(request)
            gpus = gpus.copy()
            closed = self.closed[request]
            first, last = np.searchsorted(closed, [here.start, here.stop])
            gpus[closed[first:last] - here.start] = 0
        return gpus

    @cached_property
    def closed_as(self) -> IntArray:
        """Equal numbers for requests to which the same nodes are closed, 0 for those to which none is; shape (P,)."""
        known = {NO_NODE.tobytes(): 0}
        return np.array(
            [known.setdefault(nodes.tobytes(), len(known)) for nodes in self.closed], np.int64
        )

    @cached_property
    def fewest(self) -> IntArray:
        """Fewest nodes that each request needs if it has no others beside it, 0 where it fits nowhere; shape (P,)."""
        R = self.requests
        known = dict[tuple[object, ...], int]()
        result = np.zeros(len(self), np.int64)
        alike = zip(
            R.pool.tolist(),
            R.gpus.tolist(),
            R.share.tolist(),
            self.closed_as.tolist(),
            R.torn.tolist(),
            strict=True,
        )
        for j, of in enumerate(alike):
            key = (*of, R.need[j].tobytes(), R.group_need[j].tobytes())
            if key not in known:
                # The largest nodes first: no fewer nodes have as many GPUs.
                reach = np.cumsum(np.sort(self.at_most(j))[::-1])
                known[key] = (
                    int(np.searchsorted(reach, R.gpus[j])) + 1
                    if len(reach) and reach[-1] >= R.gpus[j]
                    else 0
                )
            result[j] = known[key] if known[key] <= R.span[j] else 0
        return result

    def worth(self, assignment: Assignment) -> Worth:
        """Recompute the objective of an assignment."""
        spanned = {j: np.unique(gpus[:, 0]) for j, gpus in assignment.items()}
        return Worth(
            rows=len(assignment),
            nodes=sum(len(nodes) for nodes in spanned.values()),
            bandwidth=math.fsum(
                self.links.bottleneck(nodes)
                for j, nodes in spanned.items()
                if self.requests.gpus[j] > 1
            ),
            moved=sum(self.moved(j, gpus) for j, gpus in assignment.items()),
        )

    def scored(self, assignment: Assignment) -> Scored:
        """An assignment with its worth."""
        return Scored(assignment, self.worth(assignment))

    def gpu_names(self, assignment: Assignment) -> dict[int, tuple[str, ...]]:
        """GPUs of an assignment as ``node/index``, in the order of the requests."""
        used = {int(node) for gpus in assignment.values() for node in gpus[:, 0]}
        names = {node: self.nodes.name(node) for node in used}
        return {
            request: tuple(f"{names[node]}/{gpu}" for node, gpu in assignment[request].tolist())
            for request in sorted(assignment)
        }

    def moved(self, request: int, gpus: IntArray) -> int:
        """GPUs that a request's running jobs get and don't hold."""
        held = self.held[request]
        if not held.running:
            return 0
        spots = map(tuple, held.gpus.tolist())
        mine: dict[tuple[int, ...], int] = dict(zip(spots, held.weight.tolist(), strict=True))
        return held.running * len(gpus) - sum(
            mine.get((node, gpu), 0) for node, gpu in gpus.tolist()
        )


def limit(capacity: FloatArray, need: FloatArray) -> IntArray:
    """GPUs that the scarcest of several capacities allows, shape (N,), for capacities (N, R) and needs per GPU (R,)."""
    if not need.any():
        return np.full(len(capacity), np.iinfo(np.int64).max)
    return gpus_allowed(capacity, need)


def _held(requests: Requests, nodes: Nodes) -> tuple[HeldGpus, ...]:
    """What the running jobs of each request hold."""
    running = requests.classes.instance.jobs_table.running
    numbering = nodes.instance.cluster.numbering
    result = [NOTHING_HELD] * len(requests)
    if not running:
        return tuple(result)
    # Jobs that run, by request; of those that run in its pool, their GPUs.
    jobs_of = np.zeros(len(requests), np.int64)
    owners: list[int] = []
    names: list[str] = []
    pairs = zip(requests.job.tolist(), requests.partner.tolist(), strict=True)
    for request, jobs in enumerate(pairs):
        for job in jobs:
            if job in running:
                pool, gpus, _ = running[job]
                jobs_of[request] += 1
                if pool == requests.pool[request]:
                    owners += [request] * len(gpus)
                    names += gpus
    # Each GPU of a request once, with how many of its jobs hold it.
    gpu = numbering.numbers(names)
    owner = np.array(owners, np.int64)
    # One number per pair of request and GPU.
    key, weight = np.unique(owner * numbering.gpus + gpu, return_counts=True)
    owner, gpu = np.divmod(key, max(numbering.gpus, 1))
    at = numbering.node_of(gpu)
    node = nodes.local()[at]
    usable = node >= 0
    owner = owner[usable]
    weight = weight[usable].astype(np.int64)
    spots = np.stack([node, gpu - numbering.start[at]], axis=1)[usable]
    start = np.searchsorted(owner, np.arange(len(requests) + 1)).tolist()
    for request in np.flatnonzero(jobs_of).tolist():
        part = slice(start[request], start[request + 1])
        result[request] = HeldGpus(spots[part], weight[part], int(jobs_of[request]))
    return tuple(result)


def _closed(requests: Requests, nodes: Nodes, standing: Standing | None) -> tuple[IntArray, ...]:
    """Of each request: barred nodes, and those where a job stands beside which it may not be."""
    beside = [NO_NODE if standing is None else standing.nodes_of(jobs) for jobs in requests.sets]
    if not any(map(len, beside)) and not any(map(len, requests.barred)):
        return (NO_NODE,) * len(requests)
    local = nodes.local()
    known = dict[tuple[object, ...], IntArray]()
    result = []
    for barred, apart in zip(requests.barred, requests.apart, strict=True):
        key = (barred.tobytes(), *apart)
        if key not in known:
            closed = local[
                np.unique(np.concatenate([barred, *(beside[number] for number in apart)]))
            ]
            known[key] = closed[closed >= 0]
        result.append(known[key])
    return tuple(result)
