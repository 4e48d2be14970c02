"""The joint fit of the shared-link model: links of GPU types, gradients of workloads, one overlap."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares

from optsched.arrays import FloatArray, IntArray
from optsched.performance.parametric.overlap import overlapped
from optsched.performance.parametric.shared_link_prior import Parameters, Prior
from optsched.performance.profiles import Profiles

ROBUST = 0.1
"""Scale of soft_l1: log residuals beyond 10 % count linearly."""
BLOCK_ROWS = 60
"""Measurements of a pair on one level that are looked at."""


@dataclass(frozen=True)
class Rows:
    """Steps of several GPUs, arrays of length E, with the parameters that each one depends on.

    Attributes
    ----------
    workload, gpu, link, base : IntArray
        Rows among the parameters (`Parameters`); base is -1 where T_1 was measured.
    block : IntArray
        2 x pair + level, which is 0 inside a node and 1 across nodes.
    k, samples : FloatArray
    passes : IntArray
    one : FloatArray
        Seconds of a pass on one GPU.
    log_seconds : FloatArray
    measured : FloatArray
        Measurements of the block, of which at most `BLOCK_ROWS` are among the rows.
    """

    workload: IntArray
    gpu: IntArray
    link: IntArray
    block: IntArray
    base: IntArray
    k: FloatArray
    samples: FloatArray
    passes: IntArray
    one: FloatArray
    log_seconds: FloatArray
    measured: FloatArray


def rows_of(
    profiles: Profiles,
    cell: IntArray,
    one_gpu: FloatArray,
    base: IntArray,
    workload: IntArray,
    gpu: IntArray,
) -> Rows:
    """What the fit looks at: all steps of several GPUs, at most `BLOCK_ROWS` of a block, evenly over k and m.

    Parameters
    ----------
    cell : IntArray, shape (E,)
        Pair (workload, GPU type) of each measurement.
    one_gpu : FloatArray, shape (E,)
        T_1 of it, as measured where it was; NaN where its pair was not measured on one GPU.
    base : IntArray, shape (E,)
        Row of its pair among those without a measured T_1, -1 for the others.
    workload, gpu : IntArray, shape (E,)
        Rows among the names of the parameters.
    """
    ways = profiles.ways
    across = (ways.nodes > 1).astype(np.int64)
    order = np.lexsort((ways.samples, ways.gpus, 2 * cell + across))
    order = order[ways.gpus[order] > 1]
    block = 2 * cell[order] + across[order]
    _, start, count = np.unique(block, return_index=True, return_counts=True)
    place = np.arange(len(order)) - np.repeat(start, count)
    each = np.repeat(count, count)
    kept = each <= BLOCK_ROWS
    step = each / BLOCK_ROWS
    kept |= np.floor(place / step) != np.floor((place - 1) / step)  # evenly over k and m
    rows, each = order[kept], each[kept]
    return Rows(
        workload[rows], gpu[rows], 2 * gpu[rows] + across[rows], 2 * cell[rows] + across[rows], base[rows],
        ways.gpus[rows].astype(np.float64), ways.samples[rows], ways.passes[rows], one_gpu[rows],
        np.log(profiles.seconds[rows]), each.astype(np.float64),
    )  # fmt: skip


@dataclass(frozen=True)
class Phases:
    """What a step consists of by shared parameters, arrays of length E.

    Attributes
    ----------
    one : FloatArray
        T_1.
    ring, hops : FloatArray
        S 2 (k-1)/k / B  and  2 (k-1) alpha.
    """

    one: FloatArray
    ring: FloatArray
    hops: FloatArray


def phases_of(z: FloatArray, parameters: Parameters, rows: Rows) -> Phases:
    """The phases of each row by the parameters z."""
    at = parameters
    told = (
        np.exp(z[at.base_constant + rows.base])
        + np.exp(z[at.base_slope + rows.base]) * rows.samples
    )
    apart = 1.0 - 1.0 / rows.k
    return Phases(
        one=np.where(rows.base < 0, rows.one, told),
        ring=np.exp(z[at.bytes + rows.workload] - z[at.bandwidth + rows.link]) * 2 * apart,
        hops=np.exp(z[at.latency + rows.link]) * 2 * (rows.k - 1),
    )


def log_seconds(z: FloatArray, parameters: Parameters, rows: Rows) -> tuple[FloatArray, FloatArray]:
    """log t of each row and its derivatives by all parameters, shape (E, P).

    With x = T_1, y = T_c, o = (x^g + y^g)^(1/g), p = (x/o)^g and q = 1 - p:

        d log o / d log x = p      d log o / d log y = q      d log o / dg = (p log(x/o) + q log(y/o)) / g
    """
    at, every = parameters, np.arange(len(rows.k))
    of = phases_of(z, parameters, rows)
    x, y = of.one, of.ring + of.hops
    spare = np.exp(z[at.overlap])
    g = 1.0 + spare
    o = overlapped(x, y, g)
    t = o + (rows.passes - 1) * x
    p, q = (x / o) ** g, (y / o) ** g
    by_x = (p * o + (rows.passes - 1) * x) / t
    by_y = q * o / t
    slopes = np.zeros((len(every), len(z)))
    slopes[every, at.bytes + rows.workload] = by_y * of.ring / y
    slopes[every, at.bandwidth + rows.link] = -by_y * of.ring / y
    slopes[every, at.latency + rows.link] = by_y * of.hops / y
    slopes[:, at.overlap] = o / t * (p * np.log(x / o) + q * np.log(y / o)) / g * spare
    free = np.flatnonzero(rows.base >= 0)
    a = np.exp(z[at.base_constant + rows.base[free]])
    slopes[free, at.base_constant + rows.base[free]] = by_x[free] * a / of.one[free]
    slopes[free, at.base_slope + rows.base[free]] = by_x[free] * (1 - a / of.one[free])
    return np.log(t), slopes


def robust(log_residual: FloatArray) -> tuple[FloatArray, FloatArray]:
    """s with  s^2 = soft_l1  of log residuals, in units of `ROBUST`, and its derivative.

        s(r) = sign(r) sqrt(2 (sqrt(1 + (r / 0.1)^2) - 1))

    so that a robust fit is a plain least-squares problem whose rows are in units of 10 %, as those of a prior are in
    standard deviations.
    """
    scaled = log_residual / ROBUST
    root = np.sqrt(1 + scaled**2)
    soft = np.sign(scaled) * np.sqrt(2 * (root - 1))
    steep = (
        np.where(np.abs(scaled) > 1e-6, scaled / (root * np.where(soft == 0, 1.0, soft)), 1.0)
        / ROBUST
    )
    return soft, steep


def fit_links(rows: Rows, parameters: Parameters, prior: Prior) -> FloatArray:
    """The parameters with the least  sum of weight^2 soft_l1(log residual) + prior.

    The squares of the weights of a block's n measurements are equal and sum to n^(1/2): their errors are alike (what
    the law leaves out of that pair), so that more of them tell less and less, and a pair that was measured 700 times
    does not decide what the links of a GPU type are.
    """
    weight = np.sqrt(np.sqrt(rows.measured) / np.minimum(rows.measured, BLOCK_ROWS))

    def both(z: FloatArray) -> tuple[FloatArray, FloatArray]:
        told, slopes = log_seconds(z, parameters, rows)
        soft, steep = robust(told - rows.log_seconds)
        of_prior, prior_slopes = prior.residuals(z)
        return (
            np.concatenate([weight * soft, of_prior]),
            np.concatenate([(weight * steep)[:, np.newaxis] * slopes, prior_slopes]),
        )

    def residuals(z: FloatArray) -> FloatArray:
        return both(z)[0]

    def slopes_of(z: FloatArray) -> FloatArray:
        return both(z)[1]

    start, bounds = prior.mean, prior.bounds
    found = least_squares(
        residuals, start, jac=slopes_of, bounds=bounds, max_nfev=100, xtol=1e-8, ftol=1e-8
    )
    return np.asarray(found.x, np.float64)
