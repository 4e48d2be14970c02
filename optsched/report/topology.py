"""The topology as a picture:
hosts with their GPUs in the colours of the jobs that hold them, switches and links.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.display import count
from optsched.errors import InvalidInput, UsageError
from optsched.instance import Instance
from optsched.instance.documents import parse_index
from optsched.instance.reading import show
from optsched.report.answers import Answer, GpusInUse, headline, placement_of
from optsched.report.fabric import STATES, Fabric, HostGroup, Vertex, fabric_of
from optsched.report.palette import (
    IDLE,
    INK,
    JOBS,
    LABEL,
    LINE,
    MUTED,
    PALE_INK,
    PANEL,
    PAPER,
    SMALL,
    SUBTITLE,
    ink_on,
    job_colours,
)
from optsched.report.pictures import (
    add_rectangles,
    figure_of,
    head,
    legend_below,
    new_axes,
    require_matplotlib,
    short,
    width_of,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.patches import Patch


# --- what is shown -------------------------------------------------------------------------------


@dataclass(frozen=True)
class TopologyCells:
    """The GPUs of a cluster and the jobs on them.

    Attributes
    ----------
    instance : Instance
    fabric : Fabric
    gpu, job : IntArray, shape (C,)
        A GPU (counted over all hosts) and a job (row of the job table) that holds it.
    left, width : FloatArray, shape (C,)
        Part of the GPU that is drawn for the job: its share, after those of other jobs. If shares
        add up to more than a GPU, as for pairs, they are scaled down.
    title, subtitle : str
    """

    instance: Instance
    fabric: Fabric
    gpu: IntArray
    job: IntArray
    left: FloatArray
    width: FloatArray
    title: str
    subtitle: str

    @classmethod
    def of_instance(cls, instance: Instance) -> TopologyCells:
        """The cluster with the GPUs that running jobs hold now."""
        running = instance.jobs_table.running
        held = [GpusInUse((job,), gpus) for job, (_, gpus, _) in sorted(running.items())]
        made = _cells(instance, held)
        return cls(instance, *made, f"{instance.name}: cluster and what runs now", _amounts(*made))

    @classmethod
    def of_placement(cls, answer: Answer) -> TopologyCells:
        """The placement of a solution or of a solution file."""
        instance = answer.instance
        made = _cells(instance, placement_of(answer))
        return cls(
            instance,
            *made,
            f"{instance.name}: placement on the cluster",
            headline(answer, _amounts(*made)),
        )

    @property
    def jobs(self) -> list[int]:
        """Rows of the jobs that hold a GPU, in order."""
        found: list[int] = np.unique(self.job).tolist()
        return found

    @cached_property
    def crossing(self) -> BoolArray:
        """Mask of the cells of jobs whose hosts are under different leaf switches, shape (C,)."""
        leaf_of = np.zeros(len(self.fabric.names), np.int64)
        number: dict[tuple[str, ...], int] = {}
        for group in self.fabric.groups:
            leaf_of[group.hosts] = number.setdefault(tuple(group.leaves), len(number))
        leaf = np.repeat(leaf_of, self.fabric.gpus)[self.gpu]
        jobs = len(self.instance.jobs_table)
        first, last = np.full(jobs, len(number)), np.full(jobs, -1)
        np.minimum.at(first, self.job, leaf)
        np.maximum.at(last, self.job, leaf)
        across: BoolArray = (first < last)[self.job]
        return across


def _cells(
    instance: Instance, held: Iterable[GpusInUse]
) -> tuple[Fabric, IntArray, IntArray, FloatArray, FloatArray]:
    fabric = fabric_of(instance)
    host = {name: row for row, name in enumerate(fabric.names)}
    found: dict[tuple[int, int], float] = {}
    for place, holder in enumerate(held):
        for position, name in enumerate(holder.gpus):
            node, _, index = name.rpartition("/")
            number = parse_index(index)
            if node not in host or not 0 <= number < fabric.gpus[host[node]]:
                expected = "a GPU of the cluster, written node/index"
                raise InvalidInput(f"placement[{place}].gpus[{position}]", show(name), expected)
            gpu_number = int(fabric.first[host[node]]) + number
            found |= dict.fromkeys([(gpu_number, job) for job in holder.jobs], holder.share)
    gpu, job = np.array(sorted(found), np.int64).reshape(-1, 2).T
    share = np.array([found[both] for both in sorted(found)], np.float64)
    width = share / np.maximum(np.bincount(gpu, share, fabric.total)[gpu], 1.0)
    end = np.cumsum(width)
    first = np.searchsorted(gpu, gpu, side="left")
    left = end - width - (end - width)[first]
    return fabric, gpu, job, left, width


def _amounts(fabric: Fabric, gpu: IntArray, job: IntArray, *_: FloatArray) -> str:
    held = len(np.unique(gpu))
    jobs = len(np.unique(job))
    states = np.bincount(fabric.state, minlength=len(STATES))
    off = [
        f"{count(int(states[row]), 'node')} {STATES[row]}"
        for row in range(1, len(STATES))
        if states[row]
    ]
    holders = f"held by {count(jobs, 'job')}" if jobs else "in use"
    return ", ".join([f"{held:,} of {count(fabric.total, 'GPU')} {holders}", *off])


FULL = 1.0 - 1e-9
"""Part of a GPU that counts as all of it."""


# --- layout --------------------------------------------------------------------------------------
# All lengths are inches, from the upper left corner. Hosts are in panels, one per group, under bars
# for their leaf switches; other switches are above these, level by level. A small cluster has names
# and numbers; for a large one only cells are drawn, as large as the page allows.

# Most hosts and GPUs for a picture with names and numbers.
NAMED_HOSTS, NAMED_GPUS = 48, 400
# Side of a GPU with its number.
CELL = 0.27
# Sides of GPUs without numbers, the largest that fits is taken.
CELLS = (0.2, 0.16, 0.13, 0.1, 0.08, 0.06, 0.045, 0.035, 0.025, 0.018, 0.012, 0.008)
# Largest width and height of the hosts.
PAGE = (12.5, 8.5)
# Preferred ratio of width to height.
ASPECT = 1.9
# With more blocks than this, they are arranged in several shelves, and links above the leaf
# switches are not drawn.
MOST_LINKED = 12
BAR, BAR_GAP, LEVEL, MARGIN = 0.2, 0.08, 0.62, 0.13
LINE_HEIGHT = 0.155


@dataclass(frozen=True)
class Sizes:
    """Lengths that depend on the side of a cell."""

    cell: float
    named: bool

    @property
    def pad(self) -> float:
        """Between the cells of a host and its border."""
        return 0.07 if self.named else 0.12 * self.cell

    @property
    def name(self) -> float:
        """Height of a host's name."""
        return 0.17 if self.named else 0.0

    @property
    def gap(self) -> tuple[float, float]:
        """Between hosts, across and down."""
        return (0.14, 0.2) if self.named else (0.45 * self.cell, 0.45 * self.cell)

    @property
    def header(self) -> float:
        """Height of the text of a panel."""
        return LINE_HEIGHT * 3 + 0.08 if self.named else LINE_HEIGHT + 0.06

    def host(self, group: HostGroup, fabric: Fabric) -> tuple[float, float]:
        """Width and height of the hosts of a group."""
        columns, rows = grid(int(fabric.gpus[group.hosts].max(initial=1)))
        return columns * self.cell + 2 * self.pad, rows * self.cell + 2 * self.pad + self.name


