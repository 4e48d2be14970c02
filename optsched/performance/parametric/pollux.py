"""The ``pollux`` model:
data-parallel training with compute and synchronisation that overlap in part.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Self

import numpy as np
from pydantic import Field, model_validator

from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.errors import InvalidInput
from optsched.instance.documents import Document, Name, NonNegative, PlainObject
from optsched.performance.parametric.fitting import (
    ROBUST,
    KnownPairs,
    LogSd,
    check_compute,
    flat,
    log_sd,
    minimise_squares,
    nested,
    split,
    within,
)
from optsched.performance.parametric.two_phases import (
    Phases,
    TwoPhaseTable,
    step_slopes,
)
from optsched.performance.profiles import Profiles
from optsched.performance.protocol import Source
from optsched.performance.times import StoredModel, Times
from optsched.performance.ways import Ways

PRIOR_LOG_SD = 0.3
"""log_sd of ways without measured synchronisation: linear scaling was off by 27 to 35 % on Sia's
profiles.
"""


class PolluxOptions(Document):
    """How to fit; see `Pollux.fit`."""

    method: Literal["robust", "adaptdl"] = "robust"


class PolluxLawDocument(Document):
    """Coefficients of one workload on one GPU type."""

    a_c: NonNegative
    b_c: NonNegative
    a_n: NonNegative = 0.0
    b_n: NonNegative = 0.0
    a_r: NonNegative = 0.0
    b_r: NonNegative = 0.0
    g: float = Field(1.0, ge=1, le=10)
    log_sd: LogSd = 0.1
    inside: bool = True
    across: bool = True

    @model_validator(mode="after")
    def _takes_time(self) -> Self:
        check_compute(a_c=self.a_c, b_c=self.b_c)
        return self

    @property
    def law(self) -> FloatArray:
        """The coefficients in the order of `NAMES`, shape (7,)."""
        return np.array([getattr(self, name) for name in NAMES])


class PolluxDocument(Document):
    """The model: laws by workload, then GPU type; what its fit was asked for is kept with it."""

    coefficients: dict[Name, dict[Name, PolluxLawDocument]]
    fitted: PlainObject = Field(default_factory=dict)


class Pollux(StoredModel):
    """Pollux's law: computation and communication, per workload and GPU type.

        T_grad = a_c + b_c m
        T_sync = 0                         k = 1
                 a_r + b_r max(k - 2, 0)   n = 1
                 a_n + b_n max(k - 2, 0)   n > 1
        t = (passes - 1) T_grad + (T_grad^g + T_sync^g)^(1/g)        1 <= g <= 10

    Coefficients in s, s per sample and s per GPU. ``log_sd`` of a law comes from its log residuals
    and degrees of freedom (`optsched.performance.parametric.fitting`). ``inside`` and ``across``
    say whether several GPUs on one node, and on several nodes, were measured. If not, T_sync is
    AdaptDL's optimistic guess (0, or 1.1 times that of one node), the source is `PRIOR` and the
    log_sd at least 0.3.

    Options of `fit`: ``method``, ``robust`` (default; soft_l1 of log t) or ``adaptdl`` (the
    published objective, which needs measured sync times, with several starts where AdaptDL has
    one).

    References
    ----------
    A. Qiao et al., "Pollux: co-adaptive cluster scheduling for goodput-optimized deep learning",
    OSDI 2021, section 3.2; AdaptDL (Apache-2.0), ``adaptdl/goodput.py``.
    """

    name = "pollux"
    Options = PolluxOptions
    Stored = PolluxDocument

    def __init__(self, stored: PolluxDocument) -> None:
        super().__init__(stored)
        self.laws = flat(stored.coefficients)
        rows = [row for law in self.laws.values() for row in _levels(law)]
        self._table = TwoPhaseTable(KnownPairs(tuple(self.laws)), rows, 7)

    @classmethod
    def fit_checked(cls, profiles: Profiles, options: PolluxOptions) -> Self:
        """One law per (workload, GPU type) that was measured."""
        fit = fit_robust if options.method == "robust" else fit_adaptdl
        laws = {}
        for pair, part in split(profiles).items():
            with within(pair):
                laws[pair] = fit(part)
        return cls(PolluxDocument(coefficients=nested(laws), fitted={"method": options.method}))

    def times(self, ways: Ways) -> Times:
        """The law of each way."""

        def phases(law: Sequence[FloatArray], rows: slice, at: IntArray) -> Phases:
            a_c, b_c, g, a, b = law
            compute = np.multiply(b_c, ways.samples[rows], out=b_c)
            compute += a_c
            more = np.maximum(ways.gpus[rows] - 2, 0).astype(np.float64)
            sync = np.multiply(b, more, out=b)
            sync += a
            return compute, sync, g

        return self._table.times(ways, phases)


def _levels(fit: PolluxLawDocument) -> list[tuple[float, ...]]:
    """a_c, b_c, g, a and b of T_sync, log_sd and source:
    for one GPU, one node, several nodes.
    """
    a_c, b_c, a_n, b_n, a_r, b_r, g = fit.law.tolist()
    measured = (fit.log_sd, Source.PARAMETRIC)
    guessed = (max(fit.log_sd, PRIOR_LOG_SD), Source.PRIOR)
    return [
        (a_c, b_c, g, 0.0, 0.0, *measured),
        (a_c, b_c, g, a_r, b_r, *(measured if fit.inside else guessed)),
        (a_c, b_c, g, a_n, b_n, *(measured if fit.across else guessed)),
    ]


# --- the law and its derivatives ------------------------------------------------------------------

NAMES = ("a_c", "b_c", "a_n", "b_n", "a_r", "b_r", "g")
"""Coefficients of a law in this order: s, s per sample, s, s per GPU, s, s per GPU, none."""
A_C, B_C, A_N, B_N, A_R, B_R, G = range(7)


def compute_seconds(law: FloatArray, samples: FloatArray) -> FloatArray:
    """T_grad = a_c + b_c m; ``law`` is one law (7,) or one per way (7, E)."""
    return np.asarray(law[A_C] + law[B_C] * samples, np.float64)


def sync_seconds(
    law: FloatArray,
    gpus: IntArray,
    nodes: IntArray,
    least: float = 0.0,
) -> FloatArray:
    """T_sync of k GPUs on n nodes; see `Pollux`.
    ``least`` replaces zeros; in AdaptDL it is 1e-8.
    """
    more = np.maximum(gpus - 2.0, least)
    inside = law[A_R] + law[B_R] * more
    across = law[A_N] + law[B_N] * more
    several = np.where(nodes > 1, across, inside)
    return np.asarray(np.where(gpus == 1, least + least * more, several), np.float64)


def log_step_seconds(
    law: FloatArray, ways: Ways, least: float = 0.0
) -> tuple[FloatArray, FloatArray]:
    """log t of one law, t = (passes - 1) T_grad + (T_grad^g + T_sync^g)^(1/g), and its derivatives
    by the logs of the first six coefficients and by g, shape (E, 7).
    """
    compute = compute_seconds(law, ways.samples)
    sync = sync_seconds(law, ways.gpus, ways.nodes, least)
    seconds, by_compute, by_sync, by_g = step_slopes(compute, sync, float(law[G]), ways.passes)
    several = ways.gpus > 1
    across = by_sync * (several & (ways.nodes > 1))
    inside = by_sync * (several & (ways.nodes == 1))
    more = np.maximum(ways.gpus - 2.0, least)
    slopes = np.stack(
        [
            by_compute * law[A_C],
            by_compute * law[B_C] * ways.samples,
            across * law[A_N],
            across * law[B_N] * more,
            inside * law[A_R],
            inside * law[B_R] * more,
            by_g,
        ],
        axis=1,
    )
    return np.log(seconds), slopes / seconds[:, np.newaxis]


# --- fits -----------------------------------------------------------------------------------------

LEAST = 1e-8
"""Smallest coefficient, and AdaptDL's value for zero. In the robust fit its units are the median
step and the median samples.
"""
MOST = 1e6
"""Largest coefficient, in the same units."""
MOST_OVERLAP = 10.0
"""Largest g; with it t is close enough to the maximum of the two phases."""
START = np.array([0.1, 0.01, 0.1, 0.01, 0.1, 0.01, 1.001])
"""AdaptDL's only start."""
SHRINK = 0.03
"""Weight of the weak priors of the robust fit, in units of a residual."""


