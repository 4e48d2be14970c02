"""Whole jobs taken one after the other while they fit:
a feasible point of an integral program without a solver.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from optsched.arrays import BoolArray, FloatArray, IntArray, quotient
from optsched.program.side_rows import LimitRows

if TYPE_CHECKING:  # a process that only solves needs no candidates
    from optsched.candidates import Classes

PASSES = 200
"""Passes over the columns at most:
each one takes as many as fit, in order, up to the first that does not.
"""
ROUNDING = 1e-12


def greedy_fill(
    C: Classes, limits: LimitRows, gain: FloatArray, allowed: BoolArray, x: FloatArray
) -> FloatArray:
    """A whole point with more jobs, by decreasing gain per part of the resources that a job takes.

    Parameters
    ----------
    C : Classes
        The jobs; those that run alone are looked at.
    limits : LimitRows
        The rows that are kept.
    gain : FloatArray, shape (N,)
        Gain of the objective per job in each column.
    allowed : BoolArray, shape (N,)
        Columns that may be taken.
    x : FloatArray, shape (N,)
        Where to begin: whole, within time and these rows.
    """
    x = x.copy()
    matrix, most = limits.matrix.tocsc(), limits.most
    limited = np.isfinite(most) & (most > 0)
    share = matrix.T @ np.divide(1.0, most, out=np.zeros(len(most)), where=limited)
    possible = C.alone & allowed & (gain > 0)
    # The last key counts most: gain per share of the resources, then gain.
    order = np.lexsort((-gain, -quotient(gain, share, np.inf)))
    order = order[possible[order]]
    for _ in range(PASSES):
        left = most - matrix @ x
        free = np.floor(np.maximum(C.count - C.time(x), 0.0) + 1e-9)
        most_of = np.minimum(free[C.class_a[order]], _copies(matrix, left, order))
        order, most_of = order[most_of >= 1], most_of[most_of >= 1]
        if not len(order):
            break
        _, first = np.unique(C.class_a[order], return_index=True)
        first = np.sort(first)  # the best column of each class, in the order of all
        fits = _prefix(matrix, left, order[first], most_of[first])
        x[order[first[:fits]]] += most_of[first[:fits]]
    return x


def _copies(matrix: sp.csc_matrix, left: FloatArray, columns: IntArray) -> FloatArray:
    """How many jobs fit into what is left, in each column by itself."""
    copies = np.full(len(columns), np.inf)
    uses = matrix[:, columns].tocoo()
    room = np.floor(
        np.maximum(left[uses.row], 0.0) / np.maximum(uses.data, 1e-300) * (1 + ROUNDING)
    )
    np.minimum.at(copies, uses.col, np.where(uses.data > 0, room, np.inf))
    return copies


def _prefix(matrix: sp.csc_matrix, left: FloatArray, columns: IntArray, amount: FloatArray) -> int:
    """How many of the columns fit together, from the first one on."""
    fits = len(columns)
    rows = sp.csr_matrix(matrix[:, columns] @ sp.diags_array(amount))
    rows.sort_indices()
    for row in np.flatnonzero(np.diff(rows.indptr)).tolist():
        entries = slice(rows.indptr[row], rows.indptr[row + 1])
        # The first column at which this row is over full ends the prefix.
        over = np.flatnonzero(np.cumsum(rows.data[entries]) > left[row] * (1 + ROUNDING))
        fits = min(fits, int(rows.indices[entries][over[0]])) if len(over) else fits
    return fits
