"""The interference model: alone as its base, in pairs the base's rates times what the pair keeps."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from documents import instance_document
from pair_cases import profiles_of
from refusals import refuses

from optsched.assembly import make_model
from optsched.instance import Instance
from optsched.performance import (
    ColocatingModel,
    Configurations,
    Feasibility,
    JobBatch,
    PerformanceModel,
    Source,
)

# Private names: a model by its class, where the registry knows it by name
from optsched.performance.composed.interference import Interference
from optsched.performance.learned import PairModel, PairProfiles, Pairs, pair_class

ABSENT = object()
POOLS = [
    {"name": "old", "gpu": "k80", "nodes": 2, "gpus_per_node": 4},
    {"name": "new", "gpu": "v100", "nodes": 2, "gpus_per_node": 4},
    {"name": "other", "gpu": "h100", "nodes": 1, "gpus_per_node": 4},
]
RATES = {"old": {"1": 2.0, "2": 3.5}, "new": {"1": 8.0}, "other": {"1": 16.0}}
WORKLOADS: dict[str, Any] = {
    "mine": {"throughput": RATES, "parameters": {"profile": "j0"}},
    "j1": {"throughput": {"old": {"1": 1.0, "2": 1.5}, "new": {"1": 0.0}, "other": {"1": 4.0}}},
    "j2": {"throughput": {"old": {"1": 5.0}}},
    "strange": {"throughput": {"old": {"1": 3.0}}},
}
# rows: (pool, GPUs)
ONE_OLD, TWO_OLD, ONE_NEW, ONE_OTHER = range(4)
CONFIGURATIONS = Configurations(
    np.array([0, 0, 1, 2]),
    np.array([1, 2, 1, 1]),
    np.ones(4, np.int64),
    np.ones(4),
    np.zeros(4, np.int64),
)


def instance() -> Instance:
    return Instance.from_document(instance_document(POOLS, workloads=WORKLOADS))


def jobs_of(here: Instance) -> JobBatch:
    """One kind for each workload, and one without."""
    profiles = np.array([*(workload.rates for workload in here.workloads), -1])
    rows = np.array([*range(len(here.workloads)), -1])
    return JobBatch(rows, profiles, np.zeros(len(rows), bool), np.ones(len(rows), np.int64))


def pair_model(profiles: PairProfiles | None = None) -> PairModel:
    return pair_class("row-column").fit(
        profiles_of(share=0.6, noise=0.1) if profiles is None else profiles, {}
    )


def made(pairs: PairModel) -> tuple[Interference, JobBatch]:
    here = instance()
    document = {
        "model": "interference",
        "of": {"model": "table"},
        "pairs": json.loads(json.dumps(pairs.document())),
    }
    model = make_model(here, document)
    assert isinstance(model, Interference)
    return model, jobs_of(here)


def test_it_is_a_colocating_model_and_others_are_not() -> None:
    model, _ = made(pair_model())
    assert isinstance(model, ColocatingModel)
    assert isinstance(model, PerformanceModel)
    assert not isinstance(make_model(instance(), {"model": "table"}), ColocatingModel)


def test_alone_it_is_its_base() -> None:
    model, jobs = made(pair_model())
    base = make_model(instance(), {"model": "table"})
    for edges in (None, (np.array([0, 1]), np.array([1, 3]))):
        one, other = (each.predict(jobs, CONFIGURATIONS, edges=edges) for each in (model, base))
        for field in ("rate", "log_sd", "feasible", "source"):
            np.testing.assert_array_equal(getattr(one, field), getattr(other, field))
    assert model.version == base.version


def test_every_pair_keeps_what_the_model_of_pairs_says() -> None:
    pairs = pair_model()
    model, jobs = made(pairs)
    first, second, configuration = (index.ravel() for index in np.indices((5, 5, 4)))
    said = model.pair_fractions(jobs, CONFIGURATIONS, first, second, configuration)
    names, gpus = ("j0", "j1", "j2", "strange"), ("k80", "v100", "h100")
    seen = set()
    for row, (a, b, c) in enumerate(zip(first, second, configuration, strict=True)):
        keeps, expected = [0.0, 0.0], Feasibility.NO_RATE
        one, other = (int(jobs.workload[job]) for job in (a, b))
        if min(one, other) >= 0:
            asked = (np.array([value]) for value in (CONFIGURATIONS.pool[c], one, other))
            known = pairs.fractions(Pairs(*asked, gpus, names))
            if not np.isnan(known.first[0]):
                keeps, expected = [known.first[0], known.second[0]], Feasibility.OK
                assert (said.log_sd[row], said.source[row]) == (known.log_sd[0], known.source[0])
        assert said.feasible[row] == expected
        assert [said.first[row], said.second[row]] == keeps
        seen.add((expected, int(said.source[row])))
    assert {Feasibility.OK, Feasibility.NO_RATE} == {state for state, _ in seen}
    assert {source for state, source in seen if state == Feasibility.OK} == {
        Source.MEASURED,
        Source.LEARNED,
    }
    again = model.pair_fractions(jobs, CONFIGURATIONS, second, first, configuration)
    np.testing.assert_array_equal(again.first, said.second)
    np.testing.assert_array_equal(again.second, said.first)


def test_a_pair_that_could_not_run_together_is_out_of_memory() -> None:
    profiles = PairProfiles.of(
        gpu=["k80"] * 3, first=["j0", "j0", "j1"], second=["j1", "j2", "j2"],
        fraction_first=[0.0, 0.5, 0.6], fraction_second=[0.0, 0.7, 0.8],
    )  # fmt: skip
    model, jobs = made(pair_model(profiles))
    rows = np.array([0, 1, 2]), np.array([1, 0, 0]), np.array([ONE_OLD, TWO_OLD, ONE_OLD])
    said = model.pair_fractions(jobs, CONFIGURATIONS, *rows)
    assert said.feasible.tolist() == [
        Feasibility.OUT_OF_MEMORY,
        Feasibility.OUT_OF_MEMORY,
        Feasibility.OK,
    ]
    assert said.first.tolist() == [0.0, 0.0, 0.7]
    assert said.second.tolist() == [0.0, 0.0, 0.5]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"pairs": None},
            "performance.pairs: found null, expected the document of a model of pairs",
        ),
        (
            {"pairs": {"model": "table"}},
            'performance.pairs.model: found "table", expected one of auto...',
        ),
        (
            {"pairs": {"model": "row-column"}},
            "performance.pairs.workloads: found nothing, expected this key",
        ),
        (
            {"more": 1},
            "performance.more: found an unknown key 'more', expected one of the format's keys",
        ),
        ({"of": {"model": "x"}}, 'performance.of.model: found "x"'),
        ({"of": ABSENT}, "performance.of: found nothing, expected a performance object"),
        ({"pairs": ABSENT}, "performance.pairs: found nothing, expected this key"),
    ],
)
def test_options_that_cannot_be(change: dict[str, Any], message: str) -> None:
    document = {
        "model": "interference",
        "of": {"model": "table"},
        "pairs": pair_model().document(),
    } | change
    given = {name: value for name, value in document.items() if value is not ABSENT}
    with refuses(message):
        make_model(instance(), given)
