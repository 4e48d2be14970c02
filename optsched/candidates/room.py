"""Columns that need more of a resource than there is, or than the nodes that they would run on have."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from optsched.arrays import BoolArray, FloatArray
from optsched.candidates.columns import KindColumns
from optsched.candidates.kinds import Kinds
from optsched.candidates.resources import Resources, column_needs
from optsched.instance import Instance
from optsched.instance.cluster import PER_NODE

SLACK = 1e-9


def without_room(
    instance: Instance, kinds: Kinds, columns: KindColumns, resources: Resources, usage: sp.csr_matrix
) -> BoolArray:
    """Columns that can never run, shape (N,): over a capacity as a whole, or with no nodes that could host their GPUs.

    A node with g GPUs and c CPUs hosts min(g, floor(c / d)) GPUs of a job that needs d CPUs with each; so for memory.
    Options and parameter servers state totals, which may be split over nodes at will.
    """
    over = np.zeros(len(columns), bool)
    if len(resources) == len(instance.cluster.pools):  # GPUs alone: their counts were looked at before
        return over
    entries = usage.tocoo()
    over[entries.col[entries.data > resources.capacity[entries.row] * (1 + SLACK)]] = True
    needs = column_needs(instance, kinds, columns)
    by_demand = (columns.option < 0) & (columns.workers == 0) & (columns.gpus > 0)
    for name, field in PER_NODE.items():
        if name not in needs:
            continue
        here, amount = needs[name]
        here, amount = here[by_demand[here]], amount[by_demand[here]]
        each = amount / columns.gpus[here]
        for row, pool in enumerate(instance.cluster.pools):
            mine = np.flatnonzero(columns.pool[here] == row)
            usable = pool.usable(instance.now)
            has, gpus = getattr(pool, field)[usable], pool.node_gpus[usable].astype(np.float64)
            wanted, place = np.unique(each[mine], return_inverse=True)
            room = np.array([_hosted(gpus, has, demand) for demand in wanted.tolist()])
            if len(mine):
                over[here[mine[columns.gpus[here[mine]] > room[place]]]] = True
    return over


def _hosted(gpus: FloatArray, has: FloatArray, demand: float) -> float:
    """GPUs of nodes that a job can use which needs so much of a node's resource with each; NaN: not limited."""
    if demand <= 0:
        return float(gpus.sum())
    fits = np.where(np.isnan(has), gpus, np.floor(has / demand * (1 + SLACK)))
    return float(np.minimum(gpus, fits).sum())
