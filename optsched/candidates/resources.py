"""Resources as rows: GPUs of each pool, its CPUs and memory,
and the cluster's further resources.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.candidates.columns import KindColumns
from optsched.candidates.kinds import Kinds
from optsched.candidates.needs import column_needs, server_needs
from optsched.candidates.usage import ByWay, Usage
from optsched.display import Displayed
from optsched.instance import Instance
from optsched.instance.cluster import PER_NODE


@dataclass(frozen=True, repr=False, eq=False)
class Resources(Displayed):
    """Rows of ``usage``.

    Attributes
    ----------
    names : tuple of str
        A pool's GPUs are called like the pool, its CPUs and memory ``<pool>.cpu`` and
        ``<pool>.memory``.
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


def resource_rows(
    instance: Instance, kinds: Kinds, columns: KindColumns
) -> tuple[Resources, Usage]:
    """The resources, and their use by each kind column (resources x columns).

    A pool's CPUs and memory are rows only where the pool states them for every usable node and some
    column uses them. A resource of a pool is used by jobs on that pool, as far as their workloads
    demand it, and by every option and parameter-server law that names it.
    """
    pools, now = instance.cluster.pools, instance.now
    ways = columns.ways
    holds = (ways.pool >= 0) & (ways.gpus > 0)
    of_way = ways.gpus * ways.share
    needs, of_servers = column_needs(instance, kinds, columns), server_needs(kinds, columns)
    names = [pool.name for pool in pools]
    capacity = instance.pool_sizes.gpus.astype(np.float64).tolist()
    renewable = [True] * len(pools)
    rows: list[IntArray] = []
    cols: list[IntArray] = []
    amounts: list[FloatArray] = []

    def add(name: str, limit: float, kind: str, here: IntArray, amount: FloatArray) -> None:
        rows.append(np.full(len(here), len(names), np.int64))
        cols.append(here)
        amounts.append(amount)
        names.append(name)
        capacity.append(limit)
        renewable.append(kind == "renewable")

    nothing = (np.zeros(0, np.int64), np.zeros(0))
    for name, node_field in PER_NODE.items():
        here, amount = needs.get(name, nothing)
        used = set(columns.pool_of(here).tolist())
        for row, place in enumerate(pools):
            full_name = f"{place.name}.{name}"
            if row not in used and full_name not in of_servers:
                continue
            total = float(getattr(place, node_field)[place.usable(now)].sum())
            if not np.isnan(total):
                mine = columns.pool_of(here) == row
                theirs, their_amount = of_servers.get(full_name, nothing)
                both = np.concatenate([here[mine], theirs])
                add(
                    full_name,
                    total,
                    "renewable",
                    both,
                    np.concatenate([amount[mine], their_amount]),
                )
    for resource in instance.cluster.resources:
        here, amount = needs.get(resource.name, nothing)
        if resource.pool is not None:
            pool = instance.cluster.pool_index[resource.pool]
            mine = (columns.pool_of(here) == pool) | (columns.option[here] >= 0)
            here, amount = here[mine], amount[mine]
        theirs, their_amount = of_servers.get(resource.name, nothing)
        here, amount = np.concatenate([here, theirs]), np.concatenate([amount, their_amount])
        add(resource.name, resource.capacity, resource.kind, here, amount)
    shape = (len(names), len(columns))
    if holds.all() and not any(map(len, rows)):  # every column holds GPUs, and nothing else
        usage = Usage(len(names), ByWay(columns.way, ways.pool, of_way))
    else:
        on_pool = np.flatnonzero(holds[columns.way])
        rows.insert(0, columns.pool_of(on_pool))
        cols.insert(0, on_pool)
        amounts.insert(0, of_way[columns.way[on_pool]])
        entries = (np.concatenate(amounts), (np.concatenate(rows), np.concatenate(cols)))
        usage = Usage.of(sp.csr_matrix(entries, shape=shape))
    pool_of_row = np.full(len(names), -1, np.int64)
    pool_of_row[: len(pools)] = np.arange(len(pools))
    return Resources(tuple(names), np.array(capacity), np.array(renewable), pool_of_row), usage