@dataclass(frozen=True)
class HostPanel:
    """A group and its rectangle; ``rows`` has the numbers of its hosts, row by row."""

    group: HostGroup
    left: float
    top: float
    width: float
    height: float
    rows: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Bar:
    """A switch: its name, and its rectangle."""

    name: str
    left: float
    top: float
    width: float

    @property
    def middle(self) -> float:
        return self.left + self.width / 2


@dataclass(frozen=True)
class ClusterLayout:
    """Positions of all parts of the picture.

    Attributes
    ----------
    sizes : Sizes
    host : FloatArray, shape (hosts, 4)
        Left, top, width, height.
    gpu : FloatArray, shape (GPUs, 2)
        Left and top of each cell.
    panels : tuple of HostPanel
    leaves : tuple of Bar
        A switch with hosts in several blocks has a bar over each.
    switches : mapping of str to Bar
        Switches above the leaves; empty if they are not drawn.
    width, height : float
    linked : bool
        Whether links above the leaf switches are drawn.
    """

    sizes: Sizes
    host: FloatArray
    gpu: FloatArray
    panels: tuple[HostPanel, ...]
    leaves: tuple[Bar, ...]
    switches: Mapping[str, Bar]
    width: float
    height: float
    linked: bool


def grid(gpus: int) -> tuple[int, int]:
    """Columns and rows of the GPUs of a host: 4 x 1, 4 x 2, then nearly a square."""
    columns = max(gpus, 1) if gpus <= 4 else 4 if gpus <= 8 else math.ceil(math.sqrt(gpus))
    return columns, max(math.ceil(gpus / columns), 1)


