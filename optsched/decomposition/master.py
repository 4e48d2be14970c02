"""The master program of a decomposition, and its columns."""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from optsched.arrays import FloatArray, IntArray
from optsched.errors import InvalidArgument


class CoupledRows(NamedTuple):
    """Sides of the rows that couple the parts of a program: ``lower <= A x <= upper``.

    Attributes
    ----------
    lower, upper : FloatArray, shape (rows,)
        Infinite where a row has no such side.
    """

    lower: FloatArray
    upper: FloatArray

    @classmethod
    def of(cls, lower: ArrayLike, upper: ArrayLike) -> CoupledRows:
        """Rows from arrays of any kind.

        Parameters
        ----------
        lower, upper : array, shape (rows,)

        Returns
        -------
        CoupledRows

        Raises
        ------
        InvalidArgument
            Sides cross.
        """
        return cls(*_sides("lower", lower, upper))

    def __len__(self) -> int:
        return len(self.lower)

    def least_worth(self, y: FloatArray) -> float:
        """min { y'a : lower <= a <= upper }, for prices of the right sign.

        Parameters
        ----------
        y : FloatArray, shape (rows,)

        Returns
        -------
        float
        """
        side = np.where(y > 0, self.lower, self.upper)
        return float(y @ np.where(y == 0, 0.0, side))

    def missing(self, y: FloatArray, activity: FloatArray) -> FloatArray:
        """Distance from the activities to the sides that the signs of the prices ``y`` select; a
        subgradient of the Lagrangian bound at y. It is 0 if the price is 0 and the activity is
        within the row.

        Parameters
        ----------
        y, activity : FloatArray, shape (rows,)

        Returns
        -------
        FloatArray, shape (rows,)
        """
        inside = np.clip(activity, self.lower, self.upper)
        wanted = np.where(y > 0, self.lower, np.where(y < 0, self.upper, inside))
        return np.asarray(wanted - activity, np.float64)

    def signed(self, y: FloatArray) -> FloatArray:
        """The prices, with 0 instead of those whose side of the row is infinite.

        Parameters
        ----------
        y : FloatArray, shape (rows,)

        Returns
        -------
        FloatArray, shape (rows,)
        """
        bad = ((y > 0) & np.isneginf(self.lower)) | ((y < 0) & np.isposinf(self.upper))
        return np.where(bad, 0.0, y)


