"""Where `auto` chose and a solver fails, others are tried, and all attempts are told."""

from __future__ import annotations

import signal
import sys
from dataclasses import replace
from typing import Any

import pytest
from programs import program

import optsched
from optsched.arrays import FloatArray
from optsched.errors import SolverCrashed, SolverUnavailable
from optsched.generate import generate

# Private names: single strategies, without the engine that chooses them
from optsched.instance.durations import Timer
from optsched.program import LinearArrays
from optsched.solution import Termination, Values
from optsched.solvers import Clarabel, CpSat, Highs, HighsSession, Limits, Session
from optsched.solvers.base import ReloadedSession
from optsched.solvers.cvxpy import Scs
from optsched.solvers.ortools import Scip
from optsched.solvers.prices.solver import PriceMethod
from optsched.study import verify_program


class Spoiled(HighsSession):
    """HiGHS without duals worth anything."""

    def run(self, limits: Limits) -> Values:
        values = super().run(limits)
        return replace(values, y=None if values.y is None else values.y * 0.0)


@pytest.fixture
def spoiled(monkeypatch: pytest.MonkeyPatch) -> None:
    def open_spoiled(self: Highs, program: LinearArrays) -> Session:
        return Spoiled(program, self.algorithm)

    monkeypatch.setattr(Highs, "open", open_spoiled)


@pytest.mark.usefixtures("spoiled")
def test_auto_tries_another_solver_and_says_so() -> None:
    solution = optsched.solve("@quickstart")
    assert solution.ok and solution.status == "optimal" and solution.solver.name == "clarabel"
    first, second = solution.solver.attempts
    assert (first.name, second) == ("highs", ("clarabel", "optimal"))
    assert first.outcome.startswith("the certificate does not hold: the solver claims optimality")
    document = solution.to_document()
    assert [attempt["name"] for attempt in document["solver"]["attempts"]] == ["highs", "clarabel"]
    assert {"attempt.highs", "attempt.clarabel"} <= set(document["timings"])
    assert optsched.verify("@quickstart", document).ok


