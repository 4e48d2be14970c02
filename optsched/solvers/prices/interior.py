"""The interior way to the prices of a sum of concave utilities: every step is one small system in the prices.

Class k, of total weight N_k, spends the parts x_kj of its time in place j and idles the rest s_k; its level is
tau_k = sum_j a_kj x_kj. With prices p of the goods (W of each, c of it left over), y_k = phi_k f'(tau_k) what a little
more of the level is worth, and u_k what a unit of the member's time is worth, the optimum is where

    z_kj = q_kj(p) + u_k - a_kj y_k >= 0,   sum_j x_kj + s_k = 1,   sum_k N_k G_k x_k + c = W
    x_kj z_kj = 0,   s_k u_k = 0,   p_r c_r = 0

A step aims at products mu instead of 0 (Newton with Mehrotra's second-order term and Gondzio's corrections, products of
goods weighing as much as all of the classes). A class is tied to the others by the prices alone: with d_j = x_j / z_j,
S = sum_j d_j + s / u, the centre b = sum_j a_j d_j / S, t_j = d_j (a_j - b) and the bend of the utility
-phi f''(tau) = kappa, it holds by

    M_k = diag(d) - d d' / S - g t t',   g = kappa / (1 + kappa (sum_j d_j (a_j - b)^2 + b^2 s / u))

less of the places for each unit of their costs. So a step takes the R x R system sum_k N_k G_k M_k G_k' + diag(c / p)
and four sweeps over the classes, and kinks, which stall methods that follow the prices alone, are not special.

Bound, for any p, y >= 0:  p . W + sum_k N_k (max(0, max_j (a_kj y_k - q_kj)) + max_v (phi_k f(v) - y_k v)).

S. Mehrotra, "On the implementation of a primal-dual interior point method", SIAM Journal on Optimization 2(4), 1992.
J. Gondzio, "Multiple centrality corrections in a primal-dual method for linear programming", Computational Optimization
and Applications 6, 1996.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from optsched.arrays import FloatArray
from optsched.solvers.prices import steps
from optsched.solvers.prices.goods import Goods
from optsched.solvers.prices.steps_compiled import compiled

log = logging.getLogger("optsched")

EXACT = 1e-9
"""Gap at which the search ends, relative to what all levels together are worth at their slopes."""
CLOSE = 1e-8
"""Gap that is good enough where rounding allows no less."""
STEPS = 150
STALLED = 6
"""Steps without a smaller gap, after which it gets no smaller."""
CORRECTIONS = 1
"""Gondzio's corrections of a step at most."""
FIRST = 0.2
"""What all products are at first, in units of what the levels of a unit of weight are worth."""
NEAR = 3.0
"""Distance of a slope from that of the utility, in logarithms, within which Newton's method finds to it."""
COMPILED = 20_000
"""Entries of the level table from which the compiled sweeps are worth their start."""


@dataclass(frozen=True)
class Curve:
    """phi f(v) of each class, where f(v) = log v for the exponent 0 and v^e / e otherwise, e < 1.

    Attributes
    ----------
    size : FloatArray, shape (K,)
        phi.
    exponent : float
    """

    size: FloatArray
    exponent: float

    def value(self, level: FloatArray) -> FloatArray:
        """phi f(v)."""
        e = self.exponent
        return self.size * (np.log(level) if e == 0 else level**e / e)

    def slope(self, level: FloatArray) -> FloatArray:
        """phi f'(v)."""
        return np.asarray(self.size * level ** (self.exponent - 1.0))

    def pull(self, level: FloatArray, slope: FloatArray) -> FloatArray:
        """What is to be added to a slope to make it f' of a level, in logarithms, as both are over many orders."""
        return np.asarray(slope * (np.log(self.size / slope) + (self.exponent - 1.0) * np.log(level)))

    def surplus(self, slope: FloatArray) -> FloatArray:
        """max over v of phi f(v) - slope v."""
        e = self.exponent
        level = (slope / self.size) ** (1.0 / (e - 1.0))
        return np.asarray(self.size * np.log(level) - self.size if e == 0 else slope * level * (1.0 - e) / e)


@dataclass(frozen=True)
class Balance:
    """Where a search has come to.

    Attributes
    ----------
    time : FloatArray, shape (K, w)
        Within time and capacity.
    prices, slope, rent : FloatArray
        p, y, u.
    value, bound : float
        Of the sum of N phi f, in the units of the levels ``a``.
    scale : float
        What all levels together are worth at their slopes.
    """

    time: FloatArray
    prices: FloatArray
    slope: FloatArray
    rent: FloatArray
    value: float
    bound: float
    scale: float

    @property
    def gap(self) -> float:
        """Relative to the scale."""
        return (self.bound - self.value) / self.scale


