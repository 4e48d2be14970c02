"""Rounds of `deadline-elastic`: which jobs are promised their deadlines, and what keeps the promises."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import optsched
from optsched.instance import Instance
from optsched.rounds import Plan, RoundState, Scheduler, Verdict
from optsched.rounds.ledger import Standing
from optsched.simulation import simulate
from optsched.solution import Schedule
from optsched.solving import WarmStart

POLICY: dict[str, Any] = {"formulation": "deadline-elastic"}


def job(name: str, steps: float, deadline: float, gpus: int = 1, **more: Any) -> dict[str, Any]:
    rate = {"throughput": {"v100": 1.0}}
    return {"id": name, "steps": steps, "deadline": deadline, "gpus": gpus, **rate, **more}


def instance(*jobs: dict[str, Any], nodes: int = 1, per_node: int = 1) -> dict[str, Any]:
    return {
        "format": "optsched-instance/1",
        "round": 10.0,
        "cluster": {"pools": [{"name": "v100", "nodes": nodes, "gpus_per_node": per_node}]},
        "jobs": list(jobs),
    }


def standing(state: RoundState) -> dict[str, str]:
    names = state.instance.jobs_table.names
    return {
        names[row]: Standing(own).name.lower()
        for row, own in enumerate(state.service.standing.tolist())
    }


# --- who is promised what -------------------------------------------------------------------------


@pytest.mark.parametrize(("part", "declined"), [(0.25, "large"), (1.0, "new"), (0.0, "large")])
def test_only_jobs_that_leave_enough_to_others_are_promised_their_deadlines(
    part: float, declined: str
) -> None:
    """The small job takes 20 of 100 GPU s, the large one then 60 of 80; a newcomer of 50 is cheaper."""
    policy = {**POLICY, "options": {"guarantee": part}}
    given = instance(job("small", 20, 100), job("large", 60, 100))
    scheduler = Scheduler(given, policy, isolate=False)
    scheduler.solve(now=0.0)
    promised = {"small": part > 0, "large": part == 1.0}
    assert standing(scheduler.state) == {
        name: "admitted" if kept else "planned" for name, kept in promised.items()
    }
    scheduler.submit(job("new", 50, 100), now=0.0)
    plan = scheduler.solve(now=0.0)
    assert [name for name, _ in plan.declined] == [declined]


@pytest.mark.parametrize("due", [None, 500.0])
@pytest.mark.parametrize("policy", [{}, {"exempt_time": 35.0}])
def test_a_deadline_waits_for_no_more_than_an_exempt_time(
    due: float | None, policy: dict[str, Any]
) -> None:
    """The job that came first keeps its GPU for 35 s: 20 s are left to the deadline then."""
    first = job("first", 100, due or 0.0, exempt_time=0.0 if policy else 35.0)
    if due is None:
        del first["deadline"]
    scheduler = Scheduler(instance(first), {**POLICY, **policy}, isolate=False)
    scheduler.solve(now=0.0)
    scheduler.submit(job("new", 20, 60), now=5.0)
    plans = [scheduler.solve(now=now) for now in (10.0, 20.0, 30.0, 40.0)]
    assert [plan.declined for plan in plans] == [()] * 4
    assert [{item.job for item in (*plan.start, *plan.keep)} for plan in plans] == [
        {"first"}, {"first"}, {"first"}, {"new"}
    ]  # fmt: skip


# --- the plan goes on -----------------------------------------------------------------------------


def two_pools(*jobs: dict[str, Any]) -> dict[str, Any]:
    pools = [{"name": name, "nodes": 1, "gpus_per_node": 1} for name in ("a", "b")]
    return {**instance(*jobs), "cluster": {"pools": pools}}


@pytest.mark.parametrize("cut", [20.0, None])
def test_a_round_goes_on_with_a_plan_that_the_rule_does_not_find_again(cut: float | None) -> None:
    """Two jobs take the faster pool in turns, so that both are in time; the rule keeps one of them.

    Of a stretch that the last plan has in two parts the schedule makes one.
    """
    rates = {"a": {"1": 2.0}, "b": {"1": 1.0}}
    jobs = [
        {"id": name, "gpus": 1, "steps": 150.0, "deadline": 100.0, "throughput": rates}
        for name in ("one", "two")
    ]
    state = RoundState.first(optsched.Instance.from_document(two_pools(*jobs)), POLICY)
    alone = optsched.solve_round(state)
    assert len(alone.declined) == 1
    found = optsched.solve(state.instance, "deadline-elastic", options={"slot": 50.0})
    assert found.schedule is not None
    warm = WarmStart.of_schedule(found.schedule if cut is None else _cut(found.schedule, cut))
    again = optsched.solve_round(replace(state, warm=warm))
    assert (again.declined, again.fallback) == ((), None)
    assert again.solution is not None and again.solution.schedule is not None
    assert again.solution.schedule.to_records() == found.schedule.to_records()


def _cut(schedule: Schedule, time: float) -> Schedule:
    """The schedule with everything that runs at a time in two parts."""
    job, column, start, end = schedule.job, schedule.column, schedule.start, schedule.end
    later = (start < time) & (time < end)
    return Schedule.sorted(
        schedule.classes,
        np.append(job, job[later]),
        np.append(column, column[later]),
        np.append(start, np.full(later.sum(), time)),
        np.append(np.where(later, time, end), end[later]),
    )


def test_the_plan_survives_documents_journals_and_departures(tmp_path: Path) -> None:
    given = instance(job("gone", 5, 50), job("a", 20, 100), job("b", 30, 100))
    journal = tmp_path / "journal"
    with Scheduler(given, POLICY, journal=journal, isolate=False, snapshot_every=100) as scheduler:
        scheduler.solve(now=0.0)
        scheduler.complete("gone", now=5.0)
        scheduler.submit(job("new", 10, 40), now=5.0)
        state = scheduler.state
        before = _stretches(state)
        plan = scheduler.solve(now=10.0)
    assert [row[0] for row in before] == ["a", "b"]
    again = RoundState.from_document(json.loads(json.dumps(state.to_document())))
    assert _stretches(again) == before
    with Scheduler.recover(journal, isolate=False) as recovered:
        assert recovered.plan is not None and recovered.plan.id == plan.id


def _stretches(state: RoundState) -> list[tuple[str, float, float]]:
    """Of the plan before: job, begin and end."""
    assert state.warm is not None and state.warm.stretches is not None
    names, plan = state.instance.jobs_table.names, state.warm.stretches
    rows = zip(plan.job.tolist(), plan.start.tolist(), plan.end.tolist(), strict=True)
    return sorted((names[row], begin, end) for row, begin, end in rows)


# --- jobs that have no time for a restart ---------------------------------------------------------


@pytest.mark.parametrize(("deadline", "moved"), [(12.0, 0), (60.0, 1)])
def test_a_job_that_would_be_late_after_a_restart_makes_no_room_for_a_gang(
    deadline: float, moved: int
) -> None:
    """Each node of two GPUs has one job; a gang of two needs a node."""
    runs = [
        job(
            f"r{n}", 10, deadline, restart_cost=5.0,
            running={"pool": "v100", "gpus": [f"v100-{n}/0"], "since": -1.0},
        )
        for n in range(2)
    ]  # fmt: skip
    plan = optsched.solve_round(
        instance(*runs, job("gang", 10, 100, gpus=2), nodes=2, per_node=2), POLICY
    )
    assert plan.fallback is None
    assert _count(plan, Verdict.MOVE) == _count(plan, Verdict.START) == moved


def _count(plan: Plan, verdict: Verdict) -> int:
    return int((plan.verdict == verdict).sum())


# --- plans between rounds -------------------------------------------------------------------------


def test_a_plan_says_when_its_schedule_next_starts_a_job() -> None:
    """The second node opens at 4, within the round: planned again then, the gang is done in time."""
    nodes = [{"name": "n0"}, {"name": "n1", "available_from": 4.0}]
    given = instance(job("gang", 6, 10, gpus=2))
    given["cluster"]["pools"][0] |= {"nodes": nodes}
    scheduler = Scheduler(given, POLICY, isolate=False)
    plan = scheduler.solve(now=0.0)
    assert (plan.next_start, plan.start) == (4.0, ())
    plan = scheduler.solve(now=plan.next_start)
    assert [item.job for item in plan.start] == ["gang"]
    assert plan.next_start == math.inf
    by_rank = Scheduler(given, {"ranking": "edf"}, isolate=False).solve(now=0.0)
    assert by_rank.next_start == math.inf
    for replan, end in (("events", 10.0), ("rounds", 16.0)):
        assert simulate(Instance.from_document(given), POLICY, replan=replan).jobs.finish == [end]
