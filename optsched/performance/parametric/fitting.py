"""Common parts of fitted laws: pairs (workload, GPU type), least squares, and uncertainty."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from optsched.arrays import FloatArray, IntArray, group_rows
from optsched.errors import InvalidInput
from optsched.instance.documents import SMALLEST, refused
from optsched.instance.reading import key
from optsched.performance.profiles import Profiles
from optsched.performance.ways import Ways, numbered, rows_among

# --- pairs (workload, GPU type) -------------------------------------------------------------------


LEVELS = 3
"""Number of levels: one GPU, several GPUs of one node, several nodes."""


def level_of(gpus: IntArray, nodes: IntArray) -> IntArray:
    """0 on one GPU, 1 on several of a node, 2 on several nodes."""
    return np.add(gpus > 1, nodes > 1, dtype=np.int64)


class KnownPairs:
    """The pairs (workload, GPU type) that a model knows, numbered.

    Attributes
    ----------
    names : tuple of (str, str)
        All different.
    workloads, gpu_types : dict of str to int
        Row of each name, in order of first appearance.
    """

    def __init__(self, names: Sequence[tuple[str, str]]) -> None:
        self.names = tuple(names)
        self.workloads = numbered(workload for workload, _ in self.names)
        self.gpu_types = numbered(gpu for _, gpu in self.names)
        # Cache of the last names and their table, because an instance asks many times with the same
        # names.
        self._latest: tuple[Any, Any] = (None, None)
        self._table = np.zeros((0, 0), np.int64)

    def __len__(self) -> int:
        return len(self.names)

    def finder(self, ways: Ways) -> Callable[[slice], IntArray]:
        """A function of rows of the ways:
        the number of the pair of each, ``len(self)`` for unknown pairs.
        """
        table = self._table_of(ways.workloads, ways.gpu_types)
        values = table.ravel()
        width = table.shape[1]

        def find(rows: slice) -> IntArray:
            # A row of -1 (no workload or no GPU type) wraps around to the last row, or to the last
            # column of the previous row. Both are marked as unknown.
            place = ways.workload[rows] * width + ways.gpu[rows]
            return np.asarray(values.take(place, mode="wrap"), np.int64)

        return find

    def find(self, ways: Ways) -> IntArray:
        """Number of the pair of each way, ``len(self)`` for unknown pairs."""
        return self.finder(ways)(slice(None))

    def _table_of(self, workloads: tuple[str, ...], gpu_types: tuple[str, ...]) -> IntArray:
        """Number of each pair of names; the last row and the last column are for no name."""
        known_workloads, known_types = self._latest
        if known_workloads is workloads and known_types is gpu_types:
            return self._table
        shape = (len(self.workloads) + 1, len(self.gpu_types) + 1)
        number = np.full(shape, len(self), np.int64)
        for row, (workload, gpu) in enumerate(self.names):
            number[self.workloads[workload], self.gpu_types[gpu]] = row
        rows = rows_among(workloads, self.workloads, len(self.workloads))
        columns = rows_among(gpu_types, self.gpu_types, len(self.gpu_types))
        self._table = number[rows[:, np.newaxis], columns]
        self._latest = (workloads, gpu_types)
        return self._table


def columns(rows: Sequence[Sequence[float]], width: int, each: int = 1) -> FloatArray:
    """Coefficients of R pairs by column, shape (width, R + each).

    The last ``each`` entries of a column are NaN, for pairs that are not known.
    """
    unknown = [[np.nan] * width] * each
    table = np.array([*rows, *unknown], np.float64)
    return np.ascontiguousarray(table.T)


def rows_by_pair(ways: Ways) -> dict[tuple[str, str], IntArray]:
    """Rows of each pair (workload, GPU type) of names, in order of first appearance."""
    named = np.flatnonzero((ways.workload >= 0) & (ways.gpu >= 0))
    groups = group_rows([ways.workload[named], ways.gpu[named]], len(named))
    order = named[np.argsort(groups.inverse, kind="stable")]
    parts = np.split(order, np.cumsum(groups.count)[:-1]) if len(groups) else []
    pairs = {}
    for rows in parts:
        workload = ways.workload[rows[0]]
        gpu = ways.gpu[rows[0]]
        pairs[ways.workloads[workload], ways.gpu_types[gpu]] = rows
    return pairs


def split(profiles: Profiles) -> dict[tuple[str, str], Profiles]:
    """Measurements of each pair (workload, GPU type), in order of first appearance."""
    return {pair: profiles.take(rows) for pair, rows in rows_by_pair(profiles.ways).items()}


ByNames = dict[str, dict[str, Any]]
"""Values by workload, then GPU type, as documents have them."""


def nested(by_pair: Mapping[tuple[str, str], Any]) -> ByNames:
    """Values of pairs (workload, GPU type) as nested mappings, for a document."""
    document: ByNames = {}
    for (workload, gpu), value in by_pair.items():
        document.setdefault(workload, {})[gpu] = value
    return document


def by_names(ways: Ways, values: Sequence[Any]) -> ByNames:
    """Values of ways as nested lists by pair, for a document."""
    pairs = rows_by_pair(ways).items()
    return nested({pair: [values[row] for row in rows.tolist()] for pair, rows in pairs})


def flat(of_document: Mapping[str, Mapping[str, Any]]) -> dict[tuple[str, str], Any]:
    """Values of a document by pair (workload, GPU type)."""
    return {
        (workload, gpu): value
        for workload, by_gpu in of_document.items()
        for gpu, value in by_gpu.items()
    }


ROBUST = 0.1
"""Scale of soft_l1: log residuals beyond 10 % count linearly."""


# --- least squares --------------------------------------------------------------------------------


def fit_nonnegative(terms: FloatArray, seconds: FloatArray) -> FloatArray:
    """Coefficients >= 0 of  seconds = terms @ coefficients  with the least squares of relative errors."""
    from scipy.optimize import nnls

    found, _ = nnls(terms / seconds[:, np.newaxis], np.ones(len(seconds)))
    return np.asarray(found, np.float64)


def fit_affine(samples: FloatArray, seconds: FloatArray) -> tuple[float, float]:
    """a, b >= 0 of t = a + b m with the least squares of relative errors.

    With only one m, a and b cannot be distinguished; then half of the time is constant, as in
    AdaptDL.
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
    """The parameters with the least sum of squared residuals, and half of that sum:
    `scipy.optimize.least_squares`.

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
        # scipy asks for derivatives at the point where it has just asked for residuals, so both are
        # cached.
        latest.clear()
        latest[z.tobytes()] = slopes
        return residual

    def slopes_of(z: FloatArray) -> FloatArray:
        # Return the slopes only once, because scipy scales them in place.
        slopes = latest.pop(z.tobytes(), None)
        return residuals_and_slopes(z)[1] if slopes is None else slopes

    found = least_squares(residuals, start, jac=slopes_of, bounds=bounds, **options)
    return np.asarray(found.x, np.float64), float(found.cost)


# --- checks ------------------------------------------------------------------------------


def check_compute(**seconds: float) -> None:
    """Refuse a law whose steps take no time: one coefficient must be positive."""
    if sum(seconds.values()) < SMALLEST:
        found = ", ".join(f"{name} {value:g}" for name, value in seconds.items())
        raise refused(found, f"one of them at least {SMALLEST:g}, as every step takes some time")


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
"""Lower bound on log_sd: two measurements of one workload differ by 4 to 6 % in the median (Gavel's
two tables).
"""
STATED_LOG_SD = 0.25
"""Prior log_sd of a law. With as many coefficients as measurements, the law fits them exactly, so
its residuals do not show the uncertainty. On Sia's profiles the mean error of laws on unmeasured
ways was 20 %.
"""
STATED_ROWS = 1.0
"""Weight of the prior log_sd, as a number of measurements."""
MOST_LOG_SD = 10.0
"""Largest log_sd in documents, a factor of 22,000 either way."""
LogSd = Annotated[float, Field(ge=0, le=MOST_LOG_SD, allow_inf_nan=False)]
"""A field of documents."""


def log_sd(residuals: FloatArray, coefficients: float) -> float:
    """Standard deviation of the log of a predicted time.

        sd^2 = (n0 sd0^2 + sum_i e_i^2) / (n0 + max(n - p, 0)),    at least `LEAST_LOG_SD`^2

    for n log residuals e_i of a fit with p coefficients. The prior sd0 = `STATED_LOG_SD` counts as
    n0 = `STATED_ROWS` measurements (a scaled inverse chi-squared prior combined with the residuals
    by their degrees of freedom). The result is sd0 if no degree of freedom is left, and tends to
    the root mean square of the residuals with many measurements.

    Parameters
    ----------
    residuals : FloatArray, shape (n,)
    coefficients : float
        p, the number of coefficients that the measurements determined; shared ones count in part.
    """
    return log_sd_of_squares(float(np.sum(residuals**2)), len(residuals), coefficients)


def log_sd_of_squares(squares: float, rows: float, coefficients: float) -> float:
    """`log_sd` of a sum of squares of ``rows`` residuals."""
    spare = max(rows - coefficients, 0.0)
    variance = (STATED_ROWS * STATED_LOG_SD**2 + squares) / (STATED_ROWS + spare)
    return min(max(math.sqrt(variance), LEAST_LOG_SD), MOST_LOG_SD)
