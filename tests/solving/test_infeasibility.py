"""Claims of infeasibility: what is shown, which rows conflict, and what is said where the time is over."""

from __future__ import annotations

import time
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from programs import infeasible

import optsched
from optsched.errors import SolverCrashed
from optsched.formats.mps import program_names
from optsched.generate import generate
from optsched.program import LinearArrays, LinearProgram
from optsched.registry import load_solver
from optsched.solution import Status, Termination, Values

# Private names: single strategies, without the engine that chooses them
from optsched.solution.explanation import Explanation
from optsched.solvers import Highs, HighsSession, Limits, Session, Solver
from optsched.solving import Engine
from optsched.solving.infeasibility import (
    EFFORT,
    Analyst,
    Checked,
    ClaimFinding,
    check_claim,
    conflicting_rows,
    rows_alone,
)
from optsched.study import ProgramSolution, solve_program, verify_program


def whole_jobs(jobs: int = 2, spare: int = 3) -> LinearArrays:
    """Jobs that need 2 of 3 GPUs at one of two moments, half of each will do for a program of fractions; spare rows."""
    lp = LinearProgram()
    x = lp.variables(2 * (jobs + 1), name="x", upper=1.0, integer=True)
    take = np.kron(np.eye(jobs + 1), np.ones(2))
    lp.constrain(take @ x == 1.0, name="job")
    lp.constrain(2.0 * np.tile(np.eye(2), jobs + 1) @ x <= 3.0, name="moment")
    lp.constrain(np.ones((spare, 2 * (jobs + 1))) @ x <= 100.0, name="spare")
    lp.maximise(np.ones((1, 2 * (jobs + 1))) @ x)
    return lp.arrays


def random_program(seed: int, integer: bool) -> LinearArrays:
    """A small program whose rows conflict, mostly in a part of them."""
    rng = np.random.default_rng(seed)
    matrix = rng.integers(-3, 4, (9, 4)).astype(float)
    side = matrix @ rng.uniform(0, 3, 4) - rng.uniform(-1.0, 2.0, 9)
    lp = LinearProgram()
    x = lp.variables(4, name="x", upper=3.0, integer=integer)
    lp.constrain(matrix @ x <= side, name="rows")
    lp.maximise(np.ones((1, 4)) @ x)
    return lp.arrays


def can_hold(arrays: LinearArrays, rows: Any) -> bool:
    """By brute force for integer columns, by a solver of another kind for others."""
    alone = rows_alone(arrays, np.array(rows, np.int64))
    if not arrays.is_integer:
        return load_solver("glop")().open(alone).run(Limits()).x is not None
    grid = np.stack(np.meshgrid(*[np.arange(4.0)] * 4), -1).reshape(-1, 4)
    return bool((grid @ alone.A.toarray().T <= alone.row_upper + 1e-9).all(axis=1).any())


@pytest.mark.property
@pytest.mark.parametrize("integer", [False, True])
def test_conflicts_are_irreducible(integer: bool) -> None:
    seen = set()
    for seed in range(25):
        arrays = random_program(seed, integer)
        analyst = Analyst(Limits())
        checked = check_claim(arrays, analyst)
        assert (checked.finding is ClaimFinding.FEASIBLE) == can_hold(arrays, range(9))
        seen.add(checked.finding)
        if checked.finding is ClaimFinding.FEASIBLE:
            continue
        found = conflicting_rows(arrays, checked, analyst)
        assert found.explanation is Explanation.IRREDUCIBLE
        assert not can_hold(arrays, found.rows)
        linear = arrays.relaxed() if checked.finding is ClaimFinding.SHOWN else arrays
        if integer and checked.finding is ClaimFinding.SHOWN:
            continue  # irreducible as a linear program, which glop would have to say
        assert all(can_hold(linear, some) for some in combinations(found.rows, len(found.rows) - 1))
    assert seen >= {ClaimFinding.FEASIBLE, ClaimFinding.SHOWN} | (
        {ClaimFinding.AGREED} if integer else set()
    )


