"""Solving programs whose answer is a schedule: linear plans and timelines."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np

from optsched.arrays import FloatArray, IntArray
from optsched.arrays.values import cached_property, replace
from optsched.errors import SolverCrashed, SolverUnavailable
from optsched.lazy import convenience
from optsched.program import LinearArrays, TimelineProgram
from optsched.program.list_schedule import list_schedule, shifted_left
from optsched.program.time_indexed import time_indexed
from optsched.program.timeline import split_point
from optsched.solution import (
    Attempt,
    Certificate,
    Conflict,
    PointStatus,
    Schedule,
    Status,
    Termination,
    Values,
)
from optsched.solution.certificate import (
    OPTIMALITY,
    certify_point,
    dual_bound,
    dual_residual,
    is_closed,
    noise_at,
)
from optsched.solution.explanation import Explanation
from optsched.solution.plan import (
    Later,
    LinearPlan,
    MachineTimes,
    Parts,
    Patterns,
    Plan,
    Relaxation,
    Shortage,
    TimelinePlan,
)
from optsched.solution.stage import Stage
from optsched.solvers import Capability
from optsched.solvers.closed_form import ClosedForm
from optsched.solving.attempts import attempt, is_better
from optsched.solving.certify import (
    EvaluatedPoint,
    best_of_known_points,
    certified_linear,
    contradicts,
    duals_without_solver,
    nothing_found,
    recompute,
    unless_interrupted,
    without_point,
)
from optsched.solving.choice import others_for_timeline
from optsched.solving.engine import Engine
from optsched.solving.outcome import NO_OPTIMUM, STOPPED, Outcome, SolvedProgram
from optsched.solving.proof import CutOffResult, better_point, better_schedule, cross_checked
from optsched.solving.sifting import solve_by_sifting

log = logging.getLogger("optsched")


LATER_NODES = 5
"""Nodes of branch and bound of the program of a later objective, which keep it quick beside the
first one and do not depend on the clock.
"""
PLANS = "plans of what runs when"
NO_PLAN_BY_RULE = "not proven: the plan by rule does not keep all deadlines"
NOT_PROVEN = (
    "not proven: no plan that keeps all deadlines was found, but a relaxation of jobs on several "
    "GPUs keeps them"
)
NEITHER_PROVEN = (
    "not proven: no plan that keeps all deadlines was found, and a limit ended the search for a "
    "proof that there is none"
)
KEPT = 1e-9
"""Relative rounding by which a later run may lose of an earlier objective."""
SEARCHED = 2000
"""Columns from which plans of machines start with a local search."""
FOR_SOLVER = 0.3
"""Fraction of the time that this search leaves for the solver."""
FOR_PATTERNS = 0.5
"""Fraction of the time that column generation may take."""
STEP = 1e-4
"""Relative step of makespans where their smallest difference is not known."""
WHOLE = 1e-6
"""Fraction of a step that counts as rounding."""

Held = tuple[FloatArray, Callable[[Schedule], FloatArray]]
"""An objective that must keep its value: its costs, and schedule -> point of its program."""


def solve_plan(engine: Engine, plan: Plan) -> SolvedProgram:
    """Solve, read the schedule, certify its point.

    Raises `OutOfTime` if the time is over and no schedule is known without a solver.
    """
    if isinstance(plan, TimelinePlan):
        engine.timer.check()
        engine.require_rows(PLANS)
        return _solve_timeline(engine, plan)
    if plan.searched:
        # The reserve for the certificate is estimated from what building took.
        engine.spend("build", -plan.searched)
        engine.spend("search", plan.searched)
    shortage = engine.build(plan.shortage)
    if shortage is not None:
        return _counted(engine, plan, shortage)
    try:
        engine.require_rows(PLANS)
        return _solve_linear(engine, plan)
    except SolverUnavailable as error:
        asked = None if engine.asked_for is None else engine.load(engine.solver)
        if asked is None or Capability.TIMELINE not in asked.capabilities or not plan.as_timeline:
            raise
        raise SolverUnavailable(f"{error}; {plan.as_timeline}") from None


def _counted(engine: Engine, plan: LinearPlan, shortage: Shortage) -> SolvedProgram:
    """An infeasible program: sums show it, no solver is needed."""
    engine.use(ClosedForm, "sums of what is asked for show that the program is infeasible")
    outcome = Outcome(
        Values(Termination.INFEASIBLE),
        x=None,
        value=None,
        bound=None,
        bound_source="none",
        certificate=shortage.certificate,
        status=Status.INFEASIBLE,
        solver=ClosedForm,
        conflicts=shortage.conflicts,
        # Requirements outside of the sum may conflict for another reason.
        explanation=Explanation.REDUCED,
    )
    return SolvedProgram(plan, outcome)


def _solve_linear(engine: Engine, plan: LinearPlan) -> SolvedProgram:
    if plan.relaxation is not None:
        return _solve_relaxation(engine, plan, plan.relaxation)

    def meant(x: FloatArray) -> FloatArray:
        try:
            return plan.complete(plan.read(x))
        except ValueError as error:
            raise SolverCrashed(
                f"the point of solver {engine.name} is no schedule to the precision of "
                f"numbers: {error}"
            ) from None

    point = engine.build(plan.known)
    if point is None:
        engine.timer.check()
    outcome = _without_solver(engine, plan, point)
    if outcome is None and plan.parts is not None and engine.asked_for is None:
        return _by_parts(engine, plan, plan.parts, point)
    if outcome is None and plan.machines is not None and engine.asked_for is None:
        point = _balanced(engine, plan, plan.machines, point)
    if outcome is None and plan.patterns is not None and point is not None:
        outcome = _by_patterns(engine, plan, plan.patterns, point, meant)
    if outcome is None:
        # The plan with all schedules explains it, if that is infeasible too.
        with _unexplained(engine, plan.refuted_by is not None):
            outcome = engine.solve_linear(plan.program, meant, point)
    rule_failed = point is None and plan.unsearched is not None
    if plan.refuted_by is not None and (rule_failed or outcome.status is Status.INFEASIBLE):
        return _refuted(engine, plan, engine.build(plan.to_refute))
    if outcome.x is None:
        notes = (outcome.values.words,) if rule_failed else ()
        return _without_schedule_of(plan, outcome)._replace(notes=notes)
    arrays = plan.program.arrays

    if not plan.proves:
        outcome = cross_checked(
            engine,
            outcome,
            lambda found: better_point(engine, arrays, found, plan.step),
            lambda values: certified_linear(engine, arrays, values, None, meant),
        )
    solved = _guaranteed(plan, _refined(engine, plan, outcome))
    return solved._replace(notes=(*solved.notes, *_cut_short(plan)))


def _cut_short(plan: LinearPlan) -> tuple[str, ...]:
    """A note where the time limit left only the plan by rule, or not even all of that."""
    end, why = plan.unsearched or (None, "")
    return (why,) if end is Termination.TIME_LIMIT else ()


def _balanced(
    engine: Engine,
    plan: LinearPlan,
    machines: Callable[[], MachineTimes],
    point: FloatArray | None,
) -> FloatArray | None:
    """The better of a point and the result of a search at the duals of the relaxation; small
    programs are not searched.
    """
    arrays = plan.program.arrays
    if arrays.shape[1] < SEARCHED or engine.limits.work is not None or engine.start is not None:
        return point
    from optsched.solving.balancing import Balancing  # few plans are of machines

    session = engine.open(arrays.relaxed())
    silent = replace(engine.limits_left(), gap=None, on_progress=None)
    values = engine.run_within(session, silent)
    bound = None if values.y is None else dual_bound(arrays, values.y)
    if values.y is None or bound is None:
        return point
    began, times = engine.timer.clock(), machines()
    of_machine = -values.y[arrays.row_block(times.load).slice]
    alike = np.bincount(times.resource)
    price = (np.bincount(times.resource, of_machine) / np.maximum(alike, 1))[times.resource]

    def late() -> bool:
        short = not engine.has_time_left(FOR_SOLVER)
        engine.by_clock |= short
        return short

    search = Balancing.begun(times.seconds, price, engine.limits.seed, late)
    step = plan.step or STEP * bound
    least = step * np.ceil(bound / step - WHOLE) if plan.step else bound

    reported = np.inf

    def report() -> None:
        """Report the best assignment and the bound, if it improved."""
        nonlocal reported
        if search.makespan < reported:
            reported = search.makespan
            engine.report(
                began, reported, bound, "search of machines", lambda: times.point(search.agent)
            )

    def enough() -> bool:
        report()
        near = search.makespan - bound <= (engine.limits.gap or 0.0) * search.makespan
        return near or late()

    search.run(least, step, enough)
    report()
    engine.spend("search", engine.timer.clock() - began)
    found = times.point(search.agent)
    better = point is None or arrays.objective(found) < arrays.objective(point)
    return found if better else point


def _guaranteed(plan: LinearPlan, solved: SolvedProgram) -> SolvedProgram:
    """The solved plan with a note on its guarantee; its certificate fails if the guarantee is
    violated.
    """
    outcome, factor = solved.outcome, plan.guarantee
    if factor is None or outcome.value is None:
        return solved
    broken = plan.broken_guarantee(outcome.value, outcome.bound)
    if broken:
        certificate = outcome.certificate.with_problem(broken)
        solved = solved._replace(outcome=replace(outcome, certificate=certificate))
    return solved._replace(notes=(*solved.notes, f"at most {factor:g} times the optimum"))


def _without_solver(engine: Engine, plan: LinearPlan, point: FloatArray | None) -> Outcome | None:
    """An outcome that needs no solver: a known point that `duals_without_solver` prove optimal, or the known
    point if the plan wants no further search. None: a solver is needed.

    The bound is that of `duals_without_solver`. A plan that the time limit stopped has none.
    """
    if point is None and plan.unsearched is None:
        return None
    end, why = plan.unsearched or (Termination.OPTIMAL, "")
    if point is None:
        engine.use(ClosedForm, why)
        return nothing_found(engine, Values(end, words=f"{NO_PLAN_BY_RULE} ({why})"))
    if plan.solves_later and any(later.is_solved for later in plan.later):
        return None  # their programs need a solver
    arrays = plan.program.arrays
    # Beside a bound of the plan duals count only where they prove more.
    y = duals_without_solver(arrays, None) if plan.bound is None else None
    evaluated = EvaluatedPoint(arrays, point, point, arrays.objective(point))
    values = Values(Termination.BY_RULE, PointStatus.FEASIBLE, x=point, y=y, bound=plan.bound)
    outcome = _proved_by_prices(plan, recompute(ClosedForm, engine.limits, values, evaluated, y))
    # The bound is a sum in another order.
    bound, noise = outcome.bound, outcome.noise
    proved = bound is not None and is_closed(evaluated.value, bound, 0.0, noise)
    if not proved and plan.unsearched is None:
        return None
    if proved and end is not Termination.TIME_LIMIT:
        end, why = Termination.OPTIMAL, "no plan is better"
    engine.use(ClosedForm, why)
    outcome = replace(outcome, values=replace(outcome.values, termination=end))
    if end is not Termination.OPTIMAL and not outcome.certificate.ok:
        return nothing_found(engine, outcome.values, arrays.is_integer)
    return _without_bound(outcome) if end is Termination.TIME_LIMIT else outcome


def _without_bound(outcome: Outcome) -> Outcome:
    """An outcome without duals: a check of the file would build the whole program, with other
    rows.
    """
    certificate = outcome.certificate
    of_point = {name: off for name, off in certificate.residuals.items() if name != "duals"}
    certificate = replace(certificate, proof="none", residuals=of_point)
    return replace(outcome.without_bound(), certificate=certificate, status=Status.FEASIBLE)


def _by_parts(
    engine: Engine, plan: LinearPlan, parts: Parts, point: FloatArray | None
) -> SolvedProgram:
    """Solve by column generation; without a point, only the plan with all schedules can prove
    infeasibility.
    """
    arrays = engine.build(lambda: plan.program.arrays)
    engine.use(engine.load("highs"), "by columns, which are schedules of whole jobs")
    values = engine.record(
        convenience("LinearPlan.by_parts")(
            arrays, parts, point, plan.step, engine.limits_left(), plan.bound
        ),
        arrays.shape,
    )
    if values.x is None and plan.refuted_by is not None:
        return _refuted(engine, plan, engine.build(plan.to_refute))
    if values.x is None:
        return _without_schedule_of(plan, nothing_found(engine, values, integer=True))
    outcome = _proved_by_prices(plan, certified_linear(engine, arrays, values, None))
    return _refined(engine, plan, outcome)


def _proved_by_prices(plan: LinearPlan, outcome: Outcome) -> Outcome:
    """The outcome with the prices of time of its plan, where they prove its bound."""
    if plan.bound is None or outcome.bound_source != "solver" or outcome.bound != plan.bound:
        return outcome
    proof = "dual" if outcome.certificate.proof == "claimed" else outcome.certificate.proof
    return replace(
        outcome,
        bound_source="dual",
        certificate=replace(outcome.certificate, proof=proof),
        time_prices=plan.time_prices,
    )


def _by_patterns(
    engine: Engine,
    plan: LinearPlan,
    patterns: Patterns,
    point: FloatArray,
    clean: Callable[[FloatArray], FloatArray],
) -> Outcome | None:
    """The outcome of column generation and, where that leaves a gap, of the solver of the whole
    program; None where the caller has asked for a solver or a start.
    """
    if engine.asked_for is not None or engine.start is not None or engine.limits.work is not None:
        return None
    arrays = engine.build(lambda: plan.program.arrays)
    engine.use(engine.load("highs"), "by columns, which are fillings of bins")
    limits = engine.limits_left()
    half = None if limits.time is None else limits.time * FOR_PATTERNS
    found = convenience("LinearPlan.by_patterns")(
        arrays, patterns, point, replace(limits, time=half)
    )
    values = engine.record(found, arrays.shape)
    # Of the patterns, of the bounds of columns, and none: then the bound is only claimed.
    duals = (values.y, duals_without_solver(arrays, None), None)
    outcome = _best_proven(engine, plan, values, duals, clean)
    if outcome.status is Status.OPTIMAL or engine.time_left <= 0:
        return outcome
    by_solver = engine.solve_linear(plan.program, clean, outcome.x)
    if by_solver.x is None:
        return by_solver
    bounds = [each for each in (values.bound, by_solver.bound) if each is not None]
    values = replace(by_solver.values, x=by_solver.x, bound=max(bounds, default=None))
    return _best_proven(engine, plan, values, duals, clean)


def _best_proven(
    engine: Engine,
    plan: LinearPlan,
    values: Values,
    duals: Sequence[FloatArray | None],
    clean: Callable[[FloatArray], FloatArray],
) -> Outcome:
    """The outcome of a point with the duals that prove most; earlier ones where several do.

    Patterns have no more jobs of a kind than there are, but paths of a program may. So duals of
    patterns may prove less of the program than of the patterns.
    """
    arrays = plan.program.arrays
    outcomes = [certified_linear(engine, arrays, values, y, clean, plan.step) for y in duals]
    return max(outcomes, key=lambda found: -np.inf if found.bound is None else found.bound)


@contextmanager
def _unexplained(engine: Engine, unexplained: bool) -> Iterator[None]:
    """While inside, no infeasible program is explained."""
    before, engine.explains = engine.explains, engine.explains and not unexplained
    try:
        yield
    finally:
        engine.explains = before


def _without_schedule_of(plan: Plan, outcome: Outcome) -> SolvedProgram:
    """An outcome without a point, its conflicts as text; two rows may have the same text."""
    in_words = (_in_words(plan, conflict) for conflict in outcome.conflicts)
    by_words = {conflict.words: conflict for conflict in in_words}
    return SolvedProgram(plan, replace(outcome, conflicts=tuple(by_words.values())))


def _refuted(engine: Engine, plan: LinearPlan, all_schedules: LinearPlan) -> SolvedProgram:
    """The outcome where a plan over some of the schedules is infeasible.

    Infeasibility is claimed only if the plan over all schedules is infeasible too.
    """
    found = solve_plan(engine, all_schedules)
    if found.outcome.status is Status.INFEASIBLE:
        return found._replace(program=plan)
    values, notes = found.outcome.values, [NOT_PROVEN]
    if values.termination in STOPPED:
        notes = [NEITHER_PROVEN]
    elif plan.unsearched is not None:
        values = replace(values, termination=plan.unsearched[0])
    if plan.unsearched is not None:
        notes.append(plan.unsearched[1])
    values = replace(values, words=notes[0])
    return SolvedProgram(plan, nothing_found(engine, values), notes=tuple(notes))


# --- relaxations of a plan ------------------------------------------------------------------------

REALISED = "the schedule runs an optimum of the program, interval by interval"
STOPPED_AT = "the schedule runs the best point of the program that was found, interval by interval"
FILLED = (
    "the schedule fills intervals with jobs as an optimum of the program says, as far as there is "
    "room; the program is a relaxation and bounds every schedule"
)
BY_RULE = (
    "the schedule is a plan by rule: no schedule of an optimum of the program is known; "
    "the program is a relaxation of jobs on several GPUs and bounds every schedule"
)
IDEAL = "the schedule is a plan by rule, and none is better"
LATE = "the time limit was over before the program was solved"
UNDECIDED = (
    "undecided: the program, a relaxation of jobs on several GPUs, keeps all deadlines, "
    "but no schedule is known that does"
)


@dataclass(frozen=True, eq=False)
class _KnownSchedule:
    """A schedule of a relaxation, its point, and what the check of its point finds."""

    plan: LinearPlan
    schedule: Schedule

    @cached_property
    def x(self) -> FloatArray:
        return self.plan.complete(self.schedule)

    @cached_property
    def value(self) -> float:
        return self.plan.program.arrays.objective(self.x)

    @cached_property
    def noise(self) -> float:
        """Differences of the objective below this are rounding."""
        return noise_at(self.plan.program.arrays, self.x)

    @cached_property
    def certificate(self) -> Certificate:
        """Of the schedule alone: it states no bound."""
        return certify_point(self.plan.program.arrays, self.x, self.value, "none")


def _solve_relaxation(engine: Engine, plan: LinearPlan, relaxation: Relaxation) -> SolvedProgram:
    """The better schedule of two, one made of an optimum and one by rule, with the bound of the
    program.

    The program is a relaxation: if it is infeasible, there is no schedule; a point of it need not
    have one. No solver is needed where a bound without one proves that the schedule by rule is
    optimal.
    """
    arrays = engine.build(lambda: plan.program.arrays)
    witness_first = relaxation.witness_first or arrays.is_integer
    witness = engine.build(relaxation.witness) if witness_first else None
    known = None if witness is None else _KnownSchedule(plan, witness)
    if known is not None:
        outcome = _without_solver(engine, plan, known.x)
        if outcome is not None:
            return SolvedProgram(plan, outcome, known.schedule, notes=(IDEAL,))
    if engine.timer.is_over if known is None else engine.time_left <= 0:
        engine.use(ClosedForm, LATE)
        stopped = nothing_found(engine, Values(Termination.TIME_LIMIT, words=LATE))
        late = _with_bound(stopped, arrays, duals_without_solver(arrays, None))
        return _best_schedule(engine, plan, relaxation, late, known)
    engine.vertex = True
    sifted = _by_sifting(engine, plan)
    if sifted is not None and sifted.termination is Termination.INFEASIBLE:
        return _merged(engine, plan, solve_plan(engine, engine.build(plan.to_refute)))
    if sifted is None:
        # Other runs gain nothing from a point to start from.
        start = known.x if known is not None and arrays.is_integer else None
        outcome = engine.solve_linear(arrays, None, start)
    elif sifted.x is None:
        outcome = _with_bound(nothing_found(engine, sifted), arrays, sifted.y)
    else:
        outcome = certified_linear(engine, arrays, sifted, sifted.y)
    if outcome.status is Status.INFEASIBLE:
        return _without_schedule_of(plan, outcome)
    return _best_schedule(engine, plan, relaxation, outcome, known)


def _best_schedule(
    engine: Engine,
    plan: LinearPlan,
    relaxation: Relaxation,
    outcome: Outcome,
    known: _KnownSchedule | None,
) -> SolvedProgram:
    """The better of the schedules of a point and of the witness; of no point, the witness.

    Where the witness is known, the search for the other one ends with the time limit.
    """
    x, arrays = outcome.x, plan.program.arrays
    best: SolvedProgram | None = None
    # A solver that was stopped may return what it started from.
    if x is not None and (known is None or not np.array_equal(x, known.x)):
        slices = partial(convenience("LinearPlan.slices"), engine, plan.classes)
        timer = engine.timer if known is None else engine.timer.strict()
        schedule = relaxation.realise(x, slices, timer)
        if schedule is not None:
            of_point = _KnownSchedule(plan, schedule)
            found = _of_schedule(engine, outcome, of_point)
            if found.certificate.ok:
                note = _made_of(outcome, found, of_point)
                best = SolvedProgram(plan, found, schedule, notes=(note,))
    if known is None and (best is None or best.outcome.status is not Status.OPTIMAL):
        schedule = relaxation.witness()
        known = None if schedule is None else _KnownSchedule(plan, schedule)
    if known is not None and (best is None or best.outcome.status is not Status.OPTIMAL):
        found, notes = _of_schedule(engine, outcome, known), _noted(relaxation, BY_RULE)
        if found.certificate.ok and (
            best is None or is_better(found, best.outcome, arrays.maximise)
        ):
            best = SolvedProgram(plan, found, known.schedule, notes=notes)
    if best is not None:
        return best
    if x is None:
        return _without_schedule_of(plan, _without_duals(unless_interrupted(outcome)))
    nothing = nothing_found(engine, replace(outcome.values, words=UNDECIDED))
    nothing = _without_duals(replace(nothing, bound=outcome.bound))
    return SolvedProgram(plan, nothing, notes=_noted(relaxation, UNDECIDED))


def _made_of(outcome: Outcome, found: Outcome, schedule: _KnownSchedule) -> str:
    """How a schedule was made of the point of an outcome, in words."""
    if found.status is Status.OPTIMAL:
        return REALISED
    assert outcome.value is not None
    is_exact = is_closed(schedule.value, outcome.value, OPTIMALITY, schedule.noise)
    return STOPPED_AT if is_exact else FILLED


def _noted(relaxation: Relaxation, words: str) -> tuple[str, ...]:
    """The words, and what is to be said on the plan by rule."""
    said = relaxation.note()
    return (words, said) if said else (words,)


def _with_bound(outcome: Outcome, arrays: LinearArrays, y: FloatArray | None) -> Outcome:
    """An outcome of a stopped run without a point, with the bound that its duals prove."""
    bound = None if y is None else dual_bound(arrays, y)
    if y is None or bound is None:
        return outcome
    return replace(
        outcome,
        bound=bound,
        bound_source="dual",
        certificate=replace(
            outcome.certificate, proof="dual", residuals={"duals": dual_residual(arrays, y)}
        ),
        duals={rows.name: y[rows.slice] for rows in arrays.rows},
    )


def _without_duals(outcome: Outcome) -> Outcome:
    """An outcome without a point, whose bound is that of a relaxation; such a file holds no duals."""
    if outcome.bound is None:
        return outcome
    certificate = replace(outcome.certificate, proof="none", residuals={})
    return replace(outcome, bound_source="relaxation", certificate=certificate, duals=None)


def _by_sifting(engine: Engine, plan: LinearPlan) -> Values | None:
    """The values of sifting; None if the program is to be solved with all columns, by any
    solver.
    """
    if plan.sifting is None or engine.asked_for is not None:
        return None
    try:
        values = solve_by_sifting(engine, plan.program.arrays, plan.sifting)
    except SolverCrashed as error:
        log.info("sifting: %s", error)
        engine.attempts.append(Attempt(engine.name, str(error)))
        return None
    return None if values.termination is Termination.IMPRECISE else values


def _merged(engine: Engine, plan: LinearPlan, found: SolvedProgram) -> SolvedProgram:
    """The solution of the plan over all schedules, as one of this plan.

    Its point and duals belong to another program, so that only the schedule is kept.
    """
    if found.schedule is None or found.outcome.status is Status.INFEASIBLE:
        return found._replace(program=plan)
    known = _KnownSchedule(plan, found.schedule)
    outcome = _of_schedule(engine, found.outcome.without_bound(), known)
    return found._replace(program=plan, outcome=outcome)


def _of_schedule(engine: Engine, outcome: Outcome, known: _KnownSchedule) -> Outcome:
    """The outcome of a relaxation with a schedule in place of its point."""
    began = engine.timer.clock()
    arrays, value, noise = known.plan.program.arrays, known.value, known.noise
    if outcome.bound is not None and contradicts(outcome.bound, value, arrays.maximise, noise):
        outcome = outcome.without_bound()
    bound = outcome.bound
    proof = "none" if bound is None else outcome.certificate.proof
    certificate = replace(known.certificate, proof=proof)
    if bound is not None:
        certificate = _of_duals(certificate, outcome)
    allowed = max(OPTIMALITY, engine.limits.gap or 0.0) if arrays.is_integer else OPTIMALITY
    closed = bound is not None and is_closed(value, bound, allowed, noise)
    status = Status.OPTIMAL if closed and certificate.ok else Status.FEASIBLE
    engine.spend("certify", engine.timer.clock() - began)
    return replace(
        outcome, x=known.x, value=value, certificate=certificate, status=status, noise=noise
    )


# --- later objectives of a linear plan ------------------------------------------------------------


def _refined(engine: Engine, plan: LinearPlan, outcome: Outcome) -> SolvedProgram:
    """The best schedule by the later objectives among those found of the same objective.

    Each later objective is a separate program in which the earlier objectives keep their values.
    Its run starts from the best known schedule, takes the rest of the time, and is limited by
    `Later.is_solved` and `LATER_NODES`. If it fails, the schedule so far remains. Status, bound and
    gap of the outcome belong to the plan's first objective.
    """
    assert outcome.x is not None
    is_final = not (plan.improve or plan.later or plan.of_schedule)
    if not outcome.certificate.ok or is_final:
        return SolvedProgram(plan, outcome, plan.read(outcome.x))
    schedule = plan.read(outcome.x if plan.improve is None else plan.improve(outcome.x))
    # After a limit there are no further runs; a gap that was asked for is no such limit.
    limited = (
        outcome.values.termination in STOPPED
        and outcome.values.termination is not Termination.GAP_LIMIT
    )
    stopped = limited or not plan.solves_later
    arrays_of_plan = plan.program.arrays
    # Kept objectives are minimised, whatever the sense of the plan's first objective.
    held = [
        (-arrays_of_plan.cost if arrays_of_plan.maximise else arrays_of_plan.cost, plan.complete)
    ]
    stages = []
    ended: Termination | None = None
    for number, later in enumerate(plan.later):
        bound: float | None = None
        if not stopped and later.is_solved:
            arrays = engine.build(later.program).arrays
            values = _run_later(
                engine, later, _with_held(arrays, held, schedule), schedule, outcome.solver.name
            )
            schedule = _better(engine, plan, plan.later[: number + 1], schedule, values)
            bound = values.bound
            held.append((arrays.cost, later.complete))
            if values.termination in (Termination.TIME_LIMIT, Termination.INTERRUPTED):
                stopped, ended = True, values.termination
        value = later.value(schedule)
        if bound is not None and contradicts(bound, value, maximise=False, noise=OPTIMALITY):
            engine.rebuilt.append(
                f"{later.name}: {outcome.solver.name} claimed that nothing is below {bound:.9g}, "
                f"but the schedule has {value:.9g}"
            )
            bound = None
        bound = None if bound is None or not np.isfinite(bound) else min(bound, value)
        stages.append(Stage(later.name, value, bound, None, words=(later.words,)))
        log.info("%s: %.9g, bound %s", later.words, value, bound)
    point = plan.complete(schedule)
    checked = plan.as_checked(schedule)
    value = checked.value(schedule)
    values = outcome.values if ended is None else replace(outcome.values, termination=ended)
    certificate = _of_duals(checked.certify(schedule, value, outcome.certificate.proof), outcome)
    refined = replace(outcome, x=point, value=value, values=values, certificate=certificate)
    if not certificate.ok:
        refined = replace(refined, status=Status.FEASIBLE)
    return SolvedProgram(plan, refined, schedule, tuple(stages))


def _of_duals(certificate: Certificate, outcome: Outcome) -> Certificate:
    """The certificate of another schedule of the same value, which the same duals bound."""
    before = outcome.certificate.residuals
    of_duals = {"duals": before["duals"]} if "duals" in before else {}
    return replace(certificate, residuals={**certificate.residuals, **of_duals})


def _with_held(arrays: LinearArrays, held: Sequence[Held], schedule: Schedule) -> LinearArrays:
    """The program with a row for each earlier objective, which must not exceed its value at a
    schedule.

    Its first columns are those of the earlier programs.
    """
    for number, (cost, complete) in enumerate(held):
        reached = float(cost @ complete(schedule))
        padded = np.pad(cost, (0, arrays.shape[1] - len(cost)))
        arrays = arrays.with_row(
            padded, -np.inf, reached + KEPT * max(1.0, abs(reached)), f"held {number}"
        )
    return arrays


def _run_later(
    engine: Engine, later: Later, arrays: LinearArrays, schedule: Schedule, solver: str
) -> Values:
    """A run of a later objective's program from a schedule."""
    limits = engine.limits_left()
    work = LATER_NODES if limits.work is None else min(limits.work, LATER_NODES)
    used = engine.start_used  # is about the start of the caller, not about this one
    try:
        session = engine.open(arrays, solver, start=later.complete(schedule))
        limits = replace(limits, work=work, gap=None, on_progress=None)
        return engine.run_within(session, limits)
    except (SolverCrashed, SolverUnavailable) as error:
        # CP-SAT takes the program of the value, but not one with continuous columns
        why = "broke down" if isinstance(error, SolverCrashed) else "does not take their program"
        engine.rebuilt.append(f"{later.name}: kept as they were, as {solver} {why}: {error}")
        return Values(Termination.ERROR)
    finally:
        engine.start_used = used


