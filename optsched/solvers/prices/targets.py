"""The largest value at which every class reaches its target, by a sequence of max-min searches.

With delays the level that a class needs for the value t is a convex function of t,

    g_k(t) = t,  or t / (1 - a_k t) with a delay

and some classes have floors (a deadline, a minimum service), which x_k must reach: f_k(x) >= 1.
The value t is feasible if the levels divided by g(t), and the f, can all be 1. That is max-min
fairness once more, of classes with several requirements (`optsched.solvers.prices.requirements`):

    s(t) = max s   s.t.   level_k(x) >= s g_k(t),  f_k(x) >= s  for every class k,   x within time and resources

Prices p, rents u and slopes y, v at its optimum, with sum_k n_k (y_k + v_k) = 1, say what any t'
costs beyond what the resources are worth:

    h(t') = sum_k n_k (y_k g_k(t') / g_k(t) + v_k - u_k) - p . W  <=  0    for every feasible t'

h(t) is 1 - s(t), and h is convex. So its tangent at t cuts off all values above

    t - (1 - s(t)) / d,    d = sum_k n_k y_k g_k'(t) / g_k(t)

and the largest that is left is the next t: Newton's method from above. It ends as soon as no class
changes its segment any more, and each stays above or below its floor. Where d is 0 and s(t) below
1, or the next t below 0, the floors alone cannot be met, which p, u and v prove (Farkas).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from optsched.arrays import FloatArray, highest_in_rows
from optsched.arrays.values import replace
from optsched.program import AllocationProgram
from optsched.solution.values import Termination
from optsched.solvers.prices.cutting_planes import EXACT
from optsched.solvers.prices.market import Market
from optsched.solvers.prices.max_min import Equilibrium, MaxMinSearch
from optsched.solvers.prices.merging import merged
from optsched.solvers.prices.requirements import Requirements
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
    of_level : FloatArray, shape (K,)
        Worth of each unit of ``levels @ x``.
    of_floors : list of FloatArray, shape (K,) each
        Worth of what each class is asked for beside, in each measure.
    """

    prices: FloatArray
    rent: FloatArray
    of_level: FloatArray
    of_floors: list[FloatArray]

    def divided(self, by: float) -> TargetDuals:
        """The same in another unit of the value."""
        return TargetDuals(
            self.prices / by, self.rent / by, self.of_level / by, [v / by for v in self.of_floors]
        )


