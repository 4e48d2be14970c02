"""Rings over the topology graph, and the reduction to pools and levels."""

from __future__ import annotations

import itertools
from typing import Any

import networkx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optsched.instance import Instance, topology_graph
from optsched.instance.topology import undirected

# Private names: a model by its class, where the registry knows it by name
from optsched.performance.analytic.hardware import find
from optsched.performance.analytic.links import (
    ACROSS,
    GB,
    ISLAND,
    LEAF,
    ONE_GPU,
    PoolLinks,
    rings,
)

Document = dict[str, Any]


def cluster_of(pools: list[Document], topology: Document | None = None) -> Instance:
    document = {
        "format": "optsched-instance/1",
        "cluster": {"pools": pools, "topology": topology},
        "jobs": [],
    }
    return Instance.from_document(document)


def links_of(instance: Instance, **more: float) -> PoolLinks:
    return PoolLinks.of(
        instance.cluster, [find(pool.gpu) for pool in instance.cluster.pools], **more
    )


def two_leaves(
    nodes: int = 4, gpus: int = 4, nvlink: float | None = 240.0, nic: float | None = 25.0
) -> Document:
    """Nodes with NVLink switches and NICs under two leaf switches and a spine."""
    links: list[Document] = [
        {"source": f"leaf{leaf}", "target": "spine", "bandwidth": 30.0} for leaf in (0, 1)
    ]
    for row in range(nodes):
        node = f"a-{row}"
        links.append({"source": node, "target": f"leaf{row * 2 // nodes}", "bandwidth": nic})
        for gpu in range(gpus):
            links.append(
                {"source": f"{node}/{gpu}", "target": f"{node}/switch", "bandwidth": nvlink}
            )
            links.append({"source": f"{node}/{gpu}", "target": node, "bandwidth": 16.0})
    ids = sorted({link[end] for link in links for end in ("source", "target")})
    return {"nodes": [{"id": name} for name in ids], "links": links}


# --- one placement -------------------------------------------------------------------------------------------------


def test_rings_add_up_over_rails() -> None:
    """Every GPU has its own NIC to its own switch: NCCL makes a ring for each."""
    graph = networkx.Graph()
    for node, gpu in itertools.product("mn", range(4)):
        graph.add_edge(f"{node}/{gpu}", f"{node}/nvswitch", bandwidth=200.0)
        graph.add_edge(f"{node}/{gpu}", f"rail{gpu}", bandwidth=25.0)
    gpus = [f"{node}/{gpu}" for node in "mn" for gpu in range(4)]
    assert rings(undirected(graph), gpus).bandwidth == pytest.approx(100.0)
    assert rings(undirected(graph), gpus[:4]).bandwidth == pytest.approx(200.0)
    assert rings(undirected(graph), ["m/0", "n/0"]).bandwidth == pytest.approx(
        100.0
    )  # through the others' NICs


def test_what_links_do_not_join_has_no_bandwidth() -> None:
    graph = networkx.Graph([("a/0", "a"), ("b/0", "b")], bandwidth=1.0)
    assert rings(undirected(graph), ["a/0", "b/0"]) == (0.0, frozenset(), None)
    assert np.isinf(rings(undirected(graph), ["a/0"]).bandwidth)


def test_parallel_links_and_directions() -> None:
    graph = networkx.MultiDiGraph()
    graph.add_edge("n/0", "n/1", bandwidth=10.0)
    graph.add_edge("n/0", "n/1", bandwidth=5.0)
    graph.add_edge("n/1", "n/0", bandwidth=12.0)
    graph.add_edge("n/0", "n/0", bandwidth=99.0)
    assert rings(undirected(graph), ["n/0", "n/1"]).bandwidth == 12.0


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_the_first_ring_is_the_widest(seed: int) -> None:
    """Against all subsets of links: the widest slowest link that still joins the terminals."""
    rng = np.random.default_rng(seed)
    graph = networkx.gnp_random_graph(6, 0.6, seed=seed % 2**31)
    for one, other in graph.edges():
        graph[one][other]["bandwidth"] = float(rng.integers(1, 9))
    ends = [0, 1, 2]
    best = 0.0
    for level in range(1, 9):
        wide = networkx.Graph([e[:2] for e in graph.edges(data="bandwidth") if e[2] >= level])
        if all(v in wide for v in ends) and all(networkx.has_path(wide, 0, v) for v in ends):
            best = float(level)
    found = rings(undirected(graph), ends)
    assert found.bandwidth >= best
    assert (found.bandwidth == 0) == (best == 0)
    if found.slowest is not None:
        assert graph.edges[tuple(found.slowest)]["bandwidth"] == best
    # never more than what leaves a terminal
    for end in ends:
        assert found.bandwidth <= sum(graph[end][other]["bandwidth"] for other in graph[end]) + 1e-9
    more = graph.copy()
    for one, other in more.edges():
        more[one][other]["bandwidth"] *= 2
    assert rings(undirected(more), ends).bandwidth == pytest.approx(2 * found.bandwidth)


# --- pools and levels ----------------------------------------------------------------------------------------------


