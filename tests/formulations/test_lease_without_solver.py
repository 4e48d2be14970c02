"""LeaseProgram where a solver finds nothing or little: the plan by earliest deadline first, and its bound."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from plan_instances import LEASE, leases, made, soft_leases, verified

import optsched
from formulations.lease_room import earliest, most_that_fit
from optsched.arrays import FloatArray
from optsched.errors import SolverCrashed
from optsched.generate import generate
from optsched.solution import Termination, Values
from optsched.solvers import HighsSession, Limits

KNOWN = ("known point", "feasible")


@pytest.fixture
def no_time(monkeypatch: pytest.MonkeyPatch) -> list[FloatArray]:
    """HiGHS is stopped by the clock before it finds a point; returns where it was told to start."""
    starts: list[FloatArray] = []

    def stopped(self: HighsSession, limits: Limits) -> Values:
        return Values(Termination.TIME_LIMIT, bound=1000.0, words="Time limit reached")

    monkeypatch.setattr(HighsSession, "run", stopped)
    monkeypatch.setattr(HighsSession, "set_start", lambda self, start: starts.append(start))
    return starts


def solve(instance: optsched.Instance, **options: Any) -> optsched.Solution:
    return verified(optsched.solve(instance, "lease", solver="highs", **options))


def test_the_plan_by_deadline_is_the_answer_and_where_the_solver_starts(
    no_time: list[FloatArray],
) -> None:
    """On one GPU of j0 (2 leases by 2), j1 (2 by 3) and j2 (1 by 4), j1 is late after j0."""
    instance = leases([1, 1, 1], [2, 2, 1], [2, 3, 4], 1)
    solution = solve(instance, admission=True)
    assert (solution.status, solution.objective, solution.bound) == ("feasible", 2.0, 3.0)
    assert solution.solver.attempts[-1] == KNOWN and not solution.reproducible
    assert [name for name, _ in solution.declined] == ["j1"]
    assert len(no_time) == 1 and no_time[0][:3].tolist() == [1.0, 0.0, 1.0]


@pytest.mark.usefixtures("no_time")
def test_without_admission_there_is_a_plan_where_the_order_of_deadlines_meets_all() -> None:
    solution = solve(leases([1, 1], [2, 2], [2, 4], 1))
    assert (solution.status, solution.objective) == ("optimal", 2.0)


@pytest.mark.usefixtures("no_time")
def test_least_slack_first_is_tried_where_the_order_of_deadlines_leaves_out_jobs() -> None:
    """By deadline j0 and j2 fill lease 0 and j1 lease 1: of the two leases of j3 one is left."""
    solution = solve(leases([1, 2, 1, 1], [1, 1, 1, 2], [3, 2, 2, 3], 2))
    assert (solution.status, solution.objective, solution.bound) == ("optimal", 4.0, 4.0)
    assert (solution.certificate.proof, solution.bound_source) == ("dual", "dual")


@pytest.mark.usefixtures("no_time")
def test_the_better_of_both_plans_is_the_answer() -> None:
    by_slack = leases([2, 1, 2, 1], [1, 2, 2, 2], [2, 2, 4, 4], 2)
    assert solve(by_slack, admission=True).objective == 3.0
    by_deadline = leases([1, 1, 2, 2], [1, 2, 2, 1], [3, 3, 2, 1], 2)
    assert solve(by_deadline, admission=True).objective == 3.0


@pytest.mark.usefixtures("no_time")
def test_without_admission_there_is_no_plan_where_neither_order_keeps_all_deadlines() -> None:
    """One exists, which a solver would find."""
    neither = leases([2, 1, 1, 2], [2, 2, 2, 1], [4, 3, 3, 3], 3)
    late = solve(neither)
    assert late.status == "limit" and late.allocation is None
    assert solve(neither, admission=True).objective == 3.0


def test_a_plan_of_all_deadlines_is_there_whatever_the_time_limit() -> None:
    """By deadline 27 jobs of these are late, and HiGHS needs a second."""
    instance = generate("leases", jobs=2000, nodes=60, tightness=0.9, seed=4).instance
    solution = verified(optsched.solve(instance, "lease", time_limit=0.01))
    assert (solution.status, solution.objective, solution.bound) == ("optimal", 2643.0, 2643.0)


@pytest.mark.usefixtures("no_time")
def test_a_job_has_its_best_option_that_can_be_in_time() -> None:
    """Both cannot have the GPU in the first lease; the one that comes later takes its later and cheaper option."""
    early, late = {"gpus": 1, "leases_needed": 1}, {"gpus": 1, "leases_needed": 2}
    options = [
        {"job": "a", "value": 5.0, "max_lease": 1, **early}, {"job": "a", "value": 2.0, "max_lease": 3, **late},
        {"job": "b", "value": 4.0, "max_lease": 1, **early}, {"job": "b", "value": 3.0, "max_lease": 3, **late},
    ]  # fmt: skip
    solution = solve(soft_leases(options, 1), admission=True)
    assert (solution.status, solution.objective) == ("feasible", 8.0)


@pytest.mark.usefixtures("no_time")
@pytest.mark.parametrize(("preemptible", "kept"), [(False, "held"), (True, "urgent")])
def test_jobs_that_run_and_cannot_be_preempted_come_first(preemptible: bool, kept: str) -> None:
    jobs = [
        {"id": "urgent", "gpus": 2, "steps": 2 * LEASE, "deadline": 2 * LEASE, "throughput": {"v100": 1.0}},
        {
            "id": "held", "gpus": 2, "steps": 2 * LEASE, "deadline": 3 * LEASE, "throughput": {"v100": 1.0},
            "preemptible": preemptible, "running": {"pool": "v100", "gpus": ["v100-0/0", "v100-0/1"]},
        },
    ]  # fmt: skip
    pools = [{"name": "v100", "nodes": 1, "gpus_per_node": 2}]
    solution = solve(made(round=LEASE, cluster={"pools": pools}, jobs=jobs), admission=True)
    assert {record["job"] for record in solution.schedule.to_records()} == {kept}


def test_a_worse_point_of_a_stopped_solver_is_not_the_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody admitted is a point too."""
    real = HighsSession.run

    def stopped(self: HighsSession, limits: Limits) -> Values:
        values = real(self, limits)
        assert values.x is not None
        return replace(values, termination=Termination.TIME_LIMIT, x=values.x * 0.0, objective=0.0)

    monkeypatch.setattr(HighsSession, "run", stopped)
    solution = solve(leases([1, 1, 1], [2, 2, 1], [2, 3, 4], 1), admission=True)
    assert (solution.status, solution.objective) == ("optimal", 2.0)
    assert [attempt.name for attempt in solution.solver.attempts] == ["highs", "known point"]


