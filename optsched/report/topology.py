"""The topology as a picture: hosts with their GPUs in the colours of the jobs that hold them, switches and links."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from optsched.arrays import FloatArray
from optsched.instance import Instance
from optsched.report.answers import Answer, count
from optsched.report.fabric import STATES, Vertex
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
)  # fmt: skip
from optsched.report.pictures import (
    head,
    legend_below,
    new_axes,
    require_matplotlib,
    short,
    width_of,
)
from optsched.report.topology_cells import TopologyCells
from optsched.report.topology_layout import (
    BAR,
    BAR_GAP,
    LINE_HEIGHT,
    MARGIN,
    Bar,
    Layout,
    Panel,
    bandwidths_of,
    header_of,
    lay_out,
)  # fmt: skip

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.patches import Patch

HATCHES = ("", "////", "xxxx", "....", "\\\\\\\\")
"""Of hosts in each state."""
NUMBERED = 36
"""Up to so many jobs are told by numbers where there is room for them, though colours repeat."""
SWITCH = "#4a4a4a"
RASTER = 20_000
"""More cells than this are a bitmap in svg and pdf too."""


def topology_picture(source: Answer | Instance, ax: Axes | None = None) -> Axes:
    """Draw the cluster: hosts by pool and leaf switch, GPUs coloured by the job that holds them.

    Of a solution its placement is drawn, of an instance the jobs that run now. Links are as wide as their bandwidth
    (logarithmically). Nodes that are drained, down, reserved or not yet available are hatched. A GPU that several jobs
    hold is cut into stripes. Large clusters lose names, numbers and the links of hosts: a small cell per GPU is left.

    Parameters
    ----------
    source : Solution, SolutionFile or Instance
        A solution must have a placement.
    ax : matplotlib axes, optional
        Where to draw; by default on a figure of its own, of a size that fits.

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
        TopologyCells.of_instance(source) if isinstance(source, Instance) else TopologyCells.of_placement(source)
    )  # fmt: skip
    return _draw(cells, lay_out(cells.fabric), ax)


def _draw(cells: TopologyCells, layout: Layout, ax: Axes | None) -> Axes:
    more = (
        ""
        if layout.linked or not cells.fabric.levels
        else "; links above the leaf switches are not drawn"
    )
    subtitle, width = cells.subtitle + more, layout.width + 0.12
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


def _own_axes(layout: Layout, words: float, lines: int) -> Axes:
    """Axes whose unit is an inch, with room for the words above and so many lines of the legend below."""
    width, height = layout.width + 0.12, layout.height + 0.12
    above, below, side = 0.62, 0.25 + 0.185 * lines, 0.1
    page = (max(width, words) + 2 * side, height + above + below)
    ax = new_axes(*page)
    figure = ax.get_figure(root=True)
    assert figure is not None
    figure.set_layout_engine("none")
    ax.set_position((side / page[0], below / page[1], width / page[0], height / page[1]))
    return ax


def link_width(bandwidth: float | None) -> float:
    """Points: 0.6 where no bandwidth is stated, then more by 0.8 for ten times the bandwidth."""
    return 0.6 if bandwidth is None else 0.8 + 0.8 * math.log10(1.0 + bandwidth)


def _draw_panel(ax: Axes, cells: TopologyCells, layout: Layout, panel: Panel) -> None:
    """The ground of a group with its words, and in a picture with names the links from its hosts to the leaf switch."""
    from matplotlib.patches import FancyBboxPatch

    group, named = panel.group, layout.sizes.named
    inset = 0.03
    ax.add_patch(
        FancyBboxPatch(
            (panel.left + inset, panel.top + inset), panel.width - 2 * inset, panel.height - 2 * inset,
            boxstyle=f"round,pad={inset}", facecolor=PANEL, edgecolor="none", zorder=0.5,
        )
    )  # fmt: skip
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
        ax.text(panel.left + MARGIN, panel.top + 0.14 + line * LINE_HEIGHT, text, fontsize=size, color=colour,
                fontweight=weight, va="center", zorder=3)  # fmt: skip
    if not named or not group.leaves:
        return
    width = link_width(group.uplink[0] if group.uplink else None)
    trunk = panel.left + MARGIN / 2
    for row in panel.rows:
        boxes = layout.host[list(row)]
        bus = boxes[0, 1] - layout.sizes.gap[1] / 2
        middle = boxes[:, 0] + boxes[:, 2] / 2
        ax.hlines(bus, trunk, middle[-1], color=SWITCH, linewidth=width, zorder=1)
        ax.vlines(middle, bus, boxes[:, 1], color=SWITCH, linewidth=width, zorder=1)
        ax.vlines(trunk, panel.top - BAR_GAP - 0.05, bus, color=SWITCH, linewidth=width, zorder=1)


