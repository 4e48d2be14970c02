"""The law of Pollux: seconds of a step of data-parallel training, with its derivatives."""

from __future__ import annotations

import numpy as np

from optsched.arrays import FloatArray, IntArray
from optsched.performance.parametric.overlap import overlapped
from optsched.performance.ways import Ways

NAMES = ("a_c", "b_c", "a_n", "b_n", "a_r", "b_r", "g")
"""Coefficients of a law in this order: s, s per sample, s, s per GPU, s, s per GPU, none."""
A_C, B_C, A_N, B_N, A_R, B_R, G = range(7)


def compute_seconds(law: FloatArray, samples: FloatArray) -> FloatArray:
    """T_grad = a_c + b_c m; ``law`` is one law (7,) or one per way (7, E)."""
    seconds: FloatArray = law[A_C] + law[B_C] * samples
    return seconds


def sync_seconds(
    law: FloatArray, gpus: IntArray, nodes: IntArray, least: float = 0.0
) -> FloatArray:
    """T_sync of k GPUs on n nodes.

        T_sync = 0                        k = 1
                 a_r + b_r max(k - 2, 0)  n = 1
                 a_n + b_n max(k - 2, 0)  n > 1

    ``least`` stands for the zeros; AdaptDL has 1e-8 there.
    """
    more = np.maximum(gpus - 2.0, least)
    inside, across = law[A_R] + law[B_R] * more, law[A_N] + law[B_N] * more
    seconds: FloatArray = np.where(
        gpus == 1, least + least * more, np.where(nodes > 1, across, inside)
    )
    return seconds


def step_seconds(law: FloatArray, ways: Ways, least: float = 0.0) -> FloatArray:
    """t = (passes - 1) T_grad + (T_grad^g + T_sync^g)^(1/g)."""
    compute = compute_seconds(law, ways.samples)
    sync = sync_seconds(law, ways.gpus, ways.nodes, least)
    return overlapped(compute, sync, law[G]) + compute * (ways.passes - 1)


def log_step_seconds(
    law: FloatArray, ways: Ways, least: float = 0.0
) -> tuple[FloatArray, FloatArray]:
    """log t of one law, and its derivatives by the logs of the first six coefficients and by g, shape (E, 7).

    With x = T_grad, y = T_sync and o = (x^g + y^g)^(1/g):

        do/dx = (x/o)^(g-1)        do/dy = (y/o)^(g-1)
        do/dg = o / g (p log x + q log y - log o),    p = (x/o)^g, q = (y/o)^g = 1 - p
    """
    g = law[G]
    x = compute_seconds(law, ways.samples)
    y = sync_seconds(law, ways.gpus, ways.nodes, least)
    o = overlapped(x, y, g)
    t = o + x * (ways.passes - 1)
    several = ways.gpus > 1
    across = several & (ways.nodes > 1)
    inside = several & ~across
    more = np.maximum(ways.gpus - 2.0, least)
    by_x = (x / o) ** (g - 1)
    by_y = np.where(several, (y / o) ** (g - 1), 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        share_y = (y / o) ** g
        of_y = np.where(y > 0, share_y * np.log(y / o), 0.0)
    by_g = o / g * ((x / o) ** g * np.log(x / o) + of_y)
    slopes = np.stack(
        [
            (by_x + ways.passes - 1) * law[A_C],
            (by_x + ways.passes - 1) * law[B_C] * ways.samples,
            by_y * across * law[A_N],
            by_y * across * law[B_N] * more,
            by_y * inside * law[A_R],
            by_y * inside * law[B_R] * more,
            by_g,
        ],
        axis=1,
    )  # fmt: skip
    return np.log(t), slopes / t[:, np.newaxis]
