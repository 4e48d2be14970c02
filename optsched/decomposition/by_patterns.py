"""Column generation for a plan whose point is a sum of patterns (`optsched.solution.plan.Patterns`),
such as fillings of bins."""

from __future__ import annotations

import numpy as np

from optsched.arrays import FloatArray
from optsched.decomposition.diving import dive
from optsched.decomposition.master import Master, MasterColumns, Priced
from optsched.program import LinearArrays
from optsched.solution import PointStatus, Status, Termination, Values
from optsched.solution.plan import Patterns
from optsched.solvers import Limits

DEPTH, DISCREPANCIES = 6, 3
"""Of the dives; with them there are at most 84."""


def solve_by_patterns(
    arrays: LinearArrays, patterns: Patterns, known: FloatArray, limits: Limits
) -> Values:
    """Look for as few patterns as possible by column generation and dives.

    A column of the master is a pattern of cost 1. The bound is that of the first master: every
    pattern was priced, so it holds for every solution. A number of patterns is whole, so the bound is
    rounded up.

    Parameters
    ----------
    arrays : LinearArrays
        The program, which minimises the number of patterns.
    patterns : Patterns
    known : FloatArray, shape (columns,)
        A feasible point: its patterns are the first columns.
    limits : Limits
        The work limit is ignored, because masters count no nodes.

    Returns
    -------
    Values
        The best point that was found, the rounded bound, and duals of the program. A check of the
        bound uses these duals; they may prove less (`optsched.solving.schedules`).
    """
    first = patterns.of_point(known)
    most = first.shape[1]

    def columns(counts: FloatArray) -> MasterColumns:
        bins = counts.shape[1]
        return MasterColumns.of(np.ones(bins), counts, np.zeros(bins, np.int64))

    def price(y: FloatArray, left: FloatArray) -> Priced:
        worth, counts = patterns.best(y, left.astype(np.int64))
        return Priced(columns(counts[:, np.newaxis].astype(np.float64)), [1.0 - worth])

    demand = patterns.demand.astype(np.float64)
    found = dive(
        Master.of(demand, demand, [0.0], [most]),
        price,
        columns(first.astype(np.float64)),
        depth=DEPTH,
        discrepancies=DISCREPANCIES,
        step=1.0,
        below=most,
        time_limit=limits.time,
        gap=limits.gap,
        tolerance=limits.tolerance,
        threads=limits.threads,
        seed=limits.seed,
        on_progress=limits.on_progress,
    )
    x = known
    if found.whole is not None:
        bins = np.repeat(np.arange(len(found.columns)), found.whole.astype(np.int64))
        x = patterns.point(found.columns.matrix[:, bins].toarray().astype(np.int64))
    value, bound = arrays.objective(x), max(found.bound, 0.0)
    closed = found.status is Status.OPTIMAL or value <= bound
    return Values(
        Termination.OPTIMAL if closed else Termination.WORK_LIMIT,
        PointStatus.FEASIBLE,
        x=x,
        y=patterns.duals(found.y),
        objective=value,
        bound=bound,
        iterations=found.nodes,
        words=f"column generation: {len(found.columns):,} patterns",
    )
