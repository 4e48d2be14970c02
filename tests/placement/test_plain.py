"""Gangs of one node, seated by counting: as many as by best fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from beside_cases import flaws_of
from documents import instance_document
from hypothesis import given, settings
from hypothesis import strategies as st
from placement_cases import instance_of, job, pool_of, rows_of

import optsched
from optsched.candidates import Classes, JobRows
from optsched.placement import Occupied, place_beside

# Private names: the search without the choice among its ways
from optsched.placement.best_fit import best_fit
from optsched.placement.problem import Problem
from optsched.placement.requests import Requests

seeds = st.integers(0, 2**32 - 1)


def case(
    seed: int, nodes: int = 6, jobs: int = 24
) -> tuple[Classes, JobRows, dict[int, tuple[str, ...]], list[int]]:
    """Gangs on one pool of equal nodes of 8, some of which stand on GPUs chosen at random."""
    rng = np.random.default_rng(seed)
    gpus = rng.choice([1, 2, 4, 8], jobs)
    instance = optsched.Instance.from_arrays(
        pools=[{"name": "p", "nodes": nodes, "gpus_per_node": 8}],
        throughput=np.ones((jobs, 1)),
        gpus=gpus,
        steps=1e6,
    )
    classes = (
        optsched.compile(instance).classes(frozenset()).candidates.per_job().classes(frozenset())
    )
    job = np.arange(jobs, dtype=np.int64)
    column = np.array(
        [int(np.flatnonzero(classes.class_a == classes.of_job[j])[0]) for j in job.tolist()],
        np.int64,
    )
    rows = JobRows(
        job,
        np.full(jobs, -1, np.int64),
        column,
        np.ones(jobs),
        classes.rate_a[column],
        np.zeros(jobs),
    )
    free = {node: list(rng.permutation(8)) for node in range(nodes)}
    stands: dict[int, tuple[str, ...]] = {}
    for j in job[: jobs // 2].tolist():
        open_nodes = [node for node in free if len(free[node]) >= gpus[j]]
        if open_nodes:
            node = int(rng.choice(open_nodes))
            mine = sorted(int(free[node].pop()) for _ in range(int(gpus[j])))
            stands[j] = tuple(f"p-{node}/{gpu}" for gpu in mine)
    return classes, rows, stands, [j for j in job.tolist() if j not in stands]


def named(classes: Classes, gpus: np.ndarray) -> tuple[str, ...]:
    return tuple(classes.instance.cluster.numbering.gpu_names(gpus))


def occupied_by(classes: Classes, rows: JobRows, stands: dict[int, tuple[str, ...]]) -> Occupied:
    return Occupied.of_rows(classes, rows, np.array(list(stands), np.int64), list(stands.values()))


@settings(max_examples=80, deadline=None)
@given(seeds)
def test_as_many_gangs_of_every_size_as_best_fit_places(seed: int) -> None:
    classes, rows, stands, wanted = case(seed)
    occupied = occupied_by(classes, rows, stands)
    requests = Requests.of(classes, rows, np.array(wanted, np.int64))
    problem = Problem.of(requests, occupied)
    assert problem.on_one_node.all()
    found = place_beside(classes, rows, np.array(wanted, np.int64), occupied)
    placed = dict(zip(found.row.tolist(), found.gpus, strict=True))
    assert flaws_of(classes, rows, stands | placed) == []
    # Asked for all of them as the smallest it searches as for gangs of any kind.
    searched = best_fit(problem, keep=True, smallest=len(requests))
    by_search = sorted(int(requests.gpus[j]) for j in searched)
    assert sorted(len(gpus) for gpus in placed.values()) == by_search
    assert {told.row for told in found.refused} == set(wanted) - set(placed)


@pytest.mark.parametrize("what", ["spans nodes", "shares", "runs there"])
def test_what_needs_more_than_one_node_is_left_to_best_fit(what: str) -> None:
    job: dict[str, Any] = {"id": "a", "workload": "w", "gpus": 2, "steps": 10}
    pool: dict[str, Any] = {"name": "p", "nodes": 4, "gpus_per_node": 2, "cpus_per_node": 8}
    workload: dict[str, Any] = {"throughput": {"p": {"2": 3.0, "4": 5.0}}}
    if what == "spans nodes":
        job["gpus"] = 4
    elif what == "shares":
        job = {
            "id": "a",
            "steps": 10,
            "options": [{"pool": "p", "gpus": 1, "share": 0.5, "throughput": 1.0}],
        }
    else:
        job["running"] = {"pool": "p", "gpus": ["p-0/0", "p-0/1"]}
    instance = optsched.Instance.from_document(
        instance_document([pool], [job], workloads={"w": workload})
    )
    classes = optsched.compile(instance).classes(frozenset())
    rows = JobRows(
        np.zeros(1, int), np.full(1, -1), np.zeros(1, int), np.ones(1), np.ones(1), np.zeros(1)
    )
    requests = Requests.of(classes, rows, np.zeros(1, np.int64))
    assert not Problem.of(requests).on_one_node.any()


def test_of_equal_gangs_of_one_node_the_first_wanted_is_first() -> None:
    """Only one of two gangs finds room, on one node: how many nodes they may span does not matter."""
    jobs = [job("urgent", 2, nodes=2), job("later", 2, nodes=1), job("holder", 1)]
    classes, rows = rows_of(instance_of(jobs, [pool_of(2, 1)]))
    held = Occupied.of_rows(classes, rows, np.array([2]), [["pb/0"]])
    placed = place_beside(classes, rows, np.array([0, 1]), held)
    assert placed.row.tolist() == [0]
    assert [refused.row for refused in placed.refused] == [1]
