"""Water filling: all levels rise together, stage by stage, until some are held.

`optsched.program.filling` has the state of the filling and the linear program of each stage. This
module solves them in one session: a stage ends where duals prove that some level cannot rise.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from optsched.arrays import EMPTY, FloatArray
from optsched.arrays.values import replace
from optsched.errors import SolverCrashed
from optsched.program import AllocationProgram, LinearArrays
from optsched.program.filling import LOOSE, LOOSEST, Filling, Path
from optsched.solution import Status, Termination, Values
from optsched.solution.certificate import OPTIMALITY, dual_bound, row_sign_error
from optsched.solution.stage import Stage
from optsched.solvers import Capability, Session, Solver
from optsched.solving.attempts import Way, attempt, other_ways
from optsched.solving.certify import (
    best_known_allocation,
    certified_allocation,
    nothing_found,
    without_point,
)
from optsched.solving.choice import LARGE_LP
from optsched.solving.engine import Engine
from optsched.solving.outcome import NO_OPTIMUM, STOPPED, Outcome, SolvedProgram

if TYPE_CHECKING:  # few programs have such rows
    from optsched.solving.group_floors import GroupFloors

log = logging.getLogger("optsched")

FILLING = "filling"
CLOSES = "closes"
"""Mark of stages that close columns: 1, 2 if floors cap levels too, 3 if closed columns are also
fixed at 0, 4 if they are in the last program too. Stages of older files have no mark and close
nothing.
"""
MET = "met"
"""Part of all levels that the point of a stage has, to which they are lowered; not kept if it has
them all.
"""
MARKS = (1.0, 2.0, 3.0, 4.0)
"""Values of `CLOSES`."""
UNPROVED = "the duals of a stage of filling prove another level than its point has"
WRONG_LEVEL = 1e-3
"""Part of a stage's unit by which its duals prove another level, and not a rounded one."""
WRONG_SIGN = 1e-3
"""Relative size of a dual of the wrong sign that is more than a solver's rounding."""
VERTEX = "highs", "stages of filling, whose duals are clear at a vertex"
"""The solver (and reason) that `auto` begins with for large programs: near a break of the path, an
interior point spreads some of the dual over all classes.
"""
REACHED = 1e-9
"""Relative distance from the end of a segment at which it counts as reached."""


def solve_filling(engine: Engine, program: AllocationProgram) -> SolvedProgram:
    """Water filling; every solver that is tried begins with the first stage."""
    answers = []

    def once(solver: str | None) -> Outcome:
        answers.append(_fill(engine, program, solver))
        return answers[-1].outcome

    def known(found: Outcome | None) -> Outcome | None:
        final = Filling(program).final()
        certify = partial(certified_allocation, engine, final)
        outcome = best_known_allocation(engine, final, found, certify)
        if outcome is not None:
            outcome = _without_stages(outcome)
            answers.append(SolvedProgram(final, outcome, notes=_stopped_words(())))
        return outcome

    def for_groups(groups: GroupFloors) -> Outcome:
        answers.append(_fill_for_groups(engine, groups))
        return answers[-1].outcome

    def ways() -> Iterator[Way]:
        groups = engine.for_groups(program)
        if groups is not None:
            yield partial(for_groups, groups)
        yield partial(once, None)
        first = engine.name
        # A vertex may separate the classes that are held where prices leave that open.
        if first == "prices" and engine.asked_for is None:
            yield partial(once, first := VERTEX[0])
        yield from other_ways(engine, once, first, integer=False)

    best = attempt(engine, ways(), known=known, answers=engine.known_points)
    # `attempt` may have changed the bound or the termination of the outcome.
    answer = next(answer for answer in answers if answer.outcome.x is best.x)
    return answer._replace(outcome=best)


