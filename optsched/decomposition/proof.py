"""What a bound proves: rounded to what objectives can be, and compared with the best solution."""

from __future__ import annotations

import numpy as np

from optsched.solution import Status

CLOSED = 1e-9
"""Relative gap between a solution and its bound that is rounding."""


def rounded_up(bound: float, step: float | None) -> float:
    """The least multiple of ``step`` that is not below the bound, but for rounding errors.

    Parameters
    ----------
    bound : float
    step : float or None
        None: objectives may be any number.
    """
    if step is None or not np.isfinite(bound):
        return bound
    return float(np.ceil(bound / step - CLOSED * max(1.0, abs(bound / step))) * step)


def status_of(objective: float | None, bound: float, gap: float | None) -> Status:
    """The status of the best solution: optimal if it is within the gap of its bound.

    Parameters
    ----------
    objective : float or None
        None: there is no solution.
    bound : float
    gap : float or None
        The relative gap that counts as none, if one was asked for.
    """
    if objective is None:
        return Status.LIMIT
    allowed = max(CLOSED, gap or 0.0) * max(1.0, abs(objective))
    return Status.OPTIMAL if objective - bound <= allowed else Status.FEASIBLE
