"""Search for the best point of one allocation program, lowered to rows and columns.

A program of whole jobs is solved in several steps, each of which starts from what the steps before
it found: the relaxation with fractions of jobs and its reduced costs (`core`), a local search
(`exchanges`, `reassignment`) or an enumeration (`knapsack_search`), and branch and bound. The engine
says which steps a program takes, and in what order (`Engine._ways`).

A generalised assignment (`gap`) takes these steps. The first that proves the optimum is the last.

1. A small one: a few nodes of branch and bound of a solver (`branch_briefly`).
2. The relaxation, then a local search at its duals (`search_assignments`, `reassignment`).
3. In the same step, if a gap is left: prices of the jobs (`optsched.decomposition.job_prices`), and
   at these prices the bound of the agents' knapsacks (`knapsack_bound`).
4. Branch and bound at these prices (`branch_assignments`, `assignment_tree`).
5. If the tree is large and has not raised the bound after a part of the time: the local search, from
   the best assignment so far (`search_longer`). Then step 4 goes on.
6. Without a tree: branch and bound of a solver, from the best assignment (`solve`).

The certificate recomputes the bound of step 3 (`certify.proved_or_claimed_bound`). An empty tree is
a claim.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from optsched.arrays import FloatArray
from optsched.arrays.values import replace
from optsched.lazy import convenience
from optsched.program import AllocationProgram
from optsched.program.integers import step_of
from optsched.solution import PointStatus, Termination, Values
from optsched.solvers import Limits, Session
from optsched.solving.attempts import WORTHWHILE
from optsched.solving.certify import (
    certified_allocation,
    is_tighter,
    nothing_found,
    without_point,
)
from optsched.solving.outcome import BY_CLOCK, NO_OPTIMUM, Outcome
from optsched.solving.runs import SolverRuns

if TYPE_CHECKING:  # few programs have one
    from optsched.program import LinearArrays
    from optsched.solving.assignment_tree import AssignmentTree
    from optsched.solving.core import Core
    from optsched.solving.reassignment import Reassignment

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
BRIEF_NODES, BRIEF_SHARE = 500, 0.05
"""Nodes of a brief branch and bound, and the fraction of the time that it may take."""
PATIENCE, LONG_PATIENCE = 2, 5
"""The search for assignments ends after this many neighbourhoods without improvement: before the
tree for each job, after it for each column."""
SMALL_TREE = 0.3
"""Fraction of the columns up to which those that are open at its first target make a small tree."""
LAGRANGIAN_SHARE, EVALUATIONS = 0.2, 100
"""Limits of the Lagrangian bound of an assignment: a fraction of the time left, and evaluations."""
AT_RELAXATION = "search at the prices of the relaxation"
BY_PRICED_JOBS = "; the bound is Lagrangian, each agent solves a knapsack"
FIRST, BRANCHED, LONG = 0.1, 0.35, 0.8
"""Fractions of the time that may be over when the tree of an assignment begins, when a large one
that has not raised the bound makes way for the local search, and when a local search ends."""
MANY_NODES = 200
"""Nodes after which such a tree makes way where the time has no limit."""


class PricedBound(NamedTuple):
    """A Lagrangian bound, the duals of all rows that prove it (`knapsack_bound`), the prices of the
    jobs, shape (jobs,), and the core there.
    """

    bound: float
    duals: FloatArray
    of_jobs: FloatArray
    core: Core


class _LocalSearch(NamedTuple):
    """The search for assignments at the duals of the relaxation, and the program's arrays."""

    search: Reassignment
    core: Core
    arrays: LinearArrays


