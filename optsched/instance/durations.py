"""Durations: seconds, or text such as ``90s``, ``5m``, ``2h`` and ``1d``."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from numbers import Real
from typing import Any, NamedTuple, Self, TypeVar

from pydantic import BeforeValidator

from optsched.errors import InvalidArgument, OptschedError

HOUR, DAY = 3600.0, 86_400.0
"""Seconds."""
UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": HOUR, "d": DAY}
PATTERN = re.compile(r"(\d+\.?\d*|\.\d+)\s*(s|min|m|h|d|)", re.ASCII)

Duration = float | str
"""Seconds, or text with a unit."""


def seconds_of(value: Duration, name: str) -> float:
    """Seconds of 90, ``90``, ``90s``, ``5m``, ``2h`` or ``1d``;
    raises `UsageError` naming the parameter.
    """
    seconds = _seconds(value)
    # A number is checked by the caller. Text such as 400 digits becomes infinity and is
    # refused here.
    sensible = isinstance(value, Real) if seconds is value else math.isfinite(seconds)
    if sensible and not isinstance(value, bool):
        with suppress(OverflowError):  # a whole number beyond the largest float
            return float(seconds)
    raise InvalidArgument(name, repr(value), "seconds or a duration such as 90s, 5m, 2h or 1d")


def seconds_or_none(value: Duration | None, name: str) -> float | None:
    """`seconds_of` the value, or None where there is no limit."""
    return None if value is None else seconds_of(value, name)


def _seconds(value: Any) -> Any:
    """Convert text such as ``5m`` to seconds; return any other value unchanged."""
    match = PATTERN.fullmatch(value.strip()) if isinstance(value, str) else None
    return float(match[1]) * UNITS[match[2]] if match else value


Spelled = BeforeValidator(_seconds)
"""Annotates a pydantic field in seconds:
the field then also accepts text with a unit, such as ``"5m"``.
"""


Part = TypeVar("Part")

LEAST = 1.0
"""No stage is cut off earlier than this many seconds after the instance was read (or as many
seconds as reading took, if that is more). Most problems need less than that for a feasible point,
and an answer is worth more than keeping the limit.
"""


KEPT = 0.25
"""Largest fraction of a time limit that is reserved for processing the answer."""


class OutOfTime(OptschedError):
    """The time limit was reached before a solver could begin; callers turn this into a solution."""

    exit_code = 5


class Timer(NamedTuple):
    """The time limit of a call.

    It is made when the call begins and passed on, so that all stages measure from the same start.
    Unpickled it has what was left when it was pickled, as clocks of machines differ.

    Attributes
    ----------
    seconds : float or None
        The time limit; None: no limit.
    began : float
        Time of the clock when the call began.
    clock : callable
        Seconds, as of `time.monotonic`.
    kept_per_job : float
        Seconds that the caller needs per job of the answer, for example to write a file.
    kept : float
        Seconds that are reserved for that; see `keeping`.
    read : float or None
        Time of the clock when the instance had been read; see `after_reading`.
    least : float
        Seconds before which nothing is cut off, as `LEAST` says.
    """

    seconds: float | None
    began: float
    clock: Callable[[], float] = time.monotonic
    kept_per_job: float = 0.0
    kept: float = 0.0
    read: float | None = None
    least: float = LEAST

    @classmethod
    def after(cls, seconds: float | None, clock: Callable[[], float] = time.monotonic) -> Self:
        """The timer of a call that begins now."""
        return cls(seconds, clock(), clock)

    def __reduce__(self) -> tuple[Any, ...]:
        return Timer.after, (None if self.seconds is None else max(self.left, 0.0),)

    @property
    def spent(self) -> float:
        """Seconds since the call began."""
        return self.clock() - self.began

    @property
    def left(self) -> float:
        """Remaining seconds; negative after the limit."""
        return math.inf if self.seconds is None else self.seconds - self.kept - self.spent

    def keeping(self, jobs: int) -> Self:
        """The timer for an answer with this number of jobs; the time that the caller needs for them
        is subtracted.
        """
        if self.seconds is None:
            return self
        return self._replace(kept=min(self.kept_per_job * jobs, KEPT * self.seconds))

    def after_reading(self) -> Self:
        """The same timer, after the instance has been read.

        Reading is not interrupted, and takes longer than computing a cheap feasible point. So even
        if the limit was reached while reading, that point gets as much time as reading took, and at
        least `LEAST` seconds. (A fixed number of seconds would be too little on a slow or busy
        machine.)
        """
        return self if self.seconds is None else self._replace(read=self.clock())

    def part(self, share: float) -> Self:
        """A timer for the first stages, which may take this share of the time of the call."""
        return self if self.seconds is None else self._replace(seconds=share * self.seconds)

    def strict(self) -> Self:
        """The same for stages without which there is an answer: they end with the limit, however
        short it is.
        """
        return self._replace(read=None, least=0.0)

    @property
    def is_over(self) -> bool:
        """Whether the time is over even for cheap stages that are always needed; see
        `after_reading`.
        """
        if self.seconds is None or self.left > 0:
            return False
        since = self.began if self.read is None else self.read
        return self.clock() - since > max(self.least, since - self.began)

    def check(self) -> None:
        """Raise `OutOfTime` if the time is over. Long stages call it between their passes."""
        if self.is_over:
            raise OutOfTime(f"the time limit of {self.seconds:g} s is over")

    def watching(self, parts: Iterable[Part]) -> Iterator[Part]:
        """Iterate over the parts of a long stage; raises `OutOfTime` between two parts when the
        time is over.
        """
        for part in parts:
            self.check()
            yield part


UNLIMITED = Timer(None, 0.0)
"""The timer of a call without a limit."""
