"""From one state to the next: time passes, a plan is followed, jobs and nodes come and go. Pure functions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from optsched.arrays import IntArray
from optsched.instance import Instance
from optsched.placement.running import Running
from optsched.rounds.plan import Plan, Verdict
from optsched.rounds.service import Service
from optsched.rounds.state import RoundState


def advanced(state: RoundState, now: float) -> RoundState:
    """The state at a later time: what runs has received that time, and everybody is owed its part of it."""
    seconds = now - state.now
    if seconds <= 0:
        return _counted(state)
    table = state.instance.jobs_table
    policy = state.policy
    service = state.service
    if policy.progress:
        left = table.steps_left
        # A job is never reckoned to be done: only the caller knows. It keeps a round of work.
        least = np.minimum(left, service.speed * state.instance.round)
        steps = np.maximum(left - service.progress(state.now, seconds), least)
        table = replace(
            table, steps_done=np.where(service.speed > 0, table.steps - steps, table.steps_done)
        )
    held = np.zeros(len(table))
    held[table.places.job] = table.places.length
    return _counted(
        replace(
            state,
            instance=replace(state.instance, jobs_table=table, now=now),
            ledger=state.ledger.after(seconds, state.lead()),
            service=service.after(seconds, held),
        )
    )


def _counted(state: RoundState) -> RoundState:
    """The state with the steps that were done since the last plan in the isolated time of the jobs."""
    table = state.instance.jobs_table
    service = state.service
    more = service.isolated_time(table.steps_done)
    if not more.any():
        return state
    return replace(
        state,
        instance=replace(
            state.instance, jobs_table=replace(table, isolated_time=table.isolated_time + more)
        ),
        service=replace(service, counted=table.steps_done),
    )


def followed(state: RoundState, plan: Plan) -> RoundState:
    """The state after a plan of it is carried out."""
    table = replace(state.instance.jobs_table, running=plan.running)
    started = np.isin(plan.verdict, (Verdict.START, Verdict.MOVE))
    running = started | (plan.verdict == Verdict.KEEP)
    service = state.service if plan.order is None else state.service.renewed(plan.order.renewed)
    if plan.isolated is not None:
        service = replace(service, isolated=plan.isolated, counted=table.steps_done)
    return replace(
        state,
        instance=replace(state.instance, jobs_table=table),
        number=state.number + 1,
        ledger=plan.ledger,
        service=service.planned(started, running, plan.speed, table.restart_cost, state.now),
        warm=plan.warm,
    )


def without_lost(state: RoundState) -> tuple[RoundState, tuple[str, ...]]:
    """The state without what ran on nodes that are down, and the names of the jobs that are hit."""
    lost = Running.of(state.instance).lost
    names = state.instance.jobs_table.names
    return state.stopped(lost), tuple(names[job] for job in np.flatnonzero(lost).tolist())


def with_instance(state: RoundState, instance: Instance, rows: IntArray) -> RoundState:
    """The state with other jobs: those at these rows, in that order, then the ones behind them."""
    table = instance.jobs_table
    added = np.arange(len(rows), len(table))
    running = np.zeros(len(table), bool)
    running[table.places.job] = True
    new = Service.new(table.arrival[added], running[added], instance.now)
    return replace(
        state,
        instance=instance,
        ledger=state.ledger.revised(rows, len(added)),
        service=state.service.revised(rows, new),
        warm=None if state.warm is None else state.warm.revised(rows, len(added)),
    )
