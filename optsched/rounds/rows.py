"""Rows of an allocation (`JobRows`) and the queue of those that may run in a round (`RowQueue`).

A row is a job alone (partner -1), or two jobs that share GPUs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from optsched.arrays import (
    EMPTY,
    AnyArray,
    BoolArray,
    FloatArray,
    IntArray,
    find_rows,
    gathered,
    mask_of,
    ranges,
    table_of,
)
from optsched.arrays.values import cached_property, replace
from optsched.candidates import Classes, JobRows, RowUses
from optsched.formulation import Infeasible, SideConstraint
from optsched.placement.instant import Instant, first_fit
from optsched.placement.shares import FULL
from optsched.program import SideRows

# --- jobs of rows -----------------------------------------------------------------------------


def members(job: IntArray, partner: IntArray, jobs: int) -> BoolArray:
    """Mask of the jobs that are the job or the partner (-1: none) of a row, shape (jobs,)."""
    mask = np.zeros(jobs + 1, bool)  # partner -1 writes to the last entry
    mask[job] = mask[partner] = True
    return mask[:-1]


def jobs_of(rows: JobRows, chosen: IntArray | BoolArray, jobs: int) -> BoolArray:
    """Mask of the jobs of some rows, shape (jobs,)."""
    return members(rows.job[chosen], rows.partner[chosen], jobs)


def either(rows: JobRows, mask: BoolArray, chosen: IntArray | slice = np.s_[:]) -> BoolArray:
    """Mask of the rows (all, or some) whose job or partner is in a mask of jobs."""
    return mask[rows.job[chosen]] | gathered(mask, rows.partner[chosen], False)


def larger(rows: JobRows, values: FloatArray) -> FloatArray:
    """The larger of the values of the job and the partner of each row, at least 0."""
    return np.maximum(values[rows.job], gathered(values, rows.partner, 0.0))


# --- some of the rows -------------------------------------------------------------------------


def concatenate(*parts: JobRows) -> JobRows:
    """The rows of all parts, one part after the other."""
    # Most parts are empty in most rounds.
    not_empty = [part for part in parts if len(part)]
    return (
        JobRows.join(not_empty) if len(not_empty) > 1 else not_empty[0] if not_empty else no_rows()
    )


def no_rows() -> JobRows:
    nothing = np.zeros(0)
    return JobRows(EMPTY, EMPTY, EMPTY, nothing, nothing, nothing)


def rows_alone(classes: Classes, jobs: IntArray) -> JobRows:
    """Every column without a partner of some jobs, as rows without a claim (fraction 0)."""
    alone, start = classes.alone_by_class
    count = np.diff(start)
    class_of = classes.of_job[jobs]
    jobs = jobs[class_of >= 0]
    class_of = class_of[class_of >= 0]
    column = alone[ranges(start[class_of], count[class_of])]
    job = jobs.repeat(count[class_of])
    no_partner = np.full(len(job), -1, np.int64)
    zeros = np.zeros(len(job))
    return JobRows(job, no_partner, column, zeros, classes.rate_a[column], zeros)


def every_way_alone(
    classes: Classes,
    known: JobRows,
    jobs: BoolArray,
    constraints: Iterable[SideConstraint],
) -> JobRows:
    """Rows in which the jobs of a mask can run alone, without those that are known already.

    The GPUs of a starved job's claim may be held by jobs that cannot be preempted, so that it must
    be able to run in other columns. Columns that a side constraint bars stay barred.
    """
    if not jobs.any():
        return no_rows()
    allowed = np.ones(classes.columns, bool)
    for side in side_rows(constraints, classes):
        if side.barring:
            allowed[side.closed.indices] = False
    rows = rows_alone(classes, jobs.nonzero()[0])
    known_alone = ((known.partner < 0) & jobs[known.job]).nonzero()[0]
    present = known.job[known_alone] * classes.columns + known.column[known_alone]
    new = ~np.isin(rows.job * classes.columns + rows.column, present)
    return rows.take((allowed[rows.column] & new).nonzero()[0])


def first_of_each_job(rows: JobRows, chosen: IntArray) -> IntArray:
    """The first of some rows of each job."""
    return chosen[np.unique(rows.job[chosen], return_index=True)[1]]


# --- rows and the ledger ----------------------------------------------------------------------


def keys_of(classes: Classes, rows: JobRows) -> IntArray:
    """Rows of an allocation as a `Ledger` identifies them: job, partner and configuration."""
    key = table_of(rows.job, rows.partner, classes.labels_of(rows.column))
    return key.astype(np.int64, copy=False)


def rows_of_keys(key: IntArray, fraction: FloatArray, classes: Classes) -> JobRows:
    """The rows with these keys of a `Ledger`, as far as their columns still exist."""
    first = classes.of_job[key[:, 0]]
    second = gathered(classes.of_job, key[:, 1], -1)
    known = table_of(classes.class_a, classes.class_b, classes.configuration_labels)
    column = find_rows(known, table_of(first, second, key[:, 2:]))
    # The column of a pair may name its two classes in the other order.
    reversed_ = find_rows(known, table_of(second, first, key[:, 2:]))
    swapped = (column < 0) & (key[:, 1] >= 0)
    column = np.where(swapped, reversed_, column)
    possible = (first >= 0) & ((key[:, 1] < 0) | (second >= 0)) & (column >= 0)
    column, key, swapped = column[possible], key[possible], swapped[possible]
    rate_a, rate_b = classes.rate_a[column], classes.rate_b[column]
    rate = np.where(swapped, rate_b, rate_a)
    partner_rate = np.where(swapped, rate_a, rate_b)
    return JobRows(key[:, 0], key[:, 1], column, fraction[possible], rate, partner_rate)


# --- resources that rows use ------------------------------------------------------------------


def instant_of(rows: JobRows, uses: RowUses) -> Instant:
    """The rules of one instant for these rows, given the uses of the class columns."""
    return Instant(rows.job, rows.partner, rows.fraction, uses.take(rows.column))


# --- side constraints -------------------------------------------------------------------------


def side_rows(constraints: Iterable[SideConstraint], classes: Classes) -> list[SideRows]:
    """Rows of side constraints, without those that cannot be kept (the fallback reports these)."""
    found = []
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

    If such a side holds for a set of jobs, it holds for every subset.
    """
    matrices = [sp.csr_matrix((0, classes.columns))]
    upper = [np.zeros(0)]
    for rows in side:
        matrix = sp.csr_matrix(rows.matrix)
        least = np.zeros(matrix.shape[0])
        if matrix.nnz:
            least = np.asarray(matrix.min(axis=1).todense()).ravel()
        bounded = (np.isfinite(rows.upper) & (least >= 0)).nonzero()[0]
        matrices.append(matrix[bounded])
        upper.append(rows.upper[bounded])
    return sp.csr_matrix(sp.vstack(matrices)), np.concatenate(upper)


