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
