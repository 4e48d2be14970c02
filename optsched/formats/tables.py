"""Tables in CSV: bytes to columns of checked cells. Every error names file, line and column."""

from __future__ import annotations

import csv
import io
import logging
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.errors import MOST_SHOWN, InvalidInput, all_wrong, did_you_mean
from optsched.formats.inputs import Source, called, contents
from optsched.instance.durations import PATTERN, UNITS
from optsched.instance.reading import listed, show

log = logging.getLogger("optsched")

DELIMITERS = ",;\t"
MOST_LINE = 2**20
# A count is a number that is usually large and an integer, such as steps.
Kind = Literal["text", "number", "count", "rate", "whole", "seconds"]
Cell = str | float | int
EXPECTED: dict[Kind, str] = {
    "text": "a text",
    "number": "a number",
    "count": "a number",
    "rate": "a number, 0 where the workload cannot run",
    "whole": "a whole number",
    "seconds": "a number of seconds, or a duration such as 90s, 5m, 2h or 1d",
}
# 400,000 and 400.000, 400'000, 400 000 as spreadsheets of many countries write them
THOUSANDS = re.compile(r"[1-9]\d{0,2}(?:[,.'\u2019\s]\d{3})+")
# First bytes of spreadsheet files that are not CSV: a zip archive, or the older format
SPREADSHEETS = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")


def _seconds(cell: str) -> float:
    """Seconds (may be negative on a clock) or a duration with a unit."""
    duration = PATTERN.fullmatch(cell)
    return float(duration[1]) * UNITS[duration[2]] if duration else float(cell)


READERS: dict[Kind, Callable[[str], Cell]] = {
    "text": str,
    "number": float,
    "count": float,
    "rate": float,
    "whole": int,
    "seconds": _seconds,
}


class WrongCells:
    """Collects the errors of a table's cells to report them together: `MOST_SHOWN` are shown, the
    others are counted.

    Attributes
    ----------
    lines : set of int
        Lines with an error.
    places : set of str
        Their ``file:line:column``.
    """

    def __init__(self) -> None:
        self._count = 0
        self._errors: list[tuple[int, InvalidInput]] = []
        self.lines: set[int] = set()
        self.places: set[str] = set()

    def add(self, line: int, error: InvalidInput) -> None:
        """Add the error of a cell in a line."""
        errors = error.one_by_one()
        self.lines.add(line)
        self.places.update(single.path for single in errors)
        self._count += len(errors) + error.more
        self._errors += [(line, single) for single in errors]
        # A table with a million wrong cells must not create a million exceptions
        if len(self._errors) > 50 * MOST_SHOWN:
            self._errors = self._first()

    @contextmanager
    def gathered(self, line: int = 0) -> Iterator[None]:
        """Add the errors that the block raises."""
        try:
            yield
        except InvalidInput as error:
            self.add(line, error)

    def refuse(self, more: int = 0) -> None:
        """Raise `InvalidInput` if there are errors, in the order of lines; ``more`` is the number
        of other errors to count.
        """
        if self._errors:
            errors = [error for _, error in self._first()]
            raise all_wrong(errors, self._count + more)

    def _first(self) -> list[tuple[int, InvalidInput]]:
        return sorted(self._errors, key=lambda item: item[0])[:MOST_SHOWN]


