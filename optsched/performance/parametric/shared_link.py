"""The ``shared-link`` model: all workloads share the links of a GPU type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, Self

import numpy as np
from pydantic import Field, model_validator

from optsched.arrays import BoolArray, FloatArray, IntArray, group_rows, owners
from optsched.arrays.columns import Columns
from optsched.arrays.values import cached_property
from optsched.errors import InvalidInput
from optsched.instance.documents import (
    Document,
    Name,
    NonNegative,
    PlainObject,
    Positive,
    Tuple,
    refused,
)
from optsched.instance.reading import join, listed, validate
from optsched.performance.parametric.fitting import (
    LEVELS,
    ROBUST,
    KnownPairs,
    LogSd,
    check_compute,
    fit_affine,
    flat,
    level_of,
    log_sd_of_squares,
    minimise_squares,
    nested,
    split,
)
from optsched.performance.parametric.two_phases import Phases, TwoPhaseTable, step_slopes
from optsched.performance.profiles import Profiles
from optsched.performance.protocol import Source
from optsched.performance.times import StoredModel, Times
from optsched.performance.ways import Ways

BLOCK_ROWS = 60
"""Most measurements of a pair on one level that the joint fit uses."""

# --- shared parameters and their priors -----------------------------------------------------------

BYTES, BYTES_SD = 3e8, 1.5
"""Prior of the gradient bytes of a workload: 300 MB, times or divided by 4.5."""
PER_PARAMETER, PARAMETERS_SD = 4.0, 1.0
"""Bytes of a gradient per parameter of the workload; embeddings send far fewer."""
STATED_SD = 0.1
"""log_sd of stated gradient bytes and links."""
BANDWIDTH, BANDWIDTH_SD = (8e9, 2e9), 2.0
"""Bytes/s of an average GPU type, inside a node and across nodes."""
TYPE_SD = 2.0
"""log_sd of the bandwidth of one GPU type around the average."""
LATENCY, LATENCY_SD, LATENCY_TYPE_SD = (1e-4, 2e-4), 0.5, 0.5
"""Seconds per hop, including the launch of the collective. The prior must be tight: if only few
GPUs were measured, bytes and hops look alike, but the time of hops keeps growing with k.
"""
OVERLAP_SD = 1.0
"""Standard deviation of log(g - 1) around 0, that is g = 2."""


class Parameters:
    """Positions in the parameter vector, for W workloads, G GPU types and F pairs without a 1-GPU
    profile.

    All are logs; links are numbered 2 x GPU type + level, with level 0 inside a node and 1 across
    nodes.

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
        self.workloads = workloads
        self.gpu_types = gpu_types
        self.bytes = 0
        self.bandwidth = workloads
        self.latency = self.bandwidth + 2 * gpu_types
        self.overlap = self.latency + 2 * gpu_types
        self.means = self.overlap + 1
        self.base_constant = self.means + 4
        self.base_slope = self.base_constant + free
        self.size = self.base_slope + free


class ParameterPrior:
    """Independent normal priors of the parameters; the means of links are averages, which are
    fitted too.
    """

    def __init__(self, parameters: Parameters, base: Sequence[tuple[float, float]]) -> None:
        at = self._at = parameters
        self.mean = np.zeros(at.size)
        self.sd = np.ones(at.size)
        self._around = np.full(at.size, -1)
        workloads = slice(at.bytes, at.bytes + at.workloads)
        self.mean[workloads], self.sd[workloads] = np.log(BYTES), BYTES_SD
        for links, means, typical, mean_sd, sd in (
            (at.bandwidth, at.means, BANDWIDTH, BANDWIDTH_SD, TYPE_SD),
            (at.latency, at.means + 2, LATENCY, LATENCY_SD, LATENCY_TYPE_SD),
        ):
            for level in range(2):
                rows = links + np.arange(level, 2 * at.gpu_types, 2)
                mean = means + level
                self.mean[rows], self.sd[rows] = np.log(typical[level]), sd
                self.mean[mean], self.sd[mean] = np.log(typical[level]), mean_sd
                self._around[rows] = mean
        self.sd[at.overlap] = OVERLAP_SD
        for row, (constant, slope) in enumerate(base):
            self.mean[at.base_constant + row] = np.log(constant)
            self.mean[at.base_slope + row] = np.log(slope)

    def state(self, row: int, value: float, sd: float = STATED_SD) -> None:
        """Set a prior around ``value`` for one parameter (normal in the log)."""
        self.mean[row], self.sd[row], self._around[row] = np.log(value), sd, -1

    def state_link(self, link: int, bandwidth: float, latency: float | None) -> None:
        """Set priors for a known link; the latency may be unknown."""
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
        """Set priors of gradient bytes: ``each`` times the given numbers."""
        for name, amount in given.items():
            if name in rows:
                self.state(self._at.bytes + rows[name], each * amount, sd)

    @property
    def bounds(self) -> tuple[FloatArray, FloatArray]:
        """Wide bounds, beyond all realistic values; g is at most 10."""
        lower = self.mean - 30
        upper = self.mean + 30
        upper[self._at.overlap] = np.log(9.0) + 1e-9
        return lower, upper

    def residuals(self, z: FloatArray) -> Residuals:
        """Residuals of the priors, in standard deviations, and their derivatives."""
        slopes = np.diag(1.0 / self.sd)
        around = np.flatnonzero(self._around >= 0)
        # The mean of a link is the average of its level, which is itself a parameter.
        center = self.mean.copy()
        center[around] = z[self._around[around]]
        slopes[around, self._around[around]] -= 1.0 / self.sd[around]
        return (z - center) / self.sd, slopes


