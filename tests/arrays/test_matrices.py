"""Sparse matrices from arrays against what scipy makes of triples."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from optsched import arrays

# Private names: helpers that only other helpers on arrays call
from optsched.arrays.matrices import (
    index_type,
    largest_of_rows,
    one_per_column,
    rows_in_order,
    same_places,
    scaled_rows,
)


@pytest.fixture(params=[3, 2**16], autouse=True)
def block(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "BLOCK", request.param)


def same(one: sp.csr_matrix, other: sp.csr_matrix) -> None:
    assert one.shape == other.shape
    for name in ("data", "indices", "indptr"):
        mine, theirs = getattr(one, name), getattr(other, name)
        assert mine.tolist() == theirs.tolist()
        assert mine.dtype == theirs.dtype
    assert one.has_canonical_format


@pytest.mark.parametrize("rows", [1, 4, 300, 70_000])
@pytest.mark.parametrize("columns", [0, 1, 2, 25])
def test_one_entry_in_each_column(rows: int, columns: int) -> None:
    random = np.random.default_rng([rows, columns])
    row, entry = random.integers(0, rows, 6), random.random(6)
    sort = random.integers(0, 6, columns)
    where = (row[sort], np.arange(columns))
    same(
        one_per_column(row, entry, sort, rows),
        sp.csr_matrix((entry[sort], where), shape=(rows, columns)),
    )


@pytest.mark.parametrize("columns", [0, 1, 25])
def test_rows_in_order(columns: int) -> None:
    random = np.random.default_rng(columns)
    row, data = np.sort(random.integers(0, 9, columns)), random.random(columns)
    made = rows_in_order(row, data, (9, columns))
    same(made, sp.csr_matrix((data, (row, np.arange(columns))), shape=(9, columns)))
    assert np.shares_memory(made.data, data) or columns == 0


def test_scaled_rows_keep_the_places_and_the_largest_of_rows_is_at_least_0() -> None:
    matrix = sp.csr_matrix(np.array([[0.0, 2.0, 5.0], [0.0, 0.0, 0.0], [-3.0, 0.0, -1.0]]))
    factor = np.array([0.5, 7.0, 2.0])
    scaled = scaled_rows(matrix, factor)
    assert scaled.toarray().tolist() == (factor[:, None] * matrix.toarray()).tolist()
    assert np.shares_memory(scaled.indices, matrix.indices)
    assert largest_of_rows(matrix.indptr, matrix.data).tolist() == [5.0, 0.0, 0.0]
    assert largest_of_rows(np.zeros(3, np.int64), np.zeros(0)).tolist() == [0.0, 0.0]
    same(same_places(matrix, np.ones(4)), sp.csr_matrix((matrix.toarray() != 0).astype(float)))


def test_indices_of_64_bits_only_where_they_must_be() -> None:
    assert index_type(5, 2**31 - 1) == np.int32
    assert index_type(5, 2**31) == np.int64
