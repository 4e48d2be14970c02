"""`Market`: an allocation program as goods with prices and classes that buy levels.

A member of class k that runs on column c all the time pays the prices of the resources of the
column. The columns of a class are the places 0 ... w - 1 of its row. Places without a column have
the level 0 at no price, like idleness.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optsched.arrays import BoolArray, FloatArray, IntArray, blocks, highest_in_rows
from optsched.arrays.values import cached_property, replace
from optsched.candidates import Classes
from optsched.program import AllocationProgram, LimitRows
from optsched.solvers.prices.kernels import sweeps_for

Places = NDArray[np.signedinteger[Any]]
"""Places of classes, in as few bytes as they need."""
WIDEST = 64
"""Most places of a class; beyond it a table of rows would waste too much memory, and numbers of
places need more than the byte that they have."""


@dataclass(frozen=True)
class PinnedDemand:
    """Demand of classes outside of the market, which are pinned to a segment, as a function of the
    level.

    Attributes
    ----------
    alpha, beta : FloatArray, shape (R,)
        They hold alpha + beta t at the level t, and pay the prices of that.
    """

    alpha: FloatArray
    beta: FloatArray


@dataclass(frozen=True)
class Market:
    """K classes with w places each, and R resources that can run out.

    Attributes
    ----------
    level : FloatArray, shape (K, w)
        Level of a member all the time in the place, in ``unit``; 0 where there is no column.
    weight : FloatArray, shape (K,)
        What one unit of a member's time counts: members, times what each holds where that is in
        ``good``.
    capacity : FloatArray, shape (R,)
    row : IntArray, shape (R,)
        Resource of the program that each is.
    good : IntArray or None, shape (w,)
        The one resource that a column in the place holds, ``amount`` of it, whatever the class.
    amount : FloatArray, shape (K,)
        1 without ``good``.
    place : IntArray, shape (K, w)
        Column of the program, -1 for none.
    columns : int
        N, of the program.
    held_by : callable
        Gives ``usage``, where it is asked for.
    unit : float
        Levels of the program are ``unit`` times these.
    highest : float
        The least of the levels that each class could have alone.
    pinned_demand : PinnedDemand, optional
        Demand of other classes.
    """

    level: FloatArray
    weight: FloatArray
    capacity: FloatArray
    row: IntArray
    good: IntArray | None
    amount: FloatArray
    place: Places
    columns: int
    held_by: Callable[[], sp.csr_matrix]
    unit: float
    highest: float
    pinned_demand: PinnedDemand | None = None

    def __len__(self) -> int:
        return len(self.weight)

    @property
    def width(self) -> int:
        """Places of a class."""
        return int(self.level.shape[1])

    @cached_property
    def by_place(self) -> FloatArray:
        """``level`` place by place, shape (w, K)."""
        return np.ascontiguousarray(self.level.T)

    @cached_property
    def usage(self) -> sp.csr_matrix:
        """Resources that one unit of a column holds, shape (R, N)."""
        return self.held_by()

    @cached_property
    def _by_column(self) -> sp.csc_matrix:
        return self.usage.tocsc()

    def levels_at(self, places: Places) -> FloatArray:
        """Level of each class in a place; 0 at -1, the origin."""
        return np.where(places >= 0, self.level[np.arange(len(self)), places], 0.0)

    def columns_of(self, classes: IntArray) -> IntArray:
        """Columns of some of the classes, in order."""
        is_there = np.zeros(self.columns + 1, bool)
        is_there[self.place[classes]] = True
        return np.flatnonzero(is_there[:-1])

    def part(
        self, classes: IntArray, capacity: FloatArray, pinned_demand: PinnedDemand | None = None
    ) -> Market:
        """The market of some of the classes, of these capacities, of which others hold some."""
        place, count, held_by = self.place[classes], self.columns, self.held_by
        if self.good is None:
            # Costs are computed for every column, so columns of other classes are removed.
            columns = self.columns_of(classes)
            number = np.full(self.columns + 1, -1, np.int32)
            number[columns] = np.arange(len(columns))
            place = number[place]
            usage = sp.csr_matrix(self._by_column[:, columns])
            count, held_by = len(columns), lambda: usage
        return replace(
            self,
            level=self.level[classes],
            weight=self.weight[classes],
            amount=self.amount[classes],
            place=place,
            columns=count,
            held_by=held_by,
            capacity=capacity,
            pinned_demand=pinned_demand,
        )

    def costs(self, prices: FloatArray) -> FloatArray:
        """What a unit of a member's time costs in each place, shape (K, w),
        or one row if it is the same for all classes.
        """
        if self.good is not None:
            return prices[self.good][np.newaxis, :]
        priced = np.append(self.usage.T @ prices, 0.0)
        return np.asarray(priced[self.place])

    def used(self, lower: Places, upper: Places, low: FloatArray, high: FloatArray) -> FloatArray:
        """Resources that members hold who spend the parts ``low`` and ``high`` of their time
        in two places (-1: none).

        The parts are multiplied by ``weight`` already.
        """
        if self.good is not None:
            # The first bin is of places -1.
            bins = self.width + 1
            time = np.bincount(upper + 1, high, bins) + np.bincount(lower + 1, low, bins)
            return self.held(time[1:].astype(np.float64, copy=False))
        return np.asarray(self.usage @ self.spread(lower, upper, low, high))

    def held(self, time: FloatArray) -> FloatArray:
        """Resources that are held where members spend this time in each place,
        shape (w,); not without ``good``.
        """
        assert self.good is not None
        return np.bincount(self.good, time, len(self.capacity)).astype(np.float64)

    def spread(self, lower: Places, upper: Places, low: FloatArray, high: FloatArray) -> FloatArray:
        """The same as totals of the program's columns, shape (N,)."""
        x = np.zeros(self.columns)
        for places, parts in ((lower, low), (upper, high)):
            some = np.flatnonzero(places >= 0)
            x[self.place[some, places[some]]] += parts[some] / self.amount[some]
        return x

    def worth(self, x: FloatArray) -> float:
        """The smallest level of an allocation, in ``unit``, scaled down until nothing runs out."""
        held, sweeps = np.zeros(self.width), sweeps_for(self.level.size)
        if sweeps is not None and self.good is not None:
            least = float(sweeps.reach(self.level, self.place, self.amount, self.weight, x, held))
        else:
            reached = np.zeros(len(self))
            for number, (level, place) in enumerate(zip(self.level.T, self.place.T, strict=True)):
                time = np.where(place >= 0, x[place], 0.0)
                held[number] = self.amount @ time
                time *= level
                reached += time
            reached *= self.amount / self.weight
            least = float(reached.min(initial=np.inf))
        demand = self.usage @ x[: self.columns] if self.good is None else self.held(held)
        over = float((demand / self.capacity).max(initial=1.0))
        return least / over

    def rows_of(self, classes: IntArray, places: IntArray) -> sp.csc_matrix:
        """Resources that all members of classes hold in places, shape (R, len(classes))."""
        if self.good is not None:
            start = np.arange(len(classes) + 1)
            entries = (self.weight[classes], self.good[places], start)
            return sp.csc_matrix(entries, shape=(len(self.capacity), len(classes)))
        columns = self._by_column[:, self.place[classes, places]]
        return sp.csc_matrix(columns @ sp.diags_array(self.weight[classes]))


