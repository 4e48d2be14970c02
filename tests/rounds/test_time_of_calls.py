"""When calls of a scheduler happen: as they say, else by its clock, else when the call before them happened."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from documents import instance_document

import optsched

INSTANCE: dict[str, Any] = instance_document(
    {"v100": (2, 4)},
    [{"id": "a", "gpus": 1, "steps": 1e5, "throughput": {"v100": 40.0}}],
    round=360,
    now=100.0,
)
JOB = {"id": "b", "gpus": 1, "steps": 1e5, "throughput": {"v100": 40.0}}
CALLS: dict[str, Callable[[Any], object]] = {
    "submit": lambda s: s.submit(JOB),
    "cancel": lambda s: s.cancel("a"),
    "complete": lambda s: s.complete("a"),
    "stopped": lambda s: s.stopped("a"),
    "observe": lambda s: s.observe("a", steps=5.0),
    "observe_many": lambda s: s.observe_many({"a": {"steps": 5.0}}),
    "node_down": lambda s: s.node_down("v100-0"),
    "node_drain": lambda s: s.node_drain("v100-0"),
    "node_up": lambda s: s.node_up("v100-0"),
    "reserve": lambda s: s.reserve("r", ["v100-0"], 1000.0, 2000.0),
    "resize": lambda s: s.resize({"v100": 4}),
    "update": lambda s: s.update("a", weight=2.0),
    "set_policy": lambda s: s.set_policy({"ranking": "srtf"}),
    "set_constraints": lambda s: s.set_constraints([]),
    "set_tenants": lambda s: s.set_tenants([{"name": "red"}]),
    "set_workloads": lambda s: s.set_workloads({"w": {"throughput": {"v100": {"1": 1.0}}}}),
    "solve": lambda s: s.solve(),
}


def made(**options: Any) -> optsched.Scheduler:
    return optsched.Scheduler(optsched.Instance.from_document(INSTANCE), isolate=False, **options)


@pytest.mark.parametrize("call", CALLS)
def test_without_a_clock_a_call_happens_when_the_one_before_it_did(call: str) -> None:
    scheduler = made()
    CALLS[call](scheduler)
    assert scheduler.state.now == 100.0  # that of the instance
    scheduler = made()
    scheduler.solve(now=460.0)
    CALLS[call](scheduler)
    assert scheduler.state.now == 460.0


@pytest.mark.parametrize("call", CALLS)
def test_with_a_clock_it_is_asked(call: str) -> None:
    scheduler = made(clock=lambda: 777.0)
    CALLS[call](scheduler)
    assert scheduler.state.now == 777.0


def test_a_recovered_scheduler_goes_on_at_the_time_of_its_last_call(tmp_path: Path) -> None:
    with made(journal=tmp_path / "journal") as scheduler:
        scheduler.solve(now=460.0)
        scheduler.observe("a", steps=5.0)
    with optsched.Scheduler.recover(tmp_path / "journal", isolate=False) as again:
        again.observe("a", steps=6.0)
        assert again.state.now == 460.0
