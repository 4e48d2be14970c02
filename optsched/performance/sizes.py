"""Sizes of pools: how many GPUs a gang can have, by the nodes that it spans."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optsched.arrays import IntArray
from optsched.instance import Instance

STRIDE = 2**40
"""More than any count of GPUs: pools are told apart by multiples of it in one sorted array."""


@dataclass(frozen=True)
class PoolSizes:
    """GPUs of the usable nodes of every pool.

    Attributes
    ----------
    gpus : IntArray, shape (pools,)
        Usable GPUs.
    nodes : IntArray, shape (pools,)
        Usable nodes that have GPUs.
    reach : IntArray
        Pool after pool, GPUs on its 0, 1, 2, ... largest nodes, plus `STRIDE` times the pool's row.
    start : IntArray, shape (pools,)
        Where each pool starts in ``reach``.
    """

    gpus: IntArray
    nodes: IntArray
    reach: IntArray
    start: IntArray

    @classmethod
    def of(cls, instance: Instance) -> PoolSizes:
        """The sizes at the instance's clock."""
        reach = [np.trim_zeros(pool.reach(instance.now)[1:] , "b") for pool in instance.cluster.pools]
        raise NotImplementedError
