"""What columns hold of each resource:
as their ways tell it where that is GPUs alone, else as a matrix.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from optsched.arrays import AnyArray, FloatArray, IntArray, blocks
from optsched.arrays.matrices import largest_of_rows, one_per_column
from optsched.display import Displayed


class ByWay(NamedTuple):
    """Columns of which each holds one resource, as its way tells.

    Attributes
    ----------
    way : IntArray, shape (N,)
    row : IntArray, shape (W,)
        The resource.
    amount : FloatArray, shape (W,)
        How much a unit of a column holds of it.
    """

    way: IntArray
    row: IntArray
    amount: FloatArray


@dataclass(frozen=True, repr=False, eq=False)
class Usage(Displayed):
    """What one unit of each of N columns holds of R resources.

    Attributes
    ----------
    resources : int
    by_way : ByWay or None
    given : csr_matrix or None, shape (R, N)
        Where there is no ``by_way``.
    """

    resources: int
    by_way: ByWay | None = None
    given: sp.csr_matrix | None = None

    @classmethod
    def of(cls, matrix: sp.csr_matrix) -> Usage:
        """As a matrix says, resources x columns."""
        return cls(matrix.shape[0], given=matrix)

    @cached_property
    def matrix(self) -> sp.csr_matrix:
        """It as a matrix, made when it is first asked for:
        of a million jobs that takes its time.
        """
        if self.by_way is None:
            assert self.given is not None
            return self.given
        return one_per_column(self.by_way.row, self.by_way.amount, self.by_way.way, self.resources)

    @cached_property
    def by_column(self) -> sp.csc_matrix:
        """The same matrix by columns, for products with a price per resource."""
        return sp.csc_matrix(self.matrix)

    def take(self, columns: AnyArray) -> Usage:
        """That of some columns."""
        if self.by_way is None:
            return Usage.of(sp.csr_matrix(self.by_column[:, columns]))
        return Usage(
            self.resources, ByWay(self.by_way.way[columns], self.by_way.row, self.by_way.amount)
        )

    def total(self, x: FloatArray) -> FloatArray:
        """What so much of each column holds in all, shape (R,)."""
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
        """Of each column, where there is ``by_way``."""
        assert self.by_way is not None
        return self.by_way.way

    def paid_by_way(self, prices: FloatArray) -> FloatArray | None:
        """What a unit of a column pays at prices of the resources, by its way;
        None where ways do not tell.
        """
        return None if self.by_way is None else prices[self.by_way.row] * self.by_way.amount

    def largest(self, factor: FloatArray | None) -> FloatArray:
        """The most of each resource that a unit of a column,
        times its factor, holds; shape (R,).
        """
        if self.by_way is None or factor is not None:
            data = (
                self.matrix.data
                if factor is None
                else self.matrix.data * factor[self.matrix.indices]
            )
            return largest_of_rows(self.matrix.indptr, data)
        there, largest = np.zeros(len(self.by_way.row), bool), np.zeros(self.resources)
        for part in blocks(len(self.by_way.way)):
            there[self.by_way.way[part]] = True
        np.maximum.at(largest, self.by_way.row[there], self.by_way.amount[there])
        return largest
