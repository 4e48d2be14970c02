"""Solvers, models and disks that fail: a flagged plan that keeps what runs, or one clear error; then on as before."""

from __future__ import annotations

import errno
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from faulty_highs import FAULT, FaultyHighs
from refusals import refuses
from storm_world import document

import optsched.rounds.scheduler as scheduling
from optsched import solve_round
from optsched.errors import (
    InvalidInput,
    JournalDamaged,
    JournalError,
    SolverUnavailable,
    UsageError,
)
from optsched.instance import Instance
from optsched.registry import load_solver
from optsched.rounds import Plan, Scheduler

# Private names: single rules and files of a round, without a scheduler
from optsched.rounds.journal import disk
from optsched.solvers.isolated import half_of_memory

pytestmark = pytest.mark.process

JOBS = [
    {"id": f"j{row}", "workload": ("small", "light", "wide")[row % 3], "steps": 1e6}
    for row in range(20)
]


def made(
    policy: dict[str, Any] | None = None, jobs: list[dict[str, Any]] = JOBS, **options: Any
) -> Scheduler:
    options = {"isolate": False, "clock": lambda: 0.0} | options
    return Scheduler(
        Instance.from_document(document(jobs=jobs)),
        {"solver": "highs", **(policy or {})},
        **options,
    )


def running(plan: Plan) -> dict[str, tuple[str, ...]]:
    return {item.job: item.gpus for item in (*plan.start, *plan.keep, *plan.move)}


def kept(scheduler: Scheduler, now: float, before: Plan) -> Plan:
    """The next plan, which must be flagged and leave all that runs where it is."""
    plan = scheduler.solve(now)
    assert plan.fallback, "it is not flagged"
    assert running(before).items() <= running(plan).items()
    assert all(item.reason for item in plan.hold)
    return plan


# --- solvers ---


