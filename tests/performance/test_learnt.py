"""What models learn while jobs run is data: written, read back and carried over to other instances without loss."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from documents import instance_document
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from instance_cases import batch_of
from refusals import refuses

from optsched.assembly import make_model, model_of, remembering
from optsched.instance import Instance, instance_bytes, jobs_of_documents, with_jobs

# Private names: a model by its class, where the registry knows it by name
from optsched.instance.archive import from_npz
from optsched.performance import (
    Configurations,
    JobBatch,
    Observations,
    PerformanceModel,
    TableModel,
    with_learnt,
)
from optsched.performance.composed import CachedModel
from optsched.performance.files import model_bytes

Document = dict[str, Any]
QUICK = settings(
    max_examples=12, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
TABLE: Document = {"model": "table"}
ONLINE: Document = {"model": "online", "of": TABLE}
TYPES, COUNTS = 9, (1, 2, 4)


def instance_of(
    workloads: list[str], labels: tuple[str, ...] = (), types: int = TYPES, **more: Any
) -> Instance:
    """Workloads with rates in pools of so many GPU types, and jobs that name labels."""
    names = [f"g{number}" for number in range(types)]
    pools = [{"name": name, "nodes": 2, "gpus_per_node": 4} for name in names]
    rates = {
        name: {
            pool: {str(k): 1.0 + len(name) + k * row for k in COUNTS}
            for row, pool in enumerate(names, 1)
        }
        for name in workloads
    }
    jobs: list[Document] = [{"id": f"job {name}", "workload": name} for name in workloads]
    jobs += [
        {"id": f"job {name}", "workload": name, "throughput": {"g0": 1.0, "g1": 2.0}}
        for name in labels
    ]
    document = instance_document(pools, jobs, performance=ONLINE)
    return Instance.from_document(
        document | {"workloads": {n: {"throughput": r} for n, r in rates.items()}} | more
    )


def ways(instance: Instance) -> Configurations:
    pool, gpus = (
        part.ravel()
        for part in np.meshgrid(np.arange(len(instance.cluster.pools)), COUNTS, indexing="ij")
    )
    one = np.ones(len(pool))
    return Configurations(pool, gpus, one.astype(np.int64), one, np.zeros(len(pool), np.int64))


Measured = list[tuple[str, int, float]]


def seen(instance: Instance, measured: Measured) -> Observations:
    """Measurements of jobs by name, each in a row of `ways`."""
    rows = [instance.jobs_table.names.index(name) for name, _, _ in measured]
    jobs = batch_of(instance)
    return Observations(
        JobBatch(*(column[rows] for column in vars(jobs).values())),
        ways(instance),
        np.array([way for _, way, _ in measured], np.int64),
        np.array([rate for *_, rate in measured]),
    )


def bits(model: PerformanceModel, instance: Instance, names: list[str]) -> tuple[bytes, ...]:
    """What a model says of some jobs in all ways, to the last bit."""
    rows = [instance.jobs_table.names.index(name) for name in names]
    said = model.predict(batch_of(instance), ways(instance))
    return tuple(
        getattr(said, name)[rows].tobytes() for name in ("rate", "log_sd", "feasible", "source")
    )


def through_json(document: Document) -> Document:
    read: Document = json.loads(model_bytes(document))
    del read["format"]
    return read


WORKLOADS = ["a", "bb", "ccc"]
JOBS = [f"job {name}" for name in WORKLOADS]
calls = st.lists(
    st.lists(
        st.tuples(
            st.sampled_from(JOBS), st.integers(0, TYPES * len(COUNTS) - 1), st.floats(0.01, 1e3)
        ),
        min_size=1,
        max_size=6,
    ),
    max_size=6,
)
COMPOSITIONS: dict[str, Document] = {
    "online": ONLINE,
    "options": ONLINE
    | {"forget": 0.4, "clip": 1.0, "sd": {"workload": 0.0, "gpu": 0.2, "cell": 0.1}},
    "cached": {"model": "cached", "of": ONLINE},
    "chain": {
        "model": "chain",
        "models": [TABLE | {}, {"model": "chain", "models": [ONLINE, TABLE]}],
    },
    "noisy": {"model": "noisy", "of": ONLINE, "seed": 4},
    "prior": {"model": "online", "of": {"model": "prior"}},
    "after the table": {
        "model": "noisy",
        "of": {"model": "chain", "models": [{"model": "online", "of": {"model": "prior"}}, TABLE]},
    },
    "online of online": {"model": "online", "of": ONLINE | {"forget": 0.5}, "observation_sd": 0.2},
    "online of chain": {"model": "online", "of": {"model": "chain", "models": [TABLE, ONLINE]}},
}


@pytest.mark.parametrize("name", COMPOSITIONS)
@QUICK
@given(calls, calls)
def test_what_was_learnt_comes_back_to_the_last_bit(
    name: str, before: list[Measured], after: list[Measured]
) -> None:
    document = COMPOSITIONS[name]
    instance = instance_of(WORKLOADS)
    model = make_model(instance, document)
    for call in before:
        model.observe(seen(instance, call))
    written = with_learnt(model, document)
    again = make_model(instance, through_json(written))
    assert bits(again, instance, JOBS) == bits(model, instance, JOBS)
    for call in after:
        assert again.observe(seen(instance, call)) == model.observe(seen(instance, call))
        assert bits(again, instance, JOBS) == bits(model, instance, JOBS)
    assert with_learnt(again, written) == with_learnt(model, document)
    assert ("learnt" in json.dumps(written)) == bool(before)


@QUICK
@given(calls, calls, st.permutations(WORKLOADS), st.integers(1, 3))
def test_workloads_may_have_other_rows(
    before: list[Measured], after: list[Measured], order: list[str], count: int
) -> None:
    """Cells go by names: of other workloads, in another order, the same is known, whatever else there is."""
    one, other = instance_of(WORKLOADS), instance_of(["new", *order[:count]])
    there = [name for name in JOBS if name in other.jobs]
    model = make_model(one, ONLINE)
    for call in before:
        model.observe(seen(one, call))
    carried = make_model(other, with_learnt(model, ONLINE))
    assert bits(carried, other, there) == bits(model, one, there)
    for call in after:
        if mine := [entry for entry in call if entry[0] in there]:
            model.observe(seen(one, mine))
            carried.observe(seen(other, mine))
    assert bits(carried, other, there) == bits(model, one, there)
    back = make_model(
        one, with_learnt(carried, ONLINE)
    )  # what was known of those that were away is known again
    assert bits(back, one, JOBS) == bits(model, one, JOBS)
    assert with_learnt(carried, ONLINE) == with_learnt(model, ONLINE)


def test_a_model_is_carried_through_rounds() -> None:
    """Labels go with their jobs and come back with others; a snapshot in between changes nothing."""
    start = instance_of(["w"], ("x", "y"))
    measured: Measured = [("job x", 0, 3.0), ("job y", 3, 1.0), ("job w", 0, 9.0)]
    model = model_of(start)
    assert model.observe(seen(start, measured)) == {0, 1, 2}
    told = bits(model, start, ["job x"])
    kept = remembering(start, model)
    left = with_jobs(kept, np.array([2, 0]))
    assert [workload.name for workload in left.workloads] == ["w", "y"]
    left = remembering(left, model_of(left))
    for between in (left, from_npz(instance_bytes(left, "npz"))):
        new = {"id": "job x", "workload": "x", "throughput": {"g0": 1.0, "g1": 2.0}}
        back = with_jobs(between, np.arange(2), jobs_of_documents(between, [new]))
        assert [workload.name for workload in back.workloads] == ["w", "y", "x"]
        assert bits(model_of(back), back, ["job x"]) == told


def test_gpu_types_may_go_and_come_back() -> None:
    many, few = instance_of(WORKLOADS), instance_of(WORKLOADS, types=2)
    model = make_model(many, ONLINE)
    model.observe(seen(many, [("job a", 20, 5.0), ("job a", 0, 5.0)]))
    fewer = make_model(few, with_learnt(model, ONLINE))
    assert with_learnt(fewer, ONLINE) == with_learnt(model, ONLINE)
    assert bits(make_model(many, with_learnt(fewer, ONLINE)), many, JOBS) == bits(model, many, JOBS)


def test_models_that_never_learn_have_their_own_object() -> None:
    instance = instance_of(WORKLOADS)
    for document in (
        TABLE,
        {
            "model": "chain",
            "models": [TABLE, {"model": "oracle", "throughput": {"a": {"g0": 1.0}}}],
        },
        {"model": "noisy", "of": {"model": "cached", "of": TABLE}, "sd": 0.2},
        {"model": "prior"},
    ):
        model = make_model(instance, document)
        model.observe(seen(instance, [("job a", 0, 2.0)]))
        assert with_learnt(model, document) == document
    model = model_of(instance)
    assert remembering(instance, model).sha256 == instance.sha256
    model.observe(seen(instance, [("job a", 0, 2.0)]))
    assert remembering(instance, model).sha256 != instance.sha256
    assert instance.performance == ONLINE


def test_a_model_of_ones_own_may_learn_as_well() -> None:
    class Counting(TableModel):
        def with_learnt(self, document: Any) -> Document:
            return {**document, "seen": 1}

    instance = instance_of(WORKLOADS)
    model = CachedModel(instance, Counting(instance.rates, instance))
    assert with_learnt(model, {"model": "cached", "of": {"model": "counting"}})["of"]["seen"] == 1


def learnt(**lists: Any) -> Document:
    one = {
        "workload": ["a"],
        "gpu": ["g0"],
        "gpus": [1],
        "nodes": [1],
        "weight": [1.0],
        "mean": [0.1],
        "calls": [0],
    }
    return ONLINE | {"learnt": one | lists}


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (ONLINE | {"learnt": []}, "performance.learnt: found [], expected an object"),
        (learnt(of="a"), "performance.learnt.of: found an unknown key 'of'"),
        (learnt(workload="a"), 'performance.learnt.workload: found "a", expected a list'),
        (
            learnt(workload=[""]),
            'performance.learnt.workload[0]: found "", expected a non-empty text',
        ),
        (
            learnt(gpus=[2**20]),
            "performance.learnt.gpus[0]: found 1048576, expected a number below 1048576",
        ),
        (
            learnt(weight=[0.0]),
            "performance.learnt.weight[0]: found 0.0, expected a number above 0",
        ),
        (
            learnt(mean=[float("nan")]),
            "performance.learnt.mean[0]: found NaN, expected a finite number",
        ),
        (learnt(calls=[0.5]), "performance.learnt.calls[0]: found 0.5, expected a whole number"),
        (learnt(mean=[]), "performance.learnt.mean: found 0 entries, expected one per workload, 1"),
        (
            {
                "model": "online",
                "of": TABLE,
                "learnt": {name: value * 2 for name, value in learnt()["learnt"].items()},
            },
            'performance.learnt.workload[1]: found ["a", "g0", 1, 1] a second time, expected cells that differ',
        ),
        (
            {"model": "noisy", "of": learnt(nodes=[-1])},
            "performance.of.learnt.nodes[0]: found -1, expected a number",
        ),
    ],
)
def test_what_cannot_have_been_learnt_is_refused(document: Document, message: str) -> None:
    with refuses(f"{message}..."):
        make_model(instance_of(WORKLOADS), document)


def test_noise_of_jobs_without_a_workload_goes_by_what_they_state() -> None:
    """Not by the number of their profile, which changes when other jobs leave."""
    pools = [{"name": "g0", "nodes": 2, "gpus_per_node": 4}]
    jobs = [{"id": f"job {row}", "throughput": {"g0": {"1": 1.0 + row}}} for row in range(4)]
    document = instance_document(pools, jobs)
    instance = Instance.from_document(document)
    noisy = {"model": "noisy", "of": TABLE, "sd": 0.5}
    said = make_model(instance, noisy).predict(batch_of(instance), ways(instance)).rate
    assert len(set((said[:, 0] / np.arange(1, 5)).tolist())) == 4
    rows = np.array([3, 1])
    later = with_jobs(instance, rows)
    assert (make_model(later, noisy).predict(batch_of(later), ways(later)).rate == said[rows]).all()
