"""The ``interpolation`` model: measured times, and interpolation between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Self

import numpy as np
from pydantic import BeforeValidator, model_validator

from optsched.arrays import (
    AnyArray,
    BoolArray,
    FloatArray,
    IntArray,
    find_sorted,
    gathered,
    group_rows,
    owners,
)
from optsched.arrays.columns import Columns
from optsched.arrays.values import cached_property
from optsched.instance.documents import Document, Name, NonEmpty, Positive, PositiveCount, refused
from optsched.instance.reading import join
from optsched.performance.parametric.fitting import (
    LEAST_LOG_SD,
    MOST_LOG_SD,
    KnownPairs,
    LogSd,
    by_names,
    fit_affine,
    flat,
)
from optsched.performance.profiles import Profiles, group_medians
from optsched.performance.protocol import Source
from optsched.performance.times import StoredModel, Times
from optsched.performance.ways import Ways

MEASURED_LOG_SD = LEAST_LOG_SD
"""Two measurements of one workload differ by 4 to 6 % in the median (Gavel's two tables)."""
BATCH_LOG_SD, COUNT_LOG_SD = 0.18, 0.12
"""Used if there are too few measurements to leave some out. They are mean errors of 14 % (a batch
size of Gavel's table) and 9.5 % (a count of ElasticFlow's curves), as standard deviations (1.25
times as much).
"""
LEAST_LEFT_OUT, MOST_LEFT_OUT = 10, 1000
"""Limits on the number of points that are left out in turn to estimate the uncertainty: fewer are
not enough, more take too long.
"""

PointRow = Annotated[
    tuple[PositiveCount, PositiveCount, Positive, PositiveCount, Positive],
    BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value),
]
"""[k, n, m, passes, seconds]."""


class InterpolationDocument(Document):
    """The model: measured points by workload, then GPU type,
    and how uncertain what lies between them is.
    """

    points: dict[Name, dict[Name, NonEmpty[PointRow]]]
    batch_log_sd: LogSd = BATCH_LOG_SD
    count_log_sd: LogSd = COUNT_LOG_SD

    @model_validator(mode="after")
    def _each_way_once(self) -> Self:
        by_pair = flat(self.points)
        if not by_pair:
            raise refused("no points", "at least one", ".points")
        for pair, points in by_pair.items():
            seen = set()
            for number, (*way, _) in enumerate(points):
                path = join(".points", [*pair, number])
                gpus, nodes, *_ = way
                if nodes > gpus:
                    found = f"{nodes} nodes for {gpus} GPUs"
                    raise refused(found, "at most one node for each GPU", path)
                if tuple(way) in seen:
                    raise refused("a point that is in the list already", "each point once", path)
                seen.add(tuple(way))
        return self


# --- lookups in measured points -------------------------------------------------------------------

MOST_GPUS = 2**31


def _rank(values: AnyArray, wanted: AnyArray) -> IntArray:
    """Position of each wanted value among sorted distinct values,
    ``len(values)`` where it is not one of them.
    """
    position = np.searchsorted(values, wanted)
    position[position == len(values)] = 0
    return np.where(values[position] == wanted, position, len(values))


