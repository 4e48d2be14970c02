"""Calls that other processes can import."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from optsched.errors import InvalidInput


def added(shared: tuple[Any, ...], item: int) -> int:
    """The sum of a list that is shared and a number."""
    return int(sum(shared[0])) + item


def with_shared(shared: tuple[Any, ...], item: int) -> tuple[Any, int]:
    """A result that has what is shared in it."""
    return shared[0], item


def odd_refused(shared: tuple[Any, ...], item: int) -> int:
    """Refuses odd numbers."""
    if item % 2:
        raise InvalidInput(f"items[{item}]", "an odd number", "an even one")
    return item


def dies(shared: tuple[Any, ...], item: int) -> int:
    """Kills its process."""
    os.kill(os.getpid(), signal.SIGKILL)
    return item


def sleeps(shared: tuple[Any, ...], item: float) -> int:
    """Takes some seconds; the process that it was in."""
    time.sleep(item)
    return os.getpid()
