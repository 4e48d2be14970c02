"""Schedules in solution files whose rows stand for what nobody can do."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

import optsched
from formulations.deadline_elastic import DeadlineElastic
from formulations.elasticflow import ElasticFlow
from optsched import Solution


@pytest.fixture(scope="module")
def solution() -> Solution:
    instance = optsched.Instance.from_arrays(
        pools={"a": 2}, throughput=[[1.0]] * 4, steps=[10.0, 20.0, 30.0, 40.0]
    )
    return optsched.solve(instance, "allox")


def fields(solution: Solution, document: dict[str, Any]) -> list[str]:
    return [finding.field for finding in optsched.verify(solution.instance, document).findings]


def test_a_schedule_that_was_found_is_right(solution: Solution) -> None:
    document = solution.to_document()
    assert len(document["schedule"]) == 4 and fields(solution, document) == []


@pytest.mark.parametrize("row", range(4))
def test_a_row_that_stands_twice_is_refused(solution: Solution, row: int) -> None:
    document = deepcopy(solution.to_document())
    document["schedule"].append(document["schedule"][row])
    assert fields(solution, document) == ["schedule[4].start"]


def test_a_job_that_begins_before_it_has_ended_is_refused(solution: Solution) -> None:
    document = deepcopy(solution.to_document())
    last = dict(document["schedule"][-1])
    last["start"], last["end"] = (last["start"] + last["end"]) / 2, last["end"] + 5.0
    document["schedule"].append(last)
    assert fields(solution, document) == ["schedule[4].start"]


def test_a_row_that_is_gone_is_refused(solution: Solution) -> None:
    document = deepcopy(solution.to_document())
    del document["schedule"][-1]
    assert "schedule" in fields(solution, document)


def test_a_lease_that_is_given_to_another_job_is_refused() -> None:
    """One job then has a lease too many, and another one is left out, of which nothing is said."""
    leased = optsched.solve("@leases", "lease")
    document = leased.to_document()
    document["schedule"][7]["job"] = "j0"
    assert "schedule" in fields(leased, document)


@pytest.mark.parametrize("formulation", ["deadline-elastic", "elasticflow"])
@pytest.mark.parametrize("admission", [True, False])
@pytest.mark.parametrize("deadline", [12.0, 30.0])
def test_no_plan_is_made_by_rule_to_check_one(
    formulation: str, admission: bool, deadline: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of three jobs are done by the first deadline, and all by the second."""
    document = {
        "format": "optsched-instance/1",
        "now": 0.0,
        "cluster": {"pools": [{"name": "v100", "nodes": 1, "gpus_per_node": 2}]},
        "jobs": [
            {
                "id": str(n),
                "gpus": 1,
                "steps": 10.0,
                "deadline": deadline,
                "throughput": {"v100": 1.0},
            }
            for n in range(3)
        ],
    }
    instance = optsched.Instance.from_document(document)
    solution = optsched.solve(instance, formulation, admission=admission)
    monkeypatch.setattr(DeadlineElastic, "plan_by_rule", None)
    monkeypatch.setattr(ElasticFlow, "plan_by_rule", None)
    assert optsched.verify(solution).ok
    if solution.schedule is not None:
        found = solution.to_document()
        found["schedule"][0]["end"] += 50.0
        assert not optsched.verify(instance, found).ok
