"""Best fit by hand: who goes where, what is kept, what is pushed, what the bounds say, and at scale."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from placement_cases import Document, engine, instance_of, job, pool_of, rows_of

from optsched.arrays import IntArray
from optsched.placement import check_placement, place_rows

# Private names: single searches and bounds, without the choice among them
from optsched.placement.best_fit import best_fit
from optsched.placement.bounds import bounds
from optsched.placement.problem import Problem, Worth, consecutive
from optsched.placement.requests import Requests
from optsched.placement.shares import dual_feasible
from optsched.solution import Placement


def placed(
    jobs: list[Document], *pools: Document, columns: int = 0, constraints: Any = (), **cluster: Any
) -> Placement:
    classes, rows = rows_of(instance_of(jobs, list(pools), **cluster))
    placement = place_rows(
        classes, rows, np.arange(len(rows)), engine(), constraints, columns=columns
    )
    parts = (rows.job[placement.row], rows.partner[placement.row], rows.column[placement.row])
    assert check_placement(classes, *parts, placement.gpus, constraints) == []
    return placement


def test_the_documented_example_of_an_incomplete_search_is_placed() -> None:
    """Nodes with 2 and 1 GPUs, gangs of 1 and 2: the gang of 1 may not take the node with 2."""
    for jobs in ([job("one", 1), job("two", 2)], [job("two", 2), job("one", 1)]):
        placement = placed(jobs, pool_of(2, 1))
        where = dict(
            zip(
                ("one", "two") if jobs[0]["id"] == "one" else ("two", "one"),
                placement.gpus,
                strict=True,
            )
        )
        assert where == {"one": ("pb/0",), "two": ("pa/0", "pa/1")}


def test_a_running_job_gives_way_when_a_gang_needs_its_node() -> None:
    jobs = [job("small", 1, running=["pa/0"]), job("big", 2)]
    placement = placed(jobs, pool_of(2, 1))
    assert placement.gpus == (("pb/0",), ("pa/0", "pa/1"))
    assert placement.figures["gpus_moved"] == 1
    assert placed(jobs[:1], pool_of(2, 1)).gpus == (("pa/0",),)


def test_room_is_made_by_pushing_smaller_gangs_elsewhere() -> None:
    """Two running gangs of 2 on two nodes of 4 leave 2 + 2; a gang of 4 needs one of them to move."""
    jobs = [
        job("a", 2, running=["pa/0", "pa/1"]),
        job("b", 2, running=["pb/2", "pb/3"]),
        job("c", 4),
    ]
    placement = placed(jobs, pool_of(4, 4))
    assert placement.figures["rows_placed"] == 3 and placement.figures["gpus_moved"] == 2
    assert {len({gpu.split("/")[0] for gpu in gpus}) for gpus in placement.gpus} == {1}


def test_a_gang_that_spans_more_nodes_than_it_needs_is_tried_again() -> None:
    jobs = [
        job("a", 2, running=["pa/0", "pa/1"]),
        job("b", 2, running=["pb/2", "pb/3"]),
        job("c", 4, nodes=2),
    ]
    problem = problem_of(jobs, pool_of(4, 4))
    assert problem.worth(best_fit(problem, keep=True)) == Worth(3, 3, 0.0, 2)


def test_a_gang_spans_no_more_nodes_than_its_candidate() -> None:
    assert placed([job("a", 4, nodes=2)], pool_of(2, 2)).figures["nodes_spanned"] == 2
    placement = placed(
        [job("x", 1), job("y", 1), job("a", 2, nodes=1)], pool_of(1, 2), columns=10**4
    )
    assert placement.figures["rows_placed"] == 2
    spread = placed([job("a", 4, nodes=3)], pool_of(4, 4, 4))
    assert spread.figures["nodes_spanned"] == 1


def test_whole_nodes_first_and_best_links() -> None:
    links = [("pa", "s"), ("pb", "t"), ("pc", "t")]
    topology = {
        "nodes": [{"id": name} for name in ("pa", "pb", "pc", "s", "t")],
        "links": [{"source": u, "target": v, "bandwidth": 10.0} for u, v in links]
        + [{"source": "s", "target": "t", "bandwidth": 1.0}],
    }
    placement = placed([job("a", 4, nodes=2)], pool_of(2, 2, 2), topology=topology)
    assert {gpu.split("/")[0] for gpu in placement.gpus[0]} == {"pb", "pc"}
    assert placement.figures["bandwidth"] == 10.0 and placement.figures["exact"] == 1.0


def test_shares_fill_gpus_and_never_more_than_one() -> None:
    shares = [0.6, 0.5, 0.5, 0.4]
    jobs = [job(f"j{i}", 1, share=share) for i, share in enumerate(shares)]
    assert placed(jobs, pool_of(2)).figures["rows_placed"] == 4
    three = placed([job(f"j{i}", 1, share=0.6) for i in range(3)], pool_of(2), columns=10**4)
    assert three.figures["rows_placed"] == 2 and three.figures["rows_bound"] == 2
    thirds = placed([job(f"j{i}", 1, share=1 / 3) for i in range(3)], pool_of(1))
    assert thirds.figures["rows_placed"] == 3


def test_a_share_stays_on_the_gpu_that_it_holds() -> None:
    jobs = [
        job("a", 1, share=0.5, running=["pa/1"]),
        job("b", 1, share=0.5, running=["pa/1"]),
        job("c", 1),
    ]
    placement = placed(jobs, pool_of(2))
    assert (
        placement.gpus == (("pa/1",), ("pa/1",), ("pa/0",)) and placement.figures["gpus_moved"] == 0
    )


def test_a_pair_holds_the_same_gpus() -> None:
    jobs = [{"id": name, "gpus": 2, "throughput": {"p": 1.0}} for name in "ab"]
    document = instance_of(jobs, [pool_of(2, 2)]).to_document()
    document["colocation"] = [
        {"jobs": ["a", "b"], "pool": "p", "gpus": 2, "throughput": [0.6, 0.7]}
    ]
    from optsched import Instance

    classes, rows = rows_of(Instance.from_document(document))
    placement = place_rows(classes, rows, np.arange(len(rows)), engine())
    assert placement.to_records() == [{"row": 0, "jobs": ["a", "b"], "gpus": ["pa/0", "pa/1"]}]


def test_nodes_that_take_no_work_are_left_out() -> None:
    nodes = [
        {"name": "drained", "gpus": 4, "state": "drain"},
        {"name": "later", "gpus": 4, "available_from": 10},
        {"name": "now", "gpus": 1, "available_from": 0},
    ]
    running = {"pool": "p", "gpus": ["drained/0"]}
    placement = placed([job("a", 1) | {"running": running}], {"name": "p", "nodes": nodes})
    assert placement.gpus == (("now/0",),) and placement.figures["gpus_moved"] == 1


@pytest.mark.parametrize(
    ("jobs", "pools", "constraints", "message"),
    [
        (
            [
                job("x", 1, running=["pa/0"]),
                job("y", 1, running=["pb/0"]),
                job("a", 2, nodes=1, uses={"cpu": 8}),
            ],
            [pool_of(2, 2, cpus_per_node=7)],
            [],
            "job a: needs 2 GPUs of p on at most 1 node with 4 cpu per GPU; 2 GPUs are free for it: 1 on pa, 1 on pb",
        ),
        (
            [job("x", 1), job("a", 1)],
            [pool_of(1)],
            [{"kind": "anti-affinity", "jobs": ["a", "x"]}],
            "job a: needs 1 GPU of p apart from jobs that it may not share a node with; no GPU is free for it",
        ),
        (
            [job("x", 1, share=0.7), job("a", 1, share=0.5)],
            [pool_of(1)],
            [],
            "job a: needs 0.5 of 1 GPU of p; no GPU is free for it",
        ),
        (
            [job("x", 2), job("y", 1), job("a", 2, nodes=1, share=0.5)],
            [pool_of(2, 1, 1)],
            [],
            "job a: needs 0.5 of each of 2 GPUs of p on at most 1 node; 1 GPU is free for it: 1 on pc",
        ),
    ],
)
def test_the_reason_of_a_refusal(jobs: Any, pools: Any, constraints: Any, message: str) -> None:
    placement = placed(jobs, *pools, constraints=constraints)
    assert [reason for _, reason in placement.refused if "job a" in reason] == [message]


def test_a_pair_that_may_not_share_a_node_is_refused() -> None:
    from optsched import Instance

    jobs = [{"id": name, "throughput": {"p": 1.0}} for name in "ab"]
    document = instance_of(jobs, [pool_of(2)]).to_document()
    document["colocation"] = [
        {"jobs": ["a", "b"], "pool": "p", "gpus": 1, "throughput": [0.6, 0.7]}
    ]
    classes, rows = rows_of(Instance.from_document(document))
    constraints = [{"kind": "anti-affinity", "jobs": ["a", "b"]}]
    for columns in (0, 10**4):
        placement = place_rows(
            classes, rows, np.arange(len(rows)), engine(), constraints, columns=columns
        )
        assert placement.refused == (
            (0, "jobs a and b share GPUs, but may not be on one node (anti-affinity)"),
        )
        assert placement.figures["rows_bound"] == 0


# --- bounds and identities -------------------------------------------------------------------------------------------


def problem_of(jobs: list[Document], *pools: Document) -> Problem:
    classes, rows = rows_of(instance_of(jobs, list(pools)))
    requests = Requests.of(classes, rows, np.arange(len(rows)))
    return Problem.of(requests)


def test_bounds_see_that_large_nodes_are_few() -> None:
    """5 gangs of 8 GPUs may span 2 nodes; only 2 nodes have 8 GPUs, the others 4: 2 + 3 x 2 nodes."""
    problem = problem_of(
        [job(f"j{i}", 8, nodes=2) for i in range(5)], pool_of(8, 8, 4, 4, 4, 4, 4, 4)
    )
    assert bounds(problem, Worth(5, 9, 0.0, 0), engine()).nodes == 8


def test_bounds_count_pieces_of_more_than_half_a_node() -> None:
    """4 GPUs per node: 3 gangs of 3 on 2 nodes leave room for two, though 9 > 8 alone excludes no pair of 3 + 3."""
    problem = problem_of(
        [job(f"j{i}", 3, nodes=1) for i in range(3)] + [job("k", 1)], pool_of(5, 5)
    )
    assert bounds(problem, Worth(2, 2, 0.0, 0), engine()).rows == 3


@pytest.mark.parametrize("k", range(1, 9))
def test_what_fits_in_one_keeps_fitting(k: int) -> None:
    random = np.random.default_rng(k)
    for _ in range(300):
        sizes = random.integers(1, 13, random.integers(1, 9)) / 24.0
        if sizes.sum() <= 1:
            assert dual_feasible(sizes, k).sum() <= 1 + 1e-9


@pytest.mark.parametrize(
    ("size", "turn"),
    [
        (1, [7, 0, 1, 3, 4, 5, 2, 6]),
        (2, [0, 1, 3, 4, 5, 7, 2, 6]),
        (3, [3, 4, 5, 0, 1, 7, 2, 6]),
        (4, [0, 1, 3, 4, 5, 7, 2, 6]),
    ],
)
def test_consecutive_gpus(size: int, turn: list[int]) -> None:
    """Those of the shortest run that is long enough first, at last those that are not free (2 and 6)."""
    free = np.ones((2, 8), bool)
    free[1, [2, 6]] = False
    all_free, two_taken = consecutive(free, size).tolist()
    assert two_taken == turn
    assert all_free == list(range(8))


@pytest.mark.parametrize("seed", range(10))
def test_fewest_nodes_of_requests_that_need_cpus_and_memory(seed: int) -> None:
    """Of all kinds of a pool at once: as of each request alone, of which some fit nowhere."""
    random = np.random.default_rng(seed)
    sizes = random.integers(1, 5, (2, 6))
    pools = [
        pool_of(*sizes[0].tolist(), name="p", cpus_per_node=16, memory_per_node=64),
        pool_of(*sizes[1].tolist(), name="q", cpus_per_node=8, memory_per_node=96),
    ]
    jobs = []
    for number in range(20):
        gpus = int(random.integers(1, 6))
        needs = {
            "cpu": gpus * int(random.integers(0, 9)),
            "memory": gpus * int(random.integers(0, 40)),
        }
        uses = {name: amount for name, amount in needs.items() if amount}
        pool = str(random.choice(["p", "q"]))
        jobs.append(
            job(
                f"j{number}",
                gpus,
                pool=pool,
                nodes=int(random.integers(1, min(gpus, 3) + 1)),
                uses=uses,
            )
        )
    classes, rows = rows_of(instance_of(jobs, pools))
    problem = Problem.of(Requests.of(classes, rows, np.arange(len(rows))))
    R = problem.requests
    expected = []
    for request in range(len(problem)):
        reach = np.cumsum(np.sort(problem.at_most(request))[::-1])
        nodes = int(np.searchsorted(reach, R.gpus[request])) + 1
        possible = nodes <= min(len(reach), int(R.span[request]))
        expected.append(nodes if possible else 0)
    assert problem.fewest.tolist() == expected
    assert len(set(expected)) > 1


# --- at scale --------------------------------------------------------------------------------------------------------


@pytest.mark.clock
def test_two_thousand_jobs_on_512_nodes() -> None:
    random = np.random.default_rng(0)
    sizes: IntArray = random.choice(
        [1, 2, 3, 4, 5, 8, 16], 2000, p=[0.56, 0.2, 0.06, 0.1, 0.02, 0.05, 0.01]
    )
    while (excess := int(sizes.sum()) - 4096) > 0:
        j = random.integers(2000)
        sizes[j] = max(1, sizes[j] - excess)
    jobs = [
        {"id": f"j{i}", "gpus": int(size), "throughput": {"p": 1.0}} for i, size in enumerate(sizes)
    ]
    pool = {
        "name": "p",
        "nodes": 512,
        "gpus_per_node": 8,
        "bandwidth": {"intra_node": 300, "node": 25},
    }
    classes, rows = rows_of(instance_of(jobs, [pool]))
    started = time.perf_counter()
    placement = place_rows(classes, rows, np.arange(len(rows)), engine())
    seconds = time.perf_counter() - started
    figures = placement.figures
    assert figures["rows_placed"] == 2000
    assert figures["nodes_bound"] <= figures["nodes_spanned"] <= 1.002 * figures["nodes_bound"]
    parts = (rows.job[placement.row], rows.partner[placement.row], rows.column[placement.row])
    assert check_placement(classes, *parts, placement.gpus) == []
    assert seconds < 5  # 0.1 s on a core of its own
