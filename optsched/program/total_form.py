"""Totals of utilities as linear programs without their matrices: the linear one, and the tangent of a concave one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from optsched.arrays import FloatArray
from optsched.program.arrays import Block
from optsched.program.linear_form import SmallestLevelForm
from optsched.program.parts import ColumnPart, RowPart, parts_of, rows_of
from optsched.program.pulled import Pulled
from optsched.program.utility import Total


@dataclass(frozen=True)
class TangentForm(SmallestLevelForm):
    """The linear program that `AllocationProgram.tangent` makes of a total: a level l_k of each class instead of one t.

        maximise  sum_k n_k w_k (f(v_k) + f'(v_k) (l_k - v_k))   s.t.  levels @ x >= n l,  time, capacity

    Parameters
    ----------
    program : AllocationProgram
        Without side rows.
    at : FloatArray, shape (K,)
        The levels v.
    """

    at: FloatArray

    @property
    def _utility(self) -> Total:
        utility = self.program.utility
        assert isinstance(utility, Total)
        return utility

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns)."""
        return self.rows[-1].stop, self.program.classes.columns + len(self.program.classes)

    @cached_property
    def implied_upper(self) -> FloatArray:
        """What the time rows leave of each column, and the highest levels."""
        return np.concatenate([self.program.limit, self.program.highest_level])

    @cached_property
    def cost(self) -> FloatArray:
        """n w f'(v) of the levels."""
        size = self.program.classes.count * self._utility.weight
        return np.concatenate([np.zeros(self.program.classes.columns), size * self._utility.slope(self.at)])

    def _behind(self) -> Iterator[ColumnPart]:
        """The levels."""
        columns, size = self.program.classes.columns, self.program.classes.count * self._utility.weight
        cost = size * self._utility.slope(self.at)
        yield from self._alike(slice(columns, self.shape[1]), self.program.highest_level, cost)

    @cached_property
    def offset(self) -> float:
        """sum_k n_k w_k (f(v_k) - f'(v_k) v_k)."""
        utility, v = self._utility, self.at
        return float((self.program.classes.count * utility.weight) @ (utility.value(v) - utility.slope(v) * v))

    def _gathered(self, by_class: FloatArray) -> FloatArray:
        """Each class has a level of its own."""
        return by_class


@dataclass(frozen=True)
class LinearTotalForm(SmallestLevelForm):
    """The linear program of an allocation program with a linear total: its columns x, its rows time and capacity."""

    @property
    def _levels(self) -> None:
        """There are no rows of levels."""
        return None

    @cached_property
    def rows(self) -> tuple[Block, ...]:
        """Time, capacity."""
        classes, goods = len(self.program.classes), len(self.program.classes.capacity)
        return Block("time", 0, classes), Block("capacity", classes, classes + goods)

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns)."""
        return self.rows[-1].stop, self.program.classes.columns

    @cached_property
    def row_lower(self) -> FloatArray:
        """None."""
        return np.full(self.shape[0], -np.inf)

    @cached_property
    def row_upper(self) -> FloatArray:
        """The time of the members, and the capacities."""
        return np.concatenate([self.program.classes.count, self.program.classes.capacity])

    @cached_property
    def implied_upper(self) -> FloatArray:
        """What the time rows leave of each column."""
        return self.program.limit

    @cached_property
    def cost(self) -> FloatArray:
        """What one unit of each column adds to the total."""
        utility = self.program.utility
        assert isinstance(utility, Total)
        return np.asarray(self.program.levels.T @ utility.weight)

    def column_parts(self) -> Iterator[ColumnPart]:
        """All columns, some by some."""
        return parts_of(self)

    def _behind(self) -> Iterator[ColumnPart]:
        """There are none."""
        return iter(())

    def row_parts(self) -> Iterator[RowPart]:
        """All rows, some by some."""
        return rows_of(self.row_lower, self.row_upper)

    def _pulled(self, y: FloatArray, sign: float) -> Pulled:
        time, prices = (y[rows.slice] for rows in self.rows)
        return Pulled.at(self.program.classes, time, prices, None, np.zeros(0), np.zeros(0))

    def largest_in_rows(self, factor: FloatArray) -> FloatArray:
        """Largest entry of each row, of |A| with each column multiplied by a factor of at least 0."""
        return self._largest(factor)
