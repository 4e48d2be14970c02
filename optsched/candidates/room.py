"""Generated columns that can never run:
nodes lack the CPUs or memory for their GPUs, or a resource is too small.

What a workload demands, it demands with every GPU, on the node of that GPU. A node with g GPUs and
c_r of its CPUs and memory (r) hosts

    min(g, min_r floor(c_r / d_r))

GPUs of a job that needs d_r with each, and a column on k nodes can run only if the k nodes that
host most of its GPUs host all of them: its rate is one on at most k nodes. Placement keeps the same
rule (`gpus_allowed`), so that it never refuses a column that is alone on an empty cluster. A
renewable resource of the cluster or of a pool must hold a column as a whole: no fraction of time
makes up for what is missing at every instant.

Left alone are explicit options and jobs with parameter servers, whose needs are totals that may be
split over nodes at will; consumable resources, which fractions of time do stretch; and resources of
some nodes, beside which a job may run.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optsched.arrays import FloatArray, IntArray, group_rows, quotient
from optsched.candidates.columns import Drop, KindColumns, is_kept
from optsched.candidates.kinds import Kinds
from optsched.candidates.needs import column_needs
from optsched.candidates.task import CompileTask
from optsched.instance import Instance
from optsched.instance.cluster import PER_NODE, Cluster

ROUNDING = 1e-9
"""Relative slack of capacities, and slack of counts."""
MOST = 2.0**40
"""GPUs where nothing limits them."""
CELLS = 2_000_000
"""Pairs of a demand and a size of nodes that are looked at together: 16 MB each array."""


class NodeNeeds(NamedTuple):
    """What generated columns need of nodes, and what these host;
    arrays of as many rows as columns were asked for.

    Attributes
    ----------
    need : FloatArray, shape (M, 2)
        CPUs and memory (GB) per GPU.
    hosted : IntArray, shape (M,)
        GPUs that as many nodes as the column spans host at most.
    over : IntArray, shape (M,)
        Row in `Cluster.resources` of the first resource that is too small, -1 where all are large
        enough.
    amount : FloatArray, shape (M,)
        What the column needs of that resource.
    """

    need: FloatArray
    hosted: IntArray
    over: IntArray
    amount: FloatArray


def drop_roomless(
    task: CompileTask, columns: KindColumns, drop: NDArray[np.uint8]
) -> NDArray[np.uint8]:
    """`Drop` of generated columns, each with a pool:
    also of those whose demand no nodes or resources can meet.
    """
    if not task.instance.workloads.demand:
        return drop
    kept = np.flatnonzero(is_kept(drop))
    some = columns.take(kept)
    room = find_room(some, task.instance, task.kinds, task.later_nodes)
    reasons = (room.hosted < some.gpus, room.over >= 0)
    drop[kept] = np.select(reasons, (Drop.NO_ROOM, Drop.OVER_CAPACITY), Drop.KEPT)
    return drop


def find_room(
    columns: KindColumns, instance: Instance, kinds: Kinds, later_nodes: bool
) -> NodeNeeds:
    """What generated columns find on nodes that are usable now,
    or with ``later_nodes`` once all are available.
    """
    needs = column_needs(instance, kinds, columns)
    need = np.zeros((len(columns), len(PER_NODE)))
    for place, name in enumerate(PER_NODE):
        if name in needs:
            here, amount = needs[name]
            need[here, place] = amount / columns.gpus[here]
    hosted = columns.gpus.copy()
    demanding = np.flatnonzero(need.any(axis=1))
    for row in range(len(instance.cluster.pools) if len(demanding) else 0):
        now = np.inf if later_nodes else instance.now
        gpus, own = node_capacities(instance.cluster, row, now)
        # Who needs no more has room wherever a GPU is.
        scarcest = (own / gpus[:, None]).min(axis=0, initial=np.inf)
        mine = demanding[columns.pool[demanding] == row]
        mine = mine[(need[mine] > scarcest).any(axis=1)]
        hosted[mine] = _hosted(gpus, own, need[mine], columns.nodes[mine])
    over = np.full(len(columns), -1, np.int64)
    total = np.zeros(len(columns))
    for row, resource in enumerate(instance.cluster.resources):
        if resource.name not in needs or resource.kind != "renewable" or resource.nodes is not None:
            continue
        here, amount = needs[resource.name]
        too_much = (amount > resource.capacity * (1 + ROUNDING)) & (over[here] < 0)
        if resource.pool is not None:
            too_much &= columns.pool[here] == instance.cluster.pool_index[resource.pool]
        over[here[too_much]], total[here[too_much]] = row, amount[too_much]
    return NodeNeeds(need, hosted, over, total)


def gpus_allowed(capacity: FloatArray, need: FloatArray) -> IntArray:
    """GPUs that the scarcest of several capacities allows.

    Parameters
    ----------
    capacity : FloatArray, shape (..., R)
        inf where it is not limited.
    need : FloatArray, shape (..., R)
        Per GPU.

    Returns
    -------
    IntArray
        Of the shape that both have together without their last axis; 2**40 where nothing limits it.
    """
    allowed = np.full(np.broadcast(capacity, need).shape[:-1], MOST)
    for place in range(need.shape[-1]):
        each = need[..., place]
        needy = np.count_nonzero(each)
        # No need, or a capacity that is not stated, limits nothing.
        if needy:
            has = capacity[..., place] * (1 + ROUNDING)
            room = has / each if needy == each.size else quotient(has, each, np.inf)
            np.minimum(allowed, room, out=allowed)
    # A whole number is at least 0, so that rounding towards 0 rounds down.
    return np.maximum(allowed + ROUNDING, 0.0).astype(np.int64)


def node_capacities(cluster: Cluster, pool: int, now: float) -> tuple[IntArray, FloatArray]:
    """GPUs, and CPUs and memory (inf: not stated), of the usable nodes of a pool that have GPUs."""
    gpus = cluster.pools[pool].node_gpus
    first = int(cluster.numbering.first[pool])
    here = slice(first, first + len(gpus))
    usable = (cluster.usable(now)[here] & (gpus > 0)).nonzero()[0]
    return gpus[usable], cluster.own_capacity[here][usable]


def _hosted(gpus: IntArray, own: FloatArray, need: FloatArray, nodes: IntArray) -> IntArray:
    """Most GPUs that so many nodes host, for needs (M, 2) and nodes (M,);
    looked at once per distinct row and size.
    """
    rows = group_rows((need[:, 0], need[:, 1], nodes), len(need))
    sizes = group_rows((gpus, own[:, 0], own[:, 1]), len(gpus))
    gpus, own, equal = gpus[sizes.first], own[sizes.first], sizes.count.astype(np.int64)
    need, nodes = need[rows.first], nodes[rows.first]
    most = np.zeros(len(need), np.int64)
    step = max(1, CELLS // max(1, len(gpus)))
    for start in range(0, len(need), step):
        part = slice(start, start + step)
        # A table (needs, sizes) of what a node of each size hosts: some needs at a time.
        most[part] = _on_best(
            np.minimum(gpus, gpus_allowed(own, need[part, None, :])), equal, nodes[part]
        )
    return most[rows.inverse]


def _on_best(hosts: IntArray, equal: IntArray, nodes: IntArray) -> IntArray:
    """Sum of what the best nodes host:
    (M, sizes) with so many ``equal`` nodes of each size, on ``nodes`` (M,).
    """
    if (nodes == 1).all():
        return np.asarray(hosts.max(axis=1, initial=0))
    order = np.argsort(-hosts, axis=1)
    count = equal[order]
    # Sizes of nodes from the best on: take all of each until the nodes are used up.
    before = np.cumsum(count, axis=1) - count
    used = np.clip(nodes[:, None] - before, 0, count)
    return np.asarray((np.take_along_axis(hosts, order, axis=1) * used).sum(axis=1))
