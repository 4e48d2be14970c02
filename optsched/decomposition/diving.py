"""Diving: whole-number solutions of a master program. Its columns are taken one after the other,
and new ones are made for what is left."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple, TypeVar, Unpack

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.decomposition.column_generation import (
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

DivePrice = Callable[[FloatArray, FloatArray], Priced]
"""(duals, left) -> columns with entries of at most ``left`` and small reduced cost, and a lower
bound on the reduced cost of all such columns.
"""

Number = TypeVar("Number", np.int64, np.float64)

WHOLE = 1e-6
"""Tolerance for a number of columns to count as an integer."""


@takes_limits
def dive(
    master: Master,
    price: DivePrice,
    first: MasterColumns | None = None,
    *,
    depth: int = 6,
    discrepancies: int = 4,
    smoothing: float = 0.7,
    step: float | None = None,
    below: float = np.inf,
    solver: str = "highs",
    **limits: Unpack[LimitOptions],
) -> Decomposition:
    """Solve a master program by column generation, and look for a solution in whole numbers by
    taking its columns.

    The columns of which the master takes 1 or more are taken, and the one with the largest fraction.
    Then the master is solved for the rows that are left, with new columns, and so on, until its
    optimum is in whole numbers (a dive). A dive ends early where its bound is no better than the
    best solution, and the search ends where a solution reaches the bound of the first master.

    Other dives begin near the top: at the first ``depth`` masters, another column may be taken
    instead of the one with the largest fraction, which is then left alone in the whole dive (a
    discrepancy). So there are at most ``C(depth + discrepancies, discrepancies)`` dives.

    Parameters
    ----------
    master : Master
    price : callable
        (duals of the rows, left) -> `Priced`. ``left``, shape (rows,), is what the columns that
        were taken leave of the upper sides; no column may have a larger entry.
    first : MasterColumns, optional
        Columns to begin with. Their entries are at least 0, as are those of all columns.
    depth, discrepancies : int
        0: one dive.
    smoothing : float
        As in `dantzig_wolfe`.
    step : float, optional
        The costs of all solutions in whole numbers are multiples of it, such as 1 for a number of
        columns: the bound is rounded up to one.
    below : float
        Only solutions that cost less are looked for.
    solver : str
        Solver of the masters; it must be able to add columns.
    **limits : LimitOptions
        As in `optsched.solve`. ``work_limit`` counts masters that were solved to the end.

    Returns
    -------
    Decomposition
        ``value``, ``x``, ``y`` and ``bound`` are those of the first master.

    Raises
    ------
    UsageError, SolverUnavailable, SolverCrashed

    References
    ----------
    R. Sadykov et al., "Primal heuristics for branch and price: the assets of diving methods",
    INFORMS Journal on Computing 31 (2019).
    """
    check_smoothing(smoothing)
    for name, number in (("depth", depth), ("discrepancies", discrepancies)):
        if number < 0:
            raise InvalidArgument(name, f"{number}", "0 or more")
    given = make_limits(**limits)
    columns = MasterColumns.nothing(master.rows)
    if first is not None:
        columns = _not_negative(checked_columns(master, first))
    timer = Timer.after(given.time)
    dives = _Dives(
        price, smoothing, step, below, solver, given, timer, depth, discrepancies, columns
    )
    return dives.search(master)


def _not_negative(columns: MasterColumns) -> MasterColumns:
    """Columns without negative entries; others are refused."""
    if (columns.matrix.data < 0).any():
        raise InvalidArgument("columns", f"an entry of {columns.matrix.data.min():g}", "0 or more")
    return columns


class _DiveNode(NamedTuple):
    """What is left of the master after some columns were taken, and its optimum.

    Attributes
    ----------
    left : Master
    taken : IntArray, shape (N,)
        How many were taken of each column that was known then.
    number : IntArray, shape (n,)
        Numbers of the columns that fit into what is left.
    x : FloatArray, shape (n,)
    """

    left: Master
    taken: IntArray
    number: IntArray
    x: FloatArray


Tabu = frozenset[int]
"""Numbers of columns that a dive does not take as fractions."""


@dataclass(eq=False)
class _Dives:
    """The search: all columns that were made, and the best solution."""

    price: DivePrice
    smoothing: float
    step: float | None
    below: float
    solver: str
    limits: Limits
    timer: Timer
    depth: int
    discrepancies: int
    columns: MasterColumns
    nodes: int = 0
    objective: float | None = None
    chosen: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    root: Decomposition | None = None
    history: list[tuple[float, int, float | None, float]] = field(default_factory=list)

    def search(self, master: Master) -> Decomposition:
        """The result of all dives."""
        node = self._solved(master, np.zeros(0, np.int64))
        if node is not None:
            self._dive(node, 1, frozenset())
        assert self.root is not None
        whole = None
        if self.objective is not None:
            whole = _padded(self.chosen, len(self.columns)).astype(np.float64)
        return replace(
            self.root,
            status=status_of(self.objective, self.root.bound, self.limits.gap),
            columns=self.columns,
            x=_padded(self.root.x, len(self.columns)),
            whole=whole,
            objective=self.objective,
            history=tuple(self.history),
            nodes=self.nodes,
        )

    @property
    def _ended(self) -> bool:
        """Whether the best solution reaches the bound, or a limit is reached."""
        assert self.root is not None
        work = self.limits.work
        if self.timer.left <= 0 or (work is not None and self.nodes >= work):
            return True
        status = status_of(self.objective, self.root.bound, self.limits.gap)
        return status is Status.OPTIMAL

    @property
    def _cutoff(self) -> float:
        """Dives with this bound or a larger one end."""
        best = self.below if self.objective is None else self.objective
        if not np.isfinite(best):
            return best
        # The next better solution costs at least a step less
        allowed = max(1e-9, self.limits.gap or 0.0) * max(1.0, abs(best))
        return best - max(allowed, (1 - WHOLE) * (self.step or 0.0))

    # --- dives ------------------------------------------------------------------------------------

    def _dive(self, node: _DiveNode | None, level: int, tabu: Tabu) -> None:
        """Dive from a node; near the top, once for each column that may be taken first."""
        while node is not None and not self._ended:
            lead = self._lead(node, tabu)
            below = self._below(node, lead)
            if level > self.depth:
                node = below
                continue
            self._dive(below, level + 1, tabu)
            if lead is None or len(tabu) >= self.discrepancies:
                return
            tabu |= {lead}

    def _lead(self, node: _DiveNode, tabu: Tabu) -> int | None:
        """Number of the column with the largest fraction that may be taken."""
        left = self._after(node, None)[0]
        fits = self._fits(left, node.number)
        fraction = np.where(fits & (node.x < 1 - WHOLE), node.x, 0.0)
        for place in np.argsort(-fraction, kind="stable"):
            if fraction[place] <= WHOLE:
                return None
            if int(node.number[place]) not in tabu:
                return int(node.number[place])
        return None

    def _below(self, node: _DiveNode, lead: int | None) -> _DiveNode | None:
        """The node after taking what the master takes in whole numbers, and column ``lead`` once
        more; None where nothing is taken, or where that leads to nothing better.
        """
        left, taken = self._after(node, lead)
        if taken.sum() == node.taken.sum():
            return None
        return self._solved(left, taken)

    def _after(self, node: _DiveNode, lead: int | None) -> tuple[Master, IntArray]:
        """What is left of the master then, and how often each column is taken."""
        more = np.zeros(len(self.columns), np.int64)
        more[node.number] = np.floor(node.x + WHOLE).astype(np.int64)
        if lead is not None:
            more[lead] += 1
        which = np.flatnonzero(more)
        columns, count = self.columns.take(which), more[which]
        used = columns.matrix @ count
        of_block = np.bincount(columns.block, count, minlength=node.left.blocks)
        left = node.left
        upper = np.maximum(left.upper - used, 0.0)
        most = np.maximum(left.most - of_block, 0.0)
        rest = Master(
            np.minimum(left.lower - used, upper), upper,
            np.clip(left.least - of_block, 0.0, most), most,
        )  # fmt: skip
        return rest, _padded(node.taken, len(self.columns)) + more

    def _fits(self, left: Master, number: IntArray) -> BoolArray:
        """Mask of the columns of which one can still be taken."""
        columns = self.columns.take(number)
        entries = sp.csc_matrix(columns.matrix).tocoo()
        over = entries.data > left.upper[entries.row] + WHOLE
        fits: BoolArray = left.most[columns.block] > 1 - WHOLE
        fits[entries.col[over]] = False
        return fits

    def _solved(self, left: Master, taken: IntArray) -> _DiveNode | None:
        """Solve the master of what is left; None where it leads to no better solution."""
        number = np.flatnonzero(self._fits(left, np.arange(len(self.columns)))).astype(np.int64)
        cost = float(self.columns.cost[: len(taken)] @ taken)
        generation = ColumnGeneration(
            left,
            partial(self._priced, left.upper),
            self.smoothing,
            self.solver,
            self.limits if self.root is None else replace(self.limits, on_progress=None),
            self.timer,
            self.columns.take(number),
            cutoff=np.inf if self.root is None else self._cutoff - cost,
        )
        generation.run(0.0)
        new = np.arange(len(number), len(generation.columns))
        number = np.concatenate([number, len(self.columns) + np.arange(len(new))])
        self.columns = self.columns.beside(generation.columns.take(new))
        self.nodes += 1
        if self.root is None:
            self.root = generation.answer(False, None)
            self.root = replace(self.root, bound=rounded_up(self.root.bound, self.step))
        value, x = generation.value, generation.x
        if value is not None and (np.abs(x - np.round(x)) <= WHOLE).all():
            self._offer(number, x, taken)
            value = None
        self._report(generation)
        stopped = not generation.converged or generation.cut_off
        return None if value is None or stopped else _DiveNode(left, taken, number, x)

    def _priced(self, left: FloatArray, y: FloatArray) -> Priced:
        """The caller's columns, checked."""
        priced = self.price(y, left.copy())
        entries = _not_negative(priced.columns).matrix.tocoo()
        wrong = np.flatnonzero(entries.data > left[entries.row] + WHOLE)
        if len(wrong):
            row = int(entries.row[wrong[0]])
            found = f"an entry of {entries.data[wrong[0]]:g} in row {row}"
            raise InvalidArgument("columns", found, f"at most {left[row]:g}, which is left")
        return priced

    def _offer(self, number: IntArray, x: FloatArray, taken: IntArray) -> None:
        """Record a solution, some columns besides those taken, if it is better than the best one."""
        chosen = _padded(taken, len(self.columns))
        chosen[number] += np.round(x).astype(np.int64)
        cost = float(self.columns.cost @ chosen)
        if cost < (self.below if self.objective is None else self.objective):
            self.objective, self.chosen = cost, chosen
            log.info("dive: a solution of cost %.9g at master %d", cost, self.nodes)

    def _report(self, generation: ColumnGeneration) -> None:
        assert self.root is not None
        if self.nodes == 1:
            self.history += generation.history
        at = self.timer.spent
        self.history.append((at, len(self.columns), self.root.value, self.root.bound))
        if self.limits.on_progress is not None:
            words = f"diving, {self.nodes} masters"
            self.limits.on_progress(Progress(at, self.objective, self.root.bound, words))


def _padded(numbers: NDArray[Number], length: int) -> NDArray[Number]:
    """One number per column, with 0 for columns that were made since."""
    return np.concatenate([numbers, np.zeros(length - len(numbers), numbers.dtype)])
