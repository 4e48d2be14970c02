"""Prices of time on resources: a bound on what any plan of levels keeps, and the jobs that cost
more than they are worth.

At prices of each resource in each piece of time, a job costs at least what its cheapest schedule
costs where it may change its level at any moment without a restart. Whatever the prices are, no
plan keeps jobs of more value than

    sum_j max(0, max_m (value_jm - cost_jm))  +  sum over resources and pieces of (price * what there is),

over deadlines m, which is weak duality; jobs that must be kept count without the 0. A job that
costs more than its value is better declined. The search begins with the best uniform price of GPUs
and follows subgradients.

The cheapest schedule until a deadline is that of a linear program with one row, the work: in each
piece the job takes levels of the lower convex hull of (work, cost), from waiting on; steps of the
hulls of all pieces are taken in the order of their cost per work, until the work is done.

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
UNIFORM, STEPS = 64, 30
"""Uniform prices, the best of which is sought, and steps from it."""
KEPT_DIRECTION = 0.7
"""Part of the last direction that is added to a subgradient."""
FAILURES = 3
"""Steps without a better bound after which steps get half as long, from the best prices."""
ALIKE = 3e-3
"""Relative difference of costs that counts as none where cheapest schedules choose."""
NEEDED = 1.0 - 1e-6
"""Part of the work that schedules do at least: their checks allow for the rounding of clocks."""


def pieces_of(due: FloatArray) -> FloatArray:
    """Ends of pieces of time, each with about as many of some deadlines."""
    ends = np.unique(np.quantile(due, np.arange(1, PIECES + 1) / PIECES)) if len(due) else due
    return np.asarray(ends[ends > 0])


class LevelPrices(NamedTuple):
    """What prices show of jobs that may be declined.

    Attributes
    ----------
    price : FloatArray, shape (R, P)
        Of a unit of each resource for a second.
    kept : float
        No plan keeps jobs of more value.
    overpriced : BoolArray, shape (K,)
        Classes whose job costs more at the prices than it is worth.
    """

    price: FloatArray
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


class _Steps(NamedTuple):
    """A step of the lower convex hull of each piece and deadline, from one level to the next.

    Attributes
    ----------
    before, after : IntArray, shape (P, D)
        Levels, as rows of the arrays of levels, the last of which is to wait; the same in both where
        the hull has ended.
    work, slope : FloatArray, shape (P, D)
        How much more of the work is done, and what more of it costs per work.
    """

    before: IntArray
    after: IntArray
    work: FloatArray
    slope: FloatArray


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
    ends : FloatArray, shape (P,)
        Ends of pieces of time, ascending; what comes after the last costs nothing.
    """

    table: LevelTable
    profile: Profile
    held: FloatArray
    optional: BoolArray
    k: IntArray
    due: FloatArray
    value: FloatArray
    ends: FloatArray

    def kept_at_most(self, price: FloatArray) -> float:
        """The value that no plan exceeds, as prices show; -inf where a job that must be kept cannot
        be.

        Parameters
        ----------
        price : FloatArray, shape (R, P)
            Of a unit of each resource for a second.
        """
        free_after = np.zeros((len(price), len(self._edges) - 1 - price.shape[1]))
        return self._cheapest(np.hstack([price, free_after]) * self._there).kept

    def prices(self, known: float, timer: Timer) -> LevelPrices | None:
        """Good prices; None if a job that must be kept cannot be, or where the time is over.

        Parameters
        ----------
        known : float
            Value that a plan keeps; steps are as long as if it were the best.
        timer : Timer
            Once the time is over, the best prices so far count.
        """
        best, found = self._best_uniform(timer)
        if not np.isfinite(found.kept):
            return None
        best, found = self._raised(best, found, known, timer)
        gain = np.full(len(self.table.C), -np.inf)
        np.maximum.at(gain, self.k, found.gain)
        return LevelPrices(self._a_unit(best), found.kept, gain <= 0)

    def _best_uniform(self, timer: Timer) -> tuple[FloatArray, _CheapestSchedules]:
        """The best uniform price of GPUs, by bisection: the bound is convex in it, and rises with
        the price where less is used than there is.
        """
        there = np.where(self._main[:, np.newaxis], self._there, 0.0)
        best, found = 0.0 * there, self._cheapest(0.0 * there)
        prices = self._uniform
        low, high = 0, len(prices)
        while low < high and not timer.is_over:
            middle = (low + high) // 2
            at = self._cheapest(prices[middle] * there)
            if at.kept < found.kept:
                best, found = prices[middle] * there, at
            if (at.excess * there).sum() > 0.0:
                low = middle + 1
            else:
                high = middle
        return best, found

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
            at = self._cheapest(price)
            if at.kept < found.kept:
                best, found, failures = price, at, 0
            elif (failures := failures + 1) == FAILURES:
                price, at, failures, length, way = best, found, 0, 0.5 * length, 0.0 * way
            way = at.excess + KEPT_DIRECTION * way
        return best, found

    def _a_unit(self, price: FloatArray) -> FloatArray:
        """What a unit costs for a second where all that there is in a piece costs ``price``."""
        return np.divide(price, self._there, out=np.zeros(price.shape), where=self._there > 0)

    def _cheapest(self, price: FloatArray) -> _CheapestSchedules:
        """The cheapest schedules where all that there is in a piece costs ``price``, (R, P)."""
        cost = np.einsum("rsd,rp->spd", self._holds, self._a_unit(price)) * self._seconds
        steps = self._steps(cost)
        work = np.concatenate([step.work for step in steps])
        slope = np.concatenate([step.slope for step in steps])
        order = slope.argsort(axis=0)
        rising, ordered = (np.take_along_axis(part, order, 0) for part in (slope, work))
        done = ordered.cumsum(axis=0)
        taken = np.clip(NEEDED - (done - ordered), 0.0, ordered)
        cost_of = np.where(done[-1] >= NEEDED, (taken * rising).sum(axis=0), np.inf)
        gain = self.value - cost_of
        # Of several deadlines the job meets the one that pays most.
        order_of = np.lexsort((-gain, self.k))
        best = order_of[np.diff(self.k[order_of], prepend=-1) != 0]
        pays = best[(gain[best] > 0) | ~self.optional[self.k[best]]]
        last = np.minimum((done < NEEDED).sum(axis=0), len(done) - 1)
        marginal = np.take_along_axis(rising, last[np.newaxis], 0)[0]
        used = self._used(steps, _shared(work, slope, marginal, len(steps)), pays)
        excess = np.divide(used, self._there, out=np.ones(used.shape), where=self._there > 0) - 1.0
        # Prices are paid for all that there is.
        return _CheapestSchedules(float(gain[pays].sum() + price.sum()), gain, excess)

    def _steps(self, cost: FloatArray) -> list[_Steps]:
        """The lower convex hulls of work and cost, from waiting on; cost of shape (S, P, D)."""
        shape, waits = cost.shape[1:], len(cost) - 1
        work, paid, level = np.zeros(shape), np.zeros(shape), np.full(shape, waits, np.int64)
        each = np.arange(work.size).reshape(shape)
        steps: list[_Steps] = []
        while True:
            more = self._part - work
            slope = np.full(cost.shape, np.inf)
            np.divide(cost - paid, more, out=slope, where=more > 0)
            after = slope.argmin(axis=0)
            at = after * work.size + each
            least = slope.ravel()[at]
            goes = np.isfinite(least)
            if steps and not goes.any():
                return steps
            gained = np.where(goes, more.ravel()[at], 0.0)
            least = np.where(goes, np.maximum(least, 0.0), 0.0)
            after = np.where(goes, after, level)
            steps.append(_Steps(level, after, gained, least))
            work, paid, level = work + gained, paid + gained * least, after

    def _used(self, steps: list[_Steps], part: FloatArray, pays: IntArray) -> FloatArray:
        """What some deadlines use in each piece, if they take a part of each step, (R, P)."""
        used = np.zeros(self._there.shape)
        seconds, held = (
            self._seconds[:, pays],
            np.hstack([self.held, np.zeros((len(self.held), 1))]),
        )
        for step, of_step in zip(steps, part, strict=True):
            taken = of_step[:, pays] * seconds
            before, after = (self._level[level[:, pays], pays] for level in step[:2])
            for row, of_levels in zip(used, held, strict=True):
                row += ((of_levels[after] - of_levels[before]) * taken).sum(axis=1)
        return used

    # --- arrays of levels, pieces and deadlines ---------------------------------------------------

    @cached_property
    def _edges(self) -> FloatArray:
        """Ends of pieces, (P + 1,); where deadlines are later than all, a last one until these."""
        last = self.due.max(initial=0.0)
        ends = self.ends if len(self.ends) and self.ends[-1] >= last else np.append(self.ends, last)
        return np.append(0.0, ends)

    @cached_property
    def _there(self) -> FloatArray:
        """What there is of each resource in each piece, times seconds, (R, P)."""
        times = np.append(self.profile.times, np.inf)
        begin, end = self._edges[:-1, np.newaxis], self._edges[1:, np.newaxis]
        overlap = np.clip(np.minimum(end, times[1:]) - np.maximum(begin, times[:-1]), 0.0, None)
        return np.asarray(np.maximum(self.profile.free, 0.0) @ overlap.T)

    @cached_property
    def _level(self) -> IntArray:
        """Levels of the job of each deadline, and -1 for waiting, which is the last, (S, D)."""
        of_class = np.bincount(self.table.k, minlength=len(self.table.C))
        first = np.cumsum(of_class) - of_class
        count = of_class[self.k]
        level = np.full((len(self.k), int(count.max(initial=0)) + 1), -1, np.int64)
        rows = np.repeat(np.arange(len(self.k)), count)
        level[rows, ranges(0 * count, count)] = ranges(first[self.k], count)
        return level.T

    @cached_property
    def _holds(self) -> FloatArray:
        """What they hold, (R, S, D)."""
        held = np.hstack([self.held, np.zeros((len(self.held), 1))])
        return np.ascontiguousarray(held[:, self._level])

    @cached_property
    def _seconds(self) -> FloatArray:
        """Seconds of each piece between the arrival of the job and the deadline, (P, D).

        That some levels must end earlier is left out, which keeps the bound valid.
        """
        begin = self.table.release[self.k]
        first, last = self._edges[:-1, np.newaxis], self._edges[1:, np.newaxis]
        seconds = np.minimum(self.due, last) - np.maximum(begin, first)
        return np.asarray(np.clip(seconds, 0.0, None))

    @cached_property
    def _part(self) -> FloatArray:
        """Part of the work that each level does in that time, (S, P, D): none where a resource that
        it holds is not there.
        """
        a_second = np.append(1.0 / self.table.duration, 0.0)[self._level]
        lacks = np.einsum("rsd,rp->spd", self._holds > 0, self._there <= 0)
        return np.asarray(np.where(lacks, 0.0, a_second[:, np.newaxis] * self._seconds))

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


def _shared(work: FloatArray, slope: FloatArray, marginal: FloatArray, steps: int) -> FloatArray:
    """The part of each step that is taken, (steps, P, D), where those about as dear as the marginal
    one share what the cheaper ones leave: of equal prices none is preferred.
    """
    cheap = slope < marginal * (1.0 - ALIKE)
    alike = ~cheap & (slope <= marginal * (1.0 + ALIKE))
    left = NEEDED - np.where(cheap, work, 0.0).sum(axis=0)
    there = np.where(alike, work, 0.0).sum(axis=0)
    share = np.clip(left / np.where(there > 0, there, np.inf), 0.0, 1.0)
    part = np.where(cheap, 1.0, np.where(alike, share, 0.0))
    return part.reshape(steps, -1, len(marginal))
