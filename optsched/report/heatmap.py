"""The allocation as a picture: which job has which pool for what fraction of the time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.candidates import Classes
from optsched.errors import UsageError
from optsched.instance import Instance
from optsched.report.answers import (
    AllocatedRows,
    Answer,
    SolutionFile,
    headline,
    instance_of,
    shares_of,
)
from optsched.report.palette import IDLE, INK, LABEL, LINE, PALE_INK, PAPER
from optsched.report.pictures import figure_of, head, new_axes, short
from optsched.solution import Allocation, Solution, Status

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage

ANSWERED = (Status.OPTIMAL, Status.FEASIBLE)
# Rows that still have room for a label and for the numbers.
MAX_LABELLED = 50
# Rows of a picture that has no room for labels.
MAX_BANDS = 400
# Smaller fractions are drawn as none.
VISIBLE = 5e-4
# Fractions from `VISIBLE` to 1, evenly spaced.
COLOURS = ("#e3edf8", "#c6dbef", "#93c0e0", "#4f97cb", "#1c61a5", "#08306b")


@dataclass(frozen=True)
class HeatmapRows:
    """What the heatmap shows: mean fractions of time, one row per job or per group of jobs.

    Attributes
    ----------
    fraction : FloatArray, shape (rows, places)
        Of wall-clock time; a job that shares GPUs counts as if it had them alone.
    runs : BoolArray, shape (rows, places)
        Whether a job of the row can run there at all.
    labels : tuple of str
        One per row; empty where there are too many rows for labels.
    size : IntArray, shape (rows,)
        Jobs in each row.
    places : tuple of str
        The pools, and ``no pool`` where some option uses none.
    row_words : str
        What a row is.
    used, capacity : FloatArray, shape (places,)
        GPUs in use, mean over time, and usable GPUs; NaN for ``no pool``.
    """

    fraction: FloatArray
    runs: BoolArray
    labels: tuple[str, ...]
    size: IntArray
    places: tuple[str, ...]
    row_words: str
    used: FloatArray
    capacity: FloatArray


def heatmap_rows(source: Allocation | SolutionFile) -> HeatmapRows:
    """Fractions by job and pool, put together until the rows fit on a page.

    A row is a job; else a class of jobs that are equal for the formulation; and if even these are
    too many, the jobs are sorted by the pool that they use most, and neighbours are put together.
    """
    shares = shares_of(source)
    C = source.classes
    fraction, runs, places = _by_job(C, shares)
    jobs = np.flatnonzero(C.of_job >= 0)
    fraction = fraction[jobs]
    runs = runs[jobs]
    if len(jobs) <= MAX_LABELLED:
        words = "job (GPUs)"
        group = np.arange(len(jobs), dtype=np.int64)
    elif len(C) <= MAX_LABELLED:
        words = "class of equal jobs (GPUs)"
        group = C.of_job[jobs]
    else:
        words = "jobs, by the pool that they use most"
        group = _bands(fraction)
    first = np.unique(group, return_index=True)[1]
    size = np.bincount(group)
    labels: tuple[str, ...] = ()
    if len(size) <= MAX_LABELLED:
        labels = tuple(
            _label(C.instance, int(jobs[row]), int(n)) for row, n in zip(first, size, strict=True)
        )
    mean, some = _means(fraction, runs, group)
    # The last place: no pool (-1)
    used = np.zeros(len(C.instance.cluster.pools) + 1)
    np.add.at(used, shares.pool, shares.gpus * shares.fraction)
    capacity = C.instance.cluster.gpus(C.instance.now).astype(np.float64)
    capacity, used[-1] = np.append(capacity, np.nan), np.nan
    return HeatmapRows(
        mean, some, labels, size, places, words, used[: len(places)], capacity[: len(places)]
    )


def _by_job(C: Classes, shares: AllocatedRows) -> tuple[FloatArray, BoolArray, tuple[str, ...]]:
    """Fractions of every job in every place, where it can run, and the names of the places."""
    jobs = len(C.instance.jobs_table)
    pools = C.instance.cluster.pools
    # The last place: no pool (-1)
    fraction = np.zeros((jobs, len(pools) + 1))
    shared = shares.partner >= 0
    np.add.at(fraction, (shares.job, shares.pool), shares.fraction)
    np.add.at(fraction, (shares.partner[shared], shares.pool[shared]), shares.fraction[shared])
    of_class = np.zeros(
        (len(C) + 1, len(pools) + 1), bool
    )  # the last class: not in the program (-1)
    of_class[C.class_a, C.pool] = True
    of_class[C.class_b[~C.alone], C.pool[~C.alone]] = True
    runs = of_class[C.of_job]
    names = tuple(pool.name for pool in pools)
    if not (C.pool < 0).any():
        return fraction[:, :-1], runs[:, :-1], names
    return fraction, runs, (*names, "no pool")


def _means(fraction: FloatArray, runs: BoolArray, group: IntArray) -> tuple[FloatArray, BoolArray]:
    size = np.bincount(group)
    total = np.zeros((len(size), fraction.shape[1]))
    some = np.zeros((len(size), fraction.shape[1]), bool)
    np.add.at(total, group, fraction)
    np.logical_or.at(some, group, runs)
    return total / size[:, np.newaxis], some


def _bands(fraction: FloatArray) -> IntArray:
    """Group of each job: sorted by the place used most, then by how much,
    and cut into bands of nearly equal size.
    """
    count = len(fraction)
    most = fraction.argmax(axis=1)
    most = np.where(fraction.max(axis=1) >= VISIBLE, most, fraction.shape[1])
    order = np.lexsort((-fraction.sum(axis=1), -fraction.max(axis=1), most))
    return np.argsort(order) * min(count, MAX_BANDS) // count


def _label(instance: Instance, job: int, count: int) -> str:
    table = instance.jobs_table
    name = short(table.names[job], 28)
    low = int(table.gpus_min[job])
    high = int(table.gpus_max[job])
    gpus = f"{low}" if low == high else f"{low}-{high}"
    return f"{name} ({gpus})" + (f" and {count - 1} like it" if count > 1 else "")


def allocation_heatmap(solution: Answer | Allocation, ax: Axes | None = None) -> Axes:
    """Draw the allocation of a solution: jobs x pools, coloured by fraction of time.

    A job alone on a pool for half of the time counts 0.5 there, whatever its GPUs; a pair that
    shares GPUs counts for both jobs. Places where a job cannot run are grey. Many jobs are put
    together (`heatmap_rows`).

    Parameters
    ----------
    solution : Solution, SolutionFile or Allocation
        A solution must have an allocation.
    ax : matplotlib axes, optional
        Where to draw; by default on a figure of its own, of a size that fits the rows
        (``ax.figure``).

    Returns
    -------
    Axes

    Raises
    ------
    UsageError
        If there is no allocation to draw.
    SolverUnavailable
        If matplotlib is not installed.
    """
    source = solution.allocation if isinstance(solution, Solution) else solution
    answered = isinstance(solution, Allocation) or solution.status in ANSWERED
    if source is None or not answered:
        assert not isinstance(solution, Allocation)
        raise UsageError(f"the solution is {solution.status}: there is no allocation to draw")
    rows = heatmap_rows(source)
    if not len(rows.fraction):
        instance = source.classes.instance
        why = "no job is in the program: there is no allocation to draw"
        if (instance.jobs_table.arrival > instance.now).any():
            why += "; jobs arrive later, as in a trace: `optsched simulate` runs it"
        raise UsageError(why)
    if ax is None:
        height = 1.7 + (max(0.26 * len(rows.fraction), 1.0) if rows.labels else 5.0)
        ax = new_axes(max(4.2 + 0.95 * len(rows.places), 5.6), height)
    image = _draw(ax, rows)
    _label_axes(ax, rows, solution)
    bar = figure_of(ax).colorbar(image, ax=ax, fraction=0.05, pad=0.03, aspect=25)
    bar.set_label(
        "fraction of time" if rows.size.max() == 1 else "fraction of time, mean of the row's jobs"
    )
    bar.set_ticks([VISIBLE, 0.2, 0.4, 0.6, 0.8, 1.0], labels=["0", "0.2", "0.4", "0.6", "0.8", "1"])
    bar.outline.set_visible(False)
    return ax


def _draw(ax: Axes, rows: HeatmapRows) -> AxesImage:
    from matplotlib.colors import LinearSegmentedColormap

    colours = LinearSegmentedColormap.from_list("fractions", COLOURS).with_extremes(
        bad=IDLE, under=PAPER
    )
    shown = np.ma.masked_array(rows.fraction, ~rows.runs & (rows.fraction == 0))
    height, width = rows.fraction.shape
    top = height if rows.labels else int(rows.size.sum())
    image = ax.imshow(
        shown,
        cmap=colours,
        vmin=VISIBLE,
        vmax=1.0,
        aspect="auto",
        interpolation="nearest",
        extent=(-0.5, width - 0.5, top - 0.5, -0.5),
    )
    ax.set_xticks(np.arange(1, width) - 0.5, minor=True)
    if rows.labels:
        ax.set_yticks(np.arange(1, height) - 0.5, minor=True)
        for row, place in np.argwhere(rows.fraction >= VISIBLE).tolist():
            value = rows.fraction[row, place]
            ink = PALE_INK if value > 0.55 else INK
            text = f"{value:.2f}" if value >= 0.005 else "<.01"
            ax.text(place, row, text, ha="center", va="center", fontsize=8, color=ink)
    ax.grid(which="minor", color=LINE, linewidth=0.6)
    ax.tick_params(which="both", length=0)
    ax.spines[:].set_color(LINE)
    return image


def _label_axes(ax: Axes, rows: HeatmapRows, answer: Answer | Allocation) -> None:
    ticks = [
        place if np.isnan(has) else f"{place}\n{used:.3g} of {has:g}"
        for place, used, has in zip(
            rows.places, rows.used.tolist(), rows.capacity.tolist(), strict=True
        )
    ]
    ax.set_xticks(np.arange(len(rows.places)), ticks)
    if rows.labels:
        ax.set_yticks(np.arange(len(rows.labels)), rows.labels, fontsize=LABEL)
    instance = instance_of(answer)
    absent = len(instance.jobs_table) - int(rows.size.sum())
    jobs = f"{rows.size.sum():,} jobs" + (f", {absent:,} not in the program" if absent else "")
    subtitle = headline(answer, jobs, "" if rows.runs.all() else "grey: cannot run there")
    title = f"{instance.name}: fraction of time on each pool"
    head(ax, title, subtitle, "pool (GPUs in use, mean over time)", rows.row_words)
