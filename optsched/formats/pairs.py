"""Pairs of jobs that shared a GPU, from files: what each kept of its rate alone."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from optsched.errors import InvalidInput, UsageError
from optsched.formats.gavel_files import read_throughputs, told_type
from optsched.formats.gavel_profiles import SPREAD, gpu_type_of, profile_of
from optsched.formats.pair_tables import Known, PairMeasurement, read_alone_table, read_pair_table
from optsched.instance.reading import named, read_bytes, show
from optsched.performance.learned.pairs import PairProfiles

log = logging.getLogger("optsched")

Sources = str | Path | Sequence[str | Path]
FASTER = 1.05
"""Times its rate alone that a job beside another may run at before it is told that something is odd."""


def read_pairs(sources: Sources, *, alone: Sources = ()) -> PairProfiles:
    """Read measured pairs of jobs that shared one GPU.

    A CSV file has a line for each pair: ``gpu`` (type), ``first`` and ``second`` (workloads), and either
    ``fraction_first`` and ``fraction_second``, what each kept of its rate alone, or ``rate_first`` and
    ``rate_second`` in steps/s, with the rates alone in ``alone_first`` and ``alone_second`` or in a table of their own
    (``alone``: ``gpu``, ``workload``, ``rate``). ``family_first``, ``batch_first`` and so on tell more of the
    workloads. A pair with 0 and 0 could not run together. Gavel's rates will do as flat tables (``model_a``,
    ``batch_a``, ...; ``model``, ``batch_size``, ...) or as the JSON that it has itself, which holds rates alone too:
    workloads are then named as Gavel names job types, GPU types are in capitals, and only jobs on one GPU count.

    Parameters
    ----------
    sources : path, or sequence of paths
        Files of pairs.
    alone : path, or sequence of paths
        Files of rates alone, CSV or Gavel's JSON; also of workloads that no pair has, which a model of features
        speaks for.

    Returns
    -------
    PairProfiles
        Never empty. A job beside another that is faster than alone counts as one that keeps everything.

    Raises
    ------
    InvalidInput
        With file, line and column, what was found and what was expected.
    UsageError
        No files.
    """
    known = Known()
    for path in _paths(alone):
        data = read_bytes(path)
        if _is_json(path, data):
            with named(path):
                list(_gavel_pairs(data, path, known))
        else:
            read_alone_table(data, str(path), known)
    files = _paths(sources)
    if not files:
        raise UsageError("no pairs: expected files")
    rows = [row for path in files for row in _measurements(path, known)]
    if not rows:
        raise InvalidInput(
            "", f"no pair in {', '.join(map(str, files))}", "at least one pair on one GPU"
        )
    rates = _rates_alone(rows, known)
    fractions = [tuple(_fraction(row, side, rates) for side in (0, 1)) for row in rows]
    _tell_faster(rows, rates)
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


def _paths(sources: Sources) -> list[Path]:
    return [Path(source) for source in ([sources] if isinstance(sources, str | Path) else sources)]


def _is_json(path: Path, data: bytes) -> bool:
    return path.suffix.lower() == ".json" or data.lstrip()[:1] == b"{"


def _measurements(path: Path, known: Known) -> Iterator[PairMeasurement]:
    data = read_bytes(path)
    if _is_json(path, data):
        with named(path):
            yield from _gavel_pairs(data, path, known)
    else:
        yield from read_pair_table(data, str(path), known)


def _gavel_pairs(data: bytes, path: Path, known: Known) -> Iterator[PairMeasurement]:
    """The pairs on one GPU of Gavel's throughput table, each once, and all rates alone on one GPU.

    Both directions of a pair stand in the table. Where they agree one is taken, and both where they do not. Pairs of a
    job that has no rate alone (0 is also "not measured") cannot be told and are left out.
    """
    table = read_throughputs(data)
    left_out = 0
    for worker_type in table.worker_types:
        if worker_type.endswith(SPREAD):
            continue
        gpu, where = gpu_type_of(worker_type), f"{path}:{told_type(worker_type)}"
        alone = {
            job: rate
            for (job, gpus), rate in table.alone[worker_type].items()
            if gpus == 1 and rate > 0
        }
        for job, rate in alone.items():
            family, batch = profile_of(job)
            known.describe(job, family, batch, f"{where}.{told_type(job)}")
            known.state(job, gpu, rate, f"{where}.{told_type(job)}")
        shared = table.shared[worker_type]
        for ((first, gpus), (second, _)), rates in shared.items():
            back = shared.get(((second, 1), (first, 1)))
            if gpus != 1 or (first > second and back is not None and back == rates[::-1]):
                continue
            place = f"{where}.{told_type(first)}.{told_type(second)}"
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
                gpu, (first, second), rates, True, (alone[first], alone[second]), (place, place)
            )
    if left_out:
        log.info("%d pairs of jobs without a rate alone left out", left_out)


def _rates_alone(rows: Sequence[PairMeasurement], known: Known) -> dict[tuple[str, str], float]:
    """Rates alone by workload and GPU type: those of tables, else the means of what the rows say."""
    found: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        for job, rate in zip(row.jobs, row.alone, strict=True):
            if not math.isnan(rate):
                found.setdefault((job, row.gpu), []).append(rate)
    return {cell: math.fsum(rates) / len(rates) for cell, rates in found.items()} | known.alone


def _kept(row: PairMeasurement, side: int, rates: dict[tuple[str, str], float]) -> float:
    """The rate beside the other job over the rate alone, that of the row itself before that of a table."""
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


def _tell_faster(rows: Sequence[PairMeasurement], rates: dict[tuple[str, str], float]) -> None:
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
            "%d jobs run faster beside another than alone, up to %.3g times (%s): taken to keep their whole rate",
            len(above), most, place,
        )  # fmt: skip
