"""Figures of answers, against numbers worked out by hand and against a loop over jobs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import optsched
from optsched.registry import names

# Private names: checks of points that no engine has made
from optsched.solution.measures import fastest_rate, jain_index, measure, shortest_duration


def instance(**change: Any) -> optsched.Instance:
    """One pool of 2 GPUs at 3 USD/h, two jobs that want all of it, one that fits nowhere."""
    document: dict[str, Any] = {
        "format": "optsched-instance/1", "name": "two", "now": 100,
        "cluster": {"pools": [{"name": "p", "nodes": 1, "gpus_per_node": 2, "cost_per_gpu_hour": 3.0}]},
        "jobs": [
            {"id": "a", "gpus": 2, "steps": 100, "steps_done": 20, "deadline": 300, "throughput": {"p": 2.0}},
            {"id": "b", "gpus": 2, "steps": 90, "deadline": 130, "throughput": {"p": 3.0}},
            {"id": "wide", "gpus": 3, "steps": 1, "deadline": 1000, "throughput": {"p": 3.0}},
            {"id": "later", "gpus": 1, "arrival": 200, "steps": 10, "throughput": {"p": 1.0}},
        ],
    }  # fmt: skip
    return optsched.Instance.from_document(document | change)


def test_an_allocation_by_hand() -> None:
    """Total throughput gives b everything: it ends after 30 s, exactly at its deadline."""
    problem = instance()
    candidates = optsched.compile(problem)
    found = measure(optsched.solve(problem, "max-throughput"), candidates)
    assert found is not None
    assert found.to_document() == {
        "jobs": 2, "idle": 1, "smallest_share": 0.0, "mean_share": 0.5, "fairness": 0.5, "utilisation": 1.0,
        "cost_per_hour": 6.0, "makespan": None, "last_end": 30.0, "deadlines": 3, "deadlines_met": 1,
    }  # fmt: skip
    fair = measure(optsched.solve(problem, "isolated"), candidates)
    assert fair is not None
    assert (fair.smallest_share, fair.mean_share, fair.fairness) == (0.5, 0.5, 1.0)
    assert (fair.makespan, fair.last_end, fair.idle) == (80.0, 80.0, 0)
    assert (fair.deadlines, fair.deadlines_met) == (
        3,
        1,
    )  # a in 80 s of 200, b in 60 s of 30, wide never


def test_a_schedule_by_hand() -> None:
    """One after the other, b (30 s) first: a ends after 70 s, the job that comes later after all or beside nobody."""
    jobs = [
        {"id": "a", "gpus": 2, "steps": 80, "deadline": 300, "throughput": {"p": 2.0}},
        {"id": "b", "gpus": 2, "steps": 90, "deadline": 125, "throughput": {"p": 3.0}},
    ]
    problem = instance(jobs=jobs)
    solution = optsched.solve(problem, "makespan-unrelated")
    found = measure(solution, optsched.compile(problem))
    assert solution.schedule is not None and found is not None
    first = 30.0 if solution.schedule.job[0] == 1 else 40.0
    shares = sorted([1.0, (70.0 - first) / 70.0])
    assert found.smallest_share == pytest.approx(shares[0])
    assert found.mean_share == pytest.approx(sum(shares) / 2)
    assert (found.makespan, found.utilisation, found.cost_per_hour) == (70.0, 1.0, 6.0)
    assert (found.deadlines, found.deadlines_met) == (2, 1)


def test_what_has_no_answer_has_no_measures() -> None:
    solution = optsched.solve("@infeasible")
    assert measure(solution, solution.candidates) is None


def test_pools_without_a_price_have_no_cost() -> None:
    problem = instance(cluster={"pools": [{"name": "p", "nodes": 1, "gpus_per_node": 2}]})
    for formulation in ("max-throughput", "makespan-unrelated"):
        found = measure(optsched.solve(problem, formulation), optsched.compile(problem))
        assert found is not None and found.cost_per_hour is None


def test_what_uses_no_gpus_costs_nothing() -> None:
    problem = instance(jobs=[{"id": "a", "gpus": 1, "steps": 80, "throughput": {"p": 2.0}}])
    found = measure(optsched.solve(problem, "cost"), optsched.compile(problem))
    assert found is not None and (found.utilisation, found.cost_per_hour) == (0, 0)


def test_nobody_to_measure() -> None:
    problem = instance(jobs=[])
    found = measure(optsched.solve(problem, "makespan-unrelated"), optsched.compile(problem))
    assert found is not None
    assert (found.jobs, found.idle, found.deadlines) == (0, 0, 0)
    assert (
        found.smallest_share
        is found.mean_share
        is found.fairness
        is found.makespan
        is found.utilisation
        is None
    )
    assert found.cost_per_hour == 0


def test_durations_that_are_stated_are_exact() -> None:
    options = [
        {"pool": "p", "gpus": 1, "duration": 50.0, "throughput": 9.0},
        {"pool": "p", "gpus": 2, "throughput": 1.0},
    ]
    problem = instance(jobs=[{"id": "a", "steps": 100, "steps_done": 50, "options": options}])
    candidates = optsched.compile(problem)
    assert shortest_duration(candidates).tolist() == [
        25.0
    ]  # half of 50 s; not 50 steps at 9 or at 1 steps/s
    assert fastest_rate(candidates).tolist() == [9.0]


REFUSING = ("smd", "allox", "sum-completion", "gap", "generalised-assignment", "mig-pack")
"""Formulations that do not take gangs at plain rates."""


@pytest.mark.parametrize(
    ("name", "formulation"),
    [
        *(("@quickstart", name) for name in names("formulation") if not name.startswith(REFUSING)),
        ("@smd", "smd"),
        ("@unrelated", "allox"),
        ("@packing", "makespan"),
        ("@packing", "isolated"),
    ],
)
def test_against_a_loop_over_jobs(name: str, formulation: str) -> None:
    solution = optsched.solve(name, formulation)
    problem, candidates = solution.instance, optsched.compile(optsched.load(name))
    found = measure(solution, candidates)
    assert found is not None
    C = candidates.classes(frozenset())
    ends, shares = {}, {}
    for row, job in enumerate(problem.jobs):
        rates = [
            C.rate_a[c]
            for c in range(C.columns)
            if C.class_b[c] < 0 and C.class_a[c] == C.of_job[row]
        ]
        left = job.steps - job.steps_done
        if solution.schedule is not None:
            mine = solution.schedule.end[solution.schedule.job == row]
            ends[job.id] = float(mine.max() - problem.now) if len(mine) else math.inf
        else:
            rate = solution.throughput[job.id]
            ends[job.id] = left / rate if rate else math.inf
        shares[job.id] = left / max(rates) / ends[job.id]
    values = np.array(list(shares.values()))
    assert found.smallest_share == pytest.approx(values.min(), abs=1e-12)
    assert found.mean_share == pytest.approx(values.mean())
    jain = values.sum() ** 2 / len(values) / (values**2).sum() if values.any() else None
    assert found.fairness == (None if jain is None else pytest.approx(jain))
    assert found.idle == sum(math.isinf(end) for end in ends.values())
    assert (found.makespan or math.inf) == pytest.approx(max(ends.values()))
    due = {job.id: job.deadline - problem.now for job in problem.jobs if job.deadline is not None}
    assert found.deadlines == len(due)
    assert found.deadlines_met == sum(ends[job] <= left * (1 + 1e-6) for job, left in due.items())


def test_the_makespan_measured_is_the_makespan_optimised() -> None:
    for formulation in ("makespan", "makespan-unrelated"):
        solution = optsched.solve("@quickstart", formulation)
        found = measure(solution, solution.candidates)
        assert found is not None and found.makespan == pytest.approx(solution.objective, rel=1e-6)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=20))
def test_jain_s_index_lies_between_its_extremes(shares: list[float]) -> None:
    index = jain_index(np.array(shares))
    if max(shares) == 0:
        assert index is None
    else:
        assert index is not None and 1 / len(shares) - 1e-9 <= index <= 1 + 1e-9


def test_jain_s_index_of_equals_and_of_one() -> None:
    assert jain_index(np.full(7, 1e-200)) == pytest.approx(1.0)
    assert jain_index(np.array([0.0, 0.0, 3.0, 0.0])) == 0.25
    assert jain_index(np.array([])) is None
