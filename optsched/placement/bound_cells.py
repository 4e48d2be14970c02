"""Cells of tenants on GPUs while jobs run: each reserved cell is bound to an aligned block of GPUs.

Cells have no identity (`optsched.program.space.cells`): a tenant owns numbers of cells. `bind_cells`
chooses their GPUs so that few running jobs have to leave. From then on each GPU has
an owner, and rows are placed on the GPUs of their owner alone (`place_beside`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from optsched.arrays import BoolArray, FloatArray, IntArray, quotient, ranges
from optsched.arrays.values import cached_property
from optsched.candidates import NO_SLICE, Classes, RowUses
from optsched.display import count
from optsched.errors import UsageError
from optsched.instance import Instance
from optsched.placement.occupied import Occupied
from optsched.placement.shares import FULL
from optsched.program.space import (
    CellOnGpus,
    ReservedCells,
    TenantCells,
    owner_of,
    owner_of_columns,
)

NOBODY = -1
NEVER = 2.0
"""Share of a resource that no column can have: it cannot run."""


@dataclass(frozen=True, eq=False)
class BoundCells:
    """Reserved cells with their GPUs.

    Attributes
    ----------
    instance : Instance
    tenants : tuple of TenantCells
        With all cells that they own, and the jobs that may use them.
    cells : tuple of CellOnGpus
        Those that have GPUs.
    notices : tuple of str
        Cells without GPUs, and jobs that keep GPUs outside of the cells of their tenant.
    """

    instance: Instance
    tenants: tuple[TenantCells, ...]
    cells: tuple[CellOnGpus, ...]
    notices: tuple[str, ...] = ()

    @cached_property
    def owner(self) -> IntArray:
        """Number of the tenant, from 1 on, whose cell each GPU of the cluster is in; 0 for none."""
        owner = np.zeros(self.instance.cluster.numbering.gpus, np.int64)
        for cell in self.cells:
            owner[cell.gpus] = cell.tenant + 1
        return owner

    def owned(self, tenant: int) -> dict[str, int]:
        """How many cells of each size a tenant has on nodes that take work, as constraints say it."""
        usable = self.instance.cluster.usable(self.instance.now)
        node_of = self.instance.cluster.numbering.node_of
        found = dict.fromkeys(map(str, self.tenants[tenant].owns), 0)
        for cell in self.cells:
            if cell.tenant == tenant and usable[node_of(np.array([cell.gpus.start]))[0]]:
                found[str(cell.size)] += 1
        return found

    def owner_of_columns(self, classes: Classes) -> IntArray:
        """Whose cells each column is in, as `optsched.program.space.owner_of_columns` numbers them."""
        return owner_of_columns(classes, self.tenants)

    @cached_property
    def outside(self) -> BoolArray:
        """Mask of the running jobs that have GPUs which are not their owner's; shape (jobs,)."""
        table = self.instance.jobs_table
        places = table.places
        gpu = places.numbers(self.instance.cluster.numbering)
        owner = owner_of(self.tenants, places.job, places.pool)[places.owner]
        mask = np.zeros(len(table), bool)
        mask[places.job[places.owner[owner != self.owner[gpu]]]] = True
        return mask

    def others(self, occupied: Occupied, owner: int) -> Occupied:
        """All that is free of GPUs which rows of an owner may not have, held by nobody."""
        share = np.where(self.owner == owner, 0.0, np.maximum(1.0 - occupied.load, 0.0))
        gpu = np.flatnonzero(share)
        if not len(gpu):
            return Occupied.none(self.instance)
        one = np.array([NOBODY], np.int64)
        own, group = (
            np.zeros((1, occupied.need.shape[1])),
            np.zeros((1, occupied.group_need.shape[1])),
        )
        slices = np.array([NO_SLICE], np.int64)
        each = np.zeros(len(gpu), np.int64)
        return Occupied(self.instance, one, one, slices, own, group, gpu, share[gpu], each)

    def beside(self, occupied: Occupied, owner: int) -> Occupied:
        """Occupied GPUs, and beside them `others`."""
        return occupied.and_also(self.others(occupied, owner))

    def to_records(self) -> list[dict[str, Any]]:
        """Tenant and GPUs, written ``node/index``, of each cell."""
        names = self.instance.cluster.numbering.gpu_names
        return [
            {
                "tenant": self.tenants[cell.tenant].tenant,
                "gpus": names(np.arange(cell.gpus.start, cell.gpus.stop)),
            }
            for cell in self.cells
        ]

    # --- sums over the rows that run at once ----------------------------------------------

    @cached_property
    def _pile(self) -> IntArray:
        """Each GPU's number of its owner and pool."""
        numbering = self.instance.cluster.numbering
        pool = numbering.pool[numbering.node_of(np.arange(numbering.gpus))]
        return self.owner * len(self.instance.cluster.pools) + pool

    @cached_property
    def _gpus(self) -> FloatArray:
        """GPUs of each owner and pool on nodes that take work."""
        return self._counted(np.ones(len(self.owner)))

    def _counted(self, amount: FloatArray) -> FloatArray:
        """Sum of an amount per GPU, by owner and pool, over nodes that take work."""
        cluster = self.instance.cluster
        works = cluster.usable(self.instance.now)[cluster.numbering.node_of(np.arange(len(amount)))]
        piles = (len(self.tenants) + 1) * len(cluster.pools)
        return np.bincount(self._pile, np.where(works, amount, 0.0), piles).astype(np.float64)

    def uses(self, classes: Classes) -> RowUses:
        """Share of the GPUs of each owner and pool that each column uses."""
        owner = self.owner_of_columns(classes)
        column = np.flatnonzero((classes.pool >= 0) & (classes.gpus > 0))
        pile = np.maximum(owner[column], 0) * len(self.instance.cluster.pools)
        pile += classes.pool[column]
        share = classes.configurations.share[classes.configuration[column]]
        part = quotient(classes.gpus[column] * share, self._gpus[pile], NEVER)
        part = np.where(owner[column] < 0, NEVER, np.minimum(part, NEVER))
        shape = (len(self._gpus), classes.columns)
        return RowUses.of(sp.csc_matrix((part, (pile, column)), shape=shape))

    def free(self, occupied: Occupied) -> FloatArray:
        """Share of the GPUs of each owner and pool that occupied GPUs leave free."""
        return FULL - quotient(self._counted(occupied.load), self._gpus)


