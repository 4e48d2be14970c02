r"""Column generation of configurations: elastic jobs with the few GPU counts that an optimum uses.

A job that may run on 1 to 64 GPUs of three pools has 192 configurations, of which an optimum uses
one or two. So the program starts with a few of each pool
(`optsched.candidates.configuration_table`) and is solved like any program, by prices if many
jobs differ. Its duals (u of time, p of capacity, y of levels) price all configurations
(`configuration_pricing`). Configurations with positive reduced cost are added until there are none:
for a linear total the best one of each class; else the two that give the class its level at the
lowest cost, at the same p (`segments`).

At any duals, let v_k be the largest reduced cost of a configuration of class k. Then u_k + v_k and
p, y are a feasible point of the dual of the WHOLE program:

    optimum <= bound of (u, p, y) for the columns there are + n . v

This takes one pass of pricing and does not depend on the solver. The utility may be a minimum or a
total, also of concave functions: the dual of its levels does not depend on the columns.

References
----------
P. C. Gilmore, R. E. Gomory, "A linear programming approach to the cutting-stock problem",
Operations Research 9 (1961); A. A. Farley, "A note on bounding a class of linear programming
problems", Operations Research 38 (1990).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np

from optsched.arrays import EMPTY, FloatArray, IntArray, group_rows
from optsched.arrays.matrices import scaled_rows
from optsched.arrays.values import replace
from optsched.candidates import Classes
from optsched.candidates.classes import JobGroups, alone_columns, assemble
from optsched.errors import UsageError
from optsched.program import AllocationProgram
from optsched.solution.certificate import OPTIMALITY
from optsched.solution.solution import CONFIGURATIONS, ColumnsMade
from optsched.solution.values import Termination, Values
from optsched.solving.certify import certified_allocation
from optsched.solving.column_generation.configuration_pricing import Chosen, ConfigurationPricing
from optsched.solving.column_generation.pricing import Build, Duals
from optsched.solving.column_generation.segments import segments
from optsched.solving.column_loop import ColumnLoop
from optsched.solving.engine import Engine
from optsched.solving.outcome import STOPPED, Outcome, SolvedProgram


@dataclass(frozen=True)
class Restricted:
    """A program over the columns to start with and over configurations of classes.

    Attributes
    ----------
    program : AllocationProgram
    order : IntArray, shape (N,)
        Which of its columns each is: those to start with come first, then the configurations as
        they were given.
    """

    program: AllocationProgram
    order: IntArray

    def totals(self, x: FloatArray) -> FloatArray:
        """Totals in the order in which the columns were given, from the order of the program."""
        given = np.empty(len(x))
        given[self.order] = x
        return given


def restricted(pricing: ConfigurationPricing, chosen: Chosen) -> Restricted:
    """The program with columns for these configurations; levels are scaled throughputs."""
    classes, order = with_configurations(pricing, chosen)
    levels = scaled_rows(classes.throughput, pricing.scale)
    return Restricted(replace(pricing.program, classes=classes, levels=levels), order)


def with_configurations(pricing: ConfigurationPricing, chosen: Chosen) -> tuple[Classes, IntArray]:
    """The classes with columns for these configurations, and the order of the columns
    (`Restricted`).
    """
    C, table = pricing.classes, pricing.table
    cells, which = np.unique(chosen.cell, return_inverse=True)
    grown = C.candidates.with_configurations(cells)
    columns, curve = grown.columns, table.curve_of(cells)
    plain = np.flatnonzero((columns.option < 0) & (columns.workers == 0))
    ways = table.way[cells]
    added = (
        table.kind[curve],
        table.ways.pool[ways],
        table.ways.gpus[ways],
        table.ways.nodes[ways],
    )
    known = (columns.kind[plain], columns.pool[plain], columns.gpus[plain], columns.nodes[plain])
    # Every cell is a column of its kind by now: grouped with these, it says which.
    same = group_rows(
        [np.concatenate(pair) for pair in zip(known, added, strict=True)], len(plain) + len(cells)
    )
    column = plain[same.first[same.inverse[len(plain) :]]]
    first = np.ones(len(columns), bool)
    first[column] = False
    start = np.flatnonzero(first)
    first_columns, owner, _ = alone_columns(
        columns.take(start), pricing.classes.kind, len(grown.kinds)
    )
    kind_column = np.concatenate(
        [start if first_columns is None else start[first_columns], column[which]]
    )
    owner = np.concatenate([owner, chosen.klass])
    # The columns of classes in their order: by class, then by the column of its kind.
    order = np.argsort(owner * len(columns) + kind_column)
    alone = (kind_column[order], owner[order], np.full(len(order), -1, np.int64))
    groups = JobGroups(C.of_job, C.first, C.count.astype(np.int64))
    return assemble(grown, C.reads, groups, alone, (EMPTY, EMPTY, EMPTY)), order


log = logging.getLogger("optsched")

CLOSED = 1e-9
"""Relative gap at which column generation ends."""
PASSES = 50
"""Restricted programs that are solved at most."""
NOTHING = 1e-3
"""Fraction of the allowed gap that the new columns must add together."""


class ConfigurationSearch(ColumnLoop[Duals]):
    """The restricted program, and the results of pricing.

    Attributes
    ----------
    outcome : Outcome or None
        Of the last restricted program.
    last : Outcome or None
        The best one whose configurations were priced.
    x : FloatArray or None
        Its totals, in the order in which columns were given: new columns come last.
    value, bound : float
        Of ``last``, and the least bound of the whole program.
    made : Chosen
    """

    def __init__(self, engine: Engine, pricing: ConfigurationPricing) -> None:
        self.engine, self.pricing = engine, pricing
        program = pricing.program
        self._restricted = Restricted(program, np.arange(program.classes.columns))
        self._passes = 0
        self._prices: FloatArray | None = None
        self.outcome: Outcome | None = None
        self.last: Outcome | None = None
        self.x: FloatArray | None = None
        self.value, self.bound = -np.inf, np.inf
        self.made = Chosen.none()

    def solve(self) -> Duals | None:
        """The duals of the restricted program; None without a point, or after `PASSES`."""
        if self._passes == PASSES:
            return None
        self._passes += 1
        at, engine = self._restricted, self.engine
        self.outcome = outcome = engine.solve_directly(at.program, self._prices)
        if outcome.x is None or outcome.value is None:
            return None
        if outcome.duals is None or outcome.duals_without_solver or outcome.bound is None:
            if self._stopped:
                return None  # a point that is known without a solver, and no duals to go on from
            raise UsageError(
                f"columns are priced by duals, which solver {engine.name} does not give: "
                "choose another"
            )
        if self.last is None or outcome.value >= self.value:
            self.last, self.value, self.x = outcome, outcome.value, at.totals(outcome.x)
        return Duals.of(outcome.duals, self.pricing.program)

    def between(self, weight: float, best: Duals, duals: Duals) -> Duals:
        """A mean of the two."""
        return duals.towards(best, weight)

    def add_priced(self, at: Duals, duals: Duals) -> bool:
        """Configurations that are worth making become columns of the next program."""
        new = self._worth_making(at).but(self.made, len(self.pricing.table))
        if self.ended or not len(new):
            return False
        self.made, self._prices = Chosen.join([self.made, new]), at.capacity
        self._restricted = self.engine.build(lambda: restricted(self.pricing, self.made))
        return True

    @property
    def ended(self) -> bool:
        """Whether the bound is reached, or the last run was stopped."""
        return self.bound - self.value <= CLOSED * abs(self.bound) or self._stopped

    @property
    def _stopped(self) -> bool:
        return self.outcome is not None and self.outcome.values.termination in STOPPED

    def note(self) -> None:
        """Value and bound in the log."""
        log.info(
            "%d configurations of %d made columns: value %.9g, bound %.9g",
            len(self.made),
            self.pricing.count,
            self.value,
            self.bound,
        )

    def _prove(self, bound: float, duals: Duals) -> None:
        """Keep a bound of the whole program and its duals (u + v, p and y), if it is the least."""
        if bound < self.bound:
            self.bound, self.best = bound, duals

    def _worth_making(self, duals: Duals) -> Chosen:
        """The configurations of positive reduced cost; the bound that the duals prove is kept."""
        engine, pricing, program = self.engine, self.pricing, self._restricted.program
        C, outcome = pricing.classes, self.outcome
        assert outcome is not None and outcome.bound is not None
        x = outcome.x
        assert x is not None
        smallest = program.utility.smallest_level
        # Summed over all jobs (n . least) this is NOTHING of the gap at which the search ends.
        least = NOTHING * CLOSED * abs(outcome.bound) / (len(C) * C.count)
        most, found = engine.build(lambda: pricing.best(duals, least))
        bound = outcome.bound + float(C.count @ most)
        self._prove(bound, replace(duals, time=duals.time + most))
        if not len(found) or not (smallest or program.conic):
            return found
        # A minimum needs the same level for all; a concave total the present level of each class.
        level = np.full(len(C), outcome.value) if smallest else program.level(x)
        raised, ends = engine.build(lambda: segments(pricing, program, x, level, duals, least))
        if smallest:
            self._prove(float(raised.time @ C.count + raised.capacity @ C.capacity), raised)
        ends = ends.but(self.made, len(pricing.table))
        if smallest and len(ends):
            return ends
        return Chosen.join([ends, found.but(ends, len(pricing.table))])


def generate_configurations(
    engine: Engine, program: AllocationProgram, build: Build
) -> SolvedProgram:
    """Solve the program over all configurations of a table by column generation.

    Parameters
    ----------
    engine : Engine
    program : AllocationProgram
        Over classes of candidates with configurations on demand (`Candidates.elastic`).
    build : callable
        The program over classes with more columns.

    Raises
    ------
    UsageError
        For programs whose columns cannot be priced (`ConfigurationPricing.of`), and solvers without
        duals.
    """
    pricing = ConfigurationPricing.of(program)
    search = ConfigurationSearch(engine, pricing)
    search.generate()
    outcome, last, best = search.outcome, search.last, search.best
    assert outcome is not None
    count = ColumnsMade(CONFIGURATIONS, len(search.made), pricing.count)
    if last is None or best is None:
        return SolvedProgram(program, pricing.bounded(outcome, program), columns_made=count)
    ended = outcome.values.termination
    open_gap = search.bound - search.value > OPTIMALITY * abs(search.bound)
    if ended is Termination.OPTIMAL and open_gap:
        ended = Termination.IMPRECISE  # optimal over some of the columns only
    values = replace(last.values, x=search.x, termination=ended)
    return _certified(engine, pricing, build, search.made, values, best, count)


def _certified(
    engine: Engine,
    pricing: ConfigurationPricing,
    build: Build,
    made: Chosen,
    values: Values,
    duals: Duals,
    count: ColumnsMade,
) -> SolvedProgram:
    """The outcome over the columns in use; its bound is recomputed by pricing all configurations
    again.

    The point of ``values`` has totals of the first columns, then of the generated ones that existed
    when it was found.
    """
    x, first = values.x, pricing.classes.columns
    assert x is not None
    # The answer has only the columns in use; all others are priced again for the bound.
    used = np.flatnonzero(x[first:] > 0)
    classes, order = engine.build(lambda: with_configurations(pricing, made.take(used)))
    program = build(classes)
    assert isinstance(program, AllocationProgram)
    point = np.concatenate([x[:first], x[first + used]])[order]
    y = duals.rows(program)
    outcome = certified_allocation(engine, program, replace(values, x=point), y, matrix=False)
    outcome = pricing.bounded(outcome, program)
    log.info(
        "%d configurations of %d made columns, %d in use", count.made, count.possible, len(used)
    )
    return SolvedProgram(program, outcome, columns_made=count)
