"""Refused input, compared by its fields: where, what was found, what was expected.

Tests state a refusal as ``PATH: found FOUND, expected EXPECTED``, as the error says it today. The fields are compared,
and not the sentence, so that a new wording of the sentence breaks one test (`test_errors.py`) and not a thousand.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest

from optsched.errors import InvalidInput

STATED = re.compile(r"(?:(?P<path>.*?): )?found (?P<found>.*?)(?:, expected (?P<expected>.*))?", re.DOTALL)
CUT = "..."
FOLDERS = re.compile(r"(?<![\w.])/(?:[^/\s:]+/)+")  # those of an absolute path


class Refusal(NamedTuple):
    """The fields of an `InvalidInput`. A field that ends in ``...`` says how the field begins; None is any text.

    The folders of a file can be left out, and so can the file of an error that names the place in it as well.
    """

    path: str
    found: str | None
    expected: str | None

    def holds(self, error: InvalidInput) -> bool:
        """Whether an error has these fields."""
        pairs = ((self.path, error.path), (self.found, error.found), (self.expected, error.expected))
        in_file = error.file and agrees(self.path, ": ".join(part for part in (error.file, error.path) if part))
        return all(agrees(wanted, actual) for wanted, actual in pairs[1 if in_file else 0 :])


def agrees(wanted: str | None, actual: str) -> bool:
    """Whether a field is the one that a test states."""
    if wanted is None:
        return True
    if wanted.endswith(CUT):
        return any(text.startswith(wanted.removesuffix(CUT)) for text in (actual, FOLDERS.sub("", actual)))
    return wanted in (actual, FOLDERS.sub("", actual))


def stated(text: str) -> Refusal:
    """The fields of a refusal that a test states.

    ``jobs[3].steps: found 0, expected text`` states all fields, ``found 0, expected text`` one of the document as a
    whole, ``jobs[3].steps: found 0`` leaves open what was expected, and ``jobs[3].steps`` is a path alone.
    """
    match = STATED.fullmatch(text)
    if match is None:
        return Refusal(text, None, None)
    return Refusal(match["path"] or "", match["found"], match["expected"])


def refuses(text: str) -> pytest.RaisesExc[InvalidInput]:
    """A context whose block raises `InvalidInput` with the stated fields."""
    return pytest.raises(InvalidInput, check=stated(text).holds)
