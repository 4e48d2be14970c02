"""Rows of an allocation (`JobRows`): which jobs are in them, some of them, and what they hold.

A row is a job alone (partner -1), or two jobs that share GPUs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields

import numpy as np
import scipy.sparse as sp

from optsched.arrays import BoolArray, FloatArray, IntArray, gathered, in_order, ranges
from optsched.candidates import Classes, JobRows
from optsched.formulation import Infeasible, SideConstraint
from optsched.placement.instant import Instant, Uses
from optsched.program import SideRows
from optsched.solving.warm_start import matched

# --- jobs of rows -----------------------------------------------------------------------------


def members(job: IntArray, partner: IntArray, jobs: int) -> BoolArray:
    """Mask of the jobs that are the job or the partner (-1: none) of a row, shape (jobs,)."""
    mask = np.zeros(jobs + 1, bool)  # the last entry is what -1 writes to
    mask[job] = mask[partner] = True
    return mask[:-1]


def jobs_of(rows: JobRows, some: IntArray | BoolArray, jobs: int) -> BoolArray:
    """Mask of the jobs of some rows, shape (jobs,)."""
    return members(rows.job[some], rows.partner[some], jobs)


def either(rows: JobRows, mask: BoolArray, some: IntArray | slice = np.s_[:]) -> BoolArray:
    """Rows of which the job or the partner is in a mask of jobs, of all rows or of some."""
    found: BoolArray = mask[rows.job[some]] | gathered(mask, rows.partner[some], False)
    return found


def larger(rows: JobRows, values: FloatArray) -> FloatArray:
    """The larger of the values of the job and the partner of each row, at least 0."""
    found: FloatArray = np.maximum(values[rows.job], gathered(values, rows.partner, 0.0))
    return found


# --- some of the rows -------------------------------------------------------------------------


def take(rows: JobRows, some: IntArray) -> JobRows:
    """Some of the rows, in the order given."""
    return JobRows(*(getattr(rows, item.name)[some] for item in fields(JobRows)))


def concatenate(*parts: JobRows) -> JobRows:
    """The rows of all parts, one part after the other."""
    names = [item.name for item in fields(JobRows)]
    return JobRows(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def no_rows() -> JobRows:
    nobody = np.zeros(0, np.int64)
    nothing = np.zeros(0)
    return JobRows(nobody, nobody, nobody, nothing, nothing, nothing)


def rows_alone(classes: Classes, jobs: IntArray) -> JobRows:
    """Every column without a partner of some jobs, as rows without a claim (fraction 0)."""
    alone = np.flatnonzero(classes.alone)
    if not in_order([classes.class_a]):
        alone = alone[np.argsort(classes.class_a[alone], kind="stable")]
    count = np.bincount(classes.class_a[alone], minlength=len(classes)).astype(np.int64)
    first = np.concatenate(([0], np.cumsum(count)))[:-1].astype(np.int64)
    mine = classes.of_job[jobs]
    jobs = jobs[mine >= 0]
    mine = mine[mine >= 0]
    column = alone[ranges(first[mine], count[mine])]
    job = np.repeat(jobs, count[mine])
    nobody = np.full(len(job), -1, np.int64)
    nothing = np.zeros(len(job))
    return JobRows(job, nobody, column, nothing, classes.rate_a[column], nothing)


def every_way_alone(
    classes: Classes, known: JobRows, jobs: BoolArray, constraints: Iterable[SideConstraint]
) -> JobRows:
    """Every way in which jobs of a mask may run alone, besides those that they have rows for.

    Where a starved job has a claim there may be no room for it, for as long as the jobs there
    cannot be preempted. Columns that a side constraint bars stay barred.
    """
    if not jobs.any():
        return no_rows()
    allowed = np.ones(classes.columns, bool)
    for side in side_rows(constraints, classes):
        if side.barring:
            allowed[side.closed.indices] = False
    rows = rows_alone(classes, np.flatnonzero(jobs))
    mine = np.flatnonzero((known.partner < 0) & jobs[known.job])
    there = known.job[mine] * classes.columns + known.column[mine]
    new = ~np.isin(rows.job * classes.columns + rows.column, there)
    return take(rows, np.flatnonzero(allowed[rows.column] & new))


def first_of_each_job(rows: JobRows, some: IntArray) -> IntArray:
    """The first of some rows of each job."""
    return some[np.unique(rows.job[some], return_index=True)[1]]


# --- rows and the ledger ----------------------------------------------------------------------


def keys_of(classes: Classes, rows: JobRows) -> IntArray:
    """Rows of an allocation as a `Ledger` identifies them: job, partner and configuration."""
    key = np.column_stack([rows.job, rows.partner, classes.labels_of(rows.column)])
    return key.astype(np.int64, copy=False)


def rows_of_keys(key: IntArray, fraction: FloatArray, classes: Classes) -> JobRows:
    """The rows of an allocation as a `Ledger` keeps it, where their columns still exist."""
    mine = classes.of_job[key[:, 0]]
    other = gathered(classes.of_job, key[:, 1], -1)
    known = np.column_stack([classes.class_a, classes.class_b, classes.configuration_labels])
    column = matched(known.T, np.column_stack([mine, other, key[:, 2:]]).T)
    # The column of a pair may name its two classes in the other order.
    swapped = matched(known.T, np.column_stack([other, mine, key[:, 2:]]).T)
    turned = (column < 0) & (key[:, 1] >= 0)
    column = np.where(turned, swapped, column)
    possible = (mine >= 0) & ((key[:, 1] < 0) | (other >= 0)) & (column >= 0)
    column = column[possible]
    key = key[possible]
    turned = turned[possible]
    first = classes.rate_a[column]
    second = classes.rate_b[column]
    rate = np.where(turned, second, first)
    partner_rate = np.where(turned, first, second)
    return JobRows(key[:, 0], key[:, 1], column, fraction[possible], rate, partner_rate)


# --- what rows hold ---------------------------------------------------------------------------


def uses_of(classes: Classes) -> Uses:
    """Shares of all renewable resources that each class column holds."""
    renewable = classes.resources.renewable
    uses = Uses.of(classes.holds.by_column)
    kept = renewable[uses.resource]
    number = np.cumsum(renewable) - 1
    count = np.concatenate(([0], np.cumsum(kept)))
    capacity = classes.capacity[uses.resource[kept]]
    with np.errstate(divide="ignore", over="ignore"):
        share = np.minimum(uses.share[kept] / capacity, 2.0)
    return Uses(count[uses.start], number[uses.resource[kept]], share, int(renewable.sum()))


def instant_of(rows: JobRows, uses: Uses) -> Instant:
    """What rows need at one instant, from the uses of the class columns."""
    return Instant(rows.job, rows.partner, rows.fraction, uses.take(rows.column))


# --- side constraints -------------------------------------------------------------------------


def side_rows(constraints: Iterable[SideConstraint], classes: Classes) -> list[SideRows]:
    """Rows of side constraints; one that cannot be kept at all, as the fallback says, has none."""
    found: list[SideRows] = []
    for constraint in constraints:
        try:
            rows = constraint.rows(classes)
        except Infeasible:
            continue
        if rows is not None:
            found.append(rows)
    return found


def upper_sides(side: Sequence[SideRows], classes: Classes) -> tuple[sp.csr_matrix, FloatArray]:
    """Upper sides of rows without negative coefficients, over the class columns.

    They hold for every part of the jobs once they hold for all: each job only adds to them.
    """
    matrices = [sp.csr_matrix((0, classes.columns))]
    upper = [np.zeros(0)]
    for rows in side:
        matrix = sp.csr_matrix(rows.matrix)
        least = np.zeros(matrix.shape[0])
        if matrix.nnz:
            least = np.asarray(matrix.min(axis=1).todense()).ravel()
        bounded = np.flatnonzero(np.isfinite(rows.upper) & (least >= 0))
        matrices.append(matrix[bounded])
        upper.append(rows.upper[bounded])
    return sp.csr_matrix(sp.vstack(matrices)), np.concatenate(upper)
