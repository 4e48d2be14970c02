"""Cells that tenants own, reserved on nodes: aligned GPUs that the jobs of one tenant alone hold.

A block of a GPUs is GPUs k a, ..., k a + a - 1 of one node (buddy allocation). A cell of a GPUs is
a block of a GPUs that a tenant owns. Sizes divide one another, so cells of any sizes fit into free
GPUs if and only if, for every size a,

    sum_{b >= a} b n_b  <=  a f_a

where n_b counts the cells of b GPUs, and f_a the free blocks of a GPUs, those inside larger free
blocks too: larger cells are put first, each anywhere. The same condition decides whether parts of
gangs fit into the cells of a tenant.

The program only counts cells by class of nodes (rows ``reserved``, ``inside`` and ``beside`` of
`Space`). Once it is solved, `optsched.program.space.dealing` chooses the GPUs of each cell.

A job that stays is a running job that cannot be preempted. If its tenant owns cells, a cell around
its GPUs is bound to them. There may be several ways: two GPUs are a cell of 2, or half of one of 4.
The program chooses one way of each node (`NodeWay`). Other jobs of the tenant may have the rest of
the cell.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice, pairwise
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from optsched.arrays import BoolArray, FloatArray, IntArray, mask_of
from optsched.candidates import Classes
from optsched.candidates.held import held_gpus
from optsched.errors import UsageError
from optsched.instance import Instance
from optsched.instance.staying import Running, must_stay
from optsched.program.side_rows import SideRows


class TenantCells(NamedTuple):
    """The cells that a tenant owns.

    Attributes
    ----------
    tenant : str
    jobs : BoolArray, shape (jobs,)
        Its jobs.
    pools : IntArray
        Pools that the cells are of.
    owns : mapping of int to int
        Number of cells of each size, in GPUs.
    """

    tenant: str
    jobs: BoolArray
    pools: IntArray
    owns: Mapping[int, int]

    def cell_of(self, gpus: int) -> int | None:
        """Size of the smallest cell that holds so many GPUs; None where there is none."""
        return min((size for size in self.owns if size >= gpus), default=None)


def owner_of(tenants: Sequence[TenantCells], job: IntArray, pool: IntArray) -> IntArray:
    """Number, from 1 on, of the tenant of each job in a pool; 0 where it has no cells there."""
    owner = np.zeros(len(job), np.int64)
    for number, one in enumerate(tenants, start=1):
        owner[one.jobs[job] & np.isin(pool, one.pools)] = number
    return owner


def owner_of_columns(
    C: Classes, tenants: Sequence[TenantCells], column: IntArray | None = None
) -> IntArray:
    """Whose cells each column is in (by default, of all columns): 0 for none, -1 where its two jobs
    differ.
    """
    column = np.arange(C.columns) if column is None else column
    pool, alone = C.pool[column], C.alone[column]
    owner = owner_of(tenants, C.first[C.class_a[column]], pool)
    other = owner_of(tenants, C.first[C.class_b[column]], pool)
    return np.where(alone | (owner == other), owner, -1)


class CellOnGpus(NamedTuple):
    """A cell that has GPUs: row of its tenant, size, and GPUs by their numbers in the cluster."""

    tenant: int
    size: int
    gpus: slice


class NodeWay(NamedTuple):
    """A way to bind cells on a node, so that each GPU of a job that stays and has cells is in one.

    Attributes
    ----------
    cells : tuple of CellOnGpus
    blocks : tuple of int
        Free blocks of each size (`ReservedCells.sizes`) outside of these cells.
    inside : tuple of tuple of int
        Free blocks of each size inside of them, by tenant.
    """

    cells: tuple[CellOnGpus, ...]
    blocks: tuple[int, ...]
    inside: tuple[tuple[int, ...], ...]

    @property
    def kind(self) -> tuple[object, ...]:
        """What the program knows of the way."""
        counts = sorted(Counter((cell.tenant, cell.size) for cell in self.cells).items())
        return self.blocks, self.inside, tuple(counts)


@dataclass(frozen=True, eq=False)
class ReservedCells:
    """The cells that are to be reserved, and the GPUs that are not free for them.

    Attributes
    ----------
    tenants : tuple of TenantCells
        Each with the cells that are not bound.
    blocked : BoolArray, shape (GPUs,)
        GPUs of the cluster that are not free: jobs that stay hold them, or they are in a bound
        cell.
    bound : tuple of CellOnGpus
        Cells around the GPUs of jobs that stay.
    ways : mapping of int to tuple of NodeWay
        Where nothing is bound yet: what can be bound on each node with jobs that stay and have
        cells.
    """

    tenants: tuple[TenantCells, ...]
    blocked: BoolArray
    bound: tuple[CellOnGpus, ...] = ()
    ways: Mapping[int, tuple[NodeWay, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, instance: Instance, tenants: Sequence[TenantCells]) -> ReservedCells | None:
        """The cells beside the jobs that stay, none of them bound yet; None where no tenant has
        cells.

        Raises
        ------
        UsageError
            Sizes of cells in one pool do not divide one another, a job that stays is in no cell
            that its tenant may have, or a node has too many ways.
        """
        if not tenants:
            return None
        refuse_incompatible_cells(tenants)
        held = _held_by(instance, tenants, must_stay(instance))
        reserved = cls(tuple(tenants), held >= 0)
        usable = instance.cluster.usable(instance.now)
        ways = {
            node: reserved._kinds_of_ways(instance, held, node, bool(usable[node]))
            for node in _nodes_to_bind(instance, tenants, held)
        }
        if ways:
            _Binding(instance, tenants, held).refuse_without_cells()
        return replace(reserved, ways=ways)

    @classmethod
    def bound_first(
        cls, instance: Instance, tenants: Sequence[TenantCells], stays: BoolArray
    ) -> ReservedCells:
        """The cells beside these jobs, bound in the first way found that leaves room for all others;
        if none of the ways tried does, in the first one.

        Raises
        ------
        UsageError
            As by `of`, or one of these jobs finds no cell beside the others.
        """
        refuse_incompatible_cells(tenants)
        return _Binding(instance, tenants, _held_by(instance, tenants, stays)).chosen()

    def _kinds_of_ways(
        self, instance: Instance, held: IntArray, node: int, usable: bool
    ) -> tuple[NodeWay, ...]:
        """Ways of a node, of which no two are the same to the program."""
        found: dict[tuple[object, ...], NodeWay] = {}
        for cells in _Binding(instance, self.tenants, held, node).ways():
            way = self._way(instance, node, tuple(cells), usable)
            found.setdefault(way.kind, way)
        return tuple(found[kind] for kind in sorted(found, key=repr))

    def _way(
        self, instance: Instance, node: int, cells: tuple[CellOnGpus, ...], usable: bool
    ) -> NodeWay:
        start = instance.cluster.numbering.start[node : node + 2]
        outside = self.blocked[slice(*start)].copy()
        inside = np.ones((len(self.tenants), len(outside)), bool)
        for number, _, gpus in cells:
            at = slice(gpus.start - int(start[0]), gpus.stop - int(start[0]))
            inside[number, at] = outside[at]
            outside[at] = True
        if not usable:  # the jobs stay there, and nobody else comes
            outside[:] = inside[:] = True
        counts = [_blocks_of_node(some, self.sizes) for some in (outside, *inside)]
        return NodeWay(cells, counts[0], tuple(counts[1:]))

    def with_bound(self, bound: Sequence[CellOnGpus]) -> ReservedCells:
        """The same with these cells bound."""
        blocked = self.blocked.copy()
        for cell in bound:
            blocked[cell.gpus] = True
        return replace(self, blocked=blocked, bound=tuple(bound), ways={})

    @property
    def sizes(self) -> tuple[int, ...]:
        """Sizes of cells, ascending; and 1, as jobs outside of cells take single GPUs."""
        return tuple(sorted({1, *(size for one in self.tenants for size in one.owns)}))

    def free_blocks(self, instance: Instance, node: int) -> dict[int, list[int]]:
        """First GPUs of the free blocks of a node, by size, that are in no larger free block."""
        numbering = instance.cluster.numbering
        blocked = self.blocked[numbering.start[node] : numbering.start[node + 1]]
        found: dict[int, list[int]] = {size: [] for size in self.sizes}
        for size, first in aligned_blocks(blocked, self.sizes):
            found[size].append(first)
        return found

    def blocks(self, instance: Instance) -> IntArray:
        """f_a: free blocks of every size on every node, shape (sizes, nodes)."""
        return _free_blocks(instance, self.blocked, self.sizes)


def _free_blocks(instance: Instance, blocked: BoolArray, sizes: Sequence[int]) -> IntArray:
    """Free blocks of each size on each node, shape (sizes, nodes)."""
    start = instance.cluster.numbering.start
    counts = np.zeros((len(sizes), len(start) - 1), np.int64)
    known: dict[bytes, tuple[int, ...]] = {}
    for node in range(counts.shape[1]):
        some = blocked[start[node] : start[node + 1]]
        key = some.tobytes()
        if key not in known:
            known[key] = _blocks_of_node(some, sizes)
        counts[:, node] = known[key]
    return counts


def aligned_blocks(blocked: BoolArray, sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Size and first GPU of the free blocks among some GPUs that are in no larger free block, the
    largest first.
    """
    inside = np.zeros(len(blocked), bool)
    for size in reversed(sizes):
        for first in range(0, len(blocked) - size + 1, size):
            some = slice(first, first + size)
            if not (blocked[some] | inside[some]).any():
                inside[some] = True
                yield size, first


