"""From one state to the next: plans are applied, and events.

An event (`Event`) is a document; `after_event` computes its effect on the `Changes` since a state.
A new kind of event needs a class in this module with ``apply``, in `KINDS`; a method of
`optsched.rounds.scheduler.Scheduler`, which also writes it to the journal; and a text for the log
in `optsched.rounds.telling`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sized
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import Field, model_validator

from optsched.arrays import mask_of
from optsched.arrays.values import replace
from optsched.errors import InvalidArgument, InvalidInput, UsageError
from optsched.instance import Instance, with_columns, with_nodes
from optsched.instance.define import with_tenants, with_workloads
from optsched.instance.documents import (
    LARGEST,
    ConstraintDocument,
    Delay,
    Document,
    Name,
    NodeState,
    NonNegative,
    Positive,
    TenantDocument,
    Tuple,
)
from optsched.instance.reading import listed, named, show, validate
from optsched.instance.resize import resized
from optsched.instance.staying import Running
from optsched.performance import Configurations, JobBatch, Observations
from optsched.rounds.changes import Changes, advanced
from optsched.rounds.ledger import Standing
from optsched.rounds.plan import STARTS, STOPS, Plan, Verdict, among
from optsched.rounds.policy import AS_FOR_SOLVE, policy_of
from optsched.rounds.state import Reservation, RoundState, checked_reservation

NewState = tuple[RoundState, tuple[str, ...]]
"""A state after a change, and notices about it to the user."""

# --- plans ---------------------------------------------------------------------------------


def next_state(plan: Plan, state: RoundState, now: float | None) -> RoundState:
    """The state at ``now`` with the plan applied; by default at the time of the plan."""
    jobs = len(state.instance.jobs_table)
    if (plan.round, plan.now, len(plan.verdict)) != (state.round, state.now, jobs):
        raise InvalidArgument("state", repr(state), f"the state that {plan!r} was made of")
    now = plan.now if now is None else now
    if not plan.now <= now <= LARGEST:
        raise InvalidArgument(
            "now", show(now), f"seconds, from {plan.now:g} (when the plan begins)"
        )
    return advanced(followed(state, plan), now)


def followed(state: RoundState, plan: Plan) -> RoundState:
    """The state after its plan is applied."""
    stops = state.stops
    table = replace(state.instance.jobs_table, running=plan.running)
    started = among(plan.verdict, STARTS)
    stopped = among(plan.verdict, STOPS)
    running = started | (plan.verdict == Verdict.KEEP)
    service = state.service if plan.order is None else state.service.renewed(plan.order.renewed)
    # Steps from now on count at the isolated rates of this plan; earlier steps are counted already.
    if plan.isolated is not None:
        service = replace(service, isolated=plan.isolated, counted=table.steps_done)
    if state.policy.progress:
        lost = stops.work_lost * state.service.speed
        if lost.any():
            # A job that stops continues from its last checkpoint.
            lost = np.where(stopped, lost, 0.0)
            table = replace(table, steps_done=np.maximum(table.steps_done - lost, 0.0))
    if plan.admissions is not None:
        service = replace(service, standing=plan.admissions.standing)
    return replace(
        state,
        instance=replace(state.instance, jobs_table=table),
        round=state.round + 1,
        ledger=plan.ledger,
        service=service.planned(
            started, running, plan.speed, plan.begins, plan.restart_cost, state.now
        ),
        warm=plan.warm,
        graces=stops.graces_after(stopped),
        moves=state.moves_after(stopped),
    )


def without_lost(state: RoundState) -> NewState:
    """The state after the jobs on nodes that are down stopped, and the names of these jobs."""
    lost = Running.of(state.instance).lost
    names = state.instance.jobs_table.names
    return state.stopped(lost), tuple(names[job] for job in lost.nonzero()[0].tolist())


# --- events ----------------------------------------------------------------------------------

Time = Annotated[float, Field(ge=-LARGEST, le=LARGEST, allow_inf_nan=False)]


class EventEffect(NamedTuple):
    """The effect of an event that is checked, but not applied yet.

    Attributes
    ----------
    happen : callable
        Applies the event and returns the new changes.
    notices : tuple of str
        Messages to the user.
    observations : Observations, optional
        Measurements from which a performance model can learn.
    decides : RoundState, optional
        The state after the event, if it changes the rules of rounds (`Decides`).
    check : callable, optional
        A further check for new events. Events in a journal are not checked: older versions accepted
        some that would be refused now.
    """

    happen: Callable[[], Changes]
    notices: tuple[str, ...] = ()
    observations: Observations | None = None
    decides: RoundState | None = None
    check: Callable[[], None] | None = None


class Event(Document):
    """An event at a time (seconds, never before the last change)."""

    event: str
    now: Time

    def outcome(self, changes: Changes, now: float) -> EventEffect:
        """The effect of the event at a time; raises `InvalidInput` or `UsageError` without any
        change.

        By default the event is applied to the state after all earlier changes.
        """
        state, notices = self.apply(advanced(changes.state, now))
        return EventEffect(partial(changes.then, state), notices)

    def apply(self, state: RoundState) -> NewState:
        """The state after the event and notices, given the state before it; raises as `outcome`."""
        raise NotImplementedError


class Submit(Event):
    """Jobs, as in an instance document; one without an arrival arrives now."""

    event: Literal["submit"] = "submit"
    jobs: Tuple[dict[str, Any]]

    def outcome(self, changes: Changes, now: float) -> EventEffect:
        # A stated arrival is kept, also one in the future.
        documents = [{"arrival": now, **job} for job in self.jobs]
        changes = changes.ready_for([str(job.get("id")) for job in self.jobs])
        jobs = changes.checked(documents)
        return EventEffect(
            partial(changes.come, jobs, now), check=partial(changes.check_rates, jobs)
        )


class Leave(Event):
    """Jobs that leave because they are complete or cancelled."""

    event: Literal["complete", "cancel"]
    jobs: Tuple[Name]

    def outcome(self, changes: Changes, now: float) -> EventEffect:
        changes = changes.ready_for()
        rows = {name: changes.row(name, f"jobs[{at}]") for at, name in enumerate(self.jobs)}
        _refuse_twice(len(rows), self.jobs)
        return EventEffect(partial(changes.leave, rows, now))


class Stopped(Event):
    """Jobs that stopped running, against the plan, and wait."""

    event: Literal["stopped"] = "stopped"
    jobs: Tuple[Name]

    def apply(self, state: RoundState) -> NewState:
        rows = [_row(state.instance, name, f"jobs[{at}]") for at, name in enumerate(self.jobs)]
        _refuse_twice(len(set(rows)), self.jobs)
        mask = mask_of(rows, len(state.instance.jobs_table))
        return state.stopped(mask), ()


class Measured(Document):
    """Measurements of a job: steps done so far, or its present throughput in steps/s."""

    steps: NonNegative | None = None
    throughput: Positive | None = None

    @model_validator(mode="after")
    def _something(self) -> Measured:
        if self.steps is None and self.throughput is None:
            raise ValueError("steps, throughput, or both")
        return self


class Observe(Event):
    """Steps or throughputs of running jobs were measured."""

    event: Literal["observe"] = "observe"
    jobs: dict[str, Measured]

    def outcome(self, changes: Changes, now: float) -> EventEffect:
        row = {name: changes.row(name, f"jobs.{name}") for name in self.jobs}
        steps = {}
        rates = {}
        for name, measured in self.jobs.items():
            if measured.steps is not None:
                steps[row[name]] = measured.steps
                if measured.steps > (most := changes.steps(row[name])):
                    expected = f"at most its {most:g} steps"
                    raise InvalidInput(f"jobs.{name}.steps", show(measured.steps), expected)
            if measured.throughput is not None:
                rates[name] = measured.throughput
        notices, found = observations(changes.before, row, rates)
        return EventEffect(partial(changes.measure, steps, now), notices, found)


class NodeStates(Event):
    """Nodes that change their state. Jobs on a node that is down have stopped."""

    event: Literal["nodes"] = "nodes"
    states: dict[str, NodeState]

    def apply(self, state: RoundState) -> NewState:
        # Jobs leave nodes that drain or are reserved with the next plan.
        state, hit = without_lost(replace(state, instance=with_nodes(state.instance, self.states)))
        return state, tuple(f"job {name} stopped: a node that it held is down" for name in hit)


class Reserve(Event):
    """Nodes that take no work for some time. Before that, jobs that could not be stopped in time
    are not started there.
    """

    event: Literal["reserve"] = "reserve"
    name: Name
    nodes: Tuple[Name]
    start: Time
    end: Time

    def apply(self, state: RoundState) -> NewState:
        item = Reservation(self.nodes, self.start, self.end, self.name)
        checked_reservation(item, state.instance.cluster)
        if any(other.name == self.name for other in state.reservations):
            raise InvalidInput("name", f"{show(self.name)} a second time", "names that differ")
        return replace(state, reservations=(*state.reservations, item)), ()


class Release(Event):
    """A reservation that ends early, or is given up."""

    event: Literal["release"] = "release"
    name: Name

    def apply(self, state: RoundState) -> NewState:
        kept = tuple(item for item in state.reservations if item.name != self.name)
        if len(kept) == len(state.reservations):
            raise InvalidInput("name", show(self.name), "the name of a reservation")
        return replace(state, reservations=kept), ()


class Resize(Event):
    """Capacities that grow and shrink: GPUs of pools, their CPUs and memory, resources
    (`resized`).
    """

    event: Literal["resize"] = "resize"
    add: dict[str, Annotated[float, Field(allow_inf_nan=False)]]

    def apply(self, state: RoundState) -> NewState:
        before = state.instance.jobs_table.running
        instance = resized(state.instance, self.add)
        # `resized` changes the name of the instance; a scheduler keeps it.
        instance = replace(instance, name=state.instance.name)
        lost = mask_of(
            [job for job in before if job not in instance.jobs_table.running],
            len(instance.jobs_table),
        )
        names = [instance.jobs_table.names[job] for job in lost.nonzero()[0].tolist()]
        state = replace(
            state,
            # With the old job table: `stopped` then updates the ledger and the service too.
            instance=replace(instance, jobs_table=state.instance.jobs_table),
        )
        state, notices = _without_nodes(state.stopped(lost))
        stopped = (f"job {name} stopped: a GPU that it held is gone" for name in names)
        return state, (*stopped, *notices)


class Update(Event):
    """New values of a job: weight, deadline, steps, preemptible, restart cost, exempt time or
    checkpoint interval.
    """

    event: Literal["update"] = "update"
    job: Name
    weight: Positive | None = None
    deadline: Time | None = None
    steps: Positive | None = None
    preemptible: bool | None = None
    restart_cost: NonNegative | None = None
    exempt_time: Delay | None = None
    checkpoint_interval: Delay | None = None

    fields: ClassVar[tuple[str, ...]] = (
        "weight",
        "deadline",
        "steps",
        "preemptible",
        "restart_cost",
        "exempt_time",
        "checkpoint_interval",
    )

    def apply(self, state: RoundState) -> NewState:
        row = _row(state.instance, self.job, "job")
        table = state.instance.jobs_table
        columns = {}
        for name in self.fields:
            value = getattr(self, name)
            if value is not None:
                # A copy: states before this event keep their table.
                columns[name] = getattr(table, name).copy()
                columns[name][row] = value
        if not columns:
            raise InvalidInput("", "nothing to change", f"one of {', '.join(self.fields)}")
        service = state.service
        if {"deadline", "steps"} & columns.keys():
            # The job was admitted with other requirements.
            standing = service.standing.copy()
            standing[row] = Standing.NONE
            service = replace(service, standing=standing)
        instance = with_columns(state.instance, **columns)
        return replace(state, instance=instance, service=service), ()


# --- events that change the rules of rounds --------------------------------------------------


class Decides(Event):
    """Another policy, or other side constraints, tenants or workloads, from the next round on.

    The receiver must first check that rounds can be planned with the new state
    (`optsched.rounds.check_policy`). A journal has only events that passed this check.
    """

    def outcome(self, changes: Changes, now: float) -> EventEffect:
        state = self.changed(advanced(changes.state, now))
        return EventEffect(partial(changes.then, state), decides=state)

    def changed(self, state: RoundState) -> RoundState:
        """The state after the event; raises as `outcome`."""
        raise NotImplementedError


class NewPolicy(Decides):
    """Later rounds have another policy (`RoundState.under`)."""

    event: Literal["policy"] = "policy"
    policy: dict[str, Any]

    def changed(self, state: RoundState) -> RoundState:
        return state.under(policy_of(self.policy))


class NewConstraints(Decides):
    """Other side constraints of the instance; those of the policy do not change."""

    event: Literal["constraints"] = "constraints"
    constraints: Annotated[Tuple[ConstraintDocument], AS_FOR_SOLVE]

    def changed(self, state: RoundState) -> RoundState:
        constraints = tuple(dict(item) for item in self.constraints)
        return replace(state, instance=replace(state.instance, constraints=constraints))


class NewTenants(Decides):
    """Tenants that are added, changed or removed (`with_tenants`)."""

    event: Literal["tenants"] = "tenants"
    tenants: Tuple[TenantDocument] = ()
    remove: Tuple[Name] = ()

    def changed(self, state: RoundState) -> RoundState:
        _refuse_nothing(self.tenants, self.remove)
        instance = with_tenants(state.instance, self.tenants, self.remove)
        return replace(state, instance=instance)


class NewWorkloads(Decides):
    """Workloads that are added, changed or removed (`with_workloads`)."""

    event: Literal["workloads"] = "workloads"
    workloads: dict[Name, dict[str, Any]] = Field(default_factory=dict)
    remove: Tuple[Name] = ()

    def changed(self, state: RoundState) -> RoundState:
        _refuse_nothing(self.workloads, self.remove)
        instance = with_workloads(state.instance, self.workloads, self.remove)
        return replace(state, instance=instance)


DECIDING: dict[str, type[Event]] = {
    "policy": NewPolicy,
    "constraints": NewConstraints,
    "tenants": NewTenants,
    "workloads": NewWorkloads,
}
KINDS: dict[str, type[Event]] = {
    "submit": Submit,
    "complete": Leave,
    "cancel": Leave,
    "stopped": Stopped,
    "observe": Observe,
    "nodes": NodeStates,
    "reserve": Reserve,
    "release": Release,
    "resize": Resize,
    "update": Update,
    **DECIDING,
}


def read_event(document: Mapping[str, Any]) -> Event:
    """An event from its document; raises `InvalidInput`."""
    kind = document.get("event")
    if not isinstance(kind, str) or kind not in KINDS:
        raise InvalidInput("event", show(kind), f"one of {', '.join(KINDS)}")
    return validate(KINDS[kind], dict(document))


def after_event(changes: Changes, event: Event) -> EventEffect:
    """The effect of an event on changes; an event never takes place before the last change."""
    with named(f"event {event.event}"):
        return event.outcome(changes, max(event.now, changes.now))


def _without_nodes(state: RoundState) -> NewState:
    """The state without nodes that do not exist in its reservations, and notices about them."""
    kept = []
    notices = []
    find_node = state.instance.cluster.find_node
    for item in state.reservations:
        nodes = tuple(node for node in item.nodes if find_node(node)[0] >= 0)
        if len(nodes) < len(item.nodes):
            gone = listed([node for node in item.nodes if node not in nodes])
            notices.append(f"reservation {item.name} {'goes on' if nodes else 'ends'}: {gone} gone")
        kept += [replace(item, nodes=nodes)] if nodes else []
    return (replace(state, reservations=tuple(kept)) if notices else state), tuple(notices)


def _row(instance: Instance, name: str, path: str) -> int:
    try:
        return instance.jobs_table.names.index(name)
    except KeyError:
        raise InvalidInput(path, show(name), "the id of a job that is there") from None


def _refuse_nothing(new: Sized, remove: Sized) -> None:
    if not new and not remove:
        raise InvalidInput("", "nothing to change", "something new, or names to remove")


def _refuse_twice(different: int, names: tuple[str, ...]) -> None:
    if different < len(names):
        raise UsageError("jobs: a job stands twice, expected each once")


def observations(
    state: RoundState, row: Mapping[str, int], rates: Mapping[str, float]
) -> tuple[tuple[str, ...], Observations | None]:
    """Observations for a performance model, and notices about measured rates that are not used.

    A rate belongs to the configuration in which its job runs now. Rates of jobs that do not run are
    not used, nor rates of jobs that share their GPUs: these depend on the partner as well.

    Parameters
    ----------
    state : RoundState
    row : mapping of str to int
        Row of each job; jobs that came after the state have rows behind its jobs.
    rates : mapping of str to float
        steps/s, by the name of the job.
    """
    if not rates:
        return (), None
    table = state.instance.jobs_table
    ledger = state.ledger
    known = len(table)
    rows = []
    measured = []
    notices = []
    for name, rate in rates.items():
        job = row[name]
        if job < known and ledger.partner_now[job] >= 0:
            notices.append(f"job {name} shares its GPUs: its throughput teaches nothing")
        elif job >= known or ledger.row_now[job] < 0:
            notices.append(f"job {name} does not run: its throughput teaches nothing")
        else:
            rows.append(int(ledger.row_now[job]))
            measured.append(rate)
    if not rows:
        return tuple(notices), None
    key = ledger.key[rows]
    jobs = key[:, 0]
    stated = table.rates[jobs] >= 0
    of_workload = state.instance.workloads.rates
    batch = JobBatch(
        table.workload[jobs],
        np.where(stated, table.rates[jobs], of_workload[table.workload[jobs]]),
        stated,
        table.gpus_min[jobs],
    )
    configurations = Configurations(
        pool=key[:, 2],
        gpus=key[:, 3],
        nodes=key[:, 4],
        share=np.ascontiguousarray(key[:, 8]).view(np.float64),
        attributes=np.zeros(len(rows), np.int64),
        attribute_sets=({},),
    )
    which = np.arange(len(rows), dtype=np.int64)
    return tuple(notices), Observations(batch, configurations, which, np.array(measured))
