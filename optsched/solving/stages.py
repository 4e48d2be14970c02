"""Stages: the programs that come before the last run of an allocation program.

Rows that may give way are relaxed by as little as possible. The utility then decides how the
program is solved (`Method`): directly, by tangent cuts, or by water filling.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from optsched.arrays.values import replace
from optsched.program import AllocationProgram, Method
from optsched.program.relaxing import RelaxedRows
from optsched.solution import Status
from optsched.solving.certify import nothing_found, unless_interrupted, without_point
from optsched.solving.engine import Engine
from optsched.solving.outcome import SolvedProgram

if TYPE_CHECKING:
    from optsched.solution.stage import Stage

log = logging.getLogger("optsched")

RELAXING = "relaxing"


def solve_staged(engine: Engine, program: AllocationProgram) -> SolvedProgram:
    """Solve an allocation program with everything that comes before its last run."""
    relaxation = RelaxedRows(program)
    if relaxation.needed:
        return _relaxed(engine, relaxation)
    return STRATEGIES[program.utility.method](engine, program)


def _direct(engine: Engine, program: AllocationProgram) -> SolvedProgram:
    if program.space is not None:
        from optsched.solving.in_space import solve_in_space  # few programs know nodes

        return solve_in_space(engine, program)
    outcome = engine.solve_directly(program)
    if program.integral:
        from optsched.solving.proof import proved_allocation  # few programs have whole jobs

        outcome = proved_allocation(engine, program, outcome)
    return SolvedProgram(program, outcome)


def _by_newton(engine: Engine, program: AllocationProgram) -> SolvedProgram:
    from optsched.solving.delayed_minimum import solve_delayed  # few utilities need it

    return SolvedProgram(program, solve_delayed(engine, program))


def _by_water_filling(engine: Engine, program: AllocationProgram) -> SolvedProgram:
    from optsched.solving.water_filling import solve_filling  # few utilities need it

    return solve_filling(engine, program)


STRATEGIES: dict[Method, Callable[[Engine, AllocationProgram], SolvedProgram]] = {
    Method.DIRECT: _direct,
    Method.NEWTON: _by_newton,
    Method.WATER_FILLING: _by_water_filling,
}
"""How each method of a utility is carried out."""


def _relaxed(engine: Engine, relaxation: RelaxedRows) -> SolvedProgram:
    """Find the least shortfall of the rows that may give way, then solve the program with it
    fixed.
    """
    from optsched.solving.proof import proved_linear  # few programs have such rows

    engine.require_rows("requirements that give way")
    arrays = engine.build(lambda: relaxation.to_linear().arrays)
    outcome = proved_linear(engine, arrays, engine.solve_linear(arrays))
    # Only a shortfall that is proved least may be fixed.
    if outcome.status is not Status.OPTIMAL or outcome.x is None:
        if outcome.status is Status.INFEASIBLE:  # explained by the rows that may not give way
            values = replace(outcome.values, x=None)
            strict = relaxation.strict
            outcome = without_point(engine, strict.feasible_set().arrays, values, strict)
        elif outcome.x is not None:
            outcome = unless_interrupted(nothing_found(engine, outcome.values))
        return SolvedProgram(relaxation.strict, outcome)
    short = relaxation.short(outcome.x)
    words = relaxation.words(short)
    for requirement in words:
        log.info("gives way: %s", requirement)
    from optsched.solution.stage import Stage  # most programs have one stage

    stage = Stage(
        RELAXING,
        relaxation.value(short),
        outcome.bound,
        outcome.duals,
        {"short": short},
        words,
        relaxation.assumptions,
    )
    answer = solve_staged(engine, relaxation.relaxed(short))
    return answer._replace(stages=(stage, *answer.stages))


def settled(program: AllocationProgram, stages: Sequence[Stage]) -> AllocationProgram:
    """The last program of an allocation program, given the results of the stages before it."""
    relaxation = RelaxedRows(program)
    if relaxation.needed and stages:
        return settled(relaxation.relaxed(stages[0].kept["short"]), stages[1:])
    if program.utility.method is not Method.WATER_FILLING:
        return program
    from optsched.solving.water_filling import filling_of, replayed

    filling = filling_of(program, stages)
    for stage in stages:
        replayed(filling, stage)
    return filling.final()
