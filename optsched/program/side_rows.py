"""Rows over the columns of the classes that side constraints add to an allocation program."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import scipy.sparse as sp

from optsched.arrays import EMPTY, BoolArray, FloatArray, IntArray
from optsched.display import Displayed, count

if TYPE_CHECKING:  # a solver in another process loads no candidates
    from optsched.candidates import Classes


SAME = 1e-12
"""Relative difference of ratios that are the same but for rounding."""


class Assumption(NamedTuple):
    """What rows take for granted of the requirement that they stand for.

    Where such rows cannot hold, it is shown only that the requirement cannot be met in this way.
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
        Row number -> the requirement in the user's words, for the explanation of conflicts.
    relax : str
        What is done where not all requirements can be met: ``none`` (the program is infeasible),
        ``shortfall`` (rows fall short by as little as possible in total) or ``count`` (as few rows
        as possible are given up); such rows have a lower side only, above 0.
    weight : FloatArray or None, shape (rows,)
        What giving way counts, row by row (None: 1). Of rows with ``of_class``: a round as a part of
        the time left, summed over the jobs of the class.
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
        then it does not bind (`optsched.solving.admitting`). Such rows have a lower side only, above
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
        """Rows of a matrix with nothing negative that say where jobs may not run.

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
        """Whether the rows only limit sums of nothing negative, as capacities do."""
        nothing_negative = not (self.matrix.data < 0).any()
        no_lower_side = bool((self.lower <= 0).all()) and self.relax == "none"
        return nothing_negative and no_lower_side and bool((self.upper >= 0).all())

    @property
    def closed(self) -> sp.csr_matrix:
        """The rows that leave nothing to their columns, shape (rows, N),
        with all other rows empty.
        """
        least = (
            np.asarray(self.matrix.min(axis=1).todense()).ravel()
            if self.matrix.nnz
            else np.zeros(len(self.upper))
        )
        rows = (self.upper == 0) & (least >= 0)
        closed = sp.csr_matrix(sp.diags_array(rows.astype(np.float64)) @ self.matrix)
        closed.eliminate_zeros()
        return closed


@dataclass(frozen=True, repr=False, eq=False)
class LimitRows(Displayed):
    """The rows of a program that only limit sums of nothing negative: matrix @ x <= most.

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
        """Columns that need what there is nothing of."""
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


@dataclass(frozen=True, repr=False, eq=False)
class LevelFloors(Displayed):
    """Rows that ask for a level of one class each: factor (levels @ x)_k >= lower.

    Deadlines and a minimum of isolated throughput are such rows, where the levels are multiples of
    the throughput. A job that is to run on some of its columns all the time, as one that cannot be
    preempted, has a level too, if these columns give it the same; its other columns are closed.

    Attributes
    ----------
    floor : FloatArray, shape (K,)
        Least level of a job of each class; 0 without one.
    row : IntArray, shape (K,)
        The row that asks for it, counted over all ``side``; -1 without one.
    factor : FloatArray, shape (K,)
        Its factor.
    closed : BoolArray, shape (N,)
        Columns of jobs that are on others all the time.
    side : tuple of SideRows
    """

    floor: FloatArray
    row: IntArray
    factor: FloatArray
    closed: BoolArray
    side: tuple[SideRows, ...]

    def _headline(self) -> str:
        floors = count(int((self.row >= 0).sum()), "floor")
        return f"{floors} of {count(len(self.row), 'class', 'classes')}"

    @classmethod
    def of(
        cls, classes: Classes, levels: sp.csr_matrix, side: tuple[SideRows, ...]
    ) -> LevelFloors | None:
        """The floors that rows mean, of jobs alone; None where some mean something else."""
        number = len(classes)
        floor, factor = np.zeros(number), np.ones(number)
        row, before = np.full(number, -1, np.int64), 0
        closed = np.zeros(classes.columns, bool)
        rate = np.zeros(classes.columns)
        # Of jobs alone a column is one entry of the levels, that of its class.
        rate[levels.indices] = levels.data
        for rows in side:
            asked = _AskedLevels.of(classes, rate, rows)
            if asked is None:
                return None
            closed |= asked.closed
            # Several rows may ask for levels of one class: the highest is written last.
            order = np.argsort(asked.level, kind="stable")
            order = order[asked.level[order] > floor[asked.of_class[order]]]
            k = asked.of_class[order]
            floor[k], factor[k], row[k] = asked.level[order], asked.factor[order], before + order
            before += len(rows.lower)
        return cls(floor, row, factor, closed, side)


