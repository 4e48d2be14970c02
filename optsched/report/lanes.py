"""Lanes of a Gantt diagram: which GPUs of a pool a stretch of time is drawn on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optsched.arrays import FloatArray, IntArray

FINEST = 8
"""A GPU is cut into at most so many lanes where jobs hold shares of it."""


@dataclass(frozen=True)
class Lanes:
    """Blocks of neighbouring lanes; a stretch that finds no room in one piece has several.

    Attributes
    ----------
    stretch, lane, height : IntArray, shape (B,)
        Whose block it is, its first lane and how many it covers.
    per_gpu : int
        Lanes of a GPU.
    count : int
        Lanes in all: those of the pool's GPUs, and more where more run at a time than fit.
    """

    stretch: IntArray
    lane: IntArray
    height: IntArray
    per_gpu: int
    count: int


def lay_out(
    start: FloatArray, end: FloatArray, gpus: FloatArray, owner: IntArray, size: int
) -> Lanes:
    """Greedy packing in order of start; as many lanes are used as GPUs are held at a time, no more.

    Each stretch takes lanes that are free when it starts: those that its owner had before if it can, else the smallest
    gap that holds it in one piece, else the lowest free lanes. All free lanes are equally good for what comes later,
    so no stretch ever needs a lane beyond the largest number of GPUs held at once.

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
    blocks: list[tuple[int, int, int]] = []
    for stretch in np.lexsort((owner, -height, start)).tolist():
        wanted, who = int(height[stretch]), int(owner[stretch])
        free = np.flatnonzero(busy_until <= start[stretch] + slack)
        if len(free) < wanted:
            more = wanted - len(free)
            free = np.concatenate((free, np.arange(len(busy_until), len(busy_until) + more)))
            busy_until = np.concatenate((busy_until, np.full(more, -np.inf)))
        own = before.get(who)
        if own is not None and len(own) == wanted and np.isin(own, free).all():
            taken = own
        else:
            taken = _smallest_gap(free, wanted)
        busy_until[taken] = end[stretch]
        before[who] = taken
        blocks += [(stretch, int(part[0]), len(part)) for part in _neighbours(taken)]
    table = np.array(blocks, np.int64).reshape(-1, 3)
    return Lanes(table[:, 0], table[:, 1], table[:, 2], per_gpu, len(busy_until))


def _smallest_gap(free: IntArray, wanted: int) -> IntArray:
    """The lowest lanes of the smallest run of free ones that is long enough, else the lowest free lanes."""
    runs = [run for run in _neighbours(free) if len(run) >= wanted]
    return min(runs, key=len)[:wanted] if runs else free[:wanted]


def _neighbours(lanes: IntArray) -> list[IntArray]:
    """Sorted lanes cut into runs of consecutive numbers."""
    return np.split(lanes, np.flatnonzero(np.diff(lanes) != 1) + 1)
