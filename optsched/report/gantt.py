"""Gantt charts of a schedule, and of the rounds of an allocation: time against lanes of GPUs, pool
by pool.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray, mask_of
from optsched.display import count
from optsched.errors import UsageError
from optsched.instance import Instance
from optsched.instance.tables import JobNames
from optsched.report.answers import (
    NOBODY,
    Answer,
    Runs,
    headline,
    instance_of,
    schedule_of,
    slices_of,
)
from optsched.report.palette import (
    INK,
    JOBS,
    MAIN,
    PANEL,
    PAPER,
    SMALL,
    WARNING,
    ink_on,
    job_colours,
)
from optsched.report.pictures import (
    add_rectangles,
    grid_below,
    head,
    legend_below,
    new_axes,
    plain_frame,
    require_matplotlib,
    short,
    size_of,
    time_unit,
    width_of,
)
from optsched.solution import Rounds, Schedule

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import Collection
    from matplotlib.patches import Patch


# --- lanes ---------------------------------------------------------------------------------------

# Most lanes per GPU, if jobs hold shares of GPUs.
FINEST = 8


@dataclass(frozen=True)
class Lanes:
    """Blocks of adjacent lanes; a stretch that does not fit in one piece has several.

    Attributes
    ----------
    stretch, lane, height : IntArray, shape (B,)
        Stretch of the block, its first lane and its number of lanes.
    per_gpu : int
        Lanes of a GPU.
    count : int
        Number of lanes: those of the pool's GPUs, or more if more GPUs are held at a time.
    """

    stretch: IntArray
    lane: IntArray
    height: IntArray
    per_gpu: int
    count: int


def lay_out(
    start: FloatArray, end: FloatArray, gpus: FloatArray, owner: IntArray, size: int
) -> Lanes:
    """Greedy packing in order of start. It uses no more lanes than GPUs are held at one time.

    Each stretch takes lanes that are free when it starts: the former lanes of its owner if
    possible, else the smallest gap that holds it in one piece, else the lowest free lanes. A
    stretch may be split over any free lanes, so the largest number of GPUs held at once is enough.

    Parameters
    ----------
    start, end, gpus : FloatArray, shape (S,)
    owner : IntArray, shape (S,)
        The job that runs.
    size : int
        GPUs of the pool.
    """
    per_gpu = next(
        (n for n in range(1, FINEST) if np.allclose(gpus * n, np.round(gpus * n))), FINEST
    )
    height = np.maximum(np.ceil(gpus * per_gpu - 1e-9), 1).astype(np.int64)
    slack = 1e-9 * float(np.ptp(np.concatenate((start, end)))) if len(start) else 0.0
    busy_until = np.full(size * per_gpu, -np.inf)
    before: dict[int, IntArray] = {}
    blocks = []
    for stretch in np.lexsort((owner, -height, start)).tolist():
        wanted = int(height[stretch])
        who = int(owner[stretch])
        free = np.flatnonzero(busy_until <= start[stretch] + slack)
        if len(free) < wanted:
            more = wanted - len(free)
            free = np.concatenate((free, np.arange(len(busy_until), len(busy_until) + more)))
            busy_until = np.concatenate((busy_until, np.full(more, -np.inf)))
        former = before.get(who)
        if former is not None and len(former) == wanted and np.isin(former, free).all():
            taken = former
        else:
            taken = _smallest_gap(free, wanted)
        busy_until[taken] = end[stretch]
        before[who] = taken
        blocks += [(stretch, int(part[0]), len(part)) for part in _neighbours(taken)]
    table = np.array(blocks, np.int64).reshape(-1, 3)
    return Lanes(table[:, 0], table[:, 1], table[:, 2], per_gpu, len(busy_until))


def _smallest_gap(free: IntArray, wanted: int) -> IntArray:
    """The lowest lanes of the smallest sufficient run of free lanes, else the lowest free lanes."""
    runs = [run for run in _neighbours(free) if len(run) >= wanted]
    return min(runs, key=len)[:wanted] if runs else free[:wanted]


def _neighbours(lanes: IntArray) -> list[IntArray]:
    """Split sorted lanes into runs of consecutive numbers."""
    return np.split(lanes, np.flatnonzero(np.diff(lanes) != 1) + 1)


# --- the data that is shown -----------------------------------------------------------------------


@dataclass(frozen=True)
class GanttRows:
    """The data of a Gantt chart.

    Attributes
    ----------
    instance : Instance
    runs : Runs
        In the unit of the axis.
    unit : str
        ``s``, ``min``, ``h``, ``days`` or ``%``.
    deadline : FloatArray, shape (S,)
        Deadline of the job of each stretch, in the unit of the axis; inf for none, and for all
        stretches of a job except the last.
    now : float or None
        Position of now on the axis.
    cuts : FloatArray
        Ends of slices on the axis.
    title, subtitle, axis : str
    """

    instance: Instance
    runs: Runs
    unit: str
    deadline: FloatArray
    now: float | None
    cuts: FloatArray
    title: str
    subtitle: str
    axis: str

    @classmethod
    def of_schedule(cls, answer: Answer | Schedule) -> GanttRows:
        """The schedule of a solution or of a solution file; the axis starts at now."""
        runs = schedule_of(answer)
        instance = instance_of(answer)
        if not len(runs):
            raise UsageError("the schedule is empty: there is nothing to draw")
        scale, unit = time_unit(
            float(max(runs.end.max(), instance.now) - min(runs.start.min(), instance.now))
        )
        last = _last_of_job(runs)
        deadline = np.where(last, instance.jobs_table.deadline[runs.job], np.inf)
        missed = int((runs.end > deadline + 1e-6).sum())
        due = int(np.isfinite(deadline).sum())
        deadlines = [_amounts(runs), f"{missed} of {count(due, 'deadline')} missed" if due else ""]
        return cls(
            instance,
            replace(
                runs,
                start=(runs.start - instance.now) / scale,
                end=(runs.end - instance.now) / scale,
            ),
            unit,
            (deadline - instance.now) / scale,
            0.0,
            np.zeros(0),
            f"{instance.name}: what runs when",
            headline(answer, *deadlines),
            f"time from now, {unit}",
        )

    @classmethod
    def of_rounds(cls, answer: Answer | Rounds) -> GanttRows:
        """The rounds of a solution or of a solution file:
        in seconds if the window is known, else in percent of it.
        """
        slices = slices_of(answer)
        instance = instance_of(answer)
        if not len(slices.runs):
            raise UsageError("nothing runs in the rounds: there is nothing to draw")
        scale, unit = time_unit(slices.window)
        realised = f"{100 * slices.scale:.4g} % of every fraction is realised"
        return cls(
            instance,
            replace(slices.runs, start=slices.runs.start / scale, end=slices.runs.end / scale),
            unit,
            np.full(len(slices.runs), np.inf),
            None,
            slices.cuts / scale,
            f"{instance.name}: rounds of the allocation",
            headline(answer, _amounts(slices.runs), count(len(slices.cuts), "slice"), realised),
            f"time in the window, {unit}",
        )


def _last_of_job(runs: Runs) -> BoolArray:
    """Whether a stretch is the last of its job."""
    order = np.lexsort((runs.end, runs.job))
    return mask_of(order[np.diff(runs.job[order], append=-1) != 0], len(runs))


def _amounts(runs: Runs) -> str:
    jobs = len(np.unique(np.concatenate((runs.job, runs.partner[runs.partner >= 0]))))
    stretches = f", {count(len(runs), 'stretch', 'stretches')}" if len(runs) > jobs else ""
    return count(jobs, "job") + stretches


# --- bands ---------------------------------------------------------------------------------------

# Inches: height of a GPU, least and largest height of a band, and height of all bands.
OF_GPU, SMALLEST, LARGEST, PAGE = 0.27, 0.42, 4.5, 7.5
# Inches between bands.
GAP = 0.12
# With more pools than this, idle pools are left out.
MAX_IDLE = 8


@dataclass(frozen=True)
class Band:
    """One pool of the chart.

    Attributes
    ----------
    label : str
    gpus : int
        GPUs of the pool; without a pool, the most that are held at a time.
    runs : IntArray
        The stretches that run here.
    lanes : Lanes
        Their blocks; ``lanes.stretch`` is an index into ``runs``.
    top, inches : float
        Position of the band, and its height.
    """

    label: str
    gpus: int
    runs: IntArray
    lanes: Lanes
    top: float
    inches: float

    @property
    def of_gpu(self) -> float:
        """Height of a GPU."""
        return self.inches * self.lanes.per_gpu / max(self.lanes.count, 1)


def bands_of(instance: Instance, runs: Runs) -> list[Band]:
    """The bands from top to bottom: pools in their order, then stretches without a pool."""
    pools = instance.cluster.pools
    used = set(runs.pool.tolist())
    shown = [row for row in range(len(pools)) if row in used or len(pools) <= MAX_IDLE]
    found = []
    for row in [*shown, *([NOBODY] if NOBODY in used else [])]:
        in_pool = np.flatnonzero(runs.pool == row)
        size = 0 if row == NOBODY else pools[row].size
        gpus = np.maximum(runs.gpus[in_pool], 1.0) if row == NOBODY else runs.gpus[in_pool]
        lanes = lay_out(runs.start[in_pool], runs.end[in_pool], gpus, runs.job[in_pool], size)
        label = (
            "no pool" if row == NOBODY else f"{short(pools[row].name, 18)}\n{count(size, 'GPU')}"
        )
        found.append((label, size or lanes.count // lanes.per_gpu, in_pool, lanes))
    wanted = np.array(
        [np.clip(OF_GPU * lanes.count / lanes.per_gpu, SMALLEST, LARGEST) for *_, lanes in found]
    )
    if wanted.sum() > PAGE:
        wanted = np.maximum(wanted * PAGE / wanted.sum(), SMALLEST)
    tops = np.concatenate(([0.0], np.cumsum(wanted + GAP)))
    return [
        Band(*parts, top=float(top), inches=float(inches))
        for parts, top, inches in zip(found, tops, wanted, strict=False)
    ]


# --- drawing -------------------------------------------------------------------------------------

# Inches of a picture.
WIDTH = 10.5
# Most blocks that are tried for a label, the largest first.
MAX_LABELS = 250
# Most ends of slices that are drawn.
MAX_CUTS = 80
# Most deadlines that are marked; with more, only missed ones are.
MAX_DEADLINES = 60
# Up to this many blocks, adjacent ones get different colours; more blocks are too small to be
# distinguished.
MAX_TOUCHING = 20_000
# Least height in inches of a block with a name.
LOWEST = 0.115


@dataclass(frozen=True)
class Blocks:
    """Rectangles, each of one job; arrays of equal length.

    Attributes
    ----------
    job : IntArray
        Row of the job table.
    owner : IntArray
        Blocks of one job in one stretch have the same number.
    left, right : FloatArray
        On the axis of time.
    top, bottom : FloatArray
        Inches from the upper edge.
    """

    job: IntArray
    owner: IntArray
    left: FloatArray
    top: FloatArray
    right: FloatArray
    bottom: FloatArray


def schedule_gantt(answer: Answer | Schedule, ax: Axes | None = None) -> Axes:
    """Draw the schedule of a solution: time from now against the GPUs of each pool.

    The height of a stretch is the number of its GPUs. Its lanes are chosen to fit (`lay_out`) and
    do not show the placement. Deadlines that are kept are thin marks, missed ones crosses.

    Parameters
    ----------
    answer : Solution, SolutionFile or Schedule
        A solution must have a schedule.
    ax : matplotlib axes, optional
        Where to draw; by default on a new figure of a size that fits.

    Returns
    -------
    Axes

    Raises
    ------
    UsageError
        If there is no schedule, or nothing in it.
    SolverUnavailable
        If matplotlib is not installed.
    """
    require_matplotlib()
    return _draw(GanttRows.of_schedule(answer), ax)


def rounds_gantt(answer: Answer | Rounds, ax: Axes | None = None) -> Axes:
    """Draw the rounds of a solution: the slices of the window, and what runs side by side in each.

    As `schedule_gantt`, for the rounds; two jobs that share GPUs have half of the height each.

    Parameters
    ----------
    answer : Solution, SolutionFile or Rounds
        A solution must have rounds; see `optsched.realise`.
    ax : matplotlib axes, optional
        Where to draw; by default on a new figure of a size that fits.

    Returns
    -------
    Axes

    Raises
    ------
    UsageError
        If there are no rounds, or nothing runs in them.
    SolverUnavailable
        If matplotlib is not installed.
    """
    require_matplotlib()
    return _draw(GanttRows.of_rounds(answer), ax)


def _draw(rows: GanttRows, ax: Axes | None) -> Axes:
    bands = bands_of(rows.instance, rows.runs)
    ax = ax or new_axes(WIDTH, 1.35 + sum(band.inches + GAP for band in bands))
    low = min(float(rows.runs.start.min()), 0.0)
    high = max(float(rows.runs.end.max()), float(rows.cuts.max(initial=0.0)))
    ax.set_xlim(low, low + (high - low) * 1.01 if high > low else low + 1.0)
    _draw_pools(ax, bands)
    blocks = _stretches(rows, bands)
    colours = job_colours(blocks.job.tolist(), beside(blocks))
    add_boxes(ax, blocks, colours)
    _draw_deadlines(ax, rows, bands)
    if 0 < len(rows.cuts) <= MAX_CUTS:
        ax.vlines(
            rows.cuts, *ax.get_ylim(), color=INK, linewidth=0.4, linestyle=(0, (1, 2)), zorder=1.5
        )
    if rows.now is not None:
        ax.axvline(rows.now, color=MAIN, linewidth=1.4, zorder=4, label="now")
    head(ax, rows.title, rows.subtitle, rows.axis)
    _legend(ax, rows, colours)
    write_names(ax, rows.instance.jobs_table.names, blocks, colours)
    return ax


def draw_ground(
    ax: Axes, bands: Iterable[tuple[float, float]], lines: Sequence[float], linewidth: float
) -> None:
    """The background of a Gantt chart: bands with thin lines in them, and the time grid."""
    for top, bottom in bands:
        ax.axhspan(top, bottom, color=PANEL, linewidth=0, zorder=0)
    ax.hlines(lines, *ax.get_xlim(), color=PAPER, linewidth=linewidth, zorder=0.5)
    plain_frame(ax, "bottom")
    grid_below(ax, "x", zorder=0.2)


def _draw_pools(ax: Axes, bands: Sequence[Band]) -> None:
    """Draw the bands of the pools, with thin lines between GPUs if there is room."""
    lines = [
        band.top + band.of_gpu * np.arange(1, band.gpus) for band in bands if band.of_gpu >= 0.1
    ]
    edges = [(band.top, band.top + band.inches) for band in bands]
    draw_ground(ax, edges, np.concatenate([np.zeros(0), *lines]).tolist(), 0.8)
    for band in bands:
        # If more GPUs are held than the pool has, draw a line at its capacity
        if band.lanes.count > band.gpus * band.lanes.per_gpu:
            end = band.top + band.of_gpu * band.gpus
            ax.hlines(end, *ax.get_xlim(), color=WARNING, linewidth=1.0, zorder=3)
    ax.set_ylim(edges[-1][1], 0.0)
    ax.set_yticks([(top + bottom) / 2 for top, bottom in edges], [band.label for band in bands])


def _boxes(rows: GanttRows, band: Band) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Left, top, right and bottom of the blocks of a band."""
    lanes = band.lanes
    stretch = band.runs[lanes.stretch]
    height = band.of_gpu / lanes.per_gpu
    top = np.asarray(band.top + height * lanes.lane, np.float64)
    return (
        rows.runs.start[stretch],
        top,
        rows.runs.end[stretch],
        np.asarray(top + height * lanes.height),
    )


