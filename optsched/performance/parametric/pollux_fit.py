"""Fits of the law of Pollux to the profiles of one workload on one GPU type."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import Bounds, least_squares, minimize

from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.errors import InvalidInput
from optsched.performance.parametric.pollux_law import (
    A_C,
    A_N,
    A_R,
    B_C,
    B_N,
    B_R,
    G,
    compute_seconds,
    log_step_seconds,
)
from optsched.performance.parametric.uncertainty import log_sd
from optsched.performance.profiles import Profiles

LEAST = 1e-8
"""Smallest coefficient, and AdaptDL's zero; of the robust fit in units of the median step and the median samples."""
MOST = 1e6
"""Largest coefficient, in the same units."""
MOST_OVERLAP = 10.0
"""Close enough to the maximum of the two phases."""
START = np.array([0.1, 0.01, 0.1, 0.01, 0.1, 0.01, 1.001])
"""AdaptDL's only start."""
ROBUST = 0.1
"""Scale of soft_l1: residuals beyond 10 % count linearly."""
SHRINK = 0.03
"""Weight of the weak priors of the robust fit, in units of a residual."""


@dataclass(frozen=True)
class PolluxFit:
    """A fitted law of one workload on one GPU type.

    Attributes
    ----------
    law : FloatArray, shape (7,)
    objective : float
        What the fit minimised.
    log_sd : float
        Of the steps' times, by their log residuals (`optsched.performance.parametric.uncertainty`).
    inside, across : bool
        Whether several GPUs on one node, and on several, were measured.
    """

    law: FloatArray
    objective: float
    log_sd: float
    inside: bool
    across: bool


class _Data:
    """What was measured, and which coefficients it can determine."""

    def __init__(self, profiles: Profiles) -> None:
        ways = self.ways = profiles.ways
        self.log_seconds = np.log(profiles.seconds)
        self.inside = bool(((ways.nodes == 1) & (ways.gpus > 1)).any())
        self.across = bool((ways.nodes > 1).any())
        sync = np.where(ways.gpus == 1, np.fmax(np.nan_to_num(profiles.sync), 0.0), profiles.sync)
        compute = (profiles.seconds - sync) / ways.passes
        self.timed = np.flatnonzero(compute > 0)
        self.samples, self.compute = ways.samples[self.timed], compute[self.timed]

    def pinned(self) -> tuple[BoolArray, FloatArray]:
        """Which coefficients are not fitted, and what they are instead: AdaptDL's rules.

        One batch size: half of T_grad is constant (a_c). No steps over several nodes: a_n = b_n = 0; none of several
        GPUs on a node: a_r = b_r = 0; none of more than two GPUs: b_n = b_r = 0. For 0 stands `LEAST`.
        """
        pinned, value = np.zeros(7, bool), np.full(7, LEAST)
        if len(np.unique(self.ways.samples)) == 1:
            compute = (
                self.compute if len(self.compute) else np.exp(self.log_seconds) / self.ways.passes
            )
            pinned[A_C], value[A_C] = True, max(float(np.mean(compute)) / 2, LEAST)
        more = bool((self.ways.gpus > 2).any())
        pinned[[A_N, B_N]] = not self.across
        pinned[[A_R, B_R]] = not self.inside
        pinned[[B_N, B_R]] |= not more
        return pinned, value

    @property
    def coefficients(self) -> int:
        """How many the measurements have to determine: those not pinned; g only where there is something to overlap."""
        free = int(np.sum(~self.pinned()[0]))
        return free if self.inside or self.across else free - 1


def adaptdl_objective(law: FloatArray, profiles: Profiles) -> float:
    """RMSE(log T_grad) + RMSE(log t) + 1e-3 (g - 1)^2 + 1e-2 [(b_n / a_n)^2 + (b_r / a_r)^2]."""
    return _objective(law, _Data(profiles))[0]


