r"""The best duals of a program at given prices of its resources, class by class: a bound without a
solver.

At prices p of the rows that classes share (capacities, side rows) a unit of column c costs q_c. A
job of class k then decides for itself. Its points are (a, q), level and cost of a unit of its time
in each of its columns; of a column of two jobs it bears what its partner's share y_l a_l - u_l, at
duals that are known, leaves of the cost. On the lower hull of the origin and these points it goes
as far as

    to the level g_k(t)            a smallest level t                             y_k = slope of the hull there
    as the hull is less steep      a total of concave f:  w f'(a) = slope         y_k = w f'(a)
                                   a linear total                                  y_k = w_k

    u_k = max(0, max (a y_k - q))                                what a unit of its time is worth

(y, u, p), for a smallest level divided by sum_k n_k g_k'(t) y_k, is feasible in the dual program,
once u of both jobs of a column that is worth more than that is raised by half of the excess. Of a
smallest level, t is moved to the bound that it gives: Newton's method for the t that costs all that
the resources are worth, which is the best bound at these prices.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from optsched.arrays import FloatArray, IntArray, quotient, stable_order

if TYPE_CHECKING:
    from optsched.program.allocation import AllocationProgram

SWEEPS = 3
"""Sweeps in which the duals of partners are updated; in the first they belong to other prices. In a
test the first bound was 5 % away from the optimum, the third 4e-4, and more sweeps changed nothing.
"""
STEPS = 8
"""Times that the level is moved, at most."""
NEAR = 1e-9
"""Relative distance at which it is not moved any more."""


class RowDuals(NamedTuple):
    """Multipliers of the rows; of side rows a block each.

    Attributes
    ----------
    time : FloatArray, shape (K,)
        u.
    capacity : FloatArray, shape (R,)
    side : tuple of FloatArray
    worth : FloatArray, shape (K,)
        y, what a unit of ``levels @ x`` is worth.
    """

    time: FloatArray
    capacity: FloatArray
    side: tuple[FloatArray, ...]
    worth: FloatArray

    def rows(self, program: AllocationProgram) -> FloatArray:
        """As derivatives of the linear program (or tangent), row by row."""
        paid = program.utility.level_prices(program)
        levels = [-self.worth] if paid is None else []
        return np.concatenate([self.time, self.capacity, *self.side, *levels])

    def constant(self, program: AllocationProgram) -> float:
        """What the shared rows add to the bound."""
        total = float(self.capacity @ program.classes.capacity)
        for rows, y in zip(program.side, self.side, strict=True):
            total += float(np.where(y > 0, y, 0.0) @ np.where(y > 0, rows.upper, 0.0))
            total += float(np.where(y < 0, y, 0.0) @ np.where(y < 0, rows.lower, 0.0))
        return total

    def divided(self, by: float) -> RowDuals:
        """All of them divided by a number."""
        side = tuple(y / by for y in self.side)
        return RowDuals(self.time / by, self.capacity / by, side, self.worth / by)


def duals_at(program: AllocationProgram, known: RowDuals, value: float) -> RowDuals:
    """Duals of all rows at the prices of ``known``.

    Parameters
    ----------
    program : AllocationProgram
        Its utility is a smallest level or a total.
    known : RowDuals
        Prices of capacities and side rows; ``time`` and ``worth`` are those of partners.
    value : float
        Of the program, as far as it is known: where the level is looked for.
    """
    sweeps = 1 if program.classes.all_alone else SWEEPS
    if program.utility.smallest_level:
        return _of_smallest_level(program, known, value, sweeps)
    paid = program.utility.level_prices(program)
    for _ in range(sweeps):
        points = _PricedColumns(program, known)
        worth = points.slopes_of_total() if paid is None else paid
        known = known._replace(time=points.rents(worth), worth=worth)
    return known


def _of_smallest_level(
    program: AllocationProgram, known: RowDuals, value: float, sweeps: int
) -> RowDuals:
    """The best duals of all sweeps; those of the class that can reach least where none are
    better.
    """
    best, lowest = _held_by_one(program, known), program.highest
    for _ in range(sweeps):
        bound, known = _at_best_level(program, known, value)
        if bound < lowest:
            best, lowest = known, bound
    return best


def _at_best_level(
    program: AllocationProgram, known: RowDuals, value: float
) -> tuple[float, RowDuals]:
    """The least bound over the levels, and its duals."""
    n, utility, points = program.classes.count, program.minimum, _PricedColumns(program, known)
    constant, highest = known.constant(program), program.highest
    t, lowest, found = min(value, highest), np.inf, known
    for _ in range(STEPS):
        needed = np.broadcast_to(utility.needed(program, t), n.shape)
        worth = points.slopes_at(needed)
        rents = points.rents(worth)
        weight = float(n @ (worth * utility.needed_slope(program, t)))
        if not weight > 0:  # nothing is scarce at these prices
            break
        bound = t + (constant + float(n @ rents) - float(n @ (worth * needed))) / weight
        if bound < lowest:
            lowest, found = bound, known._replace(time=rents, worth=worth).divided(weight)
        if not 0 < bound < highest or abs(bound - t) <= NEAR * t:
            break
        t = bound
    return lowest, found


def _held_by_one(program: AllocationProgram, known: RowDuals) -> RowDuals:
    """Duals by which the class that can reach least holds the level, whatever it costs."""
    C, highest = program.classes, program.highest_level
    held = int(program.minimum.reached(highest).argmin())  # not of levels: jobs may have delays
    time, worth = np.zeros(len(C)), np.zeros(len(C))
    slope = np.broadcast_to(program.minimum.needed_slope(program, program.highest), len(C))
    worth[held] = 1.0 / (C.count[held] * slope[held])
    # A partner's level counts for nothing here, so that a unit of the class's time is all there is.
    time[held] = highest[held] * worth[held]
    free = tuple(np.zeros_like(y) for y in known.side)
    return RowDuals(time, np.zeros_like(known.capacity), free, worth)


def _sides(program: AllocationProgram) -> Iterator[tuple[IntArray, IntArray, IntArray]]:
    """(class, partner's class, column) of the columns of two jobs, from the side of each of them;
    of a pair inside a class from one."""
    C = program.classes
    pair = np.flatnonzero(~C.alone)
    if len(pair):
        a, b = C.class_a[pair], C.class_b[pair]
        yield a, b, pair
        apart = a != b
        yield b[apart], a[apart], pair[apart]


class _PricedColumns:
    """What a unit of the time of each class brings and costs, in each of its columns."""

    def __init__(self, program: AllocationProgram, known: RowDuals) -> None:
        C = program.classes
        self._program = program
        self._cost = np.asarray(C.usage.T @ known.capacity, np.float64)
        for rows, y in zip(program.side, known.side, strict=True):
            self._cost = self._cost + rows.matrix.T @ y
        alone = np.flatnonzero(C.alone)
        klass, level, cost = [C.class_a[alone]], [program.gain[alone]], [self._cost[alone]]
        for first, second, columns in _sides(program):
            brings = np.asarray(program.levels.tocsc()[first, columns]).ravel()
            brought = program.gain[columns] - brings
            # A pair inside a class is two of its jobs, which bear and bring half of it each.
            part = np.where(first == second, 0.5, 1.0)
            left = known.worth[second] * brought - np.where(
                first == second, 0.0, known.time[second]
            )
            klass.append(first)
            level.append(part * brings)
            cost.append(part * self._cost[columns] - left)
        whose = np.concatenate(klass)
        order = stable_order(whose, len(C))
        self.klass: IntArray = whose[order]
        self.level: FloatArray = np.concatenate(level)[order]
        self.cost: FloatArray = np.concatenate(cost)[order]
        self._first = np.searchsorted(self.klass, np.arange(len(C)))
        self._has = np.bincount(self.klass, minlength=len(C)) > 0

    def _least(self, values: FloatArray, none: float) -> FloatArray:
        """The least value among the points of each class, shape (K,)."""
        least = np.full(len(self._has), none)
        if len(values):
            least[self._has] = np.minimum.reduceat(values, self._first[self._has])
        return least

    def _walk(self, stops: FloatArray | None) -> FloatArray:
        """Slopes of the hulls at levels, shape (K,); without ``stops`` where a total is as
        steep.
        """
        total, classes = self._program.total, len(self._has)
        low, paid, slope = np.zeros(classes), np.zeros(classes), np.zeros(classes)
        left = self._has.copy()
        while left.any():
            further = self.level - low[self.klass]
            rise = np.where(
                (further > 0) & left[self.klass],
                quotient(self.cost - paid[self.klass], further, np.inf),
                np.inf,
            )
            least = self._least(rise, np.inf)
            left &= np.isfinite(least)
            # Of points on one line the last: the next segment begins there.
            on_line = rise <= least[self.klass]
            reach = -self._least(np.where(on_line, -self.level, np.inf), 0.0)
            if stops is None:
                at_low, at_reach = total.steepness(low), total.steepness(np.maximum(reach, low))
                ends = left & (least >= at_reach)
                slope[ends] = np.minimum(least, at_low)[ends]
            else:
                ends = left & (reach >= stops)
                slope[left] = least[left]
            goes_on = left & ~ends
            paid[goes_on] += least[goes_on] * (reach - low)[goes_on]
            low[goes_on] = reach[goes_on]
            left = goes_on
        if stops is None:
            # At the end of the hull more is worth what the utility says.
            slope = np.where((slope > 0) | (low == 0), slope, total.steepness(low))
        return np.maximum(slope, 0.0)

    def slopes_at(self, level: FloatArray) -> FloatArray:
        """Slope of the hull of each class at a level, shape (K,); beyond all its points that of the
        last.
        """
        return self._walk(level)

    def slopes_of_total(self) -> FloatArray:
        """Slope of the utility of each class where its hull is as steep, shape (K,)."""
        return self._walk(None)

    def rents(self, worth: FloatArray) -> FloatArray:
        """What a unit of each class's time is worth, shape (K,), enough for all columns."""
        C, program = self._program.classes, self._program
        gain = -self._least(self.cost - worth[self.klass] * self.level, 0.0)
        rents = np.maximum(gain, 0.0)
        if C.all_alone:
            return rents
        pair = ~C.alone
        excess = np.asarray(program.levels.T @ worth) - self._cost - C.member.T @ rents
        over = np.maximum(excess, 0.0)[pair] / 2
        raised = np.zeros(len(C))
        np.maximum.at(raised, C.class_a[pair], over)
        np.maximum.at(raised, C.class_b[pair], over)
        return rents + raised
