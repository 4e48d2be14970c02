"""Import of Gavel's files: a throughput table and a trace become an instance."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from itertools import combinations_with_replacement, product
from typing import Any

import numpy as np

from optsched.arrays import FloatArray
from optsched.errors import InvalidArgument, InvalidInput, UsageError, did_you_mean
from optsched.formats.gavel_files import (
    MAX_GPUS,
    GavelThroughputs,
    GavelTrace,
    RowKey,
    one_line,
    profile_of,
    read_throughputs,
    read_trace,
)
from optsched.formats.inputs import PoolSizes, Seconds, Source, contents, importer
from optsched.instance.documents import FORMAT
from optsched.instance.reading import named_by_path, show

# Gavel's round, seconds.
ROUND = 360.0
# Worker type on which Gavel's own job generator measures durations.
REFERENCE = "v100"
# Relative difference allowed between the two directions of a pair.
SYMMETRY = 1e-9

__all__ = [
    "GavelThroughputs",
    "GavelTrace",
    "gavel_document",
    "import_gavel",
    "read_throughputs",
    "read_trace",
]


@importer
def import_gavel(
    throughputs: Source,
    trace: Source,
    pools: PoolSizes,
    *,
    active: int | None = None,
    at: Seconds | None = None,
    gpus_per_node: int = 1,
    pairs: bool = False,
    reference: str | None = None,
    name: str = "gavel",
) -> dict[str, Any]:
    """Make an instance of a throughput table and a trace of Gavel (Narayanan et al., OSDI 2020).

    Every job type becomes a workload with its rates by pool and GPU count, and with the name and
    batch by which a model fitted to the same table knows it; a rate of 0 is left out, and a job
    whose scale has no rate is imported all the same (solutions list it as unplaced). A job is
    called ``j<number>`` after its place in the trace, from 0.

    Parameters
    ----------
    throughputs : path or bytes
        Throughput table (JSON).
    trace : path or bytes
        Trace, 10 or 7 columns.
    pools : mapping from str to int
        Worker types and their numbers of GPUs, such as v100:8,p100:16. The GPU type of a pool is
        its name in upper case.
    active : int, optional
        The first N jobs, all present at the start. ``now`` is the arrival of the last.
    at : float, optional
        Only the jobs that have arrived by then, on the trace's clock. ``now`` is ``at``; with
        neither this nor ``active``: all jobs, and ``now`` is the arrival of the first, so that the
        later ones are still to come.
    gpus_per_node : int, default 1
        GPUs of a node. Where it does not divide a pool, the last node is smaller and no GPU is
        lost.
    pairs : bool, default False
        Also import the rates of two jobs that share GPUs. These are all pairs of the job types of
        these jobs (also a type with itself), in every pool, at every scale that these jobs have,
        where both rates are positive.
    reference : str, optional
        Worker type that fixes durations, and so deadlines; by default v100, else the fastest. The
        duration is steps / rate, the deadline is arrival + SLO x duration. Where the table has no
        rate on v100, it is the worker type on which the job is fastest. A job that can run on no
        worker type at all has no duration and gets no deadline.
    name : str, default "gavel"
        Name of the instance.

    Returns
    -------
    dict
        An ``optsched-instance/1`` document, as `Instance.from_document` takes it. Times in seconds,
        rates in steps/s.

    Raises
    ------
    InvalidInput
        A file is malformed, ``pools`` or ``reference`` name no worker type, the trace has a job
        type that the table lacks, a job with an SLO cannot run on ``reference``, or (with
        ``pairs``) the two directions of a pair differ.
    UsageError
        Both ``active`` and ``at``, no pools, or numbers that make no sense, such as more active
        jobs than there are.
    """
    with named_by_path({"throughputs": throughputs, "trace": trace}):
        return gavel_document(
            read_throughputs(contents(throughputs)),
            read_trace(trace),
            pools,
            active=active,
            at=at,
            gpus_per_node=gpus_per_node,
            pairs=pairs,
            reference=reference,
            name=name,
        )


def gavel_document(
    table: GavelThroughputs,
    jobs: GavelTrace,
    pools: Mapping[str, int],
    *,
    active: int | None = None,
    at: float | None = None,
    gpus_per_node: int = 1,
    pairs: bool = False,
    reference: str | None = None,
    durations: FloatArray | None = None,
    name: str = "gavel",
) -> dict[str, Any]:
    """The document from parsed files; see `import_gavel`.

    Parameters
    ----------
    durations : FloatArray, shape (jobs,), optional
        Seconds from which deadlines are computed, if the trace states them.
    """
    node_size = _whole_option(gpus_per_node, "gpus_per_node", 1)
    sizes = {pool: _whole_option(gpus, f"pools[{pool!r}]", 0) for pool, gpus in pools.items()}
    _check_worker_types(table, sizes, reference)
    count, now = _selection(jobs, active, at)
    _check_job_types(table, jobs, count)
    # Only workloads and pairs of the imported jobs; the table has many more
    used = tuple(dict.fromkeys(jobs.job_type[:count]))
    scales = sorted(set(jobs.gpus[:count].tolist()))
    return {
        "format": FORMAT,
        "name": name,
        "round": ROUND,
        "now": now,
        "cluster": {"pools": [_pool(pool, gpus, node_size) for pool, gpus in sizes.items()]},
        "performance": {"model": "table"},
        "workloads": {
            job_type: {"throughput": rates_of(table, job_type, sizes), **_parameters(job_type)}
            for job_type in used
        },
        "colocation": colocation(
            table,
            {job_type: (job_type, 1.0) for job_type in used},
            scales,
            sizes,
        )
        if pairs
        else [],
        "jobs": [_job(table, jobs, row, reference, durations) for row in range(count)],
    }


def _whole_option(value: object, what: str, least: int) -> int:
    try:
        number = -1 if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = -1
    if not least <= number <= MAX_GPUS:
        raise InvalidArgument(what, repr(value), f"a whole number from {least} to {MAX_GPUS}")
    return number


def _check_worker_types(
    table: GavelThroughputs, pools: Mapping[str, int], reference: str | None
) -> None:
    known = ", ".join(map(one_line, table.worker_types))
    if not pools:
        raise InvalidArgument("pools", "none", f"GPUs for at least one of the worker types {known}")
    named = [("pools", pool) for pool in pools]
    for what, name in [*named, *([] if reference is None else [("reference", reference)])]:
        if name not in table.alone:
            expected = f"one of the worker types of the throughput file: {known}"
            raise InvalidInput(what, show(name), expected)


def _selection(jobs: GavelTrace, active: int | None, at: float | None) -> tuple[int, float]:
    """The number of jobs, from the first of the trace on, and the clock."""
    if active is not None and at is not None:
        raise UsageError(
            "active and at exclude each other: give the number of jobs or the time, not both"
        )
    if active is not None:
        count = _whole_option(active, "active", 1)
        if count > len(jobs):
            raise InvalidArgument(
                "active", str(count), f"at most {len(jobs)}, the number of jobs in the trace"
            )
        return count, float(jobs.arrival[count - 1])
    if at is not None:
        if not math.isfinite(at):
            raise InvalidArgument("at", repr(at), "a finite time in seconds")
        return int(np.searchsorted(jobs.arrival, at, side="right")), float(at)
    return len(jobs), float(jobs.arrival[0])


def _check_job_types(table: GavelThroughputs, jobs: GavelTrace, count: int) -> None:
    for row, job_type in enumerate(jobs.job_type[:count]):
        if job_type not in table.job_types:
            hint = did_you_mean(job_type, sorted(table.job_types), aside=True)
            raise InvalidInput(
                jobs.table.place(row, "job_type"),
                show(job_type),
                f"a job type of the throughput file{hint}",
            )


def _pool(name: str, gpus: int, node_size: int) -> dict[str, Any]:
    """``gpus`` GPUs on nodes of ``node_size``. A remainder makes a smaller last node, with the
    usual name.
    """
    nodes, rest = divmod(gpus, node_size)
    document = {
        "name": name,
        "gpu": name.upper(),
        "nodes": nodes,
        "gpus_per_node": node_size,
    }
    if rest:
        whole = [{"name": f"{name}-{node}"} for node in range(nodes)]
        document["nodes"] = [*whole, {"name": f"{name}-{nodes}", "gpus": rest}]
    return document


def rates_of(
    table: GavelThroughputs,
    job_type: str,
    pools: Mapping[str, int],
    factor: float = 1.0,
) -> dict[str, dict[str, float]]:
    """Positive rates by pool and GPU count, times the factor; a pool without any is left out."""
    rates: dict[str, dict[str, float]] = {}
    for pool in pools:
        # A rate of 0 means that the job cannot run there, or was not measured
        by_scale = sorted(
            (scale, rate)
            for (row, scale), rate in table.alone[pool].items()
            if row == job_type and rate > 0
        )
        if by_scale:
            rates[pool] = {str(scale): rate * factor for scale, rate in by_scale}
    return rates


def _parameters(job_type: str) -> dict[str, Any]:
    """Profile name and batch of a job type in models fitted to these files; empty if it states no
    batch.
    """
    profile, samples = profile_of(job_type)
    return (
        {}
        if profile == job_type
        else {"parameters": {"profile": profile, "batch_per_gpu": samples}}
    )


def colocation(
    table: GavelThroughputs,
    workloads: Mapping[str, tuple[str, float]],
    scales: Sequence[int],
    pools: Mapping[str, int],
) -> list[dict[str, Any]]:
    """Each unordered pair of workloads (one with itself too)
    once per pool and scale, where both run.

    ``workloads`` gives the job type of each workload, and the factor from the table's rates to its
    rates.
    """
    entries = []
    pairs = tuple(combinations_with_replacement(workloads, 2))
    for pool, scale, pair in product(pools, scales, pairs):
        first, second = (workloads[name] for name in pair)
        rates = _shared_rates(table, pool, (first[0], scale), (second[0], scale))
        if min(rates) > 0:
            entries.append(
                {
                    "workloads": list(pair),
                    "pool": pool,
                    "gpus": scale,
                    "throughput": [rates[0] * first[1], rates[1] * second[1]],
                }
            )
    return entries


def _shared_rates(
    table: GavelThroughputs,
    pool: str,
    first: RowKey,
    second: RowKey,
) -> tuple[float, float]:
    """steps/s of the two jobs; 0 if unknown, also if the file lacks one direction."""
    # The table states a pair in both directions, which must agree
    rates = table.shared[pool].get((first, second), (0.0, 0.0))
    back = table.shared[pool].get((second, first), (0.0, 0.0))[::-1]
    if not all(
        math.isclose(one, other, rel_tol=SYMMETRY) for one, other in zip(rates, back, strict=True)
    ):
        raise InvalidInput(
            f"throughputs.{one_line(pool)}.{one_line(str(first))}.{one_line(str(second))}",
            f"{list(rates)}, but {list(back[::-1])} the other way round",
            "the same two rates in both directions (0 counts as unknown; "
            f"relative difference at most {SYMMETRY:g})",
        )
    return rates


def _job(
    table: GavelThroughputs,
    jobs: GavelTrace,
    row: int,
    reference: str | None,
    durations: FloatArray | None,
) -> dict[str, Any]:
    document = {
        "id": f"j{row}",
        "workload": jobs.job_type[row],
        "gpus": int(jobs.gpus[row]),
        "steps": float(jobs.steps[row]),
        "weight": float(jobs.weight[row]),
        "arrival": float(jobs.arrival[row]),
    }
    slo = float(jobs.slo[row])
    if math.isnan(slo):
        return document
    if durations is None:
        duration = _duration(table, jobs, row, reference)
    else:
        duration = float(durations[row])
    if duration is None:
        return document
    deadline = float(jobs.arrival[row]) + slo * duration
    if not math.isfinite(deadline):
        found = f"{slo:g}, with a deadline beyond all numbers"
        raise InvalidInput(jobs.table.place(row, "SLO"), found, "an SLO with a finite deadline")
    return document | {"deadline": deadline}


def _duration(
    table: GavelThroughputs, jobs: GavelTrace, row: int, reference: str | None
) -> float | None:
    """Seconds on the reference; None if the job can run on no worker type."""
    job_type, gpus = jobs.job_type[row], int(jobs.gpus[row])
    rates = {
        worker_type: table.rate(worker_type, job_type, gpus) for worker_type in table.worker_types
    }
    # A job that can run nowhere has no duration, and so no deadline
    fastest = max(rates.values())
    if fastest == 0:
        return None
    if reference is None:
        return float(jobs.steps[row]) / (rates.get(REFERENCE) or fastest)
    if rates[reference] == 0:
        able = ", ".join(one_line(worker_type) for worker_type, rate in rates.items() if rate > 0)
        found = (
            f"an SLO on {show(job_type)} with {gpus} GPUs, "
            f"which has no rate on {one_line(reference)}"
        )
        expected = f"a reference on which the job can run: {able}"
        raise InvalidInput(jobs.table.place(row, "SLO"), found, expected)
    return float(jobs.steps[row]) / rates[reference]
