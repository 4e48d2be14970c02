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
from optsched.solution import PointStatus, Status, Termination, Values, gap_of
from optsched.solvers import Limits, Progress, Session
from optsched.solvers.base import Capability
from optsched.solving.column_loop import ColumnLoop
from optsched.solving.limits import LimitOptions, make_limits, takes_limits

log = logging.getLogger("optsched")

Price = Callable[[FloatArray], Priced]
"""Duals of the rows -> columns of small reduced cost, and a lower bound on the reduced cost of all
columns.
"""

IMPROVES = 1e-9
"""A column improves the master if its reduced cost, relative to the largest cost, is below minus
this.
"""
FEASIBLE = 1e-7
"""Value of an artificial column that counts as 0, relative to the side of its row."""
FOR_WHOLE = 0.2
"""Fraction of the time limit that is reserved for the integer program."""
GROWTH, RAISES = 100.0, 4
"""If artificial columns stay in the master, their cost is multiplied by the first number, at most
as often as the second says.
"""


@dataclass(frozen=True, repr=False, eq=False)
class Decomposition(Displayed):
    """Result of a decomposition.

    Attributes
    ----------
    status : Status
        ``optimal``: the integer solution reaches the bound. ``feasible``: there is one.
        ``limit``: none was found. ``infeasible`` is never claimed.
    converged : bool
        Whether no column improves the master any more; its value is then the bound, up to rounding.
    bound : float
        The best Lagrangian bound, rounded up to a multiple of ``step``: no integer solution costs
        less, if the numbers ``Priced.least`` are right.
    value : float or None
        Cost of the last optimum of the master; None if it uses artificial columns.
    columns : MasterColumns
        All generated columns.
    x : FloatArray, shape (N,)
        The last optimum of the master.
    y : FloatArray, shape (rows,)
        The duals of the best bound.
    whole : FloatArray or None, shape (N,)
        The best integer solution over the generated columns; None if none was found. With
        ``whole=False`` the last optimum of the master, in fractions; ``status`` is that of the
        master.
    objective : float or None
        Its cost.
    history : tuple of (seconds, columns, value, bound)
        One entry after each solve of the master; in a tree, after the root, one per node.
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
        """Relative gap between the integer solution and the bound."""
        return gap_of(self.objective, self.bound)

    def _headline(self) -> str:
        cost = "none" if self.objective is None else number(self.objective)
        return (
            f"{self.status}, {cost}, bound {number(self.bound)}, "
            f"{count(len(self.columns), 'column')}"
        )

    def to_columns(self) -> TableColumns:
        """The history: seconds, columns, value and bound of each master."""
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
    """Solve a master program by column generation; the function ``price`` makes the columns.

    Each iteration solves the master over the columns so far, prices at duals that are smoothed
    towards those of the best bound (Wentges), and adds columns that improve the master. Artificial
    columns make the first masters feasible. At the end, an integer program over the columns gives a
    solution (the restricted master heuristic).

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
        Whether to solve the integer program at the end; otherwise the master's optimum is the
        result.
    step : float, optional
        The costs of all integer solutions are multiples of it, such as 1 if all costs are integers:
        the bound is rounded up to one.
    solver : str
        Solver of the masters; it must be able to add columns.
    **limits : LimitOptions
        As in `optsched.solve`. The time limit includes pricing, but a call of ``price`` is not
        interrupted. A fifth of the time is reserved for the integer program. ``gap`` also ends
        column generation.

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
    search.run(FOR_WHOLE if whole else 0.0)
    return search.answer(whole, step if whole else None)


def check_smoothing(smoothing: float) -> None:
    """Refuse a smoothing weight outside [0, 1).

    Parameters
    ----------
    smoothing : float
    """
    if not 0 <= smoothing < 1:
        raise InvalidArgument("smoothing", f"{smoothing:g}", "a number from 0 to below 1")


