"""Rounding by slots: its guarantee on assignments against their linear relaxation and optimum."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from refusals import refuses
from scipy.optimize import linprog

from optsched.decomposition import CoupledRows, Relaxed, best_items, lagrangian, round_by_slots
from optsched.errors import UsageError

seeds = st.integers(0, 2**32 - 1)


@given(seed=seeds)
@settings(max_examples=60, deadline=None)
def test_the_rounded_relaxation_of_an_assignment(seed: int) -> None:
    """Cost at most the relaxation's, which is at most the optimum; each capacity exceeded by less than one job."""
    random = np.random.default_rng(seed)
    m, n = int(random.integers(2, 4)), int(random.integers(2, 7))
    use, cost = (
        random.integers(1, 15, (m, n)).astype(float),
        random.integers(-9, 30, (m, n)).astype(float),
    )
    capacity = np.floor(1.1 * use.sum(axis=1) / m) + 3
    fits = use <= capacity[:, np.newaxis]
    relaxed = linprog(
        cost.ravel(),
        A_ub=np.kron(np.eye(m), np.ones(n)) * use.ravel(),
        b_ub=capacity,
        A_eq=np.tile(np.eye(n), m),
        b_eq=np.ones(n),
        bounds=[(0, 1 if fit else 0) for fit in fits.ravel()],
    )
    assume(relaxed.success)
    share = relaxed.x.reshape(m, n)
    agent, jobs = round_by_slots(share, use, cost), np.arange(n)
    assert cost[agent, jobs].sum() <= relaxed.fun + 1e-6
    load = np.bincount(agent, use[agent, jobs], minlength=m)
    assert (load <= capacity + np.where(share > 1e-9, use, 0.0).max(axis=1) + 1e-6).all()
    assert (share[agent, jobs] > 0).all()
    whole = [
        sum(cost[i, j] for j, i in enumerate(choice))
        for choice in product(range(m), repeat=n)
        if (np.bincount(choice, use[list(choice), jobs], minlength=m) <= capacity).all()
    ]
    assert cost[agent, jobs].sum() <= min(whole, default=np.inf) + 1e-6


def test_the_average_of_a_lagrangian_relaxation_is_rounded() -> None:
    random = np.random.default_rng(4)
    m, n = 3, 15
    use = random.integers(5, 25, (m, n))
    cost = 60 - use + random.integers(-9, 9, (m, n))
    capacity = (0.95 * use.sum(axis=1) / m).astype(int)

    def solve(y: np.ndarray) -> Relaxed:
        x = np.array([best_items(y - cost[i], use[i], capacity[i])[1] for i in range(m)], float)
        return Relaxed(x, (cost * x).sum(), x.sum(axis=0))

    found = lagrangian(CoupledRows.of(np.ones(n), np.ones(n)), solve)
    agent, jobs = round_by_slots(found.average, use, cost), np.arange(n)
    assert cost[agent, jobs].sum() <= found.bound + 0.01 * abs(found.bound)
    load = np.bincount(agent, use[agent, jobs], minlength=m)
    assert (load <= 1.02 * capacity + use.max(axis=1)).all()


def test_what_is_refused() -> None:
    one = np.ones((2, 3))
    with refuses("size: found shape (3, 2), expected that of share, (2, 3)", UsageError):
        round_by_slots(one, one.T, one)
    with refuses(
        "share: found no share of job 1, expected a machine with a share of each job", UsageError
    ):
        round_by_slots([[1.0, 0.0], [0.0, 0.0]], np.ones((2, 2)), np.ones((2, 2)))
    with refuses("share: found a negative or infinite number, expected 0 or more", UsageError):
        round_by_slots(-one, one, one)


def test_jobs_go_where_they_cost_least_of_their_slots() -> None:
    share, size = [[1.0, 0.2], [0.0, 0.8]], np.ones((2, 2))
    assert round_by_slots(share, size, [[5, 9], [1, 1]]).tolist() == [0, 1]
    assert round_by_slots(share, size, [[5, 0], [1, 1]]).tolist() == [0, 0]


@pytest.mark.parametrize("n", [1, 30])
def test_whole_shares_stay(n: int) -> None:
    random = np.random.default_rng(n)
    agent = random.integers(0, 4, n)
    share = (np.arange(4)[:, np.newaxis] == agent).astype(float)
    size, cost = random.uniform(1, 9, (4, n)), random.uniform(1, 9, (4, n))
    assert round_by_slots(share, size, cost).tolist() == agent.tolist()
