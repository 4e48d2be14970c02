"""A trace as a page of pictures: arrivals, load, durations and gangs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from optsched.arrays import FloatArray
from optsched.display import amount, count
from optsched.errors import UsageError
from optsched.instance.durations import HOUR
from optsched.report.palette import INK, MAIN, PAPER, SECOND, SMALL
from optsched.report.pictures import (
    LEGEND,
    SINCE_FIRST,
    grid_below,
    head,
    new_axes,
    new_panels,
    plain_frame,
    round_width,
    short,
    time_ticks,
    time_unit,
    time_words,
)
from optsched.traces import TraceSummary
from optsched.traces.summary import largest_parts

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Bars along the time, at most.
BINS = 150
# Points of a cumulative line, at most.
STEPS = 1000
# Most bars of gang sizes; other sizes share the last one.
GANGS = 12
# Least width of bars, in seconds.
NARROWEST = 300.0


def trace_page(summary: TraceSummary) -> Axes:
    """Draw all pictures of a trace on one page; returns the first, whose figure has all.

    Raises
    ------
    UsageError
        If the trace has no jobs.
    SolverUnavailable
        If matplotlib is not installed.
    """
    _, panels = new_panels(11.0, 7.4)
    arrivals_picture(summary, panels[0, 0])
    load_picture(summary, panels[0, 1])
    durations_picture(summary, panels[1, 0])
    gangs_picture(summary, panels[1, 1])
    first: Axes = panels[0, 0]
    return first


def arrivals_picture(summary: TraceSummary, ax: Axes | None = None) -> Axes:
    """Draw how many jobs arrive per hour, and the mean of the trace."""
    ax = _axes(summary, ax)
    edges, width, unit, name = _bins(summary)
    jobs, _ = np.histogram(summary.arrival, edges)
    _bars(ax, edges, jobs / (width / HOUR), unit)
    notes = [count(summary.jobs, "job"), f"bars of {time_words(width)}"]
    if summary.per_hour is not None:
        _level(ax, summary.per_hour, f"mean {summary.per_hour:,.3g}")
        notes.insert(1, f"{summary.per_hour:,.3g} per hour")
    title = f"{short(summary.name, 40)}: arrivals"
    head(ax, title, "; ".join(notes), SINCE_FIRST.format(name), "arrivals per hour")
    return ax


def load_picture(summary: TraceSummary, ax: Axes | None = None) -> Axes:
    """Draw the GPU-hours that arrive divided by the GPU-hours of the cluster in that time; above 1,
    jobs must wait.
    """
    ax = _axes(summary, ax)
    edges, width, unit, name = _bins(summary)
    hours, _ = np.histogram(summary.arrival, edges, weights=np.nan_to_num(summary.demand.least))
    has = summary.gpus * width / HOUR
    _bars(ax, edges, hours / has if has else hours, unit)
    axis = "offered load" if has else "GPU-hours that arrive"
    notes = [f"{amount(summary.gpu_hours)} GPU-hours", f"{summary.gpus:,} GPUs"]
    if has:
        ax.axhline(1.0, color=INK, linewidth=0.9, zorder=4)
    if summary.load is not None:
        _level(ax, summary.load, f"mean {summary.load:,.3g}")
        notes.append(f"load {summary.load:,.3g}")
    head(ax, "Offered load", "; ".join(notes), SINCE_FIRST.format(name), axis)
    return ax


def durations_picture(summary: TraceSummary, ax: Axes | None = None) -> Axes:
    """Draw the share of jobs, and of their GPU-hours,
    with durations up to a value (in their fastest configuration).
    """
    ax = _axes(summary, ax)
    demand = summary.demand
    runs = demand.runs & (np.nan_to_num(demand.seconds) > 0)
    order = np.argsort(demand.seconds[runs], kind="stable")
    seconds = demand.seconds[runs][order]
    hours = demand.least[runs][order]
    subtitle = "no job can run"
    if len(seconds):
        for weights, colour, words in (
            (np.ones(len(seconds)), MAIN, "of jobs"),
            (hours, SECOND, "of GPU-hours"),
        ):
            share = np.cumsum(weights) / max(float(weights.sum()), 1e-300)
            rows = np.unique(np.searchsorted(share, np.linspace(0, share[-1], STEPS)))
            ax.step(
                np.append(seconds[:1], seconds[rows]),
                np.append(0.0, share[rows]),
                where="post",
                color=colour,
                linewidth=1.4,
                label=words,
            )
        ax.set_xscale("log")
        subtitle = "; ".join(
            f"{name} {time_words(value)}"
            for name, value in summary.durations.items()
            if value is not None
        )
        ax.legend(**LEGEND, loc="upper left")
    time_ticks(ax)
    ax.set_ylim(0, 1.02)
    grid_below(ax)
    head(ax, "Durations", subtitle, "duration in the fastest configuration", "share")
    return ax


def gangs_picture(summary: TraceSummary, ax: Axes | None = None) -> Axes:
    """Draw the shares of jobs and of GPU-hours by gang size."""
    ax = _axes(summary, ax)
    shown = largest_parts(summary.gangs, GANGS, "other")
    place = np.arange(len(shown))
    for amounts, shift, colour, words in (
        ([part.jobs for part in shown], -0.2, MAIN, "of jobs"),
        ([part.gpu_hours for part in shown], 0.2, SECOND, "of GPU-hours"),
    ):
        values = np.array(amounts, np.float64)
        ax.bar(
            place + shift,
            values / max(values.sum(), 1e-300),
            0.38,
            color=colour,
            label=words,
            zorder=2,
        )
    ax.set_xticks(place, [short(part.name, 9) for part in shown])
    grid_below(ax, "y")
    ax.legend(**LEGEND)
    stuck = int((~summary.demand.runs).sum())
    sizes = count(len(summary.gangs), "size")
    subtitle = f"{sizes}; {count(stuck, 'job')} can run nowhere" if stuck else sizes
    head(ax, "Gangs", subtitle, "GPUs of a job", "share")
    return ax


def _axes(summary: TraceSummary, ax: Axes | None) -> Axes:
    """The axes of a picture, by default on a new figure; refuses a trace without jobs."""
    if not summary.jobs:
        raise UsageError("there is nothing to draw: the trace has no jobs")
    ax = ax or new_axes(6.0, 3.6)
    plain_frame(ax, "left", "bottom")
    return ax


def _bins(summary: TraceSummary) -> tuple[FloatArray, float, float, str]:
    """Edges of bars over the arrivals (seconds on the clock), their width,
    and the unit of the axis with its name.
    """
    width = round_width(summary.span, BINS, NARROWEST)
    bars = max(1, int(np.ceil(summary.span / width * (1 + 1e-12))))
    first = summary.first or 0.0
    edges = first + width * np.arange(bars + 1)
    edges[-1] = max(edges[-1], summary.last or 0.0)
    unit, name = time_unit(max(summary.span, width))
    return np.asarray(edges, np.float64), width, unit, name


def _bars(ax: Axes, edges: FloatArray, heights: FloatArray, unit: float) -> None:
    ax.stairs(heights, (edges - edges[0]) / unit, fill=True, color=MAIN, zorder=2)
    ax.set_xlim(0, (edges[-1] - edges[0]) / unit)
    ax.set_ylim(0, max(float(heights.max()) * 1.08, 1e-9))
    grid_below(ax, "y")


def _level(ax: Axes, value: float, words: str) -> None:
    """A dashed line at the mean, with its name."""
    ax.axhline(value, color=SECOND, linewidth=1.2, linestyle=(0, (4, 2)), zorder=5)
    ax.annotate(
        words,
        (1, value),
        (-3, 3),
        ("axes fraction", "data"),
        "offset points",
        ha="right",
        fontsize=SMALL,
        color=INK,
        zorder=6,
        bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 1},
    )
