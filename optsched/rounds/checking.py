"""An independent check of the rules that every plan must keep; no code that makes plans is used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray, owners
from optsched.instance import Instance
from optsched.instance.cluster import NONE, PER_NODE, Partition
from optsched.instance.layouts import MIG
from optsched.instance.rates import LEVEL
from optsched.instance.running import Place, RunningJobs
from optsched.performance import partitions_of
from optsched.performance.parameter_server import KEY
from optsched.placement.checks import SLACK, PlacedRow, anti_affinity_kept
from optsched.placement.requests import ANTI_AFFINITY
from optsched.rounds.ledger import NODES, PLAIN, Ledger, Setup
from optsched.rounds.plan import STARTS, Plan, among
from optsched.rounds.view import View


def broken_rules(view: View, plan: Plan) -> tuple[str, ...]:
    """Every rule that a plan breaks, as text."""
    running, setups = plan.running, plan.setups
    places = RunningJobs.of(running)
    starts = among(plan.verdict, STARTS)[places.job]
    return (
        *_wrong_gpus(view, places),
        *_gpus_given_twice(view, places, setups),
        *_slices_of_no_layout(view, places, setups),
        *_gangs_not_whole(view, places),
        *_jobs_not_ready(view, places),
        *_jobs_stopped_that_cannot_be(view, running, setups),
        *_gangs_spread_too_far(view, places, starts, plan.ledger),
        *_nodes_overused(view, places, starts, setups),
        *_jobs_not_apart(view, places, starts),
        *_cells_not_kept(view, plan, places),
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
    for row in job[view.not_ready[job] | done].tolist():
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


# --- rules for the jobs that start or move ----------------------------------------------------

# A job that keeps its GPUs was checked when it started. Since then a node may have shrunk, or a
# constraint may have come: then it may keep its GPUs all the same.


def _nodes_of(view: View, places: RunningJobs, some: IntArray) -> tuple[IntArray, IntArray]:
    """The node of each GPU of some running jobs, and the place of its job among these."""
    numbering = view.instance.cluster.numbering
    # An unknown name has the number NONE; `_wrong_gpus` reports it.
    gpu = np.maximum(places.numbers_of(some, numbering), 0)
    return numbering.node_of(gpu), owners(places.length[some])


def _gangs_spread_too_far(
    view: View, places: RunningJobs, starts: BoolArray, ledger: Ledger
) -> Iterator[str]:
    """A gang spans at most the nodes of its configuration, and one group of its level."""
    gang = (starts & (places.length > 1)).nonzero()[0]
    if not len(gang):
        return
    cluster = view.instance.cluster
    key = ledger.key[ledger.runs]
    nodes_of_job = np.zeros(len(view.must) + 1, np.int64)  # the last entry is for partner -1
    nodes_of_job[key[:, 0]] = nodes_of_job[key[:, 1]] = key[:, 2 + NODES]
    level, most = np.divmod(nodes_of_job[places.job[gang]], LEVEL)
    node, owner = _nodes_of(view, places, gang)
    group = cluster.group_of_node[level[owner], node]
    names = view.instance.jobs_table.names
    # A configuration that states no nodes has one. Within a group, any nodes are allowed.
    for part, allowed, what in (
        (node, np.where(level > 0, places.length[gang], np.maximum(most, 1)), "nodes"),
        (group, np.where(level > 0, 1, places.length[gang]), "groups of nodes"),
    ):
        parts = np.unique(owner * (part.max() + 1) + part) // (part.max() + 1)
        spanned = np.bincount(parts, minlength=len(gang))
        for place in (spanned > allowed).nonzero()[0].tolist():
            job = f"job {names[int(places.job[gang[place]])]}"
            yield f"{job} is on {spanned[place]} {what}, expected at most {allowed[place]}"


def _nodes_overused(
    view: View, places: RunningJobs, starts: BoolArray, setups: Mapping[int, Setup]
) -> Iterator[str]:
    """Jobs start only where nodes, and groups of nodes, have the CPUs, memory and other resources
    that all jobs there need.
    """
    instance = view.instance
    cluster = instance.cluster
    if not starts.any() or not (instance.workloads.demand or instance.options.needs):
        return
    node, owner = _nodes_of(view, places, np.arange(len(starts)))
    everywhere = np.ones(len(cluster.numbering.pool), bool)
    limits = [
        *((name, everywhere, cluster.own_capacity[:, at]) for at, name in enumerate(PER_NODE)),
        *(
            (group.name, member, np.array(group.capacity))
            for group, member in zip(cluster.groups, cluster.members, strict=True)
        ),
    ]
    for name, member, capacity in limits:
        need = _need_per_gpu(instance, places, setups, name)
        here = member[node]
        used = np.bincount(node, np.where(here, need[owner], 0.0), len(member))
        used = used if capacity.ndim else np.full(len(member), used.sum())
        over = (used > capacity * (1 + SLACK) + SLACK)[node] & here & (need > 0)[owner]
        for place in np.unique(owner[over & starts[owner]]).tolist():
            job = instance.jobs_table.names[int(places.job[place])]
            yield f"job {job} starts on nodes that have too little {name}"


def _need_per_gpu(
    instance: Instance, places: RunningJobs, setups: Mapping[int, Setup], name: str
) -> FloatArray:
    """What each running job needs of a resource per GPU. Needs of workers and servers, which only
    the law of a job knows, count as 0.
    """
    table, options, workloads = instance.jobs_table, instance.options, instance.workloads
    job = places.job
    need = np.zeros(len(job))
    if name in workloads.demand:
        workload = table.workload[job]
        need = np.where(
            workloads.with_parameter(KEY)[workload], 0.0, workloads.demand[name][workload]
        )
    for place in (table.options[job] >= 0).nonzero()[0].tolist():
        row = int(job[place])
        number = setups.get(row, PLAIN).option
        used = {} if number is None else options.uses[options.indptr[table.options[row]] + number]
        need[place] = used.get(name, 0.0) / places.length[place]
    return need


def _jobs_not_apart(view: View, places: RunningJobs, starts: BoolArray) -> Iterator[str]:
    """No job starts on a node of a job from which a constraint keeps it apart."""
    instance = view.instance
    documents = [*instance.constraints, *view.constraints]
    named = {name for one in documents if one.get("kind") == ANTI_AFFINITY for name in one["jobs"]}
    if not named:
        return
    row = {place: int(job) for place, job in enumerate(places.job.tolist())}
    entries = {
        place: PlacedRow([name], places[row[place]][1], 1.0, {})
        # The jobs that start come last: of two jobs on a node the second is reported.
        for place in np.argsort(starts, kind="stable").tolist()
        if (name := instance.jobs_table.names[row[place]]) in named
    }
    for flaw in anti_affinity_kept(entries, documents):
        if starts[flaw.entry]:
            yield flaw.message


# --- reserved cells ---------------------------------------------------------------------------


def _cells_not_kept(view: View, plan: Plan, places: RunningJobs) -> Iterator[str]:
    """Cells that are reserved for tenants are apart, are missing only where there is no room, and
    hold the jobs of their tenant and no others.

    Jobs of a tenant that cannot be preempted may have GPUs outside of its cells.
    """
    if not view.reserved:
        return
    if plan.cells is None:
        yield "reserved cells have no GPUs"
        return
    numbering = view.instance.cluster.numbering
    owner = np.full(numbering.gpus, NONE, np.int64)
    counts = [dict.fromkeys(map(int, one["owns"]), 0) for one in view.reserved]
    for tenant, size, gpus in plan.cells.cells:
        name = f"a cell of {size} GPUs of tenant {view.reserved[tenant]['tenant']}"
        node = int(numbering.node_of(np.array([gpus.start]))[0])
        begin, end = int(numbering.start[node]), int(numbering.start[node + 1])
        inside = gpus.stop - gpus.start == size and gpus.stop <= end
        if not inside or (gpus.start - begin) % size or size not in counts[tenant]:
            yield f"{name} is at {numbering.gpu_name(gpus.start)}, where it cannot be"
            return
        if not _in_pools(view, view.reserved[tenant])[node]:
            yield f"{name} is in another pool"
        if (owner[gpus] != NONE).any():
            yield f"{name} is in another cell"
        owner[gpus] = tenant
        counts[tenant][size] += 1
    yield from _cells_missing(view, counts, owner)
    yield from _jobs_in_other_cells(view, places, owner)


def _in_pools(view: View, document: Mapping[str, Any]) -> BoolArray:
    """Mask of the nodes in the pools of some cells."""
    cluster = view.instance.cluster
    pools = document.get("pools") or [pool.name for pool in cluster.pools]
    rows = [row for row, pool in enumerate(cluster.pools) if pool.name in pools]
    return np.isin(cluster.numbering.pool, rows)


def _cells_missing(
    view: View, counts: Sequence[Mapping[int, int]], owner: IntArray
) -> Iterator[str]:
    """A tenant has all its cells, or there is no more room for one."""
    numbering, stays = view.instance.cluster.numbering, view.must
    held = view.instance.jobs_table.places
    taken = owner != NONE
    taken[held.numbers(numbering)[stays[held.job][held.owner]]] = True
    usable = view.instance.cluster.usable(view.instance.now)
    for document, found in zip(view.reserved, counts, strict=True):
        nodes = np.flatnonzero(_in_pools(view, document) & usable).tolist()
        for size, many in found.items():
            owned, name = document["owns"][str(size)], document["tenant"]
            if many > owned:
                yield f"tenant {name} has {many} cells of {size} GPUs, expected {owned}"
            blocks = (
                taken[first : first + size]
                for node in nodes
                for first in range(
                    int(numbering.start[node]), int(numbering.start[node + 1]) - size + 1, size
                )
            )
            if many < owned and not all(block.any() for block in blocks):
                yield f"tenant {name} lacks a cell of {size} GPUs for which there is room"


def _jobs_in_other_cells(view: View, places: RunningJobs, owner: IntArray) -> Iterator[str]:
    """Jobs of a tenant have GPUs of its cells, all others of no cell."""
    instance = view.instance
    numbering, table = instance.cluster.numbering, instance.jobs_table
    gpu, job = places.numbers(numbering), places.job[places.owner]
    known = gpu != NONE  # `_wrong_gpus` reports all others
    node = numbering.node_of(np.maximum(gpu, 0))
    allowed = np.full(len(gpu), NONE, np.int64)
    tenants = [tenant.name for tenant in instance.tenants]
    for row, document in enumerate(view.reserved):
        own = table.tenant[job] == tenants.index(document["tenant"])
        allowed[own & _in_pools(view, document)[node]] = row
    now = np.where(known, owner[np.maximum(gpu, 0)], NONE)
    outside = known & (now != allowed) & ~(view.must[job] & (now == NONE))
    for row in np.unique(job[outside]).tolist():
        yield f"job {table.names[row]} has GPUs that are not those of its tenant's cells"


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
