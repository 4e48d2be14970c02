"""Performance profiles as a picture: one stepped line for each method."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from optsched.benchmarking.profiles import Profile
from optsched.errors import UsageError
from optsched.report.palette import INK, JOBS, LABEL, LINE, SMALL
from optsched.report.pictures import head, new_axes, plain_frame, require_matplotlib

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

LINES = tuple(JOBS[place] for place in (0, 1, 3, 9, 5, 6, 7, 8))
"""Colours that are dark enough for lines."""
STYLES = ("-", "--", "-.", ":")
ROOM = 1.15
"""How far beyond the last step the lines go."""


def profile_picture(
    profile: Profile | None,
    title: str = "Performance profile",
    axis: str = "time over the least time",
    ax: Axes | None = None,
) -> Axes:
    """Draw a profile: on the left how often a method is the best, on the right how many problems it solves at all.

    Parameters
    ----------
    profile : Profile
    title, axis : str
    ax : matplotlib axes, optional
        Where to draw; by default on a figure of its own.

    Raises
    ------
    UsageError
        If there is nothing to draw.
    SolverUnavailable
        If matplotlib is not installed.
    """
    if profile is None or not any(len(ratios) for ratios in profile.ratios.values()):
        raise UsageError("there is no profile to draw: no task was solved")
    require_matplotlib()
    ax = new_axes(7.6, 4.4) if ax is None else ax
    end = max(1.001, profile.largest**ROOM)
    plain_frame(ax, "left", "bottom")
    for place, (name, ratios) in enumerate(profile.ratios.items()):
        share = np.arange(len(ratios) + 1) / profile.problems
        steps = np.concatenate([[1.0], ratios, [end]])
        style = STYLES[
            (place // len(LINES) + place) % len(STYLES)
        ]  # no line is told by its colour alone
        ax.step(steps, [*share, share[-1]], where="post", color=LINES[place % len(LINES)], linestyle=style,
                linewidth=1.8, label=name, clip_on=False, zorder=3)  # fmt: skip
    ax.set_xscale("log")
    ax.set_xlim(1.0, end)
    ax.set_ylim(0.0, 1.0)
    _ticks(ax, end)
    ax.set_xlabel(axis, fontsize=LABEL)
    ax.set_ylabel("share of the problems", fontsize=LABEL)
    ax.grid(color=LINE, linewidth=0.5, zorder=0)
    ax.set_axisbelow(True)
    handles, names = _by_height(
        ax, list(profile.ratios), [len(ratios) for ratios in profile.ratios.values()]
    )
    ax.legend(handles, names, loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, fontsize=SMALL + 0.5,
              borderaxespad=0, labelcolor=INK)  # fmt: skip
    head(
        ax,
        title,
        f"{profile.problems:,} problems; what a method does not solve counts as infinitely far",
    )
    return ax


def _ticks(ax: Axes, end: float) -> None:
    """Factors as people say them: 1, 2, 5, 10 ...; near 1 in percent more than the best."""
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

    if end >= 2:
        decades = 10.0 ** np.arange(0, np.ceil(np.log10(end)) + 1)
        factors = [1] if end >= 1e3 else [1, 2, 5] if end >= 10 else [1, 1.5, 2, 3, 5, 7]
        ticks = [
            float(decade * factor)
            for decade in decades
            for factor in factors
            if decade * factor <= end
        ]
        names = [f"{tick:g}" for tick in ticks]
    else:
        ticks = [float(tick) for tick in np.linspace(1.0, end, 6)]
        names = [f"+{100 * (tick - 1):.2g} %" for tick in ticks]
    ax.xaxis.set_major_locator(FixedLocator(ticks))
    ax.xaxis.set_major_formatter(FixedFormatter(names))
    ax.xaxis.set_minor_locator(NullLocator())


def _by_height(
    ax: Axes, names: Sequence[str], solved: Sequence[int]
) -> tuple[list[Artist], list[str]]:
    """Entries of the legend in the order in which the lines end, the highest first."""
    handles, _ = ax.get_legend_handles_labels()
    order = sorted(range(len(names)), key=lambda place: -solved[place])
    return [handles[place] for place in order], [names[place] for place in order]
