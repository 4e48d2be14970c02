"""Bandwidth and latency between the GPUs of a pool, by their distance.

Each number comes from the first of these sources that has it; `PoolLinks.sources` names the source:

1. the cluster's topology document: the rings over all GPUs of an island, of a node, of the nodes
   under one leaf switch, of all nodes (`rings`), the slowest of these of the pool;
2. the pool's ``bandwidth``: ``intra_node``, ``node``, ``leaf``;
3. the datasheet of the GPU inside a node (NVLink unless it is an optional bridge, else PCIe, as
   much of it as NCCL expects to get), and between nodes a default network.

References
----------
NVIDIA/nccl, src/graph/topo.h: effective bandwidth of an NVLink by compute capability, PCIe 3.0 x16
and a 100 Gb/s NIC 12 GB/s; src/graph/tuning.cc: latency of a step of a ring with protocol Simple.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from optsched.arrays import FloatArray, IntArray
from optsched.instance import Cluster, Pool
from optsched.instance.topology import INTRA_NODE, insides, topology_graph, undirected
from optsched.instance.topology import LEAF as LEAF_LINK
from optsched.instance.topology import NODE as NODE_LINK
from optsched.performance.analytic.hardware import Board

if TYPE_CHECKING:
    import networkx


# --- rings over a placement's GPUs ----------------------------------------------------------------


MOST_RINGS = 16
"""Rings of one placement."""
ROUNDING = 1e-9
"""Relative."""
ONE_GPU, ISLAND, NODE, LEAF, ACROSS = range(5)
"""Link levels: one GPU, one NVLink island, one node,
one leaf switch (rack), across leaf switches.
"""

Edge = frozenset[Any]


class Rings(NamedTuple):
    """Total bandwidth of all rings of a placement (GB/s), the links that they use, and the slowest
    link.
    """

    bandwidth: float
    links: frozenset[Edge]
    slowest: Edge | None


def rings(graph: networkx.Graph[Any], terminals: Sequence[Any]) -> Rings:
    """Rings over these vertices of an `undirected` graph, packed greedily; 0 GB/s if the graph does
    not connect them.

    A ring that visits GPUs in the order of a walk around a tree of links uses every link of the
    tree once in each direction. So the ring around the maximum spanning tree, pruned to the
    placement's GPUs, maximises the bandwidth of its slowest link: B = min over its links of
    capacity / jobs that share it. If links are left over (several NICs, rails), more rings are
    packed in the same greedy way and their bandwidths add up, like the channels of NCCL. Rings with
    less than half the bandwidth of the first (PCIe beside NVLink) are not used, because they would
    slow down the others. The result is exact for stars and trees (NVSwitch, fat trees), and a lower
    bound for GPUs that are joined pairwise.
    """
    if len(terminals) < 2:
        return Rings(np.inf, frozenset(), None)
    left = graph.copy()
    total = 0.0
    first = 0.0
    used = set[Edge]()
    slowest = None
    for _ in range(MOST_RINGS):
        tree = _tree(left, terminals)
        if tree is None:
            break
        # The slowest link of the tree limits this ring.
        narrow = min(tree, key=lambda ends: left.edges[ends]["bandwidth"])
        width = left.edges[narrow]["bandwidth"]
        if slowest is None:
            slowest = frozenset(narrow)
            first = width
        # A slow ring (PCIe beside NVLink) would slow down the fast ones.
        if width < first / 2:
            break
        used |= {frozenset(ends) for ends in tree}
        total += width
        if np.isinf(total):
            break
        # Subtract the bandwidth of this ring before packing the next one.
        for ends in tree:
            left.edges[ends]["bandwidth"] -= width
            if left.edges[ends]["bandwidth"] <= ROUNDING * width:
                left.remove_edge(*ends)
    return Rings(total, frozenset(used), slowest)


def _tree(graph: networkx.Graph[Any], terminals: Sequence[Any]) -> list[tuple[Any, Any]] | None:
    """Links of the maximum spanning tree, pruned to the paths between terminals; None if they are
    not connected.
    """
    import networkx

    tree = networkx.maximum_spanning_tree(graph, weight="bandwidth")
    joined = networkx.node_connected_component(tree, terminals[0])
    if not joined.issuperset(terminals):
        return None
    tree.remove_nodes_from([vertex for vertex in tree if vertex not in joined])
    # Remove leaves that are not terminals, until only paths between terminals are left.
    wanted = set(terminals)
    while ends := [leaf for leaf, links in tree.degree if links == 1 and leaf not in wanted]:
        tree.remove_nodes_from(ends)
    return list(tree.edges)


def neighbours(graph: networkx.Graph[Any], parts: set[Any]) -> set[Any]:
    """Vertices next to a set of vertices."""
    return {other for part in parts for other in graph.adj[part]} - parts


# --- links of pools -------------------------------------------------------------------------------


GB = 1e9
LEVELS = ("one GPU", "NVLink island", "node", "leaf switch", "across leaf switches")
"""Names of the link levels."""
NVLINK_SHARE = {6.0: 0.9, 7.0: 0.8, 8.0: 0.8, 9.0: 0.824, 10.0: 0.802}
"""Fraction of an NVLink's bandwidth that NCCL expects, by compute capability:
18 of 20, 20 of 25, 20 of 25, 20.6 of 25, 40.1 of 50 GB/s.
"""
OTHER_SHARE = 0.8
PCIE_3 = 12.0
"""GB/s of 16 lanes of generation 3; each generation doubles it."""
NETWORK_BANDWIDTH, NETWORK_LATENCY = 12.0, 14e-6
"""Defaults between nodes: one NIC of 100 Gb/s per node (in GB/s), and seconds of a step of a ring.
"""
NVLINK_LATENCY, PCIE_LATENCY = 3.4e-6, 5.7e-6


class Stated(NamedTuple):
    """A bandwidth in GB/s and its source."""

    bandwidth: float
    source: str


@dataclass(frozen=True)
class PoolLinks:
    """Links of P pools at the five levels (`LEVELS`).

    Attributes
    ----------
    bandwidth : FloatArray, shape (P, 5)
        Bytes/s per direction of all rings together; inf at level 0.
    latency : FloatArray, shape (P, 5)
        Seconds of a step of a ring over a link of this level.
    sources : tuple of tuples of str, shape (P, 5)
        Where each bandwidth comes from.
    island : IntArray, shape (P,)
        GPUs of an NVLink island that exists in every node; 0 if the topology has none.
    leaf : IntArray, shape (P,)
        Most nodes under one leaf switch; 1 if the cluster states levels, because configurations
        then state whether they are in one rack.
    """

    bandwidth: FloatArray
    latency: FloatArray
    sources: tuple[tuple[str, ...], ...]
    island: IntArray
    leaf: IntArray

    @classmethod
    def of(
        cls,
        cluster: Cluster,
        boards: Sequence[Board],
        network_bandwidth: float = NETWORK_BANDWIDTH,
        network_latency: float = NETWORK_LATENCY,
    ) -> PoolLinks:
        """The links of a cluster whose pools have these boards."""
        defaults = [
            _defaults(pool, board, network_bandwidth)
            for pool, board in zip(cluster.pools, boards, strict=True)
        ]
        if cluster.topology is None:
            found = [
                _of_tree(pool, stated) for pool, stated in zip(cluster.pools, defaults, strict=True)
            ]
        else:
            found = _of_topology(cluster, defaults)
        inside = [
            NVLINK_LATENCY if board.nvlink and not board.bridge else PCIE_LATENCY
            for board in boards
        ]
        return cls(
            bandwidth=np.array(
                [[link.bandwidth * GB for link in levels] for levels, _, _ in found]
            ),
            latency=np.array(
                [[0.0, within, within, network_latency, network_latency] for within in inside]
            ),
            sources=tuple(tuple(link.source for link in levels) for levels, _, _ in found),
            island=np.array([island for _, island, _ in found], np.int64),
            leaf=np.array([1 if cluster.levels else leaf for _, _, leaf in found], np.int64),
        )

    def level(
        self, pool: IntArray, gpus: IntArray, nodes: IntArray, group: IntArray | int = 0
    ) -> IntArray:
        """Link level of k GPUs on n nodes in the best case, elementwise.

        ``group`` is the level of the topology that each way states; the nodes of a group of level 1
        are under one leaf switch.
        """
        inside = np.where(gpus <= self.island[pool], ISLAND, NODE)
        between = np.where((nodes <= self.leaf[pool]) | (np.asarray(group) == 1), LEAF, ACROSS)
        return np.where(gpus <= 1, 0, np.where(nodes <= 1, inside, between))

    def inside_and_between(
        self, pool: IntArray, gpus: IntArray, nodes: IntArray, group: IntArray | int = 0
    ) -> tuple[IntArray, IntArray]:
        """Link levels inside the fullest node, and between the nodes, of k GPUs on n nodes."""
        # At least two GPUs, because one alone has no link, which would count as infinitely fast.
        fullest = np.maximum(-(-gpus // np.maximum(nodes, 1)), 2)
        inside = self.level(pool, fullest, np.ones_like(nodes))
        return inside, np.where(nodes > 1, self.level(pool, gpus, nodes, group), LEAF)

    def ring(
        self,
        pool: IntArray,
        gpus: IntArray,
        nodes: IntArray,
        group: IntArray | int = 0,
    ) -> tuple[FloatArray, FloatArray]:
        """Bandwidth (bytes/s) and mean latency of a step (s) of a ring over k GPUs on n nodes.

        Of the k - 1 steps of a reduce-scatter, n - 1 go over the network.
        """
        level = self.level(pool, gpus, nodes, group)
        inside = self.latency[pool, NODE]
        outside = self.latency[pool, level]
        # The ring is ordered so that neighbours are on the same node where possible.
        over = np.where(level >= LEAF, nodes - 1, 0)
        latency = np.where(
            gpus > 1, ((gpus - 1 - over) * inside + over * outside) / np.maximum(gpus - 1, 1), 0.0
        )
        return self.bandwidth[pool, level], latency


Found = tuple[tuple[Stated, ...], int, int]
"""Links of a pool: its five levels, GPUs per island, nodes per leaf."""


def _defaults(pool: Pool, board: Board, network: float) -> Mapping[str, Stated]:
    """Links inside a node, of a node and of a leaf switch, from the pool or the datasheet."""
    if board.nvlink and not board.bridge:
        share = NVLINK_SHARE.get(board.compute_capability or 0.0, OTHER_SHARE)
        inside = Stated(
            board.nvlink * share,
            f"datasheet of {board.name}: NVLink {board.nvlink:g} GB/s x {share:g}",
        )
    else:
        inside = Stated(
            PCIE_3 * 2 ** (board.pcie - 3), f"datasheet of {board.name}: PCIe {board.pcie}.0 x16"
        )
    default = {
        INTRA_NODE: inside,
        NODE_LINK: Stated(network, f"default network of {network:g} GB/s for a node"),
        LEAF_LINK: Stated(np.inf, "leaf switches that limit nothing"),
    }
    stated = {
        level: Stated(value, f"bandwidth.{level} of pool {pool.name}")
        for level, value in pool.bandwidth.items()
    }
    return default | stated


def _narrowest(*stated: Stated) -> Stated:
    return min(stated, key=lambda link: link.bandwidth)


ALONE = Stated(np.inf, "nothing to send")


def _of_tree(pool: Pool, stated: Mapping[str, Stated]) -> Found:
    """The tree GPU - node - leaf per pool - spine."""
    inside = stated[INTRA_NODE]
    between = _narrowest(inside, stated[NODE_LINK])
    across = _narrowest(between, stated[LEAF_LINK])
    return (ALONE, inside, inside, between, across), 0, max(len(pool.node_gpus), 1)


def _of_topology(cluster: Cluster, defaults: Sequence[Mapping[str, Stated]]) -> list[Found]:
    graph = undirected(topology_graph(cluster))
    nodes = {
        pool.node_name(row): number
        for number, pool in enumerate(cluster.pools)
        for row in _with_gpus(pool)
    }
    inside = insides(graph, nodes)
    owner = {vertex: node for node, parts in inside.items() for vertex in parts}
    for one, other, data in graph.edges(data=True):
        ends = [owner.get(one), owner.get(other)]
        known = next((node for node in ends if node is not None), None)
        # A link without a stated bandwidth gets that of its level. Between switches it is
        # unlimited.
        if np.isfinite(data["bandwidth"]):
            data["source"] = "topology"
        elif known is not None:  # a link between switches without a stated bandwidth is unlimited
            level = INTRA_NODE if ends[0] == ends[1] else NODE_LINK
            data["bandwidth"], data["source"] = defaults[nodes[known]][level]
    return [
        _of_pool(
            graph,
            {node: inside[node] for node, owner in nodes.items() if owner == number},
            stated,
        )
        for number, stated in enumerate(defaults)
    ]


def _with_gpus(pool: Pool) -> list[int]:
    """Rows of nodes with GPUs."""
    return np.flatnonzero(pool.node_gpus > 0).tolist()


def _of_pool(
    graph: networkx.Graph[Any],
    inside: Mapping[str, set[Any]],
    stated: Mapping[str, Stated],
) -> Found:
    """Links of a pool from the topology: the slowest rings over an island, a node, a leaf and the
    whole pool.
    """
    # If the document has hosts without their GPUs, the host vertex represents them.
    chips = {
        node: sorted((part for part in parts if _is_gpu(part, node)), key=str) or [node]
        for node, parts in inside.items()
    }
    islands = [_island(graph, parts - {node}, chips[node]) for node, parts in inside.items()]
    # An island counts if every node of the pool has one of at least that size.
    size = min((len(island) for island in islands), default=0)
    size = size if size > 1 else 0
    in_node = [
        _ring(graph.subgraph(inside[node]), chips[node], stated[INTRA_NODE]) for node in inside
    ]
    whole = _narrowest(*in_node) if in_node else stated[INTRA_NODE]
    graphs = [graph.subgraph(parts - {node}) for node, parts in inside.items()]
    island = _narrowest(*map(_ring, graphs, islands, [whole] * len(graphs))) if size else whole

    # Nodes below the same switches are a leaf; several switches with the same nodes (rails) count
    # as one.
    under: dict[Any, set[str]] = {}
    for node, parts in inside.items():
        for switch in neighbours(graph, parts):
            under.setdefault(switch, set()).add(node)
    groups: dict[tuple[str, ...], set[Any]] = {}
    for switch, group in under.items():
        if len(group) > 1:
            groups.setdefault(tuple(sorted(group)), set()).add(switch)
    beyond = _narrowest(whole, stated[NODE_LINK])
    pool_wide = _ring(graph, [chip for node in inside for chip in chips[node]], beyond)
    in_leaf = [
        _ring(
            graph.subgraph(set[Any]().union(switches, *(inside[node] for node in group))),
            [chip for node in group for chip in chips[node]],
            beyond,
        )
        for group, switches in groups.items()
    ]
    leaf = max((len(group) for group in groups), default=1)
    across = _narrowest(whole, pool_wide)
    return (
        (ALONE, island, whole, _narrowest(whole, *in_leaf) if in_leaf else across, across),
        size,
        leaf,
    )


def _is_gpu(vertex: Any, node: str) -> bool:
    head, _, index = str(vertex).rpartition("/")
    return head == node and index.isdecimal()


def _island(graph: networkx.Graph[Any], parts: set[Any], gpus: Sequence[Any]) -> list[Any]:
    """The largest set of a node's GPUs that are connected without the vertex of the node."""
    import networkx

    joined = [
        set(part) & set(gpus) for part in networkx.connected_components(graph.subgraph(parts))
    ]
    return sorted(max(joined, key=len) if joined else (), key=str)


def _ring(graph: networkx.Graph[Any], gpus: Sequence[Any], otherwise: Stated) -> Stated:
    """The rings over some GPUs; ``otherwise`` if they have only one vertex, or the topology lacks
    them.
    """
    present = [gpu for gpu in gpus if gpu in graph]
    if len(present) < len(gpus):
        return Stated(
            0.0, f"nodes that the topology does not have ({str(set(gpus) - set(present))[1:-1]})"
        )
    if len(present) < 2:
        return otherwise
    found = rings(graph, present)
    if found.slowest is None:
        return Stated(0.0, "no path in the topology")
    end, other_end = found.slowest
    return Stated(found.bandwidth, graph[end][other_end].get("source", "links that limit nothing"))
