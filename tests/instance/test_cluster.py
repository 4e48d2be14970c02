"""Pools, their nodes and the topology graph."""

from __future__ import annotations

from typing import Any

import networkx
import numpy as np
import pytest

from optsched.instance import Instance, topology_graph

Document = dict[str, Any]


def test_usable_nodes_depend_on_state_and_time(everything: Document) -> None:
    everything["cluster"]["pools"][0]["nodes"] += [
        {"name": "late", "gpus": 3, "available_from": 2000},
        {"name": "down", "state": "down"},
        {"name": "kept", "state": "reserved"},
    ]
    pool = Instance.from_document(everything).cluster.pools[0]
    assert pool.usable(1000).tolist() == [True, False, False, False, False]
    assert [pool.capacity(now) for now in (499, 500, 1999, 2000)] == [0, 8, 8, 11]
    assert pool.reach(2000).tolist() == [0, 8, 11]
    assert pool.reach(0).tolist() == [0]


def test_nodes_take_what_they_leave_out_from_the_pool(everything: Document) -> None:
    v100, a100 = Instance.from_document(everything).cluster.pools
    assert v100.node_gpus.tolist() == [8, 4]
    assert v100.node_cpus.tolist() == [96, 32]
    assert v100.node_memory.tolist() == [512, 128]
    assert v100.node_available_from.tolist() == [500, -np.inf]
    assert a100.node_gpus.tolist() == [2, 2]
    assert v100.node_gpus.dtype == np.int64


def test_partitions(everything: Document) -> None:
    (partition,) = Instance.from_document(everything).cluster.pools[1].partitions
    assert (partition.profile, partition.compute_slices, partition.memory_slices) == (
        "1g.5gb",
        1,
        1,
    )
    assert (partition.starts, partition.memory) == ((0, 1, 2), 5.0)


def test_largest_pools(two_types: Document) -> None:
    two_types["cluster"]["pools"][1] = {"name": "k80", "nodes": 10**6, "gpus_per_node": 99}
    assert Instance.from_document(two_types).cluster.gpus(0).tolist() == [8, 99 * 10**6]


def test_names_close_to_generated_ones_are_free(two_types: Document) -> None:
    names = ["v100-2", "v100-01", "v100--1", "v100-", "v100", "k80-0", "v100-0/0"]
    two_types["cluster"]["pools"][1]["nodes"] = [{"name": name} for name in names]
    assert Instance.from_document(two_types).cluster.pools[1].node_names == tuple(names)


def test_gpus_of_a_node_with_a_slash_in_its_name(two_types: Document) -> None:
    two_types["cluster"]["pools"][1]["nodes"] = [{"name": "rack/1", "gpus": 2}]
    two_types["jobs"][0]["running"] = {"pool": "k80", "gpus": ["rack/1/1", "rack/1/0"], "since": -5}
    assert Instance.from_document(two_types).jobs_table.running == {
        0: (1, ("rack/1/1", "rack/1/0"), -5.0)
    }


def test_default_topology_is_a_tree(two_types: Document) -> None:
    graph = topology_graph(Instance.from_document(two_types).cluster)
    assert networkx.is_tree(graph)
    assert len(graph) == 1 + 2 + 3 + 12
    assert networkx.shortest_path(graph, "v100-0/3", "k80-0/0") == [
        *("v100-0/3", "v100-0", "leaf/v100", "spine", "leaf/k80", "k80-0", "k80-0/0")
    ]
    assert graph.edges["v100-0/3", "v100-0"] == {"bandwidth": 150}
    assert graph.edges["v100-0", "leaf/v100"] == {"bandwidth": 12.5}
    assert graph.edges["leaf/v100", "spine"] == {"bandwidth": 100}
    assert graph.edges["k80-0", "leaf/k80"] == {}
    assert graph.nodes["v100-1"] == {"kind": "node", "pool": "v100", "gpus": 4}


@pytest.mark.parametrize("edges", ["links", "edges"])
def test_topology_of_the_document(everything: Document, edges: str) -> None:
    topology = everything["cluster"]["topology"]
    topology[edges] = topology.pop("links")
    graph = topology_graph(Instance.from_document(everything).cluster)
    assert dict(graph.edges["big", "switch"]) == {"bandwidth": 12.5}
    assert graph.graph == {"site": "north"}
    assert not graph.is_directed()


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("multigraph", [False, True])
def test_what_networkx_writes_is_read(
    two_types: Document, directed: bool, multigraph: bool
) -> None:
    kinds: dict[tuple[bool, bool], Any] = {
        (False, False): networkx.Graph,
        (False, True): networkx.MultiGraph,
        (True, False): networkx.DiGraph,
        (True, True): networkx.MultiDiGraph,
    }
    graph = kinds[directed, multigraph]()
    graph.add_edge("v100-0", 5, bandwidth=12.5)
    graph.add_edge(5, "v100-0", bandwidth=25)
    two_types["cluster"]["topology"] = networkx.node_link_data(graph, edges="links")
    read = topology_graph(Instance.from_document(two_types).cluster)
    assert type(read) is type(graph)
    assert sorted(map(str, read.edges(data=True))) == sorted(map(str, graph.edges(data=True)))
