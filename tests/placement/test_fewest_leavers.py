"""The bound on migrations by counting, against all sets of jobs that may leave."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

# Private: a part of `fewest_migrations`
from optsched.placement.leavers import Holdings, cost_of_leaving, fewest_leavers

NODES, GPUS = 3, 4


def fewest_of_all_sets(
    held: Holdings, free: np.ndarray, gpus: int, nodes: int
) -> tuple[float, float]:
    """Fewest jobs, and the least seconds of so few, without which some nodes have room."""
    jobs = np.unique(held.job).tolist()
    for count in range(len(jobs) + 1):
        costs = []
        for gone in combinations(jobs, count):
            mine = np.isin(held.job, gone)
            room = free + np.bincount(held.node[mine], held.amount[mine], NODES)
            if np.sort(room)[::-1][:nodes].sum() >= gpus:
                first = [int(np.flatnonzero(held.job == job)[0]) for job in gone]
                costs.append(float(held.seconds[first].sum()))
        if costs:
            return count, min(costs)
    return np.inf, 0.0


def random_holdings(random: np.random.Generator, spans: bool) -> tuple[Holdings, np.ndarray]:
    """Jobs on three nodes of four GPUs, some of them on two nodes, and what is free."""
    free = np.full(NODES, float(GPUS))
    entries: list[tuple[int, int, float, float]] = []
    for job in range(7):
        seconds = float(random.integers(1, 9))
        places = 2 if spans and random.random() < 0.5 else 1
        for node in random.permutation(NODES)[:places].tolist():
            amount = float(random.integers(1, 4))
            if amount <= free[node]:
                free[node] -= amount
                entries.append((job, node, amount, seconds))
    job, node, amount, seconds_of = (np.array(column) for column in zip(*entries, strict=True))
    number = np.unique(job, return_inverse=True)[1]
    return Holdings(number.astype(np.int64), node.astype(np.int64), amount, seconds_of), free


@pytest.mark.parametrize("spans", [False, True])
def test_no_set_of_jobs_that_makes_room_is_smaller_or_cheaper(spans: bool) -> None:
    random = np.random.default_rng(0)
    tight = 0
    for _ in range(60):
        held, free = random_holdings(random, spans)
        cost = cost_of_leaving(held, free, np.full(NODES, float(GPUS)))
        gpus, nodes = int(random.integers(1, 12)), int(random.integers(1, 4))
        fewest, seconds = fewest_leavers(cost, gpus, nodes)
        best, cheapest = fewest_of_all_sets(held, free, gpus, nodes)
        assert fewest <= best
        if fewest == best and np.isfinite(best):
            assert seconds <= cheapest + 1e-9
            tight += 1
        assert spans or fewest == best
    assert tight > 30
