"""What a solver says: values, and three statuses that are three things."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np

from optsched.arrays import FloatArray, IntArray
from optsched.arrays.values import replace
from optsched.display import Displayed
from optsched.errors import SolverCrashed


class Termination(StrEnum):
    """Why the solver stopped."""

    OPTIMAL = "optimal"
    INFEASIBLE = "infeasible"
    UNBOUNDED = "unbounded"
    INFEASIBLE_OR_UNBOUNDED = "infeasible_or_unbounded"
    TIME_LIMIT = "time_limit"
    WORK_LIMIT = "work_limit"
    GAP_LIMIT = "gap_limit"
    INTERRUPTED = "interrupted"
    IMPRECISE = "imprecise"
    IN_PARTS = "in_parts"
    CLOSED_FORM = "closed_form"
    BY_RULE = "by_rule"
    ERROR = "error"


CLAIMS = (Termination.OPTIMAL, Termination.GAP_LIMIT)
"""Ends by which a solver claims to be done."""
NO_OPTIMUM = (Termination.INFEASIBLE, Termination.UNBOUNDED, Termination.INFEASIBLE_OR_UNBOUNDED)
"""Ends by which it claims that there is no optimum."""


class PointStatus(StrEnum):
    """What the solver claims of its primal point or its duals."""

    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    UNKNOWN = "unknown"
    NONE = "none"


LOWER, BASIC, UPPER = 0, 1, 2
"""Codes of a `Basis`: at the lower bound, basic, and at the upper bound."""


@dataclass(frozen=True, repr=False, eq=False)
class Basis(Displayed):
    """A simplex basis: status codes of columns
    and rows (HiGHS: 0 lower, 1 basic, 2 upper, 3 zero, 4 nonbasic).
    """

    columns: IntArray
    rows: IntArray


def not_numbers(solver: str, what: str, count: int) -> SolverCrashed:
    """The error of a back-end whose point or duals are not what they should be."""
    return SolverCrashed(f"solver {solver} returned no {what} of {count} finite numbers")


@dataclass(frozen=True, repr=False, eq=False)
class Values(Displayed):
    """The outcome of one run of a solver: claims, to be certified.

    Attributes
    ----------
    termination, primal, dual : statuses
    x : FloatArray or None
        Point, shape (N,).
    y : FloatArray or None
        Duals of the rows, shape (M,), as derivatives of the optimum with respect to the right-hand
        sides; of a conic program its multipliers z, in the dual cone.
    objective, bound : float or None
        As the solver states them.
    iterations, nodes : int
    seconds : float
    words : str
        The solver's own status text.
    rebuilt : tuple of str
        Why the session could not change the loaded program in place, if so.
    details : mapping
        What else the back-end says of the run.
    """

    termination: Termination
    primal: PointStatus = PointStatus.NONE
    dual: PointStatus = PointStatus.NONE
    x: FloatArray | None = None
    y: FloatArray | None = None
    objective: float | None = None
    bound: float | None = None
    iterations: int = 0
    nodes: int = 0
    seconds: float = 0.0
    words: str = ""
    rebuilt: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)

    def checked(self, rows: int, columns: int, solver: str) -> Values:
        """These values, if they have the size of the program.

        Whatever a back-end returns goes through here before anything is computed from it. Beside a
        claim that there is no optimum a point is not looked at, and duals that are not finite are
        none, as those of a run that was stopped.

        Parameters
        ----------
        rows, columns : int
            Of the program.
        solver : str
            Name of the back-end, for the message.

        Returns
        -------
        Values

        Raises
        ------
        SolverCrashed
            Point or duals lack entries, have too many, or are not finite.
        """
        no_optimum = self.termination in NO_OPTIMUM
        x, y = None if no_optimum else self.x, self.y
        if x is not None and (x.shape != (columns,) or not np.isfinite(x).all()):
            raise not_numbers(solver, "point", columns)
        if y is None or (y.shape == (rows,) and np.isfinite(y).all()):
            return self
        if y.shape != (rows,) or self.termination in CLAIMS:
            raise not_numbers(solver, "duals", rows)
        return replace(self, y=None)

    def _headline(self) -> str:
        value = "no objective" if self.objective is None else f"objective {self.objective:.9g}"
        return f"{self.termination}: primal {self.primal}, dual {self.dual}, {value}"
