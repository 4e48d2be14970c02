"""Rows as a table in a file: CSV or JSON, in the order of the tasks;
and read again, from JSON lines too.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from optsched.api import write_atomically
from optsched.benchmarking.cells import NUMBER, cell_of, text_of
from optsched.benchmarking.results import OVERHEAD
from optsched.benchmarking.results_file import FORMAT, parse_lines
from optsched.errors import InvalidInput, wrong_ending
from optsched.formats.tables import csv_lines
from optsched.instance.files import pretty_json
from optsched.instance.reading import named, parse_json, read_bytes, show

# --- which rows are accepted ---------------------------------------------------------------------

TEXT = frozenset(
    {
        "instance",
        "trace",
        "sha256",
        "formulation",
        "options",
        "constraints",
        "policy",
        "solver",
        "solver_used",
        "solver_version",
        "settings",
        "status",
        "sense",
        "proof",
        "best_known_from",
        "termination",
        "error",
        "optsched",
        "python",
        "cpu",
        "date",
        "key",
        "notes",
    }
)
"""Columns whose cells are text, in CSV even those that look like numbers."""
STRUCTURED = frozenset({"options", "constraints", "settings"})
"""Columns that may be lists and objects as well."""
COUNTS = frozenset({"seed", "threads"})
"""Columns that say what was asked, by a number."""
LARGEST = 1e150
"""No figure is larger: squares of it are still numbers."""


def check_rows(rows: Sequence[Mapping[str, Any]], path: str | Path) -> None:
    """Refuse rows that no sweep writes.

    Raises
    ------
    InvalidInput
        With the row (from 1) and the column.
    """
    if not any("status" in row for row in rows):
        raise InvalidInput(
            "", "another table", "the results of a sweep, of which each has a status", str(path)
        )
    for place, row in enumerate(rows, 1):
        for name, value in row.items():
            expected = _wrong(name, value)
            if expected is not None:
                raise InvalidInput(f"row {place}, {name}", show(value), expected, str(path))
        if row.get("status") is None:
            raise InvalidInput(
                f"row {place}, status", "nothing", "the outcome of the task", str(path)
            )
        if row.get("instance") is None and row.get("trace") is None:
            raise InvalidInput(
                f"row {place}",
                "neither instance nor trace",
                "what was solved or simulated",
                str(path),
            )


def _wrong(name: str, value: Any) -> str | None:
    """What was expected in the place of a value; None if it is fine."""
    if value is None:
        return None
    if name == "sense":
        return None if value in ("max", "min", "rule") else "max, min or rule"
    if name in TEXT:
        structured = name in STRUCTURED and isinstance(value, list | dict)
        return None if isinstance(value, str) or structured else "text"
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if number and not -LARGEST <= value <= LARGEST:
        return f"a number between {-LARGEST:g} and {LARGEST:g}, or nothing"
    if name in OVERHEAD or name in COUNTS:
        return None if number else "a number, or nothing"
    if name.endswith(("_s", "_ms")):
        return None if number and value >= 0 else "a time, or nothing"
    return None


# --- files ---------------------------------------------------------------------------------------

Row = dict[str, Any]
ORDER = (
    "instance",
    "trace",
    "sha256",
    "n",
    "m",
    "classes",
    "columns",
    "formulation",
    "options",
    "constraints",
    "policy",
    "solver",
    "solver_used",
    "solver_version",
    "status",
    "objective",
    "sense",
    "bound",
    "proof",
    "gap",
    "best_known",
    "best_known_from",
    "gap_to_best",
    "load_s",
    "compile_s",
    "build_s",
    "solve_s",
    "certify_s",
    "total_s",
    "wall_s",
    "iterations",
    "nodes",
    "peak_memory_mb",
    "seed",
    "repeat",
    "threads",
    "time_limit_s",
    "settings",
    "termination",
    "error",
    "notes",
)
"""Columns that come first, where there are any; those that nobody foresaw follow."""
LAST = ("exit_code", "optsched", "python", "cpu", "cores", "date", "key")
SUFFIXES = (".csv", ".json", ".jsonl")


def check_results_name(path: str | Path) -> str:
    """The suffix of a results file; raises `UsageError` for any but `SUFFIXES`."""
    ending = Path(path).suffix.lower()
    if ending not in SUFFIXES:
        raise wrong_ending(path, ".csv, .json or .jsonl")
    return ending


def columns_of(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """All columns of the rows, in the order in which a reader looks for them."""
    found = dict.fromkeys(name for row in rows for name in row)
    middle = [name for name in found if name not in ORDER and name not in LAST]
    return (
        [name for name in ORDER if name in found]
        + middle
        + [name for name in LAST if name in found]
    )


class _CsvLines(list[str]):
    """Lines of a CSV file, which end with a line feed alone."""

    def write(self, line: str) -> None:
        self.append(line.removesuffix("\r\n") + "\n")


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows as CSV: nothing where there is no value, JSON where it is a list or an object.

    Text that a spreadsheet would take for a formula begins with an apostrophe, which `read_rows`
    takes away.
    """
    columns = columns_of(rows)
    lines = _CsvLines()
    # With this line end it quotes both of its characters, in every version of Python.
    writer = csv.writer(lines, lineterminator="\r\n")
    writer.writerow(map(cell_of, columns))
    for row in rows:
        writer.writerow([cell_of(row.get(name)) for name in columns])
    return "".join(lines)


