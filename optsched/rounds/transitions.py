"""From one state to the next: a plan is followed, events happen.

An event (`Event`) is a document; `after_event` says what it does to the `Changes` since a state. A
new kind of event is a class here with ``apply``, in `KINDS`; a method of
`optsched.rounds.scheduler.Scheduler`, which also journals it; and its words in
`optsched.rounds.telling`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sized
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from optsched.arrays import mask_of
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
from optsched.rounds.policy import policy_of
from optsched.rounds.state import Reservation, RoundState

# --- plans ---------------------------------------------------------------------------------


def next_state(plan: Plan, state: RoundState, now: float | None) -> RoundState:
    """The state at ``now`` with the plan carried out; by default at the time of the plan."""
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
    """The state after a plan of it is carried out."""
    stops = state.stops
    table = replace(state.instance.jobs_table, running=plan.running)
    started = among(plan.verdict, STARTS)
    stopped = among(plan.verdict, STOPS)
    running = started | (plan.verdict == Verdict.KEEP)
    service = state.service if plan.order is None else state.service.renewed(plan.order.renewed)
    # Steps count at the rates of this plan from now on, and those before it are counted.
    if plan.isolated is not None:
        service = replace(service, isolated=plan.isolated, counted=table.steps_done)
    if state.policy.progress:
        lost = stops.work_lost * state.service.speed
        if lost.any():
            # Who stops goes on from its last checkpoint.
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


def without_lost(state: RoundState) -> tuple[RoundState, tuple[str, ...]]:
    """The state without what ran on nodes that are down, and the names of the jobs that are hit."""
    lost = Running.of(state.instance).lost
    names = state.instance.jobs_table.names
    return state.stopped(lost), tuple(names[job] for job in np.flatnonzero(lost).tolist())


# --- events ----------------------------------------------------------------------------------

Time = Annotated[float, Field(ge=-LARGEST, le=LARGEST, allow_inf_nan=False)]


@dataclass(frozen=True)
class EventEffect:
    """What an event does, which has not happened yet.

    Attributes
    ----------
    happen : callable
        Lets it happen; gives the changes with it.
    notices : tuple of str
        What the user should know.
    observations : Observations, optional
        What a performance model can learn of it.
    decides : RoundState, optional
        The state after it, where it changes what rounds are decided by (`Decides`).
    check : callable, optional
        Refuses it if it is new: journals of older versions have events that were not refused then,
        and that must be able to happen again.
    """

    happen: Callable[[], Changes]
    notices: tuple[str, ...] = ()
    observations: Observations | None = None
    decides: RoundState | None = None
    check: Callable[[], None] | None = None


class Event(Document):
    """Something that happened at a time (seconds, never before that of the changes so far)."""

    event: str
    now: Time

    def outcome(self, changes: Changes, now: float) -> EventEffect:
        """What it does at a time; raises `InvalidInput` or `UsageError`, and nothing has changed then.

        By default it changes a state that all changes before have happened to.
        """
        state, notices = self.apply(advanced(changes.state, now))
        return EventEffect(partial(changes.then, state), notices)

    def apply(self, state: RoundState) -> tuple[RoundState, tuple[str, ...]]:
        """The state after it and notices, given that of the same time before it; raises as `outcome`."""
        raise NotImplementedError


class Submit(Event):
    """Jobs, as in an instance document; one without an arrival arrives now."""

    event: Literal["submit"] = "submit"
    jobs: Tuple[dict[str, Any]]

    def outcome(self, changes: Changes, now: float) -> EventEffect:
        # An arrival that is stated stays, also one in the future.
        documents = [{"arrival": now, **job} for job in self.jobs]
        changes = changes.ready_for([str(job.get("id")) for job in self.jobs])
        jobs = changes.checked(documents)
        return EventEffect(
            partial(changes.come, jobs, now), check=partial(changes.check_rates, jobs)
        )


class Leave(Event):
    """Jobs that leave: they are complete, or not wanted any more."""

    event: Literal["complete", "cancel"]
    jobs: Tuple[Name]

    def outcome(self, changes: Changes, now: float) -> EventEffect:
        changes = changes.ready_for()
        rows = {name: changes.row(name, f"jobs[{at}]") for at, name in enumerate(self.jobs)}
        _refuse_twice(len(rows), self.jobs)
        return EventEffect(partial(changes.leave, rows, now))


class Stopped(Event):
    """Jobs that stopped running, whatever the plan says, and wait."""

    event: Literal["stopped"] = "stopped"
    jobs: Tuple[Name]

    def apply(self, state: RoundState) -> tuple[RoundState, tuple[str, ...]]:
        rows = [_row(state.instance, name, f"jobs[{at}]") for at, name in enumerate(self.jobs)]
        _refuse_twice(len(set(rows)), self.jobs)
        mask = mask_of(rows, len(state.instance.jobs_table))
        return state.stopped(mask), ()


class Measured(Document):
    """What was measured of a job: steps done so far, or its throughput in steps/s as it runs now."""

    steps: NonNegative | None = None
    throughput: Positive | None = None

    @model_validator(mode="after")
    def _something(self) -> Measured:
        if self.steps is None and self.throughput is None:
            raise ValueError("steps, throughput, or both")
        return self


class Observe(Event):
    """What was measured of jobs."""

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
    """Nodes that change their state. What runs on a node that is down has stopped."""

    event: Literal["nodes"] = "nodes"
    states: dict[str, NodeState]

    def apply(self, state: RoundState) -> tuple[RoundState, tuple[str, ...]]:
        # Only a node that is down stops jobs at once; others they leave with the next plan.
        state, hit = without_lost(replace(state, instance=with_nodes(state.instance, self.states)))
        return state, tuple(f"job {name} stopped: a node that it held is down" for name in hit)


class Reserve(Event):
    """Nodes that take no work for some time. Jobs that cannot be preempted are not started there before."""

    event: Literal["reserve"] = "reserve"
    name: Name
    nodes: Tuple[Name]
    start: Time
    end: Time

    def apply(self, state: RoundState) -> tuple[RoundState, tuple[str, ...]]:
        if not self.end > self.start:
            raise InvalidInput(
                "end",
                show(self.end),
                f"a time after the start ({self.start:g})",
            )
        if any(item.name == self.name for item in state.reservations):
            raise InvalidInput("name", f"{show(self.name)} a second time", "names that differ")
        for place, node in enumerate(self.nodes):
            if state.instance.cluster.find_node(node)[0] < 0:
                raise InvalidInput(f"nodes[{place}]", show(node), "the name of a node")
        item = Reservation(self.nodes, self.start, self.end, self.name)
        return replace(state, reservations=(*state.reservations, item)), ()


class Release(Event):
    """A reservation that ends early, or is given up."""

    event: Literal["release"] = "release"
    name: Name

    def apply(self, state: RoundState) -> tuple[RoundState, tuple[str, ...]]:
        kept = tuple(item for item in state.reservations if item.name != self.name)
        if len(kept) == len(state.reservations):
            raise InvalidInput("name", show(self.name), "the name of a reservation")
        return replace(state, reservations=kept), ()


class Resize(Event):
    """Capacities that grow and shrink: GPUs of pools, their CPUs and memory, resources (`resized`)."""

    event: Literal["resize"] = "resize"
    add: dict[str, Annotated[float, Field(allow_inf_nan=False)]]

    def apply(self, state: RoundState) -> tuple[RoundState, tuple[str, ...]]:
        before = state.instance.jobs_table.running
        instance = resized(state.instance, self.add)
        # `resized` gives the instance another name; for a scheduler it is the same one.
        instance = replace(instance, name=state.instance.name)
        lost = mask_of(
            [job for job in before if job not in instance.jobs_table.running],
            len(instance.jobs_table),
        )
        names = [instance.jobs_table.names[job] for job in np.flatnonzero(lost).tolist()]
        state = replace(
            state,
            # The job table of before, and then `stopped`: so ledger and service know of it too.
            instance=replace(instance, jobs_table=state.instance.jobs_table),
        )
        state, notices = _without_nodes(state.stopped(lost))
        stopped = (f"job {name} stopped: a GPU that it held is gone" for name in names)
        return state, (*stopped, *notices)


class Update(Event):
    """Other values of a job: weight, deadline, steps, whether it can be preempted, what a restart costs."""

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

    def apply(self, state: RoundState) -> tuple[RoundState, tuple[str, ...]]:
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
            # What it was promised was something else.
            standing = service.standing.copy()
            standing[row] = Standing.NONE
            service = replace(service, standing=standing)
        instance = with_columns(state.instance, **columns)
        return replace(state, instance=instance, service=service), ()


# --- events that change what rounds are decided by -------------------------------------------


class Decides(Event):
    """Another policy, or other side constraints, tenants or workloads, from the next round on.

    The receiver must first check that rounds can be planned with the state after it
    (`optsched.rounds.check_policy`). A journal has only events that passed.
    """

    def outcome(self, changes: Changes, now: float) -> EventEffect:
        state = self.changed(advanced(changes.state, now))
        return EventEffect(partial(changes.then, state), decides=state)

    def changed(self, state: RoundState) -> RoundState:
        """The state after it; raises as `outcome`."""
        raise NotImplementedError


class NewPolicy(Decides):
    """Another policy, from the next round on (`RoundState.under`)."""

    event: Literal["policy"] = "policy"
    policy: dict[str, Any]

    def changed(self, state: RoundState) -> RoundState:
        return state.under(policy_of(self.policy))


class NewConstraints(Decides):
    """Other side constraints of the instance; those of the policy stay beside them."""

    event: Literal["constraints"] = "constraints"
    constraints: Tuple[ConstraintDocument]

    def changed(self, state: RoundState) -> RoundState:
        constraints = tuple(dict(item) for item in self.constraints)
        return replace(state, instance=replace(state.instance, constraints=constraints))


class NewTenants(Decides):
    """Tenants that come, change and go (`with_tenants`)."""

    event: Literal["tenants"] = "tenants"
    tenants: Tuple[TenantDocument] = ()
    remove: Tuple[Name] = ()

    def changed(self, state: RoundState) -> RoundState:
        _refuse_nothing(self.tenants, self.remove)
        instance = with_tenants(state.instance, self.tenants, self.remove)
        return replace(state, instance=instance)


class NewWorkloads(Decides):
    """Workloads that come, change and go (`with_workloads`)."""

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
    """What an event does to changes; one that is older counts as one of the time of the last change."""
    with named(f"event {event.event}"):
        return event.outcome(changes, max(event.now, changes.now))


def _without_nodes(state: RoundState) -> tuple[RoundState, tuple[str, ...]]:
    """The state with reservations of nodes that are there alone, and notices of the others."""
    kept = []
    notices = []
    for item in state.reservations:
        there = tuple(node for node in item.nodes if state.instance.cluster.find_node(node)[0] >= 0)
        if len(there) < len(item.nodes):
            gone = listed([node for node in item.nodes if node not in there])
            notices.append(f"reservation {item.name} {'goes on' if there else 'ends'}: {gone} gone")
        kept += [replace(item, nodes=there)] if there else []
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
    """Notices of measured rates that say nothing, and what the others say.

    A rate says something of the configuration in which its job runs now. Nothing is learnt of jobs that do not run, or
    that share their GPUs: there it says as much of the neighbour.

    Parameters
    ----------
    state : RoundState
    row : mapping of str to int
        Row of each job; jobs that came since the state have rows behind its jobs.
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
    own = table.rates[jobs] >= 0
    of_workload = state.instance.workloads.rates
    batch = JobBatch(
        table.workload[jobs],
        np.where(own, table.rates[jobs], of_workload[table.workload[jobs]]),
        own,
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
