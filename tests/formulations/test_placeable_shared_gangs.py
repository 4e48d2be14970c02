"""The constraint `placeable` and gangs that share GPUs of several nodes: never one GPU twice."""

from __future__ import annotations

from typing import Any

import pytest

import optsched

# Private: how contents of nodes are written down
from optsched.program.space import node_bins


def shares(gpus: int, share: float, nodes: int, value: float = 1.0) -> dict[str, Any]:
    return {"pool": "v", "gpus": gpus, "share": share, "nodes": nodes, "value": value}


def instance_of(sizes: list[int], *jobs: list[dict[str, Any]]) -> dict[str, Any]:
    nodes = [{"name": f"n{number}", "gpus": gpus} for number, gpus in enumerate(sizes)]
    return {
        "format": "optsched-instance/1",
        "cluster": {"pools": [{"name": "v", "nodes": nodes}]},
        "jobs": [{"id": f"j{number}", "options": options} for number, options in enumerate(jobs)],
    }


def solved(document: dict[str, Any]) -> optsched.Solution:
    solution = optsched.solve(document, "multiple-choice", constraints=["placeable"], gap=0.0)
    assert optsched.verify(solution).ok
    assert solution.placement is not None
    assert not solution.placement.refused
    return solution


@pytest.mark.parametrize("most", [0, node_bins.MOST_CONTENTS])
def test_a_gang_does_not_get_a_gpu_twice(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two GPUs of two nodes: .3 of both leaves none for a job on a whole one."""
    monkeypatch.setattr(node_bins, "MOST_CONTENTS", most)
    solution = solved(instance_of([1, 1], [shares(2, 0.3, 2)], [shares(1, 1.0, 1)]))
    assert solution.objective == pytest.approx(1.0)
    assert solution.bound is not None and solution.bound >= 1.0 - 1e-9
    assert most == 0 or solution.status == "optimal"


def test_parts_of_a_gang_are_dealt_to_different_nodes() -> None:
    """Three gangs of .3 of two GPUs fill three nodes with two parts each."""
    gang = [shares(2, 0.3, 2)]
    solution = solved(instance_of([1, 1, 1], gang, gang, gang, [shares(3, 0.4, 3)]))
    assert solution.objective == pytest.approx(4.0)
    assert solution.status == "optimal"


def test_parts_of_unequal_size_are_dealt_to_different_nodes() -> None:
    """Gangs of three GPUs on nodes of two and one, beside one that needs a node alone."""
    gang = [shares(3, 0.5, 2)]
    solution = solved(instance_of([2, 2, 1], gang, gang, [shares(2, 1.0, 1)]))
    assert solution.objective == pytest.approx(3.0)
    assert solution.status == "optimal"


def test_gangs_are_numbered_where_parts_in_any_order_find_no_nodes() -> None:
    """One gang of .3 of two GPUs and a whole job are worth 2.5, but find no GPUs; two gangs are worth 2."""
    gang = [shares(2, 0.3, 2)]
    solution = solved(instance_of([1, 1], gang, gang, [shares(1, 1.0, 1, value=1.5)]))
    assert solution.objective == pytest.approx(2.0)
    assert solution.status == "optimal"


def test_two_parts_of_one_gang_are_not_on_one_node() -> None:
    """Each gang is on three GPUs of two nodes, in parts of 2 and 1; a job needs all of the larger node."""
    gang = [shares(3, 0.4, 2)]
    solution = solved(instance_of([2, 1, 2], gang, gang, [shares(2, 1.0, 1, value=1.5)]))
    assert solution.objective == pytest.approx(3.5)
    assert solution.status == "optimal"


def test_the_first_bound_holds_where_too_many_contents_have_numbered_gangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Contents of numbered gangs are priced then; the bound is that of the program without numbers."""
    monkeypatch.setattr(node_bins, "MOST_CONTENTS", 1)
    gang, whole = [shares(2, 0.4, 2)], [shares(1, 1.0, 1, value=1.5)]
    solution = solved(instance_of([1, 1, 1], gang, gang, gang, whole, whole))
    assert solution.objective == pytest.approx(3.5)  # two gangs and a whole job
    assert solution.bound == pytest.approx(4.0)
    assert solution.status == "feasible"


def test_jobs_that_find_no_different_gpus_are_infeasible_and_verify_finds_it_again() -> None:
    """Six shares of .5 fill three GPUs, but one of the jobs needs four different ones."""
    options = ([shares(4, 0.5, 4)], [shares(2, 0.5, 2)], [shares(1, 1.0, 1)])
    document = instance_of([1, 1, 1, 1], *options)
    for job in document["jobs"]:
        job["options"][0]["cost"] = 1.0
    solution = optsched.solve(document, "gap", constraints=["placeable"])
    assert solution.status == "infeasible"
    assert solution.conflicts
    assert optsched.verify(solution).ok


def test_prices_bound_an_answer_that_is_cut_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same where contents are priced: the duals that prove the bound are checked, too."""
    monkeypatch.setattr(node_bins, "MOST_CONTENTS", 0)
    gang = [shares(2, 0.5, 2, value=5.0)]
    solution = solved(instance_of([1, 3], gang, gang, gang, gang))
    assert solution.bound is not None and solution.objective is not None
    assert solution.objective <= 20.0 + 1e-9
    assert solution.bound >= 20.0 - 1e-9
    assert solution.bound_source == "dual"


def test_a_node_without_a_limit_of_cpus_takes_what_its_gpus_have_room_for() -> None:
    nodes = [{"name": "n0", "gpus": 1, "cpus": 8}, {"name": "n1", "gpus": 1}]
    jobs = [[shares(1, share, 1) | {"uses": {"cpu": 5}}] for share in (0.5, 0.5, 0.3)]
    document = instance_of([1, 1], *jobs)
    document["cluster"]["pools"][0]["nodes"] = nodes
    assert solved(document).objective == pytest.approx(3.0)


def test_a_job_that_stays_holds_the_cpus_of_its_option() -> None:
    """Two jobs of 5 CPUs do not fit on the 9 of a node, whose GPUs are enough for both."""
    nodes = [{"name": "n0", "gpus": 3, "cpus": 9}, {"name": "n1", "gpus": 2, "cpus": 2}]
    option = [{"pool": "v", "gpus": 1, "throughput": 1.0, "uses": {"cpu": 5}}]
    document = instance_of([1, 1], option, option)
    document["cluster"]["pools"][0]["nodes"] = nodes
    document["jobs"][0] |= {"preemptible": False, "running": {"pool": "v", "gpus": ["n0/0"]}}
    instance = optsched.load(document)
    constraints = ["placeable", "uninterrupted"]
    solution = optsched.solve(instance, "max-throughput", integral=True, constraints=constraints)
    assert solution.objective == pytest.approx(1.0)
    assert optsched.verify(solution).ok
