"""Import of ElasticFlow's files (Gu et al., ASPLOS 2023):
throughput tables and a trace become an instance.

A trace is a CSV table with a job a line: ``job_id``, ``submit_time``, ``iteration``,
``model_name``, ``ddl``, ``batch_size``, ``num_gpu``, perhaps ``best_effort``; the column names of
the ITP traces (``submission_time``, ``num_iteration``, ``deadline``) are accepted too. Times and
deadlines are in seconds on one clock. ElasticFlow's scheduler sorts the jobs by ``submit_time``,
and so does the import: jobs of the same time stay in the order of the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from optsched.arrays import IntArray
from optsched.errors import InvalidArgument
from optsched.formats.inputs import (
    Folders,
    Pools,
    Seconds,
    Source,
    importer,
    pool_documents,
)
from optsched.formats.profiles import read_profiles
from optsched.formats.recorded import arrived
from optsched.formats.tables import Kind, Table, read_table
from optsched.instance.documents import FORMAT
from optsched.instance.reading import listed, show
from optsched.performance.batches import BATCH, NAME

REQUIRED: dict[str, Kind] = {
    "job_id": "text",
    "submit_time": "number",
    "iteration": "number",
    "model_name": "text",
    "ddl": "number",
    "batch_size": "number",
    "num_gpu": "whole",
}
COLUMNS: dict[str, Kind] = {
    **REQUIRED,
    "duration": "number",
    "best_effort": "whole",
    "real_iteration": "number",
    "real_duration": "number",
}
SYNONYMS = {"submission_time": "submit_time", "num_iteration": "iteration", "deadline": "ddl"}

# iterations/s by workload, pool and GPUs.
Rates = Mapping[str, Mapping[str, Mapping[int, float]]]


@importer
def import_elasticflow(
    tables: Folders,
    trace: Source,
    pools: Pools,
    *,
    at: Seconds | None = None,
    rigid: bool = False,
    name: str = "elasticflow",
) -> dict[str, Any]:
    """Make an instance of throughput tables and a trace of ElasticFlow (Gu et al., ASPLOS 2023).

    A model with a batch size becomes a workload such as ``vgg16/64``; an iteration is a step. A job
    may run on every number of GPUs that the tables have for it.

    Parameters
    ----------
    tables : mapping from str to path
        Throughputs of the GPUs of a pool: a folder of tables, one for each model, or a table.
    trace : path or bytes
        Table of jobs (CSV).
    pools : mapping from str to (int, int), or pool documents
        Nodes of a pool, and GPUs of each node.
    at : float, optional
        Only the jobs that have arrived by then, on the trace's clock. ``now`` is ``at``; by default
        all jobs, and ``now`` is the first arrival.
    rigid : bool
        Jobs run only on the number of GPUs that they ask for.
    name : str
        Name of the instance.

    Returns
    -------
    dict
        An ``optsched-instance/1`` document, as `Instance.from_document` takes it.

    Raises
    ------
    InvalidInput
        With file, line and column: a wrong cell, a job that the tables do not have.
    UsageError
        Pools without a table, or tables without a pool.
    """
    documents = pool_documents(pools) if pools else []
    node_sizes = {pool["name"]: pool["gpus_per_node"] for pool in documents}
    if not pools or set(node_sizes) != set(tables):
        found = f"pools {listed(node_sizes)} and tables of {listed(tables)}"
        raise InvalidArgument("", found, "a table for each pool")
    rates = _rates(tables, node_sizes)
    jobs = read_table(trace, "trace", COLUMNS, REQUIRED, SYNONYMS)
    workloads = _workloads(jobs, rates)
    rows, now = arrived(jobs.numbers["submit_time"], at)
    return {
        "format": FORMAT,
        "name": name,
        "now": now,
        "cluster": {"pools": documents},
        "workloads": {
            workload: _workload(workload, rates[workload])
            for workload in dict.fromkeys(workloads[row] for row in rows.tolist())
        },
        "jobs": _jobs(jobs, rows, workloads, rates, rigid),
    }


def _rates(tables: Folders, node_sizes: Mapping[str, int]) -> Rates:
    """Rates of the tables, pool by pool."""
    rates: dict[str, dict[str, dict[int, float]]] = {}
    for pool, source in tables.items():
        measured = read_profiles(source, gpu=pool, gpus_per_node=node_sizes[pool])
        ways = measured.ways
        columns = (ways.workload, ways.gpus, ways.samples_per_step, 1 / measured.seconds)
        for workload, gpus, batch, rate in zip(
            *(column.tolist() for column in columns), strict=True
        ):
            by_pool = rates.setdefault(_named(ways.workloads[workload], batch), {})
            by_pool.setdefault(pool, {})[gpus] = rate
    return rates


def _named(model: str, batch: float) -> str:
    return f"{model}/{batch:.10g}"


def _workload(name: str, rates: Mapping[str, Mapping[int, float]]) -> dict[str, Any]:
    model, _, batch = name.rpartition("/")
    return {
        "throughput": {
            pool: {str(gpus): rate for gpus, rate in sorted(by_count.items())}
            for pool, by_count in rates.items()
        },
        "parameters": {NAME: model, BATCH: float(batch)},
    }


def _workloads(jobs: Table, rates: Rates) -> list[str]:
    """Workload of each job; raises if the tables lack one."""
    pairs = list(zip(jobs.cells["model_name"], jobs.numbers["batch_size"].tolist(), strict=True))
    names = {pair: _named(*pair) for pair in dict.fromkeys(pairs)}
    unknown = {name for name in names.values() if name not in rates}
    for row, pair in enumerate(pairs if unknown else ()):
        if names[pair] in unknown:
            expected = f"a model and batch of the tables: {listed(sorted(rates))}"
            raise jobs.error(row, "model_name", show(names[pair]), expected)
    return [names[pair] for pair in pairs]


def _jobs(
    jobs: Table,
    rows: IntArray,
    workloads: Sequence[str],
    rates: Rates,
    rigid: bool,
) -> list[dict[str, Any]]:
    ids = jobs.names("job_id")
    arrival = jobs.numbers["submit_time"]
    deadline = jobs.numbers["ddl"]
    steps = jobs.numbers["iteration"]
    gangs = jobs.whole("num_gpu", 1, "a whole number of GPUs, at least 1")
    jobs.refuse("iteration", ~(steps >= 0), "a number of iterations, at least 0")
    best_effort = jobs.flags("best_effort")
    # The file also has a deadline for best-effort jobs; ignore it
    too_early = np.flatnonzero((deadline < arrival) & ~best_effort)
    if len(too_early):
        row = int(too_early[0])
        expected = f"a time from the arrival on, {arrival[row]:g}"
        raise jobs.error(row, "ddl", show(float(deadline[row])), expected)
    # A job may run on every number of GPUs that was measured in at least one pool
    elastic = {
        name: _range(sorted({count for by_count in by_pool.values() for count in by_count}))
        for name, by_pool in rates.items()
    }
    documents = []
    for row in rows.tolist():
        document = {
            "id": ids[row],
            "workload": workloads[row],
            "gpus": int(gangs[row]) if rigid else elastic[workloads[row]],
            "steps": float(steps[row]),
            "arrival": float(arrival[row]),
        }
        if not best_effort[row]:
            document["deadline"] = float(deadline[row])
        documents.append(document)
    return documents


def _range(counts: Sequence[int]) -> dict[str, Any]:
    return {"min": counts[0], "max": counts[-1], "levels": list(counts)}
