"""The allocation as a picture: fraction of time of each job on each pool."""

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
# Most rows with a label and numbers, and most columns with a label.
MAX_LABELLED = 50
# Most rows, and most columns, without labels.
MAX_BANDS = 400
# Width of a picture with many places.
MOST_INCHES = 24.0
# Smaller fractions are drawn as 0.
VISIBLE = 5e-4
# Fractions from `VISIBLE` to 1, evenly spaced.
COLOURS = ("#e3edf8", "#c6dbef", "#93c0e0", "#4f97cb", "#1c61a5", "#08306b")


@dataclass(frozen=True)
class HeatmapRows:
    """The data of the heatmap: mean fractions of time, one row per job or per group of jobs,
    one column per place or per group of places.

    Attributes
    ----------
    fraction : FloatArray, shape (rows, columns)
        Fraction of wall-clock time; sharing GPUs with another job makes no difference.
    runs : BoolArray, shape (rows, columns)
        Whether a job of the row can run there.
    labels : tuple of str
        One per row; empty if there are too many rows for labels.
    size : IntArray, shape (rows,)
        Jobs in each row.
    places : tuple of str
        First the pools (left out if no job can use one). If some options use no pool, then their
        resources if each such option uses at most one (such as the agents of an assignment), else
        ``no pool``.
    row_words : str
        Description of a row.
    used, capacity : FloatArray, shape (places,)
        Mean GPUs in use over time, and usable GPUs; for resources, their use and capacity; NaN for
        ``no pool``.
    places_in : IntArray, shape (columns,)
        Places in each column: 1, unless there are too many for labels.
    pooled : bool
        Whether the pools are among the places.
    """

    fraction: FloatArray
    runs: BoolArray
    labels: tuple[str, ...]
    size: IntArray
    places: tuple[str, ...]
    row_words: str
    used: FloatArray
    capacity: FloatArray
    places_in: IntArray
    pooled: bool = True


def heatmap_rows(source: Allocation | SolutionFile) -> HeatmapRows:
    """Fractions by job and pool, aggregated until the rows fit on a page.

    A row is a job. If there are too many jobs, a row is a class of jobs that are equal for the
    formulation. If there are too many classes, jobs are sorted by the pool that they use most, and
    consecutive jobs are merged. Of too many places consecutive ones are merged.
    """
    shares = shares_of(source)
    C = source.classes
    places = _RunPlaces.of(C)
    fraction, runs = _by_job(C, shares, places)
    jobs = np.flatnonzero(C.of_job >= 0)
    fraction = fraction[jobs]
    runs = runs[jobs]
    if len(jobs) <= MAX_LABELLED:
        words = "job (GPUs)" if places.pooled else "job"
        group = np.arange(len(jobs), dtype=np.int64)
    elif len(C) <= MAX_LABELLED:
        words = "class of equal jobs (GPUs)" if places.pooled else "class of equal jobs"
        group = C.of_job[jobs]
    else:
        words = f"jobs, by the {'pool' if places.pooled else 'resource'} that they use most"
        group = _bands(fraction)
    first = np.unique(group, return_index=True)[1]
    size = np.bincount(group)
    labels: tuple[str, ...] = ()
    if len(size) <= MAX_LABELLED:
        labels = tuple(
            _label(C.instance, int(jobs[row]), int(n), places.pooled)
            for row, n in zip(first, size, strict=True)
        )
    mean, some = _means(fraction, runs, group)
    used, capacity = places.use(C, shares)
    columns = len(places.names) if len(places.names) <= MAX_LABELLED else MAX_BANDS
    column = _in_bands(len(places.names), columns)
    first = np.unique(column, return_index=True)[1]
    return HeatmapRows(
        fraction=np.add.reduceat(mean, first, axis=1),
        runs=np.logical_or.reduceat(some, first, axis=1),
        labels=labels,
        size=size,
        places=places.names,
        row_words=words,
        used=used,
        capacity=capacity,
        places_in=np.bincount(column),
        pooled=places.pooled,
    )


@dataclass(frozen=True)
class _RunPlaces:
    """The places where jobs run: pools, and resources of options without a pool.

    Attributes
    ----------
    names : tuple of str
    pooled : bool
        Whether pools come first.
    of_option : IntArray, shape (options,)
        Number of the place of each option without a pool.
    resources : tuple of str
        Names of the resources among the places; they come after the pools.
    """

    names: tuple[str, ...]
    pooled: bool
    of_option: IntArray
    resources: tuple[str, ...]

    @classmethod
    def of(cls, C: Classes) -> _RunPlaces:
        """The places of all columns."""
        bare = C.pool < 0
        pools = () if bare.all() and len(bare) else tuple(p.name for p in C.instance.cluster.pools)
        all_uses = C.instance.options.uses
        of_option = np.full(len(all_uses), len(pools), np.int64)
        if not bare.any():
            return cls(pools, True, of_option, ())
        some = np.unique(_options(C)[bare])
        uses = {row: tuple(all_uses[row]) for row in some[some >= 0].tolist()}
        resources: tuple[str, ...] = ()
        if all(len(names) <= 1 for names in uses.values()):
            resources = tuple(dict.fromkeys(name for names in uses.values() for name in names))
            number = {name: len(pools) + place for place, name in enumerate(resources)}
            for row, names in uses.items():
                of_option[row] = number[names[0]] if names else len(pools) + len(resources)
        known = len(uses) > 0 and all(uses.values()) and (some >= 0).all() and bool(resources)
        others = () if known else ("no pool",)
        return cls((*pools, *resources, *others), bool(pools), of_option, resources)

    def at(self, pool: IntArray, option: IntArray) -> IntArray:
        """Numbers of the places of rows or columns, given their pools and options."""
        without = np.append(self.of_option, len(self.names) - 1)[option]
        return np.where(pool >= 0, pool, without)

    def use(self, C: Classes, shares: AllocatedRows) -> tuple[FloatArray, FloatArray]:
        """Use and capacity of the places."""
        cluster, uses = C.instance.cluster, C.instance.options.uses
        amount = shares.gpus.astype(np.float64)
        bare = np.flatnonzero((shares.pool < 0) & (shares.option >= 0))
        amount[bare] = [sum(uses[row].values()) for row in shares.option[bare].tolist()]
        used = np.zeros(len(self.names))
        np.add.at(used, self.at(shares.pool, shares.option), amount * shares.fraction)
        has = dict(zip(C.resources.names, C.resources.capacity.tolist(), strict=True))
        gpus = cluster.gpus(C.instance.now).tolist() if self.pooled else []
        capacity = np.array([*gpus, *(has[name] for name in self.resources)], np.float64)
        for others in range(len(capacity), len(used)):
            capacity = np.append(capacity, np.nan)
            used[others] = np.nan
        return used, capacity


