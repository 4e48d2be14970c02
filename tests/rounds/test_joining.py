"""Jobs join one that must not be stopped on its GPUs, and leave it again, while it runs on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import optsched
from optsched import solve_round
from optsched.rounds import Plan, RoundPolicy, RoundState, Verdict, advanced, followed

pytestmark = pytest.mark.property

Document = dict[str, Any]


def host(guests: int, gpus: int = 1, pool: Document | None = None, **jobs: Document) -> Document:
    """``m`` holds a GPU and cannot be stopped; guests, and others like it, wait."""
    workloads = {name: {"throughput": {"p0": 1.0}} for name in ("W", "V")}
    return {
        "format": "optsched-instance/1", "round": 60.0, "workloads": workloads,
        "cluster": {"pools": [{"name": "p0", "nodes": 1, "gpus_per_node": gpus, **(pool or {})}]},
        "colocation": [{"workloads": ["W", "V"], "pool": "p0", "throughput": [0.9, 0.9]}],
        "jobs": [
            {"id": "m", "workload": "W", "steps": 1e9, "preemptible": False,
             "running": {"pool": "p0", "gpus": ["p0-0/0"], "since": 0.0}},
            *({"id": f"j{k}", "workload": "V", "steps": 1e9} for k in range(guests)),
            *({"id": name, "workload": "W", "steps": 1e9, **job} for name, job in jobs.items()),
        ],
    }  # fmt: skip


def plans(document: Document, rounds: int, **policy: Any) -> list[Plan]:
    state, found = (
        RoundState.first(optsched.Instance.from_document(document), RoundPolicy(**policy)),
        [],
    )
    for _ in range(rounds):
        found.append(solve_round(state))
        assert found[-1].fallback is None
        assert found[-1].decision(0).verdict is Verdict.KEEP and found[-1].decision(0).gpus == (
            "p0-0/0",
        )
        assert found[-1].running[0][2] == 0.0
        state = advanced(followed(state, found[-1]), state.until)
    return found


def rounds_of(job: str, found: list[Plan]) -> int:
    return sum(
        any(job == item.job for item in (*plan.start, *plan.keep, *plan.move)) for plan in found
    )


def given(job: int, found: list[Plan]) -> float:
    """Fraction of the time that is a job's."""
    rows = found[-1].solution.allocation.rows  # type: ignore[union-attr]
    return float(rows.fraction[(rows.job == job) | (rows.partner == job)].sum())


@pytest.mark.parametrize("policy", [{}, {"patience": 2}, {"hysteresis": 0.0}, {"max_moves": 0}])
def test_a_guest_joins_and_runs_on(policy: Document) -> None:
    found = plans(host(1), 10, **policy)
    assert rounds_of("j0", found) == 10
    assert found[0].decision(1).verdict is Verdict.START and found[0].decision(1).gpus == (
        "p0-0/0",
    )
    assert all(plan.decision(1).verdict is Verdict.KEEP for plan in found[1:])
    assert found[5].speed[:2].tolist() == [0.9, 0.9]


@pytest.mark.parametrize("hysteresis", [0.0, 0.5])
def test_a_guest_has_its_part_of_the_time_beside_others(hysteresis: float) -> None:
    found = plans(host(1, 2, x0={}, x1={}), 40, hysteresis=hysteresis)
    assert abs(rounds_of("j0", found) - 40 * given(1, found)) < 1.5 + hysteresis


@pytest.mark.parametrize("hysteresis", [0.0, 2.0])
def test_guests_take_turns(hysteresis: float) -> None:
    found = plans(host(2), 40, hysteresis=hysteresis)
    assert abs(rounds_of("j0", found) - 20) <= 1 + hysteresis
    assert all(rounds_of("j0", [plan]) + rounds_of("j1", [plan]) == 1 for plan in found)


def test_a_guest_leaves_for_what_the_host_is_due_alone() -> None:
    document = host(1)
    document["colocation"][0]["throughput"] = [0.2, 0.9]
    document["jobs"][0]["weight"] = 3.0  # so that it is to be alone for some of the time
    found = plans(document, 30, hysteresis=0.0)
    assert 0.05 < given(1, found) < 0.95
    assert rounds_of("j0", found) / 30 == pytest.approx(given(1, found), abs=0.05)


