"""CP-SAT: fractional coefficients to the precision of the certificate, and a work limit that is one."""

from __future__ import annotations

import time

import pytest
from programs import hard_knapsacks

import optsched
from optsched.errors import UsageError
from optsched.registry import load_solver
from optsched.solution import Status, Termination
from optsched.solvers import Limits

FRACTIONAL = [("@smd", "smd"), ("@smd", "smd-tight"), ("@topology", "multiple-choice")]


@pytest.mark.parametrize(("instance", "formulation"), FRACTIONAL)
def test_fractional_coefficients_are_proven(instance: str, formulation: str) -> None:
    solution = optsched.solve(instance, formulation, solver="cp-sat")
    assert solution.status is Status.OPTIMAL and solution.certificate.ok, (
        solution.certificate.problems
    )
    assert solution.gap < 1e-8
    assert solution.objective == pytest.approx(
        optsched.solve(instance, formulation).objective, rel=1e-9
    )


def test_a_bound_looser_than_its_precision_is_told_as_a_gap() -> None:
    """The solver calls it optimal, and within its own precision it is: an answer with a gap, not a broken proof."""
    coarse = {"mip_wanted_precision": 0.01}
    solution = optsched.solve("@smd", "smd", solver="cp-sat", solver_options=coarse)
    assert solution.termination is Termination.IMPRECISE and solution.status is Status.FEASIBLE
    assert solution.certificate.ok and 1e-5 < solution.gap < 1e-2
    accepted = optsched.solve("@smd", "smd", solver="cp-sat", solver_options=coarse, gap=0.01)
    assert accepted.status is Status.OPTIMAL


@pytest.mark.clock
def test_the_work_limit_counts_conflicts() -> None:
    started = time.perf_counter()
    first, second = (
        optsched.solve("@leases", "makespan-unrelated", work_limit=300) for _ in range(2)
    )
    assert time.perf_counter() - started < 20.0  # a deterministic second each would be minutes
    assert (
        first.termination is Termination.WORK_LIMIT
        and first.status is Status.FEASIBLE
        and first.reproducible
    )
    assert (
        first.bound == second.bound
        and first.to_document()["schedule"] == second.to_document()["schedule"]
    )


@pytest.mark.parametrize("solver", ["glop", "pdlp", "cp-sat"])
def test_a_wrong_option_is_one_line(solver: str, capfd: pytest.CaptureFixture[str]) -> None:
    """OR-tools itself writes two lines of its own to standard error."""
    given = (
        ("@unrelated", "makespan-unrelated") if solver == "cp-sat" else ("@quickstart", "makespan")
    )
    program = {"program": "timeline"} if solver == "cp-sat" else {}
    for options, told in (
        ({"no_such": 1}, 'has no field named "no_such"'),
        ({"random_seed": "x"}, ""),
    ):
        with pytest.raises(UsageError, match=f"^{solver} refused its options: .*{told}"):
            optsched.solve(*given, solver=solver, solver_options=options, options=program)
    captured = capfd.readouterr()
    assert captured.out == captured.err == ""


@pytest.mark.clock
@pytest.mark.parametrize("solver", ["cp-sat", "scip"])
def test_linear_programs_tell_work_from_time(solver: str) -> None:
    arrays = hard_knapsacks().arrays
    by_work = load_solver(solver)().open(arrays).run(Limits(work=1))
    by_clock = load_solver(solver)().open(arrays).run(Limits(work=10**8, time=0.2))
    assert (by_work.termination, by_clock.termination) == (
        Termination.WORK_LIMIT,
        Termination.TIME_LIMIT,
    )
