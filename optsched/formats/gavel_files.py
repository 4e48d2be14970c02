"""Gavel's files as arrays and tables: a throughput table and a trace (Narayanan et al., OSDI 2020).

Throughput file: JSON, ``{worker type: {"('MODEL (batch size B)', SCALE)": {"null": steps/s alone,
"('OTHER ...', SCALE)": [steps/s of the row's job, steps/s of the other], ...}}}``. Keys are the text of Python tuples;
0.0 means "cannot run" or "unknown" alike. A rate is that of the whole job on all its SCALE GPUs.

Trace: tab-separated lines without header, in order of arrival, of 10 columns, or 7 in an older format that has no
working directory, weight and SLO. Blank lines don't count as jobs.
"""

from __future__ import annotations

import ast
import math
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.errors import InvalidInput
from optsched.instance.reading import parse_json, show

COLUMNS = (
    "job_type", "command", "working_directory", "num_steps_arg", "needs_data_dir", "total_steps", "scale_factor",
    "priority_weight", "SLO", "arrival_time",
)  # fmt: skip
OLD_COLUMNS = (
    "job_type", "command", "num_steps_arg", "needs_data_dir", "total_steps", "arrival_time", "scale_factor",
)  # fmt: skip
LAYOUTS = {len(COLUMNS): COLUMNS, len(OLD_COLUMNS): OLD_COLUMNS}

MAX_GPUS = 2**31
NO_SLO = -1.0
MAX_KEY = 1000
"""Characters of a row's key; a longer one is no key, and nothing that Python should try to parse."""

RowKey: TypeAlias = tuple[str, int]
"""(job type, scale factor): a row of a throughput table."""

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_WHOLE = re.compile(r"\+?\d{1,18}", re.ASCII)


@dataclass(frozen=True)
class GavelThroughputs:
    """A throughput file.

    Attributes
    ----------
    alone : mapping from worker type to mapping from `RowKey` to float
        steps/s of a job that has its GPUs to itself; 0 where it cannot run or was not measured.
    shared : mapping from worker type to mapping from (RowKey, RowKey) to (float, float)
        steps/s of the first and of the second job when both share the same GPUs, as the file has it: usually in
        both directions, with 0 for "cannot run" or "not measured".
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

    def __len__(self) -> int:
        return len(self.line)


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
        Not UTF-8, not JSON, another nesting, a key that is no ``('TYPE', SCALE)``, or a rate that is no finite number
        of at least 0.
    """
    document = _object(_json(_decode(data, "throughputs")), "throughputs", "worker types")
    keys: dict[str, RowKey] = {}
    alone: dict[str, dict[RowKey, float]] = {}
    shared: dict[str, dict[tuple[RowKey, RowKey], tuple[float, float]]] = {}
    for worker_type, rows in document.items():
        path = f"throughputs.{told_type(worker_type)}"
        alone[worker_type], shared[worker_type] = {}, {}
        for text, row in _object(rows, path, "job types").items():
            key = _row_key(text, path, keys)
            if key in alone[worker_type]:
                raise InvalidInput(path, f"a second row {told_type(text)}", "one row per job type and scale")
            rate, partners = _row(row, key, f"{path}.{told_type(text)}", keys)
            alone[worker_type][key] = rate
            shared[worker_type].update(partners)
    return GavelThroughputs(alone, shared)


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
    lines = _split(_decode(data, "trace"))
    records = [_record(line) for line in lines]
    for before, after, line in zip(records, records[1:], lines[1:], strict=False):
        if after.arrival < before.arrival:
            raise InvalidInput(
                line.path("arrival_time"),
                f"{after.arrival:.15g} after {before.arrival:.15g} on line {before.line}",
                "arrivals in ascending order",
            )
    return GavelTrace(
        line=np.array([record.line for record in records], np.int64),
        job_type=tuple(record.job_type for record in records),
        command=tuple(record.command for record in records),
        working_directory=tuple(record.working_directory for record in records),
        num_steps_arg=tuple(record.num_steps_arg for record in records),
        needs_data_dir=np.array([record.needs_data_dir for record in records], np.bool_),
        steps=np.array([record.steps for record in records], np.float64),
        gpus=np.array([record.gpus for record in records], np.int64),
        weight=np.array([record.weight for record in records], np.float64),
        slo=np.array([record.slo for record in records], np.float64),
        arrival=np.array([record.arrival for record in records], np.float64),
    )


