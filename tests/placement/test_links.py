"""Bottleneck bandwidths are those of the topology graph, by brute force over thresholds."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from placement_cases import bottleneck, instance_of, job, pool_of, random_topology

from optsched import Instance
from optsched.instance import topology_graph

# Private names: single searches and bounds, without the choice among them
from optsched.placement.problem import Links, Nodes


def compare(instance: Instance) -> None:
    """Every set of nodes of every pool, against the graph."""
    for number, pool in enumerate(instance.cluster.pools):
        nodes = Nodes.of(instance, [number])
        links = Links.of(nodes)
        graph = topology_graph(instance.cluster)
        stated = [data["bandwidth"] for _, _, data in graph.edges(data=True) if "bandwidth" in data]
        if instance.cluster.topology is None:
            stated = [width for level, width in pool.bandwidth.items() if level != "leaf"]
        for size in range(1, len(nodes) + 1):
            for chosen in itertools.combinations(range(len(nodes)), size):
                gpus = [f"{nodes.name(n)}/{i}" for n in chosen for i in range(int(nodes.gpus[n]))]
                if len(gpus) == 1:
                    continue  # no gang has a bottleneck there
                expected = min(
                    bottleneck(graph, gpus, max(stated, default=0.0)), max(stated, default=0.0)
                )
                assert links.bottleneck(np.array(chosen)) == expected, (pool.name, chosen)


@pytest.mark.parametrize(
    "bandwidth",
    [
        None, {"node": 12.5}, {"intra_node": 300}, {"intra_node": 300, "node": 25, "leaf": 100},
        {"intra_node": 10, "node": 25}, {"leaf": 5},
    ],
)  # fmt: skip
def test_the_default_tree(bandwidth: dict[str, float] | None) -> None:
    other = pool_of(2, 2, name="q", bandwidth={"intra_node": 7, "node": 3})
    compare(instance_of([job("a")], [pool_of(2, 1, 3, bandwidth=bandwidth), other]))


@pytest.mark.parametrize("seed", range(12))
def test_random_topologies(seed: int) -> None:
    nodes = [{"name": f"n{i}", "gpus": 2} for i in range(4)]
    spots = [f"{node['name']}/{i}" for node in nodes for i in range(2)]
    topology = random_topology(np.random.default_rng(seed), nodes, spots)
    compare(instance_of([job("a")], [{"name": "p", "nodes": nodes}], topology=topology))


def line(**more: Any) -> dict[str, Any]:
    links = [
        {"source": "pa", "target": "pb", "bandwidth": 4.0},
        {"source": "pb", "target": "pc", "bandwidth": 2.0},
    ]
    return {"nodes": [{"id": name} for name in ("pa", "pb", "pc")], "links": links, **more}


def widths(topology: dict[str, Any]) -> list[float]:
    links = Links.of(Nodes.of(instance_of([job("a")], [pool_of(1, 1, 1)], topology=topology), [0]))
    return [links.bottleneck(np.array(pair)) for pair in ((0, 1), (1, 2), (0, 2), (0, 1, 2))]


def test_nodes_without_their_gpus_in_the_document() -> None:
    assert widths(line()) == [4.0, 2.0, 2.0, 2.0]


def test_what_a_document_does_not_join_has_no_bandwidth() -> None:
    topology = line()
    topology["links"].pop()
    assert widths(topology) == [4.0, 0.0, 0.0, 0.0]
    topology["nodes"].pop()
    assert widths(topology) == [4.0, 0.0, 0.0, 0.0]


def test_parallel_links_add_up() -> None:
    topology = line(multigraph=True)
    topology["links"].append({"source": "pc", "target": "pb", "bandwidth": 3.0, "key": 1})
    assert widths(topology) == [4.0, 5.0, 4.0, 4.0]


def test_arcs_count_where_they_go_both_ways() -> None:
    topology = line(directed=True)
    assert widths(topology) == [0.0, 0.0, 0.0, 0.0]
    topology["links"] += [{"source": "pb", "target": "pa", "bandwidth": 1.0}]
    assert widths(topology) == [1.0, 0.0, 0.0, 0.0]


def test_a_link_without_a_bandwidth_limits_nothing() -> None:
    topology = line()
    del topology["links"][0]["bandwidth"]
    assert widths(topology) == [2.0, 2.0, 2.0, 2.0]
    del topology["links"][1]["bandwidth"]
    assert widths(topology) == [0.0, 0.0, 0.0, 0.0]
