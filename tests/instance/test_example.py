"""The example of the format's description, "two-types", read field by field."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from beside import SHARED
from refusals import refuses

from optsched.instance import Colocation, Instance, Resource, Tenant

Document = dict[str, Any]
DESIGN = SHARED / "design.md"


@pytest.fixture
def instance(two_types: Document) -> Instance:
    return Instance.from_document(two_types)


def design_example() -> Document:
    if not DESIGN.exists():
        pytest.skip("the design page is not part of this checkout (../shared)")
    text = DESIGN.read_text()
    start = text.index('    {"format": "optsched-instance/1"')
    document: Document = json.loads(text[start : text.index("\n- `nodes` is", start)])
    return document


def test_is_the_example_of_the_design_completed(two_types: Document) -> None:
    example = design_example()
    example["cluster"]["pools"].append(two_types["cluster"]["pools"][1])
    example["workloads"]["LM/20"] = two_types["workloads"]["LM/20"]
    assert example == two_types


def test_the_design_leaves_a_pool_and_a_workload_out() -> None:
    example = design_example()
    with refuses("workloads.ResNet-18/64.throughput.k80: found no pool or GPU type..."):
        Instance.from_document(example)
    example["cluster"]["pools"].append({"name": "k80", "nodes": 1, "gpus_per_node": 4})
    with refuses('colocation[0].workloads[1]: found "LM/20", expected the name of a...'):
        Instance.from_document(example)


def test_header(instance: Instance) -> None:
    assert (instance.name, instance.round, instance.now, instance.kind) == (
        "two-types",
        360,
        0,
        "optsched-instance/1",
    )
    assert instance.performance == {"model": "table"}
    assert instance.tenants == (Tenant("vision", 2, "fairness"),)
    assert instance.constraints == ()
    assert instance.cluster.resources == (Resource("budget", "consumable", 100),)
    assert instance.cluster.topology is None


def test_pools(instance: Instance) -> None:
    v100, k80 = instance.cluster.pools
    assert (v100.name, v100.gpu, v100.gpu_memory, v100.cost_per_gpu_hour) == (
        "v100",
        "V100-SXM2-16GB",
        16,
        2.48,
    )
    assert (v100.watts_per_gpu, v100.watts_idle, v100.partitions) == (300, 50, ())
    assert v100.bandwidth == {"intra_node": 150, "node": 12.5, "leaf": 100}
    assert v100.node_gpus.tolist() == [4, 4]
    assert v100.node_cpus.tolist() == [40, 40]
    assert v100.node_memory.tolist() == [244, 244]
    assert (k80.name, k80.gpu, k80.gpu_memory) == ("k80", "k80", None)
    assert np.isnan(k80.node_cpus).all()
    assert instance.cluster.gpus(0).tolist() == [8, 4]
    wanted = ("v100-0", "v100-1", "k80-0", "v100-2", "v100-00", "v100", "-0", "")
    assert [instance.cluster.find_node(name) for name in wanted] == [
        (0, 0),
        (0, 1),
        (1, 0),
        *[(-1, -1)] * 5,
    ]


def test_workloads(instance: Instance) -> None:
    resnet, lm = instance.workloads
    assert (resnet.name, resnet.demand, resnet.gpu_memory) == (
        "ResNet-18/64",
        {"cpu": 3, "memory": 20},
        9,
    )
    assert instance.rates.document(resnet.rates) == {
        "v100": {"1": 40.2, "2": {"1": 77.0, "2": 70.0}},
        "k80": 8.1,
    }
    assert instance.rates.document(lm.rates) == {"v100": 2.9}


def test_jobs(instance: Instance) -> None:
    table = instance.jobs_table
    assert table.steps.tolist() == [10000, 5000]
    assert table.gpus_min.tolist() == [1, 1]
    assert table.gpus_max.tolist() == [1, 8]
    assert table.levels.tolist() == [-1, 0]
    assert table.level_lists == ((1, 2, 4, 8),)
    assert table.deadline.tolist() == [np.inf, np.inf]
    assert table.workload.tolist() == [0, -1]
    assert table.tenant.tolist() == [-1, -1]
    assert table.restart_cost.tolist() == [30, 0]
    assert table.preemptible.tolist() == [True, True]
    assert table.running == {}
    assert table.after == {}


def test_options(instance: Instance) -> None:
    options = instance.options
    assert instance.jobs_table.options.tolist() == [-1, 0]
    assert options.indptr.tolist() == [0, 1]
    assert (options.pool.tolist(), options.gpus.tolist(), options.nodes.tolist()) == ([0], [2], [0])
    assert (options.share.tolist(), options.throughput.tolist()) == ([1], [3])
    assert np.isnan(options.duration).all()
    assert (options.value.tolist(), options.cost.tolist()) == ([7], [0])
    assert options.uses == ({"cpu": 8},)
    assert options.attributes == ({"servers": 1},)


def test_colocation(instance: Instance) -> None:
    rates = (30.1, 2.2)
    assert instance.colocation == (
        Colocation(workloads=(0, 1), jobs=None, pool=0, gpus=1, nodes=0, throughput=rates),
        Colocation(workloads=None, jobs=(0, 1), pool=0, gpus=1, nodes=0, throughput=rates),
    )


def test_later_changes_of_the_document_do_not_reach_the_instance(everything: Document) -> None:
    instance = Instance.from_document(everything)
    written = json.dumps(instance.to_document())
    everything["workloads"]["resnet"]["parameters"]["layers"].append(50)
    everything["cluster"]["topology"]["nodes"].clear()
    everything["constraints"][0]["limit"] = 0
    everything["performance"]["source"] = "guess"
    everything["jobs"][3]["options"][0]["attributes"]["servers"] = 2
    everything["jobs"][3]["options"][0]["uses"].clear()
    assert json.dumps(instance.to_document()) == written


def test_everything_uses_every_key(everything: Document) -> None:
    """So that the tests that work through this document work through the whole format."""
    from optsched.instance import documents

    used: set[str] = set()

    def collect(value: Any) -> None:
        if isinstance(value, dict):
            used.update(value)
            for item in value.values():
                collect(item)
        elif isinstance(value, list):
            for item in value:
                collect(item)

    collect(everything)
    models = [model for model in vars(documents).values() if isinstance(model, type)]
    fields = {
        name
        for model in models
        if issubclass(model, documents.BaseModel)
        for name in model.model_fields
    }
    assert fields <= used
