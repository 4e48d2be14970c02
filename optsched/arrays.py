"""Array types and the three array idioms the compile step is made of: grouping, ranges, lookup."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
AnyArray = NDArray[Any]
Scalar = TypeVar("Scalar", bound=np.generic)


@dataclass(frozen=True, slots=True)
class Groups:
    """Rows put together where they are equal, in order of first appearance.

    Attributes
    ----------
    first : IntArray, shape (G,)
        A representative row of each group (the first one).
    inverse : IntArray, shape (N,)
        The group of each row.
    count : IntArray, shape (G,)
        Rows in each group.
    """

    first: IntArray
    inverse: IntArray
    count: IntArray

    def __len__(self) -> int:
        return len(self.first)


def group_rows(columns: Sequence[AnyArray], length: int) -> Groups:
    """Group the rows of a table given by its columns; equality is exact, to the last bit of every number.

    Rows are put in order of a 64-bit hash, which costs one sort, and then compared with their representative; a
    collision, if there ever is one, is resolved by a lexicographic sort.

    Parameters
    ----------
    columns : sequence of arrays, each of shape (N,)
        Integer, boolean or float columns. ``-0.0`` counts as ``0.0``.
    length : int
        N, for a table without columns (all rows are equal then).
    """
    if length == 0:
        empty = np.zeros(0, np.int64)
        return Groups(empty, empty, empty)
    bits = [column for column in map(_as_bits, columns) if not (column == column[0]).all()]
    if not bits:
        return Groups(np.zeros(1, np.int64), np.zeros(length, np.int64), np.array([length], np.int64))
    _, first, inverse = np.unique(_hash_rows(bits), return_index=True, return_inverse=True)
    if not all((column == column[first[inverse]]).all() for column in bits):
        first, inverse = _group_by_sorting(bits)
    order = np.argsort(first, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    inverse = rank[inverse]
    return Groups(first[order], inverse, np.bincount(inverse, minlength=len(first)).astype(np.int64))


def hash_rows(columns: Sequence[AnyArray]) -> NDArray[np.uint64]:
    """A 64-bit hash of each row of a table given by its columns, which are as in `group_rows`; at least one."""
    return _hash_rows([_as_bits(column) for column in columns])


def hash_lists(indptr: IntArray, columns: Sequence[AnyArray]) -> NDArray[np.uint64]:
    """A 64-bit hash of each list of rows, where list i has the rows ``indptr[i]:indptr[i + 1]`` of the columns."""
    position = ranges(np.zeros(len(indptr) - 1, np.int64), np.diff(indptr))
    # The sum of the hashes of its rows, each with its place in the list; unsigned sums run over without harm.
    total = np.concatenate([np.zeros(1, np.uint64), np.cumsum(hash_rows([position, *columns]))])
    return np.diff(total[indptr])


def _as_bits(column: AnyArray) -> NDArray[np.uint64]:
    if column.dtype.kind == "f":
        return (np.asarray(column, np.float64) + 0.0).view(np.uint64)  # + 0.0 turns -0.0 into 0.0
    return np.asarray(column, np.int64).view(np.uint64)


def _hash_rows(bits: Sequence[NDArray[np.uint64]]) -> NDArray[np.uint64]:
    """Mix the columns with the finaliser of splitmix64 (Steele, Lea, Flood 2014)."""
    state = np.zeros(len(bits[0]), np.uint64)
    for column in bits:
        state = (state ^ column) + np.uint64(0x9E3779B97F4A7C15)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state ^= state >> np.uint64(31)
    return state


def _group_by_sorting(bits: Sequence[NDArray[np.uint64]]) -> tuple[IntArray, IntArray]:
    order = np.lexsort(tuple(bits))
    new = np.zeros(len(order), bool)
    for column in bits:
        new[1:] |= column[order[1:]] != column[order[:-1]]
    label = np.cumsum(new)
    inverse = np.empty(len(order), np.int64)
    inverse[order] = label
    first = np.full(label[-1] + 1, len(order), np.int64)
    np.minimum.at(first, inverse, np.arange(len(order)))
    return first, inverse


def gathered(values: NDArray[Scalar], index: IntArray, missing: Any) -> NDArray[Scalar]:
    """``values[index]``, and ``missing`` where the index is below 0."""
    if not len(values):
        return np.full(len(index), missing, values.dtype)
    return np.where(index >= 0, values[index], values.dtype.type(missing))


def ranges(start: IntArray, length: IntArray) -> IntArray:
    """Concatenate ``start[i], start[i] + 1, ..., start[i] + length[i] - 1`` over all i."""
    total = int(length.sum())
    if total == 0:
        return np.zeros(0, np.int64)
    offset = np.repeat(start - np.concatenate(([0], np.cumsum(length)[:-1])), length)
    return offset + np.arange(total, dtype=np.int64)


def find_sorted(keys: IntArray, wanted: IntArray) -> IntArray:
    """Position of each wanted key in the sorted array ``keys``, or -1 where it is not there."""
    if len(keys) == 0:
        return np.full(len(wanted), -1, np.int64)
    position = np.searchsorted(keys, wanted)
    position[position == len(keys)] = 0
    return np.where(keys[position] == wanted, position, -1)
