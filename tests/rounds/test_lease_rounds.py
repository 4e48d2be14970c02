"""Rounds that follow leases: they start at once, and deadlines that cannot all be kept leave no round idle."""

from __future__ import annotations

from typing import Any

import pytest
from documents import instance_document

import optsched

LEASE = {"formulation": "lease"}


def instance(*jobs: tuple[str, float, float], round: float = 1.0, **more: Any) -> optsched.Instance:
    """Jobs (name, steps at one step/s, deadline) on one GPU."""
    return optsched.Instance.from_document(
        instance_document(
            {"v100": 1},
            [
                {
                    "id": name,
                    "steps": steps,
                    "deadline": deadline,
                    "throughput": {"v100": 1.0},
                    **more,
                }
                for name, steps, deadline in jobs
            ],
            round=round,
        )
    )


def test_a_job_with_time_to_spare_starts_now() -> None:
    plan = optsched.Scheduler(instance(("a", 2.0, 10.0)), LEASE).solve(now=0)
    assert [item.job for item in plan.start] == ["a"] and plan.fallback is None


def test_deadlines_that_cannot_all_be_kept_leave_no_round_idle() -> None:
    given = instance(("a", 2.0, 2.0), ("b", 2.0, 4.0), ("c", 2.0, 5.0), ("d", 9.0, 5.0))
    plan = optsched.Scheduler(given, LEASE).solve(now=0)
    assert plan.fallback is None
    assert [item.job for item in plan.start] == ["a"]
    declined = dict(plan.solution.declined)
    assert declined == {
        "c": "it needs 2 leases of 1 GPU; the plan leaves room in 1 of the 5 before its deadline",
        "d": "it needs 9 leases of 1 GPU, 5 before its deadline",
    }
    assert {item.job: item.reason for item in plan.hold if item.job in declined} == {
        job: f"not admitted: {why}" for job, why in declined.items()
    }
    assert plan.notices == tuple(
        f"job {job} is not admitted: {why}" for job, why in declined.items()
    )


def test_a_policy_may_ask_for_all_deadlines() -> None:
    given = instance(("a", 2.0, 2.0), ("b", 2.0, 2.0))
    plan = optsched.Scheduler(given, LEASE | {"options": {"admission": False}}).solve(now=0)
    assert plan.fallback is not None and "lease is infeasible" in plan.fallback
    assert [item.job for item in plan.start] == ["a"]  # nobody has a claim, and the GPU is idle


def test_all_jobs_are_done_in_time_round_after_round() -> None:
    """Earliest deadline first meets all of these; no round is idle."""
    scheduler = optsched.Scheduler(
        instance(("a", 2.0, 9.0), ("b", 3.0, 5.0), ("c", 1.0, 9.0)), LEASE
    )
    left, ended = {"a": 2, "b": 3, "c": 1}, {}
    for now in range(6):
        plan = scheduler.solve(now=float(now))
        (job,) = [item.job for item in (*plan.start, *plan.keep)]
        left[job] -= 1
        if left[job] == 0:
            ended[job] = now + 1
            scheduler.complete(job, now=now + 1.0)
    assert not any(left.values()) and ended["a"] <= 9 and ended["b"] <= 5 and ended["c"] <= 9


@pytest.mark.parametrize("admission", [True, False])
def test_solving_once_asks_for_all_deadlines_unless_told(admission: bool) -> None:
    given = instance(("a", 2.0, 2.0), ("b", 2.0, 2.0))
    solution = optsched.solve(given, "lease", admission=admission)
    assert solution.status == ("optimal" if admission else "infeasible")
    assert [job for job, _ in solution.declined] == (["b"] if admission else [])
    document = solution.to_document()
    assert optsched.verify(given, document).ok
    if admission:
        wrong = optsched.verify(given, document | {"declined": []})
        assert [finding.field for finding in wrong.findings] == ["declined"]


# --- promises ------------------------------------------------------------------------------------


def declined(plan: optsched.rounds.Plan) -> list[str]:
    assert plan.fallback is None
    return [job for job, _ in plan.declined]


def dear(name: str, steps: float, deadline: float) -> dict[str, Any]:
    """A job that is worth more than ten others."""
    return {
        "id": name,
        "steps": steps,
        "deadline": deadline,
        "weight": 10.0,
        "throughput": {"v100": 1.0},
    }


def test_a_dearer_job_takes_no_place_that_was_promised() -> None:
    given = instance(("a", 4.0, 6.0), ("b", 2.0, 8.0))
    scheduler = optsched.Scheduler(given, LEASE, isolate=False)
    assert declined(scheduler.solve(now=0.0)) == []
    scheduler.submit([dear("new", 3.0, 6.0), dear("small", 2.0, 8.0)], now=1.0)
    plan = scheduler.solve(now=1.0)
    assert declined(plan) == ["new"]
    # Of those that were not promised anything, value decides.
    scheduler.cancel("a", now=1.5)
    assert declined(scheduler.solve(now=2.0)) == []


def test_equal_jobs_keep_their_own_promises() -> None:
    """A newcomer like an admitted job is another class: only the newcomer may be declined."""
    given = instance(("a", 4.0, 6.0))
    scheduler = optsched.Scheduler(given, LEASE, isolate=False)
    scheduler.solve(now=0.0)
    scheduler.submit([{**dear("b", 3.0, 6.0), "weight": 1.0}, dear("c", 3.0, 6.0)], now=1.0)
    assert declined(scheduler.solve(now=1.0)) == ["b", "c"]


def test_a_promise_that_is_broken_breaks_no_other() -> None:
    given = instance(("a", 4.0, 6.0), ("b", 2.0, 8.0))
    scheduler = optsched.Scheduler(given, LEASE, isolate=False)
    assert declined(scheduler.solve(now=0.0)) == []
    # Nothing was done until now.
    scheduler.observe_many({"a": {"steps": 0.0}, "b": {"steps": 0.0}}, now=3.0)
    # There is room for b or for the newcomer, which is worth more, and none for a any more.
    scheduler.submit(dear("new", 4.0, 8.0), now=3.0)
    assert declined(scheduler.solve(now=3.0)) == ["a", "new"]


def test_where_promises_cannot_be_kept_value_decides() -> None:
    given = instance(("a", 4.0, 6.0))
    scheduler = optsched.Scheduler(given, LEASE, isolate=False)
    scheduler.solve(now=0.0)
    scheduler.submit(dear("new", 3.0, 6.0), now=1.0)
    assert declined(scheduler.solve(now=1.0)) == ["new"]
    # It lost time that it cannot make up for.
    scheduler.stopped("a", now=1.0)
    scheduler.observe("a", steps=0.0, now=3.0)
    plan = scheduler.solve(now=3.0)
    assert declined(plan) == ["a"]
    assert "job a is not admitted any more" in plan.notices[0]
