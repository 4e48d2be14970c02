"""How uncertain a fitted law is: the standard deviation of log times that it states, from what it leaves of a fit."""

from __future__ import annotations

import math
from typing import Annotated

import numpy as np
from pydantic import Field

from optsched.arrays import FloatArray

LEAST_LOG_SD = 0.05
"""No law is trusted more: two measurements of one workload differ by 4 to 6 % in the median (Gavel's two tables)."""
STATED_LOG_SD = 0.25
"""Of a law with as many coefficients as measurements, which goes through all of them and has learnt nothing of its own
errors: on Sia's profiles, laws were off by 20 % in the mean where they had not been measured."""
STATED_ROWS = 1.0
"""Measurements that the stated one counts as."""
MOST_LOG_SD = 10.0
"""Documents hold no more: within a factor of 22,000 either way nothing is said."""
LogSd = Annotated[float, Field(ge=0, le=MOST_LOG_SD, allow_inf_nan=False)]
"""A field of documents."""


def log_sd(residuals: FloatArray, coefficients: float) -> float:
    """Standard deviation of the log of a time that a law tells.

        sd^2 = (n0 sd0^2 + sum_i e_i^2) / (n0 + max(n - p, 0)),    at least `LEAST_LOG_SD`^2

    of n log residuals e_i of a fit of p coefficients, with what is stated, sd0 = `STATED_LOG_SD`, as n0 = `STATED_ROWS`
    measurements: the mean of a scaled inverse chi-squared prior and the residuals by their degrees of freedom. It is
    sd0 where nothing is left over and tends to the root mean square of the residuals with many measurements.

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
