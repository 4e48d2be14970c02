"""Normalisers of maximum throughput."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from documents import instance_document
from refusals import refuses

import optsched
from formulations.reference_rates import fastest
from optsched import Instance
from optsched.errors import UsageError

POOLS = [{"name": name, "nodes": 1, "gpus_per_node": gpus} for name, gpus in (("a", 1), ("b", 3))]
RATES = {"quick": {"a": 100.0, "b": 20.0}, "slow": {"a": 2.0, "b": 1.0}}


def instance(**change: Any) -> Instance:
    jobs = [{"id": name, "throughput": rates} for name, rates in RATES.items()]
    return Instance.from_document(instance_document(POOLS, jobs) | change)


@pytest.mark.parametrize(
    ("normalise", "objective"),
    (
        ("none", 100.0 + 1.0),
        ("proportional", 100.0 / (160 / 4) + 1.0 / (5 / 4)),
        (
            "best",
            1.0 + 0.5,
        ),  # quick on a and half of slow's best on b; the other way round gives 1 + 0.2
    ),
)
def test_who_counts_by_what(normalise: str, objective: float) -> None:
    solution = optsched.solve(instance(), "max-throughput", normalise=normalise)
    assert solution.ok and solution.objective == pytest.approx(objective)


def test_the_best_is_that_alone_and_of_pairs_only_where_there_is_no_other() -> None:
    pair = [{"jobs": ["quick", "slow"], "pool": "a", "throughput": [500.0, 0.5]}]
    C = optsched.compile(instance(colocation=pair)).classes(frozenset())
    assert fastest(C).tolist() == [100.0, 2.0]
    only = [{"id": name, "throughput": {"a": 0.0}} for name in RATES]
    C = optsched.compile(instance(jobs=only, colocation=pair)).classes(frozenset())
    assert fastest(C).tolist() == [500.0, 0.5]


def test_normalised_by_the_best_no_unit_matters() -> None:
    random = np.random.default_rng(3)
    rates, factor = random.lognormal(size=(9, 2)), random.lognormal(0, 3, (9, 1))
    given = [
        Instance.from_arrays(pools={"a": 2, "b": 3}, throughput=T) for T in (rates, rates * factor)
    ]
    values = [optsched.solve(instance, "max-throughput", normalise="best") for instance in given]
    assert values[0].objective == pytest.approx(values[1].objective, rel=1e-9)
    assert values[0].objective <= 5.0 + 1e-9, "nobody does better than the best on any of 5 GPUs"


def test_refusals() -> None:
    with refuses('option of max-throughput: normalise: found "worst"', UsageError):
        optsched.solve(instance(), "max-throughput", normalise="worst")
    rateless = [{"id": "r", "options": [{"pool": "a", "gpus": 1}]}]
    with refuses("jobs[0].options: found no throughput or duration (job 'r')..."):
        optsched.solve(instance(jobs=rateless), "max-throughput", normalise="best")
