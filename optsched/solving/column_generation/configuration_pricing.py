"""Pricing of configurations: the columns of largest reduced cost at the duals of a program."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from optsched.arrays import (
    EMPTY,
    FloatArray,
    IntArray,
    find_sorted,
    increases,
    owners,
    pointers,
    ranges,
)
from optsched.arrays.columns import Columns
from optsched.arrays.values import cached_property
from optsched.candidates.configuration_table import ConfigurationTable, curve_blocks, first_largest
from optsched.candidates.kinds import STRIDE
from optsched.program import AllocationProgram
from optsched.solution.solution import CONFIGURATIONS
from optsched.solving.column_generation.pricing import ColumnPricing, Duals, level_scale, refuse


@dataclass(frozen=True)
class Chosen(Columns):
    """Chosen configurations: classes, and cells of the table."""

    klass: IntArray
    cell: IntArray

    @classmethod
    def none(cls) -> Chosen:
        return cls(EMPTY, EMPTY)

    def keys(self, cells: int) -> IntArray:
        """A unique number for each; ``cells`` is the number of cells."""
        return self.klass * cells + self.cell

    def but(self, others: Chosen, cells: int) -> Chosen:
        """Those that are not among others."""
        return self.take(np.flatnonzero(~np.isin(self.keys(cells), others.keys(cells))))


@dataclass(frozen=True)
class ConfigurationPricing(ColumnPricing):
    """Prices every configuration of every class without generating its column.

    A member of class k in a configuration c of the table, g_c GPUs of a pool, is worth, at duals
    (u, p, y),

        y_k scale_k rate_c - g_c q_k - u_k

    where q_k is the price of one of these GPUs, with what the class demands beside each.

    Attributes
    ----------
    table : ConfigurationTable
    """

    table: ConfigurationTable

    of_what: ClassVar[str] = CONFIGURATIONS

    @classmethod
    def of(cls, program: AllocationProgram) -> ConfigurationPricing:
        """Of a program whose classes have configurations on demand.

        Raises
        ------
        UsageError
            If they no longer have, or columns cannot be priced by the levels of jobs.
        """
        table = program.classes.candidates.elastic
        refuse(program, gone=table is None, concave=True)
        assert table is not None
        return cls(program, level_scale(program), table)

    @cached_property
    def choosing(self) -> IntArray:
        """Classes that have curves in the table."""
        number = self.table.curves_of[1]
        return np.flatnonzero(np.append(number, 0)[np.minimum(self.classes.kind, len(number))])

    @cached_property
    def count(self) -> int:
        """Number of columns that could be generated."""
        left = np.bincount(self.table.kind, self.table.left, len(self.classes.candidates.kinds))
        return int(left[self.classes.kind].sum())

    @cached_property
    def per_gpu(self) -> sp.csr_matrix:
        """What each GPU of a curve holds of every resource, shape (S, R)."""
        candidates, table = self.classes.candidates, self.table
        columns, pools = candidates.columns, len(candidates.instance.cluster.pools)
        plain = np.flatnonzero(
            (columns.option < 0) & (columns.workers == 0) & (columns.partner < 0)
        )
        found = find_sorted(
            columns.kind[plain] * pools + columns.pool[plain], table.kind * pools + table.pool
        )
        of_curve = plain[found]
        held = candidates.usage.tocsc()[:, of_curve] @ sp.diags_array(1.0 / columns.gpus[of_curve])
        return sp.csr_matrix(held.T)

    def possible(self, klass: IntArray, pool: IntArray, gpus: IntArray, nodes: IntArray) -> Chosen:
        """The given configurations that can be generated, each once and in order."""
        table, kind = self.table, self.classes.kind[klass]
        curve = find_sorted(table.kind * STRIDE + table.pool, kind * STRIDE + pool)
        there = np.flatnonzero(curve >= 0)
        curve, owner = curve[there], klass[there]
        length = np.diff(table.start)[curve]
        cell, row = ranges(table.start[curve], length), owners(length)
        way = table.way[cell]
        # The cell of the curve with these GPUs and nodes, unless it is a column already.
        same = (table.ways.gpus[way] == gpus[there][row]) & (
            table.ways.nodes[way] == nodes[there][row]
        )
        use = np.flatnonzero(same & ~table.column[cell])
        key = np.unique(Chosen(owner[row[use]], cell[use]).keys(len(table)))
        return Chosen(key // max(1, len(table)), key % max(1, len(table)))

    def excess(self, duals: Duals) -> FloatArray:
        """Most that any configuration of each class is worth, at least 0; shape (K,).

        With u raised by it no configuration is worth anything: a point of the dual of the whole
        program.
        """
        most = np.zeros(len(self.classes))
        for klass, value, _ in self.priced(duals, self.choosing):
            np.maximum.at(most, klass, value)
        return most

    def left_out(self, duals: Duals) -> float:
        """The most that all configurations can add to the bound that duals prove for some columns.

        sum_c d_c x_c <= sum_k n_k v_k  over configurations c of value d_c, where v_k is the largest value of class k.
        The first columns have the highest rate of each curve, so no configuration has a higher
        level.
        """
        return float(self.classes.count @ self.excess(duals))

    def best(self, duals: Duals, above: FloatArray) -> tuple[FloatArray, Chosen]:
        """`excess`, and the best configuration of each class whose reduced cost exceeds
        ``above``.
        """
        most, found = np.zeros(len(self.classes)), [Chosen.none()]
        for klass, value, cell in self.priced(duals, self.choosing):
            np.maximum.at(most, klass, value)
            use = np.flatnonzero((value > above[klass]) & ~self.table.column[cell])
            found.append(Chosen(klass[use], cell[use]))
        return most, Chosen.join(found)

    def priced(
        self, duals: Duals, classes: IntArray
    ) -> Iterator[tuple[IntArray, FloatArray, IntArray]]:
        """(class, reduced cost, cell) of the best cell of each class, in order, block by block.

        The curves of a class may be in two blocks: it appears twice then, with the best cell of
        each.
        """
        table = self.table
        price = self.price(duals.capacity)
        worth = duals.levels * self.scale
        for klass, curve, cells, start in self._blocks(classes):
            times = np.diff(start)
            # (cells,): the cells of all these curves, one after the other.
            value = np.repeat(worth[klass], times)
            value *= table.rate[cells]
            value -= np.repeat(price[curve], times) * table.gpus[table.way[cells]]
            # A class has a curve in each of its pools, and of all of these one best cell.
            begin = np.flatnonzero(np.diff(klass, prepend=-1))
            most, place = first_largest(value, np.append(start[begin], start[-1]))
            cell = place + cells.start if isinstance(cells, slice) else cells[place]
            yield klass[begin], most - duals.time[klass[begin]], cell

    def price(self, prices: FloatArray) -> FloatArray:
        """Price of a GPU of each curve with the other resources that it needs, shape (S,)."""
        return self.per_gpu @ prices

    def _blocks(
        self, classes: IntArray
    ) -> Iterator[tuple[IntArray, IntArray, slice | IntArray, IntArray]]:
        """(class, curve, cells, start of each) of classes in all of their pools,
        so many that cells fit a cache.
        """
        table, kind = self.table, self.classes.kind[classes]
        first, number = table.curves_of
        times = number[kind]
        klass, curve = np.repeat(classes, times), ranges(first[kind], times)
        length = np.diff(table.start)[curve]
        start = pointers(length)
        # Every kind is one class, in order.
        whole = len(curve) == len(table.kind) and increases(curve)
        for begin, end in curve_blocks(start):
            curves = curve[begin:end]
            if whole:
                cells: slice | IntArray = slice(int(start[begin]), int(start[end]))
            else:
                cells = ranges(table.start[curves], length[begin:end])
            yield klass[begin:end], curves, cells, start[begin : end + 1] - start[begin]
