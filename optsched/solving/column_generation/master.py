"""The restricted program: columns of jobs alone, and of the pairs that were made so far, in a session."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from optsched.arrays import FloatArray, group_rows
from optsched.candidates import Classes
from optsched.candidates.classes import JobGroups, alone_columns, assemble
from optsched.solvers import Session
from optsched.solving.column_generation.duals import Duals
from optsched.solving.column_generation.pairs import ClassPairs
from optsched.solving.column_generation.pricing import PairPricing


class PairMaster:
    """The restricted program in a session that grows.

    Its columns are those of the program of jobs alone (of a minimum the common level is the last), then the pairs.
    """

    def __init__(self, pricing: PairPricing, session: Session) -> None:
        self.pricing, self.session = pricing, session
        self.program, self.classes = pricing.program, pricing.classes
        self.made = ClassPairs.concatenate([])
        self.first = session.arrays.shape[1]
        """The first column of a pair."""
        self.capacity = self.classes.capacity

    def duals(self, y: FloatArray) -> Duals:
        """Multipliers of the rows with signs that they can have, those of levels scaled to n . y = 1."""
        blocks = {block.name: y[block.slice] for block in self.session.arrays.rows}
        return self.pricing.scaled(Duals.of(blocks, self.program))

    def priced(self, duals: Duals, nothing: float) -> tuple[Duals, ClassPairs]:
        """Duals raised to a feasible point of the dual of the whole program, and pairs that are worth a column.

        Pairs worth less than a part ``nothing`` of the largest multiplier of a time row are not.
        """
        most, found = self.pricing.best(duals, nothing * float(duals.time.max(initial=0.0)))
        return replace(
            duals, time=duals.time + np.maximum(most / 2, self.pricing.alone_excess(duals))
        ), found

    def bound(self, duals: Duals) -> float:
        """The value of a feasible point of the dual."""
        return float(duals.time @ self.classes.count + duals.capacity @ self.capacity)

    def set_capacity(self, capacity: FloatArray) -> None:
        """Have other capacities from the next run on."""
        arrays = self.session.arrays
        upper = arrays.row_upper.copy()
        upper[next(block for block in arrays.rows if block.name == "capacity").slice] = capacity
        self.session.set_rows(arrays.row_lower, upper)
        self.capacity = capacity

    def add(self, pairs: ClassPairs) -> int:
        """Make columns of those that are none yet; returns how many."""
        classes = len(self.classes)
        pairs = pairs.take(np.flatnonzero(~np.isin(pairs.keys(classes), self.made.keys(classes))))
        if len(pairs):
            self.session.add_columns(*self._columns(pairs), "pairs")
            self.made = ClassPairs.concatenate([self.made, pairs])
        return len(pairs)

    def _columns(self, pairs: ClassPairs) -> tuple[sp.csc_matrix, FloatArray, FloatArray]:
        """Matrix, cost and upper bounds, which are never in the way: time rows must have the duals that price pairs."""
        C, pricing = self.classes, self.pricing
        a, b, number = pairs.first, pairs.second, np.arange(len(pairs))
        where, shape = (
            (np.concatenate([a, b]), np.concatenate([number, number])),
            (len(C), len(pairs)),
        )
        member = sp.csc_matrix((np.ones(2 * len(pairs)), where), shape=shape)
        usage = sp.csc_matrix(
            pricing.table.usage(pricing.classes.kind[a], pricing.classes.kind[b], pairs.way).T
        )
        levels = sp.csc_matrix((np.concatenate(pricing.levels(pairs)), where), shape=shape)
        limit = 2.0 * np.minimum(C.count[a], C.count[b])
        prices = self.program.utility.level_prices(self.program)
        if prices is not None:
            return sp.csc_matrix(sp.vstack([member, usage])), np.asarray(levels.T @ prices), limit
        return sp.csc_matrix(sp.vstack([member, usage, levels])), np.zeros(len(pairs)), limit


def with_pairs(pricing: PairPricing, pairs: ClassPairs) -> Classes:
    """The classes with columns for these pairs after those of jobs alone, in this order."""
    C, table = pricing.classes, pricing.table
    a, b = pricing.classes.kind[pairs.first], pricing.classes.kind[pairs.second]
    low, high = np.minimum(a, b), np.maximum(a, b)
    grown = C.candidates.with_pairs(low, high, pairs.way)
    columns = grown.columns
    paired = np.flatnonzero(columns.partner >= 0)
    theirs = (low, high, table.pool[pairs.way], table.gpus[pairs.way], table.nodes[pairs.way])
    mine = (columns.kind, columns.partner, columns.pool, columns.gpus, columns.nodes)
    both = [np.concatenate([left[paired], right]) for left, right in zip(mine, theirs, strict=True)]
    same = group_rows(both, len(both[0]))
    column = paired[same.first[same.inverse[len(paired) :]]]
    groups = JobGroups(C.of_job, C.first, C.count.astype(np.int64))
    alone = alone_columns(columns, pricing.classes.kind, len(grown.kinds))
    return assemble(grown, C.reads, groups, alone, (column, pairs.first, pairs.second))
