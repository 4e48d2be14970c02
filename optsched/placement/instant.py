"""Which rows of an allocation can run at the same time,
and which of them do when they are tried in turn.

`Instant` has the rules, `first_fit` takes rows in an order, and `next_round` does so in the order
of Gavel's priorities: Narayanan et al., "Heterogeneity-Aware Cluster Scheduling Policies for Deep
Learning Workloads", OSDI 2020, section 5.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from optsched.arrays import EMPTY, BoolArray, FloatArray, IntArray, mask_of, pointers, stable_order
from optsched.candidates import Classes, JobRows, Uses
from optsched.placement.node_room import NodeRoom
from optsched.placement.shares import FULL, Shares

# --- the rules of one instant ----------------------------------------------------------------


@dataclass(frozen=True)
class Instant:
    """The rules of one instant:
    a job runs at most once, renewable resources stay within capacity, shares are packed.

    The shares of GPUs that rows hold are packed into whole GPUs of the pool. Consumable resources,
    as a budget, bind over the whole time and not at an instant; they are left out.

    Attributes
    ----------
    job, partner : IntArray, shape (A,)
        Jobs of each row; partner -1 for a job alone.
    fraction : FloatArray, shape (A,)
        Share of the time that each row is to run.
    uses : Uses, A rows of R resources
        Share of the capacity of each resource that can bind that a row holds; above 1 for a row
        that can never run. What is necessary for a packing of the shares counts as further
        resources.
    shares : Shares, optional
        The shares of GPUs of A rows; None where all GPUs are held as a whole.
    nodes : NodeRoom, optional
        The nodes that A rows find room on; None where the sums of pools alone count.
    """

    job: IntArray
    partner: IntArray
    fraction: FloatArray
    uses: Uses
    shares: Shares | None = None
    nodes: NodeRoom | None = None

    @classmethod
    def of(
        cls,
        classes: Classes,
        rows: JobRows,
        there: FloatArray | None = None,
        nodes: NodeRoom | None = None,
    ) -> Instant:
        """The rules for the rows of an allocation, without the resources that can never bind.

        ``there``, of shape (R,), is what there is of each resource where it is not what there is now.
        """
        there = classes.capacity if there is None else there
        renewable = np.flatnonzero(classes.resources.renewable)
        usage = sp.csr_matrix(classes.usage[renewable][:, rows.column])
        usage.eliminate_zeros()
        capacity = np.repeat(there[renewable], np.diff(usage.indptr))
        with np.errstate(divide="ignore", over="ignore"):
            # Above 1 a row can never run; how far above does not matter, and inf would spoil sums.
            usage.data = np.minimum(usage.data / capacity, 2.0)
        shares = Shares.of(classes, rows.column)
        if shares is not None:
            pools = np.flatnonzero(classes.resources.pool >= 0)
            gpus = shares.capacity.copy()
            gpus[classes.resources.pool[pools]] = there[pools]
            shares = shares._replace(capacity=gpus)
            usage = sp.csr_matrix(sp.vstack([usage, *map(sp.csr_matrix, shares.necessary())]))
        return cls(
            rows.job,
            rows.partner,
            rows.fraction,
            Uses.of(usage[_can_bind(rows.job, usage)]),
            shares,
            nodes,
        )

    def __len__(self) -> int:
        return len(self.job)

    @cached_property
    def by_row(self) -> sp.csc_matrix:
        """Usage by columns, shape (R, A)."""
        uses = self.uses
        return sp.csc_matrix(
            (uses.share, uses.resource, uses.start),
            shape=(uses.resources, len(uses)),
        )

    @cached_property
    def usage(self) -> sp.csr_matrix:
        """Usage by resources, shape (R, A)."""
        return sp.csr_matrix(self.by_row)

    @cached_property
    def jobs(self) -> int:
        """One more than the largest number of a job."""
        return int(max(self.job.max(initial=-1), self.partner.max(initial=-1))) + 1

    @cached_property
    def has_pairs(self) -> bool:
        """Whether two jobs share anything."""
        return bool((self.partner >= 0).any())

    def job_time(self, time: FloatArray) -> FloatArray:
        """Time of each job, from the time of each row, shape (jobs,)."""
        shared = self.partner >= 0
        total = np.zeros(self.jobs)
        np.add.at(total, self.job, time)
        np.add.at(total, self.partner[shared], time[shared])
        return total

    def all_fit(self) -> bool:
        """Whether it is shown that all rows can run side by side."""
        alone = self.job_time(np.ones(len(self))).max(initial=0.0) <= 1
        rows = np.arange(len(self))
        within = bool(alone and (self.uses.total(rows) <= FULL).all())
        if not within or self.nodes is not None:
            return within and len(self.packed(rows)) == len(self)
        return self.shares is None or self.shares.fits(rows) is True

    def packed(self, rows: IntArray) -> IntArray:
        """Those of some rows within all capacities that find nodes,
        or whole GPUs for their shares, too, ascending.
        """
        if self.nodes is not None:
            return np.sort(self.nodes.fitting(rows))
        if self.shares is None or self.shares.fits(rows):
            return np.sort(rows)
        order = self.shares.decreasing(rows)
        return np.sort(order[self.shares.first_fit(order)])

    @cached_property
    def impossible(self) -> BoolArray:
        """Mask of the rows that not even run alone,
        as they need more of some resource than there is.
        """
        more = mask_of(self.uses.row[self.uses.share > FULL], len(self))
        return more if self.nodes is None else more | ~self.nodes.alone()


def _can_bind(job: IntArray, usage: sp.csr_matrix) -> BoolArray:
    """Mask of the resources that can keep a set of rows from running side by side.

    A resource cannot if all jobs together, each in its largest row, stay within it, or if another
    resource is used up first: every row holds at least as large a share of the other one.
    """
    kept = np.zeros(usage.shape[0], bool)
    by_row = usage.tocsc()
    for resource in range(len(kept)):
        part = slice(usage.indptr[resource], usage.indptr[resource + 1])
        most = np.zeros(int(job.max(initial=-1)) + 1)
        np.maximum.at(most, job[usage.indices[part]], usage.data[part])
        kept[resource] = most.sum() > FULL
    for resource in np.flatnonzero(kept).tolist():
        part = slice(usage.indptr[resource], usage.indptr[resource + 1])
        rows = usage.indices[part]
        amount = usage.data[part]
        others = by_row.indices[by_row.indptr[rows[0]] : by_row.indptr[rows[0] + 1]]
        for other in others[kept[others] & (others != resource)].tolist():
            beside = np.asarray(usage[other].toarray()).ravel()[rows]
            if (amount <= beside * FULL).all():
                kept[resource] = False
                break
    return kept


# --- rows in turn ----------------------------------------------------------------------------

SCRAMBLE = (np.sqrt(5.0) - 1.0) / 2.0
"""Multiples of the golden ratio, modulo 1,
put the rows of a tie in an order without long monotone stretches.
"""


def priorities(fraction: FloatArray, received: FloatArray, elapsed: float) -> FloatArray:
    """Priority of each row:
    its fraction of the time over the share of the time that it has received.

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
        np.lexsort(
            (
                scrambled,
                -fraction,
                -deficit,
                -priorities(fraction, received, elapsed),
            )
        ),
    )


