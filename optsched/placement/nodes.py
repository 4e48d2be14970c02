"""Usable nodes of the pools, and what each of them has: GPUs, CPUs, memory, and its part in resources of some nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.instance import Instance
from optsched.instance.cluster import Resource

OWN = ("cpu", "memory")
"""Resources that every node has of its own; the columns of ``Nodes.own`` and of ``Requests.need``."""


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
    gpus : IntArray, shape (N,)
    own : FloatArray, shape (N, 2)
        CPUs and memory (GB); inf where the instance does not say.
    groups : tuple of Resource, length G
        Renewable resources that belong to some nodes.
    member : BoolArray, shape (G, N)
        Which nodes each of them belongs to.
    """

    instance: Instance
    pool: IntArray
    row: IntArray
    gpus: IntArray
    own: FloatArray
    groups: tuple[Resource, ...]
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
        pool_of, row_of = np.concatenate([*numbers, np.zeros(0, np.int64)]), np.concatenate([*rows, np.zeros(0, int)])
        member = np.zeros((len(groups), len(pool_of)), bool)
        if groups:
            names = [cluster.pools[p].node_name(r) for p, r in zip(pool_of.tolist(), row_of.tolist(), strict=True)]
            for place, group in enumerate(groups):
                mine = frozenset(group.nodes or ())
                member[place] = [name in mine for name in names]
        return cls(
            instance,
            pool_of.astype(np.int64),
            row_of.astype(np.int64),
            np.concatenate([*gpus, np.zeros(0, np.int64)]),
            np.concatenate([*own, np.zeros((0, len(OWN)))]),
            groups,
            member,
        )

    def __len__(self) -> int:
        return len(self.pool)

    @property
    def group_capacity(self) -> FloatArray:
        """Capacity of each resource of some nodes, shape (G,)."""
        return np.array([group.capacity for group in self.groups], np.float64)

    def name(self, node: int) -> str:
        """Name of a node."""
        return self.instance.cluster.pools[int(self.pool[node])].node_name(int(self.row[node]))

    def of_pool(self, pool: int) -> slice:
        """The nodes of a pool, which stand together."""
        start, stop = np.searchsorted(self.pool, [pool, pool + 1])
        return slice(int(start), int(stop))


def renewable_groups(instance: Instance) -> tuple[Resource, ...]:
    """Renewable resources that belong to some nodes: what is placed on these nodes at one time must fit in."""
    resources = instance.cluster.resources
    return tuple(resource for resource in resources if resource.nodes is not None and resource.kind == "renewable")
