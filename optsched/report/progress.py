"""The progress of a solver as a picture: incumbent and bound over time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from optsched.arrays import FloatArray, quotient
from optsched.display import count
from optsched.display.text import share
from optsched.errors import UsageError
from optsched.registry import objective_words
from optsched.report.answers import headline
from optsched.report.palette import INK, LABEL, LINE, MAIN, MUTED, PAPER, SECOND
from optsched.report.pictures import (
    grid_below,
    head,
    legend_below,
    new_axes,
    plain_frame,
    time_unit,
    time_words,
)
from optsched.solution import Solution, gap_of
from optsched.solvers import Progress

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Most events that are kept; beyond that, every second one is dropped.
MOST_EVENTS = 20_000


class ProgressRecorder:
    """Keeps the events of a solver: ``optsched.solve(..., on_progress=recorder)``.

    Solvers may call it from another thread. Of consecutive events with the same incumbent and bound
    only the first and the last are kept, to save memory in a long search.
    """

    def __init__(self) -> None:
        self._events: list[Progress] = []
        self._lock = threading.Lock()

    def __call__(self, event: Progress) -> None:
        with self._lock:
            last = self._events[-2:]
            if (
                len(last) == 2
                and all(
                    (event.incumbent, event.bound) == (other.incumbent, other.bound)
                    for other in last
                )
                and event.elapsed >= last[1].elapsed
            ):
                self._events[-1] = event
            else:
                self._events.append(event)
            # Keep the first and the last event, where the picture begins and ends
            if len(self._events) > MOST_EVENTS:
                self._events[1:-1] = self._events[1:-1:2]

    @property
    def events(self) -> tuple[Progress, ...]:
        """The events kept so far, in order."""
        with self._lock:
            return tuple(self._events)


@dataclass(frozen=True)
class ProgressLines:
    """The data of the picture of progress; arrays of equal length.

    Attributes
    ----------
    elapsed : FloatArray
        Seconds since the start of the first run.
    incumbent, bound : FloatArray
        Best objective and bound so far; NaN where unknown.
    runs : tuple of float
        Times in seconds at which each later run of the solver began; a formulation may need several
        runs.
    gap : float or None
        Gap at the end.
    title, subtitle, axis : str
    """

    elapsed: FloatArray
    incumbent: FloatArray
    bound: FloatArray
    runs: tuple[float, ...]
    gap: float | None
    title: str
    subtitle: str
    axis: str

    def primal_integral(self, best: float | None = None) -> float:
        """Area under the relative distance of the incumbent from the best objective: it measures
        how late and how bad solutions were, in seconds.

        ::

            integral over time of  |best - incumbent| / max(|best|, |incumbent|)

        The distance counts as 1 before the first incumbent, and where the two have different signs.

        Parameters
        ----------
        best : float, optional
            The best known objective (default: the last incumbent).

        References
        ----------
        T. Berthold, "Measuring the impact of primal heuristics", Operations Research Letters 41
        (2013).
        """
        known = self.incumbent[np.isfinite(self.incumbent)]
        if best is None and not len(known):
            raise UsageError("the solver reported no incumbent: name the best objective")
        target = float(known[-1]) if best is None else best
        size = np.maximum(np.abs(self.incumbent), abs(target))
        off = quotient(np.abs(self.incumbent - target), size)
        off = np.where(np.isnan(self.incumbent) | (self.incumbent * target < 0), 1.0, off)
        return float(self.elapsed[:1].sum() + off[:-1] @ np.diff(self.elapsed))

    @classmethod
    def of_events(
        cls,
        events: Iterable[Progress],
        title: str = "Progress of the solver",
        subtitle: str = "",
        axis: str = "objective",
    ) -> ProgressLines:
        """From events only. If the clock of the events goes back, a new run began."""
        kept = tuple(events)
        if not any(event.incumbent is not None or event.bound is not None for event in kept):
            raise UsageError(
                "the solver reported neither an incumbent nor a bound: there is no progress to draw"
            )
        elapsed = np.array([event.elapsed for event in kept])
        # Each run has its own clock; append a later run at the end of the previous one
        again = np.flatnonzero(np.diff(elapsed) < 0) + 1
        shift = np.zeros(len(kept))
        shift[again] = elapsed[again - 1]
        incumbent, bound = (
            np.array([np.nan if value is None else value for value in values], np.float64)
            for values in ([event.incumbent for event in kept], [event.bound for event in kept])
        )
        last = (float(incumbent[-1]), float(bound[-1]))
        gap = None if np.isnan(last).any() else gap_of(*last)
        elapsed = elapsed + np.cumsum(shift)
        runs = tuple(elapsed[again - 1].tolist())
        details = "; ".join(
            filter(
                None, [subtitle, count(len(kept), "event"), f"{len(runs) + 1} runs" if runs else ""]
            )
        )
        return cls(elapsed, incumbent, bound, runs, gap, title, details, axis)

    @classmethod
    def of_solution(
        cls,
        solution: Solution,
        events: Iterable[Progress],
    ) -> ProgressLines:
        """From the events of a solution's run; its objective and bound are the last point.

        Parameters
        ----------
        solution : Solution
        events : iterable of Progress
        """
        reported = list(events)
        last = reported[-1].elapsed if reported else 0.0
        again = any(after.elapsed < before.elapsed for before, after in pairwise(reported))
        final = last if again else max(last, solution.timings.get("solve", 0.0))
        reported.append(Progress(final, solution.objective, solution.bound))
        words, unit = objective_words(solution.formulation)
        # Show long times in hours or days
        if unit == "s":
            known = [
                abs(value)
                for event in reported
                for value in (event.incumbent, event.bound)
                if value is not None
            ]
            scale, unit = time_unit(
                max((value for value in known if np.isfinite(value)), default=0.0)
            )
            reported = [_reported(event, lambda value: value / scale) for event in reported]
        return cls.of_events(
            reported,
            f"{solution.instance.name}: progress of {solution.solver.name}",
            headline(solution),
            f"{words}, {unit}" if unit else words,
        )


def _reported(event: Progress, report: Callable[[float], float]) -> Progress:
    incumbent, bound = (
        None if value is None else report(value) for value in (event.incumbent, event.bound)
    )
    return event._replace(incumbent=incumbent, bound=bound)


def progress_picture(lines: ProgressLines | Iterable[Progress], ax: Axes | None = None) -> Axes:
    """Draw incumbent and bound over time as steps, the gap between them shaded,
    its final value in a corner.

    Parameters
    ----------
    lines : ProgressLines, or events
    ax : matplotlib axes, optional
        Where to draw; by default on a new figure.

    Returns
    -------
    Axes

    Raises
    ------
    UsageError
        If no event has an incumbent or a bound.
    SolverUnavailable
        If matplotlib is not installed.
    """
    if not isinstance(lines, ProgressLines):
        lines = ProgressLines.of_events(lines)
    ax = ax or new_axes(8.0, 4.6)
    _draw(ax, lines)
    return ax


def _draw(ax: Axes, lines: ProgressLines) -> None:
    end = float(lines.elapsed[-1])
    unit, name = time_unit(end)
    time = lines.elapsed / unit
    moments = len(np.unique(time[np.isfinite(lines.incumbent) | np.isfinite(lines.bound)]))
    _draw_steps(ax, lines, time)
    if moments > 1:
        _fill_gap(ax, lines, time)
    for begin in lines.runs:
        ax.axvline(begin / unit, color=MUTED, linewidth=0.6, linestyle=(0, (1, 2)), zorder=2)
    ax.set_xlim(0.0, time[-1] * 1.02 if time[-1] > 0 else 1.0)
    ax.set_ylim(*_range(lines))
    ax.ticklabel_format(axis="y", useOffset=False, style="plain")
    plain_frame(ax, "left", "bottom")
    grid_below(ax)
    _write_gap(ax, lines.gap, end)
    if moments == 1:
        _say_that_nothing_went_on(ax, lines)
    else:
        legend_below(ax, ax.get_legend_handles_labels()[0], 0.45, 3)
    head(ax, lines.title, lines.subtitle, f"time, {name}", lines.axis)


def _draw_steps(ax: Axes, lines: ProgressLines, time: FloatArray) -> None:
    """Draw the lines of bound and incumbent if they exist; if there are few points, they are
    marked.
    """
    for values, colour, label, style in (
        (lines.bound, SECOND, "bound", (0, (4, 1.5))),
        (lines.incumbent, MAIN, "incumbent", "solid"),
    ):
        if np.isfinite(values).any():
            ax.step(
                time,
                values,
                where="post",
                color=colour,
                linewidth=1.6,
                linestyle=style,
                label=label,
                zorder=3,
                marker="o" if len(time) <= 40 else None,
                markersize=3,
            )


def _fill_gap(ax: Axes, lines: ProgressLines, time: FloatArray) -> None:
    """Shade the area between the lines."""
    known = np.isfinite(lines.incumbent) & np.isfinite(lines.bound)
    if (known & (lines.incumbent != lines.bound)).any():
        ax.fill_between(
            time,
            lines.incumbent,
            lines.bound,
            where=known.tolist(),
            step="post",
            color=MAIN,
            alpha=0.12,
            linewidth=0,
            zorder=1,
            label="gap",
        )


def _write_gap(ax: Axes, gap: float | None, end: float) -> None:
    """Write the last gap into the upper right corner."""
    ax.annotate(
        "no gap is known" if gap is None else f"gap {share(gap)} after {time_words(end)}",
        (1, 1),
        (-4, -4),
        "axes fraction",
        "offset points",
        ha="right",
        va="top",
        fontsize=LABEL,
        color=INK,
        zorder=5,
        bbox={"facecolor": PAPER, "edgecolor": LINE, "pad": 3, "linewidth": 0.6},
    )


def _say_that_nothing_went_on(ax: Axes, lines: ProgressLines) -> None:
    """If a run reported only its end, write a text instead of lines and a legend."""
    known = [
        f"{name} {values[np.isfinite(values)][-1]:,.6g}"
        for name, values in (("incumbent", lines.incumbent), ("bound", lines.bound))
        if np.isfinite(values).any()
    ]
    words = f"nothing was reported before the end\n{', '.join(known)}"
    ax.text(
        0.5,
        0.5,
        words,
        transform=ax.transAxes,
        ha="center",
        va="center",
        fontsize=LABEL,
        color=INK,
        zorder=5,
        bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 6},
    )
    ax.grid(visible=False)


def _range(lines: ProgressLines) -> tuple[float, float]:
    """Limits of the axis, from the last tenth of the events; early values far from these are cut
    off.
    """
    values = np.concatenate((lines.incumbent, lines.bound))
    values = values[np.isfinite(values)]
    late = np.concatenate(
        (lines.incumbent[len(lines.elapsed) // 10 :], lines.bound[len(lines.elapsed) // 10 :])
    )
    late = late[np.isfinite(late)]
    seen = late if len(late) else values
    low = float(seen.min())
    high = float(seen.max())
    margin = max(0.08 * (high - low), 1e-4 * max(abs(low), abs(high))) or 1.0
    return low - margin, high + 2 * margin
