"""Array types and basic operations on arrays: constant columns, grouping, ranges, lookup."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
AnyArray = NDArray[Any]
Scalar = TypeVar("Scalar", bound=np.generic)
Numbers = TypeVar("Numbers", FloatArray, IntArray)

EMPTY = np.zeros(0, np.int64)
"""No rows."""

BLOCK = 2**16
"""Rows per block for operations with temporary arrays; a block fits into a CPU cache."""

SMALL_TABLE = 1024
"""A lookup table with at most this many entries is always worth its cost."""

ROOM = 8
"""A larger lookup table may have this many entries per row that is looked up."""

A_FEW_ROWS = 256
"""Up to this many rows a Python dictionary groups faster than numpy."""


def blocks(length: int) -> list[slice]:
    """The rows from 0 to ``length``, at most `BLOCK` at a time."""
    if 0 < length <= BLOCK:
        return [slice(0, length)]
    return [slice(start, min(start + BLOCK, length)) for start in range(0, length, BLOCK)]


def constant(value: Any, count: int, dtype: type[Scalar]) -> NDArray[Scalar]:
    """A read-only column with the same value in every row. It takes the memory of one value."""
    return _repeated(np.array(value, dtype), count)


def _repeated(value: NDArray[Scalar], count: int) -> NDArray[Scalar]:
    """A view that repeats an array of one entry ``count`` times."""
    # np.broadcast_to does the same but is ten times as slow: half a second in a thousand small
    # solves
    column = np.ndarray((count,), value.dtype, value, strides=(0,))
    column.flags.writeable = False
    return column


def is_constant(column: AnyArray) -> bool:
    """Whether a column was made by `constant`, or is a slice of one that was."""
    return column.strides == (0,)


def condensed(column: NDArray[Scalar]) -> NDArray[Scalar]:
    """A column of numbers or flags; if all its rows have the same bits, it is replaced by a
    `constant`.
    """
    if is_constant(column) or len(column) <= 1:
        return column
    bits = column.view(np.uint8 if column.dtype == np.bool_ else np.uint64)
    return (
        constant(column[0], len(column), column.dtype.type) if (bits == bits[0]).all() else column
    )


def without_repeats(column: NDArray[Scalar]) -> NDArray[Scalar]:
    """For a column that `constant` made, its first row; for other columns, all rows."""
    return column[:1] if is_constant(column) else column


def take_rows(column: NDArray[Scalar], rows: AnyArray | None) -> NDArray[Scalar]:
    """``column[rows]``, for row numbers or a mask; None means all rows and returns the column
    itself.

    A constant column stays a constant.
    """
    if rows is None:
        return column
    if not is_constant(column):
        return column[rows]
    count = int(np.count_nonzero(rows)) if rows.dtype == np.bool_ else len(rows)
    if count <= len(column):
        return column[:count]
    return _repeated(column[:1], count) if len(column) else column[rows]


def rows_where(mask: BoolArray) -> IntArray | None:
    """Row numbers where a mask is true, for `take_rows`; None where it is true everywhere."""
    return None if mask.all() else mask.nonzero()[0]


def joined(parts: Sequence[NDArray[Scalar]]) -> NDArray[Scalar]:
    """Concatenate columns. If only one is not empty, it is returned itself; equal constants stay a
    constant.
    """
    parts = [part for part in parts if len(part)] or [parts[0]]
    if len(parts) == 1:
        return parts[0]
    if not is_constant(parts[0]):
        return np.concatenate(parts)
    if all(map(is_constant, parts)) and len({part[:1].tobytes() for part in parts}) == 1:
        return _repeated(parts[0][:1], sum(map(len, parts)))
    return np.concatenate(parts)


def extended(column: NDArray[Scalar], rows: IntArray, more: NDArray[Scalar]) -> NDArray[Scalar]:
    """``column[rows]`` and then ``more``, for rows that exist; equal constants stay a constant."""
    if not len(rows):
        return more
    # One row is a constant, too.
    if (
        is_constant(column)
        and (is_constant(more) or len(more) == 1)
        and column[:1].tobytes() == more[:1].tobytes()
    ):
        return _repeated(column[:1], len(rows) + len(more))
    values = np.empty(len(rows) + len(more), column.dtype)
    # Written in place; the mode "raise" would go through a copy.
    np.take(column, rows, out=values[: len(rows)], mode="clip")
    np.copyto(values[len(rows) :], more)
    return values


def looked_up(values: NDArray[Scalar], index: IntArray) -> NDArray[Scalar]:
    """``values[index]``; the result is a constant if the index is."""
    if is_constant(index) and len(index):
        return _repeated(values[index[:1]], len(index))
    return values[index]


def in_order(columns: Sequence[AnyArray]) -> bool:
    """Whether the rows of a table are sorted lexicographically; the first column is the primary
    key.
    """
    columns = [column for column in columns if not is_constant(column)]
    for part in blocks(len(columns[0]) - 1) if columns else ():
        tied: BoolArray | bool = True
        for column in columns:
            value, next_value = column[part], column[part.start + 1 : part.stop + 1]
            if (tied & (next_value < value)).any():
                return False
            tied = tied & (next_value == value)
    return True


def increases(column: AnyArray) -> bool:
    """Whether the values increase strictly."""
    if len(column) <= BLOCK:
        return bool((column[1:] > column[:-1]).all())
    return all(
        (column[part.start + 1 : part.stop + 1] > column[part]).all()
        for part in blocks(len(column) - 1)
    )


def highest_in_rows(table: FloatArray) -> FloatArray:
    """The largest number of each row of a narrow table, at least 0. It loops over columns, because
    rows are short.
    """
    highest = np.zeros(len(table))
    for column in table.T:
        np.maximum(highest, column, out=highest)
    return highest


def is_range(rows: AnyArray, count: int) -> bool:
    """Whether row numbers are 0, 1, ..., count - 1."""
    return len(rows) == count and (
        count == 0 or (rows[0] == 0 and rows[-1] == count - 1 and increases(rows))
    )


@dataclass(frozen=True, eq=False)
class Groups:
    """Groups of equal rows, in order of first appearance.

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
    """Group the rows of a table given by its columns;
    equality is exact, to the last bit of every number.

    Few rows are grouped by a dictionary. For many rows the first of these ways that applies is
    used. If a column increases strictly, all rows differ. Small integers are grouped by a lookup
    table; one integer column is enough if it distinguishes all different rows, or most of them.
    Otherwise rows are sorted by a 64-bit hash and each is compared with the representative of its
    group; if hashes collide, a lexicographic sort is used instead.

    Parameters
    ----------
    columns : sequence of arrays, each of shape (N,)
        Integer, boolean or float columns. ``-0.0`` counts as ``0.0``.
    length : int
        N, for a table without columns (all rows are equal then).
    """
    if length == 0:
        return Groups(EMPTY, EMPTY, EMPTY)
    if length == 1:
        return _all_apart(1)
    if length <= A_FEW_ROWS:
        return _group_a_few(columns, length)
    columns = [column for column in columns if not _all_alike(column)]
    if not columns:
        return Groups(
            np.zeros(1, np.int64), np.zeros(length, np.int64), np.array([length], np.int64)
        )
    if any(map(increases, columns)):
        return _all_apart(length)
    spans = [_span_of(column) for column in columns]
    if any(_differ(column, span) for column, span in zip(columns, spans, strict=True)):
        return _all_apart(length)
    groups = _group_by_widest(columns, spans, length)
    groups = _group_by_number(columns, spans, length) if groups is None else groups
    return _group_by_hash(columns, length) if groups is None else groups


