"""The plan of a round that cannot be planned: what runs runs on, and nothing starts."""

from __future__ import annotations

import numpy as np

from optsched.rounds.plan import Held, Plan, Verdict
from optsched.rounds.state import RoundState
from optsched.rounds.view import View


def standstill(state: RoundState, view: View, why: str) -> Plan:
    """What runs runs on where it may: it needs no candidates, no program and no seats.

    Jobs leave nodes that take no more work, unless they cannot be preempted, and jobs that are done stop. The ledger
    goes on with the allocation that was in force.

    Parameters
    ----------
    state : RoundState
    view : View
        That of the state.
    why : str
        The plan's ``fallback``.
    """
    running, table = view.running, view.instance.jobs_table
    ledger, before = state.ledger, state.instance.jobs_table.running
    bare = np.zeros(len(table) + 1, bool)
    bare[ledger.job[ledger.runs]] = bare[ledger.partner[ledger.runs]] = True
    ran = running.runs | bare[:-1]
    fit = ~(running.leaves | running.lost | view.crowded) & (table.steps_left > 0)
    on = ran & (fit | view.must)
    told: dict[int, str] = {
        job: f"no round could be planned: {why}" for job in np.flatnonzero(~on).tolist()
    }
    for job in np.flatnonzero(ran & ~on).tolist():
        told[job] = view.why_it_left(job) or "it has no steps left"
    stay: dict[int, Held] = {job: held for job, held in sorted(before.items()) if on[job]}
    mask = np.append(on, True)
    verdict = np.select([on, ran], [Verdict.KEEP, Verdict.PREEMPT], Verdict.HOLD).astype(np.int64)
    return Plan(
        number=state.number,
        instance=state.instance,
        verdict=verdict,
        running=stay,
        speed=np.where(on, state.service.speed, 0.0),
        reasons=told,
        ledger=ledger.running(ledger.runs & mask[ledger.job] & mask[ledger.partner]),
        warm=state.warm,
        solution=None,
        fallback=why,
        notices=view.notices,
        stands=True,
    )
