"""Status of the best solution, given a bound."""

from __future__ import annotations

from optsched.solution import Status

CLOSED = 1e-9
"""Relative gap between a solution and its bound that counts as rounding."""


def status_of(objective: float | None, bound: float, gap: float | None) -> Status:
    """The status of the best solution: optimal if it is within the gap of its bound.

    Parameters
    ----------
    objective : float or None
        None: there is no solution.
    bound : float
    gap : float or None
        The relative gap that counts as 0; None: `CLOSED`.
    """
    if objective is None:
        return Status.LIMIT
    allowed = max(CLOSED, gap or 0.0) * max(1.0, abs(objective))
    return Status.OPTIMAL if objective - bound <= allowed else Status.FEASIBLE