def _group_a_few(columns: Sequence[AnyArray], length: int) -> Groups:
    """Group rows by a dictionary of their bits."""
    keys = [_entry_numbers(column) for column in columns if not is_constant(column)]
    rows: list[Any] = keys[0] if len(keys) == 1 else list(zip(*keys, strict=True))
    if not keys:
        rows = [None] * length
    number = {row: place for place, row in enumerate(dict.fromkeys(rows))}
    if len(number) == length:
        return _all_apart(length)
    inverse = np.array([number[row] for row in rows], np.int64)
    first = np.empty(len(number), np.int64)
    first[inverse[::-1]] = np.arange(
        length - 1, -1, -1
    )  # the last value written wins, which is the first row
    return Groups(first, inverse, np.bincount(inverse))


def _entry_numbers(column: AnyArray) -> list[int]:
    """A number for each entry of a column; entries with equal bits have equal numbers."""
    numbers: list[int] = (_as_bits(column) if column.dtype.kind == "f" else column).tolist()
    return numbers


def _all_alike(column: AnyArray) -> bool:
    return is_constant(column) or all(
        (column[part] == column[0]).all() for part in blocks(len(column))
    )


Span = tuple[int, int]
"""The lowest of some integers, and the length of the range from it to the highest."""


def _span_of(column: AnyArray) -> Span | None:
    """The span of a column of integers; None for other columns."""
    if column.dtype.kind not in "ib":
        return None
    low = int(column.min())
    return low, int(column.max()) - low + 1


