"""Rows of an allocation that can run at the same time.

`Instant` has the rules, `first_fit` selects rows in a given order, and `next_round` in the order of
Gavel's priorities: Narayanan et al., "Heterogeneity-Aware Cluster Scheduling Policies for Deep
Learning Workloads", OSDI 2020, section 5.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from optsched.arrays import EMPTY, BoolArray, FloatArray, IntArray, mask_of, pointers, stable_order
from optsched.arrays.values import cached_property, replace
from optsched.candidates import Classes, JobRows, RowUses
from optsched.placement.node_room import NodeRoom
from optsched.placement.shares import FULL, Shares

# --- the rules of one instant ----------------------------------------------------------------


@dataclass(frozen=True)
class Instant:
    """The rules of one instant: a job runs at most once, renewable resources are within capacity,
    and shares are packed into whole GPUs of their pool.

    Consumable resources, such as a budget, bind over the whole time and not at an instant; they are
    left out.

    Attributes
    ----------
    job, partner : IntArray, shape (A,)
        Jobs of each row; partner -1 for a job alone.
    fraction : FloatArray, shape (A,)
        Fraction of the time that each row gets.
    uses : RowUses, A rows of R resources
        Share of the capacity of each resource that a row uses, for resources that can bind; above 1
        for a row that can never run. Necessary conditions for a packing of the shares count as
        further resources.
    shares : Shares, optional
        The shares of GPUs of the rows; None if all rows use whole GPUs.
    nodes : NodeRoom, optional
        The nodes on which the rows need room; None if only sums of pools count.
    """

    job: IntArray
    partner: IntArray
    fraction: FloatArray
    uses: RowUses
    shares: Shares | None = None
    nodes: NodeRoom | None = None

    @classmethod
    def of(
        cls,
        classes: Classes,
        rows: JobRows,
        capacities: FloatArray | None = None,
        nodes: NodeRoom | None = None,
    ) -> Instant:
        """The rules for the rows of an allocation, without resources that can never bind.

        ``capacities``, shape (R,), are those of the resources; by default the present ones.
        """
        capacities = classes.capacity if capacities is None else capacities
        renewable = np.flatnonzero(classes.resources.renewable)
        usage = sp.csr_matrix(classes.usage[renewable][:, rows.column])
        usage.eliminate_zeros()
        capacity = capacities[renewable].repeat(np.diff(usage.indptr))
        with np.errstate(divide="ignore", over="ignore"):
            # A row above 1 can never run. The limit of 2 avoids inf in sums.
            usage.data = np.minimum(usage.data / capacity, 2.0)
        shares = Shares.of(classes, rows.column)
        if shares is not None:
            pools = np.flatnonzero(classes.resources.pool >= 0)
            gpus = shares.capacity.copy()
            gpus[classes.resources.pool[pools]] = capacities[pools]
            shares = shares._replace(capacity=gpus)
            usage = sp.csr_matrix(sp.vstack([usage, *map(sp.csr_matrix, shares.necessary())]))
        return cls(
            rows.job,
            rows.partner,
            rows.fraction,
            RowUses.of(usage[_can_bind(rows.job, usage)]),
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
        """Whether some row is a pair."""
        return bool((self.partner >= 0).any())

    def job_time(self, time: FloatArray) -> FloatArray:
        """Time of each job, from the time of each row, shape (jobs,)."""
        shared = self.partner >= 0
        total = np.zeros(self.jobs)
        np.add.at(total, self.job, time)
        np.add.at(total, self.partner[shared], time[shared])
        return total

    def all_fit(self) -> bool:
        """Whether all rows can run side by side; False if that is not known."""
        alone = self.job_time(np.ones(len(self))).max(initial=0.0) <= 1
        rows = np.arange(len(self))
        within = bool(alone and (self.uses.total(rows) <= FULL).all())
        if not within or self.nodes is not None:
            return within and len(self.packed(rows)) == len(self)
        return self.shares is None or self.shares.fits(rows) is True

    def packed(self, rows: IntArray) -> IntArray:
        """Of rows within all capacities, those that also find nodes, or whole GPUs for their
        shares;
        ascending.
        """
        if self.nodes is not None:
            return np.sort(self.nodes.fitting(rows))
        if self.shares is None or self.shares.fits(rows):
            return np.sort(rows)
        order = self.shares.decreasing(rows)
        return np.sort(order[self.shares.first_fit(order)])

    @cached_property
    def impossible(self) -> BoolArray:
        """Mask of the rows that cannot run even alone, because they exceed the capacity of a
        resource.
        """
        more = mask_of(self.uses.row[self.uses.share > FULL], len(self))
        return more if self.nodes is None else more | ~self.nodes.alone()


def _can_bind(job: IntArray, usage: sp.csr_matrix) -> BoolArray:
    """Mask of the resources that can limit a set of rows that run side by side.

    A resource cannot if all jobs together, each in its largest row, are within its capacity, or if
    every row uses at least as large a share of another resource.
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
"""Multiples of the golden ratio, modulo 1, order tied rows without long monotone sequences."""


