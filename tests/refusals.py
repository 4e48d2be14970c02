"""Refused values, compared by their fields: where, what was found, what was expected.

Tests state a refusal as ``PATH: found FOUND, expected EXPECTED``, as the error says it today. The fields are compared,
and not the sentence, so that a new wording of the sentence breaks one test (`test_errors.py`) and not a thousand.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pytest

from optsched.cli.shell import Shell
from optsched.errors import InvalidInput, JournalDamaged, OptschedError, WrongValue

STATED = re.compile(
    r"(?:(?P<path>.*?): )?found (?P<found>.*?)(?:, expected (?P<expected>.*))?", re.DOTALL
)
CUT = "..."
FOLDERS = re.compile(r"(?<![\w.])/(?:[^/\s:]+/)+")  # those of an absolute path


class Refusal(NamedTuple):
    """The fields of a refusal. A field that ends in ``...`` says how the field begins; None is any text.

    The folders of a file can be left out, and so can the file of an error that names the place in it as well. An error
    without fields is told by its message, which the path is compared with.
    """

    path: str
    found: str | None
    expected: str | None

    def holds(self, error: BaseException | None) -> bool:
        """Whether an error has these fields, or the error that it was raised from, as for wrong options."""
        if isinstance(error, WrongValue):
            file, path = error.file, error.path
        elif isinstance(error, JournalDamaged):
            file, path = (
                error.journal,
                error.file if error.line is None else f"{error.file}, line {error.line}",
            )
        elif isinstance(error, OptschedError) and agrees(self.path, str(error)):
            return self.found is None
        else:
            return error is not None and self.holds(error.__cause__)
        pairs = ((self.path, path), (self.found, error.found), (self.expected, error.expected))
        in_file = file and agrees(self.path, ": ".join(part for part in (file, path) if part))
        here = all(agrees(wanted, actual) for wanted, actual in pairs[1 if in_file else 0 :])
        return here or self.holds(error.__cause__)


def agrees(wanted: str | None, actual: str) -> bool:
    """Whether a field is the one that a test states."""
    if wanted is None:
        return True
    if wanted.endswith(CUT):
        return any(
            text.startswith(wanted.removesuffix(CUT)) for text in (actual, FOLDERS.sub("", actual))
        )
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


@contextmanager
def reported() -> Iterator[list[BaseException]]:
    """The errors that command lines report in the block: a test compares their fields, and not what is printed."""
    errors: list[BaseException] = []
    failed = Shell.failed

    def report(shell: Shell, error: BaseException) -> int:
        errors.append(error)
        return failed(shell, error)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Shell, "failed", report)
        yield errors


def refuses(text: str, kind: type[OptschedError] = InvalidInput) -> pytest.RaisesExc[OptschedError]:
    """A context whose block raises an error of a kind with the stated fields."""
    return pytest.raises(kind, check=stated(text).holds)
