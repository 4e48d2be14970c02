"""`Instance.from_arrays`: the same instances as from documents, and every wrong array named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from documents import instance_document
from refusals import refuses, stated

from optsched.arrays import AnyArray
from optsched.errors import InvalidInput
from optsched.instance import Instance, instance_bytes

POOLS = {"v100": 8, "k80": 4}
RATES = np.array([[40.2, 8.1], [3.0, 0.0], [40.2, 8.1]])

Read = Callable[[bytes, str], Instance]


def three_jobs(**more: Any) -> Instance:
    return Instance.from_arrays(**{"pools": POOLS, "throughput": RATES} | more)


def document_of_three_jobs(jobs: list[dict[str, Any]] | None = None, **more: Any) -> dict[str, Any]:
    jobs = jobs or [{}, {}, {}]
    rates = [{"v100": 40.2, "k80": 8.1}, {"v100": 3.0}, {"v100": 40.2, "k80": 8.1}]
    return (
        instance_document(
            [{"name": name, "nodes": count, "gpus_per_node": 1} for name, count in POOLS.items()],
            [
                {"id": f"j{row}", "throughput": rate} | job
                for row, (job, rate) in enumerate(zip(jobs, rates, strict=True))
            ],
            name="arrays",
        )
        | more
    )


def same(one: Instance, other: Instance) -> None:
    assert one.to_document() == other.to_document()
    assert one.sha256 == other.sha256


def test_least(read_bytes: Read) -> None:
    instance = three_jobs()
    same(instance, Instance.from_document(document_of_three_jobs()))
    assert instance.jobs_table.rates.tolist() == [0, 1, 0]
    for kind in ("json", "yaml", "npz"):
        same(read_bytes(instance_bytes(instance, kind), f".{kind}"), instance)


def test_every_array(read_bytes: Read) -> None:
    columns: dict[str, list[Any]] = {
        "gpus": [1, 2, 8],
        "steps": [10.0, 0.0, 1e9],
        "steps_done": [1.0, 0.0, 0.5],
        "weight": [1.0, 0.25, 3.0],
        "arrival": [0.0, -5.0, 100.0],
        "deadline": [np.inf, 0.0, 500.0],
        "restart_cost": [0.0, 30.0, 0.0],
        "preemptible": [True, False, True],
    }
    jobs = [{name: values[row] for name, values in columns.items()} for row in range(3)]
    del jobs[0]["deadline"]
    jobs[2] |= {
        "deadline_kind": "soft",
        "tenant": "speech",
        "workload": "lm",
        "history": {"isolated_time": 60},
    }
    jobs[0] |= {"tenant": "vision"}
    header: dict[str, Any] = {
        "now": 50.0,
        "round": 60.0,
        "name": "every",
        "workloads": {
            "resnet": {"throughput": {"v100": 1}},
            "lm": {"demand": {"cpu": 2, "licence": 1}},
        },
        "tenants": [{"name": "vision", "weight": 2}, {"name": "speech", "policy": "fifo"}],
        "colocation": [{"jobs": ["j0", "x"], "pool": "v100", "gpus": 1, "throughput": [1, 2]}],
        "constraints": [{"kind": "budget", "limit": 3}],
        "performance": {"model": "table", "source": "measured"},
    }
    header["colocation"] = [
        {"workloads": ["resnet", "lm"], "pool": "v100", "gpus": 1, "throughput": [1, 2]}
    ]
    resources = [{"name": "licence", "capacity": 3}]
    instance = three_jobs(
        **columns,
        **header,
        workload=[-1, -1, 1],
        tenant=[0, -1, 1],
        soft_deadline=[True, False, True],  # of no deadline: does not count
        isolated_time=[0, 0, 60],
        resources=resources,
        ids=["a", "b", "c"],
    )
    document = document_of_three_jobs(jobs, **header)
    document["cluster"]["resources"] = resources
    for job, name in zip(document["jobs"], "abc", strict=True):
        job["id"] = name
    same(instance, Instance.from_document(document))
    for kind in ("json", "yaml", "npz"):
        same(read_bytes(instance_bytes(instance, kind), f".{kind}"), instance)


def test_workloads_only() -> None:
    instance = Instance.from_arrays(
        pools=POOLS,
        workloads={"lm": {"throughput": {"v100": 1}}, "resnet": {"throughput": {"k80": 2}}},
        workload=[1, 0, 1],
    )
    assert [job.workload for job in instance.jobs] == ["resnet", "lm", "resnet"]
    assert instance.jobs_table.rates.tolist() == [-1, -1, -1]


def test_rates_of_jobs_follow_those_of_workloads() -> None:
    instance = three_jobs(workloads={"lm": {"throughput": {"k80": 7}}}, workload=[0, 0, 0])
    assert instance.workloads[0].rates == 0
    assert [job.throughput for job in instance.jobs] == [
        {"v100": 40.2, "k80": 8.1},
        {"v100": 3.0},
        {"v100": 40.2, "k80": 8.1},
    ]


@pytest.mark.parametrize(("workload", "jobs"), [([0, 1], 2), (0, 3)])
def test_numbers_stand_for_all_jobs(workload: Any, jobs: int) -> None:
    instance = Instance.from_arrays(
        pools=POOLS,
        workloads={"lm": {}, "resnet": {}},
        workload=workload,
        steps=7,
        ids=None,
        gpus=[2] * jobs,
        weight=2,
    )
    assert instance.jobs_table.steps.tolist() == [7.0] * jobs
    assert instance.jobs_table.weight.tolist() == [2.0] * jobs
    assert instance.jobs_table.gpus_max.tolist() == [2] * jobs


def test_count_from_ids() -> None:
    instance = Instance.from_arrays(pools=POOLS, workloads={"lm": {}}, workload=0, ids=("x", "y"))
    assert [job.id for job in instance.jobs] == ["x", "y"]


def test_no_jobs() -> None:
    instance = Instance.from_arrays(pools=POOLS, throughput=np.zeros((0, 2)))
    assert len(instance.jobs) == 0
    same(instance, Instance.from_document(document_of_three_jobs() | {"jobs": []}))


def test_pools_as_documents() -> None:
    pools = (
        {"name": "v100", "nodes": 2, "gpus_per_node": 4},
        {"name": "k80", "nodes": [{"name": "old", "gpus": 4}]},
    )
    instance = three_jobs(pools=pools)
    assert instance.cluster.gpus(0).tolist() == [8, 4]
    same(
        instance,
        Instance.from_document(document_of_three_jobs() | {"cluster": {"pools": list(pools)}}),
    )


def test_zero_hides_the_rate_of_the_gpu_type() -> None:
    """Pool "big" has the GPUs of pool "v100": a rate under "v100" is one for both, unless "big" has its own, if 0."""
    pools = [
        {"name": "v100", "nodes": 1, "gpus_per_node": 1},
        {"name": "big", "gpu": "v100", "nodes": 1, "gpus_per_node": 1},
        {"name": "k80", "nodes": 1, "gpus_per_node": 1},
    ]
    instance = Instance.from_arrays(
        pools=pools, throughput=[[5.0, 0.0, 0.0], [0.0, 0.0, 2.0], [0.0, 0.0, 0.0]]
    )
    assert [job.throughput for job in instance.jobs] == [
        {"v100": 5.0, "big": 0.0},
        {"big": 0.0, "k80": 2.0},
        {"big": 0.0},
    ]


def test_arrays_of_the_caller_stay_the_callers() -> None:
    given: dict[str, AnyArray] = {
        "steps": np.ones(3),
        "gpus": np.ones(3, int),
        "preemptible": np.ones(3, bool),
    }
    given["throughput"] = RATES.copy()
    instance = three_jobs(**given)
    before = instance.to_document()
    for array in given.values():
        assert array.flags.writeable
        array[:] = 0
    assert instance.to_document() == before


@pytest.mark.parametrize(
    "steps",
    [
        [1, 2, 3],
        (1.0, 2.0, 3.0),
        np.array([1, 2, 3], "u1"),
        np.array([1, 2, 3], ">f4"),
        np.arange(1, 7)[::2] // 2 + 1,
    ],
)
def test_any_numbers_will_do(steps: Any) -> None:
    assert three_jobs(steps=steps).jobs_table.steps.tolist() == [1.0, 2.0, 3.0]


def test_generated_names() -> None:
    jobs = three_jobs().jobs
    assert [job.id for job in jobs] == ["j0", "j1", "j2"]
    assert jobs["j2"].id == "j2"
    for name in ("j3", "j02", "j-1", "j 1", "j", "", "J1", "1", "j١", "j" + "9" * 5000, "j²"):
        with pytest.raises(KeyError):
            jobs[name]
        assert name not in jobs


def test_generated_names_in_colocation() -> None:
    entry = {"jobs": ["j0", "j2"], "pool": "v100", "throughput": [1, 2]}
    assert three_jobs(colocation=[entry]).colocation[0].jobs == (0, 2)
    for name in ("j3", "j" + "9" * 5000):
        with refuses("colocation[0].jobs[1]"):
            three_jobs(colocation=[entry | {"jobs": ["j0", name]}])


def test_numpy_texts_as_ids(read_bytes: Read) -> None:
    instance = three_jobs(ids=np.array(["a", "b", "c"]))
    for kind in ("json", "yaml", "npz"):
        same(read_bytes(instance_bytes(instance, kind), f".{kind}"), instance)


def refused(**arrays: Any) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        three_jobs(**arrays)
    for one in caught.value.one_by_one():
        assert len(str(one)) < 300 and str(one).isprintable()
    return caught.value


FLOATS = ("steps", "steps_done", "weight", "arrival", "deadline", "restart_cost", "isolated_time")
WHOLE = ("gpus", "workload", "tenant")
FLAGS = ("soft_deadline", "preemptible")
WORDS = (
    dict.fromkeys(FLOATS, "numbers")
    | dict.fromkeys(WHOLE, "whole numbers")
    | dict.fromkeys(FLAGS, "true or false")
)


@pytest.mark.parametrize("name", WORDS)
def test_shapes(name: str) -> None:
    for shape in ((2,), (4,), (1,), (0,), (3, 1), (1, 3), (3, 3)):
        array: AnyArray = np.ones(shape, bool if name in FLAGS else int)
        assert stated(
            f"{name}: found an array of shape {shape}, expected one number or shape (3,)"
        ).holds(refused(**{name: array}))


@pytest.mark.parametrize("name", WORDS)
def test_types(name: str) -> None:
    values = [
        ["a", "b", "c"],
        [None] * 3,
        [1j] * 3,
        np.zeros(3, "M8[s]"),
        np.zeros(3, "m8[s]"),
        np.zeros(3, "V4"),
    ]
    values += (
        [[{}] * 3, "x"] if name in ("arrival", "workload", "tenant") else [[{}] * 3, "x", None]
    )  # None: not given
    for value in values:
        error = refused(**{name: value})
        assert stated(f"{name}: found an array of ...").holds(error)
        assert error.expected == WORDS[name]


@pytest.mark.parametrize("name", WORDS)
def test_booleans_and_numbers_are_told_apart(name: str) -> None:
    wrong: list[Any] = (
        [[1, 0, 1], [1.0, 0.0, 1.0]] if name in FLAGS else [[True, False, True], True]
    )
    wrong += [[1.0, 2.0, 3.0], 1.5] if name in WHOLE else []
    for value in wrong:
        assert stated(f"{name}: found an array of ...").holds(refused(**{name: value}))


@pytest.mark.parametrize("name", [*WORDS, "throughput"])
def test_ragged(name: str) -> None:
    for value in ([[1], [2, 3], 4], [[1, 2], [3]]):
        assert stated(f"{name}: found rows of different lengths, expected an array").holds(
            refused(**{name: value})
        )


VALUES = [  # (array, bad value, message after the name)
    *[(name, np.nan, "found nan", "a finite number") for name in FLOATS if name != "deadline"],
    *[(name, np.inf, "found inf", "a finite number") for name in FLOATS if name != "deadline"],
    *[(name, -1.0, "found -1.0", "a number of at least 0") for name in FLOATS[:2] + FLOATS[5:]],
    ("weight", 0.0, "found 0.0", "a number above 0"),
    ("weight", -1.0, "found -1.0", "a number above 0"),
    ("arrival", -np.inf, "found -inf", "a finite number"),
    ("deadline", np.nan, "found nan", "a number, or inf for none"),
    ("deadline", -np.inf, "found -inf", "a number, or inf for none"),
    ("gpus", 0, "found 0", "a whole number of GPUs, at least 1"),
    ("gpus", -4, "found -4", "a whole number of GPUs, at least 1"),
    ("gpus", 2**32, f"found {2**32}", "a whole number of GPUs, at least 1"),
    ("workload", 1, "found 1", "a row below 1, or -1 for none"),
    ("workload", -2, "found -2", "a row below 1, or -1 for none"),
    ("tenant", 2, "found 2", "a row below 2, or -1 for none"),
    ("tenant", -2, "found -2", "a row below 2, or -1 for none"),
]


@pytest.mark.parametrize(("name", "value", "found", "expected"), VALUES)
def test_values(name: str, value: float, found: str, expected: str) -> None:
    for row in (0, 2):
        array = np.full(3, 0 if name in ("workload", "tenant") else 1, type(value))
        array[row:] = value
        error = refused(
            **{name: array}, workloads={"lm": {}}, tenants=[{"name": "x"}, {"name": "y"}]
        )
        assert stated(f'{name}[{row}]: {found} (job "j{row}"), expected {expected}').holds(error)


def test_numbers_beyond_64_bits() -> None:
    for name in WHOLE:
        error = refused(**{name: np.array([1, 2**64 - 1, 1], np.uint64)})
        assert stated(f"{name}: found {2**64 - 1}, expected whole numbers below 2^63").holds(error)
        assert stated(f"{name}: found an array of object, expected whole numbers").holds(
            refused(**{name: [10**30] * 3})
        )
    assert stated("steps: found an array of object, expected numbers").holds(
        refused(steps=[10**30, 1, 1])
    )


def test_deadline_before_arrival() -> None:
    error = refused(arrival=[0, 0, 10], deadline=[0, 5, 9.5])
    assert stated('jobs[2].deadline: found 9.5, before the arrival 10 (job "j2")...').holds(error)


MATRICES: list[tuple[Any, str]] = [
    ([1.0, 2.0, 3.0], "throughput: found an array of shape (3,), expected shape (jobs, pools)"),
    (1.0, "throughput: found an array of shape (), expected shape (jobs, pools)"),
    (
        np.ones((3, 2, 1)),
        "throughput: found an array of shape (3, 2, 1), expected shape (jobs, pools)",
    ),
    (np.ones((3, 1)), "throughput: found 1 columns, expected one per pool, 2"),
    (np.ones((3, 3)), "throughput: found 3 columns, expected one per pool, 2"),
    (np.ones((3, 0)), "throughput: found 0 columns, expected one per pool, 2"),
    (np.ones((3, 2), bool), "throughput: found an array of bool, expected numbers"),
    (np.ones((3, 2), complex), "throughput: found an array of complex128, expected numbers"),
    (np.ones((3, 2), object), "throughput: found an array of object, expected numbers"),
    ([["1", "2"]] * 3, "throughput: found an array of <U1, expected numbers"),
    (
        [[1, 2], [3, np.nan], [-1, 2]],
        "throughput[1, 1]: found nan, expected a finite rate in steps/s, at least 0",
    ),
    (
        [[1, 2], [3, 4], [-1, 2]],
        "throughput[2, 0]: found -1, expected a finite rate in steps/s, at least 0",
    ),
    (
        [[np.inf, 2], [3, 4], [1, 2]],
        "throughput[0, 0]: found inf, expected a finite rate in steps/s, at least 0",
    ),
]


@pytest.mark.parametrize(("matrix", "message"), MATRICES)
def test_matrices(matrix: Any, message: str) -> None:
    assert stated(message).holds(refused(throughput=matrix))


IDS: list[tuple[Any, str]] = [
    (["a", "b"], "ids: found 2 ids, expected one per job, 3"),
    (["a", "b", "c", "d"], "ids: found 4 ids, expected one per job, 3"),
    ([], "ids: found 0 ids, expected one per job, 3"),
    (["a", "b", "a"], 'ids[2]: found "a" a second time, expected ids that differ'),
    (["a", "", "c"], 'ids[1]: found "", expected a non-empty text'),
    (["a", 1, "c"], "ids[1]: found 1, expected a non-empty text"),
    (["a", None, "c"], "ids[1]: found null, expected a non-empty text"),
    (["a", ["b"], "c"], 'ids[1]: found ["b"], expected a non-empty text'),
    (["a", "\ud800", "c"], 'ids[1]: found "\\ud800", expected a non-empty text'),
    (np.arange(3), "ids[0]: found np.int64(0), expected a non-empty text"),
    ("abc", 'ids: found "abc", expected a sequence of texts'),
    (3, "ids: found 3, expected a sequence of texts"),
]


@pytest.mark.parametrize(("ids", "message"), IDS)
def test_ids(ids: Any, message: str) -> None:
    assert stated(message).holds(refused(ids=ids))


HEADERS: list[tuple[str, Any, str]] = [
    ("pools", {}, "cluster.pools: found [], expected at least 1 entry"),
    (
        "pools",
        {"v100": 1.5, "k80": 1},
        "cluster.pools[0].nodes: found 1.5, expected a whole number",
    ),
    (
        "pools",
        {"v100": -1, "k80": 1},
        "cluster.pools[0].nodes: found -1, expected a number of at least 0",
    ),
    ("pools", {1: 1, "k80": 1}, "cluster.pools[0].name: found 1, expected text"),
    ("pools", "ab", 'cluster.pools: found "ab", expected a list'),
    ("pools", [1, 2], "cluster.pools[0]: found 1, expected an object"),
    ("pools", None, "cluster.pools: found null, expected a list"),
    (
        "pools",
        [{"name": "a", "nodes": 1}] * 2,
        "cluster.pools[0].gpus_per_node: found nothing, expected the GPUs of",
    ),
    ("workloads", 5, "workloads: found 5, expected an object"),
    (
        "workloads",
        {"lm": {"throughput": {"t4": 1}}},
        "workloads.lm.throughput.t4: found no pool or GPU type",
    ),
    ("tenants", 5, "tenants: found 5, expected a list"),
    (
        "tenants",
        [{"name": "a"}, {"name": "a"}],
        'tenants[1].name: found "a" a second time, expected names that differ',
    ),
    ("resources", {"a": 1}, 'cluster.resources: found {"a": 1}, expected a list'),
    ("colocation", "x", 'colocation: found "x", expected a list'),
    ("constraints", [5], "constraints[0]: found 5, expected an object"),
    ("performance", "table", 'performance: found "table", expected an object'),
    ("performance", {}, "performance.model: found nothing, expected this key"),
    ("name", 5, "name: found 5, expected text"),
    ("now", "noon", 'now: found "noon", expected a number'),
    ("now", None, "now: found null, expected a number"),
    ("now", np.nan, "now: found NaN, expected a finite number"),
    ("round", 0, "round: found 0, expected a number above 0"),
]


@pytest.mark.parametrize(("name", "value", "message"), HEADERS)
def test_header(name: str, value: Any, message: str) -> None:
    assert stated(f"{message}...").holds(refused(**{name: value}))


def test_nothing_over_jobs() -> None:
    assert stated("throughput: found nothing, expected at least one array over jobs").holds(
        refused(throughput=None)
    )


def test_jobs_without_any_rate() -> None:
    expected = "jobs[0]: found no workload, throughput or options, expected one of them"
    assert stated(expected).holds(refused(throughput=None, steps=[1, 2, 3]))
    error = refused(throughput=None, workload=[0, -1, 0], workloads={"lm": {}})
    assert stated(expected.replace("[0]", "[1]")).holds(error)


def test_arrival_of_a_negative_clock() -> None:
    assert three_jobs(now=-50).jobs_table.arrival.tolist() == [-50.0] * 3
    assert three_jobs(now=50).jobs_table.arrival.tolist() == [0.0] * 3
