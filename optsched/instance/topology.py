"""The topology graph: hosts, switches and links with bandwidth, as a networkx graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from optsched.instance.cluster import Cluster
from optsched.instance.links import edges_key

if TYPE_CHECKING:
    import networkx

INTRA_NODE, NODE, LEAF = "intra_node", "node", "leaf"


def topology_graph(cluster: Cluster) -> networkx.Graph[Any]:
    """The cluster's graph: the document's, or a tree GPU - node - leaf switch per pool - spine.

    Edges of the tree carry ``bandwidth`` in GB/s per direction where the pool states it.
    """
    import networkx

    if cluster.topology is not None:
        return networkx.node_link_graph(dict(cluster.topology), edges=edges_key(cluster.topology))
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
