"""Wrong beliefs about assignments and knapsacks, each with an instance that refutes it."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from documents import instance_document
from plan_instances import machines

import optsched

pytestmark = pytest.mark.property


def total_after_releases(p: np.ndarray, release: np.ndarray) -> float:
    """The least sum of completion times, by trying every machine and every order of all jobs."""
    jobs, count = p.shape
    best = np.inf
    for order in itertools.permutations(range(jobs)):
        for at in itertools.product(range(count), repeat=jobs):
            free, total = np.zeros(count), 0.0
            for job in order:
                free[at[job]] = max(free[at[job]], release[job]) + p[job, at[job]]
                total += free[at[job]]
            best = min(best, total)
    return float(best)


@pytest.mark.parametrize("seed", range(6))
def test_the_matching_of_allox_only_bounds_jobs_that_are_released_later(seed: int) -> None:
    random = np.random.default_rng(seed)
    p, release = random.integers(1, 9, (4, 2)), random.integers(0, 9, 4)
    matched = optsched.solve(machines(p.tolist()), "allox").objective
    assert matched is not None
    assert matched <= total_after_releases(p, release) + 1e-9
    # A short job comes while the long one runs: the matching puts it first, and it is not there yet
    example = np.array([[10.0], [1.0]])
    assert optsched.solve(machines(example.tolist()), "allox").objective == pytest.approx(12.0)
    assert total_after_releases(example, np.array([0.0, 1.0])) == pytest.approx(14.0)


def saved(a: np.ndarray, c: np.ndarray, step: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """What n = 1, 2, ... GPUs save of each job against one GPU, where n cost a / n + c step(n)."""
    n = np.arange(1, 9)
    cost = a[:, np.newaxis] / n + c[:, np.newaxis] * step(n)
    return np.asarray(cost[:, :1] - cost)


def by_marginal_gain(value: np.ndarray, gpus: int) -> float:
    """Each GPU goes where it saves most; every job has one."""
    n = np.zeros(len(value), np.int64)
    for _ in range(gpus - len(value)):
        more = np.append(np.diff(value, axis=1), np.full((len(value), 1), -np.inf), axis=1)
        gain = more[np.arange(len(value)), n]
        if gain.max() <= 0:
            break
        n[gain.argmax()] += 1
    return float(value[np.arange(len(value)), n].sum())


def jointly(value: np.ndarray, gpus: int) -> float:
    """The optimum of ``multiple-choice``, in which every job has one of its counts."""
    enough = 1.0 + float(np.abs(value).sum())
    jobs = [
        {
            "id": f"j{job}",
            "options": [
                {"uses": {"gpus": n + 1}, "value": enough + float(worth)}
                for n, worth in enumerate(row)
            ],
        }
        for job, row in enumerate(value)
    ]
    pools = [{"name": "unused", "nodes": 1, "gpus_per_node": 1}]
    resources = [{"name": "gpus", "kind": "renewable", "capacity": gpus}]
    solution = optsched.solve(
        optsched.Instance.from_document(instance_document(pools, jobs, resources=resources)),
        "multiple-choice",
    )
    assert solution.objective is not None and solution.status == "optimal"
    return solution.objective - len(value) * enough


@pytest.mark.parametrize("seed", range(4))
def test_marginal_gain_is_optimal_for_convex_costs(seed: int) -> None:
    random = np.random.default_rng(seed)
    value = saved(random.uniform(5, 50, 4), random.uniform(0, 2, 4), lambda n: n.astype(float))
    assert by_marginal_gain(value, 14) == pytest.approx(jointly(value, 14))


def test_marginal_gain_is_not_optimal_where_a_node_ends() -> None:
    """Behind the step of the fifth GPU the next three pay, and marginal gain never gets there."""
    value = saved(np.array([100.0, 20.0]), np.array([6.0, 6.0]), lambda n: 1.0 * (n > 4))
    assert by_marginal_gain(value, 10) < jointly(value, 10) - 1.0


def test_the_best_of_each_job_is_not_the_best_of_all() -> None:
    """Rows couple the jobs: the sum of their maxima is a bound, and no optimum."""
    value = saved(np.array([40.0, 30.0, 20.0]), np.zeros(3), lambda n: 0.0 * n)
    assert jointly(value, 24) == pytest.approx(value.max(axis=1).sum())
    assert jointly(value, 9) < value.max(axis=1).sum() - 1.0
