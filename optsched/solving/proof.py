"""Cross-checks of bounds that no duals prove, by another solver or another search.

The bound of a branch and bound is a claim: CP-SAT 9.15 has called 28 optimal where 27 exists. So a
row asks for an objective that is one step better than the incumbent, and another solver solves that
program. If it is infeasible, the claim is cross-checked. If it has a better point, the claim is
false: that point becomes the incumbent, and is checked in the same way.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from optsched.arrays import FloatArray
from optsched.arrays.values import replace
from optsched.errors import SolverCrashed, SolverUnavailable
from optsched.program import AllocationProgram, LinearArrays
from optsched.program.integers import step_of
from optsched.solution import Certificate, PointStatus, Status, Termination, Values, certify_point
from optsched.solution.certificate import is_bounded
from optsched.solvers.base import is_highs
from optsched.solving.certify import certified_allocation, certified_linear
from optsched.solving.engine import Engine
from optsched.solving.outcome import Outcome

if TYPE_CHECKING:
    from optsched.program import TimelineProgram

log = logging.getLogger("optsched")

STEP = 1e-6
"""Relative improvement that is excluded if objective values have no smallest difference."""
ATTEMPTS = 50
OTHER_SEARCH = {"permute_variable_randomly": True, "symmetry_level": 0}
"""Options of CP-SAT under which a claim of its default search is tried again."""


@dataclass(frozen=True, eq=False)
class CutOffResult:
    """Result of a cut-off program: a ``bound`` (nothing is better), a better point ``x``, or
    neither if the run was stopped.
    """

    words: str
    bound: float | None = None
    x: FloatArray | None = None


def cross_checked(
    engine: Engine,
    outcome: Outcome,
    attempt: Callable[[Outcome], CutOffResult],
    certify: Callable[[Values], Outcome],
) -> Outcome:
    """An outcome of an integer program with its claim cross-checked, if the engine is to prove.

    If a point refuted the claim of the first solver, the cut-off is made of that point.

    Parameters
    ----------
    attempt : callable
        Looks for something better than an outcome.
    certify : callable
        The outcome of a better point, which has no bound yet.
    """
    end = outcome.values.termination
    claimed = outcome.status is Status.OPTIMAL and outcome.bound_source == "solver"
    refuted = outcome.status is Status.FEASIBLE and end is Termination.IMPRECISE
    provable = outcome.certificate.ok and (claimed or refuted)
    if not (engine.prove and provable) or end is Termination.GAP_LIMIT:
        return outcome
    first, value = outcome.solver.name, outcome.value
    for _ in range(ATTEMPTS):
        try:
            verdict = attempt(outcome)
            better = None if verdict.x is None else certify(_unproven(outcome.values, verdict.x))
        except (SolverUnavailable, SolverCrashed) as error:
            log.warning("not cross-checked: %s", error)
            return outcome
        if verdict.bound is not None:
            log.info("cross-checked: %s", verdict.words)
            # A weaker bound that duals proved is replaced, with its duals
            residuals = {**outcome.certificate.residuals}
            residuals.pop("duals", None)
            certificate = Certificate(True, "cross-checked", residuals)
            return replace(
                outcome,
                certificate=certificate,
                bound=verdict.bound,
                bound_source="solver",
                duals=None,
                status=Status.OPTIMAL,
            )
        if better is None or not better.certificate.ok or better.x is None:
            log.info("not cross-checked: %s", verdict.words)
            return outcome
        outcome = better
        engine.rebuilt.append(
            f"{first} claimed that {value:.9g} is optimal; "
            f"{verdict.words} found {outcome.value:.9g}"
        )
        log.info(engine.rebuilt[-1])
    return outcome


def _unproven(values: Values, x: FloatArray) -> Values:
    """Values with a better point, and without the refuted bound."""
    return replace(
        values, termination=Termination.IMPRECISE, x=x, y=None, objective=None, bound=None
    )


# --- linear programs ------------------------------------------------------------------------------


def proved_linear(engine: Engine, arrays: LinearArrays, outcome: Outcome) -> Outcome:
    """An outcome of a linear or mixed-integer program with its claim cross-checked."""
    if not arrays.is_integer:
        return outcome
    return cross_checked(
        engine,
        outcome,
        lambda found: better_point(engine, arrays, found),
        lambda values: certified_linear(engine, arrays, values, None),
    )


def proved_allocation(engine: Engine, program: AllocationProgram, outcome: Outcome) -> Outcome:
    """An outcome of an integral allocation program with its claim cross-checked."""
    if not program.integral:
        return outcome
    arrays = program.to_linear().arrays

    return cross_checked(
        engine,
        outcome,
        lambda found: better_point(engine, arrays, found),
        lambda values: certified_allocation(engine, program, values, None, arrays),
    )


def better_point(
    engine: Engine, arrays: LinearArrays, outcome: Outcome, step: float | None = None
) -> CutOffResult:
    """Look for a point that is better by a step, with a solver of another kind.

    All objective values are multiples of ``step``, where the caller knows such a number.
    """
    assert outcome.value is not None
    step = step_of(arrays.cost, arrays.integer) if step is None else step
    # Half a step is far from every value that the objective can have: no tolerance can hide one.
    margin = 0.5 * step if step else max(STEP * abs(outcome.value), 1e-9)
    name = "scip" if is_highs(outcome.solver.name) else "highs"
    bounded = is_bounded(arrays)
    asked, reason, chosen = engine.solver, engine.reason, engine.chosen
    try:
        session = engine.open(cut_off(arrays, outcome.value, margin), name)
        # The options belong to the other solver; with a gap this one may miss the better point.
        limits = replace(engine.limits_left(), options={}, gap=None)
        values = engine.run_within(session, limits)
    finally:
        # The record names the solver of the incumbent, not the one that looks for a better point.
        engine.solver, engine.reason, engine.chosen = asked, reason, chosen
    words = f"{name} finds nothing better than {outcome.value:.9g}"
    if values.termination is Termination.INFEASIBLE or (
        values.termination is Termination.INFEASIBLE_OR_UNBOUNDED and bounded
    ):
        # Without a step only values better by the margin were excluded.
        loose = 0.0 if step else margin if arrays.maximise else -margin
        return CutOffResult(words, bound=outcome.value + loose)
    if values.x is not None and values.termination is not Termination.UNBOUNDED:
        x = np.where(arrays.integer, np.round(values.x), values.x)
        better = arrays.objective(x) - outcome.value
        if (better if arrays.maximise else -better) > 0 and certify_point(
            arrays, x, arrays.objective(x), "none"
        ).ok:
            return CutOffResult(name, x=x)
    return CutOffResult(f"{name} stopped with {values.words or values.termination}")


def cut_off(arrays: LinearArrays, value: float, margin: float) -> LinearArrays:
    """The program with a row that asks for an objective better than a value by a margin."""
    wanted = value - arrays.offset + (margin if arrays.maximise else -margin)
    low, high = (wanted, np.inf) if arrays.maximise else (-np.inf, wanted)
    return arrays.with_row(arrays.cost, low, high, "cut-off")


# --- timelines ------------------------------------------------------------------------------------


def better_schedule(engine: Engine, program: TimelineProgram, cost: int) -> CutOffResult:
    """Look for a schedule that costs at least a unit less, with another search of CP-SAT."""
    solver = engine.load("cp-sat")
    limits = replace(
        engine.limits_left(),
        options=OTHER_SEARCH,
        gap=None,
        seed=engine.limits.seed + 1,
        on_progress=None,
    )
    deadline = program.deadline
    if program.only_makespan:
        # A makespan below the cost is a deadline of all activities, which narrows the search.
        deadline = np.minimum(deadline, (cost - 1) // program.cost.makespan)
    values = engine.record(
        solver().solve_timeline(replace(program, most=cost - 1, deadline=deadline), limits),
        (0, 2 * len(program)),
    )
    words = f"another search of cp-sat finds nothing below {cost}"
    if values.termination is Termination.INFEASIBLE:
        return CutOffResult(words, bound=float(cost))
    if values.x is not None and values.primal is PointStatus.FEASIBLE:
        return CutOffResult("another search of cp-sat", x=values.x)
    return CutOffResult(f"another search of cp-sat stopped with {values.words}")
