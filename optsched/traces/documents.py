"""Traces as documents, ``optsched-trace/1``: an instance, and what happens to its jobs and nodes over time."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from pydantic import Field

from optsched.errors import InvalidInput
from optsched.instance import Instance
from optsched.instance.documents import (
    Document,
    Finite,
    Name,
    NonEmpty,
    PlainObject,
    Positive,
    Tuple,
)
from optsched.instance.reading import key, show, validate
from optsched.traces.trace import NodeEvents, Regimes, Trace

FORMAT = "optsched-trace/1"


class RegimeDocument(Document):
    """When ``after`` steps are done, a job goes on at the rates of another workload, in its own steps/s."""

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


def read_trace_document(document: Mapping[str, Any]) -> Trace:
    """Build a trace from a parsed document; one of an instance is a trace in which nothing happens besides.

    Raises
    ------
    InvalidInput
        With the path of the field.
    """
    if not (
        isinstance(document, Mapping)
        and str(document.get("format", "")).startswith("optsched-trace")
    ):
        return Trace(Instance.from_document(document))
    told = validate(TraceDocument, document)
    try:
        instance = Instance.from_document(told.instance)
    except InvalidInput as error:
        raise InvalidInput(
            f"instance.{error.path}" if error.path else "instance", error.found, error.expected
        ) from None
    return Trace(instance, _read_regimes(told, instance), _read_node_events(told, instance))


def _read_regimes(told: TraceDocument, instance: Instance) -> Regimes:
    jobs = instance.jobs_table.names
    workload = {
        item.name: number for number, item in enumerate(instance.workloads) if not item.label
    }
    found: list[tuple[int, float, int]] = []
    for name, items in told.regimes.items():
        path = f"regimes.{key(name)}"
        if name not in jobs:
            raise InvalidInput(path, show(name), "the id of a job")
        for place, item in enumerate(items):
            if item.workload not in workload:
                raise InvalidInput(
                    f"{path}[{place}].workload",
                    show(item.workload),
                    "one of the instance's workloads",
                )
        for place, (one, next_one) in enumerate(itertools.pairwise(items), start=1):
            if next_one.after <= one.after:
                raise InvalidInput(
                    f"{path}[{place}].after", show(next_one.after), f"more steps than {one.after:g}"
                )
        found += [(jobs.index(name), item.after, workload[item.workload]) for item in items]
    found.sort()
    return Regimes(
        np.array([job for job, _, _ in found], np.int64),
        np.array([after for _, after, _ in found], float),
        np.array([index for _, _, index in found], np.int64),
    )


def _read_node_events(told: TraceDocument, instance: Instance) -> NodeEvents:
    for place, event in enumerate(told.node_events):
        if instance.cluster.find_node(event.node)[0] < 0:
            raise InvalidInput(
                f"node_events[{place}].node", show(event.node), "the name of a node of the cluster"
            )
    events = sorted(told.node_events, key=lambda event: event.at)
    return NodeEvents(
        np.array([event.at for event in events], float),
        tuple(event.node for event in events),
        tuple(event.state for event in events),
    )


def trace_document(trace: Trace) -> dict[str, Any]:
    """The document of a trace."""
    instance, regimes, events = trace.instance, trace.regimes, trace.node_events
    if not len(regimes) and not len(events):
        return instance.to_document()
    names = instance.jobs_table.names
    told: dict[str, list[dict[str, Any]]] = {}
    for job, after, workload in zip(
        regimes.job.tolist(), regimes.after.tolist(), regimes.workload.tolist(), strict=True
    ):
        told.setdefault(names[job], []).append(
            {"after": after, "workload": instance.workloads[workload].name}
        )
    happened = [
        {"at": at, "node": node, "state": state}
        for at, node, state in zip(events.at.tolist(), events.node, events.state, strict=True)
    ]
    document: dict[str, Any] = {"format": FORMAT, "instance": instance.to_document()}
    return (
        document
        | ({"regimes": told} if told else {})
        | ({"node_events": happened} if happened else {})
    )


def trace_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of ``optsched-trace/1``."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema"
    } | TraceDocument.model_json_schema()
