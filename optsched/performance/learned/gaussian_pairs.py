"""The ``gaussian-pairs`` model: a Gaussian process over pairs, by features of the jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from optsched.arrays import FloatArray
from optsched.arrays.values import cached_property, replace
from optsched.errors import InvalidInput
from optsched.instance.documents import Count, Document, Finite, Positive, PositiveCount, Tuple
from optsched.performance.files import PERFORMANCE
from optsched.performance.learned.pairs import (
    Estimate,
    LearnedPairs,
    PairDocument,
    PairProfiles,
    Pairs,
    WorkloadFeatures,
    require_pairs,
)

FEWEST = 5
CHUNK = 2048
"""Pairs per block of estimates."""

# --- similarity of two jobs -----------------------------------------------------------------------

FAMILY_START, OWN_START = 1.0, 0.3
LENGTH_START = 2.0


@dataclass(frozen=True)
class JobKernel:
    """The covariance of two of W jobs,
    from their D columns x and the logs of D + 2 hyperparameters (l, u, v):

        k(a, b) = (exp(-1/2 sum_i (x_ai - x_bi)^2 / l_i^2) + u [same family] + v [a = b]) / (1 + u +
        v)

    The columns are the log of the batch and of the rate alone on each GPU type, in units of their
    standard deviation about their mean; an unknown value is put at the mean. Columns without any
    known value are left out. Jobs of unknown family have no family in common.

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
        # A constant column has standard deviation 0; use unit 1.
        spread = np.nanstd(raw, axis=0) if raw.shape[1] else np.zeros(0)
        return cls(raw, features.family, centres, np.where(spread > 1e-9, spread, 1.0))

    @property
    def columns(self) -> int:
        """D, the number of known columns of the jobs."""
        return int(self.raw.shape[1])

    @property
    def size(self) -> int:
        """Number of hyperparameters: a length for each column, u and v."""
        return self.columns + 2

    @property
    def start(self) -> FloatArray:
        """Logs of the hyperparameters at the start of a search."""
        start = [*[LENGTH_START] * self.columns, FAMILY_START, OWN_START]
        return np.log(start)

    @cached_property
    def _squares(self) -> FloatArray:
        x = np.nan_to_num((self.raw - self.centres) / self.scales)
        return (x[:, np.newaxis] - x) ** 2

    @cached_property
    def _same_family(self) -> FloatArray:
        names = np.array(self.family)
        same = ((names[:, np.newaxis] == names) & (names != "")).astype(np.float64)
        np.fill_diagonal(same, 1.0)
        return np.asarray(same, np.float64)

    def matrix(self, parameters: FloatArray) -> FloatArray:
        """k between all jobs, (W, W), for logs of hyperparameters."""
        family, itself = np.exp(parameters[self.columns :])
        total = self._near(parameters) + family * self._same_family + itself * np.eye(len(self.raw))
        return np.asarray(total / (1 + family + itself), np.float64)

    def gradient(self, parameters: FloatArray, weights: FloatArray) -> FloatArray:
        """Derivatives of  sum(weights * k)  by the logs of the hyperparameters, for weights (W, W)."""
        lengths = np.exp(parameters[: self.columns])
        family, itself = np.exp(parameters[self.columns :])
        weights = weights / (1 + family + itself)
        by_length = np.tensordot(weights * self._near(parameters), self._squares, 2) / lengths**2
        at_k = float((weights * self.matrix(parameters)).sum())
        by_family = family * (float((weights * self._same_family).sum()) - at_k)
        by_own = itself * (float(np.trace(weights)) - at_k)
        return np.array([*by_length, by_family, by_own])

    def _near(self, parameters: FloatArray) -> FloatArray:
        inverse_squares = np.exp(-2.0 * parameters[: self.columns])
        return np.exp(-0.5 * self._squares @ inverse_squares)


# --- a process over pairs -------------------------------------------------------------------------

TOGETHER, APART = 1, -1
"""Signs of the two processes: `TOGETHER` is symmetric and `APART` antisymmetric in the two jobs of
a pair.
"""
START = np.log([1.0, 0.1, 0.1, 0.1, 0.01])
"""Logs of the hyperparameters w, p, q, o, e of a process, beside those of its kernel,
at the start of a search.
"""
WIDTH = 5.0
"""Standard deviation of the normal priors on the logs of all hyperparameters,
about the start of the search.
"""
LARGEST_LOG = 20.0
JITTER = 1e-6


