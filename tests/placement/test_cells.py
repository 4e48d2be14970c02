"""Cells: buddy allocation never breaks a promise that holds, and the exact program finds every gang that fits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import product
from typing import NamedTuple

import numpy as np
import pytest
from documents import instance_document
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refuses

import optsched
from optsched.errors import InvalidArgument, UsageError
from optsched.placement import BuddyCells, place_pods
from optsched.registry import load_solver
from optsched.solving import Engine

SIZES = (1, 2, 4, 8)
seeds = st.integers(0, 2**32 - 1)


def test_cells_split_and_merge() -> None:
    cells = BuddyCells(SIZES, 2)
    first, second = cells.take(1), cells.take(0)
    assert (first, second) == (0, 2)
    assert cells.free.tolist() == [1, 0, 1, 1]
    assert cells.open(1) == [4, 6, 8, 10, 12, 14]
    cells.give_back(0)
    assert cells.free.tolist() == [1, 1, 1, 1]
    cells.give_back(2)
    assert cells.free.tolist() == [0, 0, 0, 2]


def test_a_broken_gpu_takes_a_cell_of_every_size_away() -> None:
    cells = BuddyCells(SIZES, 1)
    assert cells.safe([0, 0, 0, 1])
    cells.take_at(0, 5)
    assert cells.free.tolist() == [1, 1, 1, 0]
    assert (
        not cells.safe([0, 0, 0, 1]) and cells.safe([1, 1, 1, 0]) and not cells.safe([0, 0, 2, 0])
    )
    with pytest.raises(ValueError, match=r"the cell of 2 GPUs at 4 is not free"):
        cells.take_at(1, 4)


@given(seed=seeds)
@settings(max_examples=200, deadline=None)
def test_promised_cells_are_always_there(seed: int) -> None:
    """Tenants take and give back within what they own, others take what leaves all promises safe."""
    random = np.random.default_rng(seed)
    tops = int(random.integers(1, 4))
    cells = BuddyCells(SIZES, tops)
    owned = random.integers(0, 3, len(SIZES))
    if not cells.safe(owned.tolist()):
        return
    promised, mine, others = owned.copy(), [], []
    for _ in range(60):
        level = int(random.integers(len(SIZES)))
        what = random.random()
        if what < 0.4 and promised[level]:
            start = cells.take(level)
            assert start is not None, "a promised cell was not there"
            promised[level] -= 1
            mine.append((start, level))
        elif what < 0.6 and mine:
            start, level = mine.pop(int(random.integers(len(mine))))
            cells.give_back(start)
            promised[level] += 1
        elif what < 0.8:
            start = cells.take_beside(level, promised.tolist())
            others += [] if start is None else [start]
        elif others:
            cells.give_back(others.pop(int(random.integers(len(others)))))
        assert cells.safe(promised.tolist())
        assert (cells.free * SIZES).sum() + sum(SIZES[at] for _, at in mine) <= cells.leaves


@given(seed=seeds)
@settings(max_examples=100, deadline=None)
def test_safety_is_that_all_promises_fit(seed: int) -> None:
    random = np.random.default_rng(seed)
    cells = BuddyCells((1, 2, 4), 2)
    for gpu in random.choice(8, int(random.integers(0, 6)), replace=False).tolist():
        cells.take_at(0, gpu)
    promised = random.integers(0, 3, 3).tolist()
    again = BuddyCells((1, 2, 4), 2)
    for gpu in set(range(8)) - set(cells.open(0)):
        again.take_at(0, gpu)
    # The largest first, each by buddy allocation, fits whenever anything does
    kept = all(again.take(level) is not None for level in (2, 1, 0) for _ in range(promised[level]))
    assert cells.safe(promised) == kept


def test_the_gang_that_first_fit_misses() -> None:
    """Nodes of 2 and of 1 GPU, pods of 1 and of 2: the small pod must not take the large node."""
    nodes = [BuddyCells((1, 2), 1), BuddyCells((1,), 1)]
    assert place_pods(nodes, [1, 2], Engine(load_solver)) == [(1, 0), (0, 0)]
    assert place_pods(nodes, [2, 2], Engine(load_solver)) is None
    assert place_pods(nodes, [4], Engine(load_solver)) is None


@given(seed=seeds)
@settings(max_examples=60, deadline=None)
def test_pods_are_placed_where_any_placement_exists(seed: int) -> None:
    random = np.random.default_rng(seed)
    nodes = [BuddyCells((1, 2, 4)[: int(random.integers(1, 4))], 1) for _ in range(3)]
    for node in nodes:
        for gpu in range(node.leaves):
            if random.random() < 0.3:
                node.take_at(0, gpu)
    pods = random.choice([1, 2, 3, 4], int(random.integers(1, 4))).tolist()
    choices = []
    for gpus in pods:
        mine = []
        for number, node in enumerate(nodes):
            size = next((size for size in node.sizes if size >= gpus), None)
            if size:
                starts = node.open(node.sizes.index(size))
                mine += [frozenset((number, gpu) for gpu in range(at, at + size)) for at in starts]
        choices.append(mine)
    fits = any(
        len(frozenset().union(*chosen)) == sum(map(len, chosen)) for chosen in product(*choices)
    )
    found = place_pods(nodes, pods, Engine(load_solver))
    assert (found is not None) == fits
    if found is not None:
        taken = []
        for (number, start), gpus in zip(found, pods, strict=True):
            size = next(size for size in nodes[number].sizes if size >= gpus)
            assert start in nodes[number].open(nodes[number].sizes.index(size))
            taken += [(number, gpu) for gpu in range(start, start + size)]
        assert len(set(taken)) == len(taken)


def test_sizes_divide_one_another() -> None:
    for sizes in ((1, 3, 4), (2, 4), (), (1, 4, 2)):
        with pytest.raises(InvalidArgument, match=r"sizes"):
            BuddyCells(sizes, 1)


# --- the side constraint --------------------------------------------------------------------------


@given(seed=seeds)
@settings(max_examples=30, deadline=None)
def test_whole_jobs_of_a_tenant_fit_into_its_cells(seed: int) -> None:
    random = np.random.default_rng(seed)
    gangs = random.choice([1, 2, 3, 4, 8], 6).tolist()
    owns = {
        "1": int(random.integers(0, 3)),
        "4": int(random.integers(0, 2)),
        "8": int(random.integers(0, 2)),
    }
    jobs = [
        {
            "id": f"j{row}",
            "gpus": gpus,
            "tenant": "a",
            "throughput": {"v": {str(gpus): float(random.integers(1, 9))}},
        }
        for row, gpus in enumerate(gangs)
    ]
    problem = instance_document({"v": (6, 8)}, jobs, tenants=[{"name": "a"}])
    cells = {"kind": "cells", "tenant": "a", "owns": owns}
    solution = optsched.solve(problem, "max-throughput", integral=True, constraints=[cells])

    def fits(chosen: list[int]) -> bool:
        """Whether the jobs fit into the cells, the larger first, each into the smallest that has room."""
        free = sorted(int(size) for size, number in owns.items() for _ in range(number))
        for gpus in sorted(chosen, reverse=True):
            need = next(size for size in (1, 4, 8) if size >= gpus)
            at = next((place for place, room in enumerate(free) if room >= need), None)
            if at is None:
                return False
            free[at] -= need
            free.sort()
        return True

    best = max(
        sum(
            job["throughput"]["v"][str(job["gpus"])]
            for job, take in zip(jobs, chosen, strict=True)
            if take
        )
        for chosen in product((False, True), repeat=len(jobs))
        if fits([job["gpus"] for job, take in zip(jobs, chosen, strict=True) if take])
    )
    assert solution.objective == pytest.approx(best)
    relaxed = optsched.solve(problem, "max-throughput", constraints=[cells])
    assert relaxed.objective is not None and relaxed.objective >= best - 1e-9
    assert optsched.verify(problem, relaxed.to_document()).ok


def test_jobs_larger_than_every_cell_do_not_run() -> None:
    jobs = [{"id": "a", "gpus": 4, "tenant": "t", "throughput": {"v": {"4": 1.0}}}]
    problem = instance_document({"v": (1, 8)}, jobs, tenants=[{"name": "t"}])
    cells = {"kind": "cells", "tenant": "t", "owns": {"2": 4}}
    assert optsched.solve(problem, "max-throughput", constraints=[cells]).objective == 0


def test_refused_cells() -> None:
    for owns, words in (
        ({"3": 1, "4": 1}, "3 and 4"),
        ({"x": 1}, '"x"'),
        ({"4": -1}, "-1"),
        ({}, "{}"),
    ):
        cells = {"kind": "cells", "tenant": "vision", "owns": owns}
        with pytest.raises(UsageError, match=words):
            optsched.solve("@quickstart", "max-throughput", constraints=[cells])
    with refuses(
        'tenant: found "nobody", expected one of the tenants vision, language', UsageError
    ):
        cells = {"kind": "cells", "tenant": "nobody", "owns": {"4": 1}}
        optsched.solve("@quickstart", "max-throughput", constraints=[cells])


def promised_cells(
    nodes: int, gpus: int, rate: dict[str, float], owns: dict[str, int]
) -> optsched.Solution:
    """The most throughput of a tenant's one gang on nodes of 4 GPUs, within its cells."""
    names = [f"p-{number}" for number in range(nodes)]
    instance = optsched.load(
        {
            "format": "optsched-instance/1",
            "cluster": {
                "pools": [{"name": "p", "nodes": nodes, "gpus_per_node": 4}],
                "levels": {"rack": {"r0": names}},
            },
            "tenants": [{"name": "A"}],
            "constraints": [{"kind": "cells", "tenant": "A", "owns": owns}],
            "jobs": [
                {"id": "a", "gpus": gpus, "tenant": "A", "throughput": {"p": {str(gpus): rate}}}
            ],
        }
    )
    return optsched.solve(instance, "max-throughput", integral=True, constraints=["placeable"])


