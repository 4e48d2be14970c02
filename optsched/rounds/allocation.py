"""The allocation that a round follows: that of the formulation, or the last one as a fallback.

Before the first round, `check_policy` refuses a policy with which no round can be planned.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray, find_rows, gathered, table_of
from optsched.arrays.values import replace
from optsched.assembly import (
    compile_for,
    constraints_in_force,
    make_formulation,
)
from optsched.candidates import Candidates, Classes, JobRows
from optsched.errors import (
    Interrupted,
    InvalidInput,
    OptschedError,
    SolverCrashed,
    SolverUnavailable,
    UsageError,
)
from optsched.formulation import Formulation, Infeasible, SideConstraint
from optsched.instance import Instance
from optsched.instance.reading import listed
from optsched.program import AllocationProgram
from optsched.program.space import refuse_incompatible_cells
from optsched.registry import load_formulation, load_ranking, load_solver
from optsched.rounds.admission import Admissions, planned, ways
from optsched.rounds.order import Order
from optsched.rounds.policy import RoundPolicy
from optsched.rounds.rows import keys_of, no_rows, rows_of_keys
from optsched.rounds.state import RoundState
from optsched.rounds.view import View
from optsched.solution import Solution, Status
from optsched.solution.plan import LinearPlan
from optsched.solvers import Capability, Limits, Solver
from optsched.solving import Engine, WarmStart
from optsched.solving.without_time import without_any_time

# --- the allocation --------------------------------------------------------------------------

log = logging.getLogger("optsched")

Refused = tuple[tuple[tuple[int, ...], str], ...]
"""Rows of jobs that a formulation cannot include, with the reasons as text."""
UNINTERRUPTED = "uninterrupted"
"""Kind of the side constraint that keeps jobs running that cannot be preempted."""


@dataclass(frozen=True)
class Recorded:
    """Parts of a recorded plan that solving the round again need not reproduce.

    Attributes
    ----------
    fallback : str, optional
        Why the round fell back.
    stands : bool
        Whether nothing was planned, and running jobs kept running.
    key, fraction : arrays, optional
        The allocation of a solver that a time limit stopped, in the form of a `Ledger`.
    refused : Refused
        Jobs that the formulation could not include.
    admissions : Admissions, optional
        The jobs that were admitted.
    """

    fallback: str | None = None
    stands: bool = False
    key: IntArray | None = None
    fraction: FloatArray | None = None
    refused: Refused = ()
    admissions: Admissions | None = None

    @property
    def allocation(self) -> tuple[IntArray, FloatArray] | None:
        """Keys and fractions, if both are recorded."""
        if self.key is None or self.fraction is None:
            return None
        return self.key, self.fraction


@dataclass(frozen=True)
class Answer:
    """The allocation or the ranking that a round follows.

    Attributes
    ----------
    classes : Classes
    rows : JobRows
        The allocation, row by row.
    constraints : tuple of SideConstraint
    leaves_idle : bool
        Whether GPUs that no claim needs stay idle.
    holds_deadlines : bool
        Whether the formulation or a constraint enforces deadlines.
    solution : Solution, optional
        That of the formulation.
    fallback : str, optional
        Why there is no new solution.
    warm : WarmStart, optional
    started_from : str
    timings : mapping
    notices : tuple of str
        Messages to the user.
    position : IntArray, shape (rows,), optional
        Position of each row in the order of a ranking.
    continues : BoolArray, shape (rows,), optional
        Under a ranking, the rows whose jobs can continue (`InPlace.rows_continue`).
    order : Order, optional
        Under a ranking, the order of the jobs.
    moves : mapping of (job, column) to float
        Under a ranking, the seconds that moves of running jobs to faster GPUs save, by the row to
        which the job would move.
    isolated : FloatArray, shape (jobs,), optional
        steps/s at which the steps of each job count as isolated time; 0 for jobs that are not in
        the program.
    refused : Refused
        Jobs that the formulation cannot include: they are not in the program.
    admissions : Admissions, optional
        The jobs that are admitted from this round on.
    """

    classes: Classes
    rows: JobRows
    constraints: tuple[SideConstraint, ...]
    leaves_idle: bool
    holds_deadlines: bool = False
    solution: Solution | None = None
    fallback: str | None = None
    warm: WarmStart | None = None
    started_from: str = ""
    timings: Mapping[str, float] = field(default_factory=dict)
    notices: tuple[str, ...] = ()
    position: IntArray | None = None
    continues: BoolArray | None = None
    order: Order | None = None
    moves: Mapping[tuple[int, int], float] = field(default_factory=dict)
    isolated: FloatArray | None = None
    refused: Refused = ()
    admissions: Admissions | None = None

    @property
    def strict(self) -> bool:
        """Whether all jobs behind a job without room wait, and stop if they run."""
        return self.order is not None and self.order.strict


def formulation_of(
    policy: RoundPolicy,
    instance: Instance,
    given: Sequence[Mapping[str, Any]],
    held: bool = False,
) -> Formulation:
    """The formulation of a policy with its options for rounds and the side constraints in force.

    Parameters
    ----------
    policy : RoundPolicy
    instance : Instance
    given : sequence of mappings
        Side constraints of the policy.
    held : bool
        Whether jobs run that cannot be preempted.

    Raises
    ------
    UsageError, InvalidInput
    """
    constraints = [*constraints_in_force(instance, given)]
    options = {
        **load_formulation(policy.formulation).in_rounds,
        **policy.options,
    }
    chosen = make_formulation(policy.formulation, options, constraints)
    uninterrupted = any(constraint.kind == UNINTERRUPTED for constraint in chosen.constraints)
    if held and chosen.takes_rows and not uninterrupted:
        added = [*constraints, {"kind": UNINTERRUPTED}]
        return make_formulation(policy.formulation, options, added)
    return chosen


def allocate(
    state: RoundState,
    view: View,
    load: Callable[[str], type[Solver]],
    compiled: Callable[[Formulation], Candidates],
    recorded: Recorded | None = None,
) -> Answer:
    """The allocation of the formulation; if there is none, the last one as far as it is still
    possible.

    Parameters
    ----------
    state : RoundState
    view : View
        That of the state.
    load : callable
        Solver class by name.
    compiled : callable
        The candidates of the view's instance for a formulation.
    recorded : Recorded, optional
        Parts of the recorded plan of this round.

    Raises
    ------
    UsageError, InvalidInput
        The formulation cannot be made, or the instance not be compiled.
    """
    started = time.perf_counter()
    held = bool((view.must & ~view.outside).any())
    formulation = formulation_of(state.policy, view.instance, view.constraints, held)
    restarts = state.stops.restarts
    restarts = restarts.moving(view.evicted & np.isfinite(restarts.held))
    if formulation.goes_on and state.warm is not None:
        restarts = restarts._replace(planned=state.warm.stretches)
    formulation = formulation.knowing(restarts)
    candidates = _candidates(view, formulation, compiled)
    seconds = time.perf_counter() - started
    engine = _engine(state, load, formulation)
    standing = state.service.standing
    if recorded is None:
        solution, why, refused, admissions = _solved(standing, formulation, candidates, engine)
    else:
        solution = None
        why = recorded.fallback
        refused = recorded.refused
        admissions = recorded.admissions
    candidates = _without(candidates, refused)
    allocation = None if solution is None else solution.allocation
    classes = allocation.classes if allocation is not None else formulation.classes(candidates)
    answer = Answer(
        classes=classes,
        rows=no_rows(),
        constraints=formulation.constraints,
        leaves_idle=formulation.leaves_idle,
        holds_deadlines=formulation.hard_deadlines
        or any(constraint.hard_deadlines for constraint in formulation.constraints),
        solution=solution,
        started_from=engine.bases.words,
        timings={
            "compile": seconds,
            **engine.timings,
            "allocate": time.perf_counter() - started,
        },
        notices=_notices(refused, admissions, view.instance),
        refused=refused,
        admissions=admissions,
    )
    if allocation is None or solution is None:
        if recorded is None or recorded.allocation is None:
            return _last_allocation(answer, state, why)
        return _with_rows(answer, *recorded.allocation, formulation)
    if solution.reproducible:
        isolated = _isolated(formulation, classes)
        warm = engine.bases.ended
        if formulation.goes_on and solution.schedule is not None:
            warm = WarmStart.of_schedule(solution.schedule)
        return replace(answer, rows=allocation.rows, warm=warm, isolated=isolated)
    # A time limit stopped the solver. A replay reads the rows from the ledger in the journal, which
    # has only the claims: this round uses the same rows.
    claims = allocation.rows.take((allocation.rows.fraction > 0).nonzero()[0])
    return _with_rows(answer, keys_of(classes, claims), claims.fraction, formulation)


def _with_rows(
    answer: Answer, key: IntArray, fraction: FloatArray, formulation: Formulation
) -> Answer:
    """The answer with an allocation in the form of a ledger."""
    rows = rows_of_keys(key, fraction, answer.classes)
    return replace(answer, rows=rows, isolated=_isolated(formulation, answer.classes))


def _last_allocation(answer: Answer, state: RoundState, why: str | None) -> Answer:
    """The fallback: the rows of the last allocation that are still possible, and its basis."""
    ledger = state.ledger
    claimed = (ledger.fraction > 0).nonzero()[0]
    rows = rows_of_keys(ledger.key[claimed], ledger.fraction[claimed], answer.classes)
    return replace(answer, rows=rows, solution=None, fallback=why, warm=state.warm)


def _candidates(
    view: View,
    formulation: Formulation,
    compiled: Callable[[Formulation], Candidates],
) -> Candidates:
    """The candidates of the jobs that are in the program of this round."""
    candidates = compiled(formulation)
    outside = view.outside | view.awaits
    candidates = candidates.without_jobs(outside, "it is not in the program of this round")
    if any(constraint.kind == UNINTERRUPTED for constraint in formulation.constraints):
        candidates = candidates.without_jobs(blocked(view, candidates), BLOCKED)
    return candidates


def _engine(
    state: RoundState, load: Callable[[str], type[Solver]], formulation: Formulation
) -> Engine:
    """An engine with the limits of the policy that starts from the basis of the last round."""
    policy = state.policy
    limits = Limits(
        policy.time_limit,
        policy.work_limit,
        policy.gap,
        threads=policy.threads,
        seed=policy.seed,
    )
    # The last allocation is a better start than the initial points of formulations.
    engine = Engine(load, policy.solver, limits, known_points=False)
    engine.bases.warm = state.warm
    engine.bases.keep = True
    # Of equivalent pools, a vertex gives a job the same one in every round, and excludes others
    # from it. An optimum in the interior of the face gives every job a part of each pool.
    engine.inside = formulation.has_ties
    return engine


def _without(candidates: Candidates, refused: Refused) -> Candidates:
    """Candidates without the refused jobs."""
    for jobs, words in refused:
        mask = np.zeros(len(candidates.absence), bool)
        mask[list(jobs)] = True
        candidates = candidates.without_jobs(mask, words)
    return candidates


def _notices(
    refused: Refused, admissions: Admissions | None, instance: Instance
) -> tuple[str, ...]:
    """Notices about jobs that are refused or not admitted."""
    names = instance.jobs_table.names
    held = [f"{listed([names[job] for job in jobs])} held: {words}" for jobs, words in refused]
    return (*held, *(() if admissions is None else admissions.notices))


def _isolated(formulation: Formulation, classes: Classes) -> FloatArray | None:
    """steps/s in isolation by job; 0 for jobs that are not in the program."""
    by_class = formulation.isolated_rates(classes)
    return None if by_class is None else gathered(by_class, classes.of_job, 0.0)


def _solved(
    standing: IntArray, formulation: Formulation, candidates: Candidates, engine: Engine
) -> tuple[Solution | None, str | None, Refused, Admissions | None]:
    """A certified solution with an allocation, or the reason why there is none; jobs that the
    formulation cannot include; and the jobs that are admitted.

    If the formulation refuses some jobs, it is solved again without them, so that the other jobs
    get an allocation. If no job is left, the round falls back.
    """
    refused: Refused = ()
    admissions: Admissions | None = None
    while True:
        included = _without(candidates, refused)
        if refused and not included.present.any():
            return None, refused[-1][1], refused, admissions
        try:
            for way in ways(standing, formulation, included, engine):
                asking, admissions = way
                found = asking.solve(included, engine)
                if found.status is not Status.INFEASIBLE:
                    break
            else:
                if nowhere := _nowhere(asking, included, refused, engine):
                    refused = (*refused, *nowhere)
                    continue
            solution, why = _checked(formulation, found)
            if solution is not None and admissions is None:
                admissions = planned(standing, formulation, solution)
            return solution, why, refused, admissions
        except Interrupted:
            raise
        except OptschedError as error:
            new = tuple(sorted(set(error.jobs) - _jobs_of(refused)))
            if not new:
                return None, str(error), refused, admissions
            refused = (*refused, (new, str(error)))
        except Exception as error:  # every round needs a plan, even if a program or solver fails
            log.debug("%s failed", formulation.name, exc_info=True)
            why = f"{formulation.name} failed with {type(error).__name__}: {error}"
            return None, why, refused, admissions


def _nowhere(
    formulation: Formulation, candidates: Candidates, refused: Refused, engine: Engine
) -> Refused:
    """Further jobs for which the formulation has no solution, whatever the other jobs get."""
    known = _jobs_of(refused)
    by_words: dict[str, list[int]] = {}
    found = formulation.nowhere(candidates) or _without_time(formulation, candidates, engine)
    for job, words in found.items():
        if job not in known:
            by_words.setdefault(words, []).append(job)
    return tuple((tuple(sorted(jobs)), words) for words, jobs in by_words.items())


def _without_time(
    formulation: Formulation, candidates: Candidates, engine: Engine
) -> Mapping[int, str]:
    """Jobs without any time in every allocation, if this makes the objective infinite."""
    C = formulation.classes(candidates)
    program = formulation.program(C)
    if not isinstance(program, AllocationProgram) or not program.all_must_run:
        return {}
    return dict.fromkeys(C.jobs_among(without_any_time(program, engine)), NO_TIME)


def _jobs_of(refused: Refused) -> set[int]:
    return {job for jobs, _ in refused for job in jobs}


def _checked(formulation: Formulation, solution: Solution) -> tuple[Solution | None, str | None]:
    """A solution if it is certified and has an allocation, else the reason why it is not used."""
    if solution.conflicts or solution.allocation is None:
        why = solution.why_infeasible
        return None, f"{formulation.name} is {solution.status}" + (f": {why}" if why else "")
    if not solution.certificate.ok:
        problems = "; ".join(solution.certificate.problems)
        return None, f"the certificate does not hold: {problems}"
    return solution, None


# --- jobs that get no time in any allocation -------------------------------------------------

NOTHING = 1e-9
"""Part of the capacity of a resource that counts as none."""
NO_TIME = "side constraints and jobs that cannot be preempted leave no time for it"
BLOCKED = "what it needs is held by jobs that cannot be preempted"


def blocked(view: View, candidates: Candidates) -> BoolArray:
    """Mask of the jobs that get no time in any allocation, because jobs that cannot be preempted
    use all of some resource that they need.

    With such a job, a smallest level is 0 and a sum of logarithms is -inf for every allocation. A
    job that can join a host needs only the resources that the host does not hold.
    """
    jobs = view.must
    columns = candidates.columns
    kinds = candidates.kinds
    mask = np.zeros(len(jobs), bool)
    if not jobs.any():
        return mask
    resources = candidates.resources
    left = view.left_beside(jobs, resources)
    gone = resources.renewable & (left <= NOTHING * resources.capacity)
    if not gone.any():
        return mask
    usage = candidates.usage[gone.nonzero()[0]].toarray()
    needs = np.asarray((usage > 0).any(axis=0))
    for side in (columns.kind, columns.partner):
        pairs = (columns.partner >= 0).nonzero()[0]
        host = _hosts(view, candidates, side[pairs], pairs)
        pairs = pairs[host >= 0]
        host = host[host >= 0]
        more = usage[:, pairs] - usage[:, host] > NOTHING * resources.capacity[gone, None]
        needs[pairs] &= more.any(axis=0)
    # The last entry is for partner -1, and is never read.
    able = np.zeros(len(kinds) + 1, bool)
    able[columns.kind[~needs]] = able[columns.partner[~needs]] = True
    return candidates.present & ~able[kinds.of_job] & ~jobs


def _hosts(view: View, candidates: Candidates, kind: IntArray, pairs: IntArray) -> IntArray:
    """For columns of pairs, the column in which a host of this kind runs alone; -1 if there is
    none.
    """
    running = view.running
    columns = candidates.columns
    hosts = view.hosts.nonzero()[0]
    firm = table_of(candidates.kinds.of_job[hosts], running.pool[hosts], running.gpus[hosts])
    alone = (columns.partner < 0).nonzero()[0]
    known = table_of(columns.kind[alone], columns.pool[alone], columns.gpus[alone])
    of_hosts = find_rows(firm, known) >= 0
    wanted = table_of(kind, columns.pool[pairs], columns.gpus[pairs])
    return gathered(alone[of_hosts], find_rows(known[of_hosts], wanted), -1)


# --- checks before the first round -----------------------------------------------------------

AUTO = "auto"
CONTINUOUS = "a program with continuous columns"


def check_names(policy: RoundPolicy) -> None:
    """Refuse an unknown formulation, option or solver; rankings are checked by `RoundPolicy`.

    Raises
    ------
    UsageError, SolverUnavailable
    """
    if policy.ranking is None:
        make_formulation(policy.formulation, policy.options)
        if policy.solver != AUTO:
            load_solver(policy.solver)


def check_policy(
    policy: RoundPolicy,
    instance: Instance,
    load: Callable[[str], type[Solver]] = load_solver,
) -> None:
    """Refuse a policy with which no round of an instance can be planned, with the messages of
    `optsched.solve`.

    Errors that only some of the jobs cause, or only the running jobs, are no reason: plans report
    them, and later rounds have other jobs.

    Parameters
    ----------
    policy : RoundPolicy
    instance : Instance
    load : callable
        Solver class by name.

    Raises
    ------
    UsageError, InvalidInput
        Names, options or values are invalid, or do not apply to this instance.
    SolverUnavailable
        The solver is not installed, or lacks what the formulation needs.
    """
    constraints = constraints_in_force(instance, policy.constraints)
    for constraint in constraints:
        constraint.check(instance)
    cells = [constraint.reserves(instance) for constraint in constraints]
    refuse_incompatible_cells([one for one in cells if one is not None])
    if policy.ranking is not None:
        load_ranking(policy.ranking)(policy.options)
        return
    formulation = formulation_of(policy, instance, policy.constraints)
    formulation.check(instance)
    if not formulation.takes_rows and not all(item.of_placement for item in constraints):
        raise formulation.no_rows
    formulation.reserved_cells(instance)  # whole jobs find them on nodes
    candidates = compile_for(formulation, instance)
    try:
        C = formulation.classes(candidates)
        for constraint in constraints:
            constraint.rows(C)
    except Infeasible:
        return
    except (UsageError, InvalidInput) as error:
        if error.jobs and not np.isin(candidates.present.nonzero()[0], error.jobs).all():
            return
        raise
    if policy.solver != AUTO:
        _check_solver(formulation, C, Engine(load, policy.solver))


def _check_solver(formulation: Formulation, C: Classes, engine: Engine) -> None:
    """Refuse a solver that is not installed, or cannot solve the program. A crash is no reason: the
    round falls back then.
    """
    try:
        engine.load(engine.solver).version()
        if formulation.sense == "rule":  # most rules solve no program
            return
        try:
            program = formulation.program(C)
        except (OptschedError, Infeasible):  # with the jobs of another round there may be a program
            return
        asked = engine.load(engine.solver)
        if isinstance(program, AllocationProgram) and Capability.ALLOCATION in asked.capabilities:
            why = asked.refuses(program) if len(C) else None
            if why is not None:
                text = f"solver {asked.name} cannot take this program: {why}"
                raise SolverUnavailable(f"{text}; auto takes a solver that can")
        elif isinstance(program, AllocationProgram) and (program.conic or not len(C)):
            solver = engine.choose(rows=0, integer=program.integral, conic=program.conic)
            if not (program.integral or program.conic):
                solver.require(Capability.CONTINUOUS, CONTINUOUS)
        elif not len(C):  # the kind of plan depends on the jobs
            return
        elif isinstance(program, AllocationProgram | LinearPlan):
            linear = (
                program.to_linear() if isinstance(program, AllocationProgram) else program.program
            )
            solver = engine.choose(rows=0, integer=linear.arrays.is_integer, conic=False)
            if not linear.arrays.integer.all():
                solver.require(Capability.CONTINUOUS, CONTINUOUS)
        else:
            engine.choose_for_timeline(program.timeline)
    except SolverCrashed:
        return
