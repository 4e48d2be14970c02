"""`Market`: an allocation program as goods with prices and buyers of a level, the form in which prices solve it.

A member of class k that reaches the level t alone on column c all the time pays the prices of what the column holds.
Columns of a class are the places 0 ... w - 1 of its row; places without a column have the level 0 at no price, which is
to be idle, and idle every job may be anyway.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optsched.arrays import BoolArray, FloatArray, IntArray
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
    highest: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "highest", float(self.level.max(axis=1, initial=0.0).min(initial=np.inf)))

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
        reached = np.where(self.place >= 0, self.level * x[self.place], 0.0).sum(axis=1) * self.amount / self.weight
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
    level = np.zeros(C.columns)
    level[program.levels.indices] = program.levels.data
    level[program.barred] = 0.0
    good, amount = _one_good(usage)
    if (capacity <= 0).any():  # who needs what there is none of cannot run
        level[np.unique(sp.csr_matrix(usage[capacity <= 0]).indices)] = 0.0
        capacity = np.where(capacity > 0, capacity, 1.0)
    order, start = _by_class(C.class_a, len(C))
    klass = C.class_a if order is None else C.class_a[order]
    column = np.arange(C.columns) if order is None else order
    goods: IntArray | None = None
    where, own = np.arange(C.columns) - start[klass], None
    if good is not None and amount is not None:
        own = _own_amount(klass, good[column], amount[column], len(C), len(capacity))
    if own is not None and good is not None:
        where, width, goods = good[column], len(capacity), np.arange(len(capacity))
    else:
        width, own = int(where.max(initial=0)) + 1, np.ones(len(C))
    table, place = np.zeros((len(C), width)), np.full((len(C), width), -1, np.int32)
    table[klass, where], place[klass, where] = level[column], column
    best = table.max(axis=1, initial=0.0)
    unit = float(best.min(initial=np.inf))
    unit = unit if 0.0 < unit < np.inf else 1.0
    table /= unit
    return Market(table, C.count * own, capacity, limited, goods, own, place, usage, unit)


def _one_good(usage: sp.csr_matrix) -> tuple[IntArray, FloatArray] | tuple[None, None]:
    """The one resource that each column holds and how much of it; (None, None) where some hold several, or none."""
    rows, columns = usage.shape
    if usage.nnz != columns or (usage.data <= 0).any():
        return None, None
    good, amount = np.full(columns, -1, np.int64), np.zeros(columns)
    good[usage.indices] = np.repeat(np.arange(rows), np.diff(usage.indptr))
    amount[usage.indices] = usage.data
    return (None, None) if (good < 0).any() else (good, amount)


def _by_class(class_a: IntArray, classes: int) -> tuple[IntArray | None, IntArray]:
    """Columns in the order of their classes (None: as they are), and where each class begins."""
    ordered = bool((np.diff(class_a) >= 0).all())
    start = np.zeros(classes, np.int64)
    np.cumsum(np.bincount(class_a, minlength=classes)[:-1], out=start[1:])
    return (None if ordered else np.argsort(class_a, kind="stable")), start


def _own_amount(klass: IntArray, good: IntArray, amount: FloatArray, classes: int, goods: int) -> FloatArray | None:
    """What every column of a class holds of its resource, if that is one number and no resource comes twice."""
    own = np.ones(classes)
    own[klass] = amount
    taken = np.zeros((classes, goods), bool)
    taken[klass, good] = True
    alike: BoolArray = own[klass] == amount
    return own if alike.all() and int(taken.sum()) == len(klass) else None
