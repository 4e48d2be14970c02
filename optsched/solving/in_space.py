"""Programs of whole jobs whose answer is a placement (`optsched.program.space`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from optsched.arrays import FloatArray
from optsched.candidates import Classes
from optsched.program import AllocationProgram, LinearArrays, LinearProgram, Space, Variables
from optsched.program.space import best_fit
from optsched.solution import certify_point
from optsched.solving.engine import Engine
from optsched.solving.outcome import SolvedProgram
from optsched.solving.proof import proved_linear


def solve_in_space(engine: Engine, program: AllocationProgram) -> SolvedProgram:
    """Solve a program of whole jobs together with the columns of its space.

    Objective, bound and certificate are those of the whole program; its dual values and its point
    are cut down to the columns and rows that the program has without its space.
    """
    space = program.space
    assert space is not None
    arrays = engine.build(lambda: with_space(program, space, whole=True).arrays)

    def clean(point: FloatArray) -> FloatArray:
        return np.where(arrays.integer, np.round(point), point)

    previous = engine.start
    if previous is not None and len(previous) == program.classes.columns:
        engine.start_used = True
    else:
        previous = None
    point = engine.build(lambda: start_of(program, space, arrays, previous))
    outcome = proved_linear(engine, arrays, engine.solve_linear(arrays, clean, point))
    if outcome.x is None:
        return SolvedProgram(program, outcome)
    x = outcome.x[: program.classes.columns]
    return SolvedProgram(program, replace(outcome, x=x), seats=space.read(outcome.x))


def start_of(
    program: AllocationProgram, space: Space, arrays: LinearArrays, previous: FloatArray | None
) -> FloatArray | None:
    """The point of a placement by best fit, with the jobs of a previous answer before others;
    None where rows that ask for something do not hold there.

    The answer is never worse than it, however little time there is.
    """
    if program.extend is not None:
        return None  # its own columns are not known
    C = program.classes
    sign = 1.0 if arrays.maximise else -1.0
    worth = sign * arrays.cost[: C.columns]
    if not worth.any():  # of a smallest level, say
        worth = program.gain
    rows = program.requirements
    x, seats = best_fit(space, worth, sp.csr_matrix(rows.A), rows.row_upper, previous)
    point = np.concatenate([program.complete(x), seats])
    holds = certify_point(arrays, point, arrays.objective(point), "none").ok
    return point if holds else None


def with_space(program: AllocationProgram, space: Space, whole: bool) -> LinearProgram:
    """The program lowered, with the columns and rows of its space after its own."""

    def add(lp: LinearProgram, variables: Mapping[str, Variables], C: Classes) -> None:
        if program.extend is not None:
            program.extend(lp, variables, C)
        space.add_to(lp, variables["x"], whole)

    return replace(program, extend=add, integral=whole).to_linear()
