"""Pictures of simulations: lines that say what happened, with the jobs that never ended and the seeds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import refuses
from simulation_samples import ROUND, simulation_of, trace_of

from optsched.errors import UsageError
from optsched.report import (
    completion_times_picture,
    fairness_picture,
    queue_picture,
    save_picture,
    simulation_picture,
    utilisation_picture,
    write_simulation_picture,
)

# Private names: what a picture or a page is made of, before it is drawn
from optsched.report.pictures import MOST_TIMES, new_axes, time_ticks
from optsched.report.simulated import Simulated
from optsched.report.simulation_pictures import POINTS, busy_gpus, window_means
from optsched.simulation import Simulation, simulate

pytestmark = pytest.mark.picture

mpl = pytest.importorskip("matplotlib")


def names_of(ax: Any) -> list[str]:
    return [text.get_text() for text in ax.get_legend().get_texts()]


def told(ax: Any) -> str:
    return " ".join(text.get_text() for text in ax.texts)


# --- shares of the jobs ----------------------------------------------------------------------------------------------


def test_a_line_is_the_share_of_the_jobs() -> None:
    run = simulation_of(trace_of(30))
    (line,) = completion_times_picture([run]).get_lines()
    x, y = line.get_data()
    assert x[1:-1] == pytest.approx(np.sort(run.completion_times))
    assert y[1:-1] == pytest.approx(np.arange(1, 31) / 30) and (y[0], y[-1]) == (0, 1)
    assert line.get_drawstyle() == "steps-post"


def test_jobs_without_an_end_count() -> None:
    ax = completion_times_picture([simulation_of(trace_of(40), unfinished=10)])
    assert ax.get_lines()[0].get_ydata()[-1] == pytest.approx(0.75)
    assert "40 jobs; 10 have no end, but count" in told(ax)


def test_jobs_that_are_not_measured_do_not() -> None:
    run = simulation_of(trace_of(40))
    half = replace(run, measured=np.arange(40) < 20)
    x = completion_times_picture([half]).get_lines()[0].get_xdata()
    assert x[1:-1] == pytest.approx(np.sort(run.completion_times[:20]))


def test_seeds_are_one_line_and_a_band() -> None:
    trace = trace_of(30)
    runs = [simulation_of(trace, seed=seed) for seed in range(3)]
    ax = completion_times_picture(runs)
    assert len(ax.get_lines()) == 1 and names_of(ax) == ["fifo (3 seeds)"]
    assert ax.get_lines()[0].get_xdata()[1:-1] == pytest.approx(
        np.sort(np.concatenate([run.completion_times for run in runs]))
    )
    band = ax.collections[0].get_paths()[0].vertices
    at = np.median(runs[0].completion_times) * 1.01
    shares = [(run.completion_times <= at).mean() for run in runs]
    near = band[np.abs(np.log(band[:, 0] / at)) < 0.02]
    assert near[:, 1].min() <= min(shares) + 0.05 and near[:, 1].max() >= max(shares) - 0.05
    assert "bands" in told(ax)


def test_long_lines_are_thinned() -> None:
    x = completion_times_picture([simulation_of(trace_of(3000))]).get_lines()[0].get_xdata()
    assert len(x) == POINTS + 2


def test_axes_of_completion_times() -> None:
    wide = completion_times_picture([simulation_of(trace_of(60))])
    assert wide.get_xscale() == "log" and wide.get_xlabel() == "completion time (JCT)"
    same = completion_times_picture([simulation_of(trace_of(10, steps=np.full(10, 7200.0)))])
    assert same.get_xscale() == "linear" and same.get_xlabel() == "completion time (JCT), min"
    assert same.get_lines()[0].get_xdata().max() < 200


@pytest.mark.parametrize(("low", "high"), [(1002.0, 18_288.0), (3.5, 40.0), (0.5, 9e6)])
def test_a_logarithmic_axis_of_times_has_units(low: float, high: float) -> None:
    ax = new_axes(6.8, 4.0)
    ax.set_xscale("log")
    ax.set_xlim(low, high)
    time_ticks(ax)
    ax.figure.canvas.draw()
    shown = [text for text in (label.get_text() for label in ax.get_xticklabels()) if text]
    shown += [
        text for text in (label.get_text() for label in ax.get_xticklabels(minor=True)) if text
    ]
    assert 2 <= len(shown) <= MOST_TIMES
    assert all(text.split()[1] in ("s", "min", "h", "d") for text in shown)


def test_the_ratios_and_where_they_are_1() -> None:
    run = simulation_of(trace_of(40))
    ax = fairness_picture([run], rho="contention")
    lines = ax.get_lines()
    assert lines[0].get_xdata()[1:-1] == pytest.approx(
        np.sort(run.finish_time_ratios("contention"))
    )
    assert lines[1].get_xdata() == [1.0, 1.0] and "line: rho = 1" in told(ax)
    assert "max(1, jobs there / GPUs)" in ax.get_xlabel()


def test_a_policy_has_one_colour_everywhere() -> None:
    trace = trace_of(20)
    runs = [simulation_of(trace, f"p{k}") for k in range(11)]
    shown = Simulated.of(runs)
    draws = (completion_times_picture, fairness_picture, utilisation_picture, queue_picture)
    found = [
        [(line.get_color(), line.get_linestyle()) for line in draw(shown).get_lines()[:11]]
        for draw in draws
    ]
    assert all(one == found[0] for one in found) and len(set(found[0])) == 11
    inside = completion_times_picture(runs[:8]).get_legend().get_bbox_to_anchor()
    beside = completion_times_picture(runs).get_legend()
    assert (
        beside.get_bbox_to_anchor().x0 > inside.x0
    )  # more than eight names stand beside the picture
    assert names_of(completion_times_picture(runs)) == [f"p{k}" for k in range(11)]


def test_options_that_differ_are_part_of_the_name() -> None:
    trace = trace_of(10)
    runs = [simulation_of(trace), simulation_of(trace, mode="fluid"), simulation_of(trace, seed=1)]
    policies = Simulated.of(runs).policies
    assert [(policy.name, policy.runs) for policy in policies] == [
        ("fifo", (0, 2)),
        ("fifo, mode=fluid", (1,)),
    ]


# --- over time -------------------------------------------------------------------------------------------------------


def test_few_rounds_are_drawn_as_they_are() -> None:
    run = simulation_of(trace_of(20, hours=3.0))
    ax = utilisation_picture([run])
    x, y = ax.get_lines()[0].get_data()
    origin = run.trace.instance.jobs_table.arrival.min()
    assert x[:-1] * 3600 == pytest.approx(run.rounds.start - origin)
    assert y[:-1] == pytest.approx(run.rounds.busy.sum(axis=1) / ROUND / 28)
    assert ax.get_xlabel().endswith(", h") and "round by round" in told(ax)
    assert queue_picture([run]).get_lines()[0].get_ydata()[:-1] == pytest.approx(run.rounds.waiting)


def test_a_gap_between_rounds_is_a_gap() -> None:
    run = simulation_of(trace_of(20, hours=3.0))
    kept = np.arange(len(run.rounds)) != 4
    rounds = replace(
        run.rounds,
        **{name: getattr(run.rounds, name)[kept] for name in run.rounds.__dataclass_fields__},
    )
    x, y = queue_picture([replace(run, rounds=rounds)]).get_lines()[0].get_data()
    assert np.isnan(y).sum() == 1 and len(x) == len(run.rounds) + 1


@pytest.mark.unit
def test_windows_keep_the_gpu_hours() -> None:
    run = simulation_of(trace_of(300, hours=400.0))
    origin = run.trace.instance.jobs_table.arrival.min()
    edges = np.append(
        np.arange(0.0, run.rounds.end[-1] - origin, 10_000.0), run.rounds.end[-1] - origin
    )
    means = window_means(run, busy_gpus, edges)
    assert (means * np.diff(edges)).sum() * 28 == pytest.approx(run.rounds.busy.sum())
    ax = utilisation_picture([run])
    assert len(ax.get_lines()[0].get_xdata()) <= 242 and "means over 2 h" in told(ax)


def test_seeds_that_have_ended_are_in_no_mean() -> None:
    trace = trace_of(30)
    long, short = simulation_of(trace), simulation_of(trace, seed=1)
    kept = slice(0, len(short.rounds) // 2)
    rounds = replace(
        short.rounds,
        **{n: getattr(short.rounds, n)[kept] for n in short.rounds.__dataclass_fields__},
    )
    ax = queue_picture([long, replace(short, rounds=rounds)])
    alone = queue_picture([long, replace(long, options={"seed": 1})])
    assert ax.get_lines()[0].get_ydata()[-2] == pytest.approx(alone.get_lines()[0].get_ydata()[-2])
    assert "means of 2 seeds" in told(ax)


# --- all of them, and none -------------------------------------------------------------------------------------------


def test_the_sheet(tmp_path: Path) -> None:
    trace = trace_of(30)
    runs = [
        simulation_of(trace, policy, seed=seed) for policy in ("fifo", "las") for seed in (0, 1)
    ]
    for name in ("one.png", "two.png", "one.svg"):
        write_simulation_picture(runs, tmp_path / name)
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "two.png").read_bytes()
    text = (tmp_path / "one.svg").read_text()
    assert text.startswith("<?xml")
    figure = simulation_picture(runs).get_figure()
    assert [ax.get_title("left") for ax in figure.axes] == [
        "Completion times", "Finish-time fairness", "Utilisation", "Queue",
    ]  # fmt: skip
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "fifo (2 seeds)",
        "las (2 seeds)",
    ]
    with refuses("found one.gif", UsageError):
        write_simulation_picture(runs, tmp_path / "one.gif")


def test_a_sheet_of_what_there_is(tmp_path: Path) -> None:
    sheet = simulation_picture([simulation_of(trace_of(12), unfinished=12)])
    words = [text.get_text() for ax in sheet.get_figure().axes[:2] for text in ax.texts]
    assert words == [
        "there is nothing to draw: no measured job was completed",
        "there is nothing to draw: no measured job has a finish-time ratio",
    ]
    save_picture(sheet, tmp_path / "sheet.png")


@pytest.mark.unit
@pytest.mark.parametrize(
    ("draw", "words"),
    [
        (completion_times_picture, "no measured job was completed"),
        (fairness_picture, "no measured job has a finish-time ratio"),
        (utilisation_picture, "no time passes"),
        (queue_picture, "no time passes"),
        (simulation_picture, "no measured job was completed, and no time passes"),
    ],
)
def test_nothing_to_draw(draw: Any, words: str) -> None:
    empty = trace_of(0)
    for run in (simulation_of(empty), simulate(empty, "fifo")):
        with pytest.raises(UsageError, match=f"there is nothing to draw: {words}"):
            draw([run])
    with pytest.raises(UsageError, match="there is nothing to show: no simulation was given"):
        draw([])


def test_one_job() -> None:
    run: Simulation = simulation_of(trace_of(1))
    for draw in (completion_times_picture, fairness_picture, utilisation_picture, queue_picture):
        assert draw([run]).get_lines()
