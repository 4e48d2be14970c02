"""Slices: trimmed to what was asked for, and put in an order with few switches."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from optsched.arrays import FloatArray

NOTHING = 1e-13
"""Shares of the window below this are rounding."""
ORDERED = 1024
"""Slices are put in order up to this many: the comparison of all with all is quadratic."""


def trimmed(
    length: FloatArray, runs: sp.csr_matrix, need: FloatArray
) -> tuple[FloatArray, sp.csr_matrix]:
    """Take from each row the last part of what it runs beyond its need; cuts at most one slice per row.

    Parameters
    ----------
    length : FloatArray, shape (S,)
    runs : csr_matrix, shape (S, A)
    need : FloatArray, shape (A,)
    """
    by_row = runs.tocsc()
    by_row.sort_indices()
    number, row = (
        by_row.indices.astype(np.int64),
        np.repeat(np.arange(len(need)), np.diff(by_row.indptr)),
    )
    total = np.concatenate(([0.0], np.cumsum(length[number])))
    before = total[:-1] - total[by_row.indptr[row]]
    stays = np.clip(need[row] - before, 0.0, length[number])
    stays[stays < NOTHING] = 0.0
    whole = stays > length[number] - NOTHING
    stays[whole] = length[number][whole]
    number, row, stays = number[stays > 0], row[stays > 0], stays[stays > 0]
    # a slice is cut where the first part of a row in it ends; the row runs in all cuts up to there
    ends, end = np.unique(np.stack([number, stays], axis=1), axis=0, return_inverse=True)
    slice_of = ends[:, 0].astype(np.int64)
    start = np.where(np.diff(slice_of, prepend=-1) != 0, 0.0, np.concatenate(([0.0], ends[:-1, 1])))
    first = np.searchsorted(slice_of, number)
    cuts = end.ravel() - first + 1
    place = np.repeat(first - np.concatenate(([0], np.cumsum(cuts)[:-1])), cuts) + np.arange(
        cuts.sum()
    )
    made = sp.csr_matrix(
        (np.ones(len(place), np.int8), (place, np.repeat(row, cuts))), shape=(len(ends), len(need))
    )
    return ends[:, 1] - start, made


def in_order(length: FloatArray, runs: sp.csr_matrix) -> tuple[FloatArray, sp.csr_matrix]:
    """Slices without empty ones, each followed by the one that shares the most rows with it.

    The order as it is given is kept where it has fewer switches, or where there are too many slices to compare.
    """
    kept = np.flatnonzero((length > 0) & (np.diff(runs.indptr) > 0))
    length, runs = length[kept], sp.csr_matrix(runs[kept])
    if not 2 < len(length) <= ORDERED:
        return length, runs
    dense = runs.toarray().astype(np.float32)
    shared = dense @ dense.T
    size = np.diagonal(shared).copy()
    unused = np.ones(len(length), bool)
    order = [int(np.argmax(size))]
    for _ in range(len(length) - 1):
        unused[order[-1]] = False
        # rows that start or stop between the two
        change = size + size[order[-1]] - 2 * shared[order[-1]]
        order.append(int(np.argmin(np.where(unused, change, np.inf))))
    given = np.arange(len(length))
    best = (
        np.array(order)
        if _switches(shared, size, np.array(order)) < _switches(shared, size, given)
        else given
    )
    return length[best], sp.csr_matrix(runs[best])


def _switches(shared: np.ndarray, size: np.ndarray, order: np.ndarray) -> float:
    return float(size.sum() - shared[order[:-1], order[1:]].sum())
