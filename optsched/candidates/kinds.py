"""Kinds: jobs with equal columns, found before any column is made."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from optsched.arrays import (
    EMPTY,
    BoolArray,
    Groups,
    IntArray,
    constant,
    find_sorted,
    group_rows,
    joined,
    lengths,
    looked_up,
    owners,
    pointers,
    ranges,
    take_rows,
)
from optsched.arrays.values import cached_property
from optsched.display import Displayed
from optsched.errors import InvalidInput
from optsched.instance import Instance, OptionTable
from optsched.performance import JobBatch, TableModel
from optsched.performance.parameter_server import KEY, ParameterServers

STRIDE = 2**32
"""Larger than any GPU count."""
MOST_COUNTS = 100_000
"""Most GPU counts of one job."""
TABLES = ("cluster", "rates", "options", "workloads", "colocation")
"""Parts of an instance, besides its jobs, that determine the columns."""
DECISIVE = (
    "names",
    "rates",
    "workload",
    "gpus_min",
    "gpus_max",
    "levels",
    "level_lists",
    "options",
    "steps",
)
"""Parts of the job table that determine the columns."""


class Absence(IntEnum):
    """Why a job is not in the program."""

    PRESENT = 0
    NO_STEP_LEFT = 1
    ARRIVES_LATER = 2
    NO_COLUMN = 3
    EXCLUDED = 4
    """The formulation excludes such jobs (`Candidates.without_jobs`)."""


_PRESENT = int(Absence.PRESENT)  # numpy compares with a member of an enum in five times the time


def is_present(absence: NDArray[np.uint8]) -> BoolArray:
    """Whether each job is in the program."""
    present: BoolArray = absence == _PRESENT
    return present


@dataclass(frozen=True, repr=False, eq=False)
class Kinds(Displayed):
    """Kinds of the jobs that are present, in order of first appearance.

    Attributes
    ----------
    of_job : IntArray, shape (jobs,)
        Kind of each job, -1 where absent.
    absence : NDArray[uint8], shape (jobs,)
        `Absence` of each job.
    first : IntArray, shape (K,)
        First job of each kind.
    workload, profile, gpus_min, gpus_max, levels, options : IntArray, shape (K,)
        As in the job table; ``profile`` is the rate profile of the kind (-1: none).
    own : BoolArray, shape (K,)
        Whether the profile is stated by the jobs themselves, not by their workload.
    law : IntArray, shape (K,)
        Row of ``laws`` for kinds that run on workers and parameter servers, else -1.
    level_lists : tuple of tuples
        As in the job table.
    laws : ParameterServers
    """

    of_job: IntArray
    absence: NDArray[np.uint8]
    first: IntArray
    workload: IntArray
    profile: IntArray
    own: BoolArray
    gpus_min: IntArray
    gpus_max: IntArray
    levels: IntArray
    options: IntArray
    law: IntArray
    level_lists: tuple[tuple[int, ...], ...]
    laws: ParameterServers

    def __len__(self) -> int:
        return len(self.first)

    @property
    def groups(self) -> Groups:
        """The kinds as groups of jobs; requires that no job is absent."""
        return Groups(self.first, self.of_job, np.bincount(self.of_job, minlength=len(self)))

    @cached_property
    def batch(self) -> JobBatch:
        """The kinds as performance models see them."""
        return JobBatch(workload=self.workload, profile=self.profile, own=self.own, gang=self.gang)

    @cached_property
    def gang(self) -> IntArray:
        """Smallest GPU count of each kind."""
        if not self.level_lists:
            return self.gpus_min
        lowest = np.array([*(counts[0] for counts in self.level_lists), 0], np.int64)
        return np.maximum(self.gpus_min, lowest[self.levels])

    @cached_property
    def _levels(self) -> tuple[IntArray, IntArray]:
        """All level lists one after the other,
        as sorted keys ``list * STRIDE + count``, and where each begins.
        """
        length = np.array([len(counts) for counts in self.level_lists], np.int64)
        flat = np.array([count for counts in self.level_lists for count in counts], np.int64)
        start = pointers(length)
        return owners(length) * STRIDE + flat, start

    def of_same_jobs(self, before: Instance, now: Instance, future: bool) -> bool:
        """Whether instance ``now`` has the same jobs, rates and nodes as ``before``, from which
        these kinds were made.

        Tables are compared by identity, because revised instances share unchanged tables.
        """
        tables = (before, now, TABLES), (before.jobs_table, now.jobs_table, DECISIVE)
        same = all(getattr(a, name) is getattr(b, name) for a, b, names in tables for name in names)
        return (
            same
            and before.cluster.usable_alike(before.now, now.now)
            and np.array_equal(self.absence, absence_of(now, future))
        )

    def counts(
        self, limit: int, listed: TableModel, *, complete: bool
    ) -> tuple[IntArray, IntArray]:
        """GPU counts of the kinds with rates (neither options nor a law), as pairs (kind, count).

        A range without levels gives every count up to ``limit``, the largest pool. If the kind has
        a rate from its own table, or if the tables are ``complete`` (no model adds rates), it gives
        only the counts that the table lists. The smallest count is always included, so that a job
        that cannot run has a dropped column with a reason.
        """
        (plain,) = ((self.options < 0) & (self.law < 0) & (self.levels < 0)).nonzero()
        rows = None if len(plain) == len(self) else plain
        low = take_rows(self.gpus_min, rows)
        high = np.maximum(np.minimum(take_rows(self.gpus_max, rows), limit), low)
        if not self.level_lists and (low == high).all():  # no kind is elastic
            return plain, low
        # If the table is complete, a count that it does not list has no rate.
        by_table = take_rows(self.own, rows) | complete
        row, count = listed.listed_counts(
            take_rows(self.profile, rows), low, np.where(by_table, high, low)
        )
        length = np.where(by_table, 0, high - low)
        self._refuse_endless_range(plain, length)
        leveled, level_count = self._level_counts()
        return (
            joined([plain, plain[row], plain.repeat(length), leveled]),
            joined([low, count, ranges(low + 1, length), level_count]),
        )

    def _refuse_endless_range(self, kind: IntArray, length: IntArray) -> None:
        """Refuse a range with so many GPU counts that the time limit could not interrupt their
        generation.
        """
        if length.max(initial=0) < MOST_COUNTS:
            return
        widest = int(np.argmax(length))
        raise InvalidInput(
            f"jobs[{int(self.first[kind[widest]])}].gpus",
            f"a range of {int(length[widest]) + 1:,} numbers of GPUs that the largest pool has",
            f"at most {MOST_COUNTS:,} where the rates come from a model: "
            "state the numbers as levels",
        )

    def _level_counts(self) -> tuple[IntArray, IntArray]:
        """GPU counts of the kinds with levels, as pairs (kind, count)."""
        if not self.level_lists:
            return EMPTY, EMPTY
        leveled = np.flatnonzero((self.options < 0) & (self.law < 0) & (self.levels >= 0))
        keys, start = self._levels
        first = start[self.levels[leveled]]
        length = start[self.levels[leveled] + 1] - first
        return leveled.repeat(length), keys[ranges(first, length)] % STRIDE

    def allows(self, kind: IntArray, gpus: IntArray) -> BoolArray:
        """Whether each kind may run on this number of GPUs; False for kinds with workers and
        servers.
        """
        inside = (
            (self.gpus_min[kind] <= gpus) & (gpus <= self.gpus_max[kind]) & (self.law[kind] < 0)
        )
        level = self.levels[kind]
        return inside & ((level < 0) | (find_sorted(self._levels[0], level * STRIDE + gpus) >= 0))


def absence_of(instance: Instance, future: bool = False) -> NDArray[np.uint8]:
    """`Absence` of each job before any column is made, shape (jobs,)."""
    table = instance.jobs_table
    absence = np.zeros(len(table), np.uint8)
    if not future:
        absence[table.arrival > instance.now] = Absence.ARRIVES_LATER
    absence[table.steps_left <= 0] = Absence.NO_STEP_LEFT
    return absence


def find_kinds(instance: Instance, future: bool = False) -> Kinds:
    """Group the jobs that have arrived (or all, with ``future``) and have steps left by the data
    that determine their columns.

    A job that a co-location entry names is a separate kind.
    """
    table, jobs = instance.jobs_table, len(instance.jobs_table)
    absence = absence_of(instance, future)
    (present,) = is_present(absence).nonzero()

    # Jobs that state their own rates.
    rated = table.rates >= 0
    profile = (
        table.rates
        if rated.all()
        else np.where(rated, table.rates, looked_up(instance.workloads.rates, table.workload))
    )
    laws = _laws(instance)
    law = _law_of_jobs(instance, laws)
    steps = constant(0.0, jobs, np.float64)
    if len(instance.options) or len(laws):
        # If a rate is computed from a duration, it depends on the number of steps.
        timed = looked_up(_rates_from_durations(instance.options), table.options) | (law >= 0)
        steps = np.where(timed, table.steps, 0.0)
    decisive = [
        profile,
        rated,
        table.workload,
        table.gpus_min,
        table.gpus_max,
        table.levels,
        table.options,
        steps,
        _named_in_pairs(instance),
    ]
    if len(present) < jobs:
        decisive = [take_rows(column, present) for column in decisive]
    groups = group_rows(decisive, len(present))
    first, of_job = groups.first, groups.inverse
    if len(present) < jobs:
        first, of_job = present[first], np.full(jobs, -1, np.int64)
        of_job[present] = groups.inverse
    rows = None if len(first) == jobs else first
    return Kinds(
        of_job=of_job,
        absence=absence,
        first=first,
        workload=take_rows(table.workload, rows),
        profile=take_rows(profile, rows),
        own=take_rows(rated, rows),
        gpus_min=take_rows(table.gpus_min, rows),
        gpus_max=take_rows(table.gpus_max, rows),
        levels=take_rows(table.levels, rows),
        options=take_rows(table.options, rows),
        law=take_rows(law, rows),
        level_lists=table.level_lists,
        laws=laws,
    )


def _named_in_pairs(instance: Instance) -> IntArray:
    """The row of each job that a co-location entry names, -1 for others; shape (jobs,)."""
    named = constant(-1, len(instance.jobs_table), np.int64)
    stated = [job for entry in instance.colocation if entry.jobs is not None for job in entry.jobs]
    if stated:
        # A constant cannot be written to.
        named = np.array(named)
        named[stated] = stated
    return named


def _law_of_jobs(instance: Instance, laws: ParameterServers) -> IntArray:
    """The law of each job's workload, -1 for none and where its own rates or options count; shape
    (jobs,).
    """
    table = instance.jobs_table
    if not len(laws):
        return constant(-1, len(table), np.int64)
    of_workload = np.full(len(instance.workloads) + 1, -1, np.int64)
    of_workload[laws.workload] = np.arange(len(laws))
    stated = (table.rates >= 0) | (table.options >= 0)
    return np.where(stated, -1, looked_up(of_workload, table.workload))


def _laws(instance: Instance) -> ParameterServers:
    """The laws of workloads that run on workers and parameter servers."""
    if not instance.workloads.with_parameter(KEY).any():
        return ParameterServers.none()
    # slow to import, and few instances have such workloads
    from optsched.performance.parameter_server_documents import read_parameter_servers

    return read_parameter_servers(instance)


def _rates_from_durations(options: OptionTable) -> BoolArray:
    """For each option list, whether some option has a duration but no rate, so that its rate
    depends on the steps. The last entry is for jobs without a list.
    """
    owner = owners(lengths(options.indptr))
    implied = np.isnan(options.throughput) & ~np.isnan(options.duration)
    return np.bincount(owner[implied], minlength=len(options) + 1) > 0
