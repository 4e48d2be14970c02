r"""Column generation of pairs: jobs that share GPUs, with the few pairs that an optimum uses.

Of n different jobs there are n (n - 1) / 2 pairs in every configuration, and an optimum uses about
as many as it has rows. So the restricted program starts with the columns of jobs alone; its duals
(u of time, p of capacity, y of levels) price all pairs (`pair_pricing`); those that are worth most
become columns, until none is worth it.

At any duals, let v_k be the most that a pair of class k is worth. Then u_k + v_k / 2 and p, y are a
feasible point of the dual of the WHOLE program, since a pair that is worth v raises the u of both
its classes by v / 2 at least:

    optimum <= n . (u + v / 2) + capacity . p        for levels with n . y = 1 (a minimum), or y their weights (a total)

This bound takes one pass of pricing and does not depend on the solver. The best one of all passes
is certified. Pairs are priced half-way to the best duals first (`column_loop`). If there are
many classes, the duals of a sample, extended to all classes (`pair_sample`), select the first
pairs. If there are very many, the program is solved in parts, to a small gap (`pair_parts`).

References
----------
Column generation: P. C. Gilmore, R. E. Gomory, "A linear programming approach to the cutting-stock
problem", Operations Research 9 (1961). The bound, here class by class: A. A. Farley, "A note on
bounding a class of linear programming problems", Operations Research 38 (1990).
"""

from __future__ import annotations

import logging

import numpy as np

from optsched.arrays import FloatArray
from optsched.arrays.values import replace
from optsched.program import AllocationProgram
from optsched.solution.certificate import OPTIMALITY
from optsched.solution.solution import PAIRS, ColumnsMade
from optsched.solution.values import PointStatus, Termination, Values
from optsched.solving.certify import (
    certified_allocation,
    unless_interrupted,
    without_point,
)
from optsched.solving.column_generation.pair_parts import IN_PARTS_FROM, InParts, solve_in_parts
from optsched.solving.column_generation.pair_pricing import ClassPairs, PairPricing
from optsched.solving.column_generation.pair_sample import start_of
from optsched.solving.column_generation.pair_search import PairSearch, with_pairs
from optsched.solving.column_generation.pricing import Build, Duals
from optsched.solving.engine import Engine
from optsched.solving.outcome import NO_OPTIMUM, SolvedProgram

log = logging.getLogger("optsched")


def generate_pairs(engine: Engine, program: AllocationProgram, build: Build) -> SolvedProgram:
    """Solve the program over all pairs of a table by column generation.

    Parameters
    ----------
    engine : Engine
    program : AllocationProgram
        Over classes of candidates with pairs on demand (`Candidates.pairs`), each with a column of
        its own.
    build : callable
        The program over classes with columns of pairs.

    Raises
    ------
    UsageError
        For programs whose columns cannot be priced by the levels of jobs (`PairPricing.of`).
    """
    engine.require_rows("programs whose columns are generated")
    pricing, C = PairPricing.of(program), program.classes
    engine.reason = (
        "columns are generated" if engine.solver == "auto" else "asked for, with columns generated"
    )
    found = solve_in_parts(engine, pricing, build) if len(C) >= IN_PARTS_FROM else None
    accepted = np.inf if engine.limits.gap is None else max(OPTIMALITY, engine.limits.gap)
    if found is not None and (found.gap <= accepted or found.end is not Termination.OPTIMAL):
        return _of_parts(engine, pricing, build, found)
    search = PairSearch(engine, pricing)
    start = start_of(engine, pricing, build) if found is None else found.duals
    if start is not None:
        search.begin(start)
    if found is not None:
        search.master.add(found.made)
    search.run()
    master, values = search.master, search.values
    assert values is not None
    if found is not None and not search.optimal:
        return _of_parts(engine, pricing, build, found)
    if values.x is None or values.termination in NO_OPTIMUM:
        made = ColumnsMade(PAIRS, len(master.made), pricing.count)
        return SolvedProgram(
            program,
            unless_interrupted(without_point(engine, program.to_linear().arrays, values, program)),
            columns_made=made,
        )
    # Pairs that were added after the last program with a point have 0.
    x = np.zeros(master.first + len(master.made))
    x[: len(values.x)] = values.x
    used = np.flatnonzero(x[master.first :] > 0)
    alone, behind = x[: C.columns], x[C.columns : master.first]
    pairs, amount = master.made.take(used), x[master.first + used]
    return _certified(
        engine,
        pricing,
        build,
        (alone, pairs, amount, behind),
        values,
        search.best,
        len(master.made),
    )


def _of_parts(
    engine: Engine,
    pricing: PairPricing,
    build: Build,
    found: InParts,
) -> SolvedProgram:
    """The outcome of a program that was solved in parts; it need not be optimal, and says so."""
    program = pricing.program
    behind = np.array([found.value]) if program.utility.smallest_level else np.zeros(0)
    end = found.end
    if end is Termination.OPTIMAL and found.gap > OPTIMALITY:
        end = Termination.IMPRECISE
    values = Values(
        end,
        PointStatus.FEASIBLE,
        PointStatus.FEASIBLE,
        None,
        None,
        found.value,
        found.bound,
        words="in parts",
    )
    point = (found.x, found.made, found.amount, behind)
    return _certified(engine, pricing, build, point, values, found.duals, found.columns)


def _certified(
    engine: Engine,
    pricing: PairPricing,
    build: Build,
    point: tuple[FloatArray, ClassPairs, FloatArray, FloatArray],
    values: Values,
    best: Duals | None,
    made: int,
) -> SolvedProgram:
    """The outcome over the columns in use; its bound is recomputed by pricing all pairs again.

    ``point`` has the totals of columns alone, the pairs and their totals, and the columns that
    follow.
    """
    alone, pairs, amount, behind = point
    # By classes and way, whatever the order in which pairs were made.
    order = np.lexsort((pairs.way, pairs.second, pairs.first))
    program = build(with_pairs(pricing, pairs.take(order)))
    assert isinstance(program, AllocationProgram)
    x = np.concatenate([alone, amount[order], behind])
    y = None if best is None else best.rows(program)
    outcome = certified_allocation(engine, program, replace(values, x=x, y=y), y)
    outcome = pricing.bounded(outcome, program)
    log.info("%d pairs of %d made columns, %d in use", made, pricing.count, len(pairs))
    count = ColumnsMade(PAIRS, made, pricing.count)
    return SolvedProgram(program, outcome, columns_made=count)
