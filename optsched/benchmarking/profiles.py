"""Performance profiles: on what share of the problems a method is within a factor of the best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optsched.arrays import FloatArray
from optsched.benchmarking.results import Results

AT_BEST = 1e-6
"""Gap up to which an objective counts as the best known one."""
FLOOR = 1e-3
"""Seconds below which times are taken to be equal: clocks and caches tell nothing there."""


@dataclass(frozen=True)
class PerformanceProfile:
    """Ratios to the best, method by method.

    rho_s(tau) = |{p : r_ps <= tau}| / |P|, where r_ps is the value of method s on problem p over
    the least value of any method on p. A problem that a method has not solved has an infinite ratio
    for it and still counts in |P|; so does one that no method has solved.

    Attributes
    ----------
    problems : int
        |P|.
    ratios : mapping of method -> FloatArray
        Finite ratios, ascending.

    References
    ----------
    Dolan and Moré (2002), Benchmarking optimization software with performance profiles.
    """

    problems: int
    ratios: Mapping[str, FloatArray]

    def share(self, method: str, factor: float) -> float:
        """rho of a method at a factor."""
        return float(np.searchsorted(self.ratios[method], factor, side="right")) / self.problems

    @property
    def largest(self) -> float:
        """The largest finite ratio; 1 if there is none."""
        return max(
            (float(ratios[-1]) for ratios in self.ratios.values() if len(ratios)), default=1.0
        )


def profile_of(
    values: Sequence[Mapping[Any, float]], names: Sequence[str], problems: Sequence[Any]
) -> PerformanceProfile:
    """The profile of positive values by problem, one mapping for each method;
    what is missing is infinite.
    """
    table = np.array(
        [[found.get(problem, np.inf) for found in values] for problem in problems], np.float64
    )
    table = table.reshape(len(problems), len(values))
    best = table.min(axis=1, initial=np.inf, keepdims=True)
    # inf / inf, which is NaN, where nobody solved it.
    with np.errstate(invalid="ignore"):
        return _profile(table / best, names)


def _profile(ratios: FloatArray, names: Sequence[str]) -> PerformanceProfile:
    """The profile of ratios, shape (problems, methods)."""
    finite = {
        name: np.sort(column[np.isfinite(column)])
        for name, column in zip(names, ratios.T, strict=True)
    }
    return PerformanceProfile(len(ratios), finite)


def time_profile(results: Results) -> PerformanceProfile | None:
    """Of the times of settled tasks; None where rows have no times."""
    column = results.time_column
    if column is None:
        return None
    values = []
    for method in results.methods:
        found = results.values(column, method, settled=True)
        values.append({problem: max(FLOOR, value) for problem, value in found.items()})
    return profile_of(values, _names(results), results.problems)


def gap_profile(results: Results) -> PerformanceProfile | None:
    """Of 1 + gap to the best known objective; None where no row has such a gap.

    Only problems with a best known objective count. A gap up to `AT_BEST`, or below 0, counts as
    none.
    """
    gaps = [results.values("gap_to_best", method, settled=False) for method in results.methods]
    problems = [problem for problem in results.problems if any(problem in found for found in gaps)]
    if not problems:
        return None
    table = np.array([[found.get(problem, np.inf) for found in gaps] for problem in problems])
    return _profile(1 + np.where(table <= AT_BEST, 0.0, table), _names(results))


def _names(results: Results) -> list[str]:
    return [results.method_name(method) for method in results.methods]
