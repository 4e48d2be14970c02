"""Best fit of plain gangs: whole GPUs of one node each and nothing else, by counting instead of searching.

Such a gang goes to the node with the least left over, the first one of equal nodes. With nodes in heaps by the number
of their free GPUs, a gang costs a few steps whatever the number of nodes; larger gangs come first, so none could make
room for another by moving a smaller one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

import numpy as np

from optsched.arrays import BoolArray, IntArray
from optsched.instance.cluster import Numbering
from optsched.placement.identities import consecutive
from optsched.placement.requests import Requests
from optsched.placement.standing import Standing


def is_plain(requests: Requests, standing: Standing) -> bool:
    """Whether requests need nothing but whole GPUs, of one node each, and hold none of the pools that they ask for."""
    instance = requests.classes.instance
    cluster, now = instance.cluster, instance.now
    if cluster.topology is not None or any(requests.apart) or any(map(len, requests.barred)):
        return False
    if requests.need.any() or requests.group_need.any() or (requests.share < 1.0).any():
        return False
    largest = np.array(
        [pool.node_gpus[pool.usable(now)].max(initial=0) for pool in cluster.pools], np.int64
    )
    if (requests.gpus > largest[requests.pool]).any():
        return False
    places, pool = instance.jobs_table.places, np.full(len(instance.jobs_table) + 1, -1, np.int64)
    pool[places.job] = places.pool
    return not any((pool[jobs] == requests.pool).any() for jobs in (requests.job, requests.partner))


def place_plain(requests: Requests, standing: Standing) -> dict[int, tuple[str, ...]]:
    """GPUs of the requests that find room beside what stands, by request.

    Larger gangs first, of equal ones those that are wanted first.
    """
    cluster, now = requests.classes.instance.cluster, requests.classes.instance.now
    numbering, taken = cluster.numbering, standing.load > 0
    placed: dict[int, tuple[str, ...]] = {}
    for pool in np.unique(requests.pool).tolist():
        first = int(numbering.first[pool])
        usable = np.flatnonzero(cluster.pools[pool].usable(now)) + first
        free = _free(numbering.start, usable, taken)
        heaps = _by_count(free[free > 0], usable[free > 0])
        spots: dict[int, list[int]] = {}
        mine = np.flatnonzero(requests.pool == pool)
        for request in mine[np.argsort(-requests.gpus[mine], kind="stable")].tolist():
            gpus = int(requests.gpus[request])
            count = next((count for count in range(gpus, len(heaps)) if heaps[count]), None)
            if count is None:
                continue
            node = heappop(heaps[count])
            heappush(heaps[count - gpus], node)
            start = int(numbering.start[node])
            if node not in spots:
                spots[node] = np.flatnonzero(
                    ~taken[start : int(numbering.start[node + 1])]
                ).tolist()
            chosen = consecutive(spots[node], gpus)
            spots[node] = [gpu for gpu in spots[node] if gpu not in chosen]
            name = numbering.node_name(node)
            placed[request] = tuple(f"{name}/{gpu}" for gpu in chosen)
    return placed


def _free(start: IntArray, nodes: IntArray, taken: BoolArray) -> IntArray:
    """GPUs of each node that nothing stands on."""
    before = np.concatenate(([0], np.cumsum(~taken)))
    return np.asarray(before[start[nodes + 1]] - before[start[nodes]], np.int64)


def _by_count(free: IntArray, nodes: IntArray) -> list[list[int]]:
    """Heaps of the nodes with 0, 1, 2, ... free GPUs."""
    heaps: list[list[int]] = [[] for _ in range(int(free.max(initial=0)) + 1)]
    for node, count in zip(nodes.tolist(), free.tolist(), strict=True):
        heaps[count].append(node)
    for heap in heaps:
        heapify(heap)
    return heaps


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
    gpus: Sequence[tuple[str, ...]]


def move_plain(
    requests: Requests, standing: Standing, movable: Movable, most: float
) -> tuple[dict[int, tuple[str, ...]], dict[int, tuple[str, ...]]]:
    """Room for plain requests that found none, by moving gangs that stand to other nodes.

    For each request, the larger first, the nodes that lack fewest GPUs are tried: the smallest gang on it that is large
    enough leaves, or the largest ones until there is room, if all that leave fit on other nodes by best fit.

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
    cluster, now = requests.classes.instance.cluster, requests.classes.instance.now
    numbering, taken = cluster.numbering, standing.load > 0
    count = np.fromiter(map(len, movable.gpus), np.int64, len(movable.gpus))
    placed: dict[int, tuple[str, ...]] = {}
    moved: dict[int, tuple[str, ...]] = {}
    for pool in np.unique(requests.pool).tolist():
        usable = np.flatnonzero(cluster.pools[pool].usable(now)) + int(numbering.first[pool])
        room = _Room(numbering, usable, taken, movable, count, np.flatnonzero(movable.pool == pool))
        mine = np.flatnonzero(requests.pool == pool)
        for request in mine[np.argsort(-requests.gpus[mine], kind="stable")].tolist():
            found = room.make(int(requests.gpus[request]), most - len(moved))
            if found is not None:
                placed[request], more = found
                moved |= more
    return placed, moved


