"""Ways to run: the configurations table that models and candidates share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optsched.arrays import FloatArray, IntArray, constant
from optsched.display import Displayed, count
from optsched.instance import Cluster


@dataclass(frozen=True, eq=False, repr=False)
class Configurations(Displayed):
    """Ways to run, each stored once (not per job).

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
    level : IntArray or None, shape (C,)
        Level of the topology at which all GPUs of the way are in one group (row of
        `Cluster.group_of_node`); 0 for no such limit. None: no way has one.
    """

    pool: IntArray
    gpus: IntArray
    nodes: IntArray
    share: FloatArray
    attributes: IntArray
    attribute_sets: tuple[Mapping[str, Any], ...] = ({},)
    level: IntArray | None = None

    def _headline(self) -> str:
        return f"{count(len(self), 'way')} to run"

    def __len__(self) -> int:
        return len(self.pool)

    @property
    def levels(self) -> IntArray:
        """``level`` as an array."""
        return constant(0, len(self), np.int64) if self.level is None else self.level

    @property
    def max_per_node(self) -> IntArray:
        """GPUs on the fullest node, spread evenly."""
        return -(-self.gpus // np.maximum(self.nodes, 1))

    def cost_per_hour(self, cluster: Cluster) -> FloatArray:
        """USD per hour of each configuration; NaN where its pool has no price."""
        return self._per_gpu([pool.cost_per_gpu_hour for pool in cluster.pools])

    def watts(self, cluster: Cluster) -> FloatArray:
        """Power of the GPUs of each configuration in W; NaN if its pool states none."""
        return self._per_gpu([pool.watts_per_gpu for pool in cluster.pools])

    def _per_gpu(self, by_pool: Sequence[float | None]) -> FloatArray:
        # The last value is for options without a pool, whose row is -1.
        values = np.array([np.nan if value is None else value for value in by_pool] + [0.0])
        return values[self.pool] * self.gpus * self.share
