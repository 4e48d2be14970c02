"""The topology graph: hosts, switches and links with bandwidth, as a networkx graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from optsched.errors import InvalidInput
from optsched.instance.cluster import Cluster
from optsched.instance.reading import key, show

if TYPE_CHECKING:
    import networkx

INTRA_NODE, NODE, LEAF = "intra_node", "node", "leaf"


def check_topology(document: Mapping[str, Any], path: str) -> None:
    """Check networkx node-link JSON: nodes with ids, links between known nodes, positive bandwidths (GB/s)."""
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
    """Refuse nodes without ids of their own; returns the ids."""
    known: set[Any] = set()
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
    """Refuse a link that does not join known nodes, or whose bandwidth is none."""
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
    """Under which key a node-link document has its links; networkx has written either."""
    return "edges" if "edges" in document and "links" not in document else "links"


def topology_graph(cluster: Cluster) -> networkx.Graph[Any]:
    """The cluster's graph: the document's, or a tree GPU - node - leaf switch per pool - spine.

    Edges of the tree carry ``bandwidth`` in GB/s per direction where the pool states it.
    """
    import networkx

    if cluster.topology is not None:
        graph: networkx.Graph[Any] = networkx.node_link_graph(
            dict(cluster.topology), edges=edges_key(cluster.topology)
        )
        return graph
    tree: networkx.Graph[Any] = networkx.Graph()
    tree.add_node("spine", kind="switch")
    for pool in cluster.pools:
        leaf = f"leaf/{pool.name}"
        tree.add_node(leaf, kind="switch", pool=pool.name)
        tree.add_edge(leaf, "spine", **_bandwidth(pool.bandwidth, LEAF))
        for row, gpus in enumerate(pool.node_gpus.tolist()):
            node = pool.node_name(row)
            tree.add_node(node, kind="node", pool=pool.name, gpus=gpus)
            tree.add_edge(node, leaf, **_bandwidth(pool.bandwidth, NODE))
            for gpu in range(gpus):
                tree.add_node(f"{node}/{gpu}", kind="gpu", pool=pool.name)
                tree.add_edge(f"{node}/{gpu}", node, **_bandwidth(pool.bandwidth, INTRA_NODE))
    return tree


def _bandwidth(bandwidth: Mapping[str, float], level: str) -> dict[str, float]:
    return {"bandwidth": bandwidth[level]} if level in bandwidth else {}
