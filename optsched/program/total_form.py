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


@dataclass(frozen=True)
class TangentForm(SmallestLevelForm):
    """The linear program that `Total.tangent` makes: a level l_k of each class instead of one t.

        maximise  sum_k n_k w_k (f(v_k) + f'(v_k) (l_k - v_k))   s.t.  levels @ x >= n l,  time, capacity

    Parameters
    ----------
    region : FeasibleRegion
        Without side rows.
    price : FloatArray, shape (K,)
        n w f'(v): what a unit of each level is worth.
    constant : float
        sum_k n_k w_k (f(v_k) - f'(v_k) v_k).
    """

    price: FloatArray
    constant: float

    @property
    def offset(self) -> float:
        return self.constant

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns)."""
        return self.rows[-1].stop, self.region.classes.columns + len(self.region.classes)

    @cached_property
    def implied_upper(self) -> FloatArray:
        """What the time rows leave of each column, and the highest levels."""
        return np.concatenate([self.region.limit, self.region.highest_level])

    @cached_property
    def cost(self) -> FloatArray:
        """n w f'(v) of the levels."""
        return np.concatenate([np.zeros(self.region.classes.columns), self.price])

    def _behind(self) -> Iterator[ColumnPart]:
        at = slice(self.region.classes.columns, self.shape[1])
        yield from self._alike(at, self.region.highest_level, self.price)

    def _gathered(self, by_class: FloatArray) -> FloatArray:
        """Each class has a level of its own."""
        return by_class


@dataclass(frozen=True)
class LinearTotalForm(SmallestLevelForm):
    """The linear program of an allocation program with a linear total: its columns x, its rows time and capacity.

    Parameters
    ----------
    region : FeasibleRegion
        Without side rows.
    weight : FloatArray, shape (K,)
        What a unit of ``levels @ x`` is worth.
    """

    weight: FloatArray

    @property
    def _levels(self) -> None:
        """There are no rows of levels."""
        return None

    @cached_property
    def rows(self) -> tuple[Block, ...]:
        """Time, capacity."""
        classes, goods = len(self.region.classes), len(self.region.classes.capacity)
        return Block("time", 0, classes), Block("capacity", classes, classes + goods)

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns)."""
        return self.rows[-1].stop, self.region.classes.columns

    @cached_property
    def row_lower(self) -> FloatArray:
        return np.full(self.shape[0], -np.inf)

    @cached_property
    def row_upper(self) -> FloatArray:
        """The time of the members, and the capacities."""
        return np.concatenate([self.region.classes.count, self.region.classes.capacity])

    @cached_property
    def implied_upper(self) -> FloatArray:
        """What the time rows leave of each column."""
        return self.region.limit

    @cached_property
    def cost(self) -> FloatArray:
        """What one unit of each column adds to the total."""
        return np.asarray(self.region.levels.T @ self.weight)

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
        return Pulled.at(self.region.classes, time, prices, None, np.zeros(0), np.zeros(0))

    def largest_in_rows(self, factor: FloatArray) -> FloatArray:
        """Largest entry of each row, of |A| with each column multiplied by a factor of at least 0."""
        return self._largest(factor)