def _differ(column: AnyArray, span: Span | None) -> bool:
    """Whether integers differ in every row. False may mean unknown: the check is a cheap count."""
    if span is None or not len(column) <= span[1] <= 2 * len(column) + SMALL_TABLE:
        return False
    return int(np.bincount(_numbered([column], [span])).max()) == 1


def _all_apart(length: int) -> Groups:
    """Groups of one row each."""
    rows = np.arange(length, dtype=np.int64)
    rows.flags.writeable = False  # two arrays share it
    return Groups(rows, rows, constant(1, length, np.int64))


def _group_by_number(
    columns: Sequence[AnyArray], spans: Sequence[Span | None], length: int
) -> Groups | None:
    """Group rows of integers by a lookup table of all possible rows; None if the table would be too
    large.
    """
    known = [span for span in spans if span is not None]
    room = math.prod(size for _, size in known)
    if len(known) < len(columns) or room > 2 * length + SMALL_TABLE:
        return None
    number = _numbered(columns, known)
    first, count = np.full(room, length, np.int64), np.zeros(room, np.int64)
    if room <= SMALL_TABLE:  # in a long column most blocks contain no new number
        for part in blocks(length):
            in_part = np.bincount(number[part], minlength=room)
            if ((in_part > 0) & (count == 0)).any():
                _mark_first(first, number, part, count == 0)
            count += in_part
    else:
        for part in reversed(
            blocks(length)
        ):  # the last value written wins, which is the first of several equal rows
            first[number[part][::-1]] = np.arange(part.stop - 1, part.start - 1, -1)
        count = np.bincount(number, minlength=room)
    rows = _in_order_of_appearance(first, number)
    appearing = number[rows]
    if is_range(appearing, room):
        return Groups(first, number, count)
    rank = np.zeros(room, np.int64)
    rank[appearing] = np.arange(len(appearing))
    inverse = np.empty(length, np.int64)
    for part in blocks(length):
        inverse[part] = rank[number[part]]
    return Groups(rows, inverse, count[appearing])


def _in_order_of_appearance(first: IntArray, number: IntArray) -> IntArray:
    """The rows that are the first with their number. ``first`` has the first row of each number, or
    one past the last row if the number does not occur.
    """
    if len(first) <= SMALL_TABLE:
        return np.sort(first[first < len(number)])
    begin = (
        np.flatnonzero(first[number[part]] == np.arange(part.start, part.stop))
        for part in blocks(len(number))
    )
    return np.concatenate(
        [rows + part.start for rows, part in zip(begin, blocks(len(number)), strict=True)]
    )


def _numbered(columns: Sequence[AnyArray], spans: Sequence[Span]) -> IntArray:
    """Encode each row as one number, given the spans of the columns."""
    # A single column of the widest type is used as it is, without a copy.
    column = columns[0]
    if len(columns) == 1 and spans[0][0] == 0 and column.dtype == np.int64:
        return column
    # Mixed radix: each column is a digit, after subtracting its lowest value.
    number = np.zeros(len(column), np.int64)
    for column, (low, size) in zip(columns, spans, strict=True):
        number *= size
        number += column
        number -= low
    return number


