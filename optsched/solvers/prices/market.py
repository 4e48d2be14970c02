"""`Market`: an allocation program as goods with prices and buyers of a level, the form in which prices solve it.

A member of class k that reaches the level t alone on column c all the time pays the prices of what the column holds.
Columns of a class are the places 0 ... w - 1 of its row; places without a column have the level 0 at no price, which is
to be idle, and idle every job may be anyway.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optsched.arrays import FloatArray, IntArray
from optsched.program import AllocationProgram

Places = NDArray[np.signedinteger[Any]]
"""Places of classes, in as few bytes as they need."""
WIDEST = 64
"""Columns of a class, beyond which a row for each class wastes too much."""


@dataclass(frozen=True)
class Market:
    """What prices decide on: K classes, w places each, R resources that can run out.

    Attributes
    ----------
    level : FloatArray, shape (K, w)
        Level of a member all the time in the place, in ``unit``; 0 where there is no column.
    weight : FloatArray, shape (K,)
        What one unit of a member's time counts: members, times what each holds where that is in ``good``.
    capacity : FloatArray, shape (R,)
    row : IntArray, shape (R,)
        Resource of the program that each is.
    good : IntArray or None, shape (w,)
        The one resource that a column in the place holds, ``amount`` of it, whatever the class.
    amount : FloatArray, shape (K,)
        1 without ``good``.
    place : IntArray, shape (K, w)
        Column of the program, -1 for none.
    usage : csr_matrix, shape (R, N)
        Resources that one unit of a column holds.
    unit : float
        Levels of the program are ``unit`` times these.
    highest : float
        What the class that is worst off could have if it were alone.
    """

    level: FloatArray
    weight: FloatArray
    capacity: FloatArray
    row: IntArray
    good: IntArray | None
    amount: FloatArray
    place: Places
    usage: sp.csr_matrix
    unit: float
    highest: float

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
    def _by_column(self) -> sp.csc_matrix:
        return self.usage.tocsc()

    def levels_at(self, places: Places) -> FloatArray:
        """Level of each class in a place; 0 at -1, the origin."""
        return np.where(places >= 0, self.level[np.arange(len(self)), places], 0.0)

    def costs(self, prices: FloatArray) -> FloatArray:
        """What a unit of a member's time costs in each place, shape (K, w), or one row for all where that is alike."""
        if self.good is not None:
            return prices[self.good][np.newaxis, :]
        priced = np.append(self.usage.T @ prices, 0.0)
        return np.asarray(priced[self.place])

    def used(self, lower: Places, upper: Places, low: FloatArray, high: FloatArray) -> FloatArray:
        """Resources that members hold who spend the parts ``low`` and ``high`` of their time in two places (-1: none).

        The parts are multiplied by ``weight`` already.
        """
        if self.good is not None:
            taken = np.bincount(upper + 1, high, self.width + 1) + np.bincount(lower + 1, low, self.width + 1)
            return np.bincount(self.good, taken[1:], len(self.capacity)).astype(np.float64)
        return np.asarray(self.usage @ self.spread(lower, upper, low, high))

    def spread(self, lower: Places, upper: Places, low: FloatArray, high: FloatArray) -> FloatArray:
        """The same as totals of the program's columns, shape (N,)."""
        x = np.zeros(self.usage.shape[1])
        for places, parts in ((lower, low), (upper, high)):
            some = np.flatnonzero(places >= 0)
            x[self.place[some, places[some]]] += parts[some] / self.amount[some]
        return x

    def worth(self, x: FloatArray) -> float:
        """The smallest level of an allocation, in ``unit``, scaled down until nothing runs out."""
        reached = np.zeros(len(self))
        for level, place in zip(self.level.T, self.place.T, strict=True):
            reached += np.where(place >= 0, level * x[place], 0.0)
        reached *= self.amount / self.weight
        demand = self.usage @ x
        over = float((demand / self.capacity).max(initial=1.0))
        return float(reached.min(initial=np.inf)) / over

    def rows_of(self, classes: IntArray, places: IntArray) -> sp.csc_matrix:
        """Resources that all members of classes hold in places, shape (R, len(classes))."""
        if self.good is not None:
            start = np.arange(len(classes) + 1)
            entries = (self.weight[classes], self.good[places], start)
            return sp.csc_matrix(entries, shape=(len(self.capacity), len(classes)))
        columns = self._by_column[:, self.place[classes, places]]
        return sp.csc_matrix(columns @ sp.diags_array(self.weight[classes]))


