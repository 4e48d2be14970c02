"""Certificates: feasibility and optimality checked from the numbers alone,
without trust in a solver.

Linear programs, written as ``maximise c'x  s.t.  rl <= A x <= ru, l <= x <= u`` (a minimum is the maximum of -c'x).
For ANY row multipliers y, with d = c - A'y,

    c'x = y'(A x) + d'x <= sum_i max(y_i rl_i, y_i ru_i) + sum_j max(d_j l_j, d_j u_j)

where an infinite side forces the sign of y_i (the offending part is set to 0 first) and l, u are
the finite implied bounds of the columns. The bound holds for slightly wrong duals too (Neumaier,
Shcherbina 2004, "Safe bounds in linear and mixed-integer linear programming").

`dual_bound` computes it: `BoundSum` sets multipliers of the wrong sign to 0. `dual_residual`
reports how wrong the signs are. `optsched.solving.certify` calls both (`checked_duals`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from optsched.arrays import FloatArray, is_constant, without_repeats
from optsched.arrays.values import replace
from optsched.display import Displayed
from optsched.program.chunks import ColumnChunk, ColumnSlices, RowChunk

if TYPE_CHECKING:
    from optsched.program.linear_form import LinearForm

FEASIBILITY = 1e-6
"""Largest residual accepted, relative to the size of the row: its terms, its sides, and the effect
of one unit of its columns. For the bounds of a column: relative to max(1, |x|).
"""
INTEGRALITY = 1e-6
OPTIMALITY = 1e-6
"""Largest relative gap of an answer that is called optimal."""
ROUNDING = 1e-12
"""Gaps below this are rounding of the two numbers that were subtracted."""
ARITHMETIC = 1e-13
"""Error of a sum of floating-point numbers, relative to the size of its terms."""
NOISE = 1e-8
"""Reduced costs below this, relative to their terms,
count as 0 where a column has no implied bound.
"""
LARGEST_SHARE = "largest_share"
"""Residual of an instance that is infeasible
because every allocation leaves a job without any time.
"""
ASKED, AVAILABLE = "asked", "available"
"""Residuals of one that is infeasible by a sum."""

LEAST = 1e-6
"""Part of the largest terms in a program that those of a column,
or the dual of a row, count as at least.
"""


@dataclass(frozen=True, repr=False)
class Certificate(Displayed):
    """An independent check of a solution.

    Attributes
    ----------
    ok : bool
        The point is feasible, the stated objective is its objective, and nothing that the solver
        claims (bound, status) contradicts it.
    proof : str
        ``dual`` (bound recomputed from the duals), ``claimed`` (the solver's word),
        ``cross-checked``, ``rule`` (a closed form: nothing to prove), ``counted`` (what is asked
        for, added up, is more than there is) or ``none``.
    residuals : mapping
        Largest relative residual of rows, columns, integrality and objective; of the signs of the
        ``duals`` where there are any; of an infeasible instance the ``least_violation`` that its
        rows can be met with, the ``largest_share`` that all jobs can have at once, or the amounts
        ``asked`` for and ``available``.
    problems : tuple of str
        What is wrong, as text; empty if ok.
    """

    ok: bool
    proof: str
    residuals: Mapping[str, float]
    problems: tuple[str, ...] = ()

    def with_problem(self, problem: str) -> Certificate:
        """A certificate that does not hold, for one more reason."""
        return replace(self, ok=False, problems=(*self.problems, problem))

    def to_document(self, residuals: bool = True) -> dict[str, Any]:
        """The certificate as plain data; ``residuals`` says whether these are in it."""
        return {
            "ok": self.ok,
            "proof": self.proof,
            **({"residuals": dict(self.residuals)} if residuals else {}),
            "problems": list(self.problems),
        }

    @property
    def largest_residual(self) -> float:
        """Of the point. That of the duals is left out: the bound holds whatever their signs. So are
        amounts that were counted.
        """
        others = ("duals", ASKED, AVAILABLE)
        return max((r for name, r in self.residuals.items() if name not in others), default=0.0)

    def _headline(self) -> str:
        if not self.ok:
            return f"does not hold: {'; '.join(self.problems)}"
        return f"holds: largest residual {self.largest_residual:.1g}, proof {self.proof}"


def gap_of(objective: float | None, bound: float | None) -> float | None:
    """|objective - bound| / |objective|, and 1 where only the objective is 0;
    None where one of them does not exist or is infinite, and so where the quotient is.
    """
    if objective is None or bound is None or not (np.isfinite(objective) and np.isfinite(bound)):
        return None
    if objective == bound:
        return 0.0
    gap = abs(objective - bound) / abs(objective or bound)
    return gap if np.isfinite(gap) else None


def shown_gap(gap: float | None, optimal: bool, asked: float | None) -> float | None:
    """The gap as people are shown it: 0 where it is rounding.

    An optimum near 0 differs from its bound by rounding, which may be any part of it. Files keep
    the quotient of `gap_of`. ``asked`` is the gap at which an integer program might stop.
    """
    if gap is None:
        return None
    near_zero = optimal and gap > max(OPTIMALITY, asked or 0.0)
    return 0.0 if near_zero or gap < ROUNDING else gap


def residuals_of(arrays: LinearForm, x: FloatArray) -> dict[str, float]:
    """Relative violation of rows, columns and integrality, recomputed in float64."""
    columns = integrality = 0.0
    for chunk in arrays.column_chunks():
        point = x[chunk.at]
        # Most chunks keep all bounds: quotients are made only of those that do not.
        if (point < chunk.lower).any() or (point > chunk.upper).any():
            beyond = np.maximum(chunk.lower - point, point - chunk.upper) / np.maximum(
                1.0, np.abs(point)
            )
            columns = max(columns, float(beyond.max()))
        if arrays.is_integer:
            integer = point[arrays.integer[chunk.at]]
            integrality = max(
                integrality, float(np.abs(integer - np.round(integer)).max(initial=0.0))
            )
    rows = max((float(chunk.max()) for chunk in _violations(arrays, x)), default=0.0)
    return {"rows": rows, "columns": columns, "integrality": integrality}


def worst_row(arrays: LinearForm, x: FloatArray) -> tuple[str, int]:
    """(block, position) of the row that is violated most."""
    return arrays.row_name(int(row_violations(arrays, x).argmax()))


def row_violations(arrays: LinearForm, x: FloatArray) -> FloatArray:
    """Violation of each row, relative to the row:
    to its terms, its sides, and what one unit of its columns does.

    No absolute number is large or small here: a row may count GPUs, or steps/s of which there are
    1e-9.
    """
    return np.concatenate([np.zeros(0), *_violations(arrays, x)])


def _violations(arrays: LinearForm, x: FloatArray) -> Iterator[FloatArray]:
    """`row_violations`, block by block."""
    activity, terms = arrays.activity_and_terms(x)
    for chunk in arrays.row_chunks():
        low, high = chunk.lower - activity[chunk.at], activity[chunk.at] - chunk.upper
        over = np.maximum(np.maximum(low, high), 0.0)
        size = np.maximum(terms[chunk.at], arrays.sizes[chunk.at])
        # A row of size 0 has nothing to be relative to: any excess is infinite.
        yield np.divide(over, size, out=np.where(over > 0, np.inf, 0.0), where=size > 0)


def without_noise(y: FloatArray, arrays: LinearForm) -> FloatArray:
    """Duals whose rows weigh less than `ROUNDING` of the heaviest are rounding;
    the bound is made without them. Those of rows that leave their columns nothing stay.
    """
    weight = np.abs(y) * arrays.sizes
    is_noise = (weight < ROUNDING * weight.max(initial=0.0)) & (arrays.sizes > 0)
    return np.where(is_noise, 0.0, y) if is_noise.any() else y


def noise_of(arrays: LinearForm) -> float:
    """Objective values below this are rounding:
    `ARITHMETIC` of the largest term that the objective can have.
    """
    return ARITHMETIC * max(map(_largest_term, _priced(arrays)), default=0.0)


def _largest_term(chunk: ColumnChunk) -> float:
    """The largest term of some columns in the objective; at 1 where nothing bounds them."""
    reach = chunk.reach
    return float((np.abs(chunk.cost) * np.where(np.isfinite(reach), reach, 1.0)).max())


def _priced(arrays: LinearForm) -> Iterator[ColumnChunk]:
    """The columns that may cost something."""
    return (chunk for chunk in arrays.column_chunks() if not chunk.free)


def noise_at(arrays: LinearForm, x: FloatArray, size: float | None = None) -> float:
    """`noise_of`, and what rounding leaves of the objective of a point:
    `ARITHMETIC` of its terms, added up without signs.

    An objective near 0 may be a sum of large terms that cancel: then their size is its scale, and
    not its own. ``size`` is that of the terms where ``arrays`` are only a tangent of the program.
    """
    if size is not None:
        return ARITHMETIC * size
    largest, terms = 0.0, abs(arrays.offset)
    for chunk in _priced(arrays):
        largest = max(largest, _largest_term(chunk))
        terms += float(np.abs(chunk.cost) @ np.abs(x[chunk.at]))
    return ARITHMETIC * max(largest, terms if np.isfinite(terms) else 0.0)


def alike(value: float, other: float, tolerance: float, noise: float) -> bool:
    """Whether two objective values agree, relative to the larger one;
    false for NaN and infinity.
    """
    return (
        np.isfinite(value)
        and np.isfinite(other)
        and abs(value - other) <= max(tolerance * max(abs(value), abs(other)), noise)
    )


def is_closed(value: float, bound: float, gap: float, noise: float) -> bool:
    """Whether the gap between an objective and its bound (`gap_of`) is at most ``gap``,
    or no more than rounding; false for NaN and infinity.
    """
    return bool(np.isfinite(value) and abs(value - bound) <= max(gap * abs(value), noise))


def dual_bound(arrays: LinearForm, y: FloatArray) -> float | None:
    """Rigorous bound on the optimum from row multipliers;
    None if a column without implied bound makes it infinite.

    Of columns without implied bound on a side, as programs from files have them, a reduced cost
    below `NOISE` counts as 0: no floating-point duals make it 0 exactly. All columns of
    formulations have implied bounds.

    An upper bound when maximising, a lower one when minimising. ``y`` are derivatives of the
    optimum, so for a minimum the signs of the derivation above are reversed.
    """
    bound = BoundSum(arrays, y)
    if bound.finite:
        product = arrays.transpose_times(bound.y)
        for chunk in arrays.column_chunks():
            bound.add(chunk, _reduced(arrays, chunk, product[chunk.at]))
    return bound.value


def dual_residual(arrays: LinearForm, y: FloatArray) -> float:
    """Largest relative error in the signs of the duals: 0 if y is feasible in the dual program.

    A column without upper bound may have no positive reduced cost (when maximising), one without
    lower bound no negative one; likewise the duals of rows that lack a side. Implied bounds count
    for nothing here. Each error is relative to the terms of its column, and these to at least a
    millionth of the largest in the program.
    """
    errors = SignErrors(y, BoundSum(arrays, y).y)
    taken = arrays.transpose_times_and_terms(y)
    for chunk in arrays.column_chunks():
        product, terms = taken[chunk.at]
        errors.add(chunk, _reduced(arrays, chunk, product), terms)
    return errors.value


def checked_duals(arrays: LinearForm, y: FloatArray) -> tuple[float | None, float]:
    """`dual_bound` and `dual_residual` of finite duals,
    in one pass through the columns where that will do.
    """
    bound = BoundSum(arrays, y)
    errors = SignErrors(y, bound.y)
    taken = arrays.transpose_times_and_terms(y)
    # One product A'y serves both only if the bound could keep all multipliers as they were given.
    together = bound.finite and bound.y is y
    for chunk in arrays.column_chunks():
        product, terms = taken[chunk.at]
        reduced = _reduced(arrays, chunk, product)
        errors.add(chunk, reduced, terms)
        if together:
            bound.add(chunk, reduced)
    return bound.value if together else dual_bound(arrays, y), errors.value


class BoundSum:
    """The sum of `dual_bound`: first the terms of the rows, then those of the columns, by block.

    Attributes
    ----------
    y : FloatArray
        The multipliers, with 0 for those of the wrong sign: they point to an infinite side of their
        row. The given array itself if no sign is wrong.
    finite : bool
        Whether the sum is finite so far.
    """

    def __init__(self, arrays: LinearForm, y: FloatArray) -> None:
        self._arrays, self._sign = arrays, 1.0 if arrays.maximise else -1.0
        self._total = 0.0
        self._terms: ColumnSlices | None = None
        self.y, self.finite = y, bool(np.isfinite(y).all())
        if self.finite:
            possible = [self._add_rows(rows, y[rows.at]) for rows in arrays.row_chunks()]
            if any(some is not None for some in possible):
                chunks = zip(possible, arrays.row_chunks(), strict=True)
                self.y = np.concatenate(
                    [y[rows.at] if some is None else some for some, rows in chunks]
                )

    def _add_rows(self, rows: RowChunk, y: FloatArray) -> FloatArray | None:
        """Add the terms of some rows. Returns their multipliers with 0 for those of the wrong sign;
        None if no sign is wrong.
        """
        given = self._sign * y
        # The usual block: all multipliers have one sign, and that side of all rows is finite.
        side = _one_side(given, rows)
        if side is not None:
            self._total += 0.0 if is_constant(side) and not side[:1].any() else float(given @ side)
            return None
        side = np.where(given > 0, rows.upper, rows.lower)
        active, endless = given != 0, np.isinf(side)
        # Multipliers that point to an infinite side are set to 0, as the derivation above asks for.
        impossible = active & endless
        active &= ~endless
        self._total += float((given[active] * side[active]).sum())
        return np.where(impossible, 0.0, y) if impossible.any() else None

    def add(self, chunk: ColumnChunk, reduced: FloatArray) -> None:
        """Add the terms of some columns, whose reduced costs are given."""
        if not self.finite:
            return
        lower, upper = chunk.implied_lower, chunk.implied_upper
        if np.isfinite(upper).all() and np.isfinite(lower).all():
            self._total += float(np.maximum(reduced, 0.0) @ upper)
            if not (is_constant(lower) and lower[0] == 0.0):
                self._total += float(np.minimum(reduced, 0.0) @ lower)
            return
        reach = np.where(reduced > 0, upper, lower)
        active = reduced != 0
        endless = active & np.isinf(reach)
        if endless.any():
            self._terms = (
                self._arrays.transpose_terms(np.abs(self.y)) if self._terms is None else self._terms
            )
            # Below the noise of its terms a reduced cost is taken to be 0 (see `dual_bound`).
            active &= ~(
                endless & (np.abs(reduced) <= NOISE * (np.abs(chunk.cost) + self._terms[chunk.at]))
            )
        self.finite = bool(np.isfinite(reach[active]).all())
        if self.finite:
            self._total += float((reduced[active] * reach[active]).sum())

    @property
    def value(self) -> float | None:
        """The bound; None if it is infinite."""
        bound = self._sign * self._total + self._arrays.offset
        return bound if self.finite and np.isfinite(bound) else None


class SignErrors:
    """The errors of `dual_residual`: those of the rows, and then of columns, block by block."""

    def __init__(self, y: FloatArray, possible: FloatArray) -> None:
        """``possible`` are the multipliers with 0 for those of the wrong sign (`BoundSum.y`)."""
        self._rows, self._largest = 0.0, 0.0
        self._wrong: list[tuple[FloatArray, FloatArray]] = []
        # `BoundSum` returns the same array where no sign was wrong.
        if possible is not y:
            size = np.abs(y)
            self._rows = _largest_ratio(np.abs(y - possible), size, LEAST * float(size.max()))

    def add(self, chunk: ColumnChunk, reduced: FloatArray, terms: FloatArray) -> None:
        """Check the signs of the reduced costs of some columns. Errors are relative to ``terms``,
        the sums of ``|a_ij y_i|`` over the rows, and the costs.
        """
        error = _wrong_sign(reduced, chunk.lower, chunk.upper)
        size = terms if chunk.free else terms + np.abs(chunk.cost)
        self._largest = max(self._largest, float(size.max(initial=0.0)))
        (some,) = error.nonzero()
        if len(some):
            self._wrong.append((error[some], size[some]))

    @property
    def value(self) -> float:
        least = LEAST * self._largest
        return max(
            self._rows, *(_largest_ratio(error, size, least) for error, size in self._wrong), 0.0
        )


def _reduced(arrays: LinearForm, chunk: ColumnChunk, product: FloatArray) -> FloatArray:
    """Reduced costs ``c - product`` of some columns, where ``product`` is their part of A'y; with
    the signs of a program that maximises.
    """
    sign = 1.0 if arrays.maximise else -1.0
    return -sign * product if chunk.free else sign * (chunk.cost - product)


def _one_side(multipliers: FloatArray, rows: RowChunk) -> FloatArray | None:
    """The sides of some rows that their multipliers refer to, if all of them are finite and all are
    upper ones or all lower ones; else None.
    """
    side = rows.upper if multipliers.min(initial=0.0) >= 0.0 else rows.lower
    if side is rows.lower and multipliers.max(initial=0.0) > 0.0:
        return None
    return side if np.isfinite(without_repeats(side)).all() else None


def zero_duals_prove(arrays: LinearForm, value: float, bound: float) -> bool:
    """Whether duals of 0 prove the value exactly,
    and the noise that an interior point left as duals does not.
    """
    return (
        bound != value
        and value == arrays.offset
        and dual_bound(arrays, np.zeros(arrays.shape[0])) == value
    )


def row_sign_error(arrays: LinearForm, y: FloatArray) -> float:
    """Largest row dual with a sign that its row cannot have, relative to the largest of all."""
    wrong = _wrong_sign(y if arrays.maximise else -y, arrays.row_lower, arrays.row_upper)
    return float(wrong.max(initial=0.0)) / max(
        float(np.abs(y).max(initial=0.0)), np.finfo(float).tiny
    )


def _wrong_sign(value: FloatArray, lower: FloatArray, upper: FloatArray) -> FloatArray:
    # The usual block, x >= 0 without upper bounds: no masks are made.
    if (
        is_constant(lower)
        and is_constant(upper)
        and len(value)
        and np.isfinite(lower[0])
        and np.isposinf(upper[0])
    ):
        return np.maximum(value, 0.0)
    wrong = np.where(upper == np.inf, value, 0.0)
    np.maximum(wrong, np.where(lower == -np.inf, -value, 0.0), out=wrong)
    return np.maximum(wrong, 0.0, out=wrong)


def _largest_ratio(error: FloatArray, size: FloatArray, least: float) -> float:
    """Of errors to sizes, which are taken to be ``least`` at least, a number above 0."""
    return float((error / np.maximum(size, least)).max(initial=0.0))


def is_bounded(arrays: LinearForm) -> bool:
    """Whether the implied bounds of the columns alone bound the objective,
    so that it cannot be unbounded.
    """
    return dual_bound(arrays, np.zeros(arrays.shape[0])) is not None


def certify_point(
    arrays: LinearForm, x: FloatArray, stated: float, proof: str, noise: float | None = None
) -> Certificate:
    """Check a point and its stated objective against the program.

    ``noise`` is `noise_at` the point, where the caller has it.
    """
    problems = []
    if x.shape != (arrays.shape[1],) or not np.isfinite(x).all():
        return Certificate(False, "none", {}, ("the point has infinite or missing entries",))
    residuals = residuals_of(arrays, x)
    actual = arrays.objective(x)
    noise = noise_at(arrays, x) if noise is None else noise
    size = max(abs(actual), abs(stated), noise)
    residuals["objective"] = max(abs(actual - stated) - noise, 0.0) / size if size > 0 else 0.0
    if residuals["rows"] > FEASIBILITY:
        block, position = worst_row(arrays, x)
        problems.append(
            f"row {block}[{position}] is violated by {residuals['rows']:.2g} (relative)"
        )
    if residuals["columns"] > FEASIBILITY:
        problems.append(f"a column bound is violated by {residuals['columns']:.2g} (relative)")
    if residuals["integrality"] > INTEGRALITY:
        problems.append(f"an integer column is off by {residuals['integrality']:.2g}")
    # Written so that NaN is a problem too.
    if not residuals["objective"] <= FEASIBILITY:
        problems.append(f"the stated objective {stated:.9g} is not that of the point, {actual:.9g}")
    return Certificate(not problems, proof, residuals, tuple(problems))
