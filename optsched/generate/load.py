r"""How scarce capacity is: the level of max-min fairness against what a job could reach alone.

With the throughput T_ij of job i on pool j, weights w_i, gangs s_i, pools of W_j GPUs, a_ij = T_ij
s_i / (w_i prop_i) and prop_i = sum_j T_ij W_j / sum_j W_j, max-min fairness maximises t with a_i .
x_i >= t, sum_j x_ij <= 1 and sum_i s_i x_ij <= W_j. Two upper bounds on t*:

    tmax = min_i max_j a_ij                   every job alone in its best pool
    t*  <= p . W / sum_i min_j p_j s_i / a_ij    for any prices p >= 0 of the pools

(weak duality: at prices p job i pays at least t min_j p_j s_i / a_ij for the level t, and all jobs
together at most p . W). Where the second bound is below the first, capacity binds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from optsched.arrays import FloatArray, IntArray
from optsched.arrays.columns import Columns

# Size of the sample of jobs from which prices are computed. The bound counts all jobs.
SAMPLE = 4096
STEPS = 200


@dataclass(frozen=True, repr=False)
class GpuDemand(Columns):
    """Demand of jobs, arrays over jobs.

    Attributes
    ----------
    slow, fast : FloatArray, shape (jobs, pools)
        steps/s at the fewest and at the most GPUs that the job can have (equal for a gang); 0 where
        it cannot run. More GPUs never give more steps/s per GPU.
    gang : IntArray, shape (jobs,)
        Fewest GPUs, s_i.
    weight : FloatArray, shape (jobs,)
    sharing : FloatArray, shape (jobs,)
        Lower bound on the GPUs that a job holds, divided by s_i; 1 without co-location. If two jobs
        on the same GPUs slow each other down by f, each counts as holding f / 2 of the GPUs at full
        speed.
    """

    slow: FloatArray
    fast: FloatArray
    gang: IntArray
    weight: FloatArray
    sharing: FloatArray

    def fitting(self, W: FloatArray) -> GpuDemand:
        """The same demand, with rate 0 where the gang is larger than the pool."""
        slow = np.where(self.gang[:, np.newaxis] <= W, self.slow, 0.0)
        return replace(self, slow=slow, fast=np.where(slow > 0, self.fast, 0.0))


def normaliser(demand: GpuDemand, W: FloatArray) -> FloatArray:
    """w_i prop_i / s_i, shape (jobs,): rates divided by it are levels."""
    return np.asarray(demand.weight / demand.gang * (demand.slow @ (W / W.sum())))


def highest(demand: GpuDemand, W: FloatArray) -> float:
    """tmax: the smallest level among jobs that are alone in their best pool."""
    return float((demand.fast.max(axis=1) / normaliser(demand, W)).min())


def costs(demand: GpuDemand, W: FloatArray, prices: FloatArray) -> tuple[FloatArray, IntArray]:
    """Least cost (GPUs x price) of a level of 1 for each job, and the cheapest pool; shapes
    (jobs,).
    """
    with np.errstate(divide="ignore"):
        # Inf where it cannot run
        per_step = prices / demand.slow
    pool = per_step.argmin(axis=1)
    least = per_step[np.arange(len(pool)), pool]
    return demand.sharing * demand.gang * normaliser(demand, W) * least, pool


def level_bound(demand: GpuDemand, W: FloatArray, prices: FloatArray) -> float:
    """Upper bound of t* at these prices."""
    return float(prices @ W / costs(demand, W, prices)[0].sum())


def balanced_prices(demand: GpuDemand, W: FloatArray) -> FloatArray:
    """Prices that make the bound small:
    a price rises if a sample of the jobs demands more than its share of the pool, else it falls.

    The best of `STEPS` multiplicative steps; any prices give a valid bound. Normalised to p .
    W = 1.
    """
    sample = demand.take(slice(SAMPLE))
    prices = np.full(len(W), 1.0 / W.sum())
    best = np.inf
    kept = prices
    for step in range(STEPS):
        cost, pool = costs(sample, W, prices)
        bound = 1.0 / cost.sum()
        if bound < best:
            best = bound
            kept = prices
        # Demand of the sample for each pool, relative to the pool's capacity
        wanted = np.bincount(pool, weights=cost, minlength=len(W)) / prices / W
        prices = prices * (0.1 + wanted / wanted.max()) ** (1.0 / (2.0 + 0.2 * step))
        prices /= prices @ W
    return kept