def header_of(fabric: Fabric, group: HostGroup) -> str:
    """Text: number and size of the hosts of a group."""
    sizes = fabric.gpus[group.hosts]
    low = int(sizes.min())
    high = int(sizes.max())
    each = f"{low}" if low == high else f"{low} to {high}"
    return f"{count(len(sizes), 'node')} x {each} GPU{'s' if high != 1 else ''}"


def bandwidth_words(values: tuple[float, ...]) -> str:
    """Text such as ``12.5`` or ``10 to 25``; empty if there is no value."""
    if not values:
        return ""
    return f"{values[0]:g}" if len(values) == 1 else f"{values[0]:g} to {values[-1]:g}"


def bandwidths_of(group: HostGroup) -> str:
    """Text: bandwidths inside a host and to its switches, if stated."""
    inside = bandwidth_words(group.inside)
    uplink = bandwidth_words(group.uplink)
    parts = [f"{inside} inside" if inside else "", f"{uplink} up" if uplink else ""]
    text = ", ".join(filter(None, parts))
    return f"GB/s: {text}" if text else ""


def lay_out(fabric: Fabric) -> ClusterLayout:
    """The layout: with names if there is room, else with the largest cells that fit on a page."""
    if len(fabric.names) <= NAMED_HOSTS and fabric.total <= NAMED_GPUS:
        made = _best(fabric, Sizes(CELL, True))
        if made.width <= 1.3 * PAGE[0] and made.height <= 1.3 * PAGE[1]:
            return made
    for cell in CELLS:
        made = _best(fabric, Sizes(cell, False))
        if made.width <= PAGE[0] and made.height <= PAGE[1]:
            break
    return made


def _best(fabric: Fabric, sizes: Sizes) -> ClusterLayout:
    """The arrangement whose ratio of width to height is closest to the preferred one."""
    blocks = _blocks(fabric)
    largest = max((len(group.hosts) for group in fabric.groups), default=0)
    if not largest:
        raise UsageError("the cluster has no nodes: there is nothing to draw")
    shelves = range(1, min(len(blocks), 40) + 1) if len(blocks) > MOST_LINKED else [1]
    depths = sorted(set(np.geomspace(1, largest, 60).round().astype(int).tolist()))
    found: tuple[float, int, int] | None = None
    for shelf_count in shelves:
        for depth in depths:
            width, height = _extent(fabric, blocks, sizes, shelf_count, depth)
            off = abs(math.log(width / height / ASPECT))
            if found is None or off < found[0] - 1e-9:
                found = (off, shelf_count, depth)
    assert found is not None
    return _place(fabric, blocks, sizes, found[1], found[2])


def _blocks(fabric: Fabric) -> list[list[HostGroup]]:
    """Groups under the same leaf switches."""
    blocks: list[list[HostGroup]] = []
    for group in fabric.groups:
        if blocks and group.leaves and blocks[-1][0].leaves == group.leaves:
            blocks[-1].append(group)
        else:
            blocks.append([group])
    return blocks


def _panel(fabric: Fabric, group: HostGroup, sizes: Sizes, depth: int) -> tuple[float, float, int]:
    """Width and height of a panel with at most ``depth`` rows of hosts, and its hosts per row."""
    across = math.ceil(len(group.hosts) / depth)
    rows = math.ceil(len(group.hosts) / across)
    (width, height), (gap_x, gap_y) = sizes.host(group, fabric), sizes.gap
    words = (
        max(len(header_of(fabric, group)), len(bandwidths_of(group))) * 0.066 + 2 * MARGIN
        if sizes.named
        else 0.5
    )
    wide = across * width + (across - 1) * gap_x + 2 * MARGIN
    return max(wide, words), rows * (height + gap_y) + sizes.header + MARGIN - gap_y / 2, across


