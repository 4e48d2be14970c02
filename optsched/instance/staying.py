"""Which running jobs keep their GPUs, and which cannot stay on their nodes."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.arrays.values import cached_property
from optsched.instance.documents import NODE_STATES
from optsched.instance.instance import Instance

DOWN = NODE_STATES.index("down")


@dataclass(frozen=True)
class Running:
    """The running jobs; arrays of shape (jobs,).

    Attributes
    ----------
    pool, gpus, nodes : IntArray
        Pool, GPUs and nodes that each job holds; -1, 0 and 0 for one that does not run.
    lost : BoolArray
        Whether the job holds a GPU of a node that is down.
    leaves : BoolArray
        Whether the job holds a GPU of a node that takes no new work: it is draining, reserved, or
        not yet available.
    groups : IntArray, shape (levels + 2, jobs)
        Number of groups of each level in which the job has GPUs (`Cluster.group_of_node`); no rows
        if the cluster states no levels.
    """

    pool: IntArray
    gpus: IntArray
    nodes: IntArray
    lost: BoolArray
    leaves: BoolArray
    groups: IntArray = field(default_factory=lambda: np.zeros((0, 0), np.int64))

    @classmethod
    def of(cls, instance: Instance) -> Running:
        """The running jobs of an instance."""
        table = instance.jobs_table
        cluster = instance.cluster
        jobs = len(table)
        places = table.places
        numbering = cluster.numbering
        pool = np.full(jobs, -1, np.int64)
        gpus = np.zeros(jobs, np.int64)
        pool[places.job], gpus[places.job] = places.pool, places.length
        # One entry per GPU that is held: its job and its node.
        owner = places.job.repeat(places.length)
        node = numbering.node_of(places.numbers(numbering))
        lost = np.zeros(jobs, bool)
        leaves = np.zeros(jobs, bool)
        lost[owner[cluster.node_states[node] == DOWN]] = True
        leaves[owner[~cluster.usable(instance.now)[node]]] = True
        nodes = _different(owner, node, jobs, numbering.nodes)
        of_level = cluster.group_of_node[:, node] if cluster.levels else ()
        groups = [_different(owner, group, jobs, numbering.nodes) for group in of_level]
        return cls(
            pool, gpus, nodes, lost, leaves, np.array(groups, np.int64).reshape(len(groups), jobs)
        )

    def within(self, jobs: IntArray, span: IntArray, level: IntArray) -> BoolArray:
        """Whether each job runs on at most ``span`` nodes, all in one group of ``level``;
        elementwise.
        """
        fits: BoolArray = self.nodes[jobs] <= span
        if len(self.groups):
            fits &= self.groups[level, jobs] <= 1
        return fits

    @cached_property
    def runs(self) -> BoolArray:
        """Mask of the jobs that run."""
        return self.pool >= 0

    def stays(self, preemptible: BoolArray) -> BoolArray:
        """Mask of the running jobs that cannot be preempted, so that they keep their GPUs."""
        return self.runs & ~preemptible & ~self.lost

    @property
    def barred(self) -> BoolArray:
        """Mask of the jobs that are on a node that takes no new work or is down."""
        return self.lost | self.leaves


def _different(owner: IntArray, place: IntArray, jobs: int, places: int) -> IntArray:
    """Number of distinct places of each job, shape (jobs,)."""
    # Encode (job, place) as one number. After sorting, equal ones are adjacent. Most tables are
    # sorted already.
    width = max(places, 1)
    pair = owner * width + place
    if not (pair[1:] >= pair[:-1]).all():
        pair = np.sort(pair)
    new = np.append(True, pair[1:] != pair[:-1])[: len(pair)]
    return np.bincount(pair[new] // width, minlength=jobs)


def must_stay(instance: Instance, running: Running | None = None) -> BoolArray:
    """Mask of the jobs that keep their GPUs: they run, are not done, and cannot be preempted."""
    table = instance.jobs_table
    found = Running.of(instance) if running is None else running
    return found.stays(table.preemptible) & (table.steps_left > 0)


def exempt_left(instance: Instance, least: float = 0.0) -> FloatArray:
    """Seconds until a running job may be preempted, by its exempt time; shape (jobs,).

    The exempt time begins when a job starts on its GPUs (Slurm's ``PreemptExemptTime``). A job
    whose start is not known is not exempt.

    Parameters
    ----------
    instance : Instance
    least : float
        Lower bound on the exempt time of all jobs, seconds.
    """
    table, left = instance.jobs_table, np.zeros(len(instance.jobs_table))
    places = table.places
    # fmax ignores NaN, the value of an unknown start.
    exempt = np.maximum(table.exempt_time[places.job], least)
    left[places.job] = np.fmax(exempt - (instance.now - places.since), 0.0)
    return left


def held_for(instance: Instance, least: float = 0.0) -> FloatArray:
    """Seconds for which jobs keep the GPUs on which they run; shape (jobs,).

    inf for jobs that cannot be preempted; for others the rest of their exempt time (`exempt_left`
    with ``least``); 0 if a job does not run, is complete, or has a node that is down.
    """
    running = Running.of(instance)
    exempt = np.where(running.lost, 0.0, exempt_left(instance, least))
    exempt = np.where(instance.jobs_table.steps_left > 0, exempt, 0.0)
    return np.where(must_stay(instance, running), np.inf, exempt)
