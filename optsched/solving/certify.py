"""From the values of a solver to a certified outcome.

A continuous program is optimal only by a bound that is recomputed from duals. If a solver returns
no duals, its claim of optimality and its bound are ignored; its point counts like that of a stopped
run. Of an integer program the solver's bound is kept, as a claim.

Three layers, from the inside out:

- `recompute`: objective, residuals and bound of an `EvaluatedPoint`, and what the solver claims
  beside them. The bound is that of the duals (`proved_or_claimed_bound`); its mathematics, and
  what happens to duals of the wrong sign, is in `optsched.solution.certificate`.
- `certified_or_nothing`: a point that is no answer is dropped (all zero after a stopped run, or an
  infinite objective).
- `certified_linear` for the point of a linear program. `certified_allocation` for an allocation,
  whichever way its program was solved; `certified_clean_allocation` leaves out the cleaning.

Points that need no solver take the same way: `best_of_known_points` and `best_known_allocation`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from optsched.arrays import FloatArray
from optsched.arrays.values import replace
from optsched.errors import NOTHING_YET, Interrupted, SolverCrashed
from optsched.program import AllocationProgram, LinearArrays
from optsched.program.integers import rounded_bound
from optsched.solution import Allocation, Status
from optsched.solution.certificate import (
    LARGEST_SHARE,
    OPTIMALITY,
    Certificate,
    alike,
    certify_point,
    checked_duals,
    dual_bound,
    dual_residual,
    gap_of,
    is_bounded,
    is_closed,
    noise_at,
    without_noise,
    zero_duals_prove,
)
from optsched.solution.explanation import Explanation
from optsched.solution.values import CLAIMS, Termination, Values, not_numbers
from optsched.solvers import Capability, Limits, Solver
from optsched.solvers.base import is_highs
from optsched.solving.outcome import NO_OPTIMUM, STOPPED, Outcome
from optsched.solving.runs import SolverRuns

if TYPE_CHECKING:
    from optsched.program.linear_form import LinearForm

log = logging.getLogger("optsched")

STATED_NOISE = 1e4
"""Factor on the noise when the solver's stated objective is compared:
its terms are accurate to 1e-9 only, ours to 1e-13."""
INTEGRALITY = 1e-9
"""Distance from a whole number that solvers take for none."""
SEEN = 1e-3
"""Fraction of the smallest cost that must not be lost in the rounding of the largest."""
REACHED = 1.0 - 1e-12
"""From this part of the level that a solver states, raising the point gains nothing."""

ENDLESS = "a job gets no time, so that the objective is infinite"
"""Words of an outcome whose point has an infinite objective."""

Certify = Callable[[Values, FloatArray | None], Outcome]
"""Makes an outcome of the values of one run and duals, which may be those of another."""

# --- judging a point and duals ---------------------------------------------------------------


class EvaluatedPoint(NamedTuple):
    """A point of a program, and its objective, recomputed.

    Attributes
    ----------
    arrays : LinearForm
        The program.
    x : FloatArray
        The point in the columns of the answer.
    at : FloatArray
        The same point in the columns of `arrays`, auxiliary columns included.
    value : float
    tangent : callable or None
        Duals -> the tangent that they bound, where it is not `arrays`.
    program : AllocationProgram or None
        Where the point is an allocation.
    step : float or None
        All objective values are multiples of it: a bound by duals is rounded to one.
    """

    arrays: LinearForm
    x: FloatArray
    at: FloatArray
    value: float
    tangent: Callable[[FloatArray], LinearForm] | None = None
    program: AllocationProgram | None = None
    step: float | None = None

    def bounded_by(self, y: FloatArray) -> LinearForm:
        """The program that duals bound."""
        return self.arrays if self.tangent is None else self.tangent(y)


class Bound(NamedTuple):
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
    alone : bool
        Whether no solver gave them; see `duals_without_solver`.
    """

    value: float | None
    source: str
    proof: str
    y: FloatArray | None
    residual: float | None
    alone: bool = False


