"""Grouping, ranges and lookup against their naive definitions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from optsched import arrays
from optsched.arrays import (
    AnyArray,
    IntArray,
    constant,
    find_sorted,
    group_rows,
    increases,
    is_constant,
    is_range,
    joined,
    lengths,
    pointers,
    ranges,
    refined,
    rows_where,
    take_rows,
)

QUICK = settings(max_examples=60, deadline=None, derandomize=True)

few_floats = st.sampled_from(
    [0.0, -0.0, 1.0, -1.0, 1.5, np.inf, -np.inf, 5e-324, 1e308, 0.1 + 0.2, 0.3]
)
COLUMNS: list[tuple[Any, st.SearchStrategy[Any] | None]] = [
    (np.float64, few_floats),
    (np.float64, st.floats(allow_nan=False)),
    (np.float32, st.floats(allow_nan=False, width=32)),
    (np.int64, st.integers(-2, 2)),
    (np.int64, st.integers(-(2**63), 2**63 - 1)),
    (np.uint64, st.integers(0, 3) | st.integers(2**64 - 3, 2**64 - 1)),
    (np.int8, None),
    (np.bool_, None),
]


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[AnyArray], int]:
    length = draw(st.integers(0, 12))
    kinds = draw(st.lists(st.sampled_from(COLUMNS), max_size=4))
    return [draw(hnp.arrays(dtype, length, elements=elements)) for dtype, elements in kinds], length


def naive_groups(columns: list[AnyArray], length: int) -> tuple[list[int], list[int], list[int]]:
    """By a dict from rows; 0.0 and -0.0 are equal and hash alike in Python."""
    numbers: dict[tuple[Any, ...], int] = {}
    first: list[int] = []
    inverse: list[int] = []
    for row in range(length):
        key = tuple(column[row].item() for column in columns)
        if key not in numbers:
            numbers[key] = len(first)
            first.append(row)
        inverse.append(numbers[key])
    return first, inverse, [inverse.count(group) for group in range(len(first))]


def check_groups(columns: list[AnyArray], length: int) -> None:
    groups = group_rows(columns, length)
    first, inverse, count = naive_groups(columns, length)
    assert len(groups) == len(first)
    for array, expected in (
        (groups.first, first),
        (groups.inverse, inverse),
        (groups.count, count),
    ):
        assert array.tolist() == expected
        assert array.dtype == np.int64


@pytest.fixture
def no_dictionary(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows are grouped by the ways of many."""
    monkeypatch.setattr(arrays, "A_FEW_ROWS", 0)


@QUICK
@given(tables())
def test_groups_of_few_rows(table: tuple[list[AnyArray], int]) -> None:
    check_groups(*table)


@pytest.mark.property
def test_groups(no_dictionary: None) -> None:
    @QUICK
    @given(tables())
    def check(table: tuple[list[AnyArray], int]) -> None:
        check_groups(*table)

    check()


@pytest.fixture(params=["all alike", "two values"])
def colliding_hash(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, no_dictionary: None
) -> None:
    def poor_hash(columns: list[AnyArray]) -> AnyArray:
        same = np.zeros(len(columns[0]), np.uint64)
        return (
            same
            if request.param == "all alike"
            else same + arrays._as_bits(columns[0]) % np.uint64(2)
        )

    monkeypatch.setattr(arrays, "hash_rows", poor_hash)


@pytest.mark.property
def test_groups_when_hashes_collide(colliding_hash: None) -> None:
    @QUICK
    @given(tables())
    def check(table: tuple[list[AnyArray], int]) -> None:
        check_groups(*table)

    check()


def test_the_forced_collision_is_one(colliding_hash: None, monkeypatch: pytest.MonkeyPatch) -> None:
    called = []
    sort = arrays._group_by_sorting
    monkeypatch.setattr(arrays, "_group_by_sorting", lambda bits: called.append(bits) or sort(bits))
    check_groups([np.array([4.0, 2.0, 0.0, 2.0]), np.array([1, 1, 0, 1])], 4)
    assert called


def test_groups_of_many_rows() -> None:
    rng = np.random.default_rng(0)
    columns: list[AnyArray] = [
        rng.integers(0, 30, 5000),
        rng.integers(0, 7, 5000) / 7,
        rng.random(5000) < 0.5,
    ]
    check_groups(columns, 5000)


