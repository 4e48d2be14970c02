"""Ways to run: the configurations table that models and candidates share,
and how many GPUs a pool's nodes hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from optsched.arrays import FloatArray, IntArray
from optsched.display import Displayed, count
from optsched.instance import Cluster, Instance


@dataclass(frozen=True, eq=False, repr=False)
class Configurations(Displayed):
    """What describes a way to run, once per way (not per job).

    Attributes
    ----------
    pool : IntArray, shape (C,)
        Row of the cluster's pools, -1 for an option that uses no pool.
    gpus, nodes : IntArray, shape (C,)
        GPUs in all and nodes spanned.
    max_per_node : IntArray, shape (C,)
        GPUs on the fullest of these nodes when they are spread evenly.
    share : FloatArray, shape (C,)
        Share of each GPU, in (0, 1].
    attributes : IntArray, shape (C,)
        Row of ``attribute_sets``.
    attribute_sets : tuple of mappings
        Free attributes of options; row 0 is empty.
    """

    pool: IntArray
    gpus: IntArray
    nodes: IntArray
    share: FloatArray
    attributes: IntArray
    attribute_sets: tuple[Mapping[str, Any], ...] = ({},)

    def _headline(self) -> str:
        return f"{count(len(self), 'way')} to run"

    def __len__(self) -> int:
        return len(self.pool)

    @property
    def max_per_node(self) -> IntArray:
        """GPUs on the fullest node, spread evenly."""
        return -(-self.gpus // np.maximum(self.nodes, 1))

    def cost_per_hour(self, cluster: Cluster) -> FloatArray:
        """USD per hour of each configuration; NaN where its pool has no price."""
        return self._per_gpu([pool.cost_per_gpu_hour for pool in cluster.pools])

    def watts(self, cluster: Cluster) -> FloatArray:
        """Power of the GPUs of each configuration in W; NaN where its pool does not say."""
        return self._per_gpu([pool.watts_per_gpu for pool in cluster.pools])

    def _per_gpu(self, by_pool: Sequence[float | None]) -> FloatArray:
        # The last value is for options that use no pool: their row is -1.
        values = np.array([np.nan if value is None else value for value in by_pool] + [0.0])
        return np.asarray(values[self.pool] * self.gpus * self.share, np.float64)


# --- sizes of pools -------------------------------------------------------------------------------


STRIDE = 2**40
"""More than any count of GPUs: multiples of it keep the pools apart in one sorted array."""


class PoolSizes(NamedTuple):
    """GPUs on the usable nodes of every pool.

    Attributes
    ----------
    gpus : IntArray, shape (pools,)
        Usable GPUs.
    nodes : IntArray, shape (pools,)
        Usable nodes that have GPUs.
    reach : IntArray, shape (sum of nodes + 1,)
        Pool by pool, the GPUs on its 0, 1, 2, ... largest nodes, plus the pool's row times
        `STRIDE`; increasing.
    start : IntArray, shape (pools,)
        Where each pool starts in ``reach``.
    """

    gpus: IntArray
    nodes: IntArray
    reach: IntArray
    start: IntArray

    @classmethod
    def of(cls, instance: Instance, later: bool = False) -> PoolSizes:
        """The sizes at the instance's clock;
        ``later`` counts nodes that become available as well.
        """
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
        """Fewest nodes that hold so many GPUs;
        one more than has GPUs where they don't fit, 0 without a pool.
        """
        # The stride keeps the pools apart: one search for all pools at once.
        position = np.searchsorted(self.reach, pool * STRIDE + gpus) - self.start[pool]
        return np.where(pool >= 0, position, 0)

    def most_gpus(self, pool: IntArray, nodes: IntArray) -> IntArray:
        """Most GPUs that so many nodes have; nodes beyond the pool's are not counted."""
        return self.reach[self.start[pool] + np.minimum(nodes, self.nodes[pool])] - pool * STRIDE
