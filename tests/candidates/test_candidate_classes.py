"""Kinds and classes: which jobs are merged, and that merging leaves the program the same."""

from __future__ import annotations

import gc
import weakref
from collections import Counter
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from compile_cases import columns_of, compiled, document, random_candidates, random_document
from refusals import refuses

import optsched
from optsched.candidates import Absence, Candidates, Classes

# Private names: single steps of the compilation are compared with the whole
from optsched.candidates.classes import READABLE

pytestmark = pytest.mark.property

READS = (
    frozenset[str](),
    frozenset({"weight"}),
    frozenset({"weight", "steps_left", "gang", "arrival"}),
)


def classes_of(jobs: list[dict[str, Any]], *reads: str, **more: Any) -> Classes:
    workloads = {"w": {"throughput": {"a": {"1": 1.0, "2": 1.5, "3": 2.0}, "b": {"1": 3.0}}}}
    made = document(
        {"a": 4, "b": 2}, jobs, **({"workloads": workloads, "tenants": [{"name": "t"}]} | more)
    )
    return compiled(made).classes(frozenset(reads))


def same_class(first: dict[str, Any], second: dict[str, Any], *reads: str) -> bool:
    """Whether two jobs of the workload ``w`` that differ in this end in one class."""
    classes = classes_of([{"workload": "w"} | first, {"workload": "w"} | second], *reads)
    assert (classes.of_job >= 0).all()
    return len(classes) == 1


# --- merging -------------------------------------------------------------------------------------------------------


def test_equal_jobs_are_one_class_and_classes_come_in_order_of_first_appearance() -> None:
    a, b, c = {"throughput": {"a": 1.0}}, {"throughput": {"a": 2.0}}, {"throughput": {"b": 1.0}}
    classes = classes_of([b, a, b, c, a, b])
    assert classes.of_job.tolist() == [0, 1, 0, 2, 1, 0]
    assert classes.first.tolist() == [0, 1, 3]
    assert classes.count.tolist() == [3, 2, 1]
    assert [classes.jobs_of(number).tolist() for number in range(3)] == [[0, 2, 5], [1, 4], [3]]
    assert len(classes) == 3
    assert classes.columns == 3
    assert [classes.job_name(number) for number in range(3)] == [
        "job j0 (and 2 like it)", "job j1 (and 1 like it)", "job j3"
    ]  # fmt: skip


DIFFERENCES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "weight": ({}, {"weight": 2}),
    "steps": ({"steps": 20, "steps_done": 5}, {"steps": 15}),
    "steps_left": ({"steps": 20}, {"steps": 20, "steps_done": 5}),
    "arrival": ({}, {"arrival": -5}),
    "deadline": ({}, {"deadline": 1e6}),
    "soft_deadline": ({"deadline": 9.0}, {"deadline": 9.0, "deadline_kind": "soft"}),
    "tenant": ({}, {"tenant": "t"}),
    "preemptible": ({}, {"preemptible": False}),
    "restart_cost": ({}, {"restart_cost": 30}),
    "isolated_time": ({}, {"history": {"isolated_time": 60}}),
}
"""Two jobs that differ in one readable array and in no other."""


def test_every_readable_array_is_tried() -> None:
    assert set(DIFFERENCES) | {"queue"} == set(READABLE)


def test_jobs_of_a_queue_are_classes_of_their_own_only_where_the_queue_is_read() -> None:
    jobs = [
        {"throughput": {"a": 1.0}, "tenant": name}
        for name in ("first", "first", "shared", "shared")
    ]
    tenants = [{"name": "first", "policy": "fifo"}, {"name": "shared"}]
    made = compiled(document({"a": 4}, jobs, tenants=tenants))
    assert made.classes(frozenset({"tenant"})).of_job.tolist() == [0, 0, 1, 1]
    classes = made.classes(frozenset({"tenant", "queue"}))
    assert classes.of_job.tolist() == [0, 1, 2, 2]
    assert classes.queue.tolist() == [1, 2, 0]


@pytest.mark.parametrize("name", DIFFERENCES)
def test_a_difference_splits_a_class_only_where_it_is_read(name: str) -> None:
    first, second = DIFFERENCES[name]
    assert same_class(first, second)
    assert same_class(first, second, *set(READABLE) - {name}, "gang")
    assert not same_class(first, second, name)
    assert not same_class(first, second, *READABLE, "gang")
    assert same_class(first, first, *READABLE, "gang")


