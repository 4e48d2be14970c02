"""Anti-affinity: read by the placement alone, refused where its jobs don't exist."""

from __future__ import annotations

from typing import Any

import pytest
from documents import instance_document
from refusals import refuses

import optsched
from optsched import Instance
from optsched.errors import UsageError

APART = {"kind": "anti-affinity", "jobs": ["a", "b"]}


def instance(**more: Any) -> Instance:
    pools = [{"name": "p", "nodes": 2, "gpus_per_node": 2}]
    jobs = [{"id": name, "throughput": {"p": 1.0}} for name in "abc"]
    document = instance_document(pools, jobs, **more)
    return Instance.from_document(document)


@pytest.mark.parametrize("formulation", ("max-throughput", "max-min-fairness", "isolated"))
def test_it_changes_no_allocation_and_is_kept_by_the_placement(formulation: str) -> None:
    free = optsched.solve(instance(), formulation)
    apart = optsched.solve(instance(), formulation, constraints=[APART])
    assert apart.objective == free.objective and apart.ok
    assert len(apart.allocation.classes) == len(free.allocation.classes) == 1
    together, split = (optsched.place(answer).placement.gpus for answer in (free, apart))
    assert [gpus[0].split("/")[0] for gpus in together] == ["p-0", "p-0", "p-1"]
    first, second, _ = (gpus[0].split("/")[0] for gpus in split)
    assert first != second
    assert optsched.verify(instance(), optsched.place(apart).to_document()).ok


def test_equal_whole_jobs_stay_one_class() -> None:
    solution = optsched.solve(instance(), "max-throughput", constraints=[APART], integral=True)
    assert len(solution.allocation.classes) == 1


def test_it_can_stand_in_the_instance() -> None:
    own = instance(constraints=[APART, {"kind": "anti-affinity", "jobs": ["b", "c"]}])
    placement = optsched.place(optsched.solve(own, "max-throughput")).placement
    nodes = [gpus[0].split("/")[0] for gpus in placement.gpus]
    assert nodes[0] != nodes[1] != nodes[2]


@pytest.mark.parametrize(
    ("jobs", "message"),
    [
        (["a", "x"], 'jobs[1]: found "x", expected the id of a job of the instance...'),
        (["a", "a"], 'jobs[1]: found "a" a second time, expected each job once'),
        (["a"], 'jobs: found ["a"], expected at least 2...'),
    ],
)
def test_jobs_that_cannot_be(jobs: list[str], message: str) -> None:
    with refuses(message, UsageError):
        optsched.solve(instance(), constraints=[{"kind": "anti-affinity", "jobs": jobs}])
    with refuses(f"constraints[0].{message}"):
        optsched.solve(instance(constraints=[{"kind": "anti-affinity", "jobs": jobs}]))
