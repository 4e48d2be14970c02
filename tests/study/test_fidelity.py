"""The gate on fidelity: rounds against published simulators (docs/studies/simulation-results.md)."""

from __future__ import annotations

import pytest
from fidelity import CAUSES, RUNS, Compared, every_row


@pytest.mark.study
@pytest.mark.skipif(not RUNS.is_dir(), reason="the oracles are not beside this checkout")
@pytest.mark.parametrize("setting", ["single60", "multi60", "shockwave"])
def test_every_row_holds_or_has_its_cause(setting: str) -> None:
    """A cause of a row that holds has to go too."""
    rows = list(every_row(lambda name: name.startswith(f"{setting}/")))
    assert rows
    found = {row.name: row.worse for row in rows if row.worse}
    assert set(found) == {name for name in CAUSES if name.startswith(f"{setting}/")}, found


@pytest.mark.parametrize(
    ("ours", "more", "worse", "holds"),
    [
        (103.0, False, 0.03, False),
        (101.0, False, 0.01, True),
        (90.0, False, -0.1, True),
        (97.0, True, 0.03, False),
        (150.0, True, -0.5, True),
    ],
)
def test_what_is_worse(ours: float, more: bool, worse: float, holds: bool) -> None:
    one = Compared("a figure", 100.0, ours, more)
    assert one.worse == pytest.approx(worse) and one.holds == holds
