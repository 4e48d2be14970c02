"""What rows hold of resources, row by row, as plain arrays: rounds ask for it too often for sparse matrices."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from optsched.arrays import FloatArray, IntArray, ranges


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
        order = np.argsort(row, kind="stable")
        resource = np.concatenate([self.resource, other.resource + self.resources])
        return Uses(
            self.start + other.start, resource[order], np.concatenate([self.share, other.share])[order],
            self.resources + other.resources,
        )  # fmt: skip
