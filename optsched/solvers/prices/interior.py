"""An interior-point method for a sum of concave utilities: each step is a small system in the
prices.

Class k, of total weight N_k, spends the parts x_kj of its time in place j and idles the rest s_k;
its level is tau_k = sum_j a_kj x_kj. With prices p of the goods (W of each, c of it left over), y_k
= phi_k f'(tau_k) what a little more of the level is worth, and u_k what a unit of the member's time
is worth, the optimum is where

    z_kj = q_kj(p) + u_k - a_kj y_k >= 0,   sum_j x_kj + s_k = 1,   sum_k N_k G_k x_k + c = W
    x_kj z_kj = 0,   s_k u_k = 0,   p_r c_r = 0

A step aims at products mu instead of 0 (Newton with Mehrotra's second-order term, products of goods
weighing as much as all of the classes). A class is tied to the others by the prices alone: with d_j
= x_j / z_j, S = sum_j d_j + s / u, the centre b = sum_j a_j d_j / S, t_j = d_j (a_j - b) and the
bend of the utility -phi f''(tau) = kappa, it holds by

    M_k = diag(d) - d d' / S - g t t',   g = kappa / (1 + kappa (sum_j d_j (a_j - b)^2 + b^2 s / u))

less of the places for each unit of their costs. So a step takes the R x R system sum_k N_k G_k M_k
G_k' + diag(c / p) and four sweeps over the classes, and kinks, which stall methods that follow the
prices alone, are not special. (What Mehrotra's term asks of the prices is known, up to mu, in the
sweep that makes it.)

The gap is relative to what all levels together are worth, in which a class of a millionth of
the usual weight is nothing. So the steps go on until x_k . z_k + s_k u_k is little of y_k tau_k
too, for every class: where weights are of many orders, some ten steps more.

A floor under a level, tau_k >= L_k, has a worth v_k that is a part of y_k (`floor_steps`).

Bound, for any p, y >= 0:  p . W + sum_k N_k (max(0, max_j (a_kj y_k - q_kj)) + max_{v >= L_k}
(phi_k f(v) - y_k v)).

S. Mehrotra, "On the implementation of a primal-dual interior point method", SIAM Journal on
Optimization 2(4), 1992.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from optsched.arrays import FloatArray, IntArray, compiling
from optsched.arrays.values import replace
from optsched.solvers.prices import steps
from optsched.solvers.prices.floor_steps import FloorSteps
from optsched.solvers.prices.goods import Goods
from optsched.solvers.prices.price_system import price_system, step_to_boundary
from optsched.solvers.prices.steps_compiled import compiled

log = logging.getLogger("optsched")

EXACT = 1e-10
"""Gap at which the search ends, relative to what all levels together are worth at their slopes."""
OWN = 1e-9
"""Gap of each class at which the search ends,
relative to what its own level is worth at its slope.
"""
ROUNDING = 5e-11
"""Gap that a later point may have by rounding, if the gaps of single classes improve."""
ACCEPTED_GAP = 1e-8
"""Gap that is accepted if rounding prevents a smaller one."""
STEPS = 150
STALLED = 6
"""Steps without a smaller gap, after which it gets no smaller."""
SMALL = 1e-5
"""Gap from which points are kept, as later ones may be worse."""
FIRST = 0.2
"""Size of all products at first, relative to the worth of the levels of a unit of weight."""
NEAR = 3.0
"""Distance of a slope from that of the utility, in logarithms, within which Newton's method
converges.
"""
WIDE = 24
"""Places up to which the sweeps sum up the systems in the prices;
beyond, products of matrices are faster.
"""


@dataclass(frozen=True)
class Curve:
    """phi f(v) of each class, where f(v) = log v for the exponent 0 and v^e / e otherwise, e < 1.

    Attributes
    ----------
    size : FloatArray, shape (K,)
        phi.
    exponent : float
    floor : FloatArray, shape (K,), optional
        Least level of each class; 0 without one.
    """

    size: FloatArray
    exponent: float
    floor: FloatArray | None = None

    @property
    def floored(self) -> tuple[IntArray, FloatArray]:
        """The classes that have a floor, and their floors."""
        if self.floor is None:
            return np.zeros(0, np.int64), np.zeros(0)
        k = np.flatnonzero(self.floor > 0)
        return k, self.floor[k]

    def of_floor(self, slope: FloatArray) -> FloatArray:
        """What of each slope of a level is the worth of its floor:
        more than a little more of the level is worth there, shape (K,)."""
        worth = np.zeros(len(self.size))
        k, floor = self.floored
        worth[k] = np.maximum(slope[k] - self.size[k] * floor ** (self.exponent - 1.0), 0.0)
        return worth

    def value(self, level: FloatArray) -> FloatArray:
        """phi f(v) of each class, shape (K,)."""
        e = self.exponent
        return self.size * (np.log(level) if e == 0 else level**e / e)

    def slope(self, level: FloatArray) -> FloatArray:
        """phi f'(v) of each class, shape (K,)."""
        return np.asarray(self.size * level ** (self.exponent - 1.0))

    def surplus(self, slope: FloatArray) -> FloatArray:
        """max over v >= floor of phi f(v) - slope v."""
        of_floor = self.of_floor(slope)
        surplus = self._surplus(slope - of_floor)
        k, floor = self.floored
        surplus[k] -= of_floor[k] * floor
        return surplus

    def _surplus(self, slope: FloatArray) -> FloatArray:
        """The same without floors."""
        e = self.exponent
        # At the level where phi f' is the slope.
        level = (slope / self.size) ** (1.0 / (e - 1.0))
        if e == 0:
            return np.asarray(self.size * np.log(level) - self.size)
        return np.asarray(slope * level * (1.0 - e) / e)