@pytest.mark.parametrize("block", [1, 2, 3, 7, 2**16])
def test_groups_whatever_the_size_of_blocks(
    block: int, monkeypatch: pytest.MonkeyPatch, no_dictionary: None
) -> None:
    monkeypatch.setattr(arrays, "BLOCK", block)

    @QUICK
    @given(tables())
    def check(table: tuple[list[AnyArray], int]) -> None:
        check_groups(*table)

    check()
    rng = np.random.default_rng(1)
    check_groups([rng.integers(0, 3, 40), rng.integers(-2, 2, 40)], 40)  # few numbers: by a table
    check_groups([rng.random(40), rng.permutation(40)], 40)
    check_groups([np.arange(40) // 2, np.arange(40) % 2 * 0.5], 40)


def test_rows_are_apart_where_a_column_increases() -> None:
    groups = group_rows([np.zeros(3), np.array([-0.5, 0.0, 7.0])], 3)
    assert groups.first.tolist() == groups.inverse.tolist() == [0, 1, 2]
    assert groups.count.tolist() == [1, 1, 1]
    with pytest.raises(ValueError, match="read-only"):
        groups.inverse[0] = 1
    check_groups([np.array([0.0, -0.0])], 2)
    check_groups([np.array([1, 2, 2, 3])], 4)


def test_constant_columns_take_the_memory_of_one_row_and_stay_constant() -> None:
    ones = constant(1.5, 4, np.float64)
    assert ones.tolist() == [1.5] * 4
    assert is_constant(ones)
    assert not is_constant(np.ones(4))
    for rows in (np.array([0, 3, 3]), np.array([True, True, False, True]), np.zeros(0, np.int64)):
        assert is_constant(take_rows(ones, rows)) or len(take_rows(ones, rows)) == 0
        assert take_rows(ones, rows).tolist() == ones.copy()[rows].tolist()
    with pytest.raises(IndexError):
        take_rows(constant(0, 0, np.int64), np.array([0]))
    assert len(group_rows([ones, constant(3, 4, np.int64)], 4)) == 1


def test_joined_columns() -> None:
    one, two, nan = (
        constant(1.0, 2, np.float64),
        constant(2.0, 1, np.float64),
        constant(np.nan, 2, np.float64),
    )
    assert is_constant(joined([one, np.zeros(0), one]))
    assert is_constant(joined([nan, nan]))
    assert joined([one, two]).tolist() == [1.0, 1.0, 2.0]
    assert joined([one, np.array([1.0])]).tolist() == [1.0, 1.0, 1.0]
    array = np.array([3.0, 4.0])
    assert joined([np.zeros(0), array]) is array
    assert joined([np.zeros(0), np.zeros(0)]).tolist() == []


@QUICK
@given(st.lists(st.integers(-3, 6), max_size=8), st.sampled_from([1, 2, 3, 2**16]))
def test_increases_and_ranges_of_rows(values: list[int], block: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrays, "BLOCK", block)
        column = np.array(values, np.int64)
        assert increases(column) == (values == sorted(set(values)))
        assert increases(column[::-1]) == (values[::-1] == sorted(set(values)))
        for count in (len(values), len(values) + 1):
            assert is_range(column, count) == (values == list(range(count)))
            assert is_range(np.arange(count), count)


def test_groups_keep_the_order_of_first_appearance() -> None:
    groups = group_rows([np.array([5, 3, 5, 9, 3])], 5)
    assert groups.first.tolist() == [0, 1, 3]
    assert groups.inverse.tolist() == [0, 1, 0, 2, 1]
    assert groups.count.tolist() == [2, 2, 1]


@QUICK
@given(st.lists(st.integers(0, 3000), min_size=2, max_size=40, unique=True), st.data())
def test_groups_of_rows_that_one_column_tells_apart(
    numbers: list[int], data: st.DataObject
) -> None:
    rows = data.draw(st.lists(st.integers(0, len(numbers) - 1), min_size=1, max_size=60))
    weight = np.array(
        data.draw(
            st.lists(st.sampled_from([1.0, 2.0]), min_size=len(numbers), max_size=len(numbers))
        )
    )
    columns = [np.array(numbers)[rows], weight[rows], np.array(numbers)[rows] * 10**6]
    check_groups(columns, len(rows))
    columns[1] = columns[1].copy()
    columns[1][-1] = 3.0  # one that differs from others with its number, if there are any
    check_groups(columns, len(rows))


@QUICK
@given(tables())
def test_groups_made_one_after_the_other(table: tuple[list[AnyArray], int]) -> None:
    columns, length = table
    groups = group_rows(columns[:1], length)
    first, inverse, count = naive_groups(columns, length)
    some = refined(groups, columns[1:])
    assert (some.first.tolist(), some.inverse.tolist(), some.count.tolist()) == (
        first,
        inverse,
        count,
    )
    assert {array.dtype for array in (some.first, some.inverse, some.count)} == {np.dtype(np.int64)}


@QUICK
@given(st.permutations(list(range(2, 40))), st.booleans())
def test_groups_of_numbers_that_all_differ(numbers: list[int], twice: bool) -> None:
    column = np.array([*numbers, *numbers[:1]] if twice else numbers)
    check_groups([column, np.zeros(len(column)), np.arange(len(column)) // 2 * 1.0], len(column))
    check_groups([column.astype(np.int8)], len(column))


def test_zeros_of_both_signs_are_equal_and_neighbours_are_not() -> None:
    assert len(group_rows([np.array([0.0, -0.0])], 2)) == 1
    assert len(group_rows([np.array([1.0, np.nextafter(1.0, 2)])], 2)) == 2
    assert len(group_rows([np.array([0.0, 5e-324])], 2)) == 2


def test_groups_of_a_table_without_columns() -> None:
    groups = group_rows([], 3)
    assert (groups.first.tolist(), groups.inverse.tolist(), groups.count.tolist()) == (
        [0],
        [0, 0, 0],
        [3],
    )
    assert len(group_rows([], 0)) == 0
    assert len(group_rows([np.zeros(0)], 0)) == 0


def test_columns_of_a_matrix_are_left_as_they_are() -> None:
    matrix = np.array([[1.0, -0.0], [1.0, 0.0], [2.0, -0.0]])
    before = matrix.tobytes()
    check_groups([matrix[:, 0], matrix[:, 1]], 3)
    check_groups([matrix[::2, 0], np.array([1, 9, 1, 9])[::2]], 2)
    assert matrix.tobytes() == before


def test_columns_are_told_apart() -> None:
    """(1, 2) and (2, 1) differ, as do equal numbers in other columns."""
    check_groups([np.array([1, 2, 0]), np.array([2, 1, 3]), np.array([0, 0, 0])], 3)


@QUICK
@given(st.lists(st.tuples(st.integers(-50, 50), st.integers(0, 6)), max_size=10))
def test_ranges(pairs: list[tuple[int, int]]) -> None:
    start: IntArray = np.array([first for first, _ in pairs], np.int64)
    length: IntArray = np.array([count for _, count in pairs], np.int64)
    result = ranges(start, length)
    assert result.tolist() == [first + i for first, count in pairs for i in range(count)]
    assert result.dtype == np.int64


@QUICK
@given(
    st.lists(st.integers(-20, 20), max_size=12, unique=True),
    st.lists(st.integers(-25, 25), max_size=12),
)
def test_find_sorted(keys: list[int], wanted: list[int]) -> None:
    keys.sort()
    found = find_sorted(np.array(keys, np.int64), np.array(wanted, np.int64))
    assert found.tolist() == [keys.index(key) if key in keys else -1 for key in wanted]
    assert found.dtype == np.int64


def test_find_sorted_beyond_both_ends() -> None:
    keys = np.array([-(2**63), 0, 2**63 - 1])
    wanted = np.array([-(2**63), -(2**63) + 1, 2**63 - 2, 2**63 - 1])
    assert find_sorted(keys, wanted).tolist() == [0, -1, -1, 2]


def test_find_sorted_with_repeated_keys_finds_the_first() -> None:
    assert find_sorted(np.array([1, 1, 2, 2, 2]), np.array([2, 1])).tolist() == [2, 0]


@QUICK
@given(st.lists(st.integers(0, 5), max_size=9))
def test_pointers_say_where_lists_of_these_lengths_are(length: list[int]) -> None:
    found = pointers(length)
    assert found.tolist() == [sum(length[:row]) for row in range(len(length) + 1)]
    assert lengths(found).tolist() == length
    assert pointers(np.array(length, np.int64), np.int32).dtype == np.int32
    assert pointers(np.array(length) > 2)[-1] == sum(one > 2 for one in length)


def test_rows_where_a_mask_is_true() -> None:
    column = np.array([3.0, 4.0, 5.0])
    some, every = np.array([True, False, True]), np.ones(3, bool)
    assert take_rows(column, rows_where(some)).tolist() == [3.0, 5.0]
    assert take_rows(column, rows_where(every)) is column
