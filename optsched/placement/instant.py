"""Which rows of an allocation can run at the same time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from optsched.arrays import BoolArray, FloatArray, IntArray, ranges
from optsched.candidates import Classes, JobRows
from optsched.placement.shares import Shares


@dataclass(frozen=True)
class Uses:
    """Row a holds the shares ``share[start[a]:start[a + 1]]`` of the resources ``resource[...]``.

    Attributes
    ----------
    start : IntArray, shape (A + 1,)
    resource : IntArray, shape (E,)
    share : FloatArray, shape (E,)
    resources : int
        R.
    """

    start: IntArray
    resource: IntArray
    share: FloatArray
    resources: int

    @classmethod
    def of(cls, matrix: sp.sparray | sp.spmatrix) -> Uses:
        """Of a matrix of resources x rows; entries that are 0 are left out."""
        by_row = sp.csc_matrix(matrix)
        kept = by_row.data != 0
        count = np.concatenate(([0], np.cumsum(kept)))
        start = count[by_row.indptr].astype(np.int64)
        return cls(start, by_row.indices[kept].astype(np.int64), by_row.data[kept], by_row.shape[0])

    def __len__(self) -> int:
        return len(self.start) - 1

    @cached_property
    def row(self) -> IntArray:
        """Row of each entry."""
        return np.repeat(np.arange(len(self), dtype=np.int64), np.diff(self.start))

    def take(self, rows: IntArray) -> Uses:
        """Some of the rows, in this order."""
        length = np.diff(self.start)[rows]
        entries = ranges(self.start[rows], length)
        start = np.concatenate(([0], np.cumsum(length))).astype(np.int64)
        return Uses(start, self.resource[entries], self.share[entries], self.resources)

    def total(self, rows: IntArray) -> FloatArray:
        """What some rows hold together of each resource, shape (R,)."""
        some = self.take(rows)
        return np.bincount(some.resource, some.share, minlength=self.resources).astype(np.float64)

    def with_more(self, other: Uses) -> Uses:
        """The same rows with their uses of further resources, which are numbered on."""
        row = np.concatenate([self.row, other.row])
        # Stable: the uses of each row stay together, the further ones last.
        order = np.argsort(row, kind="stable")
        resource = np.concatenate([self.resource, other.resource + self.resources])
        return Uses(
            self.start + other.start,
            resource[order],
            np.concatenate([self.share, other.share])[order],
            self.resources + other.resources,
        )


FULL = 1 + 1e-9
"""Shares of a capacity add up to at most this: three thirds fill a GPU, whatever the rounding."""


@dataclass(frozen=True)
class Instant:
    """The rules of one instant: a job runs at most once, renewable resources stay within capacity, shares are packed.

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
    """

    job: IntArray
    partner: IntArray
    fraction: FloatArray
    uses: Uses
    shares: Shares | None = None

    @classmethod
    def of(cls, classes: Classes, rows: JobRows) -> Instant:
        """The rules for the rows of an allocation, without the resources that can never bind."""
        renewable = np.flatnonzero(classes.resources.renewable)
        usage = sp.csr_matrix(classes.usage[renewable][:, rows.column])
        usage.eliminate_zeros()
        capacity = np.repeat(classes.capacity[renewable], np.diff(usage.indptr))
        with np.errstate(divide="ignore", over="ignore"):
            # Above 1 a row can never run; how far above does not matter, and inf would spoil sums.
            usage.data = np.minimum(usage.data / capacity, 2.0)
        shares = Shares.of(classes, rows.column)
        if shares is not None:
            usage = sp.csr_matrix(sp.vstack([usage, *map(sp.csr_matrix, shares.necessary())]))
        return cls(
            rows.job,
            rows.partner,
            rows.fraction,
            Uses.of(usage[_can_bind(rows.job, usage)]),
            shares,
        )

    def __len__(self) -> int:
        return len(self.job)

    @cached_property
    def by_row(self) -> sp.csc_matrix:
        """Usage by columns, shape (R, A)."""
        uses = self.uses
        return sp.csc_matrix(
            (uses.share, uses.resource, uses.start), shape=(uses.resources, len(uses))
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
        return within and (self.shares is None or self.shares.fits(rows) is True)

    def packed(self, rows: IntArray) -> IntArray:
        """Those of some rows within all capacities that find whole GPUs for their shares too, ascending."""
        if self.shares is None or self.shares.fits(rows):
            return np.sort(rows)
        order = self.shares.decreasing(rows)
        return np.sort(order[self.shares.first_fit(order)])

    @cached_property
    def impossible(self) -> BoolArray:
        """Mask of the rows that not even run alone, as they need more of some resource than there is."""
        mask = np.zeros(len(self), bool)
        mask[self.uses.row[self.uses.share > FULL]] = True
        return mask


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
