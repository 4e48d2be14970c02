"""The stages of a water filling by prices, and its last program."""

from __future__ import annotations

import time

import numpy as np

from optsched.arrays import FloatArray, quotient
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
ROUNDING = 1e-12
"""Part of all levels that is no more than rounding. A single class among many that stops a rise has so
little of all worth that this much would be a wide gap of the clock.
"""
PRICED = 1e-9
"""Part of the worth of all resources from which on a price is more than rounding."""
PARTS = (1.0, 0.999, 0.9)
"""Parts of the classes that a stage holds that give up nothing of their levels at the prices from
which the search for those of the last program begins.
"""


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
        self.proofs: list[Multipliers] = []
        self.floors_met = not self.floors

    def stage(self, path: Path, limits: Limits) -> tuple[int, Values, float]:
        """The segment in which the rise ends, the values of its program (`Filling.segment`), and
        the part of all levels that the point has."""
        began = time.perf_counter()
        program, n = self.program, self.program.classes.count
        with interrupt_flag() as interrupted:
            watch = Watch(limits, interrupted)
            if not self.floors_met:
                least = at_floors(program, self.market, self.floors, watch)
                if least.x is None:
                    return 0, least, 1.0
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
            # What the levels lack at this clock is a gap of the clock, if it is more than rounding.
            lack = max(1.0 - found.reached - ROUNDING, 0.0) / pace
            rise -= lack
            if not lack <= UNCLEAR and end is Termination.OPTIMAL:
                end = Termination.IMPRECISE
            self.proofs.append(m)
        self.x = found.x
        values = Values(
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
        return number, values, found.reached

    def last(self, program: AllocationProgram, limits: Limits) -> Values:
        """Values of the last program (`Filling.final`): at first at prices at which nobody gives up
        of its level to raise the total.

        Multiples of the multipliers of a stage cost nothing there: all that they charge for is
        used. So a class stays at its level where a unit of it costs at least what the total gains
        by it in the best column of the class.
        """
        C, first = program.classes, np.zeros((len(PARTS), len(self.market.capacity)))
        by_level = quotient(program.gain, self.program.gain)
        by_level[program.limit_rows.closed_columns] = 0.0
        most = np.zeros(len(C))
        np.maximum.at(most, C.class_a, by_level)
        for proof in self.proofs:
            held = proof.of_rising > HELD * proof.of_rising.max()
            wanted = most[held] / proof.of_rising[held]
            first += np.quantile(wanted, PARTS)[:, np.newaxis] * proof.prices
        worth = first[0] * self.market.capacity
        ray = np.where(worth > PRICED * worth.sum(), first[0], 0.0)
        return solve_linear(program, limits, self._on_open_columns(program), list(first), ray)

    def _on_open_columns(self, program: AllocationProgram) -> FloatArray:
        """The allocation of the last stage without the columns that the last program closes.

        They cost a class too much, but a gap of 1e-13 of all classes together may still leave one
        of them some of its time there. More time in its other columns gives the class as much.
        """
        C, x = program.classes, self.x.copy()
        x[program.limit_rows.closed_columns] = 0.0
        more = np.ones(len(C))
        for part in (self.program.gain, *(measure.part for measure in self.measures)):
            given = np.bincount(C.class_a, part * self.x, len(C)).astype(np.float64)
            left = np.bincount(C.class_a, part * x, len(C)).astype(np.float64)
            np.maximum(more, quotient(given, left, 1.0), out=more)
        return np.asarray(x * more[C.class_a])
