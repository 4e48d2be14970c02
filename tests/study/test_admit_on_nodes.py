"""Admission where nodes are down or take no more work, and where jobs run that hold what they have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

import optsched
from optsched import admit
from optsched.rounds import Scheduler

Document = dict[str, Any]


def job(name: str, steps: float, deadline: float | None = None, **more: Any) -> Document:
    """A job that makes one step per second on any GPU."""
    due = {} if deadline is None else {"deadline": deadline}
    return {"id": name, "steps": steps, "throughput": {"p": 1.0}, **due, **more}


def cluster(jobs: Sequence[Document], gpus: int = 1, **states: Any) -> Document:
    """Two nodes, ``n0`` and ``n1``, with further fields of these."""
    nodes = [{"name": name, **states.get(name, {})} for name in ("n0", "n1")]
    pool = {"name": "p", "gpus_per_node": gpus, "nodes": nodes}
    return {
        "format": "optsched-instance/1",
        "round": 10.0,
        "cluster": {"pools": [pool]},
        "jobs": list(jobs),
    }


def runs(*gpus: str, **more: Any) -> Document:
    return {"running": {"pool": "p", "gpus": list(gpus), **more}}


def plan_of(decision: optsched.AdmissionDecision) -> dict[str, tuple[float, float]]:
    """Begin and end of each job of the plan."""
    assert decision.plan is not None and decision.plan.schedule is not None
    assert decision.plan.certificate.ok
    records = decision.plan.schedule.to_records()
    return {record["job"]: (record["start"], record["end"]) for record in records}


# --- what runs on nodes that take no more work --------------------------------------------------


@pytest.mark.parametrize("state", ["drain", "down", "reserved"])
def test_what_runs_on_a_closed_node_is_in_nobody_s_way(state: str) -> None:
    """The capacity lacks the node already."""
    held = job("r", 100, preemptible=False, **runs("n1/0"))
    decision = admit(cluster([held], n1={"state": state}), job("x", 10, 15))
    assert plan_of(decision) == {"x": (0.0, 10.0)}


def test_what_runs_on_a_node_that_opens_later_holds_it_from_then_on() -> None:
    held = job("r", 100, preemptible=False, **runs("n1/0"))
    given = cluster([held], n1={"available_from": 20.0})
    decision = admit(given, [job("x", 30, 30), job("y", 10, 35), job("z", 10, 110)], advise=False)
    assert (decision.admitted, [one.proven for one in decision.refused]) == (("x", "z"), [True])


def test_what_runs_on_open_and_closed_nodes_holds_what_is_open() -> None:
    wide = {"gpus": 2, "throughput": {"p": {"2": {"2": 1.0}}}}
    held = job("r", 50, preemptible=False, **wide, **runs("n0/0", "n1/0"))
    given = cluster([held], gpus=2, n1={"state": "drain"})
    decision = admit(given, [job("x", 10, 10), job("y", 10, 15)], advise=False)
    assert decision.admitted == ("x",)


@pytest.mark.parametrize(
    ("state", "plan"),
    [
        ("drain", {"r": (0.0, 100.0), "x": (0.0, 10.0)}),  # it goes on where it runs
        ("down", {"x": (0.0, 10.0), "r": (10.0, 115.0)}),  # it starts again, on the other node
    ],
)
def test_a_job_with_a_deadline_that_cannot_be_preempted_stays_unless_its_node_is_down(
    state: str, plan: dict[str, tuple[float, float]]
) -> None:
    held = job("r", 100, 200, preemptible=False, restart_cost=5, **runs("n1/0"))
    given = cluster([held], n1={"state": state})
    decision = admit(given, [job("x", 10, 15), job("y", 100, 105)], advise=False)
    assert plan_of(decision) == plan
    assert [one.job for one in decision.refused] == ["y"]


@pytest.mark.parametrize("state", ["drain", "down"])
@pytest.mark.parametrize(("deadline", "admitted"), [(54.0, False), (55.0, True)])
def test_a_job_that_has_to_leave_its_node_restarts(
    state: str, deadline: float, admitted: bool
) -> None:
    moved = job("r", 50, deadline, restart_cost=5, **runs("n1/0"))
    decision = admit(cluster([moved], n1={"state": state}), "r", advise=False)
    assert decision.all_admitted is admitted
    assert not admitted or plan_of(decision) == {"r": (0.0, 55.0)}


@pytest.mark.parametrize("preemptible", [True, False])
@pytest.mark.parametrize("deadline", [None, 500.0])
def test_rounds_start_beside_a_draining_node_whom_admission_lets_in(
    preemptible: bool, deadline: float | None
) -> None:
    """The round before has put ``r`` on its node: of two jobs on two nodes, one stays."""
    scheduler = Scheduler(
        cluster([job("r", 300, deadline, preemptible=preemptible, **runs("n1/0"))]),
        {"formulation": "deadline-elastic"},
        isolate=False,
    )
    scheduler.node_drain("n1", now=0.0)
    scheduler.submit(job("x", 10, 15), now=0.0)
    plan = scheduler.solve(now=0.0)
    assert (dict(plan.declined), plan.fallback) == ({}, None)
    assert "x" in {item.job for item in plan.start}
    kept = {item.job for item in plan.keep}
    assert kept == (set() if preemptible else {"r"})


def test_rounds_count_the_restart_of_a_job_that_has_to_leave_its_node() -> None:
    """It would be in time only without the restart."""
    moved = job("r", 50, 52, restart_cost=5, **runs("n1/0"))
    for state, declined in (("up", []), ("drain", ["r"])):
        given = cluster([moved], n1={"state": state})
        scheduler = Scheduler(given, {"formulation": "deadline-elastic"}, isolate=False)
        assert [name for name, _ in scheduler.solve(now=0.0).declined] == declined


# --- who keeps what it has ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "due", [{}, {"deadline": 500.0}, {"deadline": 500.0, "deadline_kind": "soft"}]
)
def test_nobody_takes_the_gpus_of_a_job_within_its_exempt_time(due: Document) -> None:
    """It makes way as soon as it may."""
    held = job("r", 100, exempt_time=50, **runs("n0/0", since=0.0)) | due
    given = cluster([held], n1={"state": "down"})
    decision = admit(given, [job("x", 10, 55), job("y", 10, 105)], advise=False)
    assert (decision.admitted, [one.job for one in decision.refused]) == (("y",), ["x"])
    assert plan_of(decision)["y"][0] == 50.0


def test_an_exempt_time_that_has_passed_holds_nothing() -> None:
    held = job("r", 100, exempt_time=50, **runs("n0/0", since=-50.0))
    decision = admit(cluster([held], n1={"state": "down"}), job("x", 10, 10))
    assert plan_of(decision) == {"x": (0.0, 10.0)}


@pytest.mark.parametrize("deadline", [None, 500.0])
def test_a_job_that_goes_on_in_no_configuration_of_its_own_keeps_its_gpus(
    deadline: float | None,
) -> None:
    """It runs on three GPUs, and has rates for 1, 2 and 4: when it ends is not known."""
    rates = {"throughput": {"p": {"1": 1.0, "2": 2.0, "4": 4.0}}}
    elastic = {"gpus": {"min": 1, "max": 4, "levels": [1, 2, 4]}, **rates}
    held = job("r", 100, deadline, preemptible=False, **runs("n0/0", "n0/1", "n0/2")) | elastic
    given = cluster([held], gpus=4, n1={"state": "down"})
    wide, narrow = job("x", 10, 400, gpus=4), job("y", 10, 10)
    decision = admit(given, [wide, narrow], advise=False)
    assert decision.admitted == ("y",)
    assert plan_of(decision) == {"y": (0.0, 10.0)}
    assert [note.startswith("job r keeps its GPUs") for note in decision.notes] == [True]
    assert [(one.job, one.proven) for one in decision.refused] == [("x", False)]
    late = admit(given, job("z", 10, 5), advise=False)
    assert [one.proven for one in late.refused] == [True]  # whenever r ends
    if deadline is not None:
        asked = admit(given, "r", advise=False)
        assert [(one.job, one.proven) for one in asked.refused] == [("r", False)]


def test_a_job_that_goes_on_where_no_other_node_could_take_it_is_in_nobody_s_way() -> None:
    """Its pool has only the node that drains."""
    given = cluster([job("r", 100, 200, preemptible=False, **runs("n1/0"))])
    given["cluster"]["pools"] = [
        {"name": "p", "gpus_per_node": 1, "nodes": [{"name": "n1", "state": "drain"}]},
        {"name": "q", "gpus_per_node": 1, "nodes": 1},
    ]
    decision = admit(given, job("x", 10, 15, throughput={"q": 1.0}))
    assert plan_of(decision) == {"x": (0.0, 10.0)}
    assert [note.startswith("job r keeps its GPUs") for note in decision.notes] == [True]


def test_what_a_decision_does_not_read_is_told() -> None:
    decision = admit(cluster([job("a", 10, 20)]), job("b", 10, 12, after=["a"]))
    assert [note.endswith("precedences (after)") for note in decision.notes] == [True]
    assert decision.to_document()["notes"] == list(decision.notes)
    assert admit(cluster([job("a", 10, 20)]), job("b", 10, 12)).notes == ()