class _Room:
    """Free GPUs of the nodes of a pool, and what may leave them."""

    def __init__(
        self,
        numbering: Numbering,
        nodes: IntArray,
        taken: BoolArray,
        movable: Movable,
        count: IntArray,
        mine: IntArray,
    ) -> None:
        self._numbering, self._nodes = numbering, nodes
        self._gpus, self._count = movable.gpus, count
        self._taken, self._spots = taken, dict[int, list[int]]()
        self._free = _free(numbering.start, nodes, taken)
        place = np.full(numbering.nodes, -1, np.int64)
        place[nodes] = np.arange(len(nodes))
        mine = mine[place[movable.node[mine]] >= 0]
        at = place[movable.node[mine]]
        self._numbers = mine[np.argsort(at, kind="stable")]
        self._start = np.concatenate(([0], np.cumsum(np.bincount(at, minlength=len(nodes)))))
        self._left: dict[int, list[int]] = {}
        self._may = np.bincount(at, count[mine], len(nodes)).astype(np.int64)

    def make(
        self, gpus: int, most: float
    ) -> tuple[tuple[str, ...], dict[int, tuple[str, ...]]] | None:
        """GPUs for a gang, and the new ones of what leaves for it; None where it cannot be done so."""
        lacks = gpus - self._free
        possible = np.flatnonzero(self._free + self._may >= gpus)
        for place in possible[np.argsort(lacks[possible], kind="stable")][:TRIES].tolist():
            leaving = self._leaving(place, int(lacks[place]))
            if len(leaving) > most:
                continue
            targets = self._targets(place, leaving)
            if targets is None:
                continue
            moved = {}
            for number, target in zip(leaving, targets, strict=True):
                moved[number] = self._take(target, int(self._count[number]))
                self._give(place, self._gpus[number])
                self._on(place).remove(number)
                self._may[place] -= self._count[number]
            return self._take(place, gpus), moved
        return None

    def _on(self, place: int) -> list[int]:
        """What may leave a node."""
        if place not in self._left:
            self._left[place] = self._numbers[self._start[place] : self._start[place + 1]].tolist()
        return self._left[place]

    def _leaving(self, place: int, lack: int) -> list[int]:
        if lack <= 0:
            return []
        by_size = sorted(self._on(place), key=lambda number: (self._count[number], number))
        enough = next((number for number in by_size if self._count[number] >= lack), None)
        if enough is not None:
            return [enough]
        leaving, left = [], lack
        for number in reversed(by_size):
            if left > 0:
                leaving.append(number)
                left -= int(self._count[number])
        return leaving

    def _targets(self, place: int, leaving: list[int]) -> list[int] | None:
        """Other nodes for what leaves, the largest first, each where least is left over."""
        free = self._free.copy()
        free[place] = -1
        targets = []
        for count in self._count[leaving].tolist():
            enough = np.flatnonzero(free >= count)
            if not len(enough):
                return None
            target = int(enough[np.argmin(free[enough])])
            free[target] -= count
            targets.append(target)
        return targets

    def _of(self, place: int) -> list[int]:
        """Free GPUs of a node."""
        if place not in self._spots:
            start, node = self._numbering.start, int(self._nodes[place])
            self._spots[place] = np.flatnonzero(
                ~self._taken[int(start[node]) : int(start[node + 1])]
            ).tolist()
        return self._spots[place]

    def _take(self, place: int, gpus: int) -> tuple[str, ...]:
        chosen = consecutive(self._of(place), gpus)
        self._spots[place] = [gpu for gpu in self._spots[place] if gpu not in chosen]
        self._free[place] -= gpus
        name = self._numbering.node_name(int(self._nodes[place]))
        return tuple(f"{name}/{gpu}" for gpu in chosen)

    def _give(self, place: int, gpus: tuple[str, ...]) -> None:
        back = [int(gpu.rpartition("/")[2]) for gpu in gpus]
        self._spots[place] = sorted(self._of(place) + back)
        self._free[place] += len(back)
