"""Instance files: which format a path holds, reading and writing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from optsched.errors import InvalidArgument, InvalidInput, wrong_ending
from optsched.instance.build import build_instance
from optsched.instance.documents import InstanceDocument
from optsched.instance.instance import Instance
from optsched.instance.reading import named, parse_json, read_bytes, read_stdin
from optsched.lazy import no_collection

SUFFIXES = {".json": "json", ".yaml": "yaml", ".yml": "yaml", ".npz": "npz"}
NPZ_MAGIC = b"PK\x03\x04"

Read = TypeVar("Read")


def read_instance(source: str | Path) -> Instance:
    """Read an instance file; ``-`` is standard input.

    The format is recognised by the suffix, npz also by its first bytes.
    """
    return read_file(source, "instance", build_instance)


def instance_of_bytes(data: bytes, source: str | Path) -> Instance:
    """The instance from bytes in JSON or npz that were read from ``source``."""
    return file_of_bytes(data, "json", source, "instance", build_instance)


def read_file(source: str | Path, what: str, build: Callable[[Any], Read]) -> Read | Instance:
    """Read a JSON or YAML file and build an object from its document; an npz file holds an
    instance.

    Parameters
    ----------
    source : str or path
        ``-`` is standard input. The format is recognised by the suffix, npz also by its first
        bytes.
    what : str
        What the file should be, for messages.
    build : callable
        Takes the parsed document.

    Raises
    ------
    InvalidInput
        With the name of the file.
    """
    return file_of_bytes(*contents(source), source, what, build)


def file_of_bytes(
    data: bytes, kind: str, source: str | Path, what: str, build: Callable[[Any], Read]
) -> Read | Instance:
    """As `read_file`, for bytes of a known format that were read from ``source``."""
    with named(source), no_collection():
        if Path(source).suffix.lower() == ".csv":
            expected = "JSON, YAML or npz; optsched import csv makes an instance of tables"
            raise InvalidInput("", "a table", expected)
        # Standard input has no suffix, so an npz file is also recognised by the first bytes of a
        # zip.
        if kind == "npz" or data[:4] == NPZ_MAGIC:
            from optsched.instance.archive import from_npz

            return from_npz(data)
        return build(parse(data, kind, what))


def read_document(source: str | Path, what: str, build: Callable[[Any], Read]) -> Read:
    """As `read_file`, but npz is not accepted."""
    data, kind = contents(source)
    with named(source), no_collection():
        return build(parse(data, kind, what))


def contents(source: str | Path) -> tuple[bytes, str]:
    """The bytes of a file, or of standard input for ``-``, and their format by its suffix."""
    if str(source) == "-":
        return read_stdin(), "json"
    path = Path(source)
    return read_bytes(path), SUFFIXES.get(path.suffix.lower(), "json")


def parse(data: bytes, kind: str, what: str) -> Any:
    """Parse YAML or JSON; ``what`` says what the document should be, for messages."""
    if kind == "yaml":
        from optsched.instance.yaml_text import parse_yaml

        return parse_yaml(data, what)
    return parse_json(data, what)


def instance_bytes(instance: Instance, kind: str) -> bytes:
    """The instance as file content: ``json``, ``yaml`` or ``npz``."""
    if kind == "npz":
        from optsched.instance.archive import to_npz

        return to_npz(instance)
    document = instance.to_document()
    if kind == "yaml":
        import yaml

        return yaml.safe_dump(document, sort_keys=False, width=120).encode()
    if kind != "json":
        raise InvalidArgument(
            "kind",
            repr(kind),
            "json, yaml or npz",
            sentence=f"unknown instance format {kind!r}, expected json, yaml or npz",
        )
    return pretty_json(document).encode()


def kind_of(path: Path) -> str:
    """Format by suffix; raises `UsageError`."""
    if path.suffix.lower() not in SUFFIXES:
        raise wrong_ending(path, ", ".join(SUFFIXES))
    return SUFFIXES[path.suffix.lower()]


def pretty_json(document: dict[str, object]) -> str:
    """JSON with one line per list entry (a job, a pool): readable and easy to compare."""
    parts = []
    encode = json.JSONEncoder(allow_nan=False).encode
    for key, value in document.items():
        if isinstance(value, list) and value:
            rows = ",\n".join("  " + encode(item) for item in value)
            parts.append(f" {encode(key)}: [\n{rows}\n ]")
        elif (
            isinstance(value, dict)
            and value
            and all(isinstance(item, dict | list) for item in value.values())
        ):
            rows = ",\n".join(f"  {encode(name)}: {encode(item)}" for name, item in value.items())
            parts.append(f" {encode(key)}: {{\n{rows}\n }}")
        else:
            parts.append(f" {encode(key)}: {encode(value)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def json_schema() -> dict[str, object]:
    """JSON Schema (draft 2020-12) of ``optsched-instance/1``."""
    schema = InstanceDocument.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | schema


__all__ = [
    "instance_bytes",
    "json_schema",
    "kind_of",
    "pretty_json",
    "read_file",
    "read_instance",
]
