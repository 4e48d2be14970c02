"""From a formulation to a solution: its programs are solved one after the other."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from optsched.arrays import EMPTY
from optsched.arrays.values import replace
from optsched.candidates import Candidates, Classes
from optsched.errors import NOTHING_YET, Interrupted, SolverCrashed, UsageError
from optsched.formulation import Formulation, Infeasible, declined_jobs, nothing_to_decide
from optsched.formulation.procedure import (
    Auxiliary,
    Optimum,
    PricedRows,
    Probe,
    Reduced,
    Result,
    RuleDecision,
    Step,
    Undecided,
)
from optsched.instance.durations import OutOfTime, Timer
from optsched.lazy import convenience
from optsched.program import AllocationProgram
from optsched.program.some_time import time_is_scarce
from optsched.solution import (
    Allocation,
    Attempt,
    Certificate,
    Conflict,
    PointStatus,
    Solution,
    SolverRecord,
    Status,
    Termination,
    certify_point,
    gap_of,
)
from optsched.solution.certificate import OPTIMALITY
from optsched.solution.figures import by_job
from optsched.solvers import Progress
from optsched.solvers.interrupt import delayed_interrupt, interrupted
from optsched.solving.certify import without_time
from optsched.solving.engine import Engine
from optsched.solving.outcome import BY_CLOCK, Outcome, SolvedProgram, is_reproducible
from optsched.solving.stages import solve_staged

if TYPE_CHECKING:
    from optsched.solution import Schedule
    from optsched.solution.plan import Plan
    from optsched.solution.solution import ColumnsMade
    from optsched.solution.stage import Stage

NO_PLAN = (
    "no plan was found: the best allocation leaves a job without time, "
    "so that the objective is infinite"
)
STAGES = {"load": "reading", "compile": "compiling", "build": "building the program"}
"""Steps before the first run of a solver, by the names of their timings."""


def solve_formulation(formulation: Formulation, candidates: Candidates, engine: Engine) -> Solution:
    """Run the procedure of a formulation, and certify its solution.

    Parameters
    ----------
    formulation : Formulation
    candidates : Candidates
    engine : Engine
        Its budget of time is that of all programs together.
    """
    clock = engine.timer.clock
    started = clock()
    formulation = formulation.within(engine.timer)
    C = formulation.classes(candidates)
    on_demand = candidates.elastic is not None or candidates.pairs is not None
    run = _Run(formulation, C, engine, on_demand)
    run.spend_since(started)
    try:
        engine.timer.check()
        result = run.to_the_end()
    except OutOfTime:
        return cut_off(formulation, C.candidates, engine.timer, engine.timings)
    except Infeasible as error:
        return _infeasible(formulation, C, error.conflicts)
    except _NothingToDecide as nothing:
        return _empty(formulation, nothing.program)
    except _Unfinished as stopped:
        return _stopped(formulation, C, engine, stopped.outcome)
    if isinstance(result, RuleDecision):
        return _decided(formulation, C, engine, result, run.cut or Termination.CLOSED_FORM)
    assert run.solved is not None
    with delayed_interrupt():  # Ctrl-C must not lose the answer any more
        return _answer(formulation, engine, run.solved, result)


class _NothingToDecide(Exception):
    """The formulation's own program has no job."""

    def __init__(self, program: AllocationProgram | Plan) -> None:
        super().__init__()
        self.program = program


