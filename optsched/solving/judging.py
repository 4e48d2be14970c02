"""What a point and duals are worth: status, bound and certificate, without trust in the solver that they came from."""

from __future__ import annotations

from dataclasses import replace

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


def judged(
    solver: type[Solver],
    limits: Limits,
    arrays: LinearForm,
    values: Values,
    x: FloatArray,
    point: FloatArray,
    value: float,
    y: FloatArray | None,
    dual: LinearForm | None = None,
    program: AllocationProgram | None = None,
) -> Outcome:
    """The outcome of a point.

    A continuous program is optimal only by a bound that is recomputed from duals. A solver without duals has claimed
    its optimum and its bound, and no more: the bound is left out, and the point is as good as that of a stopped run.
    Of an integer program the solver's bound is kept, as a claim.

    Parameters
    ----------
    solver, limits
        What was run, and what was asked of it.
    arrays : LinearForm
        The program.
    values : Values
        What the solver said.
    x, point : FloatArray
        What the outcome is to have (totals of class columns), and the point of the program that this is.
    value : float
        The objective, recomputed.
    y : FloatArray or None
        Duals of the rows.
    dual : LinearForm, optional
        The program that the duals bound, if it is not that of the point.
    program : AllocationProgram, optional
        Where the point is an allocation.
    """
    stated = value if values.objective is None else values.objective
    certificate = certify_point(arrays, point, value, "none")
    without_duals = y is None and not arrays.is_integer
    y = (
        None
        if y is None or y.shape != arrays.shape[:1] or not np.isfinite(y).all()
        else without_noise(y, arrays)
    )
    dual = arrays if dual is None else dual
    bound, residual = (None, None) if y is None else checked_duals(dual, y)
    if (
        y is not None
        and bound is not None
        and dual is arrays
        and proved_by_nothing(arrays, value, bound)
    ):
        y, bound = np.zeros_like(y), value
        residual = dual_residual(dual, y)
    source = proof = "dual"
    if bound is None:
        known = arrays.is_integer and values.bound is not None and np.isfinite(values.bound)
        bound, source, proof = (
            (values.bound, "solver", "claimed") if known else (None, "none", "none")
        )
    certificate = replace(certificate, proof=proof if certificate.residuals else "none")
    if residual is not None:
        certificate = replace(certificate, residuals={**certificate.residuals, "duals": residual})
    duals = None if y is None else {block.name: y[block.slice] for block in arrays.rows}
    gap, noise = gap_of(value, bound), noise_at(arrays, point)
    if program is not None and duals is not None:
        noise += program.worth_of_noise(duals)
    problems = list(certificate.problems)
    accepted = max(OPTIMALITY, limits.gap or 0.0) if arrays.is_integer else OPTIMALITY
    claims = values.termination in CLAIMS
    loose = 10.0 * limits.tolerance
    if (
        claims
        and loose > OPTIMALITY
        and bound is not None
        and not alike(value, bound, accepted, noise)
    ):
        values = replace(
            values, termination=Termination.IMPRECISE
        )  # as imprecise as was asked for: no lie
        claims = False
    if claims and not alike(
        value, stated, max(OPTIMALITY, loose), 1e4 * noise
    ):  # terms to about 1e-9
        problems.append(f"the solver states the objective {stated:.9g}, its point has {value:.9g}")
    if claims and without_duals and not problems:
        values = replace(values, termination=Termination.IMPRECISE)
        claims = False
    excess = 0.0 if bound is None else (value - bound if arrays.maximise else bound - value)
    if bound is not None and excess > 0 and not alike(value, bound, OPTIMALITY, noise):
        problems.append(
            f"the bound {bound:.9g} is worse than the objective of the point, {value:.9g}"
        )
    status = Status.FEASIBLE
    closed = bound is not None and alike(value, bound, accepted, noise)
    if claims:
        if closed:
            status = Status.OPTIMAL
        else:
            told = "no bound" if gap is None else f"a gap of {gap:.2g}"
            problems.append(f"the solver claims optimality, but the certificate leaves {told}")
    elif closed:
        status = Status.OPTIMAL  # stopped short, yet the duals prove it
    certificate = replace(certificate, ok=not problems, problems=tuple(problems))
    return Outcome(values, x, value, bound, source, certificate, status, solver, duals)
