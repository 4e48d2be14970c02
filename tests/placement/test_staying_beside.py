"""A file's placement is checked beside running jobs that cannot be preempted: one of their nodes
drains, and on the other they hold GPUs, CPUs and memory."""

from __future__ import annotations

from typing import Any

import pytest

import optsched
from optsched.placement import check_placement


def document(**of_staying: Any) -> dict[str, Any]:
    nodes = [
        {"name": "n0", "gpus": 2, "state": "drain", "cpus": 8},
        {"name": "n1", "gpus": 2, "cpus": 8},
        {"name": "n2", "gpus": 2, "cpus": 8},
    ]
    staying = {
        "id": "s",
        "gpus": 2,
        "throughput": {"p": {"2": {"2": 1.0}}},
        "preemptible": False,
        "running": {"pool": "p", "gpus": ["n0/0", "n1/0"]},
        "workload": "w",
        **of_staying,
    }
    other = {"id": "a", "gpus": 1, "throughput": {"p": 1.0}, "workload": "w"}
    return {
        "format": "optsched-instance/1",
        "cluster": {"pools": [{"name": "p", "nodes": nodes}]},
        "tenants": [{"name": "A"}, {"name": "B"}],
        "workloads": {"w": {"demand": {"cpu": 5.0}}},
        "jobs": [staying, other],
    }


def found_beside(given: dict[str, Any], where: str, *constraints: Any) -> list[str]:
    """What the check says of the file where the other job is on this GPU."""
    solution = optsched.solve(given, "max-throughput", constraints=constraints)
    written = optsched.place(solution).to_document()
    del written["metrics"]["fragmentation"]
    (entry,) = [each for each in written["placement"] if each.get("job") == "a"]
    assert entry["gpus"] and entry["gpus"][0].startswith("n2")
    entry["gpus"] = [where]
    return [f"{each.field}: {each.message}" for each in optsched.verify(given, written).findings]


def test_cpus_that_a_staying_job_needs_are_used() -> None:
    assert not found_beside(document(), "n2/1")
    assert any("need 10 of cpu of node n1" in words for words in found_beside(document(), "n1/1"))


def test_a_job_is_apart_from_one_that_stays() -> None:
    given = document()
    given["workloads"]["w"] = {}
    apart = {"kind": "anti-affinity", "jobs": ["s", "a"]}
    found = found_beside(given, "n1/1", apart)
    assert any("jobs s and a are both on node n1" in words for words in found)


@pytest.mark.parametrize("tenant", ["A", "B"])
def test_cells_are_around_the_jobs_that_stay(tenant: str) -> None:
    """The pairs of A are around the job that stays, on the node that drains too."""
    given = document(tenant="A")
    given["workloads"]["w"] = {}
    given["jobs"][1]["tenant"] = tenant
    cells = [
        {"kind": "cells", "tenant": "A", "owns": {"2": 2}, "reserved": True},
        {"kind": "cells", "tenant": "B", "owns": {"2": 1}, "reserved": True},
    ]
    if tenant == "B":
        (words,) = found_beside(given, "n1/1", *cells)
        assert "the cells of tenants A, B cannot be where their jobs are" in words
    else:
        flaws = [each.message for each in flaws_of(given, "n1/1", cells)]
        assert not flaws
        assert flaws_of(given, "n2/0", cells)


def flaws_of(given: dict[str, Any], where: str, cells: list[Any]) -> list[Any]:
    """What `check_placement` says of the other job on this GPU."""
    solution = optsched.solve(given, "max-throughput")
    C, rows = solution.allocation.classes, solution.allocation.rows  # type: ignore[union-attr]
    row = int((rows.job == 1).nonzero()[0][0])
    return check_placement(
        C, rows.job[[row]], rows.partner[[row]], rows.column[[row]], [[where]], cells
    )