def test_one_bit_of_a_read_array_tells_jobs_apart() -> None:
    assert not same_class({"weight": 1.0}, {"weight": float(np.nextafter(1.0, 2.0))}, "weight")
    assert same_class({"arrival": 0.0}, {"arrival": -0.0}, "arrival")


def test_rates_that_differ_by_one_bit_stay_apart() -> None:
    up = float(np.nextafter(1.1, 2.0))
    classes = classes_of([{"throughput": {"a": rate}} for rate in (1.1, up, 1.1, up)])
    assert classes.of_job.tolist() == [0, 1, 0, 1]
    assert sorted(classes.throughput.data) == [1.1, up]
    options = [
        {"options": [{"pool": "a", "gpus": 1, "throughput": rate}]} for rate in (1.1, up, 1.1)
    ]
    assert classes_of(options).of_job.tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"gpus": 1}, {"gpus": 2}),
        ({"gpus": 2}, {"gpus": {"min": 2, "max": 3}}),
        ({"gpus": {"min": 1, "max": 3}}, {"gpus": {"min": 1, "max": 3, "levels": [1, 3]}}),
        (
            {"gpus": {"min": 1, "max": 3, "levels": [1, 2]}},
            {"gpus": {"min": 1, "max": 3, "levels": [1, 3]}},
        ),
        ({}, {"throughput": {"a": 1.0, "b": 2.5}}),
        ({}, {"options": [{"pool": "a", "gpus": 1, "throughput": 1.0}]}),
    ],
)
def test_jobs_with_different_columns_are_different_kinds(
    first: dict[str, Any], second: dict[str, Any]
) -> None:
    assert not same_class(first, second)


def test_a_gang_is_the_same_as_a_range_of_one_count() -> None:
    assert same_class({"gpus": 2}, {"gpus": {"min": 2, "max": 2}})


def test_the_order_of_levels_does_not_matter() -> None:
    assert same_class(
        {"gpus": {"min": 1, "max": 3, "levels": [3, 1]}},
        {"gpus": {"min": 1, "max": 3, "levels": [1, 3]}},
    )


def test_steps_split_kinds_only_where_they_make_a_rate() -> None:
    def options(**option: Any) -> dict[str, Any]:
        return {
            "options": [
                {"pool": "b", "gpus": 1, "throughput": 5.0},
                {"pool": "a", "gpus": 1} | option,
            ]
        }

    assert same_class(
        {"steps": 10} | options(throughput=2.0), {"steps": 20} | options(throughput=2.0)
    )
    stated = options(throughput=2.0, duration=5.0)
    assert same_class({"steps": 10} | stated, {"steps": 20} | stated)
    implied = classes_of([{"steps": steps} | options(duration=5.0) for steps in (10, 20, 10)])
    assert implied.of_job.tolist() == [0, 1, 0]
    assert implied.throughput.toarray().tolist() == [[2.0, 5.0, 0, 0], [0, 0, 4.0, 5.0]]


def test_jobs_that_a_colocation_entry_names_stand_for_themselves() -> None:
    jobs = [{"workload": "w"}] * 4
    entry = {"jobs": ["j1", "j3"], "pool": "a", "gpus": 1, "throughput": [1, 2]}
    assert classes_of(jobs, colocation=[entry]).of_job.tolist() == [0, 1, 0, 2]


def test_the_same_table_means_something_else_as_a_jobs_own() -> None:
    """A plain number is the rate at the job's own gang, but of a workload the rate on 1 GPU."""
    workloads = {"w": {"throughput": {"a": 5.0}}}
    jobs = [{"workload": "w", "gpus": 2} | own for own in ({}, workloads["w"], workloads["w"])]
    candidates = compiled(document({"a": 2}, jobs, workloads=workloads))
    assert candidates.kinds.of_job.tolist() == [0, 1, 1]
    assert [column.jobs for column in columns_of(candidates)] == [("j1",), ("j2",)]


def test_jobs_of_different_workloads_stay_apart_even_with_equal_rates() -> None:
    rates = {"throughput": {"a": 1.0}}
    workloads = {"w": rates, "v": rates | {"demand": {"cpu": 1}}}
    assert len(classes_of([{"workload": "w"}, {"workload": "v"}], workloads=workloads)) == 2


# --- reading -------------------------------------------------------------------------------------------------------


