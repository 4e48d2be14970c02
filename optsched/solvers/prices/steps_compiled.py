"""The sweeps of `optsched.solvers.prices.steps`,
compiled where numba is installed (the extra ``fast``).

Each goes through some hundred classes at a time, whose numbers stay in the cache, place by place:
an inner loop does one thing to all of these classes and writes one array, which is what compilers
turn into vector instructions. Sums over classes are kept apart by their position among the hundreds
until the end, and are therefore no worse than numpy's.
"""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np

from optsched.solvers.prices.compiling import compiler

LANES = 256
"""Classes at a time."""


@cache
def compiled() -> SimpleNamespace | None:
    """The compiled sweeps, under the names that they have in numpy; None without numba."""
    made = compiler(fastmath={"contract", "nsz"}, error_model="numpy")
    if made is None:
        return None
    sweeps = (_advance, _weigh, _look_ahead, _complete)
    return SimpleNamespace(**{sweep.__name__[1:]: made(sweep) for sweep in sweeps})


def _advance(
    a: Any, q: Any, x: Any, z: Any, y: Any, weight: Any, dx: Any, dz: Any, length: float, level: Any, spent: Any,
    rent: Any,
) -> Any:  # fmt: skip
    width, classes = x.shape
    many = q.shape[1] > 1
    lane, product = np.empty(LANES), np.zeros(LANES)
    for lo in range(0, classes, LANES):
        hi = min(lo + LANES, classes)
        n = hi - lo
        tau, used, most, slope, count = (
            level[lo:hi],
            spent[lo:hi],
            rent[lo:hi],
            y[lo:hi],
            weight[lo:hi],
        )
        for i in range(n):
            tau[i] = 0.0
        for i in range(n):
            used[i] = 0.0
        for i in range(n):
            most[i] = 0.0
        for j in range(width):
            aj, xj, zj, up, down = a[j, lo:hi], x[j, lo:hi], z[j, lo:hi], dx[j, lo:hi], dz[j, lo:hi]
            cost = q[j, lo:hi] if many else lane
            if not many:
                for i in range(n):
                    lane[i] = q[j, 0]
            for i in range(n):
                xj[i] += length * up[i]
            for i in range(n):
                zj[i] += length * down[i]
            for i in range(n):
                tau[i] += aj[i] * xj[i]
            for i in range(n):
                used[i] += xj[i]
            for i in range(n):
                product[i] += count[i] * xj[i] * zj[i]
            for i in range(n):
                gain = aj[i] * slope[i] - cost[i]
                most[i] = gain if gain > most[i] else most[i]
    return product.sum()


