"""Goodput against the published code, and batch sizes that are chosen by it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from beside import SHARED, needs
from documents import instance_document
from hypothesis import given
from hypothesis import strategies as st
from refusals import refuses

from optsched.assembly import model_of
from optsched.instance import Instance
from optsched.performance import Configurations, Feasibility, JobBatch, Prediction

# Private names: a model by its class, where the registry knows it by name
from optsched.performance.batches import BatchLimits, GradientNoise, best_batches
from optsched.performance.parametric.pollux import log_step_seconds
from optsched.performance.ways import Ways

pytestmark = pytest.mark.property

CASES = SHARED / "oracles" / "pollux" / "goodput_cases.json"
needs_oracle = needs(CASES)
NAMES = ("alpha_c", "beta_c", "alpha_n", "beta_n", "alpha_r", "beta_r", "gamma")
ADAPTDL_ZERO = 1e-8


def step_seconds(law: np.ndarray, ways: Ways, least: float = 0.0) -> np.ndarray:
    return np.exp(log_step_seconds(law, ways, least)[0])


def ways_of(k: int, n: int, samples: Any, passes: Any) -> Ways:
    zeros = np.zeros(len(samples), np.int64)
    return Ways(
        zeros,
        zeros,
        zeros + k,
        zeros + n,
        np.asarray(samples, float),
        np.asarray(passes),
        ("w",),
        ("g",),
    )


@needs_oracle
def test_published_values_are_met() -> None:
    told = json.loads(CASES.read_text())
    for case in told["evaluate"]:
        law = np.array([told["perf_params"][case["perf"]][name] for name in NAMES])
        noise = GradientNoise.of(**told["grad_params"][case["grad"]], batch=case["init_batch_size"])
        ways = ways_of(
            case["num_replicas"], case["num_nodes"], [case["atomic_bsz"]], [case["accum_steps"] + 1]
        )
        throughput = ways.samples_per_step / step_seconds(law, ways, ADAPTDL_ZERO)
        efficiency = noise.efficiency(ways.samples_per_step)
        found = [throughput, efficiency, throughput * efficiency]
        np.testing.assert_allclose(
            np.ravel(found), [case["throughput"], case["efficiency"], case["goodput"]], rtol=1e-12
        )


@needs_oracle
def test_published_optima_are_met() -> None:
    told = json.loads(CASES.read_text())
    for case in told["optimize"]:
        law = np.array([told["perf_params"][case["perf"]][name] for name in NAMES])
        noise = told["grad_params"][case["grad"]]
        k, n = case["num_replicas"], case["num_nodes"]
        best = best_batches(
            np.array([k]),
            lambda m, p, row, law=law, k=k, n=n: step_seconds(
                law, ways_of(k, n, m, p), ADAPTDL_ZERO
            ),
            GradientNoise.of([noise["sqr"]], [noise["var"]], [case["init_batch_size"]]),
            BatchLimits(
                np.array([float(case["max_batch_size"])]),
                *(np.array([float(bound)]) for bound in case["atomic_bsz_range"]),
                np.array([case["accumulation"]]),
            ),
        )
        assert best.goodput[0] == pytest.approx(case["goodput"], rel=1e-12)
        assert (best.samples[0], best.passes[0] - 1) == (case["atomic_bsz"], case["accum_steps"])


@given(
    st.floats(0, 100),
    st.floats(0.001, 100),
    st.floats(1, 1000),
    st.floats(1, 1e4),
    st.floats(1, 100),
)
def test_efficiency_is_one_at_first_and_falls(
    sqr: float, var: float, first: float, batch: float, more: float
) -> None:
    noise = GradientNoise.of(sqr, var, first)
    assert noise.efficiency(first) == pytest.approx(1.0, rel=1e-12)
    assert noise.gain(first) == pytest.approx(1.0, rel=1e-12)
    assert noise.efficiency(batch * more) <= noise.efficiency(batch) * (1 + 1e-12)
    assert noise.gain(batch * more) >= noise.gain(batch) * (1 - 1e-12)


def test_unknown_times_are_not_taken() -> None:
    noise, limits = GradientNoise.of([1.0], [9.0], [8.0]), BatchLimits(
        np.array([64.0]), np.array([1.0]), np.array([64.0]), np.array([False])
    )  # fmt: skip
    some = best_batches(
        np.array([2]), lambda m, p, row: np.where(m <= 10, 1.0, np.nan), noise, limits
    )
    assert some.samples[0] == 10 and some.goodput[0] == pytest.approx(20 * noise.efficiency(20)[0])
    none = best_batches(np.array([2]), lambda m, p, row: np.full(len(m), np.nan), noise, limits)
    assert np.isnan(none.goodput[0])
    crowd = best_batches(np.array([128]), lambda m, p, row: np.ones(len(m)), noise, limits)
    assert crowd.goodput[0] == 0.0


# --- on an instance ---------------------------------------------------------------------------------------------------

LAW = {"a_c": 0.02, "b_c": 0.001, "a_n": 0.15, "b_n": 0.01, "a_r": 0.05, "b_r": 0.005, "g": 1.6}
NOISE = {
    "sqr": 0.01,
    "var": 5.0,
    "batch": 128,
    "max_batch": 4096,
    "min_batch_per_gpu": 32,
    "max_batch_per_gpu": 256,
}


def instance(parameters: dict[str, Any]) -> Instance:
    return Instance.from_document(
        instance_document(
            [{"name": "p", "gpu": "t4", "nodes": 40, "gpus_per_node": 4}],
            [{"id": "a", "workload": "w"}, {"id": "b", "workload": "v"}],
            performance={
                "model": "pollux",
                "coefficients": {"w": {"t4": LAW}, "v": {"t4": LAW}},
            },
            workloads={"w": {"parameters": parameters}, "v": {"parameters": {"batch": 128}}},
        )
    )


def predict(parameters: dict[str, Any], shapes: list[tuple[int, int]]) -> Prediction:
    made = instance(parameters)
    table = made.jobs_table
    jobs = JobBatch(table.workload, np.array([-1, -1]), np.array([False, False]), table.gpus_min)
    gpus, nodes = (np.array(column, np.int64) for column in zip(*shapes, strict=True))
    zeros = np.zeros(len(gpus), np.int64)
    return model_of(made).predict(
        jobs, Configurations(zeros, gpus, nodes, np.ones(len(gpus)), zeros)
    )


def test_rates_are_goodput_in_steps_of_the_first_batch() -> None:
    shapes = [(1, 1), (4, 1), (8, 2), (160, 40)]
    answer = predict({"gradient_noise": NOISE}, shapes)
    law = np.array([LAW[name] for name in ("a_c", "b_c", "a_n", "b_n", "a_r", "b_r", "g")])
    noise = GradientNoise.of(0.01, 5.0, 128.0)
    for column, (k, n) in enumerate(shapes[:3]):
        best = 0.0
        for batch in np.geomspace(max(128, 32 * k), 4096, 50):
            local = batch / k
            passes = max(int(np.ceil(local / 256 - 1e-8)), 2 if k == 1 and local > 128 else 1)
            samples = np.ceil(local / passes - 1e-8)
            ways = ways_of(k, n, [samples], [passes])
            steps = ways.samples_per_step / 128 * noise.efficiency(ways.samples_per_step)
            best = max(best, float((steps / step_seconds(law, ways))[0]))
        assert answer.rate[0, column] == pytest.approx(best, rel=1e-12)
    assert answer.feasible[0].tolist() == [Feasibility.OK] * 3 + [
        Feasibility.ZERO_RATE
    ]  # 160 x 32 > 4096
    plain = predict({"batch": 128}, shapes[:3])
    assert (answer.rate[0, :3] >= plain.rate[0] - 1e-12).all() and (
        answer.rate[1, :3] == plain.rate[1]
    ).all()


def test_a_fixed_batch_is_its_own_goodput() -> None:
    answer = predict(
        {"gradient_noise": {"sqr": 1.0, "var": 1.0, "batch": 128}}, [(1, 1), (2, 1), (256, 64)]
    )
    plain = predict({"batch": 128}, [(1, 1), (2, 1), (256, 64)])
    np.testing.assert_allclose(answer.rate[0], plain.rate[0], rtol=1e-12)
    assert answer.feasible[0].tolist() == plain.feasible[0].tolist()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"sqr": -1},
            "workloads.w.parameters.gradient_noise.sqr: found -1, expected a number of at least 0",
        ),
        (
            {"sqr": 0, "var": 0},
            "workloads.w.parameters.gradient_noise: found sqr and var of 0, expected one of them above 0",
        ),
        (
            {"max_batch": 64},
            "workloads.w.parameters.gradient_noise.max_batch: found 64.0, expected at least the batch of 128",
        ),
        (
            {"max_batch_per_gpu": 16},
            "workloads.w.parameters.gradient_noise.max_batch_per_gpu: found 16, expected at least 32",
        ),
        (
            {"batch_size": 1},
            "workloads.w.parameters.gradient_noise.batch_size: found an unknown key 'batch_size'",
        ),
    ],
)
def test_wrong_parameters_are_told(change: dict[str, Any], message: str) -> None:
    with refuses(message):
        model_of(instance({"gradient_noise": NOISE | change}))


def test_only_one_batch_size_is_stated() -> None:
    with refuses("workloads.w.parameters.batch: found a batch size beside gradient_noise"):
        model_of(instance({"gradient_noise": NOISE, "batch": 3}))
