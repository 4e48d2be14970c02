"""Branch and price: Dantzig-Wolfe at every node of a search tree, until a whole-number solution is proved optimal."""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Unpack

import numpy as np
from numpy.typing import NDArray

from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.decomposition.column_generation import (
    FOR_WHOLE,
    ColumnGeneration,
    Decomposition,
    check_smoothing,
    checked_columns,
)
from optsched.decomposition.master import Master, MasterColumns, Priced
from optsched.decomposition.proof import status_of
from optsched.errors import InvalidArgument
from optsched.instance.durations import Timer
from optsched.program.integers import rounded_up
from optsched.solution import Status
from optsched.solvers import Limits, Progress
from optsched.solving.limits import LimitOptions, make_limits, takes_limits

log = logging.getLogger("optsched")

Entries = NDArray[np.int8]
"""Which entries columns must have, shape (blocks, rows): 1, 0, or -1 where they are free."""
FREE = -1
BranchPrice = Callable[[FloatArray, Entries], Priced]
"""(duals, entries) -> columns of little reduced cost that have these entries, and a bound on that of
all such columns."""

WHOLE = 1e-6
"""How far a sum of columns may be from a whole number that it counts as."""


@takes_limits
def branch_and_price(
    master: Master,
    price: BranchPrice,
    first: MasterColumns | None = None,
    *,
    smoothing: float = 0.7,
    step: float | None = None,
    solver: str = "highs",
    **limits: Unpack[LimitOptions],
) -> Decomposition:
    """Solve a master program in whole numbers over all columns, also those that are not made yet.

    Blocks take at most one column each, whose entries are 0 or 1. Then ::

        a_kr  =  sum_{j in block k} A_rj x_j

    says how much of row r block k has (of job r, agent k). The tree branches on the a_kr that is
    nearest to one half: in one branch the column of k has r, in the other it has not. ``price`` must
    keep to that, which for knapsacks means to fix items. Where all a_kr are whole, so is x.

    The root is solved as by `dantzig_wolfe`, with its search for whole numbers. Then the node of the
    least bound is next, of equal ones the deepest.

    Parameters
    ----------
    master : Master
        ``most`` is 1 for every block.
    price : callable
        (duals of the rows, entries) -> `Priced`. ``entries`` has shape (blocks, rows): 1 where the column
        of a block must have an entry of 1, 0 where it must have none, -1 where it is free. A block
        without such a column has ``least`` infinite.
    first : MasterColumns, optional
        Columns to begin with.
    smoothing : float
        As of `dantzig_wolfe`.
    step : float, optional
        The smallest difference between the costs of two solutions.
    solver : str
        Of the masters; one that can add columns.
    **limits : LimitOptions
        As of `optsched.solve`. ``work_limit`` counts nodes.

    Returns
    -------
    Decomposition
        Its ``value``, ``x`` and ``y`` are those of the root, ``bound`` and ``whole`` those of the tree.

    Raises
    ------
    UsageError, SolverUnavailable, SolverCrashed

    References
    ----------
    C. Barnhart et al., "Branch-and-price: column generation for solving huge integer programs",
    Operations Research 46 (1998); M. Savelsbergh, "A branch-and-price algorithm for the generalized
    assignment problem", Operations Research 45 (1997).
    """
    check_smoothing(smoothing)
    if not (master.most == 1).all():
        raise InvalidArgument("master.most", f"{master.most.max():g}", "1 for every block")
    given = make_limits(**limits)
    columns = MasterColumns.nothing(master.rows)
    if first is not None:
        columns = _binary(checked_columns(master, first))
    tree = _Tree(master, price, smoothing, step, solver, given, Timer.after(given.time), columns)
    tree.search()
    return tree.answer()


def _binary(columns: MasterColumns) -> MasterColumns:
    """Columns whose entries are 0 or 1; others are refused."""
    data = columns.matrix.data
    wrong = data[(data != 0) & (data != 1)]
    if len(wrong):
        raise InvalidArgument("columns", f"an entry of {wrong[0]:g}", "0 or 1")
    return columns


