"""The sweeps over all classes that an interior step consists of (`optsched.solvers.prices.interior`), in numpy.

`optsched.solvers.prices.steps_compiled` does the same class by class. Arrays (K, w) are classes by places. Places that
reach no level are not ``open``: they have x = 0 and z = 1, and stay that way. Steps are sums of what is small already:
d = x / z grows without bound, and what it is multiplied by must not be a difference of larger numbers.
"""

from __future__ import annotations

import numpy as np

from optsched.arrays import FloatArray


def weigh(
    a: FloatArray, x: FloatArray, z: FloatArray, idle: FloatArray, bend: FloatArray, spread: FloatArray,
    tilt: FloatArray,
) -> tuple[FloatArray, FloatArray, FloatArray]:  # fmt: skip
    """How x answers to costs: fills d = x / z and d (a - centre); returns their total, the centre, and the damping."""
    np.divide(x, z, out=spread)
    total = np.einsum("kj->k", spread) + idle
    centre = np.einsum("kj,kj->k", a, spread) / total
    np.subtract(a, centre[:, np.newaxis], out=tilt)
    variance = np.einsum("kj,kj,kj->k", spread, tilt, tilt) + idle * centre**2
    np.multiply(tilt, spread, out=tilt)
    return total, centre, 1.0 / (1.0 + bend * variance)


def respond(
    a: FloatArray, q: FloatArray, x: FloatArray, z: FloatArray, u: FloatArray, y: FloatArray, open_: FloatArray,
    aim: float, cross: FloatArray, rest: FloatArray, bend: FloatArray, pull: FloatArray, spread: FloatArray,
    total: FloatArray, centre: FloatArray, damp: FloatArray, weight: FloatArray, dx: FloatArray,
) -> tuple[FloatArray, FloatArray, FloatArray]:  # fmt: skip
    """The step at unchanged prices: dy, du, and sum_k N_k dx_k, shape (w,); fills dx, unless that is empty."""
    h = (aim * open_ - cross) / z - x - spread * _error(a, q, z, u, y)
    summed = np.einsum("kj->k", h)
    tilted = np.einsum("kj,kj->k", a, h) - centre * summed
    dy = (pull + bend * (centre * rest - tilted)) * damp
    du = (summed + rest) / total + centre * dy
    h -= spread * (du[:, np.newaxis] - a * dy[:, np.newaxis])
    if len(dx):
        dx[:] = h
    return dy, du, weight @ h


def complete(
    a: FloatArray, q: FloatArray, dq: FloatArray, x: FloatArray, z: FloatArray, u: FloatArray, y: FloatArray,
    open_: FloatArray, aim: float, cross: FloatArray, bend: FloatArray, spread: FloatArray, tilt: FloatArray,
    total: FloatArray, centre: FloatArray, damp: FloatArray, weight: FloatArray, dy: FloatArray, du: FloatArray,
    dx: FloatArray, dz: FloatArray,
) -> tuple[float, float, float, float]:  # fmt: skip
    """The step with prices that change: fills dx and dz, adds to dy and du.

    Returns how far x and z may go, and sum_k N_k sum_j of (x dz + z dx) and of dx dz.
    """
    more = bend * damp * np.einsum("kj,kj->k", tilt, dq)
    dy += more
    du += centre * more - np.einsum("kj,kj->k", spread, dq) / total
    np.add(_error(a, q, z, u, y), dq, out=dz)
    dz += du[:, np.newaxis]
    dz -= a * dy[:, np.newaxis]
    dz *= open_
    np.subtract((aim * open_ - cross) / z - x, spread * dz, out=dx)
    with np.errstate(divide="ignore", invalid="ignore"):
        forward = float(np.where(open_ > 0, -dx / x, 0.0).max(initial=0.0))
    back = float((-dz / z).max(initial=0.0))
    first = float(weight @ (np.einsum("kj,kj->k", x, dz) + np.einsum("kj,kj->k", z, dx)))
    second = float(weight @ np.einsum("kj,kj->k", dx, dz))
    return 1.0 / max(forward, 1e-300), 1.0 / max(back, 1e-300), first, second


def recentre(
    x: FloatArray, dx: FloatArray, z: FloatArray, dz: FloatArray, open_: FloatArray, length: float, low: float,
    high: float, cross: FloatArray,
) -> None:  # fmt: skip
    """Take from ``cross`` what brings products that a longer step would leave too small or too large between both."""
    reached = (x + length * dx) * (z + length * dz)
    lack = np.where(reached < low, low - reached, np.where(reached > high, np.maximum(high - reached, -high), 0.0))
    cross -= lack * open_


def rents(a: FloatArray, q: FloatArray, y: FloatArray) -> FloatArray:
    """max(0, max_j (a_j y - q_j))."""
    most = np.zeros(len(a))
    for j in range(a.shape[1]):
        np.maximum(most, a[:, j] * y - q[:, j], out=most)
    return most


def _error(a: FloatArray, q: FloatArray, z: FloatArray, u: FloatArray, y: FloatArray) -> FloatArray:
    """What z is still wrong by."""
    return q + u[:, np.newaxis] - a * y[:, np.newaxis] - z
