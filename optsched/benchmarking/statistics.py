"""Means with intervals, shifted geometric means, paired tests.
None of them takes a missing value for a number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from optsched.arrays import FloatArray
from optsched.errors import InvalidArgument

LEVEL = 0.95
RESAMPLES = 2000
INTERVALS = ("bootstrap", "t")
# Values that differ by less, relative, differ by the rounding of what they were computed from.
ROUNDING = 1e-12


@dataclass(frozen=True)
class Interval:
    """A mean, and where that of all such values is believed to be;
    no limits below two values.
    """

    mean: float | None
    low: float | None = None
    high: float | None = None


def mean_interval(values: Sequence[float], method: str = "bootstrap", seed: int = 0) -> Interval:
    """The mean with its 95 % interval.

    Parameters
    ----------
    values : sequence of float
        Those that exist.
    method : str
        ``bootstrap``: the middle 95 % of the means of 2,000 seeded resamples, which asks for no
        distribution; ``t``: Student's, for values that are nearly normal.
    seed : int
        Of the resamples.
    """
    if method not in INTERVALS:
        raise InvalidArgument("interval", repr(method), f"one of {', '.join(INTERVALS)}")
    array = np.asarray(values, np.float64)
    if len(array) == 0:
        return Interval(None)
    mean = float(array.mean())
    if len(array) == 1:
        return Interval(mean)
    if method == "t":
        from scipy import stats

        quantile = stats.t.ppf((1 + LEVEL) / 2, len(array) - 1)
        half = float(quantile * array.std(ddof=1) / np.sqrt(len(array)))
        return Interval(mean, mean - half, mean + half)
    random = np.random.default_rng(seed)
    # One by one: all resamples at once would be a table of 2,000 times the values.
    means = np.array(
        [array[random.integers(0, len(array), len(array))].mean() for _ in range(RESAMPLES)]
    )
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(mean, float(low), float(high))


def shifted_geometric_mean(values: Sequence[float], shift: float = 1.0) -> float | None:
    """exp(mean(log(v + shift))) - shift, in which small values count little; None of nothing.

    References
    ----------
    Achterberg (2007), Constraint Integer Programming, appendix A.3.
    """
    array = np.asarray(values, np.float64)
    if len(array) == 0:
        return None
    return float(np.exp(np.log(array + shift).mean()) - shift)


@dataclass(frozen=True)
class Paired:
    """Two methods on the problems that both have a value of.

    Attributes
    ----------
    n : int
        Problems.
    estimate, low, high : float or None
        Geometric mean of the ratios first / second, or mean of the differences first - second, with
        its interval.
    less, more, equal : int
        Problems on which the first has the smaller value, the larger, the same (to `ROUNDING`).
    p : float or None
        Wilcoxon's signed-rank test, two-sided, of the log ratios or differences that are not 0;
        None if all are, and of a single problem, which says nothing of chance.
    """

    n: int
    estimate: float | None
    low: float | None
    high: float | None
    less: int
    more: int
    equal: int
    p: float | None


def paired(
    first: Sequence[float],
    second: Sequence[float],
    *,
    ratio: bool,
    method: str = "bootstrap",
    seed: int = 0,
) -> Paired:
    """Compare values problem by problem: by ratios of positive values, or by differences."""
    a, b = np.asarray(first, np.float64), np.asarray(second, np.float64)
    if a.shape != b.shape:
        raise InvalidArgument("pairs", f"{len(a)} and {len(b)} values", "as many of both")
    # Else the test would rank noise, and a table would show it
    a = np.where(np.abs(a - b) <= ROUNDING * np.maximum(np.abs(a), np.abs(b)), b, a)
    # Means and tests of ratios are those of their logarithms, so that x / y and y / x weigh alike.
    difference = np.log(a) - np.log(b) if ratio else a - b
    interval = mean_interval(difference.tolist(), method, seed)

    def on_scale(value: float | None) -> float | None:
        return value if value is None or not ratio else float(np.exp(value))

    return Paired(
        len(a),
        on_scale(interval.mean),
        on_scale(interval.low),
        on_scale(interval.high),
        int((a < b).sum()),
        int((a > b).sum()),
        int((a == b).sum()),
        signed_rank(difference),
    )


def signed_rank(difference: FloatArray) -> float | None:
    """The p value of Wilcoxon's signed-rank test;
    zeros are left out, None where nothing else is there, and for fewer than two differences.
    """
    from scipy import stats

    if len(difference) < 2:
        return None
    rest = difference[difference != 0]
    return float(stats.wilcoxon(rest).pvalue) if len(rest) else None


def holm(values: Sequence[float | None]) -> list[float | None]:
    """P values adjusted for their number (Holm 1979):
    the k-th smallest of m times m - k + 1, never decreasing.
    """
    known = sorted((value, place) for place, value in enumerate(values) if value is not None)
    adjusted: list[float | None] = [None] * len(values)
    least = 0.0
    for rank, (value, place) in enumerate(known):
        # Never below the adjusted value of a smaller p, and never above 1.
        least = min(1.0, max(least, value * (len(known) - rank)))
        adjusted[place] = least
    return adjusted
