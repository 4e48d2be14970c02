"""What a certificate needs of a linear program: products with its matrix, not the matrix itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Protocol

import numpy as np
import scipy.sparse as sp

from optsched.arrays import BoolArray, FloatArray, blocks, constant, is_range, without_repeats
from optsched.arrays.matrices import largest_of_rows
from optsched.arrays.values import cached_property
from optsched.program.arrays import Block, row_sizes
from optsched.program.chunks import (
    Both,
    ColumnBounds,
    ColumnChunk,
    ColumnSlices,
    PairedSlices,
    RowChunk,
    row_chunks_of,
    unit_changes,
)
from optsched.program.feasible_region import FeasibleRegion

if TYPE_CHECKING:  # a solver in another process loads no candidates
    from optsched.candidates import Classes


@dataclass(frozen=True)
class TransposeProduct:
    """A.T @ y of an allocation program, computed for slices of the columns.

    Attributes
    ----------
    classes : Classes
    time : FloatArray, shape (K,)
        Multipliers of the time rows.
    paid : FloatArray
        What a unit of each way to run pays for capacity; of each column unless ``by_way``.
    levels : csr_matrix or None
        Where its columns are in the order of the classes. None: its product is part of ``paid``, or
        there are no levels.
    slope : FloatArray, shape (K,)
        Multipliers of the levels.
    behind : FloatArray
        Of the columns that follow x.
    """

    classes: Classes
    time: FloatArray
    paid: FloatArray
    by_way: bool
    levels: sp.csr_matrix | None
    slope: FloatArray
    behind: FloatArray

    @classmethod
    def at(
        cls,
        classes: Classes,
        time: FloatArray,
        prices: FloatArray,
        levels: sp.csr_matrix | None,
        slope: FloatArray,
        behind: FloatArray,
    ) -> TransposeProduct:
        """At these multipliers of the blocks."""
        in_order = levels is not None and is_range(levels.indices, classes.columns)
        paid = classes.holds.paid_by_way(prices) if levels is None or in_order else None
        if paid is not None:
            return cls(classes, time, paid, True, levels, slope, behind)
        each = np.asarray(classes.usage.T @ prices)
        if levels is not None and not in_order:
            each += levels.T @ slope
            levels = None
        return cls(classes, time, each, False, levels, slope, behind)

    def __getitem__(self, chunk: slice) -> FloatArray:
        held, reached, behind = self.parts_of(chunk)
        total = held if reached is None else held + reached
        return total if behind is None else np.concatenate([total, behind])

    def parts_of(self, chunk: slice) -> tuple[FloatArray, FloatArray | None, FloatArray | None]:
        """The products of time and capacity with a slice of x, of the levels with it, and those of
        the columns that follow x.
        """
        C = self.classes
        start, stop, _ = chunk.indices(C.columns + len(self.behind))
        of_x = slice(start, min(stop, C.columns))
        owner = C.class_a[of_x]
        held = self.time[owner]
        held += self.paid[C.holds.way[of_x]] if self.by_way else self.paid[of_x]
        reached = None if self.levels is None else self.levels.data[of_x] * self.slope[owner]
        if stop <= C.columns:
            return held, reached, None
        return held, reached, self.behind[max(start - C.columns, 0) : stop - C.columns]


@dataclass(frozen=True)
class OneSignProduct:
    """`TransposeProduct` and the size of its terms, where the sign of each block is known.

    Attributes
    ----------
    product : TransposeProduct
        With multipliers of time and capacity of at least 0, multipliers of levels of at most 0, and
        with ``levels``.
    """

    product: TransposeProduct

    def __getitem__(self, chunk: slice) -> tuple[FloatArray, FloatArray]:
        held, reached, behind = self.product.parts_of(chunk)
        assert reached is not None
        if behind is None:
            return held + reached, held - reached
        return np.concatenate([held + reached, behind]), np.concatenate(
            [held - reached, np.abs(behind)]
        )


class LinearForm(ColumnBounds, Protocol):
    """optimise c'x + offset  s.t.  row_lower <= A x <= row_upper,  lower <= x <= upper,  some x_j integer.

    `LinearArrays` is one that holds A; `AllocationForm` computes the products from its blocks.
    """

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns."""

    @property
    def row_lower(self) -> FloatArray:
        """Shape (M,), -inf where absent."""

    @property
    def row_upper(self) -> FloatArray:
        """Shape (M,), inf where absent."""

    @property
    def integer(self) -> BoolArray:
        """Whether each column is integer, shape (N,)."""

    @property
    def is_integer(self) -> bool:
        """Whether any column must be integer."""

    def column_chunks(self) -> Iterable[ColumnChunk]:
        """All columns in order, block by block,
        so that constant arrays are never written out in full.
        """

    def row_chunks(self) -> Iterator[RowChunk]:
        """All rows, in the same way."""

    @property
    def maximise(self) -> bool:
        """Whether the objective is maximised."""

    @property
    def offset(self) -> float:
        """The constant term of the objective."""

    @property
    def rows(self) -> tuple[Block, ...]:
        """Blocks of rows, in the order of the duals."""

    def transpose_times(self, y: FloatArray) -> ColumnSlices:
        """Return A.T @ y, shape (columns,)."""

    def activity_and_terms(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """A @ x, and the size of the terms that it adds up: abs(A) @ abs(x)."""

    def transpose_terms(self, y: FloatArray) -> ColumnSlices:
        """Return abs(A).T @ y, shape (columns,): the size of the terms that A.T @ y adds up."""

    def transpose_times_and_terms(self, y: FloatArray) -> PairedSlices:
        """A.T @ y, and the size of the terms that it adds up: abs(A).T @ abs(y)."""

    @property
    def sizes(self) -> FloatArray:
        """Size of each row: its largest finite side,
        or what one unit (or the whole range) of its columns does.
        """

    def objective(self, x: FloatArray) -> float:
        """Value of the objective at x, c'x + offset."""

    def row_name(self, row: int) -> tuple[str, int]:
        """(block, position in the block) of a row."""


@dataclass(frozen=True)
class AllocationForm:
    """The linear program, or tangent, of an allocation program without side rows, without its
    matrix.

    It has the columns and rows of `AllocationProgram.to_linear` or `Total.tangent`. For a million
    jobs it takes longer to write the matrix down than to solve the program by prices.

    Columns are x, then levels: one t for all classes (a smallest level), one l_k for each class
    (the tangent of a concave total), or none (a linear total). Rows are time, capacity, and with
    levels ``levels @ x >= n t`` or ``levels @ x >= n l``.

    Parameters
    ----------
    region : FeasibleRegion
        Without side rows and extra rows.
    level_price : FloatArray, shape (levels,)
        What a unit of each level is worth.
    weight : FloatArray or None, shape (K,)
        What a unit of ``levels @ x`` is worth, for a linear total.
    offset : float
        Constant of the objective.
    """

    region: FeasibleRegion
    level_price: FloatArray
    weight: FloatArray | None = None
    offset: float = 0.0

    is_integer = False
    maximise = True

    @classmethod
    def smallest_level(cls, region: FeasibleRegion) -> AllocationForm:
        """The program that maximises t, the smallest level."""
        return cls(region, np.ones(1))

    # --- columns ----------------------------------------------------------------------------------

    @property
    def _has_levels(self) -> bool:
        return len(self.level_price) > 0

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns."""
        return self.rows[-1].stop, self.region.classes.columns + len(self.level_price)

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
        """What the rows leave of each column, and the highest levels."""
        return np.concatenate([self.region.limit, self._highest])

    @cached_property
    def _highest(self) -> FloatArray:
        """The most that each level can be."""
        limit = self.region.level_limit
        if len(self.level_price) != 1:  # one level for each class, or none
            return limit[: len(self.level_price)]
        return limit.min(keepdims=True) if len(limit) else np.zeros(1)

    @cached_property
    def cost(self) -> FloatArray:
        return np.concatenate([self._column_cost, self.level_price])

    @cached_property
    def _column_cost(self) -> FloatArray:
        """What one unit of each column x adds to the objective."""
        if self.weight is None:
            return constant(0.0, self.region.classes.columns, np.float64)
        return self.region.levels.T @ self.weight

    @cached_property
    def integer(self) -> BoolArray:
        return constant(False, self.shape[1], np.bool_)

    def column_chunks(self) -> Iterator[ColumnChunk]:
        """All columns, block by block."""
        yield from self._chunks_of_x()
        yield from self._chunks_of_levels()

    def _chunks_of_x(self) -> Iterator[ColumnChunk]:
        return _from_zero(0, self.region.limit, self._column_cost)

    def _chunks_of_levels(self) -> Iterator[ColumnChunk]:
        if self._has_levels:
            yield from _from_zero(self.region.classes.columns, self._highest, self.level_price)

    # --- rows -------------------------------------------------------------------------------------

    @cached_property
    def rows(self) -> tuple[Block, ...]:
        classes, goods = len(self.region.classes), len(self.region.classes.capacity)
        sizes = {"time": classes, "capacity": goods}
        if self._has_levels:
            sizes["levels"] = classes
        ends = (0, *accumulate(sizes.values()))
        return tuple(Block(name, *at) for name, at in zip(sizes, pairwise(ends), strict=True))

    @property
    def row_lower(self) -> FloatArray:
        return np.concatenate([lower for lower, _ in self._sides()])

    @property
    def row_upper(self) -> FloatArray:
        return np.concatenate([upper for _, upper in self._sides()])

    def _sides(self) -> Iterator[tuple[FloatArray, FloatArray]]:
        """Sides of each block: the time of the members, the capacities, and 0 for levels."""
        C = self.region.classes
        for upper in (C.count.astype(np.float64, copy=False), C.capacity):
            yield constant(-np.inf, len(upper), np.float64), upper
        if self._has_levels:
            yield constant(0.0, len(C), np.float64), constant(np.inf, len(C), np.float64)

    def row_chunks(self) -> Iterator[RowChunk]:
        """All rows, block by block."""
        for block, sides in zip(self.rows, self._sides(), strict=True):
            yield from row_chunks_of(*sides, block.start)

    def row_name(self, row: int) -> tuple[str, int]:
        """(block, position in the block) of a row."""
        block = next(block for block in self.rows if block.start <= row < block.stop)
        return block.name, row - block.start

    # --- products with the matrix -----------------------------------------------------------------

    def activity_and_terms(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """A @ x, and the size of the terms that it adds up: abs(A) @ abs(x)."""
        activity = self._products(x, -1.0)
        if not all((x[part] >= 0).all() for part in blocks(len(x))):
            return activity, self._products(np.abs(x), 1.0)
        terms = activity.copy()
        if self._has_levels:  # the levels are all that is subtracted
            C = self.region.classes
            subtracted = C.count * x[C.columns :]
            subtracted *= 2.0
            terms[self.rows[2].slice] += subtracted
        return activity, terms

    def _products(self, x: FloatArray, sign: float) -> FloatArray:
        """A @ x, with this sign of the levels in their rows."""
        C, product = self.region.classes, np.empty(self.shape[0])
        totals, levels = x[: C.columns], x[C.columns :]
        product[self.rows[0].slice] = C.time(totals)
        product[self.rows[1].slice] = C.holds.total(totals)
        if self._has_levels:
            product[self.rows[2].slice] = self.region.levels @ totals
            # Step by step: of many classes, each further array is the peak of memory.
            counted = C.count * levels
            counted *= sign
            product[self.rows[2].slice] += counted
        return product

    def transpose_times(self, y: FloatArray) -> ColumnSlices:
        """Return A.T @ y, shape (columns,)."""
        return self._transpose_product(y, -1.0)

    def transpose_terms(self, y: FloatArray) -> ColumnSlices:
        """Return abs(A).T @ y, shape (columns,): the size of the terms that A.T @ y adds up."""
        return self._transpose_product(y, 1.0)

    def transpose_times_and_terms(self, y: FloatArray) -> PairedSlices:
        """A.T @ y, and the size of the terms that it adds up: abs(A).T @ abs(y)."""
        product = self._transpose_product(y, -1.0)
        # Duals mostly have one sign in each block: the terms are then a difference of the same
        # products, which need not be made twice.
        at_least_zero = y[: self.rows[1].stop].min(initial=0.0) >= 0.0
        if product.levels is not None and product.slope.max(initial=0.0) <= 0.0 and at_least_zero:
            return OneSignProduct(product)
        return Both(product, self._transpose_product(np.abs(y), 1.0))

    def _transpose_product(self, y: FloatArray, sign: float) -> TransposeProduct:
        """A.T @ y, with this sign of the levels in their rows."""
        C, (time, prices, *slopes) = self.region.classes, (y[rows.slice] for rows in self.rows)
        if not slopes:
            return TransposeProduct.at(C, time, prices, None, np.zeros(0), np.zeros(0))
        by_class = C.count * slopes[0]
        behind = by_class.sum(keepdims=True) if len(self.level_price) == 1 else by_class
        return TransposeProduct.at(C, time, prices, self.region.levels, slopes[0], sign * behind)

    # --- sizes ------------------------------------------------------------------------------------

    @cached_property
    def sizes(self) -> FloatArray:
        """Size of each row: its largest finite side,
        or what one unit (or the whole range) of its columns does.
        """
        of_x = unit_changes(self._chunks_of_x(), self.region.classes.columns)
        of_levels = [np.minimum(1.0, chunk.reach) for chunk in self._chunks_of_levels()]
        largest = self._largest(of_x, np.concatenate([np.zeros(0), *of_levels]))
        return row_sizes(self.row_chunks(), largest)

    def largest_in_rows(self, factor: FloatArray) -> FloatArray:
        """Largest entry of each row,
        of abs(A) with each column multiplied by a factor of at least 0.
        """
        columns = self.region.classes.columns
        return self._largest(factor[:columns], factor[columns:])

    def _largest(self, factor: FloatArray, of_levels: FloatArray) -> FloatArray:
        """`largest_in_rows` with the factors of x and of the levels."""
        largest, C = np.zeros(self.shape[0]), self.region.classes
        once = without_repeats(factor)
        plain = all((once[chunk] == 1.0).all() for chunk in blocks(len(once)))
        # The largest entry of a time row is 1, where the class has a column.
        if plain:
            largest[self.rows[0].slice] = np.diff(C.throughput.indptr) > 0
        else:
            np.maximum.at(largest[self.rows[0].slice], C.class_a, factor)
        largest[self.rows[1].slice] = C.holds.largest(None if plain else factor)
        if not self._has_levels:
            return largest
        levels = self.region.levels
        # Of jobs alone the largest entry is the highest level, which is known already.
        of_x = (
            self.region.highest_level
            if plain
            else largest_of_rows(levels.indptr, levels.data * factor[levels.indices])
        )
        largest[self.rows[2].slice] = np.maximum(of_x, C.count * of_levels)
        return largest

    def objective(self, x: FloatArray) -> float:
        """Value of the objective at x, c'x + offset."""
        priced = (chunk for chunk in self.column_chunks() if not chunk.free)
        return sum((float(chunk.cost @ x[chunk.at]) for chunk in priced), self.offset)


def _from_zero(start: int, most: FloatArray, cost: FloatArray) -> Iterator[ColumnChunk]:
    """Columns x >= 0 from a first one on, with implied upper bounds."""
    for chunk in blocks(len(most)):
        zero, endless = (
            constant(bound, chunk.stop - chunk.start, np.float64) for bound in (0.0, np.inf)
        )
        at = slice(start + chunk.start, start + chunk.stop)
        yield ColumnChunk(at, zero, endless, zero, most[chunk], cost[chunk])
