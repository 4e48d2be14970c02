"""Totals of utilities of the levels, solved by prices: from the program to a search and back."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from optsched.arrays import FloatArray
from optsched.errors import SolverUnavailable
from optsched.program import AllocationProgram, Total
from optsched.solution.values import PointStatus, Termination, Values
from optsched.solvers.base import Limits
from optsched.solvers.interrupt import interrupt_flag
from optsched.solvers.prices.best_places import BestPlaces
from optsched.solvers.prices.goods import Goods
from optsched.solvers.prices.interior import CLOSE, Curve, Interior
from optsched.solvers.prices.market import Market, market_of
from optsched.solvers.prices.watch import Watch

MOST_GOODS = 1000
"""Resources that can run out, beyond which the system in their prices is no small one."""


def refuses_total(program: AllocationProgram) -> str | None:
    """Why a total of utilities is none for prices; None if it is one."""
    utility = program.utility
    assert isinstance(utility, Total)
    if not (utility.weight >= 0).all() or (program.conic and not (utility.weight > 0).all()):
        return "a job has no weight"
    if utility.worthless_at_zero and not (program.highest_level > 0).all():
        return "a job can have nothing, which is worth minus infinity"
    if int(np.isfinite(program.classes.capacity).sum()) > MOST_GOODS:
        return f"it has more than {MOST_GOODS} resources that can run out"
    return None


def solve_total(program: AllocationProgram, limits: Limits) -> Values:
    """Solve a program that `refuses_total` does not refuse; ``y`` are duals of the rows that it is lowered to.

    Those of a concave total are the rows of its tangent.

    Raises
    ------
    SolverUnavailable
        Where a job can have nothing because there is none of a resource that it needs, and that is no 0.
    """
    began = time.perf_counter()
    found = _concave(program, limits) if program.conic else _linear(program, limits)
    return replace(found, seconds=time.perf_counter() - began)


def _concave(program: AllocationProgram, limits: Limits) -> Values:
    """By `Interior`, with levels in units of each class's highest."""
    C, utility = program.classes, program.utility
    assert isinstance(utility, Total)
    market = market_of(program)
    highest = market.level.max(axis=1, initial=0.0)
    some = np.flatnonzero(highest > 0)
    if len(some) < int((program.highest_level > 0).sum()):
        raise SolverUnavailable("solver prices cannot take this program: a job needs what there is none of")
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
        search = Interior(goods, level, Curve(size / unit, exponent), watch)
        found = search.run()
    rent, slope = np.zeros(len(C)), np.zeros(len(C))
    rent[some] = found.rent * market.amount[some] * unit
    slope[some] = found.slope * market.amount[some] * unit / top
    return Values(
        Termination.OPTIMAL if found.gap <= CLOSE else watch.reason or Termination.IMPRECISE,
        PointStatus.FEASIBLE, PointStatus.FEASIBLE, goods.columns(C.count[some, np.newaxis] * found.time),
        np.concatenate([rent, _prices(program, market, found.prices * unit, rent, slope), -slope]),
        found.value * unit + shift, found.bound * unit + shift, iterations=search.steps,
        words=f"{search.steps} interior steps, gap {max(found.gap, 0.0):.1g} of the worth of all levels",
    )  # fmt: skip


def _linear(program: AllocationProgram, limits: Limits) -> Values:
    """By `BestPlaces`."""
    C, utility = program.classes, program.utility
    assert isinstance(utility, Total)
    market = market_of(program)
    goods = Goods.of(market, np.arange(len(C)))
    worth = market.level * (utility.weight * market.unit / market.amount)[:, np.newaxis]
    most = worth.max(axis=1, initial=0.0)
    unit = float(np.median(most[most > 0])) if (most > 0).any() else 1.0
    with interrupt_flag() as interrupted:
        watch = Watch(limits, interrupted, unit)
        search = BestPlaces(goods, worth / unit, watch)
        search.run()
    search.ask(search.prices)
    rent = search.rent * market.amount * unit
    return Values(
        Termination.OPTIMAL if search.closed else watch.reason or Termination.IMPRECISE,
        PointStatus.FEASIBLE, PointStatus.FEASIBLE, goods.columns(C.count[:, np.newaxis] * search.time()),
        np.concatenate([rent, _prices(program, market, search.prices * unit, rent, utility.weight)]),
        search.value * unit, search.bound * unit, iterations=search.asked,
        words=f"{search.asked} passes, {search.rounds} rounds, gap {max(search.gap, 0.0):.1g}",
    )  # fmt: skip


def _prices(
    program: AllocationProgram, market: Market, known: FloatArray, rent: FloatArray, slope: FloatArray
) -> FloatArray:
    """Duals of the capacity rows; of what there is nothing, prices at which nobody wants any."""
    C = program.classes
    prices = np.zeros(len(C.capacity))
    prices[market.row] = known
    none = np.flatnonzero(C.capacity <= 0)
    if len(none):
        gain = program.levels.T @ slope - rent[C.class_a] - C.usage.T @ prices
        held = sp.coo_matrix(C.usage[none])
        np.maximum.at(prices, none[held.row], gain[held.col] / held.data)
    return prices
