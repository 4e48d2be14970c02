"""`check_seats` finds everything that can be wrong with who holds what, and nothing where all is right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from placement_cases import engine, instance_of, job, rows_of

from optsched import Instance
from optsched.placement import Seat, check_seats, place_rows


def cluster() -> Instance:
    """A pool with a drained node, one of other GPUs, a rack, jobs of every sort."""
    nodes = [{"name": "x", "gpus": 4, "cpus": 8}, {"name": "y", "gpus": 4, "cpus": 8}]
    nodes.append({"name": "old", "gpus": 2, "state": "drain"})
    jobs = [
        job("gang", 2, uses={"cpu": 4}),
        job("cpu", 1, uses={"cpu": 6}),
        job("half", 1, share=0.5),
        job("rack", 1, uses={"rack": 1}),
        {
            "id": "elastic",
            "gpus": {"min": 1, "max": 3},
            "throughput": {"p": {"1": 1.0, "2": 2.0, "3": 3.0}},
        },
        {
            "id": "levels",
            "gpus": {"min": 1, "max": 4, "levels": [1, 4]},
            "throughput": {"p": {"1": 1.0, "4": 2.0}},
        },
        {"id": "left", "workload": "w"},
        {"id": "right", "workload": "w"},
    ]
    return Instance.from_document(
        {
            "format": "optsched-instance/1",
            "workloads": {"w": {"throughput": {"p": 1.0}, "demand": {"cpu": 3}}},
            "cluster": {
                "pools": [
                    {"name": "p", "nodes": nodes},
                    {"name": "q", "nodes": 1, "gpus_per_node": 1},
                ],
                "resources": [{"name": "rack", "capacity": 1, "nodes": ["x", "old"]}],
            },
            "jobs": jobs,
        }
    )


RIGHT = {
    "gang": Seat("p", ("x/0", "x/1")),
    "half": Seat("p", ("x/2",), 0.5),
    "rack": Seat("p", ("old/1",)),
    "elastic": Seat("p", ("y/0", "y/1", "y/2")),
    "left": Seat("p", ("y/3",), 1.0, "right"),
    "right": Seat("p", ("y/3",), 1.0, "left"),
}


def apart(*jobs: str) -> dict[str, Any]:
    return {"constraints": [{"kind": "anti-affinity", "jobs": list(jobs)}]}


# What the flaws say that have several causes below.


def no_gpu(name: str) -> str:
    return f'found "{name}", expected a GPU of pool "p" written node/index'


def cut_gang(found: int, expected: str) -> str:
    return f"found {found} GPUs, expected {expected}: gangs are whole"


def given_twice(gpu: str, times: float, jobs: str) -> str:
    return f"{gpu} is given away {times:g} times (to {jobs}), expected once"


def together(jobs: str) -> str:
    return f"jobs {jobs} are both on node y, expected different nodes (anti-affinity)"


def test_nothing_is_wrong_where_all_is_right() -> None:
    assert check_seats(cluster(), RIGHT) == []
    starting = [name for name in RIGHT if name != "rack"]
    apart = [{"kind": "anti-affinity", "jobs": ["gang", "elastic"]}, {"kind": "budget", "limit": 1}]
    assert check_seats(cluster(), RIGHT, apart, starting=starting, barred={"gang": ["y"]}) == []


@pytest.mark.parametrize(
    ("seats", "job", "words"),
    [
        ({"cpu": Seat("p", ("z/0",))}, "cpu", no_gpu("z/0")),
        ({"cpu": Seat("p", ("y/4",))}, "cpu", no_gpu("y/4")),
        ({"cpu": Seat("p", ("q-0/0",))}, "cpu", no_gpu("q-0/0")),
        ({"gang": Seat("p", ("x/0", "x/0"))}, "gang", 'found "x/0" a second time, expected GPUs that differ'),
        ({"cpu": Seat("r", ("x/0",))}, "cpu", 'found "r", expected one of the pools p, q'),
        ({"nobody": Seat("p", ("x/0",))}, "nobody", 'found "nobody", expected a job of the instance'),
        ({"gang": Seat("p", ("x/0",))}, "gang", cut_gang(1, "2")),
        ({"cpu": Seat("q", ("q-0/0",))}, "cpu", cut_gang(1, "none of this pool")),
        ({"elastic": Seat("p", ())}, "elastic", cut_gang(0, "1 to 3")),
        ({"levels": Seat("p", ("y/0", "y/1"))}, "levels", cut_gang(2, "1, 4")),
        ({"elastic": Seat("p", ("y/0",), gang=2)}, "elastic", cut_gang(1, "2")),
        ({"half": Seat("p", ("y/0",), 1.5)}, "half", "found a share of 1.5, expected one above 0, at most 1"),
        ({"cpu": Seat("p", ("x/2",))}, "cpu", given_twice("x/2", 1.5, "half, cpu")),
        ({"cpu": Seat("p", ("x/3",))}, "gang", "the GPUs need 10 of cpu of node x, expected at most 8"),
        ({"cpu": Seat("p", ("x/3",), needs={"rack": 1})}, "rack", "the GPUs need 2 of rack, expected at most 1"),
        (
            {"left": Seat("p", ("x/3",), 1.0, "right")},
            "left",
            'found other GPUs than its partner "right" has, expected the same',
        ),
        (
            {"left": Seat("p", ("y/3",), 1.0, "gang")},
            "left",
            'found partner "gang", which is not partner of "left" in the same way',
        ),
        ({"left": Seat("p", ("y/3",))}, "left", given_twice("y/3", 2, "left, right")),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told(seats: dict[str, Seat], job: str, words: str) -> None:
    assert (job, words) in check_seats(cluster(), {**RIGHT, **seats})


@pytest.mark.parametrize(
    ("more", "job", "words"),
    [
        ({"starting": ["rack"]}, "rack", 'found "old/1", but node old takes no work now'),
        ({"barred": {"gang": ["x"]}}, "gang", "found GPUs of node x, which is barred to it"),
        (apart("left", "elastic"), "left", together("elastic and left")),
        (apart("left", "right"), "right", together("left and right")),
    ],
)
def test_what_is_wrong_with_where_jobs_are_is_told(
    more: dict[str, Any], job: str, words: str
) -> None:
    assert (job, words) in check_seats(cluster(), RIGHT, **more)


def test_a_placement_is_a_right_set_of_seats() -> None:
    instance = instance_of(
        [job(f"j{i}", 2) for i in range(6)], [{"name": "p", "nodes": 3, "gpus_per_node": 4}]
    )
    classes, rows = rows_of(instance)
    placement = place_rows(classes, rows, np.arange(6), engine())
    seats = {
        f"j{row}": Seat("p", gpus)
        for row, gpus in zip(placement.row.tolist(), placement.gpus, strict=True)
    }
    assert len(seats) == 6 and check_seats(instance, seats, starting=seats) == []