@dataclass(frozen=True, eq=False)
class Table:
    """A table, column by column; empty lines are left out.

    Attributes
    ----------
    name : str
        Of the file, for messages.
    line : IntArray, shape (N,)
        Lines of the rows, from 1.
    cells : mapping from str to tuple of str
        The cells of each column, without spaces around them.
    numbers : mapping from str to FloatArray, shape (N,)
        The columns of numbers; NaN for empty cells.
    kinds : mapping from str to Kind
        Kinds of the allowed columns.
    written : mapping from str to str
        Name of each column in the file.
    """

    name: str
    line: IntArray
    cells: Mapping[str, tuple[str, ...]]
    numbers: Mapping[str, FloatArray]
    kinds: Mapping[str, Kind]
    written: Mapping[str, str]

    def __len__(self) -> int:
        return len(self.line)

    def __contains__(self, column: str) -> bool:
        return column in self.cells

    def row_place(self, row: int) -> str:
        """File and line of a row: ``jobs.csv:3``."""
        return f"{self.name}:{self.line[row]}"

    def place(self, row: int, column: str) -> str:
        """File, line and column of a cell: ``jobs.csv:3:steps``."""
        return f"{self.row_place(row)}:{self.written.get(column, column)}"

    def error(self, row: int, column: str, found: str, expected: str) -> InvalidInput:
        """The error of a cell, to be raised."""
        return InvalidInput(self.place(row, column), found, expected)

    def value(self, row: int, column: str) -> Cell | None:
        """The value of a cell; None if it is empty, or if there is no such column."""
        cell = self.cells[column][row] if column in self.cells else ""
        if not cell:
            return None
        return READERS[self.kinds[column]](cell)

    def documents(self) -> list[dict[str, Cell]]:
        """The non-empty cells of each row, by column."""
        rows: list[dict[str, Cell]] = [{} for _ in range(len(self))]
        for column, cells in self.cells.items():
            read = READERS[self.kinds[column]]
            for row, cell in zip(rows, cells, strict=True):
                if cell:
                    row[column] = read(cell)
        return rows

    def text(self, row: int, column: str) -> str:
        """A cell of text that may not be empty; raises `InvalidInput`."""
        value = self.value(row, column)
        if value is None:
            raise self.error(row, column, "nothing", EXPECTED["text"])
        return str(value)

    def number(
        self,
        row: int,
        column: str,
        allowed: Callable[[float], bool],
        expected: str,
    ) -> float | None:
        """A cell of numbers, None if it is empty;
        raises `InvalidInput` for a number that is not allowed.
        """
        value = self.value(row, column)
        if value is None:
            return None
        if not allowed(float(value)):
            raise self.error(row, column, show(value), expected)
        return float(value)

    def some_number(
        self,
        row: int,
        column: str,
        allowed: Callable[[float], bool],
        expected: str,
    ) -> float:
        """As `number`, but the cell must not be empty."""
        value = self.number(row, column, allowed, expected)
        if value is None:
            raise self.error(row, column, "nothing", expected)
        return value

    def refuse(self, column: str, wrong: BoolArray, expected: str) -> None:
        """Refuse the rows that are wrong; raises `InvalidInput`."""
        cells = self.cells[column]
        errors = WrongCells()
        for row in np.flatnonzero(wrong).tolist():
            found = show(cells[row]) if cells[row] else "nothing"
            errors.add(int(self.line[row]), self.error(row, column, found, expected))
        errors.refuse()

    def whole(self, column: str, least: int, expected: str) -> IntArray:
        """Whole numbers from ``least`` to 2^31; raises `InvalidInput`."""
        numbers = self.numbers[column]
        self.refuse(column, ~((least <= numbers) & (numbers <= 2**31)), expected)
        return numbers.astype(np.int64)

    def flags(self, column: str) -> BoolArray:
        """0 or 1; an empty cell, or no such column, is 0; raises `InvalidInput`."""
        if column not in self:
            return np.zeros(len(self), bool)
        numbers = self.numbers[column]
        self.refuse(column, ~(np.isnan(numbers) | (numbers == 0) | (numbers == 1)), "0 or 1")
        return np.asarray(numbers == 1)

    def names(self, column: str) -> tuple[str, ...]:
        """Texts that must all differ; raises `InvalidInput` for repeated ones."""
        errors = WrongCells()
        self.find_repeated(column, errors)
        errors.refuse()
        return self.cells[column]

    def find_empty(self, column: str, wrong: WrongCells) -> None:
        """Add empty cells to ``wrong``."""
        expected = EXPECTED[self.kinds[column]]
        for row, cell in enumerate(self.cells[column]):
            if not cell:
                wrong.add(int(self.line[row]), self.error(row, column, "nothing", expected))

    def find_repeated(self, column: str, wrong: WrongCells) -> None:
        """Add repeated cells to ``wrong``, except empty ones."""
        known: dict[str, int] = {}
        for row, cell in enumerate(self.cells[column]):
            if cell and known.setdefault(cell, row) != row:
                found = f"{show(cell)} a second time, after line {self.line[known[cell]]}"
                error = self.error(row, column, found, "names that differ")
                wrong.add(int(self.line[row]), error)

    def only(self, columns: Collection[str]) -> Table:
        """The table without other columns."""
        return replace(
            self, cells={name: cells for name, cells in self.cells.items() if name in columns}
        )

    def without(self, lines: Collection[int]) -> Table:
        """The table without some lines."""
        if not lines:
            return self
        keep = [row for row, line in enumerate(self.line.tolist()) if line not in lines]
        return replace(
            self,
            line=self.line[keep],
            cells={name: tuple(cells[row] for row in keep) for name, cells in self.cells.items()},
            numbers={name: numbers[keep] for name, numbers in self.numbers.items()},
        )


