"""What fits have in common: their errors, and how uncertain they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from optsched.errors import InvalidInput
from optsched.instance.documents import SMALLEST
from optsched.instance.reading import key
from optsched.performance.profiles import Profiles


def check_some(profiles: Profiles) -> None:
    """Refuse a fit to nothing."""
    if len(profiles) == 0:
        raise InvalidInput("profiles", "no measurements", "at least one to fit a model to")


def check_compute(path: str, seconds: Mapping[str, float]) -> None:
    """Refuse a document's law whose steps take no time: one of its coefficients, s or s per sample, must be above 0."""
    if sum(seconds.values()) < SMALLEST:
        found = ", ".join(f"{name} {value:g}" for name, value in seconds.items())
        raise InvalidInput(
            path, found, f"one of them at least {SMALLEST:g}, as every step takes some time"
        )


@contextmanager
def within(pair: tuple[str, str]) -> Iterator[None]:
    """Errors of a fit, told with the workload and the GPU type that it is of."""
    try:
        yield
    except InvalidInput as error:
        where = f"profiles of {key(pair[0])} on {key(pair[1])}"
        path = f"{where}: {error.path}" if error.path else where
        raise InvalidInput(path, error.found, error.expected, error.file) from None