def recompute(
    solver: type[Solver],
    limits: Limits,
    values: Values,
    point: EvaluatedPoint,
    y: FloatArray | None,
) -> Outcome:
    """Recompute objective, residuals and bound of a point; set its status and certificate.

    Parameters
    ----------
    solver, limits
        Of the run.
    values : Values
        Of the solver.
    point : EvaluatedPoint
    y : FloatArray or None, shape (rows,)
        Duals of the rows.
    """
    arrays, value = point.arrays, point.value
    bound = proved_or_claimed_bound(point, values, y)
    duals = None if bound.y is None else {rows.name: bound.y[rows.slice] for rows in arrays.rows}
    terms = None if point.program is None else point.program.terms(point.x)
    noise = noise_at(arrays, point.at, terms)
    certificate = certify_point(arrays, point.at, value, "none", noise)
    if point.program is not None and duals is not None:
        # Not for the certificate, which compares two objectives of the same point.
        noise += point.program.worth_of_noise(duals)
    gap_accepted = max(OPTIMALITY, limits.gap or 0.0) if arrays.is_integer else OPTIMALITY
    closed = bound.value is not None and is_closed(value, bound.value, gap_accepted, noise)
    problems = list(certificate.problems)
    values = _checked_claim(values, point, y, bound, closed, noise, limits.tolerance, problems)
    # A point with infinite entries has no residuals: nothing is proved of it.
    proof = bound.proof if certificate.residuals else "none"
    signs = {} if bound.residual is None else {"duals": bound.residual}
    residuals = {**certificate.residuals, **signs}
    return Outcome(
        values=values,
        x=point.x,
        value=value,
        bound=bound.value,
        bound_source=bound.source,
        certificate=Certificate(not problems, proof, residuals, tuple(problems)),
        # A point that violates rows is no optimum, however near its value is to the bound.
        status=Status.OPTIMAL if closed and certificate.ok else Status.FEASIBLE,
        solver=solver,
        duals=duals,
        duals_without_solver=bound.alone,
        noise=noise,
    )


def _checked_claim(
    values: Values,
    point: EvaluatedPoint,
    y: FloatArray | None,
    bound: Bound,
    closed: bool,
    noise: float,
    tolerance: float,
    problems: list[str],
) -> Values:
    """Compare the solver's claims with the recomputed numbers; contradictions are added to
    `problems`.

    Returns
    -------
    Values
        The solver's; a claim of optimality that is merely imprecise is withdrawn.
    """
    arrays, value = point.arrays, point.value
    loose = 10.0 * tolerance
    # A gap within the requested tolerance makes the answer imprecise, not the claim false.
    gap_allowed = bound.value is not None and within_tolerance(value, bound.value, loose)
    claims = values.termination in CLAIMS and (closed or not gap_allowed)
    stated = value if values.objective is None else values.objective
    if claims and not alike(value, stated, max(OPTIMALITY, loose), STATED_NOISE * noise):
        problems.append(f"the solver states the objective {stated:.9g}, its point has {value:.9g}")
    # For a continuous program a claim without duals is ignored.
    if y is None and not (arrays.is_integer or problems or closed):
        claims = False
    if bound.value is not None and contradicts(bound.value, value, arrays.maximise, noise):
        problems.append(
            f"the bound {bound.value:.9g} is worse than the objective of the point, {value:.9g}"
        )
    if claims and not closed:
        gap = gap_of(value, bound.value)
        left = "no bound" if gap is None else f"a gap of {gap:.2g}"
        problems.append(f"the solver claims optimality, but the certificate leaves {left}")
    if values.termination in CLAIMS and not claims:
        return replace(values, termination=Termination.IMPRECISE)
    return values