def _decode(data: bytes, what: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        found = f"a byte 0x{error.object[error.start]:02x} that is not UTF-8"
        raise InvalidInput(f"{what} line {line}", found, "UTF-8 text") from None


def _json(text: str) -> object:
    try:
        return parse_json(text, "throughput table")
    except InvalidInput as error:
        raise InvalidInput("throughputs", error.found, "Gavel's throughput table in JSON") from None


def told_type(text: str) -> str:
    """A job type as it is told in messages."""
    """A name as it stands in a message: on one line and of a readable length."""
    return text if text.isprintable() and len(text) <= 60 else show(text)


def _object(value: object, path: str, what: str) -> dict[str, Any]:
    if not isinstance(value, dict) or not value:
        raise InvalidInput(path, show(value), f"a non-empty object by {what}")
    return value


def _row_key(text: str, path: str, known: dict[str, RowKey]) -> RowKey:
    """Parse ``('TYPE', SCALE)``; ``known`` remembers the few texts that come back thousands of times."""
    if text in known:
        return known[text]
    try:
        value = ast.literal_eval(text) if len(text) <= MAX_KEY else None
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        value = None
    if isinstance(value, tuple) and [type(part) for part in value] == [str, int] and value[0] and value[1] >= 1:
        return known.setdefault(text, value)
    raise InvalidInput(path, f"the key {show(text)}", "a key ('TYPE', SCALE) such as ('ResNet-18 (batch size 64)', 1)")


def _row(
    value: object, key: RowKey, path: str, keys: dict[str, RowKey]
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
            raise InvalidInput(path, f"a partner {told_type(text)}", f"partners of the same scale, {key[1]}")
        if (key, partner) in partners:
            raise InvalidInput(path, f"a second partner {told_type(text)}", "each partner once")
        where = f"{path}.{told_type(text)}"
        if not isinstance(rates, list) or len(rates) != 2:
            raise InvalidInput(where, show(rates), "a list of two rates in steps/s")
        partners[key, partner] = (_rate(rates[0], f"{where}[0]"), _rate(rates[1], f"{where}[1]"))
    return _rate(row["null"], f"{path}.null"), partners


def _rate(value: object, path: str) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= sys.float_info.max:
        return float(value)
    raise InvalidInput(path, show(value), "a finite rate in steps/s, at least 0")


class _Record(NamedTuple):
    """One job; the names are those of `GavelTrace`."""

    line: int
    job_type: str
    command: str
    working_directory: str
    num_steps_arg: str
    needs_data_dir: bool
    steps: float
    gpus: int
    weight: float
    slo: float
    arrival: float


class _Line(NamedTuple):
    """One line that is not blank, with as many cells as names."""

    number: int
    names: tuple[str, ...]
    cells: list[str]

    def path(self, column: str) -> str:
        return cell_path(self.number, self.names, column)

    def text(self, column: str) -> str:
        return self.cells[self.names.index(column)].strip()

    def real(self, column: str, expected: str) -> float:
        """A finite number, at least 0."""
        return _number(self.text(column), self.path(column), expected)


def cell_path(line: int, names: tuple[str, ...], column: str) -> str:
    """Where a cell stands: line, column number and name."""
    return f"trace line {line}, column {names.index(column) + 1} ({column})"


def _split(text: str) -> list[_Line]:
    """Lines that hold jobs; all have the layout of the first."""
    lines: list[_Line] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        cells = line.split("\t")
        found = f"{len(cells)} tab-separated column{'s' * (len(cells) != 1)}"
        if len(cells) not in LAYOUTS:
            raise InvalidInput(f"trace line {number}", found, "10 columns, or the 7 of the old format")
        if lines and len(cells) != len(lines[0].cells):
            expected = f"{len(lines[0].cells)}, as on line {lines[0].number} (10 or 7 columns, the same on all lines)"
            raise InvalidInput(f"trace line {number}", found, expected)
        lines.append(_Line(number, LAYOUTS[len(cells)], cells))
    if not lines:
        raise InvalidInput("trace", "no jobs", "at least one line of 10 columns, or 7 in the old format")
    return lines


def _record(line: _Line) -> _Record:
    old = line.names is OLD_COLUMNS
    return _Record(
        line=line.number,
        job_type=_job_type(line),
        command=line.text("command"),
        working_directory="" if old else line.text("working_directory"),
        num_steps_arg=line.text("num_steps_arg"),
        needs_data_dir=_flag(line, "needs_data_dir"),
        steps=line.real("total_steps", "a number of steps, at least 0"),
        gpus=_scale(line),
        weight=1.0 if old else _weight(line),
        slo=math.nan if old else _slo(line),
        arrival=line.real("arrival_time", "a time in seconds, at least 0"),
    )


def _job_type(line: _Line) -> str:
    text = line.text("job_type")
    if not text:
        raise InvalidInput(line.path("job_type"), "nothing", "a job type such as ResNet-18 (batch size 64)")
    return text


def _flag(line: _Line, column: str) -> bool:
    text = line.text(column)
    if text not in ("0", "1"):
        raise InvalidInput(line.path(column), show(text), "0 or 1")
    return text == "1"


def _scale(line: _Line) -> int:
    text = line.text("scale_factor")
    if _WHOLE.fullmatch(text) and 1 <= int(text) <= MAX_GPUS:
        return int(text)
    raise InvalidInput(line.path("scale_factor"), show(text), "a whole number of GPUs, at least 1")


def _weight(line: _Line) -> float:
    expected = "a weight above 0"
    weight = line.real("priority_weight", expected)
    if weight == 0:
        raise InvalidInput(line.path("priority_weight"), show(line.text("priority_weight")), expected)
    return weight


def _slo(line: _Line) -> float:
    """A positive multiple of the duration; NaN for Gavel's -1, which means that there is none."""
    text = line.text("SLO")
    if _NUMBER.fullmatch(text) and float(text) == NO_SLO:
        return math.nan
    expected = "a multiple of the duration above 0, or -1 for none"
    slo = line.real("SLO", expected)
    if slo == 0:
        raise InvalidInput(line.path("SLO"), show(text), expected)
    return slo


def _number(text: str, path: str, expected: str) -> float:
    if _NUMBER.fullmatch(text):
        number = float(text)
        if 0 <= number < math.inf:
            return number
    raise InvalidInput(path, show(text), expected)
