"""Room for gangs of one node each, made by moving other such gangs, or by stopping them.

GPUs, CPUs and memory of a node are columns of one array, GPUs first; columns that no gang needs are
left out. One state of free amounts serves all rows that need room, one after the other. It changes
only when room was made.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray, group_rows, quotient
from optsched.placement.occupied import Occupied
from optsched.placement.problem import Nodes, consecutive
from optsched.placement.requests import Requests
from optsched.placement.shares import ROUNDING

GpusByRow = dict[int, IntArray]
"""GPUs of some rows, by their numbers in the cluster (`Cluster.numbering`)."""

NODES_TRIED = 8
"""Nodes that are tried for a gang before moving others is given up."""


@dataclass(frozen=True)
class RoomMade:
    """The changes that make room for a row.

    Attributes
    ----------
    gpus : dict of row to GPUs
        GPUs of the row, and new GPUs of the rows that move.
    out : tuple of int
        Rows that stop.
    """

    gpus: GpusByRow
    out: tuple[int, ...] = ()


class OneNodeRoom:
    """The gangs on each node, and the amounts that they leave free.

    The gangs are the holders of whole GPUs of one node, and the requests; a gang without GPUs is on
    node -1.

    Parameters
    ----------
    nodes : Nodes
        With the amounts that all held GPUs leave free.
    requests : Requests
        Requests that need room, each on one node (`Problem.on_one_node`).
    occupied : Occupied
        S holders of GPUs.
    row : IntArray, shape (S,)
        The row of each holder, -1 for a holder in no row.
    may_move : BoolArray, shape (rows,)
        Rows that may move to other nodes.
    running : IntArray, shape (rows,)
        Number of running jobs that are stopped or moved with each row. The caller sets it to 0
        once they are.
    """

    def __init__(
        self,
        nodes: Nodes,
        requests: Requests,
        occupied: Occupied,
        row: IntArray,
        may_move: BoolArray,
        running: IntArray,
    ) -> None:
        self._nodes = nodes
        # Jobs on a node that shrank hold more than it has: its free amounts are negative.
        free = nodes.instance.cluster.own_capacity - occupied.used
        left = np.column_stack([nodes.free, free[nodes.number]])
        self._open: BoolArray = nodes.room >= 1.0
        self._first_gpu = nodes.instance.cluster.numbering.start[nodes.number]
        gangs, node = _gangs_of_one_node(occupied, nodes.local())
        size = np.bincount(occupied.owner, minlength=len(occupied))
        gpus = np.concatenate([size[gangs], requests.gpus])
        need = np.concatenate([occupied.need[gangs], requests.need])
        amount = np.column_stack([gpus, gpus[:, None] * need])
        used = amount.any(axis=0)
        self._left: FloatArray = left[:, used]
        self._amount: FloatArray = amount[:, used]
        # Gangs with equal amounts.
        self._kinds = group_rows(list(self._amount.T), len(amount))
        self._node = np.concatenate([node, np.full(len(requests), -1, np.int64)])
        self._row = np.concatenate([row[gangs], requests.row])
        self._gang: IntArray = np.full(len(may_move), -1, np.int64)
        self._gang[self._row[self._row >= 0]] = (self._row >= 0).nonzero()[0]
        self._may_move = may_move[self._row] & (self._row >= 0)
        self._running = running
        # The GPUs of the holders are consecutive in `occupied`; GPUs that change are by gang.
        self._held = occupied.gpu
        self._first = (size.cumsum() - size)[gangs]
        self._given: dict[int, IntArray] = {}
        self._pool = dict(zip(requests.row.tolist(), requests.pool.tolist(), strict=True))

    def __contains__(self, row: object) -> bool:
        """Whether room can be made for a row here."""
        return row in self._pool

    def may_move(self, rows: IntArray) -> BoolArray:
        """Mask of the rows that have GPUs of one node and may move to another node."""
        gang = self._gang[rows]
        return np.asarray((gang >= 0) & (self._node[gang] >= 0) & self._may_move[gang])

    # --- free amounts ---------------------------------------------------------------------

    def _enough(self, gang: int) -> FloatArray:
        """GPUs, CPUs and memory that a gang needs, less the tolerance for rounding."""
        return np.asarray(self._amount[gang] * (1.0 - ROUNDING))

    def _fullest(self, left: FloatArray, gang: int) -> int | None:
        """The node with the fewest free GPUs on which a gang has room; the first of equal nodes."""
        room = np.flatnonzero((left >= self._enough(gang)).all(axis=1))
        return int(room[np.argmin(left[room, 0])]) if len(room) else None

    def _fit_somewhere(self, in_pool: slice) -> BoolArray:
        """Mask of the gangs that have room on some node of a pool, their own node included."""
        enough = self._amount[self._kinds.first] * (1.0 - ROUNDING)
        left = self._left[in_pool]
        fits = np.ones((len(enough), len(left)), bool)
        for least, free in zip(enough.T, left.T, strict=True):  # GPUs, CPUs and memory
            fits &= free >= least[:, None]
        return np.asarray(fits.any(axis=1))[self._kinds.inverse]

    # --- gangs are placed and removed -----------------------------------------------------

    def _take(self, gang: int, node: int) -> None:
        gpus = int(self._amount[gang, 0])
        chosen = np.sort(consecutive(self._open[[node]], gpus)[0, :gpus])
        self._open[node, chosen] = False
        self._left[node] -= self._amount[gang]
        self._node[gang] = node
        self._given[gang] = chosen + self._first_gpu[node]

    def _leave(self, gang: int) -> None:
        node = int(self._node[gang])
        self._open[node, self._gpus(gang) - self._first_gpu[node]] = True
        self._left[node] += self._amount[gang]
        self._node[gang] = -1

    def _gpus(self, gang: int) -> IntArray:
        if gang in self._given:
            return self._given[gang]
        first = int(self._first[gang])
        return self._held[first : first + int(self._amount[gang, 0])]

    def _made(self, gangs: list[int]) -> RoomMade:
        """The result of a change for these gangs."""
        seated = {int(self._row[g]): self._gpus(g) for g in gangs if self._node[g] >= 0}
        return RoomMade(seated, tuple(int(self._row[g]) for g in gangs if self._node[g] < 0))

    # --- room -----------------------------------------------------------------------------

    def clear_node_for(self, row: int, victims: IntArray, most: float) -> RoomMade | None:
        """Make room for a row and place it; None, without any change, if it is impossible.

        1. The row gets the fullest node that has room.
        2. Gangs of one node move to other nodes, whatever their position. The nodes that lack least
           are tried. The smallest gang that is enough moves, or else the largest gangs.
        3. Victims of one node give up their GPUs, the first choice first; those that find room on
           other nodes move there.

        Parameters
        ----------
        row : int
        victims : IntArray
            Rows that may be stopped, the first choice first.
        most : float
            Most running jobs that may be stopped or moved.
        """
        gang = int(self._gang[row])
        in_pool = self._nodes.of_pool(self._pool[row])
        node = self._fullest(self._left[in_pool], gang)
        if node is not None:
            self._take(gang, in_pool.start + node)
            return self._made([gang])
        scattered = bool((self._left[in_pool].sum(axis=0) >= self._enough(gang)).all())
        found = self._by_moving(gang, in_pool, most) if scattered else None
        if found is not None:
            return found
        among = self._gang[victims]
        on = self._node[among]
        among = among[(among >= 0) & (on >= in_pool.start) & (on < in_pool.stop)]
        return self._by_stopping(gang, in_pool, among, most)

    def _by_moving(self, gang: int, in_pool: slice, most: float) -> RoomMade | None:
        enough = self._enough(gang)
        lack = enough - self._left[in_pool]
        present = (self._node >= in_pool.start) & (self._node < in_pool.stop)
        mobile = (self._may_move & present & self._fit_somewhere(in_pool)).nonzero()[0]
        on = self._node[mobile] - in_pool.start
        could = [np.bincount(on, amount, len(lack)) for amount in self._amount[mobile].T]
        possible = np.flatnonzero((np.stack(could, axis=1) >= lack).all(axis=1))
        # The missing part of the scarcest amount.
        far = quotient(lack, np.broadcast_to(enough, lack.shape)).max(axis=1)
        nearest = possible[far[possible].argsort(kind="stable")][:NODES_TRIED]
        for node in nearest.tolist():
            leaving = self._leaving(mobile[on == node], lack[node])
            if self._jobs(leaving) > most:
                continue
            targets = self._targets(in_pool, node, leaving)
            if targets is None:
                continue
            for other in leaving:
                self._leave(other)
            for other, target in zip(leaving, targets, strict=True):
                self._take(other, target)
            self._take(gang, in_pool.start + node)
            return self._made([gang, *leaving])
        return None

    def _leaving(self, gangs: IntArray, lack: FloatArray) -> list[int]:
        """The smallest gang of a node that is enough, else the largest gangs until there is
        room.
        """
        amount = self._amount[gangs]
        alone = (amount >= lack).all(axis=1)
        if alone.any():
            return [int(gangs[alone][np.argmin(amount[alone, 0])])]
        part = quotient(amount, np.broadcast_to(np.maximum(lack, 0.0), amount.shape))
        covers = np.minimum(part, 1.0).sum(axis=1)
        largest = np.lexsort((-gangs, -covers))
        given = amount[largest].cumsum(axis=0)
        count = int(np.argmax((given >= lack).all(axis=1))) + 1
        leaving: list[int] = gangs[largest[:count]].tolist()
        return leaving

    def _targets(self, in_pool: slice, node: int, leaving: list[int]) -> list[int] | None:
        """Another node for each gang that leaves: in turn the one with the fewest free GPUs."""
        left = self._left[in_pool].copy()
        left[node] = -np.inf
        targets = []
        for gang in leaving:
            target = self._fullest(left, gang)
            if target is None:
                return None
            left[target] -= self._amount[gang]
            targets.append(in_pool.start + target)
        return targets

    def _by_stopping(
        self, gang: int, in_pool: slice, victims: IntArray, most: float
    ) -> RoomMade | None:
        node = self._cleared_first(gang, victims)
        if node is None:
            return None
        gone = self._needed(gang, victims[self._node[victims] == node], node)
        if self._jobs(gone) > most:
            return None
        for other in gone:
            self._leave(other)
        self._take(gang, node)
        # The last choice for stopping, listed first, is the first to get another node.
        for other in gone:
            target = self._fullest(self._left[in_pool], other) if self._may_move[other] else None
            if target is not None:
                self._take(other, in_pool.start + target)
        return self._made([gang, *gone])

    def _jobs(self, gangs: list[int]) -> int:
        """Number of running jobs that are stopped or moved with some gangs."""
        return int(self._running[self._row[gangs]].sum())

    def _cleared_first(self, gang: int, victims: IntArray) -> int | None:
        """The node that is the first to have room for a gang if victims leave one by one."""
        in_turn = self._node[victims].argsort(kind="stable")
        node = self._node[victims[in_turn]]
        given = self._amount[victims[in_turn]].cumsum(axis=0)
        # Cumulative sums within each node: sums over the nodes before are subtracted.
        first = node.searchsorted(node)
        before = np.concatenate([np.zeros((1, given.shape[1])), given])[first]
        room = (self._left[node] + given - before >= self._enough(gang)).all(axis=1)
        return int(node[room][np.argmin(in_turn[room])]) if room.any() else None

    def _needed(self, gang: int, victims: IntArray, node: int) -> list[int]:
        """The victims of a node that must leave, in reverse order: a victim is spared if those
        before it are enough.
        """
        lack = self._enough(gang) - self._left[node]
        given = self._amount[victims].cumsum(axis=0)
        count = int(np.argmax((given >= lack).all(axis=1)))
        gone = []
        for place in range(count, -1, -1):
            before = given[place - 1] if place else np.zeros_like(lack)
            if not (before >= lack).all():
                gone.append(int(victims[place]))
                lack = lack - self._amount[victims[place]]
        return gone


def _gangs_of_one_node(occupied: Occupied, local: IntArray) -> tuple[IntArray, IntArray]:
    """Holders of whole GPUs of one node that need no resource which several nodes share, and their
    nodes by ``local`` number; holders on other nodes (-1) are left out.
    """
    owner, node = occupied.owner, occupied.node
    # GPUs are listed by owner: two neighbours of one owner on different nodes are a spanning gang.
    spans_nodes = (owner[1:] == owner[:-1]) & (node[1:] != node[:-1])
    one_node: BoolArray = np.asarray(~occupied.group_need.any(axis=1))
    one_node[owner[occupied.share < 1.0]] = False
    one_node[owner[1:][spans_nodes]] = False
    node_of = np.full(len(occupied), -1, np.int64)
    node_of[owner] = local[node]
    gangs = (one_node & (node_of >= 0)).nonzero()[0]
    return gangs, node_of[gangs]
