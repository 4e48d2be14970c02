"""Compile: one column per pair, its rate, duration, value and uses; kinds; what is left out and why."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parameter_server_cases import REFERENCE, Case, Job, gpu_document, random_case

import optsched
from optsched import Instance
from optsched.candidates import Candidates, Drop

pytestmark = pytest.mark.property


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_columns_are_the_pairs(seed: int) -> None:
    case = random_case(seed)
    candidates = optsched.compile(case.instance())
    columns = candidates.columns
    expected = [(kind, w, p) for kind, job in enumerate(case.jobs) for w, p in job.pairs()]
    assert list(zip(columns.kind, columns.workers, columns.servers, strict=True)) == expected
    tau = np.array([case.jobs[kind].tau(w, p) for kind, w, p in expected])
    steps = np.array([case.jobs[kind].steps for kind, _, _ in expected])
    assert columns.duration == pytest.approx(tau, rel=1e-12)
    assert columns.rate == pytest.approx(steps / tau, rel=1e-12)
    assert columns.value == pytest.approx(
        [case.jobs[k].mu(x) for (k, _, _), x in zip(expected, tau, strict=True)]
    )
    use = np.array([case.jobs[kind].use(w, p) for kind, w, p in expected]).T
    assert np.allclose(candidates.usage[1:].toarray(), use)  # the first row is the pool's
    assert (columns.pool == -1).all() and (columns.gpus == 0).all()


def test_attributes_tell_workers_and_servers() -> None:
    solution = optsched.solve(REFERENCE.instance(), "smd")
    rows = {row["job"]: row["attributes"] for row in solution.allocation.to_records()}
    assert rows == {"j1": {"workers": 4, "servers": 6}, "j3": {"workers": 5, "servers": 6}}


def test_workers_hold_gpus_of_their_pool() -> None:
    candidates = optsched.compile(Instance.from_document(gpu_document()))
    columns = candidates.columns
    assert sorted(zip(columns.workers, columns.servers, strict=True)) == [
        (w, p) for w in (1, 2, 3) for p in (1, 2, 3)
    ]
    assert (columns.pool == 0).all() and (columns.gpus == 2 * columns.workers).all()
    assert columns.nodes.tolist() == [1 + (gpus > 4) for gpus in columns.gpus.tolist()]
    use = dict(zip(candidates.resources.names, candidates.usage.toarray(), strict=True))
    assert list(use) == ["fast", "plain", "fast.cpu", "plain.cpu", "licences"]
    for name, amount in (
        ("fast", 2 * columns.workers), ("plain", 0 * columns.workers), ("fast.cpu", 4 * columns.workers),
        ("plain.cpu", 3 * columns.servers), ("licences", columns.workers),
    ):  # fmt: skip
        assert use[name].tolist() == amount.tolist(), name
    assert columns.value.tolist() == [1.0] * 9  # without a value, every job is worth 1


def test_gpus_with_too_little_memory() -> None:
    document = gpu_document()
    document["workloads"]["net"]["gpu_memory"] = 20
    for formulation in ("smd", "multiple-choice", "max-throughput"):
        solution = optsched.solve(Instance.from_document(document), formulation)
        ((job, reason),) = solution.unplaced
        assert job == "a" and reason.startswith(
            "can run nowhere: fast: out of GPU memory (needs 20 GB per GPU, has 16)"
        )


def test_a_limit_without_room() -> None:
    job = REFERENCE.jobs[0]
    tight = Job(job.theta, job.worker, job.server, (6, 2.5, 40), job.steps, job.sigmoid)
    instance = Case((tight, REFERENCE.jobs[1]), REFERENCE.capacity).instance()
    words = "can run nowhere: without a pool: 1 worker and 1 server need more than there is or than its limit"
    for formulation in ("smd", "smd-tight", "multiple-choice", "max-min-fairness"):
        solution = optsched.solve(instance, formulation)
        assert solution.unplaced == (("j0", words),)
        assert optsched.verify(instance, solution.to_document()).ok


@pytest.mark.filterwarnings("error")
def test_workers_of_more_gpus_than_can_be_counted() -> None:
    document = gpu_document()
    document["workloads"]["net"]["parameters"]["parameter_server"]["worker"]["fast"] = 2**64
    solution = optsched.solve(Instance.from_document(document), "max-min-fairness")
    assert [job for job, _ in solution.unplaced] == ["a"]


def test_kinds_differ_by_steps_and_laws_only() -> None:
    document = REFERENCE.document()
    document["jobs"] = [
        {"id": "a", "workload": "law0", "steps": 10}, {"id": "b", "workload": "law0", "steps": 10},
        {"id": "c", "workload": "law0", "steps": 11}, {"id": "d", "workload": "law1", "steps": 10},
    ]  # fmt: skip
    candidates = optsched.compile(Instance.from_document(document))
    assert candidates.kinds.of_job.tolist() == [0, 0, 1, 2]
    merged = optsched.solve(candidates, "multiple-choice")
    assert merged.allocation.classes.count.tolist() == [2, 1, 1]
    single = optsched.solve(candidates, "multiple-choice", classes=False)
    assert merged.objective == pytest.approx(single.objective, rel=1e-9)
    for formulation in ("smd", "smd-tight"):
        ours, theirs = (
            optsched.solve(candidates, formulation, classes=classes) for classes in (True, False)
        )
        assert ours.objective == pytest.approx(theirs.objective, rel=1e-9)


def test_a_throughput_or_options_of_a_job_come_first() -> None:
    document = REFERENCE.document()
    document["jobs"] = [
        {"id": "own", "workload": "law0", "throughput": {"g": 2.0}},
        {
            "id": "explicit",
            "workload": "law0",
            "options": [{"uses": {"r0": 1}, "value": 3, "duration": 5}],
        },
    ]
    columns = optsched.compile(Instance.from_document(document)).columns
    assert columns.workers.tolist() == [0, 0]
    assert columns.rate.tolist() == [2.0, 0.2]


def test_steps_done_change_neither_duration_nor_value() -> None:
    document = REFERENCE.document()
    before = optsched.compile(Instance.from_document(document)).columns
    document["jobs"][0]["steps_done"] = 5
    after = optsched.compile(Instance.from_document(document)).columns
    assert (before.duration == after.duration).all() and (before.value == after.value).all()


def test_a_pair_that_shares_gpus_is_none_of_its_candidates() -> None:
    document = REFERENCE.document()
    document["colocation"] = [
        {"workloads": ["law0", "law1"], "pool": "g", "throughput": [1.0, 1.0]}
    ]
    assert (optsched.compile(Instance.from_document(document)).columns.partner == -1).all()


# --- columns that a formulation leaves out ---------------------------------------------------------------------------


def same(first: Candidates, second: Candidates) -> bool:
    return (first.usage != second.usage).nnz == 0 and all(
        np.array_equal(getattr(first.columns, name), getattr(second.columns, name), equal_nan=True)
        for name in ("kind", "workers", "servers", "rate", "value", "drop")
    )


def test_columns_left_out_are_remembered() -> None:
    candidates = optsched.compile(REFERENCE.instance())
    assert candidates.classes(frozenset()).columns == len(candidates.columns)
    reasons = np.where(candidates.columns.workers > 2, Drop.NOT_CHOSEN, Drop.KEPT).astype(np.uint8)
    fewer = candidates.without(reasons)
    assert fewer.columns.workers.max() == 2
    assert len(fewer.columns) + len(fewer.dropped) == len(candidates.columns)
    assert set(fewer.dropped.drop.tolist()) == {Drop.NOT_CHOSEN}
    assert fewer.usage.shape[1] == len(fewer.configuration) == len(fewer.columns)
    whole = np.arange(len(candidates.columns))[reasons == Drop.KEPT]
    assert (fewer.usage.toarray() == candidates.usage.toarray()[:, whole]).all()
    assert candidates.without(np.zeros(len(candidates.columns), np.uint8)) is candidates
    classes = fewer.classes(frozenset())
    assert classes.columns == len(fewer.columns)  # not those of the candidates that it came from
    admitted = fewer.admitting(Drop.NOT_CHOSEN, where=fewer.dropped.workers == 3)
    assert admitted.columns.workers.max() == 3
    assert same(candidates.admitting(Drop.ZERO_RATE), candidates)


def test_a_kind_without_a_column_has_its_reasons() -> None:
    candidates = optsched.compile(REFERENCE.instance())
    reasons = np.where(candidates.columns.kind == 1, Drop.DOMINATED, Drop.KEPT).astype(np.uint8)
    ((job, words),) = candidates.without(reasons).unplaced()
    assert job == 1
    assert words.endswith(
        "another way to run it has no smaller value and needs no more of anything"
    )
