"""Linear programs of which an optimum uses few columns: sifting.

Some columns are solved alone. Their duals show which others are too cheap; these join them, until there are
none. The first columns are those that a relaxation with far fewer columns calls cheap.

R. E. Bixby, J. W. Gregory, I. J. Lustig, R. E. Marsten, D. F. Shanno, "Very large-scale linear programming: a
case study in combining interior point and simplex methods", Operations Research 40(5), 1992.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from optsched.arrays import FloatArray, IntArray
from optsched.program import Block, LinearArrays
from optsched.solution import PointStatus, Termination, Values
from optsched.solution.plan import Sifting
from optsched.solving.engine import Engine

MOST_TURNS = 40
"""Programs that are solved before the search gives up."""
ALL_JOIN = 20_000
"""Columns that are too cheap up to which all of them join, not only those that are chosen."""
TOO_CHEAP = 1e-9
"""Reduced costs below this part of the largest cost, negative, are no rounding."""
PENALTIES = (20.0, 2_000.0)
"""What it costs to leave a row short, in the largest cost for each unit that is missing: first little, as large
numbers cost precision.
"""
SHORT = 1e-7
"""Part of a row that may be missing: rounding."""


def solve_by_sifting(engine: Engine, arrays: LinearArrays, sifting: Sifting) -> Values | None:
    """An optimum of a linear program that is minimised, and its duals.

    Parameters
    ----------
    engine : Engine
    arrays : LinearArrays
    sifting : Sifting

    Returns
    -------
    Values or None
        None: the relaxation or all columns together leave rows short, or the time was over.
    """
    coarse = engine.build(lambda: sifting.coarse().arrays)
    found = engine.run(engine.open(coarse))
    if found.termination is not Termination.OPTIMAL or found.y is None:
        return None
    prices = found.y
    chosen = engine.build(lambda: sifting.first(prices))
    penalties = iter(PENALTIES)
    penalty = next(penalties)
    for _ in range(MOST_TURNS):
        some = _Some(arrays, chosen, penalty)
        values = engine.run(engine.open(some.program))
        if values.termination is not Termination.OPTIMAL or values.x is None or values.y is None:
            return None
        x, y = some.spread(values.x, values.y)
        cheap = np.flatnonzero(arrays.cost - arrays.A.T @ y < -TOO_CHEAP * some.largest)
        joining = cheap if len(cheap) <= ALL_JOIN else np.intersect1d(cheap, sifting.cheapest(y))
        joining = np.setdiff1d(joining, chosen)
        if len(joining):
            chosen = np.union1d(chosen, joining)
        elif some.missing(values.x) <= SHORT:
            engine.reason = f"sifting: {len(chosen):,} of {len(x):,} columns were looked at"
            return replace(
                values, primal=PointStatus.FEASIBLE, x=x, y=y, objective=arrays.objective(x),
                bound=None,
            )  # fmt: skip
        elif (penalty := next(penalties, 0.0)) == 0.0:
            return None
    return None


class _Some:
    """Some columns of a program, and one for each row that is not kept without any: what is missing there.

    Parameters
    ----------
    arrays : LinearArrays
    chosen : IntArray
        Columns.
    penalty : float
        Cost of what is missing, as of `PENALTIES`.
    """

    def __init__(self, arrays: LinearArrays, chosen: IntArray, penalty: float) -> None:
        self.arrays, self.chosen = arrays, chosen
        self.largest = float(np.abs(arrays.cost).max(initial=0.0)) or 1.0
        side = np.maximum(arrays.row_lower, 0.0) + np.minimum(arrays.row_upper, 0.0)
        own = arrays.A[:, chosen]
        touched = np.bincount(own.indices, minlength=arrays.shape[0]) > 0
        self.rows = np.flatnonzero(touched | (side != 0.0))
        short = np.flatnonzero(side[self.rows])
        count = len(short)
        missing = side[self.rows[short]]
        extra = sp.csc_matrix((missing, (short, np.arange(count))), (len(self.rows), count))
        matrix = sp.csc_matrix(sp.hstack([own.tocsr()[self.rows], extra]))
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

    def spread(self, x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
        """A point and duals of the whole program."""
        rows, columns = self.arrays.shape
        point, duals = np.zeros(columns), np.zeros(rows)
        point[self.chosen], duals[self.rows] = x[: len(self.chosen)], y
        return point, duals

    def missing(self, x: FloatArray) -> float:
        """The largest part of a row that is missing."""
        return float(x[len(self.chosen) :].max(initial=0.0))