@pytest.mark.usefixtures("spoiled")
def test_a_point_whose_claim_does_not_hold_is_the_answer_where_it_is_the_best(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Clarabel stops far from the optimum that HiGHS found and could not prove."""
    best = optsched.solve("@quickstart", solver="clarabel")
    run = ReloadedSession.run

    def stop_early(self: ReloadedSession, limits: Limits) -> Values:
        values = run(self, limits)
        assert values.x is not None
        return replace(values, termination=Termination.IMPRECISE, x=0.5 * values.x)

    monkeypatch.setattr(ReloadedSession, "run", stop_early)
    solution = optsched.solve("@quickstart")
    assert solution.ok and solution.objective == pytest.approx(best.objective)
    assert solution.solver.name == "highs"
    assert solution.gap == pytest.approx(0.0, abs=1e-6)  # by the duals of Clarabel
    assert optsched.verify("@quickstart", solution.to_document()).ok


@pytest.mark.usefixtures("spoiled")
def test_a_solver_that_was_asked_for_is_never_replaced() -> None:
    solution = optsched.solve("@quickstart", solver="highs")
    assert not solution.ok and solution.solver.name == "highs"


def crash(self: HighsSession, limits: Limits) -> Values:
    raise SolverCrashed("HiGHS raised RuntimeError: boom")


FORMULATIONS = ("max-min-fairness", "finish-time-fairness", "water-filling", "throughput-per-cost")


@pytest.mark.parametrize("name", FORMULATIONS)
def test_another_solver_is_tried_after_a_crash(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    expected = optsched.solve("@quickstart", name).objective
    monkeypatch.setattr(HighsSession, "run", crash)
    solution = optsched.solve("@quickstart", name)
    assert solution.status == "optimal" and solution.objective == pytest.approx(expected, rel=1e-6)
    assert solution.solver.attempts == (
        ("highs", "HiGHS raised RuntimeError: boom"),
        ("clarabel", "optimal"),
    )


def test_whole_jobs_after_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = optsched.solve("@packing", "max-throughput", integral=True).objective
    monkeypatch.setattr(HighsSession, "run", crash)
    solution = optsched.solve("@packing", "max-throughput", integral=True)
    assert solution.status == "optimal" and solution.objective == pytest.approx(expected)
    assert solution.solver.name == "scip"


def test_a_crash_of_the_solver_that_was_asked_for_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(HighsSession, "run", crash)
    with pytest.raises(SolverCrashed, match="boom"):
        optsched.solve("@quickstart", solver="highs")


@pytest.fixture
def all_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    def conic(self: Clarabel, program: object, limits: Limits) -> Values:
        raise SolverCrashed("Clarabel raised RuntimeError: boom")

    monkeypatch.setattr(HighsSession, "run", crash)
    monkeypatch.setattr(ReloadedSession, "run", crash)
    monkeypatch.setattr(Clarabel, "solve_conic", conic)
    monkeypatch.setattr(Scs, "solve_conic", conic)
    monkeypatch.setattr(Scip, "open", lambda *_: (_ for _ in ()).throw(SolverCrashed("SCIP: boom")))


@pytest.mark.usefixtures("all_crash")
@pytest.mark.parametrize("name", [*FORMULATIONS, "alpha-fairness", "multiple-choice"])
def test_a_point_that_is_known_is_the_answer_where_all_solvers_fail(name: str) -> None:
    solution = optsched.solve("@quickstart", name)
    assert solution.ok and solution.status == "feasible" and solution.objective is not None
    assert solution.solver.attempts[-1] == ("known point", "feasible")
    found = optsched.verify("@quickstart", solution.to_document())
    assert found.ok, str(found)


ALONE = [*FORMULATIONS, "alpha-fairness", "multiple-choice", "drf", "max-throughput"]


@pytest.mark.parametrize("constraints", [[], [{"kind": "budget", "limit": 20.0}]])
@pytest.mark.parametrize("name", ALONE)
def test_a_known_point_has_the_bound_of_what_all_jobs_could_have_alone(
    request: pytest.FixtureRequest, name: str, constraints: list[Any]
) -> None:
    best = optsched.solve("@quickstart", name, constraints=constraints)
    request.getfixturevalue("all_crash")
    solution = optsched.solve("@quickstart", name, constraints=constraints)
    assert solution.ok and solution.bound_source == "dual"  # prices find the optimum of some
    assert solution.bound is not None and best.objective is not None
    sign = 1.0 if solution.sense == "max" else -1.0
    assert sign * solution.bound >= sign * best.objective - 1e-9 * abs(best.objective)
    found = optsched.verify("@quickstart", solution.to_document())
    assert found.ok, str(found)


@pytest.mark.usefixtures("all_crash")
def test_without_a_point_the_first_crash_is_the_error() -> None:
    with pytest.raises(SolverCrashed, match="HiGHS raised"):
        optsched.solve("@quickstart", constraints=["deadlines"])
    with pytest.raises(SolverCrashed, match="HiGHS raised"):
        optsched.solve_program(program([1.0], [[1.0]], upper=[1.0]))


@pytest.mark.property
def test_many_whole_jobs_begin_with_their_relaxation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its duals prove a bound, and its point in whole jobs is where the search starts."""
    starts: list[FloatArray] = []
    real = HighsSession.set_start
    monkeypatch.setattr(
        HighsSession, "set_start", lambda self, start: (starts.append(start), real(self, start))[1]
    )
    monkeypatch.setattr("optsched.solving.engine.RELAXED_FIRST", 10)
    instance = generate("knapsack", jobs=18, choices=3, resources=3, tightness=0.3, seed=6).instance
    best = optsched.solve(instance, "multiple-choice", solver="highs")
    solution = optsched.solve(instance, "multiple-choice")
    assert solution.status == "optimal" and solution.objective == pytest.approx(
        best.objective, rel=1e-6
    )
    assert [attempt.name for attempt in solution.solver.attempts] == ["prices", "highs"]
    assert starts and best.objective is not None
    monkeypatch.setattr(HighsSession, "run", lambda self, limits: Values(Termination.WORK_LIMIT))
    stopped = optsched.solve(instance, "multiple-choice", work_limit=1)
    assert (
        stopped.status == "feasible" and stopped.objective is not None and stopped.bound is not None
    )
    assert (
        0.95 * best.objective
        <= stopped.objective
        <= best.objective * (1 + 1e-9)
        <= stopped.bound * (1 + 2e-9)
    )
    assert stopped.certificate.proof == "dual"
    found = optsched.verify(instance, stopped.to_document())
    assert found.ok and found.bound == "verified", str(found)


@pytest.mark.parametrize("served", [False, True])
@pytest.mark.parametrize("name", ["max-min-fairness", "makespan"])
def test_prices_solve_what_they_take_of_a_program(
    monkeypatch: pytest.MonkeyPatch, name: str, served: bool
) -> None:
    """Where other solvers stop short; without the rows that prices do not take, which hold anyway."""
    run = HighsSession.run

    def short(self: Session, limits: Limits) -> Values:
        if self.arrays.rows[0].name in ("master", "polish"):
            return run(self, limits)
        return Values(Termination.IMPRECISE, words="InsufficientProgress")

    instance = generate("cluster", jobs=40, seed=2).instance
    constraints: list[dict[str, object]] = [{"kind": "budget", "limit": 60.0}]
    if served:
        constraints.append({"kind": "minimum-service", "fraction": 1e-6})
    best = optsched.solve(instance, name, constraints=constraints)
    monkeypatch.setattr(HighsSession, "run", short)
    monkeypatch.setattr(ReloadedSession, "run", short)
    solution = optsched.solve(instance, name, constraints=constraints)
    assert solution.ok and solution.status == "optimal" and solution.solver.name == "prices"
    assert solution.objective == pytest.approx(best.objective, rel=1e-7)
    assert [item.name for item in solution.solver.attempts] == ["highs", "prices"]


def test_attempts_share_one_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    told: list[float | None] = []

    def run(self: HighsSession, limits: Limits) -> Values:
        nonlocal now
        told.append(limits.time)
        now += 6.0
        raise SolverCrashed("boom")

    monkeypatch.setattr(HighsSession, "run", run)
    monkeypatch.setattr(ReloadedSession, "run", run)
    solution = optsched.solve("@quickstart", time_limit=Timer.after(10.0, lambda: now))
    first, second = told  # no third one: the time is up
    assert first is not None and second is not None
    assert 10.0 - first == pytest.approx(0.0, abs=2.5)  # what is kept back for the certificate
    assert second < first - 5.0
    assert [attempt.name for attempt in solution.solver.attempts] == [
        "highs",
        "clarabel",
        "known point",
    ]


def test_what_the_clock_left_out_is_not_reproducible(monkeypatch: pytest.MonkeyPatch) -> None:
    """The relaxation ends in time, yet leaves none for whole jobs: its point is the answer, and not by itself."""
    now = 1000.0
    real = PriceMethod.solve_allocation

    def slow(self: PriceMethod, *given: Any) -> Values:
        nonlocal now
        now += 9.9
        return real(self, *given)

    instance = generate("knapsack", jobs=16, choices=3, resources=3, tightness=0.3, seed=4).instance
    monkeypatch.setattr("optsched.solving.engine.RELAXED_FIRST", 10)
    monkeypatch.setattr(PriceMethod, "solve_allocation", slow)
    solution = optsched.solve(
        instance, "multiple-choice", time_limit=Timer.after(10.0, lambda: now)
    )
    assert (solution.status, solution.termination, solution.reproducible) == (
        "feasible",
        "time_limit",
        False,
    )
    assert [attempt.name for attempt in solution.solver.attempts] == ["prices"]
    assert optsched.verify(instance, solution.to_document()).ok


@pytest.mark.parametrize("end", [Termination.TIME_LIMIT, Termination.INTERRUPTED])
def test_what_stopped_the_solver_of_whole_jobs_is_why_the_point_is_no_better(
    monkeypatch: pytest.MonkeyPatch, end: Termination
) -> None:
    """The point is that of the relaxation, which was solved."""
    instance = generate("knapsack", jobs=16, choices=3, resources=3, tightness=0.3, seed=4).instance
    monkeypatch.setattr("optsched.solving.engine.RELAXED_FIRST", 10)
    monkeypatch.setattr(HighsSession, "run", lambda session, limits: Values(end))
    monkeypatch.setattr("optsched.solving.runs.others", lambda *_, **__: ())
    solution = optsched.solve(instance, "multiple-choice", time_limit=Timer.after(10.0))
    assert (solution.status, solution.termination) == ("feasible", end)
    assert solution.solver.attempts[0].name == "prices"
    assert optsched.verify(instance, solution.to_document()).ok


def test_a_search_interrupted_between_two_attempts_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    real = PriceMethod.solve_allocation

    def interrupted(self: PriceMethod, *given: Any) -> Values:
        values = real(self, *given)
        signal.raise_signal(signal.SIGINT)
        return values

    instance = generate("knapsack", jobs=16, choices=3, resources=3, tightness=0.3, seed=4).instance
    monkeypatch.setattr("optsched.solving.engine.RELAXED_FIRST", 10)
    monkeypatch.setattr(PriceMethod, "solve_allocation", interrupted)
    solution = optsched.solve(instance, "multiple-choice")
    assert (solution.status, solution.termination, solution.reproducible) == (
        "feasible",
        "interrupted",
        False,
    )
    assert optsched.verify(instance, solution.to_document()).ok


@pytest.mark.parametrize("end", [Termination.TIME_LIMIT, Termination.WORK_LIMIT])
def test_an_attempt_that_the_clock_stopped_is_not_reproducible(
    monkeypatch: pytest.MonkeyPatch, end: Termination
) -> None:
    """The relaxation is stopped and whole jobs are solved: where that starts, and its bound, are up to the clock."""
    real = PriceMethod.solve_allocation

    def stopped(self: PriceMethod, *given: Any) -> Values:
        return replace(real(self, *given), termination=end)

    instance = generate("knapsack", jobs=16, choices=3, resources=3, tightness=0.3, seed=4).instance
    monkeypatch.setattr("optsched.solving.engine.RELAXED_FIRST", 10)
    monkeypatch.setattr(PriceMethod, "solve_allocation", stopped)
    solution = optsched.solve(instance, "multiple-choice")
    assert [attempt.name for attempt in solution.solver.attempts] == ["prices", "highs"]
    assert solution.status == "optimal" and solution.reproducible == (
        end is not Termination.TIME_LIMIT
    )
    assert optsched.verify(instance, solution.to_document()).ok


@pytest.mark.parametrize("end", [Termination.TIME_LIMIT, Termination.INTERRUPTED])
def test_what_stopped_the_solver_is_the_reason(
    monkeypatch: pytest.MonkeyPatch, end: Termination
) -> None:
    """Also where the answer is the point of the relaxation, which nothing stopped."""
    now, real = 1000.0, HighsSession.run

    def run(self: HighsSession, limits: Limits) -> Values:
        nonlocal now
        if not self.arrays.is_integer:
            return real(self, limits)
        now += 60.0
        return Values(end)

    instance = generate("knapsack", jobs=18, choices=3, resources=3, tightness=0.3, seed=6).instance
    monkeypatch.setattr("optsched.solving.engine.RELAXED_FIRST", 10)
    monkeypatch.setattr(HighsSession, "run", run)
    limit = Timer.after(60.0, lambda: now)
    solution = optsched.solve(instance, "multiple-choice", time_limit=limit)
    assert (solution.status, solution.termination, solution.reproducible) == (
        "feasible",
        end,
        False,
    )
    assert solution.bound is not None and optsched.verify(instance, solution.to_document()).ok


def test_a_program_that_the_clock_left_unsettled_lists_its_only_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1000.0

    def run(self: HighsSession, limits: Limits) -> Values:
        nonlocal now
        now += 10.0
        return Values(Termination.IMPRECISE)

    monkeypatch.setattr(HighsSession, "run", run)
    arrays = program([1.0], [[1.0]], upper=[1.0])
    solution = optsched.solve_program(arrays, time_limit=Timer.after(10.0, lambda: now))
    assert [attempt.name for attempt in solution.solver.attempts] == [
        "highs"
    ] and not solution.reproducible
    assert verify_program(arrays, solution.to_document()).ok


def test_schedules_after_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = generate("unrelated", jobs=6, machines=2, seed=3).instance
    best = optsched.solve(instance, "makespan-unrelated", program="timeline")

    def crashed(*_: object) -> Values:
        raise SolverCrashed("CP-SAT: boom")

    monkeypatch.setattr(CpSat, "solve_timeline", crashed)
    solution = optsched.solve(instance, "makespan-unrelated", program="timeline")
    assert solution.status == "optimal" and solution.objective == pytest.approx(best.objective)
    assert solution.solver.attempts == (("cp-sat", "CP-SAT: boom"), ("highs", "optimal"))
    monkeypatch.setattr(HighsSession, "run", crash)
    solution = optsched.solve(instance, "makespan-unrelated", program="timeline")
    assert solution.ok and solution.status == "feasible" and solution.schedule is not None
    assert solution.solver.attempts[-1] == ("known point", "feasible")
    assert optsched.verify(instance, solution.to_document()).ok
    with pytest.raises(SolverCrashed, match="CP-SAT: boom"):
        optsched.solve(instance, "makespan-unrelated", program="timeline", solver="cp-sat")


def test_where_the_chosen_library_is_not_installed_the_next_solver_is_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected = optsched.solve("@quickstart", "proportional-fairness").objective
    monkeypatch.setitem(sys.modules, "clarabel", None)
    solution = optsched.solve("@quickstart", "proportional-fairness")
    assert solution.ok and solution.solver.name == "scs"
    assert solution.objective == pytest.approx(expected, rel=1e-6)
    first, second = solution.solver.attempts
    assert first.name == "clarabel" and "install clarabel" in first.outcome
    assert second == ("scs", "optimal")


def test_where_no_library_is_installed_the_error_names_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "clarabel", None)
    monkeypatch.setattr(Scs, "engine", "NONE")
    with pytest.raises(SolverUnavailable, match=r"install clarabel.*solver scs is not installed"):
        optsched.solve("@quickstart", "proportional-fairness")


