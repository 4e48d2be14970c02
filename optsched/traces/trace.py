"""`Trace`: jobs that arrive over time, and events of jobs and nodes that a scheduler does not know
in advance.

Its document is ``optsched-trace/1``: an instance, the regimes of jobs, and the events of nodes.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from pydantic import Field

from optsched.arrays import EMPTY, FloatArray, IntArray
from optsched.display import Displayed, DisplayedTable, TableColumns, amount, count, number
from optsched.display.picture import Picture
from optsched.errors import InvalidInput
from optsched.instance import Instance, JobTable
from optsched.instance.documents import (
    Document,
    Finite,
    Name,
    NonEmpty,
    PlainObject,
    Positive,
    Tuple,
)
from optsched.instance.reading import inside, key, show, validate
from optsched.lazy import convenience

FORMAT = "optsched-trace/1"


def _no_numbers() -> FloatArray:
    return np.zeros(0)


def _no_indices() -> IntArray:
    return EMPTY


@dataclass(frozen=True, repr=False, slots=True)
class Regimes(Displayed):
    """Changes of the rates of jobs as they progress, such as a batch size that grows;
    by job, then by ``after``.

    Attributes
    ----------
    job : IntArray, shape (G,)
        Row of the job.
    after : FloatArray, shape (G,)
        Steps done by the job when the change takes place.
    workload : IntArray, shape (G,)
        Index into ``instance.workloads``: from then on the job runs at the rates of this one, in
        its own steps/s.
    """

    job: IntArray = field(default_factory=_no_indices)
    after: FloatArray = field(default_factory=_no_numbers)
    workload: IntArray = field(default_factory=_no_indices)

    def __len__(self) -> int:
        return len(self.job)

    def in_stage(self, table: JobTable, rows: IntArray, stage: IntArray) -> JobTable:
        """The job table with the rates of the stage of each job.

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
        workload = table.workload.copy()
        rates = table.rates.copy()
        options = table.options.copy()
        workload[later] = self.workload[first + stage[later] - 1]
        # Rates and options of the job itself apply only before its first regime
        rates[later] = options[later] = -1
        return replace(table, workload=workload, rates=rates, options=options)


@dataclass(frozen=True, repr=False, slots=True)
class NodeEvents(Displayed):
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


