"""A point or duals of the wrong size, or without numbers, are a crash of the solver, whoever asked it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import optsched
from optsched.arrays import FloatArray
from optsched.errors import SolverCrashed
from optsched.generate import generate
from optsched.instance import Instance
from optsched.solution import Termination, Values
from optsched.solvers import Clarabel, CpSat, HighsSession, Limits

WRONG: dict[str, Callable[[FloatArray], FloatArray]] = {
    "short": lambda numbers: numbers[:-1],
    "long": lambda numbers: np.append(numbers, 1.0),
    "empty": lambda numbers: numbers[:0],
    "a matrix": lambda numbers: numbers[:, np.newaxis],
    "nan": lambda numbers: numbers * np.nan,
}
LEASES = generate("leases", jobs=6, nodes=1, tightness=3.0, seed=1).instance
MACHINES = generate("unrelated", jobs=5, machines=2, seed=3).instance
CASES: dict[str, tuple[Instance | str, dict[str, Any]]] = {
    "max-min-fairness": ("@quickstart", {}),
    "finish-time-fairness": ("@quickstart", {}),
    "water-filling": ("@quickstart", {}),
    "drf": ("@quickstart", {}),
    "partial-allocation": ("@quickstart", {}),
    "throughput-per-cost": ("@quickstart", {}),
    "max-throughput": ("@packing", {"integral": True}),
    "multiple-choice": ("@packing", {}),
    "allox": (MACHINES, {}),
    "lease": (LEASES, {"admission": True}),
    "makespan-unrelated": (MACHINES, {"program": "assignment"}),
}
RUN = HighsSession.run


def spoiled(part: str, how: str) -> Callable[[HighsSession, Limits], Values]:
    def run(self: HighsSession, limits: Limits) -> Values:
        values = RUN(self, limits)
        numbers = getattr(values, part)
        return values if numbers is None else replace(values, **{part: WRONG[how](numbers)})

    return run


@pytest.mark.property
@pytest.mark.parametrize("how", WRONG)
@pytest.mark.parametrize("part", ["x", "y"])
@pytest.mark.parametrize("name", CASES)
def test_the_solver_crashed(
    monkeypatch: pytest.MonkeyPatch, name: str, part: str, how: str
) -> None:
    instance, options = CASES[name]
    right = optsched.solve(instance, name, **options)
    monkeypatch.setattr(HighsSession, "run", spoiled(part, how))
    auto = optsched.solve(instance, name, **options)
    assert auto.ok and auto.objective == pytest.approx(right.objective, rel=1e-6)
    assert all("numbers" in made.outcome for made in auto.solver.attempts if made.name == "highs")
    if name == "partial-allocation" or (part == "y" and right.duals is None):
        return  # HiGHS takes no cones, and programs of whole numbers have no duals
    with pytest.raises(
        SolverCrashed, match=r"highs returned no (point|duals) of [0-9]+ finite numbers"
    ):
        optsched.solve(instance, name, solver="highs", **options)


@pytest.mark.parametrize("how", WRONG)
def test_of_cones(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    honest = Clarabel.solve_conic

    def conic(self: Clarabel, program: Any, limits: Limits) -> Values:
        values = honest(self, program, limits)
        assert values.x is not None
        return replace(values, x=WRONG[how](values.x))

    monkeypatch.setattr(Clarabel, "solve_conic", conic)
    with pytest.raises(SolverCrashed, match="clarabel returned no point"):
        optsched.solve("@quickstart", "proportional-fairness", solver="clarabel")


@pytest.mark.parametrize("how", WRONG)
def test_of_timelines(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    honest = CpSat.solve_timeline

    def timeline(self: CpSat, *given: Any) -> Values:
        values = honest(self, *given)
        assert values.x is not None
        return replace(values, x=WRONG[how](values.x))

    monkeypatch.setattr(CpSat, "solve_timeline", timeline)
    with pytest.raises(SolverCrashed, match="cp-sat returned no point"):
        optsched.solve(MACHINES, "makespan-unrelated", program="timeline", solver="cp-sat")


def test_of_a_plan_that_no_job_could_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    """More members of a class than it has jobs."""

    def doubled(self: HighsSession, limits: Limits) -> Values:
        values = RUN(self, limits)
        return replace(values, x=None if values.x is None else values.x * 2.0)

    monkeypatch.setattr(HighsSession, "run", doubled)
    with pytest.raises(SolverCrashed, match="no schedule"):
        optsched.solve(LEASES, "lease", solver="highs", admission=True)


def test_duals_of_a_stopped_run_that_are_no_numbers_are_none() -> None:
    values = Values(Termination.TIME_LIMIT, x=np.zeros(2), y=np.array([np.nan]))
    assert values.checked(1, 2, "any").y is None
    with pytest.raises(SolverCrashed, match="any returned no duals of 1 finite numbers"):
        replace(values, termination=Termination.OPTIMAL).checked(1, 2, "any")
    with pytest.raises(SolverCrashed, match="any returned no duals of 3 finite numbers"):
        values.checked(3, 2, "any")


def test_the_library_itself_gave_too_few_duals(monkeypatch: pytest.MonkeyPatch) -> None:
    import highspy

    solution_of = highspy.Highs.getSolution

    def short(self: highspy.Highs) -> Any:
        solution = solution_of(self)
        solution.row_dual = list(solution.row_dual)[:-1]
        return solution

    monkeypatch.setattr(highspy.Highs, "getSolution", short)
    with pytest.raises(SolverCrashed, match="solver highs returned"):
        optsched.solve("@quickstart", solver="highs")
