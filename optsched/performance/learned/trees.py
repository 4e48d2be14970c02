"""Boosted regression trees:
grown by scikit-learn, kept as plain arrays, evaluated with numpy alone.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from typing import Annotated, Any, Self

import numpy as np
from pydantic import Field, model_validator

from optsched.arrays import FloatArray
from optsched.errors import SolverUnavailable
from optsched.instance.documents import (
    Count,
    Document,
    Finite,
    NonNegative,
    PositiveCount,
    Share,
    Tuple,
    refused,
)
from optsched.instance.reading import show

CHUNK = 1 << 18
"""Pairs (tree, row) per block: enough for speed, few enough for the CPU cache."""
LARGEST_THRESHOLD = float(np.finfo(np.float64).max)
"""Used instead of an infinite threshold, which JSON cannot hold: every number except NaN goes left.
"""

Node = Annotated[int, Field(ge=-(2**31), le=2**31)]


class TreesDocument(Document):
    """A `TreeEnsemble` as JSON."""

    features: PositiveCount
    baseline: Finite
    roots: Tuple[Node]
    feature: Tuple[Count]
    threshold: Tuple[Annotated[float, Field(allow_inf_nan=False)]]
    left: Tuple[Node]
    right: Tuple[Node]
    missing_left: Tuple[bool]
    leaves: Tuple[Finite]

    @model_validator(mode="after")
    def _every_walk_ends_at_a_leaf(self) -> Self:
        inner = len(self.feature)
        for name in ("threshold", "left", "right", "missing_left"):
            length = len(getattr(self, name))
            if length != inner:
                raise refused(f"{length} values", f"{inner}, one per node", f".{name}")
        for number, feature in enumerate(self.feature):
            if feature >= self.features:
                expected = f"a feature below {self.features}"
                raise refused(show(feature), expected, f".feature[{number}]")
        # Children must come after their parents, so that every walk ends.
        node = np.arange(inner)
        parents = {"roots": np.full(len(self.roots), -1), "left": node, "right": node}
        for name, parent in parents.items():
            children = np.array(getattr(self, name), np.int64)
            no_node = (children >= 0) & ((children <= parent) | (children >= inner))
            no_leaf = ~children >= len(self.leaves)
            wrong = np.flatnonzero(no_node | no_leaf)
            if len(wrong):
                raise refused(
                    show(int(children[wrong[0]])),
                    f"a later one of the {inner} nodes, "
                    f"or -1 - i for one of the {len(self.leaves)} leaves",
                    f".{name}[{wrong[0]}]",
                )
        return self


class TreeEnsemble:
    """The sum of a baseline and of T binary trees with N inner nodes and L leaves.

    At inner node i a row x goes left if  x[feature[i]] <= threshold[i],  or if it is NaN and
    ``missing_left[i]``, else right. Nodes are named by one number: i >= 0 is an inner node, i < 0
    the leaf ~i. Inner nodes come after their parents, and ``roots`` are the nodes where the trees
    begin. A leaf adds its number of ``leaves``.
    """

    def __init__(self, stored: TreesDocument) -> None:
        self.stored = stored
        self._roots = np.array(stored.roots, np.int64)
        self._feature = np.array(stored.feature, np.int64)
        self._threshold = np.array(stored.threshold, np.float64)
        self._left = np.array(stored.left, np.int64)
        self._right = np.array(stored.right, np.int64)
        self._missing_left = np.array(stored.missing_left, bool)
        self._leaves = np.array(stored.leaves, np.float64)

    @classmethod
    def of(cls, regressor: Any) -> TreeEnsemble:
        """The trees of a fitted `sklearn.ensemble.HistGradientBoostingRegressor`
        without categorical features.

        They are read from the private attribute ``_predictors`` of the regressor, whose layout has
        not changed since 1.0. A test compares predictions with those of the regressor, to the last
        bit.
        """
        parts: dict[str, list[Any]] = defaultdict(list)
        inner_before = leaves_before = 0
        for (tree,) in regressor._predictors:  # noqa: SLF001 (there is no public way to the nodes)
            nodes = tree.nodes
            is_leaf = nodes["is_leaf"].astype(bool)
            assert not nodes["is_categorical"].any()
            inner = nodes[~is_leaf]
            leaf_name = ~(leaves_before + np.cumsum(is_leaf) - 1)
            name = np.where(is_leaf, leaf_name, inner_before + np.cumsum(~is_leaf) - 1)
            parts["roots"] += name[:1].tolist()
            parts["feature"] += inner["feature_idx"].tolist()
            parts["threshold"] += np.minimum(inner["num_threshold"], LARGEST_THRESHOLD).tolist()
            parts["left"] += name[inner["left"]].tolist()
            parts["right"] += name[inner["right"]].tolist()
            parts["missing_left"] += inner["missing_go_to_left"].astype(bool).tolist()
            parts["leaves"] += nodes["value"][is_leaf].tolist()
            inner_before += len(inner)
            leaves_before += int(is_leaf.sum())
        baseline = float(np.ravel(regressor._baseline_prediction)[0])  # noqa: SLF001
        stored = {"features": int(regressor.n_features_in_), "baseline": baseline, **parts}
        return cls(TreesDocument.model_validate(stored))

    def predict(self, rows: FloatArray) -> FloatArray:
        """Predictions for rows, shape (E, features) -> (E,).

        All trees are walked at once, level by level. Leaf values are added tree by tree in the
        order of the fit, so that a prediction depends only on its row.
        """
        total = np.full(len(rows), self.stored.baseline)
        # In blocks of rows: all pairs (tree, row) of a block are walked together.
        size = max(1, CHUNK // max(len(self._roots), 1))
        for start in range(0, len(rows), size):
            chunk = slice(start, start + size)
            columns = np.ascontiguousarray(rows[chunk].T, np.float64)
            for leaf in self._leaves_of(columns):
                total[chunk] += leaf
        return total

    def _leaves_of(self, columns: FloatArray) -> FloatArray:
        """Leaf value of each tree for each row, shape (trees, rows); ``columns`` is the transposed
        table of rows.
        """
        count = columns.shape[1]
        node = np.repeat(self._roots, count)
        row = np.tile(np.arange(count, dtype=np.int64), len(self._roots))
        values = columns.ravel()
        # Only pairs that have not reached a leaf continue, because depths differ much.
        walking = np.flatnonzero(node >= 0)
        while len(walking):
            at = node[walking]
            value = values[self._feature[at] * count + row[walking]]
            left = (value <= self._threshold[at]) | (np.isnan(value) & self._missing_left[at])
            node[walking] = at = np.where(left, self._left[at], self._right[at])
            walking = walking[at >= 0]
        return self._leaves[~node].reshape(len(self._roots), count)

    def document(self) -> dict[str, Any]:
        """The ensemble as JSON data."""
        return self.stored.model_dump(mode="json")


# --- growing trees --------------------------------------------------------------------------------


class TreeOptions(Document):
    """Options of a fit of boosted trees."""

    iterations: PositiveCount
    learning_rate: Share
    leaves: PositiveCount
    rows_per_leaf: PositiveCount
    penalty: NonNegative = 0.0
    seed: Count = 0


@cache
def _thread_pools() -> Any:
    """The thread pools of scikit-learn, cached because a search takes as long as a small fit."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def fit_trees(rows: FloatArray, target: FloatArray, options: TreeOptions) -> TreeEnsemble:
    """Boosted trees that minimise the squared error of ``target`` (E,)
    given ``rows`` (E, features).

    The tables are small, so one thread is used; the same rows give the same trees.
    """
    try:
        from sklearn.ensemble import HistGradientBoostingRegressor
    except ImportError as error:
        raise SolverUnavailable(
            f"fitting trees needs scikit-learn, which cannot be loaded ({error}); "
            "install it with pip install 'optsched[learn]'"
        ) from None

    regressor = HistGradientBoostingRegressor(
        max_iter=options.iterations,
        learning_rate=options.learning_rate,
        max_leaf_nodes=max(options.leaves, 2),
        min_samples_leaf=options.rows_per_leaf,
        l2_regularization=options.penalty,
        early_stopping=False,
        random_state=options.seed,
    )
    # scikit-learn cannot bin a column without values. The trees are grown without it and never read
    # it, whatever later rows have there.
    known = np.flatnonzero(~np.isnan(rows).all(axis=0))
    with _thread_pools().limit(limits=1):
        trees = TreeEnsemble.of(regressor.fit(rows[:, known], target))
    feature = tuple(known[list(trees.stored.feature)].tolist())
    columns = {"features": rows.shape[1], "feature": feature}
    return TreeEnsemble(trees.stored.model_copy(update=columns))
