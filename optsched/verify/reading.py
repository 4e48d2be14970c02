"""The solution file: read, and checked for shape."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from optsched.errors import InvalidInput
from optsched.instance.reading import named, parse_json, read_bytes, read_stdin, show, validate
from optsched.solution import Solution
from optsched.solution.document import SolutionDocument
from optsched.verify.findings import Findings

SolutionSource = Solution | Mapping[str, Any] | str | Path
"""A solution, its document, or the file that holds it; ``-`` is standard input."""


def read_solution(source: SolutionSource, findings: Findings) -> SolutionDocument | None:
    """The solution, or None with a finding if it has not the shape of the format.

    Raises
    ------
    InvalidInput
        If the file cannot be read or is not JSON.
    """
    if isinstance(source, Solution):
        # A file leaves out duals of many rows; in memory all are there to be checked.
        source = source.to_document(all_duals=True)
    # A mapping goes through JSON as a file does, so that both are checked alike.
    document = _plain(source) if isinstance(source, Mapping) else _parsed(source)
    if not isinstance(document, dict):
        findings.add("", f"found {show(document)}, expected a solution: an object")
        return None
    try:
        return validate(SolutionDocument, document)
    except InvalidInput as error:
        findings.add(error.path, f"found {error.found}, expected {error.expected}")
        return None


def _parsed(source: str | Path) -> object:
    data = read_stdin() if str(source) == "-" else read_bytes(Path(source))
    with named(source):
        return parse_json(data, "solution")


def _plain(document: Mapping[str, Any]) -> object:
    """The mapping as it would be read back from a file."""
    try:
        return json.loads(json.dumps(dict(document)))
    except (TypeError, ValueError, RecursionError):
        return "a mapping that JSON cannot hold"
