"""Rows of one round found again in the next, and put in order, as a dictionary and a sort by all keys would."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from optsched.arrays import SMALL_TABLE, find_rows
from optsched.candidates import JobRows

# Private names: single rules and files of a round, without a scheduler
from optsched.placement.instant import SCRAMBLE
from optsched.rounds.preemption import order_due

keys = st.lists(
    st.tuples(st.integers(0, 40), st.integers(-1, 2), st.sampled_from([0, 1, 10**18])), max_size=30
)


@given(keys, keys, st.booleans(), st.sampled_from([0, SMALL_TABLE]))
def test_rows_are_found_by_all_their_fields(
    known: list[tuple[int, ...]], more: list[tuple[int, ...]], own: bool, others: int
) -> None:
    wanted = more + known[::2]
    known = list(dict.fromkeys(known)) if own else known
    # A few rows are found by a dictionary, many by a table or by grouping.
    known += [(100 + row, 0, 0) for row in range(others)]
    first: dict[tuple[int, ...], int] = {}
    for row, key in enumerate(known):
        first.setdefault(key, row)
    table, asked = (np.array(part, np.int64).reshape(-1, 3) for part in (known, wanted))
    assert find_rows(table, asked).tolist() == [first.get(key, -1) for key in wanted]


few = st.sampled_from([0.0, 0.5, 1.0])


@given(
    st.lists(
        st.tuples(st.sampled_from([-np.inf, -1.0, 0.0, -0.0, 2.0, np.inf]), few, few, few, few),
        max_size=30,
    )
)
def test_rows_are_due_in_the_order_of_all_keys(rows: list[tuple[float, ...]]) -> None:
    due, group, rank, rate, fraction = np.array(rows).reshape(-1, 5).T
    number = np.arange(len(rows))
    made = JobRows(number, np.full(len(rows), -1), number, fraction, rate, np.zeros(len(rows)))
    expected = np.lexsort((number * SCRAMBLE % 1.0, -rate, -fraction, due, rank, group))
    assert order_due(made, due, group, rank).tolist() == expected.tolist()
    alike = np.zeros(len(rows))
    expected = np.lexsort((number * SCRAMBLE % 1.0, -rate, -fraction, due))
    assert order_due(made, due, alike, alike).tolist() == expected.tolist()
