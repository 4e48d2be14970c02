"""`LiveState`: the state of a scheduler as events and plans change it, and the last plan.

A `Scheduler` and a simulation drive it; `optsched.rounds.recovery` drives it with the records of a
journal, and so comes to the same state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from optsched.assembly import model_of
from optsched.instance import Instance
from optsched.performance import LearningModel, PerformanceModel, with_learnt
from optsched.registry import load_solver
from optsched.rounds.allocation import Memory, Recorded
from optsched.rounds.plan import Plan
from optsched.rounds.solve_round import solve_round
from optsched.rounds.state import RoundState
from optsched.rounds.transitions import Event, Outcome, advanced, after_event, followed
from optsched.solvers import Solver


class LiveState:
    """The state of a scheduler without its journal and its solver's process.

    Recovery applies the events and rounds of a journal to an earlier one, and so makes it again.

    Attributes
    ----------
    state : RoundState
    plan : Plan, optional
        The one that was made last.
    """

    def __init__(self, state: RoundState) -> None:
        self.state = state
        self.plan: Plan | None = None
        self._model = model_of(state.instance)
        self._modelled = state.instance
        self._whole: tuple[RoundState, RoundState] | None = None

    @property
    def whole(self) -> RoundState:
        """The state with what the performance model has learnt in its instance: all that the next plan depends on."""
        if not isinstance(self._model, LearningModel):
            return self.state
        if self._whole is None or self._whole[0] is not self.state:
            instance = replace(self.state.instance, performance=self.performance())
            self._whole = self.state, replace(self.state, instance=instance)
        return self._whole[1]

    def after(self, event: Event) -> Outcome:
        """What an event does; nothing changes before `accept`. Raises `InvalidInput` or `UsageError`."""
        return after_event(self.state, event)

    def accept(self, outcome: Outcome) -> None:
        """Let an event have happened."""
        self.state = outcome.state
        if outcome.observations is not None:
            self.model(self.state.instance).observe(outcome.observations)

    def at(self, now: float) -> RoundState:
        """The state at a time, which is not before its own."""
        return advanced(self.state, max(now, self.state.now))

    def planned(
        self,
        now: float,
        load: Callable[[str], type[Solver]] = load_solver,
        recorded: Recorded | None = None,
        memory: Memory | None = None,
    ) -> tuple[RoundState, Plan]:
        """The state at a time and its plan (see `solve_round`); nothing changes before `follow`."""
        state = self.at(now)
        return state, solve_round(
            state, load=load, model=self.model, recorded=recorded, memory=memory
        )

    def follow(self, state: RoundState, plan: Plan) -> None:
        """Let a plan be carried out."""
        # What a model has learnt of a workload goes when the workload does. A plan that is read from
        # a journal asks no model, so that it must be told here of the instance that there is now.
        if isinstance(self._model, LearningModel):
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
            self._model = model_of(replace(instance, performance=self.performance()))
            self._modelled = instance
        return self._model

    def performance(self) -> Mapping[str, Any]:
        """The performance object, with what the model has learnt."""
        return with_learnt(self._model, self._modelled.performance)
