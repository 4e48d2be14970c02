"""Shockwave's traces: how batches change, and what a trace becomes."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from beside import SHARED, needs
from hypothesis import given
from hypothesis import strategies as st
from refusals import refuses, reported, stated

from optsched.cli.main import main

# Private names: the readers and tables of one format, below its import
from optsched.formats.batch_schedules import (
    DOUBLES,
    LARGEST,
    MODES,
    SAMPLES,
    batch_changes,
    steps_of_epoch,
)
from optsched.formats.shockwave import import_shockwave, read_shockwave_trace
from optsched.traces import Trace, load_trace

DATA = SHARED / "data" / "shockwave"
PUBLIC = needs(DATA)
LM = {5: 130.0, 10: 95.0, 20: 60.0, 40: 35.0, 80: 20.0}
"""steps/s by batch."""


def table(rates: dict[int, float] | None = None, scale: int = 1) -> bytes:
    alone = {
        str((f"LM (batch size {batch})", scale)): {"null": rate}
        for batch, rate in (rates or LM).items()
    }
    alone[str(("A3C", 1))] = {"null": 3.0}
    alone[str(("MyNet (batch size 8)", 1))] = {"null": 2.0}
    return json.dumps({"v100": alone}).encode()


def job(
    kind: str = "LM (batch size 10)", steps: object = 5968 * 60, mode: str = "gns", slo: object = "-1.0",
    duration: object = 3770, arrival: object = 0, gpus: object = 1,
) -> str:  # fmt: skip
    cells = (
        kind,
        "python3 main.py",
        "lm",
        "--steps",
        1,
        steps,
        gpus,
        mode,
        1,
        slo,
        duration,
        arrival,
    )
    return "\t".join(map(str, cells))


def text(*lines: str) -> bytes:
    return ("\n".join(lines) + "\n").encode()


def made(*lines: str, throughputs: bytes | None = None, **options: Any) -> dict[str, Any]:
    document = import_shockwave(throughputs or table(), text(*lines), {"v100": 4}, **options)
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    Trace.from_document(document)
    return document


# Batches -----------------------------------------------------------------------------------------------------------


def test_a_batch_doubles_at_the_epochs_of_its_model() -> None:
    assert batch_changes("gns", "LM", 10, 1, 60) == [(11, 20), (21, 40), (41, 80)]
    assert batch_changes("gns", "LM", 10, 1, 41) == [(11, 20), (21, 40)]
    assert batch_changes("gns", "LM", 10, 8, 60) == []
    assert batch_changes("gns", "Transformer", 16, 1, 60) == []
    assert batch_changes("static", "LM", 10, 1, 60) == []


def test_a_batch_is_the_largest_outside_critical_regimes() -> None:
    assert batch_changes("accordion", "LM", 10, 1, 60) == [(10, 80)]
    assert batch_changes("accordion", "LM", 80, 1, 60) == []
    assert batch_changes("accordion", "ResNet-18", 32, 2, 200) == [(10, 256), (150, 32), (160, 256)]
    assert batch_changes("accordion", "ResNet-50", 32, 1, 65) == [
        (10, 128),
        (30, 32),
        (40, 128),
        (60, 32),
    ]
    assert batch_changes("accordion", "Recommendation", 1024, 1, 100) == [(30, 8192)]
    assert batch_changes("accordion", "Recommendation", 2048, 1, 100) == [(40, 8192)]
    assert batch_changes("accordion", "Recommendation", 4096, 1, 100) == [(10, 8192)]
    assert batch_changes("accordion", "A3C", 4, 1, 100) == []


def test_the_planner_holds_the_first_batch_longer() -> None:
    assert batch_changes("accordion", "LM", 10, 1, 100, planned=True) == [(31, 80)]
    assert batch_changes("accordion", "Recommendation", 512, 1, 100, planned=True) == [
        (31, 8192), (60, 512), (70, 8192), (80, 512), (90, 8192),
    ]  # fmt: skip
    assert batch_changes("gns", "LM", 10, 1, 60, planned=True) == batch_changes(
        "gns", "LM", 10, 1, 60
    )


@given(
    st.sampled_from(MODES), st.sampled_from(sorted(SAMPLES)), st.sampled_from([1, 5, 16, 32, 64, 512, 4096, 8192]),
    st.sampled_from([1, 2, 4, 8]), st.integers(1, 400), st.booleans(),
)  # fmt: skip
def test_changes_ascend_and_change_something(
    mode: str, model: str, batch: int, gpus: int, epochs: int, planned: bool
) -> None:
    changes = batch_changes(mode, model, batch, gpus, epochs, planned=planned)
    epoch, size = [0, *(e for e, _ in changes)], [batch, *(b for _, b in changes)]
    assert all(one < other for one, other in itertools.pairwise(epoch)) and epoch[-1] < epochs
    assert all(one != other for one, other in itertools.pairwise(size))
    assert not changes or max(size) <= LARGEST[model]


def test_no_doubling_goes_beyond_the_largest_batch() -> None:
    for (model, batch, _), epochs in DOUBLES.items():
        assert list(epochs) == sorted(set(epochs)) and batch << len(epochs) <= LARGEST[model]


# Traces ------------------------------------------------------------------------------------------------------------


def test_the_twelve_columns() -> None:
    trace = read_shockwave_trace(text(job(slo=1.5), job("A3C", 7, "static", arrival=2.5, gpus=2)))
    table = trace.table
    assert table.cells["mode"] == ("gns", "static")
    assert table.numbers["duration"].tolist() == [3770.0, 3770.0]
    assert trace.steps.tolist() == [358080.0, 7.0] and trace.arrival.tolist() == [
        0.0,
        2.5,
    ]
    assert trace.slo[0] == 1.5 and math.isnan(trace.slo[1]) and trace.gpus.tolist() == [1, 2]


def test_regimes_in_steps_of_the_first_batch() -> None:
    document = made(
        job(), job(mode="static", arrival=5), job(steps=5968 * 10, mode="accordion", arrival=6)
    )
    assert document["format"] == "optsched-trace/1"
    assert document["regimes"] == {
        "j0": [
            {"after": 11 * 5968.0, "workload": "LM (batch size 20) in steps of 10"},
            {"after": 21 * 5968.0, "workload": "LM (batch size 40) in steps of 10"},
            {"after": 41 * 5968.0, "workload": "LM (batch size 80) in steps of 10"},
        ]
    }
    instance = document["instance"]
    assert (instance["round"], instance["now"], len(instance["jobs"])) == (120.0, 0.0, 3)
    # an epoch of 59,675 samples has 5,968 steps of 10 and 746 of 80
    larger = instance["workloads"]["LM (batch size 80) in steps of 10"]
    assert larger["throughput"] == {"v100": {"1": pytest.approx(20.0 * 5968 / 746)}}
    assert larger["parameters"] == {"profile": "LM", "batch_per_gpu": 80.0, "batch": 10.0}
    assert instance["workloads"]["LM (batch size 10)"]["throughput"] == {"v100": {"1": 95.0}}


def test_a_trace_without_changes_is_an_instance() -> None:
    document = made(
        job(mode="static"),
        job("A3C", mode="accordion", arrival=1),
        job("MyNet (batch size 8)", 5, "static", arrival=2),
    )
    assert document["format"] == "optsched-instance/1" and len(document["jobs"]) == 3


def test_batches_without_a_rate_are_not_taken_up() -> None:
    rates = LM | {40: 0.0}
    assert [entry["workload"][:18] for entry in made(job(), throughputs=table(rates))["regimes"]["j0"]] == [
        "LM (batch size 20)", "LM (batch size 80)",
    ]  # fmt: skip
    assert "regimes" not in made(job(), throughputs=table({10: 95.0}))


def test_deadlines_are_multiples_of_the_duration_of_the_trace() -> None:
    document = made(job(slo=1.5, arrival=3))
    assert document["instance"]["jobs"][0]["deadline"] == 3 + 1.5 * 3770


def test_the_jobs_that_are_taken() -> None:
    lines = [job(arrival=time) for time in (0, 10, 20)]
    assert set(made(*lines, at=10.0)["regimes"]) == {"j0", "j1"}
    assert set(made(*lines, active=1)["regimes"]) == {"j0"}


def test_pairs_have_the_rates_of_the_batches_they_run_in() -> None:
    one, other = str(("LM (batch size 40)", 1)), str(("LM (batch size 80)", 1))
    rates = {"v100": {one: {"null": 35.0, one: [10.0, 10.0], other: [9.0, 4.0]},
                      other: {"null": 20.0, one: [4.0, 9.0], other: [3.0, 3.0]}}}  # fmt: skip
    document = made(
        job("LM (batch size 40)", 1492 * 12), throughputs=json.dumps(rates).encode(), pairs=True
    )
    larger = "LM (batch size 80) in steps of 40"
    assert [
        (entry["workloads"], entry["throughput"]) for entry in document["instance"]["colocation"]
    ] == [
        (["LM (batch size 40)"] * 2, [10.0, 10.0]),
        (["LM (batch size 40)", larger], [9.0, 4.0 * 1492 / 746]),
        ([larger] * 2, [3.0 * 1492 / 746] * 2),
    ]


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["a\tb"], "trace:1: found 2 cells, expected 12 cells between tabs"),
        ([job(), job() + "\tx"], "trace:2: found 13 cells, expected 12, as in the first line"),
        ([job(mode="fast")], 'trace:1:column 8 (mode): found "fast", expected one of static, accordion, gns'),
        ([job(duration=0)], 'trace:1:column 11 (duration): found "0", expected seconds above 0'),
        ([job(arrival=3), job(arrival=2)], 'trace:2:column 12 (arrival_time): found "2"...'),
        ([job("MyNet (batch size 8)")],
         'trace:1:column 1 (job_type): found "MyNet (batch size 8)" in mode gns, expected mode...'),
        ([job(steps=5968 * 10**7)],
         "trace:1:column 6 (total_steps): found 59680000000, 10000000 epochs of 5968 steps"),
        ([job("XNet (batch size 8)")],
         'trace:1:column 1 (job_type): found "XNet (batch size 8)", expected a job type of...'),
        ([""], "trace: found an empty file, expected lines of 12 cells between tabs"),
    ],
)  # fmt: skip
def test_wrong_traces(lines: Sequence[str], words: str) -> None:
    with refuses(words):
        made(*lines)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "t.json").write_bytes(table())
    (tmp_path / "t.trace").write_bytes(text(job()))
    base = [
        "import",
        "shockwave",
        "--throughputs",
        str(tmp_path / "t.json"),
        "--pools",
        "v100:4",
        "--trace",
    ]
    given = [*base, str(tmp_path / "t.trace"), "-o"]
    for name in ("trace.json", "trace.yaml"):
        assert main([*given, str(tmp_path / name), "--planned", "--gpus-per-node", "2"]) == 0
        assert capsys.readouterr().out == f"{tmp_path / name}: 1 job, 1 pool\n"
        trace = load_trace(tmp_path / name)
        assert len(trace.regimes) == 3 and trace.name == "shockwave"
    assert (
        main([*given, "-"]) == 0
        and json.loads(capsys.readouterr().out)["format"] == "optsched-trace/1"
    )
    assert main([*given, str(tmp_path / "trace.npz")]) == 2
    assert "npz has no place for the regimes" in capsys.readouterr().err
    (tmp_path / "bad.trace").write_bytes(b"x\n")
    with reported() as errors:
        assert main([*base, str(tmp_path / "bad.trace"), "-o", str(tmp_path / "no.json")]) == 3
    assert stated("bad.trace:1: found 1 cells, expected 12 cells between tabs...").holds(errors[0])


# The real ones -----------------------------------------------------------------------------------------------------


def real(trace: str, **options: Any) -> Trace:
    (path,) = (DATA / "traces").glob(f"{trace}_*")
    rates = (DATA / "tacc_throughputs.json").read_bytes()
    return Trace.from_document(import_shockwave(rates, path.read_bytes(), {"v100": 32}, **options))


def gpu_seconds(trace: Trace) -> float:
    """GPU time of all jobs, each alone on its GPUs, regime after regime."""
    total = 0.0
    document = trace.to_document()
    instance = document.get("instance", document)
    for job in instance["jobs"]:
        points = [
            (0.0, job["workload"]),
            *((r["after"], r["workload"]) for r in document["regimes"].get(job["id"], [])),
        ]
        ends = [*(after for after, _ in points[1:]), job["steps"]]
        for (after, workload), end in zip(points, ends, strict=True):
            rate = instance["workloads"][workload]["throughput"]["v100"][str(job.get("gpus", 1))]
            total += job.get("gpus", 1) * (end - after) / rate
    return total


@PUBLIC
def test_the_work_of_the_120_jobs_is_that_of_the_published_runs() -> None:
    """Utilisation x makespan x GPUs of the published simulations, which the regimes know nothing about."""
    results = json.loads((DATA / "headline_from_pickles.json").read_text())
    names = (
        "allox",
        "finish_time_fairness",
        "max_min_fairness",
        "max_sum_throughput_perf",
        "min_total_duration",
    )
    runs = [results[f"tacc_32gpus/{name}_sim"] for name in names]
    published = [32 * run["util"] * run["makespan"] for run in runs]
    trace = real("120")
    assert (len(trace.instance.jobs_table), len(np.unique(trace.regimes.job))) == (120, 67)
    assert published == pytest.approx([gpu_seconds(trace)] * 5, rel=0.005)
    assert gpu_seconds(real("120", planned=True)) > gpu_seconds(trace)


@PUBLIC
def test_the_duration_is_that_of_the_first_batch() -> None:
    (path,) = (DATA / "traces").glob("120_*")
    trace, instance = read_shockwave_trace(path.read_bytes()), real("120").instance
    rates = json.loads((DATA / "tacc_throughputs.json").read_text())["v100"]
    keys = [
        str((kind, gpus)) for kind, gpus in zip(trace.job_type, trace.gpus.tolist(), strict=True)
    ]
    seconds = trace.steps / np.array([rates[key]["null"] for key in keys])
    assert seconds == pytest.approx(trace.table.numbers["duration"], rel=1e-3) and len(
        instance.jobs_table
    ) == len(trace)


@PUBLIC
@pytest.mark.parametrize(
    ("trace", "jobs"), [("220", 220), ("460", 460), ("900_0.2_5_100", 900), ("900_0.2_5_1000", 900)]
)
def test_all_the_public_traces(trace: str, jobs: int) -> None:
    read = real(trace)
    assert len(read.instance.jobs_table) == jobs and len(read.regimes) > jobs / 2


def test_steps_of_an_epoch_round_up() -> None:
    assert (steps_of_epoch("Recommendation", 8192), steps_of_epoch("ResNet-18", 16)) == (15, 3125)
