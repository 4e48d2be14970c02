"""Times of all-reduces by the alpha-beta (Hockney) model: a message of S bytes takes alpha + S / B.

All functions take arrays that broadcast together and return seconds: S in bytes of the whole
buffer, as in nccl-tests, k ranks, B in bytes/s per direction, alpha in seconds per message. With at
most one rank there is no communication: 0 s for all links.

    ring           2 (k-1) alpha + 2 (k-1)/k S / B
    tree           2 ceil(log2 k) alpha + 2 S / B      pipelined, up and down
    hierarchical   a ring inside each node, and one between the nodes

References
----------
R. W. Hockney, "The communication challenge for MPP: Intel Paragon and Meiko CS-2", Parallel
Computing 20, 1994. NVIDIA/nccl-tests, doc/PERFORMANCE.md: the factor 2(k-1)/k of the bus bandwidth.
The constants of the tree are not verified.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.performance.analytic.hardware import Board
from optsched.performance.analytic.links import NODE, PoolLinks

Numbers = FloatArray | IntArray | float


def ring_all_reduce(
    size: Numbers,
    ranks: Numbers,
    bandwidth: Numbers,
    latency: Numbers = 0.0,
) -> FloatArray:
    """2 (k-1) alpha + 2 (k-1)/k S / B."""
    k = np.asarray(ranks, np.float64)
    # A reduce-scatter, then an all-gather: k - 1 steps each, of S / k bytes over every link.
    half = (k - 1) * latency + _transfer((k - 1) / np.maximum(k, 1) * size, bandwidth)
    return _of_several(k, 2.0 * half)


def tree_all_reduce(
    size: Numbers,
    ranks: Numbers,
    bandwidth: Numbers,
    latency: Numbers = 0.0,
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

    G GPUs on each of n nodes; B1 between the GPUs of a node, B2 the share of its node's link that
    each GPU has. With n = 1 this is the ring inside the node.
    """
    part = np.asarray(size, np.float64) / np.maximum(per_node, 1)
    near = ring_all_reduce(size, per_node, inside, latency_inside)
    far = ring_all_reduce(part, nodes, between, latency_between)
    return near + far


def _transfer(size: Numbers, bandwidth: Numbers) -> FloatArray:
    """S / B; 0 if S = 0, and inf if B = 0."""
    S, B = np.broadcast_arrays(np.asarray(size, np.float64), np.asarray(bandwidth, np.float64))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(S == 0, 0.0, S / B)


def _of_several(ranks: FloatArray, seconds: FloatArray) -> FloatArray:
    return np.where(ranks > 1, seconds, 0.0)


# --- NCCL's tuning model --------------------------------------------------------------------------


TREE, RING = 0, 1
LL, LL128, SIMPLE = 0, 1, 2
NVLINK, PCI, NET = 0, 1, 2

BASE = np.array([[6.8, 14.0, 8.4], [6.6, 14.0, 8.4]]) * 1e-6
"""Seconds by (algorithm, protocol)."""
HOP = (
    np.array(
        [
            [[0.6, 1.25, 4.0], [0.6, 1.9, 3.4]],
            [[1.0, 1.9, 4.0], [1.0, 2.5, 5.7]],
            [[5.0, 8.5, 14.0], [2.7, 4.0, 14.0]],
        ]
    )
    * 1e-6
)
"""Seconds of a step by (link, algorithm, protocol)."""
GENERATIONS = (7.0, 8.0, 9.0, 10.0)
"""Compute capabilities at which the rows below begin; older GPUs use the first row."""
LL_MAX = (
    np.array([[39.0, 39.0, 20.4], [87.7, 22.5, 19.0], [141.0, 45.0, 35.0], [282.0, 90.0, 70.0]])
    * 1e9
)
"""Bytes/s by (generation, scale); the scales are one node, two nodes, more."""
LL_MAX_HOSTS = np.array([39.0, 39.0, 20.4]) * 1e9
"""By scale, for nodes with Intel processors, whose hosts limit LL."""
RING_LL128 = np.array([20.0, 20.0, 36.7, 73.4]) * 1e9
"""Bytes/s of a channel by generation."""
TREE_LL128 = (
    np.array([[20.0, 20.0, 20.0], [20.0, 20.0, 20.0], [36.7, 36.7, 29.0], [73.4, 73.4, 58.0]]) * 1e9
)
TREE_ANY = (
    np.array([[26.5, 18.5, 10.0], [24.0, 23.6, 17.8], [38.7, 41.4, 36.0], [77.4, 82.8, 72.0]]) * 1e9
)
OVERHEAD = 1e-6
"""Seconds that the network adds to every step inside a node if the ring spans several nodes; three
times as much for Simple.
"""
CORRECTION = np.array(
    [
        [1] * 4 + [0.9, 0.8] + [0.7] * 4 + [0.6, 0.5, 0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9] + [1] * 4,
        [1] * 5 + [0.9] + [0.8] * 3 + [0.7] + [0.6] * 6 + [0.8] + [0.9] * 4 + [1] * 2,
        [0.9] * 7 + [0.8, 0.7, 0.6, 0.6] + [0.5] * 4 + [0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9],
    ]
)
"""Factors on the bandwidth of trees, by (protocol, floor(log2(bytes / 64)))."""