@dataclass(frozen=True)
class PinnedPoint:
    """An allocation: pinned classes between two places, free classes anywhere.

    Attributes
    ----------
    lower, upper : array of int, shape (K,)
    share : FloatArray, shape (K,)
        Part of the time in the upper place; of pinned classes.
    free : IntArray
        Classes that ``time`` speaks of instead.
    time : FloatArray, shape (len(free), w)
    demand : FloatArray, shape (R,)
    level : float
        The smallest level.
    """

    lower: Places
    upper: Places
    share: FloatArray
    free: IntArray
    time: FloatArray
    demand: FloatArray
    level: float

    def spent(self, market: Market) -> FloatArray:
        """Time that classes spend in their places, shape (K, w)."""
        spent = np.zeros(market.level.shape)
        rows = np.arange(len(spent))
        spent[rows, self.upper] = self.share
        some = np.flatnonzero(self.lower >= 0)
        spent[some, self.lower[some]] += 1.0 - self.share[some]
        # Free classes are in no two places: their entries are replaced.
        spent[self.free] = self.time
        return spent

    def totals(self, market: Market) -> FloatArray:
        """Totals of the program's columns, with room for one number more behind; shape (N + 1,)."""
        weight, sweeps = market.weight.copy(), sweeps_for(market.level.size)
        weight[self.free] = 0.0
        x = np.empty(market.columns + 1)
        if sweeps is not None:
            # Faster than `np.zeros`, whose pages of 4 kB the kernel clears one by one.
            x.fill(0.0)
            sweeps.spread(
                market.place, self.lower, self.upper, self.share, weight, market.amount, x
            )
        else:
            low = np.where(self.lower >= 0, 1.0 - self.share, 0.0)
            x[:-1] = market.spread(self.lower, self.upper, weight * low, weight * self.share)
            x[-1] = 0.0
        places = market.place[self.free]
        rows, columns = np.nonzero(places >= 0)
        members = market.weight[self.free] / market.amount[self.free]
        x[places[rows, columns]] += members[rows] * self.time[rows, columns]
        return x


