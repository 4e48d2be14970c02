"""Gantt diagrams: lanes, stretches, deadlines, axes; from solutions and from files."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from picture_samples import instance_of, solved, with_rounds, with_schedule

import optsched
from optsched.errors import UsageError
from optsched.report import GanttRows, SolutionFile, rounds_gantt, schedule_gantt

# Private names: what a picture or a page is made of, before it is drawn
from optsched.report.gantt import MAX_CUTS, MAX_DEADLINES, lay_out
from optsched.report.palette import JOBS, WARNING
from optsched.solution import Rounds, Solution

pytestmark = pytest.mark.picture

mpl = pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def dozen() -> Solution:
    return with_schedule(solved(instance_of(12, {"v100": (2, 4), "k80": (2, 2)})))


@pytest.fixture(scope="module")
def hundreds() -> Solution:
    return with_schedule(
        solved(instance_of(300, {"a100": (4, 8), "v100": (8, 4), "k80": (4, 2)}, 1))
    )


@pytest.fixture(scope="module")
def packed() -> Solution:
    return with_rounds(solved("@packing", "max-min-fairness"), 12)


def texts(ax: Any) -> list[str]:
    return [text.get_text() for text in ax.figure.findobj(mpl.text.Text)]


def boxes(ax: Any) -> list[tuple[np.ndarray, tuple[float, ...]]]:
    """Corners and colour of each rectangle."""
    return [
        (path.vertices, tuple(colour))
        for collection in ax.collections
        if isinstance(collection, mpl.collections.PolyCollection)
        for path, colour in zip(collection.get_paths(), collection.get_facecolors(), strict=True)
    ]


# --- lanes ---------------------------------------------------------------------------------------------------------

stretches = st.lists(
    st.tuples(st.integers(0, 20), st.integers(1, 8), st.sampled_from([0.5, 1.0, 2.0, 3.0]), st.integers(0, 4)),
    min_size=1, max_size=25,
)  # fmt: skip


@given(stretches)
@settings(max_examples=150, deadline=None)
def test_lanes_hold_every_stretch_without_overlap_in_as_little_room_as_there_can_be(
    rows: list[Any],
) -> None:
    start, length, gpus, owner = (np.array(column) for column in zip(*rows, strict=True))
    start, end = start.astype(float), (start + length).astype(float)
    lanes = lay_out(start, end, gpus, owner, 0)
    unit = lanes.per_gpu
    held = np.bincount(lanes.stretch, lanes.height, minlength=len(rows))
    np.testing.assert_array_equal(held, gpus * unit)
    busy = max(float(gpus[(start <= time) & (time < end)].sum()) for time in start)
    assert lanes.count == busy * unit
    for one in range(len(lanes.stretch)):
        for other in range(one):
            a, b = lanes.stretch[one], lanes.stretch[other]
            in_time = start[a] < end[b] and start[b] < end[a]
            in_lanes = (
                lanes.lane[one] < lanes.lane[other] + lanes.height[other]
                and lanes.lane[other] < lanes.lane[one] + lanes.height[one]
            )
            assert not (in_time and in_lanes)


def test_a_job_keeps_its_lanes_and_gangs_stay_in_one_piece() -> None:
    zero, gpus = np.array([0.0, 0.0, 1.0, 1.0]), np.array([1.0, 2.0, 2.0, 1.0])
    lanes = lay_out(zero, zero + 1, gpus, np.array([0, 1, 1, 0]), 4)
    of = dict(
        zip(
            lanes.stretch.tolist(),
            zip(lanes.lane.tolist(), lanes.height.tolist(), strict=True),
            strict=True,
        )
    )
    assert of[0] == of[3]
    assert of[1] == of[2] == (0, 2)
    assert lanes.count == 4


def test_more_than_the_pool_has_gets_lanes_beyond_it() -> None:
    three = np.zeros(3)
    lanes = lay_out(three, three + 1, np.full(3, 2.0), np.arange(3), 4)
    assert (lanes.count, lanes.per_gpu) == (6, 1)
    shares = lay_out(three, three + 1, np.array([0.5, 0.25, 0.3]), np.arange(3), 1)
    assert dict(zip(shares.stretch.tolist(), shares.height.tolist(), strict=True)) == {
        0: 4,
        1: 2,
        2: 3,
    }  # eighths, up
    assert shares.per_gpu == 8


def test_no_stretch_needs_no_lane_but_those_of_the_pool() -> None:
    none = np.zeros(0)
    assert lay_out(none, none, none, np.zeros(0, np.int64), 3).count == 3


# --- what is shown -------------------------------------------------------------------------------------------------


def test_a_file_and_its_solution_give_the_same_rows(dozen: Solution, packed: Solution) -> None:
    file = SolutionFile.read(dozen.instance, dozen.to_document())
    for name in ("job", "partner", "pool", "gpus", "start", "end"):
        one, other = (getattr(GanttRows.of_schedule(answer).runs, name) for answer in (dozen, file))
        np.testing.assert_array_equal(one, other)
    assert GanttRows.of_schedule(file).subtitle == GanttRows.of_schedule(dozen).subtitle
    file = SolutionFile.read(packed.instance, packed.to_document())
    for name in ("job", "partner", "pool", "gpus", "start", "end"):
        one, other = (getattr(GanttRows.of_rounds(answer).runs, name) for answer in (packed, file))
        np.testing.assert_allclose(one, other)


def test_time_counts_from_now_in_a_unit_that_is_read_easily() -> None:
    rates = [[1.0], [1.0]]
    for steps, unit, scale in (
        (80, "s", 1),
        (1_000, "min", 60),
        (20_000, "h", 3600),
        (400_000, "days", 86_400),
    ):
        instance = optsched.Instance.from_arrays(
            pools={"a": 1}, throughput=rates, steps=[steps, steps], now=1e9
        )
        rows = GanttRows.of_schedule(with_schedule(solved(instance)))
        assert (rows.unit, rows.axis, rows.now) == (unit, f"time from now, {unit}", 0.0)
        np.testing.assert_allclose(rows.runs.end, np.array([1, 2]) * steps / scale)


def test_rounds_join_slices_that_run_on() -> None:
    instance = optsched.Instance.from_arrays(pools={"a": 2}, throughput=[[1.0], [1.0]])
    solution = solved(instance)
    runs = np.array([[1, 1], [1, 0], [0, 1], [1, 1]])
    rounds = Rounds(
        solution.allocation.classes,
        solution.allocation.rows,
        np.array([0.1, 0.2, 0.3, 0.4]),
        np_csr(runs),
        0.75,
        1.0,
    )
    shown = GanttRows.of_rounds(replace(solution, rounds=rounds))
    assert shown.unit == "min"  # the window is one round of 6 min
    percent = 100 / 6
    start, end = (shown.runs.start * percent).round(9), (shown.runs.end * percent).round(9)
    found = sorted(zip(shown.runs.job.tolist(), start, end, strict=True))
    assert found == [(0, 0, 30), (0, 60, 100), (1, 0, 10), (1, 30, 100)]
    np.testing.assert_allclose(shown.cuts * percent, [10, 30, 60, 100])
    assert "75 % of every fraction is realised" in shown.subtitle


def np_csr(matrix: np.ndarray) -> Any:
    import scipy.sparse as sp

    return sp.csr_matrix(matrix)


def test_a_window_in_seconds_is_an_axis_in_seconds(packed: Solution) -> None:
    longer = replace(packed, rounds=replace(packed.rounds, rounds=4))
    rows = GanttRows.of_rounds(SolutionFile.read(packed.instance, longer.to_document()))
    assert rows.axis == "time in the window, min"
    assert rows.cuts[-1] == pytest.approx(24.0)


# --- the picture ---------------------------------------------------------------------------------------------------


def test_boxes_are_the_stretches(dozen: Solution) -> None:
    ax = schedule_gantt(dozen)
    found = boxes(ax)
    rows = GanttRows.of_schedule(dozen)
    inch = 0.27  # of a GPU where there is room
    area = sum(np.ptp(corners[:, 0]) * np.ptp(corners[:, 1]) for corners, _ in found)
    np.testing.assert_allclose(
        area, ((rows.runs.end - rows.runs.start) * rows.runs.gpus).sum() * inch
    )
    assert {colour for _, colour in found} == {tuple(mpl.colors.to_rgba(colour)) for colour in JOBS}
    assert ax.get_title(loc="left") == "12 jobs: what runs when"
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["v100\n8 GPUs", "k80\n4 GPUs"]
    assert ax.get_xlim()[0] == 0
    assert ax.get_xlim()[1] == pytest.approx(1.01 * rows.runs.end.max())
    words = texts(ax)
    assert {"job-0", "job-9", "deadline", "missed deadline", "now"} <= set(words)
    assert any("1 of 4 deadlines missed" in text for text in words)


def test_deadlines_are_told_apart(dozen: Solution) -> None:
    ax = schedule_gantt(dozen)
    marks = {line.get_label(): line for line in ax.lines}
    rows = GanttRows.of_schedule(dozen)
    due = np.isfinite(rows.deadline)
    late = due & (rows.deadline < rows.runs.end)
    assert marks["missed deadline"].get_color() == WARNING
    np.testing.assert_allclose(marks["missed deadline"].get_xdata(), rows.deadline[late])
    seen = due & ~late & (rows.deadline <= ax.get_xlim()[1])
    np.testing.assert_allclose(np.sort(marks["deadline"].get_xdata()), np.sort(rows.deadline[seen]))


def test_the_deadline_belongs_to_the_last_stretch_of_a_job() -> None:
    instance = instance_of(1, {"a": (1, 8)})
    solution = with_schedule(solved(instance))
    schedule = solution.schedule
    twice = replace(
        schedule, job=np.repeat(schedule.job, 2), column=np.repeat(schedule.column, 2),
        start=np.array([0.0, 50.0]), end=np.array([40.0, 90.0]),
    )  # fmt: skip
    rows = GanttRows.of_schedule(replace(solution, schedule=twice))
    assert np.isinf(rows.deadline[0])
    assert np.isfinite(rows.deadline[1])
    assert "1 job, 2 stretches" in rows.subtitle


def test_hundreds_of_jobs_have_no_legend_and_few_names(hundreds: Solution) -> None:
    ax = schedule_gantt(hundreds)
    legend = [text.get_text() for text in ax.get_legend().get_texts()]
    assert legend == [
        "missed deadline",
        "now",
        "colours repeat: 300 jobs",
    ]  # over MAX_DEADLINES: those kept are left out
    assert MAX_DEADLINES < 100
    named = [text for text in texts(ax) if text.startswith("job-")]
    assert 20 < len(named) < 200
    assert len(named) == len(set(named))
    height = ax.figure.get_size_inches()[1]
    assert height < 11


def test_names_fit_into_their_boxes(hundreds: Solution) -> None:
    ax = schedule_gantt(hundreds)
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(ax.figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    found = [corners for corners, _ in boxes(ax)]
    for text in ax.texts:
        if text.get_text().startswith("job-"):
            area = text.get_window_extent(renderer).transformed(ax.transData.inverted())
            low, high = area.min - 1e-3, area.max + 1e-3
            around = [(corners.min(axis=0) <= low + 2e-3).all() and (high - 2e-3 <= corners.max(axis=0)).all()
                      for corners in found]  # fmt: skip
            assert any(around), text.get_text()


def test_a_pair_shares_the_height(packed: Solution) -> None:
    ax = rounds_gantt(packed)
    rows = GanttRows.of_rounds(packed)
    assert (rows.runs.partner >= 0).any()
    heights = {round(float(np.ptp(corners[:, 1])), 6) for corners, _ in boxes(ax)}
    assert heights == {0.27, 0.135}
    assert len(boxes(ax)) == len(rows.runs) + int((rows.runs.partner >= 0).sum())
    assert "now" not in texts(ax)


def test_many_slices_are_not_ruled(packed: Solution) -> None:
    def ruled(solution: Solution) -> int:
        lines = [
            c
            for c in rounds_gantt(solution).collections
            if isinstance(c, mpl.collections.LineCollection)
        ]
        return sum(len(c.get_segments()) for c in lines if c.get_linestyle()[0][1] is not None)

    assert ruled(packed) == 12
    assert ruled(with_rounds(packed, MAX_CUTS + 1)) == 0


def test_what_runs_without_a_pool_has_a_band_and_idle_pools_are_few() -> None:
    document = {
        "format": "optsched-instance/1",
        "cluster": {
            "pools": [{"name": f"p{row}", "nodes": 1, "gpus_per_node": 1} for row in range(9)],
            "resources": [{"name": "slots", "capacity": 2}],
        },
        "jobs": [{"id": "x", "options": [{"pool": None, "throughput": 1.0, "uses": {"slots": 2}}], "steps": 5},
                 {"id": "y", "throughput": {"p3": 1.0}, "steps": 5}],
    }  # fmt: skip
    solution = solved(optsched.Instance.from_document(document))
    C = solution.allocation.classes
    from optsched.solution import Schedule

    both = np.arange(2)
    schedule = Schedule.sorted(C, both, C.alone.nonzero()[0][:2], np.zeros(2), np.full(2, 5.0))
    ax = schedule_gantt(replace(solution, schedule=schedule))
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["p3\n1 GPU", "no pool"]


def test_without_a_schedule_or_rounds_there_is_no_picture(dozen: Solution) -> None:
    with pytest.raises(UsageError, match="max-throughput has no rounds: there is nothing to draw"):
        rounds_gantt(dozen)
    with pytest.raises(
        UsageError, match="max-throughput has no schedule: there is nothing to draw"
    ):
        schedule_gantt(replace(dozen, schedule=None))
    empty = replace(
        dozen.schedule,
        **{name: getattr(dozen.schedule, name)[:0] for name in ("job", "column", "start", "end")},
    )
    with pytest.raises(UsageError, match="the schedule is empty"):
        schedule_gantt(replace(dozen, schedule=empty))
    rows = dozen.allocation.rows
    classes = dozen.allocation.classes
    nothing = Rounds(classes, rows, np.ones(1), np_csr(np.zeros((1, len(rows)))), 1.0, 1.0)
    with pytest.raises(UsageError, match="nothing runs in the rounds"):
        rounds_gantt(replace(dozen, rounds=nothing))


def test_neighbours_differ_in_colour(hundreds: Solution) -> None:
    from optsched.report.gantt import _stretches, bands_of, beside
    from optsched.report.palette import job_colours

    rows = GanttRows.of_schedule(hundreds)
    blocks = _stretches(rows, bands_of(rows.instance, rows.runs))
    near = beside(blocks)
    assert len(near) > len(JOBS) and any(near.values())
    colours = job_colours(blocks.job.tolist(), near)
    same = [
        (job, other)
        for job, others in near.items()
        for other in others
        if colours[job] == colours[other]
    ]
    # more than eleven neighbours of one job may leave none of the twelve colours
    assert all(len(near[job]) >= len(JOBS) or len(near[other]) >= len(JOBS) for job, other in same)
