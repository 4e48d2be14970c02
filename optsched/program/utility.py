"""Utilities: objectives over the levels of the classes, with their linear programs and bounds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, Self

from optsched.arrays import FloatArray, IntArray
from optsched.errors import UsageError
from optsched.program.arrays import LinearArrays
from optsched.program.feasible_region import FeasibleRegion
from optsched.program.linear import LinearProgram

if TYPE_CHECKING:  # linear utilities need no cones, and small programs have a matrix
    from optsched.program.conic import ConicProgram
    from optsched.program.linear_form import LinearForm
    from optsched.program.side_rows import SideRows


class Method(StrEnum):
    """How a program with a utility is solved."""

    DIRECT = "direct"
    """As one program."""
    NEWTON = "newton"
    """By a sequence of linear programs, each with a tangent cut at the last point (Newton's
    method).
    """
    WATER_FILLING = "water filling"
    """Stage by stage: all levels rise together until some are held."""


class Utility(ABC):
    """The objective that is maximised over the levels of the classes.

    Methods take the feasible region R of the program that the utility belongs to, and x, totals of
    its columns.
    """

    method: ClassVar[Method] = Method.DIRECT
    smallest_level: ClassVar[bool] = False
    """Whether the value is one level t that all classes reach:
    a last column, with a row of ``levels`` per class.
    """
    homogenised: ClassVar[bool] = False
    """Whether the linear program is over multiples of x,
    so that capacities are not sides of its rows.
    """
    empty_value: ClassVar[float | None] = None
    """Value where there is no job; None where it does not exist."""
    without_optimum: ClassVar[str] = ""
    """Why no optimum exists where the rows can be kept; empty if that cannot be."""

    @property
    def conic(self) -> bool:
        """Whether one program of it needs cones that are not linear."""
        return False

    @property
    def concave(self) -> bool:
        """Whether it is concave and not piecewise linear.

        Its program is solved without tangent cuts; these only prove the bound.
        """
        return self.conic

    @property
    def worthless_at_zero(self) -> bool:
        """Whether a level of 0 is worth minus infinity."""
        return False

    @abstractmethod
    def value(self, R: FeasibleRegion, x: FloatArray) -> float:
        """The utility of an allocation."""

    @abstractmethod
    def lowered(self, R: FeasibleRegion) -> LinearProgram:
        """The linear program; raises `UsageError` where there is none."""

    @abstractmethod
    def complete(self, R: FeasibleRegion, x: FloatArray) -> FloatArray:
        """The point of the linear program (or tangent) of an allocation:
        auxiliary columns from x.
        """

    def allocation_of(self, R: FeasibleRegion, point: FloatArray) -> FloatArray:
        """The allocation of a point of the linear program;
        the way back from `complete`.
        """
        return point[: R.classes.columns]

    def highest(self, R: FeasibleRegion) -> float:
        """An upper bound on a smallest level: the least of the levels that each job could have
        alone.
        """
        return float(R.highest_level.min()) if len(R.highest_level) else 0.0

    def to_conic(self, R: FeasibleRegion) -> ConicProgram:
        """Lowered to cones; raises `UsageError` for what cones cannot take."""
        from optsched.program.conic import linear_to_conic

        if R.integral or R.extend is not None:
            raise UsageError(
                "a conic program takes neither integral allocations nor rows added by extend"
            )
        return linear_to_conic(self.lowered(R).arrays)

    def without_matrix(
        self, R: FeasibleRegion, x: FloatArray, duals: FloatArray | None = None
    ) -> LinearForm:
        """The linear program (or the tangent at x) without its matrix, for jobs alone without side
        rows.
        """
        raise UsageError(f"a program of {type(self).__name__} needs its matrix")

    # --- bounds -----------------------------------------------------------------------------------

    def tangent(
        self, R: FeasibleRegion, x: FloatArray, duals: FloatArray | None = None
    ) -> LinearProgram:
        """The linear program with the utility replaced by its tangent at x, or at the levels near x
        that the duals imply.
        """
        return self.lowered(R)

    def dual_factor(self, R: FeasibleRegion, x: FloatArray) -> float:
        """Factor that makes duals of the linear program derivatives by the sides of the rows."""
        return 1.0

    def polished(self, R: FeasibleRegion, arrays: LinearArrays, y: FloatArray) -> FloatArray:
        """Duals of the linear program's rows, changed if that proves a tighter bound."""
        return y

    def closed_form(self, R: FeasibleRegion) -> tuple[FloatArray, FloatArray] | None:
        """An optimal point of the linear program and duals that prove it, if no solver is
        needed.
        """
        return None

    def level_prices(self, R: FeasibleRegion) -> FloatArray | None:
        """Gain of the value per unit of ``levels @ x``, shape (K,); None if the duals of level rows
        are these gains.
        """
        return None

    def worth_alone(self, R: FeasibleRegion) -> FloatArray | None:
        """Gain of the value per unit of each level if every job were alone, shape (K,); None if the
        linear program has no level rows.
        """
        return None

    def terms(self, R: FeasibleRegion, x: FloatArray) -> float | None:
        """Size of the terms of the value at a point, if it is not that of the linear program."""
        return None

    def noise(self, R: FeasibleRegion) -> float:
        """Error of the value that has no meaning, for values without a scale."""
        return 0.0

    def rounding(self, R: FeasibleRegion, x: FloatArray) -> float:
        """Rounding error of the value due to terms that may cancel."""
        return 0.0

    # --- other programs ---------------------------------------------------------------------------

    def of_classes(self, some: IntArray) -> Self:
        """The utility of the levels of some classes alone."""
        return self

    def needed(self, R: FeasibleRegion, value: float) -> FloatArray | float:
        """Level that each class needs for a value, where the value is a smallest level."""
        return value

    def at_least(self, R: FeasibleRegion, value: FloatArray | float, name: str) -> SideRows:
        """Rows that force the value to be at least this (of each class, if it is a smallest
        level).
        """
        raise UsageError(f"{type(self).__name__} has no rows that ask for a value")
