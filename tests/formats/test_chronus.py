"""Import of Chronus' traces: strict and soft deadlines, best effort, and what spreading over nodes costs."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from beside import SHARED, needs
from refusals import refuses

import optsched
from optsched.cli.main import main
from optsched.errors import UsageError
from optsched.formats import import_chronus
from optsched.instance import Instance

DATA = SHARED / "data" / "chronus"
PUBLIC = needs(DATA)
HEAD = (
    "job_id,user,num_gpu,submit_time,iterations,model_name,duration,interval,expect_time_list,expect_value_list,"
    "best_effort,job_type\n"
)
TRACE = HEAD + (
    "a,u,2,5,100,vgg,10,1,30,10,0,strict\nb,v,1,3,100,vgg,20,1,25-40,10-4,0,soft\n"
    "c,u,4,3,100,net,60,1,3,10,1,best\nd,u,0,4,100,vgg,10,1,30,10,0,strict\n"
)
LOCALITY = {"vgg": {"2": {"1": 1.0, "2": 0.5}}, "net": {"8": {"8": 0.1, "1": 1.0, "4": 0.25}}}
Make = Callable[..., dict[str, Any]]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def make(trace: str = TRACE, locality: Any = None, **more: Any) -> dict[str, Any]:
        (tmp_path / "trace.csv").write_text(trace)
        if locality is not None:
            (tmp_path / "model_info.json").write_text(json.dumps(locality))
            more["locality"] = tmp_path / "model_info.json"
        document = import_chronus(
            tmp_path / "trace.csv", more.pop("pools", {"gpu": (2, 4)}), **more
        )
        Instance.from_document(document)
        return document

    return make


def test_jobs_in_seconds_sorted_and_without_those_of_no_gpu(make: Make) -> None:
    document = make()
    assert [job["id"] for job in document["jobs"]] == ["b", "c", "a"]
    assert (document["now"], document["round"]) == (180.0, 1200.0)
    assert document["tenants"] == [{"name": "v"}, {"name": "u"}]
    assert document["workloads"]["vgg"] == {"throughput": {"gpu": {"1": 1.0, "2": 1.0}}}
    assert document["jobs"][2] == {
        "id": "a", "workload": "vgg", "tenant": "u", "gpus": 2, "steps": 600.0, "weight": 10.0, "arrival": 300.0,
        "deadline": 300.0 + 1800.0,
    }  # fmt: skip
    assert "deadline" not in document["jobs"][1]


def test_a_soft_deadline_is_an_option_for_each_expected_time(make: Make) -> None:
    job = make()["jobs"][0]
    assert (job["deadline"], job["deadline_kind"]) == (180.0 + 1500.0, "soft")
    assert job["options"] == [
        {
            "pool": "gpu",
            "gpus": 1,
            "throughput": 1.0,
            "value": 10.0,
            "attributes": {"deadline": 1680.0},
        },
        {
            "pool": "gpu",
            "gpus": 1,
            "throughput": 1.0,
            "value": 4.0,
            "attributes": {"deadline": 2580.0},
        },
    ]


def test_leases_are_planned_with_these_values(make: Make) -> None:
    """One lease of 20 minutes is left within 25 minutes: of two jobs the other only makes the second time."""
    text = HEAD + "b,v,4,0,1,vgg,20,1,25-45,10-4,0,soft\nc,v,4,0,1,vgg,20,1,25-45,10-4,0,soft\n"
    document = make(text, pools={"gpu": (1, 4)})
    solution = optsched.solve(Instance.from_document(document), "lease")
    assert solution.objective == pytest.approx(14.0)


def test_units_and_the_jobs_that_have_arrived(make: Make) -> None:
    document = make(unit=1.0, at=3.0)
    assert [(job["id"], job["arrival"]) for job in document["jobs"]] == [("b", 3.0), ("c", 3.0)]
    assert (document["now"], document["round"]) == (3.0, 20.0)
    with refuses("unit: found 0.0, expected seconds above 0", UsageError):
        make(unit=0.0)


def test_pools_may_be_faster_than_recorded(make: Make) -> None:
    document = make(pools={"new": (1, 4), "old": (2, 4)}, speeds={"new": 2.0})
    assert document["workloads"]["vgg"]["throughput"] == {
        "new": {"1": 2.0, "2": 2.0},
        "old": {"1": 1.0, "2": 1.0},
    }
    assert [option["throughput"] for option in document["jobs"][0]["options"]] == [
        2.0,
        1.0,
        2.0,
        1.0,
    ]
    with refuses("speeds: found pool 'k80', expected one of new, old", UsageError):
        make(pools={"new": (1, 4), "old": (2, 4)}, speeds={"k80": 2.0})
    with refuses("found no pool", UsageError):
        make(pools={})


def test_what_spreading_costs(make: Make) -> None:
    document = make(locality=LOCALITY)
    assert document["workloads"] == {
        "vgg": {"throughput": {"gpu": {"1": 1.0, "2": {"1": 1.0, "2": 0.5}}}},
        "net": {
            "throughput": {"gpu": {"4": {"1": 1.0, "4": 0.25}}}
        },  # as a gang of 8, but on no more nodes than GPUs
    }
    soft = make(TRACE.replace("b,v,1", "b,v,2"), locality=LOCALITY)["jobs"][0]["options"]
    assert [(way["nodes"], way["throughput"]) for way in soft] == [(1, 1.0), (2, 0.5)] * 2


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("x,u,1,3,1,vgg,20,1,25-40,10,0,soft", "trace.csv:2:expect_value_list: found 1 values, expected 2, one..."),
        ("x,u,1,3,1,vgg,20,1,25-40,9-8,0,strict", "trace.csv:2:expect_time_list: found 2 times, expected one, as..."),
        ("x,u,1,3,1,vgg,20,1,25-20,9-8,0,soft", 'trace.csv:2:expect_time_list: found "25-20", expected times that...'),
        ("x,u,1,3,1,vgg,20,1,25-x,9-8,0,soft",
         'trace.csv:2:expect_time_list: found "25-x", expected numbers above 0...'),
        ("x,u,1,3,1,vgg,20,1,-25,9,0,soft", 'trace.csv:2:expect_time_list: found "-25", expected numbers above 0...'),
        ("x,u,1,3,1,vgg,20,1,25,9,0,hard", 'trace.csv:2:job_type: found "hard", expected strict, soft or best'),
        ("x,u,1,3,1,vgg,20,1,25,9,1,soft", 'trace.csv:2:best_effort: found "1", expected 1 where job_type is best...'),
        ("x,u,1,3,1,vgg,0,1,25,9,0,soft", 'trace.csv:2:duration: found "0", expected a time above 0'),
        ("x,u,-1,3,1,vgg,2,1,25,9,0,soft", 'trace.csv:2:num_gpu: found "-1", expected a whole number of GPUs'),
        ("x,u,1,,1,vgg,2,1,25,9,0,soft", "trace.csv:2:submit_time: found nothing, expected a number"),
        ("x,u,0,3,1,vgg,2,1,25,9,0,soft", "trace.csv: found no job with a GPU, expected at least one"),
        ("", "trace.csv: found no line below the first"),
    ],
)  # fmt: skip
def test_wrong_traces(make: Make, line: str, words: str) -> None:
    with refuses(words):
        make(HEAD + line + "\n")


@pytest.mark.parametrize(
    ("locality", "words"),
    [
        ([], "model_info.json: found [], expected an object"),
        (
            {"vgg": {"two": {}}},
            'model_info.json: vgg: found the key "two", expected a whole number, at least 1',
        ),
        (
            {"vgg": {"2": {"1": 0}}},
            "model_info.json: vgg.2.1: found 0, expected a share of the rate, above 0",
        ),
        ({"vgg": {}}, 'trace.csv:4:model_name: found "net", expected one of the models of...'),
    ],
)
def test_wrong_localities(make: Make, locality: Any, words: str) -> None:
    with refuses(words):
        make(locality=locality)


def test_the_command(make: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    expected = make(locality=LOCALITY, speeds={"gpu": 2.0}, at=240.0, pools={"gpu": (2, 4)})
    given = [
        "import",
        "chronus",
        str(tmp_path / "trace.csv"),
        "--pool",
        "gpu=2x4",
        "-o",
        str(tmp_path / "made.json"),
    ]
    given += ["--locality", str(tmp_path / "model_info.json"), "--speed", "gpu=2", "--at", "4m"]
    assert (
        main(given) == 0
        and capsys.readouterr().out == f"{tmp_path / 'made.json'}: 2 jobs, 1 pool\n"
    )
    made = Instance.from_document(json.loads((tmp_path / "made.json").read_text()))
    assert made.sha256 == Instance.from_document(expected).sha256
    for more, words in (
        (["--unit", "0"], "unit: found 0.0, expected seconds above 0"),
        (["--speed", "gpu=fast"], "'gpu=fast'"),
        (["--speed", "gpu=3"], "--speed: found gpu twice"),
        (["--pool", "gpu=1"], "--pool: found gpu twice"),
    ):
        assert main([*given, *more]) == 2 and words in capsys.readouterr().err


@pytest.mark.oracle
@PUBLIC
@pytest.mark.parametrize(
    "mix", ["MIX2", *(pytest.param(mix, marks=pytest.mark.study) for mix in ("SLO", "MIX1"))]
)
def test_the_public_traces(mix: str) -> None:
    """Of 30,940 jobs those with GPUs, with the deadlines that they have."""
    path, pools = DATA / f"trace_job_Philly_{mix}.csv", {"gpu": (120, 8)}
    with path.open() as file:
        kinds = Counter(row["job_type"] for row in csv.DictReader(file) if row["num_gpu"] != "0")
    document = import_chronus(path, pools)
    told = Counter(
        job.get("deadline_kind", "strict" if "deadline" in job else "best")
        for job in document["jobs"]
    )
    assert told == kinds and 30_700 < sum(told.values()) < 30_800
    first_day = import_chronus(path, pools, locality=DATA / "model_info.json", at=86_400.0)
    instance = Instance.from_document(first_day)
    assert len(instance.jobs_table) > 2_000 and len(instance.tenants) == 11