class _Unfinished(Exception):
    """A program whose optimum the procedure needs was stopped, or has none."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.values.words)
        self.outcome = outcome


@dataclass(eq=False)
class _Run:
    """One run of a procedure.

    Attributes
    ----------
    formulation : Formulation
    classes : Classes
    engine : Engine
    on_demand : bool
        Whether columns are generated. The candidates of the caller say so: a formulation that
        admits columns itself may have turned them into others, which `generate_columns` then
        refuses.
    solved : SolvedProgram or None
        The formulation's own program, once it is solved.
    cut : Termination or None
        What ended the search for the bound of a rule, if it was the clock or the user.
    """

    formulation: Formulation
    classes: Classes
    engine: Engine
    on_demand: bool
    solved: SolvedProgram | None = None
    cut: Termination | None = None

    def to_the_end(self) -> Result:
        """Solve the programs of the procedure in their order."""
        procedure = self.formulation.procedure(self.classes, self.engine.limits.seed)
        optimum: Optimum | None = None
        while True:
            started = self.engine.timer.clock()
            try:
                step = next(procedure) if optimum is None else procedure.send(optimum)
            except StopIteration as end:
                result: Result = end.value
                return result
            finally:
                self.spend_since(started)
            # There is no answer yet, unless a plan has a schedule by rule (`solve_plan`).
            if optimum is None and isinstance(
                step, AllocationProgram | Auxiliary | Probe | PricedRows
            ):
                self.engine.timer.check()
            optimum = self._optimum(step)

    def spend_since(self, started: float) -> None:
        """Count the time of the formulation itself; for a rule it counts as solving."""
        on = "solve" if self.formulation.sense == "rule" else "build"
        self.engine.spend(on, self.engine.timer.clock() - started)

    def _optimum(self, step: Step) -> Optimum:
        """Solve a program; callers receive progress in units of the objective.

        Values of a program beside the formulation's own are no objectives: only its time and words
        are reported.
        """
        if isinstance(step, Probe | PricedRows | Auxiliary):
            with _reporting(self.engine, lambda value: None):
                return self._beside(step)
        if nothing_to_decide(step):
            raise _NothingToDecide(step)
        with _reporting(self.engine, _objective_of(step)):
            self.solved = self._solve_program(step)
        return _as_optimum(self.solved.outcome)

    def _beside(self, step: Probe | PricedRows | Auxiliary) -> Optimum:
        """Solve a program beside the formulation's own."""
        if isinstance(step, Probe):
            return self._probed(step)
        if isinstance(step, PricedRows):
            return self._priced(step)
        return _as_optimum(self._auxiliary(step))

    def _solve_program(self, program: AllocationProgram | Plan) -> SolvedProgram:
        if not isinstance(program, AllocationProgram):
            from optsched.solving.schedules import solve_plan  # most formulations plan no schedules

            return solve_plan(self.engine, program)
        if program.space is not None and (program.parts is not None or self.on_demand):
            why = "whole jobs are placed in one program with all its columns"
            raise UsageError(f"placeable: {why}, not in parts or with columns on demand")
        if program.parts is not None:
            if self.on_demand:
                raise UsageError("generate_columns: a program in parts has all its columns made")
            from optsched.solving.in_parts import solve_in_parts  # few programs are

            return solve_in_parts(self.engine, program, program.parts)
        if self.on_demand:
            from optsched.solving.column_generation import generate_columns  # few programs need it

            return generate_columns(self.engine, program, self.formulation.program)
        return solve_staged(self.engine, program)

    def _auxiliary(self, step: Auxiliary) -> Outcome:
        engine, limits, vertex = self.engine, self.engine.limits, self.engine.vertex
        if step.exact:
            engine.limits = replace(limits, gap=0.0)
        engine.vertex = step.vertex
        try:
            if isinstance(step.program, AllocationProgram):
                outcome = engine.solve_directly(step.program, step.prices)
            else:
                outcome = engine.solve_linear(step.program, np.round if step.exact else None)
        finally:
            engine.limits, engine.vertex = limits, vertex
        if step.required:
            _require_optimum(outcome)
        return outcome

    def _priced(self, step: PricedRows) -> Optimum:
        """The Lagrangian bound of a program whose rows have prices."""
        engine, began = self.engine, self.engine.timer.clock()
        limits = engine.limits_left()
        relaxed = convenience("PricedRows.relaxed")(step, limits)
        spent = engine.timer.clock() - began
        engine.spend("bound", spent)
        end = Termination.OPTIMAL
        if not relaxed.converged and interrupted():
            end = Termination.INTERRUPTED
        elif not relaxed.converged and limits.time is not None and spent >= limits.time:
            end = Termination.TIME_LIMIT
        if end in BY_CLOCK:
            engine.by_clock, self.cut = True, end
        return Optimum(relaxed.average, None, relaxed.bound, Status.FEASIBLE, end)

    def _probed(self, probe: Probe) -> Optimum:
        values = self.engine.run(self.engine.open(probe.program))
        x = values.x if values.primal is PointStatus.FEASIBLE else None
        return Optimum(x, values.objective, None, Status.FEASIBLE, values.termination)


def _objective_of(program: AllocationProgram | Plan) -> Callable[[float], float | None]:
    """The objective where a solver reports a value of a program."""
    # A solver of a timeline reports its cost in units of time, not in seconds.
    cost_unit = 1.0 if isinstance(program, AllocationProgram) else program.cost_unit
    return lambda value: program.units.objective(cost_unit * value)


