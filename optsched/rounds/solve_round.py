"""`solve_round`: the plan of a round from its state; a pure function.

A round goes through these stations, each in its file:

1. `View`: the instance as it is in this round (`optsched.rounds.view`).
2. `Answer`: the allocation of the formulation (`optsched.rounds.allocation`), or the order of a
   ranking (`optsched.rounds.ranked`).
3. `RoundRows.queue`: the rows that may run, in their order (`optsched.rounds.round_rows`; the rules
   are in `optsched.rounds.preemption`).
4. `Seating.seat`: rows are selected (`optsched.rounds.selection`) and get GPUs
   (`optsched.rounds.seating`); then jobs are put on the GPUs that stay idle
   (`optsched.rounds.idle`).
5. `seated_plan`: verdicts and reasons; `unplanned_round` where no round can be planned.
6. `broken_rules`: an independent check of the plan (`optsched.rounds.checking`).
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.arrays.values import replace
from optsched.assembly import model_of
from optsched.candidates import JobRows
from optsched.errors import Interrupted, OptschedError, checks_keywords
from optsched.instance import Instance
from optsched.instance.running import RunningJobs
from optsched.performance import PerformanceModel
from optsched.registry import load_solver
from optsched.rounds.allocation import (
    Answer,
    Recorded,
    allocate,
    check_names,
)
from optsched.rounds.checking import broken_rules
from optsched.rounds.idle import IdleGpus
from optsched.rounds.ledger import Ledger, changes
from optsched.rounds.memory import Memory
from optsched.rounds.plan import WAITS, Plan, Verdict, among
from optsched.rounds.policy import RoundPolicy
from optsched.rounds.preemption import runs_unplanned
from optsched.rounds.ranked import rank
from optsched.rounds.round_rows import RoundRows
from optsched.rounds.rows import jobs_of, keys_of, members
from optsched.rounds.seating import Seating, Seats
from optsched.rounds.state import RoundState, StateSource, state_of
from optsched.rounds.view import InPlace, View
from optsched.solvers import Solver

log = logging.getLogger("optsched")


@checks_keywords
def solve_round(
    state: StateSource,
    policy: RoundPolicy | Mapping[str, Any] | None = None,
    *,
    load: Callable[[str], type[Solver]] = load_solver,
    model: Callable[[Instance], PerformanceModel] = model_of,
    recorded: Recorded | None = None,
    memory: Memory | None = None,
) -> Plan:
    """Plan the coming round.

    The same state gives the same plan, unless the clock stopped a solver
    (``solution.reproducible``).

    Parameters
    ----------
    state : RoundState, Instance, mapping, str or Path
        A state; or the instance of a first round, or a file of either
        (`optsched.rounds.state.state_of`).
    policy : RoundPolicy or mapping, optional
        Instead of the policy of the state.
    load : callable
        Solver class by name: the registry's, or that of a process which can be killed
        (`optsched.solvers.isolated.SolverProcess`).
    model : callable
        Makes the performance model of an instance (default: the one that the instance names).
    recorded : Recorded, optional
        Parts of the plan of this round that a journal has; no program is solved then.
    memory : Memory, optional
        Results of the last round, which are used again as far as they still hold, and are updated.

    Returns
    -------
    Plan
        Also if no solver returns an allocation: ``plan.fallback`` is the reason, and the plan
        follows the last allocation. If the round cannot even be compiled, running jobs keep running
        and nothing starts (``plan.stands``).

    Raises
    ------
    UsageError, InvalidInput
        There is no such formulation or ranking, it has no such option, or the state cannot be read.
    """
    started = time.perf_counter()
    state = state_of(state, policy)
    check_names(state.policy)
    memory = Memory() if memory is None else memory
    before = memory.round_before(state)
    view = View.of(state) if before is None else before.view_at(state)
    if recorded is not None and recorded.stands:
        return unplanned_round(state, view, recorded.fallback or "")
    if view.refusal:
        plan = unplanned_round(state, view, view.refusal)
        _log_fallback(state, plan, memory, None)
        return plan
    failure: Exception | None = None
    try:
        answer = _answered(state, view, load, model, recorded, memory)
        again = None if before is None else before.plan_again(state, view, answer)
        plan = _planned(state, view, answer) if again is None else again
        # If a bug makes a plan that breaks a rule, this round falls back. A plan that is used again
        # has passed the check before.
        broken = () if plan is again else broken_rules(view, plan)
        why = f"the plan broke a rule: {broken[0]}" if broken else None
        memory.keep(state, view, answer, plan)
    except Interrupted:
        raise
    except OptschedError as error:
        why = str(error)
    except Exception as error:  # every round needs a plan, even if a model or a program fails
        failure = error
        why = f"planning failed with {type(error).__name__}: {error}"
    if why is not None:
        plan = unplanned_round(state, view, why)
    _log_fallback(state, plan, memory, failure)
    return replace(plan, timings={**plan.timings, "total": time.perf_counter() - started})


NUMBERS = re.compile(r"\d+(?:[.,]\d+)*")
"""Numbers in a cause. Causes that differ only in numbers, such as gaps or times, are one kind."""


def _log_fallback(state: RoundState, plan: Plan, memory: Memory, failure: Exception | None) -> None:
    """Log why a round falls back and what its jobs do instead, if the last round had no such
    cause.
    """
    why, before = plan.fallback, memory.fallback
    memory.fallback = why
    if (before and NUMBERS.sub("#", before)) == (why and NUMBERS.sub("#", why)):
        return
    if why is None:
        log.info("round %d is planned as usual again", state.round)
    elif plan.stands:
        log.error("round %d: %s; running jobs keep running", state.round, why, exc_info=failure)
    elif state.policy.ranking is not None:
        log.warning("round %d: %s", state.round, why)
    else:
        log.warning("round %d: %s; jobs follow the last allocation", state.round, why)


def _answered(
    state: RoundState,
    view: View,
    load: Callable[[str], type[Solver]],
    model: Callable[[Instance], PerformanceModel],
    recorded: Recorded | None,
    memory: Memory,
) -> Answer:
    """The allocation or the ranking that a round follows."""
    made = model(view.instance)
    known = memory.answer(state, view, made)
    compiled = partial(memory.compiled, view.instance, made)
    # A known ranking keeps its rows, but orders them again. A known allocation is used as it is.
    if state.policy.ranking is not None:
        return rank(state, view, compiled, known)
    return allocate(state, view, load, compiled, recorded) if known is None else known


def _planned(state: RoundState, view: View, answer: Answer) -> Plan:
    """The plan of an allocation or a ranking."""
    started = time.perf_counter()
    ledger = state.ledger.under(keys_of(answer.classes, answer.rows), answer.rows.fraction)
    seating = _seated(RoundRows(state, view, answer, ledger))
    plan = seated_plan(state, view, answer, ledger, seating)
    return replace(plan, timings={**answer.timings, "seat": time.perf_counter() - started})


def _seated(rows: RoundRows) -> Seating:
    """Seat rows with a claim in their order, then jobs that gain on idle GPUs."""
    view = rows.view
    answer = rows.answer
    queue, preemptions_left = rows.queue()
    fixed = view.occupied((queue.busy & view.must).nonzero()[0])
    seating = Seating(
        view.instance,
        answer.classes,
        rows.constraints,
        fixed,
        view.must,
        rows.hurried,
        rows.state.reservations,
        preemptions_left=preemptions_left,
        cells=view.cells,
    )
    left = seating.seat(queue, answer.strict)
    if rows.fills:
        # After all rows with a claim: idle GPUs are only those that no such row can use.
        IdleGpus(rows, seating, left).give()
    return seating


# --- the plan in which seated rows run -------------------------------------------------------

NAMED = 3
"""Predecessors that a reason names."""


def seated_plan(
    state: RoundState,
    view: View,
    answer: Answer,
    ledger: Ledger,
    seating: Seating,
) -> Plan:
    """The plan in which seated rows run.

    Parameters
    ----------
    state : RoundState
    view : View
        That of the state.
    answer : Answer
        The allocation or ranking that the round follows.
    ledger : Ledger
        The rows of that allocation; none of them runs yet.
    seating : Seating
    """
    seats = seating.seats
    before = state.ledger
    rows = seats.rows
    jobs = len(view.must)
    ran = view.running.runs | before.jobs_of(before.runs)
    on = members(rows.job, rows.partner, jobs)
    outside = view.must & ~on  # these keep running in no row of the allocation
    running, stays = _holdings(state, view, answer, seats, outside)
    verdict = verdicts(on | outside, stays, ran)
    running_on = before.key[before.runs_whole(outside)]
    followed = ledger.followed(keys_of(answer.classes, rows), running_on)
    return Plan(
        round=state.round,
        instance=state.instance,
        verdict=verdict,
        running=running,
        speed=_speed(state, view, rows),
        reasons=_reasons(view, answer, verdict, seating, followed),
        ledger=followed,
        warm=answer.warm,
        solution=answer.solution,
        fallback=answer.fallback,
        stops=state.stops,
        notices=(*view.notices, *answer.notices),
        started_from=answer.started_from,
        order=answer.order,
        isolated=answer.isolated,
        refused=answer.refused,
        admissions=answer.admissions,
        classes=answer.classes,
        cells=view.cells,
    )


def verdicts(on: BoolArray, stays: BoolArray, ran: BoolArray) -> IntArray:
    """`Verdict` of each job, shape (jobs,).

    Evicted and preempted jobs have the same verdicts: PREEMPT if they stop, MOVE if they restart
    on other GPUs.

    Parameters
    ----------
    on, ran : BoolArray, shape (jobs,)
        Jobs that run in this round, and in the last one.
    stays : BoolArray, shape (jobs,)
        Jobs that keep their GPUs and their configuration, if they run.
    """
    verdict = np.full(len(on), Verdict.HOLD, np.int64)
    verdict[ran] = Verdict.PREEMPT
    verdict[on] = Verdict.START
    verdict[on & ran] = Verdict.MOVE
    verdict[on & ran & stays] = Verdict.KEEP
    return verdict


def _holdings(
    state: RoundState,
    view: View,
    answer: Answer,
    seats: Seats,
    outside: BoolArray,
) -> tuple[RunningJobs, BoolArray]:
    """GPUs of each running job and since when it holds them; and a mask of the jobs that keep their
    GPUs and their configuration.
    """
    rows = seats.rows
    jobs = len(view.must)
    before = state.instance.jobs_table.places
    numbering = view.instance.cluster.numbering
    stays = jobs_of(rows, seats.stays, jobs) | view.must
    # All jobs with GPUs, and the row of each: first the jobs of all rows, then their partners.
    on_gpus = (seats.count > 0).nonzero()[0]
    row = np.concatenate([on_gpus, on_gpus[rows.partner[on_gpus] >= 0]])
    job = rows.job[row]
    job[len(on_gpus) :] = rows.partner[row[len(on_gpus) :]]
    pool = answer.classes.pool[rows.column[row]]
    held = before.among(jobs)[job]
    setup = InPlace(view, answer.classes, state.ledger)
    alike = setup.same_setup(rows.job, rows.column)
    alike &= setup.same_setup(rows.partner, rows.column) | (rows.partner < 0)
    # A job that keeps its GPUs and its setup is not restarted, even if its partner changes.
    seated_again = ((held >= 0) & alike[row] & ~stays[job]).nonzero()[0]
    same = seats.on_same_gpus(row[seated_again], before, held[seated_again], numbering)
    stays[job[seated_again[same]]] = True
    goes_on = (held >= 0) & stays[job]
    since = before.since[held[goes_on]]
    going = before.take(held[goes_on], job[goes_on], np.where(np.isnan(since), state.now, since))
    new = ~goes_on
    starting = RunningJobs(
        job[new],
        pool[new],
        seats.count[row[new]],
        np.full(int(new.sum()), state.now),
        numbers=(numbering, seats.gpus(row[new])),
    )
    rowless = outside.nonzero()[0]
    held = before.among(jobs)[rowless]
    since = before.since[held]
    staying = before.take(held, rowless, np.where(np.isnan(since), state.now, since))
    return going.and_also(starting).and_also(staying), stays


def _speed(state: RoundState, view: View, rows: JobRows) -> FloatArray:
    """steps/s of each running job; a job in no row has no column with a rate and keeps its last
    speed.
    """
    speed = np.where(view.must, state.service.speed, 0.0)
    speed[rows.job] = rows.rate
    shared = rows.partner >= 0
    speed[rows.partner[shared]] = rows.partner_rate[shared]
    return speed


# --- reasons ----------------------------------------------------------------------------------


def _reasons(
    view: View,
    answer: Answer,
    verdict: IntArray,
    seating: Seating,
    followed: Ledger,
) -> dict[int, str]:
    """Reasons by job. For jobs without an entry `Plan.decision` makes the reason when it is asked
    for.
    """
    # Later entries replace earlier ones: the most important reasons come last.
    moved = (verdict == Verdict.MOVE).nonzero()[0]
    waits = among(verdict, WAITS).tolist()
    reasons = {job: why for job, why in seating.refused.items() if waits[job]}
    reasons |= changes(view.configured, followed, moved)
    reasons |= _moves_that_pay(view, answer, verdict, seating)
    reasons |= dict(answer.classes.candidates.unplaced())
    reasons |= _not_admitted(answer, verdict)
    reasons |= _predecessors(view)
    for job in view.evicted.nonzero()[0].tolist():
        if verdict[job] in (Verdict.PREEMPT, Verdict.MOVE):
            reasons[job] = view.why_it_left(job)
    for job in view.outside.nonzero()[0].tolist():
        reasons[job] = "it cannot be preempted, though its nodes take no more work"
    return reasons


def _moves_that_pay(
    view: View, answer: Answer, verdict: IntArray, seating: Seating
) -> dict[int, str]:
    """Reasons of jobs that move to idle GPUs because they end sooner there."""
    saved = {**answer.moves, **seating.saved}
    reasons: dict[int, str] = {}
    if not saved:
        return reasons
    seated = seating.seats.rows
    # A job that starts may have been seated twice in this round: that is no move.
    moved = (verdict[seated.job] == Verdict.MOVE).nonzero()[0]
    for job, column in zip(seated.job[moved].tolist(), seated.column[moved].tolist(), strict=True):
        seconds = saved.get((job, column))
        if seconds is not None:
            pool = view.instance.cluster.pools[int(answer.classes.pool[column])].name
            where = f"on faster GPUs of {pool}"
            reasons[job] = f"it ends {seconds:,.0f} s sooner {where}, the restart counted"
    return reasons


def _not_admitted(answer: Answer, verdict: IntArray) -> dict[int, str]:
    """Reasons of jobs that wait and are not admitted."""
    declined = {} if answer.admissions is None else answer.admissions.declined
    return {job: f"not admitted: {why}" for job, why in declined.items() if verdict[job] in WAITS}


def _predecessors(view: View) -> dict[int, str]:
    """Reasons of jobs whose predecessors are not complete."""
    table = view.instance.jobs_table
    reasons = {}
    for job in view.awaits.nonzero()[0].tolist():
        before = table.after[job]
        names = ", ".join(table.names[other] for other in before[:NAMED])
        reasons[job] = f"waits for {names}" + (" and more" if len(before) > NAMED else "")
    return reasons


# --- no plan ----------------------------------------------------------------------------------


def unplanned_round(state: RoundState, view: View, why: str) -> Plan:
    """The plan if no round can be planned: running jobs keep running, and no job starts.

    Jobs leave nodes that take no more work, unless they cannot be preempted, and jobs without steps
    left stop. The ledger keeps the last allocation. This function uses no code that may have
    failed.

    Parameters
    ----------
    state : RoundState
    view : View
        That of the state.
    why : str
        The plan's ``fallback``.
    """
    ledger = state.ledger
    held = state.instance.jobs_table.running
    ran = view.running.runs | ledger.jobs_of(ledger.runs)
    on = runs_unplanned(ran, view.must, view.evicted, view.instance.jobs_table.steps_left)
    reasons = dict.fromkeys((~on).nonzero()[0].tolist(), f"no round could be planned: {why}")
    for job in (ran & ~on).nonzero()[0].tolist():
        reasons[job] = view.why_it_left(job) or "it has no steps left"
    return Plan(
        round=state.round,
        instance=state.instance,
        verdict=verdicts(on, on, ran),
        running={job: place for job, place in sorted(held.items()) if on[job]},
        speed=np.where(on, state.service.speed, 0.0),
        reasons=reasons,
        ledger=ledger.running(ledger.runs_whole(on)),
        warm=state.warm,
        solution=None,
        fallback=why,
        stops=state.stops,
        notices=view.notices,
        stands=True,
    )
