"""The order of the jobs in a round that follows a ranking."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np

from optsched.arrays import BoolArray, IntArray
from optsched.display import Displayed
from optsched.errors import Interrupted, OptschedError
from optsched.ranking import RankedJobs, Ranking

log = logging.getLogger("optsched")


@dataclass(frozen=True, repr=False)
class Order(Displayed):
    """The order of the jobs; arrays of shape (jobs,).

    Attributes
    ----------
    ranking : str
        Its name.
    position : IntArray
        0 for the first job; -1 for jobs that are not in the ranking.
    renewed : BoolArray
        Jobs that the ranking renewed (`optsched.ranking.Ranking.renews`).
    strict : bool
        Whether all jobs behind a job without room wait, and stop if they run.
    fallback : str, optional
        Why the ranking failed, so that jobs are in the order of arrival.
    """

    ranking: str
    position: IntArray
    renewed: BoolArray
    strict: bool
    fallback: str | None = None

    @classmethod
    def of(cls, ranking: Ranking, jobs: RankedJobs) -> Order:
        """The order of a ranking; the order of arrival if the ranking fails."""
        count = len(jobs.instance.jobs_table)
        renewed = np.zeros(count, bool)
        why = None
        try:
            mask = _column(ranking, "the answer of renews", ranking.renews(jobs), len(jobs)).astype(
                bool
            )
            # Renewed jobs are ranked as if they had not run yet.
            keys = _keys(ranking, jobs.renewed(mask))
            renewed[jobs.job[mask]] = True
        except Interrupted:
            raise
        except OptschedError as error:
            keys = ()
            why = str(error)
        except Exception as error:  # every round needs a plan, even if a ranking fails
            keys = ()
            why = f"ranking {ranking.name} failed with {type(error).__name__}: {error}"
            log.debug("ranking %s failed", ranking.name, exc_info=True)
        position = np.full(count, -1, np.int64)
        # lexsort takes the most important key last. Ties go by arrival, then by row.
        order = np.lexsort((jobs.job, jobs.arrival, *reversed(keys)))
        position[jobs.job[order]] = np.arange(len(order))
        fallback = None if why is None else f"{why}; jobs go in the order in which they arrived"
        return cls(ranking.name, position, renewed, ranking.strict, fallback)


def _keys(ranking: Ranking, jobs: RankedJobs) -> tuple[np.ndarray, ...]:
    """The sort keys of a ranking; raises `OptschedError` if they are not valid."""
    keys = ranking.keys(jobs)
    if not isinstance(keys, tuple):
        raise OptschedError(
            f"ranking {ranking.name}: keys gives {type(keys).__name__}, expected a tuple of arrays"
        )
    return tuple(_column(ranking, f"key {index}", key, len(jobs)) for index, key in enumerate(keys))


def _column(ranking: Ranking, what: str, given: object, count: int) -> np.ndarray:
    """Values of a ranking as an array with one number per job; raises `OptschedError` otherwise."""
    values = np.asarray(given)
    expected = f"expected ({count},): one number per job"
    if values.shape != (count,):
        raise OptschedError(f"ranking {ranking.name}: {what} has shape {values.shape}, {expected}")
    if values.dtype.kind not in "biuf":
        raise OptschedError(
            f"ranking {ranking.name}: {what} has the type {values.dtype}, expected numbers"
        )
    wrong = int(np.isnan(values).sum())
    if wrong:
        raise OptschedError(
            f"ranking {ranking.name}: {what} is NaN for {wrong} of {count} jobs, expected numbers"
        )
    return values
