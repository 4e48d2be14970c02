"""The scheduler in a simulation: its state, and its plans as arrays over the jobs of the trace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.assembly import constraints_in_force
from optsched.instance import Instance, with_jobs
from optsched.instance.running import RunningJobs
from optsched.instance.tables import JobTable
from optsched.registry import load_formulation
from optsched.rounds.allocation import Memory
from optsched.rounds.changes import with_instance
from optsched.rounds.live import LiveState
from optsched.rounds.plan import Plan, Verdict
from optsched.rounds.policy import RoundPolicy
from optsched.rounds.state import RoundState
from optsched.rounds.transitions import Nodes, Observe
from optsched.simulation.recording import spread_of
from optsched.traces import Trace

TIMELY = frozenset({"steps_left", "arrival", "isolated_time", "deadline", "soft_deadline"})
"""Job arrays that change from round to round, or mean something else, though nothing happens."""


@dataclass(frozen=True)
class Running:
    """What runs in a round; arrays over the jobs that do, by their rows in the trace.

    Attributes
    ----------
    job, partner : IntArray, shape (k,)
        The partner is the job that shares the GPUs, -1 for none.
    pool, gpus, nodes, first_gpu : IntArray, shape (k,)
    share : FloatArray, shape (k,)
        Part of each GPU that the job may use, alone or with its partner.
    speed : FloatArray, shape (k,)
        steps/s that the scheduler counts on.
    fresh : BoolArray, shape (k,)
        Put on these GPUs in this round.
    owner, gpu : IntArray
        GPUs one by one: the place of the job in these arrays, and the number of the GPU.
    """

    job: IntArray
    partner: IntArray
    pool: IntArray
    gpus: IntArray
    nodes: IntArray
    first_gpu: IntArray
    share: FloatArray
    speed: FloatArray
    fresh: BoolArray
    owner: IntArray
    gpu: IntArray


class Scheduled:
    """A `LiveState` scheduler over the jobs of a trace that are there.

    Attributes
    ----------
    rows : IntArray
        Row in the trace of each job that the scheduler knows.
    """

    def __init__(self, trace: Trace, instance: Instance, policy: RoundPolicy) -> None:
        nobody = with_jobs(instance, np.zeros(0, np.int64))
        self._source = instance
        self._regimes = trace.regimes
        self.rows: IntArray = np.zeros(0, np.int64)
        self.live = LiveState(RoundState.first(nobody, policy))
        self._memory = Memory()
        self._lasting = _lasts(policy, instance)

    @property
    def state(self) -> RoundState:
        """The state of the scheduler."""
        return self.live.state

    # --- what is reported to it ---------------------------------------------------------------

    def exchange(self, gone: BoolArray, come: IntArray) -> None:
        """Jobs leave (a mask of those known) and others come (rows of the trace)."""
        if not gone.any() and not len(come):
            return
        kept = np.flatnonzero(~gone)
        state = self.state
        added = _arriving(self._source, come) if len(come) else None
        self.live.state = with_instance(state, with_jobs(state.instance, kept, added), kept)
        self.rows = np.concatenate([self.rows[kept], come])
        self._memory.forget()

    def progress(self, steps_done: FloatArray) -> None:
        """Steps that the jobs of the trace have done."""
        self._set(replace(self.state.instance.jobs_table, steps_done=steps_done[self.rows]))

    def regimes(self, stage: IntArray) -> None:
        """The stage of each job of the trace: from its first regime on, a job has the rates of another workload."""
        table = self.state.instance.jobs_table
        changed = self._regimes.in_stage(table, self.rows, stage[self.rows])
        if (changed.workload != table.workload).any():
            self._set(changed)
            self._memory.forget()

    def _set(self, table: JobTable) -> None:
        state = self.state
        self.live.state = replace(state, instance=replace(state.instance, jobs_table=table))

    def nodes(self, states: Mapping[str, str], now: float) -> None:
        """Nodes change their states; what runs on those that are down has stopped."""
        event = Nodes.model_validate({"states": dict(states), "now": max(now, self.state.now)})
        self.live.accept(self.live.after(event))
        self._memory.forget()

    def interrupted(self, jobs: BoolArray) -> None:
        """Jobs (a mask of those of the trace) do not run any more."""
        self._memory.forget()
        self.live.state = self.state.stopped(jobs[self.rows])

    def observe(self, job: IntArray, rate: FloatArray) -> None:
        """True rates (steps/s) of jobs of the trace that run."""
        place = np.full(len(self._source.jobs_table), -1, np.int64)
        place[self.rows] = np.arange(len(self.rows))
        names = self.state.instance.jobs_table.names
        observed = {
            names[int(place[row])]: {"throughput": value}
            for row, value in zip(job.tolist(), rate.tolist(), strict=True)
            if place[row] >= 0 and value > 0
        }
        if observed:
            self.live.accept(
                self.live.after(Observe.model_validate({"jobs": observed, "now": self.state.now}))
            )
            self._memory.forget()

    # --- what it says -------------------------------------------------------------------------

    def plan(self, now: float) -> tuple[Plan, bool]:
        """The plan from now on, carried out, and whether an allocation or an order was made anew for it.

        Where nothing has happened since the last allocation that could change it, it is not
        computed again; an order always is, but of the same rows.
        """
        if not self._lasting:
            # Something that the formulation reads has changed with time: it must be solved again.
            self._memory.answer = None
        solved = self._memory.answer is None or self.state.policy.ranking is not None
        state, plan = self.live.planned(now, memory=self._memory)
        self.live.follow(state, plan)
        return plan, solved

    def settled(self, plan: Plan) -> bool:
        """Whether the next plan would say the same, as long as nothing happens.

        The allocation holds, every job runs, each in the one row that it has in the allocation:
        nobody waits, and nobody has anywhere else to go. Under a ranking, every job runs on where
        it was, and no move would pay. What is owed and received meanwhile is added up when the next
        plan is made.
        """
        # Whoever waits may be due next round.
        if not self.holds or len(plan.running) < len(self.rows):
            return False
        if plan.order is not None:
            return plan.order.at_rest and bool((plan.verdict == Verdict.KEEP).all())
        if self.state.policy.max_moves is not None and not (plan.verdict == Verdict.KEEP).all():
            return False  # the limit may have kept others from moving to idle GPUs
        return bool((plan.ledger.runs == (plan.ledger.fraction > 0)).all())

    @property
    def holds(self) -> bool:
        """Whether the last allocation still holds."""
        return self._lasting and self._memory.answer is not None

    def running(self, plan: Plan) -> Running:
        """What runs by a plan."""
        places = RunningJobs.of(plan.running)
        mine = places.job
        numbering = plan.instance.cluster.numbering
        owner = places.owner
        gpu = places.numbers(numbering)
        nodes, first = spread_of(owner, gpu, numbering.node_of(gpu), len(mine))
        beside = plan.ledger.partner_now[mine]
        return Running(
            self.rows[mine],
            np.where(beside >= 0, self.rows[beside], -1),
            places.pool,
            places.length,
            nodes,
            first,
            np.array(
                [plan.setups[job].share if job in plan.setups else 1.0 for job in plan.running],
                float,
            ),
            plan.speed[mine],
            np.isin(plan.verdict[mine], (Verdict.START, Verdict.MOVE)),
            owner,
            gpu,
        )


def _lasts(policy: RoundPolicy, instance: Instance) -> bool:
    """Whether an allocation, or the rows of a ranking, stay right as long as no job or node comes, goes or changes."""
    if (
        constraints_in_force(instance, policy.constraints)
        or not instance.jobs_table.preemptible.all()
        or policy.exempt_time > 0
        or instance.jobs_table.exempt_time.any()
    ):
        return False
    if policy.ranking is not None:
        return True
    formulation = load_formulation(policy.formulation)
    return not (formulation.reads - formulation.order_only) & TIMELY


def _arriving(source: Instance, rows: IntArray) -> Instance:
    """Jobs of the trace that come, with the names of their predecessors, wherever these are."""
    table = source.jobs_table
    added = with_jobs(source, rows)
    awaits = {
        place: tuple(table.names[other] for other in table.after[row])
        for place, row in enumerate(rows.tolist())
        if row in table.after
    }
    return (
        replace(added, jobs_table=replace(added.jobs_table, after={}, awaits=awaits))
        if awaits
        else added
    )
