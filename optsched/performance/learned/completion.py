"""The ``completion`` model of pairs: a matrix of fractions, completed with few factors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np

from optsched.arrays import BoolArray, FloatArray
from optsched.errors import InvalidInput
from optsched.instance.documents import (
    Count,
    Document,
    Finite,
    NonNegative,
    Positive,
    PositiveCount,
    Share,
    Tuple,
)
from optsched.instance.reading import validate
from optsched.performance.learned.fitting import folds_of
from optsched.performance.learned.measured_pairs import (
    Estimate,
    LearnedPairs,
    PairDocument,
    both_ways,
    refuse_few,
)
from optsched.performance.learned.pairs import PairProfiles, Pairs

FEWEST = 5
FOLDS = 5
LEAST = 1e-3
"""Fractions are estimated to be at least this."""


class CompletionOptions(Document):
    """Options of the fit."""

    rank: PositiveCount = 4
    penalty: Positive = 0.3
    biased: bool = True
    iterations: PositiveCount = 50
    seed: Count = 0
    nearest: bool = False
    reference: Share = 0.9


class CompletionDocument(PairDocument):
    """A fitted `Completion`; the completed matrix row by row, as names are sorted."""

    log_sd: NonNegative
    completed: Tuple[Tuple[Finite]]


class Completion(LearnedPairs):
    """The fractions X_ij that job i keeps form a matrix with a column j for each GPU type and partner. With its
    measured cells M, alternating least squares minimise

        sum over M (X_ij - m - b_i - c_j - u_i . v_j)^2 + penalty (|U|^2 + |V|^2 + |b|^2 + |c|^2)

    over u_i, v_j in R^rank and, if ``biased``, b and c (else they are 0); m is the mean over M. Estimates are clipped
    to [`LEAST`, 1].

    With ``nearest`` this is the estimator of Gavel: a job with less than a share ``reference`` of its row measured is
    taken for the job whose row is the nearest among those with more: what was not measured is taken from there. Five
    things are not as in Gavel's code:

    1. The profile of a new job is looked up in the column of its partner. There, the number of the partner among the
       reference jobs is used as if it were its number among all jobs, so that rates of other pairs are read.
    2. A pair that could not run together is not known, not a rate of 0.
    3. The mean is taken out before (and biases, if asked for), so that the penalty pulls unknown cells to the mean
       instead of to 0.
    4. Rows are compared by the root mean square of their difference, not by the cosine, for which a job that keeps 0.9
       beside all others is the same as one that keeps 0.3.
    5. What was measured of the new job is kept, not replaced by what was measured of the other.

    ``log_sd`` is the root mean square of the log errors when a fifth of the measured pairs is left out, five times.

    Options: ``rank``, ``penalty``, ``biased``, ``iterations``, ``seed``, ``nearest``, ``reference``.

    References
    ----------
    D. Narayanan et al., "Heterogeneity-aware cluster scheduling policies for deep learning workloads", OSDI 2020,
    section 3.3, and its repository, ``scheduler/throughput_estimator.py``; C. Delimitrou, C. Kozyrakis, "Quasar",
    ASPLOS 2014 (biases).
    """

    name: ClassVar[str] = "completion"
    Stored = CompletionDocument

    def __init__(self, profiles: PairProfiles, completed: FloatArray, log_sd: float) -> None:
        super().__init__(profiles)
        self.completed, self.log_sd = completed, log_sd

    @classmethod
    def fit(cls, profiles: PairProfiles, options: Mapping[str, Any]) -> Self:
        """`PairModel`."""
        told = validate(CompletionOptions, dict(options), "performance")
        refuse_few(profiles, FEWEST, cls.name)
        ran = profiles.ran
        fold = folds_of(len(ran), FOLDS, told.seed)
        wrong = []
        for number in range(FOLDS):
            part = cls(profiles, _completed(ran.take(np.flatnonzero(fold != number)), told), 0.0)
            out = ran.take(np.flatnonzero(fold == number))
            said = part.estimate(out.pairs)
            wrong += [said.first - np.log(out.first), said.second - np.log(out.second)]
        return cls(
            profiles, _completed(ran, told), float(np.sqrt(np.mean(np.concatenate(wrong) ** 2)))
        )

    def estimate(self, pairs: Pairs) -> Estimate:
        """`LearnedPairs`."""
        count = len(self.features.workloads)
        first = self.completed[pairs.first, pairs.gpu * count + pairs.second]
        second = self.completed[pairs.second, pairs.gpu * count + pairs.first]
        return Estimate(np.log(first), np.log(second), np.full(len(pairs), self.log_sd))

    def learned(self) -> dict[str, Any]:
        """`LearnedPairs`."""
        return {"log_sd": self.log_sd, "completed": self.completed.tolist()}

    @classmethod
    def restore(cls, profiles: PairProfiles, told: CompletionDocument, path: str) -> Self:
        """`LearnedPairs`."""
        workloads, gpu_types = len(profiles.features.workloads), len(profiles.features.gpu_types)
        columns = gpu_types * workloads
        if [len(row) for row in told.completed] != [columns] * workloads:
            raise InvalidInput(
                f"{path}.completed", "another shape", f"{workloads} rows of {columns} values"
            )
        completed = np.array(told.completed, np.float64).reshape(workloads, columns)
        if not ((completed >= LEAST) & (completed <= 1)).all():
            raise InvalidInput(
                f"{path}.completed", "a value outside", f"values from {LEAST:g} to 1"
            )
        return cls(profiles, completed, told.log_sd)


def _completed(profiles: PairProfiles, options: CompletionOptions) -> FloatArray:
    """All cells, (W, G W), from measured pairs that ran."""
    workloads = len(profiles.features.workloads)
    cells, logs = both_ways(profiles)
    row, column = cells.first, cells.gpu * workloads + cells.second
    shape = (workloads, len(profiles.features.gpu_types) * workloads)
    total, times = np.zeros(shape), np.zeros(shape)
    np.add.at(total, (row, column), np.exp(logs))
    np.add.at(times, (row, column), 1.0)
    known = times > 0
    values = np.divide(total, times, out=np.zeros(shape), where=known)
    filled = np.clip(complete(values, known, options), LEAST, 1.0)
    return (
        _from_nearest(np.where(known, values, filled), filled, known, options)
        if options.nearest
        else filled
    )


def complete(values: FloatArray, known: BoolArray, options: CompletionOptions) -> FloatArray:
    """A matrix completed from its known cells by (biased) alternating least squares; see `Completion`."""
    rows, columns = values.shape
    random = np.random.default_rng(options.seed)
    mean = values[known].mean()
    left = np.where(known, values - mean, 0.0)
    # A bias is a factor whose other side is 1: [u, b, 1] . [v, 1, c].
    u, v = (
        random.normal(size=(rows, options.rank)) / 10,
        random.normal(size=(columns, options.rank)) / 10,
    )
    b, c = np.zeros(rows), np.zeros(columns)
    for _ in range(options.iterations):
        u, b = _solve_side(left - c * known, known, v, options)
        v, c = _solve_side((left - b[:, np.newaxis] * known).T, known.T, u, options)
    completed: FloatArray = mean + u @ v.T + b[:, np.newaxis] + c
    return completed


def _solve_side(
    left: FloatArray, known: BoolArray, other: FloatArray, options: CompletionOptions
) -> tuple[FloatArray, FloatArray]:
    """The factors, and biases, of the rows of ``left`` (zero where unknown), given those of its columns."""
    design = np.column_stack((other, np.ones(len(other)))) if options.biased else other
    square = np.einsum("ij,jk,jl->ikl", known.astype(np.float64), design, design, optimize=True)
    square += options.penalty * np.eye(design.shape[1])
    solved = np.linalg.solve(square, (left @ design)[:, :, np.newaxis])[:, :, 0]
    return (solved[:, :-1], solved[:, -1]) if options.biased else (solved, np.zeros(len(left)))


def _from_nearest(
    rows: FloatArray, filled: FloatArray, known: BoolArray, options: CompletionOptions
) -> FloatArray:
    """Rows of jobs that are hardly measured, from the nearest of the others; see `Completion`."""
    share = known.mean(axis=1)
    references = np.flatnonzero(share >= options.reference * share.max())
    taken = filled.copy()
    for job in np.setdiff1d(np.arange(len(rows)), references):
        distance = ((rows[references] - rows[job]) ** 2).mean(axis=1)
        taken[job] = rows[references[distance.argmin()]]
    return taken
