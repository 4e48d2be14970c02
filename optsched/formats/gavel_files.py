"""Gavel's files (Narayanan et al., OSDI 2020): throughput tables and traces.

A throughput table has the rates of each job type on each worker type. It is JSON: ``{worker type:
{"('MODEL (batch size B)', SCALE)": {"null": steps/s alone, "('OTHER ...', SCALE)": [steps/s of the
row's job, steps/s of the other], ...}}}``. Keys are the text of Python tuples; 0.0 means "cannot
run" or "unknown" alike. A rate is that of the whole job on all its SCALE GPUs.

A trace has one job a line, cells between tabs, no header. There are 10 columns, or 7 in an older
format that has no working directory, weight and SLO; the first line shows which. Blank lines don't
count as jobs.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from optsched.arrays import FloatArray, IntArray
from optsched.errors import InvalidInput
from optsched.formats.inputs import Source
from optsched.formats.tables import Kind, Table, read_headless
from optsched.instance.reading import parse_json, show

JOB_TYPE = re.compile(r"(.+) \(batch size ([1-9]\d{0,8})\)", re.ASCII)
# Ending of a worker type whose rows were measured with one GPU on each node.
SPREAD = "_unconsolidated"
# Most characters of a row's key; longer texts are refused before Python parses them.
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
NUMBERS: dict[str, Kind] = {
    "total_steps": "number",
    "scale_factor": "whole",
    "priority_weight": "number",
    "SLO": "number",
    "arrival_time": "number",
}
# Columns that are read; the other columns (how to start a job) may have any content.
READ = ("job_type", *NUMBERS)

MAX_GPUS = 2**31
NO_SLO = -1.0


# --- names ----------------------------------------------------------------------------------------


def profile_of(job_type: str) -> tuple[str, float]:
    """Workload and samples of one GPU of a job type:
    ``ResNet-18 (batch size 64)`` is ResNet-18 with 64.

    Without a batch it has 1: a sample is then the work of one GPU in a step.
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


def is_json(path: Path, data: bytes) -> bool:
    """Whether a file of measurements is a throughput table, not a CSV table."""
    return path.suffix.lower() == ".json" or data.lstrip()[:1] == b"{"


# --- throughput tables ----------------------------------------------------------------------------


@dataclass(frozen=True)
class GavelThroughputs:
    """A throughput file.

    Attributes
    ----------
    alone : mapping from worker type to mapping from `RowKey` to float
        steps/s of a job alone on its GPUs; 0 if it cannot run or was not measured.
    shared : mapping from worker type to mapping from (RowKey, RowKey) to (float, float)
        steps/s of the first and of the second job when they share their GPUs, as in the file:
        usually in both directions, with 0 for "cannot run" or "not measured".
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
    document = _object(_json(data), "throughputs", "worker types")
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


def _json(data: bytes) -> object:
    try:
        return parse_json(data, "throughput table")
    except InvalidInput as error:
        raise InvalidInput("throughputs", error.found, "Gavel's throughput table in JSON") from None


def _object(value: object, path: str, what: str) -> dict[str, Any]:
    if not isinstance(value, dict) or not value:
        raise InvalidInput(path, show(value), f"a non-empty object by {what}")
    return value


def _row_key(text: str, path: str, known: dict[str, RowKey]) -> RowKey:
    """Parse ``('TYPE', SCALE)``;
    ``known`` caches parsed keys, because a few keys are repeated thousands of times.
    """
    # The same few keys are in every row
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
    """The rate alone and the rates of pairs, of one row."""
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
    """A trace: one entry per job in every array, in order of arrival.

    Attributes
    ----------
    table : Table
        All columns of the file.
    steps : FloatArray
    gpus : IntArray
        The scale factor.
    weight : FloatArray
        Priority weight; 1 in the old format.
    slo : FloatArray
        Deadline after the arrival, as a multiple of the job's duration; NaN for none.
    arrival : FloatArray
        Seconds, ascending.
    """

    table: Table
    steps: FloatArray
    gpus: IntArray
    weight: FloatArray
    slo: FloatArray
    arrival: FloatArray

    def __len__(self) -> int:
        return len(self.table)

    @property
    def job_type(self) -> tuple[str, ...]:
        """The type of each job, such as ``ResNet-18 (batch size 64)``."""
        return self.table.cells["job_type"]


def read_trace(source: Source) -> GavelTrace:
    """Parse a trace in the format of 10 columns or the older one of 7.

    Parameters
    ----------
    source : path or bytes

    Returns
    -------
    GavelTrace

    Raises
    ------
    InvalidInput
        With line and column of the first wrong cells, what was found and what was expected.
    """
    return jobs_of(read_headless(source, "trace", (COLUMNS, OLD_COLUMNS), NUMBERS, READ))


def jobs_of(table: Table) -> GavelTrace:
    """The columns that Gavel's traces have, checked; raises `InvalidInput`."""
    numbers = table.numbers
    gpus = table.whole("scale_factor", 1, "a whole number of GPUs, at least 1")
    ones = np.ones(len(table))
    weight = numbers.get("priority_weight", ones)
    slo = numbers.get("SLO", NO_SLO * ones)
    for column, wrong, expected in (
        ("total_steps", numbers["total_steps"] < 0, "a number of steps, at least 0"),
        ("priority_weight", weight <= 0, "a weight above 0"),
        (
            "SLO",
            (slo <= 0) & (slo != NO_SLO),
            "a multiple of the duration above 0, or -1 for none",
        ),
        ("arrival_time", numbers["arrival_time"] < 0, "a time in seconds, at least 0"),
        (
            "arrival_time",
            np.diff(numbers["arrival_time"], prepend=0.0) < 0,
            "arrivals in ascending order",
        ),
    ):
        if column in table:
            table.refuse(column, wrong, expected)
    return GavelTrace(
        table=table,
        steps=numbers["total_steps"],
        gpus=gpus,
        weight=weight,
        slo=np.where(slo == NO_SLO, np.nan, slo),
        arrival=numbers["arrival_time"],
    )
