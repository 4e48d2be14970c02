"""The ``boosted-pairs`` model: gradient-boosted trees on what is known of both jobs alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np

from optsched.arrays import FloatArray
from optsched.errors import InvalidInput
from optsched.instance.documents import NonNegative, Share
from optsched.instance.reading import show, validate
from optsched.performance.learned.fitting import TreeOptions, fit_trees, folds_of
from optsched.performance.learned.measured_pairs import (
    Estimate,
    LearnedPairs,
    PairDocument,
    both_ways,
    refuse_few,
)
from optsched.performance.learned.pairs import PairProfiles, Pairs, WorkloadFeatures
from optsched.performance.learned.trees import TreeEnsemble, TreesDocument

FEWEST = 20
FOLDS = 5


class BoostedPairsOptions(TreeOptions):
    """Options of the fit."""

    iterations: int = 400
    learning_rate: Share = 0.1
    leaves: int = 31
    rows_per_leaf: int = 5


class BoostedPairsDocument(PairDocument):
    """A fitted `BoostedPairs` model."""

    log_sd: NonNegative
    trees: TreesDocument


class BoostedPairs(LearnedPairs):
    """log f_g(a | b) = F(features of g, a, b), an ensemble of boosted trees (squared error) with the features

    - the number of the GPU type g;
    - of a, then of b: the number of its family, the log of its batch, the logs of its rates alone on all GPU types;
    - the logs of the rates of a and of b alone on g.

    Numbers are those of the sorted names; what is unknown is missing, which trees can take, and what is unknown of all
    pairs is left out. Both directions of each
    measured pair are learnt. ``log_sd`` is the root mean square of the log errors when a fifth of the pairs, in both
    directions, is left out, five times.

    Options: ``iterations``, ``learning_rate``, ``leaves``, ``rows_per_leaf``, ``penalty`` (L2, leaves), ``seed``.

    References
    ----------
    J. H. Friedman, "Greedy function approximation: a gradient boosting machine", Annals of Statistics 29 (2001); grown
    with scikit-learn's HistGradientBoostingRegressor.
    """

    name: ClassVar[str] = "boosted-pairs"
    Stored = BoostedPairsDocument

    def __init__(self, profiles: PairProfiles, trees: TreeEnsemble, log_sd: float) -> None:
        super().__init__(profiles)
        self.trees, self.log_sd = trees, log_sd

    @classmethod
    def fit(cls, profiles: PairProfiles, options: Mapping[str, Any]) -> Self:
        """`PairModel`."""
        told = validate(BoostedPairsOptions, dict(options), "performance")
        if profiles.features.bare:
            raise InvalidInput(
                "profiles",
                "nothing but names of workloads",
                "a family, a batch or rates alone of some",
            )
        refuse_few(profiles, FEWEST, cls.name)
        ran = profiles.ran
        fold = folds_of(len(ran), FOLDS, told.seed)
        wrong = []
        for number in range(FOLDS):
            trees = _grow(ran.take(np.flatnonzero(fold != number)), told)
            cells, target = both_ways(ran.take(np.flatnonzero(fold == number)))
            wrong.append(trees.predict(pair_features(profiles.features, cells)) - target)
        return cls(profiles, _grow(ran, told), float(np.sqrt(np.mean(np.concatenate(wrong) ** 2))))

    def estimate(self, pairs: Pairs) -> Estimate:
        """`LearnedPairs`."""
        first, second = (
            self.trees.predict(pair_features(self.features, way))
            for way in (pairs, pairs.swapped())
        )
        return Estimate(first, second, np.full(len(pairs), self.log_sd))

    def learned(self) -> dict[str, Any]:
        """`LearnedPairs`."""
        return {"log_sd": self.log_sd, "trees": self.trees.document()}

    @classmethod
    def restore(cls, profiles: PairProfiles, told: BoostedPairsDocument, path: str) -> Self:
        """`LearnedPairs`."""
        trees = TreeEnsemble.from_document(told.trees, f"{path}.trees")
        wanted = 7 + 2 * len(profiles.features.gpu_types)
        if trees.features != wanted:
            raise InvalidInput(
                f"{path}.trees.features", show(trees.features), f"{wanted}, those of the model"
            )
        return cls(profiles, trees, told.log_sd)


def _grow(ran: PairProfiles, options: TreeOptions) -> TreeEnsemble:
    cells, target = both_ways(ran)
    return fit_trees(pair_features(ran.features, cells), target, options)


def pair_features(known: WorkloadFeatures, pairs: Pairs) -> FloatArray:
    """The features of pairs, (E, 7 + 2 G); see `BoostedPairs`."""
    _, number = np.unique(np.array(known.family), return_inverse=True)
    family = np.where(np.array(known.family) == "", np.nan, number)
    alone, batch = np.log(known.isolated), np.log(known.batch)
    columns = [pairs.gpu.astype(np.float64)]
    for job in (pairs.first, pairs.second):
        columns += [family[job], batch[job], *alone[job].T, alone[job, pairs.gpu]]
    return np.column_stack(columns)
