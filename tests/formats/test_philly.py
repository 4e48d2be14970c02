"""Logs of the Philly cluster: what is made of them, what is left out, every message; then the real table."""

from __future__ import annotations

import copy
import csv
import json
from typing import Any

import numpy as np
import pytest
from beside import SHARED, needs
from refusals import refuses

from optsched.errors import UsageError

# Private names: the readers and tables of one format, below its import
from optsched.formats.philly import import_philly, read_machines
from optsched.traces import Trace, describe

REAL = SHARED / "data" / "sia" / "philly_jobs.csv"
POOLS = [
    {"name": "small", "nodes": 2, "gpus_per_node": 2},
    {"name": "large", "nodes": 1, "gpus_per_node": 8},
]
TABLE = """timestamp,duration,num_gpus,gpu_time,cluster
2017-10-09 07:01:55,66.0,1,66.0,11cb48
2017-10-09 06:01:55,50.0,2,100.0,6214e9
2017-10-09 07:01:55,60.0,4,240.0,6214e9
"""


def attempt(start: str | None, end: str | None, *gpus: int) -> dict[str, Any]:
    detail = [
        {"ip": f"m{k}", "gpus": [f"gpu{i}" for i in range(count)]} for k, count in enumerate(gpus)
    ]
    day = "2017-10-07"
    return {
        "start_time": start and f"{day} {start}", "end_time": end and f"{day} {end}", "detail": detail,
    }  # fmt: skip


def job(
    name: str, *attempts: dict[str, Any], at: str = "01:00:00", vc: str = "a"
) -> dict[str, Any]:
    return {
        "status": "Pass", "vc": vc, "jobid": name, "attempts": list(attempts), "submitted_time": f"2017-10-07 {at}",
        "user": "u",
    }  # fmt: skip


LOG = [
    job("late", attempt("02:00:00", "02:00:30", 8), at="01:30:00", vc="b"),
    job("twice", attempt("01:00:10", "01:01:10", 2, 2), attempt("01:05:00", "01:05:30", 8)),
    job("never"),
    job("running", attempt("01:00:00", "01:00:10", 1), attempt("01:00:20", None, 1)),
    job("lost", attempt(None, "01:00:10", 1)),
    job("back", attempt("01:00:10", "01:00:00", 1)),
    job("none", attempt("01:00:10", "01:00:20")),
    job("short", attempt("01:00:10", "01:00:10", 1)),
    {**job("unknown", attempt("01:00:10", "01:00:20", 1)), "submitted_time": "None"},
]


def made(log: Any = None, **options: Any) -> Any:
    data = (
        json.dumps(LOG if log is None else log).encode()
        if not isinstance(log, str)
        else log.encode()
    )
    return import_philly(data, POOLS, **options)


def test_the_job_log() -> None:
    found = made()
    table = found.instance.jobs_table
    assert [(table.names[k], table.arrival[k], table.steps[k], table.gpus_min[k]) for k in range(2)] == [
        ("twice", 0.0, 90.0, 4), ("late", 1800.0, 30.0, 8),
    ]  # fmt: skip
    assert [tenant.name for tenant in found.instance.tenants] == ["b", "a"]
    assert table.tenant.tolist() == [1, 0]
    assert found.left_out == {
        "without attempts": 1, "that still ran when the log was written": 1, "whose attempts have no times": 1,
        "with an attempt that ends before it starts": 1, "without a GPU": 1, "that ran for no second": 1,
        "without a time of submission": 1,
    }  # fmt: skip


def test_the_table_is_put_in_order() -> None:
    found = made(TABLE).instance.jobs_table
    assert (found.arrival.tolist(), found.steps.tolist()) == (
        [0.0, 3600.0, 3600.0],
        [50.0, 66.0, 60.0],
    )
    assert found.gpus_min.tolist() == [2, 1, 4]


@pytest.mark.parametrize(("log", "cluster", "jobs"), [(None, "b", 1), (TABLE, "6214e9", 2)])
def test_a_virtual_cluster(log: str | None, cluster: str, jobs: int) -> None:
    found = made(log, clusters=[cluster]).instance
    assert (len(found.jobs_table), [tenant.name for tenant in found.tenants]) == (jobs, [cluster])
    assert found.jobs_table.arrival[0] == 0.0


def test_the_jobs_that_have_arrived_by_then() -> None:
    found = made(TABLE, at=60.0).instance
    assert (found.now, found.jobs_table.arrival.tolist(), found.jobs_table.steps.tolist()) == (
        60.0,
        [0.0],
        [50.0],
    )
    assert len(made(TABLE, at=3600.0).instance.jobs_table) == 3


def test_speeds_are_rates() -> None:
    found = describe(Trace(made(TABLE, speeds={"small": 0.5, "large": 2.0}).instance))
    assert found.demand.seconds.tolist() == [25.0, 33.0, 30.0]
    assert [pool.runnable for pool in found.pools] == [3, 3]