def test_a_guest_does_not_join_where_its_node_has_too_little() -> None:
    document = host(1, 2, {"cpus_per_node": 4}, x0={"preemptible": False})
    document["workloads"]["W"]["demand"] = {"cpu": 1}
    document["workloads"]["V"]["demand"] = {"cpu": 3}
    document["jobs"][2]["running"] = {"pool": "p0", "gpus": ["p0-0/1"], "since": 0.0}
    assert rounds_of("j0", plans(document, 4)) == 0
    document["cluster"]["pools"][0]["cpus_per_node"] = 5
    assert rounds_of("j0", plans(document, 4)) >= 3


def test_a_guest_leaves_their_room_to_jobs_that_nobody_can_join() -> None:
    document = host(1, 2, {"cpus_per_node": 4})
    document["workloads"]["W"]["demand"] = {"cpu": 1}
    document["workloads"]["V"]["demand"] = {"cpu": 3}
    held = {"pool": "p0", "gpus": ["p0-0/1"], "since": 0.0}
    document["workloads"]["U"] = {"throughput": {"p0": 1.0}, "demand": {"cpu": 1}}
    document["jobs"].append(
        {"id": "u", "workload": "U", "steps": 1e9, "preemptible": False, "running": held}
    )
    assert rounds_of("j0", plans(document, 4)) == 0
    document["cluster"]["pools"][0]["cpus_per_node"] = 5
    assert rounds_of("j0", plans(document, 4)) >= 3


@pytest.mark.parametrize(("cpus", "joins"), [(4, False), (5, True)])
def test_a_guest_leaves_their_room_to_jobs_that_go_on_in_no_row(cpus: int, joins: bool) -> None:
    document = host(1, 2, {"nodes": 2, "cpus_per_node": cpus}, x0={}, x1={}, x2={}, x3={})
    document["workloads"]["W"]["demand"] = {"cpu": 1}
    document["workloads"]["V"]["demand"] = {"cpu": 3}
    held = {"pool": "p0", "gpus": ["p0-0/1"], "since": 0.0}
    document["jobs"].append(
        {
            "id": "u",
            "workload": "W",
            "steps": 1.0,
            "steps_done": 1.0,
            "preemptible": False,
            "running": held,
        }
    )
    assert (rounds_of("j0", plans(document, 6)) > 0) == joins


@pytest.mark.parametrize("kept_apart", [["m", "j0"], ["j0", "x0"], ["x0", "m"]])
def test_nobody_joins_one_that_it_is_to_be_kept_apart_from(kept_apart: list[str]) -> None:
    document = host(
        1, 2, x0={"preemptible": False, "running": {"pool": "p0", "gpus": ["p0-0/1"], "since": 0.0}}
    )
    if "x0" in kept_apart and "m" in kept_apart:
        document["cluster"]["pools"][0] |= {"nodes": 2, "gpus_per_node": 1}
        document["jobs"][2]["running"]["gpus"] = ["p0-1/0"]
    document["constraints"] = [{"kind": "anti-affinity", "jobs": kept_apart}]
    assert (rounds_of("j0", plans(document, 4)) > 0) == ("j0" not in kept_apart)


@pytest.mark.parametrize(("limit", "guest"), [(0, 0), (None, 1)])
def test_a_guest_stops_nobody_where_none_may_be_stopped(limit: int | None, guest: int) -> None:
    document = host(
        1, 2, {"cpus_per_node": 4}, x0={"running": {"pool": "p0", "gpus": ["p0-0/1"], "since": 0.0}}
    )
    document["workloads"]["W"]["demand"] = {"cpu": 1}
    document["workloads"]["V"]["demand"] = {"cpu": 3}
    document["jobs"][1]["weight"] = 50.0
    found = plans(document, 8, hysteresis=0.0, max_moves=limit)
    assert (rounds_of("j0", found) > 0) == guest
    assert (rounds_of("x0", found) < 8) == guest


