"""Placement in a round: GPUs for rows that start, and room that is made for them.

1. `place_beside` gives free GPUs to rows that start; everything else stays where it is. No program
   is solved and no bound is computed, so that it costs no more than a round may take.
2. `Occupants.make_room` makes room for one row after the other: others go elsewhere, or make way
   for it. Rows of one node have one state of what is left (`optsched.placement.one_node`). For rows
   that span nodes, share GPUs, need what several nodes share or must be apart from others,
   `Clearing` finds out who has to go.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from optsched.arrays import EMPTY, BoolArray, FloatArray, IntArray, mask_of, ranges
from optsched.candidates import Classes, JobRows
from optsched.instance.cluster import Numbering
from optsched.placement.best_fit import FreeRoom, best_fit, choose, why_refused
from optsched.placement.occupied import Occupied, refuse_placed_twice
from optsched.placement.one_node import GpusByRow, OneNodeRoom, RoomMade
from optsched.placement.problem import Problem
from optsched.placement.requests import Requests, anti_affinity_sets, needs_per_gpu
from optsched.placement.shares import ROUNDING

SETS_TRIED = 4
"""Sets of others that are tried for going elsewhere, before some make way."""


# --- rows that start --------------------------------------------------------------------------


class RefusedRow(NamedTuple):
    """A row without a place.

    Attributes
    ----------
    row : int
        Row of the allocation.
    reason : str
        What it needs, and what is free.
    scattered : bool
        Its pool has as many free GPUs as it asks for, but not where it needs them: moving
        others may make room.
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
        Rows of the allocation that have a place, in the order in which they were wanted.
    gpu : IntArray, shape (F,)
        Their GPUs, row by row, by their numbers in the cluster.
    count : IntArray, shape (P,)
        How many GPUs each row has.
    refused : tuple of RefusedRow
        Rows that found none, in that order.
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

    def by_row(self) -> GpusByRow:
        """The GPUs of each row, by its number."""
        last = np.cumsum(self.count)
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
) -> PlacedRows:
    """GPUs for rows that start, while all others stay where they are.

    Best fit (`optsched.placement.best_fit`) on what is left: larger gangs first, of equal ones
    those that need more CPUs, then more memory, then those that are wanted first. A gang without
    room may push smaller ones that start as well. A row that is refused fits nowhere beside
    occupied GPUs and what has got a place (where no node belongs to two of the resources of some
    nodes); another choice of places, or moving others (`Occupants`), may still have
    room for it.

    Parameters
    ----------
    classes : Classes
    rows : JobRows
        The allocation row by row.
    wanted : IntArray, shape (W,)
        Rows that start, the most important first; those without GPUs need no place and are left
        out.
    occupied : Occupied
        GPUs that are held. Nodes that take no work keep their jobs and get no new ones.
    constraints : iterable of mappings
        Side constraints; those of kind ``anti-affinity`` are read, for rows that start and jobs
        that have GPUs.
    barred : sequence of collections of str, length W, optional
        Names of nodes of which each row gets nothing.

    Returns
    -------
    PlacedRows
        The same for the same arguments.

    Raises
    ------
    ValueError
        A job is wanted twice, or has GPUs already.
    UsageError
        ``barred`` has another length, or names that are no nodes.
    """
    requests = Requests.of(classes, rows, np.asarray(wanted, np.int64), constraints, barred)
    jobs = requests.jobs_of_all
    twice = np.flatnonzero(np.bincount(jobs) > 1)
    if len(twice):
        name = classes.instance.jobs_table.names[int(twice[0])]
        raise ValueError(f"job {name} is to be placed twice")
    refuse_placed_twice(occupied, jobs)
    problem = Problem.of(requests, np.unique(requests.pool).tolist(), occupied)
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


class ColumnsWithRoom(NamedTuple):
    """What one more job alone could have beside occupied GPUs.

    Attributes
    ----------
    mask : BoolArray, shape (N,)
        Columns in which it finds room.
    gpus : FloatArray, shape (pools,)
        What is free of the GPUs of those nodes that have room for it.
    """

    mask: BoolArray
    gpus: FloatArray


