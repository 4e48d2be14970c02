"""Profiles in CSV: our own columns, those that AdaptDL writes, and the tables of ElasticFlow."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from optsched.errors import InvalidInput
from optsched.formats.csv_text import Kind, Row, Table, read_header, read_table
from optsched.formats.measurements import Measurement, check_way
from optsched.instance.reading import listed, show
from optsched.performance.profiles import LEAST, MOST

log = logging.getLogger(__name__)

COLUMNS: dict[str, Kind] = {
    "workload": "text", "gpu": "text", "gpus": "whole", "nodes": "whole", "placement": "text", "samples": "number",
    "batch": "number", "passes": "whole", "seconds": "number", "throughput": "text", "sync": "number",
}  # fmt: skip
"""Columns of a table of profiles.

``samples`` are those of one GPU in one pass, ``batch`` those of all GPUs in a step; ``throughput`` is in steps/s and
stands in the place of ``seconds``.
"""
SYNONYMS = {
    "gpu_type": "gpu", "pool": "gpu", "num_gpus": "gpus", "num_replicas": "gpus", "num_nodes": "nodes",
    "local_bsz": "samples", "local_batch": "samples", "step_time": "seconds", "sync_time": "sync",
}  # fmt: skip
"""Other names that columns may have; those of AdaptDL among them."""
ADAPTDL = re.compile(r"(?:placements|scalability)-(.+)\.csv", re.IGNORECASE)
"""Name of a file that AdaptDL's profiler wrote, with the GPU type; its folder is the workload."""
GRADIENTS = re.compile(r"validation-\d+\.csv", re.IGNORECASE)
"""Name of a file beside those: statistics of gradients, which are no times of steps."""
GLOBAL_BATCH = "global_batch_size"
"""First column of a table of ElasticFlow."""
FOLDER = re.compile(r"throughputs[_-](.+)", re.IGNORECASE)
"""Folder of ElasticFlow's tables, with the GPU type."""


@dataclass(frozen=True)
class Missing:
    """What is taken where a file does not say it; None: it must."""

    workload: str | None = None
    gpu: str | None = None
    gpus_per_node: int | None = None

    def name(self, kind: str) -> str | None:
        """The ``workload`` or the ``gpu``."""
        return self.workload if kind == "workload" else self.gpu


def read_profile_table(data: bytes, path: Path, missing: Missing) -> Iterator[Measurement]:
    """The measurements of a CSV file, told from its columns and, where these lack names, from its path."""
    name = str(path)
    if read_header(data, name)[:1] == (GLOBAL_BATCH,):
        return _of_throughputs(data, path, missing)
    return _of_steps(data, path, missing)


def _of_steps(data: bytes, path: Path, missing: Missing) -> Iterator[Measurement]:
    table = read_table(data, str(path), COLUMNS, _required(data, path), SYNONYMS)
    rates = "throughput" in table.columns
    given = {
        table.written[column]
        for column in ("placement", "gpus", "nodes")
        if column in table.columns
    }
    if "placement" in table.columns and len(given) > 1:
        raise InvalidInput(
            f"{path}:1", f"the columns {listed(sorted(given))}", "a placement, or GPUs and nodes"
        )
    if not rates and not {"placement", "gpus"} & set(table.columns):
        raise InvalidInput(
            f"{path}:1",
            "no column gpus",
            f"one (or placement), beside {listed(table.written.values())}",
        )
    if not table.rows:
        raise InvalidInput(str(path), "no line below the first", "at least one measurement")
    adaptdl = ADAPTDL.fullmatch(path.name)
    of_path = Missing(path.parent.name or None, adaptdl[1]) if adaptdl else Missing()
    if rates and not {"nodes", "placement"} & set(table.columns) and missing.gpus_per_node is None:
        most = max(int(row.cells.get("gpus", 1)) for row in table.rows)
        if most > 1:
            log.warning(
                "%s has no column nodes: jobs on up to %d GPUs are taken to run on one node; the column nodes, or"
                " --gpus-per-node (gpus_per_node), says otherwise", path, most
            )  # fmt: skip
    for row in table.rows:
        if rates and _rate(table, row, "throughput") == 0:
            continue
        gpus, nodes = _way(table, row, missing)
        seconds = (
            1 / _rate(table, row, "throughput")
            if rates
            else _above_0(table, row, "seconds", "a time in seconds above 0")
        )
        sync = float(row.cells.get("sync", math.nan))
        if sync < 0 or sync > seconds * (1 + 1e-9):
            found = f"{sync:g} s of a step of {seconds:g} s"
            expected = "from 0 to the step's own seconds, in the same unit, or nothing where it was not measured"
            raise InvalidInput(table.place(row, "sync"), found, expected)
        passes = int(row.cells.get("passes", 1))
        if not 1 <= passes < 2**31:
            raise InvalidInput(
                table.place(row, "passes"), show(passes), "a whole number of passes, at least 1"
            )
        if "samples" in table.columns:
            samples = _above_0(table, row, "samples", "samples of one GPU in one pass, above 0")
        else:  # rates of a job say nothing of its samples: its step is one then, which all GPUs share
            batch = (
                _above_0(table, row, "batch", "samples of a step, above 0")
                if "batch" in table.columns
                else 1.0
            )
            samples = batch / (gpus * passes)
        yield Measurement(
            workload=_name(table, row, "workload", missing, of_path),
            gpu=_name(table, row, "gpu", missing, of_path),
            gpus=gpus,
            nodes=nodes,
            samples=samples,
            passes=passes,
            seconds=seconds,
            sync=sync,
            place=table.place(row, "throughput" if rates else "seconds"),
            once=adaptdl is not None,
        )


