"""What a solver's point means: totals of columns without its noise, repaired where it was stopped."""

from __future__ import annotations

import numpy as np

from optsched.arrays import FloatArray, blocks
from optsched.errors import SolverCrashed
from optsched.program import AllocationProgram
from optsched.solution.values import Termination, Values
from optsched.solving.outcome import STOPPED

CLOSE = 1.0 - 1e-12
"""Part of the level that a solver states, from which a point is not worth lifting."""


def checked_point(x: FloatArray, columns: int, solver: str) -> FloatArray:
    """The first columns of a solver's point, which must be there and finite."""
    if x.ndim != 1 or len(x) < columns or not np.isfinite(x[:columns]).all():
        raise SolverCrashed(f"solver {solver} returned a point with infinite or missing entries")
    return x[:columns]


def cleaned(program: AllocationProgram, values: Values, solver: str) -> FloatArray:
    """Totals of the class columns from a solver's point: without its noise, repaired if it was stopped."""
    from optsched.solution.allocation import Allocation

    assert values.x is not None
    raw = checked_point(program.allocation_of(values.x), program.classes.columns, solver)
    limit = program.limit
    if any((raw[part] > limit[part]).any() for part in blocks(len(raw))):
        raw = np.minimum(raw, limit)
    x = program.restored(Allocation.cleaned(program.classes, raw, program.integral).x, raw)
    stated = values.objective
    if (
        program.free_to_lift
        and stated is not None
        and np.isfinite(stated)
        and program.value(x) < stated * CLOSE
    ):
        lifted = program.lifted(x, stated)
        x = lifted if program.value(lifted) > program.value(x) else x
    if values.termination in (*STOPPED, Termination.IMPRECISE):
        x = program.repaired(x)
        if not (program.integral or program.side or program.extend):
            known = program.known_point()  # simplex may stop where some job has nothing
            x = known if program.value(known) > program.value(x) else x
    if program.integral and (program.classes.time(x) > program.classes.count).any():
        raise SolverCrashed(f"solver {solver} returned a point in which a whole job runs twice")
    return x
