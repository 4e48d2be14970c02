"""What rows hold beyond others: against whole tables."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

# Private name: rounds reckon with the uses of class columns
from optsched.candidates.row_uses import RowUses


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("one_each", [True, False])
def test_what_rows_hold_beyond_others(seed: int, one_each: bool) -> None:
    random = np.random.default_rng(seed)
    table = random.random((6, 4)) * (random.random((6, 4)) < 0.6)
    if one_each:
        table = table.max(axis=1, keepdims=True) * np.eye(4)[random.integers(0, 4, 6)] + 1e-3
        table *= table > 2e-3
    uses = RowUses.of(sp.csc_matrix(table.T))
    rows = random.integers(0, 6, 9)
    others = random.integers(0, 7, 9)
    less = np.vstack([table, np.zeros(4)])[others]
    more = uses.beyond(rows, others)
    found = np.zeros((9, 4))
    found[more.row, more.resource] = more.share
    assert (found == np.maximum(table[rows] - less, 0.0)).all()
    assert len(more) == 9 and (more.share > 0).all()
    nobody = uses.beyond(rows, np.full(9, 6))
    assert nobody.share.tolist() == uses.take(rows).share.tolist()