def nccl_times(
    size: Numbers,
    ranks: Numbers,
    nodes: Numbers,
    inside: Numbers,
    between: Numbers,
    capability: Numbers = 8.0,
    nvlink: BoolArray | bool = True,
    channels: Numbers = 12,
) -> FloatArray:
    """Seconds of NCCL's algorithms and protocols, by the tuning model with which NCCL chooses one.

    For every algorithm a (tree, ring) and protocol p (LL, LL128, Simple), k ranks on n nodes:

        time[a, p] = latency[a, p] + S / bandwidth[a, p],      the answer is the least of the six.

    With the bus bandwidth b of the channels (inside the node for n = 1, else of the slowest link of
    the ring):

        ring, LL         min(b / 2, llmax)                     x k / (2 (k-1))
        ring, LL128      min(.92 b, c r)                       x k / (2 (k-1))     c channels, caps r, t, l per channel
        ring, Simple     b                                     x k / (2 (k-1))
        tree, LL         min(min(.92 b, c t) / 3.8, llmax)     x 1/2 x table[LL, size]
        tree, LL128      min(f min(.92 b, c t), c l)           x 1/2 x table[LL128, size]    f = 7/9, 15/16 for n > 1
        tree, Simple     min(.92 b, c t)                       x 1/2 x table[Simple, size]

        ring latency  =  base + (2(k-1) - 2(n-1)) intra + 2(n-1) inter
                         Simple over nodes: x 1.9, from Ampere on x 1.4, if S / (c k) >= 64 bytes
        tree latency  =  base + 2 ((k/n - 1) intra + floor(log2 n) inter)

    LL128 is only taken on NVLink from Volta on. References: NVIDIA/nccl, src/graph/tuning.cc;
    latencies as at 5067397, caps and the table as in release 2.27. Left out: NVLS, CollNet and PAT,
    the latency of the NIC itself, and the 15 % off for one pattern of trees.

    Parameters
    ----------
    size : array
        Bytes.
    ranks, nodes : array
        k GPUs, spread evenly over n nodes.
    inside, between : array
        Bytes/s per direction of all channels, inside a node and between nodes.
    capability : array
        Compute capability of the GPUs.
    nvlink : array
        Whether the GPUs of a node are joined by NVLink, else by PCIe.
    channels : array

    Returns
    -------
    array, shape (6, ...)
        Tree LL, LL128, Simple, ring LL, LL128, Simple; inf where not available. NCCL takes the
        least.
    """
    given = (size, ranks, nodes, inside, between, capability, channels)
    S, k, n, B1, B2, cc, c = np.broadcast_arrays(
        *(np.asarray(value, np.float64) for value in given)
    )
    fast = np.broadcast_to(np.asarray(nvlink, bool), k.shape)
    n = np.maximum(n, 1)
    # A ring is as fast as its slowest link.
    bus = np.where(n > 1, np.minimum(B1, B2), B1)
    latency = np.stack(
        [_latency(a, p, S, k, n, cc, fast, c) for a in (TREE, RING) for p in (LL, LL128, SIMPLE)]
    )
    seconds = latency + _transfer(S, _bandwidth(S, k, n, bus, cc, c))
    # LL128 needs stores of 128 bytes at once, which only NVLink from Volta on delivers whole.
    no_ll128 = ~(fast & (cc >= GENERATIONS[0]))
    for protocol in (TREE * 3 + LL128, RING * 3 + LL128):
        seconds[protocol] = np.where(no_ll128, np.inf, seconds[protocol])
    return np.where(k > 1, seconds, 0.0)


