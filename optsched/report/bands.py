"""Bands of a Gantt diagram: one per pool, as high as it has GPUs, within reason."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optsched.arrays import IntArray
from optsched.instance import Instance
from optsched.report.answers import count
from optsched.report.lanes import Lanes, lay_out
from optsched.report.parts import NOBODY, Runs
from optsched.report.pictures import short

OF_GPU, SMALLEST, LARGEST, PAGE = 0.27, 0.42, 4.5, 7.5
"""Inches: of a GPU, of a band at least and at most, and of all bands together."""
GAP = 0.12
"""Inches between bands."""
MAX_IDLE = 8
"""With more pools than this, those on which nothing runs are left out."""


@dataclass(frozen=True)
class Band:
    """One pool of the diagram.

    Attributes
    ----------
    pool : int
        Row of the pools, -1 for stretches without one.
    label : str
    gpus : int
        Of the pool; without a pool as many as are held at a time.
    runs : IntArray
        The stretches that run here.
    lanes : Lanes
        Their blocks; ``lanes.stretch`` counts in ``runs``.
    top, inches, gap : float
        Where the band begins, its height, and what is left free above it.
    """

    pool: int
    label: str
    gpus: int
    runs: IntArray
    lanes: Lanes
    top: float
    inches: float
    gap: float

    @property
    def of_gpu(self) -> float:
        """Height of a GPU."""
        return self.inches * self.lanes.per_gpu / max(self.lanes.count, 1)


def bands_of(instance: Instance, runs: Runs) -> list[Band]:
    """The bands from top to bottom: pools in their order, then what runs without one."""
    pools = instance.cluster.pools
    used = set(runs.pool.tolist())
    shown = [row for row in range(len(pools)) if row in used or len(pools) <= MAX_IDLE]
    found = []
    for row in [*shown, *([NOBODY] if NOBODY in used else [])]:
        mine = np.flatnonzero(runs.pool == row)
        size = 0 if row == NOBODY else int(pools[row].node_gpus.sum())
        gpus = np.maximum(runs.gpus[mine], 1.0) if row == NOBODY else runs.gpus[mine]
        lanes = lay_out(runs.start[mine], runs.end[mine], gpus, runs.job[mine], size)
        label = (
            "no pool" if row == NOBODY else f"{short(pools[row].name, 18)}\n{count(size, 'GPU')}"
        )
        found.append((row, label, size or lanes.count // lanes.per_gpu, mine, lanes))
    wanted = np.array(
        [np.clip(OF_GPU * lanes.count / lanes.per_gpu, SMALLEST, LARGEST) for *_, lanes in found]
    )
    if wanted.sum() > PAGE:
        wanted = np.maximum(wanted * PAGE / wanted.sum(), SMALLEST)
    tops = np.concatenate(([0.0], np.cumsum(wanted + GAP)))
    return [
        Band(*parts, top=float(top), inches=float(inches), gap=GAP)
        for parts, top, inches in zip(found, tops, wanted, strict=False)
    ]
