"""Fluid mode against completion times worked out by hand, and against rounds."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from optsched.simulation import simulate
from optsched.traces import Trace

Make = Callable[..., Trace]


def test_equal_jobs_share_until_one_is_done(make: Make) -> None:
    """100 and 300 steps on one GPU: both at half speed until 200 s, then the other 200 steps at full speed."""
    jobs = [
        {"id": name, "steps": steps, "throughput": {"p": 1.0}}
        for name, steps in (("a", 100.0), ("b", 300.0))
    ]
    result = simulate(make(jobs), mode="fluid")
    assert result.jobs.finish == pytest.approx([200.0, 400.0])
    assert result.jobs.gpu_seconds == pytest.approx([100.0, 300.0])
    assert result.rounds.end == pytest.approx([200.0, 400.0])
    assert result.metrics()["utilisation"] == pytest.approx(1.0)


def test_a_job_on_several_pools_has_all_its_parts_counted(make: Make) -> None:
    """Two equal jobs on one GPU of p and one of q: half of the time on each, so both are always in use."""
    jobs = [{"id": name, "steps": 300.0, "throughput": {"p": 2.0, "q": 1.0}} for name in ("a", "b")]
    result = simulate(make(jobs, {"p": 1, "q": 1}), "isolated", mode="fluid")
    assert result.jobs.finish == pytest.approx([200.0, 200.0])
    assert result.jobs.gpu_seconds == pytest.approx([200.0, 200.0])
    assert result.jobs.held == pytest.approx([200.0, 200.0])
    assert result.jobs.starts.tolist() == [1, 1]


def test_a_job_that_comes_takes_its_part_at_once(make: Make) -> None:
    """a has 50 of 100 steps at 50 s; then both have half of the time."""
    jobs = [
        {"id": "a", "steps": 100.0, "throughput": {"p": 1.0}},
        {"id": "b", "steps": 100.0, "throughput": {"p": 1.0}, "arrival": 50.0},
    ]
    assert simulate(make(jobs), mode="fluid").jobs.finish == pytest.approx([150.0, 200.0])


def test_a_node_that_fails_takes_its_part(make: Make) -> None:
    events = [
        {"at": 50.0, "node": "p-0", "state": "down"},
        {"at": 150.0, "node": "p-0", "state": "up"},
    ]
    jobs = [{"id": name, "steps": 100.0, "throughput": {"p": 1.0}} for name in ("a", "b")]
    result = simulate(make(jobs, {"p": 2}, node_events=events), mode="fluid")
    assert result.jobs.finish == pytest.approx([150.0, 150.0])
    assert result.metrics()["utilisation"] == pytest.approx(1.0)


def test_rounds_come_near_it_as_they_become_short(make: Make) -> None:
    random = np.random.default_rng(2)
    jobs = [
        {
            "id": f"j{row}",
            "steps": float(random.integers(1000, 4500)),
            "throughput": {"p": 1.0, "q": 0.5},
        }
        for row in range(8)
    ]
    trace = make(jobs, {"p": 2, "q": 2})
    fluid = simulate(trace, mode="fluid").metrics()["mean_jct"] or 0.0
    rounds = [
        simulate(trace, {"hysteresis": 0.0}, round=length, replan="events").metrics()["mean_jct"]
        or 0.0
        for length in (500.0, 100.0)
    ]
    assert abs(rounds[1] / fluid - 1) < 0.02
    assert abs(rounds[1] / fluid - 1) < abs(rounds[0] / fluid - 1) + 0.005


@pytest.mark.parametrize("failures", [None, 1.0])
def test_jobs_that_make_no_progress_are_given_up(make: Make, failures: float | None) -> None:
    """Failures never end, but do not keep it from ending."""
    jobs = [{"id": "wide", "steps": 10.0, "gpus": 4, "throughput": {"p": 1.0}}]
    result = simulate(make(jobs), mode="fluid", failures=failures)
    assert "make no progress, and nothing lies ahead" in result.notices[0]
