"""Simulations as files: one npz with the trace and all results."""

from __future__ import annotations

import io
import json
from dataclasses import fields
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np

from optsched.arrays import AnyArray
from optsched.arrays.npz import text_array, text_in, unzip_arrays, zip_arrays
from optsched.errors import InvalidInput
from optsched.instance import instance_bytes
from optsched.instance.archive import from_npz
from optsched.instance.documents import Document, Name, PlainObject, Tuple
from optsched.instance.reading import named, parse_json, read_bytes, validate
from optsched.simulation.recording import JobLog, RoundLog, Segments
from optsched.simulation.result import Simulation
from optsched.traces import NodeEvents, Regimes, Trace

ARCHIVE = "optsched-simulation/1"
Part = TypeVar("Part", JobLog, RoundLog, Segments, Regimes)
PARTS: dict[str, type[JobLog | RoundLog | Segments | Regimes]] = {
    "regimes": Regimes,
    "jobs": JobLog,
    "rounds": RoundLog,
    "segments": Segments,
}
ENTRIES = frozenset(
    {"header", "instance", "node_events.at", "measured"}
    | {f"{name}.{field.name}" for name, part in PARTS.items() for field in fields(part)}
)


class SimulationHeader(Document):
    """The header of the file: all that is not an array."""

    archive: Literal["optsched-simulation/1"]
    policy: str
    options: PlainObject
    notices: Tuple[str]
    nodes: Tuple[Name]
    states: Tuple[Name]


def simulation_bytes(simulation: Simulation) -> bytes:
    """A simulation as the bytes of an npz file;
    equal simulations give equal bytes, except for wall times.
    """
    trace = simulation.trace
    header = {
        "archive": ARCHIVE,
        "policy": simulation.policy,
        "options": dict(simulation.options),
        "notices": list(simulation.notices),
        "nodes": list(trace.node_events.node),
        "states": list(trace.node_events.state),
    }
    arrays = {
        "header": text_array(json.dumps(header)),
        "instance": np.frombuffer(instance_bytes(trace.instance, "npz"), np.uint8),
        "node_events.at": trace.node_events.at,
        "measured": simulation.measured,
    }
    for name, part in PARTS.items():
        table = trace.regimes if part is Regimes else getattr(simulation, name)
        arrays |= {f"{name}.{field.name}": getattr(table, field.name) for field in fields(part)}
    return zip_arrays(arrays)


def read_simulation(path: str | Path) -> Simulation:
    """Read a simulation that ``optsched simulate --keep`` or `simulation_bytes` wrote.

    Parameters
    ----------
    path : str or Path

    Returns
    -------
    Simulation

    Raises
    ------
    InvalidInput
        If it is no such file, or damaged.
    """
    data = read_bytes(Path(path))
    with named(path):
        try:
            arrays = unzip_arrays(io.BytesIO(data), ENTRIES)
            header = validate(
                SimulationHeader, parse_json(text_in(arrays["header"]), "header"), "header"
            )
            instance = from_npz(arrays["instance"].tobytes())
            events = NodeEvents(arrays["node_events.at"], header.nodes, header.states)
            trace = Trace(instance, _part(Regimes, "regimes", arrays), events)
            jobs = _part(JobLog, "jobs", arrays)
            rounds = _part(RoundLog, "rounds", arrays)
            segments = _part(Segments, "segments", arrays)
            measured = arrays["measured"]
        except (ValueError, KeyError) as error:
            raise InvalidInput(
                "", f"no simulation ({error})", f"an npz file of {ARCHIVE}"
            ) from None
        count = len(instance.jobs_table)
        if len(measured) != count or len(jobs.finish) != count:
            raise InvalidInput("jobs", f"{len(jobs.finish)} jobs", f"the {count} of the instance")
        return Simulation(
            trace, header.policy, header.options, measured, jobs, rounds, segments, header.notices
        )


def _part(kind: type[Part], name: str, arrays: dict[str, AnyArray]) -> Part:
    columns = {field.name: arrays[f"{name}.{field.name}"] for field in fields(kind)}
    return kind(**columns)
