"""Utilities that are a smallest level:
the minimum, the minimum with delays, the lexicographic minimum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import scipy.sparse as sp

from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.arrays.values import replace
from optsched.errors import UsageError
from optsched.program.feasible_region import FeasibleRegion
from optsched.program.linear import LinearProgram
from optsched.program.utility import Method, Utility

if TYPE_CHECKING:
    from optsched.program.arrays import LinearArrays
    from optsched.program.linear_form import LinearForm
    from optsched.program.side_rows import SideRows


@dataclass(frozen=True)
class Minimum(Utility):
    """Maximise the smallest level.

    maximise  t   s.t.  level_k >= t  for every class k,  time, capacity, side rows
    """

    smallest_level: ClassVar[bool] = True

    def reached(self, level: FloatArray) -> FloatArray:
        """Value of each class at its level, shape (K,)."""
        return level

    def value(self, R: FeasibleRegion, x: FloatArray) -> float:
        reached = self.reached(R.level(x))
        return float(reached.min()) if len(reached) else 0.0

    def limit(self, R: FeasibleRegion) -> float:
        """An upper bound on the value: the least level limit of a job."""
        return float(self.reached(R.level_limit).min()) if len(R.classes) else 0.0

    def needed_slope(self, R: FeasibleRegion, value: float) -> FloatArray | float:
        """The derivative of `needed` by the value."""
        return 1.0

    def lowered(self, R: FeasibleRegion) -> LinearProgram:
        lp, variables = R.bare()
        t = variables["t"] = lp.variables(1, name="t", implied=(0.0, self.limit(R)))
        lp.constrain(
            R.levels @ variables["x"] - R.classes.count[:, np.newaxis] @ t >= 0.0, name="levels"
        )
        lp.maximise(t)
        return R.with_own_rows(lp, variables)

    def complete(self, R: FeasibleRegion, x: FloatArray) -> FloatArray:
        """(x, t) with t the smallest level at x."""
        return np.append(x, self.value(R, x))

    def without_matrix(
        self, R: FeasibleRegion, x: FloatArray, duals: FloatArray | None = None
    ) -> LinearForm:
        from optsched.program.linear_form import AllocationForm  # small programs have a matrix

        return AllocationForm.smallest_level(R)

    def at_least(self, R: FeasibleRegion, value: FloatArray | float, name: str) -> SideRows:
        """levels @ x >= n value, a row per class; the values may differ."""
        from optsched.program.side_rows import (  # most programs have no side rows
            SameWords,
            SideRows,
        )

        lower = np.asarray(value) * R.classes.count
        endless = np.full(len(R.classes), np.inf)
        return SideRows(name, R.levels, lower, endless, SameWords(f"the {name} objective"))


@dataclass(frozen=True, eq=False)
class DelayedMinimum(Minimum):
    """Maximise the smallest of the values 1 / (a_k + 1 / level_k).

    A job that has run for a_k and needs 1 / level_k more ends after a_k + 1 / level_k. Its value is
    the inverse of that, concave in the level. A value t needs the level g_k(t) = t / (1 - a_k t),
    which is convex.

    Attributes
    ----------
    delay : FloatArray, shape (K,)
        a_k >= 0.
    """

    delay: FloatArray

    method: ClassVar[Method] = Method.NEWTON

    @property
    def concave(self) -> bool:
        return True

    def reached(self, level: FloatArray) -> FloatArray:
        """1 / (a_k + 1 / level_k)."""
        return level / (1.0 + self.delay * level)

    def highest(self, R: FeasibleRegion) -> float:
        return float(self.reached(R.highest_level).min()) if len(R.highest_level) else 0.0

    def needed(self, R: FeasibleRegion, value: float) -> FloatArray:
        """g(t) = t / (1 - a t), for t below every 1 / a."""
        t = min(value, self.highest(R))
        return t / (1.0 - self.delay * t)

    def needed_slope(self, R: FeasibleRegion, value: float) -> FloatArray | float:
        """g'(t) = 1 / (1 - a t)^2."""
        t = min(value, self.highest(R))
        return 1.0 / (1.0 - self.delay * t) ** 2

    def of_classes(self, some: IntArray) -> DelayedMinimum:
        return replace(self, delay=self.delay[some])

    def lowered(self, R: FeasibleRegion) -> LinearProgram:
        """Raise `UsageError`: the levels are not linear in the value."""
        raise UsageError(
            "a minimum with delays is not linear: it is solved by a sequence of tangents"
        )

    def tangent(
        self, R: FeasibleRegion, x: FloatArray, duals: FloatArray | None = None
    ) -> LinearProgram:
        """`tangent_at` the value of x."""
        return self.tangent_at(R, self.value(R, x))

    def tangent_at(self, R: FeasibleRegion, value: float) -> LinearProgram:
        """The linear program with a tangent cut at v: the level that a value t needs is linearised.

            maximise  t   s.t.  level_k >= g_k(v) + g_k'(v) (t - v)   for every class k,  time, capacity, side rows

        g_k is convex, so its tangent demands less than g_k: the optimum is an upper bound for the
        allocation program, and equal if v is its optimum. Newton's method takes this optimum as the
        next v.
        """
        v, n = min(value, self.highest(R)), R.classes.count
        lp, variables = R.bare()
        t = variables["t"] = lp.variables(1, name="t", implied=(0.0, self.limit(R)))
        slope = np.asarray(self.needed_slope(R, v))
        free = n * (self.needed(R, v) - slope * v)
        lp.constrain(
            R.levels @ variables["x"] - (n * slope)[:, np.newaxis] @ t >= free, name="levels"
        )
        lp.maximise(t)
        return R.with_own_rows(lp, variables)

    def polished(self, R: FeasibleRegion, arrays: LinearArrays, y: FloatArray) -> FloatArray:
        """Duals of one tangent as duals of another:
        scaled so that the reduced cost of t, the last column, is 0.

        All other reduced costs keep their signs, and the bound is off by the square of the distance
        of the two tangents, not by the distance.
        """
        weight = float((arrays.A[:, [-1]].T @ y)[0])
        return y * (arrays.cost[-1] / weight) if np.isfinite(weight) and weight > 0 else y


@dataclass(frozen=True, eq=False)
class LexicographicMinimum(Minimum):
    """Raise all levels together; a job that cannot rise any more is frozen, and the others continue
    (water filling).

    Every job i of weight p_i rises at a rate per unit of a common clock: p_i / s_i, where s_i is
    its gang; as a member of a group of weight w that shares it, w p_i / (s_i sum of p over the
    members that still rise); and the first member that still rises of a group that queues rises at
    w / s_i alone.

    Attributes
    ----------
    weight : FloatArray, shape (K,)
        p of each job of a class.
    gang : FloatArray, shape (K,)
        s.
    group : IntArray, shape (K,)
        Group of each class; -1: on its own.
    group_weight : FloatArray, shape (G,)
        w.
    queued : BoolArray, shape (G,)
        Groups whose members rise one after the other; their classes are single jobs.
    place : IntArray, shape (K,)
        Place in the queue; 0 in other groups.
    then : csr_matrix or None, shape (K, N)
        The last program maximises the total of ``then @ x``, with no job below its level; None: of
        the levels.
    """

    weight: FloatArray
    gang: FloatArray
    group: IntArray
    group_weight: FloatArray
    queued: BoolArray
    place: IntArray
    then: sp.csr_matrix | None = None

    method: ClassVar[Method] = Method.WATER_FILLING
