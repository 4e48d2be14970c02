"""Several requirements of a class as one, by a column for each pair of columns that balances two.

A member of a class is to reach s in two measures: a level and a floor of another kind, or two
floors.

    sum_j a_j x_j >= s,   sum_j d_j x_j >= s,   sum_j x_j <= 1,   x >= 0

Places i with a_i > d_i and j with a_j < d_j can be mixed so that both measures are the same:

    m_ij = l a_i + (1 - l) a_j = l d_i + (1 - l) d_j,    l = (d_j - a_j) / (a_i - d_i + d_j - a_j)

Such a pair is a column that gives m_ij, and a single place gives min(a_j, d_j). Every x is a
mixture of pairs and single places that together give min(a x, d x): the shortfall of one measure is
balanced as far as possible, and of the rest each place gives its smaller measure. So both
requirements are one over these columns, of which there are at most w + w^2 / 4; further measures
are taken in one after the other.

A slope y of the one requirement is parted in the same way. With the rent u of the time and the
costs q of
the places, y = y_a + y_d is dual feasible where  a_j y_a + d_j y_d - u <= q_j  for every place, which leaves
y_a an interval: the pairs say that it is not empty (Fourier, Motzkin).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from optsched.arrays import FloatArray, IntArray, quotient
from optsched.arrays.values import cached_property, replace
from optsched.program import AllocationProgram
from optsched.solvers.prices.market import Market

SAME, ROUNDING = 1e-12, 1e-15
"""Relative difference of two measures, and of costs, that may be rounding."""


def floor_measures(program: AllocationProgram, market: Market) -> list[FloatArray]:
    """Part of its floors that all a member's time gives in each place, shape (K, w) for each
    measure;
    inf in the rows of classes without one.
    """
    floors = program.class_floors
    assert floors is not None
    barred = floors.closed.copy()
    barred[program.limit_rows.closed_columns] = True
    tables = []
    for measure in floors.measures:
        part = np.append(np.where(barred, 0.0, measure.part), 0.0)
        table = program.classes.count[:, np.newaxis] * part[market.place]
        table[measure.row < 0] = np.inf
        tables.append(table)
    return tables


def width_of(width: int, measures: int) -> int:
    """Most places of a class, of which there are so many, after so many measures became one."""
    for _ in range(1, measures):
        width += width // 2 * (width - width // 2)
    return width


@dataclass(frozen=True)
class _Pairs:
    """Two measures as one.

    Attributes
    ----------
    market : Market
        Of single places.
    first, second : FloatArray, shape (K, w)
        a and d.
    klass, above, below : IntArray, shape (P,)
        Class of each pair, and the places i and j.
    part : FloatArray, shape (P,)
        l.
    at : IntArray, shape (P,)
        Place of each pair in the wider table.
    width : int
        Places of a class beside the w single ones.
    """

    market: Market
    first: FloatArray
    second: FloatArray
    klass: IntArray
    above: IntArray
    below: IntArray
    part: FloatArray
    at: IntArray
    width: int

    @classmethod
    def of(cls, market: Market, first: FloatArray, second: FloatArray) -> _Pairs:
        over, under = first > second * (1.0 + SAME), second > first * (1.0 + SAME)
        some = np.flatnonzero(over.any(axis=1) & under.any(axis=1))
        # Pairs of one class follow each other.
        k, i, j = np.nonzero(over[some][:, :, np.newaxis] & under[some][:, np.newaxis, :])
        klass = some[k]
        gain = first[klass, i] - second[klass, i]
        lack = second[klass, j] - first[klass, j]
        count = np.bincount(klass, minlength=len(first))
        before = np.cumsum(count) - count
        at = first.shape[1] + np.arange(len(klass)) - before[klass]
        width = int(count.max(initial=0))
        return cls(market, first, second, klass, i, j, lack / (gain + lack), at, width)

    def extended(self, table: FloatArray) -> FloatArray:
        """What single places and pairs give of anything, shape (K, w + width)."""
        if not self.width:
            return table
        wide = np.hstack([table, np.zeros((len(table), self.width))])
        one, other = table[self.klass, self.above], table[self.klass, self.below]
        wide[self.klass, self.at] = self.part * one + (1.0 - self.part) * other
        return wide

    @property
    def level(self) -> FloatArray:
        """What each gives of both measures."""
        of_pairs = self.extended(self.first)[:, self.first.shape[1] :]
        return np.hstack([np.minimum(self.first, self.second), of_pairs])

    @cached_property
    def wide(self) -> Market:
        """The market with the pairs as further columns."""
        market = self.market
        if not self.width:
            return market
        columns, pairs = market.columns, len(self.klass)
        place = np.hstack([market.place, np.full((len(market), self.width), -1, np.int32)])
        place[self.klass, self.at] = columns + np.arange(pairs)
        usage = sp.csr_matrix(sp.hstack([market.usage, market.usage @ self._mixing]))
        return replace(
            market,
            level=self.level,
            place=place,
            weight=market.weight / market.amount,
            amount=np.ones(len(market)),
            good=None,
            columns=columns + pairs,
            held_by=lambda: usage,
        )

    @cached_property
    def _mixing(self) -> sp.csr_matrix:
        """Single columns in each pair, shape (N, P)."""
        place, pairs = self.market.place, len(self.klass)
        rows = np.concatenate([place[self.klass, self.above], place[self.klass, self.below]])
        parts = np.concatenate([self.part, 1.0 - self.part])
        entries = parts, (rows, np.tile(np.arange(pairs), 2))
        return sp.csr_matrix(entries, shape=(self.market.columns, pairs))

    def totals(self, x: FloatArray) -> FloatArray:
        """Totals of single columns from those of the wide market; later entries are unchanged."""
        if not self.width:
            return x
        single, pairs, behind = np.split(x, [self.market.columns, self.wide.columns])
        return np.concatenate([single + self._mixing @ pairs, behind])

    def split(
        self, slope: FloatArray, rent: FloatArray, cost: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """The slopes of the first and the second measure, shape (K,) each.

        Of the interval that is left to the first one it is the lower end: a floor costs the same at
        any level, so that the bound which follows of lower levels is the tightest.
        """
        a, d, y, paid = self.first, self.second, slope[:, np.newaxis], cost + rent[:, np.newaxis]
        with np.errstate(invalid="ignore"):
            # Where both measures are nearly the same, rounding would decide.
            lack = d * y - paid - ROUNDING * (np.abs(paid) + d * y)
            least = quotient(lack, d - a, -np.inf).max(axis=1)
        of_first = np.where(np.isinf(d[:, 0]), slope, np.clip(least, 0.0, slope))
        return of_first, slope - of_first


@dataclass(frozen=True)
class Requirements:
    """All measures of the classes of a market as one.

    Attributes
    ----------
    market : Market
        With the pairs as further columns.
    level : FloatArray, shape (K, w')
        What a member's time in each place gives, as a part of what is asked for.
    """

    market: Market
    level: FloatArray
    _steps: tuple[_Pairs, ...]

    @classmethod
    def of(cls, market: Market, measures: Sequence[FloatArray]) -> Requirements:
        """Take in one measure after the other.

        Parameters
        ----------
        market : Market
        measures : sequence of FloatArray, shape (K, w) each
            Part of what is asked for that all of a member's time gives in each place; inf in the
            rows of classes that are asked for nothing.
        """
        level, steps = measures[0], list[_Pairs]()
        for other in measures[1:]:
            for step in steps:
                other = step.extended(other)
            steps.append(_Pairs.of(market, level, other))
            level, market = steps[-1].level, steps[-1].wide
        return cls(market, level, tuple(steps))

    def extended(self, table: FloatArray) -> FloatArray:
        """What a unit of time is worth in each place, shape (K, w'), from that in single places."""
        for step in self._steps:
            table = step.extended(table)
        return table

    def totals(self, x: FloatArray) -> FloatArray:
        """Totals of the program's columns from those of the market; what is behind stays."""
        for step in reversed(self._steps):
            x = step.totals(x)
        return x

    def split(self, slope: FloatArray, rent: FloatArray, cost: FloatArray) -> list[FloatArray]:
        """The slope of each measure, shape (K,).

        Parameters
        ----------
        slope, rent : FloatArray, shape (K,)
            Of a unit of the requirement, and of a member's time.
        cost : FloatArray, shape (K, w)
            What all of a member's time costs in each single place, less what it is worth there.
        """
        parts = []
        for number in range(len(self._steps) - 1, -1, -1):
            wide = cost
            for step in self._steps[:number]:
                wide = step.extended(wide)
            last = self._steps[number]
            slope, of_other = last.split(slope, rent, wide)
            parts.append(of_other)
            # What a place gives of this measure is paid for.
            given = last.second[:, : cost.shape[1]]
            cost = cost - np.where(np.isinf(given), 0.0, given) * of_other[:, np.newaxis]
        return [slope, *reversed(parts)]
