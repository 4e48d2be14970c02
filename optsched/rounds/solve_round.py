"""`solve_round`: the plan of a round from its state; a pure function.

A round goes through these stations, each in its file:

1. `View`: the instance as it is in this round (`optsched.rounds.view`).
2. `Answer`: the allocation of the formulation (`optsched.rounds.allocation`), or the order of a
   ranking (`optsched.rounds.ranked`).
3. `RoundRows.queue`: the rows that may run, in their order (`optsched.rounds.round_rows`; the rules
   are in `optsched.rounds.preemption`).
4. `Seating.seat`: rows are selected (`optsched.rounds.selection`) and get GPUs
   (`optsched.rounds.seating`); then others on what is left over (`optsched.rounds.idle`).
5. `seated_plan`: verdicts and reasons; `unplanned_round` where no round can be planned.
6. `broken_rules`: the check of the plan, with nothing of what made it (`optsched.rounds.checking`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray
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
        In the place of the state's own.
    load : callable
        Solver class by name: the registry's, or that of a process which can be killed
        (`optsched.solvers.isolated.SolverProcess`).
    model : callable
        The performance model of an instance (default: the one that it asks for).
    recorded : Recorded, optional
        What this round came to when it was planned before: no program is solved then.
    memory : Memory, optional
        What is the same as in the round before is taken from it, and what is new put there.

    Returns
    -------
    Plan
        Also where no solver answers: ``plan.fallback`` says why, and the plan follows the last
        allocation. Where the round cannot even be compiled, what runs runs on (``plan.stands``).

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
    failure: Exception | None = None
    try:
        answer = _answered(state, view, load, model, recorded, memory)
        again = None if before is None else before.plan_again(state, view, answer)
        plan = _planned(state, view, answer) if again is None else again
        # The check is independent of the code that made the plan. After a bug there, this round falls
        # back, and no GPU is given twice. A plan that is given again has passed it.
        broken = () if plan is again else broken_rules(view, plan.running, plan.setups)
        why = f"the plan broke a rule: {broken[0]}" if broken else None
        memory.keep(state, view, answer, plan)
    except Interrupted:
        raise
    except OptschedError as error:
        why = str(error)
    except Exception as error:  # a plan is due even if a user's model or program fails
        failure = error
        why = f"planning failed with {type(error).__name__}: {error}"
    if why is not None:
        plan = unplanned_round(state, view, why)
    _log_fallback(state, plan, memory, failure)
    return replace(plan, timings={**plan.timings, "total": time.perf_counter() - started})


def _log_fallback(state: RoundState, plan: Plan, memory: Memory, failure: Exception | None) -> None:
    """Log why a round falls back, and what its jobs do instead: once, until the cause is another."""
    why, before = plan.fallback, memory.fallback
    memory.fallback = why
    if why == before:
        return
    if why is None:
        log.info("round %d is planned as usual again", state.round)
    elif plan.stands:
        words = "round %d: %s; what runs runs on"
        log.error(words, state.round, why, exc_info=failure)
    elif state.policy.ranking is not None:
        log.warning("round %d: %s", state.round, why)
    else:
        log.warning("round %d: %s; jobs go by the last allocation", state.round, why)


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
    # A ranking keeps its rows from round to round, but orders them anew; an allocation that still
    # holds is followed as it is.
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
    """Who runs: rows with a claim as they are due, then whoever gains on idle GPUs."""
    view = rows.view
    answer = rows.answer
    queue, preemptions_left = rows.queue()
    fixed = view.occupied(np.flatnonzero(queue.busy & view.must))
    seating = Seating(
        view.instance,
        answer.classes,
        rows.constraints,
        fixed,
        view.must,
        rows.hurried,
        rows.state.reservations,
        preemptions_left=preemptions_left,
    )
    left = seating.seat(queue, answer.strict)
    if rows.fills:
        # These come second, so that they never take what a row with a claim could use.
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
    outside = view.must & ~on  # they run on as they did, in no row of the allocation
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
    )


def verdicts(on: BoolArray, stays: BoolArray, ran: BoolArray) -> IntArray:
    """`Verdict` of each job, shape (jobs,).

    Evicted and preempted jobs have the same verdicts: PREEMPT if they stop, MOVE if they restart
    elsewhere.

    Parameters
    ----------
    on, ran : BoolArray, shape (jobs,)
        Jobs that run in this round, and in the last one.
    stays : BoolArray, shape (jobs,)
        Jobs that go on as they are, if they run.
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
    """What each running job holds and since when, and the jobs that go on as they are."""
    rows = seats.rows
    jobs = len(view.must)
    before = state.instance.jobs_table.places
    numbering = view.instance.cluster.numbering
    stays = jobs_of(rows, seats.stays, jobs) | view.must
    # Each job that gets GPUs, and its row: first the jobs of all rows, then their partners.
    on_gpus = np.flatnonzero(seats.count > 0)
    row = np.concatenate([on_gpus, on_gpus[rows.partner[on_gpus] >= 0]])
    job = rows.job[row]
    job[len(on_gpus) :] = rows.partner[row[len(on_gpus) :]]
    pool = answer.classes.pool[rows.column[row]]
    held = before.among(jobs)[job]
    setup = InPlace(view, answer.classes, state.ledger)
    alike = setup.same_setup(rows.job, rows.column)
    alike &= setup.same_setup(rows.partner, rows.column) | (rows.partner < 0)
    # A job goes on where it is, though another one than before may be beside it.
    seated_again = np.flatnonzero((held >= 0) & alike[row] & ~stays[job])
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
    left = np.flatnonzero(outside)
    own = before.among(jobs)[left]
    since = before.since[own]
    staying = before.take(own, left, np.where(np.isnan(since), state.now, since))
    return going.and_also(starting).and_also(staying), stays


