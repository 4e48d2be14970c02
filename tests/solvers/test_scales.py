"""Answers do not depend on units: budgets, prices, work and rates may be 12 orders of magnitude
apart from 1, and what is called optimal is so by a part of the objective itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import optsched
from optsched import Instance, Solution
from optsched.errors import OptschedError

pytestmark = pytest.mark.property

LINEAR = ("max-min-fairness", "max-throughput", "water-filling", "drf")
INVERSE = ("makespan", "finish-time-fairness")


def market(
    seed: int, price: float = 1.0, rate: float = 1.0, work: float = 1.0
) -> tuple[Instance, float]:
    """A few jobs of two tenants on one to three pools, and a budget that leaves a part of these."""
    random = np.random.default_rng([3, seed])
    jobs, pools = int(random.integers(2, 9)), int(random.integers(1, 4))
    nodes, cost = random.integers(1, 6, pools), random.uniform(0.5, 3.0, pools)
    part = random.uniform(0.05, 0.9)
    names = [f"p{pool}" for pool in range(pools)]
    instance = Instance.from_arrays(
        pools=[
            {
                "name": name,
                "nodes": int(count),
                "gpus_per_node": 1,
                "cost_per_gpu_hour": price * each,
            }
            for name, count, each in zip(names, nodes, cost, strict=True)
        ],
        throughput=rate * random.lognormal(0.0, 1.0, (jobs, pools)),
        steps=work * random.lognormal(3.0, 1.0, jobs),
        weight=random.choice([0.5, 1.0, 4.0], jobs),
        tenant=random.integers(0, 2, jobs),
        tenants=[{"name": "a"}, {"name": "b"}],
    )
    return instance, float(price * part * (nodes @ cost))


def answer(
    instance: Instance, formulation: str, budget: float, solver: str, **quota: Any
) -> Solution | None:
    """The solution; None where the solver says that it failed."""
    asked: list[dict[str, Any]] = [{"kind": "budget", "limit": budget}]
    if quota:
        asked.append({"kind": "quota", "tenant": "a", **quota})
    try:
        return optsched.solve(instance, formulation, constraints=asked, solver=solver)
    except OptschedError:
        return None


@pytest.mark.parametrize("solver", ["auto", "prices", "highs"])
@pytest.mark.parametrize("formulation", [*LINEAR, "makespan", "throughput-per-cost", "cost"])
def test_units_change_neither_status_nor_gap(formulation: str, solver: str) -> None:
    for seed in range(2):
        instance, budget = market(seed)
        before = answer(instance, formulation, budget, solver)
        assert before is not None and before.objective is not None
        for name, factor in (("price", 1e-12), ("price", 1e12), ("work", 1e-12), ("rate", 1e12)):
            instance, budget = market(seed, **{name: factor})
            after = answer(instance, formulation, budget, solver)
            assert after is not None and after.status == before.status == "optimal", (seed, name)
            changed = {
                ("cost", "price"): factor, ("throughput-per-cost", "price"): 1.0 / factor,
                ("makespan", "work"): factor, ("makespan", "rate"): 1.0 / factor,
                ("throughput-per-cost", "rate"): factor, ("max-throughput", "rate"): factor,
            }.get((formulation, name), 1.0)  # fmt: skip
            assert after.objective == pytest.approx(before.objective * changed, rel=1e-7, abs=0.0)
            assert (after.gap or 0.0) < 1e-6 and (before.gap or 0.0) < 1e-6


@pytest.mark.parametrize("solver", ["auto", "prices", "highs", "clarabel"])
@pytest.mark.parametrize("formulation", [*LINEAR, *INVERSE])
@pytest.mark.parametrize("small", [1e-6, 1e-9, 1e-12])
def test_a_tiny_budget_is_used_to_the_last(formulation: str, solver: str, small: float) -> None:
    # Nothing else binds, so that the answer is a multiple of the budget.
    for seed in range(2):
        instance, budget = market(seed)
        little, less = (
            answer(instance, formulation, factor * budget, solver)
            for factor in (1e-3, 1e-3 * small)
        )
        assert little is not None and little.status == "optimal"
        if less is None or less.status != "optimal":
            # No answer, but no wrong one either. Later stages of filling have other sides.
            by_stages = solver == "clarabel" and formulation in ("water-filling", "drf")
            # The rounding of a machine may leave prices short of their precision, as they say.
            near = less is not None and less.gap is not None and less.gap < 1e-5
            assert by_stages or (solver != "auto" and (small == 1e-12 or near)), (seed, formulation)
            continue
        assert little.objective and less.objective and (less.gap or 0.0) < 1e-6
        expected = little.objective * (1.0 / small if formulation in INVERSE else small)
        # Ages count less the longer all others take.
        near = 1e-2 if formulation == "finish-time-fairness" else 1e-5
        assert less.objective == pytest.approx(expected, rel=near, abs=0.0), seed
        assert less.certificate.ok


@pytest.mark.parametrize("formulation", [*LINEAR, *INVERSE, "proportional-fairness"])
@pytest.mark.parametrize("price", [1.0, 1e-6])
def test_no_budget_at_all_is_nothing_or_infeasible(formulation: str, price: float) -> None:
    for seed in range(2):
        instance, _ = market(seed, price=price)
        for solver in ("auto", "prices", "highs"):
            found = answer(instance, formulation, 0.0, solver)
            if formulation in LINEAR:
                assert found is not None and (found.status, found.objective) == ("optimal", 0.0)
            elif found is not None:
                assert found.status == "infeasible"


@pytest.mark.parametrize("formulation", [*LINEAR, "makespan"])
def test_limits_of_different_sizes_leave_no_wrong_claim(formulation: str) -> None:
    for seed in range(3):
        instance, budget = market(seed)
        for part, gpus in ((1e-12, 1e-8), (1.0, 1e-12), (1e-6, 1e-6)):
            claims = [
                found.objective
                for solver in ("auto", "prices", "highs")
                if (found := answer(instance, formulation, part * budget, solver, gpus=gpus))
                and found.status == "optimal"
                and found.objective is not None
            ]
            assert claims
            assert max(claims) == pytest.approx(min(claims), rel=2e-6, abs=0.0), (seed, part, gpus)