def _weigh(
    a: Any, q: Any, x: Any, z: Any, s: Any, u: Any, y: Any, spent: Any, bend: Any, pull: Any, weight: Any, total: Any,
    centre: Any, damp: Any, dy: Any, du: Any, spread: Any, tilt: Any, taken_by: Any,
) -> Any:  # fmt: skip
    width, classes = x.shape
    many = q.shape[1] > 1
    lane = np.empty(LANES)
    d, t, h = np.empty((width, LANES)), np.empty((width, LANES)), np.empty((width, LANES))
    idle, first, second = np.empty(LANES), np.empty(LANES), np.empty(LANES)
    summed, tilted = np.empty(LANES), np.empty(LANES)
    taken, alone = np.zeros((width, LANES)), np.zeros((width, LANES))
    shared, tilts = np.zeros((width, width, LANES)), np.zeros((width, width, LANES))
    for lo in range(0, classes, LANES):
        hi = min(lo + LANES, classes)
        n = hi - lo
        rent, slope, count, bent = u[lo:hi], y[lo:hi], weight[lo:hi], bend[lo:hi]
        all_, middle, damped, rise, rented = (
            total[lo:hi],
            centre[lo:hi],
            damp[lo:hi],
            dy[lo:hi],
            du[lo:hi],
        )
        slack, used, pulled = s[lo:hi], spent[lo:hi], pull[lo:hi]
        for i in range(n):
            idle[i] = slack[i] / rent[i]
        for i in range(n):
            all_[i] = idle[i]
        for i in range(n):
            middle[i] = 0.0
        for j in range(width):
            aj, xj, zj, dj = a[j, lo:hi], x[j, lo:hi], z[j, lo:hi], d[j]
            for i in range(n):
                dj[i] = xj[i] / zj[i]
            for i in range(n):
                all_[i] += dj[i]
            for i in range(n):
                middle[i] += aj[i] * dj[i]
        for i in range(n):
            middle[i] /= all_[i]
        for i in range(n):
            second[i] = idle[i] * middle[i] * middle[i]
        for i in range(n):
            summed[i] = 0.0
        for i in range(n):
            tilted[i] = 0.0
        for j in range(width):
            aj, xj, zj, dj, tj, hj = a[j, lo:hi], x[j, lo:hi], z[j, lo:hi], d[j], t[j], h[j]
            cost = q[j, lo:hi] if many else lane
            if not many:
                for i in range(n):
                    lane[i] = q[j, 0]
            for i in range(n):
                tj[i] = dj[i] * (aj[i] - middle[i])
            for i in range(n):
                second[i] += tj[i] * (aj[i] - middle[i])
            for i in range(n):
                hj[i] = -xj[i] - dj[i] * (cost[i] + rent[i] - aj[i] * slope[i] - zj[i])
            for i in range(n):
                summed[i] += hj[i]
            for i in range(n):
                tilted[i] += (aj[i] - middle[i]) * hj[i]
        for i in range(n):
            damped[i] = 1.0 / (1.0 + bent[i] * second[i])
        for i in range(n):
            rise[i] = (pulled[i] + bent[i] * (middle[i] * (used[i] - 1.0) - tilted[i])) * damped[i]
        for i in range(n):
            rented[i] = (summed[i] + used[i] - 1.0) / all_[i] + middle[i] * rise[i]
        for i in range(n):
            first[i] = count[i] / all_[i]
        for i in range(n):
            second[i] = count[i] * bent[i] * damped[i]
        for j in range(width):
            aj, dj, tj, hj, sum_, one = a[j, lo:hi], d[j], t[j], h[j], taken[j], alone[j]
            for i in range(n):
                hj[i] -= dj[i] * (rented[i] - aj[i] * rise[i])
            if len(spread):
                spread[j, lo:hi] = dj[:n]
                tilt[j, lo:hi] = tj[:n]
                taken_by[j, lo:hi] = hj[:n]
                continue
            for i in range(n):
                sum_[i] += count[i] * hj[i]
            for i in range(n):
                one[i] += first[i] * idle[i] * dj[i]
            for other in range(j):
                dk, both = d[other], shared[j, other]
                for i in range(n):
                    both[i] += first[i] * dj[i] * dk[i]
            for other in range(j + 1):
                tk, both = t[other], tilts[j, other]
                for i in range(n):
                    both[i] += second[i] * tj[i] * tk[i]
    matrix, sums = np.zeros((width, width)), np.zeros(width)
    for j in range(width):
        sums[j] = taken[j].sum()
        matrix[j, j] += alone[j].sum() - tilts[j, j].sum()
        for other in range(j):
            both, less = shared[j, other].sum(), tilts[j, other].sum()
            matrix[j, j] += both
            matrix[other, other] += both
            matrix[j, other] -= both + less
            matrix[other, j] -= both + less
    return matrix, sums


