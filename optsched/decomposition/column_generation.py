"""Dantzig-Wolfe: a master program whose columns are priced, with smoothed duals and a bound."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Unpack

import numpy as np
import scipy.sparse as sp

from optsched.arrays import BoolArray, FloatArray
from optsched.decomposition.master import Master, MasterColumns, Priced
from optsched.decomposition.proof import CLOSED, status_of
from optsched.display import Displayed, TableColumns, count, number
from optsched.errors import InvalidArgument, SolverCrashed
from optsched.instance.durations import Timer
from optsched.program import LinearProgram
from optsched.program.integers import rounded_up
from optsched.registry import load_solver
from optsched.solution import PointStatus, Status, Values, gap_of
from optsched.solvers import Limits, Progress, Session
from optsched.solvers.base import Capability
from optsched.solving.limits import LimitOptions, make_limits, takes_limits

log = logging.getLogger("optsched")

Price = Callable[[FloatArray], Priced]
"""Duals of the rows -> columns of little reduced cost, and a bound on that of all columns."""

IMPROVES = 1e-9
"""Reduced cost, relative to the largest cost, below which a column improves the master."""
FEASIBLE = 1e-7
"""Use of an artificial column that counts as none, relative to the row's side."""
FOR_WHOLE = 0.2
"""Share of the time that is kept for whole numbers."""
GROWTH, RAISES = 100.0, 4
"""Factor by which artificial columns become dearer where they stay in the master, and how often."""


@dataclass(frozen=True, repr=False, eq=False)
class Decomposition(Displayed):
    """What came of a decomposition.

    Attributes
    ----------
    status : Status
        ``optimal``: the whole-number solution reaches the bound. ``feasible``: there is one.
        ``limit``: none was found. ``infeasible`` is never claimed.
    converged : bool
        Whether no column is left that would improve the master: its value is then the bound, up to
        rounding.
    bound : float
        The best Lagrangian bound, rounded up to a multiple of ``step``: no whole-number solution
        costs less, if the numbers ``Priced.least`` are right.
    value : float or None
        Cost of the master's last optimum; None where it needs artificial columns.
    columns : MasterColumns
        All that were made.
    x : FloatArray, shape (N,)
        The master's last optimum.
    y : FloatArray, shape (rows,)
        The duals of the best bound.
    whole : FloatArray or None, shape (N,)
        The best whole-number solution over the columns that were made; None if none was found.
    objective : float or None
        Its cost.
    history : tuple of (seconds, columns, value, bound)
        After each run of the master; beyond the root after each node.
    nodes : int
        Of the tree that was searched; 1 without branching.
    """

    status: Status
    converged: bool
    bound: float
    value: float | None
    columns: MasterColumns
    x: FloatArray
    y: FloatArray
    whole: FloatArray | None = None
    objective: float | None = None
    history: tuple[tuple[float, int, float | None, float], ...] = ()
    nodes: int = 1

    @property
    def gap(self) -> float | None:
        """Relative gap between the whole-number solution and the bound."""
        return gap_of(self.objective, self.bound)

    def _headline(self) -> str:
        cost = "none" if self.objective is None else number(self.objective)
        return f"{self.status}, {cost}, bound {number(self.bound)}, {count(len(self.columns), 'column')}"

    def to_columns(self) -> TableColumns:
        """The runs of the master: seconds, columns, value and bound."""
        names = ("seconds", "columns", "value", "bound")
        rows = zip(*self.history, strict=True) if self.history else ((), (), (), ())
        return {name: list(values) for name, values in zip(names, rows, strict=True)}


