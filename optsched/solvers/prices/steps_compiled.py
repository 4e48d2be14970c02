"""The sweeps of `optsched.solvers.prices.steps`, class by class, for numba (the extra ``fast``).

Sums over all classes are collected a few hundred classes at a time and then added up. A single
running sum over a million classes would lose digits that numpy's sums keep.
"""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np

from optsched.arrays.compiling import compiled_by_name

CHUNK = 256
"""Classes whose sums are collected before they are added to the totals."""


@cache
def compiled() -> SimpleNamespace | None:
    """The compiled sweeps, under the names that they have in numpy; None without numba."""
    sweeps = (_advance, _weigh, _look_ahead, _complete)
    return compiled_by_name(*sweeps, fastmath={"contract", "nsz"}, error_model="numpy")


def _advance(
    a: Any, q: Any, x: Any, z: Any, y: Any, weight: Any, dx: Any, dz: Any, length: float, level: Any, spent: Any,
    rent: Any,
) -> Any:  # fmt: skip
    width, classes = x.shape
    by_class = q.shape[1] > 1  # else all classes pay the same, and q has one column
    total = 0.0
    for begin in range(0, classes, CHUNK):
        product = 0.0
        for k in range(begin, min(begin + CHUNK, classes)):
            at = k if by_class else 0
            reached, used, most = 0.0, 0.0, 0.0
            for j in range(width):
                x[j, k] += length * dx[j, k]
                z[j, k] += length * dz[j, k]
                reached += a[j, k] * x[j, k]
                used += x[j, k]
                product += weight[k] * x[j, k] * z[j, k]
                most = max(most, a[j, k] * y[k] - q[j, at])
            level[k], spent[k], rent[k] = reached, used, most
        total += product
    return total


def _weigh(
    a: Any, q: Any, x: Any, z: Any, s: Any, u: Any, y: Any, spent: Any, bend: Any, pull: Any, weight: Any, total: Any,
    centre: Any, damp: Any, dy: Any, du: Any, spread: Any, tilt: Any, taken_by: Any,
) -> Any:  # fmt: skip
    width, classes = x.shape
    by_class, fills_tables = q.shape[1] > 1, len(spread) > 0
    d, t, h = np.empty(width), np.empty(width), np.empty(width)
    matrix, sums = np.zeros((width, width)), np.zeros(width)
    for begin in range(0, classes, CHUNK):
        part, taken = np.zeros((width, width)), np.zeros(width)
        for k in range(begin, min(begin + CHUNK, classes)):
            at = k if by_class else 0
            idle = s[k] / u[k]
            all_, middle = idle, 0.0
            for j in range(width):
                d[j] = x[j, k] / z[j, k]
                all_ += d[j]
                middle += a[j, k] * d[j]
            middle /= all_
            second, summed, tilted = idle * middle * middle, 0.0, 0.0
            for j in range(width):
                apart = a[j, k] - middle
                t[j] = d[j] * apart
                second += t[j] * apart
                h[j] = -x[j, k] - d[j] * (q[j, at] + u[k] - a[j, k] * y[k] - z[j, k])
                summed += h[j]
                tilted += apart * h[j]
            damped = 1.0 / (1.0 + bend[k] * second)
            rise = (pull[k] + bend[k] * (middle * (spent[k] - 1.0) - tilted)) * damped
            rented = (summed + spent[k] - 1.0) / all_ + middle * rise
            total[k], centre[k], damp[k], dy[k], du[k] = all_, middle, damped, rise, rented
            first, second = weight[k] / all_, weight[k] * bend[k] * damped
            for j in range(width):
                h[j] -= d[j] * (rented - a[j, k] * rise)
                if fills_tables:
                    spread[j, k], tilt[j, k], taken_by[j, k] = d[j], t[j], h[j]
                    continue
                taken[j] += weight[k] * h[j]
                part[j, j] += first * idle * d[j] - second * t[j] * t[j]
                # The first two terms are a Laplacian: each pair adds to two entries of the
                # diagonal what it takes from the entry between them, so that nothing cancels.
                for i in range(j):
                    both = first * d[j] * d[i]
                    part[i, i] += both
                    part[j, j] += both
                    part[i, j] -= both + second * t[j] * t[i]
        matrix += part
        sums += taken
    for j in range(width):
        for i in range(j):
            matrix[j, i] = matrix[i, j]
    return matrix, sums