def _extent(
    fabric: Fabric, blocks: list[list[HostGroup]], sizes: Sizes, shelves: int, depth: int
) -> tuple[float, float]:
    """Width and height of an arrangement, without the switches above."""
    per_shelf = math.ceil(len(blocks) / shelves)
    width = height = 0.0
    for start in range(0, len(blocks), per_shelf):
        shelf = blocks[start : start + per_shelf]
        panels = [[_panel(fabric, group, sizes, depth)[:2] for group in block] for block in shelf]
        width = max(width, sum(wide + MARGIN for block in panels for wide, _ in block))
        bars = max(len(block[0].leaves) for block in shelf)
        height += (
            max(high for block in panels for _, high in block) + bars * (BAR + BAR_GAP) + 2 * MARGIN
        )
    return width, height


def _place(
    fabric: Fabric, blocks: list[list[HostGroup]], sizes: Sizes, shelves: int, depth: int
) -> ClusterLayout:
    """The arrangement with a number of shelves and a limit on rows of hosts per panel."""
    linked = len(blocks) <= MOST_LINKED
    per_shelf = math.ceil(len(blocks) / shelves)
    top = LEVEL * max(fabric.levels.values(), default=0) if linked else 0.0
    host = np.zeros((len(fabric.names), 4))
    gpu = np.zeros((fabric.total, 2))
    panels = []
    leaves = []
    right = 0.0
    for start in range(0, len(blocks), per_shelf):
        shelf = blocks[start : start + per_shelf]
        under = top + max(len(block[0].leaves) for block in shelf) * (BAR + BAR_GAP)
        left = 0.0
        for block in shelf:
            begin = left
            for group in block:
                panel = _place_hosts(fabric, group, sizes, depth, (left, under), host, gpu)
                panels.append(panel)
                left += panel.width + MARGIN
            for row, name in enumerate(reversed(block[0].leaves), 1):
                leaves.append(
                    Bar(name, begin, under - row * (BAR + BAR_GAP), left - begin - MARGIN)
                )
            left += MARGIN / 2
        right = max(right, left - 1.5 * MARGIN)
        top = max(panel.top + panel.height for panel in panels) + 2 * MARGIN
    switches = _place_switches(fabric, leaves, right) if linked else {}
    width = max([right, *(bar.left + bar.width for bar in switches.values())])
    return ClusterLayout(
        sizes, host, gpu, tuple(panels), tuple(leaves), switches, width, top - 2 * MARGIN, linked
    )


