"""Scaling at the boundary of a solver: tolerances of solvers are absolute, instances are not.

A tolerance of 1e-9 is useless where rates are 1e-9 steps/s or weights 1e16. So every program is
scaled before it goes to a solver: rows and the objective to a largest coefficient near 1, columns
of extreme range to a range near 1. All factors are powers of two, so nothing is rounded. The values
of the solver are scaled back to the units of the program.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from optsched.arrays import (
    FloatArray,
    IntArray,
    lengths,
)
from optsched.arrays.matrices import same_places
from optsched.arrays.values import replace
from optsched.program import LinearArrays
from optsched.solution.values import Basis, Values
from optsched.solvers.base import Limits, Progress, Session

MODERATE = (2.0**-10, 2.0**24)
"""Ranges of columns that are not scaled: mostly job-fractions."""
MODERATE_BESIDE_INTEGERS = 2.0**10
"""The largest range that is not scaled in programs with integer columns: HiGHS's presolve cut off
the optimum of such a program whose other columns were seconds, up to a million."""
NEEDLESS = 2.0**10
"""A side of a row beyond this multiple of its largest activity is left out."""


class Scaling(NamedTuple):
    """x = columns * x', rows of A are multiplied by ``rows``, the objective by ``objective``."""

    rows: FloatArray
    columns: FloatArray
    objective: float

    @classmethod
    def of(cls, arrays: LinearArrays) -> Scaling:
        """Factors for a program; integer columns are never scaled."""
        reach = np.maximum(np.abs(arrays.implied_lower), np.abs(arrays.implied_upper))
        most = MODERATE_BESIDE_INTEGERS if arrays.is_integer else MODERATE[1]
        moderate = (reach >= MODERATE[0]) & (reach <= most)
        columns = np.ones(len(reach))
        if not moderate.all():
            scaled = np.isfinite(reach) & (reach > 0) & ~moderate & ~arrays.integer
            columns = _power_of_two(np.where(scaled, reach, 1.0))
        size = arrays.largest_in_rows(columns)
        rows = 1.0 / _power_of_two(np.where(size > 0, size, 1.0))
        cost = np.abs(arrays.cost * columns).max(initial=0.0)
        objective = 1.0 / float(_power_of_two(np.asarray(cost))) if cost > 0 else 1.0
        return cls(rows, columns, objective)

    def apply(self, arrays: LinearArrays) -> LinearArrays:
        """The program in units in which its rows, columns and objective are near 1."""
        row_lower, row_upper = self._sides(arrays)
        return replace(
            arrays,
            A=self._matrix(arrays.A),
            row_lower=row_lower,
            row_upper=row_upper,
            lower=arrays.lower / self.columns,
            upper=arrays.upper / self.columns,
            implied_lower=arrays.implied_lower / self.columns,
            implied_upper=arrays.implied_upper / self.columns,
            cost=self.cost(arrays.cost),
            offset=arrays.offset * self.objective,
        )

    def _sides(self, arrays: LinearArrays) -> tuple[FloatArray, FloatArray]:
        """Lower and upper sides of the rows, scaled.

        If columns are scaled down to almost nothing, the time of a job becomes a side of 1e12, far
        from every point. Interior-point methods fail at such numbers, so these sides are left out.
        """
        lower, upper = arrays.row_lower * self.rows, arrays.row_upper * self.rows
        if (self.columns == 1.0).all():
            return lower, upper
        reach = np.maximum(np.abs(arrays.implied_lower), np.abs(arrays.implied_upper))
        most = NEEDLESS * arrays.activity_and_terms(reach)[1] * self.rows
        return np.where(lower < -most, -np.inf, lower), np.where(upper > most, np.inf, upper)

    def _matrix(self, matrix: sp.csc_matrix) -> sp.csc_matrix:
        """The matrix, scaled; its entries stay where they are, zeros too."""
        of_column = self.columns.repeat(lengths(matrix.indptr))
        return same_places(matrix, matrix.data * self.rows[matrix.indices] * of_column)

    def cost(self, cost: FloatArray) -> FloatArray:
        """A cost vector, scaled."""
        return cost * self.columns * self.objective

    def back(self, values: Values) -> Values:
        """Values of the scaled program in the units of the original."""
        x, y = values.x, values.y
        # Arrays of the wrong size are refused later by `Values.checked`.
        if x is not None and x.shape == self.columns.shape:
            x = x * self.columns
        if y is not None and y.shape == self.rows.shape:
            y = y * self.rows / self.objective
        objective, bound = self._back(values.objective), self._back(values.bound)
        return replace(values, x=x, y=y, objective=objective, bound=bound)

    def _back(self, value: float | None) -> float | None:
        return None if value is None else value / self.objective

    def progress(self, event: Progress) -> Progress:
        """A progress event in the units of the original."""
        incumbent, bound = self._back(event.incumbent), self._back(event.bound)
        return event._replace(incumbent=incumbent, bound=bound)


