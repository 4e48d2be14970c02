"""Pictures of traces: what they show, and when there is nothing to show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from optsched import Instance
from optsched.errors import UsageError
from optsched.report import (
    arrivals_picture,
    durations_picture,
    gangs_picture,
    load_picture,
    save_picture,
    trace_page,
)
from optsched.traces import Trace, TraceSummary, describe

pytestmark = pytest.mark.picture

mpl = pytest.importorskip("matplotlib")


def summary(count: int = 400, hours: float = 10.0, **more: Any) -> TraceSummary:
    random = np.random.default_rng(1)
    given: dict[str, Any] = {
        "pools": {"a": 64},
        "throughput": np.ones((count, 1)),
        "gpus": random.choice([1, 2, 4], count),
        "steps": random.lognormal(7, 2, count),
        "arrival": np.sort(random.uniform(0, hours * 3600, count)),
    }
    return describe(Trace(Instance.from_arrays(**given | more)))


def heights(ax: Any) -> np.ndarray:
    return np.asarray(ax.patches[0].get_data().values)


def test_the_bars_are_arrivals_per_hour() -> None:
    found = summary()
    ax = arrivals_picture(found)
    assert heights(ax).sum() * 300 / 3600 == pytest.approx(400)  # bars of 5 minutes
    assert ax.get_xlabel() == "time since the first arrival, h"


def test_the_bars_of_the_load_add_up_to_the_demand() -> None:
    found = summary()
    assert heights(load_picture(found)).sum() * 64 * 300 / 3600 == pytest.approx(found.gpu_hours)


def test_lines_of_durations_end_at_1() -> None:
    ax = durations_picture(summary())
    for line in ax.get_lines():
        assert line.get_ydata()[-1] == pytest.approx(1.0)
        assert (np.diff(line.get_ydata()) >= 0).all()


def test_many_sizes_of_gangs_share_a_bar() -> None:
    ax = gangs_picture(summary(gpus=np.arange(400) % 30 + 1))
    labels = [label.get_text() for label in ax.get_xticklabels()]
    assert len(labels) == 12 and labels[-1] == "other"
    shares = [bar.get_height() for bar in ax.containers[0]]
    assert sum(shares) == pytest.approx(1.0)


@pytest.mark.parametrize(
    "more",
    [
        {"count": 1},
        {"hours": 0.0},
        {"hours": 5e4},
        {"gpus": 99},
        {"throughput": np.zeros((400, 1))},
    ],
)
def test_pages_of_odd_traces(more: dict[str, Any], tmp_path: Path) -> None:
    save_picture(trace_page(summary(**more)), tmp_path / "page.svg")
    assert (tmp_path / "page.svg").stat().st_size > 10_000


def test_the_same_trace_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one.png", "two.png"):
        save_picture(trace_page(summary(40)), tmp_path / name)
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "two.png").read_bytes()


@pytest.mark.unit
def test_nothing_to_draw() -> None:
    empty = describe(Trace(Instance.from_arrays(pools={"a": 1}, throughput=np.zeros((0, 1)))))
    with pytest.raises(UsageError, match="the trace has no jobs"):
        trace_page(empty)
