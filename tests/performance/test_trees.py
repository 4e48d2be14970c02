"""Trees as arrays: what they say is what scikit-learn says, to the last bit, also after a round trip through JSON."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from refusals import refuses

# Private names: a model by its class, where the registry knows it by name
from optsched.instance.reading import validate
from optsched.performance.learned.trees import TreeEnsemble, TreesDocument

pytestmark = pytest.mark.property

HAND: dict[str, Any] = {
    "features": 2,
    "baseline": 10.0,
    "roots": [0, -4],
    "feature": [0, 1],
    "threshold": [0.5, 2.0],
    "left": [-1, -2],
    "right": [1, -3],
    "missing_left": [True, False],
    "leaves": [1.0, 2.0, 3.0, 100.0],
}


def read_trees(document: dict[str, Any], path: str) -> TreeEnsemble:
    return TreeEnsemble(validate(TreesDocument, document, path))


def test_a_tree_by_hand() -> None:
    trees = read_trees(HAND, "x")
    rows = np.array([[0.5, 9.0], [0.6, 2.0], [0.6, 2.1], [np.nan, 9.0], [1.0, np.nan]])
    assert trees.predict(rows).tolist() == [111.0, 112.0, 113.0, 111.0, 113.0]
    assert trees.document() == HAND
    assert trees.predict(np.zeros((0, 2))).tolist() == []


@pytest.mark.parametrize("holes", [0.0, 0.1])
@pytest.mark.parametrize("leaves", [2, 31])
def test_the_same_as_sklearn_to_the_last_bit(holes: float, leaves: int) -> None:
    ensemble = pytest.importorskip("sklearn.ensemble", reason="scikit-learn is not installed")
    random = np.random.default_rng(leaves)
    rows = random.normal(size=(400, 4)).round(1)
    target = rows[:, 0] ** 2 + np.sin(3 * rows[:, 1]) + random.normal(size=400) / 10
    rows[random.random(rows.shape) < holes] = np.nan
    rows[:, 3] = np.where(random.random(400) < 0.5, 1.0, np.nan)  # a split into present and missing
    fitted = ensemble.HistGradientBoostingRegressor(
        max_iter=40, max_leaf_nodes=leaves, early_stopping=False
    )
    fitted.fit(rows, target)
    trees = TreeEnsemble.of(fitted)
    asked = random.normal(size=(20_000, 4)).round(2)
    asked[random.random(asked.shape) < holes] = np.nan
    expected = fitted.predict(asked)
    np.testing.assert_array_equal(trees.predict(asked), expected)
    again = read_trees(json.loads(json.dumps(trees.document())), "x")
    np.testing.assert_array_equal(again.predict(asked), expected)
    np.testing.assert_array_equal(
        np.concatenate([trees.predict(asked[row : row + 1]) for row in range(9)]), expected[:9]
    )


def test_trees_of_one_leaf() -> None:
    ensemble = pytest.importorskip("sklearn.ensemble", reason="scikit-learn is not installed")
    fitted = ensemble.HistGradientBoostingRegressor(max_iter=3).fit(
        np.zeros((30, 1)), np.full(30, 7.0)
    )
    trees = TreeEnsemble.of(fitted)
    assert trees.predict(np.array([[1.0], [2.0]])).tolist() == [7.0, 7.0]


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("right", [0, -3], "p.right[0]: found 0, expected a later one of the 2 nodes..."),
        ("left", [2, -2], "p.left[0]: found 2, expected a later one of the 2 nodes..."),
        (
            "roots",
            [0, -5],
            "p.roots[1]: found -5, expected a later one of the 2 nodes, or -1 - i for one of the 4 leaves",
        ),
        ("feature", [0, 2], "p.feature[1]: found 2, expected a feature below 2"),
        ("threshold", [0.5], "p.threshold: found 1 values, expected 2, one per node"),
        ("leaves", [float("nan")], "p.leaves[0]: found NaN, expected a finite number"),
        ("more", 1, "p.more: found an unknown key..."),
    ],
)
def test_what_is_no_ensemble_is_refused(field: str, value: Any, message: str) -> None:
    with refuses(message):
        read_trees(HAND | {field: value}, "p")
