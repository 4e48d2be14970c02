"""How alike two jobs are, from what is known of each of them alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from optsched.arrays import FloatArray
from optsched.performance.learned.pairs import WorkloadFeatures

FAMILY_START, OWN_START = 1.0, 0.3
LENGTH_START = 2.0


@dataclass(frozen=True)
class JobKernel:
    """The covariance of two of W jobs, from their D columns x and the logs of D + 2 hyperparameters (l, u, v):

        k(a, b) = (exp(-1/2 sum_i (x_ai - x_bi)^2 / l_i^2) + u [same family] + v [a = b]) / (1 + u + v)

    The columns are the log of the batch and of the rate alone on each GPU type, in units of their standard deviation
    about their mean; what is unknown stands at the mean. Columns that nothing is known of are left out. Jobs of unknown
    family have no family in common.

    Attributes
    ----------
    raw : FloatArray, shape (W, D)
        NaN where unknown.
    family : tuple of str
    centres, scales : FloatArray, shape (D,)
    """

    raw: FloatArray
    family: tuple[str, ...]
    centres: FloatArray
    scales: FloatArray

    @classmethod
    def of(cls, features: WorkloadFeatures) -> JobKernel:
        """The kernel of the jobs of these features."""
        raw = np.log(np.column_stack((features.batch, features.isolated)))
        raw = raw[:, np.isfinite(raw).any(axis=0)]
        centres = np.nanmean(raw, axis=0) if raw.shape[1] else np.zeros(0)
        spread = np.nanstd(raw, axis=0) if raw.shape[1] else np.zeros(0)
        return cls(raw, features.family, centres, np.where(spread > 1e-9, spread, 1.0))

    def scaled(self, centres: FloatArray, scales: FloatArray) -> JobKernel:
        """The kernel with the centres and scales of a fit."""
        return replace(self, centres=centres, scales=scales)

    @property
    def columns(self) -> int:
        """D."""
        return int(self.raw.shape[1])

    @property
    def size(self) -> int:
        """How many hyperparameters there are."""
        return self.columns + 2

    @property
    def start(self) -> FloatArray:
        """Logs of hyperparameters that a search begins with."""
        start: FloatArray = np.log(
            np.array([*[LENGTH_START] * self.columns, FAMILY_START, OWN_START])
        )
        return start

    @cached_property
    def _squares(self) -> FloatArray:
        x = np.nan_to_num((self.raw - self.centres) / self.scales)
        squares: FloatArray = (x[:, np.newaxis] - x) ** 2
        return squares

    @cached_property
    def _same_family(self) -> FloatArray:
        names = np.array(self.family)
        same: FloatArray = ((names[:, np.newaxis] == names) & (names != "")).astype(np.float64)
        np.fill_diagonal(same, 1.0)
        return same

    def matrix(self, parameters: FloatArray) -> FloatArray:
        """k between all jobs, (W, W), for logs of hyperparameters."""
        family, own = np.exp(parameters[self.columns :])
        matrix: FloatArray = (
            self._near(parameters) + family * self._same_family + own * np.eye(len(self.raw))
        ) / (1 + family + own)
        return matrix

    def gradient(self, parameters: FloatArray, weights: FloatArray) -> FloatArray:
        """Derivatives of  sum(weights * k)  by the logs of the hyperparameters, for weights (W, W)."""
        lengths, (family, own) = (
            np.exp(parameters[: self.columns]),
            np.exp(parameters[self.columns :]),
        )
        weights = weights / (1 + family + own)
        by_length = np.tensordot(weights * self._near(parameters), self._squares, 2) / lengths**2
        at_k = float((weights * self.matrix(parameters)).sum())
        by_family = family * (float((weights * self._same_family).sum()) - at_k)
        return np.array([*by_length, by_family, own * (float(np.trace(weights)) - at_k)])

    def _near(self, parameters: FloatArray) -> FloatArray:
        near: FloatArray = np.exp(-0.5 * self._squares @ np.exp(-2.0 * parameters[: self.columns]))
        return near