@dataclass(frozen=True)
class TargetAnswer:
    """The result of a search.

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
    measures: Sequence[FloatArray],
    prices: FloatArray | None,
    watch: Watch,
    wanted: float = EXACT,
    probing: bool = False,
) -> tuple[Equilibrium, list[FloatArray]]:
    """What part of all that it is asked for every class can reach, at most 1, and the slopes of
    each measure.

    Parameters
    ----------
    market : Market
    measures : sequence of FloatArray, shape (K, w) each
        Part of what is asked for that all of a member's time gives in each place; inf in the rows
        of classes that are asked for nothing. Everybody is asked for something.
    prices : FloatArray or None, shape (R,)
        Where to start.
    watch : Watch
    wanted : float
        Gap at which the search ends.
    probing : bool
        Where the part is below 1, it is enough to know by how much about.
    """
    asked = Requirements.of(market, measures)
    alone = float(highest_in_rows(asked.level).min(initial=1.0))
    # What a class lacks by rounding is for its oracle to see.
    highest = alone if alone < 1.0 - EXACT else 1.0
    scaled = replace(asked.market, level=asked.level, unit=1.0, highest=highest)
    inner = InnerWatch(watch, 0.0, np.inf)
    same = merged(scaled, scaled.level)
    searched = scaled if same is None else same.market
    search = MaxMinSearch(searched, prices, inner, None if prices is None else 1.0)
    search.wanted, search.probing = wanted, probing
    search.run()
    found = search.equilibrium().of_whole(same)
    slopes = [found.slope]
    if len(measures) > 1:
        cost = np.append(market.usage.T @ found.prices, 0.0)[market.place]
        slopes = asked.split(found.slope, found.rent, cost)
    return replace(found, x=asked.totals(found.x)), slopes


def least_levels(
    market: Market, measures: Sequence[FloatArray], watch: Watch
) -> tuple[Termination, FloatArray, TargetDuals | None]:
    """An allocation in which nobody is below a floor, or multipliers by which there is none.

    Parameters
    ----------
    market : Market
    measures : sequence of FloatArray, shape (K, w) each
        As of `reached_part`; some classes may be asked for nothing.
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
    x, has_floor = np.zeros(market.columns), np.zeros(len(market), bool)
    for table in measures:
        highest = highest_in_rows(table)
        if (highest < 1.0 - EXACT).any():
            return Termination.INFEASIBLE, x, None
        has_floor |= np.isfinite(highest)
    k = np.flatnonzero(has_floor)
    some = market.part(k, market.capacity)
    found, slopes = reached_part(some, [table[k] for table in measures], None, watch)
    if found.bound < 1.0 - EXACT:
        rent, of_floors = np.zeros(len(market)), [np.zeros(len(market)) for _ in measures]
        rent[k] = found.rent
        for each, slope in zip(of_floors, slopes, strict=True):
            each[k] = slope
        duals = TargetDuals(found.prices, rent, np.zeros(len(market)), of_floors)
        return Termination.INFEASIBLE, x, duals
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
    floors : sequence of FloatArray, shape (K, w) each
        Part of its floor that one job reaches by running all the time in each place; inf without
        one.
    watch : Watch
    """

    def __init__(
        self,
        program: AllocationProgram,
        market: Market,
        floors: Sequence[FloatArray],
        watch: Watch,
    ) -> None:
        self.program, self.utility, self.market = program, program.minimum, market
        self.floors, self.watch = floors, watch
        self.members = program.classes.count
        self.highest_level = highest_in_rows(market.level) * market.unit
        self.passes = self.steps = 0

    def run(self, prices: FloatArray | None) -> TargetAnswer:
        """Step down from a value that no allocation exceeds; ``prices`` are where to start."""
        if any((highest_in_rows(table) < 1.0 - EXACT).any() for table in self.floors):
            return self._without_point(Termination.INFEASIBLE)
        t = highest = float(self.utility.reached(self.highest_level).min())
        duals: TargetDuals | None = None
        while self.steps < STEPS and t > 0:
            self.steps += 1
            needed = self.utility.needed(self.program, t) + np.zeros(len(self.members))
            level = self.market.level * (self.market.unit / needed)[:, np.newaxis]
            found, slopes = reached_part(self.market, [level, *self.floors], prices, self.watch)
            self.passes += found.passes
            log.debug("prices: value %.9g reached by a factor of %.12g", t, found.level)
            reached = found.level >= 1.0 - EXACT
            if not reached and not found.finished:
                return self._without_point(self.watch.reason or Termination.IMPRECISE)
            if found.bound >= 1.0:  # of these prices nothing follows: those before prove the bound
                return self._answer(t, found, duals or self._slowest(t))
            tangent = TargetDuals(found.prices, found.rent, slopes[0] / needed, slopes[1:])
            # A floor asks for no more at a larger value.
            d = float((self.members * tangent.of_level) @ self._rising(t))
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

    def _rising(self, t: float) -> FloatArray:
        """How fast the level that each class needs grows with the value, shape (K,)."""
        rising = self.utility.needed_slope(self.program, t)
        return np.broadcast_to(rising, self.members.shape)

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
        of_level, rent, *of_floors = np.zeros((2 + len(self.floors), len(self.members)))
        of_level[held] = 1.0 / (self.members[held] * self._rising(t)[held])
        rent[held] = of_level[held] * self.highest_level[held]
        return TargetDuals(np.zeros(len(self.market.capacity)), rent, of_level, of_floors)

    def _refuted(self, tangent: TargetDuals) -> TargetAnswer:
        """The floors cannot be met: their worth, prices and rents prove it (Farkas)."""
        market = self.market
        gain = -np.append(market.usage.T @ tangent.prices, 0.0)[market.place]
        for table, of_floor in zip(self.floors, tangent.of_floors, strict=True):
            worth = of_floor[:, np.newaxis] * np.where(np.isfinite(table), table, 0.0)
            gain += worth
        rent = np.maximum(gain.max(axis=1), 0.0)
        proof = replace(tangent, rent=rent, of_level=np.zeros_like(rent))
        return replace(self._without_point(Termination.INFEASIBLE), duals=proof)

    def _without_point(self, end: Termination) -> TargetAnswer:
        return TargetAnswer(end, 0.0, np.inf, None, None, self.passes, self.steps)
