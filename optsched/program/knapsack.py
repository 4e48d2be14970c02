"""The knapsack, as pricing problems ask for it."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from optsched.arrays import BoolArray
from optsched.errors import InvalidArgument

MOST_CELLS = 2**28
"""Items times capacity; a byte is kept for each."""


def best_items(value: ArrayLike, weight: ArrayLike, capacity: float) -> tuple[float, BoolArray]:
    """Items of the greatest total value within a capacity, each at most once.

    ::

        maximise  sum_j value_j z_j   s.t.  sum_j weight_j z_j <= capacity,  z binary

    by dynamic programming over the capacity, an item at a time.

    Parameters
    ----------
    value : array, shape (items,)
        Items of no value are not taken.
    weight : array of int, shape (items,)
        At least 0.
    capacity : float
        May be infinite.

    Returns
    -------
    float, BoolArray of shape (items,)
        The total value, and whether each item is taken.

    Raises
    ------
    InvalidArgument
    """
    v, w = np.asarray(value, np.float64), np.asarray(weight)
    if v.ndim != 1 or v.shape != w.shape:
        raise InvalidArgument("weight", f"shape {w.shape}", f"that of value, {v.shape}")
    if w.size and ((w < 0).any() or (w != np.floor(w)).any()):
        raise InvalidArgument("weight", f"{w[(w < 0) | (w != np.floor(w))][0]:g}", "whole numbers")
    if np.isnan(capacity):
        raise InvalidArgument("capacity", "nan", "a number")
    chosen = np.zeros(len(v), bool)
    worth = np.flatnonzero((v > 0) & (w <= capacity)) if capacity >= 0 else np.zeros(0, np.int64)
    # More room than all items need is not used
    b = int(min(capacity, w[worth].sum(dtype=np.float64)))
    if len(worth) * (b + 1) > MOST_CELLS:
        cells = f"{len(worth):,} items and a capacity of {b:,}"
        raise InvalidArgument("capacity", cells, f"a product of at most {MOST_CELLS:,}")
    best = np.zeros(b + 1)
    taken = np.zeros((len(worth), len(best)), bool)
    for row, item in enumerate(worth.tolist()):
        size = int(w[item])
        with_item = best[: len(best) - size] + v[item]
        taken[row, size:] = with_item > best[size:]
        best[size:] = np.maximum(best[size:], with_item)
    room = len(best) - 1
    for row in range(len(worth) - 1, -1, -1):
        if taken[row, room]:
            chosen[worth[row]] = True
            room -= int(w[worth[row]])
    return float(best[-1]), chosen
