"""Why a job waits: its turn, or the head start that the hysteresis gives to jobs that run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import optsched

HEAD_START = "jobs that run have a head start of 2 rounds (hysteresis)"


def reason_beside_a_running_gang(journal: Path | None = None, **policy: Any) -> list[str]:
    """Reasons of a job with a large share that waits for a gang on all GPUs, from round to round.

    The gang came first, and has a fifth of the time.
    """
    cluster = {
        "format": "optsched-instance/1",
        "round": 360,
        "cluster": {"pools": [{"name": "v100", "nodes": 1, "gpus_per_node": 4}]},
        "jobs": [],
    }
    gang = {"id": "gang", "gpus": 4, "steps": 1e6, "throughput": {"v100": 40.0}}
    small = {"id": "small", "gpus": 4, "steps": 1e6, "weight": 4.0, "throughput": {"v100": 10.0}}
    with optsched.Scheduler(cluster, policy, journal=journal, isolate=False) as scheduler:
        scheduler.submit(gang, now=0)
        scheduler.solve(now=0)
        scheduler.submit(small, now=100)
        reasons = []
        for now in (360, 720):
            plan = scheduler.solve(now=now)
            reasons += [item.reason for item in plan.hold if item.job == "small"]
    return reasons


def test_hysteresis_is_named_where_it_keeps_a_job_waiting() -> None:
    first = reason_beside_a_running_gang(hysteresis=2.0)[0]
    assert first.startswith("its turn comes later: ") and first.endswith(f"; {HEAD_START}")


def test_a_job_that_has_all_of_the_time_is_not_told_that_its_turn_comes_later() -> None:
    with optsched.Scheduler("@packing", {"formulation": "makespan"}) as scheduler:
        plans = [scheduler.solve(now=scheduler.state.now + 360) for _ in range(4)]
    waits = [item.reason for plan in plans for item in (*plan.preempt, *plan.hold)]
    assert not [reason for reason in waits if ": 100 % of the time" in reason]
    always = "all of the time is its, but no GPUs are free for it in this round; it is "
    assert [reason for reason in waits if reason.startswith(always)]


@pytest.mark.parametrize("policy", [{"hysteresis": 0.0}])
def test_without_hysteresis_the_job_has_its_turn(policy: Any) -> None:
    assert reason_beside_a_running_gang(**policy) == []


def test_a_summary_says_why_the_first_jobs_wait() -> None:
    jobs = [
        {"id": f"j{row}", "gpus": 1, "steps": 1e6, "throughput": {"v100": 10.0}} for row in range(6)
    ]
    cluster = {"pools": [{"name": "v100", "nodes": 1, "gpus_per_node": 1}]}
    document = {"format": "optsched-instance/1", "round": 360, "cluster": cluster, "jobs": jobs}
    plan = optsched.solve_round(optsched.Instance.from_document(document))
    said = ", ".join(f"{item.job} ({item.reason})" for item in plan.hold[:3])
    assert f"\n  hold        {said} and 2 more\n" in plan.summary()


def test_a_plan_that_was_read_back_gives_the_same_reasons(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    reason = reason_beside_a_running_gang(journal=journal, hysteresis=2.0)[-1]
    with optsched.Scheduler.recover(journal, isolate=False) as scheduler:
        plan = scheduler.plan
        assert plan is not None and reason == plan.hold[0].reason
        assert "\n  clock      720 s\n  last plan  round 2, until 1,080 s" in scheduler.summary()
