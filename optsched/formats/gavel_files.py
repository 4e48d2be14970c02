"""Gavel's throughput tables (Narayanan et al., OSDI 2020): what each job type does on each worker type.

JSON, ``{worker type: {"('MODEL (batch size B)', SCALE)": {"null": steps/s alone, "('OTHER ...', SCALE)": [steps/s of
the row's job, steps/s of the other], ...}}}``. Keys are the text of Python tuples; 0.0 means "cannot run" or "unknown"
alike. A rate is that of the whole job on all its SCALE GPUs. Traces are read by `optsched.formats.gavel_traces`.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

from optsched.errors import InvalidInput
from optsched.formats.gavel_traces import decode
from optsched.instance.reading import parse_json, show

MAX_KEY = 1000
"""Characters of a row's key; a longer one is no key, and nothing that Python should try to parse."""

RowKey: TypeAlias = tuple[str, int]
"""(job type, scale factor): a row of a throughput table."""


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
    document = _object(_json(decode(data, "throughputs")), "throughputs", "worker types")
    keys: dict[str, RowKey] = {}
    alone: dict[str, dict[RowKey, float]] = {}
    shared: dict[str, dict[tuple[RowKey, RowKey], tuple[float, float]]] = {}
    for worker_type, rows in document.items():
        path = f"throughputs.{told_type(worker_type)}"
        alone[worker_type], shared[worker_type] = {}, {}
        for text, row in _object(rows, path, "job types").items():
            key = _row_key(text, path, keys)
            if key in alone[worker_type]:
                raise InvalidInput(
                    path, f"a second row {told_type(text)}", "one row per job type and scale"
                )
            rate, partners = _row(row, key, f"{path}.{told_type(text)}", keys)
            alone[worker_type][key] = rate
            shared[worker_type].update(partners)
    return GavelThroughputs(alone, shared)


def _json(text: str) -> object:
    try:
        return parse_json(text, "throughput table")
    except InvalidInput as error:
        raise InvalidInput("throughputs", error.found, "Gavel's throughput table in JSON") from None


def told_type(text: str) -> str:
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
            raise InvalidInput(
                path, f"a partner {told_type(text)}", f"partners of the same scale, {key[1]}"
            )
        if (key, partner) in partners:
            raise InvalidInput(path, f"a second partner {told_type(text)}", "each partner once")
        where = f"{path}.{told_type(text)}"
        if not isinstance(rates, list) or len(rates) != 2:
            raise InvalidInput(where, show(rates), "a list of two rates in steps/s")
        partners[key, partner] = (_rate(rates[0], f"{where}[0]"), _rate(rates[1], f"{where}[1]"))
    return _rate(row["null"], f"{path}.null"), partners


def _rate(value: object, path: str) -> float:
    if (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and 0 <= value <= sys.float_info.max
    ):
        return float(value)
    raise InvalidInput(path, show(value), "a finite rate in steps/s, at least 0")
