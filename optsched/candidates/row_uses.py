"""Resources that rows hold, as shares of the capacities, stored row by row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from optsched.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    lengths,
    owners,
    pointers,
    ranges,
)
from optsched.arrays.values import cached_property
from optsched.candidates.resources import Resources
from optsched.candidates.usage import Usage
from optsched.display import Displayed, count


@dataclass(frozen=True, repr=False, eq=False)
class RowUses(Displayed):
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

    def _headline(self) -> str:
        return f"{count(len(self.start) - 1, 'row')} of {count(self.resources, 'resource')}"

    @classmethod
    def of(cls, matrix: sp.sparray | sp.spmatrix) -> RowUses:
        """Uses from a matrix of resources x rows; zeros are left out."""
        by_row = sp.csc_matrix(matrix)
        kept = by_row.data != 0
        before = pointers(kept)
        start = before[by_row.indptr].astype(np.int64)
        return cls(
            start,
            by_row.indices[kept].astype(np.int64),
            by_row.data[kept],
            by_row.shape[0],
        )

    @classmethod
    def of_columns(cls, usage: Usage, resources: Resources) -> RowUses:
        """Uses of columns: renewable resources only, as shares of their capacities."""
        if usage.by_way is None:
            uses = cls.of(usage.by_column)
        else:
            way, row, amount = usage.by_way
            start = np.arange(len(way) + 1, dtype=np.int64)
            uses = cls(start, row[way], amount[way], usage.resources)
        renewable = resources.renewable
        kept = renewable[uses.resource]
        number = renewable.cumsum() - 1
        before = pointers(kept)
        capacity = resources.capacity[uses.resource[kept]]
        with np.errstate(divide="ignore", over="ignore"):
            # A column with a share above 1 can never run. Shares are capped, because inf would
            # spoil sums.
            share = np.minimum(uses.share[kept] / capacity, 2.0)
        resource = number[uses.resource[kept]]
        return cls(before[uses.start], resource, share, int(renewable.sum()))

    def __len__(self) -> int:
        return len(self.start) - 1

    @cached_property
    def each(self) -> int:
        """Number of entries per row if it is the same for all rows (such as 3 for GPUs, CPUs and
        memory), else 0.
        """
        each = len(self.resource) // max(len(self), 1)
        alike = each * len(self) == len(self.resource) and (lengths(self.start) == each).all()
        return each if alike else 0

    @cached_property
    def row(self) -> IntArray:
        """Row of each entry."""
        if self.each == 1:
            return self.start[:-1]
        return owners(lengths(self.start))

    def take(self, rows: IntArray) -> RowUses:
        """Some of the rows, in this order."""
        if self.each:
            # Equal rows form a table; indexing it is faster than building ranges.
            start = np.arange(len(rows) + 1, dtype=np.int64) * self.each
            resource = self.resource.reshape(-1, self.each)[rows].ravel()
            share = self.share.reshape(-1, self.each)[rows].ravel()
            return RowUses(start, resource, share, self.resources)
        length = lengths(self.start)[rows]
        entries = ranges(self.start[rows], length)
        start = pointers(length)
        return RowUses(start, self.resource[entries], self.share[entries], self.resources)

    def within(self, free: FloatArray) -> BoolArray:
        """Mask of the rows that need no more of any resource than is free, shape (A,)."""
        fits = np.ones(len(self), bool)
        fits[self.row[self.share > free[self.resource]]] = False
        return fits

    def total(self, rows: IntArray) -> FloatArray:
        """Total share of each resource that some rows hold, shape (R,)."""
        taken = self.take(rows)
        return np.bincount(taken.resource, taken.share, minlength=self.resources).astype(np.float64)

    def beyond(self, rows: IntArray, others: IntArray, *more: IntArray) -> RowUses:
        """For each i, the resources that row ``rows[i]`` and the rows ``more[..][i]`` hold in
        excess of row ``others[i]``.

        The row number ``len(self)`` stands for a row that holds nothing.
        """
        if not more and (others == len(self)).all():
            return self.take(rows)
        # Encode (row, resource) as one number and add up the shares; shares of ``others`` are
        # negative.
        place, amount = [], []
        for sign, part in ((1.0, rows), (-1.0, others), *((1.0, part) for part in more)):
            used = np.flatnonzero(part < len(self))
            taken = self.take(part[used])
            place.append(used[taken.row] * self.resources + taken.resource)
            amount.append(sign * taken.share)
        places, entry = np.unique(np.concatenate(place), return_inverse=True)
        share = np.bincount(entry, np.concatenate(amount)).astype(np.float64, copy=False)
        row, resource = np.divmod(places[share > 0], self.resources)
        start = pointers(np.bincount(row, minlength=len(rows)))
        return RowUses(start, resource, share[share > 0], self.resources)

    def with_more(self, other: RowUses) -> RowUses:
        """The same rows with their uses of additional resources, which get the next numbers."""
        row = np.concatenate([self.row, other.row])
        # A stable sort: within a row, the additional resources come last.
        order = row.argsort(kind="stable")
        resource = np.concatenate([self.resource, other.resource + self.resources])
        return RowUses(
            self.start + other.start,
            resource[order],
            np.concatenate([self.share, other.share])[order],
            self.resources + other.resources,
        )
