"""Gavel's traces as arrays (Narayanan et al., OSDI 2020): one job a line, cells between tabs, no header.

There are 10 columns, or 7 in an older format that has no working directory, weight and SLO; the first line tells which.
Blank lines don't count as jobs. Formats that only add columns read theirs with the same `TraceLines`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.errors import InvalidInput
from optsched.instance.reading import show

COLUMNS = (
    "job_type", "command", "working_directory", "num_steps_arg", "needs_data_dir", "total_steps", "scale_factor",
    "priority_weight", "SLO", "arrival_time",
)  # fmt: skip
OLD_COLUMNS = (
    "job_type", "command", "num_steps_arg", "needs_data_dir", "total_steps", "arrival_time", "scale_factor",
)  # fmt: skip
LAYOUTS = {len(COLUMNS): COLUMNS, len(OLD_COLUMNS): OLD_COLUMNS}
EXPECTED = "10 columns, or the 7 of the old format"

MAX_GPUS = 2**31
NO_SLO = -1.0

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_WHOLE = re.compile(r"\+?\d{1,18}", re.ASCII)

Value = TypeVar("Value", str, bool, int, float)


@dataclass(frozen=True, eq=False)
class GavelTrace:
    """A trace: one entry per job in every column, in order of arrival.

    Attributes
    ----------
    line : IntArray
        Line of the file that the job stands on; the first is 1.
    job_type, command, working_directory, num_steps_arg : tuple of str
        ``working_directory`` is empty in the old format.
    needs_data_dir : BoolArray
    steps : FloatArray
    gpus : IntArray
        The scale factor.
    weight : FloatArray
        Priority weight; 1 in the old format.
    slo : FloatArray
        Deadline after the arrival as a multiple of the job's duration; NaN where there is none.
    arrival : FloatArray
        Seconds, ascending.
    names : tuple of str
        The columns of the file.
    """

    line: IntArray
    job_type: tuple[str, ...]
    command: tuple[str, ...]
    working_directory: tuple[str, ...]
    num_steps_arg: tuple[str, ...]
    needs_data_dir: BoolArray
    steps: FloatArray
    gpus: IntArray
    weight: FloatArray
    slo: FloatArray
    arrival: FloatArray
    names: tuple[str, ...] = COLUMNS

    def __len__(self) -> int:
        return len(self.line)

    def path(self, row: int, column: str) -> str:
        """Where a cell stands: line, column number and name."""
        return _path(int(self.line[row]), self.names, column)


@dataclass(frozen=True, eq=False)
class TraceLines:
    """The lines of a trace that hold jobs, column by column.

    Attributes
    ----------
    line : IntArray, shape (N,)
        Their numbers in the file, from 1.
    names : tuple of str
        Of the columns.
    cells : mapping from str to tuple of str
        Of each column its cells, without spaces around them.
    """

    line: IntArray
    names: tuple[str, ...]
    cells: Mapping[str, tuple[str, ...]]

    def path(self, row: int, column: str) -> str:
        """Where a cell stands."""
        return _path(int(self.line[row]), self.names, column)

    def read(
        self, column: str, convert: Callable[[str], Value | None], expected: str
    ) -> list[Value]:
        """What the cells of a column say; ``convert`` gives None for a text that is not what is expected."""
        cells = self.cells[column]
        known = {text: convert(text) for text in set(cells)}
        if None in known.values():
            row = next(row for row, text in enumerate(cells) if known[text] is None)
            found = show(cells[row]) if cells[row] or convert is not _text else "nothing"
            raise InvalidInput(self.path(row, column), found, expected)
        return [known[text] for text in cells]  # type: ignore[misc]

    def texts(self, column: str, expected: str) -> tuple[str, ...]:
        """Cells that may not be empty."""
        return tuple(self.read(column, _text, expected))

    def numbers(self, column: str, expected: str, *, above: float = -1.0) -> FloatArray:
        """Finite numbers, at least 0 and above the bound."""
        return np.array(self.read(column, lambda text: _number(text, above), expected), np.float64)


def read_trace(data: bytes) -> GavelTrace:
    """Parse a trace in the format of 10 columns or the older one of 7.

    Parameters
    ----------
    data : bytes
        Tab-separated lines, UTF-8.

    Returns
    -------
    GavelTrace

    Raises
    ------
    InvalidInput
        With line, column and its name: wrong number of columns, a cell that is no number or out of range, arrivals
        that go back in time; also text that is not UTF-8 and a trace without jobs.
    """
    return jobs_of(read_lines(data, LAYOUTS, EXPECTED, "10 columns, or 7 in the old format"))


def read_lines(
    data: bytes, layouts: Mapping[int, tuple[str, ...]], expected: str, least: str
) -> TraceLines:
    """Cut a trace into cells; all lines have the layout of the first.

    Parameters
    ----------
    layouts : mapping from int to tuple of str
        Names of the columns by their number.
    expected, least : str
        The layouts in words, for a line that has none of them and for a trace without any line.

    Raises
    ------
    InvalidInput
        With the line.
    """
    rows = [
        (number, line.split("\t"))
        for number, line in enumerate(decode(data, "trace").split("\n"), 1)
        if line.strip()
    ]
    if not rows:
        raise InvalidInput("trace", "no jobs", f"at least one line of {least}")
    width = len(rows[0][1])
    for number, cells in rows:
        if len(cells) not in layouts or len(cells) != width:
            found = f"{len(cells)} tab-separated column{'s' * (len(cells) != 1)}"
            if len(cells) in layouts:
                sizes = " or ".join(map(str, layouts))
                expected = (
                    f"{width}, as on line {rows[0][0]} ({sizes} columns, the same on all lines)"
                )
            raise InvalidInput(f"trace line {number}", found, expected)
    columns = zip(*(cells for _, cells in rows), strict=True)
    cells_of = {
        name: tuple(map(str.strip, column))
        for name, column in zip(layouts[width], columns, strict=True)
    }
    return TraceLines(np.array([number for number, _ in rows], np.int64), layouts[width], cells_of)


def jobs_of(lines: TraceLines) -> GavelTrace:
    """The columns that Gavel's traces have, checked; raises `InvalidInput`."""
    count = len(lines.line)
    old = "SLO" not in lines.names
    trace = GavelTrace(
        line=lines.line,
        job_type=lines.texts("job_type", "a job type such as ResNet-18 (batch size 64)"),
        command=lines.cells["command"],
        working_directory=lines.cells.get("working_directory", ("",) * count),
        num_steps_arg=lines.cells["num_steps_arg"],
        needs_data_dir=np.array(lines.read("needs_data_dir", _flag, "0 or 1"), np.bool_),
        steps=lines.numbers("total_steps", "a number of steps, at least 0"),
        gpus=np.array(
            lines.read("scale_factor", _scale, "a whole number of GPUs, at least 1"), np.int64
        ),
        weight=np.ones(count)
        if old
        else lines.numbers("priority_weight", "a weight above 0", above=0.0),
        slo=np.full(count, math.nan)
        if old
        else np.array(
            lines.read("SLO", _slo, "a multiple of the duration above 0, or -1 for none"),
            np.float64,
        ),
        arrival=lines.numbers("arrival_time", "a time in seconds, at least 0"),
        names=lines.names,
    )
    back = np.flatnonzero(np.diff(trace.arrival) < 0)
    if len(back):
        row = int(back[0]) + 1
        before, after = trace.arrival[row - 1], trace.arrival[row]
        found = f"{after:.15g} after {before:.15g} on line {trace.line[row - 1]}"
        raise InvalidInput(trace.path(row, "arrival_time"), found, "arrivals in ascending order")
    return trace


def decode(data: bytes, what: str) -> str:
    """UTF-8 with or without a byte order mark; raises `InvalidInput` with the line."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        found = f"a byte 0x{error.object[error.start]:02x} that is not UTF-8"
        raise InvalidInput(f"{what} line {line}", found, "UTF-8 text") from None


def _path(line: int, names: tuple[str, ...], column: str) -> str:
    return f"trace line {line}, column {names.index(column) + 1} ({column})"


def _text(text: str) -> str | None:
    return text or None


def _flag(text: str) -> bool | None:
    return {"0": False, "1": True}.get(text)


def _scale(text: str) -> int | None:
    return int(text) if _WHOLE.fullmatch(text) and 1 <= int(text) <= MAX_GPUS else None


def _slo(text: str) -> float | None:
    """A positive multiple of the duration; NaN for Gavel's -1, which means that there is none."""
    if _NUMBER.fullmatch(text) and float(text) == NO_SLO:
        return math.nan
    return _number(text, 0.0)


def _number(text: str, above: float) -> float | None:
    number = float(text) if _NUMBER.fullmatch(text) else math.nan
    return number if 0 <= number < math.inf and number > above else None