def test_what_a_pool_states_wins_over_the_datasheet_and_the_default() -> None:
    instance = cluster_of([
        {"name": "plain", "gpu": "A100-SXM4-40GB", "nodes": 2, "gpus_per_node": 8},
        {"name": "pcie", "gpu": "A100-PCIe-40GB", "nodes": 2, "gpus_per_node": 8},
        {"name": "old", "gpu": "K80", "nodes": 2, "gpus_per_node": 8, "bandwidth": {"node": 1.0}},
        {"name": "own", "gpu": "V100", "nodes": 2, "gpus_per_node": 8,
         "bandwidth": {"intra_node": 50, "node": 20, "leaf": 10}},
    ])  # fmt: skip
    found = links_of(instance)
    assert (found.bandwidth / GB).round(6).tolist() == [
        [np.inf, 240, 240, 12, 12], [np.inf, 24, 24, 12, 12], [np.inf, 12, 12, 1, 1], [np.inf, 50, 50, 20, 10]
    ]  # fmt: skip
    assert found.sources[0][2:4] == (
        "datasheet of A100-SXM4-40GB: NVLink 300 GB/s x 0.8", "default network of 12 GB/s for a node",
    )  # fmt: skip
    assert found.sources[1][2] == "datasheet of A100-PCIe-40GB: PCIe 4.0 x16"
    assert found.sources[2][3] == "bandwidth.node of pool old"
    assert found.sources[3][4] == "bandwidth.leaf of pool own"
    assert (
        (links_of(instance, network_bandwidth=100.0, network_latency=1e-6).bandwidth[0, 3])
        == 100 * GB
    )


def test_levels_of_ways_to_run() -> None:
    instance = cluster_of(
        [{"name": "a", "gpu": "V100", "nodes": 4, "gpus_per_node": 4}], two_leaves()
    )
    found = links_of(instance)
    assert (found.island.tolist(), found.leaf.tolist()) == ([4], [2])
    gpus, nodes = np.array([1, 2, 4, 8, 8, 2]), np.array([1, 1, 1, 2, 4, 2])
    assert found.level(np.zeros(6, np.int64), gpus, nodes).tolist() == [
        ONE_GPU,
        ISLAND,
        ISLAND,
        LEAF,
        ACROSS,
        LEAF,
    ]
    bandwidth, latency = found.ring(np.zeros(6, np.int64), gpus, nodes)
    assert (bandwidth / GB).tolist() == [np.inf, 240, 240, 25, 25, 25]
    near, far = 3.4e-6, 14e-6
    assert latency == pytest.approx(
        [0, near, near, (6 * near + far) / 7, (4 * near + 3 * far) / 7, far]
    )
    assert found.sources[0] == ("nothing to send", "topology", "topology", "topology", "topology")


def test_the_tree_without_a_document_is_the_tree_of_the_graph() -> None:
    """The shortcut for clusters without a topology document says what their graph says."""
    pool = {
        "name": "a",
        "gpu": "V100",
        "nodes": 3,
        "gpus_per_node": 4,
        "bandwidth": {"intra_node": 40, "node": 9},
    }
    plain = cluster_of([pool])
    document = networkx.node_link_data(topology_graph(plain.cluster), edges="links")
    drawn = links_of(cluster_of([pool], document))
    assert drawn.bandwidth.tolist() == links_of(plain).bandwidth.tolist()
    assert (drawn.island.tolist(), drawn.leaf.tolist()) == ([0], [3])


def test_links_that_state_nothing_get_what_the_pool_or_the_datasheet_says() -> None:
    pool: Document = {"name": "a", "gpu": "V100", "nodes": 4, "gpus_per_node": 4}
    found = links_of(cluster_of([pool], two_leaves(nvlink=None, nic=None)))
    assert (found.bandwidth[0] / GB).tolist() == [np.inf, 120, 120, 12, 12]
    assert found.sources[0][1].startswith("datasheet of V100")
    assert found.sources[0][3].startswith("default network")
    found = links_of(cluster_of([pool | {"bandwidth": {"node": 7}}], two_leaves(nic=None)))
    assert found.sources[0][4] == "bandwidth.node of pool a"
    assert found.bandwidth[0, 4] == 7 * GB


def test_nodes_that_the_topology_lacks_or_does_not_join() -> None:
    pool: Document = {"name": "a", "gpu": "V100", "nodes": 5, "gpus_per_node": 4}
    found = links_of(cluster_of([pool], two_leaves()))
    assert found.bandwidth[0, ACROSS] == 0
    assert found.sources[0][ACROSS] == "nodes that the topology does not have ('a-4')"
    apart = two_leaves()
    apart["links"] = [link for link in apart["links"] if link["target"] != "spine"]
    found = links_of(cluster_of([pool | {"nodes": 4}], apart))
    assert found.bandwidth[0].tolist() == [np.inf, 240 * GB, 240 * GB, 25 * GB, 0]
    assert found.sources[0][ACROSS] == "no path in the topology"


def test_hosts_without_gpus_in_the_document() -> None:
    """A document of hosts and switches only leaves the inside of a node to the datasheet."""
    topology = {"nodes": [{"id": "a-0"}, {"id": "a-1"}, {"id": "s"}],
                "links": [{"source": f"a-{row}", "target": "s", "bandwidth": 50.0} for row in (0, 1)]}  # fmt: skip
    found = links_of(
        cluster_of([{"name": "a", "gpu": "V100", "nodes": 2, "gpus_per_node": 4}], topology)
    )
    assert (found.bandwidth[0] / GB).tolist() == [np.inf, 120, 120, 50, 50]
    assert found.island.tolist() == [0]
