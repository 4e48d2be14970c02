"""What running jobs hold: GPUs, their share or slice (MIG) of each, and their needs per GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from optsched.arrays import FloatArray, IntArray, owners
from optsched.candidates.slices import NO_SLICE, layouts_of
from optsched.instance import Instance
from optsched.instance.layouts import MIG
from optsched.performance.parameter_server import KEY

FULL = 1.0 + 1e-9
"""Shares of one GPU add up to at most this."""


class HeldShares(NamedTuple):
    """GPUs that S running jobs hold, F in all.

    Attributes
    ----------
    profile : IntArray, shape (S,)
        Profile of its slices (MIG), among those of the pool; `NO_SLICE` for none.
    need : FloatArray, shape (S, names)
        Per GPU, of the named resources.
    gpu : IntArray, shape (F,)
        Numbers in the cluster, job by job.
    share : FloatArray, shape (F,)
        Share of each, in (0, 1].
    owner : IntArray, shape (F,)
        Place of the job of each, ascending.
    """

    profile: IntArray
    need: FloatArray
    gpu: IntArray
    share: FloatArray
    owner: IntArray


def held_gpus(
    instance: Instance,
    jobs: IntArray,
    names: Sequence[str],
    option: IntArray | None = None,
) -> HeldShares:
    """What some running jobs hold.

    Jobs that share a GPU have equal parts of it, unless their options state their shares; of its
    other GPUs such a job has all.

    Parameters
    ----------
    instance : Instance
    jobs : IntArray, shape (S,)
        Rows of the job table.
    names : sequence of str
        Resources whose need is asked for.
    option : IntArray, shape (all jobs,), optional
        As in `held_of`; by default no option is known.
    """
    if option is None:
        option = np.full(len(instance.jobs_table), -1, np.int64)
    places = instance.jobs_table.places
    numbering = instance.cluster.numbering
    share, need = held_of(instance, jobs, option, names)
    holder = places.among(len(instance.jobs_table))[jobs]
    gpu = places.numbers_of(holder, numbering)
    owner = owners(places.length[holder])
    load = np.bincount(gpu, share[owner], numbering.gpus)
    holders = np.bincount(gpu, minlength=numbering.gpus)
    # Two jobs that hold a whole GPU run as a pair: the instance states no shares of theirs.
    of_gpu = share[owner]
    equal = np.where(load[gpu] > FULL, 1.0 / holders[gpu], 1.0)
    return HeldShares(
        _profiles_of(instance, jobs, option), need, gpu, np.minimum(of_gpu, equal), owner
    )


def _profiles_of(instance: Instance, jobs: IntArray, option: IntArray) -> IntArray:
    """Profile of the slices (MIG) in which each of some running jobs runs; `NO_SLICE` for none.

    Where several options are possible, it is that of the option with the largest share.
    """
    table, options = instance.jobs_table, instance.options
    profile = np.full(len(jobs), NO_SLICE, np.int64)
    for nth_job in (table.options[jobs] >= 0).nonzero()[0].tolist():
        job = int(jobs[nth_job])
        rows = options_in_use(instance, job, int(option[job]))
        if not len(rows):
            continue
        row = int(rows[options.share[rows].argmax()])
        name = options.attributes[row].get(MIG)
        if name is not None and options.share[row] < 1.0:
            number = table.running[job][0]
            pool = instance.cluster.pools[number]
            profile[nth_job] = layouts_of(pool, number).row(
                name, f"option of job {table.names[job]}"
            )
    return profile


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
    for nth_job in (table.options[jobs] >= 0).nonzero()[0].tolist():
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
