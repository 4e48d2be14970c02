"""How far a sweep is, in words."""

from __future__ import annotations

import time
from typing import Any

import pytest

from optsched.benchmarking import SweepProgress, Task

# Private names: parts of a command are checked without a command line
from optsched.cli import progress as lines
from optsched.cli.shell import Shell


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> float:
    """A clock that does not go on."""
    monkeypatch.setattr(time, "monotonic", lambda: 1000.0)
    return 1000.0


def test_the_words(now: float) -> None:
    progress = SweepProgress(40, done=12, resumed=2, failed=1, started=now - 30.0)
    assert (
        lines.sweep_words(progress)
        == "12 of 40 tasks done, 1 without an answer, 30 s, about 84 s left"
    )
    fresh = SweepProgress(40, done=2, resumed=2, started=now - 30.0)
    assert lines.sweep_words(fresh) == "2 of 40 tasks done, 30 s"


def test_what_is_under_way(now: float) -> None:
    one = Task.of(
        {"x": 1},
        {"instance": "@quickstart", "formulation": "makespan", "solver": "highs", "seed": 0},
    )
    two = Task.of({"x": 2}, {"trace": "t.json", "policy": "fifo"})
    progress = SweepProgress(3, running={two: now - 1.0, one: now - 3.0})
    assert lines.under_way(progress) == "; now @quickstart makespan highs (3 s) and 1 more"
    assert lines.under_way(SweepProgress(3)) == ""


@pytest.mark.clock
@pytest.mark.parametrize("quiet", [False, True])
def test_where_there_is_no_terminal(
    quiet: bool, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "ELSEWHERE", 0.02)
    with lines.sweep_progress(Shell(quiet=quiet)) as on_start:
        on_start(SweepProgress(5, done=1), ["take care"])
        time.sleep(0.1)
    told = capsys.readouterr().err.splitlines()
    if quiet:
        assert told == []
    else:
        assert told[0] == "optsched: take care"
        assert len(told) >= 3 and all(
            item.startswith("optsched: 1 of 5 tasks done, ") for item in told[1:]
        )
