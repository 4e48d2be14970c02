"""`Scheduler` keeps the state of a cluster: events change it, `solve` plans rounds, a journal stores both."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from numbers import Real
from pathlib import Path
from threading import RLock
from typing import Any, Self

from optsched.assembly import Performance, load, model_of
from optsched.display import Displayed, number
from optsched.errors import (
    InvalidArgument,
    InvalidInput,
    JournalError,
    UsageError,
    checks_keywords,
)
from optsched.instance import Instance
from optsched.instance.arguments import checks_arguments
from optsched.instance.documents import LARGEST
from optsched.instance.reading import show, validate
from optsched.registry import load_solver
from optsched.rounds.allocation import check_policy
from optsched.rounds.journal import Journal
from optsched.rounds.journal.disk import ClosedByWith
from optsched.rounds.live import LiveState
from optsched.rounds.plan import Plan
from optsched.rounds.policy import RoundPolicy, policy_document, policy_of
from optsched.rounds.recovery import packed_decisions, plan_record, recover, state_parts
from optsched.rounds.state import RoundState, StateSource, state_of
from optsched.rounds.telling import listening, log_record
from optsched.rounds.transitions import (
    Event,
    Leave,
    NewConstraints,
    NewPolicy,
    NewTenants,
    NewWorkloads,
    NodeStates,
    Observe,
    Release,
    Reserve,
    Resize,
    Stopped,
    Submit,
    Update,
)
from optsched.rounds.watching import Metrics
from optsched.solvers import Solver
from optsched.solvers.isolated import SolverProcess, half_of_memory

log = logging.getLogger("optsched")


class Scheduler(ClosedByWith, Displayed):
    """Plans the rounds of a cluster whose jobs and nodes come and go.

    Several threads may call it: their calls are carried out one after the other.

    Parameters
    ----------
    instance : Instance, RoundState, or a document or file of either
        The cluster, and the jobs that are there already; or the state of a round, from which the
        rounds go on.
    policy : RoundPolicy or mapping, optional
        How rounds are decided, in the place of the state's own.
    clock : callable, optional
        Seconds, such as `time.time`, asked where a call does not say when it is (``now``). By
        default there is none: such a call happens at the time of the call before it, so that the
        same calls give the same plans.
    journal : path, optional
        Folder of a journal, begun here. Every event is in it before it is acknowledged.
        `Scheduler.recover` goes on with one.
    snapshot_every : int
        Rounds between two snapshots in the journal: recovery repeats at most so many rounds.
    keep : int, optional
        Snapshots that are kept, with all that came after the oldest of them; by default all.
    fsync : bool
        Whether the journal must survive a loss of power, and not only the end of the process.
    isolate : bool
        Whether solvers run in their own process, which is killed when the time of a round is
        up, and that takes no more memory than the policy's ``memory_limit``.
    performance : mapping or path, optional
        A performance object in the place of the instance's own.

    Raises
    ------
    UsageError, InvalidInput
        The policy or the instance make no sense.
    SolverUnavailable
        The policy's solver is not installed, or lacks what its formulation needs.
    JournalError
        The journal cannot be begun.
    """

    @checks_keywords
    def __init__(
        self,
        instance: StateSource,
        policy: RoundPolicy | Mapping[str, Any] | None = None,
        *,
        clock: Callable[[], float] | None = None,
        journal: str | Path | None = None,
        snapshot_every: int = 50,
        keep: int | None = None,
        fsync: bool = True,
        isolate: bool = True,
        performance: Performance | None = None,
    ) -> None:
        state = state_of(instance, policy)
        given = load(state.instance, performance)
        model_of(given)  # refuses what no model can be made of
        live = LiveState(replace(state, instance=given))
        self._journal: Journal | None = None
        self._begin(live, clock, snapshot_every, isolate, Metrics())
        try:
            check_policy(state.policy, live.state.instance, self._load)
            if journal is not None:
                self._journal = Journal.create(journal, fsync=fsync, keep=keep)
                self._snapshot(required=True)
        except BaseException:
            self.close()
            raise

    def _begin(
        self,
        live: LiveState,
        clock: Callable[[], float] | None,
        snapshot_every: int,
        isolate: bool,
        metrics: Metrics,
    ) -> None:
        if not isinstance(snapshot_every, int) or snapshot_every < 1:
            raise InvalidArgument(
                "snapshot_every",
                show(snapshot_every),
                "a whole number of at least 1",
            )
        # An event that comes while a round is planned waits for the plan: both are in the journal
        # in the order in which they took effect.
        self._one_at_a_time = RLock()
        self._live = live
        self._clock = clock
        self._every = snapshot_every
        memory = live.state.policy.memory_limit
        self._process = (
            SolverProcess(load_solver, memory=memory or half_of_memory()) if isolate else None
        )
        if self._process is not None:
            self._process.load("highs")
            # The first plan need not wait for the process to start.
            self._process.start()  # while the first jobs come in
        self._snapshot_of = -1
        self._closed = False
        self.metrics = metrics

    @classmethod
    @checks_arguments
    @checks_keywords
    def recover(
        cls,
        journal: str | Path,
        *,
        clock: Callable[[], float] | None = None,
        snapshot_every: int = 50,
        keep: int | None = None,
        fsync: bool = True,
        isolate: bool = True,
    ) -> Self:
        """Go on where a journal ends: with every event that was acknowledged, and the plan that was made last.

        Parameters
        ----------
        journal : str or Path
            Folder of the journal.
        clock, snapshot_every, keep, fsync, isolate
            As of `Scheduler`.

        Returns
        -------
        Scheduler

        Raises
        ------
        JournalError
            There is no journal, another process writes it, it is damaged, or its events do not lead
            to its plans.
        """
        writer = Journal.open(journal, fsync=fsync, keep=keep)
        try:
            live, metrics = recover(journal)
            self = cls.__new__(cls)
            self._begin(live, clock, snapshot_every, isolate, metrics)
            self._journal = writer
        except BaseException:
            writer.close()
            raise
        for found in (writer.dropped, writer.empty):
            if found:
                log.warning("journal %s: %s", journal, found)
        return self

    # --- what there is ------------------------------------------------------------------------

    def _headline(self) -> str:
        return self.state._headline()  # noqa: SLF001 (the state is what there is to show)

    def _facts(self) -> Mapping[str, str]:
        plan = self.plan
        last = "" if plan is None else f"round {plan.round}, until {number(plan.until)} s"
        return {"clock": f"{number(self._live.now)} s", "last plan": last}

    @property
    def state(self) -> RoundState:
        """All that the next plan depends on; what the performance model has learnt is in its instance."""
        with self._one_at_a_time:
            return self._live.whole

    @property
    def plan(self) -> Plan | None:
        """The plan that was made last."""
        return self._live.plan

    @property
    def instance(self) -> Instance:
        """The cluster with its jobs as they are now."""
        return self.state.instance

    # --- events -------------------------------------------------------------------------------

    def submit(
        self,
        jobs: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        now: float | None = None,
    ) -> None:
        """Take in a job, or several.

        Parameters
        ----------
        jobs : mapping or sequence of mappings
            As in an instance document; without ``arrival`` they arrive now.
        now : float, optional
            Seconds on the scheduler's clock; by default the time of the call before.

        Raises
        ------
        InvalidInput
            A field is wrong; nothing has changed.
        """
        documents = [jobs] if isinstance(jobs, Mapping) else jobs
        if not _is_list(documents):
            raise InvalidInput("jobs", show(jobs), "a job, or a list of jobs")
        self._take(
            Submit,
            now,
            jobs=[dict(job) if isinstance(job, Mapping) else job for job in documents],
        )

    def cancel(self, *jobs: str | Sequence[str], now: float | None = None) -> None:
        """Drop jobs.

        Parameters
        ----------
        *jobs : str or sequence of str
            Ids, one by one or as a list.
        now : float, optional
            Seconds, as in every event.
        """
        self._take(Leave, now, event="cancel", jobs=_ids(jobs))

    def complete(self, *jobs: str | Sequence[str], now: float | None = None) -> None:
        """Jobs are done.

        Parameters
        ----------
        *jobs : str or sequence of str
            Ids, one by one or as a list.
        now : float, optional
            Seconds.
        """
        self._take(Leave, now, event="complete", jobs=_ids(jobs))

    def stopped(self, *jobs: str | Sequence[str], now: float | None = None) -> None:
        """Jobs do not run any more, whatever the plan says, and wait.

        Parameters
        ----------
        *jobs : str or sequence of str
            Ids, one by one or as a list.
        now : float, optional
            Seconds.
        """
        self._take(Stopped, now, jobs=_ids(jobs))

    def observe(
        self,
        job: str | Sequence[Mapping[str, Any]],
        *,
        steps: float | None = None,
        throughput: float | None = None,
        now: float | None = None,
    ) -> None:
        """Report what was measured of a job, or of several.

        Parameters
        ----------
        job : str, or sequence of mappings
            Id; or a list of observations such as ``{"job": "a", "steps": 100.0}``, with
            ``steps``, ``throughput`` or both.
        steps : float, optional
            Steps done so far.
        throughput : float, optional
            steps/s as it runs now.
        now : float, optional
            Seconds.

        Raises
        ------
        InvalidInput
            A job is not there or named twice, or a value is wrong; nothing has changed.
        """
        if isinstance(job, str):
            self.observe_many({job: {"steps": steps, "throughput": throughput}}, now=now)
            return
        expected = "the id of a job, or a list of observations"
        if not _is_list(job) or steps is not None or throughput is not None:
            raise InvalidInput("job", show(job), expected)
        known: dict[Any, dict[str, Any]] = {}
        for place, item in enumerate(job):
            values = dict(
                _object(item, f"jobs[{place}]", "an object with a job and what was measured")
            )
            name = _name(values.pop("job", None), f"jobs[{place}].job", "the id of a job")
            if name in known:
                raise InvalidInput(
                    f"jobs[{place}].job", f"{show(name)} a second time", "each job once"
                )
            known[name] = values
        self.observe_many(known, now=now)

    def observe_many(
        self,
        jobs: Mapping[str, Mapping[str, float | None]],
        *,
        now: float | None = None,
    ) -> None:
        """Report what was measured of several jobs at one time: `observe` of a list, as a mapping.

        Parameters
        ----------
        jobs : mapping of str to mapping
            By the id of the job: ``steps`` done so far, ``throughput`` in steps/s as it runs now, or both.
        now : float, optional
            Seconds, as in every event.
        """
        known = {
            job: {key: value for key, value in values.items() if value is not None}
            if isinstance(values, Mapping)
            else values
            for job, values in _object(jobs, "jobs", "what was measured, by job").items()
        }
        self._take(Observe, now, jobs=known)

    def node_down(self, *nodes: str, now: float | None = None) -> None:
        """Nodes fail: what runs on them has stopped.

        Parameters
        ----------
        *nodes : str
            Names.
        now : float, optional
            Seconds.
        """
        self._nodes(nodes, "down", now)

    def node_drain(self, *nodes: str, now: float | None = None) -> None:
        """Nodes take no more work; jobs that can be preempted leave them with the next plan.

        Parameters
        ----------
        *nodes : str
            Names.
        now : float, optional
            Seconds.
        """
        self._nodes(nodes, "drain", now)

    def node_up(self, *nodes: str, now: float | None = None) -> None:
        """Nodes take work again.

        Parameters
        ----------
        *nodes : str
            Names.
        now : float, optional
            Seconds.
        """
        self._nodes(nodes, "up", now)

    def _nodes(self, nodes: tuple[str, ...], state: str, now: float | None) -> None:
        names = [
            _name(node, f"nodes[{place}]", "the name of a node") for place, node in enumerate(nodes)
        ]
        self._take(NodeStates, now, states=dict.fromkeys(names, state))

    def reserve(
        self,
        name: str,
        nodes: Sequence[str],
        start: float,
        end: float,
        *,
        now: float | None = None,
    ) -> None:
        """Nodes take no work for some time, as for maintenance.

        Parameters
        ----------
        name : str
            By which `release` ends it early.
        nodes : sequence of str
        start, end : float
            Seconds on the scheduler's clock.
        now : float, optional
            Seconds.
        """
        self._take(Reserve, now, name=name, nodes=nodes, start=start, end=end)

    def release(self, name: str, *, now: float | None = None) -> None:
        """End a reservation.

        Parameters
        ----------
        name : str
            Of the reservation.
        now : float, optional
            Seconds, as in every event.
        """
        self._take(Release, now, name=name)

    def resize(self, add: Mapping[str, float], *, now: float | None = None) -> None:
        """Change capacities.

        Parameters
        ----------
        add : mapping of str to number
            What each pool (GPUs; a node may become smaller) or resource gains or loses: ``{"v100": 8, "budget": -5}``.
        now : float, optional
            Seconds, as in every event.
        """
        amounts = _object(add, "add", "amounts by the name of a pool or resource")
        self._take(
            Resize,
            now,
            add={name: _number(amount) for name, amount in amounts.items()},
        )

    @checks_keywords
    def update(
        self,
        job: str,
        *,
        weight: float | None = None,
        deadline: float | None = None,
        steps: float | None = None,
        preemptible: bool | None = None,
        restart_cost: float | None = None,
        exempt_time: float | str | None = None,
        checkpoint_interval: float | str | None = None,
        now: float | None = None,
    ) -> None:
        """Give a job other values; what is None stays as it is.

        Parameters
        ----------
        job : str
            Id.
        weight : float, optional
        deadline : float, optional
            Seconds on the scheduler's clock.
        steps : float, optional
            Work in all.
        preemptible : bool, optional
        restart_cost : float, optional
            Seconds.
        exempt_time, checkpoint_interval : float or str, optional
            Seconds, or text such as ``10m``.
        now : float, optional
            Seconds, as in every event.
        """
        self._take(
            Update,
            now,
            job=job,
            weight=weight,
            deadline=deadline,
            steps=steps,
            preemptible=preemptible,
            restart_cost=restart_cost,
            exempt_time=exempt_time,
            checkpoint_interval=checkpoint_interval,
        )

    def set_policy(
        self, policy: RoundPolicy | Mapping[str, Any], *, now: float | None = None
    ) -> None:
        """Decide rounds in another way, from the next one on.

        Parameters
        ----------
        policy : RoundPolicy or mapping
            All of it, as in a state; what it leaves out has its default. To change one field, give
            ``scheduler.state.policy.model_copy(update={"max_moves": 2})``.
        now : float, optional
            Seconds, as in every event.

        Raises
        ------
        UsageError, InvalidInput, SolverUnavailable
            No round could be planned with it, as for a new `Scheduler`; nothing has changed.
        """
        with self._one_at_a_time:
            before = self._live.state.policy.memory_limit
            self._take(NewPolicy, now, policy=policy_document(policy_of(policy)))
            memory = self._live.state.policy.memory_limit
            # A process is started anew under another limit, so it is told only of one that differs.
            if self._process is not None and memory != before:
                self._process.limit_memory(memory or half_of_memory())

    def set_constraints(
        self, constraints: Sequence[Mapping[str, Any]], *, now: float | None = None
    ) -> None:
        """Let other side constraints of the instance hold, from the next round on.

        Where no allocation keeps all of them, rounds do not admit some jobs, or fall back, and say
        so.

        Parameters
        ----------
        constraints : sequence of mappings
            All of them, as in an instance document. Those of the policy stay beside them.
        now : float, optional
            Seconds.

        Raises
        ------
        UsageError, InvalidInput
            One of them makes no sense; nothing has changed.
        """
        self._take(NewConstraints, now, constraints=constraints)

    def set_tenants(
        self,
        tenants: Sequence[Mapping[str, Any]] = (),
        *,
        remove: Sequence[str] = (),
        now: float | None = None,
    ) -> None:
        """Change tenants, from the next round on.

        Parameters
        ----------
        tenants : sequence of mappings
            As in an instance document. They take the place of tenants of the same names, or come
            in; tenants that are not named stay as they are.
        remove : sequence of str
            Names of tenants that go; they have no jobs any more.
        now : float, optional
            Seconds.

        Raises
        ------
        UsageError, InvalidInput
            A field is wrong, a tenant cannot go, or a side constraint names it; nothing has
            changed.
        """
        self._take(NewTenants, now, tenants=tenants, remove=remove)

    def set_workloads(
        self,
        workloads: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        remove: Sequence[str] = (),
        now: float | None = None,
    ) -> None:
        """Change workloads, from the next round on: rates and needs of the jobs that name them.

        Parameters
        ----------
        workloads : mapping of str to mapping, optional
            As in an instance document. They take the place of workloads of the same names, or come
            in; workloads that are not named stay as they are.
        remove : sequence of str
            Names of workloads that go; no job needs them any more.
        now : float, optional
            Seconds.

        Raises
        ------
        UsageError, InvalidInput
            A field is wrong, or a workload cannot go; nothing has changed.
        """
        known = {} if workloads is None else workloads
        self._take(NewWorkloads, now, workloads=known, remove=remove)

    def _take(self, kind: type[Event], now: float | None, **fields: Any) -> None:
        """Check an event, write it down, and only then let it change the state."""
        with self._one_at_a_time:
            self._check_open()
            self._take_alone(kind, now, fields)

    def _take_alone(self, kind: type[Event], now: float | None, fields: Mapping[str, Any]) -> None:
        event = validate(kind, {**fields, "now": self._time(now)})
        # Refuse first, then write, then act: what is in the journal can always happen again.
        outcome = self._live.after(event)
        if outcome.check is not None:
            outcome.check()
        if outcome.decides is not None:
            check_policy(outcome.decides.policy, outcome.decides.instance, self._load)
        recorded = self._journal is not None or listening()
        record = event.model_dump(mode="json", exclude_none=True) if recorded else {}
        if self._journal is not None:
            self._journal.append(record)
        self._live.accept(outcome)
        self.metrics.event(event)
        log_record(record)
        for notice in outcome.notices:
            log.warning("%s", notice)

    def _time(self, now: float | None) -> float:
        """Return the time of a call, in seconds: ``now`` if given, else the clock's time, else that of the last call.

        Time never decreases: an earlier time than that of the last call is replaced by the latter,
        with a warning.
        """
        if now is None and self._clock is None:
            return self._live.now
        given = self._clock() if now is None and self._clock is not None else now
        if (
            not isinstance(given, int | float)
            or isinstance(given, bool)
            or not abs(given) <= LARGEST
        ):
            raise InvalidInput("now", show(given), f"seconds, at most {LARGEST:g}")
        if given < self._live.now:
            log.warning(
                "the clock went back by %g s: the last call's time is used",
                self._live.now - given,
            )
        return max(float(given), self._live.now)

    # --- plans --------------------------------------------------------------------------------

    def solve(self, now: float | None = None, *, dry_run: bool = False) -> Plan:
        """Plan the round that begins now.

        Parameters
        ----------
        now : float, optional
            Seconds; see ``clock``.
        dry_run : bool
            Only say what the plan would be: nothing changes, and nothing is written down.

        Returns
        -------
        Plan
            Whose actions (`Plan.diff`) the caller carries out. Where no solver answers in time,
            ``fallback`` says so.

        Raises
        ------
        JournalError
            The plan could not be written down: it is not in effect.
        """
        with self._one_at_a_time:
            self._check_open()
            return self._solve_alone(now, dry_run)

    def _solve_alone(self, now: float | None, dry_run: bool) -> Plan:
        if (
            not dry_run
            and self._live.round % self._every == 0
            and self._live.round != self._snapshot_of
        ):
            self._snapshot()
        before = self._live.plan
        state, plan = self._live.planned(self._time(now), self._load)
        if dry_run:
            return plan
        # The plan counts once it is written: a crash before that plans the round again.
        record = plan_record(plan, state) if self._journal is not None or listening() else {}
        if self._journal is not None:
            self._journal.append({**record, **packed_decisions(plan, state)})
        self._live.follow(state, plan)
        self.metrics.plan(plan, plan.timings.get("total"))
        log_record(record)
        # A notice holds as long as its reason does; it is logged by the first plan that has it.
        for notice in plan.notices:
            if before is None or notice not in before.notices:
                log.warning("%s", notice)
        return plan

    def _load(self, name: str) -> type[Solver]:
        """A solver by name, in its own process if it is to have one."""
        return load_solver(name) if self._process is None else self._process.load(name)

    def _snapshot(self, *, required: bool = False) -> None:
        """Write the state down as a whole; a disk that is full costs a later snapshot, not the plan."""
        if self._journal is None:
            return
        try:
            self._journal.snapshot(
                *state_parts(self._live.settle(), self._live.performance(), self.metrics)
            )
            self._snapshot_of = self._live.round
        except JournalError as error:
            if required:
                raise
            log.warning("%s", error)

    # --- the end ------------------------------------------------------------------------------

    def close(self) -> None:
        """End the solver's process and let go of the journal, after the call in progress."""
        with self._one_at_a_time:
            self._closed = True
            if self._process is not None:
                self._process.close()
            if self._journal is not None:
                self._journal.close()

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError("the scheduler is closed: it takes no events and plans no rounds")


def _object(given: object, path: str, expected: str) -> Mapping[Any, Any]:
    if not isinstance(given, Mapping):
        raise InvalidInput(path, show(given), expected)
    return given


def _name(given: object, path: str, expected: str) -> str:
    if not isinstance(given, str):
        raise InvalidInput(path, show(given), expected)
    return given


def _is_list(given: object) -> bool:
    return isinstance(given, Sequence) and not isinstance(given, str | bytes)


def _ids(given: tuple[Any, ...]) -> Sequence[Any]:
    """Ids that were given one by one or as one list; the event refuses what is no id."""
    return given[0] if len(given) == 1 and _is_list(given[0]) else given


def _number(given: Any) -> Any:
    """A number of any kind as a float; the event refuses what is none."""
    return given if isinstance(given, bool) or not isinstance(given, Real) else float(given)
