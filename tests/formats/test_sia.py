"""Workloads of Sia and Pollux: rates by hand, epochs as regimes, every message; then against published results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from beside import SHARED, needs
from refusals import refuses

from optsched.errors import UsageError
from optsched.formats import import_sia

# Private names: the readers and tables of one format, below its import
from optsched.formats.sia import Pace
from optsched.formats.sia_profiles import placement, read_step_times, read_training
from optsched.traces import Trace, describe

DATA = SHARED / "data"
HEAD = "name,time,application,num_replicas,batch_size\n"
WORKLOAD = f"{HEAD}a,10,net,2,40\nb,10.5,net,1,20\nc,20,net,3,40\nd,30,net,4,40\n"
VALIDATION = {
    10: "progress,iteration,metric,grad_sqr,grad_var\n100,100,1,1,1\n250,250,2,1,3\n",
    40: "progress,iteration,metric,grad_sqr,grad_var\n110,60,1,1,1\n240,140,2,1,5\n300,200,3,1,1\n",
}
PLACEMENTS = """placement,local_bsz,step_time,sync_time
1,10,1.0,0.1
1,20,2.0,0.2
2,20,3.0,1.0
2,10,2.0,1.0
12,5,2.0,1.0
12,15,4.0,2.0
21,15,9.0,9.0
"""
SCALABILITY = """num_nodes,num_replicas,local_bsz,step_time,sync_time
3,3,5,3.0,1.0
3,3,15,5.0,1.0
3,6,5,4.0,1.0
3,6,15,6.0,1.0
"""


@pytest.fixture
def profiles(tmp_path: Path) -> Path:
    folder = tmp_path / "profiles" / "net"
    folder.mkdir(parents=True)
    for batch, text in VALIDATION.items():
        (folder / f"validation-{batch}.csv").write_text(text)
    (folder / "placements-m.csv").write_text(PLACEMENTS)
    (folder / "scalability-m.csv").write_text(SCALABILITY)
    return folder.parent


def made(profiles: Path, workload: str = WORKLOAD, pools: Any = None, **options: Any) -> Trace:
    return import_sia(
        workload.encode(), profiles, {"m": (3, 2)} if pools is None else pools, **options
    )


def rates(trace: Trace, name: str) -> dict[str, Any]:
    document = trace.instance.to_document()["workloads"][name]
    return document["throughput"]


def test_placements_are_the_smallest_rotation() -> None:
    assert [placement(*way) for way in ((1, 4), (4, 4), (6, 4), (12, 8), (16, 8), (20, 8))] == [
        "1", "4", "24", "48", "88", "488",
    ]  # fmt: skip


def test_times_of_steps(profiles: Path) -> None:
    times = read_step_times(profiles / "net", "m")
    step, sync = times.at(2, 2, np.array([10.0, 15.0, 21.0]))
    assert step[:2].tolist() == [2.0, 2.5] and sync[:2].tolist() == [1.0, 1.0]
    assert np.isnan(step[2])
    assert times.at(3, 2, np.array([10.0]))[0].tolist() == [
        3.0
    ]  # "12", not the "21" that the file has too
    step, _ = times.at(5, 2, np.array([10.0]))  # on three nodes, between 3 and 6 GPUs
    assert step == pytest.approx([4.0 + 2 / 3])
    assert (times.most(2, 2), times.most(5, 2), times.least) == (20.0, 15.0, 5.0)
    assert np.isnan(times.most(7, 2))


def test_a_training(profiles: Path) -> None:
    training = read_training(profiles / "net")
    assert training.progress.tolist() == [100.0, 240.0]  # the third epoch of 40 has no twin
    # between 10 and 40 samples: sqr 1, var 1 in the first epoch, var 3 + 2 (20 - 10) / 30 in the second
    gain = training.gain(np.array([0, 1, 0]), np.array([20.0, 20.0, 10.0]))
    var = 3 + 2 / 3
    assert gain == pytest.approx([(1 + 1) / (1 / 2 + 1), (var + 1) / (var / 2 + 1), 1.0])


def test_tuned_jobs_run_as_they_ask(profiles: Path) -> None:
    trace = made(profiles)
    table = trace.instance.jobs_table
    assert table.gpus_min.tolist() == table.gpus_max.tolist() == [2, 1, 3, 4]
    assert table.steps.tolist() == [240.0] * 4
    # two GPUs with 20 samples each: 3 s a step, gain 2 / (1 / 4 + 1)
    assert rates(trace, "net/2x40/epoch 1") == {"m": {"2": pytest.approx(1.6 / 3)}}
    # one GPU takes 20 samples in two passes of 10: 1 + 0.9 s
    assert rates(trace, "net/1x20/epoch 1") == {"m": {"1": pytest.approx(4 / 3 / 1.9)}}
    # three GPUs take ceil(40 / 3) = 14, but no more than 40 together: 13
    T, gain = 2.0 + 0.2 * 8, 2 / (10 / 39 + 1)
    assert rates(trace, "net/3x40/epoch 1") == {"m": {"3": pytest.approx(gain / T)}}
    # four GPUs on two nodes were not measured, and nothing larger spans them but the tables of three nodes
    assert trace.instance.to_document()["workloads"]["net/4x40/epoch 2"]["throughput"][
        "m"
    ].keys() == {"4"}


def test_epochs_are_regimes(profiles: Path) -> None:
    trace = made(profiles)
    names = [workload.name for workload in trace.instance.workloads]
    assert trace.regimes.job.tolist() == [0, 1, 2, 3]
    assert trace.regimes.after.tolist() == [100.0] * 4
    assert [names[row] for row in trace.regimes.workload] == [
        f"net/{kind}/epoch 2" for kind in ("2x40", "1x20", "3x40", "4x40")
    ]
    assert names[trace.instance.jobs_table.workload[0]] == "net/2x40/epoch 1"
    first, second = (rates(trace, f"net/2x40/epoch {k}")["m"]["2"] for k in (1, 2))
    assert describe(trace).demand.seconds[0] == pytest.approx(100 / first + 140 / second)
    assert Trace.from_document(trace.to_document()).to_document() == trace.to_document()


def test_adaptive_jobs_take_the_best_batch(profiles: Path) -> None:
    trace = made(profiles, adaptive=True)
    table = trace.instance.jobs_table
    training, times = read_training(profiles / "net"), read_step_times(profiles / "net", "m")
    assert (table.gpus_min.tolist(), table.gpus_max.tolist()) == ([1] * 4, [6] * 4)
    for epoch in (0, 1):
        told = rates(trace, f"net/epoch {epoch + 1}")["m"]
        assert (
            told["1"] >= training.gain(np.array([epoch]), np.array([10.0]))[0] / 1.0 - 1e-12
        )  # at M0
        m = np.arange(5, 21).astype(float)  # all batches that 2 GPUs can take in one pass
        T = times.at(2, 2, m)[0]
        goodput = training.gain(np.full(len(m), epoch), 2 * m) / T
        assert told["2"] == pytest.approx(np.nanmax(goodput), rel=0.02)
    assert [name for name in trace.to_document()["regimes"]] == ["a", "b", "c", "d"]


def test_rates_of_more_gpus_than_wanted_or_there(profiles: Path) -> None:
    assert rates(made(profiles, adaptive=True, most=2), "net/epoch 1")["m"].keys() == {"1", "2"}
    trace = made(profiles, pools={"m": (1, 2)})
    assert rates(trace, "net/3x40/epoch 1") == {}
    assert [item.first for item in describe(trace).nowhere] == ["c", "d"]


def test_a_pace(profiles: Path) -> None:
    slow = made(profiles, applications={"net": Pace(slowdown=2.0, restart=30.0)})
    assert rates(slow, "net/2x40/epoch 1")["m"]["2"] == pytest.approx(1.6 / 6)
    assert slow.instance.jobs_table.restart_cost.tolist() == [30.0] * 4


@pytest.mark.parametrize(
    ("workload", "message"),
    [
        (
            WORKLOAD.replace("b,10.5", "b,9"),
            'workload:3:time: found "9", expected arrivals in ascending order',
        ),
        (WORKLOAD.replace("b,", "a,"), 'workload:3:name: found "a" a second time...'),
        (
            WORKLOAD.replace("20,net", "20,web"),
            'workload:4:application: found "web", expected an application...',
        ),
        (
            WORKLOAD.replace("20,net", "20,gpt_pmp"),
            'workload:4:application: found "gpt_pmp", expected an application that...',
        ),
        (
            WORKLOAD.replace("3,40", "0,40"),
            'workload:4:num_replicas: found "0", expected a whole number of GPUs...',
        ),
        (
            WORKLOAD.replace("3,40", "3,41"),
            "workload:4:batch_size: found 41, expected a batch from 10 to 40...",
        ),
        (
            WORKLOAD.replace("3,40", "3,x"),
            'workload:4:batch_size: found "x", expected a whole number',
        ),
        (WORKLOAD.replace("a,10", "a,nan"), 'workload:2:time: found "nan", expected a number'),
        (WORKLOAD.replace(",batch_size", ""), "workload:1: found no column batch_size"),
        (HEAD, "workload: found no line below the first, expected at least one job"),
        ("", "workload: found an empty file"),
    ],
)
def test_workloads_that_are_refused(profiles: Path, workload: str, message: str) -> None:
    with refuses(message):
        made(profiles, workload)


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        (
            "validation-10.csv",
            VALIDATION[10].replace("250,", "90,", 1),
            'validation-10.csv:3:progress: found "90"',
        ),
        (
            "validation-10.csv",
            VALIDATION[10].replace("1,1,1\n", "1,0,0\n"),
            'validation-10.csv:2:grad_var: found "0", expected grad_sqr and grad_var that are not both 0',
        ),
        (
            "validation-40.csv",
            VALIDATION[40].replace("2,1,5", "2,-1,5"),
            'validation-40.csv:3:grad_sqr: found "-1", expected a number...',
        ),
        (
            "placements-m.csv",
            PLACEMENTS.replace("2,20", "0,20"),
            'placements-m.csv:4:placement: found "0"',
        ),
        (
            "placements-m.csv",
            PLACEMENTS.replace("3.0,1.0", "3.0,4.0"),
            'placements-m.csv:4:sync_time: found "4.0"',
        ),
        (
            "placements-m.csv",
            PLACEMENTS.replace("3.0,1.0", "0,0"),
            'placements-m.csv:4:step_time: found "0"',
        ),
        (
            "scalability-m.csv",
            SCALABILITY.replace("3,6,5", "3,0,5"),
            'scalability-m.csv:4:num_replicas: found "0"',
        ),
    ],
)
def test_profiles_that_are_refused(profiles: Path, file: str, text: str, message: str) -> None:
    (profiles / "net" / file).write_text(text)
    with refuses(message):
        made(profiles)


def test_what_is_not_there(profiles: Path) -> None:
    with refuses("found no file placements-x.csv, expected one of a pool's own kind of machine: m"):
        made(profiles, pools={"x": (1, 1)})
    with refuses(
        'workload:2:application: found "net", expected an application with profiles in...'
    ):
        made(profiles / "none")
    for batch in VALIDATION:
        (profiles / "net" / f"validation-{batch}.csv").unlink()
    with refuses("found no file validation-B..."):
        made(profiles)


def test_options_that_make_no_sense(profiles: Path) -> None:
    with refuses("found 0 pools...", UsageError):
        made(profiles, pools={})
    with refuses("found 1 pools and at most 0 GPUs...", UsageError):
        made(profiles, adaptive=True, most=0)
    with refuses("applications: found 'web', expected one of net", UsageError):
        made(profiles, applications={"web": Pace()})


# --- the real files ---------------------------------------------------------------------------------------------------

real = needs(DATA / "sia")


@real
@pytest.mark.parametrize("adaptive", [False, True])
def test_every_real_job_can_run(adaptive: bool) -> None:
    workload = DATA / "sia" / "workloads" / "newtrace" / "workload-1.csv"
    pools = {"aws": (6, 4), "dgx-ext": (2, 8), "rtx": (3, 8)}
    trace = import_sia(workload.read_bytes(), DATA / "sia" / "profiles", pools, adaptive=adaptive)
    summary = describe(trace)
    assert summary.jobs == 960 and summary.regime_jobs == 960
    assert adaptive is False or not summary.nowhere


@real
@pytest.mark.study
def test_jobs_that_never_wait_take_as_long_as_in_the_published_simulation() -> None:
    """Tiresias runs jobs as they ask, after 30 s of starting; it rounds each epoch to seconds."""
    folder = DATA / "pollux_osdi21"
    times = json.loads((folder / "results-jobload" / "tiresias-1.0" / "summary.json").read_text())[
        "jcts"
    ]
    for workload in ("workload-1", "workload-2"):
        jobs = (folder / "workloads" / f"{workload}.csv").read_bytes()
        trace = import_sia(jobs, DATA / "sia" / "profiles", {"aws": (16, 4)})
        own = times.get(workload) or times[f"{workload}.csv"]
        taken = np.array([own[job.id] for job in trace.instance.jobs])
        longer = taken - 30 - describe(trace).demand.seconds
        assert longer.min() > -2
        assert np.count_nonzero(longer < 0.01 * taken) >= 3
