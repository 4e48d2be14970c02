"""Linear programs of which an optimum uses few columns: sifting.

A restricted program over some columns is solved. Columns with negative reduced cost at its duals
are added, until there are none. The first columns are those that cost little at duals of a
relaxation.

R. E. Bixby, J. W. Gregory, I. J. Lustig, R. E. Marsten, D. F. Shanno, "Very large-scale linear
programming: a case study in combining interior point and simplex methods", Operations Research
40(5), 1992.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from optsched.arrays import BoolArray, FloatArray, IntArray, owners
from optsched.arrays.values import replace
from optsched.program import Block, LinearArrays
from optsched.solution import PointStatus, Termination, Values
from optsched.solution.certificate import dual_bound
from optsched.solution.plan import Sifting
from optsched.solution.values import BASIC, LOWER, Basis
from optsched.solvers.interrupt import delayed_interrupt, interrupted
from optsched.solving.engine import Engine
from optsched.solving.outcome import STOPPED

MOST_TURNS = 40
"""Restricted programs that are solved at most."""
CHEAP = 0.03
"""Reduced cost at the first duals, as a part of the cost, up to which a column is chosen at
first."""
ALL_JOIN = 20_000
"""Columns of negative reduced cost up to which all are added, not only those that `cheapest`
picks."""
FEW_JOIN = 0.02
"""Columns that are added, as a part of those before, up to which a run goes on from the last basis.
With more, a run from the beginning, with presolve, takes a fraction of the iterations.
"""
TOO_CHEAP = 1e-9
"""A reduced cost below minus this fraction of the largest cost is more than rounding."""
PENALTIES = (20.0, 2_000.0)
"""Penalties per unit by which a row is violated, relative to the largest cost. The small one comes
first, because large numbers cost precision.
"""
SHORT = 1e-7
"""Fraction of the side of a row that may be missing: rounding."""


def solve_by_sifting(engine: Engine, arrays: LinearArrays, sifting: Sifting) -> Values:
    """An optimum of a linear program that is minimised, and its duals.

    Parameters
    ----------
    engine : Engine
    arrays : LinearArrays
    sifting : Sifting

    Returns
    -------
    Values
        `INFEASIBLE`: all columns together leave rows short. Where a limit or the
        user stopped a run, the last point that leaves no row short, if there is one, and the best
        duals: the last ones, or those of the relaxation. `IMPRECISE`: other columns would still be
        chosen, or a run gave no duals.

    Raises
    ------
    SolverCrashed
    """
    with delayed_interrupt() as interrupt:
        values = _sifted(engine, arrays, sifting)
        if values.termination is Termination.INTERRUPTED:
            interrupt.clear()  # the answer tells of it
        return values


def _sifted(engine: Engine, arrays: LinearArrays, sifting: Sifting) -> Values:
    """`solve_by_sifting`; Ctrl-C raises no exception in it."""
    relaxed, chosen = _begun(engine, arrays, sifting)
    known = Values(Termination.IMPRECISE, y=relaxed, words="sifting")
    penalties = iter(PENALTIES)
    penalty = next(penalties)
    before: tuple[_RestrictedProgram, Basis] | None = None
    for _ in range(MOST_TURNS):
        restricted = _RestrictedProgram(arrays, chosen, penalty)
        session = engine.open(restricted.program)
        if interrupted():
            return _stopped(arrays, known, relaxed, Termination.INTERRUPTED)
        if before is not None:
            session.set_start(restricted.basis_after(*before))
        values = engine.run(session)
        if values.termination is not Termination.OPTIMAL or values.x is None or values.y is None:
            return _stopped(arrays, known, relaxed, _end_of(values))
        x, y = restricted.spread(values.x, values.y)
        kept = restricted.missing(values.x) <= SHORT
        if kept:
            known = replace(known, primal=PointStatus.FEASIBLE, x=x, objective=arrays.objective(x))
        known = replace(known, y=y)
        joining = _joining(arrays, sifting, y, chosen, restricted.largest)
        if len(joining):
            basis = session.basis() if len(joining) < FEW_JOIN * len(chosen) else None
            before = None if basis is None else (restricted, basis)
            chosen = np.sort(np.concatenate([chosen, joining]))
        elif kept:
            engine.reason = f"sifting: {len(chosen):,} of {len(x):,} columns were looked at"
            return replace(known, termination=Termination.OPTIMAL, words=values.words)
        elif (penalty := next(penalties, 0.0)) == 0.0:
            return replace(known, termination=Termination.INFEASIBLE)
    return known


def _begun(engine: Engine, arrays: LinearArrays, sifting: Sifting) -> tuple[FloatArray, IntArray]:
    """Duals that prove a bound, and the columns to begin with."""
    began = engine.timer.clock()
    duals = sifting.duals()
    chosen = arrays.cost - arrays.A.T @ duals <= CHEAP * arrays.cost
    chosen[sifting.cheapest(duals)] = True
    engine.spend("bound", engine.timer.clock() - began)
    return duals, np.flatnonzero(chosen)


def _joining(
    arrays: LinearArrays, sifting: Sifting, y: FloatArray, chosen: IntArray, largest: float
) -> IntArray:
    """Columns that join the chosen ones, as their reduced cost at the duals y is negative; none at an
    optimum. ``largest`` is the largest cost.
    """
    is_cheap = arrays.cost - arrays.A.T @ y < -TOO_CHEAP * largest
    # Chosen columns at their upper bounds are cheap too.
    is_cheap[chosen] = False
    cheap = np.flatnonzero(is_cheap)
    if len(cheap) <= ALL_JOIN:
        return cheap
    cheapest = sifting.cheapest(y)
    joining = cheapest[is_cheap[cheapest]]
    # No optimum is claimed while reduced costs are negative.
    return joining if len(joining) else cheap


def _stopped(arrays: LinearArrays, known: Values, relaxed: FloatArray, end: Termination) -> Values:
    """What is known, with the duals of the better bound; nothing is minimised below it."""
    assert known.y is not None
    of_last, of_relaxed = (dual_bound(arrays, y) for y in (known.y, relaxed))
    worse = of_last is None or (of_relaxed is not None and of_relaxed > of_last)
    return replace(known, termination=end, y=relaxed if worse else known.y)


def _end_of(values: Values) -> Termination:
    """How sifting ends with a run that found no optimum, or no duals."""
    ends = (*STOPPED, Termination.INFEASIBLE)
    return values.termination if values.termination in ends else Termination.IMPRECISE


class _RestrictedProgram:
    """Some columns of a program, and an artificial column for each row that 0 violates.

    Parameters
    ----------
    arrays : LinearArrays
    chosen : IntArray
        Columns.
    penalty : float
        Cost of the artificial columns, as in `PENALTIES`.
    """

    def __init__(self, arrays: LinearArrays, chosen: IntArray, penalty: float) -> None:
        self.arrays, self.chosen = arrays, chosen
        self.largest = float(np.abs(arrays.cost).max(initial=0.0)) or 1.0
        side = np.maximum(arrays.row_lower, 0.0) + np.minimum(arrays.row_upper, 0.0)
        matrix_of_chosen = arrays.A[:, chosen]
        self.rows = np.flatnonzero(self._may_bind(matrix_of_chosen) | (side != 0.0))
        short = np.flatnonzero(side[self.rows])
        count = len(short)
        missing = side[self.rows[short]]
        extra = sp.csc_matrix((missing, (short, np.arange(count))), (len(self.rows), count))
        matrix = sp.csc_matrix(sp.hstack([matrix_of_chosen.tocsr()[self.rows], extra]))
        width = len(chosen) + count

        def padded(values: FloatArray, fill: FloatArray | float) -> FloatArray:
            return np.concatenate([values[chosen], np.broadcast_to(fill, count)])

        self.program = replace(
            arrays,
            A=matrix,
            row_lower=arrays.row_lower[self.rows],
            row_upper=arrays.row_upper[self.rows],
            lower=padded(arrays.lower, 0.0),
            upper=padded(arrays.upper, 1.0),
            cost=padded(arrays.cost, penalty * self.largest * np.abs(missing)),
            integer=np.zeros(width, bool),
            implied_lower=padded(arrays.implied_lower, 0.0),
            implied_upper=padded(arrays.implied_upper, 1.0),
            rows=(Block("rows", 0, len(self.rows)),),
            columns=(Block("columns", 0, width),),
        )

    def _may_bind(self, matrix: sp.csc_matrix) -> BoolArray:
        """Rows that some values of the chosen columns, whose matrix is given, would violate.

        The other rows hold at all values within the bounds. They cost time, and their duals are 0.
        """
        arrays, column = self.arrays, self.chosen[owners(np.diff(matrix.indptr))]
        rises = matrix.data > 0
        lower, upper = arrays.lower[column], arrays.upper[column]
        at_least = matrix.data * np.where(rises, lower, upper)
        at_most = matrix.data * np.where(rises, upper, lower)
        least = np.bincount(matrix.indices, at_least, arrays.shape[0])
        most = np.bincount(matrix.indices, at_most, arrays.shape[0])
        return np.asarray(~((most <= arrays.row_upper) & (least >= arrays.row_lower)))

    def basis_after(self, before: _RestrictedProgram, basis: Basis) -> Basis:
        """The basis of a program with fewer columns in this one: a column that has joined is at its
        lower bound, and the slack of such a row is basic.
        """
        columns = np.full(len(self.program.cost), LOWER, np.int64)
        columns[np.searchsorted(self.chosen, before.chosen)] = basis.columns[: len(before.chosen)]
        columns[len(self.chosen) :] = basis.columns[len(before.chosen) :]
        rows = np.full(len(self.rows), BASIC, np.int64)
        rows[np.searchsorted(self.rows, before.rows)] = basis.rows
        return Basis(columns, rows)

    def spread(self, x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
        """A point and duals of the whole program."""
        rows, columns = self.arrays.shape
        point, duals = np.zeros(columns), np.zeros(rows)
        point[self.chosen], duals[self.rows] = x[: len(self.chosen)], y
        return point, duals

    def missing(self, x: FloatArray) -> float:
        """The largest value of an artificial column: the fraction of a side that is missing."""
        return float(x[len(self.chosen) :].max(initial=0.0))
