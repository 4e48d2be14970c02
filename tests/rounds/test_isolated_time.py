"""Rounds keep the history that finish-time fairness reads."""

from __future__ import annotations

import pytest
from documents import instance_document

import optsched
from optsched.rounds import RoundState, Scheduler

INSTANCE = instance_document(
    {"p": 2},
    [
        {"id": "a", "steps": 1e4, "throughput": {"p": 2.0}},
        {"id": "b", "steps": 1e4, "throughput": {"p": 4.0}},
        {"id": "c", "steps": 1e4, "throughput": {"p": 4.0}},
        {"id": "d", "steps": 1e4, "throughput": {"p": 4.0}},
    ],
    round=100.0,
)


def scheduler(formulation: str) -> Scheduler:
    instance = optsched.Instance.from_document(INSTANCE)
    return Scheduler(instance, {"formulation": formulation}, clock=lambda: 0.0, isolate=False)


def test_steps_done_count_at_the_isolated_rate_of_the_last_plan() -> None:
    """Four jobs on two GPUs: alone with a quarter of the cluster, each would run half of the time."""
    with scheduler("finish-time-fairness") as plans:
        first = plans.solve(now=0.0)
        plans.observe("a", steps=300.0, now=100.0)
        plans.solve(now=100.0)
        table = plans.instance.jobs_table
        assert table.isolated_time[0] == pytest.approx(300.0 / (2.0 / 2))
        ran = [job for job in first.running if job > 0]
        assert table.isolated_time[ran] == pytest.approx(400.0 / (4.0 / 2))
        plans.solve(now=100.0)
        assert plans.instance.jobs_table.isolated_time[0] == pytest.approx(300.0)  # not twice
        plans.complete("b", now=200.0)
        before, row = plans.instance.jobs_table, 0
        plans.solve(now=200.0)
        more = plans.instance.jobs_table.steps_done[row] - before.steps_done[row]
        assert plans.instance.jobs_table.isolated_time[row] == pytest.approx(
            300.0 + more / (2.0 / 2)
        )


def test_a_state_keeps_what_was_counted() -> None:
    with scheduler("finish-time-fairness") as plans:
        plans.solve(now=0.0)
        plans.solve(now=100.0)
        again = RoundState.from_document(plans.state.to_document())
        assert (again.service.isolated == plans.state.service.isolated).all()
        assert (again.service.counted == plans.state.service.counted).all()


def test_formulations_that_do_not_read_it_leave_it_alone() -> None:
    with scheduler("max-min-fairness") as plans:
        plans.solve(now=0.0)
        plans.solve(now=100.0)
        assert not plans.instance.jobs_table.isolated_time.any()
