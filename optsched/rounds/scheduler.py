"""`Scheduler` keeps the state of a cluster: events change it, `solve` plans rounds, a journal
stores both."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from pathlib import Path
from threading import RLock
from typing import Any, Self

from optsched.arrays.values import replace
from optsched.assembly import Performance, load, model_of
from optsched.display import Displayed, number
from optsched.errors import (
    InvalidArgument,
    InvalidInput,
    JournalError,
    UsageError,
    checks_keywords,
)
from optsched.formulation import SideConstraint
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
        The cluster with its present jobs; or the state of a round, from which rounds continue.
    policy : RoundPolicy or mapping, optional
        The policy of the rounds, instead of the policy of the state.
    clock : callable, optional
        Returns seconds, for example `time.time`, for calls without a time (``now``). By default
        there is none: such a call happens at the time of the call before it, so that the same calls
        give the same plans.
    journal : path, optional
        Folder of a new journal. Every event is in it before it is acknowledged. `Scheduler.recover`
        continues an existing journal.
    snapshot_every : int
        Rounds between two snapshots in the journal: recovery repeats at most this many rounds.
    keep : int, optional
        Number of snapshots to keep, with all records after the oldest of them; by default all.
    fsync : bool
        Whether the journal must survive a loss of power, and not only the end of the process.
    isolate : bool
        Whether solvers run in their own process, which is killed at the end of the time limit and
        uses at most the policy's ``memory_limit``.
    performance : mapping or path, optional
        A performance object instead of that of the instance.

    Raises
    ------
    UsageError, InvalidInput
        The policy or the instance is invalid.
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
        # An event during planning waits for the plan, so that the journal has both in the order in
        # which they take effect.
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
            self._process.start()  # now, so that the first plan need not wait for it
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
        """Continue a journal: with all acknowledged events, and the last plan.

        Parameters
        ----------
        journal : str or Path
            Folder of the journal.
        clock, snapshot_every, keep, fsync, isolate
            As for `Scheduler`.

        Returns
        -------
        Scheduler

        Raises
        ------
        JournalError
            There is no journal, another process writes it, it is damaged, or its records do not
            lead to its plans.
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

    # --- the state ----------------------------------------------------------------------------

    def _headline(self) -> str:
        return self.state._headline()  # noqa: SLF001

    def _facts(self) -> Mapping[str, str]:
        plan = self.plan
        last = "" if plan is None else f"round {plan.round}, until {number(plan.until)} s"
        return {"clock": f"{number(self._live.now)} s", "last plan": last}

    @property
    def state(self) -> RoundState:
        """All that the next plan depends on; its instance has the learnt parameters of the
        model.
        """
        with self._one_at_a_time:
            return self._live.whole

    @property
    def plan(self) -> Plan | None:
        """Plan of the last round; None before the first one."""
        return self._live.plan

    @property
    def instance(self) -> Instance:
        """The cluster with its present jobs."""
        return self.state.instance

    # --- events -------------------------------------------------------------------------------

    def submit(
        self,
        jobs: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        now: float | None = None,
    ) -> None:
        """Add a job, or several.

        Parameters
        ----------
        jobs : mapping or sequence of mappings
            As in an instance document; without ``arrival`` they arrive now.
        now : float, optional
            Seconds on the scheduler's clock; by default the time of the last call.

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
        """Cancel jobs.

        Parameters
        ----------
        *jobs : str or sequence of str
            Ids, one by one or as a list.
        now : float, optional
            Seconds, as in every event.
        """
        self._take(Leave, now, event="cancel", jobs=_ids(jobs))

    def complete(self, *jobs: str | Sequence[str], now: float | None = None) -> None:
        """Report jobs that are complete.

        Parameters
        ----------
        *jobs : str or sequence of str
            Ids, one by one or as a list.
        now : float, optional
            Seconds.
        """
        self._take(Leave, now, event="complete", jobs=_ids(jobs))

    def stopped(self, *jobs: str | Sequence[str], now: float | None = None) -> None:
        """Report jobs that stopped running, against the plan, and wait.

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
        """Report measurements of a job, or of several.

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
            A job does not exist or is named twice, or a value is wrong; nothing has changed.
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
        """Report measurements of several jobs at one time: `observe` of a list, as a mapping.

        Parameters
        ----------
        jobs : mapping of str to mapping
            By job id: ``steps`` done so far, the present ``throughput`` in steps/s, or both.
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
        """Report nodes that fail: jobs on them have stopped.

        Parameters
        ----------
        *nodes : str
            Names.
        now : float, optional
            Seconds.
        """
        self._nodes(nodes, "down", now)

    def node_drain(self, *nodes: str, now: float | None = None) -> None:
        """Drain nodes: they take no more work, and preemptible jobs leave them with the next plan.

        That plan has these jobs in ``move`` or ``preempt``, with the reason. Jobs that cannot be
        preempted stay until they end.

        Parameters
        ----------
        *nodes : str
            Names.
        now : float, optional
            Seconds.
        """
        self._nodes(nodes, "drain", now)

    def node_up(self, *nodes: str, now: float | None = None) -> None:
        """Report nodes that take work again.

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
        """Reserve nodes: they take no work for some time, for example during maintenance.

        Parameters
        ----------
        name : str
            Name with which `release` ends the reservation early.
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
            Change of each pool (GPUs; a node may become smaller) or resource: ``{"v100": 8,
            "budget": -5}``.
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
        """Change values of a job; a value of None does not change.

        Parameters
        ----------
        job : str
            Id.
        weight : float, optional
        deadline : float, optional
            Seconds on the scheduler's clock.
        steps : float, optional
            Total steps.
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
        """Change the policy, from the next round on.

        Parameters
        ----------
        policy : RoundPolicy or mapping
            The whole policy; a field that is left out has its default. To change one field, use
            ``scheduler.state.policy.model_copy(update={"max_moves": 2})``.
        now : float, optional
            Seconds, as in every event.

        Raises
        ------
        UsageError, InvalidInput, SolverUnavailable
            No round could be planned with it; nothing has changed.
        """
        with self._one_at_a_time:
            before = self._live.state.policy.memory_limit
            self._take(NewPolicy, now, policy=policy_document(policy_of(policy)))
            memory = self._live.state.policy.memory_limit
            # The process restarts to change its limit.
            if self._process is not None and memory != before:
                self._process.limit_memory(memory or half_of_memory())

    def set_constraints(
        self,
        constraints: Sequence[SideConstraint | Mapping[str, Any] | str],
        *,
        now: float | None = None,
    ) -> None:
        """Change the side constraints of the instance, from the next round on.

        If no allocation keeps all of them, rounds decline some jobs, or fall back, and report it.

        Parameters
        ----------
        constraints : sequence of str, mapping or SideConstraint
            All constraints of the instance: kinds, documents, or themselves. Those of the policy do
            not change.
        now : float, optional
            Seconds.

        Raises
        ------
        UsageError, InvalidInput
            One of them is invalid; nothing has changed.
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
            As in an instance document. They replace tenants of the same names, or are added; other
            tenants do not change.
        remove : sequence of str
            Names of tenants to remove; they must not have jobs.
        now : float, optional
            Seconds.

        Raises
        ------
        UsageError, InvalidInput
            A field is wrong, a tenant cannot be removed, or a side constraint names it; nothing has
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
            As in an instance document. They replace workloads of the same names, or are added;
            other workloads do not change.
        remove : sequence of str
            Names of workloads to remove; no job may need them.
        now : float, optional
            Seconds.

        Raises
        ------
        UsageError, InvalidInput
            A field is wrong, or a workload cannot be removed; nothing has changed.
        """
        known = {} if workloads is None else workloads
        self._take(NewWorkloads, now, workloads=known, remove=remove)

    def _take(self, kind: type[Event], now: float | None, **fields: Any) -> None:
        """Check an event, write it to the journal, and only then change the state."""
        with self._one_at_a_time:
            self._check_open()
            event = validate(kind, {**fields, "now": self._time(now)})
            # All checks come before the journal: its records can always be applied again.
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
        """The time of a call, seconds: ``now``, else the time of the clock, else that of the last
        call.

        Time never decreases: a time before the last call is replaced by that of the last call, with
        a warning.
        """
        if now is None and self._clock is None:
            return self._live.now
        given = self._clock() if now is None and self._clock is not None else now
        if (
            not isinstance(given, (int, float))
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
            Only return the plan: nothing changes, and nothing is written to the journal.

        Returns
        -------
        Plan
            The caller carries out its actions (`Plan.diff`). If no solver has an answer in time,
            ``fallback`` has the reason.

        Raises
        ------
        JournalError
            The plan could not be written to the journal: it is not in effect.
        """
        with self._one_at_a_time:
            self._check_open()
            live = self._live
            if not dry_run and live.round % self._every == 0 and live.round != self._snapshot_of:
                self._snapshot()
            before = live.plan
            state, plan = live.planned(self._time(now), self._load)
            if dry_run:
                return plan
            # The plan takes effect once it is written: after a crash before that, it is planned
            # again.
            record = plan_record(plan, state) if self._journal is not None or listening() else {}
            if self._journal is not None:
                self._journal.append({**record, **packed_decisions(plan, state)})
            live.follow(state, plan)
            self.metrics.plan(plan, plan.timings.get("total"))
            log_record(record)
            # Plans repeat a notice while its cause lasts; it is logged once.
            for notice in plan.notices:
                if before is None or notice not in before.notices:
                    log.warning("%s", notice)
            return plan

    def _load(self, name: str) -> type[Solver]:
        """A solver by name, in its own process if solvers are isolated."""
        return load_solver(name) if self._process is None else self._process.load(name)

    def _snapshot(self, *, required: bool = False) -> None:
        """Write a snapshot of the state. If that fails, planning continues, unless it is
        required.
        """
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
        """End the solver's process and close the journal, after the call in progress."""
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
    """Ids given one by one or as one list; the event checks them."""
    return given[0] if len(given) == 1 and _is_list(given[0]) else given


def _number(given: Any) -> Any:
    """A number of any kind as a float; the event refuses other values."""
    return given if isinstance(given, bool) or not isinstance(given, Real) else float(given)
