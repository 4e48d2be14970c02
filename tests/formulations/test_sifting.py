"""Sifting that a limit, the user or a crash ends."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from plan_instances import made, verified

import optsched
from formulations import deadline_fluid
from formulations.deadline_fluid import FluidProgram
from optsched.arrays import FloatArray, IntArray
from optsched.errors import Interrupted, SolverCrashed
from optsched.instance import Instance
from optsched.program import LinearArrays
from optsched.solution import Solution, Termination, Values
from optsched.solution.plan import LinearPlan, Sifting
from optsched.solvers import Session
from optsched.solving import Engine, schedules, sifting

pytestmark = pytest.mark.unit

Run = Callable[[Engine, Session], Values]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small programs are sifted, from prices of few intervals and with too few columns at first; no
    bound without a solver makes that needless.
    """
    monkeypatch.setattr(schedules, "_without_solver", lambda *_: None)
    monkeypatch.setattr(deadline_fluid, "SIFTED_FROM", 1)
    monkeypatch.setattr(deadline_fluid, "MOST_PRICING", (40,))
    monkeypatch.setattr(deadline_fluid, "WORK", 0.3)
    monkeypatch.setattr(sifting, "CHEAP", -1.0)


@pytest.fixture
def never_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody builds the program that has to be infeasible too."""
    monkeypatch.setattr(LinearPlan, "to_refute", None)


def instance(jobs: int = 12) -> Instance:
    random = np.random.default_rng(2)
    arrival, steps = random.uniform(0, 40, jobs), random.uniform(5, 20, jobs)
    rates = random.uniform(0.8, 1.4, (jobs, 2)).tolist()
    return made(
        cluster={
            "pools": [{"name": name, "nodes": 1, "gpus_per_node": 2} for name in ("v100", "p100")]
        },
        jobs=[
            {"id": f"j{n}", "gpus": 1, "arrival": at, "steps": work, "deadline": at + 6 * work}
            | {"throughput": dict(zip(("v100", "p100"), rates[n], strict=True))}
            for n, (at, work) in enumerate(zip(arrival.tolist(), steps.tolist(), strict=True))
        ],
    )


def solve() -> Solution:
    solution = verified(optsched.solve(instance(), "deadline-fluid"))
    assert solution.solver is not None
    return solution


def from_run(number: int, monkeypatch: pytest.MonkeyPatch, then: Run) -> list[int]:
    """Runs from this one on go another way; returns what counts the runs."""
    real, count = Engine.run, [0]

    def run(engine: Engine, session: Session) -> Values:
        count[0] += 1
        return then(engine, session) if count[0] >= number else real(engine, session)

    monkeypatch.setattr(Engine, "run", run)
    return count


def test_it_takes_several_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    count = from_run(100, monkeypatch, Engine.run)
    solution = solve()
    assert solution.status == "optimal" and "sifting" in solution.solver.reason
    assert count[0] >= 2


@pytest.mark.usefixtures("never_refuted")
@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("end", ["TIME_LIMIT", "WORK_LIMIT", "INTERRUPTED"])
def test_a_run_that_is_stopped_ends_it(
    end: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = Values(Termination[end])
    count = from_run(number, monkeypatch, lambda engine, session: stopped)
    solution = solve()
    assert count == [number]
    assert solution.schedule is not None
    # Prices of time prove a bound before the first run.
    assert solution.bound_source == "dual"
    assert solution.gap is not None and solution.gap < 1e-3


@pytest.mark.usefixtures("never_refuted")
def test_ctrl_c_between_two_runs_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    real, cheapest = Engine.run, FluidProgram._cheapest

    def pressed(*args: Any) -> IntArray:
        signal.raise_signal(signal.SIGINT)
        return cheapest(*args)

    # While the columns of the second run are chosen
    monkeypatch.setattr(FluidProgram, "_cheapest", pressed)
    count = from_run(100, monkeypatch, real)
    assert solve().schedule is not None
    assert count == [0]


@pytest.mark.usefixtures("never_refuted")
def test_ctrl_c_where_no_schedule_is_known_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = Values(Termination.INTERRUPTED)
    from_run(1, monkeypatch, lambda engine, session: stopped)
    jobs = [("four", 50.0, 4), ("one", 100.0, 1)]
    beside = made(
        cluster={"pools": [{"name": "v100", "nodes": 1, "gpus_per_node": 4}]},
        jobs=[
            {"id": name, "gpus": gpus, "steps": steps, "deadline": 100, "throughput": {"v100": 1.0}}
            for name, steps, gpus in jobs
        ],
    )
    with pytest.raises(Interrupted):
        optsched.solve(beside, "deadline-fluid")


@pytest.mark.usefixtures("never_refuted")
def test_the_last_point_and_its_bound_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """All columns are chosen at first, and the last of them is said to join: the second program is the same."""
    monkeypatch.setattr(deadline_fluid, "WORK", 9.0)
    optimum = solve().objective
    monkeypatch.setattr(sifting, "TOO_CHEAP", -1e9)
    stopped = Values(Termination.WORK_LIMIT)
    from_run(2, monkeypatch, lambda engine, session: stopped)
    solution = solve()
    assert solution.objective == pytest.approx(optimum, rel=1e-9)
    assert solution.bound == pytest.approx(optimum, rel=1e-6)


@pytest.mark.usefixtures("never_refuted")
def test_a_point_that_is_no_optimum_is_run_and_not_called_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In the first program a job lacks its pool of an optimum; the time is over before that joins."""
    others, begun, realise = [], sifting._begun, FluidProgram.realise

    def noted(program: FluidProgram, x: FloatArray, *given: Any) -> Any:
        others.append(np.flatnonzero(program.of != program.of[np.argmax(x)]))
        return realise(program, x, *given)

    def without_optimum(*given: Any) -> tuple[FloatArray, IntArray]:
        return begun(*given)[0], others[0]

    monkeypatch.setattr(FluidProgram, "realise", noted)
    optimum = solve().objective
    monkeypatch.setattr(sifting, "_begun", without_optimum)
    monkeypatch.setattr(FluidProgram, "witness", None)
    stopped = Values(Termination.TIME_LIMIT)
    from_run(2, monkeypatch, lambda engine, session: stopped)
    solution = solve()
    assert (solution.status, solution.notes) == ("feasible", (schedules.STOPPED_AT,))
    assert solution.objective > optimum * (1 + 1e-6)


