"""The plan in which seated rows run: what jobs hold, their verdicts, speeds and reasons.

`standstill` is the plan of a round that cannot be planned.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.candidates import JobRows
from optsched.instance.running import Place, RunningJobs
from optsched.rounds.allocating import Answer
from optsched.rounds.configured import changes
from optsched.rounds.in_place import InPlace
from optsched.rounds.ledger import Ledger
from optsched.rounds.plan import Plan, Verdict
from optsched.rounds.preemption import runs_on
from optsched.rounds.rows import jobs_of, keys_of, members
from optsched.rounds.seating import Seats
from optsched.rounds.state import RoundState
from optsched.rounds.view import View

NAMED = 3
"""Predecessors that a reason names."""
WAITS = (Verdict.HOLD, Verdict.PREEMPT)


def seated_plan(
    state: RoundState,
    view: View,
    answer: Answer,
    ledger: Ledger,
    seats: Seats,
    refused: dict[int, str],
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
    seats : Seats
    refused : mapping of the row of a job to its reason
        Jobs for which no room was found.
    """
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
    known = answer.recorded
    return Plan(
        number=state.number,
        instance=state.instance,
        verdict=verdict,
        running=running,
        speed=_speed(state, view, rows),
        reasons=_reasons(view, answer, verdict, refused, followed, rows),
        ledger=followed,
        warm=answer.warm,
        solution=answer.solution,
        fallback=answer.fallback,
        notices=(*view.notices, *answer.notices),
        recorded=None if known is None else known.allocation,
        started_from=answer.started_from,
        order=answer.order,
        isolated=answer.isolated,
        refused=answer.refused,
    )


def verdicts(on: BoolArray, stays: BoolArray, ran: BoolArray) -> IntArray:
    """`Verdict` of each job, shape (jobs,).

    Parameters
    ----------
    on, ran : BoolArray, shape (jobs,)
        Jobs that run in this round, and in the last one.
    stays : BoolArray, shape (jobs,)
        Jobs that go on as they are, if they run.
    """
    cases = [
        (on & stays & ran, Verdict.KEEP),
        (on & ran, Verdict.MOVE),
        (on, Verdict.START),
        (ran, Verdict.PREEMPT),
    ]
    masks, values = zip(*cases, strict=True)
    verdict: IntArray = np.select(masks, values, Verdict.HOLD).astype(np.int64)
    return verdict


def _holdings(
    state: RoundState, view: View, answer: Answer, seats: Seats, outside: BoolArray
) -> tuple[RunningJobs, BoolArray]:
    """What each running job holds and since when, and the jobs that go on as they are."""
    rows = seats.rows
    jobs = len(view.must)
    before = state.instance.jobs_table.places
    pool = answer.classes.pool[rows.column]
    stays = jobs_of(rows, seats.stays, jobs) | view.must
    unchanged = _unchanged(answer, rows, pool, before, stays)
    running: dict[int, Place] = {}
    setup = InPlace(view, answer.classes, state.ledger)
    alike = setup.same_setup(rows.job, rows.column)
    alike &= setup.same_setup(rows.partner, rows.column) | (rows.partner < 0)
    for row in np.flatnonzero(~unchanged & (answer.classes.gpus[rows.column] > 0)).tolist():
        gpus = seats.gpus[row]
        for job in (int(rows.job[row]), int(rows.partner[row])):
            if job < 0:
                continue
            since = None
            if job in before:
                # It goes on where it is, though another job than before may be beside it.
                stays[job] |= alike[row] and set(before[job][1]) == set(gpus)
            if job in before and stays[job]:
                _, held, since = before[job]
                running[job] = (int(pool[row]), held, state.now if since is None else since)
            else:
                running[job] = (int(pool[row]), gpus, state.now)
    for job in np.flatnonzero(outside).tolist():
        own_pool, held, since = before[job]
        running[job] = (own_pool, held, state.now if since is None else since)
    kept = before.taken(before.among(jobs)[rows.job[unchanged]], rows.job[unchanged])
    return kept.and_also(RunningJobs.of(running)), stays


def _unchanged(
    answer: Answer, rows: JobRows, pool: IntArray, before: RunningJobs, stays: BoolArray
) -> BoolArray:
    """Rows of jobs alone that keep what they hold: most rows, which are copied as arrays."""
    was = before.among(len(stays))[rows.job]
    # Thousands of rows run on from round to round: they are copied as arrays, not one by one.
    same: BoolArray = (rows.partner < 0) & (answer.classes.gpus[rows.column] > 0)
    same &= stays[rows.job] & (was >= 0)
    same[same] = before.dated[was[same]] & (before.pool[was[same]] == pool[same])
    return same


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
    refused: dict[int, str],
    followed: Ledger,
    seated: JobRows,
) -> dict[int, str]:
    """Reasons by job. Of a job with several reasons, the last one counts.

    A job without one here is behind others in the order: `Plan.decision` says so.
    """
    # The order of the following lines is the order of importance, the last first.
    moved = np.flatnonzero(verdict == Verdict.MOVE)
    reasons = {job: why for job, why in refused.items() if verdict[job] in WAITS}
    reasons |= changes(view.configured, followed, moved)
    reasons |= _moves_that_pay(view, answer, seated)
    reasons |= dict(answer.classes.candidates.unplaced())
    reasons |= {job: why for job, why in _not_admitted(view, answer) if verdict[job] in WAITS}
    reasons |= _predecessors(view)
    for job in np.flatnonzero(view.evicted).tolist():
        if verdict[job] in (Verdict.PREEMPT, Verdict.MOVE):
            reasons[job] = view.why_it_left(job)
    for job in np.flatnonzero(view.outside).tolist():
        reasons[job] = "it cannot be preempted, though its nodes take no more work"
    return reasons


def _moves_that_pay(view: View, answer: Answer, seated: JobRows) -> dict[int, str]:
    """Moves of a ranking to faster GPUs."""
    reasons: dict[int, str] = {}
    if not answer.moves:
        return reasons
    for job, column in zip(seated.job.tolist(), seated.column.tolist(), strict=True):
        seconds = answer.moves.get((job, column))
        if seconds is not None:
            pool = view.instance.cluster.pools[int(answer.classes.pool[column])].name
            where = f"on faster GPUs of {pool}"
            reasons[job] = f"it ends {seconds:,.0f} s sooner {where}, the restart counted"
    return reasons


def _not_admitted(view: View, answer: Answer) -> Iterator[tuple[int, str]]:
    """Jobs that the formulation does not admit."""
    solution = answer.solution
    if solution is None or not solution.declined:
        return
    row = {name: job for job, name in enumerate(view.instance.jobs_table.names.written())}
    for name, words in solution.declined:
        yield row[name], f"not admitted: {words}"


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


def standstill(state: RoundState, view: View, why: str) -> Plan:
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
    on = runs_on(ran, view.must, view.evicted, view.instance.jobs_table.steps_left)
    reasons = dict.fromkeys(np.flatnonzero(~on).tolist(), f"no round could be planned: {why}")
    for job in np.flatnonzero(ran & ~on).tolist():
        reasons[job] = view.why_it_left(job) or "it has no steps left"
    return Plan(
        number=state.number,
        instance=state.instance,
        verdict=verdicts(on, on, ran),
        running={job: own for job, own in sorted(held.items()) if on[job]},
        speed=np.where(on, state.service.speed, 0.0),
        reasons=reasons,
        ledger=ledger.running(ledger.runs_whole(on)),
        warm=state.warm,
        solution=None,
        fallback=why,
        notices=view.notices,
        stands=True,
    )
