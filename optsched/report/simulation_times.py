"""What a simulated cluster does over time: part of the GPUs that jobs hold, jobs that wait."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from optsched.arrays import FloatArray
from optsched.errors import UsageError
from optsched.report.answers import count
from optsched.report.palette import LABEL, LINE
from optsched.report.pictures import head, new_axes, plain_frame, require_matplotlib, time_unit
from optsched.report.simulated import Policy, Simulated, first_arrival
from optsched.report.simulation_shares import BANDS, legend, line_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from optsched.simulation import RoundLog, Simulation

EXACT = 300
"""Rounds that are drawn one by one, at most; of more, and of several seeds, means over windows are drawn."""
WINDOWS = 240
"""Windows along the time, at most."""
HOUR = 3600.0
WIDTHS = (
    1.0,
    10.0,
    60.0,
    300.0,
    900.0,
    1800.0,
    HOUR,
    2 * HOUR,
    3 * HOUR,
    6 * HOUR,
    12 * HOUR,
    24 * HOUR,
)
"""Widths of windows in seconds; longer simulations have multiples of the last."""

Amounts = Callable[["RoundLog"], tuple[FloatArray, FloatArray]]
"""Of rounds: an amount per second, and what it is a part of."""


def utilisation_picture(
    simulations: Sequence[Simulation] | Simulated, ax: Axes | None = None
) -> Axes:
    """Draw which part of the GPUs of the nodes that are up jobs hold, over the time, one line for each policy.

    Up to 300 rounds of one seed are drawn as they are; else means over windows of equal width. Of several seeds the
    line is their mean (of those that have not ended), the band goes from the lowest to the highest.

    Parameters
    ----------
    simulations : sequence of Simulation
    ax : matplotlib axes, optional
        Where to draw; by default on a figure of its own.

    Raises
    ------
    UsageError
        If no time passes in any of them.
    SolverUnavailable
        If matplotlib is not installed.
    """
    ax, told = _draw(Simulated.of(simulations), ax, busy_gpus)
    ax.set_ylim(0.0, 1.03)
    ax.set_ylabel("part of the GPUs held", fontsize=LABEL)
    head(ax, "Utilisation", told)
    return ax


def queue_picture(simulations: Sequence[Simulation] | Simulated, ax: Axes | None = None) -> Axes:
    """Draw how many jobs wait, over the time; as `utilisation_picture`."""
    ax, told = _draw(Simulated.of(simulations), ax, waiting_jobs)
    ax.set_ylim(0.0, max(1.0, ax.get_ylim()[1]))
    ax.set_ylabel("jobs that wait", fontsize=LABEL)
    head(ax, "Queue", told)
    return ax


def busy_gpus(rounds: RoundLog) -> tuple[FloatArray, FloatArray]:
    """Mean number of GPUs that are held in each round, and those of the nodes that are up."""
    seconds = rounds.end - rounds.start
    held = np.divide(rounds.busy.sum(axis=1), seconds, out=np.zeros(len(rounds)), where=seconds > 0)
    return held, rounds.gpus.sum(axis=1)


def waiting_jobs(rounds: RoundLog) -> tuple[FloatArray, FloatArray]:
    """Jobs that wait in each round; a part of nothing."""
    return rounds.waiting.astype(float), np.ones(len(rounds))


def _draw(shown: Simulated, ax: Axes | None, amounts: Amounts) -> tuple[Axes, str]:
    """The lines of all policies; and the smaller line below the title."""
    running = [run for run in shown.simulations if len(run.rounds)]
    span = max((float(run.rounds.end.max()) - first_arrival(run) for run in running), default=0.0)
    if span <= 0:
        raise UsageError("there is nothing to draw: no time passes")
    require_matplotlib()
    ax = new_axes(9.4, 3.4) if ax is None else ax
    plain_frame(ax, "left", "bottom")
    unit, name = time_unit(span)
    exact = shown.seeds == 1 and all(len(run.rounds) <= EXACT for run in shown.simulations)
    width = _width(
        span, max(float(np.median(run.rounds.end - run.rounds.start)) for run in running)
    )
    edges = np.arange(int(np.ceil(span / width * (1 - 1e-12))) + 1, dtype=np.float64) * width
    for policy in shown.policies:
        if exact:
            times, values = _rounds(shown.simulations[policy.runs[0]], amounts)
            line_of(ax, policy, times / unit, values)
        else:
            _windows(ax, shown, policy, amounts, edges, unit)
    ax.set_xlim(0.0, span / unit)
    ax.set_xlabel(f"time since the first arrival, {name}", fontsize=LABEL)
    ax.grid(color=LINE, linewidth=0.5, zorder=0)
    ax.set_axisbelow(True)
    if len(shown.policies) > 1 or shown.seeds > 1:
        legend(ax, inside=False)
    told = "round by round" if exact else f"means over {_width_words(width)}"
    if shown.seeds > 1:
        bands = ", bands from the lowest to the highest" if len(shown.policies) <= BANDS else ""
        told += f"; means of {count(shown.seeds, 'seed')}{bands}"
    return ax, told


def _rounds(run: Simulation, amounts: Amounts) -> tuple[FloatArray, FloatArray]:
    """Steps of a line through all rounds; broken where there is none, or nothing to be a part of."""
    rounds, origin = run.rounds, first_arrival(run)
    if not len(rounds):
        return np.zeros(0), np.zeros(0)
    amount, whole = amounts(rounds)
    values = np.divide(amount, whole, out=np.full(len(rounds), np.nan), where=whole > 0)
    gap = np.flatnonzero(rounds.start[1:] > rounds.end[:-1]) + 1
    times = np.insert(rounds.start, gap, rounds.end[gap - 1]) - origin
    values = np.insert(values, gap, np.nan)
    return np.append(times, rounds.end[-1] - origin), np.append(values, values[-1])


def _windows(
    ax: Axes, shown: Simulated, policy: Policy, amounts: Amounts, edges: FloatArray, unit: float
) -> None:
    """Means over windows, and the band of the seeds."""
    means = np.array([window_means(shown.simulations[run], amounts, edges) for run in policy.runs])
    there = ~np.isnan(means)
    runs = there.sum(axis=0)
    mean = np.divide(
        np.where(there, means, 0.0).sum(axis=0),
        runs,
        out=np.full(len(runs), np.nan),
        where=runs > 0,
    )
    line_of(ax, policy, edges / unit, np.append(mean, mean[-1]))
    if len(policy.runs) > 1 and len(shown.policies) <= BANDS:
        low = np.where(there, means, np.inf).min(axis=0)
        high = np.where(there, means, -np.inf).max(axis=0)
        low, high = (np.where(runs > 0, side, np.nan) for side in (low, high))
        ax.fill_between(edges / unit, np.append(low, low[-1]), np.append(high, high[-1]), step="post",
                        color=policy.colour, alpha=0.16, linewidth=0, zorder=1.5)  # fmt: skip


def window_means(run: Simulation, amounts: Amounts, edges: FloatArray) -> FloatArray:
    """Integral of an amount over each window, by that of what it is a part of; NaN where the run has no time in it.

    Parameters
    ----------
    edges : FloatArray, shape (windows + 1,)
        Seconds after the first arrival.
    """
    rounds, origin = run.rounds, first_arrival(run)
    if not len(rounds):
        return np.full(len(edges) - 1, np.nan)
    seconds = rounds.end - rounds.start
    times = np.stack([rounds.start, rounds.end], axis=1).ravel() - origin
    parts = []
    for rate in amounts(rounds):
        grown = np.cumsum(rate * seconds)
        area = np.stack([np.append(0.0, grown[:-1]), grown], axis=1).ravel()
        parts.append(np.diff(np.interp(edges, times, area)))
    means: FloatArray = np.divide(
        parts[0],
        parts[1],
        out=np.full(len(edges) - 1, np.nan),
        where=parts[1] > 1e-9 * np.ptp(edges),
    )
    return means


def _width(span: float, least: float) -> float:
    """The width of the windows: not below the usual round, and not so small that there are too many."""
    width = next((width for width in WIDTHS if width >= least and span / width <= WINDOWS), 0.0)
    return width or float(WIDTHS[-1] * np.ceil(max(span / WINDOWS, least) / WIDTHS[-1]))


def _width_words(width: float) -> str:
    """``15 min``, ``2 h``: of windows that are whole in one of the units."""
    unit, name = next(
        (unit, name)
        for unit, name in ((86_400.0, "days"), (HOUR, "h"), (60.0, "min"), (1.0, "s"))
        if width >= unit
    )
    return f"{width / unit:g} {name}" if width != 86_400.0 else "1 day"