def market_of(program: AllocationProgram, closed_columns: BoolArray | None = None) -> Market:
    """The market of an allocation program whose columns are jobs alone, and whose rows beside time
    only limit sums. Floors are not part of it: see `optsched.solvers.prices.requirements`.

    Each row that limits is a resource, a budget or a quota as well as GPUs, unless it leaves
    nothing: it bars its columns then. ``closed_columns`` are barred too.
    """
    C, limits = program.classes, program.limit_rows
    goods = len(C.capacity)
    endless, closed = ~np.isfinite(limits.most), limits.most <= 0
    # Capacities of 0 stay, as the table by goods has a place for each.
    row = np.flatnonzero(~endless & ~(closed & (np.arange(len(closed)) >= goods)))
    capacity = np.where(closed[row], 1.0, limits.most[row])
    level = _levels(program)
    barred = np.zeros(C.columns, bool) if closed_columns is None else closed_columns.copy()
    barred[limits.closed_columns] = True
    if barred.any():
        level = np.where(barred, 0.0, level)
    # Where each column holds one resource, costs are R numbers instead of one for each column. Jobs
    # on a few of many pools would have a table of mostly empty places.
    one_good: IntArray | None = None
    amount: FloatArray | None = None
    if not (row >= goods).any() and len(row) <= WIDEST:
        one_good = np.arange(len(row))
        table, place, amount = _by_good(C, level, row)
    if amount is None:
        one_good, amount = None, np.ones(len(C))
        table, place = _by_number(C.class_a, level, len(C))
    # Levels count in units of the worst-off class's best, so that tolerances are relative.
    highest = float(highest_in_rows(table).min(initial=np.inf))
    unit = highest if 0.0 < highest < np.inf else 1.0
    table /= unit
    return Market(
        table,
        C.count * amount,
        capacity,
        row,
        one_good,
        amount,
        place,
        C.columns,
        partial(_of_rows, limits, row),
        unit,
        highest / unit,
    )


def _levels(program: AllocationProgram) -> FloatArray:
    """Level that one unit of each column gives, shape (N,)."""
    levels = program.levels
    columns = levels.indices
    in_order = len(columns) == levels.shape[1] and bool((columns[1:] > columns[:-1]).all())
    level = levels.data
    if not in_order:
        level = np.zeros(levels.shape[1])
        level[levels.indices] = levels.data
    return level


def _of_rows(limits: LimitRows, rows: IntArray) -> sp.csr_matrix:
    return limits.matrix if len(rows) == len(limits.most) else sp.csr_matrix(limits.matrix[rows])


def _by_good(
    C: Classes, level: FloatArray, limited: IntArray
) -> tuple[FloatArray, Places, FloatArray | None]:
    """Levels and columns of classes by the one resource that each column holds,
    and how much of it each class holds.

    That is None where columns hold several resources, or not all columns of a class as much, or two
    of them the same.
    """
    shape = len(C), len(limited)
    table, place = np.zeros(shape), np.full(shape, -1, np.int32)
    by_way = C.holds.by_way
    if by_way is None:
        return table, place, None
    number = np.full(C.holds.resources, -1)
    number[limited] = np.arange(len(limited))
    held, good = by_way.amount, number[by_way.row]
    sweeps = sweeps_for(table.size)
    if sweeps is not None:
        amount = np.zeros(len(C))
        alike = sweeps.lay_out(C.class_a, by_way.way, good, held, level, table, place, amount)
        amount[amount == 0] = 1.0
        return table, place, amount if alike else None
    amount = np.ones(len(C))
    for part in blocks(C.columns):
        klass, way = C.class_a[part], by_way.way[part]
        table[klass, good[way]] = level[part]
        place[klass, good[way]] = np.arange(part.start, part.stop)
        amount[klass] = held[way]
    alike = all(
        (amount[C.class_a[part]] == held[by_way.way[part]]).all() for part in blocks(C.columns)
    )
    one_good = bool((good >= 0).all() and (held > 0).all())
    # If two columns have one place, the second has overwritten the first.
    no_two = int((place >= 0).sum()) == C.columns
    return table, place, amount if one_good and no_two and alike else None


def _by_number(klass: IntArray, level: FloatArray, classes: int) -> tuple[FloatArray, Places]:
    """Levels and columns of classes one after the other."""
    order = np.argsort(klass, kind="stable")
    count = np.bincount(klass, minlength=classes)
    # How many columns of the same class come before each one.
    where = np.arange(len(klass)) - np.repeat(np.cumsum(count) - count, count)
    shape = classes, int(count.max(initial=0))
    table, place = np.zeros(shape), np.full(shape, -1, np.int32)
    table[klass[order], where], place[klass[order], where] = level[order], order
    return table, place
