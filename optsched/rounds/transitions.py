"""From one state to the next: time passes, a plan is followed, events happen. Pure functions.

An event (`Event`) is a document; `after_event` gives the state after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from optsched.arrays import BoolArray, IntArray
from optsched.errors import InvalidInput, UsageError
from optsched.instance import Instance
from optsched.instance.documents import (
    LARGEST,
    Document,
    Name,
    NodeState,
    NonNegative,
    Positive,
    Tuple,
)
from optsched.instance.reading import listed, named, show, validate
from optsched.instance.resize import resized
from optsched.instance.revise import (
    jobs_of_documents,
    with_columns,
    with_jobs,
    with_nodes,
)
from optsched.performance import Configurations, JobBatch, Observations
from optsched.placement.occupied import Running
from optsched.rounds.ledger import Service
from optsched.rounds.plan import Plan, Verdict
from optsched.rounds.state import Reservation, RoundState

# --- time and plans --------------------------------------------------------------------------


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
            table,
            steps_done=np.where(service.speed > 0, table.steps - steps, table.steps_done),
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
            state.instance,
            jobs_table=replace(table, isolated_time=table.isolated_time + more),
        ),
        service=replace(service, counted=table.steps_done),
    )


def followed(state: RoundState, plan: Plan) -> RoundState:
    """The state after a plan of it is carried out."""
    table = replace(state.instance.jobs_table, running=plan.running)
    started = np.isin(plan.verdict, (Verdict.START, Verdict.MOVE))
    running = started | (plan.verdict == Verdict.KEEP)
    service = state.service if plan.order is None else state.service.renewed(plan.order.renewed)
    # Steps count at the rates of this plan from now on, and those before it are counted.
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


# --- events ----------------------------------------------------------------------------------

Time = Annotated[float, Field(ge=-LARGEST, le=LARGEST, allow_inf_nan=False)]


@dataclass(frozen=True)
class Outcome:
    """The state after an event, what a performance model can learn of it, and what the user should know."""

    state: RoundState
    notices: tuple[str, ...] = ()
    observations: Observations | None = None


class Event(Document):
    """Something that happened at a time (seconds, never before the state's)."""

    event: str
    now: Time

    def apply(self, state: RoundState) -> Outcome:
        """What it does to a state of the same time; raises `InvalidInput` or `UsageError` and does nothing then."""
        raise NotImplementedError


class Submit(Event):
    """Jobs, as in an instance document; one without an arrival arrives now."""

    event: Literal["submit"] = "submit"
    jobs: Tuple[dict[str, Any]]

    def apply(self, state: RoundState) -> Outcome:
        # An arrival that is stated stays, also one in the future.
        documents = [{"arrival": state.now, **job} for job in self.jobs]
        added = jobs_of_documents(state.instance, documents)
        rows = np.arange(len(state.instance.jobs_table), dtype=np.int64)
        return Outcome(with_instance(state, with_jobs(state.instance, rows, added), rows))


class Leave(Event):
    """Jobs that leave: they are complete, or not wanted any more."""

    event: Literal["complete", "cancel"]
    jobs: Tuple[Name]

    def apply(self, state: RoundState) -> Outcome:
        gone = _mask(state.instance, self.jobs)
        rows = np.flatnonzero(~gone)
        return Outcome(with_instance(state, with_jobs(state.instance, rows), rows))


class Stopped(Event):
    """Jobs that stopped running, whatever the plan says, and wait."""

    event: Literal["stopped"] = "stopped"
    jobs: Tuple[Name]

    def apply(self, state: RoundState) -> Outcome:
        return Outcome(state.stopped(_mask(state.instance, self.jobs)))


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

    def apply(self, state: RoundState) -> Outcome:
        instance = state.instance
        table = instance.jobs_table
        row = {name: _row(instance, name, f"jobs.{name}") for name in self.jobs}
        done = table.steps_done.copy()
        for name, measured in self.jobs.items():
            if measured.steps is None:
                continue
            if measured.steps > table.steps[row[name]]:
                most = f"at most its {table.steps[row[name]]:g} steps"
                raise InvalidInput(f"jobs.{name}.steps", show(measured.steps), most)
            done[row[name]] = measured.steps
        rates = {
            row[name]: measured.throughput
            for name, measured in self.jobs.items()
            if measured.throughput is not None
        }
        found, notices = observations(state, rates)
        return Outcome(
            replace(state, instance=with_columns(instance, steps_done=done)),
            notices,
            found,
        )


class Nodes(Event):
    """Nodes that change their state. What runs on a node that is down has stopped."""

    event: Literal["nodes"] = "nodes"
    states: dict[str, NodeState]

    def apply(self, state: RoundState) -> Outcome:
        # Only a node that is down stops jobs at once; others they leave with the next plan.
        state, hit = without_lost(replace(state, instance=with_nodes(state.instance, self.states)))
        return Outcome(
            state,
            tuple(f"job {name} stopped: a node that it held is down" for name in hit),
        )


class Reserve(Event):
    """Nodes that take no work for some time. Jobs that cannot be preempted are not started there before."""

    event: Literal["reserve"] = "reserve"
    name: Name
    nodes: Tuple[Name]
    start: Time
    end: Time

    def apply(self, state: RoundState) -> Outcome:
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
        return Outcome(replace(state, reservations=(*state.reservations, item)))


class Release(Event):
    """A reservation that ends early, or is given up."""

    event: Literal["release"] = "release"
    name: Name

    def apply(self, state: RoundState) -> Outcome:
        kept = tuple(item for item in state.reservations if item.name != self.name)
        if len(kept) == len(state.reservations):
            raise InvalidInput("name", show(self.name), "the name of a reservation")
        return Outcome(replace(state, reservations=kept))


class Resize(Event):
    """Capacities that grow and shrink: GPUs of pools, their CPUs and memory, resources (`resized`)."""

    event: Literal["resize"] = "resize"
    add: dict[str, Annotated[float, Field(allow_inf_nan=False)]]

    def apply(self, state: RoundState) -> Outcome:
        before = state.instance.jobs_table.running
        instance = resized(state.instance, self.add)
        # `resized` gives the instance another name; for a scheduler it is the same one.
        instance = replace(instance, name=state.instance.name)
        lost = np.zeros(len(instance.jobs_table), bool)
        lost[[job for job in before if job not in instance.jobs_table.running]] = True
        names = [instance.jobs_table.names[job] for job in np.flatnonzero(lost).tolist()]
        state = replace(
            state,
            # The job table of before, and then `stopped`: so ledger and service know of it too.
            instance=replace(instance, jobs_table=state.instance.jobs_table),
        )
        state, notices = _without_nodes(state.stopped(lost))
        return Outcome(
            state,
            (
                *(f"job {name} stopped: a GPU that it held is gone" for name in names),
                *notices,
            ),
        )


class Update(Event):
    """Other values of a job: weight, deadline, steps, whether it can be preempted, what a restart costs."""

    event: Literal["update"] = "update"
    job: Name
    weight: Positive | None = None
    deadline: Time | None = None
    steps: Positive | None = None
    preemptible: bool | None = None
    restart_cost: NonNegative | None = None

    fields: ClassVar[tuple[str, ...]] = (
        "weight",
        "deadline",
        "steps",
        "preemptible",
        "restart_cost",
    )

    def apply(self, state: RoundState) -> Outcome:
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
        return Outcome(replace(state, instance=with_columns(state.instance, **columns)))


KINDS: dict[str, type[Event]] = {
    "submit": Submit,
    "complete": Leave,
    "cancel": Leave,
    "stopped": Stopped,
    "observe": Observe,
    "nodes": Nodes,
    "reserve": Reserve,
    "release": Release,
    "resize": Resize,
    "update": Update,
}


def read_event(document: Mapping[str, Any]) -> Event:
    """An event from its document; raises `InvalidInput`."""
    kind = document.get("event")
    if not isinstance(kind, str) or kind not in KINDS:
        raise InvalidInput("event", show(kind), f"one of {', '.join(KINDS)}")
    return validate(KINDS[kind], dict(document))


def after_event(state: RoundState, event: Event) -> Outcome:
    """The state after an event, which counts as one of the state's time if it is older."""
    with named(f"event {event.event}"):
        return event.apply(advanced(state, max(event.now, state.now)))


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


def _mask(instance: Instance, names: tuple[str, ...]) -> BoolArray:
    mask = np.zeros(len(instance.jobs_table), bool)
    rows: IntArray = np.array(
        [_row(instance, name, f"jobs[{at}]") for at, name in enumerate(names)],
        np.int64,
    )
    if len(np.unique(rows)) < len(rows):
        raise UsageError("jobs: a job stands twice, expected each once")
    mask[rows] = True
    return mask


def observations(
    state: RoundState, rates: Mapping[int, float]
) -> tuple[Observations | None, tuple[str, ...]]:
    """What measured rates (steps/s, by the row of the job) say, and notices of those that say nothing.

    A rate says something of the configuration in which its job runs now. Nothing is learnt of jobs that do not run, or
    that share their GPUs: there it says as much of the neighbour.
    """
    table = state.instance.jobs_table
    ledger = state.ledger
    now = {int(job): row for row, job in enumerate(ledger.job.tolist()) if ledger.runs[row]}
    shares = set(ledger.partner[ledger.runs].tolist()) - {-1}
    rows = []
    notices = []
    for job in rates:
        if job not in now and job not in shares:
            notices.append(f"job {table.names[job]} does not run: its throughput teaches nothing")
        elif job in shares or ledger.partner[now[job]] >= 0:
            notices.append(
                f"job {table.names[job]} shares its GPUs: its throughput teaches nothing"
            )
        else:
            rows.append(now[job])
    if not rows:
        return None, tuple(notices)
    key = ledger.key[rows]
    jobs = key[:, 0]
    own = table.rates[jobs] >= 0
    # The last entry is read for jobs without a workload.
    of_workload = np.array(
        [*(workload.rates for workload in state.instance.workloads), -1],
        np.int64,
    )
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
    rate = np.array([rates[one] for one in jobs.tolist()])
    return Observations(batch, configurations, np.arange(len(rows), dtype=np.int64), rate), tuple(
        notices
    )
