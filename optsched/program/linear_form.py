"""What a certificate asks of a linear program: products with its matrix, not the matrix itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Protocol

import numpy as np
import scipy.sparse as sp

from optsched.arrays import BoolArray, FloatArray, blocks, constant, shown
from optsched.arrays.matrices import largest_of_rows
from optsched.program.arrays import Block, row_sizes
from optsched.program.feasible_region import FeasibleRegion
from optsched.program.parts import ColumnBounds, ColumnPart, RowPart, rows_of, units
from optsched.program.pulled import Pulled, PulledOneWay
from optsched.program.slices import Both, ColumnSlices, PairedSlices


class LinearForm(ColumnBounds, Protocol):
    """optimise c'x + offset  s.t.  row_lower <= A x <= row_upper,  lower <= x <= upper,  some x_j integer.

    `LinearArrays` is one that holds A; `SmallestLevelForm` and those of `optsched.program.total_form` have its blocks.
    """

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns)."""

    @property
    def row_lower(self) -> FloatArray:
        """Shape (M,), -inf where absent."""

    @property
    def row_upper(self) -> FloatArray:
        """Shape (M,), inf where absent."""

    @property
    def integer(self) -> BoolArray:
        """Shape (N,)."""

    @property
    def is_integer(self) -> bool:
        """Whether any column must be integer."""

    def column_parts(self) -> Iterator[ColumnPart]:
        """All columns, some by some and in order: what is the same for many is not written down for all at once."""

    def row_parts(self) -> Iterator[RowPart]:
        """All rows, in the same way."""

    @property
    def maximise(self) -> bool:
        """The sense."""

    @property
    def offset(self) -> float:
        """Of the objective."""

    @property
    def rows(self) -> tuple[Block, ...]:
        """Blocks of rows."""

    def activity(self, x: FloatArray) -> FloatArray:
        """A x."""

    def pulled(self, y: FloatArray) -> ColumnSlices:
        """A' y."""

    def activity_and_terms(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """A x, and |A| |x|."""

    def column_terms(self, y: FloatArray) -> ColumnSlices:
        """|A|' y."""

    def pulled_and_terms(self, y: FloatArray) -> PairedSlices:
        """A' y, and |A|' |y|."""

    @property
    def sizes(self) -> FloatArray:
        """Size of each row: its largest finite side, or what one unit (or the whole range) of its columns does."""

    def objective(self, x: FloatArray) -> float:
        """c'x + offset."""

    def row_name(self, row: int) -> tuple[str, int]:
        """(block, position in the block) of a row."""


@dataclass(frozen=True)
class SmallestLevelForm:
    """The linear program of an allocation program with the smallest level for utility, without its matrix.

    The same columns (x, t) and rows (time, capacity, levels) as `AllocationProgram.to_linear` makes: of a million jobs
    the matrix takes longer to write down than prices take to solve it.

    Parameters
    ----------
    region : FeasibleRegion
        Without side rows and rows of one's own.
    """

    region: FeasibleRegion

    @property
    def _levels(self) -> sp.csr_matrix | None:
        """The rows behind time and capacity, which are the usage of the classes; with nothing negative, as these."""
        return self.region.levels

    @cached_property
    def _highest(self) -> float:
        """The most that t can be."""
        return (
            float(self.region.highest_level.min(initial=np.inf))
            if len(self.region.classes)
            else 0.0
        )

    @cached_property
    def rows(self) -> tuple[Block, ...]:
        """Time, capacity, levels."""
        C = self.region.classes
        classes, goods = len(C), len(C.capacity)
        ends = (0, classes, classes + goods, 2 * classes + goods)
        names = ("time", "capacity", "levels")
        return tuple(Block(name, *at) for name, at in zip(names, pairwise(ends), strict=True))

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns)."""
        return self.rows[-1].stop, self.region.classes.columns + 1

    @cached_property
    def row_lower(self) -> FloatArray:
        """0 of the levels."""
        lower = np.full(self.shape[0], -np.inf)
        lower[self.rows[-1].slice] = 0.0
        return lower

    @cached_property
    def row_upper(self) -> FloatArray:
        """The time of the members, and the capacities."""
        C = self.region.classes
        return np.concatenate([C.count, C.capacity, np.full(len(C), np.inf)])

    @cached_property
    def lower(self) -> FloatArray:
        return constant(0.0, self.shape[1], np.float64)

    @property
    def implied_lower(self) -> FloatArray:
        return self.lower

    @cached_property
    def upper(self) -> FloatArray:
        return constant(np.inf, self.shape[1], np.float64)

    @cached_property
    def implied_upper(self) -> FloatArray:
        """What the time rows leave of each column, and the highest level."""
        return np.append(self.region.classes.limit, self._highest)

    @cached_property
    def cost(self) -> FloatArray:
        """1 of the level."""
        cost = np.zeros(self.shape[1])
        cost[-1] = 1.0
        return cost

    @cached_property
    def integer(self) -> BoolArray:
        return constant(False, self.shape[1], np.bool_)

    def column_parts(self) -> Iterator[ColumnPart]:
        """All columns, some by some."""
        yield from self._alike(slice(0, self.region.classes.columns), self.region.limit)
        yield from self._behind()

    def _behind(self) -> Iterator[ColumnPart]:
        """The columns behind x: t, which is what is maximised."""
        columns = self.region.classes.columns
        highest, one = np.array([self._highest]), constant(1.0, 1, np.float64)
        yield from self._alike(slice(columns, columns + 1), highest, one)

    def _alike(
        self, at: slice, most: FloatArray, cost: FloatArray | None = None
    ) -> Iterator[ColumnPart]:
        """Columns from 0 on with implied upper bounds, which cost nothing if that is not said."""
        for part in blocks(at.stop - at.start):
            zero, endless = (
                constant(value, part.stop - part.start, np.float64) for value in (0.0, np.inf)
            )
            here = slice(at.start + part.start, at.start + part.stop)
            yield ColumnPart(
                here, zero, endless, zero, most[part], zero if cost is None else cost[part]
            )

    def row_parts(self) -> Iterator[RowPart]:
        """All rows, some by some: time, capacity, levels."""
        C = self.region.classes
        for rows, upper in zip(self.rows, (C.count, C.capacity), strict=False):
            yield from rows_of(constant(-np.inf, len(upper), np.float64), upper, rows.start)
        zero, endless = (constant(value, len(C), np.float64) for value in (0.0, np.inf))
        yield from rows_of(zero, endless, self.rows[-1].start)

    is_integer = False
    maximise = True

    @property
    def offset(self) -> float:
        return 0.0

    def activity(self, x: FloatArray) -> FloatArray:
        """A x."""
        return self._products(x, -1.0)

    def activity_and_terms(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """A x, and |A| |x|."""
        activity = self._products(x, -1.0)
        if not all((x[part] >= 0).all() for part in blocks(len(x))):
            return activity, self._products(np.abs(x), 1.0)
        terms = activity.copy()
        if self._levels is not None:  # where the columns behind x are all that is subtracted
            terms[self.rows[2].slice] += 2.0 * (
                self.region.classes.count * x[self.region.classes.columns :]
            )
        return activity, terms

    def _products(self, x: FloatArray, sign: float) -> FloatArray:
        """A x, with the columns behind x of this sign in the levels."""
        C, product = self.region.classes, np.empty(self.shape[0])
        mine, behind = x[: C.columns], x[C.columns :]
        product[self.rows[0].slice] = C.time(mine)
        product[self.rows[1].slice] = C.holds.total(mine)
        if self._levels is not None:
            product[self.rows[2].slice] = self._levels @ mine
            product[self.rows[2].slice] += C.count * (sign * behind)
        return product

    def pulled(self, y: FloatArray) -> ColumnSlices:
        """A' y."""
        return self._pulled(y, -1.0)

    def column_terms(self, y: FloatArray) -> ColumnSlices:
        """|A|' y."""
        return self._pulled(y, 1.0)

    def pulled_and_terms(self, y: FloatArray) -> PairedSlices:
        """A' y, and |A|' |y|."""
        pulled = self._pulled(y, -1.0)
        if pulled.levels is not None and pulled.slope.max(initial=0.0) <= 0.0 <= y[
            : self.rows[1].stop
        ].min(initial=0.0):
            return PulledOneWay(pulled)
        return Both(pulled, self._pulled(np.abs(y), 1.0))

    def _pulled(self, y: FloatArray, sign: float) -> Pulled:
        """A' y, with the columns behind x of this sign in the levels."""
        C, (time, prices) = self.region.classes, (y[rows.slice] for rows in self.rows[:2])
        slope = y[self.rows[-1].slice]
        return Pulled.at(
            C, time, prices, self._levels, slope, sign * self._gathered(C.count * slope)
        )

    @cached_property
    def sizes(self) -> FloatArray:
        """Size of each row: its largest finite side, or what one unit (or the whole range) of its columns does."""
        columns = self.region.classes.columns
        largest = self._largest(units(self._alike(slice(0, columns), self.region.limit), columns))
        behind = [np.minimum(1.0, part.reach) for part in self._behind()]
        if behind:
            self._with_behind(largest, np.concatenate(behind))
        return row_sizes(self.row_parts(), largest)

    def _gathered(self, by_class: FloatArray) -> FloatArray:
        """Numbers of the classes as numbers of the columns behind x."""
        return np.array([float(by_class.sum())])

    def largest_in_rows(self, factor: FloatArray) -> FloatArray:
        """Largest entry of each row, of |A| with each column multiplied by a factor of at least 0."""
        columns = self.region.classes.columns
        largest = self._largest(factor[:columns])
        self._with_behind(largest, factor[columns:])
        return largest

    def _with_behind(self, largest: FloatArray, factor: FloatArray) -> None:
        """Count the columns behind x, too."""
        levels = self.rows[-1].slice
        largest[levels] = np.maximum(largest[levels], self.region.classes.count * factor)

    def _largest(self, factor: FloatArray) -> FloatArray:
        """The same of the columns x alone."""
        largest, C = np.zeros(self.shape[0]), self.region.classes
        whole = all((shown(factor)[part] == 1.0).all() for part in blocks(len(shown(factor))))
        if whole:
            largest[self.rows[0].slice] = np.diff(C.throughput.indptr) > 0
        else:
            np.maximum.at(largest[self.rows[0].slice], C.class_a, factor)
        largest[self.rows[1].slice] = C.holds.largest(None if whole else factor)
        levels = self._levels
        if levels is not None and whole:
            largest[self.rows[2].slice] = self.region.highest_level
        elif levels is not None:
            largest[self.rows[2].slice] = largest_of_rows(
                levels.indptr, levels.data * factor[levels.indices]
            )
        return largest

    def objective(self, x: FloatArray) -> float:
        """c'x + offset."""
        priced = (part for part in self.column_parts() if not part.free)
        return sum((float(part.cost @ x[part.at]) for part in priced), self.offset)

    def row_name(self, row: int) -> tuple[str, int]:
        """(block, position in the block) of a row."""
        block = next(block for block in self.rows if block.start <= row < block.stop)
        return block.name, row - block.start
