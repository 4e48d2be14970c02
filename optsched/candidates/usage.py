"""Use of resources by columns: stored per way if columns use only GPUs, else as a matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from optsched.arrays import AnyArray, FloatArray, IntArray, blocks
from optsched.arrays.matrices import largest_of_rows, one_per_column
from optsched.arrays.values import cached_property
from optsched.display import Displayed


class ByWay(NamedTuple):
    """Columns that each use one resource (GPUs of a pool); the way of a column gives the amount.

    Attributes
    ----------
    way : IntArray, shape (N,)
    row : IntArray, shape (W,)
        The resource.
    amount : FloatArray, shape (W,)
        Amount per unit of a column.
    """

    way: IntArray
    row: IntArray
    amount: FloatArray


@dataclass(frozen=True, repr=False, eq=False)
class Usage(Displayed):
    """Amounts of R resources that one unit of each of N columns holds.

    Attributes
    ----------
    resources : int
    by_way : ByWay or None
    given : csr_matrix or None, shape (R, N)
        Given if ``by_way`` is None.
    """

    resources: int
    by_way: ByWay | None = None
    given: sp.csr_matrix | None = None

    @classmethod
    def of(cls, matrix: sp.csr_matrix) -> Usage:
        """Usage from a matrix, resources x columns."""
        return cls(matrix.shape[0], given=matrix)

    @cached_property
    def matrix(self) -> sp.csr_matrix:
        """The same as a matrix. It is made on first use, because it is slow for a million jobs."""
        if self.by_way is None:
            assert self.given is not None
            return self.given
        return one_per_column(self.by_way.row, self.by_way.amount, self.by_way.way, self.resources)

    @cached_property
    def by_column(self) -> sp.csc_matrix:
        """The same matrix by columns, for products with a price per resource."""
        return sp.csc_matrix(self.matrix)

    def take(self, columns: AnyArray) -> Usage:
        """Usage of some columns."""
        if self.by_way is None:
            return Usage.of(sp.csr_matrix(self.by_column[:, columns]))
        return Usage(
            self.resources, ByWay(self.by_way.way[columns], self.by_way.row, self.by_way.amount)
        )

    def with_more(self, resources: int) -> Usage:
        """The same with this many resources more, of which the columns use nothing."""
        if self.given is None:
            return Usage(self.resources + resources, self.by_way)
        none = sp.csr_matrix((resources, self.given.shape[1]))
        return Usage.of(sp.csr_matrix(sp.vstack([self.given, none])))

    def total(self, x: FloatArray) -> FloatArray:
        """Total use of the allocation x, shape (R,)."""
        if self.by_way is None:
            return self.matrix @ x
        each = np.zeros(len(self.by_way.row))
        for part in blocks(len(x)):
            each += np.bincount(self.by_way.way[part], x[part], len(each))
        return np.bincount(self.by_way.row, each * self.by_way.amount, self.resources).astype(
            np.float64, copy=False
        )

    @property
    def way(self) -> IntArray:
        """Way of each column; requires ``by_way``."""
        assert self.by_way is not None
        return self.by_way.way

    def paid_by_way(self, prices: FloatArray) -> FloatArray | None:
        """Cost of one unit of a column at these prices of resources, per way; None without
        ``by_way``.
        """
        return None if self.by_way is None else prices[self.by_way.row] * self.by_way.amount

    def largest(self, factor: FloatArray | None) -> FloatArray:
        """Largest use of each resource by one unit of a column times its factor, shape (R,)."""
        if self.by_way is None or factor is not None:
            data = (
                self.matrix.data
                if factor is None
                else self.matrix.data * factor[self.matrix.indices]
            )
            return largest_of_rows(self.matrix.indptr, data)
        used, largest = np.zeros(len(self.by_way.row), bool), np.zeros(self.resources)
        for part in blocks(len(self.by_way.way)):
            used[self.by_way.way[part]] = True
        np.maximum.at(largest, self.by_way.row[used], self.by_way.amount[used])
        return largest
