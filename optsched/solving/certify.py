"""From what a solver left to a certified outcome: of a point, and of a run without one."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from optsched.arrays import FloatArray
from optsched.errors import Interrupted, SolverCrashed
from optsched.program import AllocationProgram, LinearArrays
from optsched.program.linear_form import LinearForm
from optsched.solution.certificate import Certificate, is_bounded, without_noise
from optsched.solution.solution import Status
from optsched.solution.values import Termination, Values
from optsched.solving.cleaning import checked_point, cleaned
from optsched.solving.infeasibility import (
    Analyst,
    ClaimFinding,
    check_claim,
    conflicting_rows,
    described,
    refuse_refuted,
)
from optsched.solving.judging import CLAIMS, EvaluatedPoint, judged
from optsched.solving.outcome import NO_OPTIMUM, STOPPED, Outcome
from optsched.solving.runs import SolverRuns

Certify = Callable[[Values, FloatArray | None], Outcome]
"""Makes an outcome of the values of one run and duals, which may be those of another."""

# --- of a point ---------------------------------------------------------------------------------


def certified(
    runs: SolverRuns,
    point: EvaluatedPoint,
    values: Values,
    y: FloatArray | None,
    zero: bool = False,
) -> Outcome:
    """The outcome of a point.

    A stopped run that leaves 0 everywhere found nothing, unless ``zero`` says that this is a point
    like any other.
    """
    started = time.perf_counter()
    assert runs.chosen is not None
    outcome = judged(runs.chosen, runs.limits, values, point, y)
    found = outcome.certificate.ok and (zero or bool(point.x.any()))
    if values.termination not in CLAIMS and not found:
        return nothing_found(runs, outcome.values, point.arrays.is_integer)
    runs.spend("certify", time.perf_counter() - started)
    return outcome


def certified_linear(
    runs: SolverRuns,
    arrays: LinearArrays,
    values: Values,
    y: FloatArray | None,
    clean: Callable[[FloatArray], FloatArray] | None = None,
) -> Outcome:
    """The outcome of a point of a linear program.

    ``clean`` makes of a solver's point what it means (whole numbers, auxiliary columns recomputed).
    """
    assert values.x is not None
    x = checked_point(values.x, arrays.shape[1], runs.name)
    x = x if clean is None else clean(x)
    return certified(runs, EvaluatedPoint(arrays, x, x, arrays.objective(x)), values, y, zero=True)


def certified_allocation(
    runs: SolverRuns, program: AllocationProgram, values: Values, y: FloatArray | None
) -> Outcome:
    """The outcome of an allocation, by a program whose rows and columns are written down."""
    if program.conic:
        return _certified_total(runs, program, values, y, lambda *at: program.tangent(*at).arrays)
    arrays = runs.build(lambda: program.to_linear().arrays)
    return certified_lowered(runs, program, arrays, values, y)


def certified_without_matrix(
    runs: SolverRuns, program: AllocationProgram, values: Values, y: FloatArray | None
) -> Outcome:
    """The outcome of an allocation of jobs alone without side rows: no matrix is written down."""
    if program.conic:
        return _certified_total(runs, program, values, y, program.without_matrix)
    return certified_form(runs, program, program.without_matrix(np.zeros(0)), values, y)


def certified_lowered(
    runs: SolverRuns,
    program: AllocationProgram,
    arrays: LinearArrays,
    values: Values,
    y: FloatArray | None,
) -> Outcome:
    """The outcome of an allocation, by its linear program."""
    return certified_form(runs, program, arrays, values, program.polished(arrays, y))


def certified_form(
    runs: SolverRuns,
    program: AllocationProgram,
    form: LinearForm,
    values: Values,
    y: FloatArray | None,
) -> Outcome:
    """The outcome of an allocation, by any form of its linear program."""
    x = cleaned(program, values, runs.name)
    point = EvaluatedPoint(form, x, *program.complete_and_value(x), program=program)
    return certified(runs, point, values, y)


def _certified_total(
    runs: SolverRuns,
    program: AllocationProgram,
    values: Values,
    y: FloatArray | None,
    tangent: Callable[..., LinearForm],
) -> Outcome:
    """The outcome for a total of concave utilities; ``tangent`` takes x and duals."""
    x = cleaned(program, values, runs.name)
    proves = y is not None and values.termination in CLAIMS
    if not proves and not np.isfinite(program.value(x)):
        return nothing_found(runs, values)  # a job has nothing yet: the point is worth -infinity
    at_x = tangent(x)
    dual = None
    if y is not None and y.shape == at_x.shape[:1]:
        y = without_noise(y, at_x)
        dual = tangent(x, y)
    else:
        y = None
    point = EvaluatedPoint(at_x, x, *program.complete_and_value(x), dual, program)
    return certified(runs, point, values, y)


def certified_known(x: FloatArray, certify: Certify, found: Outcome | None) -> Outcome | None:
    """The outcome of a point that needs no solver, with the bound of a run that left no point.

    None if it is not feasible.
    """
    values = Values(Termination.IMPRECISE) if found is None else found.values
    outcome = certify(replace(values, x=x, y=None, objective=None), None)
    return outcome if outcome.x is not None and outcome.certificate.ok else None


def known_allocation(
    runs: SolverRuns, program: AllocationProgram, found: Outcome | None, certify: Certify
) -> Outcome | None:
    """`certified_known` of an allocation, where no run left one.

    The allocation of a stopped run is no worse: the two are compared where it is cleaned.
    """
    if not runs.known_points or (found is not None and found.x is not None):
        return None
    return certified_known(runs.build(program.known_point), certify, found)


# --- without a point ----------------------------------------------------------------------------


def nothing_found(runs: SolverRuns, values: Values, integer: bool = False) -> Outcome:
    """Stopped before any feasible point; a solver's bound counts for integer programs alone."""
    if values.termination is Termination.INTERRUPTED:
        raise Interrupted("interrupted before any feasible point was found")
    if values.termination in CLAIMS:
        values = replace(values, termination=Termination.IMPRECISE)
    known = integer and values.bound is not None and np.isfinite(values.bound)
    bound = values.bound if known else None
    return _pointless(runs, values, Status.LIMIT, Certificate(True, "none", {}), bound)


