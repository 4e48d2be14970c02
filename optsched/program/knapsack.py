"""The knapsack of pricing problems, and the loss if an item must be taken."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from optsched.arrays import BoolArray, FloatArray, IntArray
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


def losses_of_items(
    value: FloatArray, weight: IntArray, capacity: int
) -> tuple[FloatArray, FloatArray]:
    """By how much the greatest total value falls if an item must be taken, and if it must be left
    out; both of shape (items,).

    ::

        F_j(b)  greatest value of the items before j within b;   G_j(b) of those behind j
        taken_j     =  F_n(B)  -  value_j  -  max { F_j(b) + G_j(B - weight_j - b) : 0 <= b <= B - weight_j }
        left_out_j  =  F_n(B)  -  max { F_j(b) + G_j(B - b) : 0 <= b <= B }

    The first is infinite for an item that does not fit.

    Parameters
    ----------
    value : FloatArray, shape (items,)
        May be negative.
    weight : IntArray, shape (items,)
        At least 0.
    capacity : int
    """
    items = len(value)
    before, behind = _tables(value, weight, capacity), _tables(value[::-1], weight[::-1], capacity)
    taken, left_out = np.full(items, np.inf), np.zeros(items)
    for item, size in enumerate(weight.tolist()):
        others = behind[items - 1 - item, ::-1]
        left_out[item] = before[-1, -1] - (before[item] + others).max()
        if size <= capacity:
            beside = before[item, : capacity + 1 - size] + others[size:]
            taken[item] = before[-1, -1] - value[item] - beside.max()
    return np.maximum(taken, 0.0), np.maximum(left_out, 0.0)


def _tables(value: FloatArray, weight: IntArray, capacity: int) -> FloatArray:
    """Greatest value of the first items within each capacity, shape (items + 1, capacity + 1)."""
    best = np.zeros((len(value) + 1, capacity + 1))
    for item, size in enumerate(weight.tolist()):
        best[item + 1] = best[item]
        if size <= capacity and value[item] > 0:
            with_item = best[item, : capacity + 1 - size] + value[item]
            np.maximum(best[item + 1, size:], with_item, out=best[item + 1, size:])
    return best
