"""The ``row-column`` model of pairs: what a job suffers and what it inflicts, on each type of GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np

from optsched.arrays import FloatArray, IntArray
from optsched.instance.documents import Document, Finite, Name, NonNegative, Positive
from optsched.instance.reading import validate
from optsched.performance.learned.measured_pairs import (
    Estimate,
    LearnedPairs,
    PairDocument,
    both_ways,
    dense,
    refuse_few,
)
from optsched.performance.learned.pairs import PairProfiles, Pairs

PENALTIES = (0.03, 0.1, 0.3, 1.0, 3.0)
FEWEST = 2


class RowColumnOptions(Document):
    """Options of the fit; without a penalty the best of `PENALTIES` is taken."""

    penalty: Positive | None = None


class EffectsDocument(Document):
    """Effects on one GPU type, by workload."""

    mean: Finite
    suffers: dict[Name, Finite]
    inflicts: dict[Name, Finite]


class RowColumnDocument(PairDocument):
    """A fitted `RowColumn` model."""

    penalty: Positive
    log_sd: NonNegative
    effects: dict[Name, EffectsDocument]


class RowColumn(LearnedPairs):
    """On GPU type g the log of the fraction that job a keeps beside job b is

        log f_g(a | b) = c_g + r_ga + s_gb

    with a mean c_g, what a suffers r_ga and what b inflicts s_gb. They minimise the squared error over the measured
    cells plus  penalty (|r|^2 + |s|^2),  so that a job without a pair on a GPU type has no effect there, that is the
    mean; c_g is the mean of the cells of g, or of all cells where g has none.

    The penalty, unless it is given, is the one of `PENALTIES` with the least squared error when each cell in turn is
    left out (in closed form: e / (1 - h), with the residual e and the leverage h), which also gives ``log_sd``.

    Options: ``penalty``.
    """

    name: ClassVar[str] = "row-column"
    Stored = RowColumnDocument

    def __init__(
        self, profiles: PairProfiles, mean: FloatArray, suffers: FloatArray, inflicts: FloatArray, penalty: float,
        log_sd: float,
    ) -> None:  # fmt: skip
        super().__init__(profiles)
        self.mean, self.suffers, self.inflicts = mean, suffers, inflicts
        self.penalty, self.log_sd = penalty, log_sd

    @classmethod
    def fit(cls, profiles: PairProfiles, options: Mapping[str, Any]) -> Self:
        """`PairModel`."""
        told = validate(RowColumnOptions, dict(options), "performance")
        refuse_few(profiles, FEWEST, cls.name)
        cells, target = both_ways(profiles)
        gpu_types, workloads = len(profiles.features.gpu_types), len(profiles.features.workloads)
        penalties = PENALTIES if told.penalty is None else (told.penalty,)
        mean = np.full(gpu_types, target.mean())
        suffers, inflicts = np.zeros((gpu_types, workloads)), np.zeros((gpu_types, workloads))
        parts = []
        for gpu in range(gpu_types):
            rows = np.flatnonzero(cells.gpu == gpu)
            if len(rows):
                mean[gpu] = target[rows].mean()
                design = _indicators(cells.first[rows], cells.second[rows], workloads)
                parts.append((gpu, design, target[rows] - mean[gpu]))
        wrong = {
            penalty: sum(_left_out(design, y, penalty) for _, design, y in parts)
            for penalty in penalties
        }
        penalty = min(penalties, key=lambda value: wrong[value])
        for gpu, design, y in parts:
            suffers[gpu], inflicts[gpu] = _ridge(design, y, penalty).reshape(2, -1)
        return cls(
            profiles, mean, suffers, inflicts, penalty, float(np.sqrt(wrong[penalty] / len(target)))
        )

    def estimate(self, pairs: Pairs) -> Estimate:
        """`LearnedPairs`."""
        return Estimate(
            self.mean[pairs.gpu]
            + self.suffers[pairs.gpu, pairs.first]
            + self.inflicts[pairs.gpu, pairs.second],
            self.mean[pairs.gpu]
            + self.suffers[pairs.gpu, pairs.second]
            + self.inflicts[pairs.gpu, pairs.first],
            np.full(len(pairs), self.log_sd),
        )

    def learned(self) -> dict[str, Any]:
        """`LearnedPairs`."""
        names = self.features.workloads
        effects = {
            gpu: {
                "mean": float(self.mean[row]),
                "suffers": dict(zip(names, self.suffers[row].tolist(), strict=True)),
                "inflicts": dict(zip(names, self.inflicts[row].tolist(), strict=True)),
            }
            for row, gpu in enumerate(self.features.gpu_types)
        }
        return {"penalty": self.penalty, "log_sd": self.log_sd, "effects": effects}

    @classmethod
    def restore(cls, profiles: PairProfiles, told: RowColumnDocument, path: str) -> Self:
        """`LearnedPairs`."""
        known, where = profiles.features, f"{path}.effects"
        suffers, inflicts = (
            dense(
                {gpu: getattr(own, field) for gpu, own in told.effects.items()}, known, where, field
            )
            for field in ("suffers", "inflicts")
        )
        mean = np.array([told.effects[gpu].mean for gpu in known.gpu_types])
        return cls(profiles, mean, suffers, inflicts, told.penalty, told.log_sd)


def _indicators(first: IntArray, second: IntArray, workloads: int) -> FloatArray:
    design = np.zeros((len(first), 2 * workloads))
    rows = np.arange(len(first))
    design[rows, first] = 1.0
    design[rows, workloads + second] = 1.0
    return design


def _ridge(design: FloatArray, y: FloatArray, penalty: float) -> FloatArray:
    square = design.T @ design + penalty * np.eye(design.shape[1])
    return np.asarray(np.linalg.solve(square, design.T @ y), np.float64)


def _left_out(design: FloatArray, y: FloatArray, penalty: float) -> float:
    """Sum of the squared errors when each row in turn is left out of a ridge regression."""
    square = design.T @ design + penalty * np.eye(design.shape[1])
    half = np.linalg.solve(square, design.T)
    leverage = np.einsum("ij,ji->i", design, half)
    return float((((y - design @ (half @ y)) / (1 - leverage)) ** 2).sum())
