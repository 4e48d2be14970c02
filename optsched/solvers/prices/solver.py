"""The price method as a back-end:
from an allocation program to a search for prices, and from what it found to values.

The values are those of the linear program that the allocation program would be lowered to: ``x``
are the totals of the columns (and the level), ``y`` the duals of time, capacity and levels.
Searches count levels and worth in units of their own, so that tolerances are relative; ``unit``
leads back to those of the program.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from importlib.metadata import version

import numpy as np
import scipy.sparse as sp

from optsched.arrays import BoolArray, FloatArray, highest_in_rows, quotient
from optsched.errors import SolverUnavailable, UsageError
from optsched.program import AllocationProgram, ClassFloors, LevelFloors, LinearArrays, Method
from optsched.program.filling import HELD, Path
from optsched.solution.values import PointStatus, Termination, Values
from optsched.solvers.base import Capability, Limits, Session, Solver
from optsched.solvers.interrupt import interrupt_flag
from optsched.solvers.prices.clock import ClockSearch, Multipliers
from optsched.solvers.prices.cutting_planes import CLOSED, EXACT
from optsched.solvers.prices.goods import Goods
from optsched.solvers.prices.interior import CLOSE, Balance, Curve, Interior, balance_of
from optsched.solvers.prices.linear_total import LinearTotalSearch, greedy_allocation
from optsched.solvers.prices.market import WIDEST, Market, market_of
from optsched.solvers.prices.max_min import MaxMinSearch
from optsched.solvers.prices.merging import Merged, merged
from optsched.solvers.prices.pinned_total import PinnedTotal
from optsched.solvers.prices.targets import TargetSearch, least_levels
from optsched.solvers.prices.watch import Watch

MANY, MANY_KNOWN = 8000, 2000
"""Classes from which most are pinned, without and with prices to start from."""
MOST_GOODS = 1000
"""Resources that can run out, beyond which the system in their prices is no small one."""


UNCLEAR = 1e-6
"""Part of the clock by which the levels of a stage may be in doubt: those frozen before may give way
by rounding, and pools where they hold little gain much by that.
"""
PARTS = (0.0, 1e-3, 1e-1)
"""Parts of the classes that a stage holds whose level is worth less than 1 at the prices from which the
search for those of the last program begins.
"""
HIGHER = (1e1, 1e2, 1e3)
"""Factors on the first of these, as those who wait need higher prices to be worth nothing."""
LACKING = 1e-7
"""Part of its floor that a level may lack; a certificate allows ten times as much."""
NOTHING_LEFT = "a job needs what there is none of"


class PriceMethod(Solver):
    """Prices of resources, at which every job decides for itself: exact for jobs alone.

    The smallest level is found by cutting planes on the prices (`optsched.solvers.prices.max_min`),
    a total of concave utilities by an interior method whose steps are small systems in the prices
    (`optsched.solvers.prices.interior`).
    """

    name = "prices"
    keeps_time = True
    capabilities = frozenset(
        {Capability.ALLOCATION, Capability.DUALS, Capability.PROGRESS, Capability.INTERRUPT}
    )

    @classmethod
    @cache  # reading what is installed takes milliseconds
    def version(cls) -> str:
        """Version of optsched, whose own it is."""
        return version("optsched")

    def open(self, program: LinearArrays) -> Session:
        """Refused: rows and columns do not say who buys what."""
        raise SolverUnavailable(
            "solver prices takes no programs of rows and columns: choose auto, highs or clarabel"
        )

    @classmethod
    def refuses(cls, program: AllocationProgram) -> str | None:
        """Why an allocation program is none for prices; None if it is one."""
        C = program.classes
        utility = program.utility
        direct = utility.method is Method.DIRECT and not utility.homogenised
        if not direct and utility.method not in (Method.TANGENTS, Method.WATER_FILLING):
            return "its utility is neither the smallest level nor a total"
        if program.integral:
            return "jobs are whole"
        if program.extend is not None:
            return "it has rows of its own"
        if not C.all_alone:
            return "jobs share GPUs"
        if len(C) == 0 or C.columns == 0:
            return "it has no jobs that can run"
        if int(np.bincount(C.class_a).max()) > WIDEST:
            return f"a job has more than {WIDEST} configurations"
        floors = program.class_floors if _is_linear(program) else program.level_floors
        if floors is None:
            asks = next(rows for rows in program.side if not rows.only_limit)
            return f"its rows {asks.name!r} do not only limit sums"
        if not utility.smallest_level:
            return refuses_total(program)
        asks_for_levels = bool(floors.side) and utility.method is not Method.WATER_FILLING
        by_targets = asks_for_levels or utility.method is Method.TANGENTS
        # Targets are steps down from a value above 0.
        return NOTHING_LEFT if by_targets and (_open_level(program) == 0).any() else None

    def check(self, program: AllocationProgram, limits: Limits) -> None:
        """Refuse a program that is none for prices, and options."""
        why = self.refuses(program)
        if why is not None:
            raise SolverUnavailable(
                f"solver prices cannot take this program: {why}; auto takes a solver that can"
            )
        if limits.options:
            raise UsageError(
                f"solver prices has no option {next(iter(limits.options))!r}: it has none"
            )

    def open_filling(self, program: AllocationProgram, limits: Limits) -> PricedFilling:
        """See `Solver.open_filling`."""
        self.check(program, limits)
        return PricedFilling(program)

    def solve_allocation(
        self, program: AllocationProgram, limits: Limits, start: FloatArray | None = None
    ) -> Values:
        """See `Solver.solve_allocation`; ``start`` are prices of the resources."""
        self.check(program, limits)
        began = time.perf_counter()
        solve = solve_minimum if program.utility.smallest_level else solve_total
        return replace(solve(program, limits, start), seconds=time.perf_counter() - began)


def _values(
    end: Termination,
    x: FloatArray,
    duals: tuple[FloatArray, ...],
    value: float,
    bound: float,
    passes: int,
    words: str,
) -> Values:
    """An answer; its point is feasible, and so are its duals, whatever ended the search."""
    return Values(
        end,
        primal=PointStatus.FEASIBLE,
        dual=PointStatus.FEASIBLE,
        x=x,
        y=np.concatenate(duals),
        objective=value,
        bound=bound,
        iterations=passes,
        words=words,
    )


# --- the smallest level ---------------------------------------------------------------------------


def solve_minimum(program: AllocationProgram, limits: Limits, start: FloatArray | None) -> Values:
    """Values of the lowered program: the totals and the level; duals of time, capacity and levels.

    Parameters
    ----------
    program : AllocationProgram
    limits : Limits
    start : FloatArray or None, shape (rows that limit,)
        Prices to start from.
    """
    floors = program.level_floors
    assert floors is not None
    market = market_of(program, floors.closed)
    if floors.side or program.utility.method is Method.TANGENTS:
        return _by_targets(program, market, floors, limits, start)
    if market.highest <= 0:
        return _level_of_zero(program, market)
    with interrupt_flag() as interrupted:
        watch = Watch(limits, interrupted, market.unit)
        same = merged(market, market.level)
        searched = market if same is None else same.market
        known = None if start is None else start[market.row]
        # Where nobody's time has a price, the resources are worth the level.
        before = None if known is None else float(known @ market.capacity) / market.unit
        search = MaxMinSearch(searched, known, watch, before)
        search.run()
        found = search.equilibrium().of_whole(same)
    gain = program.levels.T @ found.slope
    prices = capacity_duals(program, market, found.prices, found.rent, gain)
    gap = "nothing yet"
    if found.level > 0:
        gap = f"gap {max(found.bound / found.level - 1.0, 0.0):.1g}"
    return _values(
        Termination.OPTIMAL if found.finished else watch.reason or Termination.IMPRECISE,
        found.x,
        (found.rent, prices, -found.slope),
        found.level,
        found.bound,
        found.passes,
        f"{found.passes} passes, {found.rounds} rounds, {gap}",
    )


def _by_targets(
    program: AllocationProgram,
    market: Market,
    floors: LevelFloors,
    limits: Limits,
    start: FloatArray | None,
) -> Values:
    """Values where the levels that a value needs are no multiples of it: floors, and delays."""
    with interrupt_flag() as interrupted:
        watch = Watch(limits, interrupted)
        search = TargetSearch(program, market, floors.floor, watch)
        found = search.run(None if start is None else start[market.row])
    words = f"{found.passes} passes, {found.steps} steps"
    duals = found.duals
    if duals is None:
        return Values(found.termination, iterations=found.passes, words=words)
    of_levels = np.where(duals.on_floor, 0.0, duals.slope)
    rows = duals_above_levels(
        program, market, duals.prices, duals.rent, of_levels, duals.slope - of_levels
    )
    if found.x is None:  # of the rows without the levels, which ask for nothing then
        return Values(
            found.termination, y=np.concatenate(rows), iterations=found.passes, words=words
        )
    return _values(
        found.termination,
        found.x,
        (*rows, -of_levels),
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
    return _values(Termination.OPTIMAL, nothing, duals, 0.0, 0.0, 0, words)


# --- water filling --------------------------------------------------------------------------------


class PricedFilling:
    """The stages of a filling, one after the other, and its last program.

    Parameters
    ----------
    program : AllocationProgram
    """

    def __init__(self, program: AllocationProgram) -> None:
        floors = program.level_floors
        assert floors is not None
        self.program, self.floors = program, floors
        self.market = market_of(program, floors.closed)
        self.search = ClockSearch(self.market, program.classes.count, floors.floor)
        self.x = np.zeros(program.classes.columns)
        self.proofs: list[tuple[Multipliers, BoolArray]] = []
        self.floors_met = not floors.side

    def stage(self, path: Path, limits: Limits) -> tuple[int, Values]:
        """The segment in which the rise ends, and the values of its program
        (`Filling.segment`)."""
        began = time.perf_counter()
        program, n = self.program, self.program.classes.count
        with interrupt_flag() as interrupted:
            watch = Watch(limits, interrupted)
            if not self.floors_met:
                least = _at_levels(program, self.market, self.floors, watch)
                if least.x is None:
                    return 0, least
                self.floors_met = True
            found = self.search.run(path, watch)
        number = int(np.searchsorted(path.breaks, found.clock, side="right")) - 1
        low, high = path.segment(number)
        _, rate = path.at(low)
        of_levels = np.zeros(len(n))
        rows = np.zeros(len(n)), np.zeros(len(program.requirements.row_lower) - len(n))
        rise, end = max(found.clock - low, 0.0) / high, found.termination
        if found.multipliers is not None:
            m = found.multipliers
            # Whom a floor holds above the path pays for the floor.
            level, _ = path.at(found.clock)
            slope = m.slope + m.aside
            of_levels = np.where(self.floors.floor > level, 0.0, slope)
            # Rounding may leave a clock at which no priced class rises: it proves nothing.
            pace = float((n * of_levels) @ rate) * high or np.nan
            rows = duals_above_levels(
                program, self.market, m.prices, m.rent, of_levels, slope - of_levels
            )
            rows, of_levels = (rows[0] / pace, rows[1] / pace), of_levels / pace
            # What the levels lack at this clock is a gap of the clock.
            lack = (1.0 - found.reached) / pace
            rise -= lack
            if not lack <= UNCLEAR and end is Termination.OPTIMAL:
                end = Termination.IMPRECISE
            self.proofs.append((m, path.filling.open.copy()))
        self.x = found.x
        return number, Values(
            end,
            primal=PointStatus.FEASIBLE,
            dual=PointStatus.FEASIBLE,
            x=np.append(found.x, rise),
            y=np.concatenate([*rows, -of_levels]),
            objective=rise,
            iterations=found.passes,
            seconds=time.perf_counter() - began,
            words=f"{found.passes} passes, {found.steps} steps",
        )

    def _gain(self, proof: Multipliers) -> FloatArray:
        """What one unit of each column is worth beyond its cost, shape (N,)."""
        program = self.program
        worth = program.levels.T @ (proof.slope + proof.aside) - proof.rent[program.classes.class_a]
        return np.asarray(worth - self.market.usage.T @ proof.prices)

    def last(self, program: AllocationProgram, limits: Limits) -> Values:
        """Values of the last program (`Filling.final`): at first at prices at which nobody gives up
        of its level to raise the total.
        """
        first = np.zeros((len(PARTS), len(self.market.capacity)))
        gain = np.zeros(len(self.x))
        for proof, is_open in self.proofs:
            unit = np.quantile(proof.slope[proof.slope > HELD * proof.slope.max()], PARTS)
            more = self._gain(proof) / unit[0]
            # Prices before are so high that columns stay closed which this stage had no more.
            closed = np.flatnonzero(~is_open & (gain < 0))
            factor = quotient(more[closed], -gain[closed]).max(initial=1.0)
            first = factor * first + proof.prices / unit[:, np.newaxis]
            gain = factor * gain + more
        return _linear(program, limits, self.x, [*first, *np.outer(HIGHER, first[0])])


# --- totals of utilities --------------------------------------------------------------------------


def _is_linear(program: AllocationProgram) -> bool:
    """Whether a total of levels is maximised."""
    utility = program.utility
    return utility.method is Method.DIRECT and not (utility.smallest_level or program.conic)


def _open_level(program: AllocationProgram) -> FloatArray:
    """A level of each class that is 0 only if all its columns are closed or bring nothing."""
    is_open = np.ones(program.classes.columns)
    is_open[program.limit_rows.closed_columns] = 0.0
    if program.level_floors is not None:
        is_open[program.level_floors.closed] = 0.0
    return np.asarray(program.levels @ is_open)


def refuses_total(program: AllocationProgram) -> str | None:
    """Why a total of utilities is none for prices; None if it is one."""
    utility = program.total
    # A total of levels may leave a job out; a concave one has no slope for it.
    weighs = utility.weight > 0 if program.conic else utility.weight >= 0
    if not weighs.all():
        return "a job has no weight"
    if utility.worthless_at_zero and not (program.highest_level > 0).all():
        return "a job can have nothing, which is worth minus infinity"
    limits = program.limit_rows
    # The slope of a level that is 0 is infinite: no price is high enough.
    if program.conic and (_open_level(program)[program.highest_level > 0] == 0).any():
        return NOTHING_LEFT
    most = limits.most
    if int((np.isfinite(most) & (most > 0)).sum()) > MOST_GOODS:
        return f"it has more than {MOST_GOODS} resources that can run out"
    return None


def solve_total(
    program: AllocationProgram, limits: Limits, start: FloatArray | None = None
) -> Values:
    """Solve a program that `refuses_total` does not refuse;
    ``y`` are duals of the rows that it is lowered to.

    Of a concave total these are the rows of its tangent cuts (`Total.tangent`). ``start`` are
    prices of all resources, near the optimal ones.
    """
    return _interior(program, limits, start) if program.conic else _linear(program, limits)


def _interior(program: AllocationProgram, limits: Limits, start: FloatArray | None) -> Values:
    """By `PinnedTotal` or `Interior`, with levels in units of each class's highest."""
    C, utility, floors = program.classes, program.total, program.level_floors
    assert floors is not None
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
    floor = floors.floor[some] / top if floors.side else None
    curve = Curve(size / unit, exponent, floor)
    with interrupt_flag() as interrupted:
        watch = Watch(limits, interrupted, unit, shift)
        least = _at_levels(program, market, floors, watch) if floors.side else None
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
    rows = duals_above_levels(program, market, found.prices * unit, rent, of_levels, of_floors)
    x, value = goods.columns(C.count[some, np.newaxis] * found.time), found.value * unit + shift
    ended = found.gap <= CLOSE
    if least is not None and least.x is not None:
        # As far from a point at the floors towards that of the search as these allow.
        lack = quotient(floors.floor - program.level(x), floors.floor).max(initial=0.0)
        part = LACKING / max(lack, LACKING)
        x, ended = least.x + part * (x - least.x), ended and part == 1.0
        value = program.value(x)
    return _values(
        Termination.OPTIMAL if ended else watch.reason or Termination.IMPRECISE,
        x,
        (*rows, -of_levels),
        value,
        found.bound * unit + shift,
        steps,
        f"{steps} interior steps, gap {max(found.gap, 0.0):.1g} of the worth of all levels",
    )