def priorities(fraction: FloatArray, received: FloatArray, elapsed: float) -> FloatArray:
    """Priority of each row: its fraction of the time divided by the share of the time that it
    received.

    Half a round is added to both times, so that a row that never ran has a finite priority:

        priority_r = x_r / f_r,    f_r = (received_r + 1/2) / (elapsed + 1/2)

    Within a pool the order is Gavel's, whose f is relative to the time that all rows of the pool
    have received; relative to the elapsed time, priorities of different pools can be compared too.
    On one GPU the rule is Webster's method of apportionment, with rounds as seats.

    Parameters
    ----------
    fraction : FloatArray, shape (A,)
        Fractions of the time.
    received : FloatArray, shape (A,)
        Rounds received so far.
    elapsed : float
        Rounds so far.
    """
    return fraction * (elapsed + 0.5) / (received + 0.5)


def next_round(instant: Instant, received: FloatArray, elapsed: float) -> IntArray:
    """Rows that run in the next round.

    Rows are selected by priority, then by deficit (fraction x elapsed - received), then by
    fraction. A row is skipped if one of its jobs already runs or if it exceeds a resource, so that
    smaller rows fill gaps: no capacity stays idle while a row that fits waits. Rows of fraction 0
    come last.

    `first_fit` needs few passes over arrays: each pass selects every row that fits beside *all*
    rows before it and is the first remaining row of its jobs.

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
    """Rows that run side by side if each row is selected, in order, if it fits beside the rows
    selected before it; ascending.

    Parameters
    ----------
    instant : Instant
        A rows of R resources.
    order : IntArray
        Rows in the order in which they are tried.
    free : FloatArray, shape (R,), optional
        Free share of each resource; by default all of it.
    busy : BoolArray, shape (jobs,), optional
        Jobs that already run.
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
    # Uses by resource, those of one resource in the order of the rows: running sums need that.
    by_resource = stable_order(uses.resource, len(free))
    row = uses.row[by_resource]
    resource = uses.resource[by_resource]
    share = uses.share[by_resource]
    taken = []
    while len(left):
        # 1. Rows that no longer fit are dropped.
        possible = ~occupied[instant.job[left]]
        if instant.has_pairs:
            possible &= ~occupied[instant.partner[left]]
        # Free resources only shrink: a row that does not fit now does not fit later.
        possible[row[share > free[resource]]] = False
        left, row, resource, share = _kept(possible, left, row, resource, share)
        if not len(left):
            break
        # 2. Rows that fit beside all rows before them are selected.
        fits = _first_of_jobs(instant, left)
        fits[row[_beyond(resource, share, free)]] = False
        fits[0] = True  # it fits alone, whatever the rounding of the sums
        chosen = left[fits]
        held = fits[row]
        taken.append(chosen)
        free -= np.bincount(resource[held], share[held], minlength=len(free))
        # The next pass drops the selected rows and all other rows of their jobs.
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
    """`first_fit` where shares must be packed: a row without GPUs is dropped, and the rest is tried
    again.
    """
    assert instant.shares is not None
    # Sums of shares are a necessary condition; the packing decides about whole GPUs.
    sums = replace(instant, shares=None)
    while True:
        chosen = mask_of(first_fit(sums, order, free, busy), len(instant))
        in_order = order[chosen[order]]
        fits = instant.shares.first_fit(in_order)
        if fits.all():
            return instant.packed(in_order)
        order = order[~np.isin(order, in_order[~fits])]


def _kept(
    mask: BoolArray,
    left: IntArray,
    row: IntArray,
    resource: IntArray,
    share: FloatArray,
) -> tuple[IntArray, IntArray, IntArray, FloatArray]:
    """The rows of a mask with their uses, renumbered; faster than `RowUses.take`, which allows any
    order.
    """
    entries = mask[row]
    return (
        left[mask],
        (mask.cumsum() - 1)[row[entries]],
        resource[entries],
        share[entries],
    )


def _beyond(resource: IntArray, amount: FloatArray, free: FloatArray) -> BoolArray:
    """Mask of the uses, given by resource, with which the running sum of a resource exceeds its
    free share.
    """
    total = np.concatenate(([0.0], amount.cumsum()))
    start = resource.searchsorted(np.arange(len(free)))
    return np.asarray(total[1:] - total[start][resource] > free[resource])


def _first_of_jobs(instant: Instant, rows: IntArray) -> BoolArray:
    """Mask of the rows that are the first row of each of their jobs."""
    place = np.arange(len(rows))
    first = np.full(instant.jobs + 1, len(rows))
    job = instant.job[rows]
    # Written in reverse, so that the first row of a job is written last.
    first[job[::-1]] = place[::-1]
    if not instant.has_pairs:
        return np.asarray(first[job] == place)
    partner = instant.partner[rows]
    np.minimum.at(first, partner, place)
    first[-1] = len(rows)
    return (first[job] >= place) & (first[partner] >= place)


def priority_slices(instant: Instant, rounds: int) -> tuple[FloatArray, sp.csr_matrix]:
    """A window of equal rounds, each filled by `next_round`: lengths as shares of the window, and
    the rows that run.
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
