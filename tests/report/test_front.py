"""The picture of a front: what it shows, what it leaves out, when there is none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import optsched
from optsched.errors import UsageError
from optsched.report import FrontLines, front_picture
from optsched.sensitivity import Front

mpl = pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def front() -> Front:
    return optsched.pareto("@quickstart", ("makespan", "cost"), points=6)


def marked(ax: Any, label: str) -> np.ndarray:
    (line,) = (line for line in ax.get_lines() if line.get_label().startswith(label))
    return np.array(line.get_xydata())


def test_points_ideal_and_nadir(front: Front) -> None:
    ax = front_picture(front)
    shown = np.array([point.objectives for point in front.points])[
        :-1
    ]  # the last one has no makespan
    shown = shown / [3600.0, 1.0]
    assert marked(ax, "optimal") == pytest.approx(shown)
    assert marked(ax, "ideal")[0] == pytest.approx([shown[0, 0], 0.0])
    assert marked(ax, "nadir")[0] == pytest.approx([shown[-1, 0], shown[0, 1]])
    assert ax.get_xlabel() == "makespan, h (less is better)"
    assert ax.get_ylabel() == "cost, USD/h (less is better)"
    assert ax.get_title(loc="left") == "quickstart: makespan against cost"
    subtitle = FrontLines.of(front).subtitle
    assert (
        subtitle
        == "5 compromises; each optimal and certified; 1 outside: an objective does not exist there"
    )
    assert (
        len([text for text in ax.texts if ", " in text.get_text() and ";" not in text.get_text()])
        == 5
    )


def test_many_points_have_numbers_at_the_ends_alone() -> None:
    ax = front_picture(
        optsched.pareto("@quickstart", ("max-min-fairness", "max-throughput"), points=20)
    )
    assert len([text for text in ax.texts if ", " in text.get_text()]) == 2


def test_whole_jobs_are_not_joined() -> None:
    pair = (("max-throughput", {"integral": True}), "cost")
    lines = FrontLines.of(optsched.pareto("@quickstart", pair, points=5))
    assert not lines.joined and lines.proved.all()


def test_axes_of_one_s_own(front: Front) -> None:
    from matplotlib.figure import Figure

    ax = Figure().add_subplot()
    assert front_picture(front, ax) is ax


def test_nothing_to_draw() -> None:
    with pytest.raises(UsageError, match="there is no front to draw: it has no points"):
        front_picture(optsched.pareto("@infeasible", ("makespan", "max-throughput")))
