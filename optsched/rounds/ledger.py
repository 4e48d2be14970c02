"""The records of each job from round to round.

`Ledger` has the time that rows are owed and have received; with it the time received converges to
the allocation. `Service` has the running time, GPU time and starts of each job. `Setup` and
`Configured` describe the configurations of running jobs beyond the GPUs that they hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from optsched.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    constant,
    extended,
    find_rows,
    gathered,
    is_range,
    mask_of,
    quotient,
    rows_of_table,
)
from optsched.arrays.columns import Columns
from optsched.arrays.values import cached_property, replace
from optsched.candidates.classes import LABELS
from optsched.display import Displayed
from optsched.instance.documents import LARGEST
from optsched.rounds.rows import members

# --- time owed and received ------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class Ledger(Displayed):
    """The allocation in force, row by row, with the time that each row is owed and has received.

    A row is a job (or two jobs that share GPUs) in a configuration; its deficit is owed - received.
    When the allocation changes, rows that remain keep both numbers. The deficits of rows that are
    removed are carried over to their jobs (``carried``), and from there to the new rows of these
    jobs, in proportion to the fractions.

    Attributes
    ----------
    key : IntArray, shape (E, 2 + LABELS)
        Job, partner (-1: alone), and the numbers of the configuration; a `table_of` them.
    fraction : FloatArray, shape (E,)
        Fraction of the time in the allocation in force; 0 for rows that run without a claim.
    owed, received : FloatArray, shape (E,)
        Seconds.
    runs : BoolArray, shape (E,)
        Whether the row runs now.
    carried : FloatArray, shape (jobs,)
        Seconds that a job is owed beyond its rows.
    """

    key: IntArray
    fraction: FloatArray
    owed: FloatArray
    received: FloatArray
    runs: BoolArray
    carried: FloatArray

    @classmethod
    def empty(cls, jobs: int) -> Ledger:
        """A ledger without rows and deficits."""
        zero = np.zeros(0)
        return cls(
            np.zeros((0, 2 + LABELS), np.int64),
            zero,
            zero,
            zero,
            np.zeros(0, bool),
            np.zeros(jobs),
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

    @cached_property
    def pairs(self) -> IntArray:
        """Numbers of the rows of pairs."""
        return (self.partner >= 0).nonzero()[0]

    def claims(self) -> tuple[FloatArray, FloatArray]:
        """Fraction of the time of each job, and seconds that it is owed; both of shape (jobs,)."""
        jobs = len(self.carried)
        share = np.zeros(jobs)
        owed = self.carried.copy()
        for end in (self.job, self.partner):
            present = end >= 0
            share += np.bincount(end[present], self.fraction[present], minlength=jobs)
            owed += np.bincount(end[present], self.deficit[present], minlength=jobs)
        return share, owed

    def after(self, seconds: float | FloatArray, most: FloatArray) -> Ledger:
        """The ledger after some time in which the running rows ran.

        Parameters
        ----------
        seconds : float or FloatArray, shape (E,)
        most : FloatArray, shape (E,)
            Most seconds by which the time received may exceed the time owed.
        """
        owed = np.minimum(self.owed + seconds * self.fraction, LARGEST)
        given = self.received + seconds * self.runs
        # Time beyond `most` came from idle GPUs. If it counted, the row would starve later for time
        # that no other row could use.
        received = np.minimum(np.minimum(given, owed + most), LARGEST)
        spare = np.where(self.runs & (self.partner < 0), given - received, 0.0)
        if (spare > 0).any():
            received = received + self._counted_elsewhere(spare, owed - received)
        return replace(self, owed=owed, received=received)

    def _counted_elsewhere(self, spare: FloatArray, deficit: FloatArray) -> FloatArray:
        """Seconds of other rows of a job, beyond their limits, that count for each row behind its
        claim.

        Otherwise a job that runs on faster GPUs than those of its claim would be owed ever more. A
        pair receives at most what both of its jobs can spare.
        """
        jobs = len(self.carried)
        behind = np.maximum(deficit, 0.0)
        shared = self.partner >= 0
        total = np.bincount(self.job, behind, minlength=jobs)
        total += np.bincount(self.partner[shared], behind[shared], minlength=jobs)
        paid = np.minimum(np.bincount(self.job, spare, minlength=jobs), total)
        part = quotient(paid, total)
        return behind * np.minimum(part[self.job], gathered(part, self.partner, np.inf))

    def followed(self, seated: IntArray, others: IntArray) -> Ledger:
        """The ledger in which the rows with these keys run; rows without a claim are added.

        ``others`` are running rows that are not in the allocation.
        """
        keys = np.concatenate([seated, others])
        entry = find_rows(self.key, keys)
        new = (entry < 0).nonzero()[0]
        runs = mask_of(entry[entry >= 0], len(self) + len(new))
        runs[len(self) :] = True
        zero = np.zeros(len(new))
        longer = Ledger(
            np.hstack([self.key.T, rows_of_table(keys, new).T]).T,
            np.concatenate([self.fraction, zero]),
            np.concatenate([self.owed, zero]),
            np.concatenate([self.received, zero]),
            runs,
            self.carried,
        )
        return longer.running(runs)

    def settled(self) -> Ledger:
        """A ledger of the running rows alone, without claims and deficits."""
        runs = self.runs
        zero = np.zeros(int(runs.sum()))
        key = rows_of_table(self.key, runs.nonzero()[0])
        return Ledger(key, zero, zero, zero, runs[runs], np.zeros(len(self.carried)))

    def stopped(self, jobs: BoolArray) -> Ledger:
        """After the jobs of a mask stopped running."""
        mask = np.append(jobs, False)  # the last entry is for partner -1
        return replace(self, runs=self.runs & ~mask[self.job] & ~mask[self.partner])

    def revised(self, rows: IntArray, added: int, leave: IntArray | None = None) -> Ledger:
        """The ledger after jobs left and came.

        The rows of a job that left are removed; the time that its partner is owed is carried over.

        Parameters
        ----------
        rows : IntArray
            The jobs that stay, in their new order.
        added : int
            Number of jobs that come behind them.
        leave : IntArray, shape (jobs,), optional
            Numbers in the order in which the jobs left, equal for jobs that left together: sums of
            floats depend on this order.
        """
        if is_range(rows, len(self.carried)):
            return replace(
                self,
                carried=np.concatenate([self.carried + 0.0, np.zeros(added)]),
            )
        # The last entry maps partner -1 to itself.
        new_row = np.full(len(self.carried) + 1, -1, np.int64)
        new_row[rows] = np.arange(len(rows))
        removed = new_row[self.job] < 0
        removed[self.pairs] |= new_row[self.partner[self.pairs]] < 0
        left = self._left_to_partners(self.pairs[removed[self.pairs]], leave)
        carried = np.concatenate([left[rows], np.zeros(added)])
        revised = self._rows((~removed).nonzero()[0], carried)
        for end in (revised.job, revised.partner) if len(self.pairs) else (revised.job,):
            end[:] = new_row[end]
        return revised

    def _left_to_partners(self, pairs: IntArray, leave: IntArray | None) -> FloatArray:
        """Carried time of each job after some rows of pairs are removed, shape (jobs,)."""
        carried = self.carried + 0.0
        if not len(pairs):
            return carried
        count = len(pairs)
        first = np.zeros(len(carried), np.int64) if leave is None else leave
        number = np.minimum(first[self.job[pairs]], first[self.partner[pairs]])
        # Summed departure by departure, and within one departure first for the first jobs of rows.
        group = np.stack(
            [
                np.tile(number, 2),
                np.repeat([0, 1], count),
                np.concatenate([self.job[pairs], self.partner[pairs]]),
            ]
        )
        groups, which = np.unique(group, axis=1, return_inverse=True)
        owed = np.bincount(which.ravel(), np.tile(self.deficit[pairs], 2))
        np.add.at(carried, groups[2], owed)
        return carried

    def under(self, key: IntArray, fraction: FloatArray) -> Ledger:
        """The ledger under another allocation, of which no row runs yet.

        Parameters
        ----------
        key : IntArray, shape (E', 2 + LABELS)
        fraction : FloatArray, shape (E',)
        """
        found = find_rows(self.key, key)
        owed = gathered(self.owed, found, 0.0)
        received = gathered(self.received, found, 0.0)
        gone = np.ones(len(self), bool)
        gone[found[found >= 0]] = False
        carried = _carried(self, gone)
        job = key[:, 0]
        partner = key[:, 1]
        # Carried time goes to the rows of each job by fraction. A pair gets the mean of what its
        # two jobs would give it.
        total = np.bincount(job, fraction, minlength=len(carried))
        shared = partner >= 0
        total += np.bincount(partner[shared], fraction[shared], minlength=len(carried))
        part = quotient(carried, total)
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
        """The ledger in which these rows run. Rows without a claim that do not run are removed; the
        time that they received is carried over to their jobs.
        """
        kept = rows | (self.fraction > 0)
        stays = kept.nonzero()[0]
        return replace(self._rows(stays, _carried(self, ~kept)), runs=rows[stays])

    def _rows(self, kept: IntArray, carried: FloatArray) -> Ledger:
        """The ledger of some rows with other carried times; its arrays are new."""
        return Ledger(
            rows_of_table(self.key, kept),
            self.fraction.take(kept),
            self.owed.take(kept),
            self.received.take(kept),
            self.runs.take(kept),
            carried,
        )

    def jobs_of(self, rows: BoolArray) -> BoolArray:
        """Mask of the jobs of some rows, shape (jobs,)."""
        return members(self.job[rows], self.partner[rows], len(self.carried))

    def runs_whole(self, jobs: BoolArray) -> BoolArray:
        """Mask of the running rows whose jobs are all in a mask, shape (E,)."""
        mask = np.append(jobs, True)
        return np.asarray(self.runs & mask[self.job] & mask[self.partner])

    def earliest(self, times: FloatArray) -> FloatArray:
        """The earlier of the times of job and partner of each row, shape (E,)."""
        return np.minimum(times[self.job], gathered(times, self.partner, np.inf))

    @cached_property
    def row_now(self) -> IntArray:
        """The row in which each job runs, alone or as the first of two, -1 for none; shape
        (jobs,).
        """
        row = np.full(len(self.carried), -1, np.int64)
        runs = self.runs.nonzero()[0]
        row[self.job[runs]] = runs
        return row

    @cached_property
    def partner_now(self) -> IntArray:
        """The job with which each job shares its GPUs now, -1 for none; shape (jobs,)."""
        pairs = self.key[self.runs & (self.partner >= 0)]
        partner = np.full(len(self.carried), -1, np.int64)
        partner[pairs[:, 0]], partner[pairs[:, 1]] = pairs[:, 1], pairs[:, 0]
        return partner

    @property
    def deficit(self) -> FloatArray:
        """Seconds that each row is behind its claim, negative if it is ahead; shape (E,)."""
        return self.owed - self.received


def _carried(ledger: Ledger, gone: BoolArray) -> FloatArray:
    """Carried time of each job if the rows of a mask are removed, shape (jobs,)."""
    deficit = ledger.deficit[gone]
    jobs = len(ledger.carried)
    job = ledger.job[gone]
    partner = ledger.partner[gone]
    shared = partner >= 0
    total = ledger.carried + np.bincount(job, deficit, minlength=jobs)
    return total + np.bincount(partner[shared], deficit[shared], minlength=jobs)


# --- service of jobs -------------------------------------------------------------------------


class Standing(IntEnum):
    """Whether a job is admitted with its requirements."""

    # The numbers are in snapshots and journals: they never change.
    NONE = 0
    ADMITTED = 1
    DECLINED = 2
    PLANNED = 3
    """The plan meets its requirements, but another job may replace it."""


@dataclass(frozen=True, repr=False)
class Service(Columns):
    """Arrays of shape (jobs,).

    Attributes
    ----------
    executed : FloatArray
        Seconds that a job has held GPUs.
    attained : FloatArray
        GPU seconds; where two jobs share a GPU, each has had all of it.
    waiting_since : FloatArray
        When it last lost its GPUs; inf while it runs.
    first_run : FloatArray
        When it first got GPUs; inf before.
    starts : IntArray
        How often it was started.
    speed : FloatArray
        steps/s that it is expected to make as it runs now; 0 while it waits.
    resumes : FloatArray
        Time from which it makes progress, seconds: a job that is started again restores its state
        first.
    executed_before, attained_before : FloatArray
        The values when a ranking last renewed it (`optsched.ranking.Ranking.renews`): these no
        longer count for its rank; 0 before.
    isolated : FloatArray
        steps/s at which its steps count as isolated time (``history.isolated_time``); 0 if they do
        not count.
    counted : FloatArray
        Steps that have been counted.
    standing : IntArray
        `Standing` of each job: whether it was admitted with the requirements that it has.
    """

    executed: FloatArray
    attained: FloatArray
    waiting_since: FloatArray
    first_run: FloatArray
    starts: IntArray
    speed: FloatArray
    resumes: FloatArray
    executed_before: FloatArray
    attained_before: FloatArray
    isolated: FloatArray
    counted: FloatArray
    standing: IntArray

    @classmethod
    def new(cls, arrival: FloatArray, running: BoolArray, now: float | FloatArray) -> Service:
        """The service of new jobs, at one time or at a time for each, which may already run."""
        count = len(arrival)
        since = np.where(running, np.inf, np.minimum(arrival, now))
        first = np.where(running, now, np.inf)
        zero = constant(0.0, count, np.float64)
        return cls(
            zero,
            zero,
            since,
            first,
            running.astype(np.int64),
            *(zero, zero, zero, zero, zero, zero),
            constant(Standing.NONE, count, np.int64),
        )

    def revised(self, rows: IntArray, added: Service) -> Service:
        """The service of the jobs at these rows, then of the added jobs."""
        columns = {
            name: extended(getattr(self, name), rows, getattr(added, name))
            for name in self.__dataclass_fields__
        }
        return Service(**columns)

    def after(self, seconds: float | FloatArray, gpus: FloatArray) -> Service:
        """The service after some time in which each job held a number of GPUs."""
        return replace(
            self,
            executed=np.minimum(self.executed + seconds * (gpus > 0), LARGEST),
            attained=np.minimum(self.attained + seconds * gpus, LARGEST),
        )

    def isolated_time(self, steps_done: FloatArray) -> FloatArray:
        """Seconds that the steps done since they were counted last would have taken in
        isolation.
        """
        return isolated_seconds(steps_done - self.counted, self.isolated)

    def planned(
        self,
        started: BoolArray,
        running: BoolArray,
        speed: FloatArray,
        begins: FloatArray,
        cost: FloatArray,
        now: float,
    ) -> Service:
        """The service after a plan.

        Parameters
        ----------
        started, running : BoolArray
            Jobs that are started, and all jobs that run.
        speed : FloatArray
            steps/s of the running jobs.
        begins : FloatArray
            When the GPUs of started jobs are free, seconds.
        cost : FloatArray
            Seconds that a restart takes; a job that never ran has no state to restore.
        now : float
        """
        restores = np.where(self.starts > 0, cost, 0.0)
        return replace(
            self,
            waiting_since=np.where(
                running,
                np.inf,
                np.where(np.isinf(self.waiting_since), now, self.waiting_since),
            ),
            first_run=np.where(started, np.minimum(self.first_run, now), self.first_run),
            starts=self.starts + started,
            speed=np.where(running, speed, 0.0),
            resumes=np.where(started, begins + restores, self.resumes),
        )

    def begun_anew(self) -> Service:
        """The service under another formulation or ranking: values that only the last one used are
        0.
        """
        zero = np.zeros(len(self.executed))
        return replace(
            self, executed_before=zero, attained_before=zero, isolated=zero, counted=zero
        )

    def renewed(self, jobs: BoolArray) -> Service:
        """After a ranking renewed the jobs of a mask."""
        if not jobs.any():
            return self
        return replace(
            self,
            executed_before=np.where(jobs, self.executed, self.executed_before),
            attained_before=np.where(jobs, self.attained, self.attained_before),
        )

    def stopped(self, jobs: BoolArray, now: float) -> Service:
        """After the jobs of a mask stopped running."""
        ran = jobs & np.isinf(self.waiting_since)
        return replace(
            self,
            waiting_since=np.where(ran, now, self.waiting_since),
            speed=np.where(jobs, 0.0, self.speed),
        )

    def waited(self, now: float) -> FloatArray:
        """Seconds that each job has waited; 0 for those that run."""
        return np.where(
            np.isinf(self.waiting_since),
            0.0,
            np.maximum(now - self.waiting_since, 0.0),
        )


def isolated_seconds(steps: FloatArray, rate: FloatArray) -> FloatArray:
    """Seconds that steps take at the rate of isolation (steps/s); 0 where that is 0."""
    counts = rate > 0
    made = np.where(counts, np.maximum(steps, 0.0), 0.0)
    return np.divide(made, rate, out=np.zeros(len(made)), where=counts)


# --- configurations of running jobs ----------------------------------------------------------

POOL = 0
GPUS = 1
NODES = 2
OPTION = 3
"""Positions in the labels of a configuration (`Classes.configuration_labels`)."""
BESIDE = slice(OPTION, LABELS)
"""Option, workers, servers and share: the labels that do not follow from the GPUs of a job."""
WHOLE = int(np.float64(1.0).view(np.int64))


@dataclass(frozen=True)
class Setup:
    """The part of a configuration that does not follow from the GPUs.

    Attributes
    ----------
    share : float
        Of each GPU.
    option : int, optional
        Place in the job's own list of options.
    workers, servers : int
        Of a job with parameter servers.
    """

    share: float = 1.0
    option: int | None = None
    workers: int = 0
    servers: int = 0

    def stated(self) -> dict[str, float | int]:
        """The values that differ from those of a job with whole GPUs and no options, by name."""
        stated: dict[str, float | int] = {}
        if self.share != 1.0:
            stated["share"] = self.share
        if self.option is not None:
            stated["option"] = self.option
        if self.workers or self.servers:
            stated |= {"workers": self.workers, "servers": self.servers}
        return stated

    def __str__(self) -> str:
        return (
            ", ".join(f"{name} {value:g}" for name, value in self.stated().items()) or "whole GPUs"
        )


PLAIN = Setup()


def says_more(labels: IntArray) -> BoolArray:
    """Mask of the configurations whose setup is not `PLAIN`."""
    option, workers, servers, share = labels[:, BESIDE].T
    return np.asarray((option >= 0) | (workers != 0) | (servers != 0) | (share != WHOLE))


def setups_of(key: IntArray) -> Mapping[int, Setup]:
    """Setups that are not `PLAIN` of the jobs of some rows of a ledger (their keys), by the row of
    the job.
    """
    more = says_more(key[:, 2:])
    if not more.any():
        return {}
    key = key[more]
    # A key has the bits of the share as a whole number.
    share = np.ascontiguousarray(key[:, -1]).view(np.float64).tolist()
    job_of, partner_of = key[:, :2].T.tolist()
    option_of, workers_of, servers_of, _ = key[:, 2:][:, BESIDE].T.tolist()
    found: dict[int, Setup] = {}
    for job, partner, option, workers, servers, part in zip(
        job_of, partner_of, option_of, workers_of, servers_of, share, strict=True
    ):
        setup = Setup(part, None if option < 0 else option, workers, servers)
        found[job] = setup
        if partner >= 0:
            found[partner] = setup
    return found


@dataclass(frozen=True)
class Configured:
    """The configuration in which each job runs now.

    Attributes
    ----------
    labels : IntArray, shape (jobs, LABELS)
    known : BoolArray, shape (jobs,)
        Jobs whose configuration is known. Before its first plan, only the GPUs of a running job are
        known.
    """

    labels: IntArray
    known: BoolArray

    @classmethod
    def of(cls, ledger: Ledger, pool: IntArray, gpus: IntArray) -> Configured:
        """From the ledger, if it agrees with the pool (-1: none) and the number of GPUs of each
        job.
        """
        count = len(pool)
        key = ledger.key[ledger.runs]
        labels = np.zeros((count + 1, LABELS), np.int64)
        known = np.zeros(count + 1, bool)
        for job in (key[:, 0], key[:, 1]):
            labels[job], known[job] = key[:, 2:], True
        labels = labels[:count]
        known = known[:count]
        return cls(
            labels,
            known & (labels[:, POOL] == pool) & (labels[:, GPUS] == gpus),
        )

    @property
    def option(self) -> IntArray:
        """Place of each job in its own list of options, -1 for none or if it is unknown; shape
        (jobs,).
        """
        return np.where(self.known, self.labels[:, OPTION], -1)

    @cached_property
    def setups(self) -> Mapping[int, Setup]:
        """Known setups that are not `PLAIN`, by the row of the job."""
        jobs = (self.known & says_more(self.labels)).nonzero()[0]
        if not len(jobs):
            return {}
        return setups_of(np.column_stack([jobs, np.full(len(jobs), -1), self.labels[jobs]]))

    def goes_on(self, job: int, setup: Setup) -> bool:
        """Whether a setup is that of a running job, or that is unknown."""
        return not self.known[job] or self.setups.get(job, PLAIN) == setup

    def like(self, jobs: IntArray, labels: IntArray) -> BoolArray:
        """Mask of the jobs whose setup is that of these labels, or is unknown."""
        same: BoolArray = (self.labels[jobs][:, BESIDE] == labels[:, BESIDE]).all(axis=1)
        return same | ~self.known[jobs]


def changes(before: Configured, after: Ledger, jobs: IntArray) -> dict[int, str]:
    """Texts for the jobs that continue in another configuration, by the row of the job."""
    if not len(jobs):
        return {}
    now = setups_of(after.key[after.runs])
    return {
        job: f"it goes on with {now.get(job, PLAIN)} instead of {before.setups.get(job, PLAIN)}"
        for job in jobs.tolist()
        if not before.goes_on(job, now.get(job, PLAIN))
    }
