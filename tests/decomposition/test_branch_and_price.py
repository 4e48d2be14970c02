"""Branch and price: proven optima of assignments and packings, what pricing must keep to, limits."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refuses

import optsched
from optsched.decomposition import (
    Decomposition,
    Master,
    MasterColumns,
    Priced,
    best_items,
    branch_and_price,
)
from optsched.errors import UsageError
from optsched.generate import gap  # the draw itself, without an instance
from optsched.libraries import AssignmentProblem

seeds = st.integers(0, 2**32 - 1)


def solved(problem: AssignmentProblem, **limits: Any) -> Decomposition:
    """Generalised assignment: the knapsack of an agent with jobs that it must have or may not have."""
    m, n = problem.cost.shape
    use, cost = problem.use.astype(int), problem.cost

    def price(y: np.ndarray, entries: np.ndarray) -> Priced:
        taken, block, least = [], [], np.full(m, np.inf)
        for i in range(m):
            must = entries[i] == 1
            room = int(problem.capacity[i]) - use[i][must].sum()
            if room >= 0:
                free = np.where(entries[i] == -1, y - cost[i], 0.0)
                jobs = best_items(free, use[i], room)[1] | must
                taken.append(jobs)
                block.append(i)
                least[i] = (cost[i] - y)[jobs].sum()
        matrix = np.array(taken, float).reshape(-1, n)
        columns = MasterColumns.of((matrix * cost[block]).sum(axis=1), matrix.T, block)
        return Priced(columns, least)

    master = Master.of(np.ones(n), np.full(n, np.inf), np.zeros(m), np.ones(m))
    return branch_and_price(master, price, step=1.0, **limits)


def drawn(seed: int, n: int = 9) -> AssignmentProblem:
    random = np.random.default_rng(seed)
    m = 3
    use = random.integers(5, 25, (m, n))
    cost = 60 - use + random.integers(-9, 9, (m, n))
    return AssignmentProblem(cost, use, np.floor(0.95 * use.sum(axis=1) / m))


def hard() -> AssignmentProblem:
    """One whose root proves nothing: relaxation 1,150.5, optimum 1,182."""
    use, cost, capacity = gap.draw(gap.GapOptions(jobs=20, agents=4, type="d", seed=9))
    return AssignmentProblem(cost, use, capacity)


@given(seed=seeds)
@settings(max_examples=12, deadline=None)
def test_assignments_are_proven(seed: int) -> None:
    problem = drawn(seed)
    best = optsched.solve(problem.instance("some"), "gap")
    found = solved(problem)
    if best.status != "optimal":
        assert found.whole is None and found.status == "limit"
        return
    assert found.status == "optimal" and found.objective == found.bound
    assert found.objective == pytest.approx(best.objective)
    chosen = found.columns.take(found.whole > 0.5)
    assert len(np.unique(chosen.block)) == len(chosen)
    assert (chosen.matrix.sum(axis=1) >= 1).all()
    load = [
        problem.use[k] @ column
        for k, column in zip(chosen.block, chosen.matrix.T.toarray(), strict=True)
    ]
    assert (load <= problem.capacity[chosen.block]).all()


@given(seed=seeds)
@settings(max_examples=25, deadline=None)
def test_rows_of_all_kinds_against_every_choice(seed: int) -> None:
    """Blocks whose columns are all listed, some of which are needed, and rows that are equations or limits."""
    random = np.random.default_rng(seed)
    rows, blocks, each = 4, 3, 5
    matrix = random.integers(0, 2, (rows, blocks * each)).astype(float)
    cost = random.integers(-9, 20, blocks * each).astype(float)
    block = np.repeat(np.arange(blocks), each)
    columns = MasterColumns.of(cost, matrix, block)
    kind = random.integers(0, 3, rows)
    side = matrix[:, ::each].sum(axis=1)
    lower, upper = np.where(kind == 1, -np.inf, side), np.where(kind == 0, np.inf, side)
    least = random.integers(0, 2, blocks).astype(float)

    def price(y: np.ndarray, entries: np.ndarray) -> Priced:
        fits = ((entries[block] == -1) | (entries[block] == matrix.T)).all(axis=1)
        reduced = np.where(fits, cost - y @ matrix, np.inf)
        best = reduced.reshape(blocks, each).min(axis=1)
        first = reduced.reshape(blocks, each).argmin(axis=1) + each * np.arange(blocks)
        return Priced(columns.take(first[np.isfinite(best)]), best)

    best = np.inf
    for choice in product(range(-1, each), repeat=blocks):
        taken = [k * each + c for k, c in enumerate(choice) if c >= 0]
        sums = matrix[:, taken].sum(axis=1)
        if (
            all(c >= 0 or least[k] == 0 for k, c in enumerate(choice))
            and ((lower <= sums) & (sums <= upper)).all()
        ):
            best = min(best, cost[taken].sum())
    found = branch_and_price(Master.of(lower, upper, least, np.ones(blocks)), price, step=1.0)
    assert found.status == "optimal" and found.objective == pytest.approx(best)


@pytest.mark.property
def test_the_history_ends_at_the_bound_of_the_tree() -> None:
    told: list[Any] = []
    found = solved(hard(), on_progress=told.append)
    assert found.nodes > 1 and found.objective == 1182
    assert found.history[-1][3] == found.bound == told[-1].bound
    assert told[-1].incumbent == found.objective
    assert len(found.x) == len(found.whole) == len(found.columns)


@pytest.mark.property
def test_a_limit_of_nodes_leaves_a_bound() -> None:
    whole = solved(hard())
    root = solved(hard(), work_limit=1)
    assert root.nodes == 1 < whole.nodes
    assert root.bound <= whole.bound and (
        root.objective is None or root.objective >= whole.objective
    )
    late = solved(drawn(3), time_limit=1e-9)
    assert late.status == "limit" and late.whole is None


def test_what_is_refused() -> None:
    master = Master.of([1.0], [1.0], [0], [1])

    def of(entry: float) -> MasterColumns:
        return MasterColumns.of([5.0], [[entry]], [0])

    with refuses("master.most: found 2, expected 1 for every block", UsageError):
        branch_and_price(Master.of([1.0], [1.0], [0], [2]), lambda y, e: Priced(of(1.0), [0.0]))
    with refuses("columns: found an entry of 2, expected 0 or 1", UsageError):
        branch_and_price(master, lambda y, e: Priced(of(2.0), 5.0 - y))
    with refuses("columns: found an entry of 0.5, expected 0 or 1", UsageError):
        branch_and_price(master, lambda y, e: Priced(of(1.0), 5.0 - y), of(0.5))
    with refuses("smoothing: found 1, expected a number from 0 to below 1", UsageError):
        branch_and_price(master, lambda y, e: Priced(of(1.0), 5.0 - y), smoothing=1.0)


def test_a_pricing_that_does_not_keep_to_the_branch_is_refused() -> None:
    """Each of three blocks may have two of three rows, or one: the master takes half of three pairs."""
    matrix = np.array([[1, 1, 0, 1, 0, 0], [0, 1, 1, 0, 1, 0], [1, 0, 1, 0, 0, 1]], float)
    master = Master.of(np.ones(3), np.ones(3), np.zeros(3), np.ones(3))

    def price(y: np.ndarray, entries: np.ndarray, obeys: bool) -> Priced:
        fits = ((entries[:, None] == -1) | (entries[:, None] == matrix.T)).all(axis=2) | (not obeys)
        reduced = np.where(fits, 1.0 - y @ matrix, np.inf)
        best = reduced.argmin(axis=1)
        there = np.flatnonzero(np.isfinite(reduced.min(axis=1)))
        columns = MasterColumns.of(np.ones(len(there)), matrix[:, best[there]], there)
        return Priced(columns, reduced.min(axis=1))

    found = branch_and_price(master, lambda y, e: price(y, e, True))
    assert found.objective == found.bound == 2.0 and found.nodes > 1
    assert found.value == pytest.approx(1.5)
    with refuses(
        "columns: found one of block 0 that breaks its entries, expected those asked for",
        UsageError,
    ):
        branch_and_price(master, lambda y, e: price(y, e, False))