# --- the queue -------------------------------------------------------------------------------

ROWS_AT_ONCE = 2048
"""Rows of a queue that are tried together."""
MUST_RUN = 0
STARVED = 1
URGENT = 2
DUE = 3
"""Priority groups of rows, one after the other."""


@dataclass(frozen=True)
class RowQueue:
    """Rows in the order in which they are tried, and the resources that are free for them.

    Attributes
    ----------
    classes : Classes
    rows : JobRows, A rows
    order : IntArray
        The rows in the order in which they are tried; rows that are not in it are not tried.
    continues : BoolArray, shape (A,)
        Whether the row's jobs can continue on the GPUs that they hold.
    group : IntArray, shape (A,)
        `MUST_RUN`, `STARVED`, `URGENT` or `DUE`: the order has one group after the other.
    busy : BoolArray, shape (jobs,)
        Jobs that must not run in any of the rows.
    partner_now : IntArray, shape (jobs,)
        The job with which each job shares its GPUs now, -1 for none.
    free : FloatArray, shape (limits,)
        Free share of each renewable resource, then the free amounts of further limits.
    uses : RowUses
        Shares of the renewable resources that each class column uses.
    limits : RowUses, A rows, optional
        Use of further limits, which no row may exceed.
    worth : FloatArray, shape (A,), optional
        Worth of the rows (`optsched.rounds.exchange.worth_of`), if they are selected as one set.
    host : IntArray, shape (A,), optional
        The job whose GPUs a guest joins, -1 for rows without a new guest.
    fills : bool
        Whether jobs may run on GPUs that no row with a claim uses.
    """

    classes: Classes
    rows: JobRows
    order: IntArray
    continues: BoolArray
    group: IntArray
    busy: BoolArray
    partner_now: IntArray
    free: FloatArray
    uses: RowUses
    limits: RowUses | None = None
    worth: FloatArray | None = None
    host: IntArray | None = None
    fills: bool = False

    @cached_property
    def must_run(self) -> BoolArray:
        """Mask of the rows that must continue; shape (A,)."""
        return np.asarray(self.group == MUST_RUN)

    @cached_property
    def starved(self) -> BoolArray:
        """Mask of the rows of starved jobs; shape (A,)."""
        return np.asarray(self.group == STARVED)

    @cached_property
    def instant(self) -> Instant:
        """The rules of one instant."""
        instant = instant_of(self.rows, self.uses)
        if self.limits is None:
            return instant
        return replace(instant, uses=instant.uses.with_more(self.limits))

    @property
    def over_limits(self) -> BoolArray:
        """Mask of the rows that exceed the free amount of a further limit; shape (A,)."""
        if self.limits is None:
            return np.zeros(len(self.rows), bool)
        free = self.free[self.uses.resources :]
        over = self.limits.share > free[self.limits.resource]
        return self.mask(self.limits.row[over])

    @property
    def hosts(self) -> IntArray:
        """``host``, with -1 for all rows where it is None; shape (A,)."""
        return np.full(len(self.rows), -1, np.int64) if self.host is None else self.host

    def gpus_of(self, chosen: IntArray) -> IntArray:
        """The job whose present GPUs each of some rows keeps."""
        host = self.hosts[chosen]
        return np.where(host >= 0, host, self.rows.job[chosen])

    def side_by_side(self) -> IntArray:
        """Rows that run if each row is selected, in the order, if it fits beside those before it;
        ascending.
        """
        free, busy = self.free, self.busy
        taken = [EMPTY]
        # In blocks: once nearly all resources are in use, most rows are excluded by their column.
        for start in range(0, len(self.order), ROWS_AT_ONCE):
            block = self.order[start : start + ROWS_AT_ONCE]
            block = block[self.uses.within(free)[self.rows.column[block]]]
            if len(block):
                chosen = first_fit(self.instant, block, free, busy)
                free = free - self.instant.uses.total(chosen)
                busy = busy | jobs_of(self.rows, chosen, len(busy))
                taken.append(chosen)
        return np.sort(np.concatenate(taken))

    def mask(self, chosen: IntArray) -> BoolArray:
        """Some rows as a mask, shape (A,)."""
        return mask_of(chosen, len(self.rows))

    def positions(self) -> IntArray:
        """Position of each row in the order, 0 for the first; shape (A,)."""
        position = np.empty(len(self.rows), np.int64)
        position[self.order] = np.arange(len(self.order))
        return position

    def of(self, order: IntArray, **left: AnyArray) -> RowQueue:
        """The same rows in another order, or fewer of them; with other ``free`` or ``busy`` if
        given.
        """
        queue = copy(self)  # cached properties do not depend on the order and are kept
        for name, values in {"order": order, **left}.items():
            object.__setattr__(queue, name, values)
        return queue

    def first(self, mask: BoolArray) -> RowQueue:
        """The same queue with the rows of a mask before all others."""
        ahead = mask[self.order]
        return self.of(np.concatenate([self.order[ahead], self.order[~ahead]]))

    def in_groups(self) -> RowQueue:
        """The same queue with one group after the other."""
        return self.of(self.order[self.group[self.order].argsort(kind="stable")])

    def beside(self, placed: IntArray) -> RowQueue:
        """The queue without some rows, beside which the other rows are tried."""
        busy = self.busy | jobs_of(self.rows, placed, len(self.busy))
        free = self.free - self.instant.uses.total(placed)
        return self.of(self.order[~self.mask(placed)[self.order]], busy=busy, free=free)