def columns_with_room(classes: Classes, column: IntArray, occupied: Occupied) -> ColumnsWithRoom:
    """Columns in which a job that has no GPUs yet finds room beside occupied ones.

    Only of the given columns; other columns are False. Anti-affinity and barred nodes may still
    keep a job out.
    """
    mask = np.zeros(classes.columns, bool)
    pools = len(classes.instance.cluster.pools)
    if not len(column):
        return ColumnsWithRoom(mask, np.zeros(pools))
    requests = Requests.of_columns(classes, column)
    problem = Problem.of(requests, np.unique(requests.pool).tolist(), occupied)
    mask[column[requests.row[problem.fewest > 0]]] = True
    nodes = problem.nodes
    free = nodes.room[problem.open].sum(axis=1)
    by_pool = np.bincount(nodes.pool[problem.open], free, pools).astype(np.float64, copy=False)
    return ColumnsWithRoom(mask, by_pool)


# --- room for one row of any kind -------------------------------------------------------------


class GpusOfRows:
    """Which rows of a queue have GPUs; a row gets some, may leave them, and may get others.

    All GPUs that were ever given out stay in one array. `first` and `count` say which part of it a
    row holds now, so that the GPUs of many rows are read in one pass.

    Attributes
    ----------
    first, count : IntArray, shape (A,)
        The place of the first GPU of each row, and how many it has (0 for one that needs none).
    changes : int
        How often rows got GPUs or left them.
    """

    def __init__(self, rows: int) -> None:
        self.first: IntArray = np.zeros(rows, np.int64)
        self.count: IntArray = np.zeros(rows, np.int64)
        self._gpu: IntArray = EMPTY
        self.changes = 0
        # Since which turn each row runs, -1 for those that do not.
        self._since: IntArray = np.full(rows, -1, np.int64)
        self._turn = 0

    @property
    def runs(self) -> BoolArray:
        """Mask of the rows that run, shape (A,)."""
        return self._since >= 0

    @cached_property
    def rows(self) -> IntArray:
        """Rows that run, those first that came first."""
        rows = np.flatnonzero(self._since >= 0)
        return rows[np.argsort(self._since[rows])]

    @cached_property
    def with_gpus(self) -> IntArray:
        """Those of them that have GPUs."""
        rows = self.rows
        return rows[self.count[rows] > 0]

    def give(self, rows: IntArray, gpu: IntArray, count: IntArray) -> None:
        """Give rows these GPUs, listed row by row, in the place of what they have."""
        self.first[rows] = len(self._gpu) + np.cumsum(count) - count
        self.count[rows] = count
        self._gpu = np.concatenate([self._gpu, gpu])
        # A row that only moves keeps its turn.
        new = rows[self._since[rows] < 0]
        self._since[new] = self._turn + np.arange(len(new))
        self._turn += len(new)
        self._changed()

    def give_each(self, gpus: GpusByRow) -> None:
        """The same for GPUs by row."""
        if gpus:
            count = np.array(list(map(len, gpus.values())), np.int64)
            self.give(np.array(list(gpus), np.int64), np.concatenate(list(gpus.values())), count)

    def leave(self, rows: Sequence[int]) -> None:
        """Take the GPUs of rows that stop."""
        self._since[list(rows)] = -1
        self.count[list(rows)] = 0
        self._changed()

    def _changed(self) -> None:
        """Forget which rows run."""
        self.changes += 1
        for name in ("rows", "with_gpus"):
            self.__dict__.pop(name, None)

    def gpus(self, rows: IntArray) -> tuple[IntArray, IntArray]:
        """GPUs of some rows, row by row, and how many each has."""
        count = self.count[rows]
        return self._gpu[ranges(self.first[rows], count)], count


