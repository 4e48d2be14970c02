"""Prices of time and of work, for jobs with deadlines: they prove bounds by weak duality.

Sets
    k: classes of n_k equal jobs that must meet a deadline;  c in C_k: their columns;
    t: intervals, of length L_t;  r: renewable resources;  q = (k, t): a class in an interval.
Parameters
    d_c: duration of all work in column c;  u_rc: what it holds of r;  G_rt: capacity of r in t;
    g_ct: cost of a second in column c during t;
    l_kt: seconds of t between the arrival and the deadline of a job of class k;
    v_k: cost of a job that is not done.
Variables
    y_ct: seconds in column c during t;  m_k: jobs that are missing;  x_k: jobs done in excess;
    s_kt: idle seconds;  f_rt: free capacity.
Program
    minimise  sum_c sum_t g_ct y_ct  +  sum_k v_k m_k
    work      sum_c sum_t y_ct / d_c  +  m_k  -  x_k  =  n_k          dual w_k
    time      sum_c y_ct  +  s_kt  =  n_k l_kt                        dual -e_kt
    capacity  sum_c u_rc y_ct  +  f_rt  =  G_rt L_t                   dual -p_rt
    y, m, x, s, f >= 0
Dual variables
    w_k: price of the work of a job;  p_rt: price of a second of a unit of r in t;
    e_kt: what a second of t earns beyond its cost;
    z_ct = g_ct + sum_r u_rc p_rt + e_kt - w_k / d_c: reduced cost of y_ct;
    h_k = v_k - w_k: reduced cost of m_k.
    w, p, e, z, h >= 0

At an optimum the products y z, s e, f p, m h and x w are 0; the interior-point method keeps all ten
positive and lets the products shrink.

**Bound.** For all p, w >= 0 every schedule that does all work costs at least

    sum_k n_k (w_k - sum_t l_kt e_kt)  -  sum_r sum_t p_rt G_rt L_t
    e_kt = max(0, max_c (w_k / d_c - g_ct - sum_r u_rc p_rt))

If this is above 0 where g = 0, there is no such schedule (J. Farkas, "Theorie der einfachen
Ungleichungen", 1902).

S. Mehrotra, "On the implementation of a primal-dual interior point method", SIAM Journal on
Optimization 2(4), 1992.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided
from scipy.linalg import LinAlgError, cho_factor, cho_solve, cho_solve_banded, cholesky_banded

from optsched.arrays import FloatArray, IntArray
from optsched.instance.durations import Timer

MOST_STEPS = 60
"""Newton steps at most."""
TO_BOUNDARY = 0.99
"""Fraction of the way to the boundary that a step goes at most."""
ALL_DONE = 1e-7
"""If a smaller part of all work is missing, all of it can be done: the search for a proof ends."""
CLOSE = 1e-3
"""The search for a bound ends at a duality gap below this part of the bound."""
ROUNDING = 1e-6
"""Part of what is paid and available by which sums of prices may be rounded."""
MOST_PRICES = 3_000
"""Prices p up to which the Newton system of the prices is considered: it is a dense matrix."""
MOST_IN_BAND = 20_000_000
"""Entries of the band matrix of the classes up to which a program is solved."""
CLASSES_AT_ONCE = 512
"""Classes that are eliminated by one product of matrices."""
PAIRS = (("y", "z"), ("s", "e"), ("f", "p"), ("m", "h"), ("x", "w"))
"""Each primal variable and the dual one that is 0 where it is positive."""

Direction = dict[str, FloatArray]
"""Changes of variables by their names in `PAIRS`."""
Solve = Callable[[FloatArray, FloatArray], tuple[FloatArray, FloatArray]]
"""Right sides of the reduced Newton system, (K,) and (T, R) -> dw, (K,), and dp, (T, R)."""


class Unaffordable(NamedTuple):
    """What jobs must pay at some prices, and what all time costs.

    Attributes
    ----------
    classes : IntArray
        The fewest classes that must pay too much.
    first, last : int
        Intervals whose time has a price, the first and the last one.
    asked, available : float
        In the unit of ``worth``.
    """

    classes: IntArray
    first: int
    last: int
    asked: float
    available: float


class DualPrices(NamedTuple):
    """Prices of time, of a second of a unit (T, R), and of the work of a job (K,).

    ``missing`` is the part of the work that the primal point leaves out, weighted by what it costs
    to leave it out.
    """

    time: FloatArray
    work: FloatArray
    missing: float


@dataclass(frozen=True, eq=False)
class PricedTime:
    """Columns in intervals that pay for the time on resources that they hold.

    Attributes
    ----------
    k, t : IntArray, shape (y,)
        Class and interval of each column in an interval, ascending.
    rate, cost : FloatArray, shape (y,)
        1 / d_c and g_ct.
    entry, resource : IntArray, shape (entries,)
        Which y holds which resource; entries of a y are beside one another.
    amount : FloatArray, shape (entries,)
        u_rc.
    seconds : FloatArray, shape (Q,)
        n_k l_kt of each class and interval of y, in the same order.
    there : FloatArray, shape (T, R)
        G_rt L_t.
    count, worth : FloatArray, shape (K,)
        n_k and v_k.
    """

    k: IntArray
    t: IntArray
    rate: FloatArray
    cost: FloatArray
    entry: IntArray
    resource: IntArray
    amount: FloatArray
    seconds: FloatArray
    there: FloatArray
    count: FloatArray
    worth: FloatArray

    def unaffordable(self, timer: Timer) -> Unaffordable | None:
        """Prices that show that the jobs cannot all be kept; None if none are found, in time."""
        free = replace(self, cost=np.zeros(len(self.k)))
        for at in free.points(timer):
            if at.missing <= ALL_DONE:
                return None
            found = free.shown_by(at.p, at.w)
            if found is not None:
                return found
        return None

    def prices(self, timer: Timer) -> DualPrices | None:
        """The prices with the highest bound that are found, in time; None if none has one above
        0.
        """
        best, highest = None, 0.0
        for at in self.points(timer):
            bound = self.bound(at.p, at.w)
            if bound > highest:
                best, highest = DualPrices(at.p, at.w, at.missing), bound
            if at.gap <= CLOSE * highest:
                break
        return best

    def bound(self, p: FloatArray, w: FloatArray) -> float:
        """What every schedule costs at least, by prices of time (T, R) and of work (K,)."""
        return float(self._pays(p, w).sum() - (p * self.there).sum())

    def shown_by(self, p: FloatArray, w: FloatArray) -> Unaffordable | None:
        """What prices of time (T, R) and of work (K,) show."""
        pays, there = self._pays(p, w), float((p * self.there).sum())
        greatest = np.argsort(-pays, kind="stable")
        added = np.cumsum(pays[greatest])
        # Duals and sums are rounded, relative to all that is paid for time.
        rounding = ROUNDING * (there + float(w @ self.count))
        if added.max(initial=0.0) <= there + rounding:
            return None
        enough = 1 + int(np.argmax(added > there + rounding))
        priced = np.flatnonzero((p * self.there).sum(axis=1) > ROUNDING * there)
        first, last = int(priced[0]), int(priced[-1])
        return Unaffordable(
            np.sort(greatest[:enough]), first, last, float(added[enough - 1]), there
        )

    def _pays(self, p: FloatArray, w: FloatArray) -> FloatArray:
        """What jobs of each class pay for time at least, n_k (w_k - sum_t l_kt e_kt); (K,)."""
        earned = self.rate * w[self.k] - self.cost - self.charged(p)
        most = np.maximum(np.maximum.reduceat(earned, self.starts), 0.0)
        return np.asarray(self.count * w - self.by_class(most * self.seconds))

    def points(self, timer: Timer) -> Iterator[_InteriorPoint]:
        """The points of the interior-point method, until the time is over."""
        if not self._is_solvable:
            return
        point = _InteriorPoint(self)
        for _ in range(MOST_STEPS):
            yield point
            if timer.is_over:
                return
            try:
                point.step()
            except (LinAlgError, np.linalg.LinAlgError):
                return  # numbers are too different for further steps

    # --- sums -------------------------------------------------------------------------------------

    def charged(self, p: FloatArray) -> FloatArray:
        """What the time of a second of each y costs at prices (T, R)."""
        of_entry = self.amount * p.ravel()[self.place]
        return np.bincount(self.entry, of_entry, len(self.k)).astype(np.float64)

    def held(self, y: FloatArray) -> FloatArray:
        """What is held of each resource in each interval, (T, R)."""
        amount = np.bincount(self.place, self.amount * y[self.entry], self.there.size)
        return np.asarray(amount.reshape(self.there.shape))

    def by_class(self, of_q: FloatArray) -> FloatArray:
        """Sums over the intervals of each class, (K,)."""
        return np.bincount(self.k_q, of_q, len(self.count)).astype(np.float64)

    def by_second(self, of_y: FloatArray) -> FloatArray:
        """Sums over the columns of each class in each interval, (Q,)."""
        return np.asarray(np.add.reduceat(of_y, self.starts))

    def by_price(self, of_q: FloatArray) -> FloatArray:
        """Sums over the classes in each interval, (Q, R) -> (T, R)."""
        sums = [np.bincount(self.t_q, each, len(self.there)) for each in of_q.T]
        return np.stack(sums, axis=1).astype(np.float64)

    def by_resource(self, of_entry: FloatArray) -> FloatArray:
        """Sums over the columns of each class in each interval, (entries,) -> (Q, R)."""
        sums = np.bincount(self._q_place, of_entry, len(self.starts) * self.there.shape[1])
        return np.asarray(sums.reshape(len(self.starts), self.there.shape[1]))

    # --- indices ----------------------------------------------------------------------------------

    @cached_property
    def starts(self) -> IntArray:
        """The first y of each q = (k, t), (Q,)."""
        other = (np.diff(self.k, prepend=-1) != 0) | (np.diff(self.t, prepend=-1) != 0)
        return np.flatnonzero(other).astype(np.int64)

    @cached_property
    def q(self) -> IntArray:
        """q = (k, t) of each y, an index of `starts`."""
        return np.repeat(np.arange(len(self.starts)), np.diff(np.append(self.starts, len(self.k))))

    @cached_property
    def k_q(self) -> IntArray:
        """Class k of each q = (k, t), (Q,)."""
        return self.k[self.starts]

    @cached_property
    def t_q(self) -> IntArray:
        """Interval t of each q = (k, t), (Q,)."""
        return self.t[self.starts]

    @cached_property
    def place(self) -> IntArray:
        """Interval and resource of each entry, as one number."""
        return np.asarray(self.t[self.entry] * self.there.shape[1] + self.resource)

    @cached_property
    def _q_place(self) -> IntArray:
        """Class and interval q, and resource of each entry, as one number."""
        return np.asarray(self.q[self.entry] * self.there.shape[1] + self.resource)

    @cached_property
    def pairs(self) -> tuple[IntArray, IntArray]:
        """All ordered pairs of entries of the same y: those that come first, and second."""
        count = np.bincount(self.entry, minlength=len(self.k))
        first = np.cumsum(count) - count
        most = int(count.max(initial=0))
        both = [
            (first[one] + a, first[one] + b)
            for a in range(most)
            for b in range(most)
            for one in [np.flatnonzero(count > max(a, b))]
        ]
        return np.concatenate([a for a, _ in both]), np.concatenate([b for _, b in both])

    @cached_property
    def in_time(self) -> tuple[IntArray, IntArray]:
        """All q = (k, t) in order of t, and where each interval begins among them, (T + 1,)."""
        order = np.argsort(self.t_q, kind="stable")
        begins = np.searchsorted(self.t_q[order], np.arange(len(self.there) + 1))
        return order, begins.astype(np.int64)

    @cached_property
    def position(self) -> IntArray:
        """Of each class among all, in order of their first intervals, (K,)."""
        first = np.full(len(self.count), len(self.there))
        np.minimum.at(first, self.k_q, self.t_q)
        position = np.empty(len(first), np.int64)
        position[np.argsort(first, kind="stable")] = np.arange(len(first))
        return position

    @cached_property
    def band(self) -> int:
        """Largest distance of two classes that have an interval in common."""
        order, begins = self.in_time
        begins = begins[:-1][np.diff(begins) > 0]
        position = self.position[self.k_q[order]]
        width = np.maximum.reduceat(position, begins) - np.minimum.reduceat(position, begins)
        return int(width.max())

    @cached_property
    def by_jobs(self) -> bool:
        """Whether the prices are eliminated, and the jobs are left."""
        of_interval = np.diff(self.in_time[1]).astype(np.float64)
        of_jobs = float((of_interval**2).sum()) * self.there.shape[1] * 3
        of_jobs += len(self.count) * float(self.band) ** 2
        return self.there.size > MOST_PRICES or of_jobs < len(self.count) * self.there.size**2 / 8

    @property
    def _is_solvable(self) -> bool:
        if not len(self.k):
            return False
        return not self.by_jobs or len(self.count) * (2 * self.band + 1) <= MOST_IN_BAND


class _InteriorPoint:
    """The variables of the program and of its dual, all positive; names as in the module's text."""

    def __init__(self, program: PricedTime) -> None:
        self.P = P = program
        columns = np.bincount(P.q)
        # y: about half of the work, spread evenly over intervals and columns.
        could_do = P.by_class(P.by_second(P.rate) / columns * P.seconds)
        part = np.minimum(1.0, P.count / np.maximum(could_do, 1e-300))[P.k]
        self.y = np.maximum(part * 0.5 * (P.seconds / columns)[P.q], 1e-6 * P.seconds[P.q])
        self.s = 0.5 * P.seconds
        self.f = np.maximum(0.5 * P.there, 1e-9 * float(P.there.max()))
        self.m, self.x = 0.5 * P.count, 0.5 * P.count
        # w + h = v holds from the beginning.
        self.w, self.h = 0.3 * P.worth, 0.7 * P.worth
        typical_pay = float(np.median(P.worth) * np.median(P.rate))
        price = 1e-3 * typical_pay + 0.3 * float(np.median(P.cost))
        self.p = np.full(P.there.shape, price)
        self.e = np.full(len(P.seconds), 0.1 * float(self.p.mean()))
        cost = P.cost + P.charged(self.p)
        self.z = np.maximum(cost + self.e[P.q] - P.rate * self.w[P.k], 0.3 * cost)

    @property
    def missing(self) -> float:
        """The part of the work that the point leaves out, weighted by what that costs."""
        P = self.P
        undone = P.count - P.by_class(P.by_second(P.rate * self.y))
        left_out = np.maximum(np.maximum(undone, self.m), 0.0)
        return float(P.worth @ left_out) / float(P.worth @ P.count)

    @property
    def gap(self) -> float:
        """Sum of all products: the duality gap, once the point keeps all rows."""
        return sum(float(each.sum()) for each in self._products())

    def step(self) -> None:
        """One step of Mehrotra's predictor-corrector method."""
        newton = _Newton(self)
        products = self._products()
        size = sum(each.size for each in products)
        mu = sum(float(each.sum()) for each in products) / size

        # Predictor: how far do the products shrink on the way to 0?
        primal, dual = newton.direction([-each for each in products])
        reached = self._products(self._cut_short(primal) | self._cut_short(dual))
        mu_reached = sum(float(each.sum()) for each in reached) / size

        # Corrector: all products to one target, with the second-order term of the predictor.
        target = mu * (mu_reached / mu) ** 3
        targets = [
            target - product - primal[name] * dual[of_dual]
            for product, (name, of_dual) in zip(products, PAIRS, strict=True)
        ]
        for direction in newton.direction(targets):
            length = min(1.0, TO_BOUNDARY * self._step_length(direction))
            for name, change in direction.items():
                setattr(self, name, getattr(self, name) + length * change)

    def _products(self, changes: Direction | None = None) -> list[FloatArray]:
        """The products of `PAIRS`, after some changes of the variables."""
        after = {
            name: getattr(self, name) + (0.0 if changes is None else changes[name])
            for name in chain.from_iterable(PAIRS)
        }
        return [after[a] * after[b] for a, b in PAIRS]

    def _cut_short(self, direction: Direction) -> Direction:
        """The direction up to the boundary, at most a whole step."""
        length = self._step_length(direction)
        return {name: length * change for name, change in direction.items()}

    def _step_length(self, direction: Direction) -> float:
        """The largest part of a step, at most 1, at which no variable is below 0."""
        steepest = max(float((-d / getattr(self, name)).max()) for name, d in direction.items())
        return 1.0 if steepest <= 1.0 else 1.0 / steepest


