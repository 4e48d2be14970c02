"""Jobs that cannot be preempted run on, all the time, in the pool and on as many GPUs as they do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from documents import instance_document

import optsched
from optsched import Instance


def instance_of(jobs: list[dict[str, Any]], nodes: int = 2) -> Instance:
    pools = [
        {"name": name, "nodes": nodes, "gpus_per_node": 2, "cost_per_gpu_hour": 1.0}
        for name in ("fast", "slow")
    ]
    document = instance_document(pools, jobs)
    return Instance.from_document(document)


def job(name: str, gpus: int = 1, **more: Any) -> dict[str, Any]:
    return {
        "id": name,
        "gpus": gpus,
        "steps": 1e5,
        "throughput": {"fast": 4.0 * gpus, "slow": 1.0 * gpus},
        **more,
    }


def held(*gpus: str) -> dict[str, Any]:
    return {"running": {"pool": gpus[0].split("-")[0], "gpus": list(gpus)}, "preemptible": False}


def share_of(solution: Any, name: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for row in solution.allocation.to_records():
        if row.get("job") == name:
            found[row["pool"]] = found.get(row["pool"], 0.0) + row["fraction"]
    return found


@pytest.mark.parametrize(
    "name",
    ["max-min-fairness", "max-throughput", "makespan", "water-filling", "proportional-fairness"],
)
def test_it_runs_on_whatever_the_objective_would_rather_do(name: str) -> None:
    jobs = [job("held", 2, **held("slow-0/0", "slow-0/1")), *(job(f"j{i}") for i in range(6))]
    solution = optsched.solve(instance_of(jobs), name, constraints=["uninterrupted"])
    assert solution.ok and solution.status == "optimal"
    assert share_of(solution, "held") == pytest.approx({"slow": 1.0}, abs=1e-6)
    assert share_of(optsched.solve(instance_of(jobs), name), "held").get("fast", 0.0) > 0.01


def test_jobs_that_can_be_preempted_or_wait_are_free() -> None:
    running = held("slow-0/0") | {"preemptible": True}
    jobs = [job("running", **running), job("waits", preemptible=False), job("other")]
    free = optsched.solve(instance_of(jobs), "max-throughput")
    kept = optsched.solve(instance_of(jobs), "max-throughput", constraints=["uninterrupted"])
    assert kept.objective == pytest.approx(free.objective)
    assert "uninterrupted" not in kept.duals


def test_equal_jobs_are_one_class_each_where_they_run_and_where_they_wait() -> None:
    jobs = [job(f"h{i}", **held(f"slow-{i // 2}/{i % 2}")) for i in range(3)] + [
        job(f"w{i}") for i in range(5)
    ]
    instance = instance_of(jobs)
    merged = optsched.solve(instance, constraints=["uninterrupted"])
    assert len(merged.allocation.classes) == 2
    apart = optsched.solve(instance, constraints=["uninterrupted"], classes=False)
    assert merged.objective == pytest.approx(apart.objective, rel=1e-9)
    assert all(share_of(merged, f"h{i}") == pytest.approx({"slow": 1.0}) for i in range(3))


def test_its_price_says_what_stopping_it_would_be_worth() -> None:
    jobs = [job("held", **held("fast-0/0")), job("better", throughput={"fast": 40.0})]
    solution = optsched.solve(
        instance_of(jobs, nodes=1), "max-throughput", constraints=["uninterrupted"]
    )
    assert solution.status == "optimal"
    tight = [
        job("held", 2, **held("fast-0/0", "fast-0/1")),
        job("better", 2, throughput={"fast": 40.0}),
    ]
    solution = optsched.solve(
        instance_of(tight, nodes=1), "max-throughput", constraints=["uninterrupted"]
    )
    assert solution.objective == pytest.approx(8.0)
    assert np.asarray(solution.duals["uninterrupted"]) == pytest.approx([-34.0])


def test_beside_a_requirement_that_contradicts_it_the_conflict_is_told() -> None:
    jobs = [job("held", **held("slow-0/0"))]
    constraints = ["uninterrupted", {"kind": "forbidden", "pools": ["slow"], "jobs": ["held"]}]
    solution = optsched.solve(instance_of(jobs), constraints=constraints)
    assert solution.status == "infeasible"
    assert "held" in " ".join(conflict.words for conflict in solution.conflicts)


def test_what_holds_gpus_of_a_node_that_is_gone_is_left_to_the_caller() -> None:
    jobs = [job("held", 4, **held("fast-0/0", "fast-0/1", "fast-1/0", "fast-1/1"))]
    document = instance_of(jobs).to_document()
    document["cluster"]["pools"][0]["nodes"] = [
        {"name": "fast-0", "gpus": 2, "state": "drain"}, {"name": "fast-1", "gpus": 2},
    ]  # fmt: skip
    solution = optsched.solve(Instance.from_document(document), constraints=["uninterrupted"])
    assert solution.ok


def spread(held: list[str], *options: tuple[int, float], **more: Any) -> Instance:
    """One job that holds GPUs of nodes of 4, with (nodes, steps/s) of its configurations of 4."""
    choices = [
        {"pool": "a", "gpus": 4, "nodes": nodes, "throughput": rate} for nodes, rate in options
    ]
    running = {"running": {"pool": "a", "gpus": held}, "preemptible": False}
    jobs = [{"id": "held", "steps": 1e5, "options": choices, **running, **more}]
    return Instance.from_document(
        instance_document([{"name": "a", "nodes": 3, "gpus_per_node": 4}], jobs)
    )


ONE_NODE = [f"a-0/{i}" for i in range(4)]
TWO_NODES = ["a-0/0", "a-0/1", "a-1/0", "a-1/1"]


@pytest.mark.parametrize(
    ("held", "options", "rate"),
    [
        (TWO_NODES, [(1, 10.0), (2, 6.0)], 6.0),
        (TWO_NODES, [(1, 10.0), (3, 6.0)], 6.0),
        (TWO_NODES, [(2, 6.0), (3, 7.0)], 6.0),
        (ONE_NODE, [(1, 10.0), (2, 6.0)], 10.0),
        (ONE_NODE, [(1, 5.0), (2, 6.0)], 5.0),
    ],
)
def test_it_keeps_its_nodes_too(
    held: list[str], options: list[tuple[int, float]], rate: float
) -> None:
    """A faster configuration on fewer nodes would have to move it, and its rate is not reached."""
    solution = optsched.place(
        optsched.solve(spread(held, *options), "max-throughput", constraints=["uninterrupted"])
    )
    assert solution.objective == pytest.approx(rate)
    (row,) = solution.placement.to_records()
    assert row["gpus"] == held


def test_without_a_configuration_for_its_nodes_the_placement_says_so() -> None:
    solution = optsched.place(
        optsched.solve(
            spread(TWO_NODES, (1, 10.0)), "max-throughput", constraints=["uninterrupted"]
        )
    )
    ((_, reason),) = solution.placement.refused
    assert reason.endswith("its table has no configuration of 4 GPUs of a on 2 nodes")


def test_jobs_on_different_numbers_of_nodes_are_different_classes() -> None:
    document = spread(TWO_NODES, (1, 10.0), (2, 6.0)).to_document()
    other = document["jobs"][0] | {
        "id": "other",
        "running": {"pool": "a", "gpus": [f"a-2/{i}" for i in range(4)]},
    }
    document["jobs"].append(other)
    solution = optsched.solve(
        Instance.from_document(document), "max-throughput", constraints=["uninterrupted"]
    )
    assert solution.objective == pytest.approx(16.0)


def test_jobs_on_one_rack_and_across_two_have_their_own_rates() -> None:
    """Both hold two GPUs on two nodes, but only one has the rate of a rack."""
    document = {
        "format": "optsched-instance/1",
        "cluster": {
            "pools": [{"name": "v", "nodes": 4, "gpus_per_node": 2}],
            "levels": {"rack": {"r0": ["v-0", "v-1"], "r1": ["v-2", "v-3"]}},
        },
        "jobs": [
            {
                "id": name,
                "gpus": 2,
                "throughput": {"v": {"2": {"rack": 5.0, "cluster": 1.0}}},
                "preemptible": False,
                "running": {"pool": "v", "gpus": gpus},
            }
            for name, gpus in (("near", ["v-0/0", "v-1/0"]), ("far", ["v-1/1", "v-2/0"]))
        ],
    }
    for constraint in ("uninterrupted", "placeable"):
        solution = optsched.solve(
            document, "max-throughput", integral=True, constraints=[constraint]
        )
        assert solution.objective == pytest.approx(6.0)


def test_a_job_on_a_node_that_is_down_has_stopped() -> None:
    document = instance_of([job("stopped", **held("slow-0/0"))]).to_document()
    pool = next(pool for pool in document["cluster"]["pools"] if pool["name"] == "slow")
    pool["nodes"] = [{"name": "slow-0", "gpus": 2, "state": "down"}, {"name": "slow-1", "gpus": 2}]
    solution = optsched.solve(document, "max-throughput", constraints=["uninterrupted"])
    assert share_of(solution, "stopped") == pytest.approx({"fast": 1.0})
