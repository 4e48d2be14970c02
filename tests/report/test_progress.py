"""Incumbent and bound over time: recorded, shifted, drawn."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import optsched
from optsched.errors import UsageError
from optsched.generate import generate
from optsched.report import ProgressLines, ProgressRecorder, progress_picture

# Private names: what a picture or a page is made of, before it is drawn
from optsched.report.progress import MOST_EVENTS
from optsched.solvers import Progress, clarabel

mpl = pytest.importorskip("matplotlib")

EVENTS = [
    Progress(1.0, None, 10.0),
    Progress(2.0, 4.0, 9.0),
    Progress(5.0, 6.0, 9.0),
    Progress(8.0, 8.0, 8.5),
]


def knapsack() -> optsched.Instance:
    """An integer program that takes some seconds to prove."""
    random = np.random.default_rng(0)
    uses = random.integers(10, 1000, (60, 8)).astype(float)
    value = uses.mean(axis=1) + 500 * random.random(60)
    document = {
        "format": "optsched-instance/1",
        "cluster": {
            "pools": [{"name": "p", "nodes": 1, "gpus_per_node": 1}],
            "resources": [{"name": f"r{k}", "capacity": float(uses[:, k].sum() // 2)} for k in range(8)],
        },
        "jobs": [
            {"id": f"j{i}", "options": [{"pool": None, "throughput": float(value[i]),
                                         "uses": {f"r{k}": float(uses[i, k]) for k in range(8)}}]}
            for i in range(60)
        ],
    }  # fmt: skip
    return optsched.Instance.from_document(document)


def texts(ax: Any) -> str:
    return "\n".join(text.get_text() for text in ax.figure.findobj(mpl.text.Text))


@pytest.mark.clock
def test_a_real_search_is_recorded_in_the_units_of_the_objective() -> None:
    recorder = ProgressRecorder()
    solution = optsched.solve(
        knapsack(), "max-throughput", integral=True, time_limit=0.8, on_progress=recorder
    )
    assert len(recorder.events) >= 2
    for event in recorder.events:
        assert event.bound is not None
        assert solution.bound <= event.bound * (1 + 1e-9)
        assert event.incumbent is None or event.incumbent <= solution.objective * (1 + 1e-9)
        assert event.bound <= 1.1 * solution.objective  # not those of the scaled program
    lines = ProgressLines.of_solution(solution, recorder.events)
    assert lines.incumbent[-1] == solution.objective
    assert lines.bound[-1] == solution.bound
    assert lines.gap == solution.gap
    assert lines.axis == "total throughput, steps/s"
    ax = progress_picture(lines)
    assert f"gap {100 * solution.gap:.2g} % after" in texts(ax)


def test_steps_hold_until_the_next_event() -> None:
    ax = progress_picture(EVENTS)
    lines = {line.get_label(): line for line in ax.lines}
    assert lines["bound"].get_drawstyle() == lines["incumbent"].get_drawstyle() == "steps-post"
    assert lines["bound"].get_ydata().tolist() == [10.0, 9.0, 9.0, 8.5]
    np.testing.assert_array_equal(lines["incumbent"].get_ydata(), [np.nan, 4.0, 6.0, 8.0])
    assert (
        lines["bound"].get_linestyle() != lines["incumbent"].get_linestyle()
    )  # not by colour alone
    assert "gap 6.2 % after 8 s" in texts(ax)
    (gap,) = [item for item in ax.collections if item.get_label() == "gap"]
    edges = gap.get_paths()[0].vertices
    assert (edges[:, 0].min(), edges[:, 0].max()) == (2.0, 8.0)
    assert (edges[:, 1].min(), edges[:, 1].max()) == (4.0, 9.0)


def test_a_clock_that_goes_back_is_a_new_run() -> None:
    again = [*EVENTS, Progress(0.5, 7.0, 9.0), Progress(3.0, 8.0, 8.0), Progress(1.0, 8.0, 8.0)]
    lines = ProgressLines.of_events(again)
    assert lines.elapsed.tolist() == [1, 2, 5, 8, 8.5, 11, 12]
    assert lines.runs == (8.0, 11.0)
    assert "3 runs" in lines.subtitle
    ruled = [
        line.get_xdata()[0] for line in progress_picture(again).lines if len(line.get_xdata()) == 2
    ]
    assert ruled == [8.0, 11.0]


def test_long_times_are_in_hours() -> None:
    solution = optsched.solve("@quickstart", "makespan")
    told = [Progress(0.1, 1e5, None), Progress(0.2, 5e4, 2.5e4)]
    lines = ProgressLines.of_solution(solution, told)
    np.testing.assert_allclose(lines.incumbent[:2] * 3600, [1e5, 5e4])
    assert lines.bound[1] * 3600 == pytest.approx(25_000)
    assert lines.title == "quickstart: progress of highs"
    assert lines.axis == "makespan, h"
    assert lines.elapsed[-1] == 0.2


def test_without_a_bound_no_gap_is_told() -> None:
    ax = progress_picture([Progress(0.0, 3.0, None), Progress(400.0, 4.0, None)])
    assert "no gap is known" in texts(ax)
    assert ax.get_xlabel() == "time, min"


def test_one_event_is_enough_for_a_picture() -> None:
    ax = progress_picture([Progress(0.0, 0.0, 0.0)])
    assert "gap 0 % after 0 ms" in texts(ax)
    assert ax.get_ylim()[0] < 0 < ax.get_ylim()[1]


def test_far_values_at_the_start_run_out_of_the_picture() -> None:
    events = [
        Progress(float(row), 100.0 + row / 40, 1e9 if row == 0 else 102 - row / 40)
        for row in range(40)
    ]
    low, high = progress_picture(events).get_ylim()
    assert 99 < low < 100
    assert 102 < high < 103


@pytest.mark.parametrize("events", [[], [Progress(1.0, None, None, "linear program")]])
def test_without_values_there_is_no_picture(events: list[Progress]) -> None:
    with pytest.raises(
        UsageError, match="neither an incumbent nor a bound: there is no progress to draw"
    ):
        progress_picture(events)


def test_the_recorder_stays_small() -> None:
    recorder = ProgressRecorder()
    for row in range(1000):
        recorder(Progress(row / 10, 5.0, 9.0 if row < 900 else 8.0))
    assert [(event.elapsed, event.bound) for event in recorder.events] == [
        (0.0, 9.0),
        (89.9, 9.0),
        (90.0, 8.0),
        (99.9, 8.0),
    ]
    for row in range(3 * MOST_EVENTS):
        recorder(Progress(100.0 + row, 5.0, 8.0 - row * 1e-6))
    assert len(recorder.events) <= MOST_EVENTS + 1
    assert recorder.events[0].elapsed == 0.0
    assert recorder.events[-1].elapsed == 100.0 + 3 * MOST_EVENTS - 1
    assert progress_picture(recorder.events).lines


def test_the_recorder_takes_events_from_any_thread() -> None:
    recorder = ProgressRecorder()
    threads = [
        threading.Thread(target=lambda k=k: [recorder(Progress(r, k, r)) for r in range(200)])
        for k in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(recorder.events) == 800


@pytest.mark.parametrize(
    "events", [[Progress(0.0, 3.0, 3.0)], [Progress(1.0, None, 4.0), Progress(2.0, None, None)]]
)
def test_one_moment_has_words_in_the_place_of_lines_and_of_a_legend(events: list[Progress]) -> None:
    ax = progress_picture(events)
    assert "nothing was reported before the end" in texts(ax)
    assert ax.get_legend() is None


def test_the_legend_names_only_lines_that_are_there() -> None:
    def named(*events: Progress) -> list[str]:
        legend = progress_picture(events).get_legend()
        return [] if legend is None else [text.get_text() for text in legend.get_texts()]

    assert named(Progress(0.0, 3.0, None), Progress(4.0, 4.0, None)) == ["incumbent"]
    assert named(Progress(0.0, None, 9.0), Progress(4.0, None, 8.0)) == ["bound"]
    assert named(Progress(0.0, 3.0, 9.0), Progress(4.0, 4.0, 8.0)) == ["bound", "incumbent", "gap"]


def test_the_primal_integral_is_the_area_between_incumbent_and_best() -> None:
    """1 until the first incumbent at 2 s, then 4 and 6 in the place of 8: 2 + 3 * 1/2 + 3 * 1/4."""
    lines = ProgressLines.of_events(EVENTS)
    assert lines.primal_integral() == pytest.approx(2.0 + 1.5 + 0.75)
    assert lines.primal_integral(-1.0) == pytest.approx(8.0)
    with pytest.raises(UsageError, match="name the best objective"):
        ProgressLines.of_events([Progress(1.0, None, 10.0)]).primal_integral()


@pytest.mark.property
def test_the_search_of_assignments_reports_its_incumbents() -> None:
    recorder = ProgressRecorder()
    instance = generate("gap", jobs=40, agents=5, type="d", seed=1).instance
    solution = optsched.solve(instance, "gap", work_limit=1, on_progress=recorder)
    found = [event for event in recorder.events if event.words == "search of assignments"]
    assert len(found) > 1 and solution.objective is not None
    costs = [event.incumbent for event in found if event.incumbent is not None]
    assert costs == sorted(costs, reverse=True) and costs[-1] == pytest.approx(solution.objective)


@pytest.mark.parametrize("program", ["assignment", "timeline"])
def test_progress_is_in_units_of_the_objective(program: str) -> None:
    instance = generate("unrelated", jobs=12, machines=3, seed=1).instance
    recorder = ProgressRecorder()
    best = optsched.solve(
        instance, "makespan-unrelated", program=program, on_progress=recorder
    ).objective
    known = [event.incumbent for event in recorder.events if event.incumbent is not None]
    assert best is not None and all(value >= best - 1e-9 for value in known)
    assert all(event.bound is None or event.bound <= best + 1e-6 for event in recorder.events)


def test_costs_are_reported_as_they_are() -> None:
    recorder = ProgressRecorder()
    instance = generate("gap", jobs=30, agents=4, type="d", seed=1).instance
    solution = optsched.solve(instance, "gap", work_limit=3, on_progress=recorder)
    known = [event.incumbent for event in recorder.events if event.incumbent is not None]
    assert known and solution.objective is not None and min(known) >= solution.objective - 1e-6
    lines = ProgressLines.of_solution(solution, recorder.events)
    assert 0.0 < lines.primal_integral(solution.objective) <= lines.elapsed[-1]


def test_programs_beside_the_own_one_report_no_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Partial allocation solves more programs for its discounts: their values are no objectives."""
    monkeypatch.setattr(clarabel, "PROGRESS_EVERY", 0.0)
    recorder = ProgressRecorder()
    solution = optsched.solve("@smd", "partial-allocation", on_progress=recorder)
    assert solution.objective is not None and solution.bound is not None
    known = [event.incumbent for event in recorder.events if event.incumbent is not None]
    bounds = [event.bound for event in recorder.events if event.bound is not None]
    assert known and max(known) <= solution.objective * (1 + 1e-6)
    assert bounds and min(bounds) >= solution.bound * (1 - 1e-6)
    assert any(event.incumbent is event.bound is None for event in recorder.events)