def test_declared_arrays_are_read_one_value_per_class() -> None:
    job = {
        "workload": "w",
        "weight": 2,
        "steps": 9,
        "steps_done": 1,
        "deadline": 50,
        "tenant": "t",
        "arrival": -1,
    }
    jobs = [
        job,
        {"workload": "w", "weight": 3, "deadline": 60, "deadline_kind": "soft"},
        job,
    ]
    reads = ("weight", "steps_left", "deadline", "soft_deadline", "tenant", "arrival")
    classes = classes_of(jobs, *reads)
    assert [getattr(classes, name).tolist() for name in reads] == [
        [2, 3], [8, 1], [50, 60], [False, True], [0, -1], [-1, 0]
    ]  # fmt: skip


@pytest.mark.parametrize(
    "name", ["weight", "steps_left", "deadline", "soft_deadline", "tenant", "arrival"]
)
def test_reading_what_is_not_declared_raises(name: str) -> None:
    classes = classes_of([{"workload": "w"}], *(other for other in READABLE if other != name))
    with pytest.raises(KeyError, match=f"'{name}' is read but not declared"):
        getattr(classes, name)
    with pytest.raises(KeyError, match=r"classes=False\) or compile\(instance\)\.per_job\(\)"):
        getattr(classes, name)


def test_everything_can_be_read_where_every_job_is_a_class() -> None:
    jobs = [
        {"workload": "w", "tenant": "t"},
        {"workload": "w", "weight": 3},
        {"workload": "w", "tenant": "t"},
    ]
    classes = classes_of(jobs).candidates.per_job().classes(frozenset())
    assert classes.tenant.tolist() == [0, -1, 0] and classes.weight.tolist() == [1, 3, 1]


def test_the_gang_can_always_be_read_and_is_the_smallest_count() -> None:
    jobs = [
        {"workload": "w", "gpus": gpus}
        for gpus in (2, {"min": 1, "max": 3}, {"min": 1, "max": 3, "levels": [3, 2]})
    ]
    assert classes_of(jobs).gang.tolist() == [2, 1, 2]
    assert classes_of(jobs, "gang").gang.tolist() == [2, 1, 2]


def test_an_unknown_array_is_refused_by_name() -> None:
    with pytest.raises(KeyError, match="no such job array: colour"):
        classes_of([{"workload": "w"}], "colour", "weight")


# --- pairs ---------------------------------------------------------------------------------------------------------


def pair_workloads(
    *names: str, rates: tuple[float, float] = (1.0, 2.0), **more: Any
) -> dict[str, Any]:
    return {"workloads": list(names), "pool": "a", "gpus": 1, "throughput": list(rates)} | more


def test_a_class_is_paired_with_itself_only_if_it_has_two_jobs() -> None:
    one = classes_of([{"workload": "w"}], colocation=[pair_workloads("w", "w")])
    assert (one.class_b < 0).all()
    two = classes_of([{"workload": "w"}] * 2, colocation=[pair_workloads("w", "w")])
    pair = np.flatnonzero(two.class_a == two.class_b)
    assert len(pair) == 1
    assert two.member.toarray()[0, pair] == [2]
    assert two.throughput.toarray()[0, pair] == [3.0]  # both together
    assert two.usage.toarray()[0, pair] == [1.0]  # the GPU counts once
    split = classes_of(
        [{"workload": "w"}, {"workload": "w", "weight": 2}, {"workload": "w"}],
        "weight",
        colocation=[pair_workloads("w", "w")],
    )
    pairs = set(zip(split.class_a.tolist(), split.class_b.tolist(), strict=True))
    assert pairs == {(0, -1), (1, -1), (0, 0), (0, 1)}


def test_a_job_that_could_only_be_paired_with_itself_is_unplaced() -> None:
    workloads = {"w": {"throughput": {"b": 1.0}}}
    jobs = [{"workload": "w"}]
    entry = pair_workloads("w", "w")
    made = document(
        [
            {"name": "a", "nodes": 1, "gpus_per_node": 1},
            {"name": "b", "nodes": 0, "gpus_per_node": 1},
        ],
        jobs,
    )
    alone = compiled(made | {"workloads": workloads, "colocation": [entry]})
    assert alone.absence.tolist() == [Absence.NO_COLUMN]
    assert len(alone.classes(frozenset())) == 0
    together = compiled(
        made
        | {
            "workloads": workloads,
            "colocation": [entry],
            "jobs": [*made["jobs"], {"id": "k", "workload": "w"}],
        }
    )
    assert together.absence.tolist() == [Absence.PRESENT] * 2
    assert together.classes(frozenset()).member.toarray().tolist() == [[2.0]]


