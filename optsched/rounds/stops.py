"""The cost of stopping jobs and starting them again, and the times at which their GPUs are free.

The code that decides about stops and moves uses this module, and so does the code that applies a
plan. A job that a plan stops or moves at a time t

- loses the work that it did since its last checkpoint (`Stops.work_lost`);
- keeps its GPUs for the grace time g of the policy, in which it saves its state and makes no
  progress. The same plan may give these GPUs to other jobs, which begin at t + g;
- restores its state when it starts again. The workload states how long this takes on each pool
  (`optsched.instance.restart`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.arrays.values import cached_property
from optsched.display import Displayed, count
from optsched.formulation import Restarts
from optsched.instance import Instance
from optsched.instance.restart import restart_costs
from optsched.instance.running import RunningJobs
from optsched.instance.staying import exempt_left, held_for
from optsched.rounds.ledger import Service
from optsched.rounds.policy import RoundPolicy

EARLY = 1e-9
"""Tolerance for clocks, as a part of a checkpoint interval."""


@dataclass(frozen=True)
class Grace:
    """GPUs that stopped jobs still hold until a time (seconds)."""

    gpus: tuple[str, ...]
    until: float


@dataclass(frozen=True)
class PastMoves:
    """The number of running jobs that a plan preempted or moved at a time (seconds)."""

    at: float
    jobs: int


@dataclass(frozen=True, eq=False, repr=False)
class Stops(Displayed):
    """The cost of stopping jobs now, and the jobs that must not be stopped.

    Attributes
    ----------
    instance : Instance
    policy : RoundPolicy
    service : Service
    graces : tuple of Grace
        GPUs of jobs that earlier plans stopped.
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
        """Mask of the jobs that may be stopped now: preemptible, and not within their exempt time;
        shape (jobs,).
        """
        exempt = exempt_left(self.instance, self.policy.exempt_time) > 0
        return self.instance.jobs_table.preemptible & ~exempt

    # --- the cost of a stop ---------------------------------------------------------------

    @cached_property
    def work_lost(self) -> FloatArray:
        """Seconds of work that each job loses if it is stopped now; shape (jobs,).

        This is the work since its last checkpoint. A job writes a checkpoint every
        `checkpoint_interval` seconds after it began to make progress. A job without an interval
        saves its state when it is stopped and loses nothing.
        """
        table = self.instance.jobs_table
        places = table.places
        lost = np.zeros(len(table))
        interval = checkpoint_interval(table.checkpoint_interval, self.policy)[places.job]
        writes = interval > 0
        job = places.job[writes]
        every = interval[writes]
        began = np.fmax(places.since[writes], self.service.resumes[job])
        now = self.instance.now
        ran = np.maximum(now - np.where(np.isnan(began), now, began), 0.0)
        lost[job] = np.maximum(ran - np.floor(ran / every + EARLY) * every, 0.0)
        return lost

    @cached_property
    def before_restart(self) -> FloatArray:
        """Seconds that a stop costs each job before it can start again; shape (jobs,)."""
        grace = np.zeros(len(self.work_lost))
        grace[self.instance.jobs_table.places.job] = self.policy.grace_time
        return self.work_lost + grace

    @cached_property
    def cost(self) -> FloatArray:
        """Seconds that it costs to stop each job and start it again on its GPUs; shape (jobs,).

        For waiting jobs it is the restart cost that the job itself states.
        """
        places = self.instance.jobs_table.places
        restart = self.instance.jobs_table.restart_cost.copy()
        restart[places.job] = self.restart(places.job, places.pool, places.length)
        return self.before_restart + restart

    def restart(self, job: IntArray, pool: IntArray, gpus: IntArray) -> FloatArray:
        """Seconds that jobs take to restore their state on so many GPUs of a pool."""
        return restart_costs(self.instance, job, pool, gpus)

    def costless(self, job: IntArray, pool: IntArray, gpus: IntArray) -> BoolArray:
        """Whether jobs may be stopped there at any time without any cost but their work there."""
        table = self.instance.jobs_table
        exempt = np.maximum(table.exempt_time[job], self.policy.exempt_time) > 0
        leaves = table.preemptible[job] & ~exempt & (self.policy.grace_time == 0)
        return np.asarray(leaves & (self.restart(job, pool, gpus) == 0))

    @property
    def restarts(self) -> Restarts:
        """The restart data that formulations use."""
        held = held_for(self.instance, self.policy.exempt_time)
        return Restarts(self.service.starts > 0, self._restoring, held, in_rounds=True)

    @cached_property
    def _restoring(self) -> FloatArray:
        """Seconds until each job has restored its state; shape (jobs,)."""
        return np.maximum(self.service.resumes - self.instance.now, 0.0)

    def delays(
        self, job: IntArray, pool: IntArray, gpus: IntArray, continues: BoolArray
    ) -> FloatArray:
        """Seconds until jobs make progress there: the rest of a restart where they continue, else a
        whole restart.
        """
        again = self.before_restart[job] + self.restart(job, pool, gpus)
        # A job that never ran has no state to restore.
        again = np.where(self.service.starts[job] > 0, again, 0.0)
        return np.where(continues, self._restoring[job], again)

    # --- when GPUs are free ---------------------------------------------------------------

    def graces_after(self, stopped: BoolArray) -> tuple[Grace, ...]:
        """The graces that have not ended, and those of the jobs (a mask) that a plan stops now."""
        now = self.instance.now
        lasting = tuple(grace for grace in self.graces if grace.until > now)
        places = self.instance.jobs_table.places
        place = stopped[places.job].nonzero()[0]
        if not len(place) or not self.policy.grace_time:
            return lasting
        gpus = tuple(gpu for held in places.gpus(place) for gpu in held)
        return (*lasting, Grace(gpus, now + self.policy.grace_time))

    def begins(self, running: RunningJobs, stopped: BoolArray) -> FloatArray:
        """When the GPUs of jobs that a plan starts are free, seconds; shape (jobs,).

        Parameters
        ----------
        running : RunningJobs
            The jobs that run by the plan.
        stopped : BoolArray, shape (jobs,)
            Jobs that the plan stops or moves.
        """
        now = self.instance.now
        begins = np.full(len(stopped), now)
        graces = self.graces_after(stopped)
        if not graces:
            return begins
        numbering = self.instance.cluster.numbering
        # The last entry is for GPUs that were removed: their number is -1.
        free = np.full(numbering.gpus + 1, now)
        for grace in graces:
            gpu = numbering.numbers(grace.gpus)
            free[gpu] = np.maximum(free[gpu], grace.until)
        owner = running.job[running.owner]
        np.maximum.at(begins, owner, free[running.numbers(numbering)])
        # A job that moves saves its state first.
        begins[stopped] = np.maximum(begins[stopped], now + self.policy.grace_time)
        return begins


def checkpoint_interval(of_job: FloatArray, policy: RoundPolicy) -> FloatArray:
    """Seconds between two checkpoints of each job: the job's value if it states one, else the
    policy's.
    """
    return np.where(of_job > 0, of_job, policy.checkpoint_interval)


def stops_document(graces: Sequence[Grace], moves: Sequence[PastMoves]) -> dict[str, object]:
    """The keys ``graces`` and ``moves`` of the document of a state; empty lists are left out."""
    gpus = [{"gpus": list(grace.gpus), "until": grace.until} for grace in graces]
    counts = [asdict(item) for item in moves]
    return ({"graces": gpus} if gpus else {}) | ({"moves": counts} if counts else {})
