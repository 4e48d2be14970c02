"""Rows that start beside rows that stand: nothing overlaps, nothing moves, and what is refused has no room."""

from __future__ import annotations

import time

import numpy as np
import pytest
from beside_cases import Case, beside, flaws_of, random_occupied
from hypothesis import given, settings
from hypothesis import strategies as st
from placement_cases import brute_force, engine, instance_of, job, pool_of, rows_of

from optsched import Instance
from optsched.placement import Occupied, PlacedRows, place_beside, place_rows

# Private names: what rounds ask before they try rows
from optsched.placement.beside import columns_with_room
from optsched.placement.requests import needs_per_gpu

pytestmark = pytest.mark.property

seeds = st.integers(0, 2**32 - 1)


def seated(case: Case) -> PlacedRows:
    wanted = np.array(case.wanted, np.int64)
    return place_beside(
        case.classes,
        case.rows,
        wanted,
        case.occupied,
        case.constraints,
        barred=case.barred_of_wanted,
    )


# --- properties ------------------------------------------------------------------------------------------------------


@settings(max_examples=80, deadline=None)
@given(seeds)
def test_nothing_overlaps_and_what_is_refused_has_no_room(seed: int) -> None:
    case = random_occupied(seed)
    found = seated(case)
    placed = dict(zip(found.row.tolist(), found.gpus, strict=True))
    assert case.flaws(placed) == []
    assert [row for row in case.wanted if row in placed] == found.row.tolist()
    assert sorted([*placed, *(told.row for told in found.refused)]) == sorted(case.wanted)
    for told in found.refused:
        assert not case.has_room(told.row, placed), told
    again = seated(case)
    assert (again.gpus, again.refused) == (found.gpus, found.refused)


@settings(max_examples=80, deadline=None)
@given(seeds)
def test_columns_have_room_where_a_row_of_them_is_placed_alone(seed: int) -> None:
    case = random_occupied(seed)
    column = case.rows.column
    possible = columns_with_room(case.classes, np.unique(column), case.occupied).mask
    for row in case.wanted:
        # Anti-affinity and barred nodes are not looked at, nor several resources of some nodes.
        free = place_beside(case.classes, case.rows, np.array([row]), case.occupied)
        assert possible[column[row]] or not case.has_room(row, {})
        if not needs_per_gpu(case.classes, column[[row]])[1].any():
            assert possible[column[row]] == (len(free) > 0)


@settings(max_examples=60, deadline=None)
@given(seeds)
def test_exact_beside_what_stands_is_brute_force(seed: int) -> None:
    """`place_rows` with occupied: the integer program, and the best fit with its bounds."""
    case = random_occupied(seed)
    wanted = np.array(case.wanted, np.int64)
    best = brute_force(case.classes, case.rows, case.apart, case.stands, case.barred)
    for columns in (10**6, 0):
        placement = place_rows(
            case.classes, case.rows, wanted, engine(), case.constraints,
            columns=columns, occupied=case.occupied, barred=case.barred_of_wanted,
        )  # fmt: skip
        assert case.flaws(dict(zip(placement.row.tolist(), placement.gpus, strict=True))) == []
        found = placement.figures
        assert found["rows_placed"] <= best.rows <= found["rows_bound"]
        if found["rows_placed"] == best.rows:
            assert found["nodes_bound"] <= best.nodes <= found["nodes_spanned"]
        if columns or found["exact"]:
            assert best.reached_by(found)
    assert len(seated(case)) <= best.rows


def test_the_random_cases_are_of_every_sort() -> None:
    seen: dict[str, int] = {}
    for seed in range(200):
        case = random_occupied(seed)
        instance, table = case.classes.instance, case.classes.configurations
        usable = {
            pool.node_name(n)
            for pool in instance.cluster.pools
            for n in np.flatnonzero(pool.usable(0.0)).tolist()
        }
        share = {
            row: table.share[case.classes.configuration[case.rows.column[row]]]
            for row in range(len(case.rows))
        }
        names = instance.jobs_table.names
        found = seated(case)
        sorts = {
            "stands on a node that takes no work": any(
                gpu.split("/")[0] not in usable for gpus in case.stands.values() for gpu in gpus
            ),
            "a share stands": any(share[row] < 1 for row in case.stands),
            "a share starts": any(share[row] < 1 for row in case.wanted),
            "a pair stands": any(case.rows.partner[row] >= 0 for row in case.stands),
            "a pair starts": any(case.rows.partner[row] >= 0 for row in case.wanted),
            "apart across": any(
                {names[int(case.rows.job[row])] for row in part} & set(one)
                for one in case.apart for part in (case.stands,)
            ),
            "group": bool(instance.cluster.resources) and bool(case.stands),
            "topology": instance.cluster.topology is not None,
            "barred": bool(case.barred),
            "refused": bool(found.refused),
            "scattered": any(told.scattered for told in found.refused),
            "placed": len(found) > 0 and bool(case.stands),
        }  # fmt: skip
        for name, holds in sorts.items():
            seen[name] = seen.get(name, 0) + bool(holds)
    assert min(seen.values()) >= 10, seen