@takes_limits
def dantzig_wolfe(
    master: Master,
    price: Price,
    first: MasterColumns | None = None,
    *,
    smoothing: float = 0.7,
    whole: bool = True,
    step: float | None = None,
    solver: str = "highs",
    **limits: Unpack[LimitOptions],
) -> Decomposition:
    """Solve a master program over columns that a function of yours makes (column generation).

    Each turn solves the master over the columns so far, prices at duals that are smoothed towards
    those of the best bound (Wentges), and adds what improves the master. Artificial columns make the
    first masters feasible. In the end the columns are solved once more for whole numbers (the
    restricted master heuristic).

    Parameters
    ----------
    master : Master
    price : callable
        Duals of the rows -> `Priced`: columns, and for each block a lower bound on the reduced cost
        ``cost - y @ column`` of all its columns.
    first : MasterColumns, optional
        Columns to begin with.
    smoothing : float
        Weight of the duals of the best bound, from 0 (none) to below 1.
    whole : bool
        Whether columns are to be taken in whole numbers; else the master is the answer.
    step : float, optional
        The smallest difference between the costs of two whole-number solutions, such as 1 where all
        costs are whole: the bound is rounded up to a multiple of it.
    solver : str
        Of the masters; one that can add columns.
    **limits : LimitOptions
        As of `optsched.solve`; the time is that of everything, pricing included, which is not
        interrupted. A fifth of it is kept for whole numbers. ``gap`` ends column generation as well.

    Returns
    -------
    Decomposition

    Raises
    ------
    UsageError, SolverUnavailable, SolverCrashed

    References
    ----------
    G. B. Dantzig, P. Wolfe, "Decomposition principle for linear programs", Operations Research 8
    (1960); P. Wentges, "Weighted Dantzig-Wolfe decomposition for linear mixed-integer programming",
    International Transactions in Operational Research 4 (1997).
    """
    check_smoothing(smoothing)
    given = make_limits(**limits)
    nothing = MasterColumns.nothing(master.rows)
    search = ColumnGeneration(
        master, price, smoothing, solver, given, Timer.after(given.time), nothing
    )
    search.add(checked_columns(master, first) if first is not None else nothing)
    search.generate(FOR_WHOLE if whole else 0.0)
    return search.answer(whole, step if whole else None)


def check_smoothing(smoothing: float) -> None:
    """Refuse a weight of the best duals that leaves nothing to those of the master.

    Parameters
    ----------
    smoothing : float
    """
    if not 0 <= smoothing < 1:
        raise InvalidArgument("smoothing", f"{smoothing:g}", "a number from 0 to below 1")


def checked_columns(master: Master, columns: MasterColumns) -> MasterColumns:
    """Columns of the right size."""
    if columns.matrix.shape[0] != master.rows:
        raise InvalidArgument(
            "columns", f"{columns.matrix.shape[0]} rows", f"{master.rows}, as the master has"
        )
    if len(columns) and not (columns.block.min() >= 0 and columns.block.max() < master.blocks):
        raise InvalidArgument("columns.block", "another block", f"0 to {master.blocks - 1}")
    if not (np.isfinite(columns.cost).all() and np.isfinite(columns.matrix.data).all()):
        raise InvalidArgument("columns", "an infinite number or NaN", "finite numbers")
    return columns


