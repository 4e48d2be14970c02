"""Pricing of pairs: the columns of largest reduced cost at the duals of a program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from optsched.arrays import EMPTY, BoolArray, FloatArray, IntArray, group_rows
from optsched.arrays.columns import Columns
from optsched.arrays.values import cached_property
from optsched.candidates.pair_table import PairTable
from optsched.program import AllocationProgram
from optsched.solution.solution import PAIRS
from optsched.solving.column_generation.pricing import ColumnPricing, Duals, level_scale, refuse


@dataclass(frozen=True)
class ClassPairs(Columns):
    """Pairs of classes in ways of the table, the lower class first, with their reduced costs."""

    first: IntArray
    second: IntArray
    way: IntArray
    value: FloatArray

    @classmethod
    def none(cls) -> ClassPairs:
        return cls(EMPTY, EMPTY, EMPTY, np.zeros(0))

    def ordered(self) -> ClassPairs:
        """Without repeats, in order of (first, second, way)."""
        groups = group_rows((self.first, self.second, self.way), len(self))
        once = groups.first
        return self.take(once[np.lexsort((self.way[once], self.second[once], self.first[once]))])

    def keys(self, classes: int) -> IntArray:
        """A unique number for each; ``classes`` is the number of classes."""
        return (self.way * classes + self.first) * classes + self.second


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
        """Number of columns that could be generated."""
        free = (~self.barred).astype(np.int64)
        # Ordered pairs without those of a class with itself, halved; these only of several jobs.
        partners = np.add.reduceat(free, self.start, axis=0).T[self.group]
        own = free[np.arange(len(self.classes)), self.group]
        return int((free * partners).sum() - own.sum()) // 2 + int(own[~self.single].sum())

    def parts(self, duals: Duals) -> FloatArray:
        """e, shape (M, G): what each class adds to a pair with any class
        of each sort, the GPUs not counted.
        """
        members = self.classes
        cost = duals.time[members] + self.needs @ duals.capacity
        part = duals.levels[members, None] * self.level - cost[:, None]
        part[self.barred] = -np.inf
        return part

    def best(self, part: FloatArray) -> tuple[FloatArray, IntArray]:
        """e(a, b) + e(b, a) of each class (M,)
        with its best partner of each sort (G,), a row of ``classes``.

        The best of each sort beside each other sort is the best partner of every class of that
        sort.
        """
        rows, sorts = np.arange(len(self.classes)), np.arange(len(self.start))
        most = np.maximum.reduceat(part, self.start, axis=0)
        # The first class that attains the maximum of its sort, found as a minimum of row numbers.
        winner = np.where(part == most[self.group], rows[:, None], len(rows))
        who = np.minimum.reduceat(winner, self.start, axis=0)
        value, partner = part + most.T[self.group], who.T[self.group]

        own_sort, top = part[rows, self.group], who[sorts, sorts][self.group]
        # The best of its own sort has the second best.
        alone = np.flatnonzero(self.single & (rows == top))
        others = np.where(rows == top, -np.inf, own_sort)
        second = np.maximum.reduceat(others, self.start)[self.group]
        runner = np.minimum.reduceat(np.where(others == second, rows, len(rows)), self.start)[
            self.group
        ]
        value[alone, self.group[alone]] = own_sort[alone] + second[alone]
        partner[alone, self.group[alone]] = runner[alone]
        return value, partner

    def matched(self, part: FloatArray) -> tuple[FloatArray, IntArray]:
        """The same of each class with the partner of each sort that has its rank there,
        or its neighbour in its own.

        If all had their best partner, few classes would be the partner of all, and only a few of
        these columns used.
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
        # In its own sort the partner is the neighbour by rank: 0 with 1, 2 with 3.
        rank[rows, self.group] ^= 1
        partner = order[self.start + np.minimum(rank, size - 1), self.group[:, None]]
        value = part + part[partner, self.group[:, None]]
        value[(rank >= size) | (partner == rows[:, None])] = -np.inf
        return value, partner


AT_MOST = 2
"""Partners of a class in a way that are handed out by rank, each of another sort."""
LONELY = 0.1
"""Part of what its best partner is worth that those of its rank must be,
lest a class is offered the best one too.
"""


