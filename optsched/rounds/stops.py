"""What it costs to stop jobs and to start them again, and when they have their GPUs to themselves.

Code that decides whether a job is stopped or moved asks here, and so does the code that carries a
plan out. A job that a plan stops or moves at a time t

- loses the work that it did since its last checkpoint (`Stops.work_lost`);
- keeps its GPUs for the grace time g of the policy, in which it saves its state and makes no
  progress. The same plan may give these GPUs to others, who begin on them at t + g;
- restores its state when it starts again, which takes as long as its workload states for that place
  (`optsched.instance.restart`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.display import Displayed, count
from optsched.formulation import Restarts
from optsched.instance import Instance
from optsched.instance.restart import restart_costs
from optsched.instance.running import RunningJobs
from optsched.instance.staying import exempt_left, held_for
from optsched.rounds.ledger import Service
from optsched.rounds.policy import RoundPolicy

EARLY = 1e-9
"""Part of a checkpoint interval by which clocks may be off."""


@dataclass(frozen=True)
class Grace:
    """GPUs of jobs that were stopped, which these hold until a time (seconds)."""

    gpus: tuple[str, ...]
    until: float


@dataclass(frozen=True)
class PastMoves:
    """How many running jobs a plan preempted or moved at a time (seconds)."""

    at: float
    jobs: int


@dataclass(frozen=True, eq=False, repr=False)
class Stops(Displayed):
    """What it costs to stop jobs now, and who may not be stopped.

    Attributes
    ----------
    instance : Instance
    policy : RoundPolicy
    service : Service
        What each job has had.
    graces : tuple of Grace
        Of jobs that were stopped before.
    """

    instance: Instance
    policy: RoundPolicy
    service: Service
    graces: tuple[Grace, ...] = ()

    def _headline(self) -> str:
        free = int(self.preemptible[self.instance.jobs_table.places.job].sum())
        return f"{free:,} of {count(len(self.instance.jobs_table.places), 'running job')} may stop"

    @cached_property
    def preemptible(self) -> BoolArray:
        """Jobs that may be stopped now; shape (jobs,).

        A job that was put on its GPUs less than its exempt time ago may not.
        """
        exempt = exempt_left(self.instance, self.policy.exempt_time) > 0
        return self.instance.jobs_table.preemptible & ~exempt

    # --- what a stop costs ----------------------------------------------------------------

    @cached_property
    def work_lost(self) -> FloatArray:
        """Seconds of work that each job loses if it is stopped now; shape (jobs,).

        It is what the job did since its last checkpoint. Checkpoints come every
        `checkpoint_interval` seconds of running, the first one so long after the job began to make
        progress. A job without an interval saves its state when it is stopped.
        """
        table = self.instance.jobs_table
        places = table.places
        lost = np.zeros(len(table))
        own = checkpoint_interval(table.checkpoint_interval, self.policy)[places.job]
        writes = own > 0
        job = places.job[writes]
        every = own[writes]
        began = np.fmax(places.since[writes], self.service.resumes[job])
        now = self.instance.now
        ran = np.maximum(now - np.where(np.isnan(began), now, began), 0.0)
        lost[job] = np.maximum(ran - np.floor(ran / every + EARLY) * every, 0.0)
        return lost

    @cached_property
    def before_restart(self) -> FloatArray:
        """Seconds that each job loses if it is stopped now, before it starts again; shape (jobs,)."""
        grace = np.zeros(len(self.work_lost))
        grace[self.instance.jobs_table.places.job] = self.policy.grace_time
        return self.work_lost + grace

    @cached_property
    def cost(self) -> FloatArray:
        """Seconds that it costs to stop each job and start it where it runs; shape (jobs,).

        For jobs that wait: what their first GPUs cost, whatever these are.
        """
        places = self.instance.jobs_table.places
        restart = self.instance.jobs_table.restart_cost.copy()
        restart[places.job] = self.restart(places.job, places.pool, places.length)
        return self.before_restart + restart

    def restart(self, job: IntArray, pool: IntArray, gpus: IntArray) -> FloatArray:
        """Seconds that jobs take to restore their state on so many GPUs of a pool."""
        return restart_costs(self.instance, job, pool, gpus)

    def costless(self, job: IntArray, pool: IntArray, gpus: IntArray) -> BoolArray:
        """Whether jobs may be stopped there at any moment and lose nothing but what they did there."""
        table = self.instance.jobs_table
        exempt = np.maximum(table.exempt_time[job], self.policy.exempt_time) > 0
        leaves = table.preemptible[job] & ~exempt & (self.policy.grace_time == 0)
        return np.asarray(leaves & (self.restart(job, pool, gpus) == 0))

    @property
    def restarts(self) -> Restarts:
        """What formulations know of them."""
        held = held_for(self.instance, self.policy.exempt_time)
        return Restarts(self.service.starts > 0, self._restoring, held)

    @cached_property
    def _restoring(self) -> FloatArray:
        """Seconds until each job has restored its state; 0 for one that has; shape (jobs,)."""
        return np.maximum(self.service.resumes - self.instance.now, 0.0)

    def delays(
        self, job: IntArray, pool: IntArray, gpus: IntArray, continues: BoolArray
    ) -> FloatArray:
        """Seconds until jobs make progress there: what is left of a restart where they go on."""
        again = self.before_restart[job] + self.restart(job, pool, gpus)
        # A job that never ran has no state to restore.
        again = np.where(self.service.starts[job] > 0, again, 0.0)
        return np.where(continues, self._restoring[job], again)

    # --- when GPUs are free ---------------------------------------------------------------

    def graces_after(self, stopped: BoolArray) -> tuple[Grace, ...]:
        """Those that still last, with those of the jobs (a mask) that a plan stops now."""
        now = self.instance.now
        lasting = tuple(grace for grace in self.graces if grace.until > now)
        places = self.instance.jobs_table.places
        some = np.flatnonzero(stopped[places.job])
        if not len(some) or not self.policy.grace_time:
            return lasting
        gpus = tuple(gpu for held in places.gpus(some) for gpu in held)
        return (*lasting, Grace(gpus, now + self.policy.grace_time))

    def begins(self, running: RunningJobs, stopped: BoolArray) -> FloatArray:
        """When jobs that a plan starts have their GPUs to themselves, seconds; shape (jobs,).

        Parameters
        ----------
        running : RunningJobs
            What runs by the plan.
        stopped : BoolArray, shape (jobs,)
            Jobs that it stops or moves.
        """
        now = self.instance.now
        begins = np.full(len(stopped), now)
        graces = self.graces_after(stopped)
        if not graces:
            return begins
        numbering = self.instance.cluster.numbering
        # The last entry is for GPUs that are gone: their number is -1.
        free = np.full(numbering.gpus + 1, now)
        for grace in graces:
            gpu = numbering.numbers(grace.gpus)
            free[gpu] = np.maximum(free[gpu], grace.until)
        owner = running.job[running.owner]
        np.maximum.at(begins, owner, free[running.numbers(numbering)])
        # Who moves to other GPUs saves its state first.
        begins[stopped] = np.maximum(begins[stopped], now + self.policy.grace_time)
        return begins


def checkpoint_interval(own: FloatArray, policy: RoundPolicy) -> FloatArray:
    """Seconds between two checkpoints of each job: its own, else those of the policy."""
    return np.where(own > 0, own, policy.checkpoint_interval)


def stops_document(graces: Sequence[Grace], moves: Sequence[PastMoves]) -> dict[str, object]:
    """What the document of a state has of jobs that were stopped: nothing, where there are none."""
    gpus = [{"gpus": list(grace.gpus), "until": grace.until} for grace in graces]
    counts = [asdict(item) for item in moves]
    return ({"graces": gpus} if gpus else {}) | ({"moves": counts} if counts else {})
