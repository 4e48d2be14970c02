r"""Column generation of configurations: elastic jobs, with the few GPU counts that are worth a column.

A job that may run on 1 to 64 GPUs of three pools has 192 configurations, of which an optimum uses one or two. So the
program starts with a few of each pool (`optsched.candidates.configuration_table`) and is solved as any program is, by
prices where many jobs differ. Its duals (u of time, p of capacity, y of levels) price all configurations
(`configuration_pricing`). Those that are worth most become columns, until none is worth it: of a
linear total the best one of each class; else the two between which the class has its level at the lowest cost, at the
same p (`segments`).

At any duals, let v_k be the most that a configuration of class k is worth. Then u_k + v_k and p, y are a feasible point
of the dual of the WHOLE program:

    optimum <= bound of (u, p, y) for the columns there are + n . v

This costs one pass of pricing and trusts no solver. The utility may be a minimum or a total, also of concave functions:
the dual of its levels does not see which columns there are.

References
----------
P. C. Gilmore, R. E. Gomory, "A linear programming approach to the cutting-stock problem", Operations Research 9 (1961);
A. A. Farley, "A note on bounding a class of linear programming problems", Operations Research 38 (1990).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from optsched.arrays import FloatArray
from optsched.candidates import Classes
from optsched.errors import UsageError
from optsched.program import AllocationProgram
from optsched.solution.certificate import OPTIMALITY
from optsched.solution.plan import Plan
from optsched.solution.solution import CONFIGURATIONS, ColumnsMade
from optsched.solution.values import Termination, Values
from optsched.solving.certify import certified_without_matrix
from optsched.solving.column_generation.configuration_columns import (
    Restricted,
    restricted,
    with_configurations,
)
from optsched.solving.column_generation.configuration_pricing import Chosen, ConfigurationPricing
from optsched.solving.column_generation.duals import Duals
from optsched.solving.column_generation.generated import with_bound
from optsched.solving.column_generation.segments import segments
from optsched.solving.engine import Engine
from optsched.solving.outcome import STOPPED, Outcome, SolvedProgram

log = logging.getLogger("optsched")

CLOSED = 1e-9
"""Relative gap at which no more columns are made."""
PASSES = 50
"""Programs that are solved at most."""
NOTHING = 1e-3
"""Part of what the gap may be that all columns together must be worth."""


@dataclass(frozen=True)
class _Best:
    """The lowest bound of the whole program so far, and the duals that prove it: u + v, p and y."""

    bound: float
    duals: Duals


def generate_configurations(
    engine: Engine, program: AllocationProgram, build: Callable[[Classes], AllocationProgram | Plan]
) -> SolvedProgram:
    """Solve the program of all configurations of a table by making columns of those that are worth it.

    Parameters
    ----------
    engine : Engine
    program : AllocationProgram
        Over classes of candidates with configurations on demand (`Candidates.elastic`).
    build : callable
        The program over classes with more columns.

    Raises
    ------
    UsageError
        For programs whose columns cannot be priced (`ConfigurationPricing.of`), and solvers without duals.
    """
    pricing = ConfigurationPricing.of(program)
    C, smallest = program.classes, program.utility.smallest_level
    made, at = Chosen.none(), Restricted(program, np.arange(C.columns))
    last: Outcome | None = None
    value = -np.inf
    best: _Best | None = None
    prices: FloatArray | None = None
    for number in range(PASSES):
        outcome = engine.solve_allocation(at.program, prices)
        if outcome.x is None or outcome.value is None:
            break
        if outcome.duals is None or outcome.bound is None:
            if outcome.values.termination in STOPPED:
                break  # a point that is known without a solver, and no duals to go on from
            raise UsageError(
                f"columns are priced by duals, which solver {engine.name} does not give: choose another"
            )
        if last is None or outcome.value >= value:
            last, value, x = outcome, outcome.value, at.totals(outcome.x)
        duals = Duals.of(outcome.duals, program)
        least = NOTHING * CLOSED * abs(outcome.bound) / (len(C) * C.count)
        most, found = engine.build(lambda at=duals, above=least: pricing.best(at, above))  # type: ignore[misc]
        bound = outcome.bound + float(C.count @ most)
        if best is None or bound < best.bound:
            best = _Best(bound, replace(duals, time=duals.time + most))
        if len(found) and (smallest or program.conic):
            level = np.full(len(C), outcome.value) if smallest else at.program.level(outcome.x)
            given = (pricing, at.program, outcome.x, level, duals, least)
            raised, ends = engine.build(lambda given=given: segments(*given))  # type: ignore[misc]
            bound = float(raised.time @ C.count + raised.capacity @ C.capacity)
            best = _Best(bound, raised) if smallest and bound < best.bound else best
            ends = ends.but(made, len(pricing.table))
            found = (
                ends
                if smallest and len(ends)
                else Chosen.concatenate([ends, found.but(ends, len(pricing.table))])
            )
        log.info(
            "%d configurations of %d made columns: value %.9g, bound %.9g", len(made), pricing.count, value,
            best.bound,
        )  # fmt: skip
        if best.bound - value <= CLOSED * abs(best.bound) or outcome.values.termination in STOPPED:
            break
        new = found.but(made, len(pricing.table))
        if not len(new) or number + 1 == PASSES:
            break
        made, prices = Chosen.concatenate([made, new]), duals.capacity
        at = engine.build(lambda chosen=made: restricted(pricing, chosen))  # type: ignore[misc]
    count = ColumnsMade(CONFIGURATIONS, len(made), pricing.count)
    if last is None or best is None:
        return SolvedProgram(program, outcome, columns_made=count)
    ended = outcome.values.termination
    if ended is Termination.OPTIMAL and best.bound - value > OPTIMALITY * abs(best.bound):
        ended = Termination.IMPRECISE  # of what there is, but not of all
    values = replace(last.values, x=x, termination=ended)
    return _certified(engine, pricing, build, made, values, best.duals, count)


def _certified(
    engine: Engine,
    pricing: ConfigurationPricing,
    build: Callable[[Classes], AllocationProgram | Plan],
    made: Chosen,
    values: Values,
    duals: Duals,
    count: ColumnsMade,
) -> SolvedProgram:
    """The outcome over the columns in use; its bound is made anew of the duals by pricing all configurations again.

    The point of ``values`` are totals of the columns to start with and of as many of those made as there were.
    """
    x, first = values.x, pricing.classes.columns
    assert x is not None
    used = np.flatnonzero(x[first:] > 0)
    classes, order = engine.build(lambda: with_configurations(pricing, made.take(used)))
    program = build(classes)
    assert isinstance(program, AllocationProgram)
    point = np.concatenate([x[:first], x[first + used]])[order]
    y = duals.rows(program)
    outcome = certified_without_matrix(engine, program, replace(values, x=point), y)
    if outcome.bound is not None and outcome.duals is not None:
        outcome = with_bound(
            outcome,
            outcome.bound + pricing.left_out(Duals.of(outcome.duals, program)),
            CONFIGURATIONS,
        )
    log.info(
        "%d configurations of %d made columns, %d in use", count.made, count.possible, len(used)
    )
    return SolvedProgram(program, outcome, columns_made=count)
