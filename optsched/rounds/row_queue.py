"""`RowQueue`: the rows that may run in the coming round, in the order in which they are tried."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.candidates import Classes, JobRows
from optsched.placement.instant import FULL, Instant, Uses
from optsched.program import SideRows
from optsched.rounds.rows import first_of_each_job, instant_of, jobs_of, upper_sides


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
    must_run : BoolArray, shape (A,)
        Rows that must go on; they come first in the order.
    starved : BoolArray, shape (A,)
        Rows of jobs that have waited longer than the policy's patience; they come next.
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
    """

    classes: Classes
    rows: JobRows
    order: IntArray
    continues: BoolArray
    must_run: BoolArray
    starved: BoolArray
    busy: BoolArray
    partner_now: IntArray
    free: FloatArray
    uses: Uses
    limits: Uses | None = None
    worth: FloatArray | None = None
    host: IntArray | None = None

    @cached_property
    def instant(self) -> Instant:
        """The rules of one instant."""
        instant = instant_of(self.rows, self.uses)
        if self.limits is None:
            return instant
        return replace(instant, uses=instant.uses.with_more(self.limits))

    @cached_property
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

    def mask(self, some: IntArray) -> BoolArray:
        """Some rows as a mask, shape (A,)."""
        mask = np.zeros(len(self.rows), bool)
        mask[some] = True
        return mask

    def places(self) -> IntArray:
        """Place of each row in the order, 0 for the first; shape (A,)."""
        place = np.empty(len(self.rows), np.int64)
        place[self.order] = np.arange(len(self.order))
        return place

    def first(self, mask: BoolArray) -> RowQueue:
        """The same with the rows of a mask before all others."""
        ahead = mask[self.order]
        return replace(self, order=np.concatenate([self.order[ahead], self.order[~ahead]]))

    def beside(self, tried: IntArray, placed: IntArray) -> RowQueue:
        """What is left after some rows were tried, and those of them placed that could be."""
        busy = self.busy | jobs_of(self.rows, placed, len(self.busy))
        free = self.free - self.instant.uses.total(placed)
        order = self.order[~np.isin(self.order, tried)]
        return replace(self, order=order, busy=busy, free=free)


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