def test_rates_of_a_pair_follow_their_classes_whatever_the_order() -> None:
    """Classes of two kinds interleave: in some pairs the first class is of the second kind."""
    workloads = {"w": {"throughput": {"a": 1.0}}, "v": {"throughput": {"a": 1.0}}}
    jobs = [{"workload": name, "weight": weight} for weight in (1, 2) for name in ("w", "v")]
    classes = classes_of(
        jobs,
        "weight",
        workloads=workloads,
        colocation=[pair_workloads("w", "v", rates=(10.0, 20.0))],
    )
    pair = np.flatnonzero(classes.class_b >= 0)
    assert len(pair) == 4
    for number in pair:
        column = classes.throughput[:, [number]].toarray().ravel()
        for member in (classes.class_a[number], classes.class_b[number]):
            workload = jobs[classes.first[member]]["workload"]
            assert column[member] == {"w": 10.0, "v": 20.0}[workload]
        assert classes.rate_a[number] == column[classes.class_a[number]]
        assert classes.rate_b[number] == column[classes.class_b[number]]
        assert classes.class_a[number] < classes.class_b[number]
    assert (classes.class_a[pair] == 1).any()  # class 1 is of workload v


def test_two_jobs_of_one_workload_get_the_mean_but_named_jobs_their_own() -> None:
    workload = classes_of(
        [{"workload": "w"}, {"workload": "w", "gpus": {"min": 1, "max": 2}}],
        colocation=[pair_workloads("w", "w", rates=(1.0, 4.0))],
    )
    (pair,) = np.flatnonzero(workload.class_b >= 0)
    assert (workload.rate_a[pair], workload.rate_b[pair]) == (2.5, 2.5)
    entry = {"jobs": ["j1", "j0"], "pool": "a", "gpus": 1, "throughput": [1.0, 4.0]}
    named = classes_of([{"workload": "w"}] * 2, colocation=[entry, pair_workloads("w", "w")])
    (pair,) = np.flatnonzero(named.class_b >= 0)
    assert (named.rate_a[pair], named.rate_b[pair]) == (4.0, 1.0)


def test_an_entry_that_states_its_nodes_wins_over_one_that_does_not() -> None:
    loose, exact = pair_workloads("w", "v"), pair_workloads("v", "w", nodes=1, rates=(7.0, 5.0))
    workloads = {name: {"throughput": {"a": 1.0}} for name in "wv"}
    for colocation in ([loose, exact], [exact, loose]):
        classes = classes_of(
            [{"workload": "w"}, {"workload": "v"}], workloads=workloads, colocation=colocation
        )
        (pair,) = np.flatnonzero(classes.class_b >= 0)
        assert (classes.rate_a[pair], classes.rate_b[pair]) == (5.0, 7.0)


def test_the_limit_of_a_column_is_the_most_that_time_allows() -> None:
    workloads = {"w": {"throughput": {"a": 1.0}}, "v": {"throughput": {"a": 1.0}}}
    jobs = [{"workload": name} for name in "wwwwwvvv"]
    entries = [pair_workloads(*names) for names in ("ww", "wv")]
    classes = classes_of(jobs, workloads=workloads, colocation=entries)
    limits = dict(
        zip(zip(classes.class_a, classes.class_b, strict=True), classes.limit, strict=True)
    )
    assert limits == {(0, -1): 5, (1, -1): 3, (0, 0): 2.5, (0, 1): 3}
    for number in range(classes.columns):
        x = np.zeros(classes.columns)
        x[number] = classes.limit[number]
        use = classes.member @ x
        assert (use <= classes.count).all()
        assert (use == classes.count).any()


# --- the same program ----------------------------------------------------------------------------------------------


def both(
    candidates: Candidates, reads: frozenset[str]
) -> tuple[Classes, Classes, sp.csr_matrix, sp.csr_matrix]:
    """(by class, by job, sums of rows, sums of columns): the matrices that add up members of classes."""
    merged, single = candidates.classes(reads), candidates.per_job().classes(reads)
    rows = sp.csr_matrix(
        (np.ones(len(single)), (merged.of_job[single.first], np.arange(len(single)))),
        shape=(len(merged), len(single)),
    )
    number = {}
    for column in range(merged.columns):
        key = (
            int(merged.kind_column[column]),
            int(merged.class_a[column]),
            int(merged.class_b[column]),
        )
        assert key not in number
        number[key] = column
    where = []
    for column in range(single.columns):
        owners = [int(merged.of_job[single.first[single.class_a[column]]])]
        if single.class_b[column] >= 0:
            owners.append(int(merged.of_job[single.first[single.class_b[column]]]))
        low, high = min(owners), max(owners) if len(owners) == 2 else -1
        where.append(number[int(single.kind_column[column]), low, high])
    assert set(where) == set(range(merged.columns))
    columns = sp.csr_matrix(
        (np.ones(single.columns), (where, np.arange(single.columns))),
        shape=(merged.columns, single.columns),
    )
    return merged, single, rows, columns


