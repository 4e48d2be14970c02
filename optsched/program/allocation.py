"""`AllocationProgram`: fractions of time under a utility, before it is lowered to rows and
columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np
import scipy.sparse as sp

from optsched.arrays import FloatArray, IntArray
from optsched.arrays.values import cached_property
from optsched.display import Displayed, count
from optsched.program.arrays import LinearArrays
from optsched.program.feasible_region import FeasibleRegion
from optsched.program.linear import LinearProgram, Variables
from optsched.program.units import AS_IT_IS, Units
from optsched.program.utility import Utility

if TYPE_CHECKING:  # a process loads the utilities and candidates that it needs
    from optsched.candidates import Classes
    from optsched.program.assignment import Assignment
    from optsched.program.conic import ConicProgram
    from optsched.program.linear_form import LinearForm
    from optsched.program.minimum import DelayedMinimum, LexicographicMinimum, Minimum
    from optsched.program.side_rows import SideRows
    from optsched.program.space import Space
    from optsched.program.total import Total


@dataclass(frozen=True, repr=False, eq=False)
class AllocationProgram(FeasibleRegion, Displayed):
    """Choose x, the totals of the class columns,
    to maximise a utility of levels over a `FeasibleRegion`.

        level_k(x) = (levels @ x)_k / n_k                     level of every job of class k
        time       member @ x <= n                            each job at most all the time
        capacity   usage @ x <= capacity                      each resource
        side rows  lower <= matrix @ x <= upper
        x >= 0,  integer if ``integral``

    What depends on the utility (its linear program, its tangent, its bounds) is in the file of the
    utility: `optsched.program.minimum`, `total`, `ratio`.

    Attributes
    ----------
    classes : Classes
    utility : Utility
    levels : csr_matrix, shape (K, N)
    side : tuple of SideRows
    integral : bool
        Whole jobs: each runs in one configuration all the time or not at all.
    extend : callable or None
        Called with the lowered linear program, its variables by name and the classes, to add rows.
    units : Units
        Converts the value to the formulation's objective.
    parts : IntArray or None, shape (K,)
        Part of each class, where it is to be solved in parts (`optsched.program.partition`).
    space : Space or None
        Which nodes hold which parts of whole jobs, where the answer must be a placement
        (`optsched.solving.in_space`).
    """

    classes: Classes
    utility: Utility
    levels: sp.csr_matrix
    side: tuple[SideRows, ...] = ()
    integral: bool = False
    extend: Callable[[LinearProgram, Mapping[str, Variables], Classes], None] | None = None
    units: Units = AS_IT_IS
    parts: IntArray | None = None
    space: Space | None = None

    # --- value and objective ----------------------------------------------------------------------

    def _headline(self) -> str:
        classes = count(len(self.classes), "class", "classes")
        return (
            f"{type(self.utility).__name__} of {classes}, {count(self.classes.columns, 'column')}"
        )

    def value(self, x: FloatArray) -> float:
        """The utility of an allocation."""
        return self.utility.value(self, x)

    def objective(self, x: FloatArray) -> float:
        """The value of an allocation in the units of the formulation's objective."""
        return self.units.objective(self.value(x))

    def worth_of_duals(self, x: FloatArray, value: float | None = None) -> float:
        """Improvement of the objective per unit of a row's side,
        by which its dual is multiplied.

        ``value`` is that of x, where the caller has it.
        """
        value = self.value(x) if value is None else value
        return self.units.slope(value) * self.utility.dual_factor(self, x)

    @cached_property
    def highest(self) -> float:
        """An upper bound on a smallest level: the least of the levels that each job could have
        alone.
        """
        return self.utility.highest(self)

    # --- what kind of program it is ---------------------------------------------------------------

    @property
    def all_must_run(self) -> bool:
        """Whether the objective is infinite as soon as one job has no time, as a makespan is."""
        return self.utility.worthless_at_zero or bool(np.isinf(self.units.objective(0.0)))

    @cached_property
    def assignment(self) -> Assignment | None:
        """The program as one that gives every job to an agent; None where it is something else."""
        if not (self.integral and self.side):
            return None
        from optsched.program.assignment import Assignment  # few programs are one

        return Assignment.of(self)

    @property
    def conic(self) -> bool:
        """Whether the utility needs cones that are not linear."""
        return self.utility.conic

    @property
    def concave(self) -> bool:
        """Whether the utility is concave and not piecewise linear; tangent cuts replace it then."""
        return self.utility.concave

    @property
    def total(self) -> Total:
        """The utility, of a program that maximises a total."""
        return cast("Total", self.utility)

    @property
    def minimum(self) -> Minimum:
        """The utility, of a program that maximises a smallest level, with or without delays."""
        return cast("Minimum", self.utility)

    @property
    def filling(self) -> LexicographicMinimum:
        """The utility, of a program of water filling."""
        return cast("LexicographicMinimum", self.utility)

    @property
    def delayed(self) -> DelayedMinimum:
        """The utility, of a program that maximises a minimum with delays."""
        return cast("DelayedMinimum", self.utility)

    @property
    def explained_apart(self) -> bool:
        """Whether infeasibility is explained by rows of `feasible_set`, not of the solved
        program.
        """
        return self.concave or self.utility.homogenised

    # --- lowering ---------------------------------------------------------------------------------

    def to_linear(self) -> LinearProgram:
        """Lower to a linear program (exact for minima, linear totals and ratios;
        of the lexicographic one a stage).

        Raises
        ------
        UsageError
            For a total of a nonlinear function, which needs `to_conic`, and for a minimum with
            delays, which is solved by a sequence of tangents.
        """
        return self.utility.lowered(self)

    def to_conic(self) -> ConicProgram:
        """Lower to a conic program; raises `UsageError` for whole jobs and extra rows."""
        return self.utility.to_conic(self)

    def tangent(self, x: FloatArray, duals: FloatArray | None = None) -> LinearProgram:
        """The linear program with the utility replaced by its tangent at x, or at the levels near x
        that the duals imply.
        """
        return self.utility.tangent(self, x, duals)

    def without_matrix(self, x: FloatArray, duals: FloatArray | None = None) -> LinearForm:
        """`to_linear` or `tangent` without the matrix, for jobs alone without side rows."""
        return self.utility.without_matrix(self, x, duals)

    def complete(self, x: FloatArray) -> FloatArray:
        """The point of the linear program (or tangent) of an allocation:
        auxiliary columns from x.
        """
        return self.utility.complete(self, x)

    def complete_and_value(self, x: FloatArray) -> tuple[FloatArray, float]:
        """`complete` and `value`, computed once."""
        # A smallest level is the last column of the point: it need not be computed twice.
        point = self.complete(x)
        return point, float(point[-1]) if self.utility.smallest_level else self.value(x)

    def allocation_of(self, point: FloatArray) -> FloatArray:
        """The allocation of a point of the linear program;
        the way back from `complete`.
        """
        return self.utility.allocation_of(self, point)

    def polished(self, form: LinearForm, y: FloatArray | None) -> FloatArray | None:
        """Duals of the linear program's rows, changed if that proves a tighter bound.

        Duals of a program without its matrix, or of other rows, are returned as they are.
        """
        if y is None or not isinstance(form, LinearArrays) or y.shape != form.row_upper.shape:
            return y
        return self.utility.polished(self, form, y)

    def terms(self, x: FloatArray) -> float | None:
        """Size of the terms of the value at a point, if it is not that of the linear program."""
        return self.utility.terms(self, x)

    def worth_of_noise(self, duals: Mapping[str, FloatArray] | None) -> float:
        """Error of the value that has no meaning: the slack of side rows times their duals, and the
        noise of the utility.
        """
        worth = [
            np.abs(duals[rows.name]) @ rows.slack
            for rows in self.side
            if duals is not None and rows.slack is not None
        ]
        return float(sum(worth)) + self.utility.noise(self)

    # --- points -----------------------------------------------------------------------------------

    def known_point(self, late: Callable[[], bool] = lambda: False) -> FloatArray:
        """A point that needs no solver: a greedy choice, or an even split of the time.

        It satisfies time, capacity and side rows that limit sums. The certificate checks the
        others. ``late`` says whether the time is over.
        """
        if self.integral:
            agent = None if self.assignment is None else self.assignment.by_rule(late)
            if self.assignment is not None and agent is not None:
                return self.assignment.point(agent, self.classes.columns)
            return self.filled_up(np.zeros(self.classes.columns))
        return max(self.even(), self.best_places(), key=self.value)

    def restored(self, x: FloatArray, raw: FloatArray) -> FloatArray:
        """Restore negligible fractions that were dropped, for classes that have nothing else.

        This is done if every job counts. A job of tiny weight may need only a tiny fraction for the
        common level or its deadline, and a sum of logarithms may give it no more.
        """
        every_job_counts = (
            self.utility.smallest_level or self.utility.worthless_at_zero or bool(self.side)
        )
        if self.integral or not every_job_counts:
            return x
        bare = self.classes.time(x) == 0
        if not bare.any():
            return x
        # Columns of which no job has anything else.
        tiny = bare[self.classes.class_a] & (bare[self.classes.class_b] | self.classes.alone)
        return np.where(tiny, np.clip(raw, 0.0, self.limit), x)

    @property
    def free_to_lift(self) -> bool:
        """Whether the objective is a smallest level, and time and capacity are the only rows."""
        return self.utility.smallest_level and not (self.integral or self.side or self.extend)

    def lifted(self, x: FloatArray, value: float) -> FloatArray:
        """Raise every class to what a value needs, then scale down into time and capacity.

        A solver may leave a job below the level by its tolerance. For a job that needs 1e-12 of the
        time that is all it has, and lifting it costs almost nothing.
        """
        return self.raised(x, self.utility.needed(self, min(value, self.highest)))
