"""Schedules on nodes: what was found to fit can be carried out, and who has no room is named."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import optsched
from optsched import admit

# A private name: the way without a problem of placement, to compare it with the other
from optsched.placement import jobs_without_nodes, over_time

Document = dict[str, Any]


def job(name: str, gpus: int, deadline: float, **more: Any) -> Document:
    """Ten seconds of work on so many GPUs."""
    return {
        "id": name,
        "steps": 10,
        "gpus": gpus,
        "throughput": {"p": 1.0},
        "deadline": deadline,
    } | more


def cluster(jobs: Sequence[Document], nodes: Sequence[Document], **more: Any) -> Document:
    pool = {"name": "p", "gpus_per_node": 3, "nodes": list(nodes), **more}
    return {"format": "optsched-instance/1", "cluster": {"pools": [pool]}, "jobs": list(jobs)}


NODES = ({"name": "n0"}, {"name": "n1"})


@pytest.mark.parametrize(("deadline", "without"), [(10, {"c"}), (20, set())])
def test_gangs_for_which_no_node_has_room_are_named(deadline: float, without: set[str]) -> None:
    """Two nodes of three GPUs hold two gangs of two, though six GPUs are enough for three."""
    given = cluster([job("a", 2, 10), job("b", 2, 10)], NODES)
    if not without:
        given = cluster([job("a", 3, 10), job("b", 3, 10)], NODES)
    decision = admit(given, job("c", 2, deadline))
    assert decision.admitted == ("c",)
    assert set(decision.without_nodes) == without
    assert decision.to_document()["without_nodes"] == dict(decision.without_nodes)


def test_cpus_of_nodes_are_counted() -> None:
    """Three jobs of two CPUs each, on two nodes of three."""
    jobs = [job(name, 1, 10, workload="w") for name in "abc"]
    for one in jobs:
        del one["throughput"]
    given = cluster(jobs[:2], NODES, cpus_per_node=3)
    given["workloads"] = {"w": {"throughput": {"p": 1.0}, "demand": {"cpu": 2}}}
    assert set(admit(given, jobs[2]).without_nodes) == {"c"}


@pytest.mark.parametrize(
    ("holder", "starts"),
    [
        ({"steps": 10, "preemptible": False}, 10.0),
        ({"steps": 99, "exempt_time": 10}, 10.0),
        ({"steps": 99}, 0.0),
    ],
)
def test_gpus_that_are_held_are_free_once_the_job_ends(holder: Document, starts: float) -> None:
    held = job("r", 3, 0) | holder
    del held["deadline"]
    held["running"] = {"pool": "p", "gpus": ["n0/0", "n0/1", "n0/2"], "since": 0.0}
    decision = admit(cluster([held], NODES[:1]), job("x", 3, 20))
    assert decision.plan is not None and decision.plan.schedule is not None
    assert (decision.plan.schedule.start.tolist(), dict(decision.without_nodes)) == ([starts], {})


def test_running_jobs_stay_where_they_are() -> None:
    """Each holds a GPU of another node: no node has room for a gang of three."""
    held = [
        job(name, 1, 10, running={"pool": "p", "gpus": [f"n{n}/0"]}, preemptible=False)
        for n, name in enumerate("ab")
    ]
    decision = admit(cluster(held, NODES), job("c", 3, 10))
    assert set(decision.without_nodes) == {"c"}


def test_nodes_that_open_later_are_counted_from_then_on() -> None:
    given = cluster([job("a", 3, 10)], [NODES[0], {**NODES[1], "available_from": 10}])
    decision = admit(given, [job("b", 3, 20), job("c", 3, 20)])
    assert (decision.admitted, dict(decision.without_nodes)) == (("b", "c"), {})


def test_single_gpus_always_have_room() -> None:
    solution = optsched.solve(cluster([job("a", 1, 10)], NODES), "deadline-elastic")
    assert solution.schedule is not None
    assert jobs_without_nodes(solution.schedule) == {}


@pytest.mark.parametrize("formulation", ["lease", "deadline-elastic", "deadline-fluid"])
def test_a_running_job_with_options_may_be_any_row(formulation: str) -> None:
    """The holder, which the schedule leaves out, is not the first job of the table."""
    option = {"pool": "p", "gpus": 1, "throughput": 1.0}
    jobs = [
        {"id": "a", "steps": 10, "deadline": 1000, "options": [option | {"gpus": 2}]},
        {
            "id": "r",
            "steps": 10,
            "preemptible": False,
            "running": {"pool": "p", "gpus": ["n0/0"]},
            "options": [option | {"share": 0.5}],
        },
    ]
    solution = optsched.solve(cluster(jobs, NODES[:1]), formulation)
    assert solution.schedule is not None
    assert jobs_without_nodes(solution.schedule) == {}


@pytest.mark.property
def test_counts_of_free_gpus_place_as_best_fit_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where only free GPUs of nodes count, nodes are found without a problem of placement."""
    random, calls, found = np.random.default_rng(3), [], 0

    def counted(*given: Any) -> Any:
        calls.append(1)
        return real(*given)

    real = over_time.place_beside
    for _ in range(20):
        jobs = [
            job(f"j{n}", int(gpus), 10.0 * rounds)
            for n, (gpus, rounds) in enumerate(random.integers(1, 4, (9, 2)).tolist())
        ]
        nodes = [{"name": f"n{n}"} for n in range(4)]
        given = cluster(jobs, nodes)
        schedule = optsched.solve(given, "deadline-elastic", admission=True, program=False).schedule
        assert schedule is not None
        with monkeypatch.context() as patch:
            patch.setattr(over_time._WholeGpus, "of", lambda *_: None)
            expected = jobs_without_nodes(schedule)
        with monkeypatch.context() as patch:
            patch.setattr(over_time, "place_beside", counted)
            assert jobs_without_nodes(schedule) == expected
        found += not calls
        calls.clear()
    assert 0 < found < 20