@pytest.mark.parametrize(("limit", "changes"), [(0, 0), (1, 1), (None, 1)])
def test_guests_leave_no_more_often_than_may_be(limit: int | None, changes: int) -> None:
    found = plans(host(2), 12, hysteresis=0.0, max_moves=limit)
    assert max(int((plan.verdict == Verdict.PREEMPT).sum()) for plan in found) == changes


@pytest.mark.parametrize("formulation", ["max-min-fairness", "gandiva"])
@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.study) for seed in range(4, 16))]
)
def test_no_more_jobs_are_stopped_or_moved_than_may_be(seed: int, formulation: str) -> None:
    random, limit = np.random.default_rng(seed), seed % 4
    document = host(0, 4)
    document["cluster"]["pools"].append({"name": "p1", "nodes": 1, "gpus_per_node": 3})
    for name, rates in (
        ("W", {"p0": {"1": 3.0, "2": 5.0}, "p1": {"1": 1.0}}),
        ("V", {"p0": 2.0, "p1": 1.0}),
    ):
        document["workloads"][name]["throughput"] = rates
    document["jobs"], number = [], 0
    scheduler = optsched.Scheduler(
        optsched.Instance.from_document(document),
        {"max_moves": limit, "hysteresis": 0.0, "formulation": formulation},
        isolate=False,
    )
    for turn in range(20):
        jobs: list[Document] = []
        for _ in range(8 if turn == 0 else int(random.integers(0, 3))):
            workload = "WV"[int(random.integers(2))]
            gpus = int(random.integers(1, 3)) if workload == "W" else 1
            jobs.append({"id": f"j{number}", "workload": workload, "gpus": gpus, "steps": 1e9})
            jobs[-1] |= {
                "weight": float(random.integers(1, 4)),
                "preemptible": bool(random.random() < 0.8),
            }
            number += 1
        if jobs:
            scheduler.submit(jobs, now=60.0 * turn)
        names = scheduler.instance.jobs_table.names
        if turn and random.random() < 0.4:
            scheduler.complete(names[int(random.integers(len(names)))], now=60.0 * turn)
        table = scheduler.instance.jobs_table
        before = pairs({table.names[job]: gpus for job, (_, gpus, _) in table.running.items()})
        plan = scheduler.solve(now=60.0 * turn)
        assert plan.fallback is None
        parted = before - pairs(
            {item.job: item.gpus for item in (*plan.start, *plan.keep, *plan.move)}
        )
        forced = (
            len(parted) if formulation == "gandiva" else 0
        )  # which pairs there can be is for it to say
        assert len(plan.move) + len(plan.preempt) <= max(limit, forced)


def pairs(held: dict[str, tuple[str, ...]]) -> set[frozenset[str]]:
    """Jobs that share GPUs."""
    return {frozenset((a, b)) for a in held for b in held if a < b and set(held[a]) & set(held[b])}


@pytest.mark.parametrize("hinders", ["", "another pair", "too few CPUs"])
def test_without_a_way_to_join_a_job_waits_without_a_claim(hinders: str) -> None:
    document = host(1, 1 + (hinders == "too few CPUs"), {"cpus_per_node": 4})
    document["workloads"] |= {"U": {"throughput": {"p0": 1.0}, "demand": {"cpu": 3}}}
    document["workloads"]["W"]["demand"] = {"cpu": 1}
    document["workloads"]["V"]["demand"] = {"cpu": 3}
    document["colocation"].append({"workloads": ["W", "W"], "pool": "p0", "throughput": [0.5, 0.5]})
    if hinders == "another pair":
        document["jobs"].append({**document["jobs"][0], "id": "n"})
    elif hinders:
        there = {"pool": "p0", "gpus": ["p0-0/1"], "since": 0.0}
        document["jobs"].append(
            {**document["jobs"][0], "id": "n", "workload": "U", "running": there}
        )
    found = plans(document, 3, formulation="proportional-fairness")
    assert rounds_of("j0", found) == (0 if hinders else 3)
    told = "what it needs is held by jobs that cannot be preempted"
    assert not hinders or found[0].decision(1).reason == told
