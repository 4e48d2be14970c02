"""The results of several formulations on an instance: one panel per measure."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from optsched.display import amount, count, percent
from optsched.errors import UsageError
from optsched.report.palette import LABEL, LINE, MAIN, SMALL
from optsched.report.pictures import (
    head,
    new_panels,
    plain_frame,
    short,
    time_words,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from optsched.study.comparison import Comparison

MOST_ANSWERS = 30
"""Most formulations in a picture."""


class Panel(NamedTuple):
    """A measure of `optsched.solution.measures.Measures`, its title, its better direction, and the
    format of its numbers.
    """

    measure: str
    title: str
    good: str
    words: Callable[[float], str] = amount


PANELS = (
    Panel("smallest_share", "smallest share of a job", "more is better", percent),
    Panel("mean_share", "mean share of the jobs", "more is better", percent),
    Panel("utilisation", "utilisation of the GPUs", "more is better", percent),
    Panel("makespan", "makespan", "less is better", time_words),
    Panel("cost_per_hour", "cost, USD per hour", "less is better"),
)


def comparison_picture(comparison: Comparison) -> Axes:
    """Draw the measures of all answers side by side, a bar for each formulation.

    A measure that no answer has is left out; a missing value of one answer is marked.

    Parameters
    ----------
    comparison : Comparison
        Of `optsched.compare`.

    Returns
    -------
    Axes
        The first panel.

    Raises
    ------
    UsageError
        If no formulation has an answer, or there are more than a picture has room for.
    SolverUnavailable
        If matplotlib is not installed.
    """
    rows = [row for row in comparison.rows if row.measures is not None]
    if not rows:
        raise UsageError("no formulation has an answer: there is nothing to draw")
    if len(rows) > MOST_ANSWERS:
        raise UsageError(
            f"found {len(rows)} answers, expected at most {MOST_ANSWERS} in one picture"
        )
    values = {panel: [getattr(row.measures, panel.measure) for row in rows] for panel in PANELS}
    panels = [panel for panel in PANELS if any(value is not None for value in values[panel])]
    width = 2.2 + 2.1 * len(panels)
    height = 1.5 + 0.3 * len(rows)
    _, grid = new_panels(width, height, 1, len(panels), one_scale=True)
    axes: list[Axes] = np.atleast_1d(grid).tolist()
    left_out = len(comparison.rows) - len(rows)
    subtitle = count(len(rows), "formulation") + (
        f", {left_out} without an answer" if left_out else ""
    )
    # Draw the head before the panels, because it clears the name of its axis
    head(axes[0], f"{comparison.instance.name}: what each formulation makes of it", subtitle)
    names = [short(row.formulation, 30) for row in rows]
    for ax, panel in zip(axes, panels, strict=True):
        _draw(ax, panel, values[panel])
    axes[0].set_yticks(range(len(rows)), names, fontsize=LABEL)
    # Inverts the shared axis, so that the first formulation is on top
    axes[0].invert_yaxis()
    return axes[0]


def _draw(ax: Axes, panel: Panel, values: list[float | None]) -> None:
    plain_frame(ax, "left")
    largest = max(value for value in values if value is not None)
    ax.barh(range(len(values)), [value or 0.0 for value in values], 0.62, color=MAIN)
    # Leave room for the numbers
    ax.set_xlim(0.0, 1.35 * largest or 1.0)
    for row, value in enumerate(values):
        text = "none" if value is None else panel.words(value)
        place = (value or 0.0, row)
        ax.annotate(text, place, (3, 0), textcoords="offset points", va="center", fontsize=SMALL)
    ax.set_xticks([])
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_color(LINE)
    ax.set_xlabel(f"{panel.title}\n({panel.good})", fontsize=SMALL)
