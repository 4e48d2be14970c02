"""Sums of concave utilities of very many classes: most classes are pinned to their best response.

At prices p a class maximises phi f(tau) - q . x on its own. It is then in one place alone, some of
its time (idle the rest of it) or all of it, or in two places; and it stays with that sort of choice
while prices move by less than a margin (`best_responses`). So where prices are known within a
margin, from a sample of the classes or from a similar program before, only the classes within it
are in doubt. Of the others,

- who is in place j all the time holds a constant,
- who is in place j some of the time, the part x_k that phi_k a_kj^e x^(e-1) = q_kj asks for, is a
  part of one class of all that hold the same goods there but for a factor, q_kj = s_k q: of a total
  X = sum N_k s_k x_k each has c_k = (phi_k a_kj^e / s_k)^(1/(1-e)) parts, and X is worth
  (sum N_k s_k c_k)^(1-e) X^e / e.

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
from typing import NamedTuple

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray, compiling, quotient
from optsched.arrays.values import replace
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


class Bundles(NamedTuple):
    """S classes that are some of the time in one place each, as one class for each bundle of goods.

    Attributes
    ----------
    first : IntArray, shape (B,)
        Of each bundle one of the classes.
    bundle : IntArray, shape (S,)
    part : FloatArray, shape (S,)
        Time of each class, relative to that of its bundle.
    size, weight : FloatArray, shape (B,)
        phi and N of the bundle, which holds what its first class holds.
    """

    first: IntArray
    bundle: IntArray
    part: FloatArray
    size: FloatArray
    weight: FloatArray


@dataclass
class PinnedTotal:
    """One search.

    Parameters
    ----------
    goods : Goods
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
        self._bundle, self._factor = self.goods.bundles()

    def _choices(self, prices: FloatArray) -> Choices:
        return best_responses(self.a, self.goods.costs_by_place(prices), self.curve)

    def run(self, prices: FloatArray | None = None) -> Balance | None:
        """The optimum, or None where it is not found; ``prices`` are near the right ones."""
        # Where each class holds other goods, nothing is gained.
        if self._bundle.max(initial=0) > MOST * len(self.level):
            return None
        # Prices of a similar program replace the sample.
        if prices is not None and (found := self._from(prices, KNOWN)) is not None:
            return found
        if self.over():
            return None
        return self._from(self._sampled(), min(DOUBT * len(self.a), AT_MOST))

    def _from(self, prices: FloatArray, doubt: float) -> Balance | None:
        choices = self._choices(prices)
        count = int(doubt * len(self.level))
        most = len(self.level)
        for _ in range(ROUNDS):
            if (found := self._restricted(choices, count)) is None:
                return None
            search, pinned, time = found
            prices, before = search.prices, choices
            choices = self._choices(prices)
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
        begin = np.arange(size + 1) * classes // size
        # Drawn at random within each stretch, because rows may be periodic.
        rows = np.random.default_rng(0).integers(begin[:-1], begin[1:])
        goods, even = self.goods, (self.level > 0).astype(np.float64)
        part = goods.part(rows, goods.market.capacity)
        # Of each good the part that the sample would hold if all ran evenly.
        held = part.used(even[rows])
        share = np.where(held > 0, quotient(held, goods.used(even)), 1.0)
        curve = Curve(self.curve.size[rows], self.curve.exponent)
        return self._interior(
            goods.part(rows, goods.market.capacity * share), self.level[rows], curve
        ).prices

    def _interior(self, goods: Goods, level: FloatArray, curve: Curve) -> Balance:
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
        weight = self.goods.weight
        margin = choices.margin[choices.alone]
        if not count < len(margin):
            return None
        pinned = (choices.margin > np.partition(margin, count)[count]) & choices.alone
        free = np.flatnonzero(~pinned)
        if len(free) > MOST * len(weight):
            return None
        time, constant = np.zeros(self.level.shape), pinned & choices.all_time
        time[constant, choices.place[constant]] = 1.0
        capacity = self.goods.market.capacity
        left = capacity - self.goods.used(time)
        # The pinned classes alone use up a good: the prices are not near enough.
        if not (left > 1e-9 * capacity).all():
            return None
        shared = np.flatnonzero(pinned & ~choices.all_time)
        place = choices.place[shared]
        bundles = self._bundles(shared, place)
        size = np.concatenate([self.curve.size[free], bundles.size])
        if len(size) > MOST * len(weight) or not (np.isfinite(size) & (size > 0)).all():
            return None
        # One class of each bundle is where it is, and stands for all.
        first = bundles.first
        goods = self.goods.part(np.concatenate([free, shared[first]]), left)
        found = self._interior(
            replace(goods, weight=np.concatenate([weight[free], bundles.weight])),
            np.concatenate([self.level[free], np.eye(self.level.shape[1])[place[first]]]),
            Curve(size, self.curve.exponent),
        )
        time[free] = found.time[: len(free)]
        of_bundles = found.time[len(free) :][np.arange(len(first)), place[first]]
        time[shared, place] = bundles.part * of_bundles[bundles.bundle]
        return found, pinned, time

    def _bundles(self, shared: IntArray, place: IntArray) -> Bundles:
        """Classes that are in these places some of the time, those together that hold the same."""
        e, column = self.curve.exponent, self.goods.place[shared, place]
        some, first, bundle = np.unique(
            self._bundle[column], return_index=True, return_inverse=True
        )
        factor = self._factor[column]
        holds = self.goods.weight[shared] * factor
        with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
            worth = self.curve.size[shared] * self.a[place, shared] ** e / factor
            asks = worth ** (1.0 / (1.0 - e))
            held = np.bincount(bundle, holds, len(some))
            mean = np.bincount(bundle, holds * asks, len(some)) / held
            size = factor[first] * mean ** (1.0 - e)
            return Bundles(first, bundle, asks / mean[bundle], size, held / factor[first])

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
