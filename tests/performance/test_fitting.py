"""Models by name: fitted, written and read again to the byte, asked alone and in chains."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import refuses
from small_time_model import Linear, planted

from optsched import performance, registry
from optsched.errors import InvalidInput, UsageError
from optsched.performance import Profiles, Source

# Private names: a model by its class, where the registry knows it by name
from optsched.performance.evaluation import evaluate
from optsched.performance.files import model_bytes, read_model
from optsched.study import fit_model, fits, predict_times, time_models

pytestmark = pytest.mark.property

PROFILES = planted()
BERT, VGG = (PROFILES.take(np.flatnonzero(PROFILES.ways.workload == row)) for row in (0, 1))


@pytest.fixture(autouse=True)
def linear(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The small model is in the catalogue."""
    monkeypatch.setitem(performance.CATALOGUE, Linear.name, f"{Linear.__module__}:Linear")
    registry.catalogue.cache_clear()
    yield
    registry.catalogue.cache_clear()


FITTED = [name for name in performance.CATALOGUE if name in time_models()]
"""Every model of the catalogue that is fitted to profiles, but for those that need more than times."""
FEW: dict[str, Any] = {"model": "boosted", "iterations": 8}
QUICK: dict[str, dict[str, Any]] = {
    "blend": {"models": [FEW, FEW | {"of": {"model": "pollux"}}]}, "boosted": {"iterations": 8},
    "conformal": {"of": FEW},
}  # fmt: skip


LONG = ("blend", "cross-validated")
"""Models whose fits take long: slow studies."""


def models(names: list[str]) -> list[Any]:
    return [pytest.param(name, marks=pytest.mark.study if name in LONG else ()) for name in names]


@pytest.mark.parametrize("name", models([Linear.name, *FITTED]))
def test_a_saved_model_is_the_same_model(name: str, tmp_path: Path) -> None:
    try:
        document = fit_model(PROFILES, (name, QUICK.get(name, {})))
    except InvalidInput as error:
        pytest.skip(f"{name} cannot be fitted to times alone: {error}")
    data = model_bytes(document)
    assert data.startswith(b'{\n "format": "optsched-model/1"')
    path = tmp_path / "model.json"
    path.write_bytes(data)
    again = read_model(path)
    assert again == document and model_bytes(again) == data
    reloaded = registry.load_model(name).from_document(
        {k: v for k, v in again.items() if k != "model"}
    )  # type: ignore[attr-defined]
    assert model_bytes(reloaded.document()) == data
    told, told_again = predict_times(document, PROFILES.ways), predict_times(again, PROFILES.ways)
    for one, other in ((told.seconds, told_again.seconds), (told.log_sd, told_again.log_sd)):
        assert one.tobytes() == other.tobytes()
    assert told.source.tolist() == told_again.source.tolist()
    assert (
        model_bytes(fit_model(PROFILES, (name, QUICK.get(name, {})))) == data
    )  # the same profiles, the same bytes


@pytest.mark.parametrize("name", models([*FITTED]))
def test_the_order_of_the_measurements_does_not_matter(name: str) -> None:
    """Neither the bytes of a document nor a model that is fitted by its class."""
    owner, options = registry.load_model(name), QUICK.get(name, {})
    profiles = PROFILES.take(np.arange(len(PROFILES)).repeat(2))
    profiles.seconds[1::2] *= 1.01
    try:
        data = model_bytes(fit_model(profiles, (name, options)))
        alone = model_bytes(owner.fit(profiles, options).document())  # type: ignore[attr-defined]
    except InvalidInput as error:
        pytest.skip(f"{name} cannot be fitted to times alone: {error}")
    order = np.random.default_rng(0).permutation(len(profiles))
    named = profiles.take(order)
    shuffled = Profiles.of(
        workload=[named.ways.workloads[row] for row in named.ways.workload],
        gpu=[named.ways.gpu_types[row] for row in named.ways.gpu],
        **{column: getattr(named.ways, column) for column in ("gpus", "nodes", "samples", "passes")},
        seconds=named.seconds, sync=named.sync,
    )  # fmt: skip
    assert model_bytes(fit_model(shuffled, (name, options))) == data
    assert model_bytes(owner.fit(shuffled, options).document()) == alone == data  # type: ignore[attr-defined]


def test_a_model_is_asked_as_it_is() -> None:
    model = Linear.fit(PROFILES, {})
    told = predict_times(fit_model(PROFILES, Linear.name), PROFILES.ways)
    assert told.seconds.tolist() == model.times(PROFILES.ways).seconds.tolist()


def test_a_chain_asks_each_where_the_others_are_silent() -> None:
    chain = {
        "model": "chain",
        "models": [fit_model(BERT, Linear.name), fit_model(VGG, Linear.name)],
    }
    told = predict_times(chain, PROFILES.ways)
    expected = [predict_times(fit_model(part, Linear.name), PROFILES.ways) for part in (BERT, VGG)]
    first = np.isfinite(expected[0].seconds)
    np.testing.assert_allclose(
        told.seconds, np.where(first, *(times.seconds for times in expected)), rtol=1e-12
    )
    assert told.log_sd.tolist() == np.where(first, *(times.log_sd for times in expected)).tolist()
    assert set(told.source.tolist()) == {Source.PARAMETRIC}
    several = fit_model(PROFILES, [Linear.name, (Linear.name, {"floor": 0.5})])
    assert [part["model"] for part in several["models"]] == [Linear.name, Linear.name]
    assert several["models"][1]["log_sd"] >= 0.5


