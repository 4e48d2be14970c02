"""What the others could have without one job: brackets for all jobs from a few programs.

Without one job of class k the others can have V_k, the optimum of its own program. One of many jobs
changes little, so a few prices and allocations bound V_k for all k. Sets and names as in
`formulations.partial_allocation`, a_kc = level of a job of class k that is in column c all the
time, rows A x <= W of what is limited.

    bound     V_k  <=  p W + sum_i n_i u_i(p) - u_k(p)                                    for any prices p >= 0
              u_k(p) = max over z >= 0, sum_c z_c <= 1 of  w_k log(sum_c a_kc z_c) - sum_c (A' p)_c z_c

    value     V_k  >=  sum_m lambda_m (F_m - w_k log(level_k(x^m)))
                       if  sum_m lambda_m (A x^m - W - use_k(x^m)) <= 0,  sum_m lambda_m = 1,  lambda >= 0

where x^m are allocations of all jobs with the values F_m = sum_i n_i w_i log(level_i(x^m)), and
use_k(x^m) is what one job of class k holds there: as logarithms are concave, the others have at
least so much at the mixture. An x^m may hold more than there is. The best mixture is a linear
program of one row for each limit, small enough to be solved for all k at once.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import scipy.sparse as sp

from optsched.arrays import FloatArray, IntArray, group_rows, quotient, stable_order
from optsched.program import AllocationProgram

ROUNDING = 1e-13
"""Part of a limit by which sums over all jobs are wrong."""
SMALL = 1e-12
"""Numbers of a simplex tableau that are 0 but for rounding."""
PIVOTS = 100
"""Steps of the simplex method; a program that needs more keeps the value of its last point."""
ENTRIES = 4_000_000
"""Numbers of the tableaus that are in memory at once."""
FURTHEST = 0.5
"""Part by which `WithoutOne.scaled` changes a level at most."""
TINY = 1e-7
"""Part of what a job holds most of, that counts as nothing."""


class WithoutOne:
    """Brackets of V_k.

    Parameters
    ----------
    program : AllocationProgram
        A total of logarithms, of jobs alone, whose side rows only limit sums.
    x : FloatArray, shape (N,)
        Its optimum.
    prices : FloatArray
        Duals of its `limit_rows` there.

    Attributes
    ----------
    value, bound : FloatArray, shape (K,)
    """

    def __init__(self, program: AllocationProgram, x: FloatArray, prices: FloatArray) -> None:
        C, limits = program.classes, program.limit_rows
        self.program, self.weight = program, program.total.weight
        self._limited = np.flatnonzero(np.isfinite(limits.most) & (limits.most > 0))
        self._rows = sp.csr_matrix(limits.matrix[self._limited])
        self._most = limits.most[self._limited]
        self._place = _places(C.class_a, len(C))
        level = np.append(program.gain, 0.0)
        level[limits.closed_columns] = 0.0
        self._level = level[self._place]
        self._of_class = sp.csr_matrix(
            (np.ones(C.columns), (np.arange(C.columns), C.class_a)), (C.columns, len(C))
        )
        self._x, self._prices = x, prices
        self._own_use = self._use(x).tocsc()
        # Without one job, x keeps the limits, and the room that the job held is free.
        self._first, self._worth = self._mixed(x)
        self.value = self._worth.copy()
        self._room = np.column_stack([np.maximum(-self._first, 0.0), np.ones(len(C))])
        self._more: list[FloatArray] = []
        self._gain: list[FloatArray] = []
        self._members = np.zeros(len(C), np.int64)
        self.bound = self._bounds(prices)

    def add(self, x: FloatArray, prices: FloatArray) -> None:
        """Bounds of prices of `limit_rows`, and an allocation x^m for the mixtures."""
        self.bound = np.minimum(self.bound, self._bounds(prices))
        over, worth = self._mixed(x)
        more, gain = over - self._first, worth - self._worth
        more[np.abs(more) <= ROUNDING * self._most] = 0.0
        self._more.append(np.column_stack([more, np.ones(len(more))]))
        self._gain.append(gain)

    def mix(self, classes: IntArray) -> bool:
        """Values of the best mixtures of some of the classes; whether any of them had not been
        mixed with all allocations.
        """
        rows, members = self._room.shape[1], len(self._gain)
        classes = classes[self._members[classes] < members]
        self._members[classes] = members
        most = max(1, ENTRIES // ((rows + 1) * (members + rows + 1)))
        for start in range(0, len(classes), most):
            self._mix(classes[start : start + most])
        return len(classes) > 0

    def _mix(self, some: IntArray) -> None:
        """The best mixtures of some classes."""
        more = np.stack([member[some] for member in self._more], axis=2)
        gain = np.stack([member[some] for member in self._gain], axis=1)
        best = greatest(gain, more, self._room[some])
        self.value[some] = np.maximum(self.value[some], self._worth[some] + best)

    def _mixed(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """What an allocation without one job of each class holds above the limits, shape (K, R),
        and is worth, (K,).
        """
        C = self.program.classes
        worth = self.weight * np.log(self.program.level(x))
        return self._rows @ x - self._most - self._use(x).T.toarray(), float(
            C.count @ worth
        ) - worth

    def _bounds(self, prices: FloatArray) -> FloatArray:
        """The bounds of prices, shape (K,)."""
        prices = np.maximum(prices[self._limited], 0.0)
        u = self._surplus(prices)
        return float(prices @ self._most) + float(self.program.classes.count @ u) - u

    def like(self, k: int, classes: IntArray) -> IntArray:
        """Those of the classes that hold the same limited things as k, whose jobs hold most first.

        What the others could do with the room of a job, they do in part with that of a smaller one.
        """
        kind, most = self._kinds
        same = classes[kind[classes] == kind[k]]
        return np.asarray(same[np.argsort(-most[same], kind="stable")])

    @cached_property
    def _kinds(self) -> tuple[IntArray, FloatArray]:
        """A number for which limited things each class holds, and the largest part of one that a
        job of it holds.
        """
        held = (sp.diags_array(1.0 / self._most) @ self._own_use).toarray()
        most = held.max(axis=0, initial=0.0)
        return group_rows(list(held > TINY * most), len(most)).inverse, most

    def scaled(self, k: int) -> tuple[FloatArray, FloatArray]:
        """x* with so much more of what is limited as one job of class k holds, and the prices that
        this leads to.

        Jobs that are idle for a part of their time have more or less of what they have, by parts
        theta_i of it that cost least: the sum of n_i w_i theta_i^2 is smallest. It is right to the
        second order but for jobs that would go elsewhere.
        """
        C, idle = self.program.classes, self._idle
        fall = self._fall @ self._own_use[:, [k]].toarray().ravel()
        theta = np.zeros(len(C))
        theta[idle] = self._own_use[:, idle].T @ fall / self.weight[idle]
        furthest = np.where(theta > 0, np.minimum(self._time_left, FURTHEST), FURTHEST)
        part = 1.0 / max(1.0, float(quotient(np.abs(theta), furthest).max(initial=0.0)))
        prices = self._prices.copy()
        prices[self._limited] -= part * fall
        return self._x * (1.0 + part * theta)[C.class_a], prices

    @cached_property
    def _idle(self) -> IntArray:
        """Classes that have some of their time left."""
        return np.flatnonzero(self._time_left > 0)

    @cached_property
    def _time_left(self) -> FloatArray:
        """Time that is left, as a part of what is spent, shape (K,)."""
        C = self.program.classes
        return np.maximum(quotient(C.count, C.time(self._x)) - 1.0, 0.0)

    @cached_property
    def _fall(self) -> FloatArray:
        """How much prices fall for each unit more of what is limited, shape (R, R)."""
        idle = self._idle
        use = self._own_use[:, idle]
        weight = sp.diags_array(self.program.classes.count[idle] / self.weight[idle])
        matrix = (use @ weight @ use.T).toarray()
        # Limits are in their own units.
        unit = quotient(1.0, np.sqrt(np.diag(matrix)))
        scaled = np.linalg.pinv(matrix * unit * unit[:, np.newaxis], hermitian=True)
        return np.asarray(scaled * unit * unit[:, np.newaxis])

    def _use(self, x: FloatArray) -> sp.csr_matrix:
        """What one job of each class holds of what is limited, shape (R, K)."""
        C = self.program.classes
        return sp.csr_matrix(self._rows @ sp.diags_array(x / C.count[C.class_a])) @ self._of_class

    def _surplus(self, prices: FloatArray) -> FloatArray:
        """u_k, shape (K,): a walk along the lower hull of level and cost from the origin."""
        w = self.weight
        cost = np.append(self._rows.T @ prices, 0.0)[self._place]
        level, paid, surplus = np.zeros((3, len(w)))
        k = np.arange(len(w))
        while len(k):
            rise = self._level[k] - level[k, np.newaxis]
            slopes = np.where(rise > 0, quotient(cost[k] - paid[k, np.newaxis], rise), np.inf)
            nearest = slopes.argmin(axis=1)
            slope, to = slopes[np.arange(len(k)), nearest], self._level[k, nearest]
            # From the last point of the hull no slope leads on.
            last = np.isinf(slope)
            slope[last] = 0.0
            # Where a little more of the level is worth what it costs.
            best = np.maximum(quotient(w[k], slope, np.inf), level[k])
            best[last] = level[k][last]
            ends = last | (best <= to)
            done, goes = k[ends], k[~ends]
            costs = paid[done] + slope[ends] * (best[ends] - level[done])
            surplus[done] = w[done] * np.log(best[ends]) - costs
            level[goes], paid[goes] = to[~ends], cost[goes, nearest[~ends]]
            k = goes
        return surplus


def greatest(gain: FloatArray, matrix: FloatArray, room: FloatArray) -> FloatArray:
    """max gain x  s.t.  matrix x <= room, x >= 0  of many small programs, by the simplex method.

    Parameters
    ----------
    gain : FloatArray, shape (K, M)
    matrix : FloatArray, shape (K, R, M)
    room : FloatArray, shape (K, R)
        At least 0.

    Returns
    -------
    value : FloatArray, shape (K,)
        Of a feasible point: the optimum, unless that takes more than `PIVOTS` steps.
    """
    programs, rows, columns = matrix.shape
    # The last row has what columns gain, and minus the value; the last column has the room left.
    table = np.zeros((programs, rows + 1, columns + rows + 1))
    table[:, :rows, :columns], table[:, :rows, -1], table[:, rows, :columns] = matrix, room, gain
    table[:, :rows, columns:-1] = np.eye(rows)
    value, running = np.zeros(programs), np.arange(programs)
    for _ in range(PIVOTS):
        value[running] = -table[:, rows, -1]
        enters = table[:, rows, :-1].argmax(axis=1)
        goes = table[np.arange(len(table)), rows, enters] > SMALL
        if not goes.any():
            break
        if not goes.all():
            table, enters, running = table[goes], enters[goes], running[goes]
        every = np.arange(len(table))
        column = table[every, :, enters]
        may_leave = np.where(column[:, :rows] > SMALL, column[:, :rows], 0.0)
        leaves = quotient(table[:, :rows, -1], may_leave, np.inf).argmin(axis=1)
        pivot = table[every, leaves] / column[every, leaves][:, np.newaxis]
        table -= column[:, :, np.newaxis] * pivot[:, np.newaxis, :]
        table[every, leaves] = pivot
        np.maximum(table[:, :rows, -1], 0.0, out=table[:, :rows, -1])
    return value


def _places(klass: IntArray, classes: int) -> IntArray:
    """Columns of each class, one after the other; -1 where there are no more, shape (K, w)."""
    order = stable_order(klass, classes)
    count = np.bincount(klass, minlength=classes)
    where = np.arange(len(klass)) - np.repeat(np.cumsum(count) - count, count)
    place = np.full((classes, int(count.max(initial=0))), -1, np.int64)
    place[klass[order], where] = order
    return place
