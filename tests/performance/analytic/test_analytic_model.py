"""The ``analytic`` model on instances: rates without measurements, from a transformer's shape to a certified plan."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from refusals import refuses

import optsched
from optsched.assembly import model_of
from optsched.instance import Instance
from optsched.performance import (
    Configurations,
    Feasibility,
    JobBatch,
    Observations,
    PerformanceModel,
    Source,
)

# Private names: a model by its class, where the registry knows it by name
from optsched.performance.analytic.hardware import find
from optsched.performance.analytic.model import AnalyticModel

Document = dict[str, Any]

POOLS: list[Document] = [
    {
        "name": "a100",
        "gpu": "A100-SXM4-80GB",
        "nodes": 4,
        "gpus_per_node": 8,
        "bandwidth": {"node": 100},
    },
    {"name": "v100", "gpu": "v100", "nodes": 2, "gpus_per_node": 8, "gpu_memory": 16},
    {"name": "t4", "gpu": "T4", "nodes": 4, "gpus_per_node": 4},
]
GPT_7B = {
    "layers": 32,
    "hidden": 4096,
    "heads": 32,
    "sequence": 2048,
    "vocabulary": 51200,
    "batch": 256,
}
GPT_350M = {
    "layers": 24,
    "hidden": 1024,
    "heads": 16,
    "sequence": 1024,
    "vocabulary": 51200,
    "batch": 64,
}
WORKLOADS: Document = {
    "gpt-7b": {"parameters": {"transformer": GPT_7B}},
    "gpt-350m": {"parameters": {"transformer": GPT_350M | {"precision": "fp16"}}},
    "resnet-50": {"parameters": {"batch_per_gpu": 128, "max_batch_per_gpu": 100, "model": {
        "flops_per_sample": 24.6e9, "bytes_per_sample": 4e8, "gradient_bytes": 1.02e8, "precision": "fp16"}}},
    "listed": {"parameters": {"batch": 64, "gradient_bytes": 2e8, "operations": [
        {"flops": 1e10, "bytes": 1e7, "fixed_bytes": 1e8}, {"flops": 1e6, "bytes": 5e7, "count": 12}]}},
    "lonely": {"parameters": {"batch": 64, "operations": [{"flops": 1e10}]}},
    "unknown": {},
}  # fmt: skip


def instance_of(
    workloads: Document | None = None, pools: list[Document] = POOLS, **options: Any
) -> Instance:
    return Instance.from_document({
        "format": "optsched-instance/1", "cluster": {"pools": pools}, "workloads": workloads or WORKLOADS, "jobs": [],
        "performance": {"model": "analytic", **options},
    })  # fmt: skip


def model(
    workloads: Document | None = None, pools: list[Document] = POOLS, **options: Any
) -> AnalyticModel:
    made = model_of(instance_of(workloads, pools, **options))
    assert isinstance(made, AnalyticModel)
    return made


def kinds(count: int) -> JobBatch:
    every = np.arange(count)
    return JobBatch(every, np.full(count, -1), np.zeros(count, bool), np.ones(count, np.int64))


def ways(rows: list[tuple[int, int, int]], share: float = 1.0) -> Configurations:
    pool, gpus, nodes = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    return Configurations(
        pool, gpus, nodes, np.full(len(rows), share), np.zeros(len(rows), np.int64)
    )


GRID = [
    (pool, gpus, nodes)
    for pool in (-1, 0, 1, 2)
    for gpus in (0, 1, 2, 5, 8, 16)
    for nodes in (0, 1, 2, 3)
]


# --- predictions ---------------------------------------------------------------------------------------------------


def scalar(name: str, pool: int, gpus: int, nodes: int) -> float:
    """The docstring of `AnalyticModel` for lists of operations, one cell at a time; NaN where nothing is said."""
    parameters = WORKLOADS[name]["parameters"]
    board = find(POOLS[pool]["gpu"])
    if "model" in parameters:
        one = parameters["model"]
        operations = [(one["flops_per_sample"], one["bytes_per_sample"], 0.0, 1)]
        S, precision = one["gradient_bytes"], "fp16"
        passes, samples, per_step = (
            2,
            64.0,
            gpus * 128 / 128,
        )  # 128 samples do not fit: two passes of 64
    else:
        operations = [(o["flops"], o.get("bytes", 0), o.get("fixed_bytes", 0), o.get("count", 1))
                      for o in parameters["operations"]]  # fmt: skip
        S, precision = parameters.get("gradient_bytes", math.nan if gpus > 1 else 0.0), "bf16"
        passes, samples, per_step = 1, float(math.ceil(64 / gpus)), 1.0
    peak, speed = board.peak(precision) * 0.6, board.bandwidth * 1e9 * 0.8
    once = sum(
        c * (max(samples * F / peak, (samples * Q + R) / speed) + 4e-6) for F, Q, R, c in operations
    )
    exchange = 0.0
    if gpus > 1:
        inside = {0: 240e9, 1: 120e9, 2: 12e9}[pool]
        between = {0: 100e9, 1: 12e9, 2: 12e9}[pool]
        near = 5.7e-6 if pool == 2 else 3.4e-6
        B = inside if nodes == 1 else min(inside, between)
        exchange = 2 * (gpus - 1) / gpus * S / B + 2 * ((gpus - nodes) * near + (nodes - 1) * 14e-6)
    hidden = 0.5 * 2 / 3 * once
    return per_step / (passes * once + (exchange - hidden if not exchange <= hidden else 0.0))


def test_predict_is_a_scalar_loop_and_edges_are_its_cells() -> None:
    made = model()
    names = list(WORKLOADS)
    found = made.predict(kinds(len(names)), ways(GRID))
    assert found.rate.shape == (6, len(GRID))
    for row, name in enumerate(names):
        for column, (pool, gpus, nodes) in enumerate(GRID):
            rate, why = found.rate[row, column], found.feasible[row, column]
            assert (rate > 0) == (why == Feasibility.OK)
            if pool < 0 or gpus < 1 or nodes < 1 or nodes > gpus or name == "unknown":
                assert why == Feasibility.NO_RATE
            elif name.startswith("gpt"):
                plan = made.plan(name, POOLS[pool]["name"], gpus, nodes)
                assert rate == (0 if plan is None else pytest.approx(1 / plan.seconds))
            else:
                wanted = scalar(name, pool, gpus, nodes)
                assert why == (Feasibility.NO_RATE if math.isnan(wanted) else Feasibility.OK)
                assert rate == pytest.approx(0.0 if math.isnan(wanted) else wanted, rel=1e-12), (
                    name,
                    GRID[column],
                )
    assert not np.isnan(found.rate).any()

    edges = (np.array([5, 0, 1, 2, 3] * 30), np.random.default_rng(0).integers(0, len(GRID), 150))
    pairs = made.predict(kinds(6), ways(GRID), edges=edges)
    for part in ("rate", "log_sd", "feasible", "source"):
        assert np.array_equal(getattr(pairs, part), getattr(found, part)[edges])
    order = np.random.default_rng(1).permutation(6)
    batch = kinds(6)
    shuffled = JobBatch(
        *(getattr(batch, part)[order] for part in ("workload", "profile", "own", "gang"))
    )
    assert np.array_equal(made.predict(shuffled, ways(GRID)).rate, found.rate[order])
    none = np.zeros(0, np.int64)
    assert made.predict(kinds(6), ways(GRID), edges=(none, none)).rate.shape == (0,)
    assert isinstance(made, PerformanceModel)
    assert made.observe(Observations(kinds(1), ways(GRID), none, np.zeros(0))) == set()


def test_source_and_uncertainty() -> None:
    made = model(
        gpus={"v100": {"compute": 0.5, "log_sd": 0.1}, "T4": {"board": "T4", "log_sd": 0.4}}
    )
    found = made.predict(kinds(1), ways([(0, 8, 1), (1, 8, 1), (2, 4, 1)]))
    assert found.log_sd.tolist() == [[0.3, 0.1, 0.4]]
    assert found.source.tolist() == [[Source.PRIOR, Source.PARAMETRIC, Source.PRIOR]]


def test_what_does_not_fit_and_what_cannot_be_used() -> None:
    made = model({"gpt": {"parameters": {"transformer": GPT_7B}}, "tiny": {"parameters": {"transformer": {
        "layers": 1, "hidden": 7, "sequence": 8, "vocabulary": 10, "batch": 2}}}})  # fmt: skip
    found = made.predict(kinds(2), ways([(0, 1, 1), (0, 8, 1), (1, 1, 1), (0, 16, 2)]))
    out, ok, zero = Feasibility.OUT_OF_MEMORY, Feasibility.OK, Feasibility.ZERO_RATE
    assert found.feasible.tolist() == [
        [out, ok, out, ok],
        [ok, zero, ok, zero],
    ]  # 2 sequences, 1 layer, width 7


def test_a_pool_s_own_memory_counts() -> None:
    small = [POOLS[0] | {"gpu_memory": 8}]
    for pools, wanted in ((POOLS[:1], Feasibility.OK), (small, Feasibility.OUT_OF_MEMORY)):
        found = model({"gpt": {"parameters": {"transformer": GPT_7B}}}, pools).predict(
            kinds(1), ways([(0, 8, 1)])
        )
        assert found.feasible[0, 0] == wanted


def test_options_do_what_they_say() -> None:
    def seconds(gpus: int = 8, nodes: int = 1, name: str = "gpt-350m", **options: Any) -> float:
        row = list(WORKLOADS).index(name)
        return 1 / float(model(**options).predict(kinds(6), ways([(1, gpus, nodes)])).rate[row, 0])

    usual = seconds()
    assert seconds(compute=0.3) > usual
    assert seconds(memory=0.4) > usual
    assert seconds(recompute="full") > usual
    assert seconds(launch=1e-3) > usual
    assert seconds(precision="fp32") == usual  # the workload states its own
    assert seconds(name="listed", precision="fp16") <= seconds(name="listed", precision="fp32")
    assert seconds(16, 2, network_bandwidth=1.0) > seconds(16, 2)
    assert seconds(16, 2, network_latency=1.0) > seconds(16, 2)
    assert seconds(16, 2, "resnet-50", overlap=1.0) <= seconds(16, 2, "resnet-50", overlap=0.0)
    plans = [model(zero=zero).plan("gpt-7b", "a100", 16, 2) for zero in (0, 3)]
    assert plans[1] is not None and (plans[0] is None or plans[1].memory != plans[0].memory)
    assert model(memory_share=0.01).plan("gpt-7b", "a100", 16, 2) is None


def test_shares_and_slices() -> None:
    """Half a GPU runs at half the rate; a slice has c/7 of the arithmetic and m/8 of the bandwidth."""
    heavy, light = {"flops": 1e12}, {"flops": 1.0, "bytes": 1e9}
    made = model({name: {"parameters": {"batch": 10, "operations": [one]}} for name, one in
                  (("heavy", heavy), ("light", light))}, launch=0.0)  # fmt: skip
    whole = made.predict(kinds(2), ways([(0, 1, 1)])).rate
    assert made.predict(kinds(2), ways([(0, 1, 1)], 0.5)).rate == pytest.approx(whole / 2)
    one = np.ones(3, np.int64)
    sets = ({}, {"mig": "1g.10gb"}, {"mig": "3g.40gb"})
    sliced = Configurations(one * 0, one, one, np.ones(3), np.arange(3), sets)
    rate = made.predict(kinds(2), sliced).rate / whole
    assert rate == pytest.approx(np.array([[1, 1 / 7, 3 / 7], [1, 1 / 8, 4 / 8]]))
    wrong = Configurations(
        one[:1] * 0, one[:1], one[:1], np.ones(1), one[:1], ({}, {"mig": "1g.5gb"})
    )
    with refuses('attributes.mig: found "1g.5gb", expected a MIG profile of A100-SXM4-80GB...'):
        made.predict(kinds(2), wrong)


def test_it_says_what_it_assumed() -> None:
    said = {(one.pool, one.level): (one.bandwidth, one.source) for one in model().assumptions}
    assert said["a100", "leaf switch"] == (100, "bandwidth.node of pool a100")
    assert said["v100", "node"] == (120, "datasheet of V100-SXM2-16GB: NVLink 150 GB/s x 0.8")
    assert said["t4", "node"] == (12, "datasheet of T4: PCIe 3.0 x16")
    assert len(said) == 12


# --- from a transformer to a plan ----------------------------------------------------------------------------------


def test_end_to_end() -> None:
    """No measurement anywhere: a transformer and a ResNet share a cluster of three GPU types fairly."""
    document = {
        "format": "optsched-instance/1", "cluster": {"pools": POOLS}, "workloads": WORKLOADS,
        "performance": {"model": "analytic"},
        "jobs": [
            {"id": "big", "workload": "gpt-7b", "gpus": 8, "steps": 1000},
            {"id": "bigger", "workload": "gpt-7b", "gpus": 16, "steps": 1000},
            {"id": "small", "workload": "gpt-350m", "gpus": {"min": 1, "max": 8}, "steps": 10000},
            {"id": "cnn", "workload": "resnet-50", "gpus": 4, "steps": 100000},
            {"id": "stuck", "workload": "gpt-7b", "gpus": 1, "steps": 10},
        ],
    }  # fmt: skip
    instance = Instance.from_document(document)
    solution = optsched.solve(instance, "max-min-fairness")
    assert (solution.status, solution.certificate.ok) == ("optimal", True)
    assert solution.unplaced == (
        ("stuck", "can run nowhere: a100, v100, t4: out of GPU memory on 1 GPU"),
    )
    made = model_of(instance)
    assert isinstance(made, AnalyticModel)
    for gpus, nodes in ((8, 1), (16, 2)):
        plan = made.plan("gpt-7b", "a100", gpus, nodes)
        assert plan is not None
        assert 0.3 <= plan.utilisation <= 0.6  # 0.3 to 0.55 is usual
        assert plan.tensor * plan.stages * plan.replicas == gpus
        assert plan.memory <= 72
    rate = made.predict(kinds(3), ways([(0, 1, 1), (1, 1, 1), (2, 1, 1)])).rate[2] * 128
    assert (
        rate > [1500, 700, 200]
    ).all()  # images/s; about 2,600, 1,300 and 400 are usual with mixed precision
    assert (rate < [6000, 3000, 1000]).all()


# --- what is refused -----------------------------------------------------------------------------------------------


def transformer(**changes: Any) -> Document:
    return {
        "w": {
            "parameters": {
                "transformer": {k: v for k, v in (GPT_350M | changes).items() if v is not None}
            }
        }
    }


AT = r"workloads.w.parameters"


@pytest.mark.parametrize(
    ("workloads", "message"),
    [
        (transformer(layers=None), AT + ".transformer.layers: found nothing, expected this key"),
        (transformer(layers=0), AT + ".transformer.layers: found 0, expected a number of at least 1"),
        (transformer(hidden=1.5), AT + ".transformer.hidden: found 1.5, expected a whole number"),
        (transformer(heads=3), AT + ".transformer.heads: found 3 heads, expected a divisor of hidden (1024)"),
        (transformer(heads=None, attention="plain"), AT + ".transformer.heads: found nothing, expected the..."),
        (transformer(batch=None), AT + ".transformer.batch: found nothing, expected the sequences in a step..."),
        (transformer(batch=2**21), AT + ".transformer.batch: found 2,097,152 sequences, expected at most 1,048,576"),
        (transformer(precision="int4"), AT + ".transformer.precision: found \"int4\", expected one of 'fp64'..."),
        (transformer(layer=3),
         AT + ".transformer.layer: found an unknown key 'layer', expected one of the format's keys "
         "(did you mean layers?)"),
        ({"w": {"parameters": {"transformer": 3}}}, AT + ".transformer: found 3, expected an object"),
        ({"w": {"parameters": {"batch": 1.5} | transformer(batch=None)["w"]["parameters"]}},
         AT + ".batch: found 1.5, expected a whole number of sequences, at least 1"),
        ({"w": {"parameters": {"batch": 8} | transformer()["w"]["parameters"]}},
         AT + ".transformer.batch: found 64 beside parameters.batch 8, expected the same in both"),
        ({"w": {"parameters": {"operations": [], "batch": 1}}},
         AT + ".operations: found [], expected at least 1 entry"),
        ({"w": {"parameters": {"operations": [{"flops": -1}], "batch": 1}}},
         AT + ".operations[0].flops: found -1, expected a number of at least 0"),
        ({"w": {"parameters": {"model": {"flops": 1}, "batch": 1}}}, AT + ".model.flops..."),
        ({"w": {"parameters": {"model": {"flops_per_sample": 1}}}},
         AT + ": found neither batch nor batch_per_gpu, expected one of them, the samples of a step"),
        ({"w": {"parameters": {"model": {"flops_per_sample": 1}, "operations": []}}},
         AT + ": found operations beside model, expected one of transformer, operations, model"),
    ],
)  # fmt: skip
def test_wrong_parameters(workloads: Document, message: str) -> None:
    with refuses(message):
        model(workloads)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"compute": 1.5}, "performance.compute: found 1.5, expected a number of at most 1"),
        (
            {"computes": 0.5},
            "performance.computes: found an unknown key 'computes', expected one of the format's keys "
            "(did you mean compute...",
        ),
        ({"overlap": -1}, "performance.overlap: found -1, expected a number of at least 0"),
        ({"zero": 4}, "performance.zero: found 4, expected a number of at most 3"),
        (
            {"recompute": "some"},
            "performance.recompute: found \"some\", expected one of 'auto', 'full' or 'none'",
        ),
        (
            {"chunks": 2},
            "performance.chunks: found 2 beside the schedule 1f1b, expected 2 or more chunks with...",
        ),
        (
            {"schedule": "interleaved"},
            "performance.chunks: found 1 beside the schedule interleaved",
        ),
        (
            {"gpus": {"p4": {}}},
            "performance.gpus.p4: found no GPU type of the cluster, expected one of A100-SXM4-80GB...",
        ),
        (
            {"gpus": {"T4": {"board": "T5"}}},
            'performance.gpus.T4.board: found "T5", expected the name of a known GPU...',
        ),
        ({"gpus": {"T4": {"peak": 5}}}, "performance.gpus.T4.peak: found an unknown key 'peak'"),
    ],
)
def test_wrong_options(options: Document, message: str) -> None:
    with refuses(message):
        model(**options)


def test_unknown_gpus() -> None:
    pools = [POOLS[0], {"name": "x", "gpu": "fast", "nodes": 1, "gpus_per_node": 1}]
    with refuses(
        'cluster.pools[1].gpu: found "fast", expected the name of a known GPU board...'
    ) as caught:
        model(pools=pools)
    assert caught.value.expected.endswith("; or its board as performance.gpus.fast.board")
    made = model(pools=pools, gpus={"fast": {"board": "H100"}})
    assert made.boards[1].name == "H100-SXM5-80GB"
    skipping = model(pools=pools, skip_unknown=True)
    said = skipping.predict(kinds(1), ways([(0, 8, 1), (1, 8, 1)]))
    assert said.feasible.tolist() == [[Feasibility.OK, Feasibility.NO_RATE]]
    assert (
        said.rate[0, 0]
        == model(pools=pools[:1]).predict(kinds(1), ways([(0, 8, 1)])).rate[0, 0]
        > 0
    )
    assert {assumption.pool for assumption in skipping.assumptions} == {POOLS[0]["name"]}


def test_every_way_to_exchange_gradients() -> None:
    """Beyond one GPU the four differ; nothing is exchanged on one; over nodes a hierarchy beats the ring."""
    one = {
        "w": {
            "parameters": {
                "batch_per_gpu": 8,
                "model": {"flops_per_sample": 1e9, "gradient_bytes": 1e9},
            }
        }
    }
    asked = ways([(0, 1, 1), (0, 4, 1), (0, 16, 2)])
    rates = {
        name: model(one, all_reduce=name, overlap=0).predict(kinds(1), asked).rate[0]
        for name in ("ring", "tree", "hierarchical", "nccl")
    }
    assert len({float(rate[0]) for rate in rates.values()}) == 1
    assert len({float(rate[2]) for rate in rates.values()}) == len(rates)
    assert rates["hierarchical"][1] == pytest.approx(rates["ring"][1])
    assert rates["hierarchical"][2] > rates["ring"][2]


@pytest.mark.parametrize("way", ["ring", "tree", "hierarchical", "nccl"])
def test_without_gradient_bytes_only_one_gpu_has_a_rate(way: str) -> None:
    silent = {"w": {"parameters": {"batch_per_gpu": 8, "model": {"flops_per_sample": 1e9}}}}
    asked = ways([(0, 1, 1), (0, 4, 1), (0, 16, 2)])
    said = model(silent, all_reduce=way).predict(kinds(1), asked)
    assert said.feasible[0].tolist() == [Feasibility.OK, Feasibility.NO_RATE, Feasibility.NO_RATE]