@contextmanager
def _reporting(engine: Engine, objective: Callable[[float], float | None]) -> Iterator[None]:
    """While inside, callers receive the ``objective`` of each incumbent and bound."""
    receive = engine.limits.on_progress
    if receive is None:
        yield
        return

    def converted(value: float | None) -> float | None:
        return None if value is None else objective(value)

    def report(event: Progress) -> None:
        values = converted(event.incumbent), converted(event.bound)
        receive(event._replace(incumbent=values[0], bound=values[1]))

    engine.limits = replace(engine.limits, on_progress=report)
    try:
        yield
    finally:
        engine.limits = replace(engine.limits, on_progress=receive)


def _as_optimum(outcome: Outcome) -> Optimum:
    end = outcome.values.termination
    return Optimum(outcome.x, outcome.value, outcome.bound, outcome.status, end, outcome.duals)


def _require_optimum(outcome: Outcome) -> None:
    if not outcome.certificate.ok:
        problems = "; ".join(outcome.certificate.problems)
        raise SolverCrashed(
            f"solver {outcome.solver.name} left a certificate that does not hold: {problems}"
        )
    if outcome.status is not Status.OPTIMAL or outcome.bound is None:
        raise _Unfinished(outcome)


# --- solutions ----------------------------------------------------------------------------------


def _answer(
    formulation: Formulation,
    engine: Engine,
    solved: SolvedProgram,
    result: Reduced | Undecided | None,
) -> Solution:
    """The solution of the formulation's own program, changed as its procedure returns."""
    outcome, notes = _some_time_for_all(engine, solved), solved.notes
    value = solved.program.units.objective(0.0 if outcome.value is None else outcome.value)
    if outcome.x is not None and outcome.certificate.ok and np.isinf(value):
        outcome, notes = _without_plan(outcome), (NO_PLAN, *notes)
    if isinstance(result, Undecided):
        engine.attempts.append(Attempt(outcome.solver.name, result.words))
        values = replace(outcome.values, termination=result.termination)
        outcome = replace(outcome, values=values, status=Status.FEASIBLE)
    solution = solution_of(
        formulation,
        solved.program.classes.candidates,
        solved.program,
        outcome,
        engine,
        solved.schedule,
        solved.stages,
        notes=notes,
        columns_made=solved.columns_made,
    )
    if solved.seats is not None and solution.allocation is not None:
        return replace(solution, allocation=replace(solution.allocation, seats=solved.seats))
    if engine.found is not None and result is None:
        return replace(solution, alternatives=_alternatives(formulation, engine, solved))
    if isinstance(result, Reduced):
        C = solved.program.classes
        figures = by_job(C, result.figures)
        return replace(solution, allocation=Allocation(C, result.x), figures=figures)
    return solution


def _alternatives(
    formulation: Formulation, engine: Engine, solved: SolvedProgram
) -> tuple[Solution, ...]:
    """Other solutions of the formulation's own program that were found on the way."""
    from optsched.solving.alternatives import other_solutions  # few users want several

    assert engine.found is not None
    candidates = solved.program.classes.candidates
    return tuple(
        solution_of(formulation, candidates, other.program, other.outcome, engine, other.schedule)
        for other in other_solutions(solved, engine.found)
    )


def solution_of(
    formulation: Formulation,
    candidates: Candidates,
    program: AllocationProgram | Plan,
    outcome: Outcome,
    engine: Engine,
    schedule: Schedule | None = None,
    stages: tuple[Stage, ...] = (),
    notes: tuple[str, ...] = (),
    columns_made: ColumnsMade | None = None,
) -> Solution:
    """An outcome of the engine in the units of the formulation.

    Parameters
    ----------
    formulation : Formulation
    candidates : Candidates
    program : AllocationProgram or Plan
        What was solved.
    outcome : Outcome
    engine : Engine
        For the record of its runs.
    schedule : Schedule, optional
        Of a plan; its allocation is what the schedule runs first.
    stages : tuple of Stage
    notes, columns_made
        As in a `Solution`.
    """
    C, x, planned = program.classes, outcome.x, not isinstance(program, AllocationProgram)
    if planned:
        x = None if schedule is None else schedule.running_at(C.instance.now)
    integral = program.integral if isinstance(program, AllocationProgram) else True
    objective = None
    if outcome.x is not None and outcome.value is not None:
        objective = program.units.objective(outcome.value)
    status, termination = outcome.status, outcome.values.termination
    endless = objective is not None and not np.isfinite(objective)
    if endless and status is Status.OPTIMAL:  # the end of a front, where a job gets nothing
        status, termination = Status.FEASIBLE, Termination.IMPRECISE
    return _solution(
        formulation,
        candidates,
        # A gap is asked of integer programs alone.
        solver=engine.solver_record(outcome.solver, engine.limits.gap if integral else None),
        objective=objective,
        bound=None if outcome.bound is None else program.units.objective(outcome.bound),
        bound_source=outcome.bound_source,
        termination=termination,
        status=status,
        certificate=outcome.certificate,
        allocation=None if x is None else Allocation(C, x, integral),
        schedule=schedule,
        stages=stages,
        figures={} if x is None or planned else by_job(C, formulation.figures(C, x)),
        declined=declined_jobs(program, schedule),
        prices={} if objective is None else _prices(program, outcome),
        duals=outcome.duals,
        time_prices=outcome.time_prices,
        conflicts=outcome.conflicts,
        explanation=outcome.explanation,
        reproducible=is_reproducible(termination, outcome.explanation, engine.by_clock),
        timings=dict(engine.timings),
        notes=notes,
        columns_made=columns_made,
    )


