"""From classes to jobs: identical jobs share equally; pairs of classes are spread sparsely."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optsched.arrays import FloatArray, IntArray
from optsched.candidates.classes import Classes


@dataclass(frozen=True)
class JobRows:
    """An allocation row by row: a job (or two that share) in a configuration for a fraction of the time.

    Attributes
    ----------
    job, partner : IntArray, shape (A,)
        Rows of the job table; partner -1 for a job alone.
    column : IntArray, shape (A,)
        Column of the classes.
    fraction : FloatArray, shape (A,)
        Of wall-clock time, in [0, 1].
    rate, partner_rate : FloatArray, shape (A,)
        steps/s of each while it runs so.
    """

    job: IntArray
    partner: IntArray
    column: IntArray
    fraction: FloatArray
    rate: FloatArray
    partner_rate: FloatArray

    def __len__(self) -> int:
        return len(self.job)


def expand(classes: Classes, x: FloatArray, integral: bool = False) -> JobRows:
    """Spread the totals x of class columns over the jobs of the classes.

    - A column of one class gives each of its n jobs x / n.
    - A column of classes k and l is spread by the north-west-corner rule: members of k have x / n_k each, members of l
      x / n_l each, and at most n_k + n_l - 1 pairs are formed.
    - A column inside a class is spread along a cycle: each job shares with its two neighbours, x / n with each.
    - With ``integral`` each of the x jobs (or pairs) gets a whole 1, in order, so that no job gets two.

    Every job of a class ends up with the same throughput (unless integral).
    """
    used = np.flatnonzero(x > 0)
    if integral:
        return _expand_whole(classes, x, used)
    alone = used[classes.class_b[used] < 0]
    order, start = classes._jobs_by_class  # noqa: SLF001
    count = classes.count.astype(np.int64)
    length = count[classes.class_a[alone]]
    column = np.repeat(alone, length)
    offset = np.arange(len(column)) - np.repeat(np.cumsum(length) - length, length)
    jobs = order[start[classes.class_a[column]] + offset]
    parts = [(jobs, np.full(len(jobs), -1, np.int64), column, (x / classes.count[classes.class_a])[column])]
    for number in used[classes.class_b[used] >= 0].tolist():
        a, b = int(classes.class_a[number]), int(classes.class_b[number])
        spread = _cycle if a == b else _north_west
        first, second, share = spread(int(count[a]), int(count[b]))
        parts.append(
            (classes.jobs_of(a)[first], classes.jobs_of(b)[second], np.full(len(first), number), share * x[number])
        )
    return _rows(classes, parts)


def _rows(classes: Classes, parts: list[tuple[IntArray, IntArray, IntArray, FloatArray]]) -> JobRows:
    job, partner, column, fraction = (np.concatenate([part[i] for part in parts]) for i in range(4))
    order = np.lexsort((column, job))
    job, partner, column, fraction = job[order], partner[order], column[order], fraction[order]
    return JobRows(job, partner, column, fraction, classes.rate_a[column], classes.rate_b[column])


def _cycle(count: int, _: int) -> tuple[IntArray, IntArray, FloatArray]:
    """Pairs (i, i + 1) around a cycle of ``count`` jobs, each with an equal share of the whole."""
    if count == 2:
        return np.array([0]), np.array([1]), np.array([1.0])
    first = np.arange(count, dtype=np.int64)
    return first, (first + 1) % count, np.full(count, 1.0 / count)


def _north_west(rows: int, columns: int) -> tuple[IntArray, IntArray, FloatArray]:
    """Shares of a transportation plan between ``rows`` equal supplies and ``columns`` equal demands of total 1.

    Cutting [0, 1] at the multiples of 1/rows and of 1/columns gives the plan; exact in integers of 1/(rows columns).
    """
    cuts = np.union1d(np.arange(rows + 1, dtype=np.int64) * columns, np.arange(columns + 1, dtype=np.int64) * rows)
    left, length = cuts[:-1], np.diff(cuts)
    return left // columns, left // rows, length / (rows * columns)


def _expand_whole(classes: Classes, x: FloatArray, used: IntArray) -> JobRows:
    """Whole jobs: the columns of a class take its members one after the other."""
    taken = np.zeros(len(classes), np.int64)
    parts = [(np.zeros(0, np.int64),) * 3 + (np.zeros(0),)]
    for number in used.tolist():
        units = round(float(x[number]))
        a, b = int(classes.class_a[number]), int(classes.class_b[number])
        jobs = []
        for owner in (a, b):
            if owner < 0:
                jobs.append(np.full(units, -1, np.int64))
                continue
            jobs.append(classes.jobs_of(owner)[taken[owner] : taken[owner] + units])
            taken[owner] += units
        parts.append((jobs[0], jobs[1], np.full(units, number), np.ones(units)))
    return _rows(classes, parts)
