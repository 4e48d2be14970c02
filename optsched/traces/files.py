"""Trace files: JSON or YAML of a trace or an instance; npz of an instance."""

from __future__ import annotations

from pathlib import Path

from optsched.assembly import load
from optsched.instance import Instance
from optsched.instance.files import read_file
from optsched.traces.documents import read_trace_document
from optsched.traces.trace import Trace


def load_trace(source: str | Path | Instance | Trace) -> Trace:
    """Read a trace: a JSON, YAML or npz file, ``-`` for standard input, ``@name`` for an instance that ships.

    Raises
    ------
    InvalidInput
        With the path of the field, what was found and what was expected.
    """
    if isinstance(source, Trace):
        return source
    if isinstance(source, Instance):
        return Trace(source)
    if isinstance(source, str) and source.startswith("@"):
        return Trace(load(source))
    read = read_file(source, "trace", read_trace_document)
    return Trace(read) if isinstance(read, Instance) else read
