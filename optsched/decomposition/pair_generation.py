r"""Column generation of pairs: programs of jobs that share GPUs, with the few pairs that are worth a column.

Of n different jobs there are n (n - 1) / 2 pairs in every configuration, and an optimum uses about as many as it has
rows. So the restricted program starts with the columns of jobs alone; its duals (u of time, p of capacity, y of levels)
price all pairs (`optsched.decomposition.pricing`); those that are worth most become columns, until none is worth it.

At any duals, let v_k be the most that a pair of class k is worth. Then u_k + v_k / 2 and p, y are a feasible point of
the dual of the WHOLE program, since a pair that is worth v raises the u of both its classes by v / 2 at least:

    optimum <= n . (u + v / 2) + capacity . p        for levels with n . y = 1 (a minimum), or y their weights (a total)

This bound costs one pass of pricing and trusts no solver. The best one of all passes is certified. Duals of restricted
programs jump from one to the next; so pairs are priced half-way to the best duals so far first, and at those of the
restricted program where that offers nothing new. Where there are many classes, the duals of a sample, spread over all
of them (`optsched.decomposition.pair_sample`), say which pairs are columns to begin with.

References
----------
P. C. Gilmore, R. E. Gomory, "A linear programming approach to the cutting-stock problem", Operations Research 9 (1961);
the bound is that of A. A. Farley, "A note on bounding a class of linear programming problems", Operations Research 38
(1990), class by class; the point half-way that of P. Wentges, "Weighted Dantzig-Wolfe decomposition for linear
mixed-integer programming", International Transactions in Operational Research 4 (1997).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from optsched.candidates import Classes
from optsched.decomposition.duals import Duals
from optsched.decomposition.generated import Generated, with_bound
from optsched.decomposition.master import Master, with_pairs
from optsched.decomposition.pair_sample import sample_of, spread, worth_sampling
from optsched.decomposition.pricing import PairPricing
from optsched.engine import Engine
from optsched.outcome import NO_OPTIMUM, STOPPED
from optsched.program import AllocationProgram
from optsched.solution.plan import Plan
from optsched.solution.solution import PAIRS, ColumnsMade
from optsched.solution.values import Termination, Values

log = logging.getLogger("optsched")

CLOSED = 1e-7
"""Relative gap at which no more columns are made."""
STEADY = 0.5
"""How far from the duals of the restricted program to the best ones so far pairs are priced first."""
STEADIER = 0.9
"""The same where the search starts from duals of a sample, which are near the best."""
NEARLY = 0.03
"""Part of what a job adds to the bound that a pair may lack to be worth a column at duals of a sample."""
NOTHING = 1e-11
"""Part of the largest multiplier of a time row that a column must be worth."""


def generate_pairs(
    engine: Engine, program: AllocationProgram, build: Callable[[Classes], AllocationProgram | Plan]
) -> Generated:
    """Solve the program of all pairs of a table by making columns of those that are worth it.

    Parameters
    ----------
    engine : Engine
    program : AllocationProgram
        Over classes of candidates with pairs on demand (`Candidates.pairs`), each with a column of its own.
    build : callable
        The program over classes with columns of pairs.

    Raises
    ------
    UsageError
        For programs whose columns cannot be priced by the levels of jobs (`PairPricing.of`).
    """
    engine.require_rows("programs whose columns are generated")
    pricing = PairPricing.of(program)
    start = _of_sample(engine, pricing, build) if worth_sampling(program.classes) else None
    found = _search(engine, pricing, start)
    engine.reason = "columns are generated" if engine.solver == "auto" else "asked for, with columns generated"
    if found.values.x is None or found.values.termination in NO_OPTIMUM:
        made = ColumnsMade(PAIRS, len(found.master.made), pricing.count)
        arrays = found.master.program.to_linear().arrays
        return Generated(program, engine.without_point(arrays, found.values, program, None), made)
    return _certified(engine, found, build)


@dataclass(frozen=True)
class _Found:
    """What a search has come to.

    Attributes
    ----------
    master : Master
    values : Values
        Of the last program whose columns were priced, with the end that the last one came to.
    best : Duals or None
        Those of the lowest bound.
    """

    master: Master
    values: Values
    best: Duals | None


def _of_sample(
    engine: Engine, pricing: PairPricing, build: Callable[[Classes], AllocationProgram | Plan]
) -> Duals | None:
    """Duals of all classes after those of a sample; None where the sample was not solved in time."""
    sample = PairPricing.of(engine.build(lambda: sample_of(pricing.program, build)))
    found = _search(engine, sample)
    values = found.values
    if values.termination is not Termination.OPTIMAL or values.x is None or values.y is None:
        return None
    level = found.master.session.arrays.objective(values.x)
    log.info("a sample of %d classes has the value %.9g", len(sample.classes), level)
    duals = spread(pricing, sample, found.master.duals(values.y), level)
    return (
        duals if duals.levels.any() else None
    )  # where nothing is scarce a few jobs hold the level, of the sample or not


def _search(engine: Engine, pricing: PairPricing, start: Duals | None = None) -> _Found:
    """Make columns until none is worth it, at first those that are nearly worth it at duals to start from."""
    arrays = engine.build(lambda: pricing.program.to_linear().arrays)
    session = engine.open(arrays, "highs" if engine.solver == "auto" else engine.solver)
    master, best, steady = Master(pricing, session), None, STEADY
    if start is not None:
        start = master.scaled(start)
        best, _ = master.priced(start, NOTHING)
        steady = STEADIER
        each = master.bound(best) / float(pricing.classes.count.sum())
        master.add(pricing.best(start, -NEARLY * each)[1])
    values = last = engine.run(session)
    while values.x is not None and values.y is not None and values.termination not in NO_OPTIMUM:
        duals = master.duals(values.y)
        asked = [duals] if best is None else [duals.towards(best, steady), duals]
        offers = [master.priced(each, NOTHING) for each in asked]
        best = min([raised for raised, _ in offers] + ([] if best is None else [best]), key=master.bound)
        if values.termination in STOPPED:
            break
        last, value, bound = values, session.arrays.objective(values.x), master.bound(best)
        log.info("%d pairs of %d made columns: value %.9g, bound %.9g", len(master.made), pricing.count, value, bound)
        if bound - value <= CLOSED * abs(bound) or not any(master.add(found) for _, found in offers):
            break
        values = engine.run(session)
    end = last.termination if last.x is None or last.termination in NO_OPTIMUM else values.termination
    return _Found(master, replace(last, termination=end), best)


def _certified(engine: Engine, found: _Found, build: Callable[[Classes], AllocationProgram | Plan]) -> Generated:
    """The outcome over the columns in use; its bound is made anew of the duals by pricing all pairs once more."""
    master, values, best = found.master, found.values, found.best
    pricing, columns = master.pricing, master.classes.columns
    assert values.x is not None
    x = np.zeros(master.first + len(master.made))
    x[: len(values.x)] = values.x
    used = np.flatnonzero(x[master.first :] > 0)
    made = master.made.take(used)
    order = np.lexsort((made.way, made.second, made.first))
    program = build(with_pairs(pricing, made.take(order)))
    assert isinstance(program, AllocationProgram)
    point = np.concatenate([x[:columns], x[master.first + used[order]], x[columns : master.first]])
    y = None if best is None else best.rows(program)
    arrays = engine.build(lambda: program.to_linear().arrays)
    outcome = engine.certified_allocation(program, arrays, replace(values, x=point, y=y), y)
    if outcome.bound is not None and outcome.duals is not None:
        outcome = with_bound(outcome, outcome.bound + pricing.left_out(Duals.of(outcome.duals, program)), PAIRS)
    count = ColumnsMade(PAIRS, len(master.made), pricing.count)
    log.info("%d pairs of %d made columns, %d in use", count.made, count.possible, len(used))
    return Generated(program, outcome, count)
