"""The last phase of max-min: most classes are pinned to their segment, and a small linear program
decides about the others.

A pinned class spends its time on the two ends of its segment, in parts that are linear in the level
t. So the demand of all pinned classes is alpha + beta t, with R numbers each.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import scipy.sparse as sp

from optsched.arrays import BoolArray, FloatArray, IntArray, mask_of
from optsched.program.arrays import LinearArrays
from optsched.solution.values import BASIC, LOWER, UPPER, Basis
from optsched.solvers.prices.market import Market, PinnedDemand, PinnedPoint, Places
from optsched.solvers.prices.oracle import Oracle
from optsched.solvers.prices.programs import least_in_rows, maximum, optimum

NEAR = 5
"""Places of a free class that the small program has at first:
its fastest, and those of the least reduced cost.
"""
HIGH = 1e9
"""Most that a unit of a column of the small program adds to a level, of at most 1:
HiGHS takes none from 1e15 on.
"""
AT_ENDS = 60
"""Classes that are free as they are nearest to an end of their segment."""
SAMPLED_FROM = 30_000
"""Classes of which the nearest are found with the help of a sample."""


@dataclass(frozen=True)
class Polished:
    """The result of the small program: its point, its level, and its prices (not normalised)."""

    point: PinnedPoint
    level: float
    prices: FloatArray


@dataclass(frozen=True)
class PinnedClasses:
    """All classes but the free ones, on the segments of the last response.

    Attributes
    ----------
    market : Market
    sweeps : SimpleNamespace or None
        The compiled ones (`kernels`).
    free : IntArray
    mask : BoolArray, shape (K,)
        False for the free ones.
    lower, upper : array of int, shape (K,)
    pinned_demand : PinnedDemand
        What the pinned ones hold.
    """

    market: Market
    sweeps: SimpleNamespace | None
    free: IntArray
    mask: BoolArray
    lower: Places
    upper: Places
    pinned_demand: PinnedDemand

    @classmethod
    def but(cls, oracle: Oracle, free: IntArray) -> PinnedClasses:
        """Pin all but the free ones."""
        market = oracle.market
        # Copies: the oracle moves its segments on when it is asked again.
        lower, upper = oracle.lower.copy(), oracle.upper.copy()
        mask = np.ones(len(market), bool)
        mask[free] = False
        sweeps = oracle.sweeps if market.good is not None else None
        if sweeps is not None:
            held, more = np.zeros(market.width), np.zeros(market.width)
            sweeps.pin(market.level, market.weight, lower, upper, mask, held, more)
            alpha, beta = market.held(held), market.held(more)
        else:
            # The share in the upper place is (t - low) / (high - low), so it rises by ``rise`` per
            # level.
            low = market.levels_at(lower)
            weight = np.where(mask, market.weight, 0.0)
            rise = weight / (market.levels_at(upper) - low)
            placed = lower >= 0
            falling = np.where(placed, -rise, 0.0)
            at_zero = np.where(placed, weight + low * rise, 0.0)
            beta = market.used(lower, upper, falling, rise)
            alpha = market.used(lower, upper, at_zero, -low * rise)
        if market.pinned_demand is not None:
            alpha = alpha + market.pinned_demand.alpha
            beta = beta + market.pinned_demand.beta
        return cls(market, sweeps, free, mask, lower, upper, PinnedDemand(alpha, beta))

    def beside(self, level: float, spent: FloatArray) -> PinnedPoint:
        """The allocation in which pinned classes have a level
        and free ones spend their time so, (len(free), w).
        """
        market, free = self.market, self.free
        lower, upper = self.lower, self.upper
        if self.sweeps is not None:
            share, time = np.zeros(len(market)), np.zeros(market.width)
            least = self.sweeps.stand(
                market.level, market.weight, lower, upper, self.mask, level, share, time
            )
            demand = market.held(time)
        else:
            low = market.levels_at(lower)
            wide = market.levels_at(upper) - low
            share = np.clip((level - low) / wide, 0.0, 1.0)
            least = float((low + share * wide).min(initial=level, where=self.mask))
            weight = np.where(self.mask, market.weight, 0.0)
            rest = np.where(lower >= 0, 1.0 - share, 0.0)
            demand = market.used(lower, upper, weight * rest, weight * share)
        rows, places = np.nonzero(spent)
        demand = demand + market.rows_of(free[rows], places) @ spent[rows, places]
        if market.pinned_demand is not None:
            demand = demand + market.pinned_demand.alpha + level * market.pinned_demand.beta
        of_free = (market.level[free] * spent).sum(axis=1)
        reached = float(of_free.min(initial=least))
        return PinnedPoint(lower, upper, share, free, spent, demand, reached)


def undecided(oracle: Oracle, most: int) -> IntArray:
    """Classes whose segment may still change:
    those nearest to another one, and those at an end of their own.
    """
    near = _smallest(oracle.margin, most)
    ends = _smallest(oracle.edge, AT_ENDS)
    return np.unique(np.concatenate([near, ends])).astype(np.int64)


def _smallest(values: FloatArray, count: int) -> IntArray:
    """Where the smallest of some values are; a sample of many says which of them to look at."""
    if count >= len(values):
        return np.arange(len(values))
    if len(values) > SAMPLED_FROM:
        sample = values[:: len(values) // (SAMPLED_FROM // 8)]
        # Twice the rank that the count has in the sample: enough values are below it, but for rare
        # samples.
        rank = 2 * count * len(sample) // len(values) + 16
        if rank < len(sample):
            few = np.flatnonzero(values <= np.partition(sample, rank)[rank])
            if len(few) > count:
                return few[np.argpartition(values[few], count - 1)[:count]]
    return np.argpartition(values, count - 1)[:count]


def polish(
    oracle: Oracle,
    free: IntArray,
    prices: FloatArray,
    about: float,
    near: int = NEAR,
    time: float | None = None,
) -> Polished | None:
    """Solve for the free classes, so many places of each,
    beside the pinned ones, within so many seconds.

    The level is in units of what it is ``about``, so that HiGHS's tolerances are relative
    to it. The last response must be the whole one to these prices. None if the program has no
    optimum, as too many are pinned, or takes longer.
    """
    market = oracle.market
    pinned = PinnedClasses.but(oracle, free)
    rows, places = np.nonzero(_kept(oracle, free, prices, near))
    part = np.minimum(1.0, HIGH * about / market.level[free[rows], places])
    program = _program(market, free, rows, places, part, pinned.pinned_demand, about)
    found = optimum(program, time, _segments(oracle, free, rows, places, prices))
    if found is None:
        return None
    x, y = found
    level = min(float(x[-1]) * about, market.highest)
    spent = np.zeros((len(free), market.width))
    spent[rows, places] = np.maximum(x[:-1], 0.0) * part
    # By tolerances some classes have slightly more than all their time.
    spent /= np.maximum(1.0, spent.sum(axis=1))[:, np.newaxis]
    of_goods = slice(2 * len(free), None)
    return Polished(
        pinned.beside(level, spent), level, np.maximum(y[of_goods], 0.0) / market.capacity
    )


def _segments(
    oracle: Oracle, free: IntArray, rows: IntArray, places: IntArray, prices: FloatArray
) -> Basis:
    """The basis of `_program` in which free classes are on their segments,
    but for the few nearest to another one.

    With R goods of a price the level and R - 1 classes beyond their segments decide how these are
    used up.
    """
    market = oracle.market
    lower, upper = oracle.lower[free], oracle.upper[free]
    priced = prices > 0
    on_segment = (places == upper[rows]) | (places == lower[rows])
    klass = free[rows]
    cost = np.broadcast_to(market.costs(prices), market.level.shape)[klass, places]
    reduced = cost - oracle.slope[klass] * market.level[klass, places] + oracle.rent[klass]
    # To be idle is a place too, whose reduced cost is the rent.
    nearest = np.where(lower >= 0, oracle.rent[free], np.inf)
    np.minimum.at(nearest, rows[~on_segment], reduced[~on_segment])
    between = max(0, int(priced.sum()) - 1)
    extra = mask_of(np.argsort(nearest, kind="stable")[:between], len(free))
    idle = (lower < 0) | (extra & (nearest == oracle.rent[free]))
    entering = ~on_segment & extra[rows] & ~idle[rows] & (reduced == nearest[rows])
    beyond = np.flatnonzero(entering)
    # Of several places that are as near, the first one of each class.
    first = np.unique(rows[beyond], return_index=True)[1]
    basic = np.append(on_segment, True)  # the last column is the level
    basic[beyond[first]] = True
    of_rows = [
        np.full(len(free), LOWER),
        np.where(idle, BASIC, UPPER),
        np.where(priced, UPPER, BASIC),
    ]
    return Basis(np.where(basic, BASIC, LOWER), np.concatenate(of_rows))


def _kept(oracle: Oracle, free: IntArray, prices: FloatArray, near: int) -> BoolArray:
    """Places of the free classes that the small program has, shape (len(free), w)."""
    market = oracle.market
    level = market.level[free]
    if market.width <= near:
        return level > 0
    cost = np.broadcast_to(market.costs(prices), market.level.shape)[free]
    reduced = cost - oracle.slope[free][:, np.newaxis] * level
    reduced[level <= 0] = np.inf
    # The fastest place is always there: without it the highest level may be out of reach.
    reduced[np.arange(len(free)), level.argmax(axis=1)] = -np.inf
    return least_in_rows(reduced, near) & (level > 0)


def _program(
    market: Market,
    free: IntArray,
    rows: IntArray,
    places: IntArray,
    part: FloatArray,
    pinned_demand: PinnedDemand,
    about: float,
) -> LinearArrays:
    """maximise t  s.t.  level_f >= t and time_f <= 1 for the free f,  demand + beta t <= W - alpha,  t <= highest.

    A unit of a column is a part of the time, and t counts in units of what it is ``about``. The
    matrix is written column by column: level, time, demand; t comes last.
    """
    count, goods, columns = len(free), len(market.capacity), len(rows)
    # Written entry by entry, which is faster than to join sparse matrices.
    held = market.rows_of(free[rows], places)
    length = np.diff(held.indptr)
    indptr = np.concatenate([[0], np.cumsum(length + 2), [0]])
    begin, last = indptr[:-2], slice(indptr[-2], None)
    others = np.arange(held.nnz) + 2 * np.repeat(np.arange(1, columns + 1), length)
    rising = np.flatnonzero(pinned_demand.beta)
    indptr[-1] = indptr[-2] + count + len(rising)
    indices, data = np.empty(indptr[-1], np.int32), np.empty(indptr[-1])
    indices[begin], data[begin] = rows, market.level[free[rows], places] / about * part
    indices[begin + 1], data[begin + 1] = count + rows, part
    indices[others] = 2 * count + held.indices
    data[others] = held.data * np.repeat(part, length) / market.capacity[held.indices]
    indices[last] = np.concatenate([np.arange(count), 2 * count + rising])
    data[last] = np.concatenate(
        [np.full(count, -1.0), about * pinned_demand.beta[rising] / market.capacity[rising]]
    )
    upper = np.append(np.full(columns, np.inf), market.highest / about)
    size = 2 * count + goods
    left = 1.0 - pinned_demand.alpha / market.capacity
    return maximum(
        "polish",
        sp.csc_matrix((data, indices, indptr), shape=(size, columns + 1)),
        np.append(np.zeros(columns), 1.0),
        np.concatenate([np.zeros(count), np.full(count + goods, -np.inf)]),
        np.concatenate([np.full(count, np.inf), np.ones(count), left]),
        upper,
    )
