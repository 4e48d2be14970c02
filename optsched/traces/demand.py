"""The demand of the jobs of a trace: seconds and GPU-hours of each, and reasons why jobs cannot
run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray, group_rows, quotient
from optsched.assembly import compile
from optsched.candidates import Candidates
from optsched.display import Displayed
from optsched.instance import Instance
from optsched.instance.durations import HOUR
from optsched.instance.tables import ARRAY_FIELDS, JobNames
from optsched.traces.trace import Trace

# Most kinds whose reasons for not running are reported; the others share a line.
REASONS = 100


@dataclass(frozen=True, slots=True)
class Nowhere:
    """Jobs that can run nowhere for one reason: how many, the first of them, and why."""

    jobs: int
    first: str
    reason: str


@dataclass(frozen=True, repr=False)
class Demand(Displayed):
    """Demand of jobs, each as if it were alone; arrays over jobs and over pools.

    With the rate r_ic of job i in configuration c of g_c GPUs (times its share of each), K_i steps
    left, and pools of W_p GPUs, e_ip = max over the configurations c of pool p of r_ic / g_c is the
    highest rate per GPU of i in p:

        seconds_i = K_i / max_c r_ic
        least_i   = K_i / max_p e_ip / 3600
        mean_i    = K_i / (sum_p W_p e_ip / sum_p W_p) / 3600      over the pools p where it can run

    The demand of a job with regimes is the sum over its parts, each at the rates of its regime.
    GPUs of nodes that are down or drained at first are not counted in W_p.

    Attributes
    ----------
    seconds : FloatArray, shape (J,)
        At the highest rate; NaN for jobs that can run nowhere.
    least, mean : FloatArray, shape (J,)
        GPU-hours in the pool where the job needs the fewest, and in a random pool drawn in
        proportion to GPUs, among pools where it can run. NaN for jobs that can run nowhere.
    runs : BoolArray, shape (J,)
        Whether the job can run somewhere, in all of its regimes.
    gpus : FloatArray, shape (P,)
        W_p.
    runnable, only : IntArray, shape (P,)
        Number of jobs that can run in a pool, and of jobs that can run in no other pool.
    wanted : FloatArray, shape (P,)
        GPU-hours of the jobs that need the fewest in that pool. If several pools are equally good
        for a job, each gets a part in proportion to its GPUs.
    nowhere : tuple of Nowhere
        The most frequent reason first.
    """

    seconds: FloatArray
    least: FloatArray
    mean: FloatArray
    runs: BoolArray
    gpus: FloatArray
    runnable: IntArray
    only: IntArray
    wanted: FloatArray
    nowhere: tuple[Nowhere, ...]


def demand_of(trace: Trace) -> Demand:
    """The demand of the jobs of a trace; raises the errors of compiling its instance."""
    parts, job, steps = _parts(trace)
    jobs = len(trace.instance.jobs_table)
    C = compile(parts, future=True, later_nodes=True)
    W = parts.cluster.gpus(np.inf).astype(np.float64)
    fastest, e = _per_kind(C, len(W))
    kind = C.kinds.of_job
    has_work = (kind >= 0) & (steps > 0)
    cannot_run = has_work & (fastest[kind] == 0)
    runs = np.bincount(job[cannot_run], minlength=jobs) == 0

    # One entry per part of a job that can run: its kind k and its steps K
    part = np.flatnonzero(has_work & ~cannot_run)
    k = kind[part]
    K = steps[part]
    best = e.max(axis=1, initial=0.0)
    mean = (e @ W) / np.maximum((e > 0) @ W, 1.0)
    seconds = K / fastest[k]
    # A part that needs no GPU has an infinite rate per GPU, hence 0 GPU-hours
    least_hours = quotient(K, best[k]) / HOUR
    mean_hours = quotient(K, mean[k]) / HOUR

    # Pools that are equally good for a kind share its GPU-hours in proportion to their GPUs
    equally_good = (e > 0) & (e >= best[:, None] * (1 - 1e-12))
    divided = equally_good * W
    divided = divided / np.maximum(divided.sum(axis=1, keepdims=True), 1e-300)

    # The parts before the first change come first. The row of zeros is for absent jobs, whose kind
    # is -1
    can_run_in = np.vstack([e > 0, np.zeros((1, len(W)), bool)])[kind[:jobs]]
    return Demand(
        seconds=_summed(job[part], seconds, runs),
        least=_summed(job[part], least_hours, runs),
        mean=_summed(job[part], mean_hours, runs),
        runs=runs,
        gpus=W,
        runnable=can_run_in.sum(axis=0),
        only=can_run_in[can_run_in.sum(axis=1) == 1].sum(axis=0),
        wanted=np.bincount(k, weights=least_hours, minlength=len(e)) @ divided,
        nowhere=_nowhere(C, job, np.flatnonzero(cannot_run), trace.instance),
    )


def _summed(job: IntArray, values: FloatArray, runs: BoolArray) -> FloatArray:
    return np.where(runs, np.bincount(job, weights=values, minlength=len(runs)), np.nan)


def _parts(trace: Trace) -> tuple[Instance, IntArray, FloatArray]:
    """Jobs cut at their changes of regime, as an instance of parts;
    the job and the steps of each part.

    The first parts are the jobs themselves, in their order; the parts after each change follow.
    """
    instance = trace.instance
    regimes = trace.regimes
    table = instance.jobs_table
    count = len(table)
    if not len(regimes):
        return replace(instance, colocation=()), np.arange(count), table.steps_left
    job = np.concatenate([np.arange(count), regimes.job])

    # A part ends where the next part of its job starts, the last one with the job's steps
    start = np.concatenate([np.zeros(count), regimes.after])
    order = np.lexsort((start, job))
    last = np.append(job[order][1:] != job[order][:-1], True)
    end = np.empty(len(job))
    end[order] = np.where(last, table.steps[job[order]], np.append(start[order][1:], np.inf))
    end = np.minimum(end, table.steps[job])
    done = table.steps_done[job]
    steps = np.maximum(end - np.maximum(start, done), 0.0)

    columns = {field: getattr(table, field)[job] for field in ARRAY_FIELDS}
    # After a change a job has the rates of a workload, not the rates of the job itself
    for field, values in (("workload", regimes.workload), ("rates", -1), ("options", -1)):
        columns[field][count:] = values
    changed = np.bincount(regimes.job, minlength=count)[job] > 0
    columns["steps"] = np.where(changed, steps, columns["steps"])
    columns["steps_done"] = np.where(changed, 0.0, columns["steps_done"])
    made = replace(table, names=JobNames(len(job)), running={}, after={}, awaits={}, **columns)
    return replace(instance, jobs_table=made, colocation=()), job, steps


def _per_kind(C: Candidates, pools: int) -> tuple[FloatArray, FloatArray]:
    """Highest rate of each kind alone, and e, its highest rate per GPU in each pool; 0 where it
    cannot run.
    """
    alone = np.flatnonzero(C.columns.partner < 0)
    kind = C.columns.kind[alone]
    pool = C.columns.pool[alone]
    rate = C.columns.rate[alone]
    gpus = C.columns.gpus[alone] * C.columns.share[alone]
    # The last entry is for absent jobs, whose kind is -1
    fastest = np.zeros(len(C.kinds) + 1)
    np.maximum.at(fastest, kind, rate)
    e = np.zeros((len(C.kinds), pools))
    holding = np.flatnonzero((pool >= 0) & (gpus > 0))
    np.maximum.at(e, (kind[holding], pool[holding]), rate[holding] / gpus[holding])
    return fastest, e


def _nowhere(
    C: Candidates,
    job: IntArray,
    stuck: IntArray,
    instance: Instance,
) -> tuple[Nowhere, ...]:
    """Reasons of parts that can run nowhere; a job counts once."""
    jobs, place = np.unique(job[stuck], return_index=True)
    part = stuck[place]
    kind = C.kinds.of_job[part]
    groups = group_rows([kind], len(kind))
    order = np.argsort(-groups.count, kind="stable")
    names = instance.jobs_table.names
    by_reason: dict[str, tuple[int, str]] = {}
    for rank, group in enumerate(order.tolist()):
        first = int(groups.first[group])
        reason = (
            C.why_no_column(int(kind[first]))
            if rank < REASONS
            else "can run nowhere for further reasons"
        )
        count, name = by_reason.get(reason, (0, names[int(jobs[first])]))
        by_reason[reason] = (count + int(groups.count[group]), name)
    found = [Nowhere(count, name, reason) for reason, (count, name) in by_reason.items()]
    return tuple(sorted(found, key=lambda item: -item.jobs))
