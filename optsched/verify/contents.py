"""Contents of nodes at the prices of a solution: the largest worth of what a node, or a shared GPU,
holds.

Where contents of nodes are priced (`optsched.program.space`), the duals of a file have a price v_p
of room for every part p on nodes of a class, and a price s of such a node. They bound all
placements if no contents are worth more than their bin costs:

    max { v'z : A z <= room, 0 <= z <= most, z whole }  <=  s

with rows for CPUs, memory, sets of jobs that are kept apart, parts of one numbered gang, the sum of
all shares, and for every share s of some part at most floor(1 / s) pieces of that size on a GPU.
Branch and bound here: of the linear programs of its nodes only the row multipliers are taken from a
solver, and the bound that they prove is added up.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.program import LinearArrays, LinearProgram, Space
from optsched.program.space.contents import GangPart
from optsched.solvers import Limits, Session
from optsched.solvers.highs import Highs

SLACK = 1e-9
"""Relative slack of capacities and of shares of a GPU."""
BRANCHES = 20_000
"""Linear programs that are solved for one kind of contents at most."""


class PricedNodes(NamedTuple):
    """Duals with prices of nodes that no contents exceed.

    Attributes
    ----------
    y : FloatArray, shape (rows,)
        The given duals; where contents are worth more than a node costs, it costs what they are
        worth.
    finished : bool
        Whether no search for contents was cut off.
    """

    y: FloatArray
    finished: bool


def price_nodes(space: Space, arrays: LinearArrays, y: FloatArray) -> PricedNodes:
    """Make nodes cost what their best contents are worth, if they cost less.

    Parameters
    ----------
    space : Space
    arrays : LinearArrays
        The program with the space, without contents.
    y : FloatArray, shape (rows,)
        Duals of its rows.
    """
    sign = 1.0 if arrays.maximise else -1.0
    paid = sign * y
    shape = len(space.nodes), len(space.parts)
    price = paid[arrays.row_block("node").slice].reshape(shape)  # views
    cost = paid[arrays.row_block("count").slice]
    np.maximum(price, 0.0, out=price)
    np.maximum(cost, 0.0, out=cost)
    known: dict[tuple[int, bool], _Room] = {}
    finished = True

    def worth(r: int, of_gpu: bool, allowed: IntArray, paid_for: float) -> float:
        nonlocal finished
        key = int(space.nodes.contents[r]), of_gpu
        if key not in known:
            whole = [1.0] * (1 if of_gpu else int(space.nodes.gpus[r]))
            left = [] if of_gpu else [room.left for room in space.nodes.rooms[r]]
            known[key] = _Room.of(space, r, [*whole, *left], allowed)
        most, proved = known[key].most_worth(price[r, allowed], paid_for)
        finished &= proved
        return most

    for r, kind in enumerate(space.nodes.contents.tolist()):
        node, gpu, one_gpu = space.bins[kind]
        if gpu is not None:
            # Shares take the place of a whole GPU, which costs what they are worth.
            price[r, one_gpu] = worth(r, True, gpu.allowed, float(price[r, one_gpu]))
        cost[r] = worth(r, False, node.allowed, float(cost[r]))
    return PricedNodes(sign * paid, finished)


class _Room(NamedTuple):
    """The room of one node, or of one GPU.

    Attributes
    ----------
    A : FloatArray, shape (rows, parts)
    room : FloatArray, shape (rows,)
    most : FloatArray, shape (parts,)
        Of each part at most.
    smaller : BoolArray, shape (parts, parts)
        Whether the first part takes no more of anything than the second one, and jobs have enough
        of it.
    session : Session
        Of the linear program.
    """

    A: FloatArray
    room: FloatArray
    most: FloatArray
    smaller: BoolArray
    session: Session

    @classmethod
    def of(cls, space: Space, r: int, left: list[float], allowed: IntArray) -> _Room:
        """Of a node of a class, or of one of its GPUs; with what is left of each GPU."""
        parts = [space.parts[p] for p in allowed.tolist()]
        A, room = _rows(parts, left, space.nodes.own[r], space.nodes.taken[:, r])
        with np.errstate(divide="ignore", invalid="ignore"):
            fits = np.where(A > 0, np.floor(room[:, np.newaxis] / A + SLACK), np.inf).min(axis=0)
        kind = space.bins[int(space.nodes.contents[r])]
        jobs = kind.node.most[allowed]
        smaller = np.asarray((A[:, :, np.newaxis] <= A[:, np.newaxis, :]).all(axis=0), bool)
        smaller &= (jobs > fits)[:, np.newaxis]
        most = np.minimum(fits, jobs)
        lp = LinearProgram()
        z = lp.variables(len(parts), name="contents", upper=most)
        lp.constrain(A @ z <= room, name="room")
        return cls(A, room, most, smaller, Highs().open(lp.arrays))

    def most_worth(self, price: FloatArray, enough: float) -> tuple[float, bool]:
        """The most that contents are worth, or ``enough`` where that is more; and whether it is
        shown.

        Of a search that is cut off it is a bound.
        """
        if not (price > 0).any():
            return enough, True
        upper = np.where(self._replaced(price), 0.0, self.most)
        self.session.set_cost(-price)
        best = enough
        slack = SLACK * max(float(price @ upper), enough)
        open_ = [(np.zeros(len(price)), upper, np.inf)]
        tried = 0
        while open_:
            lower, upper, known = open_.pop()
            if known <= best + slack:
                continue
            if tried == BRANCHES:
                return max(best, known, *(bound for _, _, bound in open_)), False
            tried += 1
            x, bound = self._relaxed(price, lower, upper)
            if bound <= best + slack:
                continue
            # Bounds without room have the bound -inf: here the solver failed.
            if x is None:
                return max(best, bound, *(bound for _, _, bound in open_)), False
            part = int(np.abs(x - np.round(x)).argmax())
            if abs(x[part] - np.round(x[part])) < 1e-6:
                # Whole contents that are worth more: a solver's point is rounded, so its bound
                # counts.
                best = max(best, bound)
                continue
            down, up = upper.copy(), lower.copy()
            down[part], up[part] = np.floor(x[part]), np.ceil(x[part])
            open_ += [(lower, down, bound), (up, upper, bound)]
        return best, True

    def _relaxed(
        self, price: FloatArray, lower: FloatArray, upper: FloatArray
    ) -> tuple[FloatArray | None, float]:
        """A point of the linear program within bounds, None for none; and the bound that its
        multipliers prove.
        """
        if (self.A @ lower > self.room * (1 + SLACK)).any():
            return None, -np.inf
        self.session.set_bounds(lower, upper)
        values = self.session.run(Limits())
        y = np.zeros(len(self.room)) if values.y is None else np.maximum(-values.y, 0.0)
        reduced = price - self.A.T @ y
        bound = float(y @ self.room + np.maximum(reduced * lower, reduced * upper).sum())
        return values.x, bound

    def _replaced(self, price: FloatArray) -> BoolArray:
        """Parts that another part dominates: it takes no more of anything and is worth as much."""
        first = np.tri(len(price), k=-1, dtype=bool).T
        better = price[:, np.newaxis] > price
        alike = self.smaller & self.smaller.T
        equal = (price[:, np.newaxis] == price) & (~alike | first)
        found: BoolArray = (self.smaller & (better | equal)).any(axis=0)
        return found


def _rows(
    parts: list[GangPart], left: list[float], own: FloatArray, taken: BoolArray
) -> tuple[FloatArray, FloatArray]:
    """Rows that all contents of a bin keep, and their limits, with what is left of each GPU."""
    count = np.array([part.gpus for part in parts], np.float64)
    share = np.array([part.share for part in parts])
    rows: list[FloatArray] = [count * share]
    room = [sum(left) * (1 + SLACK)]
    for place, capacity in enumerate(own.tolist()):
        if np.isfinite(capacity):
            rows.append(count * np.array([part.need[place] for part in parts]))
            room.append(capacity * (1 + SLACK))
    for number, there in enumerate(taken.tolist()):
        rows.append(np.array([float(number in part.apart) for part in parts]))
        room.append(0.0 if there else 1.0)
    for gang in {part.gang for part in parts} - {0}:
        rows.append(np.array([float(part.gang == gang) for part in parts]))
        room.append(1.0)
    for size in np.unique(share[share < 1]).tolist():
        rows.append(count * np.floor(share / size + SLACK))
        room.append(float(np.floor(np.array(left) / size + SLACK).sum()))
    return np.array(rows), np.array(room)
