"""Upper sides of constraints, such as quotas, hold on average over rounds, though GPUs are idle."""

from __future__ import annotations

from typing import Any

import pytest

import optsched

ROUND = 60.0
ROUNDS = 36
AHEAD = 3.5
"""Rounds by which a row may be ahead: 1.5 and the hysteresis."""
QUOTA = {"kind": "quota", "tenant": "red", "gpus": 2}
BUDGET = {"kind": "budget", "limit": 2.0}


def mean_gpus(policy: dict[str, Any], constraint: dict[str, Any]) -> float:
    """GPUs in use on average: one job of a GPU and a gang of two, eight GPUs of $1 an hour."""
    job = {"steps": 1e9, "tenant": "red"}
    document = {
        "format": "optsched-instance/1",
        "round": ROUND,
        "tenants": [{"name": "red"}],
        "constraints": [constraint],
        "cluster": {
            "pools": [{"name": "p", "nodes": 1, "gpus_per_node": 8, "cost_per_gpu_hour": 1.0}]
        },
        "jobs": [
            {"id": "one", "gpus": 1, "throughput": {"p": 1.0}, **job},
            {"id": "two", "gpus": 2, "throughput": {"p": 2.0}, **job},
        ],
    }
    instance = optsched.Instance.from_document(document)
    used = 0
    with optsched.Scheduler(instance, policy, isolate=False) as scheduler:
        for number in range(ROUNDS):
            plan = scheduler.solve(now=ROUND * number)
            assert plan.fallback is None
            used += sum(len(item.gpus) for item in (*plan.start, *plan.keep, *plan.move))
    return used / ROUNDS


@pytest.mark.property
@pytest.mark.parametrize("constraint", [QUOTA, BUDGET], ids=["quota", "budget"])
@pytest.mark.parametrize(
    "more", [{}, {"hysteresis": 0.0}, {"fill": False}], ids=["defaults", "no hysteresis", "no fill"]
)
def test_rows_take_turns_at_what_a_constraint_allows(
    more: dict[str, Any], constraint: dict[str, Any]
) -> None:
    """Both run some of the time, on two GPUs on average; the gang may be ahead."""
    policy = {"formulation": "max-min-fairness", **more}
    assert 1.5 <= mean_gpus(policy, constraint) <= 2.0 + 2 * AHEAD / ROUNDS
