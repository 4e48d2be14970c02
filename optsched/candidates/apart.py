"""Classes for decisions about single jobs: the jobs that are decided on get their own classes,
all others stay merged.
"""

from __future__ import annotations

import numpy as np

from optsched.arrays import EMPTY, IntArray, find_sorted
from optsched.candidates.classes import Candidates, Classes, alone_columns, assemble, merge_jobs


def classes_apart(
    candidates: Candidates,
    reads: frozenset[str],
    apart: IntArray,
    pairs: tuple[IntArray, IntArray, IntArray] | None = None,
) -> Classes:
    """Classes in which some jobs are separate classes, and share GPUs only with the given partners.

    A rule decides job by job. If every job were a class, there would be a column for every two jobs
    that can share GPUs. So only the jobs that the rule decided on are separate, with columns only
    for the pairs that it chose; all other equal jobs stay in one class.

    Parameters
    ----------
    candidates : Candidates
    reads : frozenset of str
        Job arrays that jobs of a class share.
    apart : IntArray
        Jobs that become separate classes. The jobs of ``pairs`` become separate classes as well.
    pairs : three IntArrays of shape (P,), optional
        Two jobs and a column of the candidates for their two kinds; these are the last P columns,
        in this order.
    """
    first, second, column = (EMPTY, EMPTY, EMPTY) if pairs is None else pairs
    marks = np.zeros(len(candidates.instance.jobs_table), np.int64)
    for jobs in (apart, first, second):
        marks[jobs] = jobs + 1
    groups = merge_jobs(candidates, reads, [marks])
    alone = alone_columns(
        candidates.columns, candidates.kinds.of_job[groups.first], len(candidates.kinds)
    )
    a, b = groups.of_job[first], groups.of_job[second]
    return assemble(candidates, reads, groups, alone, (column, np.minimum(a, b), np.maximum(a, b)))


def column_alone(C: Classes, job: IntArray, kind_column: IntArray) -> IntArray:
    """The column of the classes of each job in a column of the candidates,
    without a partner; -1 if there is none.
    """
    alone = np.flatnonzero(C.alone)  # sorted by class, then by column of the candidates
    width = len(C.candidates.columns)
    place = find_sorted(
        C.class_a[alone] * width + C.kind_column[alone], C.of_job[job] * width + kind_column
    )
    return np.where(place >= 0, alone[place], -1)
