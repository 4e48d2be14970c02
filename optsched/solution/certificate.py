"""Certificates: feasibility and optimality checked from the numbers alone, without trust in a solver.

Linear programs, written as ``maximise c'x  s.t.  rl <= A x <= ru, l <= x <= u`` (a minimum is the maximum of -c'x).
For ANY row multipliers y, with d = c - A'y,

    c'x = y'(A x) + d'x <= sum_i max(y_i rl_i, y_i ru_i) + sum_j max(d_j l_j, d_j u_j)

where an infinite side forces the sign of y_i (the offending part is set to 0 first) and l, u are the finite implied
bounds of the columns. The bound holds for slightly wrong duals too (Neumaier, Shcherbina 2004, "Safe bounds in linear
and mixed-integer linear programming").
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from optsched.arrays import FloatArray
from optsched.program.linear_form import LinearForm

FEASIBILITY = 1e-6
"""Largest residual accepted, relative to the size of the row's terms (at least 1)."""
INTEGRALITY = 1e-6
OPTIMALITY = 1e-6
"""Largest relative gap of an answer that is called optimal."""
NOISE = 1e-8
"""Reduced costs below this, relative to their terms, count as 0 where a column has no implied bound."""


@dataclass(frozen=True)
class Certificate:
    """An independent check of a solution.

    Attributes
    ----------
    ok : bool
        The point is feasible, and the stated objective is its objective.
    proof : str
        ``dual`` (bound recomputed from the duals), ``claimed`` (the solver's word), ``cross-checked``, ``rule`` (a
        closed form: nothing to prove) or ``none``.
    residuals : mapping
        Largest relative residual of rows, columns, integrality and objective; of the signs of the ``duals`` where
        there are any; of an infeasible instance the ``least_violation`` that its rows can be met with.
    problems : tuple of str
        What is wrong, in words; empty if ok.
    """

    ok: bool
    proof: str
    residuals: Mapping[str, float]
    problems: tuple[str, ...] = ()


def gap_of(objective: float | None, bound: float | None) -> float | None:
    """|objective - bound| / max(1e-9, |objective|); None where one of them does not exist or is infinite."""
    if objective is None or bound is None or not (np.isfinite(objective) and np.isfinite(bound)):
        return None
    return abs(objective - bound) / max(1e-9, abs(objective))


def residuals_of(arrays: LinearForm, x: FloatArray) -> dict[str, float]:
    """Relative violation of rows, columns and integrality, recomputed in float64."""
    rows = row_violations(arrays, x)
    columns = np.maximum(arrays.lower - x, x - arrays.upper) / np.maximum(1.0, np.abs(x))
    integer = x[arrays.integer]
    return {
        "rows": float(rows.max(initial=0.0)),
        "columns": float(columns.max(initial=0.0)),
        "integrality": float(np.abs(integer - np.round(integer)).max(initial=0.0)),
    }


def worst_row(arrays: LinearForm, x: FloatArray) -> tuple[str, int]:
    """(block, position) of the row that is violated most."""
    return arrays.row_name(int(row_violations(arrays, x).argmax()))


def row_violations(arrays: LinearForm, x: FloatArray) -> FloatArray:
    """Violation of each row, relative to the row: to its terms, its sides, and what one unit of its columns does.

    No absolute number is large or small here: a row may count GPUs, or steps/s of which there are 1e-9.
    """
    activity, terms = arrays.activity_and_terms(x)
    violation = np.maximum(np.maximum(arrays.row_lower - activity, activity - arrays.row_upper), 0.0)
    size = np.maximum(terms, arrays.sizes)
    return np.asarray(np.divide(violation, size, out=np.where(violation > 0, np.inf, 0.0), where=size > 0))


def without_noise(y: FloatArray, arrays: LinearForm) -> FloatArray:
    """Duals whose rows weigh less than 1e-12 of the heaviest are rounding; the bound is made without them."""
    weight = np.abs(y) * arrays.sizes
    return np.where(weight < 1e-12 * weight.max(initial=0.0), 0.0, y)


def noise_of(arrays: LinearForm) -> float:
    """Objective values below this are rounding: 1e-13 of the largest term that the objective can have."""
    reach = np.maximum(np.abs(arrays.implied_lower), np.abs(arrays.implied_upper))
    terms = np.abs(arrays.cost) * np.where(np.isfinite(reach), reach, 1.0)
    return 1e-13 * float(terms.max(initial=0.0))


def alike(value: float, other: float, tolerance: float, noise: float) -> bool:
    """Whether two objective values agree, relative to the larger one; false for NaN and infinity."""
    return (
        np.isfinite(value)
        and np.isfinite(other)
        and abs(value - other) <= max(tolerance * max(abs(value), abs(other)), noise)
    )


