"""Measured points by shape (workload, GPU type, k GPUs on n nodes), and lookups in them for many ways at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray, find_sorted
from optsched.performance.parametric.cells import Cells
from optsched.performance.parametric.fitting import fit_affine
from optsched.performance.ways import Ways


def _rank(values: IntArray | FloatArray, wanted: IntArray | FloatArray) -> IntArray:
    """Position of each wanted value among sorted distinct values, ``len(values)`` where it is not one of them."""
    position = np.searchsorted(values, wanted)
    position[position == len(values)] = 0
    rank: IntArray = np.where(values[position] == wanted, position, len(values))
    return rank


@dataclass(frozen=True)
class Points:
    """P measured points, each at its own place.

    Attributes
    ----------
    cells : Cells
        Pairs (workload, GPU type).
    cell, gpus, nodes, passes : IntArray, shape (P,)
    samples, seconds : FloatArray, shape (P,)
    """

    cells: Cells
    cell: IntArray
    gpus: IntArray
    nodes: IntArray
    samples: FloatArray
    passes: IntArray
    seconds: FloatArray

    @cached_property
    def _values(self) -> tuple[IntArray, IntArray, FloatArray, IntArray]:
        return (
            np.unique(self.gpus),
            np.unique(self.nodes),
            np.unique(self.samples),
            np.unique(self.passes),
        )

    def _shape_key(self, cell: IntArray, gpus: IntArray, nodes: IntArray) -> IntArray:
        counts, spans = self._values[:2]
        key = (cell * (len(counts) + 1) + _rank(counts, gpus)) * (len(spans) + 1) + _rank(
            spans, nodes
        )
        return np.asarray(key, np.int64)

    def _point_key(self, shape: IntArray, samples: FloatArray, passes: IntArray) -> IntArray:
        batches, times = self._values[2:]
        key = (shape * (len(batches) + 1) + _rank(batches, samples)) * (len(times) + 1) + _rank(
            times, passes
        )
        return np.asarray(key, np.int64)

    @cached_property
    def _ranges(self) -> tuple[FloatArray, FloatArray]:
        """Least and most k, n, m and passes of each pair, two arrays of shape (pairs + 1, 4); the last is for none."""
        rows = np.stack([self.gpus, self.nodes, self.samples, self.passes], axis=1).astype(
            np.float64
        )
        least, most = np.full((2, len(self.cells) + 1, 4), np.inf)
        most *= -1
        np.minimum.at(least, self.cell, rows)
        np.maximum.at(most, self.cell, rows)
        return least, most

    def outside(self, ways: Ways) -> BoolArray:
        """Whether a way has more or less GPUs, nodes, samples or passes than its pair was measured with."""
        least, most = (ends[self.cells.find(ways)] for ends in self._ranges)
        asked = np.stack([ways.gpus, ways.nodes, ways.samples, ways.passes], axis=1)
        return np.asarray(((asked < least) | (asked > most)).any(axis=1))

    # --- shapes -------------------------------------------------------------------------------------------------------

    @cached_property
    def _shapes(self) -> tuple[IntArray, IntArray, IntArray]:
        """Sorted keys of the shapes, a point of each, and the shape of each point."""
        keys, first, inverse = np.unique(
            self._shape_key(self.cell, self.gpus, self.nodes),
            return_index=True,
            return_inverse=True,
        )
        return keys, first, inverse.astype(np.int64)

    @property
    def shape(self) -> IntArray:
        """Shape of each point."""
        return self._shapes[2]

    def shape_of(self, ways: Ways) -> IntArray:
        """Shape of each way, -1 where it was not measured."""
        return find_sorted(
            self._shapes[0], self._shape_key(self.cells.find(ways), ways.gpus, ways.nodes)
        )

    @cached_property
    def _sorted(self) -> tuple[IntArray, FloatArray]:
        key = self._point_key(self.shape, self.samples, self.passes)
        order = np.argsort(key)
        return key[order], self.seconds[order]

    def measured(self, shape: IntArray, samples: FloatArray, passes: IntArray) -> FloatArray:
        """Seconds that were measured in a shape with this batch, bit for bit; NaN where it was not."""
        keys, seconds = self._sorted
        found = find_sorted(keys, self._point_key(shape, samples, passes))
        return np.where((found >= 0) & (shape >= 0), seconds[found], np.nan)

    @cached_property
    def affine(self) -> FloatArray:
        """a and b of t(m) = a + b m of each shape, shape (2, S + 1); NaN where fewer than two m were measured."""
        lines = np.full((2, len(self._shapes[0]) + 1), np.nan)
        for shape, rows in self.single_passes().items():
            if len(rows) > 1:
                lines[:, shape] = fit_affine(self.samples[rows], self.seconds[rows])
        return lines

    def single_passes(self) -> dict[int, IntArray]:
        """Points with one pass of each shape."""
        single = np.flatnonzero(self.passes == 1)
        order = single[np.argsort(self.shape[single], kind="stable")]
        found, start = np.unique(self.shape[order], return_index=True)
        return (
            dict(zip(found.tolist(), np.split(order, start[1:]), strict=True)) if len(found) else {}
        )

    def seconds_at(self, shape: IntArray, samples: FloatArray) -> FloatArray:
        """Seconds of a step of one pass in a shape: measured, else on its affine line; NaN for shape -1."""
        exact = self.measured(shape, samples, np.ones(len(shape), np.int64))
        line = self.affine[0][shape] + self.affine[1][shape] * samples
        return np.where(np.isnan(exact), line, exact)

    # --- series -------------------------------------------------------------------------------------------------------

    def between(self, ways: Ways, density: bool) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        """The measured shapes around each way in its series: rows of shapes and their k, below and above; -1 for none.

        A series is what was measured of a pair on the same number of nodes, or (``density``) with the same number of
        GPUs on the fullest node.
        """
        first = self._shapes[1]
        series, place = _series(self.nodes[first], self.gpus[first], ways, density)
        width = int(max(series.max(), place.max(initial=0))) + 1
        low, high = _bracket(
            self.cell[first] * width + series,
            self.gpus[first],
            self.cells.find(ways) * width + place,
            ways.gpus,
        )
        gpus = self.gpus[first]
        return low, high, gpus[low], gpus[high]

    def between_batches(self, ways: Ways, density: bool) -> tuple[IntArray, IntArray]:
        """The measured points of one pass around each way with as many samples per step; -1 for none."""
        single = np.flatnonzero(self.passes == 1)
        if len(single) == 0:
            return np.full(len(ways), -1), np.full(len(ways), -1)
        batch = self.samples[single] * self.gpus[single]
        batches = np.unique(batch)
        series, place = _series(self.nodes[single], self.gpus[single], ways, density)
        width = int(max(series.max(), place.max(initial=0))) + 1
        series = (self.cell[single] * (len(batches) + 1) + _rank(batches, batch)) * width + series
        place = (
            self.cells.find(ways) * (len(batches) + 1) + _rank(batches, ways.samples_per_step)
        ) * width + place
        low, high = _bracket(series, self.gpus[single], place, ways.gpus)
        return np.where(low >= 0, single[low], -1), np.where(high >= 0, single[high], -1)


def _series(
    nodes: IntArray, gpus: IntArray, ways: Ways, density: bool
) -> tuple[IntArray, IntArray]:
    """What points, and ways, of one series have in common."""
    of_points, wanted = (-(-gpus // nodes), ways.max_per_node) if density else (nodes, ways.nodes)
    values = np.unique(of_points)
    return _rank(values, of_points), _rank(values, wanted)


def _bracket(
    series: IntArray, gpus: IntArray, place: IntArray, wanted: IntArray
) -> tuple[IntArray, IntArray]:
    """Rows with the nearest k at or above, and below, in the series of each place; -1 where one of them is missing."""
    order = np.lexsort((gpus, series))
    values = np.unique(series)
    keys = _rank(values, series)[order] * 2**31 + gpus[order]
    asked = _rank(values, place) * 2**31 + wanted
    at = np.searchsorted(keys, asked)
    low, high = order[np.maximum(at - 1, 0)], order[np.minimum(at, len(order) - 1)]
    exact = (at < len(order)) & (gpus[high] == wanted)
    low = np.where(exact, high, low)
    both = ((at > 0) | exact) & (at < len(order)) & (series[low] == place) & (series[high] == place)
    return np.where(both, low, -1), np.where(both, high, -1)


def points_of(rows: Sequence[tuple[tuple[str, str], int, int, float, int, float]]) -> Points:
    """Points from rows (pair, k, n, m, passes, seconds)."""
    pairs = tuple(dict.fromkeys(pair for pair, *_ in rows))
    number = {pair: row for row, pair in enumerate(pairs)}
    columns = list(zip(*((number[pair], *rest) for pair, *rest in rows), strict=True))
    cell, gpus, nodes = (np.array(column, np.int64) for column in columns[:3])
    samples, passes, seconds = (
        np.array(columns[3], np.float64),
        np.array(columns[4], np.int64),
        np.array(columns[5]),
    )
    return Points(Cells(pairs), cell, gpus, nodes, samples, passes, seconds)