@dataclass(frozen=True)
class Balance:
    """The state of a search.

    Attributes
    ----------
    time : FloatArray, shape (K, w)
        Within time and capacity; of a point during the search, before it is scaled into them.
    prices, slope, rent : FloatArray
        p, y, u.
    value, bound : float
        Of the sum of N phi f, in the units of the levels ``a``; during the search, the value that
        it has at least.
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


def balance_of(
    goods: Goods,
    curve: Curve,
    level: FloatArray,
    time: FloatArray,
    prices: FloatArray,
    slope: FloatArray,
    rent: FloatArray,
) -> Balance:
    """The value of an allocation scaled into time and capacity, and the bound of prices, slopes and
    rents.

    Parameters
    ----------
    goods : Goods
    curve : Curve
    level, time : FloatArray, shape (K, w)
    prices : FloatArray, shape (R,)
    slope, rent : FloatArray, shape (K,)
    """
    time = time / np.maximum(1.0, time.sum(axis=1))[:, np.newaxis]
    time *= goods.room(goods.used(time))
    reached = np.einsum("kj,kj->k", level, time)
    value = float(goods.weight @ curve.value(reached))
    k, floor = curve.floored
    # A shortfall from a floor is charged at the slope of the level.
    value -= float((goods.weight[k] * slope[k]) @ np.maximum(floor - reached[k], 0.0))
    bound = float(prices @ goods.market.capacity)
    bound += float(goods.weight @ (rent + curve.surplus(slope)))
    scale = float(goods.weight @ (slope * reached))
    return Balance(time, prices, slope, rent, value, bound, scale)


class InteriorSearch:
    """What the searches of interior methods have in common: the point, and where it starts.

    Parameters
    ----------
    goods : Goods
    level : FloatArray, shape (K, w)
        a.
    stop : callable or None
        Called between steps with value and bound; true ends the search.
    fast : bool
        Compile the sweeps, where that is possible, however few classes there are.
    """

    def __init__(
        self,
        goods: Goods,
        level: FloatArray,
        stop: Callable[[float, float], bool] | None,
        fast: bool = False,
    ) -> None:
        self.goods, self._stop = goods, stop
        self.a = np.ascontiguousarray(level.T)
        self.capacity, self.weight = goods.market.capacity, goods.weight
        large = fast or level.size >= compiling.COMPILED
        self._sweeps: Any = (compiled() if large else None) or steps

    def _start_evenly(self) -> FloatArray:
        """Spend half of the time, evenly, and of scarce goods half of the capacity; the levels."""
        is_open, goods = self.a > 0, self.goods
        even = is_open * (0.5 / is_open.sum(axis=0))
        self.x = np.ascontiguousarray(even * goods.room(2.0 * goods.used(even.T)).T)
        # What is left of time and capacity: strictly above 0, as half of them is given out.
        self.s = 1.0 - self.x.sum(axis=0)
        self.c = self.capacity - goods.used(self.x.T)
        return np.asarray(np.einsum("jk,jk->k", self.a, self.x))

    def _start_products(self, unit: float) -> None:
        """Choose u, p and z so that all products are ``unit``; make room for steps."""
        self.unit = unit
        self.unit_good = self.unit * float(self.weight.sum()) / len(self.capacity)
        self.u, self.p = self.unit / self.s, self.unit_good / self.c
        self.z = np.divide(self.unit, self.x, out=np.ones_like(self.x), where=self.a > 0)
        shape = self.x.shape
        self._dx, self._dz, self._cross = np.zeros(shape), np.zeros(shape), np.empty(shape)
        self.tau, self.spent, self._rise = np.empty((3, shape[1]))
        self._columns = np.empty((8, shape[1]))


class Interior(InteriorSearch):
    """One search for the largest sum of concave utilities.

    Parameters
    ----------
    goods : Goods
    level : FloatArray, shape (K, w)
        a, each row with the maximum 1.
    curve : Curve
    stop, fast
        As of `InteriorSearch`.
    """

    def __init__(
        self,
        goods: Goods,
        level: FloatArray,
        curve: Curve,
        stop: Callable[[float, float], bool] | None = None,
        fast: bool = False,
    ) -> None:
        super().__init__(goods, level, stop, fast)
        self.curve, self.steps = curve, 0

    def run(self) -> Balance:
        """Step until the gap is closed, or gets no smaller."""
        # If nothing is scarce, prices are 0, which an interior-point method only approaches.
        if (free := self._without_prices()) is not None:
            return free
        self._starting_point()
        self._evaluate(0.0)
        best, class_gap = self.state, self._largest_class_gap()
        since = 0
        while self.steps < STEPS and since < STALLED and (best.gap > EXACT or class_gap > OWN):
            if self._stop is not None and self._stop(best.value, best.bound):
                break
            if not self._step():
                break
            self.steps += 1
            now, new_class_gap = self.state, self._largest_class_gap()
            if best.gap > EXACT:
                better = not best.gap <= now.gap
                nearer = now.gap < 0.9 * best.gap or best.gap > SMALL
            else:
                # The gap of all is closed: single classes may still gain.
                better = new_class_gap < class_gap and now.gap <= max(best.gap, ROUNDING)
                nearer = better and new_class_gap < 0.9 * class_gap
            since = 0 if nearer else since + 1
            if better:
                # A copy, as steps change the table in place; not of points that will not be the
                # answer.
                best = now if now.gap > SMALL else replace(now, time=now.time.copy("K"))
                class_gap = new_class_gap
            log.debug("prices: step %d, gap %.2g", self.steps, now.gap)
        found = best if best.gap <= SMALL else self.state
        return balance_of(
            self.goods, self.curve, self.a.T, found.time, found.prices, found.slope, found.rent
        )

    def _largest_class_gap(self) -> float:
        """The largest gap of a class, relative to what its level is worth;
        infinite until that of all is closed.
        """
        if not self.state.gap <= EXACT:
            return np.inf
        products = np.einsum("jk,jk->k", self.x, self.z) + self.s * self.u
        products[self.floors.k] += self.floors.products
        return float((products / (self.y * self.tau) + np.abs(self.off)).max())

    def _without_prices(self) -> Balance | None:
        """Every class in its best place all the time, at prices of 0; None if capacities do not
        suffice.
        """
        classes = self.a.shape[1]
        time = np.zeros((classes, len(self.a)))
        time[np.arange(classes), self.a.argmax(axis=0)] = 1.0
        if (self.goods.used(time) > self.capacity).any():
            return None
        # The level of all is 1, and what more of it is worth is what more time is worth.
        level = np.ones(classes)
        slope = self.curve.slope(level)
        value = float(self.weight @ self.curve.value(level))
        scale = float(self.weight @ slope)
        return Balance(time, np.zeros_like(self.capacity), slope, slope, value, value, scale)

    def _starting_point(self) -> None:
        """An even point, whose products are all ``unit``."""
        level = self._start_evenly()
        self.y = self.curve.slope(level)
        members = float(self.weight.sum())
        self._start_products(FIRST * float(self.weight @ (self.y * level)) / members)
        k, floor = self.curve.floored
        self.floors = FloorSteps(k, floor, level[k], self.weight[k], self.unit)
        self._floored = Curve(self.curve.size[k], self.curve.exponent, floor)
        self.y[k] += self.floors.worth
        floored = float(self.weight[k].sum())
        places = float(self.weight @ (self.a > 0).sum(axis=0))
        self.pairs = self.unit * (places + 2.0 * members + floored)
        self._in_sweep = self.goods.market.good is not None and len(self.a) <= WIDE
        # Sweeps that sum up the systems themselves fill no tables.
        table = (0, 0) if self._in_sweep else self.x.shape
        self._spread, self._tilt, self._taken = (np.empty(table) for _ in range(3))
        self._log_slope = np.log(self.y / self.curve.size)

    def _evaluate(self, length: float) -> None:
        """Take this part of the step of x and z, and compute value and bound of the scaled
        point.
        """
        goods, curve, e = self.goods, self.curve, self.curve.exponent
        self._q = goods.costs_by_place(self.p)
        rent = np.empty_like(self.y)
        inner = self._sweeps.advance(
            self.a,
            self._q,
            self.x,
            self.z,
            self.y,
            self.weight,
            self._dx,
            self._dz,
            length,
            self.tau,
            self.spent,
            rent,
        )
        of_idle = float(self.weight @ (self.s * self.u))
        floors = self.floors
        of_floors = float(floors.weight @ floors.products)
        self.products = float(inner) + of_idle + float(self.c @ self.p) + of_floors
        self.used = goods.used(self.x.T)
        log_level, log_slope = np.log(self.tau), self._log_slope
        self.off = self._off(log_slope, log_level, floors.worth)
        over = max(1.0, float((self.used / self.capacity).max()), float(self.spent.max()))
        within = log_level - np.log(over)
        if e == 0:
            worth = curve.size * within
            surplus = -curve.size * (log_slope + 1.0)
        else:
            worth = curve.size * np.exp(e * within) / e
            surplus = self.y * np.exp(log_slope / (e - 1.0)) * ((1.0 - e) / e)
        surplus[floors.k] = self._floored.surplus(self.y[floors.k])
        worth[floors.k] -= self.y[floors.k] * floors.lacks(self.tau[floors.k] / over)
        self.state = Balance(
            self.x.T,
            self.p,
            self.y,
            rent,
            float(self.weight @ worth),
            float(self.p @ self.capacity) + float(self.weight @ (rent + surplus)),
            float(self.weight @ (self.y * self.tau)),
        )

    def _off(self, log_slope: FloatArray, log_level: FloatArray, worth: FloatArray) -> FloatArray:
        """How far the slopes are from what a little more of a level and of a floor is worth, shape
        (K,).

        In logarithms of slopes over phi, as they are over many orders.
        """
        right = (self.curve.exponent - 1.0) * log_level
        k = self.floors.k
        right[k] = np.log(np.exp(right[k]) + worth / self.curve.size[k])
        return right - log_slope

    def _step(self) -> bool:
        """One predictor-corrector step; False where rounding leaves none."""
        sweeps, goods = self._sweeps, self.goods
        a, q = self.a, self._q
        point = self.x, self.z, self.s, self.u, self.y
        bend, pull = (1.0 - self.curve.exponent) * self.y / self.tau, self.y * self.off
        floors, k = self.floors, self.floors.k
        bend_of_utility = (
            (1.0 - self.curve.exponent) * self._floored.slope(self.tau[k]) / self.tau[k]
        )
        bend[k], pull[k] = floors.begin(self.tau[k], self.y[k], bend_of_utility, self.off[k])
        total, centre, damp, dy, du, ds, dy_aim, du_aim = self._columns
        at = (self.spent, bend, pull, self.weight, total, centre, damp, dy, du)
        matrix, taken = sweeps.weigh(a, q, *point, *at, self._spread, self._tilt, self._taken)
        if not self._in_sweep:
            idle = self.s / self.u
            matrix = goods.curvature(self._spread.T, self._tilt.T, total, idle, bend * damp)
            taken = None
        prices = self._price_system(matrix)
        if prices is None:
            return False
        # Predictor: the step towards products of 0.
        dp = prices(goods.used(self._taken.T, taken), -self.c)
        dc = -self.c - self.c / self.p * dp
        dq = goods.costs_by_place(dp)
        tilt = self.x[:, k] / self.z[:, k] * (a[:, k] - centre[k])
        room, second_of_floors = floors.look_ahead(*self._rise_of_floors(dq, bend[k], tilt))
        aims = ds, dy_aim, du_aim
        forth, back, second, *takes = sweeps.look_ahead(
            a, q, dq, *point, *at, self._cross, *aims, self._taken, self._tilt
        )
        plain = min(1.0, forth, back, self._room(dc, dp), room)
        second = float(second) + float(dc @ dp) + second_of_floors
        ahead = (1.0 - plain) * self.products + plain**2 * second
        aim = max((ahead / self.products) ** 3, 1e-12) * self.products / self.pairs
        # Corrector: towards products of the size that the predictor would leave, with its
        # second-order term.
        cross = dc * dp
        taken, taken_aim = takes if self._in_sweep else (None, None)
        held = goods.used(self._taken.T, taken)
        held += aim * self.unit * goods.used(self._tilt.T, taken_aim)
        dy += aim * self.unit * dy_aim
        du += aim * self.unit * du_aim
        lifted = damp[k] * floors.pull_towards(aim * self.unit)
        dy[k] += lifted
        du[k] += centre[k] * lifted
        held += self._held_by(k, tilt * lifted)
        more = (aim * self.unit_good - cross) / self.p - self.c
        dp = prices(held, more)
        dc = more - self.c / self.p * dp
        dq = goods.costs_by_place(dp)
        to_fill = ds, self._rise, self._cross, self._dx, self._dz
        forth, back = sweeps.complete(
            a,
            q,
            dq,
            *point,
            aim * self.unit,
            bend,
            self.weight,
            total,
            centre,
            damp,
            dy,
            du,
            *to_fill,
        )
        # Stop before the boundary, where products are 0 and no step leads away.
        room = floors.complete(self._rise[k], dy[k], aim * self.unit)
        length = min(1.0, 0.99 * min(forth, back, self._room(dc, dp), room))
        length = self._on_curve(dy, length)
        if not length > 1e-10 or not np.isfinite(dp).all():
            return False
        self.s, self.u = self.s + length * ds, self.u + length * du
        self.y = self.y + length * dy
        self.c, self.p = self.c + length * dc, self.p + length * dp
        floors.advance(length)
        self._evaluate(length)
        return True

    def _rise_of_floors(
        self, dq: FloatArray, bend: FloatArray, tilt: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """By how much the step that `weigh` began raises the levels that have floors, and their
        slopes, shape (F,).
        """
        k = self.floors.k
        total, centre, damp, dy, du, *_ = self._columns[:, k]
        a, x, z = self.a[:, k], self.x[:, k], self.z[:, k]
        q, dq = (some[:, k] if some.shape[1] > 1 else some for some in (self._q, dq))
        more = bend * damp * (tilt * dq).sum(axis=0)
        dy = dy + more
        du = du + centre * more - (x / z * dq).sum(axis=0) / total
        dz = self.u[k] + du + q + dq - a * (self.y[k] + dy) - z
        return (a * (-x - x / z * dz)).sum(axis=0), dy

    def _held_by(self, k: IntArray, time: FloatArray) -> FloatArray:
        """What some classes hold of each good that spend this time in their places, shape (w,
        F).
        """
        if not len(k):
            return np.zeros_like(self.capacity)
        if self.goods.market.good is not None:
            return self.goods.market.held(time @ self.weight[k])
        every = np.zeros_like(self.a)
        every[:, k] = time
        return self.goods.used(every.T)

    def _room(self, dc: FloatArray, dp: FloatArray) -> float:
        """Part of a step that takes the first price, or what is left over of a good, to 0."""
        return min(step_to_boundary(self.c, dc), step_to_boundary(self.p, dp))

    def _price_system(
        self, matrix: FloatArray
    ) -> Callable[[FloatArray, FloatArray], FloatArray] | None:
        """Changes of prices from what the classes hold and what more is left over;
        None for a singular system.
        """
        solve = price_system(matrix, self.c / self.p)
        if solve is None:
            return None
        unheld = self.capacity - self.used - self.c
        return lambda held, more: solve(held + more - unheld)

    def _on_curve(self, dy: FloatArray, length: float) -> float:
        """The part of a step after which slopes are nearer to those of the utility, or stay
        near.
        """
        before = float(np.abs(self.off).max())
        while length > 1e-10:
            self._log_slope = np.log((self.y + length * dy) / self.curve.size)
            worth = self.floors.worth + length * self.floors.dworth
            log_level = np.log(self.tau + length * self._rise)
            off = float(np.abs(self._off(self._log_slope, log_level, worth)).max())
            if off <= max(NEAR, (1.0 - 0.1 * length) * before):
                break
            length *= 0.7
        return length
