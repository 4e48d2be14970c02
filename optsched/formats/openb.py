"""Import of node and pod lists of a production GPU cluster, "openb" (Q. Weng et al., USENIX ATC 2023), as CSV.

Node list: columns ``sn,cpu_milli,memory_mib,gpu,model``; nodes without GPUs are left out. Pod list: ``name,cpu_milli,
memory_mib,num_gpu,gpu_milli`` and perhaps ``gpu_spec`` (allowed models joined by a vertical bar; empty: any) and the
times ``creation_time,deletion_time,scheduled_time`` in seconds; ``gpu_milli`` is the share of one GPU in thousandths.
"""

from __future__ import annotations

import csv
import io
import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from optsched.errors import InvalidInput, UsageError
from optsched.formats.inputs import Seconds, Source, contents, importer
from optsched.instance.documents import FORMAT
from optsched.instance.reading import listed, named_by_path, show

log = logging.getLogger("optsched")

NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
POD_COLUMNS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
TIMES = ("creation_time", "deletion_time")
SCHEDULED = "scheduled_time"
# Bytes.
MIB = 2**20
# Largest number of a cell.
LARGEST = 10**15


@dataclass(frozen=True, slots=True)
class Record:
    """One line of a list: its place, and its cells by column."""

    path: str
    cells: dict[str, str]

    def text(self, column: str) -> str:
        """A cell that may not be empty."""
        if not self.cells[column]:
            raise InvalidInput(f"{self.path}, {column}", "nothing", "a name")
        return self.cells[column]

    def whole(self, column: str) -> int:
        """A cell that is a whole number, at least 0."""
        cell = self.cells[column]
        if not (cell.isascii() and cell.isdecimal() and int(cell) <= LARGEST):
            raise InvalidInput(f"{self.path}, {column}", show(cell), "a whole number, at least 0")
        return int(cell)

    def time(self, column: str) -> float | None:
        """A cell that is a time in seconds, or empty."""
        if not self.cells.get(column):
            return None
        try:
            value = float(self.cells[column])
        except ValueError:
            value = math.nan
        if not abs(value) <= LARGEST:
            raise InvalidInput(
                f"{self.path}, {column}", show(self.cells[column]), "a time in seconds, or nothing"
            )
        return value


@importer
def import_openb(
    nodes: Source,
    pods: Source | None = None,
    *,
    at: Seconds | None = None,
    over_time: bool = False,
    name: str = "openb",
) -> dict[str, Any]:
    """Make an instance of a node list and a pod list of the openb cluster (Weng et al., USENIX ATC 2023).

    Every GPU model becomes a pool; its nodes keep their names, CPUs and memory. Every pod with GPUs becomes a job with
    an option per model that it allows: on one node, with its share of the GPU, its CPUs and memory. Pods without GPUs
    are left out. A pod's steps are the seconds that it ran, at 1 step/s (1 step where the list has no times).

    Parameters
    ----------
    nodes : path or bytes
        Node list (CSV).
    pods : path or bytes, optional
        Pod list (CSV); without it there are no jobs.
    at : float, optional
        Only the pods that were there then, created and not deleted yet; by default all, as if they came at once.
        ``now`` is ``at``, or 0.
    over_time : bool, default False
        Make a trace: pods arrive when they were created, and those that never ran are left out. The order is that of
        the list. Pods that are not deleted yet are left out too: nobody knows how long they run.
    name : str, default "openb"
        Name of the instance.

    Returns
    -------
    dict
        An ``optsched-instance/1`` document, as `Instance.from_document` takes it.

    Raises
    ------
    InvalidInput
        A list is malformed, a name comes twice, or a pod allows none of the models of the nodes.
    UsageError
        ``at`` or ``over_time`` without pods, or with a pod list that has no times; both of them.
    """
    if (at is not None or over_time) and pods is None:
        raise UsageError("a time chooses among pods: give a pod list too")
    if at is not None and over_time:
        raise UsageError(
            "the pods of one time do not arrive over time: found both at and over_time"
        )
    # Errors of the two lists begin with their names: the message shows the file instead
    with named_by_path({"nodes": nodes, "pods": pods}):
        pools = _pools(contents(nodes))
        jobs: list[dict[str, Any]] = []
        if pods is not None:
            data = contents(pods)
            models = tuple(pools)
            jobs = list(_arriving(data, models) if over_time else _jobs(data, models, at))
    return {
        "format": FORMAT,
        "name": name,
        "now": 0.0 if at is None else float(at),
        "cluster": {
            "pools": [
                {"name": model, "gpu": model, "nodes": members} for model, members in pools.items()
            ]
        },
        "jobs": jobs,
    }


def _pools(data: bytes) -> dict[str, list[dict[str, Any]]]:
    """Nodes by GPU model, in order of first appearance."""
    pools: dict[str, list[dict[str, Any]]] = {}
    seen: set[str] = set()
    for record in _records(data, "nodes", NODE_COLUMNS):
        name = record.text("sn")
        if name in seen:
            raise InvalidInput(
                f"{record.path}, sn", f"{show(name)} a second time", "names that differ"
            )
        seen.add(name)
        gpus = record.whole("gpu")
        node = {"name": name, "gpus": gpus, **_cpus_and_memory(record, "cpus")}
        if gpus:
            pools.setdefault(record.text("model"), []).append(node)
    if not pools:
        raise InvalidInput("nodes", "no node with a GPU", "at least one")
    return pools


