"""The ``interpolation`` model: what was measured, and what lies between it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Self

import numpy as np
from pydantic import BeforeValidator

from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.errors import InvalidInput
from optsched.instance.documents import Document, Name, NonEmpty, Positive, PositiveCount
from optsched.instance.reading import join, validate
from optsched.performance.measured.points import Points, points_of
from optsched.performance.parametric.cells import by_names, flat
from optsched.performance.parametric.fitting import (
    LEAST_LOG_SD,
    MOST_LOG_SD,
    LogSd,
    NoOptions,
    check_some,
    fit_affine,
)
from optsched.performance.profiles import Profiles
from optsched.performance.protocol import Source
from optsched.performance.times import TimeModel, Times
from optsched.performance.ways import Ways

MEASURED_LOG_SD = LEAST_LOG_SD
"""Two measurements of one workload differ by 4 to 6 % in the median (Gavel's two tables)."""
BATCH_LOG_SD, COUNT_LOG_SD = 0.18, 0.12
"""Stated where too little was measured to leave some out: mean errors of 14 % (a batch size of Gavel's table) and 9.5 %
(a count of ElasticFlow's curves), as standard deviations (1.25 times as much)."""
LEAST_LEFT_OUT, MOST_LEFT_OUT = 10, 1000
"""Points that are left out in turn to see how uncertain the model is; fewer say too little, more take too long."""

PointRow = Annotated[
    tuple[PositiveCount, PositiveCount, Positive, PositiveCount, Positive],
    BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value),
]
"""[k, n, m, passes, seconds]."""


class InterpolationDocument(Document):
    """The model: measured points by workload, then GPU type, and how uncertain what lies between them is."""

    points: dict[Name, dict[Name, NonEmpty[PointRow]]]
    batch_log_sd: LogSd = BATCH_LOG_SD
    count_log_sd: LogSd = COUNT_LOG_SD


class Interpolation(TimeModel):
    """Seconds of a step that were measured, and of steps between measured ones.

    Of each pair (workload, GPU type), for k GPUs on n nodes with m samples each:

    1. measured exactly so: what was measured, bit for bit (source `MEASURED`; the median, if it was repeated);
    2. k and n measured with at least two other m: t(m) = a + b m, a, b >= 0, least squares of relative errors. The line
       goes on beyond the measured m, with the source `EXTRAPOLATED` beyond all m of the pair;
    3. k between measured ones on as many nodes, or else of as many GPUs per node: log throughput k m / t, piecewise
       linear in log k, between two ends with as many samples per step, or else with m by 1 or 2. Never beyond the
       measured k;
    4. else unknown (NaN): the next model of a ``chain`` is asked. So are steps of several passes that were not
       measured exactly so.

    2 and 3 have the source `INTERPOLATED` and a log_sd from leaving each measured point, or each inner k, out of its
    own line or series (root mean square of log errors; stated where fewer than 10 can be left out), never less than
    that of what was measured.
    """

    name = "interpolation"

    def __init__(
        self, points: Points, batch_log_sd: float = BATCH_LOG_SD, count_log_sd: float = COUNT_LOG_SD
    ) -> None:
        self.points = points
        self.batch_log_sd, self.count_log_sd = batch_log_sd, count_log_sd

    @classmethod
    def fit(cls, profiles: Profiles, options: Mapping[str, Any]) -> Self:
        """Keep what was measured, and see how well each part of it tells the rest."""
        validate(NoOptions, dict(options), "performance")
        check_some(profiles)
        profiles = profiles.sorted()
        ways = profiles.ways
        places: dict[tuple[tuple[str, str], int, int, float, int], list[float]] = {}
        rows = zip(
            ways.workload.tolist(), ways.gpu.tolist(), ways.gpus.tolist(), ways.nodes.tolist(), ways.samples.tolist(),
            ways.passes.tolist(), profiles.seconds.tolist(), strict=True,
        )  # fmt: skip
        for workload, gpu, gpus, nodes, samples, passes, seconds in rows:
            pair = (ways.workloads[workload], ways.gpu_types[gpu])
            places.setdefault((pair, gpus, nodes, samples, passes), []).append(seconds)
        points = points_of(
            [(*place, float(np.median(seconds))) for place, seconds in places.items()]
        )
        return cls(points, _batch_log_sd(points), _count_log_sd(points))

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """The model of a document."""
        given = validate(InterpolationDocument, dict(document), "performance")
        rows: list[tuple[tuple[str, str], int, int, float, int, float]] = []
        for pair, points in flat(given.points).items():
            seen = set()
            for number, (gpus, nodes, samples, passes, seconds) in enumerate(points):
                path = join("performance.points", [*pair, number])
                if nodes > gpus:
                    raise InvalidInput(
                        path, f"{nodes} nodes for {gpus} GPUs", "at most one node for each GPU"
                    )
                if (gpus, nodes, samples, passes) in seen:
                    raise InvalidInput(path, "a point that stands above it", "each point once")
                seen.add((gpus, nodes, samples, passes))
                rows.append((pair, gpus, nodes, float(samples), passes, float(seconds)))
        if not rows:
            raise InvalidInput("performance.points", "no points", "at least one")
        return cls(points_of(rows), given.batch_log_sd, given.count_log_sd)

    def document(self) -> dict[str, Any]:
        """Points by workload and GPU type, and the two log_sd."""
        points = self.points
        by_cell: list[list[list[float]]] = [[] for _ in range(len(points.cells))]
        rows = zip(
            points.cell.tolist(), points.gpus.tolist(), points.nodes.tolist(), points.samples.tolist(),
            points.passes.tolist(), points.seconds.tolist(), strict=True,
        )  # fmt: skip
        for cell, *point in rows:
            by_cell[cell].append(point)
        return {
            "model": self.name, "points": by_names(points.cells.pairs, by_cell),
            "batch_log_sd": self.batch_log_sd, "count_log_sd": self.count_log_sd,
        }  # fmt: skip

    def times(self, ways: Ways) -> Times:
        """Measured, else on a line in m, else between two k."""
        shape = self.points.shape_of(ways)
        seconds = self.points.measured(shape, ways.samples, ways.passes)
        measured = ~np.isnan(seconds)
        single = ways.passes == 1
        line = np.where(single & ~measured, self.points.seconds_at(shape, ways.samples), np.nan)
        on_line = ~np.isnan(line)
        seconds = np.where(measured, seconds, line)
        asked = np.flatnonzero(single & np.isnan(seconds))
        if len(asked):
            seconds[asked] = self._between(ways.take(asked))
        log_sd = np.where(
            measured, MEASURED_LOG_SD, np.where(on_line, self.batch_log_sd, self.count_log_sd)
        )
        between = np.where(self.points.outside(ways), Source.EXTRAPOLATED, Source.INTERPOLATED)
        source = np.where(measured, Source.MEASURED, between).astype(np.uint8)
        return Times(seconds, log_sd, source)

    def _between(self, ways: Ways) -> FloatArray:
        """Step 3: at as many samples per step, else at as many per GPU; on as many nodes, else of equal density."""
        points = self.points
        found = np.full(len(ways), np.nan)
        for fixed_batch in (True, False):
            for density in (False, True):
                rows = np.flatnonzero(np.isnan(found))
                some = ways.take(rows)
                if fixed_batch:
                    low, high = points.between_batches(some, density)
                    below, above = (
                        np.where(row >= 0, points.seconds[row], np.nan) for row in (low, high)
                    )
                    found[rows] = _power_law(
                        some, points.gpus[low], points.gpus[high], below, above
                    )
                else:
                    low, high, fewer, more = points.between(some, density)
                    below, above = (
                        points.seconds_at(low, some.samples),
                        points.seconds_at(high, some.samples),
                    )
                    found[rows] = _power_law(some, fewer, more, below, above)
        return found


