"""The topology graph: hosts, switches and links with bandwidth, as a networkx graph."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from optsched.instance.cluster import Cluster
from optsched.instance.links import edges_key

if TYPE_CHECKING:
    import networkx

INTRA_NODE, NODE, LEAF = "intra_node", "node", "leaf"


def topology_graph(cluster: Cluster) -> networkx.Graph[Any]:
    """The cluster's graph: the document's, or a tree GPU - node - leaf switch per pool - spine.

    With levels (`Cluster.levels`) there is a leaf switch for each of the smallest groups. Edges of
    the tree carry ``bandwidth`` in GB/s per direction where the pool states it.
    """
    import networkx

    if cluster.topology is not None:
        return networkx.node_link_graph(dict(cluster.topology), edges=edges_key(cluster.topology))
    tree: networkx.Graph[Any] = networkx.Graph()
    tree.add_node("spine", kind="switch")
    leaves = _leaves(cluster)
    for pool in cluster.pools:
        for row, gpus in enumerate(pool.node_gpus.tolist()):
            node = pool.node_name(row)
            leaf = leaves.get(node, f"leaf/{pool.name}")
            if leaf not in tree:
                tree.add_node(leaf, kind="switch", pool=pool.name)
                tree.add_edge(leaf, "spine", **_bandwidth(pool.bandwidth, LEAF))
            tree.add_node(node, kind="node", pool=pool.name, gpus=gpus)
            tree.add_edge(node, leaf, **_bandwidth(pool.bandwidth, NODE))
            for gpu in range(gpus):
                tree.add_node(f"{node}/{gpu}", kind="gpu", pool=pool.name)
                tree.add_edge(f"{node}/{gpu}", node, **_bandwidth(pool.bandwidth, INTRA_NODE))
    return tree


def _leaves(cluster: Cluster) -> dict[str, str]:
    """The leaf switch of each node, by its group; empty if the cluster states no levels."""
    if not cluster.levels:
        return {}
    smallest = cluster.levels[0]
    names = [f"{smallest.name} {group}" for group in smallest.groups]
    numbers = zip(cluster.numbering.by_name, smallest.group.tolist(), strict=True)
    return {node: names[group] for node, group in numbers}


def _bandwidth(bandwidth: Mapping[str, float], level: str) -> dict[str, float]:
    return {"bandwidth": bandwidth[level]} if level in bandwidth else {}


def undirected(graph: networkx.Graph[Any]) -> networkx.Graph[Any]:
    """A simple graph with the ``bandwidth`` of each link in GB/s per direction,
    inf where it is not stated.

    Bandwidths of parallel links add up. A directed link counts only if there is one in the other
    direction; the smaller bandwidth of the two is used.
    """
    import networkx

    # Keep both directions separate, so that a link in only one direction is dropped.
    width: dict[tuple[Any, Any], float] = {}
    for one, other, data in graph.edges(data=True):
        stated = data.get("bandwidth")
        bandwidth = math.inf if stated is None else float(stated)
        for ends in ((one, other),) if graph.is_directed() else ((one, other), (other, one)):
            width[ends] = width.get(ends, 0.0) + bandwidth
    simple: networkx.Graph[Any] = networkx.Graph()
    simple.add_nodes_from(graph.nodes(data=True))
    for (one, other), bandwidth in width.items():
        if one != other and (other, one) in width:
            simple.add_edge(one, other, bandwidth=min(bandwidth, width[other, one]))
    return simple


def insides(graph: networkx.Graph[Any], nodes: Iterable[str]) -> dict[str, set[Any]]:
    """The vertices inside each node in an `undirected` graph: its own vertex, its GPUs, other
    vertices named ``node/...``, and internal switches.

    An internal switch is a vertex next to these parts whose neighbours are all parts of the node.
    """
    inside = {node: {node} if node in graph else set[Any]() for node in nodes}
    for vertex in graph:
        owner = str(vertex).rpartition("/")[0]
        if owner in inside:
            inside[owner].add(vertex)
    for node, parts in inside.items():
        # A switch between nodes may have only one node; it is next to the node vertex only
        around = {other for part in parts if part != node for other in graph.adj[part]}
        parts |= {other for other in around if parts.issuperset(graph.adj[other])}
    return inside
