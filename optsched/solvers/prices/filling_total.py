"""The largest total of all levels with nobody below a floor, bounded by prices.

    maximise  sum_k n_k level_k(x)   s.t.  level_k(x) >= L_k  for every class k,   x within time and resources

At prices p every class takes, of all levels from its floor on, the one that is worth most beyond what it
costs, and

    D(p) = p . W + sum_k n_k max over t >= L_k of (t - c_k(t; p))

bounds the total, where c_k is the hull of `oracle`. Where the floors are the levels of a water filling,
the total of the floors can be had, so that only the prices of the least bound are to be found: by
cutting planes between the best prices so far and those of a master program, which mixes the responses.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from optsched.arrays import FloatArray
from optsched.solvers.prices.market import Market
from optsched.solvers.prices.oracle import Oracle
from optsched.solvers.prices.programs import maximum, optimum

PASSES = 60
CLOSED = 1e-10
"""Relative distance between the bound and the total of the floors at which the search ends."""
STEADY = 0.5
"""Part of the best prices in the prices that are asked next."""


@dataclass(frozen=True)
class FloorResponse:
    """What all classes take at prices, and the duals that follow.

    Attributes
    ----------
    prices, demand : FloatArray, shape (R,)
    total : float
        Of the levels that they take.
    bound : float
        D.
    slope, rent : FloatArray, shape (K,)
        Worth of a unit of each level, at least 1, and of the time of each class.
    """

    prices: FloatArray
    demand: FloatArray
    total: float
    bound: float
    slope: FloatArray
    rent: FloatArray


class TotalAboveFloors:
    """Searches for the prices of the least bound.

    Parameters
    ----------
    market : Market
    floor : FloatArray, shape (K,)
    """

    def __init__(self, market: Market, floor: FloatArray) -> None:
        self.market, self.floor = market, floor
        self.level = market.level * market.unit
        self.some = np.flatnonzero(floor > 0)
        held = market.part(self.some, market.capacity) if len(self.some) < len(floor) else market
        unit = (1.0 / floor[self.some])[:, np.newaxis]
        # At the level 1 everybody is at its floor.
        self.held = replace(held, level=self.level[self.some] * unit, unit=1.0, highest=1.0)
        self.asked = 0

    def run(self, prices: FloatArray, point: FloatArray) -> FloorResponse:
        """The response of the least bound that is found.

        Parameters
        ----------
        prices : FloatArray, shape (tries, R)
            Where to begin.
        point : FloatArray, shape (N,)
            An allocation that reaches the floors.
        """
        members = self.market.weight / self.market.amount
        total = float(members @ self.floor)
        asked = [self._ask(row) for row in prices]
        best = min(asked, key=lambda response: response.bound)
        cuts = [(np.asarray(self.market.usage @ point), total)]
        cuts += [(response.demand, response.total) for response in asked]
        while best.bound - total > CLOSED * total and self.asked < PASSES:
            master = self._mix(cuts, total)
            if master is None:
                break
            found = self._ask(STEADY * best.prices + (1.0 - STEADY) * master)
            cuts.append((found.demand, found.total))
            best = min(best, found, key=lambda response: response.bound)
        return best

    def _ask(self, prices: FloatArray) -> FloorResponse:
        market = self.market
        self.asked += 1
        oracle = Oracle(self.held)
        oracle.ask(prices, 1.0, whole=True)
        slope = np.ones(len(market))
        of_floor = self.held.amount * oracle.slope / self.floor[self.some]
        slope[self.some] = np.maximum(of_floor, 1.0)
        cost = market.amount[:, np.newaxis] * np.broadcast_to(
            market.costs(prices), market.level.shape
        )
        rent = np.maximum((slope[:, np.newaxis] * self.level - cost).max(axis=1), 0.0)
        # Whose level is worth less than 1 at the floor goes on to where it is worth most.
        best = (self.level - cost).argmax(axis=1)
        rows, beyond = np.arange(len(market)), np.ones(len(market), bool)
        beyond[self.some] = of_floor < 1.0
        worth = self.level[rows, best] - cost[rows, best]
        stays, goes = ~beyond[self.some], beyond & (worth > 0)
        held, part = self.held, np.where(stays, self.held.weight, 0.0)
        demand = held.used(oracle.lower, oracle.upper, part * oracle.low, part * oracle.share)
        place = np.where(goes, best, -1)
        nothing = np.zeros(len(market))
        demand = demand + market.used(place, place, nothing, np.where(goes, market.weight, 0.0))
        members = market.weight / market.amount
        taken = np.where(beyond, np.where(goes, self.level[rows, best], 0.0), self.floor)
        total = float(members @ taken)
        bound = float(
            prices @ market.capacity + members @ rent - (members * (slope - 1.0)) @ self.floor
        )
        return FloorResponse(prices, demand, total, bound, slope, rent)

    def _mix(self, cuts: list[tuple[FloatArray, float]], total: float) -> FloatArray | None:
        """Prices at which the mixture of responses is best that keeps the capacities."""
        capacity = self.market.capacity
        demand = np.stack([demand / capacity for demand, _ in cuts], axis=1)
        matrix = sp.csc_matrix(np.vstack([demand, np.ones(len(cuts))]))
        gain = np.array([worth / total - 1.0 for _, worth in cuts])
        lower = np.append(np.full(len(capacity), -np.inf), 1.0)
        upper = np.ones(len(capacity) + 1)
        # The point keeps the capacities up to rounding, which must not leave the program without one.
        upper[:-1] = np.maximum(upper[:-1], demand[:, 0])
        found = optimum(maximum("floors", matrix, gain, lower, upper), None)
        return None if found is None else np.maximum(found[1][:-1], 0.0) * total / capacity
