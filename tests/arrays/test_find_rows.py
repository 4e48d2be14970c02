"""Rows of a table that are looked up in another one, against a dictionary."""

from __future__ import annotations

import numpy as np
import pytest

from optsched.arrays import find_rows, rows_of_table, table_of


@pytest.mark.parametrize("length", [40, 2000])
@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("most", [1, 3, 2**62])
def test_rows_are_found_as_by_a_dictionary(length: int, twice: bool, most: int) -> None:
    """Fields that are all alike, or too wide for a lookup table, and known rows that come twice."""
    random = np.random.default_rng(length + most % 7)
    job = random.permutation(length) // (2 if twice else 1)
    known = table_of(job, np.full(length, -1), random.integers(0, most, length), job % 3)
    wanted = known[random.integers(0, length, length // 2)]
    changed = random.random(wanted.shape) < 0.1
    wanted[changed] += 1
    rows: dict[tuple[int, ...], int] = {}
    for place, row in enumerate(known.tolist()):
        rows.setdefault(tuple(row), place)
    expected = [rows.get(tuple(row), -1) for row in wanted.tolist()]
    assert -1 in expected and max(expected) >= 0
    assert find_rows(known, wanted).tolist() == expected
    assert find_rows(np.ascontiguousarray(known), wanted).tolist() == expected


def test_a_table_keeps_each_field_in_one_piece() -> None:
    table = table_of(np.arange(4), np.arange(8).reshape(4, 2))
    taken = rows_of_table(table, np.array([3, 0]))
    assert table.tolist() == [[0, 0, 1], [1, 2, 3], [2, 4, 5], [3, 6, 7]]
    assert taken.tolist() == [[3, 6, 7], [0, 0, 1]]
    assert table.T.flags.c_contiguous and taken.T.flags.c_contiguous
