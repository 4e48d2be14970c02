"""Diving: whole solutions of cutting-stock masters, their bounds, limits, and what pricing must keep to."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refuses

from optsched.decomposition import Decomposition, Master, MasterColumns, Priced, best_items, dive
from optsched.errors import UsageError

seeds = st.integers(0, 2**32 - 1)


def cut(size: np.ndarray, demand: np.ndarray, capacity: int, **more: Any) -> Decomposition:
    """Fewest bins for ``demand`` items of each size."""

    def price(y: np.ndarray, left: np.ndarray) -> Priced:
        kind = np.repeat(np.arange(len(size)), left.astype(int))
        worth, chosen = best_items(y[kind], size[kind], capacity)
        filling = np.bincount(kind[chosen], minlength=len(size)).astype(float)
        return Priced(MasterColumns.of([1.0], filling[:, np.newaxis], [0]), [1.0 - worth])

    master = Master.of(demand, demand, [0.0], [demand.sum()])
    return dive(master, price, step=1.0, **more)


def fewest(size: np.ndarray, demand: np.ndarray, capacity: int) -> int:
    """The optimum by dynamic programming over what is left of each size."""
    fillings = [
        np.array(counts)
        for counts in product(*(range(d + 1) for d in demand))
        if any(counts) and np.dot(counts, size) <= capacity
    ]
    best = {(0,) * len(size): 0}
    for left in sorted(product(*(range(d + 1) for d in demand)), key=sum)[1:]:
        before = [best[tuple((np.array(left) - f).tolist())] for f in fillings if (f <= left).all()]
        best[left] = 1 + min(before)
    return best[tuple(demand.tolist())]


@given(seed=seeds)
@settings(max_examples=25, deadline=None)
def test_bounds_and_solutions_against_all_fillings(seed: int) -> None:
    random = np.random.default_rng(seed)
    size = random.choice(np.arange(3, 14), 4, replace=False)
    demand = random.integers(1, 4, 4)
    found = cut(size, demand, 15)
    best = fewest(size, demand, 15)
    assert found.whole is not None and found.bound <= best <= found.objective
    # With so few items some dive finds the optimum
    assert found.objective == best == found.whole.sum()
    assert (found.columns.matrix @ found.whole == demand).all()
    taken = found.columns.take(found.whole > 0)
    assert (size @ taken.matrix <= 15).all()


def triplets(count: int, seed: int) -> np.ndarray:
    """Items of which three fill a bin of 1,000 without rest."""
    random = np.random.default_rng(seed)
    first = random.integers(380, 491, count)
    second = random.integers(250, (1000 - first) // 2)
    return np.concatenate([first, second, 1000 - first - second])


def test_dives_of_triplets_reach_the_bound() -> None:
    found, alone = [], []
    for seed in (1, 4, 5):
        size, demand = np.unique(triplets(12, seed), return_counts=True)
        found.append(cut(size, demand, 1000))
        alone.append(cut(size, demand, 1000, depth=0))
    # Which column has the largest fraction depends on the vertex, so not every dive need succeed
    assert sum(each.status == "optimal" for each in found) >= 2
    assert all(one.objective >= each.objective for one, each in zip(alone, found, strict=True))
    assert all(one.nodes <= each.nodes for one, each in zip(alone, found, strict=True))
    assert all(each.bound == 12.0 <= each.objective for each in found + alone)


def test_only_better_solutions_are_looked_for() -> None:
    size, demand = np.unique(triplets(5, 3), return_counts=True)
    best = cut(size, demand, 1000).objective
    none = cut(size, demand, 1000, below=best)
    assert none.whole is None and none.objective is None and none.status == "limit"
    assert none.nodes == 1
    assert cut(size, demand, 1000, below=best + 1).objective == best


def test_work_limit_counts_masters() -> None:
    size, demand = np.unique(triplets(20, 0), return_counts=True)
    found = cut(size, demand, 1000, work_limit=3)
    assert found.nodes == 3 and found.status == "limit" and found.bound == 20.0
    assert len(found.x) == len(found.columns)


def test_assignments_by_dives() -> None:
    """Blocks of one column each: an agent that was taken has no second column."""
    random = np.random.default_rng(4)
    m, n = 4, 16
    use = random.integers(5, 25, (m, n))
    cost = 60 - use + random.integers(-9, 9, (m, n))
    capacity = (0.95 * use.sum(axis=1) / m).astype(int)

    def price(y: np.ndarray, left: np.ndarray) -> Priced:
        worth = np.where(left > 0, y - cost, 0.0)
        jobs = np.array([best_items(worth[i], use[i], capacity[i])[1] for i in range(m)], float)
        columns = MasterColumns.of((jobs * cost).sum(axis=1), jobs.T, np.arange(m))
        return Priced(columns, ((cost - y) * jobs).sum(axis=1))

    found = dive(Master.of(np.ones(n), np.ones(n), np.zeros(m), np.ones(m)), price, step=1.0)
    assert found.whole is not None and found.bound <= found.objective
    chosen = found.columns.take(found.whole > 0)
    assert len(np.unique(chosen.block)) == len(chosen)
    assert (chosen.matrix.sum(axis=1) == 1).all()


def test_what_is_refused() -> None:
    size, demand = np.array([4, 3]), np.array([2, 3])
    with refuses("depth: found -1, expected 0 or more", UsageError):
        cut(size, demand, 10, depth=-1)

    def too_many(y: np.ndarray, left: np.ndarray) -> Priced:
        return Priced(MasterColumns.of([1.0], [[0.0], [4.0]], [0]), [1.0 - 4 * y[1]])

    def negative(y: np.ndarray, left: np.ndarray) -> Priced:
        return Priced(MasterColumns.of([1.0], [[-1.0], [1.0]], [0]), [-1.0])

    master = Master.of(demand, demand, [0.0], [9.0])
    with refuses(
        "columns: found an entry of 4 in row 1, expected at most 3, which is left", UsageError
    ):
        dive(master, too_many)
    with refuses("columns: found an entry of -1, expected 0 or more", UsageError):
        dive(master, negative)


@pytest.mark.parametrize("smoothing", [0.0, 0.7])
def test_nothing_to_do(smoothing: float) -> None:
    found = cut(np.array([4, 3]), np.array([0, 0]), 10, smoothing=smoothing, work_limit=9)
    assert (found.status, found.objective, found.bound) == ("optimal", 0.0, 0.0)