def _at_levels(
    program: AllocationProgram, market: Market, floors: LevelFloors, watch: Watch
) -> Values:
    """A point at which nobody is below its floor; without one, what ended the search for it."""
    end, x, refuted = least_levels(market, floors.floor, watch)
    if end is Termination.OPTIMAL:
        return Values(end, x=x)
    if refuted is None:
        return Values(end)
    nothing = np.zeros(len(floors.floor))
    rows = duals_above_levels(program, market, refuted.prices, refuted.rent, nothing, refuted.slope)
    return Values(end, y=np.concatenate(rows))


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
    own = np.maximum(dearest, np.where(at_top, cost, 0.0).sum(axis=1))
    slope = np.where(fixed, np.maximum(slope, own), slope)
    rent = np.maximum((level * slope[:, np.newaxis] - cost).max(axis=1), 0.0)
    return balance_of(goods, curve, level, time, prices, slope, rent), steps


def _searched(
    goods: Goods, level: FloatArray, curve: Curve, watch: Watch, near: FloatArray | None
) -> tuple[Balance, int]:
    """What is found, and after how many steps; ``near`` are prices to start from."""
    found, steps = None, 0
    many = MANY if near is None else MANY_KNOWN
    if curve.floor is None and goods.market.good is not None and len(level) >= many:
        most_pinned = PinnedTotal(goods, level, curve, watch.over)
        solved = most_pinned.run(near)
        found, steps = most_pinned.found, most_pinned.steps
        if found is not None and (solved is not None or watch.reason is not None):
            watch.tell(found.value, found.bound)
            return found, steps
    search = Interior(goods, level, curve, watch)
    again = search.run()
    if found is None or not found.gap <= again.gap:
        found = again
    return found, steps + search.steps


