"""Fits of the shared-link model: parameters that all share with their priors, then what each pair has of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from optsched.arrays import FloatArray, IntArray
from optsched.performance.parametric.fitting import ROBUST, minimise_squares
from optsched.performance.parametric.two_phases import step_slopes
from optsched.performance.profiles import Profiles

BLOCK_ROWS = 60
"""Measurements of a pair on one level that are looked at."""

# --- shared parameters and their priors -----------------------------------------------------------

BYTES, BYTES_SD = 3e8, 1.5
"""Gradients of a workload that nothing is stated of: 300 MB, times or by 4.5."""
PER_PARAMETER, PARAMETERS_SD = 4.0, 1.0
"""Bytes of a gradient per parameter of the workload; embeddings send far fewer."""
STATED_SD = 0.1
"""Of what is stated as gradient bytes or links."""
BANDWIDTH, BANDWIDTH_SD = (8e9, 2e9), 2.0
"""Bytes/s of an average GPU type, inside a node and across nodes."""
TYPE_SD = 2.0
"""Of one GPU type around the average."""
LATENCY, LATENCY_SD, LATENCY_TYPE_SD = (1e-4, 2e-4), 0.5, 0.5
"""s per hop, with the launch of the collective. They must not be free: where only few GPUs were measured, the bytes of
a gradient look like hops, whose time goes on growing with k when that of bytes no longer does."""
OVERLAP_SD = 1.0
"""Of log(g - 1) around 0, which is g = 2."""


class Parameters:
    """Where the parameters of W workloads, G GPU types and F pairs without a 1-GPU profile begin in the vector.

    All are logs; links are numbered 2 x GPU type + level, with level 0 inside a node and 1 across nodes.

    Attributes
    ----------
    bytes : int
        log S, W of them.
    bandwidth, latency : int
        log B and log alpha of links, 2 G each.
    overlap : int
        log(g - 1).
    means : int
        Averages of log B, then of log alpha, over GPU types by level, 4.
    base_constant, base_slope : int
        log a and log b of pairs without a 1-GPU profile, F each.
    size : int
    """

    def __init__(self, workloads: int, gpu_types: int, free: int) -> None:
        self.workloads, self.gpu_types = workloads, gpu_types
        self.bytes = 0
        self.bandwidth = workloads
        self.latency = self.bandwidth + 2 * gpu_types
        self.overlap = self.latency + 2 * gpu_types
        self.means = self.overlap + 1
        self.base_constant = self.means + 4
        self.base_slope = self.base_constant + free
        self.size = self.base_slope + free


class ParameterPrior:
    """Independent normal distributions of the parameters; links lie around averages that are fitted as well."""

    def __init__(self, parameters: Parameters, base: Sequence[tuple[float, float]]) -> None:
        at = self._at = parameters
        self.mean, self.sd = np.zeros(at.size), np.ones(at.size)
        self._around = np.full(at.size, -1)
        workloads = slice(at.bytes, at.bytes + at.workloads)
        self.mean[workloads], self.sd[workloads] = np.log(BYTES), BYTES_SD
        for links, means, typical, mean_sd, sd in (
            (at.bandwidth, at.means, BANDWIDTH, BANDWIDTH_SD, TYPE_SD),
            (at.latency, at.means + 2, LATENCY, LATENCY_SD, LATENCY_TYPE_SD),
        ):
            for level in range(2):
                rows, mean = links + np.arange(level, 2 * at.gpu_types, 2), means + level
                self.mean[rows], self.sd[rows] = np.log(typical[level]), sd
                self.mean[mean], self.sd[mean] = np.log(typical[level]), mean_sd
                self._around[rows] = mean
        self.sd[at.overlap] = OVERLAP_SD
        for row, (constant, slope) in enumerate(base):
            self.mean[at.base_constant + row] = np.log(constant)
            self.mean[at.base_slope + row] = np.log(slope)

    def state(self, row: int, value: float, sd: float = STATED_SD) -> None:
        """A parameter is known to be about ``value`` (its log is normal), whatever others are."""
        self.mean[row], self.sd[row], self._around[row] = np.log(value), sd, -1

    def state_link(self, link: int, bandwidth: float, latency: float | None) -> None:
        """A link is known, perhaps without its latency."""
        self.state(self._at.bandwidth + link, bandwidth)
        if latency:
            self.state(self._at.latency + link, latency)

    def state_bytes(
        self,
        rows: Mapping[str, int],
        given: Mapping[str, float],
        each: float = 1.0,
        sd: float = STATED_SD,
    ) -> None:
        """Gradient bytes of workloads are about ``each`` times what is given."""
        for name, amount in given.items():
            if name in rows:
                self.state(self._at.bytes + rows[name], each * amount, sd)

    @property
    def bounds(self) -> tuple[FloatArray, FloatArray]:
        """Far away from all that can be; g is at most 10."""
        lower, upper = self.mean - 30, self.mean + 30
        upper[self._at.overlap] = np.log(9.0) + 1e-9
        return lower, upper

    def residuals(self, z: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Distances in standard deviations, and their derivatives."""
        slopes = np.diag(1.0 / self.sd)
        around = np.flatnonzero(self._around >= 0)
        # Links lie around the average of their level, which is a parameter itself.
        center = self.mean.copy()
        center[around] = z[self._around[around]]
        slopes[around, self._around[around]] -= 1.0 / self.sd[around]
        return (z - center) / self.sd, slopes


