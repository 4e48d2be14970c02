"""Totals of levels, the linear case: at given prices every class takes the place that is worth most beyond its price.

With g_kj the worth of a unit of a member's time in place j, the bound of any prices p >= 0 is

    p . W + sum_k N_k max(0, max_j (g_kj - q_kj(p)))

and at the best prices all classes take one place alone, but for as many as there are resources that run out. So some
cutting planes find which, and a small linear program over the classes whose choice is close, with the others where they
are, ends in the optimum or in better prices: the search of `optsched.solvers.prices.smallest_level` without its level.
Where many classes tie it does not, and the best mixture of choices, which the cuts find, is the optimum.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from optsched.arrays import FloatArray, IntArray
from optsched.program.arrays import Block, LinearArrays
from optsched.solution.values import Termination
from optsched.solvers.base import Limits
from optsched.solvers.highs import Highs
from optsched.solvers.prices.goods import Goods
from optsched.solvers.prices.master import Master
from optsched.solvers.prices.oracle import Response
from optsched.solvers.prices.phases import COARSE, EXACT, PRECISE, QUICK, ROUNDS, STEADY, STEPS
from optsched.solvers.prices.watch import Watch

log = logging.getLogger("optsched")

PASSES = 300
CUTS = 10
"""Cuts after a round that did not lower the bound, and one more for each resource."""
FREE = 1500
"""Classes that the small program decides about at first, at most."""
NEAR = 6
"""Places of a free class that the small program has at first."""


@dataclass(frozen=True)
class Choice:
    """Where the search has come to: all classes in one place (-1: idle), but for some that are in several."""

    place: IntArray
    free: IntArray
    time: FloatArray
    demand: FloatArray
    value: float


class BestPlaces:
    """One search.

    Parameters
    ----------
    goods : Goods
    worth : FloatArray, shape (K, w)
        g.
    watch : Watch, optional
        What ends the search before its time.

    Attributes
    ----------
    prices : FloatArray, shape (R,)
        Those of the lowest bound.
    value, bound : float
    """

    def __init__(self, goods: Goods, worth: FloatArray, watch: Watch | None = None) -> None:
        self.goods, self.worth, self._watch = goods, worth, watch
        self.weight, self.capacity = goods.weight, goods.market.capacity
        self._by_place = np.ascontiguousarray(worth.T)
        self.master = Master(self.capacity)
        self.bound, self.value, self.asked, self.rounds = np.inf, 0.0, 0, 0
        self.prices = np.zeros(len(self.capacity))
        nobody = np.full(len(worth), -1, np.int64)
        self.place, self.rent, self.margin = nobody, np.zeros(len(worth)), np.zeros(len(worth))
        self.choice = Choice(
            nobody, np.zeros(0, np.int64), np.zeros((0, worth.shape[1])), self.prices, 0.0
        )

    @property
    def gap(self) -> float:
        """Relative distance of bound and value."""
        return self.bound / self.value - 1.0 if self.value > 0 else np.inf

    @property
    def _ended(self) -> bool:
        return self.gap <= EXACT or (
            self._watch is not None and self._watch(self.value, self.bound)
        )

    def run(self) -> None:
        """Cutting planes, then small programs, until the gap is closed."""
        idle = np.zeros(len(self.capacity))
        self.master.add(Response(idle, 0.0, idle, 0.0, 0.0, np.inf))
        self.ask(idle)  # where everybody fits, prices are 0
        if self.bound <= 0 or self._ended:
            return
        self.ask(np.full(len(idle), 0.5 * self.bound / len(idle)) / self.capacity)
        for _ in range(PASSES):
            self._mix()
            if self.gap < COARSE or self._ended:
                break
            self.ask(STEADY * self.prices + (1.0 - STEADY) * self.master.duals)
        most, grown = FREE, 1
        while self.rounds < ROUNDS and not self._ended:
            self.rounds += 1
            if not self._polish(most, grown):
                most, grown = 2 * most, 2 * grown

    def ask(self, prices: FloatArray) -> bool:
        """Let all choose at these prices, and propose that; whether the bound is lower."""
        q = self.goods.costs(prices).T
        best, second = np.zeros(len(self.worth)), np.full(len(self.worth), -np.inf)
        place = np.full(len(self.worth), -1, np.int64)
        for j, worth in enumerate(self._by_place):
            gain = np.where(
                worth > 0, worth - q[j], -np.inf
            )  # what is worth nothing is no choice beside idleness
            better = gain > best
            second = np.where(better, best, np.maximum(second, gain))
            place[better] = j
            best = np.where(better, gain, best)
        self.asked += 1
        self.place, self.rent, self.margin = place, best, best - second
        time = self._alone(np.arange(len(place)), place)
        demand, value = self.goods.used(time), self.worth_of(time)
        bound = float(prices @ self.capacity) + float(self.weight @ best)
        self.master.add(Response(prices, value, demand, 0.0, 0.0, bound))
        self._take(Choice(place, np.zeros(0, np.int64), np.zeros((0, len(q))), demand, value))
        if not bound < self.bound:
            return False
        self.bound, self.prices = bound, prices
        return True

    def worth_of(self, time: FloatArray) -> float:
        """What members make who spend their time so, shape (K, w)."""
        return float(self.weight @ np.einsum("kj,kj->k", self.worth, time))

    def time(self) -> FloatArray:
        """Parts of the time of the best choice or mixture of choices, within the capacities, shape (K, w)."""
        if self.master.value > self._fitted(self.choice):
            time = np.zeros(self.worth.shape)
            for part, proposal in zip(
                self.master.part.tolist(), self.master.proposals, strict=False
            ):
                if part > 0 and proposal.level > 0:
                    self.ask(proposal.prices)
                    some = np.flatnonzero(self.place >= 0)
                    time[some, self.place[some]] += part
            return time * self._fit(self.goods.used(time))
        time = self._alone(np.arange(len(self.choice.place)), self.choice.place)
        time[self.choice.free] = self.choice.time
        return time * self._fit(self.choice.demand)

    def _mix(self) -> None:
        """The master's mixture of choices, which is one too, and the prices that it points to."""
        self.master.solve()
        self.value = max(self.value, self.master.value)

    def _alone(self, classes: IntArray, place: IntArray) -> FloatArray:
        """All the time in one place each."""
        time = np.zeros((len(classes), self.worth.shape[1]))
        some = np.flatnonzero(place >= 0)
        time[some, place[some]] = 1.0
        return time

    def _fit(self, demand: FloatArray) -> float:
        """What a demand is multiplied by to be within the capacities."""
        return 1.0 / max(1.0, float((demand / self.capacity).max(initial=0.0)))

    def _fitted(self, choice: Choice) -> float:
        """What a choice is worth within the capacities."""
        return choice.value * self._fit(choice.demand)

    def _take(self, choice: Choice) -> None:
        value = self._fitted(choice)
        if value > self._fitted(self.choice):
            self.choice = choice
        self.value = max(self.value, value)

    def _polish(self, most: int, grown: int) -> bool:
        """The small program, ``grown`` times as large as seems needed, and prices on the way to its; was it of use."""
        self.ask(self.prices)
        wrong = (
            2.0 * min(self.gap, 1.0) ** 0.5
        )  # prices that are off by d send a part d of the classes elsewhere
        wanted = max(150, int(wrong * len(self.margin))) + 30 * len(self.capacity)
        size = min(len(self.margin), most, grown * wanted)
        free = np.argpartition(self.margin, size - 1)[:size].astype(np.int64)
        goal, origin = self._small(free, grown * NEAR), self.prices
        if goal is not None:
            for step in STEPS:
                if self.ask(step * goal + (1.0 - step) * origin) or self._ended:
                    return True
        self._cut()
        return False

    def _cut(self) -> None:
        """Cuts, as long as a few of them leave little of the gap, as they do where many tie."""
        before = np.inf
        while self.gap < QUICK * before:
            before = self.gap
            for _ in range(CUTS + len(self.capacity)):
                self._mix()
                if self._ended:
                    return
                self.ask(0.5 * self.prices + 0.5 * self.master.duals)

    def _small(self, free: IntArray, near: int) -> FloatArray | None:
        """Decide for some classes, so many places of each, beside the others; the prices of what is left, or None."""
        place = self.place.copy()
        place[free] = -1
        pinned = self._alone(np.arange(len(place)), place)
        left = self.capacity - self.goods.used(pinned)
        worth, cost = self.worth[free], self.goods.costs(self.prices)[free]
        kept = worth > 0
        if worth.shape[1] > near:
            reduced = np.where(kept, cost - worth, np.inf)
            nearest = np.zeros_like(kept)
            np.put_along_axis(
                nearest, np.argpartition(reduced, near - 1, axis=1)[:, :near], True, axis=1
            )
            kept &= nearest
        rows, places = np.nonzero(kept)
        count, goods, columns = len(free), len(self.capacity), len(rows)
        entries = np.arange(columns)
        time = sp.csc_matrix((np.ones(columns), (rows, entries)), shape=(count, columns))
        held = sp.diags_array(1.0 / self.capacity) @ self.goods.rows_of(free[rows], places)
        arrays = LinearArrays(
            A=sp.csc_matrix(sp.vstack([time, held])), row_lower=np.full(count + goods, -np.inf),
            row_upper=np.append(np.ones(count), left / self.capacity), lower=np.zeros(columns),
            upper=np.full(columns, np.inf), cost=self.weight[free[rows]] * worth[rows, places],
            integer=np.zeros(columns, bool), maximise=True, offset=0.0, implied_lower=np.zeros(columns),
            implied_upper=np.ones(columns), rows=(Block("small", 0, count + goods),),
            columns=(Block("small", 0, columns),),
        )  # fmt: skip
        values = (
            Highs()
            .open(arrays)
            .run(Limits(None if self._watch is None else self._watch.left, tolerance=PRECISE))
        )
        if values.x is None or values.y is None or values.termination is not Termination.OPTIMAL:
            return None
        parts = np.zeros((count, self.worth.shape[1]))
        parts[rows, places] = np.maximum(values.x, 0.0)
        parts /= np.maximum(1.0, parts.sum(axis=1))[:, np.newaxis]
        pinned[free] = parts
        value = self.worth_of(pinned)
        self._take(Choice(place, free, parts, self.goods.used(pinned), value))
        log.debug("prices: %d free, gap %.2g", count, self.gap)
        return np.maximum(values.y[count:], 0.0) / self.capacity