def _stretches(rows: GanttRows, bands: Sequence[Band]) -> Blocks:
    """The blocks of all bands; two jobs that share GPUs have half of the height each."""
    parts = [(band.runs[band.lanes.stretch], *_boxes(rows, band)) for band in bands]
    stretch, left, top, right, bottom = (
        np.concatenate(column) for column in zip(*parts, strict=True)
    )
    job = rows.runs.job[stretch]
    partner = rows.runs.partner[stretch]
    pair = partner >= 0
    middle = np.where(pair, (top + bottom) / 2, bottom)
    return Blocks(
        np.concatenate((job, partner[pair])),
        np.concatenate((2 * stretch, 2 * stretch[pair] + 1)),
        np.concatenate((left, left[pair])),
        np.concatenate((top, middle[pair])),
        np.concatenate((right, right[pair])),
        np.concatenate((middle, bottom[pair])),
    )


def beside(blocks: Blocks) -> Mapping[int, set[int]]:
    """Jobs with adjacent blocks: one ends where the other begins, or they are on adjacent lanes."""
    found: dict[int, set[int]] = {}
    if len(blocks.job) > MAX_TOUCHING:
        return found
    slack = 1e-3 * float(np.ptp([blocks.left.min(), blocks.right.max()]))
    lane = 1e-6
    for place, job in enumerate(blocks.job.tolist()):
        touching = (blocks.left <= blocks.right[place] + slack) & (
            blocks.right >= blocks.left[place] - slack
        )
        touching &= (blocks.top <= blocks.bottom[place] + lane) & (
            blocks.bottom >= blocks.top[place] - lane
        )
        found.setdefault(job, set()).update(blocks.job[touching].tolist())
    return {job: others - {job} for job, others in found.items()}