def first_fit(
    instant: Instant,
    order: IntArray,
    free: FloatArray | None = None,
    busy: BoolArray | None = None,
) -> IntArray:
    """Rows that run side by side when each is taken, in order,
    if it fits beside those taken before; ascending.

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
    # The last entry means no partner, and is never busy.
    occupied = np.zeros(instant.jobs + 1, bool)
    if busy is not None:
        occupied[:-1] = busy[: instant.jobs]
    left = order
    row = uses.row
    resource = uses.resource
    share = uses.share
    taken = []
    while len(left):
        # 1. Rows that no longer fit are dropped.
        possible = ~occupied[instant.job[left]]
        if instant.has_pairs:
            possible &= ~occupied[instant.partner[left]]
        # Room only shrinks: what does not fit now never fits later in this round.
        possible[row[share > free[resource]]] = False
        left, row, resource, share = _kept(possible, left, row, resource, share)
        if not len(left):
            break
        # 2. Rows are taken that fit beside all rows before them.
        fits = _first_of_jobs(instant, left)
        fits[row[_beyond(resource, share, free)]] = False
        fits[0] = True  # it was possible, whatever the rounding of the sums
        chosen = left[fits]
        held = fits[row]
        taken.append(chosen)
        free -= np.bincount(resource[held], share[held], minlength=len(free))
        # Rows that were taken are dropped with all others of their jobs.
        occupied[instant.job[chosen]] = True
        if instant.has_pairs:
            occupied[instant.partner[chosen]] = True
            occupied[-1] = False
    return np.sort(np.concatenate(taken)) if taken else EMPTY


def _first_fit_of_shares(
    instant: Instant,
    order: IntArray,
    free: FloatArray | None,
    busy: BoolArray | None,
) -> IntArray:
    """`first_fit` where shares have to be packed:
    a row that finds no GPU makes way, and the rest is tried again.
    """
    assert instant.shares is not None
    # The sums of shares are necessary; whether whole GPUs can be found is decided by packing.
    sums = replace(instant, shares=None)
    while True:
        chosen = mask_of(first_fit(sums, order, free, busy), len(instant))
        mine = order[chosen[order]]
        fits = instant.shares.first_fit(mine)
        if fits.all():
            return instant.packed(mine)
        order = order[~np.isin(order, mine[~fits])]


def _kept(
    mask: BoolArray,
    left: IntArray,
    row: IntArray,
    resource: IntArray,
    share: FloatArray,
) -> tuple[IntArray, IntArray, IntArray, FloatArray]:
    """The rows of a mask with their uses, numbered anew;
    faster than `Uses.take`, which takes rows in any order.
    """
    entries = mask[row]
    return (
        left[mask],
        (np.cumsum(mask) - 1)[row[entries]],
        resource[entries],
        share[entries],
    )


def _beyond(resource: IntArray, amount: FloatArray, free: FloatArray) -> BoolArray:
    """Mask of the uses that, with all those of the same resource before them,
    are more than is free of it.
    """
    # By resource, in order: running sums tell where each resource is used up.
    order = stable_order(resource, len(free))
    total = np.concatenate(([0.0], np.cumsum(amount[order])))
    start = np.searchsorted(resource[order], np.arange(len(free)))
    beyond = np.zeros(len(resource), bool)
    beyond[order] = total[1:] - total[start][resource[order]] > free[resource[order]]
    return beyond


def _first_of_jobs(instant: Instant, rows: IntArray) -> BoolArray:
    """Mask of the rows before which no other has one of their jobs."""
    place = np.arange(len(rows))
    first = np.full(instant.jobs + 1, len(rows))
    job = instant.job[rows]
    # Of several rows of a job the last one written is the first one.
    first[job[::-1]] = place[::-1]
    if not instant.has_pairs:
        return np.asarray(first[job] == place)
    partner = instant.partner[rows]
    np.minimum.at(first, partner, place)
    first[-1] = len(rows)
    return (first[job] >= place) & (first[partner] >= place)


def priority_slices(instant: Instant, rounds: int) -> tuple[FloatArray, sp.csr_matrix]:
    """A window of equal rounds, each filled by `next_round`:
    lengths as shares of the window, and what runs.
    """
    received = np.zeros(len(instant))
    chosen = []
    for elapsed in range(rounds):
        chosen.append(next_round(instant, received, float(elapsed)))
        received[chosen[-1]] += 1
    return np.full(rounds, 1.0 / rounds), run_matrix(chosen, len(instant))


def run_matrix(chosen: list[IntArray], rows: int) -> sp.csr_matrix:
    """Slices x rows, 1 where a row runs in a slice."""
    length = np.array([len(part) for part in chosen], np.int64)
    index = np.concatenate([EMPTY, *chosen])
    start = pointers(length)
    return sp.csr_matrix((np.ones(len(index), np.int8), index, start), shape=(len(chosen), rows))