def _power_law(
    ways: Ways, fewer: IntArray, more: IntArray, below: FloatArray, above: FloatArray
) -> FloatArray:
    """Throughput k m / t in proportion to a power of k between two k, so that t is too, at fixed m or fixed k m."""
    with np.errstate(divide="ignore", invalid="ignore"):
        place = np.where(more > fewer, np.log(ways.gpus / fewer) / np.log(more / fewer), 0.0)
        seconds: FloatArray = np.exp((1 - place) * np.log(below) + place * np.log(above))
    return seconds


# --- how uncertain it is ----------------------------------------------------------------------------------------------


def _batch_log_sd(points: Points) -> float:
    """Error of each point from the line of the others of its shape."""
    errors: list[float] = []
    shapes = [rows for rows in points.single_passes().values() if len(rows) > 2]
    every = max(1, sum(map(len, shapes)) // MOST_LEFT_OUT)
    for rows, left in [(shape, left) for shape in shapes for left in range(len(shape))][::every]:
        others = np.delete(rows, left)
        a, b = fit_affine(points.samples[others], points.seconds[others])
        errors.append(np.log((a + b * points.samples[rows[left]]) / points.seconds[rows[left]]))
    return _root(np.array(errors), BATCH_LOG_SD)


def _count_log_sd(points: Points) -> float:
    """Error of each k between its two neighbours on as many nodes."""
    single = np.flatnonzero(points.passes == 1)
    order = single[
        np.lexsort(
            (points.gpus[single], points.samples[single], points.nodes[single], points.cell[single])
        )
    ]
    below, here, above = order[:-2], order[1:-1], order[2:]

    def same(column: IntArray | FloatArray) -> BoolArray:
        return np.asarray((column[below] == column[here]) & (column[here] == column[above]))

    inner = same(points.cell) & same(points.nodes) & same(points.samples)
    below, here, above = below[inner], here[inner], above[inner]
    log_k, log_t = np.log(points.gpus), np.log(points.seconds)
    place = (log_k[here] - log_k[below]) / (log_k[above] - log_k[below])
    return _root((1 - place) * log_t[below] + place * log_t[above] - log_t[here], COUNT_LOG_SD)


def _root(errors: FloatArray, stated: float) -> float:
    """Nothing between measurements is known better than these are."""
    if len(errors) < LEAST_LEFT_OUT:
        return stated
    return min(max(float(np.sqrt(np.mean(errors**2))), MEASURED_LOG_SD), MOST_LOG_SD)
