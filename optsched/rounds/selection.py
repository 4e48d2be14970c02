"""Selects the rows of an allocation that run in the coming round.

A row r has the fraction x_r of the time and the deficit d_r (rounds that it is owed). Row r is
**due** when its deficit plus its head start h_r reaches half a round:

    due_r = (1/2 - d_r - h_r) / x_r      rounds from now,
    h_r   = hysteresis + restart cost / round  if r runs now, else 0

Rows are selected by ascending due time, each if it fits beside the rows selected before it, so
smaller rows fill gaps. With a fixed allocation and h_r = 0, d_r = x_r e - k after e rounds, k of
them with the row, and the order is that of (k + 1/2) / x_r: Webster's method of apportionment, and
Gavel's priority x_r / f_r (`optsched.placement.instant`). Unlike those two rules, the due time
depends on the past only through d_r, so it stays valid when the allocation changes. With h_r > 0 a
running row keeps running until another row is owed h_r rounds more.

If jobs share GPUs, or split their time over single GPUs, selecting rows one by one wastes GPUs.
Then the set of rows with the greatest worth is selected first (`optsched.rounds.exchange`), and the
other rows follow in the order above.

Priorities and preemption are in `optsched.rounds.preemption`. GPUs that stay idle go to jobs
without a claim (`optsched.rounds.idle`).
"""

from __future__ import annotations

import numpy as np

from optsched.arrays import EMPTY, BoolArray, FloatArray, IntArray, mask_of
from optsched.placement.instant import Instant, first_fit
from optsched.rounds.exchange import exchanged
from optsched.rounds.preemption import displaced, rows_that_stay
from optsched.rounds.rows import DUE, RowQueue


def select(queue: RowQueue, preemptions_left: float) -> IntArray:
    """The rows that run, ascending.

    Parameters
    ----------
    queue : RowQueue
    preemptions_left : float
        Most running jobs that may be preempted or moved (inf: any number). If more would be, those
        that are due earliest stay. Starved jobs ignore the limit.
    """
    if queue.worth is not None:
        queue = best_set_first(queue, queue.worth)
    chosen = queue.side_by_side()
    tried = np.zeros(len(queue.rows), bool)
    while len(staying := rows_to_stay_in(queue, chosen, tried)):
        # The resources of the rows that they leave are free now, so more jobs may be able to stay.
        tried[staying] = True
        queue = queue.first(queue.mask(staying)).in_groups()
        chosen = queue.side_by_side()
    if np.isinf(preemptions_left) or displaced(queue, chosen).sum() <= preemptions_left:
        return chosen
    # The last call of `first` wins: rows that must run, then starved ones, then those that stay.
    stay = rows_that_stay(queue, chosen, preemptions_left)
    starved = queue.starved & queue.mask(chosen)
    return queue.first(stay).first(starved).first(queue.must_run).side_by_side()


def rows_to_stay_in(queue: RowQueue, chosen: IntArray, tried: BoolArray) -> IntArray:
    """Rows in which jobs can continue beside all chosen rows, no slower than in the chosen rows
    that they would leave.

    A job is not moved to follow its claim if no other row needs its GPUs: the time that it receives
    there counts for its claim. This applies only where the round fills idle GPUs (``queue.fills``).

    Parameters
    ----------
    queue : RowQueue
    chosen : IntArray
    tried : BoolArray, shape (A,)
        Rows that an earlier call returned.
    """
    rows = queue.rows
    if not queue.fills:
        return EMPTY
    chosen_of = np.full(len(queue.busy), -1, np.int64)
    alone = chosen[(rows.partner[chosen] < 0) & ~queue.must_run[chosen]]
    chosen_of[rows.job[alone]] = alone
    has_chosen = chosen_of[rows.job] >= 0
    stay = (queue.continues & ~tried & (rows.partner < 0) & has_chosen).nonzero()[0]
    left = chosen_of[rows.job[stay]]
    better = (rows.rate[stay] >= rows.rate[left]) & ~queue.continues[left]
    stay = stay[better]
    left = left[better]
    if not len(stay):
        return stay
    free = queue.free - queue.instant.uses.total(chosen)
    need = queue.instant.uses.beyond(stay, left)
    staying = Instant(rows.job[stay], rows.partner[stay], rows.fraction[stay], need)
    return stay[first_fit(staying, np.arange(len(stay)), free)]


def best_set_first(queue: RowQueue, worth: FloatArray) -> RowQueue:
    """Move the set of rows with the greatest total worth to the front of the group `DUE`."""
    ahead_of_all = queue.group < DUE
    instant = queue.instant
    free = queue.free
    busy = queue.busy
    # The set is chosen beside the rows that come before it in any case.
    ahead = first_fit(instant, queue.order[ahead_of_all[queue.order]], free, busy)
    if len(ahead):
        beside = queue.beside(ahead)
        free = beside.free
        busy = beside.busy
    order = queue.order[~ahead_of_all[queue.order] & (worth[queue.order] > 0)]
    order = order[np.argsort(-worth[order], kind="stable")]
    best = queue.mask(exchanged(instant, worth, order, free, busy))
    return queue.first(best).in_groups()


def ahead_of_first_blocked(queue: RowQueue, chosen: IntArray) -> IntArray:
    """The chosen rows that precede the first waiting job in the queue: strict order.

    Rows behind that job are dropped even if they run now: these jobs stop although their GPUs stay
    idle. Plans in stored journals depend on it.
    """
    runs = mask_of(queue.rows.job[chosen], len(queue.busy))
    waits = ~(runs | queue.busy)
    waiting = waits[queue.rows.job[queue.order]].nonzero()[0]
    if not len(waiting):
        return chosen
    return chosen[np.isin(chosen, queue.order[: waiting[0]])]