@dataclass(frozen=True)
class PairProcess:
    """A process over pairs (a, b)
    on GPU types with the covariance, + for `TOGETHER` and - for `APART`,

        K[(g, a, b), (h, u, v)] = G_gh [ p (k_au + k_bv +- k_av +- k_bu) + q (k_au k_bv +- k_av
        k_bu) + o ]
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

    @cached_property
    def _own(self) -> tuple[float, float, float, float, float]:
        """w, p, q, o and e."""
        w, p, q, o, e = np.exp(self.parameters[self.kernel.size :]).tolist()
        return w, p, q, o if self.sign == TOGETHER else 0.0, e

    @cached_property
    def _k(self) -> FloatArray:
        return self.kernel.matrix(self.parameters[: self.kernel.size])

    @property
    def noise(self) -> float:
        """Variance e of the noise."""
        return self._own[-1]

    def covariance(self, one: Pairs, other: Pairs) -> FloatArray:
        """K between pairs, without noise."""
        _, _, _, o, _ = self._own
        _, main, cross = self._terms(one, other)
        return self._gpus(one, other) * (main + cross + o)

    def variance(self, pairs: Pairs) -> FloatArray:
        """K of pairs with themselves, without noise."""
        _, p, q, o, _ = self._own
        k = self._k
        a = pairs.first
        b = pairs.second
        main = k[a, a] + k[b, b] + 2 * self.sign * k[a, b]
        cross = k[a, a] * k[b, b] + self.sign * k[a, b] ** 2
        return p * main + q * cross + o

    def factor(self, pairs: Pairs) -> FloatArray | None:
        """Lower Cholesky factor of the covariance of measurements;
        None where it is not positive definite.
        """
        covariance = self.covariance(pairs, pairs)
        covariance[np.diag_indices(len(pairs))] += self.noise + JITTER
        try:
            return np.asarray(np.linalg.cholesky(covariance), np.float64)
        except np.linalg.LinAlgError:
            return None

    def gradient(self, pairs: Pairs, weights: FloatArray) -> FloatArray:
        """Derivatives of  sum(weights * (K + e I))  by the logs of the hyperparameters, for symmetric weights."""
        (au, bv, av, bu), main, cross = self._terms(pairs, pairs)
        w, p, q, o, e = self._own
        spread = weights * self._gpus(pairs, pairs)
        other_gpu = weights * (pairs.gpu[:, np.newaxis] != pairs.gpu)
        by_own = [
            float((other_gpu * (main + cross + o)).sum()) * w / (1 + w) ** 2,
            float((spread * main).sum()),
            float((spread * cross).sum()),
            float(spread.sum()) * o,
            float(np.trace(weights)) * e,
        ]
        jobs = np.eye(len(self.kernel.raw))
        first = jobs[pairs.first]
        second = jobs[pairs.second]
        # Chain rule through k: each of its four entries in K, summed up over the pairs of each job.
        by_k = first.T @ (spread * (p + q * bv)) @ first
        by_k += second.T @ (spread * (p + q * au)) @ second
        by_k += self.sign * first.T @ (spread * (p + q * bu)) @ second
        by_k += self.sign * second.T @ (spread * (p + q * av)) @ first
        by_kernel = self.kernel.gradient(self.parameters[: self.kernel.size], by_k)
        return np.concatenate((by_kernel, by_own))

    def _terms(
        self, one: Pairs, other: Pairs
    ) -> tuple[tuple[FloatArray, ...], FloatArray, FloatArray]:
        """k of the four combinations of jobs from two pairs, the term of p, and the term of q."""
        k = self._k
        (_, p, q, _, _) = self._own
        a = k[one.first]
        b = k[one.second]
        au = a[:, other.first]
        av = a[:, other.second]
        bu = b[:, other.first]
        bv = b[:, other.second]
        # Both assignments of the jobs of one pair to those of the other. The sign makes `TOGETHER`
        # symmetric and `APART` antisymmetric.
        main = p * (au + bv + self.sign * (av + bu))
        cross = q * (au * bv + self.sign * av * bu)
        return (au, bv, av, bu), main, cross

    def _gpus(self, one: Pairs, other: Pairs) -> FloatArray:
        w, *_ = self._own
        same = one.gpu[:, np.newaxis] == other.gpu
        return np.where(same, 1.0, w / (1 + w))


def most_likely(
    kernel: JobKernel,
    sign: int,
    pairs: Pairs,
    target: FloatArray,
    iterations: int,
) -> FloatArray:
    """Logs of the hyperparameters that maximise marginal likelihood times prior,
    from one start (L-BFGS-B).
    """
    from scipy.linalg import cho_solve
    from scipy.optimize import minimize

    start = np.concatenate((kernel.start, START))

    def cost(parameters: FloatArray) -> tuple[float, FloatArray]:
        process = PairProcess(kernel, sign, parameters)
        factor = process.factor(pairs)
        # Far from the optimum K may not be positive definite in floating point; a large value makes
        # the search turn back.
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
    found = minimize(
        cost,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=[(-LARGEST_LOG, LARGEST_LOG)] * len(start),
        options={"maxiter": iterations},
    )
    return np.asarray(found.x, np.float64)


# --- the model ------------------------------------------------------------------------------------


class GaussianOptions(Document):
    """Options of the fit: pairs that hyperparameters are found with, and steps of that search."""

    sample: PositiveCount = 400
    iterations: Count = 25
    seed: Count = 0


class GaussianDocument(PairDocument):
    """A fitted `GaussianPairs` model; the hyperparameters are logs."""

    mean: Finite
    together: Tuple[Finite]
    apart: Tuple[Finite]
    scales: Tuple[Positive]
    centres: Tuple[Finite]


@dataclass(frozen=True, eq=False)
class GaussianPairs(LearnedPairs):
    """A pair (a, b) on GPU type g has the log fractions f(a | b) = s + d, f(b | a) = s - d, with

        s_g(a, b) = s_g(b, a)     the slowdown of both together
        d_g(a, b) = -d_g(b, a)    its division between the two

    two independent Gaussian processes, s of mean c (that of the measured pairs) and d of mean 0.
    With a kernel k over jobs (`JobKernel`: batch, rates alone on all GPU types, family, the job
    itself) their covariances are, with the sign
    + for s and - for d,

        K[(g, a, b), (h, u, v)] = G_gh [ p (k_au + k_bv +- k_av +- k_bu) + q (k_au k_bv +- k_av
        k_bu) + o ]
        G_gh = 1 if g = h else w / (1 + w)          o = 0 for d

    p is the variance of effects of single jobs (row and column effects), q that of effects specific
    to the two jobs. The kernel transfers both to similar jobs, and w to other GPU types. A
    measurement has independent noise of variance e in s and in d. The hyperparameters maximise the
    marginal likelihood of the measured pairs (at most ``sample`` of them), with weak normal priors
    on their logs. The estimate is the posterior mean, and ``log_sd`` the root of the posterior
    variance of s and d including the noise of one measurement.

    Because both jobs of a pair are measured, s and d of n pairs are two systems of size n instead
    of one of size 2 n. A fit takes O(n^3), so use ``boosted-pairs`` for more than a few thousand
    pairs.

    Options: ``sample``, ``iterations`` (of the search), ``seed`` (of the sample).

    References
    ----------
    C. E. Rasmussen, C. K. I. Williams, "Gaussian Processes for Machine Learning", MIT Press 2006,
    algorithm 2.1 and section 5.4.1.
    """

    name: ClassVar[str] = "gaussian-pairs"
    Stored = GaussianDocument
    Options = GaussianOptions

    mean: float
    together: FloatArray
    apart: FloatArray
    centres: FloatArray
    scales: FloatArray

    @classmethod
    def fit(cls, profiles: PairProfiles, options: Mapping[str, Any]) -> Self:
        chosen = cls.read_options(options)
        ran = require_pairs(profiles, FEWEST, cls.name)
        kernel = JobKernel.of(profiles.features)
        mean = float(np.log(ran.first * ran.second).mean() / 2)
        hyperparameters = []
        for sign, pairs, target in _parts(ran, mean):
            rows = np.arange(len(pairs))
            if len(rows) > chosen.sample:
                random = np.random.default_rng(chosen.seed)
                # Each step of the search is cubic in the number of pairs, so it uses a sample.
                rows = np.sort(random.choice(rows, chosen.sample, replace=False))
            hyperparameters.append(
                most_likely(kernel, sign, pairs.take(rows), target[rows], chosen.iterations)
            )
        together, apart = hyperparameters
        return cls(profiles, mean, together, apart, kernel.centres, kernel.scales)

    def estimate(self, pairs: Pairs) -> Estimate:
        first, second, sd = (np.empty(len(pairs)) for _ in range(3))
        for start in range(0, len(pairs), CHUNK):
            rows = np.arange(start, min(start + CHUNK, len(pairs)))
            s, s_variance = self._posterior(0, pairs.take(rows))
            d, d_variance = self._posterior(1, pairs.take(rows))
            first[rows] = self.mean + s + d
            second[rows] = self.mean + s - d
            sd[rows] = np.sqrt(s_variance + d_variance)
        return Estimate(first, second, sd)

    def _posterior(self, part: int, new: Pairs) -> tuple[FloatArray, FloatArray]:
        """Mean and variance, with the noise of a measurement, of s (part 0)
        or d (part 1) of new pairs.
        """
        from scipy.linalg import solve_triangular

        process, pairs, factor, weights = self._solved[part]
        if len(pairs) == 0:
            return np.zeros(len(new)), process.variance(new) + process.noise
        between = process.covariance(new, pairs)
        half = solve_triangular(factor, between.T, lower=True, check_finite=False)
        variance = np.maximum(process.variance(new) - (half**2).sum(axis=0), 0.0)
        return between @ weights, variance + process.noise

    @cached_property
    def _solved(self) -> list[tuple[PairProcess, Pairs, FloatArray, FloatArray]]:
        """For s and d: the process, measured pairs, Cholesky factor,
        and its inverse times the measurements.
        """
        from scipy.linalg import cho_solve

        kernel = JobKernel.of(self.features)
        kernel = replace(kernel, centres=self.centres, scales=self.scales)
        solved = []
        for sign, pairs, target in _parts(self.profiles.ran, self.mean):
            parameters = self.together if sign == TOGETHER else self.apart
            process = PairProcess(kernel, sign, parameters)
            factor = process.factor(pairs)
            if factor is None:
                found = "hyperparameters without a covariance"
                raise InvalidInput("performance.pairs", found, "those of a fit")
            solved.append((process, pairs, factor, cho_solve((factor, True), target)))
        return solved

    @classmethod
    def learned_of(cls, stored: Any, features: WorkloadFeatures) -> dict[str, Any]:
        learned = super().learned_of(stored, features)
        kernel = JobKernel.of(features)
        sizes = dict.fromkeys(("centres", "scales"), kernel.columns)
        sizes |= dict.fromkeys(("together", "apart"), kernel.size + len(START))
        for field, size in sizes.items():
            if len(learned[field]) != size:
                found = f"{len(learned[field])} values"
                raise InvalidInput(f"{PERFORMANCE}.{field}", found, f"{size} for this model")
        for field in ("together", "apart"):
            far = np.flatnonzero(np.abs(learned[field]) > LARGEST_LOG)
            if len(far):
                where = f"{PERFORMANCE}.{field}[{far[0]}]"
                found = f"{learned[field][far[0]]:g}"
                raise InvalidInput(where, found, f"a log within +-{LARGEST_LOG:g}")
        return learned


def _parts(ran: PairProfiles, mean: float) -> list[tuple[int, Pairs, FloatArray]]:
    """(sign, pairs, values) of s - c and of d."""
    first = np.log(ran.first)
    second = np.log(ran.second)
    # d of a job beside itself is 0 by definition, so it is no measurement.
    apart = np.flatnonzero(ran.pairs.first != ran.pairs.second)
    return [
        (TOGETHER, ran.pairs, (first + second) / 2 - mean),
        (APART, ran.pairs.take(apart), (first - second)[apart] / 2),
    ]
