"""What jobs that must not be stopped leave of each resource, and for whom they leave nothing."""

from __future__ import annotations

import numpy as np

from optsched.arrays import BoolArray, FloatArray
from optsched.candidates import Absence, Candidates
from optsched.candidates.resources import Resources
from optsched.instance.cluster import PER_NODE
from optsched.placement.needs import OWN, members, renewable_groups
from optsched.rounds.view import View

NOTHING = 1e-9
"""Part of the capacity of a resource that is none."""
BLOCKED = "what it needs is held by jobs that cannot be preempted"


def left_beside(view: View, jobs: BoolArray, resources: Resources) -> FloatArray:
    """What is left of the capacities beside running jobs of a mask, where they are on nodes that take work; shape (R,).

    Where a node has less than its jobs need, they hold what it has, and nothing of other nodes.
    """
    instance = view.instance
    cluster, numbering, stands = instance.cluster, instance.cluster.numbering, view.standing(np.flatnonzero(jobs))
    node, usable = stands.node, np.concatenate([pool.usable(instance.now) for pool in cluster.pools])
    used: dict[str, float] = {}

    def add(names: list[str], amount: FloatArray, most: FloatArray) -> None:
        by_node = np.minimum(np.bincount(node, amount[stands.owner], numbering.nodes), most)
        total = np.bincount(numbering.pool, np.where(usable, by_node, 0.0), len(names))
        used.update(zip(names, total.tolist(), strict=True))

    add([pool.name for pool in cluster.pools], stands.share, np.full(numbering.nodes, np.inf))
    for place, name in enumerate(OWN):
        there = np.concatenate([getattr(pool, PER_NODE[name]) for pool in cluster.pools])
        most = np.where(np.isnan(there), np.inf, there)
        add([f"{pool.name}.{name}" for pool in cluster.pools], stands.need[:, place], most)
    for place, (group, member) in enumerate(zip(renewable_groups(instance), members(instance), strict=True)):
        used[group.name] = float(stands.group_need[stands.owner, place][member[node]].sum())
    return np.asarray(resources.capacity - [used.get(name, 0.0) for name in resources.names], np.float64)


def blocked(view: View, candidates: Candidates) -> BoolArray:
    """Mask of the jobs that every allocation leaves without any time: of something that they need nothing is left.

    Beside them no formulation can say anything of use: a smallest level is 0 whatever the others have, and a sum of
    logarithms has no value. Who may share GPUs with a job that must not be stopped is none of them.
    """
    jobs, columns, kinds = view.must, candidates.columns, candidates.kinds
    mask = np.zeros(len(jobs), bool)
    if not jobs.any():
        return mask
    resources = candidates.resources
    gone = resources.renewable & (left_beside(view, jobs, resources) <= NOTHING * resources.capacity)
    if not gone.any():
        return mask
    needs = np.asarray(candidates.usage[np.flatnonzero(gone)].sum(axis=0)).ravel() > 0
    firm, able = np.zeros((2, len(kinds) + 1), bool)
    firm[kinds.of_job[jobs]] = True
    firm[-1] = False
    open = ~needs | ((columns.partner >= 0) & (firm[columns.kind] | firm[columns.partner]))
    able[columns.kind[open]] = able[columns.partner[open]] = True
    return np.asarray((candidates.absence == Absence.PRESENT) & ~able[kinds.of_job] & ~jobs)
