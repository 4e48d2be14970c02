"""What is remembered of each job: what it is owed and has received, what it has had, and how it runs.

`Ledger` makes the time received converge to the allocation over the rounds. `Service` counts time,
GPU time and starts. `Setup` and `Configured` say how jobs run: what their configurations say beside
the GPUs that they hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property

import numpy as np

from optsched.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    find_rows,
    gathered,
    is_range,
    mask_of,
    quotient,
)
from optsched.arrays.columns import Columns
from optsched.candidates.classes import LABELS
from optsched.display import Displayed
from optsched.instance.documents import LARGEST
from optsched.rounds.rows import members

# --- what jobs are owed and have received ----------------------------------------------------


@dataclass(frozen=True, repr=False)
class Ledger(Displayed):
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

    def claims(self) -> tuple[FloatArray, FloatArray]:
        """Fraction of the time of each job, and seconds that it is owed; both of shape (jobs,)."""
        jobs = len(self.carried)
        share = np.zeros(jobs)
        owed = self.carried.copy()
        for end in (self.job, self.partner):
            there = end >= 0
            share += np.bincount(end[there], self.fraction[there], minlength=jobs)
            owed += np.bincount(end[there], self.deficit[there], minlength=jobs)
        return share, owed

    def after(self, seconds: float | FloatArray, most: FloatArray) -> Ledger:
        """After some seconds, of all rows or of each, in which the rows that run now ran.

        Parameters
        ----------
        seconds : float or FloatArray, shape (E,)
        most : FloatArray, shape (E,)
            Seconds that a row may have received beyond what it is owed: more was left over by the
            others, and is not held against it.
        """
        owed = np.minimum(self.owed + seconds * self.fraction, LARGEST)
        given = self.received + seconds * self.runs
        # What a row was given beyond `most` was left over: to hold it against the row would starve
        # it later for what cost nobody anything.
        received = np.minimum(np.minimum(given, owed + most), LARGEST)
        spare = np.where(self.runs & (self.partner < 0), given - received, 0.0)
        if (spare > 0).any():
            received = received + self._counted_elsewhere(spare, owed - received)
        return replace(self, owed=owed, received=received)

    def _counted_elsewhere(self, spare: FloatArray, deficit: FloatArray) -> FloatArray:
        """Seconds that each row receives of what other rows of its job alone had to spare.

        Else a job that runs on faster GPUs than those of its claim would be owed ever more. A pair
        receives no more than both of its jobs can spare.
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
        """The ledger with the rows that run marked, by their keys; those without a claim are added.

        Besides those that are seated run others, as they did, which the allocation knows nothing
        of.
        """
        keys = np.concatenate([seated, others])
        entry = find_rows(self.key, keys)
        new = np.flatnonzero(entry < 0)
        runs = mask_of(entry[entry >= 0], len(self) + len(new))
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

    def settled(self) -> Ledger:
        """Nobody is owed anything any more; what runs runs on, without a claim."""
        runs = self.runs
        zero = np.zeros(int(runs.sum()))
        return Ledger(self.key[runs], zero, zero, zero, runs[runs], np.zeros(len(self.carried)))

    def stopped(self, jobs: BoolArray) -> Ledger:
        """After the jobs of a mask stopped running."""
        # The last entry is read for partner -1: a job alone.
        mask = np.append(jobs, False)
        return replace(self, runs=self.runs & ~mask[self.job] & ~mask[self.partner])

    def revised(self, rows: IntArray, added: int, leave: IntArray | None = None) -> Ledger:
        """The same after only the jobs at these rows stayed, in that order, and so many were added behind them.

        Rows of a job that went go with it; what its partner was owed stays with the partner.

        Parameters
        ----------
        rows : IntArray
        added : int
        leave : IntArray, shape (jobs,), optional
            Numbers in the order in which the jobs went, equal for those that went together: sums of
            floats depend on it.
        """
        if is_range(rows, len(self.carried)):
            return replace(
                self,
                carried=np.concatenate([self.carried + 0.0, np.zeros(added)]),
            )
        # The last entry maps partner -1 to itself.
        place = np.full(len(self.carried) + 1, -1, np.int64)
        place[rows] = np.arange(len(rows))
        job = place[self.job]
        partner = place[self.partner]
        removed = (job < 0) | ((partner < 0) & (self.partner >= 0))
        kept = np.flatnonzero(~removed)
        key = self.key.take(kept, axis=0)
        key[:, 0], key[:, 1] = job[kept], partner[kept]
        left = self._left_to_partners(np.flatnonzero(removed & (self.partner >= 0)), leave)
        carried = np.concatenate([left[rows], np.zeros(added)])
        return replace(self._rows(kept, carried), key=key)

    def _left_to_partners(self, pairs: IntArray, leave: IntArray | None) -> FloatArray:
        """What each job is owed beside its rows after some rows of pairs went, shape (jobs,)."""
        carried = self.carried + 0.0
        if not len(pairs):
            return carried
        count = len(pairs)
        first = np.zeros(len(carried), np.int64) if leave is None else leave
        number = np.minimum(first[self.job[pairs]], first[self.partner[pairs]])
        # Departure by departure: first what the jobs are owed that stand first in a row.
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
        """The ledger of another allocation, of which nothing runs yet.

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
        # What rows that are gone were owed goes to the rows of their jobs, by fraction. A pair
        # gets the
        # mean of what its two jobs would give it.
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
        """The same with these rows running; rows without a claim that do not run are left out."""
        # A row without a claim that stops has no further use; what it received stays with its jobs.
        kept = rows | (self.fraction > 0)
        return replace(self._rows(kept, _carried(self, ~kept)), runs=rows[kept])

    def _rows(self, kept: IntArray | BoolArray, carried: FloatArray) -> Ledger:
        """The ledger of some rows, and of what jobs are owed beside these."""
        return Ledger(
            self.key[kept],
            self.fraction[kept],
            self.owed[kept],
            self.received[kept],
            self.runs[kept],
            carried,
        )

    def jobs_of(self, rows: BoolArray) -> BoolArray:
        """Mask of the jobs of some rows, shape (jobs,)."""
        return members(self.job[rows], self.partner[rows], len(self.carried))

    def runs_whole(self, jobs: BoolArray) -> BoolArray:
        """Mask of the rows that run and whose jobs are all of this mask, shape (E,)."""
        mask = np.append(jobs, True)
        return np.asarray(self.runs & mask[self.job] & mask[self.partner])

    def earliest(self, times: FloatArray) -> FloatArray:
        """The earlier of the times of the job and the partner of each row, shape (E,)."""
        return np.minimum(times[self.job], gathered(times, self.partner, np.inf))

    @cached_property
    def row_now(self) -> IntArray:
        """The row in which each job runs, alone or as the first of two, -1 for none; shape (jobs,)."""
        row = np.full(len(self.carried), -1, np.int64)
        runs = np.flatnonzero(self.runs)
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
    return total + np.bincount(partner[shared], deficit[shared], minlength=jobs)


# --- what jobs have had ----------------------------------------------------------------------


class Standing(IntEnum):
    """What a job was told of its requirements."""

    # The numbers are in snapshots and journals: they never change.
    NONE = 0
    ADMITTED = 1
    DECLINED = 2
    PLANNED = 3
    """It is planned to meet them, but others may take its place."""


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
        When it last had none; inf while it runs.
    first_run : FloatArray
        When it first had some; inf before.
    starts : IntArray
        How often it was put on GPUs.
    speed : FloatArray
        steps/s that it is expected to make while it runs as it does now; 0 while it waits.
    resumes : FloatArray
        Seconds from which on it makes progress: a job that is started again restores its state
        first.
    executed_before, attained_before : FloatArray
        What it had when a ranking last renewed it (`optsched.ranking.Ranking.renews`): that does
        not count for its rank any more; 0 before.
    isolated : FloatArray
        steps/s at which its steps count as isolated time (``history.isolated_time``); 0 where they
        do not.
    counted : FloatArray
        Steps that have been counted so.
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
        """Of jobs that nothing is known of, but whether they run, as of now or of the time of each."""
        count = len(arrival)
        since = np.where(running, np.inf, np.minimum(arrival, now))
        first = np.where(running, now, np.inf)
        zero = np.zeros(count)
        return cls(
            zero,
            zero,
            since,
            first,
            running.astype(np.int64),
            *(zero, zero, zero, zero, zero, zero),
            np.full(count, Standing.NONE, np.int64),
        )

    def revised(self, rows: IntArray, added: Service) -> Service:
        """Those at these rows, in that order, then the added ones."""
        return Service.join([self.take(rows), added])

    def after(self, seconds: float | FloatArray, gpus: FloatArray) -> Service:
        """After some seconds, of all jobs or of each, in which each job held so many GPUs."""
        return replace(
            self,
            executed=np.minimum(self.executed + seconds * (gpus > 0), LARGEST),
            attained=np.minimum(self.attained + seconds * gpus, LARGEST),
        )

    def isolated_time(self, steps_done: FloatArray) -> FloatArray:
        """Seconds that the steps done since they were counted last would have taken in isolation."""
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
        """After a plan.

        Parameters
        ----------
        started, running : BoolArray
            Jobs that are put on GPUs, and all that run.
        speed : FloatArray
            steps/s of those that run.
        begins : FloatArray
            When those that are started have their GPUs to themselves, seconds.
        cost : FloatArray
            Seconds that a restart takes; a job that never ran has nothing to restore.
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
        """Under a formulation or ranking that is another one: what only the last one knew is gone."""
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


