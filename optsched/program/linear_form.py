"""What a certificate asks of a linear program: products with its matrix, not the matrix itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

import numpy as np
import scipy.sparse as sp

from optsched.arrays import BoolArray, FloatArray, blocks, constant, is_range, without_repeats
from optsched.arrays.matrices import largest_of_rows
from optsched.program.arrays import Block, row_sizes
from optsched.program.feasible_region import FeasibleRegion
from optsched.program.parts import (
    Both,
    ColumnBounds,
    ColumnPart,
    ColumnSlices,
    PairedSlices,
    RowPart,
    parts_of,
    rows_of,
    unit_changes,
)

if TYPE_CHECKING:  # a solver in another process loads no candidates
    from optsched.candidates import Classes


@dataclass(frozen=True)
class TransposeProduct:
    """What the rows of an allocation program take of each column at multipliers y,
    with nothing negative in the blocks.

    Attributes
    ----------
    classes : Classes
    time : FloatArray, shape (K,)
        Multipliers of the time rows.
    paid : FloatArray
        What a unit of each way pays for capacity, or of each column where there is no ``way``.
    levels : csr_matrix or None
        Where its columns stand class by class; else what it takes is in ``paid``, or there is none.
    slope : FloatArray, shape (K,)
        Multipliers of the levels.
    behind : FloatArray
        Of the columns behind those of the classes.
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
        cls, classes: Classes, time: FloatArray, prices: FloatArray, levels: sp.csr_matrix | None, slope: FloatArray,
        behind: FloatArray,
    ) -> TransposeProduct:  # fmt: skip
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

    def __getitem__(self, part: slice) -> FloatArray:
        held, reached, behind = self.parts_of(part)
        total = held if reached is None else held + reached
        return total if behind is None else np.concatenate([total, behind])

    def parts_of(self, part: slice) -> tuple[FloatArray, FloatArray | None, FloatArray | None]:
        """What time and capacity take of some columns of the classes, what levels do,
        and of columns behind these.
        """
        C = self.classes
        start, stop, _ = part.indices(C.columns + len(self.behind))
        mine = slice(start, min(stop, C.columns))
        owner = C.class_a[mine]
        held = self.time[owner]
        held += self.paid[C.holds.way[mine]] if self.by_way else self.paid[mine]
        reached = None if self.levels is None else self.levels.data[mine] * self.slope[owner]
        if stop <= C.columns:
            return held, reached, None
        return held, reached, self.behind[max(start - C.columns, 0) : stop - C.columns]


@dataclass(frozen=True)
class OneSignProduct:
    """`TransposeProduct` and its terms without signs, as duals give them:
    time and capacity take, levels give.

    Attributes
    ----------
    product : TransposeProduct
        With multipliers of time and capacity of at least 0, multipliers of levels of at most 0, and
        with ``levels``.
    """

    product: TransposeProduct

    def __getitem__(self, part: slice) -> tuple[FloatArray, FloatArray]:
        held, reached, behind = self.product.parts_of(part)
        assert reached is not None
        if behind is None:
            return held + reached, held - reached
        return np.concatenate([held + reached, behind]), np.concatenate(
            [held - reached, np.abs(behind)]
        )