@pytest.fixture
def fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file that says how HiGHS fails, here and in processes that are started from here."""
    file = tmp_path / "fault"
    file.write_text("none")
    monkeypatch.setenv(FAULT, str(file))

    def load(name: str) -> Any:
        if name == "clarabel":
            raise SolverUnavailable("clarabel is not installed")
        return FaultyHighs if name == "highs" else load_solver(name)

    monkeypatch.setattr(scheduling, "load_solver", load)
    yield file


@pytest.mark.parametrize(
    "how", ["raise", "memory", "short", "nan", "infeasible", "nothing", "lie", "duals"]
)
def test_a_solver_that_fails_costs_one_flagged_plan(fault: Path, how: str) -> None:
    scheduler = made()
    plan = scheduler.solve(0.0)
    assert plan.fallback is None and plan.start
    fault.write_text(how)
    for number in range(3):
        plan = (
            kept(scheduler, 60.0 * (number + 1), plan)
            if number == 0
            else scheduler.solve(60.0 * (number + 1))
        )
        assert plan.fallback
    fault.write_text("none")
    assert scheduler.solve(300.0).fallback is None
    assert scheduler.metrics.fallbacks == 3


def test_a_fallback_is_logged_once_until_its_cause_is_another(
    fault: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "optsched")
    logged = []
    scheduler = made()
    # Two causes that differ in a number are one cause.
    for number, how in enumerate(("none", "raise 1.5", "raise 22", "nan", "nan", "none", "none")):
        fault.write_text(how)
        caplog.clear()
        plan = scheduler.solve(60.0 * number)
        assert (plan.fallback is None) == (how == "none")
        told = [entry for entry in caplog.records if entry.getMessage().startswith("round ")]
        logged.append([entry.getMessage() for entry in told if entry.name == "optsched"])
    ((first,), (other,), (again,)) = logged[1], logged[3], logged[5]
    assert first.startswith("round 1: ") and first.endswith("; jobs follow the last allocation")
    assert other.startswith("round 3: ") and other != first.replace("1", "3")
    assert again == "round 5 is planned as usual again"
    assert logged[0] == logged[2] == logged[4] == logged[6] == []


def test_the_memory_of_solvers_is_limited(fault: Path) -> None:
    with made({"memory_limit": 2e9, "time_limit": 60.0}, isolate=True) as scheduler:
        assert scheduler.solve(0.0).fallback is None
        fault.write_text("allocate")
        plan = scheduler.solve(60.0)
        assert plan.fallback is not None and "ran out of memory (limit 2.0 GB)" in plan.fallback
        fault.write_text("none")
        assert scheduler.solve(120.0).fallback is None


def test_by_default_solvers_take_half_of_the_memory(fault: Path) -> None:
    with made(isolate=True) as scheduler:
        assert scheduler._process is not None and scheduler._process.memory == half_of_memory()
    assert half_of_memory() > 0


@pytest.mark.clock
@pytest.mark.parametrize("how", ["hang", "exit", "memory", "nan"])
def test_a_solver_that_hangs_or_dies_in_its_process_costs_one_flagged_plan(
    fault: Path, how: str
) -> None:
    with made({"time_limit": 0.5}, isolate=True) as scheduler:
        plan = scheduler.solve(0.0)
        for number in range(60):  # its process may still be starting
            if plan.fallback is None:
                break
            time.sleep(0.1)
            plan = scheduler.solve(0.01 * number)
        assert plan.fallback is None
        fault.write_text(how)
        began = time.monotonic()
        kept(scheduler, 60.0, plan)
        assert time.monotonic() - began < 0.5 + 0.5 + 1.5
        fault.write_text("none")
        for number in range(60):
            time.sleep(0.1)
            if scheduler.solve(61.0 + number).fallback is None:
                break
        else:
            raise AssertionError("it does not come back")


# --- models and instances ---


@pytest.mark.unit
def test_a_model_that_fails_leaves_all_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = made()
    plan = scheduler.solve(0.0)
    with monkeypatch.context() as patched:
        patched.setattr(type(scheduler._live), "model", lambda self, instance: 1 / 0)
        plan = kept(scheduler, 60.0, plan)
        assert plan.stands and "ZeroDivisionError" in (plan.fallback or "")
    assert scheduler.solve(120.0).fallback is None


def test_a_plan_in_which_all_stands_is_recovered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = made(journal=tmp_path / "journal")
    scheduler.solve(0.0)
    with monkeypatch.context() as patched:
        patched.setattr(type(scheduler._live), "model", lambda self, instance: 1 / 0)
        scheduler.solve(60.0)
    third = scheduler.solve(120.0)
    scheduler.close()
    again = Scheduler.recover(tmp_path / "journal", isolate=False)
    assert again.plan is not None and again.plan.id == third.id
    again.close()


def test_a_last_segment_without_records_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    scheduler = made(journal=tmp_path / "journal")
    scheduler.solve(0.0)
    scheduler.close()
    with Scheduler.recover(tmp_path / "journal", isolate=False):
        assert not caplog.records
    (tmp_path / "journal" / "events-000000000000.jsonl").write_bytes(b"")
    with Scheduler.recover(tmp_path / "journal", isolate=False) as again:
        assert again.plan is None
    (record,) = caplog.records
    assert record.getMessage().endswith(
        "events-000000000000.jsonl has no records: nothing happened after the snapshot before "
        "record 0, or what was recorded is lost"
    )


def test_a_policy_that_makes_no_sense_is_refused_at_once() -> None:
    for policy in (
        {"formulation": "nonsense"},
        {"options": {"colour": 1}},
        {"constraints": [{"kind": "pinned", "pools": ["v100"], "jobs": ["nobody"]}]},
        {"constraints": [{"kind": "quota", "tenant": "nobody", "gpus": 1}]},
        {"ranking": "nonsense"},
    ):
        with pytest.raises((UsageError, InvalidInput)):
            made(policy)
    scheduler = made()
    with refuses("formulation: found 'nonsense'", UsageError):
        solve_round(scheduler.state, {"formulation": "nonsense"})


def test_constraints_outlive_the_jobs_that_they_name() -> None:
    policy = {
        "constraints": [
            {"kind": "pinned", "pools": ["k80"], "jobs": ["j0", "j1"]},
            {"kind": "anti-affinity", "jobs": ["j2", "j3"]},
        ]
    }
    scheduler = made(policy)
    assert scheduler.solve(0.0).notices == ()
    scheduler.complete("j0", "j3")
    plan = scheduler.solve(60.0)
    assert plan.fallback is None
    assert plan.notices == (
        "the side constraint pinned goes on without jobs j0, which left",
        "the side constraint anti-affinity has no effect: jobs j3 left",
    )
    assert all(item.pool == "k80" for item in (*plan.start, *plan.keep) if item.job == "j1")
    scheduler.cancel("j1")
    plan = scheduler.solve(120.0)
    assert plan.fallback is None and (plan.start or plan.keep)
    assert plan.notices[0] == "the side constraint pinned has no effect: jobs j0, j1 left"


def test_edges_of_a_cluster() -> None:
    scheduler = made(jobs=[])
    assert scheduler.solve(0.0).fallback is None
    scheduler.submit([{**JOBS[row % 20], "id": f"many{row}"} for row in range(1000)])
    plan = scheduler.solve(60.0)
    assert plan.fallback is None and len(plan.start) >= 12
    scheduler.node_down("v0", "v1", "v2", "k0", "k1")
    plan = scheduler.solve(120.0)
    assert plan.fallback is None and not plan.running and all(item.reason for item in plan.hold)
    scheduler.node_up("v0", "v1", "v2", "k0", "k1")
    assert scheduler.solve(180.0).start
    scheduler.resize({"v100": -12, "k80": -6})
    plan = scheduler.solve(240.0)
    assert plan.fallback is None and not plan.running
    scheduler.resize({"v100": 4})
    assert len(scheduler.solve(300.0).running) >= 1
    scheduler.complete(*(f"many{row}" for row in range(1000)))
    plan = scheduler.solve(360.0)
    assert plan.fallback is None and not plan.running and not plan.hold


# --- disks ---


def test_a_full_disk_takes_no_event_and_no_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = made(journal=tmp_path / "journal", snapshot_every=2)
    scheduler.solve(0.0)
    state = scheduler.state

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(disk, "write", full)
        for deed in (
            lambda: scheduler.submit({"id": "late", "workload": "small"}),
            lambda: scheduler.solve(60.0),
            lambda: scheduler.node_down("v0"),
        ):
            with pytest.raises(JournalError, match="No space left"):
                deed()
            assert scheduler.state is state
    scheduler.submit({"id": "late", "workload": "small"})
    second = scheduler.solve(60.0)
    with monkeypatch.context() as patched:
        patched.setattr(disk, "write_temporary", full)
        third = scheduler.solve(120.0)  # a snapshot is due, and is not taken
    assert (second.fallback, third.fallback) == (None, None)
    scheduler.close()
    again = Scheduler.recover(tmp_path / "journal", isolate=False)
    assert again.plan is not None and again.plan.id == third.id
    again.close()


def test_a_journal_that_is_damaged_in_the_middle_is_one_clear_error(tmp_path: Path) -> None:
    scheduler = made(journal=tmp_path / "journal")
    for number in range(4):
        scheduler.solve(60.0 * number)
    scheduler.close()
    (segment,) = sorted((tmp_path / "journal").glob("events-*"))
    lines = segment.read_bytes().splitlines(keepends=True)
    lines[1] = lines[1].replace(b'"round":1', b'"round":7')
    segment.write_bytes(b"".join(lines))
    with refuses(f"{segment.name}, line 2", JournalDamaged) as caught:
        Scheduler.recover(tmp_path / "journal", isolate=False)
    assert "\n" not in str(caught.value)


def test_infeasibility_is_analysed_where_solvers_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of it runs in the scheduler's own process when solvers have one of their own."""
    late = [{**job, "deadline": 3000.0, "steps": 1e4} for job in JOBS]
    monkeypatch.setattr("optsched.solvers.highs.HighsSession.run", lambda *_: 1 / 0)
    monkeypatch.setattr("optsched.solvers.highs.HighsSession.conflict", lambda *_: 1 / 0)
    with made({"constraints": [{"kind": "deadlines"}]}, late, isolate=True) as scheduler:
        plan = scheduler.solve(0.0)
    assert plan.fallback is None and plan.declined and plan.start
    mine = document(jobs=[{**job, "tenant": "t"} for job in JOBS]) | {"tenants": [{"name": "t"}]}
    shares = [
        {"kind": "minimum-share", "tenant": "t", "gpus": 2},
        {"kind": "quota", "tenant": "t", "gpus": 1},
    ]
    with Scheduler(
        Instance.from_document(mine), {"solver": "highs", "constraints": shares}, clock=lambda: 0.0
    ) as scheduler:
        plan = scheduler.solve(0.0)
    assert plan.fallback is not None and plan.fallback.startswith(
        "max-min-fairness is infeasible: "
    ), plan.fallback
    assert "minimum-share" in plan.fallback and plan.start
