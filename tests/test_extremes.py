"""Instances in odd units: answers, proofs and refusals must not depend on whether a rate is 1e-9 or 1e9 steps/s."""

from __future__ import annotations

import numpy as np
import pytest
from documents import instance_document
from refusals import refuses

import optsched
from optsched import Instance

pytestmark = pytest.mark.property

SOLVERS = ("highs", "highs-ipm", "clarabel")


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("weight", (1e-12, 1e-3, 1.0, 1e9, 1e16))
def test_levels_of_any_size(solver: str, weight: float) -> None:
    instance = Instance.from_arrays(pools={"a": 1}, throughput=np.ones((2, 1)), weight=weight)
    solution = optsched.solve(instance, solver=solver)
    assert solution.ok and solution.status == "optimal"
    assert solution.objective == pytest.approx(0.5 / weight, rel=1e-6)
    assert optsched.verify(instance, solution.to_document()).ok


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("scale", (1e-12, 1e-6, 1e6, 1e12))
def test_total_throughput_scales_with_the_rates(solver: str, scale: float) -> None:
    rate = np.random.default_rng(0).uniform(1, 20, (30, 2))
    pools = {"a": 4, "b": 3}
    base = optsched.solve(
        Instance.from_arrays(pools=pools, throughput=rate), "max-throughput", solver=solver
    )
    scaled = optsched.solve(
        Instance.from_arrays(pools=pools, throughput=rate * scale), "max-throughput", solver=solver
    )
    assert scaled.ok and scaled.status == "optimal"
    assert scaled.objective == pytest.approx(base.objective * scale, rel=1e-6)
    assert scaled.prices["a"] == pytest.approx(base.prices["a"] * scale, rel=1e-4)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("seed", range(3))
def test_twelve_orders_of_magnitude_in_one_instance(solver: str, seed: int) -> None:
    random = np.random.default_rng(seed)
    pools = {"a": 5, "b": 3}
    weights = Instance.from_arrays(
        pools=pools,
        throughput=random.lognormal(0, 1, (40, 2)),
        weight=10.0 ** random.uniform(-6, 6, 40),
    )
    rates = Instance.from_arrays(
        pools=pools, throughput=10.0 ** random.uniform(-9, 9, (40, 2)), steps=10.0
    )
    for instance, formulation in (
        (weights, "max-min-fairness"),
        (rates, "makespan"),
        (rates, "max-min-fairness"),
    ):
        solution = optsched.solve(instance, formulation, solver=solver)
        assert solution.ok and solution.status == "optimal", (formulation, solution.certificate)
        assert solution.certificate.proof == "dual"


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("rate", (1e-9, 1e-6, 1.0, 1e6))
def test_a_deadline_is_met_at_any_rate(solver: str, rate: float) -> None:
    def solve(second: float) -> optsched.Solution:
        instance = Instance.from_arrays(
            pools={"g": 1},
            throughput=np.full((2, 1), rate),
            steps=np.array([80.0, 80.0]) * rate,
            deadline=np.array([100.0, second]),
        )
        return optsched.solve(instance, constraints=["deadlines"], solver=solver)

    met = solve(np.inf)
    assert met.ok and met.throughput["j0"] >= 0.8 * rate * (1 - 1e-6)
    assert met.throughput["j1"] == pytest.approx(0.2 * rate, rel=1e-6)
    both = solve(100.0)
    assert both.status == "infeasible" and both.ok and len(both.conflicts) >= 2


@pytest.mark.parametrize("field", ("weight", "steps"))
def test_numbers_beyond_reason_are_refused(field: str) -> None:
    with refuses(f'{field}[0]: found 1e+300 (job "j0"), expected a number of at most 1e+100'):
        Instance.from_arrays(pools={"a": 1}, throughput=[[1.0]], **{field: 1e300})
    for rate in (1e300, 1e-300):
        with refuses(
            f"throughput[0, 0]: found {rate}, expected 0, or a rate in steps/s from 1e-100..."
        ):
            Instance.from_arrays(pools={"a": 1}, throughput=[[rate]])


def test_an_elastic_job_in_isolation_keeps_its_capacity() -> None:
    """The reference column holds 4 GPUs, although the job could run on 1."""
    document = instance_document(
        [{"name": "p", "nodes": 1, "gpus_per_node": 4, "cpus_per_node": 8}],
        [{"id": f"j{i}", "workload": "w", "gpus": {"min": 1, "max": 4}} for i in range(4)],
        workloads={"w": {"throughput": {"p": {"4": 5.0}}, "demand": {"cpu": 1}}},
    )
    instance = Instance.from_document(document)
    solution = optsched.solve(instance, "isolated")
    assert solution.ok and solution.allocation.usage[0] == pytest.approx(4.0)
    nodes = [{"name": "one", "gpus": 4, "cpus": 4}, {"name": "two", "gpus": 4, "cpus": 0}]
    document["cluster"]["pools"] = [{"name": "p", "nodes": nodes}]
    tight = optsched.solve(Instance.from_document(document), "isolated")
    assert tight.ok and tight.allocation.usage.tolist() == pytest.approx([4.0, 4.0])


def test_a_gap_counts_for_integer_programs_only() -> None:
    rate = np.random.default_rng(1).lognormal(0, 1, (400, 4))
    instance = Instance.from_arrays(pools=dict.fromkeys("abcd", 20), throughput=rate)
    stopped = optsched.solve(instance, solver="highs", work_limit=60, gap=0.9)
    assert stopped.status == "feasible" and stopped.gap > 1e-3
    best = optsched.solve(instance, "max-throughput").to_document()
    half = best | {
        "allocation": [row | {"fraction": row["fraction"] / 2} for row in best["allocation"]],
        "throughput": {job: rate / 2 for job, rate in best["throughput"].items()},
        "objective": best["objective"] / 2,
        "gap": abs(best["objective"] / 2 - best["bound"]) / (best["objective"] / 2),
        "solver": best["solver"] | {"gap": 1.0},
    }
    assert "status" in {finding.field for finding in optsched.verify(instance, half).findings}


def test_a_whole_job_that_gets_nothing_is_no_answer_to_a_deadline() -> None:
    instance = Instance.from_arrays(
        pools={"a": 1}, throughput=np.ones((2, 1)), steps=10.0, deadline=np.array([100.0, np.inf])
    )
    solution = optsched.solve(instance, "max-throughput", integral=True, constraints=["deadlines"])
    assert solution.ok and solution.throughput["j0"] == 1.0
