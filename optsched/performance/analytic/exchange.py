"""How gradients are exchanged: seconds of an all-reduce over the GPUs of a configuration, by algorithm."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from optsched.arrays import FloatArray, IntArray
from optsched.performance.analytic import nccl
from optsched.performance.analytic.collectives import (
    hierarchical_all_reduce,
    ring_all_reduce,
    tree_all_reduce,
)
from optsched.performance.analytic.hardware import Board
from optsched.performance.analytic.links import PoolLinks
from optsched.performance.analytic.rings import LEAF, NODE

ALGORITHMS = ("ring", "tree", "hierarchical", "nccl")
FIRST_CAPABILITY = 6.0
"""Of boards without a compute capability (of other vendors): the oldest that the tuning model knows."""


def exchange_seconds(
    algorithm: str, size: FloatArray, links: PoolLinks, boards: Sequence[Board], pool: IntArray, gpus: IntArray,
    nodes: IntArray,
) -> FloatArray:  # fmt: skip
    """Seconds of an all-reduce of ``size`` bytes over k GPUs on n nodes of a pool, elementwise.

    - ``ring`` over all GPUs: the slowest link between them, `collectives.ring_all_reduce`;
    - ``tree`` over the same link, `collectives.tree_all_reduce`;
    - ``hierarchical``: inside the nodes, then between them with the share of its node's link that each GPU has, then
      inside again, `collectives.hierarchical_all_reduce`;
    - ``nccl``: the fastest algorithm and protocol of NCCL's tuning model, `nccl.all_reduce`.
    """
    bandwidth, latency = links.ring(pool, gpus, nodes)
    if algorithm == "ring":
        return ring_all_reduce(size, gpus, bandwidth, latency)
    if algorithm == "tree":
        return tree_all_reduce(size, gpus, bandwidth, latency)
    # The fullest node counts: the others wait for it.
    each = np.ceil(gpus / np.maximum(nodes, 1))
    # Of two GPUs at least: one alone has no link, which would count as infinitely fast.
    near = links.level(pool, np.maximum(each.astype(np.int64), 2), np.ones_like(nodes))
    far = np.where(nodes > 1, links.level(pool, gpus, nodes), LEAF)
    inside, between = links.bandwidth[pool, near], links.bandwidth[pool, far]
    if algorithm == "hierarchical":
        return hierarchical_all_reduce(
            size,
            each,
            nodes,
            inside,
            between / np.maximum(each, 1),
            links.latency[pool, NODE],
            links.latency[pool, far],
        )
    capability = np.array([board.compute_capability or FIRST_CAPABILITY for board in boards])
    joined = np.array([bool(board.nvlink) and not board.bridge for board in boards])
    return nccl.all_reduce(
        size, gpus, nodes, inside, between, capability[pool], joined[pool]
    ).seconds