def _speed(state: RoundState, view: View, rows: JobRows) -> FloatArray:
    """steps/s of each running job; one that runs on in no row keeps its last speed."""
    # Jobs outside of all rows have no column with a rate: they keep the speed that they had.
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
    """Reasons by job. Of a job with several reasons, the last one counts.

    A job without one here is behind others in the order: `Plan.decision` says so.
    """
    # The order of the following lines is the order of importance, the last first.
    moved = np.flatnonzero(verdict == Verdict.MOVE)
    waits = among(verdict, WAITS).tolist()
    reasons = {job: why for job, why in seating.refused.items() if waits[job]}
    reasons |= changes(view.configured, followed, moved)
    reasons |= _moves_that_pay(view, answer, verdict, seating)
    reasons |= dict(answer.classes.candidates.unplaced())
    reasons |= _not_admitted(answer, verdict)
    reasons |= _predecessors(view)
    for job in np.flatnonzero(view.evicted).tolist():
        if verdict[job] in (Verdict.PREEMPT, Verdict.MOVE):
            reasons[job] = view.why_it_left(job)
    for job in np.flatnonzero(view.outside).tolist():
        reasons[job] = "it cannot be preempted, though its nodes take no more work"
    return reasons


def _moves_that_pay(
    view: View, answer: Answer, verdict: IntArray, seating: Seating
) -> dict[int, str]:
    """Moves to idle GPUs on which jobs end sooner."""
    saved = {**answer.moves, **seating.saved}
    reasons: dict[int, str] = {}
    if not saved:
        return reasons
    seated = seating.seats.rows
    # A job that starts may have had slower GPUs within this round: it never ran there.
    moved = (verdict[seated.job] == Verdict.MOVE).nonzero()[0]
    for job, column in zip(seated.job[moved].tolist(), seated.column[moved].tolist(), strict=True):
        seconds = saved.get((job, column))
        if seconds is not None:
            pool = view.instance.cluster.pools[int(answer.classes.pool[column])].name
            where = f"on faster GPUs of {pool}"
            reasons[job] = f"it ends {seconds:,.0f} s sooner {where}, the restart counted"
    return reasons


def _not_admitted(answer: Answer, verdict: IntArray) -> dict[int, str]:
    """Jobs that wait, and are not admitted with what they ask for."""
    declined = {} if answer.admissions is None else answer.admissions.declined
    return {job: f"not admitted: {why}" for job, why in declined.items() if verdict[job] in WAITS}


def _predecessors(view: View) -> dict[int, str]:
    """Jobs that wait for others to be done."""
    table = view.instance.jobs_table
    reasons = {}
    for job in np.flatnonzero(view.awaits).tolist():
        before = table.after[job]
        names = ", ".join(table.names[other] for other in before[:NAMED])
        reasons[job] = f"waits for {names}" + (" and more" if len(before) > NAMED else "")
    return reasons


# --- no plan ----------------------------------------------------------------------------------


def unplanned_round(state: RoundState, view: View, why: str) -> Plan:
    """Running jobs run on where they may; no job starts. Nothing can fail here.

    Jobs leave nodes that take no more work, unless they cannot be preempted, and jobs that are done
    stop. The ledger goes on with the allocation that was in force.

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
    reasons = dict.fromkeys(np.flatnonzero(~on).tolist(), f"no round could be planned: {why}")
    for job in np.flatnonzero(ran & ~on).tolist():
        reasons[job] = view.why_it_left(job) or "it has no steps left"
    return Plan(
        round=state.round,
        instance=state.instance,
        verdict=verdicts(on, on, ran),
        running={job: own for job, own in sorted(held.items()) if on[job]},
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
