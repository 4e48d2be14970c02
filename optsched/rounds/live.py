"""`LiveState`: the state of a scheduler, which events and plans change, and the last plan.

A `Scheduler` and a simulation apply events and plans to it. `optsched.rounds.recovery` applies the
records of a journal, and so reaches the same state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from optsched.arrays.values import replace
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

    Time advances for all jobs in one step from plan to plan, or to the last event before a
    snapshot. Events in between only record their changes.

    Parameters
    ----------
    state : RoundState
    event_by_event : bool
        Whether time advances with each event, as in journals of older versions. The sums would
        otherwise differ in the last bit, and so would the digests of their plans.
    keeps_allocations : bool
        Whether an allocation is kept while nothing changes (`Memory`).

    Attributes
    ----------
    plan : Plan, optional
        The last plan.
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
        # This raises if a gang has no rate: older versions accepted such jobs.
        self._model = make_model(state.instance, state.instance.performance)
        self._modelled = state.instance
        self._whole: tuple[RoundState, RoundState] | None = None

    @property
    def state(self) -> RoundState:
        """The state after all events."""
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
        """Advance the time of all jobs to now. A stored state continues from there, so this one
        must too.
        """
        self.state = self.state  # the setter makes it the state from which changes are counted
        self._event_by_event = False
        return self.state

    @property
    def whole(self) -> RoundState:
        """The state whose instance includes the learnt parameters of the performance model: all
        that the next plan depends on.
        """
        if not learns(self._model):
            return self.state
        if self._whole is None or self._whole[0] is not self.state:
            instance = replace(self.state.instance, performance=self.performance())
            self._whole = self.state, replace(self.state, instance=instance)
        return self._whole[1]

    def after(self, event: Event) -> EventEffect:
        """The effect of an event, which `accept` applies. Raises `InvalidInput` or `UsageError`."""
        changes = self._changes
        if self._event_by_event and event.now > changes.now:
            changes = Changes(advanced(changes.state, event.now))
        return after_event(changes, event)

    def accept(self, outcome: EventEffect) -> None:
        """Apply the effect of an event."""
        self._changes = outcome.happen()
        if outcome.observations is not None:
            # The earlier state has all running jobs: jobs that came later do not run yet.
            self.model(self._changes.before.instance).observe(outcome.observations)
            self._whole = None

    def at(self, now: float) -> RoundState:
        """The state at a time, or at its own time if that is later."""
        return advanced(self.state, now)

    def planned(
        self,
        now: float,
        load: Callable[[str], type[Solver]] = load_solver,
        recorded: Recorded | None = None,
    ) -> tuple[RoundState, Plan]:
        """The state at a time and its plan (see `solve_round`), which `follow` applies."""
        state = self.at(now)
        return state, solve_round(
            state, load=load, model=self.model, recorded=recorded, memory=self._memory
        )

    def follow(self, state: RoundState, plan: Plan) -> None:
        """Continue from the state after a plan."""
        # A model forgets workloads that were removed. Planning updates the model, but a plan that
        # is read from a journal does not.
        if learns(self._model):
            self.model(state.instance)
        self.state = followed(state, plan)
        self.plan = plan

    def model(self, instance: Instance) -> PerformanceModel:
        """The performance model of an instance, with the parameters that were learnt before."""
        # A model depends on workloads, rates and cluster: it is made again when one of them
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
        """The performance object, with the learnt parameters of the model."""
        return with_learnt(self._model, self._modelled.performance)
