"""Which jobs every allocation leaves without any time."""

from __future__ import annotations

import numpy as np

from optsched.arrays import BoolArray
from optsched.program import AllocationProgram
from optsched.program.some_time import SCARCE, SharesOfSome
from optsched.solution import Status
from optsched.solving.engine import Engine


def without_any_time(program: AllocationProgram, engine: Engine) -> BoolArray:
    """Classes that every allocation leaves without any time; shape (K,).

    Of feasible points the mean is feasible, so that all classes which can have some time have some
    together: each program settles those that it gives some, until it gives nothing to the others.

    Parameters
    ----------
    program : AllocationProgram
    engine : Engine
        Runs the solvers, within its limits.

    Returns
    -------
    BoolArray, shape (K,)
        No class, where the other rows cannot be met, or a limit stopped the solver.
    """
    nothing = np.ones(len(program.classes), bool)
    while nothing.any():
        asked = SharesOfSome(program, nothing)
        found = engine.solve_linear(asked.arrays)
        if found.status is not Status.OPTIMAL or found.x is None:
            return np.zeros(len(nothing), bool)
        some = asked.shares(found.x) > SCARCE
        if not some.any():
            break
        nothing &= ~some
    return nothing
