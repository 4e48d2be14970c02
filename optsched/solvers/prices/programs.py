"""The small linear programs of the price method:
mixtures of responses, and classes whose choice is close.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from optsched.arrays import BoolArray, FloatArray
from optsched.program.arrays import Block, LinearArrays
from optsched.solution.values import Basis, Termination
from optsched.solvers.base import Limits
from optsched.solvers.highs import Highs

PRECISE = 1e-10
"""Tolerance of the small programs, below the gap at which a search ends."""


def maximum(
    name: str,
    A: sp.csc_matrix,
    cost: FloatArray,
    row_lower: FloatArray,
    row_upper: FloatArray,
    upper: FloatArray | None = None,
) -> LinearArrays:
    """maximise cost x  s.t.  row_lower <= A x <= row_upper,  0 <= x <= upper.

    Columns without an upper bound are parts of a whole, so that the rows imply x <= 1.
    """
    rows, columns = A.shape
    zero = np.zeros(columns)
    most = np.full(columns, np.inf) if upper is None else upper
    return LinearArrays(
        A=A,
        row_lower=row_lower,
        row_upper=row_upper,
        lower=zero,
        upper=most,
        cost=cost,
        integer=np.zeros(columns, bool),
        maximise=True,
        offset=0.0,
        implied_lower=zero,
        implied_upper=np.where(np.isfinite(most), most, 1.0),
        rows=(Block(name, 0, rows),),
        columns=(Block(name, 0, columns),),
    )


def optimum(
    program: LinearArrays, seconds: float | None, start: Basis | None = None
) -> tuple[FloatArray, FloatArray] | None:
    """The optimal point and the duals of the rows;
    None without an optimum, or where it takes longer.
    """
    limits = Limits(seconds, tolerance=PRECISE)
    session = Highs().open(program)
    if start is not None:
        session.set_start(start)
    values = session.run(limits).checked(*program.shape, Highs.name)
    # Rates of many orders may make a basis to start from singular.
    if start is not None and values.termination in (Termination.IMPRECISE, Termination.ERROR):
        values = Highs().open(program).run(limits).checked(*program.shape, Highs.name)
    if values.x is None or values.y is None or values.termination is not Termination.OPTIMAL:
        return None
    return values.x, values.y


def least_in_rows(table: FloatArray, count: int) -> BoolArray:
    """Which entries are among the ``count`` smallest of their row."""
    few = np.argpartition(table, count - 1, axis=1)[:, :count]
    mask = np.zeros(table.shape, bool)
    np.put_along_axis(mask, few, True, axis=1)
    return mask
