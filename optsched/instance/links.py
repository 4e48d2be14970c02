"""Links of a topology document: checks, and the nodes that are joined at each bandwidth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from optsched.arrays import FloatArray, IntArray
from optsched.errors import InvalidInput
from optsched.instance.reading import key, show

NONE = -1
"""Label of a node whose GPUs are not joined with each other at a bandwidth."""


def check_topology(document: Mapping[str, Any], path: str) -> None:
    """Check networkx node-link JSON:
    nodes with ids, links between known nodes, positive bandwidths (GB/s).
    """
    # The keys that networkx writes; newer versions write `edges` instead of `links`.
    unknown = set(document) - {"directed", "multigraph", "graph", "nodes", "links", "edges"}
    if unknown:
        raise InvalidInput(
            f"{path}.{key(min(unknown))}",
            "an unknown key",
            "networkx node-link JSON (nodes, links)",
        )
    edges = edges_key(document)
    if edges == "links" and "edges" in document:
        raise InvalidInput(path, "both links and edges", "one of them")
    nodes, links = document.get("nodes"), document.get(edges)
    if not isinstance(nodes, list):
        raise InvalidInput(
            f"{path}.nodes",
            show(nodes) if "nodes" in document else "nothing",
            "a list of nodes with ids",
        )
    if not isinstance(links, list):
        raise InvalidInput(
            f"{path}.{edges}", show(links) if edges in document else "nothing", "a list of links"
        )
    for flag in ("directed", "multigraph"):
        if not isinstance(document.get(flag, False), bool):
            raise InvalidInput(f"{path}.{flag}", show(document[flag]), "true or false")
    if not isinstance(document.get("graph", {}), dict):
        raise InvalidInput(f"{path}.graph", show(document["graph"]), "an object")
    known = _check_nodes(nodes, f"{path}.nodes")
    for row, link in enumerate(links):
        _check_link(link, f"{path}.{edges}[{row}]", known)


def _check_nodes(nodes: Sequence[Any], path: str) -> set[Any]:
    """Refuse nodes without a unique id; returns the ids."""
    known = set()
    for row, node in enumerate(nodes):
        if not isinstance(node, dict) or not isinstance(node.get("id"), str | int):
            raise InvalidInput(f"{path}[{row}]", show(node), 'an object with an "id"')
        if node["id"] in known:
            raise InvalidInput(
                f"{path}[{row}].id", f"{show(node['id'])} a second time", "ids that differ"
            )
        known.add(node["id"])
    return known


def _check_link(link: Any, where: str, known: set[Any]) -> None:
    """Refuse a link that does not join known nodes, or has no valid bandwidth."""
    if not isinstance(link, dict):
        raise InvalidInput(where, show(link), "an object with source, target and bandwidth")
    for end in ("source", "target"):
        if not isinstance(link.get(end), str | int) or link[end] not in known:
            raise InvalidInput(
                f"{where}.{end}",
                show(link[end]) if end in link else "nothing",
                "the id of one of the topology's nodes",
            )
    if not isinstance(link.get("key", 0), str | int):
        raise InvalidInput(f"{where}.key", show(link["key"]), "text or a whole number")
    bandwidth = link.get("bandwidth")
    if bandwidth is not None and (
        isinstance(bandwidth, bool)
        or not isinstance(bandwidth, int | float)
        or not 0 < bandwidth < float("inf")
    ):
        raise InvalidInput(
            f"{where}.bandwidth", show(bandwidth), "a finite bandwidth in GB/s above 0"
        )


def edges_key(document: Mapping[str, Any]) -> str:
    """The key of the links in a node-link document; it depends on the version of networkx."""
    return "edges" if "edges" in document and "links" not in document else "links"


def joined_nodes(
    names: Sequence[str], gpus: IntArray, topology: Mapping[str, Any]
) -> tuple[FloatArray, IntArray]:
    """Groups of nodes that are joined at each bandwidth that is stated:
    widest paths, as nested groups.

    Bandwidths of parallel links add up. A directed link counts only if there is one in the other
    direction; the smaller bandwidth of the two is used. A node is its GPUs ``node/index`` where the
    document has them, else the vertex of its name.

    Parameters
    ----------
    names : sequence of str
        Nodes of the cluster.
    gpus : IntArray, shape (nodes,)
        GPUs of each node.
    topology : mapping
        networkx node-link document that passes `check_topology`.

    Returns
    -------
    bandwidth : FloatArray, shape (L,)
        GB/s, descending.
    label : IntArray, shape (L, nodes)
        Equal for nodes that are joined at that bandwidth; `NONE`: not even the node's GPUs are.
    """
    # Imported here because the module is slow to import and few clusters state links.
    from scipy.sparse.csgraph import connected_components

    vertex_number = {item["id"]: number for number, item in enumerate(topology["nodes"])}
    width = _widths(topology, vertex_number)
    vertex, node_of_vertex = _vertices_of_nodes(names, gpus, vertex_number)
    bandwidth = np.unique(width.data[np.isfinite(width.data)])[::-1]
    label = np.full((len(bandwidth), len(names)), NONE, np.int64)
    for row, level in enumerate(bandwidth.tolist()):
        wide = width.data >= level
        ends = (width.row[wide], width.col[wide])
        links = sp.csr_matrix((np.ones(len(ends[0])), ends), shape=width.shape)
        _, component = connected_components(links, directed=False)
        # A node is joined if its lowest and its highest component number are equal.
        low, high = np.full(len(names), len(vertex_number)), np.full(len(names), NONE)
        np.minimum.at(low, node_of_vertex, component[vertex])
        np.maximum.at(high, node_of_vertex, component[vertex])
        label[row] = np.where(low == high, low, NONE)
    return bandwidth, label


def _vertices_of_nodes(
    names: Sequence[str], gpus: IntArray, vertex_number: Mapping[Any, int]
) -> tuple[IntArray, IntArray]:
    """Vertices that stand for GPUs or nodes of the cluster, and the node of each."""
    vertices = []
    owners = []
    for node, (name, size) in enumerate(zip(names, gpus.tolist(), strict=True)):
        parts = [f"{name}/{index}" for index in range(size)]
        found = [vertex_number[part] for part in parts if part in vertex_number]
        if not found and name in vertex_number:
            found = [vertex_number[name]]
        vertices += found
        owners += [node] * len(found)
    return np.array(vertices, np.int64), np.array(owners, np.int64)


def _widths(topology: Mapping[str, Any], vertex: Mapping[Any, int]) -> sp.coo_matrix:
    """Bandwidth between linked vertices, inf if it is not stated."""
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
    # Find the reverse of each arc; an arc (a, b) is encoded as one number.
    key, back = one_way.row * count + one_way.col, one_way.col * count + one_way.row
    order = np.argsort(key)
    place = np.minimum(np.searchsorted(key, back, sorter=order), max(len(key) - 1, 0))
    both = key[order[place]] == back if len(key) else np.zeros(0, bool)
    data = np.minimum(one_way.data, one_way.data[order[place]])[both]
    return sp.coo_matrix((data, (one_way.row[both], one_way.col[both])), shape=(count, count))
