"""Trace files, reading and writing: JSON or YAML of a trace or an instance; npz of an instance."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from optsched.assembly import InstanceSource, load
from optsched.errors import InvalidArgument, UsageError
from optsched.instance import Instance
from optsched.instance.arguments import checks_arguments
from optsched.instance.files import instance_bytes, pretty_json, read_file
from optsched.traces.trace import Trace

# A trace, an instance (a trace without regimes and events), a document of either, or a path.
TraceSource = Trace | InstanceSource


@checks_arguments
def load_trace(source: TraceSource) -> Trace:
    """Read a trace.

    Parameters
    ----------
    source : str, path, mapping, Instance or Trace
        A JSON, YAML or npz file, ``-`` for standard input, ``@name`` for an instance that ships; a
        parsed document; or an instance.

    Returns
    -------
    Trace

    Raises
    ------
    InvalidInput
        With the path of the field, what was found and what was expected.
    """
    if isinstance(source, Trace):
        return source
    if isinstance(source, Instance):
        return Trace(source)
    if isinstance(source, Mapping):
        return Trace.from_document(source)
    if not isinstance(source, str | Path) or str(source).startswith("@"):
        return Trace(load(source))
    read = read_file(source, "trace", Trace.from_document)
    return Trace(read) if isinstance(read, Instance) else read


def trace_bytes(trace: Trace, kind: str) -> bytes:
    """The trace as file content: ``json`` or ``yaml``;
    ``npz`` too if the trace has no regimes and no node events.

    Raises
    ------
    UsageError
        For another kind, or for ``npz`` of a trace with regimes or node events.
    """
    if not len(trace.regimes) and not len(trace.node_events):
        return instance_bytes(trace.instance, kind)
    if kind == "npz":
        raise UsageError(
            "npz has no place for the regimes and node events of a trace: write .json or .yaml"
        )
    if kind == "yaml":
        import yaml

        return yaml.safe_dump(trace.to_document(), sort_keys=False, width=120).encode()
    if kind != "json":
        raise InvalidArgument(
            "kind",
            repr(kind),
            "json, yaml or npz",
            sentence=f"unknown trace format {kind!r}, expected json, yaml or npz",
        )
    return pretty_json(trace.to_document()).encode()
