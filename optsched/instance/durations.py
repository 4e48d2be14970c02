"""Durations as people write them: seconds, or text such as ``90s``, ``5m``, ``2h`` and ``1d``."""

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
"""Seconds from when the instance was read before which no stage is cut off, or as many as reading
took: what is left of most problems takes less than that, and its answer is worth more than the
limit."""


KEPT = 0.25
"""Part of a time limit that is kept back for what is done with the answer, at most."""


class OutOfTime(OptschedError):
    """A time limit was over before a solver could begin; callers make a solution of it."""

    exit_code = 5


class Timer(NamedTuple):
    """When the answer of a call is due.

    It is made where the call begins, and passed on as it is, so that every stage counts the same
    seconds.

    Attributes
    ----------
    seconds : float or None
        The time limit; None: there is none.
    began : float
        When the call began, by the clock.
    clock : callable
        Seconds, as of `time.monotonic`.
    kept_per_job : float
        Seconds that the caller needs for each job of the answer, such as to write a file.
    kept : float
        Seconds that are kept back for that; see `keeping`.
    read : float or None
        When the instance was there, by the clock; see `after_reading`.
    """

    seconds: float | None
    began: float
    clock: Callable[[], float] = time.monotonic
    kept_per_job: float = 0.0
    kept: float = 0.0
    read: float | None = None

    @classmethod
    def after(cls, seconds: float | None, clock: Callable[[], float] = time.monotonic) -> Self:
        """The timer of a call that begins now."""
        return cls(seconds, clock(), clock)

    @property
    def spent(self) -> float:
        """Seconds since the call began."""
        return self.clock() - self.began

    @property
    def left(self) -> float:
        """Seconds that are left; below 0 once the time is over."""
        return math.inf if self.seconds is None else self.seconds - self.kept - self.spent

    def keeping(self, jobs: int) -> Self:
        """The timer of an answer about so many jobs: less what the caller needs for them."""
        if self.seconds is None:
            return self
        return self._replace(kept=min(self.kept_per_job * jobs, KEPT * self.seconds))

    def after_reading(self) -> Self:
        """The same timer, once the instance is there.

        Reading is not interrupted, and takes longer than all that a cheap feasible point needs. So
        a limit that was over by then still leaves as long again for that point, `LEAST` seconds at
        least: seconds alone would be too few on a slow or busy machine.
        """
        return self if self.seconds is None else self._replace(read=self.clock())

    def part(self, share: float) -> Self:
        """The timer of the first stages, which may take so much of the time that the call has."""
        return self if self.seconds is None else self._replace(seconds=share * self.seconds)

    @property
    def is_over(self) -> bool:
        """Whether the time is over for what is cheap and has to be done; see `after_reading`."""
        if self.seconds is None or self.left > 0:
            return False
        since = self.began if self.read is None else self.read
        return self.clock() - since > max(LEAST, since - self.began)

    def check(self) -> None:
        """Raise `OutOfTime` if the time is over; called between the passes of long stages."""
        if self.is_over:
            raise OutOfTime(f"the time limit of {self.seconds:g} s is over")

    def watching(self, parts: Iterable[Part]) -> Iterator[Part]:
        """The parts of a long stage, one by one, as long as there is time; raises `OutOfTime`."""
        for part in parts:
            self.check()
            yield part


UNLIMITED = Timer(None, 0.0)
"""The timer of a call that may take as long as it likes."""