def bind_cells(instance: Instance, tenants: Sequence[TenantCells], stays: BoolArray) -> BoundCells:
    """Choose the GPUs of reserved cells beside the jobs that run.

    A job that stays has a cell of its tenant around its GPUs, as in `ReservedCells`; one that is in
    no cell keeps its GPUs outside. All other cells go, the largest first, where running jobs of
    others would have to leave the fewest GPUs; of equal places, where its tenant runs on most, then
    on the node with the fewest idle GPUs. If some find no room then, pools that fewer tenants may
    use come first, and the running jobs second.

    As larger cells come first, all cells that are not around jobs that stay find room if the nodes
    have room for all, where tenants may use the same pools or disjoint ones.

    Parameters
    ----------
    instance : Instance
    tenants : sequence of TenantCells
    stays : BoolArray, shape (jobs,)
        Running jobs that keep their GPUs.

    Raises
    ------
    UsageError
        As by `ReservedCells.bound_first`, but not for jobs that are in no cell.
    """
    notices: list[str] = []
    while True:
        try:
            reserved = ReservedCells.bound_first(instance, tenants, stays)
            break
        except UsageError as error:
            if not error.jobs:
                raise
            notices.append(f"cells: {error}")
            tenants = [_without(one, error.jobs) for one in tenants]
    ground = _Ground.of(instance, tenants, stays, reserved)
    cells, lacks = ground.bound(sparing=False)
    if lacks:
        sparing = ground.bound(sparing=True)
        cells, lacks = min((cells, lacks), sparing, key=lambda found: len(found[1]))
    cells, notices = [*reserved.bound, *cells], [*notices, *lacks]
    return BoundCells(instance, tuple(tenants), tuple(cells), tuple(notices))


def _without(one: TenantCells, jobs: Sequence[int]) -> TenantCells:
    """The cells of a tenant of whom some jobs have none."""
    mask = one.jobs.copy()
    mask[list(jobs)] = False
    return one._replace(jobs=mask)


