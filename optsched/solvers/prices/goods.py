"""Demand of classes for goods, its cost, and its derivative by the prices."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from optsched.arrays import FloatArray, IntArray, group_rows
from optsched.arrays.values import cached_property
from optsched.solvers.prices.market import Market

CANCELLED = 1e-6
"""Part of the terms of a sum, below which rounding has a say in what is left of it."""
DIGITS = 40
"""Binary digits by which amounts of goods are compared."""


@dataclass(frozen=True)
class Goods:
    """The goods of some classes of a market, by which these are coupled.

    Parameters
    ----------
    market : Market
    classes : IntArray, shape (K,)
        Rows of the market.
    """

    market: Market
    classes: IntArray
    weight: FloatArray
    place: IntArray

    @classmethod
    def of(cls, market: Market, classes: IntArray) -> Goods:
        """The goods of some classes."""
        return cls(market, classes, market.weight[classes], market.place[classes])

    def part(self, rows: IntArray, capacity: FloatArray) -> Goods:
        """The goods of some of the classes, of these capacities."""
        return Goods.of(self.market.part(self.classes[rows], capacity), np.arange(len(rows)))

    def bundles(self) -> tuple[IntArray, FloatArray]:
        """A number for the goods that a column holds, the same where these differ by a factor, and
        this factor; both of shape (N,).
        """
        if (good := self.market.good) is not None:
            number = np.zeros(self.market.columns + 1, np.int64)
            number[self.place] = good
            return number[:-1], np.ones(self.market.columns)
        usage = self.market.usage.tocsc()
        usage.sort_indices()
        count = np.diff(usage.indptr)
        places = np.arange(int(count.max(initial=0)))
        at = np.minimum(usage.indptr[:-1, np.newaxis] + places, max(usage.nnz - 1, 0))
        there = places < count[:, np.newaxis]
        amount = np.where(there, usage.data[at], 0.0)
        factor = np.where(count > 0, amount[:, 0], 1.0)
        # Quotients of equal ratios may differ in their last bits.
        mantissa, exponent = np.frexp(amount / factor[:, np.newaxis])
        alike = np.ldexp(np.rint(np.ldexp(mantissa, DIGITS)), exponent)
        goods = np.where(there, usage.indices[at], -1)
        return group_rows([*goods.T, *alike.T], len(count)).inverse, factor

    def costs(self, prices: FloatArray) -> FloatArray:
        """What a unit of a member's time costs in each place, shape (K, w)."""
        market = self.market
        if market.good is not None:
            return np.broadcast_to(prices[market.good], self.place.shape)
        priced = np.append(market.usage.T @ prices, 0.0)
        return np.asarray(priced[self.place])

    def costs_by_place(self, prices: FloatArray) -> FloatArray:
        """The same place by place, shape (w, K), or (w, 1) where that is alike."""
        market = self.market
        if market.good is not None:
            return prices[market.good][:, np.newaxis]
        return np.ascontiguousarray(self.costs(prices).T)

    def used(self, time: FloatArray, by_place: FloatArray | None = None) -> FloatArray:
        """What all hold whose members spend this time in each place, shape (R,);
        ``by_place`` is ``weight @ time``.
        """
        if self.market.good is not None:
            return self.market.held(self.weight @ time if by_place is None else by_place)
        usage = self.market.usage
        held = usage.data * self.columns(self.weight[:, np.newaxis] * time)[usage.indices]
        # A sum of numpy is by pairs, so that its error does not grow with the number of classes:
        # prices may be 10,000 times what they decide about.
        ends = usage.indptr[1:]
        return np.array(
            [held[begin:end].sum() for begin, end in zip(usage.indptr, ends, strict=False)]
        )

    def columns(self, parts: FloatArray) -> FloatArray:
        """Numbers of classes and places as numbers of the program's columns, shape (N,)."""
        count = self.market.columns
        totals = np.bincount(self._column, parts.ravel(), count + 1)
        return totals[:count].astype(np.float64)

    @cached_property
    def _column(self) -> IntArray:
        """Column of each entry of a table; N where there is none, a bin behind the others."""
        return self.place.ravel() % (self.market.columns + 1)

    @cached_property
    def _entries(self) -> tuple[IntArray, IntArray, FloatArray]:
        """What columns hold of goods, entry by entry: good and class as one number, where the
        column is in a table of places, and how much.
        """
        usage, (classes, width) = self.market.usage.tocoo(), self.place.shape
        where = np.full(self.market.columns + 1, -1)
        where[self._column] = np.arange(self.place.size)
        at = where[usage.col]
        bought = at >= 0
        at = at[bought]
        return usage.row[bought] * classes + at // width, at, usage.data[bought]

    def rows_of(self, rows: IntArray, places: IntArray) -> sp.csc_matrix:
        """Goods that all members of some of the classes hold in places, shape (R, len(rows))."""
        return self.market.rows_of(self.classes[rows], places)

    def room(self, demand: FloatArray) -> FloatArray:
        """The factor that brings each place within the capacities when
        so much is held, shape (K, w) or (1, w).
        """
        market = self.market
        with np.errstate(divide="ignore"):
            factor = np.where(demand > market.capacity, market.capacity / demand, 1.0)
        if market.good is not None:
            return factor[market.good][np.newaxis, :]
        by_column = market.usage.tocsc()
        least = np.ones(market.columns + 1)
        # `reduceat` takes no empty lists: columns that hold nothing keep their factor of 1.
        some = np.flatnonzero(np.diff(by_column.indptr))
        if len(some):
            of_entries = factor[by_column.indices]
            least[some] = np.minimum.reduceat(of_entries, by_column.indptr[some])
        return np.asarray(least[self.place])

    def curvature(
        self,
        spread: FloatArray,
        tilt: FloatArray,
        total: FloatArray,
        idle: FloatArray,
        bend: FloatArray,
    ) -> FloatArray:
        """sum_k N_k G_k (diag(d) - d d' / S - g t t') G_k', shape (R, R).

        ``spread`` d and ``tilt`` t have shape (K, w), ``total`` S = sum_j d_j + idle and ``bend`` g
        shape (K,). Where each place is one good, the first two terms are a Laplacian, summed up
        without cancellation.
        """
        first, second = np.sqrt(self.weight / total), np.sqrt(self.weight * bend)
        if self.market.good is not None:
            one = spread * first[:, np.newaxis]
            matrix = -(one.T @ one)
            # The diagonal of a Laplacian is minus the sum of the others: no large numbers are
            # subtracted.
            np.fill_diagonal(matrix, 0.0)
            np.fill_diagonal(matrix, (first * first * idle) @ spread - matrix.sum(axis=0))
            one = tilt * second[:, np.newaxis]
            return np.asarray(matrix - one.T @ one)
        usage = self.market.usage
        of_columns = self.columns(self.weight[:, np.newaxis] * spread)
        held = sp.csr_matrix(usage.multiply(of_columns[np.newaxis, :]))
        whole = np.asarray((held @ usage.T).todense())
        matrix = whole - self._squares(spread, first)
        if (np.diag(matrix) < CANCELLED * np.diag(whole)).any():
            matrix = self._apart(spread, first, idle)
        return matrix - self._squares(tilt, second)

    def _squares(self, part: FloatArray, factor: FloatArray) -> FloatArray:
        """sum_k f_k^2 G_k v v' G_k', v a row of ``part``."""
        number, at, amount = self._entries
        shape = len(self.market.capacity), len(self.classes)
        totals = np.bincount(number, amount * part.ravel()[at], shape[0] * shape[1])
        each = totals.reshape(shape) * factor
        return np.asarray(each @ each.T)

    def _apart(self, spread: FloatArray, first: FloatArray, idle: FloatArray) -> FloatArray:
        """sum_k N_k G_k (diag(d) - d d' / S) G_k' as a sum of squares,
        place by place and pair by pair of places.

        It costs more, and nothing cancels where several goods run out together.
        """
        goods, width = len(self.market.capacity), spread.shape[1]
        # One column more, at -1, that holds nothing.
        usage = sp.csc_matrix(sp.hstack([self.market.usage, sp.csc_matrix((goods, 1))]))
        places = [usage[:, column] for column in self.place.T]
        matrix = np.zeros((goods, goods))
        for i in range(width):
            for j in range(i, width):
                step = places[i] if i == j else places[i] - places[j]
                factor = first * first * spread[:, i] * (idle if i == j else spread[:, j])
                matrix += np.asarray((step @ sp.diags_array(factor) @ step.T).todense())
        return matrix