def without_point(
    runs: SolverRuns, arrays: LinearArrays, values: Values, program: AllocationProgram | None
) -> Outcome:
    """The outcome of a run that left no point: a proof that none exists, or that it was stopped."""
    if values.termination in STOPPED or values.termination is Termination.IMPRECISE:
        return nothing_found(runs, values, arrays.is_integer)
    if values.termination not in NO_OPTIMUM:
        raise SolverCrashed(f"solver {runs.name} stopped with {values.words!r} and no point")
    if program is not None and program.explained_apart:
        arrays = program.requirements
    found = None
    with Analyst(runs.limits_left(), runs.load) as analyst:
        checked = check_claim(arrays, analyst)
        if checked.finding is not ClaimFinding.FEASIBLE:
            found = conflicting_rows(arrays, checked, analyst)
    claimed = Certificate(True, "claimed", {})
    if found is None:
        refuse_refuted(values.termination, arrays, program, runs.name)
        unbounded = replace(values, termination=Termination.UNBOUNDED)
        return _pointless(runs, unbounded, Status.UNBOUNDED, claimed)
    may_be_unbounded = values.termination is not Termination.INFEASIBLE and not is_bounded(arrays)
    if checked.end is not None and may_be_unbounded:
        return nothing_found(runs, replace(values, termination=checked.end))
    certificate = claimed
    if checked.needed is not None:
        certificate = Certificate(True, "dual", {"least_violation": checked.needed})
    infeasible = replace(values, termination=Termination.INFEASIBLE)
    outcome = _pointless(runs, infeasible, Status.INFEASIBLE, certificate)
    conflicts = described(arrays, program, found.rows)
    return replace(outcome, conflicts=conflicts, explanation=found.explanation)


def _pointless(
    runs: SolverRuns,
    values: Values,
    status: Status,
    certificate: Certificate,
    bound: float | None = None,
) -> Outcome:
    assert runs.chosen is not None
    return Outcome(
        values=values,
        x=None,
        value=None,
        bound=bound,
        bound_source="none" if bound is None else "solver",
        certificate=certificate,
        status=status,
        solver=runs.chosen,
    )
