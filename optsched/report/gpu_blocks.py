"""Blocks of a Gantt diagram of GPUs: where each GPU has its row, and what stands on it from when to when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from optsched.arrays import FloatArray, IntArray
from optsched.instance.cluster import Numbering
from optsched.report.gantt import Blocks
from optsched.report.gpu_places import Holders

if TYPE_CHECKING:
    from optsched.simulation import Segments

OF_GPU, PAGE, GAP = 0.16, 5.6, 0.1
"""Inches: of a GPU and of all of them at most, and between pools."""


@dataclass(frozen=True)
class GpuRows:
    """Where GPUs are drawn: inches from the upper edge.

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
        pool = np.repeat(np.arange(len(sizes)), sizes)
        of_gpu = min(OF_GPU, PAGE / max(numbering.gpus, 1))
        return cls(np.arange(numbering.gpus) * of_gpu + pool * GAP, of_gpu)


def blocks_of(
    numbering: Numbering,
    shown: Segments,
    holders: Holders,
    holder: IntArray,
    gpu: IntArray,
    rows: GpuRows,
    origin: float,
) -> tuple[Blocks, int]:
    """Rectangles in seconds and inches; where two jobs share GPUs, halves lie over those. And how many halves."""
    order = np.lexsort((gpu, holder))
    holder, gpu = holder[order], gpu[order]
    node = numbering.node_of(gpu)
    new = np.ones(len(gpu), bool)
    new[1:] = (holder[1:] != holder[:-1]) | (gpu[1:] != gpu[:-1] + 1) | (node[1:] != node[:-1])
    begins = np.flatnonzero(new)
    last = np.append(begins[1:], len(gpu)) - 1
    owner, top, bottom = holder[begins], rows.top[gpu[begins]], rows.top[gpu[last]] + rows.of_gpu
    first, stop = (
        np.searchsorted(owner, holders.of_segment),
        np.searchsorted(owner, holders.of_segment, side="right"),
    )
    first_half, second_half, left, right = shared_spells(shown, holders)
    segment = np.concatenate([np.arange(len(shown)), first_half, second_half])
    begin = np.concatenate([shown.start, left, left])
    end = np.concatenate([shown.end, right, right])
    half = np.repeat([0, 1, 2], [len(shown), len(left), len(left)])
    pieces = (stop - first)[segment]
    entry = np.repeat(np.arange(len(segment)), pieces)
    piece = (
        first[segment[entry]]
        + np.arange(len(entry))
        - np.repeat(np.cumsum(pieces) - pieces, pieces)
    )
    middle, half = (top[piece] + bottom[piece]) / 2, half[entry]
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
    first, second = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    order = np.argsort(holders.of_segment, kind="stable")
    bounds = np.searchsorted(holders.of_segment[order], np.arange(len(holders) + 1))
    for begin, stop in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        if stop - begin > 1:
            a, b = np.triu_indices(stop - begin, 1)
            first.append(order[begin + a])
            second.append(order[begin + b])
    one, other = np.concatenate(first), np.concatenate(second)
    left, right = (
        np.maximum(shown.start[one], shown.start[other]),
        np.minimum(shown.end[one], shown.end[other]),
    )
    both = right > left
    return one[both], other[both], left[both], right[both]
