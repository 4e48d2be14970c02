"""Tables in CSV: bytes to checked cells, with every error told by file, line and column."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from optsched.errors import InvalidInput, did_you_mean
from optsched.instance.reading import listed, show

DELIMITERS = ",;\t"
MOST_LINE = 2**20
Kind = Literal["text", "number", "whole"]
Cell = str | float | int


@dataclass(frozen=True)
class Row:
    """Cells of a line that are not empty, by column; ``line`` counts from 1."""

    line: int
    cells: Mapping[str, Cell]


@dataclass(frozen=True)
class Table:
    """A table with its columns and its rows; empty lines are left out.

    ``written`` has the columns that the file calls otherwise than we do.
    """

    name: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    written: Mapping[str, str] = field(default_factory=dict)

    def place(self, row: Row, column: str) -> str:
        """Where a cell stands: ``jobs.csv:3:steps``."""
        return f"{self.name}:{row.line}:{self.written.get(column, column)}"


def read_header(data: bytes, name: str) -> tuple[str, ...]:
    """The cells of the first line of a table that is not empty; of an empty file none."""
    for _, cells in lines_of(decoded(data, name), name):
        return tuple(cell.strip() for cell in cells)
    return ()


def read_table(
    data: bytes,
    name: str,
    columns: Mapping[str, Kind],
    required: Sequence[str],
    synonyms: Mapping[str, str] | None = None,
) -> Table:
    """Read a table whose first line names the columns.

    UTF-8 with or without a byte order mark; any line ends; cells in double quotes; commas, semicolons or tabs between
    cells, whichever the first line has most of. Spaces around cells don't count, nor do empty lines.

    Parameters
    ----------
    name : str
        Of the file, for messages.
    columns : mapping
        Columns that there may be, and what their cells hold.
    required : sequence of str
        Columns that there must be, without empty cells.
    synonyms : mapping, optional
        Other names that a file may have for a column.

    Raises
    ------
    InvalidInput
        With ``file:line:column``, what was found and what was expected.
    """
    lines = lines_of(decoded(data, name), name)
    first = next(lines, None)
    if first is None:
        raise InvalidInput(
            name, "an empty file", f"a first line with the columns, such as {','.join(required)}"
        )
    line, cells = first
    as_written = [cell.strip() for cell in cells]
    header = [(synonyms or {}).get(cell, cell) for cell in as_written]
    written = dict(zip(header, as_written, strict=True))
    check_header(f"{name}:{line}", header, columns, required)
    rows = []
    for line, cells in lines:
        if len(cells) != len(header):
            raise InvalidInput(
                f"{name}:{line}", f"{len(cells)} cells", f"{len(header)}, as in the first line"
            )
        given = {column: cell.strip() for column, cell in zip(header, cells, strict=True)}
        rows.append(
            Row(
                line,
                {
                    c: value_of(cell, columns[c], f"{name}:{line}:{written[c]}")
                    for c, cell in given.items()
                    if cell
                },
            )
        )
        for column in required:
            if not given[column]:
                raise InvalidInput(
                    f"{name}:{line}:{written[column]}", "nothing", EXPECTED[columns[column]]
                )
    return Table(name, tuple(header), tuple(rows), written)


def decoded(data: bytes, name: str) -> str:
    """UTF-8 with or without a byte order mark, in lines of a sane length; raises `InvalidInput` with the line."""
    _refuse_long_lines(data, name)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise InvalidInput(
            f"{name}:{line}", f"the byte 0x{data[error.start]:02x}", "text in UTF-8"
        ) from None
    before, null, _ = text.partition("\0")
    if null:
        expected = "text in UTF-8 without such"
        raise InvalidInput(f"{name}:{before.count(chr(10)) + 1}", "a null character", expected)
    return text


def _refuse_long_lines(data: bytes, name: str) -> None:
    """Refuse a line of `MOST_LINE` bytes or more before any copy of it is made; one twice as long never passes."""
    for start in range(0, len(data) - MOST_LINE + 1, MOST_LINE):
        stop = start + MOST_LINE
        if data.find(b"\n", start, stop) < 0 and data.find(b"\r", start, stop) < 0:
            line = data.count(b"\n", 0, start) + 1
            raise InvalidInput(
                f"{name}:{line}", f"a line of more than {MOST_LINE:,} bytes", "a line for each row"
            )


def lines_of(text: str, name: str) -> Iterator[tuple[int, list[str]]]:
    """(line number, cells) of the lines that are not empty; a quoted cell may go over several lines."""
    head = next((line for line in text.splitlines() if line.strip(" \t,;")), "")
    unquoted = "".join(head.split('"')[::2])
    delimiter = max(DELIMITERS, key=unquoted.count)  # the first of equals: a comma
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


def check_header(
    where: str, header: Sequence[str], columns: Mapping[str, Kind], required: Sequence[str]
) -> None:
    """Refuse unknown columns, those that stand twice and those that are missing."""
    for row, column in enumerate(header):
        if column not in columns:
            hint = did_you_mean(column, columns, aside=True)
            found = (
                f"an unknown column {show(column)}" if column else f"no name in column {row + 1}"
            )
            raise InvalidInput(where, found, f"some of {listed(columns)}{hint}")
        if column in header[:row]:
            raise InvalidInput(where, f"the column {column} a second time", "each column once")
    for column in required:
        if column not in header:
            raise InvalidInput(where, f"no column {column}", f"one, beside {listed(header)}")


EXPECTED: dict[Kind, str] = {"text": "a text", "number": "a number", "whole": "a whole number"}


def value_of(cell: str, kind: Kind, place: str) -> Cell:
    """What a cell that is not empty says; raises `InvalidInput`."""
    if kind == "text":
        return cell
    try:
        number = int(cell) if kind == "whole" else float(cell)
        if math.isfinite(number) and "_" not in cell:
            return number
    except (ValueError, OverflowError):
        pass
    hint = " with a point, not a comma" if kind == "number" and "," in cell else ""
    raise InvalidInput(place, show(cell), EXPECTED[kind] + hint)