def _draw_switch(ax: Axes, bar: Bar) -> None:
    from matplotlib.patches import FancyBboxPatch

    inset = 0.03
    ax.add_patch(
        FancyBboxPatch(
            (bar.left + inset, bar.top + inset), max(bar.width - 2 * inset, 0.02), BAR - 2 * inset,
            boxstyle=f"round,pad={inset}", facecolor=SWITCH, edgecolor="none", zorder=2,
        )
    )  # fmt: skip
    room = int((bar.width - 0.08) / 0.068)
    if room >= min(len(bar.name), 4):
        ax.text(bar.middle, bar.top + BAR / 2, short(bar.name, room), fontsize=SMALL, color=PALE_INK, ha="center",
                va="center_baseline", zorder=3)  # fmt: skip


def _draw_links(ax: Axes, cells: TopologyCells, layout: Layout) -> None:
    """Links between switches as straight lines, or as a bracket between neighbours; between hosts below their boxes."""
    from matplotlib.collections import LineCollection

    bars = {bar.name: bar for bar in reversed(layout.leaves)} | dict(layout.switches)
    lines, widths, labels = [], [], Labels()
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
        if link.bandwidth is not None and not isinstance(link.ends[0], int):
            labels.add(line[len(line) // 2 - 1], line[len(line) // 2], f"{link.bandwidth:g} GB/s")
    ax.add_collection(
        LineCollection(lines, linewidths=widths, colors=SWITCH, zorder=1, capstyle="round")
    )
    for x, y, text in labels.placed:
        ax.text(x, y, text, fontsize=SMALL, color=MUTED, ha="center", va="center", zorder=1.5,
                bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 1.2})  # fmt: skip


class Labels:
    """Texts on lines, each where it covers none before it; one that finds no such place is left out."""

    def __init__(self) -> None:
        self.placed: list[tuple[float, float, str]] = []

    def add(self, near: tuple[float, float], far: tuple[float, float], text: str) -> None:
        """Place a text near the middle of a line."""
        width = width_of(text, SMALL) + 0.06
        for part in (0.5, 0.4, 0.6, 0.3, 0.7, 0.22):
            x, y = (near[axis] + part * (far[axis] - near[axis]) for axis in (0, 1))
            if all(abs(x - at_x) > (width + width_of(other, SMALL)) / 2 or abs(y - at_y) > 0.16
                   for at_x, at_y, other in self.placed):  # fmt: skip
                self.placed.append((x, y, text))
                return


def _end(vertex: Vertex, bars: Mapping[str, Bar], layout: Layout) -> tuple[float, float] | None:
    """Where a link ends: the upper edge of a switch, the middle of a host; None where it is not drawn."""
    if isinstance(vertex, int):
        left, top, width, height = layout.host[vertex].tolist()
        return (left + width / 2, top + height / 2)
    bar = bars.get(vertex) if layout.linked else None
    return None if bar is None else (bar.middle, bar.top)


def _draw_hosts(ax: Axes, cells: TopologyCells, layout: Layout) -> None:
    """Boxes of the hosts, hatched by their state, with names where there is room."""
    from matplotlib.collections import PolyCollection

    fabric, line = cells.fabric, 0.8 if layout.sizes.named else min(0.6, 4 * layout.sizes.cell)
    for state, hatch in enumerate(HATCHES):
        mine = fabric.state == state
        if mine.any():
            left, top, width, height = layout.host[mine].T
            ax.add_collection(
                PolyCollection(
                    list(_corners(left, top, width, height)), facecolors=PAPER if state == 0 else IDLE,
                    edgecolors=LINE if state == 0 else MUTED, linewidths=line, hatch=hatch or None, zorder=2,
                    rasterized=fabric.total > RASTER, label=STATES[state], hatch_linewidth=0.5,
                )
            )  # fmt: skip
    if layout.sizes.named:
        for name, state, (left, top, width, _) in zip(
            fabric.names, fabric.state.tolist(), layout.host.tolist(), strict=True
        ):
            ground = None if state == 0 else {"facecolor": IDLE, "edgecolor": "none", "pad": 1.0}
            ax.text(left + width / 2, top + layout.sizes.pad / 2 + layout.sizes.name / 2 + 0.01,
                    short(name, max(int(width / 0.062), 3)), fontsize=SMALL - 0.5, color=INK, ha="center",
                    va="center", zorder=3, bbox=ground)  # fmt: skip


def _draw_gpus(ax: Axes, cells: TopologyCells, layout: Layout, colours: Mapping[int, str]) -> None:
    """Free cells, held cells or stripes of them, and the numbers of the jobs where there is room."""
    from matplotlib.collections import PolyCollection

    fabric, side, named = cells.fabric, layout.sizes.cell, layout.sizes.named
    margin = 0.08 * side
    free = np.repeat(fabric.state == 0, fabric.gpus)
    free[cells.gpu] = False
    inner = np.full(len(layout.gpu), side - 2 * margin)
    corner = layout.gpu + margin
    flat = fabric.total > RASTER
    ax.add_collection(
        PolyCollection(
            list(_corners(corner[free, 0], corner[free, 1], inner[free], inner[free])), facecolors=PAPER,
            edgecolors=LINE, linewidths=0.6 if named else min(0.4, 3 * side), zorder=3, rasterized=flat, label="free",
        )
    )  # fmt: skip
    width = inner[cells.gpu] / np.maximum(cells.slots, 1)
    left = corner[cells.gpu, 0] + cells.slot * width
    ax.add_collection(
        PolyCollection(
            list(_corners(left, corner[cells.gpu, 1], width, inner[cells.gpu])), linewidths=0, zorder=3,
            facecolors=[colours[job] for job in cells.job.tolist()], rasterized=flat, label="held",
        )
    )  # fmt: skip
    if named and len(colours) <= NUMBERED:
        number = {job: place for place, job in enumerate(colours, 1)}
        size = np.where(cells.slots > 1, SMALL - 2, SMALL)
        for job, x, y, points in zip(
            cells.job.tolist(), (left + width / 2).tolist(), (corner[cells.gpu, 1] + side / 2 - margin).tolist(),
            size.tolist(), strict=True,
        ):  # fmt: skip
            ax.text(x, y, str(number[job]), fontsize=points, color=ink_on(colours[job]), ha="center",
                    va="center_baseline", zorder=4)  # fmt: skip


def _corners(
    left: FloatArray, top: FloatArray, width: FloatArray, height: FloatArray
) -> FloatArray:
    """Corners of rectangles, shape (n, 4, 2)."""
    right, bottom = left + width, top + height
    return np.stack([left, top, right, top, right, bottom, left, bottom], axis=1).reshape(-1, 4, 2)


def _handles(cells: TopologyCells, colours: Mapping[int, str], most: int) -> list[Patch]:
    """Of the legend: the jobs if there are few enough, and what else there is to tell apart."""
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
    for state in np.unique(cells.fabric.state[cells.fabric.state > 0]).tolist():
        handles.append(
            Patch(
                facecolor=IDLE, edgecolor=MUTED, hatch=HATCHES[state], label=f"node {STATES[state]}"
            )
        )
    return handles
