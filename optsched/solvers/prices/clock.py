"""The furthest clock of a water filling that all classes can reach, by a sequence of max-min searches.

On the path of a filling (`optsched.program.filling.Path`) class k is at the level g_k(c) at the clock
c: g_k is piecewise linear and never falls, and is constant for a class that is frozen. So c can be
reached if the levels divided by g(c) can all be 1:

    s(c) = max s   s.t.   level_k(x) >= s g_k(c)  for every class k with g_k(c) > 0,   x within time and resources

Prices p, rents u and slopes y at its optimum say what any clock costs beyond what there is:

    h(c') = sum_k n_k (y_k g_k(c') - u_k) - p . W  <=  0    for every c' that can be reached

h(c) is 1 - s(c), and h never falls: the largest c' with h(c') <= 0 is the next clock (Newton's method
from above, along the whole path and not along a tangent, as g is neither convex nor concave). The
first clock is where everybody is at its highest level: it often can be reached. At the last one the
multipliers that led there are duals of the linear program of its segment.

A floor under a level, which a side row asks for, is a level that the path is not below: g_k(c) is the
larger of both.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from optsched.arrays import FloatArray
from optsched.program.filling import Path
from optsched.solution.values import Termination
from optsched.solvers.prices.market import Market
from optsched.solvers.prices.max_min import Equilibrium
from optsched.solvers.prices.targets import reached_part
from optsched.solvers.prices.watch import Watch

log = logging.getLogger("optsched")

ROUNDING = 1e-14
"""Relative error of a sum over all classes."""
STEPS = 40
"""Newton steps at most; three are usual, and twenty where pools were full before."""
PROBES = 3
"""Steps for which it is enough to know by how much about levels are out of reach."""
SHARP = 1e-13
"""Gap at which a search ends: what it leaves is a rise that a single class may have, of 1 / K of the
worth of all.
"""
SETTLED = 1e-12
"""Relative step of the clock below which rounding decides."""


@dataclass(frozen=True)
class Multipliers:
    """Prices, rents and slopes, and the clock that they prove no allocation to exceed.

    Attributes
    ----------
    prices : FloatArray, shape (R,)
    rent : FloatArray, shape (K,)
    slope : FloatArray, shape (K,)
        Of each unit of ``levels @ x``; the levels at the clock of the search cost 1 in all.
    """

    prices: FloatArray
    rent: FloatArray
    slope: FloatArray


@dataclass(frozen=True)
class ClockAnswer:
    """What a search has come to.

    Attributes
    ----------
    termination : Termination
    clock : float
    reached : float
        s(c), as far as it was found.
    x : FloatArray, shape (N,)
    multipliers : Multipliers or None
        None: everybody is at its highest level.
    passes, steps : int
    """

    termination: Termination
    clock: float
    reached: float
    x: FloatArray
    multipliers: Multipliers | None
    passes: int
    steps: int


class ClockSearch:
    """Searches for the stages of one filling; each starts from the prices of the one before.

    Parameters
    ----------
    market : Market
    members : FloatArray, shape (K,)
    floor : FloatArray, shape (K,)
        Least level of each class.
    """

    def __init__(self, market: Market, members: FloatArray, floor: FloatArray) -> None:
        self.market, self.members, self.floor = market, members, floor
        self.prices: FloatArray | None = None

    def run(self, path: Path, watch: Watch) -> ClockAnswer:
        """The furthest clock of a path."""
        clock, multipliers, passes = float(path.breaks[-1]), None, 0
        step = 0
        while True:
            step += 1
            found, x, now = self._reached(path.at(clock)[0], watch, step <= PROBES)
            passes += found.passes
            log.debug("prices: clock %.12g reached by a factor of %.14g", clock, found.level)
            end = Termination.OPTIMAL
            before = self._before(path, now)
            self.prices = now.prices
            settled = found.bound >= 1.0 or before >= clock * (1.0 - SETTLED)
            if settled or step == STEPS or watch.reason is not None:
                if not (settled and found.finished):
                    end = watch.reason or Termination.IMPRECISE
                break
            clock, multipliers = before, now
        return ClockAnswer(end, clock, min(found.level, 1.0), x, multipliers, passes, step)

    def _reached(
        self, level: FloatArray, watch: Watch, probing: bool
    ) -> tuple[Equilibrium, FloatArray, Multipliers]:
        """What part of its target every class can reach that has one, where, and the proof."""
        target = np.maximum(level, self.floor)
        market, some = self.market, np.flatnonzero(target > 0)
        x = np.zeros(market.columns)
        rent, slope = np.zeros((2, len(target)))
        if len(some) == len(target):
            found = reached_part(market, target, self.prices, watch, SHARP, probing)
            x = found.x[:-1]
        else:
            part = market.part(some, market.capacity)
            found = reached_part(part, target[some], self.prices, watch, SHARP, probing)
            # Where places are not goods, a part has columns of its own.
            place = market.place[some]
            x[place[place >= 0]] = found.x[part.place[place >= 0]]
        rent[some], slope[some] = found.rent, found.slope / target[some]
        return found, x, Multipliers(found.prices, rent, slope)

    def _before(self, path: Path, found: Multipliers) -> float:
        """The largest clock at which the levels cost no more than there is."""
        there_is = float(found.prices @ self.market.capacity + self.members @ found.rent)
        each = self.members * found.slope
        # Where the priced classes rest, h is 0 on a whole piece, but for rounding.
        most = there_is * (1.0 + ROUNDING)

        def cost(clock: float) -> float:
            return float(each @ np.maximum(path.at(clock)[0], self.floor))

        begin = _last_within(path.breaks, cost, most)
        level, rate = path.at(begin)
        # On the way to the next break classes rise above their floors.
        below = (rate > 0) & (self.floor > level) & (each > 0)
        leaves = begin + (self.floor[below] - level[below]) / rate[below]
        begin = _last_within(np.append(begin, np.sort(leaves)), cost, most)
        level, rate = path.at(begin)
        left, pace = there_is - cost(begin), float(each @ np.where(self.floor > level, 0.0, rate))
        if pace <= 0.0:
            return begin
        return begin + max(left, 0.0) / pace


def _last_within(clocks: FloatArray, cost: Callable[[float], float], most: float) -> float:
    """The last of ascending clocks at which levels cost no more, or the first."""
    low, high = 0, len(clocks)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if cost(float(clocks[middle])) <= most else (low, middle)
    return float(clocks[low])
