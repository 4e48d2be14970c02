"""The walk of the oracle, compiled where numba is installed (the extra ``fast``)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from optsched.solvers.prices.compiling import compiler


@cache
def compiled() -> Callable[..., tuple[float, float]] | None:
    """The compiled walk, or None without numba."""
    made = compiler()
    return None if made is None else made(_walk)


def _walk(
    a: Any, q: Any, weight: Any, level: float, lower: Any, upper: Any, share: Any, slope: Any, rent: Any, margin: Any,
    taken: Any, warm: bool, margins: bool,
) -> tuple[float, float]:  # fmt: skip
    """`Oracle._search` class by class; also sums up slopes, rents, and the time spent in each place."""
    classes, width = a.shape
    slopes = 0.0
    rents = 0.0
    for k in range(classes):
        up = -1
        down = -1
        if warm:
            up = upper[k]
            down = lower[k]
            if a[k, up] < level or (down >= 0 and a[k, down] >= level):
                up = -1
        if up < 0:
            down = -1
            paid = 0.0
            high = 0.0
            for j in range(width):
                if a[k, j] >= level and (up < 0 or q[k, j] < paid or (q[k, j] == paid and a[k, j] > high)):
                    up = j
                    paid = q[k, j]
                    high = a[k, j]
            if up < 0:
                for j in range(width):
                    if a[k, j] > high:
                        up = j
                        high = a[k, j]
        paid = q[k, up]
        high = a[k, up]
        low = 0.0
        saved = 0.0
        if down >= 0:
            if q[k, down] > paid:
                down = -1
            else:
                low = a[k, down]
                saved = q[k, down]
        y = (paid - saved) / (high - low)
        for _ in range(3 * width + 3):
            line = y * high - paid
            best = line + 1e-13 * (abs(line) + paid)
            found = -2
            if best < 0.0:
                best = 0.0
                found = -1
            for j in range(width):
                below = a[k, j] * y - q[k, j]
                if below > best:
                    best = below
                    found = j
            if found == -2:
                break
            if found == -1:
                reach = 0.0
                price = 0.0
            else:
                reach = a[k, found]
                price = q[k, found]
            if reach >= level:
                up = found
                high = reach
                paid = price
            else:
                down = found
                low = reach
                saved = price
            y = (paid - saved) / (high - low)
        y = max(y, 0.0)
        u = max(y * high - paid, 0.0)
        u += 1e-13 * (u + paid)
        if margins:
            nearest = u if down >= 0 else 1e300
            for j in range(width):
                if j != down and j != up:
                    apart = q[k, j] - y * a[k, j] + u
                    nearest = min(nearest, apart)
            margin[k] = nearest
        part = (level - low) / (high - low)
        lower[k] = down
        upper[k] = up
        share[k] = part
        slope[k] = y
        rent[k] = u
        slopes += weight[k] * y
        rents += weight[k] * u
        taken[up] += weight[k] * part
        if down >= 0:
            taken[down] += weight[k] * (1.0 - part)
    return slopes, rents
