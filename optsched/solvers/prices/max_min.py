"""The largest smallest level, by prices: cutting planes on R prices, then pin and polish.

    maximise t   s.t.   a_k . x_k >= t  and  sum_j x_kj <= 1 for every member of every class,   demand(x) <= W,   x >= 0

The first phase closes the gap between the bound of the oracle and the value of the master to
`COARSE`, the second to `EXACT`: by then nearly all classes have found their segment. Where many tie
between several, pinning leads nowhere; but then a few more cuts, as long as they are quick, end in
a mixture of responses that is the optimum.

References
----------
G. Dantzig, P. Wolfe, "Decomposition Principle for Linear Programs", Operations Research 8, 1960.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np

from optsched.arrays import FloatArray, IntArray, highest_in_rows
from optsched.arrays.values import replace
from optsched.solvers.prices.cutting_planes import (
    CLOSED,
    COARSE,
    EXACT,
    ROUNDS,
    STEPS,
    CuttingPlanes,
)
from optsched.solvers.prices.goods import Goods
from optsched.solvers.prices.interior_minimum import InteriorMinimum
from optsched.solvers.prices.market import Market, PinnedPoint
from optsched.solvers.prices.merging import Merged
from optsched.solvers.prices.oracle import Oracle, Response
from optsched.solvers.prices.polish import NEAR, PinnedClasses, Polished, polish, undecided
from optsched.solvers.prices.sampling import sample_size, sampled, worth_sampling
from optsched.solvers.prices.watch import InnerWatch, StopRule

log = logging.getLogger("optsched")

AT_ONCE = 3
"""Rounds of the second phase that prices from before are worth, before the first."""
GUESS = 3e-4
"""Gap that prices of a sample or of a smaller market are taken to leave, until a level is known."""
NEARBY = 3e-5
"""The same of prices from a round before, of which the level is known."""
AWAY = 1e-2
"""Distance from the level asked about beyond which the bound that comes
of it is worth asking about in its turn.
"""
FREE = 1200
"""Classes that the small program decides about at first, at most."""
MOST_FREE = 3000
"""Free classes beyond which prices are quicker than the small program."""
PROBED = 0.1
"""Part of the distance to 1 that a probe leaves open."""
NEARLY = 1e-3
"""Distance to 1 below which a probe is a search: that costs little more."""
LOST, WIDE = 1e-2, 24
"""Gap that cutting planes leave where prices are too many for them, and places of a class from
which small programs take longer than interior steps.
"""
NOTHING = 1e-11
"""Worth of a resource, of 1 in all, below which its price is 0:
less than the gap of an answer, or the last of the gap stays.
"""


@dataclass(frozen=True)
class Equilibrium:
    """An allocation, and prices that prove its bound.

    Attributes
    ----------
    level, bound : float
        The smallest level of ``x``, and what none can be above, in the program's units.
    x : FloatArray, shape (N + 1,)
        Totals of the program's columns, and the level in the program's units.
    prices : FloatArray, shape (R,)
        What one more of each resource adds to the level.
    slope, rent : FloatArray, shape (K,)
        Duals of the levels and of the time of each class.
    passes, rounds : int
    finished : bool
        Whether the gap is closed; otherwise a limit of passes, of time or the user ended the
        search.
    """

    level: float
    bound: float
    x: FloatArray
    prices: FloatArray
    slope: FloatArray
    rent: FloatArray
    passes: int
    rounds: int
    finished: bool

    def of_whole(self, same: Merged | None) -> Equilibrium:
        """That of the whole market, where it is one of merged classes."""
        if same is None:
            return self
        rent, slope = same.of_each(self.rent), same.of_each(self.slope)
        return replace(self, x=same.totals(self.x), slope=slope, rent=rent)


class MaxMinSearch(CuttingPlanes):
    """One search for an equilibrium.

    Parameters
    ----------
    market : Market
    start : FloatArray, shape (R,), optional
        Prices to start from, as of a market that was much the same.
    watch : Watch, optional
        What ends the search before its time.
    before : float, optional
        The level of that market, in units of this one.
    """

    passes = 150
    cuts = 6

    def __init__(
        self,
        market: Market,
        start: FloatArray | None = None,
        watch: StopRule | None = None,
        before: float | None = None,
    ) -> None:
        super().__init__(market.capacity, watch)
        self.market = market
        self.oracle = Oracle(market)
        self._before = market.highest if before is None else min(before, market.highest)
        self._guess = GUESS if before is None else NEARBY
        self.bound, self.best = market.highest, np.inf
        self.at = market.highest
        self.point: PinnedPoint | None = None
        self.large = worth_sampling(market)
        self.probing = False
        """Whether it is enough to know by how much about the level is below 1."""
        # Prices are scaled so that all capacities together are worth 1: the bound does not depend
        # on their scale.
        worth = 0.0 if start is None else float(start @ market.capacity)
        self.warm = start is not None and 0 < worth < np.inf
        even = 1.0 / market.capacity / len(market.capacity)
        self.prices = start / worth if start is not None and self.warm else even

    def should_stop(self) -> bool:
        """See `CuttingPlanes.should_stop`; a probe ends earlier."""
        short = 1.0 - self.bound
        if self.probing and self.bound - self.value < PROBED * short and short > NEARLY:
            return True
        return super().should_stop()

    def run(self) -> None:
        """Both phases, until the gap is closed or nothing closes it any more;
        from known prices the second at first.
        """
        self.ask(self.prices, self._before)
        if self.large and not self.warm:
            self._mix()
            if self.should_stop():  # nothing runs out where all are at the highest level
                return
            prices, self.warm = sampled(self.oracle, self._of_sample), True
            self.ask(prices, self._before)
        if abs(self.bound - self._before) > AWAY * self._before:
            self.ask(self.prices, self.bound)
        if self.warm:
            self.exact(AT_ONCE)
        if not self.should_stop():
            self.coarse()
        part_of_another = self.market.pinned_demand is not None
        if not self.should_stop() and (self.gap <= LOST or part_of_another):
            self.exact(AT_ONCE if self.market.width > WIDE and not part_of_another else ROUNDS)
        if self.gap > EXACT and not self.should_stop() and not part_of_another:
            self._interior()
            self.exact(AT_ONCE)

    def _interior(self) -> None:
        """Run an interior-point method, and take its prices and point."""
        market = self.market
        everybody = np.arange(len(market))
        goods = Goods.of(market, everybody)
        found = InteriorMinimum(goods, market.level, self.watch).run()
        worth = float(found.prices @ market.capacity)
        self.ask(found.prices / worth, min(self.bound, found.bound), whole=True)
        time = found.time / np.maximum(1.0, found.time.sum(axis=1))[:, np.newaxis]
        time *= goods.room(goods.used(time))
        level = float(np.einsum("kj,kj->k", market.level, time).min())
        nowhere = np.full(len(market), -1)
        share = np.zeros(len(market))
        self._take(PinnedPoint(nowhere, nowhere, share, everybody, time, goods.used(time), level))

    def _propose(self, prices: FloatArray) -> bool:
        return self.ask(prices, self.bound)

    def ask(self, prices: FloatArray, level: float, whole: bool = False) -> bool:
        """Ask the oracle and propose its response; returns whether the bound is the best so far."""
        prices = np.where(prices * self.market.capacity < NOTHING, 0.0, prices)
        response = self.oracle.ask(prices, level, whole)
        self.master.add(response)
        if not response.bound < self.best:
            return False
        self.best, self.prices, self.at = response.bound, prices, level
        self.bound = min(self.bound, self.best)
        return True

    def exact(self, rounds: int) -> None:
        """Pin the classes whose responses are known, and solve a linear program for the others."""
        market = self.market
        grown = 1
        self.oracle.ask(self.prices, self.bound, whole=True)
        for _ in range(rounds):
            if self.should_stop():
                return
            self.rounds += 1
            gap = self.gap if self.value > 0 else self._guess
            wanted = max(150, int(40 * gap * len(market)) + 30 * market.width)
            few = sample_size(market) if self.large else min(FREE, wanted)
            # A search among more of them would be no smaller than this one.
            most = max(MOST_FREE, len(market) // 2)
            found = self._decide(undecided(self.oracle, min(grown * few, most)), grown * NEAR)
            if found is not None and self._follow(found):
                continue
            # The rest of the gap is rounding: more free classes would take time and change nothing.
            if self.gap <= EXACT:
                return
            # Prices from before were not near enough: cuts come first.
            early = rounds == AT_ONCE and self.gap > COARSE
            if early and found is not None:
                return
            grown *= 2
            if not early:
                self._cut(again=found is None or grown > 2)
                self.oracle.ask(self.prices, self.bound, whole=True)

    def _follow(self, found: Polished) -> bool:
        """Take the point and prices of the small program; returns whether the bound falls."""
        self._take(found.point)
        improved = self._towards(found.prices, found.level)
        log.debug(
            "prices: round %d, %d free, gap %.2g", self.rounds, len(found.point.free), self.gap
        )
        return improved

    def _decide(self, free: IntArray, near: int) -> Polished | None:
        """Decide about the free classes beside the pinned ones: by a small program, or by prices if
        they are many.
        """
        if len(free) <= MOST_FREE or 2 * len(free) > len(self.market):
            return polish(self.oracle, free, self.prices, self.bound, near, self.seconds_left)
        pinned = PinnedClasses.but(self.oracle, free)
        market = self.market.part(free, self.market.capacity, pinned.pinned_demand)
        search = self._within(market, self.prices)
        if search.point is None:
            return None
        point = pinned.beside(search.value, search.point.spent(market))
        return Polished(point, search.value, search.prices)

    def _of_sample(self, market: Market, start: FloatArray | None) -> tuple[FloatArray, float]:
        search = self._within(market, start)
        return search.prices, search.bound

    def _within(self, market: Market, start: FloatArray | None) -> MaxMinSearch:
        """A search for a smaller market; it ends when this one has to."""
        watch = None if self.watch is None else InnerWatch(self.watch, self.value, self.bound)
        search = MaxMinSearch(market, start, watch)
        search.run()
        return search

    def _take(self, point: PinnedPoint) -> None:
        """Propose a point; scaled into the capacities it may also be the best allocation."""
        # It has no prices: it may be part of a mixture, but is no cut.
        idle = np.zeros(len(self.market.capacity))
        self.master.add(Response(idle, point.level, point.demand, 0.0, np.inf, point))
        self.master.solve()
        worth = point.level * self._fit(point.demand)
        if self.point is None or worth > self.point.level * self._fit(self.point.demand):
            self.point = point
        self.value = max(self.value, worth, self.master.value)

    def _towards(self, prices: FloatArray, level: float) -> bool:
        """Ask at the prices of the small program, or part of the way there,
        until the bound is lower.
        """
        worth = float(prices @ self.market.capacity)
        if not worth > 0:
            return False
        goal = prices / worth
        origin, before = self.prices, self.bound
        for step in STEPS:
            at = min(self.bound, max(level, self.value)) if step == 1.0 else self.bound
            self.ask(step * goal + (1.0 - step) * origin, at, whole=True)
            lower = self.bound < before * (1.0 - 1e-13)
            if lower or self.gap <= self.wanted:
                return True
        return False

    def equilibrium(self) -> Equilibrium:
        """The result so far: the best allocation, and the prices of its bound."""
        market, point = self.market, self.point
        worth = 0.0 if point is None else point.level * self._fit(point.demand)
        x = np.zeros(market.columns + 1) if point is None else point.totals(market)
        level = market.worth(x)
        if self.master.value > worth and self.bound > level * (1.0 + self.wanted):
            mixed = self._mixture()
            reached = market.worth(mixed)
            x, level = (mixed, reached) if reached > level else (x, level)
        if self.bound >= market.highest:
            prices, slope, rent = _critical(market)
        else:
            # Divided by the sum of the slopes, prices, slopes and rents are feasible in the dual
            # program.
            response = self.oracle.ask(self.prices, self.at, whole=True)
            prices = self.prices / response.slope
            slope, rent = market.amount * self.oracle.slope, market.amount * self.oracle.rent
            slope /= response.slope
            rent /= response.slope
        unit = market.unit
        x[-1] = level * unit
        rent *= unit  # in place: of many classes, copies are the peak of memory
        return Equilibrium(
            level * unit,
            self.bound * unit,
            x,
            prices * unit,
            slope,
            rent,
            self.oracle.asked,
            self.rounds,
            self.bound <= level * (1.0 + CLOSED),
        )

    def _mixture(self) -> FloatArray:
        """The allocation of the master's mixture."""
        market = self.market
        x = np.zeros(market.columns + 1)
        # Proposals since the last mixture have no part in it.
        for part, proposal in zip(self.master.part.tolist(), self.master.proposals, strict=False):
            if part <= 0 or proposal.level <= 0:
                continue
            point = proposal.point
            totals = self.oracle.recall(proposal) if point is None else point.totals(market)
            x[: len(totals)] += part * totals
        return x


def _critical(market: Market) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Prices, slopes and rents that say:
    the class that is slowest on its best place holds the level.
    """
    best = highest_in_rows(market.level)
    held = int(best.argmin())
    slope, rent = np.zeros(len(market)), np.zeros(len(market))
    members = float(market.weight[held] / market.amount[held])
    slope[held], rent[held] = 1.0 / members, best[held] / members
    return np.zeros(len(market.capacity)), slope, rent
