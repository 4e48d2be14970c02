"""Gangs in pools of unequal nodes, and the derived columns of the configurations table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from documents import instance_document
from hypothesis import given, settings
from hypothesis import strategies as st

from optsched.instance import Instance

# Private names: a model by its class, where the registry knows it by name
from optsched.instance.documents import NODE_STATES
from optsched.performance import Configurations

NODE = st.tuples(
    st.integers(0, 9), st.sampled_from(NODE_STATES[:2]), st.sampled_from([None, 99.0, 100.0, 101.0])
)


def instance_of(*pools: Any, now: float = 100.0) -> Instance:
    return Instance.from_document(instance_document(list(pools), now=now))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(NODE, max_size=5), min_size=1, max_size=4))
def test_sizes_of_random_pools(pools: list[list[tuple[int, str, float | None]]]) -> None:
    documents = [
        {
            "name": f"p{row}",
            "nodes": [
                {"name": f"n{row}.{number}", "gpus": gpus, "state": state, "available_from": start}
                for number, (gpus, state, start) in enumerate(nodes)
            ],
            "gpus_per_node": 1,
        }
        for row, nodes in enumerate(pools)
    ]
    sizes = instance_of(*documents).pool_sizes
    usable = [
        sorted(
            (
                gpus
                for gpus, state, start in nodes
                if gpus and state == "up" and (start or 0) <= 100
            ),
            reverse=True,
        )
        for nodes in pools
    ]
    assert sizes.gpus.tolist() == [sum(nodes) for nodes in usable]
    assert sizes.nodes.tolist() == [len(nodes) for nodes in usable]
    assert (np.diff(sizes.reach) > 0).all()
    for row, nodes in enumerate(usable):
        counts = np.arange(sum(nodes) + 2)
        expected = [
            next((n for n in range(len(nodes) + 1) if sum(nodes[:n]) >= k), len(nodes) + 1)
            for k in counts
        ]
        assert sizes.fewest_nodes(np.full(len(counts), row), counts).tolist() == expected
        spans = np.arange(len(nodes) + 3)
        assert sizes.most_gpus(np.full(len(spans), row), spans).tolist() == [
            sum(nodes[:n]) for n in spans
        ]


def test_no_pool_and_gangs_that_fit_nowhere() -> None:
    sizes = instance_of(
        {"name": "a", "nodes": 3, "gpus_per_node": 8},
        {"name": "b", "nodes": 0, "gpus_per_node": 8},
        {"name": "c", "nodes": 1, "gpus_per_node": 1},
    ).pool_sizes
    pool = np.array([0, 1, 2, 0, 1, 2, -1, -1])
    gpus = np.array([25, 1, 2, 2**31, 2**31, 2**31, 0, 5])
    assert sizes.fewest_nodes(pool, gpus).tolist() == [4, 1, 2, 4, 1, 2, 0, 0]


def test_a_million_nodes_given_as_a_count() -> None:
    pools = ({"name": name, "nodes": 10**6, "gpus_per_node": 8} for name in "ab")
    sizes = instance_of(*pools).pool_sizes
    assert sizes.gpus.tolist() == [8 * 10**6] * 2
    assert sizes.nodes.tolist() == [10**6] * 2
    gpus = np.array([1, 8, 9, 8 * 10**6, 8 * 10**6 + 1])
    assert sizes.fewest_nodes(np.ones(5, np.int64), gpus).tolist() == [1, 1, 2, 10**6, 10**6 + 1]


# --- configurations ------------------------------------------------------------------------------------------------


def table(rows: list[tuple[int, int, int, float]]) -> Configurations:
    pool, gpus, nodes, share = (np.array(column) for column in zip(*rows, strict=True))
    return Configurations(pool, gpus, nodes, share.astype(float), np.zeros(len(rows), np.int64))


def test_the_fullest_node_and_the_level_of_links() -> None:
    rows = [
        (0, 1, 1, 1),
        (0, 4, 1, 1),
        (0, 4, 2, 1),
        (0, 5, 2, 1),
        (0, 7, 7, 1),
        (-1, 0, 0, 1),
        (0, 0, 0, 1),
    ]
    found = table(rows)  # type: ignore[arg-type]
    assert len(found) == 7
    assert found.max_per_node.tolist() == [1, 4, 2, 3, 1, 0, 0]


def test_prices_and_power_are_per_gpu_and_share() -> None:
    cluster = instance_of(
        {
            "name": "a",
            "nodes": 2,
            "gpus_per_node": 4,
            "cost_per_gpu_hour": 2.5,
            "watts_per_gpu": 300,
        },
        {"name": "b", "nodes": 2, "gpus_per_node": 4},
        {"name": "c", "nodes": 2, "gpus_per_node": 4, "cost_per_gpu_hour": 0.0},
    ).cluster
    found = table([(0, 4, 1, 1.0), (0, 1, 1, 0.5), (1, 4, 1, 1.0), (2, 4, 1, 1.0), (-1, 0, 0, 1.0)])
    np.testing.assert_array_equal(found.cost_per_hour(cluster), [10.0, 1.25, np.nan, 0.0, 0.0])
    np.testing.assert_array_equal(found.watts(cluster), [1200.0, 150.0, np.nan, np.nan, 0.0])


def test_a_table_is_frozen() -> None:
    with pytest.raises(AttributeError):
        table([(0, 1, 1, 1.0)]).gpus = np.array([2])  # type: ignore[misc]
