"""`Trace`: jobs over time, and what happens to them that a scheduler is not told beforehand."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from optsched.arrays import FloatArray, IntArray
from optsched.instance import Instance
from optsched.instance.tables import JobTable


def _no_numbers() -> FloatArray:
    return np.zeros(0)


def _no_indices() -> IntArray:
    return np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class Regimes:
    """Changes of the rates of jobs as they progress, such as a batch size that grows; by job, then by ``after``.

    Attributes
    ----------
    job : IntArray, shape (G,)
        Row of the job.
    after : FloatArray, shape (G,)
        Steps of the job that are done when the change comes.
    workload : IntArray, shape (G,)
        Index into ``instance.workloads``: from then on the job runs at the rates of this one, in its own steps/s.
    """

    job: IntArray = field(default_factory=_no_indices)
    after: FloatArray = field(default_factory=_no_numbers)
    workload: IntArray = field(default_factory=_no_indices)

    def __len__(self) -> int:
        return len(self.job)

    def in_stage(self, table: JobTable, rows: IntArray, stage: IntArray) -> JobTable:
        """Jobs with the rates of the stage that each is in.

        Parameters
        ----------
        table : JobTable
            Of k jobs.
        rows : IntArray, shape (k,)
            Their rows in the trace.
        stage : IntArray, shape (k,)
            0 for a job before its first regime, then one more with each.
        """
        later = np.flatnonzero(stage > 0)
        if not len(later):
            return table
        first = np.searchsorted(self.job, rows[later])
        workload, rates, options = table.workload.copy(), table.rates.copy(), table.options.copy()
        workload[later] = self.workload[first + stage[later] - 1]
        rates[later] = options[later] = -1
        return replace(table, workload=workload, rates=rates, options=options)


@dataclass(frozen=True, slots=True)
class NodeEvents:
    """Changes of the states of nodes, by time.

    Attributes
    ----------
    at : FloatArray, shape (E,)
        Seconds on the clock of the instance.
    node : tuple of str, length E
    state : tuple of str, length E
        ``up``, ``drain`` or ``down``.
    """

    at: FloatArray = field(default_factory=_no_numbers)
    node: tuple[str, ...] = ()
    state: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.node)


@dataclass(frozen=True)
class Trace:
    """An instance whose jobs arrive over time, and what will happen.

    Make one with `load_trace`, `Trace.from_document`, or of an instance alone.

    Attributes
    ----------
    instance : Instance
        What a scheduler is told: every job from its ``arrival`` on.
    regimes : Regimes
    node_events : NodeEvents
    """

    instance: Instance
    regimes: Regimes = field(default_factory=Regimes)
    node_events: NodeEvents = field(default_factory=NodeEvents)

    @property
    def name(self) -> str:
        """The name of the instance."""
        return self.instance.name

    @cached_property
    def sha256(self) -> str:
        """Hash of the content; that of a trace in which nothing happens besides is its instance's."""
        regimes, events = self.regimes, self.node_events
        if not len(regimes) and not len(events):
            return self.instance.sha256
        found = hashlib.sha256(self.instance.sha256.encode())
        for column in (regimes.job, regimes.after, regimes.workload, events.at):
            found.update(column.tobytes() + b"|")
        found.update("|".join((*events.node, *events.state)).encode())
        return found.hexdigest()

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Trace:
        """Build from a parsed document of a trace or of an instance; raises `InvalidInput`."""
        from optsched.traces.documents import read_trace_document

        return read_trace_document(document)

    def to_document(self) -> dict[str, Any]:
        """As ``optsched-trace/1``; a trace in which nothing happens besides is the ``optsched-instance/1`` alone."""
        from optsched.traces.documents import trace_document

        return trace_document(self)
