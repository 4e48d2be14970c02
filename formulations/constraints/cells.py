"""Cells: a tenant's jobs stay within the cells that its virtual cluster owns."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import pairwise
from typing import Annotated

import numpy as np
import scipy.sparse as sp
from pydantic import Field, model_validator

from formulations.constraints.names import Names, of_tenant, pool_rows, tenant_row
from optsched.arrays import BoolArray, FloatArray, IntArray, group_rows
from optsched.candidates import Classes
from optsched.formulation import ConstraintOptions, SideConstraint
from optsched.instance import Instance
from optsched.instance.documents import parse_index, refused
from optsched.instance.reading import show
from optsched.instance.staying import must_stay
from optsched.program import SideRows
from optsched.program.space import TenantCells

Owned = Mapping[str, Annotated[int, Field(ge=0, le=2**31)]]


class Cells(SideConstraint):
    """A tenant's jobs stay within the cells of GPUs that its virtual cluster owns.

    A cell is a group of s GPUs close to each other: such as 1, 2, 4 or 8 GPUs of a node. Sizes
    divide one another, so that a cell of one size splits into whole cells of the next smaller one.
    A column on one node needs a cell of the smallest size that holds its GPUs; one on several nodes
    needs one for each part, and counts at the worst of its splits. A gang that may span more nodes
    than it needs has a second column, on the fewest nodes: there, 8 GPUs on nodes of 4 have one
    split. With N_s the cells of size s that the tenant owns, w_c the cells that column c needs, of
    size s(c), and x_c the jobs of the tenant in it, for every size s:

        sum_{c: s(c) >= s} s(c) w_c x_c  <=  sum_{t >= s} t N_t                                  (cells)

    As sizes divide one another, whole jobs that keep these rows fit into the cells: the larger
    first, each into a cell of its size, or a part of a larger one (buddy allocation). Jobs whose
    GPUs exceed the largest cell on a node cannot run. With `optsched.placement.cells` a cluster
    that promised cells to several tenants keeps enough of every size.

    Options
        tenant    whose jobs.
        owns      {size: cells}, such as {"8": 2, "4": 1}: sizes in GPUs.
        pools     names of the pools that the cells are of; without it all.
        reserved  the cells are aligned GPUs of one node, which other jobs leave alone. A part of a
                  gang takes a cell where it is, whatever its worst split may be. Whole jobs need
                  placeable; for fractions of time cells are capacities (a relaxation).

    References
        H. Zhao et al., "HiveD: Sharing a GPU Cluster for Deep Learning with Guarantees", OSDI 2020.
    """

    kind = "cells"
    also_reads = frozenset({"tenant"})
    of_sums = True
    counts_splits = True

    class Options(ConstraintOptions):
        """Options of the cells."""

        tenant: str
        owns: Owned = Field(min_length=1)
        pools: Names | None = None
        reserved: bool = False

        @model_validator(mode="after")
        def _divide(self) -> Cells.Options:
            sizes = [parse_index(size) for size in self.owns]
            for size, number in zip(self.owns, sizes, strict=True):
                if number < 1:
                    raise refused(show(size), "a number of GPUs, at least 1, as the key", ".owns")
            order = sorted(sizes)
            for small, large in pairwise(order):
                if large % small:
                    raise refused(f"{small} and {large}", "sizes that divide one another", ".owns")
            return self

    options: Options

    @property
    def sizes(self) -> IntArray:
        """Sizes that the tenant owns, ascending."""
        return np.array(sorted(map(int, self.options.owns)), np.int64)

    def check(self, instance: Instance) -> None:
        """Tenant and pools must exist."""
        tenant_row(self.kind, self.options.tenant, instance)
        pool_rows(self.kind, self.options.pools, instance)

    def labels(self, instance: Instance) -> IntArray | None:
        """0 for jobs of others, 1 for the tenant's, 2 for those of them that keep their GPUs."""
        of_jobs = of_tenant(self.kind, self.options.tenant, instance).astype(np.int64)
        return of_jobs * (1 + must_stay(instance))

    def reserves(self, instance: Instance) -> TenantCells | None:
        if not self.options.reserved:
            return None
        return TenantCells(
            self.options.tenant,
            of_tenant(self.kind, self.options.tenant, instance),
            pool_rows(self.kind, self.options.pools, instance),
            {int(size): many for size, many in self.options.owns.items()},
        )

    def rows(self, C: Classes) -> SideRows | None:
        if self.options.reserved:
            return None  # rows of all tenants: those of `Space` for whole jobs, else `cell_rows`
        sizes = self.sizes
        owned = np.array([self.options.owns[str(size)] for size in sizes.tolist()], np.float64)
        jobs = C.part_of(C.common(of_tenant(self.kind, self.options.tenant, C.instance)))
        pools = pool_rows(self.kind, self.options.pools, C.instance)
        there = (jobs > 0) & np.isin(C.pool, pools) & (C.gpus > 0)
        loads, beyond = self._loads(C, there)
        # A last row, with 0 on the right: columns with a part larger than every cell never run
        matrix = np.where(there & ~beyond, jobs * loads, 0.0)
        large = there & beyond
        most = (sizes * owned)[::-1].cumsum()[::-1]
        matrix, most = np.vstack([matrix, large.astype(np.float64)]), np.append(most, 0.0)
        some = np.flatnonzero(matrix.any(axis=1))
        if not len(some):
            return None
        return SideRows(
            self.kind,
            sp.csr_matrix(matrix[some]),
            np.full(len(some), -np.inf),
            most[some],
            partial(self._words, some),
        )

    def _loads(self, C: Classes, there: BoolArray) -> tuple[FloatArray, BoolArray]:
        """GPUs of cells of each size or more that a job of each column may take, shape (sizes, N),
        and whether it may need more than the largest cell.
        """
        numbering = C.instance.cluster.numbering
        largest = np.zeros(len(C.instance.cluster.pools), np.int64)
        np.maximum.at(largest, numbering.pool, np.diff(numbering.start))
        column = np.flatnonzero(there)
        gpus, nodes = C.gpus[column], np.maximum(C.configurations.nodes[C.configuration[column]], 1)
        even = -(-gpus // nodes)
        stays = C.common(must_stay(C.instance))[C.class_a[column]]
        most = np.where(stays, even, np.maximum(largest[C.pool[column]], even))
        kinds = group_rows((gpus, np.minimum(nodes, gpus), most), len(column))
        found = [
            _worst_split(self.sizes, int(gpus[k]), int(min(nodes[k], gpus[k])), int(most[k]))
            for k in kinds.first.tolist()
        ]
        loads, beyond = np.zeros((len(self.sizes), C.columns)), np.zeros(C.columns, bool)
        if found:
            table = np.array(found)[kinds.inverse]
            loads[:, column], beyond[column] = table[:, :-1].T, table[:, -1] > 0
        return loads, beyond

    def _words(self, of_row: IntArray, row: int) -> str:
        at = int(of_row[row])
        sizes, who = self.sizes, f"the jobs of tenant {self.options.tenant}"
        if at == len(sizes):
            return f"{who} run within cells of at most {sizes[-1]} GPUs (cells)"
        cells = [f"{self.options.owns[str(size)]} x {size}" for size in sizes[at:].tolist()]
        return (
            f"{who} that need cells of {sizes[at]} GPUs or more "
            f"hold at most {', '.join(cells)} (cells)"
        )


def _worst_split(sizes: IntArray, gpus: int, nodes: int, most: int) -> FloatArray:
    """Largest sums, over the splits of a gang into at most ``nodes`` parts of at most ``most``
    GPUs.

    Returns
    -------
    FloatArray, shape (sizes + 1,)
        GPUs of the cells of each size or more that the parts need, and the number of parts that are
        larger than every cell.
    """
    parts = np.arange(1, min(most, gpus) + 1)
    level = np.searchsorted(sizes, parts)
    cell = np.append(sizes, 1)[level]
    rows = np.arange(len(sizes) + 1)[:, np.newaxis]
    # Parts larger than every cell are counted in the last row alone.
    beyond = level == len(sizes)
    value = np.where(beyond, rows == len(sizes), (rows <= level) & (rows < len(sizes))) * cell
    # best[:, r]: largest sums of so many parts, or fewer, of r GPUs in all
    best = np.full((len(sizes) + 1, gpus + 1), -np.inf)
    best[:, 0] = 0.0
    for _ in range(nodes):
        longer = best.copy()
        for part, worth in zip(parts.tolist(), value.T, strict=True):
            found = best[:, : gpus + 1 - part] + worth[:, np.newaxis]
            np.maximum(longer[:, part:], found, out=longer[:, part:])
        best = longer
    return best[:, gpus]
