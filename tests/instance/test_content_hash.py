"""The content hash: equal for the same problem however it is said, different as soon as anything else is said."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from documents import instance_document

import optsched
from optsched.instance import Instance

# A private name: the fast way to the bytes of the hash is compared with the plain one
from optsched.instance.write import plain_profiles

Document = dict[str, Any]
Edit = Callable[[Document, str, Any], Document]


def hash_of(document: Document) -> str:
    return Instance.from_document(document).sha256


# Another value for each entry that the default (see `other`) cannot be; None: named elsewhere, so tested by renaming.
OTHER: dict[str, Any] = {
    "cluster.pools.0.name": None,
    "cluster.pools.1.name": None,
    "cluster.pools.0.nodes.0.name": None,
    "cluster.pools.0.nodes.0.state": "down",
    "cluster.pools.0.nodes.1.state": "reserved",
    "cluster.resources.0.name": None,
    "cluster.resources.1.name": None,
    "cluster.resources.0.kind": None,
    "cluster.resources.1.kind": None,
    "cluster.resources.1.pool": None,
    "cluster.resources.1.nodes.0": "small",
    "cluster.topology.nodes.0.id": None,
    "cluster.topology.nodes.1.id": None,
    "cluster.topology.links.0.source": "switch",
    "cluster.topology.links.0.target": "big",
    "tenants.0.name": None,
    "tenants.0.policy": "fifo",
    "tenants.1.policy": "fairness",
    "colocation.0.workloads.0": "lm",
    "colocation.0.workloads.1": "resnet",
    "colocation.0.pool": "a100",
    "colocation.1.jobs.0": "b",
    "colocation.1.jobs.1": "b",
    "colocation.1.pool": "a100",
    "colocation.1.gpus": None,
    "colocation.0.nodes": 2,
    "jobs.0.id": None,
    "jobs.1.id": "renamed",
    "jobs.2.id": None,
    "jobs.0.workload": "lm",
    "jobs.0.gpus": None,
    "jobs.1.workload": "resnet",
    "jobs.2.workload": "resnet",
    "jobs.0.deadline_kind": "hard",
    "jobs.0.tenant": "speech",
    "jobs.0.running.pool": None,
    "jobs.0.running.gpus.0": "big/4",
    "jobs.0.after.0": "b",
    "jobs.1.gpus.levels.0": 3,
    "jobs.1.gpus.levels.1": 3,
    "jobs.1.gpus.levels.2": 7,
    "jobs.1.gpus.min": None,
    "jobs.3.options.0.pool": "a100",
    "jobs.3.options.0.share": 0.25,
}


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Paths and values of everything that is neither list nor object."""
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(item, f"{path}.{key}" if path else str(key))
    else:
        yield path, value


