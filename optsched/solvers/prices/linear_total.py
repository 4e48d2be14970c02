"""Linear totals of levels: at given prices every class takes the place of the largest net worth.

With g_kj the worth of a unit of a member's time in place j, the bound of any prices p >= 0 is

    p . W + sum_k N_k max(0, max_j (g_kj - q_kj(p)))

and at the best prices all classes take one place alone, but for as many as there are resources that
run out. So some cutting planes find which, and a small linear program over the classes whose choice
is close, with the others where they are, ends in the optimum or in better prices: the search of
`optsched.solvers.prices.max_min` without its level. Where many classes tie it does not, and the
best mixture of choices, which the cuts find, is the optimum.

A class that has a floor may have to be in two places (`floor_choice`). Then nothing may be scaled
down: points are mixed with a base that keeps all floors.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from optsched.arrays import FloatArray, IntArray
from optsched.arrays.values import replace
from optsched.solvers.prices.cutting_planes import CLOSED, COARSE, ROUNDS, STEPS, CuttingPlanes
from optsched.solvers.prices.floor_choice import FloorChoice
from optsched.solvers.prices.goods import Goods
from optsched.solvers.prices.market import Places
from optsched.solvers.prices.master import MasterProgram
from optsched.solvers.prices.oracle import REMEMBERED, Response
from optsched.solvers.prices.programs import least_in_rows, maximum, optimum
from optsched.solvers.prices.sampling import sample_of, worth_sampling
from optsched.solvers.prices.watch import InnerWatch, StopRule

log = logging.getLogger("optsched")

FREE = 1500
"""Classes that the small program decides about at first, at most."""
NEAR = 6
"""Places of a free class that the small program has at first."""
AT_ONCE = 3
"""Small programs that prices of a sample are worth, before any cutting planes."""
SAMPLES = 4
"""Prices of a sample that are asked; all but the first are corrected for what the whole differs
by."""
GUESS, SHARP = 1e-5, 1e-6
"""Gap that prices of a sample are taken to leave, and at which its search ends."""
NARROW, WIDE = 8.0, 20.0
"""Part of a price by which that of the small program may differ from it, over the part of the
classes that it decides about: with floors, and without.
"""
SLOW = 0.5
"""Part of the gap that is left by a small program that decides about too few classes."""
LEAST = 0.1
"""Worth of a resource over that of the mean one, that this is a part of at least."""
ALONG = (0.1, 1e4)
"""Parts of the way along the ray at which classes are asked, to find those that must be free."""
LEFT = 1e-3
"""Part of a capacity that is left for a sample, at least."""
LACKING = 1e-10
"""Tolerance of a choice: the part of a capacity that it may exceed, and then of its floors that it
may miss."""


@dataclass(frozen=True)
class Choice:
    """The columns that classes choose at given prices: one place, or two of them to be at a floor;
    idle at -1.

    Attributes
    ----------
    upper, lower : array of int, shape (K,)
    share : FloatArray, shape (K,)
        Part of the time in the upper place, the rest is in the lower one.
    """

    upper: Places
    lower: Places
    share: FloatArray

    @classmethod
    def idle(cls, classes: int) -> Choice:
        nowhere = np.full(classes, -1, np.int64)
        return cls(nowhere, nowhere.copy(), np.ones(classes))

    def time(self, width: int) -> FloatArray:
        """Part of the time in each place, shape (K, width)."""
        time = np.zeros((len(self.upper), width))
        some = np.flatnonzero(self.upper >= 0)
        time[some, self.upper[some]] = self.share[some]
        both = np.flatnonzero(self.lower >= 0)
        time[both, self.lower[both]] += 1.0 - self.share[both]
        return time

    def condensed(self) -> Choice:
        """The same in fewer bytes."""
        return Choice(self.upper.astype(np.int8), self.lower.astype(np.int8), self.share)

    def without(self, classes: IntArray) -> Choice:
        """The same with some classes idle."""
        upper, lower = self.upper.copy(), self.lower.copy()
        upper[classes] = lower[classes] = -1
        return Choice(upper, lower, self.share)


@dataclass(frozen=True)
class ChoosingResponse(Response):
    """A response with the choices of all classes: with ties another search may choose otherwise.

    Attributes
    ----------
    choice : Choice, optional
        None where no floors make a difference, or too many classes are to be remembered.
    """

    choice: Choice | None = None


@dataclass(frozen=True)
class SearchPoint:
    """A point of the search: all classes as they choose, except some that are in several places."""

    choice: Choice
    free: IntArray
    spent: FloatArray
    demand: FloatArray
    value: float

    def time(self) -> FloatArray:
        """Part of the time in each place, shape (K, w)."""
        time = self.choice.time(self.spent.shape[1])
        time[self.free] = self.spent
        return time


class LinearTotalSearch(CuttingPlanes):
    """One search.

    Parameters
    ----------
    goods : Goods
    worth : FloatArray, shape (K, w)
        g.
    watch : StopRule, optional
        What ends the search before its time.
    asks : FloatArray, shape (K, w), optional
        Part of its floor that a unit of a member's time gives in each place; rows of 0 have none.
    base : FloatArray, shape (K, w), optional
        Parts of the time with which nobody is below a floor; nothing without floors.
    """

    passes = 300
    cuts = 10

    def __init__(
        self,
        goods: Goods,
        worth: FloatArray,
        watch: StopRule | None = None,
        asks: FloatArray | None = None,
        base: FloatArray | None = None,
    ) -> None:
        super().__init__(goods.market.capacity, watch)
        self.goods, self.worth, self.weight = goods, worth, goods.weight
        self._by_place = np.ascontiguousarray(worth.T)
        self.asks = asks
        self.asked, self._wide = 0, WIDE
        classes = len(worth)
        self.rent, self.margin, self.of_floor = np.zeros((3, classes))
        self.now = Choice.idle(classes)
        self.floors: FloorChoice | None = None
        self.ray = np.zeros_like(self.capacity)
        self.base = np.zeros(worth.shape)
        if asks is not None and base is not None and asks.any():
            self.floors, self._wide = FloorChoice(goods.market, worth, asks), NARROW
            self.base = base * self._fit(goods.used(base))
        self._begin()

    def _begin(self, lacking: float = 0.0) -> None:
        """Begin with the base alone, worth less by what it lacks of its floors."""
        self.master, self.bound = MasterProgram(self.capacity), np.inf
        self.prices = np.zeros(len(self.capacity))
        demand, self.value = self.goods.used(self.base), self.worth_of(self.base) - lacking
        first = Response(demand, self.value, demand, 0.0, np.inf)
        if self.floors is None:
            self.master.add(first)
        else:
            self.master.begin(first)
        self._at_base = demand, self.value
        everybody = np.arange(len(self.worth))
        self.best = SearchPoint(self.now, everybody, self.base, demand, self.value)

    def run(self, starts: Sequence[FloatArray] = (), ray: FloatArray | None = None) -> None:
        """Cutting planes, then small programs, until the gap is closed; of many classes
        first those of a sample.

        Parameters
        ----------
        starts : sequence of FloatArray, shape (R,) each
            Prices to ask at first.
        ray : FloatArray, shape (R,), optional
            Prices that cost nothing, as floors use up all that they charge for: any multiple may be
            added to other prices. They are so high that floors hold nearly everybody.
        """
        self._search(starts, ray)
        if ray is not None and self.gap < -CLOSED:
            self._begin_below(self.prices)

    def _search(self, starts: Sequence[FloatArray], ray: FloatArray | None) -> None:
        """One search from the base; of many classes without the ray, where a sample leads near."""
        # Where everybody fits, prices are 0.
        first = (np.zeros_like(self.capacity), *starts)
        if self._ended_at(first):
            return
        sampled = worth_sampling(self.goods.market) and self._near_by_sample(starts)
        if self.should_stop():
            return
        # A sample has another ray, and misses the few classes that change far along it.
        if ray is not None and not sampled:
            self.ray = ray
            if worth_sampling(self.goods.market):
                self._begin()  # cuts around prices of the sample lead nowhere
                if self._ended_at(first):
                    return
        # All capacities together are worth half of the bound, each the same.
        each = 0.5 * abs(self.bound) / len(self.capacity)
        self.ask(each / self.capacity)
        self._close()
        if ray is not None and sampled and self.gap > CLOSED:
            self.ray = ray
            self._exact(ROUNDS)

    def _close(self) -> None:
        """Cutting planes, then small programs."""
        self.coarse()
        self._exact(ROUNDS)

    def _ended_at(self, starts: Sequence[FloatArray]) -> bool:
        """Ask at prices one after the other; whether the search ended there."""
        for prices in starts:
            self.ask(prices)
            if (self.bound <= 0 and self.floors is None) or self.should_stop():
                return True
        return False

    def _near_by_sample(self, starts: Sequence[FloatArray]) -> bool:
        """Ask at the prices of a sample, and solve small programs there; whether these are near the
        optimum.
        """
        if self._ask_sample(starts):
            self._exact(AT_ONCE, GUESS)
        return self.gap <= COARSE or self.should_stop()

    def _begin_below(self, prices: FloatArray) -> None:
        """Search again where the value is above the bound: the base is below floors by rounding, and
        prices are many times what they decide about. So it is worth less by what its floors cost.
        """
        assert self.asks is not None
        self._choose(prices)
        lacking = np.maximum(1.0 - np.einsum("kj,kj->k", self.asks, self.base), 0.0)
        self._begin(float(self.weight @ (self.of_floor * lacking)))
        self.ask(prices)
        self._close()

    def _ask_sample(self, starts: Sequence[FloatArray]) -> bool:
        """Ask at the prices of a sample: what all hold beyond it is taken from its capacities;
        whether they are near."""
        drawn, market = sample_of(self.goods.market)
        few = np.arange(len(drawn))
        asks = None if self.asks is None else self.asks[drawn]
        demand, of_few = self.goods.used(self.base), Goods.of(market, few).used(self.base[drawn])
        for _ in range(SAMPLES):
            if self.should_stop():
                return False
            capacity = np.maximum(self.capacity - demand + of_few, LEFT * self.capacity)
            goods = Goods.of(replace(market, capacity=capacity), few)
            watch = None if self.watch is None else InnerWatch(self.watch, self.value, self.bound)
            search = LinearTotalSearch(goods, self.worth[drawn], watch, asks, self.base[drawn])
            search.wanted = SHARP
            search.run(starts)
            if search.bound < search.value - SHARP * abs(search.bound):
                return True  # less is left for the sample than its floors need; the last prices are near
            prices = search.prices
            demand, of_few = (part.demand_at(prices) for part in (self, search))
            starts = (prices,)
        return True

    def demand_at(self, prices: FloatArray) -> FloatArray:
        """Demand of all classes at prices, shape (R,)."""
        self.ask(prices)
        return self.master.proposals[-1].demand

    def _exact(self, rounds: int, gap: float | None = None) -> None:
        """Small programs, and more cuts where they lead nowhere; ``gap`` is a guess, in place of
        which there are no cuts.
        """
        most, grown = FREE, 1
        for _ in range(rounds):
            if self.should_stop():
                return
            self.rounds += 1
            before = self.gap
            improved = self._polish(most, grown, before if gap is None else min(gap, before))
            if not improved or self.gap > SLOW * before:
                if gap is not None and self.gap > COARSE:
                    return  # the prices are not near
                if self.gap <= CLOSED:
                    return  # what is left is what floors may lack by rounding
                most, grown = 2 * most, 2 * grown
                if gap is None and not improved:
                    self._cut()

    def _propose(self, prices: FloatArray) -> bool:
        """Ask at prices that are worth at least as much as the ray: how far they are along it matters
        little, and would hide how they differ otherwise.
        """
        return self.ask(prices + max(1.0 - self._along(prices), 0.0) * self.ray)

    def _along(self, prices: FloatArray) -> float:
        """How many times as much as the ray prices are worth; 1 without a ray."""
        worth = float(self.ray @ self.capacity)
        return float(prices @ self.capacity) / worth if worth > 0 else 1.0

    def ask(self, prices: FloatArray) -> bool:
        """Compute and propose the choices at these prices; returns whether the bound is lower."""
        self._choose(prices)
        time = self.now.time(self.worth.shape[1])
        demand, value = self.goods.used(time), self.worth_of(time)
        bound = float(prices @ self.capacity) + float(self.weight @ (self.rent - self.of_floor))
        few = self.floors is not None and len(self.worth) <= REMEMBERED
        choice = self.now.condensed() if few else None
        self.master.add(ChoosingResponse(prices, value, demand, 0.0, bound, choice=choice))
        self._take(self._assignment(self.now, demand, value))
        if not bound < self.bound:
            return False
        self.bound, self.prices = bound, prices
        return True

    def _choose(self, prices: FloatArray) -> None:
        """Compute the choices of all classes at these prices."""
        q = self.goods.costs(prices).T
        classes = len(self.worth)
        best, second = np.zeros(classes), np.full(classes, -np.inf)
        place = np.full(classes, -1, np.int64)
        for j, worth in enumerate(self._by_place):
            # A place of no worth is no better than idleness.
            gain = np.where(worth > 0, worth - q[j], -np.inf)
            better = gain > best
            second = np.where(better, best, np.maximum(second, gain))
            place[better] = j
            best = np.where(better, gain, best)
        self.asked += 1
        self.rent, self.margin, self.of_floor = best, best - second, np.zeros(classes)
        self.now = Choice(place, np.full(classes, -1, np.int64), np.ones(classes))
        if self.floors is not None:
            self._keep_floors(self.floors, prices)

    def _keep_floors(self, floors: FloorChoice, prices: FloatArray) -> None:
        """A class whose choice is below its floor takes the mixture that is exactly at it."""
        floors.ask(prices)
        chosen = self.now.upper[floors.k]
        reached = np.where(chosen >= 0, floors.asks[np.arange(len(chosen)), chosen], 0.0)
        held = np.flatnonzero(reached < 1.0)
        k = floors.k[held]
        self.now.upper[k], self.now.lower[k] = floors.upper[held], floors.lower[held]
        self.now.share[k] = floors.share[held]
        self.rent[k], self.of_floor[k] = floors.rent[held], floors.slope[held]
        self.margin[k] = floors.margin[held]

    def worth_of(self, time: FloatArray) -> float:
        """What members make who spend their time so, shape (K, w)."""
        return float(self.weight @ np.einsum("kj,kj->k", self.worth, time))

    def time(self) -> FloatArray:
        """Parts of the time of the best choice or mixture of choices,
        within the capacities, shape (K, w).

        No point that keeps all floors is worth more than the bound. One that is lacks rounding of
        its floors: it gives way to one on the way to the base, as which floors nobody keeps better.
        """
        time = self._best_time()
        if self.floors is None:
            return time
        value, at_base = self.worth_of(time), self.worth_of(self.base)
        if value <= max(self.bound, at_base):
            return time
        part = max(self.bound - at_base, 0.0) / (value - at_base)
        return self.base + part * (time - self.base)

    def _best_time(self) -> FloatArray:
        _, at_base = self._at_base
        if self.bound - at_base <= CLOSED * abs(at_base):
            return (
                self.base
            )  # all others may lack rounding of their floors, which is worth something
        part, room, value = self._within(self.best)
        if self._value_mixed() > value:
            time = np.zeros(self.worth.shape)
            # Proposals since the last mixture have no part in it.
            parts = zip(self.master.part.tolist(), self.master.proposals, strict=False)
            for of_time, proposal in parts:
                if of_time > 0:
                    time += of_time * self._time_of(proposal)
            return time * self._fit(self.goods.used(time))
        return room * (part * self.best.time() + (1.0 - part) * self.base)

    def _time_of(self, proposal: Response) -> FloatArray:
        if proposal.bound == np.inf:  # no answer to prices
            return self.base
        choice = proposal.choice if isinstance(proposal, ChoosingResponse) else None
        if choice is None:
            self.ask(proposal.prices)
            choice = self.now
        return choice.time(self.worth.shape[1])

    def _mix(self) -> FloatArray:
        self.master.solve()
        self.value = max(self.value, self._value_mixed())
        return self.master.duals

    def _value_mixed(self) -> float:
        """Value of the mixture. Parts that are less than 1 in all by tolerances are below floors
        by as much, which counts as what these cost.
        """
        lacking = 0.0 if self.floors is None else 1.0 - float(self.master.part.sum())
        return self.master.value - lacking * float(self.prices @ self.capacity)

    def _assignment(self, choice: Choice, demand: FloatArray, value: float) -> SearchPoint:
        """The point in which every class has its choice."""
        nobody = np.zeros(0, np.int64)
        return SearchPoint(choice, nobody, np.zeros((0, self.worth.shape[1])), demand, value)

    def _within(self, found: SearchPoint) -> tuple[float, float, float]:
        """How far from the base towards a choice the capacities allow, the factor that makes up
        for rounding, and what that is worth.
        """
        demand, value = self._at_base
        over = found.demand > self.capacity * (1.0 + (0.0 if self.floors is None else LACKING))
        room = (self.capacity - demand)[over] / (found.demand - demand)[over]
        part = float(np.clip(room, 0.0, 1.0).min(initial=1.0))
        fit = self._fit(part * found.demand + (1.0 - part) * demand)
        return part, fit, fit * (part * found.value + (1.0 - part) * value)

    def _take(self, found: SearchPoint) -> None:
        value = self._within(found)[2]
        if value > self._within(self.best)[2]:
            self.best = found
        self.value = max(self.value, value)

    def _polish(self, most: int, grown: int, gap: float) -> bool:
        """The small program, ``grown`` times as large as a gap seems to need,
        and prices on the way to its; was it of use.
        """
        self.ask(self.prices)
        # Prices that are off by d send a part d of the classes elsewhere, and the gap is of the
        # order of d^2.
        wrong = 2.0 * min(gap, 1.0) ** 0.5
        wanted = max(150, int(wrong * len(self.margin))) + 30 * len(self.capacity)
        size = min(len(self.margin), most, grown * wanted)
        near = np.argpartition(self.margin, size - 1)[:size].astype(np.int64)
        free = np.union1d(near, self._wavering(most))
        goal, origin = self._restricted(free, grown), self.prices
        if goal is not None:
            for step in STEPS:
                if self.ask(step * goal + (1.0 - step) * origin) or self.should_stop():
                    return True
        return False

    def _wavering(self, most: int) -> IntArray:
        """Classes that choose otherwise elsewhere along the ray, where they are few."""
        changes = np.zeros(len(self.worth), bool)
        if not self.ray.any():
            return np.flatnonzero(changes)
        here, prices = self.now, self.prices
        for part in ALONG:
            step = (part - 1.0) * self._along(prices) * self.ray
            self._choose(np.maximum(prices + step, 0.0))
            changed = (self.now.upper != here.upper) | (self.now.lower != here.lower)
            if changed.sum() <= most:
                changes |= changed
        self._choose(prices)
        return np.flatnonzero(changes)

    def _restricted(self, free: IntArray, grown: int) -> FloatArray | None:
        """Decide for some classes beside the others, with more places and prices the more it has
        grown; the prices of what is left, or None.

        More than is left of a resource can be had, and all of it need not be used, for a little
        more and less than its price: so new prices are near those of now, where the others
        choose what they do.
        """
        width, others = self.worth.shape[1], self.now.without(free)
        pinned = others.time(width)
        left = self.capacity - self.goods.used(pinned)
        asks, worth = self._asks_of(free), self.worth[free]
        kept = (worth > 0) | (asks > 0)
        if width > (near := grown * NEAR):
            cost = self.goods.costs(self.prices)[free]
            cost = cost - worth - self.of_floor[free, np.newaxis] * asks
            kept &= least_in_rows(np.where(kept, cost, np.inf), near)
        rows, places = np.nonzero(kept)
        count, goods, columns = len(free), len(self.capacity), len(rows)
        entries = np.arange(columns)
        time = sp.csc_matrix((np.ones(columns), (rows, entries)), shape=(count, columns))
        # Demand in parts of the capacity: the tolerances of HiGHS are absolute.
        held = sp.diags_array(1.0 / self.capacity) @ self.goods.rows_of(free[rows], places)
        floored = np.flatnonzero((asks > 0).any(axis=1))
        given = sp.csr_matrix((asks[rows, places], (rows, entries)), shape=(count, columns))
        highest, least = self._price_range(count, grown)
        trade, along = sp.identity(goods), self._worth_along()
        zero = np.zeros(along.shape[0])
        blocks = [
            [time, None, None],
            [held, -trade, trade],
            [given[floored], None, None],
            [None, along, -along],
        ]
        lower = [np.full(count + goods, -np.inf), np.ones(len(floored)), zero - np.inf]
        upper = [np.ones(count), left / self.capacity, np.full(len(floored), np.inf), zero]
        program = maximum(
            "small",
            sp.csc_matrix(sp.block_array(blocks)),
            np.concatenate([self.weight[free[rows]] * worth[rows, places], -highest, least]),
            np.concatenate(lower),
            np.concatenate(upper),
        )
        found = optimum(program, self.seconds_left)
        if found is None:
            return None
        x, y = found
        parts = np.zeros((count, width))
        parts[rows, places] = np.maximum(x[:columns], 0.0)
        parts /= np.maximum(1.0, parts.sum(axis=1))[:, np.newaxis]
        pinned[free] = parts
        value = self.worth_of(pinned)
        self._take(SearchPoint(others, free, parts, self.goods.used(pinned), value))
        log.debug("prices: %d free, gap %.2g", count, self.gap)
        return np.maximum(y[count : count + goods], 0.0) / self.capacity

    def _price_range(self, count: int, grown: int) -> tuple[FloatArray, FloatArray]:
        """The highest and the least worth of resources in a small program of so many classes, shape
        (R,) each: near what they are worth at the prices, less what is along the ray.
        """
        part = self._wide * count / len(self.worth)
        if not self.ray.any():
            price = self.prices * self.capacity
            off = part * np.maximum(price, LEAST * price.mean())
            return price + off, np.maximum(price - off, 0.0)
        price = (self.prices - self._along(self.prices) * self.ray) * self.capacity
        size = np.abs(price)
        # At prices that are all along the ray nothing is known of the others.
        mean = size.mean() if size.any() else abs(self.bound)
        off = grown * part * np.maximum(size, LEAST * mean)
        return price + off, price - off

    def _worth_along(self) -> sp.csr_matrix:
        """The row of what trades are worth along the ray, which must be nothing, as new prices may
        be anywhere along it; no row without a ray.
        """
        worth = self.ray * self.capacity
        some = worth[np.newaxis, :] if worth.any() else np.zeros((0, len(worth)))
        return sp.csr_matrix(some / max(worth.sum(), np.finfo(float).tiny))

    def _asks_of(self, classes: IntArray) -> FloatArray:
        """Part of its floor that a unit of time gives, shape (len(classes), w)."""
        asks = np.zeros((len(classes), self.worth.shape[1]))
        if self.floors is not None:
            among = np.searchsorted(self.floors.k, classes)
            some = np.flatnonzero(np.append(self.floors.k, -1)[among] == classes)
            asks[some] = self.floors.asks[among[some]]
        return asks


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
