"""Round mode: what a scheduler plans is carried out, round by round or from event to event."""

from __future__ import annotations

import time

import numpy as np

from optsched.arrays import EMPTY, BoolArray, FloatArray, IntArray, mask_of, quotient
from optsched.arrays.values import replace
from optsched.display import count
from optsched.errors import UsageError
from optsched.instance import Instance, Workloads
from optsched.instance.restart import restart_costs
from optsched.rounds.policy import RoundPolicy
from optsched.rounds.stops import checkpoint_interval
from optsched.simulation.options import SimulationOptions
from optsched.simulation.recording import Stint
from optsched.simulation.run import SimulationRun
from optsched.simulation.scheduled import RunningTraceJobs, Scheduled
from optsched.simulation.truth import Truth
from optsched.traces import Trace

IDLE_ROUNDS = 200
"""The simulation gives up the waiting jobs after this many consecutive rounds without a running
job, if no event is to come.
"""
EARLY = 1e-9
"""A time this close before a point of the round grid, as a fraction of a round, counts as on it."""


class RoundsRun(SimulationRun):
    """A trace under a scheduler.

    Parameters
    ----------
    trace : Trace
    policy : RoundPolicy
    options : SimulationOptions
    truth : Truth
    """

    def __init__(
        self, trace: Trace, policy: RoundPolicy, options: SimulationOptions, truth: Truth
    ) -> None:
        super().__init__(trace, options, truth)
        self._check_length()
        instance = trace.instance
        table = instance.jobs_table
        # The trace states running jobs. Only those that have arrived at the beginning count.
        running = {
            row: held for row, held in table.running.items() if self.arrival[row] <= self.origin
        }
        begun = replace(instance, now=self.origin, jobs_table=replace(table, running=running))
        if options.restart_cost is not None:
            self.instance = _with_restart_cost(self.instance, options.restart_cost)
            # Rounds weigh the restart cost to decide about a migration, so the scheduler must know
            # the true cost.
            begun = _with_restart_cost(begun, options.restart_cost)
        # Seconds between two checkpoints of each job; 0: the job saves its state when it is
        # preempted.
        self._interval = checkpoint_interval(table.checkpoint_interval, policy)
        self.scheduled = Scheduled(trace, begun, policy.model_copy(update={"progress": False}))
        self.arrived = np.zeros(len(self.arrival), bool)
        self.begun = np.full(len(self.arrival), self.origin)
        self.saved = self.world.done.copy()  # steps at the last checkpoint
        self._ran = EMPTY  # jobs that ran under the previous plan
        self._fallbacks: list[str] = []  # why plans fell back

    def run(self) -> None:
        """Simulate until all jobs are complete, or nothing can happen any more."""
        length = self.instance.round
        now = self.origin
        anchor = self.origin
        idle = 0
        number = 0
        while self._goes_on(now):
            number += 1
            self._count(number, "rounds")
            self._take_changes(now)
            self._take_arrivals(now)
            if not len(self.scheduled.rows):
                if self.arrived.all():
                    break
                ahead = min(float(self.arrival[~self.arrived].min()), self.changes.next, self.end)
                self._idle(now, ahead)
                now, anchor = ahead, ahead  # without jobs the scheduler sleeps until one arrives
                continue
            running, solved, fallback, next_start, seconds = self._planned(now)
            # The next multiple of the round length, counted from the anchor. A plan within a round
            # does not shift this grid.
            until = min(
                anchor + (np.floor((now - anchor) / length + EARLY) + 1.0) * length, self.end
            )
            if not until > now:
                raise UsageError(
                    f"a round of {length:g} s is less than the clock tells apart at {now:g} s"
                )
            if self.options.replan == "events":
                until = min(until, next_start)
            busy, until = self._carry_out(running, now, until)
            self._record(running, busy, now, until, seconds, solved, fallback)
            idle = idle + 1 if not len(running.job) else 0
            if idle > IDLE_ROUNDS and self.arrived.all() and not self.changes.lies_ahead:
                waiting = len(self.scheduled.rows)
                self.notices.append(
                    f"{waiting} jobs wait, nothing runs and nothing lies ahead: "
                    f"given up at {now:g} s"
                )
                break
            now = until
        if self._fallbacks:
            self.notices.append(
                f"{count(len(self._fallbacks), 'round')} fell back, the first for this reason: "
                f"{self._fallbacks[0]}"
            )
        self._note_end(now)

    def _planned(self, now: float) -> tuple[RunningTraceJobs, bool, bool, float, float]:
        """Plan from now on. Returns the running rows, whether an allocation was made, whether the
        plan fell back, when the schedule next starts a job, and the seconds that planning took.
        """
        started = time.perf_counter()
        plan, solved = self.scheduled.plan(now)
        seconds = time.perf_counter() - started
        if plan.fallback is not None:
            self._fallbacks.append(plan.fallback)
        failed = plan.fallback is not None
        return self.scheduled.running(plan), solved, failed, plan.next_start, seconds

    # --- what happens -------------------------------------------------------------------------

    def _take_changes(self, now: float) -> None:
        """Report changes of nodes up to now to the scheduler. Jobs on failed nodes were stopped in
        `_carry_out` already.
        """
        for _, node, state in self.changes.until(now):
            self.scheduled.nodes({node: state}, now)

    def _take_arrivals(self, now: float) -> None:
        come = np.flatnonzero(~self.arrived & (self.arrival <= now))
        done = self.world.finished[self.scheduled.rows]
        self.gone[self.scheduled.rows[done]] = True
        self.arrived[come] = True
        without = come[self.world.steps[come] <= 0]
        if len(without):
            self.gone[without], self.recorder.finish[without] = True, self.arrival[without]
            come = come[self.world.steps[come] > 0]
        self.scheduled.exchange(done, come)
        self.scheduled.progress(self.world.done)
        if len(self.truth.regimes):
            self.scheduled.regimes(self.world.stage)

    def _carry_out(
        self, running: RunningTraceJobs, now: float, until: float
    ) -> tuple[FloatArray, float]:
        """Run the planned rows; returns GPU seconds by pool, and the time of the next plan."""
        job = running.job
        world = self.world
        # This must come first: a stopped job loses its steps since the last checkpoint before it
        # runs again.
        self._lose_unsaved(running)
        fresh = running.fresh
        again = restart_costs(self.instance, job, running.pool, running.gpus)
        restores = np.where(self.recorder.starts[job] > 0, again, 0.0)
        world.resumes[job[fresh]] = (running.begins + restores)[fresh]
        self.begun[job[fresh]] = now
        place = (running.partner, running.pool, running.gpus, running.nodes)
        # The true rates; the rates of the scheduler only if the truth states none.
        rate = world.rates(job, *place, running.speed)
        before = world.done[job]
        if self.options.replan == "events":
            until = min(until, self._next_event(running, rate, now, until))
        stop, broken = self._stops(running, until)
        # A job that a plan stopped has saved its state, unless it writes checkpoints at intervals.
        saves = job[fresh & (self._interval[job] == 0)]
        self.saved[saves] = world.done[saves]
        ends = world.run(job, rate, place, now, stop)
        self._save(job, before, now, ends)
        self._restore_checkpoints(job[broken & ~world.finished[job]])
        finished = world.finished[job]
        self.recorder.finish[job[finished]] = ends[finished]
        if self.options.observe and len(job):
            self.scheduled.observe(job, rate)
        stint = Stint(
            job,
            running.pool,
            running.gpus,
            running.nodes,
            running.first_gpu,
            _shares(running, now, ends),
            np.ones(len(job)),
            np.full(len(job), now),
            ends,
            fresh.astype(np.int64),
            np.clip(world.resumes[job] - now, 0.0, None),
        )
        return self.recorder.stint(stint), until

    def _next_event(
        self, running: RunningTraceJobs, rate: FloatArray, now: float, until: float
    ) -> float:
        """The next event that triggers a plan: a job ends or arrives, or a node changes."""
        job = running.job
        left = np.maximum(self.world.steps[job] - self.world.done[job], 0.0)
        # A change of a job's rates is an event too, because ``rate`` holds only until then.
        plain = self.world.truth.next_change(job, self.world.stage[job])
        left = np.minimum(left, np.maximum(plain - self.world.done[job], 0.0))
        ends = np.maximum(self.world.resumes[job], now) + quotient(left, rate, np.inf)
        # The earliest event triggers the plan.
        coming = self.arrival[~self.arrived].min(initial=np.inf)
        event = min(float(ends.min(initial=np.inf)), float(coming), self.changes.next)
        return max(event, float(np.nextafter(now, np.inf))) if event < until else until

    def _stops(self, running: RunningTraceJobs, until: float) -> tuple[FloatArray, BoolArray]:
        """When each running job is stopped at the latest, and whether a failed node stops it."""
        stop = np.full(len(running.job), until)
        broken = np.zeros(len(running.job), bool)
        node = self.instance.cluster.numbering.node_of(running.gpu)
        names = self.instance.cluster.numbering.by_name
        for at, name, state in self.changes.ahead(until):
            # Jobs on a draining node run to the end of the round.
            if state == "down":
                hit = running.owner[node == names[name]]
                stop[hit] = np.minimum(stop[hit], at)
                broken[hit] = True
        return stop, broken

    def _save(self, job: IntArray, before: FloatArray, now: float, ends: FloatArray) -> None:
        """Update the steps saved at the last checkpoint of each job, for the interval that it ran
        now.

        The interval between checkpoints is the job's or that of the options; without one there is a
        checkpoint with each plan, so with ``replan`` on events at each event. Within a round a job
        is taken to run at a constant rate.
        """
        every = self._interval[job]
        if self.options.checkpoint is not None:
            every = np.where(every > 0, every, self.options.checkpoint)
        each_round = every == 0
        self.saved[job[each_round]] = before[each_round]
        # The first interval begins when the job starts, or when its state is restored.
        job, before, ends, every = (array[~each_round] for array in (job, before, ends, every))
        since = np.maximum(self.begun[job], self.world.resumes[job])
        last = since + np.floor((ends - since) / every + EARLY) * every
        first = np.maximum(now, since)
        part = quotient(last - first, ends - first)
        new = (ends > first) & (last >= first) & (last > since)
        made = before + part * (self.world.done[job] - before)
        self.saved[job] = np.where(new, made, self.saved[job])

    def _lose_unsaved(self, running: RunningTraceJobs) -> None:
        """A job that a plan preempts or moves loses its steps since the last checkpoint."""
        # `on` marks jobs that continue on their GPUs. All other jobs that ran were preempted or
        # moved.
        on = mask_of(running.job[~running.fresh], len(self.gone))
        stopped = self._ran[~on[self._ran] & ~self.world.finished[self._ran]]
        stopped = stopped[self._interval[stopped] > 0]
        self.world.lose(stopped, np.maximum(self.world.done[stopped] - self.saved[stopped], 0.0))
        self._ran = running.job

    def _restore_checkpoints(self, job: IntArray) -> None:
        """Jobs whose node failed lose what they did since their last checkpoint, and wait."""
        if len(job):
            self.world.lose(job, np.maximum(self.world.done[job] - self.saved[job], 0.0))
            self.scheduled.interrupted(mask_of(job, len(self.gone)))

    # --- what is written down -----------------------------------------------------------------

    def _idle(self, now: float, until: float) -> None:
        """Record an interval without jobs."""
        if not np.isfinite(until) or until <= now:
            return
        pools = self.scheduled.state.instance.cluster.pools
        available = np.array([pool.capacity(now) for pool in pools], float)
        self.recorder.round(
            now, until, running=0, waiting=0, busy=np.zeros(len(pools)), gpus=available
        )

    def _record(
        self,
        running: RunningTraceJobs,
        busy: FloatArray,
        now: float,
        until: float,
        seconds: float,
        solved: bool,
        fallback: bool,
    ) -> None:
        cluster = self.scheduled.state.instance.cluster
        numbering = cluster.numbering
        used = np.bincount(numbering.node_of(np.unique(running.gpu)), minlength=numbering.nodes)
        usable = [np.where(pool.usable(now), pool.node_gpus, 0) for pool in cluster.pools]
        # Also what drains, while it is held.
        size = np.maximum(np.concatenate([*usable, EMPTY]), used)
        available = np.bincount(numbering.pool, size, minlength=len(cluster.pools)).astype(
            np.float64
        )
        stranded = float((size - used)[used > 0].sum())
        self.recorder.round(
            now,
            until,
            running=len(running.job),
            waiting=len(self.scheduled.rows) - len(running.job),
            busy=busy,
            gpus=available,
            stranded=stranded,
            seconds=seconds,
            solved=solved,
            fallback=fallback,
        )


def _with_restart_cost(instance: Instance, seconds: float) -> Instance:
    """The instance in which every restart of every job costs ``seconds``, on every pool."""
    table = instance.jobs_table
    cost = np.full(len(table), seconds)
    workloads = Workloads(replace(each, restart_cost={}) for each in instance.workloads)
    return replace(instance, jobs_table=replace(table, restart_cost=cost), workloads=workloads)


def _shares(running: RunningTraceJobs, now: float, ends: FloatArray) -> FloatArray:
    """Fraction of its GPUs that is counted for each job, as a mean over its time: one half while
    another job shares them, then all.
    """
    share = running.share.copy()
    both = np.flatnonzero(running.partner >= 0)
    if len(both):
        place = {job: row for row, job in enumerate(running.job.tolist())}
        # Two jobs share until the first of them ends. Then the other one has the GPUs alone.
        other = ends[[place[job] for job in running.partner[both].tolist()]]
        stay = ends[both] - now
        together = np.minimum(ends[both], other) - now
        share[both] *= np.where(stay > 0, 1.0 - 0.5 * together / np.maximum(stay, 1e-300), 0.5)
    return share
