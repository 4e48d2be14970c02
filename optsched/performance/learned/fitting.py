"""Fitting of boosted trees with scikit-learn, which is needed here and nowhere else."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from optsched.arrays import FloatArray, IntArray
from optsched.errors import SolverUnavailable
from optsched.instance.documents import Count, Document, NonNegative, PositiveCount, Share
from optsched.performance.learned.trees import TreeEnsemble


class TreeOptions(Document):
    """Options of a fit of boosted trees."""

    iterations: PositiveCount
    learning_rate: Share
    leaves: PositiveCount
    rows_per_leaf: PositiveCount
    penalty: NonNegative = 0.0
    seed: Count = 0


def require_sklearn() -> None:
    """Raise `SolverUnavailable` naming the extra where scikit-learn cannot be loaded."""
    try:
        import sklearn.ensemble  # noqa: F401
    except ImportError as error:
        raise SolverUnavailable(
            f"fitting trees needs scikit-learn, which cannot be loaded ({error}); "
            "install it with pip install 'optsched[learn]'"
        ) from None


@cache
def _libraries() -> Any:
    """The libraries with threads that scikit-learn brings: to look for them takes as long as a small fit."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def fit_trees(rows: FloatArray, target: FloatArray, options: TreeOptions) -> TreeEnsemble:
    """Boosted trees that minimise the squared error of ``target`` (E,) given ``rows`` (E, features).

    One thread, as the tables are small; the same rows give the same trees. Columns without any value cannot be binned
    and say nothing: the trees are grown without them and never ask for them, whatever the rows have there later.
    """
    require_sklearn()
    from sklearn.ensemble import HistGradientBoostingRegressor

    regressor = HistGradientBoostingRegressor(
        max_iter=options.iterations,
        learning_rate=options.learning_rate,
        max_leaf_nodes=max(options.leaves, 2),
        min_samples_leaf=options.rows_per_leaf,
        l2_regularization=options.penalty,
        early_stopping=False,
        random_state=options.seed,
    )
    told = np.flatnonzero(~np.isnan(rows).all(axis=0))
    with _libraries().limit(limits=1):
        trees = TreeEnsemble.of(regressor.fit(rows[:, told], target))
    return replace(trees, features=rows.shape[1], feature=told[trees.feature])


def folds_of(count: int, folds: int, seed: int) -> IntArray:
    """The fold of each of so many rows, at random and of equal sizes as far as they go."""
    fold: IntArray = (
        np.random.default_rng(seed).permutation(np.arange(count) % folds).astype(np.int64)
    )
    return fold
