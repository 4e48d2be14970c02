"""Kinds: jobs with equal columns, found before any column is made."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from optsched.arrays import BoolArray, IntArray, group_rows, ranges
from optsched.instance import Instance
from optsched.performance import JobBatch


class Absence(IntEnum):
    """Why a job is not in the program."""

    PRESENT = 0
    NO_STEP_LEFT = 1
    ARRIVES_LATER = 2
    NO_COLUMN = 3


@dataclass(frozen=True)
class Kinds:
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
        As in the job table; ``profile`` is the rate profile that speaks for the kind (-1: none).
    own : BoolArray, shape (K,)
        Whether the profile is the jobs' own.
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
    level_lists: tuple[tuple[int, ...], ...]

    def __len__(self) -> int:
        return len(self.first)

    @property
    def batch(self) -> JobBatch:
        """The kinds as performance models see them."""
        return JobBatch(workload=self.workload, profile=self.profile, own=self.own, gang=self.gpus_min)

    def counts(self, limit: int) -> tuple[IntArray, IntArray]:
        """GPU counts of the kinds without options, as pairs (kind, count).

        Counts of a range without levels stop at ``limit`` (the largest pool), except the smallest, so that a job that
        is too large for every pool still shows up with its reason.
        """
        generated = self.options < 0
        plain = np.flatnonzero(generated & (self.levels < 0))
        top = np.maximum(np.minimum(self.gpus_max[plain], limit), self.gpus_min[plain])
        length = top - self.gpus_min[plain] + 1
        kind = [np.repeat(plain, length)]
        count = [ranges(self.gpus_min[plain], length)]
        for level, counts in enumerate(self.level_lists):
            rows = np.flatnonzero(generated & (self.levels == level))
            kind.append(np.repeat(rows, len(counts)))
            count.append(np.tile(np.array(counts, np.int64), len(rows)))
        return np.concatenate(kind), np.concatenate(count)

    def allows(self, kind: IntArray, gpus: IntArray) -> BoolArray:
        """Whether each kind may run on so many GPUs."""
        inside = (self.gpus_min[kind] <= gpus) & (gpus <= self.gpus_max[kind])
        for level, counts in enumerate(self.level_lists):
            inside &= (self.levels[kind] != level) | np.isin(gpus, counts)
        return inside


def find_kinds(instance: Instance) -> Kinds:
    """Group the jobs that have arrived and have steps left by everything that decides their columns.

    Jobs that a co-location entry names one by one are kinds of their own.
    """
    table = instance.jobs_table
    absence = np.zeros(len(table), np.uint8)
    absence[table.arrival > instance.now] = Absence.ARRIVES_LATER
    absence[table.steps_left <= 0] = Absence.NO_STEP_LEFT
    present = np.flatnonzero(absence == Absence.PRESENT)

    workload_rates = np.array([*(workload.rates for workload in instance.workloads), -1], np.int64)
    own = table.rates >= 0
    profile = np.where(own, table.rates, workload_rates[table.workload])
    named = np.full(len(table), -1, np.int64)
    rows = [job for entry in instance.colocation if entry.jobs is not None for job in entry.jobs]
    named[rows] = rows
    option_steps = np.where(table.options >= 0, table.steps, 0.0)  # an option's duration makes a rate of the steps
    decisive = [
        profile, own, table.workload, table.gpus_min, table.gpus_max, table.levels, table.options, option_steps, named,
    ]  # fmt: skip
    if len(present) < len(table):
        decisive = [column[present] for column in decisive]
    groups = group_rows(decisive, len(present))

    of_job = np.full(len(table), -1, np.int64)
    of_job[present] = groups.inverse
    first = present[groups.first]
    return Kinds(
        of_job=of_job,
        absence=absence,
        first=first,
        workload=table.workload[first],
        profile=profile[first],
        own=own[first],
        gpus_min=table.gpus_min[first],
        gpus_max=table.gpus_max[first],
        levels=table.levels[first],
        options=table.options[first],
        level_lists=table.level_lists,
    )
