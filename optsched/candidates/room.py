"""Generated columns that can never run:
nodes lack the CPUs or memory for their GPUs, or a resource is too small.

A workload has its demand for every GPU, on the node of that GPU. A node with g GPUs and
c_r of its CPUs and memory (r) hosts

    min(g, min_r floor(c_r / d_r))

GPUs of a job that needs d_r per GPU. A column on k nodes can run only if the k best nodes together
host all of its GPUs, because its rate holds for at most k nodes. Placement uses the same rule
(`gpus_allowed`), so it never refuses a column that is alone on an empty cluster. A renewable
resource of the cluster or of a pool must suffice for the whole column: running for a smaller
fraction of time does not reduce the need at any instant.

Not checked are: explicit options and jobs with parameter servers, whose needs are totals that may
be split over nodes in any way; consumable resources, whose use does shrink with the fraction of
time; and resources of some nodes, because a job may run on other nodes.
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
"""Number of GPUs that stands for no limit."""
CELLS = 2_000_000
"""Pairs of a demand and a node size per block: 16 MB per array."""


class NodeNeeds(NamedTuple):
    """Needs of M generated columns, and what nodes can host.

    Attributes
    ----------
    need : FloatArray, shape (M, 2)
        CPUs and memory (GB) per GPU.
    hosted : IntArray, shape (M,)
        Most GPUs of the column that its number of nodes can host.
    over : IntArray, shape (M,)
        Row in `Cluster.resources` of the first resource that is too small, -1 if none is.
    amount : FloatArray, shape (M,)
        Amount of that resource that the column needs.
    """

    need: FloatArray
    hosted: IntArray
    over: IntArray
    amount: FloatArray


def drop_roomless(
    task: CompileTask, columns: KindColumns, drop: NDArray[np.uint8]
) -> NDArray[np.uint8]:
    """`Drop` of generated columns (each has a pool), extended by columns for which nodes or
    resources are too small.
    """
    if not task.instance.workloads.demand:
        return drop
    kept = np.flatnonzero(is_kept(drop))
    fitting = columns.take(kept)
    room = find_room(fitting, task.instance, task.kinds, task.later_nodes)
    reasons = (room.hosted < fitting.gpus, room.over >= 0)
    drop[kept] = np.select(reasons, (Drop.NO_ROOM, Drop.OVER_CAPACITY), Drop.KEPT)
    return drop


def find_room(
    columns: KindColumns, instance: Instance, kinds: Kinds, later_nodes: bool
) -> NodeNeeds:
    """Compare generated columns with the nodes that are usable now, or, with ``later_nodes``, with
    all nodes that become available.
    """
    needs = column_needs(instance, kinds, columns)
    need = np.zeros((len(columns), len(PER_NODE)))
    for place, name in enumerate(PER_NODE):
        if name in needs:
            users, amount = needs[name]
            need[users, place] = amount / columns.gpus[users]
    hosted = columns.gpus.copy()
    demanding = np.flatnonzero(need.any(axis=1))
    for row in range(len(instance.cluster.pools) if len(demanding) else 0):
        now = np.inf if later_nodes else instance.now
        gpus, per_node = node_capacities(instance.cluster, row, now)
        # A column without such needs fits wherever its GPUs are.
        scarcest = (per_node / gpus[:, None]).min(axis=0, initial=np.inf)
        in_pool = demanding[columns.pool[demanding] == row]
        in_pool = in_pool[(need[in_pool] > scarcest).any(axis=1)]
        hosted[in_pool] = _hosted(gpus, per_node, need[in_pool], columns.nodes[in_pool])
    over = np.full(len(columns), -1, np.int64)
    total = np.zeros(len(columns))
    for row, resource in enumerate(instance.cluster.resources):
        if resource.name not in needs or resource.kind != "renewable" or resource.nodes is not None:
            continue
        users, amount = needs[resource.name]
        too_much = (amount > resource.capacity * (1 + ROUNDING)) & (over[users] < 0)
        if resource.pool is not None:
            too_much &= columns.pool[users] == instance.cluster.pool_index[resource.pool]
        over[users[too_much]], total[users[too_much]] = row, amount[too_much]
    return NodeNeeds(need, hosted, over, total)


def gpus_allowed(capacity: FloatArray, need: FloatArray) -> IntArray:
    """Number of GPUs that several capacities allow; the scarcest one decides.

    Parameters
    ----------
    capacity : FloatArray, shape (..., R)
        inf for no limit.
    need : FloatArray, shape (..., R)
        Per GPU.

    Returns
    -------
    IntArray
        The broadcast shape of both arguments, without the last axis; 2**40 for no limit.
    """
    allowed = np.full(np.broadcast(capacity, need).shape[:-1], MOST)
    for place in range(need.shape[-1]):
        each = need[..., place]
        needy = np.count_nonzero(each)
        # A need of 0 and an unstated capacity set no limit.
        if needy:
            has = capacity[..., place] * (1 + ROUNDING)
            room = has / each if needy == each.size else quotient(has, each, np.inf)
            np.minimum(allowed, room, out=allowed)
    # The values are at least 0, so truncation rounds down.
    return np.maximum(allowed + ROUNDING, 0.0).astype(np.int64)


def node_capacities(cluster: Cluster, pool: int, now: float) -> tuple[IntArray, FloatArray]:
    """GPUs, and CPUs and memory (inf: not stated), of the usable nodes of a pool that have GPUs."""
    gpus = cluster.pools[pool].node_gpus
    first = int(cluster.numbering.first[pool])
    nodes = slice(first, first + len(gpus))
    usable = (cluster.usable(now)[nodes] & (gpus > 0)).nonzero()[0]
    return gpus[usable], cluster.own_capacity[nodes][usable]


def _hosted(gpus: IntArray, per_node: FloatArray, need: FloatArray, nodes: IntArray) -> IntArray:
    """Most GPUs that ``nodes`` nodes host, for needs (M, 2) and nodes (M,); computed once per
    distinct need and node size.
    """
    rows = group_rows((need[:, 0], need[:, 1], nodes), len(need))
    sizes = group_rows((gpus, per_node[:, 0], per_node[:, 1]), len(gpus))
    gpus, per_node, equal = gpus[sizes.first], per_node[sizes.first], sizes.count
    need, nodes = need[rows.first], nodes[rows.first]
    most = np.zeros(len(need), np.int64)
    step = max(1, CELLS // max(1, len(gpus)))
    for start in range(0, len(need), step):
        part = slice(start, start + step)
        # Table (needs, sizes) of GPUs that a node of each size hosts, in blocks of needs.
        most[part] = _on_best(
            np.minimum(gpus, gpus_allowed(per_node, need[part, None, :])), equal, nodes[part]
        )
    return most[rows.inverse]


def _on_best(hosts: IntArray, equal: IntArray, nodes: IntArray) -> IntArray:
    """GPUs that the best ``nodes`` (M,) nodes host together. ``hosts`` (M, sizes) is per node;
    ``equal`` is the number of nodes of each size.
    """
    if (nodes == 1).all():
        return np.asarray(hosts.max(axis=1, initial=0))
    order = np.argsort(-hosts, axis=1)
    count = equal[order]
    # Go through the sizes from the best one, and take nodes until the number is reached.
    before = count.cumsum(axis=1) - count
    used = np.clip(nodes[:, None] - before, 0, count)
    return np.asarray((np.take_along_axis(hosts, order, axis=1) * used).sum(axis=1))
