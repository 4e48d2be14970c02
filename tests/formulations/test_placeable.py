"""The constraint `placeable`: whole jobs get what the best placement gives, and are placed so."""

from __future__ import annotations

import itertools
from functools import cache
from typing import Any

import numpy as np
import pytest

import optsched
from optsched.placement import check_placement

pytestmark = pytest.mark.oracle

Document = dict[str, Any]


def cluster_of(sizes: list[int], racks: int, rng: np.random.Generator, cpus: bool) -> Document:
    """Nodes of these sizes, dealt to racks at random."""
    names = [f"n{row}" for row in range(len(sizes))]
    nodes = [
        {"name": name, "gpus": size} | ({"cpus": float(rng.integers(2, 9))} if cpus else {})
        for name, size in zip(names, sizes, strict=True)
    ]
    document: Document = {"pools": [{"name": "v", "nodes": nodes}]}
    if racks:
        of_rack: dict[str, list[str]] = {}
        for name in names:
            of_rack.setdefault(f"r{rng.integers(racks)}", []).append(name)
        document["levels"] = {"rack": of_rack}
    return document


def job_of(number: int, rng: np.random.Generator, levels: bool) -> Document:
    """A job on 1 to 8 GPUs, with rates by nodes and levels, or one that shares GPUs."""
    if rng.random() < 0.25:
        share = float(rng.choice([0.3, 0.4, 0.5, 0.6, 0.7]))
        option = {"pool": "v", "gpus": 1, "share": share, "throughput": float(rng.integers(1, 9))}
        return {"id": f"j{number}", "options": [option]}
    rates: Document = {}
    for gpus in sorted({int(rng.integers(1, 9)) for _ in range(rng.integers(1, 3))}):
        best = float(gpus * rng.integers(8, 17))
        mine: Document = {"1": best}
        if levels and rng.random() < 0.7:
            mine = {"1": best, "rack": best * 0.75, "cluster": best * 0.375}
        elif gpus > 1 and rng.random() < 0.5:
            mine["2"] = best * 0.5
        rates[str(gpus)] = mine
    low, high = min(map(int, rates)), max(map(int, rates))
    return {
        "id": f"j{number}",
        "workload": str(rng.integers(2)),
        "gpus": {"min": low, "max": high},
        "throughput": {"v": rates},
    }


def small_instance(seed: int) -> Document:
    """Up to 5 nodes in up to 2 racks, and up to 6 jobs."""
    rng = np.random.default_rng(seed)
    racks = int(rng.integers(0, 3))
    sizes = [int(rng.choice([1, 2, 3, 4])) for _ in range(rng.integers(1, 6))]
    cpus = bool(rng.random() < 0.3)
    demand = {"demand": {"cpu": float(rng.integers(1, 4))}} if cpus else {}
    jobs = [job_of(number, rng, bool(racks)) for number in range(rng.integers(1, 7))]
    return {
        "format": "optsched-instance/1",
        "cluster": cluster_of(sizes, racks, rng, cpus),
        "workloads": {"0": {}, "1": demand},
        "jobs": jobs,
    }


Node = tuple[tuple[float, ...], float]
"""What is left of each GPU of a node, descending, and of its CPUs."""


def best_total(document: Document) -> float:
    """The largest total throughput over all placements, by trying every one of them."""
    nodes = document["cluster"]["pools"][0]["nodes"]
    racks = document["cluster"].get("levels", {}).get("rack", {})
    rack = {name: key for key, names in racks.items() for name in names}
    label = [rack.get(node["name"], node["name"]) for node in nodes]
    start = tuple(((1.0,) * node["gpus"], node.get("cpus", float("inf"))) for node in nodes)
    jobs = document["jobs"]

    @cache
    def best(job: int, left: tuple[Node, ...]) -> float:
        if job == len(jobs):
            return 0.0
        found = best(job + 1, left)
        for gpus, share, need, span, same_rack, rate in ways_of(document, jobs[job]):
            for after in seatings(left, gpus, share, need, span, label if same_rack else None):
                found = max(found, rate + best(job + 1, after))
        return found

    return best(0, start)


def ways_of(document: Document, job: Document) -> list[tuple[int, float, float, int, bool, float]]:
    """(GPUs, share, CPUs per GPU, most nodes, whether in one rack, rate)."""
    if "options" in job:
        option = job["options"][0]
        return [(1, option["share"], 0.0, 1, False, option["throughput"])]
    need = document["workloads"][job["workload"]].get("demand", {}).get("cpu", 0.0)
    ways = []
    for count, by_spread in job["throughput"]["v"].items():
        gpus = int(count)
        for spread, rate in by_spread.items():
            span = int(spread) if spread.isdecimal() else gpus
            ways.append((gpus, 1.0, need, span, spread == "rack", rate))
    return ways


def seatings(
    left: tuple[Node, ...], gpus: int, share: float, need: float, span: int, label: list[str] | None
) -> set[tuple[Node, ...]]:
    """What is left after a gang, for every way to give it GPUs of nodes."""
    found = set()
    able = [
        min(
            sum(amount >= share - 1e-9 for amount in room),
            int(cpus / need + 1e-9) if need else len(room),
        )
        for room, cpus in left
    ]
    for split in itertools.product(*(range(min(gpus, most) + 1) for most in able)):
        used = [node for node, part in enumerate(split) if part]
        racks = {label[node] for node in used} if label else set()
        if sum(split) != gpus or len(used) > span or len(racks) > 1:
            continue
        choices = [
            node_after(room, cpus, part, share, need)
            for (room, cpus), part in zip(left, split, strict=True)
        ]
        found.update(itertools.product(*choices))
    return found


def node_after(
    room: tuple[float, ...], cpus: float, part: int, share: float, need: float
) -> set[Node]:
    """What is left of a node after some of its GPUs, for every choice of these."""
    able = [gpu for gpu, amount in enumerate(room) if amount >= share - 1e-9]
    found = set()
    for chosen in itertools.combinations(able, part):
        after = [round(a - share, 9) if gpu in chosen else a for gpu, a in enumerate(room)]
        found.add((tuple(sorted(after, reverse=True)), cpus - part * need))
    return found


@pytest.mark.parametrize("seed", range(150))
def test_the_optimum_is_the_best_of_all_placements_and_is_placed(seed: int) -> None:
    check_against_all_placements(seed)


def check_against_all_placements(seed: int) -> None:
    document = small_instance(seed)
    instance = optsched.load(document)
    solution = optsched.solve(
        instance, "max-throughput", integral=True, constraints=["placeable"], gap=0.0
    )
    expected = best_total(document)
    assert solution.objective == pytest.approx(expected, rel=1e-12, abs=1e-12)
    assert solution.allocation is not None
    if expected == 0:
        return
    relaxed = optsched.solve(instance, "max-throughput", constraints=["placeable"])
    assert relaxed.bound is not None
    assert relaxed.bound >= expected * (1 - 1e-9)
    # The placement delivers what is promised, as the independent checker says.
    placement, rows = solution.placement, solution.allocation.rows
    assert placement is not None
    assert not placement.refused
    where = placement.row
    assert sorted(where.tolist()) == np.flatnonzero(rows.fraction > 0).tolist()
    flaws = check_placement(
        solution.allocation.classes,
        rows.job[where],
        rows.partner[where],
        rows.column[where],
        placement.gpus,
    )
    assert flaws == []
    assert rows.rate[where].sum() == pytest.approx(expected, rel=1e-12)
