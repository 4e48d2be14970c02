"""Stop rules of searches: the clock, the work limit, the user."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from threading import Event
from typing import Protocol

from optsched.solution.values import Termination
from optsched.solvers.base import PROGRESS_EVERY, Limits, Progress


class StopRule(Protocol):
    """A rule that may end a search before its gap is closed."""

    @property
    def left(self) -> float | None: ...

    def __call__(self, value: float, bound: float) -> bool: ...


@dataclass(frozen=True)
class InnerWatch:
    """The stop rule of a search within another one: it reports value and bound of the outer
    search.
    """

    watch: StopRule
    value: float
    bound: float

    @property
    def left(self) -> float | None:
        return self.watch.left

    def __call__(self, value: float, bound: float) -> bool:
        return self.watch(self.value, self.bound)


@dataclass
class Watch:
    """A stop rule that is called between passes with value and bound, and reports progress.

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
        if self.limits.time is None:
            return None
        return max(self.limits.time - (time.perf_counter() - self._began), 1e-3)

    def __call__(self, value: float, bound: float) -> bool:
        """Whether the search is to end."""
        over = self.over()
        self.report(value, bound)
        return over

    def report(self, value: float, bound: float) -> None:
        """Write the log, and report progress from time to time."""
        limits, now = self.limits, time.perf_counter()
        elapsed = now - self._began
        value, bound = value * self.unit + self.shift, bound * self.unit + self.shift
        if limits.on_log is not None:
            numbers = f"value {value:.10g}, bound {bound:.10g}"
            limits.on_log(f"pass {self.asked}, {elapsed:.3f} s: {numbers}\n")
        if limits.on_progress is not None and now - self._last > PROGRESS_EVERY:
            self._last = now
            limits.on_progress(Progress(elapsed, value, bound, f"pass {self.asked}"))

    def over(self) -> bool:
        """Whether the search is to end, between passes that have no value and bound."""
        limits, now = self.limits, time.perf_counter()
        # Ctrl-C comes before the clock, and the clock before the work limit.
        self.asked += 1
        if self.interrupted.is_set():
            self.reason = Termination.INTERRUPTED
        elif limits.time is not None and now - self._began > limits.time:
            self.reason = Termination.TIME_LIMIT
        elif limits.work is not None and self.asked > limits.work:
            self.reason = Termination.WORK_LIMIT
        return self.reason is not None