@pytest.mark.parametrize("seed", range(50))
def test_classes_describe_the_same_polyhedron_as_jobs(seed: int) -> None:
    """What any x by job gives in sum is what its sum by class gives."""
    candidates = random_candidates(seed)
    for reads in READS:
        merged, single, rows, columns = both(candidates, reads)
        assert np.array_equal(rows @ single.count, merged.count)
        x = np.random.default_rng(seed).random(single.columns)
        for name in ("throughput", "member"):
            by_job, by_class = getattr(single, name), getattr(merged, name)
            np.testing.assert_allclose(
                rows @ (by_job @ x), by_class @ (columns @ x), rtol=1e-12, atol=1e-12
            )
        np.testing.assert_allclose(
            single.usage @ x, merged.usage @ (columns @ x), rtol=1e-12, atol=1e-12
        )


@pytest.mark.parametrize("seed", range(50))
def test_jobs_of_a_class_have_equal_columns_and_equal_reads(seed: int) -> None:
    candidates = random_candidates(seed)
    table, names = candidates.instance.jobs_table, candidates.instance.jobs_table.names
    mine: dict[str, Counter[Any]] = {}
    for column in columns_of(candidates):
        if len(column.jobs) == 1:
            mine.setdefault(column.jobs[0], Counter())[column._replace(jobs=())] += 1
    for reads in READS:
        classes = candidates.classes(reads)
        assert (classes.of_job >= 0).tolist() == (candidates.absence == Absence.PRESENT).tolist()
        assert classes.first.tolist() == sorted(classes.first.tolist())
        assert classes.count.sum() == (classes.of_job >= 0).sum()
        for number in range(len(classes)):
            jobs = classes.jobs_of(number)
            assert jobs[0] == classes.first[number]
            assert len(jobs) == classes.count[number]
            assert jobs.tolist() == np.flatnonzero(classes.of_job == number).tolist()
            for job in jobs:
                assert mine.get(names[job]) == mine.get(names[jobs[0]])
                for name in reads - {"gang"}:
                    array = getattr(table, name)
                    assert array[job] == array[jobs[0]]


@pytest.mark.parametrize("seed", range(50))
def test_jobs_that_say_the_same_are_one_class(seed: int) -> None:
    made = random_document(seed)
    candidates = compiled(made)
    named = {name for entry in made["colocation"] for name in entry.get("jobs", ())}
    seen: dict[str, int] = {}
    classes = candidates.classes(frozenset(READABLE))
    for row, job in enumerate(made["jobs"]):
        if job["id"] in named or classes.of_job[row] < 0:
            continue
        said = repr(sorted((key, value) for key, value in job.items() if key != "id"))
        assert seen.setdefault(said, int(classes.of_job[row])) == classes.of_job[row]


@pytest.mark.parametrize("seed", range(50))
def test_matrices_have_the_shapes_and_entries_that_the_class_says(seed: int) -> None:
    candidates = random_candidates(seed)
    for reads in READS:
        classes = candidates.classes(reads)
        shape = (len(classes), classes.columns)
        assert classes.throughput.shape == classes.member.shape == shape
        assert classes.usage.shape == (len(classes.resources), classes.columns)
        member, throughput = np.zeros(shape), np.zeros(shape)
        for column in range(classes.columns):
            a, b = classes.class_a[column], classes.class_b[column]
            member[a, column] += 1
            throughput[a, column] += classes.rate_a[column]
            if b >= 0:
                assert a <= b
                assert a < b or classes.count[a] > 1
                member[b, column] += 1
                throughput[b, column] += classes.rate_b[column]
            else:
                assert classes.rate_b[column] == 0
        assert np.array_equal(classes.member.toarray(), member)
        assert np.array_equal(classes.throughput.toarray(), throughput)
        assert np.array_equal(
            classes.usage.toarray(), candidates.usage.toarray()[:, classes.kind_column]
        )
        assert np.array_equal(classes.configuration, candidates.configuration[classes.kind_column])
        assert np.array_equal(classes.pool, candidates.columns.pool[classes.kind_column])
        assert np.array_equal(classes.gpus, candidates.columns.gpus[classes.kind_column])
        assert np.array_equal(classes.alone, classes.class_b < 0)
        assert (
            np.diff(classes.alone.astype(int)) <= 0
        ).all()  # columns without a partner first, class by class
        assert (np.diff(classes.class_a[classes.alone]) >= 0).all()
        assert classes.capacity is candidates.resources.capacity


