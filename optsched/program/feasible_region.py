"""The feasible region of an allocation program: totals of the class columns within time, capacity
and side rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from optsched.arrays import BoolArray, FloatArray, IntArray, is_range, looked_up, quotient
from optsched.arrays.matrices import largest_of_rows
from optsched.arrays.values import cached_property
from optsched.errors import UsageError
from optsched.program.arrays import Block, LinearArrays
from optsched.program.linear import LinearProgram, Variables

if TYPE_CHECKING:  # a process that only solves needs no candidates, and most programs no side rows
    from optsched.candidates import Classes
    from optsched.program.side_rows import ClassFloors, LimitRows, SideRows


class NamedVariables(dict[str, Variables]):
    """The variables of a program by name, as ``extend`` gets them."""

    def __missing__(self, name: str) -> Variables:
        raise UsageError(f"extend: no variables {name!r}, expected one of {', '.join(self)}")


class FeasibleRegion:
    """The rows of an allocation program, and the levels of the classes; it has no objective.

        level_k(x) = (levels @ x)_k / n_k                     level of every job of class k
        time       member @ x <= n                            each job at most all the time
        capacity   usage @ x <= capacity                      each resource
        side rows  lower <= matrix @ x <= upper
        x >= 0,  integer if ``integral``

    The attributes are those of `AllocationProgram`, which is a feasible region with a utility.
    """

    classes: Classes
    levels: sp.csr_matrix
    side: tuple[SideRows, ...]
    integral: bool
    extend: Callable[[LinearProgram, Mapping[str, Variables], Classes], None] | None

    # --- levels -----------------------------------------------------------------------------------

    def level(self, x: FloatArray) -> FloatArray:
        """Level of every job of each class, shape (K,)."""
        return self.levels @ x / self.classes.count

    @cached_property
    def highest_level(self) -> FloatArray:
        """The highest level of a job of each class, shape (K,):
        all its time in its best column, alone or in a pair.
        """
        return self.highest_among(None)

    @cached_property
    def level_limit(self) -> FloatArray:
        """No job of a class is above this level, shape (K,):
        the highest one, or all that the rows leave of its columns (`limit`).
        """
        if self.limit is self.classes.limit:
            return self.highest_level
        return np.minimum(self.highest_level, self.level(self.limit))

    def highest_among(self, columns: BoolArray | None) -> FloatArray:
        """`highest_level` in these columns only; None: in all."""
        C, data = self.classes, self.levels.data
        if not C.all_alone:
            # A pair inside a class consists of two of its jobs: each has half of the level of a
            # unit.
            data = data / np.where(C.class_a == C.class_b, 2.0, 1.0)[self.levels.indices]
        if columns is not None and not columns.all():
            data = np.where(columns[self.levels.indices], data, 0.0)
        return largest_of_rows(self.levels.indptr, data)

    @cached_property
    def gain(self) -> FloatArray:
        """What one unit of each column adds to the sum of all levels, shape (N,)."""
        if is_range(self.levels.indices, self.classes.columns):
            return self.levels.data  # one entry per column, in the order of the columns
        return np.asarray(self.levels.sum(axis=0), np.float64).ravel()

    @cached_property
    def best_alone(self) -> tuple[IntArray, FloatArray]:
        """The best column alone of each class (the last of several), and its level."""
        C, levels = self.classes, self.levels
        alone = np.flatnonzero(C.alone)
        # The entries of levels are the columns.
        if len(alone) == C.columns and is_range(levels.indices, C.columns):
            rate = levels.data
            order = np.flatnonzero(rate == largest_of_rows(levels.indptr, rate)[C.class_a])
        else:
            rate = np.asarray(levels.tocsc()[C.class_a[alone], alone]).ravel()
            order = np.lexsort((rate, C.class_a[alone]))
        # In order of class, then of level: the last entry of a class is its best.
        last = np.flatnonzero(np.diff(C.class_a[alone[order]], append=-1))
        return alone[order[last]], rate[order[last]]

    # --- rows -------------------------------------------------------------------------------------

    def bare(self) -> tuple[LinearProgram, dict[str, Variables]]:
        """x with its time, capacity and side rows; no objective."""
        C = self.classes
        lp = LinearProgram()
        x = lp.variables(C.columns, name="x", implied=(0.0, self.limit), integer=self.integral)
        lp.constrain(C.member @ x <= C.count, name="time")
        lp.constrain(C.usage @ x <= C.capacity, name="capacity")
        for rows in self.side:
            lp.constrain((rows.matrix @ x).between(rows.lower, rows.upper), name=rows.name)
        return lp, {"x": x}

    def with_own_rows(self, lp: LinearProgram, variables: dict[str, Variables]) -> LinearProgram:
        """The program with the rows that a caller adds (``extend``), if any."""
        if self.extend is None:
            return lp
        returned: object = self.extend(lp, NamedVariables(variables), self.classes)
        # A lambda returns the block that `constrain` made. A relation was never added.
        if returned is not None and not isinstance(returned, Block):
            raise UsageError(
                f"extend returned a {type(returned).__name__}, which has no effect: "
                "add a row with lp.constrain(row, name=...) and return nothing"
            )
        return lp

    def feasible_set(self) -> LinearProgram:
        """Time, capacity, side rows and extra rows, without an objective."""
        return self.with_own_rows(*self.bare())

    @cached_property
    def requirements(self) -> LinearArrays:
        """Rows and columns of `feasible_set`, which many programs share."""
        return self.feasible_set().arrays

    @cached_property
    def barred(self) -> BoolArray:
        """Columns that side rows force to 0, shape (N,)."""
        barred = np.zeros(self.classes.columns, bool)
        for rows in self.side:
            barred[rows.closed.indices] = True
        return barred

    @cached_property
    def limit(self) -> FloatArray:
        """Upper bounds of x from time and from each row that only limits sums; shape (N,).

        Tolerances, the scale of columns and dual bounds are relative to these. If a budget leaves a
        job 1e-12 of its time, every level would count as 0 relative to the time rows alone.
        """
        C = self.classes
        if not self.side and (C.holds.largest(None) * C.count.max(initial=0.0) <= C.capacity).all():
            return self.classes.limit
        rows = self.limit_rows
        of_row = np.repeat(rows.most, np.diff(rows.matrix.indptr))
        limit = np.where(self.barred, 0.0, C.limit)
        # An entry of 0 limits nothing.
        np.minimum.at(limit, rows.matrix.indices, quotient(of_row, rows.matrix.data, np.inf))
        return limit

    @cached_property
    def limit_rows(self) -> LimitRows:
        """The rows that only limit sums of nothing negative, capacities first."""
        from optsched.program.side_rows import LimitRows

        return LimitRows(self.classes, tuple(rows for rows in self.side if rows.only_limit))

    @cached_property
    def class_floors(self) -> ClassFloors | None:
        """The side rows with lower sides, if each concerns one class and no jobs share GPUs; else
        None.
        """
        from optsched.program.side_rows import ClassFloors

        return ClassFloors.of(self.classes, self._asking)

    @cached_property
    def job_floors(self) -> ClassFloors | None:
        """The rows with lower sides that concern one class each; there may be others."""
        from optsched.program.side_rows import ClassFloors

        C = self.classes
        side = tuple(rows for rows in self._asking if ClassFloors.of(C, (rows,)) is not None)
        return ClassFloors.of(C, side)

    @cached_property
    def level_floors(self) -> FloatArray | None:
        """The least level of a job of each class, where these rows ask for levels; shape (K,)."""
        floors = self.class_floors
        return None if floors is None else floors.as_levels(self.classes, self.gain)

    @property
    def _asking(self) -> tuple[SideRows, ...]:
        return tuple(rows for rows in self.side if not rows.only_limit)

    def duals_in_order(self, of_limits: FloatArray, of_floors: FloatArray) -> FloatArray:
        """Duals of capacities and side rows, in the order of the rows,
        from those of `limit_rows` and of the others.
        """
        goods = len(self.classes.capacity)
        parts, limits, floors = [of_limits[:goods]], of_limits[goods:], of_floors
        for rows in self.side:
            count = len(rows.upper)
            if rows.only_limit:
                of_rows, limits = limits[:count], limits[count:]
            else:
                of_rows, floors = floors[:count], floors[count:]
            parts.append(of_rows)
        return np.concatenate(parts)

    def limit_duals(self, y: FloatArray) -> FloatArray:
        """Duals of `limit_rows` among those of all rows."""
        at = len(self.classes) + len(self.classes.capacity)
        parts = [y[len(self.classes) : at]]
        for rows in self.side:
            if rows.only_limit:
                parts.append(y[at : at + len(rows.upper)])
            at += len(rows.upper)
        return np.concatenate(parts)

    # --- points that need no solver ---------------------------------------------------------------

    def repaired(self, x: FloatArray) -> FloatArray:
        """A point within time and capacity: x scaled down class by class, then by the fullest
        resource of each column.

        The point of a stopped solver may violate rows. Side rows that only limit sums, such as
        budgets and quotas, are satisfied too, as scaling down reduces the sums. In an integral
        point fractions of jobs are then dropped. The certificate evaluates the result.
        """
        C = self.classes
        use = C.time(x)
        if (use > C.count).any():
            part = np.divide(C.count, use, out=np.ones(len(C)), where=use > C.count)
            # The last factor is for columns without a partner.
            x = x * np.minimum(part[C.class_a], looked_up(np.append(part, 1.0), C.class_b))
        # One factor per column, that of its fullest row. All factors are at most 1, so no sum
        # grows.
        smallest = np.ones(C.columns)
        matrix, most = self.limit_rows.matrix, self.limit_rows.most
        use = matrix @ x
        for row in np.flatnonzero(use > most).tolist():
            columns = matrix.indices[matrix.indptr[row] : matrix.indptr[row + 1]]
            smallest[columns] = np.minimum(smallest[columns], most[row] / use[row])
        x = x * smallest
        return np.floor(x + 1e-9) if self.integral else x

    def kept(self, x: FloatArray) -> FloatArray:
        """A point of the relaxed region, repaired for this region."""
        return self.filled_up(self.repaired(x)) if self.integral else self.repaired(x)

    def filled_up(self, x: FloatArray) -> FloatArray:
        """Add whole jobs to a point greedily, by gain per unit of the resources."""
        from optsched.program.greedy_fill import greedy_fill  # few programs have whole jobs

        return greedy_fill(self.classes, self.limit_rows, self.gain, ~self.barred, x)

    def best_places(self) -> FloatArray:
        """Every job in its best column alone, scaled down into time and capacity."""
        best, _ = self.best_alone
        x = np.zeros(self.classes.columns)
        x[best] = np.minimum(self.classes.count[self.classes.class_a[best]], self.limit[best])
        return self.repaired(x)

    def even(self) -> FloatArray:
        """Every job spread evenly over its columns alone, scaled down into time and capacity."""
        C = self.classes
        alone = np.flatnonzero(C.alone & ~self.barred)
        columns = np.bincount(C.class_a[alone], minlength=len(C))
        x = np.zeros(C.columns)
        x[alone] = (C.count / np.maximum(columns, 1))[C.class_a[alone]]
        return self.repaired(x)

    def raised(self, x: FloatArray, level: FloatArray | float) -> FloatArray:
        """Every class raised to a level on its best column alone,
        then scaled down into time and capacity.
        """
        C = self.classes
        best, rate = self.best_alone
        lack = np.maximum(level * C.count - self.levels @ x, 0.0)[C.class_a[best]]
        x = x.copy()
        x[best] += quotient(lack, rate)
        return self.repaired(x)
