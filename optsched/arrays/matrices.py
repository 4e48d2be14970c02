"""Sparse matrices made directly from arrays (not from triples), with 32-bit indices if they
suffice.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp

from optsched.arrays import (
    SMALL_TABLE,
    AnyArray,
    FloatArray,
    IntArray,
    lengths,
    pointers,
)

Matrix = TypeVar("Matrix", sp.csr_matrix, sp.csc_matrix)

MOST = np.iinfo(np.int32).max
NARROW = 16
"""For rows with fewer entries than this, a loop over columns is faster."""


def index_type(*largest: int) -> np.dtype[Any]:
    """Index type of a matrix with these numbers of rows, columns and entries."""
    return np.dtype(np.int32 if max(largest) <= MOST else np.int64)


def compressed(
    data: FloatArray, indices: AnyArray, indptr: AnyArray, shape: tuple[int, int]
) -> sp.csr_matrix:
    """A csr matrix; the indices must increase within every row. The arrays are not copied."""
    matrix = _filled(_BY_ROWS, data, indices, indptr, shape)
    matrix.has_sorted_indices = matrix.has_canonical_format = True
    return matrix


def by_columns(
    data: FloatArray, indices: AnyArray, indptr: AnyArray, shape: tuple[int, int]
) -> sp.csc_matrix:
    """A csc matrix; indices may be in any order. The arrays are not copied."""
    return _filled(_BY_COLUMNS, data, indices, indptr, shape)


_BY_ROWS, _BY_COLUMNS = sp.csr_matrix((0, 0)), sp.csc_matrix((0, 0))


def _filled(
    empty: Matrix, data: FloatArray, indices: AnyArray, indptr: AnyArray, shape: tuple[int, int]
) -> Matrix:
    """Put arrays into an empty matrix, which determines the format."""
    matrix = _twin(empty)
    matrix.data, matrix.indices, matrix.indptr = data, indices, indptr
    matrix._shape = shape  # type: ignore[attr-defined]  # noqa: SLF001
    return matrix


def _twin(matrix: Matrix) -> Matrix:
    """A matrix that shares all arrays with another."""
    # scipy's constructor checks all indices. In a program of 12 jobs that takes longer than the
    # products with the matrix.
    twin = object.__new__(type(matrix))
    twin.__dict__.update(matrix.__dict__)
    return twin


def beside(left: sp.csc_matrix, right: sp.csc_matrix) -> sp.csc_matrix:
    """Concatenate columns. For few columns this is much faster than scipy's hstack, which makes
    triples.
    """
    shape = (left.shape[0], left.shape[1] + right.shape[1])
    kind = index_type(*shape, left.nnz + right.nnz)
    indptr = np.concatenate([left.indptr, right.indptr[1:] + left.indptr[-1]]).astype(
        kind, copy=False
    )
    indices = np.concatenate([left.indices, right.indices]).astype(kind, copy=False)
    return by_columns(np.concatenate([left.data, right.data]), indices, indptr, shape)


def one_per_column(row: IntArray, entry: FloatArray, sort: IntArray, rows: int) -> sp.csr_matrix:
    """The matrix with one entry in each column:
    the sort of a column gives its row and its entry, and there are few sorts.

    Parameters
    ----------
    row, entry : arrays, shape (S,)
    sort : IntArray, shape (columns,)
    rows : int
    """
    row_of_column = row.astype(np.min_scalar_type(rows))[
        sort
    ]  # 8 or 16 bits are sorted in one pass
    order = np.argsort(row_of_column, kind="stable")
    kind = index_type(rows, len(sort))
    indptr = pointers(np.bincount(row_of_column, minlength=rows), kind)
    return compressed(entry[sort[order]], order.astype(kind), indptr, (rows, len(sort)))


def rows_in_order(row: IntArray, data: FloatArray, shape: tuple[int, int]) -> sp.csr_matrix:
    """The matrix with one entry per column; rows must not decrease from column to column."""
    kind = index_type(*shape)
    indptr = pointers(np.bincount(row, minlength=shape[0]), kind)
    return compressed(data, np.arange(shape[1], dtype=kind), indptr, shape)


def same_places(pattern: Matrix, data: FloatArray) -> Matrix:
    """A matrix with the sparsity pattern of another one and new numbers; both share the index
    arrays.
    """
    matrix = _twin(pattern)
    matrix.data = data
    return matrix


def scaled_rows(matrix: sp.csr_matrix, factor: FloatArray) -> sp.csr_matrix:
    """Multiply every row by its factor; both matrices share the index arrays."""
    data = factor.repeat(lengths(matrix.indptr))
    data *= matrix.data
    return same_places(matrix, data)


def largest_of_rows(indptr: AnyArray, data: FloatArray) -> FloatArray:
    """The largest entry of every row of a csr matrix, at least 0."""
    largest, length = np.zeros(len(indptr) - 1), lengths(indptr)
    widest = int(length.max(initial=0))
    nearly_full = 4 * len(data) > 3 * widest * len(largest)
    if (
        len(data) > SMALL_TABLE and nearly_full and widest < NARROW
    ):  # loop over columns, as rows are short
        for place in range(widest):
            rows = np.flatnonzero(length > place)
            if len(rows) == len(largest):
                np.maximum(largest, data[indptr[:-1] + place], out=largest)
            else:
                largest[rows] = np.maximum(largest[rows], data[indptr[rows] + place])
        return largest
    filled = np.flatnonzero(length)
    if len(filled):
        # For an empty row reduceat would return the first entry of the next one.
        largest[filled] = np.maximum(np.maximum.reduceat(data, indptr[filled]), 0.0)
    return largest


def sum_by(group: IntArray, amount: FloatArray | IntArray | float, groups: int) -> sp.csr_matrix:
    """Matrix that sums the entries of each group, each times an amount; shape (groups, entries)."""
    each = np.broadcast_to(np.asarray(amount, np.float64), len(group))
    return sp.csr_matrix((each, (group, np.arange(len(group)))), shape=(groups, len(group)))


def rows_of(chosen: IntArray, width: int) -> sp.csr_matrix:
    """Matrix that selects entries from a vector of length ``width``; shape (chosen, width)."""
    return sp.csr_matrix(
        (np.ones(len(chosen)), (np.arange(len(chosen)), chosen)), shape=(len(chosen), width)
    )
