"""Laws of a step with two phases that overlap in part: compute and communication."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from optsched.arrays import FloatArray, IntArray
from optsched.performance.parametric.fitting import LEVELS, KnownPairs, columns, level_of
from optsched.performance.protocol import Source
from optsched.performance.times import Times
from optsched.performance.ways import Ways

CHUNK = 8192
"""Ways per block: their intermediate arrays stay in the CPU cache."""


def overlapped(first: FloatArray, second: FloatArray, g: float | FloatArray) -> FloatArray:
    """Seconds of two phases that overlap: (x^g + y^g)^(1/g), g >= 1.

    With g = 1 they run one after the other (x + y), with g -> inf they overlap completely (max).
    The code uses u (1 + (v/u)^g)^(1/g) with u the larger and v the smaller, which neither overflows
    nor underflows. Both must be at least 0, and one positive.
    """
    if np.ndim(g) == 0 and g == 1:
        return first + second
    if np.ndim(g) == 0 and g == 2:
        return np.sqrt(first * first + second * second)
    with np.errstate(divide="ignore", invalid="ignore"):  # log 0 = -inf: only one phase
        larger = np.maximum(first, second)
        power = np.minimum(first, second)
        power /= larger
        np.log(power, out=power)
        power *= g
        np.exp(power, out=power)
        power += 1.0
        np.log(power, out=power)
        power /= g
        np.exp(power, out=power)
        power *= larger
    return power


def step_slopes(
    x: FloatArray,
    y: FloatArray,
    g: float,
    passes: IntArray,
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """t = (passes - 1) x + o with o = (x^g + y^g)^(1/g), and its derivatives by x, y and g.

    do/dx = (x/o)^(g-1)        do/dy = (y/o)^(g-1)
    do/dg = o / g (p log(x/o) + q log(y/o)),    p = (x/o)^g, q = (y/o)^g = 1 - p
    """
    o = overlapped(x, y, g)
    by_x = (x / o) ** (g - 1) + passes - 1
    by_y = (y / o) ** (g - 1)
    # y is 0 on one GPU; there 0 log 0 = 0.
    with np.errstate(divide="ignore", invalid="ignore"):
        of_y = np.where(y > 0, (y / o) ** g * np.log(y / o), 0.0)
    by_g = o / g * ((x / o) ** g * np.log(x / o) + of_y)
    return o + x * (passes - 1), by_x, by_y, by_g


Phases = tuple[FloatArray, FloatArray, float | FloatArray]
"""Compute and communication of ways, in seconds, and g."""


class TwoPhaseTable:
    """Table of coefficients by pair (workload, GPU type) and level, looked up for many ways at
    once.

    Parameters
    ----------
    pairs : KnownPairs
        The pairs.
    rows : sequence of tuples of float
        For each pair and level, in this order: the coefficients of the law, then log_sd and source.
    """

    def __init__(self, pairs: KnownPairs, rows: Sequence[tuple[float, ...]], width: int) -> None:
        self.pairs = pairs
        *law, self._log_sd, source = columns(rows, width, LEVELS)
        self._law = np.array(law)
        self._source = np.nan_to_num(source, nan=float(Source.PRIOR)).astype(np.uint8)

    def times(
        self, ways: Ways, phases: Callable[[Sequence[FloatArray], slice, IntArray], Phases]
    ) -> Times:
        """t = (passes - 1) x + (x^g + y^g)^(1/g) of each way.

        ``phases`` computes x, y and g from the coefficients (which it may overwrite), for a slice
        of the ways and their row numbers in the table.
        """
        count = len(ways)
        # One allocation for both arrays needs fewer new memory pages.
        (seconds, log_sd), source = np.empty((2, count)), np.empty(count, np.uint8)
        find = self.pairs.finder(ways)
        work = np.empty((len(self._law), CHUNK))
        for start in range(0, count, CHUNK):
            rows = slice(start, min(start + CHUNK, count))
            at = find(rows)
            at *= LEVELS
            at += level_of(ways.gpus[rows], ways.nodes[rows])
            # All rows are valid; mode="clip" only skips the bounds check.
            law = [
                column.take(at, mode="clip", out=room[: len(at)])
                for column, room in zip(self._law, work, strict=True)
            ]
            self._log_sd.take(at, mode="clip", out=log_sd[rows])
            self._source.take(at, mode="clip", out=source[rows])
            x, y, g = phases(law, rows, at)
            seconds[rows] = overlapped(x, y, g)
            further_passes = ways.passes[rows] - 1
            if further_passes.any():
                seconds[rows] += further_passes * x
        return Times(seconds, log_sd, source)
