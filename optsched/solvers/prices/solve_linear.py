"""A total of levels by prices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from optsched.arrays import FloatArray, highest_in_rows
from optsched.program import AllocationProgram
from optsched.solution.values import Termination, Values
from optsched.solvers.base import Limits
from optsched.solvers.interrupt import interrupt_flag
from optsched.solvers.prices.answers import duals_above_floors, values_of
from optsched.solvers.prices.cutting_planes import CLOSED, EXACT
from optsched.solvers.prices.goods import Goods
from optsched.solvers.prices.linear_total import LinearTotalSearch, greedy_allocation
from optsched.solvers.prices.market import market_of
from optsched.solvers.prices.merging import merged
from optsched.solvers.prices.requirements import Requirements, floor_measures
from optsched.solvers.prices.solve_minimum import at_floors
from optsched.solvers.prices.watch import Watch


def solve_linear(
    program: AllocationProgram,
    limits: Limits,
    point: FloatArray | None = None,
    starts: Sequence[FloatArray] = (),
    ray: FloatArray | None = None,
    start: FloatArray | None = None,
) -> Values:
    """By `LinearTotalSearch`, with worth in units of what the median class has at most.

    Parameters
    ----------
    program : AllocationProgram
    limits : Limits
    point : FloatArray, shape (N,), optional
        An allocation that keeps all floors.
    starts : sequence of FloatArray, shape (R,) each
        Further prices to ask at first, of what can run out.
    ray : FloatArray, shape (R,), optional
        Prices that cost nothing, as floors use up all that they charge for.
    start : FloatArray, shape (rows that limit,), optional
        Prices to start from, of all resources.
    """
    C, utility, floors = program.classes, program.total, program.class_floors
    assert floors is not None
    single = market_of(program, floors.closed)
    worth = single.level * (utility.weight * single.unit)[:, np.newaxis]
    measures = floor_measures(program, single)
    if any((highest_in_rows(table) < 1.0 - EXACT).any() for table in measures):
        return Values(Termination.INFEASIBLE)
    asked = Requirements.of(single, measures or [np.full(worth.shape, np.inf)])
    market = asked.market
    if start is not None:
        starts = [*starts, start[market.row]]
    worth = asked.extended(worth) / market.amount[:, np.newaxis]
    most = np.abs(worth).max(axis=1, initial=0.0)
    unit = float(np.median(most[most > 0])) if (most > 0).any() else 1.0
    worth /= unit
    # Columns of what a class is asked for follow those of what its time is worth.
    asks = np.where(np.isfinite(asked.level), asked.level, 0.0)
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
                least = at_floors(program, single, measures, watch)
                if least.x is None:
                    return least
                point = least.x
            spent = np.append(point, 0.0)[single.place] / C.count[:, np.newaxis]
            base[:, : single.width] = spent if same is None else same.mean(spent)
        goods = Goods.of(few, np.arange(len(few)))
        search = LinearTotalSearch(goods, worth, watch, asks, base)
        search.run([prices / unit for prices in starts], None if ray is None else ray / unit)
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
    prices, rent, of_floor = search.prices * unit, search.rent * unit, search.of_floor * unit
    if same is None:
        rent, of_floor = rent * market.amount, of_floor * market.amount
    else:
        rent, of_floor = same.of_each(rent), same.of_each(of_floor)
        time_spent = time_spent[same.groups.inverse]
    gain = program.levels.T @ utility.weight
    cost = np.append(single.usage.T @ prices - gain, 0.0)[single.place]
    of_floors = asked.split(of_floor, rent, cost)[: len(measures)]
    x = Goods.of(market, np.arange(len(C))).columns(C.count[:, np.newaxis] * time_spent)
    return values_of(
        Termination.OPTIMAL if gap <= CLOSED else watch.reason or Termination.IMPRECISE,
        asked.totals(x),
        duals_above_floors(program, single, prices, rent, gain, of_floors),
        value * unit,
        search.bound * unit,
        search.asked,
        f"{search.asked} passes, {search.rounds} rounds, gap {gap:.1g}",
    )
