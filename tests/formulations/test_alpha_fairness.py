"""Alpha-fairness: certified by prices, equal to its limits, equal to an independent model."""

from __future__ import annotations

import numpy as np
import pytest
from refusals import refuses

import optsched
from optsched import Instance
from optsched.errors import SolverUnavailable, UsageError

pytestmark = pytest.mark.property


def instance(jobs: int, pools: int, seed: int, repeated: bool = False) -> Instance:
    random = np.random.default_rng(seed)
    rate = random.lognormal(0, 1, (jobs, pools))
    if repeated:
        rate = rate[random.integers(0, max(jobs // 5, 1), jobs)]
    return Instance.from_arrays(
        pools={f"p{j}": max(4, jobs // (2 * pools)) for j in range(pools)},
        throughput=rate,
        gpus=random.choice([1, 1, 2, 4], jobs),
        weight=random.choice([1.0, 2.0, 5.0], jobs),
    )


SIZES = [*((20, 3, seed) for seed in range(8)), *((200, 4, seed) for seed in range(6))]
SIZES += [*((1000, 3, seed) for seed in range(4)), (4000, 3, 0), (10_000, 3, 0)]


@pytest.mark.parametrize(("jobs", "pools", "seed"), SIZES)
def test_proportional_fairness_is_certified_by_prices(jobs: int, pools: int, seed: int) -> None:
    solution = optsched.solve(instance(jobs, pools, seed), "proportional-fairness")
    assert solution.ok and solution.status == "optimal"
    assert solution.certificate.proof == "dual" and solution.bound_source == "dual"
    assert 0 <= (solution.bound - solution.objective) / jobs <= 1e-6


@pytest.mark.parametrize("seed", range(4))
def test_proportional_fairness_equals_an_independent_model(seed: int) -> None:
    cp = pytest.importorskip("cvxpy")
    data = np.random.default_rng(seed)
    rate, gpus, weight = (
        data.lognormal(0, 1, (12, 2)),
        data.choice([1, 2], 12),
        data.choice([1.0, 3.0], 12),
    )
    capacity = np.array([4.0, 3.0])
    x = cp.Variable((12, 2), nonneg=True)
    share = rate @ capacity / capacity.sum()
    level = cp.sum(cp.multiply(rate, x), axis=1) / share
    rows = [cp.sum(x, axis=1) <= 1, gpus @ x <= capacity]
    problem = cp.Problem(cp.Maximize(weight @ cp.log(level)), rows)
    problem.solve(solver="CLARABEL")
    given = Instance.from_arrays(pools={"a": 4, "b": 3}, throughput=rate, gpus=gpus, weight=weight)
    solution = optsched.solve(given, "proportional-fairness")
    assert solution.objective == pytest.approx(problem.value, abs=1e-6)
    merged = optsched.solve(given, "proportional-fairness", classes=False)
    assert merged.objective == pytest.approx(solution.objective, abs=1e-6)


def test_conditions_of_optimality() -> None:
    """Rates / levels are at most the prices of time and GPUs, which all jobs together pay with their weight."""
    given = instance(40, 3, 5)
    solution = optsched.solve(given, "proportional-fairness")
    C, duals = solution.allocation.classes, solution.duals
    total = float(duals["time"] @ C.count + duals["capacity"] @ C.capacity)
    assert total == pytest.approx(float(C.weight @ C.count), rel=1e-5)


def test_limits_of_alpha() -> None:
    given = instance(30, 3, 1, repeated=True)
    plain = Instance.from_arrays(
        pools={"a": 3, "b": 4}, throughput=np.random.default_rng(2).lognormal(0, 1, (20, 2))
    )
    most = optsched.solve(plain, "max-throughput")
    zero = optsched.solve(plain, "alpha-fairness", alpha=0, normalise="none")
    assert zero.objective == pytest.approx(most.objective, rel=1e-7)
    one = optsched.solve(given, "alpha-fairness", alpha=1)
    assert one.objective == pytest.approx(
        optsched.solve(given, "proportional-fairness").objective, abs=1e-6
    )
    best = optsched.solve(given, "max-min-fairness").objective
    lowest = []
    for alpha in (1.0, 3.0, 8.0):
        solution = optsched.solve(given, "alpha-fairness", alpha=alpha, normalise="max-min")
        assert solution.ok and solution.status == "optimal", (alpha, solution.certificate)
        allocation = solution.allocation
        from optsched.api import make_formulation

        chosen = make_formulation("max-min-fairness")
        program = chosen.program(chosen.classes(solution.candidates))
        assert len(program.classes) == len(allocation.classes)
        lowest.append(program.value(allocation.x))
    assert lowest[0] <= lowest[1] <= lowest[2] <= best + 1e-9
    assert lowest[2] >= 0.9 * best


@pytest.mark.parametrize("alpha", (0.3, 0.5, 2, 3, 5, 10))
@pytest.mark.parametrize("name", ("@quickstart", "@packing", "@large"))
def test_other_alphas_are_certified(name: str, alpha: float) -> None:
    solution = optsched.solve(name, "alpha-fairness", alpha=alpha)
    assert solution.ok and solution.status == "optimal" and solution.gap <= 1e-6
    assert optsched.verify(name, solution.to_document()).ok


def test_deadlines_compose() -> None:
    free = optsched.solve("@quickstart", "proportional-fairness")
    bound = optsched.solve("@quickstart", "proportional-fairness", constraints=["deadlines"])
    assert bound.ok and bound.objective <= free.objective + 1e-9


def test_what_cannot_be_solved_is_named() -> None:
    with pytest.raises(
        SolverUnavailable, match="solver highs lacks 'conic', which a concave utility"
    ):
        optsched.solve("@quickstart", "proportional-fairness", solver="highs")
    with refuses("option of alpha-fairness: alpha: found -1", UsageError):
        optsched.solve("@quickstart", "alpha-fairness", alpha=-1)
    with refuses("option of alpha-fairness: alpha: found 1e-05, expected 0, or...", UsageError):
        optsched.solve("@quickstart", "alpha-fairness", alpha=1e-5)


def test_scs_agrees() -> None:
    ours = optsched.solve("@quickstart", "proportional-fairness")
    scs = optsched.solve("@quickstart", "proportional-fairness", solver="scs", tolerance=1e-8)
    assert scs.objective == pytest.approx(ours.objective, abs=1e-5)
