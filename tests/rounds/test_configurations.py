"""How jobs run beside their GPUs: plans say it, a change of it is a move, and it is never a step on the side."""

from __future__ import annotations

import random
from copy import copy
from typing import Any

import jsonschema
import numpy as np
import pytest

import optsched
from optsched.rounds import Action, Setup, Verdict

# Private names: single rules and files of a round, without a scheduler
from optsched.rounds.checking import broken_rules
from optsched.rounds.plan_document import plan_schema
from optsched.rounds.view import View

Document = dict[str, Any]


def shared(name: str, *shares: float, **more: Any) -> Document:
    """A job that makes 2 steps/s on a GPU of its own, and more than half of that on half of one."""
    options = [
        {"pool": "v100", "gpus": 1, "share": part, "throughput": 2.0 * part**0.9} for part in shares
    ]
    return {"id": name, "steps": 1e6, "options": options, **more}


def scheduler(policy: Document, gpus: int = 1, **more: Any) -> optsched.Scheduler:
    pool = {"name": "v100", "nodes": 1, "gpus_per_node": gpus, **more.pop("pool", {})}
    document = {
        "format": "optsched-instance/1",
        "round": 360,
        "cluster": {"pools": [pool]},
        "jobs": [],
        **more,
    }
    return optsched.Scheduler(optsched.Instance.from_document(document), policy, isolate=False)


def verdicts(plan: optsched.Plan) -> dict[str, str]:
    return {item.job: item.verdict.name for item in plan.of(*Verdict)}


def test_a_job_that_gets_all_of_its_gpu_is_stopped_and_started() -> None:
    made = scheduler({"formulation": "max-throughput"})
    made.submit([shared("a", 1.0, 0.5), shared("b", 0.5)], now=0)
    first = made.solve(now=0)
    assert {item.job: item.setup for item in first.start} == {
        "a": Setup(0.5, 1),
        "b": Setup(0.5, 0),
    }
    made.complete("b", now=360)
    plan = made.solve(now=360)
    assert verdicts(plan) == {"a": "MOVE"}
    assert plan.diff() == tuple(step for step in plan.diff(first) if step.job == "a") == (
        Action("stop", "a", "v100", ("v100-0/0",), "it goes on with option 0 instead of share 0.5, option 1"),
        Action("start", "a", "v100", ("v100-0/0",), "", Setup(1.0, 0)),
    )  # fmt: skip
    assert made.solve(now=720).diff() == ()


def test_the_document_says_how_jobs_run() -> None:
    made = scheduler({"formulation": "max-throughput"})
    made.submit([shared("a", 1.0, 0.5), shared("b", 0.5)], now=0)
    document = made.solve(now=0).to_document()
    assert [(row["job"], row["share"], row["option"]) for row in document["start"]] == [
        ("a", 0.5, 1),
        ("b", 0.5, 0),
    ]
    assert [(row["job"], row["share"], row["option"]) for row in document["actions"]] == [
        ("a", 0.5, 1),
        ("b", 0.5, 0),
    ]
    jsonschema.Draft202012Validator(plan_schema()).validate(document)
    kept = made.solve(now=360).to_document()
    assert [(row["job"], row["share"], row["option"]) for row in kept["keep"]] == [
        ("a", 0.5, 1),
        ("b", 0.5, 0),
    ]


SERVED = {
    "law": "ps-sync", "coefficients": {"a": 0.02, "b": 0.3, "c": 0.4, "d": 0.01, "e": 0.01}, "batch": 512,
    "worker": {"v100": 1, "v100.cpu": 6}, "server": {"v100.cpu": 2}, "limit": {"v100": 2, "v100.cpu": 60},
}  # fmt: skip


def test_servers_that_go_are_a_move() -> None:
    workloads = {"PS": {"parameters": {"parameter_server": SERVED}}}
    made = scheduler({}, gpus=4, pool={"cpus_per_node": 40}, workloads=workloads)
    made.submit({"id": "p0", "workload": "PS", "steps": 1e6}, now=0)
    (start,) = made.solve(now=0).to_document()["start"]
    assert (start["workers"], start["servers"]) == (2, 9)
    made.submit({"id": "p1", "workload": "PS", "steps": 1e6}, now=360)
    plan = made.solve(now=360)
    assert verdicts(plan) == {"p0": "MOVE", "p1": "START"}
    assert (
        plan.move[0].reason
        == "it goes on with workers 2, servers 4 instead of workers 2, servers 9"
    )
    assert [(step.kind, step.job, step.setup.servers) for step in plan.diff()] == [
        ("stop", "p0", 0), ("start", "p0", 4), ("start", "p1", 4)
    ]  # fmt: skip