# --- measurements ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class FittedSteps:
    """Steps of several GPUs, arrays of length E, with the parameters that each one depends on.

    Attributes
    ----------
    workload, link, base : IntArray
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
) -> FittedSteps:
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
    _, start, count = np.unique((2 * cell + across)[order], return_index=True, return_counts=True)
    place = np.arange(len(order)) - np.repeat(start, count)
    measured = np.repeat(count, count)
    # Every step-th row of a large block, which is sorted by k and m.
    step = measured / BLOCK_ROWS
    kept = (measured <= BLOCK_ROWS) | (np.floor(place / step) != np.floor((place - 1) / step))
    rows = order[kept]
    return FittedSteps(
        workload=workload[rows],
        link=2 * gpu[rows] + across[rows],
        block=2 * cell[rows] + across[rows],
        base=base[rows],
        k=ways.gpus[rows].astype(np.float64),
        samples=ways.samples[rows],
        passes=ways.passes[rows],
        one=one_gpu[rows],
        log_seconds=np.log(profiles.seconds[rows]),
        measured=measured[kept].astype(np.float64),
    )


# --- the joint fit --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Phases:
    """The phases of a step by shared parameters, arrays of length E.

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


def phases_of(z: FloatArray, at: Parameters, rows: FittedSteps) -> Phases:
    """The phases of each row by the parameters z."""
    # Rows with a measured T_1 have base -1: what is read for them does not matter.
    constant = np.exp(z[at.base_constant + rows.base])
    slope = np.exp(z[at.base_slope + rows.base])
    ring = np.exp(z[at.bytes + rows.workload] - z[at.bandwidth + rows.link])
    return Phases(
        one=np.where(rows.base < 0, rows.one, constant + slope * rows.samples),
        ring=ring * 2 * (1.0 - 1.0 / rows.k),
        hops=np.exp(z[at.latency + rows.link]) * 2 * (rows.k - 1),
    )


def log_seconds(z: FloatArray, at: Parameters, rows: FittedSteps) -> tuple[FloatArray, FloatArray]:
    """log t of each row and its derivatives by all parameters, shape (E, P)."""
    every = np.arange(len(rows.k))
    phases = phases_of(z, at, rows)
    x, y = phases.one, phases.ring + phases.hops
    spare = float(np.exp(z[at.overlap]))  # g - 1
    t, by_x, by_y, by_g = step_slopes(x, y, 1.0 + spare, rows.passes)
    slopes = np.zeros((len(every), at.size))
    slopes[every, at.bytes + rows.workload] = by_y * phases.ring
    slopes[every, at.bandwidth + rows.link] = -by_y * phases.ring
    slopes[every, at.latency + rows.link] = by_y * phases.hops
    slopes[:, at.overlap] = by_g * spare
    free = np.flatnonzero(rows.base >= 0)
    base = rows.base[free]
    a = np.exp(z[at.base_constant + base])
    slopes[free, at.base_constant + base] = by_x[free] * a
    slopes[free, at.base_slope + base] = by_x[free] * (x[free] - a)
    return np.log(t), slopes / t[:, np.newaxis]


def robust(log_residual: FloatArray) -> tuple[FloatArray, FloatArray]:
    """s with  s^2 = soft_l1  of log residuals, in units of `ROBUST`, and its derivative.

        s(r) = sign(r) sqrt(2 (sqrt(1 + (r / 0.1)^2) - 1))

    so that a robust fit is a plain least-squares problem whose rows are in units of 10 %, as those
    of a prior are in standard deviations.
    """
    scaled = log_residual / ROBUST
    root = np.sqrt(1 + scaled**2)
    soft = np.sign(scaled) * np.sqrt(2 * (root - 1))
    # At 0 the derivative is 1, where the quotient is 0 / 0.
    quotient = scaled / (root * np.where(soft == 0, 1.0, soft))
    return soft, np.where(np.abs(scaled) > 1e-6, quotient, 1.0) / ROBUST


