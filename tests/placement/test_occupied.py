"""What stands: what it takes from nodes, groups of nodes and jobs apart, and what cannot stand, in words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from beside_cases import beside
from placement_cases import Document, engine, instance_of, job, pool_of, rows_of
from refusals import refuses

import optsched
from optsched import Instance
from optsched.errors import UsageError
from optsched.placement import Occupied, place_beside, place_rows

# Private names: single searches and bounds, without the choice among them
from optsched.placement.bounds import bounds
from optsched.placement.exact import solve_exactly
from optsched.placement.occupied import occupied_by
from optsched.placement.problem import Bounds, Problem, Worth
from optsched.placement.requests import Requests

NOTHING = Worth(0, 0, 0.0, 0)


def problem_beside(
    jobs: list[Document],
    stands: dict[str, list[str]],
    pool: Document,
    barred: dict[str, list[str]] | None = None,
    **cluster: Any,
) -> Problem:
    """The problem of those that start."""
    classes, rows = rows_of(instance_of(jobs, [pool], **cluster))
    names = [classes.instance.jobs_table.names[int(j)] for j in rows.job]
    occupied = Occupied.of_rows(
        classes, rows, np.array([names.index(name) for name in stands]), list(stands.values())
    )
    wanted = np.array([row for row, name in enumerate(names) if name not in stands])
    off = [(barred or {}).get(names[row], ()) for row in wanted]
    return Problem.of(Requests.of(classes, rows, wanted, (), off), occupied)


def test_the_integer_program_sees_what_is_left_of_a_gpu() -> None:
    problem = problem_beside(
        [job("s", 1, share=0.5)] + [job(f"j{i}", 1, share=0.25) for i in range(3)],
        {"s": ["pa/0"]},
        pool_of(1),
    )
    exact = solve_exactly(problem, NOTHING, Bounds(3, 3), engine())
    assert exact.proven and exact.assignment is not None and len(exact.assignment) == 2


def test_the_integer_program_sees_what_is_left_of_a_resource_of_some_nodes() -> None:
    rack = [{"name": "rack", "capacity": 3, "nodes": ["pa", "pb"]}]
    jobs = [job(f"j{i}", 1, uses={"rack": 1}) for i in range(4)]
    problem = problem_beside(jobs, {"j0": ["pa/0"]}, pool_of(4, 4), resources=rack)
    exact = solve_exactly(problem, NOTHING, Bounds(3, 3), engine())
    assert exact.proven and exact.assignment is not None and len(exact.assignment) == 2


def test_the_integer_program_keeps_no_gpu_on_which_something_stands() -> None:
    """Both GPUs that it holds on the larger node are gone: it moves least where it keeps one."""
    nodes = pool_of(4, 2)
    jobs = [job("s", 2), job("a", 2, running=["pa/0", "pa/1", "pb/0"])]
    problem = problem_beside(jobs, {"s": ["pa/0", "pa/1"]}, nodes)
    exact = solve_exactly(problem, NOTHING, Bounds(1, 1), engine())
    assert exact.assignment is not None and problem.worth(exact.assignment).moved == 1


def test_bounds_count_what_is_left_of_gpus() -> None:
    """0.6 of each of two GPUs is left: room for four of 0.3, not for five."""
    jobs = [job("s", 2, nodes=2, share=0.4)] + [job(f"j{i}", 1, share=0.3) for i in range(5)]
    assert (
        bounds(problem_beside(jobs, {"s": ["pa/0", "pb/0"]}, pool_of(1, 1)), NOTHING, engine()).rows
        == 4
    )


def test_bounds_tell_rows_apart_to_which_other_nodes_are_closed() -> None:
    jobs = [job("s", 1)] + [job(f"j{i}", 1) for i in range(3)]
    problem = problem_beside(jobs, {"s": ["pc/0"]}, pool_of(1, 1, 1), {"j0": ["pa"], "j1": ["pb"]})
    assert bounds(problem, NOTHING, engine()).rows == 2


def test_both_jobs_of_a_pair_keep_others_away() -> None:
    jobs = [{"id": name, "throughput": {"p": 1.0}} for name in "abc"]
    document = instance_of(jobs, [pool_of(2, 2)]).to_document()
    document["colocation"] = [
        {"jobs": ["a", "b"], "pool": "p", "gpus": 1, "throughput": [0.6, 0.7]}
    ]
    classes, rows = rows_of(Instance.from_document(document))
    occupied = Occupied.of_rows(classes, rows, np.array([0]), [["pa/0"]])
    for other in "ab":
        constraints = [{"kind": "anti-affinity", "jobs": [other, "c"]}]
        assert place_beside(classes, rows, np.array([1]), occupied, constraints).gpus == (
            ("pb/0",),
        )
    assert place_beside(classes, rows, np.array([1]), occupied).gpus == (("pa/1",),)


def test_a_topology_of_one_s_own_joins_what_is_left() -> None:
    """Node a is full: the gang takes b and c on their good link, not b and d."""
    widths = [("a", "b", 9.0), ("b", "c", 5.0), ("b", "d", 1.0)]
    topology = {
        "nodes": [{"id": f"p{name}"} for name in "abcd"],
        "links": [
            {"source": f"p{u}", "target": f"p{v}", "bandwidth": width} for u, v, width in widths
        ],
    }
    jobs = [job("s", 2), job("a", 4, nodes=2)]
    assert beside(jobs, {"s": ["pa/0", "pa/1"]}, pool_of(2, 2, 2, 2), topology=topology) == {
        "a": ("pb/0", "pb/1", "pc/0", "pc/1")
    }


# --- words -----------------------------------------------------------------------------------------------------------


def no_gpu(name: str) -> str:
    return f'job a has "{name}", expected a GPU of the cluster, written node/index'


def held_twice(times: float, other: str) -> str:
    return f"{times:g} of pa/0 is held (by job a, job {other}), expected at most 1"


@pytest.mark.parametrize(
    ("stands", "message"),
    [
        ({"a": ["pa/9"]}, no_gpu("pa/9")),
        ({"a": ["pa/01"]}, no_gpu("pa/01")),
        ({"a": ["pa"]}, no_gpu("pa")),
        ({"a": ["qa/0"]}, 'job a has "qa/0", expected GPUs of pool "p"'),
        ({"a": []}, "job a has 0 GPUs, expected the 1 of its row"),
        ({"a": ["pa/0"], "b": ["pa/0", "pa/1"]}, held_twice(2, "b")),
        ({"a": ["pa/0"], "s": ["pa/0"]}, held_twice(1.5, "s")),
        ({"t": ["pa/0", "pa/0"]}, "job t has pa/0 twice"),
    ],
)
def test_what_cannot_stand_is_refused(stands: dict[str, list[str]], message: str) -> None:
    jobs = [job("a", 1), job("b", 2), job("s", 1, share=0.5), job("t", 2, share=0.5)]
    with pytest.raises(ValueError) as told:
        beside(jobs, stands, pool_of(2), pool_of(2, name="q"))
    assert str(told.value) == message


def test_other_errors_in_words() -> None:
    classes, rows = rows_of(instance_of([job("a"), job("b")], [pool_of(4)]))
    first = np.array([0])
    occupied = Occupied.of_rows(classes, rows, first, [["pa/0"]])
    for call, message in (
        (
            lambda: occupied.and_also(Occupied.of_rows(classes, rows, first, [["pa/1"]])),
            "job a has GPUs twice",
        ),
        (
            lambda: place_beside(classes, rows, first, occupied),
            "job a has GPUs and is to be placed as well",
        ),
        (
            lambda: place_rows(classes, rows, first, engine(), occupied=occupied),
            "job a has GPUs and is to be placed",
        ),
        (
            lambda: place_beside(classes, rows, np.array([1, 1]), occupied),
            "job b is to be placed twice",
        ),
        (lambda: Occupied.of_rows(classes, rows, first, []), "gpus: found 0 entries, expected 1"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    with refuses("barred: found 0 entries", UsageError):
        place_beside(classes, rows, np.array([1]), occupied, barred=[])
    with refuses('barred[0]: found "x", expected names of nodes', UsageError):
        place_beside(classes, rows, np.array([1]), occupied, barred=[["x"]])


def test_a_job_that_shares_one_of_its_gpus_has_all_of_the_others() -> None:
    """Jobs a and b share GPU 0; a has GPU 1 too, and no half of it is left for c."""
    whole = {"preemptible": False, "throughput": {"v": {"1": 1.0, "2": 1.0}}}
    jobs = [
        {"id": "a", "gpus": 2, "running": {"pool": "v", "gpus": ["n0/0", "n0/1"]}} | whole,
        {"id": "b", "gpus": 1, "running": {"pool": "v", "gpus": ["n0/0"]}} | whole,
        {"id": "c", "options": [{"pool": "v", "gpus": 1, "share": 0.5, "throughput": 1.0}]},
    ]
    cluster = {"pools": [{"name": "v", "nodes": [{"name": "n0", "gpus": 2}]}]}
    instance = optsched.load({"format": "optsched-instance/1", "cluster": cluster, "jobs": jobs})
    assert occupied_by(instance, np.arange(2)).load.tolist() == [1.0, 1.0]
    solution = optsched.solve(instance, "max-throughput", integral=True, constraints=["placeable"])
    assert solution.placement is not None and not solution.placement.gpus
