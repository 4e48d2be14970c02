"""Rounding of fractional assignments, where jobs are split over machines, to whole jobs."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from optsched.arrays import IntArray
from optsched.errors import InvalidArgument
from optsched.program.slot_rounding import whole_jobs

NOTHING = 1e-9
"""A share up to this size counts as 0."""


def round_by_slots(share: ArrayLike, size: ArrayLike, cost: ArrayLike) -> IntArray:
    """Give each job, which several machines share, to one of them (Shmoys and Tardos).

    The cost is at most that of the shares. The load of each machine is at most that of its shares
    plus the largest job of which it has a share: ::

        sum_j cost_{i(j) j}  <=  sum_ij cost_ij share_ij
        load of i            <=  sum_j size_ij share_ij  +  max { size_ij : share_ij > 0 }

    If the shares satisfy the capacities, the result exceeds each by at most one job. If the shares
    are an optimum of the linear relaxation, the result costs at most its value.

    Parameters
    ----------
    share : array, shape (machines, jobs)
        At least 0. The shares of each job are scaled to add up to 1.
    size, cost : array, shape (machines, jobs)

    Returns
    -------
    IntArray, shape (jobs,)
        The machine of each job.

    Raises
    ------
    InvalidArgument
        Shapes differ, or a job has no share.

    References
    ----------
    D. B. Shmoys, E. Tardos, "An approximation algorithm for the generalized assignment problem",
    Mathematical Programming 62 (1993).
    """
    x, p, c = (np.asarray(each, np.float64) for each in (share, size, cost))
    for name, each in (("size", p), ("cost", c)):
        if x.ndim != 2 or each.shape != x.shape:
            raise InvalidArgument(name, f"shape {each.shape}", f"that of share, {x.shape}")
    if not (np.isfinite(x).all() and (x >= -NOTHING).all()):
        raise InvalidArgument("share", "a negative or infinite number", "0 or more")
    x = np.where(x > NOTHING, x, 0.0)
    total = x.sum(axis=0)
    if (total <= 0).any():
        without = int(np.argmin(total))
        raise InvalidArgument(
            "share", f"no share of job {without}", "a machine with a share of each job"
        )
    machine, job = (each.astype(np.int64) for each in np.nonzero(x))
    rows = whole_jobs(x[machine, job] / total[job], job, machine, p[machine, job], c[machine, job])
    return machine[rows]
