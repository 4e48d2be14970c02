"""The solution file: read, and checked for shape."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from optsched.errors import InvalidInput
from optsched.instance.files import read_document
from optsched.instance.reading import show, validate
from optsched.solution import Solution
from optsched.solution.document import SolutionDocument
from optsched.solution.solution import FORMAT
from optsched.verify.findings import Findings

SolutionSource = Solution | Mapping[str, Any] | str | Path
"""A solution, its document, or the file that holds it; ``-`` is standard input."""


def read_solution(source: SolutionSource, findings: Findings) -> SolutionDocument | None:
    """The solution, or None with a finding if a field of it has not the shape of the format.

    Raises
    ------
    InvalidInput
        If the file cannot be read, is not JSON, or is no solution.
    """
    if isinstance(source, Solution):
        # A file leaves out duals of many rows; in memory all are there to be checked.
        source = source.to_document(all_duals=True)
    document = parse_solution(source, FORMAT)
    try:
        return validate(SolutionDocument, document)
    except InvalidInput as error:
        findings.add(error.path, f"found {error.found}, expected {error.expected}")
        return None


def parse_solution(source: Mapping[str, Any] | str | Path, form: str) -> dict[str, Any]:
    """A document of a format, from a mapping or a file; raises `InvalidInput` for anything else."""
    if isinstance(source, Mapping):
        return _of_format(_through_json(source), form)
    return read_document(source, "solution", lambda document: _of_format(document, form))


def _of_format(document: object, form: str) -> dict[str, Any]:
    if not isinstance(document, dict):
        raise InvalidInput("", show(document), "a solution: an object")
    if document.get("format") != form:
        found = show(document["format"]) if "format" in document else "nothing"
        raise InvalidInput("format", found, f'a solution of the format "{form}"')
    return document


def _through_json(document: Mapping[str, Any]) -> object:
    """The mapping as it would be read back from a file, so that both are checked alike."""
    try:
        return json.loads(json.dumps(dict(document)))
    except (TypeError, ValueError, RecursionError):
        raise InvalidInput("", "a mapping that JSON cannot hold", "a solution") from None
