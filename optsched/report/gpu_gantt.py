"""Gantt chart of a simulation: which job held which GPUs, by pool and node, against time; for large
clusters, nodes instead of GPUs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from optsched.arrays import EMPTY, FloatArray, IntArray, owners, quotient, ranges
from optsched.display import count
from optsched.errors import UsageError
from optsched.instance import Instance
from optsched.instance.cluster import Numbering, Pool
from optsched.instance.durations import HOUR
from optsched.report.gantt import (
    WIDTH,
    Blocks,
    add_boxes,
    beside,
    draw_ground,
    job_patches,
    write_names,
)
from optsched.report.palette import (
    INK,
    JOBS,
    LABEL,
    MAIN,
    MUTED,
    PANEL,
    SMALL,
    job_colours,
)
from optsched.report.pictures import (
    SINCE_FIRST,
    figure_of,
    head,
    legend_below,
    new_axes,
    short,
    time_unit,
    time_words,
)
from optsched.report.simulated import first_arrival

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from optsched.simulation import Segments, Simulation


# --- which GPUs ----------------------------------------------------------------------------------
# A simulation stores the lowest GPU of each stretch, its number of GPUs, and its number of nodes.
# So for a stretch on one node the node is known, for others the first node. The other GPUs are
# chosen here such that no GPU is held twice.


@dataclass(frozen=True)
class Holders:
    """Stretches of time in which one job, or several that share GPUs, hold the same GPUs; sorted by
    start.

    Attributes
    ----------
    start, end : FloatArray, shape (H,)
    gpus, nodes, first_gpu : IntArray, shape (H,)
        As in `Segments`.
    of_segment : IntArray, shape (segments,)
        The holder of each segment.
    """

    start: FloatArray
    end: FloatArray
    gpus: IntArray
    nodes: IntArray
    first_gpu: IntArray
    of_segment: IntArray

    def __len__(self) -> int:
        return len(self.start)

    @classmethod
    def of(cls, segments: Segments) -> Holders:
        """Overlapping segments with the same lowest GPU share GPUs, so they are one holder."""
        order = np.lexsort((segments.start, segments.first_gpu))
        slack = 1e-9 * float(segments.end.max(initial=0.0) - segments.start.min(initial=0.0))
        # The first segment and the end of each holder, and the holder of each segment.
        first: list[int] = []
        ends: list[float] = []
        of_segment = np.empty(len(segments), np.int64)
        present_gpu, latest = None, 0.0
        for row, gpu, start, end in zip(
            order.tolist(),
            segments.first_gpu[order].tolist(),
            segments.start[order].tolist(),
            segments.end[order].tolist(),
            strict=True,
        ):
            if gpu != present_gpu or start >= latest - slack:
                first.append(row)
                ends.append(end)
            else:
                ends[-1] = max(ends[-1], end)
            of_segment[row] = len(first) - 1
            latest = end if gpu != present_gpu else max(latest, end)
            present_gpu = gpu
        head = np.array(first, np.int64)
        by_start = np.lexsort((head, segments.start[head]))
        head = head[by_start]
        return cls(
            segments.start[head],
            np.array(ends)[by_start],
            segments.gpus[head],
            segments.nodes[head],
            segments.first_gpu[head],
            np.argsort(by_start)[of_segment],
        )


@dataclass(frozen=True)
class GpusOnNodes:
    """Numbers of GPUs of holders on nodes; arrays of equal length, sorted by holder.

    Attributes
    ----------
    holder, node, gpus : IntArray
    """

    holder: IntArray
    node: IntArray
    gpus: IntArray


def parts_on_nodes(instance: Instance, holders: Holders) -> GpusOnNodes:
    """The nodes of each holder, and its GPUs on each.

    For holders on one node, the node is known. A gang on several nodes, in order of start, gets its
    first node and then the nodes of the pool with the most GPUs that are free during its whole run.
    """
    numbering = instance.cluster.numbering
    node = numbering.node_of(holders.first_gpu)
    single = holders.nodes <= 1
    rows = np.flatnonzero(single)
    spread = np.flatnonzero(~single)
    found = [(rows, node[rows], holders.gpus[rows])]
    for pool in np.unique(numbering.pool[node[spread]]).tolist():
        members = np.flatnonzero(numbering.pool == pool)
        here = rows[numbering.pool[node[rows]] == pool]
        gangs = spread[numbering.pool[node[spread]] == pool]
        times = np.unique(
            np.concatenate(
                [holders.start[here], holders.end[here], holders.start[gangs], holders.end[gangs]]
            )
        )
        free = _free(holders, numbering.start, members, node, here, times)
        for gang in gangs.tolist():
            first, stop = np.searchsorted(times, (holders.start[gang], holders.end[gang]))
            least = free[:, first : max(stop, first + 1)].min(axis=1)
            row, count = _shared_out(
                least,
                int(node[gang] - members[0]),
                int(holders.gpus[gang]),
                int(holders.nodes[gang]),
            )
            free[row, first:stop] -= count[:, np.newaxis]
            found.append((np.full(len(row), gang), members[row], count))
    holder, at, gpus = (
        np.concatenate(column).astype(np.int64) for column in zip(*found, strict=True)
    )
    order = np.lexsort((at, holder))
    return GpusOnNodes(holder[order], at[order], gpus[order])


def _free(
    holders: Holders,
    start: IntArray,
    members: IntArray,
    node: IntArray,
    alone: IntArray,
    times: FloatArray,
) -> IntArray:
    """GPUs that holders on one node leave free between consecutive times, shape (nodes of the pool,
    times).
    """
    change = np.zeros((len(members), len(times) + 1), np.int32)
    row = node[alone] - members[0]
    gpus = holders.gpus[alone].astype(np.int32)
    np.add.at(change, (row, np.searchsorted(times, holders.start[alone])), gpus)
    np.add.at(change, (row, np.searchsorted(times, holders.end[alone])), -gpus)
    size = (start[members + 1] - start[members]).astype(np.int32)
    return np.asarray(size[:, np.newaxis] - np.cumsum(change, axis=1, dtype=np.int32))


def _shared_out(free: IntArray, first: int, gpus: int, nodes: int) -> tuple[IntArray, IntArray]:
    """Nodes of a gang and its GPUs on each, on the stated number of nodes."""
    later = np.arange(first + 1, len(free))
    others = later[np.argsort(-free[later], kind="stable")][: nodes - 1]
    row = np.concatenate([[first], np.sort(others)]).astype(np.int64)
    # At least one on each node
    left = gpus - len(row)
    count = np.ones(len(row), np.int64)
    for place in np.argsort(-free[row], kind="stable").tolist():
        more = min(left, max(int(free[row[place]]) - 1, 0))
        count[place] += more
        left -= more
    return row, count


def gpus_of(instance: Instance, holders: Holders, parts: GpusOnNodes) -> tuple[IntArray, IntArray]:
    """GPUs on which holders are drawn: pairs of holder and GPU, sorted by holder.

    In order of start, a holder gets its known lowest GPU if it is free, then the next free ones of
    its nodes. If the nodes that were chosen for gangs have too few free GPUs, fewer are drawn.
    """
    start = instance.cluster.numbering.start
    until = np.full(int(start[-1]), -np.inf)
    slack = 1e-9 * float(holders.end.max(initial=0.0) - holders.start.min(initial=0.0))
    found = []
    owner = []
    for holder, node, wanted in zip(
        parts.holder.tolist(), parts.node.tolist(), parts.gpus.tolist(), strict=True
    ):
        first = int(start[node])
        stop = int(start[node + 1])
        free = first + np.flatnonzero(until[first:stop] <= holders.start[holder] + slack)
        lowest = int(np.searchsorted(free, holders.first_gpu[holder]))
        taken = np.sort(np.roll(free, -lowest)[:wanted]) if lowest < len(free) else free[-wanted:]
        until[taken] = holders.end[holder]
        found.append(taken)
        owner.append(np.full(len(taken), holder))
    none = [EMPTY]
    return np.concatenate([*none, *owner]), np.concatenate([*none, *found])


# --- blocks --------------------------------------------------------------------------------------
# Each GPU has a row; a block covers adjacent rows of one node from start to end.

# Inches: largest height of a GPU, largest height of all GPUs, and gap between pools.
OF_GPU, PAGE, GAP = 0.16, 5.6, 0.1


@dataclass(frozen=True)
class GpuRows:
    """Vertical positions of GPUs: inches from the upper edge.

    Attributes
    ----------
    top : FloatArray, shape (gpus,)
    of_gpu : float
    """

    top: FloatArray
    of_gpu: float

    @classmethod
    def of(cls, numbering: Numbering, sizes: IntArray) -> GpuRows:
        """Rows of one height, with a gap between pools."""
        pool = owners(sizes)
        of_gpu = min(OF_GPU, PAGE / max(numbering.gpus, 1))
        return cls(np.arange(numbering.gpus) * of_gpu + pool * GAP, of_gpu)

    def bands(self, instance: Instance) -> Iterator[tuple[int, Pool, float, float]]:
        """Row, pool, top and bottom of the pools that have GPUs."""
        first = 0
        for row, pool in enumerate(instance.cluster.pools):
            if pool.size:
                stop = first + pool.size
                yield row, pool, float(self.top[first]), float(self.top[stop - 1]) + self.of_gpu
                first = stop


def blocks_of(
    numbering: Numbering,
    shown: Segments,
    holders: Holders,
    holder: IntArray,
    gpu: IntArray,
    rows: GpuRows,
    origin: float,
) -> tuple[Blocks, int]:
    """Rectangles in seconds and inches.

    If two jobs share GPUs, half-height rectangles are added on top; also returns their number.
    """
    order = np.lexsort((gpu, holder))
    holder = holder[order]
    gpu = gpu[order]
    node = numbering.node_of(gpu)
    new = np.ones(len(gpu), bool)
    new[1:] = (holder[1:] != holder[:-1]) | (gpu[1:] != gpu[:-1] + 1) | (node[1:] != node[:-1])
    begins = np.flatnonzero(new)
    last = np.append(begins[1:], len(gpu)) - 1
    owner = holder[begins]
    top = rows.top[gpu[begins]]
    bottom = rows.top[gpu[last]] + rows.of_gpu
    first = np.searchsorted(owner, holders.of_segment)
    stop = np.searchsorted(owner, holders.of_segment, side="right")
    first_half, second_half, left, right = shared_spells(shown, holders)
    segment = np.concatenate([np.arange(len(shown)), first_half, second_half])
    begin = np.concatenate([shown.start, left, left])
    end = np.concatenate([shown.end, right, right])
    half = np.repeat([0, 1, 2], [len(shown), len(left), len(left)])
    pieces = (stop - first)[segment]
    entry = owners(pieces)
    piece = ranges(first[segment], pieces)
    middle = (top[piece] + bottom[piece]) / 2
    half = half[entry]
    return Blocks(
        shown.job[segment[entry]],
        entry,
        begin[entry] - origin,
        np.where(half == 2, middle, top[piece]),
        end[entry] - origin,
        np.where(half == 1, middle, bottom[piece]),
    ), len(left)


def shared_spells(
    shown: Segments, holders: Holders
) -> tuple[IntArray, IntArray, FloatArray, FloatArray]:
    """Pairs of segments that share GPUs, and from when to when."""
    first = [EMPTY]
    second = [EMPTY]
    order = np.argsort(holders.of_segment, kind="stable")
    bounds = np.searchsorted(holders.of_segment[order], np.arange(len(holders) + 1))
    for begin, stop in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        if stop - begin > 1:
            a, b = np.triu_indices(stop - begin, 1)
            first.append(order[begin + a])
            second.append(order[begin + b])
    one = np.concatenate(first)
    other = np.concatenate(second)
    left = np.maximum(shown.start[one], shown.start[other])
    right = np.minimum(shown.end[one], shown.end[other])
    both = right > left
    return one[both], other[both], left[both], right[both]


# --- drawing -------------------------------------------------------------------------------------

# Most GPUs with one row each; with more, there is one row per node.
MOST_GPUS = 160
# Most stretches that are drawn, as blocks and summed by node; with more, only the first hours are.
MOST_STRETCHES, MOST_ON_NODES = 1500, 15_000
# Most blocks in a vector graphic; more become a bitmap in it.
VECTORS = 600
# Columns of the picture of nodes.
WINDOWS = 400
# Inches that the name of a node needs.
LABELLED = 0.14
# Possible lengths, in seconds, of the part of a long simulation that is drawn.
SPANS = (
    60.0,
    600.0,
    HOUR,
    *(HOUR * hours for hours in (2, 6, 12, 24, 48, 72, 168, 336, 672, 1344, 2688, 5376)),
)


def gpu_gantt_picture(
    simulation: Simulation, ax: Axes | None = None, *, window: tuple[float, float] | None = None
) -> Axes:
    """Draw which job holds which GPUs when.

    The node of a stretch on one node is the one that it was on; which of its GPUs, and the further
    nodes of gangs on several, are chosen to fit (`gpus_of`). Two jobs that share GPUs have half of
    the height each. Of more than 160 GPUs the picture shows which part of the GPUs of each node is
    held instead. Of long simulations it shows the first hours, and says so.

    Parameters
    ----------
    simulation : Simulation
        With segments, in the mode ``rounds`` or ``gavel``.
    ax : matplotlib axes, optional
        Where to draw; by default on a new figure.
    window : (float, float), optional
        Seconds after the first arrival, in the place of the first hours.

    Returns
    -------
    Axes

    Raises
    ------
    UsageError
        If the simulation has no segments, or none in the window, or they are on no GPUs (mode
        ``fluid``).
    SolverUnavailable
        If matplotlib is not installed.
    """
    everything = simulation.segments
    instance = simulation.trace.instance
    if not len(everything):
        raise UsageError("there is nothing to draw: the simulation has no segments")
    if (everything.first_gpu < 0).any():
        raise UsageError("there is nothing to draw: in this mode no job holds GPUs of its own")
    numbering = instance.cluster.numbering
    sizes = np.array([pool.size for pool in instance.cluster.pools], np.int64)
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
            f"there is nothing to draw: nothing runs from {low:g} to {high:g} s after the "
            "first arrival"
        )
    rows = GpuRows.of(numbering, sizes)
    ax = ax or new_axes(WIDTH, 1.5 + float(rows.top[-1]) + rows.of_gpu)
    unit, name = time_unit(high - low)
    ax.set_xlim(low / unit, high / unit)
    ax.set_ylim(float(rows.top[-1]) + rows.of_gpu, 0.0)
    _names(ax, simulation, rows, by_gpu)
    note = (_draw_jobs if by_gpu else _draw_nodes)(ax, simulation, shown, rows, unit)
    last = float(everything.end.max()) - origin
    part = "" if low <= 0 and high >= last else f"; {_span(low, high)} of {time_words(last)}"
    jobs = len(np.unique(shown.job))
    head(
        ax,
        f"{short(simulation.trace.name, 30)}: GPUs under {short(simulation.policy, 40)}{part}",
        f"{count(jobs, 'job')}, {count(len(shown), 'stretch', 'stretches')}; {note}",
        SINCE_FIRST.format(name),
    )
    return ax


def _span(low: float, high: float) -> str:
    return f"first {time_words(high)}" if low <= 0 else f"{time_words(low)} to {time_words(high)}"


def _window(segments: Segments, origin: float, most: int) -> tuple[float, float]:
    """The window: from the first arrival on, as long as the number of stretches allows."""
    last = float(segments.end.max()) - origin
    if len(segments) <= most:
        return 0.0, last
    limit = float(segments.start[most]) - origin
    return 0.0, min(last, max((span for span in SPANS if span <= limit), default=SPANS[0]))


def _between(segments: Segments, low: float, high: float) -> Segments:
    """The segments that run in a window."""
    return segments.take((segments.start < high) & (segments.end > low))


def _names(ax: Axes, simulation: Simulation, rows: GpuRows, by_gpu: bool) -> None:
    """Draw pools and nodes with their names on the left; if nodes have names, those of pools are on
    the right.
    """
    numbering = simulation.trace.instance.cluster.numbering
    numbers = np.flatnonzero(np.diff(numbering.start))
    node_top = rows.top[numbering.start[numbers]]
    node_gpus = np.diff(numbering.start)[numbers]
    named = bool((node_gpus * rows.of_gpu).min() >= LABELLED) and by_gpu
    bands = []
    labels = []
    for _, pool, top, bottom in rows.bands(simulation.trace.instance):
        bands.append((top, bottom))
        labels.append(f"{short(pool.name, 16)}\n{count(pool.size, 'GPU')}")
        if named:
            ax.annotate(
                labels[-1],
                (1, (top + bottom) / 2),
                (6, 0),
                ("axes fraction", "data"),
                "offset points",
                va="center",
                fontsize=SMALL,
                color=MUTED,
            )
    middles = [(top + bottom) / 2 for top, bottom in bands]
    if named:
        middles = (node_top + node_gpus * rows.of_gpu / 2).tolist()
        labels = [short(numbering.node_name(number), 20) for number in numbers.tolist()]
    draw_ground(ax, bands, node_top[1:].tolist() if by_gpu else [], 1.6)
    ax.set_yticks(middles, labels)


def _draw_jobs(
    ax: Axes, simulation: Simulation, shown: Segments, rows: GpuRows, unit: float
) -> str:
    """Draw a block for each stretch on adjacent GPUs of a node; returns notes for the subtitle."""
    instance = simulation.trace.instance
    holders = Holders.of(shown)
    holder, gpu = gpus_of(instance, holders, parts_on_nodes(instance, holders))
    blocks, pairs = blocks_of(
        instance.cluster.numbering, shown, holders, holder, gpu, rows, first_arrival(simulation)
    )
    blocks = replace(blocks, left=blocks.left / unit, right=blocks.right / unit)
    colours = job_colours(shown.job.tolist(), beside(blocks))
    boxes = add_boxes(ax, blocks, colours)
    boxes.set_rasterized(len(blocks.job) > VECTORS)
    boxes.set_clip_on(True)
    names = instance.jobs_table.names
    few = len(colours) <= len(JOBS)
    notes = ["which GPUs of a node is chosen to fit"]
    if few:
        legend_below(ax, job_patches(names, colours), 0.55, 5)
    else:
        notes.append("colours repeat")
    if pairs:
        notes.append("half of the height: shared")
    write_names(ax, names, blocks, colours)
    return "; ".join([*notes, *_misfits(len(gpu), int(holders.gpus.sum()))])


def _misfits(drawn: int, wanted: int) -> list[str]:
    """A note if the nodes that were chosen for gangs have too few free GPUs."""
    return [f"{wanted - drawn:,} of {wanted:,} places on GPUs do not fit"] if drawn < wanted else []


def _draw_nodes(
    ax: Axes, simulation: Simulation, shown: Segments, rows: GpuRows, unit: float
) -> str:
    """Draw the fraction of the GPUs of each node that is held, per time window; returns notes for
    the subtitle.
    """
    from matplotlib.colors import LinearSegmentedColormap

    instance = simulation.trace.instance
    numbering = instance.cluster.numbering
    holders = Holders.of(shown)
    parts = parts_on_nodes(instance, holders)
    low, high = (limit * unit for limit in ax.get_xlim())
    origin = first_arrival(simulation)
    held = held_by_window(
        holders.start[parts.holder] - origin - low,
        holders.end[parts.holder] - origin - low,
        parts.gpus,
        parts.node,
        numbering.nodes,
        high - low,
    )
    size = np.diff(numbering.start)
    share = quotient(held, size[:, np.newaxis])
    shades = LinearSegmentedColormap.from_list("held", [PANEL, MAIN])
    image = None
    for row, _, top, bottom in rows.bands(instance):
        image = ax.imshow(
            share[(numbering.pool == row) & (size > 0)],
            cmap=shades,
            vmin=0,
            vmax=1,
            aspect="auto",
            interpolation="antialiased",
            extent=(low / unit, high / unit, bottom, top),
            zorder=1,
        )
    ax.set_ylim(float(rows.top[-1]) + rows.of_gpu, 0.0)
    assert image is not None
    bar = figure_of(ax).colorbar(image, ax=ax, fraction=0.025, pad=0.015)
    bar.set_label("part of the GPUs of a node that is held", fontsize=LABEL, color=INK)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, labelsize=SMALL)
    width = time_words((high - low) / WINDOWS)
    notes = [f"a row is a node, {count(int((size > 0).sum()), 'node')}", f"means over {width}"]
    return "; ".join([*notes, *_misfits(int(parts.gpus.sum()), int(holders.gpus.sum()))])


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
        Seconds of all windows together.
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
    return inside[:, :WINDOWS] + np.cumsum(level, axis=1)[:, :WINDOWS]
