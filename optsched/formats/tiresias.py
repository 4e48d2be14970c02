"""Import of the files of Tiresias' simulator (Gu et al., NSDI 2019):
a trace of jobs and a cluster become an instance.

A trace is a CSV table with a job a line: ``job_id``, ``num_gpu``, ``submit_time`` and ``duration``
in seconds, ``model_name``; ``iterations`` and ``interval`` (seconds to the next job) are not used.
The simulator sorts jobs by ``submit_time``, and so does the import: those of the same time stay in
the order of the file. A cluster is a CSV table of one line: ``num_switch``, ``num_node_p_switch``,
``num_gpu_p_node``, ``num_cpu_p_node``, ``mem_p_node`` in GB.
"""

from __future__ import annotations

from typing import Any

from optsched.errors import InvalidInput
from optsched.formats.inputs import (
    Pools,
    Seconds,
    Source,
    Speeds,
    importer,
    one_cluster,
    speeds_of,
)
from optsched.formats.recorded import arrived, gangs_of_models, recorded_workload
from optsched.formats.tables import Kind, Table, read_table
from optsched.instance.documents import FORMAT

REQUIRED: dict[str, Kind] = {
    "job_id": "text",
    "num_gpu": "whole",
    "submit_time": "number",
    "model_name": "text",
    "duration": "number",
}
COLUMNS: dict[str, Kind] = {
    **REQUIRED,
    "iterations": "number",
    "interval": "number",
    "start_time": "number",
    "model_size": "number",
    "aggr_interval": "number",
    "model_scale": "number",
}
CLUSTER: dict[str, Kind] = {
    "num_switch": "whole",
    "num_node_p_switch": "whole",
    "num_gpu_p_node": "whole",
    "num_cpu_p_node": "number",
    "mem_p_node": "number",
}
# Name of the pool of a cluster file.
POOL = "gpu"


@importer
def import_tiresias(
    trace: Source,
    cluster: Source | None = None,
    *,
    pools: Pools | None = None,
    speeds: Speeds | None = None,
    at: Seconds | None = None,
    name: str = "tiresias",
) -> dict[str, Any]:
    """Make an instance of a trace and a cluster of Tiresias' simulator (Gu et al., NSDI 2019).

    The steps of a job are the seconds that it ran, and its workload is its model.

    Parameters
    ----------
    trace : path or bytes
        Table of jobs (CSV).
    cluster : path or bytes, optional
        Cluster file (CSV). A pool ``gpu`` of all nodes below all switches, whose distances are not
        known.
    pools : mapping from str to (int, int), or pool documents, optional
        Instead of a cluster file: nodes of a pool, and GPUs of each node.
    speeds : mapping from str to float, optional
        How many times as fast as in the trace jobs run in a pool; 1 by default.
    at : float, optional
        Only the jobs that have arrived by then, on the trace's clock. ``now`` is ``at``; by default
        all jobs, and ``now`` is the first arrival.
    name : str
        Name of the instance.

    Returns
    -------
    dict
        An ``optsched-instance/1`` document, as `Instance.from_document` takes it.

    Raises
    ------
    InvalidInput
        With file, line and column.
    UsageError
        Neither or both of cluster file and pools, or speeds of other pools.
    """
    documents = one_cluster(pools, cluster, "cluster", _cluster)
    factors = speeds_of((document["name"] for document in documents), speeds)
    jobs = read_table(trace, "trace", COLUMNS, REQUIRED)
    ids = jobs.names("job_id")
    models = jobs.cells["model_name"]
    arrival = jobs.numbers["submit_time"]
    duration = jobs.numbers["duration"]
    gangs = jobs.whole("num_gpu", 1, "a whole number of GPUs, at least 1")
    jobs.refuse("duration", ~(duration > 0), "seconds above 0")
    rows, now = arrived(arrival, at)
    used = gangs_of_models(models, gangs, rows)
    return {
        "format": FORMAT,
        "name": name,
        "now": now,
        "cluster": {"pools": documents},
        "workloads": {model: recorded_workload(counts, factors) for model, counts in used.items()},
        "jobs": [
            {
                "id": ids[row],
                "workload": models[row],
                "gpus": int(gangs[row]),
                "steps": float(duration[row]),
                "arrival": float(arrival[row]),
            }
            for row in rows.tolist()
        ],
    }


def _cluster(file: Source) -> list[dict[str, Any]]:
    """The pool of a cluster file."""
    table = read_table(file, "cluster", CLUSTER, CLUSTER)
    if len(table) > 1:
        raise InvalidInput(
            f"{table.name}:{table.line[1]}", "a second line", "one line below the first"
        )
    switches, nodes, gpus = (_whole(table, column) for column in tuple(CLUSTER)[:3])
    return [
        {
            "name": POOL,
            "nodes": switches * nodes,
            "gpus_per_node": gpus,
            "cpus_per_node": float(table.numbers["num_cpu_p_node"][0]),
            "memory_per_node": float(table.numbers["mem_p_node"][0]),
        }
    ]


def _whole(table: Table, column: str) -> int:
    return int(table.whole(column, 1, "a whole number, at least 1")[0])