@dataclass(eq=False)
class ProgramSearch:
    """The steps of the search in one program, within the budget of ``runs``."""

    runs: SolverRuns
    program: AllocationProgram
    _incumbent: FloatArray | None = None
    """Point from which the next step starts."""
    _core: Core | None = None
    """Reduced costs of the relaxation."""
    _priced: PricedBound | None = None
    """The Lagrangian bound, where that is tighter than the bound of the core."""
    _local: _LocalSearch | None = None
    _tree: AssignmentTree | None = None

    # --- before branch and bound --------------------------------------------------------------

    def solve_easier(self, easier: AllocationProgram) -> Outcome:
        """Solve the relaxation in a part of the time; repair and improve its point.

        The bound is that of the relaxation. An integer program starts from the point afterwards.
        """
        runs, program = self.runs, self.program
        relaxed = self._relaxed(easier)
        by_clock = relaxed.values.termination in BY_CLOCK
        values = replace(
            relaxed.values, termination=Termination.IMPRECISE, objective=None, bound=None, y=None
        )
        if relaxed.x is None or relaxed.duals is None:
            return replace(nothing_found(runs, values), by_clock=by_clock)
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
        outcome = certified_allocation(runs, program, replace(values, x=x), y)
        return replace(outcome, by_clock=by_clock)

    def _relaxed(self, easier: AllocationProgram) -> Outcome:
        """Solve the relaxation in a part of the time: by prices, or as rows and columns."""
        runs = self.runs
        limits = replace(runs.limits_left(), options={}, work=None)
        if limits.time is not None:
            limits = replace(limits, time=limits.time * SHARE)
        solver = runs.load("prices")
        if solver.refuses(easier) is None:
            runs.chosen = solver
            values = runs.record(solver().solve_allocation(easier, limits))
            return certified_allocation(runs, easier, values, values.y, matrix=bool(easier.side))
        arrays = runs.build(lambda: easier.to_linear().arrays)
        session = runs.open(arrays, None, None, easier.classes)
        values = runs.run_within(session, limits)
        if values.x is None or values.termination in NO_OPTIMUM:
            return nothing_found(runs, replace(values, x=None))
        return certified_allocation(runs, easier, values, values.y, arrays)

    def branch_briefly(self) -> Outcome:
        """A few nodes of branch and bound, which solve most small programs sooner than a search."""
        runs, program = self.runs, self.program
        arrays = runs.build(lambda: program.to_linear().arrays)
        start = None if runs.start is None else program.complete(program.repaired(runs.start))
        session = runs.open(arrays, None, start, program.classes)
        limits = runs.limits_left()
        seconds = None if limits.time is None else BRIEF_SHARE * limits.time
        brief = replace(limits, time=seconds, work=BRIEF_NODES)
        values = runs.run_within(session, brief)
        by_clock = values.termination is Termination.TIME_LIMIT
        if (
            by_clock or values.termination is Termination.WORK_LIMIT
        ):  # neither is the limit of the user
            words = "a few nodes of branch and bound"
            values = replace(values, termination=Termination.IMPRECISE, words=words)
        if values.x is None or values.termination in NO_OPTIMUM:
            return without_point(runs, arrays, values, program)
        outcome = certified_allocation(runs, program, values, values.y, arrays)
        self._incumbent = outcome.x
        return replace(outcome, by_clock=outcome.by_clock or by_clock)

    def search_assignments(self) -> Outcome:
        """Solve the relaxation of a generalised assignment, and search at its duals for a while.

        If a gap is left, prices of the jobs give a better bound.
        """
        from optsched.solving.core import Core  # few programs are assignments
        from optsched.solving.reassignment import searched_from

        runs, program = self.runs, self.program
        arrays = runs.build(lambda: program.to_linear().arrays)
        session = runs.open(arrays.relaxed())
        limits = replace(runs.limits_left(), gap=None, work=None, on_progress=None)
        values = runs.run_within(session, limits)
        by_clock = values.termination in BY_CLOCK
        core = None if values.y is None else Core.of(program.classes, arrays, values.y)
        start = runs.start if self._incumbent is None else self._incumbent
        seed = runs.limits.seed

        def late() -> bool:
            return not runs.has_time_left(0.0)

        search = None if core is None else searched_from(program, core, start, seed, late)
        if core is None or search is None:
            nothing = Values(Termination.IMPRECISE, words=AT_RELAXATION, seconds=values.seconds)
            return replace(nothing_found(runs, nothing), by_clock=by_clock)
        self._local = _LocalSearch(search, core, arrays)
        by_clock |= self._improve(PATIENCE * search.of.jobs, FIRST)
        if not self._is_closed:
            self._priced = self._lagrangian(core, search.prices.price)
            self._report_assignment(runs.timer.clock())
        return self._best_assignment(by_clock)

    def search_longer(self) -> Outcome:
        """Search for assignments again, from the best one that the tree has found."""
        local, tree = self._local, self._tree
        if local is None:
            return nothing_found(self.runs, Values(Termination.IMPRECISE, words=AT_RELAXATION))
        if tree is not None:
            local.search.start_from(tree.best)
        late = self._improve(LONG_PATIENCE * len(local.core.loss), LONG)
        return self._best_assignment(late)

    def _improve(self, stale: int, part: float) -> bool:
        """Search until so many neighbourhoods in a row bring no improvement, or a part of the time
        is over; returns whether the clock ended it.
        """
        assert self._local is not None
        runs, reported, began = self.runs, np.inf, self.runs.timer.clock()

        def enough(lost: float) -> bool:
            nonlocal reported
            if lost < reported:
                reported = lost
                self._report_assignment(began)
            return self._is_closed or not runs.has_time_left(1.0 - part)

        self._local.search.run(stale, enough)
        runs.spend("search", runs.timer.clock() - began)
        return not runs.has_time_left(1.0 - part)

    @property
    def _is_closed(self) -> bool:
        """Whether no assignment is better than the best one, or by less than the gap allows."""
        assert self._local is not None
        search, core, arrays = self._local
        step = step_of(arrays.cost, arrays.integer) or 0.0
        value = core.bound - search.least
        return self._bound(core) - value < step * (1.0 - ROUNDED) or self._near(core, value)

    def _report_assignment(self, began: float) -> None:
        """Report the best assignment and the bound, in the units of the program."""
        assert self._local is not None
        search, core, _ = self._local
        columns, value = self.program.classes.columns, core.bound - search.least

        def point() -> FloatArray:
            return search.of.point(search.best, columns)

        self.runs.report(began, value, self._bound(core), "search of assignments", point)

    def _best_assignment(self, by_clock: bool) -> Outcome:
        """The best assignment of the local search."""
        assert self._local is not None
        search, core, arrays = self._local
        self._core = core if self._priced is None else self._priced.core
        self._incumbent = search.of.point(search.best, self.program.classes.columns)
        found = Values(
            Termination.IMPRECISE,
            PointStatus.FEASIBLE,
            x=self._incumbent,
            y=core.duals,
            words=AT_RELAXATION,
        )
        found = self._with_priced(found)
        outcome = certified_allocation(self.runs, self.program, found, found.y, arrays)
        return replace(outcome, by_clock=by_clock)

    def _lagrangian(self, core: Core, price: FloatArray) -> PricedBound | None:
        """A bound by prices of jobs, where it is tighter than that of the core.

        Parameters
        ----------
        core : Core
            At the prices of the relaxation.
        price : FloatArray, shape (agents,)
            Of the room of agents there.
        """
        runs, program = self.runs, self.program
        left, arrays = runs.limits_left().time, core.arrays
        seconds = None if left is None else LAGRANGIAN_SHARE * left
        step = step_of(arrays.cost, arrays.integer)
        began = runs.timer.clock()
        of_jobs = convenience("Assignment.prices_of_jobs")(
            program.assignment, price, step, seconds, EVALUATIONS
        )
        from optsched.solving.knapsack_bound import knapsack_bound, knapsack_losses, with_job_prices

        duals = with_job_prices(program, core.duals, of_jobs)
        bound, found = knapsack_bound(program, arrays, duals), None
        if bound is not None and bound < core.bound:
            losses = knapsack_losses(program, arrays, duals)
            assert losses is not None
            found = PricedBound(bound, duals, of_jobs, core.at_losses(*losses))
        runs.spend("bound", runs.timer.clock() - began)
        return found

    def branch_assignments(self, part: float = 1.0) -> Outcome:
        """Branch and bound by prices of jobs; a large tree that has not raised the bound ends when a
        part of the time is over, or after many nodes where the time has no limit.
        """
        from optsched.solvers.closed_form import PricedTree  # few programs are assignments

        runs, program, priced = self.runs, self.program, self._priced
        arrays = runs.build(lambda: program.to_linear().arrays)
        values = Values(Termination.IMPRECISE, words="branch and bound by prices of jobs")
        tree = self._tree = self._planted(arrays)
        if tree is None or priced is None:
            return nothing_found(runs, values)
        began, reported = runs.timer.clock(), np.inf
        nodes, known, is_small = tree.nodes, tree.bound, self._has_small_tree(priced, arrays)
        most = np.inf if runs.limits.work is None else runs.limits.work
        many = MANY_NODES if part < 1.0 and runs.limits.time is None else np.inf

        def point() -> FloatArray:
            return tree.of.point(tree.best, program.classes.columns)

        def enough() -> bool:
            nonlocal reported
            if tree.least < reported:
                reported = tree.least
                runs.report(began, arrays.offset - tree.least, priced.bound, values.words, point)
            if tree.nodes > most:
                return True
            if is_small or tree.bound > known:
                return not runs.has_time_left(0.0)
            return tree.nodes - nodes > many or not runs.has_time_left(1.0 - part)

        tree.run(enough)
        runs.spend("search", runs.timer.clock() - began)
        runs.nodes += tree.nodes - nodes
        by_clock = False
        if tree.settled:
            runs.use(PricedTree, "branch and bound at prices of jobs found no better assignment")
            end = Termination.OPTIMAL
        elif tree.nodes > most:
            end = Termination.WORK_LIMIT
        else:
            over = not runs.has_time_left(0.0)
            end = Termination.TIME_LIMIT if over else Termination.IMPRECISE
            by_clock = runs.limits.time is not None
        x, bound = program.complete(point()), arrays.offset - tree.bound
        values = self._with_priced(replace(values, termination=end, x=x, bound=bound))
        outcome = certified_allocation(runs, program, values, values.y, arrays)
        return replace(outcome, by_clock=by_clock)

    def _has_small_tree(self, priced: PricedBound, arrays: LinearArrays) -> bool:
        """Whether prices of jobs leave few columns open at the first target of the tree."""
        from optsched.solving.assignment_tree import first_reach

        step = step_of(arrays.cost, arrays.integer)
        assert step is not None
        reach = first_reach(priced.bound - arrays.offset, step)
        opened = priced.core.open_columns(priced.bound - reach)
        return opened <= SMALL_TREE * len(priced.core.loss)

    def _planted(self, arrays: LinearArrays) -> AssignmentTree | None:
        """The tree of an assignment, from the best one; None without prices, a step of costs or an
        assignment.
        """
        from optsched.solving.assignment_tree import AssignmentTree

        of, priced = self.program.assignment, self._priced
        step = step_of(arrays.cost, arrays.integer)
        if of is None or priced is None or step is None or self._incumbent is None:
            return None
        best = of.agents_of(self._incumbent, self.program.classes)
        if best is None:
            return None
        if self._tree is None:
            return AssignmentTree(of, best, priced.of_jobs, arrays.offset - priced.bound, step)
        self._tree.best = best
        return self._tree

    def enumerate_knapsack(self) -> Outcome:
        """Enumerate a knapsack by its number of items; the next solver starts from the best
        point.
        """
        from optsched.solvers.closed_form import Enumeration  # few programs are knapsacks
        from optsched.solving.knapsack_search import KnapsackItems, KnapsackSearch, NumberOfItems

        runs, program = self.runs, self.program
        items = KnapsackItems.of(program)
        arrays = runs.build(lambda: program.to_linear().arrays)
        values = Values(Termination.IMPRECISE, words="enumeration of a knapsack")
        if items is None:
            return nothing_found(runs, values)
        began = runs.timer.clock()
        numbered = NumberOfItems(program, items, arrays)
        session = runs.open(numbered.arrays)
        silent = replace(runs.limits_left(), gap=None, on_progress=None)

        def relaxed(number: int | None) -> Values:
            session.set_rows(*numbered.sides(number))
            return runs.run_within(session, silent)

        reported = None

        def best() -> FloatArray:
            return items.point(search.best, program.classes.columns)

        def report() -> None:
            """Report the best items and the bound, if they changed."""
            nonlocal reported
            now = (search.value, search.bound)
            if now != reported:
                value, bound = (arrays.offset + each for each in now)
                runs.report(began, value, bound, "enumeration of a knapsack", best)
            reported = now

        def enough() -> bool:
            report()
            return not runs.has_time_left(1.0 - LONG)

        start = program.known_point() if self._incumbent is None else self._incumbent
        step = step_of(arrays.cost, arrays.integer) or 0.0
        search = KnapsackSearch(items, step, items.taken(start))
        search.relax(numbered.of_point(relaxed(None).x), lambda k: numbered.at(relaxed(k), k))
        search.run(enough)
        report()
        runs.spend("search", runs.timer.clock() - began)
        self._incumbent = best()
        bound = search.bound + arrays.offset
        values = replace(values, x=program.complete(self._incumbent), bound=bound)
        if search.settled:
            runs.use(Enumeration, "all sets of items that may be better were enumerated")
            values = replace(values, termination=Termination.OPTIMAL, words="")
        outcome = certified_allocation(runs, program, values, None, arrays)
        return replace(outcome, by_clock=outcome.by_clock or enough())

    # --- branch and bound ---------------------------------------------------------------------

    def solve(self, solver: str | None) -> Outcome:
        """Solve the program by branch and bound or as a linear program, from what is known."""
        runs, program = self.runs, self.program
        arrays = runs.build(lambda: program.to_linear().arrays)
        start = runs.start if self._incumbent is None else self._incumbent
        # They are for the run after the relaxation only: later fallbacks start without them.
        core, self._incumbent, self._core = self._core, None, None
        if start is not None:
            start = program.complete(program.repaired(start))
        session = runs.open(arrays, solver, start, program.classes)
        if core is None or start is None:
            values = runs.run(session)
        else:
            values = self._run_from_cores(session, core, start)
        if values.x is None or values.termination in NO_OPTIMUM:
            return without_point(runs, arrays, values, program)
        return certified_allocation(runs, program, values, values.y, arrays)

    def _run_from_cores(self, session: Session, core: Core, point: FloatArray) -> Values:
        """Solve cores around the best point so far, then the whole program with the columns fixed
        that no better point uses.
        """
        runs = self.runs
        value, extra, failures = core.value(point), OPEN, 0
        while failures < CORE_FAILURES and runs.has_time_left(WORTHWHILE):
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
            values = runs.run_within(session, self._limits_of_a_core())
            runs.by_clock |= values.termination in BY_CLOCK
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
        values = self._with_priced(runs.run(session))
        if values.x is None or core.value(values.x) < value:  # stopped before it took its start
            return replace(values, x=point, objective=None)
        return values

    def _limits_of_a_core(self) -> Limits:
        """A part of the time and few nodes; no progress, as its bound does not hold for the
        program.
        """
        runs = self.runs
        limits = runs.limits_left()
        nodes = CORE_NODES if limits.work is None else min(CORE_NODES, limits.work)
        seconds = None if limits.time is None else SHARE * limits.time
        return replace(limits, time=seconds, work=nodes, on_progress=None)

    def _exchanged(self, core: Core, point: FloatArray) -> FloatArray:
        """Improve a whole point by local search, until the gap is closed or the time is over."""
        from optsched.solving.exchanges import exchanged

        runs = self.runs

        def enough(value: float) -> bool:
            if self._near(core, value):
                return True
            late = not runs.has_time_left(WORTHWHILE)
            runs.by_clock |= late
            return late

        better = exchanged(core, point, enough)
        if runs.limits.on_point is not None:
            runs.limits.on_point(better)
        return better

    def _near(self, core: Core, value: float) -> bool:
        """Whether a value is within the gap that the user asked for."""
        gap = self.runs.limits.gap
        return gap is not None and self._bound(core) - value <= gap * abs(value)

    def _bound(self, core: Core) -> float:
        """The bound of the relaxation, or the Lagrangian one where that is tighter."""
        return core.bound if self._priced is None else self._priced.bound

    def _with_priced(self, values: Values) -> Values:
        """Values with the Lagrangian bound and its duals, unless a solver states a tighter one."""
        runs = self.runs
        priced = self._priced
        if priced is None:
            return values
        if values.bound is not None and is_tighter(values.bound, priced.bound, maximise=True):
            return values
        runs.reason = f"{runs.reason.removesuffix(BY_PRICED_JOBS)}{BY_PRICED_JOBS}"
        return replace(values, bound=priced.bound, y=priced.duals)