def test_the_plan_is_the_answer_where_every_solver_crashes(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(self: object, limits: Limits) -> Values:
        raise SolverCrashed("boom")

    monkeypatch.setattr(HighsSession, "run", crash)
    monkeypatch.setattr("optsched.solving.runs.others", lambda *_, **__: ())
    solution = verified(optsched.solve(leases([1, 1], [2, 2], [2, 3], 1), "lease", admission=True))
    assert (solution.status, solution.objective, solution.bound) == ("feasible", 1.0, 2.0)


@pytest.mark.usefixtures("no_time")
def test_rounds_follow_the_plan() -> None:
    policy = {"formulation": "lease", "solver": "highs", "time_limit": 1}
    plan = optsched.Scheduler(
        leases([1, 1, 1], [2, 2, 1], [2, 3, 4], 1), policy, isolate=False
    ).solve(now=0)
    assert plan.fallback is None and [decision.job for decision in plan.start] == ["j0"]


@pytest.mark.usefixtures("no_time")
@pytest.mark.parametrize("seed", range(4))
def test_the_plan_is_feasible_and_within_what_the_cluster_can_do(seed: int) -> None:
    instance = generate("leases", jobs=60, nodes=2, tightness=1.5, seed=seed).instance
    assert solve(instance, admission=True).status == "feasible"


@pytest.mark.parametrize("seed", range(20))
def test_any_number_up_to_the_largest_one_fits(seed: int) -> None:
    random = np.random.default_rng(seed)
    most, needed = random.integers(0, 5, 6).tolist(), int(random.integers(1, 4))
    fit = [jobs for jobs in range(1, 8) if sum(min(m, jobs) for m in most) >= needed * jobs]
    jobs, running = most_that_fit(most, 7, needed)
    assert jobs == max(fit, default=0) and fit == list(range(1, jobs + 1))
    assert sum(running) == jobs * needed and all(
        x <= min(m, jobs) for x, m in zip(running, most, strict=False)
    )
    assert running == earliest(most, jobs, needed)
