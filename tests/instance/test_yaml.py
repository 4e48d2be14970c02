"""What only YAML has: keys that are no text, dates, sets, anchors and aliases (also malicious ones)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from refusals import refuses, stated

from optsched.errors import InvalidInput

# Private names: readers and writers are checked one by one, below `Instance`
from optsched.instance import Instance, instance_bytes, yaml_text
from optsched.instance.yaml_text import parse_yaml

Document = dict[str, Any]
FileRefusal = Callable[..., InvalidInput]
Read = Callable[[bytes, str], Instance]

CLUSTER = """\
format: optsched-instance/1
cluster: {pools: [{name: v100, nodes: 2, gpus_per_node: 4}]}
"""


def test_written_by_hand(read_bytes: Read, two_types: Document) -> None:
    text = """\
    format: optsched-instance/1   # a comment
    name: by hand
    cluster:
      pools:
        - {name: v100, nodes: 2, gpus_per_node: 4}
        - name: k80
          nodes:
            - {name: old, gpus: 2, state: drain}
    workloads:
      lm: &rates
        throughput: {v100: {1: 40.2, 2: {1: 77, 2: 70}}, k80: 8.1}
      bert: *rates
    jobs:
      - {id: a, workload: lm}
      - id: b
        workload: bert
        gpus: 2
    """
    instance = read_bytes(text.encode(), ".yaml")
    lm, bert = instance.workloads
    assert instance.rates.document(lm.rates) == {
        "v100": {"1": 40.2, "2": {"1": 77.0, "2": 70.0}},
        "k80": 8.1,
    }
    assert lm.rates == bert.rates
    assert instance.jobs["b"].gpus == (2, 2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("workloads: {1: {}}", "workloads: found 1 as a key, expected text as the key"),
        (
            "workloads: {2020-01-01: {}}",
            "workloads: found datetime.date(2020, 1, 1) as a key, expected text as the key",
        ),
        ("workloads: {null: {}}", "workloads: found null as a key, expected text as the key"),
        ("workloads: {no: {}}", "workloads: found false as a key, expected text as the key"),
        ("workloads: {[1, 2]: {}}", "found text that is not YAML (while constructing a mapping"),
        ("1: 2", "found 1 as a key, expected text as the key"),
        ("? {a: 1}\n: 2", "found text that is not YAML ("),
        (
            "throughputs: {lm: {1: 2.0}}",
            "throughputs.lm: found 1, expected text as the key: a pool or GPU type",
        ),
        (
            "throughputs: {lm: {v100: {1.5: 2}}}",
            "throughputs.lm.v100: found 1.5, expected a whole number of GPUs",
        ),
        (
            "throughputs: {lm: {v100: {true: 2}}}",
            "throughputs.lm.v100: found true, expected a whole number of GPUs",
        ),
        (
            "throughputs: {lm: {v100: {0: 2}}}",
            "throughputs.lm.v100: found 0, expected a whole number of GPUs",
        ),
        (
            "throughputs: {lm: {v100: {2: {3: 2}}}}",
            "throughputs.lm.v100.2: found 3, expected at most 2 nodes",
        ),
        (
            "throughputs: {lm: {v100: 1e5}}",
            'throughputs.lm.v100: found "1e5", expected a finite rate in steps/s',
        ),
        (
            "throughputs: {lm: {v100: .inf}}",
            "throughputs.lm.v100: found Infinity, expected a finite rate in steps/s",
        ),
        ("now: 2020-01-01", "now: found datetime.date(2020, 1, 1), expected a number"),
        ("now: .nan", "now: found NaN, expected a finite number"),
        ("now: 0x" + "f" * 5000, "now: found a value of type int, expected a finite number"),
        ("name: 5", "name: found 5, expected text"),
        ("name: off", "name: found false, expected text"),
        ("name: !!binary aGVsbG8=", "name: found b'hello', expected text"),
        ("tenants: !!set {a, b}", "tenants: found {"),
        ("tenants: !!omap [a: 1]", "tenants[0]: found "),
        (
            "constraints: [{kind: k, at: 2020-01-01}]",
            "constraints[0].at: found datetime.date(2020, 1, 1), expected plain",
        ),
        (
            "constraints: [{kind: k, at: {1: 2}}]",
            "constraints[0].at: found 1, expected text as the key",
        ),
        (
            "constraints: [{kind: k, at: !!set {a}}]",
            "constraints[0].at: found {'a'}, expected plain data",
        ),
        (
            "constraints: [{kind: k, at: .nan}]",
            "constraints[0].at: found NaN, expected a finite number",
        ),
        (
            "constraints: [{kind: k, at: 0x" + "f" * 5000 + "}]",
            "constraints[0].at: found a value of type int, expected a",
        ),
    ],
)
def test_refused(file_refusal: FileRefusal, text: str, message: str) -> None:
    assert stated(f"{message}...").holds(
        file_refusal((CLUSTER + text + "\njobs: []").encode(), ".yaml")
    )


def test_jobs_as_a_set(file_refusal: FileRefusal) -> None:
    text = CLUSTER + "jobs: [{id: a, throughput: {v100: 1}, after: !!set {b, c}}]"
    error = file_refusal(text.encode(), ".yaml")
    assert stated("jobs[0].after: found {...").holds(error)
    assert error.expected == "a list"


@pytest.fixture(params=[yaml.SafeLoader, getattr(yaml, "CSafeLoader", yaml.SafeLoader)])
def either_loader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With libyaml and without."""
    limits = {
        name: vars(yaml_text._Loader)[name]
        for name in ("depth", "descend_resolver", "ascend_resolver")
    }
    monkeypatch.setattr(yaml_text, "_Loader", type("Loader", (request.param,), limits))


