"""Import of node and pod lists of a production GPU cluster,
"openb" (Q. Weng et al., USENIX ATC 2023), as CSV.

Node list: columns ``sn,cpu_milli,memory_mib,gpu,model``; nodes without GPUs are left out. Pod list:
``name,cpu_milli, memory_mib,num_gpu,gpu_milli`` and perhaps ``gpu_spec`` (allowed models joined by
a vertical bar; empty: any) and the times ``creation_time,deletion_time,scheduled_time`` in seconds;
``gpu_milli`` is the share of one GPU in thousandths.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np

from optsched.arrays import BoolArray, FloatArray
from optsched.errors import InvalidArgument, InvalidInput, UsageError
from optsched.formats.inputs import Seconds, Source, importer
from optsched.formats.tables import Kind, Table, read_table
from optsched.instance.documents import FORMAT
from optsched.instance.reading import listed, show

log = logging.getLogger("optsched")

NODES: dict[str, Kind] = {
    "sn": "text",
    "cpu_milli": "whole",
    "memory_mib": "whole",
    "gpu": "whole",
    "model": "text",
}
PODS: dict[str, Kind] = {
    "name": "text",
    "cpu_milli": "whole",
    "memory_mib": "whole",
    "num_gpu": "whole",
    "gpu_milli": "whole",
    "gpu_spec": "text",
    "creation_time": "number",
    "deletion_time": "number",
    "scheduled_time": "number",
}
TIMES = ("creation_time", "deletion_time", "scheduled_time")
WHOLE = "a whole number, at least 0"
# Bytes.
MIB = 2**20


@importer
def import_openb(
    nodes: Source,
    pods: Source | None = None,
    *,
    at: Seconds | None = None,
    over_time: bool = False,
    name: str = "openb",
) -> dict[str, Any]:
    """Make an instance of a node list and a pod list
    of the openb cluster (Weng et al., USENIX ATC 2023).

    Every GPU model becomes a pool; its nodes keep their names, CPUs and memory. Every pod with GPUs
    becomes a job with an option per model that it allows: on one node, with its share of the GPU,
    its CPUs and memory. Pods without GPUs are left out. A pod's steps are the seconds that it ran,
    at 1 step/s (1 step where the list has no times).

    Parameters
    ----------
    nodes : path or bytes
        Node list (CSV).
    pods : path or bytes, optional
        Pod list (CSV); without it there are no jobs.
    at : float, optional
        Only the pods that were there then, created and not deleted yet; by default all, as if they
        came at once. ``now`` is ``at``, or 0.
    over_time : bool, default False
        Make a trace: pods arrive when they were created, and those that never ran are left out. The
        order is that of the list. Pods that are not deleted yet are left out too: nobody knows how
        long they run.
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
        raise InvalidArgument(
            "pods",
            "none",
            "a pod list",
            sentence="a time chooses among pods: give a pod list too",
        )
    if at is not None and over_time:
        raise UsageError(
            "the pods of one time do not arrive over time: found both at and over_time"
        )
    pools = _pools(nodes)
    jobs = []
    if pods is not None:
        table = _read(pods, "pods", PODS, tuple(PODS)[:5])
        models = tuple(pools)
        jobs = _arriving(table, models) if over_time else _present(table, models, at)
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


def _read(source: Source, what: str, columns: dict[str, Kind], required: Sequence[str]) -> Table:
    """Read a list; published ones have additional columns, which are ignored."""
    return read_table(source, what, columns, required, least=None, others=True)


def _pools(nodes: Source) -> dict[str, list[dict[str, Any]]]:
    """Nodes by GPU model, in order of first appearance."""
    # Nodes without GPUs have no model
    table = _read(nodes, "nodes", NODES, tuple(NODES)[:4])
    gpus = table.whole("gpu", 0, WHOLE)
    sizes = _cpus_and_memory(table, "cpus")
    pools: dict[str, list[dict[str, Any]]] = {}
    for row, name in enumerate(table.names("sn")):
        if gpus[row]:
            node = {"name": name, "gpus": int(gpus[row]), **sizes[row]}
            pools.setdefault(table.text(row, "model"), []).append(node)
    if not pools:
        raise InvalidInput(table.name, "no node with a GPU", "at least one")
    return pools


