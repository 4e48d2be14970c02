"""Implied bounds of columns, derived from the rows by their activities."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from optsched.arrays import (
    FloatArray,
    lengths,
    owners,
)

PASSES = 3


def implied_bounds(
    matrix: sp.csc_matrix,
    row_lower: FloatArray,
    row_upper: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Derive bounds for columns without any, which every feasible point satisfies.

    In a row ``sum_j a_ij x_j <= u_i`` the other columns contribute at least their smallest
    activity, hence

        x_j <= (u_i - sum_{k != j} min(a_ik lower_k, a_ik upper_k)) / a_ij    for a_ij > 0,

    and likewise for the other signs and ``>=`` rows. Only columns that lack a finite bound are
    touched; a bound of the level t in ``a_i x - t >= 0`` comes in a later pass, once x has its own.
    At most `PASSES` passes.

    Returns
    -------
    lower, upper : FloatArray, shape (N,)
        Still infinite where the rows give nothing.
    """
    lower, upper = lower.copy(), upper.copy()
    for _ in range(PASSES):
        before = np.isfinite(lower).sum() + np.isfinite(upper).sum()
        if before == lower.size + upper.size:
            break
        row, value = matrix.indices, matrix.data
        column = owners(lengths(matrix.indptr))
        # rows <= u as they are; rows >= l as -row <= -l
        for sign, side in ((1.0, row_upper), (-1.0, -row_lower)):
            useful = np.isfinite(side)[row] & (value != 0)
            _tighten(row[useful], column[useful], sign * value[useful], side, lower, upper)
        if np.isfinite(lower).sum() + np.isfinite(upper).sum() == before:
            break
    return lower, upper


def _tighten(
    row: np.ndarray,
    column: np.ndarray,
    value: FloatArray,
    side: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
) -> None:
    """One pass over rows ``a x <= side``; writes new bounds of columns that had none."""
    with np.errstate(invalid="ignore"):
        smallest = np.where(value > 0, value * lower[column], value * upper[column])
    unbounded = ~np.isfinite(smallest)
    finite = np.where(unbounded, 0.0, smallest)
    total = np.bincount(row, finite, minlength=len(side))
    missing = np.bincount(row, unbounded, minlength=len(side))
    # The others have a smallest activity where none of them is unbounded but the column itself.
    usable = missing[row] - unbounded == 0
    bound = (side[row] - (total[row] - finite)) / value
    rising = usable & (value > 0) & np.isposinf(upper[column])
    falling = usable & (value < 0) & np.isneginf(lower[column])
    new_upper, new_lower = np.full(len(upper), np.inf), np.full(len(lower), -np.inf)
    np.minimum.at(new_upper, column[rising], bound[rising])
    np.maximum.at(new_lower, column[falling], bound[falling])
    np.copyto(upper, new_upper, where=np.isposinf(upper))
    np.copyto(lower, new_lower, where=np.isneginf(lower))
