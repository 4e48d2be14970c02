"""The front between two objectives as a picture: its points, the ideal and the nadir."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from optsched.arrays import FloatArray
from optsched.display import amount, count
from optsched.errors import UsageError
from optsched.report.palette import INK, MAIN, MUTED, PAPER, SECOND, SMALL, WARNING
from optsched.report.pictures import (
    grid_below,
    head,
    legend_below,
    new_axes,
    plain_frame,
    time_unit,
)
from optsched.sensitivity import Front
from optsched.sensitivity.front import Axis
from optsched.solution import Status

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Most points with numbers.
LABELLED = 12


@dataclass(frozen=True)
class FrontLines:
    """The data of the picture of a front.

    Attributes
    ----------
    first, second : FloatArray, shape (P,)
        Finite objectives of the points, sorted by the first one, the best first.
    proved : BoolArray, shape (P,)
        Whether each point is proven optimal.
    joined : bool
        Whether allocations between neighbouring points exist; not for whole jobs.
    ideal, nadir : (float, float) or None
        None if one of the coordinates does not exist.
    title, subtitle, first_axis, second_axis : str
    """

    first: FloatArray
    second: FloatArray
    proved: np.ndarray
    joined: bool
    ideal: tuple[float, float] | None
    nadir: tuple[float, float] | None
    title: str
    subtitle: str
    first_axis: str
    second_axis: str

    @classmethod
    def of(cls, front: Front) -> FrontLines:
        """Collect the data of a front.

        Raises
        ------
        UsageError
            If no point has two finite objectives.
        """
        both = np.array([point.objectives for point in front.points], np.float64).reshape(-1, 2)
        seen = np.isfinite(both).all(axis=1)
        if not seen.any():
            why = (
                "none of its points has two finite objectives" if len(both) else "it has no points"
            )
            raise UsageError(f"there is no front to draw: {why}")
        proved = np.array([point.solution.status is Status.OPTIMAL for point in front.points])[seen]
        integral = any(
            point.solution.allocation.integral
            for point in front.points
            if point.solution.allocation
        )
        both = both[seen]
        hidden = int((~seen).sum())
        sign = np.array([1.0 if axis.sense == "min" else -1.0 for axis in front.axes])
        worst = sign * (sign * both).max(axis=0)
        notes = [
            count(len(both), "compromise"),
            "each optimal and certified" if proved.all() else "not all are proven",
        ]
        notes += [f"{hidden} outside: an objective does not exist there"] if hidden else []
        first, second = front.axes
        units = [_unit(axis, both[:, place]) for place, axis in enumerate(front.axes)]
        scale = np.array([unit for unit, _ in units])

        def scaled(corner: Sequence[float] | FloatArray) -> tuple[float, float] | None:
            x, y = (np.array(corner) / scale).tolist()
            return (x, y) if np.isfinite([x, y]).all() else None

        one, other = (both / scale).T
        return cls(
            one,
            other,
            proved,
            not integral,
            None if front.ideal is None else scaled(front.ideal),
            scaled(worst),
            f"{front.instance.name}: {first.formulation} against {second.formulation}",
            "; ".join(notes),
            units[0][1],
            units[1][1],
        )


def _unit(axis: Axis, values: FloatArray) -> tuple[float, str]:
    """Divisor for the values of an objective, and its axis title: long times are shown in hours or
    days.
    """
    if axis.unit != "s":
        return 1.0, axis.title
    scale, name = time_unit(float(np.abs(values).max()))
    return scale, replace(axis, unit=name).title


def front_picture(front: Front, ax: Axes | None = None) -> Axes:
    """Draw a front: its points with their numbers, the ideal and the nadir that it lies between.

    The ideal has the best of both objectives, which no allocation reaches unless they agree; the
    nadir has the worst of both that the front (as far as it is drawn) accepts. Points are joined if
    jobs share time, because every allocation between two points is then possible.

    Parameters
    ----------
    front : Front
        Of `optsched.pareto`.
    ax : matplotlib axes, optional
        Where to draw; by default on a new figure.

    Returns
    -------
    Axes

    Raises
    ------
    UsageError
        If there is nothing to draw.
    SolverUnavailable
        If matplotlib is not installed.
    """
    lines = FrontLines.of(front)
    ax = ax or new_axes(7.0, 5.0)
    _draw(ax, lines)
    return ax


def _draw(ax: Axes, lines: FrontLines) -> None:
    plain_frame(ax, "left", "bottom")
    if lines.joined and len(lines.first) > 1:
        ax.plot(lines.first, lines.second, color=MAIN, linewidth=1.2, zorder=2)
    for mask, face, label in (
        (lines.proved, MAIN, "optimal"),
        (~lines.proved, PAPER, "feasible, with a gap"),
    ):
        if mask.any():
            ax.plot(
                lines.first[mask],
                lines.second[mask],
                "o",
                color=MAIN,
                markerfacecolor=face,
                markersize=6,
                zorder=4,
                label=label,
                linestyle="none",
            )
    for corner, marker, colour, label in (
        (lines.ideal, "*", SECOND, "ideal: the best of both"),
        (lines.nadir, "X", WARNING, "nadir: the worst of both"),
    ):
        if corner is not None:
            ax.plot(
                *corner, marker, color=colour, markersize=9, zorder=3, label=label, linestyle="none"
            )
    _number(ax, lines)
    ax.ticklabel_format(useOffset=False, style="plain")
    # Leave room for the numbers
    ax.margins(x=0.17, y=0.09)
    grid_below(ax)
    legend_below(ax, ax.get_legend_handles_labels()[0], 0.5, 4)
    head(ax, lines.title, lines.subtitle, lines.first_axis, lines.second_axis)


def _number(ax: Axes, lines: FrontLines) -> None:
    """Write the numbers of the points on the side of the nadir; of many points, only the ends."""
    last = len(lines.first) - 1
    rows = range(last + 1) if last < LABELLED else (0, last)
    ideal = lines.ideal or (0.0, 0.0)
    nadir = lines.nadir or (0.0, 0.0)
    right, up = (nadir[place] > ideal[place] for place in (0, 1))
    for row in rows:
        words = f"{amount(float(lines.first[row]))}, {amount(float(lines.second[row]))}"
        ax.annotate(
            words,
            (lines.first[row], lines.second[row]),
            (7 if right else -7, 5 if up else -5),
            textcoords="offset points",
            ha="left" if right else "right",
            va="bottom" if up else "top",
            fontsize=SMALL,
            color=INK if row in (0, last) else MUTED,
            zorder=5,
        )
