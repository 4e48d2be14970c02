"""Random valid documents: they load, and come back the same from every kind of file."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_documents import above_0, documents, numbers, times

from optsched.instance import Instance, instance_bytes

# Private names: readers and writers are checked one by one, below `Instance`
from optsched.instance.archive import from_npz
from optsched.instance.reading import parse_json
from optsched.instance.yaml_text import parse_yaml

pytestmark = pytest.mark.property

Document = dict[str, Any]
QUICK = settings(
    max_examples=30, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)


def same(one: Instance, other: Instance) -> None:
    assert one.to_document() == other.to_document()
    assert one.sha256 == other.sha256


@QUICK
@given(documents())
def test_json_and_npz(document: Document) -> None:
    instance = Instance.from_document(document)
    same(Instance.from_document(instance.to_document()), instance)
    same(Instance.from_document(parse_json(instance_bytes(instance, "json"), "instance")), instance)
    data = instance_bytes(instance, "npz")
    same(from_npz(data), instance)
    assert instance_bytes(from_npz(data), "npz") == data


@settings(QUICK, max_examples=20)
@given(documents())
def test_yaml(document: Document) -> None:
    instance = Instance.from_document(document)
    same(Instance.from_document(parse_yaml(instance_bytes(instance, "yaml"), "instance")), instance)


@QUICK
@given(documents())
def test_the_table_says_what_the_document_says(document: Document) -> None:
    instance = Instance.from_document(document)
    assert len(instance.jobs) == len(document["jobs"])
    for job, view in zip(document["jobs"], instance.jobs, strict=True):
        gpus = (
            job["gpus"]
            if isinstance(job["gpus"], dict)
            else {"min": job["gpus"], "max": job["gpus"]}
        )
        assert view.gpus == (gpus["min"], gpus["max"])
        assert view.steps == job.get("steps", 1)
        assert view.weight == job.get("weight", 1)
        assert view.deadline == job.get("deadline")
        assert view.tenant == job.get("tenant")
        assert view.workload == job.get("workload")
        assert view.throughput == job.get("throughput") or (
            view.throughput is not None and "throughput" in job
        )
        assert instance.jobs[job["id"]] == view


@QUICK
@given(st.data())
def test_arrays_say_what_documents_say(data: st.DataObject) -> None:
    count, pool_count = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 3))

    def column(values: st.SearchStrategy[float]) -> list[float]:
        return data.draw(st.lists(values, min_size=count, max_size=count))

    pools = {f"p{row}": row + 1 for row in range(pool_count)}
    few = st.sampled_from([0.0, 1.5, 2.0]) | st.floats(1e-100, 1e100)
    matrix = [
        data.draw(st.lists(few, min_size=pool_count, max_size=pool_count)) for _ in range(count)
    ]
    columns = {
        "gpus": column(st.integers(1, 2**31)),
        "steps": column(numbers),
        "weight": column(above_0),
        "arrival": column(times),
        "restart_cost": column(numbers),
    }
    instance = Instance.from_arrays(
        pools=pools,
        throughput=matrix,
        **{name: np.array(values) for name, values in columns.items()},
    )
    jobs = [
        {
            "id": f"j{row}",
            "throughput": {
                pool: rate for pool, rate in zip(pools, matrix[row], strict=True) if rate
            },
        }
        | {name: values[row] for name, values in columns.items()}
        for row in range(count)
    ]
    cluster = {
        "pools": [
            {"name": name, "nodes": nodes, "gpus_per_node": 1} for name, nodes in pools.items()
        ]
    }
    document = {"format": "optsched-instance/1", "name": "arrays", "cluster": cluster, "jobs": jobs}
    same(Instance.from_document(document), instance)
