"""Coefficients of pairs (workload, GPU type): gathered for many ways at once, kept by names in documents."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from optsched.arrays import FloatArray, IntArray, group_rows
from optsched.performance.profiles import Profiles
from optsched.performance.ways import Ways

LEVELS = 3
"""One GPU, several GPUs of one node, several nodes."""


def level_of(gpus: IntArray, nodes: IntArray) -> IntArray:
    """0 on one GPU, 1 on several of a node, 2 on several nodes."""
    level: IntArray = np.add(gpus > 1, nodes > 1, dtype=np.int64)
    return level


@dataclass(frozen=True)
class Cells:
    """The pairs (workload, GPU type) that a model knows, numbered.

    Attributes
    ----------
    pairs : tuple of (str, str)
        Without repetition.
    """

    pairs: tuple[tuple[str, str], ...]
    _last: dict[int, tuple[Any, IntArray]] = field(default_factory=dict, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.pairs)

    @cached_property
    def workloads(self) -> dict[str, int]:
        """Row of each workload, in order of first appearance."""
        return _numbered(workload for workload, _ in self.pairs)

    @cached_property
    def gpu_types(self) -> dict[str, int]:
        """Row of each GPU type, in order of first appearance."""
        return _numbered(gpu for _, gpu in self.pairs)

    def finder(self, ways: Ways, each: int = 1) -> Callable[[slice], IntArray]:
        """A function of rows of the ways: ``each`` times the number of the pair of each, ``len(self)`` if not known.

        That is the first row of a pair in tables with ``each`` rows per pair, which end in rows of NaN. An index of -1
        (no workload) leads to the names' last, unknown row when it is wrapped around.
        """
        table = self._table(ways.workloads, ways.gpu_types, each)
        flat_table, width = table.ravel(), table.shape[1]
        return lambda rows: flat_table.take(
            ways.workload[rows] * width + ways.gpu[rows], mode="wrap"
        )

    def _table(self, workloads: tuple[str, ...], gpu_types: tuple[str, ...], each: int) -> IntArray:
        """First row of each pair of names, and of none; that of the names that were asked about last is kept."""
        names, table = self._last.get(each, ((None, None), np.zeros((0, 0), np.int64)))
        if names[0] is not workloads or names[1] is not gpu_types:
            shape = (len(self.workloads) + 1, len(self.gpu_types) + 1)
            small = np.full(shape, each * len(self), np.int64)
            for number, (workload, gpu) in enumerate(self.pairs):
                small[self.workloads[workload], self.gpu_types[gpu]] = each * number
            rows = _rows_among(self.workloads, workloads)
            columns = _rows_among(self.gpu_types, gpu_types)
            table = small[rows[:, np.newaxis], columns]
            self._last[each] = ((workloads, gpu_types), table)
        return table

    def find(self, ways: Ways) -> IntArray:
        """Number of the pair of each way, ``len(self)`` where it is not known."""
        return self.finder(ways)(slice(None))


def _numbered(names: Iterable[str]) -> dict[str, int]:
    return {name: row for row, name in enumerate(dict.fromkeys(names))}


def _rows_among(known: Mapping[str, int], names: Sequence[str]) -> IntArray:
    """Row of each name among those known, and one more for none; `len(known)` where it is not known."""
    return np.array([*(known.get(name, len(known)) for name in names), len(known)], np.int64)


def columns(rows: Sequence[Sequence[float]], width: int, each: int = 1) -> FloatArray:
    """Coefficients by column, shape (width, R + each); the last rows are NaN, for pairs that are not known."""
    return np.ascontiguousarray(
        np.array([*rows, *[[np.nan] * width] * each], np.float64).reshape(-1, width).T
    )


def rows_by_pair(ways: Ways) -> dict[tuple[str, str], IntArray]:
    """Rows of each pair (workload, GPU type) of names, in order of first appearance."""
    named = np.flatnonzero((ways.workload >= 0) & (ways.gpu >= 0))
    groups = group_rows([ways.workload[named], ways.gpu[named]], len(named))
    order = named[np.argsort(groups.inverse, kind="stable")]
    parts = np.split(order, np.cumsum(groups.count)[:-1]) if len(groups) else []
    return {
        (ways.workloads[ways.workload[rows[0]]], ways.gpu_types[ways.gpu[rows[0]]]): rows
        for rows in parts
    }


def split(profiles: Profiles) -> dict[tuple[str, str], Profiles]:
    """Measurements of each pair (workload, GPU type), in order of first appearance."""
    return {pair: profiles.take(rows) for pair, rows in rows_by_pair(profiles.ways).items()}


def by_names(pairs: Sequence[tuple[str, str]], values: Sequence[Any]) -> dict[str, dict[str, Any]]:
    """Values by workload, then GPU type, as documents have them."""
    nested: dict[str, dict[str, Any]] = {}
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
