"""GPUs that columns hold, whose they are, and rows on sums of what columns have."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp

from optsched.arrays import FloatArray, IntArray
from optsched.candidates import Classes
from optsched.program import SameWords, SideRows


def gpus_held(C: Classes) -> FloatArray:
    """GPUs that one unit of each column holds, shape (N,):
    GPUs x share of each; 0 without a pool.
    """
    share = C.configurations.share[C.configuration]
    return np.where(C.pool >= 0, C.gpus * share, 0.0)


def usable_gpus(C: Classes, pools: IntArray) -> FloatArray:
    """Usable GPUs of each pool, as the capacity rows count them; shape (pools,)."""
    of_pool = np.zeros(len(C.instance.cluster.pools))
    row = C.resources.pool
    of_pool[row[row >= 0]] = C.capacity[row >= 0]
    return of_pool[pools]


def sum_row(
    kind: str, amounts: FloatArray, words: str, least: float = -np.inf, most: float = np.inf
) -> SideRows | None:
    """One row on the sum of what the columns have, shape (N,); None where no column has
    anything.
    """
    row = sp.csr_matrix(amounts[np.newaxis, :])
    row.eliminate_zeros()
    if row.nnz == 0:
        return None
    return SideRows(kind, row, np.array([least]), np.array([most]), SameWords(words))


def first_names(names: Sequence[str]) -> str:
    """``a, b, c, d, e and 3 more``."""
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