def proved_or_claimed_bound(point: EvaluatedPoint, values: Values, y: FloatArray | None) -> Bound:
    """The bound that duals prove; without one, the solver's claim for an integer program."""
    arrays = point.arrays
    residual = None
    if y is None or y.shape != arrays.shape[:1] or not np.isfinite(y).all():
        y = None
    else:
        given, y = y, without_noise(y, arrays)
        bound, residual = checked_duals(point.bounded_by(y), y)
        if (given != y).any() and not _is_shown_best(point, bound):
            # Small duals need not be rounding: a row that bars a column can outweigh all others.
            all_of_them, error = checked_duals(point.bounded_by(given), given)
            if all_of_them is not None and (
                bound is None or is_tighter(all_of_them, bound, arrays.maximise)
            ):
                y, bound, residual = given, all_of_them, error
        if (
            bound is not None
            and point.tangent is None
            and zero_duals_prove(arrays, point.value, bound)
        ):
            y, bound = np.zeros_like(y), point.value
            residual = dual_residual(arrays, y)
        program = point.program
        if (
            program is not None
            and program.assignment is not None
            and not _is_shown_best(point, bound)
        ):
            from optsched.solving.knapsack_bound import knapsack_bound  # few programs are one

            by_knapsacks = knapsack_bound(program, arrays, y)
            if by_knapsacks is not None and (bound is None or by_knapsacks < bound):
                bound, residual = by_knapsacks, None  # any prices of jobs will do
        if bound is not None:
            bound = rounded_bound(bound, point.step, arrays.maximise)
            return Bound(bound, "dual", "dual", y, residual)
    claimed = None
    if arrays.is_integer and values.bound is not None and np.isfinite(values.bound):
        claimed = values.bound + _hidden_cost(arrays) * (1.0 if arrays.maximise else -1.0)
    # If the solver's duals prove nothing, duals that need no solver may.
    alone = duals_without_solver(arrays, point.program)
    dual = point.bounded_by(alone)
    limit = dual_bound(dual, alone)
    if limit is not None and (claimed is None or is_tighter(limit, claimed, arrays.maximise)):
        return Bound(limit, "dual", "dual", alone, dual_residual(dual, alone), alone=True)
    if claimed is not None:
        return Bound(claimed, "solver", "claimed", y, residual)
    return Bound(None, "none", "none", y, residual)


def _hidden_cost(arrays: LinearForm) -> float:
    """By how much the claim of a solver may be wrong where costs are of very different sizes: it
    keeps integers, and tells costs apart, to a fraction of the largest.
    """
    cost = np.abs(arrays.cost[arrays.integer])
    cost = cost[cost > 0]
    hidden = INTEGRALITY * float(cost.max(initial=0.0))
    return hidden if hidden > SEEN * float(cost.min(initial=np.inf)) else 0.0


def _is_shown_best(point: EvaluatedPoint, bound: float | None) -> bool:
    """Whether a bound leaves a point no more than a small gap."""
    return bound is not None and alike(bound, point.value, OPTIMALITY, 0.0)


def _price_choices(arrays: LinearArrays, y: FloatArray) -> None:
    """Set the duals of rows ``take`` of a plan, in place."""
    block = next((rows.slice for rows in arrays.rows if rows.name == "take"), None)
    if block is None:
        return
    sign = 1.0 if arrays.maximise else -1.0
    choices = arrays.by_rows[block].tocoo()
    worth = sign * np.where(arrays.upper > 0, arrays.cost, 0.0)[choices.col]
    best = np.where(arrays.row_lower[block] == arrays.row_upper[block], -np.inf, 0.0)
    np.maximum.at(best, choices.row, worth)
    y[block] = sign * np.where(np.isfinite(best), best, 0.0)


def _price_requirements(arrays: LinearArrays, y: FloatArray) -> None:
    """Set the duals of rows that ask for something of columns that cost something, in place: what
    the cheapest of its columns costs. A column of several such rows pays a part of its cost for
    each.
    """
    rows = np.flatnonzero((arrays.row_lower > 0) & np.isinf(arrays.row_upper))
    if arrays.maximise or not len(rows) or (arrays.cost < 0).any():
        return
    entries = arrays.by_rows[rows].tocoo()
    useful = np.flatnonzero((entries.data > 0) & (arrays.upper[entries.col] > 0))
    row, column, gain = (part[useful] for part in (entries.row, entries.col, entries.data))
    shared = np.bincount(column, minlength=arrays.shape[1])[column]
    least = np.full(len(rows), np.inf)
    np.minimum.at(least, row, arrays.cost[column] / (shared * gain))
    y[rows] = np.where(np.isfinite(least), least, 0.0)


