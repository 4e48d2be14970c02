"""What running jobs hold: the share of their GPUs, and their needs per GPU."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from optsched.arrays import FloatArray, IntArray
from optsched.instance import Instance
from optsched.performance.parameter_server import KEY


def held_of(
    instance: Instance, jobs: IntArray, option: IntArray, names: Sequence[str]
) -> tuple[FloatArray, FloatArray]:
    """Share of its GPUs that each of some running jobs holds, shape (jobs,),
    and its need per GPU of the named resources, shape (jobs, names).

    For a job with options these are of the option in which it runs (``option``, shape (all jobs,)).
    Where that is not known (-1), they are the largest among the options with the pool and the
    number of GPUs that the job holds. Needs of workers and servers are taken as 0: only the law of
    the job knows them.
    """
    table = instance.jobs_table
    options = instance.options
    workload = table.workload[jobs]
    demand = instance.workloads.demand
    needs = np.zeros((len(jobs), len(names)))
    for column, name in enumerate(names):
        if name in demand:
            needs[:, column] = demand[name][workload]
    needs[instance.workloads.with_parameter(KEY)[workload]] = 0.0
    share = np.ones(len(jobs))
    for nth_job in np.flatnonzero(table.options[jobs] >= 0).tolist():
        job = int(jobs[nth_job])
        gpus = len(table.running[job][1])
        rows = options_in_use(instance, job, int(option[job]))
        share[nth_job] = options.share[rows].max(initial=0.0) or 1.0
        needs[nth_job] = 0.0
        if len(rows):
            used = [[options.uses[row].get(name, 0.0) for name in names] for row in rows.tolist()]
            needs[nth_job] = np.max(np.array(used) / gpus, axis=0)
    return share, needs


def options_in_use(instance: Instance, job: int, option: int) -> IntArray:
    """The option in which a job runs if it is known,
    else all options with the pool and the number of GPUs that it holds.
    """
    options = instance.options
    option_list = int(instance.jobs_table.options[job])
    pool, gpus, _ = instance.jobs_table.running[job]
    first = int(options.indptr[option_list])
    rows = np.arange(first, options.indptr[option_list + 1])
    rows = rows[(options.pool[rows] == pool) & (options.gpus[rows] == len(gpus))]
    exact: IntArray = rows[rows - first == option]
    return exact if len(exact) else rows
