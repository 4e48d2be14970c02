"""Rows of an allocation (`JobRows`) and the queue of those that may run in a round (`RowQueue`).

A row is a job alone (partner -1), or two jobs that share GPUs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property

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
)
from optsched.candidates import Classes, JobRows, Uses
from optsched.formulation import Infeasible, SideConstraint
from optsched.placement.instant import Instant, first_fit
from optsched.placement.shares import FULL
from optsched.program import SideRows

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
    return mask[rows.job[some]] | gathered(mask, rows.partner[some], False)


def larger(rows: JobRows, values: FloatArray) -> FloatArray:
    """The larger of the values of the job and the partner of each row, at least 0."""
    return np.maximum(values[rows.job], gathered(values, rows.partner, 0.0))


# --- some of the rows -------------------------------------------------------------------------


def concatenate(*parts: JobRows) -> JobRows:
    """The rows of all parts, one part after the other."""
    # Most parts are empty in most rounds.
    some = [part for part in parts if len(part)]
    return JobRows.join(some) if len(some) > 1 else some[0] if some else no_rows()


def no_rows() -> JobRows:
    nothing = np.zeros(0)
    return JobRows(EMPTY, EMPTY, EMPTY, nothing, nothing, nothing)


def rows_alone(classes: Classes, jobs: IntArray) -> JobRows:
    """Every column without a partner of some jobs, as rows without a claim (fraction 0)."""
    alone, start = classes.alone_by_class
    count = np.diff(start)
    mine = classes.of_job[jobs]
    jobs = jobs[mine >= 0]
    mine = mine[mine >= 0]
    column = alone[ranges(start[mine], count[mine])]
    job = np.repeat(jobs, count[mine])
    nobody = np.full(len(job), -1, np.int64)
    nothing = np.zeros(len(job))
    return JobRows(job, nobody, column, nothing, classes.rate_a[column], nothing)


def every_way_alone(
    classes: Classes,
    known: JobRows,
    jobs: BoolArray,
    constraints: Iterable[SideConstraint],
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
    return rows.take(np.flatnonzero(allowed[rows.column] & new))


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
    column = find_rows(known, np.column_stack([mine, other, key[:, 2:]]))
    # The column of a pair may name its two classes in the other order.
    swapped = find_rows(known, np.column_stack([other, mine, key[:, 2:]]))
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


def instant_of(rows: JobRows, uses: Uses) -> Instant:
    """What rows need at one instant, from the uses of the class columns."""
    return Instant(rows.job, rows.partner, rows.fraction, uses.take(rows.column))


# --- side constraints -------------------------------------------------------------------------


def side_rows(constraints: Iterable[SideConstraint], classes: Classes) -> list[SideRows]:
    """Rows of side constraints; one that cannot be kept at all, as the fallback says, has none."""
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


# --- the queue -------------------------------------------------------------------------------

ROWS_AT_ONCE = 2048
"""Rows of a queue that are looked at together."""
MUST_RUN = 0
STARVED = 1
URGENT = 2
DUE = 3
"""Priority groups of rows, one after the other."""


@dataclass(frozen=True)
class RowQueue:
    """Rows in the order in which they are tried, and the room that is left for them.

    Attributes
    ----------
    classes : Classes
    rows : JobRows, A rows
    order : IntArray
        The rows that are tried, the first first.
    continues : BoolArray, shape (A,)
        Whether the row's jobs hold such GPUs now, so that it can go on as it is.
    group : IntArray, shape (A,)
        `MUST_RUN`, `STARVED`, `URGENT` or `DUE`: the order has one group after the other.
    busy : BoolArray, shape (jobs,)
        Jobs that are not to run in any of the rows.
    partner_now : IntArray, shape (jobs,)
        The job with which each shares its GPUs now, -1 for none.
    free : FloatArray, shape (limits,)
        Share of each renewable resource that is not occupied, and what is left of further limits.
    uses : Uses
        Shares of the renewable resources that each class column holds.
    limits : Uses, A rows, optional
        Use of further limits, which are not to be exceeded for any row.
    worth : FloatArray, shape (A,), optional
        What the rows are worth (`optsched.rounds.exchange.worth_of`), where they are chosen as one
        set.
    host : IntArray, shape (A,), optional
        The job on whose GPUs a guest joins it, -1 for rows in which none does.
    fills : bool
        Whether jobs may have GPUs that rows with a claim leave over.
    """

    classes: Classes
    rows: JobRows
    order: IntArray
    continues: BoolArray
    group: IntArray
    busy: BoolArray
    partner_now: IntArray
    free: FloatArray
    uses: Uses
    limits: Uses | None = None
    worth: FloatArray | None = None
    host: IntArray | None = None
    fills: bool = False

    @cached_property
    def must_run(self) -> BoolArray:
        """Rows that must go on; shape (A,)."""
        return np.asarray(self.group == MUST_RUN)

    @cached_property
    def starved(self) -> BoolArray:
        """Rows of jobs that have waited longer than the policy's patience; shape (A,)."""
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
        """Rows that ask for more of the further limits than is left; shape (A,)."""
        if self.limits is None:
            return np.zeros(len(self.rows), bool)
        left = self.free[self.uses.resources :]
        over = self.limits.share > left[self.limits.resource]
        return self.mask(self.limits.row[over])

    @property
    def hosts(self) -> IntArray:
        """``host``; -1 where there is none, shape (A,)."""
        return np.full(len(self.rows), -1, np.int64) if self.host is None else self.host

    def gpus_of(self, some: IntArray) -> IntArray:
        """The job on whose present GPUs each of some rows goes on."""
        host = self.hosts[some]
        return np.where(host >= 0, host, self.rows.job[some])

    @property
    def columns_that_fit(self) -> BoolArray:
        """Columns that hold no more of any renewable resource than is free; shape (N,)."""
        return self._fit_beside(self.free)

    def _fit_beside(self, free: FloatArray) -> BoolArray:
        uses = self.uses
        fits = np.ones(self.classes.columns, bool)
        fits[uses.row[uses.share > free[uses.resource]]] = False
        return fits

    def side_by_side(self) -> IntArray:
        """Rows that run when each is taken, in the order, if it fits beside those before; ascending."""
        free, busy = self.free, self.busy
        taken = [EMPTY]
        # When the first of thousands of rows have taken nearly all, few others fit even alone.
        for start in range(0, len(self.order), ROWS_AT_ONCE):
            some = self.order[start : start + ROWS_AT_ONCE]
            some = some[self._fit_beside(free)[self.rows.column[some]]]
            if len(some):
                chosen = first_fit(self.instant, some, free, busy)
                free = free - self.instant.uses.total(chosen)
                busy = busy | jobs_of(self.rows, chosen, len(busy))
                taken.append(chosen)
        return np.sort(np.concatenate(taken))

    def mask(self, some: IntArray) -> BoolArray:
        """Some rows as a mask, shape (A,)."""
        return mask_of(some, len(self.rows))

    def positions(self) -> IntArray:
        """Position of each row in the order, 0 for the first; shape (A,)."""
        position = np.empty(len(self.rows), np.int64)
        position[self.order] = np.arange(len(self.order))
        return position

    def of(self, order: IntArray, **left: AnyArray) -> RowQueue:
        """The same rows in another order, or fewer of them; with other ``free`` or ``busy`` if given."""
        queue = copy(self)  # with what is known of the rows, whatever their order
        for name, values in {"order": order, **left}.items():
            object.__setattr__(queue, name, values)
        return queue

    def first(self, mask: BoolArray) -> RowQueue:
        """The same with the rows of a mask before all others."""
        ahead = mask[self.order]
        return self.of(np.concatenate([self.order[ahead], self.order[~ahead]]))

    def in_groups(self) -> RowQueue:
        """The same with one group after the other."""
        return self.of(self.order[np.argsort(self.group[self.order], kind="stable")])

    def beside(self, placed: IntArray) -> RowQueue:
        """What is left beside some rows that have their place."""
        busy = self.busy | jobs_of(self.rows, placed, len(self.busy))
        free = self.free - self.instant.uses.total(placed)
        return self.of(self.order[~self.mask(placed)[self.order]], busy=busy, free=free)


def room_at_least(free: FloatArray, rows: JobRows, uses: Uses, must_run: IntArray) -> FloatArray:
    """What is free of each resource, but no less than rows hold that must go on.

    Where nodes have shrunk, jobs that cannot be preempted hold more than there is.
    """
    held = uses.total(rows.column[first_of_each_job(rows, must_run)]) * FULL
    return np.maximum(free, held)


def within_upper_sides(
    queue: RowQueue, never_stopped: BoolArray, side: Sequence[SideRows]
) -> RowQueue:
    """A queue in which jobs that cannot be stopped again start only where they can run for ever.

    An allocation keeps the upper sides of constraints on average, by turns. A job that cannot be
    preempted takes no turns, and two that start may leave no allocation at all that keeps them.

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
    return replace(queue, limits=Uses.of(limits), free=free)
