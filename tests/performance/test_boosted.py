"""The boosted model: alone and on a base, passes, extrapolation, documents, and its speaking for an instance."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from documents import instance_document
from learned_cases import Linear, law, profiles_of
from refusals import refuses

from optsched import performance
from optsched.errors import SolverUnavailable
from optsched.instance import Instance
from optsched.performance import Configurations, Feasibility, JobBatch, Profiles, Source

# Private names: a model by its class, where the registry knows it by name
from optsched.performance.learned.boosted import Boosted
from optsched.performance.ways import Ways

pytestmark = pytest.mark.property

FEW: dict[str, Any] = {"iterations": 30, "learning_rate": 0.2}
sklearn = pytest.mark.skipif(find_spec("sklearn") is None, reason="scikit-learn is not installed")


@pytest.fixture
def linear(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(performance.CATALOGUE, Linear.name, f"{Linear.__module__}:Linear")


def ways_of(workload: list[str], gpu: list[str], k: Any, n: Any, m: Any, passes: Any = 1) -> Ways:
    count = len(workload)
    return Profiles.of(
        workload=workload, gpu=gpu, gpus=np.broadcast_to(k, count), nodes=np.broadcast_to(n, count),
        samples=np.broadcast_to(m, count), seconds=np.ones(count), passes=np.broadcast_to(passes, count),
    ).ways  # fmt: skip


def error(model: Boosted | Linear, profiles: Profiles) -> float:
    return float(np.abs(np.log(model.times(profiles.ways).seconds / profiles.seconds)).mean())


@sklearn
def test_new_steps_are_told_well_and_the_sd_is_that_of_the_noise() -> None:
    model = Boosted.fit(profiles_of(800, noise=0.05), FEW)
    assert error(model, profiles_of(400, seed=1)) < 0.05
    said = model.times(profiles_of(400, seed=1).ways)
    assert set(said.source) == {Source.LEARNED}
    assert (said.log_sd > 0.04).all()
    assert (said.log_sd < 0.15).all()


@sklearn
def test_beyond_the_measured_gpus_the_time_of_a_step_stays() -> None:
    model = Boosted.fit(profiles_of(400, most=4), FEW)
    said = model.times(ways_of(["bert"] * 3, ["a100"] * 3, [4, 64, 1000], [1, 1, 1], 8.0)).seconds
    assert said[1] == pytest.approx(said[0], rel=0.1)
    assert said[1] == said[2]


@sklearn
def test_of_levels_that_were_never_measured_trees_say_nothing_alone(linear: None) -> None:
    profiles = profiles_of(300)
    kept = profiles.take(np.flatnonzero(profiles.ways.nodes == 1))
    ways = ways_of(["bert"] * 4, ["a100"] * 4, [1, 4, 4, 8], [1, 1, 2, 2], 8.0)
    model = Boosted.fit(kept, FEW)
    assert np.isnan(model.times(ways).seconds).tolist() == [False, False, True, True]
    again = Boosted.from_document(
        {name: part for name, part in model.document().items() if name != "model"}
    )
    assert np.isnan(again.times(ways).seconds).tolist() == [False, False, True, True]
    based = Boosted.fit(kept, FEW | {"of": {"model": Linear.name}}).times(ways)
    assert np.isfinite(based.seconds).all() and set(based.source) == {Source.LEARNED}
    assert (based.log_sd[:2] < 0.5).all()
    assert based.log_sd[2:].tolist() == [0.5, 0.5]  # that of the base
    # passes but the last are as long as the last one where one GPU was never measured
    several = Boosted.fit(profiles.take(np.flatnonzero(profiles.ways.gpus > 1)), FEW)
    twice = several.times(ways_of(["bert"] * 3, ["a100"] * 3, [1, 4, 4], 1, 8.0, [1, 1, 2])).seconds
    assert np.isnan(twice[0]) and twice[2] == 2 * twice[1]


@sklearn
def test_what_was_not_profiled_has_no_time(linear: None) -> None:
    profiles = profiles_of(60, workloads=("bert",))
    ways = ways_of(["bert", "gpt", "bert"], ["a100", "a100", "h100"], 2, 1, 8.0)
    assert np.isnan(Boosted.fit(profiles, FEW).times(ways).seconds).tolist() == [False, True, True]
    based = Boosted.fit(profiles, FEW | {"of": {"model": Linear.name}}).times(ways)
    assert np.isnan(based.seconds).tolist() == [False, True, False]
    assert based.source[[0, 2]].tolist() == [Source.LEARNED, Source.PARAMETRIC]
    assert based.log_sd[2] == 0.5


@sklearn
@pytest.mark.parametrize("unseen", [False, True])
def test_a_base_is_fitted_first_and_corrected(
    linear: None, unseen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    profiles, others = profiles_of(600), profiles_of(300, seed=1)
    plain = Linear.fit(profiles, {})
    sizes: list[int] = []
    fit = Linear.fit
    monkeypatch.setattr(
        Linear, "fit", lambda given, options: sizes.append(len(given)) or fit(given, options)
    )
    model = Boosted.fit(profiles, FEW | {"of": {"model": Linear.name}, "unseen": unseen})
    assert isinstance(model.base, Linear)
    assert sizes == [600] + [450] * 4 * unseen
    assert model.base.each == plain.each
    assert error(model, others) < 0.1 * error(plain, others)
    doubled = Boosted.fit(profiles, FEW | {"of": {"model": Linear.name, "scale": 2.0}})
    assert doubled.base is not None
    assert doubled.base.document()["each"]["bert"] == pytest.approx(2 * plain.each["bert"])
    assert error(doubled, others) < 0.1 * error(plain, others)


@sklearn
def test_steps_of_several_passes() -> None:
    samples, gpus = np.repeat([4.0, 8.0, 16.0], 12), np.tile([1, 2, 4], 12)
    one = {"workload": ["a"] * 36, "gpu": ["g"] * 36, "gpus": gpus, "samples": samples}
    exchange = law(samples, gpus, np.ones(36)) - law(samples, np.ones(36), np.ones(36))
    single = Profiles.of(**one, seconds=law(samples, gpus, np.ones(36)))
    model = Boosted.fit(single, {"learning_rate": 0.1})
    asked = ways_of(["a"] * 4, ["g"] * 4, [1, 2, 4, 4], 1, [4.0, 8.0, 16.0, 16.0], [3, 4, 2, 1])
    expected = law(asked.samples, asked.gpus, asked.nodes, asked.passes)
    np.testing.assert_allclose(model.times(asked).seconds, expected, rtol=0.01)
    # measured in three passes, with what the exchange took
    thrice = {**one, "seconds": law(samples, gpus, np.ones(36), 3), "passes": [3] * 36}
    told = Boosted.fit(Profiles.of(**thrice, sync=exchange), {"learning_rate": 0.1})
    np.testing.assert_allclose(told.times(asked).seconds, expected, rtol=0.01)
    # and without: only what one GPU took can be used
    alone = Boosted.fit(Profiles.of(**thrice), {"learning_rate": 0.1})
    np.testing.assert_allclose(alone.times(asked).seconds[0], expected[0], rtol=0.01)


@sklearn
def test_equal_ways_are_asked_once_and_rows_do_not_depend_on_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    profiles = profiles_of(100)
    model = Boosted.fit(profiles, FEW)
    asked: list[int] = []
    trees = Boosted._trees
    monkeypatch.setattr(
        Boosted, "_trees", lambda self, ways: asked.append(len(ways)) or trees(self, ways)
    )
    many = np.tile(np.arange(100), 1000)
    said = model.times(profiles.ways.take(many)).seconds
    assert sum(asked) <= 100
    np.testing.assert_array_equal(said[:100], model.times(profiles.ways).seconds)
    alone = [model.times(profiles.ways.take(np.array([row]))).seconds[0] for row in range(20)]
    assert said[-100:-80].tolist() == alone


@sklearn
def test_it_speaks_for_an_instance() -> None:
    model = Boosted.fit(profiles_of(400), FEW)
    document = instance_document(
        [{"name": "p", "gpu": "a100", "nodes": 2, "gpus_per_node": 4}],
        workloads={"w": {"parameters": {"profile": "bert", "batch": 32}}},
    )
    speaking = Boosted.from_instance(
        Instance.from_document(document),
        {key: value for key, value in model.document().items() if key != "model"},
    )
    two = Configurations(
        *(np.array([value] * 1) for value in (0, 4, 1)), np.ones(1), np.zeros(1, np.int64)
    )
    job = JobBatch(np.array([0]), np.array([-1]), np.array([False]), np.array([1]))
    said = speaking.predict(job, two)
    assert said.feasible.tolist() == [[Feasibility.OK]]
    assert said.rate[0, 0] == pytest.approx(
        1 / model.times(ways_of(["bert"], ["a100"], 4, 1, 8.0)).seconds[0]
    )


@sklearn
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"iteration": 3},
            "performance.iteration: found an unknown key 'iteration', expected one of the format's keys "
            "(did you mean iterations...",
        ),
        ({"learning_rate": 0.0}, "performance.learning_rate: found 0.0, expected a number above 0"),
        (
            {"of": {"model": "table"}},
            'performance.of.model: found "table", expected the name of a model...',
        ),
        ({"of": {"model": "nobody"}}, 'performance.of.model: found "nobody"'),
        (
            {"of": {"model": Linear.name, "slope": 1}},
            "performance.of.slope: found 1, expected scale",
        ),
    ],
)
def test_options_that_cannot_be(linear: None, options: dict[str, Any], message: str) -> None:
    with refuses(message):
        Boosted.fit(profiles_of(40), options)


@sklearn
def test_too_few_steps() -> None:
    with refuses("profiles: found 20 steps, expected at least 8 steps of some workload..."):
        Boosted.fit(profiles_of(20), FEW)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({}, "performance.groups: found nothing, expected this key"),
        ({"groups": {"w": {"g": {"log_sd": 0.1}}}}, "performance.groups.w.g.trees: found nothing"),
        (
            {"groups": {}, "of": {"model": Linear.name}},
            "performance.of.each: found nothing, expected this key",
        ),
        ({"groups": {}, "of": {"model": []}}, "performance.of.model"),
    ],
)
def test_documents_that_cannot_be(linear: None, document: dict[str, Any], message: str) -> None:
    with refuses(message):
        Boosted.from_document(document)


def test_without_sklearn_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.ensemble", None)
    with pytest.raises(
        SolverUnavailable, match=r"scikit-learn, .* pip install 'optsched\[learn\]'"
    ):
        Boosted.fit(profiles_of(40, workloads=("bert",)), FEW)