def test_whole_jobs_that_conflict_are_named_with_what_they_share() -> None:
    solution = solve_program(whole_jobs())
    assert (solution.status, solution.certificate.proof) == (Status.INFEASIBLE, "claimed")
    assert sorted(solution.conflicts) == ["job_0", "job_1", "job_2", "moment_0", "moment_1"]
    assert "explanation" not in solution.to_document()
    assert verify_program(whole_jobs(), solution.to_document()).ok


def test_an_integer_program_whose_relaxation_is_infeasible_has_a_proof() -> None:
    arrays = whole_jobs(jobs=3)
    solution = solve_program(arrays)
    assert (solution.status, solution.certificate.proof) == (Status.INFEASIBLE, "dual")
    assert {"job_0", "job_3", "moment_0"} <= set(solution.conflicts)
    assert verify_program(arrays, solution.to_document()).bound == "verified"


def test_a_claim_of_before_with_its_least_violation_is_still_right() -> None:
    document = solve_program(whole_jobs()).to_document()
    document["certificate"]["residuals"] = {"least_violation": 1 / 3}
    document["conflicts"] = ["moment_0"]
    assert verify_program(whole_jobs(), document).ok
    document["certificate"]["proof"] = "dual"
    assert "certificate.proof" in {
        finding.field for finding in verify_program(whole_jobs(), document).findings
    }


@pytest.mark.parametrize("jobs", [2, 3])
def test_the_limit_of_work_of_the_user_does_not_stop_the_analysis(jobs: int) -> None:
    arrays = whole_jobs(jobs)
    free, bound = Analyst(Limits()), Analyst(Limits(work=1))
    checked = check_claim(arrays, bound)
    assert checked.finding is check_claim(arrays, free).finding
    found = conflicting_rows(arrays, checked, bound)
    assert (
        found.explanation
        is conflicting_rows(arrays, checked, free).explanation
        is Explanation.IRREDUCIBLE
    )


