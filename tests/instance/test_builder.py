"""Instances that are built by calls: each piece is checked when it is added, by the rules of the format."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from documents import instance_document
from refusals import refuses

import optsched
from optsched import InstanceBuilder
from optsched.errors import InvalidArgument, UsageError

# A private name: how often the builder reads everything is counted
from optsched.instance.build import build_header


def cluster() -> InstanceBuilder:
    builder = InstanceBuilder("lab", round="6m", now=100.0)
    builder.add_pool("v100", nodes=2, gpus_per_node=4, cost_per_gpu_hour=2.5)
    builder.add_pool("k80", nodes=[{"name": "old", "gpus": 2}], cost_per_gpu_hour=0.5)
    builder.add_tenant("team", weight=2)
    builder.add_resource("licences", 3)
    builder.add_workload("bert", throughput={"v100": 5.0}, demand={"licences": 1})
    builder.add_job("a", throughput={"v100": 18.2, "k80": 2.1}, tenant="team")
    return builder


def test_a_builder_writes_the_document_that_one_would_write() -> None:
    builder = InstanceBuilder(round="6m", now=100.0)
    v100 = builder.add_pool("v100", nodes=2, gpus_per_node=4)
    k80 = builder.add_pool("k80", nodes=4, gpus_per_node=1)
    bert = builder.add_workload("bert", throughput={v100: {1: 5.0, 2: {1: 9.0, 2: 8.0}}})
    a = builder.add_job("a", steps=400_000, throughput={v100: 18.2, k80: 2.1}, deadline="2h")
    b = builder.add_job("b", workload=bert, gpus={"min": 1, "max": 2}, after=[a], arrival=50.0)
    builder.add_colocation((a, b), pool=v100, throughput=(10.0, 3.0))
    builder.add_constraint("budget", limit=12.5)
    written = instance_document(
        {"v100": (2, 4), "k80": (4, 1)},
        [
            {
                "id": "a",
                "steps": 400_000,
                "throughput": {"v100": 18.2, "k80": 2.1},
                "deadline": 100.0 + 7200.0,
            },
            {
                "id": "b",
                "workload": "bert",
                "gpus": {"min": 1, "max": 2},
                "after": ["a"],
                "arrival": 50.0,
            },
        ],
        round=360.0,
        now=100.0,
        workloads={"bert": {"throughput": {"v100": {"1": 5.0, "2": {"1": 9.0, "2": 8.0}}}}},
        colocation=[{"jobs": ["a", "b"], "pool": "v100", "throughput": [10.0, 3.0]}],
        constraints=[{"kind": "budget", "limit": 12.5}],
    )
    assert builder.instance().sha256 == optsched.Instance.from_document(written).sha256
    # Handles are text: the document can be written as it is.
    assert (
        optsched.load(json.loads(json.dumps(builder.to_document()))).sha256
        == builder.instance().sha256
    )


def test_an_instance_is_not_changed_by_what_is_added_later() -> None:
    builder = cluster()
    before = builder.instance()
    builder.add_job("b", workload="bert")
    assert len(before.jobs) == 1 and len(builder.instance().jobs) == 2
    assert repr(builder) == "<InstanceBuilder of lab: 2 jobs, 2 pools>"


def test_pieces_before_the_first_pool_are_checked_by_themselves() -> None:
    builder = InstanceBuilder()
    builder.add_tenant("team")
    with refuses("weight: found 0, expected a number above 0", InvalidArgument):
        builder.add_tenant("other", weight=0)
    with refuses("pools: found none, expected a call of add_pool before this one", InvalidArgument):
        builder.add_job("a", throughput={"v100": 1.0})
    with refuses("cluster.pools: found [], expected at least 1 entry"):
        builder.instance()
    for add in (
        lambda: builder.add_resource("licences", 1, pool="x"),
        lambda: builder.add_workload("bert", throughput={"x": 1.0}),
    ):
        with refuses(
            "pools: found none, expected a call of add_pool before this one", InvalidArgument
        ):
            add()
    builder.add_pool("v100", nodes=1, gpus_per_node=1)
    builder.add_job("a", throughput={"v100": 1.0}, tenant="team")
    assert optsched.solve(builder.instance()).ok


RATE = {"v100": 1.0}
WRONG: list[tuple[Callable[[InstanceBuilder], Any], str]] = [
    (
        lambda b: b.add_pool("v100", nodes=1, gpus_per_node=1),
        'name: found "v100" a second time, expected names that differ',
    ),
    (
        lambda b: b.add_pool("x", nodes=1),
        "gpus_per_node: found nothing, expected the GPUs of each node, as nodes is a count",
    ),
    (
        lambda b: b.add_pool("x", nodes=-1, gpus_per_node=1),
        "nodes: found -1, expected a number of at least 0",
    ),
    (
        lambda b: b.add_pool("", nodes=1, gpus_per_node=1),
        'name: found "", expected a non-empty text',
    ),
    (
        lambda b: b.add_resource("licences", 1),
        'name: found "licences" a second time, expected names that differ',
    ),
    (
        lambda b: b.add_resource("r", 1, pool="x"),
        'pool: found "x", expected one of the pools v100, k80',
    ),
    (
        lambda b: b.add_tenant("team"),
        'name: found "team" a second time, expected names that differ',
    ),
    (
        lambda b: b.add_workload("bert"),
        'name: found "bert" a second time, expected names that differ',
    ),
    (lambda b: b.add_workload(""), 'name: found "", expected text that is not empty'),
    (
        lambda b: b.add_workload("w", demand={"x": 1}),
        "demand.x: found an unknown resource, expected one of cpu, memory, licences",
    ),
    (
        lambda b: b.add_workload("w", throughput={"x": 1.0}),
        "throughput.x: found no pool or GPU type of the cluster, expected one of v100, k80",
    ),
    (
        lambda b: b.add_job("a", throughput=RATE),
        'id: found "a" a second time, expected ids that differ',
    ),
    (
        lambda b: b.add_job("b"),
        "throughput: found no workload, throughput or options, expected one of them",
    ),
    (
        lambda b: b.add_job("b", throughput={"x": 1.0}),
        "throughput.x: found no pool or GPU type of the cluster, expected one of v100, k80",
    ),
    (
        lambda b: b.add_job("b", throughput={"v100": -1.0}),
        "throughput.v100: found -1.0, expected a finite rate in steps/s, at least 0",
    ),
    (
        lambda b: b.add_job("b", throughput=RATE, deadline="2 weeks"),
        "deadline: found '2 weeks', expected seconds or a duration such as 90s, 5m, 2h or 1d",
    ),
    (
        lambda b: b.add_job("b", throughput=RATE, deadline=-5.0),
        'deadline: found -5, before the arrival 0 (job "b"), expected a deadline not before the arrival',
    ),
    (
        lambda b: b.add_job("b", throughput=RATE, gpus={"min": 1, "max": 2}),
        'throughput: found a plain number in an elastic job (job "b"), expected rates by GPU count such as {"1": 9}',
    ),
    (
        lambda b: b.add_job("b", throughput=RATE, tenant="x"),
        'tenant: found "x", expected one of the tenants team',
    ),
    (
        lambda b: b.add_job("b", throughput=RATE, after=["x"]),
        'after[0]: found "x", expected the id of a job that was added before',
    ),
    (
        lambda b: b.add_job("b", throughput=RATE, running={"pool": "k80", "gpus": ["old/2"]}),
        'running.gpus[0]: found "old/2", expected a GPU of pool "k80" written node/index',
    ),
    (
        lambda b: b.add_colocation(("a", "x"), pool="v100", throughput=(1.0, 1.0)),
        'pair[0]: found "a", expected the name of a workload',
    ),
    (
        lambda b: b.add_colocation(("bert", "bert"), pool="x", throughput=(1.0, 1.0)),
        'pool: found "x", expected one of the pools v100, k80',
    ),
]


@pytest.mark.parametrize(("add", "refusal"), WRONG, ids=[text for _, text in WRONG])
def test_a_wrong_piece_is_refused_and_nothing_is_added(
    add: Callable[[InstanceBuilder], Any], refusal: str
) -> None:
    builder = cluster()
    before = builder.instance().sha256
    with refuses(refusal, InvalidArgument):
        add(builder)
    assert builder.instance().sha256 == before


def test_a_pair_is_stated_once() -> None:
    builder = cluster()
    b = builder.add_job("b", throughput=RATE)
    builder.add_colocation(("a", b), pool="v100", throughput=(1.0, 1.0))
    twice = "pair: found a second entry for the same pair, pool, gpus and nodes, expected one entry"
    with refuses(twice, InvalidArgument):
        builder.add_colocation((b, "a"), pool="v100", throughput=(2.0, 2.0))


@pytest.mark.parametrize(
    ("kind", "options"), [("budgets", {"limit": 3}), ("budget", {"limits": 3}), ("budget", {})]
)
def test_a_wrong_constraint_is_refused(kind: str, options: dict[str, Any]) -> None:
    builder = cluster()
    with pytest.raises(UsageError):
        builder.add_constraint(kind, **options)
    assert builder.to_document()["constraints"] == []


def test_a_constraint_takes_numbers_of_any_kind() -> None:
    builder = cluster()
    builder.add_constraint("budget", limit=np.int64(12))
    (constraint,) = builder.instance().constraints
    assert constraint["limit"] == 12


@pytest.mark.parametrize(
    ("given", "refusal"),
    [
        (
            {"round": "x"},
            "round: found 'x', expected seconds or a duration such as 90s, 5m, 2h or 1d",
        ),
        ({"name": ""}, 'name: found "", expected a non-empty text'),
        ({"now": "a"}, 'now: found "a", expected a number'),
        ({"performance": {}}, "performance.model: found nothing, expected this key"),
    ],
)
def test_a_wrong_header_is_refused(given: dict[str, Any], refusal: str) -> None:
    with refuses(refusal, InvalidArgument):
        InstanceBuilder(**given)


@pytest.mark.parametrize(
    ("add", "path"),
    [
        (lambda b: b.add_job([], throughput=RATE), "id"),
        (lambda b: b.add_job("b", throughput=RATE, after=3), "after"),
        (lambda b: b.add_job("b", throughput=RATE, after="a"), "after"),
        (lambda b: b.add_job("b", throughput=RATE, after=[[]]), "after[0]"),
        (lambda b: b.add_job("b", throughput=RATE, after=(name for name in ["x"])), "after[0]"),
        (lambda b: b.add_job("b", throughput=RATE, restart_cost=10**400), "restart_cost"),
        (lambda b: b.add_job("b", throughput=RATE, isolated_time=-5), "isolated_time"),
        (lambda b: b.add_job("b", throughput=RATE, steps=np.array([1, 2])), "steps"),
        (lambda b: b.add_colocation(3, pool="v100", throughput=(1.0, 1.0)), "pair"),
        (lambda b: b.add_colocation(("a", "a"), pool="v100", throughput=3), "throughput"),
    ],
)
def test_a_value_of_another_type_is_refused_by_name(
    add: Callable[[InstanceBuilder], Any], path: str
) -> None:
    builder = cluster()
    before = builder.instance().sha256
    with pytest.raises(InvalidArgument) as error:
        add(builder)
    assert error.value.path == path
    assert builder.instance().sha256 == before


def test_numbers_of_any_kind_are_numbers_and_documents_are_copies() -> None:
    builder = cluster()
    builder.add_job("c", throughput=RATE, steps=Fraction(7, 2), weight=Decimal(2))
    builder.add_job("d", throughput=RATE, steps=np.array(7.0), after=np.array(["c"]))
    builder.add_job("b", throughput={"v100": np.float64(2.0)}, gpus=np.int64(2), steps=np.int64(7))
    document = builder.to_document()
    document["cluster"]["pools"].append({"name": "x"})
    assert optsched.load(json.loads(json.dumps(builder.to_document()))).jobs["b"].gpus == (2, 2)


def test_what_is_added_is_checked_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that was added before is not checked again with each call."""
    checked: list[int] = []

    def counted(document: Mapping[str, Any]) -> Any:
        checked.append(sum(len(document[part]) for part in ("workloads", "tenants", "colocation")))
        return build_header(document)

    monkeypatch.setattr("optsched.instance.builder.build_header", counted)
    builder = InstanceBuilder()
    pool = builder.add_pool("p", nodes=1, gpus_per_node=4)
    for number in range(20):
        workload = builder.add_workload(f"w{number}", throughput={pool: 1.0 + number})
        tenant = builder.add_tenant(f"t{number}", weight=1.0 + number)
        builder.add_job(f"j{number}", workload=workload, tenant=tenant)
        builder.add_colocation((workload, workload), pool=pool, throughput=(1.0, 0.5))
    assert len(checked) <= 3 and sum(checked) == 0
    instance = builder.instance()
    assert len(instance.workloads) == len(instance.colocation) == 20
    assert [tenant.weight for tenant in instance.tenants] == [1.0 + number for number in range(20)]
    with refuses('name: found "t7" a second time, expected names that differ', InvalidArgument):
        builder.add_tenant("t7")
    builder.add_pool("q", nodes=1, gpus_per_node=4)  # which rates may name from now on
    again = builder.add_workload("both", throughput={pool: 1.0, "q": 2.0})
    builder.add_job("last", workload=again)
    assert [job.workload for job in builder.instance().jobs][-2:] == ["w19", "both"]
    with refuses("throughput...", InvalidArgument):
        builder.add_workload("wrong", throughput={"r": 1.0})
    assert "wrong" not in builder.to_document()["workloads"]