def _look_ahead(
    a: Any, q: Any, dq: Any, x: Any, z: Any, s: Any, u: Any, y: Any, spent: Any, bend: Any, pull: Any, weight: Any,
    total: Any, centre: Any, damp: Any, dy: Any, du: Any, cross: Any, cross_idle: Any, dy_aim: Any, du_aim: Any,
    taken_by: Any, taken_by_aim: Any,
) -> Any:  # fmt: skip
    width, classes = x.shape
    by_class, fills_tables = q.shape[1] > 1, len(taken_by) > 0
    v, d, e, h = np.empty(width), np.empty(width), np.empty(width), np.empty(width)
    forward, back, product = 0.0, 0.0, 0.0
    sums, sums_aim = np.zeros(width), np.zeros(width)
    for begin in range(0, classes, CHUNK):
        part, taken, taken_aim = 0.0, np.zeros(width), np.zeros(width)
        for k in range(begin, min(begin + CHUNK, classes)):
            at = k if by_class else 0
            moved, tilted = 0.0, 0.0
            for j in range(width):
                v[j] = 1.0 / z[j, k]
                d[j] = x[j, k] * v[j]
                e[j] = q[j, at] + u[k] - a[j, k] * y[k] - z[j, k]
                moved += d[j] * dq[j, at]
                tilted += d[j] * dq[j, at] * (a[j, k] - centre[k])
            more = bend[k] * damp[k] * tilted
            rise, rented = dy[k] + more, du[k] + centre[k] * more - moved / total[k]
            over = 1.0 / u[k]
            forward, back = max(forward, rented * over), max(back, -rented * over)
            cross_idle[k] = -s[k] * (1.0 + rented * over) * rented
            part += weight[k] * cross_idle[k]
            rest = spent[k] - 1.0 - cross_idle[k] * over
            summed, tilted = rest, centre[k] * rest
            summed_aim, tilted_aim = over, centre[k] * over
            for j in range(width):
                apart, step = a[j, k] - centre[k], 0.0
                if x[j, k] > 0.0:
                    step = e[j] + dq[j, at] + rented - a[j, k] * rise
                forward, back = max(forward, step * v[j]), max(back, -step * v[j])
                cross[j, k] = -(x[j, k] + d[j] * step) * step
                part += weight[k] * cross[j, k]
                h[j] = -cross[j, k] * v[j] - x[j, k] - d[j] * e[j]
                if not x[j, k] > 0.0:
                    v[j] = 0.0
                summed += h[j]
                tilted -= apart * h[j]
                summed_aim += v[j]
                tilted_aim -= apart * v[j]
            dy[k] = (pull[k] + bend[k] * tilted) * damp[k]
            dy_aim[k] = bend[k] * tilted_aim * damp[k]
            du[k] = summed / total[k] + centre[k] * dy[k]
            du_aim[k] = summed_aim / total[k] + centre[k] * dy_aim[k]
            for j in range(width):
                h[j] -= d[j] * (du[k] - a[j, k] * dy[k])
                v[j] -= d[j] * (du_aim[k] - a[j, k] * dy_aim[k])
                if fills_tables:
                    taken_by[j, k], taken_by_aim[j, k] = h[j], v[j]
                    continue
                taken[j] += weight[k] * h[j]
                taken_aim[j] += weight[k] * v[j]
        product += part
        sums += taken
        sums_aim += taken_aim
    return 1.0 / (1.0 + forward), 1.0 / max(back, 1e-300), product, sums, sums_aim


def _complete(
    a: Any, q: Any, dq: Any, x: Any, z: Any, s: Any, u: Any, y: Any, aim: float, bend: Any, weight: Any, total: Any,
    centre: Any, damp: Any, dy: Any, du: Any, ds: Any, rise: Any, cross: Any, dx: Any, dz: Any,
) -> Any:  # fmt: skip
    width, classes = x.shape
    by_class = q.shape[1] > 1
    forward, back = 0.0, 0.0
    for k in range(classes):
        at = k if by_class else 0
        moved, tilted, risen = 0.0, 0.0, 0.0
        for j in range(width):
            change = x[j, k] / z[j, k] * dq[j, at]
            moved += change
            tilted += change * (a[j, k] - centre[k])
        more = bend[k] * damp[k] * tilted
        dy[k] += more
        du[k] += centre[k] * more - moved / total[k]
        ds[k] = (aim - ds[k] - s[k] * du[k]) / u[k] - s[k]
        forward = max(forward, -ds[k] / s[k])
        back = max(back, max(-du[k] / u[k], -dy[k] / y[k]))
        for j in range(width):
            dz[j, k], dx[j, k] = 0.0, 0.0
            if x[j, k] > 0.0:
                error = q[j, at] + u[k] - a[j, k] * y[k] - z[j, k]
                v = 1.0 / z[j, k]
                dz[j, k] = error + dq[j, at] + du[k] - a[j, k] * dy[k]
                dx[j, k] = (aim - cross[j, k] - x[j, k] * dz[j, k]) * v - x[j, k]
                forward = max(forward, -dx[j, k] / x[j, k])
                back = max(back, -dz[j, k] * v)
                risen += a[j, k] * dx[j, k]
        rise[k] = risen
    return 1.0 / max(forward, 1e-300), 1.0 / max(back, 1e-300)
