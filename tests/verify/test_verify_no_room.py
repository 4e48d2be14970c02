"""Whole jobs for which nodes have no room: why, in words, and `verify` finds the same."""

from __future__ import annotations

from typing import Any

import pytest

import optsched


def instance_of(cpus: float, jobs: list[tuple[float, float]]) -> dict[str, Any]:
    """Jobs with a share of a GPU and CPUs, on two nodes of two GPUs."""
    option = {"pool": "v", "gpus": 1, "nodes": 1, "cost": 1.0}
    return {
        "format": "optsched-instance/1",
        "cluster": {
            "pools": [{"name": "v", "nodes": [{"name": n, "gpus": 2, "cpus": cpus} for n in "ab"]}]
        },
        "jobs": [
            {"id": f"j{number}", "options": [option | {"share": share, "uses": {"cpu": cpu}}]}
            for number, (share, cpu) in enumerate(jobs)
        ],
    }


@pytest.mark.parametrize(
    ("document", "words"),
    [
        pytest.param(
            instance_of(17.0, [(0.4, 9.0), (0.6, 9.0)] * 2),
            "pool v: ",
            id="capacities",
        ),
        pytest.param(
            instance_of(10.0, [(0.5, 7.0), (0.5, 4.0), (0.5, 4.0), (0.5, 4.0)]),
            "jobs are only on nodes that have room for all of their GPUs",
            id="nodes",
        ),
    ],
)
def test_why_there_is_no_room(document: dict[str, Any], words: str) -> None:
    instance = optsched.load(document)
    solution = optsched.solve(instance, "generalised-assignment", constraints=["placeable"])
    assert solution.status == "infeasible"
    found = [conflict.words for conflict in solution.conflicts]
    assert any(one.startswith(words) for one in found)
    assert not any(one.startswith("row ") for one in found)
    assert len(set(found)) == len(found)
    verdict = optsched.verify(instance, solution.to_document())
    assert verdict.ok, verdict
    # Requirements that do not conflict are found out
    fewer = solution.to_document() | {"conflicts": found[:1]}
    assert not optsched.verify(instance, fewer).ok
