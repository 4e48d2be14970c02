"""`DelayedMinimum` by Newton's method: each tangent cut is taken at the optimum of the one before;
or by prices, if many jobs differ.

Only this utility is solved by tangents. Those of a concave total prove a bound and are made
elsewhere: see `optsched.program.total.Total.tangent`.
"""

from __future__ import annotations

from functools import partial
from itertools import chain

import numpy as np

from optsched.arrays.values import replace
from optsched.program import AllocationProgram, LinearArrays
from optsched.solution import Termination
from optsched.solving.attempts import Way, attempt, ways_of
from optsched.solving.certify import (
    best_known_allocation,
    certified_allocation,
    cleaned,
    without_point,
)
from optsched.solving.engine import Engine
from optsched.solving.outcome import NO_OPTIMUM, Outcome

CLOSED_GAP = 1e-10
"""Relative distance of value and bound at which the method ends."""
STALLED = 1e-15
"""Relative improvement of the bound below which it ends as well."""


def solve_delayed(engine: Engine, program: AllocationProgram) -> Outcome:
    """Solve a program whose utility is a minimum with delays; see `DelayedMinimum.tangent_at`."""
    certify = partial(certified_allocation, engine, program)
    direct = engine.solver_as_it_is(program)
    by_prices: list[Way] = []
    if direct is not None:
        by_prices.append(partial(engine.solve_as_it_is, program, *direct, None))
    elif (groups := engine.for_groups(program)) is not None:
        by_prices.append(partial(engine.solve_for_groups, groups))

    def by_tangents(solver: str | None) -> Outcome:
        first = engine.build(partial(_tangent, program, program.value(program.even())))
        return _solve(engine, program, first, solver)

    ways = chain(by_prices, ways_of(engine, by_tangents))

    def known(found: Outcome | None) -> Outcome | None:
        return best_known_allocation(engine, program, found, certify)

    return attempt(engine, ways, certify, known, answers=engine.known_points)


def _solve(
    engine: Engine, program: AllocationProgram, arrays: LinearArrays, solver: str | None
) -> Outcome:
    """Solve with one tangent cut after the other; each optimum is an upper bound on the value, and
    the next cut is taken there.
    """
    session = engine.open(arrays, solver, classes=program.classes)
    best, value, bound = None, -np.inf, np.inf
    while True:
        values = engine.run(session)
        if values.x is None or values.termination in NO_OPTIMUM:
            if best is None:
                return without_point(engine, program.feasible_set().arrays, values, program)
            best = replace(best, termination=values.termination)
            break  # stopped: the best point so far, with the bound of the tangent before
        reached = arrays.objective(values.x)
        # The optima of Newton's method decrease. If one does not, the solver's precision is
        # reached.
        stalled, bound = reached >= bound * (1.0 - STALLED), min(reached, bound)
        x = cleaned(program, values, engine.name)
        better = program.value(x) > value
        # Duals and termination of the last tangent, with the best point of all.
        best = values if best is None or better else replace(values, x=best.x)
        value = max(value, program.value(x))
        if (
            values.termination is not Termination.OPTIMAL
            or bound - value <= CLOSED_GAP * bound
            or stalled
        ):
            break
        arrays = engine.build(partial(_tangent, program, min(bound, program.highest)))
        session.become(arrays)
    return certified_allocation(engine, program, replace(best, objective=value), best.y)


def _tangent(program: AllocationProgram, value: float) -> LinearArrays:
    return program.delayed.tangent_at(program, value).arrays
