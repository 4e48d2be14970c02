"""The sweeps of `optsched.solvers.prices.steps`, compiled where numba is installed (the extra ``fast``).

They wait for memory and divisions: what can be had from x and z is made anew, once a sweep. Sums are not reassociated,
as some are of what cancels.
"""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np

from optsched.solvers.prices.compiling import compiler


@cache
def compiled() -> SimpleNamespace | None:
    """The compiled sweeps, under the names that they have in numpy; None without numba."""
    made = compiler(fastmath={"contract", "nsz"})
    if made is None:
        return None
    sweeps = (_weigh, _respond, _complete, _recentre, _rents)
    return SimpleNamespace(**{sweep.__name__[1:]: made(sweep) for sweep in sweeps})


def _weigh(a: Any, x: Any, z: Any, idle: Any, bend: Any, spread: Any, tilt: Any) -> Any:
    classes, width = a.shape
    total, centre, damp = np.empty(classes), np.empty(classes), np.empty(classes)
    for k in range(classes):
        summed = idle[k]
        first = 0.0
        for j in range(width):
            d = x[k, j] / z[k, j]
            spread[k, j] = d
            summed += d
            first += a[k, j] * d
        middle = first / summed
        variance = idle[k] * middle * middle
        for j in range(width):
            apart = a[k, j] - middle
            tilt[k, j] = spread[k, j] * apart
            variance += tilt[k, j] * apart
        total[k] = summed
        centre[k] = middle
        damp[k] = 1.0 / (1.0 + bend[k] * variance)
    return total, centre, damp


def _respond(
    a: Any, q: Any, x: Any, z: Any, u: Any, y: Any, open_: Any, aim: float, cross: Any, rest: Any, bend: Any, pull: Any,
    spread: Any, total: Any, centre: Any, damp: Any, weight: Any, dx: Any,
) -> Any:  # fmt: skip
    classes, width = a.shape
    dy, du, taken = np.empty(classes), np.empty(classes), np.zeros(width)
    h, d = np.zeros(width), np.zeros(width)
    for k in range(classes):
        summed = 0.0
        tilted = 0.0
        rent = u[k]
        slope = y[k]
        middle = centre[k]
        for j in range(width):
            if x[k, j] > 0.0:
                over = 1.0 / z[k, j]
                d[j] = x[k, j] * over
                error = q[k, j] + rent - a[k, j] * slope - z[k, j]
                h[j] = (aim - cross[k, j]) * over - x[k, j] - d[j] * error
                summed += h[j]
                tilted += (a[k, j] - middle) * h[j]
        rise = (pull[k] + bend[k] * (middle * rest[k] - tilted)) * damp[k]
        rented = (summed + rest[k]) / total[k] + middle * rise
        for j in range(width):
            if x[k, j] > 0.0:
                h[j] -= d[j] * (rented - a[k, j] * rise)
                taken[j] += weight[k] * h[j]
                if len(dx):
                    dx[k, j] = h[j]
        dy[k] = rise
        du[k] = rented
    return dy, du, taken


def _complete(
    a: Any, q: Any, dq: Any, x: Any, z: Any, u: Any, y: Any, open_: Any, aim: float, cross: Any, bend: Any, spread: Any,
    tilt: Any, total: Any, centre: Any, damp: Any, weight: Any, dy: Any, du: Any, dx: Any, dz: Any,
) -> Any:  # fmt: skip
    classes, width = a.shape
    forward = 1e-300
    back = 1e-300
    first = 0.0
    second = 0.0
    over = np.zeros(width)
    for k in range(classes):
        tilted = 0.0
        summed = 0.0
        middle = centre[k]
        for j in range(width):
            over[j] = 1.0 / z[k, j]
            moved = x[k, j] * over[j] * dq[k, j]
            summed += moved
            tilted += moved * (a[k, j] - middle)
        more = bend[k] * damp[k] * tilted
        dy[k] += more
        du[k] += middle * more - summed / total[k]
        rent = u[k]
        slope = y[k]
        rise = dy[k]
        rented = du[k]
        one = 0.0
        two = 0.0
        for j in range(width):
            if x[k, j] > 0.0:
                error = q[k, j] + rent - a[k, j] * slope - z[k, j]
                down = error + dq[k, j] + rented - a[k, j] * rise
                up = (aim - cross[k, j]) * over[j] - x[k, j] - x[k, j] * over[j] * down
                dz[k, j] = down
                dx[k, j] = up
                one += x[k, j] * down + z[k, j] * up
                two += up * down
                back = max(back, -down * over[j])
                if -up > forward * x[k, j]:
                    forward = -up / x[k, j]
            else:
                dz[k, j] = 0.0
                dx[k, j] = 0.0
        first += weight[k] * one
        second += weight[k] * two
    return 1.0 / forward, 1.0 / back, first, second


def _recentre(x: Any, dx: Any, z: Any, dz: Any, open_: Any, length: float, low: float, high: float, cross: Any) -> None:
    classes, width = x.shape
    for k in range(classes):
        for j in range(width):
            if x[k, j] > 0.0:
                reached = (x[k, j] + length * dx[k, j]) * (z[k, j] + length * dz[k, j])
                if reached < low:
                    cross[k, j] -= low - reached
                elif reached > high:
                    cross[k, j] -= max(high - reached, -high)


def _rents(a: Any, q: Any, y: Any) -> Any:
    classes, width = a.shape
    rents = np.zeros(classes)
    for k in range(classes):
        most = 0.0
        for j in range(width):
            most = max(most, a[k, j] * y[k] - q[k, j])
        rents[k] = most
    return rents
