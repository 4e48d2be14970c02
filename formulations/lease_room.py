"""Free capacity of each resource in each lease, for lease plans built one option at a time."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import islice

from formulations.horizon import ROUNDING
from optsched.arrays import FloatArray

Holds = Sequence[tuple[int, float]]
"""What a job holds while it runs: resources and amounts."""


class LeaseRoom:
    """Free capacity of each resource in each lease.

    Plain lists, not arrays: an option needs only a few numbers, and for so few arrays are slower.
    All options together read no more numbers than the program of leases has columns.

    Parameters
    ----------
    capacity : FloatArray, shape (R, leases)
    """

    def __init__(self, capacity: FloatArray) -> None:
        self._free: list[list[float]] = capacity.tolist()

    def jobs_at_once(self, holds: Holds, leases: int, jobs: int) -> list[int]:
        """How many of ``jobs`` equal jobs can run in each of the first ``leases`` leases."""
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
        """Subtract what the jobs that run in each lease hold; sign -1 adds it back."""
        for resource, amount in holds:
            free = self._free[resource]
            for t, jobs in enumerate(running):
                if jobs:
                    free[t] -= sign * amount * jobs


def earliest(most: Sequence[int], jobs: int, needed: int) -> list[int]:
    """How many jobs run in each lease if each takes ``needed`` leases, as early as possible;
    [] if they do not fit.

    If ``most[t]`` jobs can run in lease t, they fit where  sum_t min(most[t], jobs)  >=  needed jobs.
    """
    running, over = [m if m < jobs else jobs for m in most], -needed * jobs
    over += sum(running)
    # The last leases are not needed as long as the earlier ones are enough.
    while running and over >= running[-1]:
        over -= running.pop()
    if over < 0 or not running:
        return []
    running[-1] -= over
    return running


def most_that_fit(most: Sequence[int], jobs: int, needed: int) -> tuple[int, list[int]]:
    """The largest number of jobs that fits, and how many of them run in each lease.

    Every smaller number fits too, as the left side of the condition in `earliest` is concave in the
    number of jobs. So bisection finds the largest.
    """
    running = earliest(most, jobs, needed)
    if not running:
        jobs -= bisect_left(
            range(jobs), True, key=lambda fewer: bool(earliest(most, jobs - fewer, needed))
        )
        running = earliest(most, jobs, needed) if jobs else []
    return jobs, running
