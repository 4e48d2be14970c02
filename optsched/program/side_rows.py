"""Rows over the columns of the classes that side constraints add to an allocation program."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import scipy.sparse as sp

from optsched.arrays import EMPTY, BoolArray, FloatArray, IntArray, quotient, stable_order
from optsched.arrays.values import cached_property
from optsched.display import Displayed, count

if TYPE_CHECKING:  # a solver in another process loads no candidates
    from optsched.candidates import Classes


SAME = 1e-12
"""Relative difference of ratios that are the same but for rounding."""
NEAR = 1e-9
"""Distance from 1 of a part of a floor that all the time gives, within which it is 1."""


class Assumption(NamedTuple):
    """An assumption of rows about the requirement that they model.

    If such rows cannot be met, only this way of meeting the requirement is shown to be impossible.
    Every sentence about it says so.

    Attributes
    ----------
    words : str
        In which way, to stand before a statement: ``at a constant rate from now on``.
    decided_by : str
        What decides whether the requirement can be met at all, as a sentence without its full stop;
        empty if nothing does.
    """

    words: str
    decided_by: str = ""


@dataclass(frozen=True)
class SameWords:
    """Describes all rows by the same words.

    Attributes
    ----------
    words : str
    """

    words: str

    def __call__(self, row: int) -> str:
        return self.words


@dataclass(frozen=True, eq=False)
class SideRows:
    """Rows over the columns of the classes that a side constraint adds:
    lower <= matrix @ x <= upper.

    Attributes
    ----------
    name : str
    matrix : csr_matrix, shape (rows, N)
    lower, upper : FloatArray, shape (rows,)
    describe : callable
        Row number -> the requirement in the user's words, for the explanation of conflicts. Rows of
        programs whose parts are solved in other processes need one that can be pickled:
        `SameWords`, or a `functools.partial` of a function at the top of a module.
    relax : str
        What is done where not all requirements can be met: ``none`` (the program is infeasible),
        ``shortfall`` (rows fall short by as little as possible in total) or ``count`` (as few rows
        as possible are given up); such rows have a lower side only, above 0.
    weight : FloatArray or None, shape (rows,)
        What giving way counts, row by row (None: 1). Of rows with ``of_class``: a round as a part
        of the time left, summed over the jobs of the class.
    slack : FloatArray or None, shape (rows,)
        By how much lower sides are below what is meant, because a solver met them up to its
        tolerance only.
    broken : tuple of str
        Requirements that nothing can meet and that have no row, in words, where rows may give way.
    barring : bool
        The rows say where jobs may not run: one that they leave nowhere makes the program
        infeasible, even if its utility could do without it.
    assumption : Assumption or None
        What the rows take for granted of the requirement.
    of_class : IntArray or None, shape (rows,)
        The class that each row is a requirement of, and of no other: its jobs can be declined, and
        then it does not bind (`optsched.solving.admitting`). Such rows have a lower side only,
        above
        0. None: nobody can be declined.
    """

    name: str
    matrix: sp.csr_matrix
    lower: FloatArray
    upper: FloatArray
    describe: Callable[[int], str]
    relax: str = "none"
    weight: FloatArray | None = None
    slack: FloatArray | None = None
    broken: tuple[str, ...] = ()
    barring: bool = False
    assumption: Assumption | None = None
    of_class: IntArray | None = None

    @classmethod
    def bar(cls, name: str, matrix: sp.csr_matrix, describe: Callable[[int], str]) -> SideRows:
        """Rows of a nonnegative matrix that forbid jobs to run somewhere.

        Parameters
        ----------
        name : str
        matrix : csr_matrix, shape (rows, N)
        describe : callable
            Row number -> the requirement in the user's words.

        Returns
        -------
        SideRows
        """
        zero = np.zeros(matrix.shape[0])
        return cls(name, matrix, zero, zero, describe, barring=True)

    @property
    def only_limit(self) -> bool:
        """Whether the rows only limit nonnegative sums, as capacities do."""
        return self.relax == "none" and bool(self.limiting.all())

    @property
    def limiting(self) -> BoolArray:
        """Which rows only limit a nonnegative sum, shape (rows,)."""
        return (self._least >= 0) & (self.lower <= 0) & (self.upper >= 0)

    @property
    def _least(self) -> FloatArray:
        """The least coefficient of each row, 0 if none is negative; shape (rows,)."""
        least = np.zeros(len(self.upper))
        if (self.matrix.data < 0).any():
            entries = sp.coo_matrix(self.matrix)
            np.minimum.at(least, entries.row, entries.data)
        return least

    @property
    def closed(self) -> sp.csr_matrix:
        """The rows that force their columns to 0, shape (rows, N), with all other rows empty."""
        rows = (self.upper == 0) & (self._least >= 0)
        closed = sp.csr_matrix(sp.diags_array(rows.astype(np.float64)) @ self.matrix)
        closed.eliminate_zeros()
        return closed


@dataclass(frozen=True, repr=False, eq=False)
class LimitRows(Displayed):
    """The rows of a program that only limit nonnegative sums: matrix @ x <= most.

    Capacities are such rows, and so are a budget, a quota, a cap on power, and rows that bar
    columns. Each has a price, and an allocation that is scaled down still keeps all of them.

    Parameters
    ----------
    classes : Classes
    side : tuple of SideRows
        Those of the program that only limit; their rows follow the capacities.
    """

    classes: Classes
    side: tuple[SideRows, ...]

    def _headline(self) -> str:
        return count(len(self.most), "row")

    @cached_property
    def matrix(self) -> sp.csr_matrix:
        """What the columns use of each row, shape (rows, N)."""
        usage = self.classes.usage
        if not self.side:
            return usage
        return sp.csr_matrix(sp.vstack([usage, *(rows.matrix for rows in self.side)]))

    @cached_property
    def most(self) -> FloatArray:
        """Right-hand side of each row, shape (rows,)."""
        return np.concatenate([self.classes.capacity, *(rows.upper for rows in self.side)])

    @cached_property
    def closed_columns(self) -> IntArray:
        """Columns that use a resource of which there is none."""
        closed = np.flatnonzero(self.most <= 0)
        if not len(closed):
            return EMPTY
        return np.unique(self.matrix[closed].indices).astype(np.int64)

    @property
    def names(self) -> list[str]:
        """Names of the rows, by which the next program finds their prices."""
        names = list(self.classes.resources.names)
        for rows in self.side:
            names += [f"{rows.name}[{row}]" for row in range(len(rows.upper))]
        return names


class FloorMeasure(NamedTuple):
    """One requirement of some classes: sum_c part_c x_c >= 1 over the columns of each.

    Attributes
    ----------
    part : FloatArray, shape (N,)
        What one unit of each column gives of what is asked for; 0 where nothing is.
    row : IntArray, shape (K,)
        The row that asks, counted over all rows that ask; -1 without one.
    lower : FloatArray, shape (K,)
        Its lower side, without its slack; 1 without one.
    """

    part: FloatArray
    row: IntArray
    lower: FloatArray

    def highest_level(
        self,
        classes: Classes,
        rate: FloatArray,
        is_open: BoolArray,
        is_tight: BoolArray,
        is_full: BoolArray,
    ) -> FloatArray:
        """The highest level that a job of each class can have and still give what is asked for,
        shape (K,); inf without a floor.

        A vertex of  sum_c part_c x_c >= 1, sum_c x_c <= n  has at most two columns.

        Parameters
        ----------
        classes : Classes
            Of jobs alone.
        rate : FloatArray, shape (N,)
            Level that all the time in each column gives.
        is_open : BoolArray, shape (N,)
            Columns that may be used.
        is_tight, is_full : BoolArray, shape (K,)
            Whose floor, and whose time, is used up to the last.
        """
        highest = np.full(len(self.row), np.inf)
        asked = self.row >= 0
        columns = np.flatnonzero(is_open & asked[classes.class_a])
        if not len(columns):
            return highest
        columns = columns[stable_order(classes.class_a[columns], len(asked))]
        klass, owner = np.unique(classes.class_a[columns], return_inverse=True)
        count = np.bincount(owner)
        place = np.arange(len(columns)) - np.repeat(np.cumsum(count) - count, count)
        given = np.zeros((len(klass), int(count.max())))
        level = np.full(given.shape, -np.inf)  # of what fills a shorter row: no column
        given[owner, place] = classes.count[klass[owner]] * self.part[columns]
        level[owner, place] = rate[columns]
        tight = is_tight[klass, np.newaxis]
        tight_and_full = tight & is_full[klass, np.newaxis]
        may = (given >= 1.0) & ~tight_and_full | (np.abs(given - 1.0) <= NEAR)
        alone = np.where(tight, quotient(level, given), level)
        best = np.max(np.where(may, alone, -np.inf), axis=1)
        best = np.maximum(best, _best_mixture(given, level))
        highest[klass] = np.where(np.isfinite(best), best, np.inf)
        return highest


def _best_mixture(given: FloatArray, level: FloatArray) -> FloatArray:
    """The highest level at which two columns together give exactly 1, shape (K,).

    It is the upper hull of the points (given, level) at 1. The segment across 1 is found from any
    other one: while a point is above its line, the highest such point replaces the end on its side,
    and the level at 1 rises.

    Parameters
    ----------
    given, level : FloatArray, shape (K, C)
        Of each column; the level of missing columns is -inf.

    Returns
    -------
    FloatArray
        -inf for a class in which no column gives 1 or none gives less.
    """
    enough = given >= 1.0
    more = np.where(enough, level, -np.inf)
    less = np.where(enough, -np.inf, level)
    mixture = np.full(len(given), -np.inf)
    both = np.flatnonzero(np.isfinite(more.max(axis=1)) & np.isfinite(less.max(axis=1)))
    if not len(both):
        return mixture
    given, level, enough = given[both], level[both], enough[both]
    ends = np.stack([more[both].argmax(axis=1), less[both].argmax(axis=1)])
    row = np.arange(len(both))

    def level_at_one(ends: IntArray) -> tuple[FloatArray, FloatArray]:
        """Level at 1 and slope of the segments between these columns."""
        (d, other), (reached, lesser) = given[row, ends], level[row, ends]
        slope = (reached - lesser) / (d - other)
        return lesser + (1.0 - other) * slope, slope

    best, slope = level_at_one(ends)
    while True:
        line = best[:, np.newaxis] + slope[:, np.newaxis] * (given - 1.0)
        highest = np.argmax(level - line, axis=1)
        is_more = enough[row, highest]
        tried = np.stack([np.where(is_more, highest, ends[0]), np.where(is_more, ends[1], highest)])
        at_one, its_slope = level_at_one(tried)
        rises = at_one > best
        if not rises.any():
            break
        ends = np.where(rises, tried, ends)
        best = np.where(rises, at_one, best)
        slope = np.where(rises, its_slope, slope)
    mixture[both] = best
    return mixture


@dataclass(frozen=True, repr=False, eq=False)
class ClassFloors(Displayed):
    """Rows that each demand something for one class, whose jobs are alone.

    What is asked for is any measure: time on some columns, a share of a resource, a level. A row
    that another one of its class implies is left out; what remains of the second and further rows
    of a class are further measures. A job that is to run on some of its columns all the time, as
    one that cannot be preempted, has no others: these are closed.

    Attributes
    ----------
    measures : tuple of FloorMeasure
    closed : BoolArray, shape (N,)
        Columns of jobs that are on others all the time.
    all_the_time : IntArray, shape (K,)
        The row that says so, counted over all rows of ``side``; -1 without one.
    matrix : csr_matrix, shape (rows, N)
        All rows of ``side``.
    side : tuple of SideRows
    """

    measures: tuple[FloorMeasure, ...]
    closed: BoolArray
    all_the_time: IntArray
    matrix: sp.csr_matrix
    side: tuple[SideRows, ...]

    def _headline(self) -> str:
        asked = sum((measure.row >= 0).astype(int) for measure in self.measures)
        floors = count(int(np.sum(asked)), "floor")
        return f"{floors} of {count(len(self.all_the_time), 'class', 'classes')}"

    @classmethod
    def of(cls, classes: Classes, side: tuple[SideRows, ...]) -> ClassFloors | None:
        """The floors that these rows express; None if some row is no floor."""
        number, columns = len(classes), classes.columns
        closed, all_the_time = np.zeros(columns, bool), np.full(number, -1, np.int64)
        if not all(np.isposinf(rows.upper).all() and rows.relax == "none" for rows in side):
            return None
        blocks = [rows.matrix for rows in side] or [sp.csr_matrix((0, columns))]
        whole = sp.csr_matrix(sp.vstack(blocks, format="csr"))
        meant = [rows.lower if rows.slack is None else rows.lower + rows.slack for rows in side]
        lower = np.concatenate([np.zeros(0), *meant])
        asking = np.flatnonzero(lower > 0)
        if not len(asking):
            return cls((), closed, all_the_time, whole, side)
        matrix = sp.csr_matrix(whole[asking])
        matrix.eliminate_zeros()
        length, first = np.diff(matrix.indptr), matrix.indptr[:-1]
        if not (length > 0).all() or (matrix.data < 0).any():
            return None
        owner = classes.class_a[matrix.indices]
        of_class = owner[first]
        if (owner != np.repeat(of_class, length)).any():
            return None
        counts_jobs = np.minimum.reduceat(matrix.data, first) == 1.0
        counts_jobs &= np.maximum.reduceat(matrix.data, first) == 1.0
        always = counts_jobs & (lower[asking] == classes.count[of_class])
        all_the_time[of_class[always]] = asking[always]
        inside = np.bincount(matrix.indices, np.repeat(always, length), columns)
        closed = inside < np.bincount(of_class[always], minlength=number)[classes.class_a]
        given = sp.csr_matrix(
            (matrix.data / np.repeat(lower[asking], length), matrix.indices, matrix.indptr),
            matrix.shape,
        )
        measures = _measures(classes, given, of_class, asking, lower, ~closed)
        return cls(measures, closed, all_the_time, whole, side)

    def as_levels(self, classes: Classes, rate: FloatArray) -> FloatArray | None:
        """The least level of a job of each class, where floors ask for multiples of levels.

        Parameters
        ----------
        classes : Classes
        rate : FloatArray, shape (N,)
            Level that all the time in each column gives.
        """
        floor = np.zeros(len(classes))
        if not self.measures:
            return floor
        if len(self.measures) > 1:
            return None
        part, klass = self.measures[0].part, classes.class_a
        some = np.flatnonzero((part > 0) | (rate > 0))
        some = some[~self.closed[some] & (self.measures[0].row[klass[some]] >= 0)]
        ratio = quotient(rate[some], classes.count[klass[some]] * part[some], np.inf)
        least = np.full(len(classes), np.inf)
        np.maximum.at(floor, klass[some], ratio)
        np.minimum.at(least, klass[some], ratio)
        asked = floor > 0
        alike = np.isfinite(floor).all() and (floor - least <= SAME * floor)[asked].all()
        return floor if alike and asked[self.measures[0].row >= 0].all() else None


def _measures(
    classes: Classes,
    given: sp.csr_matrix,
    of_class: IntArray,
    number: IntArray,
    lower: FloatArray,
    is_open: BoolArray,
) -> tuple[FloorMeasure, ...]:
    """Rows as measures: the hardest row of each class is in the first one, and so on.

    Parameters
    ----------
    classes : Classes
    given : csr_matrix, shape (rows, N)
        What one unit of each column gives of what each row asks for.
    of_class, number : IntArray, shape (rows,)
        Class of each row, and its number among all.
    lower : FloatArray
        Lower sides by number.
    is_open : BoolArray, shape (N,)
    """
    given = sp.csr_matrix(given @ sp.diags_array(is_open.astype(np.float64)))
    given.eliminate_zeros()
    total = np.asarray(given.sum(axis=1)).ravel()
    left, measures = np.argsort(-total, kind="stable"), list[FloorMeasure]()
    while len(left):
        row, least = np.full(len(classes), -1, np.int64), np.ones(len(classes))
        # The row whose columns give least is written last, and stays.
        row[of_class[left]] = left
        hardest = row[row >= 0]
        part = np.zeros(classes.columns)
        some = given[hardest]
        part[some.indices] = some.data
        others = given[left]
        rows = np.repeat(np.arange(len(left)), np.diff(others.indptr))
        # A row is implied where no column gives less of it, nor lacks in it.
        as_much = part[others.indices] <= others.data * (1.0 + SAME)
        as_much &= part[others.indices] > 0
        met = np.bincount(rows, as_much, len(left))
        needed = np.bincount(classes.class_a, part > 0, len(classes))[of_class[left]]
        row[row >= 0] = number[hardest]
        least[row >= 0] = lower[number[hardest]]
        measures.append(FloorMeasure(part, row, least))
        left = left[met < needed]
    return tuple(measures)
