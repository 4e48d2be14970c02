"""Import of logs of the Philly cluster (Jeon et al., USENIX ATC 2019),
as published or as the table made of them.

The job log (``cluster_job_log``, JSON) lists jobs with ``jobid``, ``vc`` (virtual cluster),
``submitted_time`` and ``attempts``, each with ``start_time``, ``end_time`` and ``detail``: a
machine's ``ip`` and ``gpus``. The table (CSV) has the columns
``timestamp,duration,num_gpus,gpu_time,cluster``. The machine list (CSV) has ``machineId``, ``number
of GPUs`` and ``single GPU mem``. Times are local ones without a zone and are used as they are:
across the end of daylight saving time they are an hour off.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, BeforeValidator

from optsched.arrays import FloatArray, IntArray
from optsched.errors import InvalidInput
from optsched.formats.inputs import (
    Names,
    Pools,
    Seconds,
    Source,
    Speeds,
    called,
    contents,
    importer,
    one_cluster,
)
from optsched.formats.recorded import ImportedLog, RecordedJobs, recorded_instance
from optsched.formats.tables import Kind, Table, read_table
from optsched.instance.documents import Name, refused
from optsched.instance.reading import listed, named, parse_json, show, validate
from optsched.lazy import no_collection
from optsched.performance.ways import numbered

COLUMNS: dict[str, Kind] = {
    "timestamp": "text",
    "duration": "number",
    "num_gpus": "whole",
    "cluster": "text",
    "gpu_time": "number",
}
MACHINES = ("machineId", "number of GPUs", "single GPU mem")
MEMORY = re.compile(r"(\d{1,6}(?:\.\d+)?)\s*(?:GB|G)", re.IGNORECASE | re.ASCII)
EPOCH = datetime(1970, 1, 1)
# Text of the log for a time that was not recorded.
NONE = (None, "", "None")
TIME = "a time such as 2017-10-09 07:01:55"


def seconds_since_1970(text: str) -> float:
    """Seconds since 1970 of a time such as ``2017-10-09 07:01:55``; NaN for any other text."""
    if len(text) == 19:
        with suppress(ValueError):
            return (datetime.fromisoformat(text) - EPOCH).total_seconds()
    return math.nan


def _logged_time(value: Any) -> float:
    if value in NONE:
        return math.nan
    seconds = seconds_since_1970(value) if isinstance(value, str) else math.nan
    if math.isnan(seconds):
        raise refused(show(value), TIME)
    return seconds


LoggedTime = Annotated[float, BeforeValidator(_logged_time)]
"""Seconds since 1970; NaN if it was not recorded."""


class LoggedMachine(BaseModel):
    """A machine of an attempt. The log has more fields, which are not read; the same holds for the
    other classes.
    """

    gpus: list[Any]


class LoggedAttempt(BaseModel):
    """An attempt to run a job."""

    start_time: LoggedTime = math.nan
    end_time: LoggedTime = math.nan
    detail: list[LoggedMachine]

    @property
    def seconds(self) -> float:
        """Duration; NaN if a time was not recorded."""
        return self.end_time - self.start_time

    @property
    def gpus(self) -> int:
        return sum(len(machine.gpus) for machine in self.detail)


class LoggedJob(BaseModel):
    """A job of the log."""

    jobid: Name
    vc: Name
    submitted_time: LoggedTime = math.nan
    attempts: list[LoggedAttempt]

    @property
    def lengths(self) -> list[float]:
        """Seconds of the attempts whose times were recorded."""
        return [attempt.seconds for attempt in self.attempts if not math.isnan(attempt.seconds)]

    @property
    def gang(self) -> int:
        """GPUs of the first attempt with GPUs; 0 if there is none."""
        return next((attempt.gpus for attempt in self.attempts if attempt.gpus), 0)

    def why_left_out(self) -> str:
        """The reason why the job is left out; empty if it is not."""
        if not self.attempts:
            return "without attempts"
        if math.isnan(self.submitted_time):
            return "without a time of submission"
        if not self.gang:
            return "without a GPU"
        if math.isnan(self.attempts[-1].end_time):
            return "that still ran when the log was written"
        if not self.lengths:
            return "whose attempts have no times"
        if min(self.lengths) < 0:
            return "with an attempt that ends before it starts"
        return "" if sum(self.lengths) > 0 else "that ran for no second"


@importer
def import_philly(
    jobs: Source,
    pools: Pools | None = None,
    *,
    machines: Source | None = None,
    clusters: Names = (),
    speeds: Speeds | None = None,
    at: Seconds | None = None,
    name: str = "philly",
) -> ImportedLog:
    """Make a trace of logs of the Philly cluster (Jeon et al., USENIX ATC 2019).

    A step is a second of the recorded run. Jobs that did not run, or of which times are missing,
    are left out.

    A job's gang is the GPUs of its first attempt that has any, its steps are the seconds of all its
    attempts together, at 1 step/s. Virtual clusters are tenants. The log is in no order; jobs are
    put in that of their submission.

    Of the JSON these are left out, and counted: jobs without attempts, without a time of
    submission, without any GPU, that still ran when the log was written (their last attempt has no
    end), whose attempts have no times, or end before they start, or that ran for no second.

    Parameters
    ----------
    jobs : path or bytes
        Job log (JSON), or a table of jobs (CSV). The first character decides which.
    pools : mapping from str to (int, int), or pool documents, optional
        Instead of a machine list: nodes of a pool, and GPUs of each node. Logs do not have those of
        a virtual cluster.
    machines : path or bytes, optional
        Machine list (CSV): the cluster as it was.
    clusters : collection of str, optional
        Only jobs of this virtual cluster.
    speeds : mapping from str to float, optional
        How many times as fast as in the trace jobs run in a pool; 1 by default.
    at : float, optional
        Only the jobs that have arrived by then, on the trace's clock. The clock is 0 at the first
        job.
    name : str
        Name of the instance.

    Raises
    ------
    InvalidInput
        With line and column, or the path in the JSON; also for a virtual cluster that has no jobs.
    """
    documents = one_cluster(pools, machines, "machines", read_machines)
    file = called(jobs, "jobs")
    data = contents(jobs)
    left_out: dict[str, int] = {}
    if data.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"[", b"{"):
        with named(file), no_collection():
            recorded, left_out = _of_log(data, clusters)
    else:
        recorded = _of_table(data, clusters, file)
    with named(file):
        instance = recorded_instance(recorded, documents, speeds, at=at, name=name)
    return ImportedLog(instance, left_out)


def read_machines(machines: Source) -> list[dict[str, Any]]:
    """Pools of a machine list, one for each memory size of the GPUs: ``gpu-12GB``, ``gpu-24GB``.

    Raises
    ------
    InvalidInput
        With line and column.
    """
    name, gpus, memory = MACHINES
    columns: dict[str, Kind] = {name: "text", gpus: "whole", memory: "text"}
    table = read_table(machines, "machines", columns, MACHINES)
    counts = table.whole(gpus, 0, "a whole number of GPUs")
    sizes = [*map(MEMORY.fullmatch, table.cells[memory])]
    table.refuse(memory, np.array([match is None for match in sizes]), "a memory such as 24GB")
    pools: dict[float, list[dict[str, Any]]] = {}
    for machine, match, count in zip(table.names(name), sizes, counts.tolist(), strict=True):
        if match and count:
            pools.setdefault(float(match[1]), []).append({"name": machine, "gpus": count})
    if not pools:
        raise InvalidInput(table.name, "no machine with a GPU", "at least one")
    return [
        {"name": f"gpu-{size:g}GB", "gpu_memory": size, "nodes": nodes}
        for size, nodes in sorted(pools.items())
    ]


def _of_table(data: bytes, clusters: Collection[str], file: str) -> RecordedJobs:
    table = read_table(data, file, COLUMNS, tuple(COLUMNS)[:-1])
    seconds = table.numbers["duration"]
    arrival = _times(table, "timestamp")
    table.refuse("duration", ~(seconds > 0), "seconds above 0")
    gpus = table.whole("num_gpus", 1, "a whole number of GPUs, at least 1")
    _check_clusters(clusters, set(table.cells["cluster"]), file)
    cells = table.cells["cluster"]
    rows = np.flatnonzero(np.array([not clusters or cell in clusters for cell in cells], bool))
    tenants, tenant = _indexed([cells[row] for row in rows.tolist()])
    return RecordedJobs(arrival[rows], seconds[rows], gpus[rows], None, tenant, tenants)


def _times(table: Table, column: str) -> FloatArray:
    """Seconds since 1970; raises `InvalidInput` for a cell that is not a time."""
    cells = table.cells[column]
    try:
        # numpy parses a column of equal lengths at once; the loop over cells finds the wrong one
        if {len(cell) for cell in cells} == {19}:
            return np.array(cells, "datetime64[s]").astype(np.float64)
    except ValueError:
        pass
    times = np.array([*map(seconds_since_1970, cells)])
    table.refuse(column, np.isnan(times), TIME)
    return times


def _indexed(texts: Sequence[str]) -> tuple[tuple[str, ...], IntArray]:
    """Distinct texts in order of first appearance, and the place of each."""
    rows = numbered(texts)
    return tuple(rows), np.array([rows[text] for text in texts], np.int64)


def _check_clusters(wanted: Collection[str], logged: Collection[str], file: str = "") -> None:
    for cluster in wanted:
        if cluster not in logged:
            raise InvalidInput(
                file,
                f"no job of the virtual cluster {show(cluster)}",
                f"one of {listed(sorted(logged))}",
            )


def _of_log(data: bytes, clusters: Collection[str]) -> tuple[RecordedJobs, dict[str, int]]:
    entries = parse_json(data, "job log")
    if not isinstance(entries, list):
        raise InvalidInput("", show(entries), "a list of jobs")
    rows = []
    left_out: Counter[str] = Counter()
    logged: dict[str, None] = {}
    seen = set()
    for number, entry in enumerate(entries):
        job = validate(LoggedJob, entry, f"[{number}]")
        logged[job.vc] = None
        if clusters and job.vc not in clusters:
            continue
        if job.jobid in seen:
            found = f"{show(job.jobid)} a second time"
            raise InvalidInput(f"[{number}].jobid", found, "ids that differ")
        seen.add(job.jobid)
        why = job.why_left_out()
        if why:
            left_out[why] += 1
        else:
            rows.append((job.submitted_time, sum(job.lengths), job.gang, job.jobid, job.vc))
    _check_clusters(clusters, logged)
    arrival, seconds, gpus, ids, of = zip(*rows, strict=True) if rows else ((), (), (), (), ())
    tenants, tenant = _indexed(of)
    jobs = RecordedJobs(
        np.array(arrival, float),
        np.array(seconds, float),
        np.array(gpus, np.int64),
        ids,
        tenant,
        tenants,
    )
    return jobs, dict(left_out)
