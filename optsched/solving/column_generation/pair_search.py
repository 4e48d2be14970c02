"""Column generation of pairs in one restricted program: solve, price, add, until no pair is priced
in.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from optsched.arrays import FloatArray, group_rows
from optsched.arrays.values import replace
from optsched.candidates import Classes
from optsched.candidates.classes import JobGroups, alone_columns, assemble
from optsched.errors import NOTHING_YET, Interrupted
from optsched.solution.values import Basis, Termination, Values
from optsched.solvers import Session
from optsched.solving.column_generation.pair_pricing import ClassPairs, PairPricing
from optsched.solving.column_generation.pricing import Duals
from optsched.solving.column_loop import ColumnLoop
from optsched.solving.engine import Engine
from optsched.solving.outcome import NO_OPTIMUM, STOPPED


class PairMaster:
    """The restricted program, in a session to which columns are added.

    Its columns are those of the program of jobs alone (of a minimum the common level is the last),
    then the pairs.
    """

    def __init__(self, pricing: PairPricing, session: Session) -> None:
        self.pricing, self.session = pricing, session
        self.program, self.classes = pricing.program, pricing.classes
        self.made = ClassPairs.none()
        self.first = session.arrays.shape[1]
        """The first column of a pair."""
        self.capacity = self.classes.capacity

    def duals(self, y: FloatArray) -> Duals:
        """Duals of the rows without wrong signs, for a smallest level scaled to n . y = 1."""
        blocks = {block.name: y[block.slice] for block in self.session.arrays.rows}
        return self.pricing.scaled(Duals.of(blocks, self.program))

    def priced(self, duals: Duals, nothing: float) -> tuple[Duals, ClassPairs]:
        """Duals raised to be feasible for the whole program, and pairs of positive reduced cost.

        A reduced cost below the fraction ``nothing`` of the largest dual of a time row counts as 0.
        """
        most, found = self.pricing.best(duals, nothing * float(duals.time.max(initial=0.0)))
        return replace(
            duals, time=duals.time + np.maximum(most / 2, self.pricing.alone_excess(duals))
        ), found

    def bound(self, duals: Duals) -> float:
        """The value of a feasible point of the dual."""
        return float(duals.time @ self.classes.count + duals.capacity @ self.capacity)

    def set_capacity(self, capacity: FloatArray) -> None:
        """Change the capacities for the next run."""
        arrays = self.session.arrays
        upper = arrays.row_upper.copy()
        upper[next(block for block in arrays.rows if block.name == "capacity").slice] = capacity
        self.session.set_rows(arrays.row_lower, upper)
        self.capacity = capacity

    def add(self, pairs: ClassPairs) -> int:
        """Add the pairs that are no columns yet; returns how many."""
        classes = len(self.classes)
        pairs = pairs.take(np.flatnonzero(~np.isin(pairs.keys(classes), self.made.keys(classes))))
        if len(pairs):
            self.session.add_columns(*self._columns(pairs), "pairs")
            self.made = ClassPairs.join([self.made, pairs])
        return len(pairs)

    def _columns(self, pairs: ClassPairs) -> tuple[sp.csc_matrix, FloatArray, FloatArray]:
        """Matrix, cost and upper bounds of pairs.

        The bounds are too large to be active, because pairs are priced by the duals of the time
        rows.
        """
        C, pricing = self.classes, self.pricing
        a, b, number = pairs.first, pairs.second, np.arange(len(pairs))
        where = (np.concatenate([a, b]), np.concatenate([number, number]))
        shape = (len(C), len(pairs))
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
    added = (low, high, table.pool[pairs.way], table.gpus[pairs.way], table.nodes[pairs.way])
    known = (columns.kind, columns.partner, columns.pool, columns.gpus, columns.nodes)
    both = [np.concatenate([left[paired], right]) for left, right in zip(known, added, strict=True)]
    same = group_rows(both, len(both[0]))
    column = paired[same.first[same.inverse[len(paired) :]]]
    groups = JobGroups(C.of_job, C.first, C.count.astype(np.int64))
    alone = alone_columns(columns, pricing.classes.kind, len(grown.kinds))
    return assemble(grown, C.reads, groups, alone, (column, pairs.first, pairs.second))


log = logging.getLogger("optsched")

CLOSED = 1e-7
"""Relative gap at which column generation ends."""
STEADY = 0.5
"""Weight of the best duals so far in the duals at which pairs are priced first."""
STEADIER = 0.9
"""This weight if the search starts from duals of a sample, which are near the best ones."""
NOTHING = 1e-11
"""Reduced cost, as a fraction of the largest dual of a time row, that counts as 0."""
NEARLY = 0.03
"""At duals to start from, pairs are added whose reduced cost is above minus this fraction of the
bound per job.
"""


class SearchEnd(NamedTuple):
    """State from which a search can continue: capacities, generated pairs, and the last basis."""

    capacity: FloatArray
    made: ClassPairs
    basis: Basis | None


class PairSearch(ColumnLoop[Duals]):
    """A restricted program in a session, and the results of pricing.

    Parameters
    ----------
    engine : Engine
    pricing : PairPricing
    before : SearchEnd, optional
        Of an earlier search of the same program, perhaps with other capacities, from whose columns
        and basis this one goes on.

    Attributes
    ----------
    master : PairMaster
    values : Values or None
        Of the last program whose columns were priced, with the end that the last one came to; None
        before any.
    value : float
        Of that program.
    best : Duals or None
        Those of the lowest bound.
    """

    def __init__(
        self, engine: Engine, pricing: PairPricing, before: SearchEnd | None = None
    ) -> None:
        self.engine, self.pricing = engine, pricing
        arrays = engine.build(lambda: pricing.program.to_linear().arrays)
        reason = engine.reason
        # HiGHS takes columns in place and goes on from the last basis
        self.session = engine.open(arrays, prefer=("highs", reason))
        engine.reason = reason
        self.master = PairMaster(pricing, self.session)
        if before is not None:
            self.master.set_capacity(before.capacity)
            self.master.add(before.made)
            if before.basis is not None:
                self.session.set_start(before.basis)
        self.values: Values | None = None
        self.value = -np.inf
        self.weights = (STEADY, 0.0)
        self._last: Values | None = None

    @property
    def optimal(self) -> bool:
        """Whether the search ended with an optimum."""
        values = self.values
        found = values is not None and values.x is not None and values.y is not None
        return found and values is not None and values.termination is Termination.OPTIMAL

    @property
    def duals(self) -> Duals:
        """Those of the last program."""
        assert self.values is not None and self.values.y is not None
        return self.master.duals(self.values.y)

    def begin(self, start: Duals) -> None:
        """Begin with pairs that are nearly worth a column at these duals,
        which are the best ones so far.
        """
        start = self.pricing.scaled(start)
        self.best, _ = self.master.priced(start, NOTHING)
        self.weights = (STEADIER, 0.0)
        each = self.master.bound(self.best) / float(self.pricing.classes.count.sum())
        self.master.add(self.pricing.best(start, -NEARLY * each)[1])

    @property
    def end(self) -> SearchEnd:
        """State from which a later search can continue."""
        return SearchEnd(self.master.capacity, self.master.made, self.session.basis())

    def run_on_the_way(self) -> bool:
        """`run` for a program that is not the one asked for; whether it came to its end.

        Raises `Interrupted`.
        """
        self.run()
        if self.values is not None and self.values.termination is Termination.INTERRUPTED:
            raise Interrupted(NOTHING_YET)
        return self.optimal

    def run(self) -> None:
        """Generate columns until no pair has a positive reduced cost, or a limit is reached."""
        self.generate()
        last = self._last
        assert last is not None
        if self.values is None:
            self.values = last
        elif self.values.termination not in NO_OPTIMUM:
            self.values = replace(self.values, termination=last.termination)

    def solve(self) -> Duals | None:
        """Those of the restricted program, if it has an optimum or was stopped on the way to it."""
        self._last = values = self.engine.run(self.session)
        if values.x is None or values.y is None or values.termination in NO_OPTIMUM:
            return None
        self.values, self.value = values, self.session.arrays.objective(values.x)
        return self.duals

    def between(self, weight: float, best: Duals, duals: Duals) -> Duals:
        """A mean of the two."""
        return duals.towards(best, weight)

    def add_priced(self, at: Duals, duals: Duals) -> bool:
        """Price all pairs; those of positive reduced cost become columns."""
        raised, found = self.master.priced(at, NOTHING)
        if self.best is None or self.master.bound(raised) < self.master.bound(self.best):
            self.best = raised
        return not self.ended and self.master.add(found) > 0

    @property
    def ended(self) -> bool:
        """Whether the bound is reached, or the last run was stopped."""
        assert self.values is not None and self.best is not None
        bound = self.master.bound(self.best)
        near = bound - self.value <= CLOSED * abs(bound)
        return near or self.values.termination in STOPPED

    def note(self) -> None:
        """Value and bound in the log."""
        assert self.best is not None
        log.info(
            "%d pairs of %d made columns: value %.9g, bound %.9g",
            len(self.master.made),
            self.pricing.count,
            self.value,
            self.master.bound(self.best),
        )
