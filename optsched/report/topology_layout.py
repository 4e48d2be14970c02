"""Where the parts of a cluster stand in its picture: all lengths in inches, from the upper left corner.

Hosts stand in panels, one per group, under bars for their leaf switches; further switches stand above these, level by
level. A small cluster has names and numbers; of a large one only cells are left, as large as the page allows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from optsched.arrays import FloatArray
from optsched.report.fabric import Fabric, Group

NAMED_HOSTS, NAMED_GPUS = 48, 400
"""Up to so many hosts and GPUs there is room for names and numbers."""
CELL = 0.27
"""Side of a GPU with its number."""
CELLS = (0.2, 0.16, 0.13, 0.1, 0.08, 0.06, 0.045, 0.035, 0.025, 0.018, 0.012, 0.008)
"""Sides of GPUs without numbers, the largest that fits is taken."""
PAGE = (12.5, 8.5)
"""Largest width and height of the hosts."""
ASPECT = 1.9
"""Width per height that is aimed at."""
MOST_LINKED = 12
"""With more blocks than this they stand in several shelves, and links above the leaf switches are not drawn."""
BAR, BAR_GAP, LEVEL, MARGIN = 0.2, 0.08, 0.62, 0.13
LINE_HEIGHT = 0.155


@dataclass(frozen=True)
class Sizes:
    """Lengths that go with the side of a cell."""

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

    def host(self, group: Group, fabric: Fabric) -> tuple[float, float]:
        """Width and height of the hosts of a group."""
        columns, rows = grid(int(fabric.gpus[group.hosts].max(initial=1)))
        return columns * self.cell + 2 * self.pad, rows * self.cell + 2 * self.pad + self.name


@dataclass(frozen=True)
class Panel:
    """A group and its rectangle; ``rows`` are the numbers of its hosts, row by row."""

    group: Group
    left: float
    top: float
    width: float
    height: float
    rows: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Bar:
    """A switch: its name, and the rectangle that stands for it."""

    name: str
    left: float
    top: float
    width: float

    @property
    def middle(self) -> float:
        """Horizontal centre."""
        return self.left + self.width / 2


@dataclass(frozen=True)
class Layout:
    """Everything with its place.

    Attributes
    ----------
    sizes : Sizes
    host : FloatArray, shape (hosts, 4)
        Left, top, width, height.
    gpu : FloatArray, shape (GPUs, 2)
        Left and top of each cell.
    panels : tuple of Panel
    leaves : tuple of Bar
        A switch with hosts in several blocks has a bar over each.
    switches : mapping of str to Bar
        Those above the leaves; empty where they are not drawn.
    width, height : float
    linked : bool
        Whether links above the leaf switches are drawn.
    """

    sizes: Sizes
    host: FloatArray
    gpu: FloatArray
    panels: tuple[Panel, ...]
    leaves: tuple[Bar, ...]
    switches: Mapping[str, Bar]
    width: float
    height: float
    linked: bool


def grid(gpus: int) -> tuple[int, int]:
    """Columns and rows of the GPUs of a host: 4 x 1, 4 x 2, then nearly a square."""
    columns = max(gpus, 1) if gpus <= 4 else 4 if gpus <= 8 else math.ceil(math.sqrt(gpus))
    return columns, max(math.ceil(gpus / columns), 1)


def header_of(fabric: Fabric, group: Group) -> str:
    """How many hosts of what size."""
    sizes = fabric.gpus[group.hosts]
    low, high = int(sizes.min()), int(sizes.max())
    each = f"{low}" if low == high else f"{low} to {high}"
    return f"{len(sizes):,} node{'s' if len(sizes) != 1 else ''} x {each} GPU{'s' if high != 1 else ''}"


def bandwidth_words(values: tuple[float, ...]) -> str:
    """``12.5``, ``10 to 25``, or nothing."""
    if not values:
        return ""
    return f"{values[0]:g}" if len(values) == 1 else f"{values[0]:g} to {values[-1]:g}"


def bandwidths_of(group: Group) -> str:
    """Bandwidths inside a host and to its switches, where stated."""
    inside, uplink = bandwidth_words(group.inside), bandwidth_words(group.uplink)
    parts = [f"{inside} inside" if inside else "", f"{uplink} up" if uplink else ""]
    told = ", ".join(filter(None, parts))
    return f"GB/s: {told}" if told else ""


def lay_out(fabric: Fabric) -> Layout:
    """Place everything: with names where there is room, else with the largest cells that fit on a page."""
    if len(fabric.names) <= NAMED_HOSTS and fabric.total <= NAMED_GPUS:
        made = _best(fabric, Sizes(CELL, True))
        if made.width <= 1.3 * PAGE[0] and made.height <= 1.3 * PAGE[1]:
            return made
    for cell in CELLS:
        made = _best(fabric, Sizes(cell, False))
        if made.width <= PAGE[0] and made.height <= PAGE[1]:
            break
    return made


def _best(fabric: Fabric, sizes: Sizes) -> Layout:
    """The arrangement whose shape is nearest to the one aimed at."""
    blocks = _blocks(fabric)
    largest = max(len(group.hosts) for group in fabric.groups)
    shelves = range(1, min(len(blocks), 40) + 1) if len(blocks) > MOST_LINKED else [1]
    depths = sorted(set(np.geomspace(1, largest, 60).round().astype(int).tolist()))
    found: tuple[float, int, int] | None = None
    for count in shelves:
        for depth in depths:
            width, height = _extent(fabric, blocks, sizes, count, depth)
            off = abs(math.log(width / height / ASPECT))
            if found is None or off < found[0] - 1e-9:
                found = (off, count, depth)
    assert found is not None
    return _place(fabric, blocks, sizes, found[1], found[2])


def _blocks(fabric: Fabric) -> list[list[Group]]:
    """Groups under the same leaf switches."""
    blocks: list[list[Group]] = []
    for group in fabric.groups:
        if blocks and group.leaves and blocks[-1][0].leaves == group.leaves:
            blocks[-1].append(group)
        else:
            blocks.append([group])
    return blocks


def _panel(fabric: Fabric, group: Group, sizes: Sizes, depth: int) -> tuple[float, float, int]:
    """Width and height of a panel with so many rows of hosts at most, and its hosts per row."""
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
    fabric: Fabric, blocks: list[list[Group]], sizes: Sizes, shelves: int, depth: int
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
    fabric: Fabric, blocks: list[list[Group]], sizes: Sizes, shelves: int, depth: int
) -> Layout:
    """The arrangement with so many shelves, and so many rows of hosts in a panel at most."""
    linked = len(blocks) <= MOST_LINKED
    per_shelf = math.ceil(len(blocks) / shelves)
    top = LEVEL * max(fabric.levels.values(), default=0) if linked else 0.0
    host, gpu = np.zeros((len(fabric.names), 4)), np.zeros((fabric.total, 2))
    panels: list[Panel] = []
    leaves: list[Bar] = []
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
    return Layout(
        sizes, host, gpu, tuple(panels), tuple(leaves), switches, width, top - 2 * MARGIN, linked
    )


def _place_hosts(
    fabric: Fabric, group: Group, sizes: Sizes, depth: int, corner: tuple[float, float], host: FloatArray,
    gpu: FloatArray,
) -> Panel:  # fmt: skip
    """Put the hosts of a group and their GPUs into their arrays."""
    (left, top), (wide, high), gap = corner, sizes.host(group, fabric), sizes.gap
    width, height, across = _panel(fabric, group, sizes, depth)
    place = np.arange(len(group.hosts))
    x = left + MARGIN + (place % across) * (wide + gap[0])
    y = top + sizes.header + gap[1] / 2 + (place // across) * (high + gap[1])
    host[group.hosts] = np.stack([x, y, np.full(len(x), wide), np.full(len(x), high)], axis=1)
    columns, _ = grid(int(fabric.gpus[group.hosts].max(initial=1)))
    for number, at_x, at_y in zip(group.hosts.tolist(), x.tolist(), y.tolist(), strict=True):
        first, count = int(fabric.first[number]), int(fabric.gpus[number])
        cell = np.arange(count)
        gpu[first : first + count, 0] = at_x + sizes.pad + (cell % columns) * sizes.cell
        gpu[first : first + count, 1] = (
            at_y + sizes.pad + sizes.name + (cell // columns) * sizes.cell
        )
    numbers = group.hosts.tolist()
    rows = tuple(tuple(numbers[begin : begin + across]) for begin in range(0, len(numbers), across))
    return Panel(group, left, top, width, height, rows)


def _place_switches(fabric: Fabric, leaves: list[Bar], right: float) -> dict[str, Bar]:
    """Switches above the leaves, each over the middle of what it is linked to, and apart from its neighbours."""
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
        centre = float(at.mean()) if len(at) else 0.0
        for place in range(1, len(at)):
            at[place] = max(
                at[place], at[place - 1] + (widths[place - 1] + widths[place]) / 2 + 0.25
            )
        at += centre - float(at.mean()) if len(at) else 0.0
        at += max(0.0, float(widths[0] / 2 - at[0])) if len(at) else 0.0
        for name, x, width in zip(order, at.tolist(), widths.tolist(), strict=True):
            bars[name] = Bar(name, x - width / 2, (top - level) * LEVEL, width)
            middle[name] = x
    return bars
