"""Which rows run where few jobs may be displaced."""

from __future__ import annotations

import numpy as np
import pytest

import optsched
from optsched.rounds.rows import rows_alone, uses_of
from optsched.rounds.selection import Claims, displaced, select


@pytest.mark.parametrize(("most", "runs"), [(0, "ac"), (1, "ac"), (2, "aw")])
def test_of_two_that_part_only_one_can_stay(most: int, runs: str) -> None:
    # a and b share a GPU, c has another, and w comes before b and c: b has to leave, and c must not leave as well.
    document = {
        "format": "optsched-instance/1", "cluster": {"pools": [{"name": "p", "nodes": 1, "gpus_per_node": 2}]},
        "jobs": [{"id": name, "steps": 1.0, "throughput": {"p": 1.0}} for name in "abcw"],
    }  # fmt: skip
    classes = optsched.compile(optsched.Instance.from_document(document)).classes(frozenset())
    rows = rows_alone(classes, np.arange(4))
    order = np.array([int(np.flatnonzero(rows.job == "abcw".index(name))[0]) for name in "awbc"])
    nobody, sharing = np.zeros(4, bool), np.array([1, 0, -1, -1])
    claims = Claims(
        classes,
        rows,
        order,
        rows.job < 3,
        nobody,
        nobody,
        nobody,
        sharing,
        np.full(1, 1.0),
        uses_of(classes),
    )
    chosen = select(claims, most)
    assert "".join(sorted("abcw"[job] for job in rows.job[chosen].tolist())) == runs
    assert displaced(claims, chosen).sum() == max(most, 1)
