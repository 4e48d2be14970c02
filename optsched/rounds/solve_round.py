"""`solve_round`: the plan of a round from its state; a pure function."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from optsched.assembly import model_of
from optsched.errors import Interrupted, OptschedError, checks_keywords
from optsched.instance import Instance
from optsched.performance import PerformanceModel
from optsched.registry import load_solver
from optsched.rounds.allocating import Memory, Recorded, allocate
from optsched.rounds.checking import broken_rules
from optsched.rounds.plan import Plan
from optsched.rounds.plan_making import seated_plan, standstill
from optsched.rounds.policy import RoundPolicy
from optsched.rounds.policy_checks import check_names
from optsched.rounds.ranked import rank
from optsched.rounds.round_rows import RoundRows
from optsched.rounds.rows import keys_of
from optsched.rounds.seating import Seating
from optsched.rounds.state import RoundState, StateSource, state_of
from optsched.rounds.view import View
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
        What still holds is taken from it, and what is new put there.

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
    view = View.of(state)
    if recorded is not None and recorded.stands:
        return standstill(state, view, recorded.fallback or "")
    try:
        # The check knows nothing of what made the plan: a bug in it costs a round, not a GPU given
        # twice.
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
    # A ranking keeps its rows from round to round, but orders them anew; an allocation that still
    # holds is followed as it is.
    answer = memory.at(view.instance)
    if state.policy.ranking is not None:
        answer = rank(state, view, model, answer)
        memory.keep(answer)
    elif answer is None:
        answer = allocate(state, view, load, model, memory, recorded)
        memory.keep(answer)
    allocated = time.perf_counter()
    ledger = state.ledger.under(keys_of(answer.classes, answer.rows), answer.rows.fraction)
    seating = _seated(RoundRows(state, view, answer, ledger))
    plan = seated_plan(state, view, answer, ledger, seating.seats, seating.refused)
    return replace(plan, timings={**answer.timings, "seat": time.perf_counter() - allocated})


def _seated(rows: RoundRows) -> Seating:
    """Who runs: rows with a claim as they are due, then others on what is left over (backfill)."""
    view = rows.view
    answer = rows.answer
    policy = rows.state.policy
    queue, most = rows.queue()
    fixed = view.standing(np.flatnonzero(queue.busy & view.must))
    seating = Seating(
        view.instance,
        answer.classes,
        rows.constraints,
        fixed,
        view.must,
        rows.state.reservations,
        preemptions_left=np.inf if most is None else most,
    )
    left = seating.seat(queue, most, answer.strict)
    fill = not answer.leaves_idle if policy.fill is None else policy.fill
    if fill:
        # Jobs without a claim come second, so that they never take what a row with one could use.
        others = rows.backfill(left)
        if len(others.order):
            seating.seat(others)
    return seating