def write_names(ax: Axes, names: JobNames, blocks: Blocks, colours: Mapping[int, str]) -> None:
    """Write the name of a job into the largest block of each stretch, if there is room."""
    named = set()
    inch = size_of(ax)[0] / float(np.ptp(ax.get_xlim()))
    width = (blocks.right - blocks.left) * inch
    height = blocks.bottom - blocks.top
    for place in np.argsort(-width * height, kind="stable")[:MAX_LABELS].tolist():
        job = int(blocks.job[place])
        owner = int(blocks.owner[place])
        fits = height[place] >= LOWEST and width_of(names[job], SMALL) <= width[place] - 0.05
        if fits and owner not in named:
            named.add(owner)
            x = (blocks.left + blocks.right)[place] / 2
            y = (blocks.top + blocks.bottom)[place] / 2
            ax.text(
                x,
                y,
                names[job],
                fontsize=SMALL,
                ha="center",
                va="center_baseline",
                color=ink_on(colours[job]),
                clip_on=True,
                zorder=3,
            )


def add_boxes(ax: Axes, blocks: Blocks, colours: Mapping[int, str]) -> Collection:
    """Draw the blocks in the colours of their jobs."""
    return add_rectangles(
        ax,
        blocks.left,
        blocks.top,
        blocks.right,
        blocks.bottom,
        facecolors=[colours[job] for job in blocks.job.tolist()],
        edgecolors=PAPER,
        linewidths=0.7 if len(blocks.job) <= 400 else 0.2,
        zorder=2,
    )


