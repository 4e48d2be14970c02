"""The exact end: classes that have found their segment are pinned to it, a small program decides about the others.

A pinned class spends its time on the two ends of its segment, in parts that are linear in the level t. All of them
together are R numbers: what they hold is alpha + beta t.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.program.arrays import Block, LinearArrays
from optsched.solution.values import Termination
from optsched.solvers.base import Limits
from optsched.solvers.highs import Highs
from optsched.solvers.prices.market import Market, Point
from optsched.solvers.prices.oracle import Oracle
from optsched.solvers.prices.phases import PRECISE

NEAR = 5
"""Places of a free class that the small program has: its fastest, and those of the least reduced cost."""


@dataclass(frozen=True)
class Polished:
    """What the small program says: its point, its level, and its prices (not normalised)."""

    point: Point
    level: float
    prices: FloatArray


def undecided(oracle: Oracle, most: int) -> IntArray:
    """Classes whose segment may still change: those nearest to another one, and those at an end of their own."""
    count = len(oracle.market)
    most = min(most, count)
    low, high = oracle.ends()
    edge = np.minimum(oracle.share, 1.0 - oracle.share) * (high - low)
    few = min(count, 60)
    near = np.argpartition(oracle.margin, most - 1)[:most]
    return np.unique(np.concatenate([near, np.argpartition(edge, few - 1)[:few]])).astype(np.int64)


def polish(oracle: Oracle, free: IntArray, prices: FloatArray, time: float | None = None) -> Polished | None:
    """Solve for the free classes beside the pinned ones, within so many seconds.

    None if that has no optimum, as too many are pinned, or takes longer.
    """
    market = oracle.market
    low, high = oracle.ends()
    pinned = np.ones(len(market), bool)
    pinned[free] = False
    weight = np.where(pinned, market.weight, 0.0)
    rise = weight / (high - low)
    beta = market.used(oracle.lower, oracle.upper, np.where(oracle.lower >= 0, -rise, 0.0), rise)
    rest = np.where(oracle.lower >= 0, weight + low * rise, 0.0)
    alpha = market.used(oracle.lower, oracle.upper, rest, -low * rise)
    rows, places = np.nonzero(_kept(oracle, free, prices))
    arrays = _program(market, free, rows, places, alpha, beta)
    values = Highs().open(arrays).run(Limits(time, tolerance=PRECISE))
    if values.x is None or values.y is None or values.termination is not Termination.OPTIMAL:
        return None
    level = min(float(values.x[-1]), market.highest)
    spent = np.zeros((len(free), market.width))
    spent[rows, places] = np.maximum(values.x[:-1], 0.0)
    spent /= np.maximum(1.0, spent.sum(axis=1))[:, np.newaxis]
    share = np.clip((level - low) / (high - low), 0.0, 1.0)
    reached = low + share * (high - low)
    reached[free] = (market.level[free] * spent).sum(axis=1)
    inside = np.where(oracle.lower >= 0, 1.0 - share, 0.0)
    demand = market.used(oracle.lower, oracle.upper, weight * inside, weight * share)
    some_rows, some_places = np.nonzero(spent)
    demand = demand + market.rows_of(free[some_rows], some_places) @ spent[some_rows, some_places]
    lower, upper = oracle.lower.astype(np.int64), oracle.upper.astype(np.int64)
    point = Point(lower, upper, share, free, spent, demand, float(reached.min()))
    return Polished(point, level, np.maximum(values.y[2 * len(free) :], 0.0) / market.capacity)


def _kept(oracle: Oracle, free: IntArray, prices: FloatArray) -> BoolArray:
    """Places of the free classes that the small program has, shape (len(free), w)."""
    market = oracle.market
    level = market.level[free]
    if market.width <= NEAR:
        return level > 0
    cost = np.broadcast_to(market.costs(prices), market.level.shape)[free]
    reduced = cost - oracle.slope[free][:, np.newaxis] * level
    reduced[level <= 0] = np.inf
    reduced[np.arange(len(free)), level.argmax(axis=1)] = -np.inf
    kept = np.zeros(level.shape, bool)
    np.put_along_axis(kept, np.argpartition(reduced, NEAR - 1, axis=1)[:, :NEAR], True, axis=1)
    return kept & (level > 0)


def _program(
    market: Market, free: IntArray, rows: IntArray, places: IntArray, alpha: FloatArray, beta: FloatArray
) -> LinearArrays:
    """maximise t  s.t.  level_f >= t and time_f <= 1 for the free f,  demand + beta t <= W - alpha,  t <= highest."""
    count, goods, columns = len(free), len(market.capacity), len(rows)
    scale = sp.diags_array(1.0 / market.capacity)
    entries = np.arange(columns)
    levels = sp.csc_matrix((market.level[free[rows], places], (rows, entries)), shape=(count, columns + 1))
    levels = levels - sp.csc_matrix((np.ones(count), (np.arange(count), np.full(count, columns))), levels.shape)
    time = sp.csc_matrix((np.ones(columns), (rows, entries)), shape=(count, columns + 1))
    demand = sp.hstack([scale @ market.rows_of(free[rows], places), sp.csc_matrix((beta / market.capacity)[:, None])])
    upper = np.append(np.full(columns, np.inf), market.highest)
    size = 2 * count + goods
    return LinearArrays(
        A=sp.csc_matrix(sp.vstack([levels, time, demand])),
        row_lower=np.concatenate([np.zeros(count), np.full(count + goods, -np.inf)]),
        row_upper=np.concatenate([np.full(count, np.inf), np.ones(count), 1.0 - alpha / market.capacity]),
        lower=np.zeros(columns + 1), upper=upper, cost=np.append(np.zeros(columns), 1.0),
        integer=np.zeros(columns + 1, bool), maximise=True, offset=0.0, implied_lower=np.zeros(columns + 1),
        implied_upper=np.append(np.ones(columns), market.highest), rows=(Block("polish", 0, size),),
        columns=(Block("polish", 0, columns + 1),),
    )  # fmt: skip