class _Node(NamedTuple):
    """A part of the tree; the heap takes the least bound, of equal ones the deepest, then the first."""

    bound: float
    depth: int
    number: int
    entries: Entries
    near: FloatArray | None
    """Duals of the parent's best bound."""


@dataclass(eq=False)
class _Tree:
    """The search: open nodes, all columns that were made, the best solution."""

    master: Master
    price: BranchPrice
    smoothing: float
    step: float | None
    solver: str
    limits: Limits
    timer: Timer
    columns: MasterColumns
    nodes: int = 0
    made: int = 0
    open: list[_Node] = field(default_factory=list)
    closed_at: float = np.inf
    """The least bound of nodes that hold no solution worth a search."""
    objective: float | None = None
    chosen: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    root: Decomposition | None = None
    history: list[tuple[float, int, float | None, float]] = field(default_factory=list)

    def search(self) -> None:
        """Until no node is open, or a limit is reached."""
        free = np.full((self.master.blocks, self.master.rows), FREE, np.int8)
        self._open(-np.inf, 0, free, None)
        work = self.limits.work
        while self.open and self._status() is not Status.OPTIMAL:
            if self.nodes and self.timer.left <= 0:
                return
            if work is not None and self.nodes >= work:
                return
            if not self._visit(heapq.heappop(self.open)):
                return

    def _open(self, bound: float, depth: int, entries: Entries, near: FloatArray | None) -> None:
        heapq.heappush(self.open, _Node(bound, -depth, self.made, entries, near))
        self.made += 1

    @property
    def bound(self) -> float:
        """No solution costs less."""
        of_open = min((node.bound for node in self.open), default=np.inf)
        best = np.inf if self.objective is None else self.objective
        return min(of_open, self.closed_at, best)

    @property
    def _cutoff(self) -> float:
        """Nodes whose bound reaches this are of no use."""
        if self.objective is None:
            return np.inf
        allowed = max(1e-9, self.limits.gap or 0.0) * max(1.0, abs(self.objective))
        return self.objective - allowed

    # --- nodes ------------------------------------------------------------------------------------

    def _visit(self, node: _Node) -> bool:
        """Solve a node and branch; whether the time sufficed."""
        if node.bound >= self._cutoff:
            self.closed_at = min(self.closed_at, node.bound)
            return True
        generation, mine = self._generation(node)
        generation.generate(FOR_WHOLE if self.root is None else 0.0)
        # Columns of the node that are not in the tree's yet were added behind the others
        new = np.arange(len(mine), len(generation.columns))
        number = np.concatenate([mine, len(self.columns) + np.arange(len(new))])
        self.columns = self.columns.beside(generation.columns.take(new))
        self.nodes += 1
        bound = max(node.bound, rounded_up(generation.bound, self.step))
        settled = generation.converged or generation.cut_off
        if self.root is None:
            self.root = generation.answer(True, self.step)
            if self.root.whole is not None:
                self._offer(number[self.root.whole > 0.5])
        self._branch(node, generation, number, bound, settled)
        self._report(generation)
        return settled

    def _generation(self, node: _Node) -> tuple[ColumnGeneration, IntArray]:
        """Column generation of a node, and which of the tree's columns it begins with."""
        entries = node.entries
        mine = np.flatnonzero(_fits(self.columns, entries)).astype(np.int64)
        # A block that must have a row needs a column
        least = np.maximum(self.master.least, (entries == 1).any(axis=1))
        limits = replace(self.limits, work=None)
        if self.root is not None:
            limits = replace(limits, on_progress=None)

        def price(y: FloatArray) -> Priced:
            priced = self.price(y, entries.copy())
            wrong = ~_fits(_binary(checked_columns(self.master, priced.columns)), entries)
            if wrong.any():
                block = int(priced.columns.block[np.argmax(wrong)])
                raise InvalidArgument(
                    "columns", f"one of block {block} that breaks its entries", "those asked for"
                )
            return priced

        generation = ColumnGeneration(
            self.master._replace(least=least),
            price,
            self.smoothing,
            self.solver,
            limits,
            self.timer,
            self.columns.take(mine),
            best_y=node.near,
            cutoff=self._cutoff,
            step=self.step,
        )
        return generation, mine

    def _branch(
        self,
        node: _Node,
        generation: ColumnGeneration,
        number: IntArray,
        bound: float,
        settled: bool,
    ) -> None:
        """What becomes of a node that was solved: a solution, two branches, or nothing."""
        if not settled:
            heapq.heappush(self.open, node._replace(bound=bound))
            return
        if bound >= self._cutoff or generation.value is None:
            self.closed_at = min(self.closed_at, bound)
            return
        share = _shares(self.master, generation.columns, generation.x)
        block, row = np.unravel_index(np.argmin(np.abs(share - 0.5)), share.shape)
        if not WHOLE < share[block, row] < 1 - WHOLE:
            self._offer(
                number[_whole_columns(self.master, generation.columns, generation.x, share)]
            )
            self.closed_at = min(self.closed_at, bound)
            return
        for entry in (1, 0):
            entries = node.entries.copy()
            entries[block, row] = entry
            self._open(bound, 1 - node.depth, entries, generation.best_y)

    def _offer(self, chosen: IntArray) -> None:
        """A solution, of columns by number; the best one is kept."""
        cost = float(self.columns.cost[chosen].sum())
        if self.objective is None or cost < self.objective:
            self.objective, self.chosen = cost, chosen
            log.info("branch and price: a solution of cost %.9g at node %d", cost, self.nodes)

    def _report(self, generation: ColumnGeneration) -> None:
        if self.nodes == 1:
            self.history += generation.history
        self.history.append((self.timer.spent, len(self.columns), generation.value, self.bound))
        if self.limits.on_progress is not None:
            words = f"{self.nodes} nodes, {len(self.open)} open"
            progress = Progress(self.timer.spent, self.objective, self.bound, words)
            self.limits.on_progress(progress)

    # --- the answer -------------------------------------------------------------------------------

    def _status(self) -> Status:
        return status_of(self.objective, self.bound, self.limits.gap)

    def answer(self) -> Decomposition:
        """The best that is known."""
        assert self.root is not None
        whole = None
        if self.objective is not None:
            whole = np.zeros(len(self.columns))
            whole[self.chosen] = 1.0
        x = np.zeros(len(self.columns))
        x[: len(self.root.x)] = self.root.x
        return replace(
            self.root,
            status=self._status(),
            bound=self.bound,
            columns=self.columns,
            x=x,
            whole=whole,
            objective=self.objective,
            history=tuple(self.history),
            nodes=self.nodes,
        )


