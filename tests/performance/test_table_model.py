"""The table model against the words of the format, rate by rate."""

from __future__ import annotations

import importlib
import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from documents import instance_document
from instance_cases import batch_of, configurations
from refusals import refuses

import optsched
from optsched.errors import InvalidInput
from optsched.instance import Instance
from optsched.performance import (
    CATALOGUE,
    Feasibility,
    JobBatch,
    Observations,
    PerformanceModel,
    Prediction,
    Source,
    TableModel,
)

Document = dict[str, Any]
HUGE = 2**31 - 1

POOLS: list[Document] = [
    {"name": "a", "gpu": "x", "nodes": 2, "gpus_per_node": 4},
    {"name": "b", "gpu": "x", "nodes": [{"name": f"n{gpus}", "gpus": gpus} for gpus in (1, 4, 2)]},
    {"name": "c", "gpu": "a", "nodes": 3, "gpus_per_node": 1},
    {"name": "d", "nodes": 0, "gpus_per_node": 8},
]  # fmt: skip
SIZES = {"a": [4, 4], "b": [4, 2, 1], "c": [1, 1, 1], "d": []}
TYPES = {"a": "x", "b": "x", "c": "a", "d": "d"}


def instance_of(
    profiles: list[Document], gangs: list[int] | None = None, own: bool = True, **more: Any
) -> Instance:
    """One job per throughput profile, its own or a workload's."""
    gangs = gangs or [1] * len(profiles)
    jobs: list[Document] = [{"id": f"j{row}", "gpus": gang} for row, gang in enumerate(gangs)]
    workloads = {}
    for row, (job, profile) in enumerate(zip(jobs, profiles, strict=True)):
        if own:
            job["throughput"] = profile
        else:
            job["workload"] = f"w{row}"
            workloads[f"w{row}"] = {"throughput": profile}
    return Instance.from_document(instance_document(POOLS, jobs, workloads=workloads) | more)


def fewest(pool: str, gpus: int) -> int:
    for nodes in range(len(SIZES[pool]) + 1):
        if sum(SIZES[pool][:nodes]) >= gpus:
            return nodes
    return len(SIZES[pool]) + 1


def stated(
    profile: Mapping[str, Any], plain_count: int, pool: str, gpus: int, nodes: int
) -> float | None:
    """The rules of the format, for one cell."""
    entry = profile.get(pool, profile.get(TYPES[pool]))
    if isinstance(entry, dict):
        entry = entry.get(str(gpus))
        if isinstance(entry, dict):
            # All nodes of a pool have the rate of the next number of nodes.
            wider = [int(n) for n in entry if int(n) >= nodes == len(SIZES[pool]) > 0]
            return entry.get(str(min(wider, default=nodes)))
    elif gpus != plain_count:
        return None
    return entry if nodes == fewest(pool, gpus) else None


def random_profile(rng: random.Random, top: int = 6) -> Document:
    profile: Document = {}
    for place in rng.sample(["a", "b", "c", "d", "x"], rng.randint(0, 5)):
        if rng.random() < 0.4:
            profile[place] = rng.choice([0.0, 1.0, 2.5])
            continue
        profile[place] = {}
        for gpus in rng.sample(range(1, top + 1), rng.randint(1, 4)):
            if rng.random() < 0.5:
                profile[place][str(gpus)] = rng.choice([0.0, rng.random()])
            else:
                spreads = rng.sample(range(1, gpus + 1), rng.randint(1, min(gpus, 3)))
                profile[place][str(gpus)] = {
                    str(nodes): rng.choice([0.0, rng.random()]) for nodes in spreads
                }
    return profile


GRID = [(pool, gpus, nodes) for pool in range(-1, 4) for gpus in range(8) for nodes in range(6)]


def same(first: Prediction, second: Prediction) -> bool:
    return all(
        np.array_equal(getattr(first, name), getattr(second, name))
        for name in ("rate", "log_sd", "feasible", "source")
    )


