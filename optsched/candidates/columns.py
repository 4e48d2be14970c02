"""Columns of kinds: every way in which a kind, or a pair of kinds, can run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from optsched.arrays import FloatArray, IntArray


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


@dataclass(frozen=True)
class KindColumns:
    """Columns before classes: kind (or pair of kinds) x configuration; arrays of length N.

    Attributes
    ----------
    kind, partner : IntArray
        The kind, and the kind it shares its GPUs with (-1: alone).
    pool, gpus, nodes : IntArray
        The configuration; pool -1 for an option that uses none.
    share : FloatArray
        Share of each GPU.
    option : IntArray
        Row of the instance's option table, -1 for generated columns.
    workers, servers : IntArray
        Of a job with parameter servers, else 0.
    rate, partner_rate : FloatArray
        steps/s of the kind and of its partner (0 without one).
    log_sd : FloatArray
    source : NDArray[uint8]
        `optsched.performance.Source`.
    duration, value, cost : FloatArray
        Exact seconds for all steps (NaN where the instance gives none), value and cost, of explicit options and of
        parameter servers; 0 for others.
    drop : NDArray[uint8]
        `Drop`; 0 for columns that are kept.
    """

    kind: IntArray
    partner: IntArray
    pool: IntArray
    gpus: IntArray
    nodes: IntArray
    share: FloatArray
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

    def take(self, rows: IntArray) -> KindColumns:
        """The columns at these rows."""
        return KindColumns(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})

    @classmethod
    def make(
        cls, kind: IntArray, pool: IntArray, gpus: IntArray, nodes: IntArray, **given: FloatArray | IntArray
    ) -> KindColumns:
        """Columns of these kinds in these configurations, with defaults for what is not given."""
        count = len(kind)
        default = {
            "partner": np.full(count, -1, np.int64),
            "share": np.ones(count),
            "option": np.full(count, -1, np.int64),
            "workers": np.zeros(count, np.int64),
            "servers": np.zeros(count, np.int64),
            "rate": np.zeros(count),
            "partner_rate": np.zeros(count),
            "log_sd": np.zeros(count),
            "source": np.zeros(count, np.uint8),
            "duration": np.full(count, np.nan),
            "value": np.zeros(count),
            "cost": np.zeros(count),
            "drop": np.zeros(count, np.uint8),
        }
        return cls(kind=kind, pool=pool, gpus=gpus, nodes=nodes, **(default | given))  # type: ignore[arg-type]

    @classmethod
    def concatenate(cls, parts: Sequence[KindColumns]) -> KindColumns:
        """All columns of the parts, in order."""
        return cls(
            **{field.name: np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(cls)}
        )
