"""Instances from CSV tables of jobs, rates and pools, such as spreadsheets."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from optsched.assembly import compile
from optsched.candidates import Absence
from optsched.display import count
from optsched.errors import InvalidArgument, InvalidInput, did_you_mean
from optsched.formats.inputs import (
    Columns,
    Pools,
    Seconds,
    Source,
    importer,
    one_cluster,
)
from optsched.formats.tables import Kind, Table, WrongCells, read_table
from optsched.instance import FORMAT, Instance
from optsched.instance.documents import LARGEST, SMALLEST
from optsched.instance.reading import listed, show

log = logging.getLogger("optsched")

# Columns of a table of jobs: one job a line; all but the workload may be left out.
JOBS: dict[str, Kind] = {
    "id": "text",
    "workload": "text",
    "gpus": "whole",
    "gpus_min": "whole",
    "gpus_max": "whole",
    "steps": "count",
    "weight": "number",
    "arrival": "seconds",
    "deadline": "seconds",
    "tenant": "text",
}
# Columns of a table of rates: steps/s of a workload in a pool, or on a GPU type, on a number of
# GPUs (default 1).
RATES: dict[str, Kind] = {
    "workload": "text",
    "pool": "text",
    "gpu": "text",
    "gpus": "whole",
    "throughput": "rate",
}
# Columns of a table of pools, as in an instance document; a node has one GPU if the table does not
# say.
POOLS: dict[str, Kind] = {
    "name": "text",
    "gpu": "text",
    "nodes": "whole",
    "gpus_per_node": "whole",
    "gpu_memory": "number",
    "cpus_per_node": "number",
    "memory_per_node": "number",
    "cost_per_gpu_hour": "number",
    "watts_per_gpu": "number",
    "watts_idle": "number",
}

# Errors of other tables follow those of all lines of jobs.
LAST = sys.maxsize
REMEDY = "; --column says what a column means, --ignore-others ignores columns"

_JOB_FIELD = re.compile(r"jobs\[(\d+)\](?:\.(\w+))?")
_POOL_FIELD = re.compile(r"cluster\.pools\[(\d+)\](?:\.(\w+))?")


@dataclass(frozen=True)
class ColumnNames:
    """Names of columns in the files.

    Attributes
    ----------
    columns : mapping from str to str
        Standard name of each column of the file.
    ignore_others : bool
        Whether unknown columns are ignored.
    """

    columns: Mapping[str, str]
    ignore_others: bool

    def check(self) -> None:
        """Refuse a standard name that no table has; raises `InvalidArgument`."""
        known = dict.fromkeys([*JOBS, *RATES, *POOLS])
        for column in self.columns.values():
            if column not in known:
                expected = f"one of {listed(known)}{did_you_mean(column, known)}"
                raise InvalidArgument("columns", show(column), expected)

    def read(
        self,
        source: Source,
        otherwise: str,
        kinds: Mapping[str, Kind],
        required: Sequence[str],
        **how: Any,
    ) -> Table:
        """A table with columns of these kinds; see `read_table`.

        Unknown columns are ignored with a warning (if allowed), but refused if they resemble a
        missing column.
        """
        meant = {column: name for column, name in self.columns.items() if name in kinds}
        ignore = self.ignore_others
        table = read_table(
            source, otherwise, kinds, required, meant, others=ignore, remedy=REMEDY, **how
        )
        ignored = [column for column in table.cells if column not in kinds]
        present = [column for column in kinds if column in table]
        for column in ignored:
            hint = did_you_mean(column, kinds)
            # A column that resembles a present column is a different one, such as gpu beside gpus
            if hint and not did_you_mean(column, present):
                found = f"an unknown column {show(column)}"
                expected = f"no column to ignore that resembles a missing one{hint}"
                raise InvalidInput(f"{table.name}:1", found, expected)
        if ignored:
            log.warning("%s: ignored columns: %s", table.name, listed(ignored))
        return table.only(kinds)

    def refuse_unused(self, tables: Sequence[Table]) -> None:
        """Refuse a given name that no table has; otherwise an optional column would be lost
        silently.
        """
        written = {name.casefold(): name for table in tables for name in table.written.values()}
        for column in self.columns:
            if column.casefold() not in written:
                expected = f"a column of {listed([table.name for table in tables])}"
                hint = did_you_mean(column, written.values())
                raise InvalidArgument("columns", show(column), expected + hint)


def _read_rates(rates: Source, header: ColumnNames) -> Table:
    """The table of rates; raises `InvalidInput` with ``file:line:column``."""
    table = header.read(rates, "rates", RATES, ["workload", "throughput"], least="rate")
    places = [column for column in ("pool", "gpu") if column in table]
    if len(places) != 1:
        found = "both columns pool and gpu" if places else "neither column pool nor gpu"
        raise InvalidInput(f"{table.name}:1", found, "one of them")
    wrong = WrongCells()
    for row in range(len(table)):
        line = int(table.line[row])
        with wrong.gathered(line):
            table.text(row, places[0])
        rate = _rate(table, row)
        gpus = _gpus(table, row)
        if not (rate == 0 or SMALLEST <= rate <= LARGEST):
            expected = f"0, or a rate in steps/s from {SMALLEST:g} to {LARGEST:g}"
            wrong.add(line, table.error(row, "throughput", show(rate), expected))
        if not 1 <= gpus < 2**31:
            expected = "a whole number of GPUs, at least 1"
            wrong.add(line, table.error(row, "gpus", show(gpus), expected))
    wrong.refuse()
    return table


def _read_pools(pools: Source, header: ColumnNames) -> Table:
    """The table of pools; raises `InvalidInput` with ``file:line:column``."""
    return header.read(pools, "pools", POOLS, ["name", "nodes"], least="pool", distinct=["name"])


def _rate(rates: Table, row: int) -> float:
    return float(rates.numbers["throughput"][row])


def _gpus(rates: Table, row: int) -> int:
    """GPUs of a rate, by default 1."""
    gpus = rates.value(row, "gpus")
    return 1 if gpus is None else int(gpus)


@importer
def import_csv(
    jobs: Source,
    rates: Source,
    pools: Pools | None = None,
    *,
    pool_table: Source | None = None,
    columns: Columns | None = None,
    ignore_others: bool = False,
    now: Seconds = 0.0,
    round: Seconds = 360.0,
    name: str | None = None,
) -> Instance:
    """Make an instance of tables in CSV: jobs and rates, and pools.

    The first line of a table names its columns; commas, semicolons or tabs stand between cells.
    Times are in seconds, rates in steps/s of the whole job.

    Parameters
    ----------
    jobs : path or bytes
        Table of jobs: workload; id, gpus (or gpus_min, gpus_max), steps, weight, arrival, deadline,
        tenant.
    rates : path or bytes
        Table of rates: workload, pool (or gpu), throughput; gpus.
    pools : mapping from str to (int, int), or pool documents, optional
        Nodes of a pool, and GPUs of each node.
    pool_table : path or bytes, optional
        Table of pools instead: name, nodes; gpu, gpus_per_node, gpu_memory, cost_per_gpu_hour ...
    columns : mapping from str to str, optional
        What a column of the tables means that has another name.
    ignore_others : bool, default False
        Ignore other columns; they are refused otherwise.
    now : float, default 0
        Time at which the instance begins. Arrivals and deadlines are seconds on its clock.
    round : float, default 360
        Length of a round.
    name : str, optional
        Name of the instance, else that of the file of jobs without its ending.

    Raises
    ------
    InvalidInput
        With ``file:line:column`` of each cell that is wrong.
    UsageError
        Neither or both of pools and a table of pools, or a round that is none.
    """
    if not round > 0:
        raise InvalidArgument("round", show(round), "seconds above 0")
    if name is None:
        name = "csv" if isinstance(jobs, bytes) else Path(jobs).stem
    header = ColumnNames(columns or {}, ignore_others)
    header.check()
    wrong = WrongCells()
    # Collect errors of wrong rows and go on with the others, so that all rows are checked
    with wrong.gathered():
        job_rows = header.read(jobs, "jobs", JOBS, ["workload"], distinct=["id"], wrong=wrong)
    with wrong.gathered(LAST):
        rate_rows = _read_rates(rates, header)
    with wrong.gathered(LAST):
        pool_rows = None if pool_table is None else _read_pools(pool_table, header)
    # Without valid columns, rates and pools, jobs cannot be checked further
    if wrong.lines & {0, LAST}:
        wrong.refuse()
    header.refuse_unused([job_rows, rate_rows, *([] if pool_rows is None else [pool_rows])])
    documents = one_cluster(pools, pool_rows, "table of pools", _documents_of)
    workloads = _workloads(rate_rows, documents, wrong)
    _warn_of_idle_pools(rate_rows, documents)
    jobs_read = _job_documents(job_rows, rate_rows, workloads, wrong)
    if 0 in wrong.lines:
        wrong.refuse()
    tenants = dict.fromkeys(filter(None, job_rows.cells.get("tenant", ())))
    document = {
        "format": FORMAT,
        "name": name,
        "now": now,
        "round": round,
        "cluster": {"pools": documents},
        "workloads": workloads,
        "tenants": [{"name": tenant} for tenant in tenants],
        "jobs": list(jobs_read.values()),
    }
    job_rows = job_rows.without(set(job_rows.line.tolist()) - set(jobs_read))
    instance = _instance(document, job_rows, pool_rows, wrong)
    _warn_of_stuck_jobs(instance)
    return instance


def _job_documents(
    jobs: Table, rates: Table, workloads: Mapping[str, Any], wrong: WrongCells
) -> dict[int, dict[str, Any]]:
    """The document of each job by its line; errors are added to ``wrong``."""
    found = {}
    for row, cells in enumerate(jobs.documents()):
        line = int(jobs.line[row])
        with wrong.gathered(line):
            found[line] = _job(jobs, row, cells, rates, workloads)
    return found


def _instance(
    document: Mapping[str, Any], jobs: Table, pools: Table | None, wrong: WrongCells
) -> Instance:
    """The instance of a document. Its errors name the cell that a field came from, and are raised
    together with those in ``wrong``.
    """
    try:
        instance = Instance.from_document(document)
    except InvalidInput as error:
        for single in error.one_by_one():
            line, place = _place(single.path, jobs, pools)
            if place not in wrong.places:  # an id that comes twice is found in the table too
                wrong.add(line, InvalidInput(place, single.found, single.expected))
        wrong.refuse(more=error.more)
    wrong.refuse()
    return instance


def _documents_of(pools: Table) -> list[dict[str, Any]]:
    """The pools of a table; a node has one GPU if it does not say."""
    return [{"gpus_per_node": 1} | pool for pool in pools.documents()]


def _place(path: str, jobs: Table, pools: Table | None) -> tuple[int, str]:
    """The table line and the cell from which a field of the document came."""
    for table, field in ((jobs, _JOB_FIELD), (pools, _POOL_FIELD)):
        match = field.match(path)
        if match and table is not None:
            row = int(match[1])
            column = match[2]
            if column == "gpus" and table.value(row, "gpus") is None:
                # The document has one field for both ends of the range
                column = "gpus_max"
            place = table.row_place(row) if column is None else table.place(row, column)
            return int(table.line[row]), place
    return LAST, path


def _workloads(
    rates: Table, pools: Sequence[Mapping[str, Any]], wrong: WrongCells
) -> dict[str, Any]:
    """Rates by workload, place and GPU count; a place is a pool or a GPU type.

    Errors are added to ``wrong``, before those of jobs.
    """
    column = _place_column(rates)
    known = dict.fromkeys(_place_of(pool, column) for pool in pools)
    workloads: dict[str, Any] = {}
    for row in range(len(rates)):
        place = rates.text(row, column)
        workload = rates.text(row, "workload")
        if place not in known:
            what = "pools" if column == "pool" else "GPU types"
            expected = f"one of the {what} {listed(known)}{did_you_mean(place, known)}"
            wrong.add(0, rates.error(row, column, show(place), expected))
        entry = workloads.setdefault(workload, {"throughput": {}})
        by_count = entry["throughput"].setdefault(place, {})
        count = str(_gpus(rates, row))
        if count in by_count:
            found = f"{show(workload)}, {show(place)}, gpus {count} a second time"
            wrong.add(0, InvalidInput(rates.row_place(row), found, "one rate for each"))
        by_count[count] = _rate(rates, row)
    return workloads


def _warn_of_idle_pools(rates: Table, pools: Sequence[Mapping[str, Any]]) -> None:
    """Warn of pools without rates, where no job can run."""
    column = _place_column(rates)
    rated = set(rates.cells[column])
    idle = [str(pool["name"]) for pool in pools if _place_of(pool, column) not in rated]
    if idle:
        what = f"pool {listed(idle)} has" if len(idle) == 1 else f"pools {listed(idle)} have"
        log.warning("%s no rate in %s: no job can run there", what, rates.name)


def _warn_of_stuck_jobs(instance: Instance) -> None:
    """Warn of jobs that can run nowhere; usually there is no rate for their number of GPUs."""
    candidates = compile(instance, future=True, later_nodes=True)
    stuck = candidates.absence == Absence.NO_COLUMN
    if stuck.any():
        first = int(stuck.argmax())
        why = dict(candidates.unplaced())[first]
        log.warning(
            "%s of %s can run nowhere, such as %s: %s",
            f"{int(stuck.sum()):,}",
            count(len(stuck), "job"),
            instance.jobs_table.names[first],
            why.removeprefix("can run nowhere: "),
        )


def _place_column(rates: Table) -> str:
    return "pool" if "pool" in rates else "gpu"


def _place_of(pool: Mapping[str, Any], column: str) -> str:
    """Name of a pool in the table of rates: its name or its GPU type."""
    return str(pool.get("gpu", pool["name"]) if column == "gpu" else pool["name"])


def _job(
    jobs: Table,
    row: int,
    job: dict[str, Any],
    rates: Table,
    workloads: Mapping[str, Any],
) -> dict[str, Any]:
    if job["workload"] not in workloads:
        hint = did_you_mean(job["workload"], workloads)
        expected = f"one of the workloads of {rates.name}: {listed(workloads)}{hint}"
        raise jobs.error(row, "workload", show(job["workload"]), expected)
    low = job.pop("gpus_min", None)
    high = job.pop("gpus_max", None)
    if (low is None) != (high is None):
        missing = "gpus_min" if low is None else "gpus_max"
        expected = "a whole number, as the other end of the range is given"
        raise jobs.error(row, missing, "nothing", expected)
    if low is not None:
        if "gpus" in job:
            found = f"{job['gpus']} beside a range"
            raise jobs.error(row, "gpus", found, "gpus or a range, not both")
        job["gpus"] = {"min": low, "max": high}
    return {"id": f"j{row}"} | job