class Interior:
    """One search.

    Parameters
    ----------
    goods : Goods
    level : FloatArray, shape (K, w)
        a, each row with the maximum 1.
    curve : Curve
    stop : callable, optional
        Called between steps with value and bound; true ends the search.
    """

    def __init__(
        self, goods: Goods, level: FloatArray, curve: Curve, stop: Callable[[float, float], bool] | None = None
    ) -> None:
        self.goods, self.a, self.curve, self._stop = goods, level, curve, stop
        self.capacity, self.weight = goods.market.capacity, goods.weight
        self.open = (level > 0).astype(np.float64)
        self.steps = 0
        self._sweeps: Any = (compiled() if level.size >= COMPILED else None) or steps
        self._begin()
        self.best = self.balance()

    def _begin(self) -> None:
        """Half of the time, evenly, and of what is scarce half of the capacity; all products are ``unit``."""
        even = self.open * (0.5 / self.open.sum(axis=1))[:, np.newaxis]
        self.x = np.ascontiguousarray(even * self.goods.room(2.0 * self.goods.used(even)))
        self.s = 1.0 - self.x.sum(axis=1)
        self.c = self.capacity - self.goods.used(self.x)
        self.tau = np.einsum("kj,kj->k", self.a, self.x)
        self.y = self.curve.slope(self.tau)
        self.unit = FIRST * float(self.weight @ (self.y * self.tau)) / float(self.weight.sum())
        self.unit_good = self.unit * float(self.weight.sum()) / len(self.capacity)
        self.u, self.p = self.unit / self.s, self.unit_good / self.c
        self.z = np.divide(self.unit, self.x, out=np.ones_like(self.x), where=self.open > 0)
        self.pairs = self.unit * float(self.weight @ (self.open.sum(axis=1) + 1.0) + self.weight.sum())
        shape = self.x.shape
        self._spread, self._tilt = np.empty(shape), np.empty(shape)
        self._nothing, self._cross = np.zeros(shape), np.empty(shape)
        self._steps = [(np.empty(shape), np.empty(shape)) for _ in range(2)]

    def run(self) -> Balance:
        """Step until the gap is closed, or gets no smaller."""
        if (plenty := self._plenty()) is not None:
            self.best = plenty
            return plenty
        since = 0
        while self.steps < STEPS and since < STALLED and self.best.gap > EXACT:
            if self._stop is not None and self._stop(self.best.value, self.best.bound):
                break
            if not self._step():
                break
            self.steps += 1
            now = self.balance()
            since = 0 if now.gap < 0.9 * self.best.gap or self.best.gap > 1e-5 else since + 1
            self.best = _better(self.best, now)
            log.debug("prices: step %d, gap %.2g", self.steps, now.gap)
        return self.best

    def _plenty(self) -> Balance | None:
        """Everybody in the best place all the time, at no prices, where there is room for that."""
        time = np.zeros_like(self.x)
        time[np.arange(len(time)), self.a.argmax(axis=1)] = 1.0
        if (self.goods.used(time) > self.capacity).any():
            return None
        slope = self.curve.slope(np.ones(len(time)))
        value = float(self.weight @ self.curve.value(np.ones(len(time))))
        return Balance(time, np.zeros_like(self.p), slope, slope, value, value, float(self.weight @ slope))

    def balance(self) -> Balance:
        """The allocation within time and capacity, and the bound of the prices and slopes."""
        goods, curve = self.goods, self.curve
        time = self.x * np.minimum(1.0, 1.0 / np.einsum("kj->k", self.x))[:, np.newaxis]
        time *= goods.room(goods.used(time))
        level = np.einsum("kj,kj->k", self.a, time)
        value = float(self.weight @ curve.value(level))
        rent = self._sweeps.rents(self.a, goods.costs(self.p), self.y)
        bound = float(self.p @ self.capacity) + float(self.weight @ (rent + curve.surplus(self.y)))
        scale = float(self.weight @ (self.y * level))
        return Balance(time, self.p, self.y, rent, value, bound, scale)

    def _step(self) -> bool:
        """One step; False where rounding leaves none."""
        tau = self.tau
        q = self.goods.costs(self.p)
        idle = self.s / self.u
        bend = (1.0 - self.curve.exponent) * self.y / tau
        pull = self.curve.pull(tau, self.y)
        total, centre, damp = self._sweeps.weigh(self.a, self.x, self.z, idle, bend, self._spread, self._tilt)
        curvature = self.goods.curvature(self._spread, self._tilt, total, idle, bend * damp)
        curvature[np.diag_indices_from(curvature)] += self.c / self.p
        scale = 1.0 / np.sqrt(np.maximum(np.diag(curvature), 1e-300))
        try:
            factor = cho_factor(curvature * scale[:, np.newaxis] * scale + 1e-14 * np.eye(len(scale)))
        except (LinAlgError, ValueError):
            return False
        untimed = 1.0 - np.einsum("kj->k", self.x) - self.s
        unheld = self.capacity - self.goods.used(self.x) - self.c

        def direction(at: int, aim: float, cross: FloatArray, cross_idle: FloatArray, cross_good: FloatArray) -> _Step:
            dx, dz = self._steps[at]
            rest = (aim * self.unit - cross_idle) / self.u - self.s - untimed
            dy, du, taken = self._sweeps.respond(
                self.a, q, self.x, self.z, self.u, self.y, self.open, aim * self.unit, cross, rest, bend, pull,
                self._spread, total, centre, damp, self.weight, dx if self.goods.market.good is None else dx[:0],
            )  # fmt: skip
            more = (aim * self.unit_good - cross_good) / self.p - self.c
            dp = scale * cho_solve(factor, scale * (self.goods.used(dx, taken) + more - unheld))
            forth, back, *sums = self._sweeps.complete(
                self.a, q, self.goods.costs(dp), self.x, self.z, self.u, self.y, self.open, aim * self.unit, cross,
                bend, self._spread, self._tilt, total, centre, damp, self.weight, dy, du,
                dx, dz,
            )  # fmt: skip
            ds = (aim * self.unit - cross_idle) / self.u - self.s - idle * du
            dc = more - self.c / self.p * dp
            forth = min(forth, _reach(self.s, ds), _reach(self.c, dc))
            back = min(back, _reach(self.u, du), _reach(self.p, dp), _reach(self.y, dy))
            first, second = (
                inner + float(self.weight @ idle) + float(held)
                for inner, idle, held in zip(
                    sums, (self.s * du + self.u * ds, ds * du), (self.c @ dp + self.p @ dc, dc @ dp), strict=True
                )
            )
            return _Step(dx, dz, dy, du, ds, dp, dc, min(1.0, forth, back), first, second)

        plain = direction(0, 0.0, self._nothing, np.zeros_like(tau), np.zeros_like(self.c))
        at = float(self.weight @ (np.einsum("kj,kj,kj->k", self.x, self.z, self.open) + self.s * self.u))
        at += float(self.c @ self.p)
        ahead = at + plain.length * plain.first + plain.length**2 * plain.second
        aim = max((ahead / at) ** 3, 1e-12) * at / self.pairs
        cross = np.multiply(plain.dx, plain.dz, out=self._cross)
        cross_idle, cross_good = plain.ds * plain.du, plain.dp * plain.dc
        step = direction(1, aim, cross, cross_idle, cross_good)
        for _ in range(CORRECTIONS):
            if step.length > 0.95:
                break
            goal = min(1.0, step.length + 0.3)
            low, high = 0.1 * aim * self.unit, 10.0 * aim * self.unit
            self._sweeps.recentre(self.x, step.dx, self.z, step.dz, self.open, goal, low, high, cross)
            cross_idle = cross_idle - _lack(self.s, step.ds, self.u, step.du, goal, low, high)
            low, high = 0.1 * aim * self.unit_good, 10.0 * aim * self.unit_good
            cross_good = cross_good - _lack(self.c, step.dc, self.p, step.dp, goal, low, high)
            free = 0 if step.dx is self._steps[1][0] else 1
            other = direction(free, aim, cross, cross_idle, cross_good)
            if other.length < 1.02 * step.length:
                break
            step = other
        return self._advance(step)

    def _advance(self, step: _Step) -> bool:
        length = self._on_curve(step, min(1.0, 0.99 * step.length))
        if not length > 1e-10 or not np.isfinite(step.dp).all():
            return False
        self.x += length * step.dx
        self.z += length * step.dz
        self.s, self.u = self.s + length * step.ds, self.u + length * step.du
        self.c, self.p = self.c + length * step.dc, self.p + length * step.dp
        self.y = self.y + length * step.dy
        self.tau = np.einsum("kj,kj->k", self.a, self.x)
        return True

    def _on_curve(self, step: _Step, length: float) -> float:
        """So much of a step that slopes come nearer to those of the utility, or stay near."""
        rise = np.einsum("kj,kj->k", self.a, step.dx)
        before = self._off(self.y, self.tau)
        while length > 1e-10:
            off = self._off(self.y + length * step.dy, self.tau + length * rise)
            if off <= max(NEAR, (1.0 - 0.1 * length) * before):
                break
            length *= 0.7
        return length

    def _off(self, slope: FloatArray, level: FloatArray) -> float:
        """The largest distance of a slope from that of the utility at a level, in logarithms."""
        return float(np.abs(self.curve.pull(level, slope) / slope).max())


@dataclass(frozen=True)
class _Step:
    """A direction, how far it goes until something is 0 (1 at most), and the sum of all products along it.

    After the part l of the step that sum has grown by ``first`` l + ``second`` l^2.
    """

    dx: FloatArray
    dz: FloatArray
    dy: FloatArray
    du: FloatArray
    ds: FloatArray
    dp: FloatArray
    dc: FloatArray
    length: float
    first: float
    second: float


def _reach(value: FloatArray, change: FloatArray) -> float:
    """Part of a change that takes the first value to 0."""
    return 1.0 / max(float((-change / value).max(initial=0.0)), 1e-300)


def _lack(
    v: FloatArray, dv: FloatArray, w: FloatArray, dw: FloatArray, length: float, low: float, high: float
) -> FloatArray:
    """What `steps.recentre` adds to the products of two arrays."""
    reached = (v + length * dv) * (w + length * dw)
    return np.where(reached < low, low - reached, np.where(reached > high, np.maximum(high - reached, -high), 0.0))


def _better(one: Balance, other: Balance) -> Balance:
    """The one with the smaller gap; a gap that is no number is the largest."""
    return other if not one.gap <= other.gap else one
