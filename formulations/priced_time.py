"""Prices of time on resources, and of the work of jobs with deadlines: what they show of a program.

Sets
    k: classes of n_k equal jobs that must meet a deadline;  c in C_k: their columns;
    t: intervals, of length L_t;  r: renewable resources.
Parameters
    d_c: duration of all work in column c;  u_rc: what it holds of r;  G_rt: capacity of r in t;
    g_ct: cost of a second in column c during t;
    l_kt: seconds of t between the arrival and the deadline of a job of class k.

Whatever the prices p_rt >= 0 of a second of a unit are, and whatever each job pays for its work,
w_k >= 0, every schedule costs at least

    sum_k n_k (w_k - sum_t l_kt e_kt)  -  sum_r sum_t p_rt G_rt L_t
    e_kt = max(0, max_c (w_k / d_c - g_ct - sum_r p_rt u_rc))   what a second of t earns beyond its cost

as jobs do n_k of their work, earn at most e_kt in a second, and hold no more than there is (weak
duality). If that is above 0 where g = 0, there is no schedule (J. Farkas, "Theorie der einfachen
Ungleichungen", 1902). Such prices are sought by an interior-point method for

    minimise  sum_c sum_t g_ct y_ct + sum_k v_k m_k
    s.t.      sum_c sum_t y_ct / d_c + m_k >= n_k,  sum_c y_ct <= n_k l_kt,  sum u_rc y_ct <= G_rt L_t

where v_k is the cost of a job that is not done.

Its Newton systems are small, because a job is tied to the others by prices alone: seconds of a job
in an interval are eliminated first, then the prices of each interval. What is left are the jobs,
tied to those whose times overlap, a band. Where intervals are few, the jobs are eliminated instead.

S. Mehrotra, "On the implementation of a primal-dual interior point method", SIAM Journal on
Optimization 2(4), 1992.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided
from scipy.linalg import LinAlgError, cho_factor, cho_solve, cho_solve_banded, cholesky_banded

from optsched.arrays import FloatArray, IntArray
from optsched.instance.durations import Timer

STEPS = 60
"""Newton steps at most."""
FAR = 0.99
"""Part of the way to the boundary that a step takes."""
KEPT = 1e-7
"""Part of the work; if less is missing, no prices that show a shortage are sought any more."""
NEAR = 1e-3
"""Part of the cost by which the bound of prices may be below the optimum."""
OFF = 1e-6
"""Part of an amount by which a certificate lets rows be violated."""
MOST_PRICES, MOST_BAND = 3_000, 20_000_000
"""Largest systems that are solved: prices, and numbers in the band of jobs."""
AT_ONCE = 512
"""Jobs that are eliminated by one product of matrices."""
PAIRS = (("y", "z"), ("s", "e"), ("g", "p"), ("m", "u"), ("x", "w"))
"""Parts of a point, each beside its price; see `_PriceSearch`."""

Solve = Callable[[FloatArray, FloatArray], tuple[FloatArray, FloatArray]]
"""Right sides of the jobs (K,) and the prices (T, R) -> their steps."""


class Unaffordable(NamedTuple):
    """What jobs must pay at some prices, and what all time costs.

    Attributes
    ----------
    classes : IntArray
        The fewest classes that must pay too much.
    first, last : int
        Intervals whose time has a price, the first and the last one.
    asked, available : float
        In seconds.
    """

    classes: IntArray
    first: int
    last: int
    asked: float
    available: float


class Prices(NamedTuple):
    """Prices of time, of a second of a unit (T, R), and of the work of a job (K,)."""

    time: FloatArray
    work: FloatArray


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
            if at.missing <= KEPT * float(self.worth @ self.count):
                return None
            found = free.shown_by(at.p, at.w)
            if found is not None:
                return found
        return None

    def prices(self, timer: Timer) -> Prices | None:
        """The prices with the highest bound that are found, in time; None if none has one above
        0.
        """
        best, highest = None, 0.0
        for at in self.points(timer):
            bound = self.bound(at.p, at.w)
            if bound > highest:
                best, highest = Prices(at.p, at.w), bound
            if at.gap <= NEAR * highest:
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
        rounding = OFF * (there + float(w @ self.count))
        if added.max(initial=0.0) <= there + rounding:
            return None
        enough = 1 + int(np.argmax(added > there + rounding))
        priced = np.flatnonzero((p * self.there).sum(axis=1) > OFF * there)
        first, last = int(priced[0]), int(priced[-1])
        return Unaffordable(
            np.sort(greatest[:enough]), first, last, float(added[enough - 1]), there
        )

    def _pays(self, p: FloatArray, w: FloatArray) -> FloatArray:
        """What jobs of each class pay for time at least, n_k (w_k - sum_t l_kt e_kt); (K,)."""
        earned = self.rate * w[self.k] - self.cost - self.charged(p)
        most = np.maximum(np.maximum.reduceat(earned, self.starts), 0.0)
        return np.asarray(self.count * w - self.by_class(most * self.seconds))

    def points(self, timer: Timer) -> Iterator[_PriceSearch]:
        """The points of the interior-point method, until the time is over."""
        if not self._is_solvable:
            return
        search = _PriceSearch(self)
        for _ in range(STEPS):
            yield search
            if timer.is_over:
                return
            try:
                search.step()
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

    # --- indices ----------------------------------------------------------------------------------

    @cached_property
    def starts(self) -> IntArray:
        """The first y of each class and interval, (Q,)."""
        other = (np.diff(self.k, prepend=-1) != 0) | (np.diff(self.t, prepend=-1) != 0)
        return np.flatnonzero(other).astype(np.int64)

    @cached_property
    def q(self) -> IntArray:
        """Class and interval of each y, an index of `starts`."""
        return np.repeat(np.arange(len(self.starts)), np.diff(np.append(self.starts, len(self.k))))

    @cached_property
    def k_q(self) -> IntArray:
        return self.k[self.starts]

    @cached_property
    def t_q(self) -> IntArray:
        return self.t[self.starts]

    @cached_property
    def place(self) -> IntArray:
        """Interval and resource of each entry, as one number."""
        return np.asarray(self.t[self.entry] * self.there.shape[1] + self.resource)

    @cached_property
    def q_place(self) -> IntArray:
        """The same with class and interval instead of the interval."""
        return np.asarray(self.q[self.entry] * self.there.shape[1] + self.resource)

    @cached_property
    def pairs(self) -> tuple[IntArray, IntArray]:
        """Entries of the same y."""
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
        """Classes and intervals in order of time; where each interval begins among them, (T + 1,)."""
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
        return not self.by_jobs or len(self.count) * (2 * self.band + 1) <= MOST_BAND


class _PriceSearch:
    """The point of the interior-point method: each part of it beside its price.

    y and z, s (idle seconds of classes) and e, g (idle time on resources) and p, m (missing work)
    and v - w, x (work too much) and w.
    """

    def __init__(self, program: PricedTime) -> None:
        self.P = P = program
        count, worth, places = P.count, P.worth, np.bincount(P.q)
        self.s, self.g, self.m, self.x = 0.5 * P.seconds, 0.5 * P.there, 0.5 * count, 0.5 * count
        could = P.by_class(P.by_second(P.rate) / places * P.seconds)
        part = np.minimum(1.0, count / np.maximum(could, 1e-300))[P.k]
        self.y = np.maximum(part * 0.5 * (P.seconds / places)[P.q], 1e-6 * P.seconds[P.q])
        price = 1e-3 * float(np.median(worth) * np.median(P.rate)) + 0.3 * float(np.median(P.cost))
        self.p = np.full(P.there.shape, price)
        self.e = np.full(len(P.seconds), 0.1 * float(self.p.mean()))
        self.w, self.u = 0.3 * worth, 0.7 * worth
        cost = P.cost + P.charged(self.p)
        self.z = np.maximum(cost + self.e[P.q] - P.rate * self.w[P.k], 0.3 * cost)
        self.g = np.maximum(self.g, 1e-9 * float(P.there.max()))

    @property
    def missing(self) -> float:
        """Worth of the work that the point misses."""
        short = self.P.count - self.P.by_class(self.P.by_second(self.P.rate * self.y))
        return float(self.P.worth @ np.maximum(np.maximum(short, self.m), 0.0))

    @property
    def gap(self) -> float:
        """Difference to the cost of the prices, where the point misses nothing."""
        return sum(float((getattr(self, a) * getattr(self, b)).sum()) for a, b in PAIRS)

    def step(self) -> None:
        """Newton's step with Mehrotra's second-order term."""
        newton = _Newton(self)
        products = [getattr(self, a) * getattr(self, b) for a, b in PAIRS]
        size = sum(each.size for each in products)
        mu = sum(float(each.sum()) for each in products) / size
        point, prices = newton.solved([-each for each in products])
        far = self._length(point), self._length(prices)
        later = sum(
            float(
                (
                    (getattr(self, a) + far[0] * point[a]) * (getattr(self, b) + far[1] * prices[b])
                ).sum()
            )
            for a, b in PAIRS
        )
        aim = mu * (later / size / mu) ** 3
        aims = [
            aim - each - point[a] * prices[b] for each, (a, b) in zip(products, PAIRS, strict=True)
        ]
        for way in newton.solved(aims):
            length = min(1.0, FAR * self._length(way))
            for name, change in way.items():
                setattr(self, name, getattr(self, name) + length * change)

    def _length(self, way: dict[str, FloatArray]) -> float:
        """How far the point can go before a part of it is 0."""
        steepest = max(float((-d / getattr(self, name)).max()) for name, d in way.items())
        return 1.0 if steepest <= 1.0 else 1.0 / steepest


class _Newton:
    """The Newton system at a point, reduced to jobs or prices."""

    def __init__(self, at: _PriceSearch) -> None:
        self.at, self.P = at, at.P
        P, shape = self.P, (len(at.s), self.P.there.shape[1])
        self.over = P.there - at.g - P.held(at.y)
        self.late = P.seconds - at.s - P.by_second(at.y)
        self.short = P.count - P.by_class(P.by_second(P.rate * at.y)) - at.m + at.x
        self.off = P.cost + P.charged(at.p) + at.e[P.q] - P.rate * at.w[P.k] - at.z
        self.off_w = P.worth - at.w - at.u
        self.theta = at.y / at.z
        held = self.theta[P.entry] * P.amount
        self.time = P.by_second(self.theta) + at.s / at.e
        self.done = P.by_second(self.theta * P.rate)
        self.holds = np.bincount(P.q_place, held, shape[0] * shape[1]).reshape(shape)
        ties = np.bincount(P.q_place, held * P.rate[P.entry], shape[0] * shape[1]).reshape(shape)
        self.ties = ties - (self.done / self.time)[:, np.newaxis] * self.holds
        own = P.by_second(self.theta * P.rate**2) - self.done**2 / self.time
        self.own = P.by_class(own) + at.m / at.u + at.x / at.w
        self.solve = self._by_jobs() if P.by_jobs else self._by_prices()

    @cached_property
    def _of_prices(self) -> FloatArray:
        """The systems of the prices of each interval, without jobs, (T, R, R)."""
        P, (a, b) = self.P, self.P.pairs
        intervals, count = P.there.shape
        place = P.place[a] * count + P.resource[b]
        worth = P.amount[a] * P.amount[b] * self.theta[P.entry[a]]
        system = np.bincount(place, worth, intervals * count**2).reshape(intervals, count, count)
        system[:, np.arange(count), np.arange(count)] += self.at.g / self.at.p
        order, begins = P.in_time
        holds = (self.holds / np.sqrt(self.time)[:, np.newaxis])[order]
        for t in range(intervals):
            part = holds[begins[t] : begins[t + 1]]
            system[t] -= part.T @ part
        return np.asarray(system)

    def _by_jobs(self) -> Solve:
        """Prices are eliminated, one interval after the other."""
        P, width = self.P, self.P.band
        order, begins = P.in_time
        inverse = np.linalg.inv(self._of_prices)
        root = np.linalg.cholesky(inverse)
        ties, position = self.ties[order], P.position[P.k_q[order]]
        jobs = len(P.count)
        numbers = np.zeros((jobs, 2 * width + 1))
        numbers[P.position, width] = self.own
        # Row i, column j of the system is the number width + i + 2 width j.
        square = as_strided(numbers.ravel()[width:], (jobs, jobs), (8, 16 * width))
        for t in np.flatnonzero(np.diff(begins)).tolist():
            part = ties[begins[t] : begins[t + 1]] @ root[t]
            at = position[begins[t] : begins[t + 1]]
            square[at[:, np.newaxis], at] -= part @ part.T
        lower = cholesky_banded(numbers[:, width:].T, lower=True, check_finite=False)
        in_order = np.argsort(P.position)

        def solve(of_jobs: FloatArray, of_prices: FloatArray) -> tuple[FloatArray, FloatArray]:
            first = np.einsum("tij,tj->ti", inverse, of_prices)
            side = of_jobs + P.by_class((self.ties * first[P.t_q]).sum(axis=1))
            w = cho_solve_banded((lower, True), side[in_order], check_finite=False)[P.position]
            tied = P.by_price(self.ties * w[P.k_q][:, np.newaxis])
            return w, np.einsum("tij,tj->ti", inverse, of_prices + tied)

        return solve

    def _by_prices(self) -> Solve:
        """Jobs are eliminated, some hundred at a time."""
        P = self.P
        intervals, count = P.there.shape
        system = np.zeros((P.there.size, P.there.size))
        blocks = system.reshape(intervals, count, intervals, count)
        blocks[np.arange(intervals), :, np.arange(intervals)] = self._of_prices
        ties = self.ties / np.sqrt(self.own)[P.k_q][:, np.newaxis]
        for first in range(0, len(P.count), AT_ONCE):
            begin, end = np.searchsorted(P.k_q, [first, first + AT_ONCE])
            dense = np.zeros((min(AT_ONCE, len(P.count) - first), P.there.size))
            at_once = dense.reshape(-1, intervals, count)
            at_once[P.k_q[begin:end] - first, P.t_q[begin:end]] = ties[begin:end]
            system -= dense.T @ dense
        factor = cho_factor(system, lower=True, overwrite_a=True, check_finite=False)

        def solve(of_jobs: FloatArray, of_prices: FloatArray) -> tuple[FloatArray, FloatArray]:
            tied = P.by_price(self.ties * (of_jobs / self.own)[P.k_q][:, np.newaxis])
            p = cho_solve(factor, (of_prices + tied).ravel()).reshape(P.there.shape)
            side = of_jobs + P.by_class((self.ties * p[P.t_q]).sum(axis=1))
            return side / self.own, p

        return solve

    def solved(self, aims: list[FloatArray]) -> tuple[dict[str, FloatArray], dict[str, FloatArray]]:
        """Steps of the point and of its prices that change the products by the aims."""
        P, at = self.P, self.at
        of_y, of_s, of_g, of_m, of_x = aims
        free = of_y / at.z - self.theta * self.off
        idle = P.by_second(free) + of_s / at.e - self.late
        side_p = P.held(free) + of_g / at.p - self.over
        side_p -= P.by_price(self.holds * (idle / self.time)[:, np.newaxis])
        side_w = self.short - P.by_class(P.by_second(P.rate * free) - self.done * idle / self.time)
        side_w += (at.m * self.off_w - of_m) / at.u + of_x / at.w
        w, p = self.solve(side_w, side_p)
        e = idle - (self.holds * p[P.t_q]).sum(axis=1) + self.done * w[P.k_q]
        e /= self.time
        z = P.charged(p) + e[P.q] - P.rate * w[P.k] + self.off
        u = self.off_w - w
        point = {
            "y": of_y / at.z - self.theta * z,
            "s": (of_s - at.s * e) / at.e,
            "g": (of_g - at.g * p) / at.p,
            "m": (of_m - at.m * u) / at.u,
            "x": (of_x - at.x * w) / at.w,
        }
        return point, {"z": z, "e": e, "p": p, "u": u, "w": w}
