r"""Programs of pairs in parts: tens of thousands of different jobs, paired within their part only.

A restricted program of all jobs has two rows for each of them: too much for a simplex. So the
classes are dealt out to parts that are alike, each with its part of the capacities, whose programs
(`pair_search`) are small. What part i can reach with capacities W_i is a concave function V_i, of
which a solved program says the value and the slopes p_i; so the capacities are moved to where they
are worth more by cutting planes,

    maximise t   s.t.   t <= V_i + p_i . (W_i' - W_i)  for every part i and every W_i so far,   sum_i W_i' = W

(of a total: the sum of one t_i for each part), within a region of trust that shrinks. Nothing is
lost but pairs of jobs of two parts. Duals of a part, spread over all classes (`pair_sample`), bound
the whole. Parts are solved side by side (`optsched.solving.side_by_side`): each goes on from the
columns and the basis that it came to before, wherever it was solved then.

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
from contextlib import closing
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from optsched.arrays import FloatArray, IntArray, ranges
from optsched.arrays.values import replace
from optsched.errors import Interrupted, SolverCrashed
from optsched.solution import Attempt
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
from optsched.solving.column_generation.pair_search import PairSearch, SearchEnd
from optsched.solving.column_generation.pricing import Build, Duals
from optsched.solving.engine import Engine
from optsched.solving.side_by_side import SideBySide

log = logging.getLogger("optsched")

IN_PARTS_FROM = 5_000
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
"""Factors on the trust region after a round that improved the value, and after one that did not."""
ASKED = 6
"""Parts whose duals are spread over all classes."""
STOPS = (Interrupted, KeyboardInterrupt, SolverCrashed)
"""Errors that end the rounds; the best point of earlier rounds is kept."""


@dataclass(frozen=True)
class InParts:
    """The result of all parts.

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
        Why the rounds ended: `OPTIMAL` if the gap was small enough or all rounds were done.
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
    parts = PairParts(pricing, build, tuple(dealt_out(program, round(len(C) / EACH))))
    first = SolvePart(0).solved(engine, parts, None)
    if not isinstance(first, SolvedPart):
        return None
    prices = FirstPart(parts.pricing_of(0, engine), first)
    with closing(SideBySide(engine, _do, (parts, prices))) as others:
        begun = others.results([SolvePart(part) for part in range(1, len(parts.classes))])
        solved = [first, *(each for each in begun if isinstance(each, SolvedPart))]
        if len(solved) < len(parts.classes):
            return None
        return _best_of_rounds(engine, parts, others, solved)


def _best_of_rounds(
    engine: Engine, parts: PairParts, others: SideBySide[Any], solved: list[SolvedPart]
) -> InParts:
    """Move capacities between parts, once all parts have a point."""
    pricing, capacity = parts.pricing, parts.pricing.classes.capacity
    total = not pricing.program.utility.smallest_level
    # A minimum has a bound from the start: the least of the highest levels.
    best = (np.inf, None) if total else _held_by_one(pricing)
    cuts: list[_PartCut] = []
    reached: InParts | None = None
    end, held, trust = Termination.OPTIMAL, list[FloatArray](), TRUST / GROW
    for number in range(ROUNDS + 1):
        # Parts are alike, so that duals of few of them prove nearly as much as those of all.
        asked = [BoundByPart(*each) for each in enumerate(solved[:ASKED])]
        try:
            best = min([best, *others.results(asked)], key=itemgetter(0))
        except STOPS as error:
            if reached is None:
                raise
            end = _end_after(engine, error)
            break
        values = [each.level for each in solved]
        value = sum(values) if total else min(values)
        trust *= SHRINK if reached is not None and value <= reached.value else GROW
        if reached is None or value > reached.value:
            assert best[1] is not None
            reached = _put_together(parts, solved, value, best[0], best[1])
            # The region of trust is around the best point, not around the last one.
            held = [each.end.capacity for each in solved]
        log.info("in %d parts: value %.9g, bound %.9g", len(solved), reached.value, best[0])
        accepted = max(NEAR, engine.limits.gap or 0.0)
        if best[0] - reached.value <= accepted * abs(best[0]) or number == ROUNDS:
            break
        cuts += [
            _PartCut(part, each.level, each.duals.capacity / each.unit, each.end.capacity)
            for part, each in enumerate(solved)
        ]
        moved = _moved(cuts, held, capacity, trust, total)
        begun = [each.end._replace(capacity=new) for each, new in zip(solved, moved, strict=True)]
        try:
            again = others.results([SolvePart(*each) for each in enumerate(begun)])
        except STOPS as error:
            end = _end_after(engine, error)
            break
        stops = [each for each in again if isinstance(each, Termination)]
        if stops:  # the result of earlier rounds is kept
            end = stops[0]
            break
        solved = [each for each in again if isinstance(each, SolvedPart)]
    assert reached is not None and best[1] is not None
    return replace(reached, bound=best[0], duals=best[1], end=end)


def _end_after(engine: Engine, error: BaseException) -> Termination:
    """Termination after an error stopped the rounds; a crash is recorded as an attempt."""
    if not isinstance(error, SolverCrashed):
        return Termination.INTERRUPTED
    log.warning("the parts are as they were before a solver crashed: %s", error)
    engine.attempts.append(Attempt(engine.name, str(error)))
    return Termination.IMPRECISE


