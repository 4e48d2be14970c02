"""Usable nodes of the pools: what is left on each of them, and the bandwidth between them.

The bottleneck of a gang is the least, over pairs of GPUs of its nodes, of the bandwidth of the
widest path between the two. For every b, widest paths of b GB/s or more join GPUs into groups, and
these groups are nested. So the graph is stored as one label per node and level of bandwidth. The
bottleneck of a gang is that of the first level at which all its nodes have the same label. The GPUs
of a node count as a whole: a node in two parts at a level has no label there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.instance import Instance
from optsched.instance.cluster import Resource
from optsched.instance.topology import INTRA_NODE, NODE
from optsched.placement.needs import OWN, members, renewable_groups
from optsched.placement.standing import Standing


@dataclass(frozen=True)
class Nodes:
    """The nodes that can take work now, pool by pool; nodes without GPUs are left out.

    A node that is not up, or not available yet, takes nothing (`Pool.usable`), not even what runs
    there now: the capacities of the program leave it out as well.

    Attributes
    ----------
    instance : Instance
    pool, row : IntArray, shape (N,)
        The pool of each node, and its row in that pool.
    number : IntArray, shape (N,)
        Its number in the cluster (`Cluster.numbering`).
    gpus : IntArray, shape (N,)
        GPUs, free or not.
    room : FloatArray, shape (N, most GPUs of a node)
        What is left of each GPU: 1 where nothing stands on it, 0 beyond the node's GPUs.
    own : FloatArray, shape (N, 2)
        CPUs and memory (GB) that are left; inf where the instance does not say.
    groups : tuple of Resource, length G
        Renewable resources that belong to some nodes.
    group_capacity : FloatArray, shape (G,)
        What is left of each of them.
    member : BoolArray, shape (G, N)
        Which nodes each of them belongs to.
    """

    instance: Instance
    pool: IntArray
    row: IntArray
    number: IntArray
    gpus: IntArray
    room: FloatArray
    own: FloatArray
    groups: tuple[Resource, ...]
    group_capacity: FloatArray
    member: BoolArray

    @classmethod
    def of(cls, instance: Instance, pools: Sequence[int]) -> Nodes:
        """The usable nodes of these pools, given in ascending order."""
        cluster = instance.cluster
        no_node = np.zeros(0, np.int64)
        pool_of = [no_node]
        rows = [no_node]
        gpus = [no_node]
        own = [np.zeros((0, len(OWN)))]
        for which in pools:
            part = cluster.pools[which]
            here = np.flatnonzero(part.usable(instance.now) & (part.node_gpus > 0))
            stated = np.stack([part.node_cpus[here], part.node_memory[here]], axis=1)
            pool_of.append(np.full(len(here), which, np.int64))
            rows.append(here)
            gpus.append(part.node_gpus[here])
            own.append(np.where(np.isnan(stated), np.inf, stated))
        groups = renewable_groups(instance)
        pool = np.concatenate(pool_of)
        row = np.concatenate(rows)
        count = np.concatenate(gpus)
        number = cluster.numbering.first[pool] + row
        # A rectangular table: nodes with fewer GPUs have room 0 in the columns beyond.
        exists = np.arange(count.max(initial=0)) < count[:, None]
        return cls(
            instance=instance,
            pool=pool,
            row=row,
            number=number,
            gpus=count,
            room=exists.astype(np.float64),
            own=np.concatenate(own),
            groups=groups,
            group_capacity=np.array([group.capacity for group in groups], np.float64),
            member=members(instance)[:, number],
        )

    def beside(self, standing: Standing) -> Nodes:
        """The same nodes with what is left beside what stands."""
        numbering = self.instance.cluster.numbering
        index = np.arange(self.room.shape[1])
        # Beyond the GPUs of a node the number is that of another one; room is 0 there.
        gpu = np.minimum(numbering.start[self.number, None] + index, numbering.gpus - 1)
        room = np.where(self.room > 0, np.maximum(1.0 - standing.load[gpu], 0.0), 0.0)
        own = np.maximum(self.own - standing.used[self.number], 0.0)
        group_capacity = np.maximum(self.group_capacity - standing.group_used, 0.0)
        return replace(self, room=room, own=own, group_capacity=group_capacity)

    def __len__(self) -> int:
        return len(self.pool)

    @cached_property
    def free(self) -> IntArray:
        """GPUs of each node that nothing stands on, shape (N,)."""
        return np.asarray((self.room >= 1.0).sum(axis=1), np.int64)

    def local(self) -> IntArray:
        """Which of these every node of the cluster is, -1 for those that are none of them."""
        local = np.full(self.instance.cluster.numbering.nodes, -1, np.int64)
        local[self.number] = np.arange(len(self))
        return local

    def name(self, node: int) -> str:
        """Name of a node."""
        return self.instance.cluster.pools[int(self.pool[node])].node_name(int(self.row[node]))

    def of_pool(self, pool: int) -> slice:
        """The nodes of a pool, which stand together."""
        start, stop = np.searchsorted(self.pool, [pool, pool + 1])
        return slice(int(start), int(stop))


NONE = -1


@dataclass(frozen=True)
class Links:
    """How well nodes are joined.

    A link without a stated bandwidth limits nothing; what only such links join counts as joined at
    the largest bandwidth that is stated. Nodes that the topology does not join, or does not have,
    are joined at 0 GB/s.

    Attributes
    ----------
    bandwidth : FloatArray, shape (L,)
        Levels, GB/s per direction, descending.
    label : IntArray, shape (L, N)
        Nodes with equal labels are joined at that bandwidth; -1: not even the node's own GPUs are.
    """

    bandwidth: FloatArray
    label: IntArray

    @classmethod
    def of(cls, nodes: Nodes) -> Links:
        """The links of a cluster: its topology document, or the tree GPU - node - leaf per pool - spine."""
        cluster = nodes.instance.cluster
        if cluster.topology is None:
            return cls(*_without_repetition(*_of_tree(nodes)))
        bandwidth, label = cluster.joined
        return cls(*_without_repetition(bandwidth, label[:, nodes.number]))

    def bottleneck(self, nodes: IntArray) -> float:
        """Bottleneck of a gang on these nodes, GB/s."""
        labels = self.label[:, nodes]
        joined = np.flatnonzero((labels[:, 0] >= 0) & (labels == labels[:, :1]).all(axis=1))
        return float(self.bandwidth[joined[0]]) if len(joined) else 0.0


def _of_tree(nodes: Nodes) -> tuple[FloatArray, IntArray]:
    """Inside a node ``intra_node``; between two nodes of a pool the smaller of ``intra_node`` and ``node``."""
    inside = np.zeros(len(nodes))
    between = np.zeros(len(nodes))
    for number, pool in enumerate(nodes.instance.cluster.pools):
        stated = [pool.bandwidth[level] for level in (INTRA_NODE, NODE) if level in pool.bandwidth]
        if stated:
            here = nodes.of_pool(number)
            inside[here] = pool.bandwidth.get(INTRA_NODE, max(stated))
            between[here] = min(stated)
    # Labels of nodes begin behind those of pools.
    own = len(nodes.instance.cluster.pools) + np.arange(len(nodes))
    bandwidth = np.unique(np.concatenate([inside, between]))[::-1]
    bandwidth = bandwidth[bandwidth > 0]
    level = bandwidth[:, None]
    return bandwidth, np.where(
        level <= between, nodes.pool, np.where(level <= inside, own, NONE)
    ).astype(np.int64)


def _without_repetition(bandwidth: FloatArray, label: IntArray) -> tuple[FloatArray, IntArray]:
    """Leave out levels that join no more than the one above them."""
    shape = label.copy()
    for row in range(
        len(label)
    ):  # labels in order of first appearance, so that equal groupings are equal arrays
        _, first, inverse = np.unique(label[row], return_index=True, return_inverse=True)
        rank = np.empty(len(first), np.int64)
        rank[np.argsort(first)] = np.arange(len(first))
        shape[row] = np.where(label[row] == NONE, NONE, rank[inverse])
    new = np.ones(len(label), bool)
    new[1:] = (shape[1:] != shape[:-1]).any(axis=1)
    return bandwidth[new], shape[new]


def largest_of_groups(
    label: IntArray, available: IntArray, nodes: int
) -> tuple[IntArray, IntArray]:
    """Groups of nodes with equal labels, and what the ``nodes`` largest of each have together.

    Nodes of label -1 are in no group.
    """
    # Within each group the largest first, so that sums of prefixes are the most of so many nodes.
    order = np.lexsort((-available, label))
    order = order[label[order] >= 0]
    first = np.flatnonzero(np.diff(label[order], prepend=-1))
    total = np.concatenate(([0], np.cumsum(available[order])))
    end = np.append(first[1:], len(order))[: len(first)]
    reach = total[np.minimum(first + nodes, end)] - total[first]
    return label[order[first]], reach
