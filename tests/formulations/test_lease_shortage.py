"""Leases that cannot all be given, as sums alone show: before a solver starts, and never falsely."""

from __future__ import annotations

import numpy as np
import pytest
from plan_instances import LEASE, leases, made, verified

import optsched

# A private name: what sums show is compared with what solvers find without them
from formulations.lease import LeaseProgram
from optsched.solution import Status


def solve(instance: optsched.Instance, **options: object) -> optsched.Solution:
    return verified(optsched.solve(instance, "lease", **options))


def two_pools(jobs: list[dict]) -> optsched.Instance:
    """Pools a and b of two GPUs each."""
    pools = [{"name": name, "nodes": 1, "gpus_per_node": 2} for name in "ab"]
    return made(
        round=LEASE,
        cluster={"pools": pools},
        jobs=[{"id": f"j{i}"} | j for i, j in enumerate(jobs)],
    )


def job(needed: int, deadline: int, gpus: int = 1, pools: str = "ab", **more: object) -> dict:
    return {
        "gpus": gpus, "steps": needed * LEASE, "deadline": deadline * LEASE,
        "throughput": dict.fromkeys(pools, 1.0), **more,
    }  # fmt: skip


def test_more_gpu_time_than_there_is_names_the_jobs_and_the_resource() -> None:
    """Four GPU leases are needed before lease 3 beside two that may come later."""
    solution = solve(leases([1, 1, 1], [2, 2, 1], [3, 3, 9], 1))
    assert (solution.status, solution.solver.name) == (Status.INFEASIBLE, "closed form")
    assert solution.certificate.proof == "counted"
    assert solution.certificate.residuals == {"asked": 4.0, "available": 3.0}
    assert [conflict.words for conflict in solution.conflicts] == [
        "leases 0 to 2 have, added up, 3 GPUs of pool v100; these jobs need at least 4",
        "job j0 (and 1 like it) needs 2 leases of 1 GPU each, 3 before its deadline",
    ]


def test_what_must_be_done_early_of_a_later_deadline_counts() -> None:
    """Of 5 leases before lease 6 at least 1 lies before lease 2, where the others need all."""
    solution = solve(leases([1, 1, 1], [2, 5, 1], [2, 6, 2], 1))
    assert solution.certificate.residuals == {"asked": 3.0, "available": 2.0}


def test_the_fewest_jobs_that_are_too_many_are_named() -> None:
    solution = solve(leases([1, 4, 4, 2], [1, 2, 2, 1], [4, 3, 3, 3], 4))
    assert [conflict.words.split()[1] for conflict in solution.conflicts[1:]] == ["j1"]
    assert solution.certificate.residuals == {"asked": 16.0, "available": 12.0}


def test_jobs_that_may_choose_are_counted_in_all_pools() -> None:
    """Neither pool is short by itself: a job needs it at most."""
    solution = solve(two_pools([job(2, 2) for _ in range(5)]))
    assert solution.certificate.residuals == {"asked": 10.0, "available": 8.0}
    assert "8 GPUs of all pools" in solution.conflicts[0].words
    assert solve(two_pools([job(2, 2) for _ in range(4)])).status is Status.OPTIMAL


def test_a_gang_that_a_calendar_leaves_too_little_room_is_named() -> None:
    instance = leases([2, 1], [3, 1], [4, 4], 4)
    solution = solve(instance, capacity={"v100": [4, 1, 1, 4]})
    assert (solution.status, solution.solver.name) == (Status.INFEASIBLE, "none")
    assert [conflict.words for conflict in solution.conflicts] == [
        "job j0 needs 3 leases of 2 GPUs, 4 before its deadline, 2 of them with room"
    ]


@pytest.mark.parametrize("soft", [False, True])
def test_jobs_that_may_be_left_out_are_not_counted(soft: bool) -> None:
    jobs = [job(2, 2, deadline_kind="soft" if soft else "hard") for _ in range(5)]
    solution = solve(two_pools(jobs), admission=not soft)
    assert (solution.status, solution.objective) == (Status.OPTIMAL, 4.0)


@pytest.mark.parametrize("seed", range(40))
def test_a_solver_finds_no_plan_where_sums_find_none(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Random gangs, pools, deadlines and calendars, about as much as there is."""
    random = np.random.default_rng(seed)
    jobs = []
    for _ in range(random.integers(2, 7)):
        needed = int(random.integers(1, 4))
        late = needed + int(random.integers(0, 3))
        jobs.append(job(needed, late, int(random.integers(1, 3)), random.choice(["a", "b", "ab"])))
    calendar = {"a": random.integers(1, 4, 3).astype(float).tolist()}
    solution = solve(two_pools(jobs), capacity=calendar)
    monkeypatch.setattr(LeaseProgram, "_shortage", lambda program: None)
    again = optsched.solve(two_pools(jobs), "lease", capacity=calendar)
    assert again.status == solution.status


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda file: file["certificate"]["residuals"].update(asked=5.0), "certificate.residuals"),
        (lambda file: file["conflicts"].pop(), "conflicts"),
        (lambda file: file["conflicts"].append("job j9 needs more"), "conflicts"),
    ],
)
def test_a_wrong_sum_in_a_file_is_refused(change: object, field: str) -> None:
    solution = optsched.solve(leases([1, 1], [2, 2], [3, 3], 1), "lease")
    document = solution.to_document()
    change(document)
    report = optsched.verify(solution.instance, document)
    assert not report.ok and field in str(report), report


def test_a_sum_that_shows_nothing_is_refused() -> None:
    short = optsched.solve(leases([1, 1], [2, 2], [3, 3], 1), "lease")
    enough = leases([1, 1], [2, 2], [3, 4], 1)
    document = short.to_document()
    document["instance"]["sha256"] = enough.sha256
    report = optsched.verify(enough, document)
    assert not report.ok and "no sum shows a shortage" in str(report), report


def test_deadlines_a_billion_leases_away_take_no_memory() -> None:
    """Capacities have a number per lease of the program, and such a job has none in it."""
    instance = leases([1, 1], [10**10, 1], [10**9, 2], 1)
    solution = optsched.solve(instance, "lease", admission=True)
    assert solution.objective == 1.0
