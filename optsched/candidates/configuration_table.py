"""Configurations that are not columns yet: rates of kinds at every GPU count of every pool."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optsched.arrays import (
    BLOCK,
    EMPTY,
    AnyArray,
    BoolArray,
    FloatArray,
    IntArray,
    blocks,
    pointers,
    ranges,
)
from optsched.arrays.values import cached_property
from optsched.candidates.columns import KindColumns, WayColumns, gathered
from optsched.candidates.generate import Sifted, rated, rated_by_kind
from optsched.candidates.kinds import STRIDE
from optsched.candidates.task import CompileTask
from optsched.performance.composed import only_table


@dataclass(frozen=True)
class ConfigurationTable:
    """The columns of kinds alone that can be made: one cell per configuration, grouped into curves.

    A curve is one kind on one pool: its cells in order of GPUs and nodes. In a curve, the use of
    every resource is proportional to the number of GPUs.

    Attributes
    ----------
    kind, pool : IntArray, shape (S,)
        Of each curve, in order.
    start : IntArray, shape (S + 1,)
        First cell of each curve.
    ways : WayColumns
    way : integer array, shape (cells,)
        Row of ``ways`` of each cell, in as few bytes as it needs.
    rate : FloatArray, shape (cells,)
        steps/s.
    column : BoolArray, shape (cells,)
        Cells that are initial columns.
    rated : callable
        Function that adds rates to columns and splits them into kept and dropped ones.
    """

    kind: IntArray
    pool: IntArray
    start: IntArray
    ways: WayColumns
    way: NDArray[np.integer[Any]]
    rate: FloatArray
    column: BoolArray
    rated: Callable[[KindColumns], Sifted] = field(repr=False)

    def __len__(self) -> int:
        return len(self.rate)

    @cached_property
    def gpus(self) -> FloatArray:
        """GPUs of each of ``ways``."""
        return self.ways.gpus.astype(np.float64)

    @cached_property
    def curves_of(self) -> tuple[IntArray, IntArray]:
        """First curve of each kind, and its number of curves. Kinds after the last kind with a
        curve are left out.
        """
        kinds = int(self.kind.max(initial=-1)) + 1
        first = self.kind.searchsorted(np.arange(kinds + 1))
        return first[:-1].astype(np.int64), np.diff(first)

    @cached_property
    def left(self) -> IntArray:
        """Number of cells of each curve that are not columns yet, shape (S,)."""
        columns = pointers(self.column)
        return np.diff(self.start) - np.diff(columns[self.start])

    def curve_of(self, cell: IntArray) -> IntArray:
        """The curve of each cell."""
        return self.start.searchsorted(cell, "right") - 1

    def columns_of(self, cell: IntArray) -> KindColumns:
        """The columns of these cells."""
        return _columns_of(self.kind[self.curve_of(cell)], self.way[cell], self.ways, self.rated)


def configuration_table(
    task: CompileTask,
) -> tuple[ConfigurationTable, KindColumns, KindColumns]:
    """The table of all columns that `rated_columns` would make, the initial columns, and dropped
    columns.

    The initial columns of a kind on a pool are those with the fewest GPUs, with the highest rate
    per GPU, and with the highest rate. Normalisers and scales of formulations depend on these only,
    so the program has the same units as the program of all configurations. Dropped columns are kept
    only if the kind has no other column on the pool (to explain why).
    """
    limit = int(task.sizes.gpus.max())
    kind, gpus = task.kinds.counts(limit, task.table, complete=only_table(task.model))
    key = np.sort(kind * STRIDE + gpus)
    counts = key // STRIDE, key % STRIDE

    rates = partial(rated, task)
    found, dropped = _gathered(rated_by_kind(task, counts), len(task.sizes.gpus), rates)
    first = _start(found)
    found.column[first] = True
    kind = found.kind[found.curve_of(first)]
    return _without_whole(found), _columns_of(kind, found.way[first], found.ways, rates), dropped


def _columns_of(
    kind: IntArray, way: AnyArray, ways: WayColumns, rates: Callable[[KindColumns], Sifted]
) -> KindColumns:
    parts = (
        KindColumns.of(kind[part], way[part].astype(np.int64), ways) for part in blocks(len(kind))
    )
    return gathered(map(rates, parts), len(kind))[0]


def _gathered(
    parts: Iterable[Sifted], pools: int, rates: Callable[[KindColumns], Sifted]
) -> tuple[ConfigurationTable, KindColumns]:
    """All cells of the parts, and the dropped columns of kinds that have no cell on a pool."""
    number = _WayNumbers()
    kind, pool, length, way = ([EMPTY] for _ in range(4))
    rate = [np.zeros(0)]
    dropped = [KindColumns.none()]
    for stay, gone in parts:
        curve = stay.kind * pools + stay.pool
        # Kinds and pools are in order within a part, and each curve lies within one part.
        begin = np.flatnonzero(np.diff(curve, prepend=-1))
        kind.append(stay.kind[begin])
        pool.append(stay.pool[begin])
        length.append(np.diff(np.append(begin, len(curve))))
        way.append(number(stay.ways)[stay.way])
        rate.append(stay.rate)
        if len(gone):
            dropped.append(gone.take(~np.isin(gone.kind * pools + gone.pool, curve[begin])))
    ways = number.ways
    cells = sum(map(len, rate))
    found = ConfigurationTable(
        np.concatenate(kind),
        np.concatenate(pool),
        pointers(np.concatenate(length)),
        ways,
        np.concatenate(way, dtype=np.min_scalar_type(len(ways)), casting="unsafe"),
        np.concatenate(rate, dtype=np.float64),
        np.zeros(cells, bool),
        rates,
    )
    left_out = KindColumns.concatenate(dropped)
    return found, left_out.take(
        np.lexsort((left_out.nodes, left_out.pool, left_out.gpus, left_out.kind))
    )


class _WayNumbers:
    """Assigns numbers to ways: equal ways from different tables get the same number."""

    def __init__(self) -> None:
        self._number: dict[tuple[int, int, int, float, int], int] = {}
        self._last: tuple[WayColumns, AnyArray] | None = None

    def __call__(self, ways: WayColumns) -> AnyArray:
        """Number of each way of a table, in a small integer type."""
        if self._last is None or self._last[0] is not ways:
            rows = zip(*(column.tolist() for column in ways.arrays), strict=True)
            number = np.array(
                [self._number.setdefault(row, len(self._number)) for row in rows], np.int32
            )
            self._last = ways, number
        return self._last[1]

    @property
    def ways(self) -> WayColumns:
        """All ways, in order of their numbers."""
        rows = list(self._number)
        pool, gpus, nodes, level = (
            np.array([row[i] for row in rows], np.int64) for i in (0, 1, 2, 4)
        )
        share = np.array([row[3] for row in rows], np.float64)
        return WayColumns(pool, gpus, nodes, share, level)


def _start(table: ConfigurationTable) -> IntArray:
    """Initial cells, in order. Each curve has its cell with the fewest GPUs (of several the
    fastest), with the best rate per GPU, and with the best rate.
    """
    chosen = [EMPTY]
    for begin, end in curve_blocks(table.start):
        cells = slice(table.start[begin], table.start[end])
        start = table.start[begin : end + 1] - cells.start
        rate, gpus = table.rate[cells], table.gpus[table.way[cells]]
        # Cells are in order of GPUs, so the first cell of a curve has the fewest.
        fewest = np.where(gpus == gpus[start[:-1]].repeat(np.diff(start)), rate, -1.0)
        for value in (fewest, rate / gpus, rate):
            chosen.append(first_largest(value, start)[1] + cells.start)
    return np.unique(np.concatenate(chosen))


def curve_blocks(start: IntArray) -> Iterator[tuple[int, int]]:
    """Ranges of curves whose cells fit into a CPU cache; ``start`` as in the table."""
    begin = 0
    while begin + 1 < len(start):
        end = max(begin + 1, int(start.searchsorted(start[begin] + BLOCK, "right")) - 1)
        yield begin, end
        begin = end


def first_largest(value: FloatArray, start: IntArray) -> tuple[FloatArray, IntArray]:
    """The largest value in each segment from one start to the next, and the first position that has
    it. The starts are all different.
    """
    most = np.maximum.reduceat(value, start[:-1])
    places = np.flatnonzero(value == most.repeat(np.diff(start)))
    return most, places[places.searchsorted(start[:-1])]


def _without_whole(table: ConfigurationTable) -> ConfigurationTable:
    """The table without curves whose cells are all columns already."""
    keep = table.left > 0
    if keep.all():
        return table
    length = np.diff(table.start)[keep]
    cell = ranges(table.start[:-1][keep], length)
    return ConfigurationTable(
        table.kind[keep],
        table.pool[keep],
        pointers(length),
        table.ways,
        table.way[cell],
        table.rate[cell],
        table.column[cell],
        table.rated,
    )
