"""Linear programs for solvers of conic ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from optsched.program import ConicProgram, LinearArrays, linear_to_conic
from optsched.solution.values import Values
from optsched.solvers.base import Limits, Session


class ConicSession(Session):
    """A linear program for a solver of conic ones: each run lowers it to cones, and brings the row duals back."""

    def __init__(
        self, arrays: LinearArrays, solve_conic: Callable[[ConicProgram, Limits], Values]
    ) -> None:
        super().__init__(arrays)
        self._solve_conic = solve_conic

    def run(self, limits: Limits) -> Values:
        """Lower to cones, solve, and bring the row duals back."""
        reasons = self._take_reasons()
        program = linear_to_conic(self.arrays)
        values = self._solve_conic(program, limits)
        assert program.linear is not None
        y = None if values.y is None else program.linear.duals(values.y, program.maximise)
        return replace(values, y=y, rebuilt=(*reasons, *values.rebuilt))
