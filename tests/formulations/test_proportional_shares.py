"""Proportional shares: slices by weight, of jobs and of tenants."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from documents import instance_document

import optsched
from optsched import Instance

W = np.array([4.0, 8.0, 6.0])


def instance(
    jobs: int, weight: Any, tenants: dict[str, float] | None = None, of: list[int] | None = None
) -> Instance:
    rate, gang = rates(jobs)
    more = (
        {}
        if tenants is None
        else {"tenants": [{"name": name, "weight": w} for name, w in tenants.items()], "tenant": of}
    )
    return Instance.from_arrays(
        pools={"a": 4, "b": 8, "c": 6},
        throughput=rate,
        gpus=gang,
        weight=np.broadcast_to(weight, jobs),
        **more,
    )


def rates(jobs: int) -> tuple[np.ndarray, np.ndarray]:
    rate = np.random.default_rng(jobs).lognormal(0, 1, (jobs, 3))
    rate[::3, 1] = 0
    return rate, np.resize([1, 2, 4], jobs)


def formula(f: np.ndarray) -> list[float]:
    rate, gang = rates(len(f))
    y = f[:, None] * W / gang[:, None]
    y /= np.maximum(1.0, y.sum(axis=1, keepdims=True))
    return (rate * y).sum(axis=1).tolist()


@pytest.mark.parametrize("jobs", (1, 2, 9))
def test_by_weight(jobs: int) -> None:
    p = np.random.default_rng(jobs).lognormal(0, 1, jobs)
    solution = optsched.solve(instance(jobs, p), "proportional-shares")
    assert solution.ok and solution.sense == "rule" and solution.bound is None
    assert list(solution.throughput.values()) == pytest.approx(formula(p / p.sum()), rel=1e-12)
    assert solution.objective == pytest.approx(sum(formula(p / p.sum())), rel=1e-12)
    usage, capacity = solution.allocation.usage, solution.candidates.resources.capacity
    assert (usage <= capacity * (1 + 1e-12)).all()
    assert optsched.verify(instance(jobs, p), solution.to_document()).ok


def test_equal_weights_are_isolated() -> None:
    for weight in (1.0, 7.0):
        fair, isolated = (
            optsched.solve(instance(12, weight), name)
            for name in ("proportional-shares", "isolated")
        )
        assert list(fair.throughput.values()) == pytest.approx(
            list(isolated.throughput.values()), rel=1e-12
        )


def test_tenants_share_first() -> None:
    """x has 3/6 for two jobs of weights 1 and 3, y 1/6 for one; a job of nobody counts by its own weight, 2/6."""
    p, of = np.array([1.0, 5.0, 3.0, 2.0]), [0, 1, 0, -1]
    made = instance(4, p, {"x": 3, "y": 1, "idle": 100}, of)
    f = np.array([3 / 6 * 1 / 4, 1 / 6, 3 / 6 * 3 / 4, 2 / 6])
    solution = optsched.solve(made, "proportional-shares")
    assert list(solution.throughput.values()) == pytest.approx(formula(f), rel=1e-12)
    jobwise = optsched.solve(made, "proportional-shares", classes=False)
    assert list(jobwise.throughput.values()) == pytest.approx(formula(f), rel=1e-12)
    flat = optsched.solve(made, "proportional-shares", tenants=False)
    assert list(flat.throughput.values()) == pytest.approx(formula(p / p.sum()), rel=1e-12)
    for answer in (solution, flat):
        assert optsched.verify(made, answer.to_document()).ok


def test_capacity_is_kept_where_gavel_s_proportional_breaks_it() -> None:
    """20 jobs of 4 GPUs that each spent all their time on 18 GPUs would hold 80."""
    made = Instance.from_arrays(
        pools={"a": 4, "b": 8, "c": 6}, throughput=np.ones((20, 3)), gpus=np.full(20, 4)
    )
    solution = optsched.solve(made, "proportional-shares")
    assert solution.allocation.usage == pytest.approx(W, rel=1e-12)


def test_memory_and_cpus_are_kept_too() -> None:
    document = instance_document(
        [{"name": "a", "nodes": 1, "gpus_per_node": 4, "cpus_per_node": 6}],
        [{"id": f"j{i}", "workload": "w", "weight": i + 1} for i in range(4)],
        workloads={"w": {"throughput": {"a": 1}, "demand": {"cpu": 3}}},
    )
    solution = optsched.solve(Instance.from_document(document), "proportional-shares")
    assert solution.ok
    assert solution.metrics["utilisation"]["a.cpu"] == pytest.approx(1.0)