def room_at_least(free: FloatArray, rows: JobRows, uses: RowUses, must_run: IntArray) -> FloatArray:
    """The free share of each resource, but at least the share of the rows that must continue.

    After nodes shrank, jobs that cannot be preempted may hold more than the capacity.
    """
    held = uses.total(rows.column[first_of_each_job(rows, must_run)]) * FULL
    return np.maximum(free, held)


def within_upper_sides(
    queue: RowQueue, never_stopped: BoolArray, side: Sequence[SideRows]
) -> RowQueue:
    """A queue in which jobs that cannot be stopped again start only within all upper sides.

    An allocation keeps the upper sides of constraints on average, because jobs take turns. A job
    that cannot be preempted takes no turns: if two of them started, no later allocation might keep
    the sides.

    Parameters
    ----------
    queue : RowQueue
    never_stopped : BoolArray, shape (A,)
        Rows of jobs that cannot be preempted.
    side : sequence of SideRows
    """
    matrix, upper = upper_sides(side, queue.classes)
    rows = queue.rows
    running = first_of_each_job(rows, queue.order[queue.must_run[queue.order]])
    used = np.asarray(matrix[:, rows.column[running]].sum(axis=1)).ravel()
    starts = (never_stopped & ~queue.must_run).astype(np.float64)
    limits = sp.csr_matrix(matrix[:, rows.column] @ sp.diags_array(starts))
    free = np.concatenate([queue.free, upper * FULL - used])
    return replace(queue, limits=RowUses.of(limits), free=free)
