"""Sizes: what the compile step makes must depend on kinds and what they list, not on jobs, GPUs or nodes."""

from __future__ import annotations

import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np
import pytest
from compile_cases import ConstantModel, columns_of, compiled, document

from optsched import arrays
from optsched.candidates import Absence, Candidates, Drop, compile, expand
from optsched.instance import Instance
from optsched.performance import TableModel

pytestmark = pytest.mark.property


def from_arrays(**arrays: Any) -> Candidates:
    instance = Instance.from_arrays(**arrays)
    return compile(instance, TableModel.from_instance(instance, {}))


def calls(work: Callable[[], object]) -> int:
    """Function calls, also into C, made by some work: a loop over jobs cannot hide from it."""
    count = 0

    def profiler(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(profiler)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def lines(work: Callable[[], object]) -> Counter[str]:
    """Lines of `optsched` run by some work, by file: a loop in Python runs its lines again and again."""
    count: Counter[str] = Counter()

    def tracer(frame: FrameType, event: str, argument: object) -> Any:
        if "optsched" not in frame.f_code.co_filename:
            return None
        if event == "line":
            count[frame.f_code.co_filename] += 1
        return tracer

    sys.settrace(tracer)
    try:
        work()
    finally:
        sys.settrace(None)
    return count


def fifty_kinds(jobs: int) -> dict[str, Any]:
    kind = np.arange(jobs) % 50
    rng = np.random.default_rng(7)
    return {
        "pools": {"a": 1000, "b": 500, "c": 100},
        "throughput": (1 + np.arange(150).reshape(50, 3))[kind],
        "gpus": 1 + kind % 4,
        "weight": 1.0 + rng.integers(0, 3, jobs),
        "steps": rng.integers(0, 20, jobs).astype(float),
    }


def test_200_000_jobs_of_50_kinds() -> None:
    candidates = from_arrays(**fifty_kinds(200_000))
    assert len(candidates.kinds) == 50
    assert len(candidates.columns) == 150
    assert len(candidates.configurations) == 12
    assert len(candidates.dropped) == 0
    absent = candidates.absence == Absence.NO_STEP_LEFT
    assert absent.sum() == (candidates.instance.jobs_table.steps == 0).sum() > 0
    bare, weighted = candidates.classes(frozenset()), candidates.classes(frozenset({"weight"}))
    assert (len(bare), bare.columns) == (50, 150)
    assert (len(weighted), weighted.columns) == (150, 450)
    assert bare.count.sum() == weighted.count.sum() == 200_000 - absent.sum()
    single = candidates.per_job().classes(frozenset())
    assert len(single) == 200_000 - absent.sum()
    assert single.columns == 3 * len(single)
    assert single.throughput.nnz == single.member.nnz == single.usage.nnz == single.columns


def test_nothing_loops_over_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "BLOCK", 2**30)  # 65,536 rows at a time are no loop over jobs
    few, many = (Instance.from_arrays(**fifty_kinds(jobs)) for jobs in (2_000, 100_000))

    def work(instance: Instance) -> None:
        candidates = compile(instance, TableModel.from_instance(instance, {}))
        for view in (candidates, candidates.per_job()):
            classes = view.classes(frozenset({"weight"}))
            expand(classes, classes.limit / 4)
            expand(
                classes,
                np.where(np.arange(classes.columns) % 3 == 0, classes.count[classes.class_a], 0),
                True,
            )

    assert calls(lambda: work(many)) <= 1.05 * calls(lambda: work(few))
    small, large = lines(lambda: work(few)), lines(lambda: work(many))
    assert small
    assert all(large[file] <= 1.05 * small[file] for file in large)


