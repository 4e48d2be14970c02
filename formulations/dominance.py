"""Columns that another column of the same job dominates."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from optsched.arrays import BoolArray, FloatArray, IntArray

ROUNDS = 500
"""Most pivots per job. Beyond that some dominated columns may stay: solving is slower, the optimum
is the same.
"""


def dominated(
    owner: IntArray, value: FloatArray, usage: sp.csr_matrix, eligible: BoolArray
) -> BoolArray:
    """True where another column of the same owner has at least the value, and uses at most as much
    of every resource. Of equal columns the first is kept.

    The columns of an owner are sorted by falling value, then by growing use, so that a column is
    dominated only by earlier ones. Each remaining column in turn is the pivot; later columns that
    need at least as much of every resource are removed. All owners are handled at once: the number
    of rounds is the largest number of columns that any owner keeps.

    Parameters
    ----------
    owner : IntArray, shape (N,)
    value : FloatArray, shape (N,)
    usage : csr_matrix, shape (resources, N)
    eligible : BoolArray, shape (N,)
        Columns that are compared; the others are not dominated and dominate nothing.
    """
    rows = np.flatnonzero(eligible)
    use = usage.tocsc()[:, rows].toarray().T
    rows_used = use.any(axis=0)
    use = use[:, rows_used]
    order = np.lexsort((use.sum(axis=1), -value[rows], owner[rows]))
    rows, use = rows[order], use[order]
    of_owner = owner[rows]

    result = np.zeros(len(owner), bool)
    ahead = np.arange(len(rows))  # columns that are neither dominated nor pivots yet
    for _ in range(ROUNDS):
        if len(ahead) == 0:
            break
        new = np.concatenate(([True], of_owner[ahead][1:] != of_owner[ahead][:-1]))
        # For each undecided column, the first undecided column of its owner
        pivot = ahead[np.flatnonzero(new)][np.cumsum(new) - 1]
        after = pivot != ahead
        ahead, pivot = ahead[after], pivot[after]
        worse = (use[ahead] >= use[pivot]).all(axis=1)
        result[rows[ahead[worse]]] = True
        ahead = ahead[~worse]
    return result