class _Newton:
    """The Newton system at a point.

    The steps of the variables, dy, dz, ..., keep the rows of both programs, linearised, and change
    each product by a given amount, as in y dz + z dy = r_y. Elimination in this order:

        dz = sum_r u_rc dp_rt + de_kt - dw_k / d_c + reduced_cost_residual
        dy = r_y / z - theta dz                     theta = y / z
        de = (idle - sum_r H_qr dp_rt + b_q dw_k) / a_q

    with, as sums over the columns of q = (k, t),

        a_q  = sum_c theta + s / e      `theta_sum`
        b_q  = sum_c theta / d_c        `work_rate`
        H_qr = sum_c theta u_rc         `holding`

    What is left is a system of the prices and the classes:

        [  A   -B' ] [ dp ]     A: a block (R, R) for each interval, `_price_blocks`
        [ -B    D  ] [ dw ]     B: an entry for each q and r, `coupling`;  D: diagonal, `diagonal`

    If intervals are many, dp is eliminated: D - B A^-1 B' is a band matrix, as classes are coupled
    only if their times overlap. If they are few, dw is eliminated.
    """

    def __init__(self, point: _InteriorPoint) -> None:
        self.point, self.P = point, point.P
        self._set_residuals()
        self._set_coefficients()
        self.solve = self._without_prices() if self.P.by_jobs else self._without_classes()

    def _set_residuals(self) -> None:
        """Right side minus left side of each row, at the point."""
        P, at = self.P, self.point
        self.capacity_residual = P.there - at.f - P.held(at.y)
        self.time_residual = P.seconds - at.s - P.by_second(at.y)
        done = P.by_class(P.by_second(P.rate * at.y))
        self.work_residual = P.count - done - at.m + at.x
        reduced_cost = P.cost + P.charged(at.p) + at.e[P.q] - P.rate * at.w[P.k]
        self.reduced_cost_residual = reduced_cost - at.z
        self.worth_residual = P.worth - at.w - at.h

    def _set_coefficients(self) -> None:
        """Sums over the columns of each class in each interval, and the diagonal of the classes."""
        P, at = self.P, self.point
        self.theta = theta = at.y / at.z
        self.theta_sum = P.by_second(theta) + at.s / at.e
        self.work_rate = P.by_second(theta * P.rate)
        held = theta[P.entry] * P.amount
        self.holding = P.by_resource(held)
        self.coupling = (
            P.by_resource(held * P.rate[P.entry])
            - (self.work_rate / self.theta_sum)[:, np.newaxis] * self.holding
        )
        own = P.by_second(theta * P.rate**2) - self.work_rate**2 / self.theta_sum
        # Only rounding makes it negative (Cauchy-Schwarz).
        self.diagonal = P.by_class(np.maximum(own, 0.0)) + at.m / at.h + at.x / at.w

    @cached_property
    def _price_blocks(self) -> FloatArray:
        """The blocks of A, one for each interval, (T, R, R)."""
        P, (a, b) = self.P, self.P.pairs
        intervals, resources = P.there.shape
        place = P.place[a] * resources + P.resource[b]
        together = P.amount[a] * P.amount[b] * self.theta[P.entry[a]]
        blocks = np.bincount(place, together, intervals * resources**2)
        blocks = blocks.reshape(intervals, resources, resources)
        diagonal = np.arange(resources)
        blocks[:, diagonal, diagonal] += self.point.f / self.point.p
        order, begins = P.in_time
        scaled = (self.holding / np.sqrt(self.theta_sum)[:, np.newaxis])[order]
        for t in range(intervals):
            of_t = scaled[begins[t] : begins[t + 1]]
            blocks[t] -= of_t.T @ of_t
        return np.asarray(blocks)

    def _without_prices(self) -> Solve:
        """Eliminate dp: a Cholesky factor of the band matrix D - B A^-1 B'."""
        P = self.P
        inverse = np.asarray(np.linalg.inv(self._price_blocks), np.float64)
        factor = cholesky_banded(self._lower_band(inverse), lower=True, check_finite=False)
        in_order = np.argsort(P.position)

        def solve(side_w: FloatArray, side_p: FloatArray) -> tuple[FloatArray, FloatArray]:
            side = side_w + self._coupled_to_classes(np.einsum("tij,tj->ti", inverse, side_p))
            dw = cho_solve_banded((factor, True), side[in_order], check_finite=False)[P.position]
            dp = np.einsum("tij,tj->ti", inverse, side_p + self._coupled_to_prices(dw))
            return dw, dp

        return solve

    def _lower_band(self, inverse: FloatArray) -> FloatArray:
        """The lower band of D - B A^-1 B', as `cholesky_banded` takes it; classes are in order of
        their first intervals.
        """
        P, width, classes = self.P, self.P.band, len(self.P.count)
        order, begins = P.in_time
        coupling, position = self.coupling[order], P.position[P.k_q[order]]
        root = np.linalg.cholesky(inverse)
        # Row j is column j of the matrix: `width` entries above the diagonal, and as many below.
        band = np.zeros((classes, 2 * width + 1))
        band[P.position, width] = self.diagonal
        # The same numbers as a square matrix: entry (i, j) is number width + i + 2 width j of band.
        square = as_strided(band.ravel()[width:], (classes, classes), (8, 16 * width))
        for t in np.flatnonzero(np.diff(begins)).tolist():
            of_t = coupling[begins[t] : begins[t + 1]] @ root[t]
            at = position[begins[t] : begins[t + 1]]
            square[at[:, np.newaxis], at] -= of_t @ of_t.T
        return np.asarray(band[:, width:].T)

    def _without_classes(self) -> Solve:
        """Eliminate dw: a Cholesky factor of the dense matrix A - B' D^-1 B."""
        P = self.P
        factor = cho_factor(self._price_matrix(), lower=True, overwrite_a=True, check_finite=False)

        def solve(side_w: FloatArray, side_p: FloatArray) -> tuple[FloatArray, FloatArray]:
            side = side_p + self._coupled_to_prices(side_w / self.diagonal)
            dp = cho_solve(factor, side.ravel()).reshape(P.there.shape)
            return (side_w + self._coupled_to_classes(dp)) / self.diagonal, dp

        return solve

    def _price_matrix(self) -> FloatArray:
        """The matrix A - B' D^-1 B, (T R, T R)."""
        P, size = self.P, self.P.there.size
        intervals, resources = P.there.shape
        matrix = np.zeros((size, size))
        blocks = matrix.reshape(intervals, resources, intervals, resources)
        blocks[np.arange(intervals), :, np.arange(intervals)] = self._price_blocks
        scaled = self.coupling / np.sqrt(self.diagonal)[P.k_q][:, np.newaxis]
        for first in range(0, len(P.count), CLASSES_AT_ONCE):
            begin, end = np.searchsorted(P.k_q, [first, first + CLASSES_AT_ONCE])
            rows = np.zeros((min(CLASSES_AT_ONCE, len(P.count) - first), size))
            by_interval = rows.reshape(-1, intervals, resources)
            by_interval[P.k_q[begin:end] - first, P.t_q[begin:end]] = scaled[begin:end]
            matrix -= rows.T @ rows
        return matrix

    def _coupled_to_classes(self, dp: FloatArray) -> FloatArray:
        """The product B dp, shape (K,)."""
        return self.P.by_class((self.coupling * dp[self.P.t_q]).sum(axis=1))

    def _coupled_to_prices(self, dw: FloatArray) -> FloatArray:
        """B' dw, (T, R)."""
        return self.P.by_price(self.coupling * dw[self.P.k_q][:, np.newaxis])

    def direction(self, changes: list[FloatArray]) -> tuple[Direction, Direction]:
        """Steps of the primal and of the dual variables that change the products of `PAIRS` so."""
        P, at = self.P, self.point
        r_y, r_s, r_f, r_m, r_x = changes
        # The parts of dy and de that depend neither on dp nor on dw.
        free = r_y / at.z - self.theta * self.reduced_cost_residual
        idle = P.by_second(free) + r_s / at.e - self.time_residual

        side_p = P.held(free) + r_f / at.p - self.capacity_residual
        side_p -= P.by_price(self.holding * (idle / self.theta_sum)[:, np.newaxis])
        done = P.by_second(P.rate * free) - self.work_rate * idle / self.theta_sum
        side_w = self.work_residual - P.by_class(done)
        side_w += (at.m * self.worth_residual - r_m) / at.h + r_x / at.w

        dw, dp = self.solve(side_w, side_p)
        de = idle - (self.holding * dp[P.t_q]).sum(axis=1) + self.work_rate * dw[P.k_q]
        de /= self.theta_sum
        dz = P.charged(dp) + de[P.q] - P.rate * dw[P.k] + self.reduced_cost_residual
        dh = self.worth_residual - dw
        primal = {
            "y": r_y / at.z - self.theta * dz,
            "s": (r_s - at.s * de) / at.e,
            "f": (r_f - at.f * dp) / at.p,
            "m": (r_m - at.m * dh) / at.h,
            "x": (r_x - at.x * dw) / at.w,
        }
        return primal, {"z": dz, "e": de, "p": dp, "h": dh, "w": dw}
