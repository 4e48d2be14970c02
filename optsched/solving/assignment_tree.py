"""Branch and bound for generalised assignments, with Lagrangian bounds that fix variables.

A node of the tree is a table of the cells (agent i, job j) that are still open. At prices y of the
jobs, no assignment in these cells costs less than

    L(y)  =  sum_j y_j  -  sum_i max { sum_j (y_j - cost_ij) z_j : sum_j use_ij z_j <= room_i, z binary }

Only assignments better than the best one so far count: they cost at most a target. A tree with a
target near the bound is small, so the first targets are below the best assignment. A tree that is
empty then raises the bound, and the next one has a higher target.

- A node with L(y) above the target is closed.
- If L(y) is above the target once a cell must be taken, the cell is closed. If it is once a cell
  must not be taken, the job is given to that agent. Both losses are exact, as they come from the
  tables of the knapsacks.
- Prices move along a subgradient: a job that no agent takes gets dearer, one that several take
  gets cheaper (Polyak's step towards the target).
- Children: one cell is taken, or closed. It is the one that a running mean of the knapsacks'
  answers takes nearest to half of the time. The child that takes it comes first.

References
----------
M. Posta, J. A. Ferland, P. Michelon, "An exact method with variable fixing for solving the
generalized assignment problem", Computational Optimization and Applications 52 (2012).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.program.assignment import AgentKnapsacks, Assignment

MOVES, FIRST_MOVES = 36, 60
"""Moves of the prices in a node, and in the first one."""
FIXED_EVERY = 12
"""Moves after which the losses of all cells are computed."""
PATIENCE, SHORTER = 4, 0.6
"""Moves without a better bound after which steps are shorter, and by which factor."""
MOMENTUM = 0.7
"""Part of the last direction that the next one keeps."""
MEMORY = 0.85
"""Part of the running mean that stays after a move."""
FIRST_REACH = 5e-4
"""How far above the bound the first target is, relative to the bound."""
MORE_NODES = 8.0
"""Factor by which the next tree may be larger, if nodes grow exponentially with the target."""
SLOW = 50
"""Nodes before compiled loops are loaded: small trees end sooner."""
ROUNDED = 1e-6
"""Part of the step between objective values that counts as rounding."""
SUMMED = 1e-14
"""Relative amount by which sums of costs and prices may be wrong."""


def first_reach(bound: float, step: float) -> float:
    """How far above the bound the first target is."""
    return max(FIRST_REACH * abs(bound), step)


def next_reach(reach: float, nodes: int) -> float:
    """How far above the root the target of the next tree is, if one with this reach is empty.

    Nodes grow exponentially with the reach: r (1 + log f / log n) takes f times as many as r, which
    took n. Small trees tell less about the growth, and the next one may be larger.
    """
    return reach * (1.0 + math.log(MORE_NODES) / math.log(max(nodes, 2)))


class Node(NamedTuple):
    """The cells that are open, shape (agents, jobs), prices to start from, and a bound."""

    cells: BoolArray
    price: FloatArray
    bound: float


class _Rest(NamedTuple):
    """What a node leaves open: jobs with several open cells, shape (jobs,), the room that the other
    jobs leave, shape (agents,), and their cost.
    """

    free: BoolArray
    room: IntArray
    cost: float


@dataclass(eq=False)
class AssignmentTree:
    """The search for the best assignment; `run` may be called again and goes on.

    Parameters
    ----------
    of : Assignment
    best : IntArray, shape (jobs,)
        An assignment within all rooms; later the best one so far.
    price : FloatArray, shape (jobs,)
        Of the jobs, to start from.
    bound : float
        No assignment costs less; later the highest such bound that is proven.
    step : float
        A better assignment costs this much less at least.
    """

    of: Assignment
    best: IntArray
    price: FloatArray
    bound: float
    step: float
    nodes: int = 0
    _left: list[Node] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._knapsacks = AgentKnapsacks.of(self.of)
        self._root = Node(self._knapsacks.there, self.price, self.bound)
        self._plant(first_reach(self.bound, self.step))

    def _plant(self, reach: float) -> None:
        """Begin a tree: of all assignments, with a target that lies ``reach`` above the bound of
        its root.
        """
        self._left, self._before = [self._root], self.nodes
        self._highest = self._root.bound + reach

    @property
    def least(self) -> float:
        """The cost of the best assignment so far."""
        return self.of.total(self.best)

    @property
    def settled(self) -> bool:
        """Whether no better assignment exists."""
        return self.bound > self._better

    @property
    def _better(self) -> float:
        """What an assignment that is better than the best one costs at most."""
        return self.least - self.step * (1.0 - ROUNDED)

    def run(self, enough: Callable[[], bool]) -> None:
        """Search depth first until the best assignment is proven or `enough` says so; it is asked
        at each move of the prices.
        """
        while not (self.settled or enough()):
            if self._left:
                node = self._left.pop()
                self.nodes += 1
                moves = MOVES if self._left else FIRST_MOVES
                self._left.extend(self._children(node, moves, enough))
            else:  # no assignment costs at most the target
                self.bound = self.least if self._highest >= self._better else self._highest
                reach = self._highest - self._root.bound
                more = next_reach(reach, self.nodes - self._before)
                self._plant(max(more, reach + self.step))
        if self.settled:  # a target may have been refuted before the assignment was found
            self.bound = self.least

    @property
    def _fast(self) -> bool:
        """Whether knapsacks are solved by compiled loops, where there are any."""
        return self.nodes > SLOW

    @property
    def _target(self) -> float:
        """What the assignments that the tree looks for cost at most."""
        return min(self._better, self._highest)

    def _children(self, node: Node, moves: int, enough: Callable[[], bool]) -> list[Node]:
        """The nodes that take the place of a node; none if it holds no better assignment, the node
        itself if the search ends.
        """
        cells, price = node.cells.copy(), node.price
        rest = self._tightened(cells)
        best, scale, worse = node, 1.0, 0
        direction, mean = np.zeros(self.of.jobs), np.zeros(cells.shape)
        for move in range(moves + 1):
            if rest is None or (not rest.free.any() and self._takes(cells)):
                return []
            if move == moves:
                break
            if enough():
                return [node]
            knapsacks = AgentKnapsacks(cells & rest.free, self._knapsacks.size, rest.room)
            most, chosen = knapsacks.best(price - self.of.cost, self._fast)
            of_jobs = price[rest.free]
            bound = rest.cost + float(of_jobs.sum()) - most
            # Sums of large costs are rounded by more than the part of a step that targets allow
            bound -= SUMMED * (abs(rest.cost) + float(np.abs(of_jobs).sum()))
            if bound > self._target:
                return []
            missing = np.where(rest.free, 1.0 - chosen.sum(axis=0), 0.0)
            if not missing.any():
                # The bound is the cost of this assignment, if sizes are not rounded
                if self._takes(chosen | (cells & ~rest.free)):
                    return []
                break
            mean = (
                chosen.astype(np.float64) if move == 0 else mean + (1.0 - MEMORY) * (chosen - mean)
            )
            if bound > best.bound or move == 0:
                best, worse = Node(cells, price, max(bound, node.bound)), 0
            else:
                worse += 1
            direction = missing + MOMENTUM * direction
            ahead = self._target + self.step / 2.0 - bound
            length = scale * ahead / (float(direction @ direction) or 1.0)
            if move % FIXED_EVERY == FIXED_EVERY - 1:
                rest = self._fixed(cells, knapsacks, price, self._target - bound)
            price = price + length * direction
            if worse == PATIENCE:
                price, scale, worse = best.price, SHORTER * scale, 0
        return self._divided(best, mean)

    def _fixed(
        self, cells: BoolArray, knapsacks: AgentKnapsacks, price: FloatArray, room: float
    ) -> _Rest | None:
        """Close the cells, in place, that no assignment better than the best one takes.

        Parameters
        ----------
        cells : BoolArray, shape (agents, jobs)
        knapsacks : AgentKnapsacks
            Of the open cells.
        price : FloatArray, shape (jobs,)
        room : float
            The target less the bound at these prices.
        """
        taken, left_out = knapsacks.losses(price - self.of.cost, room, self._fast)
        given = knapsacks.there & (left_out > room)
        # Two agents that both need a job leave it no cell, and the node holds nothing better
        others = given.any(axis=0) & ~given
        cells &= ~((knapsacks.there & (taken > room)) | others | (given & (given.sum(axis=0) > 1)))
        return self._tightened(cells)

    def _tightened(self, cells: BoolArray) -> _Rest | None:
        """Close the cells, in place, whose agent has no room beside the jobs that have no other
        cell; None if some job has no cell left.
        """
        size, jobs = self._knapsacks.size, np.arange(self.of.jobs)
        while True:
            count = cells.sum(axis=0)
            if not count.all():
                return None
            free, agent = count > 1, cells.argmax(axis=0)
            given = jobs[~free]
            load = np.bincount(agent[given], size[agent[given], given], self.of.agents)
            room = self._knapsacks.room - load.astype(np.int64)
            if (room < 0).any():
                return None
            closed = cells & free & (size > room[:, np.newaxis])
            if not closed.any():
                return _Rest(free, room, float(self.of.cost[agent[given], given].sum()))
            cells &= ~closed

    def _takes(self, chosen: BoolArray) -> bool:
        """Whether an assignment fits; it is the best one from now on if it costs less."""
        agent = chosen.argmax(axis=0)
        fits = self.of.fits(agent)
        if fits and self.of.total(agent) < self.least:
            self.best = agent
        return fits

    def _divided(self, node: Node, mean: FloatArray) -> list[Node]:
        """A node in two: one cell is closed, or it is the only one of its job."""
        several = node.cells & (node.cells.sum(axis=0) > 1)
        if not several.any():
            return []
        away = np.where(several, np.abs(mean - 0.5), np.inf)
        agent, job = np.unravel_index(int(away.argmin()), away.shape)
        without, taken = node.cells.copy(), node.cells.copy()
        without[agent, job] = False
        taken[:, job] = False
        taken[agent, job] = True
        return [node._replace(cells=without), node._replace(cells=taken)]
