"""The bound of a generalised assignment whose jobs have prices: each agent solves a knapsack."""

from __future__ import annotations

import numpy as np

from optsched.arrays import FloatArray
from optsched.decomposition.bundle import Relaxed, lagrangian
from optsched.decomposition.knapsack import MOST_CELLS, best_items
from optsched.decomposition.master import CoupledRows
from optsched.program.assignment import ROUNDING, Assignment


def assignment_bound(
    of: Assignment, price: FloatArray, step: float | None, seconds: float | None, evaluations: int
) -> float | None:
    """No assignment costs less; None where what jobs use is not in whole numbers.

    ::

        sum_j y_j  +  sum_i min { sum_j (cost_ij - y_j) z_j : sum_j use_ij z_j <= room_i, z binary }

    at the best prices y of jobs that are found. It is at least the bound of the relaxation, which has
    fractions of jobs in the place of z.

    Parameters
    ----------
    of : Assignment
    price : FloatArray, shape (agents,)
        Of room in the relaxation: the search begins at its prices of jobs.
    step : float or None
        The smallest difference between two costs.
    seconds : float or None
        Time that the search may take.
    evaluations : int
        How often each agent may solve a knapsack.

    References
    ----------
    M. L. Fisher, R. Jaikumar, L. N. Van Wassenhove, "A multiplier adjustment method for the generalized
    assignment problem", Management Science 32 (1986).
    """
    whole = np.round(of.use)
    room = np.floor(of.room + ROUNDING)
    cells = of.jobs * (room.max(initial=0.0) + 1.0)
    if (np.abs(whole - of.use) > ROUNDING).any() or cells > MOST_CELLS:
        return None
    cost = np.where(of.column >= 0, of.cost, 0.0)

    def solve(y: FloatArray) -> Relaxed:
        worth = np.where(of.column >= 0, y - cost, -1.0)
        chosen = np.array(
            [best_items(*row)[1] for row in zip(worth, whole, room, strict=True)], np.float64
        )
        return Relaxed(chosen, float((cost * chosen).sum()), chosen.sum(axis=0))

    every_job = CoupledRows.of(np.ones(of.jobs), np.ones(of.jobs))
    start = (of.cost + price[:, np.newaxis] * of.use).min(axis=0)
    found = lagrangian(
        every_job, solve, start=start, step=step, time_limit=seconds, work_limit=evaluations
    )
    return found.bound