def cells(prediction: Prediction, index: Any) -> Prediction:
    return Prediction(
        *(getattr(prediction, name)[index] for name in ("rate", "log_sd", "feasible", "source"))
    )


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("own", [True, False])
def test_every_cell_follows_the_rules(seed: int, own: bool) -> None:
    rng = random.Random(seed)
    profiles = [random_profile(rng) for _ in range(5)]
    gangs = [rng.randint(1, 4) for _ in profiles]
    instance = instance_of(profiles, gangs, own)
    model, batch, table = (
        TableModel(instance.rates, instance),
        batch_of(instance),
        configurations(GRID),
    )
    found = model.predict(batch, table)
    assert (
        found.rate.shape
        == found.log_sd.shape
        == found.feasible.shape
        == found.source.shape
        == (5, len(GRID))
    )
    for job, (profile, gang) in enumerate(zip(profiles, gangs, strict=True)):
        for column, (pool, gpus, nodes) in enumerate(GRID):
            rate = (
                None if pool < 0 else stated(profile, gang if own else 1, "abcd"[pool], gpus, nodes)
            )
            assert found.rate[job, column] == (rate or 0.0)
            reason = (
                Feasibility.NO_RATE
                if rate is None
                else Feasibility.OK
                if rate
                else Feasibility.ZERO_RATE
            )
            assert found.feasible[job, column] == reason
    assert np.array_equal(found.rate > 0, found.feasible == Feasibility.OK)
    assert (found.source == Source.MEASURED).all()
    assert (found.log_sd == 0).all()

    order = np.random.default_rng(seed).permutation(5)
    shuffled = JobBatch(
        *(getattr(batch, name)[order] for name in ("workload", "profile", "own", "gang"))
    )
    assert same(model.predict(shuffled, table), cells(found, order))
    columns = np.random.default_rng(seed).permutation(len(GRID))
    assert same(
        model.predict(batch, configurations([GRID[column] for column in columns])),
        cells(found, (slice(None), columns)),
    )
    edges = (np.array([4, 0, 0, 2] * 20), np.random.default_rng(seed).integers(0, len(GRID), 80))
    assert same(model.predict(batch, table, edges=edges), cells(found, edges))
    none = (np.zeros(0, np.int64), np.zeros(0, np.int64))
    assert model.predict(batch, table, edges=none).rate.shape == (0,)
    assert same(model.predict(batch, table), found)


def rate_of(instance: Instance, pool: int, gpus: int, nodes: int, job: int = 0) -> float | None:
    """Rate, or None where none is stated."""
    model = TableModel(instance.rates, instance)
    found = model.predict(
        batch_of(instance),
        configurations([(pool, gpus, nodes)]),
        edges=(np.array([job]), np.array([0])),
    )
    return None if found.feasible[0] == Feasibility.NO_RATE else float(found.rate[0])


def test_the_example_of_the_format() -> None:
    profile = {"a": {"1": 40.2, "2": {"1": 77.0, "2": 70.0}}, "x": 8.1}
    workload, own = instance_of([profile], own=False), instance_of([profile], [3])
    for instance in (workload, own):
        assert rate_of(instance, 0, 1, 1) == 40.2
        assert rate_of(instance, 0, 2, 1) == 77.0
        assert rate_of(instance, 0, 2, 2) == 70.0
        assert rate_of(instance, 0, 3, 1) is None  # a's entry hides the number of its type
        assert rate_of(instance, 2, 1, 1) == 40.2  # pool c has GPUs of a type called a
    assert rate_of(workload, 1, 1, 1) == 8.1
    assert rate_of(workload, 1, 3, 1) is None
    assert rate_of(own, 1, 1, 1) is None
    assert rate_of(own, 1, 3, 1) == 8.1
    assert rate_of(own, 1, 3, 2) is None  # 3 GPUs need 1 node


def test_a_zero_is_not_the_same_as_nothing() -> None:
    instance = instance_of([{"a": 0.0}])
    assert rate_of(instance, 0, 1, 1) == 0.0
    assert rate_of(instance, 3, 1, 1) is None
    assert (
        rate_of(instance_of([{"a": 0.0, "x": 5.0}]), 0, 1, 1) == 0.0
    )  # the pool's zero hides its type's rate


def test_a_spread_that_is_stated_wins_over_the_fewest_nodes() -> None:
    instance = instance_of([{"b": {"6": {"2": 5.0, "3": 4.0}}}])
    assert (rate_of(instance, 1, 6, 2), rate_of(instance, 1, 6, 3), rate_of(instance, 1, 6, 1)) == (
        5.0,
        4.0,
        None,
    )


