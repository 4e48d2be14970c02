"""Linear programs for solvers of conic ones."""

from __future__ import annotations

import time
from collections.abc import Callable

from optsched.arrays.values import replace
from optsched.program import ConicProgram, LinearArrays, linear_to_conic
from optsched.solution.values import Values
from optsched.solvers.base import Limits


def solve_as_cones(
    arrays: LinearArrays, limits: Limits, solve_conic: Callable[[ConicProgram, Limits], Values]
) -> Values:
    """Lower a linear program to cones, solve that, and bring the duals of the rows back."""
    started = time.perf_counter()
    program = linear_to_conic(arrays)
    values = solve_conic(program, limits.after(time.perf_counter() - started))
    if values.y is None:
        return values
    assert program.linear is not None
    return replace(values, y=program.linear.duals(values.y, program.maximise))
