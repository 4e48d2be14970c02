"""A total of concave utilities by prices."""

from __future__ import annotations

import numpy as np

from optsched.arrays import FloatArray, quotient
from optsched.arrays.values import replace
from optsched.program import AllocationProgram
from optsched.solution.values import Termination, Values
from optsched.solvers.base import Limits
from optsched.solvers.interrupt import interrupt_flag
from optsched.solvers.prices.answers import duals_above_floors, values_of
from optsched.solvers.prices.cutting_planes import EXACT
from optsched.solvers.prices.goods import Goods
from optsched.solvers.prices.interior import ACCEPTED_GAP, Balance, Curve, Interior, balance_of
from optsched.solvers.prices.market import market_of
from optsched.solvers.prices.pinned_total import PinnedTotal
from optsched.solvers.prices.requirements import floor_measures
from optsched.solvers.prices.solve_minimum import at_floors
from optsched.solvers.prices.watch import Watch

PINNED_FROM, PINNED_FROM_KNOWN = 8000, 2000
"""Classes from which most are pinned, without and with prices to start from."""
LACKING = 1e-7
"""Part of its floor that a level may lack; a certificate allows ten times as much."""


def solve_concave(program: AllocationProgram, limits: Limits, start: FloatArray | None) -> Values:
    """By `PinnedTotal` or `Interior`, with levels in units of each class's highest.

    The duals are of the rows of its tangent cuts (`Total.tangent`). ``start`` are prices of all
    resources, near the optimal ones.
    """
    C, utility = program.classes, program.total
    floors, least_level = program.class_floors, program.level_floors
    assert floors is not None and least_level is not None
    market = market_of(program, floors.closed)
    highest = market.level.max(axis=1, initial=0.0)
    some = np.flatnonzero(highest > 0)
    exponent = 0.0 if utility.function == "log" else utility.exponent
    goods = Goods.of(market, some)
    # w f(top v) is w top^e f(v) for a power, and w (log top + log v) for a logarithm.
    top = highest[some] * market.unit
    weight = C.count[some] * utility.weight[some]
    size = weight / goods.weight * top**exponent
    unit = float(np.median(size)) if len(some) else 1.0
    shift = float(weight @ np.log(top)) if exponent == 0 else 0.0
    floor = least_level[some] / top if floors.measures else None
    curve = Curve(size / unit, exponent, floor)
    with interrupt_flag() as interrupted:
        watch = Watch(limits, interrupted, unit, shift)
        least = None
        if floors.measures:
            least = at_floors(program, market, floor_measures(program, market), watch)
        if least is not None and least.x is None:
            return least
        level = np.ascontiguousarray(market.level[some] / highest[some, np.newaxis])
        near = None if start is None or not start.any() else start[market.row] / unit
        found, steps = _beside_fixed(goods, level, curve, watch, near)
    rent, of_floors, of_levels = np.zeros((3, len(C)))
    rent[some] = found.rent * market.amount[some] * unit
    scale = market.amount[some] * unit / top
    worth = curve.of_floor(found.slope)
    of_floors[some], of_levels[some] = worth * scale, (found.slope - worth) * scale
    gain, worth_of_floors = program.levels.T @ of_levels, of_floors * least_level
    rows = duals_above_floors(
        program, market, found.prices * unit, rent, gain, [worth_of_floors] * len(floors.measures)
    )
    x, value = goods.columns(C.count[some, np.newaxis] * found.time), found.value * unit + shift
    bound = found.bound * unit + shift
    ended = found.gap <= ACCEPTED_GAP
    if least is not None and least.x is not None:
        # As far from a point at the floors towards that of the search as these allow.
        lacking = np.maximum(quotient(least_level - program.level(x), least_level), 0.0)
        part = LACKING / max(lacking.max(initial=0.0), LACKING)
        x, ended = least.x + part * (x - least.x), ended and part == 1.0
        value = program.value(x)
        noise = ACCEPTED_GAP * max(unit, abs(bound))
        if value > bound + noise:
            x = _without_lack(program, x, least.x, lacking)
            value = program.value(x)
            ended = ended and bound - value <= noise
    return values_of(
        Termination.OPTIMAL if ended else watch.reason or Termination.IMPRECISE,
        x,
        (*rows, -of_levels),
        value,
        bound,
        steps,
        f"{steps} interior steps, gap {max(found.gap, 0.0):.1g} of the worth of all levels",
    )


