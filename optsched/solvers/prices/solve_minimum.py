"""The smallest level of an allocation program by prices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from optsched.arrays import FloatArray, quotient
from optsched.program import AllocationProgram, Method
from optsched.solution.values import Termination, Values
from optsched.solvers.base import Limits
from optsched.solvers.interrupt import interrupt_flag
from optsched.solvers.prices.answers import capacity_duals, duals_above_floors, values_of
from optsched.solvers.prices.market import Market, market_of
from optsched.solvers.prices.max_min import Equilibrium, MaxMinSearch
from optsched.solvers.prices.merging import merged
from optsched.solvers.prices.requirements import floor_measures
from optsched.solvers.prices.targets import TargetSearch, least_levels
from optsched.solvers.prices.watch import Watch


def solve_minimum(program: AllocationProgram, limits: Limits, start: FloatArray | None) -> Values:
    """Values of the lowered program: the totals and the level; duals of time, capacity and levels.

    Parameters
    ----------
    program : AllocationProgram
    limits : Limits
    start : FloatArray or None, shape (rows that limit,)
        Prices to start from.
    """
    floors = program.class_floors
    assert floors is not None
    market = market_of(program, floors.closed)
    if floors.side or program.utility.method is Method.NEWTON:
        return _by_targets(program, market, limits, start)
    if market.highest <= 0:
        return _level_of_zero(program, market)
    with interrupt_flag() as interrupted:
        watch = Watch(limits, interrupted, market.unit)
        found = _searched(market, None if start is None else start[market.row], watch)
    prices = capacity_duals(
        program, market, found.prices, found.rent, lambda: program.levels.T @ found.slope
    )
    gap = "nothing yet"
    if found.level > 0:
        gap = f"gap {max(found.bound / found.level - 1.0, 0.0):.1g}"
    return values_of(
        Termination.OPTIMAL if found.finished else watch.reason or Termination.IMPRECISE,
        found.x,
        (found.rent, prices, -found.slope),
        found.level,
        found.bound,
        found.passes,
        f"{found.passes} passes, {found.rounds} rounds, {gap}",
    )


def _searched(market: Market, known: FloatArray | None, watch: Watch) -> Equilibrium:
    """What the search finds, from known prices; its memory is free again when this returns."""
    same = merged(market, market.level)
    searched = market if same is None else same.market
    # Where nobody's time has a price, the resources are worth the level.
    before = None if known is None else float(known @ market.capacity) / market.unit
    search = MaxMinSearch(searched, known, watch, before)
    search.run()
    return search.equilibrium().of_whole(same)


def _by_targets(
    program: AllocationProgram,
    market: Market,
    limits: Limits,
    start: FloatArray | None,
) -> Values:
    """Values where the levels that a value needs are no multiples of it: floors, and delays."""
    with interrupt_flag() as interrupted:
        watch = Watch(limits, interrupted)
        search = TargetSearch(program, market, floor_measures(program, market), watch)
        found = search.run(None if start is None else start[market.row])
    words = f"{found.passes} passes, {found.steps} steps"
    duals = found.duals
    if duals is None:
        return Values(found.termination, iterations=found.passes, words=words)
    gain = program.levels.T @ duals.of_level
    rows = duals_above_floors(program, market, duals.prices, duals.rent, gain, duals.of_floors)
    if found.x is None:  # of the rows without the levels, which ask for nothing then
        return Values(
            found.termination, y=np.concatenate(rows), iterations=found.passes, words=words
        )
    return values_of(
        found.termination,
        found.x,
        (*rows, -duals.of_level),
        found.value,
        found.bound,
        found.passes,
        words,
    )


def _level_of_zero(program: AllocationProgram, market: Market) -> Values:
    """Where a class can have nothing, which holds the level:
    no place, or places for which there is none of a good.

    Such a good has the price at which none of the class's columns is worth it.
    """
    C, limits = program.classes, program.limit_rows
    held = int(market.level.max(axis=1, initial=0.0).argmin())
    columns = np.flatnonzero(C.class_a == held)
    worth = program.levels.tocsc()[:, columns].toarray()[held] / C.count[held]
    closed = np.flatnonzero(limits.most <= 0)
    needed = limits.matrix[closed][:, columns].toarray()
    per_unit = quotient(worth, needed)
    prices = np.zeros(len(limits.most))
    prices[closed] = per_unit.max(axis=1, initial=0.0)
    slope = np.zeros(len(C))
    slope[held] = 1.0 / C.count[held]
    duals = np.zeros(len(C)), prices, -slope
    nothing = np.zeros(C.columns + 1)
    words = "a job can have nothing: the level is 0"
    return values_of(Termination.OPTIMAL, nothing, duals, 0.0, 0.0, 0, words)


def at_floors(
    program: AllocationProgram, market: Market, floors: Sequence[FloatArray], watch: Watch
) -> Values:
    """A point at which nobody is below a floor; without one, what ended the search for it.

    Parameters
    ----------
    program : AllocationProgram
    market : Market
    floors : sequence of FloatArray, shape (K, w) each
        Part of its floor that all of a member's time gives in each place; inf without one.
    watch : Watch
    """
    end, x, refuted = least_levels(market, floors, watch)
    if end is Termination.OPTIMAL:
        return Values(end, x=x)
    if refuted is None:
        return Values(end)
    nothing = np.zeros(program.classes.columns)
    rows = duals_above_floors(
        program, market, refuted.prices, refuted.rent, nothing, refuted.of_floors
    )
    return Values(end, y=np.concatenate(rows))