def test_the_search_ends_at_its_bound_of_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("optsched.solving.infeasibility.EFFORT", EFFORT // 200)
    solution = solve_program(whole_jobs())
    assert solution.outcome.explanation is Explanation.REDUCED and solution.reproducible
    document = solution.to_document()
    assert document["explanation"] == "reduced"
    assert verify_program(whole_jobs(), document).ok


@pytest.mark.parametrize("work", [0, 2])
def test_a_trial_that_fails_leaves_what_was_shown(
    monkeypatch: pytest.MonkeyPatch, work: int
) -> None:
    """A numerical failure after some trials costs the smaller set, and not the answer."""
    arrays = random_program(0, integer=False)
    analyst = Analyst(Limits())
    checked = check_claim(arrays, analyst)
    assert checked.finding is ClaimFinding.SHOWN
    run, runs = HighsSession.run, iter(range(100))

    def fail(self: HighsSession, limits: Limits) -> Values:
        if next(runs) >= work:
            raise SolverCrashed("HiGHS stopped with 'Solve error'")
        return run(self, limits)

    monkeypatch.setattr(HighsSession, "run", fail)
    found = conflicting_rows(arrays, checked, analyst)
    monkeypatch.undo()
    assert found.explanation is Explanation.REDUCED
    assert not can_hold(arrays, found.rows)


# --- the time is over ----------------------------------------------------------------------------------------------


class _Stopping(HighsSession):
    """Ends as if the clock or the user had stopped it, from some run on."""

    def run(self, limits: Limits) -> Values:
        Stopping.runs += 1
        if Stopping.runs == 1 and Stopping.claim is not None:
            return Values(Stopping.claim)
        return Values(Stopping.end) if Stopping.runs > Stopping.most else super().run(limits)


class Stopping(Highs):
    """HiGHS of which so many runs come to their end."""

    runs, most, end = 0, 0, Termination.TIME_LIMIT
    claim: Termination | None = None

    def open(self, program: LinearArrays) -> Session:
        return _Stopping(program, "simplex")


def solved(arrays: LinearArrays, most: int, **how: Any) -> ProgramSolution:
    Stopping.runs, Stopping.most = 0, most
    Stopping.end, Stopping.claim = how.get("end", Termination.TIME_LIMIT), how.get("claim")

    def load(name: str) -> type[Solver]:
        return Stopping

    engine = Engine(load, "highs", Limits(time=1000.0))
    outcome = engine.solve_linear(arrays)
    return ProgramSolution(
        "program", arrays, program_names(arrays), outcome, engine.solver_record(Highs)
    )


@pytest.mark.parametrize("end", [Termination.TIME_LIMIT, Termination.INTERRUPTED])
@pytest.mark.parametrize(
    "arrays", [infeasible().arrays, whole_jobs(), whole_jobs(jobs=3)], ids=["lp", "milp", "both"]
)
def test_what_is_known_is_told_whenever_the_analysis_is_stopped(
    arrays: LinearArrays, end: Termination
) -> None:
    proofs = set()
    for most in range(1, 200):
        solution = solved(arrays, most, end=end)
        assert (
            solution.status is Status.INFEASIBLE and solution.termination is Termination.INFEASIBLE
        )
        assert verify_program(arrays, solution.to_document()).ok
        proofs.add(solution.certificate.proof)
        stopped = Stopping.runs > most
        assert (solution.outcome.explanation is Explanation.CUT_OFF) == stopped
        assert solution.reproducible != stopped
        if most == 1:
            assert solution.certificate.proof == "claimed" and not solution.conflicts
        if not stopped:
            break
    else:
        raise AssertionError("the analysis never came to its end")
    assert ("dual" in proofs) == (
        check_claim(arrays, Analyst(Limits())).finding is ClaimFinding.SHOWN
    )


def test_a_stopped_analysis_makes_no_infeasible_program_of_one_that_may_be_unbounded() -> None:
    lp = LinearProgram()
    x = lp.variables(1, name="x")
    lp.constrain(np.array([[1.0]]) @ x >= 1.0, name="row")
    lp.maximise(np.array([[1.0]]) @ x)
    claim = Termination.INFEASIBLE_OR_UNBOUNDED
    assert solved(lp.arrays, 1, claim=claim).status is Status.LIMIT
    assert solved(lp.arrays, 9, claim=claim).status is Status.UNBOUNDED
    assert (
        solved(whole_jobs(), 1, claim=claim).status is Status.INFEASIBLE
    )  # all columns are bounded


@pytest.mark.clock
def test_the_limit_holds_where_thousands_of_jobs_conflict() -> None:
    """It took an elastic integer program and a search without any limit: minutes."""
    instance = generate("leases", jobs=2000, nodes=60, tightness=1.3, seed=3).instance
    started = time.monotonic()
    solution = optsched.solve(instance, "lease", time_limit=10.0)
    assert time.monotonic() - started < 40.0
    assert solution.status is Status.INFEASIBLE and solution.certificate.proof in (
        "counted",
        "claimed",
    )
    assert solution.explanation is not Explanation.IRREDUCIBLE


@pytest.mark.parametrize("times", [2.0, 1e6, 1e9, 1e12])
def test_a_row_is_not_lost_beside_one_that_asks_for_far_more(times: float) -> None:
    """What a deadline needs, and the time there is: neither conflicts without the other."""
    instance = {
        "format": "optsched-instance/1",
        "cluster": {"pools": [{"name": "p", "nodes": 1, "gpus_per_node": 1}]},
        "jobs": [{"id": "a", "steps": 100 * times, "deadline": 100, "throughput": {"p": 1.0}}],
    }
    solution = optsched.solve(instance, "max-throughput", constraints=[{"kind": "deadlines"}])
    assert solution.status is Status.INFEASIBLE and len(solution.conflicts) == 2
    assert optsched.verify(instance, solution).ok


def test_infeasible_without_a_proof_is_no_answer_of_a_conic_solver(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The word of a solver that stops at tolerances, where there was no time to prove it."""
    monkeypatch.setattr(
        "optsched.solving.infeasibility.check_claim",
        lambda arrays, analyst, ray: Checked(ClaimFinding.OPEN, end=Termination.TIME_LIMIT),
    )
    outcome = Engine(load_solver, "clarabel").solve_linear(infeasible())
    assert outcome.status is Status.LIMIT and not outcome.conflicts
    assert outcome.values.termination is Termination.TIME_LIMIT
