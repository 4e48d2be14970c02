"""Rows of resources: names, capacities, and who uses how much."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from compile_cases import compiled, document

from optsched.candidates import Candidates

RATES = {"1": 1.0, "2": 2.0, "4": 4.0}


def table(candidates: Candidates) -> dict[str, tuple[float, bool]]:
    """Capacity and renewable by name."""
    rows = candidates.resources
    assert (
        len(rows) == len(rows.names) == len(rows.capacity) == len(rows.renewable) == len(rows.pool)
    )
    assert candidates.usage.shape == (len(rows), len(candidates.columns))
    assert candidates.usage.dtype == rows.capacity.dtype == np.float64
    return dict(
        zip(
            rows.names,
            zip(rows.capacity.tolist(), rows.renewable.tolist(), strict=True),
            strict=True,
        )
    )


def use(candidates: Candidates, name: str) -> list[float]:
    """Use of a resource by column."""
    row: list[float] = candidates.usage.toarray()[candidates.resources.names.index(name)].tolist()
    return row


def pool(name: str = "a", nodes: Any = 2, **more: Any) -> dict[str, Any]:
    return {"name": name, "nodes": nodes, "gpus_per_node": 4, **more}


def demanding(*, on: str = "a", **demand: float) -> dict[str, Any]:
    return {"workloads": {"w": {"throughput": dict.fromkeys(on, RATES), "demand": demand}}}


def test_every_pool_is_a_row_first_and_in_order() -> None:
    candidates = compiled(document({"b": 3, "a": 0}, [], resources=[{"name": "z", "capacity": 1}]))
    assert table(candidates) == {"b": (3.0, True), "a": (0.0, True), "z": (1.0, True)}
    assert candidates.resources.pool.tolist() == [0, 1, -1]


def test_capacity_counts_usable_nodes_only() -> None:
    nodes = [
        {"name": "up", "gpus": 8, "cpus": 96, "memory": 512},
        {"name": "soon", "available_from": 100},
        {"name": "later", "available_from": 101},
        {"name": "down", "state": "down"},
        {"name": "drain", "state": "drain", "gpus": 100},
        {"name": "reserved", "state": "reserved", "cpus": None},
    ]
    candidates = compiled(
        document(
            [pool(nodes=nodes, cpus_per_node=32, memory_per_node=64)],
            [{"workload": "w"}],
            now=100,
            **demanding(cpu=3, memory=0.5),
        )
    )
    assert table(candidates) == {
        "a": (12.0, True),
        "a.cpu": (128.0, True),
        "a.memory": (576.0, True),
    }
    assert candidates.resources.pool.tolist() == [0, -1, -1]
    assert [use(candidates, name) for name in candidates.resources.names] == [[1.0], [3.0], [0.5]]


def test_a_node_that_does_not_state_its_cpus_makes_them_unlimited() -> None:
    for state, rows in (("up", ["a"]), ("down", ["a", "a.cpu"])):
        nodes = [{"name": "n0", "cpus": 32}, {"name": "n1", "state": state}]
        candidates = compiled(
            document([pool(nodes=nodes)], [{"workload": "w"}], **demanding(cpu=3))
        )
        assert list(table(candidates)) == rows


def test_cpus_are_a_row_only_where_some_column_uses_them() -> None:
    pools = [
        pool(cpus_per_node=8, memory_per_node=8),
        pool("b", cpus_per_node=8, memory_per_node=8),
    ]
    jobs = [{"workload": "w", "throughput": {"b": 1.0}}, {"throughput": {"a": 1.0}}]
    candidates = compiled(document(pools, jobs, **demanding(cpu=3, memory=0)))
    assert list(table(candidates)) == ["a", "b", "b.cpu"]
    free = {"options": [{"pool": "a", "gpus": 1, "throughput": 1.0, "uses": {"cpu": 3}}]}
    no_cpus = compiled(document([pool(cpus_per_node=0)], [free]))
    assert table(no_cpus)["a.cpu"] == (0.0, True)  # none is not the same as unlimited
    none_left = compiled(document([pool(cpus_per_node=0)], [{"workload": "w"}], **demanding(cpu=3)))
    assert list(table(none_left)) == ["a"]  # the only column that needs some can never run


def test_demands_are_per_gpu_and_add_up_in_pairs() -> None:
    workloads = {
        "w": {"throughput": {"a": RATES}, "demand": {"cpu": 3, "nic": 0.5}},
        "v": {"throughput": {"a": RATES}, "demand": {"cpu": 1, "disk": 2}},
    }
    resources = [
        {"name": "nic", "capacity": 4},
        {"name": "disk", "capacity": 9},
        {"name": "unused", "capacity": 1},
    ]
    jobs = [{"workload": "w", "gpus": 2}, {"workload": "v", "gpus": 2}]
    entry = {"workloads": ["w", "v"], "pool": "a", "gpus": 2, "throughput": [1.0, 1.0]}
    candidates = compiled(
        document(
            [pool(cpus_per_node=64)],
            jobs,
            workloads=workloads,
            resources=resources,
            colocation=[entry],
        )
    )
    assert candidates.columns.partner.tolist() == [-1, 1, -1]
    assert use(candidates, "a") == [2, 2, 2]
    assert use(candidates, "a.cpu") == [6, 8, 2]
    assert use(candidates, "nic") == [1, 1, 0]
    assert use(candidates, "disk") == [0, 4, 4]
    assert use(candidates, "unused") == [0, 0, 0]


def test_demand_counts_for_jobs_that_bring_their_own_rates() -> None:
    jobs = [{"workload": "w", "gpus": 2, "throughput": {"a": 5.0}}]
    candidates = compiled(document([pool(cpus_per_node=64)], jobs, **demanding(cpu=3)))
    assert use(candidates, "a.cpu") == [6]


def test_an_option_uses_its_totals_and_nothing_of_its_workload() -> None:
    option = {
        "pool": "a",
        "gpus": 2,
        "share": 0.5,
        "throughput": 1.0,
        "uses": {"cpu": 8, "budget": 0.25, "nic": 0},
    }
    jobs = [{"workload": "w", "options": [option, {"duration": 5.0, "uses": {"budget": 2}}]}]
    resources = [
        {"name": "budget", "kind": "consumable", "capacity": 100},
        {"name": "nic", "capacity": 1},
    ]
    candidates = compiled(
        document([pool(cpus_per_node=64)], jobs, resources=resources, **demanding(cpu=3, nic=7))
    )
    assert table(candidates) == {
        "a": (8.0, True), "a.cpu": (128.0, True), "budget": (100.0, False), "nic": (1.0, True)
    }  # fmt: skip
    assert candidates.columns.pool.tolist() == [-1, 0]
    assert use(candidates, "a") == [0, 1]
    assert use(candidates, "a.cpu") == [0, 8]
    assert use(candidates, "budget") == [2, 0.25]
    assert use(candidates, "nic") == [0, 0]


def test_jobs_that_share_a_list_of_options_use_the_same() -> None:
    options = [
        {"uses": {"budget": 2}, "throughput": 1.0},
        {"uses": {"budget": 3}, "throughput": 1.0},
    ]
    jobs = [{"options": options, "workload": name} for name in ("x", "y", "x")]
    resources = [{"name": "budget", "kind": "consumable", "capacity": 100}]
    candidates = compiled(document({"a": 1}, jobs, resources=resources))
    assert len(candidates.kinds) == 2
    assert use(candidates, "budget") == [2, 3, 2, 3]


@pytest.mark.parametrize(("where", "expected"), [(None, [2, 2]), ("a", [2, 0]), ("b", [0, 2])])
def test_a_resource_of_a_pool_is_used_by_jobs_there(
    where: str | None, expected: list[float]
) -> None:
    resource = {"name": "nic", "capacity": 4} | ({} if where is None else {"pool": where})
    jobs = [{"workload": "w", "gpus": 2}]
    candidates = compiled(
        document([pool(), pool("b")], jobs, resources=[resource], **demanding(on="ab", nic=1))
    )
    assert table(candidates)["nic"] == (4.0, True)
    assert use(candidates, "nic") == expected


def test_an_option_without_a_pool_may_use_a_resource_of_a_pool() -> None:
    resource = {"name": "licence", "capacity": 1, "pool": "a"}
    jobs = [{"options": [{"uses": {"licence": 0.75}, "duration": 5.0}]}]
    candidates = compiled(document([pool()], jobs, resources=[resource]))
    assert use(candidates, "licence") == [0.75]


def test_cpus_of_an_option_without_gpus() -> None:
    jobs = [{"options": [{"pool": "a", "gpus": 0, "throughput": 1.0, "uses": {"cpu": 4}}]}]
    candidates = compiled(document([pool(cpus_per_node=8)], jobs))
    assert use(candidates, "a") == [0]
    assert use(candidates, "a.cpu") == [4]
    assert candidates.configurations.nodes.tolist() == [0]


def test_a_named_resource_that_is_huge_or_zero_stays_finite() -> None:
    resources = [{"name": "big", "capacity": 1e100}, {"name": "none", "capacity": 0}]
    candidates = compiled(document({"a": 1}, [], resources=resources))
    assert table(candidates)["big"] == (1e100, True)
    assert table(candidates)["none"] == (0.0, True)


def test_many_resources_by_many_options() -> None:
    """One column per option and its own resource: a matrix of this size must stay sparse."""
    bins = 400
    resources = [{"name": f"bin{row}", "capacity": row + 1} for row in range(bins)]
    jobs = [
        {
            "options": [
                {"uses": {f"bin{row}": job + row / 1000}, "value": row} for row in range(bins)
            ]
        }
        for job in range(1, 11)
    ]
    candidates = compiled(document({"a": 1}, jobs, resources=resources))
    assert candidates.usage.nnz == 10 * bins
    x = np.ones(len(candidates.columns))
    np.testing.assert_allclose(
        (candidates.usage @ x)[1:], [55 + row / 100 for row in range(bins)], rtol=1e-12
    )