def fit_adaptdl(profiles: Profiles) -> PolluxFit:
    """AdaptDL's fit: `adaptdl_objective`, bounded, by L-BFGS-B in the logs of the coefficients, from several starts.

    Terms without measurements are pinned; those of several nodes are then at least 1.1 times those of one node.

    Raises
    ------
    InvalidInput
        If no row has a known T_grad (one GPU, or a measured sync), or if the times are beyond the objective's bounds,
        which are absolute.
    """
    _check_units(profiles)
    data = _Data(profiles)
    if len(data.timed) == 0:
        raise InvalidInput(
            "sync",
            "no measured sync and no step of one GPU",
            "the time of some gradients' exchange",
        )
    pinned, value = data.pinned()
    free = np.flatnonzero(~pinned)
    lower, upper = np.full(7, np.log(LEAST)), np.full(7, np.log(MOST))
    lower[G], upper[G] = 1.0, MOST_OVERLAP
    smooth = _least_squares(data, pinned, value, START, robust=False)
    starts = [smooth, START, *(_with(smooth, G, g) for g in (1.0, 1.5, 3.0)), _with(START, G, 3.0)]

    def function(z: FloatArray) -> tuple[float, FloatArray]:
        law = _law(z, free, value)
        objective, slope = _objective(law, data)
        return objective, slope[free]

    best, law = np.inf, START
    for start in starts:
        z = np.clip(_logs(start), lower, upper)[free]
        found = minimize(
            function, z, jac=True, method="L-BFGS-B", bounds=Bounds(lower[free], upper[free]),
            options={"maxiter": 2000, "maxfun": 4000, "ftol": 1e-13, "gtol": 1e-9, "maxcor": 20},
        )  # fmt: skip
        for x in (z, found.x):  # L-BFGS-B may stop at a kink (a perfect fit) above where it began
            objective = function(np.asarray(x, np.float64))[0]
            if objective < best:
                best, law = objective, _law(np.asarray(x, np.float64), free, value)
    if not data.across:
        law = law.copy()
        law[A_N], law[B_N] = max(law[A_N], 1.1 * law[A_R]), max(law[B_N], 1.1 * law[B_R])
    return _result(law, best, data)


def fit_robust(profiles: Profiles) -> PolluxFit:
    """The recommended fit: soft_l1 of the residuals of log t, in the logs of the coefficients, from several starts.

    Weak priors hold what few measurements leave open: rows  w b_n / a_n,  w b_r / a_r  and  w (g - 1)  are residuals
    too, w = `SHRINK`. Pinned terms are those of AdaptDL.

    Times are fitted in units of the median step, samples in units of their median, so that the units in which they are
    given do not matter.
    """
    scale, size = float(np.median(profiles.seconds)), float(np.median(profiles.ways.samples))
    ways = profiles.ways.with_batches(profiles.ways.samples / size, profiles.ways.passes)
    data = _Data(Profiles(ways, profiles.seconds / scale, profiles.sync / scale))
    pinned, value = data.pinned()
    even = np.array([0.5, 0.5, 0.25, 0.025, 0.125, 0.0125, 1.5])
    best, law = np.inf, START
    for start in (even, _with(even, G, 4.0), START):
        found = _least_squares(data, pinned, value, start, robust=True)
        objective = _robust_objective(found, data)
        if objective < best:
            best, law = objective, found
    if not data.across:
        law = law.copy()
        law[A_N], law[B_N] = max(law[A_N], 1.1 * law[A_R]), max(law[B_N], 1.1 * law[B_R])
    fit = _result(law, best, data)
    units = np.array([scale, scale / size, scale, scale, scale, scale, 1.0])
    return replace(fit, law=law * units)


def _check_units(profiles: Profiles) -> None:
    """Refuse times and samples that coefficients between `LEAST` and `MOST` cannot tell."""
    seconds, samples = float(np.median(profiles.seconds)), float(np.median(profiles.ways.samples))
    if not 100 * LEAST <= seconds <= MOST:
        raise InvalidInput(
            "seconds",
            f"{seconds:g} in the median",
            f"{100 * LEAST:g} to {MOST:g} s for this method, or method robust",
        )
    if LEAST * samples > 0.1 * seconds:
        found = f"{samples:g} in the median, in {seconds:g} s"
        raise InvalidInput(
            "samples", found, f"at least {10 * LEAST:g} s each for this method, or method robust"
        )


def _result(law: FloatArray, objective: float, data: _Data) -> PolluxFit:
    residual = log_step_seconds(law, data.ways)[0] - data.log_seconds
    return PolluxFit(law, objective, log_sd(residual, data.coefficients), data.inside, data.across)


