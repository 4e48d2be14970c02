"""Bottleneck bandwidth between nodes, from the topology graph.

The bottleneck of a gang is the least, over pairs of GPUs of its nodes, of the bandwidth of the widest path between the
two. For every b, widest paths of b GB/s or more make GPUs into groups, and these groups are nested: so the graph is
kept as one label per node and level of bandwidth, and a gang's bottleneck is that of the first level at which all its
nodes have the same label. The GPUs of a node count as a whole: a node in two parts at a level has no label there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optsched.arrays import FloatArray, IntArray
from optsched.instance.topology import INTRA_NODE, NODE
from optsched.placement.nodes import Nodes

NONE = -1


@dataclass(frozen=True)
class Links:
    """How well nodes are joined.

    A link without a stated bandwidth limits nothing; what only such links join counts as joined at the largest
    bandwidth that is stated. Nodes that the topology does not join, or does not have, are joined at 0 GB/s.

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
    inside, between = np.zeros(len(nodes)), np.zeros(len(nodes))
    for number, pool in enumerate(nodes.instance.cluster.pools):
        stated = [pool.bandwidth[level] for level in (INTRA_NODE, NODE) if level in pool.bandwidth]
        if stated:
            here = nodes.of_pool(number)
            inside[here] = pool.bandwidth.get(INTRA_NODE, max(stated))
            between[here] = min(stated)
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
