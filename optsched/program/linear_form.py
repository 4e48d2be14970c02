"""What a certificate asks of a linear program: products with its matrix, not the matrix itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

import numpy as np
import scipy.sparse as sp

from optsched.arrays import BoolArray, FloatArray, constant
from optsched.program.arrays import Block, row_sizes

if TYPE_CHECKING:
    from optsched.program.allocation import AllocationProgram


class LinearForm(Protocol):
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
    def lower(self) -> FloatArray:
        """Shape (N,)."""

    @property
    def upper(self) -> FloatArray:
        """Shape (N,)."""

    @property
    def implied_lower(self) -> FloatArray:
        """Shape (N,), finite where the certificate needs it."""

    @property
    def implied_upper(self) -> FloatArray:
        """Shape (N,), the same."""

    @property
    def cost(self) -> FloatArray:
        """Shape (N,)."""

    @property
    def integer(self) -> BoolArray:
        """Shape (N,)."""

    @property
    def is_integer(self) -> bool:
        """Whether any column must be integer."""

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

    def pulled(self, y: FloatArray) -> FloatArray:
        """A' y."""

    def activity_and_terms(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """A x, and |A| |x|."""

    def column_terms(self, y: FloatArray) -> FloatArray:
        """|A|' y."""

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
    program : AllocationProgram
        Without side rows and rows of one's own.
    """

    program: AllocationProgram

    @cached_property
    def _blocks(self) -> Sequence[sp.csr_matrix]:
        """All of them with nothing negative."""
        C = self.program.classes
        return C.member, C.usage, self.program.levels

    @cached_property
    def rows(self) -> tuple[Block, ...]:
        """Time, capacity, levels."""
        C = self.program.classes
        classes, goods = len(C), len(C.capacity)
        ends = (0, classes, classes + goods, 2 * classes + goods)
        names = ("time", "capacity", "levels")
        return tuple(Block(name, *at) for name, at in zip(names, pairwise(ends), strict=True))

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns)."""
        return self.rows[-1].stop, self.program.classes.columns + 1

    @cached_property
    def row_lower(self) -> FloatArray:
        """0 of the levels."""
        lower = np.full(self.shape[0], -np.inf)
        lower[self.rows[-1].slice] = 0.0
        return lower

    @cached_property
    def row_upper(self) -> FloatArray:
        """The time of the members, and the capacities."""
        C = self.program.classes
        return np.concatenate([C.count, C.capacity, np.full(len(C), np.inf)])

    @cached_property
    def lower(self) -> FloatArray:
        """0."""
        return constant(0.0, self.shape[1], np.float64)

    @property
    def implied_lower(self) -> FloatArray:
        """0."""
        return self.lower

    @cached_property
    def upper(self) -> FloatArray:
        """None."""
        return constant(np.inf, self.shape[1], np.float64)

    @cached_property
    def implied_upper(self) -> FloatArray:
        """What the time rows leave of each column, and the highest level."""
        return np.append(self.program.classes.limit, self.program.highest)

    @cached_property
    def cost(self) -> FloatArray:
        """1 of the level."""
        cost = np.zeros(self.shape[1])
        cost[-1] = 1.0
        return cost

    @cached_property
    def integer(self) -> BoolArray:
        """Nothing is."""
        return constant(False, self.shape[1], np.bool_)

    is_integer = False
    maximise = True

    @property
    def offset(self) -> float:
        """0."""
        return 0.0

    def activity(self, x: FloatArray) -> FloatArray:
        """A x."""
        return self._joined(self._products(x), x, -1.0)

    def activity_and_terms(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """A x, and |A| |x|."""
        products, size = self._products(x), np.abs(x)
        terms = products if (x >= 0).all() else self._products(size)
        return self._joined(products, x, -1.0), self._joined(terms, size, 1.0)

    def _products(self, x: FloatArray) -> list[FloatArray]:
        columns = self.program.classes.columns
        return [np.asarray(block @ x[:columns]) for block in self._blocks]

    def _joined(self, products: list[FloatArray], x: FloatArray, sign: float) -> FloatArray:
        """Products of the blocks, with what the columns behind x do to the levels."""
        behind = self.program.classes.count * x[self.program.classes.columns :]
        return np.concatenate([*products[:-1], products[-1] + sign * behind])

    def pulled(self, y: FloatArray) -> FloatArray:
        """A' y."""
        return self._pulled(y, -1.0)

    def column_terms(self, y: FloatArray) -> FloatArray:
        """|A|' y."""
        return self._pulled(y, 1.0)

    def _pulled(self, y: FloatArray, sign: float) -> FloatArray:
        total, columns = np.zeros(self.shape[1]), self.program.classes.columns
        for rows, block in zip(self.rows, self._blocks, strict=True):
            total[:columns] += block.T @ y[rows.slice]
        total[columns:] = sign * self._gathered(self.program.classes.count * y[self.rows[-1].slice])
        return total

    @cached_property
    def sizes(self) -> FloatArray:
        """Size of each row: its largest finite side, or what one unit (or the whole range) of its columns does."""
        return row_sizes(self.row_lower, self.row_upper, self.lower, self.implied_upper, self.largest_in_rows)

    def _gathered(self, by_class: FloatArray) -> FloatArray:
        """Numbers of the classes as numbers of the columns behind x."""
        return np.array([float(by_class.sum())])

    def largest_in_rows(self, factor: FloatArray) -> FloatArray:
        """Largest entry of each row, of |A| with each column multiplied by a factor of at least 0."""
        largest, levels = self._largest(factor), self.rows[-1].slice
        largest[levels] = np.maximum(
            largest[levels], self.program.classes.count * factor[self.program.classes.columns :]
        )
        return largest

    def _largest(self, factor: FloatArray) -> FloatArray:
        """The same of the columns x alone."""
        largest = np.zeros(self.shape[0])
        for rows, block in zip(self.rows, self._blocks, strict=True):
            some = np.flatnonzero(np.diff(block.indptr))
            if len(some):
                terms = block.data * factor[block.indices]
                largest[rows.start + some] = np.maximum.reduceat(terms, block.indptr[some])
        return largest

    def objective(self, x: FloatArray) -> float:
        """c'x + offset."""
        return float(self.cost @ x) + self.offset

    def row_name(self, row: int) -> tuple[str, int]:
        """(block, position in the block) of a row."""
        block = next(block for block in self.rows if block.start <= row < block.stop)
        return block.name, row - block.start
