"""Resources as rows: GPUs of each pool, its CPUs and memory, and the cluster's further resources."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.candidates.columns import KindColumns
from optsched.candidates.kinds import Kinds
from optsched.instance import Instance

PER_NODE = {"cpu": "node_cpus", "memory": "node_memory"}


@dataclass(frozen=True)
class Resources:
    """Rows of ``usage``.

    Attributes
    ----------
    names : tuple of str
        A pool's GPUs are called like the pool, its CPUs and memory ``<pool>.cpu`` and ``<pool>.memory``.
    capacity : FloatArray, shape (R,)
        GPUs, CPUs, GB, or the unit of the resource, on usable nodes.
    renewable : BoolArray, shape (R,)
    pool : IntArray, shape (R,)
        Pool whose GPUs the row counts, -1 for other rows.
    """

    names: tuple[str, ...]
    capacity: FloatArray
    renewable: BoolArray
    pool: IntArray

    def __len__(self) -> int:
        return len(self.names)


def resource_rows(instance: Instance, kinds: Kinds, columns: KindColumns) -> tuple[Resources, sp.csr_matrix]:
    """The resources, and their use by each kind column (resources x columns).

    A pool's CPUs and memory are rows only where the pool states them for every usable node and some column uses them.
    """
    pools, now = instance.cluster.pools, instance.now
    on_pool = np.flatnonzero((columns.pool >= 0) & (columns.gpus > 0))
    names = [pool.name for pool in pools]
    capacity = [float(pool.capacity(now)) for pool in pools]
    renewable = [True] * len(pools)
    rows = [columns.pool[on_pool]]
    cols = [on_pool]
    amounts = [columns.gpus[on_pool] * columns.share[on_pool]]

    needs = _needs(instance, kinds, columns)
    for name, node_field in PER_NODE.items():
        if name not in needs:
            continue
        amount = needs[name]
        for row, pool in enumerate(pools):
            here = np.flatnonzero((columns.pool == row) & (amount > 0))
            total = float(getattr(pool, node_field)[pool.usable(now)].sum())
            if len(here) and not np.isnan(total):
                rows.append(np.full(len(here), len(names)))
                cols.append(here)
                amounts.append(amount[here])
                names.append(f"{pool.name}.{name}")
                capacity.append(total)
                renewable.append(True)
    for resource in instance.cluster.resources:
        amount = needs.get(resource.name, np.zeros(len(columns)))
        if resource.pool is not None:
            amount = np.where(columns.pool == instance.cluster.pool_index[resource.pool], amount, 0.0)
        here = np.flatnonzero(amount)
        rows.append(np.full(len(here), len(names)))
        cols.append(here)
        amounts.append(amount[here])
        names.append(resource.name)
        capacity.append(resource.capacity)
        renewable.append(resource.kind == "renewable")
    usage = sp.csr_matrix(
        (np.concatenate(amounts).astype(np.float64), (np.concatenate(rows), np.concatenate(cols))),
        shape=(len(names), len(columns)),
    )
    pool_of_row = np.full(len(names), -1, np.int64)
    pool_of_row[: len(pools)] = np.arange(len(pools))
    return Resources(tuple(names), np.array(capacity), np.array(renewable), pool_of_row), usage


def _needs(instance: Instance, kinds: Kinds, columns: KindColumns) -> dict[str, FloatArray]:
    """Amount of each named resource by column: a workload's demand per GPU x GPUs, or an option's totals."""
    needs: dict[str, FloatArray] = {}
    generated = columns.option < 0
    for name in dict.fromkeys(name for workload in instance.workloads for name in workload.demand):
        per_gpu = np.array([*(workload.demand.get(name, 0.0) for workload in instance.workloads), 0.0])[kinds.workload]
        both = per_gpu[columns.kind] + np.where(columns.partner >= 0, per_gpu[columns.partner], 0.0)
        needs[name] = np.where(generated, both * columns.gpus, 0.0)
    uses = instance.options.uses
    for name in dict.fromkeys(name for use in uses for name in use):
        total = np.array([use.get(name, 0.0) for use in uses] + [0.0])[columns.option]
        needs[name] = needs.get(name, np.zeros(len(columns))) + np.where(generated, 0.0, total)
    return needs
