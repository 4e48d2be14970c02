"""What a pair of the shared-link model has of its own on a level, beside the links that all share."""

from __future__ import annotations

import numpy as np
from scipy.optimize import least_squares

from optsched.arrays import FloatArray, IntArray
from optsched.performance.parametric.overlap import overlapped
from optsched.performance.parametric.shared_link_fit import BLOCK_ROWS, Rows, phases_of, robust
from optsched.performance.parametric.shared_link_prior import Parameters

OWN_WORTH = 30.0
"""Measurements of a pair on one level that count fully."""
FACTOR_SD = 1.0
"""Communication of a pair on one level is what its links and gradients say, times or by 2.7."""
SLOWDOWN, SLOWDOWN_SD = 0.05, 2.0
"""Compute on many GPUs is slower by 5 %, times or by 7.4."""
STARTS = ((0.0, 0.0), (0.0, 3.0))
"""Where the search begins: with a slowdown of 5 %, and with one that is 20 times as large."""
FARTHEST = 10.0
"""Logs of both stay within it."""


def fit_own(
    z: FloatArray, parameters: Parameters, rows: Rows, blocks: int
) -> tuple[FloatArray, FloatArray]:
    """Factors f on the communication, and slowdowns c, of each block (2 x pair + level), shape (blocks,) each.

        x = T_1 (1 + c (1 - 1/k))        y = f T_c        t = (passes - 1) x + (x^g + y^g)^(1/g)

    with the shared parameters z held: for each block the least

        sum of weight^2 soft_l1(log residual) + (log f / 1)^2 + (log(c / 0.05) / 2)^2.

    Where a pair was not measured on a level, f is 1 and c is 0. One step on several GPUs cannot tell them apart,
    several samples m can: a slowdown grows with m, communication does not. The squares of the weights of a block's n
    measurements sum to min(n, 30).
    """
    factor, slowdown = np.ones(blocks), np.zeros(blocks)
    of = phases_of(z, parameters, rows)
    communication = of.ring + of.hops
    g = 1.0 + float(np.exp(z[parameters.overlap]))
    weight = np.sqrt(np.minimum(rows.measured, OWN_WORTH) / np.minimum(rows.measured, BLOCK_ROWS))
    order = np.argsort(rows.block, kind="stable")
    found, first = np.unique(rows.block[order], return_index=True)
    ends = np.append(first, len(order))[1:]  # none where all steps ran on one GPU
    for block, start, end in zip(found.tolist(), first.tolist(), ends.tolist(), strict=True):
        members = order[start:end]
        one, sent, apart = of.one[members], communication[members], 1 - 1 / rows.k[members]
        again, measured, each = rows.passes[members] - 1, rows.log_seconds[members], weight[members]
        own = np.exp(_own(one, sent, SLOWDOWN * apart, g, again, measured, each))
        factor[block], slowdown[block] = own[0], SLOWDOWN * own[1]
    return factor, slowdown


def _own(
    one: FloatArray, sent: FloatArray, slower: FloatArray, g: float, again: IntArray, measured: FloatArray,
    weight: FloatArray,
) -> FloatArray:  # fmt: skip
    """log f and log(c / 0.05) of one block, from the better of the starts."""

    def both(own: FloatArray) -> tuple[FloatArray, FloatArray]:
        slowed = slower * np.exp(own[1])
        x, y = one * (1 + slowed), sent * np.exp(own[0])
        o = overlapped(x, y, g)
        t = o + again * x
        soft, steep = robust(np.log(t) - measured)
        by_x, by_y = ((x / o) ** g * o + again * x) / t, (y / o) ** g * o / t
        slopes = (weight * steep)[:, np.newaxis] * np.stack(
            [by_y, by_x * slowed / (1 + slowed)], axis=1
        )
        of_prior = np.array([own[0] / FACTOR_SD, own[1] / SLOWDOWN_SD])
        return np.concatenate([weight * soft, of_prior]), np.concatenate(
            [slopes, np.diag([1 / FACTOR_SD, 1 / SLOWDOWN_SD])]
        )

    def residuals(own: FloatArray) -> FloatArray:
        return both(own)[0]

    def slopes_of(own: FloatArray) -> FloatArray:
        return both(own)[1]

    far = (-FARTHEST, FARTHEST)
    tried = [
        least_squares(residuals, start, jac=slopes_of, bounds=far, max_nfev=50) for start in STARTS
    ]
    return np.asarray(min(tried, key=lambda end: float(end.cost)).x, np.float64)
