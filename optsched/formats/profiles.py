"""Profiles from files: measured times of steps in CSV,
as AdaptDL and ElasticFlow write them, and Gavel's tables.
"""

from __future__ import annotations

import logging
import math
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from optsched.arrays import FloatArray, IntArray
from optsched.errors import InvalidArgument, InvalidInput, UsageError
from optsched.formats.gavel_files import (
    SPREAD,
    gpu_type_of,
    is_json,
    one_line,
    profile_of,
    read_throughputs,
)
from optsched.formats.tables import Kind, Table, known_columns, read_header, read_table
from optsched.instance.arguments import checks_arguments
from optsched.instance.reading import listed, named, paths_of, read_bytes, show
from optsched.performance.profiles import LONGEST, SHORTEST, Profiles

log = logging.getLogger("optsched")

Repeats = Literal["first", "all"]
# Columns of a table of profiles.
#
# ``samples`` are those of one GPU in one pass, ``batch`` those of all GPUs in a step;
# ``throughput`` is in steps/s and replaces ``seconds``.
COLUMNS: dict[str, Kind] = {
    "workload": "text",
    "gpu": "text",
    "gpus": "whole",
    "nodes": "whole",
    "placement": "text",
    "samples": "number",
    "batch": "number",
    "passes": "whole",
    "seconds": "number",
    "throughput": "text",
    "sync": "number",
}
# Other names of columns, including those of AdaptDL.
SYNONYMS = {
    "gpu_type": "gpu",
    "pool": "gpu",
    "num_gpus": "gpus",
    "num_replicas": "gpus",
    "num_nodes": "nodes",
    "local_bsz": "samples",
    "local_batch": "samples",
    "step_time": "seconds",
    "sync_time": "sync",
}
# Name of a file of AdaptDL's profiler, with the GPU type; its folder is the workload.
ADAPTDL = re.compile(r"(?:placements|scalability)-(.+)\.csv", re.IGNORECASE)
# Name of another file in that folder: statistics of gradients, not times of steps.
GRADIENTS = re.compile(r"validation-\d+\.csv", re.IGNORECASE)
# First column of a table of ElasticFlow.
GLOBAL_BATCH = "global_batch_size"
# Folder of ElasticFlow's tables, with the GPU type.
FOLDER = re.compile(r"throughputs[_-](.+)", re.IGNORECASE)
# A contradiction between times by this factor means that milliseconds are mixed with seconds.
APART = 200.0


class Measurement(NamedTuple):
    """One measured step.

    ``place`` is where its time is (``file:line:column``). ``once``: later measurements of the same
    way are dropped. ``whole_step``: its samples are unknown.
    """

    workload: str
    gpu: str
    gpus: int
    nodes: int
    samples: float
    passes: int
    seconds: float
    sync: float
    place: str
    once: bool = False
    whole_step: bool = False

    @property
    def way(self) -> tuple[str, str, int, int, float, int]:
        """The way that was measured."""
        return self[:6]


