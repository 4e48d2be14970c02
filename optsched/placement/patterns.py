"""The largest share of an allocation that can be realised, by column generation over patterns.

A pattern P is a set of rows that can run side by side; in it c_Pi of the members of item i run (`Items`). With X_i the
time of item i,

    minimise   sum_P z_P
    s.t.       sum_P c_Pi z_P >= X_i    for every item i        (duals y_i >= 0)
               z >= 0

is the shortest time in which X can be run (a subset of a pattern is a pattern, so >= is as good as =). The allocation
is realised if it is at most 1; if not, lambda = 1 / min is the largest share of it that the window holds (Gilmore and
Gomory, "A linear programming approach to the cutting-stock problem", 1961).

Pricing: the most valuable pattern at the prices y is an integer program,

    v(y) = maximise  sum_i y_i c_i
           s.t.      sum over the items i of group g of c_i  <=  n_g      (no job twice)
                     sum_i u_ri c_i  <=  1                                (renewable resources)

A pattern of value above 1 enters. Where rows hold shares of GPUs the program is a relaxation, with the necessary rows
of `optsched.placement.shares`: of its solution so much is taken as can be packed, and the search may end without a
proof. For any y >= 0, y / v(y) is feasible for the dual, so that (Farley, "A note on
bounding a class of linear programming problems, including cutting stock problems", 1990)

    lambda <= v(y) / sum_i y_i X_i.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from optsched.arrays import FloatArray
from optsched.errors import SolverCrashed
from optsched.placement.instant import FULL
from optsched.placement.items import Items
from optsched.program import LinearProgram
from optsched.solution.values import Termination
from optsched.solvers import Session
from optsched.solving.engine import Engine

CLOSED = 1e-9
"""Gap between the share and its bound at which the search ends."""
COST = 2.0**13
"""Prices are handed over so much larger, as solvers stop at absolute gaps of 1e-6."""


@dataclass(frozen=True)
class Packing:
    """Patterns and how long each runs.

    Attributes
    ----------
    lengths : FloatArray, shape (S,)
        z; shares of the window, at most 1 in all if the allocation is realised.
    counts : FloatArray, shape (S, I)
        Of each item in each pattern.
    bound : float
        No larger share of the allocation than this can be realised, at most 1.
    finished : bool
        False if a limit stopped the search, or if it ended without a proof.
    """

    lengths: FloatArray
    counts: FloatArray
    bound: float
    finished: bool


def shortest(items: Items, engine: Engine) -> Packing:
    """Run all items in the shortest time."""
    lengths, counts = items.peel(items.need)
    bound, finished = 1.0, True
    if lengths.sum() <= FULL:
        return Packing(lengths, counts, 1.0, True)
    master = Master(items.need, sp.csc_matrix(counts.T), engine)
    pricing = Pricing(items, engine)
    while True:
        outcome = master.run()
        if outcome is None:
            finished = False
            break
        lengths, y = outcome
        if lengths.sum() <= 1 + CLOSED / 10:
            bound = 1.0
            break
        new = pricing.quickly(y)
        if not len(new):
            best, value = pricing.exactly(y)
            if value is None:
                finished = False
                break
            bound = min(bound, value / float(y @ items.need))
            if bound - 1 / lengths.sum() <= CLOSED:
                break
            known = best is not None and (counts == best).all(axis=1).any()
            if (
                best is None or known or y @ best <= 1 + CLOSED / 10
            ):  # what the solver's tolerance leaves, or a limit
                finished = bound - 1 / lengths.sum() <= 10 * CLOSED
                break
            new = best[None, :]
        master.add(sp.csc_matrix(new.T))
        counts = np.vstack([counts, new])
    used = lengths > 0
    return Packing(lengths[used], counts[: len(lengths)][used], bound, finished)


class Master:
    """minimise sum z  s.t.  patterns z >= need, z >= 0: a session that takes further patterns.

    Parameters
    ----------
    need : FloatArray, shape (I,)
    patterns : csc_matrix, shape (I, S)
        Patterns that cover the need.
    engine : Engine
    """

    def __init__(self, need: FloatArray, patterns: sp.csc_matrix, engine: Engine) -> None:
        self.engine = engine
        self.longest = float(need.sum()) + 1.0
        program = LinearProgram()
        z = program.variables(patterns.shape[1], name="patterns", implied=(0.0, self.longest))
        program.constrain(patterns @ z >= need, name="need")
        program.minimise(z.sum())
        self.session: Session = engine.open(program.arrays)

    def run(self) -> tuple[FloatArray, FloatArray] | None:
        """(z, y), or None if a limit stopped the run."""
        values = self.engine.run(self.session)
        if values.termination is not Termination.OPTIMAL or values.x is None or values.y is None:
            return None
        return np.maximum(values.x, 0.0), np.maximum(values.y, 0.0)

    def add(self, patterns: sp.csc_matrix) -> None:
        """Add patterns, shape (I, new)."""
        count = patterns.shape[1]
        self.session.add_columns(patterns, np.ones(count), np.full(count, self.longest))


class Pricing:
    """The most valuable pattern, quickly and exactly."""

    def __init__(self, items: Items, engine: Engine) -> None:
        self.items, self.engine = items, engine
        most = np.minimum.reduce([np.full(len(items), float(items.count.max())), *_limits(items)])
        program = LinearProgram()
        c = program.variables(
            len(items), name="count", upper=most, implied=(0.0, most), integer=True
        )
        program.constrain(items.member @ c <= items.count, name="jobs")
        if len(items.usage):
            program.constrain(items.usage @ c <= FULL, name="resources")
        program.maximise(c.sum())
        self.session = engine.open(program.arrays)

    def quickly(self, y: FloatArray) -> FloatArray:
        """Patterns of value above 1, by filling in the order of value per use; shape (found, I)."""
        items = self.items
        worth = np.flatnonzero(y > CLOSED)
        total, largest = items.usage.sum(axis=0), items.usage.max(axis=0, initial=0.0)
        found: dict[bytes, FloatArray] = {}
        for size in (largest, total, np.ones(len(y)), np.sqrt(largest)):
            with np.errstate(divide="ignore"):
                order = worth[np.argsort(-y[worth] / size[worth], kind="stable")]
            counts = items.greedy(order, np.full(len(y), np.inf))
            if y @ counts > 1 + 1e-6:
                found.setdefault(counts.tobytes(), counts)
        return np.array(list(found.values())).reshape(-1, len(y))

    def exactly(self, y: FloatArray) -> tuple[FloatArray | None, float | None]:
        """(counts, upper bound of v(y)); the bound is None if a limit left none."""
        self.session.set_cost(y * COST)
        values = self.engine.run(self.session)
        if values.bound is None:
            return None, None
        counts = None if values.x is None else np.round(values.x)
        if counts is not None and not _fits(self.items, counts):
            raise SolverCrashed(
                "the solver returned a pattern of rows that do not fit side by side"
            )
        return None if counts is None else self.items.packed(counts), values.bound / COST


def _limits(items: Items) -> list[FloatArray]:
    with np.errstate(divide="ignore"):
        return [np.floor(FULL / use) for use in items.usage]


def _fits(items: Items, counts: FloatArray) -> bool:
    within = (items.usage @ counts <= FULL * (1 + 1e-6)).all()
    return bool(within and (items.member @ counts <= items.count).all())