def bomb(levels: int, width: int = 10) -> str:
    lines = ["a0: &a0 [x]"]
    lines += [f"a{i + 1}: &a{i + 1} [{', '.join([f'*a{i}'] * width)}]" for i in range(levels)]
    return "\n".join(lines)


def merge_bomb(levels: int, width: int = 10) -> str:
    lines = ["a0: &a0 {x: 1}"]
    lines += [
        f"a{i + 1}: &a{i + 1} {{<<: [{', '.join([f'*a{i}'] * width)}]}}" for i in range(levels)
    ]
    return "\n".join(lines)


@pytest.mark.parametrize(
    "text",
    [
        bomb(9),
        bomb(100),
        bomb(500, 2),
        merge_bomb(9),
        merge_bomb(30, 2),
        bomb(190, 1) + "\nb: [*a190, *a190]" + "\nc: " + "[" * 30 + "*a190" + "]" * 30,
        "&a [*a]",
        "&a {b: *a}",
        "a: &a [1, {b: [*a]}]",
        "&a {<<: *a}",
        "? &a [*a]\n: 1",
    ],
    ids=lambda text: text[-20:],
)
def test_malicious_aliases(either_loader: None, text: str) -> None:
    with refuses("found text that is not YAML (a...") as caught:
        parse_yaml(text, "instance")
    assert re.search(r"\((aliases that make|an alias inside)", caught.value.found)


@pytest.mark.parametrize("text", ["[" * 1000, "- " * 1000, "{a: " * 1000, "[" * 250 + "]" * 250])
def test_malicious_nesting(either_loader: None, text: str) -> None:
    with refuses("found text that is not YAML (more than 200 levels of nesting)"):
        parse_yaml(text, "instance")


def test_aliases_that_are_fine() -> None:
    assert parse_yaml(bomb(3), "instance")["a3"] == [[[["x"]] * 10] * 10] * 10
    assert parse_yaml(merge_bomb(5), "instance")["a5"] == {"x": 1}


def test_depth_is_counted_along_aliases() -> None:
    assert parse_yaml(bomb(190, 1), "instance")["a190"]
    with refuses(
        "found text that is not YAML (aliases that make the document too large or too deep..."
    ):
        parse_yaml(bomb(200, 1), "instance")


def test_deepest_documents_are_the_same_as_in_json() -> None:
    for depth in (150, 198):
        text = "[" * depth + "]" * depth
        assert parse_yaml(text, "instance") == json.loads(text)


def test_written_yaml_is_plain(everything: Document) -> None:
    text = instance_bytes(Instance.from_document(everything), "yaml").decode()
    assert "!!" not in text
    assert yaml.safe_load(text)["jobs"][1]["throughput"]["v100"] == {
        "1": 3.0,
        "4": {"1": 11.0, "2": 9.0},
    }