def test_every_unplaced_kind_is_told_its_own_reason() -> None:
    jobs = 5_000
    gpus = 1 + np.random.default_rng(0).permutation(jobs)
    candidates = from_arrays(
        pools={"a": 1, "b": 2}, throughput=np.stack([gpus, 0 * gpus], axis=1), gpus=gpus
    )
    assert len(candidates.kinds) == jobs
    told = dict(candidates.unplaced())
    assert len(told) == jobs - 1
    for job, reason in told.items():
        if gpus[job] > 2:
            assert reason == (
                f"can run nowhere: a: needs {gpus[job]} GPUs, but only 1 is usable; "
                f"b: needs {gpus[job]} GPUs, but only 2 are usable"
            )


def test_jobs_that_are_all_different() -> None:
    jobs = 20_000
    candidates = from_arrays(pools={"a": 8}, throughput=np.arange(1.0, jobs + 1).reshape(-1, 1))
    classes = candidates.classes(frozenset())
    assert (len(classes), classes.columns) == (jobs, jobs)
    assert np.array_equal(classes.throughput.diagonal(), np.arange(1.0, jobs + 1))
    assert classes.of_job.tolist() == list(range(jobs))


def test_an_elastic_job_from_1_to_64_on_4_pools() -> None:
    pools = [
        {"name": name, "nodes": 16 // per, "gpus_per_node": per}
        for name, per in zip("abcd", (1, 2, 4, 8), strict=True)
    ]
    rates = {str(k): float(k) ** 0.5 for k in range(1, 65)}
    jobs = [{"gpus": {"min": 1, "max": 64}, "throughput": dict.fromkeys("abcd", rates)}]
    candidates = compiled(document(pools, jobs))
    columns = columns_of(candidates)
    assert {(column.pool, column.gpus, column.nodes) for column in columns} == {
        (pool, gpus, -(-gpus // per))
        for pool, per in zip("abcd", (1, 2, 4, 8), strict=True)
        for gpus in range(1, 17)
    }
    assert len(columns) == 64
    assert len(candidates.dropped) == 0  # counts above every pool are no candidates
    assert all(column.rates == (column.gpus**0.5,) for column in columns)


def test_every_spread_of_a_large_elastic_job() -> None:
    by_nodes = {
        str(k): {str(n): float(k) / n for n in range(1, min(k, 8) + 1)} for k in range(1, 65)
    }
    jobs = [{"gpus": {"min": 1, "max": 64}, "throughput": {"a": by_nodes}}]
    columns = columns_of(compiled(document([{"name": "a", "nodes": 8, "gpus_per_node": 8}], jobs)))
    assert {(column.gpus, column.nodes) for column in columns} == {
        (k, n) for k in range(1, 65) for n in range(-(-k // 8), min(k, 8) + 1)
    }


def test_forty_pools() -> None:
    pools = {f"p{row}": row for row in range(40)}
    jobs = [{"gpus": gang, "workload": "w"} for gang in (1, 2, 40)] * 3
    rates = {name: {"1": 1.0 + row, "2": 2.0 + row, "40": 9.0} for row, name in enumerate(pools)}
    candidates = compiled(document(pools, jobs, workloads={"w": {"throughput": rates}}))
    classes = candidates.classes(frozenset())
    assert classes.count.tolist() == [3, 3]
    assert classes.columns == 39 + 38
    assert Counter(candidates.dropped.drop.tolist()) == {Drop.TOO_MANY_GPUS: 1 + 2 + 40}
    assert candidates.resources.names == tuple(pools)
    assert candidates.resources.capacity.tolist() == list(range(40))


def test_an_absurd_gang() -> None:
    most = 2**31
    jobs = [
        {"gpus": most, "throughput": {"a": 5.0}},
        {"gpus": {"min": 1, "max": most}, "throughput": {"a": {"1": 1.0, str(most - 1): 9.0}}},
        {
            "gpus": {"min": most - 1, "max": most},
            "throughput": {"a": {str(most - 1): {str(most - 1): 9.0}}},
        },
        {"gpus": {"min": 1, "max": most, "levels": [most, 2, 1]}, "workload": "w"},
        {
            "options": [
                {"pool": "a", "gpus": most, "throughput": 1.0},
                {"pool": "a", "gpus": 1, "throughput": 1.0},
            ]
        },
    ]
    workloads = {"w": {"throughput": {"a": {"2": 2.0}}}}
    candidates = compiled(document({"a": 3}, jobs, workloads=workloads))
    assert {(column.jobs[0], column.gpus, column.rates[0]) for column in columns_of(candidates)} == {
        ("j1", 1, 1.0), ("j3", 2, 2.0), ("j4", 1, 1.0)
    }  # fmt: skip
    assert {
        candidates.instance.jobs_table.names[job]: reason for job, reason in candidates.unplaced()
    } == {
        "j0": "can run nowhere: a: needs 2147483648 GPUs, but only 3 are usable",
        "j2": "can run nowhere: a: needs 2147483647 GPUs, but only 3 are usable",
    }


def test_a_pool_of_a_million_nodes_is_counts_and_not_columns() -> None:
    """An elastic job there has millions of counts, but its table lists three."""
    rates = {"1": 1.0, "9": 2.0, "8000000": 3.0, "8000001": 4.0}
    jobs = [
        {"gpus": {"min": 1, "max": 2**31}, "workload": "w"},
        {"gpus": {"min": 2, "max": 2**31}, "throughput": {"a": rates}},
    ]
    pool = {"name": "a", "nodes": 10**6, "gpus_per_node": 8, "cpus_per_node": 100}
    workloads = {"w": {"throughput": {"a": rates}, "demand": {"cpu": 2}}}
    tracemalloc.start()
    try:
        candidates = compiled(document([pool], jobs, workloads=workloads))
        assert tracemalloc.get_traced_memory()[1] < 200e6
    finally:
        tracemalloc.stop()
    assert [(column.jobs[0], column.gpus, column.nodes) for column in columns_of(candidates)] == [
        ("j0", 1, 1), ("j0", 9, 2), ("j0", 8_000_000, 10**6), ("j1", 9, 2), ("j1", 8_000_000, 10**6)
    ]  # fmt: skip
    assert candidates.resources.names == ("a", "a.cpu")
    assert candidates.resources.capacity.tolist() == [8e6, 1e8]
    assert candidates.usage.toarray()[1].tolist() == [2, 18, 16e6, 0, 0]


def test_a_model_is_asked_for_every_count_of_a_range_but_no_more_than_fit() -> None:
    jobs = [{"gpus": {"min": 1, "max": 2**31}, "workload": "w"}]
    candidates = compiled(document({"a": 40, "b": 2}, jobs, workloads={"w": {}}), ConstantModel())
    assert Counter(column.pool for column in columns_of(candidates)) == {"a": 38, "b": 2}


@pytest.mark.parametrize("levels", [1, 2000])
def test_many_lists_of_levels(levels: int) -> None:
    jobs = [
        {"gpus": {"min": 1, "max": 5000, "levels": [1, 2 + row % levels]}, "workload": "w"}
        for row in range(2000)
    ]
    rates = {str(count): float(count) for count in range(1, 1 + levels)}
    candidates = compiled(
        document({"a": 4000}, jobs, workloads={"w": {"throughput": {"a": rates}}})
    )
    assert len(candidates.kinds) == levels
    assert len(candidates.columns) == 2 * levels - 1
    assert candidates.dropped.gpus.tolist() == [1 + levels]


def test_pairs_of_workloads_are_pairs_of_kinds_not_of_jobs() -> None:
    names = [f"w{row}" for row in range(20)]
    entries = [
        {"workloads": [first, second], "pool": "a", "gpus": 1, "throughput": [1.0, 2.0]}
        for row, first in enumerate(names)
        for second in names[row:]
    ]
    candidates = from_arrays(
        pools={"a": 100},
        workloads={name: {"throughput": {"a": 1.0}} for name in names},
        workload=np.arange(50_000) % 20,
        colocation=entries,
    )
    assert len(candidates.columns) == 20 + 210
    assert candidates.classes(frozenset()).columns == 20 + 210
    assert len(candidates.configurations) == 1
