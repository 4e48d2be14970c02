"""One time limit for a whole call: what counts, where it is looked at, and what is kept back.

No test measures time: the clock is a value that the test moves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from programs import program

import optsched
from optsched import api
from optsched.candidates import compile as compile_candidates
from optsched.cli.main import main

# A private name: the timer of a command, for a clock that the test moves
from optsched.cli.options import Search
from optsched.formulation import Formulation

# Private names: single strategies, without the engine that chooses them
from optsched.instance import durations
from optsched.instance.durations import OutOfTime, Timer
from optsched.placement import check_rounds
from optsched.program import linear_to_conic
from optsched.registry import load_solver
from optsched.solution import Solution, Termination
from optsched.solvers import HighsSession, Limits
from optsched.solvers.clarabel import SET_UP, solve_conic
from optsched.solving import Engine
from optsched.solving.runs import RESERVED


class Clock:
    """A clock that a test moves."""

    def __init__(self, step: float = 0.0) -> None:
        self.now, self.step = 1000.0, step

    def __call__(self) -> float:
        self.now += self.step
        return self.now

    def slows(self, function: Callable[..., Any], seconds: float) -> Callable[..., Any]:
        """The function, which takes so long by this clock."""

        def slow(*given: Any, **named: Any) -> Any:
            self.now += seconds
            return function(*given, **named)

        return slow


def cut_off_after(
    stage: str, monkeypatch: pytest.MonkeyPatch, seconds: float = 6.0
) -> tuple[Solution, list[float | None]]:
    """A solve within 5 s of which one stage takes 6 s, and the times that solvers were given."""
    clock, given = Clock(), []
    owner, name = {
        "reading": (api, "load"),
        "compiling": (api, "compile_for"),
        "building the program": (Formulation, "program"),
    }[stage]
    run = HighsSession.run

    def noted(session: HighsSession, limits: Limits) -> Any:
        given.append(limits.time)
        return run(session, limits)

    monkeypatch.setattr(HighsSession, "run", noted)
    monkeypatch.setattr(owner, name, clock.slows(getattr(owner, name), seconds))
    return optsched.solve("@quickstart", time_limit=Timer.after(5.0, clock)), given


STAGES = ["reading", "compiling", "building the program"]


def test_a_point_is_found_though_reading_took_the_whole_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    solution, _ = cut_off_after("reading", monkeypatch)
    assert solution.allocation is not None and solution.bound is not None and solution.ok


def test_a_slow_machine_that_reads_for_long_may_compile_for_as_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock()
    monkeypatch.setattr(api, "load", clock.slows(api.load, 8.0))
    compiled = clock.slows(api.compile_for, 4.0)
    monkeypatch.setattr(api, "compile_for", compiled)
    solution = optsched.solve("@quickstart", time_limit=Timer.after(5.0, clock))
    assert solution.allocation is not None and solution.ok
    monkeypatch.setattr(api, "compile_for", clock.slows(compiled, 5.0))
    solution = optsched.solve("@quickstart", time_limit=Timer.after(5.0, clock))
    assert (solution.status, solution.allocation) == ("limit", None)


@pytest.mark.parametrize("stage", STAGES[1:])
def test_a_stage_that_takes_the_whole_limit_ends_in_a_status(
    stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    solution, given = cut_off_after(stage, monkeypatch)
    monkeypatch.undo()
    assert (solution.status, solution.termination) == ("limit", "time_limit")
    assert (
        not solution.unplaced
        and not solution.reproducible
        and solution.allocation is None
        and solution.ok
    )
    assert not given  # no solver was begun
    note = solution.notes[0]
    assert f"{stage} took 6 s" in note and "time limit of 5 s" in note
    assert note.endswith("try 12 s or more")
    assert optsched.verify("@quickstart", solution.to_document()).ok


def test_a_plan_that_took_the_whole_limit_answers_with_the_schedule_by_rule(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its program is not solved, but a rule has found a schedule while it was built."""
    clock = Clock()
    monkeypatch.setattr(Formulation, "program", clock.slows(Formulation.program, 6.0))
    limit = Timer.after(5.0, clock)
    solution = optsched.solve("@quickstart", "deadline-elastic", admission=True, time_limit=limit)
    assert solution.schedule is not None and solution.status in ("feasible", "optimal")
    assert solution.ok


