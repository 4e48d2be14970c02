"""The largest value at which every class reaches its target, by a sequence of max-min searches.

A floor under the level of a class (a deadline, a minimum service) and a delay make the level that
the class needs for the value t a convex function of t:

    g_k(t) = max(needed_k(t), floor_k),    needed_k(t) = t,  or t / (1 - a_k t) with a delay

t can be had if the levels divided by g(t) can all be 1. That is max-min fairness once more:

    s(t) = max s   s.t.   level_k(x) >= s g_k(t)  for every class k,   x within time and resources

Prices p, rents u and slopes y at its optimum, with sum_k n_k y_k = 1, say what any t' costs beyond
what the resources are worth:

    h(t') = sum_k n_k (y_k g_k(t') / g_k(t) - u_k) - p . W  <=  0    for every t' that can be had

h(t) is 1 - s(t), and h is convex. So its tangent at t cuts off all values above

    t - (1 - s(t)) / d,    d = sum_k n_k y_k g_k'(t) / g_k(t)

and the largest that is left is the next t: Newton's method from above. It ends as soon as no class
changes its segment any more, nor its side of its floor. Where d is 0 and s(t) below 1, or the next
t below 0, the floors alone cannot be met, which p, u and y prove (Farkas).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

import numpy as np

from optsched.arrays import BoolArray, FloatArray, highest_in_rows
from optsched.program import AllocationProgram
from optsched.solution.values import Termination
from optsched.solvers.prices.cutting_planes import EXACT
from optsched.solvers.prices.market import Market
from optsched.solvers.prices.max_min import Equilibrium, MaxMinSearch
from optsched.solvers.prices.merging import merged
from optsched.solvers.prices.watch import InnerWatch, Watch

log = logging.getLogger("optsched")

STEPS = 60
"""Newton steps at most; five are usual."""


@dataclass(frozen=True)
class TargetDuals:
    """Duals of the tangent at a value, of which a unit is worth 1; or, without a point, multipliers
    by which the floors alone cannot be met.

    Attributes
    ----------
    prices : FloatArray, shape (R,)
    rent : FloatArray, shape (K,)
        Of the time of each class.
    slope : FloatArray, shape (K,)
        Of each unit of ``levels @ x``.
    on_floor : BoolArray, shape (K,)
        Classes whose floor was the target: the slope is what the floor costs.
    """

    prices: FloatArray
    rent: FloatArray
    slope: FloatArray
    on_floor: BoolArray

    def divided(self, by: float) -> TargetDuals:
        """The same in another unit of the value."""
        return replace(self, prices=self.prices / by, rent=self.rent / by, slope=self.slope / by)


@dataclass(frozen=True)
class TargetAnswer:
    """What a search has come to.

    Attributes
    ----------
    termination : Termination
    value, bound : float
    x : FloatArray or None, shape (N + 1,)
        Totals of the program's columns, and the value.
    duals : TargetDuals or None
        They prove the bound.
    passes, steps : int
    """

    termination: Termination
    value: float
    bound: float
    x: FloatArray | None
    duals: TargetDuals | None
    passes: int
    steps: int


def reached_part(
    market: Market,
    target: FloatArray,
    prices: FloatArray | None,
    watch: Watch,
    wanted: float = EXACT,
    probing: bool = False,
) -> Equilibrium:
    """What part of its target every class can reach, at most 1; in units of the level.

    Parameters
    ----------
    market : Market
    target : FloatArray, shape (K,)
        Level of each class, above 0.
    prices : FloatArray or None, shape (R,)
        Where to start.
    watch : Watch
    wanted : float
        Gap at which the search ends.
    probing : bool
        Where the part is below 1, it is enough to know by how much about.
    """
    level = market.level * (market.unit / target)[:, np.newaxis]
    scaled = replace(market, level=level, unit=1.0, highest=1.0)
    inner = InnerWatch(watch, 0.0, np.inf)
    same = merged(scaled, level)
    searched = scaled if same is None else same.market
    search = MaxMinSearch(searched, prices, inner, None if prices is None else 1.0)
    search.wanted, search.probing = wanted, probing
    search.run()
    return search.equilibrium().of_whole(same)


def least_levels(
    market: Market, floor: FloatArray, watch: Watch
) -> tuple[Termination, FloatArray, TargetDuals | None]:
    """An allocation in which nobody is below its floor, or multipliers by which there is none.

    Parameters
    ----------
    market : Market
    floor : FloatArray, shape (K,)
        Least level of each class; 0 without one.
    watch : Watch

    Returns
    -------
    termination : Termination
        ``OPTIMAL`` with an allocation, ``INFEASIBLE`` if floors are refuted, else what ended the
        search.
    x : FloatArray, shape (N,)
        Totals of the program's columns.
    duals : TargetDuals or None
        They prove that the floors cannot be met; None where a class alone cannot.
    """
    k = np.flatnonzero(floor > 0)
    x = np.zeros(market.columns)
    if (highest_in_rows(market.level[k]) * market.unit < floor[k] * (1.0 - EXACT)).any():
        return Termination.INFEASIBLE, x, None
    some = market.part(k, market.capacity)
    found = reached_part(some, floor[k], None, watch)
    if found.bound < 1.0 - EXACT:
        rent, slope = np.zeros((2, len(floor)))
        rent[k], slope[k] = found.rent, found.slope / floor[k]
        return Termination.INFEASIBLE, x, TargetDuals(found.prices, rent, slope, floor > 0)
    if some.columns == market.columns:
        x = found.x[:-1]
    else:
        x[market.columns_of(k)] = found.x[:-1]
    met = found.level >= 1.0 - EXACT
    return Termination.OPTIMAL if met else watch.reason or Termination.IMPRECISE, x, None


class TargetSearch:
    """One search for the largest value.

    Parameters
    ----------
    program : AllocationProgram
        Its utility is a smallest level, with or without delays.
    market : Market
    floor : FloatArray, shape (K,)
        Least level of a job of each class.
    watch : Watch
    """

    def __init__(
        self, program: AllocationProgram, market: Market, floor: FloatArray, watch: Watch
    ) -> None:
        self.program, self.utility, self.market = program, program.minimum, market
        self.floor, self.watch = floor, watch
        self.members = program.classes.count
        self.highest_level = highest_in_rows(market.level) * market.unit
        self.passes = self.steps = 0

    def run(self, prices: FloatArray | None) -> TargetAnswer:
        """Step down from a value that no allocation exceeds; ``prices`` are where to start."""
        t = highest = float(self.utility.reached(self.highest_level).min())
        duals: TargetDuals | None = None
        while self.steps < STEPS and t > 0:
            self.steps += 1
            needed = np.asarray(self.utility.needed(self.program, t)) + np.zeros(len(self.floor))
            target = np.maximum(needed, self.floor)
            if (self.highest_level < target * (1.0 - EXACT)).any():
                return self._without_point(Termination.INFEASIBLE)
            found = self._reached(target, prices)
            log.debug("prices: value %.9g reached by a factor of %.12g", t, found.level)
            reached = found.level >= 1.0 - EXACT
            if not reached and not found.finished:
                return self._without_point(self.watch.reason or Termination.IMPRECISE)
            if found.bound >= 1.0:  # of these prices nothing follows: those before prove the bound
                return self._answer(t, found, duals or self._slowest(t))
            tangent = self._tangent(found, target, self.floor > needed)
            d = self._steepness(tangent, t)
            if not d > 0:
                return self._refuted(tangent)
            duals = tangent.divided(d)
            lower = t - (1.0 - found.bound) / d
            if reached:
                return self._answer(t, found, duals, lower)
            if lower < -EXACT * highest:  # even the least value, 0, cannot be had
                return self._refuted(tangent)
            t, prices = lower, found.prices
        return self._without_point(Termination.IMPRECISE)

    def _tangent(self, found: Equilibrium, target: FloatArray, on_floor: BoolArray) -> TargetDuals:
        """Multipliers of h at a value: those of its search, per unit of the level."""
        return TargetDuals(found.prices, found.rent, found.slope / target, on_floor)

    def _steepness(self, tangent: TargetDuals, t: float) -> float:
        """How fast h grows at t (d): a class on its floor needs no more for a larger value."""
        rising = np.where(tangent.on_floor, 0.0, self.utility.needed_slope(self.program, t))
        return float((self.members * tangent.slope) @ rising)

    def _reached(self, target: FloatArray, prices: FloatArray | None) -> Equilibrium:
        found = reached_part(self.market, target, prices, self.watch)
        self.passes += found.passes
        return found

    def _answer(
        self, t: float, found: Equilibrium, duals: TargetDuals, bound: float | None = None
    ) -> TargetAnswer:
        value = t * min(1.0, found.level)
        x = found.x.copy()
        x[-1] = value
        bound = t if bound is None else max(bound, value)
        return TargetAnswer(Termination.OPTIMAL, value, bound, x, duals, self.passes, self.steps)

    def _slowest(self, t: float) -> TargetDuals:
        """What proves that no value is higher: the slowest class alone has no more."""
        held = int(self.utility.reached(self.highest_level).argmin())
        slope, rent = np.zeros((2, len(self.floor)))
        rising = np.broadcast_to(self.utility.needed_slope(self.program, t), slope.shape)
        slope[held] = 1.0 / (self.members[held] * rising[held])
        rent[held] = slope[held] * self.highest_level[held]
        prices = np.zeros(len(self.market.capacity))
        return TargetDuals(prices, rent, slope, np.zeros(len(slope), bool))

    def _refuted(self, tangent: TargetDuals) -> TargetAnswer:
        """The floors cannot be met: their slopes, prices and rents prove it (Farkas)."""
        on_floor = tangent.on_floor
        proof = replace(
            tangent,
            rent=np.where(on_floor, tangent.rent, 0.0),
            slope=np.where(on_floor, tangent.slope, 0.0),
        )
        return replace(self._without_point(Termination.INFEASIBLE), duals=proof)

    def _without_point(self, end: Termination) -> TargetAnswer:
        return TargetAnswer(end, 0.0, np.inf, None, None, self.passes, self.steps)
