"""What runs now, and what it holds, as the instance states it: no candidates are needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.instance import Instance
from optsched.instance.cluster import Cluster
from optsched.instance.documents import NODE_STATES
from optsched.performance.parameter_server import KEY
from optsched.placement.needs import OWN, members, own_capacity, renewable_groups
from optsched.placement.standing import Standing

DOWN = NODE_STATES.index("down")


@dataclass(frozen=True)
class Running:
    """What runs now; arrays of shape (jobs,).

    Attributes
    ----------
    pool, gpus, nodes : IntArray
        Pool, GPUs and nodes that each job holds; -1, 0 and 0 for one that does not run.
    lost : BoolArray
        It holds a GPU of a node that is down.
    leaves : BoolArray
        It holds a GPU of a node that takes no more work: it drains, is reserved, or not available.
    """

    pool: IntArray
    gpus: IntArray
    nodes: IntArray
    lost: BoolArray
    leaves: BoolArray

    @classmethod
    def of(cls, instance: Instance) -> Running:
        """What runs in an instance."""
        table = instance.jobs_table
        cluster = instance.cluster
        jobs = len(table)
        places = table.places
        numbering = cluster.numbering
        pool = np.full(jobs, -1, np.int64)
        gpus = np.zeros(jobs, np.int64)
        pool[places.job], gpus[places.job] = places.pool, places.length
        # One entry for each GPU that is held: who holds it, and its node.
        owner = np.repeat(places.job, places.length)
        node = numbering.node_of(places.numbers(numbering))
        no_pools = np.zeros(0, np.int64)
        state = np.concatenate([*(part.node_state for part in cluster.pools), no_pools])
        usable = [*(part.usable(instance.now) for part in cluster.pools), no_pools.astype(bool)]
        lost = np.zeros(jobs, bool)
        leaves = np.zeros(jobs, bool)
        lost[owner[state[node] == DOWN]] = True
        leaves[owner[~np.concatenate(usable)[node]]] = True
        # Nodes of each job: different pairs of a job and a node. Most tables are sorted already.
        # Pairs of job and node as one number each: sorted, equal ones are neighbours.
        width = max(numbering.nodes, 1)
        pair = owner * width + node
        if not (pair[1:] >= pair[:-1]).all():
            pair = np.sort(pair)
        new = np.append(True, pair[1:] != pair[:-1])[: len(pair)]
        nodes = np.bincount(pair[new] // width, minlength=jobs).astype(np.int64)
        return cls(pool, gpus, nodes, lost, leaves)

    @property
    def runs(self) -> BoolArray:
        """Mask of the jobs that run."""
        return self.pool >= 0

    def stays(self, preemptible: BoolArray) -> BoolArray:
        """Mask of the jobs that keep their GPUs whatever happens: they run and cannot be preempted."""
        return self.runs & ~preemptible & ~self.lost


SLACK = 1e-9


def held_of(
    instance: Instance, jobs: IntArray, option: IntArray
) -> tuple[FloatArray, dict[str, FloatArray]]:
    """Share of each of its GPUs that each of some running jobs holds, and what it needs per GPU, by name.

    A job with options holds what the one says in which it runs (``option``, shape (jobs,), -1: not
    known), else what those say that are like the place where it runs; where several are, the most
    of them. What workers and servers need is not known here.
    """
    names = (*OWN, *(group.name for group in renewable_groups(instance)))
    share, needs = _held(instance, jobs, option, names)
    return share, dict(zip(names, needs.T, strict=True))


def without_held(instance: Instance, cluster: Cluster, jobs: IntArray, option: IntArray) -> Cluster:
    """A cluster with less of the renewable resources that belong to no nodes: by what these running jobs hold."""
    spread = [item for item in cluster.resources if item.nodes is None and item.kind == "renewable"]
    if not len(jobs) or not spread:
        return cluster
    table = instance.jobs_table
    running = [table.running[job] for job in jobs.tolist()]
    count, pool = np.array([(len(gpus), row) for row, gpus, _ in running]).T
    _, per_gpu = _held(instance, jobs, option, [item.name for item in spread])
    # Options name what they use, wherever they run.
    stated = table.options[jobs] >= 0
    left = {}
    for item, need in zip(spread, per_gpu.T, strict=True):
        used = need * count
        if item.pool is not None:
            used = used[stated | (pool == cluster.pool_index[item.pool])]
        left[item.name] = replace(item, capacity=max(item.capacity - float(used.sum()), 0.0))
    resources = tuple(left.get(item.name, item) for item in cluster.resources)
    return replace(cluster, resources=resources)


def standing_of(instance: Instance, jobs: IntArray, option: IntArray) -> Standing:
    """Running jobs that stay where they are and are in no row of an allocation.

    Jobs that share GPUs have equal parts of them, unless their options say which.
    """
    gpus = [instance.jobs_table.running[job][1] for job in jobs.tolist()]
    share, needs = held_of(instance, jobs, option)
    numbering = instance.cluster.numbering
    gpu = numbering.numbers(chain.from_iterable(gpus))
    owner = _owners(gpus)
    load = np.bincount(gpu, share[owner], numbering.gpus)
    holders = np.bincount(gpu, minlength=numbering.gpus)
    # Whole GPUs held by two: they run as a pair, and the instance does not say in which parts.
    over = load[gpu] > 1.0 + SLACK
    np.minimum.at(share, owner[over], 1.0 / holders[gpu[over]])
    return Standing.of_jobs(instance, jobs, gpus, share=share, needs=needs)


def _owners(gpus: Sequence[Sequence[str]]) -> IntArray:
    """Of lists of GPUs, one after the other: which list each GPU is in."""
    return np.repeat(np.arange(len(gpus)), [len(names) for names in gpus]).astype(np.int64)


def _held(
    instance: Instance, jobs: IntArray, option: IntArray, names: Sequence[str]
) -> tuple[FloatArray, FloatArray]:
    """Share of each of its GPUs that each job holds, and what it needs per GPU of these, shape (jobs, names)."""
    table = instance.jobs_table
    options = instance.options
    workloads = instance.workloads
    # The last row is that of jobs without a workload. Workers and servers need what their law says.
    demand = np.zeros((len(workloads) + 1, len(names)))
    for row, workload in enumerate(workloads):
        if workload.demand and KEY not in workload.parameters:
            demand[row] = [workload.demand.get(name, 0.0) for name in names]
    needs = demand[table.workload[jobs]]
    share = np.ones(len(jobs))
    for place in np.flatnonzero(table.options[jobs] >= 0).tolist():
        job = int(jobs[place])
        gpus = len(table.running[job][1])
        rows = _options_in_use(instance, job, int(option[job]))
        share[place] = options.share[rows].max(initial=0.0) or 1.0
        needs[place] = 0.0
        if len(rows):
            used = [[options.uses[row].get(name, 0.0) for name in names] for row in rows.tolist()]
            needs[place] = np.max(np.array(used) / gpus, axis=0)
    return share, needs


def _options_in_use(instance: Instance, job: int, option: int) -> IntArray:
    """The option in which a job runs if it is known, else all that are like the place where it runs."""
    options = instance.options
    own = int(instance.jobs_table.options[job])
    pool, gpus, _ = instance.jobs_table.running[job]
    first = int(options.indptr[own])
    rows = np.arange(first, options.indptr[own + 1])
    rows = rows[(options.pool[rows] == pool) & (options.gpus[rows] == len(gpus))]
    exact: IntArray = rows[rows - first == option]
    return exact if len(exact) else rows


def crowded(instance: Instance, option: IntArray) -> BoolArray:
    """Mask of the jobs that run on nodes which have less than what runs there needs, as happens when they shrink."""
    table = instance.jobs_table
    hit = np.zeros(len(table), bool)
    # Most instances state no needs: then no node can be short of anything.
    demanding = any(own.demand for own in instance.workloads) or any(instance.options.uses)
    if not table.running or not demanding:
        return hit
    jobs = np.fromiter(table.running, np.int64, len(table.running))
    standing = standing_of(instance, jobs, option)
    node = standing.node
    owner = standing.owner
    short = standing.used > own_capacity(instance) * (1.0 + SLACK)
    needs_it = (standing.need[owner] > 0) & short[node]
    capacity = np.array([group.capacity for group in renewable_groups(instance)])
    group_short = standing.group_used > capacity * (1.0 + SLACK)
    on_short_group = members(instance)[:, node].T & group_short
    needs_group = (standing.group_need[owner] > 0) & on_short_group
    hit[jobs[owner[needs_it.any(axis=1) | needs_group.any(axis=1)]]] = True
    return hit


def must_stay(instance: Instance, running: Running | None = None) -> BoolArray:
    """Mask of the jobs that keep their GPUs: they run, are not done, and cannot be preempted."""
    table = instance.jobs_table
    found = Running.of(instance) if running is None else running
    return np.asarray(found.stays(table.preemptible) & (table.steps_left > 0))
