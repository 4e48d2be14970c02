"""Durations as people write them: seconds, or text such as ``90s``, ``5m``, ``2h`` and ``1d``."""

from __future__ import annotations

import math
import re
from numbers import Real
from typing import Any

from pydantic import BeforeValidator

from optsched.errors import InvalidArgument

UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
PATTERN = re.compile(r"(\d+\.?\d*|\.\d+)\s*(s|min|m|h|d|)", re.ASCII)

Duration = float | str
"""Seconds, or text with a unit."""


def seconds_of(value: Duration, name: str) -> float:
    """Seconds of 90, ``90``, ``90s``, ``5m``, ``2h`` or ``1d``; raises `UsageError` naming the parameter."""
    seconds = _seconds(value)
    # A number is checked by whoever takes it. Text such as 400 digits becomes infinity and is refused here.
    sensible = isinstance(value, Real) if seconds is value else math.isfinite(seconds)
    if sensible and not isinstance(value, bool):
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
"""Annotates a pydantic field in seconds: the field then also accepts text with a unit, such as ``"5m"``."""
