"""Gavel's files (Narayanan et al., OSDI 2020): throughput tables and traces.

A throughput table says what each job type does on each worker type. It is JSON: ``{worker type:
{"('MODEL (batch size B)', SCALE)": {"null": steps/s alone, "('OTHER ...', SCALE)": [steps/s of the
row's job, steps/s of the other], ...}}}``. Keys are the text of Python tuples; 0.0 means "cannot
run" or "unknown" alike. A rate is that of the whole job on all its SCALE GPUs.

A trace has one job a line, cells between tabs, no header. There are 10 columns, or 7 in an older
format that has no working directory, weight and SLO; the first line shows which. Blank lines don't
count as jobs. Formats that only add columns read theirs with the same `TraceLines`.
"""

from __future__ import annotations

import ast
import math
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias, TypeVar

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.errors import InvalidInput
from optsched.instance.reading import parse_json, show

JOB_TYPE = re.compile(r"(.+) \(batch size ([1-9]\d{0,8})\)", re.ASCII)
# Ending of a worker type whose rows were measured with one GPU on each node.
SPREAD = "_unconsolidated"
# Characters of a row's key; a longer one is no key, and nothing that Python should try to parse.
MAX_KEY = 1000

# (job type, scale factor): a row of a throughput table.
RowKey: TypeAlias = tuple[str, int]

COLUMNS = (
    "job_type",
    "command",
    "working_directory",
    "num_steps_arg",
    "needs_data_dir",
    "total_steps",
    "scale_factor",
    "priority_weight",
    "SLO",
    "arrival_time",
)
OLD_COLUMNS = (
    "job_type",
    "command",
    "num_steps_arg",
    "needs_data_dir",
    "total_steps",
    "arrival_time",
    "scale_factor",
)
LAYOUTS = {len(COLUMNS): COLUMNS, len(OLD_COLUMNS): OLD_COLUMNS}
EXPECTED = "10 columns, or the 7 of the old format"

MAX_GPUS = 2**31
NO_SLO = -1.0

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_WHOLE = re.compile(r"\+?\d{1,18}", re.ASCII)

Value = TypeVar("Value", str, bool, int, float)


# --- names ----------------------------------------------------------------------------------------


def profile_of(job_type: str) -> tuple[str, float]:
    """Workload and samples of one GPU of a job type:
    ``ResNet-18 (batch size 64)`` is ResNet-18 with 64.

    One without a batch has 1: a sample is then whatever one GPU does in a step.
    """
    match = JOB_TYPE.fullmatch(job_type)
    return (job_type, 1.0) if match is None else (match[1], float(match[2]))


def job_type_of(workload: str, samples: float | None) -> str:
    """The job type of a model and its batch, as `profile_of` takes it apart:
    a batch of 1 is left out.
    """
    if samples is None or samples == 1:
        return workload
    return f"{workload} (batch size {samples:.15g})"


def gpu_type_of(worker_type: str) -> str:
    """The GPU type of a worker type: its name in capitals."""
    return worker_type.upper()


def one_line(text: str) -> str:
    """A name for a message: on one line and of a readable length."""
    return text if text.isprintable() and len(text) <= 60 else show(text)


