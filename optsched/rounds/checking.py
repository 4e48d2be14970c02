"""An independent check of the rules that every plan must keep; no code that makes plans is used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from optsched.arrays import BoolArray, IntArray
from optsched.instance.cluster import NONE, Partition
from optsched.instance.layouts import MIG
from optsched.instance.running import Place, RunningJobs
from optsched.performance import partitions_of
from optsched.performance.parameter_server import KEY
from optsched.rounds.ledger import PLAIN, Setup
from optsched.rounds.view import View


def broken_rules(
    view: View, running: Mapping[int, Place], setups: Mapping[int, Setup]
) -> tuple[str, ...]:
    """Every rule that a plan breaks, as text."""
    places = RunningJobs.of(running)
    return (
        *_wrong_gpus(view, places),
        *_gpus_given_twice(view, places, setups),
        *_slices_of_no_layout(view, places, setups),
        *_gangs_not_whole(view, places),
        *_jobs_not_ready(view, places),
        *_jobs_stopped_that_cannot_be(view, running, setups),
    )


# --- the rules --------------------------------------------------------------------------------


def _wrong_gpus(view: View, places: RunningJobs) -> Iterator[str]:
    """GPUs exist, in the named pool, on nodes that take work.

    A job that cannot be preempted keeps its GPUs on nodes that take no more work.
    """
    cluster = view.instance.cluster
    numbering = cluster.numbering
    gpu = places.numbers(numbering)
    if not len(gpu):
        return
    owner = places.owner
    # An unknown name has the number NONE; 0 replaces it here, and it is reported below.
    node = numbering.node_of(np.maximum(gpu, 0))
    usable = cluster.usable(view.instance.now)
    unknown = (gpu == NONE) | (numbering.pool[node] != places.pool[owner])
    closed = ~unknown & ~usable[node] & ~view.must[places.job[owner]]
    names = view.instance.jobs_table.names
    text = places.flat_names() if (unknown | closed).any() else []
    for wrong, why in (
        (unknown, "which is no GPU of pool {}"),
        (closed, "whose node takes no work"),
    ):
        for gpu_index in wrong.nonzero()[0].tolist():
            holder = owner[gpu_index]
            job = names[int(places.job[holder])]
            pool = cluster.pools[int(places.pool[holder])].name
            yield f"job {job} gets {text[gpu_index]}, {why.format(pool)}"


def _gpus_given_twice(
    view: View, places: RunningJobs, setups: Mapping[int, Setup]
) -> Iterator[str]:
    """No GPU is given to two jobs, except jobs that may share GPUs."""
    numbering = view.instance.cluster.numbering
    gpu = places.numbers(numbering)
    in_order = np.sort(gpu)
    given_again = np.unique(in_order[1:][in_order[1:] == in_order[:-1]])
    if not len(given_again):
        return
    # One number per pair of job and GPU.
    pair = np.sort(places.owner * (numbering.gpus + 1) + gpu)
    if (pair[1:] == pair[:-1]).any():
        yield "a job gets a GPU twice"
    job = places.job[places.owner]
    for number in given_again[given_again != NONE].tolist():
        holders = job[gpu == number].tolist()
        if not _share(view, holders, setups):
            names = ", ".join(view.instance.jobs_table.names[holder] for holder in holders)
            yield f"{numbering.gpu_name(number)} is given to {names}"


def _slices_of_no_layout(
    view: View, places: RunningJobs, setups: Mapping[int, Setup]
) -> Iterator[str]:
    """The slices of a GPU (MIG) can start where no two of them overlap, and no other share is on
    the GPU.

    GPUs of which all holders cannot be preempted are not checked: the plan does not decide about
    them.
    """
    instance = view.instance
    table, options = instance.jobs_table, instance.options
    if not any(MIG in attributes for attributes in options.attributes):
        return
    numbering = instance.cluster.numbering
    on_gpu: dict[int, list[tuple[int, str | None]]] = {}
    for gpu, owner in zip(places.numbers(numbering).tolist(), places.owner.tolist(), strict=True):
        job = int(places.job[owner])
        setup = setups.get(job, PLAIN)
        if gpu != NONE and setup.option is not None and setup.share < 1.0:
            row = int(options.indptr[table.options[job]]) + setup.option
            on_gpu.setdefault(gpu, []).append((job, options.attributes[row].get(MIG)))
    for gpu, held in on_gpu.items():
        profiles = [profile for _, profile in held]
        if not any(profiles) or all(view.must[job] for job, _ in held):
            continue
        pool = instance.cluster.pools[int(numbering.pool[numbering.node_of(np.array(gpu))])]
        known = {part.profile: part for part in partitions_of(pool)}
        parts = [known.get(profile) if profile else None for profile in profiles]
        if not _side_by_side(parts, frozenset()):
            names = ", ".join(table.names[job] for job, _ in held)
            slices = " and ".join(profile or "no slice" for profile in profiles)
            yield f"{numbering.gpu_name(gpu)} is given to {names}: no layout has {slices}"


def _side_by_side(parts: Sequence[Partition | None], taken: frozenset[int]) -> bool:
    """Whether slices have starts at which they overlap neither each other nor the ``taken`` memory
    slices.
    """
    if not parts:
        return True
    first, rest = parts[0], parts[1:]
    if first is None:
        return False
    wanted = [range(start, start + first.memory_slices) for start in first.starts]
    return any(
        taken.isdisjoint(slices) and _side_by_side(rest, taken.union(slices)) for slices in wanted
    )


def _gangs_not_whole(view: View, places: RunningJobs) -> Iterator[str]:
    """A job has a number of GPUs that it may have."""
    names = view.instance.jobs_table.names
    allowed = _allowed(view, places.job, places.length)
    for job, gpus in zip(places.job[~allowed].tolist(), places.length[~allowed], strict=True):
        yield f"job {names[job]} gets {gpus} GPUs, which it may not have"


def _jobs_not_ready(view: View, places: RunningJobs) -> Iterator[str]:
    """Only jobs run that have arrived, whose predecessors are complete, and that have steps left.

    A job that cannot be preempted runs until the caller reports it as complete.
    """
    table = view.instance.jobs_table
    job = places.job
    done = (table.steps_left[job] <= 0) & ~view.must[job]
    late = view.awaits[job] | (table.arrival[job] > view.instance.now) | done
    for row in job[late].tolist():
        yield f"job {table.names[row]} is not to run now"


def _jobs_stopped_that_cannot_be(
    view: View, running: Mapping[int, Place], setups: Mapping[int, Setup]
) -> Iterator[str]:
    """Running jobs that cannot be preempted keep their GPUs and their setup."""
    table = view.instance.jobs_table
    for row in view.must.nonzero()[0].tolist():
        job = f"job {table.names[row]} cannot be preempted"
        if row not in running or set(running[row][1]) != set(table.running[row][1]):
            yield f"{job}, and is stopped or moved"
        elif not view.configured.goes_on(row, setups.get(row, PLAIN)):
            yield f"{job}, and goes on in another configuration"


# --- numbers of GPUs, and shares --------------------------------------------------------------


def _allowed(view: View, job: IntArray, gpus: IntArray) -> BoolArray:
    """Whether each job may have this number of GPUs."""
    table = view.instance.jobs_table
    options = view.instance.options
    allowed = (table.gpus_min[job] <= gpus) & (gpus <= table.gpus_max[job])
    served = view.instance.workloads.with_parameter(KEY)
    # A job with parameter servers and without its own rates states no numbers of GPUs.
    allowed |= served[table.workload[job]] & (table.rates[job] < 0)
    listed = (table.options[job] >= 0) | (table.levels[job] >= 0)
    for job_index in listed.nonzero()[0].tolist():
        option_list = int(table.options[job[job_index]])
        levels = int(table.levels[job[job_index]])
        counts = (
            table.level_lists[levels]
            if option_list < 0
            else options.gpus[options.indptr[option_list] : options.indptr[option_list + 1]]
        )
        allowed[job_index] = int(gpus[job_index]) in [int(count) for count in counts]
    return allowed


def _share(view: View, jobs: list[int], setups: Mapping[int, Setup]) -> bool:
    """Whether jobs may share a GPU: jobs whose shares add up to at most 1, or two jobs of a pair.

    If the configuration of a job is unknown, the smallest share of its options counts.
    """
    instance = view.instance
    table = instance.jobs_table
    options = instance.options
    shares = []
    for job in jobs:
        option_list = int(table.options[job])
        if job in setups:
            shares.append(setups[job].share)
        elif option_list < 0:
            shares.append(1.0)
        else:
            of_options = options.share[
                options.indptr[option_list] : options.indptr[option_list + 1]
            ]
            shares.append(float(of_options.min(initial=1.0)))
    if sum(shares) <= 1.0 + 1e-9:
        return True
    if len(jobs) != 2:
        return False
    if instance.performance.get("model") != "table":
        return True  # the model may know of pairs that no table states
    pair = set(jobs)
    workloads = {int(table.workload[job]) for job in jobs}
    return any(
        (entry.jobs is not None and set(entry.jobs) == pair)
        or (entry.workloads is not None and set(entry.workloads) == workloads)
        for entry in instance.colocation
    )
