"""Measured pairs of jobs that shared a GPU, from files: the fraction of its rate alone that each
kept.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from optsched.errors import InvalidInput, UsageError
from optsched.formats.gavel_files import (
    SPREAD,
    gpu_type_of,
    is_json,
    job_type_of,
    one_line,
    profile_of,
    read_throughputs,
)
from optsched.formats.tables import Cell, Kind, Table, read_table
from optsched.instance.arguments import checks_arguments
from optsched.instance.reading import listed, named, paths_of, read_bytes, show
from optsched.performance.learned import PairProfiles

log = logging.getLogger("optsched")

Sources = str | Path | Sequence[str | Path]
# A job beside another may exceed its rate alone by this factor before a warning is logged.
FASTER = 1.05
# Columns of a table of pairs.
PAIRS: dict[str, Kind] = {
    "gpu": "text",
    "first": "text",
    "second": "text",
    "fraction_first": "number",
    "fraction_second": "number",
    "rate_first": "number",
    "rate_second": "number",
    "alone_first": "number",
    "alone_second": "number",
    "family_first": "text",
    "family_second": "text",
    "batch_first": "number",
    "batch_second": "number",
}
PAIR_SYNONYMS = {
    "gpu_type": "gpu",
    "model_a": "family_first",
    "model_b": "family_second",
    "batch_a": "batch_first",
    "batch_b": "batch_second",
    "steps_per_s_a": "rate_first",
    "steps_per_s_b": "rate_second",
}
# Columns of a table of rates alone; only rows on one GPU are used.
ALONE: dict[str, Kind] = {
    "gpu": "text",
    "workload": "text",
    "rate": "number",
    "family": "text",
    "batch": "number",
    "gpus": "whole",
    "consolidated": "whole",
}
ALONE_SYNONYMS = {
    "gpu_type": "gpu",
    "model": "family",
    "batch_size": "batch",
    "num_gpus": "gpus",
    "steps_per_s_total": "rate",
    "throughput": "rate",
}
SIDES = ("first", "second")


class PairMeasurement(NamedTuple):
    """One measured pair: rates of both jobs, as fractions of their rates alone or in steps/s, and
    its place in the file.

    ``alone``: the rates alone that the row states, NaN if it states none.
    """

    gpu: str
    jobs: tuple[str, str]
    values: tuple[float, float]
    are_rates: bool
    alone: tuple[float, float]
    places: tuple[str, str]


@dataclass
class Known:
    """Data about workloads alone, collected while files are read."""

    alone: dict[tuple[str, str], float] = field(default_factory=dict)
    family: dict[str, str] = field(default_factory=dict)
    batch: dict[str, float] = field(default_factory=dict)

    def describe(self, workload: str, family: Cell | None, batch: float | None, place: str) -> None:
        """Store family and batch of a workload; refuse values that contradict earlier ones."""
        if family is not None and (had := self.family.setdefault(workload, str(family))) != family:
            raise InvalidInput(
                place, f"family {show(family)} of {show(workload)}", f"{show(had)}, as before"
            )
        if batch is not None and (before := self.batch.setdefault(workload, batch)) != batch:
            raise InvalidInput(
                place, f"batch {batch:g} of {show(workload)}", f"{before:g}, as before"
            )

    def state(self, workload: str, gpu: str, rate: float, place: str) -> None:
        """Store a rate alone; refuse a value that contradicts an earlier one."""
        if (had := self.alone.setdefault((workload, gpu), rate)) != rate:
            raise InvalidInput(
                place, f"{rate:g} steps/s of {show(workload)} on {show(gpu)}", f"{had:g}, as before"
            )


@checks_arguments
def read_pairs(sources: Sources, *, alone: Sources = ()) -> PairProfiles:
    """Read measured pairs of jobs that shared one GPU.

    A CSV file has a line for each pair: ``gpu`` (type), ``first`` and ``second`` (workloads), and
    either ``fraction_first`` and ``fraction_second``, what each kept of its rate alone, or
    ``rate_first`` and ``rate_second`` in steps/s, with the rates alone in ``alone_first`` and
    ``alone_second`` or in their own table (``alone``: ``gpu``, ``workload``, ``rate``).
    ``family_first``, ``batch_first`` and so on describe the workloads. A pair with 0 and 0 could
    not run together. Gavel's rates will do as flat tables (``model_a``, ``batch_a``, ...;
    ``model``, ``batch_size``, ...) or as the JSON that it has itself, which holds rates alone too:
    workloads are then named as Gavel names job types, GPU types are in capitals, and only jobs on
    one GPU count.

    Parameters
    ----------
    sources : path, or sequence of paths
        Files of pairs.
    alone : path, or sequence of paths
        Files of rates alone, CSV or Gavel's JSON; also of workloads that no pair has, which a model
        of features speaks for.

    Returns
    -------
    PairProfiles
        Never empty. A job beside another that is faster than alone counts as one that keeps
        everything.

    Raises
    ------
    InvalidInput
        With file, line and column, what was found and what was expected.
    UsageError
        No files.
    """
    known = Known()
    for path in paths_of(alone, "alone"):
        data = read_bytes(path)
        if is_json(path, data):
            with named(path):
                # Rates alone are added to ``known``
                list(_gavel_pairs(data, path, known))
        else:
            _read_alone(data, str(path), known)
    files = paths_of(sources)
    if not files:
        raise UsageError("no pairs: expected files")
    rows = [row for path in files for row in _measurements(path, known)]
    if not rows:
        raise InvalidInput(
            "", f"no pair in {', '.join(map(str, files))}", "at least one pair on one GPU"
        )
    # Only after all files are read, because the rate alone of a job may be in any of them
    rates = _rates_alone(rows, known)
    fractions = [tuple(_fraction(row, side, rates) for side in (0, 1)) for row in rows]
    _warn_of_faster(rows, rates)
    return PairProfiles.of(
        gpu=[row.gpu for row in rows],
        first=[row.jobs[0] for row in rows],
        second=[row.jobs[1] for row in rows],
        fraction_first=[one for one, _ in fractions],
        fraction_second=[other for _, other in fractions],
        isolated=rates,
        family=known.family,
        batch=known.batch,
    )


def _measurements(path: Path, known: Known) -> Iterator[PairMeasurement]:
    data = read_bytes(path)
    if is_json(path, data):
        with named(path):
            yield from _gavel_pairs(data, path, known)
    else:
        yield from _table_pairs(data, str(path), known)


# --- tables ---------------------------------------------------------------------------------------


def _table_pairs(data: bytes, name: str, known: Known) -> Iterator[PairMeasurement]:
    """The pairs of a CSV file; data about their workloads are added to ``known``."""
    table = read_table(data, name, PAIRS, ["gpu"], PAIR_SYNONYMS, least="pair")
    of_gavel = "model_a" in map(str.casefold, table.written.values())
    kind = _kind_of_values(table)
    if not of_gavel:
        for column in SIDES:
            _require(table, column)
    for row in range(len(table)):
        gpu = table.text(row, "gpu")
        first, second = (_workload(table, row, side, known) for side in SIDES)
        values = (_value(table, row, f"{kind}_first"), _value(table, row, f"{kind}_second"))
        places = (table.place(row, f"{kind}_first"), table.place(row, f"{kind}_second"))
        if (values[0] == 0) != (values[1] == 0):
            zero = int(values[1] == 0)
            found = f"0 beside {values[1 - zero]:g}"
            expected = "0 of both jobs, which could not run together, or none"
            raise InvalidInput(places[zero], found, expected)
        yield PairMeasurement(
            gpu=gpu_type_of(gpu) if of_gavel else gpu,
            jobs=(first, second),
            values=values,
            are_rates=kind == "rate",
            alone=(_alone(table, row, "first"), _alone(table, row, "second")),
            places=places,
        )


def _read_alone(data: bytes, name: str, known: Known) -> None:
    """Add the rates alone on one GPU of a CSV file; a rate of 0 (not measured) is ignored."""
    table = read_table(data, name, ALONE, ["gpu", "rate"], ALONE_SYNONYMS, least="rate")
    of_gavel = "workload" not in table
    if of_gavel and "model" not in map(str.casefold, table.written.values()):
        _require(table, "workload")
    for row in range(len(table)):
        rate = _value(table, row, "rate")
        counts = (table.value(row, "gpus"), table.value(row, "consolidated"))
        if rate == 0 or not set(counts) <= {None, 1}:
            continue
        family = table.value(row, "family")
        batch = _batch(table, row, "batch")
        gpu = table.text(row, "gpu")
        if not of_gavel:
            workload = table.text(row, "workload")
        elif family is None:
            raise table.error(row, "family", "nothing", "the model of the job")
        else:
            workload = job_type_of(str(family), batch)
            gpu = gpu_type_of(gpu)
        known.describe(workload, family, batch, table.row_place(row))
        known.state(workload, gpu, rate, table.place(row, "rate"))


def _require(table: Table, column: str) -> None:
    if column not in table:
        expected = f"one, beside {listed(table.written.values())}"
        raise InvalidInput(f"{table.name}:1", f"no column {column}", expected)


def _kind_of_values(table: Table) -> str:
    """Whether a table has fractions or rates; raises unless it has exactly one of them, for both
    jobs.
    """
    kinds = [
        kind for kind in ("fraction", "rate") if any(f"{kind}_{side}" in table for side in SIDES)
    ]
    if len(kinds) != 1:
        found = "columns of both fractions and rates" if kinds else "neither fractions nor rates"
        expected = "the columns fraction_first and fraction_second, or rate_first and rate_second"
        raise InvalidInput(f"{table.name}:1", found, expected)
    for side in SIDES:
        _require(table, f"{kinds[0]}_{side}")
    return kinds[0]


def _workload(table: Table, row: int, side: str, known: Known) -> str:
    """The workload of one side of a pair, by its name or, in Gavel's table,
    by its model and its batch.
    """
    family = table.value(row, f"family_{side}")
    batch = _batch(table, row, f"batch_{side}")
    name = (
        table.text(row, side)
        if side in table
        else job_type_of(table.text(row, f"family_{side}"), batch)
    )
    known.describe(name, family, batch, table.row_place(row))
    return name


def _batch(table: Table, row: int, column: str) -> float | None:
    expected = "samples of one GPU in a step, above 0"
    return table.number(row, column, lambda batch: batch > 0, expected)


def _value(table: Table, row: int, column: str) -> float:
    """A fraction, or a rate."""
    if column.startswith("fraction"):
        expected = "a fraction from 0 to 1"
        return table.some_number(row, column, lambda part: 0 <= part <= 1, expected)
    expected = "a rate in steps/s, at least 0"
    return table.some_number(row, column, lambda rate: rate >= 0, expected)


def _alone(table: Table, row: int, side: str) -> float:
    """The rate alone that a row states; NaN if it states none."""
    expected = "a rate in steps/s above 0"
    rate = table.number(row, f"alone_{side}", lambda rate: rate > 0, expected)
    return math.nan if rate is None else rate


# --- Gavel's throughput tables --------------------------------------------------------------------


def _gavel_pairs(data: bytes, path: Path, known: Known) -> Iterator[PairMeasurement]:
    """The pairs on one GPU of Gavel's throughput table, each once, and all rates alone on one GPU.

    The table has both directions of a pair. If they agree, one is used, otherwise both. Pairs of a
    job without a rate alone (0 also means "not measured") are left out.
    """
    table = read_throughputs(data)
    left_out = 0
    for worker_type in table.worker_types:
        if worker_type.endswith(SPREAD):
            continue
        gpu = gpu_type_of(worker_type)
        where = f"{path}:{one_line(worker_type)}"
        alone = {
            job: rate
            for (job, gpus), rate in table.alone[worker_type].items()
            if gpus == 1 and rate > 0
        }
        for job, rate in alone.items():
            family, batch = profile_of(job)
            known.describe(job, family, batch, f"{where}.{one_line(job)}")
            known.state(job, gpu, rate, f"{where}.{one_line(job)}")
        shared = table.shared[worker_type]
        for ((first, gpus), (second, _)), rates in shared.items():
            back = shared.get(((second, 1), (first, 1)))
            # Use only pairs on one GPU, and only one of two directions that agree
            if gpus != 1 or (first > second and back is not None and back == rates[::-1]):
                continue
            place = f"{where}.{one_line(first)}.{one_line(second)}"
            if (rates[0] == 0) != (rates[1] == 0):
                raise InvalidInput(
                    place,
                    show(list(rates)),
                    "0 of both jobs, which could not run together, or of none",
                )
            if first not in alone or second not in alone:
                left_out += 1
                continue
            yield PairMeasurement(
                gpu,
                (first, second),
                rates,
                True,
                (alone[first], alone[second]),
                (place, place),
            )
    if left_out:
        log.info("%d pairs of jobs without a rate alone left out", left_out)


# --- from rates to fractions ----------------------------------------------------------------------


def _rates_alone(rows: Sequence[PairMeasurement], known: Known) -> dict[tuple[str, str], float]:
    """Rates alone by workload and GPU type:
    from tables, else the mean of those in the rows.
    """
    found: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        for job, rate in zip(row.jobs, row.alone, strict=True):
            if not math.isnan(rate):
                found.setdefault((job, row.gpu), []).append(rate)
    # fsum, so that the mean does not depend on the order of the files
    return {cell: math.fsum(rates) / len(rates) for cell, rates in found.items()} | known.alone


def _kept(row: PairMeasurement, side: int, rates: dict[tuple[str, str], float]) -> float:
    """The rate beside the other job divided by the rate alone; a rate alone in the row takes
    precedence over that of a table.
    """
    alone = row.alone[side]
    if math.isnan(alone):
        if (row.jobs[side], row.gpu) not in rates:
            raise InvalidInput(
                row.places[side],
                f"no rate of {show(row.jobs[side])} alone on {show(row.gpu)}",
                f"one in a column alone_{('first', 'second')[side]}, or in a table of rates alone",
            )
        alone = rates[row.jobs[side], row.gpu]
    return row.values[side] / alone


def _fraction(row: PairMeasurement, side: int, rates: dict[tuple[str, str], float]) -> float:
    if not row.are_rates or row.values[side] == 0:
        return row.values[side]
    return min(_kept(row, side, rates), 1.0)


def _warn_of_faster(rows: Sequence[PairMeasurement], rates: dict[tuple[str, str], float]) -> None:
    above = [
        (kept, row.places[side])
        for row in rows
        if row.are_rates and row.values[0] > 0
        for side in (0, 1)
        if (kept := _kept(row, side, rates)) > FASTER
    ]
    if above:
        most, place = max(above)
        log.warning(
            "%d jobs run faster beside another than alone, up to %.3g times (%s): "
            "taken to keep their whole rate",
            len(above),
            most,
            place,
        )
