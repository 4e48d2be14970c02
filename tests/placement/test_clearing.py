"""Which of what stands goes for one gang: the least of it in the given order, against a search of all sets."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from beside_cases import Case, random_occupied

import optsched
from optsched.candidates import JobRows
from optsched.placement import Occupied

# Private names: single searches and bounds, without the choice among them
from optsched.placement.beside import Clearing

pytestmark = pytest.mark.property


def split(case: Case, random: np.random.Generator) -> tuple[list[int], list[int]]:
    """Rows that stand and stay, and rows that stand and may go."""
    loose = [row for row in case.stands if random.random() < 0.7]
    return [row for row in case.stands if row not in loose], loose


def of(case: Case, rows: list[int]) -> Occupied:
    return Occupied.of_rows(
        case.classes, case.rows, np.array(rows, np.int64), [case.stands[row] for row in rows]
    )


@pytest.mark.parametrize("seed", range(60))
def test_the_least_goes_in_the_order(seed: int) -> None:
    case, random = random_occupied(seed), np.random.default_rng([seed, 2])
    firm, loose = split(case, random)
    loose = loose[:6]
    for row in case.wanted[:3]:
        barred = case.barred.get(row, ())
        clearing = Clearing(
            case.classes, case.rows, row, of(case, firm), of(case, loose), case.constraints, barred
        )  # fmt: skip
        order = random.permutation(len(loose))

        def has_room(gone: tuple[int, ...], row: int = row, order: np.ndarray = order) -> bool:
            left = [
                other
                for place, other in enumerate(loose)
                if place not in {int(order[k]) for k in gone}
            ]
            stands = {other: case.stands[other] for other in (*firm, *left)}
            alone = Case(case.classes, case.rows, case.apart, stands, [row], case.barred)
            return alone.has_room(row, {})

        sets = [
            gone
            for count in range(len(loose) + 1)
            for gone in combinations(range(len(loose)), count)
        ]
        room = [gone for gone in sets if has_room(gone)]
        found = clearing.needed(order.astype(np.int64))
        if not room:
            assert found is None
        else:
            best = min(room, key=lambda gone: (sorted(gone, reverse=True), len(gone)))
            assert found is not None and found.tolist() == sorted(int(order[k]) for k in best)
        assert sorted(clearing.nearest().tolist()) == list(range(len(loose)))


def test_who_frees_a_resource_of_several_nodes_makes_room_on_a_node_without_it() -> None:
    needs = {"demand": {"licence": 1.0}}
    document = {
        "format": "optsched-instance/1",
        "cluster": {
            "pools": [{"name": "p", "nodes": 2, "gpus_per_node": 2}],
            "resources": [{"name": "licence", "capacity": 2.0, "nodes": ["p-0", "p-1"]}],
        },
        "workloads": {
            "licensed": {"throughput": {"p": {"1": 1.0}}, **needs},
            "free": {"throughput": {"p": {"1": 1.0}}},
            "gang": {"throughput": {"p": {"2": 2.0}}, **needs},
        },
        "jobs": [
            {"id": "a", "workload": "licensed", "steps": 1e6},
            {"id": "b", "workload": "free", "steps": 1e6},
            {"id": "c", "workload": "gang", "gpus": 2, "steps": 1e6},
        ],
    }
    instance = optsched.Instance.from_document(document)
    classes = optsched.compile(instance).per_job().classes(frozenset())
    column = np.argsort(classes.class_a)
    rows = JobRows(np.arange(3), np.full(3, -1), column, np.ones(3), np.ones(3), np.zeros(3))
    loose = Occupied.of_rows(classes, rows, np.array([0, 1]), [("p-0/0",), ("p-0/1",)])
    clearing = Clearing(classes, rows, 2, Occupied.none(instance), loose)
    found = clearing.needed(np.array([0, 1]))
    assert found is not None and found.tolist() == [0]  # the licence; p-1 is free


def test_a_job_that_must_be_apart_closes_its_node_until_it_goes() -> None:
    document = {
        "format": "optsched-instance/1",
        "cluster": {"pools": [{"name": "p", "nodes": 1, "gpus_per_node": 3}]},
        "jobs": [{"id": name, "throughput": {"p": 1.0}, "steps": 1e6} for name in ("a", "b", "c")],
    }
    instance = optsched.Instance.from_document(document)
    classes = optsched.compile(instance).per_job().classes(frozenset())
    column = np.argsort(classes.class_a)
    rows = JobRows(np.arange(3), np.full(3, -1), column, np.ones(3), np.ones(3), np.zeros(3))
    loose = Occupied.of_rows(classes, rows, np.array([0, 1]), [("p-0/0",), ("p-0/1",)])
    apart = [{"kind": "anti-affinity", "jobs": ["b", "c"]}]
    clearing = Clearing(classes, rows, 2, Occupied.none(instance), loose, apart)
    found = clearing.needed(np.array([0, 1]))
    assert found is not None and found.tolist() == [1]  # a GPU is free beside it
