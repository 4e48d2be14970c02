"""Jobs that must not be stopped run on where they are, though there is less than they need there, or they may not."""

from __future__ import annotations

from typing import Any

import pytest

import optsched
from optsched import solve_round
from optsched.rounds import Plan, RoundPolicy, RoundState, Verdict, advanced, followed

Document = dict[str, Any]


def crowded(**more: Any) -> Document:
    """``m`` needs 4 of the 2 CPUs of ``a``; ``done`` is as firm, and in no row; both nodes have another GPU."""
    nodes = [
        {"name": name, "gpus": 2, "cpus": cpus} for name, cpus in (("a", 2), ("b", 8), ("c", 2))
    ]
    return {
        "format": "optsched-instance/1", "round": 60.0, "now": 0.0,
        "cluster": {"pools": [{"name": "p", "nodes": nodes}], "resources": [{"name": "licences", "capacity": 1}]},
        "workloads": {
            "small": {"throughput": {"p": 1.0}},
            "large": {"throughput": {"p": 1.0}, "demand": {"cpu": 4}},
        },
        "jobs": [
            firm("m", "a/0", workload="large"),
            firm("done", "c/0", workload="small", steps_done=1e9),
            *({"id": f"x{k}", "workload": "small", "steps": 1e9} for k in range(4)),
        ],
        **more,
    }  # fmt: skip


def firm(name: str, gpu: str, **more: Any) -> Document:
    """A job that runs and cannot be stopped."""
    running = {"pool": "p", "gpus": [gpu], "since": 0.0}
    return {"id": name, "steps": 1e9, "preemptible": False, "running": running, **more}


def plans(document: Document, rounds: int, **policy: Any) -> list[Plan]:
    state, found = (
        RoundState.first(optsched.Instance.from_document(document), RoundPolicy(**policy)),
        [],
    )
    for _ in range(rounds):
        found.append(solve_round(state))
        for job, gpus in (("m", "a/0"), ("done", "c/0")):
            decision = found[-1].decision(state.instance.jobs_table.names.index(job))
            assert decision.verdict is Verdict.KEEP and decision.gpus == (gpus,)
        state = advanced(followed(state, found[-1]), state.until)
    return found


@pytest.mark.parametrize("policy", [{}, {"max_moves": 0}, {"patience": 1}, {"ranking": "fifo"}])
def test_a_job_runs_on_where_there_is_less_than_it_needs(policy: Document) -> None:
    found = plans(crowded(), 4, **policy)
    assert all(plan.fallback is None and len(plan.running) == 6 for plan in found)


def test_jobs_run_on_beside_others_that_they_are_to_be_kept_apart_from() -> None:
    document = crowded(constraints=[{"kind": "anti-affinity", "jobs": ["m", "done", "n"]}])
    document["jobs"].append(firm("n", "a/1", workload="small"))
    assert all(plan.fallback is None and len(plan.running) == 6 for plan in plans(document, 4))


def test_jobs_run_on_with_more_of_a_resource_than_there_is() -> None:
    document = crowded()
    for name, gpu in (("n", "a/1"), ("o", "b/1")):
        option = {"pool": "p", "gpus": 1, "throughput": 1.0, "uses": {"licences": 1.0}}
        document["jobs"].append(firm(name, gpu, options=[option]))
    for plan in plans(document, 4):
        assert plan.decision(6).gpus == ("a/1",) and plan.decision(7).gpus == ("b/1",)
        assert "cannot be preempted" in (plan.fallback or "")


@pytest.mark.parametrize(
    "constraint", [{"kind": "quota", "tenant": "t", "gpus": 3}, {"kind": "budget", "limit": 3.0}]
)
@pytest.mark.parametrize("policy", [{}, {"patience": 1}, {"hysteresis": 0.0, "fill": True}])
def test_what_could_not_be_stopped_again_starts_only_where_it_can_stay(
    constraint: Document, policy: Document
) -> None:
    document = {
        "format": "optsched-instance/1", "round": 60.0, "tenants": [{"name": "t"}], "constraints": [constraint],
        "cluster": {"pools": [{"name": "p", "nodes": 4, "gpus_per_node": 1, "cost_per_gpu_hour": 1.0}]},
        "jobs": [
            {"id": "a", "steps": 1e9, "throughput": {"p": 1.0}, "gpus": 2, "tenant": "t"},
            *({"id": name, "steps": 1e9, "throughput": {"p": 1.0}, "gpus": 2, "tenant": "t", "preemptible": False}
              for name in "bc"),
        ],
    }  # fmt: skip
    state = RoundState.first(optsched.Instance.from_document(document), RoundPolicy(**policy))
    found = []
    for _ in range(8):
        plan = solve_round(state)
        assert plan.fallback is None
        found.append(
            [plan.decision(job).verdict in (Verdict.START, Verdict.KEEP) for job in range(3)]
        )
        state = advanced(followed(state, plan), state.until)
    assert any(runs[1] or runs[2] for runs in found)
    assert not any(runs[1] and runs[2] for runs in found)
    waits = found[-1].index(False, 1)
    assert plan.decision(waits).reason == "side constraints leave no room for it beside what runs"


