"""Room for gangs of one node, with CPUs and without: against the general search, and by counting."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from beside_cases import flaws_of
from hypothesis import given, settings
from hypothesis import strategies as st

import optsched
from optsched.candidates import Classes, JobRows
from optsched.placement import Occupied

# Private names: the searches without the round around them
from optsched.placement.beside import Clearing
from optsched.placement.one_node import OneNodeRoom, RoomMade
from optsched.placement.problem import Problem
from optsched.placement.requests import Requests

seeds = st.integers(0, 2**32 - 1)
CPUS = (1, 2, 4, 7)


@dataclass
class Case:
    """Gangs on one pool of nodes of 8 GPUs and 24 CPUs; some hold GPUs chosen at random."""

    classes: Classes
    rows: JobRows
    stands: dict[int, tuple[str, ...]]
    wanted: list[int]

    @classmethod
    def of(
        cls, gpus: list[int], cpus: list[int], nodes: int, stands: dict[int, tuple[str, ...]]
    ) -> Case:
        pool = {"name": "p", "nodes": nodes, "gpus_per_node": 8, "cpus_per_node": 24}
        rates = {"p": {str(size): 1.0 * size for size in (1, 2, 4, 8)}}
        document = {
            "format": "optsched-instance/1",
            "cluster": {"pools": [pool]},
            "workloads": {
                f"w{need}": {"throughput": rates, "demand": {"cpu": need} if need else {}}
                for need in set(cpus)
            },
            "jobs": [
                {"id": f"j{job}", "workload": f"w{need}", "gpus": size, "steps": 1e6}
                for job, (size, need) in enumerate(zip(gpus, cpus, strict=True))
            ],
        }
        instance = optsched.Instance.from_document(document)
        classes = optsched.compile(instance).per_job().classes(frozenset())
        count = len(gpus)
        found, first = np.unique(classes.class_a, return_index=True)
        column = np.full(count, -1, np.int64)
        column[classes.first[found]] = first
        job = np.arange(count, dtype=np.int64)
        ones = np.ones(count)
        rows = JobRows(job, np.full(count, -1), column, ones, ones, np.zeros(count))
        wanted = [row for row in range(count) if row not in stands and column[row] >= 0]
        return cls(classes, rows, stands, wanted)

    @classmethod
    def random(cls, seed: int) -> Case:
        rng = np.random.default_rng(seed)
        nodes, jobs = 5, 24
        gpus = rng.choice([1, 2, 4, 8], jobs).tolist()
        cpus = rng.choice(CPUS, jobs).tolist() if seed % 2 else [0] * jobs
        free = {node: list(rng.permutation(8)) for node in range(nodes)}
        left = dict.fromkeys(free, 24)
        stands = {}
        for job in range(2 * jobs // 3):
            size, need = gpus[job], gpus[job] * cpus[job]
            there = [n for n in free if len(free[n]) >= size and left[n] >= need]
            if there:
                node = int(rng.choice(there))
                mine = sorted(int(free[node].pop()) for _ in range(size))
                left[node] -= need
                stands[job] = tuple(f"p-{node}/{gpu}" for gpu in mine)
        return cls.of(gpus, cpus, nodes, stands)

    def occupied(self, some: list[int]) -> Occupied:
        return Occupied.of_rows(
            self.classes, self.rows, np.array(some, np.int64), [self.stands[row] for row in some]
        )

    def room(self, may_move: np.ndarray) -> OneNodeRoom:
        held = self.occupied(list(self.stands))
        requests = Requests.of(self.classes, self.rows, np.array(self.wanted, np.int64))
        nodes = Problem.of(requests, held).nodes
        row = np.array(list(self.stands), np.int64)
        running = np.ones(len(self.rows), np.int64)
        return OneNodeRoom(nodes, requests, held, row, may_move, running)

    def after(self, change: RoomMade) -> dict[int, tuple[str, ...]]:
        names = self.classes.instance.cluster.numbering.gpu_names
        given = {row: tuple(names(gpus)) for row, gpus in change.gpus.items()}
        kept = {row: gpus for row, gpus in self.stands.items() if row not in change.out}
        return kept | given


NOBODY = np.zeros(0, np.int64)


@settings(max_examples=80, deadline=None)
@given(seeds, st.integers(0, 4))
def test_room_is_made_for_one_row_after_the_other(seed: int, most: int) -> None:
    case = Case.random(seed)
    may_move = np.random.default_rng([seed, 1]).random(len(case.rows)) < 0.8
    room = case.room(may_move)
    for row in case.wanted:
        behind = np.array([other for other in case.stands if other > row], np.int64)[::-1]
        change = room.clear_node_for(row, behind, most)
        if change is None:
            continue
        others = [other for other in (*change.gpus, *change.out) if other != row]
        assert len(others) <= most and set(change.out) <= set(behind.tolist())
        assert all(may_move[other] for other in others if other in change.gpus)
        case.stands = case.after(change)
        assert row in case.stands
        assert flaws_of(case.classes, case.rows, case.stands) == []


@settings(max_examples=80, deadline=None)
@given(seeds)
def test_those_stop_that_the_general_search_finds(seed: int) -> None:
    case = Case.random(seed)
    stays = np.zeros(len(case.rows), bool)
    order = np.random.default_rng([seed, 1]).permutation(list(case.stands)).astype(np.int64)
    nobody = Occupied.none(case.classes.instance)
    for row in case.wanted:
        change = case.room(stays).clear_node_for(row, order, np.inf)
        clearing = Clearing(case.classes, case.rows, row, nobody, case.occupied(order.tolist()))
        gone = clearing.needed(np.arange(len(order)))
        if gone is None:
            assert change is None
        else:
            assert change is not None and sorted(change.out) == sorted(order[gone].tolist())


@pytest.mark.parametrize("cpus", [0, 3])
def test_a_gang_of_a_whole_node_gets_one_when_two_halves_move_together(cpus: int) -> None:
    halves = {k: tuple(f"p-{k}/{gpu}" for gpu in range(4)) for k in range(2)}
    case = Case.of([4, 4, 8], [cpus] * 3, 2, halves)
    may_move = np.ones(3, bool)
    assert case.room(may_move).clear_node_for(2, NOBODY, 0) is None
    assert case.room(~may_move).clear_node_for(2, NOBODY, 1) is None
    change = case.room(may_move).clear_node_for(2, NOBODY, 1)
    assert change is not None and not change.out
    assert case.after(change) == {
        0: tuple(f"p-1/{gpu}" for gpu in range(4, 8)),
        1: halves[1],
        2: tuple(f"p-0/{gpu}" for gpu in range(8)),
    }


def test_cpus_are_made_room_for_as_gpus_are() -> None:
    """GPUs are free on the first node, CPUs on the second; the small job moves."""
    stands = {0: ("p-0/0", "p-0/1"), 1: ("p-0/2",), 2: tuple(f"p-1/{gpu}" for gpu in range(5))}
    case = Case.of([2, 1, 4, 4], [7, 4, 1, 3], 2, {0: stands[0], 1: stands[1], 2: stands[2][:4]})
    change = case.room(np.ones(4, bool)).clear_node_for(3, NOBODY, 1)
    assert change is not None and change.out == ()
    assert sorted(change.gpus) == [3]  # 16 CPUs and 4 GPUs are free on the second node
    case = Case.of([2, 1, 4, 8], [7, 4, 1, 3], 2, {0: stands[0], 1: stands[1], 2: stands[2][:4]})
    change = case.room(np.ones(4, bool)).clear_node_for(3, NOBODY, 1)
    assert change is not None and sorted(change.gpus) == [2, 3]
    assert {gpu.split("/")[0] for gpu in case.after(change)[2]} == {"p-0"}