def _fill(engine: Engine, program: AllocationProgram, solver: str | None) -> SolvedProgram:
    filling = Filling(program)
    stages: list[Stage] = []
    runs = _runs_of(engine, program, solver)
    while not filling.done:
        # A stage changes the filling, also one that fails, by its slack.
        before = filling.final()
        path = filling.path()
        number, values, arrays, met = runs.farthest(filling, path)
        if values.x is None or values.termination is not Termination.OPTIMAL:
            return _stopped(engine, program, before, values, runs.reached, stages)
        y = _duals(engine, values, arrays)
        low, high = path.segment(number)
        # The unit of the rise d is `high`. A solver may leave the segment by its tolerance.
        clock = low + min(max(float(values.x[program.classes.columns]), 0.0) * high, high - low)
        bound = dual_bound(arrays, y)
        frozen = filling.freeze(path, number, arrays, clock, y, bound, met)
        rise = (clock - low) / high
        if not frozen.any() or bound is None or abs(rise - bound) > WRONG_LEVEL:
            raise SolverCrashed(
                f"solver {engine.name} gave duals that do not tell who holds the level "
                f"at {clock:.9g}"
            )
        if abs(rise - bound) > OPTIMALITY:
            # Later stages would rest on a level that is not proved.
            values = replace(values, termination=Termination.IMPRECISE, words=UNPROVED)
            return _stopped(engine, program, before, values, runs.reached, stages)
        log.info("filling: level %.6g on the clock, %d classes held", clock, int(frozen.sum()))
        stages.append(
            Stage(
                FILLING,
                clock,
                low + bound * high,
                _blocks(arrays, y),
                {
                    "segment": np.array([float(number)]),
                    "slack": np.array([filling.loose]),
                    CLOSES: np.array([4.0 if filling.empties_last else 1.0 + filling.has_floors]),
                }
                | ({MET: np.array([met])} if met < 1.0 else {}),
            )
        )
        runs.reached = values
    final = filling.final()
    if not stages:
        return SolvedProgram(final, engine.solve_directly(final))
    values = runs.last(filling)
    if values.x is None or values.termination in NO_OPTIMUM:
        return _stopped(engine, program, final, values, runs.reached, stages)
    last = engine.build(lambda: final.to_linear().arrays)
    return SolvedProgram(
        final, certified_allocation(engine, final, values, values.y, last), stages=tuple(stages)
    )


def _fill_for_groups(engine: Engine, groups: GroupFloors) -> SolvedProgram:
    """The filling of the program that limits the others, whose stages are those of the program
    where its optimum gives the groups what they ask for: no level can be higher with more rows.
    """
    program = groups.program
    answer = _fill(engine, groups.easier, None)
    outcome = answer.outcome
    x = None if outcome.x is None else groups.raised(outcome.x[: program.classes.columns])
    if x is None or groups.lacks(x):
        values = replace(outcome.values, termination=Termination.IMPRECISE, x=None)
        return SolvedProgram(program, nothing_found(engine, values))
    if outcome.status is not Status.OPTIMAL or outcome.duals is None:
        end = outcome.values.termination
        end = end if end in STOPPED else Termination.IMPRECISE
        stopped = replace(outcome.values, termination=end, x=program.complete(x))
        return _stopped(engine, program, Filling(program).final(), stopped, None, ())
    stages = [replace(stage, duals=groups.named(stage.duals or {})) for stage in answer.stages]
    filling = filling_of(program, stages)
    for stage in stages:
        replayed(filling, stage)
    final = filling.final()
    arrays = engine.build(lambda: final.to_linear().arrays)
    duals = groups.named(outcome.duals or {})
    y = np.concatenate([duals[block.name] for block in arrays.rows])
    values = replace(outcome.values, x=final.complete(x), y=y, objective=None, bound=None)
    certified = certified_allocation(engine, final, values, y, arrays)
    return SolvedProgram(final, certified, stages=tuple(stages))


def _runs_of(engine: Engine, program: AllocationProgram, solver: str | None) -> _Runs:
    """Stages by prices if a solver takes the program without lowering; else linear programs."""
    direct = engine.solver_as_it_is(program) if solver is None else None
    if direct is None:
        return _LinearRuns(engine, program, solver)
    name, reason = direct
    return _PricedRuns(engine, program, engine.use(engine.load(name), reason))