def _cpus_and_memory(table: Table, cpus: str) -> list[dict[str, float]]:
    """CPUs under the name ``cpus``, and memory in GB, of each row."""
    columns = (table.whole(column, 0, WHOLE).tolist() for column in ("cpu_milli", "memory_mib"))
    return [
        {cpus: milli / 1000, "memory": mib * MIB / 1e9} for milli, mib in zip(*columns, strict=True)
    ]


def _times(pods: Table) -> list[FloatArray]:
    """The times of `TIMES`, s; NaN for missing ones."""
    nothing = np.full(len(pods), np.nan)
    return [pods.numbers.get(column, nothing) for column in TIMES]


def _present(pods: Table, models: Sequence[str], at: float | None) -> list[dict[str, Any]]:
    """All pods, or those present at the time ``at``."""
    if at is not None and "creation_time" not in pods:
        raise UsageError("the pod list has no times: take all of its pods")
    created, deleted, scheduled = _times(pods)
    chosen = pods.whole("num_gpu", 0, WHOLE) > 0
    arrival = np.zeros(len(pods))
    if at is not None:
        # Comparisons with NaN are false, so a missing time excludes no pod
        chosen &= ~(created > at) & ~(deleted <= at)
        arrival = np.fmin(created, at)
    # A pod runs from the time when it was scheduled, not created
    start = np.where(np.isnan(scheduled), created, scheduled)
    return _jobs(pods, chosen, arrival, np.fmax(deleted - start, 1.0), models)


def _arriving(pods: Table, models: Sequence[str]) -> list[dict[str, Any]]:
    """The pods that ran, arriving when they were created."""
    if not all(column in pods for column in TIMES):
        raise UsageError(f"the pod list has not all times: a trace needs {listed(TIMES)}")
    created, deleted, scheduled = _times(pods)
    with_gpus = pods.whole("num_gpu", 0, WHOLE) > 0
    # The run time of a pod that was never scheduled, or is not deleted yet, is unknown
    ran = with_gpus & np.isfinite(created + deleted + scheduled)
    before = np.full(len(pods), -np.inf)
    before[np.flatnonzero(ran)[1:]] = created[ran][:-1]
    for column, times, least in (
        ("creation_time", created, before),
        ("scheduled_time", scheduled, created),
        ("deletion_time", deleted, scheduled),
    ):
        for row in np.flatnonzero(ran & (times < least))[:1].tolist():
            expected = f"a time from {least[row]:.15g} on"
            raise pods.error(row, column, show(float(times[row])), expected)
    if left_out := int(np.count_nonzero(with_gpus & ~ran)):
        log.info("%d pods left out that were never scheduled, or not deleted yet", left_out)
    return _jobs(pods, ran, created, np.maximum(deleted - scheduled, 1.0), models)


def _jobs(
    pods: Table, some: BoolArray, arrival: FloatArray, steps: FloatArray, models: Sequence[str]
) -> list[dict[str, Any]]:
    """Jobs of some pods, in the order of the list."""
    names = pods.names("name")
    uses = _cpus_and_memory(pods, "cpu")
    return [
        {
            "id": names[row],
            "steps": float(steps[row]),
            "arrival": float(arrival[row]),
            "options": _options(pods, row, models, uses[row]),
        }
        for row in np.flatnonzero(some).tolist()
    ]


def _options(
    pods: Table, row: int, models: Sequence[str], uses: dict[str, float]
) -> list[dict[str, Any]]:
    """An option for each model that a pod allows."""
    gpus = int(pods.numbers["num_gpu"][row])
    milli = int(pods.numbers["gpu_milli"][row])
    if not 1 <= milli <= 1000 or (gpus > 1 and milli != 1000):
        expected = (
            "thousandths of a GPU from 1 to 1000"
            if gpus == 1
            else f"1000, as the pod has {gpus} GPUs"
        )
        raise pods.error(row, "gpu_milli", show(milli), expected)
    spec = str(pods.value(row, "gpu_spec") or "")
    # An empty specification allows every model
    wanted = spec.split("|") if spec else models
    allowed = [model for model in models if model in wanted]
    if not allowed:
        expected = f"one of the models of the nodes: {listed(models)}"
        raise pods.error(row, "gpu_spec", show(spec), expected)
    option = {"gpus": gpus, "nodes": 1, "share": milli / 1000, "throughput": 1.0, "uses": uses}
    return [{"pool": model, **option} for model in allowed]