@dataclass(frozen=True, repr=False)
class Trace(DisplayedTable):
    """An instance whose jobs arrive over time, with future events.

    Make one with `load_trace`, with `Trace.from_document`, or from an instance alone.

    Attributes
    ----------
    instance : Instance
        The part that a scheduler knows: every job from its ``arrival`` on.
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
        """Hash of the content; for a trace without regimes and events it is the hash of the
        instance.
        """
        regimes = self.regimes
        events = self.node_events
        if not len(regimes) and not len(events):
            return self.instance.sha256
        found = hashlib.sha256(self.instance.sha256.encode())
        for column in (regimes.job, regimes.after, regimes.workload, events.at):
            found.update(column.tobytes() + b"|")
        found.update("|".join((*events.node, *events.state)).encode())
        return found.hexdigest()

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Trace:
        """Build a trace from a parsed document of a trace,
        or of an instance without regimes and node events.

        Parameters
        ----------
        document : mapping
            In the format ``optsched-trace/1`` or ``optsched-instance/1``.

        Returns
        -------
        Trace

        Raises
        ------
        InvalidInput
            With the path of the field.
        """
        is_trace = isinstance(document, Mapping) and str(document.get("format", "")).startswith(
            "optsched-trace"
        )
        if not is_trace:
            return cls(Instance.from_document(document))
        parsed = validate(TraceDocument, document)
        with inside("instance"):
            instance = Instance.from_document(parsed.instance)
        return cls(
            instance,
            _read_regimes(parsed.regimes, instance),
            _read_node_events(parsed.node_events, instance),
        )

    def to_document(self) -> dict[str, Any]:
        """As ``optsched-trace/1``;
        without regimes and node events the ``optsched-instance/1`` alone.
        """
        instance = self.instance
        regimes = self.regimes
        events = self.node_events
        if not len(regimes) and not len(events):
            return instance.to_document()
        document: dict[str, Any] = {"format": FORMAT, "instance": instance.to_document()}
        if len(regimes):
            names = instance.jobs_table.names
            changes = document["regimes"] = {}
            for job, after, workload in zip(
                regimes.job.tolist(),
                regimes.after.tolist(),
                regimes.workload.tolist(),
                strict=True,
            ):
                change = {"after": after, "workload": instance.workloads[workload].name}
                changes.setdefault(names[job], []).append(change)
        if len(events):
            document["node_events"] = [
                {"at": at, "node": node, "state": state}
                for at, node, state in zip(
                    events.at.tolist(),
                    events.node,
                    events.state,
                    strict=True,
                )
            ]
        return document

    def plot(self) -> Picture:
        """Arrivals, load, durations and gangs, in one picture."""
        return Picture(convenience("Trace.plot")(self))

    @property
    def events_in_words(self) -> list[str]:
        """Phrases with the numbers of regime changes and node events; none for a number of 0."""
        found = []
        if len(self.regimes):
            found.append(count(len(self.regimes), "change of a job", "changes of jobs"))
        if len(self.node_events):
            found.append(count(len(self.node_events), "event of a node", "events of nodes"))
        return found

    def _headline(self) -> str:
        jobs = count(len(self.instance.jobs_table), "job")
        return f"{self.name}: {', '.join([jobs, *self.events_in_words])}"

    def _facts(self) -> Mapping[str, str]:
        table = self.instance.jobs_table
        gpus = self.instance.cluster.size
        pools = count(len(self.instance.cluster.pools), "pool")
        facts = {"cluster": f"{count(gpus, 'GPU')} in {pools}"}
        if not len(table):
            return facts
        first, last = float(table.arrival.min()), float(table.arrival.max())
        per_hour = (
            f", {amount((len(table) - 1) * 3600 / (last - first))} per hour" if last > first else ""
        )
        least, most = int(table.gpus_min.min()), int(table.gpus_max.max())
        due = int(np.isfinite(table.deadline).sum())
        states = [
            f"{self.node_events.state.count(state)} {state}" for state in ("down", "drain", "up")
        ]
        return facts | {
            "arrivals": f"{number(first)} s to {number(last)} s{per_hour}",
            "GPUs of a job": str(least) if least == most else f"{least} to {most}",
            "deadlines": f"{due:,} of {count(len(table), 'job')}" if due else "",
            "node events": ", ".join(states) if len(self.node_events) else "",
        }

    def to_columns(self, first: int | None = None) -> TableColumns:
        """The jobs; the same table as `Instance.to_columns`."""
        return self.instance.to_columns(first)


# --- the document ---------------------------------------------------------------------------------


class RegimeDocument(Document):
    """When ``after`` steps are done,
    a job goes on at the rates of another workload, in its own steps/s.
    """

    after: Positive
    workload: Name


class NodeEventDocument(Document):
    """A node that fails, drains, or comes back, at a time on the clock of the instance."""

    at: Finite
    node: Name
    state: Literal["up", "drain", "down"]


class TraceDocument(Document):
    """A whole trace file."""

    format: Literal["optsched-trace/1"]
    instance: PlainObject
    regimes: dict[Name, NonEmpty[RegimeDocument]] = Field(default_factory=dict)
    node_events: Tuple[NodeEventDocument] = ()


def _read_regimes(
    documents: Mapping[str, tuple[RegimeDocument, ...]], instance: Instance
) -> Regimes:
    jobs = instance.jobs_table.names
    workload = {
        item.name: number for number, item in enumerate(instance.workloads) if not item.label
    }
    found = []
    for name, changes in documents.items():
        path = f"regimes.{key(name)}"
        if name not in jobs:
            raise InvalidInput(path, show(name), "the id of a job")
        for place, change in enumerate(changes):
            if change.workload not in workload:
                where = f"{path}[{place}].workload"
                raise InvalidInput(where, show(change.workload), "one of the instance's workloads")
        for place, (before, change) in enumerate(itertools.pairwise(changes), start=1):
            if change.after <= before.after:
                expected = f"more steps than {before.after:g}"
                raise InvalidInput(f"{path}[{place}].after", show(change.after), expected)
        row = jobs.index(name)
        found += [(row, change.after, workload[change.workload]) for change in changes]
    # `Regimes` are sorted by job, whatever the order of the file
    found.sort()
    return Regimes(
        np.array([job for job, _, _ in found], np.int64),
        np.array([after for _, after, _ in found], float),
        np.array([index for _, _, index in found], np.int64),
    )


def _read_node_events(documents: tuple[NodeEventDocument, ...], instance: Instance) -> NodeEvents:
    for place, event in enumerate(documents):
        if instance.cluster.find_node(event.node)[0] < 0:
            expected = "the name of a node of the cluster"
            raise InvalidInput(f"node_events[{place}].node", show(event.node), expected)
    # A stable sort: events of the same time stay in the order of the file
    events = sorted(documents, key=lambda event: event.at)
    return NodeEvents(
        np.array([event.at for event in events], float),
        tuple(event.node for event in events),
        tuple(event.state for event in events),
    )
