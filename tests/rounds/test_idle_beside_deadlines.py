"""GPUs that a plan of deadlines leaves idle: who runs on them, and that no deadline is missed for it."""

from __future__ import annotations

from typing import Any

import pytest

import optsched
from optsched.simulation import simulate

PLANS = ["deadline-elastic", "deadline-fluid", "elasticflow", "lease"]


def job(name: str, rates: dict[str, float], gpus: int = 1, **more: Any) -> dict[str, Any]:
    return {"id": name, "steps": 100.0, "gpus": gpus, "throughput": rates, **more}


def instance(*jobs: dict[str, Any]) -> optsched.Instance:
    """One GPU of pool a, and four of pool b."""
    pools = [
        {"name": name, "nodes": 1, "gpus_per_node": gpus} for name, gpus in (("a", 1), ("b", 4))
    ]
    return optsched.Instance.from_document(
        {"format": "optsched-instance/1", "round": 5.0, "cluster": {"pools": pools}, "jobs": list(jobs)}
    )  # fmt: skip


@pytest.mark.parametrize("formulation", PLANS)
@pytest.mark.parametrize("admission", [True, False])
def test_jobs_without_a_deadline_run_on_gpus_that_the_plan_leaves_idle(
    formulation: str, admission: bool
) -> None:
    given = instance(
        job("due", {"a": 1.0}, deadline=200.0),
        job("free", {"a": 1.0, "b": 0.1}),
        job("wide", {"b": 0.1}, 3),
    )
    policy = {"formulation": formulation, "options": {"admission": admission}}
    plan = optsched.Scheduler(given, policy, isolate=False).solve(now=0.0)
    assert sorted(item.job for item in plan.start) == ["due", "free", "wide"]
    assert plan.declined == () and plan.fallback is None
    # A plan alone says that it has no place for them.
    alone = optsched.solve(given, formulation)
    assert [name for name, _ in alone.unplaced] == ["free", "wide"]


@pytest.mark.parametrize("formulation", PLANS)
def test_a_job_that_arrives_later_is_planned_and_takes_no_idle_gpu_before(formulation: str) -> None:
    later = job("late", {"b": 1.0}, deadline=200.0, arrival=2.0)
    given = instance(job("now", {"b": 1.0}, deadline=200.0), later)
    plan = optsched.Scheduler(given, {"formulation": formulation}, isolate=False).solve(now=0.0)
    assert plan.fallback is None
    assert [item.job for item in plan.start] == ["now"]


@pytest.mark.property
@pytest.mark.parametrize("formulation", PLANS)
@pytest.mark.parametrize(
    ("restart_cost", "more", "starts", "ends"),
    [(30.0, {}, 1, 200.0), (0.0, {}, 3, 195.0), (0.0, {"exempt_time": 60.0}, 1, 200.0)],
)
def test_a_job_that_waits_for_its_place_in_the_plan_runs_elsewhere_only_if_it_can_leave(
    formulation: str, restart_cost: float, more: dict[str, Any], starts: int, ends: float
) -> None:
    """The last job waits for a until 100 s. Of b it could have a GPU for the first 10 s only, before
    the gang has all four: a restart after that would make it late.
    """
    given = instance(
        job("first", {"a": 1.0}, deadline=100.0),
        job("short", {"b": 10.0}, 2, deadline=10.0),
        job("gang", {"b": 2.0}, 4, deadline=61.0),
        job("last", {"a": 1.0, "b": 0.1}, deadline=205.0, **more),
    )
    result = simulate(
        optsched.load_trace(given), {"formulation": formulation}, replan="events",
        restart_cost=restart_cost,
    )  # fmt: skip
    assert result.jobs.finish.tolist() == pytest.approx([100.0, 10.0, 60.0, ends])
    assert result.to_columns()["starts"][-1] == starts


@pytest.mark.property
@pytest.mark.parametrize("formulation", ["deadline-fluid", "elasticflow", "lease"])
@pytest.mark.parametrize(
    ("rate", "due", "starts", "end"), [(0.48, 209.0, 2, 182.0), (0.47, 209.0, 1, 200.0)]
)
def test_a_planned_job_that_waits_starts_on_idle_gpus_where_it_ends_in_time(
    formulation: str, rate: float, due: float, starts: int, end: float
) -> None:
    """The plan has the last job wait for a until 100 s. On b alone it would be done after 100 / rate s: by
    its deadline, so that it may stay there, or too late, when it has to pay for its move.
    """
    given = instance(
        job("first", {"a": 1.0}, deadline=100.0), job("last", {"a": 1.0, "b": rate}, deadline=due)
    )
    result = simulate(
        optsched.load_trace(given), {"formulation": formulation}, replan="events", restart_cost=30.0
    )
    assert result.jobs.finish.tolist() == pytest.approx([100.0, end])
    assert result.to_columns()["starts"][-1] == starts


@pytest.mark.parametrize("formulation", ["deadline-fluid", "lease", "deadline-elastic"])
@pytest.mark.parametrize(("due", "standing"), [(900.0, "declined"), (2500.0, "admitted")])
def test_no_newcomer_is_promised_the_gpus_of_a_job_that_cannot_be_preempted(
    formulation: str, due: float, standing: str
) -> None:
    """It holds one of the two GPUs until 1600 s, so that a gang of two waits for its end."""
    pools = [{"name": "a", "nodes": 1, "gpus_per_node": 2}]
    first = {"id": "first", "steps": 1600, "throughput": {"a": 1.0}, "deadline": 3700}
    document = {
        "format": "optsched-instance/1",
        "round": 300.0,
        "cluster": {"pools": pools},
        "jobs": [first | {"preemptible": False}],
    }
    policy = {"formulation": formulation, "options": {"admission": True}}
    scheduler = optsched.Scheduler(document, policy, isolate=False)
    scheduler.solve(now=0.0)
    gang = {"id": "gang", "steps": 600, "gpus": 2, "throughput": {"a": {"2": 2.5}}}
    scheduler.submit(gang | {"deadline": due}, now=300.0)
    scheduler.solve(now=300.0)
    found = scheduler.state.to_document()["service"]["gang"]["standing"]
    assert (found == "declined") == (standing == "declined")
