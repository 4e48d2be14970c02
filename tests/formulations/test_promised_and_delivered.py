"""What programs promise on two racks of three nodes, and what placements deliver of it."""

from __future__ import annotations

from typing import Any

import pytest

import optsched
from optsched.solution import Solution

RATES = {"rack": 15.85, "cluster": 2.1}


def two_racks() -> dict[str, Any]:
    """Three gangs of 8 GPUs, and two racks of three nodes of 4 with thin links between them."""
    racks = {"rack": {"r0": ["v-0", "v-1", "v-2"], "r1": ["v-3", "v-4", "v-5"]}}
    pool = {"name": "v", "nodes": 6, "gpus_per_node": 4}
    jobs = [{"id": name, "gpus": 8, "throughput": {"v": {"8": RATES}}} for name in "abc"]
    return {
        "format": "optsched-instance/1",
        "cluster": {"pools": [pool], "levels": racks},
        "jobs": jobs,
    }


def two_nodes() -> dict[str, Any]:
    """Two gangs of 3 GPUs, and one of 2 that is half as fast on two nodes; two nodes of 4."""
    pool = {"name": "v", "nodes": 2, "gpus_per_node": 4}
    rates = [{"3": {"1": 3.0}}, {"3": {"1": 3.0}}, {"2": {"1": 2.0, "2": 1.0}}]
    jobs = [
        {"id": f"j{n}", "gpus": int(*rate), "throughput": {"v": rate}}
        for n, rate in enumerate(rates)
    ]
    return {"format": "optsched-instance/1", "cluster": {"pools": [pool]}, "jobs": jobs}


def delivered(solution: Solution) -> float:
    """Steps/s of the gangs where they are placed: those inside of a rack are fast."""
    assert solution.placement is not None
    assert not solution.placement.refused
    total = 0.0
    for gpus in solution.placement.gpus:
        racks = {int(str(gpu).split("/")[0].split("-")[1]) // 3 for gpu in gpus}
        total += RATES["rack" if len(racks) == 1 else "cluster"]
    return total


def test_gangs_across_thin_uplinks_get_what_is_promised() -> None:
    promised = optsched.solve(two_racks(), "max-throughput", integral=True)
    assert promised.objective == pytest.approx(47.55)
    kept = optsched.solve(two_racks(), "max-throughput", integral=True, constraints=["placeable"])
    assert kept.objective == pytest.approx(33.8)
    assert kept.bound == pytest.approx(33.8)
    assert delivered(kept) == pytest.approx(33.8, rel=1e-12)


def test_gangs_that_do_not_divide_nodes_get_what_is_promised() -> None:
    promised = optsched.solve(two_nodes(), "max-throughput", integral=True)
    assert promised.objective == pytest.approx(8)
    kept = optsched.solve(two_nodes(), "max-throughput", integral=True, constraints=["placeable"])
    assert kept.objective == pytest.approx(7)
    assert kept.bound == pytest.approx(7)
    assert kept.placement is not None
    nodes = [{str(gpu).split("/")[0] for gpu in gpus} for gpus in kept.placement.gpus]
    assert [len(those) for those in nodes] == [1, 1, 2]
