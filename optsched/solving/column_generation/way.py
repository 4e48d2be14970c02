"""One way in which jobs share GPUs: what classes make of it beside each sort of partners, and who suits whom."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.solving.column_generation.duals import Duals


@dataclass(frozen=True)
class PairWay:
    """One way of the table over the classes that can share GPUs in it, sorted by their sort.

    Attributes
    ----------
    number : int
    classes : IntArray, shape (M,)
    group : IntArray, shape (M,)
        Sort of each class, counted among the G sorts that are here.
    start : IntArray, shape (G,)
        Where each sort begins.
    level : FloatArray, shape (M, G)
        Level that a unit of x gives to a class beside any class of a sort.
    barred : BoolArray, shape (M, G)
        Where they cannot share GPUs.
    single : BoolArray, shape (M,)
        Classes of one job, which is no partner of its own.
    needs : FloatArray, shape (M, R)
    """

    number: int
    classes: IntArray
    group: IntArray
    start: IntArray
    level: FloatArray
    barred: BoolArray
    single: BoolArray
    needs: FloatArray

    @property
    def count(self) -> int:
        """Columns that could be made of it."""
        free = (~self.barred).astype(np.int64)
        partners = np.add.reduceat(free, self.start, axis=0).T[self.group]
        own = free[np.arange(len(self.classes)), self.group]
        return int((free * partners).sum() - own.sum()) // 2 + int(own[~self.single].sum())

    def parts(self, duals: Duals) -> FloatArray:
        """e, shape (M, G): what each class adds to a pair with any class of each sort, the GPUs not counted."""
        here = self.classes
        cost = duals.time[here] + self.needs @ duals.capacity
        part = duals.levels[here, None] * self.level - cost[:, None]
        part[self.barred] = -np.inf
        return part

    def best(self, part: FloatArray) -> tuple[FloatArray, IntArray]:
        """e(a, b) + e(b, a) of each class (M,) with its best partner of each sort (G,), a row of ``classes``.

        The best of each sort beside each other sort is the best partner of every class of that sort.
        """
        rows, sorts = np.arange(len(self.classes)), np.arange(len(self.start))
        most = np.maximum.reduceat(part, self.start, axis=0)
        winner = np.where(part == most[self.group], rows[:, None], len(rows))
        who = np.minimum.reduceat(winner, self.start, axis=0)
        value, partner = part + most.T[self.group], who.T[self.group]

        own, top = part[rows, self.group], who[sorts, sorts][self.group]
        alone = np.flatnonzero(
            self.single & (rows == top)
        )  # the best of its own sort has the second best
        others = np.where(rows == top, -np.inf, own)
        second = np.maximum.reduceat(others, self.start)[self.group]
        runner = np.minimum.reduceat(np.where(others == second, rows, len(rows)), self.start)[
            self.group
        ]
        value[alone, self.group[alone]] = own[alone] + second[alone]
        partner[alone, self.group[alone]] = runner[alone]
        return value, partner

    def matched(self, part: FloatArray) -> tuple[FloatArray, IntArray]:
        """The same of each class with the partner of each sort that has its rank there, or its neighbour in its own.

        If all had their best partner, few classes would be the partner of all, and only a few of these columns used.
        """
        rows, size = np.arange(len(self.classes)), np.diff(np.append(self.start, len(self.classes)))
        order = np.stack([np.lexsort((-column, self.group)) for column in part.T], axis=1)
        rank = np.empty_like(order)
        np.put_along_axis(
            rank,
            order,
            np.broadcast_to((rows - self.start[self.group])[:, None], order.shape),
            axis=0,
        )
        rank[rows, self.group] ^= 1
        partner = order[self.start + np.minimum(rank, size - 1), self.group[:, None]]
        value = part + part[partner, self.group[:, None]]
        value[(rank >= size) | (partner == rows[:, None])] = -np.inf
        return value, partner