def test_without_any_rate_at_all() -> None:
    """Instances of options only, or of learned models only, have an empty table."""
    instance = Instance.from_document(
        instance_document(
            POOLS,
            [{"id": "a", "workload": "w"}, {"id": "b", "throughput": {}}],
            workloads={"w": {}},
        )
    )
    model = TableModel.from_instance(instance, {})
    found = model.predict(batch_of(instance), configurations(GRID))
    assert (found.feasible == Feasibility.NO_RATE).all()
    assert (found.rate == 0).all()
    edges = np.array([0, 1])
    assert [
        len(part) for part in model.listed_spreads(batch_of(instance), edges, edges, edges)
    ] == [0, 0]
    assert [
        len(part) for part in model.listed_counts(batch_of(instance).profile, edges, edges + 9)
    ] == [0, 0]


def test_counts_near_2_to_the_31_are_not_mixed_up() -> None:
    """Keys made by multiplying the extents would wrap around at 2^64 and meet each other."""
    profiles: list[Document] = [
        {
            place: {str(HUGE): {str(HUGE): 1.0 + row}, str(row + 1): {"1": 2.0 + row}}
            for row, place in enumerate("abcdx")
        },
        {"b": {str(HUGE - 1): {str(HUGE - 1): 3.0}}},
        {"c": 4.0},
        {"d": {str(2**30): 5.0}},
    ]
    instance = instance_of(profiles)
    model, batch = TableModel(instance.rates, instance), batch_of(instance)
    counts = [1, 2, 3, 4, 5, 2**16, 2**30, HUGE - 1, HUGE]
    for extent in (counts, [*counts, 2**31]):
        grid = [(pool, gpus, nodes) for pool in range(4) for gpus in extent for nodes in extent]
        found = model.predict(batch, configurations(grid))
        for job, profile in enumerate(profiles):
            for column, (pool, gpus, nodes) in enumerate(grid):
                assert found.rate[job, column] == (
                    stated(profile, 1, "abcd"[pool], gpus, nodes) or 0.0
                )
    where = np.array([0, 1, 3])
    rows, spreads = model.listed_spreads(batch, np.zeros(3, np.int64), where, np.full(3, HUGE))
    assert (rows.tolist(), spreads.tolist()) == ([0, 1, 2], [HUGE] * 3)
    rows, listed = model.listed_counts(batch.profile, np.full(4, 2), np.full(4, 2**31))
    assert list(zip(rows.tolist(), listed.tolist(), strict=True)) == [
        (0, 3), (0, 4), (0, 5), (0, HUGE), (1, HUGE - 1), (3, 2**30)
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(25))
def test_listed_spreads_and_counts_are_those_of_the_profile(seed: int) -> None:
    rng = random.Random(seed)
    profiles = [random_profile(rng) for _ in range(4)]
    instance = instance_of(profiles)
    model, batch = TableModel(instance.rates, instance), batch_of(instance)
    edges = [(job, pool, gpus) for job in range(4) for pool in range(4) for gpus in range(1, 8)]
    job, pool, gpus = (np.array(column) for column in zip(*edges, strict=True))
    rows, nodes = model.listed_spreads(batch, job, pool, gpus)
    expected = []
    for row, (j, p, k) in enumerate(edges):
        entry = profiles[j].get("abcd"[p], profiles[j].get(TYPES["abcd"[p]]))
        by_nodes = entry.get(str(k)) if isinstance(entry, dict) else None
        expected += [
            (row, spread)
            for spread in sorted(map(int, by_nodes if isinstance(by_nodes, dict) else ()))
        ]
    assert list(zip(rows.tolist(), nodes.tolist(), strict=True)) == expected

    low, high = np.array([0, 1, 2, 3]), np.array([6, 4, 2, 9])
    rows, counts = model.listed_counts(
        np.append(batch.profile, -1), np.append(low, 0), np.append(high, 9)
    )
    assert list(zip(rows.tolist(), counts.tolist(), strict=True)) == [
        (row, count)
        for row, profile in enumerate(profiles)
        for count in sorted(
            {int(k) for entry in profile.values() if isinstance(entry, dict) for k in entry}
        )
        if low[row] < count <= high[row]
    ]


@pytest.mark.parametrize("seed", range(25))
def test_fewest_nodes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    instance = instance_of([])
    model = TableModel(instance.rates, instance)
    pool, gpus = rng.integers(-1, 4, 200), rng.choice([*range(10), HUGE, 2**31], 200)
    expected = [
        0 if p < 0 else fewest("abcd"[p], k)
        for p, k in zip(pool.tolist(), gpus.tolist(), strict=True)
    ]
    assert model.fewest_nodes(pool, gpus).tolist() == expected


