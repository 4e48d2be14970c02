"""Properties that theory gives: for every formulation of time fractions, on random instances."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize as so
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refuses

import optsched
from optsched import Instance, Solution

pytestmark = pytest.mark.property

FORMULATIONS = ("max-min-fairness", "makespan", "max-throughput")
BETTER = {"max-min-fairness": 1.0, "makespan": -1.0, "max-throughput": 1.0}


def arrays(seed: int, repeated: bool = True) -> dict:
    """A small instance as arrays: jobs that repeat, gangs, weights, zero rates, tight pools."""
    random = np.random.default_rng(seed)
    kinds, pools, jobs = random.integers(1, 5), random.integers(1, 4), int(random.integers(2, 12))
    rates = random.lognormal(0, 1, (kinds, pools)) * (random.random((kinds, pools)) < 0.8)
    rates[np.arange(kinds), random.integers(0, pools, kinds)] = random.lognormal(0, 1, kinds)
    kind = random.integers(0, kinds, jobs)
    if not repeated:
        rates = random.lognormal(0, 1, (jobs, pools))
        kind = np.arange(jobs)
    gang = random.choice([1, 2, 4], kinds if repeated else jobs)[kind]
    return {
        "pools": {f"p{j}": int(random.integers(4, 7)) for j in range(pools)},
        "throughput": rates[kind],
        "gpus": gang,
        "weight": random.choice([1.0, 2.0, 5.0], jobs),
        "steps": random.choice([100.0, 250.0], jobs),
    }


def solve(data: dict, formulation: str, **options: object) -> Solution:
    solution = optsched.solve(Instance.from_arrays(**data), formulation, solver="highs", **options)
    assert solution.ok and solution.status == "optimal", solution.certificate
    return solution


seeds = st.integers(0, 2**32 - 1)
few = settings(max_examples=15, deadline=None)


@pytest.mark.parametrize("formulation", FORMULATIONS)
@few
@given(seed=seeds)
def test_classes_do_not_change_the_optimum(formulation: str, seed: int) -> None:
    data = arrays(seed)
    merged, single = solve(data, formulation), solve(data, formulation, classes=False)
    assert merged.objective == pytest.approx(single.objective, rel=1e-8)
    assert merged.bound == pytest.approx(single.bound, rel=1e-8)


@pytest.mark.parametrize("formulation", FORMULATIONS)
@few
@given(seed=seeds)
def test_order_of_jobs_and_pools_does_not_matter(formulation: str, seed: int) -> None:
    data = arrays(seed)
    random = np.random.default_rng(seed)
    jobs, pools = (
        random.permutation(len(data["throughput"])),
        random.permutation(len(data["pools"])),
    )
    names = list(data["pools"])
    other = {key: value[jobs] for key, value in data.items() if key != "pools"}
    other["throughput"] = other["throughput"][:, pools]
    other["pools"] = {names[pool]: data["pools"][names[pool]] for pool in pools}
    assert solve(data, formulation).objective == pytest.approx(
        solve(other, formulation).objective, rel=1e-8
    )


@pytest.mark.parametrize("formulation", ("max-throughput", "makespan"))
@few
@given(seed=seeds)
def test_more_capacity_never_hurts(formulation: str, seed: int) -> None:
    data = arrays(seed)
    more = data | {"pools": {pool: gpus + 1 for pool, gpus in data["pools"].items()}}
    gain = BETTER[formulation] * (
        solve(more, formulation).objective - solve(data, formulation).objective
    )
    assert gain >= -1e-8 * solve(data, formulation).objective


@few
@given(seed=seeds)
def test_scaling_a_job_changes_neither_level_nor_makespan(seed: int) -> None:
    data = arrays(seed, repeated=False)
    factor = np.random.default_rng(seed).lognormal(0, 2, len(data["throughput"]))
    scaled = data | {
        "throughput": data["throughput"] * factor[:, None],
        "steps": data["steps"] * factor,
    }
    for formulation in ("max-min-fairness", "makespan"):
        assert solve(data, formulation).objective == pytest.approx(
            solve(scaled, formulation).objective, rel=1e-7
        )


@few
@given(seed=seeds)
def test_splitting_a_pool_changes_nothing(seed: int) -> None:
    """Gangs could no longer fit in the parts, so jobs have one GPU."""
    data = arrays(seed) | {"gpus": 1}
    first, gpus = next(iter(data["pools"].items()))
    rest = {pool: count for pool, count in data["pools"].items() if pool != first}
    split = data | {
        "pools": {"left": 1, "right": gpus - 1} | rest,
        "throughput": np.hstack([data["throughput"][:, :1], data["throughput"]]),
    }
    for formulation in FORMULATIONS:
        assert solve(data, formulation).objective == pytest.approx(
            solve(split, formulation).objective, rel=1e-8
        )


@few
@given(seed=seeds)
def test_at_least_as_good_as_isolated(seed: int) -> None:
    data = arrays(seed)
    isolated = solve(data, "isolated")
    x = isolated.allocation.x
    for formulation in FORMULATIONS:
        solution = solve(data, formulation)
        from optsched.api import make_formulation

        chosen = make_formulation(formulation)
        program = chosen.program(chosen.classes(solution.candidates.per_job()))
        totals = isolated.allocation.classes
        spread = (x / totals.count[totals.class_a])[
            [
                np.flatnonzero(
                    (totals.class_a == totals.of_job[program.classes.first[k]])
                    & (totals.pool == pool)
                )[0]
                for k, pool in zip(program.classes.class_a, program.classes.pool, strict=True)
            ]
        ]
        theirs = program.objective(spread)
        assert BETTER[formulation] * (solution.objective - theirs) >= -1e-8 * abs(theirs)


@few
@given(seed=seeds)
def test_max_min_equals_an_independent_program(seed: int) -> None:
    """The same program written by hand, dense and job by job, solved by scipy."""
    data = arrays(seed)
    rate, gpus, weight = data["throughput"], data["gpus"].astype(float), data["weight"]
    capacity = np.array(list(data["pools"].values()), float)
    runs = (rate > 0) & (gpus[:, None] <= capacity)
    rate = rate * runs
    placed = np.flatnonzero(runs.any(axis=1))
    rate, gpus, weight, runs = rate[placed], gpus[placed], weight[placed], runs[placed]
    if len(placed) == 0:
        return
    n, m = rate.shape
    level = rate * (gpus / weight / (rate @ capacity / capacity.sum()))[:, None]
    rows = []
    for i in range(n):
        row = np.zeros(n * m + 1)
        row[i * m : (i + 1) * m] = -level[i]
        row[-1] = 1.0
        rows.append((row, 0.0))
        row = np.zeros(n * m + 1)
        row[i * m : (i + 1) * m] = 1.0
        rows.append((row, 1.0))
    for j in range(m):
        row = np.zeros(n * m + 1)
        row[j : n * m : m] = gpus
        rows.append((row, capacity[j]))
    bounds = [(0, None if free else 0) for free in runs.ravel()] + [(0, None)]
    cost = np.zeros(n * m + 1)
    cost[-1] = -1.0
    result = so.linprog(
        cost, np.array([row for row, _ in rows]), [side for _, side in rows], bounds=bounds
    )
    assert solve(data, "max-min-fairness").objective == pytest.approx(-result.fun, rel=1e-7)


def test_prices_are_finite_differences() -> None:
    data = arrays(11, repeated=False)
    for formulation in FORMULATIONS:
        here = solve(data, formulation)
        for pool, gpus in data["pools"].items():
            # Normalisers depend on capacity in max-min fairness, where the price is that of the row alone.
            if formulation == "max-min-fairness":
                continue
            more = solve(data | {"pools": data["pools"] | {pool: gpus + 1}}, formulation)
            gain = BETTER[formulation] * (more.objective - here.objective)
            assert -1e-7 <= gain <= here.prices[pool] + 1e-7 * abs(here.objective), (
                formulation,
                pool,
            )


def test_three_jobs_share_one_gpu_by_weight() -> None:
    instance = Instance.from_arrays(
        pools={"a100": 1}, throughput=np.ones((3, 1)), weight=np.array([1.0, 1.0, 2.0])
    )
    solution = optsched.solve(instance)
    assert solution.throughput == pytest.approx({"j0": 0.25, "j1": 0.25, "j2": 0.5}, abs=1e-9)
    assert solution.objective == pytest.approx(0.25)


def test_a_gang_shares_gpu_time_not_wall_time() -> None:
    """A gang of 2 reaches the level t with half of the normalised throughput."""
    instance = Instance.from_arrays(
        pools={"a100": 2}, throughput=[[1.0], [1.0], [1.0]], gpus=np.array([1, 1, 2])
    )
    solution = optsched.solve(instance)
    fraction = solution.throughput
    assert fraction["j2"] == pytest.approx(fraction["j0"] / 2)


def test_ten_steps_at_one_step_per_second_take_ten_seconds() -> None:
    instance = Instance.from_arrays(pools={"a100": 1}, throughput=[[1.0]], steps=10.0)
    assert optsched.solve(instance, "makespan").objective == pytest.approx(10.0, rel=1e-12)


def test_mcnaughton() -> None:
    """P | pmtn | Cmax = max(longest, total / machines)."""
    for steps, gpus in (([3.0, 4, 5, 6], 2), ([9.0, 1, 1], 3)):
        instance = Instance.from_arrays(
            pools={"a100": gpus}, throughput=np.ones((len(steps), 1)), steps=np.array(steps)
        )
        expected = max(max(steps), sum(steps) / gpus)
        assert optsched.solve(instance, "makespan").objective == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("jobs", (1, 9))
def test_isolated_formula(jobs: int) -> None:
    rate = np.random.default_rng(jobs).lognormal(0, 1, (jobs, 3))
    gang = np.resize([1, 2, 4], jobs)
    capacity = np.array([4.0, 8.0, 6.0])
    instance = Instance.from_arrays(pools={"a": 4, "b": 8, "c": 6}, throughput=rate, gpus=gang)
    y = capacity / (jobs * gang[:, None])
    y /= np.maximum(1.0, y.sum(axis=1, keepdims=True))
    solution = optsched.solve(instance, "isolated")
    assert solution.ok and solution.sense == "rule" and solution.bound is None
    assert list(solution.throughput.values()) == pytest.approx(
        (rate * y).sum(axis=1).tolist(), rel=1e-12
    )


def test_integral_allocation_is_whole_jobs_and_matches_brute_force() -> None:
    from itertools import product

    rate = np.random.default_rng(5).lognormal(0, 1, (5, 2))
    gang, capacity = np.array([1, 2, 1, 2, 4]), np.array([4, 3])
    best = 0.0
    for choice in product((-1, 0, 1), repeat=5):
        used = [sum(gang[i] for i in range(5) if choice[i] == j) for j in range(2)]
        if used[0] <= capacity[0] and used[1] <= capacity[1]:
            best = max(best, sum(rate[i, choice[i]] for i in range(5) if choice[i] >= 0))
    instance = Instance.from_arrays(pools={"a": 4, "b": 3}, throughput=rate, gpus=gang)
    solution = optsched.solve(instance, "max-throughput", integral=True)
    assert solution.objective == pytest.approx(best, rel=1e-9)
    assert set(solution.allocation.rows.fraction.tolist()) == {1.0}
    assert solution.bound_source == "solver" and solution.certificate.proof == "claimed"
    relaxed = optsched.solve(instance, "max-throughput").objective
    assert relaxed >= solution.objective - 1e-9


def test_undeclared_job_data_does_not_change_the_optimum() -> None:
    """What a formulation does not declare in ``reads`` it must not use."""
    from optsched.candidates.classes import KNOWN
    from optsched.registry import load_formulation

    data = arrays(3)
    jobs = len(data["throughput"])
    random = np.random.default_rng(0)
    other = {
        "weight": random.lognormal(0, 1, jobs),
        "steps": random.lognormal(5, 1, jobs),
        "arrival": -random.lognormal(0, 1, jobs),
        "deadline": 1e7 + random.random(jobs),
        "soft_deadline": random.random(jobs) < 0.5,
        "preemptible": random.random(jobs) < 0.5,
        "restart_cost": random.lognormal(0, 1, jobs),
        "isolated_time": random.lognormal(0, 1, jobs),
    }
    for formulation in (*FORMULATIONS, "isolated"):
        reads = load_formulation(formulation).reads
        assert reads <= KNOWN
        free = {name: value for name, value in other.items() if name not in reads}
        if "steps_left" in reads:
            free.pop("steps")
        assert solve(data, formulation).objective == pytest.approx(
            solve(data | free, formulation).objective, rel=1e-9
        )


def test_agnostic_levels_count_time_only() -> None:
    data = arrays(8)
    first = solve(data, "max-min-fairness", agnostic=True)
    scaled = data | {"throughput": data["throughput"] * np.where(data["throughput"] > 0, 3.7, 1.0)}
    assert first.objective == pytest.approx(
        solve(scaled, "max-min-fairness", agnostic=True).objective, rel=1e-9
    )


def test_literal_agnostic_uses_pools_without_a_rate() -> None:
    instance = Instance.from_arrays(pools={"a": 1, "b": 1}, throughput=[[1.0, 0.0], [1.0, 0.0]])
    assert optsched.solve(instance, agnostic=True).objective == pytest.approx(0.5)
    assert optsched.solve(instance, agnostic="literal").objective == pytest.approx(1.0)


def test_makespan_agnostic_needs_a_reference_pool() -> None:
    instance = Instance.from_arrays(pools={"a": 1, "b": 1}, throughput=[[1.0, 2.0], [1.0, 0.0]])
    with refuses("option of makespan: reference_pool: found None", optsched.UsageError):
        optsched.solve(instance, "makespan", agnostic=True)
    with refuses("makespan: job j1 cannot run on the reference pool b", optsched.UsageError):
        optsched.solve(instance, "makespan", agnostic=True, reference_pool="b")
    assert optsched.solve(instance, "makespan", agnostic=True, reference_pool="a").ok