def rows_document(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The rows as a document, each with all columns."""
    columns = columns_of(rows)
    return {"format": FORMAT, "rows": [{name: row.get(name) for name in columns} for row in rows]}


def write_table(rows: Sequence[Mapping[str, Any]], path: str | Path) -> None:
    """Write the rows as ``.csv`` or ``.json``, atomically."""
    if check_results_name(path) == ".csv":
        text = csv_text(rows)
    else:
        text = pretty_json(rows_document(rows))
    write_atomically(path, text.encode())


def read_rows(path: str | Path) -> tuple[list[Row], list[str]]:
    """The rows of a results file of any of the three kinds, and what a user should hear about it.

    Of several rows of one task (JSON lines) the last one counts.

    Raises
    ------
    UsageError, InvalidInput
    """
    ending, data = check_results_name(path), read_bytes(Path(path))
    notices = []
    if ending == ".jsonl":
        lines = parse_lines(data, path)
        if lines.incomplete:
            notices.append(f"{path}: an incomplete last line is left out")
        rows = lines.latest
    elif ending == ".json":
        with named(path):
            rows = _rows_in(parse_json(data, "table of results"))
    else:
        rows = _rows_of_csv(data, path)
    if not rows:
        raise InvalidInput("", "no rows", "the rows of a sweep", str(path))
    check_rows(rows, path)
    return rows, notices


def _rows_in(document: Any) -> list[Row]:
    rows = (
        document.get("rows")
        if isinstance(document, dict) and document.get("format") == FORMAT
        else None
    )
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InvalidInput("", "another document", f'a document with "format": "{FORMAT}" and rows')
    return rows


def _rows_of_csv(data: bytes, path: str | Path) -> list[Row]:
    name = str(path)
    lines = csv_lines(data, name)
    columns = [text_of(cell) for cell in next(lines, (1, []))[1]]
    if len(set(columns)) < len(columns):
        raise InvalidInput(f"{name}:1", "a column twice", "each column once")
    rows = []
    for number, cells in lines:
        if len(cells) != len(columns):
            expected = f"{len(columns)}, as in the first line"
            raise InvalidInput(f"{name}:{number}", f"{len(cells)} cells", expected)
        rows.append(
            {column: _value(column, cell) for column, cell in zip(columns, cells, strict=True)}
        )
    return rows


def _value(name: str, cell: str) -> Any:
    """A cell of a CSV file: nothing, a number, else text."""
    if cell == "":
        return None
    if name in TEXT or not NUMBER.fullmatch(cell):
        return text_of(cell)
    value = float(cell)
    # As 1e999: what is no number of Python stays text.
    if not math.isfinite(value):
        return cell
    return int(cell) if cell.lstrip("+-").isdigit() else value
