"""Measured pairs and rates of jobs alone in CSV: our own columns, and those of Gavel's rates as flat tables."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from optsched.errors import InvalidInput
from optsched.formats.csv_text import Kind, Row, Table, read_table
from optsched.formats.gavel_profiles import gpu_type_of, job_type_of
from optsched.instance.reading import listed, show

PAIRS: dict[str, Kind] = {
    "gpu": "text", "first": "text", "second": "text", "fraction_first": "number", "fraction_second": "number",
    "rate_first": "number", "rate_second": "number", "alone_first": "number", "alone_second": "number",
    "family_first": "text", "family_second": "text", "batch_first": "number", "batch_second": "number",
}  # fmt: skip
"""Columns of a table of pairs."""
PAIR_SYNONYMS = {
    "gpu_type": "gpu", "model_a": "family_first", "model_b": "family_second", "batch_a": "batch_first",
    "batch_b": "batch_second", "steps_per_s_a": "rate_first", "steps_per_s_b": "rate_second",
}  # fmt: skip
ALONE: dict[str, Kind] = {
    "gpu": "text", "workload": "text", "rate": "number", "family": "text", "batch": "number", "gpus": "whole",
    "consolidated": "whole",
}  # fmt: skip
"""Columns of a table of rates alone; only rows on one GPU count."""
ALONE_SYNONYMS = {
    "gpu_type": "gpu", "model": "family", "batch_size": "batch", "num_gpus": "gpus", "steps_per_s_total": "rate",
    "throughput": "rate",
}  # fmt: skip
SIDES = ("first", "second")


class PairMeasurement(NamedTuple):
    """One measured pair: what both jobs ran at, as fractions of their rates alone or in steps/s, and where it stands.

    ``alone`` are the rates alone that the row itself states, NaN where it states none.
    """

    gpu: str
    jobs: tuple[str, str]
    values: tuple[float, float]
    are_rates: bool
    alone: tuple[float, float]
    places: tuple[str, str]


@dataclass
class Known:
    """What files say of workloads alone, gathered as they are read."""

    alone: dict[tuple[str, str], float] = field(default_factory=dict)
    family: dict[str, str] = field(default_factory=dict)
    batch: dict[str, float] = field(default_factory=dict)

    def describe(self, workload: str, family: str | None, batch: float | None, place: str) -> None:
        """Remember the family and the batch of a workload, and refuse others than it has already."""
        if family is not None and (had := self.family.setdefault(workload, family)) != family:
            raise InvalidInput(
                place, f"family {show(family)} of {show(workload)}", f"{show(had)}, as before"
            )
        if batch is not None and (before := self.batch.setdefault(workload, batch)) != batch:
            raise InvalidInput(
                place, f"batch {batch:g} of {show(workload)}", f"{before:g}, as before"
            )

    def state(self, workload: str, gpu: str, rate: float, place: str) -> None:
        """Remember a rate alone, and refuse another one than there is already."""
        if (had := self.alone.setdefault((workload, gpu), rate)) != rate:
            raise InvalidInput(
                place, f"{rate:g} steps/s of {show(workload)} on {show(gpu)}", f"{had:g}, as before"
            )


def read_pair_table(data: bytes, name: str, known: Known) -> Iterator[PairMeasurement]:
    """The pairs of a CSV file; what it says of their workloads goes to ``known``."""
    table = read_table(data, name, PAIRS, ["gpu"], PAIR_SYNONYMS)
    of_gavel = "model_a" in table.written.values()
    head = f"{name}:1"
    are_rates = _are_rates(table, head)
    if not of_gavel:
        for column in SIDES:
            if column not in table.columns:
                raise InvalidInput(
                    head, f"no column {column}", f"one, beside {listed(table.written.values())}"
                )
    if not table.rows:
        raise InvalidInput(name, "no line below the first", "at least one pair")
    for row in table.rows:
        gpu = str(row.cells["gpu"])
        jobs = tuple(_job(table, row, side, known) for side in SIDES)
        values = tuple(
            _value(table, row, f"{'rate' if are_rates else 'fraction'}_{side}") for side in SIDES
        )
        kind = "rate" if are_rates else "fraction"
        places = tuple(table.place(row, f"{kind}_{side}") for side in SIDES)
        if (values[0] == 0) != (values[1] == 0):
            zero = int(values[1] == 0)
            raise InvalidInput(
                places[zero],
                f"0 beside {values[1 - zero]:g}",
                "0 of both jobs, which could not run together, or none",
            )
        alone = tuple(_alone(table, row, side) for side in SIDES)
        yield PairMeasurement(
            gpu_type_of(gpu) if of_gavel else gpu, (jobs[0], jobs[1]), (values[0], values[1]), are_rates,
            (alone[0], alone[1]), (places[0], places[1]),
        )  # fmt: skip


def read_alone_table(data: bytes, name: str, known: Known) -> None:
    """The rates of jobs alone on one GPU of a CSV file; a rate of 0 was not run, and is left out."""
    table = read_table(data, name, ALONE, ["gpu", "rate"], ALONE_SYNONYMS)
    of_gavel = "workload" not in table.columns
    if of_gavel and "model" not in table.written.values():
        raise InvalidInput(
            f"{name}:1", "no column workload", f"one, beside {listed(table.written.values())}"
        )
    if not table.rows:
        raise InvalidInput(name, "no line below the first", "at least one rate")
    for row in table.rows:
        rate = float(row.cells["rate"])
        if rate < 0:
            raise InvalidInput(
                table.place(row, "rate"), show(rate), "a rate in steps/s, at least 0"
            )
        if row.cells.get("gpus", 1) != 1 or row.cells.get("consolidated", 1) != 1 or rate == 0:
            continue
        family, batch = row.cells.get("family"), _batch(table, row, "batch")
        gpu = str(row.cells["gpu"])
        if of_gavel:
            if family is None:
                raise InvalidInput(table.place(row, "family"), "nothing", "the model of the job")
            workload, gpu = job_type_of(str(family), batch), gpu_type_of(gpu)
        elif "workload" in row.cells:
            workload = str(row.cells["workload"])
        else:
            raise InvalidInput(table.place(row, "workload"), "nothing", "a text")
        known.describe(
            workload, None if family is None else str(family), batch, f"{name}:{row.line}"
        )
        known.state(workload, gpu, rate, table.place(row, "rate"))


def _are_rates(table: Table, head: str) -> bool:
    """Whether values are rates; raises unless there is exactly one kind of them, of both jobs."""
    given = [
        kind
        for kind in ("fraction", "rate")
        if any(f"{kind}_{side}" in table.columns for side in SIDES)
    ]
    if len(given) != 1:
        found = "columns of both fractions and rates" if given else "neither fractions nor rates"
        raise InvalidInput(
            head,
            found,
            "the columns fraction_first and fraction_second, or rate_first and rate_second",
        )
    for side in SIDES:
        if f"{given[0]}_{side}" not in table.columns:
            raise InvalidInput(
                head,
                f"no column {given[0]}_{side}",
                f"one, beside {listed(table.written.values())}",
            )
    return given[0] == "rate"


def _job(table: Table, row: Row, side: str, known: Known) -> str:
    """The workload of one side of a pair, by its name or, in Gavel's table, by its model and its batch."""
    family, batch = row.cells.get(f"family_{side}"), _batch(table, row, f"batch_{side}")
    if side in row.cells:
        name = str(row.cells[side])
    elif side not in table.columns and family is not None:
        name = job_type_of(str(family), batch)
    else:
        column = side if side in table.columns else f"family_{side}"
        raise InvalidInput(table.place(row, column), "nothing", "a text")
    known.describe(name, None if family is None else str(family), batch, f"{table.name}:{row.line}")
    return name


def _batch(table: Table, row: Row, column: str) -> float | None:
    batch = row.cells.get(column)
    if batch is not None and float(batch) <= 0:
        raise InvalidInput(
            table.place(row, column), show(batch), "samples of one GPU in a step, above 0"
        )
    return None if batch is None else float(batch)


def _value(table: Table, row: Row, column: str) -> float:
    place = table.place(row, column)
    kind = column.partition("_")[0]
    expected = "a fraction from 0 to 1" if kind == "fraction" else "a rate in steps/s, at least 0"
    if column not in row.cells:
        raise InvalidInput(place, "nothing", expected)
    value = float(row.cells[column])
    if value < 0 or (kind == "fraction" and value > 1):
        raise InvalidInput(place, show(value), expected)
    return value


def _alone(table: Table, row: Row, side: str) -> float:
    rate = row.cells.get(f"alone_{side}")
    if rate is not None and float(rate) <= 0:
        raise InvalidInput(
            table.place(row, f"alone_{side}"), show(rate), "a rate in steps/s above 0"
        )
    return math.nan if rate is None else float(rate)
