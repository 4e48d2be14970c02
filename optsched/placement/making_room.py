"""Room for a row that found none: rows that have GPUs go elsewhere, or make way for it.

`Occupants` says who has which GPUs, and who of them may leave. First everybody is to run on: those
on the nodes that lack fewest GPUs go elsewhere, if all of them find room there. Failing that, as
few as can be make way, those that may go first before others. `Clearing` finds out who has to go.
Many plain gangs at once are moved by `optsched.placement.plain`, which is faster.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.candidates import Classes, JobRows
from optsched.placement.beside import place_beside
from optsched.placement.best_fit import State, choose
from optsched.placement.needs import members, needs_per_gpu
from optsched.placement.problem import Problem
from optsched.placement.requests import Requests
from optsched.placement.standing import Standing

TRIES = 4
"""Sets of others that are tried for going elsewhere, before some make way."""

GpusByRow = dict[int, tuple[str, ...]]
"""GPUs (``node/index``) by row."""


@dataclass(frozen=True)
class Change:
    """What is to change so that a row has room.

    Attributes
    ----------
    gpus : dict of row to GPUs
        Of the row, and of others that go elsewhere.
    out : tuple of int
        Rows that make way, and find no room elsewhere.
    """

    gpus: GpusByRow
    out: tuple[int, ...] = ()


@dataclass(frozen=True)
class Occupants:
    """Rows that have GPUs, and who of them may leave these.

    Attributes
    ----------
    classes : Classes
    rows : JobRows, A rows
    constraints : sequence of mappings
        Side constraints; those of kind ``anti-affinity`` are read.
    fixed : Standing
        What has GPUs and is in none of the rows.
    gpus : dict of row to GPUs
    movable : BoolArray, shape (A,)
        Rows that may leave their GPUs.
    place : IntArray, shape (A,)
        Place of each row in the order: those before others choose first where they go.
    running : IntArray, shape (A,)
        Running jobs that would be stopped or moved with each row.
    barred : callable
        Nodes that rows must not have.
    """

    classes: Classes
    rows: JobRows
    constraints: Sequence[Mapping[str, Any]]
    fixed: Standing
    gpus: GpusByRow
    movable: BoolArray
    place: IntArray
    running: IntArray
    barred: Callable[[IntArray], list[Collection[str]] | None]

    def make_room(self, row: int, victims: IntArray, most: float) -> Change | None:
        """How a row gets room; None if it cannot.

        Parameters
        ----------
        row : int
        victims : IntArray
            Rows that may make way for it, those first that are to go first.
        most : float
            Running jobs that may be stopped or moved, at most.
        """
        # Rows of other pools free nothing that this row could use.
        near = self._in_the_way(row)
        holder_of = {other: holder for holder, other in enumerate(near)}
        bars = self.barred(np.array([row]))
        clearing = Clearing(
            self.classes,
            self.rows,
            row,
            self._beside(near),
            self._standing(near),
            self.constraints,
            bars[0] if bars else (),
        )
        # Nobody has to stop if GPUs are free, but scattered, and others can go elsewhere.
        order = clearing.nearest()
        for _ in range(TRIES if clearing.scattered else 0):
            gone = clearing.needed(order)
            if gone is None:
                break
            change = self._without(row, [near[holder] for holder in gone.tolist()], most)
            if change is not None and not change.out:
                return change
            order = order[~np.isin(order, gone)]
        behind = [holder_of[other] for other in victims.tolist() if other in holder_of]
        gone = clearing.needed(np.array(behind, np.int64))
        if gone is None:
            return None
        return self._without(row, [near[holder] for holder in gone.tolist()], most)

    def _without(self, row: int, gone: list[int], most: float) -> Change | None:
        """Where a row, and then those that go for it in their order, get GPUs."""
        if self.running[gone].sum() > most:
            return None
        standing = self._beside(gone)
        found = self._placed([row], standing)
        if row not in found:
            return None
        # The row first: those that go take what it leaves.
        standing = standing.and_also(self._standing([row], found))
        in_order = sorted(gone, key=lambda other: int(self.place[other]))
        found |= self._placed(in_order, standing)
        return Change(found, tuple(other for other in gone if other not in found))

    def _placed(self, wanted: list[int], standing: Standing) -> GpusByRow:
        """GPUs of those rows that find room beside what stands."""
        if not wanted:
            return {}
        some = np.array(wanted, np.int64)
        found = place_beside(
            self.classes, self.rows, some, standing, self.constraints, barred=self.barred(some)
        )
        return dict(zip(found.row.tolist(), found.gpus, strict=True))

    def _in_the_way(self, row: int) -> list[int]:
        """Rows that may leave, and whose GPUs or needs can be in the way of one."""
        C = self.classes
        column = self.rows.column
        rows = np.array(list(self.gpus), np.int64)
        near = C.pool[column[rows]] == C.pool[column[row]]
        # A resource of some nodes joins the pools that these belong to.
        if needs_per_gpu(C, column[[row]])[1].any():
            near |= needs_per_gpu(C, column[rows])[1].any(axis=1)
        found: list[int] = rows[near & self.movable[rows]].tolist()
        return found

    def _beside(self, going: Collection[int]) -> Standing:
        """What has GPUs beside rows that go."""
        away = set(going)
        rows = [other for other in self.gpus if other not in away]
        return self.fixed.and_also(self._standing(rows)) if rows else self.fixed

    def _standing(self, rows: Sequence[int], gpus: GpusByRow | None = None) -> Standing:
        names = [(self.gpus if gpus is None else gpus)[row] for row in rows]
        return Standing.of_rows(self.classes, self.rows, np.array(rows, np.int64), names)


class Clearing:
    """Room for one gang beside what stands and stays, and beside as much of what may go as it leaves there.

    Parameters
    ----------
    classes : Classes
    rows : JobRows
        The allocation row by row.
    wanted : int
        The row that needs room.
    standing : Standing
        What stands and stays.
    loose : Standing
        What stands and may go, M holders.
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
        standing: Standing,
        loose: Standing,
        constraints: Iterable[Mapping[str, Any]] = (),
        barred: Collection[str] = (),
    ) -> None:
        requests = Requests.of(classes, rows, np.array([wanted]), constraints, [barred])
        problem = Problem.of(requests, requests.pool.tolist(), standing)
        self._problem = problem
        self._state = State(problem)
        self._loose = loose
        self._gpus = int(requests.gpus[0])
        self._span = int(requests.span[0])
        nodes = problem.nodes
        numbering = classes.instance.cluster.numbering
        local = nodes.local()[loose.node]
        here = local >= 0
        self._node = local[here]
        self._owner = loose.owner[here]
        self._spot = (
            self._node * nodes.room.shape[1] + (loose.gpu - numbering.start[loose.node])[here]
        )
        use = members(classes.instance)[:, loose.node].T * loose.group_need[loose.owner]
        self._group_use = np.zeros((len(loose), len(nodes.groups)))
        np.add.at(self._group_use, loose.owner, use)
        sets = [requests.sets[number] for number in requests.apart[0]]
        conflicting = np.concatenate([np.zeros(0, np.int64), *sets])
        self._conflicts = np.isin(loose.job, conflicting) | np.isin(loose.partner, conflicting)

    def fits(self, gone: BoolArray) -> bool:
        """Whether the gang has room once the holders of a mask are gone."""
        self._without(gone)
        return choose(self._state, 0, self._span) is not None

    @property
    def scattered(self) -> bool:
        """Whether as many GPUs are free as the gang asks for, wherever they are, while nobody is gone."""
        self._without(np.zeros(len(self._loose), bool))
        return bool(self._state.gpus_with_room(0).sum() >= self._gpus)

    def needed(self, order: IntArray) -> IntArray | None:
        """Holders that have to go; None if there is no room even without all that may go.

        Of all sets that make room it is the one whose last holder in the order comes first; of
        these the one whose second but last does, and so on.

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
        most = len(order)

        def enough(first: int) -> bool:
            mask = gone.copy()
            mask[order[:first]] = True
            return self.fits(mask)

        if not enough(most):
            return None
        while not enough(0):
            least = 0  # too few; `most` is enough
            while most - least > 1:
                # Room never shrinks when more holders go, so the smallest number that suffices is
                # bisected.
                half = (least + most) // 2
                least, most = (least, half) if enough(half) else (half, most)
            most -= 1
            gone[order[most]] = True
        return np.flatnonzero(gone)

    def nearest(self) -> IntArray:
        """All that may go, ordered so that the gang gets the nodes that lack fewest GPUs, by the fewest holders."""
        nothing = np.zeros(len(self._loose), bool)
        self._without(nothing)
        now = self._state.available(0)
        self._without(~nothing)
        # What each node could give if all went that may: the most that clearing it can bring.
        cleared = self._state.available(0)
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

    def _without(self, gone: BoolArray) -> None:
        """Let the state be what is left beside what stands and the holders that are not gone."""
        state = self._state
        nodes = self._problem.nodes
        loose = self._loose
        stays = ~gone[self._owner]
        owner = self._owner[stays]
        node = self._node[stays]
        shape = nodes.room.shape
        load = np.bincount(self._spot[stays], loose.share[owner], nodes.room.size).reshape(shape)
        # GPUs that a node does not have keep room 0.
        room: FloatArray = np.where(nodes.room > 0, np.maximum(nodes.room - load, 0.0), 0.0)
        if self._conflicts.any():
            room[node[self._conflicts[owner]]] = 0.0
        state.room = room
        state.free = np.asarray((room >= 1.0).sum(axis=1), np.int64)
        if loose.need.any() and self._problem.requests.need.any():
            used = [np.bincount(node, need[owner], shape[0]) for need in loose.need.T]
            state.own = np.maximum(nodes.own - np.stack(used, axis=1), 0.0)
        if self._group_use.any():
            state.group = np.maximum(nodes.group_capacity - (~gone) @ self._group_use, 0.0)