def _options(C: Classes) -> IntArray:
    """Row of the instance's options of each column; -1 for none."""
    return np.asarray(C.candidates.columns.option[C.kind_column], np.int64)


def _by_job(C: Classes, shares: AllocatedRows, places: _RunPlaces) -> tuple[FloatArray, BoolArray]:
    """Fractions of every job in every place, and whether it can run there."""
    fraction = np.zeros((len(C.instance.jobs_table), len(places.names)))
    shared = shares.partner >= 0
    place = places.at(shares.pool, shares.option)
    np.add.at(fraction, (shares.job, place), shares.fraction)
    np.add.at(fraction, (shares.partner[shared], place[shared]), shares.fraction[shared])
    # The last class is for jobs that are not in the program (-1)
    of_class = np.zeros((len(C) + 1, len(places.names)), bool)
    column = places.at(C.pool, _options(C))
    of_class[C.class_a, column] = True
    of_class[C.class_b[~C.alone], column[~C.alone]] = True
    return fraction, of_class[C.of_job]


def _means(fraction: FloatArray, runs: BoolArray, group: IntArray) -> tuple[FloatArray, BoolArray]:
    size = np.bincount(group)
    total = np.zeros((len(size), fraction.shape[1]))
    runs_in_group = np.zeros((len(size), fraction.shape[1]), bool)
    np.add.at(total, group, fraction)
    np.logical_or.at(runs_in_group, group, runs)
    return total / size[:, np.newaxis], runs_in_group


def _bands(fraction: FloatArray) -> IntArray:
    """Group of each job: jobs are sorted by the place that they use most, then by its fraction, and
    cut into bands of nearly equal size.
    """
    count = len(fraction)
    most = fraction.argmax(axis=1)
    most = np.where(fraction.max(axis=1) >= VISIBLE, most, fraction.shape[1])
    order = np.lexsort((-fraction.sum(axis=1), -fraction.max(axis=1), most))
    return _in_bands(count, MAX_BANDS)[np.argsort(order)]


def _in_bands(count: int, most: int) -> IntArray:
    """Band of each of ``count`` items, in their order: at most so many, of nearly equal size."""
    return np.arange(count, dtype=np.int64) * min(count, most) // max(count, 1)


def _label(instance: Instance, job: int, count: int, pooled: bool) -> str:
    table = instance.jobs_table
    name = short(table.names[job], 28)
    others = f" and {count - 1} like it" if count > 1 else ""
    if not pooled:
        return f"{name}{others}"
    low = int(table.gpus_min[job])
    high = int(table.gpus_max[job])
    gpus = f"{low}" if low == high else f"{low}-{high}"
    return f"{name} ({gpus}){others}"


def allocation_heatmap(solution: Answer | Allocation, ax: Axes | None = None) -> Axes:
    """Draw the allocation of a solution: jobs x pools, coloured by fraction of time.

    A job alone on a pool for half of the time counts 0.5 there, whatever its GPUs; a pair that
    shares GPUs counts for both jobs. Places where a job cannot run are grey. Many jobs are merged
    into fewer rows (`heatmap_rows`).

    Parameters
    ----------
    solution : Solution, SolutionFile or Allocation
        A solution must have an allocation.
    ax : matplotlib axes, optional
        Where to draw; by default on a new figure of a size that fits the rows
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
        ax = new_axes(min(max(4.2 + 0.95 * len(rows.places), 5.6), MOST_INCHES), height)
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
    right = int(rows.places_in.sum())
    image = ax.imshow(
        shown,
        cmap=colours,
        vmin=VISIBLE,
        vmax=1.0,
        aspect="auto",
        interpolation="nearest",
        extent=(-0.5, right - 0.5, top - 0.5, -0.5),
    )
    if right <= MAX_LABELLED:
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
    if len(rows.places) <= MAX_LABELLED:
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
    if rows.pooled:
        title, below = "fraction of time on each pool", "pool (GPUs in use, mean over time)"
    else:
        title, below = "fraction of time with each resource", "resource (in use, mean over time)"
    if len(rows.places) > MAX_LABELLED:
        below = f"{'pools' if rows.pooled else 'resources'}, in the order of the instance"
    head(ax, f"{instance.name}: {title}", subtitle, below, rows.row_words)
