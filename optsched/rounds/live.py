"""`LiveState`: the state of a scheduler as events and plans change it, and the last plan.

A `Scheduler` and a simulation drive it; `optsched.rounds.recovery` drives it with the records of a
journal, and so comes to the same state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from optsched.assembly import make_model
from optsched.instance import Instance
from optsched.performance import PerformanceModel, learns, with_learnt
from optsched.registry import load_solver
from optsched.rounds.allocation import Recorded
from optsched.rounds.changes import Changes, advanced
from optsched.rounds.memory import Memory
from optsched.rounds.plan import Plan
from optsched.rounds.solve_round import solve_round
from optsched.rounds.state import RoundState
from optsched.rounds.transitions import Event, EventEffect, after_event, followed
from optsched.solvers import Solver


class LiveState:
    """The state of a scheduler without its journal and its solver's process.

    Recovery applies the events and rounds of a journal to an earlier one, and so makes it again.

    Time passes for all jobs in one step from plan to plan, or to the last event before a snapshot:
    the events in between only say what they change.

    Parameters
    ----------
    state : RoundState
    event_by_event : bool
        Whether time passes in a step for each event, as in journals of older versions: the sums are
        the same, but not to the last bit, and the digests of their plans would differ.
    keeps_allocations : bool
        Whether an allocation is kept while nothing happens (`Memory`).

    Attributes
    ----------
    plan : Plan, optional
        The one that was made last.
    """

    def __init__(
        self,
        state: RoundState,
        *,
        event_by_event: bool = False,
        keeps_allocations: bool = False,
    ) -> None:
        self._memory = Memory(keeps_allocations=keeps_allocations)
        self._changes = Changes(state)
        self._event_by_event = event_by_event
        self.plan: Plan | None = None
        # Gangs without a rate are refused when they come. Older versions took them in.
        self._model = make_model(state.instance, state.instance.performance)
        self._modelled = state.instance
        self._whole: tuple[RoundState, RoundState] | None = None

    @property
    def state(self) -> RoundState:
        """The state after all events; asking for it changes nothing."""
        return self._changes.state

    @state.setter
    def state(self, state: RoundState) -> None:
        self._changes = self._changes.then(state)

    @property
    def now(self) -> float:
        """Time of the last event or plan, seconds."""
        return self._changes.now

    @property
    def round(self) -> int:
        """Number of the coming round."""
        return self._changes.before.round

    def settle(self) -> RoundState:
        """Let time pass up to now for all jobs: a state that is stored goes on from there, and so must this one."""
        self.state = self.state
        self._event_by_event = False
        return self.state

    @property
    def whole(self) -> RoundState:
        """The state with what the performance model has learnt in its instance: all that the next plan depends on."""
        if not learns(self._model):
            return self.state
        if self._whole is None or self._whole[0] is not self.state:
            instance = replace(self.state.instance, performance=self.performance())
            self._whole = self.state, replace(self.state, instance=instance)
        return self._whole[1]

    def after(self, event: Event) -> EventEffect:
        """What an event does; nothing changes before `accept`. Raises `InvalidInput` or `UsageError`."""
        changes = self._changes
        if self._event_by_event and event.now > changes.now:
            changes = Changes(advanced(changes.state, event.now))
        return after_event(changes, event)

    def accept(self, outcome: EventEffect) -> None:
        """Let an event have happened."""
        self._changes = outcome.happen()
        if outcome.observations is not None:
            # What runs is known of the state before: who came since does not run.
            self.model(self._changes.before.instance).observe(outcome.observations)
            self._whole = None

    def at(self, now: float) -> RoundState:
        """The state at a time, which is not before its own."""
        return advanced(self.state, max(now, self.state.now))

    def planned(
        self,
        now: float,
        load: Callable[[str], type[Solver]] = load_solver,
        recorded: Recorded | None = None,
    ) -> tuple[RoundState, Plan]:
        """The state at a time and its plan (see `solve_round`); nothing changes before `follow`."""
        state = self.at(now)
        return state, solve_round(
            state, load=load, model=self.model, recorded=recorded, memory=self._memory
        )

    def follow(self, state: RoundState, plan: Plan) -> None:
        """Let a plan be carried out."""
        # What a model has learnt of a workload goes when the workload does. A plan that is read from
        # a journal asks no model, so that it must be told here of the instance that there is now.
        if learns(self._model):
            self.model(state.instance)
        self.state = followed(state, plan)
        self.plan = plan

    def model(self, instance: Instance) -> PerformanceModel:
        """The performance model of the instance as it is; what it has learnt goes on with it."""
        # A model is bound to workloads, rates and cluster: it is made anew only when one of them
        # changes.
        before = self._modelled
        if not (
            before.workloads is instance.workloads
            and before.rates is instance.rates
            and before.cluster is instance.cluster
        ):
            self._model = make_model(instance, self.performance())
            self._modelled = instance
        return self._model

    def performance(self) -> Mapping[str, Any]:
        """The performance object, with what the model has learnt."""
        return with_learnt(self._model, self._modelled.performance)
