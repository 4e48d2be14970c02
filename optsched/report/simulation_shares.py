"""Completion times and finish-time ratios of simulations: on what share of the jobs they are up to a value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from optsched.arrays import FloatArray
from optsched.errors import UsageError
from optsched.report.answers import count
from optsched.report.palette import INK, LABEL, LINE, SMALL
from optsched.report.pictures import (
    head,
    new_axes,
    plain_frame,
    require_matplotlib,
    short,
    time_ticks,
    time_unit,
)
from optsched.report.simulated import Policy, Simulated

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from optsched.simulation import Simulation
    from optsched.simulation.options import RHO

POINTS = 400
"""Points of a line, at most."""
DECADES = 1.0
"""An axis on which values span more powers of ten than this is logarithmic."""
INSIDE = 8
"""Names that find room in a picture; more stand beside it."""
BANDS = 4
"""Policies whose seeds are shown as bands, at most: more bands hide each other."""
NAME = 44
"""Letters of a name in a legend."""
DEFINITIONS = {
    "isolated": "over the time with 1/n of every pool to itself",
    "contention": "over the time on its own GPUs x max(1, jobs there / GPUs)",
    "static": "over the time on its own GPUs x max(1, all jobs / GPUs)",
}
"""What a completion time is compared with, by definition of rho."""


def completion_times_picture(
    simulations: Sequence[Simulation] | Simulated, ax: Axes | None = None
) -> Axes:
    """Draw on what share of the measured jobs the completion time (JCT) is up to a value, one line for each policy.

    The jobs of all seeds of a policy are one line; the band around it goes from the lowest to the highest of its seeds.
    Jobs that never ended count, so that the line of a policy ends where it leaves them.

    Parameters
    ----------
    simulations : sequence of Simulation
    ax : matplotlib axes, optional
        Where to draw; by default on a figure of its own.

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
    if _wide(known):
        ax = _draw(shown, values, ax)
        time_ticks(ax)
        ax.set_xlabel("completion time (JCT)", fontsize=LABEL)
    else:
        unit, name = time_unit(float(known.max()))
        ax = _draw(shown, [run / unit for run in values], ax)
        ax.set_xlabel(f"completion time (JCT), {name}", fontsize=LABEL)
    head(ax, "Completion times", _told(shown, values))
    return ax


def fairness_picture(
    simulations: Sequence[Simulation] | Simulated, ax: Axes | None = None, *, rho: RHO = "isolated"
) -> Axes:
    """Draw on what share of the measured jobs the finish-time ratio rho is up to a value, with a line at rho = 1.

    As `completion_times_picture`; ``rho`` says which definition counts (`finish_time_ratios`), unless `Simulated` does.
    """
    shown = Simulated.of(simulations, rho)
    values = [
        ratio[run.measured] for ratio, run in zip(shown.ratios, shown.simulations, strict=True)
    ]
    known = _known(values, "no measured job has a finish-time ratio")
    ax = _draw(shown, values, ax)
    if _wide(known):
        _factors(ax)
    low, high = ax.get_xlim()
    if low <= 1.0 <= high:
        ax.axvline(1.0, color=INK, linewidth=0.9, zorder=2)
        ax.annotate("rho = 1", (1, 1), (4, -2), ("data", "axes fraction"), "offset points", fontsize=SMALL, va="top",
                    color=INK, zorder=6)  # fmt: skip
    ax.set_xlabel(
        f"finish-time ratio rho: completion time {DEFINITIONS[shown.rho]}", fontsize=LABEL
    )
    head(ax, "Finish-time fairness", _told(shown, values))
    return ax


def line_of(ax: Axes, policy: Policy, x: FloatArray, y: FloatArray) -> None:
    """A stepped line in the colour and the style of a policy."""
    told = f" ({len(policy.runs)} seeds)" if len(policy.runs) > 1 else ""
    ax.step(x, y, where="post", color=policy.colour, linestyle=policy.style, linewidth=1.6, zorder=3,
            label=short(policy.name, NAME) + told)  # fmt: skip


def legend(ax: Axes, inside: bool = True) -> None:
    """The names of the policies: in the picture where few, else beside it."""
    names = len(ax.get_legend_handles_labels()[1])
    if not inside or names > INSIDE:
        ax.legend(frameon=False, fontsize=SMALL + 0.5, loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0,
                  handlelength=2.6, labelcolor=INK)  # fmt: skip
    else:
        ax.legend(frameon=False, fontsize=SMALL + 0.5, loc="best", handlelength=2.6, labelcolor=INK)


def _known(values: Sequence[FloatArray], nothing: str) -> FloatArray:
    """The values that there are; raises `UsageError` where there is none."""
    known = np.concatenate([run[~np.isnan(run)] for run in values])
    if not len(known):
        raise UsageError(f"there is nothing to draw: {nothing}")
    return known


def _wide(known: FloatArray) -> bool:
    """Whether values need a logarithmic axis."""
    return bool(known.min() > 0 and np.log10(known.max() / known.min()) > DECADES)


def _draw(shown: Simulated, values: Sequence[FloatArray], ax: Axes | None) -> Axes:
    """The lines of all policies."""
    require_matplotlib()
    names = len(shown.policies)
    ax = new_axes(6.8 if names <= INSIDE else 9.4, 4.0) if ax is None else ax
    plain_frame(ax, "left", "bottom")
    known = np.concatenate([run[~np.isnan(run)] for run in values])
    low, high, wide = float(known.min()), float(known.max()), _wide(known)
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
    ax.set_ylabel("share of the jobs", fontsize=LABEL)
    ax.grid(color=LINE, linewidth=0.5, zorder=0)
    ax.set_axisbelow(True)
    legend(ax)
    return ax


def _band(
    ax: Axes, policy: Policy, values: Sequence[FloatArray], start: float, end: float, wide: bool
) -> None:
    """From the lowest to the highest share of the seeds."""
    grid = np.geomspace(start, end, POINTS) if wide else np.linspace(start, end, POINTS)
    shares = np.array([
        np.searchsorted(np.sort(values[run]), grid, side="right") / max(len(values[run]), 1)  # NaN is sorted last
        for run in policy.runs
    ])  # fmt: skip
    ax.fill_between(grid, shares.min(axis=0), shares.max(axis=0), step="post", color=policy.colour, alpha=0.16,
                    linewidth=0, zorder=1.5)  # fmt: skip


def _told(shown: Simulated, values: Sequence[FloatArray]) -> str:
    """The smaller line: how many jobs, and how many have no value."""
    without = sum(int(np.isnan(run).sum()) for run in values)
    parts = [count(shown.jobs, "job")]
    if without:
        parts.append(f"{without:,} have no end, but count")
    if shown.seeds > 1 and len(shown.policies) <= BANDS:
        parts.append("bands: lowest to highest seed")
    return "; ".join(parts)


def _factors(ax: Axes) -> None:
    """Ratios as people say them."""
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

    low, high = ax.get_xlim()
    decades = 10.0 ** np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1)
    factors = (1, 2, 5) if high / low < 1e4 else (1,)
    ticks = [
        float(decade * factor)
        for decade in decades
        for factor in factors
        if low <= decade * factor <= high
    ]
    ax.xaxis.set_major_locator(FixedLocator(ticks))
    ax.xaxis.set_major_formatter(FixedFormatter([f"{tick:g}" for tick in ticks]))
    ax.xaxis.set_minor_locator(NullLocator())
