"""Columns of plain numbers, made at once, are those that the general way makes one by one."""

from __future__ import annotations

import sys
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from documents import instance_document

import optsched
from optsched.candidates import Candidates, Drop, compile

# Private names: single steps of the compilation are compared with the whole
from optsched.candidates.plain_columns import plain_columns
from optsched.candidates.task import CompileTask
from optsched.performance import TableModel

pytestmark = pytest.mark.property

COMPILE = sys.modules[compile.__module__]  # the facade has the function under the module's name

POOLS: list[Any] = [
    {"a": 4, "b": 9, "c": 2},
    [{"name": "a", "nodes": 3, "gpus_per_node": 4}, {"name": "b", "nodes": 1, "gpus_per_node": 8}],
    [
        {"name": "a", "gpu": "V100", "nodes": 2, "gpus_per_node": 2},
        {"name": "V100", "nodes": 3, "gpus_per_node": 4},
    ],
    {"only": 5},
]


def instance(seed: int, jobs: int = 60) -> optsched.Instance:
    random = np.random.default_rng(seed)
    pools = POOLS[seed % len(POOLS)]
    rate = random.lognormal(size=(jobs, len(pools)))
    rate[random.random(rate.shape) < (0.0, 0.3, 0.9)[seed % 3]] = 0.0
    rate[random.random(jobs) < 0.1] = rate[0]
    gpus = random.choice([1, 2, 4, 8, 16], jobs) if seed % 5 else np.ones(jobs, int)
    return optsched.Instance.from_arrays(
        pools=pools, throughput=rate, gpus=gpus,
        weight=random.choice([1.0, 2.0], jobs), steps=10.0, steps_done=np.where(random.random(jobs) < 0.2, 10.0, 0.0),
    )  # fmt: skip


def table(thing: Any) -> dict[str, str]:
    return {
        field.name: repr(np.asarray(getattr(thing, field.name)).tolist()) for field in fields(thing)
    }


def made(given: optsched.Instance) -> tuple[Candidates, dict[str, Any]]:
    found = optsched.compile(given)
    dropped = found.dropped
    return found, {
        "columns": table(found.columns) | {"ways": table(found.columns.ways)},
        "dropped": {
            name: np.asarray(getattr(dropped, name)).tolist()
            for name in (
                "kind",
                "pool",
                "gpus",
                "nodes",
                "rate",
                "drop",
                "log_sd",
                "source",
                "option",
                "partner",
            )
        },
        "configurations": table(found.configurations) | {"sets": None},
        "usage": found.usage.toarray().tolist(),
        "unplaced": list(found.unplaced()),
    }


@pytest.mark.parametrize("seed", range(24))
def test_they_are_those_of_the_general_way(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    used = []

    def watched(*given: Any) -> Any:
        used.append(plain_columns(*given))
        return used[-1]

    monkeypatch.setattr(COMPILE, "plain_columns", watched)
    given = instance(seed)
    ours = made(given)[1]
    assert used and (used[0] is not None or seed % len(POOLS) == 2)
    monkeypatch.setattr(COMPILE, "plain_columns", lambda *_: None)
    assert made(given)[1] == ours


@pytest.mark.parametrize("needs", [{"gpu_memory": 20.0}, {"demand": {"cpu": 3.0}}])
def test_jobs_that_need_more_than_gpus_take_the_general_way(needs: dict[str, Any]) -> None:
    pool = {"nodes": 2, "gpus_per_node": 4, "cpus_per_node": 16, "gpu_memory": 16.0}
    given = optsched.Instance.from_arrays(
        pools=[pool | {"name": "a"}, pool | {"name": "b", "gpu_memory": 32.0}], throughput=np.ones((3, 2)), gpus=2,
        workload=[0, -1, 0], workloads={"big": needs},
    )  # fmt: skip
    found = optsched.compile(given)
    rates = TableModel(given.rates, given)
    assert rates.plain is not None
    assert plain_columns(CompileTask(given, found.kinds, rates, rates)) is None
    lost = sum(name in needs for name in ("gpu_memory",))
    assert len(found.columns) == 2 * len(found.kinds) - lost


def test_a_stated_zero_is_told_from_a_rate_that_is_not_stated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pools = [{"name": name, "nodes": 1, "gpus_per_node": 4} for name in "abc"]
    jobs = [
        {"id": "x", "steps": 1, "throughput": {"a": 0.0, "c": 3.0}},
        {"id": "y", "steps": 1, "throughput": {"b": 1}},
    ]
    given = optsched.Instance.from_document(instance_document(pools, jobs))
    found, ours = made(given)
    assert found.columns.rate.tolist() == [3.0, 1.0]
    assert found.dropped.drop.tolist() == [Drop.ZERO_RATE, Drop.NO_RATE, Drop.NO_RATE, Drop.NO_RATE]
    monkeypatch.setattr(COMPILE, "plain_columns", lambda *_: None)
    assert made(given)[1] == ours


def test_a_rate_of_a_count_is_no_plain_number() -> None:
    given = optsched.Instance.from_document(
        {
            "format": "optsched-instance/1", "cluster": {"pools": [{"name": "a", "nodes": 1, "gpus_per_node": 4}]},
            "jobs": [{"id": "x", "steps": 1, "gpus": 2, "throughput": {"a": {"2": 3.0}}}],
        }
    )  # fmt: skip
    assert TableModel(given.rates, given).plain is None
    assert optsched.compile(given).columns.rate.tolist() == [3.0]