class _Runs(ABC):
    """Finds the end of each stage, and the optimum of the last program.

    Attributes
    ----------
    reached : Values or None
        The last point that keeps the levels of all stages so far.
    """

    def __init__(self, engine: Engine, program: AllocationProgram) -> None:
        self.engine, self.program = engine, program
        self.reached: Values | None = None

    @abstractmethod
    def farthest(self, filling: Filling, path: Path) -> tuple[int, Values, LinearArrays, float]:
        """The segment in which the rise ends, its optimum and its program, and the part of all
        levels that the optimum has."""

    @abstractmethod
    def last(self, filling: Filling) -> Values:
        """The optimum of the last program."""


class _PricedRuns(_Runs):
    """Stages by prices of the resources."""

    def __init__(self, engine: Engine, program: AllocationProgram, solver: type[Solver]) -> None:
        super().__init__(engine, program)
        self.session = solver().open_filling(program, engine.limits)

    def farthest(self, filling: Filling, path: Path) -> tuple[int, Values, LinearArrays, float]:
        # Levels are exact to rounding. A slack of many classes would let others rise by more than
        # that.
        filling.loose, filling.empties, filling.empties_last = 0.0, True, True
        number, values, met = self.session.stage(path, self.engine.limits_left())
        arrays = self.engine.build(lambda: filling.segment(path, number))
        return number, self.engine.record(values), arrays, met

    def last(self, filling: Filling) -> Values:
        filling.loose = LOOSE
        return self.engine.record(self.session.last(filling.final(), self.engine.limits_left()))


class _LinearRuns(_Runs):
    """Stages as linear programs, in one session whose program changes in place."""

    def __init__(self, engine: Engine, program: AllocationProgram, solver: str | None) -> None:
        super().__init__(engine, program)
        self.solver = solver
        self.session: Session | None = None

    def farthest(self, filling: Filling, path: Path) -> tuple[int, Values, LinearArrays, float]:
        if self.session is None:
            first = self.engine.build(lambda: filling.segment(path, 0))
            prefer = VERTEX if first.shape[0] > LARGE_LP else None
            self.session = self.engine.open(
                first, self.solver, classes=self.program.classes, prefer=prefer
            )
            chosen = self.engine.chosen
            assert chosen is not None  # by `open`
            chosen.require(Capability.DUALS, "lexicographic filling")
        # The rise ends in one of the segments low, ..., high - 1.
        low, high, number, step = 0, len(path.breaks), 0, 1
        while True:
            values = self._run(partial(filling.segment, path, number))
            if values.termination in (*STOPPED, Termination.IMPRECISE):
                return number, values, self.session.arrays, 1.0
            start, end = path.segment(number)
            rise = -np.inf
            if values.x is not None and values.termination not in NO_OPTIMUM:
                rise = float(values.x[self.program.classes.columns])
            # The levels at the start of the segment are kept: an answer if the next run is stopped.
            if rise >= 0.0:
                self.reached = values
            if rise == -np.inf and number == low and filling.loose < LOOSEST:
                # The solver met the levels of earlier stages less closely than the slack of its
                # rows.
                filling.loose *= 10.0
                continue
            # Not even the start of the segment is reached: the rise ends before it.
            if number > low and rise < -REACHED:
                high = number
            # The rise goes to the end of the segment, and so perhaps beyond.
            elif number + 1 < high and rise * end >= (end - start) * (1.0 - REACHED):
                low = number + 1
            else:
                return number, values, self.session.arrays, 1.0
            # Steps double until a segment is beyond the rise; then the interval is halved.
            if high == len(path.breaks):
                step = min(2 * step, high - low)
                number = min(low + step - 1, high - 1)
            else:
                number = (low + high) // 2

    def last(self, filling: Filling) -> Values:
        """The last program; looser where a solver finds nothing, certified as if it were not."""
        while True:
            values = self._run(filling.last)
            if values.termination not in NO_OPTIMUM or filling.loose >= LOOSEST:
                return values
            filling.loose *= 10.0

    def _run(self, program: Callable[[], LinearArrays]) -> Values:
        """Change the program of the session, and run it."""
        assert self.session is not None
        self.session.become(self.engine.build(program))
        return self.engine.run(self.session)