def _without_lack(
    program: AllocationProgram, x: FloatArray, least: FloatArray, lacking: FloatArray
) -> FloatArray:
    """A point whose classes get what they lack of their floors by rounding; others give way on the
    resources that are full then.

    Where the utility is steep, as a root is at 0, little of what floors lack is worth much to
    others, so that the point would be worth more than the bound.

    Parameters
    ----------
    program : AllocationProgram
    x, least : FloatArray, shape (columns,)
        The point, and one that is at the floors.
    lacking : FloatArray, shape (K,)
        Part of its floor that each class lacks.
    """
    C, lacks = program.classes, lacking[program.classes.class_a]
    x = x + lacks * least
    usage = C.usage.tocoo()
    taken, others = (C.usage @ np.where(some, x, 0.0) for some in (lacks > 0, lacks == 0))
    room = np.clip(quotient(C.capacity - taken, others, 1.0), 0.0, 1.0)
    factor = np.ones(len(x))
    np.minimum.at(factor, usage.col, room[usage.row])
    return np.where(lacks > 0, x, factor * x)


def _beside_fixed(
    goods: Goods, level: FloatArray, curve: Curve, watch: Watch, near: FloatArray | None
) -> tuple[Balance, int]:
    """`_searched`, where a class whose floor is its top is in its only place for that all the time.

    It would leave an interior method no room.
    """
    if curve.floor is None:
        return _searched(goods, level, curve, watch, near)
    at_top = level >= 1.0 - EXACT
    fixed = (curve.floor >= 1.0 - EXACT) & (at_top.sum(axis=1) == 1)
    time = np.where(fixed[:, np.newaxis] & at_top, 1.0, 0.0)
    capacity = goods.market.capacity
    left, rest = capacity - goods.used(time), np.flatnonzero(~fixed)
    if not fixed.any() or (left <= EXACT * capacity).any():
        return _searched(goods, level, curve, watch, near)
    slope, prices, steps = curve.size.copy(), np.zeros(len(capacity)), 0
    if len(rest):
        others = Goods.of(replace(goods.market, capacity=left), goods.classes[rest])
        floor = curve.floor[rest] if curve.floor[rest].any() else None
        lesser = Curve(curve.size[rest], curve.exponent, floor)
        found, steps = _searched(others, level[rest], lesser, watch, near)
        time[rest], slope[rest], prices = found.time, found.slope, found.prices
    # Where it is, no other place is worth more, nor is idleness.
    cost = goods.costs(prices)
    more = np.where(at_top, cost, 0.0).sum(axis=1)[:, np.newaxis] - cost
    dearest = np.where(at_top, -np.inf, quotient(more, 1.0 - level, -np.inf)).max(axis=1)
    least_slope = np.maximum(dearest, np.where(at_top, cost, 0.0).sum(axis=1))
    slope = np.where(fixed, np.maximum(slope, least_slope), slope)
    rent = np.maximum((level * slope[:, np.newaxis] - cost).max(axis=1), 0.0)
    return balance_of(goods, curve, level, time, prices, slope, rent), steps


def _searched(
    goods: Goods, level: FloatArray, curve: Curve, watch: Watch, near: FloatArray | None
) -> tuple[Balance, int]:
    """What is found, and after how many steps; ``near`` are prices to start from."""
    found, steps = None, 0
    many = PINNED_FROM if near is None else PINNED_FROM_KNOWN
    if curve.floor is None and len(level) >= many:
        most_pinned = PinnedTotal(goods, level, curve, watch.over)
        solved = most_pinned.run(near)
        found, steps = most_pinned.found, most_pinned.steps
        if found is not None and (solved is not None or watch.reason is not None):
            watch.report(found.value, found.bound)
            return found, steps
    search = Interior(goods, level, curve, watch)
    again = search.run()
    if found is None or not found.gap <= again.gap:
        found = again
    return found, steps + search.steps
