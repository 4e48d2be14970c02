"""What is left of resources lease by lease, for plans of leases that are made option by option."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import islice

from formulations.horizon import ROUNDING
from optsched.arrays import FloatArray

Holds = Sequence[tuple[int, float]]
"""What a job holds while it runs: resources and amounts."""


class LeaseRoom:
    """What is left of each resource in each lease.

    Plain lists: an option needs a few numbers, for which arrays cost more than they save. All
    options together look at no more numbers than the program of leases has columns.

    Parameters
    ----------
    capacity : FloatArray, shape (R, leases)
    """

    def __init__(self, capacity: FloatArray) -> None:
        self._free: list[list[float]] = capacity.tolist()

    def jobs_at_once(self, holds: Holds, leases: int, jobs: int) -> list[int]:
        """How many of some jobs can run in each of the first leases."""
        most = [jobs] * leases
        for resource, amount in holds:
            enough = (jobs - ROUNDING) * amount
            fits = [
                jobs if left >= enough else int(left / amount + ROUNDING)
                for left in islice(self._free[resource], leases)
            ]
            most = fits if len(holds) == 1 else list(map(min, most, fits))
        return most

    def take(self, holds: Holds, running: Sequence[int], sign: int = 1) -> None:
        """Count what jobs hold that run in the first leases; with sign -1 they give it back."""
        for resource, amount in holds:
            free = self._free[resource]
            for t, jobs in enumerate(running):
                if jobs:
                    free[t] -= sign * amount * jobs


def earliest(most: Sequence[int], jobs: int, needed: int) -> list[int]:
    """How many of some jobs run in each lease if they take the earliest leases,
    ``needed`` each; [] if they don't fit.

    With m_t jobs that can run in lease t they fit where  sum_t min(m_t, jobs)  >=  needed jobs.
    """
    running, over = [m if m < jobs else jobs for m in most], -needed * jobs
    over += sum(running)
    # The last leases are given up as long as those before are enough.
    while running and over >= running[-1]:
        over -= running.pop()
    if over < 0 or not running:
        return []
    running[-1] -= over
    return running


def most_that_fit(most: Sequence[int], jobs: int, needed: int) -> tuple[int, list[int]]:
    """How many of some jobs fit, and how many of them run in each lease:
    any number up to the largest one fits.

    The left side in `earliest` is concave in the number of jobs.
    """
    running = earliest(most, jobs, needed)
    if not running:
        jobs -= bisect_left(
            range(jobs), True, key=lambda fewer: bool(earliest(most, jobs - fewer, needed))
        )
        running = earliest(most, jobs, needed) if jobs else []
    return jobs, running
