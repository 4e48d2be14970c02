"""Import of the traces and clusters of Tiresias' simulator."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from beside import SHARED, needs
from refusals import refuses

from optsched.cli.main import main
from optsched.errors import UsageError
from optsched.formats import import_tiresias
from optsched.instance import Instance

DATA = SHARED / "data" / "tiresias"
PUBLIC = needs(DATA)
HEAD = "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n"
TRACE = HEAD + "0,1,30,606,vgg,164,30\n1,8,0,133,vgg,147,23\n2,2,30,157,net,127,26\n"
SPEC = "num_switch,num_node_p_switch,num_gpu_p_node,num_cpu_p_node,mem_p_node\n"
Make = Callable[..., dict[str, Any]]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def make(
        trace: str = TRACE, spec: str | None = SPEC + "2,3,4,128,254\n", **more: Any
    ) -> dict[str, Any]:
        (tmp_path / "trace.csv").write_text(trace)
        if spec is not None:
            (tmp_path / "spec.csv").write_text(spec)
        document = import_tiresias(
            tmp_path / "trace.csv", None if spec is None else tmp_path / "spec.csv", **more
        )
        Instance.from_document(document)
        return document

    return make


def test_steps_are_seconds_and_gangs_as_recorded(make: Make) -> None:
    document = make()
    assert document["cluster"]["pools"] == [
        {
            "name": "gpu",
            "nodes": 6,
            "gpus_per_node": 4,
            "cpus_per_node": 128.0,
            "memory_per_node": 254.0,
        }
    ]
    assert document["workloads"] == {
        "vgg": {"throughput": {"gpu": {"1": 1.0, "8": 1.0}}}, "net": {"throughput": {"gpu": {"2": 1.0}}},
    }  # fmt: skip
    assert [job["id"] for job in document["jobs"]] == ["1", "0", "2"] and document["now"] == 0.0
    assert document["jobs"][0] == {
        "id": "1",
        "workload": "vgg",
        "gpus": 8,
        "steps": 147.0,
        "arrival": 0.0,
    }


def test_other_pools_and_the_jobs_that_have_arrived(make: Make) -> None:
    document = make(spec=None, pools={"v100": (2, 4), "k80": (8, 1)}, speeds={"k80": 0.25}, at=10.0)
    assert document["workloads"] == {
        "vgg": {"throughput": {"v100": {"8": 1.0}, "k80": {"8": 0.25}}}
    }
    assert (len(document["jobs"]), document["now"]) == (1, 10.0)
    for more in ({"spec": None}, {"pools": {"v100": (2, 4)}}):
        with refuses("pools", UsageError):
            make(**more)
    with refuses("speeds: found pool 'v100', expected one of gpu", UsageError):
        make(speeds={"v100": 2.0})


@pytest.mark.parametrize(
    ("trace", "spec", "words"),
    [
        (HEAD, SPEC + "1,1,1,1,1", "trace.csv: found no line below the first"),
        (HEAD + "0,0,1,1,vgg,1,1", SPEC + "1,1,1,1,1", 'trace.csv:2:num_gpu: found "0", expected a whole number...'),
        (HEAD + "0,1,1,1,vgg,0,1", SPEC + "1,1,1,1,1", 'trace.csv:2:duration: found "0", expected seconds above 0'),
        (HEAD + "0,1,x,1,vgg,1,1", SPEC + "1,1,1,1,1", 'trace.csv:2:submit_time: found "x", expected a number'),
        (HEAD + "0,1,1,1,vgg,1,1\n0,1,1,1,vgg,1,1", SPEC + "1,1,1,1,1",
         'trace.csv:3:job_id: found "0" a second time...'),
        ("job_id,num_gpu\n", SPEC + "1,1,1,1,1", "trace.csv:1: found no column submit_time"),
        (TRACE, SPEC + "1,1,1,1,1\n1,1,1,1,1", "spec.csv:3: found a second line, expected one line below the first"),
        (TRACE, SPEC + "0,1,1,1,1", 'spec.csv:2:num_switch: found "0", expected a whole number, at least 1'),
        (TRACE, SPEC.replace("mem_p_node", "memory") + "1,1,1,1,1", "spec.csv:1: found an unknown column..."),
    ],
)  # fmt: skip
def test_wrong_files(make: Make, trace: str, spec: str, words: str) -> None:
    with refuses(words):
        make(trace, spec)


def test_the_command(make: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    expected = make()
    given = ["import", "tiresias", str(tmp_path / "trace.csv"), "-o", str(tmp_path / "made.json")]
    assert main([*given, str(tmp_path / "spec.csv")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'made.json'}: 3 jobs, 1 pool\n"
    made = Instance.from_document(json.loads((tmp_path / "made.json").read_text()))
    assert made.sha256 == Instance.from_document(expected).sha256
    assert main([*given, "--pool", "v100=2x4", "--speed", "v100=2"]) == 0
    assert (
        main(given) == 2
        and "--pool: found no pools and no cluster, expected one of them" in capsys.readouterr().err
    )


@PUBLIC
@pytest.mark.parametrize(
    ("spec", "gpus"), [("n1g4", 4), ("n32g4", 128), ("n160g8", 1280), ("n256g8", 2048)]
)
def test_the_public_files(spec: str, gpus: int) -> None:
    instance = Instance.from_document(import_tiresias(DATA / "60_job.csv", DATA / f"{spec}.csv"))
    assert len(instance.jobs_table) == 60 and instance.cluster.gpus(0.0).tolist() == [gpus]
