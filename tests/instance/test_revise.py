"""An instance from round to round: what is revised is what reading the changed document would give."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from documents import instance_document
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_documents import documents
from refusals import refuses, stated

from optsched.errors import InvalidInput, UsageError

# Private names: readers and writers are checked one by one, below `Instance`
from optsched.instance import Instance, compaction, instance_bytes, jobs_of_documents, with_jobs
from optsched.instance.archive import from_npz

Document = dict[str, Any]
QUICK = settings(
    max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)


def identical(one: Instance, other: Instance) -> None:
    """Equal to the last bit, in numbering and in order, not only in what they say."""
    assert one.to_document() == other.to_document()
    for name in ("jobs_table", "rates", "options"):
        for field in fields(getattr(one, name)):
            mine, theirs = (
                getattr(getattr(instance, name), field.name) for instance in (one, other)
            )
            if isinstance(mine, np.ndarray):
                assert mine.dtype == theirs.dtype
                assert mine.tobytes() == theirs.tobytes(), (name, field.name, mine, theirs)
            elif isinstance(mine, Mapping):
                assert list(mine.items()) == list(theirs.items()), (name, field.name)
            elif field.name != "names":
                assert mine == theirs, (name, field.name)
    assert one.jobs_table.names.written() == other.jobs_table.names.written()
    assert one.workloads == other.workloads
    assert one.colocation == other.colocation
    assert one.sha256 == other.sha256


def filtered(instance: Instance, rows: list[int], more: list[Document] | None = None) -> Document:
    """The document of an instance with these jobs, and more, and nothing that names another one."""
    document = instance.to_document()
    document["jobs"] = [copy.deepcopy(document["jobs"][row]) for row in rows] + copy.deepcopy(
        more or []
    )
    there = {job["id"] for job in document["jobs"]}
    for job in document["jobs"]:
        if "after" in job:
            job["after"] = [name for name in job["after"] if name in there]
    document["colocation"] = [
        entry for entry in document["colocation"] if there >= set(entry.get("jobs", ()))
    ]
    named = {job.get("workload") for job in document["jobs"]}
    paired = {name for entry in document["colocation"] for name in entry.get("workloads", ())}
    labels = {workload.name for workload in instance.workloads if workload.label}
    document["workloads"] |= {
        w.name: {} for w in instance.workloads if w.name in (labels & paired) - named
    }
    return document


@QUICK
@given(documents(), st.data())
def test_jobs_that_stay_are_a_filtered_document(document: Document, data: st.DataObject) -> None:
    instance = Instance.from_document(document)
    count = len(instance.jobs)
    rows = data.draw(st.lists(st.sampled_from(range(count)), unique=True)) if count else []
    identical(
        with_jobs(instance, np.array(rows, np.int64)),
        Instance.from_document(filtered(instance, rows)),
    )


@QUICK
@given(documents(), st.data())
def test_jobs_that_join_are_in_a_longer_document(document: Document, data: st.DataObject) -> None:
    """Whatever leaves and whatever comes, and whether what comes is read with a path of its own or not."""
    jobs = document["jobs"]
    split = data.draw(st.integers(0, len(jobs)))
    old = {job["id"] for job in jobs[:split]}
    document["colocation"] = [
        entry for entry in document["colocation"] if old >= set(entry.get("jobs", ()))
    ]
    known = {*document["workloads"], *(job.get("workload") for job in jobs[:split])}
    document["colocation"] = [
        entry for entry in document["colocation"] if known >= set(entry.get("workloads", ()))
    ]
    instance = Instance.from_document(document | {"jobs": jobs[:split]})
    rows = data.draw(st.lists(st.sampled_from(range(split)), unique=True)) if split else []
    added = jobs_of_documents(instance, jobs[split:])
    revised = with_jobs(instance, np.array(rows, np.int64), added)
    identical(revised, Instance.from_document(filtered(instance, rows, jobs[split:])))
    assert added.jobs_table.names.written() == tuple(job["id"] for job in jobs[split:])
    assert not revised.jobs_table.awaits


@QUICK
@given(documents(), st.data())
def test_a_snapshot_is_the_same_to_the_last_bit(document: Document, data: st.DataObject) -> None:
    instance = Instance.from_document(document)
    identical(from_npz(instance_bytes(instance, "npz")), instance)
    rows = data.draw(st.permutations(range(len(instance.jobs))))
    revised = with_jobs(instance, np.array(rows[1:], np.int64))
    identical(from_npz(instance_bytes(revised, "npz")), revised)


def test_nothing_changes_where_nothing_leaves_and_nothing_comes(document: Document) -> None:
    instance = Instance.from_document(document)
    everyone = np.arange(len(instance.jobs))
    same = with_jobs(instance, everyone)
    assert same.sha256 == instance.sha256
    identical(with_jobs(instance, everyone, jobs_of_documents(instance, [])), instance)


def test_jobs_that_left_can_come_back(everything: Document) -> None:
    instance = Instance.from_document(everything)
    for row in range(4):
        back = instance.to_document()["jobs"][row]
        rest = np.delete(np.arange(4), row)
        other = with_jobs(instance, rest)
        identical(
            with_jobs(other, np.arange(3), jobs_of_documents(other, [back])),
            Instance.from_document(filtered(other, [0, 1, 2], [back])),
        )


# --- what is kept once ------------------------------------------------------------------------------------------------


def plain(jobs: list[Document], **more: Any) -> Document:
    pools = [
        {"name": "p", "nodes": 2, "gpus_per_node": 4},
        {"name": "q", "nodes": 1, "gpus_per_node": 4},
    ]
    return instance_document(pools, jobs) | more


def test_profiles_options_and_levels_of_a_job_that_joins_are_those_that_are_there() -> None:
    jobs: list[Document] = [
        {"id": "a", "throughput": {"p": 2.0, "q": 1.0}},
        {
            "id": "b",
            "options": [{"pool": "p", "gpus": 1, "throughput": 3.0, "attributes": {"x": 1}}],
        },
        {
            "id": "c",
            "gpus": {"min": 1, "max": 4, "levels": [1, 4]},
            "throughput": {"p": {"1": 1.0, "4": 3.0}},
        },
    ]
    instance = Instance.from_document(plain(jobs))
    added = jobs_of_documents(instance, [job | {"id": f"{job['id']}2"} for job in jobs])
    joined = with_jobs(instance, np.arange(3), added)
    assert (len(joined.rates), len(joined.options), joined.jobs_table.level_lists) == (
        2,
        1,
        ((1, 4),),
    )
    assert joined.jobs_table.rates.tolist() == [0, -1, 1, 0, -1, 1]
    only_new = with_jobs(instance, np.array([1]), added)
    assert only_new.jobs_table.rates.tolist() == [-1, 0, -1, 1]
    other = {
        "id": "d",
        "options": [{"pool": "p", "gpus": 1, "throughput": 3.0, "attributes": {"x": 1.0}}],
    }
    assert len(with_jobs(instance, np.arange(3), jobs_of_documents(instance, [other])).options) == 2


def test_zeros_of_either_sign_are_one_option_list() -> None:
    option = {
        "pool": "p",
        "gpus": 1,
        "throughput": 1.0,
        "uses": {"cpu": 0.0},
        "value": 0.0,
        "cost": 0.0,
    }
    signed = option | {"value": -0.0, "cost": -0.0, "uses": {"cpu": -0.0}}
    idle = option | {"throughput": -0.0}
    jobs = [{"id": f"{row}", "options": [one]} for row, one in enumerate((option, signed, idle))]
    instance = Instance.from_document(plain(jobs))
    assert instance.jobs_table.options.tolist() == [0, 0, 1]
    identical(from_npz(instance_bytes(instance, "npz")), instance)
    identical(Instance.from_document(instance.to_document()), instance)


def test_workloads_keep_their_rows_and_labels_go() -> None:
    jobs = [{"id": name, "workload": f"of {name}", "throughput": {"p": 1.0}} for name in "abc"]
    instance = Instance.from_document(
        plain(jobs, workloads={"w": {"throughput": {"p": 9.0}}, "bare": {}})
    )
    assert [w.name for w in instance.workloads] == ["w", "bare", "of a", "of b", "of c"]
    assert [w.label for w in instance.workloads] == [False, False, True, True, True]
    left = with_jobs(instance, np.array([2, 0]))
    assert [w.name for w in left.workloads] == ["w", "bare", "of c", "of a"]
    assert [left.jobs[row].workload for row in range(2)] == ["of c", "of a"]
    assert with_jobs(instance, np.array([], np.int64)).workloads == instance.workloads[:2]


def test_workloads_are_the_same_object_until_one_of_them_changes() -> None:
    """Their arrays are made once, however many rounds pass."""
    jobs = [{"id": name, "workload": "w", "steps": 1} for name in "abc"]
    workloads = {
        "v": {"throughput": {"p": 1.0}, "parameters": {"x": 1}},
        "w": {
            "throughput": {"p": 2.0},
            "demand": {"cpu": 3},
            "gpu_memory": 4,
            "restart_cost": {"p": 5},
        },
    }
    instance = Instance.from_document(plain(jobs, workloads=workloads))
    shared = instance.workloads
    assert with_jobs(instance, np.array([0, 2])).workloads is shared
    new = jobs_of_documents(instance, [{"id": "d", "workload": "v", "steps": 1}])
    assert with_jobs(instance, np.array([1]), new).workloads is shared
    labelled = jobs_of_documents(
        instance, [{"id": "d", "workload": "label", "steps": 1, "throughput": {"p": 1}}]
    )
    grown = with_jobs(instance, np.array([1]), labelled).workloads
    assert grown.label.tolist() == [False, False, True, False]
    assert shared.label.tolist() == [False, False, False]
    assert shared.rates.tolist() == [0, 1, -1]
    assert {name: need.tolist() for name, need in shared.demand.items()} == {"cpu": [0, 3, 0]}
    assert shared.gpu_memory.tolist() == [0, 4, 0]
    assert shared.with_restart_cost == (1,)
    assert shared.with_parameter("x").tolist() == [True, False, False]


def test_a_label_that_a_pair_names_becomes_a_workload() -> None:
    jobs = [{"id": name, "workload": f"of {name}", "throughput": {"p": 1.0}} for name in "ab"]
    pair = {"workloads": ["of b", "of b"], "pool": "p", "throughput": [1.0, 1.0]}
    left = with_jobs(Instance.from_document(plain(jobs, colocation=[pair])), np.array([0]))
    assert [(w.name, w.label) for w in left.workloads] == [("of b", False), ("of a", True)]
    assert left.colocation[0].workloads == (0, 0)


def test_generated_names_are_written_out_once_rows_move() -> None:
    instance = Instance.from_arrays(pools={"p": 2}, throughput=np.ones((4, 1)))
    assert with_jobs(instance, np.arange(3)).jobs_table.names.generated
    assert with_jobs(instance, np.arange(0)).jobs_table.names.generated
    for rows in ([1], [1, 0], [0, 2]):
        names = with_jobs(instance, np.array(rows)).jobs_table.names
        assert not names.generated
        assert names.written() == tuple(f"j{row}" for row in rows)
    added = jobs_of_documents(instance, [{"id": "j4", "throughput": {"p": 1.0}}])
    assert with_jobs(instance, np.arange(4), added).jobs_table.names.written() == (
        "j0",
        "j1",
        "j2",
        "j3",
        "j4",
    )


# --- predecessors -----------------------------------------------------------------------------------------------------


def test_predecessors_elsewhere_wait_until_the_jobs_join() -> None:
    instance = Instance.from_document(
        plain([{"id": name, "throughput": {"p": 1.0}} for name in "abc"])
    )
    new = [
        {"id": "d", "throughput": {"p": 1.0}, "after": ["e", "b", "a"]},
        {"id": "e", "throughput": {"p": 1.0}, "after": ["c"]},
        {"id": "f", "throughput": {"p": 1.0}, "after": ["e"]},
    ]
    added = jobs_of_documents(instance, new)
    assert added.jobs_table.after == {0: (1,), 2: (1,)}
    assert added.jobs_table.awaits == {0: ("e", "b", "a"), 1: ("c",)}
    assert [job.get("after") for job in added.to_document()["jobs"]] == [
        ["e", "b", "a"],
        ["c"],
        ["e"],
    ]
    assert with_jobs(instance, np.arange(3), added).jobs_table.after == {
        3: (4, 1, 0),
        4: (2,),
        5: (4,),
    }
    assert with_jobs(instance, np.array([2, 0]), added).jobs_table.after == {
        2: (3, 1),
        3: (0,),
        4: (3,),
    }
    assert with_jobs(instance, np.array([], np.int64), added).jobs_table.after == {0: (1,), 2: (1,)}


# --- what cannot be ---------------------------------------------------------------------------------------------------


BAD: list[tuple[Any, str]] = [
    ({}, "new: found {}, expected a list of jobs"),
    (
        [{"id": "a", "workload": "resnet"}],
        'new[0].id: found "a" a second time, expected ids that differ',
    ),
    (
        [{"id": "x", "workload": "lm"}] * 2,
        'new[1].id: found "x" a second time, expected ids that differ',
    ),
    ([{"id": "x"}], "new[0]: found no workload, throughput or options, expected one of them"),
    (
        [{"id": "x", "workload": "bert"}],
        'new[0].workload: found "bert", expected one of the workloads, or a through',
    ),
    (
        [{"id": "x", "workload": "lm", "tenant": "no"}],
        'new[0].tenant: found "no", expected one of the tenants vision',
    ),
    (
        [{"id": "x", "workload": "lm", "stps": 1}],
        "new[0].stps: found an unknown key 'stps', expected one of the format",
    ),
    (
        [{"id": "x", "workload": "lm", "steps": -1}],
        "new[0].steps: found -1, expected a number of at least 0",
    ),
    (
        [{"id": "x", "workload": "lm", "after": ["y"]}],
        'new[0].after[0]: found "y", expected the id of another job',
    ),
    ([{"id": "x", "workload": "lm", "after": ["x"]}], "new[0].after: found a cycle (x after x)"),
    (
        [{"id": "x", "throughput": {"no": 1}}],
        "new[0].throughput.no: found no pool or GPU type of the cluster",
    ),
    (
        [{"id": "x", "options": [{"pool": "no", "gpus": 1}]}],
        'new[0].options[0].pool: found "no", expected one of the',
    ),
    (
        [{"id": "x", "workload": "lm", "arrival": 5, "deadline": 4}],
        "new[0].deadline: found 4, before the arrival 5",
    ),
    (
        [{"id": "x", "workload": "lm", "gpus": {"min": 2, "max": 1}}],
        "new[0].gpus: found min 2 above max 1",
    ),
    (
        [{"id": "x", "workload": "lm", "gpus": {"min": 1, "max": 2, "levels": [3]}}],
        "new[0].gpus.levels: found [3], expected different counts from 1 to 2",
    ),
    (
        [{"id": "x", "gpus": {"min": 1, "max": 2}, "throughput": {"v100": 1}}],
        'new[0].throughput: found a plain number in an elastic job (job "x")',
    ),
    (
        [{"id": "x", "workload": "lm", "running": {"pool": "v100", "gpus": ["big/9"]}}],
        'new[0].running.gpus[0]: found "big/9", expected a GPU of pool "v100" written node/index',
    ),
    (
        [{"id": "x", "workload": "lm", "running": {"pool": "v100", "gpus": ["big/1", "big/1"]}}],
        'new[0].running.gpus: found ["big/1", "big/1"], expected each GPU once',
    ),
]


@pytest.mark.parametrize(("jobs", "message"), BAD, ids=[message[:40] for _, message in BAD])
def test_jobs_that_cannot_be_are_refused(everything: Document, jobs: Any, message: str) -> None:
    with refuses(f"{message}..."):
        jobs_of_documents(Instance.from_document(everything), jobs, "new")


@pytest.mark.parametrize(("jobs", "message"), BAD[1:], ids=[message[:40] for _, message in BAD[1:]])
def test_an_instance_document_is_refused_in_the_same_words(
    everything: Document, refusal: Callable[[object], InvalidInput], jobs: Any, message: str
) -> None:
    count = len(everything["jobs"])
    for row in (1, 0):
        message = message.replace(f"new[{row}]", f"jobs[{count + row}]")
    everything["jobs"] += jobs
    assert stated(f"{message}...").holds(refusal(everything))


def test_a_label_is_no_workload_of_jobs_without_rates() -> None:
    instance = Instance.from_document(
        plain([{"id": "a", "workload": "label", "throughput": {"p": 1.0}}])
    )
    with refuses('jobs[0].workload: found "label", expected one of the workloads...'):
        jobs_of_documents(instance, [{"id": "b", "workload": "label"}])
    added = jobs_of_documents(
        instance, [{"id": "b", "workload": "label", "throughput": {"q": 1.0}}]
    )
    assert with_jobs(instance, np.arange(1), added).jobs_table.workload.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([0, 4], "rows[1]: found 4, expected a row of the 4 jobs"),
        ([-1], "rows[0]: found -1, expected a row of the 4 jobs"),
        ([1, 2, 1], "rows[0]: found 1 a second time, expected each row once"),
        ([0.5], "rows: found an array of float64 of shape (1,), expected rows of jobs"),
        ([[0]], "rows: found an array of int64 of shape (1, 1), expected rows of jobs"),
        ([True], "rows: found an array of bool of shape (1,), expected rows of jobs"),
    ],
)
def test_rows_that_cannot_be(everything: Document, rows: Any, message: str) -> None:
    with refuses(message):
        with_jobs(Instance.from_document(everything), np.array(rows))


def test_jobs_that_do_not_match_are_refused(everything: Document) -> None:
    instance = Instance.from_document(everything)
    twin = Instance.from_document(everything)
    with refuses('added.jobs[0].id: found "a" a second time, expected ids that differ'):
        with_jobs(instance, np.arange(4), twin)
    identical(with_jobs(instance, np.zeros(0, np.int64), twin), instance)
    for change, words in (
        ({"cluster": replace(twin.cluster, pools=twin.cluster.pools[:1])}, "other pools"),
        ({"tenants": ()}, "other tenants"),
        (
            {"workloads": (replace(twin.workloads[0], gpu_memory=1.0), *twin.workloads[1:])},
            'a workload "resnet"',
        ),
    ):
        with pytest.raises(UsageError, match=words):
            with_jobs(instance, np.zeros(0, np.int64), replace(twin, **change))
    faster = copy.deepcopy(everything)
    faster["workloads"]["resnet"]["throughput"] = {"v100": 77.0}
    with pytest.raises(
        UsageError, match='a workload "resnet" of other jobs is not what this instance says of it'
    ):
        with_jobs(instance, np.zeros(0, np.int64), Instance.from_document(faster))


def test_workloads_that_only_the_other_instance_has_come_with_its_jobs() -> None:
    one = Instance.from_document(
        plain(
            [
                {"id": "a", "workload": "w"},
                {"id": "b", "workload": "label", "throughput": {"q": 5.0}},
            ],
            workloads={"w": {"throughput": {"p": 1.0}}},
        )
    )
    other = Instance.from_document(
        plain(
            [
                {"id": "c", "workload": "v"},
                {"id": "d", "workload": "label", "throughput": {"p": 1.0}},
            ],
            workloads={"v": {"throughput": {"p": 2.0}}, "w": {"throughput": {"p": 1.0}}},
        )
    )
    both = with_jobs(one, np.arange(2), other)
    assert [w.name for w in both.workloads] == ["w", "v", "label"]
    assert [both.jobs[row].workload for row in range(4)] == ["w", "label", "v", "label"]
    identical(Instance.from_document(both.to_document()), both)


def test_pairs_of_workloads_come_with_the_workloads_of_the_other_instance() -> None:
    workloads = {"w": {"throughput": {"p": 1.0}}}
    one = Instance.from_document(plain([{"id": "a", "workload": "w"}], workloads=workloads))
    pairs = [
        {"workloads": pair, "pool": "p", "gpus": 1, "throughput": [0.5, 0.6]}
        for pair in (["v", "w"], ["w", "w"], ["v", "v"])
    ]
    other = Instance.from_document(
        plain(
            [{"id": "c", "workload": "v"}],
            workloads={"v": {"throughput": {"p": 2.0}}, **workloads},
            colocation=pairs,
        )
    )
    label = {"id": "b", "workload": "label", "throughput": {"p": 5.0}}
    for kept in (one, with_jobs(one, np.arange(1), jobs_of_documents(one, [label]))):
        both = with_jobs(kept, np.arange(len(kept.jobs)), other)
        # Both instances have w: what the first one says of its pairs counts, which is nothing.
        assert both.to_document()["colocation"] == [pairs[0], pairs[2]]
        identical(Instance.from_document(both.to_document()), both)


# --- equal lists ------------------------------------------------------------------------------------------------------


def test_equal_lists_are_found_by_hashes_even_if_these_are_equal_by_chance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jobs = [{"id": f"{row}", "throughput": {"p": 1.0, "q": float(row)}} for row in range(1, 6)]
    instance = Instance.from_document(plain(jobs))
    added = jobs_of_documents(
        instance, [jobs[2] | {"id": "x"}, {"id": "y", "throughput": {"p": 1.0}}]
    )
    right = with_jobs(instance, np.arange(5), added)
    assert right.jobs_table.rates.tolist() == [0, 1, 2, 3, 4, 2, 5]
    monkeypatch.setattr(compaction, "A_FEW_ROWS", 0)
    identical(with_jobs(instance, np.arange(5), added), right)
    monkeypatch.setattr(
        compaction, "hash_lists", lambda indptr, columns: np.zeros(len(indptr) - 1, np.uint64)
    )
    identical(with_jobs(instance, np.arange(5), added), right)