def duals_without_solver(arrays: LinearForm, program: AllocationProgram | None) -> FloatArray:
    """Duals that need no solver: all prices of resources are 0.

    For an allocation, the dual of the time of each class is the gain of its best column, so the
    bound is the value if every job were alone. For a ratio it is that of the best column. For a
    plan the dual of each row ``take``, a choice among options, is the worth of the best one: this
    proves the optimum where no job is left out. That of each row which asks for work is the cost of
    its cheapest column: this proves the optimum where every job runs there.
    """
    y = np.zeros(arrays.shape[0])
    if program is None:
        # Without classes a form is the arrays of a program.
        _price_choices(cast("LinearArrays", arrays), y)
        _price_requirements(cast("LinearArrays", arrays), y)
        return y
    blocks_of = {rows.name: y[rows.slice] for rows in arrays.rows}
    if not program.utility.homogenised:
        C, brings = program.classes, arrays.cost[: program.classes.columns]
        worth = program.utility.worth_alone(program)
        if worth is not None:
            blocks_of["levels"][:] = -worth
            brings = np.asarray(program.levels.T @ worth)
        # Two jobs that share GPUs are charged half of the gain each.
        brings = brings / np.where(C.alone, 1.0, 2.0)
        np.maximum.at(blocks_of["time"], C.class_a, brings)
        np.maximum.at(blocks_of["time"], C.class_b[~C.alone], brings[~C.alone])
    polished = program.polished(arrays, y)
    assert polished is not None
    return polished


def is_tighter(bound: float, other: float, maximise: bool) -> bool:
    """Whether a bound is tighter than another one by more than rounding."""
    return (bound < other if maximise else bound > other) and not alike(
        bound, other, OPTIMALITY, 0.0
    )


def within_tolerance(value: float, bound: float, tolerance: float) -> bool:
    """Whether a gap may be caused by the tolerance that the solver was given.

    Solvers stop at an absolute gap of the tolerance as well, which near an objective of 0 is a
    large relative one.
    """
    return tolerance > OPTIMALITY or abs(value - bound) <= tolerance


def contradicts(bound: float, value: float, maximise: bool, noise: float) -> bool:
    """Whether a bound is worse than the objective of a feasible point by more than rounding."""
    excess = value - bound if maximise else bound - value
    return excess > 0 and not alike(value, bound, OPTIMALITY, noise)


def unless_refuted(outcome: Outcome, held: Outcome | None, maximise: bool) -> Outcome:
    """An outcome; without its claim, and not certified, where a feasible point refutes it.

    The bound of an integer program is only claimed by its solver and cannot be recomputed. A
    feasible point that is better than this bound, or a feasible point of a program that is called
    infeasible, proves the claim false.
    """
    if held is None or held.value is None or not (held.certificate.ok and outcome.rests_on_claim):
        return outcome
    if outcome.bound is None:
        claim = "there is no feasible point"
    elif contradicts(outcome.bound, held.value, maximise, held.noise):
        claim = f"nothing is better than {outcome.bound:.9g}"
    else:
        return outcome
    problem = f"the solver claims that {claim}, but a feasible point has {held.value:.9g}"
    return replace(
        outcome,
        values=replace(outcome.values, termination=Termination.IMPRECISE, bound=None),
        bound=None,
        bound_source="none",
        certificate=replace(outcome.certificate, ok=False, proof="none", problems=(problem,)),
        status=Status.LIMIT if outcome.x is None else Status.FEASIBLE,
        conflicts=(),
        explanation=Explanation.IRREDUCIBLE,
        refuted=True,
    )


# --- cleaning a solver's point --------------------------------------------------------------------


def checked_point(x: FloatArray, columns: int, solver: str) -> FloatArray:
    """The first columns of a solver's point, which must be there and finite."""
    if x.ndim != 1 or len(x) < columns or not np.isfinite(x[:columns]).all():
        raise not_numbers(solver, "point", columns)
    return x[:columns]


