"""Which nodes a topology document joins at each bandwidth: widest paths, as nested groups of nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from optsched.arrays import FloatArray, IntArray
from optsched.instance.numbering import Numbering
from optsched.instance.topology import edges_key

NONE = -1
"""Label of a node whose own GPUs are not joined at that bandwidth."""


def joined_nodes(numbering: Numbering, topology: Mapping[str, Any]) -> tuple[FloatArray, IntArray]:
    """Groups of nodes joined at each bandwidth that is stated.

    Parallel links add up; an arc counts where there is one back, with the smaller bandwidth of the two. A node is its
    GPUs ``node/index`` where the document has them, else the vertex of its name.

    Returns
    -------
    bandwidth : FloatArray, shape (L,)
        GB/s, descending.
    label : IntArray, shape (L, nodes)
        Equal for nodes that are joined at that bandwidth; `NONE`: not even the node's own GPUs are.
    """
    vertex = {item["id"]: number for number, item in enumerate(topology["nodes"])}
    width = _widths(topology, vertex)
    parts: list[int] = []
    owner: list[int] = []
    for node, size in enumerate(np.diff(numbering.start).tolist()):
        name = numbering.node_name(node)
        gpus = [f"{name}/{index}" for index in range(size)]
        mine = [vertex[gpu] for gpu in gpus if gpu in vertex] or [
            vertex[one] for one in (name,) if one in vertex
        ]
        parts += mine
        owner += [node] * len(mine)
    part, of = np.array(parts, np.int64), np.array(owner, np.int64)
    bandwidth = np.unique(width.data[np.isfinite(width.data)])[::-1]
    label = np.full((len(bandwidth), numbering.nodes), NONE, np.int64)
    for row, level in enumerate(bandwidth.tolist()):
        wide = width.data >= level
        ends = (width.row[wide], width.col[wide])
        joined = sp.csr_matrix((np.ones(len(ends[0])), ends), shape=width.shape)
        _, component = connected_components(joined, directed=False)
        low, high = np.full(numbering.nodes, len(vertex)), np.full(numbering.nodes, NONE)
        np.minimum.at(low, of, component[part])
        np.maximum.at(high, of, component[part])
        label[row] = np.where(low == high, low, NONE)
    return bandwidth, label


def _widths(topology: Mapping[str, Any], vertex: Mapping[Any, int]) -> sp.coo_matrix:
    """Bandwidth between vertices that a link joins, inf where it is not stated."""
    links = topology[edges_key(topology)]
    ends = np.array(
        [(vertex[link["source"]], vertex[link["target"]]) for link in links], np.int64
    ).reshape(-1, 2)
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
