"""Gaussian processes over pairs of jobs: covariances, and hyperparameters by their marginal likelihood."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optsched.arrays import FloatArray
from optsched.performance.learned.job_kernel import JobKernel
from optsched.performance.learned.pairs import Pairs

TOGETHER, APART = 1, -1
"""Signs of the processes that stay, and that change sign, when the jobs of a pair are exchanged."""
OWN = 5
"""Hyperparameters that a process has beside those of its job kernel: w, p, q, o, e."""
START = np.log([1.0, 0.1, 0.1, 0.1, 0.01])
"""Where the search for them begins, as logs."""
WIDTH = 5.0
"""Standard deviation of the normal priors on the logs of all hyperparameters, about where the search begins."""
LARGEST_LOG = 20.0
JITTER = 1e-6


@dataclass(frozen=True)
class PairProcess:
    """A process over pairs (a, b) on GPU types with the covariance, + for `TOGETHER` and - for `APART`,

        K[(g, a, b), (h, u, v)] = G_gh [ p (k_au + k_bv +- k_av +- k_bu) + q (k_au k_bv +- k_av k_bu) + o ]
        G_gh = 1 if g = h else w / (1 + w)                                  o = 0 for `APART`

    and a variance e of the noise of a measurement.

    Attributes
    ----------
    kernel : JobKernel
    sign : int
    parameters : FloatArray
        Logs of the hyperparameters of the kernel, then of w, p, q, o, e.
    """

    kernel: JobKernel
    sign: int
    parameters: FloatArray

    @property
    def noise(self) -> float:
        """Variance e of the noise."""
        return float(np.exp(self.parameters[-1]))

    def covariance(self, one: Pairs, other: Pairs) -> FloatArray:
        """K between pairs, without noise."""
        _, main, cross, offset = self._terms(one, other)
        covariance: FloatArray = self._gpus(one, other) * (main + cross + offset)
        return covariance

    def variance(self, pairs: Pairs) -> FloatArray:
        """K of pairs with themselves, without noise."""
        k = self.kernel.matrix(self.parameters[: self.kernel.size])
        _, main, cross, offset, _ = np.exp(self.parameters[self.kernel.size :])
        aa, bb, ab = (
            k[pairs.first, pairs.first],
            k[pairs.second, pairs.second],
            k[pairs.first, pairs.second],
        )
        variance: FloatArray = main * (aa + bb + 2 * self.sign * ab) + cross * (
            aa * bb + self.sign * ab**2
        )
        return variance + (offset if self.sign == TOGETHER else 0.0)

    def factor(self, pairs: Pairs) -> FloatArray | None:
        """Lower Cholesky factor of the covariance of measurements; None where it is not positive definite."""
        covariance = self.covariance(pairs, pairs)
        covariance[np.diag_indices(len(pairs))] += self.noise + JITTER
        try:
            return np.asarray(np.linalg.cholesky(covariance), np.float64)
        except np.linalg.LinAlgError:
            return None

    def gradient(self, pairs: Pairs, weights: FloatArray) -> FloatArray:
        """Derivatives of  sum(weights * (K + e I))  by the logs of the hyperparameters, for symmetric weights."""
        (au, bv, av, bu), main, cross, offset = self._terms(pairs, pairs)
        shared, p, q, _, noise = np.exp(self.parameters[self.kernel.size :])
        spread = weights * self._gpus(pairs, pairs)
        apart = weights * (pairs.gpu[:, np.newaxis] != pairs.gpu)
        by_own = [
            float((apart * (main + cross + offset)).sum()) * shared / (1 + shared) ** 2,
            float((spread * main).sum()),
            float((spread * cross).sum()),
            float(spread.sum()) * offset,
            float(np.trace(weights)) * noise,
        ]
        count = len(self.kernel.raw)
        first, second = np.eye(count)[pairs.first], np.eye(count)[pairs.second]
        by_k = (
            first.T @ (spread * (p + q * bv)) @ first + second.T @ (spread * (p + q * au)) @ second
        )
        by_k += self.sign * first.T @ (spread * (p + q * bu)) @ second
        by_k += self.sign * second.T @ (spread * (p + q * av)) @ first
        return np.concatenate(
            (self.kernel.gradient(self.parameters[: self.kernel.size], by_k), by_own)
        )

    def _terms(
        self, one: Pairs, other: Pairs
    ) -> tuple[tuple[FloatArray, ...], FloatArray, FloatArray, float]:
        """(k_au, k_bv, k_av, k_bu), p (...), q (...), o."""
        k = self.kernel.matrix(self.parameters[: self.kernel.size])
        _, p, q, offset, _ = np.exp(self.parameters[self.kernel.size :])
        au, bv = k[one.first][:, other.first], k[one.second][:, other.second]
        av, bu = k[one.first][:, other.second], k[one.second][:, other.first]
        main, cross = p * (au + bv + self.sign * (av + bu)), q * (au * bv + self.sign * av * bu)
        return (au, bv, av, bu), main, cross, float(offset) if self.sign == TOGETHER else 0.0

    def _gpus(self, one: Pairs, other: Pairs) -> FloatArray:
        shared = np.exp(self.parameters[self.kernel.size])
        return np.where(one.gpu[:, np.newaxis] == other.gpu, 1.0, shared / (1 + shared))


def most_likely(
    kernel: JobKernel, sign: int, pairs: Pairs, target: FloatArray, iterations: int
) -> FloatArray:
    """Logs of the hyperparameters that maximise marginal likelihood times prior, from one start (L-BFGS-B)."""
    from scipy.linalg import cho_solve
    from scipy.optimize import minimize

    start = np.concatenate((kernel.start, START))

    def cost(parameters: FloatArray) -> tuple[float, FloatArray]:
        process = PairProcess(kernel, sign, parameters)
        factor = process.factor(pairs)
        if factor is None:
            return 1e10, np.zeros(len(parameters))
        weights = cho_solve((factor, True), target, check_finite=False)
        inverse = cho_solve((factor, True), np.eye(len(pairs)), check_finite=False)
        away = (parameters - start) / WIDTH
        value = 0.5 * target @ weights + np.log(np.diag(factor)).sum() + 0.5 * away @ away
        slope = 0.5 * process.gradient(pairs, inverse - np.outer(weights, weights)) + away / WIDTH
        return float(value), slope

    if len(pairs) == 0:
        return start
    bounds = [(-LARGEST_LOG, LARGEST_LOG)] * len(start)
    found = minimize(
        cost, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": iterations}
    )
    return np.asarray(found.x, np.float64)
