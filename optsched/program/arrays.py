"""`LinearArrays`: a linear program as solvers take it, with named blocks of rows and columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from optsched.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    is_constant,
    lengths,
    owners,
)
from optsched.arrays.values import cached_property, replace
from optsched.display import Displayed, count
from optsched.errors import UsageError
from optsched.program.chunks import (
    Both,
    ColumnChunk,
    PairedSlices,
    RowChunk,
    column_chunks_of,
    row_chunks_of,
    unit_changes,
)


@dataclass(frozen=True)
class Block:
    """Consecutive rows or columns with a name: ``start`` inclusive, ``stop`` exclusive."""

    name: str
    start: int
    stop: int

    @property
    def slice(self) -> slice:
        """The block as a slice."""
        return slice(self.start, self.stop)

    def __len__(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True, repr=False, eq=False)
class LinearArrays(Displayed):
    """optimise c'x + offset  s.t.  row_lower <= A x <= row_upper,  lower <= x <= upper,  x_j integer where marked.

    Attributes
    ----------
    A : csc_matrix, shape (M, N)
    row_lower, row_upper : FloatArray, shape (M,)
        -inf, inf where absent.
    lower, upper : FloatArray, shape (N,)
    cost : FloatArray, shape (N,)
    integer : BoolArray, shape (N,)
    maximise : bool
    offset : float
    implied_lower, implied_upper : FloatArray, shape (N,)
        Finite bounds that every feasible (or some optimal) point satisfies; the certificate needs
        them.
    rows, columns : tuple of Block
    """

    A: sp.csc_matrix
    row_lower: FloatArray
    row_upper: FloatArray
    lower: FloatArray
    upper: FloatArray
    cost: FloatArray
    integer: BoolArray
    maximise: bool
    offset: float
    implied_lower: FloatArray
    implied_upper: FloatArray
    rows: tuple[Block, ...]
    columns: tuple[Block, ...]

    def _headline(self) -> str:
        rows, columns = self.shape
        whole = int(self.integer.sum())
        sense = "maximise" if self.maximise else "minimise"
        kind = f"{sense} over " + (f"{whole:,} of them whole, " if whole else "")
        return (
            f"{kind}{count(columns, 'column')}, {count(rows, 'row')}, "
            f"{count(self.A.nnz, 'nonzero')}"
        )

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns."""
        return self.A.shape

    def with_row(
        self, coefficients: FloatArray, low: float, high: float, name: str
    ) -> LinearArrays:
        """The program with one more row, low <= coefficients @ x <= high, as a separate block."""
        rows, _ = self.shape
        return replace(
            self,
            A=sp.csc_matrix(sp.vstack([self.A, sp.csr_matrix(coefficients[np.newaxis, :])])),
            row_lower=np.append(self.row_lower, low),
            row_upper=np.append(self.row_upper, high),
            rows=(*self.rows, Block(name, rows, rows + 1)),
        )

    @cached_property
    def by_rows(self) -> sp.csr_matrix:
        return self.A.tocsr()

    @cached_property
    def column(self) -> IntArray:
        """Column of each entry of A."""
        return owners(lengths(self.A.indptr))

    @cached_property
    def sizes(self) -> FloatArray:
        """Size of each row: its largest finite side, or the largest change that one unit (or the
        whole range) of one of its columns makes.
        """
        unit = unit_changes(self.column_chunks(), self.shape[1])
        return row_sizes(self.row_chunks(), self.largest_in_rows(unit))

    def largest_in_rows(self, factor: FloatArray) -> FloatArray:
        """Largest entry of each row,
        of A with each column multiplied by a factor of at least 0; shape (M,).
        """
        largest = np.zeros(self.shape[0])
        np.maximum.at(largest, self.A.indices, np.abs(self.A.data) * factor[self.column])
        return largest

    def transpose_times(self, y: FloatArray) -> FloatArray:
        """Return A.T @ y, shape (columns,)."""
        return self._by_column(self.A.data * y[self.A.indices])

    def activity_and_terms(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """A @ x, and the sum of the absolute values of its terms: abs(A) @ abs(x)."""
        each = self.A.data * x[self.column]
        return self._by_row(each), self._by_row(np.abs(each))

    def transpose_terms(self, y: FloatArray) -> FloatArray:
        """Return abs(A).T @ y, shape (columns,): for y >= 0 the sum of the absolute terms of A.T @
        y.
        """
        return self._by_column(np.abs(self.A.data) * y[self.A.indices])

    def transpose_times_and_terms(self, y: FloatArray) -> PairedSlices:
        """A.T @ y, and the sum of the absolute values of its terms: abs(A).T @ abs(y)."""
        each = self.A.data * y[self.A.indices]
        return Both(self._by_column(each), self._by_column(np.abs(each)))

    def _by_row(self, entries: FloatArray) -> FloatArray:
        """Numbers of the entries of A, added up row by row, in the order of the columns."""
        total = np.bincount(self.A.indices, entries, self.shape[0])
        return total.astype(np.float64, copy=False)

    def _by_column(self, entries: FloatArray) -> FloatArray:
        """Numbers of the entries of A, added up column by column; no transposed matrix is made."""
        total = np.bincount(self.column, entries, self.shape[1])
        return total.astype(np.float64, copy=False)

    def column_chunks(self) -> Sequence[ColumnChunk]:
        """All columns, block by block."""
        return self._column_chunks

    @cached_property
    def _column_chunks(self) -> Sequence[ColumnChunk]:
        return list(column_chunks_of(self))

    def row_chunks(self) -> Iterator[RowChunk]:
        """All rows, block by block."""
        return row_chunks_of(self.row_lower, self.row_upper)

    @cached_property
    def is_integer(self) -> bool:
        """Whether any column must be integer."""
        return bool(self.integer.any())

    def objective(self, x: FloatArray) -> float:
        """Value of the objective at x, c'x + offset."""
        return float(self.cost @ x) + self.offset

    def relaxed(self) -> LinearArrays:
        """The same without integrality."""
        return replace(self, integer=np.zeros_like(self.integer))

    def row_block(self, name: str) -> Block:
        """Rows by name; raises KeyError."""
        return next_named(self.rows, name)

    def row_name(self, row: int) -> tuple[str, int]:
        """(block, position in the block) of a row."""
        for block in self.rows:
            if block.start <= row < block.stop:
                return block.name, row - block.start
        raise IndexError(row)


def row_sizes(rows: Iterable[RowChunk], largest: FloatArray) -> FloatArray:
    """Size of each row: its largest finite side, or the largest change that one unit of a column
    makes (``largest``, which is overwritten).
    """
    for chunk in rows:
        for side in (chunk.lower, chunk.upper):
            if is_constant(side) and (np.isinf(side[:1]) | (side[:1] == 0.0)).all():
                continue
            np.maximum(
                largest[chunk.at],
                np.where(np.isfinite(side), np.abs(side), 0.0),
                out=largest[chunk.at],
            )
    return largest


def next_named(blocks: tuple[Block, ...], name: str) -> Block:
    """The block of that name; raises KeyError."""
    for block in blocks:
        if block.name == name:
            return block
    raise KeyError(name)


def refuse_nan(arrays: LinearArrays) -> None:
    """Refuse NaN and infinite coefficients: the answer of a solver would be arbitrary."""
    for name, numbers in (("cost", arrays.cost), ("coefficients", arrays.A.data)):
        if not np.isfinite(numbers).all():
            raise UsageError(f"the program has a NaN or an infinity among its {name}")
    for name, bounds in (
        ("row bounds", (arrays.row_lower, arrays.row_upper)),
        ("column bounds", (arrays.lower, arrays.upper)),
    ):
        if np.isnan(bounds).any():
            raise UsageError(f"the program has a NaN among its {name}")


def with_entries(
    matrix: sp.csc_matrix, rows: IntArray, columns: IntArray, values: FloatArray
) -> sp.csc_matrix:
    """A matrix with some entries replaced, or added where it has none."""
    keys = _keys(matrix)
    wanted = np.asarray(columns, np.int64) * matrix.shape[0] + rows
    place = np.minimum(np.searchsorted(keys, wanted), max(len(keys) - 1, 0))
    # If all entries exist, only numbers change, and the new matrix shares the indices.
    if len(keys) and (keys[place] == wanted).all():
        data = matrix.data.copy()
        data[place] = values
        return sp.csc_matrix((data, matrix.indices, matrix.indptr), shape=matrix.shape)
    grown = matrix.tolil()
    grown[rows, columns] = values
    return sp.csc_matrix(grown)


def differing_entries(
    old: sp.csc_matrix, new: sp.csc_matrix
) -> tuple[IntArray, IntArray, FloatArray]:
    """(rows, columns, new values) of the entries in which two matrices of one shape differ."""
    same = np.array_equal(old.indptr, new.indptr) and np.array_equal(old.indices, new.indices)
    if same:
        place = np.flatnonzero(old.data != new.data)
        columns = np.searchsorted(new.indptr, place, side="right") - 1
        return new.indices[place].astype(np.int64), columns.astype(np.int64), new.data[place]
    difference = sp.coo_matrix(new - old)
    rows, columns = difference.row[difference.data != 0], difference.col[difference.data != 0]
    return (
        rows.astype(np.int64),
        columns.astype(np.int64),
        np.asarray(sp.csr_matrix(new)[rows, columns]).ravel(),
    )


def _keys(matrix: sp.csc_matrix) -> IntArray:
    """Places of the entries in the order of columns, then rows:
    ascending, as indices are sorted.
    """
    matrix.sort_indices()
    columns = owners(lengths(matrix.indptr))
    return columns * matrix.shape[0] + matrix.indices