def _better(
    engine: Engine,
    plan: LinearPlan,
    objectives: Sequence[Later],
    schedule: Schedule,
    values: Values,
) -> Schedule:
    """The schedule of a run, if it keeps all rows, loses nothing in earlier objectives and is
    better in the last one; otherwise the schedule before.
    """
    if values.x is None:
        return schedule
    try:
        found = objectives[-1].read(values.x)
        at, new = plan.value(schedule), plan.value(found)
    except ValueError as error:  # numbers too far from whole ones
        engine.rebuilt.append(
            f"{objectives[-1].name}: kept as they were, as the point found is no schedule: {error}"
        )
        return schedule
    sign = -1.0 if plan.program.arrays.maximise else 1.0
    # (before, after) of all objectives, minimised; the last one decides.
    pairs = [
        (sign * at, sign * new),
        *((item.value(schedule), item.value(found)) for item in objectives),
    ]
    worse = any(late > early + KEPT * max(1.0, abs(early)) for early, late in pairs)
    better = pairs[-1][1] < pairs[-1][0] and not worse and plan.certify(found, new, "none").ok
    return found if better else schedule


def _in_words(plan: Plan, conflict: Conflict) -> Conflict:
    words = plan.describe(conflict.block, conflict.position)
    return conflict._replace(words=words, assumption=plan.assumption)