def _blocks_of_node(blocked: BoolArray, sizes: Sequence[int]) -> tuple[int, ...]:
    """Free blocks of each size among the GPUs of a node."""
    return tuple(
        int((~blocked[: len(blocked) // size * size].reshape(-1, size).any(axis=1)).sum())
        for size in sizes
    )


def _held_by(instance: Instance, tenants: Sequence[TenantCells], stays: BoolArray) -> IntArray:
    """The job that stays on each GPU, -1 for none, shape (GPUs,)."""
    jobs = np.flatnonzero(stays)
    holds = held_gpus(instance, jobs, [])
    owner = jobs[holds.owner]
    held = np.full(instance.cluster.numbering.gpus, -1, np.int64)
    held[holds.gpu] = owner
    _refuse_shares(instance, tenants, owner[holds.share < 1])
    return held


def _nodes_to_bind(instance: Instance, tenants: Sequence[TenantCells], held: IntArray) -> list[int]:
    """Nodes with GPUs of jobs that stay and have cells."""
    numbering = instance.cluster.numbering
    gpus = np.flatnonzero(held >= 0)
    node = numbering.node_of(gpus)
    found: list[int] = np.unique(
        node[owner_of(tenants, held[gpus], numbering.pool[node]) > 0]
    ).tolist()
    return found


def refuse_incompatible_cells(tenants: Sequence[TenantCells]) -> None:
    """Refuse cells of one pool whose sizes do not divide one another, and two lists of a tenant."""
    for number, one in enumerate(tenants):
        for other in tenants[:number]:
            if not np.isin(one.pools, other.pools).any():
                continue
            if one.tenant == other.tenant:
                raise UsageError(f"cells of tenant {one.tenant} are reserved twice in one pool")
            for small, large in pairwise(sorted({*one.owns, *other.owns})):
                if large % small:
                    raise UsageError(
                        f"cells of tenants {other.tenant} and {one.tenant}: found sizes {small} "
                        f"and {large} in one pool, expected sizes that divide one another"
                    )


def _refuse_shares(instance: Instance, tenants: Sequence[TenantCells], jobs: IntArray) -> None:
    """Refuse jobs that stay on shares of GPUs in cells."""
    for one in tenants:
        for job in jobs[one.jobs[jobs]][:1].tolist():
            name = instance.jobs_table.names[job]
            raise UsageError(
                f"job {name} keeps shares of GPUs: reserved cells of tenant {one.tenant} hold "
                "whole ones"
            ).of_jobs([job])


TRIED = 10_000
"""How often a cell is bound while ways to bind them are tried (`_Binding`), beside once for each GPU
that needs one."""
WAYS_OF_A_ROUND = 8
"""Ways of each order that a round looks at before it takes the first one, though some cells find no
room then."""


class _StayingGpu(NamedTuple):
    """A GPU that needs a cell: number of the tenant, GPU, its node, and GPUs of its job there."""

    tenant: int
    gpu: int
    node: int
    part: int


class _Binding:
    """Which cells are bound to the GPUs of jobs that stay.

    A pair that such a job has may be a cell of its tenant, or half of a larger one.
    """

    def __init__(
        self,
        instance: Instance,
        tenants: Sequence[TenantCells],
        held: IntArray,
        only: int | None = None,
    ) -> None:
        self._instance, self._tenants, self._held = instance, tenants, held
        numbering = instance.cluster.numbering
        gpus = np.flatnonzero(held >= 0)
        node = numbering.node_of(gpus)
        if only is not None:
            gpus, node = gpus[node == only], node[node == only]
        parts = Counter(zip(held[gpus].tolist(), node.tolist(), strict=True))
        self._staying = [
            _StayingGpu(number, gpu, at, parts[int(held[gpu]), at])
            for number, one in enumerate(tenants)
            for gpu, at in zip(gpus.tolist(), node.tolist(), strict=True)
            if one.jobs[held[gpu]] and numbering.pool[at] in one.pools
        ]
        self._gpus = np.array([one.gpu for one in self._staying], np.int64)
        # What changes while ways are tried: cells that are left, by tenant and size; GPUs in bound
        # cells; the last GPU, in their order, for which a cell was looked for; and whether the search
        # ended before all ways were tried.
        self._left = [Counter(one.owns) for one in tenants]
        self._bound = np.zeros(len(held), bool)
        self._furthest = 0
        self._stopped = False

    def ways(self) -> Iterator[Sequence[CellOnGpus]]:
        """All ways.

        Raises
        ------
        UsageError
            There is none, or there are too many.
        """
        none = True
        for bound in self._ways():
            none = False
            yield bound
        if self._stopped:
            raise self._too_many
        if none:
            raise self._no_cell

    def refuse_without_cells(self) -> None:
        """Refuse jobs for which the tenants own too few cells; where the search ends too early to
        know, the program finds out.
        """
        if next(self._ways(), None) is None and not self._stopped:
            raise self._no_cell

    def chosen(self) -> ReservedCells:
        """The first way in which all cells that are not bound find room; without one, the first
        way.

        Raises
        ------
        UsageError
            The GPUs of some job are in no cell.
        """
        first: ReservedCells | None = None
        # Where small cells are bound inside of all free blocks, large ones find room only if they
        # are bound around these jobs
        few = self._ways(), self._ways(largest_first=True)
        for bound in chain.from_iterable(islice(some, WAYS_OF_A_ROUND) for some in few):
            way = self._way(bound)
            if _has_room(self._instance, way):
                return way
            first = first or way
        if first is None:
            raise self._too_many if self._stopped else self._no_cell
        return first

    @property
    def _too_many(self) -> UsageError:
        return UsageError(
            "cells: too many ways to bind reserved cells to jobs that keep their GPUs: "
            f"more than {TRIED:,} were tried"
        )

    @property
    def _no_cell(self) -> UsageError:
        gpu = self._staying[self._furthest]
        name = self._instance.jobs_table.names[int(self._held[gpu.gpu])]
        return UsageError(
            f"job {name} keeps GPUs that are in no cell that tenant "
            f"{self._tenants[gpu.tenant].tenant} owns: leave out reserved, or stop the job"
        ).of_jobs([int(self._held[gpu.gpu])])

    def _ways(self, largest_first: bool = False) -> Iterator[Sequence[CellOnGpus]]:
        """All ways to bind cells so that each GPU is in one: a depth-first search without
        recursion, as it is as deep as there are GPUs.
        """
        self._left = [Counter(one.owns) for one in self._tenants]
        self._bound[:] = False
        bound: list[CellOnGpus] = []
        # What can still be tried: for the first GPU, and for the next one after each bound cell.
        to_try: list[Iterator[CellOnGpus]] = []
        for _ in range(TRIED + len(self._staying)):
            at = self._first_without_cell()
            if at is None:
                yield tuple(bound)
            to_try.append(self._cells_for(at, largest_first))
            while (cell := next(to_try[-1], None)) is None:
                to_try.pop()
                if not bound:
                    return
                self._release(bound.pop())
            self._left[cell.tenant][cell.size] -= 1
            self._bound[cell.gpus] = True
            bound.append(cell)
        self._stopped = True

    def _release(self, cell: CellOnGpus) -> None:
        self._left[cell.tenant][cell.size] += 1
        self._bound[cell.gpus] = False

    def _first_without_cell(self) -> int | None:
        """Place in the order of the first GPU that is in no cell; None if all are."""
        without = ~self._bound[self._gpus]
        if not without.any():
            return None
        at = int(without.argmax())
        self._furthest = max(self._furthest, at)
        return at

    def _cells_for(self, at: int | None, largest_first: bool) -> Iterator[CellOnGpus]:
        """Cells that can be bound to a GPU now, the smallest that holds its job's GPUs first."""
        if at is None:
            return
        number, gpu, node, part = self._staying[at]
        one, numbering = self._tenants[number], self._instance.cluster.numbering
        start, end = int(numbering.start[node]), int(numbering.start[node + 1])
        sizes = sorted(one.owns, key=lambda size: (size < part, abs(size - part)))
        for size in sorted(one.owns, reverse=True) if largest_first else sizes:
            first = start + (gpu - start) // size * size
            cell = slice(first, first + size)
            some = self._held[cell]
            has_one = self._left[number][size] > 0
            inside = first + size <= end
            only_its_jobs = ((some < 0) | one.jobs[some]).all()
            if has_one and inside and only_its_jobs and not self._bound[cell].any():
                yield CellOnGpus(number, size, cell)

    def _way(self, bound: Sequence[CellOnGpus]) -> ReservedCells:
        """What these cells, which are bound now, leave."""
        left = [
            one._replace(owns={size: left[size] for size in one.owns})
            for one, left in zip(self._tenants, self._left, strict=True)
        ]
        return ReservedCells(tuple(left), (self._held >= 0) | self._bound, tuple(bound))


def _has_room(instance: Instance, cells: ReservedCells, usable: BoolArray | None = None) -> bool:
    """Whether all cells find room on usable nodes, those of each set of pools.

    No two of these sets have a pool in common.
    """
    cluster = instance.cluster
    usable = cluster.usable(instance.now) if usable is None else usable
    for pools in {tuple(one.pools.tolist()) for one in cells.tenants}:
        there = [one for one in cells.tenants if tuple(one.pools.tolist()) == pools]
        sizes = sorted({size for one in there for size in one.owns})
        nodes = usable & np.isin(cluster.numbering.pool, pools)
        free = _free_blocks(instance, cells.blocked, sizes)[:, nodes].sum(axis=1)
        for least, many in zip(sizes, free.tolist(), strict=True):
            cells_of = [(size, n) for one in there for size, n in one.owns.items()]
            if sum(size * n for size, n in cells_of if size >= least) > least * many:
                return False
    return True


# --- fractions of time -----------------------------------------------------------------------

CELLS = "reserved cells"


def cell_rows(C: Classes, tenants: Sequence[TenantCells]) -> SideRows | None:
    """Rows over an allocation that hold at every instant while cells are reserved, and so on average
    over time: a relaxation for fractions of time.

    With c_i(a) the least GPUs, over all splits of a column, of cells of tenant i of a GPUs or more
    that its parts need:

        sum over columns of tenant i  c_i(a) x  <=  sum_{b >= a} b N_ib              every size a
        sum over columns of others    GPUs x    <=  GPUs of the pools - GPUs of their cells

    Columns with a part that no cell holds, and pairs of jobs of which one alone has cells, are
    closed. Where jobs that cannot be preempted hold more, the right-hand side is what they hold.

    Parameters
    ----------
    C : Classes
    tenants : sequence of TenantCells
        None: there are no rows.
    """
    if not tenants:
        return None
    refuse_incompatible_cells(tenants)
    owner, gpus = owner_of_columns(C, tenants), _gpus_held(C)
    stays = C.common(must_stay(C.instance))[C.class_a]
    closed = owner < 0
    rows: list[_CellRow] = []
    for number, one in enumerate(tenants, start=1):
        column = np.flatnonzero(owner == number)
        nodes = np.maximum(C.configurations.nodes[C.configuration[column]], 1)
        sizes = np.array(sorted(one.owns), np.int64)
        closed[column] = ~stays[column] & (C.gpus[column] > nodes * sizes[-1])
        for at, size in enumerate(sizes.tolist()):
            needs = np.zeros(C.columns)
            needs[column] = _least_cells(C.gpus[column], gpus[column], nodes, sizes, at)
            owned = sum(larger * many for larger, many in one.owns.items() if larger >= size)
            words = f"the jobs of tenant {one.tenant} run within its cells of {size} GPUs or more"
            rows.append(_CellRow(needs, max(float(owned), _of_staying(C, stays, needs)), words))
    rows += _rows_of_others(C, tenants, owner, gpus, stays)
    taken, nodes = _held_by_others(C.instance, tenants), _nodes_of_cells(C.instance, tenants)
    if not _has_room(C.instance, ReservedCells(tuple(tenants), taken, ()), nodes):
        rows.append(_CellRow(np.zeros(C.columns), -1.0, "nodes have room for all reserved cells"))
    rows.append(_CellRow(closed.astype(np.float64), 0.0, "no cell holds such a job"))
    rows = [row for row in rows if row.needs.any() or row.most < 0]
    if not rows:
        return None
    return SideRows(
        CELLS,
        sp.csr_matrix(np.array([row.needs for row in rows])),
        np.full(len(rows), -np.inf),
        np.array([row.most for row in rows]),
        [f"{row.words} ({CELLS})" for row in rows].__getitem__,
    )


class _CellRow(NamedTuple):
    """needs @ x <= most."""

    needs: FloatArray
    most: float
    words: str


def _gpus_held(C: Classes) -> FloatArray:
    """GPUs that one job of each column holds, shares counted as such."""
    share = C.configurations.share[C.configuration]
    return np.where(C.pool >= 0, C.gpus * share, 0.0)


def _held_by_others(instance: Instance, tenants: Sequence[TenantCells]) -> BoolArray:
    """Mask of the GPUs of jobs that stay and have no cells, shape (GPUs,)."""
    jobs = np.flatnonzero(must_stay(instance))
    pool = Running.of(instance).pool[jobs]
    jobs = jobs[owner_of(tenants, jobs, pool) == 0]
    return mask_of(held_gpus(instance, jobs, []).gpu, instance.cluster.numbering.gpus)


def _nodes_of_cells(instance: Instance, tenants: Sequence[TenantCells]) -> BoolArray:
    """Mask of the nodes that may have cells: those that take work, and those where jobs with cells
    stay.
    """
    cluster = instance.cluster
    jobs = np.flatnonzero(must_stay(instance) & np.any([one.jobs for one in tenants], axis=0))
    gpus = held_gpus(instance, jobs, []).gpu
    there = mask_of(cluster.numbering.node_of(gpus), cluster.numbering.nodes)
    return cluster.usable(instance.now) | there


def _of_staying(C: Classes, stays: BoolArray, needs: FloatArray) -> float:
    """Most that the jobs which stay may need; ``stays`` is by column."""
    most = np.zeros(len(C))
    np.maximum.at(most, C.class_a[stays], needs[stays])
    return float(most @ C.count)


def _least_cells(
    gpus: IntArray, held: FloatArray, nodes: IntArray, sizes: IntArray, at: int
) -> FloatArray:
    """c(a) of columns, for the size a with this index: a lower bound, exact on one node.

    On n nodes, n - 1 parts may be as small as the next smaller size s. If that leaves anything, one
    part takes the rest, in cells of a GPUs or more.
    """
    size, smaller = int(sizes[at]), int(sizes[at - 1]) if at else 0
    rest = np.maximum(gpus - (nodes - 1) * smaller, smaller + 1)
    several = np.where(gpus > nodes * smaller, -(-rest // size) * size, 0)
    cell = np.append(sizes, 0)[np.searchsorted(sizes, gpus)]
    alone = np.where(cell >= size, cell, 0)
    shared = np.where(at == 0, held, 0.0)
    return np.where(held < gpus, shared, np.where(nodes == 1, alone, several))


def _rows_of_others(
    C: Classes,
    tenants: Sequence[TenantCells],
    owner: IntArray,
    gpus: FloatArray,
    stays: BoolArray,
) -> list[_CellRow]:
    """What cells leave to others: of the pools of each tenant, and of all of them."""
    usable = np.zeros(len(C.instance.cluster.pools))
    of_pool = C.resources.pool >= 0
    usable[C.resources.pool[of_pool]] = C.capacity[of_pool]
    numbering = C.instance.cluster.numbering
    there = np.where(_nodes_of_cells(C.instance, tenants), np.diff(numbering.start), 0)
    gpus_there = np.bincount(numbering.pool, there, len(usable))
    every = np.unique(np.concatenate([one.pools for one in tenants]))
    rows = []
    sets = {tuple(some.tolist()): some for some in (*(one.pools for one in tenants), every)}
    for pools in sets.values():
        inside = [row for row, one in enumerate(tenants) if np.isin(one.pools, pools).all()]
        cells = sum(size * n for row in inside for size, n in tenants[row].owns.items())
        others = np.isin(C.pool, pools) & ~np.isin(owner, [row + 1 for row in inside])
        needs = np.where(others, gpus, 0.0)
        held = _of_staying(C, stays, needs)
        left = min(float(gpus_there[pools].sum()) - cells, float(usable[pools].sum()))
        names = ", ".join(tenants[row].tenant for row in inside)
        words = f"reserved cells of tenants {names} leave {left:g} GPUs to others"
        rows.append(_CellRow(needs, max(left, held) if held else left, words))
    return rows


class CellColumns(NamedTuple):
    """Columns: cells of a tenant on nodes of a class; arrays of length K.

    Attributes
    ----------
    owner : IntArray
        Number of the tenant, from 1 on.
    size : IntArray
        GPUs of the cell.
    node_class : IntArray
    """

    owner: IntArray
    size: IntArray
    node_class: IntArray

    @classmethod
    def of(cls, reserved: ReservedCells | None, pool: IntArray, blocks: IntArray) -> CellColumns:
        """A column for each tenant, size that it owns, and class of nodes of its pools that has a
        free cell of the size.

        Parameters
        ----------
        reserved : ReservedCells or None
        pool : IntArray, shape (R,)
            Pool of each class of nodes.
        blocks : IntArray, shape (sizes, R)
            Free aligned cells of each size on a node of each class.
        """
        rows: list[tuple[int, int, int]] = []
        if reserved is not None:
            for number, one in enumerate(reserved.tenants, start=1):
                for size in sorted(one.owns):
                    there = np.isin(pool, one.pools) & (blocks[reserved.sizes.index(size)] > 0)
                    rows += [(number, size, r) for r in np.flatnonzero(there).tolist()]
        return cls(*np.array(rows, np.int64).reshape(-1, 3).T)


class FreeCell(NamedTuple):
    """Aligned GPUs of a node: the first one, as an index on the node."""

    node: int
    first: int


class FreeCells:
    """Free aligned blocks of some nodes, which are split as they are taken."""

    def __init__(self, free: Mapping[int, Sequence[FreeCell]]) -> None:
        self._free = {size: list(blocks) for size, blocks in sorted(free.items())}

    def take(self, size: int) -> FreeCell:
        """Take a block: a free one of the size, else a part of the smallest larger one."""
        at = next(other for other, blocks in self._free.items() if other >= size and blocks)
        block = self._free[at].pop(0)
        while at > size:
            smaller = max(other for other in self._free if other < at)
            firsts = range(block.first + smaller, block.first + at, smaller)
            self._free[smaller] += [FreeCell(block.node, first) for first in firsts]
            at = smaller
        return block

    @property
    def free(self) -> Mapping[int, Sequence[FreeCell]]:
        """The blocks that are left, by size."""
        return self._free
