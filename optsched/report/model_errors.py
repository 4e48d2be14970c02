"""Prediction errors of models as a picture: predicted against measured times, a panel for each
model and split.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtri

from optsched.errors import UsageError
from optsched.performance.evaluation import ErrorRow, Evaluation, Points
from optsched.report.palette import INK, LABEL, PAPER, SMALL, job_colours
from optsched.report.pictures import (
    LEGEND,
    fixed_ticks,
    grid_below,
    head,
    new_figure,
    plain_frame,
    round_factors,
    short,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Inches of a side of a panel.
SIDE = 3.6
# Most workloads in the legend.
NAMED = 12
MOST_PANELS = 40
# Most points with intervals; if there are more, points are smaller too.
INTERVALS = 150
# Most labels of an axis; numbers may be as long as 0.0015.
TICKS = 6


def evaluation_picture(found: Evaluation) -> Axes:
    """Draw predictions for times that models were not fitted to, against the measured times, on
    logarithmic axes.

    There is a row of panels for each model and a column for each split. Each step is a point,
    coloured by its workload, with its interval at the nominal level (with many points, only
    `INTERVALS` of them). Points on the diagonal are exact.

    Parameters
    ----------
    found : Evaluation
        Of `optsched.performance.evaluation.evaluate`.

    Returns
    -------
    Axes
        The first panel; its figure has all.

    Raises
    ------
    UsageError
        If no model has any prediction, or there are too many panels.
    SolverUnavailable
        If matplotlib is not installed.
    """
    drawn = [points for points in found.points if len(points.known)]
    splits = list(dict.fromkeys(points.split for points in drawn))
    models = list(dict.fromkeys(points.model for points in drawn))
    if not drawn:
        raise UsageError("there are no errors to draw: no model predicts a time that was left out")
    if len(splits) * len(models) > MOST_PANELS:
        raise UsageError(
            f"{len(splits)} splits of {len(models)} models are too many panels, "
            f"{MOST_PANELS} at most"
        )
    figure = new_figure(SIDE * len(splits) + 0.8, (SIDE + 0.5) * len(models) + 0.6)
    panels = figure.subplots(len(models), len(splits), squeeze=False)
    colours = job_colours(
        np.unique(found.profiles.ways.workload[np.concatenate([p.row for p in drawn])]).tolist()
    )
    limits = _limits(drawn)
    rows = {(row.model, row.split): row for row in found.rows if row.workload is None}
    for points in drawn:
        ax = panels[models.index(points.model), splits.index(points.split)]
        _draw(ax, points, found, colours, limits)
        _tell(ax, rows[points.model, points.split], found.nominal)
    for place, ax in np.ndenumerate(panels):
        if not ax.has_data():
            ax.set_axis_off()
        if place[0] == len(models) - 1:
            ax.set_xlabel("measured, s per step", fontsize=LABEL)
        if place[1] == 0:
            ax.set_ylabel("predicted, s per step", fontsize=LABEL)
    _legend(figure, found, colours)
    first: Axes = panels[0, 0]
    return first


def _limits(drawn: list[Points]) -> tuple[float, float]:
    """Limits of both axes of all panels, from the points; their intervals may be infinite."""
    every = np.concatenate(
        [values[points.known] for points in drawn for values in (points.seconds, points.predicted)]
    )
    return float(every.min() / 1.5), float(every.max() * 1.5)


def _draw(
    ax: Axes,
    points: Points,
    found: Evaluation,
    colours: Mapping[int, str],
    limits: tuple[float, float],
) -> None:
    plain_frame(ax, "left", "bottom")
    known = points.known
    colour = np.array(
        [colours[row] for row in found.profiles.ways.workload[points.row[known]].tolist()]
    )
    predicted = points.predicted[known]
    width = np.exp(ndtri((1 + found.nominal) / 2) * points.log_sd[known])
    order = np.argsort(points.seconds[known], kind="stable")
    some = order[np.unique(np.linspace(0, len(order) - 1, min(len(order), INTERVALS)).astype(int))]
    crowded = len(some) < len(known)
    ax.plot(limits, limits, color=INK, linewidth=0.8, zorder=4)
    ax.vlines(
        points.seconds[known][some],
        (predicted / width)[some],
        (predicted * width)[some],
        colors=colour[some].tolist(),
        linewidth=0.6,
        alpha=0.35,
        zorder=2,
    )
    ax.scatter(
        points.seconds[known],
        predicted,
        s=5 if crowded else 14,
        c=colour,
        alpha=0.5 if crowded else 0.9,
        linewidths=0,
        zorder=3,
    )
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlim(limits)
    ax.set_ylim(limits)
    ax.set_aspect("equal")
    _ticks(ax, limits)
    grid_below(ax, linewidth=0.4)


def _ticks(ax: Axes, limits: tuple[float, float]) -> None:
    """Few round numbers on both axes.

    Below a decade matplotlib labels every minor tick, and the labels run into each other.
    """
    for factors in ((1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8), (1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1,)):
        ticks = round_factors(*limits, factors)
        if len(ticks) <= TICKS:
            fixed_ticks(ax, ticks, both=True)
            return


def _tell(ax: Axes, row: ErrorRow, nominal: float) -> None:
    assert row.mape is not None
    assert row.median_ape is not None
    assert row.coverage is not None
    head(ax, short(row.model, 40), short(row.split, 50))
    lines = [f"MAPE {100 * row.mape:.1f} %, median {100 * row.median_ape:.1f} %"]
    lines += [f"{100 * row.coverage:.0f} % in the interval of {100 * nominal:g} %"]
    lines += (
        [f"{row.tested - row.known:,} of {row.tested:,} unknown"] if row.known < row.tested else []
    )
    ax.text(
        0.97,
        0.03,
        "\n".join(lines),
        transform=ax.transAxes,
        ha="right",
        va="bottom",
        fontsize=SMALL,
        color=INK,
        zorder=5,
        bbox={"facecolor": PAPER, "edgecolor": "none", "alpha": 0.8, "pad": 2},
    )


def _legend(figure: object, found: Evaluation, colours: Mapping[int, str]) -> None:
    from matplotlib.lines import Line2D

    names = found.profiles.ways.workloads
    handles = [
        Line2D(
            [],
            [],
            marker="o",
            linestyle="none",
            color=colours[row],
            markersize=4,
            label=short(names[row], 24),
        )
        for row in list(colours)[:NAMED]
    ]
    if len(colours) > NAMED:
        handles.append(Line2D([], [], linestyle="none", label=f"and {len(colours) - NAMED} more"))
    figure.legend(  # type: ignore[attr-defined]
        handles=handles,
        loc="outside lower left",
        **LEGEND,
        ncol=6,
        handletextpad=0.2,
    )