def test_a_library_that_was_asked_for_and_is_not_installed_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "clarabel", None)
    with pytest.raises(SolverUnavailable, match="install clarabel"):
        optsched.solve("@quickstart", "proportional-fairness", solver="clarabel")


def test_a_timeline_is_solved_without_the_library_of_the_chosen_solver(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing() -> str:
        raise SolverUnavailable("solver cp-sat cannot be loaded; install ortools")

    instance = generate("unrelated", jobs=6, machines=2, seed=3).instance
    monkeypatch.setattr(CpSat, "version", missing)
    solution = optsched.solve(instance, "makespan-unrelated", program="timeline")
    assert solution.ok and solution.solver.name == "highs"
    assert solution.solver.attempts[0].name == "cp-sat"


def runs_of_clarabel(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The tolerances of its conic runs from now on."""
    asked: list[float] = []
    real = Clarabel.solve_conic

    def solve_conic(self: Clarabel, program: Any, limits: Limits) -> Values:
        asked.append(limits.tolerance)
        return real(self, program, limits)

    monkeypatch.setattr(Clarabel, "solve_conic", solve_conic)
    return asked


@pytest.mark.parametrize("name", ["proportional-fairness", "alpha-fairness"])
@pytest.mark.parametrize("instance", ["@quickstart", "@packing", "@leases"])
def test_a_gap_above_the_tolerance_calls_for_a_second_run_of_an_interior_point_method(
    monkeypatch: pytest.MonkeyPatch, instance: str, name: str
) -> None:
    """Clarabel stops at a gap of the tolerance, before its point is brought within the rows."""
    with monkeypatch.context() as patch:
        patch.setattr("optsched.solving.attempts.SHARPER", 1.0)
        first = optsched.solve(instance, name, solver="clarabel")
    runs = runs_of_clarabel(monkeypatch)
    solution = optsched.solve(instance, name, solver="clarabel")
    assert solution.termination == "optimal" and solution.reproducible
    assert first.gap is not None and solution.gap is not None and solution.gap <= 1e-9
    assert len(runs) == (2 if first.gap > 1e-9 else 1)


def test_a_gap_that_the_user_allows_calls_for_no_second_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs = runs_of_clarabel(monkeypatch)
    solution = optsched.solve("@quickstart", "proportional-fairness", solver="clarabel", gap=1e-6)
    assert solution.status == "optimal" and solution.gap is not None
    assert 1e-9 < solution.gap <= 1e-6
    assert len(runs) == 1


@pytest.mark.parametrize(
    ("end", "reproducible"),
    [
        (Termination.TIME_LIMIT, False),
        (Termination.WORK_LIMIT, True),
        (Termination.INFEASIBLE_OR_UNBOUNDED, True),
        (None, True),
    ],
)
def test_a_second_run_that_fails_costs_no_answer(
    monkeypatch: pytest.MonkeyPatch, end: Termination | None, reproducible: bool
) -> None:
    """Whether it crashes, is stopped, or ends farther from the optimum."""
    real = Clarabel.solve_conic

    def solve_conic(self: Clarabel, program: Any, limits: Limits) -> Values:
        if limits.tolerance == 1e-9:
            return real(self, program, limits)
        if end is None:
            raise SolverCrashed("Clarabel raised RuntimeError: boom")
        values = real(self, program, replace(limits, tolerance=1e-7))
        return replace(values, termination=end)

    with monkeypatch.context() as patch:
        patch.setattr("optsched.solving.attempts.SHARPER", 1.0)
        first = optsched.solve("@quickstart", "proportional-fairness")
    monkeypatch.setattr(Clarabel, "solve_conic", solve_conic)
    solution = optsched.solve("@quickstart", "proportional-fairness")
    assert solution.ok and solution.status == "optimal"
    assert solution.objective == first.objective and solution.bound == first.bound
    assert solution.reproducible == reproducible


def test_a_second_run_needs_as_much_time_as_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    now, runs = 1000.0, 0
    real = Clarabel.solve_conic

    def slow(self: Clarabel, *given: Any) -> Values:
        nonlocal now, runs
        now, runs = now + 6.0, runs + 1
        return real(self, *given)

    monkeypatch.setattr(Clarabel, "solve_conic", slow)
    timer = Timer.after(10.0, lambda: now)
    solution = optsched.solve("@quickstart", "proportional-fairness", time_limit=timer)
    assert runs == 1 and solution.status == "optimal" and not solution.reproducible


def test_a_coarse_tolerance_gets_one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = runs_of_clarabel(monkeypatch)
    optsched.solve("@quickstart", "proportional-fairness", tolerance=1e-4)
    assert runs == [1e-4]
