"""What ends a search before its time: the clock, the work allowed, the user."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from threading import Event
from typing import Protocol

from optsched.solution.values import Termination
from optsched.solvers.base import PROGRESS_EVERY, Limits, Progress


class Ends(Protocol):
    """What may end a search."""

    @property
    def left(self) -> float | None:
        """Seconds that are left; None without a limit."""

    def __call__(self, value: float, bound: float) -> bool:
        """Whether the search is to end."""


@dataclass(frozen=True)
class Within:
    """The watch of a search for a part of the classes: what it has come to is nothing to tell."""

    watch: Ends
    value: float
    bound: float

    @property
    def left(self) -> float | None:
        """Seconds that are left; None without a limit."""
        return self.watch.left

    def __call__(self, value: float, bound: float) -> bool:
        """Whether the search is to end."""
        return self.watch(self.value, self.bound)


@dataclass
class Watch:
    """Called between passes with value and bound; says whether the search ends, and tells the progress.

    Parameters
    ----------
    limits : Limits
    interrupted : Event
    unit, shift : float
        A value v of the search is ``unit`` v + ``shift`` of the program.
    """

    limits: Limits
    interrupted: Event
    unit: float = 1.0
    shift: float = 0.0
    asked: int = 0
    reason: Termination | None = None
    _began: float = field(default_factory=time.perf_counter)
    _last: float = field(default_factory=time.perf_counter)

    @property
    def left(self) -> float | None:
        """Seconds that are left; None without a limit."""
        return (
            None
            if self.limits.time is None
            else max(self.limits.time - (time.perf_counter() - self._began), 1e-3)
        )

    def __call__(self, value: float, bound: float) -> bool:
        """Whether the search is to end."""
        over = self.over()
        self.tell(value, bound)
        return over

    def tell(self, value: float, bound: float) -> None:
        """Write the log, and tell the progress from time to time."""
        limits, now = self.limits, time.perf_counter()
        if limits.on_log is not None:
            told, most = value * self.unit + self.shift, bound * self.unit + self.shift
            limits.on_log(
                f"pass {self.asked}, {now - self._began:.3f} s: value {told:.10g}, bound {most:.10g}\n"
            )
        if limits.on_progress is not None and now - self._last > PROGRESS_EVERY:
            self._last = now
            value, bound = value * self.unit + self.shift, bound * self.unit + self.shift
            limits.on_progress(Progress(now - self._began, value, bound, f"pass {self.asked}"))

    def over(self) -> bool:
        """The same between passes that have no value and bound to tell."""
        limits, now = self.limits, time.perf_counter()
        self.asked += 1
        if self.interrupted.is_set():
            self.reason = Termination.INTERRUPTED
        elif limits.time is not None and now - self._began > limits.time:
            self.reason = Termination.TIME_LIMIT
        elif limits.work is not None and self.asked > limits.work:
            self.reason = Termination.WORK_LIMIT
        return self.reason is not None