FORMULATIONS = [
    "proportional-fairness",
    "alpha-fairness",
    "finish-time-fairness",
    "max-min-fairness",
    "water-filling",
]


@pytest.mark.parametrize("formulation", FORMULATIONS)
@pytest.mark.parametrize("lacks", ["gpus", "cpus", "gpus of one in no row"])
def test_jobs_for_which_nothing_is_left_keep_no_others_from_an_allocation(
    formulation: str, lacks: str
) -> None:
    count, cpus = (3, 3) if lacks == "cpus" else (4, 4)
    gpus = tuple(f"p-0/{k}" for k in range(count))
    m = {
        **firm("m", "p-0/0", workload="W", gpus=count),
        "running": {"pool": "p", "gpus": list(gpus), "since": 0.0},
    }
    m["steps_done"] = 1e9 if lacks == "gpus of one in no row" else 0.0
    pool = {"name": "p", "nodes": 1, "gpus_per_node": 4, "cpus_per_node": cpus}
    document = {
        "format": "optsched-instance/1", "round": 60.0, "now": 0.0,
        "cluster": {"pools": [pool, {"name": "q", "nodes": 1, "gpus_per_node": 1}]},
        "workloads": {
            "W": {"throughput": {"p": {"3": 1.0, "4": 1.0}}, "demand": {"cpu": 1}},
            "V": {"throughput": {"p": 1.0}, "demand": {"cpu": 1}},
        },
        "jobs": [
            m,
            *({"id": f"x{k}", "workload": "V", "steps": 1e9} for k in range(2)),
            *({"id": f"y{k}", "steps": 1e9, "weight": 1.0 + 2.0 * k, "throughput": {"q": 1.0}} for k in range(2)),
        ],
    }  # fmt: skip
    state = RoundState.first(
        optsched.Instance.from_document(document), RoundPolicy(formulation=formulation)
    )
    plan = solve_round(state)
    assert (
        plan.fallback is None and plan.solution is not None and plan.solution.allocation is not None
    )
    assert plan.decision(0).verdict is Verdict.KEEP and plan.decision(0).gpus == gpus
    told = "what it needs is held by jobs that cannot be preempted"
    assert [plan.decision(job).reason for job in (1, 2)] == [told, told]
    rows = plan.solution.allocation.rows
    shared = rows.fraction[rows.job >= 3]
    assert len(shared) == 2 and shared.min() > 0.1


@pytest.mark.parametrize("stated", [False, True])
def test_what_is_held_on_nodes_that_drain_is_nobody_else_s(stated: bool) -> None:
    """One licence, which belongs to no node: the job that runs on has it."""
    need = {"options": [{"pool": "p", "gpus": 1, "throughput": 1.0, "uses": {"licence": 1}}]}
    job = need if stated else {"workload": "w"}
    nodes = [{"name": "n0", "gpus": 1, "state": "drain"}, {"name": "n1", "gpus": 1}]
    held = {"pool": "p", "gpus": ["n0/0"], "since": 0.0}
    document = {
        "format": "optsched-instance/1", "round": 60.0,
        "cluster": {
            "pools": [{"name": "p", "nodes": nodes}],
            "resources": [{"name": "licence", "kind": "renewable", "capacity": 1.0}],
        },
        "workloads": {"w": {"throughput": {"p": 1.0}, "demand": {"licence": 1}}},
        "jobs": [
            {"id": "a", **job, "steps": 1e6, "preemptible": False, "running": held},
            {"id": "b", **job, "steps": 1e6},
        ],
    }  # fmt: skip
    for licences, running in ((1.0, ["a"]), (2.0, ["a", "b"])):
        document["cluster"]["resources"][0]["capacity"] = licences  # type: ignore[index]
        plan = solve_round(
            RoundState.first(optsched.Instance.from_document(document), RoundPolicy())
        )
        assert plan.fallback is None
        assert sorted(item.job for item in (*plan.start, *plan.keep)) == running
