"""The ``prior`` model: rates carried from the GPU types and counts that are known to all others."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from beside import SHARED, needs
from documents import instance_document
from instance_cases import configurations
from refusals import refuses

import optsched
from optsched.assembly import load, model_of
from optsched.instance import Instance
from optsched.performance import Feasibility, JobBatch, Profiles, Source

# Private names: a model by its class, where the registry knows it by name
from optsched.performance.analytic.hardware import find
from optsched.performance.prior import Prior

pytestmark = pytest.mark.property

Document = dict[str, Any]
DATA = SHARED / "data" / "perfmodel"

POOLS: list[Document] = [
    {"name": "v100", "gpu": "V100-SXM2-16GB", "nodes": 4, "gpus_per_node": 4},
    {"name": "old", "gpu": "k80", "nodes": 2, "gpus_per_node": 8},
    {"name": "more", "gpu": "V100-SXM2-16GB", "nodes": 1, "gpus_per_node": 8},
    {"name": "odd", "gpu": "homemade", "nodes": 1, "gpus_per_node": 8},
]
WORKLOADS: Document = {
    "seen": {"throughput": {"v100": {"1": 40.0, "4": 120.0}, "k80": {"2": 9.0, "3": 0.0}}},
    "one": {"throughput": {"V100-SXM2-16GB": 10.0}},
    "homely": {"throughput": {"odd": 5.0}},
    "none": {},
    "fitted": {"parameters": {"batch_per_gpu": 32, "profile": "ResNet"}},
}
RATES = {"ResNet": {"V100-SXM2-16GB": [{"gpus": 1, "samples": 32.0, "rate": 320.0},
                                       {"gpus": 4, "nodes": 2, "samples": 64.0, "rate": 1000.0}]}}  # fmt: skip


def document(**options: Any) -> Document:
    return instance_document(POOLS, workloads=WORKLOADS, performance={"model": "prior", **options})


def ratio(one: str, other: str) -> float:
    a, b = find(one), find(other)
    return math.sqrt(b.peak("fp32") / a.peak("fp32") * b.bandwidth / a.bandwidth)


def predict(rows: list[tuple[int, int, int]], **options: Any) -> Any:
    instance = Instance.from_document(document(**options))
    count = len(WORKLOADS)
    batch = JobBatch(
        np.arange(count), np.full(count, -1), np.zeros(count, bool), np.ones(count, np.int64)
    )
    return model_of(instance).predict(batch, configurations(rows))


def test_from_what_workloads_state() -> None:
    found = predict(
        [(0, 1, 1), (1, 1, 1), (0, 2, 1), (0, 8, 2), (1, 4, 1), (2, 1, 1), (3, 1, 1), (0, 4, 2)]
    )
    seen = [40, 4.5, 80, 240, 18, 40, 0, 120]
    assert found.rate[0] == pytest.approx(seen)
    assert found.rate[1, :3] == pytest.approx([10, 10 * ratio("v100", "k80"), 20])
    assert found.rate[2].tolist() == [
        0,
        0,
        0,
        0,
        0,
        0,
        5,
        0,
    ]  # nothing is carried from a board of the user's own
    assert (found.rate[3] == 0).all()
    sd = found.log_sd[0]
    base = 0.05**2
    assert sd[:6] == pytest.approx(
        np.sqrt([base, base + 0.09, base + 0.09, base + 0.09 + 0.09, base + 0.09, base])
    )
    assert sd[7] == pytest.approx(math.sqrt(base + 0.09))  # the same count on twice as many nodes
    assert ((found.rate > 0) == (found.feasible == Feasibility.OK)).all()
    assert (found.feasible[found.rate == 0] == Feasibility.NO_RATE).all()
    assert (found.source[found.rate > 0] == Source.PRIOR).all()


def test_doubt_grows_with_distance() -> None:
    rows = [(0, k, -(-k // 4)) for k in (1, 2, 4, 8, 16)]
    sd = predict(rows).log_sd[1]
    assert (np.diff(sd) > 0).all()
    assert predict(rows, log_sd_gpus=0, log_sd_nodes=0).log_sd[1].tolist() == [0.05] * 5


def test_from_rates_that_it_was_fitted_to() -> None:
    found = predict([(0, 1, 1), (0, 2, 1), (1, 1, 1), (0, 4, 2), (3, 1, 1)], rates=RATES)
    # a step is 32 samples, so k GPUs with 32 each do k steps at a time
    assert found.rate[4] == pytest.approx([10, 20, 10 * ratio("v100", "k80"), 1000 / 32, 0])
    assert found.log_sd[4, 3] == pytest.approx(
        math.hypot(0.05, 0.1)
    )  # measured with twice the batch
    assert found.feasible[4, 4] == Feasibility.NO_RATE


def test_a_profile_is_kept_and_written_exactly() -> None:
    profiles = Profiles.of(
        workload=["a", "a", "a", "b"], gpu=["v100", "v100", "t4", "t4"], gpus=[1, 1, 1, 2],
        samples=[8.0, 8.0, 8.0, 3.0], seconds=[0.1, 0.3, 1 / 3, 0.7],
    )  # fmt: skip
    made = Prior.fit(profiles, {"log_sd_gpu": 0.2})
    found = made.times(profiles.ways)
    assert found.seconds == pytest.approx([1 / ((10 + 1 / 0.3) / 2)] * 2 + [1 / 3, 0.7])
    assert (found.source == Source.PRIOR).all()
    written = json.loads(json.dumps(made.document()))
    assert written.pop("model") == "prior"
    again = Prior.from_document(written)
    assert np.array_equal(again.times(profiles.ways).seconds, found.seconds)
    assert again.document() == made.document()
    with refuses("performance.rates: found rates beside a profile, expected one of the two"):
        Prior.fit(profiles, {"rates": {}})


def test_steps_of_several_passes_are_measurements_of_their_own() -> None:
    """Four passes exchange gradients once for four times the samples: another rate, and both are kept."""
    profiles = Profiles.of(
        workload=["a"] * 4, gpu=["v100"] * 4, gpus=[4] * 4, samples=[8.0] * 4, passes=[4, 1, 4, 1],
        seconds=[1.0, 0.5, 1.2, 0.5],
    )  # fmt: skip
    made = Prior.fit(profiles, {})
    assert [(one["passes"], one["rate"]) for one in made.document()["rates"]["a"]["v100"]] == [
        (1, 64.0), (4, pytest.approx(128 * (1 + 1 / 1.2) / 2))
    ]  # fmt: skip
    said = made.times(profiles.ways)
    assert said.seconds == pytest.approx([128 / (128 * (1 + 1 / 1.2) / 2), 0.5] * 2)
    assert said.log_sd.tolist() == [0.05] * 4
    asked = Profiles.of(
        workload=["a"], gpu=["v100"], gpus=[4], samples=[8.0], passes=[2], seconds=[1.0]
    )
    assert made.times(asked.ways).log_sd == pytest.approx([math.hypot(0.05, 0.1)])


def test_many_ways_are_grouped_at_once() -> None:
    rng = np.random.default_rng(0)
    count = 60_000
    profiles = Profiles.of(
        workload=["a"] * count, gpu=["v100"] * count, gpus=rng.integers(1, 65, count),
        samples=rng.integers(1, 1000, count), seconds=rng.uniform(1, 2, count),
    )  # fmt: skip
    made = Prior.fit(profiles, {})  # 39,000 groups: seconds, not minutes
    one = made.document()["rates"]["a"]["v100"][7]
    same = (profiles.ways.gpus == one["gpus"]) & (profiles.ways.samples == one["samples"])
    assert one["rate"] == np.median(profiles.samples_per_second[same])


@pytest.mark.parametrize("seed", range(5))
def test_the_arrays_say_what_a_scalar_loop_says(seed: int) -> None:
    rng = np.random.default_rng(seed)
    types = ["k80", "v100", "a100", "own"]
    count = 30
    profiles = Profiles.of(
        workload=[f"w{row}" for row in rng.integers(0, 3, count)],
        gpu=[types[row] for row in rng.integers(0, 4, count)],
        gpus=rng.choice([2, 4, 8], count), nodes=rng.choice([1, 2], count), samples=rng.choice([16.0, 32.0], count),
        seconds=rng.uniform(0.1, 1, count),
    )  # fmt: skip
    made = Prior.fit(profiles, {})
    asked = Profiles.of(
        workload=[f"w{row}" for row in rng.integers(0, 4, 60)], gpu=[types[row] for row in rng.integers(0, 4, 60)],
        gpus=rng.choice([1, 3, 16], 60), nodes=np.ones(60, np.int64), samples=rng.choice([8.0, 32.0], 60),
        seconds=np.ones(60),
    ).ways  # fmt: skip
    found = made.times(asked)
    for row in range(60):
        workload, gpu = asked.workloads[asked.workload[row]], asked.gpu_types[asked.gpu[row]]
        k, n, m = int(asked.gpus[row]), int(asked.nodes[row]), float(asked.samples[row])
        best, seconds, of = math.inf, math.nan, ""
        for other, entries in made.document()["rates"].get(workload, {}).items():
            for one in entries:
                if other != gpu and "own" in (other, gpu):
                    continue
                doubt = 0.05**2 + 0.09 * (other != gpu) + (0.3 * math.log2(k / one["gpus"])) ** 2
                doubt += (0.3 * math.log2(n / one["nodes"])) ** 2 + (
                    0.1 * math.log2(m / one["samples"])
                ) ** 2
                rate = one["rate"] * (1 if other == gpu else ratio(other, gpu)) * k / one["gpus"]
                if (doubt, other != gpu) < (best - 1e-12, True) or (
                    doubt < best + 1e-12 and other == gpu != of
                ):
                    best, seconds, of = doubt, k * m / rate, other
        assert found.seconds[row] == pytest.approx(seconds, nan_ok=True)
        assert found.log_sd[row] == pytest.approx(math.sqrt(best) if best < math.inf else 0.0)


def test_end_to_end(tmp_path: Path) -> None:
    """A job that is profiled on a V100 is scheduled on K80s too, and a plain number serves a gang."""
    jobs = [
        {"id": "a", "workload": "seen", "gpus": 1},
        {"id": "b", "workload": "one", "gpus": 8, "steps": 10},
    ]
    instance = Instance.from_document(document() | {"jobs": jobs})
    solution = optsched.solve(instance, "max-min-fairness")
    assert (solution.status, solution.certificate.ok, solution.unplaced) == ("optimal", True, ())
    saved = tmp_path / "prior.json"
    saved.write_text(json.dumps({"format": "optsched-model/1", "model": "prior", "rates": RATES}))
    plain = tmp_path / "plain.json"
    plain.write_text(
        json.dumps(document() | {"jobs": [{"id": "c", "workload": "fitted", "gpus": 2}]})
    )
    assert optsched.solve(load(plain, saved), "max-min-fairness").throughput["c"] > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rates": {"a": {"v100": []}}}, "performance.rates.a.v100: found [], expected at least 1 entry"),
        ({"rates": {"a": {"v100": [{"gpus": 1, "samples": 0, "rate": 1}]}}},
         "performance.rates.a.v100[0].samples: found 0, expected a number above 0"),
        ({"log_sd": 1},
         "performance.log_sd: found an unknown key 'log_sd', expected one of the format's keys (did you "
         "mean log_sd_gpu..."),
        ({"precision": "int8"}, "performance.precision: found \"int8\", expected one of 'fp64'..."),
    ],
)  # fmt: skip
def test_wrong_options(options: Document, message: str) -> None:
    with refuses(message):
        model_of(Instance.from_document(document(**options)))


@needs(DATA)
def test_the_ratio_on_a_public_table() -> None:
    """From every GPU type to every other on 1 GPU: a mean error of 35 %, a median of 24 %, no bias."""
    with (DATA / "gavel_physical_isolated.csv").open() as file:
        rows = [
            row
            for row in csv.DictReader(file)
            if row["num_gpus"] == "1" and row["consolidated"] == "1"
        ]
    rate = {
        (row["gpu_type"], row["model"], row["batch_size"]): float(row["steps_per_s_total"])
        for row in rows
    }
    boards = {"k80": "K80", "p100": "P100-PCIe-16GB", "v100": "V100"}
    errors = [
        math.log(value * ratio(boards[gpu], boards[other]) / rate[other, *job])
        for (gpu, *job), value in rate.items()
        for other in boards
        if other != gpu and value > 0 and rate.get((other, *job), 0) > 0
    ]
    size = np.abs(np.expm1(errors))
    assert len(errors) > 140
    assert (size.mean(), np.median(size)) == (
        pytest.approx(0.345, abs=0.01),
        pytest.approx(0.24, abs=0.01),
    )
