"""The engine: solves linear and allocation programs on the solvers that take them.

It lists the ways to solve a program; `optsched.solving.attempts` tries them in order until one
settles it.

A run may take the rest of the time limit (`SolverRuns`). The point of a stopped run counts as
feasible (`certify`). If no run found a point, one that needs no solver is the answer
(`best_of_known_points`); if there is none either, the status is ``limit``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from optsched.arrays import FloatArray
from optsched.lazy import convenience
from optsched.program import AllocationProgram, LinearArrays, LinearProgram, Method
from optsched.program.integers import step_of
from optsched.solution import PointStatus, Termination, Values
from optsched.solvers import Capability, Limits, Session
from optsched.solving.attempts import WORTHWHILE, Way, attempt, other_ways, ways_of
from optsched.solving.certify import (
    best_known_allocation,
    best_of_known_points,
    certified_allocation,
    certified_linear,
    is_tighter,
    nothing_found,
    without_point,
)
from optsched.solving.choice import pick_for_allocation
from optsched.solving.outcome import BY_CLOCK, NO_OPTIMUM, Outcome
from optsched.solving.runs import SolverRuns

if TYPE_CHECKING:  # few programs have one
    from optsched.solving.core import Core
    from optsched.solving.group_floors import GroupFloors
    from optsched.solving.reassignment import Reassignment

log = logging.getLogger("optsched")

RELAXED_FIRST = 3000
"""Columns from which a program of whole jobs is first solved with fractions of jobs."""
SHARE = 0.25
"""Fraction of the time left that this relaxation may take, and then each run of a core."""
OPEN = 100
"""Open columns of the first core, in addition to one for each class."""
CORE_NODES = 200
"""Nodes of branch and bound that a run of a core may take."""
CORE_FAILURES = 2
"""Runs of cores without a better point after which the whole program is solved."""
ROUNDED = 1e-6
"""Fraction of the smallest difference between two objective values that counts as rounding."""
BRIEFLY, BRIEF_NODES, BRIEF_SHARE = 1000, 500, 0.1
"""Columns of an assignment up to which branch and bound comes before the local search; its limit of
nodes, and the fraction of the time that it may take."""
DENSE = 0.9
"""Least fraction of nonzero coefficients of a knapsack."""
SMALL_KNAPSACK = 250
"""Columns up to which CP-SAT solves a knapsack that the enumeration does not settle."""
PATIENCE, LONG_PATIENCE = 2, 50
"""The search for assignments ends after this many neighbourhoods per job without improvement: first
where reduced costs leave few columns open, second in the other programs."""
FEW_OPEN, OPEN_SHARE = 300, 0.5
"""Open columns, and their fraction of all columns, up to which branch and bound gets most of the
time."""
LAGRANGIAN_SHARE, EVALUATIONS = 0.2, 100
"""Limits of the Lagrangian bound of an assignment: a fraction of the time left, and evaluations."""
BY_PRICED_JOBS = "; the bound is Lagrangian, each agent solves a knapsack"
LONG = 0.8
"""Fraction of the time that a local search may take where branch and bound gets little."""


class PricedBound(NamedTuple):
    """A Lagrangian bound, the duals of all rows that prove it (`knapsack_bound`), and the core
    there.
    """

    bound: float
    duals: FloatArray
    core: Core


@dataclass(eq=False)
class Engine(SolverRuns):
    """Solves programs on solvers within one budget; see `SolverRuns` for its parameters."""

    _incumbent: FloatArray | None = None
    """Point from which the next integer program starts."""
    _core: Core | None = None
    """Reduced costs of its relaxation."""
    _priced: PricedBound | None = None
    """Its Lagrangian bound, where that is tighter than the bound of the core."""

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
        self._incumbent = self._core = self._priced = None  # they belong to the last program
        if self.asked_for is None and self.start is None:
            closed = self.build(lambda: program.utility.closed_form(program))
            if closed is not None:
                yield partial(self._closed_form, program, *closed)
        assigns = self.asked_for is None and program.assignment is not None
        easier_first = program.integral and program.classes.columns > RELAXED_FIRST
        if assigns:
            if program.classes.columns <= BRIEFLY and self.limits.work is None:
                yield partial(self._branch_briefly, program)
            yield partial(self._search_assignments, program)
        elif easier_first:  # a bound, and a point to start from
            yield from self._easier(program)
        elif self._is_knapsack(program):
            yield partial(self._branch_briefly, program)
            yield partial(self._enumerate_knapsack, program)
            if program.classes.columns <= SMALL_KNAPSACK and _is_whole(program):
                # CP-SAT proves knapsacks of a hundred items that HiGHS leaves open
                yield partial(self._solve_lowered, program, "cp-sat")
        elif (groups := self.for_groups(program)) is not None:
            yield partial(self.solve_for_groups, groups)
        direct = self.solver_as_it_is(program)
        lowered = partial(self._solve_lowered, program)
        if direct is not None:
            yield partial(self.solve_as_it_is, program, *direct, prices)
        else:
            yield partial(lowered, None)
        first = self.name
        if not (easier_first or assigns) and first != "prices":
            yield from self._easier(program)
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

    def _solve_lowered(self, program: AllocationProgram, solver: str | None) -> Outcome:
        """Lower the program to rows and columns, or to cones, and solve that."""
        if program.conic:
            return self._solve_conic(program, solver)
        arrays = self.build(lambda: program.to_linear().arrays)
        start = self.start if self._incumbent is None else self._incumbent
        # They are for the run after the relaxation only: later fallbacks start without them.
        core, self._incumbent, self._core = self._core, None, None
        if start is not None:
            start = program.complete(program.repaired(start))
        session = self.open(arrays, solver, start, program.classes)
        if core is None or start is None:
            values = self.run(session)
        else:
            values = self._run_from_cores(session, core, start)
        if values.x is None or values.termination in NO_OPTIMUM:
            return without_point(self, arrays, values, program)
        return certified_allocation(self, program, values, values.y, arrays)

    def _run_from_cores(self, session: Session, core: Core, point: FloatArray) -> Values:
        """Solve cores around the best point so far, then the whole program with the columns fixed
        that no better point uses.
        """
        value, extra, failures = core.value(point), OPEN, 0
        while failures < CORE_FAILURES and self.has_time_left(WORTHWHILE):
            # The whole program is not needed where the bound of the relaxation is near enough.
            if self._near(core, value):
                end, known = Termination.GAP_LIMIT, PointStatus.FEASIBLE
                values = Values(end, known, known, x=point, y=core.duals, objective=value)
                return self._with_priced(values)
            # If the core has as many open columns as the rest of the program, solve that instead.
            lower, upper = core.around(point, extra)
            if (lower < upper).sum() >= core.open_columns(value):
                break
            session.set_bounds(lower, upper)
            session.set_start(point)
            values = self.run_within(session, self._limits_of_a_core())
            self.by_clock |= values.termination in BY_CLOCK
            if values.termination is Termination.INTERRUPTED:
                return replace(values, x=point, objective=None, bound=None)
            found = None if values.x is None else core.whole(values.x)
            if found is not None and core.value(found) > value:
                point = self._exchanged(core, found)
                value = core.value(point)
            else:
                # The core has no better point: try a larger one.
                failures, extra = failures + 1, 2 * extra
        # Reduced-cost fixing: columns that no better point uses are fixed at 0.
        session.set_bounds(*core.without_losers(value))
        session.set_start(point)
        values = self._with_priced(self.run(session))
        if values.x is None or core.value(values.x) < value:  # stopped before it took its start
            return replace(values, x=point, objective=None)
        return values

    def _near(self, core: Core, value: float) -> bool:
        """Whether a value is within the gap, which the user asked for, of the bound of the
        relaxation.
        """
        gap, bound = self.limits.gap, core.bound if self._priced is None else self._priced.bound
        return gap is not None and bound - value <= gap * abs(value)

    def _exchanged(self, core: Core, point: FloatArray) -> FloatArray:
        """Improve a whole point by local search, until the gap is closed or the time is over."""
        from optsched.solving.exchanges import exchanged

        def enough(value: float) -> bool:
            if self._near(core, value):
                return True
            late = not self.has_time_left(WORTHWHILE)
            self.by_clock |= late
            return late

        better = exchanged(core, point, enough)
        if self.limits.on_point is not None:
            self.limits.on_point(better)
        return better

    def _limits_of_a_core(self) -> Limits:
        """A part of the time and few nodes; no progress, as its bound does not hold for the
        program.
        """
        limits = self.limits_left()
        nodes = CORE_NODES if limits.work is None else min(CORE_NODES, limits.work)
        seconds = None if limits.time is None else SHARE * limits.time
        return replace(limits, time=seconds, work=nodes, on_progress=None)

    def _solve_conic(self, program: AllocationProgram, name: str | None = None) -> Outcome:
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

    def _easier(self, program: AllocationProgram) -> Iterator[Way]:
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
            yield partial(self._solve_easier, program, easier)

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

    def _branch_briefly(self, program: AllocationProgram) -> Outcome:
        """A few nodes of branch and bound, which solve most small programs sooner than a search."""
        arrays = self.build(lambda: program.to_linear().arrays)
        start = None if self.start is None else program.complete(program.repaired(self.start))
        session = self.open(arrays, None, start, program.classes)
        limits = self.limits_left()
        seconds = None if limits.time is None else BRIEF_SHARE * limits.time
        brief = replace(limits, time=seconds, work=BRIEF_NODES)
        values = self.run_within(session, brief)
        by_clock = values.termination is Termination.TIME_LIMIT
        if (
            by_clock or values.termination is Termination.WORK_LIMIT
        ):  # neither is the limit of the user
            words = "a few nodes of branch and bound"
            values = replace(values, termination=Termination.IMPRECISE, words=words)
        if values.x is None or values.termination in NO_OPTIMUM:
            return without_point(self, arrays, values, program)
        outcome = certified_allocation(self, program, values, values.y, arrays)
        self._incumbent = outcome.x
        return replace(outcome, by_clock=outcome.by_clock or by_clock)

    def _enumerate_knapsack(self, program: AllocationProgram) -> Outcome:
        """Enumerate a knapsack by its number of items; the next solver starts from the best
        point.
        """
        from optsched.solvers.closed_form import Enumeration  # few programs are knapsacks
        from optsched.solving.knapsack_search import KnapsackItems, KnapsackSearch, NumberOfItems

        items = KnapsackItems.of(program)
        arrays = self.build(lambda: program.to_linear().arrays)
        values = Values(Termination.IMPRECISE, words="enumeration of a knapsack")
        if items is None:
            return nothing_found(self, values)
        began = self.timer.clock()
        numbered = NumberOfItems(program, items, arrays)
        session = self.open(numbered.arrays)
        silent = replace(self.limits_left(), gap=None, on_progress=None)

        def relaxed(number: int | None) -> Values:
            session.set_rows(*numbered.sides(number))
            return self.run_within(session, silent)

        reported = None

        def best() -> FloatArray:
            return items.point(search.best, program.classes.columns)

        def report() -> None:
            """Report the best items and the bound, if they changed."""
            nonlocal reported
            now = (search.value, search.bound)
            if now != reported:
                value, bound = (arrays.offset + each for each in now)
                self.report(began, value, bound, "enumeration of a knapsack", best)
            reported = now

        def enough() -> bool:
            report()
            return not self.has_time_left(1.0 - LONG)

        start = program.known_point() if self._incumbent is None else self._incumbent
        step = step_of(arrays.cost, arrays.integer) or 0.0
        search = KnapsackSearch(items, step, items.taken(start))
        search.relax(numbered.of_point(relaxed(None).x), lambda k: numbered.at(relaxed(k), k))
        search.run(enough)
        report()
        self.spend("search", self.timer.clock() - began)
        self._incumbent = best()
        bound = search.bound + arrays.offset
        values = replace(values, x=program.complete(self._incumbent), bound=bound)
        if search.settled:
            self.use(Enumeration, "all sets of items that may be better were enumerated")
            values = replace(values, termination=Termination.OPTIMAL, words="")
        outcome = certified_allocation(self, program, values, None, arrays)
        return replace(outcome, by_clock=outcome.by_clock or enough())

    def _search_assignments(self, program: AllocationProgram) -> Outcome:
        """Solve the relaxation of a generalised assignment, then search at its duals.

        The next solver starts from the assignment that is found. It gets the rest of the time if
        reduced costs leave few columns open.
        """
        from optsched.solving.core import Core  # few programs are assignments
        from optsched.solving.reassignment import searched_from

        arrays = self.build(lambda: program.to_linear().arrays)
        session = self.open(arrays.relaxed())
        limits = replace(self.limits_left(), gap=None, work=None, on_progress=None)
        values = self.run_within(session, limits)
        by_clock = values.termination in BY_CLOCK
        nothing = Values(
            Termination.IMPRECISE,
            iterations=values.iterations,
            seconds=values.seconds,
            words="search at the prices of the relaxation",
        )
        core = None if values.y is None else Core.of(program.classes, arrays, values.y)
        if core is None:
            return replace(nothing_found(self, nothing), by_clock=by_clock)
        start = self.start if self._incumbent is None else self._incumbent
        search = searched_from(program, core, start, self.limits.seed)
        if search is None:
            return replace(nothing_found(self, nothing), by_clock=by_clock)
        began = self.timer.clock()
        by_clock |= self._improve(program, search, core)
        self.spend("search", self.timer.clock() - began)
        point = search.of.point(search.best, program.classes.columns)
        self._core = core if self._priced is None else self._priced.core
        self._incumbent = point
        found = replace(nothing, x=point, y=core.duals, primal=PointStatus.FEASIBLE)
        found = self._with_priced(found)
        outcome = certified_allocation(self, program, found, found.y, arrays)
        return replace(outcome, by_clock=by_clock)

    def _improve(self, program: AllocationProgram, search: Reassignment, core: Core) -> bool:
        """Search while that is promising; returns whether the clock ended it.

        If most columns are open, branch and bound would not end, so the search gets most of the
        time.
        """
        step = step_of(core.arrays.cost, core.arrays.integer) or 0.0
        began, reported, columns = self.timer.clock(), np.inf, program.classes.columns

        def report() -> None:
            """Report the best assignment and the bound, in the units of the program."""
            bound = core.bound if self._priced is None else self._priced.bound
            value, words = core.bound - search.least, "search of assignments"
            self.report(began, value, bound, words, lambda: search.of.point(search.best, columns))

        def closed(lost: float) -> bool:
            value = core.bound - lost
            short = lost if self._priced is None else self._priced.bound - value
            return short < step * (1.0 - ROUNDED) or self._near(core, value)

        for per_job, part in ((PATIENCE, SHARE), (LONG_PATIENCE, LONG)):

            def enough(lost: float, part: float = part) -> bool:
                nonlocal reported
                if lost < reported:
                    reported = lost
                    report()
                return closed(lost) or not self.has_time_left(1.0 - part)

            search.run(per_job * search.of.jobs, enough)
            if self._priced is None and not closed(search.least):
                self._priced = self._lagrangian(program, core, search.prices.price)
                report()
            sharper = core if self._priced is None else self._priced.core
            open_columns = sharper.open_columns(core.bound - search.least)
            few = max(FEW_OPEN, OPEN_SHARE * len(core.loss))
            if open_columns <= few or enough(search.least):
                break
        return not self.has_time_left(1.0 - part)

    def _lagrangian(
        self, program: AllocationProgram, core: Core, price: FloatArray
    ) -> PricedBound | None:
        """A bound by prices of jobs, where it is tighter than that of the core.

        Parameters
        ----------
        program : AllocationProgram
            One that is an assignment.
        core : Core
            At the prices of the relaxation.
        price : FloatArray, shape (agents,)
            Of the room of agents there.
        """
        left, arrays = self.limits_left().time, core.arrays
        seconds = None if left is None else LAGRANGIAN_SHARE * left
        step = step_of(arrays.cost, arrays.integer)
        began = self.timer.clock()
        of_jobs = convenience("Assignment.prices_of_jobs")(
            program.assignment, price, step, seconds, EVALUATIONS
        )
        from optsched.solving.knapsack_bound import knapsack_bound, knapsack_losses, with_job_prices

        duals = with_job_prices(program, core.duals, of_jobs)
        bound, found = knapsack_bound(program, arrays, duals), None
        if bound is not None and bound < core.bound:
            losses = knapsack_losses(program, arrays, duals)
            assert losses is not None
            found = PricedBound(bound, duals, core.at_losses(*losses))
        self.spend("bound", self.timer.clock() - began)
        return found

    def _with_priced(self, values: Values) -> Values:
        """Values with the Lagrangian bound and its duals, unless a solver states a tighter one."""
        priced = self._priced
        if priced is None:
            return values
        if values.bound is not None and is_tighter(values.bound, priced.bound, maximise=True):
            return values
        self.reason = f"{self.reason.removesuffix(BY_PRICED_JOBS)}{BY_PRICED_JOBS}"
        return replace(values, bound=priced.bound, y=priced.duals)

    def _solve_easier(self, program: AllocationProgram, easier: AllocationProgram) -> Outcome:
        """Solve the relaxation in a part of the time; repair and improve its point.

        The bound is that of the relaxation. An integer program starts from the point afterwards.
        """
        relaxed = self._relaxed(easier)
        by_clock = relaxed.values.termination in BY_CLOCK
        values = replace(
            relaxed.values, termination=Termination.IMPRECISE, objective=None, bound=None, y=None
        )
        if relaxed.x is None or relaxed.duals is None:
            return replace(nothing_found(self, values), by_clock=by_clock)
        lowered = program.tangent(relaxed.x)
        missing = {block.name: np.zeros(len(block)) for block in lowered.arrays.rows}
        # Rows that the relaxation lacks have duals of 0: the bound is valid, but weaker.
        y = np.concatenate(
            [np.zeros(0), *(relaxed.duals.get(name, missing[name]) for name in missing)]
        )
        x = program.kept(relaxed.x)
        # A core needs a feasible point. The relaxation has no rows with lower sides, so its point
        # may violate them, and so may the points after exchanges.
        if program.integral and len(easier.side) == len(program.side):
            if not program.concave:
                from optsched.solving.core import Core

                self._core = Core.of(program.classes, lowered.arrays, y)
            if self._core is not None:
                x = program.allocation_of(self._exchanged(self._core, program.complete(x)))
            self._incumbent = x
        outcome = certified_allocation(self, program, replace(values, x=x), y)
        return replace(outcome, by_clock=by_clock)

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

    def _relaxed(self, easier: AllocationProgram) -> Outcome:
        """Solve the relaxation in a part of the time: by prices, or as rows and columns."""
        limits = replace(self.limits_left(), options={}, work=None)
        if limits.time is not None:
            limits = replace(limits, time=limits.time * SHARE)
        solver = self.load("prices")
        if solver.refuses(easier) is None:
            self.chosen = solver
            values = self.record(solver().solve_allocation(easier, limits))
            return certified_allocation(self, easier, values, values.y, matrix=bool(easier.side))
        arrays = self.build(lambda: easier.to_linear().arrays)
        session = self.open(arrays, None, None, easier.classes)
        values = self.run_within(session, limits)
        if values.x is None or values.termination in NO_OPTIMUM:
            return nothing_found(self, replace(values, x=None))
        return certified_allocation(self, easier, values, values.y, arrays)


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
