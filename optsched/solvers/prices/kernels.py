"""Sweeps of the oracle and of the polish over all classes,
compiled where numba is installed (the extra ``fast``).
"""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np

from optsched.arrays import compiling
from optsched.arrays.compiling import compiled_by_name


def sweeps_for(entries: int) -> SimpleNamespace | None:
    """The compiled sweeps for a table of so many entries; None where numpy will do."""
    return compiled() if entries >= compiling.COMPILED else None


@cache
def compiled() -> SimpleNamespace | None:
    """The compiled sweeps by name, or None without numba."""
    sweeps = (_walk, _pin, _stand, _spread, _reach, _lay_out)
    return compiled_by_name(*sweeps, fastmath={"contract", "nsz"}, error_model="numpy")


def _walk(
    a: Any, q: Any, weight: Any, level: float, lower: Any, upper: Any, share: Any, slope: Any, rent: Any, margin: Any,
    edge: Any, time: Any, warm: bool, whole: bool,
) -> tuple[float, float]:  # fmt: skip
    """`Oracle._search` class by class;
    also sums up slopes, rents, and the time spent in each place.

    Only a ``whole`` response writes down what each class does.
    """
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
                if a[k, j] >= level and (
                    up < 0 or q[k, j] < paid or (q[k, j] == paid and a[k, j] > high)
                ):
                    up = j
                    paid = q[k, j]
                    high = a[k, j]
            if up < 0:
                # Rounding hides every place that reaches the level: the cheapest of the highest.
                for j in range(width):
                    if a[k, j] > high or (up >= 0 and a[k, j] == high and q[k, j] < paid):
                        up = j
                        high = a[k, j]
                        paid = q[k, j]
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
        part = (level - low) / (high - low)
        if whole:
            nearest = u if down >= 0 else 1e300
            for j in range(width):
                # Who gets nothing in a place may as well be idle.
                if j != down and j != up and a[k, j] > 0.0:
                    apart = q[k, j] - y * a[k, j] + u
                    nearest = min(nearest, apart)
            margin[k] = nearest
            edge[k] = min(part, 1.0 - part) * (high - low)
            share[k] = part
            slope[k] = y
            rent[k] = u
        lower[k] = down
        upper[k] = up
        slopes += weight[k] * y
        rents += weight[k] * u
        time[up] += weight[k] * part
        if down >= 0:
            time[down] += weight[k] * (1.0 - part)
    return slopes, rents


def _pin(a: Any, weight: Any, lower: Any, upper: Any, pinned: Any, alpha: Any, beta: Any) -> None:
    """`PinnedClasses.but` class by class:
    time that pinned classes spend in each place at the level t is alpha + beta t.
    """
    for k in range(len(weight)):
        if not pinned[k]:
            continue
        up, down = upper[k], lower[k]
        low = a[k, down] if down >= 0 else 0.0
        rise = weight[k] / (a[k, up] - low)
        alpha[up] -= low * rise
        beta[up] += rise
        if down >= 0:
            alpha[down] += weight[k] + low * rise
            beta[down] -= rise


def _stand(
    a: Any, weight: Any, lower: Any, upper: Any, pinned: Any, level: float, share: Any, time: Any
) -> float:
    """`PinnedClasses.beside` class by class:
    shares at a level, the time in each place, and the least level.
    """
    least = level
    for k in range(len(weight)):
        if not pinned[k]:
            continue
        up, down = upper[k], lower[k]
        low = a[k, down] if down >= 0 else 0.0
        part = (level - low) / (a[k, up] - low)
        if part > 1.0:
            part = 1.0
            least = min(least, a[k, up])
        part = max(part, 0.0)
        share[k] = part
        time[up] += weight[k] * part
        if down >= 0:
            time[down] += weight[k] * (1.0 - part)
    return least


def _spread(
    place: Any, lower: Any, upper: Any, share: Any, weight: Any, amount: Any, x: Any
) -> None:
    """`PinnedPoint.totals` of the pinned classes, class by class."""
    for k in range(len(amount)):
        members = weight[k] / amount[k]
        if upper[k] >= 0:
            x[place[k, upper[k]]] += members * share[k]
        if lower[k] >= 0:
            x[place[k, lower[k]]] += members * (1.0 - share[k])


def _reach(level: Any, place: Any, amount: Any, weight: Any, x: Any, held: Any) -> float:
    """`Market.worth` class by class:
    the least level that totals give, and what they hold in each place.
    """
    least = np.inf
    for k in range(len(amount)):
        reached = 0.0
        for j in range(len(held)):
            if place[k, j] >= 0:
                time = x[place[k, j]]
                reached += level[k, j] * time
                held[j] += amount[k] * time
        least = min(least, reached * (amount[k] / weight[k]))
    return least


def _lay_out(
    klass: Any, way: Any, good: Any, held: Any, level: Any, table: Any, place: Any, amount: Any
) -> bool:  # fmt: skip
    """`Market` of columns that hold one good each, column by column;
    whether those of a class hold as much of each.

    ``amount`` is 0 of classes that have no column.
    """
    for column in range(len(klass)):
        k, w = klass[column], way[column]
        g = good[w]
        if (
            g < 0
            or not held[w] > 0.0
            or place[k, g] >= 0
            or (amount[k] > 0.0 and amount[k] != held[w])
        ):
            return False
        table[k, g] = level[column]
        place[k, g] = column
        amount[k] = held[w]
    return True