# --- timelines ------------------------------------------------------------------------------------


def _solve_timeline(engine: Engine, plan: TimelinePlan) -> SolvedProgram:
    """Solve a timeline. The search starts from a list schedule, whose end limits the horizon.

    The list schedule is the answer if a run is stopped before it finds a better one, or if every
    solver fails.
    """
    first = _best_known(engine, plan.timeline)
    timeline = plan.timeline if first is None else _no_later_than(plan.timeline, *first)

    def certify(values: Values, y: FloatArray | None) -> Outcome:
        return _certified(engine, plan, values)

    def once(name: str | None) -> Outcome:
        values = _run_timeline(engine, timeline, first, name)
        if values.x is None or values.termination in NO_OPTIMUM:
            return _without_schedule(engine, plan, values)
        return certify(values, None)

    def ways() -> Iterator[Callable[[], Outcome]]:
        yield partial(once, None)
        if engine.solver == "auto":
            for other in others_for_timeline(engine.name, timeline):
                yield partial(once, other)

    def known(found: Outcome | None) -> Outcome | None:
        points = [] if first is None else [_point(first)]
        return best_of_known_points(points, certify, found, maximise=False)

    outcome = attempt(engine, ways(), certify, known, maximise=False)
    if outcome.x is None:
        return _without_schedule_of(plan, outcome)

    def look_for_better(found: Outcome) -> CutOffResult:
        assert found.x is not None
        cost = plan.timeline.objective(*split_point(plan.timeline, found.x))
        verdict = better_schedule(engine, plan.timeline, cost)
        if verdict.bound is None:
            return verdict
        return replace(verdict, bound=verdict.bound * plan.time_unit)

    outcome = cross_checked(engine, outcome, look_for_better, lambda values: certify(values, None))
    assert outcome.x is not None
    return SolvedProgram(plan, outcome, plan.read(*split_point(plan.timeline, outcome.x)))