def _some_time_for_all(engine: Engine, solved: SolvedProgram) -> Outcome:
    """The outcome of a program; infeasible if every allocation is proved to leave a job without
    time.
    """
    program, outcome = solved.program, solved.outcome
    nothing_shown = outcome.x is not None or outcome.status is Status.LIMIT
    if (
        not isinstance(program, AllocationProgram)
        or solved.columns_made is not None  # other columns may have time for all
        or not (outcome.certificate.ok and nothing_shown)
        or not time_is_scarce(program, outcome.x)
        or not engine.has_time_left(0.0)
    ):
        return outcome
    return without_time(engine, program, outcome)


def _without_plan(outcome: Outcome) -> Outcome:
    """The outcome without its point, which leaves a job without any time: the objective is
    infinite.
    """
    return replace(
        outcome.without_bound(),
        values=replace(outcome.values, termination=Termination.IMPRECISE),
        x=None,
        value=None,
        certificate=Certificate(True, "none", {}),
        status=Status.LIMIT,
    )


def _prices(program: AllocationProgram | Plan, outcome: Outcome) -> dict[str, float]:
    """Improvement of the objective per unit of each resource: the duals of the capacity rows.

    Programs that know nodes have none: there a GPU is of no use without room on its node.
    """
    if not isinstance(program, AllocationProgram) or program.space is not None:
        return {}
    if outcome.duals is None or outcome.x is None:
        return {}
    worth = program.worth_of_duals(outcome.x, outcome.value)
    duals = zip(program.classes.resources.names, outcome.duals["capacity"], strict=True)
    # Adding 0.0 makes -0.0 a plain 0.
    return {name: float(dual) * worth + 0.0 for name, dual in duals}


def _decided(
    formulation: Formulation,
    C: Classes,
    engine: Engine,
    decision: RuleDecision,
    termination: Termination,
) -> Solution:
    """The solution of a rule: feasibility is certified, and the gap to its bound, if it has one."""
    program, x, value = decision.program, decision.x, decision.value
    if nothing_to_decide(program):
        return _empty(formulation, program)
    bound, source = decision.bound or (None, "none")
    proof = "claimed" if source == "solver" else "rule"
    certificate = certify_point(program.to_linear().arrays, x, program.value(x), proof)
    # Without a bound the decision of the rule is the answer by definition.
    status = Status.OPTIMAL
    gap = gap_of(value, bound)
    if bound is not None and (gap is None or gap > OPTIMALITY):
        status = Status.FEASIBLE
        if value > bound:
            worse = f"the bound {bound:.9g} is worse than the objective of the rule, {value:.9g}"
            certificate = certificate.with_problem(worse)
    part = decision.promise
    if part is not None and bound is not None and value < part * bound * (1.0 - OPTIMALITY):
        broken = f"the objective {value:.9g} is less than {part:.4g} of the bound {bound:.9g}"
        certificate = certificate.with_problem(broken)
    return _solution(
        formulation,
        C.candidates,
        solver=_rule_record(engine),
        objective=value,
        bound=bound,
        bound_source=source,
        termination=termination,
        status=status,
        certificate=certificate,
        allocation=Allocation(program.classes, x, program.integral),
        reproducible=not engine.by_clock,
        figures=by_job(program.classes, formulation.figures(program.classes, x)),
        notes=decision.notes,
        timings=dict(engine.timings),
    )


