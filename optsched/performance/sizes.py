"""Sizes of pools: how many GPUs a gang can have, by the nodes that it spans."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optsched.arrays import IntArray
from optsched.instance import Instance

STRIDE = 2**40
"""More than any count of GPUs: multiples of it keep the pools apart in one sorted array."""


@dataclass(frozen=True)
class PoolSizes:
    """GPUs on the usable nodes of every pool.

    Attributes
    ----------
    gpus : IntArray, shape (pools,)
        Usable GPUs.
    nodes : IntArray, shape (pools,)
        Usable nodes that have GPUs.
    reach : IntArray, shape (sum of nodes + 1,)
        Pool by pool, the GPUs on its 0, 1, 2, ... largest nodes, plus the pool's row times `STRIDE`; increasing.
    start : IntArray, shape (pools,)
        Where each pool starts in ``reach``.
    """

    gpus: IntArray
    nodes: IntArray
    reach: IntArray
    start: IntArray

    @classmethod
    def of(cls, instance: Instance, later: bool = False) -> PoolSizes:
        """The sizes at the instance's clock; ``later`` counts nodes that become available as well."""
        reaches = [pool.reach(np.inf if later else instance.now) for pool in instance.cluster.pools]
        # Nodes without GPUs come last, and are left out.
        reaches = [reach[: 1 + np.count_nonzero(reach[1:] > reach[:-1])] for reach in reaches]
        # The largest nodes first, so that position k of the reach is what k nodes can hold.
        nodes = np.array([len(reach) - 1 for reach in reaches], np.int64)
        return cls(
            gpus=np.array([reach[-1] for reach in reaches], np.int64),
            nodes=nodes,
            reach=np.concatenate([reach + row * STRIDE for row, reach in enumerate(reaches)]),
            start=np.cumsum(nodes + 1) - nodes - 1,
        )

    def fewest_nodes(self, pool: IntArray, gpus: IntArray) -> IntArray:
        """Fewest nodes that hold so many GPUs; one more than has GPUs where they don't fit, 0 without a pool."""
        # The stride keeps the pools apart: one search for all pools at once.
        position = np.searchsorted(self.reach, pool * STRIDE + gpus) - self.start[pool]
        return np.where(pool >= 0, position, 0)

    def most_gpus(self, pool: IntArray, nodes: IntArray) -> IntArray:
        """Most GPUs that so many nodes have; nodes beyond the pool's are not counted."""
        return self.reach[self.start[pool] + np.minimum(nodes, self.nodes[pool])] - pool * STRIDE
