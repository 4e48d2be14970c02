"""How long jobs take."""

from __future__ import annotations

import numpy as np

from optsched.arrays import FloatArray

LONG = 0.2
"""Share of long jobs in Gavel's mixture."""


def lognormal(count: int, median: float, sigma: float, random: np.random.Generator) -> FloatArray:
    """Lognormal hours; ``sigma`` is the standard deviation of their log."""
    return np.asarray(median * np.exp(sigma * random.standard_normal(count)))


def pareto(count: int, median: float, shape: float, random: np.random.Generator) -> FloatArray:
    """Pareto's x_m U^(-1 / shape) hours, with the median asked for."""
    U = 1.0 - random.random(count)  # in (0, 1]
    return np.asarray(median * (2.0 * U) ** (-1.0 / shape))


def gavel(count: int, random: np.random.Generator) -> FloatArray:
    """Hours of Gavel's generator: 60 x 10^U seconds with U in [1.5, 3] for 4 jobs of 5, in [3, 4] for the others.

    References
    ----------
    D. Narayanan et al., "Heterogeneity-aware cluster scheduling policies for deep learning workloads", OSDI 2020, and
    the code published with it.
    """
    long = random.random(count) < LONG
    U = np.where(long, random.uniform(3.0, 4.0, count), random.uniform(1.5, 3.0, count))
    return np.asarray(60.0 * 10.0**U / 3600.0)