# --- by hand ---------------------------------------------------------------------------------------------------------


def test_identities_are_consecutive_where_they_can_be() -> None:
    jobs = [job("a", 2), job("b", 1), job("s", 1), job("t", 1)]
    found = beside(jobs, {"s": ["pa/1"], "t": ["pa/5"]}, pool_of(8))
    assert found == {"a": ("pa/6", "pa/7"), "b": ("pa/0",)}


def test_of_equal_rows_those_wanted_first_come_first() -> None:
    classes, rows = rows_of(instance_of([job("a", 1), job("b", 1), job("big", 2)], [pool_of(2, 1)]))
    none = Occupied.none(classes.instance)
    for order in ([0, 1, 2], [1, 0, 2]):
        found = place_beside(classes, rows, np.array(order), none)
        assert dict(zip(found.row.tolist(), found.gpus, strict=True))[2] == ("pa/0", "pa/1")
        assert [told.row for told in found.refused] == [order[1]]
    assert len(place_beside(classes, rows, np.zeros(0, np.int64), none)) == 0


def test_what_stands_on_a_node_that_takes_no_work_is_in_nobodys_way() -> None:
    nodes = [{"name": "old", "gpus": 2, "state": "drain"}, {"name": "new", "gpus": 2, "cpus": 4}]
    jobs = [job("s", 1, uses={"cpu": 3}), job("a", 2, uses={"cpu": 4})]
    found = beside(jobs, {"s": ["old/0"]}, {"name": "p", "nodes": nodes})
    assert found == {"a": ("new/0", "new/1")}


def test_a_resource_of_some_nodes_is_used_by_what_stands_on_any_of_them() -> None:
    nodes = [
        {"name": "old", "gpus": 2, "state": "drain"},
        {"name": "new", "gpus": 2},
        {"name": "far", "gpus": 1},
    ]
    rack = [{"name": "rack", "capacity": 2, "nodes": ["old", "new"]}]
    jobs = [job("s", 1, uses={"rack": 1}), job("a", 2, nodes=2, uses={"rack": 2})]
    found = beside(jobs, {"s": ["old/0"]}, {"name": "p", "nodes": nodes}, resources=rack)
    assert found == {"a": ("new/0", "far/0")}


def test_a_gang_finds_the_nodes_that_a_resource_of_others_leaves() -> None:
    """Three nodes share a rack with room for 3 GPUs, so that a gang of 4 needs the last node as well."""
    rack = [{"name": "rack", "capacity": 3, "nodes": ["pa", "pb", "pc"]}]
    for share in (1.0, 0.5):
        found = beside(
            [job("a", 4, nodes=2, share=share, uses={"rack": 4})],
            {},
            pool_of(3, 3, 1, 1),
            resources=rack,
        )
        assert found == {"a": ("pa/0", "pa/1", "pa/2", "pd/0")}


def test_slices_of_a_gpu_fill_up_what_stands() -> None:
    jobs = [
        job("s", 1, share=3 / 7),
        job("a", 1, share=4 / 7),
        job("b", 1, share=1 / 7),
        job("whole", 1),
    ]
    found = beside(jobs, {"s": ["pa/1"]}, pool_of(2))
    assert found["a"] == ("pa/1",) and found["whole"] == ("pa/0",)
    assert found["b"] == ("job b: needs 0.142857 of 1 GPU of p; no GPU is free for it", False)


def test_pairs_stand_and_start() -> None:
    jobs = [{"id": name, "gpus": 2, "throughput": {"p": 1.0}} for name in "abcd"]
    document = instance_of(jobs, [pool_of(4)]).to_document()
    document["colocation"] = [
        {"jobs": list(pair), "pool": "p", "gpus": 2, "throughput": [0.6, 0.7]}
        for pair in ("ab", "cd")
    ]
    classes, rows = rows_of(Instance.from_document(document))
    occupied = Occupied.of_rows(classes, rows, np.array([0]), [["pa/1", "pa/2"]])
    found = place_beside(classes, rows, np.array([1]), occupied)
    assert found.gpus == (("pa/0", "pa/3"),)
    with pytest.raises(ValueError, match="2 of pa/1 is held"):
        occupied.and_also(Occupied.of_rows(classes, rows, np.array([1]), [["pa/1", "pa/3"]]))


