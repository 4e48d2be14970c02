"""Merging: kinds x the job arrays that a formulation reads into classes, and columns of kinds into their columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from optsched.arrays import (
    IntArray,
    constant,
    group_rows,
    in_order,
    is_range,
    joined,
    ranges,
    refined,
    taken,
)
from optsched.arrays.matrices import rows_in_order
from optsched.candidates.classes import READABLE, Classes, job_array
from optsched.candidates.columns import KindColumns
from optsched.candidates.kinds import Absence

if TYPE_CHECKING:
    from optsched.candidates.compile import Candidates


def build_classes(
    candidates: Candidates, reads: frozenset[str], labels: Sequence[IntArray] = ()
) -> Classes:
    """Merge kinds x the declared job arrays x labels into classes, and columns of kinds into columns of classes."""
    groups = merge_jobs(candidates, reads, labels)
    kind, count = candidates.kinds.of_job[groups.first], groups.count
    alone = alone_columns(candidates.columns, kind, len(candidates.kinds))
    pairs = _pair_columns(candidates.columns, kind, len(candidates.kinds), count)
    return assemble(candidates, reads, groups, alone, pairs)


@dataclass(frozen=True)
class JobGroups:
    """Jobs of the program, merged: class of each job (-1: not in the program), first job and size of each class."""

    of_job: IntArray
    first: IntArray
    count: IntArray


def merge_jobs(
    candidates: Candidates, reads: frozenset[str], labels: Sequence[IntArray] = ()
) -> JobGroups:
    """Merge the jobs of a kind that agree in the declared arrays, and in all ``labels``, each of shape (jobs,)."""
    unknown = reads - set(READABLE) - {"gang"}
    if unknown:
        raise KeyError(f"no such job array: {min(unknown)}")
    table, kinds = candidates.instance.jobs_table, candidates.kinds
    placed = np.flatnonzero(candidates.absence == Absence.PRESENT)
    if candidates.aggregate:
        read = [job_array(candidates.instance, name) for name in sorted(reads - {"gang"})]
        rows = None if len(placed) == len(table) else placed
        if rows is None and 2 * len(kinds) > len(table):
            groups = refined(kinds.groups, [*read, *labels])
        else:
            groups = group_rows(
                [taken(array, rows) for array in (kinds.of_job, *read, *labels)], len(placed)
            )
        first, inverse, count = groups.first, groups.inverse, groups.count
        if rows is not None:
            first = placed[first]
    else:
        first, inverse, count = placed, np.arange(len(placed)), np.ones(len(placed), np.int64)
    if len(placed) == len(table):
        return JobGroups(inverse, first, count)
    of_job = np.full(len(table), -1, np.int64)
    of_job[placed] = inverse
    return JobGroups(of_job, first, count)


Columns = tuple[IntArray | None, IntArray, IntArray]
"""(kind column, class, partner class or -1) of columns of classes; None: all kind columns, in order."""


def assemble(
    candidates: Candidates, reads: frozenset[str], groups: JobGroups, alone: Columns, pairs: Columns
) -> Classes:
    """The classes with these columns, and their matrices."""
    origin, class_a, class_b = alone
    if origin is not None and pairs[0] is not None:
        origin, class_a, class_b = (
            joined([origin, pairs[0]]),
            joined([class_a, pairs[1]]),
            joined([class_b, pairs[2]]),
        )
    columns, kinds, first = candidates.columns, candidates.kinds, groups.first
    if origin is not None and is_range(origin, len(columns)):
        origin = None
    rate_a, rate_b = taken(columns.rate, origin), taken(columns.partner_rate, origin)
    shape = (len(first), len(class_a))
    if len(pairs[1]):
        swapped = (class_b >= 0) & (kinds.of_job[first[class_a]] != taken(columns.kind, origin))
        rate_a, rate_b = np.where(swapped, rate_b, rate_a), np.where(swapped, rate_a, rate_b)
        pair = np.flatnonzero(class_b >= 0)
        number = np.arange(len(class_a), dtype=np.int64)
        where = (np.concatenate([class_a, class_b[pair]]), np.concatenate([number, pair]))
        throughput = sp.csr_matrix((np.concatenate([rate_a, rate_b[pair]]), where), shape=shape)
    else:
        throughput = rows_in_order(class_a, rate_a, shape)
    return Classes(
        candidates=candidates,
        reads=reads,
        of_job=groups.of_job,
        first=first,
        count=groups.count.astype(np.float64),
        origin=origin,
        class_a=class_a,
        class_b=class_b,
        rate_a=rate_a,
        rate_b=rate_b,
        throughput=throughput,
        holds=candidates.holds if origin is None else candidates.holds.take(origin),
    )


def alone_columns(columns: KindColumns, kind_of_class: IntArray, kinds: int) -> Columns:
    """Every column without a partner of every class: class by class, in the order of the kind's columns."""
    if not len(columns.pairs) and in_order([columns.kind]) and is_range(kind_of_class, kinds):
        return None, columns.kind, constant(-1, len(columns), np.int64)
    alone = np.flatnonzero(columns.partner < 0)
    if not in_order([columns.kind[alone]]):
        alone = alone[np.argsort(columns.kind[alone], kind="stable")]
    columns_of = np.bincount(columns.kind[alone], minlength=kinds).astype(np.int64)
    first_of = np.concatenate(([0], np.cumsum(columns_of)))[:-1].astype(np.int64)
    length = columns_of[kind_of_class]
    column = alone[ranges(first_of[kind_of_class], length)]
    owner = np.repeat(np.arange(len(kind_of_class), dtype=np.int64), length)
    return column, owner, constant(-1, len(column), np.int64)


def _pair_columns(
    columns: KindColumns, kind_of_class: IntArray, kinds: int, count: IntArray
) -> Columns:
    """Every column of two kinds for every pair of their classes, the lower class first."""
    pairs = columns.pairs
    if not len(pairs):
        return pairs, pairs, pairs
    by_kind = np.argsort(kind_of_class, kind="stable").astype(np.int64)
    classes_of = np.bincount(kind_of_class, minlength=kinds).astype(np.int64)
    start_of = np.concatenate(([0], np.cumsum(classes_of)))[:-1].astype(np.int64)
    size_a, size_b = classes_of[columns.kind[pairs]], classes_of[columns.partner[pairs]]
    products = size_a * size_b
    pair_column = np.repeat(pairs, products)
    local = ranges(np.zeros(len(pairs), np.int64), products)
    width = np.repeat(size_b, products)
    class_a = by_kind[start_of[columns.kind[pair_column]] + local // np.maximum(width, 1)]
    class_b = by_kind[start_of[columns.partner[pair_column]] + local % np.maximum(width, 1)]
    same_kind = columns.kind[pair_column] == columns.partner[pair_column]
    keep = ~same_kind | (class_a < class_b) | ((class_a == class_b) & (count[class_a] > 1))
    return pair_column[keep], np.minimum(class_a, class_b)[keep], np.maximum(class_a, class_b)[keep]