@dataclass(frozen=True, eq=False)
class PairParts:
    """A program of pairs, and the classes of each part.

    Attributes
    ----------
    pricing : PairPricing
        Of the whole program.
    build : callable
    classes : tuple of IntArray
    """

    pricing: PairPricing
    build: Build
    classes: tuple[IntArray, ...]
    _made: dict[int, PairPricing] = field(default_factory=dict)

    def pricing_of(self, part: int, engine: Engine) -> PairPricing:
        """Pricing of the program of a part, made once in each process."""
        if part not in self._made:
            program, some = self.pricing.program, self.classes[part]
            small = engine.build(lambda: part_of(program, self.build, some))
            self._made[part] = PairPricing.of(small)
        return self._made[part]

    def __reduce__(self) -> tuple[Any, ...]:
        return PairParts, (self.pricing, self.build, self.classes)


class SolvedPart(NamedTuple):
    """The optimum of a part.

    Attributes
    ----------
    level : float
        Its value, in units of the whole program.
    unit : float
        Its own units for each of these.
    duals : Duals
    alone, amount : FloatArray
        What its columns of jobs alone have, and the pairs that were made columns.
    end : SearchEnd
    """

    level: float
    unit: float
    duals: Duals
    alone: FloatArray
    amount: FloatArray
    end: SearchEnd


class FirstPart(NamedTuple):
    """The part that is solved first; the others start from its prices."""

    pricing: PairPricing
    solved: SolvedPart


class SolvePart(NamedTuple):
    """Task: solve a part, from the state of its last search or from the prices of the first
    part.
    """

    part: int
    before: SearchEnd | None = None

    def solved(
        self, engine: Engine, parts: PairParts, first: FirstPart | None
    ) -> SolvedPart | Termination:
        """Its optimum, or the limit that was reached; raises `Interrupted`."""
        if engine.time_left <= 0:
            return Termination.TIME_LIMIT
        small = parts.pricing_of(self.part, engine)
        search, unit = PairSearch(engine, small, self.before), unit_of(small, parts.pricing)
        if self.before is None:
            start = (
                start_of(engine, small, parts.build)
                if first is None
                else _start(first, small, unit)
            )
            if start is not None:
                search.begin(start)
        if not search.run_on_the_way():
            assert search.values is not None
            return search.values.termination
        log.info("part %d has the value %.9g", self.part + 1, search.value)
        return _solved_part(search, unit)


class BoundByPart(NamedTuple):
    """Task: the bound on the whole program by the duals of a part, extended to all classes."""

    part: int
    solved: SolvedPart

    def proved(self, engine: Engine, parts: PairParts) -> tuple[float, Duals]:
        """The bound, and the duals that prove it."""
        small = parts.pricing_of(self.part, engine)
        return _raised(
            parts.pricing, spread(parts.pricing, small, self.solved.duals, self.solved.level)
        )


def _do(
    engine: Engine, shared: tuple[PairParts, FirstPart], task: SolvePart | BoundByPart
) -> SolvedPart | Termination | tuple[float, Duals]:
    """Do a task, in this process or another."""
    parts, first = shared
    if isinstance(task, BoundByPart):
        return task.proved(engine, parts)
    return task.solved(engine, parts, first)


def _start(first: FirstPart, small: PairPricing, unit: float) -> Duals | None:
    """The duals of the first part, spread over another one."""
    return known(spread(small, first.pricing, first.solved.duals, first.solved.level * unit))


def _solved_part(search: PairSearch, unit: float) -> SolvedPart:
    master, values = search.master, search.values
    assert values is not None and values.x is not None
    # Pairs that were added after the last program with a point have 0.
    x = np.zeros(master.first + len(master.made))
    x[: len(values.x)] = values.x
    return SolvedPart(
        search.value / unit,
        unit,
        search.duals,
        x[: master.classes.columns],
        x[master.first :],
        search.end,
    )


@dataclass(frozen=True)
class _PartCut:
    """Cut of a part: its value is at most value + slope . (W - at) at other capacities W."""

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
    """The bound of duals that are raised to be feasible for the whole program, and these duals."""
    duals = pricing.scaled(duals)
    over = np.maximum(pricing.excess(duals) / 2, pricing.alone_excess(duals))
    duals = replace(duals, time=duals.time + over)
    return float(
        duals.time @ pricing.classes.count + duals.capacity @ pricing.classes.capacity
    ), duals


def _moved(
    cuts: list[_PartCut], held: list[FloatArray], whole: FloatArray, trust: float, total: bool
) -> list[FloatArray]:
    """New capacities of each part, which maximise the cuts within the trust region."""
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
    present = np.concatenate([each[some] for each in held])
    lower = np.concatenate([present * max(1 - trust, 0.0), np.zeros(parts + 1)])
    upper = np.concatenate(
        [present * (1 + trust), np.full(parts, np.inf), [0.0 if total else np.inf]]
    )
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
    if found.x is None:  # infeasible by rounding: capacities stay
        return moved
    for each, new in zip(moved, found.x[:count].reshape(parts, -1), strict=True):
        each[some] = new
    return moved


def _put_together(
    parts: PairParts, solved: Sequence[SolvedPart], value: float, bound: float, proof: Duals
) -> InParts:
    """The points of all parts as a point of the whole program."""
    C = parts.pricing.classes
    x = np.zeros(C.columns)
    # Columns of jobs alone stand class by class, in a part as in the whole program.
    count = np.bincount(C.class_a, minlength=len(C))
    begin = np.cumsum(count) - count
    pairs, amounts = [ClassPairs.none()], [np.zeros(0)]
    for each, some in zip(solved, parts.classes, strict=True):
        x[ranges(begin[some], count[some])] = each.alone
        used = np.flatnonzero(each.amount > 0)
        made = each.end.made.take(used)
        pairs.append(ClassPairs(some[made.first], some[made.second], made.way, made.value))
        amounts.append(each.amount[used])
    columns = sum(len(each.end.made) for each in solved)
    return InParts(value, bound, x, ClassPairs.join(pairs), np.concatenate(amounts), proof, columns)
