"""Times at which jobs arrive."""

from __future__ import annotations

import math

import numpy as np

from optsched.arrays import FloatArray

DAY = 86_400.0
HOUR = 3600.0


def poisson(count: int, per_hour: float, random: np.random.Generator) -> FloatArray:
    """Arrivals of a Poisson process, seconds, the first after an exponential time from 0; shape (count,)."""
    return np.cumsum(random.exponential(HOUR / per_hour, count), dtype=np.float64)


def even(count: int, per_hour: float) -> FloatArray:
    """Arrivals at equal distances, seconds, the first at 0; shape (count,)."""
    return np.arange(count, dtype=np.float64) * (HOUR / per_hour)


def diurnal(
    count: int, per_hour: float, amplitude: float, peak: float, random: np.random.Generator
) -> FloatArray:
    """Arrivals of a Poisson process whose rate goes up and down within a day, seconds; shape (count,).

    The rate is r(t) = r (1 + a cos(2 pi (t - p) / day)). Candidates arrive at the highest rate, r (1 + a), and each is
    kept with probability r(t) / (r (1 + a)) (thinning).

    Parameters
    ----------
    per_hour : float
        r, the mean over a day.
    amplitude : float
        a, from 0 to 1.
    peak : float
        p, hours after the beginning of a day; time 0 is such a beginning.

    References
    ----------
    P. Lewis and G. Shedler, "Simulation of nonhomogeneous Poisson processes by thinning", Naval Research Logistics 26,
    1979.
    """
    found: list[FloatArray] = []
    missing, last = count, 0.0
    while missing > 0:
        candidates = last + np.cumsum(
            random.exponential(HOUR / (per_hour * (1 + amplitude)), 2 * missing + 64)
        )
        rate = 1 + amplitude * np.cos(2 * math.pi * (candidates - peak * HOUR) / DAY)
        found.append(candidates[random.random(len(candidates)) * (1 + amplitude) < rate])
        missing, last = missing - len(found[-1]), float(candidates[-1])
    return np.concatenate(found)[:count]