def _objective(law: FloatArray, data: _Data) -> tuple[float, FloatArray]:
    """AdaptDL's objective, and its derivatives by the logs of the coefficients and by g."""
    slope = np.zeros(7)
    log_t, slopes = log_step_seconds(law, data.ways, LEAST)
    of_steps = _rmse(log_t - data.log_seconds, slopes, slope)
    compute = compute_seconds(law, data.samples)
    slopes = np.zeros((len(compute), 7))
    slopes[:, A_C], slopes[:, B_C] = law[A_C] / compute, law[B_C] * data.samples / compute
    of_compute = _rmse(np.log(compute / data.compute), slopes, slope)
    across, inside = (law[B_N] / law[A_N]) ** 2, (law[B_R] / law[A_R]) ** 2
    slope[B_N], slope[A_N] = slope[B_N] + 2e-2 * across, slope[A_N] - 2e-2 * across
    slope[B_R], slope[A_R] = slope[B_R] + 2e-2 * inside, slope[A_R] - 2e-2 * inside
    slope[G] += 2e-3 * (law[G] - 1)
    return of_compute + of_steps + 1e-3 * (law[G] - 1) ** 2 + 1e-2 * (across + inside), slope


def _rmse(residual: FloatArray, slopes: FloatArray, slope: FloatArray) -> float:
    """Root mean square; its derivatives are added to ``slope``."""
    root = float(np.sqrt(np.mean(residual**2)))
    if root > 0:
        slope += residual @ slopes / (len(residual) * root)
    return root


def _least_squares(
    data: _Data, pinned: BoolArray, value: FloatArray, start: FloatArray, robust: bool
) -> FloatArray:
    """The law with the smallest residuals: of log t with soft_l1 and priors, or of log t and log T_grad as they are."""
    free = np.flatnonzero(~pinned)
    lower, upper = np.full(7, np.log(LEAST / 10)), np.full(7, np.log(MOST))
    lower[G], upper[G] = 1.0, MOST_OVERLAP
    z = np.clip(_logs(start), lower + 1e-6, upper - 1e-6)[free]

    def both(x: FloatArray) -> tuple[FloatArray, FloatArray]:
        law = _law(x, free, value)
        log_t, slopes = log_step_seconds(law, data.ways)
        residual = log_t - data.log_seconds
        if robust:
            priors, of_priors = _priors(law)
            return np.concatenate([residual, priors]), np.concatenate([slopes, of_priors])[:, free]
        compute = compute_seconds(law, data.samples)
        more = np.zeros((len(compute), 7))
        more[:, A_C], more[:, B_C] = law[A_C] / compute, law[B_C] * data.samples / compute
        weight = np.sqrt(len(residual) / len(compute))
        return (
            np.concatenate([residual, weight * np.log(compute / data.compute)]),
            np.concatenate([slopes, weight * more])[:, free],
        )

    def residuals(x: FloatArray) -> FloatArray:
        return both(x)[0]

    def slopes_of(x: FloatArray) -> FloatArray:
        return both(x)[1]

    found = least_squares(
        residuals, z, jac=slopes_of, bounds=(lower[free], upper[free]), loss="soft_l1" if robust else "linear",
        f_scale=ROBUST, xtol=1e-12, ftol=1e-12, gtol=1e-12, max_nfev=200,
    )  # fmt: skip
    law = _law(np.asarray(found.x, np.float64), free, value)
    law[:G] = np.maximum(law[:G], LEAST)
    law[G] = np.clip(law[G], 1.0, MOST_OVERLAP)
    return law


def _priors(law: FloatArray) -> tuple[FloatArray, FloatArray]:
    across, inside = SHRINK * law[B_N] / law[A_N], SHRINK * law[B_R] / law[A_R]
    slopes = np.zeros((3, 7))
    slopes[0, [B_N, A_N]] = across, -across
    slopes[1, [B_R, A_R]] = inside, -inside
    slopes[2, G] = SHRINK
    return np.array([across, inside, SHRINK * (law[G] - 1)]), slopes


def _robust_objective(law: FloatArray, data: _Data) -> float:
    residual = (
        np.concatenate([log_step_seconds(law, data.ways)[0] - data.log_seconds, _priors(law)[0]])
        / ROBUST
    )
    return float(np.sum(np.sqrt(1 + residual**2) - 1)) * ROBUST**2


def _logs(law: FloatArray) -> FloatArray:
    return np.append(np.log(np.maximum(law[:G], LEAST)), law[G])


def _law(z: FloatArray, free: IntArray, value: FloatArray) -> FloatArray:
    law = value.copy()
    law[free] = z
    fitted = free[free < G]
    law[fitted] = np.exp(law[fitted])
    return law


def _with(law: FloatArray, index: int, value: float) -> FloatArray:
    changed = law.copy()
    changed[index] = value
    return changed
