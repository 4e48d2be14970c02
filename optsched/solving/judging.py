"""What a point and duals are worth: status, bound and certificate, without trust in the solver.

A continuous program is optimal only by a bound that is recomputed from duals. A solver without
duals has claimed its optimum and its bound, and no more: the bound is left out, and the point is as
good as that of a stopped run. Of an integer program the solver's bound is kept, as a claim.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from optsched.arrays import FloatArray
from optsched.program import AllocationProgram
from optsched.program.linear_form import LinearForm
from optsched.solution.certificate import (
    OPTIMALITY,
    alike,
    certify_point,
    checked_duals,
    dual_residual,
    gap_of,
    noise_at,
    proved_by_nothing,
    without_noise,
)
from optsched.solution.solution import Status
from optsched.solution.values import Termination, Values
from optsched.solvers import Limits, Solver
from optsched.solving.outcome import Outcome

CLAIMS = (Termination.OPTIMAL, Termination.GAP_LIMIT)
"""Ends by which a solver claims to be done."""
TERMS = 1e4
"""How much more noise the objective that a solver states may have: its terms are right to 1e-9."""


@dataclass(frozen=True)
class EvaluatedPoint:
    """A point of a program, and its objective, recomputed.

    Attributes
    ----------
    arrays : LinearForm
        The program.
    x : FloatArray
        What the outcome is to have: totals of class columns for an allocation program.
    at : FloatArray
        The point of the program that this is.
    value : float
    dual : LinearForm or None
        The program that duals bound, if it is not ``arrays``: another tangent.
    program : AllocationProgram or None
        Where the point is an allocation.
    """

    arrays: LinearForm
    x: FloatArray
    at: FloatArray
    value: float
    dual: LinearForm | None = None
    program: AllocationProgram | None = None


@dataclass(frozen=True)
class Bound:
    """A bound, where it comes from, and the duals that prove it.

    Attributes
    ----------
    value : float or None
    source, proof : str
        As a certificate states them.
    y : FloatArray or None
        Duals of the rows, without their noise.
    residual : float or None
        By how much their signs are wrong.
    """

    value: float | None
    source: str
    proof: str
    y: FloatArray | None
    residual: float | None


def judged(
    solver: type[Solver],
    limits: Limits,
    values: Values,
    point: EvaluatedPoint,
    y: FloatArray | None,
) -> Outcome:
    """The outcome of a point.

    Parameters
    ----------
    solver, limits
        What was run, and what was asked of it.
    values : Values
        What the solver said.
    point : EvaluatedPoint
    y : FloatArray or None, shape (rows,)
        Duals of the rows.
    """
    arrays, value = point.arrays, point.value
    bound = proved_or_claimed_bound(point, values, y)
    duals = None if bound.y is None else {rows.name: bound.y[rows.slice] for rows in arrays.rows}
    noise = noise_at(arrays, point.at)
    if point.program is not None and duals is not None:
        noise += point.program.worth_of_noise(duals)
    gap_accepted = max(OPTIMALITY, limits.gap or 0.0) if arrays.is_integer else OPTIMALITY
    closed = bound.value is not None and alike(value, bound.value, gap_accepted, noise)

    certificate = certify_point(arrays, point.at, value, "none")
    residuals = dict(certificate.residuals)
    proof = bound.proof if residuals else "none"
    if bound.residual is not None:
        residuals["duals"] = bound.residual
    problems = list(certificate.problems)

    claims = values.termination in CLAIMS
    loose = 10.0 * limits.tolerance
    if claims and loose > OPTIMALITY and bound.value is not None and not closed:
        claims = False  # as imprecise as was asked for: no lie
    stated = value if values.objective is None else values.objective
    if claims and not alike(value, stated, max(OPTIMALITY, loose), TERMS * noise):
        problems.append(f"the solver states the objective {stated:.9g}, its point has {value:.9g}")
    if claims and y is None and not arrays.is_integer and not problems:
        claims = False
    if values.termination in CLAIMS and not claims:
        values = replace(values, termination=Termination.IMPRECISE)
    if bound.value is not None and contradicts(bound.value, value, arrays.maximise, noise):
        problems.append(
            f"the bound {bound.value:.9g} is worse than the objective of the point, {value:.9g}"
        )
    if claims and not closed:
        gap = gap_of(value, bound.value)
        left = "no bound" if gap is None else f"a gap of {gap:.2g}"
        problems.append(f"the solver claims optimality, but the certificate leaves {left}")
    return Outcome(
        values=values,
        x=point.x,
        value=value,
        bound=bound.value,
        bound_source=bound.source,
        certificate=replace(
            certificate, ok=not problems, proof=proof, residuals=residuals, problems=tuple(problems)
        ),
        status=Status.OPTIMAL if closed else Status.FEASIBLE,
        solver=solver,
        duals=duals,
    )


def proved_or_claimed_bound(point: EvaluatedPoint, values: Values, y: FloatArray | None) -> Bound:
    """The bound that duals prove; without one, the solver's claim for an integer program."""
    arrays = point.arrays
    residual = None
    if y is None or y.shape != arrays.shape[:1] or not np.isfinite(y).all():
        y = None
    else:
        y = without_noise(y, arrays)
        bound, residual = checked_duals(arrays if point.dual is None else point.dual, y)
        own = point.dual is None or point.dual is arrays
        if bound is not None and own and proved_by_nothing(arrays, point.value, bound):
            y, bound = np.zeros_like(y), point.value
            residual = dual_residual(arrays, y)
        if bound is not None:
            return Bound(bound, "dual", "dual", y, residual)
    if arrays.is_integer and values.bound is not None and np.isfinite(values.bound):
        return Bound(values.bound, "solver", "claimed", y, residual)
    return Bound(None, "none", "none", y, residual)


def contradicts(bound: float, value: float, maximise: bool, noise: float) -> bool:
    """Whether a bound is worse than the objective of a feasible point by more than rounding."""
    excess = value - bound if maximise else bound - value
    return excess > 0 and not alike(value, bound, OPTIMALITY, noise)