def _stopped(formulation: Formulation, C: Classes, engine: Engine, outcome: Outcome) -> Solution:
    """No answer: a program that it needs is infeasible, or a limit was reached before it was
    solved.
    """
    termination = outcome.values.termination
    if termination is Termination.INTERRUPTED:
        raise Interrupted(NOTHING_YET)
    if outcome.status is Status.INFEASIBLE:
        nothing = _infeasible(formulation, C, outcome.conflicts)
        record = _rule_record(engine)
        return replace(nothing, solver=record, certificate=outcome.certificate)
    return _solution(
        formulation,
        C.candidates,
        solver=_rule_record(engine),
        termination=termination,
        status=Status.LIMIT,
        certificate=Certificate(True, "none", {}),
        reproducible=termination not in BY_CLOCK,
        timings=dict(engine.timings),
    )


def cut_off(
    formulation: Formulation,
    candidates: Candidates,
    timer: Timer,
    timings: Mapping[str, float],
) -> Solution:
    """The solution without an answer, with the status ``limit``: the time was over before a solver
    could begin. A note says which steps took it, and which limit to try.
    """
    least = 0.01 * timer.spent
    spent = [
        f"{words} took {timings[stage]:.2g} s"
        for stage, words in STAGES.items()
        if timings.get(stage, 0.0) >= least
    ]
    limit = f"the time limit of {timer.seconds:g} s was over before a solver could begin"
    return _solution(
        formulation,
        candidates,
        termination=Termination.TIME_LIMIT,
        status=Status.LIMIT,
        certificate=Certificate(True, "none", {}),
        reproducible=False,
        timings=dict(timings),
        # The time of the rest is not known; for large instances reading takes most of it.
        notes=(f"{limit}: {', '.join(spent)}; try {math.ceil(2.0 * timer.spent)} s or more",),
    )


def _rule_record(engine: Engine) -> SolverRecord:
    if engine.chosen is None:
        return SolverRecord("closed form", "1", seed=engine.limits.seed)
    return engine.solver_record(engine.chosen)


def _infeasible(formulation: Formulation, C: Classes, conflicts: tuple[Conflict, ...]) -> Solution:
    """Infeasible: some requirement cannot be met, whatever the others are."""
    return _solution(
        formulation,
        C.candidates,
        termination=Termination.INFEASIBLE,
        status=Status.INFEASIBLE,
        conflicts=conflicts,
    )


def _empty(formulation: Formulation, program: AllocationProgram | Plan) -> Solution:
    """No job is in the program: an empty total is 0, an empty minimum does not exist; a plan of
    nothing costs what all jobs that it declines are worth.
    """
    C, schedule = program.classes, None
    value: float | None = 0.0
    if isinstance(program, AllocationProgram):
        value = program.utility.empty_value
    else:
        from optsched.solution import Schedule
        from optsched.solution.plan import LinearPlan

        no_job, no_time = EMPTY, np.zeros(0)
        schedule = Schedule(C, no_job, no_job, no_time, no_time)
        if isinstance(program, LinearPlan):
            arrays = program.program.arrays
            value = arrays.objective(np.zeros(arrays.shape[1]))
    objective = None if value is None else program.units.objective(value)
    if objective is not None and np.isnan(objective):
        objective = None
    return _solution(
        formulation,
        C.candidates,
        objective=objective,
        bound=objective,
        allocation=Allocation(C, np.zeros(C.columns), schedule is not None),
        schedule=schedule,
        declined=declined_jobs(program, schedule),
    )


NOTHING_SOLVED: Mapping[str, Any] = {
    "solver": SolverRecord("none", ""),
    "objective": None,
    "bound": None,
    "bound_source": "none",
    "termination": Termination.CLOSED_FORM,
    "status": Status.OPTIMAL,
    "certificate": Certificate(True, "rule", {}),
    "allocation": None,
}
"""Fields of a solution for which nothing had to be solved."""


def _solution(formulation: Formulation, candidates: Candidates, **given: Any) -> Solution:
    """A solution; what is not given is as in `NOTHING_SOLVED`."""
    return Solution(
        candidates=candidates,
        formulation=formulation.name,
        options=formulation.options.to_document(),
        constraints=formulation.constraint_documents(),
        side_constraints=tuple(formulation.constraints),
        sense=formulation.sense,
        **{**NOTHING_SOLVED, **given},
    )
