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
