"""Coefficients of pairs (workload, GPU type): gathered for many ways at once, kept by names in documents."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from optsched.arrays import FloatArray, IntArray, group_rows
from optsched.performance.profiles import Profiles
from optsched.performance.ways import Ways, numbered, rows_among

LEVELS = 3
"""One GPU, several GPUs of one node, several nodes."""


def level_of(gpus: IntArray, nodes: IntArray) -> IntArray:
    """0 on one GPU, 1 on several of a node, 2 on several nodes."""
    level: IntArray = np.add(gpus > 1, nodes > 1, dtype=np.int64)
    return level


class Cells:
    """The pairs (workload, GPU type) that a model knows, numbered.

    Attributes
    ----------
    pairs : tuple of (str, str)
        Without repetition.
    workloads, gpu_types : dict of str to int
        Row of each name, in order of first appearance.
    """

    def __init__(self, pairs: Sequence[tuple[str, str]]) -> None:
        self.pairs = tuple(pairs)
        self.workloads = numbered(workload for workload, _ in self.pairs)
        self.gpu_types = numbered(gpu for _, gpu in self.pairs)
        # The names of the latest ways and their table: an instance asks many times with the same.
        self._names: tuple[Any, Any] = (None, None)
        self._table = np.zeros((0, 0), np.int64)

    def __len__(self) -> int:
        return len(self.pairs)

    def finder(self, ways: Ways) -> Callable[[slice], IntArray]:
        """A function of rows of the ways: the number of the pair of each, ``len(self)`` if not known."""
        table = self._table_of(ways.workloads, ways.gpu_types)
        values, width = table.ravel(), table.shape[1]

        def find(rows: slice) -> IntArray:
            # An index of -1 (no workload) wraps around to the last row, which is unknown.
            place = ways.workload[rows] * width + ways.gpu[rows]
            return np.asarray(values.take(place, mode="wrap"), np.int64)

        return find

    def find(self, ways: Ways) -> IntArray:
        """Number of the pair of each way, ``len(self)`` where it is not known."""
        return self.finder(ways)(slice(None))

    def _table_of(self, workloads: tuple[str, ...], gpu_types: tuple[str, ...]) -> IntArray:
        """Number of each pair of names, and of none."""
        known_workloads, known_types = self._names
        if known_workloads is workloads and known_types is gpu_types:
            return self._table
        shape = (len(self.workloads) + 1, len(self.gpu_types) + 1)
        number = np.full(shape, len(self), np.int64)
        for row, (workload, gpu) in enumerate(self.pairs):
            number[self.workloads[workload], self.gpu_types[gpu]] = row
        rows = rows_among(workloads, self.workloads, len(self.workloads))
        columns = rows_among(gpu_types, self.gpu_types, len(self.gpu_types))
        self._table = number[rows[:, np.newaxis], columns]
        self._names = (workloads, gpu_types)
        return self._table


def columns(rows: Sequence[Sequence[float]], width: int, each: int = 1) -> FloatArray:
    """Coefficients by column, shape (width, R + each); the last rows are NaN, for pairs that are not known."""
    unknown = [[np.nan] * width] * each
    table = np.array([*rows, *unknown], np.float64)
    return np.ascontiguousarray(table.T)


def rows_by_pair(ways: Ways) -> dict[tuple[str, str], IntArray]:
    """Rows of each pair (workload, GPU type) of names, in order of first appearance."""
    named = np.flatnonzero((ways.workload >= 0) & (ways.gpu >= 0))
    groups = group_rows([ways.workload[named], ways.gpu[named]], len(named))
    order = named[np.argsort(groups.inverse, kind="stable")]
    parts = np.split(order, np.cumsum(groups.count)[:-1]) if len(groups) else []
    pairs = {}
    for rows in parts:
        workload, gpu = ways.workload[rows[0]], ways.gpu[rows[0]]
        pairs[ways.workloads[workload], ways.gpu_types[gpu]] = rows
    return pairs


def split(profiles: Profiles) -> dict[tuple[str, str], Profiles]:
    """Measurements of each pair (workload, GPU type), in order of first appearance."""
    return {pair: profiles.take(rows) for pair, rows in rows_by_pair(profiles.ways).items()}


ByNames = dict[str, dict[str, Any]]
"""Values by workload, then GPU type, as documents have them."""


def by_names(pairs: Sequence[tuple[str, str]], values: Sequence[Any]) -> ByNames:
    """Values of pairs by workload, then GPU type."""
    nested: ByNames = {}
    for (workload, gpu), value in zip(pairs, values, strict=True):
        nested.setdefault(workload, {})[gpu] = value
    return nested


def flat(nested: Mapping[str, Mapping[str, Any]]) -> dict[tuple[str, str], Any]:
    """Values of a document by pair (workload, GPU type)."""
    return {
        (workload, gpu): value
        for workload, by_gpu in nested.items()
        for gpu, value in by_gpu.items()
    }
