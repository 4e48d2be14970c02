"""Usable nodes of the pools, and what each has left beside what stands: GPUs, CPUs, memory, resources of some nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.instance import Instance
from optsched.instance.cluster import Resource
from optsched.placement.needs import OWN, members, renewable_groups
from optsched.placement.standing import Standing


@dataclass(frozen=True)
class Nodes:
    """The nodes that can take work now, pool by pool; nodes without GPUs are left out.

    A node that is not up, or not available yet, takes nothing (`Pool.usable`), not even what runs there now: the
    capacities of the program leave it out as well.

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
        numbers, rows, gpus, own = [], [], [], []
        for number in pools:
            pool = cluster.pools[number]
            here = np.flatnonzero(pool.usable(instance.now) & (pool.node_gpus > 0))
            numbers.append(np.full(len(here), number, np.int64))
            rows.append(here)
            gpus.append(pool.node_gpus[here])
            stated = np.stack([pool.node_cpus[here], pool.node_memory[here]], axis=1)
            own.append(np.where(np.isnan(stated), np.inf, stated))
        groups = renewable_groups(instance)
        pool_of, row_of = (
            np.concatenate([*numbers, np.zeros(0, np.int64)]),
            np.concatenate([*rows, np.zeros(0, int)]),
        )
        count = np.concatenate([*gpus, np.zeros(0, np.int64)])
        number = cluster.numbering.first[pool_of] + row_of
        return cls(
            instance,
            pool_of.astype(np.int64),
            row_of.astype(np.int64),
            number,
            count,
            (np.arange(count.max(initial=0)) < count[:, None]).astype(np.float64),
            np.concatenate([*own, np.zeros((0, len(OWN)))]),
            groups,
            np.array([group.capacity for group in groups], np.float64),
            members(instance)[:, number],
        )

    def beside(self, standing: Standing) -> Nodes:
        """The same nodes with what is left beside what stands."""
        numbering, at = self.instance.cluster.numbering, standing.node
        gpu = np.minimum(
            numbering.start[self.number, None] + np.arange(self.room.shape[1]), numbering.gpus - 1
        )
        room = np.where(self.room > 0, np.maximum(1.0 - standing.load[gpu], 0.0), 0.0)
        own = self.own.copy()
        for place in np.flatnonzero(standing.need.any(axis=0)).tolist():
            use = np.bincount(at, standing.need[standing.owner, place], numbering.nodes)
            own[:, place] = np.maximum(own[:, place] - use[self.number], 0.0)
        use = (standing.group_need[standing.owner].T * members(self.instance)[:, at]).sum(axis=1)
        return replace(
            self, room=room, own=own, group_capacity=np.maximum(self.group_capacity - use, 0.0)
        )

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