class _Ground(NamedTuple):
    """GPUs on which cells are bound; arrays of shape (GPUs,).

    Attributes
    ----------
    instance : Instance
    tenants : tuple of TenantCells
        With the cells that have no GPUs yet.
    blocked : BoolArray
        In a cell, or of a job that stays.
    held : IntArray
        Jobs that run there and may leave.
    of_tenant : IntArray, shape (tenants, GPUs)
        Those of them whose cells these may be.
    """

    instance: Instance
    tenants: tuple[TenantCells, ...]
    blocked: BoolArray
    held: IntArray
    of_tenant: IntArray

    @classmethod
    def of(
        cls,
        instance: Instance,
        tenants: Sequence[TenantCells],
        stays: BoolArray,
        reserved: ReservedCells,
    ) -> _Ground:
        places, numbering = instance.jobs_table.places, instance.cluster.numbering
        gpu, holder = places.numbers(numbering), places.owner
        owner = np.where(stays[places.job], -1, owner_of(tenants, places.job, places.pool))[holder]
        counts = [
            np.bincount(gpu[owner == row], minlength=numbering.gpus)
            for row in range(len(tenants) + 1)
        ]
        held, of_tenant = np.sum(counts, axis=0), np.array(counts[1:])
        return cls(instance, reserved.tenants, reserved.blocked, held, of_tenant)

    def bound(self, sparing: bool) -> tuple[list[CellOnGpus], list[str]]:
        """The cells that find GPUs, and a notice for each tenant and size that lacks some.

        With ``sparing``, tenants with few pools come first, and pools that few tenants may use.
        """
        cells: list[CellOnGpus] = []
        lacks: list[str] = []
        taken = self.blocked.copy()
        order = np.argsort(
            [len(one.pools) if sparing else 0 for one in self.tenants], kind="stable"
        )
        for size in sorted({size for one in self.tenants for size in one.owns}, reverse=True):
            for number in order.tolist():
                one = self.tenants[number]
                first = self._take(number, size, taken, sparing)
                cells += [CellOnGpus(number, size, slice(at, at + size)) for at in first.tolist()]
                lack = one.owns.get(size, 0) - len(first)
                if lack:
                    lacks.append(
                        f"cells: {count(lack, 'cell')} of {count(size, 'GPU')} of tenant "
                        f"{one.tenant} found no GPUs: nodes take no work, jobs that cannot be "
                        "preempted are there, or cells of others"
                    )
        return cells, lacks

    def _take(self, tenant: int, size: int, taken: BoolArray, sparing: bool) -> IntArray:
        """First GPUs of the blocks that the tenant's cells of a size get; they are taken then."""
        cluster, one = self.instance.cluster, self.tenants[tenant]
        numbering = cluster.numbering
        there = np.isin(numbering.pool, one.pools) & cluster.usable(self.instance.now)
        nodes = np.flatnonzero(there)
        blocks = np.diff(numbering.start)[nodes] // size
        node = nodes.repeat(blocks)
        first = numbering.start[node] + size * ranges(0, blocks)
        free = _sums(taken, first, size) == 0
        node, first = node[free], first[free]
        own = _sums(self.of_tenant[tenant], first, size)
        others = _sums(self.held, first, size) - own
        every = numbering.node_of(np.arange(numbering.gpus))
        idle = np.bincount(every, ~taken & (self.held == 0), numbering.nodes)
        pools = np.concatenate([some.pools for some in self.tenants if sparing] or [one.pools])
        users = np.bincount(pools, minlength=len(cluster.pools))[numbering.pool[node]]
        order = np.lexsort((first, idle[node], -own, others, users))[: one.owns.get(size, 0)]
        chosen: IntArray = first[order]
        taken[ranges(chosen, np.full(len(chosen), size))] = True
        return chosen


def _sums(amount: IntArray | BoolArray, first: IntArray, size: int) -> IntArray:
    """Sums over blocks of equal size."""
    before: IntArray = np.append(0, np.cumsum(amount, dtype=np.int64))
    return np.asarray(before[first + size] - before[first])
