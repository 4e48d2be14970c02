"""The scheduler in a simulation: its state, and its plans as arrays over the jobs of the trace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from optsched.arrays import EMPTY, BoolArray, FloatArray, IntArray
from optsched.arrays.values import replace
from optsched.instance import Instance, JobTable, with_jobs
from optsched.instance.running import RunningJobs
from optsched.rounds import RoundPolicy, RoundState
from optsched.rounds.changes import with_instance
from optsched.rounds.live import LiveState
from optsched.rounds.plan import STARTS, Plan, among
from optsched.rounds.transitions import NodeStates, Observe
from optsched.simulation.recording import spread_of
from optsched.traces import Trace


@dataclass(frozen=True)
class RunningTraceJobs:
    """What runs in a round of a simulation: jobs by their rows in the trace, on which GPUs, how
    fast and from when; arrays of length k unless stated.

    Attributes
    ----------
    job, partner : IntArray, shape (k,)
        The partner is the job that shares the GPUs, -1 for none.
    pool, gpus, nodes, first_gpu : IntArray, shape (k,)
    share : FloatArray, shape (k,)
        Part of each GPU that the job may use, alone or with its partner.
    speed : FloatArray, shape (k,)
        steps/s that the scheduler assumes.
    fresh : BoolArray, shape (k,)
        Whether the job was started on these GPUs in this round.
    begins : FloatArray, shape (k,)
        When a started job gets its GPUs, in seconds.
    owner, gpu : IntArray
        One entry per GPU that is held: the position of its job in these arrays, and the number of
        the GPU.
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
    begins: FloatArray
    owner: IntArray
    gpu: IntArray


class Scheduled:
    """A `LiveState` scheduler over the present jobs of a trace.

    Attributes
    ----------
    rows : IntArray
        Row in the trace of each job that the scheduler knows.
    """

    def __init__(self, trace: Trace, instance: Instance, policy: RoundPolicy) -> None:
        nobody = with_jobs(instance, EMPTY)
        self._source = instance
        self._regimes = trace.regimes
        self.rows = EMPTY
        # In a simulation no round is ever replayed from its stored state, so the scheduler may keep
        # an allocation as long as it is valid.
        self.live = LiveState(RoundState.first(nobody, policy), keeps_allocations=True)

    @property
    def state(self) -> RoundState:
        """The state of the scheduler."""
        return self.live.state

    # --- what is reported to it ---------------------------------------------------------------

    def exchange(self, gone: BoolArray, come: IntArray) -> None:
        """Remove jobs that are gone (a mask over ``rows``) and add arriving ones (rows of the
        trace).
        """
        if not gone.any() and not len(come):
            return
        kept = np.flatnonzero(~gone)
        state = self.state
        added = _arriving(self._source, come) if len(come) else None
        self.live.state = with_instance(state, with_jobs(state.instance, kept, added), kept)
        self.rows = np.concatenate([self.rows[kept], come])

    def progress(self, steps_done: FloatArray) -> None:
        """Report the steps that the jobs of the trace have done."""
        self._set(replace(self.state.instance.jobs_table, steps_done=steps_done[self.rows]))

    def regimes(self, stage: IntArray) -> None:
        """Report the stage of each job of the trace: from its first regime on, a job has the rates
        of another workload.
        """
        table = self.state.instance.jobs_table
        changed = self._regimes.in_stage(table, self.rows, stage[self.rows])
        if (changed.workload != table.workload).any():
            self._set(changed)

    def _set(self, table: JobTable) -> None:
        state = self.state
        self.live.state = replace(state, instance=replace(state.instance, jobs_table=table))

    def nodes(self, states: Mapping[str, str], now: float) -> None:
        """Report new states of nodes; jobs on nodes that are down have stopped."""
        event = NodeStates.model_validate({"states": dict(states), "now": max(now, self.state.now)})
        self.live.accept(self.live.after(event))

    def interrupted(self, jobs: BoolArray) -> None:
        """Report jobs (a mask over the trace) that do not run any more."""
        self.live.state = self.state.stopped(jobs[self.rows])

    def observe(self, job: IntArray, rate: FloatArray) -> None:
        """Report the true rates (steps/s) of running jobs of the trace."""
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

    # --- what it says -------------------------------------------------------------------------

    def plan(self, now: float) -> tuple[Plan, bool]:
        """Make the plan from now on and apply it; also returns whether an allocation or a ranking
        was computed for it.
        """
        state, plan = self.live.planned(now)
        self.live.follow(state, plan)
        return plan, "allocate" in plan.timings

    def running(self, plan: Plan) -> RunningTraceJobs:
        """The jobs that run under a plan."""
        places = RunningJobs.of(plan.running)
        running_jobs = places.job
        numbering = plan.instance.cluster.numbering
        owner = places.owner
        gpu = places.numbers(numbering)
        nodes, first = spread_of(owner, gpu, numbering.node_of(gpu), len(running_jobs))
        # No partner is -1. As an index it picks the last row below; the mask discards that.
        beside = plan.ledger.partner_now[running_jobs]
        return RunningTraceJobs(
            self.rows[running_jobs],
            np.where(beside >= 0, self.rows[beside], -1),
            places.pool,
            places.length,
            nodes,
            first,
            np.array(
                [plan.setups[job].share if job in plan.setups else 1.0 for job in plan.running],
                float,
            ),
            plan.speed[running_jobs],
            among(plan.verdict[running_jobs], STARTS),
            plan.begins[running_jobs],
            owner,
            gpu,
        )


def _arriving(source: Instance, rows: IntArray) -> Instance:
    """Arriving jobs of the trace, with the names of their predecessors even if these are not in the
    scheduler.
    """
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
