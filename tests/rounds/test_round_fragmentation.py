"""Plans say how much of what is free the jobs cannot use."""

from __future__ import annotations

from typing import Any

import pytest

import optsched
from optsched.rounds import RoundPolicy, RoundState


def state(jobs: list[dict[str, Any]]) -> RoundState:
    nodes = [{"name": f"n{number}", "gpus": 4} for number in range(2)]
    document = {
        "format": "optsched-instance/1",
        "cluster": {"pools": [{"name": "v", "nodes": nodes}]},
        "jobs": jobs,
    }
    return RoundState.first(optsched.load(document), RoundPolicy(formulation="max-throughput"))


def gang(name: str, gpus: int, **more: Any) -> dict[str, Any]:
    return {"id": name, "gpus": gpus, "throughput": {"v": {str(gpus): {"1": float(gpus)}}}, **more}


def test_free_gpus_of_two_nodes_are_lost_for_a_gang_on_one() -> None:
    """Gangs of 3 leave one GPU on each node: no job has room there."""
    plan = optsched.solve_round(state([gang("a", 3), gang("b", 3), gang("c", 3)]))
    assert plan.fragmentation is not None
    assert plan.fragmentation.free.tolist() == [1.0, 1.0]
    assert plan.fragmentation.gpus == pytest.approx(2.0)
    assert plan.to_document()["fragmentation"] == {"free": 2.0, "gpus": 2.0}
    assert "2 of 2 free GPUs" in plan.summary()


def test_single_gpus_lose_nothing() -> None:
    plan = optsched.solve_round(state([gang(name, 1) for name in "abc"]))
    assert plan.fragmentation is not None
    assert plan.fragmentation.total == 5.0
    assert plan.fragmentation.gpus == 0.0


def test_shares_of_options_are_counted() -> None:
    """Jobs that wait come first in the table; the one that runs holds 0.4 of a GPU."""
    half = {"pool": "v", "gpus": 1, "share": 0.4, "throughput": 1.0}
    gangs = [gang(name, 4) for name in ("a", "b")]
    one = {"id": "c", "options": [{**half, "share": 0.9}, half]}
    held = {"pool": "v", "gpus": ["n0/0"], "since": 0.0}
    instance = state([*gangs, one | {"running": held}]).instance
    found = optsched.fragmentation(instance)
    assert found.total == pytest.approx(7.1)  # the most of its two options
    plan = optsched.solve_round(state([gang("a", 3), {"id": "c", "options": [half]}]))
    assert plan.fragmentation is not None
    assert plan.fragmentation.total == pytest.approx(8 - 3 - 0.4)
