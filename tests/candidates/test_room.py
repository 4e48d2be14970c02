"""Columns whose nodes lack CPUs or memory, or that need more of a resource than there is, never run and are dropped."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from compile_cases import columns_of, compiled, document, dropped_of
from test_candidate_scale import lines

import optsched
from optsched.candidates import Candidates, Drop, JobRows
from optsched.placement import place_rows
from optsched.registry import load_solver
from optsched.solving import Engine

FOUR = {"name": "a", "nodes": 2, "gpus_per_node": 4, "cpus_per_node": 8, "memory_per_node": 64}


def one(
    demand: dict[str, float], gpus: Any = 1, pool: dict[str, Any] | None = None, **more: Any
) -> Candidates:
    """One job that runs on 1, 2, 4 GPUs on one node, and on 4 and 8 on two."""
    rates = {"1": 1.0, "2": 2.0, "4": {"1": 4.0, "2": 3.5}, "8": {"2": 7.0}}
    workloads = {"w": {"throughput": {"a": rates}, "demand": demand}}
    return compiled(
        document(
            [FOUR | (pool or {})], [{"workload": "w", "gpus": gpus}], workloads=workloads, **more
        )
    )


def ways(candidates: Candidates) -> list[tuple[int, int]]:
    """(GPUs, nodes) of the columns."""
    return [(column.gpus, column.nodes) for column in columns_of(candidates)]


def told(candidates: Candidates) -> list[str]:
    return [reason for _, reason in candidates.unplaced()]


# --- fairness ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("demand", "reason"),
    [
        ({"cpu": 6}, "needs 6 CPUs per GPU, but no node has more than 4"),
        ({"memory": 33}, "needs 33 GB of memory per GPU, but no node has more than 32"),
    ],
)
@pytest.mark.parametrize("name", ["fifo", "water-filling", "max-min-fairness"])
def test_a_job_that_no_node_can_host_takes_nothing_from_others(
    name: str, demand: dict[str, float], reason: str
) -> None:
    pool = {"name": "a", "nodes": 1, "gpus_per_node": 4, "cpus_per_node": 4, "memory_per_node": 32}
    workloads = {
        "hungry": {"throughput": {"a": 1.0}, "demand": demand},
        "small": {"throughput": {"a": 1.0}, "demand": {"cpu": 1}},
    }
    jobs = [
        {"id": "j", "workload": "hungry", "steps": 100, "arrival": 0},
        *({"id": f"k{row}", "workload": "small", "steps": 100} for row in range(3)),
    ]
    made = document([pool], jobs, workloads=workloads)
    solution = optsched.solve(optsched.Instance.from_document(made), name)
    assert solution.ok
    assert solution.unplaced == (("j", f"can run nowhere: a: {reason}"),)
    assert dict(solution.throughput) == pytest.approx({f"k{row}": 1.0 for row in range(3)})
    assert optsched.realise(solution).rounds.scale == 1
    assert optsched.verify(solution.instance, solution.to_document()).ok
    explained = optsched.explain_job(solution, "j")
    assert explained.unplaced == f"can run nowhere: a: {reason}"


# --- the rule ------------------------------------------------------------------------------------------------------


def test_a_gang_keeps_the_spreads_on_which_nodes_host_it() -> None:
    every = {"min": 1, "max": 8}
    assert ways(one({"cpu": 2}, every)) == [(1, 1), (2, 1), (4, 1), (4, 2), (8, 2)]
    assert ways(one({"cpu": 3}, every)) == [(1, 1), (2, 1), (4, 2)]  # a node hosts 2
    assert ways(one({"cpu": 4.5}, every)) == [(1, 1)]
    assert ways(one({"memory": 16}, every)) == [(1, 1), (2, 1), (4, 1), (4, 2), (8, 2)]
    assert ways(one({"memory": 16.1}, every)) == [(1, 1), (2, 1), (4, 2)]
    assert ways(one({"cpu": 2, "memory": 25}, every)) == [(1, 1), (2, 1), (4, 2)]
    assert ways(one({"cpu": 8.1}, every)) == []


def test_what_is_not_stated_does_not_limit() -> None:
    nodes = [{"name": "x", "cpus": 1}, {"name": "y", "cpus": None}]
    pool = {"nodes": nodes, "cpus_per_node": None}
    assert ways(one({"cpu": 1e100}, {"min": 1, "max": 4}, pool)) == [(1, 1), (2, 1), (4, 1), (4, 2)]
    assert ways(one({"cpu": 1e100}, 8, pool)) == []


def test_rounding_is_no_reason() -> None:
    """3 * 0.1 > 0.3 in floating point, and 0.7 / 0.1 < 7."""
    for cpus, demand, most in ((0.3, 0.1, 3), (0.7, 0.1, 7), (4.2, 1.4, 3)):
        pool = {"nodes": 1, "gpus_per_node": 9, "cpus_per_node": cpus}
        rates = {str(gpus): 1.0 for gpus in range(1, 10)}
        workloads = {"w": {"throughput": {"a": rates}, "demand": {"cpu": demand}}}
        jobs = [{"workload": "w", "gpus": {"min": 1, "max": 9}}]
        candidates = compiled(document([FOUR | pool], jobs, workloads=workloads))
        assert max(gpus for gpus, _ in ways(candidates)) == most
        assert (
            np.asarray(candidates.usage.max(axis=1).todense()).ravel()
            <= candidates.resources.capacity + 1e-9
        ).all()


def test_both_jobs_of_a_pair_bring_their_needs() -> None:
    workloads = {
        name: {"throughput": {"a": {"4": 1.0}}, "demand": {"cpu": cpu}}
        for name, cpu in (("v", 1), ("w", 1.5))
    }
    entry = {"workloads": ["v", "w"], "pool": "a", "gpus": 4, "throughput": [1.0, 1.0]}
    jobs = [{"workload": "v", "gpus": 4}, {"workload": "w", "gpus": 4}]
    candidates = compiled(document([FOUR], jobs, workloads=workloads, colocation=[entry]))
    assert [(row.jobs, row.reason) for row in dropped_of(candidates)] == [
        (("j0", "j1"), Drop.NO_ROOM)
    ]
    assert len(columns_of(candidates)) == 2


def test_options_state_totals_that_nodes_may_split() -> None:
    option = {"pool": "a", "gpus": 1, "throughput": 1.0, "uses": {"cpu": 12, "licence": 3}}
    resources = [{"name": "licence", "capacity": 2}]
    candidates = compiled(document([FOUR], [{"options": [option]}], resources=resources))
    assert ways(candidates) == [(1, 1)]


def test_renewable_resources_hold_a_column_as_a_whole() -> None:
    for kind, pool, dropped in (
        ("renewable", None, True), ("renewable", "a", True), ("renewable", "b", False), ("consumable", None, False)
    ):  # fmt: skip
        resources = [{"name": "power", "capacity": 700, "kind": "renewable"}]
        resources[0] |= {"kind": kind} | ({} if pool is None else {"pool": pool})
        demand = {} if kind == "consumable" else {"power": 350.5}
        workloads = {"w": {"throughput": {"a": {"2": 1.0}}, "demand": demand}}
        pools = [FOUR, FOUR | {"name": "b"}]
        candidates = compiled(
            document(
                pools, [{"workload": "w", "gpus": 2}], workloads=workloads, resources=resources
            )
        )
        assert bool(told(candidates)) == dropped
        if dropped:
            assert "needs 701 of power, which has 700" in told(candidates)[0]


def test_a_resource_of_some_nodes_leaves_the_others() -> None:
    nodes = [{"name": "x", "gpus": 4}, {"name": "y", "gpus": 4}]
    resources = [{"name": "rack", "capacity": 1, "nodes": ["x"]}]
    workloads = {"w": {"throughput": {"a": {"2": 1.0}}, "demand": {"rack": 1}}}
    made = document(
        [{"name": "a", "nodes": nodes}],
        [{"workload": "w", "gpus": 2}],
        workloads=workloads,
        resources=resources,
    )
    assert ways(compiled(made)) == [(2, 1)]


def test_nodes_that_come_later_host_what_is_planned() -> None:
    nodes = [{"name": "now", "cpus": 4}, {"name": "later", "cpus": 40, "available_from": 50}]
    workloads = {"w": {"throughput": {"a": 1.0}, "demand": {"cpu": 6}}}
    made = document(
        [FOUR | {"nodes": nodes}], [{"workload": "w", "steps": 10}], workloads=workloads
    )
    instance = optsched.Instance.from_document(made)
    assert told(optsched.compile(instance)) == [
        "can run nowhere: a: needs 6 CPUs per GPU, but no node has more than 4"
    ]
    assert ways(optsched.compile(instance, later_nodes=True)) == [(1, 1)]
    workloads["w"]["demand"] = {"cpu": 41}
    hungrier = optsched.Instance.from_document(made)
    assert "no node has more than 40" in told(optsched.compile(hungrier, later_nodes=True))[0]


# --- words ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("demand", "gpus", "reason"),
    [
        ({"cpu": 12}, 1, "needs 12 CPUs per GPU, but no node has more than 8"),
        ({"memory": 100, "cpu": 1}, 2, "needs 100 GB of memory per GPU, but no node has more than 64"),
        ({"cpu": 5}, 2, "needs 5 CPUs per GPU, with which 1 node can host only 1 of 2 GPUs"),
        ({"cpu": 3}, 8, "needs 3 CPUs per GPU, with which 2 nodes can host only 4 of 8 GPUs"),
        (
            {"cpu": 1, "memory": 40}, 2,
            "needs 1 CPU and 40 GB of memory per GPU, with which 1 node can host only 1 of 2 GPUs",
        ),
    ],
)  # fmt: skip
def test_the_reason_is_told_in_words(demand: dict[str, float], gpus: int, reason: str) -> None:
    assert told(one(demand, gpus)) == [f"can run nowhere: a: {reason}"]


def test_nodes_that_have_either_but_not_both() -> None:
    pool = {
        "nodes": [{"name": "x", "cpus": 9, "memory": 1}, {"name": "y", "cpus": 1, "memory": 90}]
    }
    assert told(one({"cpu": 9, "memory": 90}, 1, pool)) == [
        "can run nowhere: a: needs 9 CPUs and 90 GB of memory per GPU, with which 1 node can host none of 1 GPU"
    ]


def test_validate_counts_what_has_no_room() -> None:
    from optsched.cli.validate import summary

    made = one(
        {"cpu": 3, "power": 2}, {"min": 1, "max": 8}, resources=[{"name": "power", "capacity": 6}]
    )
    assert summary(made)["dropped"] == {
        "nodes lack CPUs or memory": 2,
        "a resource is too small": 1,
    }


# --- what is put back ----------------------------------------------------------------------------------------------


def test_columns_without_a_rate_come_back_only_where_there_is_room() -> None:
    """Formulations that look at no rates admit columns without one; these must be able to run all the same."""
    workloads = {"w": {"throughput": {"a": 1.0}, "demand": {"cpu": 6}}}
    pools = [FOUR, FOUR | {"name": "b"}, FOUR | {"name": "c", "cpus_per_node": 5}]
    candidates = compiled(document(pools, [{"workload": "w"}], workloads=workloads))
    admitted = candidates.admitting(Drop.ZERO_RATE, Drop.NO_RATE)
    assert [column.pool for column in columns_of(admitted)] == ["a", "b"]
    assert [(row.pool, row.reason) for row in dropped_of(admitted)] == [("c", Drop.NO_ROOM)]
    assert [column.pool for column in columns_of(admitted.admitting(Drop.NO_ROOM))] == [
        "a",
        "b",
        "c",
    ]


# --- placement keeps the same rule ---------------------------------------------------------------------------------


def random_pool(rng: random.Random, name: str) -> dict[str, Any]:
    nodes = []
    for row in range(rng.randint(1, 4)):
        node: dict[str, Any] = {"name": f"{name}{row}", "gpus": rng.randint(1, 4)}
        node |= {
            key: rng.choice([0, 1, 2.1, 4, 7, 12])
            for key in ("cpus", "memory")
            if rng.random() < 0.8
        }
        if rng.random() < 0.1:
            node["state"] = "down"
        nodes.append(node)
    return {"name": name, "nodes": nodes}


def random_case(seed: int) -> Candidates:
    rng = random.Random(seed)
    pools = [random_pool(rng, name) for name in "ab"]
    workloads = {}
    for row in range(6):
        rates = {
            str(gpus): {str(nodes): 1.0 for nodes in range(1, min(gpus, 4) + 1)}
            for gpus in rng.sample(range(1, 9), 4)
        }
        demand = {
            name: rng.choice([0.5, 0.7, 1, 2, 3.5])
            for name in ("cpu", "memory")
            if rng.random() < 0.7
        }
        workloads[f"w{row}"] = {"throughput": {"a": rates, "b": rates}, "demand": demand}
    jobs = [{"workload": name, "gpus": {"min": 1, "max": 8}} for name in workloads]
    entries = [
        {"workloads": [f"w{row}", f"w{row + 1}"], "pool": pool, "gpus": gpus, "throughput": [1.0, 1.0]}
        for row in range(5) for pool in "ab" for gpus in (1, 3)
    ]  # fmt: skip
    return compiled(document(pools, jobs, workloads=workloads, colocation=entries))


@pytest.mark.parametrize("seed", range(12))
def test_exact_placement_takes_every_column_alone_and_none_of_the_dropped_ones(seed: int) -> None:
    candidates = random_case(seed)
    admitted = candidates.admitting(Drop.NO_ROOM)
    C = admitted.per_job().classes(frozenset())
    kept = {
        (column.jobs, column.pool, column.gpus, column.nodes) for column in columns_of(candidates)
    }
    engine = Engine(load_solver)
    job = C.first[C.class_a]
    partner = np.where(C.class_b >= 0, C.first[C.class_b], -1)
    for column, way in enumerate(columns_of(admitted)):
        row = JobRows(job[[column]], partner[[column]], np.array([column]), *np.ones((3, 1)))
        placement = place_rows(C, row, np.arange(1), engine, columns=10**6)
        assert len(placement.refused) == ((way.jobs, way.pool, way.gpus, way.nodes) not in kept), (
            way
        )
    assert 0 < len(candidates.columns) < len(admitted.columns)


# --- speed ---------------------------------------------------------------------------------------------------------


def distinct_workloads(count: int, sizes: int, scarce: bool) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    pools = [
        {"name": name, "nodes": [
            {"name": f"{name}{row}", "gpus": 8, "cpus": float(40 + row % sizes), "memory": 400.0} for row in range(500)
        ]}
        for name in "abcd"
    ]  # fmt: skip
    cpus = rng.uniform(3, 20 if scarce else 4.9, count).tolist()
    workloads = {
        f"w{row}": {"throughput": dict.fromkeys("abcd", 1.0), "demand": {"cpu": cpu}}
        for row, cpu in enumerate(cpus)
    }
    return document(pools, [{"workload": name} for name in workloads], workloads=workloads)


@pytest.mark.parametrize(("sizes", "scarce"), [(1, False), (40, True)])
def test_ten_thousand_demands_are_not_looked_at_one_by_one(sizes: int, scarce: bool) -> None:
    instance = optsched.Instance.from_document(distinct_workloads(10_000, sizes, scarce))
    made: list[Candidates] = []
    run = lines(lambda: made.append(optsched.compile(instance)))
    assert len(made[0].columns) == 40_000
    assert sum(count for file, count in run.items() if file.endswith("candidates/room.py")) < 500
