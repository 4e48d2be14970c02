"""The engine: solves linear and allocation programs on the solvers that take them.

It lists the ways to solve a program; `optsched.solving.attempts` tries them in order until one
settles it.

A run may take the rest of the time limit (`SolverRuns`). The point of a stopped run counts as
feasible (`certify`). If no run found a point, one that needs no solver is the answer
(`best_of_known_points`); if there is none either, the status is ``limit``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from optsched.arrays import FloatArray
from optsched.arrays.values import replace
from optsched.program import AllocationProgram, LinearArrays, LinearProgram, Method
from optsched.program.integers import step_of
from optsched.solution import PointStatus, Termination, Values
from optsched.solvers import Capability
from optsched.solving.attempts import Way, attempt, other_ways, ways_of
from optsched.solving.certify import (
    best_known_allocation,
    best_of_known_points,
    certified_allocation,
    certified_linear,
    nothing_found,
    without_point,
)
from optsched.solving.choice import pick_for_allocation
from optsched.solving.outcome import NO_OPTIMUM, Outcome
from optsched.solving.program_search import BRANCHED, ProgramSearch
from optsched.solving.runs import SolverRuns

if TYPE_CHECKING:  # few programs have one
    from optsched.solving.group_floors import GroupFloors

RELAXED_FIRST = 3000
"""Columns from which a program of whole jobs is first solved with fractions of jobs."""
BRIEFLY = 1000
"""Columns of an assignment up to which branch and bound comes before the local search."""
DENSE = 0.9
"""Least fraction of nonzero coefficients of a knapsack."""
SMALL_KNAPSACK = 250
"""Columns up to which CP-SAT solves a knapsack that the enumeration does not settle."""


@dataclass(eq=False)
class Engine(SolverRuns):
    """Solves programs on solvers within one budget; see `SolverRuns` for its parameters."""

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
            Rounds the solver's point and recomputes its auxiliary columns.
        point : FloatArray, optional
            A feasible point. Solvers start from it, unless the engine was given a start of this
            program. It is the answer if a run that is stopped or fails finds nothing better.
        """
        if isinstance(program, LinearProgram):
            arrays = self.build(lambda: program.arrays)
        else:
            arrays = program

        def once(solver: str | None) -> Outcome:
            starts_elsewhere = self.start is not None and len(self.start) == arrays.shape[1]
            session = self.open(arrays, solver, None if starts_elsewhere else point)
            values = self.run(session)
            if values.x is None or values.termination in NO_OPTIMUM:
                return without_point(self, arrays, values, None)
            return certify(values, values.y)

        def certify(values: Values, y: FloatArray | None) -> Outcome:
            return certified_linear(self, arrays, values, y, clean)

        def known(found: Outcome | None) -> Outcome | None:
            points = [some for some in (point, self.start) if some is not None]
            fitting = [some for some in points if len(some) == arrays.shape[1]]
            if found is not None and found.x is not None and found.certificate.ok:
                # To certify a point of a large program takes a second.
                sign, least = (1.0 if arrays.maximise else -1.0), found.value or 0.0
                fitting = [some for some in fitting if sign * (arrays.objective(some) - least) > 0]
            return best_of_known_points(fitting, certify, found, arrays.maximise)

        ways = ways_of(self, once, integer=arrays.is_integer)
        return attempt(self, ways, certify, known, maximise=arrays.maximise)

    # --- allocation programs ------------------------------------------------------------------

    def solve_directly(
        self, program: AllocationProgram, prices: FloatArray | None = None
    ) -> Outcome:
        """Solve an allocation program by the first way that settles it; negligible fractions are
        dropped.

        A solver that searches for ``prices`` of the resources starts from these, if they are given.
        """

        def certify(values: Values, y: FloatArray | None) -> Outcome:
            return certified_allocation(self, program, values, y)

        def known(found: Outcome | None) -> Outcome | None:
            return best_known_allocation(self, program, found, certify)

        ways = self._ways(program, prices)
        return attempt(self, ways, certify, known, answers=self.known_points)

    def _ways(self, program: AllocationProgram, prices: FloatArray | None) -> Iterator[Way]:
        """The attempts at a program, in their order.

        1. A closed form, if there is one.
        2. Before a large integer program its relaxation without side rows and whole jobs, whose
           optimum may satisfy them. Before assignments and small knapsacks a few nodes of branch
           and bound, then a search of their own. If rows demand GPUs for groups of jobs, the
           program that limits all others instead.
        3. The program itself, by a solver that takes it without lowering, or as rows and columns.
        4. The relaxation, if it did not come before; then other solvers.
        """
        search = ProgramSearch(self, program)
        if self.asked_for is None and self.start is None:
            closed = self.build(lambda: program.utility.closed_form(program))
            if closed is not None:
                yield partial(self._closed_form, program, *closed)
        assigns = self.asked_for is None and program.assignment is not None
        easier_first = program.integral and program.classes.columns > RELAXED_FIRST
        if assigns:
            if program.classes.columns <= BRIEFLY and self.limits.work is None:
                yield search.branch_briefly
            yield search.search_assignments
            yield partial(search.branch_assignments, BRANCHED)
            yield search.search_longer
            yield search.branch_assignments
        elif easier_first:  # a bound, and a point to start from
            yield from self._easier(program, search)
        elif self._is_knapsack(program):
            yield search.branch_briefly
            yield search.enumerate_knapsack
            if program.classes.columns <= SMALL_KNAPSACK and _is_whole(program):
                # CP-SAT proves knapsacks of a hundred items that HiGHS leaves open
                yield partial(search.solve, "cp-sat")
        elif (groups := self.for_groups(program)) is not None:
            yield partial(self.solve_for_groups, groups)
        direct = self.solver_as_it_is(program)
        lowered = partial(self._solve_conic, program) if program.conic else search.solve
        if direct is not None:
            yield partial(self.solve_as_it_is, program, *direct, prices)
        else:
            yield partial(lowered, None)
        first = self.name
        if not (easier_first or assigns) and first != "prices":
            yield from self._easier(program, search)
        yield from other_ways(self, lowered, first, integer=program.integral, conic=program.conic)

    def _closed_form(self, program: AllocationProgram, point: FloatArray, y: FloatArray) -> Outcome:
        """An optimum that needed no solver, certified like any other."""
        from optsched.solvers.closed_form import ClosedForm  # few programs have one

        self.use(ClosedForm, "the best ratio is that of one column, as all rows only limit")
        values = Values(Termination.OPTIMAL, PointStatus.FEASIBLE, x=point, y=y)
        return certified_allocation(self, program, values, y)

    def solver_as_it_is(self, program: AllocationProgram) -> tuple[str, str] | None:
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

    def solve_as_it_is(
        self, program: AllocationProgram, name: str, reason: str, prices: FloatArray | None
    ) -> Outcome:
        """The outcome of a program that a solver takes without lowering."""
        return self._certified_values(program, self._as_it_is(program, name, reason, prices))

    def _as_it_is(
        self, program: AllocationProgram, name: str, reason: str, prices: FloatArray | None
    ) -> Values:
        solver = self.use(self.load(name), reason)
        if self.start is not None and self.asked_for is not None and not program.conic:
            solver.require(Capability.START, "a point to start from")
        start = self.bases.first_prices(program.limit_rows) if prices is None else prices
        values = self.record(solver().solve_allocation(program, self.limits_left(), start))
        self.bases.last_prices(program, values)
        return values

    def _certified_values(self, program: AllocationProgram, values: Values) -> Outcome:
        """The certified outcome of a run that took the program without lowering."""
        if values.termination in NO_OPTIMUM:
            return without_point(self, program.requirements, values, program)
        if values.x is None:
            return nothing_found(self, values)
        needs_matrix = bool(program.side) or program.utility.method is not Method.DIRECT
        return certified_allocation(self, program, values, values.y, matrix=needs_matrix)

    def _solve_conic(self, program: AllocationProgram, name: str | None) -> Outcome:
        if name is None:
            solver = self.choose(rows=len(program.classes), integer=program.integral, conic=True)
        else:
            solver = self.use(self.load(name), self.reason)
        cones = self.build(program.to_conic)
        runner = self.killable(solver, cones.A.nnz)
        values = self.record(runner().solve_conic(cones, self.limits_left()), cones.shape)
        if values.x is None:
            return without_point(self, program.requirements, values, program)
        y = values.y
        if y is not None and cones.linear is not None:
            # Multipliers of the linear rows come first, then those of the cones, three for a class.
            rows = len(cones.linear.source)
            linear = cones.linear.duals(y, cones.maximise)
            y = program.total.tangent_duals(program, linear, y[rows:])
        return certified_allocation(self, program, values, y)

    def _easier(self, program: AllocationProgram, search: ProgramSearch) -> Iterator[Way]:
        """Ways that `auto` has besides the program itself: by prices, if these take the whole
        program; else its relaxation, without whole jobs and without side rows that prices cannot
        take.

        The price method takes no jobs that share GPUs. A large integer program of such jobs is
        relaxed to rows and columns.
        """
        if self.asked_for is not None or not (program.side or program.integral):
            return
        easier = replace(program, side=program.limit_rows.side, integral=False)
        solver = self.load("prices")
        if solver.name != "prices":
            return
        if solver.refuses(program) is None:
            reason = "by prices of the resources"
            yield partial(self.solve_as_it_is, program, solver.name, reason, None)
        elif solver.refuses(easier) is None or _is_relaxed_as_rows(program):
            yield partial(search.solve_easier, easier)

    def _is_knapsack(self, program: AllocationProgram) -> bool:
        """Whether `auto` enumerates: a linear program of whole jobs that all use several
        resources.
        """
        if self.asked_for is not None or self.limits.work is not None or not program.integral:
            return False
        rows, utility = program.limit_rows, program.utility
        used = np.count_nonzero(np.diff(rows.matrix.indptr))
        return bool(
            used > 1
            and rows.matrix.nnz >= DENSE * used * program.classes.columns
            and utility.method is Method.DIRECT
            and not (utility.smallest_level or utility.homogenised)
            and not (program.conic or program.extend)
            and program.space is None
        )

    def for_groups(self, program: AllocationProgram) -> GroupFloors | None:
        """The program with limits instead of rows that demand GPUs for groups, if prices take
        it.
        """
        if self.asked_for is not None or not program.side or program.integral:
            return None
        from optsched.solving.group_floors import GroupFloors  # few programs have such rows

        groups = GroupFloors.of(program)
        if groups is None or self.solver_as_it_is(groups.easier) is None:
            return None
        return groups

    def solve_for_groups(self, groups: GroupFloors) -> Outcome:
        """Solve the program that limits the others by prices, then raise the groups to their
        demands.
        """
        direct = self.solver_as_it_is(groups.easier)
        assert direct is not None, "for_groups has asked"
        values = self._as_it_is(groups.easier, *direct, None)
        return self._certified_values(groups.program, groups.values(values))


def _is_whole(program: AllocationProgram) -> bool:
    """Whether gains and uses are whole numbers, which CP-SAT does not round."""
    gain, use = program.gain, program.limit_rows.matrix.data
    return step_of(gain, np.ones(len(gain), bool)) is not None and bool(
        (use == np.round(use)).all()
    )


def _is_relaxed_as_rows(program: AllocationProgram) -> bool:
    """Whether a program of whole jobs that share GPUs is worth relaxing as rows and columns."""
    utility = program.utility
    return (
        program.integral
        and not program.classes.all_alone
        and program.classes.columns > RELAXED_FIRST
        and utility.method is Method.DIRECT
        and not (program.conic or utility.homogenised)
        and program.extend is None
    )
