"""Linear totals above floors that use up whole resources, so that prices may rise along a ray."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse as sp

# Private names: one search, without the program around it
from optsched.solvers.prices.goods import Goods
from optsched.solvers.prices.linear_total import LinearTotalSearch
from optsched.solvers.prices.market import Market

pytestmark = pytest.mark.property

COST = np.array([1.0, 2.0, 3.0])
"""Of the places; along the ray (2, 1, 0 and 1 for each unit of cost) all cost 3."""


def market(level: np.ndarray, used: np.ndarray) -> Market:
    """Classes with a level in three places, which a budget limits too; the times use up all."""
    columns = level.size
    of_place = np.tile(np.arange(3), len(level))
    rows = [(of_place == place).astype(float) for place in range(3)]
    usage = sp.csr_matrix(np.array([*rows, COST[of_place]]))
    return Market(
        level,
        np.ones(len(level)),
        usage @ used.ravel(),
        np.arange(4),
        None,
        np.ones(len(level)),
        np.arange(columns).reshape(level.shape),
        columns,
        lambda: usage,
        1.0,
        1.0,
    )


@pytest.mark.parametrize("classes", [300, 1000])
@pytest.mark.parametrize("seed", range(2))
def test_classes_that_hardly_differ_along_the_ray_are_decided_about(
    seed: int, classes: int
) -> None:
    """Three classes need 1e-9 more of everything in the place that is worth most to them. Without
    the ray the value of an answer is 1e-5 off its bound.
    """
    random = np.random.default_rng(seed)
    height = random.uniform(1.2, 6.0, classes)
    level, worth = np.tile(height, (3, 1)).T, random.uniform(0.5, 1.5, (classes, 3))
    base = random.dirichlet(np.ones(3), classes) / height[:, np.newaxis]
    level[:3, 1] *= 1 - 1e-9
    worth[:3, 1] += 3.0
    base[:3] = 0.0
    base[:3, 2] = 1.0 / height[:3]
    ray = float((worth.max(axis=1) / 3.0).max()) * np.array([2.0, 1.0, 0.0, 1.0])
    goods = Goods.of(market(level, base), np.arange(classes))
    search = LinearTotalSearch(goods, worth, None, level, base)
    search.run([ray], ray)
    time = search.time()
    assert search.worth_of(time) == pytest.approx(search.bound, rel=1e-9)
    assert (goods.used(time) <= goods.market.capacity * (1 + 1e-12)).all()
    assert (np.einsum("kj,kj->k", level, time) >= 1 - 1e-8).all()


def test_demand_is_summed_without_an_error_that_grows_with_the_classes() -> None:
    random = np.random.default_rng(3)
    time = random.random((100_000, 3))
    goods = Goods.of(market(np.ones_like(time), time), np.arange(len(time)))
    exact = [math.fsum(column) for column in time.T]
    assert goods.used(time)[:3] == pytest.approx(exact, rel=1e-15)


def test_floors_that_the_base_misses_by_rounding_are_worth_nothing() -> None:
    """The base is 3e-8 below all floors. If one class that is worth much got what the others lack,
    the total would be above the bound.
    """
    random = np.random.default_rng(0)
    level = np.tile(random.uniform(1.2, 6.0, 300), (3, 1)).T
    worth = np.tile(random.uniform(0.5, 1.5, 300), (3, 1)).T
    worth[0] = 50.0
    base = random.dirichlet(np.ones(3), 300) / level
    base[0] *= 0.2
    asks = level.copy()
    asks[0] *= 5.0
    ray = 0.5 * float(worth.max()) / 3.0 * np.array([2.0, 1.0, 0.0, 1.0])
    goods = Goods.of(market(level, base), np.arange(300))
    search = LinearTotalSearch(goods, worth, None, asks, base * (1.0 - 3e-8))
    search.run([ray], ray)
    assert search.value == pytest.approx(search.bound, rel=1e-9)
    assert search.worth_of(search.time()) == pytest.approx(search.bound, rel=1e-9)
