"""Totals of concave utilities of the levels, solved by prices: from the program to the interior search and back."""

from __future__ import annotations

import time

import numpy as np
import scipy.sparse as sp

from optsched.arrays import FloatArray, IntArray
from optsched.errors import SolverUnavailable
from optsched.program import AllocationProgram, Total
from optsched.solution.values import PointStatus, Termination, Values
from optsched.solvers.base import Limits
from optsched.solvers.interrupt import interrupt_flag
from optsched.solvers.prices.goods import Goods
from optsched.solvers.prices.interior import CLOSE, Balance, Curve, Interior
from optsched.solvers.prices.market import Market, market_of
from optsched.solvers.prices.watch import Watch

MOST_GOODS = 1000
"""Resources that can run out, beyond which the system in their prices is no small one."""


def refuses_total(program: AllocationProgram) -> str | None:
    """Why a total of utilities is none for prices; None if it is one."""
    utility = program.utility
    assert isinstance(utility, Total)
    if utility.function == "linear":
        return "its utility is linear"
    if not (utility.weight > 0).all():
        return "a job has no weight"
    if utility.worthless_at_zero and not (program.highest_level > 0).all():
        return "a job can have nothing, which is worth minus infinity"
    if int(np.isfinite(program.classes.capacity).sum()) > MOST_GOODS:
        return f"it has more than {MOST_GOODS} resources that can run out"
    return None


def solve_total(program: AllocationProgram, limits: Limits) -> Values:
    """Solve a program that `refuses_total` does not refuse; ``y`` are duals of the rows of its tangent.

    Raises
    ------
    SolverUnavailable
        Where a job can have nothing because there is none of a resource that it needs.
    """
    C, utility = program.classes, program.utility
    assert isinstance(utility, Total)
    began = time.perf_counter()
    market = market_of(program)
    highest = market.level.max(axis=1, initial=0.0)
    some = np.flatnonzero(highest > 0)
    if len(some) < int((program.highest_level > 0).sum()):
        raise SolverUnavailable("solver prices cannot take this program: a job needs what there is none of")
    exponent = 0.0 if utility.function == "log" else utility.exponent
    goods = Goods.of(market, some)
    top = highest[some] * market.unit  # level of each class where it is 1 in the search
    weight = C.count[some] * utility.weight[some]
    size = weight / goods.weight * top**exponent
    unit = float(np.median(size)) if len(some) else 1.0
    shift = float(weight @ np.log(top)) if exponent == 0 else 0.0
    with interrupt_flag() as interrupted:
        watch = Watch(limits, interrupted, unit, shift)
        level = np.ascontiguousarray(market.level[some] / highest[some, np.newaxis])
        search = Interior(goods, level, Curve(size / unit, exponent), watch)
        found = search.run()
    ended = Termination.OPTIMAL if found.gap <= CLOSE else watch.reason or Termination.IMPRECISE
    return Values(
        ended, PointStatus.FEASIBLE, PointStatus.FEASIBLE, goods.columns(C.count[some, np.newaxis] * found.time),
        _duals(program, market, some, top, found, unit), found.value * unit + shift, found.bound * unit + shift,
        iterations=search.steps, seconds=time.perf_counter() - began,
        words=f"{search.steps} interior steps, gap {max(found.gap, 0.0):.1g} of the worth of all levels",
    )  # fmt: skip


def _duals(
    program: AllocationProgram, market: Market, some: IntArray, top: FloatArray, found: Balance, unit: float
) -> FloatArray:
    """Duals of the rows of the tangent: time, capacity, levels."""
    C = program.classes
    rent, slope, prices = np.zeros(len(C)), np.zeros(len(C)), np.zeros(len(C.capacity))
    rent[some] = found.rent * market.amount[some] * unit
    slope[some] = found.slope * market.amount[some] * unit / top
    prices[market.row] = found.prices * unit
    return np.concatenate([rent, prices + _of_nothing(program, rent, prices, slope), -slope])


def _of_nothing(program: AllocationProgram, rent: FloatArray, prices: FloatArray, slope: FloatArray) -> FloatArray:
    """Prices of the resources of which there is nothing, at which nobody wants any; shape of ``prices``."""
    C = program.classes
    none = np.flatnonzero(C.capacity <= 0)
    extra = np.zeros(len(prices))
    if len(none):
        gain = program.levels.T @ slope - rent[C.class_a] - C.usage.T @ prices
        held = sp.coo_matrix(C.usage[none])
        np.maximum.at(extra, none[held.row], gain[held.col] / held.data)
    return extra
