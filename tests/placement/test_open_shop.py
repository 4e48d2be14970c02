"""Open shop: the slices are the times, no job is on two GPUs at once, and there are few of them."""

from __future__ import annotations

import numpy as np
import pytest
from rounds_cases import allocation, cut

import optsched
from optsched import Instance
from optsched.errors import UsageError
from optsched.placement import realise

# Private names: single searches and bounds, without the choice among them
from optsched.placement.open_shop import decompose

pytestmark = pytest.mark.property


def check(X: np.ndarray, takes: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """Decompose a matrix of jobs x pools and check everything that theory says."""
    job, place = np.nonzero(X)
    time = X[job, place]
    lengths, runs, total = decompose(job, place, time, takes)
    received = np.zeros(len(time))
    for length, run in zip(lengths, runs, strict=True):
        received[run] += length
        assert len(np.unique(job[run])) == len(run)
        assert (np.bincount(place[run], minlength=len(takes)) <= takes).all()
    assert np.abs(received - time).max(initial=0.0) < 1e-11
    assert total == pytest.approx(
        max(X.sum(axis=1).max(), (X.sum(axis=0) / takes).max()), abs=1e-11
    )
    assert lengths.sum() <= total + 1e-12 and (lengths > 0).all()
    assert len(lengths) <= len(time) + len(X) + len(takes)
    return lengths, runs


@pytest.mark.parametrize("part", range(4))
def test_random_matrices(part: int) -> None:
    for seed in range(50 * part, 50 * part + 50):
        random = np.random.default_rng(seed)
        jobs, pools = random.integers(1, 12), random.integers(1, 5)
        takes = random.integers(1, 5, pools)
        X = random.random((jobs, pools)) * (random.random((jobs, pools)) < 0.6)
        X[0, 0] = 0.5
        if seed % 3 == 0:
            X = np.round(4 * X) / 4  # many ties
        if seed % 3 == 1:
            X *= 10.0 ** random.integers(-11, 1, X.shape)  # entries of every size
        X /= max(X.sum(axis=1).max(), (X.sum(axis=0) / takes).max(), 1e-3)
        if seed % 2:
            X *= 1 + 1e-10 * random.standard_normal(X.shape)  # a solver's noise
        check(X, takes)


def test_doubly_stochastic_matrices_fill_the_window() -> None:
    for seed in range(20):
        random = np.random.default_rng(seed)
        X = sum(
            weight * np.eye(6)[random.permutation(6)] for weight in random.dirichlet(np.ones(5))
        )
        lengths, runs = check(X, np.ones(6, np.int64))
        assert lengths.sum() == pytest.approx(1, abs=1e-12)
        assert all(
            len(run) == 6 for length, run in zip(lengths, runs, strict=True) if length > 1e-9
        )


def test_the_identity_is_one_slice_and_nothing_is_none() -> None:
    lengths, runs = check(np.eye(5), np.ones(5, np.int64))
    assert lengths.tolist() == [1.0] and runs[0].tolist() == [0, 1, 2, 3, 4]
    none = decompose(
        np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0), np.ones(2, np.int64)
    )
    assert len(none[0]) == 0 and none[2] == 0


def test_the_order_of_jobs_changes_neither_the_length_nor_what_a_job_gets() -> None:
    random = np.random.default_rng(5)
    X = random.dirichlet(np.ones(4), 9)[:, :3]
    takes = np.array([2, 3, 2])
    order = random.permutation(9)
    assert check(X, takes)[0].sum() == pytest.approx(check(X[order], takes)[0].sum(), abs=1e-11)


def test_pools_of_many_gpus() -> None:
    """More GPUs than 64-bit sums of times could count, were they not whole numbers without limit."""
    X = np.full((3000, 2), 0.5)
    lengths, _ = check(X, np.array([1500, 1500]))
    assert len(lengths) == 2


FORMULATIONS = ("max-min-fairness", "isolated", "makespan", "proportional-fairness")


@pytest.mark.parametrize("formulation", FORMULATIONS)
def test_random_instances_of_one_gpu_jobs_are_realised(formulation: str) -> None:
    for seed in range(25):
        random = np.random.default_rng(seed)
        jobs, pools = int(random.integers(2, 20)), int(random.integers(1, 4))
        kinds = random.lognormal(0, 1, (int(random.integers(1, 6)), pools))
        instance = Instance.from_arrays(
            pools={f"p{j}": int(random.integers(1, 6)) for j in range(pools)},
            throughput=kinds[random.integers(0, len(kinds), jobs)],
            weight=random.choice([1.0, 2.0, 5.0], jobs),
            steps=random.choice([100.0, 250.0], jobs),
        )
        solution = optsched.solve(instance, formulation)
        assert solution.allocation is not None
        rounds = cut(solution.allocation)
        assert rounds.method in ("open-shop", "at-once")
        assert rounds.scale == pytest.approx(
            1, abs=1e-6
        )  # below 1 where the solver is beyond a capacity by as much
        received = rounds.scale * rounds.rows.fraction
        assert np.abs(rounds.received - received).max() < 1e-11
        assert rounds.runs.sum(axis=1).max() <= sum(
            pool.capacity(0.0) for pool in instance.cluster.pools
        )


def test_gangs_of_one_size_per_pool_are_matchings_too() -> None:
    """On 5 GPUs two gangs of 2 run at a time, so that 5 GPUs' worth of gangs is more than the window holds."""
    made = allocation(
        {(f"j{i}", "g"): 0.5 for i in range(5)}, pools={"g": 5}, throughput=np.ones((5, 1)), gpus=2
    )
    rounds = cut(made, "open-shop")
    assert rounds.scale == rounds.bound == pytest.approx(0.8, abs=1e-12)
    assert cut(made, "patterns").scale == pytest.approx(0.8, abs=1e-9)


def test_resources_that_cannot_bind_are_no_obstacle() -> None:
    pool = {"name": "g", "nodes": 1, "gpus_per_node": 2, "cpus_per_node": 8}
    given = {
        "workloads": {"w": {"throughput": {"g": 1.0}, "demand": {"cpu": 4}}},
        "workload": np.zeros(3, np.int64),
    }
    fractions = {(f"j{i}", "g"): 2 / 3 for i in range(3)}
    assert cut(allocation(fractions, pools=[pool], **given)).method == "open-shop"
    scarce = allocation(fractions, pools=[pool | {"cpus_per_node": 7}], **given)
    assert cut(scarce).scale == pytest.approx(
        0.5, abs=1e-9
    )  # one job at a time: it is CPUs that bind


def test_what_is_no_matching_is_refused() -> None:
    made = allocation(
        {("j0", "g"): 0.5, ("j1", "g"): 0.5},
        pools={"g": 2},
        throughput=np.ones((2, 1)),
        gpus=[1, 2],
    )
    with pytest.raises(UsageError, match=r"open-shop takes jobs that hold one GPU .* use patterns"):
        realise(made, None, "open-shop")
