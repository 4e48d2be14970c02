"""Lagrangian prices of the jobs of a generalised assignment: each agent solves a knapsack."""

from __future__ import annotations

import numpy as np

from optsched.arrays import FloatArray
from optsched.decomposition.bundle import Relaxed, lagrangian
from optsched.decomposition.master import CoupledRows
from optsched.program.assignment import AgentKnapsacks, Assignment


def prices_of_jobs(
    of: Assignment, price: FloatArray, step: float | None, seconds: float | None, evaluations: int
) -> FloatArray:
    """Prices y of jobs that make this Lagrangian bound as large as the search finds, shape (jobs,).

    ::

        sum_j y_j  +  sum_i min { sum_j (cost_ij - y_j) z_j : sum_j use_ij z_j <= room_i, z binary }

    No assignment costs less than the bound. At the best prices it is at least the value of the
    linear relaxation, where z may be fractional.

    Parameters
    ----------
    of : Assignment
    price : FloatArray, shape (agents,)
        Prices of room in the linear relaxation. The search starts from the prices of jobs that they
        imply.
    step : float or None
        All costs are multiples of it.
    seconds : float or None
        Time that the search may take.
    evaluations : int
        Most knapsacks that each agent solves.

    References
    ----------
    M. L. Fisher, R. Jaikumar, L. N. Van Wassenhove, "A multiplier adjustment method for the
    generalized assignment problem", Management Science 32 (1986).
    """
    knapsacks = AgentKnapsacks.of(of)
    cost = np.where(of.column >= 0, of.cost, 0.0)

    def solve(y: FloatArray) -> Relaxed:
        chosen = knapsacks.best(y - cost)[1].astype(np.float64)
        return Relaxed(chosen, float((cost * chosen).sum()), chosen.sum(axis=0))

    every_job = CoupledRows.of(np.ones(of.jobs), np.ones(of.jobs))
    start = (of.cost + price[:, np.newaxis] * of.use).min(axis=0)
    return lagrangian(
        every_job, solve, start=start, step=step, time_limit=seconds, work_limit=evaluations
    ).y