def read_header(data: bytes, name: str) -> tuple[str, ...]:
    """The cells of the first line that is not empty; () for an empty file."""
    for _, cells in csv_lines(data, name):
        return tuple(cell.strip() for cell in cells)
    return ()


def read_table(
    source: Source,
    otherwise: str,
    columns: Mapping[str, Kind],
    required: Collection[str],
    synonyms: Mapping[str, str] | None = None,
    *,
    least: str | None = "job",
    others: bool = False,
    remedy: str = "",
    distinct: Sequence[str] = (),
    wrong: WrongCells | None = None,
) -> Table:
    """Read a table whose first line names the columns.

    UTF-8 with or without a byte order mark; any line ends; cells in double quotes; commas,
    semicolons or tabs between cells, whichever the first line has most of. Spaces around cells,
    empty lines, and the case of column names are ignored.

    Parameters
    ----------
    source : path or bytes
    otherwise : str
        Name of the table in messages if only its contents are known.
    columns : mapping
        Allowed columns, and the kinds of their cells.
    required : collection of str
        Required columns, without empty cells.
    synonyms : mapping, optional
        Other names that a file may have for a column.
    least : str, optional
        Name of a row in messages; at least one is required. None if a table may be empty.
    others : bool, default False
        Whether other columns (texts) are allowed.
    remedy : str
        Advice about other columns, appended to their message.
    distinct : sequence of str
        Columns whose cells must differ, except empty ones.
    wrong : WrongCells, optional
        If given, errors of cells are added to it instead of raised, and unreadable rows are left
        out.

    Raises
    ------
    InvalidInput
        With ``file:line:column``, what was found and what was expected, of each wrong cell.
    """
    name = called(source, otherwise)
    lines = csv_lines(contents(source), name)
    first = next(lines, None)
    if first is None:
        expected = f"a first line with the columns, such as {','.join(required)}"
        raise InvalidInput(name, "an empty file", expected)
    as_written = [cell.strip() for cell in first[1]]
    header = known_columns(as_written, columns, synonyms)
    if others:
        columns = {**dict.fromkeys(header, "text"), **columns}
    _check_header(f"{name}:{first[0]}", header, columns, required, remedy)
    rows = list(lines)
    if not rows and least is not None:
        raise InvalidInput(name, "no line below the first", f"at least one {least}")
    found = WrongCells() if wrong is None else wrong
    written = dict(zip(header, as_written, strict=True))
    table = _checked_table(name, rows, written, columns, required, distinct, found)
    if wrong is None:
        found.refuse()
    for column in header:
        if columns[column] == "count":
            _warn_of_thousands(table, column)
    return table


def read_headless(
    source: Source,
    otherwise: str,
    layouts: Collection[Sequence[str]],
    columns: Mapping[str, Kind],
    required: Collection[str],
) -> Table:
    """Read a table of cells between tabs, without a line that names its columns.

    Parameters
    ----------
    source, otherwise, required
        As in `read_table`; required columns that the layout lacks are ignored.
    layouts : collection of sequences of str
        Possible lists of columns, in order; the number of cells in the first line selects one.
    columns : mapping
        Kinds of the columns that are not texts.

    Raises
    ------
    InvalidInput
        With ``file:line:column N (NAME)``, what was found and what was expected, of each wrong
        cell.
    """
    name = called(source, otherwise)
    # Do not use csv here: cells may contain quotes and line separators
    text = enumerate(_decoded(contents(source), name).split("\n"), 1)
    rows = [(number, line.split("\t")) for number, line in text if line.strip()]
    widths = {len(layout): layout for layout in layouts}
    expected = f"{' or '.join(map(str, widths))} cells between tabs"
    if not rows:
        raise InvalidInput(name, "an empty file", f"lines of {expected}")
    number, first = rows[0]
    if len(first) not in widths:
        raise InvalidInput(f"{name}:{number}", f"{len(first)} cells", expected)
    layout = widths[len(first)]
    written = {column: f"column {place} ({column})" for place, column in enumerate(layout, 1)}
    kinds: dict[str, Kind] = {**dict.fromkeys(layout, "text"), **columns}
    wrong = WrongCells()
    present = [column for column in required if column in layout]
    table = _checked_table(name, rows, written, kinds, present, (), wrong)
    wrong.refuse()
    return table


