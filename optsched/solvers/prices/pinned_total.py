"""Sums of concave utilities of very many classes: most classes are pinned to their best response.

At prices p a class maximises phi f(tau) - q . x on its own. It is then in one place alone, some of
its time (idle the rest of it) or all of it, or in two places; and it stays with that sort of choice
while prices move by less than a margin (`best_responses`). So where prices are known within a
margin, from a sample of the classes or from a similar program before, only the classes within it
are in doubt. Of the others,

- who is in place j all the time holds a constant,
- who is in place j some of the time, the part x_k that phi_k a_kj^e x^(e-1) = q_j asks for, is a
  part of one class: a total X of time there is shared as c_k = (phi_k a_kj^e)^(1/(1-e)), and is
  worth (sum N_k c_k)^(1-e) X^e / e.

This leaves the same problem with few classes, which `optsched.solvers.prices.interior` solves. All
classes then choose at its prices: if the pinned ones choose the same again, this is an optimum, and
its bound,

    p . W + sum_k N_k (u_k + max_v (phi_k f(v) - y_k v)),

proves it. Otherwise the search is repeated with these better prices. If too many classes change
their choice, as happens if many differ by a factor only, it ends without an answer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from optsched.arrays import BoolArray, FloatArray
from optsched.arrays.values import replace
from optsched.solvers.prices import compiling
from optsched.solvers.prices.best_response import Choices, best_responses
from optsched.solvers.prices.goods import Goods
from optsched.solvers.prices.interior import Balance, Curve, Interior, balance_of

log = logging.getLogger("optsched")

SAMPLE = 50
"""One class of so many is in the sample."""
SMALLEST, LARGEST = 1000, 5000
"""Classes of a sample."""
DOUBT, AT_MOST = 0.05, 0.3
"""Part of the classes that are free after a sample, for each place, and for many places."""
KNOWN = 0.04
"""Part of the classes that are free after a similar program."""
MOST = 0.4
"""Part of the classes that may be free, beyond which all might as well be."""
FEWEST_FREE = 300
"""Classes that are free at least."""
CHANGED = 8
"""Free classes for each pinned one that changed its choice."""
ROUNDS = 5
CLOSED = 1e-9
"""Gap at which the search ends, relative to what all levels together are worth at their slopes."""

Stop = Callable[[], bool]


@dataclass
class PinnedTotal:
    """One search.

    Parameters
    ----------
    goods : Goods
        Each place is one good.
    level : FloatArray, shape (K, w)
        a, each row with the maximum 1.
    curve : Curve
    over : callable
        Called between steps; true ends the search.
    """

    goods: Goods
    level: FloatArray
    curve: Curve
    over: Stop
    steps: int = 0
    found: Balance | None = None

    def __post_init__(self) -> None:
        self.a = np.ascontiguousarray(self.level.T)

    def run(self, prices: FloatArray | None = None) -> Balance | None:
        """The optimum, or None where it is not found; ``prices`` are near the right ones."""
        # Prices of a similar program replace the sample.
        if prices is not None and (found := self._from(prices, KNOWN)) is not None:
            return found
        if self.over():
            return None
        return self._from(self._sampled(), min(DOUBT * len(self.a), AT_MOST))

    def _from(self, prices: FloatArray, doubt: float) -> Balance | None:
        choices = best_responses(self.a, prices, self.curve)
        count = int(doubt * len(self.level))
        most = len(self.level)
        for _ in range(ROUNDS):
            if (found := self._restricted(choices, count)) is None:
                return None
            search, pinned, time = found
            prices, before = search.prices, choices
            choices = best_responses(self.a, prices, self.curve)
            gap = self._judge(time, prices, choices)
            other = (choices.place != before.place) | (choices.all_time != before.all_time)
            changed = int((pinned & other).sum())
            log.debug("prices: %d free, %d changed, gap %.2g", (~pinned).sum(), changed, gap)
            if gap <= CLOSED:
                return self.found
            # It goes on only while the number that changes halves from round to round.
            if self.over() or changed > most:
                return None
            most = changed // 2
            count = max(FEWEST_FREE, count // 4, CHANGED * changed)
        return None

    def _sampled(self) -> FloatArray:
        """Prices of a sample of the classes, with its part of the capacities."""
        classes = len(self.level)
        size = min(max(SMALLEST, classes // SAMPLE), LARGEST, classes)
        rows = np.arange(size) * classes // size
        weight = self.goods.weight
        part = float(weight[rows].sum() / weight.sum())
        capacity = self.goods.market.capacity * part
        curve = Curve(self.curve.size[rows], self.curve.exponent)
        return self._interior(self.level[rows], weight[rows], capacity, curve).prices

    def _interior(
        self, level: FloatArray, weight: FloatArray, capacity: FloatArray, curve: Curve
    ) -> Balance:
        market = replace(self.goods.market, capacity=capacity)
        # Classes and columns are not needed, because each place is one good.
        classes, place = np.zeros(len(level), np.int64), np.zeros(level.shape, np.int64)
        goods = Goods(market, classes, weight, place)
        # Compiled if the whole is large: compiled sweeps are loaded in this process anyway.
        fast = self.level.size >= compiling.COMPILED
        search = Interior(goods, level, curve, lambda *_: self.over(), fast=fast)
        found = search.run()
        self.steps += search.steps
        return found

    def _restricted(
        self, choices: Choices, count: int
    ) -> tuple[Balance, BoolArray, FloatArray] | None:
        """Decide for ``count`` classes and those in two places;
        with who was pinned, and the time of all.
        """
        a, weight, e, width = self.a, self.goods.weight, self.curve.exponent, len(self.a)
        margin = choices.margin[choices.alone]
        if not count < len(margin):
            return None
        pinned = (choices.margin > np.partition(margin, count)[count]) & choices.alone
        free = np.flatnonzero(~pinned)
        if len(free) > MOST * len(weight):
            return None
        constant = np.flatnonzero(pinned & choices.all_time)
        shared = np.flatnonzero(pinned & ~choices.all_time)
        capacity = self.goods.market.capacity
        left = capacity - np.bincount(choices.place[constant], weight[constant], width)
        # The pinned classes alone use up a good: the prices are not near enough.
        if not (left > 1e-9 * capacity).all():
            return None
        place = choices.place[shared]
        with np.errstate(over="ignore", under="ignore"):
            asks = (self.curve.size[shared] * a[place, shared] ** e) ** (1.0 / (1.0 - e))
            together = np.bincount(place, weight[shared] * asks, width)
            members = np.bincount(place, weight[shared], width)
            some = np.flatnonzero(members > 0)
            of_shared = (together[some] / members[some]) ** (1.0 - e)
            size = np.concatenate([self.curve.size[free], of_shared])
        if not (np.isfinite(size) & (size > 0)).all():
            return None
        found = self._interior(
            np.concatenate([self.level[free], np.eye(width)[some]]),
            np.concatenate([weight[free], members[some]]),
            left,
            Curve(size, e),
        )
        time = np.zeros(self.level.shape)
        time[constant, choices.place[constant]] = 1.0
        time[free] = found.time[: len(free)]
        total = np.zeros(width)
        of_places = found.time[len(free) :][np.arange(len(some)), some]
        total[some] = of_places * members[some] / together[some]
        time[shared, place] = asks * total[place]
        return found, pinned, time

    def _judge(self, time: FloatArray, prices: FloatArray, choices: Choices) -> float:
        """The gap between what an allocation is worth within time and capacity,
        and the bound of the prices.
        """
        now = balance_of(
            self.goods, self.curve, self.level, time, prices, choices.slope, choices.rent
        )
        if self.found is None or not self.found.gap <= now.gap:
            self.found = now
        return now.gap