class _Data:
    """The measurements, and the coefficients that they can determine.

    Attributes
    ----------
    inside, across : bool
        Whether steps of several GPUs on one node, and on several nodes, were measured.
    timed : IntArray
        Rows whose T_grad is known.
    samples, compute : FloatArray
        Of these rows, m and T_grad.
    pinned : BoolArray, shape (7,)
        Coefficients that are not fitted.
    value : FloatArray, shape (7,)
        Values of the pinned coefficients.
    """

    def __init__(self, profiles: Profiles) -> None:
        ways = self.ways = profiles.ways
        self.log_seconds = np.log(profiles.seconds)
        self.inside = bool(((ways.nodes == 1) & (ways.gpus > 1)).any())
        self.across = bool((ways.nodes > 1).any())
        # A single GPU has no exchange, so an unknown sync is 0 there.
        known_sync = np.fmax(np.nan_to_num(profiles.sync), 0.0)
        sync = np.where(ways.gpus == 1, known_sync, profiles.sync)
        compute = (profiles.seconds - sync) / ways.passes
        self.timed = np.flatnonzero(compute > 0)
        self.samples = ways.samples[self.timed]
        self.compute = compute[self.timed]
        self.pinned, self.value = self._pinned()
        self.free = np.flatnonzero(~self.pinned)

    def _pinned(self) -> tuple[BoolArray, FloatArray]:
        """AdaptDL's rules; `LEAST` replaces 0.

        - One batch size: half of T_grad is constant (a_c).
        - No steps over several nodes: a_n = b_n = 0.
        - No steps of several GPUs on a node: a_r = b_r = 0.
        - No steps of more than two GPUs: b_n = b_r = 0.
        """
        pinned = np.zeros(7, bool)
        value = np.full(7, LEAST)
        if len(np.unique(self.ways.samples)) == 1:
            compute = self.compute
            if len(compute) == 0:
                compute = np.exp(self.log_seconds) / self.ways.passes
            pinned[A_C] = True
            value[A_C] = max(float(np.mean(compute)) / 2, LEAST)
        # Coefficients without measurements cannot be fitted.
        pinned[[A_N, B_N]] = not self.across
        pinned[[A_R, B_R]] = not self.inside
        pinned[[B_N, B_R]] |= not bool((self.ways.gpus > 2).any())
        return pinned, value

    @property
    def coefficients(self) -> int:
        """Number of coefficients that the measurements determine, that is those not pinned. g
        counts only if communication was measured.
        """
        return len(self.free) if self.inside or self.across else len(self.free) - 1

    def law(self, z: FloatArray) -> FloatArray:
        """The law of free coefficients z, of which all but g are logs."""
        law = self.value.copy()
        law[self.free] = z
        logs = self.free[self.free < G]
        law[logs] = np.exp(law[logs])
        return law

    def log_compute(self, law: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Log residuals of T_grad, and their derivatives, shape (timed rows, 7)."""
        compute = compute_seconds(law, self.samples)
        slopes = np.zeros((len(compute), 7))
        slopes[:, A_C] = law[A_C] / compute
        slopes[:, B_C] = law[B_C] * self.samples / compute
        return np.log(compute / self.compute), slopes

    def result(self, law: FloatArray) -> PolluxLawDocument:
        """The fit of a law; unmeasured steps over several nodes take
        at least 1.1 times those of one node.
        """
        if not self.across:
            law = law.copy()
            law[A_N] = max(law[A_N], 1.1 * law[A_R])
            law[B_N] = max(law[B_N], 1.1 * law[B_R])
        residual = log_step_seconds(law, self.ways)[0] - self.log_seconds
        sd = log_sd(residual, self.coefficients)
        coefficients = dict(zip(NAMES, law.tolist(), strict=True))
        return PolluxLawDocument(**coefficients, log_sd=sd, inside=self.inside, across=self.across)


def fit_adaptdl(profiles: Profiles) -> PolluxLawDocument:
    """AdaptDL's fit: `_objective`, bounded,
    by L-BFGS-B in the logs of the coefficients, from several starts.

    Terms without measurements are pinned; those of several nodes are then at least 1.1 times those
    of one node.

    Raises
    ------
    InvalidInput
        If no row has a known T_grad (one GPU, or a measured sync), or if the times are beyond the
        objective's bounds, which are absolute.
    """
    from scipy.optimize import Bounds, minimize

    _check_units(profiles)
    data = _Data(profiles)
    if len(data.timed) == 0:
        found = "no measured sync and no step of one GPU"
        raise InvalidInput("sync", found, "the time of some gradients' exchange")
    free = data.free
    lower, upper = _bounds(LEAST)
    smooth, _ = _least_squares(data, START, robust=False)
    starts = [
        smooth,
        START,
        _with_g(smooth, 1.0),
        _with_g(smooth, 1.5),
        _with_g(smooth, 3.0),
        _with_g(START, 3.0),
    ]

    def function(z: FloatArray) -> tuple[float, FloatArray]:
        objective, slope = _objective(data.law(z), data)
        return objective, slope[free]

    best = np.inf
    law = START
    for start in starts:
        z = np.clip(_logs(start), lower, upper)[free]
        found_at = minimize(
            function,
            z,
            jac=True,
            method="L-BFGS-B",
            bounds=Bounds(lower[free], upper[free]),
            options={"maxiter": 2000, "maxfun": 4000, "ftol": 1e-13, "gtol": 1e-9, "maxcor": 20},
        ).x
        # At a kink (a perfect fit) L-BFGS-B may stop at a worse point than its start.
        for x in (z, np.asarray(found_at, np.float64)):
            objective = function(x)[0]
            if objective < best:
                best = objective
                law = data.law(x)
    return data.result(law)


def fit_robust(profiles: Profiles) -> PolluxLawDocument:
    """The recommended fit: soft_l1 of the residuals of log t,
    in the logs of the coefficients, from several starts.

    Weak priors determine coefficients that few measurements leave open: w b_n / a_n, w b_r / a_r
    and w (g - 1) are additional residuals, w = `SHRINK`. Pinned terms are those of AdaptDL.

    Times are fitted in units of the median step, samples in units of their median, so that the
    units in which they are given do not matter.
    """
    scale = float(np.median(profiles.seconds))
    size = float(np.median(profiles.ways.samples))
    ways = profiles.ways.with_batches(profiles.ways.samples / size, profiles.ways.passes)
    data = _Data(Profiles(ways, profiles.seconds / scale, profiles.sync / scale))
    even = np.array([0.5, 0.5, 0.25, 0.025, 0.125, 0.0125, 1.5])
    # The objective has several minima, mainly in g, so take the best result of several starts.
    starts = (even, _with_g(even, 4.0), START)
    ends = [_least_squares(data, start, robust=True) for start in starts]
    law, _ = min(ends, key=lambda end: end[1])
    fit = data.result(law)
    units = np.array([scale, scale / size, scale, scale, scale, scale, 1.0])
    return fit.model_copy(update=dict(zip(NAMES, (fit.law * units).tolist(), strict=True)))


def _check_units(profiles: Profiles) -> None:
    """Refuse times and samples for which coefficients would lie beyond `LEAST` and `MOST`."""
    seconds = float(np.median(profiles.seconds))
    samples = float(np.median(profiles.ways.samples))
    if not 100 * LEAST <= seconds <= MOST:
        expected = f"{100 * LEAST:g} to {MOST:g} s for this method, or method robust"
        raise InvalidInput("seconds", f"{seconds:g} in the median", expected)
    if LEAST * samples > 0.1 * seconds:
        found = f"{samples:g} in the median, in {seconds:g} s"
        expected = f"at least {10 * LEAST:g} s each for this method, or method robust"
        raise InvalidInput("samples", found, expected)


def _objective(law: FloatArray, data: _Data) -> tuple[float, FloatArray]:
    """AdaptDL's objective, and its derivatives by the logs of the coefficients and by g:

    RMSE(log T_grad) + RMSE(log t) + 1e-3 (g - 1)^2 + 1e-2 [(b_n / a_n)^2 + (b_r / a_r)^2].
    """
    slope = np.zeros(7)
    log_t, slopes = log_step_seconds(law, data.ways, LEAST)
    of_steps = _rmse(log_t - data.log_seconds, slopes, slope)
    of_compute = _rmse(*data.log_compute(law), slope)
    penalty = 0.0
    # AdaptDL's penalty: prefer a constant over a slope per GPU.
    for a, b in ((A_N, B_N), (A_R, B_R)):
        square = (law[b] / law[a]) ** 2
        slope[b] += 2e-2 * square
        slope[a] -= 2e-2 * square
        penalty += square
    slope[G] += 2e-3 * (law[G] - 1)
    return of_compute + of_steps + 1e-3 * (law[G] - 1) ** 2 + 1e-2 * penalty, slope


def _rmse(residual: FloatArray, slopes: FloatArray, slope: FloatArray) -> float:
    """Root mean square; its derivatives are added to ``slope``."""
    root = float(np.sqrt(np.mean(residual**2)))
    if root > 0:
        slope += residual @ slopes / (len(residual) * root)
    return root


def _least_squares(data: _Data, start: FloatArray, robust: bool) -> tuple[FloatArray, float]:
    """The law with the smallest residuals, and its objective:
    of log t with soft_l1 and priors, or of log t and log T_grad as they are.
    """
    free = data.free
    lower, upper = _bounds(LEAST / 10)

    def residuals_and_slopes(z: FloatArray) -> tuple[FloatArray, FloatArray]:
        law = data.law(z)
        log_t, slopes = log_step_seconds(law, data.ways)
        residual = log_t - data.log_seconds
        more, more_slopes = _priors(law) if robust else data.log_compute(law)
        # Without priors, the two parts have equal weight, however many rows have a known T_grad.
        weight = 1.0 if robust else np.sqrt(len(residual) / len(more))
        return (
            np.concatenate([residual, weight * more]),
            np.concatenate([slopes, weight * more_slopes])[:, free],
        )

    z, objective = minimise_squares(
        residuals_and_slopes,
        np.clip(_logs(start), lower + 1e-6, upper - 1e-6)[free],
        (lower[free], upper[free]),
        loss="soft_l1" if robust else "linear",
        f_scale=ROBUST,
        xtol=1e-12,
        ftol=1e-12,
        gtol=1e-12,
        max_nfev=200,
    )
    law = data.law(z)
    law[:G] = np.maximum(law[:G], LEAST)
    law[G] = np.clip(law[G], 1.0, MOST_OVERLAP)
    return law, objective


def _priors(law: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The residuals of the weak priors, and their derivatives, shape (3, 7)."""
    across = SHRINK * law[B_N] / law[A_N]
    inside = SHRINK * law[B_R] / law[A_R]
    slopes = np.zeros((3, 7))
    slopes[0, [B_N, A_N]] = across, -across
    slopes[1, [B_R, A_R]] = inside, -inside
    slopes[2, G] = SHRINK
    return np.array([across, inside, SHRINK * (law[G] - 1)]), slopes


def _bounds(least: float) -> tuple[FloatArray, FloatArray]:
    """Bounds on the logs of the coefficients and on g."""
    lower = np.append(np.full(6, np.log(least)), 1.0)
    upper = np.append(np.full(6, np.log(MOST)), MOST_OVERLAP)
    return lower, upper


def _logs(law: FloatArray) -> FloatArray:
    return np.append(np.log(np.maximum(law[:G], LEAST)), law[G])


def _with_g(law: FloatArray, g: float) -> FloatArray:
    return np.append(law[:G], g)