def _required(data: bytes, path: Path) -> list[str]:
    """Columns that a table must have: a time or a rate of each step, and its samples, which go without saying of rates.

    Raises
    ------
    InvalidInput
        Two columns that say the same.
    """
    header = {SYNONYMS.get(column, column) for column in read_header(data, str(path))}
    for one, other in (("seconds", "throughput"), ("samples", "batch")):
        if {one, other} <= header:
            raise InvalidInput(f"{path}:1", f"the columns {one} and {other}", "one of them")
    sizes = header & {"samples", "batch"}
    if "throughput" in header:
        return sorted(sizes)
    return [*(sorted(sizes) or ["samples"]), "seconds"]


def _name(table: Table, row: Row, kind: str, missing: Missing, of_path: Missing) -> str:
    """The workload or GPU type of a row: its cell, else what was given for all, else what the path says."""
    told = row.cells.get(kind) or missing.name(kind) or of_path.name(kind)
    if told:
        return str(told)
    column = "nothing" if kind in table.columns else f"no column {kind}"
    where = table.place(row, kind) if kind in table.columns else table.name
    raise InvalidInput(
        where,
        column,
        f"one, a --{kind} for all rows, or a path such as bert/placements-t4.csv that tells it",
    )


def _way(table: Table, row: Row, missing: Missing) -> tuple[int, int]:
    """GPUs and nodes; a rate is on one GPU unless it says otherwise."""
    if "placement" in table.columns:
        digits = str(row.cells.get("placement", ""))
        if not re.fullmatch("[1-9]+", digits, re.ASCII):
            expected = "for each node one digit from 1 to 9, its GPUs, such as 44"
            raise InvalidInput(
                table.place(row, "placement"), show(digits) if digits else "nothing", expected
            )
        return sum(map(int, digits)), len(digits)
    if "gpus" not in row.cells and "throughput" not in table.columns:
        raise InvalidInput(
            table.place(row, "gpus"), "nothing", "a whole number of GPUs, at least 1"
        )
    gpus = int(row.cells.get("gpus", 1))
    if not 1 <= gpus < 2**31:
        raise InvalidInput(
            table.place(row, "gpus"), show(gpus), "a whole number of GPUs, at least 1"
        )
    if "nodes" not in row.cells and gpus > 1:
        if missing.gpus_per_node is not None:
            return gpus, _packed(gpus, missing, table.name)
        if "throughput" in table.columns and "nodes" not in table.columns:
            return gpus, 1  # the size of nodes is not known; the caller logs that it is assumed
        found = (
            "nothing" if "nodes" in table.columns else f"no column nodes for a step on {gpus} GPUs"
        )
        raise InvalidInput(
            table.place(row, "nodes"),
            found,
            "the nodes that these are spread over, or --gpus-per-node for all rows",
        )
    nodes = int(row.cells.get("nodes", 1))
    check_way(gpus, nodes, table.place(row, "nodes"))
    return gpus, nodes


def _above_0(table: Table, row: Row, column: str, expected: str) -> float:
    value = float(row.cells[column])
    if value <= 0:
        raise InvalidInput(table.place(row, column), show(value), expected)
    if not LEAST <= value <= MOST:
        raise InvalidInput(
            table.place(row, column), show(value), f"{expected}: from {LEAST:g} to {MOST:g}"
        )
    return value


def _of_throughputs(data: bytes, path: Path, missing: Missing) -> Iterator[Measurement]:
    """ElasticFlow: iterations/s of a job with a fixed global batch, by its GPUs; 0, nan or nothing: it did not run.

    t = 1/rate for a step of ``global_batch_size`` samples, of which each of k GPUs takes its k-th part.
    """
    name = str(path)
    counts = read_header(data, name)[1:]
    for count in counts:
        if not re.fullmatch(r"[1-9]\d{0,8}", count, re.ASCII):
            raise InvalidInput(
                f"{name}:1", f"the column {show(count)}", "numbers of GPUs as columns"
            )
    columns: dict[str, Kind] = {GLOBAL_BATCH: "number", **dict.fromkeys(counts, "text")}
    table = read_table(data, name, columns, [GLOBAL_BATCH])
    folder = FOLDER.fullmatch(path.parent.name)
    gpu = missing.gpu or (folder[1] if folder else None)
    if gpu is None:
        raise InvalidInput(
            name, "no GPU type", "a --gpu for all rows, or a folder such as throughputs_A100"
        )
    for row in table.rows:
        batch = _above_0(table, row, GLOBAL_BATCH, "samples above 0")
        for count in counts:
            gpus, rate = int(count), _rate(table, row, count)
            if rate > 0:
                yield Measurement(
                    missing.workload or path.stem, gpu, gpus, _packed(gpus, missing, name), batch / gpus, 1, 1 / rate,
                    math.nan, table.place(row, count),
                )  # fmt: skip


def _rate(table: Table, row: Row, column: str) -> float:
    """iterations/s; 0 where the job did not run."""
    text = str(row.cells.get(column, ""))
    if text.lower() in ("", "nan"):
        return 0.0
    try:
        rate = float(text)
    except ValueError:
        rate = math.nan
    if not (rate == 0 or 1e-12 <= rate <= MOST):
        raise InvalidInput(
            table.place(row, column), show(text), "iterations/s, or 0 where the job cannot run"
        )
    return rate


def _packed(gpus: int, missing: Missing, name: str) -> int:
    """Nodes of so many GPUs that stand as close together as they can."""
    if gpus == 1:
        return 1
    if missing.gpus_per_node is None:
        raise InvalidInput(
            name,
            "GPUs without their nodes",
            "--gpus-per-node, which this kind of table does not tell",
        )
    return -(-gpus // missing.gpus_per_node)
