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
BLOCK_WORTH = 10.0
"""Measurements of a pair on one level that count fully: their errors are alike, more of them tell little more."""
BLOCK_ROWS = 60
"""Measurements of a pair on one level that are looked at."""


@dataclass(frozen=True)
class _Rows:
    """Steps of several GPUs, arrays of length E, with the parameters that each one depends on."""

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
    weight: FloatArray


def rows_of(
    profiles: Profiles, cell: IntArray, one_gpu: FloatArray, base: IntArray, workload: IntArray, gpu: IntArray
) -> _Rows:
    """What the fit looks at: all steps of several GPUs, at most `BLOCK_ROWS` of a block, each block of a like weight.

    Parameters
    ----------
    cell : IntArray, shape (E,)
        Pair (workload, GPU type) of each measurement.
    one_gpu : FloatArray, shape (E,)
        T_1 of it, NaN where its pair was not measured on one GPU.
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
    rows, each = order[kept], np.minimum(each[kept], BLOCK_ROWS)
    return _Rows(
        workload[rows], gpu[rows], 2 * gpu[rows] + across[rows], 2 * cell[rows] + across[rows], base[rows],
        ways.gpus[rows].astype(np.float64), ways.samples[rows], ways.passes[rows], one_gpu[rows],
        np.log(profiles.seconds[rows]), np.sqrt(np.minimum(BLOCK_WORTH, each) / each),
    )  # fmt: skip


def log_seconds(z: FloatArray, parameters: Parameters, rows: _Rows) -> tuple[FloatArray, FloatArray]:
    """log t of each row and its derivatives by all parameters, shape (E, P).

    With x = T_1 (1 + c (1 - 1/k)), y = T_c, o = (x^g + y^g)^(1/g), p = (x/o)^g and q = 1 - p:

        d log o / d log x = p      d log o / d log y = q      d log o / dg = (p log(x/o) + q log(y/o)) / g
    """
    at, every = parameters, np.arange(len(rows.k))
    known = rows.base < 0
    a, b = np.exp(z[at.base_constant + rows.base]), np.exp(z[at.base_slope + rows.base]) * rows.samples
    one = np.where(known, rows.one, a + b)
    apart = 1.0 - 1.0 / rows.k
    slower = np.exp(z[at.slowdown + rows.gpu]) * apart
    x = one * (1 + slower)
    ring = np.exp(z[at.bytes + rows.workload] - z[at.bandwidth + rows.link]) * 2 * apart
    hops = np.exp(z[at.latency + rows.link]) * 2 * (rows.k - 1)
    y = (ring + hops) * np.exp(z[at.factor + rows.block])
    spare = np.exp(z[at.overlap])
    g = 1.0 + spare
    o = overlapped(x, y, g)
    t = o + (rows.passes - 1) * x
    p, q = (x / o) ** g, (y / o) ** g
    by_x = (p * o + (rows.passes - 1) * x) / t
    by_y = q * o / t
    slopes = np.zeros((len(every), len(z)))
    slopes[every, at.bytes + rows.workload] = by_y * ring / (ring + hops)
    slopes[every, at.bandwidth + rows.link] = -by_y * ring / (ring + hops)
    slopes[every, at.latency + rows.link] = by_y * hops / (ring + hops)
    slopes[every, at.factor + rows.block] = by_y
    slopes[every, at.slowdown + rows.gpu] = by_x * slower / (1 + slower)
    slopes[:, at.overlap] = o / t * (p * np.log(x / o) + q * np.log(y / o)) / g * spare
    free = np.flatnonzero(~known)
    slopes[free, at.base_constant + rows.base[free]] = (by_x * a / one)[free]
    slopes[free, at.base_slope + rows.base[free]] = (by_x * b / one)[free]
    return np.log(t), slopes


def fit_links(rows: _Rows, parameters: Parameters, prior: Prior, start: FloatArray) -> FloatArray:
    """The parameters with the least  sum of weight^2 soft_l1(log residual) + prior.

    soft_l1 of a residual r is the square of  s(r) = sign(r) sqrt(2 (sqrt(1 + (r / 0.1)^2) - 1)),  so that the whole is
    a plain least-squares problem whose rows are in units of 10 %, as those of the prior are in standard deviations.
    """

    def both(z: FloatArray) -> tuple[FloatArray, FloatArray]:
        told, slopes = log_seconds(z, parameters, rows)
        scaled = (told - rows.log_seconds) / ROBUST
        root = np.sqrt(1 + scaled**2)
        soft = np.sign(scaled) * np.sqrt(2 * (root - 1))
        steep = np.where(np.abs(scaled) > 1e-6, scaled / (root * np.where(soft == 0, 1.0, soft)), 1.0) / ROBUST
        of_prior, prior_slopes = prior.residuals(z)
        return (
            np.concatenate([rows.weight * soft, of_prior]),
            np.concatenate([(rows.weight * steep)[:, np.newaxis] * slopes, prior_slopes]),
        )

    def residuals(z: FloatArray) -> FloatArray:
        return both(z)[0]

    def slopes_of(z: FloatArray) -> FloatArray:
        return both(z)[1]

    found = least_squares(residuals, start, jac=slopes_of, bounds=prior.bounds, max_nfev=100, xtol=1e-8, ftol=1e-8)
    return np.asarray(found.x, np.float64)