def cleaned(program: AllocationProgram, values: Values, solver: str) -> FloatArray:
    """Totals of the class columns from a solver's point: negligible fractions are dropped, and the
    point of a stopped run is repaired.
    """
    assert values.x is not None
    raw = checked_point(program.allocation_of(values.x), program.classes.columns, solver)
    if program.side:  # cleaning respects the limits of the classes, but not those of barred columns
        raw = np.minimum(raw, program.limit)
    x = program.restored(Allocation.cleaned(program.classes, raw, program.integral).x, raw)
    stated = values.objective
    if (
        program.free_to_lift
        and stated is not None
        and np.isfinite(stated)
        and program.value(x) < stated * REACHED
    ):
        # A job may be below the common level by the tolerance: see `AllocationProgram.lifted`.
        lifted = program.lifted(x, stated)
        x = lifted if program.value(lifted) > program.value(x) else x
    # The point of a stopped run need not be feasible yet.
    if values.termination in (*STOPPED, Termination.IMPRECISE):
        x = program.repaired(x)
        if not (program.integral or program.side or program.extend):
            known = program.known_point()  # simplex may stop where some job has nothing
            x = known if program.value(known) > program.value(x) else x
    if program.integral and (program.classes.time(x) > program.classes.count).any():
        raise SolverCrashed(f"solver {solver} returned a point in which a whole job runs twice")
    return x


# --- outcomes of a point --------------------------------------------------------------------------


def certified_or_nothing(
    runs: SolverRuns,
    point: EvaluatedPoint,
    values: Values,
    y: FloatArray | None,
) -> Outcome:
    """The outcome of a point as `recompute` finds it, or an outcome without a point if it is no
    answer.

    An all-zero allocation of a stopped run is no answer, unless it is proved optimal, nor is a
    point with an infinite objective. The caller then tries other points, such as an even split of
    the time.
    """
    started = time.perf_counter()
    assert runs.chosen is not None
    outcome = recompute(runs.chosen, runs.limits, values, point, y)
    nothing_runs = point.program is not None and not point.x.any()
    found = outcome.certificate.ok and (not nothing_runs or outcome.status is Status.OPTIMAL)
    if outcome.certificate.ok and is_endless(point.program, outcome):
        # The point is dropped, but its duals bound the next one as well.
        return replace(
            nothing_found(runs, replace(outcome.values, words=ENDLESS)),
            bound=outcome.bound,
            bound_source=outcome.bound_source,
            duals=outcome.duals,
        )
    if values.termination not in CLAIMS and not found:
        return nothing_found(runs, outcome.values, point.arrays.is_integer)
    runs.spend("certify", time.perf_counter() - started)
    return outcome


def is_endless(program: AllocationProgram | None, outcome: Outcome) -> bool:
    """Whether a point is no answer: its objective is infinite, and not shown to be the best.

    Where it is (`Status.OPTIMAL`), no allocation has a finite one.
    """
    if program is None or outcome.value is None or outcome.status is Status.OPTIMAL:
        return False
    return bool(np.isinf(program.units.objective(outcome.value)))


def certified_linear(
    runs: SolverRuns,
    arrays: LinearArrays,
    values: Values,
    y: FloatArray | None,
    clean: Callable[[FloatArray], FloatArray] | None = None,
    step: float | None = None,
) -> Outcome:
    """The outcome of a point of a linear program.

    ``clean`` rounds the solver's point and recomputes its auxiliary columns. The bound of duals is
    rounded to a multiple of ``step``.
    """
    assert values.x is not None
    x = checked_point(values.x, arrays.shape[1], runs.name)
    x = x if clean is None else clean(x)
    point = EvaluatedPoint(arrays, x, x, arrays.objective(x), step=step)
    return certified_or_nothing(runs, point, values, y)