def test_columns_of_a_kind_are_sorted_by_gpus_before_nodes() -> None:
    rates = {"2": {"1": 1.0, "2": 2.0}, "3": {"1": 3.0, "2": 4.0}}
    jobs = [{"gpus": {"min": 2, "max": 3}, "throughput": {"a": rates}}]
    columns = compiled(document([{"name": "a", "nodes": 2, "gpus_per_node": 4}], jobs)).columns
    assert columns.gpus.tolist() == [2, 2, 3, 3]
    assert columns.nodes.tolist() == [1, 2, 1, 2]


@pytest.mark.parametrize("seed", range(50))
def test_columns_of_kinds_are_sorted_and_name_their_configurations(seed: int) -> None:
    candidates = random_candidates(seed)
    columns, table = candidates.columns, candidates.configurations
    names = ("kind", "partner", "pool", "gpus", "nodes", "option")
    keys = list(zip(*(getattr(columns, name).tolist() for name in names), strict=True))
    assert keys == sorted(keys)
    assert len(set(keys)) == len(keys)
    assert (columns.drop == 0).all()
    for name in ("pool", "gpus", "nodes", "share"):
        assert np.array_equal(
            getattr(table, name)[candidates.configuration], getattr(columns, name)
        )
    rows = list(
        zip(table.pool, table.gpus, table.nodes, table.share, table.attributes, strict=True)
    )
    assert len(set(rows)) == len(table) == len(set(candidates.configuration.tolist()))
    said = candidates.instance.options.attributes
    for column, configuration in enumerate(candidates.configuration):
        option = columns.option[column]
        expected = said[option] if option >= 0 else {}
        assert table.attribute_sets[table.attributes[configuration]] == expected
    assert table.attribute_sets[0] == {}
    for name in ("rate", "partner_rate", "log_sd", "value", "cost", "share"):
        assert np.isfinite(getattr(columns, name)).all()


def test_pairs_of_too_many_different_jobs_are_refused_before_they_are_made() -> None:
    builder = optsched.InstanceBuilder()
    pool = builder.add_pool("p", nodes=10, gpus_per_node=8)
    for name in "ab":
        builder.add_workload(name, throughput={pool: 1.0})
    builder.add_colocation(("a", "a"), pool=pool, throughput=(0.6, 0.6))
    builder.add_colocation(("a", "b"), pool=pool, throughput=(0.6, 0.7))
    document = builder.to_document()
    document["jobs"] = [
        {"id": f"j{number}", "workload": "ab"[number % 2], "steps": 1000 + number}
        for number in range(10_000)
    ]
    instance = optsched.Instance.from_document(document)
    # 5,000 jobs of a: 12.5 million pairs of them, and 25 million of one of a and one of b.
    with refuses(
        "colocation: found 10,000 different jobs, which make about 37,500,000 columns of two jobs"
    ):
        optsched.solve(instance, "makespan")
    assert optsched.solve(instance, "max-throughput").status == "optimal"  # two classes of jobs

    # Where each job has rates of its own, even the pairs of kinds are too many.
    for number, job in enumerate(document["jobs"]):
        job["throughput"] = {"p": 1.0 + number / 10_000}
    instance = optsched.Instance.from_document(document)
    with refuses("colocation: found entries of workloads for 37,500,000 pairs of different jobs"):
        optsched.solve(instance, "max-throughput")


def test_an_answer_is_freed_at_once() -> None:
    """No circle of references holds the arrays of an answer until the collector comes."""
    gc.collect()
    gc.disable()
    try:
        instance = optsched.load("@quickstart")
        solutions = [optsched.solve(instance), optsched.solve(instance)]
        columns = weakref.ref(solutions[0].candidates.columns)
        del instance, solutions
        assert columns() is None
    finally:
        gc.enable()
