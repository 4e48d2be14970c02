"""A gang whose workload has a rate for 1 GPU alone is refused when it comes, as it is in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from refusals import refuses

import optsched

EMPTY = {
    "format": "optsched-instance/1",
    "round": 360,
    "cluster": {"pools": [{"name": "a", "nodes": 2, "gpus_per_node": 4}]},
    "workloads": {"w": {"throughput": {"a": 10.0}}},
    "jobs": [],
}


def job(name: str, gpus: Any, **fields: Any) -> dict[str, Any]:
    return {"id": name, "gpus": gpus, "steps": 1e5, "workload": "w", **fields}


@pytest.mark.parametrize("gpus", [2, {"min": 1, "max": 4, "levels": [2, 4]}], ids=str)
def test_it_is_refused_and_nothing_has_changed(gpus: Any, tmp_path: Path) -> None:
    """It was taken in, and the journal could not be recovered from its next snapshot on."""
    journal = tmp_path / "journal"
    with optsched.Scheduler(EMPTY, journal=journal, snapshot_every=1, isolate=False) as scheduler:
        with refuses("workloads.w.throughput.a: found the plain number 10 (the rate on 1 GPU)..."):
            scheduler.submit([job("x", 1), job("gang", gpus)], now=0)
        own = {"throughput": {"a": 3.0}}
        scheduler.submit([job("x", 1), job("own", 2, **own)], now=0)
        assert {item.job for item in scheduler.solve(0).start} == {"x", "own"}
        scheduler.solve(360)
    with optsched.Scheduler.recover(journal, isolate=False) as scheduler:
        assert len(scheduler.instance.jobs_table) == 2


@pytest.mark.parametrize("policy", [{}, {"ranking": "fcfs"}], ids=["max-min", "fcfs"])
@pytest.mark.parametrize("every", [1, 100], ids=["in a snapshot", "in the records alone"])
def test_a_journal_goes_on_in_which_an_older_version_took_one_in(
    every: int, policy: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is held, with its reason; others still come, and gangs that are new are refused."""
    journal = tmp_path / "journal"
    with monkeypatch.context() as older:
        # A private name: the version that took them in did not look for their rates.
        older.setattr("optsched.rounds.changes.Changes.check_rates", lambda *given: None)
        with optsched.Scheduler(
            EMPTY, policy, journal=journal, snapshot_every=every, isolate=False
        ) as scheduler:
            scheduler.submit([job("x", 1), job("gang", 2)], now=0)
            assert {item.job for item in scheduler.solve(0).start} == {"x"}
            before = scheduler.solve(360).id
    for now in (720, 1080):
        with optsched.Scheduler.recover(journal, snapshot_every=every, isolate=False) as scheduler:
            assert scheduler.plan is not None and (now > 720 or scheduler.plan.id == before)
            with refuses(
                "workloads.w.throughput.a: found the plain number 10 (the rate on 1 GPU)..."
            ):
                scheduler.submit(job("second", 2), now=now)
            scheduler.submit(job(f"y{now}", 1, throughput={"a": 2.0 + now}), now=now)
            plan = scheduler.solve(now)
            assert plan.fallback is None and {item.job for item in plan.start} == {f"y{now}"}
            (held,) = plan.hold
            assert (held.job, held.reason) == (
                "gang", "can run nowhere: a: no rate is given for 2 GPUs"
            )  # fmt: skip


@pytest.mark.parametrize("policy", [{}, {"ranking": "fcfs"}], ids=["max-min", "fcfs"])
def test_a_scheduler_does_not_begin_with_one(policy: dict[str, Any]) -> None:
    with refuses("workloads.w.throughput.a: found the plain number 10 (the rate on 1 GPU)..."):
        optsched.Scheduler({**EMPTY, "jobs": [job("gang", 2)]}, policy, isolate=False)
