"""How long work takes at least on several resources, whoever does which part of it."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from optsched.arrays import FloatArray, IntArray

STEPS = 50
"""Prices that are tried; each takes one pass through the work."""
FASTEST = 0.5
"""Step of the first of them."""
ROUNDING = 1e-9
"""Part of the result that is left out, as it may be rounding."""


def least_time(
    work: sp.csr_matrix, owner: IntArray, count: FloatArray, capacity: FloatArray | IntArray
) -> float:
    """A lower bound on the time T in which all of the work can be done.

    Each of n_a equal activities chooses a mode, and no resource does more than its capacity:

        sum_m work_rm x_m  <=  capacity_r T   every resource r,   sum_{m of a} x_m  =  n_a   every a

    For any prices y >= 0 with sum_r capacity_r y_r = 1 this gives

        T  >=  sum_a n_a min_{m of a} sum_r y_r work_rm

    Prices rise where the cheapest modes make the load large (multiplicative weights: S. Arora, E.
    Hazan, S. Kale, Theory of Computing 8, 2012).

    Parameters
    ----------
    work : csr_matrix, shape (R, M)
        Amount times time that a mode takes of each resource.
    owner : IntArray, shape (M,)
        Activity of each mode; every activity has one.
    count : FloatArray, shape (A,)
    capacity : array, shape (R,)
    """
    there = np.flatnonzero(np.asarray(capacity) > 0)
    if not len(there) or not len(owner):
        return 0.0
    part = sp.csr_matrix(sp.diags_array(1.0 / capacity[there]) @ sp.csr_matrix(work)[there])
    by_mode = sp.csr_matrix(part.T)
    price, best = np.full(len(there), 1.0 / len(there)), 0.0
    for step in range(STEPS):
        cost, least = by_mode @ price, np.full(len(count), np.inf)
        np.minimum.at(least, owner, cost)
        best = max(best, float(least @ count))
        cheapest = cost <= least[owner]
        chosen = cheapest * (count / np.bincount(owner, cheapest, minlength=len(count)))[owner]
        load = part @ chosen
        if load.max() <= 0:
            break
        price = price * np.exp(FASTEST / np.sqrt(step + 1.0) * (load / load.max() - 1.0))
        price /= price.sum()
    return best * (1.0 - ROUNDING)