def certified_allocation(
    runs: SolverRuns,
    program: AllocationProgram,
    values: Values,
    y: FloatArray | None,
    arrays: LinearArrays | None = None,
    *,
    matrix: bool = True,
) -> Outcome:
    """The outcome of an allocation, whichever way it was solved.

    Its objective and bound are those of a linear program: the program itself, or a tangent of its
    utility. The objective is that of the tangent cut at the point, the bound that of the tangent
    cut at the levels implied by the duals (`Total.touching`). All ways of solving give duals of its
    rows.

    Parameters
    ----------
    arrays : LinearArrays, optional
        The linear program, where the caller has it already.
    matrix : bool
        False: no matrix is written down. For jobs alone without side rows only.
    """
    # Not kept under a name here: with millions of columns each copy of the point would count.
    return certified_clean_allocation(
        runs, program, cleaned(program, values, runs.name), values, y, arrays, matrix=matrix
    )


def certified_clean_allocation(
    runs: SolverRuns,
    program: AllocationProgram,
    x: FloatArray,
    values: Values,
    y: FloatArray | None,
    arrays: LinearArrays | None = None,
    *,
    matrix: bool = True,
) -> Outcome:
    """The outcome of totals of the class columns, which are not cleaned; see
    `certified_allocation`.
    """
    proves = y is not None and values.termination in CLAIMS
    if program.conic and not proves and not np.isfinite(program.value(x)):
        return nothing_found(runs, values)  # a job has nothing yet: the point is worth -infinity

    def form_at(duals: FloatArray | None = None) -> LinearForm:
        if matrix:
            return program.tangent(x, duals).arrays
        return program.without_matrix(x, duals)

    form = runs.build(form_at) if arrays is None else arrays
    y = program.polished(form, y)
    # The tangent cut at x evaluates the point. The bound needs the tangent cut at the levels
    # implied by the duals: levels that are 1e-5 off leave a gap of 1e-5 at x (see
    # `Total.touching`).
    tangent = form_at if program.conic else None
    at, value = program.complete_and_value(x)
    if np.array_equal(at[: len(x)], x):
        x = at[: len(x)]  # one copy of a long point is enough
    point = EvaluatedPoint(form, x, at, value, tangent, program)
    return certified_or_nothing(runs, point, values, y)


def best_of_known_points(
    points: Iterable[FloatArray], certify: Certify, found: Outcome | None, maximise: bool = True
) -> Outcome | None:
    """The best outcome of points that need no solver, with the bound of a run that left no point.

    None if none is feasible, as the start that a caller gave need not be.
    """
    values = Values(Termination.IMPRECISE) if found is None else found.values
    best: tuple[float, Outcome] | None = None
    for x in points:
        try:
            outcome = certify(replace(values, x=x, y=None, objective=None), None)
        except SolverCrashed as error:
            log.info("a known point is left out: %s", error)
            continue
        if outcome.x is None or outcome.value is None or not outcome.certificate.ok:
            continue
        worth = outcome.value if maximise else -outcome.value
        if best is None or worth > best[0]:
            best = worth, outcome
    return None if best is None else best[1]


def best_known_allocation(
    runs: SolverRuns, program: AllocationProgram, found: Outcome | None, certify: Certify
) -> Outcome | None:
    """`best_of_known_points` of an allocation.

    None if a run found fractions of time: these were compared with the known point in `cleaned`.
    """
    if found is not None and found.x is not None and not program.integral:
        return None

    def late() -> bool:
        return not runs.has_time_left(0.0)

    points = [runs.build(lambda: program.known_point(late))]
    if runs.start is not None and len(runs.start) == program.classes.columns:
        points.append(program.repaired(runs.start))
    return best_of_known_points(points, certify, found)


# --- outcomes without a point ---------------------------------------------------------------------


def nothing_found(runs: SolverRuns, values: Values, integer: bool = False) -> Outcome:
    """The outcome of a run without a feasible point; its bound counts for integer programs only."""
    if values.termination in CLAIMS:
        values = replace(values, termination=Termination.IMPRECISE)
    known = integer and values.bound is not None and np.isfinite(values.bound)
    bound = values.bound if known else None
    return _no_point(runs, values, Status.LIMIT, Certificate(True, "none", {}), bound)


