"""`AllocationProgram`: fractions of time under a utility; the structure is carried, not recognised later."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from optsched.arrays import BoolArray, FloatArray, IntArray, is_range, looked_up
from optsched.errors import UsageError
from optsched.matrices import largest_of_rows
from optsched.program.arrays import LinearArrays
from optsched.program.conic import ConicProgram, linear_to_conic, with_utility_cones
from optsched.program.greedy_fill import greedy_fill
from optsched.program.linear import LinearProgram, Variables
from optsched.program.ratio import Ratio
from optsched.program.side_rows import SideRows
from optsched.program.units import AS_IT_IS, Units
from optsched.program.utility import Minimum, Total, Utility

if TYPE_CHECKING:  # a process that only solves needs no candidates
    from optsched.candidates import Classes

LEVELS = 1e-6
"""Part of the levels that means nothing, where a value is the sum of their logarithms."""


@dataclass(frozen=True)
class AllocationProgram:
    """Choose x, the totals of the class columns, to maximise a utility of levels.

        level_k(x) = (levels @ x)_k / n_k                     level of every job of class k
        time       member @ x <= n                            each job at most all the time
        capacity   usage @ x <= capacity                      each resource
        side rows  lower <= matrix @ x <= upper
        x >= 0,  integer if ``integral``

    Attributes
    ----------
    classes : Classes
    utility : Utility
    levels : csr_matrix, shape (K, N)
    side : tuple of SideRows
    integral : bool
        Whole jobs: each runs in one configuration all the time or not at all.
    extend : callable or None
        Called with the lowered linear program, its variables by name and the classes, to add rows of one's own.
    units : Units
        What the value is in the units of the formulation's objective.
    """

    classes: Classes
    utility: Utility
    levels: sp.csr_matrix
    side: tuple[SideRows, ...] = ()
    integral: bool = False
    extend: Callable[[LinearProgram, Mapping[str, Variables], Classes], None] | None = None
    units: Units = AS_IT_IS

    def objective(self, x: FloatArray) -> float:
        """The value of an allocation in the units of the formulation's objective."""
        return self.units.objective(self.value(x))

    def worth_of_duals(self, x: FloatArray) -> float:
        """Improvement of the objective per unit of a row's side, by which its dual is multiplied."""
        return self.units.slope(self.value(x)) * self.dual_factor(x)

    def level(self, x: FloatArray) -> FloatArray:
        """Level of every job of each class, shape (K,)."""
        return np.asarray(self.levels @ x / self.classes.count)

    def value(self, x: FloatArray) -> float:
        """The utility of an allocation (the smallest level for both minima)."""
        if isinstance(self.utility, Ratio):
            return self.utility.value(self.gain, x)
        level = self.level(x)
        if isinstance(self.utility, Total):
            return float((self.classes.count * self.utility.weight) @ self.utility.value(level))
        if isinstance(self.utility, Minimum):
            level = self.utility.reached(level)
        return float(level.min()) if len(level) else 0.0

    @cached_property
    def highest_level(self) -> FloatArray:
        """What each job could reach if it had the cluster to itself: its best column all the time, shape (K,)."""
        C, data = self.classes, self.levels.data
        if not C.all_alone:
            data = data / np.where(C.class_a == C.class_b, 2.0, 1.0)[self.levels.indices]
        return largest_of_rows(self.levels.indptr, data)

    @cached_property
    def gain(self) -> FloatArray:
        """What one unit of each column adds to the sum of all levels, shape (N,)."""
        return np.asarray(self.levels.sum(axis=0), np.float64).ravel()

    @cached_property
    def requirements(self) -> LinearArrays:
        """`feasible_set` as arrays."""
        return self.feasible_set().arrays

    def allocation_of(self, point: FloatArray) -> FloatArray:
        """The allocation that a point of the linear program stands for; the way back from `complete`."""
        if isinstance(self.utility, Ratio):
            return self.utility.allocation(self.requirements, point)
        return point[: self.classes.columns]

    def dual_factor(self, x: FloatArray) -> float:
        """What duals of the linear program's rows are multiplied by to be derivatives by the sides of the rows."""
        return self.utility.factor(self.requirements, x) if isinstance(self.utility, Ratio) else 1.0

    def polished(self, arrays: LinearArrays, y: FloatArray | None) -> FloatArray | None:
        """Duals of the linear program's rows, moved where that makes a better proof."""
        if y is None or y.shape != arrays.row_upper.shape or not isinstance(self.utility, Ratio):
            return y
        return self.utility.polished(arrays, y)

    def closed_form(self) -> tuple[FloatArray, FloatArray] | None:
        """A point of the linear program and duals of its rows that prove it optimal, where that takes no solver."""
        if not isinstance(self.utility, Ratio):
            return None
        best = self.utility.best_columns(self.gain, self.requirements)
        return None if best is None else (self.complete(best[0]), best[1])

    @cached_property
    def barred(self) -> BoolArray:
        """Columns that side rows leave nothing to, shape (N,)."""
        barred = np.zeros(self.classes.columns, bool)
        for rows in self.side:
            barred[rows.closed.indices] = True
        return barred

    @property
    def limit(self) -> FloatArray:
        """Most that x can be by the time rows, and 0 in barred columns; shape (N,)."""
        return np.where(self.barred, 0.0, self.classes.limit) if self.side else self.classes.limit

    def to_linear(self) -> LinearProgram:
        """Lower to a linear program (exact for minima, linear totals and ratios; of the lexicographic one a stage).

        Raises
        ------
        UsageError
            For a total of a nonlinear function, which needs `to_conic`, and for a minimum with delays, which is solved
            by a sequence of tangents.
        """
        return self._lowered()[0]

    def complete(self, x: FloatArray) -> FloatArray:
        """The point of the linear program (or tangent) that an allocation stands for: auxiliary columns from x."""
        if self.conic:
            return np.append(x, self.level(x))
        if isinstance(self.utility, Ratio):
            return self.utility.complete(self.requirements, x)
        return x if isinstance(self.utility, Total) else np.append(x, self.value(x))

    def complete_and_value(self, x: FloatArray) -> tuple[FloatArray, float]:
        """Both, of which one may be part of the other."""
        value = self.value(x)
        alone = not self.conic and not isinstance(self.utility, Total | Ratio)
        return np.append(x, value) if alone else self.complete(x), value

    def repaired(self, x: FloatArray) -> FloatArray:
        """A point that keeps time and capacity: x scaled down class by class, then by the fullest resource of a column.

        What a solver left when it was stopped may break rows; what it is worth afterwards is for the certificate to
        say. Of the side rows those are kept too that only limit sums, as budgets and quotas: less is feasible there.
        An integral point is only scaled by dropping fractions of jobs.
        """
        C = self.classes
        use = C.time(x)
        if (use > C.count).any():
            part = np.divide(C.count, use, out=np.ones(len(C)), where=use > C.count)
            x = x * np.minimum(part[C.class_a], looked_up(np.append(part, 1.0), C.class_b))  # the last is of no partner
        smallest = np.ones(C.columns)
        for matrix, most in self.limited_sums:
            use = matrix @ x
            for row in np.flatnonzero(use > most).tolist():
                mine = matrix.indices[matrix.indptr[row] : matrix.indptr[row + 1]]
                smallest[mine] = np.minimum(smallest[mine], most[row] / use[row])
        x = x * smallest
        return np.floor(x + 1e-9) if self.integral else x

    @property
    def limited_sums(self) -> Iterator[tuple[sp.csr_matrix, FloatArray]]:
        """Matrices without negative entries, and the most that their rows may come to: capacity, and side rows."""
        yield self.classes.usage, self.classes.capacity
        for rows in self.side:
            if rows.matrix.nnz and rows.matrix.data.min() >= 0 and (rows.upper >= 0).all():
                yield sp.csr_matrix(rows.matrix), rows.upper

    def kept(self, x: FloatArray) -> FloatArray:
        """What can be kept of a point of the program without side rows and whole jobs."""
        return self._greedy_fill(self.repaired(x)) if self.integral else self.repaired(x)

    def _greedy_fill(self, x: FloatArray) -> FloatArray:
        sums = [(matrix.tocsc(), most) for matrix, most in self.limited_sums]
        return greedy_fill(self.classes, sums, self.gain, ~self.barred, x)

    def known_point(self) -> FloatArray:
        """A point that needs no solver: what is gained most of per unit of the resources, or an even split.

        It keeps time and capacity, and side rows that limit sums; whether it keeps all is for the certificate to say.
        """
        if self.integral:
            return self._greedy_fill(np.zeros(self.classes.columns))
        best, _ = self._best_alone
        x = np.zeros(self.classes.columns)
        x[best] = np.minimum(self.classes.count[self.classes.class_a[best]], self.limit[best])
        x, even = self.repaired(x), self.even()
        return x if self.value(x) > self.value(even) else even

    def restored(self, x: FloatArray, raw: FloatArray) -> FloatArray:
        """Undo the dropping of negligible fractions for classes that have nothing else, where every job counts.

        A job of a tiny weight may need no more than a tiny fraction to reach the common level, or its deadline, and is
        due no more than that of a sum of logarithms.
        """
        if self.integral:
            return x
        if isinstance(self.utility, Total | Ratio) and not (self.side or self.needs_every_level):
            return x
        bare = self.classes.time(x) == 0
        if not bare.any():
            return x
        tiny = bare[self.classes.class_a] & (bare[self.classes.class_b] | self.classes.alone)
        return np.where(tiny, np.clip(raw, 0.0, self.limit), x)

    @property
    def free_to_lift(self) -> bool:
        """Whether any point within time and capacity is feasible, and its smallest level is what counts."""
        return not (self.integral or self.side or self.extend or isinstance(self.utility, Total | Ratio))

    def lifted(self, x: FloatArray, level: float) -> FloatArray:
        """Raise every class to a common level on its best column, then scale down into time and capacity.

        A solver may leave a job below the level by its tolerance, which is everything to a job that needs 1e-12 of the
        time: to lift it costs next to nothing.
        """
        C = self.classes
        best, rate = self._best_alone
        needed: FloatArray | float = level
        if isinstance(self.utility, Minimum):
            needed = self.utility.needed(min(level, self.highest))
        lack = np.maximum(needed * C.count - self.levels @ x, 0.0)[C.class_a[best]]
        x = x.copy()
        x[best] += np.divide(lack, rate, out=np.zeros(len(best)), where=rate > 0)
        return self.repaired(x)

    @cached_property
    def _best_alone(self) -> tuple[IntArray, FloatArray]:
        """The column alone of each class that brings it most (the last of several), and what it brings."""
        C, levels = self.classes, self.levels
        alone = np.flatnonzero(C.alone)
        if len(alone) == C.columns and is_range(levels.indices, C.columns):  # the entries of levels are the columns
            rate = levels.data
            order = np.flatnonzero(rate == largest_of_rows(levels.indptr, rate)[C.class_a])
        else:
            rate = np.asarray(levels.tocsc()[C.class_a[alone], alone]).ravel()
            order = np.lexsort((rate, C.class_a[alone]))
        last = np.flatnonzero(np.diff(C.class_a[alone[order]], append=-1))
        return alone[order[last]], rate[order[last]]

    def even(self) -> FloatArray:
        """Every job spread evenly over its columns alone, scaled down into time and capacity."""
        C = self.classes
        alone = np.flatnonzero(C.alone & ~self.barred)
        columns = np.bincount(C.class_a[alone], minlength=len(C))
        x = np.zeros(C.columns)
        x[alone] = (C.count / np.maximum(columns, 1))[C.class_a[alone]]
        return self.repaired(x)

    @property
    def needs_every_level(self) -> bool:
        """Whether a level of 0 is worth minus infinity: a total of logarithms, or of powers below 0."""
        return isinstance(self.utility, Total) and self.utility.worthless_at_zero

    @property
    def conic(self) -> bool:
        """Whether the utility is a total of a function that is not linear."""
        return isinstance(self.utility, Total) and self.utility.function != "linear"

    @property
    def delayed(self) -> bool:
        """Whether the utility is a minimum with delays."""
        return isinstance(self.utility, Minimum) and self.utility.delay is not None

    @property
    def concave(self) -> bool:
        """Whether the utility is concave and not piecewise linear, so that tangents stand for it."""
        return self.conic or self.delayed

    @cached_property
    def highest(self) -> float:
        """No value of a minimum is above this: what the job that is worst off could have if it were alone."""
        level = self.highest_level
        if isinstance(self.utility, Minimum):
            level = self.utility.reached(level)
        return float(level.min(initial=np.inf)) if len(level) else 0.0

    @property
    def explained_apart(self) -> bool:
        """Whether `feasible_set` says why nothing is feasible, and not the program that is solved."""
        return self.concave or isinstance(self.utility, Ratio)

    def feasible_set(self) -> LinearProgram:
        """Time, capacity, side rows and rows of one's own, without an objective."""
        lp, variables = self.bare()
        if self.extend is not None:
            self.extend(lp, variables, self.classes)
        return lp

    def tangent(self, x: FloatArray, duals: FloatArray | None = None) -> LinearProgram:
        """The linear program with a concave utility replaced by its tangent at x, or near x where the duals say.

        A minimum with delays: its tangent at the value of x, see `tangent_at`. A total:

            maximise  sum_k n_k w_k (f(v_k) + f'(v_k) (l_k - v_k))   s.t.  levels @ x >= n l   (levels),  the other rows

        f is concave, so the tangents at any levels v lie above it: a bound on this program is a bound on the allocation
        program, which is how prices certify a concave utility without the solver that found them. ``duals`` are those
        of its rows, and v is where f' agrees with them: a point whose objective is right to 1e-9 may be wrong by 1e-5
        in its levels, as the objective is flat there, and then tangents at x leave a gap of 1e-5.
        """
        utility, C = self.utility, self.classes
        if self.delayed:
            return self.tangent_at(self.value(x))
        if not isinstance(utility, Total) or not self.conic:
            return self.to_linear()
        v = self.touched(x, duals)
        lp, variables = self.bare()
        level = lp.variables(len(C), name="level", implied=(0.0, self.highest_level))
        lp.constrain(self.levels @ variables["x"] - sp.diags_array(C.count) @ level >= 0.0, name="levels")
        slope, size = utility.slope(v), C.count * utility.weight
        lp.maximise((size * slope)[np.newaxis, :] @ level + float(size @ (utility.value(v) - slope * v)))
        return lp

    def touched(self, x: FloatArray, duals: FloatArray | None = None) -> FloatArray:
        """Levels at which tangents of a total touch it, shape (K,): those of x, or where the duals of its rows say."""
        assert isinstance(self.utility, Total)
        v = np.maximum(self.level(x), np.finfo(float).tiny)
        return v if duals is None else self.utility.level_at(-duals[len(duals) - len(self.classes) :], v)  # last rows

    def tangent_at(self, value: float) -> LinearProgram:
        """The linear program of a minimum with delays, with the levels that a value t needs replaced by their tangent.

            maximise  t   s.t.  level_k >= g_k(v) + g_k'(v) (t - v)   for every class k,  time, capacity, side rows

        g_k(t) = t / (1 - a_k t) is convex, so its tangent at any v asks for less than g_k does: the optimum bounds that
        of the allocation program, and equals it where v is the optimum. Newton's method is to make this v the next one.
        """
        utility, C = self.utility, self.classes
        assert isinstance(utility, Minimum)
        v = min(value, self.highest)
        lp, variables = self.bare()
        t = variables["t"] = lp.variables(1, name="t", implied=(0.0, self.highest))
        slope = utility.slope(v)
        free = C.count * (utility.needed(v) - slope * v)
        lp.constrain(self.levels @ variables["x"] - (C.count * slope)[:, np.newaxis] @ t >= free, name="levels")
        lp.maximise(t)
        if self.extend is not None:
            self.extend(lp, variables, C)
        return lp

    def worth_of_noise(self, duals: Mapping[str, FloatArray] | None) -> float:
        """What the value may be wrong by and mean the same: what the slack of side rows is worth at these row duals.

        Without duals it is worth nothing. A sum of logarithms has no size of its own: it is 0 where all levels are 1.
        Divided by the sum of the weights it is the logarithm of a mean of the levels, of which a part of `LEVELS` means
        nothing.
        """
        worth = [
            np.abs(duals[rows.name]) @ rows.slack for rows in self.side if duals is not None and rows.slack is not None
        ]
        total = isinstance(self.utility, Total) and self.utility.function == "log"
        mean = LEVELS * float(self.classes.count @ self.utility.weight) if total else 0.0  # type: ignore[union-attr]
        return float(sum(worth)) + mean

    def tangent_duals(self, linear: FloatArray, cones: FloatArray) -> FloatArray:
        """Duals of the rows of `tangent` from those of the linear rows and the multipliers of the cones."""
        assert isinstance(self.utility, Total)
        place = 2 if self.utility.function == "log" else 0 if self.utility.exponent > 0 else 1
        return np.concatenate([linear, -cones.reshape(-1, 3)[:, place] / self.classes.count])

    def bare(self) -> tuple[LinearProgram, dict[str, Variables]]:
        """x with its time, capacity and side rows; no objective."""
        C = self.classes
        lp = LinearProgram()
        x = lp.variables(C.columns, name="x", implied=(0.0, C.limit), integer=self.integral)
        lp.constrain(C.member @ x <= C.count, name="time")
        lp.constrain(C.usage @ x <= C.capacity, name="capacity")
        for rows in self.side:
            lp.constrain((rows.matrix @ x).between(rows.lower, rows.upper), name=rows.name)
        return lp, {"x": x}

    def _lowered(self) -> tuple[LinearProgram, dict[str, Variables]]:
        C, utility = self.classes, self.utility
        if isinstance(utility, Ratio):
            return utility.homogenised(self.gain, self.requirements)
        lp, variables = self.bare()
        x = variables["x"]
        if isinstance(utility, Total):
            if utility.function != "linear":
                raise UsageError(f"a total of {utility.function} utilities is not linear; lower it with to_conic()")
            lp.maximise((sp.csr_matrix(utility.weight[np.newaxis, :]) @ self.levels) @ x)
        else:
            if self.delayed:
                raise UsageError("a minimum with delays is not linear: it is solved by a sequence of tangents")
            t = variables["t"] = lp.variables(1, name="t", implied=(0.0, self.highest))
            lp.constrain(self.levels @ x - C.count[:, np.newaxis] @ t >= 0.0, name="levels")
            lp.maximise(t)
        if self.extend is not None:
            self.extend(lp, variables, C)
        return lp, variables

    def to_conic(self) -> ConicProgram:
        """Lower to a conic program; a log or power utility of each class is one exponential or power cone."""
        if self.integral or self.extend is not None:
            raise UsageError("a conic program takes neither integral allocations nor rows added by extend")
        if not isinstance(self.utility, Total) or self.utility.function == "linear":
            return linear_to_conic(self.to_linear().arrays)
        C, utility = self.classes, self.utility
        lp, _ = self.bare()
        u = lp.variables(len(C), name="u", lower=-np.inf)
        lp.maximise((C.count * utility.weight)[np.newaxis, :] @ u)
        return with_utility_cones(linear_to_conic(lp.arrays), self.levels, C.count, utility)