def _mark_first(first: IntArray, number: IntArray, part: slice, new: BoolArray) -> None:
    """Record the first row of each number that is new in this block."""
    before = first[~new]
    first[number[part][::-1]] = np.arange(part.stop - 1, part.start - 1, -1)
    first[~new] = before


def _group_by_widest(
    columns: Sequence[AnyArray], spans: Sequence[Span | None], length: int
) -> Groups | None:
    """Group rows by the integer column with the largest span that a table allows, if it
    distinguishes all different rows, or most of them.
    """
    small = [
        (span[1], at)
        for at, span in enumerate(spans)
        if span and span[1] <= 2 * length + SMALL_TABLE
    ]
    if not small:
        return None
    _, widest = max(small)
    groups = _group_by_number([columns[widest]], [spans[widest]], length)
    if groups is None:
        return None
    if 2 * len(groups) > length:
        return refined(groups, columns)
    others = (column for at, column in enumerate(columns) if at != widest)
    alike = all((column == column[groups.first][groups.inverse]).all() for column in others)
    return groups if alike else None


def refined(groups: Groups, columns: Sequence[AnyArray]) -> Groups:
    """Split groups so that rows also agree in these columns. It is fast if most groups have one row
    already.
    """
    inverse = groups.inverse
    if len(groups) == len(inverse):
        return groups
    rows = np.flatnonzero((groups.count > 1)[inverse])
    parts = group_rows([inverse[rows], *(column[rows] for column in columns)], len(rows))
    if len(parts) == np.count_nonzero(groups.count > 1):
        return groups
    first = np.arange(len(inverse))
    # A row that is alone in its group is the first row of it; other rows take the first row of
    # their new group.
    first[rows] = rows[parts.first[parts.inverse]]
    is_first = first == np.arange(len(first))
    inverse = (is_first.cumsum() - 1)[first]
    return Groups(np.flatnonzero(is_first), inverse, np.bincount(inverse))


def _group_by_hash(columns: Sequence[AnyArray], length: int) -> Groups:
    hashes = hash_rows(columns)
    if increases(np.sort(hashes)):
        return _all_apart(length)  # no two hashes are equal, so no two rows are
    order = hashes.argsort()
    start = np.ones(length, bool)
    start[1:] = hashes[order[1:]] != hashes[order[:-1]]
    inverse = np.empty(length, np.int64)
    inverse[order] = start.cumsum() - 1
    first = np.minimum.reduceat(order, np.flatnonzero(start))
    bits = [_as_bits(column) for column in columns]
    # Different rows may have equal hashes, so every row is compared with the first one of its
    # group.
    if not all((column == column[first[inverse]]).all() for column in bits):
        first, inverse = _group_by_sorting(bits)
    # `Groups` are in order of their first rows.
    order = first.argsort()
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    inverse = rank[inverse]
    return Groups(first[order], inverse, np.bincount(inverse, minlength=len(first)))


def hash_rows(columns: Sequence[AnyArray]) -> NDArray[np.uint64]:
    """A 64-bit hash of each row of a table given by its columns,
    which are as in `group_rows`; at least one.
    """
    hashes = np.zeros(len(columns[0]), np.uint64)
    for part in blocks(len(hashes)):
        _mix(hashes[part], [column[part] for column in columns])
    return hashes


def hash_lists(indptr: IntArray, columns: Sequence[AnyArray]) -> NDArray[np.uint64]:
    """A 64-bit hash of each list of rows,
    where list i has the rows ``indptr[i]:indptr[i + 1]`` of the columns.
    """
    position = ranges(0, lengths(indptr))
    # Sum of the hashes of the rows, each combined with its position in the list. Unsigned sums may
    # overflow.
    total = np.concatenate([np.zeros(1, np.uint64), np.cumsum(hash_rows([position, *columns]))])
    return np.diff(total[indptr])


