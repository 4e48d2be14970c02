"""The rules that every plan keeps, checked on what it says, with nothing of what made it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from optsched.instance.documents import parse_index
from optsched.rounds.plan import Held
from optsched.rounds.view import View


def broken_rules(view: View, running: Mapping[int, Held]) -> tuple[str, ...]:
    """What is wrong with what a plan lets run: every rule that it breaks, in words.

    - GPUs exist, in the pool that is named, on nodes that take work; a job that cannot be preempted keeps those of
      nodes that take none any more;
    - no GPU is given to two jobs, but for jobs that may share GPUs;
    - a job has as many GPUs as it may have: gangs are whole;
    - jobs that run and cannot be preempted run on where they are;
    - only jobs run that have arrived, whose predecessors are done and that have steps left.
    """
    instance = view.instance
    table, cluster, now = instance.jobs_table, instance.cluster, instance.now
    numbering, by_name = cluster.numbering, cluster.numbering.by_name
    names, usable = table.names, [pool.usable(now) for pool in cluster.pools]
    given: dict[str, list[int]] = defaultdict(list)
    found = []
    for job, (row, gpus, _) in running.items():
        pool = cluster.pools[row]
        for gpu in gpus:
            node, _, index = gpu.rpartition("/")
            number = by_name.get(node, -1)
            place = int(numbering.row[number])
            if number < 0 or numbering.pool[number] != row or not 0 <= parse_index(index) < pool.node_gpus[place]:
                found.append(f"job {names[job]} gets {gpu}, which is no GPU of pool {pool.name}")
            elif not usable[row][place] and not view.must[job]:
                found.append(f"job {names[job]} gets {gpu}, but node {node} takes no work")
            given[gpu].append(job)
        if len(set(gpus)) < len(gpus):
            found.append(f"job {names[job]} gets a GPU twice")
        if not _allowed(view, job, len(gpus)):
            found.append(f"job {names[job]} gets {len(gpus)} GPUs, which it may not have")
        if view.awaits[job] or table.arrival[job] > now or table.steps_left[job] <= 0:
            found.append(f"job {names[job]} is not to run now")
    for gpu, jobs in given.items():
        if len(jobs) > 1 and not _share(view, jobs):
            found.append(f"{gpu} is given to {', '.join(names[job] for job in jobs)}")
    held = table.running
    for job in np.flatnonzero(view.must).tolist():
        if job not in running or set(running[job][1]) != set(held[job][1]):
            found.append(f"job {names[job]} cannot be preempted, and is stopped or moved")
    return tuple(found)


def _allowed(view: View, job: int, gpus: int) -> bool:
    table, options = view.instance.jobs_table, view.instance.options
    own = int(table.options[job])
    if own >= 0:
        return gpus in options.gpus[options.indptr[own] : options.indptr[own + 1]].tolist()
    workload = int(table.workload[job])
    if table.rates[job] < 0 and workload >= 0 and "parameter_server" in view.instance.workloads[workload].parameters:
        return True  # workers and servers, of which the job says nothing
    levels = int(table.levels[job])
    if levels >= 0:
        return gpus in table.level_lists[levels]
    return bool(table.gpus_min[job] <= gpus <= table.gpus_max[job])


def _share(view: View, jobs: list[int]) -> bool:
    """Whether jobs may share a GPU: two jobs that stand in a pair, or jobs with options of shares that fit together."""
    instance = view.instance
    table, options = instance.jobs_table, instance.options
    shares = []
    for job in jobs:
        own = int(table.options[job])
        part = options.share[options.indptr[own] : options.indptr[own + 1]] if own >= 0 else np.ones(1)
        shares.append(float(part.min(initial=1.0)))
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
