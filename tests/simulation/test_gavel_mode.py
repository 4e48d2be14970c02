"""Gavel mode against the simulator it follows: mean completion time, makespan and utilisation, policy by policy."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from beside import SHARED, needs

import optsched
from optsched.errors import UsageError
from optsched.formats import import_gavel
from optsched.simulation import Simulation, simulate
from optsched.traces import Trace

pytestmark = pytest.mark.oracle

RUNS = SHARED / "oracles" / "gavel" / "sim"
TABLE = SHARED / "data" / "gavel" / "simulation_throughputs.json"
CLUSTERS = {
    "single60": ({"v100": 4, "p100": 4, "k80": 4}, 1),
    "multi60": ({"v100": 8, "p100": 8, "k80": 8}, 4),
}
REFERENCE = {"agnostic": True, "reference_pool": "v100"}
POLICIES: dict[str, tuple[str, dict[str, Any], bool]] = {
    "allox": ("allox", {}, False),
    "fifo_packed": ("fifo", {"variant": "packed"}, False),
    "fifo_perf": ("fifo", {}, False),
    "finish_time_fairness": ("finish-time-fairness", REFERENCE, True),
    "finish_time_fairness_packed": ("finish-time-fairness", {}, False),
    "finish_time_fairness_perf": ("finish-time-fairness", {}, False),
    "gandiva": ("gandiva", {}, False),
    "isolated": ("isolated", {}, True),
    "max_min_fairness": ("max-min-fairness", {"agnostic": True}, True),
    "max_min_fairness_packed": ("max-min-fairness", {}, False),
    "max_min_fairness_perf": ("max-min-fairness", {}, False),
    "max_min_fairness_water_filling_perf": ("water-filling", {}, False),
    "max_sum_throughput_perf": ("max-throughput", {}, False),
    "min_total_duration": ("makespan", REFERENCE, True),
    "min_total_duration_packed": ("makespan", {}, False),
    "min_total_duration_perf": ("makespan", {}, False),
}
"""Formulation and options of each policy, and whether pools are visited in a random order."""


def runs() -> list[dict[str, Any]]:
    if not RUNS.is_dir():
        return []
    found = json.loads((RUNS / "results.json").read_text())
    return [run for run in found if run["policy"] in POLICIES and run["average_jct_s"]]


def run_of(run: dict[str, Any], seed: int = 0) -> Simulation:
    pools, per_node = CLUSTERS[run["case"]]
    formulation, options, random = POLICIES[run["policy"]]
    packs = "packed" in run["policy"] or formulation == "gandiva"
    trace = (RUNS / run["trace"]).read_bytes()
    document = import_gavel(TABLE.read_bytes(), trace, pools, gpus_per_node=per_node, pairs=packs)
    return simulate(
        optsched.Instance.from_document(document), {"formulation": formulation, "options": options}, mode="gavel",
        pool_order="random" if random else "listed", seed=seed,
    )  # fmt: skip


def differences(run: dict[str, Any], metrics: dict[str, float | None]) -> dict[str, float]:
    published = {
        "mean_jct": "average_jct_s",
        "makespan": "makespan_s",
        "utilisation": "utilization",
    }
    return {name: (metrics[name] or 0.0) / run[key] - 1.0 for name, key in published.items()}


QUICK = {
    "single60": (
        "allox",
        "fifo_perf",
        "fifo_packed",
        "max_min_fairness_perf",
        "finish_time_fairness_perf",
    ),
    "multi60": ("fifo_perf", "max_min_fairness_perf"),
}
"""The other runs take longer, and are a slow study."""


@needs(RUNS)
@pytest.mark.parametrize(
    "run",
    [
        pytest.param(run, marks=() if run["policy"] in QUICK[run["case"]] else pytest.mark.study)
        for run in runs()
    ],
    ids=lambda run: f"{run['case']}-{run['policy']}",
)
def test_published_runs_are_met(run: dict[str, Any]) -> None:
    if run["policy"] == "gandiva":  # its pairs are drawn
        found = [differences(run, run_of(run, seed).metrics()) for seed in range(5)]
        assert all(abs(np.mean([one[name] for one in found])) <= 0.1 for name in found[0]), found
        return
    result = run_of(run)
    found = differences(run, result.metrics())
    assert max(map(abs, found.values())) <= 0.05, found
    if run["policy"] in (
        "allox",
        "fifo_perf",
        "fifo_packed",
    ):  # no optimum to choose among: job by job
        assert result.completion_times == pytest.approx(
            [run["jct"][str(row)] for row in range(60)], rel=1e-3
        )


@pytest.mark.unit
def test_a_new_job_waits_for_the_next_allocation(make: Callable[..., Trace]) -> None:
    """b comes at 10 s, is seen at 100 s, and has a share only when 500 s have passed since the last allocation."""
    jobs = [
        {"id": name, "steps": 2000.0, "throughput": {"p": 1.0}, "arrival": at}
        for name, at in (("a", 0.0), ("b", 10.0))
    ]
    result = simulate(make(jobs, {"p": 2}), mode="gavel", reset_interval=500.0)
    assert result.jobs.first_start.tolist() == [
        0.0,
        100.0,
    ]  # the first allocation, at 0 s, is always old enough
    later = simulate(
        make([*jobs, jobs[1] | {"id": "c", "arrival": 150.0}], {"p": 3}),
        mode="gavel",
        reset_interval=500.0,
    )
    assert later.jobs.first_start.tolist() == [0.0, 100.0, 600.0]


@pytest.mark.unit
def test_a_round_ends_with_the_last_of_its_jobs(make: Callable[..., Trace]) -> None:
    """Whole steps in a round: 33 steps of 3 s; a round of that job alone takes 99 s."""
    trace = make([{"id": "a", "steps": 70.0, "throughput": {"p": 1.0 / 3.0}}])
    result = simulate(trace, mode="gavel")
    assert result.rounds.end == pytest.approx([99.0, 198.0, 210.0])
    assert result.jobs.finish == pytest.approx([210.0])


@pytest.mark.unit
def test_allox_runs_short_jobs_first_and_stops_none(make: Callable[..., Trace]) -> None:
    """b before a, as 100 + 400 < 300 + 400. c is shorter still, but comes at 150 s, when a has the GPU."""
    jobs = [
        {"id": name, "steps": steps, "throughput": {"p": 1.0}, "arrival": arrival}
        for name, steps, arrival in (("a", 300.0, 0.0), ("b", 100.0, 0.0), ("c", 50.0, 150.0))
    ]
    result = simulate(make(jobs), "allox", mode="gavel", reset_interval=100.0)
    assert result.jobs.first_start.tolist() == [100.0, 0.0, 400.0]
    assert result.jobs.finish.tolist() == [400.0, 100.0, 450.0]


@pytest.mark.unit
def test_jobs_without_a_whole_step_in_a_round_are_dropped(make: Callable[..., Trace]) -> None:
    trace = make(
        [
            {"id": "a", "steps": 5.0, "throughput": {"p": 0.001}},
            {"id": "b", "steps": 900.0, "throughput": {"p": 1.0}},
        ],
        {"p": 2},
    )
    result = simulate(trace, mode="gavel")
    assert result.completed.tolist() == [False, True]
    assert "1 jobs dropped: they make no whole step in a round" in result.notices


def test_what_gavel_does_not_know_is_refused(make: Callable[..., Trace]) -> None:
    elastic = make(
        [
            {
                "id": "a",
                "steps": 5.0,
                "gpus": {"min": 1, "max": 2},
                "throughput": {"p": {"1": 1.0, "2": 2.0}},
            }
        ],
        {"p": 2},
    )
    with pytest.raises(UsageError, match="a fixed number of GPUs only"):
        simulate(elastic, mode="gavel")
    jobs = [{"id": "a", "steps": 5.0, "throughput": {"p": 1.0}}]
    plain = make(jobs)
    with pytest.raises(UsageError, match="srtf is a ranking"):
        simulate(plain, "srtf", mode="gavel")
    failing = make(jobs, {"p": 2}, node_events=[{"at": 5.0, "node": "p-0", "state": "down"}])
    with pytest.raises(UsageError, match="no nodes that fail"):
        simulate(failing, mode="gavel")
