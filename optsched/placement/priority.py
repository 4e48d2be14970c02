"""Gavel's priority rule: what runs in the next round, from the allocation and the time received so far.

Narayanan et al., "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads",
OSDI 2020, section 5.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.placement.instant import FULL, Instant

SCRAMBLE = (np.sqrt(5.0) - 1.0) / 2.0
"""Multiples of the golden ratio, modulo 1, put the rows of a tie in an order without long monotone stretches."""


def priorities(fraction: FloatArray, received: FloatArray, elapsed: float) -> FloatArray:
    """Priority of each row: its fraction of the time over the share of the time that it has received.

    With half a round added to both times, so that a row that never ran has a finite priority:

        priority_r = x_r / f_r,    f_r = (received_r + 1/2) / (elapsed + 1/2)

    Within a pool the order is Gavel's, whose f is a share of what all rows of the pool have
    received; measured against the time itself priorities of different pools can be compared as
    well. On one GPU the rule is Webster's method of apportionment, rounds being the seats.

    Parameters
    ----------
    fraction : FloatArray, shape (A,)
        Of the time.
    received : FloatArray, shape (A,)
        Rounds received so far.
    elapsed : float
        Rounds so far.
    """
    return fraction * (elapsed + 0.5) / (received + 0.5)


def next_round(instant: Instant, received: FloatArray, elapsed: float) -> IntArray:
    """Rows that run in the next round.

    Rows are taken by priority, then by deficit (fraction x elapsed - received), then by fraction. A
    row is passed over if one of its jobs runs already or if a resource has no room for it, so that
    smaller rows fill what is left: no capacity stays idle while a row that fits waits. Rows of
    fraction 0 come last.

    The order is worked off in few passes over arrays: in each, every row is taken that fits beside
    *all* rows before it and is the first one left of its jobs.

    Parameters
    ----------
    instant : Instant
        A rows.
    received : FloatArray, shape (A,)
        Rounds received so far.
    elapsed : float
        Rounds so far.

    Returns
    -------
    IntArray
        Rows, ascending.
    """
    fraction = instant.fraction
    scrambled = np.arange(len(instant)) * SCRAMBLE % 1.0
    deficit = fraction * elapsed - received
    return first_fit(
        instant,
        np.lexsort((scrambled, -fraction, -deficit, -priorities(fraction, received, elapsed))),
    )


def first_fit(
    instant: Instant, order: IntArray, free: FloatArray | None = None, busy: BoolArray | None = None
) -> IntArray:
    """Rows that run side by side when each is taken, in order, if it fits beside those taken before; ascending.

    Parameters
    ----------
    instant : Instant
        A rows of R resources.
    order : IntArray
        Rows, the first first.
    free : FloatArray, shape (R,), optional
        What is free of each resource, as a share of its capacity; by default all of it.
    busy : BoolArray, shape (jobs,), optional
        Jobs that run already.
    """
    if instant.shares is not None:
        return _first_fit_of_shares(instant, order, free, busy)
    uses = instant.uses.take(order)
    free = np.full(uses.resources, FULL) if free is None else free.copy()
    # The last entry stands for no partner, and is never busy.
    occupied = np.zeros(instant.jobs + 1, bool)
    if busy is not None:
        occupied[:-1] = busy[: instant.jobs]
    left = order
    row = uses.row
    resource = uses.resource
    share = uses.share
    taken: list[IntArray] = []
    while len(left):
        # 1. Rows that no longer fit are dropped.
        possible = ~(occupied[instant.job[left]] | occupied[instant.partner[left]])
        # Room only shrinks: what does not fit now never fits later in this round.
        possible[row[share > free[resource]]] = False
        if not possible.all():
            left, row, resource, share = _kept(possible, left, row, resource, share)
            continue
        # 2. Rows are taken that fit beside all rows before them.
        fits = _first_of_jobs(instant, left)
        fits[row[_beyond(resource, share, free)]] = False
        fits[0] = True  # it was possible, whatever the rounding of the sums
        chosen = left[fits]
        held = fits[row]
        taken.append(chosen)
        free -= np.bincount(resource[held], share[held], minlength=len(free))
        occupied[instant.job[chosen]] = occupied[instant.partner[chosen]] = True
        occupied[-1] = False
        left, row, resource, share = _kept(~fits, left, row, resource, share)
    return np.sort(np.concatenate(taken)) if taken else np.zeros(0, np.int64)


def _first_fit_of_shares(
    instant: Instant, order: IntArray, free: FloatArray | None, busy: BoolArray | None
) -> IntArray:
    """`first_fit` where shares have to be packed: a row that finds no GPU makes way, and the rest is tried again."""
    assert instant.shares is not None
    # The sums of shares are necessary; whether whole GPUs can be found is decided by packing.
    sums = replace(instant, shares=None)
    while True:
        chosen = np.zeros(len(instant), bool)
        chosen[first_fit(sums, order, free, busy)] = True
        mine = order[chosen[order]]
        fits = instant.shares.first_fit(mine)
        if fits.all():
            return instant.packed(mine)
        order = order[~np.isin(order, mine[~fits])]


def _kept(
    mask: BoolArray, left: IntArray, row: IntArray, resource: IntArray, share: FloatArray
) -> tuple[IntArray, IntArray, IntArray, FloatArray]:
    """The rows of a mask with their uses, numbered anew; faster than `Uses.take`, which takes rows in any order."""
    entries = mask[row]
    return left[mask], (np.cumsum(mask) - 1)[row[entries]], resource[entries], share[entries]


def _beyond(resource: IntArray, amount: FloatArray, free: FloatArray) -> BoolArray:
    """Mask of the uses that, with all those of the same resource before them, are more than is free of it."""
    # By resource, in order: running sums tell where each resource is used up.
    order = np.argsort(resource, kind="stable")
    total = np.concatenate(([0.0], np.cumsum(amount[order])))
    start = np.searchsorted(resource[order], np.arange(len(free)))
    beyond = np.zeros(len(resource), bool)
    beyond[order] = total[1:] - total[start][resource[order]] > free[resource[order]]
    return beyond


def _first_of_jobs(instant: Instant, rows: IntArray) -> BoolArray:
    """Mask of the rows before which no other has one of their jobs."""
    place = np.arange(len(rows))
    first = np.full(instant.jobs + 1, len(rows))
    np.minimum.at(first, instant.job[rows], place)
    np.minimum.at(first, instant.partner[rows], place)
    first[-1] = len(rows)
    return np.asarray((first[instant.job[rows]] >= place) & (first[instant.partner[rows]] >= place))


def priority_slices(instant: Instant, rounds: int) -> tuple[FloatArray, sp.csr_matrix]:
    """A window of equal rounds, each filled by `next_round`: lengths as shares of the window, and what runs."""
    received = np.zeros(len(instant))
    chosen = []
    for elapsed in range(rounds):
        chosen.append(next_round(instant, received, float(elapsed)))
        received[chosen[-1]] += 1
    return np.full(rounds, 1.0 / rounds), run_matrix(chosen, len(instant))


def run_matrix(chosen: list[IntArray], rows: int) -> sp.csr_matrix:
    """Slices x rows, 1 where a row runs in a slice."""
    length = np.array([len(part) for part in chosen], np.int64)
    index = np.concatenate([np.zeros(0, np.int64), *chosen])
    start = np.concatenate(([0], np.cumsum(length)))
    return sp.csr_matrix((np.ones(len(index), np.int8), index, start), shape=(len(chosen), rows))
