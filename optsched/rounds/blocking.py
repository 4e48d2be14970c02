"""What jobs that must not be stopped leave of each resource, and for whom they leave nothing."""

from __future__ import annotations

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray, gathered
from optsched.candidates import Absence, Candidates
from optsched.candidates.resources import Resources
from optsched.instance.cluster import PER_NODE
from optsched.placement.needs import OWN, members, renewable_groups
from optsched.rounds.view import View
from optsched.solving.warm_start import matched

NOTHING = 1e-9
"""Part of the capacity of a resource that is none."""
BLOCKED = "what it needs is held by jobs that cannot be preempted"


def left_beside(view: View, jobs: BoolArray, resources: Resources) -> FloatArray:
    """What is left of the capacities beside running jobs of a mask, where they are on nodes that take work; shape (R,).

    Where a node has less than its jobs need, they hold what it has, and nothing of other nodes.
    """
    if not jobs.any():
        return np.asarray(resources.capacity, np.float64)
    instance = view.instance
    cluster, numbering, stands = (
        instance.cluster,
        instance.cluster.numbering,
        view.standing(np.flatnonzero(jobs)),
    )
    node, usable = (
        stands.node,
        np.concatenate([pool.usable(instance.now) for pool in cluster.pools]),
    )
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
    for place, (group, member) in enumerate(
        zip(renewable_groups(instance), members(instance), strict=True)
    ):
        used[group.name] = float(stands.group_need[stands.owner, place][member[node]].sum())
    return np.asarray(
        resources.capacity - [used.get(name, 0.0) for name in resources.names], np.float64
    )


def blocked(view: View, candidates: Candidates) -> BoolArray:
    """Mask of the jobs that every allocation leaves without any time: of something that they need nothing is left.

    Beside them no formulation can say anything of use: a smallest level is 0 whatever the others have, and a sum of
    logarithms has no value. Who can join a job that must not be stopped needs only what that does not hold already.
    """
    jobs, columns, kinds = view.must, candidates.columns, candidates.kinds
    mask = np.zeros(len(jobs), bool)
    if not jobs.any():
        return mask
    resources = candidates.resources
    gone = resources.renewable & (
        left_beside(view, jobs, resources) <= NOTHING * resources.capacity
    )
    if not gone.any():
        return mask
    usage = candidates.usage[np.flatnonzero(gone)].toarray()
    needs = np.asarray((usage > 0).any(axis=0))
    for side in (columns.kind, columns.partner):
        pairs = np.flatnonzero(columns.partner >= 0)
        host = _hosts(view, candidates, side[pairs], pairs)
        pairs, host = pairs[host >= 0], host[host >= 0]
        more = usage[:, pairs] - usage[:, host] > NOTHING * resources.capacity[gone, None]
        needs[pairs] &= more.any(axis=0)
    able = np.zeros(len(kinds) + 1, bool)
    able[columns.kind[~needs]] = able[columns.partner[~needs]] = True
    return np.asarray((candidates.absence == Absence.PRESENT) & ~able[kinds.of_job] & ~jobs)


def _hosts(view: View, candidates: Candidates, kind: IntArray, pairs: IntArray) -> IntArray:
    """For columns of pairs, the column in which one of that kind runs alone that others can join; -1 for none."""
    table, running, columns = view.instance.jobs_table, view.running, candidates.columns
    hosts = np.flatnonzero(view.must & ~view.outside & ~view.together & (table.options < 0))
    firm = np.stack([candidates.kinds.of_job[hosts], running.pool[hosts], running.gpus[hosts]])
    alone = np.flatnonzero(columns.partner < 0)
    known = np.stack([columns.kind[alone], columns.pool[alone], columns.gpus[alone]])
    alone = alone[matched(firm, known) >= 0]
    known = np.stack([columns.kind[alone], columns.pool[alone], columns.gpus[alone]])
    place = matched(known, np.stack([kind, columns.pool[pairs], columns.gpus[pairs]]))
    return gathered(alone, place, -1)