def test_another_solver_is_tried_after_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    def crashed(engine: Engine, session: Session) -> Values:
        if engine.name == "highs":
            raise SolverCrashed("solver highs crashed")
        return real(engine, session)

    real = Engine.run
    monkeypatch.setattr(Engine, "run", crashed)
    solution = solve()
    assert solution.status == "optimal"
    assert solution.solver.name != "highs"
    assert "solver highs crashed" in [each.outcome for each in solution.solver.attempts]


def test_no_optimum_is_claimed_while_columns_are_too_cheap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """None of the columns that would be used is new: the others that are too cheap join all the same."""
    exact = solve()
    monkeypatch.setattr(sifting, "ALL_JOIN", 0)
    nothing = np.zeros(0, np.int64)
    monkeypatch.setattr(
        deadline_fluid,
        "Sifting",
        lambda duals, _: Sifting(duals, lambda y: nothing),
    )
    solution = solve()
    assert solution.solver is not None and solution.solver.reason.startswith("sifting")
    assert solution.objective == pytest.approx(exact.objective, abs=1e-9)
    assert solution.status == exact.status == "optimal"


def test_rows_that_cannot_be_violated_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the first columns no two are of one job and interval, so that no row `time` counts."""
    rows: list[list[str]] = []
    real = sifting._RestrictedProgram

    class Watched(real):  # type: ignore[misc, valid-type]
        def __init__(self, arrays: LinearArrays, chosen: IntArray, penalty: float) -> None:
            super().__init__(arrays, chosen, penalty)
            rows.append([arrays.row_name(row)[0] for row in self.rows.tolist()])

    monkeypatch.setattr(sifting, "_RestrictedProgram", Watched)
    assert solve().status == "optimal"
    assert set(rows[0]) == {"work"} and set(rows[-1]) == {"work", "capacity", "time"}


def test_a_run_to_which_few_columns_are_added_goes_on_from_the_last_basis(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Any number counts as few: the optimum is the same, and later runs take fewer iterations."""
    iterations: dict[float, list[int]] = {0.0: [], 100.0: []}
    objectives = []
    for few, counts in iterations.items():
        real = Engine.record

        def counted(engine: Engine, values: Values, *shape: Any) -> Values:
            counts.append(values.iterations)  # noqa: B023
            return real(engine, values, *shape)  # noqa: B023

        with monkeypatch.context() as patch:
            patch.setattr(sifting, "FEW_JOIN", few)
            patch.setattr(Engine, "record", counted)
            objectives.append(solve().objective)
    assert objectives[0] == pytest.approx(objectives[1], rel=1e-9)
    assert sum(iterations[100.0]) < sum(iterations[0.0])


@pytest.mark.parametrize("amount", [25.0, 14.0, 7.0])
def test_budgets_bind_though_the_first_prices_know_none(
    monkeypatch: pytest.MonkeyPatch, amount: float
) -> None:
    """25 is enough for the fast option of each job, 14 for some of them, and 7 for too few."""
    options = [
        {"pool": "v100", "gpus": 1, "duration": 100, "uses": {"dollars": 4}},
        {"pool": "v100", "gpus": 1, "duration": 300, "uses": {"dollars": 1}},
    ]
    resource = {"name": "dollars", "capacity": amount, "kind": "consumable"}
    pool = {"name": "v100", "nodes": 1, "gpus_per_node": 6}
    beside = made(
        cluster={"pools": [pool], "resources": [resource]},
        jobs=[
            {"id": f"j{n}", "deadline": 250 + 10 * n, "arrival": 5 * n, "options": options}
            for n in range(6)
        ],
    )
    by_sifting = verified(optsched.solve(beside, "deadline-fluid"))
    monkeypatch.setattr(deadline_fluid, "SIFTED_FROM", 10**9)
    exact = verified(optsched.solve(beside, "deadline-fluid"))
    assert by_sifting.status == exact.status == ("infeasible" if amount < 8 else "optimal")
    if amount > 8:
        assert by_sifting.objective == pytest.approx(exact.objective, rel=1e-9)
