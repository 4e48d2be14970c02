"""Segments of hulls: the two configurations that give a class a level at the lowest cost, at given
prices.

The slope y and rent u of a class in a restricted program hold for its columns. At the same prices
of the resources and the same level t, the hull over ALL configurations of a class is found without
solving a program: the configuration farthest below the segment becomes an end of it, until none is
below (`optsched.solvers.prices.oracle` does the same over the columns of a program). Both ends are
generated. For a smallest level the hulls together give a bound,

    smallest level  <=  (p . W + n . u) / n . y

which is far closer than that of u raised for the columns that were missing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from optsched.arrays import EMPTY, FloatArray, IntArray
from optsched.program import AllocationProgram
from optsched.solving.column_generation.configuration_pricing import Chosen, ConfigurationPricing
from optsched.solving.column_generation.pricing import Duals

ROUNDS = 8
"""Moves of the ends of a segment at most."""


@dataclass
class SegmentEnds:
    """One end of the segment of every class, shape (K,) each:
    level, cost, and cell (-1: a column, or idle).
    """

    level: FloatArray
    cost: FloatArray
    cell: IntArray

    @classmethod
    def idle(cls, classes: int) -> SegmentEnds:
        """Ends at idleness, for all classes."""
        return cls(np.zeros(classes), np.zeros(classes), np.full(classes, -1, np.int64))

    def move(self, klass: IntArray, level: FloatArray, cost: FloatArray, cell: IntArray) -> None:
        """Move the ends of some classes."""
        self.level[klass], self.cost[klass], self.cell[klass] = level, cost, cell


Found = tuple[IntArray, FloatArray, FloatArray, IntArray]
"""Points below the segments of some classes: class, level, cost, and cell."""


def lowered(
    low: SegmentEnds,
    high: SegmentEnds,
    level: FloatArray,
    slope: FloatArray,
    rent: FloatArray,
    active: IntArray,
    below: Callable[[FloatArray, FloatArray, IntArray], Found],
    rounds: int = ROUNDS,
) -> None:
    """Move segments down to the hulls, in place: the point farthest below a segment becomes an end
    of it, until there is none.

    Parameters
    ----------
    low, high : SegmentEnds
    level : FloatArray, shape (K,)
        What is to be reached.
    slope, rent : FloatArray, shape (K,)
        Of the segments.
    active : IntArray
        Classes that are looked at.
    below : callable
        (slope, rent, classes) -> the points farthest below the segments of some classes.
    rounds : int
        Ends that are moved one after the other, at most.
    """
    for _ in range(rounds):
        klass, reach, cost, cell = below(slope, rent, active)
        if not len(klass):
            break
        over = reach >= level[klass]
        for ends, rows in ((high, over), (low, ~over)):
            ends.move(klass[rows], reach[rows], cost[rows], cell[rows])
        active = np.unique(klass)
        slope[active], rent[active] = line(low, high, active)


def segments(
    pricing: ConfigurationPricing,
    program: AllocationProgram,
    x: FloatArray,
    level: FloatArray,
    duals: Duals,
    above: FloatArray,
) -> tuple[Duals, Chosen]:
    """Duals of the whole program of a smallest level at the prices of ``duals``,
    and ends of segments for columns.

    Parameters
    ----------
    pricing : ConfigurationPricing
    program : AllocationProgram
        Restricted.
    x : FloatArray
        Its allocation.
    level : FloatArray, shape (K,)
        What is to be reached: a smallest level, or what the allocation gives to each.
    duals : Duals
    above : FloatArray, shape (K,)
        What a configuration must be worth.
    """
    C = program.classes
    low, high = _used(pricing, program, x, duals)
    slope, rent = duals.levels.copy(), duals.time.copy()
    price, nobody = pricing.price(duals.capacity), EMPTY

    def below(slope: FloatArray, rent: FloatArray, active: IntArray) -> Found:
        found = [
            (klass[better], cell[better])
            for klass, value, cell in pricing.priced(Duals(rent, duals.capacity, slope), active)
            if len(better := np.flatnonzero(value > above[klass]))
        ]
        klass, cell = (np.concatenate(part) for part in zip((nobody, nobody), *found, strict=True))
        reach = pricing.scale[klass] * pricing.table.rate[cell]
        return (
            klass,
            reach,
            price[pricing.table.curve_of(cell)] * pricing.table.gpus[pricing.table.way[cell]],
            cell,
        )

    lowered(low, high, level, slope, rent, pricing.choosing, below)
    made = [
        Chosen(chosen, ends.cell[chosen])
        for ends in (low, high)
        if len(
            chosen := np.flatnonzero(
                (ends.cell >= 0) & ~pricing.table.column[np.maximum(ends.cell, 0)]
            )
        )
    ]
    # Rents raised by the largest reduced cost of any column: feasible duals of the whole program.
    now = Duals(rent, duals.capacity, slope)
    value = program.levels.T @ slope - C.usage.T @ duals.capacity - rent[C.class_a]
    most = pricing.excess(now)
    np.maximum.at(most, C.class_a, value)
    total = float(C.count @ slope)
    raised = (
        Duals((rent + most) / total, duals.capacity / total, slope / total) if total > 0 else duals
    )
    return raised, Chosen.join([Chosen.none(), *made])


def _used(
    pricing: ConfigurationPricing, program: AllocationProgram, x: FloatArray, duals: Duals
) -> tuple[SegmentEnds, SegmentEnds]:
    """The lowest and the highest column that each class uses;
    the lower end is idle where it uses but one.
    """
    C = program.classes
    used = np.flatnonzero(x > 0)
    reach = pricing.scale[C.class_a[used]] * C.rate_a[used]
    # By class and level: the first of a class is its low end, the last its high end.
    order = np.lexsort((reach, C.class_a[used]))
    used, reach = used[order], reach[order]
    klass = C.class_a[used]
    first = np.flatnonzero(np.diff(klass, prepend=-1))
    last = np.append(first[1:], len(klass)) - 1
    cost = (C.usage.T @ duals.capacity)[used]
    low, high = SegmentEnds.idle(len(C)), SegmentEnds.idle(len(C))
    several = last > first
    high.move(klass[last], reach[last], cost[last], np.full(len(last), -1))
    low.move(
        klass[first[several]],
        reach[first[several]],
        cost[first[several]],
        np.full(int(several.sum()), -1),
    )
    return low, high


def line(low: SegmentEnds, high: SegmentEnds, klass: IntArray) -> tuple[FloatArray, FloatArray]:
    """Slope and rent of the segments of some classes; a segment below idleness begins there."""
    # The low end costs more per level than the high one: to idle at times is cheaper.
    under = low.cost[klass] * high.level[klass] > high.cost[klass] * low.level[klass]
    low.move(klass[under], np.zeros(1), np.zeros(1), np.full(1, -1))
    rise = high.level[klass] - low.level[klass]
    apart = rise > 0
    slope = np.divide(
        high.cost[klass] - low.cost[klass], rise, out=np.zeros(len(klass)), where=apart
    )
    slope = np.maximum(slope, 0.0)
    return slope, np.maximum(slope * high.level[klass] - high.cost[klass], 0.0)
