"""Paths of errors in performance objects that stand inside others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from optsched.errors import InvalidInput

PERFORMANCE = "performance"
"""Where every model says that its own options stand."""


@contextmanager
def below(path: str) -> Iterator[None]:
    """Errors of a model, whose paths begin with ``performance``, told with the path of its performance object.

    That is empty if it is a document of its own.
    """
    try:
        yield
    except InvalidInput as error:
        if path == PERFORMANCE or not error.path.startswith(PERFORMANCE):
            raise
        where = (path + error.path[len(PERFORMANCE) :]).lstrip(".")
        raise InvalidInput(where, error.found, error.expected, error.file) from None
