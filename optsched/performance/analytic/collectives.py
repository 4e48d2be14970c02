"""Times of all-reduces by the alpha-beta (Hockney) model: a message of S bytes takes alpha + S / B.

All functions take arrays that broadcast together and return seconds: S in bytes of the whole buffer, as in nccl-tests,
k ranks, B in bytes/s per direction, alpha in seconds per message. One rank, or none, communicates with nobody: 0 s,
whatever the links.

    ring           2 (k-1) alpha + 2 (k-1)/k S / B
    tree           2 ceil(log2 k) alpha + 2 S / B      pipelined, up and down
    hierarchical   a ring inside each node, and one between the nodes

References
----------
R. W. Hockney, "The communication challenge for MPP: Intel Paragon and Meiko CS-2", Parallel Computing 20, 1994.
NVIDIA/nccl-tests, doc/PERFORMANCE.md: the factor 2(k-1)/k of the bus bandwidth. The constants of the tree are not
verified.
"""

from __future__ import annotations

import numpy as np

from optsched.arrays import FloatArray, IntArray

Numbers = FloatArray | IntArray | float


def ring_all_reduce(
    size: Numbers, ranks: Numbers, bandwidth: Numbers, latency: Numbers = 0.0
) -> FloatArray:
    """2 (k-1) alpha + 2 (k-1)/k S / B."""
    k = np.asarray(ranks, np.float64)
    # A reduce-scatter, then an all-gather: k - 1 steps each, of S / k bytes over every link.
    half = (k - 1) * latency + _transfer((k - 1) / np.maximum(k, 1) * size, bandwidth)
    return _of_several(k, 2.0 * half)


def tree_all_reduce(
    size: Numbers, ranks: Numbers, bandwidth: Numbers, latency: Numbers = 0.0
) -> FloatArray:
    """2 ceil(log2 k) alpha + 2 S / B."""
    k = np.asarray(ranks, np.float64)
    depth = np.ceil(np.log2(np.maximum(k, 1)))
    return _of_several(k, 2 * depth * latency + 2 * _transfer(size, bandwidth))


def hierarchical_all_reduce(
    size: Numbers,
    per_node: Numbers,
    nodes: Numbers,
    inside: Numbers,
    between: Numbers,
    latency_inside: Numbers = 0.0,
    latency_between: Numbers = 0.0,
) -> FloatArray:
    """Reduce-scatter inside the nodes, all-reduce of the parts between them, all-gather inside.

        2 (G-1)/G S / B1  +  2 (n-1)/n (S/G) / B2  +  2 (G-1) alpha1 + 2 (n-1) alpha2

    G GPUs on each of n nodes; B1 between the GPUs of a node, B2 the share of its node's link that each GPU has. With
    n = 1 this is the ring inside the node.
    """
    part = np.asarray(size, np.float64) / np.maximum(per_node, 1)
    near = ring_all_reduce(size, per_node, inside, latency_inside)
    far = ring_all_reduce(part, nodes, between, latency_between)
    return near + far


def _transfer(size: Numbers, bandwidth: Numbers) -> FloatArray:
    """S / B; nothing takes no time, and anything takes forever without a link."""
    S, B = np.broadcast_arrays(np.asarray(size, np.float64), np.asarray(bandwidth, np.float64))
    with np.errstate(divide="ignore", invalid="ignore"):
        seconds: FloatArray = np.where(S == 0, 0.0, S / B)
    return seconds


def _of_several(ranks: FloatArray, seconds: FloatArray) -> FloatArray:
    several: FloatArray = np.where(ranks > 1, seconds, 0.0)
    return several
