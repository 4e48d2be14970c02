"""Bin packing: brute force, two programs with one optimum, lower bounds, and jobs that are no packing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from documents import instance_document
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refuses

import optsched
from optsched.errors import UsageError

seeds = st.integers(0, 2**32 - 1)
few = settings(max_examples=25, deadline=None)


def document(
    sizes: list[list[float]], capacity: list[float], choices: int = 1, **more: Any
) -> dict[str, Any]:
    """Jobs that use resources r0, r1, ...; with two choices, the second one uses them in reverse order."""
    names = [f"r{row}" for row in range(len(capacity))]

    def uses(amounts: list[float]) -> dict[str, float]:
        return dict(zip(names, amounts, strict=True))

    return instance_document(
        {"none": (0, 1)},
        [
            {
                "id": f"j{row}",
                "options": [{"uses": uses(size)}, {"uses": uses(size[::-1])}][:choices],
            }
            for row, size in enumerate(sizes)
        ],
        resources=[
            {"name": name, "capacity": amount} for name, amount in zip(names, capacity, strict=True)
        ],
        round=60.0,
        **more,
    )


def fewest(ways: list[list[np.ndarray]], capacity: np.ndarray) -> int:
    """The optimum by trying all: each job into a round that is open, or into a new one."""
    best = len(ways)

    def place(job: int, free: list[np.ndarray]) -> None:
        nonlocal best
        if len(free) >= best:
            return
        if job == len(ways):
            best = len(free)
            return
        for use in ways[job]:
            for row in range(len(free)):
                if (free[row] >= use).all():
                    place(job + 1, [*free[:row], free[row] - use, *free[row + 1 :]])
            place(job + 1, [*free, capacity - use])

    place(0, [])
    return best


@given(seed=seeds)
@few
def test_one_resource_against_all_packings(seed: int) -> None:
    random = np.random.default_rng(seed)
    b = int(random.integers(5, 30))
    sizes = random.integers(1, b + 1, 7).astype(float)
    sizes[-1] = sizes[0]
    # Decimal places make no difference
    scale = float(random.choice([1.0, 0.1, 12.5]))
    plain = document([[size * scale] for size in sizes], [b * scale])
    best = fewest([[np.array([size])] for size in sizes], np.array([float(b)]))
    for program in ("arc-flow", "assignment"):
        solution = optsched.solve(plain, "vector-bin-packing", program=program)
        assert (solution.status, solution.objective) == ("optimal", best), program
        assert solution.certificate.ok and optsched.verify(solution).ok
        assert solution.bound <= best + 1e-9
    assert optsched.solve(plain, "bin-packing", classes=False).objective == best


@given(seed=seeds, choices=st.integers(1, 2))
@few
def test_several_resources_against_all_packings(seed: int, choices: int) -> None:
    random = np.random.default_rng(seed)
    capacity = random.integers(4, 12, 2).astype(float)
    least = capacity.min()
    sizes = random.integers(0, int(least) + 1, (5, 2)).astype(float)
    ways = [[size, size[::-1]][:choices] for size in sizes]
    solution = optsched.solve(document(sizes.tolist(), capacity.tolist(), choices), "bin-packing")
    assert (solution.status, solution.objective) == ("optimal", fewest(ways, capacity))
    assert solution.certificate.ok and optsched.verify(solution).ok


def test_rounds_are_those_of_the_schedule() -> None:
    solution = optsched.solve(
        document([[6.0], [5.0], [4.0], [3.0], [2.0]], [10.0], now=7.0), "bin-packing"
    )
    schedule = solution.schedule
    assert solution.objective == 2.0 and schedule is not None
    assert set(schedule.start.tolist()) == {7.0, 67.0}
    assert (schedule.end - schedule.start == 60.0).all()
    load = {start: 0.0 for start in schedule.start.tolist()}
    for job, start in zip(schedule.job.tolist(), schedule.start.tolist(), strict=True):
        load[start] += [6.0, 5.0, 4.0, 3.0, 2.0][job]
    assert max(load.values()) <= 10.0


def test_a_moved_job_is_found(tmp_path: Any) -> None:
    solution = optsched.solve(document([[6.0], [5.0], [4.0]], [10.0]), "bin-packing")
    written = solution.to_document()
    assert optsched.verify(solution.instance, written).ok
    for row in written["schedule"]:
        row["start"], row["end"] = 0.0, 60.0  # all in one round, which has no room for them
    assert not optsched.verify(solution.instance, written).ok


def test_gangs_on_pools() -> None:
    plain = instance_document(
        {"a": (2, 4), "b": 2},
        [
            {"id": f"j{row}", "gpus": gpus, "throughput": {"a": 1.0, "b": 1.0}}
            for row, gpus in enumerate([4, 4, 4, 2, 2, 2])
        ],
    )
    # 18 GPUs asked for, 10 in a round
    assert optsched.solve(plain, "vector-bin-packing").objective == 2.0


def test_what_is_refused() -> None:
    solution = optsched.solve(document([[3.0], [11.0]], [10.0]), "bin-packing")
    assert solution.status == "infeasible"
    (conflict,) = solution.conflicts
    assert conflict.words == "job j1 needs more than the whole capacity in every configuration"
    plain = document([[3.0, 1.0], [1.0, 1.0]], [10.0, 10.0])
    with refuses("vector-bin-packing with program=arc-flow: jobs do not all use ...", UsageError):
        optsched.solve(plain, "bin-packing", program="arc-flow")
    plain["cluster"]["resources"][1]["kind"] = "consumable"
    with refuses("vector-bin-packing: r1 is used up, and a round has it anew", UsageError):
        optsched.solve(plain, "bin-packing")


def test_no_jobs_need_no_round() -> None:
    assert optsched.solve(document([], [10.0]), "bin-packing").objective == 0.0


def triplets(count: int, seed: int) -> list[list[float]]:
    """Sizes of which three fill a bin of 1,000 without rest."""
    random = np.random.default_rng(seed)
    first = random.integers(380, 491, count)
    second = random.integers(250, (1000 - first) // 2)
    sizes = np.concatenate([first, second, 1000 - first - second])
    return [[float(size)] for size in random.permutation(sizes)]


def test_column_generation_proves_triplets(tmp_path: Any) -> None:
    solution = optsched.solve(document(triplets(20, 1), [1000.0]), "bin-packing")
    assert (solution.status, solution.objective, solution.bound) == ("optimal", 20.0, 20.0)
    assert "fillings" in solution.solver.reason and solution.certificate.proof == "dual"
    assert optsched.verify(solution, resolve=False).ok


def test_duals_of_sizes_prove_a_rounded_bound() -> None:
    # Two fit into a bin: 2.5 bins by the relaxation, 2 by the sum of sizes
    solution = optsched.solve(document([[4.0]] * 5, [10.0]), "bin-packing")
    assert (solution.status, solution.objective, solution.bound) == ("optimal", 3.0, 3.0)
    assert solution.certificate.proof == "dual" and solution.duals is not None
    written = solution.to_document()
    assert optsched.verify(solution.instance, written).ok
    for wrong in (2.9, 2.0):
        written["bound"] = wrong
        assert not optsched.verify(solution.instance, written).ok


def test_duals_of_patterns_may_prove_less_of_paths() -> None:
    """Four jobs of 3 would fill a bin of 12, but there are two: paths may have more than that."""
    sizes = [[3.0]] * 2 + [[5.0], [5.0], [7.0]]
    solution = optsched.solve(document(sizes, [12.0]), "bin-packing")
    assert (solution.status, solution.objective, solution.bound) == ("optimal", 2.0, 2.0)
    assert solution.certificate.ok and optsched.verify(solution).ok


def test_a_solver_that_is_asked_for_has_the_whole_program() -> None:
    solution = optsched.solve(document([[4.0]] * 5, [10.0]), "bin-packing", solver="highs")
    assert (solution.status, solution.objective) == ("optimal", 3.0)
    assert "fillings" not in solution.solver.reason


def test_many_arcs_leave_the_other_program() -> None:
    sizes = [[float(size)] for size in np.random.default_rng(1).integers(200_000, 400_000, 60)]
    plain = document(sizes, [1_000_000.0])
    with refuses("vector-bin-packing with program=arc-flow: items times ...", UsageError):
        optsched.solve(plain, "bin-packing", program="arc-flow")
    few = document(sizes[:6], [1_000_000.0])
    assert optsched.solve(few, "bin-packing", time_limit=20).objective is not None


def test_a_long_knapsack_leaves_the_other_program() -> None:
    """Few sizes, but with so many jobs that pricing one filling takes seconds."""
    random = np.random.default_rng(1)
    sizes = np.repeat(random.integers(100_000, 140_000, 3) * 2 + 1, 80)
    plain = document([[float(size)] for size in sizes], [9_999_999.0])
    with refuses("vector-bin-packing with program=arc-flow: items times ...", UsageError):
        optsched.solve(plain, "bin-packing", program="arc-flow")


def test_sizes_with_a_common_divisor_prove_more() -> None:
    # 9 of 10 parts can be filled: 11 rounds, where the sum of sizes shows 10
    sizes = [[1000.0]] * 36 + [[2000.0]] * 30
    solution = optsched.solve(document(sizes, [9_999.0]), "bin-packing")
    assert (solution.status, solution.objective, solution.bound) == ("optimal", 11.0, 11.0)
    assert solution.solver.reason == "no plan is better"


@pytest.mark.parametrize(
    ("size", "capacity", "jobs", "rounds"),
    [(1 / 3, 1.0, 3, 1), (2 / 7, 2.0, 7, 1), (1 / 7, 1 / 3, 3, 2)],
)
def test_fractions_fill_a_round(size: float, capacity: float, jobs: int, rounds: int) -> None:
    """Rounded up to decimal places three thirds would be more than a whole."""
    solution = optsched.solve(document([[size]] * jobs, [capacity]), "bin-packing")
    assert (solution.status, solution.objective) == ("optimal", rounds)
    assert optsched.verify(solution, resolve=False).ok
