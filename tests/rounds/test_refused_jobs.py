"""One job that a formulation does not deal with is held; all others have their rounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from documents import instance_document

import optsched
from optsched import solve_round
from optsched.errors import OptschedError

# Private names: single rules and files of a round, without a scheduler
from optsched.rounds.allocation import Recorded

Document = dict[str, Any]
ONE = {"gpus": 1, "steps": 1e6, "throughput": {"v100": 2.0}}
GANG = {"gpus": 2, "steps": 1e6, "throughput": {"v100": 3.0}}


def document(jobs: dict[str, Document], **pool: Any) -> Document:
    pools = [{"name": "v100", "nodes": 1, "gpus_per_node": 4, **pool}]
    told = [{"id": name, **job} for name, job in jobs.items()]
    return instance_document(pools, told, round=360)


def running(plan: optsched.Plan) -> set[str]:
    names = plan.instance.jobs_table.names
    return {names[row] for row in plan.running}


BARE = {"steps": 1e6, "options": [{"pool": None, "throughput": 1.0}]}
RATELESS = {"steps": 1e6, "options": [{"pool": "v100", "gpus": 1, "value": 3}]}
CASES: dict[str, tuple[Document, Document, Document, str]] = {
    "allox, a gang": ({"formulation": "allox"}, GANG, {}, "job odd has no configuration of exactly one GPU"),
    "a job that costs nothing": (
        {"formulation": "throughput-per-cost"}, BARE, {"cost_per_gpu_hour": 2.0}, "has no bound where work is free",
    ),
    "the reference pool": (
        {"formulation": "makespan", "options": {"agnostic": True, "reference_pool": "v100"}}, BARE, {},
        "job odd cannot run on the reference pool v100",
    ),
    "a makespan without a rate": ({"formulation": "makespan"}, RATELESS, {}, "a rate, as fractions of time"),
    "fifo without a rate": ({"formulation": "fifo"}, RATELESS, {}, "a rate, as fractions of time"),
    "too old": ({"formulation": "finish-time-fairness"}, {**ONE, "arrival": -1e99}, {}, "lost in rounding"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_one_job_is_held_and_the_others_run(case: str) -> None:
    policy, odd, pool, words = CASES[case]
    instance = optsched.Instance.from_document(document({"a": ONE, "odd": odd, "b": ONE}, **pool))
    with pytest.raises(OptschedError, match=words) as refused:
        optsched.solve(instance, policy["formulation"], options=policy.get("options"))
    assert refused.value.jobs == (1,)
    made = optsched.Scheduler(instance, policy, isolate=False)
    for now in (0, 360, 720):
        plan = made.solve(now=now)
        assert plan.fallback is None and running(plan) == {"a", "b"}
        (held,) = plan.hold
        assert (held.job, held.reason) == ("odd", str(refused.value))
        assert f"odd held: {refused.value}" in plan.notices
    made.complete("odd", now=1000)
    assert made.solve(now=1080).notices == ()


ASSIGNED = {
    "steps": 1e6,
    "workload": "w",
    "options": [{"pool": "v100", "gpus": 1, "throughput": 2.0, "cost": 1.0, "value": 3.0}],
}
LARGE = {**ASSIGNED, "options": [{**ASSIGNED["options"][0], "gpus": 8}]}
HUNGRY = {**ASSIGNED, "options": [{**ASSIGNED["options"][0], "uses": {"license": 3.0}}]}
OVER = "needs more than the whole capacity in every configuration"
NEEDED = "expected options, or a workload with parameters.parameter_server"
UNSUITABLE: dict[str, tuple[str, Document, str]] = {
    "gap, no options": ("gap", ONE, "jobs[1].options: found none (job 'odd'), expected options"),
    "gap, too large": ("gap", LARGE, "can run nowhere: v100: needs 8 GPUs"),
    "gap, too hungry": ("gap", HUNGRY, OVER),
    "bin packing, too large": ("vector-bin-packing", LARGE, "can run nowhere: v100: needs 8 GPUs"),
    "bin packing, too hungry": ("vector-bin-packing", HUNGRY, OVER),
    "smd, plain rates": ("smd", ONE, f'smd: job "odd" has plain rates, {NEEDED}'),
    "smd, no limit": ("smd", {**ASSIGNED, "workload": "free"}, 'smd: job "odd" has options and no'),
    "smd, a limit of nothing": (
        "smd-tight", {**ASSIGNED, "workload": "wrong"}, "workloads.wrong.parameters.limit.moon: found an"
    ),
    "cost, no price": ("cost", {**ONE, "throughput": {"k80": 1.0}}, "cluster.pools[1].cost_per_gpu_hour"),
}  # fmt: skip


@pytest.mark.parametrize("case", UNSUITABLE)
def test_one_unsuitable_job_costs_the_others_no_round(case: str) -> None:
    formulation, odd, words = UNSUITABLE[case]
    given = document({"a": ASSIGNED, "odd": odd, "b": ASSIGNED}, cost_per_gpu_hour=1.0)
    given["cluster"]["pools"].append({"name": "k80", "nodes": 1, "gpus_per_node": 4})
    given["cluster"]["resources"] = [{"name": "license", "capacity": 2}]
    given["workloads"] = {
        "w": {"throughput": {}, "parameters": {"limit": {"v100": 2, "license": 9}}},
        "wrong": {"throughput": {}, "parameters": {"limit": {"moon": 2}}},
        "free": {"throughput": {}},
    }
    made = optsched.Scheduler(
        optsched.Instance.from_document(given), {"formulation": formulation}, isolate=False
    )
    for now in (0, 360, 720):
        plan = made.solve(now=now)
        assert plan.fallback is None
        assert running(plan) == (set() if formulation == "cost" else {"a", "b"})
        (reason,) = (held.reason for held in plan.hold if held.job == "odd")
        assert reason.startswith(words) and f"odd held: {reason}" in plan.notices
    made.cancel("odd", now=1000)
    assert made.solve(now=1080).notices == ()


def test_several_reasons_are_told_one_by_one() -> None:
    jobs = {
        "a": ONE,
        "gang": GANG,
        "big": {**GANG, "gpus": 4, "throughput": {"v100": 5.0}},
        "b": ONE,
    }
    jobs |= {
        "held": {**GANG, "running": {"pool": "v100", "gpus": ["v100-0/0", "v100-0/1"], "since": 0}}
    }
    plan = solve_round(optsched.Instance.from_document(document(jobs)), {"formulation": "allox"})
    assert plan.fallback is None and running(plan) == {"a", "b"}
    assert [(rows, words.split(":")[1][:28]) for rows, words in plan.refused] == [
        ((4,), " job held runs on pool v100 "), ((1, 2), " job gang has no configurati")
    ]  # fmt: skip


def test_nobody_is_dealt_with() -> None:
    plan = solve_round(
        optsched.Instance.from_document(document({"g": GANG})), {"formulation": "allox"}
    )
    assert (
        plan.fallback == plan.hold[0].reason
        and "job g has no configuration of exactly one GPU" in plan.fallback
    )
    assert not plan.running


def test_leftovers_are_such_as_the_formulation_deals_with() -> None:
    """Elastic jobs of two GPUs here and one there: allox knows the one alone, and so do the leftovers."""
    pools = [
        {"name": "v100", "nodes": 1, "gpus_per_node": 4},
        {"name": "k80", "nodes": 1, "gpus_per_node": 1},
    ]
    rates = {"v100": {"2": 3.0}, "k80": {"1": 0.5}}
    jobs = [
        {"id": f"o{i}", "steps": 1e4, "gpus": {"min": 1, "max": 2}, "throughput": rates}
        for i in range(3)
    ]
    given = instance_document(pools, jobs, round=360)
    made = optsched.Scheduler(
        optsched.Instance.from_document(given), {"formulation": "allox"}, isolate=False
    )
    for now in range(0, 6 * 360, 360):
        plan = made.solve(now=now)
        assert plan.fallback is None and not plan.refused
        assert {gpu for item in (*plan.start, *plan.keep) for gpu in item.gpus} == {"k80-0/0"}


def test_a_gang_that_cannot_be_stopped_runs_on_beside_those_that_are_planned() -> None:
    gang = {
        **GANG,
        "preemptible": False,
        "running": {"pool": "v100", "gpus": ["v100-0/0", "v100-0/1"], "since": 0},
    }
    instance = optsched.Instance.from_document(
        document({"g": gang, **{name: ONE for name in "abc"}})
    )
    made = optsched.Scheduler(instance, {"formulation": "allox"}, isolate=False)
    for now in (0, 360, 720):
        plan = made.solve(now=now)
        assert plan.fallback is None and plan.running[0][1] == ("v100-0/0", "v100-0/1")
        assert len(plan.running) == 3


@pytest.mark.parametrize("formulation", ["allox", "lease"])
def test_what_a_formulation_leaves_out_itself_does_not_bring_others_in(formulation: str) -> None:
    """Jobs that wait for others are not in the program, whatever the formulation leaves out besides."""
    jobs = {"a": {**ONE, "deadline": 9e5}, "later": {**ONE, "after": ["a"], "deadline": 9e5}}
    plan = solve_round(
        optsched.Instance.from_document(document(jobs)), {"formulation": formulation}
    )
    assert plan.fallback is None and running(plan) <= {"a"}
    assert plan.hold[-1].reason == "waits for a" and not plan.refused


def test_a_round_that_was_recorded_holds_the_same_jobs(tmp_path: Path) -> None:
    instance = optsched.Instance.from_document(document({"a": ONE, "odd": GANG, "b": ONE}))
    plan = solve_round(instance, {"formulation": "allox"})
    told = Recorded("the solver was killed", refused=plan.refused)
    again = solve_round(instance, {"formulation": "allox"}, recorded=told)
    (held,) = plan.hold
    # Without an allocation the others wait too: allox puts nobody on what is left over.
    assert again.refused == plan.refused and held in again.hold
    with optsched.Scheduler(
        instance, {"formulation": "allox"}, journal=tmp_path / "j", isolate=False
    ) as made:
        first = made.solve(now=0)
    assert optsched.replay(tmp_path / "j", 0).plan.id == first.id


PINNED = [{"kind": "pinned", "pools": ["k80"], "jobs": ["odd"]}]
FULL = [{"kind": "quota", "tenant": "red", "gpus": 2}]
HELD = {
    **GANG,
    "tenant": "red",
    "preemptible": False,
    "running": {"pool": "v100", "gpus": ["v100-0/0", "v100-0/1"], "since": 0},
}
LEFT_OUT: dict[str, tuple[str, Document, list[Document], str]] = {
    "pinned to nodes that drain": ("max-min-fairness", ONE, PINNED, "is left nowhere to run: "),
    "pinned, a ranking": ("", ONE, PINNED, ""),
    "a quota that is held": ("proportional-fairness", {**ONE, "tenant": "red"}, FULL, ""),
    "a quota that is held, makespan": ("makespan", {**ONE, "tenant": "red"}, FULL, "side constraints and"),
}  # fmt: skip


@pytest.mark.parametrize("case", LEFT_OUT)
def test_a_job_without_any_room_costs_the_others_no_round(case: str) -> None:
    formulation, odd, constraints, words = LEFT_OUT[case]
    odd = {**odd, "throughput": {"v100": 2.0, "k80": 1.0}}
    given = document({"held": HELD, "odd": odd, "a": ONE, "b": ONE})
    given["tenants"] = [{"name": "red"}]
    given["cluster"]["pools"].append({"name": "k80", "nodes": 1, "gpus_per_node": 4})
    given["cluster"]["pools"][1]["nodes"] = [{"name": "k80-0", "gpus": 4, "state": "drain"}]
    policy = {"formulation": formulation} if formulation else {"ranking": "fcfs"}
    plan = solve_round(
        optsched.Instance.from_document(given), {**policy, "constraints": constraints}
    )
    assert plan.fallback is None and running(plan) == {"held", "a", "b"}
    (hold,) = plan.hold
    assert hold.job == "odd" and words in hold.reason
