"""The same content in JSON, YAML and npz is the same instance; what is written is read back."""

from __future__ import annotations

import gc
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from refusals import refuses

from optsched.errors import UsageError
from optsched.instance import Instance, instance_bytes, read_instance

# Private names: readers and writers are checked one by one, below `Instance`
from optsched.instance.files import kind_of

Document = dict[str, Any]
Edit = Callable[[Document, str, Any], Document]
Read = Callable[[bytes, str], Instance]
KINDS = ("json", "yaml", "npz")


def same(one: Instance, other: Instance) -> None:
    assert one.to_document() == other.to_document()
    assert one.sha256 == other.sha256


@pytest.mark.parametrize("kind", KINDS)
def test_written_and_read(document: Document, read_bytes: Read, kind: str) -> None:
    instance = Instance.from_document(document)
    same(read_bytes(instance_bytes(instance, kind), f".{kind}"), instance)


@pytest.mark.parametrize("first", KINDS)
@pytest.mark.parametrize("second", KINDS)
def test_bytes_do_not_depend_on_the_way(
    document: Document, read_bytes: Read, first: str, second: str
) -> None:
    instance = Instance.from_document(document)
    by_detour = read_bytes(instance_bytes(instance, first), f".{first}")
    assert instance_bytes(by_detour, second) == instance_bytes(instance, second)


def test_plain_json_and_yaml_say_the_same(document: Document, read_bytes: Read) -> None:
    expected = Instance.from_document(document)
    same(read_bytes(json.dumps(document).encode(), ".json"), expected)
    same(read_bytes(yaml.safe_dump(document).encode(), ".yaml"), expected)
    same(read_bytes(yaml.safe_dump(document, default_flow_style=True).encode(), ".YML"), expected)
    same(read_bytes(json.dumps(document).encode(), ".yaml"), expected)


def test_document_is_plain_data_without_defaults(two_types: Document) -> None:
    document = Instance.from_document(two_types).to_document()
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert document["jobs"] == [
        {
            "id": "a",
            "workload": "ResNet-18/64",
            "gpus": 1,
            "steps": 10000,
            "arrival": 0,
            "restart_cost": 30,
            "throughput": {"v100": 40.2, "k80": 8.1},
        },
        {
            "id": "b",
            "gpus": {"min": 1, "max": 8, "levels": [1, 2, 4, 8]},
            "steps": 5000,
            "arrival": 0,
            "options": [
                {
                    "pool": "v100",
                    "gpus": 2,
                    "throughput": 3,
                    "uses": {"cpu": 8},
                    "value": 7,
                    "attributes": {"servers": 1},
                }
            ],
        },
    ]


def test_json_has_a_line_per_job(everything: Document) -> None:
    lines = instance_bytes(Instance.from_document(everything), "json").decode().splitlines()
    starts = [line for line in lines if line.startswith('  {"id": "')]
    assert [json.loads(line.rstrip(","))["id"] for line in starts] == ["a", "b", "c", "d"]


# What a document may say in a way of its own: (path, value)
SPECIAL = [
    ("cluster.pools.1.nodes", 0),
    ("cluster.pools.1.nodes", []),
    ("cluster.pools.1.nodes", [{"name": "k80-0"}, {"name": "k80-1", "gpus": 0}]),
    (
        "cluster.pools.1.nodes",
        [{"name": f"n{i}", "state": state} for i, state in enumerate(("up", "down", "reserved"))],
    ),
    ("cluster.pools.1.nodes", [{"name": "n0", "available_from": -5.5}]),
    (
        "cluster.resources",
        [
            {"name": "power", "capacity": 0, "pool": "v100", "nodes": ["v100-1"]},
            {"name": "x", "capacity": 1},
        ],
    ),
    ("cluster.topology", {"nodes": [], "links": []}),
    (
        "cluster.topology",
        {"directed": True, "nodes": [{"id": 1}], "edges": [{"source": 1, "target": 1}]},
    ),
    ("workloads.LM/20", {}),
    ("workloads.LM/20.throughput", {}),
    ("workloads.LM/20.throughput", {"V100-SXM2-16GB": {"1": 0, "16": {"4": 1.5}}}),
    ("workloads.LM/20.parameters", {"a": [1, 2.5, None, True, "x", {"b": []}], "": {}}),
    ("workloads.LM/20.gpu_memory", 0),
    ("throughputs", {"new": {"k80": 3}}),
    ("performance", {"model": "amdahl", "fraction": 0.1, "by": {"v100": [1, 2]}}),
    (
        "constraints",
        [
            {"kind": "budget", "limit": 12.5},
            {"kind": "forbid", "jobs": ["a"], "deep": {"x": [None]}},
        ],
    ),
    ("tenants.+", {"name": "audio", "policy": "fifo"}),
    ("now", -1000),
    ("jobs", []),
    ("jobs.0.throughput", {}),
    ("jobs.0.throughput", {"v100": 0}),
    ("jobs.0.workload", "a label that no table defines"),
    ("jobs.0.gpus", {"min": 1, "max": 1}),
    ("jobs.0.gpus", {"min": 1, "max": 1, "levels": [1]}),
    ("jobs.1.gpus.levels", [8, 2, 1]),
    ("jobs.1.gpus.levels", None),
    ("jobs.0.deadline", 0),
    ("jobs.0.deadline_kind", "soft"),
    ("jobs.0.steps", -0.0),
    ("jobs.0.steps_done", -0.0),
    ("jobs.0.arrival", -0.0),
    ("jobs.0.restart_cost", -0.0),
    ("jobs.0.history", {"isolated_time": -0.0}),
    ("jobs.0.throughput.k80", -0.0),
    ("jobs.0.steps", 1e-300),
    ("jobs.0.steps", 0.1 + 0.2),
    ("jobs.0.steps", 10**17 + 1),
    ("jobs.0.running", {"pool": "v100", "gpus": ["v100-0/3", "v100-1/0"], "since": 0}),
    ("jobs.0.running", {"pool": "k80", "gpus": ["k80-0/0"]}),
    ("jobs.1.options.0.share", 0.25),
    ("jobs.1.options.0.value", -0.0),
    ("jobs.1.options.0.cost", -3),
    ("jobs.1.options.0.nodes", 2),
    ("jobs.1.options.+", {}),
    ("jobs.1.options.+", {"duration": 60, "uses": {"budget": 2.5}}),
    ("jobs.0.id", "j0"),
    ("jobs.1.options.0.attributes", {"nested": {"list": [[]]}}),
]