def _checked_table(
    name: str,
    rows: Sequence[tuple[int, list[str]]],
    written: Mapping[str, str],
    columns: Mapping[str, Kind],
    required: Collection[str],
    distinct: Sequence[str],
    wrong: WrongCells,
) -> Table:
    """The table of the readable rows; errors of the others are added to ``wrong``."""
    rows = _with_all_cells(rows, len(written), name, wrong)
    cells = {
        column: tuple(cells[place].strip() for _, cells in rows)
        for place, column in enumerate(written)
    }
    line = np.array([number for number, _ in rows], np.int64)
    table = Table(name, line, cells, {}, columns, written)
    for column in required:
        table.find_empty(column, wrong)
    numbers = {
        column: _numbers(table, column, wrong) for column in written if columns[column] != "text"
    }
    unreadable = set(wrong.lines)
    for column in distinct:
        if column in table:
            table.find_repeated(column, wrong)
    return replace(table, numbers=numbers).without(unreadable)


def _with_all_cells(
    rows: Sequence[tuple[int, list[str]]], columns: int, name: str, wrong: WrongCells
) -> list[tuple[int, list[str]]]:
    """The rows with a cell in each column; errors of the others are added to ``wrong``."""
    for number, cells in rows:
        if len(cells) != columns:
            expected = f"{columns}, as in the first line"
            wrong.add(number, InvalidInput(f"{name}:{number}", f"{len(cells)} cells", expected))
    return [row for row in rows if len(row[1]) == columns]


def known_columns(
    header: Sequence[str], columns: Iterable[str], synonyms: Mapping[str, str] | None = None
) -> list[str]:
    """The columns that the cells of a header mean; unknown cells are returned unchanged.

    An exact name comes first. Otherwise the case is ignored, if the result is unique.
    """
    exact = {column: column for column in columns} | dict(synonyms or {})
    folded: dict[str, set[str]] = {}
    for name, column in exact.items():
        folded.setdefault(name.casefold(), set()).add(column)
    meant = []
    for cell in header:
        near = folded.get(cell.casefold(), set())
        meant.append(exact.get(cell, next(iter(near)) if len(near) == 1 else cell))
    return meant


def _numbers(table: Table, column: str, wrong: WrongCells) -> FloatArray:
    """Parse all cells at once or, if that fails, one by one; errors are added to ``wrong``."""
    cells = table.cells[column]
    kind = table.kinds[column]
    try:
        values = np.array(list(map(READERS[kind], cells)), np.float64)
        # Python reads 1_000, inf and nan as numbers; a table must not have them
        if np.isfinite(values).all() and not any("_" in cell for cell in cells):
            return values
    except (ValueError, OverflowError):
        pass
    numbers = np.full(len(cells), math.nan)
    for row, cell in enumerate(cells):
        if not cell:
            continue
        try:
            numbers[row] = _number(cell, kind, table.place(row, column))
        except InvalidInput as error:
            wrong.add(int(table.line[row]), error)
    return numbers


def _decoded(data: bytes, name: str) -> str:
    """Text of UTF-8 with or without a byte order mark; raises `InvalidInput` with the line."""
    if data.startswith(SPREADSHEETS):
        raise InvalidInput(name, "a spreadsheet, or an archive", "text: save it as CSV UTF-8")
    _refuse_long_lines(data, name)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # Position in the decoded text, without the byte order mark
        decoded, start = error.object, error.start
        line = decoded[:start].count(b"\n") + 1
        found = f"the byte 0x{decoded[start]:02x}"
        raise InvalidInput(f"{name}:{line}", found, "text in UTF-8") from None
    before, null, _ = text.partition("\0")
    if null:
        expected = "text in UTF-8 without such"
        raise InvalidInput(f"{name}:{before.count(chr(10)) + 1}", "a null character", expected)
    return text


