"""`Schedule`: what runs when, for programs that decide it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from optsched.arrays import FloatArray, IntArray
from optsched.candidates import Classes
from optsched.display import DisplayedTable, TableColumns, amount, count
from optsched.display.picture import Picture
from optsched.lazy import convenience
from optsched.solution.allocation import EVERYTHING, ColumnRecords


@dataclass(frozen=True, repr=False, eq=False)
class Schedule(DisplayedTable):
    """Stretches of time in which jobs run, in order of (start, job).

    Attributes
    ----------
    classes : Classes
    job : IntArray, shape (S,)
        Row of the job table.
    column : IntArray, shape (S,)
        Column of the classes in which the job runs; always one without a partner.
    start, end : FloatArray, shape (S,)
        Absolute seconds, on the clock of the instance's ``now``.
    layouts : mapping from pool to mapping from layout to int, or None
        GPUs in each layout of slices (`optsched.instance.Layouts`), of a plan that decides it.
    """

    classes: Classes
    job: IntArray
    column: IntArray
    start: FloatArray
    end: FloatArray
    layouts: Mapping[str, Mapping[str, int]] | None = None

    @classmethod
    def sorted(
        cls, classes: Classes, job: IntArray, column: IntArray, start: FloatArray, end: FloatArray
    ) -> Schedule:
        """The stretches in order of (start, job, column).

        Parameters
        ----------
        classes, job, column, start, end
            As the attributes, in any order.

        Returns
        -------
        Schedule
        """
        order = np.lexsort((column, job, start))
        return cls(classes, job[order], column[order], start[order], end[order])

    @classmethod
    def of_members(
        cls,
        classes: Classes,
        column: IntArray,
        member: IntArray,
        start: FloatArray,
        end: FloatArray,
    ) -> Schedule:
        """A schedule of jobs from one of nameless members of classes.

        What runs now gets the first names, column by column, as an allocation of whole jobs does
        (`optsched.candidates.expand`).

        Parameters
        ----------
        classes : Classes
        column : IntArray, shape (S,)
            Column of the classes in which the member runs.
        member : IntArray, shape (S,)
            Number of the member among the n_k equal jobs of the class of the column, from 0.
        start, end : FloatArray, shape (S,)
            Absolute seconds.

        Returns
        -------
        Schedule

        Raises
        ------
        ValueError
            A class has fewer jobs than members.
        """
        owner = classes.class_a[column]
        now = classes.instance.now
        running = (start <= now) & (now < end)
        # One slot (class, member) for each job that runs at all; key: the slot of each stretch.
        slots = np.unique(np.stack([owner, member], axis=1), axis=0)
        many = np.bincount(slots[:, 0], minlength=len(classes)) > classes.count
        if many.any():
            raise ValueError(f"{classes.job_name(int(np.argmax(many)))} runs more often than once")
        key = np.searchsorted(slots[:, 0] * (1 << 32) + slots[:, 1], owner * (1 << 32) + member)
        # Slots that run now come first in their class, column by column; the others have a column
        # beyond all.
        first = np.full(len(slots), classes.columns, np.int64)
        first[key[running]] = column[running]
        order = np.lexsort((slots[:, 1], first, slots[:, 0]))
        rank = np.empty(len(slots), np.int64)
        # Place of each slot in its class, and so the number of its job among those of the class.
        rank[order] = np.arange(len(slots)) - np.searchsorted(slots[order, 0], slots[order, 0])
        job = np.array(
            [
                classes.jobs_of(k)[r]
                for k, r in zip(slots[:, 0].tolist(), rank.tolist(), strict=True)
            ],
            np.int64,
        )
        return cls.sorted(classes, job[key], column, start, end)

    def __len__(self) -> int:
        return len(self.job)

    @property
    def pool(self) -> IntArray:
        """Pool of each stretch, -1 for none."""
        return self.classes.pool[self.column]

    @property
    def gpus(self) -> IntArray:
        """GPUs of each stretch."""
        return self.classes.gpus[self.column]

    def running_at(self, time: float) -> FloatArray:
        """What runs at a time.

        Parameters
        ----------
        time : float
            Absolute seconds.

        Returns
        -------
        FloatArray, shape (N,)
            Jobs that run in each class column.
        """
        now = (self.start <= time) & (time < self.end)
        return np.bincount(self.column[now], minlength=self.classes.columns).astype(np.float64)

    def to_records(self, some: slice | IntArray = EVERYTHING) -> list[dict[str, Any]]:
        """One record per stretch, as in the solution format.

        A record has job, pool, gpus, start, end, and option or attributes.

        Parameters
        ----------
        some : slice or IntArray
            Which rows (default: all).

        Returns
        -------
        list of dict
        """
        names = self.classes.instance.jobs_table.names
        columns = ColumnRecords(self.classes)
        records = []
        for job, column, start, end in zip(
            self.job[some].tolist(),
            self.column[some].tolist(),
            self.start[some].tolist(),
            self.end[some].tolist(),
            strict=True,
        ):
            record = {"job": names[job]} | columns.configuration(column)
            record |= {"start": start, "end": end}
            records.append(record | columns.option(column, job) | columns.details(column))
        return records

    def rows_of(self, job: int) -> IntArray:
        """Stretches in which a job runs.

        Parameters
        ----------
        job : int
            Row of the job table.

        Returns
        -------
        IntArray
            Numbers of rows.
        """
        return np.flatnonzero(self.job == job)

    def plot(self) -> Picture:
        """A Gantt chart: time against the GPUs of each pool."""
        return Picture(convenience("Schedule.plot")(self))

    def _headline(self) -> str:
        jobs = count(len(np.unique(self.job)), "job")
        end = amount(float(self.end.max(initial=0.0)) - self.classes.instance.now)
        return (
            f"of {self.classes.instance.name}: {jobs} in {count(len(self), 'run')}, "
            f"the last ends in {end} s"
        )

    def _facts(self) -> Mapping[str, str]:
        deadline = self.classes.instance.jobs_table.deadline
        due = np.isfinite(deadline[self.job])
        late = np.unique(self.job[due & (self.end > deadline[self.job] + 1e-6)])
        kept = len(np.unique(self.job[due])) - len(late)
        return {"deadlines": f"{kept:,} kept, {len(late):,} missed" if due.any() else ""}

    def to_columns(self, first: int | None = None) -> TableColumns:
        """The stretches: job, pool, GPUs, nodes, start and end in seconds on the clock; of options
        without a pool what they use, their value and cost.
        """
        records = self.to_records(slice(first))
        return ColumnRecords(self.classes).table(records, self.column[:first], self.job[:first])
