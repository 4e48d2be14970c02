"""The smallest level, solved by prices: from the program to the search and back."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from optsched.arrays import FloatArray
from optsched.program import AllocationProgram
from optsched.solution.values import PointStatus, Termination, Values
from optsched.solvers.base import Limits
from optsched.solvers.interrupt import interrupt_flag
from optsched.solvers.prices.market import Market, market_of
from optsched.solvers.prices.merging import merged
from optsched.solvers.prices.none_left import with_prices_of_nothing
from optsched.solvers.prices.smallest_level import Search
from optsched.solvers.prices.watch import Watch


def solve_minimum(program: AllocationProgram, limits: Limits, start: FloatArray | None) -> Values:
    """Values of the lowered program: the totals and the level; duals of time, capacity and levels.

    Parameters
    ----------
    program : AllocationProgram
    limits : Limits
    start : FloatArray or None, shape (resources,)
        Prices to start from.
    """
    began = time.perf_counter()
    market = market_of(program)
    if market.highest <= 0:
        return _nothing(program, market)
    with interrupt_flag() as interrupted:
        watch = Watch(limits, interrupted, market.unit)
        same = merged(market, market.level)
        few = market if same is None else same.market
        known = None if start is None else start[market.row]
        before = (
            None if known is None else float(known @ market.capacity) / market.unit
        )  # all of it where time is free
        search = Search(few, known, watch, before)
        search.run()
        found = search.equilibrium()
    if same is not None:
        found = replace(
            found, x=same.totals(found.x), slope=same.of_each(found.slope), rent=same.of_each(found.rent)
        )  # fmt: skip
    prices = np.zeros(len(program.classes.capacity))
    prices[market.row] = found.prices
    prices = with_prices_of_nothing(program, prices, found.rent, found.slope)
    gap = (
        f"gap {max(found.bound / found.level - 1.0, 0.0):.1g}" if found.level > 0 else "nothing yet"
    )
    return Values(
        Termination.OPTIMAL if found.finished else watch.reason or Termination.IMPRECISE,
        PointStatus.FEASIBLE, PointStatus.FEASIBLE, found.x,
        np.concatenate([found.rent, prices, -found.slope]), found.level, found.bound, iterations=found.passes,
        seconds=time.perf_counter() - began,
        words=f"{found.passes} passes, {found.rounds} rounds, {gap}",
    )  # fmt: skip


def _nothing(program: AllocationProgram, market: Market) -> Values:
    """Where a class can have nothing, which holds the level: no place, or places for which there is none of a good.

    Such a good has the price at which none of the class's columns is worth it.
    """
    C = program.classes
    held = int(market.level.max(axis=1, initial=0.0).argmin())
    columns = np.flatnonzero(C.class_a == held)
    worth = program.levels.tocsc()[:, columns].toarray()[held] / C.count[held]
    needed = np.where(C.capacity[:, np.newaxis] <= 0, C.usage.tocsc()[:, columns].toarray(), 0.0)
    prices = np.divide(worth, needed, out=np.zeros_like(needed), where=needed > 0).max(
        axis=1, initial=0.0
    )
    slope = np.zeros(len(C))
    slope[held] = 1.0 / C.count[held]
    return Values(
        Termination.OPTIMAL, PointStatus.FEASIBLE, PointStatus.FEASIBLE, np.zeros(C.columns + 1),
        np.concatenate([np.zeros(len(C)), prices, -slope]), 0.0, 0.0, words="a job can have nothing: the level is 0",
    )  # fmt: skip
