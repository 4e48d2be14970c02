"""Jobs of generated clusters and traces: durations, arrivals and tenants.

The annotated types at the top are options of several generators.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Protocol

import numpy as np
from pydantic import Field

from optsched.arrays import FloatArray, IntArray
from optsched.generate.generator import PARTS, Share, split
from optsched.instance.durations import DAY, HOUR

# Share of long jobs in Gavel's mixture.
LONG = 0.2

Sigma = Annotated[
    float,
    Field(
        ge=0,
        le=5,
        description="Standard deviation of the log of lognormal hours.",
    ),
]
Shape = Annotated[
    float,
    Field(
        gt=0.2,
        le=100,
        description="Exponent of Pareto's tail; below 2 it is heavy.",
    ),
]
Median = Annotated[float, Field(gt=0, le=1e5, description="Median of the hours.")]
Gangs = Annotated[
    tuple[Share, Share, Share],
    split(3),
    PARTS,
    Field(
        description="Shares of jobs with 2, 4 and 8 GPUs; the others have 1.",
        json_schema_extra={"metavar": "S,S,S"},
    ),
]
Deadlines = Annotated[Share, Field(description="Share of jobs with a deadline.")]
Tenants = Annotated[
    int,
    Field(ge=0, le=1000, description="Tenants; the k-th has jobs in proportion to 1/k. 0: none."),
]


def with_rest(shares: Sequence[float], count: int | None = None) -> FloatArray:
    """Probabilities of the first ``count`` of some choices:
    the first one gets the rest, 1 minus the ``shares`` of the others.
    """
    every = np.array([max(0.0, 1.0 - sum(shares)), *shares])[:count]
    return np.asarray(every / every.sum())


def draw_tenants(tenants: int, jobs: int, random: np.random.Generator) -> IntArray:
    """The tenant of each job, the k-th in proportion to 1/k; -1 if there are none."""
    if tenants == 0:
        return np.full(jobs, -1)
    share = 1.0 / np.arange(1, tenants + 1)
    return random.choice(tenants, jobs, p=share / share.sum())


# --- durations ------------------------------------------------------------------------------------


class DurationOptions(Protocol):
    """Options that say how many jobs there are and how long they take."""

    @property
    def jobs(self) -> int: ...
    @property
    def durations(self) -> str: ...
    @property
    def median(self) -> float: ...
    @property
    def sigma(self) -> float: ...
    @property
    def shape(self) -> float: ...


def draw_hours(options: DurationOptions, random: np.random.Generator) -> FloatArray:
    """Hours of each job in its fastest pool."""
    if options.durations == "gavel":
        return gavel(options.jobs, random)
    if options.durations == "pareto":
        return pareto(options.jobs, options.median, options.shape, random)
    return lognormal(options.jobs, options.median, options.sigma, random)


def lognormal(count: int, median: float, sigma: float, random: np.random.Generator) -> FloatArray:
    """Lognormal hours; ``sigma`` is the standard deviation of their log."""
    return median * np.exp(sigma * random.standard_normal(count))


def pareto(count: int, median: float, shape: float, random: np.random.Generator) -> FloatArray:
    """Pareto's x_m U^(-1 / shape) hours, with the median asked for."""
    # 1 - U[0, 1) is in (0, 1]
    U = 1.0 - random.random(count)
    return median * (2.0 * U) ** (-1.0 / shape)


def gavel(count: int, random: np.random.Generator) -> FloatArray:
    """Hours of Gavel's generator:
    60 x 10^U seconds with U in [1.5, 3] for 4 jobs of 5, in [3, 4] for the others.

    References
    ----------
    D. Narayanan et al., "Heterogeneity-aware cluster scheduling policies for deep learning
    workloads", OSDI 2020, and the code published with it.
    """
    long = random.random(count) < LONG
    U = np.where(long, random.uniform(3.0, 4.0, count), random.uniform(1.5, 3.0, count))
    return 60.0 * 10.0**U / 3600.0


# --- arrivals -------------------------------------------------------------------------------------


def poisson(count: int, per_hour: float, random: np.random.Generator) -> FloatArray:
    """Arrivals of a Poisson process, seconds,
    the first after an exponential time from 0; shape (count,).
    """
    return np.cumsum(random.exponential(HOUR / per_hour, count), dtype=np.float64)


def even(count: int, per_hour: float) -> FloatArray:
    """Arrivals at equal distances, seconds, the first at 0; shape (count,)."""
    return np.arange(count, dtype=np.float64) * (HOUR / per_hour)


def diurnal(
    count: int,
    per_hour: float,
    amplitude: float,
    peak: float,
    random: np.random.Generator,
) -> FloatArray:
    """Arrivals of a Poisson process whose rate goes up and down within a day,
    seconds; shape (count,).

    The rate is r(t) = r (1 + a cos(2 pi (t - p) / day)). Candidates arrive at the highest rate, r
    (1 + a), and each is kept with probability r(t) / (r (1 + a)) (thinning).

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
    P. Lewis and G. Shedler, "Simulation of nonhomogeneous Poisson processes by thinning", Naval
    Research Logistics 26, 1979.
    """
    found = []
    missing = count
    last = 0.0
    while missing > 0:
        # Twice as many candidates as are missing: at least half of them are kept on average
        candidates = last + np.cumsum(
            random.exponential(HOUR / (per_hour * (1 + amplitude)), 2 * missing + 64)
        )
        rate = 1 + amplitude * np.cos(2 * math.pi * (candidates - peak * HOUR) / DAY)
        found.append(candidates[random.random(len(candidates)) * (1 + amplitude) < rate])
        missing = missing - len(found[-1])
        last = float(candidates[-1])
    return np.concatenate(found)[:count]
