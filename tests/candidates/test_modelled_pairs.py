"""Columns of pairs that a performance model makes, against a loop over all pairs of jobs."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from documents import instance_document
from refusals import refuses

import optsched
import optsched.candidates.modelled_pairs
from optsched.arrays import IntArray
from optsched.assembly import make_model
from optsched.instance import Instance
from optsched.performance import (
    Configurations,
    Feasibility,
    JobBatch,
    PairPrediction,
    PerformanceModel,
)
from optsched.performance.composed import CachedModel, Chain, OnlineModel, colocating

pytestmark = pytest.mark.property

POOLS = [
    {"name": "p", "nodes": 2, "gpus_per_node": 2, "gpu_memory": 16},
    {"name": "q", "nodes": 1, "gpus_per_node": 4, "gpu_memory": 80},
]


class Slowed:
    """Rates of the table; two workloads slow each other down by a number of their own."""

    name, version, per_workload = "slowed", 0, False

    def __init__(self, instance: Instance) -> None:
        self.table = make_model(instance, {"model": "table"})
        rng = np.random.default_rng(0)
        self.part = rng.uniform(0.3, 1.0, (10, 10, 2))

    def predict(self, *given: Any, **more: Any) -> Any:
        return self.table.predict(*given, **more)

    def observe(self, observations: Any) -> set[int]:
        return set()

    def pair_fractions(
        self,
        jobs: JobBatch,
        configurations: Configurations,
        first: IntArray,
        second: IntArray,
        configuration: IntArray,
    ) -> PairPrediction:
        a, b, pool = jobs.workload[first], jobs.workload[second], configurations.pool[configuration]
        known = (a != 3) & (b != 3)
        left, right = (np.where(known, self.part[x, y, pool], 0.0) for x, y in ((a, b), (b, a)))
        feasible = np.where(known, Feasibility.OK, Feasibility.NO_RATE).astype(np.uint8)
        return PairPrediction(
            left, right, np.full(len(a), 0.1), feasible, np.full(len(a), 3, np.uint8)
        )


def instance_of(**more: Any) -> Instance:
    rng = np.random.default_rng(1)
    workloads = {
        f"w{row}": {
            "throughput": {
                "p": {"1": float(rng.uniform(1, 5)), "2": float(rng.uniform(5, 9))},
                **({} if row == 2 else {"q": {"1": float(rng.uniform(1, 5))}}),
            },
            "gpu_memory": 9 if row == 1 else 5,
        }
        for row in range(4)
    }
    jobs = [
        {
            "id": f"j{row}",
            "workload": f"w{row % 4}",
            "gpus": 2 if row == 6 else 1,
            "steps": 10 + row,
        }
        for row in range(9)
    ]
    return Instance.from_document(instance_document(POOLS, jobs, workloads=workloads) | more)


def columns(
    instance: Instance, model: PerformanceModel | None
) -> dict[tuple[Any, ...], tuple[float, float]]:
    """Columns of pairs of jobs: (names, pool, GPUs) -> rates."""
    found = {}
    candidates = optsched.compile(instance, model=model).per_job()
    C = candidates.classes(frozenset())
    names = instance.jobs_table.names
    for row in np.flatnonzero(C.class_b >= 0):
        a, b = (names[C.first[k]] for k in (C.class_a[row], C.class_b[row]))
        rates = (float(C.rate_a[row]), float(C.rate_b[row]))
        key = (min(a, b), max(a, b), int(C.pool[row]), int(C.gpus[row]))
        found[key] = rates if a < b else rates[::-1]
    return found


def test_all_pairs_that_gain_are_there_and_no_others() -> None:
    instance = instance_of()
    model = Slowed(instance)
    table, workloads = instance.jobs_table, instance.workloads
    expected = {}
    for i, j in combinations(range(len(table)), 2):
        a, b = int(table.workload[i]), int(table.workload[j])
        for pool in (0, 1):
            gpus = int(table.gpus_min[i])
            rates = [
                instance.rates.document(workloads[w].rates).get("pq"[pool], {}).get(str(gpus))
                for w in (a, b)
            ]
            if table.gpus_min[j] != gpus or None in rates or 3 in (a, b):
                continue
            if workloads[a].gpu_memory + workloads[b].gpu_memory > POOLS[pool]["gpu_memory"]:
                continue
            parts = model.part[a, b, pool], model.part[b, a, pool]
            if sum(parts) > 1:
                expected[table.names[i], table.names[j], pool, gpus] = (
                    rates[0] * parts[0],
                    rates[1] * parts[1],
                )
    found = columns(instance, model)
    assert len(expected) > 8 and set(found) == set(expected)
    for key, rates in expected.items():
        assert found[key] == pytest.approx(rates)


def test_what_the_instance_states_of_a_pair_wins() -> None:
    stated = {"workloads": ["w0", "w1"], "pool": "q", "gpus": 1, "throughput": [0.5, 0.25]}
    instance = instance_of(colocation=[stated])
    found = columns(instance, Slowed(instance))
    assert {
        rates for (a, b, pool, _), rates in found.items() if {a, b} == {"j0", "j1"} and pool == 1
    } == {(0.5, 0.25)}
    assert len(found) > 8


def test_pairs_are_found_through_models_made_of_others() -> None:
    instance = instance_of()
    inner = Slowed(instance)
    for model in (
        CachedModel(instance, inner),
        Chain([make_model(instance, {"model": "table"}), OnlineModel(instance, inner)]),
    ):
        assert colocating(model) is inner
        assert columns(instance, model) == columns(instance, inner)
    assert colocating(make_model(instance, {"model": "table"})) is None
    assert columns(instance, None) == {}


def test_packing_by_a_model_raises_the_optimum_and_is_certified() -> None:
    instance = instance_of()
    plain = optsched.solve(instance, "max-min-fairness")
    packed = optsched.solve(instance, "max-min-fairness", model=Slowed(instance))
    assert packed.certificate.ok and packed.objective > plain.objective * 1.01


def test_too_many_pairs_are_refused_before_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optsched.candidates.modelled_pairs, "MOST_KIND_PAIRS", 10)
    instance = instance_of()
    with refuses("performance: found a model that pairs..."):
        optsched.compile(instance, model=Slowed(instance))
