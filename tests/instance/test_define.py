"""Workloads and tenants that are defined anew: what reading the changed document would give."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from documents import instance_document
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_documents import documents
from refusals import refuses
from test_revise import identical

from optsched.errors import InvalidInput
from optsched.instance import Instance, with_jobs

# Private names: the events of rounds use them
from optsched.instance.define import with_tenants, with_workloads
from optsched.instance.documents import TenantDocument
from optsched.instance.reading import validate

Document = dict[str, Any]
QUICK = settings(
    max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)


def read(document: Document) -> Instance | None:
    try:
        return Instance.from_document(document)
    except InvalidInput:
        return None


@QUICK
@given(documents(), st.data())
def test_workloads_are_those_of_the_changed_document(
    document: Document, data: st.DataObject
) -> None:
    """New ones, others under the same name, a label that becomes a workload, and some that go."""
    instance = Instance.from_document(document)
    names = [*(one.name for one in instance.workloads), "fresh", "fresher"]
    place = instance.rates.places[0]
    kinds = st.sampled_from(
        [
            {"throughput": {place: {"1": 3.25, "2": 5.5}}},
            {"throughput": {place: {"1": 3.25}}, "gpu_memory": 4.0},
            {"demand": {"cpu": 2.0}},
            *copy.deepcopy(list(document["workloads"].values())),
        ]
    )
    defined = [one.name for one in instance.workloads if not one.label]
    new = data.draw(st.dictionaries(st.sampled_from(names), kinds, max_size=3))
    remove = data.draw(st.lists(st.sampled_from(defined), max_size=1) if defined else st.just([]))
    changed = copy.deepcopy(document)
    throughputs = changed.pop("throughputs", {})
    for name, rates in throughputs.items():
        changed["workloads"].setdefault(name, {})["throughput"] = rates
    changed["workloads"] = {
        name: one for name, one in changed["workloads"].items() if name not in remove
    } | new
    expected = read(changed)
    if expected is None:
        with pytest.raises(InvalidInput):
            with_workloads(instance, new, remove)
        return
    try:
        found = with_workloads(instance, new, remove)
    except InvalidInput as error:
        # A document may name a label in its co-location entries; a workload must be there for them.
        assert "colocation" in error.found or (remove and remove[0] in new)
        return
    identical(found, expected)


@QUICK
@given(documents(), st.data())
def test_tenants_are_those_of_the_changed_document(document: Document, data: st.DataObject) -> None:
    instance = Instance.from_document(document)
    names = [one.name for one in instance.tenants]
    new = [
        {"name": name, "weight": float(weight), "policy": policy}
        for name, weight, policy in data.draw(
            st.lists(
                st.tuples(
                    st.sampled_from([*names, "fresh", "fresher"]),
                    st.integers(1, 3),
                    st.sampled_from(["fairness", "fifo"]),
                ),
                max_size=3,
                unique_by=lambda item: item[0],
            )
        )
    ]
    remove = data.draw(st.lists(st.sampled_from(names), max_size=1) if names else st.just([]))
    parsed = [validate(TenantDocument, one) for one in new]
    by_name = {one["name"]: one for one in document.get("tenants", [])}
    kept = {name: one for name, one in by_name.items() if name not in remove}
    expected = read(
        document | {"tenants": list((kept | {one["name"]: one for one in new}).values())}
    )
    if expected is None or (remove and remove[0] in {one["name"] for one in new}):
        return
    identical(with_tenants(instance, parsed, remove), expected)


def small() -> Instance:
    return Instance.from_document(
        instance_document(
            [{"name": "v", "nodes": 1, "gpus_per_node": 4}],
            [
                {"id": "a", "workload": "S"},
                {"id": "b", "workload": "O", "throughput": {"v": 2.0}, "tenant": "red"},
                {"id": "c", "workload": "label", "throughput": {"v": 3.0}},
            ],
            workloads={name: {"throughput": {"v": 1.0}} for name in ("S", "L", "O")},
            tenants=[{"name": "red"}, {"name": "blue"}],
            colocation=[
                {"workloads": ["S", "L"], "pool": "v", "gpus": 1, "throughput": [0.5, 0.5]}
            ],
        )
    )


def test_what_cannot_go_is_refused() -> None:
    instance = small()
    with refuses('remove[0]: found workload "S", which job "a" needs, expected one that...'):
        with_workloads(instance, {}, ["S"])
    with refuses('remove[1]: found workload "L", which colocation[0] names, expected one...'):
        with_workloads(instance, {}, ["O", "L"])
    with refuses('remove[0]: found "label", expected one of the workloads S, L, O'):
        with_workloads(instance, {}, ["label"])
    with refuses('remove[1]: found "O" a second time, expected names that differ'):
        with_workloads(instance, {}, ["O", "O"])
    with refuses('remove[0]: found tenant "red", which job "b" needs, expected one that...'):
        with_tenants(instance, [], ["red"])


def test_a_workload_that_goes_is_a_label_of_jobs_with_rates() -> None:
    found = with_workloads(small(), {}, ["O"])
    assert [(one.name, one.label) for one in found.workloads] == [
        ("S", False),
        ("L", False),
        ("O", True),
        ("label", True),
    ]
    assert found.jobs["b"].workload == "O"
    alone = with_jobs(found, np.array([0, 2]))
    assert [one.name for one in alone.workloads] == ["S", "L", "label"]


def test_labels_stand_in_the_order_of_the_jobs() -> None:
    document = small().to_document()
    document["jobs"][1]["workload"], document["jobs"][2]["workload"] = "label", "O"
    found = with_workloads(Instance.from_document(document), {}, ["O"])
    del document["workloads"]["O"]
    identical(found, Instance.from_document(document))
    assert [one.name for one in found.workloads] == ["S", "L", "label", "O"]


def test_tenants_behind_one_that_goes_keep_their_jobs() -> None:
    document = small().to_document()
    document["tenants"].insert(0, {"name": "green"})
    found = with_tenants(Instance.from_document(document), [], ["green"])
    identical(found, small())


def test_only_profiles_that_differ_are_kept() -> None:
    found = with_workloads(small(), {"S": {"throughput": {"v": 2.0}}})
    assert len(found.rates) == 3 and found.jobs["b"].throughput == {"v": 2.0}
    rows = {one.name: one.rates for one in found.workloads}
    assert rows["S"] == found.jobs_table.rates[1] and rows["L"] == rows["O"]
