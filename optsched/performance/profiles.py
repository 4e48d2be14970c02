"""Profiles: measured times of steps, to fit and to test models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from optsched.arrays import FloatArray, Groups, IntArray
from optsched.arrays.columns import Columns
from optsched.arrays.values import replace
from optsched.display import DisplayedTable, TableColumns, count
from optsched.errors import InvalidInput
from optsched.instance.reading import show
from optsched.performance.ways import Ways, numbered

SHORTEST, LONGEST = 1e-30, 1e30
"""Times and samples outside of these are taken for errors; within them, numbers in fits are finite.
"""


@dataclass(frozen=True, repr=False)
class Profiles(Columns, DisplayedTable):
    """Measured steps, structure of arrays of length E.

    Attributes
    ----------
    ways : Ways
    seconds : FloatArray
        Seconds of one step, above 0.
    sync : FloatArray
        Seconds of the step in which gradients were exchanged; NaN if not measured.
    whole_steps : tuple of str
        Workloads measured in steps without samples: a step counts as one sample.
    """

    ways: Ways
    seconds: FloatArray
    sync: FloatArray
    whole_steps: tuple[str, ...] = ()

    def _headline(self) -> str:
        return f"of {self.ways.names_in_words}: {count(len(self), 'measurement')}"

    def to_columns(self, first: int | None = None) -> TableColumns:
        """The measurements: the way to run, and the seconds of a step."""
        ways = self.ways.take(slice(first))
        names = {"workload": (ways.workloads, ways.workload), "gpu": (ways.gpu_types, ways.gpu)}
        columns = {
            name: [known[row] for row in rows.tolist()] for name, (known, rows) in names.items()
        }
        for name in ("gpus", "nodes", "samples", "passes"):
            columns[name] = getattr(ways, name).tolist()
        if self.whole_steps:
            without = [name in self.whole_steps for name in columns["workload"]]
            columns["samples"] = np.where(without, np.nan, ways.samples).tolist()
        columns["seconds"] = self.seconds[:first].tolist()
        if np.isfinite(self.sync).any():
            columns["sync"] = self.sync[:first].tolist()
        return columns

    def sorted(self) -> Profiles:
        """The same measurements in a canonical order, with sorted names, so that a fit does not
        depend on the order of a file.
        """
        ways = self.ways
        workloads = tuple(sorted(ways.workloads))
        gpu_types = tuple(sorted(ways.gpu_types))
        renamed = replace(
            ways,
            workload=ways.workload_among(numbered(workloads)),
            gpu=ways.gpu_among(numbered(gpu_types)),
            workloads=workloads,
            gpu_types=gpu_types,
        )
        way = (ways.passes, ways.samples, ways.nodes, ways.gpus, renamed.gpu, renamed.workload)
        # lexsort: the last key is the primary one.
        order = np.lexsort((self.sync, self.seconds, *way))
        same_names = (workloads, gpu_types) == (ways.workloads, ways.gpu_types)
        if same_names and (np.diff(order) == 1).all():
            return self
        return replace(self, ways=renamed).take(order)

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
        """Measurements from columns of equal length;
        ``nodes`` and ``passes`` are 1 and ``sync`` unknown by default.

        Raises
        ------
        InvalidInput
            With the column and the row, counted from 0.
        """
        count = len(seconds)
        given = {
            "workload": workload,
            "gpu": gpu,
            "gpus": gpus,
            "nodes": nodes,
            "samples": samples,
            "sync": sync,
            "passes": passes,
        }
        for name, column in given.items():
            if column is not None and len(column) != count:
                raise InvalidInput(name, f"{len(column)} values", f"{count}, as many as seconds")
        ways = Ways.named(
            workload=list(map(str, workload)),
            gpu=list(map(str, gpu)),
            gpus=_counts("gpus", gpus),
            nodes=np.ones(count, np.int64) if nodes is None else _counts("nodes", nodes),
            samples=_positive("samples", samples),
            passes=np.ones(count, np.int64) if passes is None else _counts("passes", passes),
        )
        # NaN, not 0: an exchange that was not measured may still take time.
        exchange = np.full(count, np.nan) if sync is None else np.asarray(sync, np.float64)
        profiles = cls(ways, _positive("seconds", seconds), exchange)
        profiles._check()
        return profiles

    def _check(self) -> None:
        """Refuse rows whose columns contradict each other."""
        gpus = self.ways.gpus
        nodes = self.ways.nodes
        seconds = self.seconds
        sync = self.sync
        for row in np.flatnonzero(nodes > gpus).tolist():
            found = f"{nodes[row]} nodes for {gpus[row]} GPUs"
            raise InvalidInput(f"nodes[{row}]", found, "at most one node for each GPU")
        for row in np.flatnonzero((sync < 0) | np.isinf(sync)).tolist():
            raise InvalidInput(f"sync[{row}]", show(float(sync[row])), "seconds, at least 0")
        # Tolerate rounding of decimals in a table, but not milliseconds instead of seconds.
        for row in np.flatnonzero(sync > seconds * (1 + 1e-9)).tolist():
            found = f"{sync[row]:g} s of a step of {seconds[row]:g} s"
            expected = "at most the step's own seconds, in the same unit"
            raise InvalidInput(f"sync[{row}]", found, expected)


def group_medians(values: FloatArray, groups: Groups) -> FloatArray:
    """Median of the values of each group, shape (groups,)."""
    ordered = values[np.lexsort((values, groups.inverse))]
    start = np.cumsum(groups.count) - groups.count
    low = start + (groups.count - 1) // 2
    high = start + groups.count // 2
    return np.asarray((ordered[low] + ordered[high]) / 2, np.float64)


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
    wrong = np.flatnonzero(~((column >= SHORTEST) & (column <= LONGEST)))
    if len(wrong):
        value = float(column[wrong[0]])
        expected = (
            f"a number from {SHORTEST:g} to {LONGEST:g}"
            if 0 < value < np.inf
            else "a finite number above 0"
        )
        raise InvalidInput(f"{name}[{wrong[0]}]", show(value), expected)
    return column
