"""The rules that every plan keeps, checked on what it says, with nothing of what made it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from optsched.arrays import BoolArray, IntArray
from optsched.instance.cluster import NONE
from optsched.instance.running import Place, RunningJobs
from optsched.performance.parameter_server import KEY
from optsched.rounds.configured import PLAIN, Setup
from optsched.rounds.view import View


def broken_rules(
    view: View, running: Mapping[int, Place], setups: Mapping[int, Setup]
) -> tuple[str, ...]:
    """What is wrong with what a plan lets run: every rule that it breaks, in words.

    - GPUs exist, in the pool that is named, on nodes that take work; a job that cannot be preempted keeps those of
      nodes that take none any more;
    - no GPU is given to two jobs, but for jobs that may share GPUs;
    - a job has as many GPUs as it may have: gangs are whole;
    - jobs that run and cannot be preempted run on where they are, and as they do;
    - only jobs run that have arrived, whose predecessors are done and that have steps left; one that cannot be
      preempted runs until it is said to be complete.
    """
    instance = view.instance
    cluster = instance.cluster
    names = instance.jobs_table.names
    numbering = instance.cluster.numbering
    places = RunningJobs.of(running)
    job = places.job
    pool = places.pool
    count = places.length
    gpu = places.numbers(numbering)
    owner = places.owner
    node = numbering.node_of(np.maximum(gpu, 0))
    usable = np.concatenate(
        [*(part.usable(instance.now) for part in cluster.pools), np.zeros(0, bool)]
    )

    def wrong_gpus(mask: BoolArray, why: str) -> Iterator[str]:
        wrong = np.flatnonzero(mask).tolist()
        text = places.names() if wrong else []
        for place in wrong:
            where = cluster.pools[int(pool[owner[place]])].name
            yield f"job {names[int(job[owner[place]])]} gets {text[place]}, {why.format(pool=where)}"

    found: list[str] = []
    if len(gpu):
        wrong = (gpu == NONE) | (numbering.pool[node] != pool[owner])
        found += wrong_gpus(wrong, "which is no GPU of pool {pool}")
        found += wrong_gpus(
            ~wrong & ~usable[node] & ~view.must[job[owner]], "whose node takes no work"
        )
        # One number per pair of job and GPU.
        twice = np.unique(owner * (numbering.gpus + 1) + gpu, return_counts=True)[1] > 1
        found += ["a job gets a GPU twice"] if twice.any() else []
        found += _given_twice(view, job[owner], gpu, setups)
    for place in np.flatnonzero(~_allowed(view, job, count)).tolist():
        found.append(
            f"job {names[int(job[place])]} gets {count[place]} GPUs, which it may not have"
        )
    table = instance.jobs_table
    done = (table.steps_left[job] <= 0) & ~view.must[job]
    late = view.awaits[job] | (table.arrival[job] > instance.now) | done
    found += [f"job {names[one]} is not to run now" for one in job[late].tolist()]
    for one in np.flatnonzero(view.must).tolist():
        if one not in running or set(running[one][1]) != set(table.running[one][1]):
            found.append(f"job {names[one]} cannot be preempted, and is stopped or moved")
        elif not view.configured.goes_on(one, setups.get(one, PLAIN)):
            found.append(
                f"job {names[one]} cannot be preempted, and goes on in another configuration"
            )
    return tuple(found)


def _given_twice(
    view: View, job: IntArray, gpu: IntArray, setups: Mapping[int, Setup]
) -> Iterator[str]:
    order = np.argsort(gpu, kind="stable")
    again = np.flatnonzero(np.diff(gpu[order]) == 0)
    twice = np.unique(gpu[order[again]])
    for number in twice[twice != NONE].tolist():
        holders = np.flatnonzero(gpu == number)
        if not _share(view, job[holders].tolist(), setups):
            names = ", ".join(view.instance.jobs_table.names[one] for one in job[holders].tolist())
            yield f"{view.instance.cluster.numbering.gpu_name(number)} is given to {names}"


def _allowed(view: View, job: IntArray, gpus: IntArray) -> BoolArray:
    """Whether each job may have so many GPUs."""
    table = view.instance.jobs_table
    options = view.instance.options
    workloads = view.instance.workloads
    allowed = (table.gpus_min[job] <= gpus) & (gpus <= table.gpus_max[job])
    served = np.array([KEY in workload.parameters for workload in workloads] + [False])
    allowed |= served[table.workload[job]] & (
        table.rates[job] < 0
    )  # workers and servers: the job says nothing
    for place in np.flatnonzero((table.options[job] >= 0) | (table.levels[job] >= 0)).tolist():
        own = int(table.options[job[place]])
        levels = int(table.levels[job[place]])
        counts = (
            table.level_lists[levels]
            if own < 0
            else options.gpus[options.indptr[own] : options.indptr[own + 1]]
        )
        allowed[place] = int(gpus[place]) in [int(count) for count in counts]
    return np.asarray(allowed)


def _share(view: View, jobs: list[int], setups: Mapping[int, Setup]) -> bool:
    """Whether jobs may share a GPU: two jobs that stand in a pair, or jobs whose shares fit together.

    Of a job that runs as only the caller knows, the least share of its options counts.
    """
    instance = view.instance
    table = instance.jobs_table
    options = instance.options
    shares = []
    for job in jobs:
        own = int(table.options[job])
        part = (
            options.share[options.indptr[own] : options.indptr[own + 1]] if own >= 0 else np.ones(1)
        )
        shares.append(setups[job].share if job in setups else float(part.min(initial=1.0)))
    if sum(shares) <= 1.0 + 1e-9:
        return True
    if len(jobs) != 2:
        return False
    if instance.performance.get("model") != "table":
        return True  # the model may know of pairs that no table states
    pair = set(jobs)
    both = {int(table.workload[job]) for job in jobs}
    return any(
        (entry.jobs is not None and set(entry.jobs) == pair)
        or (entry.workloads is not None and set(entry.workloads) == both)
        for entry in instance.colocation
    )