def checked_columns(master: Master, columns: MasterColumns) -> MasterColumns:
    """Return the columns, or raise `InvalidArgument` if their size or a value is wrong."""
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
class ColumnGeneration(ColumnLoop[FloatArray]):
    """One run of column generation. Duals are those of the rows, then those of the blocks."""

    master: Master
    price: Price
    smoothing: float
    solver: str
    limits: Limits
    timer: Timer
    columns: MasterColumns
    best: FloatArray | None = None
    """Duals of the rows that prove the best bound."""
    bound: float = -np.inf
    converged: bool = False
    values: Values | None = None
    penalty: float = 1.0
    history: list[tuple[float, int, float | None, float]] = field(default_factory=list)
    cutoff: float = np.inf
    """The run ends when the bound reaches this value."""
    step: float | None = None
    """The costs of all integer solutions are multiples of it."""
    reserve: float = 0.0
    """Seconds that column generation leaves."""
    _session: Session | None = None

    def __post_init__(self) -> None:
        self.weights = (self.smoothing, 0.0) if self.smoothing else (0.0,)

    # --- the master -------------------------------------------------------------------------------

    @property
    def artificial(self) -> int:
        """Number of artificial columns, which come first: two per row and one per block."""
        return 2 * self.master.rows + self.master.blocks

    def _program(self, columns: MasterColumns, integer: bool) -> LinearProgram:
        """The master over these columns. Artificial columns come first; they make every row
        feasible.
        """
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
        """Add columns to the next master."""
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
            # The solver may look at the clock a moment before we do.
            if self.timer.left <= 0 or values.termination is Termination.TIME_LIMIT:
                return values
            raise SolverCrashed(f"the master has no optimum: {values.words or values.termination}")
        return values

    def _limits_left(self) -> Limits:
        # The solver's bound holds only for the generated columns, so it is not used
        left = self.timer.left if self.timer.seconds else None
        return replace(self.limits, time=left, on_progress=None)

    # --- column generation ------------------------------------------------------------------------

    def run(self, kept: float) -> None:
        """Run until no column improves the master, the gap is small enough, or the time is up
        except for the reserved fraction ``kept``.
        """
        self.reserve = kept * (self.timer.seconds or 0.0)
        complete = self.generate()
        for _ in range(RAISES):
            if not (complete and self.values is not None and self._broken(self.values)):
                break
            # The artificial columns are cheaper than real ones for their rows: raise their cost
            self.penalty *= GROWTH
            self._session = None
            complete = self.generate()
        self.converged = complete or self._closed

    def solve(self) -> FloatArray | None:
        """The duals of the master; None if the time is up."""
        if self.timer.left <= self.reserve:
            return None
        values = self._solve_master()
        if values.x is None or values.y is None:
            return None
        self.values = values
        return values.y

    def between(self, weight: float, best: FloatArray, duals: FloatArray) -> FloatArray:
        """Duals of the rows."""
        return weight * best + (1 - weight) * duals[: self.master.rows]

    def add_priced(self, at: FloatArray, duals: FloatArray) -> bool:
        """Price by the caller's function; columns that improve the master become columns of it."""
        master = self.master
        y, of_block = duals[: master.rows], duals[master.rows :]
        at = master.sides.signed(at[: master.rows])
        priced = self.price(at)
        found = checked_columns(master, priced.columns)
        least = np.asarray(priced.least, np.float64)
        if least.shape != (master.blocks,):
            raise InvalidArgument("least", f"shape {least.shape}", f"({master.blocks},)")
        bound = master.bound(at, least)
        if bound > self.bound:
            self.bound, self.best = bound, at
        if self.ended:
            return False
        reduced = found.cost - found.matrix.T @ y - of_block[found.block]
        scale = max(1.0, float(np.abs(found.cost).max(initial=0.0)))
        improves: BoolArray = reduced < -IMPROVES * scale
        self.add(found.take(improves))
        return bool(improves.any())

    @property
    def ended(self) -> bool:
        """Whether the bound has reached the cutoff, or the value of the master."""
        return self.cut_off or self._closed

    @property
    def cut_off(self) -> bool:
        """Whether the bound has reached the cutoff."""
        return rounded_up(self.bound, self.step) >= self.cutoff

    @property
    def _closed(self) -> bool:
        """Whether the bound reaches the value of the master."""
        value = self.value
        allowed = max(CLOSED, self.limits.gap or 0.0)
        return value is not None and value - self.bound <= allowed * max(1.0, abs(value))

    def _broken(self, values: Values) -> bool:
        """Whether the optimum of the master uses artificial columns."""
        assert values.x is not None
        over = values.x[: self.artificial]
        finite = [side[np.isfinite(side)] for side in self.master]
        size = max(1.0, *(float(np.abs(side).max(initial=0.0)) for side in finite))
        return bool(over.max(initial=0.0) > FEASIBLE * size)

    @property
    def value(self) -> float | None:
        """Cost of the last master; None if it uses artificial columns."""
        if self.values is None or self.values.x is None or self._broken(self.values):
            return None
        return float(self.columns.cost @ self.x)

    @property
    def x(self) -> FloatArray:
        """Optimum of the last master; 0 for columns that were added since."""
        x = np.zeros(len(self.columns))
        if self.values is not None and self.values.x is not None:
            known = self.values.x[self.artificial :]
            x[: len(known)] = known
        return x

    def note(self) -> None:
        """An entry of the history, and progress."""
        elapsed = self.timer.spent
        self.history.append((elapsed, len(self.columns), self.value, self.bound))
        log.info(
            "master %d: %d columns, value %s, bound %.9g",
            len(self.history),
            len(self.columns),
            self.value,
            self.bound,
        )
        if self.limits.on_progress is not None:
            self.limits.on_progress(Progress(elapsed, None, self.bound, "column generation"))

    # --- the answer -------------------------------------------------------------------------------

    def answer(self, whole: bool, step: float | None) -> Decomposition:
        """The result; with ``whole``, one integer program over the columns is solved for it."""
        value, bound = self.value, rounded_up(self.bound, step)
        x = self.x
        made: dict[str, Any] = {"whole": None, "objective": None}
        if not whole and value is not None:
            made = {"whole": x, "objective": value}
        elif whole and len(self.columns) and self.timer.left > 0:
            made = self._in_whole_numbers()
        objective = made["objective"]
        status = status_of(objective, bound, self.limits.gap)
        y = np.zeros(self.master.rows) if self.best is None else self.best
        return Decomposition(
            status,
            self.converged,
            bound,
            value,
            self.columns,
            x,
            y,
            history=tuple(self.history),
            **made,
        )

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
        """Whether a rounded point satisfies every row."""
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
