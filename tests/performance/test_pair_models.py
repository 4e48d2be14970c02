"""What every model of pairs promises, and what each one learns."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from pair_cases import GPUS, effects, every_pair, profiles_of, symmetric
from refusals import refuses

from optsched.performance import Source
from optsched.performance.learned import (
    PAIR_MODELS,
    PairModel,
    PairProfiles,
    Pairs,
    make_pair_model,
    pair_class,
    pair_models,
)

# Private names: a model by its class, where the registry knows it by name
from optsched.performance.learned.gaussian_pairs import (
    START,
    GaussianPairs,
    JobKernel,
    PairProcess,
)
from optsched.performance.learned.pair_models import (
    Completion,
    CompletionOptions,
    RowColumn,
    Utilisation,
    complete,
    decreasing,
)
from optsched.performance.learned.pairs import LearnedPairs

pytestmark = pytest.mark.property

needs_sklearn = pytest.mark.skipif(
    find_spec("sklearn") is None, reason="scikit-learn is not installed"
)
OPTIONS: dict[str, dict[str, Any]] = {
    "auto": {},
    "boosted-pairs": {"iterations": 30, "rows_per_leaf": 2},
    "completion": {"iterations": 10},
    "conformal-pairs": {"of": {"model": "row-column"}},
    "gaussian-pairs": {"iterations": 8},
    "row-column": {},
    "utilisation": {},
}
MODELS = [
    pytest.param(name, marks=needs_sklearn if name == "boosted-pairs" else ()) for name in OPTIONS
]


def fit(name: str, profiles: PairProfiles) -> PairModel:
    return pair_class(name).fit(profiles, OPTIONS[name])


def ask(gpu: str, first: str, second: str) -> Pairs:
    return Pairs(np.array([0]), np.array([0]), np.array([1]), (gpu,), (first, second))


@pytest.mark.unit
def test_the_list_of_models_is_complete() -> None:
    assert set(OPTIONS) == set(PAIR_MODELS)
    assert all(pair_class(name).name == name for name in PAIR_MODELS)


@pytest.mark.parametrize("name", MODELS)
def test_estimates_are_fractions_and_what_was_measured_is_said_unchanged(name: str) -> None:
    profiles = profiles_of(share=0.7, noise=0.1)
    model = fit(name, profiles)
    said = model.fractions(every_pair())
    assert len(said.first) == len(said.second) == len(said.log_sd) == len(said.source) == 72
    for column in (said.first, said.second):
        assert ((column > 0) & (column <= 1)).all()
    measured = said.source == Source.MEASURED
    assert (said.log_sd[measured] == 0).all()
    assert (said.log_sd[~measured] > 0).all()
    assert (said.source[~measured] == Source.LEARNED).all()
    kept = profiles if isinstance(model, LearnedPairs) else None
    if kept is not None:
        for pairs, first, second in (
            (kept.pairs, kept.first, kept.second),
            (kept.pairs.swapped(), kept.second, kept.first),
        ):
            again = model.fractions(pairs)
            assert (again.source == Source.MEASURED).all()
            np.testing.assert_array_equal(again.first, first)
            np.testing.assert_array_equal(again.second, second)


@pytest.mark.property
@pytest.mark.unit
@pytest.mark.parametrize("name", MODELS)
def test_exchanging_the_jobs_exchanges_the_fractions(name: str) -> None:
    model, pairs = fit(name, profiles_of(share=0.7, noise=0.1)), every_pair()
    one, other = model.fractions(pairs), model.fractions(pairs.swapped())
    np.testing.assert_allclose(one.first, other.second, rtol=1e-12)
    np.testing.assert_allclose(one.second, other.first, rtol=1e-12)
    np.testing.assert_allclose(one.log_sd, other.log_sd, rtol=1e-9)


@pytest.mark.parametrize("name", MODELS)
def test_symmetric_measurements_give_symmetric_estimates(name: str) -> None:
    said = fit(name, profiles_of(symmetric, share=0.6, noise=0.05)).fractions(every_pair())
    np.testing.assert_array_equal(said.first, said.second)
    table = said.first.reshape(2, 6, 6)
    np.testing.assert_allclose(table, table.swapaxes(1, 2), rtol=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_the_order_of_rows_and_the_numbers_of_jobs_do_not_matter(name: str) -> None:
    plain = fit(name, profiles_of(share=0.7, noise=0.1))
    shuffled = fit(
        name, profiles_of(share=0.7, noise=0.1, order=np.random.default_rng(5).permutation)
    )
    pairs = every_pair()
    np.testing.assert_array_equal(plain.fractions(pairs).first, shuffled.fractions(pairs).first)
    random = np.random.default_rng(1).permutation(72)
    said = plain.fractions(
        pairs
    ).first  # sums of a matrix product may round in another order, nothing else
    np.testing.assert_allclose(plain.fractions(pairs.take(random)).first, said[random], rtol=1e-12)
    turned = every_pair(
        label=lambda row: f"j{5 - row}"
    )  # the same names, numbered the other way round
    again = plain.fractions(turned).first.reshape(2, 6, 6)[:, ::-1, ::-1]
    np.testing.assert_allclose(again, said.reshape(2, 6, 6), rtol=1e-12)


@pytest.mark.parametrize("name", ["auto", "gaussian-pairs", "row-column", "utilisation"])
def test_other_names_for_the_jobs_give_the_same(name: str) -> None:
    renamed = {"label": lambda row: f"k{5 - row}"}  # their order is another one, too
    one = fit(name, profiles_of(share=0.7, noise=0.1)).fractions(every_pair())
    other = fit(name, profiles_of(share=0.7, noise=0.1, **renamed)).fractions(every_pair(**renamed))
    np.testing.assert_allclose(one.first, other.first, rtol=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_a_document_is_the_model(name: str) -> None:
    model, pairs = fit(name, profiles_of(share=0.7, noise=0.1)), every_pair()
    document = json.loads(json.dumps(model.document()))
    again = make_pair_model(document)
    assert type(again) is type(model)
    assert again.document() == model.document()
    for field in ("first", "second", "log_sd", "source"):
        np.testing.assert_array_equal(
            getattr(again.fractions(pairs), field), getattr(model.fractions(pairs), field)
        )


@pytest.mark.parametrize("name", MODELS)
def test_names_that_nobody_knows_have_no_fraction(name: str) -> None:
    model = fit(name, profiles_of(share=0.7))
    for pairs in (ask("k80", "j0", "nobody"), ask("k80", "nobody", "j0"), ask("h100", "j0", "j1")):
        said = model.fractions(pairs)
        assert np.isnan([said.first[0], said.second[0]]).all()
    assert len(model.fractions(every_pair().take(np.zeros(0, np.int64))).first) == 0


@pytest.mark.parametrize("name", ["row-column", "completion", "gaussian-pairs"])
def test_effects_are_found_in_half_of_the_pairs(name: str) -> None:
    said = pair_class(name).fit(profiles_of(jobs=8, share=0.5), {}).fractions(every_pair(8))
    gpu, one, two = (index.ravel() for index in np.indices((2, 8, 8)))
    true = np.array([effects(GPUS[g], a, b) for g, a, b in zip(gpu, one, two, strict=True)])
    assert np.abs(said.first / true - 1).mean() < 0.02


def test_equal_pairs_are_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = fit("row-column", profiles_of(share=0.5))
    asked: list[int] = []
    estimate = RowColumn.estimate
    monkeypatch.setattr(
        RowColumn, "estimate", lambda self, pairs: asked.append(len(pairs)) or estimate(self, pairs)
    )
    said = model.fractions(every_pair().take(np.tile(np.arange(72), 1500)))
    assert len(said.first) == 108_000
    assert sum(asked) < 72


def test_a_pair_measured_twice_and_one_that_could_not_run() -> None:
    profiles = PairProfiles.of(
        gpu=["g"] * 5, first=["a", "b", "a", "c", "c"], second=["b", "a", "c", "b", "c"],
        fraction_first=[0.4, 0.8, 0.0, 0.7, 0.6], fraction_second=[0.5, 0.9, 0.0, 0.3, 0.6],
    )  # fmt: skip
    model = RowColumn.fit(profiles, {})
    said = model.fractions(ask("g", "a", "b"))
    assert [said.first[0], said.second[0]] == pytest.approx(
        [np.sqrt(0.4 * 0.9), np.sqrt(0.5 * 0.8)]
    )
    for pairs in (ask("g", "a", "c"), ask("g", "c", "a")):
        said = model.fractions(pairs)
        assert (said.first[0], said.second[0], said.source[0]) == (0.0, 0.0, Source.MEASURED)
    both = Pairs(np.array([0]), np.array([0]), np.array([0]), ("g",), ("c",))
    assert model.fractions(both).first[0] == 0.6


# --- each model ---------------------------------------------------------------------------------------------------


@pytest.mark.unit
def test_row_column_is_the_ridge_regression_of_its_docstring() -> None:
    profiles = profiles_of(share=0.8, noise=0.2)
    model = RowColumn.fit(profiles, {"penalty": 0.7})
    rows = [
        (g, a, b, np.log(value))
        for g, a, b, x, y in zip(profiles.pairs.gpu, profiles.pairs.first, profiles.pairs.second, profiles.first,
                                 profiles.second, strict=True)
        for a, b, value in ([(a, b, x), (b, a, y)] if a != b else [(a, b, np.sqrt(x * y))])
    ]  # fmt: skip
    for gpu in range(2):
        own = [row for row in rows if row[0] == gpu]
        mean = np.mean([row[3] for row in own])
        wrong = np.zeros(12)  # the gradient of the objective is zero
        for _, a, b, value in own:
            error = mean + model.suffers[gpu, a] + model.inflicts[gpu, b] - value
            wrong[a] += error
            wrong[6 + b] += error
        wrong += 0.7 * np.concatenate((model.suffers[gpu], model.inflicts[gpu]))
        np.testing.assert_allclose(wrong, 0, atol=1e-12)


def test_the_penalty_is_the_best_when_cells_are_left_out() -> None:
    profiles = profiles_of(share=0.8, noise=0.2)
    least = {
        penalty: RowColumn.fit(profiles, {"penalty": penalty}).log_sd
        for penalty in (0.03, 0.1, 0.3, 1.0, 3.0)
    }
    chosen = RowColumn.fit(profiles, {})
    assert chosen.log_sd == min(least.values())
    assert least[chosen.penalty] == chosen.log_sd


@pytest.mark.parametrize("biased", [True, False])
def test_least_squares_recover_a_matrix_of_low_rank(biased: bool) -> None:
    random = np.random.default_rng(0)
    true = 0.5 + random.normal(size=(30, 2)) @ random.normal(size=(2, 60)) / 10
    known = random.random(true.shape) < 0.7
    options = CompletionOptions(
        rank=2 if biased else 3, penalty=1e-3, biased=biased, iterations=200
    )
    found = complete(
        np.where(known, true, 7.0), known, options
    )  # what is unknown must not be looked at
    assert np.abs(found - true)[~known].max() < 0.02


def test_a_job_that_is_hardly_measured_is_taken_for_its_nearest() -> None:
    def law(gpu: str, job: int, partner: int) -> float:
        """j0 keeps about as much as j5, the others three times as much in exactly its proportions."""
        level = 0.3 if job in (0, 5) else 0.9
        return level * (1 - 0.1 * partner) + (0.03 * (partner % 2) if job == 0 else 0.0)

    full = profiles_of(law, jobs=6)
    others = (full.pairs.first != 5) & (full.pairs.second != 5)
    of_new = (full.pairs.gpu == 0) & (full.pairs.first != full.pairs.second)
    model = Completion.fit(
        full.take(np.flatnonzero(others | of_new)), {"nearest": True, "penalty": 0.01}
    )
    assert model.fractions(ask("v100", "j5", "j3")).first[0] == law("v100", 0, 3)
    kept = model.fractions(ask("k80", "j5", "j3"))
    assert (kept.first[0], kept.source[0]) == (law("k80", 5, 3), Source.MEASURED)


def test_isotonic_regression_by_hand_and_against_sklearn() -> None:
    x, y = np.array([1.0, 2.0, 3.0, 4.0, 4.0]), np.array([5.0, 3.0, 4.0, 1.0, 2.0])
    middles, values = decreasing(x, y)
    assert middles.tolist() == [1.0, 2.5, 4.0]
    assert values.tolist() == [5.0, 3.5, 1.5]
    isotonic = pytest.importorskip("sklearn.isotonic", reason="scikit-learn is not installed")
    random = np.random.default_rng(0)
    x, y = random.integers(0, 30, 200).astype(float), random.normal(size=200)
    fitted = isotonic.IsotonicRegression(increasing=False).fit(x, y)
    values = decreasing(x, y)[1]
    assert sorted(set(np.round(fitted.predict(x), 9))) == sorted(set(np.round(values, 9)))


@pytest.mark.unit
def test_horus_rule_needs_no_measurement() -> None:
    empty = profiles_of(share=0.0)
    model = Utilisation.fit(empty, {"rule": "horus"})
    said = model.fractions(ask("k80", "j5", "j4"))  # 0.7 and 0.6 busy
    assert said.first[0] == said.second[0] == pytest.approx(1 / 1.3)
    assert model.fractions(ask("k80", "j0", "j1")).first[0] == 1.0
    with refuses("profiles: found 0 fractions of jobs with known utilisation, expected at..."):
        Utilisation.fit(empty, {})


def test_a_process_knows_how_sure_it_is_and_learns_from_likes() -> None:
    profiles = profiles_of(jobs=10, share=1.0, noise=0.02)
    seen = np.flatnonzero((profiles.pairs.first != 9) & (profiles.pairs.second != 9))
    model = GaussianPairs.fit(profiles.take(seen[::2]), {})
    known, new = model.fractions(ask("k80", "j1", "j2")), model.fractions(ask("k80", "j9", "j2"))
    others = [model.fractions(ask("k80", f"j{a}", f"j{b}")) for a in range(9) for b in range(a)]
    assert new.log_sd[0] > max(said.log_sd[0] for said in others)
    assert 0 < new.first[0] <= 1
    assert known.source[0] in (Source.MEASURED, Source.LEARNED)


@pytest.mark.parametrize("kept", ["names only", "some features", "only beside themselves"])
def test_a_process_takes_what_there_is(kept: str) -> None:
    profiles = profiles_of(jobs=8, share=0.6, noise=0.02, bare=kept == "names only")
    if kept == "some features":
        features = profiles.features
        isolated, batch = features.isolated.copy(), features.batch.copy()
        isolated[2, 0] = isolated[:, 1] = batch[3] = np.nan
        family = ("", *features.family[1:])
        profiles = replace(
            profiles, features=replace(features, isolated=isolated, batch=batch, family=family)
        )
    if kept == "only beside themselves":
        full = profiles_of(jobs=8)
        profiles = full.take(np.flatnonzero(full.pairs.first == full.pairs.second))
    model = GaussianPairs.fit(profiles, {"iterations": 15})
    said = model.fractions(every_pair(8))
    gpu, one, two = (index.ravel() for index in np.indices((2, 8, 8)))
    true = np.array([effects(GPUS[g], a, b) for g, a, b in zip(gpu, one, two, strict=True)])
    assert np.abs(said.first / true - 1).mean() < (
        0.2 if kept == "only beside themselves" else 0.04
    )
    again = make_pair_model(json.loads(json.dumps(model.document())))
    np.testing.assert_array_equal(again.fractions(every_pair(8)).log_sd, said.log_sd)


@pytest.mark.unit
def test_the_gradient_of_a_process_is_that_of_its_covariance() -> None:
    profiles = profiles_of(share=0.4)
    kernel, random = JobKernel.of(profiles.features), np.random.default_rng(0)
    weights = random.normal(size=(len(profiles), len(profiles)))
    weights += weights.T
    at = np.concatenate((kernel.start, START)) + random.normal(size=kernel.size + len(START)) / 2
    for sign in (1, -1):

        def value(parameters: np.ndarray, sign: int = sign) -> float:
            process = PairProcess(kernel, sign, parameters)
            covariance = process.covariance(profiles.pairs, profiles.pairs)
            np.testing.assert_allclose(
                np.diag(covariance), process.variance(profiles.pairs), rtol=1e-12
            )
            return float((weights * covariance).sum() + np.trace(weights) * process.noise)

        slopes = [(value(at + step) - value(at - step)) / 2e-5 for step in 1e-5 * np.eye(len(at))]
        np.testing.assert_allclose(
            PairProcess(kernel, sign, at).gradient(profiles.pairs, weights),
            slopes,
            rtol=1e-6,
            atol=1e-7,
        )


def test_auto_says_what_it_took_and_why() -> None:
    few = pair_class("auto").fit(profiles_of(share=0.07, seed=1), {}).document()
    assert few["chosen"]["model"] == "row-column"
    assert (
        few["because"] == "3 pairs were measured: too few for more than effects of rows and columns"
    )
    model = (
        pair_class("auto")
        .fit(profiles_of(share=0.7), {"gaussian-pairs": {"iterations": 2}})
        .document()
    )
    assert model["chosen"]["model"] == "gaussian-pairs"
    assert "at most 2000" in model["because"]


@pytest.mark.parametrize(("bare", "chosen"), [(True, "row-column"), (False, "boosted-pairs")])
def test_auto_with_many_pairs(monkeypatch: pytest.MonkeyPatch, bare: bool, chosen: str) -> None:
    monkeypatch.setattr(pair_models, "MOST_GAUSSIAN", 10)
    name, because = pair_models.choose(profiles_of(bare=bare))
    assert name == chosen
    assert "42 pairs were measured" in because


# --- errors -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"first": ["a"]}, "first: found 1 values, expected 2, as many as gpu"),
        (
            {"fraction_first": [0.5, 1.5]},
            "fraction_first[1]: found 1.5, expected a number from 0 to 1",
        ),
        (
            {"fraction_second": [0.5, 0.0]},
            "fraction_second[1]: found 0.0, expected 0 for both jobs or for none...",
        ),
        (
            {"isolated": {("a", "g"): 0.0}},
            "isolated.a.g: found 0.0, expected a finite number above 0",
        ),
        (
            {"utilisation": {("a", "g"): 1.2}},
            "utilisation.a.g: found 1.2, expected a number from 0 to 1",
        ),
        ({"batch": {"a": -1.0}}, "batch.a: found -1.0, expected a finite number above 0"),
    ],
)
def test_profiles_that_cannot_be(columns: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"gpu": ["g", "g"], "first": ["a", "a"], "second": ["b", "c"], "fraction_first": [0.5, 0.5],
                             "fraction_second": [0.5, 0.5]}  # fmt: skip
    with refuses(message):
        PairProfiles.of(**(given | columns))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        (
            "row-column",
            {"penalty": 0.0},
            "performance.penalty: found 0.0, expected a number above 0",
        ),
        (
            "completion",
            {"ranks": 3},
            "performance.ranks: found an unknown key 'ranks', expected one of the format's keys "
            "(did you mean rank...",
        ),
        (
            "gaussian-pairs",
            {"sample": 0},
            "performance.sample: found 0, expected a number of at least 1",
        ),
        (
            "utilisation",
            {"rule": "x"},
            "performance.rule: found \"x\", expected one of 'isotonic' or 'horus'",
        ),
        (
            "auto",
            {"x": {}},
            "performance.x: found {}, expected options of one of boosted-pairs, completion, "
            "conformal-pairs, gaussian-pairs, row-column, utilisation by its name",
        ),
        (
            "conformal-pairs",
            {"of": {"model": "x"}},
            'performance.of.model: found "x", expected one of auto...',
        ),
        (
            "conformal-pairs",
            {"of": {"model": "row-column", "penalty": 0.0}},
            "performance.of.penalty: found 0.0",
        ),
    ],
)
def test_options_that_cannot_be(name: str, options: dict[str, Any], message: str) -> None:
    with refuses(message):
        pair_class(name).fit(profiles_of(), options)


@pytest.mark.unit
@pytest.mark.parametrize("name", ["completion", "gaussian-pairs", "row-column", "boosted-pairs"])
def test_too_few_pairs(name: str) -> None:
    with refuses("profiles: found 1 pairs that ran together, expected at least..."):
        pair_class(name).fit(profiles_of().take(np.array([0])), {})


def test_trees_need_features() -> None:
    with refuses("profiles: found nothing but names of workloads, expected a family..."):
        pair_class("boosted-pairs").fit(profiles_of(bare=True), {})


@needs_sklearn
@pytest.mark.parametrize("left", ["family", "batch", "isolated"])
def test_trees_leave_out_what_is_unknown_of_every_pair(left: str) -> None:
    profiles = profiles_of()
    known = profiles.features
    none = {
        "family": ("",) * len(known.workloads),
        "batch": np.full_like(known.batch, np.nan),
        "isolated": np.full_like(known.isolated, np.nan),
    }
    bare = PairProfiles(
        profiles.pairs, profiles.first, profiles.second,
        replace(known, **{name: value for name, value in none.items() if name != left}),
    )  # fmt: skip
    model = pair_class("boosted-pairs").fit(bare, {"iterations": 20, "rows_per_leaf": 2})
    document = json.loads(json.dumps(model.document()))
    assert document["trees"]["features"] == 7 + 2 * len(known.gpu_types)
    asked = set(document["trees"]["feature"])
    own = {"family": {1, 6}, "batch": {2, 7}, "isolated": {3, 4, 5, 8, 9, 10}}[left]
    assert asked <= {0} | own and asked & own
    again = make_pair_model(document).fractions(every_pair())
    np.testing.assert_array_equal(again.first, model.fractions(every_pair()).first)
    assert np.isfinite(again.first).all()


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("row-column", {"effects": {}}, "p.effects.k80: found nothing, expected this key"),
        ("row-column", {"measured": [{"gpu": "k80", "first": "x", "second": "j0", "fractions": [1.0, 1.0]}]},
         'p.measured[0].first: found "x", expected one of workloads'),
        ("row-column", {"measured": [{"gpu": "k80", "first": "j1", "second": "j0", "fractions": [1.0]}]},
         "p.measured[0].fractions: found [1.0], expected at least 2 entries"),
        ("row-column", {"measured": [{"gpu": "k80", "first": "j1", "second": "j0", "fractions": [1.0, 0.0]}]},
         "p.measured: fraction_second[0]: found 0.0, expected 0 for both..."),
        ("completion", {"completed": [[0.5]]}, "p.completed: found another shape, expected 6 rows of 12 values"),
        ("gaussian-pairs", {"together": [0.0]}, "p.together: found 1 values, expected 10 for this model"),
        ("gaussian-pairs", {"apart": [99.0] * 10}, "p.apart[0]: found 99, expected a log within +-20"),
        ("utilisation", {"sums": []}, "p.logs: found 5 values, expected 0, as many as sums"),
        ("utilisation", {"sums": [2.0, 1.0], "logs": [0.0, -1.0]}, "p: found sums or logs out of order"),
        ("auto", {"chosen": {"model": 3}}, "p.chosen.model: found 3, expected one of auto..."),
        ("conformal-pairs", {"radius": -1.0}, "p.radius: found -1.0, expected a number of at least 0"),
    ],
)  # fmt: skip
def test_documents_that_cannot_be(name: str, change: dict[str, Any], message: str) -> None:
    document = fit(name, profiles_of(share=0.7)).document() | change
    with refuses(message):
        make_pair_model(document, "p")


def test_no_document() -> None:
    with refuses("performance.pairs: found 3, expected the document of a model of pairs"):
        make_pair_model(3)
