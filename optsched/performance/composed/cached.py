"""The ``cached`` model: it asks another model only once for each workload and configuration."""

from __future__ import annotations

from typing import Any

import numpy as np

from optsched.arrays import IntArray, group_rows
from optsched.instance import Instance
from optsched.performance.composed.base import WrappedModel, corrects
from optsched.performance.configurations import Configurations
from optsched.performance.protocol import (
    Edges,
    JobBatch,
    Observations,
    PerformanceModel,
    Prediction,
)
from optsched.performance.records import Records

MOST_BLOCKS = 8
"""Most configurations tables in the cache; the least recently used one is dropped first."""


class CachedModel(WrappedModel):
    """Rates of another model, cached until it changes.

    For a scheduler that keeps one model from round to round. Equal rows of jobs (workload, own
    rates, gang) are predicted once for each configurations table (compared by content) and then
    looked up. When `observe` changes workloads, their entries are dropped; when the version of the
    other model changes in another way, all entries are.

    Options: ``of``, the performance object whose rates are cached.
    """

    name = "cached"

    def __init__(self, instance: Instance, of: PerformanceModel, options: Any = None) -> None:
        super().__init__(instance, of)
        self.corrects = corrects(of)
        self._version = of.version
        self._blocks: dict[tuple[bytes, ...], Records] = {}
        self._numbers: dict[tuple[int, int, bool, int], int] = {}
        self._workload_of: list[int] = []

    def predict(
        self,
        jobs: JobBatch,
        configurations: Configurations,
        *,
        edges: Edges | None = None,
    ) -> Prediction:
        # The other model changed, and not through `observe`: drop all entries.
        if self.of.version != self._version:
            self._blocks.clear()
            self._version = self.of.version
        block = self._block(configurations)
        row = self._rows(jobs)
        block.grow(int(row.max(initial=-1)) + 1)
        unknown = np.flatnonzero(~block.known[row])
        if len(unknown):
            self._ask(block, jobs, row, unknown, configurations)
        if edges is None:
            return block.take(row)
        return block.cells(row[edges[0]], edges[1])

    def observe(self, observations: Observations) -> set[int]:
        """Pass measurements on, and drop entries of workloads that changed."""
        changed = self.of.observe(observations)
        self._version = self.of.version
        # Drop only entries of changed workloads, in all tables.
        if changed:
            of_row = np.array(self._workload_of, np.int64)
            for block in self._blocks.values():
                block.known[: len(of_row)] &= ~np.isin(of_row, list(changed))[: len(block.known)]
        return changed

    def _block(self, configurations: Configurations) -> Records:
        c = configurations
        key = (
            *(column.tobytes() for column in (c.pool, c.gpus, c.nodes, c.share, c.attributes)),
            repr(c.attribute_sets).encode(),
        )
        block = self._blocks.pop(key, None)
        if block is None:
            block = Records(len(configurations))
            # Each use moves a table to the end of the dict, so the first one is the least recently
            # used.
            if len(self._blocks) >= MOST_BLOCKS:
                self._blocks.pop(next(iter(self._blocks)))
        self._blocks[key] = block
        return block

    def _rows(self, jobs: JobBatch) -> IntArray:
        """Row of each job in the cached blocks: its workload if the model reads nothing else, else
        the number of its group of equal jobs.
        """
        if self.per_workload:
            # Row 0 is for jobs without a workload.
            most = int(jobs.workload.max(initial=-1))
            self._workload_of.extend(range(len(self._workload_of) - 1, most + 1))
            return jobs.workload + 1
        alike = group_rows(jobs.arrays, len(jobs))
        columns = (column[alike.first].tolist() for column in jobs.arrays)
        rows = [
            self._numbers.setdefault(key, len(self._numbers)) for key in zip(*columns, strict=True)
        ]
        self._workload_of.extend(key[0] for key in list(self._numbers)[len(self._workload_of) :])
        return np.array(rows, np.int64)[alike.inverse]

    def _ask(
        self,
        block: Records,
        jobs: JobBatch,
        row: IntArray,
        unknown: IntArray,
        configurations: Configurations,
    ) -> None:
        """Ask the inner model for the unknown jobs, and keep its answers in the block."""
        # Once per row, whatever the number of equal jobs.
        number, first = np.unique(row[unknown], return_index=True)
        first = unknown[first]
        block.put(number, self.of.predict(jobs.take(first), configurations))
