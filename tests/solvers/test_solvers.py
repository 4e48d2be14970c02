"""The engine with its back-ends: conflicts, one budget for all runs, what is missing or crashes, the choice of auto."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import dense, hard_knapsacks, infeasible

from optsched.errors import SolverCrashed, SolverUnavailable
from optsched.registry import load_solver
from optsched.solution import Termination
from optsched.solvers import Capability, Limits, Progress
from optsched.solving import Engine


def engine(name: str, **limits: object) -> Engine:
    return Engine(load_solver, name, Limits(**limits))


def needs(name: str, *capabilities: Capability) -> None:
    """Skip a back-end that does not claim these capabilities."""
    missing = [str(item) for item in capabilities if item not in load_solver(name).capabilities]
    if missing:
        pytest.skip(f"{name} claims no {', '.join(missing)}")


def test_conflict_is_irreducible(solver_name: str) -> None:
    needs(solver_name, Capability.CONTINUOUS)
    outcome = engine(solver_name).solve_linear(infeasible().arrays)
    assert sorted(conflict.position for conflict in outcome.conflicts) == [0, 1]


@pytest.mark.clock
def test_limits_of_an_integer_program() -> None:
    limited = engine("highs", work=1).solve_linear(hard_knapsacks(60))
    assert limited.values.termination in (Termination.WORK_LIMIT, Termination.OPTIMAL)
    timed = engine("highs", time=0.2).solve_linear(hard_knapsacks())
    assert timed.values.termination is Termination.TIME_LIMIT and timed.values.seconds < 2.0
    assert timed.status == "feasible" and timed.certificate.ok and timed.bound >= timed.value
    loose = engine("highs", gap=0.2).solve_linear(hard_knapsacks(60))
    assert loose.status == "optimal" and loose.certificate.ok
    assert abs(loose.bound - loose.value) <= 0.2 * loose.value


@pytest.mark.clock
def test_the_budget_is_shared_by_all_runs() -> None:
    owner = engine("highs", time=0.2)
    session = owner.open(hard_knapsacks().arrays)
    first, second = owner.run(session), owner.run(session)
    assert first.termination is second.termination is Termination.TIME_LIMIT
    assert second.seconds < 0.5 * first.seconds + 0.2


@pytest.mark.clock
def test_progress_reports_bound_and_incumbent() -> None:
    events: list[Progress] = []
    engine("highs", time=0.8, on_progress=events.append).solve_linear(hard_knapsacks())
    assert any(event.bound is not None and event.incumbent is not None for event in events)
    assert [event.elapsed for event in events] == sorted(event.elapsed for event in events)


def test_unknown_solver_is_never_replaced() -> None:
    with pytest.raises(
        SolverUnavailable, match=r"unknown solver 'highz' .did you mean highs.., expected one of"
    ):
        engine("highz").solve_linear(dense())


def test_a_back_end_that_raises_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import clarabel

    def explode(*_: object) -> None:
        raise RuntimeError("out of cheese")

    monkeypatch.setattr(clarabel, "DefaultSolver", explode)
    with pytest.raises(SolverCrashed, match="Clarabel raised RuntimeError: out of cheese"):
        engine("clarabel").solve_linear(dense())


def test_a_missing_back_end_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "clarabel", None)
    with pytest.raises(SolverUnavailable, match="solver clarabel cannot be loaded"):
        engine("clarabel").solve_linear(dense())


def test_auto_depends_on_the_program_only() -> None:
    picks = {
        (rows, integer, conic): engine("auto").choose(rows=rows, integer=integer, conic=conic).name
        for rows, integer, conic in (
            (10, False, False),
            (10**5, False, False),
            (10**5, True, False),
            (10, False, True),
        )
    }
    assert list(picks.values()) == ["highs", "clarabel", "highs", "clarabel"]


def test_a_model_that_takes_all_the_time_is_not_solved() -> None:
    """PuLP makes objects of every coefficient; the time for it counts."""
    arrays = hard_knapsacks(60).arrays
    values = load_solver("cbc")().open(arrays).run(Limits(time=1e-9))
    assert values.termination is Termination.TIME_LIMIT and values.x is None
    assert values.words == "the time was over before the model was made"


@pytest.mark.filterwarnings("ignore:PULP_CBC_CMD is deprecated:DeprecationWarning")
def test_one_thread_of_cbc_is_its_own(tmp_path: Path) -> None:
    """Asked for one thread it would start another, and in one run of 150 wait for it for 10 s."""
    pulp = pytest.importorskip("pulp")
    cbc = {
        threads: load_solver("cbc").command(pulp, Limits(threads=threads), False, tmp_path / "log")
        for threads in (1, 4)
    }
    assert "threads" not in cbc[1].optionsDict and cbc[4].optionsDict["threads"] == 4


def test_what_is_left_of_limits() -> None:
    assert Limits(time=5.0, work=3).after(2.0) == Limits(time=3.0, work=3)
    assert Limits(time=5.0).after(9.0).time == 1e-3
    assert Limits().after(9.0) == Limits()
