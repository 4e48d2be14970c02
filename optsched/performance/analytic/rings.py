"""Rings over a placement's GPUs in the topology graph: which links they use, and how fast they are.

A ring that visits GPUs in the order of a walk around a tree of links uses every link of the tree once in each
direction. So among all rings, one around the maximum spanning tree, cut down to the placement's GPUs, has the widest
slowest link: B = min over its links of capacity / jobs that share it. Where links are left over (several NICs, rails),
further rings are packed in the same greedy way and add up, as NCCL does with channels, down to half the width of the
first; narrower ones (PCIe beside NVLink) would only hold the others up. For stars and trees (NVSwitch, fat trees) this
is exact; for GPUs that are joined pairwise it is a lower bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import networkx

MOST_RINGS = 16
"""Rings of one placement."""
ROUNDING = 1e-9
"""Relative."""
ONE_GPU, ISLAND, NODE, LEAF, ACROSS = range(5)
"""Link levels: one GPU, one NVLink island, one node, one leaf switch (rack), across leaf switches."""

Edge = frozenset[Any]


class Rings(NamedTuple):
    """Bandwidth of all rings of a placement together (GB/s), the links that they use, and the slowest one."""

    bandwidth: float
    links: frozenset[Edge]
    slowest: Edge | None


def undirected(graph: networkx.Graph[Any]) -> networkx.Graph[Any]:
    """A simple graph with the ``bandwidth`` of each link in GB/s per direction, inf where it is not stated.

    Parallel links add up; an arc counts where there is one back, with the smaller bandwidth of the two.
    """
    import networkx

    # Both directions are kept apart, so that an arc without one back joins nothing.
    width: dict[tuple[Any, Any], float] = {}
    for one, other, data in graph.edges(data=True):
        bandwidth = float(np.inf if data.get("bandwidth") is None else data["bandwidth"])
        for ends in ((one, other),) if graph.is_directed() else ((one, other), (other, one)):
            width[ends] = width.get(ends, 0.0) + bandwidth
    simple: networkx.Graph[Any] = networkx.Graph()
    simple.add_nodes_from(graph.nodes(data=True))
    for (one, other), bandwidth in width.items():
        if one != other and (other, one) in width:
            simple.add_edge(one, other, bandwidth=min(bandwidth, width[other, one]))
    return simple


def rings(graph: networkx.Graph[Any], terminals: Sequence[Any]) -> Rings:
    """Rings over these vertices of an `undirected` graph, packed greedily; 0 GB/s where it does not join them."""
    if len(terminals) < 2:
        return Rings(np.inf, frozenset(), None)
    left = {(one, other): float(data["bandwidth"]) for one, other, data in graph.edges(data=True)}
    total, first, used, slowest = 0.0, 0.0, set[Edge](), None
    for _ in range(MOST_RINGS):
        tree = _tree(left, terminals)
        if tree is None:
            break
        # The slowest link of the widest tree limits this ring.
        narrow = min(tree, key=left.__getitem__)
        width = left[narrow]
        if slowest is None:
            slowest, first = frozenset(narrow), width
        # A narrow ring (PCIe beside NVLink) would hold the wide ones up.
        if width < first / 2:
            break
        used |= {frozenset(ends) for ends in tree}
        total += width
        if np.isinf(total):
            break
        # What a ring uses is no longer there for the next one.
        for ends in tree:
            left[ends] -= width
            if left[ends] <= ROUNDING * width:
                del left[ends]
    return Rings(total, frozenset(used), slowest)


def _tree(
    width: Mapping[tuple[Any, Any], float], terminals: Sequence[Any]
) -> list[tuple[Any, Any]] | None:
    """Links of the maximum spanning tree (Kruskal), cut down to what joins the terminals; None where nothing does."""
    group: dict[Any, Any] = {}

    def root(vertex: Any) -> Any:
        while (above := group.setdefault(vertex, vertex)) != vertex:
            group[vertex] = group[above]
            vertex = above
        return vertex

    near: dict[Any, dict[Any, tuple[Any, Any]]] = {}
    # Kruskal: links from wide to narrow, kept where they join two parts.
    for link in sorted(width, key=lambda ends: -width[ends]):
        one, other = link
        a, b = root(one), root(other)
        if a != b:
            group[a] = b
            near.setdefault(one, {})[other] = link
            near.setdefault(other, {})[one] = link
    if len({root(vertex) for vertex in terminals}) > 1:
        return None
    # Leaves that are no terminals are cut off, until only paths between terminals are left.
    wanted = set(terminals)
    ends = [vertex for vertex, around in near.items() if len(around) == 1 and vertex not in wanted]
    while ends:
        vertex = ends.pop()
        # A leaf has one neighbour, or none once that one is gone.
        for neighbour in near.pop(vertex):
            del near[neighbour][vertex]
            if len(near[neighbour]) == 1 and neighbour not in wanted:
                ends.append(neighbour)
    return list({link: None for around in near.values() for link in around.values()})


def insides(graph: networkx.Graph[Any], nodes: Iterable[str]) -> dict[str, set[Any]]:
    """What each node is made of: its own vertex, its GPUs, and what has no neighbours beyond these."""
    wanted = dict.fromkeys(nodes)
    inside: dict[str, set[Any]] = {node: {node} & set(graph) for node in wanted}
    for vertex in graph:
        owner = str(vertex).rpartition("/")[0]
        if owner in wanted:
            inside[owner].add(vertex)
    for parts in inside.values():
        for vertex in {other for part in parts for other in graph.adj[part]} - parts:
            if all(other in parts for other in graph.adj[vertex]):
                parts.add(vertex)
    return inside


def neighbours(graph: networkx.Graph[Any], parts: set[Any]) -> set[Any]:
    """Vertices next to a set of vertices."""
    return {other for part in parts for other in graph.adj[part]} - parts