def test_servers_stay_where_nothing_may_move() -> None:
    workloads = {"PS": {"parameters": {"parameter_server": SERVED}}}
    made = scheduler({"max_moves": 0}, gpus=4, pool={"cpus_per_node": 40}, workloads=workloads)
    made.submit({"id": "p0", "workload": "PS", "steps": 1e6}, now=0)
    made.solve(now=0)
    made.submit({"id": "p1", "workload": "PS", "steps": 1e6}, now=360)
    for now in (360, 720):
        plan = made.solve(now=now)
        assert (verdicts(plan)["p0"], plan.decision(0).setup) == (
            "KEEP",
            Setup(workers=2, servers=9),
        )


def test_jobs_that_cannot_be_preempted_keep_their_share() -> None:
    made = scheduler({"formulation": "max-min-fairness"})
    made.submit([shared("a", 1.0, 0.5, preemptible=False), shared("b", 0.5)], now=0)
    made.solve(now=0)
    for now in (360, 720, 1080):
        plan = made.solve(now=now)
        assert (verdicts(plan), plan.decision(0).setup, plan.fallback) == (
            {"a": "KEEP", "b": "KEEP"},
            Setup(0.5, 1),
            None,
        )
    view = View.of(made.state)
    assert broken_rules(view, plan) == ()
    changed = copy(plan)
    vars(changed)["setups"] = {**plan.setups, 0: Setup(1.0, 0)}
    told = broken_rules(view, changed)
    assert told == (
        "v100-0/0 is given to a, b", "job a cannot be preempted, and goes on in another configuration"
    )  # fmt: skip


def test_what_runs_on_a_draining_node_is_still_known() -> None:
    made = scheduler({})
    made.submit(
        [shared("a", 1.0, 0.5, preemptible=False), shared("b", 0.5, preemptible=False)], now=0
    )
    made.solve(now=0)
    made.node_drain("v100-0", now=100)
    for now in (360, 720):
        plan = made.solve(now=now)
        assert {item.job: item.setup for item in plan.keep} == {
            "a": Setup(0.5, 1),
            "b": Setup(0.5, 0),
        }
    made.node_up("v100-0", now=800)
    assert {item.job: item.setup for item in made.solve(now=1080).keep} == {
        "a": Setup(0.5, 1),
        "b": Setup(0.5, 0),
    }


def test_a_ranking_leaves_jobs_as_they_run() -> None:
    made = scheduler({"ranking": "fcfs"})
    made.submit([shared("a", 0.5, 1.0), shared("b", 0.5)], now=0)
    first = made.solve(now=0)
    made.complete("b", now=360)
    plan = made.solve(now=360)
    assert first.decision(0).setup == plan.decision(0).setup
    assert verdicts(plan) == {"a": "KEEP"}


@pytest.mark.property
@pytest.mark.parametrize("seed", [37, *range(8)])
def test_no_more_jobs_make_way_than_may_though_they_have_shares(seed: int) -> None:
    dice = random.Random(seed)
    count = dice.randint(3, 6)
    gpus, formulation = dice.choice([1, 2]), dice.choice(["max-min-fairness", "water-filling"])
    made = scheduler({"max_moves": 0, "hysteresis": 0, "formulation": formulation}, gpus)
    coming = 0
    for round in range(10):
        for _ in range(count if round == 0 else dice.choice([0, 1])):
            parts = dice.choice([(0.5,), (0.5, 0.25), (0.75,), (0.25,), (1.0, 0.5)])
            made.submit(shared(f"h{coming}", *parts, weight=dice.choice([1, 2])), now=360 * round)
            coming += 1
        names = list(made.instance.jobs_table.names)
        if round and dice.random() < 0.5 and names:
            made.complete(dice.choice(names), now=360 * round)
        before = made.state.ledger.key[made.state.ledger.runs]
        plan = made.solve(now=360 * round)
        assert not plan.move and not plan.preempt
        after = {tuple(row) for row in plan.ledger.key[plan.ledger.runs].tolist()}
        assert after >= {tuple(row) for row in before.tolist()}, (
            "a configuration changed on the side"
        )
        assert np.isfinite(plan.ledger.received).all()


def test_jobs_that_need_no_gpus_are_started_and_stopped_too() -> None:
    with optsched.Scheduler("@knapsack", {"formulation": "multiple-choice"}, isolate=False) as made:
        plan = made.solve(now=made.state.now)
        bare = [item for item in plan.start if not item.gpus]
        assert bare and {(step.job, step.pool) for step in plan.diff()} >= {
            (item.job, None) for item in bare
        }
