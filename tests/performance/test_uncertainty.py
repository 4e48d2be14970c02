"""Fitted laws are as sure of themselves as they can be: their intervals hold what they say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from refusals import refuses

import optsched
from optsched.errors import InvalidInput
from optsched.instance import Instance
from optsched.performance import Profiles

# Private names: a model by its class, where the registry knows it by name
from optsched.performance.parametric.fitting import LEAST_LOG_SD, STATED_LOG_SD, log_sd
from optsched.performance.parametric.pollux import Pollux
from optsched.performance.parametric.shared_link import SharedLink
from optsched.performance.ways import Ways
from optsched.study import fit_model, predict_times

pytestmark = pytest.mark.property

NOISE = 0.1
SHAPES = [(1, 1), (2, 1), (3, 1), (4, 1), (8, 2), (12, 3), (16, 4)]
FIXED = 192.0
"""Samples per step of what the scaling laws are fitted to."""


def truth(k: np.ndarray, n: np.ndarray, m: np.ndarray) -> np.ndarray:
    sync = np.where(k == 1, 0.0, np.where(n == 1, 0.02 + 0.003 * (k - 2), 0.06 + 0.005 * (k - 2)))
    return np.hypot(0.03 + 0.002 * m, sync)


def measured(rows: np.ndarray, rng: np.random.Generator, workload: str = "w") -> Profiles:
    """Steps at rows (k, n, m) of the law, each off by 10 %."""
    k, n, m = rows.T
    seconds = truth(k, n, m) * np.exp(NOISE * rng.normal(size=len(rows)))
    names: dict[str, Any] = {"workload": [workload] * len(rows), "gpu": ["g"] * len(rows)}
    return Profiles.of(**names, gpus=k.astype(int), nodes=n.astype(int), samples=m, seconds=seconds)


def ways_of(fixed: bool) -> np.ndarray:
    batches = [FIXED] if fixed else [8.0, 16.0, 24.0, 32.0, 48.0, 64.0]
    return np.array([(k, n, batch / k if fixed else batch) for k, n in SHAPES for batch in batches])


@pytest.mark.parametrize(
    ("model", "count"),
    [
        pytest.param(
            model,
            count,
            marks=pytest.mark.study if (model, count) in (("pollux", 3), ("pollux", 10)) else (),
        )
        for model in ("pollux", "shared-link", "amdahl", "usl")
        for count in (3, 6, 10, 30)
    ],
)
def test_intervals_hold_unseen_steps_of_the_levels_that_were_measured(
    model: str, count: int
) -> None:
    scaling = model in ("amdahl", "usl")
    every = ways_of(fixed=scaling)
    inside, wide = [], []
    for seed in range(12):
        rng = np.random.default_rng([seed, count])
        seen = (
            np.concatenate([every] * 10)[rng.permutation(10 * len(every))]
            if scaling
            else rng.permutation(every)
        )
        fitted = seen[:count]
        document = fit_model(measured(fitted, rng), model)
        level = (every[:, :2] > 1).sum(axis=1)
        new = measured(every[np.isin(level, (fitted[:, :2] > 1).sum(axis=1))], rng)
        said = predict_times(document, new.ways)
        assert np.isfinite(said.seconds).all()
        inside += (np.abs(np.log(said.seconds / new.seconds)) <= 1.645 * said.log_sd).tolist()
        wide += said.log_sd.tolist()
    assert np.mean(inside) >= 0.8
    assert min(wide) >= NOISE / 2 and np.median(wide) <= 0.3
    if count == 30:
        assert np.median(wide) <= 2 * NOISE


def test_few_measurements_are_stated_and_many_are_believed() -> None:
    assert log_sd(np.zeros(3), 3) == log_sd(np.zeros(2), 7) == STATED_LOG_SD
    assert log_sd(np.zeros(1000), 3) == LEAST_LOG_SD
    rng = np.random.default_rng(0)
    assert log_sd(0.2 * rng.normal(size=20_000), 7) == pytest.approx(0.2, rel=0.02)
    assert log_sd(np.full(4, 1e9), 1) == 10.0  # what a document holds


def test_deadlines_are_kept_at_a_quantile_by_laws_of_few_steps() -> None:
    """40 workloads, each of its own five noisy steps: at the cheapest allocation, their true rates keep deadlines."""
    jobs, hours, batch = 40, 2.0, 32.0
    rng = np.random.default_rng(5)
    few = np.array([(1, 1, 16), (1, 1, 64), (2, 1, 32), (4, 1, 16), (4, 1, 64)], np.float64)
    parts = [measured(few, rng, f"w{row}") for row in range(jobs)]
    profiles = Profiles.of(
        workload=np.repeat([f"w{row}" for row in range(jobs)], len(few)).tolist(), gpu=["g"] * (jobs * len(few)),
        gpus=np.tile(few[:, 0], jobs).astype(int), samples=np.tile(few[:, 2], jobs),
        seconds=np.concatenate([part.seconds for part in parts]),
    )  # fmt: skip
    true = (
        2 * batch / batch / truth(np.array([2.0]), np.array([1.0]), np.array([batch]))[0]
    )  # a step is 32 samples
    instance = Instance.from_document(
        {
            "format": "optsched-instance/1",
            "cluster": {"pools": [{"name": "g", "nodes": 40, "gpus_per_node": 4, "cost_per_gpu_hour": 1.0}]},
            "performance": fit_model(profiles, "pollux"),
            "workloads": {f"w{row}": {"parameters": {"batch_per_gpu": batch}} for row in range(jobs)},
            "jobs": [
                {"id": f"j{row}", "workload": f"w{row}", "gpus": 2, "deadline": hours * 3600,
                 "steps": float(true * 3600 * rng.uniform(0.5, 1.0))}
                for row in range(jobs)
            ],
        }
    )  # fmt: skip

    def met(**options: Any) -> float:
        solution = optsched.solve(instance, "cost", constraints=["deadlines"], **options)
        assert solution.status == "optimal"
        told = predict_times(instance.performance, Ways(
            np.arange(jobs), np.zeros(jobs, np.int64), np.full(jobs, 2), np.ones(jobs, np.int64),
            np.full(jobs, batch), np.ones(jobs, np.int64), tuple(f"w{row}" for row in range(jobs)), ("g",),
        )).seconds  # fmt: skip
        share = np.array([solution.throughput[f"j{row}"] for row in range(jobs)]) * told / 2
        return float(
            np.mean(share * true * hours * 3600 >= instance.jobs_table.steps_left * (1 - 1e-9))
        )

    assert met() < 0.75
    assert met(quantile=0.9) >= 0.85


@pytest.mark.parametrize(
    ("document", "path"),
    [
        ({"model": "pollux", "coefficients": {"w": {"g": {"a_c": 1.0, "b_c": 0.0, "log_sd": 500}}}},
         "coefficients.w.g.log_sd"),
        ({"model": "usl", "curves": {"w": {"g": [{"batch": 8, "work": 1.0, "log_sd": 500}]}}}, "curves.w.g[0]"),
        ({"model": "interpolation", "points": {"w": {"g": [[1, 1, 8, 1, 0.5]]}}, "batch_log_sd": 500}, "batch_log_sd"),
        ({"model": "prior", "log_sd_gpus": 500}, "log_sd_gpus"),
        ({"model": "prior", "log_sd_least": 500}, "log_sd_least"),
        ({"model": "conformal", "of": {"model": "prior"}, "level": 0.9, "radius": 500, "rows": 9}, "radius"),
        ({"model": "noisy", "of": {"model": "table"}, "sd": 1e99}, "sd"),
    ],
)  # fmt: skip
def test_documents_are_no_less_sure_than_a_number_can_tell(
    document: dict[str, Any], path: str
) -> None:
    zero, one = np.zeros(1, np.int64), np.ones(1, np.int64)
    ways = Ways(zero, zero, one, one, np.ones(1), one, ("w",), ("g",))
    with refuses("performance...") as caught:
        predict_times(document, ways)
    assert path in caught.value.path
    assert caught.value.found in ("500", "1e+99")
    assert caught.value.expected.startswith("a number of at most ")


@pytest.mark.parametrize("a", [0, 1e-320])
def test_steps_take_some_time(a: float) -> None:
    with refuses(
        f"performance.coefficients.w.g: found a_c {a:g}, b_c 0, expected one of them at least 1e-..."
    ):
        Pollux.from_document({"coefficients": {"w": {"g": {"a_c": a, "b_c": 0, "a_r": 1}}}})
    link = {"bandwidth": 1e9, "latency": 1e-4}
    shared = {
        "gradient_bytes": {"w": 1e8}, "gpus": {"g": {"inside": link, "across": link}},
        "compute": {"w": {"g": {"a": 0, "b": a}}},
    }  # fmt: skip
    with refuses(f"performance.compute.w.g: found a 0, b {a:g}, expected one of them at..."):
        SharedLink.from_document(shared)


@pytest.mark.parametrize("column", ["samples", "seconds"])
@pytest.mark.parametrize("value", [1e300, 1e-300])
def test_slips_of_the_pen_are_no_measurements(column: str, value: float) -> None:
    columns: dict[str, list[float]] = {"samples": [8.0, 4.0], "seconds": [1.0, 0.6]}
    columns[column][1] = value
    with refuses(f"{column}[1]: found {value}, expected a number from 1e-30 to 1e+30"):
        Profiles.of(workload=["w"] * 2, gpu=["g"] * 2, gpus=[1, 2], **columns)


@pytest.mark.parametrize(
    "model", ["amdahl", "usl", "pollux", "shared-link", "interpolation", "prior"]
)
@pytest.mark.parametrize(("samples", "seconds"), [(1e30, 1e-30), (1e-30, 1e30), (1e30, 1e30)])
def test_whatever_is_a_measurement_is_fitted_or_refused_in_words(
    model: str, samples: float, seconds: float
) -> None:
    profiles = Profiles.of(
        workload=["w"] * 4, gpu=["g"] * 4, gpus=[1, 2, 4, 1], samples=[8.0, 4.0, 2.0, samples],
        seconds=[1.0, 0.6, 0.4, seconds],
    )  # fmt: skip
    try:
        told = predict_times(fit_model(profiles, model), profiles.ways)
    except InvalidInput:
        return
    assert (told.seconds[np.isfinite(told.seconds)] > 0).all()
