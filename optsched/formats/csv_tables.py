"""Instances from tables of jobs, rates and pools, for those who keep them in spreadsheets."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any

from optsched.errors import InvalidInput
from optsched.formats.csv_text import Kind, Row, Table, read_table
from optsched.instance import FORMAT, Instance
from optsched.instance.documents import LARGEST, SMALLEST
from optsched.instance.reading import listed, show

log = logging.getLogger("optsched")

JOBS: dict[str, Kind] = {
    "id": "text", "workload": "text", "gpus": "whole", "gpus_min": "whole", "gpus_max": "whole", "steps": "number",
    "weight": "number", "arrival": "number", "deadline": "number", "tenant": "text",
}  # fmt: skip
"""Columns of a table of jobs: one job a line; all but the workload may be left out."""
RATES: dict[str, Kind] = {
    "workload": "text", "pool": "text", "gpu": "text", "gpus": "whole", "throughput": "number",
}  # fmt: skip
"""Columns of a table of rates: steps/s of a workload in a pool, or on a GPU type, on so many GPUs (1)."""
POOLS: dict[str, Kind] = {
    "name": "text", "gpu": "text", "nodes": "whole", "gpus_per_node": "whole", "gpu_memory": "number",
    "cpus_per_node": "number", "memory_per_node": "number", "cost_per_gpu_hour": "number", "watts_per_gpu": "number",
    "watts_idle": "number",
}  # fmt: skip
"""Columns of a table of pools, as in an instance document; a node has one GPU if the table does not say."""

_JOB_FIELD = re.compile(r"jobs\[(\d+)\](?:\.(\w+))?")
_POOL_FIELD = re.compile(r"cluster\.pools\[(\d+)\](?:\.(\w+))?")


def read_jobs(data: bytes, name: str) -> Table:
    """The table of jobs; raises `InvalidInput` with ``file:line:column``."""
    return _checked(read_table(data, name, JOBS, ["workload"]), "job")


def read_rates(data: bytes, name: str) -> Table:
    """The table of rates."""
    table = _checked(read_table(data, name, RATES, ["workload", "throughput"]), "rate")
    places = [column for column in ("pool", "gpu") if column in table.columns]
    if len(places) != 1:
        found = "both columns pool and gpu" if places else "neither column pool nor gpu"
        raise InvalidInput(f"{name}:1", found, "one of them")
    for row in table.rows:
        if places[0] not in row.cells:
            raise InvalidInput(table.place(row, places[0]), "nothing", "a text")
        rate, gpus = float(row.cells["throughput"]), int(row.cells.get("gpus", 1))
        if not (rate == 0 or SMALLEST <= rate <= LARGEST):
            expected = f"0, or a rate in steps/s from {SMALLEST:g} to {LARGEST:g}"
            raise InvalidInput(table.place(row, "throughput"), show(rate), expected)
        if not 1 <= gpus < 2**31:
            raise InvalidInput(
                table.place(row, "gpus"), show(gpus), "a whole number of GPUs, at least 1"
            )
    return table


def read_pools(data: bytes, name: str) -> Table:
    """The table of pools."""
    return _checked(read_table(data, name, POOLS, ["name", "nodes"]), "pool")


def _checked(table: Table, what: str) -> Table:
    if not table.rows:
        raise InvalidInput(table.name, "no line below the first", f"at least one {what}")
    return table


def import_csv(
    jobs: Table,
    rates: Table,
    pools: Table | Sequence[Mapping[str, Any]],
    *,
    name: str = "csv",
    now: float = 0.0,
    round: float = 360.0,
) -> Instance:
    """Make an instance of tables.

    Parameters
    ----------
    jobs, rates : Table
        Of `read_jobs` and `read_rates`.
    pools : Table or sequence of mappings
        Of `read_pools`, or pool documents.
    name, now, round
        As in an instance document; arrivals and deadlines are seconds on the clock of ``now``.

    Raises
    ------
    InvalidInput
        With ``file:line:column`` of the cell that is wrong.
    """
    documents = (
        _pool_documents(pools) if isinstance(pools, Table) else [dict(pool) for pool in pools]
    )
    workloads = _workloads(rates, documents)
    _tell_idle_pools(rates, documents)
    document = {
        "format": FORMAT,
        "name": name,
        "now": now,
        "round": round,
        "cluster": {"pools": documents},
        "workloads": workloads,
        "tenants": [{"name": tenant} for tenant in _distinct(jobs, "tenant")],
        "jobs": [_job(jobs, row, number, rates, workloads) for number, row in enumerate(jobs.rows)],
    }
    try:
        return Instance.from_document(document)
    except InvalidInput as error:
        raise InvalidInput(_place(error.path, jobs, pools), error.found, error.expected) from None


def _place(path: str, jobs: Table, pools: Table | Sequence[Mapping[str, Any]]) -> str:
    """The cell that a field of the document came from."""
    for table, field in ((jobs, _JOB_FIELD), (pools, _POOL_FIELD)):
        match = field.match(path)
        if match and isinstance(table, Table):
            row, column = table.rows[int(match[1])], match[2]
            column = "gpus_max" if column == "gpus" and "gpus" not in row.cells else column
            return table.place(row, column) if column else f"{table.name}:{row.line}"
    return path


def _distinct(table: Table, column: str) -> list[str]:
    return list(dict.fromkeys(str(row.cells[column]) for row in table.rows if column in row.cells))


def _pool_documents(pools: Table) -> list[dict[str, Any]]:
    return [{"gpus_per_node": 1} | dict(row.cells) for row in pools.rows]


def _workloads(rates: Table, pools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Rates by workload, place and GPU count; every place is a pool or a GPU type, and every entry stands once."""
    column = "pool" if "pool" in rates.columns else "gpu"
    known = [_place_of(pool, column) for pool in pools]
    workloads: dict[str, Any] = {}
    for row in rates.rows:
        place = str(row.cells[column])
        if place not in known:
            what = "pools" if column == "pool" else "GPU types"
            raise InvalidInput(
                rates.place(row, column),
                show(place),
                f"one of the {what} {listed(dict.fromkeys(known))}",
            )
        entry = workloads.setdefault(str(row.cells["workload"]), {"throughput": {}})
        by_count = entry["throughput"].setdefault(place, {})
        count = str(row.cells.get("gpus", 1))
        if count in by_count:
            found = f"{show(row.cells['workload'])}, {show(place)}, gpus {count} a second time"
            raise InvalidInput(f"{rates.name}:{row.line}", found, "one rate for each")
        by_count[count] = float(row.cells["throughput"])
    return workloads


