"""`solve_round`: the plan of a round from its state; a pure function."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray, gathered
from optsched.assembly import model_of
from optsched.candidates import JobRows
from optsched.errors import Interrupted, OptschedError, checks_keywords
from optsched.instance import Instance
from optsched.instance.running import RunningJobs
from optsched.performance import PerformanceModel
from optsched.program import SideRows
from optsched.registry import load_solver
from optsched.rounds.allocating import Answer, Memory, Recorded, allocate, keys_of, repaired
from optsched.rounds.checking import broken_rules
from optsched.rounds.configured import changes
from optsched.rounds.exchange import worth_of
from optsched.rounds.joining import InPlace
from optsched.rounds.ledger import Ledger
from optsched.rounds.opening import StateSource, state_of
from optsched.rounds.plan import Held, Plan, Verdict
from optsched.rounds.policy import RoundPolicy
from optsched.rounds.policy_checks import check_names
from optsched.rounds.ranked import rank
from optsched.rounds.seating import Seating
from optsched.rounds.seats import Seats
from optsched.rounds.selection import (
    DUE,
    HELD,
    STARVED,
    Claims,
    joined,
    lasting,
    leftovers,
    order_due,
    room_at_least,
    rows_alone,
    taken,
    uses_of,
)
from optsched.rounds.standstill import standstill
from optsched.rounds.state import RoundState
from optsched.rounds.unclaimed import any_rows, rows_of
from optsched.rounds.view import View, starved
from optsched.solvers import Solver
from optsched.solving.warm_start import matched

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

    The same state gives the same plan, unless the clock stopped a solver (``solution.reproducible``).

    Parameters
    ----------
    state : RoundState, Instance, mapping, str or Path
        A state; or the instance of a first round, or a file of either (`optsched.rounds.opening.state_of`).
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
        What still holds is taken from it, and what is new put there.

    Returns
    -------
    Plan
        Also where no solver answers: ``plan.fallback`` says why, and the plan follows the last allocation. Where the
        round cannot even be compiled, what runs runs on (``plan.stands``).

    Raises
    ------
    UsageError, InvalidInput
        There is no such formulation or ranking, it has no such option, or the state cannot be read.
    """
    started = time.perf_counter()
    state = state_of(state, policy)
    check_names(state.policy)
    view = View.of(state)
    if recorded is not None and recorded.stands:
        return standstill(state, view, recorded.fallback or "")
    try:
        plan = _planned(state, view, load, model, recorded, Memory() if memory is None else memory)
        broken = broken_rules(view, plan.running, plan.setups)
        why = f"the plan broke a rule: {broken[0]}" if broken else None
    except Interrupted:
        raise
    except OptschedError as error:
        why = str(error)
    except Exception as error:  # a plan is owed even where a model or a program of a user fails in a way of its own
        log.exception("round %d cannot be planned", state.number)
        why = f"planning failed with {type(error).__name__}: {error}"
    if why is not None:
        log.error("round %d: %s", state.number, why)
        plan = standstill(state, view, why)
    if plan.fallback is not None:
        log.warning("round %d falls back: %s", state.number, plan.fallback)
    return replace(plan, timings={**plan.timings, "total": time.perf_counter() - started})


def _planned(
    state: RoundState,
    view: View,
    load: Callable[[str], type[Solver]],
    model: Callable[[Instance], PerformanceModel],
    recorded: Recorded | None,
    memory: Memory,
) -> Plan:
    """The plan of an allocation or a ranking."""
    answer = memory.at(view.instance)
    if state.policy.ranking is not None or answer is None:
        ranked = state.policy.ranking is not None
        answer = (
            rank(state, view, model, answer)
            if ranked
            else allocate(state, view, load, model, memory, recorded)
        )
        memory.answer = replace(answer, timings={}) if answer.fallback is None else None
    allocated = time.perf_counter()
    round = _Round(state, view, answer)
    plan = round.plan(*round.seated())
    return replace(plan, timings={**answer.timings, "seat": time.perf_counter() - allocated})


