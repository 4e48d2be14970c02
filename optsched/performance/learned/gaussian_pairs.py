"""The ``gaussian-pairs`` model: a Gaussian process over pairs, from what is known of each job and of its likes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from optsched.arrays import FloatArray
from optsched.errors import InvalidInput
from optsched.instance.documents import Count, Document, Finite, Positive, PositiveCount, Tuple
from optsched.instance.reading import validate
from optsched.performance.learned.job_kernel import JobKernel
from optsched.performance.learned.measured_pairs import (
    Estimate,
    LearnedPairs,
    PairDocument,
    refuse_few,
)
from optsched.performance.learned.pair_process import (
    APART,
    LARGEST_LOG,
    OWN,
    TOGETHER,
    PairProcess,
    most_likely,
)
from optsched.performance.learned.pairs import PairProfiles, Pairs

FEWEST = 5
CHUNK = 2048
"""Pairs that are estimated at a time."""


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


class GaussianPairs(LearnedPairs):
    """A pair (a, b) on GPU type g has the log fractions f(a | b) = s + d, f(b | a) = s - d, with

        s_g(a, b) = s_g(b, a)     how much both are slowed together
        d_g(a, b) = -d_g(b, a)    who bears it

    two independent Gaussian processes, s of mean c (that of the measured pairs) and d of mean 0. With a kernel k over
    jobs (`JobKernel`: batch, rates alone on all GPU types, family, the job itself) their covariances are, with the sign
    + for s and - for d,

        K[(g, a, b), (h, u, v)] = G_gh [ p (k_au + k_bv +- k_av +- k_bu) + q (k_au k_bv +- k_av k_bu) + o ]
        G_gh = 1 if g = h else w / (1 + w)          o = 0 for d

    p is what each job suffers and inflicts whatever its partner is (the row and column effects), q what is particular
    to the two of them; both carry over to jobs that are alike and, by w, to other GPU types. A measurement has
    independent noise of variance e in s and in d. Everything is found by the marginal likelihood of the measured pairs
    (at most ``sample`` of them), with weak normal priors on the logs; then the estimate is the posterior mean and
    ``log_sd`` the root of the posterior variance of s and d with the noise of one measurement.

    Measuring both jobs of a pair halves the rows: s and d of n pairs are two systems of n, not one of 2 n. A fit takes
    O(n^3): for more than a few thousand pairs ask ``boosted-pairs``.

    Options: ``sample``, ``iterations`` (of the search), ``seed`` (of the sample).

    References
    ----------
    C. E. Rasmussen, C. K. I. Williams, "Gaussian Processes for Machine Learning", MIT Press 2006, algorithm 2.1 and
    section 5.4.1.
    """

    name: ClassVar[str] = "gaussian-pairs"
    Stored = GaussianDocument

    def __init__(
        self,
        profiles: PairProfiles,
        kernel: JobKernel,
        mean: float,
        together: FloatArray,
        apart: FloatArray,
    ) -> None:
        super().__init__(profiles)
        self.kernel, self.mean, self.together, self.apart = kernel, mean, together, apart

    @classmethod
    def fit(cls, profiles: PairProfiles, options: Mapping[str, Any]) -> Self:
        """`PairModel`."""
        told = validate(GaussianOptions, dict(options), "performance")
        refuse_few(profiles, FEWEST, cls.name)
        kernel = JobKernel.of(profiles.features)
        ran = profiles.ran
        mean = float(np.log(ran.first * ran.second).mean() / 2)
        found = []
        for sign, pairs, target in _parts(profiles, mean):
            rows = np.arange(len(pairs))
            if len(rows) > told.sample:
                rows = np.sort(
                    np.random.default_rng(told.seed).choice(rows, told.sample, replace=False)
                )
            found.append(most_likely(kernel, sign, pairs.take(rows), target[rows], told.iterations))
        return cls(profiles, kernel, mean, *found)

    def estimate(self, pairs: Pairs) -> Estimate:
        """`LearnedPairs`."""
        first, second, sd = (np.empty(len(pairs)) for _ in range(3))
        for start in range(0, len(pairs), CHUNK):
            rows = np.arange(start, min(start + CHUNK, len(pairs)))
            s, s_variance = self._posterior(0, pairs.take(rows))
            d, d_variance = self._posterior(1, pairs.take(rows))
            first[rows], second[rows] = self.mean + s + d, self.mean + s - d
            sd[rows] = np.sqrt(s_variance + d_variance)
        return Estimate(first, second, sd)

    def _posterior(self, part: int, asked: Pairs) -> tuple[FloatArray, FloatArray]:
        from scipy.linalg import solve_triangular

        process, pairs, factor, weights = self._solved[part]
        if len(pairs) == 0:
            return np.zeros(len(asked)), process.variance(asked) + process.noise
        between = process.covariance(asked, pairs)
        explained = (solve_triangular(factor, between.T, lower=True, check_finite=False) ** 2).sum(
            axis=0
        )
        return between @ weights, np.maximum(
            process.variance(asked) - explained, 0.0
        ) + process.noise

    @cached_property
    def _solved(self) -> list[tuple[PairProcess, Pairs, FloatArray, FloatArray]]:
        """For s and d: the process, measured pairs, Cholesky factor, and its inverse times the measurements."""
        from scipy.linalg import cho_solve

        solved = []
        parameters = {TOGETHER: self.together, APART: self.apart}
        for sign, pairs, target in _parts(self.profiles, self.mean):
            process = PairProcess(self.kernel, sign, parameters[sign])
            factor = process.factor(pairs)
            if factor is None:
                raise InvalidInput(
                    "performance.pairs", "hyperparameters without a covariance", "those of a fit"
                )
            solved.append((process, pairs, factor, cho_solve((factor, True), target)))
        return solved

    def learned(self) -> dict[str, Any]:
        """`LearnedPairs`."""
        return {
            "mean": self.mean,
            "together": self.together.tolist(),
            "apart": self.apart.tolist(),
            "centres": self.kernel.centres.tolist(),
            "scales": self.kernel.scales.tolist(),
        }

    @classmethod
    def restore(cls, profiles: PairProfiles, told: GaussianDocument, path: str) -> Self:
        """`LearnedPairs`."""
        kernel = JobKernel.of(profiles.features)
        wanted = {"centres": kernel.columns, "scales": kernel.columns}
        wanted |= dict.fromkeys(("together", "apart"), kernel.size + OWN)
        for field, count in wanted.items():
            if len(getattr(told, field)) != count:
                raise InvalidInput(
                    f"{path}.{field}",
                    f"{len(getattr(told, field))} values",
                    f"{count} for this model",
                )
        for field in ("together", "apart"):
            for row, value in enumerate(getattr(told, field)):
                if abs(value) > LARGEST_LOG:
                    raise InvalidInput(
                        f"{path}.{field}[{row}]", f"{value:g}", f"a log within +-{LARGEST_LOG:g}"
                    )
        kernel = kernel.scaled(
            np.array(told.centres, np.float64), np.array(told.scales, np.float64)
        )
        return cls(profiles, kernel, told.mean, np.array(told.together), np.array(told.apart))


def _parts(profiles: PairProfiles, mean: float) -> list[tuple[int, Pairs, FloatArray]]:
    """(sign, pairs, values) of s - c and of d; of a job beside itself d is 0 by nature, and no measurement."""
    ran = profiles.ran
    first, second = np.log(ran.first), np.log(ran.second)
    apart = np.flatnonzero(ran.pairs.first != ran.pairs.second)
    return [
        (TOGETHER, ran.pairs, (first + second) / 2 - mean),
        (APART, ran.pairs.take(apart), (first - second)[apart] / 2),
    ]
