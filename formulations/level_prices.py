"""Prices of time on resources: a bound on what any plan of levels keeps, and the jobs that cost
more than they are worth.

At prices of each resource in each piece of time, a job costs at least what its cheapest schedule
costs where it may change its level at any moment without a restart. Whatever the prices are, no
plan keeps jobs of more value than

    sum_j max(0, value_j - cost_j)  +  sum over resources and pieces of (price * what there is),

which is weak duality. A job that costs more than its value is better declined. The search begins
with the best uniform price of GPUs and follows subgradients.

B. T. Polyak, "Minimization of unsmooth functionals", USSR Computational Mathematics and Mathematical
Physics 9 (1969); P. M. Camerini, L. Fratta, F. Maffioli, "On improving relaxation methods by
modified gradient techniques", Mathematical Programming Study 3 (1975).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from formulations.level_planner import Profile
from formulations.level_table import LevelTable
from optsched.arrays import BoolArray, FloatArray, IntArray, mask_of, ranges
from optsched.instance.durations import Timer

PIECES = 12
"""Pieces of time, with about as many deadlines in each; prices are constant in them."""
UNIFORM, STEPS = 16, 30
"""Uniform prices that are tried, and steps from the best of them."""
HALVINGS = 12
"""Of the logarithm of the price of work; any price of work gives a valid bound."""
KEPT_DIRECTION = 0.7
"""Part of the last direction that is added to a subgradient."""
FAILURES = 3
"""Steps without a better bound after which steps get half as long, from the best prices."""
NEEDED = 1.0 - 1e-6
"""Part of the work that schedules do at least: their checks allow for the rounding of clocks."""
LEAST_PRICE, MOST_PRICE = 1e-5, 30.0
"""Prices of work that are tried, relative to the dearest level of a job."""


class LevelPrices(NamedTuple):
    """What prices show of jobs that may be declined.

    Attributes
    ----------
    kept : float
        No plan keeps jobs of more value.
    overpriced : BoolArray, shape (K,)
        Classes whose job costs more at the prices than it is worth.
    """

    kept: float
    overpriced: BoolArray


class _CheapestSchedules(NamedTuple):
    """The cheapest schedules at some prices.

    Attributes
    ----------
    kept : float
        The bound on the value that is kept.
    gain : FloatArray, shape (D,)
        Value less cost of each deadline.
    excess : FloatArray, shape (R, P)
        Part of what there is that these schedules use, less 1.
    """

    kept: float
    gain: FloatArray
    excess: FloatArray


@dataclass(frozen=True, eq=False)
class PricedLevels:
    """Jobs with deadlines, whose levels pay for the time on resources that they hold.

    Attributes
    ----------
    table : LevelTable
    profile : Profile
        What there is.
    held : FloatArray, shape (R, levels)
        What each level holds of renewable resources.
    optional : BoolArray, shape (K,)
        Classes whose job may be declined.
    k : IntArray, shape (D,)
        Class of each deadline that its job could meet alone, ascending.
    due, value : FloatArray, shape (D,)
    """

    table: LevelTable
    profile: Profile
    held: FloatArray
    optional: BoolArray
    k: IntArray
    due: FloatArray
    value: FloatArray

    def prices(self, known: float, timer: Timer) -> LevelPrices | None:
        """Good prices; None if a job that must be kept cannot be, or where the time is over.

        Parameters
        ----------
        known : float
            Value that a plan keeps; steps are as long as if it were the best.
        timer : Timer
            Once the time is over, the best prices so far count.
        """
        uses = self.held.any(axis=1) & (self._there > 0).any(axis=1)
        best, found = np.zeros(self._there.shape), self._relaxed(np.zeros(self._there.shape))
        for price in self._uniform:
            tried = np.where((self._main & uses)[:, np.newaxis], price, 0.0) * self._there
            new = self._relaxed(tried)
            if new.kept < found.kept:
                best, found = tried, new
            if timer.is_over:
                break
        if not np.isfinite(found.kept):
            return None
        best, found = self._raised(best, found, known, timer)
        gain = np.full(len(self.table.C), -np.inf)
        np.maximum.at(gain, self.k, found.gain)
        return LevelPrices(found.kept, gain <= 0)

    def _raised(
        self, best: FloatArray, found: _CheapestSchedules, known: float, timer: Timer
    ) -> tuple[FloatArray, _CheapestSchedules]:
        """Better prices by steps along subgradients."""
        price, at, way, length, failures = best, found, found.excess, 0.5, 0
        for _ in range(STEPS):
            size = float((way * way).sum())
            if timer.is_over or size == 0.0 or found.kept <= known:
                break
            step = length * max(at.kept - known, 0.0) / size
            price = np.maximum(price + step * way, 0.0)
            at = self._relaxed(price)
            if at.kept < found.kept:
                best, found, failures = price, at, 0
            elif (failures := failures + 1) == FAILURES:
                price, at, failures, length, way = best, found, 0, 0.5 * length, 0.0 * way
            way = at.excess + KEPT_DIRECTION * way
        return best, found

    def _relaxed(self, price: FloatArray) -> _CheapestSchedules:
        """The cheapest schedules where all that there is in a piece costs ``price``, (R, P)."""
        there = np.where(self._there > 0, self._there, 1.0)
        cost = np.zeros(self._length.shape)
        for of_levels, each in zip(self._holds, price / there, strict=True):
            cost += of_levels[:, np.newaxis] * each[:, np.newaxis]
        cost *= self._length
        least, low, high, part = self._cheapest(cost)
        gain = self.value - least
        # Of several deadlines the job meets the one that pays most.
        order = np.lexsort((-gain, self.k))
        best = order[np.diff(self.k[order], prepend=-1) != 0]
        pays = best[(gain[best] > 0) | ~self.optional[self.k[best]]]
        used = np.zeros(price.shape)
        for chosen, weight in ((low, 1.0 - part), (high, part)):
            level = np.maximum(chosen[:, pays], 0)
            seconds = np.take_along_axis(self._length[:, :, pays], level[np.newaxis], 0)[0]
            seconds = np.where(chosen[:, pays] < 0, 0.0, seconds) * weight[pays]
            for row, of_levels in zip(used, self._holds[:, :, pays], strict=True):
                row += (np.take_along_axis(of_levels, level, 0) * seconds).sum(axis=1)
        excess = np.where(self._there > 0, used / there - 1.0, 0.0)
        # Prices are paid for all that there is.
        return _CheapestSchedules(float(gain[pays].sum() + price.sum()), gain, excess)

    def _cheapest(self, cost: FloatArray) -> tuple[FloatArray, IntArray, IntArray, FloatArray]:
        """At least what the work of each deadline costs, inf where it cannot be done, (D,).

        For a price of the work the job runs in each piece at the level with which it earns most
        beyond its cost, or not at all. The work costs at least that price less what is earned; two
        prices that enclose the work give the levels, (P, D), and the part of time at the latter.
        """
        ratio = np.divide(cost, self._part, out=np.zeros(cost.shape), where=self._part > 0)
        most = ratio.max(axis=(0, 1), initial=0.0)
        low, high = np.zeros(len(self.k)), MOST_PRICE * most + 1e-300
        for _ in range(HALVINGS):
            middle = np.sqrt(np.maximum(low, LEAST_PRICE * high) * high)
            enough = self._earned(cost, middle)[0] >= NEEDED
            high, low = np.where(enough, middle, high), np.where(enough, low, middle)
        (done, earned, first), (more, earns, second) = (
            self._earned(cost, price) for price in (low, high)
        )
        least = np.maximum(NEEDED * low - earned, NEEDED * high - earns)
        possible = self._part.max(axis=0).sum(axis=0) >= NEEDED
        least = np.where(possible, np.maximum(least, 0.0), np.inf)
        part = np.clip((1.0 - done) / np.maximum(more - done, 1e-300), 0.0, 1.0)
        return least, first, second, part

    def _earned(
        self, cost: FloatArray, price: FloatArray
    ) -> tuple[FloatArray, FloatArray, IntArray]:
        """Part of the work that is done at a price of it, and what is earned beyond the cost, (D,);
        the levels, (P, D), -1 where the job waits.
        """
        shape = cost.shape[1:]
        earned, part, level = np.zeros(shape), np.zeros(shape), np.full(shape, -1, np.int64)
        for number, (of_level, costs) in enumerate(zip(self._part, cost, strict=True)):
            here = price * of_level - costs
            better = here > earned
            np.copyto(earned, here, where=better)
            np.copyto(part, of_level, where=better)
            np.copyto(level, number, where=better)
        return part.sum(axis=0), earned.sum(axis=0), level

    # --- arrays of levels, pieces and deadlines ---------------------------------------------------

    @cached_property
    def _edges(self) -> FloatArray:
        """Ends of pieces, (P + 1,)."""
        ends = np.quantile(self.due, np.arange(1, PIECES + 1) / PIECES)
        return np.append(0.0, np.unique(ends[ends > 0]))

    @cached_property
    def _there(self) -> FloatArray:
        """What there is of each resource in each piece, times seconds, (R, P)."""
        times = np.append(self.profile.times, np.inf)
        begin, end = self._edges[:-1, np.newaxis], self._edges[1:, np.newaxis]
        overlap = np.clip(np.minimum(end, times[1:]) - np.maximum(begin, times[:-1]), 0.0, None)
        return np.asarray(np.maximum(self.profile.free, 0.0) @ overlap.T)

    @cached_property
    def _level(self) -> IntArray:
        """Levels of the job of each deadline, -1 beyond the last, (S, D)."""
        of_class = np.bincount(self.table.k, minlength=len(self.table.C))
        first = np.cumsum(of_class) - of_class
        count = of_class[self.k]
        level = np.full((len(self.k), int(count.max(initial=1))), -1, np.int64)
        rows = np.repeat(np.arange(len(self.k)), count)
        level[rows, ranges(0 * count, count)] = ranges(first[self.k], count)
        return level.T

    @cached_property
    def _holds(self) -> FloatArray:
        """What they hold, (R, S, D)."""
        return np.ascontiguousarray(self.held[:, self._level])

    @cached_property
    def _length(self) -> FloatArray:
        """Seconds of each piece in which the job may run there, (S, P, D).

        They are the same for all its levels, as `_earned` takes one level for a whole piece: that
        some levels end earlier is left out, which keeps the bound valid.
        """
        begin = self.table.release[self.k]
        first, last = self._edges[:-1, np.newaxis], self._edges[1:, np.newaxis]
        seconds = np.clip(np.minimum(self.due, last) - np.maximum(begin, first), 0.0, None)
        length = np.where((self._level >= 0)[:, np.newaxis], seconds, 0.0)
        for of_levels, there in zip(self._holds, self._there, strict=True):
            length[(of_levels > 0)[:, np.newaxis] & (there == 0)[:, np.newaxis]] = 0.0
        return np.asarray(length)

    @cached_property
    def _part(self) -> FloatArray:
        """Part of the work that is done in that time, (S, P, D)."""
        return np.asarray(self._length / self.table.duration[self._level][:, np.newaxis])

    @cached_property
    def _main(self) -> BoolArray:
        """Resources that are the first which a level holds: GPUs of a pool, (R,)."""
        return mask_of(self.held[:, self.held.any(axis=0)].argmax(axis=0), len(self.held))

    @cached_property
    def _uniform(self) -> list[float]:
        """Uniform prices of a unit of these for a second: what jobs are worth a second of it."""
        some = np.flatnonzero(self.table.in_time)
        main = np.where(self._main[:, np.newaxis], self.held, 0.0).sum(axis=0)
        cost = np.full(len(self.table.C), np.inf)
        np.minimum.at(cost, self.table.k[some], (main * self.table.duration)[some])
        worth = (self.value / cost[self.k])[np.isfinite(cost[self.k]) & (cost[self.k] > 0)]
        if not len(worth):
            return []
        return list(np.unique(np.quantile(worth, (np.arange(UNIFORM) + 0.5) / UNIFORM)).tolist())