@pytest.mark.parametrize(
    ("nodes", "gpus", "rate", "owns", "runs"),
    [
        # 3 + 1 needs a cell of 4
        (2, 4, {"2": 1.0}, {"2": 2}, False),
        (2, 4, {"rack": 1.0}, {"2": 2}, False),
        # 3 + 1 takes cells of 4 and 1, 2 + 2 takes a cell of 4 in halves: one node has it whole
        (2, 4, {"2": 1.0}, {"1": 0, "2": 0, "4": 1}, True),
        # A gang that fills its nodes has one split
        (3, 8, {"2": 1.0}, {"4": 2}, True),
        (3, 8, {"3": 1.0}, {"4": 2}, True),
        (3, 8, {"rack": 1.0}, {"4": 2}, True),
        (4, 8, {"cluster": 1.0}, {"4": 2}, True),
        (4, 8, {"rack": 1.0}, {"4": 1}, False),
        # 3 + 3 takes two cells of 4
        (3, 6, {"rack": 1.0}, {"2": 1, "4": 1}, False),
        (3, 6, {"rack": 1.0}, {"4": 2}, True),
        (2, 3, {"1": 1.0}, {"4": 1}, True),
        # A rate that is stated for the fewest nodes stays
        (3, 8, {"2": 1.0, "3": 6.0}, {"4": 2}, True),
    ],
)
def test_a_gang_counts_at_its_worst_split_on_the_fewest_nodes(
    nodes: int, gpus: int, rate: dict[str, float], owns: dict[str, int], runs: bool
) -> None:
    solution = promised_cells(nodes, gpus, rate, owns)
    assert solution.objective == (1.0 if runs else 0.0)
    if runs:
        assert solution.placement is not None
        assert solution.placement.figures["nodes_spanned"] == -(-gpus // 4)


def test_columns_on_the_fewest_nodes_are_made_once() -> None:
    document = {
        "format": "optsched-instance/1",
        "cluster": {
            "pools": [{"name": "p", "nodes": 3, "gpus_per_node": 4}],
            "levels": {"rack": {"r0": ["p-0", "p-1", "p-2"]}},
        },
        "jobs": [{"id": "a", "gpus": 8, "throughput": {"p": {"8": {"rack": 1.0, "3": 2.0}}}}],
    }
    candidates = optsched.compile(optsched.load(document))
    more = candidates.on_fewest_nodes
    assert sorted(candidates.columns.nodes.tolist()) == [3, 3]
    assert sorted(more.columns.nodes.tolist()) == [2, 2, 3, 3]
    assert more.on_fewest_nodes is more


@pytest.mark.parametrize(("cells", "runs"), [(1, False), (2, True)])
def test_a_gang_on_more_nodes_than_it_needs_counts_at_its_worst_split_there(
    cells: int, runs: bool
) -> None:
    """Half of each node is taken, so the gang is on both: in a cell of 4 on each, as 3 + 1 is."""
    document = {
        "format": "optsched-instance/1",
        "cluster": {"pools": [{"name": "p", "nodes": 2, "gpus_per_node": 4}]},
        "tenants": [{"name": "A"}],
        "constraints": [{"kind": "cells", "tenant": "A", "owns": {"4": cells}}],
        "jobs": [
            {"id": "a", "gpus": 4, "tenant": "A", "throughput": {"p": {"4": {"2": 1.0}}}},
            *(
                {
                    "id": f"b{node}",
                    "gpus": 2,
                    "preemptible": False,
                    "throughput": {"p": 1.0},
                    "running": {"pool": "p", "gpus": [f"p-{node}/0", f"p-{node}/1"]},
                }
                for node in range(2)
            ),
        ],
    }
    rules = ["placeable", "uninterrupted"]
    found = optsched.solve(document, "max-throughput", integral=True, constraints=rules)
    assert found.objective == (3.0 if runs else 2.0)


class SmallGang(NamedTuple):
    """A job of the small clusters below."""

    gpus: int
    mine: bool
    rates: dict[str, float]


def partitions(gpus: int, parts: int, most: int) -> Iterator[tuple[int, ...]]:
    """Ways to write a number of GPUs as at most so many parts of at most ``most``."""
    if gpus == 0:
        yield ()
    elif parts:
        for first in range(1, min(gpus, most) + 1):
            for rest in partitions(gpus - first, parts - 1, first):
                yield (first, *rest)


def cells_taken(parts: Iterable[int], sizes: Sequence[int]) -> tuple[int, ...] | None:
    """GPUs of the cells of each size or more that parts take; None where one fits in no cell."""
    cells = [next((size for size in sizes if size >= part), 0) for part in parts]
    if 0 in cells:
        return None
    return tuple(sum(cell for cell in cells if cell >= size) for size in sizes)


def most_cells(gpus: int, span: int, most: int, sizes: Sequence[int]) -> tuple[int, ...] | None:
    """The most that a gang on at most so many nodes takes, over all of its splits."""
    taken = [cells_taken(parts, sizes) for parts in partitions(gpus, span, most)]
    known = [cells for cells in taken if cells is not None]
    return None if len(known) < len(taken) else tuple(map(max, zip(*known, strict=True)))


def most_in_cells(
    free: tuple[int, ...],
    rack: Sequence[int],
    gangs: Sequence[SmallGang],
    owns: dict[int, int],
) -> float:
    """The most throughput over all placements in which the tenant's gangs count at the worst split
    over the fewest nodes, or over as many as their rates are for.
    """
    sizes = sorted(owns)
    largest = max(free)
    least = [sum(size * owns[size] for size in sizes if size >= at) for at in sizes]

    def ways(gang: SmallGang) -> Iterator[tuple[float, tuple[int, ...], tuple[int, ...]]]:
        """Rate, cells taken and GPUs on each node."""
        reach = np.sort(free)[::-1].cumsum()
        fewest = int(np.searchsorted(reach, gang.gpus)) + 1
        for name, rate in gang.rates.items():
            wide = min(int(name) if name.isdigit() else gang.gpus, len(free))
            if fewest > wide:
                continue
            for span in {fewest, wide}:
                cells = most_cells(gang.gpus, span, largest, sizes) if gang.mine else (0,) * 3
                for held in product(*(range(min(room, gang.gpus) + 1) for room in free)):
                    racks = {rack[node] for node, some in enumerate(held) if some}
                    inside = name != "rack" or len(racks) == 1
                    spanned = sum(map(bool, held))
                    if cells and inside and sum(held) == gang.gpus and spanned <= span:
                        yield rate, cells, held

    every = [list(ways(gang)) for gang in gangs]

    @cache
    def best(turn: int, left: tuple[int, ...], cells: tuple[int, ...]) -> float:
        if turn == len(gangs):
            return 0.0
        found = best(turn + 1, left, cells)
        for rate, taken, held in every[turn]:
            rest = tuple(room - some for room, some in zip(left, held, strict=True))
            quota = tuple(owned - some for owned, some in zip(cells, taken, strict=True))
            if min(rest) >= 0 and min(quota) >= 0:
                found = max(found, rate + best(turn + 1, rest, quota))
        return found

    return best(0, free, tuple(least))


@pytest.mark.property
@given(seed=seeds)
@settings(max_examples=120, deadline=None)
def test_small_clusters_with_cells_by_brute_force(seed: int) -> None:
    """The optimum is that over all placements, and its placement keeps within the cells."""
    random = np.random.default_rng(seed)
    free = tuple(random.choice([2, 4, 4, 4], int(random.integers(2, 5))).tolist())
    rack = [int(node >= 2) for node in range(len(free))]
    gangs = []
    for _ in range(int(random.integers(1, 5))):
        gpus = int(random.choice([1, 2, 3, 4, 4, 6, 8, 8]))
        spreads = ["rack", "cluster", *([str(random.integers(2, 4))] if gpus >= 3 else [])]
        chosen = random.choice(spreads, int(random.integers(1, 3)), replace=False).tolist()
        rates = {name: float(random.integers(1, 9)) for name in chosen}
        gangs.append(SmallGang(gpus, bool(random.random() < 0.7), rates))
    owns = {size: int(random.integers(0, 4 if size == 4 else 2)) for size in (1, 2, 4)}
    names = [f"p-{node}" for node in range(len(free))]
    racks = {
        f"r{number}": [name for name, at in zip(names, rack, strict=True) if at == number]
        for number in sorted(set(rack))
    }
    nodes = [{"name": name, "gpus": gpus} for name, gpus in zip(names, free, strict=True)]
    document = {
        "format": "optsched-instance/1",
        "cluster": {"pools": [{"name": "p", "nodes": nodes}], "levels": {"rack": racks}},
        "tenants": [{"name": "A"}, {"name": "B"}],
        "jobs": [
            {
                "id": f"j{row}",
                "gpus": gang.gpus,
                "tenant": "A" if gang.mine else "B",
                "throughput": {"p": {str(gang.gpus): gang.rates}},
            }
            for row, gang in enumerate(gangs)
        ],
    }
    cells = {"kind": "cells", "tenant": "A", "owns": {str(s): many for s, many in owns.items()}}
    found = optsched.solve(
        document, "max-throughput", integral=True, constraints=[cells, "placeable"]
    )
    assert found.objective == pytest.approx(most_in_cells(free, rack, gangs, owns))
    assert optsched.verify(document, found.to_document()).ok
    taken = np.zeros(3, np.int64)
    for row in found.to_document().get("placement", []):
        gang = gangs[int(row["job"][1:])]
        parts = Counter(gpu.partition("/")[0] for gpu in row["gpus"]).values()
        assert sum(parts) == gang.gpus
        if gang.mine:
            taken += cells_taken(parts, sorted(owns)) or (10**6,) * 3
    assert (
        taken <= [owns[1] + 2 * owns[2] + 4 * owns[4], 2 * owns[2] + 4 * owns[4], 4 * owns[4]]
    ).all()


def test_a_gang_that_keeps_its_gpus_counts_as_spread_evenly() -> None:
    document = {
        "format": "optsched-instance/1",
        "cluster": {"pools": [{"name": "p", "nodes": 2, "gpus_per_node": 4}]},
        "tenants": [{"name": "A"}],
        "constraints": [{"kind": "cells", "tenant": "A", "owns": {"2": 2}}],
        "jobs": [
            {
                "id": "a",
                "gpus": 4,
                "tenant": "A",
                "preemptible": False,
                "throughput": {"p": {"4": {"2": 1.0}}},
                "running": {"pool": "p", "gpus": ["p-0/0", "p-0/1", "p-1/0", "p-1/1"]},
            }
        ],
    }
    found = optsched.solve(
        optsched.load(document),
        "max-throughput",
        integral=True,
        constraints=["placeable", "uninterrupted"],
    )
    assert found.objective == 1.0