def _look_ahead(
    a: Any, q: Any, dq: Any, x: Any, z: Any, s: Any, u: Any, y: Any, spent: Any, bend: Any, pull: Any, weight: Any,
    total: Any, centre: Any, damp: Any, dy: Any, du: Any, cross: Any, cross_idle: Any, dy_aim: Any, du_aim: Any,
    taken_by: Any, taken_by_aim: Any,
) -> Any:  # fmt: skip
    width, classes = x.shape
    many, by_class = q.shape[1] > 1, len(taken_by) > 0
    lane, change = np.empty(LANES), np.empty(LANES)
    v, d, e, h = (
        np.empty((width, LANES)),
        np.empty((width, LANES)),
        np.empty((width, LANES)),
        np.empty((width, LANES)),
    )
    moved, tilted, moved_aim, tilted_aim = (
        np.empty(LANES),
        np.empty(LANES),
        np.empty(LANES),
        np.empty(LANES),
    )
    rest, step, over = np.empty(LANES), np.empty(LANES), np.empty(LANES)
    most, least, product = np.zeros(LANES), np.zeros(LANES), np.zeros(LANES)
    taken, taken_aim = np.zeros((width, LANES)), np.zeros((width, LANES))
    for lo in range(0, classes, LANES):
        hi = min(lo + LANES, classes)
        n = hi - lo
        rent, slope, count, bent, pulled = (
            u[lo:hi],
            y[lo:hi],
            weight[lo:hi],
            bend[lo:hi],
            pull[lo:hi],
        )
        all_, middle, damped, rise, rented = (
            total[lo:hi],
            centre[lo:hi],
            damp[lo:hi],
            dy[lo:hi],
            du[lo:hi],
        )
        slack, used, twice = s[lo:hi], spent[lo:hi], cross_idle[lo:hi]
        rise_aim, rented_aim = dy_aim[lo:hi], du_aim[lo:hi]
        for i in range(n):
            moved[i] = 0.0
        for i in range(n):
            tilted[i] = 0.0
        for j in range(width):
            aj, xj, zj, vj, dj, ej = a[j, lo:hi], x[j, lo:hi], z[j, lo:hi], v[j], d[j], e[j]
            cost, more = (q[j, lo:hi], dq[j, lo:hi]) if many else (lane, change)
            if not many:
                for i in range(n):
                    lane[i] = q[j, 0]
                for i in range(n):
                    change[i] = dq[j, 0]
            for i in range(n):
                vj[i] = 1.0 / zj[i]
            for i in range(n):
                dj[i] = xj[i] * vj[i]
            for i in range(n):
                ej[i] = cost[i] + rent[i] - aj[i] * slope[i] - zj[i]
            for i in range(n):
                moved[i] += dj[i] * more[i]
            for i in range(n):
                tilted[i] += dj[i] * more[i] * (aj[i] - middle[i])
        for i in range(n):
            rest[i] = bent[i] * damped[i] * tilted[i]
        for i in range(n):
            rise[i] += rest[i]
        for i in range(n):
            rented[i] += middle[i] * rest[i] - moved[i] / all_[i]
        for i in range(n):
            over[i] = 1.0 / rent[i]
        for i in range(n):
            part = rented[i] * over[i]
            most[i] = part if part > most[i] else most[i]
        for i in range(n):
            part = -rented[i] * over[i]
            least[i] = part if part > least[i] else least[i]
        for i in range(n):
            twice[i] = -slack[i] * (1.0 + rented[i] * over[i]) * rented[i]
        for i in range(n):
            product[i] += count[i] * twice[i]
        for i in range(n):
            rest[i] = used[i] - 1.0 - twice[i] * over[i]
        for i in range(n):
            moved[i] = rest[i]
        for i in range(n):
            tilted[i] = middle[i] * rest[i]
        for i in range(n):
            moved_aim[i] = over[i]
        for i in range(n):
            tilted_aim[i] = middle[i] * over[i]
        for j in range(width):
            aj, xj, vj, dj, ej, hj = a[j, lo:hi], x[j, lo:hi], v[j], d[j], e[j], h[j]
            both = cross[j, lo:hi]
            more = dq[j, lo:hi] if many else change
            if not many:
                for i in range(n):
                    change[i] = dq[j, 0]
            for i in range(n):
                step[i] = ej[i] + more[i] + rented[i] - aj[i] * rise[i] if xj[i] > 0.0 else 0.0
            for i in range(n):
                part = step[i] * vj[i]
                most[i] = part if part > most[i] else most[i]
            for i in range(n):
                part = -step[i] * vj[i]
                least[i] = part if part > least[i] else least[i]
            for i in range(n):
                both[i] = -(xj[i] + dj[i] * step[i]) * step[i]
            for i in range(n):
                product[i] += count[i] * both[i]
            for i in range(n):
                hj[i] = -both[i] * vj[i] - xj[i] - dj[i] * ej[i]
            for i in range(n):
                vj[i] = vj[i] if xj[i] > 0.0 else 0.0
            for i in range(n):
                moved[i] += hj[i]
            for i in range(n):
                tilted[i] -= (aj[i] - middle[i]) * hj[i]
            for i in range(n):
                moved_aim[i] += vj[i]
            for i in range(n):
                tilted_aim[i] -= (aj[i] - middle[i]) * vj[i]
        for i in range(n):
            rise[i] = (pulled[i] + bent[i] * tilted[i]) * damped[i]
        for i in range(n):
            rise_aim[i] = bent[i] * tilted_aim[i] * damped[i]
        for i in range(n):
            rented[i] = moved[i] / all_[i] + middle[i] * rise[i]
        for i in range(n):
            rented_aim[i] = moved_aim[i] / all_[i] + middle[i] * rise_aim[i]
        for j in range(width):
            aj, vj, dj, hj, sum_, sum_aim = a[j, lo:hi], v[j], d[j], h[j], taken[j], taken_aim[j]
            for i in range(n):
                hj[i] -= dj[i] * (rented[i] - aj[i] * rise[i])
            for i in range(n):
                vj[i] -= dj[i] * (rented_aim[i] - aj[i] * rise_aim[i])
            if by_class:
                taken_by[j, lo:hi] = hj[:n]
                taken_by_aim[j, lo:hi] = vj[:n]
                continue
            for i in range(n):
                sum_[i] += count[i] * hj[i]
            for i in range(n):
                sum_aim[i] += count[i] * vj[i]
    sums, sums_aim = np.zeros(width), np.zeros(width)
    for j in range(width):
        sums[j], sums_aim[j] = taken[j].sum(), taken_aim[j].sum()
    return 1.0 / (1.0 + most.max()), 1.0 / max(least.max(), 1e-300), product.sum(), sums, sums_aim


