"""Branch and price: Dantzig-Wolfe at every node of a search tree, until a whole-number solution is
proved optimal."""

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
"""Entries that columns must have, shape (blocks, rows): 1, 0, or -1 for free ones."""
FREE = -1
BranchPrice = Callable[[FloatArray, Entries], Priced]
"""(duals, entries) -> columns with these entries and small reduced cost, and a lower bound on the
reduced cost of all such columns.
"""

WHOLE = 1e-6
"""Tolerance for a sum of columns to count as an integer."""


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
    """Solve a master program with integer variables over all columns, including columns that are
    not generated yet.

    Blocks take at most one column each, whose entries are 0 or 1. Then ::

        a_kr  =  sum_{j in block k} A_rj x_j

    is the share of row r that block k has (for an assignment: of job r that agent k has). The tree
    branches on the a_kr nearest to 0.5: in one branch the column of k has r, in the other it does
    not. ``price`` must respect these entries; in a knapsack, they fix items. If all a_kr are
    integers, so is x.

    The root is solved as in `dantzig_wolfe`, including its integer program. After that the node
    with the smallest bound is next; of equal ones, the deepest.

    Parameters
    ----------
    master : Master
        ``most`` is 1 for every block.
    price : callable
        (duals of the rows, entries) -> `Priced`. ``entries`` has shape (blocks, rows): 1 where the
        column of a block must have an entry of 1, 0 where it must have 0, -1 where it is free. If a
        block has no such column, its ``least`` is infinite.
    first : MasterColumns, optional
        Columns to begin with.
    smoothing : float
        As in `dantzig_wolfe`.
    step : float, optional
        The costs of all solutions are multiples of it: bounds are rounded up to one.
    solver : str
        Solver of the masters; it must be able to add columns.
    **limits : LimitOptions
        As in `optsched.solve`. ``work_limit`` counts nodes.

    Returns
    -------
    Decomposition
        Its ``value``, ``x`` and ``y`` are those of the root, ``bound`` and ``whole`` those of the
        tree.

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
    """An open node. Its order in the heap: smallest bound, then deepest, then first."""

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
    """Smallest bound of the nodes that were pruned by their bound."""
    objective: float | None = None
    chosen: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    root: Decomposition | None = None
    history: list[tuple[float, int, float | None, float]] = field(default_factory=list)

    def search(self) -> None:
        """Branch until no node is open or a limit is reached."""
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
        """Lower bound on the cost of all solutions."""
        of_open = min((node.bound for node in self.open), default=np.inf)
        best = np.inf if self.objective is None else self.objective
        return min(of_open, self.closed_at, best)

    @property
    def _cutoff(self) -> float:
        """Nodes with this bound or a larger one are pruned."""
        if self.objective is None:
            return np.inf
        allowed = max(1e-9, self.limits.gap or 0.0) * max(1.0, abs(self.objective))
        return self.objective - allowed

    # --- nodes ------------------------------------------------------------------------------------

    def _visit(self, node: _Node) -> bool:
        """Solve a node and branch; returns False if the time limit stopped it."""
        if node.bound >= self._cutoff:
            self.closed_at = min(self.closed_at, node.bound)
            return True
        generation, known = self._generation(node)
        generation.run(FOR_WHOLE if self.root is None else 0.0)
        # The generation appended new columns after those that it began with
        new = np.arange(len(known), len(generation.columns))
        number = np.concatenate([known, len(self.columns) + np.arange(len(new))])
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
        """Column generation for a node, and the columns of the tree that it begins with."""
        entries = node.entries
        fitting = np.flatnonzero(_fits(self.columns, entries)).astype(np.int64)
        # A block with a required row must take a column
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
            self.columns.take(fitting),
            best=node.near,
            cutoff=self._cutoff,
            step=self.step,
        )
        return generation, fitting

    def _branch(
        self,
        node: _Node,
        generation: ColumnGeneration,
        number: IntArray,
        bound: float,
        settled: bool,
    ) -> None:
        """Process a solved node: record a solution, branch, or prune it."""
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
            self._open(bound, 1 - node.depth, entries, generation.best)

    def _offer(self, chosen: IntArray) -> None:
        """Record a solution (numbers of columns) if it is better than the best one."""
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
        """The best solution and the bound."""
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
    """Mask of the columns with the entries that their blocks must have."""
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
    """The columns of an integer solution: one per block; of columns with equal entries, the
    cheapest.
    """
    chosen = np.zeros(len(columns), bool)
    used = (x > WHOLE) & _fits(columns, np.round(share).astype(np.int8))
    for block in range(master.blocks):
        of_block = np.flatnonzero(used & (columns.block == block))
        if not len(of_block):
            continue
        best = of_block[np.argmin(columns.cost[of_block])]
        # A column without entries can be left out
        needed = master.least[block] > 0 or share[block].any() or columns.cost[best] < 0
        chosen[best] = needed
    return chosen
