"""The stages of a water filling by prices, and its last program."""

from __future__ import annotations

import time

import numpy as np

from optsched.arrays import BoolArray, FloatArray, quotient
from optsched.program import AllocationProgram
from optsched.program.filling import HELD, Path
from optsched.solution.values import PointStatus, Termination, Values
from optsched.solvers.base import Limits
from optsched.solvers.interrupt import interrupt_flag
from optsched.solvers.prices.answers import duals_above_floors
from optsched.solvers.prices.clock import ClockSearch, Multipliers
from optsched.solvers.prices.market import market_of
from optsched.solvers.prices.requirements import floor_measures
from optsched.solvers.prices.solve_linear import solve_linear
from optsched.solvers.prices.solve_minimum import at_floors
from optsched.solvers.prices.watch import Watch

UNCLEAR = 1e-4
"""Part of the clock by which the levels of a stage may be in doubt: those frozen before may give
way by rounding, and pools where they hold little gain much by that. The stage has both sides, its
value and its bound, and whoever is frozen is held beyond this doubt (`Filling.freeze`).
"""
PARTS = (0.0, 1e-3, 1e-1)
"""Parts of the classes that a stage holds whose level is worth less than 1 at the prices from which
the search for those of the last program begins.
"""
HIGHER = (1e1, 1e2, 1e3)
"""Factors on the first of these, as those who wait need higher prices to be worth nothing."""


class PricedFilling:
    """The stages of a filling, one after the other, and its last program.

    Parameters
    ----------
    program : AllocationProgram
    """

    def __init__(self, program: AllocationProgram) -> None:
        floors = program.class_floors
        assert floors is not None
        self.program, self.measures = program, floors.measures
        self.market = market_of(program, floors.closed)
        self.floors = floor_measures(program, self.market)
        self.search = ClockSearch(self.market, program.classes.count, self.floors)
        self.x = np.zeros(program.classes.columns)
        self.proofs: list[tuple[Multipliers, BoolArray]] = []
        self.floors_met = not self.floors

    def stage(self, path: Path, limits: Limits) -> tuple[int, Values]:
        """The segment in which the rise ends, and the values of its program
        (`Filling.segment`)."""
        began = time.perf_counter()
        program, n = self.program, self.program.classes.count
        with interrupt_flag() as interrupted:
            watch = Watch(limits, interrupted)
            if not self.floors_met:
                least = at_floors(program, self.market, self.floors, watch)
                if least.x is None:
                    return 0, least
                self.floors_met = True
            found = self.search.run(path, watch)
        number = int(np.searchsorted(path.breaks, found.clock, side="right")) - 1
        low, high = path.segment(number)
        _, rate = path.at(low)
        of_levels = np.zeros(len(n))
        rows = np.zeros(len(n)), np.zeros(len(program.requirements.row_lower) - len(n))
        rise, end = max(found.clock - low, 0.0) / high, found.termination
        if found.multipliers is not None:
            m = found.multipliers
            # Rounding may leave a clock at which no priced class rises: it proves nothing.
            pace = float((n * m.of_level) @ rate) * high or np.nan
            gain = program.levels.T @ m.of_level
            rows = duals_above_floors(program, self.market, m.prices, m.rent, gain, m.of_floors)
            rows, of_levels = (rows[0] / pace, rows[1] / pace), m.of_level / pace
            # What the levels lack at this clock is a gap of the clock.
            lack = (1.0 - found.reached) / pace
            rise -= lack
            if not lack <= UNCLEAR and end is Termination.OPTIMAL:
                end = Termination.IMPRECISE
            self.proofs.append((m, path.filling.open.copy()))
        self.x = found.x
        return number, Values(
            end,
            primal=PointStatus.FEASIBLE,
            dual=PointStatus.FEASIBLE,
            x=np.append(found.x, rise),
            y=np.concatenate([*rows, -of_levels]),
            objective=rise,
            iterations=found.passes,
            seconds=time.perf_counter() - began,
            words=f"{found.passes} passes, {found.steps} steps",
        )

    def _gain(self, proof: Multipliers) -> FloatArray:
        """What one unit of each column is worth beyond its cost, shape (N,)."""
        program, klass = self.program, self.program.classes.class_a
        worth = program.levels.T @ proof.of_level - proof.rent[klass]
        for measure, of_floor in zip(self.measures, proof.of_floors, strict=True):
            worth += measure.part * (program.classes.count * of_floor)[klass]
        return np.asarray(worth - self.market.usage.T @ proof.prices)

    def last(self, program: AllocationProgram, limits: Limits) -> Values:
        """Values of the last program (`Filling.final`): at first at prices at which nobody gives up
        of its level to raise the total.
        """
        first = np.zeros((len(PARTS), len(self.market.capacity)))
        gain = np.zeros(len(self.x))
        for proof, is_open in self.proofs:
            of_level = proof.of_rising
            unit = np.quantile(of_level[of_level > HELD * of_level.max()], PARTS)
            more = self._gain(proof) / unit[0]
            # Prices before are so high that columns stay closed which this stage had no more.
            closed = np.flatnonzero(~is_open & (gain < 0))
            factor = quotient(more[closed], -gain[closed]).max(initial=1.0)
            first = factor * first + proof.prices / unit[:, np.newaxis]
            gain = factor * gain + more
        return solve_linear(program, limits, self.x, [*first, *np.outer(HIGHER, first[0])])
