"""What fits have in common: least squares, what they refuse, and how uncertain a fitted law is."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from optsched.arrays import FloatArray
from optsched.errors import InvalidInput
from optsched.instance.documents import SMALLEST, Document
from optsched.instance.reading import key
from optsched.performance.profiles import Profiles

ROBUST = 0.1
"""Scale of soft_l1: log residuals beyond 10 % count linearly."""


class NoOptions(Document):
    """Options of a fit that has none."""


# --- least squares --------------------------------------------------------------------------------


def fit_nonnegative(terms: FloatArray, seconds: FloatArray) -> FloatArray:
    """Coefficients >= 0 of  seconds = terms @ coefficients  with the least squares of relative errors."""
    from scipy.optimize import nnls

    found, _ = nnls(terms / seconds[:, np.newaxis], np.ones(len(seconds)))
    return np.asarray(found, np.float64)


def fit_affine(samples: FloatArray, seconds: FloatArray) -> tuple[float, float]:
    """a, b >= 0 of t = a + b m with the least squares of relative errors.

    Measurements of only one m cannot tell a from b: half of the time is then constant, which is
    AdaptDL's rule.
    """
    if len(np.unique(samples)) == 1:
        half = float(1.0 / np.mean(1.0 / seconds)) / 2
        return half, half / float(samples[0])
    scale = float(np.max(samples))
    terms = np.stack([np.ones(len(samples)), samples / scale], axis=1)
    a, b = fit_nonnegative(terms, seconds)
    return float(a), float(b) / scale


def minimise_squares(
    residuals_and_slopes: Callable[[FloatArray], tuple[FloatArray, FloatArray]],
    start: FloatArray,
    bounds: tuple[Any, Any],
    **options: Any,
) -> tuple[FloatArray, float]:
    """Where the sum of squared residuals is least, and half of that sum: `scipy.optimize.least_squares`.

    Parameters
    ----------
    residuals_and_slopes : callable
        Residuals (E,) of parameters (P,), and their derivatives (E, P).
    start, bounds
        Of the search.
    **options
        Of `scipy.optimize.least_squares`.
    """
    from scipy.optimize import least_squares

    latest: dict[bytes, FloatArray] = {}

    def residuals(z: FloatArray) -> FloatArray:
        residual, slopes = residuals_and_slopes(z)
        # scipy asks for the slopes where it has just asked for the residuals.
        latest.clear()
        latest[z.tobytes()] = slopes
        return residual

    def slopes_of(z: FloatArray) -> FloatArray:
        # The slopes are handed out once, as scipy scales them in place.
        slopes = latest.pop(z.tobytes(), None)
        return residuals_and_slopes(z)[1] if slopes is None else slopes

    found = least_squares(residuals, start, jac=slopes_of, bounds=bounds, **options)
    return np.asarray(found.x, np.float64), float(found.cost)


# --- what is refused ------------------------------------------------------------------------------


def check_some(profiles: Profiles) -> None:
    """Refuse a fit to nothing."""
    if len(profiles) == 0:
        raise InvalidInput("profiles", "no measurements", "at least one to fit a model to")


def check_compute(path: str, seconds: Mapping[str, float]) -> None:
    """Refuse a law whose steps take no time: one of its coefficients, s or s per sample, must be above 0."""
    if sum(seconds.values()) < SMALLEST:
        found = ", ".join(f"{name} {value:g}" for name, value in seconds.items())
        expected = f"one of them at least {SMALLEST:g}, as every step takes some time"
        raise InvalidInput(path, found, expected)


@contextmanager
def within(pair: tuple[str, str]) -> Iterator[None]:
    """Add the workload and the GPU type of a fit to its errors."""
    try:
        yield
    except InvalidInput as error:
        where = f"profiles of {key(pair[0])} on {key(pair[1])}"
        path = f"{where}: {error.path}" if error.path else where
        raise InvalidInput(path, error.found, error.expected, error.file) from None


# --- how uncertain a fitted law is ----------------------------------------------------------------

LEAST_LOG_SD = 0.05
"""No law is trusted more: two measurements of one workload differ by 4 to 6 % in the median (Gavel's two tables)."""
STATED_LOG_SD = 0.25
"""Of a law with as many coefficients as measurements. It goes through all of them, so its residuals say nothing: on
Sia's profiles, laws were off by 20 % in the mean where they had not been measured."""
STATED_ROWS = 1.0
"""Measurements that the stated one counts as."""
MOST_LOG_SD = 10.0
"""Documents hold no more: within a factor of 22,000 either way a prediction is worthless."""
LogSd = Annotated[float, Field(ge=0, le=MOST_LOG_SD, allow_inf_nan=False)]
"""A field of documents."""


def log_sd(residuals: FloatArray, coefficients: float) -> float:
    """Standard deviation of the log of a predicted time.

        sd^2 = (n0 sd0^2 + sum_i e_i^2) / (n0 + max(n - p, 0)),    at least `LEAST_LOG_SD`^2

    of n log residuals e_i of a fit of p coefficients, with what is stated, sd0 = `STATED_LOG_SD`,
    as n0 = `STATED_ROWS` measurements: the mean of a scaled inverse chi-squared prior and the
    residuals by their degrees of freedom. It is sd0 where no degree of freedom is left and tends to
    the root mean square of the residuals with many measurements.

    Parameters
    ----------
    residuals : FloatArray, shape (n,)
    coefficients : float
        p, those that the measurements had to determine; shared ones count in part.
    """
    return of_squares(float(np.sum(residuals**2)), len(residuals), coefficients)


def of_squares(squares: float, rows: float, coefficients: float) -> float:
    """`log_sd` of a sum of squares of ``rows`` residuals."""
    spare = max(rows - coefficients, 0.0)
    variance = (STATED_ROWS * STATED_LOG_SD**2 + squares) / (STATED_ROWS + spare)
    return min(max(math.sqrt(variance), LEAST_LOG_SD), MOST_LOG_SD)
