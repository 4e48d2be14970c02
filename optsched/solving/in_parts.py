"""The option ``parts`` (POP): solve the parts of an allocation program that
`optsched.program.partition` makes, join their optima, and bound the whole.

Not the parts of a linear program that few rows couple: see `optsched.decomposition.by_parts`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import closing

from optsched.arrays import FloatArray, IntArray
from optsched.arrays.values import replace
from optsched.program import AllocationProgram
from optsched.program.partition import ProgramParts
from optsched.program.price_bound import duals_at
from optsched.solution import PointStatus, Termination, Values
from optsched.solving.certify import certified_clean_allocation, nothing_found, unless_interrupted
from optsched.solving.engine import Engine
from optsched.solving.outcome import NO_OPTIMUM, Outcome, SolvedProgram
from optsched.solving.side_by_side import SideBySide
from optsched.solving.stages import solve_staged

log = logging.getLogger("optsched")

WORDS = "in parts"


def solve_in_parts(engine: Engine, program: AllocationProgram, part: IntArray) -> SolvedProgram:
    """The parts side by side, joined, with a bound on the optimum of the whole.

    If a part has no point, the whole may still have one: the outcome is then that nothing was
    found.

    Parameters
    ----------
    engine : Engine
        Its budget of time is that of all parts together.
    program : AllocationProgram
    part : IntArray, shape (K,)

    Raises
    ------
    InvalidArgument
        Of a program that does not fall into parts.
    """
    partition = ProgramParts.of(program, part)
    with closing(SideBySide(engine, _solved, (partition, engine.start))) as parts:
        outcomes = parts.results(range(partition.parts))
    for number, outcome in enumerate(outcomes):
        log.info("part %d of %d: %s", number + 1, partition.parts, outcome.status)
        if outcome.x is None:
            return _nothing(engine, program, outcome, number)
    # Not the gap, which is relative to the answer: of what is minimised the loss may be more.
    note = f"solved in {partition.parts} parts: the optimum is between objective and bound"
    return SolvedProgram(program, _joined(engine, partition, outcomes), notes=(note,))


def _solved(engine: Engine, shared: tuple[ProgramParts, FloatArray | None], number: int) -> Outcome:
    """The outcome of one part."""
    partition, start = shared
    engine.start = None if start is None else start[partition.columns_of(number)]
    small = engine.build(lambda: partition.program_of(number))
    return solve_staged(engine, small).outcome


def _joined(engine: Engine, partition: ProgramParts, outcomes: list[Outcome]) -> Outcome:
    """The optima of all parts as a point of the whole, certified there."""
    x = partition.joined([outcome.x for outcome in outcomes if outcome.x is not None])
    duals = [outcome.duals for outcome in outcomes if outcome.duals is not None]
    y = None
    if len(duals) == len(outcomes):
        y = engine.build(lambda: _rows_of(partition, duals, x))
    values = Values(_end(outcomes), PointStatus.FEASIBLE, PointStatus.NONE, x=x, y=y, words=WORDS)
    program = partition.program
    matrix = bool(program.side) or program.concave or not program.classes.all_alone
    return certified_clean_allocation(engine, program, x, values, y, matrix=matrix)


def _rows_of(
    partition: ProgramParts, duals: list[Mapping[str, FloatArray]], x: FloatArray
) -> FloatArray:
    """Duals of the rows of the whole, at the mean prices of the parts."""
    program = partition.program
    return duals_at(program, partition.joined_duals(duals), program.value(x)).rows(program)


def _end(outcomes: list[Outcome]) -> Termination:
    """Termination of the joined point: that of the first part without an optimum, if any."""
    ends = (outcome.values.termination for outcome in outcomes)
    return next((end for end in ends if end is not Termination.OPTIMAL), Termination.IN_PARTS)


def _nothing(
    engine: Engine, program: AllocationProgram, outcome: Outcome, number: int
) -> SolvedProgram:
    """No point of the whole, because a part has none."""
    values = replace(outcome.values, x=None, y=None, bound=None, objective=None)
    if values.termination in NO_OPTIMUM:
        values = replace(values, termination=Termination.IN_PARTS)
    found = unless_interrupted(nothing_found(engine, values))
    words = (
        f"part {number + 1} found no allocation ({outcome.status}), which says nothing of the whole"
    )
    return SolvedProgram(program, found, notes=(words,))