@pytest.mark.parametrize(("path", "value"), SPECIAL, ids=str)
def test_special_content(
    two_types: Document, edit: Edit, read_bytes: Read, path: str, value: object
) -> None:
    two_types["colocation"] = []
    instance = Instance.from_document(edit(two_types, path, value))
    for kind in KINDS:
        same(read_bytes(instance_bytes(instance, kind), f".{kind}"), instance)


NAMES = [
    "Grün",
    "任务",
    "🚀",
    "two\nlines",
    "tab\t",
    "\x00\x1f\x7f",
    "\x85\u2028\ufeff",
    " blank ",
    '"quoted"',
    "a: b #c",
]
NAMES += [
    "null",
    "yes",
    "1e5",
    "0x10",
    "2020-01-01",
    "=",
    "<<",
    "-",
    "*a",
    "&a",
    "!x",
    "%",
    "@",
    "`",
    "12:30",
    "~",
    "\\",
]


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_any_text_is_a_name(two_types: Document, read_bytes: Read, name: str) -> None:
    two_types["cluster"]["pools"][0] |= {"name": name, "gpu": None}
    two_types["cluster"]["pools"][1] |= {
        "gpu": name + "x",
        "nodes": [{"name": name + "node", "gpus": 1}],
    }
    two_types["cluster"]["resources"][0]["name"] = name + "budget"
    two_types["tenants"][0]["name"] = name
    two_types["workloads"] = {name: {"throughput": {name: 1}, "parameters": {name: name}}}
    two_types["colocation"] = [{"jobs": [name, "b"], "pool": name, "throughput": [1, 2]}]
    two_types["jobs"] = [
        {
            "id": name,
            "workload": name,
            "tenant": name,
            "running": {"pool": name, "gpus": [f"{name}-1/0"]},
        },
        {"id": "b", "after": [name], "throughput": {name + "x": 1}},
        {
            "id": "c",
            "options": [
                {
                    "pool": name,
                    "gpus": 1,
                    "attributes": {name: [name]},
                    "uses": {name + "budget": 1},
                }
            ],
        },
    ]
    instance = Instance.from_document(two_types)
    for kind in KINDS:
        same(read_bytes(instance_bytes(instance, kind), f".{kind}"), instance)
    assert instance.jobs[name].tenant == name


def test_npz_is_told_by_its_first_bytes(two_types: Document, read_bytes: Read) -> None:
    instance = Instance.from_document(two_types)
    same(read_bytes(instance_bytes(instance, "npz"), ".dat"), instance)
    same(read_bytes(instance_bytes(instance, "json"), ".dat"), instance)


def test_standard_input(two_types: Document, monkeypatch: pytest.MonkeyPatch) -> None:
    instance = Instance.from_document(two_types)
    for kind in ("json", "npz"):
        stream = io.TextIOWrapper(io.BytesIO(instance_bytes(instance, kind)))
        monkeypatch.setattr(sys, "stdin", stream)
        same(read_instance("-"), instance)


def test_reading_leaves_the_collector_as_it_was(two_types: Document, read_bytes: Read) -> None:
    data = json.dumps(two_types).encode()
    assert gc.isenabled()
    read_bytes(data, ".json")
    assert gc.isenabled()
    gc.disable()
    try:
        read_bytes(data, ".json")
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_kinds_by_suffix() -> None:
    assert [kind_of(Path(name)) for name in ("a.json", "a.yaml", "a.YML", "a.b.npz")] == [
        "json",
        "yaml",
        "yaml",
        "npz",
    ]
    with refuses("found a.txt, expected a name that ends in .json, .yaml, .yml, .npz", UsageError):
        kind_of(Path("a.txt"))


def test_unknown_kind(two_types: Document) -> None:
    with refuses("kind: found 'xml', expected json, yaml or npz", UsageError):
        instance_bytes(Instance.from_document(two_types), "xml")
