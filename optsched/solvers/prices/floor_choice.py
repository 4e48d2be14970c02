"""Choices of classes that must reach a floor, where time has a worth of its own.

A unit of a member's time in place j costs q_j, is worth g_j, and gives the part d_j of what the
class is asked for. So the class takes, of all ways to reach 1, the one that costs least beyond its
worth:

    c_k  =  min  sum_j (q_j - g_j) x_j   s.t.  sum_j d_j x_j >= 1,   sum_j x_j <= 1,   x >= 0

This is the hull of `oracle` over the points (d_j, q_j - g_j). Its slope v at 1 is what the floor
costs, the rent is max(0, max_j (g_j + v d_j - q_j)), and any v >= 0 bounds the total by duality. A
class whose best place reaches the floor by itself is free of it.
"""

from __future__ import annotations

import numpy as np

from optsched.arrays import FloatArray, IntArray
from optsched.arrays.values import replace
from optsched.solvers.prices.market import Market
from optsched.solvers.prices.oracle import Oracle

ROUNDING = 1e-12
"""Part of a floor that a place may lack by rounding: a mixture of it and a place that is just above
would have a slope that rounding makes.
"""


class FloorChoice:
    """The classes that have a floor, and their answer to the last prices.

    Parameters
    ----------
    market : Market
    worth : FloatArray, shape (K, w)
        g.
    asks : FloatArray, shape (K, w)
        d; rows of 0 have no floor.

    Attributes
    ----------
    k : IntArray, shape (F,)
        The classes with a floor.
    lower, upper : array of int, shape (F,)
        Places on whose mixture each is at its floor; -1 is to be idle.
    share : FloatArray, shape (F,)
        Part of the time in the upper one.
    slope, rent : FloatArray, shape (F,)
        v, and the worth of the time.
    margin : FloatArray, shape (F,)
        How far each is from another choice, in cost.
    """

    def __init__(self, market: Market, worth: FloatArray, asks: FloatArray) -> None:
        self.k: IntArray = np.flatnonzero(asks.max(axis=1, initial=0.0) > 0)
        part = market if len(self.k) == len(market) else market.part(self.k, market.capacity)
        self.worth, self.asks = worth[self.k], asks[self.k]
        self.asks[(self.asks < 1.0) & (self.asks >= 1.0 - ROUNDING)] = 1.0
        self.market = replace(part, level=self.asks, unit=1.0, highest=1.0)
        self._oracle = Oracle(self.market, self.worth)

    def ask(self, prices: FloatArray) -> None:
        """Compute the response of all classes to prices."""
        found = self._oracle
        found.ask(prices, 1.0, whole=True)
        self.lower, self.upper = found.lower.astype(np.int64), found.upper.astype(np.int64)
        # The hull's own rents are those of segments that may be steeper by rounding.
        self.slope, self.share = found.slope.copy(), np.minimum(found.share, 1.0)
        gain = self.worth + self.slope[:, np.newaxis] * self.asks - self.market.costs(prices)
        self.rent = np.maximum(gain.max(axis=1), 0.0)
        high, low = self.market.levels_at(self.upper), self.market.levels_at(self.lower)
        self.margin = np.minimum(found.margin, self.slope * (high - low))
