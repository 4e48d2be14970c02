"""AlloX by the rules of Gavel's repository: a job that has a GPU keeps it; other jobs are matched
to the free GPUs.
"""

from __future__ import annotations

import numpy as np

from optsched.arrays import FloatArray, IntArray
from optsched.assembly import make_formulation
from optsched.errors import UsageError
from optsched.instance import Instance
from optsched.rounds.policy import RoundPolicy
from optsched.simulation.allocator import Allocator, TimeShares
from optsched.simulation.world import World

MODE = "mode gavel"
SLOWEST = 1e-10
"""steps/s of a job where it cannot run."""
MOST_CELLS = 50_000_000


class AlloxAllocator(Allocator):
    """Gavel's policy ``allox`` (repository, commit c4fa400).

    With w free GPUs and m jobs that have none, of which the oldest max(floor(alpha m), w) count:
    assign each to (GPU, k = 1, 2, ..., the k-th from the end of its queue) at the cost k N_i / T_ig
    + age_i; the first job on a GPU has all of its time from now on, and keeps it. There are many
    optimal assignments. As in Gavel, the result is the assignment that scipy returns for GPUs in
    the order of the names of their pools. `formulations.allox` has the same optimal cost, but may
    assign equal GPUs in another way. A gang counts as one GPU, as in Shockwave's variant; Gavel's
    original has no gangs here.

    Parameters
    ----------
    instance : Instance
    policy : RoundPolicy
    rate : FloatArray, shape (jobs, pools)
        steps/s.
    """

    def __init__(self, instance: Instance, policy: RoundPolicy, rate: FloatArray) -> None:
        super().__init__(instance, policy, MODE)
        options = make_formulation(policy.formulation, policy.options).options
        self._alpha = float(options.alpha)
        self._rate = np.where(rate > 0, rate, SLOWEST)
        self._kept: TimeShares = TimeShares.none()

    def shares(
        self, jobs: IntArray, world: World, isolated_time: FloatArray, now: float
    ) -> TimeShares:
        pools = self.instance.cluster.pools
        table = self.instance.jobs_table
        kept = self._kept.take(np.flatnonzero(np.isin(self._kept.job, jobs)))
        free = np.array([pool.capacity(now) for pool in pools]) - np.bincount(
            kept.pool, minlength=len(pools)
        )
        by_name = np.array(sorted(range(len(pools)), key=lambda pool: pools[pool].name), np.int64)
        gpu = np.repeat(by_name, np.maximum(free[by_name], 0))
        waiting = np.setdiff1d(jobs, kept.job)
        waiting = waiting[np.argsort(table.arrival[waiting], kind="stable")]
        waiting = waiting[: max(int(self._alpha * len(waiting)), len(gpu))]
        if len(gpu) and len(waiting):
            left = (world.steps - world.done)[waiting]
            job, pool = self._first(
                left, self._rate[waiting[:, np.newaxis], gpu], now - table.arrival[waiting]
            )
            job = waiting[job]
            pool = gpu[pool]
            ones = np.ones(len(job))
            new = TimeShares(
                job,
                np.full(len(job), -1),
                pool,
                ones.astype(np.int64),
                ones.astype(np.int64),
                ones,
                ones,
                self._rate[job, pool],
                np.zeros(len(job)),
            )
            kept = TimeShares.join([kept, new])
        self._kept = kept
        return kept

    def _first(
        self, left: FloatArray, rate: FloatArray, age: FloatArray
    ) -> tuple[IntArray, IntArray]:
        """Match jobs to places in the queues of GPUs; returns the first job of each queue and its
        GPU.
        """
        m, w = rate.shape
        if m * m * w > MOST_CELLS:
            raise UsageError(
                f"allox in {MODE} has a matrix of {m} jobs x {m * w} places, "
                f"more than {MOST_CELLS:g} cells: use mode "
                "rounds"
            )
        # Cost matrix of shape (m, m w). Columns: by place from the end of the queue, then by GPU.
        seconds = left[:, np.newaxis] / rate
        cost = (
            np.concatenate([place * seconds for place in range(1, m + 1)], axis=1)
            + age[:, np.newaxis]
        )
        from scipy.optimize import linear_sum_assignment  # takes a quarter of a second to load

        job, column = linear_sum_assignment(cost)
        place = column // w
        gpu = column % w
        # k counts from the end of a queue, so the job with the largest k on a GPU runs first.
        order = np.lexsort((-place, gpu))
        first = order[np.flatnonzero(np.append(True, np.diff(gpu[order]) != 0))]
        return job[first], gpu[first]
