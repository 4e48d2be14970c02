"""Block algebra of linear programs, and the bounds that follow from rows."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize as so
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from optsched.errors import UsageError
from optsched.program import LinearProgram

# Private names: lowered forms, which otherwise solvers alone see
from optsched.program.bounds import implied_bounds


def test_blocks_land_where_they_belong() -> None:
    lp = LinearProgram()
    x = lp.variables(2, name="x", upper=[1.0, 2.0], integer=[True, False])
    t = lp.variables(1, name="t", lower=-np.inf)
    A = sp.csr_matrix(np.array([[1.0, 2.0], [0.0, 3.0], [4.0, 0.0]]))
    lp.constrain(A @ x - np.array([[1.0], [2.0], [0.0]]) @ t + 5.0 <= [6.0, 7.0, 8.0], name="rows")
    lp.constrain(2.0 * x == t, name="broadcast")
    lp.constrain((-x + 1.0).between(-1.0, [0.5, np.inf]), name="range")
    lp.minimise(x.sum() * 3.0 + t - 1.0)
    arrays = lp.arrays
    assert arrays.A.toarray().tolist() == [
        [1, 2, -1], [0, 3, -2], [4, 0, 0], [2, 0, -1], [0, 2, -1], [-1, 0, 0], [0, -1, 0],
    ]  # fmt: skip
    assert arrays.row_upper.tolist() == [1, 2, 3, 0, 0, -0.5, np.inf]
    assert arrays.row_lower.tolist() == [-np.inf] * 3 + [0, 0, -2, -2]
    assert arrays.cost.tolist() == [3, 3, 1] and arrays.offset == -1.0 and not arrays.maximise
    assert arrays.integer.tolist() == [True, False, False] and arrays.is_integer
    assert [(block.name, block.start, block.stop) for block in arrays.rows] == [
        ("rows", 0, 3), ("broadcast", 3, 5), ("range", 5, 7),
    ]  # fmt: skip
    assert arrays.row_name(4) == ("broadcast", 1) and len(arrays.row_block("range")) == 2
    with pytest.raises(IndexError):
        arrays.row_name(7)
    with pytest.raises(KeyError):
        arrays.row_block("nothing")


def test_operators_from_both_sides() -> None:
    lp = LinearProgram()
    x = lp.variables(3, name="x")
    dense, sparse = np.arange(6.0).reshape(2, 3), sp.csc_matrix(np.arange(6.0).reshape(2, 3))
    for product in (dense @ x, sparse @ x, sp.csr_array(dense) @ x):
        assert product.rows == 2
    for relation in (1.0 - x <= 3.0, 1.0 - x <= 3.0, x * [1.0, 2.0, 3.0] >= np.ones(3)):
        assert relation.expression.rows == 3
    twice = dense @ (2.0 * x + 1.0)
    lp.constrain(twice <= 0.0, name="twice")
    assert lp.arrays.A.toarray().tolist() == (2 * dense).tolist()
    assert lp.arrays.row_upper.tolist() == (-dense.sum(axis=1)).tolist()


def test_mistakes_are_refused() -> None:
    lp = LinearProgram()
    x = lp.variables(3, name="x")
    with pytest.raises(UsageError, match="two blocks of the program are called 'x'"):
        lp.variables(1, name="x")
    with pytest.raises(ValueError, match="a matrix of 2 columns times 3 expressions"):
        np.ones((1, 2)) @ x
    with pytest.raises(ValueError, match=r"expressions of . and . rows do not fit"):
        x + np.ones((2, 3)) @ x
    with pytest.raises(TypeError, match="no truth value"):
        bool(0.0 <= x <= 1.0)
    for written in (lambda: x < 1.0, lambda: np.ones(3) > x):
        with pytest.raises(TypeError, match="rows of a program are written with <=, >= or =="):
            written()
    with pytest.raises(ValueError, match="an objective of 3 rows"):
        lp.maximise(x)


def test_an_empty_program_has_arrays() -> None:
    arrays = LinearProgram().arrays
    assert arrays.shape == (0, 0) and arrays.objective(np.zeros(0)) == 0.0


def test_arrays_follow_the_program() -> None:
    lp = LinearProgram()
    x = lp.variables(1, name="x")
    lp.maximise(x)
    assert lp.arrays.shape == (0, 1)
    lp.constrain(x <= 1.0, name="one")
    assert lp.arrays.shape == (1, 1)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_implied_bounds_contain_every_feasible_point(seed: int) -> None:
    """The range of each column over the polyhedron, by linear programs, lies within the implied bounds."""
    random = np.random.default_rng(seed)
    rows, columns = random.integers(1, 6), random.integers(1, 5)
    matrix = random.integers(-2, 4, (rows, columns)).astype(float) * (
        random.random((rows, columns)) < 0.8
    )
    inside = random.uniform(0, 3, columns)
    upper = np.where(
        random.random(rows) < 0.8, matrix @ inside + random.uniform(0, 2, rows), np.inf
    )
    lower = np.where(
        random.random(rows) < 0.3, matrix @ inside - random.uniform(0, 2, rows), -np.inf
    )
    column_lower = np.where(random.random(columns) < 0.7, 0.0, -np.inf)
    column_upper = np.where(random.random(columns) < 0.3, 4.0, np.inf)
    low, high = implied_bounds(sp.csc_matrix(matrix), lower, upper, column_lower, column_upper)
    constraint = so.LinearConstraint(matrix, lower, upper)
    for column in range(columns):
        for sign, bound in ((1.0, low[column]), (-1.0, high[column])):
            cost = np.zeros(columns)
            cost[column] = sign
            result = so.milp(
                cost, constraints=constraint, bounds=so.Bounds(column_lower, column_upper)
            )
            if result.status == 0:
                assert (
                    sign * result.fun * 1.0 >= sign * bound * 1.0 - 1e-6
                    if sign > 0
                    else -result.fun <= bound + 1e-6
                )
            else:
                assert np.isinf(bound)


def test_a_free_level_gets_its_bound_in_a_later_pass() -> None:
    lp = LinearProgram()
    x = lp.variables(2, name="x")
    t = lp.variables(1, name="t", lower=-np.inf)
    lp.constrain(x.sum() <= 1.0, name="time")
    lp.constrain(np.array([[3.0, 2.0]]) @ x - t >= 0.0, name="level")
    lp.maximise(t)
    assert lp.arrays.implied_upper.tolist() == [1.0, 1.0, 5.0]
