"""The sweeps over all classes that an interior step consists
of (`optsched.solvers.prices.interior`), in numpy.

`optsched.solvers.prices.steps_compiled` does the same class by class. Tables (w, K)
are places by classes; costs may be (w, 1). Places that reach no level have x = 0 and z = 1, and
stay that way. Steps are sums of what is small already: d = x / z grows without bound, and what it
is multiplied by must not be a difference of larger numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from optsched.arrays import FloatArray

ENTRIES = 32768
"""Entries of a table that are swept at once: several such tables stay in the cache."""


def in_blocks(*joins: Callable[[Any], Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Sweep over some of the classes at a time; ``joins`` put together what each block returns."""

    def wrapper(sweep: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(sweep)
        def swept(a: FloatArray, *given: Any) -> Any:
            width, classes = a.shape
            most = max(1, ENTRIES // width)
            if classes <= most:
                return sweep(a, *given)

            def block(start: int) -> Any:
                part = slice(start, start + most)
                of_classes = (
                    isinstance(one, np.ndarray) and one.shape[-1] == classes for one in given
                )
                some = (
                    one[..., part] if of_each else one
                    for one, of_each in zip(given, of_classes, strict=True)
                )
                return sweep(a[:, part], *some)

            found = [block(start) for start in range(0, classes, most)]
            if len(joins) == 1:
                return joins[0](found)
            return tuple(
                join(one) for join, one in zip(joins, zip(*found, strict=True), strict=True)
            )

        return swept

    return wrapper


@in_blocks(sum)
def advance(
    a: FloatArray,
    q: FloatArray,
    x: FloatArray,
    z: FloatArray,
    y: FloatArray,
    weight: FloatArray,
    dx: FloatArray,
    dz: FloatArray,
    length: float,
    level: FloatArray,
    spent: FloatArray,
    rent: FloatArray,
) -> float:
    """Take a step of x and z;
    fills the levels, the time that is spent, and max(0, max_j (a_j y - q_j)).

    Returns sum_k N_k sum_j x_kj z_kj.
    """
    x += length * dx
    z += length * dz
    np.einsum("jk,jk->k", a, x, out=level)
    x.sum(axis=0, out=spent)
    rent[:] = 0.0
    for one, cost in zip(a, q, strict=True):
        np.maximum(rent, one * y - cost, out=rent)
    return float(weight @ np.einsum("jk,jk->k", x, z))


@in_blocks(sum, sum)
def weigh(
    a: FloatArray,
    q: FloatArray,
    x: FloatArray,
    z: FloatArray,
    s: FloatArray,
    u: FloatArray,
    y: FloatArray,
    spent: FloatArray,
    bend: FloatArray,
    pull: FloatArray,
    weight: FloatArray,
    total: FloatArray,
    centre: FloatArray,
    damp: FloatArray,
    dy: FloatArray,
    du: FloatArray,
    spread: FloatArray,
    tilt: FloatArray,
    taken_by: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """How x answers to costs, and the step towards products of 0 at prices that stay.

    Fills the total S of d = x / z and s / u, the centre, the damping, dy and du. Returns the sum of
    N (diag(d) - d d' / S - g t t'), whose first two terms are a Laplacian and summed up without
    cancellation, and sum_k N_k dx_k, shape (w,). Unless they are empty it fills the tables d, t and
    dx instead.
    """
    idle = s / u
    d = x / z
    np.add(d.sum(axis=0), idle, out=total)
    np.divide(np.einsum("jk,jk->k", a, d), total, out=centre)
    apart = a - centre
    t = d * apart
    np.divide(1.0, 1.0 + bend * (np.einsum("jk,jk->k", t, apart) + idle * centre**2), out=damp)
    # h is dx without the terms of dy and du, which depend on it.
    h = -x - d * _error(a, q, z, u, y)
    dy[:] = (pull + bend * (centre * (spent - 1.0) - np.einsum("jk,jk->k", apart, h))) * damp
    du[:] = (h.sum(axis=0) + spent - 1.0) / total + centre * dy
    h -= d * (du - a * dy)
    if len(spread):
        spread[:], tilt[:], taken_by[:] = d, t, h
        return np.zeros((len(a), len(a))), np.zeros(len(a))
    # Off the diagonal first: its sums are what the diagonal is made of, without cancellation.
    by_total = weight / total
    matrix = -np.asarray((d * by_total) @ d.T)
    np.fill_diagonal(matrix, 0.0)
    np.fill_diagonal(matrix, d @ (by_total * idle) - matrix.sum(axis=0))
    return matrix - (t * (weight * bend * damp)) @ t.T, h @ weight


@in_blocks(min, min, sum, sum, sum)
def look_ahead(
    a: FloatArray,
    q: FloatArray,
    dq: FloatArray,
    x: FloatArray,
    z: FloatArray,
    s: FloatArray,
    u: FloatArray,
    y: FloatArray,
    spent: FloatArray,
    bend: FloatArray,
    pull: FloatArray,
    weight: FloatArray,
    total: FloatArray,
    centre: FloatArray,
    damp: FloatArray,
    dy: FloatArray,
    du: FloatArray,
    cross: FloatArray,
    cross_idle: FloatArray,
    dy_aim: FloatArray,
    du_aim: FloatArray,
    taken_by: FloatArray,
    taken_by_aim: FloatArray,
) -> tuple[float, float, float, FloatArray, FloatArray]:
    """Where the step towards products of 0 leads, and a step that makes up for its second order.

    Fills ``cross``, the products dx dz, and ``cross_idle``, ds du. Returns how far x and s, and z
    and u, may go, the sum of the products, and sum_k N_k dx_k at prices that stay: its constant
    part and its growth with the products that are aimed at, as which dy, du and ``dy_aim``,
    ``du_aim`` are filled. Unless they are empty it fills the tables of dx instead.
    """
    is_open = x > 0
    v = 1.0 / z
    d = x * v
    error = _error(a, q, z, u, y)
    apart = a - centre
    moved = d * dq
    more = bend * damp * np.einsum("jk,jk->k", moved, apart)
    dy += more
    du += centre * more - moved.sum(axis=0) / total
    # Places that reach no level keep z = 1.
    dz = np.where(is_open, error + dq + du - a * dy, 0.0)
    part, idle = dz * v, du / u
    forward = 1.0 + max(float(part.max(initial=0.0)), float(idle.max(initial=0.0)))
    back = max(-float(part.min(initial=0.0)), -float(idle.min(initial=0.0)), 1e-300)
    np.multiply(-(x + d * dz), dz, out=cross)
    cross_idle[:] = -s * (1.0 + idle) * du
    product = float(weight @ cross.sum(axis=0)) + float(weight @ cross_idle)
    rest, over = spent - 1.0 - cross_idle / u, 1.0 / u
    h = -cross * v - x - d * error
    v *= is_open
    dy[:] = (pull + bend * (centre * rest - np.einsum("jk,jk->k", apart, h))) * damp
    dy_aim[:] = bend * (centre * over - np.einsum("jk,jk->k", apart, v)) * damp
    du[:] = (h.sum(axis=0) + rest) / total + centre * dy
    du_aim[:] = (v.sum(axis=0) + over) / total + centre * dy_aim
    h -= d * (du - a * dy)
    v -= d * (du_aim - a * dy_aim)
    sums = np.zeros(len(a)), np.zeros(len(a))
    if len(taken_by):
        taken_by[:], taken_by_aim[:] = h, v
    else:
        sums = h @ weight, v @ weight
    return 1.0 / forward, 1.0 / back, product, *sums


@in_blocks(min, min)
def complete(
    a: FloatArray,
    q: FloatArray,
    dq: FloatArray,
    x: FloatArray,
    z: FloatArray,
    s: FloatArray,
    u: FloatArray,
    y: FloatArray,
    aim: float,
    bend: FloatArray,
    weight: FloatArray,
    total: FloatArray,
    centre: FloatArray,
    damp: FloatArray,
    dy: FloatArray,
    du: FloatArray,
    ds: FloatArray,
    rise: FloatArray,
    cross: FloatArray,
    dx: FloatArray,
    dz: FloatArray,
) -> tuple[float, float]:
    """The step with prices that change:
    adds to dy and du, fills ds, which was ``cross_idle``, dx, dz and a dx.

    Returns how far x and s, and z, u and y may go.
    """
    is_open = x > 0
    v = 1.0 / z
    d = x * v
    moved = d * dq
    more = bend * damp * np.einsum("jk,jk->k", moved, a - centre)
    dy += more
    du += centre * more - moved.sum(axis=0) / total
    ds[:] = (aim - ds - s * du) / u - s
    np.add(_error(a, q, z, u, y), dq, out=dz)
    dz += du
    dz -= a * dy
    dz *= is_open
    np.multiply(aim - cross, v, out=dx)
    dx -= x
    dx *= is_open
    dx -= d * dz
    np.einsum("jk,jk->k", a, dx, out=rise)
    forward = max(
        float(np.divide(-dx, x, out=d, where=is_open).max(initial=0.0)),
        float((-ds / s).max(initial=0.0)),
    )
    v *= dz
    back = max(
        -float(v.min(initial=0.0)),
        float((-du / u).max(initial=0.0)),
        float((-dy / y).max(initial=0.0)),
    )
    return 1.0 / max(forward, 1e-300), 1.0 / max(back, 1e-300)


def _error(a: FloatArray, q: FloatArray, z: FloatArray, u: FloatArray, y: FloatArray) -> FloatArray:
    """What z is still wrong by."""
    # In place, as tables of all classes are large; q may be (w, 1).
    error = u - a * y
    error += q
    error -= z
    return error
