"""The furthest clock of a water filling that all classes can reach, by a sequence of max-min searches.

On the path of a filling (`optsched.program.filling.Path`) class k is at the level g_k(c) at the clock
c: g_k is piecewise linear and never falls, and is constant for a class that is frozen. So c can be
reached if the levels divided by g(c) can all be 1:

    s(c) = max s   s.t.   level_k(x) >= s g_k(c)  for every class k with g_k(c) > 0,   x within time and resources

Prices p, rents u and slopes y at its optimum say what any clock costs beyond what there is:

    h(c') = sum_k n_k (y_k g_k(c') - u_k) - p . W  <=  0    for every c' that can be reached

h(c) is 1 - s(c), and h never falls: the largest c' with h(c') <= 0 is the next clock (Newton's method
from above, along the whole path and not along a tangent, as g is neither convex nor concave). The
first clock is where everybody is at its highest level: it often can be reached. Multipliers of stages
before hold on the path of this one too, and often say that it cannot. At the last clock the multipliers
that led there are duals of the linear program of its segment.

Who is frozen and has one open column spends there what its level needs, in all that follows: it is set
aside with what it holds. Else a level a little out of reach would give everybody a little less, and a
quota that is full room in which its tenant chooses otherwise: the clock would be found very slowly.

A floor under a level, which a side row asks for, is a level that the path is not below: g_k(c) is the
larger of both.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from optsched.arrays import BoolArray, FloatArray, highest_in_rows
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
SHARP = 1e-13
"""Gap at which a search ends: what it leaves is a rise that a single class may have, of 1 / K of the
worth of all.
"""
FULL = 1e-12
"""Part of a resource that is left, at least, beside those that hold it in whatever follows."""
CLEAR = 1e-6
"""Part of what there is that multipliers of a path before leave at the start of the next, at least."""
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
    aside : FloatArray, shape (K,)
        The same of classes that are set aside, which have no slope.
    there_is : float
        What the resources are worth that are left beside those set aside, and all time.
    """

    prices: FloatArray
    rent: FloatArray
    slope: FloatArray
    aside: FloatArray
    there_is: float


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
        self._known: list[Multipliers] = []

    def run(self, path: Path, watch: Watch) -> ClockAnswer:
        """The furthest clock of a path."""
        (clock, multipliers), passes = self._first(path), 0
        filling = path.filling
        self._settle(filling.open, filling.frozen, np.maximum(path.at(path.start)[0], self.floor))
        step = 0
        while True:
            step += 1
            found, x, now = self._reached(path.at(clock)[0], watch)
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
            self._known.append(now)
        return ClockAnswer(end, clock, min(found.level, 1.0), x, multipliers, passes, step)

    def _first(self, path: Path) -> tuple[float, Multipliers | None]:
        """The clock to begin with: what was found on paths before says something of this one too."""
        clock, multipliers = float(path.breaks[-1]), None
        known, self._known = self._known, []
        begin = np.maximum(path.at(path.start)[0], self.floor)
        for one in known:
            # Of priced classes that are all frozen, or nearly, nothing follows but rounding.
            spent = float((self.members * one.slope) @ begin)
            if spent >= one.there_is * (1.0 - CLEAR):
                continue
            self._known.append(one)
            if (before := self._before(path, one)) < clock:
                clock, multipliers = before, one
        return clock, multipliers

    def _settle(self, is_open: BoolArray, frozen: BoolArray, level: FloatArray) -> None:
        """Close columns, and set aside who is frozen and has one open column: there it stays.

        Parameters
        ----------
        is_open : BoolArray, shape (N,)
        frozen : BoolArray, shape (K,)
        level : FloatArray, shape (K,)
            Of those that are frozen.
        """
        market = self.market
        table = np.where(np.append(is_open, False)[market.place], market.level, 0.0)
        self._open = replace(market, level=table)
        most, places = highest_in_rows(table) * market.unit, (table > 0).sum(axis=1)
        settled = frozen & (places == 1) & (level <= most * (1.0 + SETTLED))
        self._others, k = np.flatnonzero(~settled), np.flatnonzero(settled)
        self._settled, self._most = k, most[k]
        self._column = market.place[k, table[k].argmax(axis=1)]
        self._x = np.zeros(market.columns)
        self._x[self._column] = self.members[k] * level[k] / self._most
        left = market.capacity - market.usage @ self._x
        self._left = np.maximum(left, FULL * market.capacity)

    def _reached(
        self, level: FloatArray, watch: Watch
    ) -> tuple[Equilibrium, FloatArray, Multipliers]:
        """What part of its target every class can reach that has one, where, and the proof."""
        target = np.maximum(level, self.floor)
        market, some = self._open, self._others[target[self._others] > 0]
        part = market.part(some, self._left)
        found = reached_part(part, target[some], self.prices, watch, SHARP, probing=True)
        # Where places are not goods, a part has columns of its own.
        place, x = market.place[some], self._x.copy()
        x[place[place >= 0]] = found.x[part.place[place >= 0]]
        rent, slope, aside = np.zeros((3, len(target)))
        rent[some], slope[some] = found.rent, found.slope / target[some]
        # Who is settled pays what its column costs.
        aside[self._settled] = (market.usage.T @ found.prices)[self._column] / self._most
        there_is = float(found.prices @ self._left + self.members @ rent)
        return found, x, Multipliers(found.prices, rent, slope, aside, there_is)

    def _before(self, path: Path, found: Multipliers) -> float:
        """The largest clock at which the levels cost no more than there is."""
        each = self.members * found.slope
        # Where the priced classes rest, h is 0 on a whole piece, but for rounding.
        most = found.there_is * (1.0 + ROUNDING)

        def cost(clock: float) -> float:
            return float(each @ np.maximum(path.at(clock)[0], self.floor))

        begin = _last_within(path.breaks, cost, most)
        level, rate = path.at(begin)
        # On the way to the next break classes rise above their floors.
        below = (rate > 0) & (self.floor > level) & (each > 0)
        leaves = begin + (self.floor[below] - level[below]) / rate[below]
        begin = _last_within(np.append(begin, np.sort(leaves)), cost, most)
        level, rate = path.at(begin)
        left, pace = (
            found.there_is - cost(begin),
            float(each @ np.where(self.floor > level, 0.0, rate)),
        )
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
