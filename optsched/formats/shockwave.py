"""Import of Shockwave's traces (Zheng et al., NSDI 2023): like Gavel's, but with batch sizes that
change while jobs run.

A trace has Gavel's 10 columns and two more, 12 in all: ``job_type, command, working_directory,
num_steps_arg, needs_data_dir, total_steps, scale_factor, mode, priority_weight, SLO, duration,
arrival_time``. The throughput table is in Gavel's format. ``total_steps`` are steps of the first
batch, and ``duration`` is their time on a v100 with that batch; a change of batch makes a job
shorter or longer (`optsched.formats.batch_schedules`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from optsched.errors import InvalidInput
from optsched.formats.batch_schedules import LARGEST, MODES, SAMPLES, batch_changes, steps_of_epoch
from optsched.formats.gavel import colocation, gavel_document, rates_of
from optsched.formats.gavel_files import COLUMNS as GAVEL_COLUMNS
from optsched.formats.gavel_files import (
    JOB_TYPE,
    NUMBERS,
    READ,
    GavelThroughputs,
    GavelTrace,
    job_type_of,
    jobs_of,
    read_throughputs,
)
from optsched.formats.inputs import PoolSizes, Seconds, Source, contents, importer
from optsched.formats.tables import Kind, read_headless
from optsched.instance.reading import listed, named_by_path, show
from optsched.performance.batches import BATCH, NAME, PER_GPU
from optsched.traces.trace import FORMAT

COLUMNS = (*GAVEL_COLUMNS[:7], "mode", *GAVEL_COLUMNS[7:9], "duration", *GAVEL_COLUMNS[9:])
# Round of the published experiments, s.
ROUND = 120.0
MOST_EPOCHS = 1_000_000


def read_shockwave_trace(source: Source) -> GavelTrace:
    """Parse a trace of 12 columns; raises `InvalidInput` with line and column.

    The columns ``mode`` (of batch changes) and ``duration`` (seconds on the reference, in the first
    batch) are in ``table``.
    """
    kinds: dict[str, Kind] = {**NUMBERS, "duration": "number"}
    table = read_headless(source, "trace", [COLUMNS], kinds, (*READ, "mode", "duration"))
    unknown = np.array([cell not in MODES for cell in table.cells["mode"]])
    table.refuse("mode", unknown, f"one of {listed(MODES)}")
    table.refuse("duration", table.numbers["duration"] <= 0, "seconds above 0")
    return jobs_of(table)


@importer
def import_shockwave(
    throughputs: Source,
    trace: Source,
    pools: PoolSizes,
    *,
    active: int | None = None,
    at: Seconds | None = None,
    gpus_per_node: int = 1,
    pairs: bool = False,
    planned: bool = False,
    name: str = "shockwave",
) -> dict[str, Any]:
    """Make a trace of a throughput table and a trace of Shockwave (Zheng et al., NSDI 2023).

    Jobs in mode accordion or gns change their batch as they progress: these are the regimes of the
    trace.

    Otherwise as `import_gavel`. After a change of its batch, a job runs at the rates of a workload
    such as ``LM (batch size 80) in steps of 10``: those of the larger batch, times the steps of an
    epoch in the first batch per step of one in the larger, for an epoch stays an epoch and steps
    are those of the first batch. A batch without a rate in any of the pools is skipped, as in the
    published simulator. A deadline is arrival + SLO x duration, with the duration of the trace.

    Parameters
    ----------
    throughputs : path or bytes
        Throughput table (JSON), as Gavel's.
    trace : path or bytes
        Trace of 12 columns.
    pools : mapping from str to int
        Worker types and their numbers of GPUs, such as v100:8,p100:16.
    active : int, optional
        The first N jobs, all present at the start.
    at : float, optional
        Only the jobs that have arrived by then, on the trace's clock.
    gpus_per_node : int, default 1
        GPUs of a node.
    pairs : bool, default False
        Also import the rates of two jobs that share GPUs.
    planned : bool, default False
        Batches change as Shockwave's planner expects, instead of as its simulated jobs do.
    name : str
        Name of the instance.

    Returns
    -------
    dict
        An ``optsched-trace/1`` document, as `Trace.from_document` takes it; of a trace without any
        change an ``optsched-instance/1``.

    Raises
    ------
    InvalidInput
        As in `import_gavel`; or a job that changes its batch has a model whose data nobody knows,
        or no batch.
    UsageError
        As in `import_gavel`.
    """
    with named_by_path({"throughputs": throughputs, "trace": trace}):
        table, jobs = read_throughputs(contents(throughputs)), read_shockwave_trace(trace)
        instance = gavel_document(
            table,
            jobs,
            pools,
            active=active,
            at=at,
            gpus_per_node=gpus_per_node,
            durations=jobs.table.numbers["duration"],
            name=name,
        )
        # Shockwave's experiments have another round length than Gavel's
        instance["round"] = ROUND
        regimes = _add_regimes(instance, table, jobs, pools, pairs, planned)
    return {"format": FORMAT, "instance": instance, "regimes": regimes} if regimes else instance


def _add_regimes(
    instance: dict[str, Any],
    table: GavelThroughputs,
    jobs: GavelTrace,
    pools: PoolSizes,
    pairs: bool,
    planned: bool,
) -> dict[str, Any]:
    """The regimes of the jobs; their workloads, and rates of pairs, are added to the instance."""
    count = len(instance["jobs"])
    types = {job_type: (job_type, 1.0) for job_type in instance["workloads"]}
    regimes: dict[str, Any] = {}
    for row in range(count):
        changes = []
        for after, size, model, first in _changes(table, jobs, row, tuple(pools), planned):
            job_type = jobs.job_type[row]
            if size != first:
                job_type = f"{model} (batch size {size}) in steps of {first}"
            if job_type not in types:
                # The number of epochs does not change, so a step of the larger batch counts as
                # several of the first
                factor = steps_of_epoch(model, first) / steps_of_epoch(model, size)
                larger = job_type_of(model, size)
                types[job_type] = (larger, factor)
                instance["workloads"][job_type] = {
                    "throughput": rates_of(table, larger, pools, factor),
                    "parameters": {NAME: model, PER_GPU: float(size), BATCH: float(first)},
                }
            changes.append({"after": float(after), "workload": job_type})
        if changes:
            regimes[instance["jobs"][row]["id"]] = changes
    if pairs:
        scales = np.unique(jobs.gpus[:count]).tolist()
        instance["colocation"] = colocation(table, types, scales, pools)
    return regimes


def _changes(
    table: GavelThroughputs,
    jobs: GavelTrace,
    row: int,
    pools: tuple[str, ...],
    planned: bool,
) -> Iterator[tuple[int, int, str, int]]:
    """Batch changes of a job: steps done, batch from then on, model, and first batch."""
    mode = jobs.table.cells["mode"][row]
    gpus = int(jobs.gpus[row])
    if mode == "static":
        return
    match = JOB_TYPE.fullmatch(jobs.job_type[row])
    model = jobs.job_type[row] if match is None else match[1]
    if model not in SAMPLES or (match is None and model in LARGEST):
        found = f"{show(jobs.job_type[row])} in mode {mode}"
        expected = f"mode static, or one of {listed(SAMPLES)} with its batch"
        raise InvalidInput(jobs.table.place(row, "job_type"), found, expected)
    if match is None:
        return
    first = int(match[2])
    steps = steps_of_epoch(model, first)
    # The last epoch may be incomplete
    epochs = -(-int(jobs.steps[row]) // steps)
    if epochs > MOST_EPOCHS:
        found = f"{jobs.steps[row]:.15g}, {epochs} epochs of {steps} steps"
        raise InvalidInput(
            jobs.table.place(row, "total_steps"), found, f"at most {MOST_EPOCHS} epochs"
        )
    now = first
    for epoch, size in batch_changes(mode, model, first, gpus, epochs, planned=planned):
        # As in the simulator, keep the batch if the table has no rate for the next one
        runs = size == first or any(
            table.rate(pool, job_type_of(model, size), gpus) > 0 for pool in pools
        )
        if runs and size != now:
            now = size
            yield epoch * steps, size, model, first
