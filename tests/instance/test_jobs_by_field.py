"""Jobs are read field by field; object by object they mean the same."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optsched import Instance, load
from optsched.errors import InvalidInput
from optsched.instance import reading
from optsched.instance.documents import LARGEST, SMALLEST
from optsched.instance.tables import ARRAY_FIELDS

# Private: how jobs are read, and how numbers are written where nobody sees them
from optsched.instance.write import json_numbers

JOBS: list[dict[str, Any]] = [
    {"id": "plain", "workload": "w", "steps": 5, "arrival": 2.5, "tenant": "t"},
    {"id": "rates", "workload": "label", "throughput": {"v100": 4.0, "k80": 1.5}, "gpus": 2},
    {"id": "again", "throughput": {"v100": 4.0, "k80": 1.5}, "deadline": 90.0, "weight": 2},
    {"id": "zero", "throughput": {"v100": 4, "k80": 0}, "deadline": 9, "deadline_kind": "soft"},
    {
        "id": "elastic",
        "throughput": {"v100": {"1": 2.0, "2": {"1": 3.5, "2": 3}}},
        "gpus": {"min": 1, "max": 2, "levels": [2, 1]},
        "history": {"isolated_time": 7},
        "preemptible": False,
    },
    {
        "id": "options",
        "options": [{"pool": "v100", "gpus": 1, "throughput": 2.0}, {"pool": "k80", "gpus": 2}],
        "after": ["plain"],
        "restart_cost": 30.0,
        "checkpoint_interval": "5m",
    },
    {
        "id": "runs",
        "workload": "w",
        "running": {"pool": "v100", "gpus": ["v100-0/0"], "since": 0.0},
        "exempt_time": 60.0,
        "steps_done": 1,
    },
]


def instance_of(jobs: list[dict[str, Any]]) -> Instance:
    pools = [
        {"name": name, "gpu": name, "nodes": 2, "gpus_per_node": 4} for name in ("v100", "k80")
    ]
    return load(
        {
            "format": "optsched-instance/1",
            "cluster": {"pools": pools},
            "workloads": {"w": {"throughput": {"v100": 3.0, "k80": 1.0}}},
            "tenants": [{"name": "t"}],
            "now": 100.0,
            "jobs": jobs,
        }
    )


def object_by_object(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("optsched.instance.reading.columns_of", lambda *given: None)


@pytest.mark.parametrize("count", range(1, len(JOBS) + 1))
def test_both_ways_of_reading_jobs_mean_the_same(
    monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    by_field = instance_of(JOBS[:count])
    object_by_object(monkeypatch)
    by_object = instance_of(JOBS[:count])
    assert by_field.sha256 == by_object.sha256
    assert by_field.to_document() == by_object.to_document()
    for name in ARRAY_FIELDS:
        mine, theirs = (np.asarray(getattr(one.jobs_table, name)) for one in (by_field, by_object))
        assert (mine == theirs).all() and mine.dtype == theirs.dtype, name


def test_equal_rates_are_one_profile_however_they_are_read() -> None:
    table = instance_of(JOBS).jobs_table
    assert table.rates[1] == table.rates[2] >= 0


def test_plain_jobs_are_read_field_by_field(monkeypatch: pytest.MonkeyPatch) -> None:
    read, found = reading.columns_of, []

    def seen(*given: Any) -> Any:
        found.append(read(*given))
        return found[-1]

    monkeypatch.setattr(reading, "columns_of", seen)
    instance_of(JOBS[:4])
    rates = {"v100": 4.0, "k80": 1.5}
    assert found[0]["throughput"] == [None, rates, rates, {"v100": 4.0, "k80": 0.0}]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("steps", "5"), ("steps", True), ("steps", math.nan), ("gpus", 0), ("gpus", True), ("weight", 0),
        ("throughput", {"v100": math.inf}), ("throughput", {"v100": True}), ("after", {"plain"}),
        ("id", ""), ("tenant", 3), ("preemptible", 1), ("stpes", 3), ("deadline_kind", "firm"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_the_same_words(
    monkeypatch: pytest.MonkeyPatch, field: str, value: object
) -> None:
    jobs = [*JOBS[:2], {**JOBS[2], field: value}]
    errors = []
    for way in (lambda given: None, object_by_object):
        way(monkeypatch)
        with pytest.raises(InvalidInput) as error:
            instance_of(jobs)
        errors.append(str(error.value))
    assert errors[0] == errors[1] and f"jobs[2].{field}" in errors[0]


@given(st.lists(st.just(0.0) | st.floats(SMALLEST, LARGEST), max_size=20))
def test_numbers_are_written_as_json_has_them(values: list[float]) -> None:
    assert json_numbers(np.array(values)) == [repr(value) for value in values]
    large = [max(value, 1e-4) for value in values]
    assert json_numbers(np.array(large)) == [repr(value) for value in large]
