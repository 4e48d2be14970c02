"""Who held which GPUs when in a simulation: GPUs by pool and node against time; of large clusters, nodes."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING

import numpy as np

from optsched.arrays import FloatArray, IntArray
from optsched.errors import UsageError
from optsched.report.answers import count
from optsched.report.gantt import WIDTH, Blocks, add_boxes, beside, write_names
from optsched.report.gpu_blocks import GpuRows, blocks_of
from optsched.report.gpu_places import Holders, gpus_of, parts_on_nodes
from optsched.report.palette import (
    INK,
    JOBS,
    LABEL,
    LINE,
    MAIN,
    MUTED,
    PANEL,
    PAPER,
    SMALL,
    job_colours,
)
from optsched.report.pictures import (
    head,
    legend_below,
    new_axes,
    plain_frame,
    require_matplotlib,
    short,
    time_unit,
    time_words,
)
from optsched.report.simulated import first_arrival

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from optsched.simulation import Segments, Simulation

MOST_GPUS = 160
"""GPUs that have a row each; of more, each node has one."""
MOST_STRETCHES, MOST_ON_NODES = 1500, 15_000
"""Stretches that are drawn, as blocks and summed by node; of more, the first hours."""
VECTORS = 600
"""Blocks of a vector graphic, at most; more become a bitmap in it."""
WINDOWS = 400
"""Columns of the picture of nodes."""
LABELLED = 0.14
"""Inches that the name of a node needs."""
HOUR = 3600.0
SPANS = (
    60.0,
    600.0,
    HOUR,
    *(HOUR * hours for hours in (2, 6, 12, 24, 48, 72, 168, 336, 672, 1344, 2688, 5376)),
)
"""Lengths of the part of a long simulation that is drawn, in seconds."""


def gpu_gantt_picture(
    simulation: Simulation, ax: Axes | None = None, *, window: tuple[float, float] | None = None
) -> Axes:
    """Draw which job holds which GPUs when.

    The node of a stretch on one node is the one that it was on; which of its GPUs, and the further nodes of gangs on
    several, are chosen to fit (`gpu_places`). Two jobs that share GPUs have half of the height each. Of more than 160
    GPUs the picture shows which part of the GPUs of each node is held instead. Of long simulations it shows the first
    hours, and says so.

    Parameters
    ----------
    simulation : Simulation
        With segments, in the mode ``rounds`` or ``gavel``.
    ax : matplotlib axes, optional
        Where to draw; by default on a figure of its own.
    window : (float, float), optional
        Seconds after the first arrival, in the place of the first hours.

    Raises
    ------
    UsageError
        If the simulation has no segments, or none in the window, or they are on no GPUs (mode ``fluid``).
    SolverUnavailable
        If matplotlib is not installed.
    """
    everything, instance = simulation.segments, simulation.trace.instance
    if not len(everything):
        raise UsageError("there is nothing to draw: the simulation has no segments")
    if (everything.first_gpu < 0).any():
        raise UsageError("there is nothing to draw: in this mode no job holds GPUs of its own")
    numbering = instance.cluster.numbering
    sizes = np.array([pool.node_gpus.sum() for pool in instance.cluster.pools], np.int64)
    by_gpu = numbering.gpus <= MOST_GPUS
    origin = first_arrival(simulation)
    low, high = (
        _window(everything, origin, MOST_STRETCHES if by_gpu else MOST_ON_NODES)
        if window is None
        else window
    )
    shown = _between(everything, origin + low, origin + high)
    if not len(shown):
        raise UsageError(
            f"there is nothing to draw: nothing runs from {low:g} to {high:g} s after the first arrival"
        )
    require_matplotlib()
    rows = GpuRows.of(numbering, sizes)
    ax = new_axes(WIDTH, 1.5 + float(rows.top[-1]) + rows.of_gpu) if ax is None else ax
    unit, name = time_unit(high - low)
    ax.set_xlim(low / unit, high / unit)
    ax.set_ylim(float(rows.top[-1]) + rows.of_gpu, 0.0)
    _names(ax, simulation, rows, by_gpu)
    told = (_draw_jobs if by_gpu else _draw_nodes)(ax, simulation, shown, rows, unit)
    last = float(everything.end.max()) - origin
    part = "" if low <= 0 and high >= last else f"; {_span(low, high)} of {time_words(last)}"
    ax.set_xlabel(f"time since the first arrival, {name}", fontsize=LABEL)
    jobs = len(np.unique(shown.job))
    head(ax, f"{short(simulation.trace.name, 30)}: GPUs under {short(simulation.policy, 40)}{part}",
         f"{count(jobs, 'job')}, {count(len(shown), 'stretch', 'stretches')}; {told}")  # fmt: skip
    return ax


def _span(low: float, high: float) -> str:
    return f"first {time_words(high)}" if low <= 0 else f"{time_words(low)} to {time_words(high)}"


def _window(segments: Segments, origin: float, most: int) -> tuple[float, float]:
    """From the first arrival on, as long as there are not too many stretches."""
    last = float(segments.end.max()) - origin
    if len(segments) <= most:
        return 0.0, last
    limit = float(segments.start[most]) - origin
    return 0.0, min(last, max((span for span in SPANS if span <= limit), default=SPANS[0]))


def _between(segments: Segments, low: float, high: float) -> Segments:
    """Those that run in a window."""
    inside = (segments.start < high) & (segments.end > low)
    return replace(
        segments,
        **{field.name: getattr(segments, field.name)[inside] for field in fields(segments)},
    )


def _names(ax: Axes, simulation: Simulation, rows: GpuRows, by_gpu: bool) -> None:
    """The ground: pools and nodes, with their names on the left; those of pools on the right where nodes have one."""
    numbering = simulation.trace.instance.cluster.numbering
    pools = simulation.trace.instance.cluster.pools
    plain_frame(ax, "bottom")
    node_top = rows.top[numbering.start[:-1][np.diff(numbering.start) > 0]]
    node_gpus = np.diff(numbering.start)[np.diff(numbering.start) > 0]
    named = bool((node_gpus * rows.of_gpu).min() >= LABELLED) and by_gpu
    middles, labels, first = [], [], 0
    for pool in pools:
        size = int(pool.node_gpus.sum())
        if not size:
            continue
        top, bottom = float(rows.top[first]), float(rows.top[first + size - 1]) + rows.of_gpu
        ax.axhspan(top, bottom, color=PANEL, linewidth=0, zorder=0)
        middles.append((top + bottom) / 2)
        labels.append(f"{short(pool.name, 16)}\n{count(size, 'GPU')}")
        if named:
            ax.annotate(labels[-1], (1, middles[-1]), (6, 0), ("axes fraction", "data"), "offset points", va="center",
                        fontsize=SMALL, color=MUTED)  # fmt: skip
        first += size
    if named:
        numbers = np.flatnonzero(np.diff(numbering.start) > 0)
        middles = (node_top + node_gpus * rows.of_gpu / 2).tolist()
        labels = [short(numbering.node_name(number), 20) for number in numbers.tolist()]
    if by_gpu:
        ax.hlines(node_top[1:], *ax.get_xlim(), color=PAPER, linewidth=1.6, zorder=0.5)
    ax.set_yticks(middles, labels)
    ax.grid(axis="x", color=LINE, linewidth=0.5, zorder=0.2)
    ax.set_axisbelow(True)


def _draw_jobs(
    ax: Axes, simulation: Simulation, shown: Segments, rows: GpuRows, unit: float
) -> str:
    """A block for each stretch on neighbouring GPUs of a node; returns what is to be said of them."""
    from matplotlib.patches import Patch

    instance = simulation.trace.instance
    holders = Holders.of(shown)
    holder, gpu = gpus_of(instance, holders, parts_on_nodes(instance, holders))
    blocks, pairs = blocks_of(
        instance.cluster.numbering, shown, holders, holder, gpu, rows, first_arrival(simulation)
    )
    blocks = Blocks(
        blocks.job, blocks.owner, blocks.left / unit, blocks.top, blocks.right / unit, blocks.bottom
    )
    colours = job_colours(shown.job.tolist(), beside(blocks))
    boxes = add_boxes(ax, blocks, colours)
    boxes.set_rasterized(len(blocks.job) > VECTORS)
    boxes.set_clip_on(True)
    names = instance.jobs_table.names
    few = len(colours) <= len(JOBS)
    told = ["which GPUs of a node is chosen to fit"]
    if few:
        legend_below(
            ax,
            [Patch(color=tint, label=short(names[row], 22)) for row, tint in colours.items()],
            0.55,
            5,
        )
    else:
        told.append("colours repeat")
    if pairs:
        told.append("half of the height: shared")
    write_names(ax, names, blocks, colours)
    return "; ".join([*told, *_misfits(len(gpu), int(holders.gpus.sum()))])


def _misfits(drawn: int, wanted: int) -> list[str]:
    """What is to be said where the nodes that were chosen for gangs leave too few GPUs."""
    return [f"{wanted - drawn:,} of {wanted:,} places on GPUs do not fit"] if drawn < wanted else []


def _draw_nodes(
    ax: Axes, simulation: Simulation, shown: Segments, rows: GpuRows, unit: float
) -> str:
    """The part of the GPUs of each node that is held, window by window; returns what is to be said of it."""
    from matplotlib.colors import LinearSegmentedColormap

    instance = simulation.trace.instance
    numbering = instance.cluster.numbering
    holders = Holders.of(shown)
    parts = parts_on_nodes(instance, holders)
    low, high = (limit * unit for limit in ax.get_xlim())
    origin = first_arrival(simulation)
    held = held_by_window(
        holders.start[parts.holder] - origin - low, holders.end[parts.holder] - origin - low, parts.gpus, parts.node,
        numbering.nodes, high - low,
    )  # fmt: skip
    size = np.diff(numbering.start)
    share = np.divide(
        held, size[:, np.newaxis], out=np.zeros(held.shape), where=size[:, np.newaxis] > 0
    )
    shades = LinearSegmentedColormap.from_list("held", [PANEL, MAIN])
    gpus = 0
    image = None
    for row, pool in enumerate(instance.cluster.pools):
        mine = np.flatnonzero((numbering.pool == row) & (size > 0))
        if len(mine):
            top, here = float(rows.top[gpus]), int(pool.node_gpus.sum())
            bottom = float(rows.top[gpus + here - 1]) + rows.of_gpu
            image = ax.imshow(share[mine], cmap=shades, vmin=0, vmax=1, aspect="auto", interpolation="antialiased",
                              extent=(low / unit, high / unit, bottom, top), zorder=1)  # fmt: skip
            gpus += here
    ax.set_ylim(float(rows.top[-1]) + rows.of_gpu, 0.0)
    figure = ax.get_figure(root=True)
    assert figure is not None and image is not None
    bar = figure.colorbar(image, ax=ax, fraction=0.025, pad=0.015)
    bar.set_label("part of the GPUs of a node that is held", fontsize=LABEL, color=INK)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, labelsize=SMALL)
    width = time_words((high - low) / WINDOWS)
    told = [f"a row is a node, {count(int((size > 0).sum()), 'node')}", f"means over {width}"]
    return "; ".join([*told, *_misfits(int(parts.gpus.sum()), int(holders.gpus.sum()))])


def held_by_window(
    start: FloatArray, end: FloatArray, gpus: IntArray, node: IntArray, nodes: int, span: float
) -> FloatArray:
    """Mean number of GPUs held on each node in windows of equal width, shape (nodes, windows).

    Parameters
    ----------
    start, end : FloatArray
        Seconds from the beginning of the first window.
    gpus, node : IntArray
    nodes : int
    span : float
        Seconds that all windows have together.
    """
    width = span / WINDOWS
    inside = np.zeros((nodes, WINDOWS + 1))
    level = np.zeros((nodes, WINDOWS + 1))
    for moment, sign in ((start, 1.0), (end, -1.0)):
        at = np.clip(moment, 0.0, span)
        column = np.minimum((at / width).astype(np.int64), WINDOWS)
        np.add.at(
            inside, (node, column), sign * gpus * (column + 1 - at / width)
        )  # of the window that it is in
        np.add.at(level, (node, np.minimum(column + 1, WINDOWS)), sign * gpus)
    mean: FloatArray = inside[:, :WINDOWS] + np.cumsum(level, axis=1)[:, :WINDOWS]
    return mean