def _draw_deadlines(ax: Axes, rows: GanttRows, bands: Sequence[Band]) -> None:
    """Mark each deadline and join it to the end of the job's last stretch; a missed one gets a
    cross.
    """
    missed = rows.runs.end > rows.deadline + 1e-9 * (1.0 + abs(rows.deadline))
    shown = (
        np.isfinite(rows.deadline)
        & (rows.deadline <= ax.get_xlim()[1])
        & (rows.deadline >= ax.get_xlim()[0])
    )
    if shown.sum() > MAX_DEADLINES:
        shown &= missed
    marks = []
    for band in bands:
        _, top, _, bottom = _boxes(rows, band)
        # One mark below the name, in the first block of a stretch.
        in_band, first = np.unique(band.lanes.stretch, return_index=True)
        height = bottom - np.minimum((bottom - top) / 2, 0.1)
        marks.append((band.runs[in_band], height[first]))
    stretches, heights = (np.concatenate(column) for column in zip(*marks, strict=True))
    for late, colour, marker, label in (
        (False, INK, "|", "deadline"),
        (True, WARNING, "X", "missed deadline"),
    ):
        some = shown[stretches] & (missed[stretches] == late)
        stretch, y = stretches[some], heights[some]
        x = rows.deadline[stretch]
        if len(x):
            ax.hlines(
                y,
                np.minimum(x, rows.runs.end[stretch]),
                x,
                color=colour,
                linewidth=0.7,
                linestyle=(0, (1, 1.5)),
                zorder=3,
            )
            ax.plot(
                x,
                y,
                linestyle="none",
                marker=marker,
                markersize=8 if marker == "|" else 6,
                color=colour,
                markeredgecolor=PAPER if late else INK,
                zorder=3.5,
                label=label,
            )


def job_patches(names: JobNames, colours: Mapping[int, str]) -> list[Patch]:
    """Entries of a legend: the names of jobs beside their colours."""
    from matplotlib.patches import Patch

    return [Patch(color=colour, label=short(names[row], 22)) for row, colour in colours.items()]


def _legend(ax: Axes, rows: GanttRows, colours: Mapping[int, str]) -> None:
    """Names of the jobs if there are few, and the marks that are there."""
    from matplotlib.patches import Patch

    marks = ax.get_legend_handles_labels()[0]
    if len(colours) <= len(JOBS):
        handles = [*job_patches(rows.instance.jobs_table.names, colours), *marks]
    else:
        words = f"colours repeat: {count(len(colours), 'job')}"
        handles = [*marks, Patch(color="none", label=words)]
    legend_below(ax, handles, 0.55, 5)