def _run_timeline(
    engine: Engine,
    timeline: TimelineProgram,
    first: tuple[IntArray, IntArray] | None,
    name: str | None,
) -> Values:
    """Starts and modes from a solver by name, or from the chosen one; lowered to a time-indexed
    program if it takes no timelines.
    """
    solver = engine.choose_for_timeline(timeline, name)
    if first is not None and engine.time_left <= 0:
        values = Values(Termination.TIME_LIMIT)
    elif Capability.TIMELINE in solver.capabilities:
        start = None if first is None else _point(first)
        values = solver().solve_timeline(timeline, engine.limits_left(), start)
        values = engine.record(values, (0, 2 * len(timeline)))
    else:
        values = _run_indexed(engine, timeline, first, name)
    if first is None or values.termination not in STOPPED:
        return values
    # The work on the resources bounds a makespan, even if the stopped run has no bound yet.
    if timeline.only_makespan:
        least = float(timeline.cost.makespan * timeline.least_makespan)
        values = replace(values, bound=max(least, values.bound or 0.0))
    cost = timeline.objective(*first)
    if values.x is None or timeline.objective(*split_point(timeline, values.x)) > cost:
        return replace(values, x=_point(first), objective=float(cost), primal=PointStatus.FEASIBLE)
    return values


def _point(schedule: tuple[IntArray, IntArray]) -> FloatArray:
    """Starts and modes as one array."""
    return np.concatenate(schedule).astype(np.float64)


