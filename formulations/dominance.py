"""Columns that another column of the same job dominates."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from optsched.arrays import BoolArray, FloatArray, IntArray, mask_of

COMPARED = 30_000_000
"""Most comparisons of two columns. Beyond that some dominated columns may stay: solving is slower,
the optimum is the same.
"""


def dominated(
    owner: IntArray, value: FloatArray, usage: sp.csr_matrix, eligible: BoolArray
) -> BoolArray:
    """True where another column of the same owner has at least the value, and uses at most as much
    of every resource. Of equal columns the first is kept.

    The columns of an owner are sorted by falling value, then by growing use, so that a column is
    dominated only by earlier ones. Each remaining column in turn is the pivot; later columns that
    need at least as much of every resource are removed. All owners are handled at once: the number
    of rounds is the largest number of columns that any owner keeps. A column uses few of many
    resources, so that a row of all resources would be mostly empty.

    Parameters
    ----------
    owner : IntArray, shape (N,)
    value : FloatArray, shape (N,)
    usage : csr_matrix, shape (resources, N)
    eligible : BoolArray, shape (N,)
        Columns that are compared; the others are not dominated and dominate nothing.
    """
    rows = np.flatnonzero(eligible)
    used = usage.tocsc()[:, rows].sum(axis=0).A1
    rows = rows[np.lexsort((used, -value[rows], owner[rows]))]
    use = _Use(usage.tocsc()[:, rows])
    of_owner = owner[rows]

    result = np.zeros(len(owner), bool)
    ahead = np.arange(len(rows))  # columns that are neither dominated nor pivots yet
    compared = 0
    while len(ahead) and compared < COMPARED:
        compared += len(ahead)
        new = np.concatenate(([True], of_owner[ahead][1:] != of_owner[ahead][:-1]))
        # For each undecided column, the first undecided column of its owner
        pivot = ahead[np.flatnonzero(new)][np.cumsum(new) - 1]
        after = pivot != ahead
        ahead, pivot = ahead[after], pivot[after]
        worse = use.at_least(ahead, pivot)
        result[rows[ahead[worse]]] = True
        ahead = ahead[~worse]
    return result


class _Use:
    """What columns use of resources, looked up by column and resource."""

    def __init__(self, usage: sp.csc_matrix) -> None:
        usage.sort_indices()
        self._resources = usage.shape[0]
        self._begin, self._count = usage.indptr[:-1], np.diff(usage.indptr)
        self._resource, self._amount = usage.indices, usage.data
        column = np.repeat(np.arange(usage.shape[1]), self._count)
        self._key = column * self._resources + self._resource

    def at_least(self, column: IntArray, other: IntArray) -> BoolArray:
        """Whether each column uses at least as much of every resource as the other one."""
        count = self._count[other]
        row = np.repeat(np.arange(len(other)), count)
        entry = np.arange(len(row)) + np.repeat(
            self._begin[other] - np.cumsum(count) + count, count
        )
        key = column[row] * self._resources + self._resource[entry]
        place = self._key.searchsorted(key)
        place[place == len(self._key)] = 0
        own = np.where(self._key[place] == key, self._amount[place], 0.0)
        uses_less = row[own < self._amount[entry]]
        return ~mask_of(uses_less, len(other))
