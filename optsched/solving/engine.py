"""The engine: solves linear and allocation programs on the solvers that take them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from optsched.arrays import FloatArray
from optsched.program import AllocationProgram, LinearArrays, LinearProgram
from optsched.solution.values import PointStatus, Termination, Values
from optsched.solvers import Capability
from optsched.solvers.closed_form import ClosedForm
from optsched.solving.attempts import Way, attempt, other_ways, ways_of
from optsched.solving.certify import (
    certified_allocation,
    certified_known,
    certified_linear,
    certified_lowered,
    certified_without_matrix,
    known_allocation,
    nothing_found,
    without_point,
)
from optsched.solving.choice import pick_for_allocation, require_all
from optsched.solving.outcome import BY_CLOCK, NO_OPTIMUM, Outcome
from optsched.solving.runs import SolverRuns

LARGE = 10_000
"""Columns from which a program of whole jobs is solved without them first."""
SHARE = 0.25
"""Part of the time left that such a program may take."""


@dataclass
class Engine(SolverRuns):
    """Solves programs on solvers within one budget; see `SolverRuns` for its parameters."""

    _incumbent: FloatArray | None = None
    """Where the next integer program starts."""

    # --- linear programs ----------------------------------------------------------------------

    def solve_linear(
        self,
        program: LinearProgram | LinearArrays,
        clean: Callable[[FloatArray], FloatArray] | None = None,
        point: FloatArray | None = None,
    ) -> Outcome:
        """Solve a linear or mixed-integer program; the certificate is recomputed from the arrays.

        Parameters
        ----------
        program : LinearProgram or LinearArrays
        clean : callable, optional
            Makes of the solver's point what it means (whole numbers, auxiliary columns recomputed).
        point : FloatArray, optional
            A feasible point: where solvers start, unless the engine was given a start, and the
            answer where a run that is stopped or fails leaves nothing better.
        """
        if isinstance(program, LinearProgram):
            arrays = self.build(lambda: program.arrays)
        else:
            arrays = program

        def once(solver: str | None) -> Outcome:
            session = self.open(arrays, solver, point if self.start is None else None)
            values = self.run(session)
            if values.x is None or values.termination in NO_OPTIMUM:
                return without_point(self, arrays, values, None)
            return certify(values, values.y)

        def certify(values: Values, y: FloatArray | None) -> Outcome:
            return certified_linear(self, arrays, values, y, clean)

        ways = ways_of(self, once, integer=arrays.is_integer)
        known = None if point is None else partial(certified_known, point, certify)
        return attempt(self, ways, certify, known, maximise=arrays.maximise)

    # --- allocation programs ------------------------------------------------------------------

    def solve_allocation(
        self, program: AllocationProgram, prices: FloatArray | None = None
    ) -> Outcome:
        """Solve an allocation program in one run; negligible fractions are dropped.

        A solver that searches for ``prices`` of the resources starts from these, if they are given.
        """

        def certify(values: Values, y: FloatArray | None) -> Outcome:
            return certified_allocation(self, program, values, y)

        def known(found: Outcome | None) -> Outcome | None:
            return known_allocation(self, program, found, certify)

        return attempt(self, self._ways(program, prices), certify, known)

    def _ways(self, program: AllocationProgram, prices: FloatArray | None) -> Iterator[Way]:
        """A closed form; without side rows and whole jobs; as it is, or lowered; other solvers."""
        if self.asked_for is None and self.start is None:
            closed = self.build(lambda: program.utility.closed_form(program))
            if closed is not None:
                yield partial(self._closed_form, program, *closed)
        easier_first = program.integral and program.classes.columns > LARGE
        if easier_first:  # a bound, and a point to start from
            yield from self._easier(program)
        direct = self._solver_as_it_is(program)
        lowered = partial(self._solve_lowered, program)
        if direct is not None:
            yield partial(self._solve_as_it_is, program, *direct, prices)
        else:
            yield partial(lowered, None)
        first = self.name
        if not easier_first:
            yield from self._easier(program)
        yield from other_ways(self, lowered, first, integer=program.integral, conic=program.conic)

    def _closed_form(self, program: AllocationProgram, point: FloatArray, y: FloatArray) -> Outcome:
        """An optimum that no solver was needed for, certified like any other."""
        self.use(ClosedForm, "the best ratio is that of one column, as all rows only limit")
        values = Values(Termination.OPTIMAL, PointStatus.FEASIBLE, x=point, y=y)
        return certified_allocation(self, program, values, y)

    def _solver_as_it_is(self, program: AllocationProgram) -> tuple[str, str] | None:
        """(solver, reason) of one that takes the program without lowering; None: lower it."""
        asked = self.asked_for
        if asked is not None:
            takes_it = Capability.ALLOCATION in self.load(self.solver).capabilities
            return asked if takes_it else None
        wants_basis = self.bases.keep or self.bases.warm is not None
        picked = pick_for_allocation(program, start=self.start is not None, basis=wants_basis)
        if picked is None or self.load(picked[0]).refuses(program) is not None:
            return None
        return picked

    def _solve_as_it_is(
        self, program: AllocationProgram, name: str, reason: str, prices: FloatArray | None
    ) -> Outcome:
        solver = self.use(self.load(name), reason)
        require_all(solver, integer=False, conic=False, start=self.start is not None)
        start = self.bases.first_prices(program.classes) if prices is None else prices
        values = self.record(solver().solve_allocation(program, self.limits_left(), start))
        self.bases.last_prices(program.classes, values)
        return certified_without_matrix(self, program, values, values.y)

    def _solve_lowered(self, program: AllocationProgram, solver: str | None) -> Outcome:
        """Solved as rows and columns, or as cones."""
        if program.conic:
            return self._solve_conic(program, solver)
        arrays = self.build(lambda: program.to_linear().arrays)
        start = self.start if self._incumbent is None else self._incumbent
        self._incumbent = None
        if start is not None:
            start = program.complete(program.repaired(start))
        session = self.open(arrays, solver, start, program.classes)
        values = self.run(session)
        if values.x is None or values.termination in NO_OPTIMUM:
            return without_point(self, arrays, values, program)
        return certified_lowered(self, program, arrays, values, values.y)

    def _solve_conic(self, program: AllocationProgram, name: str | None = None) -> Outcome:
        if name is None:
            solver = self.choose(rows=len(program.classes), integer=program.integral, conic=True)
        else:
            solver = self.chosen = self.load(name)
        cones = self.build(program.to_conic)
        values = self.record(solver().solve_conic(cones, self.limits_left()))
        if values.x is None:
            return without_point(self, program.requirements, values, program)
        y = values.y
        if y is not None and cones.linear is not None:
            rows = len(cones.linear.source)
            linear = cones.linear.duals(y, cones.maximise)
            y = program.total.tangent_duals(program, linear, y[rows:])
        return certified_allocation(self, program, values, y)

    def _easier(self, program: AllocationProgram) -> Iterator[Way]:
        """The program without side rows and whole jobs, where `auto` chooses and prices take it."""
        if self.asked_for is not None or not (program.side or program.integral):
            return
        easier = replace(program, side=(), integral=False)
        solver = self.load("prices")
        if solver.name == "prices" and solver.refuses(easier) is None:
            yield partial(self._solve_easier, program, easier)

    def _solve_easier(self, program: AllocationProgram, easier: AllocationProgram) -> Outcome:
        """The bound is that of the easier program, and its point is kept as far as it can be.

        It takes a part of the time at most, and is where the next solver starts for whole jobs.
        """
        solver = self.chosen = self.load("prices")
        limits = replace(self.limits_left(), options={}, work=None)
        if limits.time is not None:
            limits = replace(limits, time=limits.time * SHARE)
        values = self.record(solver().solve_allocation(easier, limits))
        relaxed = certified_without_matrix(self, easier, values, values.y)
        by_clock = values.termination in BY_CLOCK
        values = replace(
            values, termination=Termination.IMPRECISE, objective=None, bound=None, y=None
        )
        if relaxed.x is None or relaxed.duals is None:
            return replace(nothing_found(self, values), by_clock=by_clock)
        lowered = program.tangent(relaxed.x) if program.conic else program.to_linear()
        missing = {block.name: np.zeros(len(block)) for block in lowered.arrays.rows}
        y = np.concatenate(
            [np.zeros(0), *(relaxed.duals.get(name, missing[name]) for name in missing)]
        )
        x = program.kept(relaxed.x)
        self._incumbent = x if program.integral else None
        outcome = certified_allocation(self, program, replace(values, x=x), y)
        return replace(outcome, by_clock=by_clock)
