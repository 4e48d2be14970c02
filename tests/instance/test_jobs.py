"""`Instance.jobs`: read-only views of the rows of the job table."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from optsched.instance import Instance, Job

Document = dict[str, Any]


@pytest.fixture
def instance(everything: Document) -> Instance:
    return Instance.from_document(everything)


def test_by_name_and_by_row(instance: Instance) -> None:
    assert instance.jobs["a"] == instance.jobs[0] == instance.jobs[-4] == instance.jobs[np.int64(0)]
    assert instance.jobs["d"] == instance.jobs[-1] == instance.jobs[3]
    assert len(instance.jobs) == 4


def test_iteration(instance: Instance) -> None:
    assert [job.id for job in instance.jobs] == ["a", "b", "c", "d"]
    assert list(instance.jobs) == [instance.jobs[row] for row in range(4)]


@pytest.mark.parametrize("key", ["z", "", "A", "j0", "a ", "0"])
def test_unknown_name(instance: Instance, key: str) -> None:
    with pytest.raises(KeyError, match=repr(key)):
        instance.jobs[key]


@pytest.mark.parametrize("key", [4, -5, 10**30])
def test_unknown_row(instance: Instance, key: int) -> None:
    with pytest.raises(IndexError):
        instance.jobs[key]


@pytest.mark.parametrize("key", [1.0, None, (0,)])
def test_neither_name_nor_row(instance: Instance, key: Any) -> None:
    with pytest.raises(TypeError):
        instance.jobs[key]


def test_contains(instance: Instance) -> None:
    assert "a" in instance.jobs
    assert "z" not in instance.jobs
    assert 0 not in instance.jobs


def test_all_fields(instance: Instance) -> None:
    assert instance.jobs["a"] == Job(
        id="a",
        workload="resnet",
        gpus=(1, 1),
        steps=10000.0,
        steps_done=100.0,
        weight=1.5,
        arrival=10.0,
        deadline=5000.0,
        tenant="vision",
        throughput=None,
    )
    job = instance.jobs["b"]
    assert (job.workload, job.gpus, job.deadline, job.tenant) == ("own", (1, 8), None, None)
    assert job.throughput == {"v100": {"1": 3.0, "4": {"1": 11.0, "2": 9.0}}}
    assert instance.jobs["d"].workload is None


def test_plain_types(instance: Instance) -> None:
    for job in instance.jobs:
        assert type(job.steps) is float
        assert type(job.gpus[0]) is int
        assert type(job.id) is str


def test_read_only(instance: Instance) -> None:
    with pytest.raises(AttributeError):
        instance.jobs["a"].steps = 0  # type: ignore[misc]
    with pytest.raises(TypeError):
        instance.jobs["a"] = instance.jobs["b"]  # type: ignore[index]
    with pytest.raises(dataclasses.FrozenInstanceError):
        instance.now = 5  # type: ignore[misc]


def test_steps_left_is_never_negative(everything: Document) -> None:
    everything["jobs"][2]["steps_done"] = 30
    assert Instance.from_document(everything).jobs_table.steps_left.tolist() == [9900, 500, 0, 1]


def test_names_of_a_table(instance: Instance) -> None:
    names = instance.jobs_table.names
    assert [names.index(name) for name in "abcd"] == [0, 1, 2, 3]
    assert not names.generated
    generated = Instance.from_arrays(pools={"v100": 1}, throughput=np.ones((3, 1))).jobs_table.names
    assert generated.generated
    assert [generated[row] for row in range(len(generated))] == ["j0", "j1", "j2"]
    for row in (3, -1):
        with pytest.raises(IndexError):
            generated[row]
