"""Bottleneck bandwidth between nodes, from the topology graph.

The bottleneck of a gang is the least, over pairs of GPUs of its nodes, of the bandwidth of the widest path between the
two. For every b, widest paths of b GB/s or more make GPUs into groups, and these groups are nested: so the graph is
kept as one label per node and level of bandwidth, and a gang's bottleneck is that of the first level at which all its
nodes have the same label. The GPUs of a node count as a whole: a node in two parts at a level has no label there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from optsched.arrays import FloatArray, IntArray
from optsched.instance.topology import INTRA_NODE, NODE, edges_key
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
        topology = nodes.instance.cluster.topology
        levels = _of_tree(nodes) if topology is None else _of_document(nodes, topology)
        return cls(*_without_repetition(*levels))

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
    return bandwidth, np.where(level <= between, nodes.pool, np.where(level <= inside, own, NONE)).astype(np.int64)


def _of_document(nodes: Nodes, topology: Mapping[str, Any]) -> tuple[FloatArray, IntArray]:
    """Groups of vertices joined at each bandwidth that is stated.

    Parallel links add up; an arc counts where there is one back, with the smaller bandwidth of the two. A node is its
    GPUs ``node/index`` where the document has them, else the vertex of its name.
    """
    vertex = {item["id"]: number for number, item in enumerate(topology["nodes"])}
    width = _widths(topology, vertex)
    parts: list[int] = []
    owner: list[int] = []
    for node in range(len(nodes)):
        name = nodes.name(node)
        gpus = [f"{name}/{index}" for index in range(int(nodes.gpus[node]))]
        mine = [vertex[gpu] for gpu in gpus if gpu in vertex] or [vertex[one] for one in (name,) if one in vertex]
        parts += mine
        owner += [node] * len(mine)
    part, of = np.array(parts, np.int64), np.array(owner, np.int64)
    bandwidth = np.unique(width.data[np.isfinite(width.data)])[::-1]
    label = np.full((len(bandwidth), len(nodes)), NONE, np.int64)
    for row, level in enumerate(bandwidth.tolist()):
        wide = width.data >= level
        ends = (width.row[wide], width.col[wide])
        joined = sp.csr_matrix((np.ones(len(ends[0])), ends), shape=width.shape)
        _, component = connected_components(joined, directed=False)
        low, high = np.full(len(nodes), len(vertex)), np.full(len(nodes), NONE)
        np.minimum.at(low, of, component[part])
        np.maximum.at(high, of, component[part])
        label[row] = np.where(low == high, low, NONE)
    return bandwidth, label


def _widths(topology: Mapping[str, Any], vertex: Mapping[Any, int]) -> sp.coo_matrix:
    """Bandwidth between vertices that a link joins, inf where it is not stated."""
    links = topology[edges_key(topology)]
    ends = np.array([(vertex[link["source"]], vertex[link["target"]]) for link in links], np.int64).reshape(-1, 2)
    stated = [link.get("bandwidth") for link in links]
    width = np.array([np.inf if value is None else float(value) for value in stated])
    if not topology.get("directed", False):
        ends, width = np.concatenate([ends, ends[:, ::-1]]), np.concatenate([width, width])
    count = len(vertex)
    one_way = sp.coo_matrix((width, (ends[:, 0], ends[:, 1])), shape=(count, count))
    one_way.sum_duplicates()
    key, back = one_way.row * count + one_way.col, one_way.col * count + one_way.row
    order = np.argsort(key)
    place = np.minimum(np.searchsorted(key, back, sorter=order), max(len(key) - 1, 0))
    both = key[order[place]] == back if len(key) else np.zeros(0, bool)
    data = np.minimum(one_way.data, one_way.data[order[place]])[both]
    return sp.coo_matrix((data, (one_way.row[both], one_way.col[both])), shape=(count, count))


def _without_repetition(bandwidth: FloatArray, label: IntArray) -> tuple[FloatArray, IntArray]:
    """Leave out levels that join no more than the one above them."""
    shape = label.copy()
    for row in range(len(label)):  # labels in order of first appearance, so that equal groupings are equal arrays
        _, first, inverse = np.unique(label[row], return_index=True, return_inverse=True)
        rank = np.empty(len(first), np.int64)
        rank[np.argsort(first)] = np.arange(len(first))
        shape[row] = np.where(label[row] == NONE, NONE, rank[inverse])
    new = np.ones(len(label), bool)
    new[1:] = (shape[1:] != shape[:-1]).any(axis=1)
    return bandwidth[new], shape[new]