def _complete(
    a: Any, q: Any, dq: Any, x: Any, z: Any, s: Any, u: Any, y: Any, aim: float, bend: Any, weight: Any, total: Any,
    centre: Any, damp: Any, dy: Any, du: Any, ds: Any, rise: Any, cross: Any, dx: Any, dz: Any,
) -> Any:  # fmt: skip
    width, classes = x.shape
    many = q.shape[1] > 1
    lane, change = np.empty(LANES), np.empty(LANES)
    v, d = np.empty((width, LANES)), np.empty((width, LANES))
    moved, tilted = np.empty(LANES), np.empty(LANES)
    forward, back = np.zeros(LANES), np.zeros(LANES)
    for lo in range(0, classes, LANES):
        hi = min(lo + LANES, classes)
        n = hi - lo
        rent, slope, bent = u[lo:hi], y[lo:hi], bend[lo:hi]
        all_, middle, damped, dyk, duk = (
            total[lo:hi],
            centre[lo:hi],
            damp[lo:hi],
            dy[lo:hi],
            du[lo:hi],
        )
        slack, dsk, risen = s[lo:hi], ds[lo:hi], rise[lo:hi]
        for i in range(n):
            moved[i] = 0.0
        for i in range(n):
            tilted[i] = 0.0
        for i in range(n):
            risen[i] = 0.0
        for j in range(width):
            aj, xj, zj, vj, dj = a[j, lo:hi], x[j, lo:hi], z[j, lo:hi], v[j], d[j]
            more = dq[j, lo:hi] if many else change
            if not many:
                for i in range(n):
                    change[i] = dq[j, 0]
            for i in range(n):
                vj[i] = 1.0 / zj[i]
            for i in range(n):
                dj[i] = xj[i] * vj[i]
            for i in range(n):
                moved[i] += dj[i] * more[i]
            for i in range(n):
                tilted[i] += dj[i] * more[i] * (aj[i] - middle[i])
        for i in range(n):
            tilted[i] *= bent[i] * damped[i]
        for i in range(n):
            dyk[i] += tilted[i]
        for i in range(n):
            duk[i] += middle[i] * tilted[i] - moved[i] / all_[i]
        for i in range(n):
            dsk[i] = (aim - dsk[i] - slack[i] * duk[i]) / rent[i] - slack[i]
        for i in range(n):
            part = -dsk[i] / slack[i]
            forward[i] = part if part > forward[i] else forward[i]
        for i in range(n):
            part = -duk[i] / rent[i]
            back[i] = part if part > back[i] else back[i]
        for i in range(n):
            part = -dyk[i] / slope[i]
            back[i] = part if part > back[i] else back[i]
        for j in range(width):
            aj, xj, zj, vj, dj = a[j, lo:hi], x[j, lo:hi], z[j, lo:hi], v[j], d[j]
            both, up, down = cross[j, lo:hi], dx[j, lo:hi], dz[j, lo:hi]
            cost, more = (q[j, lo:hi], dq[j, lo:hi]) if many else (lane, change)
            if not many:
                for i in range(n):
                    lane[i] = q[j, 0]
                for i in range(n):
                    change[i] = dq[j, 0]
            for i in range(n):
                down[i] = (cost[i] + rent[i] - aj[i] * slope[i] - zj[i]) + more[i]
            for i in range(n):
                down[i] = down[i] + duk[i] - aj[i] * dyk[i] if xj[i] > 0.0 else 0.0
            for i in range(n):
                up[i] = (aim - both[i]) * vj[i] - xj[i] - dj[i] * down[i] if xj[i] > 0.0 else 0.0
            for i in range(n):
                part = -up[i] / xj[i] if xj[i] > 0.0 else 0.0
                forward[i] = part if part > forward[i] else forward[i]
            for i in range(n):
                part = -down[i] * vj[i]
                back[i] = part if part > back[i] else back[i]
            for i in range(n):
                risen[i] += aj[i] * up[i]
    return 1.0 / max(forward.max(), 1e-300), 1.0 / max(back.max(), 1e-300)
