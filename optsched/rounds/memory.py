"""Results of the last round that can be used again (`Memory`).

Columns and the rows of a ranking are valid until a job, a node or a rate changes; a plan is valid
until a job has a reason to run on other GPUs. Each result is kept with its inputs, so that a change
is found by comparing the inputs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optsched.arrays import BoolArray
from optsched.arrays.values import cached_property, replace
from optsched.assembly import compile, compile_for, constraints_in_force
from optsched.candidates import Absence, Candidates
from optsched.formulation import Formulation
from optsched.instance import Instance
from optsched.instance.tables import ARRAY_FIELDS
from optsched.performance import PerformanceModel, learns
from optsched.registry import load_formulation
from optsched.rounds.allocation import Answer
from optsched.rounds.ledger import Ledger
from optsched.rounds.plan import Plan, Verdict, among
from optsched.rounds.preemption import starved
from optsched.rounds.state import RoundState
from optsched.rounds.view import View

TIMELY = frozenset({"steps_left", "arrival", "isolated_time", "deadline", "soft_deadline"})
"""Job arrays whose values, or whose meaning, change with time even without an event."""
TABLES = ("cluster", "rates", "options", "workloads", "tenants", "colocation", "constraints")
"""Parts of an instance, besides its jobs, that only events change."""
COLUMNS = tuple(sorted({*ARRAY_FIELDS, "names", "after"} - {"steps_done", "isolated_time"}))
"""Parts of its job table that only events change."""
UNCHANGED = (Verdict.KEEP, Verdict.HOLD)


# --- a planned round --------------------------------------------------------------------------


@dataclass(frozen=True)
class PlannedRound:
    """A round with all inputs of its plan."""

    state: RoundState
    view: View
    answer: Answer
    plan: Plan

    def quiet_until(self, state: RoundState) -> bool:
        """Whether the plan was applied, and only time has passed from this round to a state.

        Tables and columns are compared by identity: states share them unless an event changes them.
        """
        before, now = self.state.instance, state.instance
        table, ledger = now.jobs_table, self.plan.ledger
        pairs = ((before, now, TABLES), (before.jobs_table, table, COLUMNS))
        return (
            state.policy is self.state.policy
            and table.running is self.plan.running
            and all(getattr(a, name) is getattr(b, name) for a, b, names in pairs for name in names)
            and all(
                getattr(state.ledger, name) is getattr(ledger, name)
                for name in ("key", "fraction", "runs")
            )
            and self._unaffected_by_time
            and all(item.end <= self.state.now for item in state.reservations)
            and before.cluster.usable_alike(before.now, now.now)
            and not ((table.deadline <= now.now) & ~table.soft_deadline).any()
        )

    @cached_property
    def _unaffected_by_time(self) -> bool:
        """Whether no job started, stopped or moved, and the view does not change with time."""
        table, in_view = self.state.instance.jobs_table, self.view.instance.jobs_table
        return bool(
            among(self.plan.verdict, UNCHANGED).all()
            and not _exempts(self.state)
            # The view removes hard deadlines that have passed.
            and in_view.deadline is table.deadline
            and self.view.instance.cluster is self.state.instance.cluster
        )

    def view_at(self, state: RoundState) -> View:
        """The view of a later state, if only time has passed (`quiet_until`)."""
        constraints = self.view.instance.constraints
        return self.view.later(replace(state.instance, constraints=constraints))

    def plan_again(self, state: RoundState, view: View, answer: Answer) -> Plan | None:
        """The plan of a later state, if only time has passed and the decisions are the same."""
        if self._says_times or not self._decides_alike(state, view, answer):
            return None
        return replace(
            self.plan,
            round=state.round,
            instance=state.instance,
            stops=state.stops,
            ledger=state.ledger,
            order=answer.order,
            timings={},
        )

    def _decides_alike(self, state: RoundState, view: View, answer: Answer) -> bool:
        """Whether the same jobs run on the same GPUs, given that no job started, stopped or moved.

        A job that did not move to idle GPUs before does not move now: with fewer steps left, a move
        saves less. This does not hold if steps were lost.
        """
        table, before = state.instance.jobs_table, self.state.instance.jobs_table
        fell_back = self.plan.fallback is not None or answer.fallback is not None
        lost_steps = bool((table.steps_done < before.steps_done).any())
        if fell_back or lost_steps or answer.rows is not self.answer.rows:
            return False
        if not np.array_equal(_starved(state, view), _starved(self.state, self.view)):
            return False
        if answer.position is None or self.answer.position is None:
            return _all_claims_run(state.ledger)
        # Under a ranking, the decisions depend only on the order and on the running jobs.
        return np.array_equal(answer.position, self.answer.position)

    @cached_property
    def _says_times(self) -> bool:
        """Whether reasons contain times: those of future arrivals, and those of running jobs."""
        absence = self.answer.classes.candidates.absence
        running = self.plan.verdict == Verdict.KEEP
        return bool((absence == Absence.ARRIVES_LATER).any()) or any(
            running[job] for job in self.plan.reasons
        )


def _all_claims_run(ledger: Ledger) -> bool:
    """Whether exactly the rows with a claim run.

    Deficits change each round, and with them the order of the rows. In this case the order does not
    matter: waiting jobs have no claim, and did not fit beside the running jobs.
    """
    return not ledger.carried.any() and np.array_equal(ledger.runs, ledger.fraction > 0)


def _exempts(state: RoundState) -> bool:
    """Whether some jobs have an exempt time, which ends without an event."""
    return state.policy.exempt_time > 0 or bool(state.instance.jobs_table.exempt_time.any())


def _starved(state: RoundState, view: View) -> BoolArray:
    return starved(state.service.waited(state.now), state.patience, view.never_starved)


# --- from round to round ----------------------------------------------------------------------


class Memory:
    """Results of the last round that the next round may use again.

    A round has the same plan with a memory and without. Only a kept allocation may differ: solved
    again, it may be another optimum.

    Parameters
    ----------
    keeps_allocations : bool
        Whether an allocation is kept until something changes that its formulation reads. If not, it
        is solved in every round, so that it depends on the state alone.

    Attributes
    ----------
    fallback : str or None
        Why the last round fell back; None if it did not.
    """

    def __init__(self, *, keeps_allocations: bool = False) -> None:
        self.keeps_allocations = keeps_allocations
        self.fallback: str | None = None
        self._compiled: _Compiled | None = None
        self._last: PlannedRound | None = None

    def round_before(self, state: RoundState) -> PlannedRound | None:
        """The last round, if nothing but time has passed since."""
        last = self._last
        return last if last is not None and last.quiet_until(state) else None

    def compiled(
        self, instance: Instance, model: PerformanceModel, formulation: Formulation | None = None
    ) -> Candidates:
        """The candidates of an instance for a formulation, or for a ranking (None).

        Those of the last round are used again while jobs, rates and nodes are the same
        (`Kinds.of_same_jobs`), unless the model learns.
        """
        before = self._compiled
        ahead = (False, False)
        if formulation is not None:
            ahead = (formulation.plans_ahead, formulation.awaits_nodes)
        if before is not None and before.ahead == ahead and before.holds(instance, model):
            candidates = before.candidates.at(instance)
        elif formulation is None:
            candidates = compile(instance, model)
        else:
            candidates = compile_for(formulation, instance, model)
        # A model that learns changes its rates without any change of a table.
        self._compiled = None if learns(model) else _Compiled(candidates, model, ahead)
        return candidates

    def answer(self, state: RoundState, view: View, model: PerformanceModel) -> Answer | None:
        """The last allocation, or the rows of the last ranking, if its inputs have not changed."""
        last, compiled = self._last, self._compiled
        if last is None or compiled is None or last.answer.fallback is not None:
            return None
        held = self._allocation_holds(last, view) if state.policy.ranking is None else True
        same = (
            held
            and last.state.policy is state.policy
            and not constraints_in_force(view.instance, view.constraints)
            and np.array_equal(view.outside | view.awaits, last.view.outside | last.view.awaits)
            and compiled.holds(view.instance, model)
        )
        if not same:
            return None
        return replace(last.answer, classes=last.answer.classes.at(view.instance), timings={})

    def _allocation_holds(self, last: PlannedRound, view: View) -> bool:
        """Whether an allocation stays valid while no job and no node comes, leaves or changes."""
        policy, table = last.state.policy, view.instance.jobs_table
        before = last.view.instance.jobs_table
        exempt = _exempts(last.state)
        if not self.keeps_allocations or exempt or not table.preemptible.all():
            return False
        formulation = load_formulation(policy.formulation)
        if (formulation.reads - formulation.order_only) & TIMELY:
            return False
        return all(getattr(table, name) is getattr(before, name) for name in ("weight", "tenant"))

    def keep(self, state: RoundState, view: View, answer: Answer, plan: Plan) -> None:
        self._last = PlannedRound(state, view, answer, plan)


@dataclass(frozen=True)
class _Compiled:
    """Candidates, the model of their rates, and whether they include future jobs and nodes."""

    candidates: Candidates
    model: PerformanceModel
    ahead: tuple[bool, bool]

    def holds(self, instance: Instance, model: PerformanceModel) -> bool:
        """Whether compiling an instance would give the same candidates."""
        candidates = self.candidates
        return model is self.model and candidates.kinds.of_same_jobs(
            candidates.instance, instance, self.ahead[0]
        )
