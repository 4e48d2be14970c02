"""Deadlines and minimum service that cannot all be kept: jobs are declined, and no round falls back."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import optsched
from optsched.rounds import RoundState, Scheduler, replay
from optsched.rounds.ledger import Standing

POLICY: dict[str, Any] = {"constraints": [{"kind": "deadlines"}]}


def job(name: str, steps: float, deadline: float | None = None, **more: Any) -> dict[str, Any]:
    """A job that makes one step per second on any GPU."""
    due = {} if deadline is None else {"deadline": deadline}
    return {"id": name, "steps": steps, "throughput": {"v100": 1.0}, **due, **more}


def instance(*jobs: dict[str, Any], nodes: int = 1, **more: Any) -> dict[str, Any]:
    """Nodes of one GPU each, and rounds of 10 s."""
    return {
        "format": "optsched-instance/1",
        "round": 10.0,
        "cluster": {"pools": [{"name": "v100", "nodes": nodes, "gpus_per_node": 1}]},
        "jobs": list(jobs),
        **more,
    }


def declined(plan: optsched.rounds.Plan) -> dict[str, str]:
    assert plan.fallback is None
    return dict(plan.declined)


def test_the_first_to_arrive_are_admitted_and_the_others_told_why() -> None:
    given = instance(
        job("late", 60, 100, arrival=-1), job("first", 60, 100, arrival=-3), job("free", 50)
    )
    plan = optsched.solve_round(given, POLICY)
    why = "at a constant rate from now on, pool v100 leaves no room for it beside jobs that are admitted: first"
    assert declined(plan) == {"late": why}
    assert plan.notices == (
        f"job late is not admitted: job late needs 0.0167 GPU h of v100 by 100 s (in 0.0278 h): {why}",
    )
    assert {item.job: item.reason for item in plan.hold}["late"] == f"not admitted: {why}"
    assert plan.to_document()["declined"] == [{"job": "late", "reason": why}]


def test_smaller_jobs_fill_the_room_that_a_declined_one_does_not_get() -> None:
    jobs = [
        job("a", 60, 100, arrival=-9),
        job("b", 70, 100, arrival=-8),
        job("c", 35, 100, arrival=-7),
    ]
    assert set(declined(optsched.solve_round(instance(*jobs), POLICY))) == {"b"}


def test_equal_jobs_are_told_apart() -> None:
    plan = optsched.solve_round(instance(*(job(f"j{n}", 45, 100) for n in range(5))), POLICY)
    assert set(declined(plan)) == {"j2", "j3", "j4"}
    share = {row["job"]: row["fraction"] for row in plan.to_document()["allocation"]}  # type: ignore[attr-defined]
    assert share["j0"] >= 0.45 - 1e-7 and share["j1"] >= 0.45 - 1e-7


def test_a_job_that_cannot_make_it_alone_takes_nobody_s_place() -> None:
    given = instance(
        job("slow", 300, 100, arrival=-3),
        job("nowhere", 10, 100, gpus=2, arrival=-2),
        job("fine", 90, 100),
    )
    found = declined(optsched.solve_round(given, POLICY))
    assert found["slow"] == "it could not keep the pace even if it ran all the time"
    assert "needs 2 GPUs" in found["nowhere"] and set(found) == {"slow", "nowhere"}


def test_minimum_service_is_admitted_in_the_same_way() -> None:
    policy = {"constraints": [{"kind": "minimum-service", "fraction": 0.4}]}
    jobs = [job(f"j{n}", 1e4, arrival=-n) for n in range(4)]
    assert set(declined(optsched.solve_round(instance(*jobs), policy))) == {"j0", "j1"}


def test_both_requirements_of_a_job_are_kept_or_none() -> None:
    policy = {
        "constraints": [
            {"kind": "deadlines"},
            {"kind": "minimum-service", "fraction": 0.5, "jobs": ["b"]},
        ]
    }
    given = instance(
        job("a", 60, 100, arrival=-2), job("b", 10, 100), job("c", 35, 100, arrival=1e-9 - 1)
    )
    assert set(declined(optsched.solve_round(given, policy))) == {"b"}


def test_requirements_that_give_way_decline_nobody() -> None:
    policy = {"constraints": [{"kind": "deadlines", "give_way": "shortfall"}]}
    plan = optsched.solve_round(instance(job("a", 80, 100), job("b", 80, 100)), policy)
    assert declined(plan) == {} and plan.admissions is None


def test_what_is_not_a_job_s_own_requirement_still_falls_back() -> None:
    policy = {
        "constraints": [
            {"kind": "deadlines"},
            {"kind": "minimum-share", "tenant": "red", "gpus": 1},
            {"kind": "quota", "tenant": "red", "gpus": 0.5},
        ]
    }
    given = instance(job("a", 80, 100, tenant="red"), tenants=[{"name": "red"}])
    plan = optsched.solve_round(given, policy)
    assert plan.fallback is not None and "infeasible: " in plan.fallback
    assert "tenant red" in plan.fallback  # the rows that conflict


# --- promises ------------------------------------------------------------------------------------


def standing(state: RoundState) -> dict[str, str]:
    names = state.instance.jobs_table.names
    return {
        names[row]: Standing(own).name.lower()
        for row, own in enumerate(state.service.standing.tolist())
    }


def test_nobody_is_declined_for_a_newcomer() -> None:
    scheduler = Scheduler(instance(job("a", 60, 100)), POLICY, isolate=False)
    scheduler.solve(now=0.0)
    # It arrived before, and has less time.
    scheduler.submit(job("new", 30, 60, arrival=-50.0), now=0.0)
    assert set(declined(scheduler.solve(now=0.0))) == {"new"}
    assert standing(scheduler.state) == {"a": "admitted", "new": "declined"}


def test_a_declined_job_is_admitted_when_there_is_room() -> None:
    given = instance(job("a", 60, 100, arrival=-1), job("b", 90, 150))
    scheduler = Scheduler(given, POLICY, isolate=False)
    assert set(declined(scheduler.solve(now=0.0))) == {"b"}
    scheduler.cancel("a", now=5.0)
    assert declined(scheduler.solve(now=10.0)) == {}
    assert standing(scheduler.state) == {"b": "admitted"}


def test_a_node_that_fails_takes_promises_with_it() -> None:
    given = instance(job("a", 600, 1000, arrival=-2), job("b", 600, 1000, arrival=-1), nodes=2)
    scheduler = Scheduler(given, POLICY, isolate=False)
    assert declined(scheduler.solve(now=0.0)) == {}
    scheduler.node_down("v100-1", now=1.0)
    plan = scheduler.solve(now=10.0)
    (lost,) = declined(plan)
    assert plan.notices[0].startswith(f"job {lost} is not admitted any more: ")
    scheduler.node_up("v100-1", now=11.0)
    assert declined(scheduler.solve(now=11.0)) == {}


def test_another_deadline_is_another_request() -> None:
    scheduler = Scheduler(instance(job("a", 60, 100)), POLICY, isolate=False)
    scheduler.solve(now=0.0)
    scheduler.update("a", weight=2.0, now=1.0)
    assert standing(scheduler.state) == {"a": "admitted"}
    scheduler.update("a", deadline=90.0, now=1.0)
    assert standing(scheduler.state) == {"a": "none"}


def test_standing_survives_documents_and_journals(tmp_path: Path) -> None:
    given = instance(job("a", 60, 100, arrival=-2), job("b", 60, 100, arrival=-1), job("c", 5))
    journal = tmp_path / "journal"
    with Scheduler(given, POLICY, journal=journal, isolate=False, snapshot_every=100) as scheduler:
        first = scheduler.solve(now=0.0)
        second = scheduler.solve(now=10.0)
        state = scheduler.state
    assert declined(first) and declined(second)
    with Scheduler.recover(journal, isolate=False) as recovered:
        assert standing(recovered.state) == standing(state)
        assert recovered.plan is not None and recovered.plan.declined == second.declined
        assert recovered.plan.notices == second.notices
    assert replay(journal, 0).plan.declined == first.declined
    document = json.loads(json.dumps(state.to_document()))
    assert [row.get("standing") for row in document["service"].values()] == [
        "admitted",
        "declined",
        None,
    ]
    again = RoundState.from_document(document)
    assert optsched.solve_round(again).id == optsched.solve_round(state).id
    assert standing(again) == standing(state)


# --- against brute force -------------------------------------------------------------------------


def random_instance(draw: random.Random) -> dict[str, Any]:
    """A few jobs on one or two pools, some of them elastic; some have deadlines that are tight."""
    pools = [
        {"name": name, "nodes": 1, "gpus_per_node": draw.randint(1, 4)}
        for name in ("v100", "k80")[: draw.randint(1, 2)]
    ]
    jobs = []
    for number in range(draw.randint(2, 6)):
        rates = {pool["name"]: float(draw.randint(1, 8)) for pool in pools if draw.random() < 0.8}
        rates = rates or {"v100": 2.0}
        own: dict[str, Any] = {"gpus": draw.randint(1, 2), "throughput": rates}
        if draw.random() < 0.3:
            curves = {pool: {"1": rate, "2": 1.6 * rate} for pool, rate in rates.items()}
            own = {"gpus": {"min": 1, "max": 2}, "throughput": curves}
        if draw.random() < 0.85:
            own["deadline"] = draw.uniform(800, 4000)
        steps, arrival = draw.uniform(1000, 9000), draw.uniform(-50, 0)
        jobs.append({"id": f"j{number}", "steps": steps, "arrival": arrival, **own})
    return {
        "format": "optsched-instance/1",
        "round": 100.0,
        "cluster": {"pools": pools},
        "jobs": jobs,
    }


def can_be_kept(given: dict[str, Any], kept: set[str]) -> bool:
    jobs = [
        own if own["id"] in kept else {key: own[key] for key in own if key != "deadline"}
        for own in given["jobs"]
    ]
    solution = optsched.solve(
        {**given, "jobs": jobs}, "max-min-fairness", constraints=[{"kind": "deadlines"}]
    )
    return solution.status == "optimal"


@pytest.mark.property
@pytest.mark.parametrize("seed", range(20))
def test_as_one_by_one(seed: int) -> None:
    """Each job is admitted if its deadline can be kept beside those of the jobs before it."""
    given = random_instance(random.Random(seed))
    kept: set[str] = set()
    asks = [own for own in given["jobs"] if "deadline" in own]
    for own in sorted(asks, key=lambda own: own["arrival"]):
        if can_be_kept(given, {*kept, own["id"]}):
            kept.add(own["id"])
    plan = optsched.solve_round(given, POLICY)
    assert set(declined(plan)) == {own["id"] for own in asks} - kept


# --- under a storm -------------------------------------------------------------------------------

FORMULATIONS = [
    "max-min-fairness",
    "max-throughput",
    "water-filling",
    "proportional-fairness",
    "makespan",
]


@pytest.mark.property
@pytest.mark.parametrize("formulation", FORMULATIONS)
def test_tight_deadlines_never_make_a_round_fall_back(formulation: str) -> None:
    draw = random.Random(7)
    nodes = 4
    scheduler = Scheduler(
        instance(nodes=nodes), {**POLICY, "formulation": formulation}, isolate=False
    )
    there: list[str] = []
    turned_down = 0
    for number in range(25):
        now = 10.0 * number
        for _ in range(draw.choice((0, 0, 1, 2))):
            name = f"j{len(there)}"
            there.append(name)
            steps = draw.uniform(20, 200)
            scheduler.submit(job(name, steps, now + steps * draw.uniform(0.9, 3.0)), now=now)
        if draw.random() < 0.15:
            node = f"v100-{draw.randrange(nodes)}"
            draw.choice((scheduler.node_down, scheduler.node_up))(node, now=now)
        plan = scheduler.solve(now=now)
        assert plan.fallback is None, plan.fallback
        turned_down += len(plan.declined)
        table = scheduler.state.instance.jobs_table
        done = np.flatnonzero(table.steps_left <= 10.0)
        scheduler.complete(*(table.names[row] for row in done.tolist()), now=now + 9.0)
    assert turned_down


# --- promises that are kept ----------------------------------------------------------------------


@pytest.mark.property
@pytest.mark.parametrize("hysteresis", [0.0, 2.0])
@pytest.mark.parametrize("gangs", [(1,), (1, 1, 2, 4)])
def test_admitted_jobs_are_in_time_though_the_cluster_is_overloaded(
    hysteresis: float, gangs: tuple[int, ...]
) -> None:
    """Jobs ask for more than there is; no node fails, and the admitted end in time.

    Gangs cannot all run side by side as their fractions say: one may be late.
    """
    draw = random.Random(1)
    most = max(gangs)
    pool = {"name": "v100", "nodes": 4, "gpus_per_node": most}
    given = instance(cluster={"pools": [pool]})
    scheduler = Scheduler(given, {**POLICY, "hysteresis": hysteresis}, isolate=False)
    left: dict[str, float] = {}
    due: dict[str, float] = {}
    promised: set[str] = set()
    withdrawn: set[str] = set()
    late: list[str] = []
    for number in range(80):
        now = 10.0 * number
        while number < 50 and draw.random() < (0.5 if most == 1 else 0.65):
            steps = draw.uniform(20, 200)
            name = f"j{len(due)}"
            left[name], due[name] = steps, now + 10.0 + steps * draw.uniform(1.05, 4.0)
            scheduler.submit(job(name, steps, due[name], gpus=draw.choice(gangs)), now=now)
        # Else a job is assumed to have a round of work left at least, which may be too much.
        table = scheduler.state.instance.jobs_table
        scheduler.observe(
            [{"job": name, "steps": float(table.steps[row]) - left[name]}
             for row, name in enumerate(table.names.written())],
            now=now,
        )  # fmt: skip
        plan = scheduler.solve(now=now)
        own = standing(scheduler.state)
        withdrawn |= {name for name in promised if own.get(name) == "declined" and due[name] > now}
        promised |= {name for name in own if own[name] == "admitted"}
        done = []
        table = scheduler.state.instance.jobs_table
        for row in table.running:
            name = table.names[row]
            late += [name] * (name in promised and min(left[name], 10.0) + now > due[name] + 1e-6)
            left[name] -= 10.0
            done += [name] * (left[name] <= 0)
        scheduler.complete(*done, now=now + 9.9)
        late += [name for name in promised if left[name] > 0 and now > due[name]]
    assert plan.fallback is None
    assert 25 < len(promised) < 0.8 * len(due)
    assert len(set(late)) <= (most > 1)
    assert len(withdrawn) <= 1
