"""Measured steps on their way from files to `Profiles`: what is read of each, where it stands, checks of units."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from optsched.arrays import FloatArray, IntArray
from optsched.errors import InvalidInput
from optsched.instance.reading import show
from optsched.performance.profiles import Profiles

APART = 200.0
"""Times that no law of a step explains if they differ by so much: milliseconds stand beside seconds."""


class Measurement(NamedTuple):
    """One measured step.

    ``place`` is where its time stands (``file:line:column``); ``once`` says that another measurement of the same way,
    from wherever, is left out after it.
    """

    workload: str
    gpu: str
    gpus: int
    nodes: int
    samples: float
    passes: int
    seconds: float
    sync: float
    place: str
    once: bool = False

    @property
    def way(self) -> tuple[str, str, int, int, float, int]:
        """What it is a measurement of."""
        return self[:6]


def check_way(gpus: int, nodes: int, where: str) -> None:
    """Refuse more nodes than GPUs; ``where`` is the place of the nodes."""
    if not 1 <= gpus < 2**31:
        raise InvalidInput(where, show(gpus), "a whole number of GPUs, at least 1")
    if not 1 <= nodes <= gpus:
        found = f"{nodes} nodes for {gpus} GPUs" if nodes > 1 else show(nodes)
        raise InvalidInput(where, found, "at least one node, and at most one for each GPU")


def without_repeats(rows: Sequence[Measurement], repeats: str | None) -> list[Measurement]:
    """The first measurement of each way (``first``), ``all`` of them, or (None) as each measurement itself says."""
    seen: set[tuple[str, str, int, int, float, int]] = set()
    kept = []
    for row in rows:
        again = row.way in seen
        seen.add(row.way)
        if not again or repeats == "all" or (repeats is None and not row.once):
            kept.append(row)
    return kept


def profiles_of(rows: Sequence[Measurement]) -> Profiles:
    """Arrays of measurements whose cells are already checked, in order; raises `InvalidInput` for mixed units."""
    columns = list(zip(*rows, strict=True))
    workload, gpu, gpus, nodes, samples, passes, seconds, sync, places, _ = columns
    profiles = Profiles.of(
        workload=workload,
        gpu=gpu,
        gpus=gpus,
        nodes=nodes,
        samples=samples,
        seconds=seconds,
        sync=sync,
        passes=passes,
    )
    _refuse_mixed_units(profiles, places)
    return profiles


def _refuse_mixed_units(profiles: Profiles, places: Sequence[str]) -> None:
    """Refuse times of one workload and GPU type that cannot be in the same unit.

    A step of m samples takes about a + b m seconds with a, b >= 0, so for m < m' it takes no longer than one of m'
    samples, and one of m' samples takes at most m'/m times as long. Times of which one breaks this by a factor of
    `APART` are in different units; noise and communication do not go so far.
    """
    ways = profiles.ways
    group = ways.workload * len(ways.gpu_types) + ways.gpu
    each = profiles.seconds / ways.passes
    order = np.lexsort((ways.samples, group))
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))
    for rows in np.split(order, starts[1:]):
        pair = _apart(ways.samples[rows], each[rows])
        if pair is not None:
            other, odd = sorted(
                (int(rows[place]) for place in pair), key=profiles.seconds.__getitem__
            )
            found = f"{profiles.seconds[odd]:g} s, where {places[other]} has {profiles.seconds[other]:g} s"
            raise InvalidInput(
                places[odd],
                found,
                "times in one unit (some look like milliseconds): a step's time follows its samples",
            )


def _apart(samples: FloatArray, seconds: FloatArray) -> tuple[int, int] | None:
    """Two places that cannot be in one unit, of arrays in ascending order of the samples; None if there are none."""
    for law in (
        np.log(seconds),
        np.log(samples) - np.log(seconds),
    ):  # neither falls with the samples, but for noise
        highest = _running_argmax(law)
        drop = law[highest] - law
        worst = int(np.argmax(drop))
        if drop[worst] > np.log(APART):
            return worst, int(highest[worst])
    return None


def _running_argmax(values: FloatArray) -> IntArray:
    """Where the largest value so far stands, for each place."""
    peak = np.maximum.accumulate(values)
    return np.maximum.accumulate(np.where(values == peak, np.arange(len(values)), 0))
