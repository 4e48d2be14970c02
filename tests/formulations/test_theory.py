"""What theory promises of the fair formulations, on random instances; and where it promises nothing, an instance that
shows it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from filling_reference import Case, best, random_case

import optsched
from optsched import Instance, Solution
from optsched.api import make_formulation

pytestmark = pytest.mark.property

FloatArray = np.ndarray
FAIR = ("max-min-fairness", "water-filling", "finish-time-fairness", "drf")
BETTER = {
    "max-min-fairness": 1.0,
    "finish-time-fairness": -1.0,
    "makespan": -1.0,
    "max-throughput": 1.0,
}
EXACT = 1e-8


def solve(instance: Instance, formulation: str, **options: Any) -> Solution:
    options.setdefault("solver", "highs")
    solution = optsched.solve(instance, formulation, **options)
    assert solution.ok and solution.status == "optimal", solution.certificate
    return solution


def figure(solution: Solution) -> FloatArray:
    """What the formulation makes fair, by job: nt, rho, or the dominant share."""
    (values,) = solution.figures.values()
    return np.array([values.get(name, 0.0) for name in solution.instance.jobs_table.names])


def throughput(solution: Solution) -> FloatArray:
    return np.array(
        [solution.throughput.get(name, 0.0) for name in solution.instance.jobs_table.names]
    )


def bundles(solution: Solution, pools: int) -> FloatArray:
    """Time that every job gets on every pool, of jobs that share with nobody."""
    held = np.zeros((len(solution.instance.jobs_table.names), pools))
    for row in solution.to_document()["allocation"]:
        for job in row.get("jobs") or [row["job"]]:
            held[int(job[1:]), int(row["pool"][1:])] += row["fraction"]
    return held


def plain(rate: Any, capacity: Any, **more: Any) -> Instance:
    """Jobs j0, j1, ... with these rates on pools p0, p1, ..."""
    return Instance.from_arrays(
        pools={f"p{j}": int(count) for j, count in enumerate(capacity)},
        throughput=np.asarray(rate, float),
        **more,
    )


def isolated(rate: FloatArray, capacity: FloatArray, gang: FloatArray) -> FloatArray:
    y = capacity[None, :] / (len(rate) * gang[:, None])
    return (rate * y / np.maximum(1.0, y.sum(axis=1, keepdims=True))).sum(axis=1)


def waiting_case(seed: int, jobs: int = 7, **kinds: bool) -> Case:
    """A random case whose jobs have waited, and differ in their steps."""
    case, random = random_case(seed, jobs, **kinds), np.random.default_rng(seed + 1000)
    case.steps = random.lognormal(6, 1, jobs)
    if kinds.get("twins"):
        case.steps = np.round(case.steps, -3) + 500.0
    case.more = {"now": 5000.0, "arrival": 5000.0 - random.choice([0.0, 100.0, 900.0], jobs)}
    return case


def lexicographic(levels: FloatArray, others: FloatArray) -> None:
    """Sorted levels are at least as good as others, the worst-off job first."""
    ours, theirs = np.sort(levels), np.sort(others)
    differ = np.flatnonzero(np.abs(ours - theirs) > 1e-6 * max(ours.max(), theirs.max()))
    assert len(differ) == 0 or ours[differ[0]] > theirs[differ[0]]


# --- symmetries ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("formulation", FAIR)
@pytest.mark.parametrize("seed", range(4))
def test_names_and_order_of_jobs_and_pools_do_not_matter(formulation: str, seed: int) -> None:
    case = waiting_case(
        seed, gangs=True, weights=True, zeros=True, pairs=seed % 2 == 0, tenants=seed == 3
    )
    random = np.random.default_rng(seed)
    jobs, pools = random.permutation(case.jobs), random.permutation(len(case.capacity))
    if case.tenants:
        jobs = np.arange(case.jobs)  # a queue is an order
    where, place = np.argsort(jobs), np.argsort(pools)
    other = Case(
        np.asarray(case.capacity)[pools], case.rate[jobs][:, pools], case.gang[jobs], case.weight[jobs],
        case.tenant[jobs], case.tenants,
        [(int(where[a]), int(where[b]), int(place[j]), first, second) for a, b, j, first, second in case.pairs],
        case.steps[jobs], more=case.more | {"arrival": case.more["arrival"][jobs]},
    )  # fmt: skip
    here, there = solve(case.instance(), formulation), solve(other.instance(), formulation)
    tolerance = (
        1e-6 if formulation in ("water-filling", "drf") else EXACT
    )  # totals of throughput at these levels
    assert there.objective == pytest.approx(here.objective, rel=tolerance)
    if formulation in ("water-filling", "drf"):
        assert figure(there)[where] == pytest.approx(figure(here), abs=1e-6)


@pytest.mark.parametrize(
    "formulation", ["max-min-fairness", "water-filling", "finish-time-fairness", "makespan"]
)
def test_the_unit_of_a_jobs_steps_does_not_matter(formulation: str) -> None:
    for seed in range(4):
        case = waiting_case(seed + 10, gangs=True, weights=True, zeros=True)
        here = solve(case.instance(), formulation)
        factor = 10.0 ** np.random.default_rng(seed).uniform(-4, 4, case.jobs)
        case.rate, case.steps = case.rate * factor[:, None], case.steps * factor
        there = solve(case.instance(), formulation)
        assert there.objective == pytest.approx(here.objective, rel=1e-6)
        if formulation == "water-filling":
            assert figure(there) == pytest.approx(figure(here), abs=1e-6)


@pytest.mark.parametrize("formulation", FAIR)
def test_two_halves_of_a_pool_are_the_pool(formulation: str) -> None:
    for seed in range(4):
        case = waiting_case(seed + 20, weights=True, zeros=True, tenants=seed % 2 == 1)
        case.capacity = np.asarray(case.capacity) + 1
        here = solve(case.instance(), formulation)
        case.capacity = np.concatenate([[1, case.capacity[0] - 1], case.capacity[1:]])
        case.rate = np.hstack([case.rate[:, :1], case.rate])
        there = solve(case.instance(), formulation)
        assert there.objective == pytest.approx(here.objective, rel=1e-6)
        assert formulation not in ("water-filling", "drf") or figure(there) == pytest.approx(
            figure(here), abs=1e-6
        )


# --- more is never worse ---------------------------------------------------------------------------------------------


def with_slots(case: Case, slots: float) -> Instance:
    """Every GPU in use takes a slot, of which there are few: the pools, and so every normaliser, stay as they are."""
    pools = [f"p{j}" for j in range(len(case.capacity))]
    return Instance.from_arrays(
        pools=dict(zip(pools, map(int, case.capacity), strict=True)), gpus=case.gang, weight=case.weight,
        workload=np.arange(case.jobs), steps=case.steps, **case.more,
        workloads={
            f"w{i}": {
                "throughput": {
                    pool: {str(case.gang[i]): rate} for pool, rate in zip(pools, case.rate[i].tolist(), strict=True)
                },
                "demand": {"slots": 1.0},
            }
            for i in range(case.jobs)
        },
        resources=[{"name": "slots", "kind": "renewable", "capacity": slots}],
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
def test_more_capacity_never_hurts_while_the_normaliser_stays(seed: int) -> None:
    case = waiting_case(seed + 30, gangs=True, weights=True)
    case.capacity = np.asarray(case.capacity) + 2
    capacities = np.linspace(4.0, float(np.sum(case.capacity)), 4).tolist()
    for formulation, sense in BETTER.items():
        found = [
            sense * solve(with_slots(case, slots), formulation).objective for slots in capacities
        ]
        assert all(more >= less - EXACT * abs(less) for less, more in pairwise(found))
        assert formulation != "max-throughput" or found[-1] > found[0]
    scale = case.gang / case.weight
    levels = [
        figure(solve(with_slots(case, slots), "water-filling")) * scale for slots in capacities
    ]
    for less, more in pairwise(levels):
        lexicographic(more, less)


@pytest.mark.parametrize("seed", range(3))
def test_more_pairs_never_hurt(seed: int) -> None:
    case = waiting_case(seed + 40, pairs=True, weights=True)
    few, all_of_them = case.pairs[::3], case.pairs
    for formulation, sense in BETTER.items():
        found = []
        for case.pairs in ((), few, all_of_them):
            found.append(sense * solve(case.instance(), formulation).objective)
        assert found[0] <= found[1] + EXACT * abs(found[1]) and found[1] <= found[2] + EXACT * abs(
            found[2]
        )
    levels = []
    for case.pairs in ((), few, all_of_them):
        levels.append(figure(solve(case.instance(), "water-filling")) / case.weight)
    lexicographic(levels[1], levels[0])
    lexicographic(levels[2], levels[1])


@pytest.mark.parametrize("seed", range(4))
def test_at_least_as_good_as_isolated(seed: int) -> None:
    """The isolated allocation is feasible: its smallest ratio, its sorted levels are no better."""
    case = waiting_case(seed + 50, gangs=True, weights=True)
    alone = isolated(case.rate, np.asarray(case.capacity, float), case.gang)
    age, iso = 5000.0 - case.more["arrival"], case.steps / alone
    assert solve(case.instance(), "finish-time-fairness").objective <= ((age + iso) / iso).max() * (
        1 + EXACT
    )
    scale = case.gang / case.weight
    lexicographic(
        figure(solve(case.instance(), "water-filling")) * scale, alone / case.proportional() * scale
    )


# --- efficiency ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "formulation", ["water-filling", "proportional-fairness", "max-throughput"]
)
@pytest.mark.parametrize("seed", range(3))
def test_nobody_can_gain_without_loss(formulation: str, seed: int) -> None:
    """Pareto efficiency, with a linear program that looks for a gain."""
    kinds: dict[str, bool] = {"gangs": True, "weights": True, "pairs": seed == 2}
    if formulation == "water-filling":
        kinds["tenants"] = seed == 1
    case = random_case(seed + 60, 6, **kinds)
    (A, b), levels = case.polyhedron(), case.normalised()
    reached = throughput(solve(case.instance(), formulation, solver="auto")) / case.proportional()
    gain, _ = best(levels.sum(axis=0), np.vstack([A, -levels]), np.append(b, -reached + 1e-9))
    assert gain <= reached.sum() + 1e-5 * reached.max()


def test_an_optimum_of_max_min_may_waste_what_water_filling_gives_away() -> None:
    """j0 and j1 share p0, j2 has p1 for itself: half of p1 is enough for the common level."""
    instance = plain([[1, 0], [1, 0], [0, 1]], [1, 1])
    chosen = make_formulation("max-min-fairness")
    program = chosen.program(chosen.classes(optsched.compile(instance).per_job()))
    wasteful = np.array([0.5, 0.5, 0.5])
    assert program.value(wasteful) == pytest.approx(solve(instance, "max-min-fairness").objective)
    assert throughput(solve(instance, "water-filling")) == pytest.approx([0.5, 0.5, 1.0])


# --- sharing incentive -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("formulation", ["max-min-fairness", "water-filling"])
@pytest.mark.parametrize("seed", range(6))
def test_jobs_of_one_gpu_and_one_weight_have_an_incentive_to_share(
    formulation: str, seed: int
) -> None:
    """iso_i / prop_i = min(1, W / n) for all of them, and the isolated allocation is feasible."""
    case = random_case(seed + 70, 2 + seed, zeros=seed % 2 == 1)
    alone = isolated(case.rate, np.asarray(case.capacity, float), case.gang)
    assert alone / case.proportional() == pytest.approx(
        np.full(case.jobs, min(1.0, np.sum(case.capacity) / case.jobs))
    )
    assert (throughput(solve(case.instance(), formulation)) >= alone * (1 - 1e-7)).all()


@pytest.mark.parametrize("seed", range(6))
def test_jobs_that_just_came_have_an_incentive_to_share(seed: int) -> None:
    """Without ages rho_i = iso_i / thr_i, and isolated has 1 for all: gangs, weights and pairs change nothing."""
    case = random_case(seed + 80, 6, gangs=True, weights=True, zeros=True, pairs=seed % 2 == 0)
    placed, capacity = case.placed(), np.asarray(case.capacity, float)
    runs = case.gang[:, None] <= capacity
    y = capacity[None, :] / (len(placed) * case.gang[:, None])
    alone = (case.rate * runs * y / np.maximum(1.0, y.sum(axis=1, keepdims=True))).sum(axis=1)
    case.steps = np.random.default_rng(seed).lognormal(3, 3, 6)
    solution = solve(case.instance(), "finish-time-fairness")
    assert solution.objective <= 1 + 1e-9
    assert (throughput(solution)[placed] >= alone[placed] * (1 - 1e-7)).all()


NO_INCENTIVE: dict[str, tuple[str, Any, Any, dict[str, Any], int]] = {
    "gangs of different sizes": (
        "water-filling", [[10, 1], [2, 1], [10, 1]], [8, 8], {"gpus": np.array([8, 4, 8])}, 0,
    ),
    "another job waited": (
        "finish-time-fairness", [[1], [1]], [1],
        {"steps": 100.0, "now": 1e4, "arrival": np.array([9500.0, 1e4])}, 1,
    ),
    "weights": ("max-min-fairness", [[1], [1]], [1], {"weight": np.array([1.0, 3.0])}, 0),
    "a product of throughputs": ("proportional-fairness", [[8, 2], [5, 3]], [1, 1], {}, 1),
    "the fastest runs": ("max-throughput", [[2], [3]], [1], {}, 0),
    "the longest runs": ("makespan", [[1], [1]], [1], {"steps": np.array([1.0, 9.0])}, 0),
}  # fmt: skip


@pytest.mark.parametrize("what", NO_INCENTIVE)
def test_where_there_is_no_incentive_to_share(what: str) -> None:
    """A job that has less than with a slice of the cluster to itself."""
    formulation, rate, capacity, more, loser = NO_INCENTIVE[what]
    instance = plain(rate, capacity, **more)
    alone = throughput(optsched.solve(instance, "isolated"))
    ours = throughput(solve(instance, formulation, solver="auto"))
    assert ours[loser] < 0.95 * alone[loser]


# --- envy ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "formulation", ["max-min-fairness", "water-filling", "finish-time-fairness"]
)
def test_nobody_envies_on_pools_that_are_alike(formulation: str) -> None:
    """One kind of GPU, jobs of one weight: everybody has the same time, whatever the rates."""
    for seed in range(4):
        random = np.random.default_rng(seed)
        jobs = int(random.integers(3, 9))
        rate = np.repeat(random.lognormal(0, 2, (jobs, 1)), 2, axis=1)
        held = bundles(
            solve(plain(rate, [1, 2], steps=random.lognormal(5, 1, jobs)), formulation), 2
        ).sum(axis=1)
        assert held == pytest.approx(np.full(jobs, 3 / jobs), rel=1e-6)


ENVY = {
    "max-min-fairness": [[8, 8], [2, 2], [8, 2]],
    "water-filling": [[8, 8], [2, 2], [8, 2]],
    "finish-time-fairness": [[8, 8], [2, 2], [8, 2]],
    "proportional-fairness": [[4, 8], [1, 8]],
    "max-throughput": [[2, 2], [2, 2], [9, 9]],
}


@pytest.mark.parametrize("formulation", ENVY)
def test_somebody_envies_where_pools_differ(formulation: str) -> None:
    """A job that would run faster in the place of another one."""
    rate = np.array(ENVY[formulation], float)
    instance = plain(rate, [1, 1], steps=100.0)
    held = bundles(solve(instance, formulation, solver="auto"), 2)
    own = (rate * held).sum(axis=1)
    assert ((rate @ held.T) > 1.2 * own[:, None] + 1e-9).any()


# --- misreports ------------------------------------------------------------------------------------------------------

LIES: dict[str, tuple[Any, Any]] = {
    "max-min-fairness": ([[1, 5], [3, 3]], [4, 5]),
    "water-filling": ([[9, 2], [3, 9], [3, 7]], [4, 8]),
    "finish-time-fairness": ([[1, 5], [3, 3]], [4, 5]),
    "proportional-fairness": ([[5, 8], [3, 8]], [1.25, 8]),
    "makespan": ([[8, 8], [2, 1]], [8, 2]),
    "max-throughput": ([[2], [3]], [9]),
}


@pytest.mark.parametrize("formulation", LIES)
def test_a_job_gains_by_a_lie_about_its_rates(formulation: str) -> None:
    """No such formulation is strategy-proof: j0 says something else, and gets more by its real rates."""
    truth, lie = np.array(LIES[formulation][0], float), np.array(LIES[formulation][0], float)
    lie[0] = LIES[formulation][1]
    real = []
    for said in (truth, lie):
        instance = plain(said, np.ones(truth.shape[1]), steps=100.0)
        held = bundles(solve(instance, formulation, solver="auto"), truth.shape[1])
        real.append(float(truth[0] @ held[0]))
    assert real[1] > 1.05 * real[0]


def test_rates_do_not_move_dominant_shares() -> None:
    """A lie about rates moves no share in drf; what it asks for is under test beside the formulation."""
    for seed in range(3):
        case = random_case(seed + 90, 6, gangs=True, weights=True)
        here = figure(solve(case.instance(), "drf"))
        case.rate[0] *= np.random.default_rng(seed).lognormal(0, 2, case.rate.shape[1])
        assert figure(solve(case.instance(), "drf")) == pytest.approx(here, abs=1e-7)