def _place_hosts(
    fabric: Fabric,
    group: HostGroup,
    sizes: Sizes,
    depth: int,
    corner: tuple[float, float],
    host: FloatArray,
    gpu: FloatArray,
) -> HostPanel:
    """Set the positions of the hosts of a group and their GPUs."""
    (left, top), (wide, high), gap = corner, sizes.host(group, fabric), sizes.gap
    width, height, across = _panel(fabric, group, sizes, depth)
    place = np.arange(len(group.hosts))
    x = left + MARGIN + (place % across) * (wide + gap[0])
    y = top + sizes.header + gap[1] / 2 + (place // across) * (high + gap[1])
    host[group.hosts] = np.stack([x, y, np.full(len(x), wide), np.full(len(x), high)], axis=1)
    columns, _ = grid(int(fabric.gpus[group.hosts].max(initial=1)))
    for number, at_x, at_y in zip(group.hosts.tolist(), x.tolist(), y.tolist(), strict=True):
        first = int(fabric.first[number])
        count = int(fabric.gpus[number])
        cell = np.arange(count)
        gpu[first : first + count, 0] = at_x + sizes.pad + (cell % columns) * sizes.cell
        gpu[first : first + count, 1] = (
            at_y + sizes.pad + sizes.name + (cell // columns) * sizes.cell
        )
    numbers = group.hosts.tolist()
    rows = tuple(tuple(numbers[begin : begin + across]) for begin in range(0, len(numbers), across))
    return HostPanel(group, left, top, width, height, rows)


def _place_switches(fabric: Fabric, leaves: list[Bar], right: float) -> dict[str, Bar]:
    """Positions of switches above the leaves: each centred over the parts that it is linked to,
    without overlap.
    """
    middle = {bar.name: bar.middle for bar in reversed(leaves)}
    top = max(fabric.levels.values(), default=0)
    bars: dict[str, Bar] = {}
    for level in range(1, top + 1):
        wanted = {}
        for name in (name for name, step in fabric.levels.items() if step == level):
            ends = [link.ends for link in fabric.links if name in link.ends]
            below = [
                middle[str(end)]
                for pair in ends
                for end in pair
                if str(end) in middle and end != name
            ]
            wanted[name] = float(np.mean(below)) if below else right / 2
        order = sorted(wanted, key=lambda name: (wanted[name], name))
        widths = np.array([max(0.09 * len(name) + 0.2, 0.7) for name in order])
        at = np.array([wanted[name] for name in order])
        centre = float(at.mean())
        for place in range(1, len(at)):
            at[place] = max(
                at[place], at[place - 1] + (widths[place - 1] + widths[place]) / 2 + 0.25
            )
        at += centre - float(at.mean())
        at += max(0.0, float(widths[0] / 2 - at[0]))
        for name, x, width in zip(order, at.tolist(), widths.tolist(), strict=True):
            bars[name] = Bar(name, x - width / 2, (top - level) * LEVEL, width)
            middle[name] = x
    return bars


# --- drawing -------------------------------------------------------------------------------------

# Of hosts in each state.
HATCHES = ("", "////", "xxxx", "....", "\\\\\\\\")
# Most jobs with numbers (if there is room); colours may repeat.
NUMBERED = 36
SWITCH = "#4a4a4a"
# Outline of the cells of jobs that cross racks, in points, and its largest part of a small cell.
# Cells that are smaller than OUTLINED inches have none: they would be all outline.
OUTLINE, OUTLINE_PART, OUTLINED = 1.6, 0.2, 0.02
POINTS = 72
"""Points per inch."""
# More cells than this are a bitmap in svg and pdf too.
RASTER = 20_000


def topology_picture(source: Answer | Instance, ax: Axes | None = None) -> Axes:
    """Draw the cluster: hosts by pool and leaf switch, GPUs coloured by the job that holds them.

    Of a solution its placement is drawn, of an instance the jobs that run now. Links are as wide as
    their bandwidth (logarithmically). Nodes that are drained, down, reserved or not yet available
    are hatched. A GPU that several jobs hold is cut into stripes. GPUs of jobs with nodes under
    several leaf switches have a dark outline. Large clusters lose names,
    numbers and the links of hosts: a small cell per GPU is left.

    Parameters
    ----------
    source : Solution, SolutionFile or Instance
        A solution must have a placement.
    ax : matplotlib axes, optional
        Where to draw; by default on a new figure of a size that fits.

    Returns
    -------
    Axes

    Raises
    ------
    UsageError
        If the solution has no placement, or the cluster more GPUs than a picture has room for.
    InvalidInput
        If a GPU of a solution file is none of the cluster.
    SolverUnavailable
        If matplotlib is not installed.
    """
    require_matplotlib()
    cells = (
        TopologyCells.of_instance(source)
        if isinstance(source, Instance)
        else TopologyCells.of_placement(source)
    )
    return _draw(cells, lay_out(cells.fabric), ax)


def _draw(cells: TopologyCells, layout: ClusterLayout, ax: Axes | None) -> Axes:
    more = (
        ""
        if layout.linked or not cells.fabric.levels
        else "; links above the leaf switches are not drawn"
    )
    subtitle = cells.subtitle + more
    width = layout.width + 0.12
    colours = job_colours(cells.jobs)
    handles = _handles(cells, colours, NUMBERED if layout.sizes.named else len(JOBS))
    columns = max(int(width / 1.75), 1)
    if ax is None:
        ax = _own_axes(
            layout, max(width_of(subtitle, SUBTITLE), 4.0), math.ceil(len(handles) / columns)
        )
    ax.set_xlim(-0.06, layout.width + 0.06)
    ax.set_ylim(layout.height + 0.06, -0.06)
    ax.set_aspect("equal", anchor="NW")
    ax.set_axis_off()
    _draw_links(ax, cells, layout)
    for panel in layout.panels:
        _draw_panel(ax, cells, layout, panel)
    for bar in (*layout.leaves, *layout.switches.values()):
        _draw_switch(ax, bar)
    _draw_hosts(ax, cells, layout)
    _draw_gpus(ax, cells, layout, colours)
    head(ax, cells.title, subtitle)
    legend_below(ax, handles, 0.12, columns)
    return ax


def _own_axes(layout: ClusterLayout, words: float, lines: int) -> Axes:
    """Axes in inches, with room for texts above and ``lines`` lines of the legend below."""
    width = layout.width + 0.12
    height = layout.height + 0.12
    above = 0.62
    below = 0.25 + 0.185 * lines
    side = 0.1
    page = (max(width, words) + 2 * side, height + above + below)
    ax = new_axes(*page)
    figure = figure_of(ax)
    figure.set_layout_engine("none")
    ax.set_position((side / page[0], below / page[1], width / page[0], height / page[1]))
    return ax


def link_width(bandwidth: float) -> float:
    """Points: 0.6 where no bandwidth is stated, then more by 0.8 for ten times the bandwidth."""
    return 0.6 if math.isinf(bandwidth) else 0.8 + 0.8 * math.log10(1.0 + bandwidth)


def _draw_panel(ax: Axes, cells: TopologyCells, layout: ClusterLayout, panel: HostPanel) -> None:
    """Draw the background of a group with its texts and, in a picture with names, the links from
    its hosts to the leaf switch.
    """
    group = panel.group
    named = layout.sizes.named
    _add_rounded(ax, panel.left, panel.top, panel.width, panel.height, PANEL, 0.5)
    pool = cells.instance.cluster.pools[group.pool]
    room = max(int((panel.width - 2 * MARGIN) / 0.078), 3)
    lines = [(short(pool.name, room), LABEL + 0.5, INK, "bold")]
    lines += [
        (text, SMALL, MUTED, "normal")
        for text in (header_of(cells.fabric, group), bandwidths_of(group))
    ]
    if not named:
        full = f"{pool.name}: {header_of(cells.fabric, group)}"
        lines = [(full if len(full) <= room else short(pool.name, room), LABEL, INK, "bold")]
    for line, (text, size, colour, weight) in enumerate(lines):
        ax.text(
            panel.left + MARGIN,
            panel.top + 0.14 + line * LINE_HEIGHT,
            text,
            fontsize=size,
            color=colour,
            fontweight=weight,
            va="center",
            zorder=3,
        )
    if not named or not group.leaves:
        return
    width = link_width(group.uplink[0] if group.uplink else math.inf)
    trunk = panel.left + MARGIN / 2
    for row in panel.rows:
        boxes = layout.host[list(row)]
        bus = boxes[0, 1] - layout.sizes.gap[1] / 2
        middle = boxes[:, 0] + boxes[:, 2] / 2
        ax.hlines(bus, trunk, middle[-1], color=SWITCH, linewidth=width, zorder=1)
        ax.vlines(middle, bus, boxes[:, 1], color=SWITCH, linewidth=width, zorder=1)
        ax.vlines(trunk, panel.top - BAR_GAP - 0.05, bus, color=SWITCH, linewidth=width, zorder=1)


def _draw_switch(ax: Axes, bar: Bar) -> None:
    _add_rounded(ax, bar.left, bar.top, bar.width, BAR, SWITCH, 2)
    room = int((bar.width - 0.08) / 0.068)
    if room >= min(len(bar.name), 4):
        ax.text(
            bar.middle,
            bar.top + BAR / 2,
            short(bar.name, room),
            fontsize=SMALL,
            color=PALE_INK,
            ha="center",
            va="center_baseline",
            zorder=3,
        )


def _draw_links(ax: Axes, cells: TopologyCells, layout: ClusterLayout) -> None:
    """Draw links between switches as straight lines, or as brackets between adjacent ones; links
    between hosts are below their boxes.
    """
    from matplotlib.collections import LineCollection

    bars = {bar.name: bar for bar in reversed(layout.leaves)} | dict(layout.switches)
    lines = []
    widths = []
    labels = Labels()
    for link in cells.fabric.links:
        ends = [_end(vertex, bars, layout) for vertex in link.ends]
        if ends[0] is None or ends[1] is None:
            continue
        (x, y), (other_x, other_y) = sorted((ends[0], ends[1]), key=lambda end: (-end[1], end[0]))
        if isinstance(link.ends[0], int):
            line = [(x, y), (other_x, other_y)]
        elif abs(y - other_y) < 1e-9:
            line = [(x, y), (x, y - 0.2), (other_x, y - 0.2), (other_x, y)]
        else:
            line = [(x, y), (other_x, other_y + BAR)]
        lines.append(line)
        widths.append(link_width(link.bandwidth))
        if math.isfinite(link.bandwidth) and not isinstance(link.ends[0], int):
            labels.add(line[len(line) // 2 - 1], line[len(line) // 2], f"{link.bandwidth:g} GB/s")
    ax.add_collection(
        LineCollection(lines, linewidths=widths, colors=SWITCH, zorder=1, capstyle="round")
    )
    for x, y, text in labels.placed:
        ax.text(
            x,
            y,
            text,
            fontsize=SMALL,
            color=MUTED,
            ha="center",
            va="center",
            zorder=1.5,
            bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 1.2},
        )


class Labels:
    """Labels on lines. Each is placed where it does not cover an earlier one, or left out."""

    def __init__(self) -> None:
        self.placed: list[tuple[float, float, str]] = []

    def add(self, near: tuple[float, float], far: tuple[float, float], text: str) -> None:
        """Place a text near the middle of a line."""
        width = width_of(text, SMALL) + 0.06
        for part in (0.5, 0.4, 0.6, 0.3, 0.7, 0.22):
            x, y = (near[axis] + part * (far[axis] - near[axis]) for axis in (0, 1))
            if all(
                abs(x - at_x) > (width + width_of(other, SMALL)) / 2 or abs(y - at_y) > 0.16
                for at_x, at_y, other in self.placed
            ):
                self.placed.append((x, y, text))
                return


def _end(
    vertex: Vertex, bars: Mapping[str, Bar], layout: ClusterLayout
) -> tuple[float, float] | None:
    """End point of a link: the upper edge of a switch, the middle of a host; None if it is not
    drawn.
    """
    if isinstance(vertex, int):
        left, top, width, height = layout.host[vertex].tolist()
        return (left + width / 2, top + height / 2)
    bar = bars.get(vertex) if layout.linked else None
    return None if bar is None else (bar.middle, bar.top)


def _draw_hosts(ax: Axes, cells: TopologyCells, layout: ClusterLayout) -> None:
    """Boxes of the hosts, hatched by their state, with names where there is room."""
    fabric = cells.fabric
    line = 0.8 if layout.sizes.named else min(0.6, 4 * layout.sizes.cell)
    for state, hatch in enumerate(HATCHES):
        in_state = fabric.state == state
        if in_state.any():
            _add_boxes(
                ax,
                *layout.host[in_state].T,
                facecolors=PAPER if state == 0 else IDLE,
                edgecolors=LINE if state == 0 else MUTED,
                linewidths=line,
                hatch=hatch or None,
                zorder=2,
                rasterized=fabric.total > RASTER,
                label=STATES[state],
                hatch_linewidth=0.5,
            )
    if layout.sizes.named:
        for name, state, (left, top, width, _) in zip(
            fabric.names, fabric.state.tolist(), layout.host.tolist(), strict=True
        ):
            ground = None if state == 0 else {"facecolor": IDLE, "edgecolor": "none", "pad": 1.0}
            ax.text(
                left + width / 2,
                top + layout.sizes.pad / 2 + layout.sizes.name / 2 + 0.01,
                short(name, max(int(width / 0.062), 3)),
                fontsize=SMALL - 0.5,
                color=INK,
                ha="center",
                va="center",
                zorder=3,
                bbox=ground,
            )


def _draw_gpus(
    ax: Axes, cells: TopologyCells, layout: ClusterLayout, colours: Mapping[int, str]
) -> None:
    """Draw free and held cells (or stripes), and the numbers of the jobs if there is room."""

    fabric = cells.fabric
    side = layout.sizes.cell
    named = layout.sizes.named
    margin = 0.08 * side
    free = np.repeat(fabric.state == 0, fabric.gpus)
    # If a GPU is partly held, its free part is visible beside the stripes.
    free &= np.bincount(cells.gpu, cells.width, len(free)) < FULL
    inner = np.full(len(layout.gpu), side - 2 * margin)
    corner = layout.gpu + margin
    flat = fabric.total > RASTER
    _add_boxes(
        ax,
        corner[free, 0],
        corner[free, 1],
        inner[free],
        inner[free],
        facecolors=PAPER,
        edgecolors=LINE,
        linewidths=0.6 if named else min(0.4, 3 * side),
        zorder=3,
        rasterized=flat,
        label="free",
    )
    width = inner[cells.gpu] * cells.width
    left = corner[cells.gpu, 0] + inner[cells.gpu] * cells.left
    held = np.stack([left, corner[cells.gpu, 1], width, inner[cells.gpu]])
    _add_boxes(
        ax,
        *held,
        linewidths=0,
        zorder=3,
        facecolors=[colours[job] for job in cells.job.tolist()],
        rasterized=flat,
        label="held",
    )
    across = cells.crossing & (side >= OUTLINED)
    if across.any():
        # A colour alone does not tell that its cells are in several racks.
        _add_boxes(
            ax,
            *held[:, across],
            facecolors="none",
            edgecolors=INK,
            linewidths=OUTLINE if named else min(OUTLINE / 2, OUTLINE_PART * side * POINTS),
            zorder=3.5,
            label="crosses racks",
        )
    if named and len(colours) <= NUMBERED:
        middle = corner[cells.gpu, 1] + side / 2 - margin
        _write_numbers(ax, cells, left + width / 2, middle, width, colours)


def _write_numbers(
    ax: Axes,
    cells: TopologyCells,
    x: FloatArray,
    y: FloatArray,
    width: FloatArray,
    colours: Mapping[int, str],
) -> None:
    """Write the number of its job on each held cell or stripe; thin ones show it only by colour."""
    number = {job: str(place) for place, job in enumerate(colours, 1)}
    sizes = np.where(cells.width < FULL, SMALL - 2, SMALL).tolist()
    for row, (job, size) in enumerate(zip(cells.job.tolist(), sizes, strict=True)):
        if width_of(number[job], size) <= width[row]:
            ax.text(
                float(x[row]),
                float(y[row]),
                number[job],
                fontsize=size,
                color=ink_on(colours[job]),
                ha="center",
                va="center_baseline",
                zorder=4,
            )


def _add_boxes(
    ax: Axes,
    left: FloatArray,
    top: FloatArray,
    width: FloatArray,
    height: FloatArray,
    **style: Any,
) -> None:
    """Draw rectangles of these sizes."""
    add_rectangles(ax, left, top, left + width, top + height, **style)


def _add_rounded(
    ax: Axes, left: float, top: float, width: float, height: float, colour: str, zorder: float
) -> None:
    """A rectangle with round corners."""
    from matplotlib.patches import FancyBboxPatch

    # matplotlib draws the pad outside of the rectangle that it is given
    inset = 0.03
    box = FancyBboxPatch(
        (left + inset, top + inset),
        max(width - 2 * inset, 0.02),
        height - 2 * inset,
        boxstyle=f"round,pad={inset}",
        facecolor=colour,
        edgecolor="none",
        zorder=zorder,
    )
    ax.add_patch(box)


def _handles(cells: TopologyCells, colours: Mapping[int, str], most: int) -> list[Patch]:
    """Entries of the legend: the jobs if there are few, and other colours and hatches."""
    from matplotlib.patches import Patch

    names = cells.instance.jobs_table.names
    handles = [
        Patch(facecolor=colour, label=f"{place}  {short(names[job], 18)}")
        for place, (job, colour) in enumerate(colours.items(), 1)
    ]
    if len(handles) > most:
        handles = [Patch(facecolor="none", label=f"colours repeat: {count(len(colours), 'job')}")]
    if len(np.unique(cells.gpu)) < cells.fabric.total:
        handles.append(Patch(facecolor=PAPER, edgecolor=LINE, label="free GPU"))
    if cells.crossing.any():
        crossing = count(len(np.unique(cells.job[cells.crossing])), "job")
        label = f"crosses racks: {crossing}"
        handles.append(Patch(facecolor=PAPER, edgecolor=INK, linewidth=OUTLINE, label=label))
    for state in np.unique(cells.fabric.state[cells.fabric.state > 0]).tolist():
        handles.append(
            Patch(
                facecolor=IDLE, edgecolor=MUTED, hatch=HATCHES[state], label=f"node {STATES[state]}"
            )
        )
    return handles