@dataclass(frozen=True, repr=False, eq=False)
class ClassFloors(Displayed):
    """Rows that each ask for something of one class: sum_c part_c x_c >= 1 over its columns.

    What is asked for is any measure: time on some columns, a share of a resource, a level. Of several
    rows of a class one must imply the others.

    Attributes
    ----------
    part : FloatArray, shape (N,)
        What one unit of each column gives of what is asked for; 0 where nothing is.
    row : IntArray, shape (K,)
        The row that asks, counted over all ``side``; -1 without one.
    lower : FloatArray, shape (K,)
        Its lower side, without its slack; 1 without one.
    side : tuple of SideRows
    """

    part: FloatArray
    row: IntArray
    lower: FloatArray
    side: tuple[SideRows, ...]

    def _headline(self) -> str:
        floors = count(int((self.row >= 0).sum()), "floor")
        return f"{floors} of {count(len(self.row), 'class', 'classes')}"

    @classmethod
    def of(cls, classes: Classes, side: tuple[SideRows, ...]) -> ClassFloors | None:
        """The floors that rows mean, of jobs alone; None where some mean something else."""
        number, columns = len(classes), classes.columns
        part, row, lower = np.zeros(columns), np.full(number, -1, np.int64), np.ones(number)
        if not all(np.isposinf(rows.upper).all() and rows.relax == "none" for rows in side):
            return None
        meant = [rows.lower if rows.slack is None else rows.lower + rows.slack for rows in side]
        side_lower = np.concatenate([np.zeros(0), *meant])
        asking = np.flatnonzero(side_lower > 0)
        if not len(asking):
            return cls(part, row, lower, side)
        matrix = sp.csr_matrix(sp.vstack([rows.matrix for rows in side], format="csr")[asking])
        matrix.eliminate_zeros()
        length, first = np.diff(matrix.indptr), matrix.indptr[:-1]
        if not (length > 0).all() or (matrix.data < 0).any():
            return None
        owner = classes.class_a[matrix.indices]
        of_class = owner[first]
        if (owner != np.repeat(of_class, length)).any():
            return None
        given = matrix.data / np.repeat(side_lower[asking], length)
        # Of all rows of a class, the least that each column gives: what implies all of them.
        least = np.full(columns, np.inf)
        np.minimum.at(least, matrix.indices, given)
        in_rows = np.bincount(matrix.indices, minlength=columns)
        asked = np.bincount(of_class, minlength=number)[classes.class_a]
        # A column that is missing from a row of its class gives nothing of that one.
        part = np.where((asked > 0) & (in_rows == asked), least, 0.0)
        total = np.add.reduceat(given, first)
        # Of several rows of a class the one whose columns give least is written last, and stays.
        hardest = np.argsort(-total, kind="stable")
        row[of_class[hardest]], chosen = asking[hardest], np.zeros(number)
        chosen[of_class[hardest]] = total[hardest]
        # It must give every column the least of all rows, or else it does not imply the others.
        if (chosen > np.bincount(classes.class_a, part, number) * (1.0 + SAME)).any():
            return None
        lower[row >= 0] = side_lower[row[row >= 0]]
        return cls(part, row, lower, side)


class _AskedLevels(NamedTuple):
    """What each row of a block asks for.

    Attributes
    ----------
    of_class : IntArray, shape (rows,)
    level, factor : FloatArray, shape (rows,)
    closed : BoolArray, shape (N,)
        Columns that no job may use that is on others all the time.
    """

    of_class: IntArray
    level: FloatArray
    factor: FloatArray
    closed: BoolArray

    @classmethod
    def of(cls, classes: Classes, rate: FloatArray, rows: SideRows) -> _AskedLevels | None:
        """Where each row is a multiple of the level of one class; ``rate`` is that of each column.

        It is one if it has all columns of the class that have a level, each with the same ratio to
        it. If it asks for all the time of the jobs, the columns that it does not have are closed.
        """
        matrix = sp.csr_matrix(rows.matrix)
        matrix.eliminate_zeros()
        length, first = np.diff(matrix.indptr), matrix.indptr[:-1]
        only_lower = np.isposinf(rows.upper).all() and rows.relax == "none"
        if not only_lower or not (length > 0).all() or not (rate[matrix.indices] > 0).all():
            return None
        owner = classes.class_a[matrix.indices]
        of_class = owner[first]
        of_one = np.minimum.reduceat(owner, first) == np.maximum.reduceat(owner, first)
        ratio = matrix.data / rate[matrix.indices]
        least, factor = np.minimum.reduceat(ratio, first), np.maximum.reduceat(ratio, first)
        proportional = (least > 0) & (factor - least <= SAME * factor)
        has_all = length == np.bincount(classes.class_a[rate > 0], minlength=len(classes))[of_class]
        counts_jobs = np.minimum.reduceat(matrix.data, first) == 1.0
        counts_jobs &= np.maximum.reduceat(matrix.data, first) == 1.0
        all_the_time = counts_jobs & (rows.lower == classes.count[of_class])
        if not (of_one & proportional & (has_all | all_the_time)).all():
            return None
        elsewhere = np.isin(classes.class_a, of_class[all_the_time])
        elsewhere[matrix[all_the_time].indices] = False
        level = rows.lower / (factor * classes.count[of_class])
        return cls(of_class, level, factor, elsewhere)
