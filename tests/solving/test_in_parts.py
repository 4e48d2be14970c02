"""Programs that are solved in parts: against the exact optimum of the whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import refuses
from test_pair_parts import packed

import optsched
from optsched.errors import InvalidArgument, UsageError
from optsched.solution import Solution, Status, Termination
from optsched.verify import verify

pytestmark = pytest.mark.property

FORMULATIONS: dict[str, dict[str, Any]] = {
    "max-min-fairness": {},
    "makespan": {},
    "finish-time-fairness": {},
    "max-throughput": {},
    "proportional-fairness": {},
    "alpha-fairness": {"alpha": 0.5},
}


def instance(seed: int, jobs: int = 60, **more: Any) -> optsched.Instance:
    """Different jobs on three pools that cannot hold all of them; some cannot run everywhere."""
    rng = np.random.default_rng(seed)
    rate = rng.lognormal(0, 1, (jobs, 1)) * np.geomspace(1, 5, 3) ** rng.random((jobs, 1))
    barred = rng.random((jobs, 3)) < 0.1
    barred[np.arange(jobs), rng.integers(0, 3, jobs)] = False
    few = max(1, jobs // 24)
    return optsched.Instance.from_arrays(
        pools=[
            {
                "name": name,
                "gpu": name.upper(),
                "nodes": few,
                "gpus_per_node": 4,
                "cost_per_gpu_hour": price,
            }
            for name, price in (("p", 1.0), ("q", 2.0), ("r", 3.0))
        ],
        throughput=np.where(barred, 0.0, rate),
        gpus=rng.choice([1, 2, 4], jobs, p=[0.7, 0.2, 0.1]),
        weight=rng.choice([1.0, 2.0], jobs),
        steps=rng.uniform(1e4, 1e5, jobs),
        **more,
    )


def worse(solution: Solution, exact: Solution) -> float:
    """By how much an objective is worse, relative."""
    assert solution.objective is not None and exact.objective is not None
    lost = exact.objective - solution.objective
    return (lost if exact.sense == "max" else -lost) / abs(exact.objective)


def check_parts(solution: Solution, exact: Solution) -> None:
    """Feasible, no better than the optimum of the whole, and bounded by no less than that."""
    assert solution.certificate.ok, solution.certificate.problems
    assert solution.bound_source == "dual" and solution.bound is not None
    assert exact.status is Status.OPTIMAL and exact.bound is not None
    assert worse(solution, exact) >= -1e-8
    over = solution.bound - exact.bound if exact.sense == "max" else exact.bound - solution.bound
    assert over >= -1e-8 * abs(exact.bound)


@pytest.mark.parametrize("name", FORMULATIONS)
@pytest.mark.parametrize("seed", range(3))
def test_the_bound_of_the_parts_bounds_the_whole_and_is_near(name: str, seed: int) -> None:
    problem, options = instance(seed), FORMULATIONS[name]
    exact = optsched.solve(problem, name, **options)
    for parts in (2, 5):
        solution = optsched.solve(problem, name, parts=parts, **options)
        check_parts(solution, exact)
        assert solution.termination is Termination.IN_PARTS
        told = "parts: the optimum is between objective and bound"
        assert any(note.endswith(told) for note in solution.notes)
        assert solution.bound == pytest.approx(exact.objective, rel=0.02)


@pytest.mark.parametrize("name", ["max-min-fairness", "makespan", "max-throughput"])
def test_packed_jobs_pair_within_their_part_and_the_bound_is_that_of_all_pairs(name: str) -> None:
    problem = packed(3, 60, part=1 / 20)
    exact, solution = optsched.solve(problem, name), optsched.solve(problem, name, parts=3)
    check_parts(solution, exact)
    allocation = solution.allocation
    assert allocation is not None
    # Pairs are between jobs of one part: fewer jobs are beside each other than could be.
    C = allocation.classes
    part = np.full(len(C), -1)
    formulation = optsched.assembly.make_formulation(name, {"parts": 3}, [])
    part = formulation.program(C).parts
    used = np.flatnonzero((allocation.x > 0) & ~C.alone)
    assert len(used) and (part[C.class_a[used]] == part[C.class_b[used]]).all()


def test_the_parts_are_drawn_by_their_seed() -> None:
    problem = instance(0)
    first, again = (optsched.solve(problem, parts=4) for _ in range(2))
    other = optsched.solve(problem, parts=4, parts_seed=1)
    assert first.objective == again.objective != other.objective


def test_one_part_is_the_whole_and_no_part_is_empty() -> None:
    problem = instance(0, jobs=6)
    exact = optsched.solve(problem)
    assert optsched.solve(problem, parts=1).options == exact.options
    many = optsched.solve(problem, parts=100)
    check_parts(many, exact)
    assert "6 parts" in " ".join(many.notes)


@pytest.mark.parametrize("classes", [True, False])
def test_equal_jobs_may_be_in_different_parts(classes: bool) -> None:
    rng = np.random.default_rng(1)
    problem = optsched.Instance.from_arrays(
        pools=[{"name": name, "nodes": 2, "gpus_per_node": 4} for name in ("p", "q")],
        throughput=rng.uniform(1, 4, (4, 2))[np.arange(60) % 4],
        gpus=1,
    )
    exact = optsched.solve(problem)
    solution = optsched.solve(problem, parts=3, classes=classes)
    check_parts(solution, exact)
    assert worse(solution, exact) < 0.1


def test_rows_that_all_share_are_kept_and_rows_of_a_job_stay_whole() -> None:
    problem = instance(2)
    constraints = [
        {"kind": "budget", "limit": 20.0},
        {"kind": "minimum-service", "fraction": 0.05},
    ]
    for name in ("max-min-fairness", "max-throughput", "cost"):
        exact = optsched.solve(problem, name, constraints=constraints)
        solution = optsched.solve(problem, name, constraints=constraints, parts=3)
        check_parts(solution, exact)


def test_a_part_without_a_point_says_nothing_of_the_whole() -> None:
    """Two jobs that need nearly all of the cluster: a half is too small for either of them all the time."""
    problem = optsched.Instance.from_arrays(
        pools=[{"name": "p", "nodes": 2, "gpus_per_node": 4}],
        throughput=np.ones((2, 1)),
        gpus=np.array([6, 2]),
    )
    floors = [{"kind": "minimum-service", "fraction": 0.9}]
    exact = optsched.solve(problem, "max-throughput", constraints=floors)
    assert exact.status is Status.OPTIMAL
    solution = optsched.solve(problem, "max-throughput", constraints=floors, parts=2)
    assert solution.status is Status.LIMIT and solution.bound is None
    assert "says nothing of the whole" in " ".join(solution.notes)


def test_a_file_of_parts_is_verified_and_a_wrong_bound_in_it_is_found(tmp_path: Path) -> None:
    problem = instance(4)
    solution = optsched.solve(problem, parts=4, parts_seed=7)
    document = solution.to_document()
    assert document["options"]["parts"] == 4 and document["options"]["parts_seed"] == 7
    assert verify(problem, document).ok
    assert solution.bound is not None
    assert not verify(problem, {**document, "bound": solution.bound * 0.99}).ok


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("gandiva", {}),
        ("allox", {}),
        ("water-filling", {}),
        ("throughput-per-cost", {}),
        ("partial-allocation", {}),
        ("max-throughput", {"integral": True}),
    ],
)
def test_what_does_not_fall_into_parts_is_refused(name: str, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="parts"):
        optsched.solve(instance(0, jobs=6), name, parts=2, **options)


def test_requirements_between_parts_are_refused() -> None:
    problem = instance(0, tenant=np.zeros(60, int), tenants=[{"name": "a"}])
    share = {"kind": "minimum-share", "tenant": "a", "gpus": 3}
    expected = "1, as rows 'minimum-share' ask for something of jobs of several parts"
    with refuses(f"parts: found 2, expected {expected}", InvalidArgument):
        optsched.solve(problem, "max-throughput", constraints=[share], parts=2)


def test_columns_on_demand_are_refused() -> None:
    with pytest.raises(UsageError, match="generate_columns"):
        optsched.solve(packed(1, 20), generate_columns=True, parts=2)


def test_a_front_of_parts_is_refused() -> None:
    with pytest.raises(UsageError, match="in parts"):
        objectives = [("max-throughput", {"parts": 2}), "max-min-fairness"]
        optsched.pareto(instance(0, jobs=6), objectives)


def test_nothing_runs_in_parts_where_that_is_cheapest() -> None:
    solution = optsched.solve("@quickstart", "cost", parts=2)
    assert solution.status is Status.OPTIMAL
    assert (solution.objective, solution.bound) == (0.0, 0.0)


def test_one_job_that_is_late_whatever_is_decided_bounds_all_parts() -> None:
    """The job whose ratio is worst is not the one whose best level is lowest."""
    solution = optsched.solve("@large", "finish-time-fairness", parts=2)
    assert solution.status is Status.OPTIMAL
    check_parts(solution, optsched.solve("@large", "finish-time-fairness"))