def _bandwidth(
    S: FloatArray, k: FloatArray, n: FloatArray, bus: FloatArray, cc: FloatArray, c: FloatArray
) -> FloatArray:
    """Bandwidth of each algorithm and protocol from that of the bus, shape (6, ...)."""
    # The constants are by generation of GPU, and by scale: one node, two, more.
    generation = np.clip(
        np.searchsorted(GENERATIONS, cc, side="right") - 1, 0, len(GENERATIONS) - 1
    )
    scale = np.minimum(n, 3).astype(np.int64) - 1
    # LL sends a flag with every 4 bytes, which halves the bandwidth; the host is another limit.
    ll_max = np.where(n > 1, LL_MAX_HOSTS[scale], LL_MAX[generation, scale])
    # LL128 and trees reach 0.92 of the bus bandwidth: 120 of 128 bytes are data.
    trunk = np.minimum(0.92 * bus, c * TREE_ANY[generation, scale])
    f = np.where(n > 1, 15 / 16, 7 / 9)
    # From bus bandwidth to algorithm bandwidth: a tree moves every byte up and down.
    half = 0.5
    ring = k / np.maximum(2 * (k - 1), 1)
    bandwidth = np.stack(
        [
            np.minimum(trunk / 3.8, ll_max) * half,
            np.minimum(f * trunk, c * TREE_LL128[generation, scale]) * half,
            trunk * half,
            np.minimum(bus / 2, ll_max) * ring,
            np.minimum(0.92 * bus, c * RING_LL128[generation]) * ring,
            bus * ring,
        ]
    )
    # For some sizes trees are slower than their bandwidth; these factors were measured by NCCL.
    # An unknown size (NaN) has no factor; its time is NaN in any case.
    row = np.floor(np.log2(np.fmax(S, 64) / 64)).astype(np.int64)
    row = np.minimum(row, CORRECTION.shape[1] - 1)
    bandwidth[:3] *= np.where(
        np.floor(S / 64) >= 2.0 ** CORRECTION.shape[1], 1.0, CORRECTION[:, row]
    )
    return bandwidth


def _latency(
    algorithm: int,
    protocol: int,
    size: FloatArray,
    k: FloatArray,
    n: FloatArray,
    capability: FloatArray,
    nvlink: BoolArray,
    channels: FloatArray,
) -> FloatArray:
    base = BASE[algorithm, protocol]
    hop = HOP[:, algorithm, protocol]
    intra = np.where(nvlink, hop[NVLINK], hop[PCI])
    # With one GPU per node nothing hides the network latency.
    inter = np.where(k == n, HOP[NET, TREE, protocol], hop[NET])
    if algorithm == TREE:
        # A chain inside each node, a binary tree over the nodes; up, and down again.
        chain = np.floor(k / n) - 1
        levels = np.floor(np.log2(n))
        latency: FloatArray = base + 2 * (chain * intra + levels * inter)
        return latency
    # If the ring spans several nodes, steps inside a node also wait for the network.
    overhead = np.where(n > 1, OVERHEAD * (3 if protocol == SIMPLE else 1), 0.0)
    latency = base + (2 * (k - 1) - 2 * (n - 1)) * np.maximum(intra, overhead) + 2 * (n - 1) * inter
    if protocol == SIMPLE:
        # NCCL's correction for the plateau of large messages between nodes.
        plateau = (n > 1) & (size / (channels * k) >= 64)
        latency = latency * np.where(plateau, np.where(capability < 8, 1.9, 1.4), 1.0)
    return latency


# --- the GPUs of a configuration ------------------------------------------------------------------


FIRST_CAPABILITY = 6.0
"""Used for boards without a compute capability (other vendors): the oldest in the tuning model."""


def exchange_seconds(
    algorithm: str,
    size: FloatArray,
    links: PoolLinks,
    boards: Sequence[Board],
    pool: IntArray,
    gpus: IntArray,
    nodes: IntArray,
    group: IntArray | int = 0,
) -> FloatArray:
    """Seconds of an all-reduce of ``size`` bytes over k GPUs on n nodes of a pool, elementwise.

    ``group`` is the level of the topology that each way states (`PoolLinks.level`).

    - ``ring`` over all GPUs: the slowest link between them, `ring_all_reduce`;
    - ``tree`` over the same link, `tree_all_reduce`;
    - ``hierarchical``: inside the nodes, then between them (each GPU has a share of the link of its
      node), then inside again, `hierarchical_all_reduce`;
    - ``nccl``: the fastest algorithm and protocol of NCCL's tuning model, `nccl_times`.
    """
    bandwidth, latency = links.ring(pool, gpus, nodes, group)
    if algorithm == "ring":
        return ring_all_reduce(size, gpus, bandwidth, latency)
    if algorithm == "tree":
        return tree_all_reduce(size, gpus, bandwidth, latency)
    # The node with most GPUs determines the time; the others wait for it.
    each = np.ceil(gpus / np.maximum(nodes, 1))
    near, far = links.inside_and_between(pool, gpus, nodes, group)
    inside = links.bandwidth[pool, near]
    between = links.bandwidth[pool, far]
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
    known = capability[pool], joined[pool]
    return np.asarray(nccl_times(size, gpus, nodes, inside, between, *known).min(axis=0))