def fit_links(rows: FittedSteps, parameters: Parameters, prior: ParameterPrior) -> FloatArray:
    """The parameters with the least  sum of weight^2 soft_l1(log residual) + prior.

    The squares of the weights of a block's n measurements are equal and sum to n^(1/2): their
    errors are alike (what the law leaves out of that pair), so that more of them say less and less,
    and a pair that was measured 700 times does not decide what the links of a GPU type are.
    """
    weight = np.sqrt(np.sqrt(rows.measured) / np.minimum(rows.measured, BLOCK_ROWS))

    def residuals_and_slopes(z: FloatArray) -> tuple[FloatArray, FloatArray]:
        log_t, slopes = log_seconds(z, parameters, rows)
        soft, steep = robust(log_t - rows.log_seconds)
        of_prior, prior_slopes = prior.residuals(z)
        return (
            np.concatenate([weight * soft, of_prior]),
            np.concatenate([(weight * steep)[:, np.newaxis] * slopes, prior_slopes]),
        )

    z, _ = minimise_squares(
        residuals_and_slopes, prior.mean, prior.bounds, max_nfev=100, xtol=1e-8, ftol=1e-8
    )
    return z


# --- what a pair has of its own -------------------------------------------------------------------

OWN_WORTH = 30.0
"""Measurements of a pair on one level that count fully."""
FACTOR_SD = 1.0
"""Communication of a pair on one level is what its links and gradients say, times or by 2.7."""
SLOWDOWN, SLOWDOWN_SD = 0.05, 2.0
"""Compute on many GPUs is slower by 5 %, times or by 7.4."""
STARTS = ((0.0, 0.0), (0.0, 3.0))
"""Starts of the search: a slowdown of 5 %, and one that is 20 times as large."""
FARTHEST = 10.0
"""Logs of both stay within it."""


def fit_own(
    z: FloatArray, parameters: Parameters, rows: FittedSteps, blocks: int
) -> tuple[FloatArray, FloatArray]:
    """Factors f on the communication, and slowdowns c, of each block (2 x pair + level), shape (blocks,) each.

        x = T_1 (1 + c (1 - 1/k))        y = f T_c        t = (passes - 1) x + (x^g + y^g)^(1/g)

    with the shared parameters z fixed: for each block the least

        sum of weight^2 soft_l1(log residual) + (log f / 1)^2 + (log(c / 0.05) / 2)^2.

    Where a pair was not measured on a level, f is 1 and c is 0. One step on several GPUs cannot
    distinguish them, several samples m can: a slowdown grows with m, communication does not. The
    squares of the weights of a block's n measurements sum to min(n, 30).
    """
    factor, slowdown = np.ones(blocks), np.zeros(blocks)
    phases = phases_of(z, parameters, rows)
    g = 1.0 + float(np.exp(z[parameters.overlap]))
    weight = np.sqrt(np.minimum(rows.measured, OWN_WORTH) / np.minimum(rows.measured, BLOCK_ROWS))
    # With the shared parameters fixed, blocks do not depend on each other.
    for block in np.unique(rows.block).tolist():
        members = np.flatnonzero(rows.block == block)
        step = _Block(
            one=phases.one[members],
            sent=(phases.ring + phases.hops)[members],
            slower=SLOWDOWN * (1 - 1 / rows.k[members]),
            g=g,
            passes=rows.passes[members],
            log_seconds=rows.log_seconds[members],
            weight=weight[members],
        )
        own = np.exp(step.fit())
        factor[block], slowdown[block] = own[0], SLOWDOWN * own[1]
    return factor, slowdown


@dataclass(frozen=True)
class _Block:
    """The steps of a pair on one level: T_1, communication by the links, a slowdown of 5 %."""

    one: FloatArray
    sent: FloatArray
    slower: FloatArray
    g: float
    passes: IntArray
    log_seconds: FloatArray
    weight: FloatArray

    def fit(self) -> FloatArray:
        """log f and log(c / 0.05), from the better of the starts."""
        far = (-FARTHEST, FARTHEST)
        found = [
            minimise_squares(self._residuals_and_slopes, np.array(start), far, max_nfev=50)
            for start in STARTS
        ]
        return min(found, key=lambda end: end[1])[0]

    def _residuals_and_slopes(self, own: FloatArray) -> tuple[FloatArray, FloatArray]:
        slowed = self.slower * np.exp(own[1])
        x, y = self.one * (1 + slowed), self.sent * np.exp(own[0])
        t, by_x, by_y, _ = step_slopes(x, y, self.g, self.passes)
        soft, steep = robust(np.log(t) - self.log_seconds)
        slopes = np.stack([by_y * y / t, by_x * self.one * slowed / t], axis=1)
        sd = np.array([FACTOR_SD, SLOWDOWN_SD])
        return (
            np.concatenate([self.weight * soft, own / sd]),
            np.concatenate([(self.weight * steep)[:, np.newaxis] * slopes, np.diag(1 / sd)]),
        )