def test_a_chain_counts_passes_and_leaves_the_unknown_unknown() -> None:
    chain = {"model": "chain", "models": [fit_model(BERT, Linear.name)]}
    given = Profiles.of(
        workload=["bert", "bert", "gpt", "bert"], gpu=["T4", "T4", "T4", "H100"], gpus=[4, 4, 4, 4], nodes=[2, 2, 2, 2],
        samples=[7.3, 7.3, 8, 8], passes=[3, 1, 1, 1], seconds=[1, 1, 1, 1],
    )  # fmt: skip
    told = predict_times(chain, given.ways).seconds
    alone = predict_times(chain["models"][0], given.ways).seconds  # type: ignore[index]
    np.testing.assert_allclose(told, alone, rtol=1e-12)
    assert told[0] == pytest.approx(3 * told[1]) and np.isnan(told[2:]).all()
    assert np.isnan(predict_times({"model": "table"}, given.ways).seconds).all()


def test_models_and_chains_are_evaluated_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    models = fits([Linear.name, (Linear.name, {"floor": 0.3})], chain=True)
    counted: list[int] = []
    plain = Linear.fit.__func__  # type: ignore[attr-defined]
    monkeypatch.setattr(
        Linear, "fit", classmethod(lambda *given: (counted.append(1), plain(*given))[1])
    )
    found = evaluate(PROFILES, models, [("random", {})], seeds=3)
    told = [row.model for row in found.rows if row.workload is None]
    assert told == [Linear.name, f"{Linear.name}:floor=0.3", "chain"]
    assert found.rows[0].mape == pytest.approx(found.rows[6].mape)
    assert len(counted) == 3 * 2  # the chain takes over what its parts have fitted


@pytest.mark.parametrize(
    ("models", "options", "words"),
    [
        ("table", {}, "table is not fitted to profiles, expected one of "),
        ("polux", {}, "unknown performance model 'polux'"),
        ([], {}, "no model is named"),
        ([Linear.name, Linear.name], {"floor": 1}, "options beside several models"),
    ],
)
def test_wrong_words(models: object, options: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        fit_model(PROFILES, models, **options)  # type: ignore[arg-type]
    assert words in str(caught.value)


def test_an_option_that_the_model_lacks() -> None:
    with refuses("performance.roof: found an unknown option..."):
        fit_model(PROFILES, Linear.name, roof=1)


def test_a_fit_takes_one_measurement_and_refuses_none() -> None:
    assert fit_model(PROFILES.take(np.array([0])), Linear.name)["model"] == Linear.name
    with refuses("profiles: found no measurements"):
        fit_model(PROFILES.take(np.array([], np.int64)), Linear.name)


def test_documents_that_are_no_models() -> None:
    for document, words in (
        ({"model": "nothing"}, 'performance.model: found "nothing", expected one of...'),
        ({"model": Linear.name}, "performance.per_sample: found nothing"),
        ({}, "model: found nothing"),
    ):
        with refuses(words):
            predict_times(document, PROFILES.ways)


def test_files_that_are_no_models(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_text(json.dumps({"model": "table"}))
    with refuses('format: found null, expected "optsched-model/1"'):
        read_model(path)


def test_models_of_names_are_asked_by_the_names_of_the_profiles() -> None:
    ways = PROFILES.ways
    bert = np.array([name == "bert" for name in ways.workloads])[ways.workload]
    names: dict[str, dict[str, dict[str, float]]] = {name: {} for name in ways.workloads}
    oracle = {"model": "oracle", "throughput": {**names, "bert": {"T4": {"1": 5.0}}}}
    told = predict_times(oracle, ways).seconds
    t4 = np.array([gpu == "T4" for gpu in ways.gpu_types])[ways.gpu]
    np.testing.assert_array_equal(np.isfinite(told), bert & t4 & (ways.gpus == 1))
    assert set(told[np.isfinite(told)]) == {1 / 5.0}
    with refuses(
        "performance.throughput.gpt: found no workload of the instance, expected one of bert..."
    ):
        predict_times({"model": "oracle", "throughput": {"gpt": {"T4": {"1": 5.0}}}}, ways)


def test_errors_that_are_drawn_belong_to_names_not_to_rows() -> None:
    noisy = {
        "model": "noisy",
        "of": {"model": "chain", "models": [fit_model(PROFILES, Linear.name)]},
        "sd": 0.3,
    }
    whole = predict_times(noisy, PROFILES.ways).seconds
    for rows in (np.arange(len(PROFILES))[::-1], np.arange(5, 40, 3)):
        np.testing.assert_array_equal(
            predict_times(noisy, PROFILES.ways.take(rows)).seconds, whole[rows]
        )
    error = np.log(whole / predict_times(noisy["of"], PROFILES.ways).seconds)
    ways = PROFILES.ways
    cells = np.stack([ways.workload, ways.gpu, ways.gpus, ways.nodes], axis=1)
    assert len(np.unique(error.round(9))) == len(
        np.unique(cells, axis=0)
    )  # one error for each way of a workload
