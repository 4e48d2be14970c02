"""Which of what stands has to go so that one gang finds room: the least of it, by the order in which it may go."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.candidates import Classes, JobRows
from optsched.placement.best_fit import State, choose
from optsched.placement.needs import members
from optsched.placement.problem import Problem
from optsched.placement.requests import Requests
from optsched.placement.standing import Standing


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
        self._problem, self._state, self._loose = problem, State(problem), loose
        self._gpus, self._span = int(requests.gpus[0]), int(requests.span[0])
        nodes, numbering = problem.nodes, classes.instance.cluster.numbering
        local = nodes.local()[loose.node]
        here = local >= 0
        self._node, self._owner = local[here], loose.owner[here]
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

        Of all sets that make room it is the one whose last holder in the order comes first; of these the one whose
        second but last does, and so on.

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
        cleared = self._state.available(0)
        if self._span == 1:
            lack = np.where(cleared >= self._gpus, self._gpus - now, np.inf)
        else:
            lack = np.where(cleared > 0, cleared - now, np.inf).astype(np.float64)
        far = np.zeros(len(self._loose))
        np.maximum.at(far, self._owner, lack[self._node])
        size = np.bincount(self._owner, minlength=len(self._loose))
        alone = size >= np.minimum(far, self._gpus)
        return np.lexsort((np.where(alone, size, -size), ~alone, far)).astype(np.int64)

    def _without(self, gone: BoolArray) -> None:
        """Let the state be what is left beside what stands and the holders that are not gone."""
        state, nodes, loose = self._state, self._problem.nodes, self._loose
        stays = ~gone[self._owner]
        owner, node, shape = self._owner[stays], self._node[stays], nodes.room.shape
        load = np.bincount(self._spot[stays], loose.share[owner], nodes.room.size).reshape(shape)
        # GPUs that a node does not have keep room 0.
        room: FloatArray = np.where(nodes.room > 0, np.maximum(nodes.room - load, 0.0), 0.0)
        if self._conflicts.any():
            room[node[self._conflicts[owner]]] = 0.0
        state.room, state.free = room, np.asarray((room >= 1.0).sum(axis=1), np.int64)
        if loose.need.any() and self._problem.requests.need.any():
            used = [np.bincount(node, need[owner], shape[0]) for need in loose.need.T]
            state.own = np.maximum(nodes.own - np.stack(used, axis=1), 0.0)
        if self._group_use.any():
            state.group = np.maximum(nodes.group_capacity - (~gone) @ self._group_use, 0.0)
