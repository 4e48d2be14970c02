"""Columns of kinds: a kind, or a pair of kinds, in one configuration."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from enum import IntEnum
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

from optsched.arrays import (
    EMPTY,
    AnyArray,
    BoolArray,
    FloatArray,
    IntArray,
    constant,
    group_rows,
    is_constant,
    joined,
    looked_up,
    take_rows,
)
from optsched.arrays.columns import Columns
from optsched.arrays.values import cached_property, replace
from optsched.display import Displayed


class Drop(IntEnum):
    """Why a column was dropped."""

    KEPT = 0
    ZERO_RATE = 1
    NO_RATE = 2
    OUT_OF_MEMORY = 3
    TOO_MANY_GPUS = 4
    TOO_MANY_NODES = 5
    OVER_LIMIT = 6
    DOMINATED = 7
    NOT_CHOSEN = 8
    NO_ROOM = 9
    OVER_CAPACITY = 10


_KEPT = int(Drop.KEPT)  # comparing an array with an enum member is five times as slow


def is_kept(drop: NDArray[np.uint8]) -> BoolArray:
    """Whether each column is kept."""
    kept: BoolArray = drop == _KEPT
    return kept


@dataclass(frozen=True, eq=False)
class WayColumns(Columns):
    """Ways to run, each stored once for the many columns that use it; arrays of length W.

    Attributes
    ----------
    pool, gpus, nodes : IntArray
        Pool -1 for an option that uses none.
    share : FloatArray
        Share of each GPU.
    level : IntArray
        Level of the topology at which all GPUs are in one group (row of `Cluster.group_of_node`); 0
        for no such limit.
    """

    pool: IntArray
    gpus: IntArray
    nodes: IntArray
    share: FloatArray
    level: IntArray

    def __len__(self) -> int:
        return len(self.pool)

    @cached_property
    def rank(self) -> IntArray:
        """Rank of each way in the order of pool, GPUs, nodes and level, shape (W,); ways that are
        equal in these have the same rank.
        """
        order = np.lexsort((self.level, self.nodes, self.gpus, self.pool))
        new = np.zeros(len(order), bool)
        for column in (self.pool, self.gpus, self.nodes, self.level):
            new[1:] |= column[order[1:]] != column[order[:-1]]
        rank = np.empty(len(order), np.int64)
        rank[order] = new.cumsum()
        return rank


@dataclass(frozen=True, repr=False, eq=False)
class KindColumns(Displayed):
    """Columns before classes: kind (or pair of kinds) x configuration; arrays of length N.

    An array whose values are all equal is stored as one value (`optsched.arrays.constant`) and is
    read-only.

    Attributes
    ----------
    kind, partner : IntArray
        The kind, and the kind it shares its GPUs with (-1: alone).
    way : IntArray
        Row of ``ways`` of each column.
    ways : WayColumns
    option : IntArray
        Row of the instance's option table, -1 for generated columns.
    workers, servers : IntArray
        Numbers of workers and servers of a job with parameter servers, else 0.
    rate, partner_rate : FloatArray
        steps/s of the kind and of its partner (0 without one).
    log_sd : FloatArray
    source : NDArray[uint8]
        `optsched.performance.Source`.
    duration, value, cost : FloatArray
        Seconds for all steps (NaN if the instance states none), value and cost. They come from
        explicit options and from parameter servers; other columns have value and cost 0.
    drop : NDArray[uint8]
        `Drop`; 0 for columns that are kept.
    """

    kind: IntArray
    partner: IntArray
    way: IntArray
    ways: WayColumns
    option: IntArray
    workers: IntArray
    servers: IntArray
    rate: FloatArray
    partner_rate: FloatArray
    log_sd: FloatArray
    source: NDArray[np.uint8]
    duration: FloatArray
    value: FloatArray
    cost: FloatArray
    drop: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.kind)

    @cached_property
    def pool(self) -> IntArray:
        """Pool of each column; -1 for an option that uses none."""
        return looked_up(self.ways.pool, self.way)

    def pool_of(self, rows: IntArray) -> IntArray:
        """Pool of some columns, without making the array of all columns."""
        return self.ways.pool[self.way[rows]]

    @cached_property
    def gpus(self) -> IntArray:
        """GPUs of each column."""
        return looked_up(self.ways.gpus, self.way)

    @cached_property
    def nodes(self) -> IntArray:
        """Nodes that each column spans."""
        return looked_up(self.ways.nodes, self.way)

    @cached_property
    def share(self) -> FloatArray:
        """Share of each GPU."""
        return looked_up(self.ways.share, self.way)

    @cached_property
    def level(self) -> IntArray:
        """Level of the topology of each column, 0 for none."""
        return looked_up(self.ways.level, self.way)

    @cached_property
    def pairs(self) -> IntArray:
        """Rows of the columns with a partner."""
        alone = is_constant(self.partner) and (self.partner[:1] < 0).all()
        return EMPTY if alone else np.flatnonzero(self.partner >= 0)

    def take(self, rows: AnyArray) -> KindColumns:
        """The columns at these rows, given by numbers or a mask."""
        return KindColumns(
            ways=self.ways, **{name: take_rows(getattr(self, name), rows) for name in _COLUMNS}
        )

    def sifted(self, drop: NDArray[np.uint8]) -> tuple[KindColumns, KindColumns]:
        """The columns that are kept, and those that are dropped, each with its reason."""
        keep = is_kept(drop)
        if keep.all():
            return self, KindColumns.none()
        gone = np.flatnonzero(~keep)
        return self.take(np.flatnonzero(keep)), replace(self.take(gone), drop=drop[gone])

    @classmethod
    def make(
        cls,
        kind: IntArray,
        pool: IntArray,
        gpus: IntArray,
        nodes: IntArray,
        *,
        share: FloatArray | None = None,
        **given: AnyArray,
    ) -> KindColumns:
        """Columns of these kinds in these configurations, with defaults for what is not given."""
        if share is None:
            share = constant(1.0, len(kind), np.float64)
        alike = group_rows((pool, gpus, nodes, share), len(kind))
        first = alike.first
        return cls.of(
            kind,
            alike.inverse,
            WayColumns(
                pool[first],
                gpus[first],
                nodes[first],
                share[first],
                constant(0, len(first), np.int64),
            ),
            **given,
        )

    @classmethod
    def of(cls, kind: IntArray, way: IntArray, ways: WayColumns, **given: AnyArray) -> KindColumns:
        """Columns of these kinds in these ways, with defaults for what is not given."""
        return cls(kind=kind, way=way, ways=ways, **(_defaults(len(kind)) | given))

    @classmethod
    @cache
    def none(cls) -> KindColumns:
        """No columns; always the same."""
        return cls.make(EMPTY, EMPTY, EMPTY, EMPTY)

    @classmethod
    def concatenate(cls, parts: Sequence[KindColumns]) -> KindColumns:
        """All columns of the parts, in order."""
        parts = [part for part in parts if len(part)] or [parts[0]]
        if len(parts) == 1:
            return parts[0]
        parts = _with_ways_in_common(parts)
        together = {name: joined([getattr(part, name) for part in parts]) for name in _COLUMNS}
        return cls(ways=parts[0].ways, **together)


_COLUMNS = tuple(field.name for field in fields(KindColumns) if field.name != "ways")
_VALUES: dict[str, tuple[float, type[np.generic]]] = {
    "partner": (-1, np.int64),
    "option": (-1, np.int64),
    "workers": (0, np.int64),
    "servers": (0, np.int64),
    "rate": (0.0, np.float64),
    "partner_rate": (0.0, np.float64),
    "log_sd": (0.0, np.float64),
    "source": (0, np.uint8),
    "duration": (np.nan, np.float64),
    "value": (0.0, np.float64),
    "cost": (0.0, np.float64),
    "drop": (0, np.uint8),
}


@lru_cache
def _defaults(count: int) -> dict[str, AnyArray]:
    """Default values of ``count`` columns; they are constants and take no memory."""
    return {name: constant(value, count, dtype) for name, (value, dtype) in _VALUES.items()}


def _with_ways_in_common(parts: Sequence[KindColumns]) -> list[KindColumns]:
    """The parts with their ways in one table."""
    tables = list({id(part.ways): part.ways for part in parts}.values())
    if len(tables) == 1:
        return list(parts)
    start = dict(zip(map(id, tables), np.cumsum([0, *map(len, tables)]).tolist(), strict=False))
    every = WayColumns.join(tables)
    alike = group_rows(every.arrays, len(every))
    ways, number = every.take(alike.first), alike.inverse
    return [replace(part, way=number[part.way + start[id(part.ways)]], ways=ways) for part in parts]


def gathered(
    parts: Iterable[tuple[KindColumns, KindColumns]], most: int
) -> tuple[KindColumns, KindColumns]:
    """The columns of all parts that are kept, and those that are dropped, each in order.

    Parameters
    ----------
    parts : iterable of pairs of KindColumns
        Kept and dropped columns (`KindColumns.sifted`). Parts may have different tables of ways;
        the code is fastest if most parts use the first one.
    most : int
        Upper bound on the number of columns with the ways of the first part. Memory is allocated
        once for this number; the unused rest is never touched.
    """
    kept, others, dropped = Gathered(most), [], [KindColumns.none()]
    for stay, gone in parts:
        if kept.takes(stay):
            kept.add(stay)
        else:
            others.append(stay)
        dropped.append(gone)
    return KindColumns.concatenate([kept.columns(), *others]), KindColumns.concatenate(dropped)


class Gathered:
    """A buffer for at most ``most`` columns with the same ways. An array that is constant over all
    of them stays a constant.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._count = 0
        self._first: KindColumns | None = None
        self._constant: dict[str, AnyArray] = {}
        self._arrays: dict[str, AnyArray] = {}

    def takes(self, part: KindColumns) -> bool:
        """Whether there is room for a part, and it has the ways of the first one."""
        if self._count + len(part) > self._most:
            return False
        return self._first is None or part.ways is self._first.ways

    def add(self, part: KindColumns) -> None:
        """Put a part after the others."""
        if not len(part):
            return
        if self._first is None:
            self._first = part
        for name in _COLUMNS:
            self._add(name, getattr(part, name))
        self._count += len(part)

    def _add(self, name: str, column: AnyArray) -> None:
        if name not in self._arrays:
            # Keep a constant while every part has the same value; otherwise make an array, which
            # includes the earlier parts.
            value = self._constant.setdefault(name, column[:1])
            if is_constant(column) and column[:1].tobytes() == value.tobytes():
                return
            self._arrays[name] = np.empty(self._most, column.dtype)
            self._arrays[name][: self._count] = value
        self._arrays[name][self._count : self._count + len(column)] = column

    def columns(self) -> KindColumns:
        """All columns in one table."""
        if self._first is None:
            return KindColumns.none()
        together = {name: array[: self._count] for name, array in self._arrays.items()}
        alike = {
            name: constant(value[0], self._count, value.dtype.type)
            for name, value in self._constant.items()
        }
        return KindColumns(ways=self._first.ways, **(alike | together))