def _tell_idle_pools(rates: Table, pools: Sequence[Mapping[str, Any]]) -> None:
    """Warn of pools that no rate is for: nothing of them can be used."""
    column = "pool" if "pool" in rates.columns else "gpu"
    told = {str(row.cells[column]) for row in rates.rows}
    idle = [str(pool["name"]) for pool in pools if _place_of(pool, column) not in told]
    if idle:
        what = f"pool {listed(idle)} has" if len(idle) == 1 else f"pools {listed(idle)} have"
        log.warning("%s no rate in %s: no job can run there", what, rates.name)


def _place_of(pool: Mapping[str, Any], column: str) -> str:
    """What rates call a pool: its name, or its GPU type."""
    return str(pool.get("gpu", pool["name"]) if column == "gpu" else pool["name"])


def _job(
    jobs: Table, row: Row, number: int, rates: Table, workloads: Mapping[str, Any]
) -> dict[str, Any]:
    cells: dict[str, Any] = dict(row.cells)
    if cells["workload"] not in workloads:
        expected = f"one of the workloads of {rates.name}: {listed(workloads)}"
        raise InvalidInput(jobs.place(row, "workload"), show(cells["workload"]), expected)
    low, high = cells.pop("gpus_min", None), cells.pop("gpus_max", None)
    if (low is None) != (high is None):
        missing = "gpus_min" if low is None else "gpus_max"
        raise InvalidInput(
            jobs.place(row, missing),
            "nothing",
            "a whole number, as the other end of the range is given",
        )
    if low is not None:
        if "gpus" in cells:
            raise InvalidInput(
                jobs.place(row, "gpus"),
                f"{cells['gpus']} beside a range",
                "gpus or a range, not both",
            )
        cells["gpus"] = {"min": low, "max": high}
    return {"id": f"j{number}"} | cells
