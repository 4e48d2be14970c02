"""A total of levels by prices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from optsched.arrays import FloatArray, highest_in_rows
from optsched.program import AllocationProgram, ClassFloors
from optsched.solution.values import Termination, Values
from optsched.solvers.base import Limits
from optsched.solvers.interrupt import interrupt_flag
from optsched.solvers.prices.answers import capacity_duals, values_of
from optsched.solvers.prices.cutting_planes import CLOSED, EXACT
from optsched.solvers.prices.goods import Goods
from optsched.solvers.prices.linear_total import LinearTotalSearch, greedy_allocation
from optsched.solvers.prices.market import Market, market_of
from optsched.solvers.prices.merging import Merged, merged
from optsched.solvers.prices.targets import least_levels
from optsched.solvers.prices.watch import Watch


def solve_linear(
    program: AllocationProgram,
    limits: Limits,
    point: FloatArray | None = None,
    starts: Sequence[FloatArray] = (),
) -> Values:
    """By `LinearTotalSearch`, with worth in units of what the median class has at most.

    Parameters
    ----------
    program : AllocationProgram
    limits : Limits
    point : FloatArray, shape (N,), optional
        An allocation that keeps all floors.
    starts : sequence of FloatArray, shape (R,) each
        Prices to ask at first.
    """
    C, utility, floors = program.classes, program.total, program.class_floors
    assert floors is not None
    market = market_of(program)
    worth = market.level * (utility.weight * market.unit / market.amount)[:, np.newaxis]
    most = np.abs(worth).max(axis=1, initial=0.0)
    unit = float(np.median(most[most > 0])) if (most > 0).any() else 1.0
    worth /= unit
    # Columns of what a class is asked for follow those of what its time is worth.
    asks = _asks(program, market, floors)
    if (highest_in_rows(asks)[floors.row >= 0] < 1.0 - EXACT).any():
        return Values(Termination.INFEASIBLE)
    rows = np.hstack([worth, asks]) if floors.side else worth
    same = merged(market, rows) if point is None else None
    few = market
    if same is not None:
        few, worth, asks = same.market, worth[same.groups.first], asks[same.groups.first]
    base = np.zeros_like(worth)
    with interrupt_flag() as interrupted:
        watch = Watch(limits, interrupted, unit)
        if floors.side:
            if point is None:
                levels = replace(few, level=asks, unit=1.0, highest=1.0)
                has_floor = np.asarray((asks > 0).any(axis=1), np.float64)
                end, point, refuted = least_levels(levels, has_floor, watch)
                if refuted is not None:
                    duals = refuted.prices, refuted.rent, refuted.slope
                    y = _linear_duals(program, market, floors, same, 0.0, *duals)
                    return Values(end, y=y)
                if end is not Termination.OPTIMAL:
                    return Values(end)
            base = np.append(point, 0.0)[few.place] * (few.amount / few.weight)[:, np.newaxis]
        goods = Goods.of(few, np.arange(len(few)))
        search = LinearTotalSearch(goods, worth, watch, asks, base)
        search.run(starts)
    time_spent = search.time()
    value = search.worth_of(time_spent)
    may_fill = market.good is not None and not floors.side
    if may_fill and search.bound > value * (1.0 + CLOSED):
        # The search was stopped: an allocation that fills the capacities may be better than what it
        # has.
        filled = greedy_allocation(worth, goods.weight, market.capacity, search.prices)
        filled *= goods.room(goods.used(filled))
        reached = search.worth_of(filled)
        if reached > value:
            time_spent, value = filled, reached
    gap = np.inf if search.bound > 0 else 0.0
    if value != 0:
        gap = max((search.bound - value) / abs(value), 0.0)
    # Asked at the best prices again: the rents of the last ones are others.
    search.ask(search.prices)
    rent, of_floor = (dual * few.amount * unit for dual in (search.rent, search.of_floor))
    each = time_spent if same is None else time_spent[same.groups.inverse]
    duals = search.prices * unit, rent, of_floor
    return values_of(
        Termination.OPTIMAL if gap <= CLOSED else watch.reason or Termination.IMPRECISE,
        Goods.of(market, np.arange(len(C))).columns(C.count[:, np.newaxis] * each),
        (_linear_duals(program, market, floors, same, 1.0, *duals),),
        value * unit,
        search.bound * unit,
        search.asked,
        f"{search.asked} passes, {search.rounds} rounds, gap {gap:.1g}",
    )


def _asks(program: AllocationProgram, market: Market, floors: ClassFloors) -> FloatArray:
    """Part of its floor that all a member's time gives in each place, shape (K, w)."""
    part = np.append(floors.part, 0.0)
    part[program.limit_rows.closed_columns] = 0.0
    return np.asarray(program.classes.count[:, np.newaxis] * part[market.place])


def _linear_duals(
    program: AllocationProgram,
    market: Market,
    floors: ClassFloors,
    same: Merged | None,
    of_utility: float,
    known: FloatArray,
    rent: FloatArray,
    of_floor: FloatArray,
) -> FloatArray:
    """Duals of all rows of a linear total, or without its utility.

    Parameters
    ----------
    program : AllocationProgram
    market : Market
    floors : ClassFloors
    same : Merged or None
        The classes that the next are of, if not of all.
    of_utility : float
        1, or 0 without it.
    known : FloatArray, shape (R,)
        Prices of the resources of the market.
    rent, of_floor : FloatArray
        Worth of a member's time, and of its floor.
    """
    C = program.classes
    if same is not None:
        rent, of_floor = same.of_each(rent), same.of_each(of_floor)
    of_floor = C.count * of_floor
    of_rows = np.zeros(sum(len(rows.lower) for rows in floors.side))
    k = np.flatnonzero(of_floor > 0)
    of_rows[floors.row[k]] = -of_floor[k] / floors.lower[k]
    gain = program.levels.T @ (of_utility * program.total.weight)
    gain += floors.part * of_floor[C.class_a]
    prices = capacity_duals(program, market, known, rent, gain)
    return np.concatenate([rent, program.duals_in_order(prices, of_rows)])
