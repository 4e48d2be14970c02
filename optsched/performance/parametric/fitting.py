"""What fits have in common: their errors, and how uncertain they are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from optsched.errors import InvalidInput
from optsched.instance.reading import key
from optsched.performance.profiles import Profiles


def check_some(profiles: Profiles) -> None:
    """Refuse a fit to nothing."""
    if len(profiles) == 0:
        raise InvalidInput("profiles", "no measurements", "at least one to fit a model to")


@contextmanager
def within(pair: tuple[str, str]) -> Iterator[None]:
    """Errors of a fit, told with the workload and the GPU type that it is of."""
    try:
        yield
    except InvalidInput as error:
        where = f"profiles of {key(pair[0])} on {key(pair[1])}"
        path = f"{where}: {error.path}" if error.path else where
        raise InvalidInput(path, error.found, error.expected, error.file) from None
