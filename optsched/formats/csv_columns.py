"""Long tables in CSV as arrays: every cell checked, no object per line, errors told by file, line and column."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.errors import InvalidInput
from optsched.formats.csv_text import decoded, lines
from optsched.instance.files import no_collection
from optsched.instance.reading import listed, show

Kind = Literal["text", "number", "whole", "time"]
LARGEST = 1e15
"""Largest number of a cell."""


@dataclass(frozen=True)
class Columns:
    """A table by columns; empty lines are left out.

    Attributes
    ----------
    name : str
        Of the file, for messages.
    line : IntArray, shape (N,)
        Line of the file that each row stands on, from 1.
    texts : mapping from str to list of str
        Cells of the ``text`` columns, without spaces around them.
    numbers : mapping from str to FloatArray
        The others: numbers, and times in seconds; NaN where a cell is empty, which only columns may be that are not
        required.
    """

    name: str
    line: IntArray
    texts: Mapping[str, list[str]]
    numbers: Mapping[str, FloatArray]

    def __len__(self) -> int:
        return len(self.line)

    def place(self, row: int, column: str) -> str:
        """Where a cell stands: ``jobs.csv:3:steps``."""
        return f"{self.name}:{self.line[row]}:{column}"

    def refuse(self, wrong: BoolArray, column: str, expected: str) -> None:
        """Raise `InvalidInput` for the first wrong cell, if there is one."""
        for row in np.flatnonzero(wrong)[:1].tolist():
            found = self.texts[column][row] if column in self.texts else float(self.numbers[column][row])
            raise InvalidInput(self.place(row, column), show(found), expected)


def read_columns(data: bytes, name: str, columns: Mapping[str, Kind], required: Sequence[str]) -> Columns:
    """Read a table whose first line names the columns; columns that nobody asked for are not looked at.

    UTF-8 with or without a byte order mark; any line ends; cells in double quotes; commas, semicolons or tabs between
    cells. A ``time`` is one such as ``2017-10-09 07:01:55``, without a zone; seconds count from 1970.

    Raises
    ------
    InvalidInput
        With ``file:line:column``, what was found and what was expected.
    """
    with no_collection():
        read = list(lines(decoded(data, name), name))
    if not read:
        raise InvalidInput(name, "an empty file", f"a first line with the columns, such as {','.join(required)}")
    first, cells = read[0]
    header = [cell.strip() for cell in cells]
    for column in required:
        if column not in header:
            raise InvalidInput(f"{name}:{first}", f"no column {column}", f"one, beside {listed(header)}")
    for place, column in enumerate(header):
        if column in columns and column in header[:place]:
            raise InvalidInput(f"{name}:{first}", f"the column {column} a second time", "each column once")
    rows = read[1:]
    for line, row in rows:
        if len(row) != len(header):
            raise InvalidInput(f"{name}:{line}", f"{len(row)} cells", f"{len(header)}, as in the first line")
    by_column = list(zip(*(row for _, row in rows), strict=True)) if rows else [()] * len(header)
    made = Columns(name, np.array([line for line, _ in rows], np.int64), {}, {})
    texts: dict[str, list[str]] = {}
    numbers: dict[str, FloatArray] = {}
    for column, kind in columns.items():
        if column not in header:
            continue
        given = [cell.strip() for cell in by_column[header.index(column)]]
        if column in required and "" in given:
            raise InvalidInput(made.place(given.index(""), column), "nothing", _EXPECTED[kind])
        if kind == "text":
            texts[column] = given
        else:
            numbers[column] = _values(given, kind, made, column)
    return Columns(name, made.line, texts, numbers)


_EXPECTED = {
    "text": "a text", "number": "a number", "whole": "a whole number", "time": "a time such as 2017-10-09 07:01:55",
}  # fmt: skip


def _values(given: list[str], kind: Kind, table: Columns, column: str) -> FloatArray:
    made = _times(given) if kind == "time" else _numbers(given)
    if made is None:  # some cell is wrong: look for the first
        one = _times if kind == "time" else _numbers
        row = next(row for row, cell in enumerate(given) if one([cell]) is None)
        raise InvalidInput(table.place(row, column), show(given[row]), _EXPECTED[kind])
    if kind == "whole":
        wrong = np.flatnonzero(~np.isnan(made) & (made != np.floor(made)))
        for row in wrong[:1].tolist():
            raise InvalidInput(table.place(row, column), show(given[row]), _EXPECTED[kind])
    return made


def _numbers(cells: Sequence[str]) -> FloatArray | None:
    """Numbers, NaN where a cell is empty; None if some cell is no finite number."""
    try:
        made = np.array([cell or "nan" for cell in cells], np.float64)
    except ValueError:
        return None
    empty = np.array([not cell for cell in cells], bool)
    fine = (np.abs(made) <= LARGEST) | empty
    return made if fine.all() and not any("_" in cell for cell in cells) else None


def _times(cells: Sequence[str]) -> FloatArray | None:
    if any(len(cell) != 19 for cell in cells if cell):
        return None
    try:
        made = np.array([cell or "NaT" for cell in cells], "datetime64[s]")
    except ValueError:
        return None
    empty = np.array([not cell for cell in cells], bool)
    return None if (np.isnat(made) & ~empty).any() else np.where(empty, math.nan, made.astype(np.int64) * 1.0)


def indexed(texts: Sequence[str]) -> tuple[tuple[str, ...], IntArray]:
    """Distinct texts in order of first appearance, and the place of each."""
    rows: dict[str, int] = {}
    column = np.array([rows.setdefault(text, len(rows)) for text in texts], np.int64)
    return tuple(rows), column
