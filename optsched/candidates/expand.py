"""From classes to jobs: identical jobs share equally; pairs of classes are spread sparsely."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optsched.arrays import (
    FloatArray,
    IntArray,
    constant,
    in_order,
    joined,
    mask_of,
    pointers,
    ranges,
    take_rows,
)
from optsched.arrays.columns import Columns
from optsched.candidates.classes import Classes
from optsched.display import count


@dataclass(frozen=True, eq=False, repr=False)
class JobRows(Columns):
    """An allocation row by row:
    a job (or two that share GPUs) in a configuration for a fraction of the time.

    Attributes
    ----------
    job, partner : IntArray, shape (A,)
        Rows of the job table; partner -1 for a job alone.
    column : IntArray, shape (A,)
        Column of the classes.
    fraction : FloatArray, shape (A,)
        Fraction of wall-clock time, in [0, 1].
    rate, partner_rate : FloatArray, shape (A,)
        steps/s of job and partner in this configuration.
    """

    job: IntArray
    partner: IntArray
    column: IntArray
    fraction: FloatArray
    rate: FloatArray
    partner_rate: FloatArray

    def _headline(self) -> str:
        return f"{count(len(self), 'row')} of {count(len(np.unique(self.job)), 'job')}"


def expand(classes: Classes, x: FloatArray, integral: bool = False) -> JobRows:
    """Spread the totals x of class columns over the jobs of the classes.

    - A column of one class gives each of its n jobs x / n.
    - A column of classes k and l is spread by the north-west-corner rule: members of k have x / n_k
      each, members of l x / n_l each, and at most n_k + n_l - 1 pairs are formed.
    - A column inside a class is spread along a cycle: each job shares with its two neighbours,
      x / n with each.
    - With ``integral`` each of the x jobs (or pairs) gets a whole 1, in order, so that no job gets
      two.

    Every job of a class ends up with the same throughput (unless integral). Rows are in order of
    (job, column).
    """
    used = np.flatnonzero(x > 0)
    if integral:
        return _expand_whole(classes, x, used)
    if classes.all_alone:
        return _rows(classes, [_alone(classes, x, used)])
    members, start = classes.jobs_by_class
    count = classes.count.astype(np.int64)
    is_alone = classes.class_b[used] < 0
    parts = [_alone(classes, x, used[is_alone])]

    pairs = used[~is_alone]
    # A pair of classes of one job each is one row: no loop needed.
    of_two = (count[classes.class_a[pairs]] == 1) & (count[classes.class_b[pairs]] == 1)
    two = pairs[of_two]
    parts.append(
        (members[start[classes.class_a[two]]], members[start[classes.class_b[two]]], two, x[two])
    )
    for number in pairs[~of_two].tolist():
        a, b = int(classes.class_a[number]), int(classes.class_b[number])
        first, second, share = (
            _cycle(int(count[a])) if a == b else _north_west(int(count[a]), int(count[b]))
        )
        column = np.full(len(first), number, np.int64)
        parts.append(
            (members[start[a] + first], members[start[b] + second], column, share * x[number])
        )
    return _rows(classes, parts)


def expand_first(classes: Classes, x: FloatArray, jobs: int) -> JobRows:
    """The rows of `expand` (not integral) for the first ``jobs`` jobs that can have rows.

    A row belongs to the first job of its pair. A table shows only the first few rows, but pairs of
    classes of thousands of jobs have tens of millions.
    """
    begins = mask_of(classes.class_a[x > 0], len(classes))
    inside = np.flatnonzero(classes.of_job >= 0)
    first = inside[begins[classes.of_job[inside]]][:jobs]
    chosen = mask_of(classes.of_job[first], len(classes))
    rows = expand(classes, np.where(chosen[classes.class_a], x, 0.0))
    return rows.take(np.isin(rows.job, first))


Part = tuple[IntArray, IntArray, IntArray, FloatArray]
"""(job, partner, column, fraction) of some rows."""


def _alone(classes: Classes, x: FloatArray, columns: IntArray) -> Part:
    """Rows of columns of one class, job by job:
    columns that are already in order of classes, the usual case, are not sorted again.
    """
    owner = classes.class_a[columns]
    if not in_order([owner]):
        order = owner.argsort(kind="stable")
        columns, owner = columns[order], owner[order]
    many = np.bincount(owner, minlength=len(classes))
    job = np.flatnonzero(classes.of_job >= 0)
    class_of_job = classes.of_job[job]
    # Each job has a row for every used column of its class, so the list of columns is repeated per
    # job.
    length = many[class_of_job]
    row = ranges((many.cumsum() - many)[class_of_job], length)
    share = x[columns] / classes.count[owner]
    return job.repeat(length), constant(-1, len(row), np.int64), columns[row], share[row]


def _rows(classes: Classes, parts: list[Part]) -> JobRows:
    jobs, partners, columns, fractions = zip(*parts, strict=True)
    job = joined(jobs)
    partner = joined(partners)
    column = joined(columns)
    fraction = joined(fractions)
    if not in_order([job, column]):
        order = np.lexsort((column, job))
        job = job[order]
        partner = take_rows(partner, order)
        column = column[order]
        fraction = fraction[order]
    return JobRows(job, partner, column, fraction, classes.rate_a[column], classes.rate_b[column])


def _cycle(count: int) -> tuple[IntArray, IntArray, FloatArray]:
    """Pairs (i, i + 1) around a cycle of ``count`` jobs, each with an equal share."""
    # In a cycle of two jobs, (0, 1) and (1, 0) are the same pair.
    if count == 2:
        return np.array([0]), np.array([1]), np.array([1.0])
    first = np.arange(count, dtype=np.int64)
    return first, (first + 1) % count, np.full(count, 1.0 / count)


def _north_west(rows: int, columns: int) -> tuple[IntArray, IntArray, FloatArray]:
    """Transportation plan between ``rows`` equal supplies and ``columns`` equal demands of total 1.

    The plan follows from cutting [0, 1] at the multiples of 1/rows and of 1/columns. The cuts are
    computed exactly, as integer multiples of 1/(rows columns).
    """
    cuts = np.union1d(
        np.arange(rows + 1, dtype=np.int64) * columns, np.arange(columns + 1, dtype=np.int64) * rows
    )
    left, length = cuts[:-1], np.diff(cuts)
    return left // columns, left // rows, length / (rows * columns)


def _expand_whole(classes: Classes, x: FloatArray, used: IntArray) -> JobRows:
    """Rows of whole jobs: the columns of a class take its jobs one after the other."""
    members, start = classes.jobs_by_class
    units = np.round(x[used]).astype(np.int64)
    # Class and partner class of each column alternate in one list, so that a pair inside a class
    # takes two different jobs.
    owner = np.stack([classes.class_a[used], classes.class_b[used]], axis=1).ravel()
    wanted = np.where(owner >= 0, units.repeat(2), 0)
    order = owner.argsort(kind="stable")
    total = pointers(wanted[order])
    # Number of jobs of the same class that earlier columns have taken.
    before = np.empty_like(wanted)
    before[order] = total[:-1] - total[owner[order].searchsorted(owner[order])]
    if ((wanted > 0) & (before + wanted > classes.count[owner])).any():
        raise ValueError("x takes more jobs of a class than it has")
    jobs = np.full((int(units.sum()), 2), -1, np.int64)
    for side in (0, 1):
        from_class, skip, take = owner[side::2], before[side::2], wanted[side::2]
        jobs[np.repeat(from_class >= 0, units), side] = members[
            ranges(start[from_class] + skip, take)
        ]
    column = used.repeat(units)
    return _rows(classes, [(jobs[:, 0], jobs[:, 1], column, np.ones(len(column)))])
