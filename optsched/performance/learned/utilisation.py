"""The ``utilisation`` model of pairs: what is left when two jobs want more of a GPU than there is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

import numpy as np

from optsched.arrays import FloatArray
from optsched.errors import InvalidInput
from optsched.instance.documents import Document, Finite, NonNegative, Tuple
from optsched.instance.reading import validate
from optsched.performance.learned.measured_pairs import (
    Estimate,
    LearnedPairs,
    PairDocument,
    both_ways,
)
from optsched.performance.learned.pairs import PairProfiles, Pairs

FEWEST = 5
PRIOR_SD = 0.15
"""Of the log of Horus' rule: its errors on the 1,388 pairs of Lucid's table were 8.7 % in the mean."""


class UtilisationOptions(Document):
    """Options of the fit."""

    rule: Literal["isotonic", "horus"] = "isotonic"


class UtilisationDocument(PairDocument):
    """A fitted `Utilisation`; without sums the rule is Horus'."""

    log_sd: NonNegative
    sums: Tuple[NonNegative]
    logs: Tuple[Finite]


class Utilisation(LearnedPairs):
    """With x = u_a + u_b, the sum of the utilisations of the GPU by two jobs alone, both keep the fraction

        isotonic    exp h(x),  h the non-increasing function closest to the measured logs (squares)
        horus       min(1, 1 / x)

    of which the levels are joined by lines between their middles; beyond the outermost h is constant. ``log_sd`` is
    the root mean square of the errors of the fit, for Horus' rule `PRIOR_SD` where fewer than `FEWEST` fractions were
    measured. Pairs of a job whose utilisation is not known are not said.

    Options: ``rule``.

    References
    ----------
    G. Yeung et al., "Horus: interference-aware and prediction-based scheduling in deep learning systems", TPDS 2022;
    R. E. Barlow et al., "Statistical Inference under Order Restrictions", Wiley 1972 (pool adjacent violators).
    """

    name: ClassVar[str] = "utilisation"
    Stored = UtilisationDocument

    def __init__(
        self, profiles: PairProfiles, sums: FloatArray, logs: FloatArray, log_sd: float
    ) -> None:
        super().__init__(profiles)
        self.sums, self.logs, self.log_sd = sums, logs, log_sd

    @classmethod
    def fit(cls, profiles: PairProfiles, options: Mapping[str, Any]) -> Self:
        """`PairModel`."""
        told = validate(UtilisationOptions, dict(options), "performance")
        cells, target = both_ways(profiles)
        x = _sum(profiles, cells)
        known = np.flatnonzero(np.isfinite(x))
        x, target = x[known], target[known]
        if told.rule == "isotonic":
            if len(x) < FEWEST:
                raise InvalidInput(
                    "profiles",
                    f"{len(x)} fractions of jobs with known utilisation",
                    f"at least {FEWEST} of them",
                )
            sums, logs = decreasing(x, target)
        else:
            sums, logs = np.zeros(0), np.zeros(0)
        model = cls(profiles, sums, logs, PRIOR_SD)
        if len(x) >= FEWEST:
            model.log_sd = float(np.sqrt(np.mean((model._log_fraction(x) - target) ** 2)))
        return model

    def estimate(self, pairs: Pairs) -> Estimate:
        """`LearnedPairs`."""
        said = self._log_fraction(_sum(self.profiles, pairs))
        return Estimate(said, said, np.full(len(pairs), self.log_sd))

    def _log_fraction(self, x: FloatArray) -> FloatArray:
        if len(self.sums) == 0:
            return -np.log(np.maximum(x, 1.0))
        return np.where(np.isnan(x), np.nan, np.interp(x, self.sums, self.logs))

    def learned(self) -> dict[str, Any]:
        """`LearnedPairs`."""
        return {"log_sd": self.log_sd, "sums": self.sums.tolist(), "logs": self.logs.tolist()}

    @classmethod
    def restore(cls, profiles: PairProfiles, told: UtilisationDocument, path: str) -> Self:
        """`LearnedPairs`."""
        sums, logs = np.array(told.sums, np.float64), np.array(told.logs, np.float64)
        if len(sums) != len(logs):
            raise InvalidInput(
                f"{path}.logs", f"{len(logs)} values", f"{len(sums)}, as many as sums"
            )
        if (np.diff(sums) <= 0).any() or (np.diff(logs) > 0).any():
            raise InvalidInput(
                path, "sums or logs out of order", "increasing sums and logs that never increase"
            )
        return cls(profiles, sums, logs, told.log_sd)


def _sum(profiles: PairProfiles, pairs: Pairs) -> FloatArray:
    each = profiles.features.utilisation
    total: FloatArray = each[pairs.first, pairs.gpu] + each[pairs.second, pairs.gpu]
    return total


def decreasing(x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The non-increasing function closest to the points in squares: the middles (by weight) and values of its levels.

    Pool adjacent violators: walk along x, and as long as the last level is above the one before it, merge the two.
    """
    places, row, count = np.unique(x, return_inverse=True, return_counts=True)
    levels: list[tuple[float, float, float]] = []  # (weight, mean of x, mean of y)
    for weight, place, value in zip(
        count.astype(np.float64).tolist(),
        places.tolist(),
        (np.bincount(row, y) / count).tolist(),
        strict=True,
    ):
        level = (weight, place, value)
        while levels and levels[-1][2] <= level[2]:
            before = levels.pop()
            total = before[0] + level[0]
            level = (
                total,
                (before[0] * before[1] + level[0] * level[1]) / total,
                (before[0] * before[2] + level[0] * level[2]) / total,
            )
        levels.append(level)
    _, middles, values = (np.array(column) for column in zip(*levels, strict=True))
    return middles, values