def _cpus_and_memory(record: Record, cpus: str) -> dict[str, float]:
    return {
        cpus: record.whole("cpu_milli") / 1000,
        "memory": record.whole("memory_mib") * MIB / 1e9,
    }


def _pods(data: bytes) -> Iterator[tuple[Record, str]]:
    """The pods of a list with their names, which differ."""
    seen: set[str] = set()
    for record in _records(data, "pods", POD_COLUMNS):
        name = record.text("name")
        if name in seen:
            raise InvalidInput(
                f"{record.path}, name", f"{show(name)} a second time", "names that differ"
            )
        seen.add(name)
        yield record, name


def _jobs(data: bytes, models: Sequence[str], at: float | None) -> Iterator[dict[str, Any]]:
    """All pods at once, or those of a time."""
    for record, name in _pods(data):
        created, deleted = (record.time(column) for column in TIMES)
        if at is not None and "creation_time" not in record.cells:
            raise UsageError("the pod list has no times: take all of its pods")
        gpus = record.whole("num_gpu")
        here = at is None or (
            (created is None or created <= at) and (deleted is None or deleted > at)
        )
        if gpus and here:
            yield {
                "id": name,
                "steps": _seconds(record, created, deleted),
                "arrival": 0.0 if at is None else min(at, created if created is not None else at),
                "options": _options(record, gpus, models),
            }


def _arriving(data: bytes, models: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The pods that ran, as they were created."""
    last = -math.inf
    left_out = 0
    for record, name in _pods(data):
        if not {*TIMES, SCHEDULED} <= set(record.cells):
            raise UsageError(
                f"the pod list has not all times: a trace needs {listed((*TIMES, SCHEDULED))}"
            )
        gpus = record.whole("num_gpu")
        created = record.time("creation_time")
        scheduled = record.time(SCHEDULED)
        deleted = record.time("deletion_time")
        if not gpus:
            continue
        # Nobody knows how long these run
        if created is None or scheduled is None or deleted is None:
            left_out += 1
            continue
        for column, time, least in (
            ("creation_time", created, last),
            (SCHEDULED, scheduled, created),
            ("deletion_time", deleted, scheduled),
        ):
            if time < least:
                raise InvalidInput(
                    f"{record.path}, {column}", show(time), f"a time from {least:.15g} on"
                )
        last = created
        yield {
            "id": name,
            "steps": max(deleted - scheduled, 1.0),
            "arrival": created,
            "options": _options(record, gpus, models),
        }
    if left_out:
        log.info("%d pods left out that were never scheduled, or not deleted yet", left_out)


def _seconds(record: Record, created: float | None, deleted: float | None) -> float:
    """How long a pod ran: from when it was scheduled (else created) until it was deleted."""
    scheduled = record.time(SCHEDULED)
    # Waiting is not running: a pod runs from when it was scheduled
    start = created if scheduled is None else scheduled
    return 1.0 if start is None or deleted is None else max(deleted - start, 1.0)


def _options(record: Record, gpus: int, models: Sequence[str]) -> list[dict[str, Any]]:
    milli = record.whole("gpu_milli")
    spec = record.cells.get("gpu_spec", "")
    if not 1 <= milli <= 1000 or (gpus > 1 and milli != 1000):
        expected = (
            "thousandths of a GPU from 1 to 1000"
            if gpus == 1
            else f"1000, as the pod has {gpus} GPUs"
        )
        raise InvalidInput(f"{record.path}, gpu_milli", show(milli), expected)
    # No specification allows every model
    wanted = set(spec.split("|")) if spec else set(models)
    allowed = [model for model in models if model in wanted]
    if not allowed:
        raise InvalidInput(
            f"{record.path}, gpu_spec",
            show(spec),
            f"one of the models of the nodes: {listed(models)}",
        )
    option = {
        "gpus": gpus,
        "nodes": 1,
        "share": milli / 1000,
        "throughput": 1.0,
        "uses": _cpus_and_memory(record, "cpu"),
    }
    return [{"pool": model, **option} for model in allowed]


def _records(data: bytes, what: str, columns: Sequence[str]) -> Iterator[Record]:
    """The lines of a list, with its head checked."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise InvalidInput(
            f"{what} line {line}", "bytes that are not UTF-8", "UTF-8 text"
        ) from None
    lines = csv.reader(io.StringIO(text, newline=""))
    try:
        head = [cell.strip() for cell in next(lines, [])]
        missing = [column for column in columns if column not in head]
        if missing:
            raise InvalidInput(f"{what} line 1", show(",".join(head)), f"a column {missing[0]}")
        for cells in lines:
            path = f"{what} line {lines.line_num}"
            if not any(cells):
                continue
            if len(cells) != len(head):
                raise InvalidInput(path, f"{len(cells)} cells", f"{len(head)}, one for each column")
            yield Record(path, dict(zip(head, (cell.strip() for cell in cells), strict=True)))
    except csv.Error as error:
        raise InvalidInput(
            f"{what} line {lines.line_num}", f"text that is not CSV ({error})", "CSV"
        ) from None
