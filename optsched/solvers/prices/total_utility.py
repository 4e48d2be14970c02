"""Totals of utilities of the levels, solved by prices: from the program to a search and back."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from optsched.arrays import FloatArray
from optsched.errors import SolverUnavailable
from optsched.program import AllocationProgram
from optsched.solution.values import PointStatus, Termination, Values
from optsched.solvers.base import Limits
from optsched.solvers.interrupt import interrupt_flag
from optsched.solvers.prices.best_places import BestPlaces
from optsched.solvers.prices.goods import Goods
from optsched.solvers.prices.greedy_places import filled_places
from optsched.solvers.prices.interior import CLOSE, Balance, Curve, Interior
from optsched.solvers.prices.market import Market, market_of
from optsched.solvers.prices.merging import merged
from optsched.solvers.prices.none_left import with_prices_of_nothing
from optsched.solvers.prices.phases import CLOSED
from optsched.solvers.prices.pinned_total import PinnedTotal
from optsched.solvers.prices.watch import Watch

MANY, MANY_KNOWN = 8000, 2000
"""Classes from which most are pinned, without and with prices to start from."""
MOST_GOODS = 1000
"""Resources that can run out, beyond which the system in their prices is no small one."""


def refuses_total(program: AllocationProgram) -> str | None:
    """Why a total of utilities is none for prices; None if it is one."""
    utility = program.total
    if not (utility.weight >= 0).all() or (program.conic and not (utility.weight > 0).all()):
        return "a job has no weight"
    if utility.worthless_at_zero and not (program.highest_level > 0).all():
        return "a job can have nothing, which is worth minus infinity"
    if int(np.isfinite(program.classes.capacity).sum()) > MOST_GOODS:
        return f"it has more than {MOST_GOODS} resources that can run out"
    return None


def solve_total(
    program: AllocationProgram, limits: Limits, start: FloatArray | None = None
) -> Values:
    """Solve a program that `refuses_total` does not refuse; ``y`` are duals of the rows that it is lowered to.

    Those of a concave total are the rows of its tangent. ``start`` are prices of all resources that are near the right
    ones.

    Raises
    ------
    SolverUnavailable
        Where a job can have nothing because there is none of a resource that it needs, and that is no 0.
    """
    began = time.perf_counter()
    found = _concave(program, limits, start) if program.conic else _linear(program, limits)
    return replace(found, seconds=time.perf_counter() - began)


def _concave(program: AllocationProgram, limits: Limits, start: FloatArray | None) -> Values:
    """By `PinnedTotal` or `Interior`, with levels in units of each class's highest."""
    C, utility = program.classes, program.total
    market = market_of(program)
    highest = market.level.max(axis=1, initial=0.0)
    some = np.flatnonzero(highest > 0)
    if len(some) < int((program.highest_level > 0).sum()):
        raise SolverUnavailable(
            "solver prices cannot take this program: a job needs what there is none of"
        )
    exponent = 0.0 if utility.function == "log" else utility.exponent
    goods = Goods.of(market, some)
    top = highest[some] * market.unit
    weight = C.count[some] * utility.weight[some]
    size = weight / goods.weight * top**exponent
    unit = float(np.median(size)) if len(some) else 1.0
    shift = float(weight @ np.log(top)) if exponent == 0 else 0.0
    with interrupt_flag() as interrupted:
        watch = Watch(limits, interrupted, unit, shift)
        level = np.ascontiguousarray(market.level[some] / highest[some, np.newaxis])
        near = None if start is None or not start.any() else start[market.row] / unit
        found, steps = _searched(goods, level, Curve(size / unit, exponent), watch, near)
    rent, slope = np.zeros(len(C)), np.zeros(len(C))
    rent[some] = found.rent * market.amount[some] * unit
    slope[some] = found.slope * market.amount[some] * unit / top
    return Values(
        Termination.OPTIMAL if found.gap <= CLOSE else watch.reason or Termination.IMPRECISE,
        PointStatus.FEASIBLE, PointStatus.FEASIBLE, goods.columns(C.count[some, np.newaxis] * found.time),
        np.concatenate([rent, _prices(program, market, found.prices * unit, rent, slope), -slope]),
        found.value * unit + shift, found.bound * unit + shift, iterations=steps,
        words=f"{steps} interior steps, gap {max(found.gap, 0.0):.1g} of the worth of all levels",
    )  # fmt: skip


def _searched(
    goods: Goods, level: FloatArray, curve: Curve, watch: Watch, near: FloatArray | None
) -> tuple[Balance, int]:
    """What is found, and after how many steps; ``near`` are prices to start from."""
    found, steps = None, 0
    if goods.market.good is not None and len(level) >= (MANY if near is None else MANY_KNOWN):
        most_pinned = PinnedTotal(goods, level, curve, watch.over)
        solved = most_pinned.run(near)
        found, steps = most_pinned.found, most_pinned.steps
        if found is not None and (solved is not None or watch.reason is not None):
            watch.tell(found.value, found.bound)
            return found, steps
    search = Interior(goods, level, curve, watch)
    again = search.run()
    return (again if found is None or not found.gap <= again.gap else found), steps + search.steps


def _linear(program: AllocationProgram, limits: Limits) -> Values:
    """By `BestPlaces`."""
    C, utility = program.classes, program.total
    market = market_of(program)
    worth = market.level * (utility.weight * market.unit / market.amount)[:, np.newaxis]
    most = worth.max(axis=1, initial=0.0)
    unit = float(np.median(most[most > 0])) if (most > 0).any() else 1.0
    worth /= unit
    same = merged(market, worth)
    few, rows = (market, worth) if same is None else (same.market, worth[same.groups.first])
    goods = Goods.of(few, np.arange(len(few)))
    with interrupt_flag() as interrupted:
        watch = Watch(limits, interrupted, unit)
        search = BestPlaces(goods, rows, watch)
        search.run()
    time_spent = search.time()
    value = search.worth_of(time_spent)
    if search.bound > value * (1.0 + CLOSED) and market.good is not None:
        filled = filled_places(rows, goods.weight, market.capacity, search.prices)
        filled *= goods.room(goods.used(filled))
        reached = search.worth_of(filled)
        time_spent, value = (filled, reached) if reached > value else (time_spent, value)
    gap = max(search.bound / value - 1.0, 0.0) if value > 0 else np.inf if search.bound > 0 else 0.0
    search.ask(search.prices)
    rent = unit * (search.rent * market.amount if same is None else same.of_each(search.rent))
    spent = C.count[:, np.newaxis] * (
        time_spent if same is None else time_spent[same.groups.inverse]
    )
    return Values(
        Termination.OPTIMAL if gap <= CLOSED else watch.reason or Termination.IMPRECISE,
        PointStatus.FEASIBLE, PointStatus.FEASIBLE, Goods.of(market, np.arange(len(C))).columns(spent),
        np.concatenate([rent, _prices(program, market, search.prices * unit, rent, utility.weight)]),
        value * unit, search.bound * unit, iterations=search.asked,
        words=f"{search.asked} passes, {search.rounds} rounds, gap {gap:.1g}",
    )  # fmt: skip


def _prices(
    program: AllocationProgram,
    market: Market,
    known: FloatArray,
    rent: FloatArray,
    slope: FloatArray,
) -> FloatArray:
    """Duals of the capacity rows; of what there is nothing, prices at which nobody wants any."""
    prices = np.zeros(len(program.classes.capacity))
    prices[market.row] = known
    return with_prices_of_nothing(program, prices, rent, slope)
