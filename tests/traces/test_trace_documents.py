"""Traces as documents and files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from documents import instance_document
from refusals import refuses

import optsched
from optsched.traces import Trace, load_trace

INSTANCE = instance_document(
    {"v100": (2, 4)},
    [
        {"id": "a", "workload": "slow", "steps": 100.0},
        {"id": "b", "workload": "slow", "steps": 100.0, "arrival": 50.0},
    ],
    workloads={"slow": {"throughput": {"v100": 1.0}}, "fast": {"throughput": {"v100": 3.0}}},
)
TRACE = {
    "format": "optsched-trace/1",
    "instance": INSTANCE,
    "regimes": {
        "b": [{"after": 10.0, "workload": "fast"}, {"after": 20.0, "workload": "slow"}],
        "a": [{"after": 50.0, "workload": "fast"}],
    },
    "node_events": [
        {"at": 70.0, "node": "v100-0", "state": "up"},
        {"at": 60.0, "node": "v100-0", "state": "down"},
    ],
}


def test_regimes_are_by_job_and_events_by_time() -> None:
    trace = Trace.from_document(TRACE)
    assert trace.regimes.job.tolist() == [0, 1, 1]
    assert trace.regimes.after.tolist() == [50.0, 10.0, 20.0]
    assert [trace.instance.workloads[row].name for row in trace.regimes.workload] == [
        "fast",
        "fast",
        "slow",
    ]
    assert trace.node_events.at.tolist() == [60.0, 70.0]
    assert trace.node_events.state == ("down", "up")


def test_a_trace_is_its_document() -> None:
    document = Trace.from_document(TRACE).to_document()
    assert Trace.from_document(document).to_document() == document
    assert set(document["regimes"]) == {"a", "b"}


def test_an_instance_is_a_trace_in_which_nothing_happens(tmp_path: Path) -> None:
    instance = optsched.Instance.from_document(INSTANCE)
    assert Trace.from_document(INSTANCE).to_document() == instance.to_document()
    path = tmp_path / "instance.npz"
    path.write_bytes(optsched.instance.instance_bytes(instance, "npz"))
    assert (
        load_trace(path).instance.sha256 == load_trace(instance).instance.sha256 == instance.sha256
    )
    assert load_trace("@quickstart").name == "quickstart"


def test_a_file_is_read_and_named(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(TRACE))
    assert len(load_trace(path).regimes) == 3
    path.write_text(json.dumps(TRACE | {"regimes": {"c": [{"after": 1.0, "workload": "fast"}]}}))
    with refuses('trace.json: regimes.c: found "c", expected the id of a job...'):
        load_trace(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"regimes": {"a": [{"after": 1.0, "workload": "none"}]}},
         "regimes.a[0].workload: found \"none\", expected one of the instance's workloads"),
        ({"regimes": {"a": [{"after": 2.0, "workload": "fast"}, {"after": 2.0, "workload": "slow"}]}},
         "regimes.a[1].after: found 2.0, expected more steps than 2"),
        ({"regimes": {"a": []}}, "regimes.a: found []"),
        ({"node_events": [{"at": 1.0, "node": "v100-2", "state": "down"}]},
         'node_events[0].node: found "v100-2", expected the name of a node of the cluster'),
        ({"instance": INSTANCE | {"now": "x"}}, 'instance.now: found "x"'),
        ({"format": "optsched-trace/2"}, 'format: found "optsched-trace/2"'),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_with_its_place(
    change: dict[str, object], message: str
) -> None:
    with refuses(f"{message}..."):
        Trace.from_document(TRACE | change)