def _sides(name: str, lower: ArrayLike, upper: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Lower and upper sides as arrays of floats; raises `InvalidArgument` where they cross."""
    low, high = (np.atleast_1d(np.asarray(side, np.float64)) for side in (lower, upper))
    if low.shape != high.shape:
        raise InvalidArgument(name, f"shape {low.shape}", f"{high.shape}, as the upper side")
    wrong = np.flatnonzero(~(low <= high))
    if len(wrong):
        row = int(wrong[0])
        raise InvalidArgument(f"{name}[{row}]", f"{low[row]:g}", f"at most {high[row]:g}")
    return low, high


class MasterColumns(NamedTuple):
    """Columns of a master program.

    Attributes
    ----------
    cost : FloatArray, shape (N,)
    matrix : csc_matrix, shape (rows, N)
        Their entries in the rows.
    block : IntArray, shape (N,)
        The block of each column.
    """

    cost: FloatArray
    matrix: sp.csc_matrix
    block: IntArray

    @classmethod
    def of(
        cls, cost: ArrayLike, matrix: ArrayLike | sp.spmatrix, block: ArrayLike
    ) -> MasterColumns:
        """Columns from arrays of any kind.

        Parameters
        ----------
        cost : array, shape (N,)
        matrix : array or sparse matrix, shape (rows, N)
        block : array of int, shape (N,)

        Returns
        -------
        MasterColumns

        Raises
        ------
        InvalidArgument
            Sizes differ.
        """
        entries: Any = matrix if sp.issparse(matrix) else np.asarray(matrix, np.float64)
        made = cls(
            np.atleast_1d(np.asarray(cost, np.float64)),
            sp.csc_matrix(entries).astype(np.float64),
            np.atleast_1d(np.asarray(block, np.int64)),
        )
        if not len(made.cost) == made.matrix.shape[1] == len(made.block):
            found = (
                f"{len(made.cost)} costs, {made.matrix.shape[1]} columns, {len(made.block)} blocks"
            )
            raise InvalidArgument("columns", found, "as many of each")
        return made

    @classmethod
    def nothing(cls, rows: int) -> MasterColumns:
        """No columns, of a master with so many rows.

        Parameters
        ----------
        rows : int

        Returns
        -------
        MasterColumns
        """
        return cls.of([], np.zeros((rows, 0)), [])

    def __len__(self) -> int:
        return len(self.cost)

    def take(self, which: ArrayLike) -> MasterColumns:
        """Some of the columns.

        Parameters
        ----------
        which : array
            A mask, or numbers.

        Returns
        -------
        MasterColumns
        """
        rows = np.asarray(which)
        return MasterColumns(self.cost[rows], sp.csc_matrix(self.matrix[:, rows]), self.block[rows])

    def beside(self, other: MasterColumns) -> MasterColumns:
        """These columns and others behind them.

        Parameters
        ----------
        other : MasterColumns

        Returns
        -------
        MasterColumns
        """
        return MasterColumns(
            np.concatenate([self.cost, other.cost]),
            sp.csc_matrix(sp.hstack([self.matrix, other.matrix])),
            np.concatenate([self.block, other.block]),
        )


class Priced(NamedTuple):
    """The result of pricing at some duals.

    Attributes
    ----------
    columns : MasterColumns
        Any number of columns; those that do not improve the master are ignored.
    least : array, shape (blocks,)
        A lower bound on ``cost - y @ column`` over **all** columns of each block, including columns
        that are not generated. If the pricing problem was solved to optimality, it is the optimum.
        The bound of the decomposition depends on these numbers.
    """

    columns: MasterColumns
    least: ArrayLike


class Master(NamedTuple):
    """Rows that couple blocks, and limits on the number of columns taken from each block.

    ::

        minimise    sum_j cost_j x_j
        s.t.        lower_r  <=  sum_j A_rj x_j  <=  upper_r          rows
                    least_k  <=  sum_{j in block k} x_j  <=  most_k   convexity
                    x >= 0

    Attributes
    ----------
    lower, upper : FloatArray, shape (rows,)
        Infinite where a row has no such side.
    least, most : FloatArray, shape (blocks,)
        1 and 1 for blocks of which exactly one column is taken; ``most`` is finite.
    """

    lower: FloatArray
    upper: FloatArray
    least: FloatArray
    most: FloatArray

    @classmethod
    def of(cls, lower: ArrayLike, upper: ArrayLike, least: ArrayLike, most: ArrayLike) -> Self:
        """A master from arrays of any kind.

        Parameters
        ----------
        lower, upper : array, shape (rows,)
        least, most : array, shape (blocks,)

        Returns
        -------
        Master

        Raises
        ------
        InvalidArgument
            Sides cross, or a block is without limit.
        """
        made = cls(*_sides("lower", lower, upper), *_sides("least", least, most))
        if not ((made.least >= 0) & np.isfinite(made.most)).all():
            raise InvalidArgument("least, most", "other numbers", "0 <= least <= most, finite")
        return made

    @property
    def sides(self) -> CoupledRows:
        """The sides of the rows."""
        return CoupledRows(self.lower, self.upper)

    @property
    def rows(self) -> int:
        return len(self.lower)

    @property
    def blocks(self) -> int:
        return len(self.most)

    def bound(self, y: FloatArray, least: FloatArray) -> float:
        """The Lagrangian bound of duals ``y`` of the rows.

        ::

            min { y'Ax : lower <= Ax <= upper }  +  sum_k min { n least_k : least_k <= n <= most_k }

        Every solution of the master over all columns costs at least this. Duals of the wrong sign
        are replaced by 0.

        Parameters
        ----------
        y : FloatArray, shape (rows,)
        least : FloatArray, shape (blocks,)
            Least reduced cost of the columns of each block.

        Returns
        -------
        float
        """
        rows = self.sides.least_worth(self.sides.signed(y))
        # A block that needs no column contributes 0 even if it has none (its ``least`` is infinite)
        needed = self.least * np.where(self.least > 0, least, 0.0)
        return rows + float(np.where(least > 0, needed, self.most * np.minimum(least, 0.0)).sum())