def _as_bits(column: AnyArray) -> NDArray[np.uint64]:
    if column.dtype.kind == "f":
        return (np.asarray(column, np.float64) + 0.0).view(np.uint64)  # + 0.0 turns -0.0 into 0.0
    return np.asarray(column, np.int64).view(np.uint64)


def _mix(state: NDArray[np.uint64], columns: Sequence[AnyArray]) -> None:
    """Mix the columns into ``state`` with the finaliser of splitmix64 (Steele, Lea, Flood 2014)."""
    for column in columns:
        state ^= _as_bits(column)
        state += np.uint64(0x9E3779B97F4A7C15)
        state ^= state >> np.uint64(30)
        state *= np.uint64(0xBF58476D1CE4E5B9)
        state ^= state >> np.uint64(27)
        state *= np.uint64(0x94D049BB133111EB)
        state ^= state >> np.uint64(31)


def _group_by_sorting(bits: Sequence[NDArray[np.uint64]]) -> tuple[IntArray, IntArray]:
    order = np.lexsort(tuple(bits))
    new = np.zeros(len(order), bool)
    for column in bits:
        new[1:] |= column[order[1:]] != column[order[:-1]]
    label = new.cumsum()
    inverse = np.empty(len(order), np.int64)
    inverse[order] = label
    first = np.full(label[-1] + 1, len(order), np.int64)
    np.minimum.at(first, inverse, np.arange(len(order)))
    return first, inverse


def gathered(values: NDArray[Scalar], index: IntArray, missing: Any) -> NDArray[Scalar]:
    """``values[index]``, but ``missing`` where the index is negative."""
    if not len(values):
        return np.full(len(index), missing, values.dtype)
    return np.where(index >= 0, values[index], values.dtype.type(missing))


def mask_of(index: IntArray | BoolArray | Sequence[int], count: int) -> BoolArray:
    """A mask of ``count`` entries that is true at ``index``."""
    mask = np.zeros(count, bool)
    mask[index] = True
    return mask


def stable_order(number: IntArray, count: int) -> IntArray:
    """Stable argsort of numbers from 0 to ``count`` - 1."""
    # numpy sorts numbers of at most 16 bits six times as fast as larger ones.
    return np.argsort(number.astype(np.min_scalar_type(count)), kind="stable")


def owners(length: IntArray | Sequence[int]) -> IntArray:
    """The list to which each entry belongs, for consecutive lists of these lengths."""
    return np.arange(len(length)).repeat(length)


def sum_before(value: Numbers, group: IntArray) -> Numbers:
    """Sum of the earlier values in each row's group of consecutive rows; exactly 0 for the first
    row of a group.
    """
    before = value.cumsum() - value
    return before - before[group.searchsorted(group)]


def finite(value: float | None) -> float | None:
    """The value; None if it is infinite or NaN, which JSON cannot hold."""
    return float(value) if value is not None and math.isfinite(value) else None


def quotient(
    part: FloatArray | float, whole: FloatArray | IntArray, otherwise: float = 0.0
) -> FloatArray:
    """``part / whole``, but ``otherwise`` where ``whole`` is not positive."""
    shape = np.broadcast(part, whole).shape
    # `where` avoids the division by zero and its warning.
    found: FloatArray = np.divide(part, whole, out=np.full(shape, otherwise), where=whole > 0)
    return found


def lengths(pointers: AnyArray) -> IntArray:
    """The lengths of consecutive lists; list i has the entries ``pointers[i]:pointers[i + 1]``."""
    # np.diff does the same but is four times as slow
    return pointers[1:] - pointers[:-1]


def pointers(length: IntArray | BoolArray | Sequence[int], kind: DTypeLike = np.int64) -> IntArray:
    """The start of each of consecutive lists of these lengths, and the end of the last one."""
    found = np.zeros(len(length) + 1, kind)
    np.add.accumulate(length, out=found[1:])
    return found


