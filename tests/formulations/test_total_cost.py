"""The cheapest allocation: nothing without side constraints, an independent linear program with them."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from refusals import refuses
from scipy.optimize import linprog

import optsched

TWO: dict[str, Any] = {
    "format": "optsched-instance/1", "name": "two",
    "cluster": {"pools": [{"name": "fast", "nodes": 1, "gpus_per_node": 4, "cost_per_gpu_hour": 3.0},
                          {"name": "slow", "nodes": 4, "gpus_per_node": 1, "cost_per_gpu_hour": 1.0}]},
    "jobs": [{"id": "a", "gpus": 1, "steps": 7200, "deadline": 3600, "throughput": {"fast": 4.0, "slow": 1.0}},
             {"id": "b", "gpus": 2, "steps": 3600, "deadline": 3600, "throughput": {"fast": 2.0}},
             {"id": "c", "gpus": 1, "steps": 1800, "deadline": 3600, "throughput": {"fast": 1.0, "slow": 1.0}}],
}  # fmt: skip


def test_without_requirements_nothing_runs() -> None:
    solution = optsched.solve("@quickstart", "cost")
    assert (solution.objective, solution.bound, solution.status) == (0.0, 0.0, "optimal")
    assert solution.allocation is not None and not solution.allocation.x.any()


def test_with_deadlines_it_is_the_cheapest_way_to_meet_them() -> None:
    solution = optsched.solve(
        optsched.Instance.from_document(TWO), "cost", constraints=["deadlines"]
    )
    # a on fast, a on slow, b on fast, c on fast, c on slow
    price = [3.0, 1.0, 6.0, 3.0, 1.0]
    rows = [
        [-4, -1, 0, 0, 0],
        [0, 0, -2, 0, 0],
        [0, 0, 0, -1, -1],
        [1, 1, 0, 0, 0],
        [0, 0, 0, 1, 1],
        [1, 0, 2, 1, 0],
    ]
    best = linprog(price, A_ub=np.array(rows), b_ub=[-2.0, -1.0, -0.5, 1.0, 1.0, 4.0])
    assert solution.objective == pytest.approx(best.fun, rel=1e-9)
    assert solution.metrics["cost_per_hour"] == pytest.approx(best.fun, rel=1e-9)
    assert solution.sense == "min" and solution.certificate.proof == "dual"
    assert optsched.verify(solution.instance, solution.to_document()).ok


def test_a_pair_costs_once() -> None:
    document = copy.deepcopy(TWO)
    document["jobs"] = [{"id": name, "gpus": 1, "steps": 3600, "deadline": 3600, "throughput": {"fast": 1.0}}
                        for name in "ab"]  # fmt: skip
    document["colocation"] = [
        {"jobs": ["a", "b"], "pool": "fast", "gpus": 1, "throughput": [1.0, 1.0]}
    ]
    solution = optsched.solve(
        optsched.Instance.from_document(document), "cost", constraints=["deadlines"]
    )
    assert solution.objective == pytest.approx(3.0)


def test_a_pool_without_a_price_is_named() -> None:
    document = copy.deepcopy(TWO)
    del document["cluster"]["pools"][1]["cost_per_gpu_hour"]
    with refuses("cluster.pools[1].cost_per_gpu_hour: found nothing, expected a price..."):
        optsched.solve(optsched.Instance.from_document(document), "cost")
