"""An interior-point method for the smallest level, for many goods, where cutting planes converge
slowly.

With the notation of `optsched.solvers.prices.interior`, and the slack v_k of each level, the
optimum of max t is where

    z_kj = q_kj(p) + u_k - a_kj y_k >= 0,   sum_j x_kj + s_k = 1,   sum_k N_k G_k x_k + c = W
    tau_k - v_k = t,   sum_k N_k y_k = 1
    x_kj z_kj = 0,   s_k u_k = 0,   v_k y_k = 0,   p_r c_r = 0

A step towards products mu changes the slope of a level by

    dy = (mu - dv dy) / v - y - y / v dv,   dv = dtau - dt + tau - t - v

so a class answers to prices as if it had a utility that bends by y / v, and the sweeps are those of
the sum. All classes share dt: it borders the system in the prices by one row, which is eliminated.

Bound, for any p, y >= 0:  (p . W + sum_k N_k max(0, max_j (a_kj y_k - q_kj))) / sum_k N_k y_k.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from optsched.arrays import FloatArray
from optsched.solvers.prices.cutting_planes import EXACT
from optsched.solvers.prices.interior import InteriorSearch
from optsched.solvers.prices.price_system import price_system, step_to_boundary

log = logging.getLogger("optsched")

STEPS = 200
STALLED = 6
"""Steps without a smaller gap, after which it gets no smaller."""
REACH, MOST = 0.9, 0.99
"""Part of the way to the boundary that a step goes at least, and as far as the predictor, at
most."""


@dataclass(frozen=True)
class MinimumBalance:
    """The state of a search.

    Attributes
    ----------
    time : FloatArray, shape (K, w)
        Before it is scaled into time and capacity.
    prices : FloatArray, shape (R,)
    value, bound : float
        The smallest level when scaled, and what none can be above.
    """

    time: FloatArray
    prices: FloatArray
    value: float
    bound: float

    @property
    def gap(self) -> float:
        """Relative distance between the bound and the value."""
        return self.bound / self.value - 1.0 if self.value > 0 else np.inf


class InteriorMinimum(InteriorSearch):
    """One search.

    Parameters
    ----------
    goods : Goods
    level : FloatArray, shape (K, w)
        a.
    stop : StopRule or None
        Called between steps with value and bound; true ends the search.
    """

    def run(self) -> MinimumBalance:
        """Step until the gap is closed, or gets no smaller."""
        self._starting_point()
        self._evaluate(0.0)
        best, since = self.state, 0
        for step in range(STEPS):
            if best.gap <= EXACT or since == STALLED:
                break
            if self._stop is not None and self._stop(best.value, best.bound):
                break
            if not self._step():
                break
            now = self.state
            since = 0 if now.gap < best.gap else since + 1
            if since == 0:
                # Steps change the table in place.
                best = MinimumBalance(now.time.copy("K"), now.prices, now.value, now.bound)
            log.debug("prices: step %d to the level, gap %.2g", step, now.gap)
        return best

    def _starting_point(self) -> None:
        """Half of the time, evenly, and of what is scarce half of the capacity;
        half of the smallest level, and all products ``unit``.
        """
        weight, level = self.weight, self._start_evenly()
        self.t = 0.5 * float(level.min())
        self.v = level - self.t
        members = float(weight.sum())
        self._start_products(1.0 / float((weight / self.v).sum()))
        self.y = self.unit / self.v
        self.pairs = float(weight @ (self.a > 0).sum(axis=0)) + 3.0 * members
        self._spread, self._tilt, self._taken, self._aimed = np.empty((4, *self.a.shape))

    def _evaluate(self, length: float) -> None:
        """Take this part of the step of x and z, and compute value and bound of the point."""
        goods, weight = self.goods, self.weight
        self._q = goods.costs_by_place(self.p)
        rent = np.empty_like(self.y)
        moved = self._dx, self._dz, length, self.tau, self.spent, rent
        inner = self._sweeps.advance(self.a, self._q, self.x, self.z, self.y, weight, *moved)
        of_classes = float(weight @ (self.s * self.u + self.v * self.y))
        self.products = float(inner) + of_classes + float(self.c @ self.p)
        self.used = goods.used(self.x.T)
        over = max(1.0, float((self.used / self.capacity).max()), float(self.spent.max()))
        spent = float(self.p @ self.capacity) + float(weight @ rent)
        bound = spent / float(weight @ self.y)
        self.state = MinimumBalance(self.x.T, self.p, float(self.tau.min()) / over, bound)

    def _step(self) -> bool:
        """One predictor-corrector step; False where rounding leaves none."""
        sweeps, goods, weight, v = self._sweeps, self.goods, self.weight, self.v
        a, q = self.a, self._q
        point = self.x, self.z, self.s, self.u, self.y
        bend = self.y / v
        pull = -self.y - bend * (self.tau - self.t - v)
        total, centre, damp, dy, du, ds, dy_aim, du_aim = self._columns
        at = (self.spent, bend, pull, weight, total, centre, damp, dy, du)
        sweeps.weigh(a, q, *point, *at, self._spread, self._tilt, self._taken)
        # What a higher t adds to each slope, and by that to what is held.
        steeper = bend * damp
        solve = self._level_system(steeper)
        if solve is None:
            return False
        # Predictor: the step towards products of 0.
        dp, dt = solve(goods.used(self._taken.T), -self.c)
        dc = -self.c - self.c / self.p * dp
        dq = goods.costs_by_place(dp)
        dy += steeper * dt
        du += centre * steeper * dt
        dslope = dy + steeper * np.einsum("jk,jk->k", self._tilt, dq + np.zeros_like(q))
        dv = -v - v / self.y * dslope
        aims = ds, dy_aim, du_aim
        forth, back, second, *_ = sweeps.look_ahead(
            a, q, dq, *point, *at, self._cross, *aims, self._taken, self._aimed
        )
        plain = min(1.0, forth, back, step_to_boundary(v, dv), step_to_boundary(self.y, dslope))
        plain = min(plain, step_to_boundary(self.c, dc), step_to_boundary(self.p, dp))
        cross, cross_level = dc * dp, dv * dslope
        second = float(second) + float(cross.sum()) + float(weight @ cross_level)
        ahead = (1.0 - plain) * self.products + plain**2 * second
        part = max((ahead / self.products) ** 3, 1e-12) * self.products / (self.pairs * self.unit)
        aim = part * self.unit
        # Corrector: towards products of the size that the predictor would leave, with its
        # second-order term.
        dy += aim * dy_aim
        du += aim * du_aim
        lifted = damp * (aim - cross_level) / v
        dy += lifted
        du += centre * lifted
        held = goods.used(self._taken.T) + aim * goods.used(self._aimed.T)
        held += goods.used((self._tilt * lifted).T)
        more = (part * self.unit_good - cross) / self.p - self.c
        dp, dt = solve(held, more)
        dc = more - self.c / self.p * dp
        dq = goods.costs_by_place(dp)
        dy += steeper * dt
        du += centre * steeper * dt
        to_fill = ds, self._rise, self._cross, self._dx, self._dz
        forth, back = sweeps.complete(
            a, q, dq, *point, aim, bend, weight, total, centre, damp, dy, du, *to_fill
        )
        dv = (aim - cross_level - v * dy) / self.y - v
        reach = min(max(REACH, plain), MOST)
        forth = min(forth, step_to_boundary(self.c, dc), step_to_boundary(v, dv))
        back = min(back, step_to_boundary(self.p, dp))
        length, of_prices = min(1.0, reach * forth), min(1.0, reach * back)
        if not min(length, of_prices) > 1e-10 or not np.isfinite(dp).all():
            return False
        self.s, self.v = self.s + length * ds, v + length * dv
        self.c, self.t = self.c + length * dc, self.t + length * dt
        self.u, self.y = self.u + of_prices * du, self.y + of_prices * dy
        self.p = self.p + of_prices * dp
        # `advance` takes steps of one length.
        self._dz *= of_prices / length
        self._evaluate(length)
        return True

    def _level_system(
        self, steeper: FloatArray
    ) -> Callable[[FloatArray, FloatArray], tuple[FloatArray, float]] | None:
        """Changes of prices and of t from what the classes hold and what more is left over, with
        slopes that sum up to 1; None for a singular system.

        Parameters
        ----------
        steeper : FloatArray, shape (K,)
            By how much a unit of t raises each slope.
        """
        goods, (total, _, _, dy, *_) = self.goods, self._columns
        idle = self.s / self.u
        matrix = goods.curvature(self._spread.T, self._tilt.T, total, idle, steeper)
        border = goods.used((self._tilt * steeper).T)
        corner = float(self.weight @ steeper)
        solve = price_system(matrix + np.outer(border, border) / corner, self.c / self.p)
        if solve is None:
            return None
        unheld = self.capacity - self.used - self.c

        def changes(held: FloatArray, more: FloatArray) -> tuple[FloatArray, float]:
            short = 1.0 - float(self.weight @ (self.y + dy))
            dp = solve(held + more - unheld + border * (short / corner))
            return dp, (short - float(border @ dp)) / corner

        return changes