@dataclass
class Occupants:
    """Rows that have GPUs, and which of them may be moved or stopped for others.

    Attributes
    ----------
    classes : Classes
    rows : JobRows, A rows
    constraints : sequence of mappings
        Side constraints; those of kind ``anti-affinity`` are read.
    fixed : Occupied
        What has GPUs and is in none of the rows.
    seats : GpusOfRows
    movable : BoolArray, shape (A,)
        Rows that may leave their GPUs.
    position : IntArray, shape (A,)
        Position of each row in the order: those before others choose first where they go.
    running : IntArray, shape (A,)
        Running jobs that would be stopped or moved with each row.
    barred : callable
        Nodes that rows must not have.
    wanted : IntArray
        Rows for which room may be made.
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

    def make_room(self, row: int, victims: IntArray, most: float) -> RoomMade | None:
        """Give a row room and say what has changed; None, and nothing has, if it cannot be.

        Any movable row may go elsewhere for it, whatever its position. Only victims may stop.

        Parameters
        ----------
        row : int
            One of those ``wanted``.
        victims : IntArray
            Rows that may stop for it if they find no room elsewhere, those first that are to go
            first.
        most : float
            Running jobs that may be stopped or moved, at most.
        """
        one_node = self._one_node
        change = one_node.clear_node_for(row, victims, most) if row in one_node else None
        if change is None and not (row in one_node and self._knows_all(row)):
            change = self._clear_nodes_for(row, victims, most)
            if change is not None:
                del self._one_node  # it does not know of this change
        if change is not None:
            self.seats.give_each(change.gpus)
            # They may be tried again in other rows.
            self.seats.leave(change.out)
        return change

    def _knows_all(self, row: int) -> bool:
        """Whether all who may leave GPUs of the pool of a row hold and need one node each."""
        C = self.classes
        seated = self.seats.with_gpus
        column = self.rows.column[seated]
        pool = C.pool[self.rows.column[row]]
        others = seated[self.movable[seated] & (C.pool[column] == pool)]
        one_node = C.configurations.nodes[C.configuration[self.rows.column[others]]] <= 1
        return bool((one_node & self._one_node.may_move(others)).all())

    @cached_property
    def _one_node(self) -> OneNodeRoom:
        """The state that serves rows of one node that need not be apart from others."""
        seated = self.seats.with_gpus
        held = self.fixed.and_also(self._on(seated, *self.seats.gpus(seated)))
        wanted = self.wanted
        barred = self.barred(wanted)
        requests = Requests.of(self.classes, self.rows, wanted, self.constraints, barred)
        problem = Problem.of(requests, np.unique(requests.pool).tolist(), held)
        some = np.flatnonzero(problem.on_one_node & (requests.span == 1))
        row = np.concatenate([np.full(len(self.fixed), -1, np.int64), seated])
        may_move = self._may_move(seated)
        return OneNodeRoom(problem.nodes, requests.take(some), held, row, may_move, self.running)

    def _may_move(self, seated: IntArray) -> BoolArray:
        """Rows that may have any node, if they may leave theirs; shape (A,)."""
        mask = self.movable.copy()
        barred = self.barred(seated)
        if barred is not None:
            mask[seated[[bool(names) for names in barred]]] = False
        for jobs in anti_affinity_sets(self.classes, self.constraints):
            mask &= ~(np.isin(self.rows.job, jobs) | np.isin(self.rows.partner, jobs))
        return mask

    def _clear_nodes_for(self, row: int, victims: IntArray, most: float) -> RoomMade | None:
        """How a row of any kind gets room."""
        near, in_the_way = self._near(row)
        held = self.fixed.around(int(self.classes.pool[self.rows.column[row]]))
        firm = len(held)
        held = held.and_also(self._on(near, *self.seats.gpus(near)))
        loose = near[in_the_way]
        may_go = np.append(np.zeros(firm, bool), in_the_way)
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
        # Nobody has to stop if GPUs are free, but scattered, and others can go elsewhere.
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
        """A row on its GPUs, and those that go for it beside what stays, where they find room."""
        found = {row: gpus}
        if len(gone):
            # The row first: those that go take what it leaves.
            occupied = stay.and_also(self._on(np.array([row]), gpus, np.array([len(gpus)])))
            found |= self._placed(gone[np.argsort(self.position[gone])], occupied)
        return RoomMade(found, tuple(other for other in gone.tolist() if other not in found))

    def _placed(self, wanted: IntArray, occupied: Occupied) -> GpusByRow:
        """GPUs of those rows that find room beside occupied GPUs."""
        return place_beside(
            self.classes,
            self.rows,
            wanted,
            occupied,
            self.constraints,
            barred=self.barred(wanted),
        ).by_row()

    def _near(self, row: int) -> tuple[IntArray, BoolArray]:
        """Rows with GPUs that matter where one gets room,
        and which of them may leave theirs for it.

        Rows of other pools free nothing that it could use, but a resource of some nodes joins the
        pools that these belong to.
        """
        C = self.classes
        column = self.rows.column
        rows = self.seats.with_gpus
        in_pool = C.pool[column[rows]] == C.pool[column[row]]
        needs_group = needs_per_gpu(C, column[rows])[1].any(axis=1)
        in_the_way = in_pool
        if needs_per_gpu(C, column[[row]])[1].any():
            in_the_way = in_pool | needs_group
        near = in_pool | needs_group
        return rows[near], (in_the_way & self.movable[rows])[near]

    def _on(self, rows: IntArray, gpu: IntArray, count: IntArray) -> Occupied:
        return Occupied.of_numbers(self.classes, self.rows, rows, gpu, count)


class Clearing:
    """Which of some holders have to give up their GPUs so that one gang has room.

    Parameters
    ----------
    classes : Classes
    rows : JobRows
        The allocation row by row.
    wanted : int
        The row that needs room.
    occupied : Occupied
        What has GPUs and stays.
    loose : Occupied
        What may go, M holders.
    constraints : iterable of mappings
        Side constraints; those of kind ``anti-affinity`` are read.
    barred : collection of str
        Nodes of which it gets nothing.
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
        problem = Problem.of(requests, requests.pool.tolist(), occupied)
        self._problem = problem
        self._loose = loose
        self._gpus = int(requests.gpus[0])
        self._span = int(requests.span[0])
        nodes = problem.nodes
        numbering = classes.instance.cluster.numbering
        local = nodes.local()[loose.node]
        here = local >= 0
        self._node = local[here]
        self._owner = loose.owner[here]
        # GPUs by their place in the flat table of `Nodes.room`: loads are one bincount.
        self._spot = (
            self._node * nodes.room.shape[1] + (loose.gpu - numbering.start[loose.node])[here]
        )
        use = classes.instance.cluster.members[:, loose.node].T * loose.group_need[loose.owner]
        self._group_use = np.zeros((len(loose), len(nodes.groups)))
        np.add.at(self._group_use, loose.owner, use)
        sets = [requests.sets[number] for number in requests.apart[0]]
        conflicting = np.concatenate([EMPTY, *sets])
        self._conflicts = np.isin(loose.job, conflicting) | np.isin(loose.partner, conflicting)

    def fits(self, gone: BoolArray) -> bool:
        """Whether the gang has room once the holders of a mask are gone."""
        return choose(FreeRoom(self._without(gone)), 0, self._span) is not None

    def place_without(self, gone: IntArray) -> IntArray | None:
        """GPUs of the gang by best fit once some holders are gone; None where it has no room."""
        problem = self._without(mask_of(gone, len(self._loose)))
        assignment = best_fit(problem, keep=True)
        return problem.gpu_numbers(assignment) if assignment else None

    @property
    def scattered(self) -> bool:
        """Whether as many GPUs are free as the gang asks for,
        wherever they are, while nobody is gone.
        """
        return bool(self._now.gpus_with_room(0).sum() >= self._gpus)

    def needed(self, order: IntArray) -> IntArray | None:
        """Holders that have to go; None if there is no room even without all that may go.

        Sets that make room are compared by their last holder in the order, then by their last but
        one, and so on: the one whose holders come first is taken, even if it is a larger set.

        Parameters
        ----------
        order : IntArray
            Holders that may go, those first that are to go first; the others stay.

        Returns
        -------
        IntArray
            Ascending.
        """
        gone = np.zeros(len(self._loose), bool)
        while (first := self._fewest(order, gone)) is not None:
            if not first:
                return np.flatnonzero(gone)
            # Without the last of the first ones there is no room. Those before it may not be needed.
            gone[order[first - 1]] = True
            order = order[: first - 1]
        return None

    def _fewest(self, order: IntArray, gone: BoolArray) -> int | None:
        """How many of the first holders in the order must go, besides those gone already;
        None if all are too few.
        """
        never = len(order) + 1
        turn = np.where(gone, 0, never)
        turn[order] = np.arange(1, never)
        least = self._least_turn(turn, never)
        if least > len(order):
            return None
        if not self.fits(turn <= len(order)):
            return None
        # Room never shrinks when more holders go, so the smallest number is bisected. The first
        # guess, the lower bound, is nearly always right.
        few, enough, guess = least - 1, len(order), least
        while enough - few > 1:
            few, enough = (few, guess) if self.fits(turn <= guess) else (guess, enough)
            guess = (few + enough) // 2
        return enough

    def _least_turn(self, turn: IntArray, never: int) -> int:
        """The first turn at which the gang can have room, if only GPUs count: a lower bound.

        Parameters
        ----------
        turn : IntArray, shape (M,)
            When each holder goes, from 0 on.
        never : int
            A later turn.
        """
        # A holder may make room on nodes where it has no GPU: it leaves a resource of several nodes.
        if self._group_use.any():
            return 0
        share = float(self._problem.requests.share[0])
        least = 1.0 if share == 1.0 else share - ROUNDING
        cleared = self._problem.nodes.room
        of_spot = np.full(cleared.size, never)
        np.minimum.at(of_spot, self._spot, turn[self._owner])
        earliest = of_spot.reshape(cleared.shape)
        earliest[self._now.room >= least] = 0
        # GPUs of which somebody who stays has a part, and those that a node does not have.
        earliest[cleared < least] = never
        by_gpu = earliest[self._problem.of_pool(0)]
        by_place = np.sort(by_gpu, axis=1) if self._span == 1 else np.sort(by_gpu, axis=None)[None]
        enough = self._gpus <= by_place.shape[1]
        return int(by_place[:, self._gpus - 1].min(initial=never)) if enough else never

    def nearest(self) -> IntArray:
        """All that may go, ordered so that the gang gets the nodes
        that lack fewest GPUs, by the fewest holders.
        """
        now = self._now.available(0)
        # What each node could give if all went that may: the most that clearing it can bring.
        cleared = FreeRoom(self._problem).available(0)
        if self._span == 1:
            lack = np.where(cleared >= self._gpus, self._gpus - now, np.inf)
        else:
            lack = np.where(cleared > 0, cleared - now, np.inf).astype(np.float64)
        far = np.zeros(len(self._loose))
        np.maximum.at(far, self._owner, lack[self._node])
        size = np.bincount(self._owner, minlength=len(self._loose))
        # Of holders equally near those come first that make room alone, the smallest of them first.
        alone = size >= np.minimum(far, self._gpus)
        return np.lexsort((np.where(alone, size, -size), ~alone, far)).astype(np.int64)

    @cached_property
    def _now(self) -> FreeRoom:
        """What is left while nobody is gone."""
        return FreeRoom(self._without(np.zeros(len(self._loose), bool)))

    def _without(self, gone: BoolArray) -> Problem:
        """The gang beside occupied GPUs and the holders that are not gone."""
        nodes = self._problem.nodes
        loose = self._loose
        stays = ~gone[self._owner]
        owner = self._owner[stays]
        node = self._node[stays]
        shape = nodes.room.shape
        load = np.bincount(self._spot[stays], loose.share[owner], nodes.room.size).reshape(shape)
        # GPUs that a node does not have keep room 0.
        room = np.where(nodes.room > 0, np.maximum(nodes.room - load, 0.0), 0.0)
        # Jobs that the gang must be apart from close their whole nodes to it.
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