@dataclass(frozen=True)
class PairPricing(ColumnPricing):
    """Prices every pair of classes that could share GPUs without generating its column.

    The reduced cost of a pair of classes a and b in way w of the table, at duals (u, p, y), is

        y_a level_a(w, b) + y_b level_b(w, a) - u_a - u_b - p usage(w, a, b)

    where level_a depends on the sort of b alone, and p usage is the price of the GPUs and a part of
    each of the two. Only a column for which this is above 0 can improve the optimum.

    Attributes
    ----------
    table : PairTable
    """

    table: PairTable

    of_what: ClassVar[str] = PAIRS

    @classmethod
    def of(cls, program: AllocationProgram) -> PairPricing:
        """Of a program whose classes have pairs on demand, and no columns of pairs.

        Raises
        ------
        UsageError
            If pairs are no longer on demand, or columns cannot be priced by the levels of jobs
            alone.
        """
        pairs = program.classes.candidates.pairs
        refuse(program, gone=pairs is None, concave=False)
        assert pairs is not None
        return cls(program, level_scale(program), pairs)

    @cached_property
    def ways(self) -> tuple[PairWay, ...]:
        """The ways in which some classes can share GPUs."""
        return tuple(way for way in map(self._way, range(self.table.ways)) if len(way.classes))

    @cached_property
    def count(self) -> int:
        """Number of pairs that could be generated."""
        return sum(way.count for way in self.ways)

    @cached_property
    def highest_levels(self) -> FloatArray:
        """The highest level of each class, alone or in pairs; shape (K,)."""
        level = self.program.highest_level.copy()
        for way in self.ways:
            level[way.classes] = np.maximum(
                level[way.classes], np.where(way.barred, 0.0, way.level).max(axis=1)
            )
        return level

    @property
    def highest(self) -> float:
        """An upper bound on a smallest level: the least of `highest_levels`."""
        return float(self.highest_levels.min(initial=np.inf)) if len(self.highest_levels) else 0.0

    def levels(self, pairs: ClassPairs) -> tuple[FloatArray, FloatArray]:
        """Levels that a unit of each pair gives to its two classes."""
        a, b = self.classes.kind[pairs.first], self.classes.kind[pairs.second]
        first = self.scale[pairs.first] * self.table.rate(a, b, pairs.way)
        return first, self.scale[pairs.second] * self.table.rate(b, a, pairs.way)

    def possible(self, first: IntArray, second: IntArray, way: IntArray) -> ClassPairs:
        """The given pairs that can be generated, each once and in order; ways below 0 do not
        exist.
        """
        first, second = np.minimum(first, second), np.maximum(first, second)
        fits = (way >= 0) & ((first != second) | (self.classes.count[first] > 1))
        fits &= self.table.can_share(self.classes.kind[first], self.classes.kind[second], way)
        return (
            ClassPairs(first, second, way, np.zeros(len(way))).take(np.flatnonzero(fits)).ordered()
        )

    def excess(self, duals: Duals) -> FloatArray:
        """Largest reduced cost of a pair of each class, at least 0; shape (K,).

        If u is raised by half of it, no pair has a positive reduced cost: the duals are feasible
        for the whole program.
        """
        most = np.zeros(len(self.classes))
        for way in self.ways:
            value, _ = way.best(way.parts(duals))
            most[way.classes] = np.maximum(
                most[way.classes], value.max(axis=1) - self.price(way, duals)
            )
        return most

    def alone_excess(self, duals: Duals) -> FloatArray:
        """Largest reduced cost of a column alone of each class, at least 0 (due to rounding of
        duals);
        shape (K,).
        """
        C = self.classes
        value = (
            self.program.levels.T @ duals.levels
            - C.usage.T @ duals.capacity
            - C.member.T @ duals.time
        )
        most = np.zeros(len(C))
        np.maximum.at(most, C.class_a, value)
        return most

    def scaled(self, duals: Duals) -> Duals:
        """For a smallest level, the duals scaled to n . y = 1."""
        count = self.classes.count
        if not self.program.utility.smallest_level:
            return duals
        total = float(count @ duals.levels)
        if total <= 0:  # any multipliers prove a bound
            return Duals(duals.time, duals.capacity, np.full(len(count), 1.0 / count.sum()))
        return Duals(duals.time / total, duals.capacity / total, duals.levels / total)

    def left_out(self, duals: Duals) -> float:
        """The most that all pairs can add to the bound that duals prove for the columns without
        them.

        sum_c d_c x_c <= sum_k n_k v_k / 2  over pairs c of value d_c, where v_k is the largest value of class k; and
        where the duals of the levels make less than 1, what a smallest level beyond that of jobs
        alone adds.
        """
        C = self.classes
        beyond = 0.0
        if self.program.utility.smallest_level:
            short = max(0.0, 1.0 - float(C.count @ duals.levels))
            beyond = short * max(0.0, self.highest - self.program.highest)
        return float(C.count @ self.excess(duals)) / 2 + beyond

    def best(self, duals: Duals, above: float) -> tuple[FloatArray, ClassPairs]:
        """`excess`, and pairs of each class in each way whose reduced cost exceeds a value.

        Partners are matched by rank. If these are worth less than a fraction of the best partner
        (`LONELY`), the best one is taken.
        """
        most, parts = np.zeros(len(self.classes)), []
        for way in self.ways:
            price, part = self.price(way, duals), way.parts(duals)
            value, partner = way.best(part)
            rows, top = np.arange(len(way.classes)), value.argmax(axis=1)
            highest = value[rows, top] - price
            most[way.classes] = np.maximum(most[way.classes], highest)
            matched, other = way.matched(part)
            take = min(AT_MOST, matched.shape[1])
            sorts = np.argpartition(-matched, take - 1, axis=1)[:, :take]
            worth = matched[rows[:, None], sorts] - price
            # Their partners by rank are worth little, so they get the best one too.
            lonely = np.flatnonzero((highest > above) & (worth.max(axis=1) < LONELY * highest))
            a = np.concatenate([np.repeat(rows, take), lonely])
            b = np.concatenate([other[rows[:, None], sorts].ravel(), partner[lonely, top[lonely]]])
            worth = np.concatenate([worth.ravel(), highest[lonely]])
            use = np.flatnonzero(worth > above)
            one, two = way.classes[a[use]], way.classes[b[use]]
            number = np.full(len(use), way.number, np.int64)
            parts.append(ClassPairs(np.minimum(one, two), np.maximum(one, two), number, worth[use]))
        return most, ClassPairs.join([ClassPairs.none(), *parts]).ordered()

    def sorts(self, way: PairWay) -> IntArray:
        """The sorts of a way, in the order of its groups, which increases."""
        return self.table.sort[self.classes.kind[way.classes[way.start]]]

    def price(self, way: PairWay, duals: Duals) -> float:
        """Price of the GPUs of a pair in a way."""
        return float(self.table.gpus[way.number] * duals.capacity[self.table.pool[way.number]])

    def _way(self, number: int) -> PairWay:
        table = self.table
        sort = table.sort[self.classes.kind]
        allowed, modelled = table.allowed[number], table.modelled[number]
        seated = table.row[self.classes.kind, number] >= 0
        stated = (allowed & ~modelled).any(axis=1)[sort]  # these need no column alone
        members = np.flatnonzero(allowed.any(axis=1)[sort] & (seated | stated))
        # By sort: sums and maxima over a sort are `reduceat` of slices.
        members = members[np.argsort(sort[members], kind="stable")]
        sorts, start, group = np.unique(sort[members], return_index=True, return_inverse=True)
        cell = np.ix_(sort[members], sorts)
        rate = (
            table.rate_alone(self.classes.kind[members], number)[:, None]
            * table.fraction[number][cell]
        )
        return PairWay(
            number=number,
            classes=members,
            group=group.astype(np.int64),
            start=start.astype(np.int64),
            level=self.scale[members][:, None] * (rate + table.stated[number][cell]),
            barred=~allowed[cell] | (modelled[cell] & ~seated[members][:, None]),
            single=self.classes.count[members] == 1,
            needs=table.needs[number][sort[members]],
        )