def _linear(
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
    return _values(
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


def duals_above_levels(
    program: AllocationProgram,
    market: Market,
    known: FloatArray,
    rent: FloatArray,
    of_levels: FloatArray,
    of_floors: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Duals of time, shape (K,), and of all rows behind it, where some are floors under levels.

    Parameters
    ----------
    program : AllocationProgram
    market : Market
    known : FloatArray, shape (R,)
        Prices of the resources of the market.
    rent : FloatArray, shape (K,)
        Worth of a class's time.
    of_levels, of_floors : FloatArray, shape (K,)
        Worth of one unit of ``levels @ x`` to the utility, and to the floor.
    """
    floors = program.level_floors
    assert floors is not None
    gain = program.levels.T @ (of_levels + of_floors)
    prices = capacity_duals(program, market, known, rent, gain)
    of_rows = np.zeros(sum(len(rows.lower) for rows in floors.side))
    k = np.flatnonzero(of_floors > 0)
    of_rows[floors.row[k]] = -of_floors[k] / floors.factor[k]
    paid = rent
    if floors.closed.any():
        # What a closed column would be worth is paid for by the time, and asked back by the row
        # that closes it: both count the time of the same jobs.
        gain = program.levels.T @ of_levels - program.limit_rows.matrix.T @ prices
        paid = rent.copy()
        closed = np.flatnonzero(floors.closed)
        np.maximum.at(paid, program.classes.class_a[closed], gain[closed])
        k = np.flatnonzero(paid > rent)
        of_rows[floors.row[k]] -= paid[k] - rent[k]
    return paid, program.duals_in_order(prices, of_rows)


def capacity_duals(
    program: AllocationProgram,
    market: Market,
    known: FloatArray,
    rent: FloatArray,
    gain: FloatArray,
) -> FloatArray:
    """Duals of the rows that limit (`LimitRows`), shape (rows,).

    No market finds the price of a resource of which there is nothing, or of a row that bars its
    columns. Its dual is the least price at which no column that needs it is worth it.

    Parameters
    ----------
    program : AllocationProgram
    market : Market
    known : FloatArray, shape (R,)
        Prices of the resources of the market.
    rent : FloatArray, shape (K,)
        Worth of a class's time.
    gain : FloatArray, shape (N,)
        What one unit of each column is worth.
    """
    C, limits = program.classes, program.limit_rows
    # Resources without a limit are in no market: their price is 0.
    prices = np.zeros(len(limits.most))
    prices[market.row] = known
    none = np.flatnonzero(limits.most <= 0)
    if not len(none):
        return prices
    gain = gain - rent[C.class_a] - limits.matrix.T @ prices
    held = sp.coo_matrix(limits.matrix[none])
    dearest = np.zeros(len(none))
    np.maximum.at(dearest, held.row, gain[held.col] / held.data)
    prices[none] = dearest
    return prices