def _best_known(engine: Engine, timeline: TimelineProgram) -> tuple[IntArray, IntArray] | None:
    """A list schedule, or the start that the engine was given if it is feasible and better."""
    first = engine.build(lambda: list_schedule(timeline, engine.timer))
    if engine.start is None or len(engine.start) != 2 * len(timeline):
        return first
    given = split_point(timeline, engine.start)
    engine.start_used = True
    if next(timeline.violations(*given), None) is not None:
        log.warning("the start is left out: it is no feasible schedule")
        return first
    return (
        given
        if first is None or timeline.objective(*given) <= timeline.objective(*first)
        else first
    )


def _run_indexed(
    engine: Engine,
    timeline: TimelineProgram,
    first: tuple[IntArray, IntArray] | None,
    name: str | None,
) -> Values:
    lowered = engine.build(lambda: time_indexed(timeline))
    reason = engine.reason
    session = engine.open(lowered.program.arrays, name)
    engine.reason = reason
    assert engine.chosen is not None
    if first is not None and Capability.START in engine.chosen.capabilities:
        session.set_start(lowered.complete(*first))
    values = engine.run(session)
    if values.x is None:
        return replace(values, y=None)
    start, mode = lowered.read(values.x)
    return replace(values, x=np.concatenate([start, mode]).astype(np.float64), y=None)