def _power_of_two(size: FloatArray) -> FloatArray:
    """The power of two at or just below a positive number."""
    return np.asarray(np.ldexp(1.0, np.frexp(size)[1] - 1), np.float64)


class ScaledSession(Session):
    """A session in the units of the program over one that holds the scaled program."""

    def __init__(self, arrays: LinearArrays, scaling: Scaling, inner: Session) -> None:
        super().__init__(arrays)
        self.scaling = scaling
        self.inner = inner

    def _changed(self, reason: str, setter: str, *arguments: Any) -> None:
        """Make the same change, scaled, in the inner session, which keeps the reasons."""
        getattr(self.inner, setter)(*self._scaled(setter, arguments))
        # Added columns and rows are not scaled: their factors are 1.
        if setter == "add_columns":
            columns = np.append(self.scaling.columns, np.ones(arguments[0].shape[1]))
            self.scaling = self.scaling._replace(columns=columns)
        elif setter == "add_rows":
            rows = np.append(self.scaling.rows, np.ones(arguments[0].shape[0]))
            self.scaling = self.scaling._replace(rows=rows)

    def _scaled(self, setter: str, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments of a setter in the units of the inner session."""
        by_row, by_column = self.scaling.rows, self.scaling.columns
        match setter, arguments:
            case "set_cost", (cost,):
                return (self.scaling.cost(np.asarray(cost, np.float64)),)
            case "set_bounds", (lower, upper):
                return lower / by_column, upper / by_column
            case "set_rows", (lower, upper):
                return lower * by_row, upper * by_row
            case "set_coefficients", (rows, columns, values):
                return rows, columns, values * by_row[rows] * by_column[columns]
            case "add_columns", (matrix, cost, upper, name):
                scaled = sp.csc_matrix(sp.diags_array(by_row) @ matrix)
                return scaled, cost * self.scaling.objective, upper, name
            case "add_rows", (matrix, lower, upper, name):
                return sp.csr_matrix(matrix @ sp.diags_array(by_column)), lower, upper, name
        raise AssertionError(setter)

    def set_start(self, start: Basis | FloatArray) -> None:
        """Start the next run from a basis or a point."""
        columns = self.scaling.columns
        # Scaling changes no basis; a point of the wrong size is for the inner session to drop.
        if not isinstance(start, Basis) and len(start) == len(columns):
            start = start / columns
        self.inner.set_start(start)

    def run(self, limits: Limits) -> Values:
        """Solve; the outcome is in the units of the program."""
        on_progress = limits.on_progress
        if on_progress is not None:
            limits = replace(
                limits, on_progress=lambda event: on_progress(self.scaling.progress(event))
            )
        offer = limits.on_point
        if offer is not None:
            limits = replace(limits, on_point=lambda point: offer(point * self.scaling.columns))
        return self.scaling.back(self.inner.run(limits))

    def basis(self) -> Basis | None:
        """The simplex basis of the last run: scaling does not change it."""
        return self.inner.basis()

    def conflict(self) -> IntArray:
        """Rows of an irreducible infeasible subsystem."""
        return self.inner.conflict()
