"""Profiles: measured times of steps, which models are fitted to and judged by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from optsched.arrays import FloatArray, IntArray
from optsched.errors import InvalidInput
from optsched.instance.reading import show
from optsched.performance.ways import Ways

LEAST, MOST = 1e-30, 1e30
"""Times and samples beyond these are slips of the pen; what is made of them in fits is finite."""


@dataclass(frozen=True)
class Profiles:
    """Measured steps, structure of arrays of length E.

    Attributes
    ----------
    ways : Ways
    seconds : FloatArray
        Of one step, above 0.
    sync : FloatArray
        Seconds of it in which gradients were exchanged; NaN where not measured.
    """

    ways: Ways
    seconds: FloatArray
    sync: FloatArray

    def __len__(self) -> int:
        return len(self.seconds)

    def take(self, rows: IntArray) -> Profiles:
        """The measurements at these rows."""
        return Profiles(self.ways.take(rows), self.seconds[rows], self.sync[rows])

    def sorted(self) -> Profiles:
        """The same measurements in an order of their own, with the names in alphabetical order.

        It depends on nothing but what was measured, so that a fit to them does not depend on the order of a file.
        """
        ways = self.ways
        names = tuple(sorted(ways.workloads)), tuple(sorted(ways.gpu_types))
        workload = ways.workload_among({name: row for row, name in enumerate(names[0])})
        gpu = ways.gpu_among({name: row for row, name in enumerate(names[1])})
        order = np.lexsort(
            (
                self.sync,
                self.seconds,
                ways.passes,
                ways.samples,
                ways.nodes,
                ways.gpus,
                gpu,
                workload,
            )
        )
        if names == (ways.workloads, ways.gpu_types) and (np.diff(order) == 1).all():
            return self
        renamed = replace(ways, workload=workload, gpu=gpu, workloads=names[0], gpu_types=names[1])
        return Profiles(renamed, self.seconds, self.sync).take(order)

    @property
    def samples_per_second(self) -> FloatArray:
        """Of the whole job."""
        return self.ways.samples_per_step / self.seconds

    @classmethod
    def of(
        cls,
        *,
        workload: Sequence[str],
        gpu: Sequence[str],
        gpus: Sequence[int] | IntArray,
        nodes: Sequence[int] | IntArray | None = None,
        samples: Sequence[float] | FloatArray,
        seconds: Sequence[float] | FloatArray,
        sync: Sequence[float] | FloatArray | None = None,
        passes: Sequence[int] | IntArray | None = None,
    ) -> Profiles:
        """Measurements from columns of equal length; ``nodes`` and ``passes`` are 1 and ``sync`` unknown by default.

        Raises
        ------
        InvalidInput
            With the column and the row, counted from 0.
        """
        count = len(seconds)
        given = {"workload": workload, "gpu": gpu, "gpus": gpus, "nodes": nodes, "samples": samples, "sync": sync,
                 "passes": passes}  # fmt: skip
        for name, column in given.items():
            if column is not None and len(column) != count:
                raise InvalidInput(name, f"{len(column)} values", f"{count}, as many as seconds")
        workloads, workload_row = _intern(workload)
        gpu_types, gpu_row = _intern(gpu)
        ways = Ways(
            workload=workload_row,
            gpu=gpu_row,
            gpus=_counts("gpus", gpus),
            nodes=np.ones(count, np.int64) if nodes is None else _counts("nodes", nodes),
            samples=_positive("samples", samples),
            passes=np.ones(count, np.int64) if passes is None else _counts("passes", passes),
            workloads=workloads,
            gpu_types=gpu_types,
        )
        spread = np.flatnonzero(ways.nodes > ways.gpus)
        if len(spread):
            row = int(spread[0])
            raise InvalidInput(
                f"nodes[{row}]",
                f"{ways.nodes[row]} nodes for {ways.gpus[row]} GPUs",
                "at most one node for each GPU",
            )
        taken = np.full(count, np.nan) if sync is None else np.asarray(sync, np.float64)
        wrong = np.flatnonzero((taken < 0) | np.isinf(taken))
        if len(wrong):
            raise InvalidInput(
                f"sync[{wrong[0]}]", show(float(taken[wrong[0]])), "seconds, at least 0"
            )
        profiles = cls(ways, _positive("seconds", seconds), taken)
        longer = np.flatnonzero(profiles.sync > profiles.seconds * (1 + 1e-9))
        if len(longer):
            row = int(longer[0])
            raise InvalidInput(
                f"sync[{row}]",
                f"{profiles.sync[row]:g} s of a step of {profiles.seconds[row]:g} s",
                "at most the step's own seconds, in the same unit",
            )
        return profiles


def _intern(names: Sequence[str]) -> tuple[tuple[str, ...], IntArray]:
    """Names in order of first appearance, and the row of each."""
    rows: dict[str, int] = {}
    column = np.array([rows.setdefault(str(name), len(rows)) for name in names], np.int64)
    return tuple(rows), column


def _counts(name: str, given: Sequence[int] | IntArray) -> IntArray:
    column = np.asarray(given, np.float64)
    wrong = np.flatnonzero(~((column >= 1) & (column == np.floor(column)) & (column < 2**31)))
    if len(wrong):
        raise InvalidInput(
            f"{name}[{wrong[0]}]", show(float(column[wrong[0]])), "a whole number of at least 1"
        )
    return column.astype(np.int64)


def _positive(name: str, given: Sequence[float] | FloatArray) -> FloatArray:
    column = np.asarray(given, np.float64)
    wrong = np.flatnonzero(~((column >= LEAST) & (column <= MOST)))
    if len(wrong):
        value = float(column[wrong[0]])
        expected = (
            f"a number from {LEAST:g} to {MOST:g}"
            if 0 < value < np.inf
            else "a finite number above 0"
        )
        raise InvalidInput(f"{name}[{wrong[0]}]", show(value), expected)
    return column