def test_room_is_told_apart_by_the_share_that_is_asked_for() -> None:
    jobs = [job("s", 1, share=0.5), job("whole", 1), job("half", 1, share=0.5)]
    found = beside(jobs, {"s": ["pa/0"]}, pool_of(1))
    assert (
        found["half"] == ("pa/0",) and isinstance(found["whole"][0], str) and not found["whole"][1]
    )


def test_what_a_tightened_gang_leaves_is_tried_at_last() -> None:
    """The gang b spans both nodes until a moves out of its way; what it leaves has the CPUs that c lacked before."""
    jobs = [
        job("a", 2, uses={"cpu": 6}, running=["pb/0", "pb/1"]),
        job("b", 3, nodes=2),
        job("c", 1, uses={"cpu": 3}),
    ]
    found = beside(jobs, {}, pool_of(2, 4, cpus_per_node=8))
    assert found == {"a": ("pa/0", "pa/1"), "b": ("pb/0", "pb/1", "pb/2"), "c": ("pb/3",)}


def test_jobs_apart_stay_apart_from_what_stands() -> None:
    jobs = [job("s", 1), job("a", 1), job("b", 1)]
    constraints = [{"kind": "anti-affinity", "jobs": ["s", "a"]}]
    found = beside(jobs, {"s": ["pa/0"]}, pool_of(2, 1), constraints=constraints)
    assert found == {"a": ("pb/0",), "b": ("pa/1",)}


def test_a_barred_node_is_none_for_the_row() -> None:
    jobs = [job("a", 1), job("b", 2)]
    assert beside(jobs, {}, pool_of(1, 3), barred={"b": ["pb"]}) == {
        "a": ("pa/0",),
        "b": ("job b: needs 2 GPUs of p on at most 1 node, not on pb; no GPU is free for it", True),
    }


def test_a_row_that_finds_no_place_tells_whether_gpus_lie_scattered() -> None:
    jobs = [job("s", 1), job("t", 1), job("a", 2), job("b", 4)]
    found = beside(jobs, {"s": ["pa/0"], "t": ["pb/0"]}, pool_of(2, 2))
    words = "2 GPUs are free for it: 1 on pa, 1 on pb"
    assert found["a"] == (f"job a: needs 2 GPUs of p on at most 1 node; {words}", True)
    assert found["b"] == (f"job b: needs 4 GPUs of p on at most 2 nodes; {words}", False)


def test_moving_what_may_move_makes_room() -> None:
    """The job that can't be preempted stays; the other gives way."""
    jobs = [job("fixed", 1, running=["pa/0"]), job("movable", 1, running=["pb/0"]), job("a", 2)]
    classes, rows = rows_of(instance_of(jobs, [pool_of(2, 2)]))
    fixed = Occupied.of_rows(classes, rows, np.array([0]), [["pa/0"]])
    both = fixed.and_also(Occupied.of_rows(classes, rows, np.array([1]), [["pb/0"]]))
    assert place_beside(classes, rows, np.array([2]), both).refused[0].scattered
    for columns in (0, 10**6):
        placement = place_rows(
            classes, rows, np.array([1, 2]), engine(), columns=columns, occupied=fixed
        )
        assert (
            placement.gpus == (("pa/1",), ("pb/0", "pb/1")) and placement.figures["gpus_moved"] == 1
        )


@pytest.mark.clock
def test_a_round_at_scale() -> None:
    """20 rows start beside 1,980 on 512 nodes; what they find is checked by GPU."""
    random = np.random.default_rng(0)
    sizes = random.choice([1, 2, 4, 8], 2000, p=[0.6, 0.2, 0.15, 0.05])
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
    stand, start = np.arange(1980), np.arange(1980, 2000)
    first = place_beside(classes, rows, stand, Occupied.none(classes.instance))
    occupied = Occupied.of_rows(classes, rows, first.row, first.gpus)
    started = time.perf_counter()
    found = place_beside(classes, rows, start, occupied)
    seconds = time.perf_counter() - started
    assert len(first) == 1980 and len(found) == 20
    held = dict(
        zip([*first.row.tolist(), *found.row.tolist()], [*first.gpus, *found.gpus], strict=True)
    )
    assert flaws_of(classes, rows, held) == []
    assert seconds < 0.5  # 1 ms on a core of its own
