"""Pictures of simulations: completion times, fairness, and GPUs held and jobs waiting over time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from optsched.arrays import FloatArray, quotient
from optsched.display import count
from optsched.errors import UsageError
from optsched.report.palette import INK
from optsched.report.pictures import (
    LEGEND,
    SINCE_FIRST,
    fixed_ticks,
    grid_below,
    head,
    legend_beside,
    new_axes,
    plain_frame,
    round_factors,
    round_width,
    short,
    time_ticks,
    time_unit,
)
from optsched.report.simulated import Policy, Simulated, first_arrival

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from optsched.simulation import RoundLog, Simulation
    from optsched.simulation.options import RHO


# --- shares of the jobs --------------------------------------------------------------------------

# Points of a line, at most.
POINTS = 400
# If values span more powers of ten than this, the axis is logarithmic.
DECADES = 1.0
# Most names inside a picture; more are put beside it.
INSIDE = 8
# Most policies with bands for their seeds; more bands would hide each other.
BANDS = 4
SHARE = "share of the jobs"
# Most letters of a name in a legend.
NAME = 44
# Denominator of rho, by definition.
DEFINITIONS = {
    "isolated": "over the time with 1/n of every pool to itself",
    "contention": "over the time on its own GPUs x max(1, jobs there / GPUs)",
    "static": "over the time on its own GPUs x max(1, all jobs / GPUs)",
}


def completion_times_picture(
    simulations: Sequence[Simulation] | Simulated, ax: Axes | None = None
) -> Axes:
    """Draw on what share of the measured jobs the completion time (JCT) is up to a value,
    one line for each policy.

    The jobs of all seeds of a policy are one line; the band around it goes from the lowest to the
    highest of its seeds. Jobs that never ended are included in the total, so the line of a policy
    then ends below 1.

    Parameters
    ----------
    simulations : sequence of Simulation
    ax : matplotlib axes, optional
        Where to draw; by default on a new figure.

    Raises
    ------
    UsageError
        If no measured job ended.
    SolverUnavailable
        If matplotlib is not installed.
    """
    shown = Simulated.of(simulations)
    values = [run.completion_times[run.measured] for run in shown.simulations]
    known = _known(values, "no measured job was completed")
    axis = "completion time (JCT)"
    if _wide(known):
        ax = _draw_shares(shown, values, ax)
        time_ticks(ax)
    else:
        unit, name = time_unit(float(known.max()))
        ax = _draw_shares(shown, [run / unit for run in values], ax)
        axis += f", {name}"
    head(ax, "Completion times", _shares_subtitle(shown, values), axis, SHARE)
    return ax


def fairness_picture(
    simulations: Sequence[Simulation] | Simulated, ax: Axes | None = None, *, rho: RHO = "isolated"
) -> Axes:
    """Draw on what share of the measured jobs the finish-time ratio rho is up to a value,
    with a line at rho = 1.

    As `completion_times_picture`; ``rho`` says which definition counts (`finish_time_ratios`),
    unless `Simulated` does.
    """
    shown = Simulated.of(simulations, rho)
    values = [
        ratio[run.measured] for ratio, run in zip(shown.ratios, shown.simulations, strict=True)
    ]
    known = _known(values, "no measured job has a finish-time ratio")
    ax = _draw_shares(shown, values, ax)
    if _wide(known):
        _factors(ax)
    low, high = ax.get_xlim()
    if low <= 1.0 <= high:
        ax.axvline(1.0, color=INK, linewidth=0.9, zorder=2)
    # A label at the line would cover the curves
    subtitle = f"{_shares_subtitle(shown, values)}; vertical line: rho = 1"
    axis = f"finish-time ratio rho: completion time {DEFINITIONS[shown.rho]}"
    head(ax, "Finish-time fairness", subtitle, axis, SHARE)
    return ax


def line_of(ax: Axes, policy: Policy, x: FloatArray, y: FloatArray) -> None:
    """A stepped line in the colour and the style of a policy."""
    seeds = f" ({len(policy.runs)} seeds)" if len(policy.runs) > 1 else ""
    ax.step(
        x,
        y,
        where="post",
        color=policy.colour,
        linestyle=policy.style,
        linewidth=1.6,
        zorder=3,
        label=short(policy.name, NAME) + seeds,
    )


def band_of(ax: Axes, policy: Policy, x: FloatArray, low: FloatArray, high: FloatArray) -> None:
    """The band of the seeds of a policy, in its colour."""
    ax.fill_between(
        x, low, high, step="post", color=policy.colour, alpha=0.16, linewidth=0, zorder=1.5
    )


def legend(ax: Axes, inside: bool = True) -> None:
    """The legend of the policies: inside the picture if there are few, else beside it."""
    names = len(ax.get_legend_handles_labels()[1])
    if inside and names <= INSIDE:
        ax.legend(**LEGEND, loc="best", handlelength=2.6, labelcolor=INK)
    else:
        legend_beside(ax, handlelength=2.6)


def _known(values: Sequence[FloatArray], nothing: str) -> FloatArray:
    """The known values; raises `UsageError` if there are none."""
    known = np.concatenate([run[~np.isnan(run)] for run in values])
    if not len(known):
        raise UsageError(f"there is nothing to draw: {nothing}")
    return known


def _wide(known: FloatArray) -> bool:
    """Whether values need a logarithmic axis."""
    return bool(known.min() > 0 and np.log10(known.max() / known.min()) > DECADES)


def _draw_shares(shown: Simulated, values: Sequence[FloatArray], ax: Axes | None) -> Axes:
    """The lines of all policies."""
    names = len(shown.policies)
    ax = ax or new_axes(6.8 if names <= INSIDE else 9.4, 4.0)
    plain_frame(ax, "left", "bottom")
    known = _known(values, "no value is known")
    low = float(known.min())
    high = float(known.max())
    wide = _wide(known)
    start = low / 1.15 if wide else min(low, 0.0)
    end = high * 1.15 if wide else high + 0.03 * max(high - start, 1e-9)
    for policy in shown.policies:
        jobs = sum(len(values[run]) for run in policy.runs)
        found = np.sort(
            np.concatenate([values[run][~np.isnan(values[run])] for run in policy.runs])
        )
        share = np.arange(1, len(found) + 1) / max(jobs, 1)
        rows = np.linspace(0, len(found) - 1, min(POINTS, len(found))).round().astype(np.int64)
        top = float(share[-1]) if len(share) else 0.0
        line_of(
            ax,
            policy,
            np.concatenate([[start], found[rows], [end]]),
            np.concatenate([[0.0], share[rows], [top]]),
        )
        if len(policy.runs) > 1 and names <= BANDS:
            _band(ax, policy, values, start, end, wide)
    if wide:
        ax.set_xscale("log")
    ax.set_xlim(start, end)
    ax.set_ylim(0.0, 1.02)
    grid_below(ax)
    legend(ax)
    return ax


def _band(
    ax: Axes, policy: Policy, values: Sequence[FloatArray], start: float, end: float, wide: bool
) -> None:
    """The band between the lowest and the highest share over the seeds."""
    grid = np.geomspace(start, end, POINTS) if wide else np.linspace(start, end, POINTS)
    shares = np.array(
        [
            np.searchsorted(np.sort(values[run]), grid, side="right")
            / max(len(values[run]), 1)  # NaN is sorted last
            for run in policy.runs
        ]
    )
    band_of(ax, policy, grid, shares.min(axis=0), shares.max(axis=0))


def _shares_subtitle(shown: Simulated, values: Sequence[FloatArray]) -> str:
    """The subtitle: number of jobs, and number of jobs without a value."""
    without = sum(int(np.isnan(run).sum()) for run in values)
    parts = [_jobs_words(shown)]
    if without:
        parts.append(f"{without:,} have no end, but count")
    if shown.seeds > 1 and len(shown.policies) <= BANDS:
        parts.append("bands: lowest to highest seed")
    return "; ".join(parts)


def _jobs_words(shown: Simulated) -> str:
    """Number of measured jobs per policy; usually it is the same for all."""
    jobs = [
        sum(int(shown.simulations[run].measured.sum()) for run in policy.runs)
        for policy in shown.policies
    ]
    if len(jobs) == 1:
        return count(jobs[0], "job")
    if len(set(jobs)) == 1:
        return f"{count(jobs[0], 'job')} under each of {len(jobs)} policies"
    return f"{min(jobs):,} to {max(jobs):,} jobs under each of {len(jobs)} policies"


def _factors(ax: Axes) -> None:
    """Ticks at round ratios."""
    low, high = ax.get_xlim()
    ticks = round_factors(low, high, (1, 2, 5) if high / low < 1e4 else (1,))
    fixed_ticks(ax, ticks)


# --- over the time -------------------------------------------------------------------------------

# Most rounds that are drawn one by one. With more, and for several seeds, means over windows are
# drawn.
EXACT = 300
# Windows along the time, at most.
WINDOWS = 240

# Functions of rounds: an amount, and the total that it is a part of.
Amounts = Callable[["RoundLog"], tuple[FloatArray, FloatArray]]


def utilisation_picture(
    simulations: Sequence[Simulation] | Simulated, ax: Axes | None = None
) -> Axes:
    """Draw which part of the GPUs of the nodes that are up jobs hold, over the time,
    one line for each policy.

    Up to 300 rounds of one seed are drawn as they are; else means over windows of equal width. Of
    several seeds the line is their mean (of those that have not ended), the band goes from the
    lowest to the highest.

    Parameters
    ----------
    simulations : sequence of Simulation
    ax : matplotlib axes, optional
        Where to draw; by default on a new figure.

    Raises
    ------
    UsageError
        If no time passes in any of them.
    SolverUnavailable
        If matplotlib is not installed.
    """
    ax, subtitle, axis = _draw_over_time(Simulated.of(simulations), ax, busy_gpus)
    ax.set_ylim(0.0, 1.03)
    head(ax, "Utilisation", subtitle, axis, "part of the GPUs held")
    return ax


def queue_picture(simulations: Sequence[Simulation] | Simulated, ax: Axes | None = None) -> Axes:
    """Draw how many jobs wait, over the time; as `utilisation_picture`."""
    ax, subtitle, axis = _draw_over_time(Simulated.of(simulations), ax, waiting_jobs)
    ax.set_ylim(0.0, max(1.0, ax.get_ylim()[1]))
    head(ax, "Queue", subtitle, axis, "jobs that wait")
    return ax


def busy_gpus(rounds: RoundLog) -> tuple[FloatArray, FloatArray]:
    """Mean number of GPUs that are held in each round, and those of the nodes that are up."""
    seconds = rounds.end - rounds.start
    held = quotient(rounds.busy.sum(axis=1), seconds)
    return held, rounds.gpus.sum(axis=1)


def waiting_jobs(rounds: RoundLog) -> tuple[FloatArray, FloatArray]:
    """Jobs that wait in each round; there is no total."""
    return rounds.waiting.astype(float), np.ones(len(rounds))


def _draw_over_time(shown: Simulated, ax: Axes | None, amounts: Amounts) -> tuple[Axes, str, str]:
    """The lines of all policies;
    returns the subtitle and the name of the time axis.
    """
    running = [run for run in shown.simulations if len(run.rounds)]
    span = max((float(run.rounds.end.max()) - first_arrival(run) for run in running), default=0.0)
    if span <= 0:
        raise UsageError("there is nothing to draw: no time passes")
    ax = ax or new_axes(9.4, 3.4)
    plain_frame(ax, "left", "bottom")
    unit, name = time_unit(span)
    exact = shown.seeds == 1 and all(len(run.rounds) <= EXACT for run in shown.simulations)
    # Windows are at least as long as a typical round
    usual = max(float(np.median(run.rounds.end - run.rounds.start)) for run in running)
    width = round_width(span, WINDOWS, usual)
    edges = np.arange(int(np.ceil(span / width * (1 - 1e-12))) + 1, dtype=np.float64) * width
    for policy in shown.policies:
        if exact:
            times, values = _rounds(shown.simulations[policy.runs[0]], amounts)
            line_of(ax, policy, times / unit, values)
        else:
            _windows(ax, shown, policy, amounts, edges, unit)
    ax.set_xlim(0.0, span / unit)
    grid_below(ax)
    if len(shown.policies) > 1 or shown.seeds > 1:
        legend(ax, inside=False)
    subtitle = "round by round" if exact else f"means over {_width_words(width)}"
    if shown.seeds > 1:
        bands = ", bands from the lowest to the highest" if len(shown.policies) <= BANDS else ""
        subtitle += f"; means of {count(shown.seeds, 'seed')}{bands}"
    return ax, subtitle, SINCE_FIRST.format(name)


def _rounds(run: Simulation, amounts: Amounts) -> tuple[FloatArray, FloatArray]:
    """Steps of a line through all rounds;
    the line is interrupted between rounds, and where the total is 0.
    """
    rounds = run.rounds
    origin = first_arrival(run)
    if not len(rounds):
        return np.zeros(0), np.zeros(0)
    amount, whole = amounts(rounds)
    values = quotient(amount, whole, np.nan)
    gap = np.flatnonzero(rounds.start[1:] > rounds.end[:-1]) + 1
    times = np.insert(rounds.start, gap, rounds.end[gap - 1]) - origin
    values = np.insert(values, gap, np.nan)
    return np.append(times, rounds.end[-1] - origin), np.append(values, values[-1])


def _windows(
    ax: Axes, shown: Simulated, policy: Policy, amounts: Amounts, edges: FloatArray, unit: float
) -> None:
    """Means over windows, and the band of the seeds."""
    means = np.array([window_means(shown.simulations[run], amounts, edges) for run in policy.runs])
    known = ~np.isnan(means)
    runs = known.sum(axis=0)
    mean = quotient(np.where(known, means, 0.0).sum(axis=0), runs, np.nan)
    line_of(ax, policy, edges / unit, np.append(mean, mean[-1]))
    if len(policy.runs) > 1 and len(shown.policies) <= BANDS:
        low = np.where(known, means, np.inf).min(axis=0)
        high = np.where(known, means, -np.inf).max(axis=0)
        low, high = (np.where(runs > 0, side, np.nan) for side in (low, high))
        band_of(ax, policy, edges / unit, np.append(low, low[-1]), np.append(high, high[-1]))


def window_means(run: Simulation, amounts: Amounts, edges: FloatArray) -> FloatArray:
    """Integral of an amount over each window, divided by that of its total; NaN for windows outside
    of the run.

    Parameters
    ----------
    edges : FloatArray, shape (windows + 1,)
        Seconds after the first arrival.
    """
    rounds = run.rounds
    origin = first_arrival(run)
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


def _width_words(width: float) -> str:
    """``15 min``, ``2 h``: the width of windows, in a unit where it is an integer."""
    unit, name = next(
        (unit, name)
        for unit, name in ((86_400.0, "days"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))
        if width >= unit
    )
    return f"{width / unit:g} {name}" if width != 86_400.0 else "1 day"
