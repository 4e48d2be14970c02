"""The smallest level, solved by prices: from the program to the search and back."""

from __future__ import annotations

import time

import numpy as np

from optsched.arrays import FloatArray
from optsched.program import AllocationProgram
from optsched.solution.values import PointStatus, Termination, Values
from optsched.solvers.base import Limits
from optsched.solvers.interrupt import interrupt_flag
from optsched.solvers.prices.market import market_of
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
        return _nothing(program)
    with interrupt_flag() as interrupted:
        watch = Watch(limits, interrupted, market.unit)
        search = Search(market, None if start is None else start[market.row], watch)
        search.run()
        found = search.equilibrium()
    prices = np.zeros(len(program.classes.capacity))
    prices[market.row] = found.prices
    return Values(
        Termination.OPTIMAL if found.finished else watch.reason or Termination.IMPRECISE,
        PointStatus.FEASIBLE, PointStatus.FEASIBLE, np.append(found.x, found.level),
        np.concatenate([found.rent, prices, -found.slope]), found.level, found.bound, iterations=found.passes,
        seconds=time.perf_counter() - began,
        words=f"{found.passes} passes, {found.rounds} rounds, gap {max(found.bound / found.level - 1.0, 0.0):.1g}",
    )  # fmt: skip


def _nothing(program: AllocationProgram) -> Values:
    """Where the highest level of a class is 0, which holds the level."""
    C = program.classes
    held = int(program.highest_level.argmin())
    y = np.zeros(2 * len(C) + len(C.capacity))
    y[len(y) - len(C) + held] = -1.0 / C.count[held]
    return Values(
        Termination.OPTIMAL, PointStatus.FEASIBLE, PointStatus.FEASIBLE, np.zeros(C.columns + 1), y, 0.0, 0.0,
        words="a job can have nothing: the level is 0",
    )  # fmt: skip
