"""Space sharing through candidates, and jobs that cannot take part."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from documents import instance_document

import optsched
from optsched import Instance


def packed(seed: int, gangs: tuple[int, ...] = (1,)) -> dict[str, Any]:
    """A document with all pairs of equal gangs by job, on two pools."""
    random = np.random.default_rng(seed)
    pools = [{"name": name, "nodes": 4, "gpus_per_node": 1} for name in ("a", "b")]
    jobs, pairs = [], []
    for number in range(8):
        rates = {pool["name"]: float(random.lognormal()) for pool in pools}
        gang = int(random.choice(gangs))
        jobs.append(
            {
                "id": f"j{number}",
                "gpus": gang,
                "weight": float(random.choice([1, 2])),
                "throughput": rates,
            }
        )
    for first in range(8):
        for second in range(first + 1, 8):
            if jobs[first]["gpus"] != jobs[second]["gpus"]:
                continue
            for pool in pools:
                share = random.uniform(0.3, 0.9, 2)
                rate = [
                    jobs[j]["throughput"][pool["name"]] * s
                    for j, s in zip((first, second), share, strict=True)
                ]
                pair = {
                    "jobs": [f"j{first}", f"j{second}"],
                    "pool": pool["name"],
                    "throughput": rate,
                }
                pairs.append(pair | {"gpus": jobs[first]["gpus"]})
    return instance_document(pools, jobs, colocation=pairs)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("formulation", ("max-min-fairness", "max-throughput", "makespan"))
def test_pairs_never_hurt(seed: int, formulation: str) -> None:
    document = packed(seed)
    alone = optsched.solve(Instance.from_document(document | {"colocation": []}), formulation)
    shared = optsched.solve(Instance.from_document(document), formulation)
    assert shared.ok and shared.status == "optimal"
    sign = -1 if formulation == "makespan" else 1
    assert sign * (shared.objective - alone.objective) >= -1e-9


@pytest.mark.parametrize("seed", range(3))
def test_mixed_gangs_natural_and_padded_pairs_agree(seed: int) -> None:
    """Pairs of unequal gangs padded with zero rates change nothing (they are refused or dropped, never used)."""
    document = packed(seed, gangs=(1, 2))
    natural = optsched.solve(Instance.from_document(document))
    padded = document | {
        "colocation": document["colocation"]
        + [
            {
                "jobs": [a["id"], b["id"]],
                "pool": "a",
                "gpus": a["gpus"],
                "throughput": [0.0, 0.0],
                "nodes": 1,
            }
            for a in document["jobs"][:3]
            for b in document["jobs"][5:]
            if a["gpus"] == b["gpus"]
        ]
    }
    assert natural.ok and natural.objective == pytest.approx(
        optsched.solve(Instance.from_document(padded)).objective
    )


def test_pairs_by_workload_equal_pairs_by_job() -> None:
    """The same co-location told by workload (classes) and job by job gives the same optimum."""
    random = np.random.default_rng(3)
    names, pools = (
        ["x", "y", "z"],
        [{"name": name, "nodes": 2, "gpus_per_node": 1} for name in ("a", "b")],
    )
    rates = {w: {p["name"]: float(random.lognormal()) for p in pools} for w in names}
    table = [
        {
            "workloads": [v, w],
            "pool": p["name"],
            "throughput": [rates[v][p["name"]] * s, rates[w][p["name"]] * s],
        }
        for i, v in enumerate(names)
        for w in names[i:]
        for p in pools
        for s in [float(random.uniform(0.5, 0.9))]
    ]
    member = [names[i] for i in random.integers(0, 3, 9)]
    base = instance_document(
        pools,
        [{"id": f"j{i}", "workload": w} for i, w in enumerate(member)],
        workloads={
            w: {"throughput": {pool: {"1": r} for pool, r in rates[w].items()}} for w in names
        },
    )
    by_job = []
    for i in range(9):
        for j in range(i + 1, 9):
            for entry in table:
                if sorted(entry["workloads"]) == sorted([member[i], member[j]]):
                    forward = entry["workloads"] == [member[i], member[j]]
                    rate = entry["throughput"] if forward else entry["throughput"][::-1]
                    by_job.append(
                        {"jobs": [f"j{i}", f"j{j}"], "pool": entry["pool"], "throughput": rate}
                    )
    first = optsched.solve(Instance.from_document(base | {"colocation": table}))
    second = optsched.solve(Instance.from_document(base | {"colocation": by_job}))
    assert len(first.allocation.classes) == 3 and len(second.allocation.classes) == 9
    assert first.objective == pytest.approx(second.objective, rel=1e-8)
    assert optsched.solve(Instance.from_document(base)).objective < first.objective


def test_jobs_that_cannot_take_part_are_listed_and_the_others_unchanged() -> None:
    good = [{"id": f"g{i}", "throughput": {"a": 1.0 + i, "b": 2.0}} for i in range(4)]
    bad = [
        {"id": "huge", "gpus": 40, "throughput": {"a": 9.0, "b": 9.0}},
        {"id": "nowhere", "throughput": {"a": 0.0, "b": 0}},
        {"id": "done", "steps": 10, "steps_done": 10, "throughput": {"a": 1.0}},
        {"id": "later", "arrival": 3600, "throughput": {"a": 1.0}},
    ]
    pools = [{"name": name, "nodes": 1, "gpus_per_node": 2} for name in ("a", "b")]
    base = {"format": "optsched-instance/1", "cluster": {"pools": pools}}
    for formulation in ("max-min-fairness", "makespan", "max-throughput", "isolated"):
        alone = optsched.solve(Instance.from_document(base | {"jobs": good}), formulation)
        mixed = optsched.solve(
            Instance.from_document(base | {"jobs": bad[:2] + good + bad[2:]}), formulation
        )
        assert mixed.ok and mixed.objective == pytest.approx(alone.objective, rel=1e-9)
        reasons = dict(mixed.unplaced)
        assert list(reasons) == ["huge", "nowhere", "done", "later"]
        assert "needs 40 GPUs, but only 2 are usable" in reasons["huge"]
        assert "rate 0 on 1 GPU" in reasons["nowhere"]
        assert reasons["done"] == "no step left to do"
        assert reasons["later"] == "arrives at 3600 s, after now (0 s)"
        assert set(mixed.throughput) == {"g0", "g1", "g2", "g3"}


def test_an_instance_without_runnable_jobs_is_solved() -> None:
    document = instance_document({"a": 2}, [{"id": "huge", "gpus": 40, "throughput": {"a": 9.0}}])
    for formulation in ("max-min-fairness", "makespan", "max-throughput", "isolated"):
        solution = optsched.solve(Instance.from_document(document), formulation)
        assert solution.ok and solution.status == "optimal" and len(solution.unplaced) == 1
        assert solution.to_document()["allocation"] == []


@pytest.mark.parametrize("pools", (1, 40))
def test_pools_of_any_name_and_number(pools: int) -> None:
    rate = np.random.default_rng(pools).lognormal(0, 1, (30, pools))
    instance = Instance.from_arrays(pools={f"Pool №{j}": 1 for j in range(pools)}, throughput=rate)
    assert optsched.solve(instance).ok