@dataclass(frozen=True)
class Defaults:
    """Defaults for data that a file lacks; None: the file must have them."""

    workload: str | None = None
    gpu: str | None = None
    gpus_per_node: int | None = None

    def name(self, kind: str) -> str | None:
        """The ``workload`` or the ``gpu``."""
        return self.workload if kind == "workload" else self.gpu

    def fewest_nodes(self, gpus: int, file: str) -> int:
        """The fewest nodes for ``gpus`` GPUs; raises `InvalidInput` if the size of nodes is not
        given.
        """
        if gpus == 1:
            return 1
        if self.gpus_per_node is None:
            expected = "--gpus-per-node, which this kind of table does not tell"
            raise InvalidInput(file, "GPUs without their nodes", expected)
        return -(-gpus // self.gpus_per_node)


@checks_arguments
def read_profiles(
    sources: str | Path | Sequence[str | Path],
    *,
    workload: str | None = None,
    gpu: str | None = None,
    gpus_per_node: int | None = None,
    repeats: Repeats | None = None,
) -> Profiles:
    """Read measured steps.

    A CSV file has a line for each: ``workload``, ``gpu`` (type), ``gpus``, ``nodes`` (or
    ``placement``, a digit for each node), ``samples`` of one GPU in a pass, ``seconds``, perhaps
    ``passes`` and ``sync`` (the seconds in which gradients were exchanged); the names that AdaptDL
    has for them will do. ``throughput``, in steps/s, may replace ``seconds``; samples may be left
    out then: rates are those of whole steps, and the workload needs no batch. A CSV file that
    begins with ``global_batch_size`` is one of ElasticFlow, a JSON file one of Gavel. Of a folder
    every CSV file in it and below is read, in the order of their paths, but for AdaptDL's
    ``validation-*.csv``.

    Parameters
    ----------
    sources : path, or sequence of paths
        Files and folders.
    workload, gpu : str, optional
        Where a table does not name them; by default its path is asked: ``bert/placements-t4.csv``
        and ``bert/scalability-t4.csv`` are BERT on T4, ``throughputs_T4/bert.csv`` too.
    gpus_per_node : int, optional
        Of tables without nodes: their GPUs are on as few as possible. Without it, the GPUs of a row
        in a table of rates are assumed to be on one node, and a warning is logged.
    repeats : "first" or "all", optional
        Of several measurements of one way to run keep the first, or all. By default all, but of
        AdaptDL's files the first, as AdaptDL itself does.

    Returns
    -------
    Profiles
        Never empty.

    Raises
    ------
    InvalidInput
        With file, line and column, what was found and what was expected; also for times in
        different units.
    UsageError
        ``repeats`` or ``gpus_per_node`` that there cannot be, or no files.
    """
    if repeats not in (None, "first", "all"):
        raise InvalidArgument("repeats", repr(repeats), "first or all")
    if gpus_per_node is not None and gpus_per_node < 1:
        raise InvalidArgument("gpus_per_node", str(gpus_per_node), "a whole number of at least 1")
    paths = paths_of(sources)
    if not paths:
        raise UsageError("no profiles: expected files or folders")
    defaults = Defaults(workload, gpu, gpus_per_node)
    rows = [row for path in paths for file in _files(path) for row in _measurements(file, defaults)]
    if not rows:
        raise InvalidInput(
            "", f"no measurement in {', '.join(map(str, paths))}", "at least one step that has run"
        )
    # AdaptDL's files have some ways twice; AdaptDL itself uses the first
    kept = _without_repeats(rows, repeats)
    if len(kept) < len(rows):
        log.info("%d repeated measurements left out of %d", len(rows) - len(kept), len(rows))
    return _profiles_of(kept)


def _files(path: Path) -> Iterable[Path]:
    if not os.path.isdir(path):  # Path.is_dir raises if a name is too long
        return [path]
    found = [file for file in sorted(path.rglob("*.csv")) if not GRADIENTS.fullmatch(file.name)]
    if not found:
        raise InvalidInput("", f"no CSV file in the folder {path}", "profiles")
    return found


def _measurements(path: Path, defaults: Defaults) -> Iterator[Measurement]:
    """The measurements of a file; its kind is recognised from its content."""
    data = read_bytes(path)
    if is_json(path, data):
        with named(path):
            yield from _gavel_rates(data, path, defaults)
    elif known_columns(read_header(data, str(path))[:1], [GLOBAL_BATCH]) == [GLOBAL_BATCH]:
        yield from _elasticflow_rates(data, path, defaults)
    else:
        yield from _steps(data, path, defaults)


# --- tables of steps ------------------------------------------------------------------------------


def _steps(data: bytes, path: Path, defaults: Defaults) -> Iterator[Measurement]:
    """Measurements from a table with a line per step, in standard columns or those of AdaptDL."""
    table = read_table(
        data,
        str(path),
        COLUMNS,
        _required(data, path),
        SYNONYMS,
        least="measurement",
    )
    _check_columns(table)
    _warn_of_one_node(table, defaults)
    adaptdl = ADAPTDL.fullmatch(path.name)
    of_path = Defaults(path.parent.name or None, adaptdl[1]) if adaptdl else Defaults()
    rates = "throughput" in table
    whole_step = not {"samples", "batch"} & set(table.written)
    for row in range(len(table)):
        if rates and _rate(table, row, "throughput") == 0:
            continue
        gpus, nodes = _gpus_and_nodes(table, row, defaults)
        if rates:
            seconds = 1 / _rate(table, row, "throughput")
        else:
            seconds = _positive(table, row, "seconds", "a time in seconds above 0")
        passes = _count(table, row, "passes", "passes", default=1)
        # Passes are meaningless for a step without samples.
        passes = 1 if whole_step else passes
        yield Measurement(
            workload=_name(table, row, "workload", defaults, of_path),
            gpu=_name(table, row, "gpu", defaults, of_path),
            gpus=gpus,
            nodes=nodes,
            samples=_samples(table, row, gpus, passes),
            passes=passes,
            seconds=seconds,
            sync=_sync(table, row, seconds),
            place=table.place(row, "throughput" if rates else "seconds"),
            once=adaptdl is not None,
            whole_step=whole_step,
        )


def _required(data: bytes, path: Path) -> list[str]:
    """Required columns: a time or a rate of each step, and its samples (not required for rates).

    Raises
    ------
    InvalidInput
        Two columns contain the same quantity.
    """
    header = set(known_columns(read_header(data, str(path)), COLUMNS, SYNONYMS))
    for column, alternative in (("seconds", "throughput"), ("samples", "batch")):
        if {column, alternative} <= header:
            raise InvalidInput(
                f"{path}:1", f"the columns {column} and {alternative}", "one of them"
            )
    sizes = header & {"samples", "batch"}
    if "throughput" in header:
        return sorted(sizes)
    return [*(sorted(sizes) or ["samples"]), "seconds"]


def _check_columns(table: Table) -> None:
    """Check that a table has either GPUs and nodes or a placement; tables of rates may have
    neither.
    """
    ways = [column for column in ("placement", "gpus", "nodes") if column in table]
    if "placement" in table and len(ways) > 1:
        found = f"the columns {listed(sorted(table.written[column] for column in ways))}"
        raise InvalidInput(f"{table.name}:1", found, "a placement, or GPUs and nodes")
    if "throughput" not in table and not {"placement", "gpus"} & set(ways):
        expected = f"one (or placement), beside {listed(table.written.values())}"
        raise InvalidInput(f"{table.name}:1", "no column gpus", expected)


def _warn_of_one_node(table: Table, defaults: Defaults) -> None:
    """Warn once per file that rates on several GPUs without nodes are assumed to be on one node."""
    says_nodes = "nodes" in table or "placement" in table or defaults.gpus_per_node is not None
    if "throughput" not in table or says_nodes:
        return
    most = max(int(table.value(row, "gpus") or 1) for row in range(len(table)))
    if most > 1:
        log.warning(
            "%s has no column nodes: jobs on up to %d GPUs are taken to run on one node; "
            "the column nodes, or"
            " --gpus-per-node (gpus_per_node), says otherwise",
            table.name,
            most,
        )


def _name(table: Table, row: int, kind: str, defaults: Defaults, of_path: Defaults) -> str:
    """The workload or GPU type of a row:
    its cell, else the given default, else the name from the path.
    """
    name = table.value(row, kind) or defaults.name(kind) or of_path.name(kind)
    if name:
        return str(name)
    where, found = (
        (table.place(row, kind), "nothing") if kind in table else (table.name, f"no column {kind}")
    )
    expected = (
        f"one, a --{kind} for all rows, or a path such as bert/placements-t4.csv that tells it"
    )
    raise InvalidInput(where, found, expected)


def _gpus_and_nodes(table: Table, row: int, defaults: Defaults) -> tuple[int, int]:
    """GPUs and nodes of a row; a rate is on one GPU by default."""
    if "placement" in table:
        digits = str(table.value(row, "placement") or "")
        if not re.fullmatch("[1-9]+", digits, re.ASCII):
            expected = "for each node one digit from 1 to 9, its GPUs, such as 44"
            found = show(digits) if digits else "nothing"
            raise table.error(row, "placement", found, expected)
        return sum(map(int, digits)), len(digits)
    rates = "throughput" in table
    # A rate without a number of GPUs is on one GPU.
    gpus = _count(table, row, "gpus", "GPUs", default=1 if rates else None)
    nodes = table.value(row, "nodes")
    if nodes is None and gpus > 1:
        if defaults.gpus_per_node is not None:
            return gpus, defaults.fewest_nodes(gpus, table.name)
        if rates and "nodes" not in table:
            # `_warn_of_one_node` has warned of this assumption
            return gpus, 1
        found = "nothing" if "nodes" in table else f"no column nodes for a step on {gpus} GPUs"
        expected = "the nodes that these are spread over, or --gpus-per-node for all rows"
        raise table.error(row, "nodes", found, expected)
    count = 1 if nodes is None else int(nodes)
    if not 1 <= count <= gpus:
        found = f"{count} nodes for {gpus} GPUs" if count > 1 else show(count)
        expected = "at least one node, and at most one for each GPU"
        raise table.error(row, "nodes", found, expected)
    return gpus, count


def _count(table: Table, row: int, column: str, what: str, default: int | None) -> int:
    """A whole number; an empty cell is the default, if there is one."""
    expected = f"a whole number of {what}, at least 1"
    if default is not None and table.value(row, column) is None:
        return default
    return int(table.some_number(row, column, lambda count: 1 <= count < 2**31, expected))


def _sync(table: Table, row: int, seconds: float) -> float:
    """Seconds in which gradients were exchanged; NaN if not measured."""
    value = table.value(row, "sync")
    sync = math.nan if value is None else float(value)
    if sync < 0 or sync > seconds * (1 + 1e-9):
        found = f"{sync:g} s of a step of {seconds:g} s"
        expected = (
            "from 0 to the step's own seconds, in the same unit, "
            "or nothing where it was not measured"
        )
        raise table.error(row, "sync", found, expected)
    return sync


def _samples(table: Table, row: int, gpus: int, passes: int) -> float:
    """Samples of one GPU in one pass;
    a step of a rate without samples counts as one sample, shared by all GPUs.
    """
    if "samples" in table:
        return _positive(table, row, "samples", "samples of one GPU in one pass, above 0")
    batch = 1.0
    if "batch" in table:
        batch = _positive(table, row, "batch", "samples of a step, above 0")
    return batch / (gpus * passes)


def _positive(table: Table, row: int, column: str, expected: str) -> float:
    value = float(table.numbers[column][row])
    if value <= 0:
        raise table.error(row, column, show(value), expected)
    if not SHORTEST <= value <= LONGEST:
        expected = f"{expected}: from {SHORTEST:g} to {LONGEST:g}"
        raise table.error(row, column, show(value), expected)
    return value


def _rate(table: Table, row: int, column: str) -> float:
    """iterations/s; 0 where the job did not run."""
    text = str(table.value(row, column) or "")
    if text.lower() in ("", "nan"):
        return 0.0
    try:
        rate = float(text)
    except ValueError:
        rate = math.nan
    if not (rate == 0 or 1e-12 <= rate <= LONGEST):
        expected = "iterations/s, or 0 where the job cannot run"
        raise table.error(row, column, show(text), expected)
    return rate


# --- tables of ElasticFlow and Gavel --------------------------------------------------------------


def _elasticflow_rates(data: bytes, path: Path, defaults: Defaults) -> Iterator[Measurement]:
    """iterations/s of a job with a fixed global batch, by its GPUs;
    0, nan or an empty cell means that it did not run.

    t = 1/rate for a step of ``global_batch_size`` samples, of which each of k GPUs takes 1/k.
    """
    file = str(path)
    counts = read_header(data, file)[1:]
    for count in counts:
        if not re.fullmatch(r"[1-9]\d{0,8}", count, re.ASCII):
            found = f"the column {show(count)}"
            raise InvalidInput(f"{file}:1", found, "numbers of GPUs as columns")
    columns: dict[str, Kind] = {GLOBAL_BATCH: "number", **dict.fromkeys(counts, "text")}
    table = read_table(data, file, columns, [GLOBAL_BATCH], least=None)
    folder = FOLDER.fullmatch(path.parent.name)
    gpu = defaults.gpu or (folder[1] if folder else None)
    if gpu is None:
        expected = "a --gpu for all rows, or a folder such as throughputs_A100"
        raise InvalidInput(file, "no GPU type", expected)
    for row in range(len(table)):
        batch = _positive(table, row, GLOBAL_BATCH, "samples above 0")
        for count in counts:
            gpus = int(count)
            rate = _rate(table, row, count)
            if rate > 0:
                yield Measurement(
                    workload=defaults.workload or path.stem,
                    gpu=gpu,
                    gpus=gpus,
                    nodes=defaults.fewest_nodes(gpus, file),
                    samples=batch / gpus,
                    passes=1,
                    seconds=1 / rate,
                    sync=math.nan,
                    place=table.place(row, count),
                )


def _gavel_rates(data: bytes, path: Path, defaults: Defaults) -> Iterator[Measurement]:
    """The rates of jobs alone on their GPUs; a rate of 0 means not measured and is left out.

    A rate is the sum over k workers, each of which takes m samples in a step: t = k / rate for a
    step of k m samples. Rows of a worker type are on the fewest nodes that ``gpus_per_node``
    allows, or on one node without it; rows of ``..._unconsolidated`` have one GPU per node. GPU
    types are worker types in capitals.
    """
    for worker_type, rows in read_throughputs(data).alone.items():
        spread = worker_type.endswith(SPREAD)
        for (job_type, gpus), rate in rows.items():
            if rate <= 0 or (spread and gpus == 1):
                continue
            workload, samples = profile_of(job_type)
            # Unconsolidated rows were measured with one GPU on each node
            nodes = gpus if spread else -(-gpus // (defaults.gpus_per_node or gpus))
            yield Measurement(
                workload=defaults.workload or workload,
                gpu=defaults.gpu or gpu_type_of(worker_type.removesuffix(SPREAD)),
                gpus=gpus,
                nodes=nodes,
                samples=samples,
                passes=1,
                seconds=gpus / rate,
                sync=math.nan,
                place=f"{path}:{one_line(worker_type)}.{one_line(job_type)}, {gpus} GPUs",
            )


# --- from measurements to profiles ----------------------------------------------------------------


def _without_repeats(rows: Sequence[Measurement], repeats: str | None) -> list[Measurement]:
    """The first measurement of each way (``first``), ``all`` of them, or (None) as the field
    ``once`` of each says.
    """
    seen = set()
    kept = []
    for row in rows:
        again = row.way in seen
        seen.add(row.way)
        if not again or repeats == "all" or (repeats is None and not row.once):
            kept.append(row)
    return kept


def _profiles_of(rows: Sequence[Measurement]) -> Profiles:
    """Profiles from checked measurements, in their order;
    raises `InvalidInput` for mixed units.
    """
    columns = list(zip(*rows, strict=True))
    workload, gpu, gpus, nodes, samples, passes, seconds, sync, places, *_ = columns
    profiles = Profiles.of(
        workload=workload,
        gpu=gpu,
        gpus=gpus,
        nodes=nodes,
        samples=samples,
        seconds=seconds,
        sync=sync,
        passes=passes,
    )
    _refuse_mixed_units(profiles, places)
    return replace(profiles, whole_steps=_whole_steps(rows))


def _whole_steps(rows: Sequence[Measurement]) -> tuple[str, ...]:
    """Workloads measured without samples;
    raises `InvalidInput` for one that was measured with samples too.
    """
    names = {row.workload for row in rows if row.whole_step}
    for row in rows:
        if row.workload in names and not row.whole_step:
            expected = "all rows of a workload with samples, or none"
            found = f"{show(row.workload)} with samples, elsewhere without"
            raise InvalidInput(row.place, found, expected)
    return tuple(sorted(names))


def _refuse_mixed_units(profiles: Profiles, places: Sequence[str]) -> None:
    """Refuse times of one workload and GPU type that cannot be in the same unit.

    A step of m samples takes about a + b m seconds with a, b >= 0. So with m < m', a step of m
    samples is not slower than one of m', and the step of m' samples takes at most m'/m times as
    long. If two times violate this by a factor of `APART`, they are taken to be in different units;
    noise and communication have smaller effects.
    """
    # Compare only times of one workload on one GPU type
    ways = profiles.ways
    group = ways.workload * len(ways.gpu_types) + ways.gpu
    each = profiles.seconds / ways.passes
    order = np.lexsort((ways.samples, group))
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))
    for rows in np.split(order, starts[1:]):
        pair = _apart(ways.samples[rows], each[rows])
        if pair is not None:
            other, odd = sorted(
                (int(rows[place]) for place in pair), key=profiles.seconds.__getitem__
            )
            found = (
                f"{profiles.seconds[odd]:g} s, where {places[other]} has "
                f"{profiles.seconds[other]:g} s"
            )
            raise InvalidInput(
                places[odd],
                found,
                "times in one unit (some look like milliseconds): "
                "a step's time follows its samples",
            )


def _apart(samples: FloatArray, seconds: FloatArray) -> tuple[int, int] | None:
    """Two positions with times that cannot be in one unit; None if there are none. The arrays are
    sorted by samples.
    """
    # Without noise, both would be non-decreasing in the samples
    for law in (
        np.log(seconds),
        np.log(samples) - np.log(seconds),
    ):
        highest = _running_argmax(law)
        drop = law[highest] - law
        worst = int(np.argmax(drop))
        if drop[worst] > np.log(APART):
            return worst, int(highest[worst])
    return None


def _running_argmax(values: FloatArray) -> IntArray:
    """The index of the largest value so far, for each index."""
    # Mark new maxima with their index, and carry it forward to the next one
    peak = np.maximum.accumulate(values)
    return np.maximum.accumulate(np.where(values == peak, np.arange(len(values)), 0))