# --- measurements ---------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class FittedSteps(Columns):
    """Steps of several GPUs, arrays of length E, with the parameters that each one depends on.

    Attributes
    ----------
    workload, link, base : IntArray
        Rows among the parameters (`Parameters`); base is -1 where T_1 was measured.
    block : IntArray
        2 x pair + level, which is 0 inside a node and 1 across nodes.
    k, samples : FloatArray
    passes : IntArray
    one_gpu : FloatArray
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
    one_gpu: FloatArray
    log_seconds: FloatArray
    measured: FloatArray


def rows_of(
    profiles: Profiles,
    pair: IntArray,
    one_gpu: FloatArray,
    base: IntArray,
    workload: IntArray,
    gpu: IntArray,
) -> FittedSteps:
    """The rows for the joint fit: steps on several GPUs, at most `BLOCK_ROWS` per block, evenly
    over k and m.

    Parameters
    ----------
    pair : IntArray, shape (E,)
        Pair (workload, GPU type) of each measurement.
    one_gpu : FloatArray, shape (E,)
        T_1 of the measurement (measured or interpolated); NaN if its pair was not measured on one
        GPU.
    base : IntArray, shape (E,)
        Row of its pair among pairs without a measured T_1, -1 for other pairs.
    workload, gpu : IntArray, shape (E,)
        Rows among the names of the parameters.
    """
    ways = profiles.ways
    across = ways.nodes > 1
    block = 2 * pair + across
    order = np.lexsort((ways.samples, ways.gpus, block))
    order = order[ways.gpus[order] > 1]
    _, start, count = np.unique(block[order], return_index=True, return_counts=True)
    place = np.arange(len(order)) - np.repeat(start, count)
    measured = np.repeat(count, count)
    # Every step-th row of a large block, which is sorted by k and m.
    step = measured / BLOCK_ROWS
    kept = (measured <= BLOCK_ROWS) | (np.floor(place / step) != np.floor((place - 1) / step))
    rows = order[kept]
    ways = ways.take(rows)
    return FittedSteps(
        workload=workload[rows],
        link=2 * gpu[rows] + across[rows],
        block=block[rows],
        base=base[rows],
        k=ways.gpus.astype(np.float64),
        samples=ways.samples,
        passes=ways.passes,
        one_gpu=one_gpu[rows],
        log_seconds=np.log(profiles.seconds[rows]),
        measured=measured[kept].astype(np.float64),
    )


# --- the joint fit --------------------------------------------------------------------------------


def phases_of(
    z: FloatArray, at: Parameters, rows: FittedSteps
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """T_1, S 2 (k-1)/k / B and 2 (k-1) alpha of each row by the parameters z."""
    # Rows with a measured T_1 have base -1; the values read for them are not used.
    constant = np.exp(z[at.base_constant + rows.base])
    slope = np.exp(z[at.base_slope + rows.base])
    ring = np.exp(z[at.bytes + rows.workload] - z[at.bandwidth + rows.link])
    return (
        np.where(rows.base < 0, rows.one_gpu, constant + slope * rows.samples),
        ring * 2 * (1.0 - 1.0 / rows.k),
        np.exp(z[at.latency + rows.link]) * 2 * (rows.k - 1),
    )


def log_seconds(z: FloatArray, at: Parameters, rows: FittedSteps) -> tuple[FloatArray, FloatArray]:
    """log t of each row and its derivatives by all parameters, shape (E, P)."""
    every = np.arange(len(rows.k))
    x, ring, hops = phases_of(z, at, rows)
    spare = float(np.exp(z[at.overlap]))  # g - 1
    t, by_x, by_y, by_g = step_slopes(x, ring + hops, 1.0 + spare, rows.passes)
    slopes = np.zeros((len(every), at.size))
    slopes[every, at.bytes + rows.workload] = by_y * ring
    slopes[every, at.bandwidth + rows.link] = -by_y * ring
    slopes[every, at.latency + rows.link] = by_y * hops
    slopes[:, at.overlap] = by_g * spare
    free = np.flatnonzero(rows.base >= 0)
    base = rows.base[free]
    a = np.exp(z[at.base_constant + base])
    slopes[free, at.base_constant + base] = by_x[free] * a
    slopes[free, at.base_slope + base] = by_x[free] * (x[free] - a)
    return np.log(t), slopes / t[:, np.newaxis]


Residuals = tuple[FloatArray, FloatArray]
"""Residuals (E,) and their derivatives by all parameters, shape (E, P)."""


def with_prior(
    log_residual: FloatArray, slopes: FloatArray, weight: FloatArray, prior: Residuals
) -> Residuals:
    """Residuals w s(r) of a robust fit with weights w, then those of the priors.

        s(r) = sign(r) sqrt(2 (sqrt(1 + (r / 0.1)^2) - 1)),      s^2 = soft_l1 in units of `ROBUST`

    so that a robust fit becomes an ordinary least-squares problem, with residuals in units of 10 %
    and priors in units of standard deviations.
    """
    scaled = log_residual / ROBUST
    root = np.sqrt(1 + scaled**2)
    soft = np.sign(scaled) * np.sqrt(2 * (root - 1))
    # At 0 the derivative is 1, where the quotient is 0 / 0.
    quotient = scaled / (root * np.where(soft == 0, 1.0, soft))
    steep = np.where(np.abs(scaled) > 1e-6, quotient, 1.0) / ROBUST
    of_prior, prior_slopes = prior
    return (
        np.concatenate([weight * soft, of_prior]),
        np.concatenate([(weight * steep)[:, np.newaxis] * slopes, prior_slopes]),
    )


def fit_links(rows: FittedSteps, parameters: Parameters, prior: ParameterPrior) -> FloatArray:
    """The parameters with the least  sum of weight^2 soft_l1(log residual) + prior.

    The squared weights of a block's n measurements are equal and sum to n^(1/2). The errors within
    a block are correlated (the law's misfit of that pair), so each further measurement adds less
    information, and a pair with 700 measurements does not dominate the estimate of the links.
    """
    weight = np.sqrt(np.sqrt(rows.measured) / np.minimum(rows.measured, BLOCK_ROWS))

    def residuals_and_slopes(z: FloatArray) -> Residuals:
        log_t, slopes = log_seconds(z, parameters, rows)
        return with_prior(log_t - rows.log_seconds, slopes, weight, prior.residuals(z))

    z, _ = minimise_squares(
        residuals_and_slopes,
        prior.mean,
        prior.bounds,
        max_nfev=100,
        xtol=1e-8,
        ftol=1e-8,
    )
    return z


# --- parameters of single pairs -------------------------------------------------------------------

OWN_WORTH = 30.0
"""Most measurements of a pair on one level that count fully."""
FACTOR_SD = 1.0
"""Prior of the factor on a pair's communication on one level: 1, times or divided by 2.7."""
SLOWDOWN, SLOWDOWN_SD = 0.05, 2.0
"""Prior of the slowdown of compute on many GPUs: 5 %, times or divided by 7.4."""
STARTS = ((0.0, 0.0), (0.0, 3.0))
"""Starts of the search, as logs relative to the priors: a slowdown of 5 %, and one 20 times as
large.
"""
FARTHEST = 10.0
"""Bound on the absolute logs of both."""


def fit_own(
    z: FloatArray,
    parameters: Parameters,
    rows: FittedSteps,
    blocks: int,
) -> tuple[FloatArray, FloatArray]:
    """Factors f on the communication, and slowdowns c,
    of each block (2 x pair + level), shape (blocks,) each.

        x = T_1 (1 + c (1 - 1/k))        y = f T_c        t = (passes - 1) x + (x^g + y^g)^(1/g)

    with the shared parameters z fixed. Each block minimises

        sum of weight^2 soft_l1(log residual) + (log f / 1)^2 + (log(c / 0.05) / 2)^2.

    If a pair was not measured on a level, f is 1 and c is 0. A single m cannot distinguish f and c,
    several m can: a slowdown grows with m, communication does not. The squared weights of a block's
    n measurements sum to min(n, 30).
    """
    factor = np.ones(blocks)
    slowdown = np.zeros(blocks)
    one_gpu, ring, hops = phases_of(z, parameters, rows)
    g = 1.0 + float(np.exp(z[parameters.overlap]))
    weight = np.sqrt(np.minimum(rows.measured, OWN_WORTH) / np.minimum(rows.measured, BLOCK_ROWS))
    # With the shared parameters fixed, the blocks are independent.
    for block in np.unique(rows.block).tolist():
        members = np.flatnonzero(rows.block == block)
        phases = one_gpu[members], ring[members] + hops[members]
        log_factor, log_slowdown = _fit_block(rows.take(members), *phases, g, weight[members])
        factor[block] = np.exp(log_factor)
        slowdown[block] = SLOWDOWN * np.exp(log_slowdown)
    return factor, slowdown


def _fit_block(
    rows: FittedSteps, one_gpu: FloatArray, sent: FloatArray, g: float, weight: FloatArray
) -> FloatArray:
    """log f and log(c / 0.05) of the steps of a pair on one level: the best result of the
    starts.
    """
    # A slowdown of 5 %.
    slower = SLOWDOWN * (1 - 1 / rows.k)
    sd = np.array([FACTOR_SD, SLOWDOWN_SD])

    def residuals_and_slopes(log_values: FloatArray) -> Residuals:
        slowed = slower * np.exp(log_values[1])
        y = sent * np.exp(log_values[0])
        t, by_x, by_y, _ = step_slopes(one_gpu * (1 + slowed), y, g, rows.passes)
        slopes = np.stack([by_y * y / t, by_x * one_gpu * slowed / t], axis=1)
        prior = log_values / sd, np.diag(1 / sd)
        return with_prior(np.log(t) - rows.log_seconds, slopes, weight, prior)

    bounds = (-FARTHEST, FARTHEST)
    found = [
        minimise_squares(residuals_and_slopes, np.array(start), bounds, max_nfev=50)
        for start in STARTS
    ]
    return min(found, key=lambda end: end[1])[0]


# --- documents ------------------------------------------------------------------------------------


UNSEEN_LOG_SD, UNMEASURED_LOG_SD = 0.25, 0.4
"""log_sd of pairs that were never measured on a level: for links that were measured with other
workloads, and for links that were not. The mean errors on Sia's profiles, with a pair left out, are
20 and about 30 %.
"""
NAMES = ("inside", "across")
"""Levels of several GPUs, and the fields of documents for them."""


class LinkDocument(Document):
    """A link that all workloads share: bytes/s, seconds per hop, and whether it was measured."""

    bandwidth: Positive
    latency: NonNegative
    measured: bool = True


class GpuDocument(Document):
    """A GPU type: its links inside a node and across nodes, and the slowdown of compute on many
    GPUs.
    """

    inside: LinkDocument
    across: LinkDocument
    slowdown: NonNegative = 0.0


class OneGpuDocument(Document):
    """Measured seconds of a pass on one GPU, by samples in ascending order."""

    samples: Annotated[Tuple[Positive], Field(min_length=1)]
    seconds: Annotated[Tuple[Positive], Field(min_length=1)]

    @model_validator(mode="after")
    def _fit_each_other(self) -> Self:
        count = len(self.samples)
        if count != len(self.seconds):
            expected = f"{count}, as many as samples"
            raise refused(f"{len(self.seconds)} numbers", expected, ".seconds")
        if any(more <= less for less, more in pairwise(self.samples)):
            found = ", ".join(f"{each:g}" for each in self.samples)
            raise refused(found, "numbers in ascending order", ".samples")
        return self


class ComputeDocument(Document):
    """T_1 = a + b m of a workload on a GPU type, and the factors on its communication.

    ``slowdown`` is the pair's slowdown inside a node and across nodes; without it, that of the GPU
    type is used. With ``one_gpu``, T_1 is bent to go through these measurements.
    """

    a: NonNegative
    b: NonNegative
    inside: Positive = 1.0
    across: Positive = 1.0
    slowdown: Annotated[tuple[NonNegative, NonNegative], Field(strict=False)] | None = None
    one_gpu: OneGpuDocument | None = None
    log_sd: tuple[LogSd, LogSd, LogSd] = Field((0.1, 0.25, 0.25), strict=False)

    @model_validator(mode="after")
    def _takes_time(self) -> Self:
        check_compute(a=self.a, b=self.b)
        return self


class SharedLinkDocument(Document):
    """The model; ``compute`` is by workload, then GPU type."""

    g: float = Field(2.0, ge=1, le=10)
    gate: NonNegative = 0.0
    gradient_bytes: dict[Name, Positive]
    gpus: dict[Name, GpuDocument]
    compute: dict[Name, dict[Name, ComputeDocument]]
    fitted: PlainObject = Field(default_factory=dict)

    @model_validator(mode="after")
    def _known(self) -> Self:
        """Check that each pair has gradient bytes of its workload and links of its GPU type."""
        for workload, gpu in flat(self.compute):
            if workload not in self.gradient_bytes:
                path = join(".gradient_bytes", [workload])
                raise refused("nothing", "bytes, as it has compute", path)
            if gpu not in self.gpus:
                path = join(".gpus", [gpu])
                raise refused("nothing", f"links, as {workload} has compute", path)
        return self


class StatedLink(Document):
    """A link that is known, for instance from a data sheet."""

    bandwidth: Positive
    latency: Positive | None = None


class StatedLinks(Document):
    """Known links of a GPU type."""

    inside: StatedLink | None = None
    across: StatedLink | None = None


class SharedLinkOptions(Document):
    """How to fit; see `SharedLink.fit`."""

    gradient_bytes: dict[Name, Positive] = Field(default_factory=dict)
    parameters: dict[Name, Positive] = Field(default_factory=dict)
    links: dict[Name, StatedLinks] = Field(default_factory=dict)
    prior: PlainObject | None = None
    gate: NonNegative = 0.0
    anchored: bool = False
    own: bool = True


# --- the model ------------------------------------------------------------------------------------


class SharedLink(StoredModel):
    """Seconds of a step: computation of each GPU, communication over shared links.

        T_1 = a + b m                                                     per workload and GPU type
        x   = T_1 (1 + c (1 - 1/k))                                       c per pair and level
        y   = f [ S 2 (k-1)/k / B + 2 (k-1) alpha ]                       S per workload; B, alpha per type and level
        t   = (passes - 1) x + (x^g + y^g)^(1/g)                          one g

    Levels are one node (inside) and several (across). S is the number of bytes of a gradient, y the
    time of a ring all-reduce, and f a factor of the pair on the level. c is the slowdown of compute
    when several GPUs work together (input pipelines, stragglers): it grows with m and soon stops
    growing with k, unlike communication. If a pair was never measured on a level, f is 1 and c that
    of the GPU type (0 if none is stated). g > 1 hides y behind long compute; with a gate h > 0, y
    counts as 0 if y <= h T_1, so that steps scale linearly unless links are slow.

    `fit` has three steps. First, a and b from steps on one GPU (non-negative least squares of
    relative errors). Second, the shared parameters (S, B, alpha, g) together from steps on several
    GPUs: soft_l1 of log t, with priors (`ParameterPrior`). S and B are determined only up to a
    common scale, which the priors fix. In this step T_1 goes through the measurements on one GPU,
    because errors of the line would be mistaken for communication. Third, f (around 1) and c
    (around 0.05) with the shared parameters fixed (maximum a posteriori, `fit_own`): a pair with
    few steps on several GPUs stays near the prediction from its links. Links that were never
    measured are the average of other GPU types on that level. For a pair without a step on one GPU,
    a and b are fitted with the shared parameters.

    Options of `fit`: ``gradient_bytes`` (workload -> bytes, known), ``parameters`` (workload ->
    number of parameters, a weak hint: embeddings send few of theirs), ``links`` (GPU type ->
    ``inside``, ``across`` -> ``bandwidth`` in bytes/s and ``latency`` in s, known), ``prior`` (a
    document of this model: its links, gradients and overlap are what the measurements, perhaps few,
    start from), ``anchored`` (T_1 goes through the measurements on one GPU, interpolated linearly
    in logs, instead of being a line; exact for measured m, but about four times as slow), ``own``
    (whether pairs have an f and a c of their own), ``gate`` (h; 0 by default, because g > 1 is
    enough on the measured clusters).

    The source is `PRIOR` for links that were never measured. log_sd comes from the log residuals of
    the pair on the level and their degrees of freedom (`optsched.performance.parametric.fitting`).
    If the pair was not measured there, it is 0.25 if the link was measured with other workloads,
    else 0.4.

    The weight of pairs with many measurements, and the widths of the priors of f, c and alpha, were
    chosen by leaving out pairs, or larger k, of Sia's profiles. On other clusters errors may be
    larger.

    References
    ----------
    Ring: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of collective communication operations
    in MPICH", 2005; the overlap: A. Qiao et al. (Pollux), OSDI 2021; the rest is this project's
    own.
    """

    name = "shared-link"
    Options = SharedLinkOptions
    Stored = SharedLinkDocument

    def __init__(self, given: SharedLinkDocument) -> None:
        super().__init__(given)
        compute = flat(given.compute)
        rows = [row for pair, law in compute.items() for row in _levels(given, pair, law)]
        self._table = TwoPhaseTable(KnownPairs(tuple(compute)), rows, 7)
        # Skip anchors if the model has none, the usual case.
        anchored = any(law.one_gpu for law in compute.values())
        lines = [(law.a, law.b, law.one_gpu) for law in compute.values()]
        self._anchors = Anchors.through(lines) if anchored else None

    @classmethod
    def fit_checked(cls, profiles: Profiles, options: SharedLinkOptions) -> Self:
        """All workloads and GPU types at once."""
        for name in ("gradient_bytes", "parameters"):
            unknown = set(getattr(options, name)) - set(profiles.ways.workloads)
            if unknown:
                path = join("performance", [name, min(unknown)])
                expected = f"a workload that was measured: {listed(profiles.ways.workloads)}"
                raise InvalidInput(path, "an unknown workload", expected)
        return cls(_JointFit(profiles, options).document())

    def times(self, ways: Ways) -> Times:
        """The law of each way."""

        def phases(law: Sequence[FloatArray], rows: slice, at: IntArray) -> Phases:
            a, b, c, ring, hop = law
            k = ways.gpus[rows].astype(np.float64)
            samples = ways.samples[rows]
            apart = 1.0 - 1.0 / k
            x = np.multiply(b, samples, out=b)
            x += a
            if self._anchors is not None:
                x *= self._anchors.factor(at // LEVELS, samples)
            y = np.multiply(ring, apart, out=ring)
            y += hop * (k - 1.0)
            # The gate compares with T_1 before the slowdown.
            if self.stored.gate > 0:
                y[y <= self.stored.gate * x] = 0.0
            x *= 1.0 + c * apart
            return x, y, self.stored.g

        return self._table.times(ways, phases)


def _levels(
    given: SharedLinkDocument, pair: tuple[str, str], compute: ComputeDocument
) -> list[tuple[float, ...]]:
    """a, b, c, 2 f S / B, 2 f alpha, log_sd and source, for one GPU, one node, several nodes."""
    workload, gpu = pair
    a = compute.a
    b = compute.b
    log_sd = compute.log_sd
    rows: list[tuple[float, ...]] = [(a, b, 0.0, 0.0, 0.0, log_sd[0], Source.PARAMETRIC)]
    for level, name in enumerate(NAMES):
        link = getattr(given.gpus[gpu], name)
        factor = getattr(compute, name)
        slowdown = given.gpus[gpu].slowdown if compute.slowdown is None else compute.slowdown[level]
        # Precompute products that depend only on the pair and the level.
        ring = 2 * factor * given.gradient_bytes[workload] / link.bandwidth
        hop = 2 * factor * link.latency
        source = Source.PARAMETRIC if link.measured else Source.PRIOR
        rows.append((a, b, slowdown, ring, hop, log_sd[level + 1], source))
    return rows


SPAN = 1500.0
"""Offset between pairs on one common axis; larger than the range of logs of positive floats."""


class Anchors:
    """Factors on the line a + b m of each of C pairs, so that it goes through the measurements.

        factor(m) = exp r(log m),    r(log m_i) = log t_i - log(a + b m_i)

    with r linear between the measured m_i, and constant below the smallest and above the largest
    one. Pairs without measurements have a factor of 1.

    Parameters
    ----------
    samples, log_factor : sequence of FloatArray, length C
        m_i in ascending order, and r of them, of each pair; at least one.
    """

    def __init__(self, samples: Sequence[FloatArray], log_factor: Sequence[FloatArray]) -> None:
        # The last entry is for no pair; its factor is 1.
        logs = [np.log(each) for each in (*samples, np.ones(1))]
        self._least = np.array([each[0] for each in logs])
        self._most = np.array([each[-1] for each in logs])
        pair = owners([len(each) for each in logs])
        self._knots = np.concatenate(logs) + SPAN * pair
        self._values = np.concatenate([*log_factor, np.zeros(1)])

    @classmethod
    def through(cls, lines: Sequence[tuple[float, float, OneGpuDocument | None]]) -> Anchors:
        """The anchors of lines a + b m, given as a, b and measured seconds."""
        samples = []
        log_factor = []
        for a, b, measured in lines:
            # A pair without measurements has one knot with a factor of 1.
            m = np.array(measured.samples) if measured else np.ones(1)
            samples.append(m)
            log_factor.append(
                np.log(measured.seconds) - np.log(a + b * m) if measured else np.zeros(1)
            )
        return cls(samples, log_factor)

    def factor(self, pair: IntArray, samples: FloatArray) -> FloatArray:
        """Factors of pairs (0 to C; C is an unknown pair, with factor 1) at these samples; shape
        (E,).
        """
        at = np.clip(np.log(samples), self._least[pair], self._most[pair]) + SPAN * pair
        return np.asarray(np.exp(np.interp(at, self._knots, self._values)), np.float64)


# --- the fit --------------------------------------------------------------------------------------


class _JointFit:
    """The fit of all workloads and GPU types to sorted measurements.

    Attributes
    ----------
    pairs : KnownPairs
        Pairs (workload, GPU type) that were measured.
    pair : IntArray, shape (E,)
        Pair of each measurement.
    gpu_rows : mapping of str to int
        GPU types that were measured, stated, or known to an earlier model.
    free : dict
        Pairs without a step on one GPU, whose a and b are fitted with the shared parameters.
    """

    def __init__(self, profiles: Profiles, chosen: SharedLinkOptions) -> None:
        self.profiles = profiles
        self.chosen = chosen
        self.parts = split(profiles)
        self.pairs = KnownPairs(tuple(self.parts))
        self.pair = self.pairs.find(profiles.ways)
        self.earlier = None if chosen.prior is None else _read_prior(chosen.prior)
        # GPU types that are stated but not measured keep their links in the document.
        known = self.earlier.gpus if self.earlier else ()
        types = dict.fromkeys([*self.pairs.gpu_types, *chosen.links, *known])
        self.gpu_rows = {name: row for row, name in enumerate(types)}
        self.lines = {pair: _line(part) for pair, part in self.parts.items()}
        without = [pair for pair, line in self.lines.items() if line is None]
        self.free = {pair: row for row, pair in enumerate(without)}
        self.at = Parameters(len(self.pairs.workloads), len(types), len(without))

    def document(self) -> SharedLinkDocument:
        """Fit the model; returns its document, including log_sd."""
        one_gpu = [_measured(part) for part in self.parts.values()]
        rows = self._rows(one_gpu)
        z = fit_links(rows, self.at, self._prior())
        blocks = 2 * len(self.pairs)
        of_pairs = np.ones(blocks), np.zeros(blocks)
        if self.chosen.own:
            of_pairs = fit_own(z, self.at, rows, blocks)
        values = np.exp(z).tolist()
        fitted = SharedLinkDocument(
            g=1 + values[self.at.overlap],
            gate=self.chosen.gate,
            gradient_bytes={
                name: values[self.at.bytes + row] for name, row in self.pairs.workloads.items()
            },
            gpus={
                gpu: GpuDocument(
                    inside=self._link(values, gpu, 0), across=self._link(values, gpu, 1)
                )
                for gpu in self.gpu_rows
            },
            compute=nested(self._compute(values, of_pairs)),
        )
        return self._with_log_sd(fitted, one_gpu)

    def _prior(self) -> ParameterPrior:
        """The priors of the parameters: defaults, then the earlier model, then stated values."""
        prior = ParameterPrior(self.at, [_guess(self.parts[pair]) for pair in self.free])
        workloads = self.pairs.workloads
        if self.earlier:
            prior.state_bytes(workloads, self.earlier.gradient_bytes)
            prior.state(self.at.overlap, max(self.earlier.g - 1, 1e-3))
        prior.state_bytes(workloads, self.chosen.parameters, PER_PARAMETER, PARAMETERS_SD)
        prior.state_bytes(workloads, self.chosen.gradient_bytes)
        known = self.earlier.gpus.items() if self.earlier else ()
        for gpu, links in (*known, *self.chosen.links.items()):
            for level, name in enumerate(NAMES):
                link = getattr(links, name)
                if link is not None:
                    prior.state_link(2 * self.gpu_rows[gpu] + level, link.bandwidth, link.latency)
        return prior

    def _rows(self, one_gpu: Sequence[OneGpuDocument | None]) -> FittedSteps:
        """The rows of the joint fit, with T_1 through the measurements on one GPU."""
        ways = self.profiles.ways
        unknown = (np.nan, np.nan)
        lines = [unknown if line is None else line for line in self.lines.values()]
        bends = Anchors.through(
            [(a, b, measured) for (a, b), measured in zip(lines, one_gpu, strict=True)]
        )
        a, b = np.array(lines)[self.pair].T
        base = np.array([self.free.get(pair, -1) for pair in self.pairs.names], np.int64)
        return rows_of(
            self.profiles,
            self.pair,
            (a + b * ways.samples) * bends.factor(self.pair, ways.samples),
            base[self.pair],
            ways.workload_among(self.pairs.workloads),
            ways.gpu_among(self.gpu_rows),
        )

    @cached_property
    def _measured_links(self) -> BoolArray:
        """Whether each link, 2 x GPU type + level, was measured."""
        ways = self.profiles.ways
        several = ways.gpus > 1
        link = 2 * ways.gpu_among(self.gpu_rows) + (ways.nodes > 1)
        return np.bincount(link[several], minlength=2 * self.at.gpu_types) > 0

    def _link(self, values: Sequence[float], gpu: str, level: int) -> LinkDocument:
        row = 2 * self.gpu_rows[gpu] + level
        earlier = self.earlier.gpus.get(gpu) if self.earlier else None
        known = earlier is not None and getattr(earlier, NAMES[level]).measured
        return LinkDocument(
            bandwidth=values[self.at.bandwidth + row],
            latency=values[self.at.latency + row],
            measured=bool(self._measured_links[row]) or known,
        )

    def _compute(
        self, values: Sequence[float], of_pairs: tuple[FloatArray, FloatArray]
    ) -> dict[tuple[str, str], ComputeDocument]:
        compute = {}
        factors, slowdowns = (each.reshape(-1, 2).tolist() for each in of_pairs)
        rows = zip(self.lines.items(), factors, slowdowns, strict=True)
        for (pair, line), (inside, across), (slowed, slowed_across) in rows:
            if line is None:
                base = self.free[pair]
                line = values[self.at.base_constant + base], values[self.at.base_slope + base]
            a, b = line
            compute[pair] = ComputeDocument(
                a=a, b=b, inside=inside, across=across, slowdown=(slowed, slowed_across)
            )
        return compute

    def _with_log_sd(
        self, fitted: SharedLinkDocument, one_gpu: Sequence[OneGpuDocument | None]
    ) -> SharedLinkDocument:
        """The model with its anchors (if ``anchored``) and log_sd from its residuals."""
        ways = self.profiles.ways
        pairs = len(self.pairs)
        compute = flat(fitted.compute)
        residual = self._residual(fitted)
        if self.chosen.anchored:
            compute = {
                pair: law.model_copy(update={"one_gpu": measured})
                for (pair, law), measured in zip(compute.items(), one_gpu, strict=True)
            }
            fitted = fitted.model_copy(update={"compute": nested(compute)})
            # On one GPU use the residuals of the line. A curve through all measurements has
            # residuals of 0, which do not show the uncertainty.
            residual = np.where(ways.gpus > 1, self._residual(fitted), residual)
        block = LEVELS * self.pair + level_of(ways.gpus, ways.nodes)
        counts = np.bincount(block, minlength=LEVELS * pairs)
        squares = np.bincount(block, residual**2, minlength=LEVELS * pairs)
        free = self._coefficients(counts)
        for number, (pair, law) in enumerate(compute.items()):
            log_sd = []
            for level, at in enumerate(range(LEVELS * number, LEVELS * (number + 1))):
                if counts[at]:
                    log_sd.append(
                        log_sd_of_squares(float(squares[at]), int(counts[at]), float(free[at]))
                    )
                else:
                    seen = level == 0 or getattr(fitted.gpus[pair[1]], NAMES[level - 1]).measured
                    log_sd.append(UNSEEN_LOG_SD if seen else UNMEASURED_LOG_SD)
            compute[pair] = law.model_copy(update={"log_sd": tuple(log_sd)})
        return fitted.model_copy(update={"compute": nested(compute)})

    def _residual(self, fitted: SharedLinkDocument) -> FloatArray:
        """Log residuals of all measurements."""
        seconds = SharedLink(fitted).times(self.profiles.ways).seconds
        return np.log(seconds / self.profiles.seconds)

    def _coefficients(self, counts: IntArray) -> FloatArray:
        """Number of coefficients that the steps of each pair on each level determine, shape (3 C,).

        One GPU: a and b, or one of them if only one m was measured. Several GPUs: f and c of the
        pair (S and B have the same effect on a level as f), an equal part of the shared
        coefficients (alpha of each link, c of each GPU type, g), and a and b if there is no step on
        one GPU.
        """
        alone = np.flatnonzero(self.profiles.ways.gpus == 1)
        samples = self.profiles.ways.samples[alone]
        groups = group_rows([self.pair[alone], samples], len(alone))
        different = np.bincount(self.pair[alone][groups.first], minlength=len(self.pairs))
        levels = counts.reshape(-1, LEVELS) > 0
        links = self._measured_links
        shared = np.sum(links) + np.sum(links.reshape(-1, 2).any(axis=1)) + 1
        each = 2.0 + shared / max(int(levels[:, 1:].sum()), 1)
        base = np.array([2.0 if pair in self.free else 0.0 for pair in self.pairs.names])
        free: FloatArray = np.full(levels.shape, each) + base[:, np.newaxis]
        free[:, 0] = np.minimum(different, 2)
        return free.ravel()


def _alone(part: Profiles) -> tuple[FloatArray, FloatArray]:
    """Samples, and seconds of a pass, of the steps on one GPU, where passes run one after the
    other.
    """
    rows = np.flatnonzero(part.ways.gpus == 1)
    return part.ways.samples[rows], part.seconds[rows] / part.ways.passes[rows]


def _measured(part: Profiles) -> OneGpuDocument | None:
    """Seconds of a pass on one GPU by samples, the geometric mean of repeated measurements; None if
    there are none.
    """
    each, seconds = _alone(part)
    samples, which = np.unique(each, return_inverse=True)
    if len(samples) == 0:
        return None
    means = np.exp(np.bincount(which, np.log(seconds)) / np.bincount(which))
    return OneGpuDocument(samples=tuple(samples.tolist()), seconds=tuple(means.tolist()))


def _line(part: Profiles) -> tuple[float, float] | None:
    """a and b of T_1 from the steps on one GPU; None if there are no steps."""
    samples, seconds = _alone(part)
    return fit_affine(samples, seconds) if len(samples) else None


def _guess(part: Profiles) -> tuple[float, float]:
    """Start values of a and b for a pair that was never measured on one GPU: half of the shortest
    steps is compute.
    """
    # The shortest steps have the least communication. This is only the start of the search.
    seconds = float(np.min(part.seconds / part.ways.passes))
    return seconds / 4, seconds / 4 / float(np.median(part.ways.samples))


def _read_prior(document: Mapping[str, Any]) -> SharedLinkDocument:
    options = {name: value for name, value in document.items() if name != "model"}
    return validate(SharedLinkDocument, options, "performance.prior")