def unless_interrupted(outcome: Outcome) -> Outcome:
    """An outcome; raises `Interrupted` where the user stopped it before there was a point."""
    if outcome.x is None and outcome.values.termination is Termination.INTERRUPTED:
        raise Interrupted(NOTHING_YET)
    return outcome


def without_point(
    runs: SolverRuns, arrays: LinearArrays, values: Values, program: AllocationProgram | None
) -> Outcome:
    """The outcome of a run that left no point: a proof that none exists, or that it was stopped."""
    from optsched.solving.infeasibility import (  # most programs have a point
        Analyst,
        ClaimFinding,
        check_claim,
        conflicting_rows,
        described,
        refuse_refuted,
    )

    if values.termination in STOPPED or values.termination is Termination.IMPRECISE:
        return nothing_found(runs, values, arrays.is_integer)
    if values.termination not in NO_OPTIMUM:
        raise SolverCrashed(f"solver {runs.name} stopped with {values.words!r} and no point")
    if program is not None and program.explained_apart:
        arrays = program.requirements
    claimed = Certificate(True, "claimed", {})
    # The caller solves another program, which explains the infeasibility.
    if not runs.explains and values.termination is Termination.INFEASIBLE:
        return _no_point(runs, values, Status.INFEASIBLE, claimed)
    found = None
    with Analyst(runs.limits_left(), runs.load) as analyst:
        checked = check_claim(arrays, analyst, values.y)
        if checked.end is Termination.IMPRECISE:
            return nothing_found(runs, values, arrays.is_integer)
        if checked.finding is not ClaimFinding.FEASIBLE:
            found = conflicting_rows(arrays, checked, analyst)
    # A feasible point exists: the program is unbounded, or the claim is false.
    if found is None:
        refuse_refuted(values.termination, arrays, program, runs.name)
        unbounded = replace(values, termination=Termination.UNBOUNDED)
        return _no_point(runs, unbounded, Status.UNBOUNDED, claimed)
    may_be_unbounded = values.termination is not Termination.INFEASIBLE and not is_bounded(arrays)
    if checked.end is not None and may_be_unbounded:
        return nothing_found(runs, replace(values, termination=checked.end))
    assert runs.chosen is not None
    if checked.finding is ClaimFinding.OPEN and Capability.CONIC in runs.chosen.capabilities:
        # Interior-point and first-order methods stop at tolerances: their claim is no proof.
        end = checked.end or Termination.IMPRECISE
        return nothing_found(runs, replace(values, termination=end))
    certificate = claimed
    if checked.needed is not None:  # proved for the relaxation
        arrays = arrays.relaxed()
        certificate = Certificate(True, "dual", {"least_violation": checked.needed})
    elif checked.finding is ClaimFinding.AGREED and not is_highs(runs.chosen.name):
        certificate = Certificate(True, "cross-checked", {})  # HiGHS agreed with another solver
    infeasible = replace(values, termination=Termination.INFEASIBLE)
    outcome = _no_point(runs, infeasible, Status.INFEASIBLE, certificate)
    conflicts = described(arrays, program, found.rows)
    return replace(outcome, conflicts=conflicts, explanation=found.explanation)


def without_time(runs: SolverRuns, program: AllocationProgram, outcome: Outcome) -> Outcome:
    """Infeasible, if duals prove that every allocation leaves a job without any time;
    else the outcome itself.
    """
    from optsched.program.some_time import SomeTime  # most programs have time for every job
    from optsched.solving.infeasibility import Analyst, described, prove_job_without_time

    started = time.perf_counter()
    some = SomeTime(program)
    with Analyst(runs.limits_left(), runs.load) as analyst:
        shown = prove_job_without_time(some, analyst)
    runs.spend("certify", time.perf_counter() - started)
    if shown is None:
        return outcome
    values = replace(outcome.values, termination=Termination.INFEASIBLE)
    certificate = Certificate(True, "dual", {LARGEST_SHARE: shown.largest_share})
    return replace(
        _no_point(runs, values, Status.INFEASIBLE, certificate),
        conflicts=described(some.arrays, program, shown.found.rows),
        explanation=shown.found.explanation,
    )


def _no_point(
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