# --- the model as a plug-in ----------------------------------------------------------------------------------------


def test_it_is_a_performance_model_by_name() -> None:
    module, _, name = CATALOGUE["table"].partition(":")
    assert getattr(importlib.import_module(module), name) is TableModel
    instance = instance_of([{"a": 1.0}])
    model = TableModel.from_instance(instance, {})
    assert isinstance(model, PerformanceModel)
    assert model.name == "table"
    seen = Observations(
        batch_of(instance), configurations([(0, 1, 1)]), np.array([0]), np.array([7.0])
    )
    version = model.version
    assert model.observe(seen) == set()
    assert model.version == version
    assert model.predict(batch_of(instance), configurations([(0, 1, 1)])).rate.tolist() == [[1.0]]


def test_options_are_refused() -> None:
    with refuses('performance.alpha: found "x", expected no option, as the table...'):
        TableModel.from_instance(instance_of([]), {"alpha": "x", "beta": 2})


# --- plain numbers of workloads ------------------------------------------------------------------------------------


def test_a_plain_number_is_refused_for_a_larger_gang() -> None:
    instance = instance_of([{"a": {"2": 3.0}, "b": 8.25}], [2], own=False)
    with refuses(
        'workloads.w0.throughput.b: found the plain number 8.25 (the rate on 1 GPU), which job "j0" would need for '
        '2 GPUs, expected rates by GPU count such as {"1": 8.25, "2": ...}'
    ):
        TableModel.refuse_plain_numbers(instance)


@pytest.mark.parametrize(
    ("gpus", "refused"),
    [
        (1, 0),
        (2, 2),
        ({"min": 1, "max": 4}, 0),
        ({"min": 3, "max": 4}, 3),
        ({"min": 1, "max": 4, "levels": [4, 2]}, 2),
        ({"min": 1, "max": 4, "levels": [4, 1]}, 0),
    ],
)
def test_the_smallest_count_of_the_job_decides(gpus: Any, refused: int) -> None:
    document = instance_of([{"a": 8.0}], own=False).to_document()
    document["jobs"][0]["gpus"] = gpus
    instance = Instance.from_document(document)
    if not refused:
        TableModel.refuse_plain_numbers(instance)
        return
    need = f'the plain number 8 (the rate on 1 GPU), which job "j0" would need for {refused} GPUs'
    with refuses(f"workloads.w0.throughput.a: found {need}"):
        TableModel.refuse_plain_numbers(instance)


def test_a_number_that_no_pool_would_use_is_not_refused() -> None:
    """Pools a and b, the only ones with GPUs of type x, have entries of their own that hide the number."""
    TableModel.refuse_plain_numbers(
        instance_of([{"a": {"2": 1.0}, "b": {"2": 2.0}, "x": 9.0}], [2], own=False)
    )
    with refuses("workloads.w0.throughput.x"):
        TableModel.refuse_plain_numbers(instance_of([{"a": {"2": 1.0}, "x": 9.0}], [2], own=False))


def test_a_plain_zero_rules_out_gangs_of_every_size() -> None:
    instance = instance_of([{"a": {"2": 3.0}, "b": 0.0}], [2], own=False)
    TableModel.refuse_plain_numbers(instance)
    assert 1 not in optsched.compile(instance).columns.pool


def test_only_jobs_that_rely_on_the_workload_count() -> None:
    document = instance_of([{"a": 8.0}] * 2, [1, 1], own=False).to_document()
    document["jobs"][0] |= {"gpus": 2, "throughput": {"a": 3.0}}
    document["jobs"][1] |= {"gpus": 2, "options": [{"pool": "a", "gpus": 2, "throughput": 1.0}]}
    TableModel.refuse_plain_numbers(Instance.from_document(document))
    del document["jobs"][1]["options"]
    with refuses(
        'workloads.w1.throughput.a: found the plain number 8 (the rate on 1 GPU), which job "j1"...'
    ):
        TableModel.refuse_plain_numbers(Instance.from_document(document))


def test_long_names_are_cut_in_the_message() -> None:
    document = instance_of([{"a": 8.0}], own=False).to_document()
    name = "a\nvery long workload name " * 9
    document["workloads"] = {name: document["workloads"]["w0"]}
    document["jobs"][0] |= {"workload": name, "gpus": 2}
    with pytest.raises(InvalidInput) as caught:
        TableModel.refuse_plain_numbers(Instance.from_document(document))
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 300