def _no_later_than(timeline: TimelineProgram, start: IntArray, mode: IntArray) -> TimelineProgram:
    """The timeline with deadlines no later than the makespan of a known schedule, if only that
    counts.
    """
    if not timeline.only_makespan:
        return timeline
    latest = int((start + timeline.duration[mode]).max(initial=0))
    return replace(timeline, deadline=np.minimum(timeline.deadline, latest))


def _certified(engine: Engine, plan: TimelinePlan, values: Values) -> Outcome:
    """The outcome of starts and modes, checked in integers; activities are shifted left if no cost
    can increase.
    """
    began = time.perf_counter()
    assert values.x is not None and engine.chosen is not None
    start, mode = _shifted(engine, plan, *split_point(plan.timeline, values.x))
    if any(name == "mode" for name, _, _ in plan.timeline.violations(start, mode)):
        raise SolverCrashed(
            f"solver {engine.chosen.name} returned an activity in a mode of another"
        )
    value = plan.timeline.objective(start, mode) * plan.time_unit
    bound = (
        None
        if values.bound is None or not np.isfinite(values.bound)
        else values.bound * plan.time_unit
    )
    certificate = plan.certify(
        plan.read(start, mode), value, "none" if bound is None else "claimed"
    )
    problems = list(certificate.problems)
    claims = values.termination in (Termination.OPTIMAL, Termination.GAP_LIMIT)
    accepted = max(OPTIMALITY, engine.limits.gap or 0.0)
    half = 0.5 * plan.time_unit  # costs are whole: a bound within half a unit is the cost itself
    closed = bound is not None and (is_closed(value, bound, accepted, half) or value <= bound)
    stated = None if values.objective is None else values.objective * plan.time_unit
    if claims and stated is not None and value > stated + half:
        problems.append(
            f"the solver states the objective {stated:.9g}, its schedule has {value:.9g}"
        )
    if bound is not None and bound > value + half:
        problems.append(
            f"the bound {bound:.9g} is worse than the objective of the schedule, {value:.9g}"
        )
    if claims and bound is not None and not closed:
        problems.append("the solver claims optimality, but its bound leaves a gap")
    certificate = replace(certificate, ok=not problems, problems=tuple(problems))
    engine.timings["certify"] = engine.timings.get("certify", 0.0) + time.perf_counter() - began
    return Outcome(
        values=values,
        x=np.concatenate([start, mode]).astype(np.float64),
        value=value,
        bound=bound,
        bound_source="none" if bound is None else "solver",
        certificate=certificate,
        # A cost below the bound means a violated row or a false bound: neither is an optimum.
        status=Status.OPTIMAL if closed and certificate.ok else Status.FEASIBLE,
        solver=engine.chosen,
        noise=half,
    )


def _shifted(
    engine: Engine, plan: TimelinePlan, start: IntArray, mode: IntArray
) -> tuple[IntArray, IntArray]:
    timeline = plan.timeline
    if timeline.is_regular and next(timeline.violations(start, mode), None) is None:
        return shifted_left(timeline, start, mode, engine.timer), mode
    return start, mode


def _without_schedule(engine: Engine, plan: TimelinePlan, values: Values) -> Outcome:
    """The outcome of a run that left no schedule.

    A claim that there is none is checked by the choice of modes alone, a program for another
    solver.
    """
    if values.termination is Termination.INFEASIBLE_OR_UNBOUNDED:  # no cost is unbounded
        values = replace(values, termination=Termination.INFEASIBLE)
    return without_point(engine, plan.program.arrays, values, None)
