"""Ensembles of regression trees as plain arrays: saved as JSON, evaluated with numpy alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.errors import InvalidInput
from optsched.instance.documents import Count, Document, Finite, PositiveCount, Tuple
from optsched.instance.reading import show, validate

CHUNK = 1 << 18
"""Pairs (tree, row) that are walked at a time: enough for speed, few enough to stay in the cache of a core."""
LARGEST_THRESHOLD = float(np.finfo(np.float64).max)
"""Takes the place of an infinite threshold, which JSON cannot hold: every number is on its left, NaN apart."""


class TreesDocument(Document):
    """A `TreeEnsemble` as JSON."""

    features: PositiveCount
    baseline: Finite
    roots: Tuple[Annotated[int, Field(ge=-(2**31), le=2**31)]]
    feature: Tuple[Count]
    threshold: Tuple[Annotated[float, Field(allow_inf_nan=False)]]
    left: Tuple[Annotated[int, Field(ge=-(2**31), le=2**31)]]
    right: Tuple[Annotated[int, Field(ge=-(2**31), le=2**31)]]
    missing_left: Tuple[bool]
    leaves: Tuple[Finite]


@dataclass(frozen=True)
class TreeEnsemble:
    """The sum of a baseline and of T binary trees with N inner nodes and L leaves.

    At inner node i a row x goes left if  x[feature[i]] <= threshold[i],  or if it is NaN and ``missing_left[i]``, else
    right. Nodes are named by one number: i >= 0 is an inner node, i < 0 the leaf ~i. The inner nodes of a tree come
    after those that they hang below.

    Attributes
    ----------
    features : int
        Columns of the rows.
    baseline : float
    roots : IntArray, shape (T,)
        Node where each tree begins.
    feature, left, right : IntArray, shape (N,)
    threshold : FloatArray, shape (N,)
    missing_left : BoolArray, shape (N,)
    leaves : FloatArray, shape (L,)
        What each leaf adds.
    """

    features: int
    baseline: float
    roots: IntArray
    feature: IntArray
    threshold: FloatArray
    left: IntArray
    right: IntArray
    missing_left: BoolArray
    leaves: FloatArray

    @classmethod
    def of(cls, regressor: Any) -> TreeEnsemble:
        """The trees of a fitted `sklearn.ensemble.HistGradientBoostingRegressor` without categorical features.

        They are found in the regressor's private ``_predictors``, whose shape has been the same since 1.0; a test
        compares what they say with the regressor's own predictions, to the last bit.
        """
        roots, columns, leaves = [], [], []
        inner_before = leaves_before = 0
        for (tree,) in regressor._predictors:  # noqa: SLF001 (there is no public way to the nodes)
            nodes = tree.nodes
            leaf = nodes["is_leaf"].astype(bool)
            assert not nodes["is_categorical"].any()
            name = np.where(
                leaf, ~(leaves_before + np.cumsum(leaf) - 1), inner_before + np.cumsum(~leaf) - 1
            )
            inner = nodes[~leaf]
            roots.append(name[0])
            columns.append(
                (
                    inner["feature_idx"].astype(np.int64),
                    np.minimum(inner["num_threshold"], LARGEST_THRESHOLD),
                    name[inner["left"]],
                    name[inner["right"]],
                    inner["missing_go_to_left"].astype(bool),
                )
            )
            leaves.append(nodes["value"][leaf])
            inner_before, leaves_before = inner_before + len(inner), leaves_before + int(leaf.sum())
        feature, threshold, left, right, missing_left = (
            np.concatenate(parts) for parts in zip(*columns, strict=True)
        )
        return cls(
            features=int(regressor.n_features_in_),
            baseline=float(np.ravel(regressor._baseline_prediction)[0]),  # noqa: SLF001
            roots=np.array(roots, np.int64),
            feature=feature,
            threshold=threshold,
            left=left.astype(np.int64),
            right=right.astype(np.int64),
            missing_left=missing_left,
            leaves=np.concatenate(leaves),
        )

    @cached_property
    def depth(self) -> int:
        """Inner nodes on the longest way from a root to a leaf."""
        level, depth = np.unique(self.roots[self.roots >= 0]), 0
        while len(level):
            below = np.concatenate((self.left[level], self.right[level]))
            level, depth = np.unique(below[below >= 0]), depth + 1
        return depth

    def predict(self, rows: FloatArray) -> FloatArray:
        """What the ensemble says of rows, shape (E, features) -> (E,).

        All trees are walked at once, level by level; their leaves are added tree by tree, in the order of the fit, so
        that a prediction depends on nothing but its own row.
        """
        total = np.full(len(rows), self.baseline)
        trees = len(self.roots)
        size = max(1, CHUNK // max(trees, 1))
        for start in range(0, len(rows), size):
            chunk = np.ascontiguousarray(
                rows[start : start + size].T, np.float64
            )  # (features, rows)
            for leaf in self._leaves_of(chunk):
                total[start : start + size] += leaf
        return total

    def _leaves_of(self, columns: FloatArray) -> FloatArray:
        """Values of the leaves that rows end in, (trees, rows)."""
        count = columns.shape[1]
        node = np.repeat(self.roots, count)
        row = np.tile(np.arange(count, dtype=np.int64), len(self.roots))
        flat = columns.ravel()
        walking = np.flatnonzero(node >= 0)
        while len(walking):
            at = node[walking]
            value = flat[self.feature[at] * count + row[walking]]
            left = (value <= self.threshold[at]) | (np.isnan(value) & self.missing_left[at])
            node[walking] = at = np.where(left, self.left[at], self.right[at])
            walking = walking[at >= 0]
        return self.leaves[~node].reshape(len(self.roots), count)

    # --- documents ----------------------------------------------------------------------------------------------------

    def document(self) -> dict[str, Any]:
        """The ensemble as JSON; `from_document` makes exactly the same of it."""
        return {
            "features": self.features,
            "baseline": self.baseline,
            "roots": self.roots.tolist(),
            "feature": self.feature.tolist(),
            "threshold": self.threshold.tolist(),
            "left": self.left.tolist(),
            "right": self.right.tolist(),
            "missing_left": self.missing_left.tolist(),
            "leaves": self.leaves.tolist(),
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any] | TreesDocument, path: str) -> TreeEnsemble:
        """The ensemble of a document; raises `InvalidInput` where a walk through it would not end at a leaf."""
        told = (
            document
            if isinstance(document, TreesDocument)
            else validate(TreesDocument, dict(document), path)
        )
        trees = cls(
            features=told.features,
            baseline=told.baseline,
            roots=np.array(told.roots, np.int64),
            feature=np.array(told.feature, np.int64),
            threshold=np.array(told.threshold, np.float64),
            left=np.array(told.left, np.int64),
            right=np.array(told.right, np.int64),
            missing_left=np.array(told.missing_left, bool),
            leaves=np.array(told.leaves, np.float64),
        )
        trees._check(path)
        return trees

    def _check(self, path: str) -> None:
        inner = len(self.feature)
        for name in ("threshold", "left", "right", "missing_left"):
            if len(getattr(self, name)) != inner:
                raise InvalidInput(
                    f"{path}.{name}", f"{len(getattr(self, name))} values", f"{inner}, one per node"
                )
        wrong = np.flatnonzero(self.feature >= self.features)
        if len(wrong):
            raise InvalidInput(
                f"{path}.feature[{wrong[0]}]",
                show(int(self.feature[wrong[0]])),
                f"a feature below {self.features}",
            )
        own = np.arange(inner)
        for name, above in (("roots", np.full(len(self.roots), -1)), ("left", own), ("right", own)):
            nodes = getattr(self, name)
            wrong = np.flatnonzero(
                ((nodes >= 0) & ((nodes <= above) | (nodes >= inner)))
                | (~nodes >= len(self.leaves))
            )
            if len(wrong):
                raise InvalidInput(
                    f"{path}.{name}[{wrong[0]}]",
                    show(int(nodes[wrong[0]])),
                    f"a later one of the {inner} nodes, or -1 - i for one of the {len(self.leaves)} leaves",
                )