def test_machines_are_pools_by_memory() -> None:
    text = (
        "machineId,number of GPUs, single GPU mem\nm31,8, 24GB\nm2,2, 12GB\nm3,2,12GB\nm4,0,12GB\n"
    )
    assert read_machines(text.encode()) == [
        {
            "name": "gpu-12GB",
            "gpu_memory": 12.0,
            "nodes": [{"name": "m2", "gpus": 2}, {"name": "m3", "gpus": 2}],
        },
        {"name": "gpu-24GB", "gpu_memory": 24.0, "nodes": [{"name": "m31", "gpus": 8}]},
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("m31,8,24GB\n", 'machines:1: found an unknown column "m31"'),
        (
            "machineId,number of GPUs,single GPU mem\nm1,8,lots\n",
            'machines:2:single GPU mem: found "lots", expected a...',
        ),
        (
            "machineId,number of GPUs,single GPU mem\nm1,-1,24GB\n",
            'machines:2:number of GPUs: found "-1"',
        ),
        (
            "machineId,number of GPUs,single GPU mem\nm1,8,24GB\nm1,8,24GB\n",
            'machines:3:machineId: found "m1" a second time...',
        ),
        (
            "machineId,number of GPUs,single GPU mem\nm1,0,24GB\n",
            "machines: found no machine with a GPU",
        ),
    ],
)
def test_machine_lists_that_are_refused(text: str, message: str) -> None:
    with refuses(message):
        read_machines(text.encode())


def broken(path: str, value: Any) -> list[dict[str, Any]]:
    log = copy.deepcopy(LOG)
    *where, last = path.split(".")
    part: Any = log[1]
    for key in where:
        part = part[int(key) if key.isdecimal() else key]
    part[last] = value
    return log


@pytest.mark.parametrize(
    ("log", "message"),
    [
        ({}, "jobs: found {}, expected a list of jobs"),
        ([3], "jobs: [0]: found 3, expected an object"),
        ([], "jobs: found no jobs, expected at least one that ran"),
        (
            broken("jobid", "late"),
            'jobs: [1].jobid: found "late" a second time, expected ids that differ',
        ),
        (broken("vc", 7), "jobs: [1].vc: found 7, expected text"),
        (broken("attempts", None), "jobs: [1].attempts: found null, expected a list"),
        (
            broken("submitted_time", "noon"),
            'jobs: [1].submitted_time: found "noon", expected a time such as...',
        ),
        (broken("attempts.0.end_time", "2017-10-32 00:00:00"), "jobs: [1].attempts[0].end_time"),
        (
            broken("attempts.0.detail", [{"ip": "m"}]),
            "jobs: [1].attempts[0].detail[0].gpus: found nothing, expected this key",
        ),
        (TABLE.replace("66.0,1", "0,1"), 'jobs:2:duration: found "0", expected seconds above 0'),
        (
            TABLE.replace("50.0,2", "50.0,0"),
            'jobs:3:num_gpus: found "0", expected a whole number of GPUs...',
        ),
        (
            TABLE.replace("07:01:55,66", "7:01:55,66"),
            'jobs:2:timestamp: found "2017-10-09 7:01:55", expected a time...',
        ),
        ("[{]", "jobs: found text that is not JSON..."),
        ("", "jobs: found an empty file"),
    ],
)
def test_logs_that_are_refused(log: Any, message: str) -> None:
    with refuses(message):
        made(log)


def test_unknown_clusters_and_pools() -> None:
    for log, where in ((None, ""), (TABLE, "jobs: ")):
        with refuses(f'{where}found no job of the virtual cluster "zz", expected one of...'):
            made(log, clusters=["zz"])
    with refuses("speeds: found pool 'k80', expected one of small, large", UsageError):
        made(TABLE, speeds={"k80": 1.0})
    with refuses("speeds: found -1 for pool 'small', expected a factor above 0", UsageError):
        made(TABLE, speeds={"small": -1})


@pytest.mark.study
def test_as_many_jobs_as_the_published_log_has_are_read() -> None:
    one = job("x", attempt("01:00:10", "01:01:10", 2, 2), attempt("01:05:00", "01:05:30", 8))
    text = json.dumps(one)
    data = "[" + ",".join(text.replace('"x"', f'"x{k}"') for k in range(117_325)) + "]"
    assert len(made(data).instance.jobs_table) == 117_325


@pytest.mark.oracle
@needs(REAL)
def test_the_real_table() -> None:
    with REAL.open() as file:
        hours = sum(float(row["gpu_time"]) for row in csv.DictReader(file)) / 3600
    found = import_philly(
        REAL.read_bytes(), [{"name": "p", "nodes": 40, "gpus_per_node": 8}]
    ).instance
    summary = describe(Trace(found))
    assert (summary.jobs, len(found.tenants)) == (82_247, 15)
    assert summary.gpu_hours == pytest.approx(hours, rel=1e-9)
    assert (np.diff(summary.arrival) >= 0).all()
