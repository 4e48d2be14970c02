"""The check of a round's plan finds gangs, CPUs and jobs apart that no right plan places so."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np
import pytest

from optsched import Instance, solve_round
from optsched.instance.running import RunningJobs
from optsched.rounds import Plan, RoundState, Verdict

# Private names: single rules of a round, without a scheduler
from optsched.rounds.checking import broken_rules
from optsched.rounds.view import View


def state_of(
    *jobs: dict[str, Any], resources: Sequence[dict[str, Any]] = (), **more: Any
) -> RoundState:
    """Jobs on a pool of four nodes in two racks."""
    cluster = {
        "pools": [{"name": "v100", "nodes": 4, "gpus_per_node": 4, "cpus_per_node": 32}],
        "levels": {"rack": {"r0": ["v100-0", "v100-1"], "r1": ["v100-2", "v100-3"]}},
        "resources": list(resources),
    }
    document = {
        "format": "optsched-instance/1",
        "cluster": cluster,
        "workloads": {"w": {"throughput": {}, "demand": {"cpu": 16}}},
        "jobs": [{"steps": 1e6, **job} for job in jobs],
        **more,
    }
    return RoundState.first(Instance.from_document(document), {"ranking": "fcfs"})


def moved(plan: Plan, *gpus: tuple[str, ...]) -> Plan:
    """The plan with other GPUs of its jobs, in the order of the jobs."""
    places = {
        job: (pool, other, since)
        for (job, (pool, _, since)), other in zip(sorted(plan.running.items()), gpus, strict=True)
    }
    changed = copy(plan)
    vars(changed)["running"] = RunningJobs.of(places)
    return changed


def told(state: RoundState, *gpus: tuple[str, ...]) -> tuple[str, ...]:
    """What the check says of a right plan whose jobs have these GPUs instead."""
    plan = solve_round(state)
    view = View.of(state)
    assert plan.fallback is None
    assert broken_rules(view, plan) == ()
    return broken_rules(view, moved(plan, *gpus))


def test_a_gang_spans_the_nodes_of_its_configuration() -> None:
    state = state_of({"id": "a", "gpus": 2, "throughput": {"v100": 1.0}})
    assert told(state, ("v100-0/0", "v100-1/0")) == ("job a is on 2 nodes, expected at most 1",)


def test_a_gang_of_a_rack_is_in_one() -> None:
    rates = {"v100": {"8": {"rack": 1.0}}}
    state = state_of({"id": "a", "gpus": 8, "throughput": rates})
    right = tuple(f"{node}/{gpu}" for node in ("v100-2", "v100-3") for gpu in range(4))
    assert told(state, right) == ()
    wrong = tuple(f"{node}/{gpu}" for node in ("v100-1", "v100-2") for gpu in range(4))
    assert told(state, wrong) == ("job a is on 2 groups of nodes, expected at most 1",)


def test_jobs_start_where_nodes_have_the_cpus_that_they_need() -> None:
    jobs = [{"id": name, "workload": "w", "throughput": {"v100": 1.0}} for name in "abc"]
    state = state_of(*jobs)
    assert told(state, ("v100-0/0",), ("v100-0/1",), ("v100-0/2",)) == tuple(
        f"job {name} starts on nodes that have too little cpu" for name in "abc"
    )
    assert told(state, ("v100-0/0",), ("v100-0/1",), ("v100-1/2",)) == ()


def with_licences(capacity: int) -> RoundState:
    """Two jobs that each need a licence of the two nodes of the first rack."""
    return state_of(
        *({"id": name, "workload": "w", "throughput": {"v100": 1.0}} for name in "ab"),
        workloads={"w": {"throughput": {}, "demand": {"licence": 1}}},
        resources=[{"name": "licence", "capacity": capacity, "nodes": ["v100-0", "v100-1"]}],
    )


def test_nodes_that_share_a_resource_have_enough_of_it() -> None:
    plan, view = solve_round(with_licences(2)), View.of(with_licences(1))
    words = tuple(f"job {name} starts on nodes that have too little licence" for name in "ab")
    assert broken_rules(view, moved(plan, ("v100-0/0",), ("v100-1/0",))) == words
    assert broken_rules(view, moved(plan, ("v100-0/0",), ("v100-2/0",))) == ()


def test_jobs_kept_apart_start_on_different_nodes() -> None:
    jobs = [{"id": name, "throughput": {"v100": 1.0}} for name in "ab"]
    state = state_of(*jobs, constraints=[{"kind": "anti-affinity", "jobs": ["a", "b"]}])
    assert told(state, ("v100-0/0",), ("v100-0/1",)) == (
        "jobs a and b are both on node v100-0, expected different nodes (anti-affinity)",
    )


@pytest.mark.parametrize("name", ["cpu", "apart"])
def test_jobs_that_keep_their_gpus_are_not_checked_again(name: str) -> None:
    need = {"workload": "w"} if name == "cpu" else {}
    jobs = [{"id": one, "throughput": {"v100": 1.0}, **need} for one in "abcd"]
    apart = [{"kind": "anti-affinity", "jobs": ["a", "b"]}] if name == "apart" else []
    state = state_of(*jobs, constraints=apart)
    plan = solve_round(state)
    changed = moved(plan, ("v100-0/0",), ("v100-0/1",), ("v100-0/2",), ("v100-1/0",))
    verdict = np.full_like(plan.verdict, Verdict.KEEP)
    verdict[3] = Verdict.START
    vars(changed)["verdict"] = verdict
    assert broken_rules(View.of(state), changed) == ()
