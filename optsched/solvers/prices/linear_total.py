"""Totals of levels, the linear case:
at given prices every class takes the place that is worth most beyond its price.

With g_kj the worth of a unit of a member's time in place j, the bound of any prices p >= 0 is

    p . W + sum_k N_k max(0, max_j (g_kj - q_kj(p)))

and at the best prices all classes take one place alone, but for as many as there are resources that
run out. So some cutting planes find which, and a small linear program over the classes whose choice
is close, with the others where they are, ends in the optimum or in better prices: the search of
`optsched.solvers.prices.max_min` without its level. Where many classes tie it does not, and the
best mixture of choices, which the cuts find, is the optimum.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from optsched.arrays import FloatArray, IntArray
from optsched.solvers.prices.cutting_planes import ROUNDS, STEPS, CuttingPlanes
from optsched.solvers.prices.goods import Goods
from optsched.solvers.prices.oracle import Response
from optsched.solvers.prices.programs import least_in_rows, maximum, optimum
from optsched.solvers.prices.watch import StopRule

log = logging.getLogger("optsched")

FREE = 1500
"""Classes that the small program decides about at first, at most."""
NEAR = 6
"""Places of a free class that the small program has at first."""


@dataclass(frozen=True)
class Assignment:
    """Where the search has come to:
    all classes in one place (-1: idle), but for some that are in several.
    """

    place: IntArray
    free: IntArray
    time: FloatArray
    demand: FloatArray
    value: float


class LinearTotalSearch(CuttingPlanes):
    """One search.

    Parameters
    ----------
    goods : Goods
    worth : FloatArray, shape (K, w)
        g.
    watch : StopRule, optional
        What ends the search before its time.
    """

    passes = 300
    cuts = 10

    def __init__(self, goods: Goods, worth: FloatArray, watch: StopRule | None = None) -> None:
        super().__init__(goods.market.capacity, watch)
        self.goods, self.worth, self.weight = goods, worth, goods.weight
        self._by_place = np.ascontiguousarray(worth.T)
        self.asked = 0
        classes = len(worth)
        self.place: IntArray = np.full(classes, -1, np.int64)
        self.rent, self.margin = np.zeros(classes), np.zeros(classes)
        self.choice = self._assignment(self.place, np.zeros_like(self.capacity), 0.0)

    def run(self) -> None:
        """Cutting planes, then small programs, until the gap is closed."""
        goods = len(self.capacity)
        self.ask(np.zeros(goods))  # where everybody fits, prices are 0
        if self.bound <= 0 or self.ended:
            return
        # All capacities together are worth half of the bound, each the same.
        each = 0.5 * self.bound / goods
        self.ask(np.full(goods, each) / self.capacity)
        self.coarse()
        most, grown = FREE, 1
        while self.rounds < ROUNDS and not self.ended:
            self.rounds += 1
            if not self._polish(most, grown):
                most, grown = 2 * most, 2 * grown

    def _propose(self, prices: FloatArray) -> bool:
        return self.ask(prices)

    def ask(self, prices: FloatArray) -> bool:
        """Let all choose at these prices, and propose that; whether the bound is lower."""
        q = self.goods.costs(prices).T
        classes = len(self.worth)
        best, second = np.zeros(classes), np.full(classes, -np.inf)
        place = np.full(classes, -1, np.int64)
        for j, worth in enumerate(self._by_place):
            # What is worth nothing is no choice beside idleness.
            gain = np.where(worth > 0, worth - q[j], -np.inf)
            better = gain > best
            second = np.where(better, best, np.maximum(second, gain))
            place[better] = j
            best = np.where(better, gain, best)
        self.asked += 1
        self.place, self.rent, self.margin = place, best, best - second
        time = self._alone(place)
        demand, value = self.goods.used(time), self.worth_of(time)
        bound = float(prices @ self.capacity) + float(self.weight @ best)
        self.master.add(Response(prices, value, demand, 0.0, bound))
        self._take(self._assignment(place, demand, value))
        if not bound < self.bound:
            return False
        self.bound, self.prices = bound, prices
        return True

    def worth_of(self, time: FloatArray) -> float:
        """What members make who spend their time so, shape (K, w)."""
        return float(self.weight @ np.einsum("kj,kj->k", self.worth, time))

    def time(self) -> FloatArray:
        """Parts of the time of the best choice or mixture of choices,
        within the capacities, shape (K, w).
        """
        if self.master.value > self._fitted(self.choice):
            time = np.zeros(self.worth.shape)
            # Proposals since the last mixture have no part in it.
            parts = zip(self.master.part.tolist(), self.master.proposals, strict=False)
            for part, proposal in parts:
                if part > 0 and proposal.level > 0:
                    # Asked again, as proposals remember no places.
                    self.ask(proposal.prices)
                    some = np.flatnonzero(self.place >= 0)
                    time[some, self.place[some]] += part
            return time * self._fit(self.goods.used(time))
        time = self._alone(self.choice.place)
        time[self.choice.free] = self.choice.time
        return time * self._fit(self.choice.demand)

    def _mix(self) -> FloatArray:
        super()._mix()
        return self.master.duals

    def _assignment(self, place: IntArray, demand: FloatArray, value: float) -> Assignment:
        """Every class in one place, none in several."""
        nobody = np.zeros(0, np.int64)
        return Assignment(place, nobody, np.zeros((0, self.worth.shape[1])), demand, value)

    def _alone(self, place: IntArray) -> FloatArray:
        """All the time of every class in one place, shape (K, w)."""
        time = np.zeros(self.worth.shape)
        some = np.flatnonzero(place >= 0)
        time[some, place[some]] = 1.0
        return time

    def _fitted(self, choice: Assignment) -> float:
        """What a choice is worth within the capacities."""
        return choice.value * self._fit(choice.demand)

    def _take(self, choice: Assignment) -> None:
        value = self._fitted(choice)
        if value > self._fitted(self.choice):
            self.choice = choice
        self.value = max(self.value, value)

    def _polish(self, most: int, grown: int) -> bool:
        """The small program, ``grown`` times as large as seems needed,
        and prices on the way to its; was it of use.
        """
        self.ask(self.prices)
        # Prices that are off by d send a part d of the classes elsewhere, and the gap is of the
        # order of d^2.
        wrong = 2.0 * min(self.gap, 1.0) ** 0.5
        wanted = max(150, int(wrong * len(self.margin))) + 30 * len(self.capacity)
        size = min(len(self.margin), most, grown * wanted)
        free = np.argpartition(self.margin, size - 1)[:size].astype(np.int64)
        goal, origin = self._restricted(free, grown * NEAR), self.prices
        if goal is not None:
            for step in STEPS:
                if self.ask(step * goal + (1.0 - step) * origin) or self.ended:
                    return True
        self._cut()
        return False

    def _restricted(self, free: IntArray, near: int) -> FloatArray | None:
        """Decide for some classes, so many places of each, beside the others;
        the prices of what is left, or None.
        """
        place = self.place.copy()
        place[free] = -1
        pinned = self._alone(place)
        left = self.capacity - self.goods.used(pinned)
        worth, cost = self.worth[free], self.goods.costs(self.prices)[free]
        kept = worth > 0
        if worth.shape[1] > near:
            kept &= least_in_rows(np.where(kept, cost - worth, np.inf), near)
        rows, places = np.nonzero(kept)
        count, goods, columns = len(free), len(self.capacity), len(rows)
        entries = np.arange(columns)
        time = sp.csc_matrix((np.ones(columns), (rows, entries)), shape=(count, columns))
        # Demand in parts of the capacity: the tolerances of HiGHS are absolute.
        held = sp.diags_array(1.0 / self.capacity) @ self.goods.rows_of(free[rows], places)
        program = maximum(
            "small",
            sp.csc_matrix(sp.vstack([time, held])),
            self.weight[free[rows]] * worth[rows, places],
            np.full(count + goods, -np.inf),
            np.append(np.ones(count), left / self.capacity),
        )
        found = optimum(program, self.seconds_left)
        if found is None:
            return None
        x, y = found
        parts = np.zeros((count, self.worth.shape[1]))
        parts[rows, places] = np.maximum(x, 0.0)
        parts /= np.maximum(1.0, parts.sum(axis=1))[:, np.newaxis]
        pinned[free] = parts
        value = self.worth_of(pinned)
        self._take(Assignment(place, free, parts, self.goods.used(pinned), value))
        log.debug("prices: %d free, gap %.2g", count, self.gap)
        return np.maximum(y[count:], 0.0) / self.capacity


def greedy_allocation(
    worth: FloatArray, weight: FloatArray, capacity: FloatArray, prices: FloatArray
) -> FloatArray:
    """An allocation that fills the capacities: parts of the time in places, shape (K, w).

    A search that is stopped may have no better one. All classes ask for the place that is worth
    most to them beyond its price. A place for which too many ask takes those that would lose most
    by their next best place. A class that is refused asks again among the places that have
    something left, until there is none, or no class that asks.

    Parameters
    ----------
    worth : FloatArray, shape (K, w)
        Of all the time in a place, for each unit of ``weight``; each place is one good.
    weight : FloatArray, shape (K,)
        What all members of a class hold of a good together.
    capacity, prices : FloatArray, shape (w,)
    """
    time, left = np.zeros(worth.shape), capacity.copy()
    gain = np.where(worth > 0, worth - prices, -np.inf)
    idle = np.arange(len(worth))
    while len(idle):
        # Rounding leaves little of a place that is full.
        has_room = left > 1e-12 * capacity
        offered = np.where(has_room, gain[idle], -np.inf)
        place = offered.argmax(axis=1)
        asks = offered.max(axis=1) > -np.inf
        idle, place, offered = idle[asks], place[asks], offered[asks]
        if not len(idle):
            break
        rows = np.arange(len(idle))
        best = offered[rows, place]
        offered[rows, place] = -np.inf
        # To be idle is the next best choice where no place gains anything.
        loss = best - np.maximum(offered.max(axis=1), 0.0)
        refused = np.zeros(len(idle), bool)
        for j in np.flatnonzero(np.bincount(place, minlength=len(left))):
            asking = np.flatnonzero(place == j)
            asking = asking[np.argsort(-loss[asking], kind="stable")]
            held = weight[idle[asking]]
            before = np.cumsum(held) - held
            part = np.clip((left[j] - before) / held, 0.0, 1.0)
            time[idle[asking], j] = part
            all_fit = part[-1] == 1.0
            left[j] = left[j] - float(held.sum()) if all_fit else 0.0
            refused[asking[part == 0.0]] = True
        idle = idle[refused]
    return time
