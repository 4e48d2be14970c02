"""Best fit of plain gangs: whole GPUs of one node each and nothing else, by counting instead of searching.

Such a gang goes to the node where the fewest GPUs are left over, the first one of equal nodes. With
nodes in heaps by the number of their free GPUs, a gang costs a few steps whatever the number of
nodes. Larger gangs come first, so none could make room for another by moving a smaller one. The
result is that of `optsched.placement.best_fit`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

import numpy as np

from optsched.arrays import BoolArray, IntArray
from optsched.placement.identities import consecutive
from optsched.placement.requests import Requests
from optsched.placement.standing import Standing

GpuNames = tuple[str, ...]
"""GPUs of one gang, ``node/index``."""

TRIES = 8
"""Nodes that are tried for a gang, before it is left without a place."""


@dataclass(frozen=True)
class Movable:
    """Gangs that each stand on GPUs of one node and may be moved to another one of their pool.

    Attributes
    ----------
    pool, node : IntArray, shape (M,)
        The node by its number in the cluster.
    gpus : sequence of tuples of str, length M
        ``node/index``.
    """

    pool: IntArray
    node: IntArray
    gpus: Sequence[GpuNames]

    @classmethod
    def of(
        cls, standing: Standing, may_move: BoolArray, pool: IntArray
    ) -> tuple[Movable, IntArray]:
        """Those of what stands that may move and are plain, without their GPUs; and which they are.

        Parameters
        ----------
        standing : Standing, S holders
        may_move : BoolArray, shape (S,)
        pool : IntArray, shape (S,)
        """
        owner = standing.owner
        node = standing.node
        # GPUs are listed owner by owner: neighbours of one owner on two nodes are a gang that
        # spans.
        spans_nodes = (owner[1:] == owner[:-1]) & (node[1:] != node[:-1])
        plain = (standing.share == 1.0) & ~standing.need.any(axis=1)
        plain &= ~standing.group_need.any(axis=1)
        plain[owner[1:][spans_nodes]] = False
        number = np.flatnonzero(may_move & plain)
        node_of = np.zeros(len(standing), np.int64)
        node_of[owner] = node
        return cls(pool[number], node_of[number], ()), number


def is_plain(requests: Requests, standing: Standing) -> bool:
    """Whether requests need nothing but whole GPUs, of one node each, and hold none of the pools that they ask for."""
    instance = requests.classes.instance
    cluster = instance.cluster
    now = instance.now
    if cluster.topology is not None or any(requests.apart) or any(map(len, requests.barred)):
        return False
    if requests.need.any() or requests.group_need.any() or (requests.share < 1.0).any():
        return False
    largest = np.array(
        [pool.node_gpus[pool.usable(now)].max(initial=0) for pool in cluster.pools], np.int64
    )
    if (requests.gpus > largest[requests.pool]).any():
        return False
    # The last entry is read for partner -1: a job alone.
    running_in = np.full(len(instance.jobs_table) + 1, -1, np.int64)
    places = instance.jobs_table.places
    running_in[places.job] = places.pool
    return not any(
        (running_in[jobs] == requests.pool).any() for jobs in (requests.job, requests.partner)
    )


def place_plain(requests: Requests, standing: Standing) -> dict[int, GpuNames]:
    """GPUs of the requests that find room beside what stands, by request.

    Larger gangs come first, and of equal ones those that are wanted first.
    """
    placed: dict[int, GpuNames] = {}
    for pool in np.unique(requests.pool).tolist():
        nodes = _FreeGpus(requests, pool, standing)
        heaps = _nodes_by_free_gpus(nodes.free)
        for request in _largest_first(requests, pool):
            gpus = int(requests.gpus[request])
            count = next((count for count in range(gpus, len(heaps)) if heaps[count]), None)
            if count is None:
                continue
            # The heap gives the first of equal nodes, as best fit does.
            node = heappop(heaps[count])
            heappush(heaps[count - gpus], node)
            placed[request] = nodes.take(node, gpus)
    return placed


def move_plain(
    requests: Requests, standing: Standing, movable: Movable, most: float
) -> tuple[dict[int, GpuNames], dict[int, GpuNames]]:
    """Room for plain requests that found none, by moving gangs that stand to other nodes.

    For each request, the larger first, the nodes that lack fewest GPUs are tried: the smallest gang
    on it that is large enough leaves, or the largest ones until there is room, if all that leave
    fit on other nodes by best fit.

    Parameters
    ----------
    requests : Requests
        Plain ones (`is_plain`) that found no room.
    standing : Standing
        All that stands.
    movable : Movable
        What of it may be moved.
    most : float
        How many of these may be moved at most.

    Returns
    -------
    GPUs by request, and by the number of what is moved.
    """
    placed: dict[int, GpuNames] = {}
    moved: dict[int, GpuNames] = {}
    for pool in np.unique(requests.pool).tolist():
        nodes = _Migration(_FreeGpus(requests, pool, standing), movable, pool)
        for request in _largest_first(requests, pool):
            found = nodes.make_room(int(requests.gpus[request]), most - len(moved))
            if found is not None:
                placed[request], migrated = found
                moved |= migrated
    return placed, moved


def _largest_first(requests: Requests, pool: int) -> list[int]:
    """Requests of a pool in decreasing size, of equal ones the first first."""
    mine = np.flatnonzero(requests.pool == pool)
    order: list[int] = mine[np.argsort(-requests.gpus[mine], kind="stable")].tolist()
    return order


def _nodes_by_free_gpus(free: IntArray) -> list[list[int]]:
    """Heaps of the nodes with 0, 1, 2, ... free GPUs."""
    heaps: list[list[int]] = [[] for _ in range(int(free.max(initial=0)) + 1)]
    for node in np.flatnonzero(free).tolist():
        heaps[int(free[node])].append(node)
    for heap in heaps:
        heapify(heap)
    return heaps


class _FreeGpus:
    """Usable nodes of a pool, numbered from 0, and the GPUs on them that nobody holds.

    Attributes
    ----------
    nodes : IntArray, shape (N,)
        Their numbers in the cluster.
    free : IntArray, shape (N,)
        How many of their GPUs are free.
    """

    def __init__(self, requests: Requests, pool: int, standing: Standing) -> None:
        instance = requests.classes.instance
        cluster = instance.cluster
        self.numbering = cluster.numbering
        usable = np.flatnonzero(cluster.pools[pool].usable(instance.now))
        self.nodes = usable + int(self.numbering.first[pool])
        self._occupied: BoolArray = standing.load > 0
        before = np.concatenate(([0], np.cumsum(~self._occupied)))
        start = self.numbering.start
        self.free: IntArray = before[start[self.nodes + 1]] - before[start[self.nodes]]
        self._indices: dict[int, list[int]] = {}

    def take(self, node: int, gpus: int) -> GpuNames:
        """Take so many GPUs of a node, consecutive ones where possible."""
        free = self._free_indices(node)
        chosen = consecutive(free, gpus)
        self._indices[node] = [gpu for gpu in free if gpu not in chosen]
        self.free[node] -= gpus
        name = self.numbering.node_name(int(self.nodes[node]))
        return tuple(f"{name}/{gpu}" for gpu in chosen)

    def give_back(self, node: int, gpus: GpuNames) -> None:
        """Undo `take`: a gang gives its GPUs back."""
        returned = [int(gpu.rpartition("/")[2]) for gpu in gpus]
        self._indices[node] = sorted(self._free_indices(node) + returned)
        self.free[node] += len(returned)

    def _free_indices(self, node: int) -> list[int]:
        if node not in self._indices:
            number = int(self.nodes[node])
            first = self.numbering.start[number]
            last = self.numbering.start[number + 1]
            self._indices[node] = np.flatnonzero(~self._occupied[first:last]).tolist()
        return self._indices[node]


class _Migration:
    """Room on a node of a pool, made by moving gangs from it to other nodes."""

    def __init__(self, nodes: _FreeGpus, movable: Movable, pool: int) -> None:
        self._nodes = nodes
        self._gpus = movable.gpus
        self._size = np.fromiter(map(len, movable.gpus), np.int64, len(movable.gpus))
        local = np.full(nodes.numbering.nodes, -1, np.int64)
        local[nodes.nodes] = np.arange(len(nodes.nodes))
        gangs = np.flatnonzero(movable.pool == pool)
        gangs = gangs[local[movable.node[gangs]] >= 0]
        on = local[movable.node[gangs]]
        self._movable_gpus = np.bincount(on, self._size[gangs], len(nodes.nodes)).astype(np.int64)
        # Gangs sorted by node: those on node n are by_node[start[n]:start[n + 1]].
        self._by_node = gangs[np.argsort(on, kind="stable")]
        gangs_on = np.bincount(on, minlength=len(nodes.nodes))
        self._start = np.concatenate(([0], np.cumsum(gangs_on)))
        self._left: dict[int, list[int]] = {}

    def make_room(self, gpus: int, most: float) -> tuple[GpuNames, dict[int, GpuNames]] | None:
        """GPUs for a gang, and the new GPUs of the gangs that move for it; None if at most ``most`` do not suffice."""
        free = self._nodes.free
        # How many GPUs each node is short of.
        lack = gpus - free
        possible = np.flatnonzero(free + self._movable_gpus >= gpus)
        nearest = possible[np.argsort(lack[possible], kind="stable")]
        for node in nearest[:TRIES].tolist():
            leaving = self._gangs_to_move(node, int(lack[node]))
            targets = self._targets(node, leaving) if len(leaving) <= most else None
            if targets is None:
                continue
            moved = {}
            for gang, target in zip(leaving, targets, strict=True):
                moved[gang] = self._nodes.take(target, int(self._size[gang]))
                self._nodes.give_back(node, self._gpus[gang])
                self._gangs_on(node).remove(gang)
                self._movable_gpus[node] -= self._size[gang]
            return self._nodes.take(node, gpus), moved
        return None

    def _gangs_on(self, node: int) -> list[int]:
        """Gangs that may leave a node and have not left it yet."""
        if node not in self._left:
            self._left[node] = self._by_node[self._start[node] : self._start[node + 1]].tolist()
        return self._left[node]

    def _gangs_to_move(self, node: int, lack: int) -> list[int]:
        """The smallest gang that is large enough, else the largest gangs until there is room."""
        if lack <= 0:
            return []
        by_size = sorted(self._gangs_on(node), key=lambda gang: (self._size[gang], gang))
        # One gang that is large enough moves less than several small ones.
        for gang in by_size:
            if self._size[gang] >= lack:
                return [gang]
        leaving = []
        for gang in reversed(by_size):
            if lack <= 0:
                break
            leaving.append(gang)
            lack -= int(self._size[gang])
        return leaving

    def _targets(self, node: int, leaving: list[int]) -> list[int] | None:
        """Another node for each gang that leaves, in turn the one where least is left over."""
        free = self._nodes.free.copy()
        # The node that is cleared is no target.
        free[node] = -1
        targets = []
        for size in self._size[leaving].tolist():
            enough = np.flatnonzero(free >= size)
            if not len(enough):
                return None
            target = int(enough[np.argmin(free[enough])])
            free[target] -= size
            targets.append(target)
        return targets