def ranges(start: IntArray | int, length: IntArray) -> IntArray:
    """Concatenate ``start[i], start[i] + 1, ..., start[i] + length[i] - 1`` over all i;
    ``start`` is one number if all ranges begin with it.
    """
    end = length.cumsum()
    total = int(end[-1]) if len(end) else 0
    if total == 0:
        return EMPTY
    offset: IntArray = (start - end + length).repeat(length)
    return offset + np.arange(total, dtype=np.int64)


def find_sorted(keys: IntArray, wanted: IntArray) -> IntArray:
    """Position of each wanted key in the sorted array ``keys``, -1 if it is missing."""
    if len(keys) == 0:
        return np.full(len(wanted), -1, np.int64)
    position = keys.searchsorted(wanted)
    position[position == len(keys)] = 0
    return np.where(keys[position] == wanted, position, -1)


def table_of(*columns: NDArray[Scalar]) -> NDArray[Scalar]:
    """Columns, and tables, side by side; shape (rows, fields).

    Each field is in one piece of memory, unlike those of `np.column_stack`: reading one field of
    long rows takes as long as reading all of them.
    """
    return np.stack([field for column in columns for field in np.atleast_2d(column.T)]).T


def rows_of_table(table: NDArray[Scalar], rows: IntArray) -> NDArray[Scalar]:
    """``table[rows]``, each field in one piece of memory (`table_of`)."""
    return table.T.take(rows, axis=1).T


def find_rows(known: IntArray, wanted: IntArray) -> IntArray:
    """Index in ``known`` of each wanted row, -1 if it is missing; both of shape (rows, fields)."""
    if not len(known) or not len(wanted):
        return np.full(len(wanted), -1, np.int64)
    before = len(known)
    if before + len(wanted) <= SMALL_TABLE:
        return _found_among_a_few(known, wanted)
    found = _found_by_number(known, wanted)
    if found is not None:
        return found
    groups = group_rows(list(np.concatenate([known, wanted]).T), before + len(wanted))
    first = groups.first[groups.inverse[before:]]
    return np.where(first < before, first, -1)


def _found_among_a_few(known: IntArray, wanted: IntArray) -> IntArray:
    """The same by a dictionary of the bytes of the rows."""
    # The last value written wins, which is the first of several equal rows.
    row = dict(zip(_bytes_of_rows(known[::-1]), range(len(known) - 1, -1, -1), strict=True))
    found = map(row.get, _bytes_of_rows(wanted), repeat(-1))
    return np.fromiter(found, np.int64, len(wanted))


def _bytes_of_rows(rows: IntArray) -> list[bytes]:
    numbers = np.ascontiguousarray(rows, np.int64)
    one_row = np.dtype((np.void, numbers.itemsize * numbers.shape[1]))
    found: list[Any] = numbers.view(one_row).ravel().tolist()
    return found


def _found_by_number(known: IntArray, wanted: IntArray) -> IntArray | None:
    """The same by a lookup table over the first fields for which it is not too large; None if these
    do not distinguish the known rows.
    """
    room, number, asked = 1, np.zeros(len(known), np.int64), np.zeros(len(wanted), np.int64)
    others = []
    # Fields are read several times: each is in one piece (`table_of`), or copied into one.
    for known_field, wanted_field in zip(
        np.ascontiguousarray(known.T), np.ascontiguousarray(wanted.T), strict=True
    ):
        low = min(int(known_field.min()), int(wanted_field.min()))
        size = max(int(known_field.max()), int(wanted_field.max())) - low + 1
        if size == 1:
            continue
        if room * size > ROOM * len(known):
            others.append((known_field, wanted_field))
            continue
        room *= size
        number = number * size + (known_field - low)
        asked = asked * size + (wanted_field - low)
    row = np.arange(len(known))
    table = np.full(room, -1, np.int64)
    table[number] = row
    # Two known rows have the same number: the fields used do not distinguish them.
    if (table[number] != row).any():
        return None
    found = table[asked]
    for known_field, wanted_field in others:  # rows with the same number may differ there
        found[known_field[found] != wanted_field] = -1
    return found