class LinearForm(ColumnBounds, Protocol):
    """optimise c'x + offset  s.t.  row_lower <= A x <= row_upper,  lower <= x <= upper,  some x_j integer.

    `LinearArrays` is one that holds A; `SmallestLevelForm` and those of
    `optsched.program.linear_form` have its blocks.
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

    def column_parts(self) -> Iterable[ColumnPart]:
        """All columns in order, block by block,
        so that constant arrays are never written out in full.
        """

    def row_parts(self) -> Iterator[RowPart]:
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
class SmallestLevelForm:
    """The linear program of an allocation program with the smallest level
    for utility, without its matrix.

    The same columns (x, t) and rows (time, capacity, levels) as `AllocationProgram.to_linear`
    makes: of a million jobs the matrix takes longer to write down than prices take to solve it.

    Parameters
    ----------
    region : FeasibleRegion
        Without side rows and extra rows.
    """

    region: FeasibleRegion

    @property
    def _levels(self) -> sp.csr_matrix | None:
        """The rows behind time and capacity, which are the usage of the classes;
        with nothing negative, as these.
        """
        return self.region.levels

    @cached_property
    def _highest(self) -> float:
        """The most that t can be."""
        return float(self.region.level_limit.min()) if len(self.region.classes) else 0.0

    @cached_property
    def rows(self) -> tuple[Block, ...]:
        C = self.region.classes
        classes, goods = len(C), len(C.capacity)
        ends = (0, classes, classes + goods, 2 * classes + goods)
        names = ("time", "capacity", "levels")
        return tuple(Block(name, *at) for name, at in zip(names, pairwise(ends), strict=True))

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns."""
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
        """What the rows leave of each column, and the highest level."""
        return np.append(self.region.limit, self._highest)

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
        """All columns, block by block."""
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
        """All rows, block by block: time, capacity, levels."""
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

    def activity_and_terms(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """A @ x, and the size of the terms that it adds up: abs(A) @ abs(x)."""
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

    def transpose_times(self, y: FloatArray) -> ColumnSlices:
        """Return A.T @ y, shape (columns,)."""
        return self._transpose_product(y, -1.0)

    def transpose_terms(self, y: FloatArray) -> ColumnSlices:
        """Return abs(A).T @ y, shape (columns,): the size of the terms that A.T @ y adds up."""
        return self._transpose_product(y, 1.0)

    def transpose_times_and_terms(self, y: FloatArray) -> PairedSlices:
        """A.T @ y, and the size of the terms that it adds up: abs(A).T @ abs(y)."""
        product = self._transpose_product(y, -1.0)
        # Neither of the two products has both signs: the terms are their difference.
        if product.levels is not None and product.slope.max(initial=0.0) <= 0.0 <= y[
            : self.rows[1].stop
        ].min(initial=0.0):
            return OneSignProduct(product)
        return Both(product, self._transpose_product(np.abs(y), 1.0))

    def _transpose_product(self, y: FloatArray, sign: float) -> TransposeProduct:
        """A' y, with the columns behind x of this sign in the levels."""
        C, (time, prices) = self.region.classes, (y[rows.slice] for rows in self.rows[:2])
        slope = y[self.rows[-1].slice]
        return TransposeProduct.at(
            C, time, prices, self._levels, slope, sign * self._gathered(C.count * slope)
        )

    @cached_property
    def sizes(self) -> FloatArray:
        """Size of each row: its largest finite side,
        or what one unit (or the whole range) of its columns does.
        """
        columns = self.region.classes.columns
        largest = self._largest(
            unit_changes(self._alike(slice(0, columns), self.region.limit), columns)
        )
        behind = [np.minimum(1.0, part.reach) for part in self._behind()]
        if behind:
            self._with_behind(largest, np.concatenate(behind))
        return row_sizes(self.row_parts(), largest)

    def _gathered(self, by_class: FloatArray) -> FloatArray:
        """Numbers of the classes as numbers of the columns behind x."""
        return np.array([float(by_class.sum())])

    def largest_in_rows(self, factor: FloatArray) -> FloatArray:
        """Largest entry of each row,
        of |A| with each column multiplied by a factor of at least 0.
        """
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
        whole = all(
            (without_repeats(factor)[part] == 1.0).all()
            for part in blocks(len(without_repeats(factor)))
        )
        # The largest entry of a time row is 1, where the class has a column.
        if whole:
            largest[self.rows[0].slice] = np.diff(C.throughput.indptr) > 0
        else:
            np.maximum.at(largest[self.rows[0].slice], C.class_a, factor)
        largest[self.rows[1].slice] = C.holds.largest(None if whole else factor)
        levels = self._levels
        # Of jobs alone the largest entry is the highest level, which is known already.
        if levels is not None and whole:
            largest[self.rows[2].slice] = self.region.highest_level
        elif levels is not None:
            largest[self.rows[2].slice] = largest_of_rows(
                levels.indptr, levels.data * factor[levels.indices]
            )
        return largest

    def objective(self, x: FloatArray) -> float:
        """Value of the objective at x, c'x + offset."""
        priced = (part for part in self.column_parts() if not part.free)
        return sum((float(part.cost @ x[part.at]) for part in priced), self.offset)

    def row_name(self, row: int) -> tuple[str, int]:
        """(block, position in the block) of a row."""
        block = next(block for block in self.rows if block.start <= row < block.stop)
        return block.name, row - block.start


@dataclass(frozen=True)
class TangentForm(SmallestLevelForm):
    """The linear program that `Total.tangent` makes: a level l_k of each class instead of one t.

        maximise  sum_k n_k w_k (f(v_k) + f'(v_k) (l_k - v_k))   s.t.  levels @ x >= n l,  time, capacity

    Parameters
    ----------
    region : FeasibleRegion
        Without side rows.
    price : FloatArray, shape (K,)
        n w f'(v): what a unit of each level is worth.
    constant : float
        sum_k n_k w_k (f(v_k) - f'(v_k) v_k).
    """

    price: FloatArray
    constant: float

    @property
    def offset(self) -> float:
        return self.constant

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns."""
        return self.rows[-1].stop, self.region.classes.columns + len(self.region.classes)

    @cached_property
    def implied_upper(self) -> FloatArray:
        """What the rows leave of each column, and the highest levels."""
        return np.concatenate([self.region.limit, self.region.level_limit])

    @cached_property
    def cost(self) -> FloatArray:
        """n w f'(v) of the levels."""
        return np.concatenate([np.zeros(self.region.classes.columns), self.price])

    def _behind(self) -> Iterator[ColumnPart]:
        at = slice(self.region.classes.columns, self.shape[1])
        yield from self._alike(at, self.region.level_limit, self.price)

    def _gathered(self, by_class: FloatArray) -> FloatArray:
        """Each class has its own level."""
        return by_class


@dataclass(frozen=True)
class LinearTotalForm(SmallestLevelForm):
    """The linear program of an allocation program with a linear total:
    its columns x, its rows time and capacity.

    Parameters
    ----------
    region : FeasibleRegion
        Without side rows.
    weight : FloatArray, shape (K,)
        What a unit of ``levels @ x`` is worth.
    """

    weight: FloatArray

    @property
    def _levels(self) -> None:
        return None

    @cached_property
    def rows(self) -> tuple[Block, ...]:
        classes, goods = len(self.region.classes), len(self.region.classes.capacity)
        return Block("time", 0, classes), Block("capacity", classes, classes + goods)

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns."""
        return self.rows[-1].stop, self.region.classes.columns

    @cached_property
    def row_lower(self) -> FloatArray:
        return np.full(self.shape[0], -np.inf)

    @cached_property
    def row_upper(self) -> FloatArray:
        """The time of the members, and the capacities."""
        return np.concatenate([self.region.classes.count, self.region.classes.capacity])

    @cached_property
    def implied_upper(self) -> FloatArray:
        """What the rows leave of each column."""
        return self.region.limit

    @cached_property
    def cost(self) -> FloatArray:
        """What one unit of each column adds to the total."""
        return self.region.levels.T @ self.weight

    def column_parts(self) -> Iterator[ColumnPart]:
        """All columns, block by block."""
        return parts_of(self)

    def _behind(self) -> Iterator[ColumnPart]:
        return iter(())

    def row_parts(self) -> Iterator[RowPart]:
        """All rows, block by block."""
        return rows_of(self.row_lower, self.row_upper)

    def _transpose_product(self, y: FloatArray, sign: float) -> TransposeProduct:
        time, prices = (y[rows.slice] for rows in self.rows)
        return TransposeProduct.at(
            self.region.classes, time, prices, None, np.zeros(0), np.zeros(0)
        )

    def largest_in_rows(self, factor: FloatArray) -> FloatArray:
        """Largest entry of each row,
        of |A| with each column multiplied by a factor of at least 0.
        """
        return self._largest(factor)