def decode(data: bytes, what: str) -> str:
    """UTF-8 with or without a byte order mark; raises `InvalidInput` with the line."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        found = f"a byte 0x{error.object[error.start]:02x} that is not UTF-8"
        raise InvalidInput(f"{what} line {line}", found, "UTF-8 text") from None


# --- throughput tables ----------------------------------------------------------------------------


@dataclass(frozen=True)
class GavelThroughputs:
    """A throughput file.

    Attributes
    ----------
    alone : mapping from worker type to mapping from `RowKey` to float
        steps/s of a job that has its GPUs to itself; 0 where it cannot run or was not measured.
    shared : mapping from worker type to mapping from (RowKey, RowKey) to (float, float)
        steps/s of the first and of the second job when both share the same GPUs, as the file has
        it: usually in both directions, with 0 for "cannot run" or "not measured".
    """

    alone: Mapping[str, Mapping[RowKey, float]]
    shared: Mapping[str, Mapping[tuple[RowKey, RowKey], tuple[float, float]]]

    @property
    def worker_types(self) -> tuple[str, ...]:
        """Names of the worker types, in the order of the file."""
        return tuple(self.alone)

    @cached_property
    def job_types(self) -> frozenset[str]:
        """Every job type that has a row, of any worker type and scale."""
        return frozenset(job_type for rows in self.alone.values() for job_type, _ in rows)

    def rate(self, worker_type: str, job_type: str, scale: int) -> float:
        """steps/s of a job alone on ``scale`` GPUs; 0 where there is no row."""
        return self.alone[worker_type].get((job_type, scale), 0.0)


def read_throughputs(data: bytes) -> GavelThroughputs:
    """Parse a throughput file.

    Parameters
    ----------
    data : bytes
        JSON, UTF-8.

    Returns
    -------
    GavelThroughputs
        Rates in steps/s, zeros included.

    Raises
    ------
    InvalidInput
        Not UTF-8, not JSON, another nesting, a key that is no ``('TYPE', SCALE)``, or a rate that
        is no finite number of at least 0.
    """
    document = _object(_json(decode(data, "throughputs")), "throughputs", "worker types")
    keys: dict[str, RowKey] = {}
    alone: dict[str, dict[RowKey, float]] = {}
    shared: dict[str, dict[tuple[RowKey, RowKey], tuple[float, float]]] = {}
    for worker_type, rows in document.items():
        path = f"throughputs.{one_line(worker_type)}"
        alone[worker_type] = {}
        shared[worker_type] = {}
        for text, row in _object(rows, path, "job types").items():
            key = _row_key(text, path, keys)
            if key in alone[worker_type]:
                raise InvalidInput(
                    path, f"a second row {one_line(text)}", "one row per job type and scale"
                )
            rate, partners = _row(row, key, f"{path}.{one_line(text)}", keys)
            alone[worker_type][key] = rate
            shared[worker_type].update(partners)
    return GavelThroughputs(alone, shared)


def _json(text: str) -> object:
    try:
        return parse_json(text, "throughput table")
    except InvalidInput as error:
        raise InvalidInput("throughputs", error.found, "Gavel's throughput table in JSON") from None


def _object(value: object, path: str, what: str) -> dict[str, Any]:
    if not isinstance(value, dict) or not value:
        raise InvalidInput(path, show(value), f"a non-empty object by {what}")
    return value


def _row_key(text: str, path: str, known: dict[str, RowKey]) -> RowKey:
    """Parse ``('TYPE', SCALE)``;
    ``known`` remembers the few texts that come back thousands of times.
    """
    # The same few keys come back in every row
    if text in known:
        return known[text]
    try:
        value = ast.literal_eval(text) if len(text) <= MAX_KEY else None
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        value = None
    if (
        isinstance(value, tuple)
        and [type(part) for part in value] == [str, int]
        and value[0]
        and value[1] >= 1
    ):
        return known.setdefault(text, value)
    raise InvalidInput(
        path,
        f"the key {show(text)}",
        "a key ('TYPE', SCALE) such as ('ResNet-18 (batch size 64)', 1)",
    )


def _row(
    value: object,
    key: RowKey,
    path: str,
    keys: dict[str, RowKey],
) -> tuple[float, dict[tuple[RowKey, RowKey], tuple[float, float]]]:
    """The rate alone and the rates beside others of one row."""
    row = _object(value, path, 'partners and "null" (the rate alone)')
    if "null" not in row:
        raise InvalidInput(path, 'no key "null"', 'the rate alone under the key "null"')
    partners: dict[tuple[RowKey, RowKey], tuple[float, float]] = {}
    for text, rates in row.items():
        if text == "null":
            continue
        partner = _row_key(text, path, keys)
        if partner[1] != key[1]:
            raise InvalidInput(
                path, f"a partner {one_line(text)}", f"partners of the same scale, {key[1]}"
            )
        if (key, partner) in partners:
            raise InvalidInput(path, f"a second partner {one_line(text)}", "each partner once")
        where = f"{path}.{one_line(text)}"
        if not isinstance(rates, list) or len(rates) != 2:
            raise InvalidInput(where, show(rates), "a list of two rates in steps/s")
        partners[key, partner] = (
            _throughput(rates[0], f"{where}[0]"),
            _throughput(rates[1], f"{where}[1]"),
        )
    return _throughput(row["null"], f"{path}.null"), partners


def _throughput(value: object, path: str) -> float:
    if (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and 0 <= value <= sys.float_info.max
    ):
        return float(value)
    raise InvalidInput(path, show(value), "a finite rate in steps/s, at least 0")


# --- traces ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class GavelTrace:
    """A trace: one entry per job in every column, in order of arrival.

    Attributes
    ----------
    line : IntArray
        Line of the job in the file, from 1.
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
        """The place of a cell: line, column number and name."""
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
        """The place of a cell: line, column number and name."""
        return _path(int(self.line[row]), self.names, column)

    def read(
        self,
        column: str,
        convert: Callable[[str], Value | None],
        expected: str,
    ) -> list[Value]:
        """What the cells of a column say;
        ``convert`` gives None for a text that is not what is expected.
        """
        cells = self.cells[column]
        # Most cells of a trace repeat: each text is converted once
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
        With line, column and its name: wrong number of columns, a cell that is no number or out of
        range, arrivals that go back in time; also text that is not UTF-8 and a trace without jobs.
    """
    return jobs_of(read_lines(data, LAYOUTS, EXPECTED, "10 columns, or 7 in the old format"))


def read_lines(
    data: bytes,
    layouts: Mapping[int, tuple[str, ...]],
    expected: str,
    least: str,
) -> TraceLines:
    """Cut a trace into cells; all lines have the layout of the first.

    Parameters
    ----------
    layouts : mapping from int to tuple of str
        Names of the columns by their number.
    expected, least : str
        The layouts as text, for a line that has none of them and for a trace without any line.

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
    # The first line decides between the layouts
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
        before = trace.arrival[row - 1]
        after = trace.arrival[row]
        found = f"{after:.15g} after {before:.15g} on line {trace.line[row - 1]}"
        raise InvalidInput(trace.path(row, "arrival_time"), found, "arrivals in ascending order")
    return trace


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
    # Traces say -1 where a job has no SLO
    if _NUMBER.fullmatch(text) and float(text) == NO_SLO:
        return math.nan
    return _number(text, 0.0)


def _number(text: str, above: float) -> float | None:
    number = float(text) if _NUMBER.fullmatch(text) else math.nan
    return number if 0 <= number < math.inf and number > above else None