@dataclass(eq=False)
class ColumnGeneration:
    """One run of column generation."""

    master: Master
    price: Price
    smoothing: float
    solver: str
    limits: Limits
    timer: Timer
    columns: MasterColumns
    bound: float = -np.inf
    best_y: FloatArray | None = None
    converged: bool = False
    values: Values | None = None
    penalty: float = 1.0
    history: list[tuple[float, int, float | None, float]] = field(default_factory=list)
    cutoff: float = np.inf
    """A bound that reaches this ends the run: no better solution is left."""
    step: float | None = None
    """The smallest difference between the costs of two solutions."""
    _session: Session | None = None

    # --- the master -------------------------------------------------------------------------------

    @property
    def artificial(self) -> int:
        """How many artificial columns come before the others: two for each row, one for each block."""
        return 2 * self.master.rows + self.master.blocks

    def _program(self, columns: MasterColumns, integer: bool) -> LinearProgram:
        """The master over some columns, behind artificial ones that may break every row."""
        master, N = self.master, len(columns)
        lp = LinearProgram()
        most = master.most[columns.block]
        parts = sp.identity(master.rows, format="csr"), sp.identity(master.blocks, format="csr")
        over = lp.variables(self.artificial, name="artificial", upper=0.0 if integer else np.inf)
        x = lp.variables(N, name="x", upper=most, integer=integer)
        rows = sp.csr_matrix(
            sp.hstack([parts[0], -parts[0], sp.csr_matrix((master.rows, master.blocks))])
        )
        lp.constrain(
            (rows @ over + sp.csr_matrix(columns.matrix) @ x).between(master.lower, master.upper),
            name="rows",
        )
        short = sp.csr_matrix(
            sp.hstack([sp.csr_matrix((master.blocks, 2 * master.rows)), parts[1]])
        )
        member = sp.csr_matrix(
            (np.ones(N), (columns.block, np.arange(N))), shape=(master.blocks, N)
        )
        lp.constrain(
            (short @ over + member @ x).between(master.least, master.most), name="convexity"
        )
        price = np.full((1, self.artificial), self.penalty)
        lp.minimise(price @ over + columns.cost[np.newaxis, :] @ x)
        return lp

    def add(self, columns: MasterColumns) -> None:
        """Columns for the next master."""
        if not len(columns):
            return
        self.columns = self.columns.beside(columns)
        if self._session is not None:
            member = sp.csc_matrix(
                (np.ones(len(columns)), (columns.block, np.arange(len(columns)))),
                shape=(self.master.blocks, len(columns)),
            )
            matrix = sp.csc_matrix(sp.vstack([columns.matrix, member]))
            most = self.master.most[columns.block]
            self._session.add_columns(matrix, columns.cost, most, f"x{len(self.history)}")

    def _solve_master(self) -> Values:
        if self._session is None:
            largest = float(np.abs(self.columns.cost).max(initial=1.0))
            self.penalty = max(self.penalty, 10.0 * largest)
            program = self._program(self.columns, integer=False)
            self._session = load_solver(self.solver)().open(program.arrays)
        values = self._session.run(self._limits_left())
        if values.x is None or values.y is None:
            if self.timer.left <= 0:
                return values
            raise SolverCrashed(f"the master has no optimum: {values.words or values.termination}")
        return values

    def _limits_left(self) -> Limits:
        # A solver's bounds are those of the columns that were made: they bound nothing else
        left = self.timer.left if self.timer.seconds else None
        return replace(self.limits, time=left, on_progress=None)

    # --- column generation ------------------------------------------------------------------------

    def generate(self, kept: float) -> None:
        """Until no column improves the master, the gap is small enough, or the time is over but for
        the share that is kept.
        """
        raises = 0
        reserve = kept * (self.timer.seconds or 0.0)
        while self.timer.left > reserve:
            values = self._solve_master()
            if values.x is None or values.y is None:
                return
            self.values = values
            new = self._priced(values.y[: self.master.rows], values.y[self.master.rows :])
            self._note(values)
            if self.cut_off:
                return
            if not self.converged and len(new):
                self.add(new)
            elif self._broken(values) and raises < RAISES:
                # Artificial columns are cheaper than what their rows cost: they become dearer
                raises, self.converged = raises + 1, False
                self.penalty *= GROWTH
                self._session = None
            else:
                self.converged = self.converged or not len(new)
                return

    def _priced(self, y: FloatArray, of_block: FloatArray) -> MasterColumns:
        """Columns that improve the master; their bound is kept.

        At smoothed duals pricing may find none: then the master's own duals decide.
        """
        weight = self.smoothing if self.best_y is not None else 0.0
        while True:
            best = y if self.best_y is None else self.best_y
            at = self.master.sides.signed(weight * best + (1 - weight) * y)
            priced = self.price(at)
            found = checked_columns(self.master, priced.columns)
            least = np.asarray(priced.least, np.float64)
            if least.shape != (self.master.blocks,):
                raise InvalidArgument("least", f"shape {least.shape}", f"({self.master.blocks},)")
            bound = self.master.bound(at, least)
            if bound > self.bound:
                self.bound, self.best_y = bound, at
            reduced = found.cost - found.matrix.T @ y - of_block[found.block]
            scale = max(1.0, float(np.abs(found.cost).max(initial=0.0)))
            improves: BoolArray = reduced < -IMPROVES * scale
            if self.cut_off or self._closed() or improves.any() or weight == 0:
                return found.take(improves)
            weight = 0.0

    @property
    def cut_off(self) -> bool:
        """Whether the bound shows that nothing better is left."""
        return rounded_up(self.bound, self.step) >= self.cutoff

    def _closed(self) -> bool:
        """Whether the bound reaches the value of the master, which is then converged."""
        value = self.value
        allowed = max(CLOSED, self.limits.gap or 0.0)
        self.converged = value is not None and value - self.bound <= allowed * max(1.0, abs(value))
        return self.converged

    def _broken(self, values: Values) -> bool:
        """Whether the master needs artificial columns."""
        assert values.x is not None
        over = values.x[: self.artificial]
        finite = [side[np.isfinite(side)] for side in self.master]
        size = max(1.0, *(float(np.abs(side).max(initial=0.0)) for side in finite))
        return bool(over.max(initial=0.0) > FEASIBLE * size)

    @property
    def value(self) -> float | None:
        """Cost of the last master, without artificial columns; None if it needs them."""
        if self.values is None or self.values.x is None or self._broken(self.values):
            return None
        return float(self.columns.cost @ self.x)

    @property
    def x(self) -> FloatArray:
        """The last master's point; columns that were made since are 0."""
        x = np.zeros(len(self.columns))
        if self.values is not None and self.values.x is not None:
            known = self.values.x[self.artificial :]
            x[: len(known)] = known
        return x

    def _note(self, values: Values) -> None:
        elapsed = self.timer.spent
        self.history.append((elapsed, len(self.columns), self.value, self.bound))
        log.info(
            "master %d: %d columns, value %s, bound %.9g",
            len(self.history), len(self.columns), self.value, self.bound,
        )  # fmt: skip
        if self.limits.on_progress is not None:
            self.limits.on_progress(Progress(elapsed, None, self.bound, "column generation"))

    # --- the answer -------------------------------------------------------------------------------

    def answer(self, whole: bool, step: float | None) -> Decomposition:
        """The best that is known; whole numbers by one more program over the columns."""
        value, bound = self.value, rounded_up(self.bound, step)
        x = self.x
        made: dict[str, Any] = {"whole": None, "objective": None}
        if not whole and value is not None:
            made = {"whole": x, "objective": value}
        elif whole and len(self.columns) and self.timer.left > 0:
            made = self._in_whole_numbers()
        objective = made["objective"]
        status = status_of(objective, bound, self.limits.gap)
        y = np.zeros(self.master.rows) if self.best_y is None else self.best_y
        return Decomposition(
            status, self.converged, bound, value, self.columns, x, y,
            history=tuple(self.history), **made,
        )  # fmt: skip

    def _in_whole_numbers(self) -> dict[str, Any]:
        program = self._program(self.columns, integer=True).arrays
        name = self.solver
        if Capability.INTEGER not in load_solver(name).capabilities:
            name = "highs"
        values = load_solver(name)().open(program).run(self._limits_left())
        if values.x is None or values.primal is not PointStatus.FEASIBLE:
            return {"whole": None, "objective": None}
        x = np.round(values.x[self.artificial :])
        if not self._keeps_rows(x):
            return {"whole": None, "objective": None}
        return {"whole": x, "objective": float(self.columns.cost @ x)}

    def _keeps_rows(self, x: FloatArray) -> bool:
        """Whether a rounded point keeps every row."""
        master = self.master
        activity = self.columns.matrix @ x
        taken = np.bincount(self.columns.block, x, minlength=master.blocks)
        slack = FEASIBLE * np.maximum(1.0, np.abs(activity))
        return bool(
            (activity >= master.lower - slack).all()
            and (activity <= master.upper + slack).all()
            and (taken >= master.least - FEASIBLE).all()
            and (taken <= master.most + FEASIBLE).all()
        )
