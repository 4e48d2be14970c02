"""A job with a deadline that needs more of a resource than there is: the resource is the reason."""

from __future__ import annotations

from typing import Any

import pytest
from plan_instances import made, verified

import optsched
from optsched.instance import Instance

PLANS = ["deadline-elastic", "deadline-fluid", "elasticflow", "lease"]


def option(uses: dict[str, float], duration: float = 100.0) -> dict[str, Any]:
    return {"pool": "p", "gpus": 1, "duration": duration, "uses": uses}


def with_licences(capacity: float, *options: dict[str, Any]) -> Instance:
    return made(
        cluster={
            "pools": [{"name": "p", "nodes": 1, "gpus_per_node": 1}],
            "resources": [{"name": "lic", "capacity": capacity}],
        },
        jobs=[{"id": "a", "deadline": 500, "options": list(options)}],
        round=50,
    )


@pytest.mark.parametrize("plan", PLANS)
def test_the_resource_of_which_there_is_too_little_is_named(plan: str) -> None:
    solution = verified(optsched.solve(with_licences(1, option({"lic": 2})), plan))
    assert [conflict.words for conflict in solution.conflicts] == [
        "job a needs 2 lic at a time, and the capacity is 1"
    ]


def test_the_resource_is_not_to_blame_where_another_option_fits() -> None:
    instance = with_licences(1, option({"lic": 2}), option({"lic": 1}, duration=600.0))
    solution = verified(optsched.solve(instance, "deadline-elastic"))
    (conflict,) = solution.conflicts
    assert conflict.words == (
        "job a needs at least 600 s, on 1 GPU of p, and has 500 s before its deadline, 500 s"
    )


def test_the_capacity_that_a_calendar_states_counts() -> None:
    instance = with_licences(9, option({"lic": 5}))
    calendar = {"lic": [1.0, 3.0, 2.0]}
    solution = verified(optsched.solve(instance, "lease", options={"capacity": calendar}))
    (conflict,) = solution.conflicts
    assert conflict.words == "job a needs 5 lic at a time, and the capacity is 3"


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("cpus", [8, None])
def test_nodes_that_open_later_bring_their_cpus(plan: str, cpus: int | None) -> None:
    """Two jobs at a time, once the second node is open; if that states no CPUs, they have no limit."""
    later = {"name": "p1", "gpus": 2, "cpus": cpus, "available_from": 50.0}
    first = {"name": "p0", "gpus": 1, "cpus": 0}
    three = [
        {"id": name, "deadline": 250, "options": [option({"cpu": 4})]} for name in ("a", "b", "c")
    ]
    instance = made(
        cluster={"pools": [{"name": "p", "nodes": [first, later]}]}, jobs=three, round=50
    )
    solution = verified(optsched.solve(instance, plan))
    assert solution.schedule is not None, solution.conflicts
    assert min(solution.schedule.start.tolist()) >= 50.0


def test_admission_names_the_resource() -> None:
    decision = optsched.admit(with_licences(1, option({"lic": 2})), ["a"])
    (refusal,) = decision.refused
    assert refusal.words == "job a needs 2 lic at a time, and the capacity is 1"
