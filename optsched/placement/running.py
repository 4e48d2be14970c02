"""What runs now, and what it holds, as the instance states it: no candidates are needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.instance import Instance
from optsched.instance.cluster import PER_NODE, Cluster
from optsched.instance.documents import NODE_STATES
from optsched.performance.parameter_server_documents import KEY
from optsched.placement.needs import OWN, members, renewable_groups
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
        table, cluster, now = instance.jobs_table, instance.cluster, instance.now
        count = len(table)
        pool, gpus, nodes = (
            np.full(count, -1, np.int64),
            np.zeros(count, np.int64),
            np.zeros(count, np.int64),
        )
        lost, leaves = np.zeros(count, bool), np.zeros(count, bool)
        places, numbering = table.places, cluster.numbering
        pool[places.job], gpus[places.job] = places.pool, places.length
        owner = np.repeat(places.job, places.length)
        node = numbering.node_of(places.numbers(numbering))
        state = np.concatenate([*(p.node_state for p in cluster.pools), np.zeros(0, np.int64)])
        usable = np.concatenate([*(p.usable(now) for p in cluster.pools), np.zeros(0, bool)])
        lost[owner[state[node] == DOWN]] = True
        leaves[owner[~usable[node]]] = True
        both = owner * max(numbering.nodes, 1) + node
        both = both if (both[1:] >= both[:-1]).all() else np.sort(both)
        once = both[np.concatenate([both[:1] >= 0, both[1:] != both[:-1]])] // max(
            numbering.nodes, 1
        )
        nodes += np.bincount(once, minlength=count)
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

    A job with options holds what the one says in which it runs (``option``, shape (jobs,), -1: not known), else what
    those say that are like the place where it runs; where several are, the most of them. What workers and servers need
    is not known here.
    """
    names = (*OWN, *(group.name for group in renewable_groups(instance)))
    share, needs = _held(instance, jobs, option, names)
    return share, dict(zip(names, needs.T, strict=True))


def without_held(instance: Instance, cluster: Cluster, jobs: IntArray, option: IntArray) -> Cluster:
    """A cluster with less of the renewable resources that belong to no nodes: by what these running jobs hold."""
    spread = [item for item in cluster.resources if item.nodes is None and item.kind == "renewable"]
    if not len(jobs) or not spread:
        return cluster
    names = tuple(item.name for item in spread)
    running = [instance.jobs_table.running[job] for job in jobs.tolist()]
    count, pool = np.array([(len(gpus), row) for row, gpus, _ in running]).T
    needs = _held(instance, jobs, option, names)[1] * count[:, np.newaxis]
    left = {}
    for item, need in zip(spread, needs.T, strict=True):
        stated = (
            instance.jobs_table.options[jobs] >= 0
        )  # options name what they use, wherever they run
        counts = (
            np.ones(len(jobs), bool)
            if item.pool is None
            else stated | (pool == cluster.pool_index[item.pool])
        )
        left[item.name] = replace(
            item, capacity=max(item.capacity - float(need[counts].sum()), 0.0)
        )
    return replace(
        cluster, resources=tuple(left.get(item.name, item) for item in cluster.resources)
    )


def standing_of(instance: Instance, jobs: IntArray, option: IntArray) -> Standing:
    """Running jobs that stay where they are and are in no row of an allocation.

    Jobs that share GPUs have equal parts of them, unless their options say which.
    """
    gpus = [instance.jobs_table.running[job][1] for job in jobs.tolist()]
    share, needs = held_of(instance, jobs, option)
    numbering = instance.cluster.numbering
    gpu = numbering.numbers(chain.from_iterable(gpus))
    owner = np.repeat(np.arange(len(jobs)), [len(names) for names in gpus])
    load, holders = (
        np.bincount(gpu, share[owner], numbering.gpus),
        np.bincount(gpu, minlength=numbering.gpus),
    )
    over = load[gpu] > 1.0 + SLACK
    np.minimum.at(share, owner[over], 1.0 / holders[gpu[over]])
    return Standing.of_jobs(instance, jobs, gpus, share=share, needs=needs)


def _held(
    instance: Instance, jobs: IntArray, option: IntArray, names: Sequence[str]
) -> tuple[FloatArray, FloatArray]:
    """Share of each of its GPUs that each job holds, and what it needs per GPU of these, shape (jobs, names)."""
    table, options, workloads = instance.jobs_table, instance.options, instance.workloads
    need = np.zeros((len(workloads) + 1, len(names)))
    for row, workload in enumerate(workloads):
        if workload.demand and KEY not in workload.parameters:
            need[row] = [workload.demand.get(name, 0.0) for name in names]
    needs, share = need[table.workload[jobs]], np.ones(len(jobs))
    for place in np.flatnonzero(table.options[jobs] >= 0).tolist():
        own = int(table.options[jobs[place]])
        pool, gpus, _ = table.running[int(jobs[place])]
        rows = np.arange(options.indptr[own], options.indptr[own + 1])
        rows = rows[(options.pool[rows] == pool) & (options.gpus[rows] == len(gpus))]
        exact = rows[rows - options.indptr[own] == option[jobs[place]]]
        rows = exact if len(exact) else rows
        share[place] = options.share[rows].max(initial=0.0) or 1.0
        each = [
            [options.uses[row].get(name, 0.0) / len(gpus) for name in names]
            for row in rows.tolist()
        ]
        needs[place] = np.max(each, axis=0) if each else 0.0
    return share, needs


def crowded(instance: Instance, option: IntArray) -> BoolArray:
    """Mask of the jobs that run on nodes which have less than what runs there needs, as happens when they shrink."""
    table, cluster, options = instance.jobs_table, instance.cluster, instance.options
    hit = np.zeros(len(table), bool)
    if not table.running or not (
        any(own.demand for own in instance.workloads) or any(options.uses)
    ):
        return hit
    jobs = np.fromiter(table.running, np.int64, len(table.running))
    gpus = [names for _, names, _ in table.running.values()]
    owner = np.repeat(np.arange(len(jobs)), [len(names) for names in gpus])
    numbering, groups = cluster.numbering, renewable_groups(instance)
    node = numbering.node_of(numbering.numbers(chain.from_iterable(gpus)))
    for place, (name, need) in enumerate(held_of(instance, jobs, option)[1].items()):
        if not need.any():
            continue
        used = np.bincount(node, need[owner], numbering.nodes)
        if name in OWN:
            there = np.concatenate([getattr(pool, PER_NODE[name]) for pool in cluster.pools])
            over = used > np.where(np.isnan(there), np.inf, there) * (1.0 + SLACK)
        else:
            group, member = groups[place - len(OWN)], members(instance)[place - len(OWN)]
            over = member & (used[member].sum() > group.capacity * (1.0 + SLACK))
        there_too = over[node] & (need[owner] > 0)
        hit[jobs[owner[there_too]]] = True
    return hit


def must_stay(instance: Instance, running: Running | None = None) -> BoolArray:
    """Mask of the jobs that keep their GPUs: they run, are not done, and cannot be preempted."""
    table = instance.jobs_table
    found = Running.of(instance) if running is None else running
    return np.asarray(found.stays(table.preemptible) & (table.steps_left > 0))