@pytest.mark.parametrize("stage", STAGES)
def test_what_comes_before_the_solver_counts(stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    solution, given = cut_off_after(stage, monkeypatch, seconds=2.0)
    assert solution.status == "optimal"
    reserved = 0.0 if stage == "reading" else RESERVED * 5.0
    assert given[0] == pytest.approx(5.0 - 2.0 - reserved)


def test_the_command_says_what_took_the_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = Clock(step=1e-6)
    monkeypatch.setattr(durations, "LEAST", 0.0)
    monkeypatch.setattr(Search, "timer", Timer.after(5.0, clock))
    monkeypatch.setattr(api, "load", clock.slows(api.load, 6.0))
    monkeypatch.setattr(api, "compile_for", clock.slows(api.compile_for, 7.0))
    assert main(["solve", "@quickstart", "--time-limit", "5"]) == 5
    printed = capsys.readouterr()
    assert (
        "limit" in printed.out
        and "before a solver could begin: reading took 6 s, compiling took 7 s" in printed.err
    )


def test_a_small_problem_is_not_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(api, "load", clock.slows(api.load, 0.9))
    solution = optsched.solve("@quickstart", time_limit=Timer.after(0.001, clock))
    assert solution.allocation is not None


def test_compiling_looks_at_the_clock_between_its_passes() -> None:
    """Each look takes a second: within 100 s all passes are done, and within fewer some of them."""
    instance = optsched.load("@quickstart")
    model = api.model_of(instance)
    clock = Clock(step=1.0)
    compile_candidates(instance, model, timer=Timer.after(100.0, clock))
    looks = clock.now - 1000.0
    assert looks >= 4.0
    for limit in np.arange(1.0, looks / 2 - 1.0):
        with pytest.raises(OutOfTime):
            compile_candidates(instance, model, timer=Timer.after(limit, Clock(step=1.0)))


@pytest.mark.parametrize(("compiled", "kept"), [(0.0, 0.0), (1.0, 1.0), (8.0, 10.0 * RESERVED)])
def test_time_is_kept_back_for_what_comes_after_the_solver(compiled: float, kept: float) -> None:
    clock = Clock()
    engine = Engine(
        load_solver,
        limits=Limits(time=10.0),
        timings={"compile": compiled},
        timer=Timer.after(10.0, clock),
    )
    assert engine.limits_left().time == pytest.approx(10.0 - kept)
    clock.now += 4.0
    assert engine.limits_left().time == pytest.approx(6.0 - kept)
    clock.now += 7.0
    assert engine.limits_left().time == pytest.approx(1e-3)
    assert not engine.has_time_left(0.05)


@pytest.mark.parametrize(("jobs", "left"), [(0, 10.0), (100, 9.0), (10_000, 7.5)])
def test_time_is_kept_back_for_what_the_caller_does_with_the_answer(jobs: int, left: float) -> None:
    """Such as to write a file: so much for each job, and a quarter of the limit at most."""
    timer = Timer(10.0, 1000.0, Clock(), kept_per_job=0.01)
    assert timer.keeping(jobs).left == pytest.approx(left)
    assert Timer(None, 1000.0, Clock(), kept_per_job=0.01).keeping(jobs).left == np.inf


def test_the_command_keeps_time_back_to_write(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[float | None] = []
    run = HighsSession.run

    def noted(session: HighsSession, limits: Limits) -> Any:
        given.append(limits.time)
        return run(session, limits)

    monkeypatch.setattr(HighsSession, "run", noted)
    monkeypatch.setattr("optsched.cli.options.WRITING", 1000.0)
    assert main(["solve", "@quickstart", "--time-limit", "1000", "--quiet"]) == 0
    assert given[0] is not None and 500.0 < given[0] <= 750.0


def test_without_a_limit_nothing_is_kept_back() -> None:
    engine = Engine(load_solver, timings={"compile": 8.0})
    assert engine.limits_left().time is None and engine.has_time_left(0.99)


def test_a_timer_that_is_shared_goes_on() -> None:
    """What comes after a solve, such as rounds, has what the solve left."""
    clock = Clock()
    timer = Timer.after(50.0, clock)
    solution = optsched.solve("@quickstart", time_limit=timer)
    clock.now += 49.0
    assert optsched.realise(solution, time_limit=timer).rounds is not None
    assert timer.left == pytest.approx(1.0)


@pytest.mark.parametrize("limit", [2.0, 50.0, 80.0])
def test_rounds_are_made_though_the_time_is_over(limit: float) -> None:
    """Each look takes a second: no time for plain patterns, for their slices, or for all of these.

    Rows that run side by side, the longest first, are there at once.
    """
    random = np.random.default_rng(1)
    instance = optsched.Instance.from_arrays(
        pools={"a": 20, "b": 15},
        throughput=random.lognormal(0, 1, (60, 2)),
        gpus=random.choice([1, 3, 5, 7], 60),
    )
    solution = optsched.solve(instance, "makespan")
    clock = Clock(step=1.0)
    made = optsched.realise(solution, "patterns", time_limit=Timer.after(limit, clock))
    assert made.rounds is not None and made.allocation is not None
    assert limit < clock.now - 1001.0 < limit + 10.0
    assert not made.rounds.finished and 0.9 < made.rounds.scale < made.rounds.bound == 1.0
    assert made.notes[-1] == f"the time limit of {limit:g} s stopped the search for rounds"
    assert check_rounds(made.rounds, made.allocation.classes) == []
    assert optsched.verify(instance, made.to_document()).ok


def test_the_set_up_of_clarabel_counts() -> None:
    cones = linear_to_conic(program([1.0], [[1.0]], upper=[1.0]).arrays)
    values = solve_conic(cones, Limits(time=1e-9))
    assert (values.termination, values.words) == (Termination.TIME_LIMIT, SET_UP)