def _fits(columns: MasterColumns, entries: Entries) -> BoolArray:
    """Columns that have the entries which their blocks must have."""
    asked = entries[columns.block]
    has = columns.matrix.T.toarray() > 0.5
    return np.asarray(((asked == FREE) | (asked == has)).all(axis=1), bool)


def _shares(master: Master, columns: MasterColumns, x: FloatArray) -> FloatArray:
    """a_kr, shape (blocks, rows)."""
    share = np.zeros((master.blocks, master.rows))
    entries = columns.matrix.tocoo()
    np.add.at(share, (columns.block[entries.col], entries.row), entries.data * x[entries.col])
    return share


def _whole_columns(
    master: Master, columns: MasterColumns, x: FloatArray, share: FloatArray
) -> BoolArray:
    """One column for each block where all shares are whole: of equal columns the cheapest."""
    chosen = np.zeros(len(columns), bool)
    used = (x > WHOLE) & _fits(columns, np.round(share).astype(np.int8))
    for block in range(master.blocks):
        mine = np.flatnonzero(used & (columns.block == block))
        if not len(mine):
            continue
        best = mine[np.argmin(columns.cost[mine])]
        # A column without entries may be left out
        needed = master.least[block] > 0 or share[block].any() or columns.cost[best] < 0
        chosen[best] = needed
    return chosen
