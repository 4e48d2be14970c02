"""Columns that another column of the same job dominates."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from optsched.arrays import BoolArray, FloatArray, IntArray

ROUNDS = 500
"""Pivots per job: dominated columns may be left after so many,
which costs time and never the optimum.
"""


def dominated(
    owner: IntArray, value: FloatArray, usage: sp.csr_matrix, eligible: BoolArray
) -> BoolArray:
    """Mask of the columns c for which some c'
    of the same owner has value >= and usage <= in every resource.

    Of columns that are equal in all of this the first is kept. The columns of an owner are put in
    order of falling value, then of growing use, so that a column is dominated only by earlier ones;
    those left are taken one after the other, and everything behind that needs at least as much is
    crossed out. All owners go through this together: there are as many rounds as some owner keeps
    columns.

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
        # The first column left of each one's owner.
        pivot = ahead[np.flatnonzero(new)][np.cumsum(new) - 1]
        after = pivot != ahead
        ahead, pivot = ahead[after], pivot[after]
        worse = (use[ahead] >= use[pivot]).all(axis=1)
        result[rows[ahead[worse]]] = True
        ahead = ahead[~worse]
    return result