@dataclass(frozen=True)
class _Round:
    """One round on its way from an allocation to a plan."""

    state: RoundState
    view: View
    answer: Answer

    def seated(self) -> tuple[Ledger, Seats, dict[int, str]]:
        """Who runs: rows with a claim in the order in which they are due, then others on what is left over."""
        state, view, answer = self.state, self.view, self.answer
        C, policy = answer.classes, state.policy
        ledger = state.ledger.under(keys_of(C, answer.rows), answer.rows.fraction)
        claims, most = self._claims(ledger)
        seating = Seating(
            view.instance, C, [constraint.document() for constraint in answer.constraints],
            view.standing(np.flatnonzero(claims.busy & view.must)), view.must, state.reservations, most,
        )  # fmt: skip
        left = seating.run_through(claims, most, answer.strict)
        if not (answer.leaves_idle if policy.fill is None else not policy.fill):
            others = self._leftovers(left)
            if len(others.order):
                seating.run_through(others)
        return ledger, seating.seats, seating.refused

    # --- claims -----------------------------------------------------------------------------------------------------

    def _claims(self, ledger: Ledger) -> tuple[Claims, int | None]:
        """Rows that may run, and how many running jobs may be stopped or moved that could go on."""
        state, view, answer = self.state, self.view, self.answer
        C, policy, table, length = (
            answer.classes,
            state.policy,
            view.instance.jobs_table,
            view.instance.round,
        )
        continues = self._continues(answer.rows)
        mixed = view.must[answer.rows.job] ^ gathered(view.must, answer.rows.partner, False)
        mixed &= continues & (
            answer.rows.partner >= 0
        )  # who cannot be preempted runs on without the other too
        goes_on = _members(answer.rows, continues & ~mixed, len(table))
        goes_on |= _members(answer.rows, mixed, len(table)) & ~view.must
        waited, waits_long = state.service.waited(state.now), starved(state, view)
        together, ranked = view.together, answer.place is not None
        elsewhere = any_rows(C, answer.rows, waits_long & (not ranked), answer.constraints)
        more = joined(
            self._going_on(np.flatnonzero(view.running.runs & ~goes_on & ~view.outside)),
            joined(self._running_pairs(ledger), elsewhere),
        )
        rows = joined(answer.rows, more)
        continues = np.concatenate([continues, self._continues(more)])
        sharing, worth = self._sharing(), None
        parts = (rows.partner < 0) & (sharing[rows.job] >= 0)  # of two that part only one can go on
        guests = ~view.must & gathered(
            view.must, sharing, False
        )  # the one that cannot be preempted
        continues &= (rows.partner >= 0) | ~(together | guests)[rows.job]
        deficit = np.concatenate([ledger.deficit, np.zeros(len(more))]) / length
        cost = (
            np.maximum(table.restart_cost[rows.job], gathered(table.restart_cost, rows.partner, 0))
            / length
        )
        ahead = np.where(continues, policy.hysteresis + cost, 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            due = np.where(rows.fraction > 0, (0.5 - deficit - ahead) / rows.fraction, np.inf)
        waits = waits_long[rows.job] | gathered(waits_long, rows.partner, 0)
        longest = np.maximum(waited[rows.job], gathered(waited, rows.partner, 0))
        place = (
            None
            if answer.place is None
            else np.concatenate([answer.place, np.full(len(more), len(answer.rows))])
        )
        in_place = InPlace(
            view, C, rows, continues, sharing, [own.document() for own in answer.constraints]
        )
        held, group = in_place.firm, np.where(waits, STARVED, DUE)
        gone, part = in_place.unable
        most = None if policy.max_moves is None else max(policy.max_moves - gone, 0)
        if in_place.shared.any():
            extra = np.where(
                (rows.partner < 0) & (rows.fraction > 0), ahead, 0.0
            )  # who joins one alone stops nobody
            when = due + extra / np.where(rows.fraction > 0, rows.fraction, 1.0)
            order = order_due(rows, when, group, np.where(waits, -longest, 0.0))
            order = order if place is None else np.lexsort((place, group)).astype(np.int64)
            held = in_place.held(order, np.inf if most is None else most - part)
        host = np.where(held & ~continues, in_place.anchor, -1)
        group = np.where(held, HELD, group)
        first = np.where(
            group == STARVED, -longest, np.where(rows.partner >= 0, -1.0, 0.0) * (group == HELD)
        )
        order = order_due(rows, due, group, first)
        if place is not None:
            order = np.lexsort((place, first, group)).astype(np.int64)
        busy, urgent, uses = view.awaits | in_place.rowless, group == STARVED, uses_of(C)
        free = room_at_least(in_place.free, rows, uses, order[held[order]])
        if answer.place is None and ((rows.partner >= 0) & (rows.fraction > 0)).any():
            worth = worth_of(
                rows, deficit, np.where(parts, 0.0, ahead), 1.0 + policy.hysteresis + cost
            )
        claims = Claims(
            C,
            rows,
            order,
            continues,
            held,
            urgent,
            busy,
            sharing,
            free,
            uses,
            worth=worth,
            host=host,
        )
        firm = ~table.preemptible[rows.job] | gathered(~table.preemptible, rows.partner, False)
        return lasting(claims, firm, self._side()) if (firm & ~held).any() else claims, most

    def _side(self) -> list[SideRows]:
        """Rows of the side constraints."""
        classes = self.answer.classes
        return [
            rows for own in self.answer.constraints if (rows := rows_of(own, classes)) is not None
        ]

    def _sharing(self) -> IntArray:
        """The job with which each stands in a pair now, -1 for none."""
        ran = self.state.ledger
        pairs = ran.key[ran.runs & (ran.partner >= 0)]
        partner = np.full(len(ran.carried), -1, np.int64)
        partner[pairs[:, 0]], partner[pairs[:, 1]] = pairs[:, 1], pairs[:, 0]
        return partner

    def _leftovers(self, left: Claims) -> Claims:
        """Rows without a claim, of jobs that do not run yet, that fit on what is left over."""
        C, uses = self.answer.classes, left.uses
        fits = C.alone.copy()
        fits[uses.row[uses.share > left.free[uses.resource]]] = False
        hopeful = np.zeros(len(C), bool)
        hopeful[C.class_a[fits]] = True
        others = rows_alone(
            C, np.flatnonzero((C.of_job >= 0) & ~left.busy & np.append(hopeful, False)[C.of_job])
        )
        others = taken(others, np.flatnonzero(fits[others.column]))
        side = self._side() if len(others) else []
        return leftovers(left, others, self._continues(others), self.state.service.executed, side)

    def _running_pairs(self, ledger: Ledger) -> JobRows:
        """Pairs that run now and can go on, though they have no claim."""
        ran = self.state.ledger
        key = ran.key[ran.runs & (ran.partner >= 0)]
        if not len(key):
            return rows_alone(self.answer.classes, np.zeros(0, np.int64))
        key = key[matched(ledger.key.T, key.T) < 0]
        rows = repaired(key, np.zeros(len(key)), self.answer.classes)
        return taken(rows, np.flatnonzero(self._continues(rows)))

    def _going_on(self, jobs: np.ndarray) -> JobRows:
        """Rows in which jobs run on as they are."""
        rows = rows_alone(self.answer.classes, jobs)
        return taken(rows, np.flatnonzero(self._continues(rows)))

    def _continues(self, rows: JobRows) -> BoolArray:
        """Rows whose jobs run so now: on such GPUs, of nodes that take work, with the same share, option, servers."""
        view, C = self.view, self.answer.classes
        column = rows.column
        span = np.maximum(C.configurations.nodes[C.configuration[column]], 1)
        found = np.ones(len(rows), bool)
        running = view.running
        for jobs in (rows.job, rows.partner):
            same = (running.pool[jobs] == C.pool[column]) & (running.gpus[jobs] == C.gpus[column])
            same &= (running.nodes[jobs] <= span) & ~(running.leaves | running.lost | view.crowded)[
                jobs
            ]
            same &= self._alike(jobs, column)
            found &= same | (jobs < 0)
        found &= C.gpus[column] > 0
        held = self.state.instance.jobs_table.running
        for row in np.flatnonzero(found & (rows.partner >= 0)).tolist():
            found[row] = set(held[int(rows.job[row])][1]) == set(held[int(rows.partner[row])][1])
        ran = self.state.ledger
        if ran.runs.any() and (C.gpus[column] == 0).any():
            bare = np.flatnonzero(C.gpus[column] == 0)
            found[bare] = _members_of(ran, ran.runs)[rows.job[bare]]
            found[bare] &= self._alike(rows.job[bare], column[bare])
        return found

    def _alike(self, jobs: IntArray, column: IntArray) -> BoolArray:
        """Jobs (or -1) that run, wherever that is, as these columns say beside their GPUs."""
        if self._plain:
            return np.ones(len(jobs), bool)
        return self.view.configured.like(jobs, self.answer.classes.labels_of(column))

    @cached_property
    def _plain(self) -> bool:
        """Whether the columns, and how jobs run, say no more than GPUs."""
        columns = self.answer.classes.candidates.columns
        more = (columns.option >= 0).any() or columns.workers.any() or columns.servers.any()
        return not (more or (columns.share != 1.0).any() or self.view.configured.setups)

    # --- the plan ---------------------------------------------------------------------------------------------------

    def plan(self, ledger: Ledger, seats: Seats, refused: dict[int, str]) -> Plan:
        """The plan in which these rows run."""
        state, view, answer = self.state, self.view, self.answer
        before, rows = state.instance.jobs_table.places, seats.rows
        ran = view.running.runs | _members_of(state.ledger, state.ledger.runs)
        running: dict[int, Held] = {}
        pool, alike = answer.classes.pool[rows.column], self._alike(rows.job, rows.column)
        alike &= self._alike(rows.partner, rows.column) | (rows.partner < 0)
        stays = _members(rows, seats.stays, len(ran)) | view.must
        was = before.among(len(ran))[rows.job]
        same = (
            (rows.partner < 0)
            & (answer.classes.gpus[rows.column] > 0)
            & stays[rows.job]
            & (was >= 0)
        )
        same[same] = before.dated[was[same]] & (before.pool[was[same]] == pool[same])
        others = np.flatnonzero(~same)
        for place, job, partner in zip(
            others.tolist(), rows.job[others].tolist(), rows.partner[others].tolist(), strict=True
        ):
            for one in (job,) if partner < 0 else (job, partner):
                if seats.gpus[place]:
                    gpus, since = seats.gpus[place], None
                    if (
                        one in before and not stays[one]
                    ):  # on the same GPUs, beside others than before
                        stays[one] = alike[place] and set(before[one][1]) == set(gpus)
                    if one in before and stays[one]:
                        _, gpus, since = before[one]
                    running[one] = (int(pool[place]), gpus, state.now if since is None else since)
        on = _members(rows, np.ones(len(rows), bool), len(ran))
        outside = view.must & ~on
        for job in np.flatnonzero(outside).tolist():
            row, gpus, since = before[job]
            running[job], on[job] = (row, gpus, state.now if since is None else since), True
        verdict = np.select(
            [on & stays & ran, on & ran, on, ran], [Verdict.KEEP, Verdict.MOVE, Verdict.START, Verdict.PREEMPT],
            Verdict.HOLD,
        ).astype(np.int64)  # fmt: skip
        followed = ledger.followed(
            keys_of(answer.classes, rows), state.ledger.key[state.ledger.runs_whole(outside)]
        )
        return Plan(
            number=state.number,
            instance=state.instance,
            verdict=verdict,
            running=before.taken(was[same], rows.job[same]).and_also(RunningJobs.of(running)),
            speed=self._speed(seats),
            reasons=self._reasons(verdict, refused, followed, rows),
            ledger=followed,
            warm=answer.warm,
            solution=answer.solution,
            fallback=answer.fallback,
            notices=(*view.notices, *answer.notices),
            recorded=_recorded(answer.recorded),
            started_from=answer.started_from,
            order=answer.order,
            isolated=answer.isolated,
            refused=answer.refused,
        )

    def _speed(self, seats: Seats) -> FloatArray:
        """Rate of each running job, steps/s; a job without a row in this round keeps the rate of the last round."""
        rows, speed = seats.rows, np.where(self.view.must, self.state.service.speed, 0.0)
        speed[rows.job] = rows.rate
        shared = rows.partner >= 0
        speed[rows.partner[shared]] = rows.partner_rate[shared]
        return speed

    def _reasons(
        self, verdict: IntArray, refused: dict[int, str], followed: Ledger, seated: JobRows
    ) -> dict[int, str]:
        """Reasons by job for waiting, preemption and moves, except that jobs before it in the order have the GPUs."""
        view, answer, table = self.view, self.answer, self.view.instance.jobs_table
        told = {
            job: words
            for job, words in refused.items()
            if verdict[job] in (Verdict.HOLD, Verdict.PREEMPT)
        }
        told |= changes(view.configured, followed, np.flatnonzero(verdict == Verdict.MOVE))
        for job, column in (
            zip(seated.job.tolist(), seated.column.tolist(), strict=True) if answer.moves else ()
        ):
            if (job, column) in answer.moves:
                pool = view.instance.cluster.pools[int(answer.classes.pool[column])].name
                seconds = answer.moves[job, column]
                told[job] = (
                    f"it ends {seconds:,.0f} s sooner on faster GPUs of {pool}, the restart counted"
                )
        for job, words in answer.classes.candidates.unplaced():
            told[job] = words
        solution = self.answer.solution
        if solution is not None and solution.declined:
            row = {name: job for job, name in enumerate(table.names.written())}
            declined = {row[name]: f"not admitted: {words}" for name, words in solution.declined}
            told |= {
                job: words
                for job, words in declined.items()
                if verdict[job] in (Verdict.HOLD, Verdict.PREEMPT)
            }
        for job in np.flatnonzero(view.awaits).tolist():
            names = [table.names[other] for other in table.after[job][:3]]
            told[job] = f"waits for {', '.join(names)}" + (
                " and more" if len(table.after[job]) > 3 else ""
            )
        for job in np.flatnonzero(view.running.lost | view.running.leaves | view.crowded).tolist():
            if verdict[job] in (Verdict.PREEMPT, Verdict.MOVE):
                told[job] = view.why_it_left(job)
        for job in np.flatnonzero(view.outside).tolist():
            told[job] = "it cannot be preempted, though its nodes take no more work"
        return told


def _recorded(known: Recorded | None) -> tuple[IntArray, FloatArray] | None:
    return (
        None
        if known is None or known.key is None or known.fraction is None
        else (known.key, known.fraction)
    )


def _members(rows: JobRows, mask: BoolArray, jobs: int) -> BoolArray:
    """Mask of the jobs of some rows."""
    found = np.zeros(jobs + 1, bool)
    found[rows.job[mask]] = found[rows.partner[mask]] = True
    return found[:-1]


def _members_of(ledger: Ledger, mask: BoolArray) -> BoolArray:
    found = np.zeros(len(ledger.carried) + 1, bool)
    found[ledger.job[mask]] = found[ledger.partner[mask]] = True
    return found[:-1]