@dataclass(frozen=True)
class Point:
    """An allocation: pinned classes between two places, free classes anywhere.

    Attributes
    ----------
    lower, upper : array of int, shape (K,)
    share : FloatArray, shape (K,)
        Part of the time in the upper place.
    free : IntArray
        Classes that ``time`` speaks of instead.
    time : FloatArray, shape (len(free), w)
    demand : FloatArray, shape (R,)
    level : float
        The smallest level.
    """

    lower: IntArray
    upper: IntArray
    share: FloatArray
    free: IntArray
    time: FloatArray
    demand: FloatArray
    level: float

    def totals(self, market: Market) -> FloatArray:
        """Totals of the program's columns, shape (N,)."""
        weight = market.weight.copy()
        weight[self.free] = 0.0
        low = np.where(self.lower >= 0, 1.0 - self.share, 0.0)
        x = market.spread(self.lower, self.upper, weight * low, weight * self.share)
        places = market.place[self.free]
        rows, columns = np.nonzero(places >= 0)
        members = market.weight[self.free] / market.amount[self.free]
        x[places[rows, columns]] += members[rows] * self.time[rows, columns]
        return x


def market_of(program: AllocationProgram) -> Market:
    """The market of an allocation program whose columns are jobs alone."""
    C = program.classes
    limited = np.flatnonzero(np.isfinite(C.capacity))
    usage = C.usage if len(limited) == len(C.capacity) else sp.csr_matrix(C.usage[limited])
    capacity = C.capacity[limited]
    level = _levels(program)
    if (capacity <= 0).any():  # who needs what there is none of cannot run
        level = level.copy()
        level[np.unique(sp.csr_matrix(usage[capacity <= 0]).indices)] = 0.0
        capacity = np.where(capacity > 0, capacity, 1.0)
    table, place, amount = _by_good(C.class_a, level, usage, len(C))
    goods: IntArray | None = np.arange(len(capacity))
    if amount is None:
        goods, amount = None, np.ones(len(C))
        table, place = _by_number(C.class_a, level, len(C))
    best = table.max(axis=1, initial=0.0)
    unit = float(best.min(initial=np.inf))
    unit = unit if 0.0 < unit < np.inf else 1.0
    table /= unit
    return Market(
        table, C.count * amount, capacity, limited, goods, amount, place, usage, unit,
        float(best.min(initial=np.inf)) / unit,
    )  # fmt: skip


def _levels(program: AllocationProgram) -> FloatArray:
    """Level that one unit of each column gives, shape (N,); 0 where it is barred."""
    levels = program.levels
    in_order = levels.nnz == levels.shape[1] and bool((levels.indices[1:] > levels.indices[:-1]).all())
    level = levels.data
    if not in_order:
        level = np.zeros(levels.shape[1])
        level[levels.indices] = levels.data
    return np.where(program.barred, 0.0, level) if program.side else level


def _by_good(
    klass: IntArray, level: FloatArray, usage: sp.csr_matrix, classes: int
) -> tuple[FloatArray, Places, FloatArray | None]:
    """Levels and columns of classes by the one resource that each column holds, and how much of it each class holds.

    That is None where columns hold several resources, or not all columns of a class as much, or two of them the same.
    """
    goods, columns = usage.shape
    table, place = np.zeros((classes, goods)), np.full((classes, goods), -1, np.int32)
    amount = np.ones(classes)
    if usage.nnz != columns or (usage.data <= 0).any():
        return table, place, None
    parts = [slice(*ends) for ends in pairwise(usage.indptr.tolist())]
    for good, part in enumerate(parts):
        mine = usage.indices[part]
        table[klass[mine], good], place[klass[mine], good] = level[mine], mine
        amount[klass[mine]] = usage.data[part]
    alone = int((place >= 0).sum()) == columns
    alike = all((amount[klass[usage.indices[part]]] == usage.data[part]).all() for part in parts)
    return table, place, amount if alone and alike else None


def _by_number(klass: IntArray, level: FloatArray, classes: int) -> tuple[FloatArray, Places]:
    """Levels and columns of classes one after the other."""
    order = np.argsort(klass, kind="stable")
    count = np.bincount(klass, minlength=classes)
    where = np.arange(len(klass)) - np.repeat(np.cumsum(count) - count, count)
    shape = classes, int(count.max(initial=0))
    table, place = np.zeros(shape), np.full(shape, -1, np.int32)
    table[klass[order], where], place[klass[order], where] = level[order], order
    return table, place
