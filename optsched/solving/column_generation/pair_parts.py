r"""Programs of pairs in parts:
tens of thousands of different jobs, of which each shares GPUs with those of its part.

A restricted program of all jobs has two rows for each of them: too much for a simplex. So the
classes are dealt out to parts that are alike, each with its part of the capacities, whose programs
(`pair_search`) are small. What part i can reach with capacities W_i is a concave function V_i, of
which a solved program says the value and the slopes p_i; so the capacities are moved to where they
are worth more by cutting planes,

    maximise t   s.t.   t <= V_i + p_i . (W_i' - W_i)  for every part i and every W_i so far,   sum_i W_i' = W

(of a total: the sum of one t_i for each part), within a region of trust that shrinks. Nothing is
lost but pairs of jobs of two parts. Duals of a part, spread over all classes (`pair_sample`), bound
the whole.

References
----------
Resource-directive decomposition: G. B. Dantzig, P. Wolfe 1960; A. M. Geoffrion, "Primal
resource-directive approaches for optimizing nonlinear decomposable systems", Operations Research 18
(1970). Dealing jobs out to parts without moving capacities: D. Narayanan et al., "Solving
Large-Scale Granular Resource Allocation Problems Efficiently with POP", SOSP 2021.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from optsched.arrays import FloatArray, IntArray, ranges
from optsched.solution.values import Termination
from optsched.solving.column_generation.pair_pricing import ClassPairs, PairPricing
from optsched.solving.column_generation.pair_sample import (
    dealt_out,
    known,
    part_of,
    spread,
    start_of,
    unit_of,
)
from optsched.solving.column_generation.pair_search import PairSearch
from optsched.solving.column_generation.pricing import Build, Duals
from optsched.solving.engine import Engine

log = logging.getLogger("optsched")

MANY = 5_000
"""Classes from which programs are solved in parts."""
EACH = 1_000
"""Classes of a part."""
ROUNDS = 7
"""Times that capacities are moved, at most."""
NEAR = 1e-4
"""Relative gap at which they are not moved any more."""
TRUST = 0.05
"""Part of its capacities that a part may gain or lose in the first round."""
GROW, SHRINK = 2.0, 0.4
"""What that is multiplied by after a round that was better than all before,
and after one that was not.
"""
ASKED = 6
"""Parts whose duals are spread over all classes."""


@dataclass(frozen=True)
class InParts:
    """What all parts have come to.

    Attributes
    ----------
    value, bound : float
    x : FloatArray, shape (N,)
        Totals of the columns of jobs alone.
    made : ClassPairs
        Pairs in use, of the classes of the whole program.
    amount : FloatArray
        Totals of these.
    duals : Duals
        Those that prove the bound.
    columns : int
        Pairs that were made columns.
    end : Termination
        Why no more was tried: `OPTIMAL` where that was not worth it.
    """

    value: float
    bound: float
    x: FloatArray
    made: ClassPairs
    amount: FloatArray
    duals: Duals
    columns: int
    end: Termination = Termination.OPTIMAL

    @property
    def gap(self) -> float:
        """Relative gap between value and bound."""
        return (self.bound - self.value) / max(abs(self.value), 1e-300)


def solve_in_parts(engine: Engine, pricing: PairPricing, build: Build) -> InParts | None:
    """The best of some rounds; None if a limit is reached before all parts have a point."""
    program, C = pricing.program, pricing.classes
    parts = dealt_out(program, round(len(C) / EACH))
    begun = _begin_parts(engine, pricing, build, parts)
    if begun is None:
        return None
    searches, units = begun
    total = not program.utility.smallest_level
    # A minimum is bounded from the start by what its worst class could have alone.
    bound, proof = (np.inf, None) if total else _held_by_one(pricing)
    cuts = []
    reached: InParts | None = None
    held = []
    trust = TRUST / GROW
    for number in range(ROUNDS + 1):
        values = [search.value / unit for search, unit in zip(searches, units, strict=True)]
        # Parts are alike, so that duals of few of them prove nearly as much as those of all.
        for search, level in zip(searches[:ASKED], values, strict=False):
            found = _raised(pricing, spread(pricing, search.pricing, search.duals, level))
            if found[0] < bound:
                bound, proof = found
        assert proof is not None
        value = sum(values) if total else min(values)
        trust *= SHRINK if reached is not None and value <= reached.value else GROW
        if reached is None or value > reached.value:
            reached = _put_together(pricing, searches, parts, value, bound, proof)
            # The region of trust is around the best point, not around the last one.
            held = [search.master.capacity for search in searches]
        log.info("in %d parts: value %.9g, bound %.9g", len(parts), reached.value, bound)
        accepted = max(NEAR, engine.limits.gap or 0.0)
        if bound - reached.value <= accepted * abs(bound) or number == ROUNDS:
            break
        cuts += [
            _PartCut(
                part, values[part], search.duals.capacity / units[part], search.master.capacity
            )
            for part, search in enumerate(searches)
        ]
        for search, mine in zip(
            searches, _moved(cuts, held, C.capacity, trust, total), strict=True
        ):
            search.move(mine)
            search.run()
            if not search.optimal:  # a limit, or the user: what was reached before is kept
                assert search.values is not None
                return replace(reached, bound=bound, duals=proof, end=search.values.termination)
    assert reached is not None and proof is not None
    return replace(reached, bound=bound, duals=proof)


def _begin_parts(
    engine: Engine,
    pricing: PairPricing,
    build: Build,
    parts: Sequence[IntArray],
) -> tuple[list[PairSearch], list[float]] | None:
    """The search of each part, solved once, and the unit of its value; None if a limit is reached.

    The first part is solved from scratch; the others start from its prices.
    """
    program = pricing.program
    searches: list[PairSearch] = []
    units = []
    for some in parts:
        small = PairPricing.of(engine.build(lambda some=some: part_of(program, build, some)))  # type: ignore[misc]
        search = PairSearch(engine, small)
        units.append(unit_of(small, pricing))
        if searches:
            first = searches[0]
            start = known(
                spread(small, first.pricing, first.duals, first.value * units[-1] / units[0])
            )
        else:
            start = start_of(engine, small, build)
        if start is not None:
            search.begin(start)
        if not search.run_on_the_way():
            return None
        searches.append(search)
        log.info("part %d of %d has the value %.9g", len(searches), len(parts), search.value)
    return searches, units


@dataclass(frozen=True)
class _PartCut:
    """What a part can reach at most with other capacities: value + slope . (W - at)."""

    part: int
    value: float
    slope: FloatArray
    at: FloatArray


def _held_by_one(pricing: PairPricing) -> tuple[float, Duals]:
    """The bound and duals by which the class that can reach least holds the level."""
    C, highest = pricing.classes, pricing.highest_levels
    held = int(highest.argmin())
    time, levels = np.zeros(len(C)), np.zeros(len(C))
    time[held], levels[held] = highest[held] / C.count[held], 1.0 / C.count[held]
    return float(highest[held]), Duals(time, np.zeros(len(C.capacity)), levels)


def _raised(pricing: PairPricing, duals: Duals) -> tuple[float, Duals]:
    """Duals raised to a feasible point of the dual of the whole program,
    and the bound that it proves.
    """
    duals = pricing.scaled(duals)
    over = np.maximum(pricing.excess(duals) / 2, pricing.alone_excess(duals))
    duals = replace(duals, time=duals.time + over)
    return float(
        duals.time @ pricing.classes.count + duals.capacity @ pricing.classes.capacity
    ), duals


def _moved(
    cuts: list[_PartCut], held: list[FloatArray], whole: FloatArray, trust: float, total: bool
) -> list[FloatArray]:
    """Capacities of each part that promise most, near those that it has."""
    parts = len(held)
    some = np.flatnonzero(np.isfinite(whole) & (whole > 0))
    count = parts * len(some)
    # Columns: new capacities W' (parts, resources), then t_i of each part, then t of a minimum.
    rows = np.zeros((len(cuts), count + parts + 1))
    for row, cut in zip(rows, cuts, strict=True):
        row[cut.part * len(some) : (cut.part + 1) * len(some)] = -cut.slope[some]
        row[count + cut.part] = 1.0
    sides = np.array([cut.value - cut.slope[some] @ cut.at[some] for cut in cuts])
    if not total:
        # t <= t_i
        least = np.hstack([np.zeros((parts, count)), -np.eye(parts), np.ones((parts, 1))])
        rows, sides = np.vstack([rows, least]), np.append(sides, np.zeros(parts))
    gain = np.concatenate([np.zeros(count), np.full(parts, float(total)), [float(not total)]])
    mine = np.concatenate([each[some] for each in held])
    lower = np.concatenate([mine * max(1 - trust, 0.0), np.zeros(parts + 1)])
    upper = np.concatenate([mine * (1 + trust), np.full(parts, np.inf), [0.0 if total else np.inf]])
    # The parts share the whole capacity.
    balance = np.hstack([np.tile(np.eye(len(some)), parts), np.zeros((len(some), parts + 1))])
    ranges_of: Any = np.column_stack([lower, upper])
    from scipy.optimize import linprog  # takes a quarter of a second to load

    found = linprog(
        -gain,
        A_ub=rows,
        b_ub=sides,
        A_eq=balance,
        b_eq=whole[some],
        bounds=ranges_of,
        method="highs",
    )
    moved = [each.copy() for each in held]
    if found.x is None:  # rounding has left no room: they stay where they are
        return moved
    for each, new in zip(moved, found.x[:count].reshape(parts, -1), strict=True):
        each[some] = new
    return moved


def _put_together(
    pricing: PairPricing,
    searches: list[PairSearch],
    parts: list[IntArray],
    value: float,
    bound: float,
    proof: Duals,
) -> InParts:
    """The points of all parts as one of the whole program."""
    C, x = pricing.classes, np.zeros(pricing.classes.columns)
    # Columns of jobs alone stand class by class, in a part as in the whole program.
    count = np.bincount(C.class_a, minlength=len(C))
    begin = np.cumsum(count) - count
    pairs, amounts = [], []
    for search, some in zip(searches, parts, strict=True):
        master, values = search.master, search.values
        assert values is not None and values.x is not None
        mine = np.zeros(master.first + len(master.made))
        mine[: len(values.x)] = values.x
        x[ranges(begin[some], count[some])] = mine[: master.classes.columns]
        used = np.flatnonzero(mine[master.first :] > 0)
        made = master.made.take(used)
        pairs.append(ClassPairs(some[made.first], some[made.second], made.way, made.value))
        amounts.append(mine[master.first + used])
    columns = sum(len(search.master.made) for search in searches)
    return InParts(
        value,
        bound,
        x,
        ClassPairs.join([ClassPairs.none(), *pairs]),
        np.concatenate(amounts),
        proof,
        columns,
    )