# --- how jobs run ----------------------------------------------------------------------------

POOL = 0
GPUS = 1
OPTION = 3
"""Places among the labels of a configuration (`Classes.configuration_labels`)."""
BESIDE = slice(OPTION, LABELS)
"""Option, workers, servers and share: what GPUs do not show. How many nodes a job spans, they do."""
WHOLE = int(np.float64(1.0).view(np.int64))


@dataclass(frozen=True)
class Setup:
    """What a configuration says beside its GPUs.

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
        """By name, what is not as for a job that has its GPUs for itself and nothing to choose."""
        served = (
            {"workers": self.workers, "servers": self.servers}
            if self.workers or self.servers
            else {}
        )
        part = {} if self.share == 1.0 else {"share": self.share}
        return part | ({} if self.option is None else {"option": self.option}) | served

    def __str__(self) -> str:
        return (
            ", ".join(f"{name} {value:g}" for name, value in self.stated().items()) or "whole GPUs"
        )


PLAIN = Setup()


def says_more(labels: IntArray) -> BoolArray:
    """Which of some configurations say more than GPUs."""
    option, workers, servers, share = labels[:, BESIDE].T
    return np.asarray((option >= 0) | (workers != 0) | (servers != 0) | (share != WHOLE))


def setups_of(key: IntArray) -> Mapping[int, Setup]:
    """How the jobs of some rows of a ledger (their keys) run, where that is more than GPUs; by the row of the job."""
    more = says_more(key[:, 2:])
    if not more.any():
        return {}
    key = key[more]
    # A key holds the bits of the share, so that keys are compared as whole numbers.
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
    """In which configuration each job runs now.

    Attributes
    ----------
    labels : IntArray, shape (jobs, LABELS)
    known : BoolArray, shape (jobs,)
        Jobs that run in it. Of a job that the caller says to run, no more than its GPUs is known
        before its first plan.
    """

    labels: IntArray
    known: BoolArray

    @classmethod
    def of(cls, ledger: Ledger, pool: IntArray, gpus: IntArray) -> Configured:
        """From the ledger, where it agrees with the pool (-1: none) and the GPUs that each job holds."""
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
        """Place in its own list of options of each job, -1 where it runs in none, or none is known; shape (jobs,)."""
        return np.where(self.known, self.labels[:, OPTION], -1)

    @cached_property
    def setups(self) -> Mapping[int, Setup]:
        """How the jobs run of which it is known, where that is more than GPUs; by the row of the job."""
        jobs = (self.known & says_more(self.labels)).nonzero()[0]
        if not len(jobs):
            return {}
        return setups_of(np.column_stack([jobs, np.full(len(jobs), -1), self.labels[jobs]]))

    def goes_on(self, job: int, setup: Setup) -> bool:
        """Whether a job that runs is said to run on as it does, so far as that is known."""
        return not self.known[job] or self.setups.get(job, PLAIN) == setup

    def like(self, jobs: IntArray, labels: IntArray) -> BoolArray:
        """Which of these jobs run as labels of configurations say, or as nobody knows; nodes and GPUs aside."""
        same: BoolArray = (self.labels[jobs][:, BESIDE] == labels[:, BESIDE]).all(axis=1)
        return same | ~self.known[jobs]


def changes(before: Configured, after: Ledger, jobs: IntArray) -> dict[int, str]:
    """Words for those of some jobs that are stopped to go on in another configuration."""
    if not len(jobs):
        return {}
    now = setups_of(after.key[after.runs])
    return {
        job: f"it goes on with {now.get(job, PLAIN)} instead of {before.setups.get(job, PLAIN)}"
        for job in jobs.tolist()
        if not before.goes_on(job, now.get(job, PLAIN))
    }
