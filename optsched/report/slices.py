"""GPUs that are cut into slices (MIG), as a picture: the layout of each, and the jobs in the
slices.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from optsched.display import count
from optsched.errors import UsageError
from optsched.placement import SlicedGpus, slices
from optsched.placement.gpu_slices import GpuSlice, sliced_gpus
from optsched.report.answers import Answer, SolutionFile, headline
from optsched.report.palette import IDLE, INK, JOBS, LABEL, PAPER, SMALL
from optsched.report.pictures import (
    head,
    new_axes,
    plain_frame,
    require_matplotlib,
    short,
    width_of,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_GPUS = 40
WIDTH = 7.0
"""Inches of the slices of a GPU."""


@dataclass(frozen=True)
class SliceRows:
    """The data of the picture of slices: a row for each GPU.

    Attributes
    ----------
    gpus : tuple of tuples of GpuSlice
        The slices of each GPU that is drawn.
    hidden : int
        Number of GPUs that are not drawn.
    owners : tuple of str
        Workloads, or jobs without one, in the order of their colours.
    memory_slices : int
        Largest number of memory slices of a GPU.
    title, subtitle : str
    """

    gpus: tuple[tuple[GpuSlice, ...], ...]
    hidden: int
    owners: tuple[str, ...]
    memory_slices: int
    title: str
    subtitle: str

    @classmethod
    def of(cls, answer: Answer) -> SliceRows:
        """The slices of a solution or of a solution file.

        Raises
        ------
        UsageError
            If it decides no layouts, or uses no GPU.
        """
        found = _slices_of(answer)
        by_gpu: dict[str, list[GpuSlice]] = {}
        for each in found.slices:
            by_gpu.setdefault(each.gpu, []).append(each)
        if not by_gpu:
            raise UsageError("the solution uses no GPU: there is nothing to draw")
        owners = dict.fromkeys(owner_of(each) for each in found.slices if each.job)
        rows = tuple(map(tuple, by_gpu.values()))
        idle = sum(not each.job for each in found.slices)
        note = f"{count(idle, 'slice')} idle" if idle else ""
        return cls(
            rows[:MOST_GPUS],
            max(len(rows) - MOST_GPUS, 0),
            tuple(owners),
            max(each.end for each in found.slices),
            f"{answer.instance.name}: slices of {count(len(rows), 'GPU')}",
            headline(answer, note),
        )


def owner_of(each: GpuSlice) -> str:
    """Workload or job that determines the colour of a slice."""
    return each.workload or each.job


def _slices_of(answer: Answer) -> SlicedGpus:
    if not isinstance(answer, SolutionFile):
        return slices(answer)
    document = answer.document
    if document.schedule is None or document.layouts is None:
        raise UsageError(f"{answer.formulation} decides no layouts of GPUs")
    rows = [row.model_dump() for row in document.schedule]
    return sliced_gpus(answer.instance, rows, document.layouts)


def slices_picture(answer: Answer, ax: Axes | None = None) -> Axes:
    """Draw the GPUs of a plan with layouts (MIG): a bar each, cut into its slices.

    A slice is as wide as the memory slices that it takes, and has the colour of its workload. Idle
    slices are grey; memory slices without a slice are empty.

    Parameters
    ----------
    answer : Solution or SolutionFile
        A solution of a formulation that decides layouts.
    ax : matplotlib axes, optional
        Where to draw; by default on a new figure of a size that fits.

    Returns
    -------
    Axes

    Raises
    ------
    UsageError
        If the solution decides no layouts, or uses no GPU.
    SolverUnavailable
        If matplotlib is not installed.
    """
    require_matplotlib()
    rows = SliceRows.of(answer)
    names = [short(gpu[0].gpu, 24) for gpu in rows.gpus]
    if ax is None:
        margin = max(width_of(text, LABEL) for text in names)
        ax = new_axes(WIDTH + margin, 1.1 + 0.34 * len(names))
    colour = {owner: JOBS[place % len(JOBS)] for place, owner in enumerate(rows.owners)}
    for row, gpu in enumerate(rows.gpus):
        for each in gpu:
            _draw(ax, row, each, colour.get(owner_of(each), IDLE), rows.memory_slices)
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.set_xlim(0, rows.memory_slices)
    ax.set_xticks(range(rows.memory_slices + 1))
    plain_frame(ax)
    more = f" ({rows.hidden:,} GPUs more are not drawn)" if rows.hidden else ""
    head(ax, rows.title, rows.subtitle, x=f"memory slices{more}")
    return ax


def _draw(ax: Axes, row: int, each: GpuSlice, colour: str, widest: int) -> None:
    width = each.end - each.start
    ax.barh(row, width, left=each.start, height=0.8, color=colour, edgecolor=PAPER, linewidth=1.5)
    room = int(WIDTH * width / widest / width_of("m", SMALL))
    text = f"{each.job} {each.slice.partition('@')[0]}".strip() if each.job else "idle"
    plain = short(text, room) if len(text) <= room else short(each.job or "idle", max(room, 2))
    label = ax.text(
        each.start + width / 2, row, plain, ha="center", va="center", fontsize=SMALL, color=INK
    )
    label.set_bbox({"facecolor": PAPER, "edgecolor": "none", "alpha": 0.7, "pad": 1.0})
