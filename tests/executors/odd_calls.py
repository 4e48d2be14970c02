"""Calls that other processes can import."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from optsched.candidates import Classes
from optsched.errors import InvalidInput
from optsched.formulation import SideConstraint
from optsched.instance.durations import Timer
from optsched.program import SideRows


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


def killed(shared: tuple[str, int], item: int) -> int:
    """Kills its process with a signal, as often as a file says; then the item."""
    path, number = shared
    left = int(Path(path).read_text())
    if left:
        Path(path).write_text(str(left - 1))
        os.kill(os.getpid(), number)
    return item


def sleeps(shared: tuple[Any, ...], item: float) -> int:
    """Takes some seconds; the process that it was in."""
    time.sleep(item)
    return os.getpid()


def left_after_a_kill(shared: tuple[str], timer: Timer) -> float:
    """Kills its first process after half a second; the time that is left at the second."""
    path = Path(shared[0])
    if not path.exists():
        path.touch()
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGKILL)
    return timer.left


class Deadly(SideConstraint):
    """Has no rows, and crashes the first process that asks for them."""

    kind = "deadly"

    def __init__(self, marker: str) -> None:
        super().__init__(self.Options())
        self.marker = marker

    def rows(self, C: Classes) -> SideRows | None:
        try:
            os.close(os.open(self.marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return None
        os.kill(os.getpid(), signal.SIGSEGV)
        return None


def worker(shared: tuple[Any, ...], item: int) -> tuple[int, Any]:
    """The process of the call, and what is shared."""
    return os.getpid(), shared[0]


def raised(shared: tuple[Any, ...], item: int) -> float:
    """An entry of a shared array, raised in place."""
    shared[0][item] += 1.0
    return float(shared[0][item])


class Unreadable:
    """Can be pickled, but not be read again."""

    def __reduce__(self) -> tuple[Any, ...]:
        return int, ("no number",)
