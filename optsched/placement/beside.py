"""Placement in a round: GPUs for rows that start, and room that is made for them.

1. `place_beside` gives free GPUs to rows that start; all other rows stay where they are. It solves
   no program and computes no bound, because a round must be short.
2. `Occupants.clear_for` makes room for one row at a time: other rows move to other GPUs, or stop.
   All rows that need one node share one state of free GPUs (`optsched.placement.one_node`). For a
   row that spans nodes, shares GPUs, needs a resource that several nodes share, or has
   anti-affinity, `Clearing` chooses the rows that must leave.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from optsched.arrays import EMPTY, BoolArray, FloatArray, IntArray, mask_of, ranges
from optsched.arrays.values import cached_property, replace
from optsched.candidates import Classes, JobRows
from optsched.instance.cluster import Numbering
from optsched.placement.best_fit import FreeRoom, best_fit, choose, why_refused
from optsched.placement.bound_cells import BoundCells
from optsched.placement.occupied import Occupied, refuse_placed_twice
from optsched.placement.one_node import GpusByRow, OneNodeRoom, RoomMade
from optsched.placement.problem import Problem
from optsched.placement.requests import Requests, anti_affinity_sets, needs_per_gpu
from optsched.placement.shares import ROUNDING

SETS_TRIED = 4
"""Sets of rows that are tried for moving to other GPUs, before rows are stopped."""


# --- rows that start --------------------------------------------------------------------------


class RefusedRow(NamedTuple):
    """A row that was not placed.

    Attributes
    ----------
    row : int
        Row of the allocation.
    reason : str
        Its needs, and the free GPUs.
    scattered : bool
        Its pool has as many free GPUs as it asks for, but not on the nodes where it needs them:
        moving other rows may make room.
    """

    row: int
    reason: str
    scattered: bool


@dataclass(frozen=True)
class PlacedRows:
    """GPUs of rows that start.

    Attributes
    ----------
    row : IntArray, shape (P,)
        Rows of the allocation that were placed, in the order in which they were wanted.
    gpu : IntArray, shape (F,)
        Their GPUs, row by row, by their numbers in the cluster.
    count : IntArray, shape (P,)
        Number of GPUs of each row.
    refused : tuple of RefusedRow
        Rows that were not placed, in that order.
    numbering : Numbering
        Of the cluster.
    """

    row: IntArray
    gpu: IntArray
    count: IntArray
    refused: tuple[RefusedRow, ...]
    numbering: Numbering

    def __len__(self) -> int:
        return len(self.row)

    @cached_property
    def gpus(self) -> tuple[tuple[str, ...], ...]:
        """GPUs of each row, written ``node/index``."""
        names = iter(self.numbering.gpu_names(self.gpu))
        return tuple(tuple(islice(names, gpus)) for gpus in self.count.tolist())

    @classmethod
    def join(
        cls, parts: Sequence[PlacedRows], wanted: IntArray, numbering: Numbering
    ) -> PlacedRows:
        """All rows of some parts, in the order in which they were wanted."""
        gpus = {row: gpu for part in parts for row, gpu in part.by_row().items()}
        refused = {item.row: item for part in parts for item in part.refused}
        placed = [row for row in wanted.tolist() if row in gpus]
        gpu = np.concatenate([EMPTY, *(gpus[row] for row in placed)])
        length = np.array([len(gpus[row]) for row in placed], np.int64)
        left = tuple([refused[row] for row in wanted.tolist() if row in refused])
        return cls(np.array(placed, np.int64), gpu, length, left, numbering)

    def by_row(self) -> GpusByRow:
        """The GPUs of each row, by its number."""
        last = self.count.cumsum()
        bounds = zip((last - self.count).tolist(), last.tolist(), strict=True)
        gpus = [self.gpu[begin:end] for begin, end in bounds]
        return dict(zip(self.row.tolist(), gpus, strict=True))


def place_beside(
    classes: Classes,
    rows: JobRows,
    wanted: IntArray,
    occupied: Occupied,
    constraints: Iterable[Mapping[str, Any]] = (),
    *,
    barred: Sequence[Collection[str]] | None = None,
    cells: BoundCells | None = None,
) -> PlacedRows:
    """GPUs for rows that start, while all other rows stay where they are.

    Best fit (`optsched.placement.best_fit`) on the free GPUs: larger gangs first; of equal gangs
    those that need more CPUs, then more memory, then those that are wanted first. If some gang has
    to span nodes, gangs that may span fewer nodes come before others of their size. A gang without
    room may push smaller gangs that also start. A refused row fits nowhere beside the occupied GPUs
    and the placed rows (unless a node belongs to two shared resources). Another placement of these,
    or moving other rows (`Occupants`), may still make room for it.

    Parameters
    ----------
    classes : Classes
    rows : JobRows
        The allocation row by row.
    wanted : IntArray, shape (W,)
        Rows that start, the most important first; rows without GPUs are left out.
    occupied : Occupied
        GPUs that are held. Nodes that take no work keep their jobs and get no new ones.
    constraints : iterable of mappings
        Side constraints; those of kind ``anti-affinity`` are read, for rows that start and jobs
        that have GPUs.
    barred : sequence of collections of str, length W, optional
        Names of nodes that each row must not use.
    cells : BoundCells, optional
        Reserved cells: jobs of a tenant have GPUs of its cells, all others of no cell.

    Returns
    -------
    PlacedRows
        The same for the same arguments.

    Raises
    ------
    ValueError
        A job is wanted twice, or already has GPUs.
    UsageError
        ``barred`` has another length, or names that are no nodes.
    """
    wanted = np.asarray(wanted, np.int64)
    if cells is not None:
        return _place_in_cells(classes, rows, wanted, occupied, constraints, barred, cells)
    requests = Requests.of(classes, rows, wanted, constraints, barred)
    jobs = requests.jobs_of_all
    twice = (np.bincount(jobs) > 1).nonzero()[0]
    if len(twice):
        name = classes.instance.jobs_table.names[int(twice[0])]
        raise ValueError(f"job {name} is to be placed twice")
    refuse_placed_twice(occupied, jobs)
    problem = Problem.of(requests, occupied)
    assignment = best_fit(problem, keep=True)
    row = requests.row.tolist()
    refused = tuple(
        [
            RefusedRow(row[request], words, scattered)
            for request, words, scattered in why_refused(problem, assignment)
        ]
    )
    placed = np.array(sorted(assignment), np.int64)
    gpu = problem.gpu_numbers(assignment)
    numbering = classes.instance.cluster.numbering
    return PlacedRows(requests.row[placed], gpu, requests.gpus[placed], refused, numbering)


def _place_in_cells(
    classes: Classes,
    rows: JobRows,
    wanted: IntArray,
    occupied: Occupied,
    constraints: Iterable[Mapping[str, Any]],
    barred: Sequence[Collection[str]] | None,
    cells: BoundCells,
) -> PlacedRows:
    """`place_beside`, owner by owner, on the GPUs of each."""
    owner = cells.owner_of_columns(classes)[rows.column[wanted]]
    found: list[PlacedRows] = []
    for number in np.unique(owner).tolist():
        own = (owner == number).nonzero()[0]
        bars = None if barred is None else [barred[place] for place in own.tolist()]
        placed = place_beside(
            classes,
            rows,
            wanted[own],
            cells.beside(occupied, number),
            constraints,
            barred=bars,
        )
        on = Occupied.of_numbers(classes, rows, placed.row, placed.gpu, placed.count)
        occupied = occupied.and_also(on)
        found.append(placed)
    return PlacedRows.join(found, wanted, classes.instance.cluster.numbering)


class ColumnsWithRoom(NamedTuple):
    """Room for one more job, alone, beside occupied GPUs.

    Attributes
    ----------
    mask : BoolArray, shape (N,)
        Columns in which the job has room.
    gpus : FloatArray, shape (pools,)
        Free GPUs of the nodes that have room for such a job.
    """

    mask: BoolArray
    gpus: FloatArray


def columns_with_room(
    classes: Classes, column: IntArray, occupied: Occupied, cells: BoundCells | None = None
) -> ColumnsWithRoom:
    """Of the given columns, those in which a job without GPUs has room beside occupied GPUs.

    Anti-affinity and barred nodes are not considered.
    """
    mask = np.zeros(classes.columns, bool)
    pools = len(classes.instance.cluster.pools)
    if not len(column):
        return ColumnsWithRoom(mask, np.zeros(pools))
    if cells is not None:
        # The GPUs of all owners are different ones, so their sums are those of the pools.
        owner = cells.owner_of_columns(classes)[column]
        found = [
            columns_with_room(classes, column[owner == number], cells.beside(occupied, number))
            for number in np.unique(owner).tolist()
        ]
        return ColumnsWithRoom(
            np.any([one.mask for one in found], axis=0), np.sum([one.gpus for one in found], axis=0)
        )
    requests = Requests.of_columns(classes, column)
    problem = Problem.of(requests, occupied)
    mask[column[requests.row[problem.fewest > 0]]] = True
    nodes = problem.nodes
    free = nodes.room[problem.open].sum(axis=1)
    by_pool = np.bincount(nodes.pool[problem.open], free, pools).astype(np.float64, copy=False)
    return ColumnsWithRoom(mask, by_pool)


# --- room for one row of any kind -------------------------------------------------------------


class GpusOfRows:
    """The GPUs of the rows of a queue, while rows get GPUs, lose them, and get others.

    All GPUs that were ever given to a row stay in one array. `first` and `count` locate the current
    GPUs of a row in it, so that the GPUs of many rows are read in one pass.

    Attributes
    ----------
    first, count : IntArray, shape (A,)
        Position of the first GPU of each row, and the number of its GPUs (0 for a row without).
    changes : int
        Number of changes so far.
    """

    def __init__(self, rows: int) -> None:
        self.first: IntArray = np.zeros(rows, np.int64)
        self.count: IntArray = np.zeros(rows, np.int64)
        self._gpu: IntArray = EMPTY
        self.changes = 0
        # When each row began to run, as a running number; -1 for rows that do not run.
        self._since: IntArray = np.full(rows, -1, np.int64)
        self._next = 0

    @property
    def runs(self) -> BoolArray:
        """Mask of the rows that run, shape (A,)."""
        return self._since >= 0

    @cached_property
    def rows(self) -> IntArray:
        """Rows that run, in the order in which they began."""
        rows = (self._since >= 0).nonzero()[0]
        return rows[self._since[rows].argsort()]

    @cached_property
    def with_gpus(self) -> IntArray:
        """The running rows that have GPUs."""
        rows = self.rows
        return rows[self.count[rows] > 0]

    def give(self, rows: IntArray, gpu: IntArray, count: IntArray) -> None:
        """Replace the GPUs of rows by these, listed row by row; the rows run from now on."""
        self.first[rows] = len(self._gpu) + count.cumsum() - count
        self.count[rows] = count
        self._gpu = np.concatenate([self._gpu, gpu])
        # A row that only moves keeps its place in the order.
        new = rows[self._since[rows] < 0]
        self._since[new] = self._next + np.arange(len(new))
        self._next += len(new)
        self._changed()

    def leave(self, rows: Sequence[int]) -> None:
        """Stop rows: they have no GPUs any more."""
        self._since[list(rows)] = -1
        self.count[list(rows)] = 0
        self._changed()

    def _changed(self) -> None:
        """Clear the cached lists of running rows."""
        self.changes += 1
        for name in ("rows", "with_gpus"):
            self.__dict__.pop(name, None)

    def gpus(self, rows: IntArray) -> tuple[IntArray, IntArray]:
        """GPUs of some rows, row by row, and the number of GPUs of each."""
        count = self.count[rows]
        return self._gpu[ranges(self.first[rows], count)], count


@dataclass
class Occupants:
    """Rows that have GPUs, and rules about which of them may be moved or stopped for others.

    Attributes
    ----------
    classes : Classes
    rows : JobRows, A rows
    constraints : sequence of mappings
        Side constraints; those of kind ``anti-affinity`` are read.
    fixed : Occupied
        Occupied GPUs of other holders.
    seats : GpusOfRows
    movable : BoolArray, shape (A,)
        Rows that may leave their GPUs.
    position : IntArray, shape (A,)
        Position of each row in the queue: rows that move are placed in this order.
    running : IntArray, shape (A,)
        Number of running jobs that are stopped or moved with each row.
    barred : callable
        Nodes that each of some rows must not use.
    wanted : IntArray
        Rows for which room may be made.
    cells : BoundCells or None
        Reserved cells.
    """

    classes: Classes
    rows: JobRows
    constraints: Sequence[Mapping[str, Any]]
    fixed: Occupied
    seats: GpusOfRows
    movable: BoolArray
    position: IntArray
    running: IntArray
    barred: Callable[[IntArray], list[Collection[str]] | None]
    wanted: IntArray
    cells: BoundCells | None = None

    def clear_for(self, row: int, victims: IntArray, most: float) -> RoomMade | None:
        """Make room for a row and return the changes; None, without any change, if it is
        impossible.

        Any movable row may move to other GPUs, whatever its position. Only victims may stop.

        Parameters
        ----------
        row : int
            One of ``wanted``.
        victims : IntArray
            Rows that may be stopped if they find no other GPUs, the first choice first.
        most : float
            Most running jobs that may be stopped or moved.
        """
        if self.cells is not None:
            same = self._of_owner(row, self.cells)
            return same.clear_for(row, victims[same.movable[victims]], most)
        one_node = self._one_node
        change = one_node.clear_node_for(row, victims, most) if row in one_node else None
        if change is None and not (row in one_node and self._knows_all(row)):
            change = self._clear_nodes_for(row, victims, most)
            if change is not None:
                del self._one_node  # its state does not include this change
        if change is not None:
            moved, gpus = list(change.gpus), list(change.gpus.values())
            count = np.array(list(map(len, gpus)), np.int64)
            self.seats.give(np.array(moved, np.int64), np.concatenate(gpus), count)
            self.seats.leave(change.out)
        return change

    def _of_owner(self, row: int, cells: BoundCells) -> Occupants:
        """The same with the GPUs and the rows of the owner of a row alone: nobody else can make room
        for it.
        """
        owner = cells.owner_of_columns(self.classes)[self.rows.column]
        seated = self.seats.with_gpus
        held = self.fixed.and_also(self._on(seated, *self.seats.gpus(seated)))
        same = owner == owner[row]
        return replace(
            self,
            fixed=self.fixed.and_also(cells.others(held, int(owner[row]))),
            movable=self.movable & same,
            wanted=self.wanted[same[self.wanted]],
            cells=None,
        )

    def _knows_all(self, row: int) -> bool:
        """Whether all movable rows in the pool of a row hold and need one node each."""
        C = self.classes
        seated = self.seats.with_gpus
        column = self.rows.column[seated]
        pool = C.pool[self.rows.column[row]]
        others = seated[self.movable[seated] & (C.pool[column] == pool)]
        one_node = C.configurations.nodes[C.configuration[self.rows.column[others]]] <= 1
        return bool((one_node & self._one_node.may_move(others)).all())

    @cached_property
    def _one_node(self) -> OneNodeRoom:
        """The state for rows that need one node and have no anti-affinity."""
        seated = self.seats.with_gpus
        held = self.fixed.and_also(self._on(seated, *self.seats.gpus(seated)))
        wanted = self.wanted
        barred = self.barred(wanted)
        requests = Requests.of(self.classes, self.rows, wanted, self.constraints, barred)
        problem = Problem.of(requests, held)
        on_one_node = (problem.on_one_node & (requests.span == 1)).nonzero()[0]
        row = np.concatenate([np.full(len(self.fixed), -1, np.int64), seated])
        may_move = self._may_move(seated)
        return OneNodeRoom(
            problem.nodes, requests.take(on_one_node), held, row, may_move, self.running
        )

    def _may_move(self, seated: IntArray) -> BoolArray:
        """Movable rows without barred nodes and without anti-affinity; shape (A,)."""
        mask = self.movable.copy()
        barred = self.barred(seated)
        if barred is not None:
            mask[seated[[bool(names) for names in barred]]] = False
        for jobs in anti_affinity_sets(self.classes, self.constraints):
            mask &= ~(np.isin(self.rows.job, jobs) | np.isin(self.rows.partner, jobs))
        return mask

    def _clear_nodes_for(self, row: int, victims: IntArray, most: float) -> RoomMade | None:
        """Make room for a row of any kind; nothing is changed yet."""
        near, may_leave = self._near(row)
        held = self.fixed.around(int(self.classes.pool[self.rows.column[row]]))
        firm = len(held)
        held = held.and_also(self._on(near, *self.seats.gpus(near)))
        loose = near[may_leave]
        may_go = np.append(np.zeros(firm, bool), may_leave)
        bars = self.barred(np.array([row]))
        clearing = Clearing(
            self.classes,
            self.rows,
            row,
            held.part(~may_go),
            held.part(may_go),
            self.constraints,
            bars[0] if bars else (),
        )

        def without(gone: IntArray) -> RoomMade | None:
            if self.running[loose[gone]].sum() > most:
                return None
            gpus = clearing.place_without(gone)
            if gpus is None:
                return None
            stays = held.part(np.append(np.ones(firm, bool), ~np.isin(near, loose[gone])))
            return self._with_the_others(row, gpus, loose[gone], stays)

        if clearing.needed(EMPTY) is not None:
            return without(EMPTY)
        # If enough GPUs are free, but scattered, moving rows may be enough: no row has to stop.
        order = clearing.nearest() if clearing.scattered else EMPTY
        for _ in range(SETS_TRIED):
            gone = clearing.needed(order)
            if gone is None:
                break
            change = without(gone)
            if change is not None and not change.out:
                return change
            order = order[~np.isin(order, gone)]
        holder = np.full(len(self.rows), -1, np.int64)
        holder[loose] = np.arange(len(loose))
        behind = holder[victims]
        gone = clearing.needed(behind[behind >= 0])
        return None if gone is None else without(gone)

    def _with_the_others(
        self, row: int, gpus: IntArray, gone: IntArray, stay: Occupied
    ) -> RoomMade:
        """A row on its GPUs, and other GPUs for the rows that left for it, as far as there are
        any.
        """
        found = {row: gpus}
        if len(gone):
            occupied = stay.and_also(self._on(np.array([row]), gpus, np.array([len(gpus)])))
            wanted = gone[self.position[gone].argsort()]
            barred = self.barred(wanted)
            placed = place_beside(
                self.classes, self.rows, wanted, occupied, self.constraints, barred=barred
            )
            found |= placed.by_row()
        return RoomMade(found, tuple(other for other in gone.tolist() if other not in found))

    def _near(self, row: int) -> tuple[IntArray, BoolArray]:
        """Rows with GPUs that can limit a row, and a mask of those that may leave theirs for it.

        Rows of other pools matter only through a resource that nodes of several pools share.
        """
        C = self.classes
        column = self.rows.column
        rows = self.seats.with_gpus
        in_pool = C.pool[column[rows]] == C.pool[column[row]]
        needs_group = needs_per_gpu(C, column[rows])[1].any(axis=1)
        near = in_pool | needs_group
        helps = near if needs_per_gpu(C, column[[row]])[1].any() else in_pool
        return rows[near], (helps & self.movable[rows])[near]

    def _on(self, rows: IntArray, gpu: IntArray, count: IntArray) -> Occupied:
        return Occupied.of_numbers(self.classes, self.rows, rows, gpu, count)


class Clearing:
    """Chooses the holders that must give up their GPUs to make room for one gang.

    Parameters
    ----------
    classes : Classes
    rows : JobRows
        The allocation row by row.
    wanted : int
        The row that needs room.
    occupied : Occupied
        Holders that stay.
    loose : Occupied
        M holders that may leave.
    constraints : iterable of mappings
        Side constraints; those of kind ``anti-affinity`` are read.
    barred : collection of str
        Names of nodes that the gang must not use.
    """

    def __init__(
        self,
        classes: Classes,
        rows: JobRows,
        wanted: int,
        occupied: Occupied,
        loose: Occupied,
        constraints: Iterable[Mapping[str, Any]] = (),
        barred: Collection[str] = (),
    ) -> None:
        requests = Requests.of(classes, rows, np.array([wanted]), constraints, [barred])
        problem = Problem.of(requests, occupied)
        self._problem = problem
        self._loose = loose
        self._gpus = int(requests.gpus[0])
        self._span = int(requests.span[0])
        nodes = problem.nodes
        numbering = classes.instance.cluster.numbering
        local = nodes.local()[loose.node]
        usable = local >= 0
        self._node = local[usable]
        self._owner = loose.owner[usable]
        self._share = loose.share[usable]
        # Positions of the GPUs in the flat table `Nodes.room`: loads are then one bincount.
        index = (loose.gpu - numbering.start[loose.node])[usable]
        self._spot = self._node * nodes.room.shape[1] + index
        use = classes.instance.cluster.members[:, loose.node].T * loose.group_need[loose.owner]
        self._group_use = np.zeros((len(loose), len(nodes.groups)))
        np.add.at(self._group_use, loose.owner, use)
        sets = [requests.sets[number] for number in requests.apart[0]]
        conflicting = np.concatenate([EMPTY, *sets])
        self._conflicts = np.isin(loose.job, conflicting) | np.isin(loose.partner, conflicting)

    def fits(self, gone: BoolArray) -> bool:
        """Whether the gang has room without the holders of a mask."""
        return choose(FreeRoom(self._without(gone)), 0, self._span) is not None

    def place_without(self, gone: IntArray) -> IntArray | None:
        """GPUs of the gang by best fit without some holders; None where it has no room."""
        problem = self._without(mask_of(gone, len(self._loose)))
        assignment = best_fit(problem, keep=True)
        return problem.gpu_numbers(assignment) if assignment else None

    @property
    def scattered(self) -> bool:
        """Whether as many GPUs are free now as the gang asks for, on any nodes."""
        return bool(self._now.gpus_with_room(0).sum() >= self._gpus)

    def needed(self, order: IntArray) -> IntArray | None:
        """Holders that must leave; None if there is no room even without all of ``order``.

        Of all sets that make room, it is the first one if sets are compared by their last holder in
        the order, then by their last but one, and so on. It need not be the smallest set.

        Parameters
        ----------
        order : IntArray
            Holders that may leave, the first choice first; all others stay.

        Returns
        -------
        IntArray
            Ascending.
        """
        gone = np.zeros(len(self._loose), bool)
        while (first := self._fewest(order, gone)) is not None:
            if not first:
                return gone.nonzero()[0]
            # The last of these holders must leave in any case. Those before it may not have to.
            gone[order[first - 1]] = True
            order = order[: first - 1]
        return None

    def _fewest(self, order: IntArray, gone: BoolArray) -> int | None:
        """The smallest k such that the gang has room if the first k holders in the order leave,
        besides those that are gone; None if there is none.
        """
        never = len(order) + 1
        turn = np.where(gone, 0, never)
        turn[order] = np.arange(1, never)
        least = self._least_turn(turn, never)
        if least > len(order) or not self.fits(turn <= len(order)):
            return None
        # Room never shrinks when more holders leave, so bisection finds the smallest number. The
        # first guess, the lower bound, is nearly always right.
        few, enough, guess = least - 1, len(order), least
        while enough - few > 1:
            few, enough = (few, guess) if self.fits(turn <= guess) else (guess, enough)
            guess = (few + enough) // 2
        return enough

    def _least_turn(self, turn: IntArray, never: int) -> int:
        """Lower bound on the turn at which the gang has room: only GPUs are counted.

        Parameters
        ----------
        turn : IntArray, shape (M,)
            The turn in which each holder leaves, from 0 on.
        never : int
            A turn after all others.
        """
        # A holder of a resource that several nodes share makes room on nodes where it has no GPU.
        if self._group_use.any():
            return 0
        share = float(self._problem.requests.share[0])
        least = 1.0 if share == 1.0 else share - ROUNDING
        cleared = self._problem.nodes.room
        of_spot = np.full(cleared.size, never)
        np.minimum.at(of_spot, self._spot, turn[self._owner])
        earliest = of_spot.reshape(cleared.shape)
        earliest[self._now.room >= least] = 0
        # GPUs that a holder which stays uses, and positions beyond the GPUs of a node.
        earliest[cleared < least] = never
        by_gpu = earliest[self._problem.of_pool(0)]
        by_place = np.sort(by_gpu, axis=1) if self._span == 1 else np.sort(by_gpu, axis=None)[None]
        enough = self._gpus <= by_place.shape[1]
        return int(by_place[:, self._gpus - 1].min(initial=never)) if enough else never

    def nearest(self) -> IntArray:
        """All holders that may leave, ordered so that the gang gets the nodes that lack the fewest
        GPUs, and few holders leave.
        """
        now = self._now.available(0)
        # GPUs that each node could give if all these holders left.
        cleared = FreeRoom(self._problem).available(0)
        if self._span == 1:
            lack = np.where(cleared >= self._gpus, self._gpus - now, np.inf)
        else:
            lack = np.where(cleared > 0, cleared - now, np.inf).astype(np.float64)
        far = np.zeros(len(self._loose))
        np.maximum.at(far, self._owner, lack[self._node])
        size = np.bincount(self._owner, minlength=len(self._loose))
        # Of equally near holders those that make room alone come first, the smallest of them first.
        alone = size >= np.minimum(far, self._gpus)
        return np.lexsort((np.where(alone, size, -size), ~alone, far)).astype(np.int64)

    @cached_property
    def _now(self) -> FreeRoom:
        """Free GPUs while no holder has left."""
        return FreeRoom(self._without(np.zeros(len(self._loose), bool)))

    def _without(self, gone: BoolArray) -> Problem:
        """The problem of the gang beside all holders but those of a mask."""
        nodes = self._problem.nodes
        loose = self._loose
        stays = ~gone[self._owner]
        owner = self._owner[stays]
        node = self._node[stays]
        shape = nodes.room.shape
        load = np.bincount(self._spot[stays], self._share[stays], nodes.room.size).reshape(shape)
        room = np.maximum(nodes.room - load, 0.0)
        # A job of an anti-affinity set of the gang closes its whole node.
        if self._conflicts.any():
            room[node[self._conflicts[owner]]] = 0.0
        own, group = nodes.own, nodes.group_capacity
        if loose.need.any():
            used = [np.bincount(node, need[owner], shape[0]) for need in loose.need.T]
            own = np.maximum(nodes.own - np.stack(used, axis=1), 0.0)
        if self._group_use.any():
            group = np.maximum(group - (~gone) @ self._group_use, 0.0)
        cut = None if nodes.cut is None else nodes.cut_beside(loose.part(~gone))
        nodes = replace(nodes, room=room, own=own, group_capacity=group, cut=cut)
        return replace(self._problem, nodes=nodes)
