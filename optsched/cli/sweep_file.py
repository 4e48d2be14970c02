"""A sweep in a file (TOML, YAML or JSON): the options of ``optsched bench`` in a file."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from optsched.cli import values
from optsched.errors import InvalidInput
from optsched.instance.documents import Document
from optsched.instance.files import contents, parse
from optsched.instance.reading import named, validate

FORMAT = "optsched-sweep/1"


class GeneratedDocument(Document):
    """Instances of a generator."""

    generate: str
    options: dict[str, Any] = Field(default_factory=dict)
    seeds: int | str | list[int] | None = None


class FormulationDocument(Document):
    """A formulation with options."""

    name: str
    options: dict[str, Any] = Field(default_factory=dict)


class SweepDocument(Document):
    """A sweep; what is left out is as on the command line."""

    format: Literal["optsched-sweep/1"] = "optsched-sweep/1"
    instances: Annotated[list[str | GeneratedDocument], Field(min_length=1)]
    formulations: list[str | FormulationDocument] | None = None
    constraints: list[dict[str, Any]] | None = None
    solvers: list[str] | None = None
    seeds: int | str | list[int] | None = None
    repeat: int | None = None
    threads: int | None = None
    time_limit: float | int | str | None = None
    memory_limit: float | int | str | None = None
    work_limit: int | None = None
    gap: float | int | None = None
    solver_options: dict[str, Any] | None = None


def is_sweep_file(name: str) -> bool:
    """Whether a name is that of a sweep:
    a .toml file, or a YAML or JSON one that says so in its first lines.
    """
    path = Path(name)
    if path.suffix.lower() == ".toml":
        return True
    if path.suffix.lower() not in (".yaml", ".yml", ".json") or not path.is_file():
        return False
    # An instance may be huge, so look only at the first lines
    with path.open("rb") as file:
        return FORMAT.encode() in file.read(1000)


def read_sweep(name: str) -> SweepDocument:
    """A sweep from its file; raises `InvalidInput` with the path of the field."""
    data, kind = contents(name)
    with named(name):
        is_toml = Path(name).suffix.lower() == ".toml"
        document = _parse_toml(data) if is_toml else parse(data, kind, "sweep")
        return validate(SweepDocument, document)


def _parse_toml(data: bytes) -> Any:
    try:
        return tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput("", f"text that is not TOML ({error})", "a TOML document") from None


def options_of(document: SweepDocument) -> Mapping[str, Any]:
    """The content of the file as fields of `optsched.benchmarking.sweep.Benchmark`."""
    given = {
        key: value
        for key, value in document
        if value is not None and key not in ("format", "instances")
    }
    for name, read in (("time_limit", values.duration), ("memory_limit", values.size)):
        if isinstance(given.get(name), str):
            given[name] = read(given[name], name)
    if document.formulations is not None:
        given["formulations"] = [
            (item, {}) if isinstance(item, str) else (item.name, item.options)
            for item in document.formulations
        ]
    return given