def other(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    return "another" if value is None else f"{value}-2"


def changes() -> list[tuple[str, Any]]:
    document = json.loads((Path(__file__).parent / "everything.json").read_text())
    new = {
        path: OTHER.get(path, other(value)) for path, value in leaves(document) if path != "format"
    }
    return [(path, value) for path, value in new.items() if value is not None]


@pytest.mark.parametrize(("path", "value"), changes(), ids=str)
def test_any_entry_counts(everything: Document, edit: Edit, path: str, value: Any) -> None:
    before = hash_of(everything)
    assert hash_of(edit(everything, path, value)) != before


@pytest.mark.parametrize(
    "name",
    ["v100", "a100", "big", "budget", "licence", "switch", "vision", "resnet", "lm", "a", "c"],
)
def test_any_name_counts(everything: Document, name: str) -> None:
    renamed = (
        json.dumps(everything)
        .replace(f'"{name}"', '"renamed"')
        .replace(f'"{name}/3"', '"renamed/3"')
    )
    assert hash_of(json.loads(renamed)) != hash_of(everything)


MORE = [  # what is not an entry changed but one added, taken away or moved
    ("jobs.+", {"id": "e", "workload": "lm"}),
    ("jobs.3", ...),
    ("jobs.0.running", ...),
    ("jobs.0.running.since", ...),
    ("jobs.0.after", ["c", "b"]),
    ("jobs.0.after", []),
    ("jobs.0.deadline", None),
    ("jobs.0.tenant", None),
    ("jobs.0.history", ...),
    ("jobs.0.throughput", {}),
    ("jobs.0.throughput", {"v100": 0}),
    ("jobs.1.gpus.levels", ...),
    ("jobs.1.gpus", {"min": 2, "max": 8, "levels": [2, 8]}),
    ("jobs.1.throughput.v100", {"1": 3, "4": {"1": 11}}),
    ("jobs.1.throughput.v100", {"1": 3, "4": 11}),
    ("jobs.1.throughput.v100", {"1": 3, "5": {"1": 11, "2": 9}}),
    ("jobs.1.throughput.v100", {"1": 3, "4": {"1": 11, "3": 9}}),
    ("jobs.1.throughput", {"a100": {"1": 3, "4": {"1": 11, "2": 9}}}),
    ("jobs.2.throughput", {"v100": 2.5}),
    ("jobs.3.gpus", 2),
    ("jobs.3.options.1", ...),
    ("jobs.3.options.0.duration", ...),
    ("jobs.3.options.0.uses", {"cpu": 8}),
    ("jobs.3.options.0.attributes", {}),
    ("colocation.1", ...),
    ("colocation.0.nodes", ...),
    ("colocation.0.workloads", ["lm", "resnet"]),
    ("constraints", []),
    ("tenants.+", {"name": "audio"}),
    ("throughputs.lm", {}),
    ("workloads.resnet.parameters", {}),
    ("workloads.resnet.gpu_memory", ...),
    ("cluster.topology", None),
    ("cluster.pools.0.bandwidth", None),
    ("cluster.pools.1.partitions", []),
    ("cluster.pools.0.cost_per_gpu_hour", ...),
    ("cluster.pools.1.nodes", 3),
    ("cluster.resources.1.nodes", ...),
    ("cluster.resources.0.pool", "v100"),
    ("cluster.resources.+", {"name": "power", "capacity": 1}),
]


@pytest.mark.parametrize(("path", "value"), MORE, ids=str)
def test_additions_and_removals_count(
    everything: Document, edit: Edit, path: str, value: Any
) -> None:
    before = hash_of(everything)
    if path == "throughputs.lm":
        before = hash_of(edit(copy.deepcopy(everything), path, ...) | {"throughputs": {}})
    assert hash_of(edit(everything, path, value)) != before


def test_resource_kind_counts(two_types: Document, edit: Edit) -> None:
    before = hash_of(two_types)
    assert hash_of(edit(two_types, "cluster.resources.0.kind", "renewable")) != before


def test_order_of_jobs_counts(two_types: Document) -> None:
    before = hash_of(two_types)
    two_types["jobs"].reverse()
    assert hash_of(two_types) != before


def test_line_breaks_in_names_count(two_types: Document) -> None:
    two_types["colocation"] = []
    job = {"throughput": {"v100": 1}}
    hashes = {
        hash_of(two_types | {"jobs": [job | {"id": one}, job | {"id": two}]})
        for one, two in [("a\nb", "c"), ("a", "b\nc"), ("a\n", "b\nc"), ('a", "b', "c")]
    }
    assert len(hashes) == 4


def reordered(value: Any) -> Any:
    """The same content with the keys of every object the other way round."""
    if isinstance(value, dict):
        return {key: reordered(item) for key, item in reversed(value.items())}
    return [reordered(item) for item in value] if isinstance(value, list) else value


def test_order_of_keys_does_not_count(document: Document) -> None:
    assert hash_of(reordered(document)) == hash_of(document)


def test_order_of_keys_within_one_of_several_equal_profiles(two_types: Document) -> None:
    """Two jobs with the same rates, said in two orders."""
    two_types["jobs"].append({"id": "c", "throughput": {"v100": 40.2, "k80": 8.1}})
    before = hash_of(two_types)
    two_types["jobs"][2]["throughput"] = {"k80": 8.1, "v100": 40.2}
    assert hash_of(two_types) == before


SAME = [  # (path, value as in the document, the same said otherwise)
    ("jobs.0.steps", 10000, 10000.0),
    ("jobs.0.steps_done", 0, ...),
    ("jobs.0.steps_done", 0, -0.0),
    ("jobs.0.weight", 1, ...),
    ("jobs.0.arrival", 0, ...),
    ("jobs.0.arrival", 0, None),
    ("jobs.0.deadline", None, ...),
    ("jobs.0.deadline_kind", "hard", "soft"),  # of no deadline
    ("jobs.0.after", [], ...),
    ("jobs.0.history", {"isolated_time": 0}, None),
    ("jobs.0.gpus", 1, ...),
    ("jobs.0.gpus", 1, {"min": 1, "max": 1}),
    ("jobs.1.gpus.levels", [1, 2, 4, 8], [8, 4, 2, 1]),
    ("jobs.1.options.0.share", 1, ...),
    ("jobs.1.options.0.cost", 0, ...),
    ("jobs.1.options.0.value", 7, 7.0),
    ("jobs.0.throughput.v100", 40.2, 40.2),
    ("cluster.topology", None, ...),
    ("cluster.pools.0.partitions", None, []),
    ("cluster.pools.1.gpu", "k80", ...),
    ("cluster.pools.1.bandwidth", None, {}),
    ("cluster.pools.0.nodes", 2, 2),
    ("performance", {"model": "table"}, ...),
    ("constraints", [], ...),
    ("throughputs", {}, ...),
    ("tenants.0.policy", "fairness", ...),
    ("workloads.ResNet-18/64.parameters", {}, ...),
    ("round", 360, ...),
    ("now", 0, ...),
]


@pytest.mark.parametrize(("path", "value", "again"), SAME, ids=str)
def test_defaults_and_spellings_do_not_count(
    two_types: Document, edit: Edit, path: str, value: Any, again: Any
) -> None:
    first = hash_of(edit(two_types, path, value))
    assert hash_of(edit(two_types, path, again)) == first


def test_shorthand_for_throughputs_does_not_count(two_types: Document) -> None:
    before = hash_of(two_types)
    two_types["throughputs"] = {"LM/20": two_types["workloads"]["LM/20"].pop("throughput")}
    assert hash_of(two_types) == before
    del two_types["workloads"]["LM/20"]
    assert hash_of(two_types) == before


def test_hash_is_a_sha256_kept_with_the_instance(two_types: Document) -> None:
    instance = Instance.from_document(two_types)
    assert len(bytes.fromhex(instance.sha256)) == 32
    assert instance.sha256 is instance.sha256


@pytest.mark.parametrize("places", [["b", "a", "é"], ['x"y', "Z"], ["p"]])
def test_plain_rates_are_hashed_as_their_documents(places: list[str]) -> None:
    """One number per pool is written in one pass: the same bytes as of the documents one by one."""
    random = np.random.default_rng(len(places))
    rate = random.choice([0.1, 1e-9, 3.0, 1e22, 2.5], (40, len(places)))
    instance = optsched.Instance.from_arrays(
        pools=dict.fromkeys(places, 4), throughput=rate, steps=np.ones(40)
    )
    rates = instance.rates
    documents = [json.dumps(rates.document(row), sort_keys=True) for row in range(len(rates))]
    assert plain_profiles(rates) == [document.encode() for document in documents]


@pytest.mark.parametrize("empty", [0, 2, 4])
def test_a_profile_without_rates_is_hashed_as_its_document(empty: int) -> None:
    rates = [{"a": 1.5}, {"b": 2.0, "a": 1.0}, {"b": 2.0}, {"a": 1.0, "b": 2.0}]
    rates.insert(empty, {})
    document = instance_document(
        pools=[{"name": name, "nodes": 1, "gpus_per_node": 1} for name in "ab"],
        jobs=[{"id": f"j{row}", "throughput": each} for row, each in enumerate(rates)],
    )
    table = Instance.from_document(document).rates
    assert [table.document(row) for row in range(len(table))] == rates
    assert plain_profiles(table) == []
