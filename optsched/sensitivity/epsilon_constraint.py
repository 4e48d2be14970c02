"""The Pareto front between two objectives by the epsilon-constraint method.

With f and g the values of two allocation programs over the same columns, both maximised,

    F(eps) = max { f(x) : time, capacity, side rows, g(x) >= eps }

is solved for equidistant eps between the ends of the front. g(x) >= eps is linear: levels(x) >= eps
n_k for every class k where g is a minimum, one row where it is a linear total. The ends are
lexicographic, so that they are efficient and not weakly so: g is maximised over the optima of f for
one end; the other is F(max g). In between, F falls strictly if both programs are linear, so that
every point is efficient; for whole jobs g is maximised again with f kept.

f may be concave (proportional fairness): its optima then share one vector of levels, which is kept
for the first end. Two sessions are opened, one that maximises f and one for g, and only bounds of
rows change in them.

References
----------
Y. Haimes, L. Lasdon, D. Wismer. "On a bicriterion formulation of the problems of integrated system
identification and system optimization", IEEE Transactions on Systems, Man and Cybernetics 1(3),
1971. G. Mavrotas. "Effective implementation of the epsilon-constraint method in multi-objective
mathematical programming problems", Applied Mathematics and Computation 213(2), 2009 (lexicographic
ends, second stages).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Unpack

import numpy as np

from optsched.api import (
    InstanceSource,
    Performance,
    compile,
    formulation_for,
    load,
    make_formulation,
)
from optsched.arrays import FloatArray
from optsched.candidates import Candidates, Classes
from optsched.errors import Interrupted, InvalidArgument
from optsched.executors import LOCAL, all_results_of, cores
from optsched.formulation import Formulation, Infeasible
from optsched.formulation.notes import unread_note
from optsched.instance import Instance
from optsched.instance.arguments import checks_arguments, names_and_options
from optsched.instance.durations import Timer
from optsched.performance import PerformanceModel
from optsched.program import AllocationProgram, Method, Minimum
from optsched.registry import load_solver
from optsched.sensitivity.front import Axis, Front, FrontPoint, efficient
from optsched.sensitivity.held import HeldProgram, single_program
from optsched.solution import Status, Termination, certify_point
from optsched.solvers import Limits
from optsched.solving import Engine, Outcome
from optsched.solving.certify import certified_allocation
from optsched.solving.limits import LimitOptions, make_limits, takes_limits, timer_of

# A formulation by name, or a name with its options.
Objective = str | tuple[str, Mapping[str, Any]]
# Side rows that keep the level of the second objective, and of the first.
SECOND, FIRST = "second", "first"
# Part of a value by which a level that is to be kept may fall: solvers are not more exact.
KEPT = 1e-9
# The same for the levels of a concave utility, which is flat where it is largest.
KEPT_LEVELS = 1e-6
# Levels of this part of the largest are none: that much can be had of the slack that keeps other
# levels.
NEGLIGIBLE = 1e-7
MOST_POINTS = 10_000
NO_JOB = "no job is in the program, so that there is nothing to trade"


@checks_arguments
@takes_limits
def pareto(
    instance: InstanceSource,
    objectives: Sequence[Objective],
    *,
    points: int = 11,
    solver: str = "auto",
    constraints: Sequence[Any] = (),
    model: PerformanceModel | None = None,
    performance: Performance | None = None,
    classes: bool = True,
    prove: bool = False,
    processes: int = 1,
    executor: str = LOCAL,
    on_point: Callable[[int], None] | None = None,
    **limits: Unpack[LimitOptions],
) -> Front:
    """Find compromises between two objectives.

    Parameters
    ----------
    instance : Instance, or what `optsched.load` takes
    objectives : pair of names, or of (name, options)
        Formulations with one allocation program each. The second one must be linear: a minimum or a
        linear total.
    points : int
        Both ends included. They are equidistant in the second objective, or in the value of its
        program if one end has no finite objective (a makespan where some job gets nothing).
    constraints : sequence
        Side constraints of all points, beside those of the instance.
    processes, executor
        As of `optsched.compare`: the front is divided into so many stretches, and the points of
        each are solved one after the other.
    on_point : callable, optional
        Called with the number of each point, from 1, before it is solved; of a stretch in another
        process with that of its first.
    solver, model, performance, classes, prove
        As of `optsched.solve`.
    **limits : LimitOptions
        As of `optsched.solve`; ``time_limit`` is that of the whole front.

    Returns
    -------
    Front
        Without points if the instance is infeasible (``ends`` say why) or the limits were reached
        before the ends.

    Raises
    ------
    UsageError
        Not two objectives, or such as cannot be traded against each other.
    InvalidInput, SolverUnavailable, SolverCrashed, Interrupted
    """
    pairs = _two(objectives)
    if not 2 <= points <= MOST_POINTS:
        raise InvalidArgument("points", str(points), f"a number from 2 to {MOST_POINTS:,}")
    timer = timer_of(limits.get("time_limit"))
    budget = make_limits(**limits)
    for name, options in pairs:
        make_formulation(name, options, constraints)  # checked before anything is read
    given = load(instance, performance)
    trade = _Trade(given, pairs, constraints, model, classes, solver, prove)
    f, g = trade.formulations
    axes = (Axis.of(f), Axis.of(g))
    engine = trade.engine(budget, timer)
    try:
        jobs = trade.programs[0].classes
    except Infeasible:
        return Front(given, axes, (f.solve(trade.candidates, engine),))
    if len(jobs) == 0:
        ends = (f.solve(trade.candidates, engine), g.solve(trade.candidates, engine))
        return Front(given, axes, ends, notes=(NO_JOB,))
    search = _FrontSearch(trade, engine, on_point)
    if processes == 1 and executor == LOCAL:
        return search.front(axes, points, lambda levels: _SolvedLevels(search.points(levels)))

    def in_processes(levels: Sequence[KeptLevel]) -> _SolvedLevels:
        parts = np.array_split(np.arange(len(levels)), max(min(processes, len(levels)), 1))
        stretches = [[levels[number] for number in part.tolist()] for part in parts]
        # Progress and log of other processes are not received
        elsewhere = replace(engine.limits, on_progress=None, on_log=None)
        found = all_results_of(
            _points_of,
            (given, replace(trade), search.best, elsewhere),
            [(timer, stretch) for stretch in stretches],
            processes=processes,
            executor=executor,
            threads=limits.get("threads", 1) or cores(),
            time_limit=timer.seconds,
            on_begin=None if on_point is None else lambda part: on_point(stretches[part][0].number),
        )
        return _SolvedLevels.joined(found)

    return search.front(axes, points, in_processes)


def _two(objectives: Sequence[Objective]) -> list[tuple[str, Mapping[str, Any]]]:
    """Two objectives with their options; raises `InvalidArgument`."""
    if isinstance(objectives, str):
        raise InvalidArgument(
            "objectives",
            repr(objectives),
            "two formulations",
            sentence=f"a front is between two objectives, found {objectives!r} alone: "
            f'write them as a list, such as ["{objectives}", "cost"]',
        )
    pairs = names_and_options(objectives, "objectives", "formulation")
    if len(pairs) != 2 or pairs[0] == pairs[1]:
        raise InvalidArgument(
            "objectives",
            str(len(pairs)),
            "two objectives that differ",
            sentence=f"a front is between two objectives that differ, found {len(pairs)} of them",
        )
    return pairs


class KeptLevel(NamedTuple):
    """A level of the second objective: its number, from 1, its value,
    and whether it is an end of the front.
    """

    number: int
    eps: float
    end: bool


class _SolvedLevels(NamedTuple):
    """Points of some levels, the runs that they took, and what was solved anew for them."""

    found: list[FrontPoint]
    runs: int = 0
    rebuilt: tuple[str, ...] = ()

    @classmethod
    def joined(cls, parts: Sequence[_SolvedLevels]) -> _SolvedLevels:
        """The points of all parts."""
        return cls(
            [point for part in parts for point in part.found],
            sum(part.runs for part in parts),
            tuple(reason for part in parts for reason in part.rebuilt),
        )


@dataclass(frozen=True)
class _Trade:
    """What is traded, in this process or another; see `pareto`."""

    instance: Instance
    objectives: Sequence[tuple[str, Mapping[str, Any]]]
    constraints: Sequence[Any]
    model: PerformanceModel | None
    classes: bool
    solver: str
    prove: bool

    @cached_property
    def formulations(self) -> tuple[Formulation, Formulation]:
        """Those of both objectives, f and g."""
        f, g = (
            formulation_for(self.instance, name, options, self.constraints)
            for name, options in self.objectives
        )
        return f, g

    @cached_property
    def candidates(self) -> Candidates:
        return compile(self.instance, self.model)

    @cached_property
    def programs(self) -> tuple[AllocationProgram, AllocationProgram]:
        """The programs of f and g; raises `Infeasible`."""
        candidates = self.candidates
        return _programs(*self.formulations, candidates if self.classes else candidates.per_job())

    def engine(self, limits: Limits, timer: Timer) -> Engine:
        return Engine(load_solver, self.solver, limits, self.prove, timer=timer)


def _points_of(
    shared: tuple[Any, ...], stretch: tuple[Timer, Sequence[KeptLevel]]
) -> _SolvedLevels:
    """The points of a stretch of levels, in another process."""
    (_, trade, best, limits), (timer, levels) = shared, stretch
    search = _FrontSearch(trade, trade.engine(limits, timer), None)
    search.best = best
    return _SolvedLevels(search.points(levels), search.runs, search.rebuilt)


def _programs(
    f: Formulation, g: Formulation, candidates: Candidates
) -> tuple[AllocationProgram, AllocationProgram]:
    """Both programs over the same classes, each with rows that keep the other's level,
    which are free at first.
    """
    integral = f.integral or g.integral
    if integral and not all(constraint.of_placement for constraint in f.constraints):
        # See Formulation.classes
        candidates = candidates.per_job()
    C = _common_classes(f, g, candidates)
    programs = [
        replace(single_program(formulation, C), integral=integral) for formulation in (f, g)
    ]
    first, second = programs
    for formulation, program in ((f, first), (g, second)):
        if program.utility.method is Method.NEWTON:
            one = "an objective that is one program, not a sequence of programs"
            raise InvalidArgument("objectives", formulation.name, one)
    # The second objective is a row of the program, and rows are linear
    if second.concave:
        linear = "one that is linear as the second objective: this one can be the first"
        raise InvalidArgument("objectives", g.name, linear)
    if first.concave and integral:
        raise InvalidArgument("objectives", f.name, "one that is linear, beside whole jobs")
    return _with_rows(first, second, SECOND), _with_rows(second, first, FIRST)


def _common_classes(f: Formulation, g: Formulation, candidates: Candidates) -> Classes:
    """Classes of jobs that neither formulation can tell apart, nor any side constraint."""
    # A formulation that reads what both read: its classes are those that neither can tell apart
    wider: type[Formulation] = type(f.name, (type(f),), {"reads": f.reads | g.reads})
    C = wider(f.options, f.constraints).classes(candidates)
    other = g.classes(candidates)
    columns = C.candidates.columns
    other_columns = other.candidates.columns
    for name in ("kind", "partner", "pool", "gpus", "nodes", "option", "workers", "servers"):
        if not np.array_equal(getattr(columns, name), getattr(other_columns, name)):
            same = "two over the same columns: one of these leaves out or adds some"
            raise InvalidArgument("objectives", f"{f.name} and {g.name}", same)
    return C


def _with_rows(
    program: AllocationProgram, other: AllocationProgram, name: str
) -> AllocationProgram:
    # Its optima share their levels
    if other.concave:
        other = replace(other, utility=Minimum())
    return replace(program, side=(*program.side, other.utility.at_least(other, -np.inf, name)))


class _FrontSearch:
    """The runs of one front."""

    def __init__(
        self, trade: _Trade, engine: Engine, on_point: Callable[[int], None] | None
    ) -> None:
        self.f, self.g = trade.formulations
        first, second = trade.programs
        self.engine, self.on_point = engine, on_point
        self.first = HeldProgram(self.f, first, engine)
        self.second = HeldProgram(self.g, second, engine)
        self.best = (0.0, 0.0)

    def front(
        self,
        axes: tuple[Axis, Axis],
        count: int,
        points: Callable[[Sequence[KeptLevel]], _SolvedLevels],
    ) -> Front:
        """All points; see the module. ``points`` are those of some levels."""
        best_f = self.first.run(self.first.program)
        best_g = self.second.run(self.second.program)
        ends = tuple(
            held.solution(held.program, outcome)
            for held, outcome in ((self.first, best_f), (self.second, best_g))
        )
        instance = self.first.classes.instance
        if best_f.x is None or best_g.x is None or not all(end.certificate.ok for end in ends):
            return Front(instance, axes, ends, (), 0, count, self.runs, self.rebuilt)
        self.best = self.first.program.value(best_f.x), self.second.program.value(best_g.x)
        levels = self._levels(self._best_second(best_f), self.best[1], count)
        notes = self._unread(instance)
        if self._starves(levels[-1]):
            levels = levels[:-1]
            notes = (
                f"at the best {axes[1].words} some job gets nothing, "
                f"and {axes[0].words} does not exist there",
                *notes,
            )
        made = points(
            [KeptLevel(number, eps, number in (1, count)) for number, eps in enumerate(levels, 1)]
        )
        kept = efficient(made.found)
        return Front(
            instance,
            axes,
            ends,
            tuple(kept),
            len(made.found) - len(kept),
            count - len(made.found),
            self.runs + made.runs,
            tuple(dict.fromkeys((*self.rebuilt, *made.rebuilt))),
            notes,
        )

    def points(self, levels: Sequence[KeptLevel]) -> list[FrontPoint]:
        """The points of some levels, those that a limit prevented left out."""
        found: list[FrontPoint] = []
        # Only the right side of one row changes from level to level
        for level in levels:
            if self.on_point is not None:
                self.on_point(level.number)
            try:
                point = self._point(level.eps, level.end)
            except Interrupted:
                if not found:
                    raise
                break
            if point is not None:
                found.append(point)
                if point.solution.termination is Termination.INTERRUPTED:
                    break
        return found

    def _unread(self, instance: Instance) -> tuple[str, ...]:
        """A note on fields of the instance that neither objective nor a side constraint reads."""
        names = dict.fromkeys((self.f.name, self.g.name))
        note = unread_note(" with ".join(names), self.f.all_reads | self.g.all_reads, instance)
        return (note,) if note else ()

    @property
    def runs(self) -> int:
        """Runs of both sessions."""
        return self.first.runs + self.second.runs

    @property
    def rebuilt(self) -> tuple[str, ...]:
        """Why a session was rebuilt or something solved anew."""
        return tuple(dict.fromkeys((*self.first.rebuilt, *self.second.rebuilt)))

    def _best_second(self, best: Outcome) -> float:
        """Largest g over the optima of f, the second objective of the first end."""
        assert best.x is not None and best.value is not None
        first = self.first.program
        # Its optima share one vector of levels, and these make linear rows; its value would not.
        if first.concave:
            level = first.level(best.x)
            rows = Minimum().at_least(first, _less(level, KEPT_LEVELS), FIRST)
        else:
            rows = first.utility.at_least(first, float(_less(best.value)), FIRST)
        outcome = self.second.run(self.second.with_side(rows))
        x = best.x if outcome.x is None or not outcome.certificate.ok else outcome.x
        return self.second.program.value(x)

    def _starves(self, eps: float) -> bool:
        """Whether some job must have nothing where g is at a level,
        and f does not exist without (its log is -inf).
        """
        first = self.first.program
        if not first.utility.worthless_at_zero:
            return False
        smallest = replace(first, utility=Minimum())
        second = self.second.program
        rows = second.utility.at_least(second, float(_less(eps)), SECOND)
        outcomes = [
            self.engine.solve_directly(replace(smallest, side=side))
            for side in (first.side, self.first.with_side(rows).side)
        ]
        free, kept = (outcome.value for outcome in outcomes)
        return free is not None and kept is not None and kept <= NEGLIGIBLE * free

    def _levels(self, low: float, high: float, count: int) -> list[float]:
        """Equidistant levels of g from the first end to the second:
        in its objective if that is finite.
        """
        # The first end may have a little of g that the slack of what is kept allows.
        low = 0.0 if 0 <= low <= NEGLIGIBLE * high else min(low, high)
        second = self.second.program.units
        worst = second.objective(low)
        best = second.objective(high)
        # Where the objective has no finite value, levels are equidistant in the program's own units
        if not np.isfinite([worst, best]).all() or worst == best:
            return [float(value) for value in np.linspace(low, high, count)]
        between = np.linspace(worst, best, count)[1:-1].tolist()
        return [low, *(_inverse(second.objective, wanted, low, high) for wanted in between), high]

    def _point(self, eps: float, end: bool) -> FrontPoint | None:
        """The best f with g at a level, certified; None if a limit was reached first."""
        second = self.second.program
        program = self.first.with_side(second.utility.at_least(second, float(_less(eps)), SECOND))
        outcome = self.first.run(program)
        if outcome.x is None or outcome.value is None:
            return None
        # Among equally good whole jobs, those that are best for g
        if program.integral:
            first = self.first.program
            rows = first.utility.at_least(first, float(_less(outcome.value)), FIRST)
            again = self.second.run(self.second.with_side(rows))
            if again.x is not None and self.second.program.value(
                again.x
            ) > self.second.program.value(outcome.x):
                values = replace(
                    outcome.values, x=program.complete(again.x), objective=None, bound=outcome.bound
                )
                arrays = self.first.right_sides(program)
                outcome = certified_allocation(self.engine, program, values, None, arrays)
        outcome = self._without_noise(program, outcome)
        assert outcome.x is not None
        values_here = self._values(outcome.x)
        objectives = (
            program.units.objective(values_here[0]),
            self.second.program.units.objective(values_here[1]),
        )
        made = self.first.solution(program, outcome)
        wanted = {
            "kind": "at-least",
            "formulation": self.g.name,
            "options": self.g.options.to_document(),
            "value": self.second.program.units.objective(float(_less(eps))),
        }
        solution = replace(made, constraints=(*made.constraints, wanted))
        return FrontPoint(
            objectives, values_here, solution, None if end else self._exchange(outcome, values_here)
        )

    def _without_noise(self, program: AllocationProgram, outcome: Outcome) -> Outcome:
        """An outcome whose value and bound are both nothing is optimal,
        however far apart they are relatively.
        """
        bound = outcome.bound
        x = outcome.x
        if outcome.certificate.ok or bound is None or x is None or outcome.value is None:
            return outcome
        if max(abs(bound), abs(outcome.value)) > NEGLIGIBLE * abs(self.best[0]):
            return outcome
        arrays = self.first.right_sides(program)
        checked = certify_point(
            arrays, program.complete(x), outcome.value, outcome.certificate.proof
        )
        return replace(
            outcome, certificate=checked, status=Status.OPTIMAL if checked.ok else outcome.status
        )

    def _values(self, x: FloatArray) -> tuple[float, float]:
        """f and g at a point; what is nothing beside the best,
        as the slack of a kept level allows it, is 0.
        """
        f, g = (
            0.0 if abs(value := held.program.value(x)) <= NEGLIGIBLE * abs(best) else value
            for held, best in zip((self.first, self.second), self.best, strict=True)
        )
        return f, g

    def _exchange(self, outcome: Outcome, values: tuple[float, float]) -> float | None:
        """-dF/dg in units of the objectives:
        the duals of the rows g >= eps, times what they rise by with eps.
        """
        if (
            outcome.status is not Status.OPTIMAL
            or outcome.duals is None
            or SECOND not in outcome.duals
        ):
            return None
        smallest = self.second.program.utility.smallest_level
        rise = self.second.classes.count if smallest else np.ones(1)
        worth = self.second.program.units.slope(values[1])
        first = self.first.program.units.slope(values[0])
        return -float(outcome.duals[SECOND] @ rise) * first / worth + 0.0 if worth > 0 else None


def _less(value: float | FloatArray, part: float = KEPT) -> FloatArray:
    """A little less than a value, so that rounding does not make what was reached infeasible."""
    return value - part * np.abs(value)


def _inverse(report: Callable[[float], float], wanted: float, low: float, high: float) -> float:
    """The value whose objective is wanted; report is monotone."""
    from scipy.optimize import brentq

    if low == high:
        return low
    return float(
        brentq(
            lambda value: report(value) - wanted, low, high, xtol=1e-15 * max(abs(low), abs(high))
        )
    )