def _duals(engine: Engine, values: Values, arrays: LinearArrays) -> FloatArray:
    y = values.y
    if y is None or y.shape != arrays.row_upper.shape or not np.isfinite(y).all():
        raise SolverCrashed(f"solver {engine.name} gave no duals, and filling goes by them")
    return y


def _blocks(arrays: LinearArrays, y: FloatArray) -> dict[str, FloatArray]:
    return {block.name: y[block.slice] for block in arrays.rows}


def _stopped(
    engine: Engine,
    program: AllocationProgram,
    final: AllocationProgram,
    values: Values,
    reached: Values | None,
    stages: Sequence[Stage],
) -> SolvedProgram:
    """The result if a run ends without an optimum: the last point that keeps all levels, or else
    the point of this run; ``final`` demands the levels of the stages before.
    """
    if values.termination not in (*STOPPED, Termination.IMPRECISE):
        outcome = without_point(engine, program.feasible_set().arrays, values, program)
        return SolvedProgram(program, outcome, stages=tuple(stages))
    arrays = engine.build(lambda: final.to_linear().arrays)
    points = [point.x for point in (reached, values) if point is not None and point.x is not None]
    outcome = nothing_found(engine, values)
    for x in points:
        point = replace(values, x=x, y=None, objective=None, bound=None)
        outcome = _without_stages(certified_allocation(engine, final, point, None, arrays))
        if outcome.x is not None:
            break
    found = outcome.x is not None
    return SolvedProgram(
        final if found else program,
        outcome,
        stages=tuple(stages),
        notes=_stopped_words(stages) if found else (),
    )


def _without_stages(outcome: Outcome) -> Outcome:
    """The outcome as feasible at most: without the stages its levels are not proved."""
    if outcome.status is not Status.OPTIMAL:
        return outcome
    return replace(outcome, status=Status.FEASIBLE)


def _stopped_words(stages: Sequence[Stage]) -> tuple[str, ...]:
    """Notes on a filling that was stopped: its bound, and what its first stage proves."""
    why = (
        "filling was stopped: its objective is a total over the levels of all stages, "
        "and until all "
        "end its bound is what the jobs could have alone"
    )
    if not stages or stages[0].bound is None:
        return (f"{why}; no stage ended, so that no level is proved either",)
    return (
        f"{why}; the duals of the first stage prove that not all jobs can rise beyond "
        f"{stages[0].bound:.6g}",
    )


def filling_of(program: AllocationProgram, stages: Sequence[Stage]) -> Filling:
    """The filling in its first state, with the settings under which the stages were solved."""
    marks = stages[0].kept.get(CLOSES, EMPTY) if stages else np.array([2.0])
    closes = float(marks[0]) if len(marks) else 0.0
    return Filling(program, closes > 0, closes > 1, closes > 2, closes > 3)


def replayed(filling: Filling, stage: Stage) -> tuple[float | None, float]:
    """Advance the filling by a solved stage; returns the bound that its duals prove, and the unit
    of its rise.

    Raises
    ------
    ValueError
        The stage does not belong to this state of the filling.
    """
    path = filling.path()
    stated, filling.loose = float(stage.kept["segment"][0]), float(stage.kept["slack"][0])
    number = int(stated)
    known = number == stated and 0 <= number < len(path.breaks)
    met = float(stage.kept[MET][0]) if MET in stage.kept else 1.0
    exact = 0.0 <= filling.loose <= LOOSEST and 1.0 - LOOSEST <= met <= 1.0
    if not exact or filling.done or not known:
        raise ValueError("nobody rises there")
    arrays = filling.segment(path, number)
    duals = stage.duals or {}
    if {block.name: len(block) for block in arrays.rows} != {
        name: len(block) for name, block in duals.items()
    }:
        raise ValueError("its duals are not those of the rows of its program")
    y = np.concatenate([duals[block.name] for block in arrays.rows])
    if row_sign_error(arrays, y) > WRONG_SIGN:
        raise ValueError("some of its duals have a sign that their rows cannot have")
    bound = dual_bound(arrays, y)
    filling.freeze(path, number, arrays, stage.value, y, bound, met)
    low, high = path.segment(number)
    return None if bound is None else low + bound * high, high
