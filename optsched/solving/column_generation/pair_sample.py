r"""Duals to start from: those of a sample of the classes, extended to all classes.

The prices of the resources and what partners of each sort are worth hardly depend on how many jobs
there are. So the program of a sample of the classes, with its part of the capacities, is solved
first; its duals are (u, p, y). In the whole program a class k then has these points (what a unit of
its time gives, and costs):

    alone, in column c                         a_kc                      p usage_c
    in way w, with a partner of sort g         level_k(w, g)             p usage_w - e_w(g, k)

where e_w(g, k) = max_b (y_b level_b(w, k) - u_b) is what the best partner of that sort in the
sample adds. Slope and rent of the lower hull of the points and idleness at the sample's level are
y_k and u_k, as over columns alone in `optsched.solvers.prices.oracle`; of a linear total y_k is
given, and u_k the most that a point is worth.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np

from optsched.arrays import EMPTY, FloatArray, IntArray
from optsched.arrays.values import replace
from optsched.candidates.classes import JobGroups, alone_columns, assemble
from optsched.program import AllocationProgram
from optsched.solving.column_generation.pair_pricing import PairPricing, PairWay
from optsched.solving.column_generation.pair_search import PairSearch
from optsched.solving.column_generation.pricing import Build, Duals
from optsched.solving.column_generation.segments import Found, SegmentEnds, line, lowered
from optsched.solving.engine import Engine

log = logging.getLogger("optsched")

LEAST = 250
"""Classes of a sample, at least."""
EVERY = 4
"""Classes for each one in the sample, at least: with fewer it is hardly smaller than the whole."""
ROUNDS = 30
"""Ends of segments that are moved one after the other, at most:
a slope from anywhere will do, if not as well.
"""
SLACK = 1e-12
"""Part of its cost that a point must be below a segment."""


def start_of(engine: Engine, pricing: PairPricing, build: Build) -> Duals | None:
    """Duals after those of a sample;
    None where classes are few, no sample was solved in time, or it says nothing.
    """
    if len(pricing.classes) < EVERY * LEAST:
        return None
    search = PairSearch(
        engine, PairPricing.of(engine.build(lambda: sample_of(pricing.program, build)))
    )
    if not search.run_on_the_way():
        return None
    log.info("a sample of %d classes has the value %.9g", len(search.pricing.classes), search.value)
    return known(
        spread(
            pricing, search.pricing, search.duals, search.value / unit_of(search.pricing, pricing)
        )
    )


def unit_of(some: PairPricing, pricing: PairPricing) -> float:
    """Levels of a program of some classes for each of that of all:
    a makespan has its own units.
    """
    rows = np.flatnonzero(some.scale > 0)[:1]
    whole = pricing.scale[pricing.classes.of_job[some.classes.first[rows]]]
    return float(some.scale[rows[0]] / whole[0]) if len(rows) else 1.0


def known(duals: Duals) -> Duals | None:
    """Duals; None where they say nothing, as where nothing is scarce,
    and one job holds the level.
    """
    return duals if duals.levels.any() else None


def dealt_out(program: AllocationProgram, parts: int) -> list[IntArray]:
    """The classes, dealt out to so many parts that are alike:
    in order of sort and best level, one after the other.
    """
    C = program.classes
    assert C.candidates.pairs is not None
    order = np.lexsort((program.highest_level, C.candidates.pairs.sort[C.kind]))
    return [np.sort(order[part::parts]) for part in range(parts)]


def sample_of(program: AllocationProgram, build: Build) -> AllocationProgram:
    """The program of one of so many parts that each has `LEAST` classes."""
    parts = dealt_out(program, len(program.classes) // LEAST)
    return part_of(program, build, parts[len(parts) // 2])


def part_of(program: AllocationProgram, build: Build, some: IntArray) -> AllocationProgram:
    """The program of some of the classes, with their part of the capacities."""
    C = program.classes
    candidates, gang = C.candidates, C.candidates.kinds.gang[C.kind]  # 0 of jobs that need no GPU
    # Capacities in proportion to the GPUs that the jobs ask for.
    wanted = C.count * np.maximum(gang, 1)
    part = wanted[some].sum() / wanted.sum()
    resources = replace(candidates.resources, capacity=candidates.resources.capacity * part)
    of_class = np.full(len(C) + 1, -1, np.int64)
    of_class[some] = np.arange(len(some))
    groups = JobGroups(of_class[C.of_job], C.first[some], C.count[some].astype(np.int64))
    small = replace(candidates, resources=resources)
    alone = alone_columns(small.columns, C.kind[some], len(small.kinds))
    made = build(assemble(small, C.reads, groups, alone, (EMPTY, EMPTY, EMPTY)))
    assert isinstance(made, AllocationProgram)
    return made


@dataclass(frozen=True)
class _Points:
    """What some classes can do:
    levels of a unit of their time and what it costs, shape (M, P) each.
    """

    classes: IntArray
    level: FloatArray
    cost: FloatArray


def spread(pricing: PairPricing, sample: PairPricing, duals: Duals, level: float) -> Duals:
    """Duals of all classes at the prices of a sample, and with its classes for partners.

    Parameters
    ----------
    pricing, sample : PairPricing
        Of all classes, and of the sample.
    duals : Duals
        Of the sample.
    level : float
        The smallest level that the sample reaches, in units of ``pricing``.
    """
    C, points = pricing.classes, _points(pricing, sample, duals)
    paid = pricing.program.utility.level_prices(pricing.program)
    if paid is not None:
        return Duals(_most_below(points, paid)[0], duals.capacity, paid)
    low, high = SegmentEnds.idle(len(C)), SegmentEnds.idle(len(C))
    for some in points:
        rows, best = np.arange(len(some.classes)), some.level.argmax(axis=1)
        # The first segment goes from idleness to the highest level of each class.
        higher = np.flatnonzero(some.level[rows, best] > high.level[some.classes])
        at = higher, best[higher]
        high.move(some.classes[higher], some.level[at], some.cost[at], np.full(len(higher), -1))
    klass = np.arange(len(C))
    slope, rent = line(low, high, klass)

    def below(slope: FloatArray, rent: FloatArray, active: IntArray) -> Found:
        gain, reach, cost = _most_below(points, slope)
        better = active[gain[active] > rent[active] + SLACK * np.abs(cost[active])]
        return better, reach[better], cost[better], np.full(len(better), -1)

    lowered(low, high, np.minimum(level, high.level), slope, rent, klass, below, ROUNDS)
    return Duals(rent, duals.capacity, slope)


def _points(pricing: PairPricing, sample: PairPricing, duals: Duals) -> list[_Points]:
    """What classes can do alone, column by column, and beside each sort of partners, way by way."""
    program, C = pricing.program, pricing.classes
    paid = (C.usage.T @ duals.capacity)[:, np.newaxis]
    reach = program.levels.tocsc().max(axis=0).toarray().T
    count = np.bincount(C.class_a, minlength=len(C))
    # Number of each column in its class: points are looked at one column of every class at a time.
    number = np.arange(C.columns) - np.repeat(np.cumsum(count) - count, count)
    alone = [np.flatnonzero(number == which) for which in range(int(count.max(initial=0)))]
    points = [_Points(C.class_a[some], reach[some], paid[some]) for some in alone]
    of_sample = {way.number: way for way in sample.ways}
    for way in pricing.ways:
        if way.number in of_sample:
            worth = _worth_of_partners(pricing, way, sample, of_sample[way.number], duals)
            there = np.isfinite(worth) & ~way.barred
            cost = (way.needs @ duals.capacity + pricing.price(way, duals))[:, np.newaxis] - worth
            points.append(
                _Points(way.classes, np.where(there, way.level, 0.0), np.where(there, cost, np.inf))
            )
    return points


def _worth_of_partners(
    pricing: PairPricing, way: PairWay, sample: PairPricing, sampled_way: PairWay, duals: Duals
) -> FloatArray:
    """e_w(g, k) of each class of a way and each sort there, shape (M, G);
    -inf of sorts that the sample lacks.
    """
    most = np.full((len(way.start), len(way.start)), -np.inf)
    sorts, sampled = pricing.sorts(way), sample.sorts(sampled_way)
    known = np.isin(sampled, sorts)
    at = np.searchsorted(sorts, sampled[known])
    most[np.ix_(at, at)] = np.maximum.reduceat(sampled_way.parts(duals), sampled_way.start, axis=0)[
        np.ix_(known, known)
    ]
    return most[:, way.group].T


def _most_below(
    points: list[_Points], slope: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """How far the point of each class that is most below its segment is below it,
    through the origin; and the point.
    """
    gain, reach, cost = np.zeros(len(slope)), np.zeros(len(slope)), np.zeros(len(slope))
    for some in points:
        value = slope[some.classes, np.newaxis] * some.level - some.cost
        best = value.argmax(axis=1)
        better = np.flatnonzero(value[np.arange(len(best)), best] > gain[some.classes])
        at, klass = (better, best[better]), some.classes[better]
        gain[klass], reach[klass], cost[klass] = value[at], some.level[at], some.cost[at]
    return gain, reach, cost
