"""Rows of Gavel's simulator: jobs and pairs of jobs, the time that each had on each pool, its
deficit and its share.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optsched.arrays import EMPTY, BoolArray, FloatArray, IntArray, quotient
from optsched.arrays.columns import Columns
from optsched.arrays.values import replace
from optsched.simulation.allocator import TimeShares

NEVER_RUN = 1e9
"""Priority, per unit of its share, of a row that has had no time."""


@dataclass(frozen=True)
class GavelRows(Columns):
    """Rows in the order of Gavel's dictionaries: job k, then its pairs with the jobs before it.

    Attributes
    ----------
    job, partner : IntArray, shape (R,)
        The job that arrived first and its partner; the partner is -1 for a job alone.
    rate, beside : FloatArray, shape (R, pools)
        steps/s of job and partner; 0 where they cannot run.
    time, deficit, share : FloatArray, shape (R, pools)
        Seconds of each row on each pool since the last reset (it starts at half a round), seconds
        owed up to the last reset, and the fraction of the time that it is allocated.
    known : BoolArray, shape (R,)
        Whether the row existed when the allocation was made.
    """

    job: IntArray
    partner: IntArray
    rate: FloatArray
    beside: FloatArray
    time: FloatArray
    deficit: FloatArray
    share: FloatArray
    known: BoolArray

    @classmethod
    def none(cls, pools: int) -> GavelRows:
        """Before the first job."""
        table = np.zeros((0, pools))
        return cls(EMPTY, EMPTY, table, table, table, table, table, np.zeros(0, bool))

    def with_more(self, more: GavelRows) -> GavelRows:
        """These rows and those of jobs that came."""
        both = GavelRows.join([self, more])
        later = np.maximum(both.job, both.partner)
        order = np.lexsort((np.where(both.partner >= 0, both.job, -1), later))
        return both.take(order)

    def without(self, gone: BoolArray) -> GavelRows:
        """The rows without a job that is gone (a mask over the jobs of the trace)."""
        leaves = gone[self.job] | ((self.partner >= 0) & gone[self.partner])
        return self.take(np.flatnonzero(~leaves))

    def reset(self, elapsed: float, least: float) -> GavelRows:
        """Add the time that is owed after ``elapsed`` seconds to the deficits, and set the time of
        each row to ``least``.
        """
        owed = np.where(self.known[:, np.newaxis], self.share * elapsed, 0.0)
        return replace(
            self,
            deficit=self.deficit + (owed - (self.time - least)),
            time=np.full_like(self.time, least),
        )

    def allocated(self, shares: TimeShares) -> GavelRows:
        """With a new allocation."""
        first = np.where(shares.partner >= 0, np.minimum(shares.job, shares.partner), shares.job)
        second = np.where(shares.partner >= 0, np.maximum(shares.job, shares.partner), -1)
        width = int(max(self.job.max(initial=0), self.partner.max(initial=0))) + 2
        key = self.job * width + self.partner + 1
        order = np.argsort(key, kind="stable")
        place = order[np.searchsorted(key[order], first * width + second + 1)]
        share = np.zeros_like(self.share)
        np.add.at(share, (place, shares.pool), shares.fraction)
        return replace(self, share=share, known=np.ones(len(self), bool))

    def priorities(self, pool_time: FloatArray) -> FloatArray:
        """x / f of each row on each pool, where x is its share and f the fraction of the pool's
        time that it had; shape (R, pools).
        """
        part = quotient(self.time, pool_time)
        asked = np.where(part > 0, quotient(self.share, part), self.share * NEVER_RUN)
        return np.where(self.known[:, np.newaxis] & self.possible, asked, 0.0)

    @property
    def possible(self) -> BoolArray:
        """Whether all jobs of a row can run on a pool, shape (R, pools)."""
        return (self.rate > 0) & ((self.beside > 0) | (self.partner < 0)[:, np.newaxis])
