"""Schedulers of all kinds under a storm of events: no plan breaks a rule, and nothing is raised that is not told of."""

from __future__ import annotations

import re
from typing import Any

import pytest
from storm_world import Storm

pytestmark = pytest.mark.property

POLICIES: dict[str, dict[str, Any]] = {
    "max-min": {"formulation": "max-min-fairness", "hysteresis": 0.5},
    "water-filling": {"formulation": "water-filling", "hysteresis": 0.0},
    "max-throughput": {"formulation": "max-throughput", "max_moves": 1},
    "makespan": {"formulation": "makespan", "max_moves": 0},
    "finish-time-fairness": {"formulation": "finish-time-fairness", "patience": 5},
    "drf": {"formulation": "drf", "fill": False},
    "isolated": {"formulation": "isolated", "progress": False},
    "fifo": {"formulation": "fifo"},
    "gandiva": {"formulation": "gandiva"},
    "allox": {"formulation": "allox"},
    "proportional-fairness": {"formulation": "proportional-fairness", "fill": True},
    "throughput-per-cost": {"formulation": "throughput-per-cost"},
    "cost": {"formulation": "cost", "patience": 3},
    "ranked fcfs": {"ranking": "fcfs"},
    "ranked srtf": {"ranking": "srtf", "max_moves": 2, "fill": True},
    "stops": {
        "formulation": "max-min-fairness",
        "hysteresis": 0.0,
        "grace_time": 90.0,
        "checkpoint_interval": 45.0,
    },
    "deadlines": {"formulation": "max-min-fairness", "constraints": [{"kind": "deadlines"}]},
    "deadlines give way": {
        "formulation": "max-min-fairness",
        "constraints": [{"kind": "deadlines", "give_way": "shortfall", "soft": True}],
    },
    "quota": {
        "formulation": "water-filling",
        "constraints": [{"kind": "quota", "tenant": "red", "gpus": 3}],
        "max_moves": 2,
    },
    "budget": {
        "formulation": "max-throughput",
        "constraints": [{"kind": "budget", "limit": 10.0}],
        "patience": 4,
        "max_moves": 1,
    },
    "names": {
        "formulation": "max-min-fairness",
        "constraints": [
            {"kind": "pinned", "pools": ["v100"], "jobs": ["first", "second"]},
            {"kind": "anti-affinity", "jobs": ["second", "first", "third"]},
        ],
    },
}
LEGITIMATE = {
    "allox": "allox counts GPUs alone, but .* may run out|has no configuration of exactly one GPU",
    "throughput-per-cost": "no pool .* has no bound where work is free",
    "quota": "is infeasible: .*cannot be preempted",
    "budget": "is infeasible: .*cannot be preempted",
}
"""Reasons to fall back that a policy may have: no allocation of its kind exists."""


def weathered(policy: str, seed: int, rounds: int) -> Storm:
    """A storm that has passed."""
    first = [
        {"id": name, "steps": 1e6, "workload": "small"} for name in ("first", "second", "third")
    ]
    storm = Storm(seed, POLICIES[policy], jobs=first)
    storm.facts.jobs |= {job["id"]: job for job in first}
    if policy == "names":
        storm.facts.apart = (frozenset(("first", "second", "third")),)
        storm.facts.pinned = frozenset(("first", "second"))
    try:
        storm.rounds(rounds)
    finally:
        storm.scheduler.close()
    for words in storm.fallbacks:
        assert policy in LEGITIMATE and re.search(LEGITIMATE[policy], words), words
    assert storm.made > rounds / 4
    return storm


@pytest.mark.parametrize("policy", POLICIES)
def test_no_rule_is_broken_in_a_storm(policy: str) -> None:
    weathered(policy, 1, 12)


CHANGING = [policy for name, policy in POLICIES.items() if name != "names"]


def changed_on_the_way(seed: int, rounds: int) -> None:
    storm = Storm(seed, POLICIES["max-min"], policies=CHANGING)
    try:
        storm.rounds(rounds)
    finally:
        storm.scheduler.close()
    legitimate = "|".join(("is infeasible", *LEGITIMATE.values()))
    assert all(re.search(legitimate, words) for words in storm.fallbacks), storm.fallbacks


@pytest.mark.parametrize("seed", range(3))
def test_no_rule_is_broken_while_the_rules_change(seed: int) -> None:
    changed_on_the_way(seed, 12)


@pytest.mark.study
@pytest.mark.parametrize("seed", range(3, 23))
def test_no_rule_is_broken_while_the_rules_change_often(seed: int) -> None:
    changed_on_the_way(seed, 50)


@pytest.mark.study
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("policy", POLICIES)
def test_no_rule_is_broken_in_ten_thousand_rounds(policy: str, seed: int) -> None:
    weathered(policy, 100 + seed, 50)