def _refuse_long_lines(data: bytes, name: str) -> None:
    """Refuse long lines (`MOST_LINE` bytes) before any copy is made; a line of twice the length is
    always found.
    """
    # A line of twice the length spans a whole block, so it is always found
    for start in range(0, len(data) - MOST_LINE + 1, MOST_LINE):
        stop = start + MOST_LINE
        if data.find(b"\n", start, stop) < 0 and data.find(b"\r", start, stop) < 0:
            line = data.count(b"\n", 0, start) + 1
            raise InvalidInput(
                f"{name}:{line}", f"a line of more than {MOST_LINE:,} bytes", "a line for each row"
            )


def csv_lines(data: bytes, name: str) -> Iterator[tuple[int, list[str]]]:
    """(line number, cells) of the lines that are not empty;
    a quoted cell may span several lines. Raises `InvalidInput` with ``name:line``.
    """
    text = _decoded(data, name)
    # Delimiters in quotes are part of a name, so they are not counted
    head = next((line for line in text.splitlines() if line.strip(" \t,;")), "")
    unquoted = "".join(head.split('"')[::2])
    # In a tie the first one is taken: a comma
    delimiter = max(DELIMITERS, key=unquoted.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    line = 1
    while True:
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise InvalidInput(
                f"{name}:{line}", f"text that is not CSV ({error})", "quotes that are closed"
            ) from None
        if any(cell.strip() for cell in cells):
            yield line, cells
        line = reader.line_num + 1


SPOKEN = {"job": "id", "job name": "id", "job id": "id", "name": "id", "gpu count": "gpus"}
"""Common other names of columns."""


def _check_header(
    where: str,
    header: Sequence[str],
    columns: Mapping[str, Kind],
    required: Collection[str],
    remedy: str,
) -> None:
    """Refuse unknown, repeated and missing columns, all in one error."""
    wrong = WrongCells()
    for row, column in enumerate(header):
        if column not in columns:
            meant = SPOKEN.get(column.casefold().replace("_", " "), column)
            hint = did_you_mean(meant, columns, aside=True)
            found = (
                f"an unknown column {show(column)}" if column else f"no name in column {row + 1}"
            )
            wrong.add(0, InvalidInput(where, found, f"some of {listed(columns)}{hint}{remedy}"))
        elif column in header[:row]:
            found = f"the column {column} a second time"
            wrong.add(0, InvalidInput(where, found, "each column once"))
    for column in required:
        if column not in header:
            expected = f"one, beside {listed(header)}"
            wrong.add(0, InvalidInput(where, f"no column {column}", expected))
    wrong.refuse()


def _number(cell: str, kind: Kind, place: str) -> float:
    """The number that a cell holds; raises `InvalidInput`."""
    try:
        number = float(READERS[kind](cell))
        if math.isfinite(number) and "_" not in cell:
            return number
    except (ValueError, OverflowError):
        pass
    raise InvalidInput(place, show(cell), EXPECTED[kind] + _spreadsheet_hint(cell, kind))


def _spreadsheet_hint(cell: str, kind: Kind) -> str:
    """A hint for a number in the format of a national locale."""
    if THOUSANDS.fullmatch(cell):
        return ", without thousands separators"
    if kind != "whole" and "," in cell:
        return " with a point, not a comma"
    return ""


def _warn_of_thousands(table: Table, column: str) -> None:
    """Warn of a column of counts in which every point may be a thousands separator."""
    cells = [cell for cell in table.cells[column] if cell]
    # Only numbers with one point matter: 1.234.567 is not a number and is refused
    if cells and all("." in cell and THOUSANDS.fullmatch(cell) for cell in cells):
        log.warning(
            "%s: column %s: %s is read as %s: write numbers without thousands separators",
            table.name,
            table.written[column],
            cells[0],
            show(float(cells[0])),
        )