class Lookup:
    """Lookup of rows by the values of some columns, the last of which is a number of GPUs.

    Each row has a key, (rank of its values) x 2^31 + GPUs, and keys are sorted. So a series, that
    is rows that agree in all columns but the last, is contiguous and in order of GPUs.
    """

    def __init__(self, *columns: AnyArray) -> None:
        self._values = [np.unique(column) for column in columns[:-1]]
        self._series = np.unique(self._number(columns))
        keys = self._key(columns)
        self._rows = np.argsort(keys, kind="stable")
        self._keys = keys[self._rows]

    def _number(self, columns: Sequence[AnyArray]) -> IntArray:
        """A number for the values of all columns but the last."""
        # Mixed radix; an unknown value gets the number after the last one.
        number = np.zeros(len(columns[-1]), np.int64)
        for values, column in zip(self._values, columns, strict=False):
            number = number * (len(values) + 1) + _rank(values, column)
        return number

    def _key(self, columns: Sequence[AnyArray]) -> IntArray:
        key = _rank(self._series, self._number(columns)) * MOST_GPUS + columns[-1]
        return key.astype(np.int64)

    def find(self, *columns: AnyArray) -> IntArray:
        """The row with these values, -1 where there is none."""
        if not len(self._rows):
            return np.full(len(columns[-1]), -1)
        return gathered(self._rows, find_sorted(self._keys, self._key(columns)), -1)

    def around(self, *columns: AnyArray) -> tuple[IntArray, IntArray]:
        """Rows of the series with the nearest GPU count at or below, and at or above; -1 if there
        is none.
        """
        if not len(self._rows):
            nothing = np.full(len(columns[-1]), -1)
            return nothing, nothing
        keys = self._keys
        wanted = self._key(columns)
        at = np.searchsorted(keys, wanted)
        high = np.minimum(at, len(keys) - 1)
        exact = keys[high] == wanted
        low = np.where(exact, high, np.maximum(at - 1, 0))
        series = wanted // MOST_GPUS
        inside = (keys[low] // MOST_GPUS == series) & (keys[high] // MOST_GPUS == series)
        both = inside & ((at > 0) | exact) & (at < len(keys))
        return np.where(both, self._rows[low], -1), np.where(both, self._rows[high], -1)


@dataclass(frozen=True, repr=False)
class MeasuredPoints(Columns):
    """P measured points, one per way to run.

    Attributes
    ----------
    pairs : KnownPairs
        Pairs (workload, GPU type).
    pair, gpus, nodes, passes : IntArray, shape (P,)
    samples, seconds : FloatArray, shape (P,)
    """

    pairs: KnownPairs
    pair: IntArray
    gpus: IntArray
    nodes: IntArray
    samples: FloatArray
    passes: IntArray
    seconds: FloatArray

    @classmethod
    def of(cls, stored: InterpolationDocument) -> Self:
        """The points of a document."""
        by_pair = flat(stored.points)
        count = [len(points) for points in by_pair.values()]
        rows = [row for points in by_pair.values() for row in points]
        gpus, nodes, samples, passes, seconds = np.array(rows, np.float64).T
        return cls(
            pairs=KnownPairs(tuple(by_pair)),
            pair=owners(count),
            gpus=gpus.astype(np.int64),
            nodes=nodes.astype(np.int64),
            samples=samples,
            passes=passes.astype(np.int64),
            seconds=seconds,
        )

    def outside(self, ways: Ways) -> BoolArray:
        """Whether the GPUs, nodes, samples or passes of a way are outside of the measured range of
        its pair.
        """
        least, most = (ends[self.pairs.find(ways)] for ends in self._ranges)
        asked = np.stack([ways.gpus, ways.nodes, ways.samples, ways.passes], axis=1)
        return np.asarray(((asked < least) | (asked > most)).any(axis=1))

    @cached_property
    def _ranges(self) -> tuple[FloatArray, FloatArray]:
        """Least and most k, n, m and passes of each pair,
        two arrays of shape (pairs + 1, 4); the last is for none.
        """
        rows = np.stack([self.gpus, self.nodes, self.samples, self.passes], axis=1)
        least, most = np.full((2, len(self.pairs) + 1, 4), np.inf)
        most *= -1
        np.minimum.at(least, self.pair, rows)
        np.maximum.at(most, self.pair, rows)
        return least, most

    # --- exactly what was measured ----------------------------------------------------------------

    def measured(self, ways: Ways) -> FloatArray:
        """Seconds that were measured in exactly this way, bit for bit; NaN if there are none."""
        return self._measured(
            self.pairs.find(ways),
            ways.nodes,
            ways.samples,
            ways.passes,
            ways.gpus,
        )

    def _measured(self, *columns: AnyArray) -> FloatArray:
        return gathered(self.seconds, self._by_way.find(*columns), np.nan)

    @cached_property
    def _by_way(self) -> Lookup:
        return Lookup(self.pair, self.nodes, self.samples, self.passes, self.gpus)

    # --- lines over samples -----------------------------------------------------------------------

    @cached_property
    def single(self) -> MeasuredPoints:
        """The points of one pass."""
        return self.take(np.flatnonzero(self.passes == 1))

    @cached_property
    def _shapes(self) -> MeasuredPoints:
        """One point of each shape (pair, GPUs, nodes), in this order."""
        order = np.lexsort((self.nodes, self.gpus, self.pair))
        columns = (self.pair[order], self.gpus[order], self.nodes[order])
        return self.take(order[group_rows(columns, len(order)).first])

    @cached_property
    def _by_shape(self) -> Lookup:
        return Lookup(self._shapes.pair, self._shapes.nodes, self._shapes.gpus)

    @cached_property
    def of_shapes(self) -> list[IntArray]:
        """Rows of `single` of each shape."""
        single = self.single
        shape = self._by_shape.find(single.pair, single.nodes, single.gpus)
        count = np.bincount(shape, minlength=len(self._shapes))
        return np.split(np.argsort(shape, kind="stable"), np.cumsum(count)[:-1])

    @cached_property
    def _lines(self) -> FloatArray:
        """a and b of t(m) = a + b m of each shape, shape (2, S + 1);
        NaN if fewer than two m were measured.
        """
        lines = np.full((2, len(self._shapes) + 1), np.nan)
        for shape, rows in enumerate(self.of_shapes):
            if len(rows) > 1:
                lines[:, shape] = fit_affine(self.single.samples[rows], self.single.seconds[rows])
        return lines

    def on_line(self, ways: Ways) -> FloatArray:
        """Seconds of a step of one pass by the line of the way's shape."""
        shape = self._by_shape.find(self.pairs.find(ways), ways.nodes, ways.gpus)
        return self._on_line(shape, ways.samples)

    def _on_line(self, shape: IntArray, samples: FloatArray) -> FloatArray:
        # Shape -1 (none) picks the last line, which is NaN.
        a, b = self._lines[:, shape]
        return np.asarray(a + b * samples, np.float64)

    def _seconds_at(self, shape: IntArray, samples: FloatArray) -> FloatArray:
        """Seconds of a step of one pass: measured, else from the line of the shape; NaN for shape
        -1.
        """
        at = self._shapes.take(shape)
        one_pass = np.ones(len(shape), np.int64)
        exact = self._measured(at.pair, at.nodes, samples, one_pass, at.gpus)
        exact[shape < 0] = np.nan
        return np.where(np.isnan(exact), self._on_line(shape, samples), exact)

    # --- series over GPUs -------------------------------------------------------------------------

    def between(self, ways: Ways, same_batch: bool, by_density: bool) -> FloatArray:
        """Seconds between the nearest two k of a way's series; NaN where one of them is missing.

        A series has the measurements of a pair on the same number of nodes or, ``by_density``, with
        the same number of GPUs on the fullest node. They have the same samples per step, or else
        the same samples per GPU.
        """
        ends = self.single if same_batch else self._shapes
        fullest = -(-ends.gpus // ends.nodes)
        columns = (ends.pair, fullest if by_density else ends.nodes)
        wanted = (self.pairs.find(ways), ways.max_per_node if by_density else ways.nodes)
        if same_batch:
            series = Lookup(*columns, ends.samples * ends.gpus, ends.gpus)
            low, high = series.around(*wanted, ways.samples_per_step, ways.gpus)
            below, above = (gathered(ends.seconds, row, np.nan) for row in (low, high))
        else:
            low, high = Lookup(*columns, ends.gpus).around(*wanted, ways.gpus)
            below, above = (self._seconds_at(shape, ways.samples) for shape in (low, high))
        fewer, more = (gathered(ends.gpus, row, 1) for row in (low, high))
        with np.errstate(divide="ignore", invalid="ignore"):
            place = np.where(more > fewer, np.log(ways.gpus / fewer) / np.log(more / fewer), 0.0)
            # If k m / t is a power of k, so is t, both at fixed m and at fixed k m.
            seconds: FloatArray = np.exp((1 - place) * np.log(below) + place * np.log(above))
        return seconds


# --- the model ------------------------------------------------------------------------------------


class Interpolation(StoredModel):
    """Measured seconds of a step, and interpolation between them.

    Of each pair (workload, GPU type), for k GPUs on n nodes with m samples each:

    1. a way that was measured has its measured time, bit for bit (source `MEASURED`; the median of
      repeated ones);
    2. if k and n were measured with at least two other m, t(m) = a + b m, a, b >= 0, least squares
      of
       relative errors. The line is also used outside of the measured m, with the source
       `EXTRAPOLATED` outside of all m of the pair;
    3. if k is between measured counts on the same number of nodes (or else with the same GPUs per
      node), log throughput k m / t is interpolated linearly in log k between the two nearest counts
      with the same samples per step, or else with m by rule 1 or 2. There is no extrapolation in k;
    4. else the time is unknown (NaN), and the next model of a ``chain`` is asked. Steps of several
      passes are known only if measured.

    Rules 2 and 3 have the source `INTERPOLATED`. Their log_sd is estimated by leaving each measured
    point, or each inner k, out of its line or series (root mean square of log errors; a constant if
    fewer than 10 can be left out), and at least that of a measurement.
    """

    name = "interpolation"
    Stored = InterpolationDocument

    def __init__(self, stored: InterpolationDocument) -> None:
        super().__init__(stored)
        self.points = MeasuredPoints.of(stored)

    @classmethod
    def fit_checked(cls, profiles: Profiles, options: Document) -> Self:
        """Store the measurements; estimate errors of interpolation by leaving points out."""
        groups = profiles.ways.groups
        ways = profiles.ways.take(groups.first)
        median = group_medians(profiles.seconds, groups)
        columns = (ways.gpus, ways.nodes, ways.samples, ways.passes, median)
        rows = list(zip(*(column.tolist() for column in columns), strict=True))
        stored = InterpolationDocument(points=by_names(ways, rows))
        measured = MeasuredPoints.of(stored)
        errors = {"batch_log_sd": _batch_log_sd(measured), "count_log_sd": _count_log_sd(measured)}
        return cls(stored.model_copy(update=errors))

    def times(self, ways: Ways) -> Times:
        """Measured, else from a line in m, else interpolated between two k."""
        points = self.points
        seconds = points.measured(ways)
        measured = ~np.isnan(seconds)
        single = ways.passes == 1
        line = np.where(single & ~measured, points.on_line(ways), np.nan)
        on_line = ~np.isnan(line)
        seconds = np.where(measured, seconds, line)
        # Strong scaling first, then weak; same number of nodes first, then same GPUs per node.
        for same_batch in (True, False):
            for by_density in (False, True):
                asked = np.flatnonzero(single & np.isnan(seconds))
                if len(asked):
                    asked_ways = ways.take(asked)
                    seconds[asked] = points.between(asked_ways, same_batch, by_density)
        # A line over samples is less certain than a curve over GPUs: see the constants.
        estimated = np.where(on_line, self.stored.batch_log_sd, self.stored.count_log_sd)
        between = np.where(points.outside(ways), Source.EXTRAPOLATED, Source.INTERPOLATED)
        return Times(
            seconds,
            np.where(measured, MEASURED_LOG_SD, estimated),
            np.where(measured, Source.MEASURED, between).astype(np.uint8),
        )


# --- how uncertain it is --------------------------------------------------------------------------


def _batch_log_sd(points: MeasuredPoints) -> float:
    """Error of each point relative to the line through the other points of its shape."""
    single = points.single
    errors = []
    shapes = [rows for rows in points.of_shapes if len(rows) > 2]
    # Sample evenly over all shapes.
    every = max(1, sum(map(len, shapes)) // MOST_LEFT_OUT)
    for rows, left in [(shape, left) for shape in shapes for left in range(len(shape))][::every]:
        others = np.delete(rows, left)
        row = rows[left]
        a, b = fit_affine(single.samples[others], single.seconds[others])
        errors.append(np.log((a + b * single.samples[row]) / single.seconds[row]))
    return _root(np.array(errors), BATCH_LOG_SD)


def _count_log_sd(points: MeasuredPoints) -> float:
    """Error of interpolating each k from its two neighbours on the same number of nodes."""
    single = points.single
    single = single.take(np.lexsort((single.gpus, single.samples, single.nodes, single.pair)))
    series = group_rows((single.pair, single.nodes, single.samples), len(single)).inverse
    inner = 1 + np.flatnonzero((series[:-2] == series[1:-1]) & (series[1:-1] == series[2:]))
    below = inner - 1
    above = inner + 1
    log_k = np.log(single.gpus)
    log_t = np.log(single.seconds)
    place = (log_k[inner] - log_k[below]) / (log_k[above] - log_k[below])
    return _root((1 - place) * log_t[below] + place * log_t[above] - log_t[inner], COUNT_LOG_SD)


def _root(errors: FloatArray, stated: float) -> float:
    """Root mean square of the errors, at least the uncertainty of a measurement; ``stated`` if
    there are too few errors.
    """
    if len(errors) < LEAST_LEFT_OUT:
        return stated
    return min(max(float(np.sqrt(np.mean(errors**2))), MEASURED_LOG_SD), MOST_LOG_SD)