def dual_bound(arrays: LinearForm, y: FloatArray, pulled: FloatArray | None = None) -> float | None:
    """Rigorous bound on the optimum from row multipliers; None where a column without implied bound spoils it.

    Of columns without implied bound on a side, as programs from files have them, a reduced cost below `NOISE` counts as
    0: no floating-point duals make it 0 exactly. All columns of formulations have implied bounds.

    An upper bound when maximising, a lower one when minimising. ``y`` are derivatives of the optimum, so for a minimum
    the signs of the derivation above are reversed. ``pulled`` is A'y where that is known.
    """
    if not np.isfinite(y).all():
        return None
    sign = 1.0 if arrays.maximise else -1.0
    multipliers = sign * y
    multipliers = np.where(np.isposinf(arrays.row_upper), np.minimum(multipliers, 0.0), multipliers)
    multipliers = np.where(np.isneginf(arrays.row_lower), np.maximum(multipliers, 0.0), multipliers)
    side = np.where(multipliers > 0, arrays.row_upper, arrays.row_lower)
    active = multipliers != 0
    rows = float((multipliers[active] * side[active]).sum())
    if pulled is None or not np.array_equal(multipliers, sign * y):
        pulled = sign * arrays.pulled(multipliers)
    reduced = sign * (arrays.cost - pulled)
    reach = np.where(reduced > 0, arrays.implied_upper, arrays.implied_lower)
    active = reduced != 0
    endless = active & np.isinf(reach)
    if endless.any():
        terms = np.abs(arrays.cost) + arrays.column_terms(np.abs(multipliers))
        active &= ~(endless & (np.abs(reduced) <= NOISE * terms))
    if not np.isfinite(reach[active]).all():
        return None
    bound = sign * (rows + float((reduced[active] * reach[active]).sum())) + arrays.offset
    return bound if np.isfinite(bound) else None


def proved_by_nothing(arrays: LinearForm, value: float, bound: float) -> bool:
    """Whether an interior point's noise for duals proves less than no duals at all, which prove the value exactly."""
    return bound != value and value == arrays.offset and dual_bound(arrays, np.zeros(arrays.shape[0])) == value


def dual_residual(arrays: LinearForm, y: FloatArray, pulled: FloatArray | None = None) -> float:
    """Largest relative error in the signs of the duals: 0 if y is feasible in the dual program.

    A column without upper bound may have no positive reduced cost (when maximising), one without lower bound no
    negative one; likewise the duals of rows that lack a side. Implied bounds count for nothing here. Each error is
    relative to the terms of its column, and these to at least a millionth of the largest in the program. ``pulled`` is
    A'y where that is known.
    """
    sign = 1.0 if arrays.maximise else -1.0
    multipliers = sign * y
    reduced = sign * (arrays.cost - (arrays.pulled(y) if pulled is None else pulled))
    columns = _wrong_sign(reduced, arrays.lower, arrays.upper)
    rows = _largest_ratio(_wrong_sign(multipliers, arrays.row_lower, arrays.row_upper), np.abs(y))
    if not columns.any():
        return rows
    return max(_largest_ratio(columns, np.abs(arrays.cost) + arrays.column_terms(np.abs(y))), rows)


def row_sign_error(arrays: LinearForm, y: FloatArray) -> float:
    """Largest row dual with a sign that its row cannot have, relative to the largest of all."""
    wrong = _wrong_sign(y if arrays.maximise else -y, arrays.row_lower, arrays.row_upper)
    return float(wrong.max(initial=0.0)) / max(float(np.abs(y).max(initial=0.0)), np.finfo(float).tiny)


def _wrong_sign(value: FloatArray, lower: FloatArray, upper: FloatArray) -> FloatArray:
    positive = np.where(np.isposinf(upper), value, 0.0)
    negative = np.where(np.isneginf(lower), -value, 0.0)
    return np.maximum(np.maximum(positive, negative), 0.0)


def _largest_ratio(error: FloatArray, size: FloatArray) -> float:
    size = np.maximum(size, 1e-6 * size.max(initial=0.0))
    some = error > 0
    return float((error[some] / size[some]).max(initial=0.0))


def is_bounded(arrays: LinearForm) -> bool:
    """Whether the implied bounds of the columns alone bound the objective, so that it cannot be unbounded."""
    return dual_bound(arrays, np.zeros(arrays.shape[0])) is not None


def certify_point(
    arrays: LinearForm, x: FloatArray, stated: float, proof: str, tolerance: float = FEASIBILITY
) -> Certificate:
    """Check a point and its stated objective against the program."""
    problems = []
    if x.shape != (arrays.shape[1],) or not np.isfinite(x).all():
        return Certificate(False, "none", {}, ("the point has infinite or missing entries",))
    residuals = residuals_of(arrays, x)
    actual = arrays.objective(x)
    noise = noise_of(arrays)
    size = max(abs(actual), abs(stated), noise)
    residuals["objective"] = max(abs(actual - stated) - noise, 0.0) / size if size > 0 else 0.0
    if residuals["rows"] > tolerance:
        block, position = worst_row(arrays, x)
        problems.append(f"row {block}[{position}] is violated by {residuals['rows']:.2g} (relative)")
    if residuals["columns"] > tolerance:
        problems.append(f"a column bound is violated by {residuals['columns']:.2g} (relative)")
    if residuals["integrality"] > INTEGRALITY:
        problems.append(f"an integer column is off by {residuals['integrality']:.2g}")
    if not residuals["objective"] <= tolerance:
        problems.append(f"the stated objective {stated:.9g} is not that of the point, {actual:.9g}")
    return Certificate(not problems, proof, residuals, tuple(problems))
