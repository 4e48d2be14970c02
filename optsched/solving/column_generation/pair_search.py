"""The search for pairs that are worth a column, in one restricted program: solve, price, add, until none is."""

from __future__ import annotations

import logging
from dataclasses import replace

from optsched.arrays import FloatArray
from optsched.errors import Interrupted
from optsched.solution.values import Termination, Values
from optsched.solving.column_generation.duals import Duals
from optsched.solving.column_generation.master import PairMaster
from optsched.solving.column_generation.pricing import PairPricing
from optsched.solving.engine import Engine
from optsched.solving.outcome import NO_OPTIMUM, STOPPED

log = logging.getLogger("optsched")

CLOSED = 1e-7
"""Relative gap at which no more columns are made."""
STEADY = 0.5
"""How far from the duals of the restricted program to the best ones so far pairs are priced first."""
STEADIER = 0.9
"""The same where the search starts from duals of a sample, which are near the best."""
NOTHING = 1e-11
"""Part of the largest multiplier of a time row that a column must be worth."""
NEARLY = 0.03
"""Part of what a job adds to the bound that a pair may lack to be worth a column at duals to start from."""


class PairSearch:
    """A restricted program in a session, and what has come of pricing.

    Parameters
    ----------
    engine : Engine
    pricing : PairPricing

    Attributes
    ----------
    master : PairMaster
    values : Values or None
        Of the last program whose columns were priced, with the end that the last one came to; None before any.
    best : Duals or None
        Those of the lowest bound.
    """

    def __init__(self, engine: Engine, pricing: PairPricing) -> None:
        self.engine, self.pricing = engine, pricing
        arrays = engine.build(lambda: pricing.program.to_linear().arrays)
        self.session = engine.open(arrays, "highs" if engine.solver == "auto" else engine.solver)
        self.master = PairMaster(pricing, self.session)
        self.values: Values | None = None
        self.best: Duals | None = None
        self._steady = STEADY

    @property
    def optimal(self) -> bool:
        """Whether the search came to its end, with a point and duals."""
        values = self.values
        found = values is not None and values.x is not None and values.y is not None
        return found and values is not None and values.termination is Termination.OPTIMAL

    @property
    def value(self) -> float:
        """The value of the last program, where it has a point."""
        assert self.values is not None and self.values.x is not None
        return self.session.arrays.objective(self.values.x[: self.session.arrays.shape[1]])

    @property
    def duals(self) -> Duals:
        """Those of the last program."""
        assert self.values is not None and self.values.y is not None
        return self.master.duals(self.values.y)

    def begin(self, start: Duals) -> None:
        """Begin with pairs that are nearly worth a column at these duals, which are the best ones so far."""
        start = self.pricing.scaled(start)
        self.best, _ = self.master.priced(start, NOTHING)
        self._steady = STEADIER
        each = self.master.bound(self.best) / float(self.pricing.classes.count.sum())
        self.master.add(self.pricing.best(start, -NEARLY * each)[1])

    def move(self, capacity: FloatArray) -> None:
        """Go on with other capacities."""
        self.master.set_capacity(capacity)
        self.best, self._steady = None, STEADY

    def run_on_the_way(self) -> bool:
        """`run` for a program that is not the one asked for; whether it came to its end. Raises `Interrupted`."""
        self.run()
        if self.values is not None and self.values.termination is Termination.INTERRUPTED:
            raise Interrupted("interrupted before any feasible point was found")
        return self.optimal

    def run(self) -> None:
        """Make columns until none is worth it, or a limit is reached."""
        master, pricing = self.master, self.pricing
        values = last = self.engine.run(self.session)
        while (
            values.x is not None and values.y is not None and values.termination not in NO_OPTIMUM
        ):
            duals = master.duals(values.y)
            asked = (
                [duals] if self.best is None else [duals.towards(self.best, self._steady), duals]
            )
            offers = [master.priced(each, NOTHING) for each in asked]
            before = [] if self.best is None else [self.best]
            best = self.best = min([raised for raised, _ in offers] + before, key=master.bound)
            if values.termination in STOPPED:
                break
            last, value, bound = values, self.session.arrays.objective(values.x), master.bound(best)
            log.info(
                "%d pairs of %d made columns: value %.9g, bound %.9g",
                len(master.made),
                pricing.count,
                value,
                bound,
            )
            if bound - value <= CLOSED * abs(bound) or not any(
                master.add(found) for _, found in offers
            ):
                break
            values = self.engine.run(self.session)
        end = (
            last.termination
            if last.x is None or last.termination in NO_OPTIMUM
            else values.termination
        )
        self.values = replace(last, termination=end)
