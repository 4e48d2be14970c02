"""What jobs are owed and have received: how the rounds make the time received converge to the allocation."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray, is_range
from optsched.candidates.classes import LABELS
from optsched.instance.documents import LARGEST
from optsched.rounds.rows import members
from optsched.solving.warm_start import matched


@dataclass(frozen=True)
class Ledger:
    """The allocation in force, row by row, with the time that each row is owed and has received.

    A row is a job (or two that share GPUs) in a configuration; its deficit is owed - received. When
    the allocation changes, rows that stay keep both numbers; the deficits of rows that go are their
    jobs' (``carried``), and are given to the rows that these jobs have, in proportion to the
    fractions.

    Attributes
    ----------
    key : IntArray, shape (E, 2 + LABELS)
        Job, partner (-1: alone), and the configuration, in numbers.
    fraction : FloatArray, shape (E,)
        Of the time, in the allocation in force; 0 for rows that run without a claim.
    owed, received : FloatArray, shape (E,)
        Seconds.
    runs : BoolArray, shape (E,)
        Whether the row runs now.
    carried : FloatArray, shape (jobs,)
        Seconds that a job is owed beside its rows.
    """

    key: IntArray
    fraction: FloatArray
    owed: FloatArray
    received: FloatArray
    runs: BoolArray
    carried: FloatArray

    @classmethod
    def empty(cls, jobs: int) -> Ledger:
        """Nobody is owed anything."""
        zero = np.zeros(0)
        return cls(
            np.zeros((0, 2 + LABELS), np.int64), zero, zero, zero, np.zeros(0, bool), np.zeros(jobs)
        )

    def __len__(self) -> int:
        return len(self.key)

    @property
    def job(self) -> IntArray:
        """Job of each row."""
        return self.key[:, 0]

    @property
    def partner(self) -> IntArray:
        """Partner of each row, -1 for none."""
        return self.key[:, 1]

    def after(self, seconds: float, most: FloatArray) -> Ledger:
        """After some seconds in which the rows that run now ran.

        Parameters
        ----------
        seconds : float
        most : FloatArray, shape (E,)
            Seconds that a row may have received beyond what it is owed: more was left over by the
            others, and is not held against it.
        """
        # What a row was given beyond `most` was left over: to hold it against the row would starve
        # it
        # later for what cost nobody anything.
        owed = np.minimum(self.owed + seconds * self.fraction, LARGEST)
        received = np.minimum(np.minimum(self.received + seconds * self.runs, owed + most), LARGEST)
        return replace(self, owed=owed, received=received)

    def followed(self, seated: IntArray, others: IntArray) -> Ledger:
        """The ledger with the rows that run marked, by their keys; those without a claim are added.

        Besides those that are seated run others, as they did, which the allocation knows nothing
        of.
        """
        keys = np.concatenate([seated, others])
        place = matched(self.key.T, keys.T)
        new = np.flatnonzero(place < 0)
        runs = np.zeros(len(self) + len(new), bool)
        runs[place[place >= 0]] = True
        runs[len(self) :] = True
        zero = np.zeros(len(new))
        longer = Ledger(
            np.concatenate([self.key, keys[new]]),
            np.concatenate([self.fraction, zero]),
            np.concatenate([self.owed, zero]),
            np.concatenate([self.received, zero]),
            runs,
            self.carried,
        )
        return longer.running(runs)

    def stopped(self, jobs: BoolArray) -> Ledger:
        """After the jobs of a mask stopped running."""
        # The last entry is read for partner -1: a job alone.
        mask = np.append(jobs, False)
        return replace(self, runs=self.runs & ~mask[self.job] & ~mask[self.partner])

    def revised(self, rows: IntArray, added: int) -> Ledger:
        """The same after only the jobs at these rows stayed, in that order, and so many were added behind them.

        Rows of a job that went go with it; what its partner was owed stays with the partner.
        """
        if is_range(rows, len(self.carried)):
            return replace(self, carried=np.concatenate([self.carried + 0.0, np.zeros(added)]))
        # The last entry maps partner -1 to itself.
        place = np.full(len(self.carried) + 1, -1, np.int64)
        place[rows] = np.arange(len(rows))
        job = place[self.job]
        partner = place[self.partner]
        gone = (job < 0) | ((partner < 0) & (self.partner >= 0))
        carried = np.concatenate([_carried(self, gone)[rows], np.zeros(added)])
        kept = ~gone
        key = self.key[kept]
        key[:, 0], key[:, 1] = job[kept], partner[kept]
        return Ledger(
            key, self.fraction[kept], self.owed[kept], self.received[kept], self.runs[kept], carried
        )

    def under(self, key: IntArray, fraction: FloatArray) -> Ledger:
        """The ledger of another allocation, of which nothing runs yet.

        Parameters
        ----------
        key : IntArray, shape (E', 2 + LABELS)
        fraction : FloatArray, shape (E',)
        """
        found = matched(self.key.T, key.T)
        owed = np.where(found >= 0, self.owed[found], 0.0) if len(self) else np.zeros(len(key))
        received = (
            np.where(found >= 0, self.received[found], 0.0) if len(self) else np.zeros(len(key))
        )
        gone = np.ones(len(self), bool)
        gone[found[found >= 0]] = False
        carried = _carried(self, gone)
        job = key[:, 0]
        partner = key[:, 1]
        # What rows that are gone were owed goes to the rows of their jobs, by fraction. A pair
        # gets the
        # mean of what its two jobs would give it.
        total = np.bincount(job, fraction, minlength=len(carried))
        shared = partner >= 0
        total += np.bincount(partner[shared], fraction[shared], minlength=len(carried))
        part = np.divide(carried, total, out=np.zeros(len(carried)), where=total > 0)
        other = np.where(shared, part[partner], part[job])
        owed = owed + fraction * (part[job] + other) / 2.0
        return Ledger(
            key,
            fraction,
            owed,
            received,
            np.zeros(len(key), bool),
            np.where(total > 0, 0.0, carried),
        )

    def running(self, rows: BoolArray) -> Ledger:
        """The same with these rows running; rows without a claim that do not run are left out."""
        # A row without a claim that stops has no further use; what it received stays with its jobs.
        kept = rows | (self.fraction > 0)
        carried = _carried(self, ~kept)
        return Ledger(
            self.key[kept],
            self.fraction[kept],
            self.owed[kept],
            self.received[kept],
            rows[kept],
            carried,
        )

    def jobs_of(self, rows: BoolArray) -> BoolArray:
        """Mask of the jobs of some rows, shape (jobs,)."""
        return members(self.job[rows], self.partner[rows], len(self.carried))

    def runs_whole(self, jobs: BoolArray) -> BoolArray:
        """Mask of the rows that run and whose jobs are all of this mask, shape (E,)."""
        mask = np.append(jobs, True)
        return np.asarray(self.runs & mask[self.job] & mask[self.partner])

    @property
    def partner_now(self) -> IntArray:
        """The job with which each job shares its GPUs now, -1 for none; shape (jobs,)."""
        pairs = self.key[self.runs & (self.partner >= 0)]
        partner = np.full(len(self.carried), -1, np.int64)
        partner[pairs[:, 0]], partner[pairs[:, 1]] = pairs[:, 1], pairs[:, 0]
        return partner

    @property
    def deficit(self) -> FloatArray:
        """Seconds that each row is owed, negative if it is ahead; shape (E,)."""
        return self.owed - self.received


def _carried(ledger: Ledger, gone: BoolArray) -> FloatArray:
    """What each job is owed beside its rows when some of these go."""
    deficit = ledger.deficit[gone]
    jobs = len(ledger.carried)
    job = ledger.job[gone]
    partner = ledger.partner[gone]
    shared = partner >= 0
    total = ledger.carried + np.bincount(job, deficit, minlength=jobs)
    return np.asarray(total + np.bincount(partner[shared], deficit[shared], minlength=jobs))
