"""The largest clock of a water filling that all classes can reach, by a sequence of max-min
searches.

The clock c is the height of the water, not a time. On the path of a filling
(`optsched.program.filling.Path`) class k is at the level g_k(c) at the clock c: g_k is piecewise
linear and never falls, and is constant for a class that is frozen. So c can be reached if the
levels divided by g(c) can all be 1:

    s(c) = max s   s.t.   level_k(x) >= s g_k(c)  for every class k with g_k(c) > 0,   x within time and resources

Prices p, rents u and slopes y at its optimum say what any clock costs beyond what there is:

    h(c') = sum_k n_k (y_k g_k(c') - u_k) - p . W  <=  0    for every c' that can be reached

h(c) is 1 - s(c), and h never falls: the largest c' with h(c') <= 0 is the next clock (Newton's
method from above, along the whole path and not along a tangent, as g is neither convex nor
concave). The first clock is where everybody is at its highest level: it often can be reached.
Multipliers of stages before hold on the path of this one too, and often say that it cannot. At the
last clock the multipliers that led there are duals of the linear program of its segment.

A frozen class with one open column spends there what its level needs, in all later stages. It is
set aside with what it holds. Otherwise a level that is slightly out of reach would lower all levels
a little, which would leave room in a full quota, and the clock would be found very slowly.

Floors, which side rows ask for, are further requirements of a class
(`optsched.solvers.prices.requirements`): what they cost at p does not depend on the clock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from optsched.arrays import BoolArray, FloatArray, quotient
from optsched.arrays.values import replace
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
"""Gap at which a search ends. The rest could be the rise of a single class, which has 1 / K of all
worth, so the gap must be this small.
"""
FULL = 1e-12
"""Least part of a resource that is left beside the classes that are set aside."""
CLEAR = 1e-6
"""Least part of all worth that old multipliers must leave at the start of a path to be used on
it."""
SETTLED = 1e-12
"""Relative step of the clock below which rounding decides."""


@dataclass(frozen=True)
class Multipliers:
    """Prices, rents and slopes, and the clock that they prove no allocation to exceed.

    Attributes
    ----------
    prices : FloatArray, shape (R,)
    rent : FloatArray, shape (K,)
    of_level : FloatArray, shape (K,)
        Of each unit of ``levels @ x``; all that is asked for at the clock of the search costs 1.
    of_floors : list of FloatArray, shape (K,) each
        Of what each class is asked for, in each measure.
    aside : BoolArray, shape (K,)
        Classes that are set aside: they pay what their columns cost.
    there_is : float
        What the resources are worth that are left beside those set aside, and all time.
    """

    prices: FloatArray
    rent: FloatArray
    of_level: FloatArray
    of_floors: list[FloatArray]
    aside: BoolArray
    there_is: float

    @property
    def of_rising(self) -> FloatArray:
        """Of each unit of the levels of the others."""
        return np.where(self.aside, 0.0, self.of_level)

    def spent_on_floors(self, members: FloatArray) -> float:
        """What the floors of the others cost."""
        return float(sum(members @ np.where(self.aside, 0.0, each) for each in self.of_floors))


@dataclass(frozen=True)
class ClockAnswer:
    """The result of a search.

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
    floors : sequence of FloatArray, shape (K, w) each
        Part of its floor that all of a member's time gives in each place; inf without one.
    """

    def __init__(self, market: Market, members: FloatArray, floors: Sequence[FloatArray]) -> None:
        self.market, self.members, self.floors = market, members, floors
        self.prices: FloatArray | None = None
        self._known: list[Multipliers] = []

    def run(self, path: Path, watch: Watch) -> ClockAnswer:
        """The furthest clock of a path."""
        (clock, multipliers), passes = self._first(path), 0
        filling = path.filling
        self._settle(filling.open, filling.frozen, path.at(path.start)[0])
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
        """The first clock to try: multipliers of earlier paths bound this path too."""
        clock, multipliers = float(path.breaks[-1]), None
        known, self._known = self._known, []
        begin = path.at(path.start)[0]
        for proof in known:
            # If nearly all worth belongs to frozen classes, the bound is only rounding.
            spent = float((self.members * proof.of_rising) @ begin)
            spent += proof.spent_on_floors(self.members)
            if spent >= proof.there_is * (1.0 - CLEAR):
                continue
            self._known.append(proof)
            if (before := self._before(path, proof)) < clock:
                clock, multipliers = before, proof
        return clock, multipliers

    def _settle(self, is_open: BoolArray, frozen: BoolArray, level: FloatArray) -> None:
        """Close columns, and set aside frozen classes with one open column: they stay there.

        Parameters
        ----------
        is_open : BoolArray, shape (N,)
        frozen : BoolArray, shape (K,)
        level : FloatArray, shape (K,)
            Of those that are frozen.
        """
        market = self.market
        there = np.append(is_open, False)[market.place]
        table = np.where(there, market.level, 0.0)
        self._open = replace(market, level=table)
        self._floors = [np.where(there | np.isinf(floor), floor, 0.0) for floor in self.floors]
        # What all of a member's time gives of its level, and of each floor, where it is asked for.
        gives = [table * market.unit, *(np.where(np.isinf(f), 0.0, f) for f in self._floors)]
        asked = [level > 0, *(np.isfinite(floor[:, 0]) for floor in self._floors)]
        useful = np.any([each > 0 for each in gives], axis=0)
        at = np.arange(len(table)), useful.argmax(axis=1)
        self._most = [each[at] for each in gives]
        needs: list[FloatArray | float] = [level, *(1.0 for _ in self._floors)]
        parts = [
            np.where(each, quotient(need, most, np.inf), 0.0)
            for need, most, each in zip(needs, self._most, asked, strict=True)
        ]
        time, self._binding = np.max(parts, axis=0), np.argmax(parts, axis=0)
        aside = frozen & (useful.sum(axis=1) == 1) & (time <= 1.0 + SETTLED)
        self._others, self._aside = np.flatnonzero(~aside), aside
        k = np.flatnonzero(aside)
        self._column = market.place[at][k]
        self._x = np.zeros(market.columns)
        self._x[self._column] = self.members[k] * time[k]
        left = market.capacity - market.usage @ self._x
        self._left = np.maximum(left, FULL * market.capacity)

    def _reached(
        self, target: FloatArray, watch: Watch
    ) -> tuple[Equilibrium, FloatArray, Multipliers]:
        """What part of its target every class can reach that has one, where, and the proof."""
        market = self._open
        asked = target > 0
        for floor in self._floors:
            asked |= np.isfinite(floor[:, 0])
        some = self._others[asked[self._others]]
        part = market.part(some, self._left)
        levels = np.full(part.level.shape, np.inf)
        rises = target[some] > 0
        levels[rises] = part.level[rises] * (part.unit / target[some][rises])[:, np.newaxis]
        measures = [levels, *(floor[some] for floor in self._floors)]
        found, slopes = reached_part(part, measures, self.prices, watch, SHARP, probing=True)
        # Where places are not goods, a part has its own columns.
        place, x = market.place[some], self._x.copy()
        x[place[place >= 0]] = found.x[part.place[place >= 0]]
        rent, of_level, *of_floors = np.zeros((2 + len(self.floors), len(target)))
        rent[some], of_level[some] = found.rent, quotient(slopes[0], target[some])
        for each, slope in zip(of_floors, slopes[1:], strict=True):
            each[some] = slope
        there_is = float(found.prices @ self._left + self.members @ rent)
        self._pay_aside(found.prices, [of_level, *of_floors])
        return found, x, Multipliers(found.prices, rent, of_level, of_floors, self._aside, there_is)

    def _pay_aside(self, prices: FloatArray, worth: Sequence[FloatArray]) -> None:
        """A class that is set aside pays the cost of its column for the measure that takes most
        time there.
        """
        k = np.flatnonzero(self._aside)
        cost = (self.market.usage.T @ prices)[self._column]
        for number, (each, most) in enumerate(zip(worth, self._most, strict=True)):
            binding = self._binding[k] == number
            each[k[binding]] = quotient(cost[binding], most[k[binding]])

    def _before(self, path: Path, found: Multipliers) -> float:
        """The largest clock at which all that is asked for costs no more than there is."""
        each, floors = self.members * found.of_rising, found.spent_on_floors(self.members)
        # Where the priced classes rest, h is 0 on a whole piece, but for rounding.
        most = found.there_is * (1.0 + ROUNDING)

        def cost(clock: float) -> float:
            return float(each @ path.at(clock)[0]) + floors

        begin = _last_within(path.breaks, cost, most)
        pace = float(each @ path.at(begin)[1])
        if pace <= 0.0:
            return begin
        return begin + max(found.there_is - cost(begin), 0.0) / pace


def _last_within(clocks: FloatArray, cost: Callable[[float], float], most: float) -> float:
    """The last of ascending clocks at which levels cost no more, or the first."""
    low, high = 0, len(clocks)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if cost(float(clocks[middle])) <= most else (low, middle)
    return float(clocks[low])
