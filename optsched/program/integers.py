"""Seconds and amounts as integers, for programs that count."""

from __future__ import annotations

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray

ROUNDING = 1e-9
"""Relative; rates are often 1 / duration, and 1 / (1 / p) is not p."""
DECIMALS = 6
MOST_PARTS = 1000
"""Largest denominator of fractions."""
MOST_UNITS = 10_000_000
"""Of the longest time; beyond that exactness is not worth its price."""


def common_unit(seconds: FloatArray) -> float | None:
    """The largest unit of which all these times are whole multiples;
    None where there is none worth having.

    Times with at most `DECIMALS` decimal places have one.
    """
    seconds = seconds[seconds > 0]
    if not len(seconds):
        return 1.0
    for places in range(DECIMALS + 1):
        scaled = seconds * 10.0**places
        whole = np.round(scaled)
        # From here on not every whole number is a float.
        if whole.max() > 2**53:
            return None
        if (
            np.abs(scaled - whole) <= ROUNDING * np.maximum(scaled, 1.0)
        ).all() and whole.min() >= 1:
            unit = int(np.gcd.reduce(whole.astype(np.int64)))
            return unit / 10.0**places if whole.max() / unit <= MOST_UNITS else None
    return None


def round_up(seconds: FloatArray, unit: float) -> IntArray:
    """Whole units that hold these times; what is whole but for rounding stays so."""
    units = seconds / unit
    return np.ceil(units - ROUNDING * np.maximum(np.abs(units), 1.0)).astype(np.int64)


def round_down(seconds: FloatArray, unit: float) -> IntArray:
    """Whole units that fit in these times."""
    units = seconds / unit
    return np.floor(units + ROUNDING * np.maximum(np.abs(units), 1.0)).astype(np.int64)


def amount_unit(amounts: FloatArray) -> float:
    """A unit for amounts of a resource: exact where they have few decimal places or are fractions
    of the largest with a small denominator, such as thirds; else a millionth of the largest.
    """
    unit = common_unit(amounts)
    if unit is not None:
        return unit
    largest = float(amounts.max(initial=0.0))
    for parts in range(1, MOST_PARTS + 1):
        scaled = amounts / largest * parts
        whole = np.round(scaled)
        if (np.abs(scaled - whole) <= ROUNDING).all() and (whole[amounts > 0] >= 1).all():
            return largest / parts
    return largest / 1e6


def step_of(cost: FloatArray, integer: BoolArray) -> float | None:
    """The largest number of which all objective values are multiples, if all columns with a cost
    are integer; else None.
    """
    size = np.abs(cost[cost != 0])
    if not len(size) or not integer[cost != 0].all():
        return None
    # Costs with up to six decimals are whole multiples of a power of ten; their gcd is the step.
    for places in range(7):
        scaled = size * 10.0**places
        whole = np.round(scaled)
        if whole.min() >= 1 and whole.max() < 2**53 and (np.abs(scaled - whole) <= 1e-9).all():
            return float(np.gcd.reduce(whole.astype(np.int64))) / 10.0**places
    return None


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
    return float(np.ceil(bound / step - ROUNDING * max(1.0, abs(bound / step))) * step)


def rounded_bound(bound: float, step: float | None, maximise: bool) -> float:
    """A bound on objectives that are multiples of ``step``; see `rounded_up`."""
    return -rounded_up(-bound, step) if maximise else rounded_up(bound, step)
