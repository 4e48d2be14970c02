"""Resources as rows: GPUs of each pool, its CPUs and memory, and other resources of the cluster."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from optsched.arrays import EMPTY, BoolArray, FloatArray, IntArray, owners
from optsched.candidates.columns import KindColumns
from optsched.candidates.kinds import Kinds
from optsched.candidates.needs import column_needs, server_needs
from optsched.candidates.usage import ByWay, Usage
from optsched.display import Displayed
from optsched.instance import Instance
from optsched.instance.cluster import PER_NODE, Resource

NOTHING = (EMPTY, np.zeros(0))
"""No columns, and no amounts."""


@dataclass(frozen=True, repr=False, eq=False)
class Resources(Displayed):
    """Rows of ``usage``.

    Attributes
    ----------
    names : tuple of str
        A pool's GPUs are called like the pool, its CPUs and memory ``<pool>.cpu`` and
        ``<pool>.memory``.
    capacity : FloatArray, shape (R,)
        Total on usable nodes, in GPUs, CPUs, GB, or the unit of the resource.
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

    A pool's CPUs and memory have rows only if the pool states them for every usable node and some
    column uses them. A resource of a pool is used by jobs on that pool whose workloads demand it,
    and by every option and parameter-server law that names it.
    """
    found = _Rows(instance, kinds, columns)
    for name in PER_NODE:
        found.add_per_node(name)
    for resource in instance.cluster.resources:
        found.add(resource)
    return found.resources(), found.usage()


class _Rows:
    """Builds rows of resources, first the GPUs of each pool, and their uses by columns."""

    def __init__(self, instance: Instance, kinds: Kinds, columns: KindColumns) -> None:
        self._instance, self._columns = instance, columns
        self._pools = instance.cluster.pools
        self._needs = column_needs(instance, kinds, columns)
        self._of_servers = server_needs(kinds, columns)
        self._names = [pool.name for pool in self._pools]
        self._capacity = instance.pool_sizes.gpus.astype(np.float64).tolist()
        self._renewable = [True] * len(self._pools)
        # For each row after the GPU rows: the columns that use it, and the amounts.
        self._uses: list[tuple[IntArray, FloatArray]] = []

    def add_per_node(self, name: str) -> None:
        """Add a row for each pool whose nodes state this resource and whose columns use it."""
        users, amount = self._needs.get(name, NOTHING)
        if not (len(users) or self._of_servers):
            return
        pool_of = self._columns.pool_of(users)
        for number, pool in enumerate(self._pools):
            row = f"{pool.name}.{name}"
            in_pool = pool_of == number
            if not in_pool.any() and row not in self._of_servers:
                continue
            total = pool.total(name, self._instance.now)
            if not np.isnan(total):
                self._add(row, total, True, users[in_pool], amount[in_pool])

    def add(self, resource: Resource) -> None:
        """Add a row for a resource of the cluster or of one pool."""
        users, amount = self._needs.get(resource.name, NOTHING)
        if resource.pool is not None:
            pool = self._instance.cluster.pool_index[resource.pool]
            of_pool = (self._columns.pool_of(users) == pool) | (self._columns.option[users] >= 0)
            users, amount = users[of_pool], amount[of_pool]
        renewable = resource.kind == "renewable"
        self._add(resource.name, resource.capacity, renewable, users, amount)

    def _add(
        self, name: str, capacity: float, renewable: bool, users: IntArray, amount: FloatArray
    ) -> None:
        """Add a row that is used by these columns, and by columns of workers and servers that name
        it.
        """
        server_users, their_amount = self._of_servers.get(name, NOTHING)
        both = np.concatenate([users, server_users]), np.concatenate([amount, their_amount])
        self._uses.append(both)
        self._names.append(name)
        self._capacity.append(capacity)
        self._renewable.append(renewable)

    def resources(self) -> Resources:
        """The rows, those of the GPUs of pools first."""
        pool = np.full(len(self._names), -1, np.int64)
        pool[: len(self._pools)] = np.arange(len(self._pools))
        capacity, renewable = np.array(self._capacity), np.array(self._renewable)
        return Resources(tuple(self._names), capacity, renewable, pool)

    def usage(self) -> Usage:
        """Use of each row by columns; if only GPUs are used, they are stored per way."""
        ways = self._columns.ways
        holds = (ways.pool >= 0) & (ways.gpus > 0)
        gpus = ways.gpus * ways.share
        if holds.all() and not any(len(users) for users, _ in self._uses):
            return Usage(len(self._names), ByWay(self._columns.way, ways.pool, gpus))
        on_pool = np.flatnonzero(holds[self._columns.way])
        way = self._columns.way[on_pool]
        row = owners([len(users) for users, _ in self._uses])
        rows = np.concatenate([ways.pool[way], len(self._pools) + row])
        columns = np.concatenate([on_pool, *(users for users, _ in self._uses)])
        amounts = np.concatenate([gpus[way], *(amount for _, amount in self._uses)])
        shape = (len(self._names), len(self._columns))
        return Usage.of(sp.csr_matrix((amounts, (rows, columns)), shape=shape))
